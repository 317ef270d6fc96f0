"""Files before they are understood: their kind, unpacking, how far reading is, and one line for all that fails."""

from __future__ import annotations

import os
import stat
import sys
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, TypeVar

from torchperc import _checks as checks
from torchperc._lazy import requires

_T = TypeVar("_T")

ENDINGS = {
    ".csv": "text", ".tsv": "text", ".txt": "text", ".data": "text",
    ".parquet": "parquet", ".pq": "parquet",
    ".svm": "svmlight", ".svmlight": "svmlight", ".libsvm": "svmlight",
    ".npy": "npy", ".npz": "npz",
}  # fmt: skip
"""Kinds of files by the ending of their names; text and svmlight may be packed as well."""

PACKED = {".gz": "gzip", ".bz2": "bz2", ".xz": "xz", ".zst": "zstd"}
"""Ways of packing by the ending they put behind the other one."""

UNPACKED = 2**28
"""Bytes that any compressed file may unpack to."""

RATIO = 500
"""Times its own size that a compressed file may unpack to, if that is more."""

_SKIPPED = 2**24  # bytes that are read together to find a place again

LARGE = 2**27
"""Bytes of a file from which reading it is worth a progress bar."""

_MAGIC = {
    b"PAR1": ("a Parquet file", "parquet"),
    b"\x93NUMPY": ("a numpy array", "npy"),
    b"PK\x03\x04": ("a zip archive, as .npz and .xlsx are", "npz"),
    b"\x1f\x8b": ("packed by gzip", "gzip"),
    b"BZh": ("packed by bzip2", "bz2"),
    b"\xfd7zXZ\x00": ("packed by xz", "xz"),
    b"(\xb5/\xfd": ("packed by zstd", "zstd"),
}
_CALLED = {
    "parquet": ".parquet",
    "npy": ".npy",
    "npz": ".npz",
    "gzip": ".gz",
    "bz2": ".bz2",
    "xz": ".xz",
    "zstd": ".zst",
}


class Form(NamedTuple):
    """What a file is: text, parquet, svmlight, npy or npz; how it is packed, if it is; bytes it may unpack to."""

    kind: str
    packing: str | None
    limit: int | None = None


def is_table(source: str) -> bool:
    """Whether a name ends like that of a file that can be read.

    Example:
        >>> is_table("iris.csv.gz"), is_table("Iris.CSV"), is_table("iris")
        (True, True, False)
    """
    name, packing = _unpacked(source.lower())
    return packing is not None or any(name.endswith(ending) for ending in ENDINGS)


def _unpacked(name: str) -> tuple[str, str | None]:
    for ending, packing in PACKED.items():
        if name.endswith(ending):
            return name.removesuffix(ending), packing
    return name, None


def form(path: Path, max_unpacked: int | None = None) -> Form:
    """What kind of file this is, by its name; a name of no known ending is taken for text. Checked by its first bytes.

    Args:
        path: the file.
        max_unpacked: bytes that it may unpack to; by default ``UNPACKED``, or ``RATIO`` times its size if that is more.

    Example:
        >>> import tempfile
        >>> file = Path(tempfile.mkdtemp()) / "data.svm"
        >>> _ = file.write_text("+1 1:0.5")
        >>> form(file)
        Form(kind='svmlight', packing=None, limit=268435456)
    """
    if max_unpacked is not None:
        checks.whole("max_unpacked", max_unpacked, at_least=1)
    name, packing = _unpacked(path.name.lower())
    kind = next((kind for ending, kind in ENDINGS.items() if name.endswith(ending)), "text")
    if packing and kind not in ("text", "svmlight"):
        raise ValueError(
            f"{path} is packed twice, once by {packing}; unpack it first: {kind} files are read as they are"
        )
    if kind not in ("npy", "npz"):
        requires(f"reading {path}", "pyarrow")
    begin = _first_bytes(path)
    if not begin:
        raise ValueError(f"{path} is empty")
    found = next((found for magic, found in _MAGIC.items() if begin.startswith(magic)), None)
    wanted = packing or (kind if kind in _CALLED else None)
    if found is None and wanted is not None:
        raise ValueError(
            f"{path} is not {_what(wanted)}, although it is called {path.suffix}; give it its right ending"
        )
    if found is not None and found[1] != wanted:
        raise ValueError(f"{path} is {found[0]}, although it is called {path.suffix or path.name}; {_rename(found[1])}")
    return Form(kind, packing, max_unpacked or max(UNPACKED, RATIO * path.stat().st_size))


