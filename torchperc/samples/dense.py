"""Samples in rows behind the few operations that learning needs, and those that lie in a dense tensor.

Engines, log and kernels speak to :class:`Samples`; whether a row is a slice of a tensor or a handful of non-zeros is
settled here, in :mod:`.sparse` and in :mod:`.mapped`, and nowhere else.
"""

from __future__ import annotations

import hashlib
import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from functools import cached_property
from itertools import chain
from typing import Any, TypeAlias

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

Array: TypeAlias = "np.ndarray[Any, Any]"
_BLOCK = 65536


class Samples(ABC):
    """N samples of ``n_features`` numbers in one dtype on one device."""

    dtype: torch.dtype
    device: torch.device
    sparse = False
    n_features: int

    @abstractmethod
    def __len__(self) -> int: ...

    def score(self, i: int, weight: Tensor, bias: Tensor) -> Tensor:
        """Return w·x_i + b for each row of the weight: (K,)."""
        return self.take(torch.tensor([i])).scores(weight, bias)[0]

    @abstractmethod
    def add(self, i: int, coef: float, target: Tensor) -> None:
        """Add coef·x_i to a target (d,) in place."""

    @abstractmethod
    def scores(self, weight: Tensor, bias: Tensor) -> Tensor:
        """Return w·x + b for all samples: (N, K)."""

    @abstractmethod
    def weighted_sum(self, coefs: Tensor) -> Tensor:
        """Return Σ_i coef_ik·x_i in float64: coefs (N, K) → (K, d)."""

    @abstractmethod
    def gram(self, other: Samples) -> Tensor:
        """Return the inner products of these samples with others: (N, M)."""

    @abstractmethod
    def squared_norms(self) -> Tensor:
        """Return ‖x_i‖² for all samples: (N,)."""

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

    @abstractmethod
    def take(self, index: Tensor) -> Samples:
        """Return some of the samples, in the order of the index."""

    @abstractmethod
    def row(self, i: int) -> tuple[Array | slice, Array]:
        """Return the columns and the numbers of one sample in float64; all columns where it is dense."""

    @abstractmethod
    def double(self) -> Samples:
        """Return the samples in float64."""

    @abstractmethod
    def dense(self) -> Tensor:
        """Return the samples as a tensor: (N, d)."""

    @abstractmethod
    def raw(self) -> Any:
        """Return the samples as a user's own kernel function sees them: a tensor, or a scipy CSR array."""

    @abstractmethod
    def loop_arrays(self) -> tuple[Array, ...]:
        """Return the samples as compiled loops see them: (X,), or (values, columns, starts)."""

    def parts(self, order: Tensor) -> Iterator[tuple[Samples, Tensor]]:
        """Yield the samples of an order in parts that fit into memory, each with the sample numbers within it."""
        yield self, order

    def all_parts(self) -> Iterator[Samples]:
        """Yield all samples in their order, in parts that fit into memory."""
        yield self

    def blocks(self, order: Tensor, size: int = 2**20) -> Iterator[Samples]:
        """Yield the samples of an order in blocks of about ``size`` bytes, which stay near the processor."""
        for samples, at in self.parts(order):
            for some in at.split(max(1, size // (8 * samples.terms))):
                yield samples.take(some)

    @abstractmethod
    def arrays(self) -> Iterable[Array]:
        """Return the numbers behind the samples, for hashing."""

    def hash(self, y: Tensor) -> str:
        """Return a digest of samples and labels, by which a saved log knows its data."""
        kind = "Sparse" if self.sparse else "Dense"
        found = hashlib.sha256(f"{kind} {len(self)}x{self.n_features} {self.dtype}".encode())
        for array in chain(self.arrays(), (y.cpu().numpy(),)):  # chunks one after the other
            found.update(np.ascontiguousarray(array).data)
        return found.hexdigest()


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

    def row(self, i: int) -> tuple[Array | slice, Array]:
        return slice(None), self.X[i].double().cpu().numpy()

    def take(self, index: Tensor) -> Dense:
        return Dense(self.X[index])

    def double(self) -> Dense:
        return Dense(self.X.double())

    def dense(self) -> Tensor:
        return self.X

    def raw(self) -> Tensor:
        return self.X

    def loop_arrays(self) -> tuple[Array, ...]:
        return (self.X.numpy(),)

    def arrays(self) -> list[Array]:
        flat = self.X.cpu().flatten()  # one column or one row may have any stride
        return [
            (flat if flat.stride(0) == 1 else flat.clone(memory_format=torch.contiguous_format))
            .view(torch.uint8)
            .numpy()
        ]


def compilable(samples: Samples) -> bool:
    """Return whether compiled loops can read samples of this type on this device."""
    return samples.dtype in (torch.float32, torch.float64) and samples.device.type == "cpu"
