"""Samples that are larger than memory, read a chunk at a time; and :func:`as_samples`, the door for all samples."""

from __future__ import annotations

import math
import mmap
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from torchperc._checks import Data, as_csr, check_shape, is_sparse
from torchperc.samples import convert
from torchperc.samples.rows import Dense, Samples, Sparse

CHUNK = 2**26  # bytes of a memory-mapped array that are read together; smaller arrays are read at once


class CsrParts:
    """Sparse samples in several pieces, loaded one at a time.

    Args:
        pieces: ``.npz`` files that ``scipy.sparse.save_npz`` wrote, or CSR arrays; all with the same number of
            features. Of a file only the shape is looked at before it is read.

    Example:
        >>> from scipy.sparse import csr_array
        >>> import torchperc as tp
        >>> X = CsrParts([csr_array([[1.0, 0.0], [0.0, 2.0]]), csr_array([[3.0, 1.0]])])
        >>> X.shape
        (3, 2)
        >>> tp.RuleTrainer().fit(tp.Perceptron(2), X, [1, -1, 1]).mistakes
        2
    """

    def __init__(self, pieces: Sequence[Any]) -> None:
        if isinstance(pieces, str | Path) or not len(pieces):
            raise ValueError(f"pieces must be a list of .npz files or CSR arrays, found {pieces!r}")
        self.pieces = tuple(pieces)
        shapes = [_read(_stored_shape, piece) if isinstance(piece, str | Path) else piece.shape for piece in pieces]
        if len({shape[1] for shape in shapes}) > 1:
            widths = ", ".join(str(shape[1]) for shape in shapes)
            raise ValueError(f"pieces have different numbers of features: {widths}; they must be equal")
        self.counts = tuple(shape[0] for shape in shapes)
        self.shape = (sum(self.counts), shapes[0][1])

    def load(self, number: int) -> Any:
        """Return one piece as a CSR array."""
        from scipy.sparse import load_npz

        piece = self.pieces[number]
        return as_csr(_read(load_npz, piece) if isinstance(piece, str | Path) else piece)


def _stored_shape(path: str | Path) -> tuple[int, int]:
    """Return rows and columns of a matrix in a file, without reading what is in it."""
    with np.load(path, allow_pickle=False) as members:
        rows, columns = members["shape"].tolist()
        return rows, columns


def _read(read: Callable[[Any], Any], path: str | Path) -> Any:
    try:
        return read(path)
    except FileNotFoundError:
        raise
    except Exception as error:  # whatever zip, numpy and scipy make of a damaged file
        raise ValueError(f"{path} is not a sparse matrix as scipy.sparse.save_npz writes it ({error})") from None


