"""How a file is read: options, format and compression, and one line for all that can fail."""

from __future__ import annotations

import codecs
import glob
import io
import lzma
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from torchperc._checks import Option, ParameterError, check_bool, check_choice, require_packages

MISSING = ("error", "drop", "mean")
TASKS = ("classification", "regression")
_COMPRESSED = {".gz": "gzip", ".bz2": "bz2", ".xz": "xz", ".zst": "zstd"}
_FORMATS = {
    **dict.fromkeys((".csv", ".tsv", ".txt", ".data"), "text"),
    **dict.fromkeys((".parquet", ".pq"), "parquet"),
    **dict.fromkeys((".svm", ".svmlight", ".libsvm"), "svmlight"),
    **{".npy": "npy", ".npz": "npz"},
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
            would take more than a quarter of the free memory. It is among the temporary files (see ``TMPDIR``), and
            removed along with the data set.

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

    def __post_init__(self) -> None:
        for name in ("na", "categories", "ignore", "text"):
            given = getattr(self, name)
            object.__setattr__(self, name, tuple(map(str, (given,) if isinstance(given, str | int) else given)))
        for name, choices in {"missing": MISSING, "decimal": (".", ",", None), "task": (*TASKS, None)}.items():
            if getattr(self, name) not in choices:
                check_choice(name, getattr(self, name), [choice for choice in choices if choice])
        for name in ("header", "stream"):
            if getattr(self, name) is not None:
                check_bool(name, getattr(self, name))
        mark = self.delimiter
        if mark is not None and (not isinstance(mark, str) or len(mark) != 1 or mark in '"\r\n'):
            raise ParameterError(Option("delimiter", mark), " must be one character, such as ',' or ';'")
        try:
            codecs.lookup("utf-8" if self.encoding is None else self.encoding)
        except (LookupError, TypeError):
            why = " is unknown; choose one of Python's, such as 'utf-8', 'cp1252' or 'latin-1'"
            raise ParameterError(Option("encoding", self.encoding), why) from None
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


def format_by_name(name: str) -> tuple[str | None, str | None]:
    """Format and compression by the extension of a file, each ``None`` if it says nothing."""
    ending = next((ending for ending in _COMPRESSED if name.lower().endswith(ending)), "")
    inner = name.lower().removesuffix(ending)
    return next((kind for end, kind in _FORMATS.items() if inner.endswith(end)), None), _COMPRESSED.get(ending)


def format_of(path: Path) -> str:
    """Format of a file by its extension: text, parquet, svmlight, npy or npz; it can be opened and is not empty."""
    kind = format_by_name(path.name)[0] or "text"
    if kind not in ("npy", "npz"):
        require_packages(f"reading {path}", "pyarrow")
    if path.exists() and not path.is_file() and not path.is_dir():
        why = "it is a pipe or a device, and files are read more than once; save it as a file first"
        raise ValueError(f"cannot read {path}: {why}")
    try:
        with path.open("rb") as file:
            if file.read(1):
                return kind
    except OSError as error:
        raise unreadable(path, error) from None
    raise ValueError(f"{path} is empty")


@contextmanager
def open_bytes(path: Path) -> Iterator[Any]:
    """Open a file, decompressed as its extension says; whatever fails is one ``ValueError``."""
    import pyarrow as pa

    compression = format_by_name(path.name)[1]
    try:
        with path.open("rb") as raw, lzma.open(raw) as xz:
            if compression in (None, "xz"):
                yield xz if compression else raw
            else:
                yield io.BufferedReader(pa.CompressedInputStream(pa.PythonFile(raw, mode="r"), compression))
    except (OSError, EOFError, lzma.LZMAError) as error:
        raise unreadable(path, error) from None


def unreadable(path: Path, error: Exception) -> ValueError:
    """The error for a file that cannot be opened or decompressed."""
    if not isinstance(error, OSError) or not error.strerror:
        return ValueError(f"{path} is damaged or cut off ({error}); download it again")
    folder = f"; name its files by a pattern, such as {path}/*.csv" * isinstance(error, IsADirectoryError)
    return ValueError(f"cannot read {path}: {error.strerror}{folder}")


class Unchanged:
    """Refuses files that change while they are read: another size, time or file under a name.

    If the block is left by an error, the change is reported rather than what it did to the reading.
    """

    def __init__(self, *paths: Path) -> None:
        self._before = {path: _stamp(path) for path in paths}

    def check(self) -> None:
        """Raise if a file has changed."""
        for path, before in self._before.items():
            if _stamp(path) != before:
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
