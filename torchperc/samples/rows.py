"""Samples in rows, dense or sparse, behind the few operations that learning by rule needs.

The engines, the log and the kernels speak to :class:`Rows`; whether a row is a slice of a tensor or a handful of
non-zeros is settled here and nowhere else.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from torchperc._checks import as_csr, tensor_view
from torchperc.samples import compiling, digest

_BLOCK = 65536
_NEAR = 2**20  # bytes that a processor has room for beside it


class Rows(ABC):
    """N samples of d features in one dtype on one device."""

    dtype: torch.dtype
    device: torch.device
    sparse = False
    width: int  # d
    row_bytes: int  # of a sample, on average

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def score(self, i: int, weight: Tensor, bias: Tensor) -> Tensor:
        """w·x_i + b for each row of the weight: (K,)."""

    @abstractmethod
    def add(self, i: int, coef: float, target: Tensor) -> None:
        """target += coef·x_i, in place: (d,)."""

    @abstractmethod
    def scores(self, weight: Tensor, bias: Tensor) -> Tensor:
        """w·x + b for all samples: (N, K)."""

    @abstractmethod
    def combine(self, coefs: Tensor) -> Tensor:
        """Σ_i coef_ik·x_i in float64: coefs (N, K) → (K, d)."""

    @abstractmethod
    def mix(self, coefs: Tensor) -> Tensor:
        """Σ_i coef_ik·x_i in the samples' own type: coefs (N, K) → (K, d)."""

    @abstractmethod
    def dots(self, other: Rows) -> Tensor:
        """Inner products of these samples with others: (N, M)."""

    @abstractmethod
    def squared_norms(self) -> Tensor:
        """‖x_i‖² for all samples: (N,)."""

    @cached_property
    def longest(self) -> float:
        """At least the largest ‖x_i‖²; not finite if a value is not, or if a square overflows."""
        return max(piece.longest for piece in self.pieces())

    @property
    def terms(self) -> int:
        """How many products a score adds up at most."""
        return self.width

    @cached_property
    def whole(self) -> bool:
        """Whether all numbers are integers."""
        return all(piece._whole() for piece in self.pieces())

    def _whole(self) -> bool:
        values = torch.from_numpy(self.plain()[0]) if self.sparse else self.dense()
        return torch.equal(values, values.trunc())

    @abstractmethod
    def take(self, index: Tensor) -> Rows:
        """Some of the samples, in the order of the index."""

    def row(self, i: int) -> tuple[np.ndarray[Any, Any] | slice, np.ndarray[Any, Any]]:
        """The columns and the numbers of one sample, in float64; all columns where it is dense."""
        one = self.take(torch.tensor([i], device=self.device))
        if one.sparse:
            values, columns, _ = one.plain()
            return columns, values.astype(np.float64)
        return slice(None), one.dense()[0].double().cpu().numpy()

    @abstractmethod
    def double(self) -> Rows:
        """The samples in float64."""

    @abstractmethod
    def dense(self) -> Tensor:
        """The samples as a tensor: (N, d)."""

    @abstractmethod
    def raw(self) -> Any:
        """The samples as a user's own kernel function sees them: a tensor, or a scipy CSR array."""

    @abstractmethod
    def plain(self) -> tuple[np.ndarray[Any, Any], ...]:
        """The samples as compiled loops see them: (X,), or (values, columns, starts)."""

    def parts(self, order: Tensor) -> Iterator[tuple[Rows, Tensor]]:
        """The samples of an order in pieces that fit into memory: rows, and the numbers of the samples within them."""
        yield self, order

    def pieces(self) -> Iterator[Rows]:
        """All samples in their order, in pieces that fit into memory."""
        yield self

    def blocks(self, order: Tensor) -> Iterator[Rows]:
        """Samples of an order, few enough at a time to stay near the processor while they are worked on."""
        for rows, at in self.parts(order):
            for some in at.split(max(1, _NEAR // self.row_bytes)):
                yield rows.take(some)

    @abstractmethod
    def arrays(self) -> Iterable[np.ndarray[Any, Any]]:
        """The numbers behind the samples, for hashing."""

    def kind(self) -> str:
        """What the samples are, for hashing."""
        return type(self).__name__

    def hash(self, y: Tensor, kind: str = "sha256") -> str:
        """A digest of samples and labels, by which a saved log knows its data."""
        about = f"{self.kind()} {len(self)}x{self.width} {self.dtype}"
        return digest.of_arrays(about, chain(self.arrays(), (y.cpu().numpy(),)), kind)


class DenseRows(Rows):
    """Rows of a tensor."""

    def __init__(self, X: Tensor) -> None:
        self.X = X
        self.dtype, self.device, self.width = X.dtype, X.device, X.shape[1]
        self.row_bytes = self.width * X.element_size()

    def __len__(self) -> int:
        return self.X.shape[0]

    def score(self, i: int, weight: Tensor, bias: Tensor) -> Tensor:
        """w·x_i + b by the same call as a net's ``forward`` on one sample, so both round alike."""
        return F.linear(self.X[i], weight, bias)

    def add(self, i: int, coef: float, target: Tensor) -> None:
        """target += coef·x_i by the same call as a step of ``torch.optim.SGD``."""
        target.add_(self.X[i], alpha=coef)

    def scores(self, weight: Tensor, bias: Tensor) -> Tensor:
        return F.linear(self.X, weight, bias)

    def combine(self, coefs: Tensor) -> Tensor:
        used = coefs.any(-1).nonzero().squeeze(-1)
        total = torch.zeros(coefs.shape[1], self.width, dtype=torch.float64, device=self.device)
        for part in used.split(_BLOCK):
            total += coefs[part].double().T @ self.X[part].double()
        return total

    def mix(self, coefs: Tensor) -> Tensor:
        return coefs.T @ self.X

    def dots(self, other: Rows) -> Tensor:
        return self.X @ other.dense().T

    def squared_norms(self) -> Tensor:
        return torch.cat([part.square().sum(-1) for part in self.X.split(_BLOCK)])

    @cached_property
    def longest(self) -> float:
        if compiling.suits(self.dtype, self.device):
            X = self.X.numpy()
            found = float(np.einsum("ij,ij->i", X, X).max())
            if 1e-30 < found < math.inf:  # otherwise squares may have overflowed, or vanished
                return found * (1 + 4 * self.width * torch.finfo(self.dtype).eps)
        return max(float(part.double().square().sum(-1).max()) for part in self.X.split(_BLOCK))

    def take(self, index: Tensor) -> DenseRows:
        return DenseRows(self.X[index])

    def double(self) -> DenseRows:
        return DenseRows(self.X.double())

    def dense(self) -> Tensor:
        return self.X

    def raw(self) -> Tensor:
        return self.X

    def plain(self) -> tuple[np.ndarray[Any, Any], ...]:
        return (self.X.numpy(),)

    def arrays(self) -> list[np.ndarray[Any, Any]]:
        return [self.X.contiguous().cpu().view(torch.uint8).numpy()]


class CsrRows(Rows):
    """Rows of a scipy CSR array, or of a sparse tensor on the CPU; a score reads the non-zeros only."""

    sparse = True

    def __init__(self, X: Any) -> None:
        self.X = as_csr(X) if isinstance(X, Tensor) else X
        self.dtype = torch.float32 if self.X.dtype == np.float32 else torch.float64
        self.device, self.width = torch.device("cpu"), int(self.X.shape[1])
        size = self.X.data.itemsize + self.X.indices.itemsize
        self.row_bytes = max(1, int(self.X.nnz) * int(size) // max(1, len(self)))

    @cached_property
    def _entries(self) -> tuple[list[int], Tensor, Tensor]:
        columns = torch.from_numpy(self.X.indices.astype(np.int64))
        return self.X.indptr.tolist(), columns, tensor_view(self.X.data)

    def __len__(self) -> int:
        return int(self.X.shape[0])

    @cached_property
    def terms(self) -> int:
        starts = self.X.indptr  # a block at a time, which needs no memory for all the differences
        blocks = (starts[first : first + _BLOCK + 1] for first in range(0, len(self), _BLOCK))
        return max(int(np.diff(block).max(initial=1)) for block in blocks)

    def _row(self, i: int) -> tuple[Tensor, Tensor]:
        starts, columns, values = self._entries
        some = slice(starts[i], starts[i + 1])
        return columns[some], values[some]

    def score(self, i: int, weight: Tensor, bias: Tensor) -> Tensor:
        columns, values = self._row(i)
        return F.linear(values, weight[:, columns], bias)

    def add(self, i: int, coef: float, target: Tensor) -> None:
        columns, values = self._row(i)
        target.index_add_(0, columns, values, alpha=coef)

    def scores(self, weight: Tensor, bias: Tensor) -> Tensor:
        return torch.from_numpy(self.X @ weight.detach().numpy().T) + bias

    def combine(self, coefs: Tensor) -> Tensor:
        used = np.flatnonzero(coefs.numpy().any(axis=1))
        return torch.from_numpy((self.X[used].T @ coefs.double().numpy()[used]).T)

    def mix(self, coefs: Tensor) -> Tensor:
        return torch.from_numpy((self.X.T @ coefs.numpy()).T)

    def dots(self, other: Rows) -> Tensor:
        if isinstance(other, CsrRows):
            return torch.from_numpy((self.X @ other.X.T).toarray())
        return torch.from_numpy(self.X @ other.dense().numpy().T)

    def squared_norms(self) -> Tensor:
        return torch.from_numpy(np.asarray(self.X.multiply(self.X).sum(axis=1)).reshape(-1)).to(self.dtype)

    @cached_property
    def longest(self) -> float:
        from torchperc.samples.loops import longest_csr

        check: Any = longest_csr
        return float(check(*self.plain(), self.width))

    def take(self, index: Tensor) -> CsrRows:
        return CsrRows(self.X[index.numpy()])

    def double(self) -> CsrRows:
        return CsrRows(self.X.astype(np.float64))

    def dense(self) -> Tensor:
        return torch.from_numpy(self.X.toarray())

    def raw(self) -> Any:
        return self.X

    def plain(self) -> tuple[np.ndarray[Any, Any], ...]:
        return self.X.data, self.X.indices, self.X.indptr

    def arrays(self) -> list[np.ndarray[Any, Any]]:
        return [self.X.indptr.astype(np.int64), self.X.indices.astype(np.int64), self.X.data]
