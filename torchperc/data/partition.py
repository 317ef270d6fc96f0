"""A data set cut into splits: gaps filled and features scaled by what the training set alone knows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from torchperc._files import hidden_folder
from torchperc.data.dataset import Dataset
from torchperc.data.encoding import Encoding
from torchperc.data.io.caching import DenseFile, SparseFiles, remove_with, stacked
from torchperc.data.scaling import Identity, Scaler
from torchperc.data.scaling import pieces as in_pieces
from torchperc.samples import mapped as larger_than_memory
from torchperc.samples.dense import Dense, Samples
from torchperc.samples.mapped import Chunked, CsrParts, chunked, is_chunked
from torchperc.samples.sparse import Sparse


@dataclass(frozen=True, eq=False)
class Partition:
    """The splits of a data set, and what was learned from the training set on the way.

    Args:
        parts: samples and labels of each split. Samples are a tensor, a CSR array, or, where they are larger than
            memory, a ``numpy.memmap`` or :class:`~torchperc.data.CsrParts` on files of their own.
        scaler: fitted on the training set.
        encoding: of the data set, with the training set's means as what a missing value becomes.
        fills: what stands for a missing value of each feature (d,), nan where no training sample has one; ``None`` if
            the source has nothing to say about missing values.
    """

    parts: tuple[tuple[Any, Tensor], ...]
    scaler: Scaler
    encoding: Encoding | None = None
    fills: Tensor | None = None


def make_partition(
    dataset: Dataset,
    indices: Sequence[Tensor],
    scaler: Scaler | None = None,
    *,
    dtype: torch.dtype = torch.float32,
    cache: str | Path | None = None,
) -> Partition:
    """Cut a data set into splits, fill its gaps and scale it. The first split is the training set.

    What was missing becomes the mean of its feature over the training samples that have it; a feature that none of
    them has keeps the mean over the source. Then the scaler is fitted on the training set. A ``numpy.memmap`` and
    :class:`~torchperc.data.CsrParts` are read and written a part at a time; what comes out small is held in memory.

    Args:
        dataset: the samples.
        indices: which samples are in each split, in ascending order.
        scaler: not fitted yet; none by default.
        dtype: of the result, ``torch.float32`` or ``torch.float64``.
        cache: a folder with room for splits that are larger than memory, the system's temporary one by default; what is
            written there is removed when the last of them is gone or the process ends.

    Example:
        >>> from torchperc.data import MinMax, load, split
        >>> iris = load("iris")
        >>> made = make_partition(iris, split(iris.y), MinMax())
        >>> [tuple(X.shape) for X, _ in made.parts], float(made.parts[0][0].max())
        ([(90, 4), (30, 4), (30, 4)], 1.0)
    """
    if dtype not in (torch.float32, torch.float64):
        raise ValueError(f"dtype={dtype} must be torch.float32 or torch.float64")
    indices = [_ascending(index, dataset.X.shape[0], number) for number, index in enumerate(indices)]
    if not len(indices[0]):
        raise ValueError("indices leaves no sample for training; the first split must have at least one")
    fills = _training_means(dataset, indices[0])
    filled = _Filled(dataset, fills)
    fitted = (scaler or Identity()).fit_pieces(in_pieces(filled.samples(), indices[0]))
    if is_chunked(dataset.X):
        samples = _written(filled, indices, fitted, dtype, cache)
    else:
        X = _scaled(filled.samples(), fitted, dtype)
        samples = [X[index.numpy()] for index in indices]
    parts = tuple((X, dataset.y[index]) for X, index in zip(samples, indices, strict=True))
    encoding = dataset.encoding
    if encoding is not None and fills is not None:
        known = torch.tensor(encoding.fills or [0.0] * len(fills), dtype=torch.float64)
        encoding = encoding.with_fills(torch.where(fills.isnan(), known, fills).tolist())
    return Partition(parts, fitted, encoding, fills)


def whole(dataset: Dataset, made: Partition, dtype: torch.dtype) -> Any:
    """All samples of a data set in their order (N, d), filled and scaled as a partition of it is.

    A tensor, a CSR array, or rows that are read in parts.
    """
    filled = _Filled(dataset, made.fills).samples()
    if isinstance(filled, Chunked):
        return filled.mapped(lambda rows, _: _rows(_scaled(rows.raw(), made.scaler, dtype)), dtype)
    return _scaled(filled, made.scaler, dtype)


class _Filled:
    """The samples of a data set with its gaps filled as the training set has it; read in parts where they are."""

    def __init__(self, dataset: Dataset, fills: Tensor | None) -> None:
        small = isinstance(dataset.X, np.memmap) and not is_chunked(dataset.X)
        self.X: Any = torch.from_numpy(np.array(dataset.X)).double() if small else dataset.X
        self._fills = torch.zeros(0) if fills is None else fills
        gaps = torch.zeros(0, 2, dtype=torch.int64) if fills is None or dataset.gaps is None else dataset.gaps
        gaps = gaps[~self._fills[gaps[:, 1]].isnan()]
        self._gaps = gaps[gaps[:, 0].argsort(stable=True)]
        self._gap_rows = self._gaps[:, 0].contiguous()
        self.untouched = not len(gaps)

    def samples(self) -> Any:
        """All samples: in memory, or rows as they are read."""
        if not is_chunked(self.X):
            return self._fill(self.X, 0)
        read = chunked(self.X, torch.float64)
        return read.mapped(lambda rows, first: _rows(self._fill(rows.raw(), first)), torch.float64)

    def _fill(self, X: Any, first: int) -> Any:
        """Samples from number ``first`` on, in float64, with their gaps filled."""
        low, high = torch.searchsorted(self._gap_rows, torch.tensor([first, first + X.shape[0]])).tolist()
        if low == high:
            return X
        rows, columns = self._gap_rows[low:high] - first, self._gaps[low:high, 1]
        if not isinstance(X, Tensor):
            return _put(X, rows.numpy(), columns.numpy(), self._fills[columns].numpy())
        filled = X.clone()
        filled[rows, columns] = self._fills[columns]
        return filled


def _put(X: Any, rows: Any, columns: Any, values: Any) -> Any:
    """A CSR array with other values at some places."""
    from scipy.sparse import csr_array

    old = X.tocoo()
    keep = ~np.isin(old.row.astype(np.int64) * X.shape[1] + old.col, rows * X.shape[1] + columns)
    where = np.append(old.row[keep], rows), np.append(old.col[keep], columns)
    made = csr_array((np.append(old.data[keep], values), where), shape=X.shape)
    made.sort_indices()
    return made


def _training_means(dataset: Dataset, train: Tensor) -> Tensor | None:
    """The mean of each feature over the training samples that have it, if missing values become means."""
    gaps = torch.zeros(0, 2, dtype=torch.int64) if dataset.gaps is None else dataset.gaps
    if not len(gaps) and (dataset.encoding is None or dataset.encoding.missing != "mean"):
        return None
    zeros = torch.zeros(dataset.X.shape[1], dtype=torch.float64)
    given = in_pieces(_Filled(dataset, zeros).samples(), train)
    missing = torch.bincount(gaps[torch.isin(gaps[:, 0], train), 1], minlength=len(zeros))
    total = sum(torch.as_tensor(piece.sum(0)).reshape(-1) for piece in given())
    return total / (len(train) - missing)  # 0/0 where no training sample has the feature: it keeps what it has


def _rows(X: Any) -> Samples:
    return Dense(X) if isinstance(X, Tensor) else Sparse(X)


def _scaled(X: Any, scaler: Scaler, dtype: torch.dtype) -> Any:
    Z = scaler.transform(X)
    return Z.to(dtype) if isinstance(Z, Tensor) else Z.astype(_numpy(dtype), copy=False)


def _numpy(dtype: torch.dtype) -> str:
    return "float32" if dtype == torch.float32 else "float64"


class _Folder:
    """A temporary folder that is there as long as this object, in the process that made it."""

    def __init__(self, inside: str | Path | None) -> None:
        if inside is not None:
            Path(inside).mkdir(parents=True, exist_ok=True)
        self.path = hidden_folder("cache", inside)
        remove_with(self, self.path)


def _written(
    filled: _Filled, indices: Sequence[Tensor], scaler: Scaler, dtype: torch.dtype, cache: str | Path | None
) -> list[Any]:
    """The splits on files of their own, written in one pass over the samples."""
    X, width = filled.X, filled.X.shape[1]
    same = filled.untouched and isinstance(scaler, Identity) and len(indices[0]) == X.shape[0]
    if same and isinstance(X, np.memmap) and X.dtype == _numpy(dtype):
        return [X, *(torch.zeros(0, width, dtype=dtype) for _ in indices[1:])]
    folder, files = _Folder(cache), list[Any]()
    for number, index in enumerate(indices):
        if isinstance(X, CsrParts):
            files.append(SparseFiles(folder.path, f"part{number}"))
        else:
            files.append(DenseFile(folder.path / f"part{number}.npy", (len(index), width), _numpy(dtype)))
    first = 0
    for part in filled.samples().all_parts():
        for index, file in zip(indices, files, strict=True):
            low, high = torch.searchsorted(index, torch.tensor([first, first + len(part)])).tolist()
            if high > low:
                file.add(_scaled(rows.raw(), scaler, dtype) for rows in part.blocks(index[low:high] - first))
        first += len(part)
    return [_loaded(file, (len(index), width), dtype, folder) for file, index in zip(files, indices, strict=True)]


def _loaded(file: Any, shape: tuple[int, int], dtype: torch.dtype, folder: _Folder) -> Any:
    """The rows of a split: mapped or in pieces, or in memory if they are few."""
    from scipy.sparse import csr_array

    if isinstance(file, SparseFiles):
        if not file.paths:
            return csr_array(shape, dtype=_numpy(dtype))
        X: Any = CsrParts(file.paths)
        if file.nbytes <= larger_than_memory.CHUNK:
            return stacked([X.load(number) for number in range(len(file.paths))])
    else:
        if not shape[0]:
            return torch.zeros(shape, dtype=dtype)
        X = np.load(file.path, mmap_mode="r")
        if not is_chunked(X):
            return torch.from_numpy(np.array(X))
    X.folder = folder  # which is there as long as the rows are
    return X


def _ascending(index: Any, rows: int, number: int) -> Tensor:
    tensor = torch.as_tensor(index)
    if tensor.dtype != torch.int64 or tensor.dim() != 1:
        raise TypeError(f"indices[{number}] must be sample numbers in one dimension, found {tensor.dtype}")
    if len(tensor) and (int(tensor[0]) < 0 or int(tensor[-1]) >= rows or bool((tensor.diff() <= 0).any())):
        raise ValueError(f"indices[{number}] must be in ascending order, each from 0 to {rows - 1}; sort it")
    return tensor
