"""How a file is read: options, format and compression, and one line for all that can fail."""

from __future__ import annotations

import bz2
import codecs
import glob
import gzip
import io
import lzma
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, NamedTuple

from torchperc._checks import Option, ParameterError, check_bool, check_choice, require_packages

MISSING = ("error", "drop", "mean")
TASKS = ("classification", "regression")
COMPRESSED = {".gz": "gzip", ".bz2": "bz2", ".xz": "xz", ".zst": "zstd"}
FORMATS = {
    ".csv": "text", ".tsv": "text", ".txt": "text", ".data": "text",
    ".parquet": "parquet", ".pq": "parquet",
    ".svm": "svmlight", ".svmlight": "svmlight", ".libsvm": "svmlight",
    ".npy": "npy", ".npz": "npz",
}  # fmt: skip
_MAGIC = {  # by the first bytes: the format, what to call it, the extension it should have
    b"PAR1": ("parquet", "a Parquet file", ".parquet"),
    b"\x93NUMPY": ("npy", "a numpy array", ".npy"),
    b"PK\x03\x04": ("npz", "a zip archive, as .npz and .xlsx are", ".npz"),
    b"\x1f\x8b": ("gzip", "compressed with gzip", ".gz"),
    b"BZh": ("bz2", "compressed with bzip2", ".bz2"),
    b"\xfd7zXZ\x00": ("xz", "compressed with xz", ".xz"),
    b"(\xb5/\xfd": ("zstd", "compressed with zstd", ".zst"),
}


@dataclass(frozen=True)
class ReadOptions:
    """How a file is read; ``read``, ``learn`` and ``apply`` share it, and a model remembers it.

    Args:
        missing: what to do about missing values. ``"error"`` names them; ``"drop"`` drops their rows and counts them in
            ``Dataset.dropped``; ``"mean"`` imputes the mean of a number or date, the fraction of each level of a
            category, and no words for a text. A missing label is never imputed.
        na: further signs of a missing value, such as ``"-"``, beside empty cells, ``NA``, ``nan``, ``null`` and ``?``.
        header: whether a text file begins with the names of its columns; by default it does if no number is in that
            line.
        delimiter: between the cells of a text file; detected among comma, semicolon, tab and | by default.
        decimal: ``"."`` or ``","``; a decimal comma is recognised where the first lines leave no doubt.
        encoding: of a text file, such as ``"cp1252"``; UTF-8 by default, and UTF-16 is recognised by its first bytes.
        categories: columns that are categories even if they hold numbers or dates, by name or position from 1.
        ignore: columns to ignore, by name or position.
        text: columns of free text, by name or position, whose words and pairs of words become features.
        task: ``"classification"`` or ``"regression"``; inferred from the target by default.
        positive: a label to be +1 against all others.
        stream: convert the file to a memory-mapped array rather than hold it in memory; by default if the features
            would take more than a quarter of the free memory.
        cache: the folder for the converted file; by default a temporary one, removed along with the data set.

    Example:
        >>> ReadOptions(decimal=",", ignore="id").to_json()
        {'decimal': ',', 'ignore': ['id']}
    """

    missing: str = "error"
    na: str | Sequence[str] = ()
    header: bool | None = None
    delimiter: str | None = None
    decimal: str | None = None
    encoding: str | None = None
    categories: str | int | Sequence[str | int] = ()
    ignore: str | int | Sequence[str | int] = ()
    text: str | int | Sequence[str | int] = ()
    task: str | None = None
    positive: str | int | None = None
    stream: bool | None = None
    cache: str | Path | None = None

    def __post_init__(self) -> None:
        for name in ("na", "categories", "ignore", "text"):
            given = getattr(self, name)
            object.__setattr__(self, name, tuple(map(str, (given,) if isinstance(given, str | int) else given)))
        check_choice("missing", self.missing, MISSING)
        for name, choices in (("decimal", (".", ",")), ("task", TASKS)):
            if getattr(self, name) is not None:
                check_choice(name, getattr(self, name), choices)
        for name in ("header", "stream"):
            if getattr(self, name) is not None:
                check_bool(name, getattr(self, name))
        mark, given = self.delimiter, Option("encoding", self.encoding)
        if mark is not None and (not isinstance(mark, str) or len(mark) != 1 or mark in '"\r\n'):
            raise ParameterError(Option("delimiter", mark), " must be one character, such as ',' or ';'")
        try:
            codecs.lookup("utf-8" if self.encoding is None else self.encoding)
        except (LookupError, TypeError):
            why = " is unknown; choose one of Python's, such as 'utf-8', 'cp1252' or 'latin-1'"
            raise ParameterError(given, why) from None
        if self.positive is not None and self.task == "regression":
            why = " names a class, but there is none with "
            raise ParameterError(Option("positive", self.positive), why, Option("task", self.task))
        if self.positive is not None:
            object.__setattr__(self, "task", "classification")

    def of_new_files(self, **found: Any) -> ReadOptions:
        """The options that new files are read by, too; those that were found in this one instead of others."""
        kept = {name: getattr(self, name) for name in ("na", "header", "delimiter", "decimal", "encoding")}
        return ReadOptions(**kept | {name: value for name, value in found.items() if value is not None})

    def to_json(self) -> dict[str, Any]:
        """The options that differ from the default, as plain types."""
        given = {
            each.name: getattr(self, each.name) for each in fields(self) if getattr(self, each.name) != each.default
        }
        return {name: list(value) if isinstance(value, tuple) else value for name, value in given.items()}


