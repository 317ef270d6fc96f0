"""Data sets out of files: tables, svmlight, numpy arrays; in memory, or converted if they are too large."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import lazy_loader
import numpy as np

from torchperc._checks import Option, ParameterError, check_choice, check_int
from torchperc.data.file_formats import ReadOptions, Unchanged, find_files, format_of
from torchperc.data.on_disk import ArrayFolder, free_memory
from torchperc.data.svmlight import SparseBatch, SvmlightFile, SvmlightFit
from torchperc.data.table_encoder import TableEncoder, TableFit, as_samples
from torchperc.data.table_files import FileTable, TableBatch, Words, frame_table, listed, open_table, shortest

if TYPE_CHECKING:
    import torch

    from torchperc.data.datasets import Dataset
else:
    torch = lazy_loader.load("torch")  # a bad file is refused before torch is imported

SHARE = 0.25  # fraction of the free memory that features may take; what takes more is converted and mapped instead
_NAME, _SMALL = 64, 2**24  # bytes that a feature's name takes, and that are always there for names and weights
_OF_TEXT, _OF_TABLES = ("header", "delimiter", "decimal", "encoding"), ("missing", "na", "categories", "ignore", "text")


def read(path: Any, target: str | int | None = None, **options: Any) -> Dataset:
    """Read a file with a column of labels or real targets, several files as one, or a data frame.

    The format is inferred from the extension: text (``.csv .tsv .txt .data``, and any other), Parquet
    (``.parquet .pq``), svmlight (``.svm .svmlight .libsvm``), a matrix (``.npy``), or arrays X and y (``.npz``). Text
    and svmlight may be compressed (``.gz .bz2 .xz .zst``).

    A column is a number if all that is in it are numbers, a date if all are dates, and a category if fewer than half
    are numbers: then each of its levels becomes a feature of 0 and 1. Anything between is an error that names the cell.
    A line in which nothing is written is no row. ``Dataset.notes`` says what was recognised.

    Text is a column that is named as such, or one whose values are nearly all different and long: five words of two
    letters or more on average, and more than 20 different values that are more than half as many as rows (or more than
    1,000). Its words and pairs of words that occur in two rows or more become features, and X is sparse.

    Args:
        path: the file; a pattern such as ``data/part-*.parquet``, whose files are read in the order of their names; a
            list of files, which need the same columns in the same order; or a pandas ``DataFrame``.
        target: the column of labels or targets, by name or by position from 1; the last one by default. Of an ``.npz``
            file, the name of that array.
        options: how to read it, see :class:`~torchperc.data.ReadOptions`.

    Raises:
        ValueError: if the file cannot be read, is not as described, or changes while it is read.

    Example:
        >>> import tempfile, pathlib
        >>> file = pathlib.Path(tempfile.mkdtemp()) / "fruit.csv"
        >>> _ = file.write_text("weight,colour,fruit\\n120,red,apple\\n110,,banana\\n90,green,apple\\n")
        >>> fruit = read(file, missing="mean")
        >>> fruit.names, fruit.labels
        (('weight', 'colour=green', 'colour=red'), ('apple', 'banana'))
        >>> fruit.X.tolist(), fruit.y.tolist()
        ([[120.0, 0.0, 1.0], [110.0, 0.5, 0.5], [90.0, 1.0, 0.0]], [-1, 1, -1])
        >>> fruit.missing_positions.tolist(), fruit.notes
        ([[1, 1], [1, 2]], ("missing values imputed: 1 in 'colour'",))
        >>> read(file, "weight", ignore="colour", task="regression").y.tolist()
        [120.0, 110.0, 90.0]
    """
    how = ReadOptions(**options)
    paths = () if is_frame(path) else find_files(path)
    with Unchanged(*paths) as source:
        kept = _Kept(how)
        known = () if target is None else (str(target),)
        opened = _open(paths, how, known, target) if paths else frame_table(path, "the data frame")
        fit: TableFit | SvmlightFit
        if isinstance(opened, FileTable):
            of_archive = opened.path.suffix.lower() == ".npz"  # whose target is behind the columns of X
            fit = TableEncoder.fit(opened, None if of_archive else target, how, kept)
        else:
            fit = SvmlightFit(opened, how, kept)
        made = _dataset(fit, kept, how, source)
        source.check()
    return made if how.positive is None else made.against_rest(how.positive)


def is_frame(source: object) -> bool:
    """Whether something is a pandas data frame."""
    return hasattr(source, "columns") and hasattr(source, "iloc")


def _open(
    paths: Sequence[Path], options: ReadOptions, known: Sequence[str], target: Any = None, labelled: bool = True
) -> FileTable | list[SvmlightFile]:
    """A table, or svmlight files; ``known`` are names of columns, and ``target`` is one if it is given."""
    formats = [format_of(path) for path in paths]
    kind = formats[0].kind
    for path, each in zip(paths, formats, strict=True):
        if each.kind != kind:
            raise ValueError(f"{path} is {each.kind}, but {paths[0]} is {kind}; read one kind at a time")
    for name in _OF_TEXT if kind != "text" else ():
        if getattr(options, name) is not None:
            why = f" needs text files such as .csv, but {paths[0]} is none; leave it out"
            raise ParameterError(Option(name, getattr(options, name)), why)
    if kind != "svmlight":
        return open_table(paths, formats, options, known, None if target is None else str(target), labelled)
    for name, given in {**{name: getattr(options, name) for name in _OF_TABLES}, "target": target}.items():
        if given not in (None, (), "error") and labelled:
            raise ParameterError(Option(name, given), f" needs columns, and {paths[0]} (svmlight) has none")
    real = options.task == "regression"
    return [SvmlightFile(path, each.compression, real) for path, each in zip(paths, formats, strict=True)]


class _Kept:
    """Batches of the first reading, as long as they fit into the memory that samples may take."""

    def __init__(self, options: ReadOptions) -> None:
        stream = options.stream
        self.room = SHARE * free_memory() if stream is None else -1 if stream else math.inf
        self(None)

    def __call__(self, batch: TableBatch | SparseBatch | None) -> None:
        """Keep a batch; ``None`` forgets all."""
        if batch is None:
            self.size, self._batches = 0, deque[Any]()
        else:
            self.size += batch.nbytes
            self._batches.append(batch)
        if self.size > self.room:
            self._batches.clear()

    def __iter__(self) -> Iterator[Any]:
        while self._batches:
            yield self._batches.popleft()


def _check_size(path: Path, width: int, labels: int) -> None:
    """Refuse more features than memory holds names and weights for."""
    size, free = width * (_NAME + 8 * labels), free_memory()
    if size > max(SHARE * free, _SMALL):
        room = f"names and weights take {size / 1e9:,.1f} GB where {free / 1e9:,.1f} GB are free"
        raise ValueError(f"{path} has {width:,} features and {labels:,} labels, whose {room}; look for a wrong index")


def _stacked(pieces: Iterable[Any], in_memory: bool, options: ReadOptions, shape: tuple[int, int] | None = None) -> Any:
    """Matrices one below the other, CSR arrays unless they have a shape together."""
    if not in_memory:
        with ArrayFolder(options.cache) as folder:
            return folder.sparse(pieces) if shape is None else folder.dense(pieces, shape)
    from scipy.sparse import csr_array, vstack

    held = list(pieces)
    return as_samples(held[0] if len(held) == 1 else csr_array(vstack(held, format="csr")))


def _dataset(fit: TableFit | SvmlightFit, kept: _Kept, options: ReadOptions, source: Unchanged) -> Dataset:
    """One pass has fitted the encoder; a second one encodes unless the rows were kept."""
    encoder, rows = fit.encoder(), fit.rows
    width, sparse = encoder.n_features, encoder.is_sparse
    _check_size(fit.path, width, len(encoder.labels))
    from torchperc.data.datasets import Dataset  # which needs torch; most files are refused before

    in_memory = kept.size <= kept.room and (sparse or 8 * rows * width <= kept.room)
    matrix = np.empty((rows, width)) if in_memory and not sparse else None
    y = np.empty(rows, np.int64 if encoder.labels else np.float64)
    missing = [np.empty((0, 2), np.int64)]

    def encoded() -> Iterator[Any]:
        first = 0
        batch: Any
        for batch in kept if in_memory else fit.batches(encoder):
            last = first + len(batch.rows)
            source.check(last <= rows)
            made, found, y[first:last] = fit.encode(encoder, batch, None if matrix is None else matrix[first:last])
            missing.append(found + np.array([first, 0]))
            first = last
            if len(batch.rows):
                yield as_samples(made) if sparse else made
        source.check(first == rows)  # before what is written has a name

    if matrix is not None:
        deque(encoded(), maxlen=0)
        X: Any = torch.from_numpy(matrix)
    else:
        X = _stacked(encoded(), in_memory, options, None if sparse else (rows, width))
    return Dataset(
        X,
        torch.from_numpy(y),
        encoder.labels,
        encoder.feature_names,
        name=fit.path.name,
        encoder=encoder,
        missing_positions=torch.from_numpy(np.concatenate(missing)) if options.missing == "mean" else None,
        dropped=fit.dropped,
        target=encoder.target,
        inferred_task=fit.inferred_task,
        notes=fit.notes(encoder),
    )


class Batch(NamedTuple):
    """Some rows of a new file.

    ``first`` is the number of the first of them, from 0; ``X`` a tensor of float64 (rows, d) or a CSR array; ``labels``
    those of the file, empty where one is missing, and ``None`` if it has no such column; ``kept`` the columns that were
    asked for, as text.
    """

    first: int
    X: Any
    labels: list[str] | None
    kept: dict[str, list[str]]


class Batches:
    """The rows of a new file through a known encoder, some at a time: an iterable of :class:`Batch`.

    Columns are found by their names, in any order; by position if training had no names. Columns that training did not
    have are ignored (``extra``), and the labels may be absent (``labelled``). Missing columns are an error before the
    first row; a level or an index that training did not have, and a missing value that cannot be imputed, are errors
    that name the line. A file that changes while it is read is an error, and no batch has rows of the new version.

    Args:
        path: the file, of any format that :func:`~torchperc.data.read` accepts.
        encoder: learned from the training file; it remembers how that was read.
        rows: the maximum number of rows in a batch.
        unknown: ``"ignore"`` encodes a level that training did not have as zeros; ``"error"`` names it.
        keep: names of columns to hand on as they are written, ``"all"`` for every one.
        reading: other options than those of the training file: ``delimiter``, ``decimal``, ``encoding``, …

    Example:
        >>> import tempfile, pathlib
        >>> from torchperc.data import Column
        >>> encoder = TableEncoder((Column("weight"), Column("colour", ("green", "red"))), "fruit", ("apple", "pear"))
        >>> file = pathlib.Path(tempfile.mkdtemp()) / "new.csv"
        >>> _ = file.write_text("colour,id,weight\\nred,a7,120\\ngreen,a8,90\\n")
        >>> new = Batches(file, encoder, keep=["id"])
        >>> new.extra, new.labelled
        (('id',), False)
        >>> [(batch.X.tolist(), batch.labels, batch.kept) for batch in new]
        [([[120.0, 0.0, 1.0], [90.0, 1.0, 0.0]], None, {'id': ['a7', 'a8']})]
    """

    def __init__(
        self,
        path: str | Path,
        encoder: TableEncoder,
        *,
        rows: int = 65536,
        unknown: str = "error",
        keep: str | Sequence[str] = (),
        **reading: Any,
    ) -> None:
        self.path, self.encoder, self.rows = Path(path), encoder, check_int("rows", rows, at_least=1)
        self.unknown, self._keep = check_choice("unknown", unknown, ("error", "ignore")), keep
        self.extra: tuple[str, ...] = ()
        self._source = Unchanged(self.path)
        with self._source:
            options, known = encoder.options.of_new_files(**reading), [column.name for column in encoder.columns]
            if format_of(self.path).kind != "text":
                options = ReadOptions(na=options.na)
            elif encoder.n_columns is not None:
                options, known = replace(options, header=bool(options.header)), []
            opened = _open([self.path], options, known, labelled=False)
            self._read = self._open_table(opened) if isinstance(opened, FileTable) else self._open_sparse(opened[0])

    def __iter__(self) -> Iterator[Batch]:
        first = 0
        with self._source:
            for X, labels, kept in self._read():
                self._source.check()  # so that no row of a second version is handed on
                for low in range(0, X.shape[0], self.rows):
                    some = slice(low, low + self.rows)
                    named = {name: values[some] for name, values in kept.items()}
                    yield Batch(first + low, X[some], None if labels is None else labels[some], named)
                first += X.shape[0]

    def _open_table(self, table: FileTable) -> Callable[[], Iterator[Any]]:
        """A function that yields features, labels and the columns to keep."""
        if self.encoder.indices is not None:
            raise ValueError(f"{self.path} has columns, but training had numbered features; give an svmlight file")
        positions, target = self._by_position(table) if self.encoder.n_columns else self.encoder.find_columns(table)
        self.extra = tuple(name for j, name in enumerate(table.names) if j not in {*positions, target})
        self.labelled = target is not None
        names = [self._keep] if isinstance(self._keep, str) else self._keep
        names = table.names if self._keep == "all" else names
        for name in names:
            if name not in table.names:
                has = f" is no column of {self.path}; it has {listed(table.names)}"
                raise ParameterError(Option("keep", name), has)
        raw = {table.names.index(name): name for name in names}

        def rows() -> Iterator[tuple[Any, list[str] | None, dict[str, list[str]]]]:
            for batch in table.batches(self.encoder.wanted(positions, target), list(raw)):
                X, _ = self.encoder.encode(table, batch, positions, unknown=self.unknown)
                labels = None if target is None else _texts(batch.columns[target])
                yield as_samples(X), labels, {name: batch.raw[j] for j, name in raw.items()}

        return rows

    def _by_position(self, table: FileTable) -> tuple[list[int], int | None]:
        positions = [int(column.name) - 1 for column in self.encoder.columns]
        count, trained, name = len(table.names), self.encoder.n_columns or 0, self.encoder.target
        target = None if name is None else int(name) - 1 if name.isdigit() else trained - 1  # behind X in an archive
        if count == trained:
            return positions, target
        if target is not None and count + 1 == trained:
            return [j - (j > target) for j in positions], None
        without = "" if target is None else f", or {trained - 1} without that of the labels"
        why = f"has {count} columns where training had {trained}{without}"
        raise ValueError(f"{self.path} {why}; columns without names go by position")

    def _open_sparse(self, file: SvmlightFile) -> Callable[[], Iterator[Any]]:
        if self._keep:
            raise ParameterError(Option("keep", self._keep), f" needs columns, and {self.path} has none")
        if self.encoder.indices is None:
            wanted = listed([column.name for column in self.encoder.columns])
            raise ValueError(f"{self.path} has numbered features, but training had columns: {wanted}")
        first, size = self.encoder.indices
        self.labelled = file.labelled

        def rows() -> Iterator[tuple[Any, list[str] | None, dict[str, list[str]]]]:
            for batch in file.batches():
                wrong = np.flatnonzero((batch.columns < first) | (batch.columns >= first + size))
                if len(wrong):
                    at = f"{self.path}, line {batch.line_of(wrong[0])}: index {batch.columns[wrong[0]]}"
                    known = f"where indices went from {first} to {first + size - 1}"
                    raise ValueError(f"{at} did not occur in training, {known}")
                if len(batch.rows):
                    yield batch.csr(first, size), None if batch.labels is None else batch.labels.texts(), {}

        return rows


def _texts(labels: Any) -> list[str]:
    if isinstance(labels, Words):
        return labels.texts()
    return ["" if math.isnan(value) else shortest(value) for value in labels.tolist()]
