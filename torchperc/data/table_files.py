"""Tables of any file: column names, and rows in batches that Arrow reads.

Arrow is fast and does not say in which line it failed. So a cell is found by reading the file again, text with Python's
own reader, when an error is raised.
"""

from __future__ import annotations

import atexit
import codecs
import csv
import importlib
import io
import math
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from torchperc._checks import Option, ParameterError, first_line
from torchperc.data.file_formats import ReadOptions, changed, common_name, open_bytes, unreadable


class _Arrow:
    """pyarrow, imported on first use; a promise of lazy_loader would be kept by whoever looks through all modules."""

    def __getattr__(self, name: str) -> Any:
        return getattr(importlib.import_module("pyarrow"), name)


pa: Any = _Arrow()
Array: TypeAlias = np.ndarray[Any, Any]

ABSENT = ("", "NA", "N/A", "n/a", "nan", "NaN", "null", "NULL", "?")  # missing values, as is what reads as NaN
BLOCK = 2**20  # bytes of text that Arrow parses at a time
ROWS = 2**16  # rows of a Parquet file or array that are read together, fewer if they are wide
_HEAD, _LONGEST = 2**16, 2**28  # bytes by which delimiter and header are found, and of a line
_DELIMITERS, _ALIKE = ("\t", ";", "|", ","), 20  # and the lines that must agree on one
_COMMA = re.compile(r"[+-]?\d+(,\d+)?([eE][+-]?\d+)?")
_THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2},\d{3}")
_QUOTE = "look for a quote that is not closed"


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


def as_matrix(arrays: Sequence[Any]) -> Array:
    """Numeric columns as float64 (N, k), NaN for nulls of Arrow, whose ``to_numpy`` would import pandas."""
    if not arrays or isinstance(arrays[0], np.ndarray):
        return np.stack([array.astype(np.float64) for array in arrays], 1) if arrays else np.empty((0, 0))
    plain = [array.cast(pa.float64(), safe=False) for array in arrays]
    batch = pa.RecordBatch.from_arrays(plain, [str(k) for k in range(len(plain))])
    return batch.to_tensor(null_to_nan=True, row_major=False).to_numpy()  # type: ignore[no-any-return]


class TableBatch(NamedTuple):
    """Some rows of a table: how many, and their columns by position; of some also the text as it is written."""

    n_rows: int
    columns: dict[int, Cells]
    raw: dict[int, list[str]]

    def without_missing(self) -> TableBatch:
        """The rows that have a value in each column."""
        gone = np.logical_or.reduce([missing_in(cells) for cells in self.columns.values()])
        if not gone.any():
            return self
        columns = {
            j: cells._replace(codes=cells.codes[~gone]) if isinstance(cells, Words) else cells[~gone]
            for j, cells in self.columns.items()
        }
        return TableBatch(int((~gone).sum()), columns, {})

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
        number = 0
        for arrays in self.arrays(positions, ()):
            for cells in zip(*map(_written, arrays), strict=True):
                number += 1
                yield f"{self.path}, row {number}", list(cells)

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
            numeric = [j for j in wanted if wanted[j] == "number" and _is_numeric(given[j])]
            columns: dict[int, Cells] = dict(zip(numeric, as_matrix([given[j] for j in numeric]).T, strict=True))
            columns |= {j: self._words(given[j], j, wanted[j]) for j in wanted if j not in columns}
            yield TableBatch(len(arrays[0]), columns, {j: _written(given[j]) for j in raw})

    def _words(self, array: Any, position: int, kind: str) -> Cells:
        """A column as words, or as numbers if all of them are, and numbers are wanted."""
        if isinstance(array, np.ndarray):
            values, places = np.unique(array, return_inverse=True)
            return self._coded(values.tolist(), places, kind)
        types, name = pa.types, self.names[position]
        if types.is_nested(array.type) or types.is_binary(array.type) or types.is_large_binary(array.type):
            what = f"holds {array.type}, neither numbers nor text; convert it, or ignore it ("
            raise ParameterError(f"{self.path}, column {name!r} {what}", Option("ignore", name), ")")
        if types.is_null(array.type) or types.is_temporal(array.type):  # dates are written as in a text file
            array = array.cast(pa.string())
        encoded = array if types.is_dictionary(array.type) else array.dictionary_encode()
        try:
            values = encoded.dictionary.to_pylist()
        except UnicodeDecodeError:
            why = f"column {name!r} holds bytes that are not UTF-8; write it again as text in UTF-8"
            raise ValueError(f"{self.path}, {why}") from None
        places = as_matrix([encoded.indices])[:, 0]
        return self._coded(values, np.where(np.isnan(places), -1, places).astype(np.int64), kind)

    def _coded(self, values: Sequence[Any], places: Array, kind: str) -> Cells:
        """Words or numbers for values, of which each row has one by its place, or −1."""
        texts = [self.plain(shortest(v) if isinstance(v, float) else "" if v is None else str(v)) for v in values]
        numbering: dict[str, int] = {}
        codes = [numbering.setdefault(word(text), len(numbering)) if text else -1 for text in texts]
        words = Words(np.array([*codes, -1])[places], tuple(numbering))
        if kind == "number" and all(map(is_number, words.levels)):
            return words.look_up([*map(float, words.levels)], math.nan)
        return words