def find_files(source: str | Path | Sequence[str | Path]) -> tuple[Path, ...]:
    """Return the files of a path, a pattern such as ``data/part-*.csv``, or several of either.

    Those that match a pattern come in the order of their names. A file whose own name has a ``*`` in it is itself.

    Example:
        >>> find_files(["b.csv", "a.csv"])
        (PosixPath('b.csv'), PosixPath('a.csv'))
    """
    several = [source] if isinstance(source, str | Path) else source
    if not isinstance(several, Sequence) or not several or not all(isinstance(each, str | Path) for each in several):
        raise TypeError(f"path must be a file, a pattern such as data/*.csv, or a list of files, found {source!r}")
    paths = list[Path]()
    for name in several:
        alone = not is_pattern(name) or Path(name).exists()
        matching = [Path(name)] if alone else sorted(map(Path, glob.glob(str(name), recursive=True)))
        if not matching:
            raise ValueError(f"no file matches {str(name)!r}; check the folder and the extension")
        paths += matching
    if len(set(paths)) < len(paths):
        raise ValueError(f"{max(paths, key=paths.count)} is named twice; name each file once")
    return tuple(paths)


def is_pattern(name: str | Path) -> bool:
    """Whether a name may stand for several files."""
    return any(letter in str(name) for letter in "*?[")


def common_name(paths: Sequence[Path]) -> Path:
    """A path that names several files together."""
    return paths[0] if len(paths) == 1 else paths[0].with_name(f"{paths[0].name} and {len(paths) - 1} more")


class Format(NamedTuple):
    """The format of a file (text, parquet, svmlight, npy or npz) and its compression."""

    kind: str
    compression: str | None


def format_by_name(name: str) -> tuple[str | None, str | None]:
    """Format and compression by the extension of a file, each ``None`` if it says nothing."""
    ending = next((ending for ending in COMPRESSED if name.lower().endswith(ending)), "")
    inner = name.lower().removesuffix(ending)
    return next((kind for end, kind in FORMATS.items() if inner.endswith(end)), None), COMPRESSED.get(ending)


