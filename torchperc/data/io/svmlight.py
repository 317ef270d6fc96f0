"""Sparse samples in svmlight and LIBSVM text: one per line, ``label index:value index:value … # comment``.

Arrow parses pieces of the text; what it cannot read, a plain loop reads after all, or names the line that is wrong.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from torchperc._checks import Option, ParameterError
from torchperc.data.encoding import is_absent, word
from torchperc.data.io.blocks import Array, Words, cells_of
from torchperc.data.io.opening import Form, ahead, line_number, threads
from torchperc.data.task import is_finite
from torchperc.samples.parallel import cores
from torchperc.samples.streams import Stream

PIECE = 2**24  # bytes of text that are read together
WORTH_IT = 2**16  # bytes below which a plain loop is done before Arrow is loaded
_SPLIT = bytes.maketrans(b" \t\r", b"\n\n\n")
_LONG = 256  # bytes that labels, and blanks before them, have at most where Arrow is to read them
_BOM = b"\xef\xbb\xbf"
_MOST = 2**31 - 2  # the largest index that a CSR array of int32 can have
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

    def line_of(self, entry: int) -> int:
        """The line in which an entry is written."""
        return self.line(int(np.searchsorted(self.starts, entry, side="right")) - 1)


_Parsed = tuple["Words | None", Array, Array, Array]


class _WrongError(Exception):
    """With the line, counted from 0, and what is wrong with it."""


class SvmlightFile:
    """An svmlight file, read in pieces.

    Indices count from 1 unless a 0 occurs, and rise within a line. ``qid:…`` behind the label is ignored, as is all
    from ``#`` to the end of the line. A label is any word without a comma or colon; if it is ``real``, a finite number.
    """

    def __init__(self, path: Path, form: Form, real: bool = False) -> None:
        self.path, self._form, self._real = path, form, real
        with Stream(path, form.packing) as stream:
            head = stream.read(2**16)
            self._growth = 1.5 * len(head) / max(1, stream.done)
        first = next((tokens for line in head.splitlines() if (tokens := line.split(b"#")[0].split())), [b""])
        self.labelled = b":" not in first[0]

    def size(self) -> int:
        """Bytes that the entries would take in memory, by the size of the text."""
        return int(self.path.stat().st_size * self._growth)

    def blocks(self) -> Iterator[SparseBlock]:
        """The rows, some at a time."""
        with threads(cores()) as pool:
            for data, offset in ahead(self._pieces()):
                parts = _shares(data, offset, cores() if len(data) >= WORTH_IT else 1)
                yield from pool.map(lambda part: self._parsed(*part), parts)

    def _pieces(self) -> Iterator[tuple[bytes, int]]:
        def cut(data: bytes, offset: int, last: bool) -> tuple[int]:
            return (len(data) if last else data.rfind(b"\n") + 1,)

        with Stream(self.path, self._form.packing) as stream:
            for data, offset in stream.pieces(PIECE, cut, 0):
                begin = len(_BOM) if offset == 0 and data.startswith(_BOM) else 0
                yield data[begin:], offset + begin

    def _parsed(self, data: bytes, offset: int) -> SparseBlock:
        def line(row: int) -> int:
            lines = [number for number, line in enumerate(data.split(b"\n")) if line.split(b"#")[0].strip()]
            return line_number(self.path, self._form.packing, offset) + lines[row]

        try:
            found = _by_arrow(data, self.labelled) if len(data) >= WORTH_IT else None
            block = SparseBlock(*(found or _by_hand(data, self.labelled)), line)
        except _WrongError as error:
            number, what = error.args
            begin = line_number(self.path, self._form.packing, offset)
            raise ValueError(f"{self.path}, line {begin + number}: {what}") from None
        if self._real and block.labels is not None:
            odd = ~np.array([*map(is_finite, block.labels.levels), True])[block.labels.codes]
            if odd.any():
                row = int(np.flatnonzero(odd)[0])
                cell, at = block.labels.texts()[row], f"{self.path}, line {block.line(row)}"
                said = f"{at}: the target {cell!r} is not a finite number; correct it, or learn classes with "
                raise ParameterError(said, Option("task", "classification"))
        wrong = np.flatnonzero(~np.isfinite(block.values))
        if len(wrong):
            at = f"{self.path}, line {block.line_of(wrong[0])}: index {block.columns[wrong[0]]}"
            raise ValueError(f"{at} has the value {block.values[wrong[0]]}, which is not a finite number; correct it")
        return block


def _shares(data: bytes, offset: int, count: int) -> Iterator[tuple[bytes, int]]:
    """The same text in so many pieces of whole lines."""
    begin = 0
    for number in range(1, count + 1):
        end = len(data) if number == count else data.find(b"\n", max(begin, len(data) * number // count)) + 1
        if end > begin:
            yield data[begin:end], offset + begin
            begin = end


def _by_arrow(data: bytes, labelled: bool) -> _Parsed | None:
    """Entries as lines of ``index:value``; ``None`` if anything is not as it should be."""
    import pyarrow as pa
    import pyarrow.csv as arrow

    if b"#" in data:
        data = re.sub(rb"#[^\n]*", b"", data)
    if labelled and b"q" in data:
        data = re.sub(rb"(?m)^(\s*[^\s:]+[^\S\n]+)qid:\S*", rb"\1", data)
    ends = np.append(np.flatnonzero(np.frombuffer(data, np.uint8) == ord("\n")), len(data))
    text = np.frombuffer(bytearray(b"%b\n" % data).translate(_SPLIT), np.uint8)
    begins = _next(text, np.append(0, ends[:-1] + 1), ends, blank=False)
    behind = None if begins is None else _next(text, begins, ends, blank=True)
    if begins is None or behind is None:
        return None
    counts = np.diff(np.searchsorted(np.flatnonzero(text == ord(":")), ends), prepend=0)
    rows = begins < ends
    words, starts = None, np.append(0, np.cumsum(counts[rows]))
    if labelled:
        begins, lengths = begins[rows], (behind - begins)[rows]
        offsets = np.append(0, np.cumsum(lengths)).astype(np.int32)
        where = np.arange(offsets[-1]) + np.repeat(begins - offsets[:-1], lengths)
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(text[where])]
        labels = pa.Array.from_buffers(pa.string(), len(begins), buffers)
        text[where] = ord("\n")
        try:
            labels.validate(full=True)
        except pa.ArrowInvalid:  # not UTF-8
            return None
        found = cells_of(labels, words=True)
        assert isinstance(found, Words)
        if found.missing() is not None or any(":" in level or "," in level for level in found.levels):
            return None
        words = found
    if starts[-1] == 0:
        alone = bool((text == ord("\n")).all())
        return (words, starts, np.empty(0, np.int32), np.empty(0)) if alone else None
    types = {"index": pa.int32(), "value": pa.float64()}
    try:
        table = arrow.read_csv(
            pa.BufferReader(text),
            arrow.ReadOptions(use_threads=False, column_names=list(types)),
            arrow.ParseOptions(delimiter=":", quote_char=False),
            arrow.ConvertOptions(column_types=types, null_values=[]),
        )
    except pa.ArrowInvalid:
        return None
    index, value = (table[name].combine_chunks() for name in types)
    columns = np.frombuffer(index.buffers()[1], np.int32, len(index))  # to_numpy would import pandas
    values = np.frombuffer(value.buffers()[1], np.float64, len(value))
    rises = np.diff(columns, prepend=-1) > 0
    rises[starts[:-1][starts[:-1] < len(rises)]] = True
    fine = len(columns) == starts[-1] and rises.all() and columns.min() >= 0 and columns.max() <= _MOST
    return (words, starts, columns, values) if fine else None


def _next(text: Array, begins: Array, ends: Array, blank: bool) -> Array | None:
    """The first place of each line that is blank, or is not; ``None`` if that is far for one of them."""
    at = begins.copy()
    for _ in range(_LONG):
        on = np.flatnonzero((at < ends) & ((text[at] == ord("\n")) != blank))
        if not len(on):
            return at
        at[on] += 1
    return None


def _by_hand(data: bytes, labelled: bool) -> _Parsed:
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
        raise _WrongError(line, f"{text!r} is several labels; only one per sample is accepted, so split the file first")
    if is_absent(text):
        raise _WrongError(line, f"the label is missing, written {text!r}; fill it in or drop the line")
    return word(text)


def _entry(token: bytes, line: int) -> tuple[int, float]:
    index, colon, value = token.partition(b":")
    shown = token.decode(errors="replace")
    if not colon or not index.isdigit():
        raise _WrongError(line, f"{shown!r} is not index:value; {_FORM}")
    if int(index) > _MOST:
        raise _WrongError(line, f"index {int(index)} is too large; the largest there can be is {_MOST}")
    try:
        if b"_" in value:
            raise ValueError
        return int(index), float(value)
    except ValueError:
        raise _WrongError(line, f"{value.decode(errors='replace')!r} in {shown!r} is not a number; {_FORM}") from None