def _written(array: Any) -> list[str]:
    cells = array.tolist() if isinstance(array, np.ndarray) else array.to_pylist()
    return ["" if cell is None else str(cell) for cell in cells]


def _is_numeric(array: Any) -> bool:
    if isinstance(array, np.ndarray):
        return array.dtype.kind in "biuf"
    kind = array.type.value_type if pa.types.is_dictionary(array.type) else array.type
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


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


def parquet_table(path: Path) -> Table:
    """A Parquet file as a table."""

    def parts(positions: Sequence[int] | None) -> Iterator[Any]:
        """Batches of some columns, or the names of all; whatever fails is one error."""
        import pyarrow.parquet

        try:
            with pyarrow.parquet.ParquetFile(path) as file:
                names = file.schema_arrow.names
                if positions is None:
                    yield names
                    return
                for batch in file.iter_batches(_rows(len(positions)), columns=[names[j] for j in positions]):
                    yield [batch.column(names[j]) for j in positions]
        except (OSError, pa.ArrowException, ValueError) as error:
            if isinstance(error, OSError) and error.strerror:
                raise unreadable(path, error) from None
            why = f"is not a complete Parquet file ({first_line(error)}); write it again"
            raise ValueError(f"{path} {why}") from None

    return Table(path, next(parts(None)), parts)


_PAIRS = (("X", "y"), ("data", "target"), ("x", "y"), ("arr_0", "arr_1"))


