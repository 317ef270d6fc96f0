"""Tables of any file: column names, and rows in batches that Arrow reads.

Arrow is fast and does not say in which line it failed. So a place is found by reading the file again, with Python's own
reader, when an error is raised.
"""

from __future__ import annotations

import codecs
import csv
import io
import math
import re
from collections import deque
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from torchperc._checks import Option, ParameterError, first_line
from torchperc.data.file_formats import Format, ReadOptions, Source, changed, common_name, unreadable

Array: TypeAlias = np.ndarray[Any, Any]

ABSENT = ("", "NA", "N/A", "n/a", "nan", "NaN", "null", "NULL", "?")  # missing values, as is what reads as NaN
BLOCK = 2**20  # bytes of text that Arrow parses at a time
ROWS = 2**16  # rows of a Parquet file or array that are read together, fewer if they are wide
_CELLS = 2**20  # numbers that are read together
_HEAD, _LONGEST = 2**16, 2**28  # bytes by which delimiter and header are found; fewer if they hold no two lines
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


class Words(NamedTuple):
    """A column of codes, −1 where a value is missing, and the words they stand for."""

    codes: Array
    levels: tuple[str, ...]

    def counts(self) -> list[int]:
        """How often each word occurs."""
        return np.bincount(self.codes[self.codes >= 0], minlength=len(self.levels)).tolist()  # type: ignore[no-any-return]

    def texts(self) -> list[str]:
        """The word of each row, empty where it is missing."""
        return np.array([*self.levels, ""], dtype=object)[self.codes].tolist()  # type: ignore[no-any-return]


Cells: TypeAlias = "Array | Words"  # numbers, NaN where a value is missing; or words


def missing_in(cells: Cells) -> Array | None:
    """Which values are missing; ``None`` if none is."""
    if isinstance(cells, Words):
        return cells.codes < 0 if len(cells.codes) and cells.codes.min() < 0 else None
    absent = None if _finite(cells) else np.isnan(cells)
    return absent if absent is not None and absent.any() else None


def first_infinite(cells: Cells) -> int | None:
    """The first row with an infinite number."""
    infinite = not isinstance(cells, Words) and not _finite(cells) and np.isinf(cells)
    return int(np.argmax(infinite)) if np.any(infinite) else None


def _finite(values: Array) -> bool:
    with np.errstate(over="ignore", invalid="ignore"):
        return math.isfinite(values.sum())  # one pass; a number that is not finite never leaves a finite sum


def cells_of(array: Any, kind: str, na: Sequence[str] = (), decimal: str = ".") -> Cells:
    """A column of Arrow as ``"number"``, if all that is there are numbers, or as ``"words"``.

    Truth values and dates are words, as they are in a text file.

    Example:
        >>> import pyarrow as pa
        >>> cells_of(pa.array([" 1", "?", "+2.5"]), "number").tolist()
        [1.0, nan, 2.5]
        >>> cells_of(pa.array(["a", "", "a"]), "number")
        Words(codes=array([ 0, -1,  0]), levels=('a',))
    """
    import pyarrow as pa

    if pa.types.is_null(array.type) or pa.types.is_float16(array.type):
        array = array.cast(pa.float32())
    if pa.types.is_temporal(array.type):
        array = array.cast(pa.string())
    value = array.type.value_type if pa.types.is_dictionary(array.type) else array.type
    numeric = pa.types.is_integer(value) or pa.types.is_floating(value) or pa.types.is_decimal(value)
    if numeric and kind == "number":
        plain = array.dictionary_decode() if pa.types.is_dictionary(array.type) else array
        return _numbers(plain.cast(pa.float64(), safe=False), np.float64, math.nan)
    encoded = array if pa.types.is_dictionary(array.type) else array.dictionary_encode()
    given = encoded.dictionary.to_pylist()
    texts = [shortest(each) if isinstance(each, float) else "" if each is None else str(each).strip() for each in given]
    if decimal == ",":
        texts = [text.replace(",", ".") if _COMMA.fullmatch(text) else text for text in texts]
    numbering: dict[str, int] = {}
    known = [-1 if is_absent(text, na) else numbering.setdefault(word(text), len(numbering)) for text in texts]
    codes = np.array([*known, -1], np.int64)[_numbers(encoded.indices.cast(pa.int64()), np.int64, len(given))]
    if kind == "number" and all(map(is_number, numbering)):
        return np.array([*map(float, numbering), math.nan])[codes]
    return Words(codes, tuple(numbering))


