"""Samples as rows of a scipy CSR array: a score reads the non-zeros only."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from torchperc.samples.dense import Array, Samples

_BLOCK = 65536


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
        starts = self.X.indptr  # a block at a time, which needs no memory for all the differences
        blocks = (starts[first : first + _BLOCK + 1] for first in range(0, len(self), _BLOCK))
        return max(int(np.diff(block).max(initial=1)) for block in blocks)

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
        from torchperc.samples.loops import max_squared_norm

        compiled: Any = max_squared_norm
        return float(compiled(*self.loop_arrays(), self.n_features))

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

    def arrays(self) -> list[Array]:
        return [self.X.indptr.astype(np.int64), self.X.indices.astype(np.int64), self.X.data]
