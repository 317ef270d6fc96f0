"""Sparse samples in svmlight and LIBSVM text: one a line, ``label index:value index:value … # comment``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from torchperc.data.encoding import is_absent, word
from torchperc.data.io.blocks import Array, Words, from_dictionary
from torchperc.data.io.opening import Checksums, Stream, ahead, threads
from torchperc.samples.compiling import cores

PIECE = 2**24
"""Bytes of text that are read together."""

WORTH_IT = 2**16
"""Bytes below which a plain loop is done before a compiled one is loaded."""

_MOST = 2**31 - 2
_FORM = "a line is: label index:value index:value …"


class SparseBlock(NamedTuple):
    """Some rows: labels (``None`` if the file has none), CSR parts with indices as written, and where a row is."""

    labels: Words | None
    starts: Array
    columns: Array
    values: Array
    line: Callable[[int], int]

    @property
    def rows(self) -> int:
        """How many rows."""
        return len(self.starts) - 1

    @property
    def nbytes(self) -> int:
        """How much memory they take."""
        return int(self.starts.nbytes + self.columns.nbytes + self.values.nbytes)


class _WrongError(Exception):
    def __init__(self, line: int, what: str) -> None:
        super().__init__(line, what)
        self.line, self.what = line, what


class SvmlightFile:
    """An svmlight file, read in pieces.

    Indices count from 1 unless a 0 occurs, and rise within a line. ``qid:…`` behind the label is passed over, as is
    all from ``#`` to the end of the line. A label is any word without a comma or colon.

    Args:
        path: the file.
        packing: how it is packed.
        limit: bytes that it may unpack to.

    Example:
        >>> import tempfile
        >>> file = Path(tempfile.mkdtemp()) / "data.svm"
        >>> _ = file.write_text("+1 1:0.5 3:2 # a comment\\n-1 2:1\\n")
        >>> for block in SvmlightFile(file, None).blocks():
        ...     print(block.labels.levels, block.columns.tolist(), block.values.tolist(), block.starts.tolist())
        ('1', '-1') [1, 3, 2] [0.5, 2.0, 1.0] [0, 2, 3]
    """

    def __init__(self, path: Path, packing: str | None, limit: int | None = None) -> None:
        self.path, self._packing, self._limit, self._sums = path, packing, limit, Checksums(path)
        with Stream(path, packing) as stream:
            head = stream.read(2**16)
            self.ratio = len(head) / max(1, stream.done)
        self.labelled = _has_labels(head)

    def size(self) -> int:
        """Bytes that the entries would take in memory, by the size of the text."""
        return int(self.path.stat().st_size * self.ratio * 1.5)

    def blocks(self, watch: Callable[[int], None] = lambda done: None) -> Iterator[SparseBlock]:
        """The rows, some at a time.

        Args:
            watch: told how many bytes of the file are read.
        """
        with threads(cores()) as pool:
            for data, offset in ahead(self._pieces(watch)):
                parts = list(_halves(data, offset, cores() if len(data) >= WORTH_IT else 1))
                yield from pool.map(lambda part: self._parsed(*part), parts)

    def _pieces(self, watch: Callable[[int], None]) -> Iterator[tuple[bytes, int]]:
        with Stream(self.path, self._packing, self._sums, self._limit) as stream:
            rest, last = stream.read(3), False
            offset, rest = (3, b"") if rest == b"\xef\xbb\xbf" else (0, rest)
            while not last:
                more = stream.read(PIECE)
                data, last = rest + more, len(more) < PIECE
                end = len(data) if last else data.rfind(b"\n") + 1
                watch(stream.done)
                if end:
                    yield data[:end], offset
                offset, rest = offset + end, data[end:]

    def _parsed(self, data: bytes, offset: int) -> SparseBlock:
        found = None
        if len(data) >= WORTH_IT:
            found = _compiled(data, self.labelled)
        if found is None:
            try:
                found = _plain(data, self.labelled)
            except _WrongError as error:
                raise ValueError(f"{self.path}, line {self._line(offset) + error.line}: {error.what}") from None
        words, starts, columns, values = found
        block = SparseBlock(words, starts, columns, values, lambda row: self._line(offset) + _line_of(data, row))
        if not np.isfinite(values).all():
            entry = int(np.flatnonzero(~np.isfinite(values))[0])
            row = int(np.searchsorted(starts, entry, side="right")) - 1
            raise ValueError(
                f"{self.path}, line {block.line(row)}: index {columns[entry]} has the value {values[entry]}, no "
                "finite number; leave out what is 0 and correct what is not known"
            )
        return block

    def _line(self, offset: int) -> int:
        """The number of the line that begins behind so many bytes."""
        line = 1
        with Stream(self.path, self._packing) as stream:
            for data in stream.first(offset):
                line += data.count(b"\n")
        return line


def _has_labels(head: bytes) -> bool:
    for line in head.splitlines():
        tokens = line.split(b"#")[0].split()
        if tokens:
            return b":" not in tokens[0]
    return True


def _halves(data: bytes, offset: int, count: int) -> Iterator[tuple[bytes, int]]:
    """The same text in so many parts of whole lines."""
    begin = 0
    for number in range(1, count + 1):
        end = len(data) if number == count else data.find(b"\n", max(begin, len(data) * number // count)) + 1
        if end > begin:
            yield data[begin:end], offset + begin
            begin = end


def _line_of(data: bytes, row: int) -> int:
    """How many lines come before a row."""
    for number, line in enumerate(data.split(b"\n")):
        if line.split(b"#")[0].strip():
            if row == 0:
                return number
            row -= 1
    return 0


def _compiled(data: bytes, labelled: bool) -> tuple[Words | None, Array, Array, Array] | None:
    """What the text holds; ``None`` if it is not as it should be, and :func:`_plain` is to say where."""
    from torchperc.data.io.svmlight_loop import gather, parse

    text = np.frombuffer(data, np.uint8)
    lines, most = data.count(b"\n") + 1, data.count(b":")
    labels, starts = np.zeros((lines, 2), np.int64), np.zeros(lines + 1, np.int64)
    columns, values, spans = np.empty(most, np.int32), np.empty(most), np.empty((most, 3), np.int64)
    rows, entries, long = parse(text, labelled, labels, starts, columns, values, spans)
    if rows < 0:
        return None

    def strings(begins: Array, ends: Array) -> Any:
        import pyarrow as pa

        out, offsets = np.empty(int((ends - begins).sum()), np.uint8), np.empty(len(begins) + 1, np.int32)
        gather(text, begins, ends, out, offsets)
        return pa.Array.from_buffers(pa.string(), len(begins), [None, pa.py_buffer(offsets), pa.py_buffer(out)])

    if long:
        exact = strings(spans[:long, 1], spans[:long, 2]).cast("float64").to_numpy()
        values[spans[:long, 0]] = exact
    words = None
    if labelled:
        given = strings(labels[:rows, 0], labels[:rows, 1])
        try:
            given.validate(full=True)
        except Exception:  # not UTF-8, which the plain loop names
            return None
        found = from_dictionary(given.dictionary_encode(), words=True)
        if not isinstance(found, Words) or found.missing() is not None:
            return None
        words = found
    return words, starts[: rows + 1], columns[:entries].copy(), values[:entries].copy()


def _plain(data: bytes, labelled: bool) -> tuple[Words | None, Array, Array, Array]:
    numbering: dict[str, int] = {}
    codes, starts, columns, values = [], [0], [], []
    for number, line in enumerate(data.split(b"\n")):
        tokens = line.split(b"#")[0].split()
        if not tokens:
            continue
        if labelled:
            codes.append(numbering.setdefault(_label(tokens.pop(0), number), len(numbering)))
            if tokens and tokens[0].startswith(b"qid:"):
                tokens.pop(0)
        previous = -1
        for token in tokens:
            index, value = _entry(token, number)
            if index <= previous:
                order = "twice" if index == previous else f"behind {previous}"
                raise _WrongError(number, f"index {index} comes {order}; indices must rise within a line")
            previous = index
            columns.append(index)
            values.append(value)
        starts.append(len(columns))
    words = Words(np.array(codes, np.int64), tuple(numbering)) if labelled else None
    return words, np.array(starts, np.int64), np.array(columns, np.int32), np.array(values, np.float64)


def _label(token: bytes, line: int) -> str:
    try:
        text = token.decode()
    except UnicodeDecodeError:
        raise _WrongError(line, f"the label {token!r} is not in UTF-8; save the file as UTF-8") from None
    if ":" in text:
        raise _WrongError(line, f"{text!r} stands where the label should be; {_FORM}")
    if "," in text:
        raise _WrongError(line, f"{text!r} is several labels; a sample has one here, so split the file by labels first")
    if is_absent(text):
        raise _WrongError(line, f"the label is missing, written {text!r}; fill it in or drop the line")
    return word(text)


def _entry(token: bytes, line: int) -> tuple[int, float]:
    index, colon, value = token.partition(b":")
    shown = token.decode(errors="replace")
    if not colon or not index.isdigit():
        raise _WrongError(line, f"{shown!r} is no index:value; {_FORM}")
    if int(index) > _MOST:
        raise _WrongError(line, f"index {int(index)} is too large; the largest there can be is {_MOST}")
    try:
        if b"_" in value:
            raise ValueError
        return int(index), float(value)
    except ValueError:
        raise _WrongError(line, f"{value.decode(errors='replace')!r} in {shown!r} is not a number; {_FORM}") from None
