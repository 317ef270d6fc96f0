"""Files as tables: how they are read, column names, and rows in batches that Arrow reads.

Arrow is fast and does not say in which line it failed. So a cell is found by reading the file again, text with Python's
own reader, when an error is raised.
"""

from __future__ import annotations

import codecs
import csv
import glob
import importlib
import io
import lzma
import math
import re
import shutil
import tempfile
import weakref
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from functools import reduce
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from torchperc._checks import Option, ParameterError, check_bool, check_choice, first_line, require_packages
from torchperc._files import remove


class _Arrow:
    """pyarrow, imported on first use; a promise of lazy_loader would be kept by whoever looks through all modules."""

    def __getattr__(self, name: str) -> Any:
        if name in ("compute", "csv", "parquet"):
            return importlib.import_module(f"pyarrow.{name}")
        return getattr(importlib.import_module("pyarrow"), name)


pa: Any = _Arrow()
Array: TypeAlias = np.ndarray[Any, Any]

MISSING = ("error", "drop", "mean")
TASKS = ("classification", "regression")
_COMPRESSED = {".gz": "gzip", ".bz2": "bz2", ".xz": "xz", ".zst": "zstd"}
_FORMATS = {
    **dict.fromkeys((".csv", ".tsv", ".txt", ".data"), "text"),
    **dict.fromkeys((".parquet", ".pq"), "parquet"),
    **dict.fromkeys((".svm", ".svmlight", ".libsvm"), "svmlight"),
    **{".npy": "npy", ".npz": "npz"},
}
ABSENT = ("", "NA", "N/A", "n/a", "nan", "NaN", "null", "NULL", "?")  # missing values, as is what reads as NaN
BLOCK = 2**20  # bytes of text that Arrow parses at a time
ROWS = 2**16  # rows of a Parquet file or array that are read together, fewer if they are wide
_HEAD, _LONGEST = 2**16, 2**28  # characters by which delimiter and header are found, and of a line
_DELIMITERS, _ALIKE = ("\t", ";", "|", ","), 20  # and the lines that must agree on one
_COMMA = re.compile(r"[+-]?\d+(,\d+)?([eE][+-]?\d+)?")
_THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2},\d{3}")
_END = "\x03 end of file"  # a line that no file has
_PAIRS = (("X", "y"), ("data", "target"), ("x", "y"), ("arr_0", "arr_1"))  # names of arrays in an .npz file


