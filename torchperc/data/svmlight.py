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
from torchperc.data.table_encoder import Fit, TableEncoder
from torchperc.data.table_files import (
    Array,
    ReadOptions,
    Words,
    as_numbers,
    common_name,
    is_absent,
    is_finite,
    open_bytes,
    pa,
    word,
)

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

        return csr_array((self.values, self.columns - np.int32(first), self.starts), shape=(self.n_rows, width))


class SvmlightFile:
    """An svmlight file, read in pieces.

    Indices count from 1 unless a 0 occurs, and rise within a line. ``qid:…`` behind the label is ignored, as is all
    from ``#`` to the end of the line. A label is any word without a comma or colon; if it is ``real``, a finite number.
    """

    def __init__(self, path: Path, real: bool = False) -> None:
        self.path, self.real = path, real
        with open_bytes(path) as file:
            lines = file.read(2**16).removeprefix(b"\xef\xbb\xbf").splitlines()
        first = next((tokens for line in lines if (tokens := line.split(b"#")[0].split())), [b""])
        self.labelled = b":" not in first[0]

    def batches(self) -> Iterator[SparseBatch]:
        """The rows, some at a time; the first line that is wrong is an error that names it."""
        with open_bytes(self.path) as file:
            new, rest, line = b"first", file.read(3).removeprefix(b"\xef\xbb\xbf"), 1
            while new:
                new = file.read(PIECE)
                data = rest + new
                end = data.rfind(b"\n") + 1 if new else len(data)
                text, rest = re.sub(rb"#[^\n]*", b"", data[:end]), data[end:]
                try:
                    batch = self._parsed(text)
                except ValueError:
                    self._check_lines(text, line)
                    raise
                yield batch._replace(lines=batch.lines + line)
                line += text.count(b"\n")

    def _parsed(self, data: bytes) -> SparseBatch:
        """The rows of some text, lines from 0; any ``ValueError`` if something is not as it should be.

        What is behind the labels is read as a table of index and value, with a row of nulls where each line begins.
        """
        lines: Sequence[bytes] = data.split(b"\n")
        if self.labelled:
            tokens, lines = zip(*((*text.split(None, 1), b"", b"")[:2] for text in lines), strict=True)
        text = b"\n".join([b":", b"\n:\n".join(lines)])
        text = re.sub(rb"(?m)^:\nqid:\S*", b":", text) if b":\nqid:" in text else text
        types = {"index": pa.int32(), "value": pa.float64()}
        table = pa.csv.read_csv(
            pa.BufferReader(text.translate(bytes.maketrans(b" \t\r", b"\n\n\n"))),
            pa.csv.ReadOptions(column_names=list(types)),
            pa.csv.ParseOptions(delimiter=":", quote_char=False),
            pa.csv.ConvertOptions(column_types=types, null_values=[""]),
        )
        columns, values = (as_numbers(table[name].combine_chunks()) for name in types)
        entry = ~np.isnan(columns)
        begins = np.flatnonzero(~entry)
        starts = np.append(begins - np.arange(len(begins)), np.count_nonzero(entry))
        there = np.array([token != b"" for token in tokens]) if self.labelled else np.diff(starts) > 0
        columns, values = columns[entry].astype(np.int32), values[entry]
        rises = np.diff(columns, prepend=-1) > 0
        rises[starts[:-1][starts[:-1] < len(rises)]] = True
        fine = len(begins) == len(lines) == table["value"].null_count and rises.all() and np.isfinite(values).all()
        if not fine or np.diff(starts)[~there].any() or columns.min(initial=0) < 0 or columns.max(initial=0) > _MOST:
            raise ValueError(_FORM)
        rows = np.flatnonzero(there)
        distinct, codes = np.unique(np.array(tokens)[rows] if self.labelled else [], return_inverse=True)
        labels = Words(codes, tuple(map(self._label, distinct.tolist()))) if self.labelled else None
        return SparseBatch(rows, labels, np.append(starts[rows], starts[-1]).astype(np.int32), columns, values)

    def _label(self, token: bytes) -> str:
        """A label as a word."""
        text = token.decode(errors="replace")
        if is_absent(text) or any(sign in text for sign in ":,\ufffd"):
            raise ValueError(f"{text!r} is no label, which is one word in UTF-8 without a comma or colon; {_FORM}")
        if self.real and not is_finite(text):
            what = f"the target {text!r} is not a finite number; correct it, or learn classes with "
            raise ParameterError(what, Option("task", "classification"))
        return word(text)

    def _check_lines(self, data: bytes, line: int) -> None:
        """Raise an error that names the first line of some text that is wrong, and what is."""
        for number, text in enumerate(data.split(b"\n"), line):
            tokens, previous = text.decode(errors="replace").split(), -1
            if self.labelled and tokens:
                try:
                    self._label(text.split()[0])
                except ValueError as error:
                    raise ParameterError(f"{self.path}, line {number}: ", *error.args) from None
                tokens = tokens[2:] if tokens[1:] and tokens[1].startswith("qid:") else tokens[1:]
            for token in tokens:
                index, _, value = token.partition(":")
                if not (index.isascii() and index.isdigit() and previous < int(index) <= _MOST and is_finite(value)):
                    what = f"{token!r}{f' behind index {previous}' * (previous >= 0)} is not index:value"
                    why = "with a larger index and a finite number"
                    raise ValueError(f"{self.path}, line {number}: {what} {why}; {_FORM}")
                previous = int(index)

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
                raise ValueError(f"{file.path} has no labels: its lines begin with index:value; {_FORM}")
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
