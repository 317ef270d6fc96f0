"""Data sets out of files: tables, svmlight, numpy arrays; in memory, or converted if they are too large."""

from __future__ import annotations

import math
import zipfile
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from torchperc._checks import Option, ParameterError, check_choice, check_int, is_sparse
from torchperc.data.file_formats import Format, ReadOptions, Unchanged, common_name, find_files, format_of, unreadable
from torchperc.data.on_disk import ArrayFolder, free_memory
from torchperc.data.svmlight import SparseBatch, SvmlightFile
from torchperc.data.table_encoder import (
    TASKS,
    Column,
    TableEncoder,
    as_samples,
    check_classes,
    counted_rows,
    frame_table,
    in_order,
    inferred_task,
    is_quantity,
)
from torchperc.data.table_files import (
    Array,
    ArrayTable,
    FileTable,
    TableBatch,
    Words,
    is_absent,
    listed,
    open_table,
    shortest,
    word,
)

if TYPE_CHECKING:
    from torchperc.data.datasets import Dataset

SHARE = 0.25  # fraction of the free memory that features may take; what takes more is converted and mapped instead
_NAME, _SMALL = 64, 2**24  # bytes that a feature's name takes, and that are always there for names and weights


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
    frame = is_frame(path)
    paths = () if frame else find_files(path)
    with Unchanged(*paths) as source:
        formats = _formats(paths)
        kind = formats[0].kind if formats else "frame"
        if kind in ("svmlight", "npz"):
            only_tables = {name: getattr(how, name) for name in _OF_TABLES} | (
                {"target": target} if kind == "svmlight" else {}
            )
            for name, given in only_tables.items():
                if given not in (None, (), "error"):
                    raise ParameterError(Option(name, given), f" needs columns, and {paths[0]} ({kind}) has none")
        if kind == "svmlight":
            made = _read_svmlight(paths, formats, how, source)
        elif kind == "npz":
            made = _read_archive(paths, None if target is None else str(target), how)
        else:
            known = () if target is None else (str(target),)
            table = frame_table(path, "the data frame") if frame else open_table(paths, formats, how, known)
            made = _read_table(table, target, how, source)
        source.check()
    return made if how.positive is None else made.against_rest(how.positive)


_OF_TABLES = ("missing", "na", "header", "delimiter", "decimal", "encoding", "categories", "ignore", "text")


def is_frame(source: object) -> bool:
    """Whether something is a pandas data frame."""
    return hasattr(source, "columns") and hasattr(source, "iloc")


def _formats(paths: Sequence[Path]) -> list[Format]:
    formats = [format_of(path) for path in paths]
    for path, each in zip(paths, formats, strict=True):
        if each.kind != formats[0].kind:
            raise ValueError(f"{path} is {each.kind}, but {paths[0]} is {formats[0].kind}; read one kind at a time")
    return formats


def _room(options: ReadOptions) -> float:
    """Bytes that samples may take in memory."""
    return SHARE * free_memory() if options.stream is None else -1 if options.stream else math.inf


def _check_size(path: Path, width: int, labels: int) -> None:
    """Refuse more features than memory holds names and weights for."""
    size, free = width * (_NAME + 8 * labels), free_memory()
    if size > max(SHARE * free, _SMALL):
        room = f"names and weights take {size / 1e9:,.1f} GB where {free / 1e9:,.1f} GB are free"
        raise ValueError(f"{path} has {width:,} features and {labels:,} labels, whose {room}; look for a wrong index")