def check_unpacked(path: Path, size: int, limit: int | None) -> None:
    """Refuse a file that unpacks to more than it may, before memory and patience are used up.

    Args:
        path: the file.
        size: bytes of it, unpacked, as far as is known.
        limit: that they may be; any number if ``None``.

    Example:
        >>> check_unpacked(Path("data.csv.gz"), 1001, 1000)
        Traceback (most recent call last):
        torchperc._checks.ParameterError: data.csv.gz unpacks to more than 1,000 bytes; if it is not damaged,
        allow more with max_unpacked=10000
    """
    if limit is not None and size > limit:
        why = f"{path} unpacks to more than {limit:,} bytes; if it is not damaged, allow more with "
        raise checks.ParameterError(why, checks.Option("max_unpacked", 10 * limit))


def _what(kind: str) -> str:
    return next(words for words, name in _MAGIC.values() if name == kind).split(",")[0]


def _rename(kind: str) -> str:
    return f"give it the ending {_CALLED[kind]}, or save it as what it is called"


def _first_bytes(path: Path) -> bytes:
    try:
        mode = path.stat().st_mode
        if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
            raise ValueError(
                f"cannot read {path}: it is a pipe or a device, and files are read more than once; save it as one first"
            )
        with path.open("rb") as file:
            return file.read(16)
    except OSError as error:
        raise unreadable(path, error) from None


def unreadable(path: Path, error: Exception) -> ValueError:
    """What to say when a file cannot be opened or unpacked."""
    if isinstance(error, OSError) and error.strerror:
        return ValueError(f"cannot read {path}: {error.strerror}")
    return ValueError(f"{path} is damaged or cut off ({error}); fetch it again")


class Unchanged:
    """Refuses a file that changes while it is read: another size, time or file under its name.

    Leave the block by any error, and the change is told rather than what it did to the reading.

    Args:
        path: the file.

    Example:
        >>> import tempfile
        >>> file = Path(tempfile.mkdtemp()) / "data.csv"
        >>> _ = file.write_text("1,2,a")
        >>> with Unchanged(file):
        ...     _ = file.write_text("1,2")  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        ValueError: ...data.csv changed while it was read; read it again
    """

    def __init__(self, path: Path) -> None:
        self.path, self._before = path, _stamp(path)

    def check(self) -> None:
        """Raise if the file is another than it was."""
        if _stamp(self.path) != self._before:
            raise changed(self.path)

    def __enter__(self) -> Unchanged:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None or isinstance(error, Exception):
            self.check()


def _stamp(path: Path) -> tuple[int, ...] | None:
    try:
        there = path.stat()
    except OSError:
        return None
    return there.st_dev, there.st_ino, there.st_size, there.st_mtime_ns, there.st_ctime_ns


def changed(path: Path) -> ValueError:
    """What to say of a file that is not what it was when reading began."""
    return ValueError(f"{path} changed while it was read; read it again")


