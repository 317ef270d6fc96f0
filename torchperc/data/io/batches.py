"""New files through a known encoding, some rows at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from torchperc._checks import check_int, is_sparse
from torchperc.data.encoding import Encoding, is_absent, listed, shortest, word
from torchperc.data.io import opening
from torchperc.data.io.blocks import Numbers, Words, block_of, cells_of, from_values, small_indices
from torchperc.data.io.features import Encoder
from torchperc.data.io.files import load_archive, sparse_rows
from torchperc.data.io.survey import kept
from torchperc.data.io.svmlight import SparseBlock, SvmlightFile
from torchperc.data.io.tables import ArrayTable, Table, open_table
from torchperc.samples import convert

_Reading = Callable[[], Iterator[tuple[Any, "list[str] | None"]]]


class Batch(NamedTuple):
    """Some rows of a file.

    ``first`` is the number of the first of them, from 0; ``X`` a tensor of float64 (rows, d) or a CSR array; ``labels``
    what the column of labels says, empty where nothing is said, and ``None`` if the file has no such column.
    """

    first: int
    X: Any
    labels: list[str] | None


class Batches:
    """Read a new file with a known encoding, some rows at a time: an iterable of :class:`Batch`.

    Columns are found by their names, in any order; by position if training had no names. Columns that training did not
    have are ignored (``extra``), and the labels may be absent (``labelled``). Missing columns are an error before the
    first row; a level or an index that training did not have, and a missing value for which there is no mean, are
    errors that name the line. A file that changes while it is read is an error, and no batch has rows of the new
    version.

    Args:
        path: the file, of any kind that :func:`~torchperc.data.read` accepts.
        encoding: learned from the training file.
        rows: how many to hand on together, at most.
        header: whether text begins with a line of names; detected by default.
        delimiter: between the cells of text; detected by default.

    Example:
        >>> import tempfile, pathlib
        >>> from torchperc.data import Column
        >>> encoding = Encoding((Column("weight"), Column("colour", ("green", "red"))), "fruit", ("apple", "pear"))
        >>> file = pathlib.Path(tempfile.mkdtemp()) / "new.csv"
        >>> _ = file.write_text("colour,id,weight\\nred,a7,120\\ngreen,a8,90\\n")
        >>> new = Batches(file, encoding)
        >>> new.extra, new.labelled
        (('id',), False)
        >>> [(batch.first, batch.X.tolist(), batch.labels) for batch in new]
        [(0, [[120.0, 0.0, 1.0], [90.0, 1.0, 0.0]], None)]
    """

    def __init__(
        self,
        path: str | Path,
        encoding: Encoding,
        *,
        rows: int = 65536,
        header: bool | None = None,
        delimiter: str | None = None,
    ) -> None:
        self.path, self.encoding, self.rows = Path(path), encoding, check_int("rows", rows, at_least=1)
        self.names: tuple[str, ...] = ()
        self.extra: tuple[str, ...] = ()
        self._source = opening.Unchanged(self.path)
        with self._source:
            form = opening.form(self.path)
            if form.kind == "svmlight":
                self._read = self._svmlight(SvmlightFile(self.path, form))
            elif form.kind == "npz":
                self._read = self._archive()
            else:
                if header is None and encoding.positions is not None and form.kind == "text":
                    header = False
                known = [] if encoding.positions is not None else [column.name for column in encoding.columns]
                self._read = self._table(open_table(self.path, form, delimiter=delimiter, header=header, known=known))

    def __iter__(self) -> Iterator[Batch]:
        first = 0
        with self._source:
            for X, labels in self._read():
                self._source.check()  # so that no row of a second version is handed on
                for low in range(0, X.shape[0], self.rows):
                    some = slice(low, low + self.rows)
                    yield Batch(first + low, X[some], None if labels is None else labels[some])
                first += X.shape[0]

    def _table(self, table: Table) -> _Reading:
        if self.encoding.sparse:
            raise ValueError(f"{self.path} has columns, but training had numbered features; give an svmlight file")
        self.names = table.names
        positions, target = self._by_name(table) if self.encoding.positions is None else self._by_position(table)
        self.extra = tuple(name for j, name in enumerate(table.names) if j not in {*positions, target})
        self.labelled = target is not None
        encoder = Encoder(self.encoding, positions, target, self.path)

        def read() -> Iterator[tuple[Any, list[str] | None]]:
            for given in table.blocks(encoder.words):
                block = given.kept(kept(given, "mean")[0])
                X = encoder.features(block)
                yield X, None if target is None else _texts(block.columns[target])

        return read

    def _by_name(self, table: Table) -> tuple[list[int], int | None]:
        wanted = [column.name for column in self.encoding.columns]
        if not table.named:
            why = f"has no names of columns, but they go by name: {listed(wanted)}; give it a header with them"
            raise ValueError(f"{self.path} {why}")
        lost = [name for name in wanted if name not in table.names]
        if lost:
            lacks = f"has no column{'s' * (len(lost) > 1)} {listed(lost)}, which training had"
            raise ValueError(f"{self.path} {lacks}; it has {listed(table.names)}")
        target = self.encoding.target if self.encoding.target in table.names else None
        for name in (*wanted, *([] if target is None else [target])):
            if table.names.count(name) > 1:
                raise ValueError(f"{self.path} has {table.names.count(name)} columns {name!r}; which one is meant?")
        return [table.names.index(name) for name in wanted], None if target is None else table.names.index(target)

    def _by_position(self, table: Table) -> tuple[list[int], int | None]:
        positions = [int(column.name) - 1 for column in self.encoding.columns]
        target = None if self.encoding.target is None else int(self.encoding.target) - 1
        count, trained = len(table.names), self.encoding.positions or 0
        if count == trained:
            return positions, target
        if target is not None and count + 1 == trained:
            return [j - (j > target) for j in positions], None
        without = "" if target is None else f", or {trained - 1} without that of the labels"
        why = f"has {count} columns where training had {trained}{without}"
        raise ValueError(f"{self.path} {why}; columns without names go by position")

    def _numbered(self, kind: str) -> None:
        if not self.encoding.sparse:
            wanted = listed([column.name for column in self.encoding.columns])
            raise ValueError(f"{self.path} ({kind}) has numbered features, but training had columns: {wanted}")

    def _svmlight(self, file: SvmlightFile) -> _Reading:
        self._numbered("svmlight")
        self.labelled = file.labelled

        def read() -> Iterator[tuple[Any, list[str] | None]]:
            for block in file.blocks():
                self._check_numbers(block)
                if block.rows:
                    yield sparse_rows(block, self.encoding), None if block.labels is None else block.labels.texts()

        return read

    def _check_numbers(self, block: SparseBlock) -> None:
        low, high = self.encoding.first, self.encoding.first + self.encoding.size - 1
        wrong = np.flatnonzero((block.columns < low) | (block.columns > high))
        if len(wrong):
            at = f"{self.path}, line {block.line_of(wrong[0])}: index {block.columns[wrong[0]]}"
            raise ValueError(f"{at} did not occur in training, where indices went from {low} to {high}")

    def _archive(self) -> _Reading:
        X, y, _, _ = load_archive(self.path)
        labels = None if y is None else _texts(from_values(y, words=True) if y.dtype.kind in "biuf" else y)
        if is_sparse(X):
            self._numbered("sparse npz")
            rows = small_indices(convert.sparse_features(X, dtype=torch.float64, name=f"{self.path}: X"))
            if rows.shape[1] != self.encoding.size:
                raise ValueError(f"{self.path} has {rows.shape[1]} features where training had {self.encoding.size}")
            self.labelled = labels is not None
            return lambda: iter([(rows, labels)])
        width = (self.encoding.positions or len(self.encoding.columns) + 1) - 1
        if self.encoding.target is not None and X.shape[1] != width:
            raise ValueError(f"{self.path}: X has {X.shape[1]} columns where training had {width}")
        inner = self._table(ArrayTable(self.path, X))
        self.labelled = labels is not None

        def read() -> Iterator[tuple[Any, list[str] | None]]:
            first = 0
            for some, _ in inner():
                yield some, None if labels is None else labels[first : first + len(some)]
                first += len(some)

        return read


def _texts(labels: Any) -> list[str]:
    if isinstance(labels, Words):
        return labels.texts()
    if isinstance(labels, Numbers):
        return ["" if value != value else shortest(value) for value in labels.values.tolist()]
    return ["" if is_absent(text := str(value).strip()) else word(text) for value in labels.tolist()]


def frame_features(frame: Any, encoding: Encoding) -> Any:
    """The rows of a pandas frame through a known encoding (N, d), its columns found by name, others ignored."""
    names = [str(name) for name in frame.columns]
    return _named_features(names, lambda j: frame.iloc[:, j], len(frame), encoding)


def dict_features(rows: Sequence[Any], encoding: Encoding) -> Any:
    """A list of dicts through a known encoding (N, d), by their keys, others ignored; ``None`` is a missing value."""
    wrong = next((i for i, row in enumerate(rows) if not isinstance(row, Mapping)), None)
    if wrong is not None:
        raise TypeError(f"X[{wrong}] is {type(rows[wrong]).__name__}, but X[0] is a dict; give a dict per row")
    names = [column.name for column in encoding.columns]
    lost = next(((i, name) for i, row in enumerate(rows) for name in names if name not in row), None)
    if lost is not None:
        has = listed([str(name) for name in rows[lost[0]]])
        raise ValueError(f"X[{lost[0]}] must have each column of training; look at {lost[1]!r}, it has {has}")
    return _named_features(names, lambda j: [row[names[j]] for row in rows], len(rows), encoding)


def _named_features(names: list[str], values: Callable[[int], Any], count: int, encoding: Encoding) -> Any:
    import pyarrow as pa

    if encoding.sparse:
        raise TypeError("X has named columns, but training had numbered features; pass a sparse matrix")
    lost = [column.name for column in encoding.columns if names.count(column.name) != 1]
    if lost:
        raise ValueError(f"X must have each column of training once; look at {listed(lost)}, it has {listed(names)}")
    try:
        arrays = [pa.array(values(names.index(column.name)), from_pandas=True) for column in encoding.columns]
    except pa.ArrowException as error:
        raise ValueError(f"X has a column of mixed kinds ({error}); convert it") from None
    known = zip(arrays, encoding.columns, strict=True)
    block = block_of(count, {j: cells_of(array, not c.is_number) for j, (array, c) in enumerate(known)})
    return Encoder(encoding, range(len(encoding.columns)), None, Path("X")).features(block)