def _numbers(array: Any, dtype: type, missing: float) -> Array:
    """Numbers of Arrow with nulls replaced; its ``to_numpy`` and ``fill_null`` would import pandas."""
    import pyarrow as pa

    if not len(array):
        return np.empty(0, dtype)
    values: Array = np.frombuffer(array.buffers()[1], dtype, len(array), array.offset * np.dtype(dtype).itemsize)
    if not array.null_count:
        return values
    return np.where(_numbers(array.is_valid().cast(pa.uint8()), np.uint8, 0), values, dtype(missing))


class Spot(NamedTuple):
    """A cell: the file and the line or row it is in, in words, and what is written there."""

    place: str
    cell: str


class TableBatch(NamedTuple):
    """Some rows of a table: their numbers in it, from 0, and their columns by position."""

    table: FileTable
    rows: Array
    columns: dict[int, Any]
    raw: dict[int, list[str]]

    def keep(self, mask: Array | None) -> TableBatch:
        """The rows that a mask selects, all without one."""
        if mask is None:
            return self
        index = np.flatnonzero(mask)
        columns = {
            j: Words(cells.codes[index], cells.levels) if isinstance(cells, Words) else cells[index]
            for j, cells in self.columns.items()
        }
        raw = {j: [texts[i] for i in index.tolist()] for j, texts in self.raw.items()}
        return TableBatch(self.table, self.rows[index], columns, raw)

    def spot(self, row: int, position: int) -> Spot:
        """Where in the file a cell is."""
        cells = self.columns[position]
        cell = (*cells.levels, "")[cells.codes[row]] if isinstance(cells, Words) else str(cells[row])
        return self.table.spot(int(self.rows[row]), position, cell)

    @property
    def nbytes(self) -> int:
        """Memory that the columns take, roughly."""
        return sum(
            c.codes.nbytes + sum(map(len, c.levels)) if isinstance(c, Words) else c.nbytes
            for c in self.columns.values()
        )


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
        numbers = {j for j in wanted if wanted[j] == "number" and j not in raw}
        first = 0
        for arrays in self._read(positions, numbers):
            known = dict(zip(positions, arrays, strict=True))
            columns = {j: self._cells(known[j], j, kind) for j, kind in wanted.items()}
            texts = {j: ["" if cell is None else str(cell) for cell in known[j].to_pylist()] for j in raw}
            count = len(arrays[0])
            yield TableBatch(self, np.arange(first, first + count), columns, texts)
            first += count

    def _read(self, positions: Sequence[int], numbers: Collection[int]) -> Iterator[Sequence[Any]]:
        """Columns of Arrow, for some rows at a time; of text, some are parsed as numbers."""
        raise NotImplementedError

    def _cells(self, array: Any, position: int, kind: str) -> Cells:
        try:
            return cells_of(array, kind, self.na, self.decimal)
        except UnicodeDecodeError:
            why = f"column {self.names[position]!r} holds bytes that are not UTF-8; write it again as text in UTF-8"
            raise ValueError(f"{self.path}, {why}") from None

    def spot(self, row: int, position: int, cell: str) -> Spot:
        """Where a row is, and what is written there."""
        return Spot(f"{self.path}, row {row + 1}", "" if cell == "nan" else cell)

    def blank(self, rows: Array) -> Array:
        """Which of some rows have nothing written in them at all, and so are no rows."""
        return np.zeros(len(rows), bool)


class ArrowTable(FileTable):
    """Columns in memory, of a data frame or a list of dicts."""

    def __init__(self, title: str, names: Sequence[str], values: Callable[[int], Any]) -> None:
        self.path, self.names, self._values = Path(title), tuple(names), values

    def _read(self, positions: Sequence[int], numbers: Collection[int]) -> Iterator[Sequence[Any]]:
        import pyarrow as pa

        try:
            yield [pa.array(self._values(j), from_pandas=True) for j in positions]
        except pa.ArrowException as error:
            raise ValueError(f"{self.path} has a column of mixed types ({first_line(error)}); convert it") from None


