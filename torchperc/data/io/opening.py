"""Files before they are understood: their kind, decompression, progress, and one line for all that can fail."""

from __future__ import annotations

import bz2
import glob
import gzip
import io
import lzma
import math
import os
import sys
import zlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from torchperc import _checks as checks
from torchperc._lazy import requires

_T = TypeVar("_T")
Watch = Callable[[int], None]  # told how many bytes of the file have been read

ENDINGS = {
    ".csv": "text", ".tsv": "text", ".txt": "text", ".data": "text",
    ".parquet": "parquet", ".pq": "parquet",
    ".svm": "svmlight", ".svmlight": "svmlight", ".libsvm": "svmlight",
    ".npy": "npy", ".npz": "npz",
}  # fmt: skip
UNPACKED = 2**28  # bytes that any compressed file may decompress to
RATIO = 500  # times its own size that a compressed file may decompress to, if that is more
LARGE = 2**27  # bytes of a file from which reading it is worth a progress bar
PACKED = {".gz": "gzip", ".bz2": "bz2", ".xz": "xz", ".zst": "zstd"}
_KNOWN = {  # by the first bytes: the kind, what to call it, the ending it should have
    b"PAR1": ("parquet", "a Parquet file", ".parquet"),
    b"\x93NUMPY": ("npy", "a numpy array", ".npy"),
    b"PK\x03\x04": ("npz", "a zip archive, as .npz and .xlsx are", ".npz"),
    b"\x1f\x8b": ("gzip", "compressed with gzip", ".gz"),
    b"BZh": ("bz2", "compressed with bzip2", ".bz2"),
    b"\xfd7zXZ\x00": ("xz", "compressed with xz", ".xz"),
    b"(\xb5/\xfd": ("zstd", "compressed with zstd", ".zst"),
}


class Form(NamedTuple):
    """What a file is: text, parquet, svmlight, npy or npz; how it is compressed; bytes it may decompress to."""

    kind: str
    packing: str | None
    limit: int | None = None


def _by_name(name: str) -> tuple[str | None, str | None]:
    """The kind and the compression that a file's name tells."""
    ending = next((ending for ending in PACKED if name.lower().endswith(ending)), "")
    inner = name.lower().removesuffix(ending)
    return next((kind for end, kind in ENDINGS.items() if inner.endswith(end)), None), PACKED.get(ending)


def is_table(source: str) -> bool:
    """Whether a name ends like that of a file that can be read."""
    return any(_by_name(source))


def form(path: Path, max_unpacked: int | None = None) -> Form:
    """What kind of file this is, by its name (text if the ending is unknown), checked by its first bytes."""
    if max_unpacked is not None:
        checks.whole("max_unpacked", max_unpacked, at_least=1)
    named, packing = _by_name(path.name)
    kind = named or "text"
    if packing and kind not in ("text", "svmlight"):
        raise ValueError(f"{path} is compressed twice, once by {packing}; {kind} files are read as they are")
    if kind not in ("npy", "npz"):
        requires(f"reading {path}", "pyarrow")
    try:
        if not (path.is_file() or path.is_dir() or not path.exists()):
            why = "it is a pipe or a device, and files are read more than once; save it as one first"
            raise ValueError(f"cannot read {path}: {why}")
        with path.open("rb") as file:
            begin = file.read(16)
    except OSError as error:
        raise unreadable(path, error) from None
    if not begin:
        raise ValueError(f"{path} is empty")
    wanted = packing or (kind if kind not in ("text", "svmlight") else None)
    found, what, ending = next((known for magic, known in _KNOWN.items() if begin.startswith(magic)), (None, "", ""))
    if found is None and wanted is not None:
        what = next(words for name, words, _ in _KNOWN.values() if name == wanted).split(",")[0]
        raise ValueError(f"{path} is not {what}, although it is called {path.suffix}; rename it")
    if found != wanted:
        called = f"although it is called {path.suffix or path.name}"
        raise ValueError(f"{path} is {what}, {called}; give it the ending {ending}, or save it as what it is called")
    return Form(kind, packing, max_unpacked or max(UNPACKED, RATIO * path.stat().st_size))


