"""Sparse samples in svmlight and LIBSVM text: ``label index:value index:value … # comment``.

Arrow parses the numbers; if that fails, a plain loop finds the line that is wrong.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from torchperc._checks import Option, ParameterError
from torchperc.data.file_formats import ReadOptions, Source, common_name
from torchperc.data.table_encoder import Fit, TableEncoder, check_classes, in_order, is_finite
from torchperc.data.table_files import Array, Words, as_matrix, is_absent, is_number, pa, word

PIECE = 2**24  # bytes of text that are read together
_MOST = 2**31 - 2  # the largest index that a CSR array of int32 can have
_FORM = "a line is: label index:value index:value …"


class SparseBatch(NamedTuple):
    """Some rows: their lines, labels (``None`` if the file has none), and CSR parts with indices as written."""

    rows: Array
    labels: Words | None
    starts: Array
    columns: Array
    values: Array

    @property
    def nbytes(self) -> int:
        """Memory that the samples take."""
        return self.starts.nbytes + self.columns.nbytes + self.values.nbytes

    def line_of(self, entry: int) -> int:
        """The line in which an entry is written."""
        return int(self.rows[np.searchsorted(self.starts, entry, side="right") - 1])

    def csr(self, first: int, width: int) -> Any:
        """The rows as a CSR array; ``first`` is the number of the first feature."""
        from scipy.sparse import csr_array

        starts = self.starts.astype(np.int32) if self.starts[-1] <= _MOST else self.starts
        return csr_array((self.values, self.columns - np.int32(first), starts), shape=(len(starts) - 1, width))


class SvmlightFile:
    """An svmlight file, read in pieces.

    Indices count from 1 unless a 0 occurs, and rise within a line. ``qid:…`` behind the label is ignored, as is all
    from ``#`` to the end of the line. A label is any word without a comma or colon; if it is ``real``, a finite number.
    """

    def __init__(self, path: Path, compression: str | None, real: bool = False) -> None:
        self.path, self._compression, self.real = path, compression, real
        with Source(path, compression) as source:
            lines = source.read(2**16).removeprefix(b"\xef\xbb\xbf").splitlines()
        first = next((tokens for line in lines if (tokens := line.split(b"#")[0].split())), [b""])
        self.labelled = b":" not in first[0]

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
        batch = _by_arrow(data, self.labelled)
        if batch is None or not np.isfinite(batch.values).all():
            faults = ((number, _fault(text, self.labelled)) for number, text in enumerate(data.split(b"\n"), line))
            number, what = next((each for each in faults if each[1]), (line, _FORM))
            raise ValueError(f"{self.path}, line {number}: {what}")
        if self.real and batch.labels is not None:
            odd = ~np.array([*map(is_finite, batch.labels.levels), True])[batch.labels.codes]
            if odd.any():
                row = int(np.argmax(odd))
                what = f"the target {batch.labels.texts()[row]!r} is not a finite number; correct it, or learn classes "
                at = f"{self.path}, line {batch.rows[row] + line}: "
                raise ParameterError(f"{at}{what}with ", Option("task", "classification"))
        return batch._replace(rows=batch.rows + line)


class SvmlightFit(Fit):
    """What the rows of svmlight files say about labels and indices; ``keep`` gets the rows."""

    def __init__(self, files: Sequence[SvmlightFile], options: ReadOptions, keep: Callable[[Any], None]) -> None:
        self.path, self.files, self.options = common_name([file.path for file in files]), files, options
        labels, self._lowest, self._highest = dict[str, None](), 1, 0
        for file in files:
            if not file.labelled:
                why = "has no labels: its lines begin with index:value; a line is: label index:value …"
                raise ValueError(f"{file.path} {why}")
        for batch in self.batches():
            assert batch.labels is not None
            labels.update(dict.fromkeys(batch.labels.levels))
            self._lowest = min(self._lowest, int(batch.columns.min(initial=1)))
            self._highest = max(self._highest, int(batch.columns.max(initial=0)))
            self.rows += len(batch.rows)
            keep(batch)
        self.labels = labels

    def batches(self, encoder: TableEncoder | None = None) -> Iterator[SparseBatch]:
        """The rows of all files."""
        return chain.from_iterable(file.batches() for file in self.files)

    def encoder(self) -> TableEncoder:
        """What has been learned."""
        if not self.rows:
            raise ValueError(f"{self.path} has no samples in it")
        if self._highest < self._lowest:
            raise ValueError(f"{self.path} has no features in it: every line is a label alone")
        check_classes(str(self.path), self.labels, self.rows, self.options.task, "write a class in its place")
        labels, width = () if self.quantity else in_order(self.labels), self._highest - self._lowest + 1
        options = self.options.of_new_files()
        return TableEncoder((), None, labels, indices=(self._lowest, width), options=options)

    def encode(self, encoder: TableEncoder, batch: SparseBatch, out: Any = None) -> tuple[Any, Array, Array]:
        """Features of some rows, no missing positions, and targets."""
        assert encoder.indices is not None
        return batch.csr(*encoder.indices), np.empty((0, 2), np.int64), encoder.targets(batch.labels)


def _by_arrow(data: bytes, labelled: bool) -> SparseBatch | None:
    """The rows of some text, lines from 0; ``None`` if anything is not as it should be.

    What is behind the labels is read as a table of index and value, with a row of nulls where each line begins.
    """
    import pyarrow.csv as arrow

    tokens, lines = list[bytes](), data.split(b"\n")
    if labelled:
        cut = [text.split(None, 1) or [b""] for text in lines]
        tokens, lines = [each[0] for each in cut], [each[1] if len(each) > 1 else b"" for each in cut]
    text = b"\n".join([b":", b"\n:\n".join(lines)])
    text = re.sub(rb":\+(?=[\d.])", b":", text) if b":+" in text else text
    text = re.sub(rb"(?m)^:\nqid:\S*", b":", text) if b":\nqid:" in text else text
    types = {"index": pa.int32(), "value": pa.float64()}
    try:
        words = {token: _label(token) for token in dict.fromkeys(tokens) if token}
        table = arrow.read_csv(
            pa.BufferReader(text.translate(bytes.maketrans(b" \t\r", b"\n\n\n"))),
            arrow.ReadOptions(column_names=list(types)),
            arrow.ParseOptions(delimiter=":", quote_char=False),
            arrow.ConvertOptions(column_types=types, null_values=[""]),
        )
    except ValueError:  # of a label, or Arrow's
        return None
    columns, values = (np.concatenate([as_matrix([chunk])[:, 0] for chunk in table[name].chunks]) for name in types)
    entry = ~np.isnan(columns)
    begins = np.flatnonzero(~entry)
    starts = np.append(begins - np.arange(len(begins)), np.count_nonzero(entry))
    there = np.array([token != b"" for token in tokens]) if labelled else np.diff(starts) > 0
    null = sum(chunk.null_count for chunk in table["value"].chunks)
    columns, values = columns[entry].astype(np.int32), values[entry]
    rises = np.diff(columns, prepend=-1) > 0
    rises[starts[:-1][starts[:-1] < len(rises)]] = True
    fine = len(begins) == len(lines) == null and rises.all() and not np.diff(starts)[~there].any()
    if not fine or columns.min(initial=0) < 0 or columns.max(initial=0) > _MOST:
        return None
    rows = np.flatnonzero(there)
    numbering = {label: number for number, label in enumerate(dict.fromkeys(words.values()))}
    codes = {token: numbering[label] for token, label in words.items()}
    labels = Words(np.array([codes[token] for token in tokens if token], np.int64), tuple(numbering))
    return SparseBatch(rows, labels if labelled else None, np.append(starts[rows], starts[-1]), columns, values)


def _label(token: bytes) -> str:
    """A label as a word; a ``ValueError`` says what is wrong with it."""
    try:
        text = token.decode()
    except UnicodeDecodeError:
        raise ValueError(f"the label {token!r} is not in UTF-8; save the file as UTF-8") from None
    if ":" in text:
        raise ValueError(f"{text!r} stands where the label should be; {_FORM}")
    if "," in text:
        raise ValueError(f"{text!r} is several labels; only one per sample is accepted")
    if is_absent(text):
        raise ValueError(f"the label is missing, written {text!r}; fill it in or drop the line")
    return word(text)


def _fault(line: bytes, labelled: bool) -> str:
    """What is wrong with a line; empty if nothing is."""
    tokens, previous = line.split(), -1
    try:
        if labelled and tokens:
            _label(tokens.pop(0))
            tokens = tokens[1:] if tokens and tokens[0].startswith(b"qid:") else tokens
    except ValueError as error:
        return str(error)
    for token in tokens:
        index, colon, value = token.decode(errors="replace").partition(":")
        if not (index.isascii() and index.isdigit() and colon):
            return f"{index + colon + value!r} is not index:value; {_FORM}"
        if int(index) > _MOST:
            return f"index {int(index)} is too large; the largest there can be is {_MOST}"
        if not is_number(value):
            return f"{value!r} in {index + colon + value!r} is not a number; {_FORM}"
        if not is_finite(value):
            return f"index {index} has the value {float(value)}, which is not a finite number; correct it"
        if int(index) <= previous:
            order = "twice" if int(index) == previous else f"behind {previous}"
            return f"index {index} comes {order}; indices must rise within a line"
        previous = int(index)
    return ""
