"""Files as tables: how they are read, column names, and rows in batches that Arrow reads.

Arrow is fast and does not say in which line it failed. So a cell is found by reading the file again, text with Python's
own reader, when an error is raised.
"""

from __future__ import annotations

import codecs
import csv
import glob
import io
import math
import os
import re
import shutil
import tempfile
import weakref
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from copy import copy
from dataclasses import dataclass, replace
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from torchperc._checks import Option, ParameterError, first_line, require_packages
from torchperc._files import remove


class _Arrow:
    """pyarrow, imported on first use; a promise of lazy_loader would be kept by whoever looks through all modules."""

    def __getattr__(self, name: str) -> Any:
        import pyarrow.csv
        import pyarrow.parquet

        return getattr(pyarrow, name)


pa: Any = _Arrow()
Array: TypeAlias = np.ndarray[Any, Any]

MISSING = ("error", "drop", "mean")
TASKS = ("classification", "regression")
_FORMATS = {
    **dict.fromkeys((".csv", ".tsv", ".txt", ".data"), "text"),
    **dict.fromkeys((".parquet", ".pq"), "parquet"),
    **dict.fromkeys((".svm", ".svmlight", ".libsvm"), "svmlight"),
    **{".npy": "npy", ".npz": "npz"},
}
ABSENT = ("", "NA", "N/A", "n/a", "nan", "NaN", "null", "NULL", "?")  # missing values, as is what reads as NaN
BLOCK = 2**20  # bytes of text that Arrow parses at a time; 16 times as many if it refuses
ROWS = 2**16  # rows of a Parquet file or array that are read together, fewer if they are wide
_HEAD = 2**16  # characters by which delimiter and header are found
_DELIMITERS, _ALIKE = ("\t", ";", "|", ","), 20  # and the lines that must agree on one
_COMMA = re.compile(r"[+-]?\d+(,\d+)?([eE][+-]?\d+)?")
_THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2},\d{3}")
_QUOTED = re.compile(r'\s+"(.*)"\s*', re.DOTALL)  # behind a blank, which Arrow takes for a part of the cell
_ARRAYS = (("X", "data"), ("y", "target"))  # names in an archive
_CHOICES = {
    "missing": MISSING,
    "decimal": (None, ".", ","),
    "task": (None, *TASKS),
    **dict.fromkeys(("header", "stream"), (None, True, False)),
}


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
        for name, choices in _CHOICES.items():
            if getattr(self, name) not in choices:
                why = f" is unknown; choose one of {listed([str(choice) for choice in choices if choice is not None])}"
                raise ParameterError(Option(name, getattr(self, name)), why)
        mark = self.delimiter
        if mark is not None and (not isinstance(mark, str) or len(mark) != 1 or mark in '"\r\n'):
            raise ParameterError(Option("delimiter", mark), " must be one character, such as ',' or ';'")
        try:
            "".encode("utf-8" if self.encoding is None else self.encoding)
        except (LookupError, TypeError):
            why = " is unknown; choose one of Python's, such as 'utf-8', 'cp1252' or 'latin-1'"
            raise ParameterError(Option("encoding", self.encoding), why) from None
        if self.positive is not None:
            if self.task == "regression":
                why = " names a class, but there is none with "
                raise ParameterError(Option("positive", self.positive), why, Option("task", self.task))
            object.__setattr__(self, "task", "classification")

    def of_new_files(self, **found: Any) -> ReadOptions:
        """The options that new files are read by, too; those that were found in this one instead of others."""
        kept = {name: getattr(self, name) for name in ("na", "header", "delimiter", "decimal", "encoding")}
        return ReadOptions(**kept | {name: value for name, value in found.items() if value is not None})

    def to_json(self) -> dict[str, Any]:
        """The options that differ from the default, as plain types."""
        default = vars(ReadOptions())
        given = {name: value for name, value in vars(self).items() if value != default[name]}
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
        matching = [] if Path(name).exists() else sorted(map(Path, glob.glob(str(name), recursive=True)))
        paths += matching or [Path(name)]
    if len(set(paths)) < len(paths):
        raise ValueError(f"{max(paths, key=paths.count)} is named twice; name each file once")
    return tuple(paths)


