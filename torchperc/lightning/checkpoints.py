"""Lightning's checkpoints, written atomically with a checksum, and read without running code.

A file is what ``torch.save`` writes, a zip archive, with a checksum in its comment: ``torch.load``, ``unzip`` and
Lightning without the plugin read it too.
"""

from __future__ import annotations

import io
import os
import zipfile
from collections.abc import Iterator, Mapping
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from torchperc._checks import find_non_finite
from torchperc._files import checksum, write_atomically
from torchperc.lightning._pl import pl

LAST = "last.ckpt"
"""The checkpoint in a run's folder, from which the run resumes."""
_MARK = b"torchperc checkpoint 1 blake2b "
_DIGEST = 64  # hex digits
_TRAINED = ("state_dict", "optimizer_states")  # a callback's best score may be infinite, these may not


class CheckpointError(ValueError):
    """A checkpoint that cannot be written or must not be loaded.

    Example:
        >>> try:
        ...     SafeCheckpointIO().load_checkpoint("none.ckpt")
        ... except CheckpointError as error:
        ...     print(error)
        cannot read none.ckpt (No such file or directory); check the path
    """


class SafeCheckpointIO(pl.plugins.CheckpointIO):
    """Writes a Trainer's checkpoints atomically with a checksum, and loads nothing that could run code.

    What :meth:`load_checkpoint` would refuse is not written, so the last good file stays.

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
        if storage_options is not None:
            raise TypeError(f"storage_options={storage_options!r} is not supported by SafeCheckpointIO; leave it out")
        target = _local(path)
        buffer = io.BytesIO()
        torch.save(_sound(plain(checkpoint), f"cannot write {target}"), buffer)
        try:
            write_atomically(target, _seal(buffer.getvalue()), make_folder=True)
        except OSError as error:
            raise CheckpointError(str(error)) from error

    def load_checkpoint(
        self, path: str | Path, map_location: Any | None = None, weights_only: bool | None = None
    ) -> dict[str, Any]:
        """Read a file that :meth:`save_checkpoint` wrote, always with ``weights_only=True``; refuse any other."""
        if weights_only is False:
            raise ValueError("weights_only=False would run code found in the file; leave it out")
        return _open(_local(path), map_location)

    def remove_checkpoint(self, path: str | Path) -> None:
        """Remove a checkpoint file, if it exists."""
        target = _local(path)
        try:
            target.unlink(missing_ok=True)
        except OSError as error:
            raise CheckpointError(f"cannot remove {target} ({error.strerror or error}); remove it by hand") from error


def plain(value: Any) -> Any:
    """A nested structure in plain types, which load without running code; tensors are not copied.

    Subclasses of dict, list, tuple, str, int, float and Tensor, paths, numpy scalars and enums are converted; anything
    else is a ``TypeError`` that says where it is.

    Example:
        >>> plain({"file": Path("a") / "b", "lr": np.float64(0.5), "shape": torch.Size((2,))})
        {'file': 'a/b', 'lr': 0.5, 'shape': (2,)}
        >>> plain({"hyper_parameters": {"layers": [2, print]}})  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        TypeError: hyper_parameters.layers[1] is a builtin_function_or_method, ...
    """
    return _plain(value, "")


def _plain(value: Any, at: str) -> Any:
    if value is None or type(value) in (bool, int, float, str):
        return value
    if isinstance(value, Tensor):
        return value.detach().as_subclass(Tensor)
    if isinstance(value, Mapping):
        return _plain_dict(value, at)
    if isinstance(value, list | tuple):
        items = (_plain(item, f"{at}[{i}]") for i, item in enumerate(value))
        return tuple(items) if isinstance(value, tuple) else list(items)
    if isinstance(value, Enum):
        return _plain(value.value, at)
    if isinstance(value, os.PathLike):
        return _plain(os.fspath(value), at)
    if isinstance(value, np.generic) and not isinstance(value.item(), np.generic):  # a longdouble stays one
        return _plain(value.item(), at)
    for kind in (str, int, float):
        if isinstance(value, kind):
            return kind(value)
    raise TypeError(
        f"{at or 'the value'} is a {type(value).__name__}, which a checkpoint cannot store safely; make it a dict, "
        "list, tuple, str, int, float, bool, None or tensor, or omit it: save_hyperparameters(ignore=[...])"
    )


def _plain_dict(value: Mapping[Any, Any], at: str) -> dict[Any, Any]:
    result: dict[Any, Any] = {}
    for key, item in value.items():
        here = f"{at}.{key}" if at else str(key)
        name = _plain(key, f"the key {here}")
        if isinstance(name, Tensor | list | dict) or name in result:
            raise TypeError(f"the key {here} ({type(key).__name__}) is not unique; use a different str or int")
        result[name] = _plain(item, here)
    return result


def _local(path: str | Path) -> Path:
    if "://" in str(path):  # as a local path it would make a folder named after the protocol
        raise CheckpointError(f"cannot use {path}: SafeCheckpointIO works on local files; give a path without '://'")
    return Path(path)


def _sound(checkpoint: Any, what: str) -> dict[str, Any]:
    """The checkpoint, if it holds weights and all that was trained is finite."""
    if not isinstance(checkpoint, dict) or not isinstance(checkpoint.get("state_dict"), dict):
        found = list(checkpoint) if isinstance(checkpoint, dict) else type(checkpoint).__name__
        raise CheckpointError(
            f"{what}: there is no 'state_dict' with weights in it, found {found}; use Trainer's files"
        )
    bad = find_non_finite(pair for key in _TRAINED for pair in _tensors(checkpoint.get(key), key))
    if bad:
        raise CheckpointError(f"{what}: {bad}, so training has diverged; go back to an earlier checkpoint, lower lr")
    return checkpoint


def _tensors(value: Any, at: str) -> Iterator[tuple[str, Tensor]]:
    if isinstance(value, Tensor):
        yield at, value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _tensors(item, f"{at}.{key}")
    elif isinstance(value, list | tuple):
        for i, item in enumerate(value):
            yield from _tensors(item, f"{at}[{i}]")


def _seal(archive: bytes) -> bytes:
    """A zip archive with the checksum as its comment, whose length is the archive's last two bytes."""
    body = archive[:-2] + (len(_MARK) + _DIGEST).to_bytes(2, "little")
    return body + _MARK + _checksum(body)


