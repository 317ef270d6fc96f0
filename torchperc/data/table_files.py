"""Tables of any file: column names, and rows in batches that Arrow reads.

Arrow is fast and does not say in which line it failed. So a place is found by reading the file again, with Python's own
reader, when an error is raised.
"""

from __future__ import annotations

import codecs
import csv
import importlib
import io
import math
import re
from bisect import bisect
from collections import deque
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from torchperc._checks import Option, ParameterError, first_line
from torchperc.data.file_formats import Format, ReadOptions, Source, changed, common_name, unreadable


class _Arrow:
    """pyarrow, imported on first use; a promise of lazy_loader would be kept by whoever looks through all modules."""

    def __getattr__(self, name: str) -> Any:
        return getattr(importlib.import_module("pyarrow"), name)


pa: Any = _Arrow()
Array: TypeAlias = np.ndarray[Any, Any]

ABSENT = ("", "NA", "N/A", "n/a", "nan", "NaN", "null", "NULL", "?")  # missing values, as is what reads as NaN
BLOCK = 2**20  # bytes of text that Arrow parses at a time
ROWS = 2**16  # rows of a Parquet file or array that are read together, fewer if they are wide
_CELLS = 2**20  # numbers that are read together
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

    def texts(self) -> list[str]:
        """The word of each row, empty where it is missing."""
        return np.array([*self.levels, ""], dtype=object)[self.codes].tolist()  # type: ignore[no-any-return]


Cells: TypeAlias = "Array | Words"  # numbers, NaN where a value is missing; or words


def missing_in(cells: Cells) -> Array:
    """Which values are missing."""
    return cells.codes < 0 if isinstance(cells, Words) else np.isnan(cells)


def as_matrix(arrays: Sequence[Any]) -> Array:
    """Numeric columns of Arrow as float64 (N, k), NaN for nulls; its ``to_numpy`` would import pandas."""
    if not arrays:
        return np.empty((0, 0))
    plain = [array.cast(pa.float64(), safe=False) for array in arrays]
    batch = pa.RecordBatch.from_arrays(plain, [str(k) for k in range(len(plain))])
    return batch.to_tensor(null_to_nan=True, row_major=False).to_numpy()  # type: ignore[no-any-return]


def as_words(array: Any, na: Sequence[str] = (), decimal: str = ".") -> Words:
    """A column of Arrow as words; truth values and dates are written as they are in a text file.

    Example:
        >>> import pyarrow as pa
        >>> as_words(pa.array(["a", "", " 1.0"]))
        Words(codes=array([ 0, -1,  1]), levels=('a', '1'))
    """
    if pa.types.is_null(array.type) or pa.types.is_temporal(array.type):
        array = array.cast(pa.string())
    encoded = array if pa.types.is_dictionary(array.type) else array.dictionary_encode()
    places = as_matrix([encoded.indices])[:, 0]
    return _coded(encoded.dictionary.to_pylist(), np.where(np.isnan(places), -1, places).astype(np.int64), na, decimal)


def array_words(array: Array) -> Words:
    """A column of numpy as words."""
    values, places = np.unique(array, return_inverse=True)
    return _coded(values.tolist(), places)


def _coded(values: Sequence[Any], places: Array, na: Sequence[str] = (), decimal: str = ".") -> Words:
    """Words for values, of which each row has one by its place, or −1."""
    texts = [shortest(v) if isinstance(v, float) else "" if v is None else str(v).strip() for v in values]
    if decimal == ",":
        texts = [text.replace(",", ".") if _COMMA.fullmatch(text) else text for text in texts]
    numbering: dict[str, int] = {}
    known = [-1 if is_absent(text, na) else numbering.setdefault(word(text), len(numbering)) for text in texts]
    return Words(np.array([*known, -1])[places], tuple(numbering))


