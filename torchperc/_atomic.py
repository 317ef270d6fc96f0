"""Files and folders that are written atomically: hidden names while incomplete, one owner per folder, checksums."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
import secrets
import shutil
import socket
import tempfile
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path

from torchperc._checks import Option, ParameterError

LOCK = ".torchperc-lock"
"""The file in a claimed folder that holds the owner's process number."""
_NAME = re.compile(r"\.torchperc-(?!old-)[a-z]+-(\d{1,9})-([0-9a-f]{8})[0-9a-f]{8}")
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP)  # a file system without them


class FolderInUseError(ParameterError):
    """Another process writes to the folder."""


def checksum(*content: bytes | memoryview, size: int = 16) -> str:
    """The checksum that torchperc's own files carry: BLAKE2b of so many bytes, in hexadecimal digits."""
    digest = hashlib.blake2b(digest_size=size)
    for piece in content:
        digest.update(piece)
    return digest.hexdigest()


# --- writing ---


def write_whole(path: Path, content: bytes, *, make_folder: bool = False) -> None:
    """Write a file atomically: under its name is always the old content or the new, also after a loss of power.

    Args:
        path: the file; one of that name is replaced.
        content: its bytes.
        make_folder: create the folder if there is none.

    Example:
        >>> folder = Path(tempfile.mkdtemp())
        >>> write_whole(folder / "a" / "b.txt", b"hello", make_folder=True)
        >>> [file.name for file in (folder / "a").iterdir()]
        ['b.txt']
    """
    if make_folder:
        _written(path, lambda: path.parent.mkdir(parents=True, exist_ok=True))
    with appearing(path) as part:
        _written(path, lambda: part.write_bytes(content))


@contextlib.contextmanager
def appearing(path: Path) -> Iterator[Path]:
    """A name beside the target to write a file or a folder under, which takes the target's name when it is complete.

    If the block is left by an exception, what was written is removed, and what was there before stays. A process that
    is killed leaves ``.torchperc-part-*`` behind, which the next one that writes there removes.

    Example:
        >>> folder = Path(tempfile.mkdtemp())
        >>> with appearing(folder / "a.txt") as part:
        ...     _ = part.write_text("hello")
        >>> [file.name for file in folder.iterdir()]
        ['a.txt']
    """
    part = hidden(path.parent)  # no part of the target's name, which may be as long as allowed
    try:
        yield part
        _written(path, lambda: _settle(part, path))
    finally:
        remove(part)  # there is nothing left after a success; a failure is reported already


@contextlib.contextmanager
def replaced(folder: Path, paths: Iterable[Path]) -> Iterator[None]:
    """Move files of a folder out of the way: back if the block fails, removed when it is done.

    Example:
        >>> file = Path(tempfile.mkdtemp(), "a")
        >>> _ = file.write_text("old")
        >>> with contextlib.suppress(OSError), replaced(file.parent, [file]):
        ...     _ = file.write_text("new")
        ...     raise OSError("the disk is full")
        >>> file.read_text()
        'old'
    """
    aside = temporary("old", folder)
    try:
        for path in paths:
            os.replace(path, aside / path.name)
        yield
    except BaseException:
        for path in aside.iterdir():
            os.replace(path, folder / path.name)
        aside.rmdir()
        raise
    remove(aside)


def _written(path: Path, act: Callable[[], int | None]) -> int | None:
    """Do something that writes; an ``OSError`` says where, and what to do about it."""
    try:
        return act()
    except OSError as error:
        raise type(error)(
            f"cannot write {path}: the folder {path.parent} does not accept it ({error.strerror or error}); "
            "free some space, or choose a writable folder"
        ) from error


def _settle(part: Path, path: Path) -> None:
    """Bring what was written to the disk, then under its name; a folder first makes room for another."""
    if not part.is_dir():
        with part.open("rb") as file:
            os.fsync(file.fileno())
        os.replace(part, path)
    elif not path.exists():
        os.replace(part, path)
    else:
        old, waste = hidden(path.parent, "old"), hidden(path.parent)
        os.replace(path, old)
        try:
            os.replace(part, path)
        except BaseException:
            os.replace(old, path)
            raise
        os.replace(old, waste)  # from here on the next process may remove it, if this one is killed
        remove(waste)
    _sync_folder(path.absolute().parent)


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