def found(source: str | Path | Sequence[str | Path]) -> tuple[Path, ...]:
    """The files that are meant by a path, a pattern such as ``data/part-*.csv``, or several of either.

    Those that match a pattern come in the order of their names. A file whose own name has a ``*`` in it is itself.

    Example:
        >>> found(["b.csv", "a.csv"])
        (PosixPath('b.csv'), PosixPath('a.csv'))
    """
    several = [source] if isinstance(source, str | Path) else source
    if not isinstance(several, Sequence) or not several:
        raise TypeError(f"path must be a file, a pattern such as data/*.csv, or a list of files, found {source!r}")
    paths = [path for each in several for path in _matching(each)]
    if len(set(paths)) < len(paths):
        raise ValueError(f"{max(paths, key=paths.count)} is named twice; name each file once")
    return tuple(paths)


def _matching(name: str | Path) -> list[Path]:
    if not isinstance(name, str | Path):
        raise TypeError(f"path must be a string or a Path, found {type(name).__name__} {name!r}")
    path = Path(name)
    if not is_pattern(name) or path.exists():
        return [path]
    matching = sorted(Path(each) for each in glob.glob(str(name), recursive=True))
    if not matching:
        raise ValueError(f"no file matches {str(name)!r}; look for a slip in the folder or the ending")
    return matching


def is_pattern(name: str | Path) -> bool:
    """Whether a name may stand for several files."""
    return any(letter in str(name) for letter in "*?[")


def title(paths: Sequence[Path]) -> str:
    """What to call some files together."""
    return paths[0].name if len(paths) == 1 else f"{paths[0].name} and {len(paths) - 1} more"


def check_unpacked(path: Path, size: int, limit: int | None) -> None:
    """Refuse a file that decompresses to more than it may, before memory is used up."""
    if limit is not None and size > limit:
        why = f"{path} decompresses to more than {limit:,} bytes; if it is not damaged, allow more with "
        raise checks.ParameterError(why, checks.Option("max_unpacked", 10 * limit))


def unreadable(path: Path, error: Exception) -> ValueError:
    """What to say when a file cannot be opened or decompressed."""
    if isinstance(error, IsADirectoryError):
        return ValueError(f"cannot read {path}: {error.strerror}; name its files by a pattern, such as {path}/*.csv")
    if isinstance(error, OSError) and error.strerror:
        return ValueError(f"cannot read {path}: {error.strerror}")
    return ValueError(f"{path} is damaged or cut off ({error}); download it again")


def changed(path: Path) -> ValueError:
    """What to say of a file that is not what it was when reading began."""
    return ValueError(f"{path} changed while it was read; read it again")


class Unchanged:
    """Refuses files that change while they are read: another size, time or file under a name.

    Leave the block by any error, and the change is told rather than what it did to the reading.
    """

    def __init__(self, *paths: Path) -> None:
        self._before = {path: _stamp(path) for path in paths}

    def check(self, same: bool = True) -> None:
        """Raise if a file is another than it was, or reading them says so."""
        for path, before in self._before.items():
            if not same or _stamp(path) != before:
                raise changed(path)

    def __enter__(self) -> Unchanged:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None or isinstance(error, Exception):
            self.check()


def _stamp(path: Path) -> tuple[int, ...] | None:
    try:
        there = path.stat()
    except OSError:
        return None
    return there.st_dev, there.st_ino, there.st_size, there.st_mtime_ns, there.st_ctime_ns


class Checksums:
    """Of the pieces of a file, in order, by which a second pass sees that they are the same as in the first."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: list[int] = []

    def check(self, number: int, data: Any) -> None:
        """Record the checksum of a piece, or compare it with the one that is recorded."""
        found = zlib.crc32(data)
        if number == len(self._seen):
            self._seen.append(found)
        elif self._seen[number] != found:
            raise changed(self._path)


class _File(io.FileIO):
    """A file that a reader who was given up in an exception's traceback closes without a warning when collected."""

    def close(self) -> None:
        self._finalizing = False
        super().close()

    def _dealloc_warn(self, source: object) -> None:
        pass


