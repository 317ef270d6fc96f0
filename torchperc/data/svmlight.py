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
from torchperc.data.file_formats import ReadOptions, common_name, open_bytes
from torchperc.data.table_encoder import Fit, TableEncoder
from torchperc.data.table_files import Array, Words, as_matrix, is_absent, is_finite, pa, word

PIECE = 2**24  # bytes of text that are read together
_MOST = 2**31 - 2  # the largest index that a CSR array of int32 can have
_FORM = "a line is: label index:value index:value …"


class SparseBatch(NamedTuple):
    """Some rows: their lines, labels (``None`` if the file has none), and CSR parts with indices as written."""

    lines: Array
    labels: Words | None
    starts: Array
    columns: Array
    values: Array

    @property
    def n_rows(self) -> int:
        """The number of rows."""
        return len(self.lines)

    @property
    def nbytes(self) -> int:
        """Memory that the samples take."""
        return self.starts.nbytes + self.columns.nbytes + self.values.nbytes

    def csr(self, first: int, width: int) -> Any:
        """The rows as a CSR array; ``first`` is the number of the first feature."""
        from scipy.sparse import csr_array

        starts = self.starts.astype(np.int32) if self.starts[-1] <= _MOST else self.starts
        return csr_array((self.values, self.columns - np.int32(first), starts), shape=(self.n_rows, width))


class SvmlightFile:
    """An svmlight file, read in pieces.

    Indices count from 1 unless a 0 occurs, and rise within a line. ``qid:…`` behind the label is ignored, as is all
    from ``#`` to the end of the line. A label is any word without a comma or colon; if it is ``real``, a finite number.
    """

    def __init__(self, path: Path, compression: str | None, real: bool = False) -> None:
        self.path, self._compression, self.real = path, compression, real
        with open_bytes(path, compression) as file:
            lines = file.read(2**16).removeprefix(b"\xef\xbb\xbf").splitlines()
        first = next((tokens for line in lines if (tokens := line.split(b"#")[0].split())), [b""])
        self.labelled = b":" not in first[0]

    def batches(self) -> Iterator[SparseBatch]:
        """The rows, some at a time."""
        rest, line, last = b"", 1, False
        with open_bytes(self.path, self._compression) as file:
            while not last:
                new = file.read(PIECE)
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
            number = line - 1
            try:
                for number, text in enumerate(data.split(b"\n"), line):  # noqa: B007 - the last of them is named
                    _check_line(text, self.labelled)
                raise ValueError(_FORM)
            except ValueError as error:
                raise ValueError(f"{self.path}, line {number}: {error}") from None
        batch = batch._replace(lines=batch.lines + line)
        if self.real and batch.labels is not None:
            finite = batch.labels.look_up([*map(is_finite, batch.labels.levels)], True)
            for row in np.flatnonzero(~finite)[:1]:
                what = f"the target {batch.labels.texts()[row]!r} is not a finite number; correct it, or learn classes "
                at = f"{self.path}, line {batch.lines[row]}: "
                raise ParameterError(f"{at}{what}with ", Option("task", "classification"))
        return batch

    def known(self, batch: SparseBatch, first: int, width: int) -> Any:
        """Some rows as a CSR array; an index that training did not have is an error that names the line."""
        for wrong in np.flatnonzero((batch.columns < first) | (batch.columns >= first + width))[:1]:
            line = batch.lines[np.searchsorted(batch.starts, wrong, side="right") - 1]
            at = f"{self.path}, line {line}: index {batch.columns[wrong]} did not occur in training"
            raise ValueError(f"{at}, where indices went from {first} to {first + width - 1}")
        return batch.csr(first, width)


class SvmlightFit(Fit):
    """What the rows of svmlight files say about labels and indices; ``keep`` gets the rows."""

    def __init__(self, files: Sequence[SvmlightFile], options: ReadOptions, keep: Callable[[Any], None]) -> None:
        self.path, self._files = common_name([file.path for file in files]), files
        labels, lowest, highest = dict[str, None](), 1, 0
        for file in files:
            if not file.labelled:
                why = "has no labels: its lines begin with index:value; a line is: label index:value …"
                raise ValueError(f"{file.path} {why}")
        for batch in self.batches():
            assert batch.labels is not None
            labels.update(dict.fromkeys(batch.labels.levels))
            lowest = min(lowest, int(batch.columns.min(initial=1)))
            highest = max(highest, int(batch.columns.max(initial=0)))
            self.rows += batch.n_rows
            keep(batch)
        if highest < lowest or not self.rows:
            raise ValueError(f"{self.path} has no {'features' if self.rows else 'samples'} in it; {_FORM}")
        named = self._infer_task(str(self.path), None, labels, options.task)
        indices = lowest, highest - lowest + 1
        self.encoder = TableEncoder((), None, named, indices=indices, options=options.of_new_files())

    def batches(self) -> Iterator[SparseBatch]:
        """The rows of all files."""
        return chain.from_iterable(file.batches() for file in self._files)

    def encode(self, batch: SparseBatch, out: Any = None) -> tuple[Any, Array, Array]:
        """Features of some rows, no missing positions, and targets."""
        assert self.encoder.indices is not None
        return batch.csr(*self.encoder.indices), np.empty((0, 2), np.int64), self.encoder.targets(batch.labels)


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
    """A label as a word."""
    text = token.decode(errors="replace")
    if is_absent(text) or any(sign in text for sign in ":,\ufffd"):
        raise ValueError(f"{text!r} is no label, which is one word in UTF-8 without a comma or colon; {_FORM}")
    return word(text)


def _check_line(line: bytes, labelled: bool) -> None:
    """Raise an error that names what is wrong in a line, if anything is."""
    tokens, previous = line.split(), -1
    if labelled and tokens:
        _label(tokens.pop(0))
        tokens = tokens[1:] if tokens and tokens[0].startswith(b"qid:") else tokens
    for token in tokens:
        text = token.decode(errors="replace")
        index, _, value = text.partition(":")
        if not (index.isascii() and index.isdigit() and previous < int(index) <= _MOST and is_finite(value)):
            after = f" behind index {previous}" * (previous >= 0)
            raise ValueError(f"{text!r}{after} is not index:value with a larger index and a finite number; {_FORM}")
        previous = int(index)