class Checksums:
    """Of the pieces of a file, in order, by which a second pass sees that they are the same as in the first.

    Args:
        path: the file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: list[int] = []

    def check(self, number: int, data: Any) -> None:
        """Note the checksum of a piece, or compare it with the one that is noted."""
        found = zlib.crc32(data)
        if number == len(self._seen):
            self._seen.append(found)
        elif self._seen[number] != found:
            raise changed(self._path)


class Stream:
    """A file that is unpacked as it is read. Everything that can go wrong with that is one ``ValueError``.

    Args:
        path: the file.
        packing: as :func:`form` says.
        sums: of what an earlier pass read, to compare with.
        limit: bytes that it may unpack to.

    Example:
        >>> import gzip, tempfile
        >>> file = Path(tempfile.mkdtemp()) / "data.csv.gz"
        >>> _ = file.write_bytes(gzip.compress(b"1,2,a"))
        >>> with Stream(file, "gzip") as stream:
        ...     stream.read(100), stream.done == file.stat().st_size
        (b'1,2,a', True)
    """

    def __init__(
        self, path: Path, packing: str | None, sums: Checksums | None = None, limit: int | None = None
    ) -> None:
        self.path, self._sums, self._reads = path, sums, 0
        self._limit, self._size = None if packing is None else limit, 0
        try:
            self._raw: Any = path.open("rb", buffering=0 if packing is None else -1)
        except OSError as error:
            raise unreadable(path, error) from None
        self._file = _unpacking(self._raw, packing)

    def read(self, size: int) -> bytes:
        """As many bytes as that; fewer only at the end."""
        try:
            data: bytes = self._file.read(size)
            while data and len(data) < size:  # a raw file may hand out less than there is
                more = self._file.read(size - len(data))
                if not more:
                    break
                data += more
        except (OSError, EOFError, zlib.error, ValueError, _lzma_error()) as error:
            raise unreadable(self.path, error) from None
        self._size += len(data)
        check_unpacked(self.path, self._size, self._limit)
        if self._sums is not None:
            self._sums.check(self._reads, data)
        self._reads += 1
        return data

    def first(self, size: int) -> Iterator[bytes]:
        """So many bytes, some at a time; there are fewer only in a file that has been cut off meanwhile."""
        while size:
            data = self.read(min(size, _SKIPPED))
            if not data:
                raise changed(self.path)
            size -= len(data)
            yield data

    @property
    def done(self) -> int:
        """How many bytes of the file have been read, packed as they are."""
        return int(self._raw.tell())

    def close(self) -> None:
        """Close the file."""
        self._file.close()
        self._raw.close()

    def __enter__(self) -> Stream:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _unpacking(raw: Any, packing: str | None) -> Any:
    if packing is None:
        return raw
    if packing == "zstd":
        import pyarrow as pa

        return pa.CompressedInputStream(pa.PythonFile(raw, mode="r"), "zstd")
    import bz2
    import gzip
    import lzma

    return {"gzip": gzip.open, "bz2": bz2.open, "xz": lzma.open}[packing](raw, "rb")  # type: ignore[operator]


def _lzma_error() -> type[Exception]:
    import lzma

    return lzma.LZMAError


@contextmanager
def threads(count: int) -> Iterator[ThreadPoolExecutor]:
    """So many threads for a generator, which does not wait for them when it is closed.

    A generator that is given up is closed wherever garbage happens to be collected. That may be in a thread that is
    just starting and holds the lock which every thread needs to end, so whoever waited there would wait forever.

    Example:
        >>> with threads(2) as pool:
        ...     list(pool.map(abs, [1, -2]))
        [1, 2]
    """
    pool = ThreadPoolExecutor(count)
    try:
        yield pool
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def ahead(items: Iterator[_T]) -> Iterator[_T]:
    """The same items, the next of which is fetched by a second thread while one is worked on.

    Example:
        >>> list(ahead(iter("abc")))
        ['a', 'b', 'c']
    """
    end = object()
    with threads(1) as pool:
        coming = pool.submit(next, items, end)
        while (item := coming.result()) is not end:
            coming = pool.submit(next, items, end)
            yield item  # type: ignore[misc]


@contextmanager
def bar(path: Path, wanted: bool | None, doing: str = "reading") -> Iterator[Callable[[int], None]]:
    """Show on standard error how far reading is; call what it yields with the number of bytes read.

    Args:
        path: the file.
        wanted: whether to show it; ``None``: for large files, if standard error is a terminal.
        doing: what is done with the file.

    Example:
        >>> with bar(Path("small.csv"), False) as show:
        ...     show(10)
    """
    if wanted is False or (wanted is None and not (sys.stderr.isatty() and path.stat().st_size >= LARGE)):
        yield lambda done: None
        return
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=console.is_terminal) as progress:
        task = progress.add_task(f"{doing} {escape(path.name)}", total=path.stat().st_size)
        yield lambda done: progress.update(task, completed=done)


def free_memory() -> int:
    """Bytes that can be had without swapping, within what this process is given.

    Example:
        >>> free_memory() > 0
        True
    """
    free = _from_file("/proc/meminfo", "MemAvailable")
    if free is None:
        try:
            free = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
        except (AttributeError, OSError, ValueError):
            free = 2**32  # nothing is known; a small machine of today
    limit, used = (_from_file(f"/sys/fs/cgroup/memory.{what}") for what in ("max", "current"))
    return free if limit is None or used is None else max(0, min(free, limit - used))


def _from_file(path: str, key: str | None = None) -> int | None:
    try:
        lines = Path(path).read_text().splitlines()
    except OSError:
        return None
    if key is None:
        return int(lines[0]) if lines and lines[0].isdigit() else None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{key}:")), None)