def is_pattern(name: str | Path) -> bool:
    """Whether a name may stand for several files."""
    return any(letter in str(name) for letter in "*?[")


def common_name(paths: Sequence[Path]) -> Path:
    """A path that names several files together."""
    return paths[0] if len(paths) == 1 else paths[0].with_name(f"{paths[0].name} and {len(paths) - 1} more")


def format_by_name(name: str) -> str | None:
    """Format by the extension of a file, or the one before it (``.csv.gz``); ``None`` if they say nothing."""
    return next((_FORMATS[end] for end in Path(name.lower()).suffixes[:-3:-1] if end in _FORMATS), None)


def format_of(path: Path) -> str:
    """Format of a file by its extension, text by default; one that cannot be opened or is empty is an error."""
    kind = format_by_name(path.name) or "text"
    if kind not in ("npy", "npz"):
        require_packages(f"reading {path}", "pyarrow")
    if path.exists() and not path.is_file() and not path.is_dir():
        why = "it is a pipe or a device, and files are read more than once; save it as a file first"
        raise ValueError(f"cannot read {path}: {why}")
    with _reading(path), path.open("rb") as file:
        if not file.read(1):
            raise ValueError(f"{path} is empty")
    return kind


@contextmanager
def _reading(path: Path, what: str = "file", errors: Any = (OSError, UnicodeError)) -> Iterator[None]:
    """Whatever fails is one ``ValueError``, of the file or of what is in it."""
    try:
        yield
    except errors as error:
        if isinstance(error, OSError) and error.errno:
            folder = f"; name its files by a pattern, such as {path}/*.csv" * isinstance(error, IsADirectoryError)
            raise ValueError(f"cannot read {path}: {os.strerror(error.errno)}{folder}") from None
        raise ValueError(f"{path} is not a complete {what} ({first_line(error)}); write it again") from None


@contextmanager
def open_bytes(path: Path) -> Iterator[Any]:
    """Open a file of Arrow, decompressed as the extension says; whatever fails is one ``ValueError``."""
    with _reading(path), pa.input_stream(str(path)) as file:
        yield file


class Unchanged(AbstractContextManager["Unchanged"]):
    """Refuses files that change while they are read: another size, time or file under a name.

    If the block is left by an error, the change is reported rather than what it did to the reading.
    """

    def __init__(self, *paths: Path) -> None:
        self._before = {path: _stamp(path) for path in paths}

    def check(self) -> None:
        """Raise if a file has changed."""
        for path, before in self._before.items():
            if _stamp(path) != before:
                raise ValueError(f"{path} changed while it was read; read it again")

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None or isinstance(error, Exception):
            self.check()


def _stamp(path: Path) -> tuple[int, ...] | None:
    with suppress(OSError):
        there = path.stat()
        return there.st_dev, there.st_ino, there.st_size, there.st_mtime_ns, there.st_ctime_ns
    return None


# --- cells --------------------------------------------------------------------------------------------------------


def is_number(cell: str) -> bool:
    """Whether a cell of a table reads as a number."""
    with suppress(ValueError):
        float(cell)
        return "_" not in cell  # 1_000 is a number in Python only
    return False


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


Cells: TypeAlias = "Array | Words"  # numbers, NaN where a value is missing; or words


def missing_in(cells: Cells) -> Array:
    """Which values are missing."""
    return cells.codes < 0 if isinstance(cells, Words) else np.isnan(cells)


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