class TableBatch(NamedTuple):
    """Some rows of a table: their numbers in it, from 0, and their columns by position."""

    rows: Array
    columns: dict[int, Cells]
    raw: dict[int, list[str]]

    def take(self, index: Array) -> TableBatch:
        """Some of the rows."""
        columns = {
            j: c._replace(codes=c.codes[index]) if isinstance(c, Words) else c[index] for j, c in self.columns.items()
        }
        raw = {j: [texts[i] for i in index.tolist()] for j, texts in self.raw.items()}
        return TableBatch(self.rows[index], columns, raw)

    @property
    def nbytes(self) -> int:
        """Memory that the columns take, roughly."""
        words = [cells for cells in self.columns.values() if isinstance(cells, Words)]
        return 8 * len(self.rows) * len(self.columns) + sum(len(level) for cells in words for level in cells.levels)


# --- tables -------------------------------------------------------------------------------------------------------


class FileTable:
    """A table: its file, whether its columns have names, and these, or positions from 1 instead."""

    path: Path
    named = True
    names: tuple[str, ...]
    decimal = "."
    na: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()  # what was recognised
    words: frozenset[int] = frozenset()  # columns that look like words, by their first rows
    zero_padded: frozenset[int] = frozenset()  # columns with numbers such as 01067

    def batches(self, wanted: Mapping[int, str], raw: Sequence[int] = ()) -> Iterator[TableBatch]:
        """The rows, some at a time.

        Args:
            wanted: positions of columns, each as "number" (words after all where there are any) or as "words".
            raw: positions of columns that are wanted as strings, as they are written.
        """
        positions = [*wanted, *(j for j in raw if j not in wanted)]
        first = 0
        for arrays in self._read(positions, {j for j in wanted if wanted[j] == "number" and j not in raw}):
            given = dict(zip(positions, arrays, strict=True))
            plain = [j for j in wanted if wanted[j] == "number" and _is_numeric(given[j].type)]
            columns: dict[int, Cells] = dict(zip(plain, as_matrix([given[j] for j in plain]).T, strict=True))
            columns |= {j: self._words(given[j], j, wanted[j]) for j in wanted if j not in columns}
            texts = {j: ["" if cell is None else str(cell) for cell in given[j].to_pylist()] for j in raw}
            yield TableBatch(np.arange(first, first + len(arrays[0])), columns, texts)
            first += len(arrays[0])

    def _read(self, positions: Sequence[int], numbers: Collection[int]) -> Iterator[Sequence[Any]]:
        """Columns of Arrow, for some rows at a time; of text, some are parsed as numbers."""
        raise NotImplementedError

    def _words(self, array: Any, position: int, kind: str) -> Cells:
        """A column as words, or as numbers if all of them are, and numbers are wanted."""
        name = self.names[position]
        if pa.types.is_nested(array.type) or pa.types.is_binary(array.type) or pa.types.is_large_binary(array.type):
            what = f"holds {array.type}, neither numbers nor text; convert it, or ignore it ("
            raise ParameterError(f"{self.path}, column {name!r} {what}", Option("ignore", name), ")")
        try:
            words = as_words(array, self.na, self.decimal)
        except UnicodeDecodeError:
            why = f"column {name!r} holds bytes that are not UTF-8; write it again as text in UTF-8"
            raise ValueError(f"{self.path}, {why}") from None
        if kind == "number" and all(map(is_number, words.levels)):
            return np.array([*map(float, words.levels), math.nan])[words.codes]
        return words

    def spot(self, row: int, position: int) -> tuple[str, str]:
        """The file and the line or row of a cell, in words, and what is written there."""
        for batch in self.batches({}, [position]):
            if row in batch.rows:
                cell = batch.raw[position][row - batch.rows[0]]
                return f"{self.path}, row {row + 1}", "" if cell == "nan" else cell
        raise changed(self.path)


def _is_numeric(kind: Any) -> bool:
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


class ArrowTable(FileTable):
    """Columns in memory, of a data frame or a list of dicts."""

    def __init__(self, title: str, names: Sequence[str], values: Callable[[int], Any]) -> None:
        self.path, self.names, self._values = Path(title), tuple(names), values

    def _read(self, positions: Sequence[int], numbers: Collection[int]) -> Iterator[Sequence[Any]]:
        try:
            yield [pa.array(self._values(j), from_pandas=True) for j in positions]
        except pa.ArrowException as error:
            raise ValueError(f"{self.path} has a column of mixed types ({first_line(error)}); convert it") from None


