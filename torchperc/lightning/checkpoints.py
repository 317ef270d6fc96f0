"""Lightning's checkpoints, written atomically with a checksum, and read without running code.

A file is what ``torch.save`` writes, a zip archive, with a checksum in its comment: ``torch.load``, ``unzip`` and
Lightning without the plugin read it too.
"""

from __future__ import annotations

import io
import os
import zipfile
from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from torchperc._files import checksum, write_atomically
from torchperc.lightning._pl import pl

LAST = "last.ckpt"
"""The checkpoint in a run's folder, from which the run resumes."""
_MARK = b"torchperc checkpoint 1 blake2b "
_DIGEST = 64  # hex digits


class CheckpointError(ValueError):
    """A checkpoint that cannot be written or must not be loaded."""


class SafeCheckpointIO(pl.plugins.TorchCheckpointIO):
    """Writes a Trainer's checkpoints atomically with a checksum, and loads nothing that could run code.

    Example:
        >>> import tempfile
        >>> from pytorch_lightning import Trainer
        >>> _ = Trainer(plugins=[SafeCheckpointIO()], accelerator="cpu", logger=False, enable_checkpointing=False)
        >>> run = {"state_dict": {"weight": torch.ones(2)}, "pytorch-lightning_version": "2.6.6"}
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     SafeCheckpointIO().save_checkpoint(run, f"{folder}/last.ckpt")
        ...     SafeCheckpointIO().load_checkpoint(f"{folder}/last.ckpt")["state_dict"]
        {'weight': tensor([1., 1.])}
    """

    def save_checkpoint(self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any | None = None) -> None:
        """Write a checkpoint, made :func:`plain`, to a local file, whose folder is created if needed."""
        if "://" in str(path) or storage_options is not None:
            raise CheckpointError(f"cannot write {path}: SafeCheckpointIO writes local files, without storage_options")
        buffer = io.BytesIO()
        torch.save(plain(checkpoint), buffer)
        write_atomically(Path(path), _seal(buffer.getvalue()), make_folder=True)

    def load_checkpoint(
        self, path: str | Path, map_location: Any | None = None, weights_only: bool | None = None
    ) -> dict[str, Any]:
        """Read a file that :meth:`save_checkpoint` wrote, always with ``weights_only=True``; refuse any other."""
        content, sealed = verified(path)
        if not sealed:
            raise CheckpointError(f"{path} is not written by SafeCheckpointIO: it has no checksum; use another one")
        try:
            checkpoint = torch.load(io.BytesIO(content), map_location=map_location or "cpu", weights_only=True)
        except Exception as error:  # whatever torch makes of an archive that was not made here
            raise CheckpointError(f"{path} holds more than plain types and tensors; use another checkpoint") from error
        if not isinstance(checkpoint, dict) or not {"state_dict", "pytorch-lightning_version"} <= checkpoint.keys():
            raise CheckpointError(f"cannot load {path}: there is no run to resume in it; use a Trainer's file")
        return checkpoint


def plain(value: Any, at: str = "") -> Any:
    """Return a nested structure in plain types, which load without running code; tensors are not copied.

    Example:
        >>> plain({"file": Path("a") / "b", "lr": np.float64(0.5), "shape": torch.Size((2,))})
        {'file': 'a/b', 'lr': 0.5, 'shape': (2,)}
    """
    value = value.value if isinstance(value, Enum) else value.item() if isinstance(value, np.generic) else value
    value = os.fspath(value) if isinstance(value, os.PathLike) else value
    if value is None or isinstance(value, bool):
        return value
    for kind in (str, int, float):
        if isinstance(value, kind):
            return kind(value)
    if isinstance(value, Tensor):
        return value.detach().as_subclass(Tensor)
    if isinstance(value, Mapping):
        names = {key: f"{at}.{key}" if at else str(key) for key in value}
        return {plain(key, f"the key {names[key]}"): plain(item, names[key]) for key, item in value.items()}
    if isinstance(value, list | tuple):
        items = [plain(item, f"{at}[{i}]") for i, item in enumerate(value)]
        return tuple(items) if isinstance(value, tuple) else items
    raise TypeError(
        f"{at or 'the value'} is a {type(value).__name__}, which a checkpoint cannot store safely; make it of dicts, "
        "lists, numbers, text and tensors, or omit it: save_hyperparameters(ignore=[...])"
    )


def verified(path: str | Path) -> tuple[bytes, bool]:
    """Return the content of a file that matches its checksum, and whether it has one or only those of a zip archive."""
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise CheckpointError(f"cannot read {path} ({error.strerror or error}); check the path") from error
    sealed = content[:-_DIGEST].endswith(_MARK)
    try:
        entries = zipfile.ZipFile(io.BytesIO(content))
        intact = content == _seal(content[: -len(_MARK) - _DIGEST]) if sealed else entries.testzip() is None
        intact = intact and not any(each.external_attr for each in entries.infolist())  # torch reads no folder's bytes
    except Exception:  # whatever zipfile makes of wrong bytes
        intact = False
    if not intact:
        raise CheckpointError(f"{path} is cut short or damaged: its checksum does not match; use another checkpoint")
    return content, sealed


def _seal(archive: bytes) -> bytes:
    """Return a zip archive with the checksum as its comment, whose length is the archive's last two bytes."""
    body = archive[:-2] + (len(_MARK) + _DIGEST).to_bytes(2, "little")
    return body + _MARK + checksum(body, size=_DIGEST // 2).encode()