@dataclass
class Table:
    """A table of some source, or of several with the same columns, the rows of one after those of the other.

    Args:
        path: of the file, or what else to call it.
        names: of the columns; positions from 1 if they have none.
        read: yields columns at some positions, as arrays of Arrow or numpy, for some rows at a time.
        named: whether the columns have names.
        notes: what was recognised.
        zero_padded: columns with numbers such as 01067.
        parts: the tables of several files.
    """

    path: Path
    names: tuple[str, ...]
    read: Callable[[Sequence[int]], Iterator[Any]]
    named: bool = True
    decimal: str = "."
    na: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    zero_padded: frozenset[int] = frozenset()
    parts: Sequence[Table] = ()

    def arrays(self, positions: Sequence[int], numbers: Collection[int]) -> Iterator[Sequence[Any]]:
        """Columns, for some rows at a time; of text, some are parsed as numbers."""
        return self.read(positions)

    def rows(self, positions: Sequence[int]) -> Iterator[tuple[str, list[str]]]:
        """The place of each row, in words, and its cells as they are written."""
        rows = chain.from_iterable(zip(*map(_written, some), strict=True) for some in self.arrays(positions, ()))
        return ((f"{self.path}, row {number}", list(cells)) for number, cells in enumerate(rows, 1))

    def locate(self, positions: Sequence[int], is_wanted: Callable[[int, str], bool]) -> tuple[str, str, int]:
        """The first cell, row by row, that a function of column and cell asks for: place, cell and column."""
        for place, cells in chain.from_iterable(part.rows(positions) for part in self.parts or [self]):
            for position, cell in zip(positions, cells, strict=True):
                if is_wanted(position, self.plain(cell)):
                    return f"{place}, column {self.names[position]!r}: ", cell, position
        raise ValueError(f"{self.path} changed while it was read; read it again")

    def plain(self, cell: str) -> str:
        """A cell without blanks, and quotes behind them, around it; empty if it is missing; a number with a point."""
        quoted = _QUOTED.fullmatch(cell)
        text = quoted[1].replace('""', '"').strip() if quoted else cell.strip()
        text = text.replace(",", ".") if self.decimal == "," and _COMMA.fullmatch(text) else text
        return "" if is_absent(text, self.na) else text

    def batches(self, wanted: Mapping[int, str], raw: Sequence[int] = ()) -> Iterator[TableBatch]:
        """The rows, some at a time.

        Args:
            wanted: positions of columns, each as "number" (words after all where there are any) or as "words".
            raw: positions of columns that are wanted as strings, as they are written.
        """
        positions = [*dict.fromkeys([*wanted, *raw])]
        numbers = {j for j in wanted if wanted[j] == "number" and j not in raw}
        for arrays in chain.from_iterable(part.arrays(positions, numbers) for part in self.parts or [self]):
            given = dict(zip(positions, arrays, strict=True))
            columns = {j: self._cells(given[j], j, kind == "number") for j, kind in wanted.items()}
            yield TableBatch(len(arrays[0]), columns, {j: _written(given[j]) for j in raw})

    def _cells(self, array: Any, position: int, numbers: bool) -> Cells:
        """A column as numbers, if all that is in it are and they are wanted; else as words."""
        if not isinstance(array, np.ndarray):
            array = array.dictionary_decode() if pa.types.is_dictionary(array.type) else array
            is_boolean, name = pa.types.is_boolean(array.type), self.names[position]
            if numbers and not is_boolean:
                with suppress(pa.ArrowException):
                    array = array.cast(pa.float64(), safe=False)
                    if not array.null_count:
                        return np.from_dlpack(array)
                    batch = pa.RecordBatch.from_arrays([array], ["numbers"])  # whose arrays' to_numpy imports pandas
                    return batch.to_tensor(null_to_nan=True).to_numpy()[:, 0]  # type: ignore[no-any-return]
            try:
                encoded = (array if is_boolean else array.cast(pa.string())).dictionary_encode("encode")
            except pa.ArrowException as error:
                what = f"is neither numbers nor text ({first_line(error)}); convert it, or ignore it ("
                raise ParameterError(f"{self.path}, column {name!r} {what}", Option("ignore", name), ")") from None
            values, places = encoded.dictionary, np.from_dlpack(encoded.indices)
        elif numbers and array.dtype.kind in "biuf":
            return array.astype(np.float64)
        else:
            values, places = np.unique(array, return_inverse=True)
        numbering: dict[str, int] = {}
        texts = map(self.plain, _written(values))
        codes = [numbering.setdefault(word(text), len(numbering)) if text else -1 for text in texts]
        words = Words(np.array(codes, np.int64)[places], tuple(numbering))
        if numbers and all(map(is_number, words.levels)):
            return words.look_up([*map(float, words.levels)], math.nan)
        return words


