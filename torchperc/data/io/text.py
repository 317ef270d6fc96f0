"""Tables in text files: pieces of whole lines, parsed by Arrow, and by Python's reader wherever that has to be exact.

Arrow reads numbers at the speed of the disk but does not say where it failed. So the quick way goes first, and a piece
that it cannot read is gone through again, cell by cell, to read it after all or to name the line that is wrong.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from torchperc.data.dataset import is_number
from torchperc.data.encoding import ABSENT, is_absent
from torchperc.data.io.blocks import Array, Block, Cells, Numbers, Spot, from_dictionary, from_strings
from torchperc.data.io.opening import Checksums, Stream, ahead

PIECE = 2**24
"""Bytes of text that are read and parsed together."""

BATCH = 2**20
"""Bytes of a piece that one thread parses at a time."""

HEAD = 2**16
"""Bytes at the beginning of a file by which its delimiter and header are found."""

LONGEST = 2**28
"""Bytes without the end of a record, from which on a quote must have been forgotten."""

DELIMITERS = ("\t", ";", "|", ",")
_ALIKE = 20  # lines that must agree on a delimiter
_ROWS = 4096  # rows that Python's reader hands on together
_BOM = b"\xef\xbb\xbf"


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


class Layout(NamedTuple):
    """What the first lines of a file tell."""

    delimiter: str
    names: tuple[str, ...]
    named: bool
    start: int
    guess: tuple[bool, ...]
    levels: int
    bytes_per_row: float


def records(data: bytes, delimiter: str) -> Iterator[Record]:
    """The records of some text, as Python's reader finds them, blanks around cells left out.

    Example:
        >>> for record in records(b'a, "b\\nc"\\n1,2\\n', ","):
        ...     print(*record)
        1 ['a', 'b\\nc'] 9
        3 ['1', '2'] 13
    """
    seen = [0, 0]

    def lines() -> Iterator[str]:
        for raw in _lines(data):
            seen[0] += 1
            seen[1] += len(raw)
            yield raw.decode()

    line = 1
    try:
        for cells in csv.reader(lines(), delimiter=delimiter, skipinitialspace=True):
            yield Record(line, [cell.strip() for cell in cells], seen[1])
            line = seen[0] + 1
    except (UnicodeDecodeError, csv.Error) as error:
        raise _Unreadable(seen[0], error) from None


class _Unreadable(Exception):  # noqa: N818 - always caught and told in words
    def __init__(self, line: int, error: Exception) -> None:
        super().__init__(line, error)
        self.line, self.error = line, error


def _lines(data: bytes) -> Iterator[bytes]:
    for line in io.BytesIO(data):
        yield from line.splitlines(keepends=True) if b"\r" in line else (line,)


def _hollow(cells: Sequence[str], width: int) -> bool:
    """No record: an empty line, or cells of another number without anything in them."""
    return not cells or (len(cells) != width and not any(cells))


def cut(data: bytes, delimiter: str, last: bool = False) -> tuple[int, bool, bool]:
    """Where the last whole record ends, whether quotes are plain, and whether there are line ends within them.

    Quotes are plain if every one that opens follows a delimiter and every one that closes is followed by one: then
    they open and close in turn, and a line end after an even number of them ends a record.

    Example:
        >>> cut(b'1,2\\n"a\\nb",3\\n4,"x', ",")
        (12, True, True)
    """
    if b'"' not in data:
        at = data.rfind(b"\n") + 1 or data.rfind(b"\r", 0, -1) + 1
        return (len(data) if last else at), True, False
    text = np.frombuffer(data, np.uint8)
    quotes = np.flatnonzero(text == ord('"'))
    if not _plain(text, quotes, delimiter):
        return (len(data) if last else _end_of_records(data, delimiter)), False, False
    if last and len(quotes) % 2:
        line = len(data[: quotes[-1]].splitlines()) + data[: quotes[-1]].endswith((b"\n", b"\r"))
        raise _Unreadable(max(1, line), csv.Error("a quote is opened and not closed"))
    ends = np.flatnonzero(text == (ord("\n") if b"\n" in data else ord("\r")))
    if b"\n" not in data and len(ends) and ends[-1] == len(text) - 1:
        ends = ends[:-1]  # its line feed may be about to come
    outside = np.searchsorted(quotes, ends) % 2 == 0
    whole = ends[outside]
    return (len(data) if last else int(whole[-1]) + 1 if len(whole) else 0), True, not outside.all()


def _plain(text: Array, quotes: Array, delimiter: str) -> bool:
    before = np.where(quotes > 0, text[quotes - 1], ord("\n"))
    after = np.where(quotes < len(text) - 1, text[np.minimum(quotes + 1, len(text) - 1)], ord("\n"))
    edges = [ord(delimiter), ord("\n"), ord("\r")]
    doubled = np.diff(quotes) == 1  # a quote within quotes is written twice
    opens = np.isin(before, edges) | np.append(False, doubled)
    closes = np.isin(after, edges) | np.append(doubled, False)
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
    """A delimited text file, read in pieces.

    Args:
        path: the file.
        packing: how it is packed.
        delimiter: between cells; found in the first lines if ``None``.
        header: whether the first line has the names of columns; found out if ``None``.
        known: names of columns by which a header is known as one.
        limit: bytes that it may unpack to.
    """

    def __init__(
        self,
        path: Path,
        packing: str | None,
        delimiter: str | None = None,
        header: bool | None = None,
        known: Sequence[str] = (),
        limit: int | None = None,
    ) -> None:
        self.path, self._packing, self._limit = path, packing, limit
        head, used, self._whole = self._head()
        self._ratio = len(head) / max(1, used)
        self.layout = self._look(head, delimiter, header, known)
        self.names, self.named, self.guess = self.layout.names, self.layout.named, self.layout.guess
        self._rough: set[int] = set()
        self._sums = Checksums(path)

    def size(self) -> int:
        """Bytes that the features would take in memory, estimated by the first lines."""
        text = self.path.stat().st_size * self._ratio
        return int(text / self.layout.bytes_per_row * self.layout.levels * 8)

    # --- the first lines ---

    def _head(self) -> tuple[bytes, int, bool]:
        size = HEAD
        while True:
            with Stream(self.path, self._packing) as stream:
                head = stream.read(size)
                whole = not stream.read(1)
                if whole or head.count(b"\n") > 1 or size >= LONGEST:  # else not even a header and a row
                    return head, stream.done, whole
            size *= 4

    def _look(self, head: bytes, delimiter: str | None, header: bool | None, known: Sequence[str]) -> Layout:
        if head.startswith((b"\xff\xfe", b"\xfe\xff")):
            raise ValueError(f"{self.path} is not a CSV file in UTF-8 but in UTF-16; save it as UTF-8")
        begin = len(_BOM) if head.startswith(_BOM) else 0
        delimiter = _delimiter(head[begin:], self._whole) if delimiter is None else delimiter
        first = self._first_records(head[begin:], delimiter)
        if not first:
            raise ValueError(f"{self.path} is empty")
        width = len(first[0].cells)
        named = _is_header(first[0].cells, known) if header is None else header
        names = tuple(first[0].cells) if named else tuple(str(j + 1) for j in range(width))
        body = [record.cells for record in first[named:] if len(record.cells) == width]
        columns = list(zip(*body, strict=True)) if body else [()] * width
        guess = tuple(_mostly_words(column) for column in columns)
        levels = sum(len(set(column)) if words else 1 for column, words in zip(columns, guess, strict=True))
        per_row = (first[-1].end - (first[0].end if named else 0)) / max(1, len(first) - named)
        return Layout(delimiter, names, named, begin + (first[0].end if named else 0), guess, levels, max(per_row, 1.0))

    def _first_records(self, head: bytes, delimiter: str) -> list[Record]:
        found: list[Record] = []
        try:
            for record in records(head[: cut(head, delimiter, self._whole)[0]], delimiter):
                found += [record] if any(record.cells) else []
        except _Unreadable as error:
            if not found or isinstance(error.error, csv.Error):
                raise self._told(error, 0) from None  # otherwise told when that line is reached
        return found

    # --- pieces ---

    def _pieces(self, watch: Callable[[int], None]) -> Iterator[Piece]:
        with Stream(self.path, self._packing, self._sums, self._limit) as stream:
            offset, rest, last = self.layout.start, b"", False
            stream.read(offset)
            while not last:
                data = rest + stream.read(PIECE)
                last = len(data) - len(rest) < PIECE
                try:
                    end, plain, broken = cut(data, self.layout.delimiter, last)
                except _Unreadable as error:
                    raise self._told(error, offset) from None
                if not last and not end and len(data) > LONGEST:
                    raise ValueError(
                        f"{self.path}, line {self._line(offset)}: a record of {len(data):,} bytes; {_QUOTE}"
                    )
                watch(stream.done)
                if end:
                    yield Piece(data[:end] if end < len(data) else data, offset, plain, broken)
                offset, rest = offset + end, data[end:]

    def blocks(self, words: Mapping[int, bool], watch: Callable[[int], None] = lambda done: None) -> Iterator[Block]:
        """The rows, some at a time.

        Args:
            words: the positions of the columns that are wanted, and whether as words. A column that is wanted as
                numbers comes as words where it has any.
            watch: told how many bytes of the file are read.
        """
        for piece in ahead(self._pieces(watch)):
            yield from (self._quick(piece, words) if piece.plain else None) or self._exact(piece, words)

    def _quick(self, piece: Piece, words: Mapping[int, bool]) -> list[Block] | None:
        import pyarrow as pa

        for _ in range(4):
            try:
                table = self._parse(piece, words)
            except pa.ArrowInvalid as error:  # noqa: PERF203 - a retry or two
                culprit = re.search(r"column #(\d+): CSV conversion error to double", str(error))
                if culprit is None or int(culprit[1]) in self._rough:
                    return None
                self._rough.add(int(culprit[1]))
            else:
                return self._found(piece, words, table)
        self._rough.update(position for position, wanted in words.items() if not wanted)
        return self._found(piece, words, self._parse(piece, words))

    def _parse(self, piece: Piece, words: Mapping[int, bool]) -> Any:
        import pyarrow as pa
        import pyarrow.csv

        word, rough, number = pa.dictionary(pa.int32(), pa.string()), pa.string(), pa.float64()
        types = {str(j): word if words[j] else rough if j in self._rough else number for j in words}
        names = [str(j) for j in range(len(self.names))]
        delimiter = self.layout.delimiter

        def odd(row: Any) -> str:
            return "error" if row.text.replace(delimiter, "").strip() else "skip"

        return pyarrow.csv.read_csv(
            pa.BufferReader(piece.data),
            read_options=pyarrow.csv.ReadOptions(column_names=names, block_size=max(BATCH, 64 * len(names))),
            parse_options=pyarrow.csv.ParseOptions(
                delimiter=delimiter, newlines_in_values=piece.broken, invalid_row_handler=odd
            ),
            convert_options=pyarrow.csv.ConvertOptions(
                column_types=types,
                include_columns=list(types),
                null_values=list(ABSENT),
                strings_can_be_null=True,
            ),
        )

    def _found(self, piece: Piece, words: Mapping[int, bool], table: Any) -> list[Block]:
        blocks, first = [], 0
        for batch in table.to_batches():
            columns = {j: _cells(batch.column(k), wanted) for k, (j, wanted) in enumerate(words.items())}
            blocks.append(self._block(piece, first, batch.num_rows, columns))
            first += batch.num_rows
        return blocks

    def _block(self, piece: Piece, first: int, count: int, columns: dict[int, Cells]) -> Block:
        def spot(row: int, position: int) -> Spot:
            record = next(islice(self._rows(piece), first + row, None))
            return Spot(f"line {self._line(piece.offset) + record.line - 1}", record.cells[position])

        def blank() -> Array:
            rows = islice(self._rows(piece), first, first + count)
            return np.array([not any(record.cells) for record in rows], bool)

        return Block(count, columns, spot, blank)

    def _exact(self, piece: Piece, words: Mapping[int, bool]) -> Iterator[Block]:
        import pyarrow as pa

        rows, first = self._rows(piece), 0
        while some := [record.cells for record in islice(rows, _ROWS)]:
            columns = {j: from_strings(pa.array([row[j] for row in some]), wanted) for j, wanted in words.items()}
            yield self._block(piece, first, len(some), columns)
            first += len(some)

    def _rows(self, piece: Piece) -> Iterator[Record]:
        """The records of a piece one by one, each of the right width."""
        width = len(self.names)
        try:
            for record in records(piece.data, self.layout.delimiter):
                if _hollow(record.cells, width):
                    continue
                if len(record.cells) != width:
                    line = self._line(piece.offset) + record.line - 1
                    found = f"{len(record.cells)} column{'s' * (len(record.cells) != 1)}"
                    open_quote = f"; {_QUOTE}" if any("\n" in cell for cell in record.cells) else ""
                    raise ValueError(f"{self.path}, line {line}: {found} where the first line has {width}{open_quote}")
                yield record
        except _Unreadable as error:
            raise self._told(error, piece.offset) from None

    def _line(self, offset: int) -> int:
        """The number of the line that begins behind so many bytes of text."""
        line, before = 1, b""
        with Stream(self.path, self._packing) as stream:
            for data in stream.first(offset):
                line += data.count(b"\n")
                if b"\r" in data:
                    line += data.count(b"\r") - data.count(b"\r\n")
                line -= before.endswith(b"\r") and data.startswith(b"\n")
                before = data
        return line

    def _told(self, error: _Unreadable, offset: int) -> ValueError:
        line = self._line(offset) + error.line - 1
        if isinstance(error.error, csv.Error):
            return ValueError(f"{self.path} is not a CSV file, line {line}: {error.error}; {_QUOTE}")
        byte = error.error.object[error.error.start] if isinstance(error.error, UnicodeDecodeError) else 0
        return ValueError(
            f"{self.path} is not a CSV file in UTF-8: line {line} holds the byte 0x{byte:02x}; if it is in latin-1, "
            f"save it as UTF-8, as `iconv -f latin1 -t utf-8` does"
        )


_QUOTE = "look for a quote that is not closed"


def _cells(array: Any, words: bool) -> Cells:
    import pyarrow as pa

    if pa.types.is_floating(array.type):
        return Numbers(array.to_numpy(zero_copy_only=False))
    return from_dictionary(array, words) if pa.types.is_dictionary(array.type) else from_strings(array, words)


def _delimiter(head: bytes, whole: bool) -> str:
    """What splits the first lines into equally many cells, most of them numbers; else what the first has most of."""
    found = {delimiter: _first_cells(head, delimiter, whole) for delimiter in DELIMITERS}

    def merit(delimiter: str) -> tuple[bool, float, int]:
        rows = found[delimiter]
        width = len(rows[0]) if rows else 0
        alike = width > 1 and all(len(row) == width for row in rows)
        numbers = sum(_is_any_number(cell) for row in rows for cell in row)
        return alike, numbers / (width * len(rows)) if alike else 0.0, width

    return max(DELIMITERS, key=merit)


def _first_cells(head: bytes, delimiter: str, whole: bool) -> list[list[str]]:
    rows: list[list[str]] = []
    try:
        end = cut(head, delimiter, whole)[0]
    except _Unreadable:  # an open quote is told later; the lines before it are as good
        end = cut(head, delimiter)[0]
    try:
        for record in records(head[: end or len(head)], delimiter):
            if any(record.cells):
                rows.append(record.cells)
            if len(rows) == _ALIKE:
                break
    except _Unreadable:
        pass
    return rows


def _is_header(cells: Sequence[str], known: Sequence[str]) -> bool:
    """Names are words, and every column has one but for that of an index, which comes first."""
    if any(name in cells and not is_number(name) for name in known):
        return True
    rest = cells[1:] if len(cells) > 1 and not cells[0] else cells
    return not any(_is_any_number(cell) or not cell for cell in rest)


def _is_any_number(cell: str) -> bool:
    return is_number(cell.replace(",", ".", 1))  # those with a comma are an error, but not for being names


def _mostly_words(column: Sequence[str]) -> bool:
    there = [cell for cell in column if not is_absent(cell)]
    return sum(map(is_number, there)) * 2 < len(there)
