"""Weights to and from safetensors files, which any ``nn.Linear`` of the same shape reads; and files written whole."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from torchperc.folders import hidden, remove, written

_CHECKSUM = "torchperc.checksum"
_RESERVED = {"format": "pt"}  # by this entry other readers of safetensors recognise torch tensors


def save_safetensors(net: nn.Module, path: str | Path, metadata: Mapping[str, str] | None = None) -> None:
    """Write the weights of a net to one safetensors file, which carries a checksum and appears whole or not at all.

    The names are those of ``net.state_dict()``, so that the file of a :class:`torchperc.Perceptron` loads into
    ``nn.Linear(d, 1)`` and that of a :class:`torchperc.MulticlassPerceptron` into ``nn.Linear(d, K)``.

    Args:
        net: any module whose state is tensors; NaN and infinities are refused.
        path: the file, in a folder that exists. A file of that name is replaced.
        metadata: further text to keep in the file, by name.

    Example:
        >>> import tempfile
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
    about = {**_texts(metadata), **_RESERVED}
    about[_CHECKSUM] = _checksum(*_parts(save(tensors, about)))
    write_whole(Path(path), _in_order(save(tensors, about)))


def load_safetensors(path: str | Path, net: nn.Module) -> dict[str, str]:
    """Load the weights of a safetensors file into a net, all of them or none.

    Names, shapes and dtypes must be those of the net. A file that :func:`save_safetensors` wrote is checked against
    its checksum; one from elsewhere has none and is taken as it reads.

    Args:
        path: a safetensors file.
        net: the module that receives the weights; on any error it keeps its own.

    Returns:
        The text kept in the file, by name.

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
        raise ValueError(
            f"{path} does not fit {type(net).__name__}: {'; '.join(differences)}. "
            "Load it into a net of the sizes and dtype it was saved from"
        )
    _refuse_non_finite(tensors, f"cannot load {path}", "use another file")
    net.load_state_dict(tensors)
    return metadata


def read_safetensors(path: str | Path) -> tuple[dict[str, Tensor], dict[str, str], bool]:
    """Read the tensors and the text of a safetensors file; a checksum that does not fit is a ``ValueError``.

    Args:
        path: a safetensors file.

    Returns:
        The tensors by name, the text by name, and whether there was a checksum to hold them against.

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
            raise ValueError("its checksum does not fit")
    except Exception as error:  # whatever safetensors and json make of a damaged file
        raise ValueError(f"{path} is not a safetensors file, or is damaged ({error}); export it again") from None
    texts = {name: text for name, text in metadata.items() if name not in _RESERVED}
    return tensors, texts, checksum is not None


def write_whole(path: Path, content: bytes, *, make_folder: bool = False) -> None:
    """Write a file so that under its name there is always the old content or the new, also after a loss of power.

    The content is written beside the target, on the same file system, and reaches the disk before it takes the
    target's name. A process killed half-way leaves ``.torchperc-part-*`` behind, which nothing reads
    and the next process that writes there removes.

    Args:
        path: the file; one of that name is replaced.
        content: its bytes.
        make_folder: create the folder if there is none.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     write_whole(Path(folder, "a", "b.txt"), b"hello", make_folder=True)
        ...     [file.name for file in Path(folder, "a").iterdir()]
        ['b.txt']
    """
    if make_folder:
        written(path, lambda: path.parent.mkdir(parents=True, exist_ok=True))
    with appearing(path) as part:
        written(path, lambda: part.write_bytes(content))


@contextlib.contextmanager
def appearing(path: Path) -> Iterator[Path]:
    """A name beside the target to write a file or a folder under, which takes the target's name when it is complete.

    If the block is left by an exception, what was written goes away, and what was there before stays.

    Args:
        path: the file or folder; what has that name is replaced.

    Example:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> with appearing(folder / "a.txt") as part:
        ...     _ = part.write_text("hello")
        >>> [file.name for file in folder.iterdir()]
        ['a.txt']
    """
    part = hidden(path.parent)  # no part of the name, which may be as long as allowed
    try:
        yield part
        written(path, lambda: _settle(part, path))
    finally:
        remove(part)  # there is nothing left after a success; a failure is reported already


def _settle(part: Path, path: Path) -> None:
    """Bring what was written to the disk, then under its name; a folder first makes room for another."""
    if part.is_dir():
        _settle_folder(part, path)
    else:
        with part.open("rb") as file:
            os.fsync(file.fileno())
        os.replace(part, path)
    _sync_folder(path.absolute().parent)


def _settle_folder(part: Path, path: Path) -> None:
    if not path.exists():
        os.replace(part, path)
        return
    old, waste = hidden(path.parent, "old"), hidden(path.parent)
    os.replace(path, old)
    try:
        os.replace(part, path)
    except BaseException:
        os.replace(old, path)
        raise
    os.replace(old, waste)  # from here on the next process may remove it, if this one is killed
    remove(waste)


def non_finite(tensors: Iterable[tuple[str, Tensor]]) -> str | None:
    """Say which of some named tensors is the first with NaN or an infinity; ``None`` if all are finite.

    Example:
        >>> non_finite({"weight": torch.ones(2), "bias": torch.tensor([float("nan")])}.items())
        'bias holds nan'
    """
    for name, tensor in tensors:
        values = tensor.detach().to_dense() if tensor.layout != torch.strided else tensor.detach()
        bad = ~torch.isfinite(values)
        if bad.any():
            return f"{name} holds {values[bad][0].item()}"
    return None


def _sync_folder(folder: Path) -> None:
    if os.name == "nt":  # Windows gives no handle on folders; its renames are journalled
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # a file system that does not sync folders at all
            raise
    finally:
        os.close(handle)


def _detached(name: str, value: object) -> Tensor:
    if not isinstance(value, Tensor):
        raise TypeError(f"{name} in the state of the net is a {type(value).__name__}; a safetensors file takes tensors")
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


def _in_order(content: bytes) -> bytes:
    """The same file with the names in its header sorted, so that the same content is the same bytes."""
    header, data = _parts(content)
    text = json.dumps(header, sort_keys=True, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # tensors begin at a multiple of eight
    return len(text).to_bytes(8, "little") + text + data


def _checksum(header: dict[str, Any], data: bytes) -> str:
    digest = hashlib.blake2b(json.dumps(header, sort_keys=True).encode(), digest_size=16)
    digest.update(data)
    return digest.hexdigest()


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
            yield f"{name} is {_kind(tensor)} in the file, {_kind(own[name])} in the net"


def _kind(tensor: Tensor) -> str:
    return f"{tuple(tensor.shape)} {tensor.dtype}"