def _read_table(table: FileTable, target: str | int | None, options: ReadOptions, source: Unchanged) -> Dataset:
    """One pass learns the encoder, a second one encodes unless the rows were kept."""
    room, held, size = _room(options), deque[TableBatch](), 0.0

    def keep(batch: TableBatch | None) -> None:
        nonlocal size
        if batch is None:
            held.clear()
            size = 0
            return
        size += batch.nbytes
        if size <= room:
            held.append(batch)
        else:
            held.clear()

    fitted = TableEncoder.fit(table, target, options, keep)
    encoder, sparse = fitted.encoder(), False
    width, sparse, rows = encoder.n_features, bool(encoder.text_columns), fitted.rows
    _check_size(table.path, width, len(encoder.labels))
    import torch

    from torchperc.data.datasets import Dataset  # which needs torch; most files are refused before

    y = np.empty(rows, np.int64 if encoder.labels else np.float64)
    missing, first = [np.empty((0, 2), np.int64)], 0

    def encoded(batches: Iterator[TableBatch], out: Array | None = None) -> Iterator[Any]:
        nonlocal first
        for batch in batches:
            last = first + len(batch.rows)
            source.check(last <= rows)
            made, found = encoder.encode(batch, fitted.features, None if out is None else out[first:last])
            missing.append(found + np.array([first, 0]))
            y[first:last] = encoder.targets(batch.columns[fitted.target])
            first = last
            if len(batch.rows):
                yield as_samples(made) if sparse else made
        source.check(first == rows)  # before what is written has a name

    if size <= room and (sparse or 8 * rows * width <= room):
        kept = (held.popleft() for _ in range(len(held)))
        if sparse:
            X = _stacked(list(encoded(kept)))
        else:
            matrix = np.empty((rows, width))
            deque(encoded(kept, matrix), maxlen=0)
            X = torch.from_numpy(matrix)
    else:
        again = (
            b.keep(counted_rows(b, options.missing)[0])
            for b in table.batches(encoder.wanted(fitted.features, fitted.target))
        )
        with ArrayFolder(options.cache) as folder:
            X = folder.sparse(encoded(again)) if sparse else folder.dense(encoded(again), (rows, width))
    return Dataset(
        X,
        torch.from_numpy(y),
        encoder.labels,
        encoder.feature_names,
        name=table.path.name,
        encoder=encoder,
        missing_positions=torch.from_numpy(np.concatenate(missing)) if options.missing == "mean" else None,
        dropped=fitted.dropped,
        target=encoder.target,
        inferred_task=fitted.inferred_task,
        notes=fitted.notes(encoder.columns),
    )


def _stacked(pieces: list[Any]) -> Any:
    from scipy.sparse import csr_array, vstack

    return as_samples(pieces[0] if len(pieces) == 1 else csr_array(vstack(pieces, format="csr")))


def _read_svmlight(
    paths: Sequence[Path], formats: Sequence[Format], options: ReadOptions, source: Unchanged
) -> Dataset:
    path, real = common_name(paths), options.task == "regression"
    files = [SvmlightFile(each, form.compression, real) for each, form in zip(paths, formats, strict=True)]
    for file in files:
        if not file.labelled:
            why = "has no labels: its lines begin with index:value; a line is: label index:value …"
            raise ValueError(f"{file.path} {why}")
    room, held, labels = _room(options), list[SparseBatch](), dict[str, None]()
    lowest, highest, rows, size = 1, 0, 0, 0
    for batch in chain.from_iterable(file.batches() for file in files):
        assert batch.labels is not None
        labels.update(dict.fromkeys(batch.labels.levels))
        if len(batch.columns):
            lowest, highest = min(lowest, int(batch.columns.min())), max(highest, int(batch.columns.max()))
        rows, size = rows + len(batch.lines), size + sum(part.nbytes for part in batch[2:])
        held = [*held, batch] if size <= room else []
    if not rows:
        raise ValueError(f"{path} has no samples in it")
    if highest < lowest:
        raise ValueError(f"{path} has no features in it: every line is a label alone")
    check_classes(str(path), labels, rows, options.task, "write a class in its place")
    real = is_quantity(labels, rows) if options.task is None else real
    _check_size(path, highest - lowest + 1, 0 if real else len(labels))
    names = () if real else in_order(labels)
    encoder = TableEncoder((), None, names, indices=(lowest, highest - lowest + 1), options=options.of_new_files())
    import torch

    from torchperc.data.datasets import Dataset

    y: list[Array] = []

    def encoded(batches: Iterator[SparseBatch]) -> Iterator[Any]:
        for batch in batches:
            if len(batch.lines):
                y.append(encoder.targets(batch.labels))
                yield batch.rows(*encoder.indices)  # type: ignore[misc]
        source.check(rows == sum(map(len, y)))  # before what is written has a name

    if size <= room:
        X: Any = _stacked(list(encoded(iter(held))))
    else:
        with ArrayFolder(options.cache) as folder:
            X = folder.sparse(encoded(chain.from_iterable(file.batches() for file in files)))
    said = "" if options.task else inferred_task(None, labels, real)
    y_all = torch.from_numpy(np.concatenate(y))
    return Dataset(X, y_all, names, encoder.feature_names, name=path.name, encoder=encoder, inferred_task=said)


_PAIRS = (("X", "y"), ("data", "target"), ("x", "y"), ("arr_0", "arr_1"))


