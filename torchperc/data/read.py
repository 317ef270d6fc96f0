"""Data sets out of files: tables, svmlight, numpy arrays; in memory, or converted if they are too large."""

from __future__ import annotations

import math
import os
import tempfile
import weakref
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import lazy_loader
import numpy as np

from torchperc._checks import Option, ParameterError, check_choice
from torchperc._files import remove
from torchperc.data.svmlight import SvmlightFile, SvmlightFit
from torchperc.data.table_encoder import TableEncoder, TableFit, as_samples
from torchperc.data.table_files import ReadOptions, Unchanged, find_files, format_of, frame_table, listed, open_table

if TYPE_CHECKING:
    import torch

    from torchperc.data.datasets import Dataset
else:
    torch = lazy_loader.load("torch")  # a bad file is refused before torch is imported

SHARE = 0.25  # fraction of the free memory that features may take; what takes more is converted and mapped instead
_NAME, _SMALL = 64, 2**24  # bytes that a feature's name takes, and that are always there for names and weights
_OF_TEXT = ("header", "delimiter", "decimal", "encoding")
_OF_TABLES = ("missing", "na", "categories", "ignore", "text", "target")


def read(path: Any, target: str | int | None = None, **options: Any) -> Dataset:
    """Read a file with a column of labels or real targets, several files as one, or a data frame.

    The format is inferred from the extension: text (``.csv .tsv .txt .data``, and any other), Parquet
    (``.parquet .pq``), svmlight (``.svm .svmlight .libsvm``), a matrix (``.npy``), or arrays X and y, or data and
    target (``.npz``). Text
    and svmlight may be compressed (``.gz .bz2 .zst``).

    A column is a number if all that is in it are numbers, a date if all are dates, and a category if fewer than half
    are numbers: then each of its levels becomes a feature of 0 and 1. Anything between is an error that names the cell.
    ``Dataset.notes`` says what was recognised.

    Text is a column that ``text`` names. Its words and pairs of words that occur in two rows or more become features,
    and X is sparse.

    Args:
        path: the file; a pattern such as ``data/part-*.parquet``, whose files are read in the order of their names; a
            list of files, which need the same columns in the same order (and header); or a pandas ``DataFrame``.
        target: the column of labels or targets, by name or by position from 1; the last one by default.
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
    with Unchanged(*paths):
        made = _dataset(_fit(path, paths, target, how, kept := _Kept(how.stream)), kept)
    return made if how.positive is None else made.against_rest(how.positive)


def is_frame(source: object) -> bool:
    """Whether something is a pandas data frame."""
    return hasattr(source, "columns") and hasattr(source, "iloc")


def _fit(source: Any, paths: Sequence[Path], target: Any, options: ReadOptions, kept: _Kept) -> TableFit | SvmlightFit:
    """Read all rows once, and learn what their columns are."""
    if not paths:
        return TableFit(frame_table(source, "the data frame"), target, options, kept)
    kind, *others = dict.fromkeys(map(format_of, paths))
    if others:
        raise ValueError(f"{paths[0]} is {kind}, but another file is {others[0]}; read one kind of files at a time")
    unused = _OF_TEXT * (kind != "text") + _OF_TABLES * (kind == "svmlight")
    for name, value in (vars(options) | {"target": target}).items():
        if name in unused and value not in (None, (), "error"):
            raise ParameterError(Option(name, value), f" says nothing about {paths[0]} ({kind}); leave it out")
    if kind == "svmlight":
        return SvmlightFit([SvmlightFile(path, options.task == "regression") for path in paths], options, kept)
    given = "y" if target is None and kind == "npz" else target
    return TableFit(open_table(paths, kind, options), given, options, kept)


class _Kept(deque[Any]):
    """Batches of the first reading, as long as they fit into the memory that samples may take."""

    def __init__(self, stream: bool | None) -> None:
        super().__init__()
        self.room, self.size = SHARE * free_memory() if stream is None else -1 if stream else math.inf, 0

    def __call__(self, batch: Any) -> None:
        """Keep a batch; ``None`` forgets all."""
        self.size = 0 if batch is None else self.size + batch.nbytes
        self.append(batch)
        if batch is None or self.size > self.room:
            self.clear()


def _dataset(fit: TableFit | SvmlightFit, kept: _Kept) -> Dataset:
    """One pass has fitted the encoder; a second one encodes unless the rows were kept."""
    encoder, rows, width, labels = fit.encoder, fit.rows, fit.encoder.n_features, fit.encoder.labels
    size, free = width * (_NAME + 8 * len(labels)), free_memory()
    if size > max(SHARE * free, _SMALL):
        room = f"names and weights take {size / 1e9:,.1f} GB where {free / 1e9:,.1f} GB are free"
        raise ValueError(f"{fit.path} has {width:,} features, whose {room}; look for a wrong index")
    from scipy.sparse import vstack

    from torchperc.data.datasets import Dataset  # which needs torch; most files are refused before

    sparse = encoder.indices is not None or bool(encoder.text_columns)
    in_memory = kept.size <= kept.room and (sparse or 8 * rows * width <= kept.room)
    matrix = np.empty((rows, width)) if in_memory and not sparse else None
    y = np.empty(rows, np.int64 if labels else np.float64)
    missing = [np.empty((0, 2), np.int64)]

    def encoded() -> Iterator[Any]:
        last = 0
        batch: Any
        for batch in (kept.popleft() for _ in range(len(kept))) if in_memory else fit.batches():
            first, last = last, last + batch.n_rows
            made, found, y[first:last] = fit.encode(batch, None if matrix is None else matrix[first:last])
            missing.append(found + np.array([first, 0]))
            if batch.n_rows:
                yield as_samples(made) if sparse else made

    if in_memory:
        pieces = [*encoded()]
        X = as_samples(vstack(pieces, format="csr") if matrix is None else matrix)
    else:
        X = mapped(encoded(), (rows, width), sparse)
    return Dataset(
        X,
        torch.from_numpy(y),
        labels,
        encoder.feature_names,
        name=fit.path.name,
        encoder=encoder,
        missing_positions=None if encoder.imputed_values is None else torch.from_numpy(np.concatenate(missing)),
        dropped=fit.dropped,
        target=encoder.target,
        inferred_task=fit.inferred_task,
        notes=fit.notes,
    )


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
        unknown: ``"ignore"`` encodes a level that training did not have as zeros; ``"error"`` names it.
        keep: names of columns to hand on as they are written, ``"all"`` for every one.

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
        self, path: str | Path, encoder: TableEncoder, *, unknown: str = "error", keep: str | Sequence[str] = ()
    ) -> None:
        self.path, self.encoder, options = Path(path), encoder, encoder.options
        self.unknown = check_choice("unknown", unknown, ("error", "ignore"))
        names, self._positions, self._target = tuple[str, ...](), list[int](), None
        with Unchanged(self.path) as self._source:
            kind = format_of(self.path)
            if (kind == "svmlight") != (encoder.indices is not None):
                columns = f"columns {listed([column.name for column in encoder.columns])}"
                said = columns if encoder.indices is None else "numbered features"
                raise ValueError(f"{self.path} is {kind}, but training had {said}; give a file of the same kind")
            if kind == "svmlight":
                self._file: Any = SvmlightFile(self.path)
                self.labelled = self._file.labelled
            else:
                header = options.header if encoder.n_columns is None else bool(options.header)
                self._file = open_table([self.path], kind, replace(options, header=header))
                self._positions, self._target = encoder.find_columns(self._file)
                names, self.labelled = self._file.names, self._target is not None
        self.extra = tuple(name for j, name in enumerate(names) if j not in {*self._positions, self._target})
        kept = names if keep == "all" else (keep,) if isinstance(keep, str) else tuple(keep)
        for name in kept:
            if name not in names:
                why = f" is no column of {self.path}; it has {listed(names) or 'none'}"
                raise ParameterError(Option("keep", name), why)
        self._kept = {name: names.index(name) for name in kept}

    def __iter__(self) -> Iterator[Batch]:
        first = 0
        with self._source:
            for X, labels, kept in self._rows():
                self._source.check()  # so that no row of a second version is handed on
                if X.shape[0]:
                    yield Batch(first, X, None if labels is None else labels.look_up(labels.levels, "").tolist(), kept)
                    first += X.shape[0]

    def _rows(self) -> Iterator[tuple[Any, Any, dict[str, list[str]]]]:
        """Features, labels and the columns to keep."""
        if self.encoder.indices is not None:
            for batch in self._file.batches():
                yield self._file.samples(batch, *self.encoder.indices), batch.labels, {}
            return
        wanted = self.encoder.wanted(self._positions) | ({} if self._target is None else {self._target: "words"})
        for batch in self._file.batches(wanted, [*self._kept.values()]):
            X, _ = self.encoder.encode(self._file, batch, self._positions, unknown=self.unknown)
            kept = {name: batch.raw[j] for name, j in self._kept.items()}
            yield as_samples(X), batch.columns.get(self._target), kept


# --- larger than memory -------------------------------------------------------------------------------------------


def mapped(pieces: Iterable[Any], shape: tuple[int, int], sparse: bool, dtype: str = "float64") -> Any:
    """Write matrices or CSR arrays, one below the other, to temporary files, and map them.

    The files are removed along with the result, or by an error; a full disk is one line.
    """
    from scipy.sparse import save_npz

    from torchperc.samples.mapped import CsrParts

    folder = Path(tempfile.mkdtemp(prefix=".torchperc-cache-"))
    try:
        if sparse:
            for number, piece in enumerate(pieces):
                save_npz(folder / f"X-{number:05}.npz", piece, compressed=False)
            X: Any = CsrParts(sorted(folder.iterdir()))
        else:
            with (folder / "X").open("wb") as file:
                file.writelines(np.ascontiguousarray(piece, dtype).data for piece in pieces)
            X = np.memmap(folder / "X", dtype, "r", shape=shape)
    except BaseException as error:
        remove(folder)
        if not isinstance(error, OSError):
            raise
        said = f"cannot write the converted table to {folder}: {error.strerror or error}; set TMPDIR to a larger folder"
        raise OSError(error.errno, said) from None
    process = os.getpid()  # a forked child that ends leaves the files alone
    weakref.finalize(getattr(X, "_mmap", X), lambda: remove(folder) if os.getpid() == process else None)
    return X


def free_memory() -> int:
    """Bytes that can be had without swapping, within what this process is given."""
    free = 2**32  # where nothing is known; a small machine of today
    with suppress(OSError, ValueError):
        words = Path("/proc/meminfo").read_text().split()
        free = 1024 * int(words[words.index("MemAvailable:") + 1])
    with suppress(OSError, ValueError):  # no limit
        limit, used = (int(Path(f"/sys/fs/cgroup/memory.{what}").read_text()) for what in ("max", "current"))
        free = max(0, min(free, limit - used))
    return free