def format_of(path: Path) -> Format:
    """Format and compression of a file by its extension (text if that is unknown), checked by its first bytes."""
    named, compression = format_by_name(path.name)
    kind = named or "text"
    if compression and kind not in ("text", "svmlight"):
        raise ValueError(f"{path} is compressed twice, once by {compression}; {kind} files are read as they are")
    if kind not in ("npy", "npz"):
        require_packages(f"reading {path}", "pyarrow")
    if path.exists() and not path.is_file() and not path.is_dir():
        why = "it is a pipe or a device, and files are read more than once; save it as a file first"
        raise ValueError(f"cannot read {path}: {why}")
    with Source(path, None) as file:
        begin = file.read(16)
    if not begin:
        raise ValueError(f"{path} is empty")
    wanted = compression or (kind if kind not in ("text", "svmlight") else None)
    found, what, ending = next((known for magic, known in _MAGIC.items() if begin.startswith(magic)), (None, "", ""))
    called = f"although it is called {path.suffix or path.name}"
    if found is None and wanted is not None:
        what = next(words for name, words, _ in _MAGIC.values() if name == wanted).split(",")[0]
        raise ValueError(f"{path} is not {what}, {called}; rename it")
    if found != wanted:
        raise ValueError(f"{path} is {what}, {called}; rename it to {ending}, or save it as what it is called")
    return Format(kind, compression)


def unreadable(path: Path, error: Exception) -> ValueError:
    """The error for a file that cannot be opened or decompressed."""
    if isinstance(error, IsADirectoryError):
        return ValueError(f"cannot read {path}: {error.strerror}; name its files by a pattern, such as {path}/*.csv")
    if isinstance(error, OSError) and error.strerror:
        return ValueError(f"cannot read {path}: {error.strerror}")
    return ValueError(f"{path} is damaged or cut off ({error}); download it again")


class Source(io.RawIOBase):
    """The bytes of a file, decompressed as they are read; whatever fails is one ``ValueError``."""

    def __init__(self, path: Path, compression: str | None) -> None:
        self.path, self.quotes = path, 0  # how many quotation marks were read
        try:
            self._raw: Any = path.open("rb")
        except OSError as error:
            raise unreadable(path, error) from None
        self._file = self._raw
        if compression == "zstd":
            import pyarrow as pa

            self._file = pa.CompressedInputStream(pa.PythonFile(self._raw, mode="r"), "zstd")
        elif compression is not None:
            self._file = {"gzip": gzip, "bz2": bz2, "xz": lzma}[compression].open(self._raw, "rb")

    def readable(self) -> bool:
        """True."""
        return True

    def read(self, size: int = -1) -> bytes:
        """The next bytes, at most ``size``; all by default."""
        try:
            data: bytes = self._file.read(size) if size >= 0 else self._file.read()
        except (OSError, EOFError, zlib.error, ValueError, lzma.LZMAError) as error:
            raise unreadable(self.path, error) from None
        self.quotes += data.count(b'"')
        return data

    def readinto(self, buffer: Any) -> int:
        """Read into a buffer; return the number of bytes."""
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        """Close the file."""
        if not self.closed:
            self._file.close()
            self._raw.close()
        super().close()


class Unchanged:
    """Refuses files that change while they are read: another size, time or file under a name.

    If the block is left by an error, the change is reported rather than what it did to the reading.
    """

    def __init__(self, *paths: Path) -> None:
        self._before = {path: _stamp(path) for path in paths}

    def check(self, same: bool = True) -> None:
        """Raise if a file has changed, or if what was read says so."""
        for path, before in self._before.items():
            if not same or _stamp(path) != before:
                raise changed(path)

    def __enter__(self) -> Unchanged:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None or isinstance(error, Exception):
            self.check()


def changed(path: Path) -> ValueError:
    """The error for a file that changed since reading began."""
    return ValueError(f"{path} changed while it was read; read it again")


def _stamp(path: Path) -> tuple[int, ...] | None:
    try:
        there = path.stat()
    except OSError:
        return None
    return there.st_dev, there.st_ino, there.st_size, there.st_mtime_ns, there.st_ctime_ns
