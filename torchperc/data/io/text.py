"""Tables in text files: pieces of whole lines, parsed by Arrow, and by Python's reader wherever that has to be exact.

Arrow reads numbers at the speed of the disk but does not say where it failed. So the quick way goes first, and a piece
that it cannot read is read again, cell by cell, to read it after all or to name the line that is wrong.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from torchperc.data.encoding import ABSENT, is_absent, is_number
from torchperc.data.io.blocks import Array, Block, Cells, Spot, cells_of
from torchperc.data.io.opening import Form, ahead, line_number
from torchperc.data.ngrams import PROSE, word_count
from torchperc.samples.streams import Stream

PIECE = 2**24  # bytes of text that are read and parsed together
BATCH = 2**20  # bytes of a piece that one thread parses at a time
HEAD = 2**16  # bytes at the beginning of a file by which its delimiter and header are found
LONGEST = 2**28  # bytes without the end of a record, from which on a quote must have been forgotten
DELIMITERS = ("\t", ";", "|", ",")
_ALIKE = 20  # lines that must agree on a delimiter
_ROWS = 4096  # rows that Python's reader hands on together
_BOM = b"\xef\xbb\xbf"
_QUOTE = "look for a quote that is not closed"


class Record(NamedTuple):
    """The line a record begins in, counted from 1 where reading began, its cells, and where its bytes end."""

    line: int
    cells: list[str]
    end: int


class Piece(NamedTuple):
    """Whole records of a file, where they begin, and whether quotes are plain and line ends within them occur."""

    data: bytes
    offset: int
    plain: bool
    broken: bool


class _Unreadable(Exception):  # noqa: N818 - always caught and told in words
    def __init__(self, line: int, error: Exception) -> None:
        super().__init__(line, error)
        self.line, self.error = line, error


def records(data: bytes, delimiter: str) -> Iterator[Record]:
    """The records of some text, as Python's reader finds them, without blanks around cells.

    Example:
        >>> for record in records(b'a, "b\\nc"\\n1,2\\n', ","):
        ...     print(*record)
        1 ['a', 'b\\nc'] 9
        3 ['1', '2'] 13
    """
    line, size = 0, 0

    def lines() -> Iterator[str]:
        nonlocal line, size
        for raw in data.splitlines(keepends=True):
            line, size = line + 1, size + len(raw)
            yield raw.decode()

    begin = 1
    try:
        for cells in csv.reader(lines(), delimiter=delimiter, skipinitialspace=True):
            yield Record(begin, [cell.strip() for cell in cells], size)
            begin = line + 1
    except (UnicodeDecodeError, csv.Error) as error:
        raise _Unreadable(line, error) from None


def cut(data: bytes, delimiter: str, last: bool = False) -> tuple[int, bool, bool]:
    """Where the last whole record ends, whether quotes are plain, and whether there are line ends within them.

    Quotes are plain if every one that opens follows a delimiter and every one that closes is followed by one: then
    they open and close in turn, and a line end after an even number of them ends a record.
    """
    if b'"' not in data:
        at = data.rfind(b"\n") + 1 or data.rfind(b"\r", 0, -1) + 1
        return (len(data) if last else at), True, False
    text = np.frombuffer(data, np.uint8)
    quotes = np.flatnonzero(text == ord('"'))
    if not _plain(text, quotes, delimiter):
        return (len(data) if last else _end_of_records(data, delimiter)), False, False
    if last and len(quotes) % 2:
        before = data[: quotes[-1]]
        line = len(before.splitlines()) + before.endswith((b"\n", b"\r"))
        raise _Unreadable(max(1, line), csv.Error("a quote is opened and not closed"))
    ends = np.flatnonzero(text == (ord("\n") if b"\n" in data else ord("\r")))
    if b"\n" not in data and len(ends) and ends[-1] == len(text) - 1:
        ends = ends[:-1]  # its line feed may be about to come
    outside = np.searchsorted(quotes, ends) % 2 == 0
    whole = ends[outside]
    return (len(data) if last else int(whole[-1]) + 1 if len(whole) else 0), True, not outside.all()


def _plain(text: Array, quotes: Array, delimiter: str) -> bool:
    around, edges = np.pad(text, 1, constant_values=ord("\n")), [ord(delimiter), ord("\n"), ord("\r")]
    doubled = np.diff(quotes) == 1  # a quote within quotes is written twice
    opens = np.isin(around[quotes], edges) | np.append(False, doubled)
    closes = np.isin(around[quotes + 2], edges) | np.append(doubled, False)
    return bool(opens[0::2].all() and closes[1::2].all())


def _end_of_records(data: bytes, delimiter: str) -> int:
    """Where the last record but one ends; the last may go on in what is not read yet."""
    end = before = 0
    try:
        for record in records(data, delimiter):
            end, before = record.end, end
    except _Unreadable:  # in the middle of a letter, perhaps
        return end
    return before


class TextTable:
    """A delimited text file, read in pieces; the arguments are those of ``open_table``.

    ``like`` is the first of several files: it says what separates cells, and a line of the same names is a header.
    """

    def __init__(
        self,
        path: Path,
        form: Form,
        delimiter: str | None,
        header: bool | None,
        known: Sequence[str],
        like: TextTable | None = None,
    ) -> None:
        self.path, self._form = path, form
        self.named: bool
        self.names: tuple[str, ...]
        self.delimiter: str
        if like is not None:
            delimiter, header = like.delimiter, header if like.named else False
        self._rough: set[int] = set()  # columns that Arrow cannot read as numbers
        head, used, whole = self._head()
        if head.startswith((b"\xff\xfe", b"\xfe\xff")):
            raise ValueError(f"{path} is not a CSV file in UTF-8 but in UTF-16; save it as UTF-8")
        begin = len(_BOM) if head.startswith(_BOM) else 0
        self.delimiter = _delimiter(head[begin:], whole) if delimiter is None else delimiter
        first, error = _first_records(head[begin:], self.delimiter, whole)
        if error is not None and (not first or isinstance(error.error, csv.Error)):
            raise self._told(error, 0)  # otherwise told when that line is reached
        if not first:
            raise ValueError(f"{path} is empty")
        cells, width = tuple(first[0].cells), len(first[0].cells)
        same = like is not None and cells == like.names
        headed = (same or _is_header(cells, known)) if header is None else header
        self.named, self.names = headed, cells if headed else tuple(str(j + 1) for j in range(width))
        if like is not None and like.named and not headed and width == len(like.names):
            self.named, self.names = True, like.names  # only the first of the files has a header
        self._start = begin + (first[0].end if headed else 0)
        body = [record.cells for record in first[headed:] if len(record.cells) == width]
        columns = list(zip(*body, strict=True)) if body else [()] * width
        self.guess = tuple(_mostly_words(column) for column in columns)
        levels = sum(_features(column) if words else 1 for column, words in zip(columns, self.guess, strict=True))
        per_row = (begin + first[-1].end - self._start) / max(1, len(first) - headed)
        self._growth = len(head) / max(1, used) / max(per_row, 1.0) * levels * 8

    def _head(self) -> tuple[bytes, int, bool]:
        """The first bytes, how many of the file they are, and whether there are no more."""
        size = HEAD
        while True:
            with Stream(self.path, self._form.packing) as stream:
                head = stream.read(size)
                whole = not stream.read(1)
                if whole or head.count(b"\n") > 1 or size >= LONGEST:  # else not even a header and a row
                    return head, stream.done, whole
            size *= 4

    def size(self) -> int:
        """Bytes that the features would take in memory, estimated by the first lines."""
        return int(self.path.stat().st_size * self._growth)

    def blocks(self, words: Mapping[int, bool]) -> Iterator[Block]:
        """The rows, some at a time. A column that is wanted as numbers comes as words where it has any."""
        for piece in ahead(self._pieces()):
            yield from (self._quick(piece, words) if piece.plain else None) or self._exact(piece, words)

    def _pieces(self) -> Iterator[Piece]:
        with Stream(self.path, self._form.packing, self._start) as stream:
            for piece in stream.pieces(PIECE, self._cut, self._start):
                yield Piece(*piece)

    def _cut(self, data: bytes, offset: int, last: bool) -> tuple[int, bool, bool]:
        try:
            end, plain, broken = cut(data, self.delimiter, last)
        except _Unreadable as error:
            raise self._told(error, offset) from None
        if not last and not end and len(data) > LONGEST:
            raise ValueError(f"{self.path}, line {self._line(offset)}: a record of {len(data):,} bytes; {_QUOTE}")
        return end, plain, broken

    def _quick(self, piece: Piece, words: Mapping[int, bool]) -> list[Block] | None:
        """The rows as Arrow finds them; ``None`` if it cannot."""
        import pyarrow as pa

        for attempt in range(5):
            try:
                table = self._parse(piece, words)
                break
            except pa.ArrowInvalid as error:
                culprit = re.search(r"column #(\d+): CSV conversion error to double", str(error))
                if culprit is None or int(culprit[1]) in self._rough:
                    return None
                self._rough |= {int(culprit[1])} if attempt < 3 else {j for j, wanted in words.items() if not wanted}
        blocks, first = [], 0
        for batch in table.to_batches():
            columns = {j: cells_of(batch.column(k), wanted) for k, (j, wanted) in enumerate(words.items())}
            blocks.append(self._block(piece, first, batch.num_rows, columns))
            first += batch.num_rows
        return blocks

    def _parse(self, piece: Piece, words: Mapping[int, bool]) -> Any:
        import pyarrow as pa
        import pyarrow.csv as arrow

        word, rough, number = pa.dictionary(pa.int32(), pa.string()), pa.string(), pa.float64()
        types = {str(j): word if words[j] else rough if j in self._rough else number for j in words}
        names = [str(j) for j in range(len(self.names))]

        def odd(row: Any) -> str:
            return "error" if row.text.replace(self.delimiter, "").strip() else "skip"

        return arrow.read_csv(
            pa.BufferReader(piece.data),
            arrow.ReadOptions(column_names=names, block_size=max(BATCH, 64 * len(names))),
            arrow.ParseOptions(delimiter=self.delimiter, newlines_in_values=piece.broken, invalid_row_handler=odd),
            arrow.ConvertOptions(
                column_types=types, include_columns=list(types), null_values=ABSENT, strings_can_be_null=True
            ),
        )

    def _exact(self, piece: Piece, words: Mapping[int, bool]) -> Iterator[Block]:
        """The rows as Python's reader finds them, or an error that names the line."""
        import pyarrow as pa

        rows, first = self._rows(piece), 0
        while some := [record.cells for record in islice(rows, _ROWS)]:
            columns = {j: cells_of(pa.array([row[j] for row in some]), wanted) for j, wanted in words.items()}
            yield self._block(piece, first, len(some), columns)
            first += len(some)

    def _block(self, piece: Piece, first: int, count: int, columns: dict[int, Cells]) -> Block:
        def spot(row: int, position: int) -> Spot:
            record = next(islice(self._rows(piece), first + row, None))
            return Spot(f"{self.path}, line {self._line(piece.offset) + record.line - 1}", record.cells[position])

        def blank() -> Array:
            rows = islice(self._rows(piece), first, first + count)
            return np.array([not any(record.cells) for record in rows], bool)

        return Block(count, columns, spot, blank)

    def _rows(self, piece: Piece) -> Iterator[Record]:
        """The records of a piece one by one, each of the right width."""
        width = len(self.names)
        try:
            for record in records(piece.data, self.delimiter):
                count = len(record.cells)
                if count == width:
                    yield record
                elif any(record.cells):  # else an empty line, or nothing but delimiters
                    at = f"{self.path}, line {self._line(piece.offset) + record.line - 1}"
                    quote = f"; {_QUOTE}" if any("\n" in cell for cell in record.cells) else ""
                    found = f"{count} column{'s' * (count != 1)}"
                    raise ValueError(f"{at}: {found} where the first line has {width}{quote}")
        except _Unreadable as error:
            raise self._told(error, piece.offset) from None

    def _line(self, offset: int) -> int:
        return line_number(self.path, self._form.packing, offset)

    def _told(self, error: _Unreadable, offset: int) -> ValueError:
        line = self._line(offset) + error.line - 1
        if not isinstance(error.error, UnicodeDecodeError):
            return ValueError(f"{self.path} is not a CSV file, line {line}: {error.error}; {_QUOTE}")
        found = f"line {line} holds the byte 0x{error.error.object[error.error.start]:02x}"
        remedy = "if it is in latin-1, save it as UTF-8, as `iconv -f latin1 -t utf-8` does"
        return ValueError(f"{self.path} is not a CSV file in UTF-8: {found}; {remedy}")