def array_table(path: Path, archive: bool, target: str | None = None, labelled: bool = True) -> Table:
    """The matrix of numbers in an ``.npy`` file, or the matrix and the labels of an ``.npz`` file, as a table.

    Python objects in it are not looked at, let alone run.
    """
    try:
        with path.open("rb") as file:
            loaded: Any = np.load(file if archive else path, None if archive else "r", allow_pickle=False)
            arrays = {name: loaded[name] for name in loaded.files} if archive else {"X": loaded}
    except Exception as error:  # numpy reads the header as Python text, so damage fails in many ways
        if isinstance(error, OSError) and error.strerror:
            raise unreadable(path, error) from None
        what = "archive of arrays" if archive else "array"
        raise ValueError(f"{path} is not a complete {what} of numbers ({first_line(error)}); write it again") from None
    X: Any
    X, name = next(((arrays[a], b) for a, b in _PAIRS if a in arrays), (None, "y"))
    y: Any = arrays.get(target or name)
    matrix = X is not None and X.ndim == 2 and X.dtype.kind in "biuf"
    if not matrix or (y is None and labelled and archive) or (y is not None and y.shape != X.shape[:1]):
        found = ", ".join(f"{name} {array.shape} {array.dtype}" for name, array in arrays.items())
        needed = f"a matrix of numbers X (N, d) is needed, and in an .npz file labels {target or name} (N,)"
        raise ValueError(f"{path} holds {found or 'nothing'}; {needed}; save sparse samples as svmlight")
    mapped = isinstance(X, np.memmap) and X.flags.c_contiguous
    (count, width), step = X.shape, _rows(X.shape[1])

    def part(first: int) -> Array:
        if not mapped:
            return np.asarray(X[first : first + step])
        try:  # is read: a process that looks at a map of a file that is cut off dies
            begin, size = X.offset + first * width * X.itemsize, min(step, count - first) * width
            return np.fromfile(path, X.dtype, size, offset=begin).reshape(-1, width)
        except (OSError, ValueError):
            raise changed(path) from None

    def read(positions: Sequence[int]) -> Iterator[Any]:
        for first in range(0, count, step):
            some = part(first)
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
    paths: Sequence[Path], kind: str, compressions: Sequence[str | None], options: ReadOptions,
    known: Sequence[str], target: str | None = None, labelled: bool = True,
) -> Table:  # fmt: skip
    """The table in one file or in several; a text with one of the ``known`` names in its first line has a header."""
    tables: list[Table] = []
    for path, compression in zip(paths, compressions, strict=True):
        if kind == "text":
            table = TextTable(path, compression, options, known)
            if tables and not table.named and len(table.names) == len(known):
                table.named, table.names = True, tuple(known)  # only the first of the files has a header
            elif not tables:  # the others are written as the first
                known, header = (table.names, options.header) if table.named else ((), False)
                options = replace(options, delimiter=table.delimiter, decimal=table.decimal, header=header)
            tables.append(table)
        elif kind == "parquet":
            tables.append(parquet_table(path))
        else:
            tables.append(array_table(path, kind == "npz", target if kind == "npz" else None, labelled))
    return tables[0] if len(tables) == 1 else JoinedTable(tables)


# --- delimited text -----------------------------------------------------------------------------------------------


_KEPT: deque[Any] = deque(maxlen=8)
"""What Arrow reads with. If one of its threads dropped a Python object last, while Python exits, it would abort."""


class _Counted:
    """A file for Arrow that counts the quotation marks that are read.

    Arrow reads ahead in a thread, which must have seen the end before Python exits, or it would abort the process.
    """

    closed = False

    def __init__(self, file: Any) -> None:
        self._file, self.quotes, self._over, self._seen = file, 0, False, threading.Event()

    def __enter__(self) -> _Counted:
        atexit.register(self.__exit__)
        return self

    def __exit__(self, error: object = True, *_: object) -> None:
        if error is not None:  # reading was broken off
            self._over = True
            self._seen.wait(0.5)  # not longer: the thread may have stopped before the end
            time.sleep(0.02)  # in which it returns from ``read``
        atexit.unregister(self.__exit__)

    def read(self, size: int = -1) -> bytes:
        data: bytes = b"" if self._over else self._file.read(size)
        self.quotes += data.count(b'"')
        if not data:
            self._seen.set()
        return data