def _read_archive(paths: Sequence[Path], target: str | None, options: ReadOptions) -> Dataset:
    """Arrays X and y of an ``.npz`` file; X may be the parts of a CSR array."""
    path = paths[0]
    if options.stream or len(paths) > 1:
        what = "several files" if len(paths) > 1 else "stream=True"
        raise ValueError(f"{what} is not possible with {path}, which is read as a whole; save it as .npy")
    X, y, name, held = load_archive(path, target)
    _check_size(path, X.shape[1], 0)
    if y is None:
        raise ValueError(
            f"{path} has no labels: it holds {held} and no array {name!r}; add a label per row: "
            f"np.savez(path, X=X, y=y), or for sparse X np.savez(path, data=X.data, indices=X.indices, "
            f"indptr=X.indptr, shape=X.shape, y=y)"
        )
    from torchperc.data.datasets import Dataset

    different = [word(str(value)) for value in np.unique(y).tolist()]
    real = is_quantity(different, len(y)) if options.task is None else options.task == "regression"
    try:
        numbers = [str(j + 1) for j in range(X.shape[1])]
        made = Dataset.of(X, y, names=numbers, name=path.name, task=TASKS[real], target=name)
    except (ValueError, TypeError) as error:
        raise ValueError(f"{path}: {error}") from None
    if is_sparse(made.X):
        encoder = TableEncoder((), None, made.labels, indices=(1, X.shape[1]), options=options.of_new_files())
    else:
        columns = tuple(map(Column, made.names))
        encoder = TableEncoder(columns, None, made.labels, n_columns=X.shape[1], options=options.of_new_files())
    said = "" if options.task else inferred_task(name, different, real)
    return replace(made, encoder=encoder, inferred_task=said)


def load_archive(path: Path, target: str | None = None) -> tuple[Any, Array | None, str, str]:
    """Features and labels of an ``.npz`` file, the name of the labels, and the names of all arrays.

    Python objects among the arrays are an error, never run.
    """
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
    except (MemoryError, ValueError, zipfile.BadZipFile, EOFError, KeyError, NotImplementedError) as error:
        raise ValueError(f"{path} is not a complete archive of arrays of numbers ({error}); write it again") from None
    except OSError as error:
        raise unreadable(path, error) from None
    X, name = next(((arrays[a], b) for a, b in _PAIRS if a in arrays), (None, "y"))
    if {"data", "indices", "indptr", "shape"} <= set(arrays):
        from scipy.sparse import csr_array

        name = "y"
        try:
            if arrays.get("format", np.array(b"csr")).item() != b"csr":
                raise ValueError("it is not in CSR format; save X.tocsr()")
            X = csr_array((arrays["data"], arrays["indices"], arrays["indptr"]), shape=tuple(arrays["shape"].tolist()))
            X.check_format(full_check=True)
        except (ValueError, TypeError) as error:
            raise ValueError(f"{path} holds no complete sparse matrix: {error}") from None
    elif X is None or X.ndim != 2 or X.dtype.kind not in "biuf":
        found = ", ".join(f"{name} {array.shape} {array.dtype}" for name, array in arrays.items())
        raise ValueError(f"{path} holds {found or 'nothing'}; a matrix of numbers X is needed, and labels y")
    name = target or name
    y = arrays.get(name)
    if y is not None and (y.ndim != 1 or len(y) != X.shape[0]):
        raise ValueError(f"{path}: {name} has shape {y.shape} for {X.shape[0]} samples; give one label per sample")
    return X, y, name, ", ".join(arrays)