class Stream:
    """A file that is decompressed as it is read. Everything that can go wrong with that is one ``ValueError``.

    Of one that is not compressed the bytes from ``start`` to ``stop`` are read, and no others.
    """

    def __init__(
        self,
        path: Path,
        packing: str | None,
        sums: Checksums | None = None,
        limit: int | None = None,
        start: int = 0,
        stop: int | None = None,
    ) -> None:
        self.path, self._sums, self._reads, self._left = path, sums, 0, math.inf if stop is None else stop - start
        self._limit, self._size = None if packing is None else limit, 0
        try:
            self._raw: Any = io.BufferedReader(_File(path))  # a raw file may hand out less than there is
            self._file = self._raw
        except OSError as error:
            raise unreadable(path, error) from None
        if packing == "zstd":
            import pyarrow as pa

            self._file = pa.CompressedInputStream(pa.PythonFile(self._raw, mode="r"), "zstd")
        elif packing is not None:
            self._file = {"gzip": gzip, "bz2": bz2, "xz": lzma}[packing].open(self._raw, "rb")
        if packing is None:
            self._raw.seek(start)
        elif start:
            self.read(start)

    def read(self, size: int) -> bytes:
        """As many bytes as that; fewer only at the end."""
        try:
            data: bytes = self._file.read(int(min(size, self._left)))
        except (OSError, EOFError, zlib.error, ValueError, lzma.LZMAError) as error:
            raise unreadable(self.path, error) from None
        self._size, self._left = self._size + len(data), self._left - len(data)
        check_unpacked(self.path, self._size, self._limit)
        if self._sums is not None:
            self._sums.check(self._reads, data)
        self._reads += 1
        return data

    @property
    def done(self) -> int:
        """How many bytes of the file have been read, compressed as they are."""
        return int(self._raw.tell())

    def pieces(
        self, size: int, cut: Callable[[bytes, int, bool], tuple[Any, ...]], offset: int, watch: Watch
    ) -> Iterator[tuple[Any, ...]]:
        """The rest of the file in pieces: their bytes, how many come before, and what else ``cut`` says of them.

        It is called with the bytes at hand, how many came before and whether they are the last, and says first where a
        record ends.
        """
        rest, last = b"", False
        while not last:
            data = rest + self.read(size)
            last = len(data) - len(rest) < size
            end, *more = cut(data, offset, last)
            watch(self.done)
            if end:
                yield data[:end] if end < len(data) else data, offset, *more
            offset, rest = offset + end, data[end:]

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()
        self._raw.close()


def line_number(path: Path, packing: str | None, offset: int) -> int:
    """The number of the line that begins after so many bytes of text; lines end with a line feed, CR or both."""
    line, before = 1, b""
    with Stream(path, packing) as stream:
        while offset:
            data = stream.read(min(offset, 2**24))
            if not data:
                raise changed(path)
            line += data.count(b"\n") - (before.endswith(b"\r") and data.startswith(b"\n"))
            line += data.count(b"\r") - data.count(b"\r\n") if b"\r" in data else 0
            offset, before = offset - len(data), data
    return line


@contextmanager
def threads(count: int) -> Iterator[ThreadPoolExecutor]:
    """So many threads for a generator, which does not wait for them when it is closed."""
    pool = ThreadPoolExecutor(count)
    try:
        yield pool
    finally:  # maybe by the garbage collection in a thread that holds the lock which threads need to end: never wait
        pool.shutdown(wait=False, cancel_futures=True)


def ahead(items: Iterator[_T]) -> Iterator[_T]:
    """The same items, the next of which is fetched by a second thread while one is worked on."""
    end = object()
    with threads(1) as pool:
        coming = pool.submit(next, items, end)
        try:
            while (item := coming.result()) is not end:
                coming = pool.submit(next, items, end)
                yield item  # type: ignore[misc]
        finally:  # without waiting; else its file would stay open until garbage is collected
            coming.add_done_callback(lambda _: getattr(items, "close", bool)())


@contextmanager
def bar(paths: Sequence[Path], wanted: bool | None, doing: str = "reading") -> Iterator[Watch]:
    """Show progress on standard error, if ``wanted``; ``None``: for large files, if standard error is a terminal."""
    total = sum(path.stat().st_size for path in paths)
    if wanted is False or (wanted is None and not (sys.stderr.isatty() and total >= LARGE)):
        yield lambda done: None
        return
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=console.is_terminal) as progress:
        task = progress.add_task(f"{doing} {escape(title(paths))}", total=total)
        yield lambda done: progress.update(task, completed=done)


def free_memory() -> int:
    """Bytes that can be had without swapping, within what this process is given."""
    try:
        words = Path("/proc/meminfo").read_text().split()
        free = 1024 * int(words[words.index("MemAvailable:") + 1])
    except (OSError, ValueError):
        try:
            free = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
        except (AttributeError, OSError, ValueError):
            free = 2**32  # nothing is known; a small machine of today
    try:
        limit, used = (int(Path(f"/sys/fs/cgroup/memory.{what}").read_text()) for what in ("max", "current"))
        return max(0, min(free, limit - used))
    except (OSError, ValueError):  # no limit
        return free
