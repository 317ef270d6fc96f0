"""Sparse samples in svmlight and LIBSVM text: ``label index:value index:value … # comment``.

Arrow parses the numbers; if that fails, the line that is wrong is found by halves.
"""

from __future__ import annotations

import codecs
import io
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from torchperc.data.table_encoder import Fit, TableEncoder
from torchperc.data.table_files import (
    Array,
    ReadOptions,
    Words,
    common_name,
    is_absent,
    is_finite,
    open_bytes,
    pa,
    word,
)

PIECE = 2**24  # bytes of text that are read together
_WIDEST = 2**31 - 1  # number of columns that a CSR array of int32 can have
_FORM = "a line is: label index:value index:value …, with one label, indices that rise, and finite numbers"


class SparseBatch(NamedTuple):
    """Some rows: their lines, labels (``None`` if the file has none), and CSR parts with indices as written."""

    n_rows: int
    nbytes: int
    lines: Sequence[int]
    labels: Words | None
    starts: Array
    columns: Array
    values: Array


class SvmlightFile:
    """An svmlight file, read in pieces.

    Indices count from 1 unless a 0 occurs, and rise within a line. All from ``#`` to the end of the line is ignored. A
    label is any word without a comma or colon; if it is ``real``, a finite number.
    """

    def __init__(self, path: Path, real: bool = False) -> None:
        self.path, self.real = path, real
        (_, first), *_ = next(self._pieces(), [(1, b"label")])
        self.labelled = b":" not in first.split()[0]

    def _pieces(self) -> Iterator[list[tuple[int, bytes]]]:
        """Numbers and text of lines, without comments and empty lines, some at a time."""
        with open_bytes(self.path) as file, io.BufferedReader(file) as text:
            count = 0
            while lines := text.readlines(PIECE):
                lines[0] = lines[0].removeprefix(codecs.BOM_UTF8)
                bare = (line.partition(b"#")[0].strip() for line in lines)
                if numbered := [(number, line) for number, line in enumerate(bare, count + 1) if line]:
                    yield numbered
                count += len(lines)

    def batches(self) -> Iterator[SparseBatch]:
        """The rows, some at a time; the first line that is wrong is an error that names it."""
        return map(self._batch, self._pieces())

    def _batch(self, lines: list[tuple[int, bytes]]) -> SparseBatch:
        """The rows of some lines; if one is wrong, it is looked for in either half."""
        try:
            return self._parsed(*zip(*lines, strict=True))
        except ValueError:
            if len(lines) == 1:
                (number, text), *_ = lines
                found = text[:60].decode(errors="replace")
                raise ValueError(f"{self.path}, line {number}: found {found!r}; {_FORM}") from None
        self._batch(lines[: len(lines) // 2])
        return self._batch(lines[len(lines) // 2 :])

    def _parsed(self, numbers: Sequence[int], lines: Sequence[bytes]) -> SparseBatch:
        """The rows of some lines; any ``ValueError`` if something is not as it should be."""
        labels = None
        if self.labelled:
            tokens, lines = zip(*((*text.split(None, 1), b"")[:2] for text in lines), strict=True)
            distinct, codes = np.unique(tokens, return_inverse=True)
            words = [text.decode() for text in distinct.tolist()]
            if any(is_absent(text) or {*":,"} & {*text} or (self.real and not is_finite(text)) for text in words):
                raise ValueError
            labels = Words(codes, tuple(map(word, words)))
        types = {"index": pa.int32(), "value": pa.float64()}
        table = pa.csv.read_csv(
            pa.BufferReader(b"\n".join([b"0:0", *lines]).translate(bytes.maketrans(b" \t\r", b"\n\n\n"))),
            pa.csv.ReadOptions(column_names=list(types)),
            pa.csv.ParseOptions(delimiter=":", quote_char=False),
            pa.csv.ConvertOptions(column_types=types, null_values=[]),
        )
        columns, values = (np.from_dlpack(table[name].combine_chunks())[1:] for name in types)
        starts = np.cumsum([0, *(text.count(b":") for text in lines)], dtype=np.int32)
        rows = np.repeat(np.arange(len(lines)), np.diff(starts))
        right = np.isfinite(values) & (columns.view("u4") < _WIDEST)
        if not right.all() or (np.diff(np.add(rows << 31, columns)) <= 0).any():
            raise ValueError
        size = starts.nbytes + columns.nbytes + values.nbytes
        return SparseBatch(len(lines), size, numbers, labels, starts, columns, values)

    def samples(self, batch: SparseBatch, first: int, width: int) -> Any:
        """Some rows as a CSR array; an index that training did not have is an error that names the line."""
        from scipy.sparse import csr_array

        for wrong in np.flatnonzero((batch.columns < first) | (batch.columns >= first + width))[:1]:
            line = batch.lines[np.searchsorted(batch.starts, wrong, side="right") - 1]
            at = f"{self.path}, line {line}: index {batch.columns[wrong]} did not occur in training"
            raise ValueError(f"{at}, where indices went from {first} to {first + width - 1}")
        return csr_array((batch.values, batch.columns - np.int32(first), batch.starts), shape=(batch.n_rows, width))


class SvmlightFit(Fit):
    """What the rows of svmlight files say about labels and indices; ``keep`` gets the rows."""

    def __init__(self, files: Sequence[SvmlightFile], options: ReadOptions, keep: Callable[[Any], None]) -> None:
        self.path, self._files = common_name([file.path for file in files]), files
        labels, lowest, highest = dict[str, None](), 1, 0
        for batch in self.batches():
            if batch.labels is None:
                raise ValueError(f"{self.path} has no labels: its lines begin with index:value; {_FORM}")
            labels.update(dict.fromkeys(batch.labels.levels))
            lowest = min(lowest, int(batch.columns.min(initial=1)))
            highest = max(highest, int(batch.columns.max(initial=0)))
            self.rows += batch.n_rows
            keep(batch)
        if highest < lowest or not self.rows:
            raise ValueError(f"{self.path} has no {'features' if self.rows else 'samples'} in it; {_FORM}")
        named = self._infer_task(str(self.path), None, labels, options.task)
        self._indices = lowest, highest - lowest + 1
        self.encoder = TableEncoder((), None, named, indices=self._indices, options=options.of_new_files())

    def batches(self) -> Iterator[SparseBatch]:
        """The rows of all files."""
        return chain.from_iterable(file.batches() for file in self._files)

    def encode(self, batch: SparseBatch, out: Any = None) -> tuple[Any, Array, Array]:
        """Features of some rows, no missing positions, and targets."""
        X = self._files[0].samples(batch, *self._indices)
        return X, np.empty((0, 2), np.int64), self.encoder.targets(batch.labels)