class TextTable(Table):
    """A delimited text file, with a header if one of the ``known`` names is in its first line."""

    def __init__(self, path: Path, compression: str | None, options: ReadOptions, known: Sequence[str]) -> None:
        self.path, self._compression, self.na = path, compression, tuple(options.na)
        self._strings: set[int] = set()  # columns that Arrow cannot read as numbers
        self._by_python = False
        head = self._head(options.encoding)
        self.delimiter: str = options.delimiter or _delimiter(head)
        first = [(end, cells) for end, cells in _records(head, self.delimiter) if any(cells)]
        if not first:
            raise ValueError(f"{path} is empty")
        cells, width = tuple(first[0][1]), len(first[0][1])
        headed = _is_header(cells, known) if options.header is None else options.header
        self.named, self.names = headed, cells if headed else tuple(str(j + 1) for j in range(width))
        self._skip = first[0][0] if headed else 0  # lines
        body = [cells for _, cells in first[headed:] if len(cells) == width]
        columns = [[row[j] for row in body if not is_absent(row[j], self.na)] for j in range(width)]
        self.decimal = options.decimal or _decimal(columns)
        if self.decimal == "," and not options.decimal:
            self.notes += ("numbers have a decimal comma",)
        numbers = [sum(is_number(cell.replace(self.decimal, ".")) for cell in column) for column in columns]
        self.words = frozenset(j for j, column in enumerate(columns) if 2 * numbers[j] < len(column))
        padded = (any(cell[0] == "0" and cell[1:].isdigit() for cell in column) for column in columns)
        self.zero_padded = frozenset(j for j, found in enumerate(padded) if found)

    def _head(self, encoding: str | None) -> str:
        """The first lines, two at least, in the encoding that is given or recognised."""
        with open_bytes(self.path, self._compression) as file:
            head = file.read(_HEAD) + file.readline(_LONGEST) + file.readline(_LONGEST)
        self._encoding = encoding or "utf-8"
        if encoding is None and head[:2] in (b"\xff\xfe", b"\xfe\xff"):
            self._encoding, self.notes = "utf-16", ("the file is in UTF-16",)
        if codecs.lookup(self._encoding).name == "utf-8":
            self._encoding = "utf-8-sig"  # with or without a mark at the beginning
        try:
            return codecs.getincrementaldecoder(self._encoding)().decode(head)
        except UnicodeError:
            raise self._wrong_encoding() from None

    def arrays(self, positions: Sequence[int], numbers: Collection[int]) -> Iterator[Sequence[Any]]:
        """By Arrow as far as it can; from where it fails as strings, by Python's reader if need be."""
        done = attempts = 0  # rows that were handed on, and times that reading began again
        while True:
            seen = 0
            try:
                parsed = set(numbers) - self._strings
                for batch in self._by_csv(positions) if self._by_python else self._by_arrow(positions, parsed):
                    seen += batch.num_rows
                    if seen > done:
                        yield batch.slice(batch.num_rows - min(batch.num_rows, seen - done)).columns
                        done = seen
                return
            except pa.ArrowInvalid as error:
                attempts += 1
                column = re.search(r"column #(\d+):.*conversion error to double", str(error))
                if column is not None:
                    self._strings |= {int(column[1])} if attempts < 4 else set(numbers)
                else:
                    deque(self._lines(), maxlen=0)  # which raises an error that names the line
                    self._by_python = True  # it can be read after all

    def _by_arrow(self, positions: Sequence[int], numbers: Collection[int]) -> Iterator[Any]:
        import pyarrow.compute as pc
        import pyarrow.csv as arrow

        types = {str(j): pa.float64() if j in numbers else pa.string() for j in positions}
        names, encoding = [str(j) for j in range(len(self.names))], self._encoding.removesuffix("-sig")

        def odd(row: Any) -> str:
            return "error" if row.text.replace(self.delimiter, "").strip() else "skip"

        read = arrow.ReadOptions(column_names=names, skip_rows=self._skip, encoding=encoding)
        read.block_size = max(BLOCK, 64 * len(names))
        parse = arrow.ParseOptions(delimiter=self.delimiter, newlines_in_values=True, invalid_row_handler=odd)
        convert = arrow.ConvertOptions(column_types=types, include_columns=list(types), decimal_point=self.decimal)
        convert.null_values, convert.strings_can_be_null = [*ABSENT, *self.na], True
        with open_bytes(self.path, self._compression) as file, _Counted(file) as source:
            try:
                _KEPT.append((pa.PythonFile(source, mode="r"), parse))
                reader = arrow.open_csv(_KEPT[-1][0], read, parse, convert)
            except pa.ArrowInvalid as error:
                if "Empty CSV file" in str(error):
                    return
                raise
            for batch in reader:
                for j in set(positions) - set(numbers) if source.quotes else ():
                    if pc.any(pc.starts_with(pc.utf8_ltrim_whitespace(batch.column(str(j))), '"')).as_py():
                        raise pa.ArrowInvalid("a blank before a quote, which Arrow takes for a part of the cell")
                some = all(column.null_count for column in batch.columns)
                if some and pc.any(reduce(pc.and_, map(pc.is_null, batch.columns))).as_py():
                    raise pa.ArrowInvalid("a line in which maybe nothing is written, which is no row")
                yield batch
            if source.quotes % 2:  # maybe the file ends within quotes, which no reader minds
                deque(self._lines(strict=True), maxlen=0)

    def _by_csv(self, positions: Sequence[int]) -> Iterator[Any]:
        """The rows as Python's reader finds them."""
        rows = (cells for _, cells in self.rows(positions))
        while some := list(islice(rows, 4096)):
            columns = zip(positions, zip(*some, strict=True), strict=True)
            yield pa.record_batch({str(j): pa.array(cells, pa.string()) for j, cells in columns})

    def rows(self, positions: Sequence[int]) -> Iterator[tuple[str, list[str]]]:
        """The line of each row, and its cells as they are written."""
        for line, cells in self._lines():
            yield f"{self.path}, line {line}", [cells[j] for j in positions]

    def _lines(self, strict: bool = False) -> Iterator[tuple[int, list[str]]]:
        """Line and cells of each record in which something is written; one of another width is an error."""
        end, width = self._skip, len(self.names)
        try:
            with (
                open_bytes(self.path, self._compression) as file,
                io.TextIOWrapper(file, self._encoding, newline="") as text,
            ):
                for last, cells in _records(islice(text, self._skip, None), self.delimiter, strict):
                    line, end = end + 1, self._skip + last
                    if not any(cells):
                        continue
                    if len(cells) != width and not strict:
                        found = f"{len(cells)} column{'s' * (len(cells) != 1)} where the first line has {width}"
                        quote = f"; {_QUOTE}" if any("\n" in cell for cell in cells) else ""
                        raise ValueError(f"{self.path}, line {line}: {found}{quote}")
                    yield line, cells
        except UnicodeError:
            raise self._wrong_encoding() from None
        except csv.Error as error:
            if not strict or "unexpected end" in str(error):
                what = "a quote is opened and not closed" if strict else error
                raise ValueError(f"{self.path} is not a CSV file, line {end + 1}: {what}; {_QUOTE}") from None

    def _wrong_encoding(self) -> ValueError:
        """The error for the first line that is not in the encoding."""
        said, why = self._encoding.removesuffix("-sig").upper(), ""
        with open_bytes(self.path, self._compression) as file:
            for number, line in enumerate(file, 1):
                wrong = re.search("[\udc80-\udcff]", line.decode(self._encoding, "surrogateescape"))
                if wrong is not None:
                    why = f": line {number} holds the byte 0x{ord(wrong[0]) - 0xDC00:02x}"
                    break
        remedy = "; if it comes from Windows or an old Excel, read it with "
        return ParameterError(f"{self.path} is not a CSV file in {said}{why}{remedy}", Option("encoding", "cp1252"))


def _records(text: Any, delimiter: str, strict: bool = False) -> Iterator[tuple[int, list[str]]]:
    """The cells of each record of some text or lines, and the number of the line in which it ends."""
    lines = io.StringIO(text, newline="") if isinstance(text, str) else text
    reader = csv.reader(lines, delimiter=delimiter, skipinitialspace=True, strict=strict)
    for cells in reader:
        yield reader.line_num, [cell.strip() for cell in cells]


def _delimiter(head: str) -> str:
    """What splits the first lines into equally many cells, most of them numbers; else what the first has most of."""

    def merit(delimiter: str) -> tuple[bool, float, int]:
        rows = [cells for _, cells in islice(_records(head, delimiter), 2 * _ALIKE) if any(cells)][:_ALIKE]
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
