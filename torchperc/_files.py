"""Files and folders that are written atomically, folders with one owner, and checksums."""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import shutil
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from torchperc._checks import Option, ParameterError

LOCK = ".torchperc-lock"
"""The lock file in a folder that a process owns."""


class FolderInUseError(ParameterError):
    """Another process writes to the folder."""


def checksum(*content: bytes | memoryview, size: int = 16) -> str:
    """Return the BLAKE2b checksum of ``size`` bytes, in hexadecimal digits."""
    digest = hashlib.blake2b(digest_size=size)
    for piece in content:
        digest.update(piece)
    return digest.hexdigest()


def write_atomically(path: Path, content: bytes, *, make_folder: bool = False) -> None:
    """Write a file atomically: a crash or power loss leaves the old content or the new.

    ``make_folder`` creates the folder if there is none.

    Example:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> write_atomically(folder / "a" / "b.txt", b"hello", make_folder=True)
        >>> [file.name for file in (folder / "a").iterdir()]
        ['b.txt']
    """
    with atomic_path(path) as part, _named_errors(path):
        if make_folder:
            path.parent.mkdir(parents=True, exist_ok=True)
        part.write_bytes(content)


@contextlib.contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """Yield a hidden name beside ``path``; the file or folder written there is renamed to ``path`` at the end.

    After an exception, what was written is removed and what was there before stays. A process that is killed leaves
    ``.torchperc-part-*`` behind, see :func:`hidden_path`.

    Example:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> with atomic_path(folder / "a.txt") as part:
        ...     _ = part.write_text("hello")
        >>> [file.name for file in folder.iterdir()]
        ['a.txt']
    """
    part = hidden_path(path.parent)
    try:
        yield part
        with _named_errors(path):
            if part.is_dir() and path.exists():
                with moved_aside(path.parent, [path]):
                    os.replace(part, path)
            else:
                if part.is_file():
                    _flush(part)
                os.replace(part, path)
        with contextlib.suppress(OSError):  # of a file system that does not flush folders
            _flush(path.absolute().parent)
    finally:
        remove(part)


@contextlib.contextmanager
def moved_aside(folder: Path, paths: Iterable[Path]) -> Iterator[None]:
    """Move files and folders aside: restored if the block fails, deleted if it succeeds.

    Example:
        >>> import tempfile
        >>> file = Path(tempfile.mkdtemp(), "a")
        >>> _ = file.write_text("old")
        >>> with contextlib.suppress(OSError), moved_aside(file.parent, [file]):
        ...     _ = file.write_text("new")
        ...     raise OSError("the disk is full")
        >>> file.read_text()
        'old'
    """
    aside, waste = hidden_path(folder, "old"), hidden_path(folder)
    aside.mkdir(mode=0o700)
    try:
        for path in paths:
            os.replace(path, aside / path.name)
        yield
    except BaseException:
        for path in aside.iterdir():
            os.replace(path, folder / path.name)
        aside.rmdir()
        raise
    os.replace(aside, waste)  # a part from here on, if this process is killed
    remove(waste)


@contextlib.contextmanager
def _named_errors(path: Path) -> Iterator[None]:
    """Make an ``OSError`` of the block name the file and the remedy."""
    try:
        yield
    except OSError as error:
        raise type(error)(
            f"cannot write {path}: the folder {path.parent} does not accept it ({error.strerror or error}); "
            "free some space, or choose a writable folder"
        ) from error


def _flush(path: Path) -> None:
    """Write a file, or the names in a folder, to the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def hidden_path(folder: Path, kind: str = "part") -> Path:
    """Return a free name ``.torchperc-<kind>-<random>`` in a folder, for something incomplete.

    Parts that a killed process left there are removed a day later. Things of another kind are never removed.
    """
    with contextlib.suppress(OSError):  # a folder that cannot be listed
        for left in folder.glob(".torchperc-part-*"):
            if left.lstat().st_mtime < time.time() - 86400:
                remove(left)
    return folder / f".torchperc-{kind}-{secrets.token_hex(8)}"


def remove(path: Path) -> None:
    """Remove a file, a link or a folder with its content, as far as permissions allow."""
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)  # which leaves links to folders alone
    with contextlib.suppress(OSError):
        path.unlink()


@contextlib.contextmanager
def locked_folder(folder: Path) -> Iterator[Path]:
    """Create a folder if needed, and keep other processes from locking it until the block is left.

    The lock of a process that dies is released. A folder that stayed empty is removed. A folder that is locked already
    is a :class:`FolderInUseError`.

    Example:
        >>> import tempfile
        >>> with locked_folder(Path(tempfile.mkdtemp(), "run")) as folder:
        ...     [path.name for path in folder.iterdir()]
        ['.torchperc-lock']
        >>> folder.exists()
        False
    """
    from filelock import FileLock, Timeout

    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    lock = FileLock(folder / LOCK, timeout=0)
    try:
        with _named_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
            try:
                lock.acquire()
            except Timeout:
                why = " is in use by another process; wait for it, or choose another folder"
                raise FolderInUseError(Option("folder", folder), why) from None
        inode = (folder / LOCK).stat().st_ino
        try:
            yield folder
        finally:
            with contextlib.suppress(OSError):
                if (folder / LOCK).stat().st_ino == inode:  # else a complete folder has taken this one's place
                    (folder / LOCK).unlink()
            lock.release()
    finally:
        with contextlib.suppress(OSError):  # the first one that is not empty
            for path in missing:
                path.rmdir()