def _checksum(body: bytes) -> bytes:
    return checksum(body, size=_DIGEST // 2).encode()


def verify(path: Any) -> None:
    """Raise :class:`CheckpointError` if a local file is damaged: by the checksum, else by those of the zip archive."""
    if not isinstance(path, str | Path) or not Path(path).is_file():
        return  # Lightning reads other places, too
    content = Path(path).read_bytes()
    if content[:-_DIGEST].endswith(_MARK):
        intact = content[-_DIGEST:] == _checksum(content[: -len(_MARK) - _DIGEST])
    else:
        try:
            intact = zipfile.ZipFile(io.BytesIO(content)).testzip() is None
        except (zipfile.BadZipFile, NotImplementedError, EOFError, OSError):  # what zipfile makes of wrong bytes
            intact = False
    if not intact:
        raise CheckpointError(f"{path} is damaged: its checksum does not match; use another checkpoint")


def _open(path: Path, map_location: Any | None) -> dict[str, Any]:
    """Return the content of a checkpoint; nothing is unpickled before the checksum matches."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise CheckpointError(f"cannot read {path} ({error.strerror or error}); check the path") from error
    if not content[:-_DIGEST].endswith(_MARK):
        raise CheckpointError(
            f"{path} is cut short or not written by SafeCheckpointIO: its checksum is missing; "
            "use another checkpoint, or save this one again through Trainer(plugins=[SafeCheckpointIO()])"
        )
    verify(path)
    try:
        checkpoint = torch.load(io.BytesIO(content), map_location=map_location or "cpu", weights_only=True)
    except Exception as error:  # whatever torch makes of an archive that was not made here
        raise CheckpointError(
            f"{path} holds more than plain types and tensors ({type(error).__name__}); use another checkpoint"
        ) from error  # whose text advises weights_only=False
    sound = _sound(checkpoint, f"cannot load {path}")
    if "pytorch-lightning_version" not in sound:
        raise CheckpointError(f"cannot load {path}: it holds weights but no run to resume; use a Trainer's file")
    return sound