class Chunked(Samples):
    """Samples read in chunks, one in memory at a time; otherwise like :class:`Samples`.

    Args:
        bounds: where the chunks begin, and where the last ends.
        load: reads the chunk of a number.
        like: samples of the same type and width.
        release: gives memory back before the next chunk is read.
    """

    def __init__(
        self, bounds: Sequence[int], load: Callable[[int], Samples], like: Samples, release: Callable[[], None]
    ) -> None:
        self.dtype, self.device, self.sparse, self.n_features = like.dtype, like.device, like.sparse, like.n_features
        self.bounds = torch.tensor(bounds)
        self._load, self._release = load, release
        self._now: tuple[int, Samples] | None = None

    def __len__(self) -> int:
        return int(self.bounds[-1])

    @property
    def shape(self) -> tuple[int, int]:
        """(N, d)."""
        return len(self), self.n_features

    def _chunk(self, number: int) -> Samples:
        if self._now is None or self._now[0] != number:
            self._now = None
            self._release()
            self._now = (number, self._load(number))
            if "max_squared_norm" in vars(self):  # known of all samples, so not looked for in each chunk again
                vars(self._now[1])["max_squared_norm"] = self.max_squared_norm
        return self._now[1]

    def _numbers(self, index: Tensor) -> Tensor:
        """Return the chunk that each sample is in; of chunks that begin alike, only the last is not empty."""
        return torch.searchsorted(self.bounds[:-1], index, right=True) - 1

    def all_parts(self) -> Iterator[Samples]:
        for number in self.bounds.diff().nonzero().squeeze(-1).tolist():
            yield self._chunk(number)

    def parts(self, order: Tensor) -> Iterator[tuple[Samples, Tensor]]:
        for some in order.split(CHUNK // 64):
            numbers = self._numbers(some)
            ends = (*((numbers.diff() != 0).nonzero().squeeze(-1) + 1).tolist(), len(some))
            for begin, end in pairwise((0, *ends)):
                number = int(numbers[begin])
                yield self._chunk(number), some[begin:end] - self.bounds[number]

    def take(self, index: Tensor) -> Samples:
        numbers = self._numbers(index)
        parts = [
            self._chunk(number).take(index[numbers == number] - self.bounds[number]).raw()
            for number in numbers.unique().tolist() or [0]  # which tells type and width
        ]
        place = numbers.argsort(stable=True).argsort()
        if not self.sparse:
            return Dense(torch.cat(parts)[place])
        from scipy.sparse import csr_array, vstack

        return Sparse(csr_array(vstack(parts, format="csr"))[place.numpy()])


def is_chunked(X: object) -> bool:
    """Return whether samples are read in chunks."""
    return isinstance(X, CsrParts) or (isinstance(X, np.memmap) and X.nbytes > CHUNK)


def chunked(X: Any, dtype: torch.dtype | None = None, *, n_features: int | None = None, name: str = "X") -> Chunked:
    """Return a mapped array or CSR pieces as samples, which are checked each time they are read.

    Args:
        X: a memory map or :class:`CsrParts`.
        dtype: the type to compute in; their own by default.
        n_features: the number of features they must have, if known.
        name: the parameter's name for error messages.
    """
    if dtype is None:
        own = X.load(0).dtype if isinstance(X, CsrParts) else X.dtype
        dtype = torch.float32 if own == np.float32 else torch.float64
    if isinstance(X, CsrParts):
        bounds = np.cumsum((0, *X.counts)).tolist()
    else:
        check_shape(X.shape, n_features, name)
        bounds = [*range(0, len(X), max(1, CHUNK // max(1, X.shape[1] * X.itemsize))), len(X)]

    def load(number: int) -> Samples:
        first, last = bounds[number : number + 2]
        if isinstance(X, CsrParts):
            piece = X.load(number)
            return Sparse(convert.sparse_features(piece, dtype=dtype, width=n_features, name=name, first=first))
        return Dense(convert.features(np.asarray(X[first:last]), dtype=dtype, name=name, first=first))

    like = load(next(number for number, first in enumerate(bounds) if first < bounds[number + 1]))
    return Chunked(bounds, load, like, _page_release(X))


def _page_release(X: Any) -> Callable[[], None]:
    """Return a function that gives the pages of a mapped file back; only private changes could be lost."""
    mapped = getattr(X, "_mmap", None)
    if mapped is None or getattr(X, "mode", "c") == "c" or not hasattr(mapped, "madvise"):
        return lambda: None
    return lambda: mapped.madvise(mmap.MADV_DONTNEED)


def as_samples(
    X: Data, *, dtype: torch.dtype, device: torch.device | None = None, n_features: int | None = None, name: str = "X"
) -> Samples:
    """Return checked samples from a tensor, an array, lists, sparse samples, or data larger than memory.

    The only function that makes :class:`Samples` from user data; ``Samples`` are not checked again.

    Example:
        >>> samples = as_samples([[3, 4], [0, 1]], dtype=torch.float32)
        >>> len(samples), samples.n_features, samples.squared_norms()
        (2, 2, tensor([25., 1.]))
    """
    if isinstance(X, Samples) and X.dtype == dtype and (n_features is None or X.n_features == n_features):
        return X
    if device is not None and device.type != "cpu" and (is_chunked(X) or is_sparse(X)):
        how = "read in chunks" if is_chunked(X) else "sparse"
        raise TypeError(f"{name} is {how}, which needs a net on the CPU, found {device}; use net.cpu() or a dense X")
    if is_chunked(X):
        samples: Samples = chunked(X, dtype, n_features=n_features, name=name)
        _ = samples.max_squared_norm  # for which all of them are read and checked
        return samples
    if is_sparse(X):
        options: dict[str, Any] = {"dtype": dtype, "width": n_features, "name": name}
        samples = Sparse(convert.sparse_features(X, **options, look=False))
        if math.isfinite(samples.max_squared_norm):
            return samples
        return Sparse(convert.sparse_features(X, **options))  # scipy finds out why, or puts it in order
    tensor = convert.features(X, dtype=dtype, device=device, width=n_features, name=name, finite=False)
    samples = Dense(tensor.contiguous())
    if not math.isfinite(samples.max_squared_norm):  # where no value is infinite, a square has overflowed
        convert.features(X, dtype=dtype, name=name)
    return samples
