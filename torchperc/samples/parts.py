"""Samples that are larger than memory: read a part at a time, from a memory-mapped array or from CSR files."""

from __future__ import annotations

import math
import mmap
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from torchperc._checks import Data, as_csr, check_shape, is_sparse
from torchperc.samples import convert
from torchperc.samples.rows import CsrRows, DenseRows, Rows

PART = 2**26  # bytes of a memory-mapped array that are looked at together; smaller arrays are taken as a whole


class CsrParts:
    """Sparse samples in several pieces, of which one at a time is in memory.

    Args:
        pieces: ``.npz`` files that ``scipy.sparse.save_npz`` wrote, or CSR arrays; all of the same width. Of a file
            only the shape is looked at before it is read.

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
        self.folder: object = None  # of pieces that are there as long as this object
        shapes = [_piece_shape(piece) for piece in self.pieces]
        if len({shape[1] for shape in shapes}) > 1:
            widths = ", ".join(str(shape[1]) for shape in shapes)
            raise ValueError(f"pieces have different numbers of features: {widths}; they must be equal")
        self.counts = tuple(shape[0] for shape in shapes)
        self.shape = (sum(self.counts), shapes[0][1])

    def load(self, number: int) -> Any:
        """One piece as a CSR array."""
        from scipy.sparse import csr_array, load_npz

        piece = self.pieces[number]
        if not isinstance(piece, str | Path):
            return as_csr(piece)
        with _sparse_file(piece):
            return csr_array(load_npz(piece))


def _piece_shape(piece: Any) -> tuple[int, int]:
    """Rows and columns of a piece, without reading what is in it."""
    if not isinstance(piece, str | Path):
        return piece.shape[0], piece.shape[1]
    with _sparse_file(piece), np.load(piece, allow_pickle=False) as members:
        rows, columns = members["shape"].tolist()
        return int(rows), int(columns)


@contextmanager
def _sparse_file(path: str | Path) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise
    except Exception as error:  # whatever zip, numpy and scipy make of a damaged file
        raise ValueError(f"{path} is not a sparse matrix as scipy.sparse.save_npz writes it ({error})") from None


class Part(NamedTuple):
    """Samples start to stop, and how to get at them."""

    start: int
    stop: int
    load: Callable[[], Rows]


class PartRows(Rows):
    """Rows in parts, one of which is in memory; otherwise like the rows they are parts of."""

    def __init__(self, parts: Sequence[Part], like: Rows, release: Callable[[], None] = lambda: None) -> None:
        self.dtype, self.device, self.sparse = like.dtype, like.device, like.sparse
        self.width, self.row_bytes = like.width, like.row_bytes
        self._parts, self._release = tuple(parts), release
        self._starts = torch.tensor([part.start for part in parts])
        self._now: tuple[int, Rows] | None = None
        self.watch: Callable[[int, int], None] = lambda done, total: None

    def __len__(self) -> int:
        return self._parts[-1].stop

    @property
    def shape(self) -> tuple[int, int]:
        """(N, d)."""
        return len(self), self.width

    def score(self, i: int, weight: Tensor, bias: Tensor) -> Tensor:
        rows, at = self._at(i)
        return rows.score(at, weight, bias)

    def add(self, i: int, coef: float, target: Tensor) -> None:
        rows, at = self._at(i)
        rows.add(at, coef, target)

    @property
    def bounds(self) -> Tensor:
        """Where the parts begin, and where the last ends."""
        return torch.cat((self._starts, torch.tensor([len(self)])))

    def _part(self, number: int) -> Rows:
        if self._now is None or self._now[0] != number:
            self._now = None
            self._release()
            self._now = (number, self._parts[number].load())
        return self._now[1]

    def pieces(self) -> Iterator[Rows]:
        for number in range(len(self._parts)):
            yield self._part(number)

    def _at(self, i: int) -> tuple[Rows, int]:
        number = int(torch.searchsorted(self._starts, i, right=True)) - 1
        return self._part(number), i - self._parts[number].start

    def parts(self, order: Tensor) -> Iterator[tuple[Rows, Tensor]]:
        done = 0
        for some in order.split(PART // 64):
            numbers = torch.searchsorted(self._starts, some, right=True) - 1
            ends = (*((numbers.diff() != 0).nonzero().squeeze(-1) + 1).tolist(), len(some))
            begin = 0
            for end in ends:
                number = int(numbers[begin])
                yield self._part(number), some[begin:end] - self._parts[number].start
                done, begin = done + end - begin, end
                self.watch(done, len(order))

    def scores(self, weight: Tensor, bias: Tensor) -> Tensor:
        return torch.cat([rows.scores(weight, bias) for rows in self.pieces()])

    def combine(self, coefs: Tensor) -> Tensor:
        total = torch.zeros(coefs.shape[1], self.width, dtype=torch.float64)
        for part, rows in zip(self._parts, self.pieces(), strict=True):
            total += rows.combine(coefs[part.start : part.stop])
        return total

    def mix(self, coefs: Tensor) -> Tensor:
        return self.combine(coefs).to(self.dtype)

    def dots(self, other: Rows) -> Tensor:
        return torch.cat([rows.dots(other) for rows in self.pieces()])

    def squared_norms(self) -> Tensor:
        return torch.cat([rows.squared_norms() for rows in self.pieces()])

    def take(self, index: Tensor) -> Rows:
        numbers = torch.searchsorted(self._starts, index, right=True) - 1
        pieces = [
            self._part(number).take(index[numbers == number] - self._parts[number].start)
            for number in numbers.bincount().nonzero().squeeze(-1).tolist() or [0]  # which tells type and width
        ]
        return pieces[0] if len(pieces) == 1 else joined(pieces).take(numbers.argsort(stable=True).argsort())

    def double(self) -> PartRows:
        return self.mapped(lambda rows, _: rows.double(), torch.float64)

    def mapped(self, change: Callable[[Rows, int], Rows], dtype: torch.dtype) -> PartRows:
        """The samples as a function of a part's rows and the number of the first of them makes them, when read."""
        parts = [
            part._replace(load=lambda part=part: change(part.load(), part.start))  # type: ignore[misc]
            for part in self._parts
        ]
        changed = PartRows(parts, self, self._release)
        changed.dtype = dtype
        return changed

    def dense(self) -> Tensor:
        return torch.cat([rows.dense().clone() for rows in self.pieces()])

    def raw(self) -> Any:
        return self.take(torch.arange(len(self))).raw()

    def plain(self) -> tuple[np.ndarray[Any, Any], ...]:
        return self.take(torch.arange(len(self))).plain()

    def kind(self) -> str:
        return self._part(0).kind()

    def arrays(self) -> Iterator[np.ndarray[Any, Any]]:
        for rows in self.pieces():
            yield from rows.arrays()