# --- options and files --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ReadOptions:
    """How a file is read; ``read``, ``learn`` and ``apply`` share it, and a model remembers it.

    Args:
        missing: what to do about missing values. ``"error"`` stops and names them; ``"drop"`` drops their rows, see
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
    """Format of a file by its extension, text by default; one that cannot be opened or is empty is an error."""
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


# --- cells --------------------------------------------------------------------------------------------------------


def is_number(cell: str) -> bool:
    """Whether a cell of a table reads as a number."""
    try:
        float(cell)
    except ValueError:
        return False
    return "_" not in cell  # 1_000 is a number in Python only


def is_finite(cell: str) -> bool:
    """Whether a cell reads as a finite number."""
    return is_number(cell) and math.isfinite(float(cell))


def shortest(number: float) -> str:
    """Return a number in its shortest form: 0.1 as 0.1, 1.0 as 1, and −0 as 0."""
    return repr(number + 0.0).removesuffix(".0")


def is_absent(cell: str, na: Sequence[str] = ()) -> bool:
    """Whether a cell stands for a missing value."""
    return cell in ABSENT or cell in na or (is_number(cell) and math.isnan(float(cell)))


def word(cell: str) -> str:
    """Return a label or level as written; a number in its shortest form, so that 1, 1.0 and +1 are the same."""
    return shortest(float(cell)) if is_number(cell) else cell


def listed(words: Sequence[str], most: int = 20) -> str:
    """Some words for an error message, the first of them if there are many."""
    shown = ", ".join(map(repr, words[:most]))
    return f"{shown}, … ({len(words)} in all)" if len(words) > most else shown


class Words(NamedTuple):
    """A column of codes, −1 where a value is missing, and the words they stand for."""

    codes: Array
    levels: tuple[str, ...]

    def look_up(self, values: Sequence[Any], missing: Any) -> Array:
        """One of some values per row, by its word."""
        return np.array([*values, missing])[self.codes]

    def texts(self) -> list[str]:
        """The word of each row, empty where it is missing."""
        return np.array([*self.levels, ""], dtype=object)[self.codes].tolist()  # type: ignore[no-any-return]


Cells: TypeAlias = "Array | Words"  # numbers, NaN where a value is missing; or words


def missing_in(cells: Cells) -> Array:
    """Which values are missing."""
    return cells.codes < 0 if isinstance(cells, Words) else np.isnan(cells)


def as_numbers(array: Any) -> Array:
    """A numeric column as float64, NaN for nulls of Arrow, whose ``to_numpy`` would import pandas."""
    if isinstance(array, np.ndarray):
        return array.astype(np.float64)
    array = array.cast(pa.float64(), safe=False)
    if not array.null_count:
        return np.from_dlpack(array)
    batch = pa.RecordBatch.from_arrays([array], ["numbers"])
    return batch.to_tensor(null_to_nan=True).to_numpy()[:, 0]  # type: ignore[no-any-return]


class TableBatch(NamedTuple):
    """Some rows of a table: how many, and their columns by position; of some also the text as it is written."""

    n_rows: int
    columns: dict[int, Cells]
    raw: dict[int, list[str]]

    def without_missing(self) -> TableBatch:
        """The rows that have a value in each column."""
        there = ~np.logical_or.reduce([missing_in(cells) for cells in self.columns.values()])
        columns: dict[int, Cells] = {
            j: Words(cells.codes[there], cells.levels) if isinstance(cells, Words) else cells[there]
            for j, cells in self.columns.items()
        }
        return TableBatch(int(there.sum()), columns, {})

    @property
    def nbytes(self) -> int:
        """Memory that the columns take, roughly."""
        words = [cells for cells in self.columns.values() if isinstance(cells, Words)]
        return 8 * self.n_rows * len(self.columns) + sum(len(level) for cells in words for level in cells.levels)


# --- tables -------------------------------------------------------------------------------------------------------


class Table:
    """A table of some source.

    Args:
        path: of the file, or what else to call it.
        names: of the columns; positions from 1 if they have none.
        read: yields columns at some positions, as arrays of Arrow or numpy, for some rows at a time.
        named: whether the columns have names.
    """

    decimal = "."
    na: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()  # what was recognised
    words: frozenset[int] = frozenset()  # columns that look like words, by their first rows
    zero_padded: frozenset[int] = frozenset()  # columns with numbers such as 01067

    def __init__(
        self, path: Path, names: Sequence[str], read: Callable[[Sequence[int]], Iterator[Any]], named: bool = True
    ) -> None:
        self.path, self.names, self.named, self._read = path, tuple(names), named, read

    def arrays(self, positions: Sequence[int], numbers: Collection[int]) -> Iterator[Sequence[Any]]:
        """Columns of Arrow, for some rows at a time; of text, some are parsed as numbers."""
        return self._read(positions)

    def rows(self, positions: Sequence[int]) -> Iterator[tuple[str, list[str]]]:
        """The place of each row, in words, and its cells as they are written."""
        rows = chain.from_iterable(zip(*map(_written, some), strict=True) for some in self.arrays(positions, ()))
        return ((f"{self.path}, row {number}", list(cells)) for number, cells in enumerate(rows, 1))

    def locate(self, positions: Sequence[int], is_wanted: Callable[[int, str], bool]) -> tuple[str, str, int]:
        """The first cell, row by row, that a function of column and cell asks for: place, cell and column."""
        for place, cells in self.rows(positions):
            for position, cell in zip(positions, cells, strict=True):
                if is_wanted(position, self.plain(cell)):
                    return f"{place}, column {self.names[position]!r}: ", cell, position
        raise changed(self.path)

    def plain(self, cell: str) -> str:
        """A cell without blanks around it, empty if it is missing; a number with a decimal point."""
        text = cell.strip()
        text = text.replace(",", ".") if self.decimal == "," and _COMMA.fullmatch(text) else text
        return "" if is_absent(text, self.na) else text

    def batches(self, wanted: Mapping[int, str], raw: Sequence[int] = ()) -> Iterator[TableBatch]:
        """The rows, some at a time.

        Args:
            wanted: positions of columns, each as "number" (words after all where there are any) or as "words".
            raw: positions of columns that are wanted as strings, as they are written.
        """
        positions = [*wanted, *(j for j in raw if j not in wanted)]
        for arrays in self.arrays(positions, {j for j in wanted if wanted[j] == "number" and j not in raw}):
            given = dict(zip(positions, arrays, strict=True))
            columns = {j: self._cells(given[j], j, kind == "number") for j, kind in wanted.items()}
            yield TableBatch(len(arrays[0]), columns, {j: _written(given[j]) for j in raw})

    def _cells(self, array: Any, position: int, numbers: bool) -> Cells:
        """A column as numbers, if all that is in it are and they are wanted; else as words."""
        if isinstance(array, np.ndarray):
            if numbers and array.dtype.kind in "biuf":
                return as_numbers(array)
            values, places = np.unique(array, return_inverse=True)
            return self._coded(values.tolist(), places, numbers)
        types, name = pa.types, self.names[position]
        kind = array.type.value_type if types.is_dictionary(array.type) else array.type
        if numbers and (types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind)):
            return as_numbers(array)
        if types.is_nested(kind) or types.is_binary(kind) or types.is_large_binary(kind):
            what = f"holds {array.type}, neither numbers nor text; convert it, or ignore it ("
            raise ParameterError(f"{self.path}, column {name!r} {what}", Option("ignore", name), ")")
        if types.is_null(kind) or types.is_temporal(kind):  # dates are written as in a text file
            array = array.cast(pa.string())
        encoded = array if types.is_dictionary(array.type) else array.dictionary_encode()
        places = np.nan_to_num(as_numbers(encoded.indices), nan=-1).astype(np.int64)
        return self._coded(encoded.dictionary.to_pylist(), places, numbers)

    def _coded(self, values: Sequence[Any], places: Array, numbers: bool) -> Cells:
        """Words or numbers for values, of which each row has one by its place, or −1."""
        texts = [self.plain(shortest(v) if isinstance(v, float) else "" if v is None else str(v)) for v in values]
        numbering: dict[str, int] = {}
        codes = [numbering.setdefault(word(text), len(numbering)) if text else -1 for text in texts]
        words = Words(np.array([*codes, -1])[places], tuple(numbering))
        if numbers and all(map(is_number, words.levels)):
            return words.look_up([*map(float, words.levels)], math.nan)
        return words


def _written(array: Any) -> list[str]:
    cells = array.tolist() if isinstance(array, np.ndarray) else array.to_pylist()
    return ["" if cell is None else str(cell) for cell in cells]


def columns_table(title: str, names: Sequence[str], column: Callable[[int], Any]) -> Table:
    """A table of columns in memory."""

    def read(positions: Sequence[int]) -> Iterator[Any]:
        try:
            yield [pa.array(column(j), from_pandas=True) for j in positions]
        except pa.ArrowException as error:
            raise ValueError(f"{title} has a column of mixed types ({first_line(error)}); convert it") from None

    return Table(Path(title), names, read)


def frame_table(frame: Any, title: str = "X") -> Table:
    """A pandas data frame as a table."""
    return columns_table(title, [str(name) for name in frame.columns], lambda j: frame.iloc[:, j])


def rows_table(rows: Sequence[Mapping[str, Any]], names: Sequence[str]) -> Table:
    """A dict per row as a table; each must have the columns that are named."""
    for i, row in enumerate(rows):
        if not isinstance(row, Mapping):
            raise TypeError(f"X[{i}] is {type(row).__name__}, but X[0] is a dict; give a dict per row")
        lost = [name for name in names if name not in row]
        if lost:
            has = listed(list(map(str, row)))
            raise ValueError(f"X[{i}] must have each column of training; it lacks {lost[0]!r} and has {has}")
    return columns_table("X", names, lambda j: [row[names[j]] for row in rows])


@contextmanager
def _complete(path: Path, what: str) -> Iterator[None]:
    """Whatever fails is one error, of the file or of what is in it."""
    try:
        yield
    except Exception as error:  # numpy reads a header as Python text, so damage fails in many ways
        if isinstance(error, OSError) and error.strerror:
            raise unreadable(path, error) from None
        raise ValueError(f"{path} is not a complete {what} ({first_line(error)}); write it again") from None


def parquet_table(path: Path) -> Table:
    """A Parquet file as a table."""

    def read(positions: Sequence[int]) -> Iterator[Any]:
        with _complete(path, "Parquet file"), pa.parquet.ParquetFile(path) as file:
            some = [names[j] for j in positions]
            for batch in file.iter_batches(_rows(len(some)), columns=some):
                batch.validate(full=True)  # text in UTF-8, among others
                yield [batch.column(name) for name in some]

    with _complete(path, "Parquet file"):
        names = pa.parquet.read_schema(path).names
    return Table(path, names, read)


def array_table(path: Path, archive: bool, target: str | None = None, labelled: bool = True) -> Table:
    """The matrix of numbers in an ``.npy`` file, or the matrix and the labels of an ``.npz`` file, as a table.

    Python objects in it are not looked at, let alone run.
    """
    with _complete(path, f"{'archive of arrays' if archive else 'array'} of numbers"), path.open("rb") as file:
        loaded: Any = np.load(file if archive else path, None if archive else "r", allow_pickle=False)
        arrays = {name: loaded[name] for name in loaded.files} if archive else {"X": loaded}
    X: Any
    X, name = next(((arrays[a], b) for a, b in _PAIRS if a in arrays), (None, "y"))
    y: Any = arrays.get(target or name)
    matrix = X is not None and X.ndim == 2 and X.dtype.kind in "biuf"
    if not matrix or (y.shape != X.shape[:1] if y is not None else labelled and archive):
        found = ", ".join(f"{name} {array.shape} {array.dtype}" for name, array in arrays.items())
        needed = f"a matrix of numbers X (N, d) is needed, and in an .npz file labels {target or name} (N,)"
        raise ValueError(f"{path} holds {found or 'nothing'}; {needed}; save sparse samples as svmlight")
    (count, width), step = X.shape, _rows(X.shape[1])
    mapped = isinstance(X, np.memmap) and X.flags.c_contiguous

    def read(positions: Sequence[int]) -> Iterator[Any]:
        for first in range(0, count, step):
            some = X[first : first + step]
            if mapped:  # is read: a process that looks at a map of a file that is cut off dies
                begin = X.offset + first * width * X.itemsize
                some = np.fromfile(path, X.dtype, some.size, offset=begin).reshape(some.shape)
            yield [some[:, j] if j < width else y[first : first + step] for j in positions]

    names = [*map(str, range(1, width + 1)), *([] if y is None else [target or name])]
    return Table(path, names, read, named=False)


def _rows(width: int) -> int:
    return max(1, min(ROWS, 2**20 // max(1, width)))


class JoinedTable(Table):
    """Several files with the same columns as one table, the rows of one after those of the other."""

    def __init__(self, tables: Sequence[Table]) -> None:
        vars(self).update(vars(tables[0]))
        self.path, self.tables = common_name([table.path for table in tables]), tables
        for table in tables:
            if table.names != self.names:
                theirs, ours = f"has columns {listed(table.names)}", f"but {tables[0].path} has {listed(self.names)}"
                raise ValueError(f"{table.path} {theirs}, {ours}; several files need the same columns, in one order")

    def arrays(self, positions: Sequence[int], numbers: Collection[int]) -> Iterator[Sequence[Any]]:
        """Those of each table."""
        return chain.from_iterable(table.arrays(positions, numbers) for table in self.tables)

    def rows(self, positions: Sequence[int]) -> Iterator[tuple[str, list[str]]]:
        """Those of each table."""
        return chain.from_iterable(table.rows(positions) for table in self.tables)


def open_table(
    paths: Sequence[Path], kind: str, options: ReadOptions, known: Sequence[str], labelled: bool = True
) -> Table:
    """The table in one file or in several.

    A text with one of the ``known`` names in its first line has a header; an archive has the first of them as labels.
    """
    tables: list[Table] = []
    for path in paths:
        if kind == "text":
            table = TextTable(path, options, known)
            options = replace(options, delimiter=table.delimiter, decimal=table.decimal, header=table.named)  # of all
            tables.append(table)
        elif kind == "parquet":
            tables.append(parquet_table(path))
        else:
            tables.append(array_table(path, kind == "npz", known[0] if known and kind == "npz" else None, labelled))
    return tables[0] if len(tables) == 1 else JoinedTable(tables)


# --- delimited text -----------------------------------------------------------------------------------------------


class TextTable(Table):
    """A delimited text file, with a header if one of the ``known`` names is in its first line.

    Arrow opens and reads it by itself: Python code in its threads would abort a process that exits meanwhile. Where it
    fails, Python's reader names the line that is wrong, or reads it after all.
    """

    def __init__(self, path: Path, options: ReadOptions, known: Sequence[str]) -> None:
        self.path, self.na = path, tuple(options.na)
        head = self._head(options.encoding)
        self.delimiter: str = options.delimiter or _delimiter(head)
        first = [(end, cells) for end, cells in _records(io.StringIO(head, newline=""), self.delimiter) if any(cells)]
        if not first:
            raise ValueError(f"{path} is empty")
        cells, width = tuple(first[0][1]), len(first[0][1])
        self.named = _is_header(cells, known) if options.header is None else options.header
        self.names = cells if self.named else tuple(str(j + 1) for j in range(width))
        self._skip = first[0][0] if self.named else 0  # lines
        body = [cells for _, cells in first[self.named :] if len(cells) == width]
        columns = [[row[j] for row in body if not is_absent(row[j], self.na)] for j in range(width)]
        self.decimal = options.decimal or _decimal(columns)
        if self.decimal == "," and not options.decimal:
            self.notes += ("numbers have a decimal comma",)
        numbers = [sum(is_number(cell.replace(self.decimal, ".")) for cell in column) for column in columns]
        self.words = frozenset(j for j, column in enumerate(columns) if 2 * numbers[j] < len(column))
        padded = [any(cell[0] == "0" and cell[1:].isdigit() for cell in column) for column in columns]
        self.zero_padded = frozenset(np.flatnonzero(padded).tolist())

    def _head(self, encoding: str | None) -> str:
        """The first lines, two at least, in the encoding that is given or recognised."""
        with open_bytes(self.path) as file:
            head = file.read(_HEAD)
        if encoding is None and head[:2] in (b"\xff\xfe", b"\xfe\xff"):
            encoding, self.notes = "utf-16", ("the file is in UTF-16",)
        elif encoding is None and b"\0" in head:
            why = "holds NUL bytes: it is compressed, of another kind than its extension says, or text that needs "
            raise ParameterError(f"{self.path} {why}", Option("encoding", "utf-16"))
        encoding = codecs.lookup(encoding or "utf-8").name
        self._encoding, self._source = "utf-8-sig" if encoding == "utf-8" else encoding, str(self.path)
        if encoding != "utf-8" or self.path.suffix.lower() == ".xz":  # a copy that Arrow can decode by itself
            folder = Path(tempfile.mkdtemp(prefix=".torchperc-copy-"))
            weakref.finalize(self, remove, folder)
            self._source = str(folder / "copy.csv")
            with self._text() as text, open(self._source, "w", encoding="utf-8", newline="") as copy:
                shutil.copyfileobj(text, copy)
        with self._text() as text:
            return str(text.read(_HEAD) + text.readline(_LONGEST) + text.readline(_LONGEST))

    @contextmanager
    def _text(self) -> Iterator[Any]:
        """The file as text; wrong bytes are an error that names the first line with one."""
        try:
            with open_bytes(self.path) as file, io.TextIOWrapper(file, self._encoding, newline="") as text:
                yield text
        except UnicodeDecodeError as error:
            with open_bytes(self.path) as file:
                lines = codecs.getreader(self._encoding)(file, "replace")
                number = next((k for k, line in enumerate(lines, 1) if "\ufffd" in line), 1)
            said = f"{self._encoding.removesuffix('-sig').upper()}: line {number} holds the byte"
            byte, remedy = error.object[error.start], "; if it comes from Windows or an old Excel, read it with "
            what = f"{self.path} is not a CSV file in {said} 0x{byte:02x}{remedy}"
            raise ParameterError(what, Option("encoding", "cp1252")) from None

    def arrays(self, positions: Sequence[int], numbers: Collection[int]) -> Iterator[Sequence[Any]]:
        """Columns read by Arrow, and by Python's reader from the first row that Arrow refuses."""
        done = 0
        try:
            for some in self._by_arrow(positions, numbers):
                yield some
                done += len(some[0])
            return
        except OSError as error:
            raise unreadable(self.path, error) from None
        except pa.ArrowInvalid:
            rows = (cells for _, cells in islice(self._lines(), done, None))
        while records := list(islice(rows, 4096)):
            yield [np.array([cells[j] for cells in records], object) for j in positions]

    def _by_arrow(self, positions: Sequence[int], numbers: Collection[int]) -> Iterator[Sequence[Any]]:
        """Columns as Arrow reads them; ``ArrowInvalid`` where Python's reader must take over."""
        names, end, pc = [str(j) for j in range(len(self.names))], "", pa.compute
        types = {names[j]: pa.float64() if j in numbers else pa.string() for j in (*positions, len(names) - 1)}
        read = pa.csv.ReadOptions(column_names=names, skip_rows=self._skip, block_size=max(BLOCK, 64 * len(names)))
        parse = pa.csv.ParseOptions(delimiter=self.delimiter, newlines_in_values=True)
        convert = pa.csv.ConvertOptions(column_types=types, include_columns=list(types), decimal_point=self.decimal)
        convert.null_values, convert.strings_can_be_null = [*ABSENT, *self.na], True
        for batch in pa.csv.open_csv(self._source, read, parse, convert):
            gaps = all(column.null_count for column in batch.columns)
            if gaps and pc.any(reduce(pc.and_, map(pc.is_null, batch.columns))).as_py():
                raise pa.ArrowInvalid("a line in which maybe nothing is written, which is no row")
            words = (column for column in batch.columns if column.type == pa.string())
            if any(pc.any(pc.match_substring_regex(column, '^ +"')).as_py() for column in words):
                raise pa.ArrowInvalid("a blank before a quote, which Arrow takes for a part of the cell")
            yield [batch.column(names[j]) for j in positions]
            end = str(batch.column(names[-1])[-1]) if batch.num_rows else end
        if "\n" in end or "\r" in end:
            raise pa.ArrowInvalid("the file ends maybe within quotes, which Arrow does not mind")

    def rows(self, positions: Sequence[int]) -> Iterator[tuple[str, list[str]]]:
        """The line of each row, and its cells as they are written."""
        for line, cells in self._lines():
            yield f"{self.path}, line {line}", [cells[j] for j in positions]

    def _lines(self) -> Iterator[tuple[int, list[str]]]:
        """Line and cells of each record in which something is written; one of another width is an error."""
        line, width = self._skip + 1, len(self.names)
        with self._text() as text:
            try:
                for last, cells in _records(chain(islice(text, self._skip, None), [_END]), self.delimiter):
                    if cells == [_END]:
                        return
                    if any(cells):
                        if cells[-1].endswith(_END):
                            raise csv.Error("a quote is opened and not closed")
                        if len(cells) != width:
                            found = f"{len(cells)} column{'s' * (len(cells) != 1)}"
                            raise csv.Error(f"{found} where the first line has {width}")
                        yield line, cells
                    line = self._skip + last + 1
            except csv.Error as error:
                why = f"{error}; correct it, or look for a quote that is not closed"
                raise ValueError(f"{self.path}, line {line}: {why}") from None


