"""Weights to and from safetensors files, which any ``nn.Linear`` of the same shape reads."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from torchperc._atomic import checksum, write_whole
from torchperc._checks import non_finite

_CHECKSUM = "torchperc.checksum"
_RESERVED = {"format": "pt"}  # by this entry other readers of safetensors recognise torch tensors


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
    from safetensors.torch import save

    tensors = {name: _detached(name, value) for name, value in net.state_dict().items()}
    _refuse_non_finite(tensors, f"cannot save {path}", "train the net again before exporting it")
    header, data = _parts(save(tensors, {**_texts(metadata), **_RESERVED}))
    header["__metadata__"][_CHECKSUM] = _checksum(header, data)
    text = json.dumps(header, sort_keys=True, separators=(",", ":")).encode()  # the same content is the same bytes
    text += b" " * (-len(text) % 8)  # tensors begin at a multiple of eight
    write_whole(Path(path), len(text).to_bytes(8, "little") + text + data)


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
    differences = list(_differences(tensors, net.state_dict()))
    if differences:
        why = f"{path} does not fit {type(net).__name__}: {'; '.join(differences)}"
        raise ValueError(f"{why}. Load it into a net of the sizes and dtype it was saved from")
    _refuse_non_finite(tensors, f"cannot load {path}", "use another file")
    net.load_state_dict(tensors)
    return metadata


def read_safetensors(path: str | Path) -> tuple[dict[str, Tensor], dict[str, str], bool]:
    """Tensors and text of a safetensors file, by name, and whether it has a checksum; a wrong one is a ``ValueError``.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     save_safetensors(nn.Linear(3, 1), f"{folder}/net.safetensors", {"trained on": "AND"})
        ...     tensors, texts, sealed = read_safetensors(f"{folder}/net.safetensors")
        >>> sorted(tensors), texts, sealed
        (['bias', 'weight'], {'trained on': 'AND'}, True)
    """
    from safetensors.torch import load

    content = Path(path).read_bytes()
    try:
        tensors = load(content)
        header, data = _parts(content)
        metadata: dict[str, str] = header.get("__metadata__", {})
        checksum = metadata.pop(_CHECKSUM, None)
        if checksum not in (None, _checksum(header, data)) or (checksum is None and _renamed(header, data)):
            raise ValueError("its checksum does not match")
    except Exception as error:  # whatever safetensors and json make of a damaged file
        raise ValueError(f"{path} is not a safetensors file, or is damaged ({error}); export it again") from None
    texts = {name: text for name, text in metadata.items() if name not in _RESERVED}
    return tensors, texts, checksum is not None


def _detached(name: str, value: object) -> Tensor:
    if not isinstance(value, Tensor):
        raise TypeError(f"{name} in the state of the net is a {type(value).__name__}; a safetensors file holds tensors")
    return value.detach().to("cpu", copy=True).contiguous()  # a copy, as safetensors refuses tied weights


def _refuse_non_finite(tensors: Mapping[str, Tensor], what: str, remedy: str) -> None:
    found = non_finite(tensors.items())
    if found:
        raise ValueError(f"{what}: {found}, and weights must be finite; {remedy}")


def _texts(metadata: Mapping[str, str] | None) -> dict[str, str]:
    texts = dict(metadata or {})
    for name, text in texts.items():
        if not isinstance(name, str) or not isinstance(text, str):
            raise TypeError(f"metadata must map str to str, found {name!r}: {text!r}; write str(...) around it")
        if name in (*_RESERVED, _CHECKSUM):
            raise ValueError(f"metadata name {name!r} is used by the file itself; choose another")
    return texts


def _parts(content: bytes) -> tuple[dict[str, Any], bytes]:
    """The header and the tensors' bytes: 8 bytes of length, JSON, then the data."""
    end = 8 + int.from_bytes(content[:8], "little")
    return json.loads(content[8:end]), content[end:]


def _checksum(header: dict[str, Any], data: bytes) -> str:
    return checksum(json.dumps(header, sort_keys=True).encode(), data)


def _renamed(header: dict[str, Any], data: bytes) -> bool:
    """Whether a text is the checksum of all else: then it is its name that was damaged."""
    texts: dict[str, str] = header.get("__metadata__", {})
    for name, text in texts.items():
        rest = {**header, "__metadata__": {other: texts[other] for other in texts if other != name}}
        if len(text) == 32 and text == _checksum(rest, data):
            return True
    return False


def _differences(found: Mapping[str, Tensor], own: Mapping[str, Tensor]) -> Iterable[str]:
    for name in own:
        if name not in found:
            yield f"{name} is not in the file"
    for name, tensor in found.items():
        if name not in own:
            yield f"{name} is not in the net"
        elif (tensor.shape, tensor.dtype) != (own[name].shape, own[name].dtype):
            kinds = [f"{tuple(each.shape)} {each.dtype}" for each in (tensor, own[name])]
            yield f"{name} is {kinds[0]} in the file, {kinds[1]} in the net"