def _first_records(
    head: bytes, delimiter: str, whole: bool, most: int | None = None
) -> tuple[list[Record], _Unreadable | None]:
    """The first records in which something is written, and what ends them if it is an error."""
    found: list[Record] = []
    wrong = None
    try:
        end = cut(head, delimiter, whole)[0]
    except _Unreadable as error:
        wrong, end = error, cut(head, delimiter)[0]
    try:
        for record in records(head[: end or len(head)], delimiter):
            found += [record] if any(record.cells) else []
            if len(found) == most:
                break
    except _Unreadable as error:
        wrong = wrong or error
    return found, wrong


def _delimiter(head: bytes, whole: bool) -> str:
    """What splits the first lines into equally many cells, most of them numbers; else what the first has most of."""

    def merit(delimiter: str) -> tuple[bool, float, int]:
        rows = [record.cells for record in _first_records(head, delimiter, whole, _ALIKE)[0]]
        width = len(rows[0]) if rows else 0
        alike = width > 1 and all(len(row) == width for row in rows)
        numbers = sum(_is_any_number(cell) for row in rows for cell in row)
        return alike, numbers / (width * len(rows)) if alike else 0.0, width

    return max(DELIMITERS, key=merit)


def _is_header(cells: Sequence[str], known: Sequence[str]) -> bool:
    """Names are words, and every column has one but for that of an index, which comes first."""
    if any(name in cells and not is_number(name) for name in known):
        return True
    rest = cells[1:] if len(cells) > 1 and not cells[0] else cells
    return not any(_is_any_number(cell) or not cell for cell in rest)


def _is_any_number(cell: str) -> bool:
    return is_number(cell.replace(",", ".", 1))  # those with a comma are an error, but not for being names


def _features(column: Sequence[str]) -> int:
    """About how many numbers a cell of words becomes: one per level, or some for each word if it is text."""
    words = sum(map(word_count, column))
    return 8 * words // len(column) if words > PROSE * len(column) else len(set(column))


def _mostly_words(column: Sequence[str]) -> bool:
    there = [cell for cell in column if not is_absent(cell)]
    return sum(map(is_number, there)) * 2 < len(there)
