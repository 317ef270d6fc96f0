"""Detect format and compression of files, and changes while they are read."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, TypeVar

from torchperc._checks import require_packages
from torchperc.samples.streams import PACKED, Stream, changed, check_begin

_T = TypeVar("_T")

ENDINGS = {
    ".csv": "text", ".tsv": "text", ".txt": "text", ".data": "text",
    ".parquet": "parquet", ".pq": "parquet",
    ".svm": "svmlight", ".svmlight": "svmlight", ".libsvm": "svmlight",
    ".npy": "npy", ".npz": "npz",
}  # fmt: skip


class Form(NamedTuple):
    """What a file is: text, parquet, svmlight, npy or npz; and how it is compressed."""

    kind: str
    packing: str | None


def _by_name(name: str) -> tuple[str | None, str | None]:
    """The kind and the compression that a file's name tells."""
    ending = next((ending for ending in PACKED if name.lower().endswith(ending)), "")
    inner = name.lower().removesuffix(ending)
    return next((kind for end, kind in ENDINGS.items() if inner.endswith(end)), None), PACKED.get(ending)


def is_table(source: str) -> bool:
    """Whether a name ends like that of a file that can be read."""
    return any(_by_name(source))


def form(path: Path) -> Form:
    """What kind of file this is, by its name (text if the ending is unknown), checked by its first bytes."""
    named, packing = _by_name(path.name)
    kind = named or "text"
    if packing and kind not in ("text", "svmlight"):
        raise ValueError(f"{path} is compressed twice, once by {packing}; {kind} files are read as they are")
    if kind not in ("npy", "npz"):
        require_packages(f"reading {path}", "pyarrow")
    check_begin(path, packing, kind if kind not in ("text", "svmlight") else None)
    return Form(kind, packing)


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