# --- new files ----------------------------------------------------------------------------------------------------


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
            form = format_of(self.path)
            if form.kind == "svmlight":
                self._open_svmlight(SvmlightFile(self.path, form.compression))
            elif form.kind == "npz":
                self._open_archive()
            else:
                options, known = encoder.options.of_new_files(**reading), [column.name for column in encoder.columns]
                if form.kind != "text":
                    options = ReadOptions(na=options.na)
                elif encoder.n_columns is not None:
                    options, known = replace(options, header=bool(options.header)), []
                self._open_table(open_table([self.path], [form], options, known))

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

    def _open_table(self, table: FileTable, labels: list[str] | None = None) -> None:
        if self.encoder.indices is not None:
            raise ValueError(f"{self.path} has columns, but training had numbered features; give an svmlight file")
        positions, target = self._by_name(table) if self.encoder.n_columns is None else self._by_position(table)
        self.extra = tuple(name for j, name in enumerate(table.names) if j not in {*positions, target})
        self.labelled = target is not None or labels is not None
        names = (
            list(table.names) if self._keep == "all" else [self._keep] if isinstance(self._keep, str) else self._keep
        )
        lost = [name for name in names if name not in table.names]
        if lost:
            raise ParameterError(Option("keep", lost[0]), f" is no column of {self.path}; it has {listed(table.names)}")
        raw = {table.names.index(name): name for name in names}

        def read() -> Iterator[tuple[Any, list[str] | None, dict[str, list[str]]]]:
            first = 0
            for given in table.batches(self.encoder.wanted(positions, target), list(raw)):
                batch = given.keep(counted_rows(given, "mean")[0])
                X, _ = self.encoder.encode(batch, positions, unknown=self.unknown)
                told = None if target is None else _texts(batch.columns[target])
                told = told if labels is None else labels[first : first + len(batch.rows)]
                first += len(batch.rows)
                yield as_samples(X), told, {name: batch.raw[j] for j, name in raw.items()}

        self._read = read

    def _by_name(self, table: FileTable) -> tuple[list[int], int | None]:
        wanted = [column.name for column in self.encoder.columns]
        if not table.named:
            why = f"has no names of columns, but they go by name: {listed(wanted)}; give it a header with them"
            raise ValueError(f"{self.path} {why}")
        lost = [name for name in wanted if name not in table.names]
        if lost:
            lacks = f"has no column{'s' * (len(lost) > 1)} {listed(lost)}, which training had"
            raise ValueError(f"{self.path} {lacks}; it has {listed(table.names)}")
        target = self.encoder.target if self.encoder.target in table.names else None
        for name in (*wanted, *([] if target is None else [target])):
            if table.names.count(name) > 1:
                raise ValueError(f"{self.path} has {table.names.count(name)} columns {name!r}; which one is meant?")
        return [table.names.index(name) for name in wanted], None if target is None else table.names.index(target)

    def _by_position(self, table: FileTable) -> tuple[list[int], int | None]:
        positions = [int(column.name) - 1 for column in self.encoder.columns]
        target = None if self.encoder.target is None else int(self.encoder.target) - 1
        count, trained = len(table.names), self.encoder.n_columns or 0
        if count == trained:
            return positions, target
        if target is not None and count + 1 == trained:
            return [j - (j > target) for j in positions], None
        without = "" if target is None else f", or {trained - 1} without that of the labels"
        why = f"has {count} columns where training had {trained}{without}"
        raise ValueError(f"{self.path} {why}; columns without names go by position")

    def _check_numbered(self) -> tuple[int, int]:
        if self._keep:
            raise ParameterError(Option("keep", self._keep), f" needs columns, and {self.path} has none")
        if self.encoder.indices is None:
            wanted = listed([column.name for column in self.encoder.columns])
            raise ValueError(f"{self.path} has numbered features, but training had columns: {wanted}")
        return self.encoder.indices

    def _open_svmlight(self, file: SvmlightFile) -> None:
        first, size = self._check_numbered()
        self.labelled = file.labelled

        def read() -> Iterator[tuple[Any, list[str] | None, dict[str, list[str]]]]:
            for batch in file.batches():
                wrong = np.flatnonzero((batch.columns < first) | (batch.columns >= first + size))
                if len(wrong):
                    at = f"{self.path}, line {batch.line_of(wrong[0])}: index {batch.columns[wrong[0]]}"
                    raise ValueError(
                        f"{at} did not occur in training, where indices went from {first} to {first + size - 1}"
                    )
                if len(batch.lines):
                    yield batch.rows(first, size), None if batch.labels is None else batch.labels.texts(), {}

        self._read = read

    def _open_archive(self) -> None:
        X, y, _, _ = load_archive(self.path)
        labels = None if y is None else [_text(value) for value in y.tolist()]
        if is_sparse(X):
            size = self._check_numbered()[1]
            if X.shape[1] != size:
                raise ValueError(f"{self.path} has {X.shape[1]} features where training had {size}")
            self.labelled = labels is not None
            self._read = lambda: iter([(as_samples(X.astype(np.float64)), labels, {})])
            return
        width = (self.encoder.n_columns or len(self.encoder.columns) + 1) - 1
        if self.encoder.target is not None and X.shape[1] != width:
            raise ValueError(f"{self.path}: X has {X.shape[1]} columns where training had {width}")
        self._open_table(ArrayTable(self.path, X), labels)


def _texts(labels: Any) -> list[str]:
    return labels.texts() if isinstance(labels, Words) else [_text(value) for value in labels.tolist()]


def _text(value: Any) -> str:
    text = shortest(value) if isinstance(value, float) else str(value).strip()
    return "" if is_absent(text) else word(text)
