"""Tensors and text in one safetensors file with a checksum, written atomically: what files of models are made of."""

from __future__ import annotations

import json
from collections.abc import Mapping
from operator import ne
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torchperc._files import checksum, write_atomically

if TYPE_CHECKING:
    from torch import Tensor

_CHECKSUM = "torchperc.checksum"
_FORMAT = {"format": "pt"}  # by this entry other readers of safetensors recognise torch tensors
RESERVED = (*_FORMAT, _CHECKSUM)  # names of text that the file itself uses


def write_checksummed(path: str | Path, tensors: Mapping[str, Tensor], texts: Mapping[str, str]) -> None:
    """Write tensors and text to a file with a checksum; equal content gives equal bytes.

    Args:
        path: the file, in a folder that exists. A file of that name is replaced.
        tensors: by name, contiguous and on the CPU.
        texts: by name, none of :data:`RESERVED`.
    """
    from safetensors.torch import save

    header, data = _split(save(dict(tensors), {**texts, **_FORMAT}))
    header["__metadata__"][_CHECKSUM] = _checksum(header, data)
    text = json.dumps(header, sort_keys=True, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # tensors begin at a multiple of eight
    write_atomically(Path(path), b"".join((len(text).to_bytes(8, "little"), text, data)))


def read_checksummed(
    path: str | Path, remedy: str = "export it again"
) -> tuple[dict[str, Tensor], dict[str, str], bool]:
    """Return tensors and text of a safetensors file, and whether it has a checksum; a wrong one is an error.

    Example:
        >>> import tempfile, torch
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     write_checksummed(f"{folder}/a.safetensors", {"x": torch.ones(2)}, {"about": "ones"})
        ...     read_checksummed(f"{folder}/a.safetensors")
        ({'x': tensor([1., 1.])}, {'about': 'ones'}, True)
    """
    from safetensors.torch import load

    content = Path(path).read_bytes()
    try:
        tensors = load(content)
        header, data = _split(content)
        metadata: dict[str, str] = header.get("__metadata__", {})
        found = metadata.pop(_CHECKSUM, None)
        misspelt = any(len(name) == len(_CHECKSUM) and sum(map(ne, name, _CHECKSUM)) == 1 for name in metadata)
        if misspelt or found not in (None, _checksum(header, data)):
            raise ValueError("its checksum does not match")
    except Exception as error:  # whatever safetensors and json make of a damaged file
        raise ValueError(f"{path} is not a safetensors file, or is damaged ({error}); {remedy}") from None
    return tensors, {name: text for name, text in metadata.items() if name not in _FORMAT}, found is not None


def _split(content: bytes) -> tuple[dict[str, Any], memoryview]:
    """Return the header and the tensors' bytes: eight bytes of length, JSON, then the data."""
    end = 8 + int.from_bytes(content[:8], "little")
    return json.loads(content[8:end]), memoryview(content)[end:]


def _checksum(header: dict[str, Any], data: memoryview) -> str:
    return checksum(json.dumps(header, sort_keys=True).encode(), data)
