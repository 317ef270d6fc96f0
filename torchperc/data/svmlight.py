"""Sparse samples in svmlight and LIBSVM text: one per line, ``label index:value index:value … # comment``.

Arrow parses the numbers; what it cannot read, a plain loop reads after all, or names the line that is wrong.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from torchperc._checks import Option, ParameterError
from torchperc.data.file_formats import Source
from torchperc.data.table_encoder import is_finite
from torchperc.data.table_files import Array, Words, is_absent, word

PIECE = 2**24  # bytes of text that are read together
_MOST = 2**31 - 2  # the largest index that a CSR array of int32 can have
_FORM = "a line is: label index:value index:value …"


class SparseBatch(NamedTuple):
    """Some rows: where they are, labels (``None`` if the file has none), and CSR parts with indices as written."""

    lines: Array
    labels: Words | None
    starts: Array
    columns: Array
    values: Array

    def line_of(self, entry: int) -> int:
        """The line in which an entry is written."""
        return int(self.lines[np.searchsorted(self.starts, entry, side="right") - 1])

    def rows(self, first: int, width: int) -> Any:
        """The rows as a CSR array; ``first`` is the number of the first feature."""
        from scipy.sparse import csr_array

        starts = self.starts.astype(np.int32) if self.starts[-1] <= _MOST else self.starts
        return csr_array((self.values, self.columns - np.int32(first), starts), shape=(len(starts) - 1, width))


class _WrongLineError(Exception):
    """With the number of a row and what is wrong with it."""


class SvmlightFile:
    """An svmlight file, read in pieces.

    Indices count from 1 unless a 0 occurs, and rise within a line. ``qid:…`` behind the label is ignored, as is all
    from ``#`` to the end of the line. A label is any word without a comma or colon; if it is ``real``, a finite number.
    """

    def __init__(self, path: Path, compression: str | None, real: bool = False) -> None:
        self.path, self._compression, self._real = path, compression, real
        first = next((tokens for line in self._lines() if (tokens := line.split(b"#")[0].split())), [b""])
        self.labelled = b":" not in first[0]

    def _lines(self) -> Iterator[bytes]:
        with Source(self.path, self._compression) as source:
            yield from source.read(2**16).removeprefix(b"\xef\xbb\xbf").splitlines()

    def batches(self) -> Iterator[SparseBatch]:
        """The rows, some at a time."""
        rest, line, last = b"", 1, False
        with Source(self.path, self._compression) as source:
            while not last:
                new = source.read(PIECE)
                last, data = not new, rest + new
                end = len(data) if last else data.rfind(b"\n") + 1
                if end:
                    begin = 3 if line == 1 and data.startswith(b"\xef\xbb\xbf") else 0
                    yield self._parsed(data[begin:end], line)
                    line += data.count(b"\n", 0, end)
                rest = data[end:]

    def _parsed(self, data: bytes, line: int) -> SparseBatch:
        data = re.sub(rb"#[^\n]*", b"", data) if b"#" in data else data
        rows = [(number, text) for number, text in enumerate(data.split(b"\n"), line) if text and not text.isspace()]
        lines, texts = np.array([n for n, _ in rows], np.int64), [text for _, text in rows]
        try:
            batch = SparseBatch(lines, *(_by_arrow(texts, self.labelled) or _by_hand(texts, self.labelled)))
        except _WrongLineError as error:
            number, what = error.args
            raise ValueError(f"{self.path}, line {lines[number]}: {what}") from None
        if self._real and batch.labels is not None:
            odd = ~np.array([*map(is_finite, batch.labels.levels), True])[batch.labels.codes]
            if odd.any():
                row = int(np.argmax(odd))
                said = (
                    f"{self.path}, line {lines[row]}: the target {batch.labels.texts()[row]!r} is not a finite number"
                )
                raise ParameterError(f"{said}; correct it, or learn classes with ", Option("task", "classification"))
        wrong = np.flatnonzero(~np.isfinite(batch.values))
        if len(wrong):
            at = f"{self.path}, line {batch.line_of(wrong[0])}: index {batch.columns[wrong[0]]}"
            raise ValueError(f"{at} has the value {batch.values[wrong[0]]}, which is not a finite number; correct it")
        return batch


def _by_arrow(texts: list[bytes], labelled: bool) -> tuple[Words | None, Array, Array, Array] | None:
    """Labels and CSR parts of some lines; ``None`` if anything is not as it should be."""
    import pyarrow as pa
    import pyarrow.csv as arrow

    words, entries = None, texts
    if labelled:
        cut = [text.split(None, 1) for text in texts]
        entries = [b"" if len(each) == 1 else each[1] for each in cut]
        if any(entry.startswith(b"qid:") for entry in entries):
            entries = [re.sub(rb"^qid:\S*", b"", entry) for entry in entries]
        try:
            labels = {token: _label(token, 0) for token in {each[0]: None for each in cut}}
        except _WrongLineError:
            return None
        numbering = {label: number for number, label in enumerate(dict.fromkeys(labels.values()))}
        words = Words(np.array([numbering[labels[each[0]]] for each in cut], np.int64), tuple(numbering))
    starts = np.cumsum([0, *(entry.count(b":") for entry in entries)])
    if not starts[-1]:
        alone = not any(entry.strip() for entry in entries)
        return (words, starts, np.empty(0, np.int32), np.empty(0)) if alone else None
    types = {"index": pa.int32(), "value": pa.float64()}
    try:
        table = arrow.read_csv(
            pa.BufferReader(b"\n".join(entries).translate(bytes.maketrans(b" \t\r", b"\n\n\n"))),
            arrow.ReadOptions(column_names=list(types)),
            arrow.ParseOptions(delimiter=":", quote_char=False),
            arrow.ConvertOptions(column_types=types, null_values=[]),
        )
    except pa.ArrowInvalid:
        return None
    columns = np.concatenate([_buffer(chunk, np.int32) for chunk in table["index"].chunks])
    values = np.concatenate([_buffer(chunk, np.float64) for chunk in table["value"].chunks])
    rises = np.diff(columns, prepend=-1) > 0
    rises[starts[:-1][starts[:-1] < len(rises)]] = True
    fine = len(columns) == starts[-1] and rises.all() and columns.min() >= 0 and columns.max() <= _MOST
    return (words, starts, columns, values) if fine else None


def _buffer(array: Any, dtype: Any) -> Array:
    """Numbers of Arrow, whose ``to_numpy`` would import pandas."""
    return np.frombuffer(array.buffers()[1], dtype, len(array), array.offset * np.dtype(dtype).itemsize)


def _by_hand(texts: list[bytes], labelled: bool) -> tuple[Words | None, Array, Array, Array]:
    """The same by a plain loop, or an error for the first line that is wrong."""
    numbering: dict[str, int] = {}
    codes, starts, columns, values = [], [0], [], []
    for number, text in enumerate(texts):
        tokens = text.split()
        if labelled:
            codes.append(numbering.setdefault(_label(tokens.pop(0), number), len(numbering)))
            if tokens and tokens[0].startswith(b"qid:"):
                tokens.pop(0)
        previous = -1
        for token in tokens:
            index, value = _entry(token, number)
            if index <= previous:
                order = "twice" if index == previous else f"behind {previous}"
                raise _WrongLineError(number, f"index {index} comes {order}; indices must rise within a line")
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
        raise _WrongLineError(line, f"the label {token!r} is not in UTF-8; save the file as UTF-8") from None
    if ":" in text:
        raise _WrongLineError(line, f"{text!r} stands where the label should be; {_FORM}")
    if "," in text:
        raise _WrongLineError(line, f"{text!r} is several labels; only one per sample is accepted")
    if is_absent(text):
        raise _WrongLineError(line, f"the label is missing, written {text!r}; fill it in or drop the line")
    return word(text)


def _entry(token: bytes, line: int) -> tuple[int, float]:
    index, _, value = token.partition(b":")
    shown = token.decode(errors="replace")
    if not index.isdigit() or b":" not in token:
        raise _WrongLineError(line, f"{shown!r} is not index:value; {_FORM}")
    if int(index) > _MOST:
        raise _WrongLineError(line, f"index {int(index)} is too large; the largest there can be is {_MOST}")
    try:
        if b"_" in value:
            raise ValueError
        return int(index), float(value)
    except ValueError:
        raise _WrongLineError(
            line, f"{value.decode(errors='replace')!r} in {shown!r} is not a number; {_FORM}"
        ) from None