def _written(array: Any) -> list[str]:
    """Values as texts, numbers in their shortest form."""
    return [shortest(v) if isinstance(v, float) else "" if v is None else str(v) for v in array.tolist()]


def columns_table(title: str, columns: Iterable[tuple[Any, Any]]) -> Table:
    """A table of named columns in memory."""
    held = [*columns]

    def read(positions: Sequence[int]) -> Iterator[Any]:
        try:
            yield [pa.array(held[j][1], from_pandas=True) for j in positions]
        except pa.ArrowException as error:
            raise ValueError(f"{title} has a column of mixed types ({first_line(error)}); convert it") from None

    return Table(Path(title), tuple(str(name) for name, _ in held), read)


def frame_table(frame: Any, title: str = "X") -> Table:
    """A pandas data frame as a table."""
    return columns_table(title, frame.items())


def rows_table(rows: Sequence[Mapping[str, Any]], names: Sequence[str]) -> Table:
    """A dict per row as a table; each must have the columns that are named."""
    for i, row in enumerate(rows):
        if not isinstance(row, Mapping) or not {*names} <= {*row}:
            error = ValueError if isinstance(row, Mapping) else TypeError
            raise error(f"X[{i}] must be a dict with each column of training, {listed(names)}, found {row!r:.200}")
    return columns_table("X", ((name, [row[name] for row in rows]) for name in names))


