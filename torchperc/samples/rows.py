"""Samples in rows behind the few operations that learning needs; in memory, dense or CSR.

Engines, log and kernels speak to :class:`Samples`; whether a row is a slice of a tensor or a handful of non-zeros is
settled here and in :mod:`.mapped`, and nowhere else.
"""

from __future__ import annotations

import hashlib
import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

Array: TypeAlias = "np.ndarray[Any, Any]"
_BLOCK = 65536


class Samples(ABC):
    """N samples with ``n_features`` features, in one dtype on one device."""

    dtype: torch.dtype
    device: torch.device
    sparse = False
    n_features: int

    @abstractmethod
    def __len__(self) -> int: ...

    def add(self, i: int, coef: float, target: Tensor) -> None:
        """Add coef·x_i to a target (d,) in place."""
        self.take(torch.tensor([i])).add(0, coef, target)

    def row(self, i: int) -> tuple[Array | slice, Array]:
        """Return the columns and the numbers of one sample in float64; all columns where it is dense."""
        return self.take(torch.tensor([i])).row(0)

    @abstractmethod
    def take(self, index: Tensor) -> Samples:
        """Return some of the samples, in the order of the index."""

    def parts(self, order: Tensor) -> Iterator[tuple[Samples, Tensor]]:
        """Yield the samples of an order in parts that fit into memory, each with the sample numbers within it."""
        yield self, order

    def all_parts(self) -> Iterator[Samples]:
        """Yield all samples in their order, in parts that fit into memory."""
        yield self

    def blocks(self, order: Tensor, size: int = 2**20) -> Iterator[Samples]:
        """Yield the samples of an order in blocks of about ``size`` bytes, which fit the cache."""
        for samples, at in self.parts(order):
            for some in at.split(max(1, size // (8 * samples.terms))):
                yield samples.take(some)

    def scores(self, weight: Tensor, bias: Tensor) -> Tensor:
        """Return w·x + b for all samples: (N, K)."""
        return torch.cat([part.scores(weight, bias) for part in self.all_parts()])

    def weighted_sum(self, coefs: Tensor) -> Tensor:
        """Return Σ_i coef_ik·x_i in float64: coefs (N, K) → (K, d)."""
        total, first = torch.zeros(coefs.shape[1], self.n_features, dtype=torch.float64), 0
        for part in self.all_parts():
            total += part.weighted_sum(coefs[first : first + len(part)])
            first += len(part)
        return total

    def gram(self, other: Samples) -> Tensor:
        """Return the inner products of these samples with others: (N, M)."""
        return torch.cat([part.gram(other) for part in self.all_parts()])

    def squared_norms(self) -> Tensor:
        """Return ‖x_i‖² for all samples: (N,)."""
        return torch.cat([part.squared_norms() for part in self.all_parts()])

    @cached_property
    def max_squared_norm(self) -> float:
        """At least the largest ‖x_i‖²; not finite if a value is not, or if a square overflows."""
        return max(part.max_squared_norm for part in self.all_parts())

    @property
    def terms(self) -> int:
        """The largest number of products that a score adds up."""
        return self.n_features

    @cached_property
    def integers(self) -> bool:
        """Whether all numbers are integers."""
        numbers = (torch.as_tensor(part.raw().data) if part.sparse else part.dense() for part in self.all_parts())
        return all(torch.equal(values, values.trunc()) for values in numbers)

    def double(self) -> Samples:
        """Return the samples in float64, in memory."""
        return self.take(torch.arange(len(self))).double()

    def dense(self) -> Tensor:
        """Return the samples as a tensor: (N, d)."""
        return torch.cat([part.dense() for part in self.all_parts()])

    def raw(self) -> Any:
        """Return the samples as a user's own kernel function sees them: a tensor, or a scipy CSR array."""
        return self.take(torch.arange(len(self))).raw()

    def loop_arrays(self) -> tuple[Array, ...]:
        """Return the samples as compiled loops see them: (X,), or (values, columns, starts)."""
        return self.take(torch.arange(len(self))).loop_arrays()

    def hash(self, y: Tensor) -> str:
        """Return a hash of samples and labels, to identify a saved log's data."""
        kind = "Sparse" if self.sparse else "Dense"
        found = hashlib.sha256(f"{kind} {len(self)}x{self.n_features} {self.dtype}".encode())
        for part in self.all_parts():
            for array in part._hashed():
                found.update(np.ascontiguousarray(array).reshape(-1).data)
        found.update(np.ascontiguousarray(y.cpu().numpy()).data)
        return found.hexdigest()

    def _hashed(self) -> tuple[Array, ...]:
        return self.loop_arrays()


class Dense(Samples):
    """Samples as rows of a tensor."""

    def __init__(self, X: Tensor) -> None:
        self.X = X
        self.dtype, self.device, self.n_features = X.dtype, X.device, X.shape[1]

    def __len__(self) -> int:
        return self.X.shape[0]

    def add(self, i: int, coef: float, target: Tensor) -> None:
        """Add coef·x_i by the same call as a step of ``torch.optim.SGD``."""
        target.add_(self.X[i], alpha=coef)

    def row(self, i: int) -> tuple[Array | slice, Array]:
        return slice(None), self.X[i].double().cpu().numpy()

    def take(self, index: Tensor) -> Dense:
        return Dense(self.X[index])

    def scores(self, weight: Tensor, bias: Tensor) -> Tensor:
        return F.linear(self.X, weight, bias)

    def weighted_sum(self, coefs: Tensor) -> Tensor:
        used = coefs.any(-1).nonzero().squeeze(-1)
        total = torch.zeros(coefs.shape[1], self.n_features, dtype=torch.float64, device=self.device)
        for part in used.split(_BLOCK):
            total += coefs[part].double().T @ self.X[part].double()
        return total

    def gram(self, other: Samples) -> Tensor:
        return self.X @ other.dense().T

    def squared_norms(self) -> Tensor:
        return torch.cat([part.square().sum(-1) for part in self.X.split(_BLOCK)])

    @cached_property
    def max_squared_norm(self) -> float:
        if compilable(self):
            X = self.X.numpy()
            found = float(np.einsum("ij,ij->i", X, X).max())
            if 1e-30 < found < math.inf:  # otherwise squares may have overflowed, or vanished
                return found * (1 + 4 * self.n_features * torch.finfo(self.dtype).eps)
        return max(float(part.double().square().sum(-1).max()) for part in self.X.split(_BLOCK))

    def double(self) -> Dense:
        return Dense(self.X.double())

    def dense(self) -> Tensor:
        return self.X

    def raw(self) -> Tensor:
        return self.X

    def loop_arrays(self) -> tuple[Array, ...]:
        return (self.X.numpy(),)

    def _hashed(self) -> tuple[Array, ...]:
        return ((self.X.view(torch.int16) if self.dtype == torch.bfloat16 else self.X).cpu().numpy(),)


class Sparse(Samples):
    """Samples as a scipy CSR array with sorted columns, no duplicates and finite values; float32 or float64."""

    sparse = True

    def __init__(self, X: Any) -> None:
        self.X = X
        self.dtype = torch.float32 if X.dtype == np.float32 else torch.float64
        self.device, self.n_features = torch.device("cpu"), int(X.shape[1])

    def __len__(self) -> int:
        return int(self.X.shape[0])

    @cached_property
    def terms(self) -> int:
        return int(np.diff(self.X.indptr).max(initial=1))

    def row(self, i: int) -> tuple[Array, Array]:
        part = slice(self.X.indptr[i], self.X.indptr[i + 1])
        return self.X.indices[part].astype(np.int64), self.X.data[part].astype(np.float64)

    def add(self, i: int, coef: float, target: Tensor) -> None:
        columns, values = self.row(i)
        target.index_add_(0, torch.from_numpy(columns), torch.from_numpy(values).to(self.dtype), alpha=coef)

    def scores(self, weight: Tensor, bias: Tensor) -> Tensor:
        return torch.from_numpy(self.X @ weight.detach().numpy().T) + bias

    def weighted_sum(self, coefs: Tensor) -> Tensor:
        used = np.flatnonzero(coefs.numpy().any(axis=1))
        return torch.from_numpy((self.X[used].T @ coefs.double().numpy()[used]).T)

    def gram(self, other: Samples) -> Tensor:
        if isinstance(other, Sparse):
            return torch.from_numpy((self.X @ other.X.T).toarray())
        return torch.from_numpy(self.X @ other.dense().numpy().T)

    def squared_norms(self) -> Tensor:
        return torch.from_numpy(np.asarray(self.X.multiply(self.X).sum(axis=1)).reshape(-1)).to(self.dtype)

    @cached_property
    def max_squared_norm(self) -> float:
        from torchperc.samples import loops  # which loads numba

        found: Any = loops.max_squared_norm
        return float(found(*self.loop_arrays(), self.n_features))

    def take(self, index: Tensor) -> Sparse:
        return Sparse(self.X[index.numpy()])

    def double(self) -> Sparse:
        return Sparse(self.X.astype(np.float64))

    def dense(self) -> Tensor:
        return torch.from_numpy(self.X.toarray())

    def raw(self) -> Any:
        return self.X

    def loop_arrays(self) -> tuple[Array, ...]:
        return self.X.data, self.X.indices, self.X.indptr

    def _hashed(self) -> tuple[Array, ...]:
        return self.X.indptr.astype(np.int64), self.X.indices.astype(np.int64), self.X.data


def compilable(samples: Samples) -> bool:
    """Return whether compiled loops can read samples of this type on this device."""
    return samples.dtype in (torch.float32, torch.float64) and samples.device.type == "cpu"