# --- hidden names, and what dead processes left under them ---


def hidden(folder: Path, what: str = "part") -> Path:
    """A free name in a folder, ``.torchperc-<what>-<process>-<random>``, for something that is not complete yet.

    If the process is killed, the next one that asks for a name in the same folder removes what is left under it;
    what is named ``"old"`` was complete once and is never removed by others.
    """
    _sweep_once(folder.absolute())
    return folder / f".torchperc-{what}-{os.getpid()}-{_host()}{secrets.token_hex(4)}"


def temporary(what: str, inside: str | Path | None = None) -> Path:
    """Make a folder with a :func:`hidden` name that only this user can read, by default in the temporary folder."""
    folder = hidden(Path(tempfile.gettempdir() if inside is None else inside), what)
    folder.mkdir(mode=0o700)
    return folder


def sweep(folder: Path) -> None:
    """Remove what processes of this machine left under :func:`hidden` names when they were killed; nothing else."""
    if os.name == "nt":  # there is no asking whether a process lives without ending it
        return
    with contextlib.suppress(OSError):  # a folder that cannot be listed has nothing that we could remove
        for entry in list(os.scandir(folder)):
            found = _NAME.fullmatch(entry.name)
            if found and found[2] == _host() and not _alive(int(found[1])):
                remove(Path(entry.path))


_sweep_once = cache(sweep)


def remove(path: Path) -> None:
    """Remove a file, a link or a folder with all that is in it, as far as that can be done."""
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)  # which leaves links to folders alone
    with contextlib.suppress(OSError):
        path.unlink()


@cache
def _host() -> str:
    """Whose process numbers they are: a container has its own, and folders are shared between machines."""
    try:
        space = os.readlink("/proc/self/ns/pid")
    except OSError:
        space = ""
    return hashlib.blake2b(f"{socket.gethostname()} {space}".encode(), digest_size=4).hexdigest()


def _alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # somebody else's
        return True
    return True


# --- one owner per folder ---


@contextlib.contextmanager
def claimed(folder: Path) -> Iterator[Path]:
    """Make a folder if there is none, and keep every other process from claiming it until the block is left.

    The system releases the claim of a process that dies. If nothing was put into the folder, it is removed again. A
    folder that is claimed already is a :class:`FolderInUseError`.

    Example:
        >>> with claimed(Path(tempfile.mkdtemp(), "run")) as folder:
        ...     [path.name for path in folder.iterdir()]
        ['.torchperc-lock']
        >>> folder.exists()
        False
    """
    _sweep_once(Path(tempfile.gettempdir()))  # a run begins, and one that was killed may have left its cache there
    made = [path for path in (folder, *folder.parents) if not path.exists()]
    handle = None
    try:
        handle = _written(folder, lambda: _locked(folder))
        yield folder
    finally:
        if handle is not None:
            with contextlib.suppress(OSError):
                if _is(handle, folder / LOCK):  # else a complete run has taken the folder's place, without the file
                    (folder / LOCK).unlink()
            os.close(handle)
        with contextlib.suppress(OSError):  # the first that is not empty
            for path in made:
                path.rmdir()


def _locked(folder: Path) -> int | None:
    """The open lock file of a folder, which this process now owns; nothing where there are no locks."""
    path = folder / LOCK
    while True:
        folder.mkdir(parents=True, exist_ok=True)
        if os.name == "nt":  # Windows does not rename a folder with an open file in it
            return None
        try:
            handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        except FileNotFoundError:  # its last owner has just removed the folder
            continue
        try:
            _own(handle, folder)
            if _is(handle, path):
                os.ftruncate(handle, 0)
                os.write(handle, str(os.getpid()).encode())
                return handle
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)  # of a file that its last owner has just removed


def _own(handle: int, folder: Path) -> None:
    import fcntl

    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        owner = os.read(handle, 20).decode(errors="replace")
        who = f"process {owner}" if owner.isdecimal() else "another process"
        why = f" is in use by {who}; wait for it, or choose another folder"
        raise FolderInUseError(Option("folder", folder), why) from None
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise


def _is(handle: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), os.stat(path))
    except FileNotFoundError:
        return False