def joined(pieces: Sequence[Rows]) -> Rows:
    """The rows of several pieces, one after the other, in memory."""
    if not pieces[0].sparse:
        return DenseRows(torch.cat([piece.dense() for piece in pieces]))
    from scipy.sparse import csr_array, vstack

    return CsrRows(csr_array(vstack([piece.raw() for piece in pieces], format="csr")))


def in_parts(X: object) -> bool:
    """Whether samples are to be read in parts."""
    return isinstance(X, CsrParts) or (isinstance(X, np.memmap) and X.nbytes > PART)


def rows_in_parts(
    X: Any, *, dtype: torch.dtype, width: int | None = None, name: str = "X", as_read: bool = False
) -> PartRows:
    """Rows of a mapped array or of CSR pieces, checked once before, or each time they are read."""
    if isinstance(X, CsrParts):
        bounds = np.cumsum((0, *X.counts)).tolist()
    else:
        check_shape(X.shape, width, name)
        bounds = [*range(0, len(X), max(1, PART // max(1, X.shape[1] * X.itemsize))), len(X)]
    release = _forget(X)

    def load(number: int, finite: bool) -> Rows:
        first, last = bounds[number : number + 2]
        if isinstance(X, CsrParts):
            piece = X.load(number)
            return CsrRows(convert.sparse_features(piece, dtype=dtype, width=width, name=name, first=first))
        some = np.asarray(X[first:last])
        return DenseRows(convert.features(some, dtype=dtype, name=name, first=first, finite=finite))

    used, longest = [k for k in range(len(bounds) - 1) if bounds[k] < bounds[k + 1]], 0.0
    for number in used[:1] if as_read else used:
        like = load(number, True)
        longest = longest if as_read else max(longest, like.longest)
        release()
    parts = [Part(bounds[k], bounds[k + 1], lambda k=k: load(k, as_read)) for k in used]  # type: ignore[misc]
    rows = PartRows(parts, like, release)
    if not as_read:
        rows.longest = longest
    return rows


def rows_as_read(X: Any, dtype: torch.dtype | None = None) -> PartRows:
    """Rows that are read in parts, in their own type by default, and checked as they are read, not before."""
    if dtype is None:
        own = X.load(0).dtype if isinstance(X, CsrParts) else X.dtype
        dtype = torch.float32 if own == np.float32 else torch.float64
    return rows_in_parts(X, dtype=dtype, as_read=True)


def _forget(X: Any) -> Callable[[], None]:
    """Give the pages of a mapped file back; the file keeps them, so only private changes could be lost."""
    mapped = getattr(X, "_mmap", None)
    if mapped is None or getattr(X, "mode", "c") == "c" or not hasattr(mapped, "madvise"):
        return lambda: None
    return lambda: mapped.madvise(mmap.MADV_DONTNEED)


def as_rows(
    X: Data,
    *,
    dtype: torch.dtype,
    device: torch.device | None = None,
    width: int | None = None,
    name: str = "X",
) -> Rows:
    """Return checked samples in rows, from a tensor, an array, lists, sparse samples, or data larger than memory.

    This is the door to every loop: nothing else makes rows of samples that come from outside. Rows are checked already.

    Example:
        >>> rows = as_rows([[3, 4], [0, 1]], dtype=torch.float32)
        >>> len(rows), rows.width, rows.squared_norms()
        (2, 2, tensor([25., 1.]))
    """
    if isinstance(X, Rows) and X.dtype == dtype and (width is None or X.width == width):
        return X
    if in_parts(X):
        if device is not None and device.type != "cpu":
            raise TypeError(f"{name} is read in chunks, which needs a net on the CPU, found {device}; use net.cpu()")
        return rows_in_parts(X, dtype=dtype, width=width, name=name)
    if is_sparse(X):
        rows: Rows = CsrRows(convert.sparse_features(X, dtype=dtype, width=width, name=name, look=False))
        if not math.isfinite(rows.longest):  # which scipy finds out why, or puts in order
            rows = CsrRows(convert.sparse_features(X, dtype=dtype, width=width, name=name))
        return rows
    rows = DenseRows(convert.features(X, dtype=dtype, device=device, width=width, name=name, finite=False).contiguous())
    if not math.isfinite(rows.longest):  # one pass looks for both; a square may overflow where no value is infinite
        convert.features(X, dtype=dtype, name=name)
    return rows