def frame_table(frame: Any, title: str = "X") -> ArrowTable:
    """A pandas data frame as a table."""
    return ArrowTable(title, [str(name) for name in frame.columns], lambda j: frame.iloc[:, j])


def rows_table(rows: Sequence[Mapping[str, Any]], names: Sequence[str]) -> ArrowTable:
    """A dict per row as a table; each must have the columns that are named."""
    for i, row in enumerate(rows):
        if not isinstance(row, Mapping):
            raise TypeError(f"X[{i}] is {type(row).__name__}, but X[0] is a dict; give a dict per row")
        lost = [name for name in names if name not in row]
        if lost:
            has = listed(list(map(str, row)))
            raise ValueError(f"X[{i}] must have each column of training; it lacks {lost[0]!r} and has {has}")
    return ArrowTable("X", names, lambda j: [row[names[j]] for row in rows])


class ParquetTable(FileTable):
    """A Parquet file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.names = tuple(next(self._parts([])).names)

    def _parts(self, columns: list[str]) -> Iterator[Any]:
        """The schema, then batches of some columns; whatever fails is one error."""
        import pyarrow.parquet

        try:
            with pyarrow.parquet.ParquetFile(self.path) as file:
                yield file.schema_arrow
                yield from file.iter_batches(_rows(len(columns)), columns=columns)
        except (OSError, pa.ArrowException, ValueError) as error:
            if isinstance(error, OSError) and error.strerror:
                raise unreadable(self.path, error) from None
            why = f"is not a complete Parquet file ({first_line(error)}); write it again"
            raise ValueError(f"{self.path} {why}") from None

    def _read(self, positions: Sequence[int], numbers: Collection[int]) -> Iterator[Sequence[Any]]:
        names = [self.names[j] for j in positions]
        for batch in islice(self._parts(names), 1, None):
            yield [batch.column(name) for name in names]


class ArrayTable(FileTable):
    """A matrix of numbers in an ``.npy`` file, or the matrix and labels of an ``.npz`` file."""

    named = False

    def __init__(self, path: Path, X: Array | None = None, y: Array | None = None, target: str = "y") -> None:
        self.path, self._array, self._y = path, _load_matrix(path) if X is None else X, y
        self.names = (*(str(j + 1) for j in range(self._array.shape[1])), *([] if y is None else [target]))

    def batches(self, wanted: Mapping[int, str], raw: Sequence[int] = ()) -> Iterator[TableBatch]:
        """The rows, some at a time, without Arrow."""
        array, width = self._array, self._array.shape[1]
        for first in range(0, len(array), _rows(width)):
            some = slice(first, min(first + _rows(width), len(array)))
            part = array[some]
            if isinstance(array, np.memmap):  # is read: a process that looks at a map of a file that is cut off dies
                try:
                    begin = array.offset + first * width * array.itemsize
                    part = np.fromfile(self.path, array.dtype, part.size, offset=begin).reshape(part.shape)
                except (OSError, ValueError):
                    raise changed(self.path) from None
            given = {j: part[:, j] if self._y is None or j < width else self._y[some] for j in {*wanted, *raw}}
            numbers = {j for j in wanted if wanted[j] == "number" and given[j].dtype.kind in "biuf"}
            columns = {j: given[j].astype(np.float64) if j in numbers else array_words(given[j]) for j in wanted}
            texts = {j: [str(value) for value in given[j].tolist()] for j in raw}
            yield TableBatch(np.arange(some.start, some.stop), columns, texts)


def _load(path: Path, what: str, mapped: bool) -> Any:
    """An array, mapped, or the arrays of an archive. Python objects in it are not looked at, let alone run."""
    try:
        with path.open("rb") as file:
            if mapped:
                return np.load(path, "r", allow_pickle=False)
            with np.load(file, allow_pickle=False) as archive:
                return {name: archive[name] for name in archive.files}
    except Exception as error:  # numpy reads the header as Python text, so damage fails in many ways
        if isinstance(error, OSError) and error.strerror:
            raise unreadable(path, error) from None
        raise ValueError(f"{path} is not a complete {what} of numbers ({first_line(error)}); write it again") from None


def _load_matrix(path: Path) -> Array:
    """The matrix of numbers in an ``.npy`` file."""
    array: Array = _load(path, "array", mapped=True)
    if array.ndim != 2 or array.dtype.kind not in "biuf":
        needed = "a matrix of numbers is needed, with the labels in one of its columns, or X and y in an .npz file"
        raise ValueError(f"{path} holds an array of {array.dtype} of shape {array.shape}; {needed}")
    return array if array.flags.c_contiguous else np.array(array)


_PAIRS = (("X", "y"), ("data", "target"), ("x", "y"), ("arr_0", "arr_1"))


def open_archive(path: Path, target: str | None = None, labelled: bool = True) -> ArrayTable:
    """The matrix and the labels of an ``.npz`` file as a table."""
    arrays = _load(path, "archive of arrays", mapped=False)
    X, name = next(((arrays[a], b) for a, b in _PAIRS if a in arrays), (None, "y"))
    if X is None or X.ndim != 2 or X.dtype.kind not in "biuf":
        found = ", ".join(f"{name} {array.shape} {array.dtype}" for name, array in arrays.items())
        needed = "a matrix of numbers X is needed, and labels y; save sparse samples as svmlight"
        raise ValueError(f"{path} holds {found or 'nothing'}; {needed}")
    name = target or name
    y = arrays.get(name)
    if y is None and labelled:
        held, remedy = ", ".join(arrays), "add a label per row: np.savez(path, X=X, y=y)"
        raise ValueError(f"{path} has no labels: it holds {held} and no array {name!r}; {remedy}")
    if y is not None and (y.ndim != 1 or len(y) != X.shape[0]):
        raise ValueError(f"{path}: {name} has shape {y.shape} for {X.shape[0]} samples; give one label per sample")
    return ArrayTable(path, X, y, name)


def _rows(width: int) -> int:
    return max(1, min(ROWS, _CELLS // max(1, width)))


class JoinedTable(FileTable):
    """Several files with the same columns as one table, the rows of one after those of the other."""

    def __init__(self, tables: Sequence[FileTable]) -> None:
        first = tables[0]
        self.path, self.tables, self._starts = common_name([table.path for table in tables]), tables, [0]
        self.named, self.names, self.notes, self.decimal = first.named, first.names, first.notes, first.decimal
        self.words, self.zero_padded = first.words, first.zero_padded
        for table in tables:
            if table.names != first.names:
                theirs, ours = f"has columns {listed(table.names)}", f"but {first.path} has {listed(first.names)}"
                raise ValueError(
                    f"{table.path} {theirs}, {ours}; several files need the same columns in the same order"
                )

    def batches(self, wanted: Mapping[int, str], raw: Sequence[int] = ()) -> Iterator[TableBatch]:
        """The rows of each table."""
        self._starts, end = [], 0
        for table in self.tables:
            self._starts.append(end)
            for batch in table.batches(wanted, raw):
                rows = batch.rows + self._starts[-1]
                end = rows.max(initial=end - 1) + 1
                yield batch._replace(rows=rows)

    def spot(self, row: int, position: int) -> tuple[str, str]:
        """The cell of one of the tables."""
        number = bisect(self._starts, row) - 1
        return self.tables[number].spot(row - self._starts[number], position)


def open_table(
    paths: Sequence[Path], formats: Sequence[Format], options: ReadOptions, known: Sequence[str], *archive: Any
) -> FileTable:
    """The table in one file or in several.

    A text with one of the ``known`` names in its first line has a header; ``archive`` are arguments of open_archive.
    """
    tables: list[FileTable] = []
    for path, (kind, compression) in zip(paths, formats, strict=True):
        if kind == "text":
            tables.append(TextTable(path, compression, options, known, tables[0] if tables else None))
        elif kind == "npz":
            tables.append(open_archive(path, *archive))
        else:
            tables.append(ParquetTable(path) if kind == "parquet" else ArrayTable(path))
    return tables[0] if len(tables) == 1 else JoinedTable(tables)


# --- delimited text -----------------------------------------------------------------------------------------------


class TextTable(FileTable):
    """A delimited text file; ``like`` is the first of several, whose delimiter, names and decimal sign it has."""

    def __init__(
        self, path: Path, compression: str | None, options: ReadOptions, known: Sequence[str] = (), like: Any = None
    ) -> None:
        self.path, self._compression, self.na = path, compression, tuple(options.na)
        self._strings: set[int] = set()  # columns that Arrow cannot read as numbers
        self._by_python = False
        head = self._head(options.encoding)
        self.delimiter: str = options.delimiter or (like.delimiter if like else _delimiter(head))
        first = [(end, cells) for end, cells in _records(head, self.delimiter) if any(cells)]
        if not first:
            raise ValueError(f"{path} is empty")
        cells, width = tuple(first[0][1]), len(first[0][1])
        headed = options.header if like is None or like.named else False
        if headed is None:
            headed = (like is not None and cells == like.names) or _is_header(cells, known)
        self.named, self.names = headed, cells if headed else tuple(str(j + 1) for j in range(width))
        self._skip = first[0][0] if headed else 0  # lines
        if like is not None and like.named and not headed and width == len(like.names):
            self.named, self.names = True, like.names  # only the first of the files has a header
        body = [cells for _, cells in first[headed:] if len(cells) == width]
        columns = [[row[j] for row in body if not is_absent(row[j], self.na)] for j in range(width)]
        self.decimal = options.decimal or (like.decimal if like else _decimal(columns))
        if self.decimal == "," and not options.decimal:
            self.notes += ("numbers have a decimal comma",)
        numbers = [sum(is_number(cell.replace(self.decimal, ".")) for cell in column) for column in columns]
        self.words = frozenset(j for j, column in enumerate(columns) if 2 * numbers[j] < len(column))
        padded = [any(cell[0] == "0" and cell[1:].isdigit() for cell in column) for column in columns]
        self.zero_padded = frozenset(j for j in range(width) if padded[j])

    def _source(self) -> Source:
        return Source(self.path, self._compression)

    def _head(self, encoding: str | None) -> str:
        """The first lines, two at least, in the encoding that is given or recognised."""
        with io.BufferedReader(self._source()) as file:
            head = file.read(_HEAD)
            head += file.readline(_LONGEST) + file.readline(_LONGEST)
        self._encoding = encoding or "utf-8"
        if encoding is None and head[:2] in (b"\xff\xfe", b"\xfe\xff"):
            self._encoding, self.notes = "utf-16", ("the file is in UTF-16",)
        if codecs.lookup(self._encoding).name == "utf-8":
            self._encoding = "utf-8-sig"  # with or without a mark at the beginning
        try:
            return codecs.getincrementaldecoder(self._encoding)().decode(head)
        except UnicodeError:
            raise self._wrong_encoding() from None

    def batches(self, wanted: Mapping[int, str], raw: Sequence[int] = ()) -> Iterator[TableBatch]:
        """The rows, without those in which nothing is written."""
        for batch in super().batches(wanted, raw):
            empty = np.ones(len(batch.rows), bool)
            for cells in batch.columns.values():
                empty &= missing_in(cells)
                if not empty.any():
                    break
            else:
                with closing(self._rows()) as every:
                    some = enumerate(islice(every, batch.rows.max(initial=-1) + 1))
                    blank = [row for row, (_, cells) in some if not any(cells)]
                batch = batch.take(np.flatnonzero(~np.isin(batch.rows, blank)))
            yield batch

    def _read(self, positions: Sequence[int], numbers: Collection[int]) -> Iterator[Sequence[Any]]:
        done = attempts = 0  # rows that were handed on, and times that reading began again
        while True:
            seen, plain = 0, set(numbers) - self._strings
            try:
                for batch in self._by_csv(positions) if self._by_python else self._by_arrow(positions, plain):
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
                    deque(self._rows(), maxlen=0)  # which raises an error that names the line
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
        with self._source() as source:
            try:
                reader = arrow.open_csv(pa.PythonFile(source, mode="r"), read, parse, convert)
            except pa.ArrowInvalid as error:
                if "Empty CSV file" in str(error):
                    return
                raise
            for batch in reader:
                for j in set(positions) - set(numbers) if source.quotes else ():
                    if pc.any(pc.starts_with(pc.utf8_ltrim_whitespace(batch.column(str(j))), '"')).as_py():
                        raise pa.ArrowInvalid("a blank before a quote, which Arrow takes for a part of the cell")
                yield batch
            if source.quotes % 2:  # maybe the file ends within quotes, which no reader minds
                deque(self._lines(strict=True), maxlen=0)

    def _by_csv(self, positions: Sequence[int]) -> Iterator[Any]:
        """The rows as Python's reader finds them."""
        with closing(self._rows()) as rows:
            while some := [cells for _, cells in islice(rows, 4096)]:
                yield pa.record_batch({str(j): pa.array([row[j] for row in some], pa.string()) for j in positions})

    def _lines(self, skip: int = 0, strict: bool = False) -> Iterator[tuple[int, list[str]]]:
        """The line in which each record begins, and its cells, as Python's reader finds them."""
        end = skip
        try:
            with io.TextIOWrapper(io.BufferedReader(self._source()), self._encoding, newline="") as text:
                for line, cells in _records(islice(text, skip, None), self.delimiter, strict):
                    yield end + 1, cells
                    end = skip + line
        except UnicodeError:
            raise self._wrong_encoding() from None
        except csv.Error as error:
            if not strict or "unexpected end" in str(error):
                what = "a quote is opened and not closed" if strict else error
                raise ValueError(f"{self.path} is not a CSV file, line {end + 1}: {what}; {_QUOTE}") from None

    def _rows(self) -> Generator[tuple[int, list[str]]]:
        """The line and the cells of each row; one of another width is an error."""
        width = len(self.names)
        for line, cells in self._lines(self._skip):
            if len(cells) == width:
                yield line, [cell.strip() for cell in cells]
            elif any(cell.strip() for cell in cells):
                quote = f"; {_QUOTE}" if any("\n" in cell for cell in cells) else ""
                found = f"{len(cells)} column{'s' * (len(cells) != 1)}"
                raise ValueError(f"{self.path}, line {line}: {found} where the first line has {width}{quote}")

    def _wrong_encoding(self) -> ValueError:
        """The error for the first line that is not in the encoding."""
        told, why = self._encoding.removesuffix("-sig").upper(), ""
        with io.BufferedReader(self._source()) as file:
            for number, line in enumerate(file, 1):
                wrong = re.search("[\udc80-\udcff]", line.decode(self._encoding, "surrogateescape"))
                if wrong is not None:
                    why = f": line {number} holds the byte 0x{ord(wrong[0]) - 0xDC00:02x}"
                    break
        remedy = "; if it comes from Windows or an old Excel, read it with "
        return ParameterError(f"{self.path} is not a CSV file in {told}{why}{remedy}", Option("encoding", "cp1252"))

    def spot(self, row: int, position: int) -> tuple[str, str]:
        """The line of a cell, and what is written there."""
        with closing(self._rows()) as rows:
            line, cells = next(islice(rows, row, None))
        return f"{self.path}, line {line}", cells[position]


def _records(text: Any, delimiter: str, strict: bool = False) -> Iterator[tuple[int, list[str]]]:
    """The cells of each record of some text or lines, and the number of the line in which it ends."""
    lines = io.StringIO(text, newline="") if isinstance(text, str) else text
    reader = csv.reader(lines, delimiter=delimiter, skipinitialspace=True, strict=strict)
    for cells in reader:
        yield reader.line_num, [cell.strip() for cell in cells] if isinstance(text, str) else cells


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