def _records(lines: Iterable[str], delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """The cells of each record, and the number of the line in which it ends."""
    reader = csv.reader(lines, delimiter=delimiter, skipinitialspace=True)
    return ((reader.line_num, [cell.strip() for cell in cells]) for cells in reader)


def _delimiter(head: str) -> str:
    """What splits the first lines into equally many cells, most of them numbers; else what the first has most of."""

    def merit(delimiter: str) -> tuple[bool, float, int]:
        records = _records(io.StringIO(head, newline=""), delimiter)
        rows = [cells for _, cells in islice(records, 2 * _ALIKE) if any(cells)][:_ALIKE]
        width = len(rows[0]) if rows else 0
        alike = width > 1 and all(len(row) == width for row in rows)
        numbers = sum(_is_any_number(cell) for row in rows for cell in row)
        return alike, numbers / (width * len(rows)) if alike else 0.0, width

    return max(_DELIMITERS, key=merit)


def _is_header(cells: Sequence[str], known: Sequence[str]) -> bool:
    """Names are words, and every column has one but for that of an index, which comes first."""
    if any(name in cells and not is_number(name) for name in known):
        return True
    rest = cells[1:] if len(cells) > 1 and not cells[0] else cells
    return not any(_is_any_number(cell) or not cell for cell in rest)


def _is_any_number(cell: str) -> bool:
    return is_number(cell.replace(",", ".", 1))


def _decimal(columns: Sequence[Sequence[str]]) -> str:
    """A comma if the first rows leave no doubt: some column of such numbers, not all in thousands, and no point."""
    commas = [column for column in columns if column and all(map(_COMMA.fullmatch, column)) and "," in "".join(column)]
    clear = any("," in cell and not _THOUSANDS.fullmatch(cell) for column in commas for cell in column)
    points = any("." in cell and is_number(cell) for column in columns for cell in column)
    return "," if clear and not points else "."
