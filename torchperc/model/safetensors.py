"""Weights to and from safetensors files, which any ``nn.Linear`` of the same shape reads."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from torch import Tensor, nn

from torchperc._checks import find_non_finite
from torchperc.samples.checksummed import RESERVED, read_checksummed, write_checksummed


def save_safetensors(net: nn.Module, path: str | Path, metadata: Mapping[str, str] | None = None) -> None:
    """Write the weights of a net to one safetensors file, atomically and with a checksum.

    The names are those of ``net.state_dict()``, so that the file of a ``Perceptron`` loads into ``nn.Linear(d, 1)``.

    Args:
        net: any module whose state is tensors; NaN and infinities are refused.
        path: the file, in a folder that exists. A file of that name is replaced.
        metadata: further text to keep in the file, by name.

    Example:
        >>> import tempfile
        >>> import torch
        >>> import torchperc as tp
        >>> net, linear = tp.Perceptron(2, init="normal", seed=0), nn.Linear(2, 1)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     save_safetensors(net, f"{folder}/net.safetensors", {"trained on": "AND"})
        ...     load_safetensors(f"{folder}/net.safetensors", linear)
        {'trained on': 'AND'}
        >>> torch.equal(linear.weight, net.weight)
        True
    """
    tensors = {}
    for name, value in net.state_dict().items():
        if not isinstance(value, Tensor):
            raise TypeError(f"{name} in the state of the net is a {type(value).__name__}; use tensors only")
        tensors[name] = value.detach().to("cpu", copy=True).contiguous()  # safetensors refuses tied weights
    for name, text in (metadata or {}).items():
        if not isinstance(name, str) or not isinstance(text, str):
            raise TypeError(f"metadata must map str to str, found {name!r}: {text!r}; write str(...) around it")
        if name in RESERVED:
            raise ValueError(f"metadata name {name!r} is used by the file itself; choose another")
    if found := find_non_finite(tensors.items()):
        raise ValueError(f"cannot save {path}: {found}, and weights must be finite; train the net again")
    write_checksummed(path, tensors, metadata or {})


def load_safetensors(path: str | Path, net: nn.Module) -> dict[str, str]:
    """Load the weights of a safetensors file into a net, all of them or none.

    Names, shapes and dtypes must be those of the net; on any error it keeps its own weights. A file that
    :func:`save_safetensors` wrote is checked against its checksum. Returns the text kept in the file, by name.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     save_safetensors(nn.Linear(3, 1), f"{folder}/net.safetensors")
        ...     load_safetensors(f"{folder}/net.safetensors", nn.Linear(2, 1))  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        ValueError: ...net.safetensors does not fit Linear: weight is (1, 3) torch.float32 in the file, (1, 2) ...
    """
    tensors, metadata, _ = read_safetensors(path)
    held, own = (
        {name: f"{tuple(each.shape)} {each.dtype}" for name, each in found.items()}
        for found in (tensors, net.state_dict())
    )
    differences = [
        f"{name} is {held.get(name, 'missing')} in the file, {own.get(name, 'missing')} in the net"
        for name in {**own, **held}
        if held.get(name) != own.get(name)
    ]
    if differences:
        remedy = "load it into a net of the sizes and dtype it was saved from"
        raise ValueError(f"{path} does not fit {type(net).__name__}: {'; '.join(differences)}; {remedy}")
    if found := find_non_finite(tensors.items()):
        raise ValueError(f"cannot load {path}: {found}, and weights must be finite; use another file")
    net.load_state_dict(tensors)
    return metadata


def read_safetensors(path: str | Path) -> tuple[dict[str, Tensor], dict[str, str], bool]:
    """Tensors and texts of a safetensors file by name, and whether it has a checksum, which must be right."""
    return read_checksummed(path)
