"""A data set cut into its parts: gaps filled and features scaled by what the training part alone knows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from torchperc._atomic import temporary
from torchperc.data.dataset import Dataset, TableEncoding
from torchperc.data.io.caching import remove_with
from torchperc.data.scaling import Identity, Pieces, Scaler
from torchperc.data.scaling import pieces as in_pieces
from torchperc.samples import parts as larger_than_memory
from torchperc.samples.parts import CsrParts, PartRows, in_parts, rows_as_read
from torchperc.samples.rows import CsrRows, DenseRows, Rows


@dataclass(frozen=True, eq=False)
class Partition:
    """The parts of a data set, and what was learned from the training part on the way.

    Args:
        parts: samples and labels of each part. Samples are a tensor, a CSR array, or, where they are larger than
            memory, a ``numpy.memmap`` or :class:`~torchperc.data.CsrParts` on files of their own.
        scaler: fitted on the training part.
        encoding: of the data set, with the training part's means as what a missing value becomes.
        fills: what stands for a missing value of each feature, nan where no training sample has one; ``None`` if the
            source has nothing to say about missing values.

    Shape:
        fills (d,).
    """

    parts: tuple[tuple[Any, Tensor], ...]
    scaler: Scaler
    encoding: TableEncoding | None = None
    fills: Tensor | None = None


def partition(
    dataset: Dataset,
    indices: Sequence[Tensor],
    scaler: Scaler | None = None,
    *,
    dtype: torch.dtype = torch.float32,
    cache: str | Path | None = None,
) -> Partition:
    """Cut a data set into parts, fill its gaps and scale it. The first part is the training part.

    What was missing becomes the mean of its feature over the training samples that have it; a feature that none of
    them has keeps the mean over the source. Then the scaler is fitted on the training part. Samples in memory stay
    there. A ``numpy.memmap`` and :class:`~torchperc.data.CsrParts` are read and written a part at a time; what comes
    out small enough is taken into memory.

    Args:
        dataset: the samples.
        indices: which samples are in each part, in ascending order.
        scaler: not fitted yet; none by default.
        dtype: of the parts, ``torch.float32`` or ``torch.float64``.
        cache: a folder on a disk with room for parts that are larger than memory; the system's folder for
            temporary files by default. They are in a folder of their own there, which is removed when the last of them
            is gone or the process ends.

    Example:
        >>> from torchperc.data import MinMax, load, split
        >>> iris = load("iris")
        >>> made = partition(iris, split(iris.y), MinMax())
        >>> [tuple(X.shape) for X, _ in made.parts], float(made.parts[0][0].max())
        ([(90, 4), (30, 4), (30, 4)], 1.0)
    """
    if dtype not in (torch.float32, torch.float64):
        raise ValueError(f"dtype={dtype} must be torch.float32 or torch.float64")
    rows = dataset.X.shape[0]
    indices = [_ascending(index, rows, number) for number, index in enumerate(indices)]
    if not len(indices[0]):
        raise ValueError("indices leaves no sample for training; the first part must have one at least")
    fills = _training_means(dataset, indices[0])
    changed = _Filled(dataset, fills)
    fitted = (scaler or Identity()).fit_pieces(changed.pieces(indices[0]))
    if in_parts(dataset.X):
        samples = _written(changed, indices, fitted, dtype, cache)
    else:
        X = _as_type(fitted.transform(changed.memory()), dtype)
        samples = [_taken(X, index) for index in indices]
    parts = tuple((X, dataset.y[index]) for X, index in zip(samples, indices, strict=True))
    return Partition(parts, fitted, _with_fills(dataset.encoding, fills), fills)


def whole(dataset: Dataset, made: Partition, dtype: torch.dtype) -> Any:
    """All samples of a data set in their order, filled and scaled as a partition of it is.

    Args:
        dataset: the samples.
        made: a partition of them.
        dtype: of the result.

    Shape:
        (N, d): a tensor, a CSR array, or rows that are read in parts.

    Example:
        >>> from torchperc.data import MinMax, load, split
        >>> iris = load("iris")
        >>> whole(iris, partition(iris, split(iris.y), MinMax()), torch.float64).shape
        torch.Size([150, 4])
    """
    changed = _Filled(dataset, made.fills)
    if in_parts(dataset.X):
        return changed.rows().mapped(lambda rows, _: _scaled_rows(rows, made.scaler, dtype), dtype)
    return _as_type(made.scaler.transform(changed.memory()), dtype)


class _Filled:
    """The samples of a data set with its gaps filled as the training part has it; read in parts where they are."""

    def __init__(self, dataset: Dataset, fills: Tensor | None) -> None:
        small = isinstance(dataset.X, np.memmap) and not in_parts(dataset.X)
        self.X: Any = torch.from_numpy(np.array(dataset.X)).double() if small else dataset.X
        self._fills = torch.zeros(0) if fills is None else fills
        gaps = torch.zeros(0, 2, dtype=torch.int64) if fills is None or dataset.gaps is None else dataset.gaps
        gaps = gaps[~self._fills[gaps[:, 1]].isnan()]
        self._gaps = gaps[gaps[:, 0].argsort(stable=True)]
        self._rows = self._gaps[:, 0].contiguous()

    @property
    def untouched(self) -> bool:
        """Whether nothing is filled."""
        return not len(self._gaps)

    def memory(self) -> Any:
        """All samples, in memory."""
        return self._fill(self.X, 0)

    def rows(self) -> PartRows:
        """All samples, as they are read."""
        read = rows_as_read(self.X, torch.float64)
        if self.untouched:
            return read
        return read.mapped(lambda rows, first: _rows(self._fill(rows.raw(), first)), torch.float64)

    def pieces(self, index: Tensor) -> Pieces:
        """Some of the samples a piece at a time."""
        if in_parts(self.X):
            read = self.rows()
            return lambda: (some.raw() for some in read.blocks(index))
        if self.untouched:
            return in_pieces(self.X, index)
        return in_pieces(_taken(self.memory(), index))

    def _fill(self, X: Any, first: int) -> Any:
        """Samples from number ``first`` on, in float64, with their gaps filled."""
        low, high = torch.searchsorted(self._rows, torch.tensor([first, first + X.shape[0]])).tolist()
        if low == high:
            return X
        rows, columns = self._rows[low:high] - first, self._gaps[low:high, 1]
        if not isinstance(X, Tensor):
            return _put(X, rows, columns, self._fills[columns])
        filled = X.clone()
        filled[rows, columns] = self._fills[columns]
        return filled


def _put(X: Any, rows: Tensor, columns: Tensor, values: Tensor) -> Any:
    """A CSR array with other values at some places."""
    from scipy.sparse import csr_array

    kept = X.tocoo()
    here = np.isin(kept.row.astype(np.int64) * X.shape[1] + kept.col, (rows * X.shape[1] + columns).numpy())
    row, column = np.append(kept.row[~here], rows.numpy()), np.append(kept.col[~here], columns.numpy())
    made = csr_array((np.append(kept.data[~here], values.numpy()), (row, column)), shape=X.shape)
    made.sort_indices()
    return made


def _training_means(dataset: Dataset, train: Tensor) -> Tensor | None:
    """The mean of each feature over the training samples that have it, if missing values become means."""
    gaps = torch.zeros(0, 2, dtype=torch.int64) if dataset.gaps is None else dataset.gaps
    if not len(gaps) and getattr(dataset.encoding, "missing", None) != "mean":
        return None
    zeros = torch.zeros(dataset.X.shape[1], dtype=torch.float64)
    totals = zeros.clone()
    for piece in _Filled(dataset, zeros).pieces(train)():
        totals += piece.sum(dim=0) if isinstance(piece, Tensor) else torch.from_numpy(np.asarray(piece.sum(axis=0)))
    missing = torch.bincount(gaps[torch.isin(gaps[:, 0], train), 1], minlength=len(zeros))
    return totals / (len(train) - missing)  # 0/0 where no training sample has the feature: it keeps what it has


def _with_fills(encoding: TableEncoding | None, fills: Tensor | None) -> TableEncoding | None:
    if encoding is None or fills is None:
        return encoding
    known = getattr(encoding, "fills", None)
    standing = torch.zeros_like(fills) if known is None else torch.tensor(known, dtype=torch.float64)
    made: TableEncoding = encoding.with_fills(torch.where(fills.isnan(), standing, fills).tolist())
    return made


def _as_type(X: Any, dtype: torch.dtype) -> Any:
    return X.to(dtype) if isinstance(X, Tensor) else X.astype(_numpy(dtype), copy=False)


def _taken(X: Any, index: Tensor) -> Any:
    return X[index] if isinstance(X, Tensor) else X[index.numpy()]


def _rows(X: Any) -> Rows:
    return DenseRows(X) if isinstance(X, Tensor) else CsrRows(X)


def _scaled_rows(rows: Rows, scaler: Scaler, dtype: torch.dtype) -> Rows:
    return _rows(_as_type(scaler.transform(rows.raw()), dtype))


def _numpy(dtype: torch.dtype) -> np.dtype[Any]:
    return np.dtype(np.float32 if dtype == torch.float32 else np.float64)


# --- larger than memory -------------------------------------------------------------------------------------------


class _Folder:
    """A temporary folder that is there as long as this object, in the process that made it."""

    def __init__(self, inside: str | Path | None) -> None:
        if inside is not None:
            Path(inside).mkdir(parents=True, exist_ok=True)
        self.path = temporary("cache", inside)
        remove_with(self, self.path)


def _written(
    changed: _Filled, indices: Sequence[Tensor], scaler: Scaler, dtype: torch.dtype, cache: str | Path | None
) -> list[Any]:
    """The parts on files of their own, written in one pass over the samples."""
    X, width = changed.X, changed.X.shape[1]
    same = changed.untouched and isinstance(scaler, Identity) and len(indices[0]) == X.shape[0]
    if same and isinstance(X, np.memmap) and X.dtype == _numpy(dtype):
        return [X, *(torch.zeros(0, width, dtype=dtype) for _ in indices[1:])]
    folder = _Folder(cache)
    kind = _SparseFiles if isinstance(X, CsrParts) else _DenseFile
    files = [kind(folder, number, (len(index), width), dtype) for number, index in enumerate(indices)]
    rows, first = changed.rows(), 0
    for part in rows.pieces():
        for index, file in zip(indices, files, strict=True):
            low, high = torch.searchsorted(index, torch.tensor([first, first + len(part)])).tolist()
            if high > low:
                some = index[low:high] - first
                file.add(_as_type(scaler.transform(X.raw()), dtype) for X in part.blocks(some))
        first += len(part)
    return [file.done() for file in files]


class _DenseFile:
    """Rows into one ``.npy`` file."""

    def __init__(self, folder: _Folder, number: int, shape: tuple[int, int], dtype: torch.dtype) -> None:
        self.folder, self.path, self.shape, self.dtype = folder, folder.path / f"part{number}.npy", shape, dtype
        header = {"descr": np.lib.format.dtype_to_descr(_numpy(dtype)), "fortran_order": False, "shape": shape}
        with self.path.open("wb") as file:
            np.lib.format.write_array_header_1_0(file, header)

    def add(self, blocks: Iterable[Tensor]) -> None:
        """The next rows."""
        with self.path.open("ab") as file:
            for X in blocks:
                X.contiguous().numpy().tofile(file)

    def done(self) -> Any:
        """The rows: mapped, or in memory if they are few."""
        if not self.shape[0]:
            return torch.zeros(self.shape, dtype=self.dtype)
        mapped = np.load(self.path, mmap_mode="r")
        if not in_parts(mapped):
            return torch.from_numpy(np.array(mapped))
        mapped.folder = self.folder  # which is there as long as the array is
        return mapped


class _SparseFiles:
    """Rows into ``.npz`` files, one for each piece that comes."""

    def __init__(self, folder: _Folder, number: int, shape: tuple[int, int], dtype: torch.dtype) -> None:
        self.folder, self.name, self.shape, self.dtype = folder, f"part{number}", shape, dtype
        self._paths: list[Path] = []
        self._bytes = 0

    def add(self, blocks: Iterable[Any]) -> None:
        """The next rows."""
        from scipy.sparse import csr_array, save_npz, vstack

        X = csr_array(vstack(list(blocks), format="csr"))
        self._paths.append(self.folder.path / f"{self.name}-{len(self._paths)}.npz")
        save_npz(self._paths[-1], X, compressed=False)
        self._bytes += X.data.nbytes + X.indices.nbytes + X.indptr.nbytes

    def done(self) -> Any:
        """The rows: in pieces, or in memory if they are few."""
        from scipy.sparse import csr_array, vstack

        if not self._paths:
            return csr_array(self.shape, dtype=_numpy(self.dtype))
        pieces = CsrParts(self._paths)
        if self._bytes <= larger_than_memory.PART:
            return csr_array(vstack([pieces.load(number) for number in range(len(self._paths))], format="csr"))
        pieces.folder = self.folder
        return pieces


def _ascending(index: Any, rows: int, number: int) -> Tensor:
    tensor = torch.as_tensor(index)
    if tensor.dtype != torch.int64 or tensor.dim() != 1:
        raise TypeError(f"indices[{number}] must be sample numbers in one dimension, found {tensor.dtype}")
    if len(tensor) and (int(tensor[0]) < 0 or int(tensor[-1]) >= rows or bool((tensor.diff() <= 0).any())):
        raise ValueError(f"indices[{number}] must be in ascending order, each from 0 to {rows - 1}; sort it")
    return tensor
