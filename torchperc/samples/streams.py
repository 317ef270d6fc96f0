"""Files as streams of bytes, decompressed as they are read, and one line for all that can fail."""

from __future__ import annotations

import bz2
import glob
import gzip
import lzma
import select
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

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


def check_begin(path: Path, packing: str | None, kind: str | None) -> None:
    """Refuse a file that cannot be read twice, is empty, or does not begin as its compression or its kind does."""
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
    wanted = packing or kind
    found, what, ending = next((known for magic, known in _KNOWN.items() if begin.startswith(magic)), (None, "", ""))
    if found is None and wanted is not None:
        what = next(words for name, words, _ in _KNOWN.values() if name == wanted).split(",")[0]
        raise ValueError(f"{path} is not {what}, although it is called {path.suffix}; rename it")
    if found != wanted:
        called = f"although it is called {path.suffix or path.name}"
        raise ValueError(f"{path} is {what}, {called}; give it the ending {ending}, or save it as what it is called")


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


class Stream:
    """A file that is decompressed as it is read. Everything that can go wrong with that is one ``ValueError``.

    Reading begins ``start`` bytes into the text.
    """

    def __init__(self, path: Path, packing: str | None, start: int = 0) -> None:
        self.path = path
        try:
            self._raw: Any = path.open("rb")
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
            data: bytes = self._file.read(size)
        except (OSError, EOFError, zlib.error, ValueError, lzma.LZMAError) as error:
            raise unreadable(self.path, error) from None
        return data

    @property
    def done(self) -> int:
        """How many bytes of the file have been read, compressed as they are."""
        return int(self._raw.tell())

    def pieces(
        self, size: int, cut: Callable[[bytes, int, bool], tuple[Any, ...]], offset: int
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
            if end:
                yield data[:end] if end < len(data) else data, offset, *more
            offset, rest = offset + end, data[end:]

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()
        self._raw.close()


def waits(source: object) -> bool:
    """Whether a stream would have to wait for what comes next; never for files and what is in memory."""
    try:
        number = source.fileno()  # type: ignore[attr-defined]
    except (AttributeError, OSError):
        return False
    try:
        return not select.select([number], [], [], 0)[0]
    except (OSError, ValueError):  # Windows asks sockets only
        return True