def parquet_table(path: Path) -> Table:
    """A Parquet file as a table."""

    def read(positions: Sequence[int]) -> Iterator[Any]:
        with _reading(path, "Parquet file", Exception), pa.parquet.ParquetFile(path) as file:
            some = [names[j] for j in positions]
            for batch in file.iter_batches(max(1, min(ROWS, 2**20 // len(some))), columns=some):
                batch.validate(full=True)  # text in UTF-8, among others
                yield [batch.column(name) for name in some]

    with _reading(path, "Parquet file", Exception):
        names = pa.parquet.read_schema(path).names
    return Table(path, tuple(names), read)


def array_table(path: Path, kind: str) -> Table:
    """The matrix in an ``.npy`` file, or X and y (data and target) of an ``.npz`` file, as a table.

    Python objects in it are not looked at, let alone run.
    """
    with _reading(path, "array of numbers", Exception), path.open("rb") as file:  # numpy reads a header as Python text
        loaded: Any = np.load(path if kind == "npy" else file, "r", allow_pickle=False)
        arrays = {"X": loaded} if kind == "npy" else dict(loaded)
    X, y = (next((arrays[name] for name in names if name in arrays), None) for names in _ARRAYS)
    if X is None or X.ndim != 2 or X.dtype.kind not in "biuf" or (y is not None and y.shape != X.shape[:1]):
        held = ", ".join(f"{name} {array.shape} {array.dtype}" for name, array in arrays.items())
        needed = "a matrix of numbers X (N, d) is needed, and in an .npz file labels y (N,)"
        raise ValueError(f"{path} holds {held or 'nothing'}; {needed}; save sparse samples as svmlight")
    columns = dict(zip(map(str, range(1, X.shape[1] + 1)), X.T, strict=True)) | ({} if y is None else {"y": y})
    names, step = tuple(columns), max(1, min(ROWS, 2**20 // (len(columns) or 1)))

    def read(positions: Sequence[int]) -> Iterator[Any]:
        for first in range(0, len(X), step):
            yield [columns[names[j]][first : first + step] for j in positions]

    return Table(path, names, read, named=y is not None)


def open_table(paths: Sequence[Path], kind: str, options: ReadOptions) -> Table:
    """The table in one file or in several."""
    parts: list[Table] = []
    for path in paths:
        if kind == "text":
            parts.append(text := TextTable(path, options))
            options = replace(options, delimiter=text.delimiter, decimal=text.decimal, header=text.named)  # of all
        else:
            parts.append(parquet_table(path) if kind == "parquet" else array_table(path, kind))
    table = copy(parts[0])
    for part in parts:
        if part.names != table.names:
            theirs, ours = f"has columns {listed(part.names)}", f"but {table.path} has {listed(table.names)}"
            raise ValueError(f"{part.path} {theirs}, {ours}; several files need the same columns, in one order")
    table.path, table.parts = common_name(paths), parts
    return table


# --- delimited text -----------------------------------------------------------------------------------------------


class TextTable(Table):
    """A delimited text file, with a header if no number is in its first line.

    Arrow opens and reads it by itself: Python code in its threads would abort a process that exits meanwhile. Where it
    refuses a line, or may have read too much into one, Python's reader names it.
    """

    def __init__(self, path: Path, options: ReadOptions) -> None:
        self.path, self._source, self.na = path, path, tuple(options.na)
        head = self._head(options.encoding)
        self.delimiter: str = options.delimiter or _delimiter(head)
        first = [(end, cells) for end, cells in _records(head, self.delimiter) if any(cells)]
        if not first:
            raise ValueError(f"{path} is empty")
        end, cells = first[0]
        numbers = [is_number(cell.replace(",", ".", 1)) for cell in cells]
        self.named = not any(numbers) if options.header is None else options.header
        self.names = tuple(cells) if self.named else tuple(str(j + 1) for j in range(len(cells)))
        self._skip = end if self.named else 0  # lines
        body = [row for _, row in first[self.named :] if len(row) == len(cells)]
        columns = [[cell for cell in column if not is_absent(cell, self.na)] for column in zip(*body, strict=True)]
        self.decimal = options.decimal or _decimal(columns)
        if self.decimal == "," and not options.decimal:
            self.notes += ("numbers have a decimal comma",)
        padded = [any(cell[0] == "0" and cell[1:].isdigit() for cell in column) for column in columns]
        self.zero_padded = frozenset(np.flatnonzero(padded).tolist())

    def _head(self, encoding: str | None) -> list[str]:
        """The first lines, two at least, in the encoding that is given or recognised."""
        with open_bytes(self.path) as file:
            head = file.read(_HEAD)
        if encoding is None and head[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
            encoding, self.notes = "utf-16", ("the file is in UTF-16",)
        elif encoding is None and b"\0" in head:
            why = "holds NUL bytes: it is compressed, of another kind than its extension says, or text that needs "
            raise ParameterError(f"{self.path} {why}", Option("encoding", "utf-16"))
        if encoding not in (None, "utf-8"):  # a copy that Arrow can decode by itself
            folder = Path(tempfile.mkdtemp(prefix=".torchperc-copy-"))
            weakref.finalize(self, remove, folder)
            self._source = folder / "copy.csv"
            with (
                _open_text(self.path, encoding) as text,
                self._source.open("w", encoding="utf-8", newline="") as copied,
            ):
                shutil.copyfileobj(text, copied)
        with _open_text(self._source) as text:
            return [*text.readlines(_HEAD), *text.readlines(1)]

    def arrays(self, positions: Sequence[int], numbers: Collection[int]) -> Iterator[Sequence[Any]]:
        """Columns as Arrow reads them; all are text from the first block on in which some are not all numbers."""
        names, done, end = [str(j) for j in range(len(self.names))], 0, ""
        parse = pa.csv.ParseOptions(delimiter=self.delimiter, newlines_in_values=True)
        for parsed, size in ((numbers, BLOCK), ((), 16 * BLOCK)):
            types = {names[j]: pa.float64() if j in parsed else pa.string() for j in (*positions, len(names) - 1)}
            read = pa.csv.ReadOptions(column_names=names, skip_rows=self._skip, block_size=max(size, 64 * len(names)))
            convert = pa.csv.ConvertOptions(column_types=types, include_columns=list(types), decimal_point=self.decimal)
            convert.null_values, convert.strings_can_be_null = [*ABSENT, *self.na], True
            seen = 0
            try:
                with _reading(self.path):
                    for batch in pa.csv.open_csv(str(self._source), read, parse, convert):
                        new, seen = max(0, done - seen), seen + batch.num_rows
                        if seen > done:
                            done, end = seen, str(batch.column(names[-1])[-1])
                            yield [batch.column(names[j]).slice(new) for j in positions]
                refused = ""
                break
            except pa.ArrowInvalid as error:
                refused = first_line(error)
        if refused or "\n" in end or "\r" in end:
            deque(self.rows(()), 1)  # names what is wrong
        if refused:
            raise ValueError(f"{self.path} is no table that can be read: {refused}")

    def rows(self, positions: Sequence[int]) -> Iterator[tuple[str, list[str]]]:
        """The line of each record that is not empty, and its cells; the first that is wrong is an error."""
        line, width = self._skip + 1, len(self.names)
        with _open_text(self._source) as text:
            records = csv.reader(islice(text, self._skip, None), delimiter=self.delimiter, strict=True)
            try:
                for cells in records:
                    if len(cells) not in (0, width):
                        raise csv.Error(f"{len(cells)} columns where the first line has {width}")
                    if cells:
                        yield f"{self.path}, line {line}", [cells[j] for j in positions]
                    line = self._skip + records.line_num + 1
            except csv.Error as error:
                why = f"{error}; correct it, or look for a quote that is not closed or behind a blank"
                raise ValueError(f"{self.path}, line {line}: {why}") from None


@contextmanager
def _open_text(path: Path, encoding: str | None = None) -> Iterator[Any]:
    """Open a file as text; bytes that are none in the encoding are an error."""
    with open_bytes(path) as file, io.TextIOWrapper(file, encoding or "utf-8-sig", newline="") as text:
        try:
            yield text
        except UnicodeError as error:
            said = f"{path} is no text in {encoding or 'UTF-8'} ({first_line(error)})"
            remedy = "; if it comes from Windows or an old Excel, read it with "
            raise ParameterError(said, remedy, Option("encoding", "cp1252")) from None


def _records(lines: list[str], delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """The cells of each record, and the number of the line in which it ends, up to a cell that is too long."""
    reader = csv.reader(lines, delimiter=delimiter, skipinitialspace=True)
    with suppress(csv.Error):
        yield from ((reader.line_num, [cell.strip() for cell in cells]) for cells in reader)


def _delimiter(head: list[str]) -> str:
    """What splits the first lines into equally many cells, most of them numbers; else what the first has most of."""

    def merit(delimiter: str) -> tuple[bool, float, int]:
        rows = [cells for _, cells in islice(_records(head, delimiter), _ALIKE) if any(cells)]
        widths = [len(row) for row in rows] or [0]
        alike = 1 < min(widths) == max(widths)
        numbers = sum(is_number(cell.replace(",", ".", 1)) for row in rows for cell in row)
        return alike, alike and numbers / sum(widths), widths[0]

    return max(_DELIMITERS, key=merit)


def _decimal(columns: Sequence[Sequence[str]]) -> str:
    """A comma if the first rows leave no doubt: some column of such numbers, not all in thousands, and no point."""
    commas = [column for column in columns if column and all(map(_COMMA.fullmatch, column)) and "," in "".join(column)]
    clear = any("," in cell and not _THOUSANDS.fullmatch(cell) for column in commas for cell in column)
    points = any("." in cell and is_number(cell) for column in columns for cell in column)
    return "," if clear and not points else "."
