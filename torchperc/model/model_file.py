"""Files of weights and models; a missing one is refused before torch is imported."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from torchperc._checks import find_non_finite
from torchperc.samples.checksummed import RESERVED, read_checksummed, write_checksummed

if TYPE_CHECKING:
    from torch import Tensor, nn

MODEL = "weights.safetensors"  # the name of the model's file in the folder of a run


def model_file(path: Path) -> Path:
    """The file of a model, given by itself or by the folder of a run.

    Example:
        >>> model_file(Path("no/such/folder"))
        Traceback (most recent call last):
        ValueError: no such run or model: no/such/folder; name the folder of a run, or its weights.safetensors
    """
    if path.is_dir():
        if not (path / MODEL).is_file():
            raise ValueError(f"{path} has no {MODEL}; `torchperc fit` and `torchperc learn` write one when they finish")
        return path / MODEL
    if not path.is_file():
        raise ValueError(f"no such run or model: {path}; name the folder of a run, or its {MODEL}")
    return path


def save_safetensors(net: nn.Module, path: str | Path, metadata: Mapping[str, str] | None = None) -> None:
    """Write the weights of a net to one safetensors file, atomically and with a checksum.

    The names are those of ``net.state_dict()``, so that the file of a ``Perceptron`` loads into ``nn.Linear(d, 1)``.

    Args:
        net: any module whose state is tensors; NaN and infinities are refused.
        path: the file, in a folder that exists. A file of that name is replaced.
        metadata: further text to keep in the file, by name.

    Example:
        >>> import tempfile
        >>> import torch, torchperc as tp
        >>> net, linear = tp.Perceptron(2, init="normal", seed=0), torch.nn.Linear(2, 1)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     save_safetensors(net, f"{folder}/net.safetensors", {"trained on": "AND"})
        ...     load_safetensors(f"{folder}/net.safetensors", linear)
        {'trained on': 'AND'}
        >>> torch.equal(linear.weight, net.weight)
        True
    """
    state = net.state_dict().items()  # which is copied, as safetensors refuses tied weights
    tensors = {name: value.detach().to("cpu", copy=True).contiguous() for name, value in state}
    for name, text in (metadata or {}).items():
        if not isinstance(name, str) or not isinstance(text, str):
            raise TypeError(f"metadata must map str to str, found {name!r}: {text!r}; write str(...) around it")
        if name in RESERVED:
            raise ValueError(f"metadata name {name!r} is used by the file itself; choose another")
    if found := find_non_finite(tensors.items()):
        raise ValueError(f"cannot save {path}: {found}, and weights must be finite; train the net again")
    write_checksummed(path, tensors, metadata or {})


def load_safetensors(path: str | Path, net: nn.Module) -> dict[str, str]:
    """Load all weights of a safetensors file into a net; return its text by name.

    Names, shapes and dtypes must be those of the net; on any error it keeps its own weights. A file that
    :func:`save_safetensors` wrote is checked against its checksum.
    """
    tensors, metadata, _ = read_checksummed(path)
    if differences := size_differences(tensors, net.state_dict()):
        raise ValueError(
            f"{path} does not fit {type(net).__name__}: {differences}; load it into a net like that it is of"
        )
    if found := find_non_finite(tensors.items()):
        raise ValueError(f"cannot load {path}: {found}, and weights must be finite; use another file")
    net.load_state_dict(tensors)
    return metadata


def size_differences(held: Mapping[str, Tensor], needed: Mapping[str, Tensor]) -> str:
    """List differences in name, shape or dtype between a file's tensors and a net's."""
    file, net = (
        {name: f"{tuple(each.shape)} {each.dtype}" for name, each in found.items()} for found in (held, needed)
    )
    return "; ".join(
        f"{name} is {file.get(name, 'missing')} in the file, {net.get(name, 'missing')} in the net"
        for name in {**net, **file}
        if file.get(name) != net.get(name)
    )
