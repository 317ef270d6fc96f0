"""Files before they are understood: their kind, progress, and one line for all that can fail."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, TypeVar

from torchperc import _checks as checks
from torchperc._lazy import requires
from torchperc.samples.compiling import free_memory as free_memory
from torchperc.samples.streams import PACKED as PACKED
from torchperc.samples.streams import Checksums as Checksums
from torchperc.samples.streams import Stream as Stream
from torchperc.samples.streams import Watch as Watch
from torchperc.samples.streams import changed as changed
from torchperc.samples.streams import check_begin as check_begin
from torchperc.samples.streams import check_unpacked as check_unpacked
from torchperc.samples.streams import found as found
from torchperc.samples.streams import is_pattern as is_pattern
from torchperc.samples.streams import most_unpacked as most_unpacked
from torchperc.samples.streams import title as title
from torchperc.samples.streams import unreadable as unreadable

_T = TypeVar("_T")

ENDINGS = {
    ".csv": "text", ".tsv": "text", ".txt": "text", ".data": "text",
    ".parquet": "parquet", ".pq": "parquet",
    ".svm": "svmlight", ".svmlight": "svmlight", ".libsvm": "svmlight",
    ".npy": "npy", ".npz": "npz",
}  # fmt: skip
LARGE = 2**27  # bytes of a file from which reading it is worth a progress bar


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
    check_begin(path, packing, kind if kind not in ("text", "svmlight") else None)
    return Form(kind, packing, max_unpacked or most_unpacked(path))


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