class ParquetTable(FileTable):
    """A Parquet file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with self._file() as file:
            self.names, self._types = tuple(file.schema_arrow.names), list(file.schema_arrow.types)

    def _file(self) -> Any:
        import pyarrow as pa
        import pyarrow.parquet

        try:
            return pyarrow.parquet.ParquetFile(self.path)
        except (OSError, pa.ArrowException, ValueError) as error:
            raise self._damaged(error) from None

    def _damaged(self, error: Exception) -> ValueError:
        if isinstance(error, OSError) and error.strerror:
            return unreadable(self.path, error)
        return ValueError(f"{self.path} is not a complete Parquet file ({first_line(error)}); write it again")

    def _read(self, positions: Sequence[int], numbers: Collection[int]) -> Iterator[Sequence[Any]]:
        import pyarrow as pa
        import pyarrow.types as types

        for j in positions:
            kind = self._types[j]
            if types.is_nested(kind) or types.is_binary(kind) or types.is_large_binary(kind):
                name, what = self.names[j], f"holds {kind}, neither numbers nor text; convert it, or ignore it ("
                raise ParameterError(f"{self.path}, column {name!r} {what}", Option("ignore", name), ")")
        with self._file() as file:
            batches = file.iter_batches(_rows(len(positions)), columns=[self.names[j] for j in positions])
            while True:
                try:
                    batch = next(batches, None)
                except (OSError, pa.ArrowException, ValueError) as error:
                    raise self._damaged(error) from None
                if batch is None:
                    return
                yield [batch.column(self.names[j]) for j in positions]


class ArrayTable(FileTable):
    """A matrix of numbers, of an ``.npy`` file or as given."""

    named = False

    def __init__(self, path: Path, array: Array | None = None) -> None:
        self.path, self._array = path, _load_matrix(path) if array is None else array
        self.names = tuple(str(j + 1) for j in range(self._array.shape[1]))

    def _read(self, positions: Sequence[int], numbers: Collection[int]) -> Iterator[Sequence[Any]]:
        import pyarrow as pa

        step = _rows(self._array.shape[1])
        for first in range(0, len(self._array), step):
            part = self._part(first, min(step, len(self._array) - first))
            yield [pa.array(part[:, j]) for j in positions]

    def _part(self, first: int, count: int) -> Array:
        """Some rows. A file is read, since a process that looks at a map of it dies when the file is cut off."""
        array, width = self._array, self._array.shape[1]
        if not isinstance(array, np.memmap):
            return array[first : first + count]
        try:
            begin = array.offset + first * width * array.itemsize
            return np.fromfile(self.path, array.dtype, count * width, offset=begin).reshape(count, width)
        except (OSError, ValueError):  # gone, or cut off
            raise changed(self.path) from None


def _load_matrix(path: Path) -> Array:
    """The matrix of numbers in an ``.npy`` file. Python objects in it are not looked at, let alone run."""
    try:
        array: Array = np.load(path, mmap_mode="r", allow_pickle=False)
    except OSError as error:
        raise unreadable(path, error) from None
    except Exception as error:  # numpy reads the header as Python text, so damage fails in many ways
        raise ValueError(f"{path} is not a complete array of numbers ({first_line(error)}); write it again") from None
    if array.ndim != 2 or array.dtype.kind not in "biuf":
        needed = "a matrix of numbers is needed, with the labels in one of its columns, or X and y in an .npz file"
        raise ValueError(f"{path} holds an array of {array.dtype} of shape {array.shape}; {needed}")
    return array if array.flags.c_contiguous else np.array(array)


def _rows(width: int) -> int:
    return max(1, min(ROWS, _CELLS // max(1, width)))


class JoinedTable(FileTable):
    """Several files with the same columns as one table, the rows of one after those of the other."""

    def __init__(self, tables: Sequence[FileTable]) -> None:
        first = tables[0]
        self.path, self.tables = common_name([table.path for table in tables]), tables
        self.named, self.names, self.notes, self.decimal = first.named, first.names, first.notes, first.decimal
        self.words, self.zero_padded = first.words, first.zero_padded
        for table in tables:
            if table.names != first.names:
                theirs = f"{table.path} has the columns {listed(table.names)}"
                ours = f"{first.path} has {listed(first.names)}"
                raise ValueError(f"{theirs}, but {ours}; several files need the same columns in the same order")

    def batches(self, wanted: Mapping[int, str], raw: Sequence[int] = ()) -> Iterator[TableBatch]:
        """The rows of each table."""
        for table in self.tables:
            yield from table.batches(wanted, raw)


def open_table(
    paths: Sequence[Path], formats: Sequence[Format], options: ReadOptions, known: Sequence[str]
) -> FileTable:
    """The table in one file or in several; a text with one of the ``known`` names in its first line has a header."""
    tables: list[FileTable] = []
    for path, (kind, compression) in zip(paths, formats, strict=True):
        if kind == "text":
            like = tables[0] if tables and isinstance(tables[0], TextTable) else None
            tables.append(TextTable(path, compression, options, known, like))
            continue
        for name in ("header", "delimiter", "decimal", "encoding"):
            if getattr(options, name) is not None:
                why = f" needs text files such as .csv, but {path} is none; leave it out"
                raise ParameterError(Option(name, getattr(options, name)), why)
        tables.append(ParquetTable(path) if kind == "parquet" else ArrayTable(path))
    return tables[0] if len(tables) == 1 else JoinedTable(tables)


def listed(words: Sequence[str], most: int = 20) -> str:
    """Some words for an error message, the first of them if there are many."""
    shown = ", ".join(map(repr, words[:most]))
    return f"{shown}, … ({len(words)} in all)" if len(words) > most else shown


# --- delimited text -----------------------------------------------------------------------------------------------


class TextTable(FileTable):
    """A delimited text file; ``like`` is the first of several, whose delimiter, names and decimal sign it has."""

    def __init__(
        self,
        path: Path,
        compression: str | None,
        options: ReadOptions,
        known: Sequence[str] = (),
        like: TextTable | None = None,
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
        columns = [[cell for cell in column if not is_absent(cell, self.na)] for column in zip(*body, strict=True)]
        columns = columns or [[] for _ in cells]
        self.decimal = options.decimal or (like.decimal if like else _decimal(columns))
        if self.decimal == "," and not options.decimal:
            self.notes += ("numbers have a decimal comma",)
        point = [[cell.replace(self.decimal, ".") for cell in column] for column in columns]
        self.words = frozenset(j for j, column in enumerate(point) if 2 * sum(map(is_number, column)) < len(column))
        padded = re.compile(r"0\d+")
        self.zero_padded = frozenset(j for j, column in enumerate(columns) if any(map(padded.fullmatch, column)))

    def _source(self) -> Source:
        return Source(self.path, self._compression)

    def _head(self, encoding: str | None) -> str:
        """The first lines, in the encoding that is given or recognised."""
        size = _HEAD
        while True:
            with io.BufferedReader(self._source()) as file:
                head, whole = file.read(size), not file.read(1)
            if whole or head.count(b"\n") > 1 or size >= _LONGEST:  # else not even a header and a row
                break
            size *= 4
        self._encoding = encoding or "utf-8"
        if encoding is None and head[:2] in (b"\xff\xfe", b"\xfe\xff"):
            self._encoding, self.notes = "utf-16", ("the file is in UTF-16",)
        if codecs.lookup(self._encoding).name == "utf-8":
            self._encoding = "utf-8-sig"  # with or without a mark at the beginning
        try:
            text = codecs.getincrementaldecoder(self._encoding)().decode(head, whole)
        except UnicodeError:
            raise self._wrong_encoding() from None
        return text if whole else text[: max(text.rfind("\n"), text.rfind("\r", 0, -1)) + 1] or text

    def _read(self, positions: Sequence[int], numbers: Collection[int]) -> Iterator[Sequence[Any]]:
        import pyarrow as pa

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
        import pyarrow as pa
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
        import pyarrow as pa

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

    def spot(self, row: int, position: int, cell: str) -> Spot:
        """The line of a row, and what is written there."""
        with closing(self._rows()) as rows:
            line, cells = next(islice(rows, row, None))
        return Spot(f"{self.path}, line {line}", cells[position])

    def blank(self, rows: Array) -> Array:
        """Which of some rows have nothing written in them."""
        with closing(self._rows()) as every:
            numbers = {number for number, (_, cells) in enumerate(islice(every, rows.max() + 1)) if not any(cells)}
        return np.isin(rows, list(numbers))


def _records(text: Any, delimiter: str, strict: bool = False) -> Iterator[tuple[int, list[str]]]:
    """The cells of each record of some text or lines, and the number of the line in which it ends.

    Example:
        >>> list(_records('a, "b\\nc"\\n1,2\\n', ","))
        [(2, ['a', 'b\\nc']), (3, ['1', '2'])]
    """
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
