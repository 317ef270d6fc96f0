"""The mean loss of linear scores plus a penalty, with gradient and Hessian: dense, sparse and compiled."""

from __future__ import annotations

import math
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from torchperc.nn import derivatives
from torchperc.nn.derivatives import Terms
from torchperc.nn.heads import Head, SquaredHead
from torchperc.samples import compiling
from torchperc.samples.rows import CsrRows

_Array: TypeAlias = "np.ndarray[Any, Any]"

COMPILED_FROM = 2**22  # numbers in X from which compiled passes repay loading the compiler
SHARE = 2**20  # numbers in X that a thread is given at a time
CHUNK = 2**19  # numbers of X that are worked on at a time, so that the second use finds them in the cache


@dataclass(frozen=True)
class Point:
    """The objective at some weights: value, gradient (K, D), curvature in the scores (N, K), least margin."""

    weights: Tensor
    loss: float
    gradient: Tensor
    curvature: Tensor
    margin: float

    @property
    def finite(self) -> bool:
        """Whether loss and gradient are."""
        return math.isfinite(self.loss) and bool(torch.isfinite(self.gradient).all())


class Objective(ABC):
    """Mean loss of the rows plus penalty, as a function of weights (K, D) whose last column may be the bias.

    ``counts`` says how often each row counts, once on average; ``None`` for once each.
    """

    def __init__(
        self, rows: Tensor | CsrRows, targets: Tensor, units: int, bias: bool, l2: float, counts: Tensor | None = None
    ) -> None:
        self.rows: Any = rows
        self.targets, self.units, self.bias, self.l2, self.counts = targets, units, bias, l2, counts
        self.sparse = isinstance(rows, CsrRows)
        self.width = (rows.shape[1] if isinstance(rows, Tensor) else rows.width) + bias
        self.penalty = torch.full((self.width,), l2, dtype=torch.float64, device=rows.device)
        if bias:
            self.penalty[-1] = 0.0

    @abstractmethod
    def terms(self, s: Tensor, t: Tensor) -> tuple[Terms, float]:
        """Of scores (n, K) and targets: loss, slope and curvature, and the least margin.

        The margin is what a sample's score is on its right side by; it means something without penalty only.
        """

    @property
    @abstractmethod
    def zero_loss(self) -> float:
        """The loss of zero weights."""

    def own_curvature(self, curvature: Tensor) -> Tensor:
        """∂²loss/∂s_k²."""
        return curvature

    def bent(self, curvature: Tensor, u: Tensor) -> Tensor:
        """How the losses' slopes change as the scores change by u, all (n, K)."""
        return curvature * u

    def part(self, index: Tensor) -> Objective:
        """The same objective over some of the rows."""
        counts = None if self.counts is None else self.counts[index]
        return type(self)(take(self.rows, index), self.targets[index], self.units, self.bias, self.l2, counts)

    def __len__(self) -> int:
        return len(self.rows)

    def counted(self, values: Tensor, part: slice) -> Tensor:
        """Values of some rows, (n,) or (n, K), each as often as its row counts."""
        if self.counts is None:
            return values
        return values * (self.counts[part] if values.dim() == 1 else self.counts[part, None])

    def zeros(self) -> Tensor:
        """Zero weights (K, D)."""
        return torch.zeros(self.units, self.width, dtype=torch.float64, device=self.rows.device)

    def rounded(self, weights: Tensor) -> Tensor:
        """The nearest weights that the net can hold."""
        return weights.to(self.rows.dtype).double()

    def scale(self, point: Point) -> float:
        """What gaps are relative to."""
        return max(point.loss, torch.finfo(self.rows.dtype).eps * self.zero_loss)

    def at(self, weights: Tensor) -> Point:
        """The objective at some weights: one reading of the rows."""
        loss, gradient, curvature, margin = self.slopes(weights)
        loss = loss / len(self) + float((self.penalty * weights.square()).sum()) / 2
        return Point(weights, loss, gradient / len(self) + self.penalty * weights, curvature, margin)

    def along(self, point: Point, direction: Tensor) -> tuple[Tensor, float]:
        """The Hessian at a point times a direction (K, D), and the largest change of a score along it."""
        product, reach = self.bends(point.curvature, direction)
        return product / len(self) + self.penalty * direction, reach

    def blocks(self, point: Point, count: int) -> Tensor:
        """The Hessian's block for each of the first ``count`` classes, (count, D, D)."""
        return self.squares(point.curvature, count).div_(len(self)).add_(self.penalty.diag())

    def cholesky(self, matrices: Tensor) -> tuple[Tensor, Tensor]:
        """Their lower factors, and which are not positive definite."""
        factors, failed = torch.linalg.cholesky_ex(matrices)
        return factors, failed != 0

    def diagonal(self, point: Point) -> Tensor:
        """The Hessian's diagonal, (K, D)."""
        result = self.zeros()
        for x, part in self._chunks():
            factors, x = self.counted(self.own_curvature(point.curvature[part]), part), self._with_ones(x)
            if self.sparse:
                result += torch.from_numpy((x.multiply(x).T @ factors.numpy()).T)
            else:
                result += factors.T @ x.square()
        return result / len(self) + self.penalty

    def slopes(self, weights: Tensor) -> tuple[float, Tensor, Tensor, float]:
        """Sum of the losses, of their gradients, the curvature, and the least margin."""
        loss, margin, gradient = 0.0, math.inf, self.zeros()
        curvature = gradient.new_empty(len(self), self.units)
        for x, part in self._chunks():
            terms, least = self.terms(self._scores(x, weights), self.targets[part])
            curvature[part] = terms.bend
            loss, margin = loss + float(self.counted(terms.loss, part).sum()), min(margin, least)
            self._collect(gradient, self.counted(terms.slope, part), x)
        return loss, gradient, curvature, margin

    def bends(self, curvature: Tensor, direction: Tensor) -> tuple[Tensor, float]:
        """Sum of the Hessians times a direction, and the largest change of a score."""
        product, reach = self.zeros(), 0.0
        for x, part in self._chunks():
            change = self._scores(x, direction)
            reach = max(reach, float(change.abs().max()))
            self._collect(product, self.counted(self.bent(curvature[part], change), part), x)
        return product, reach

    def squares(self, curvature: Tensor, count: int) -> Tensor:
        """Sum of the Hessians' blocks for the first ``count`` classes, (count, D, D)."""
        result = self.penalty.new_zeros(count, self.width, self.width)
        for x, part in self._chunks():
            factors = self.counted(self.own_curvature(curvature[part]), part)
            if self.sparse:
                x = self._with_ones(x)
                grams = [(x.T @ x.multiply(factors[:, k : k + 1].numpy())).toarray() for k in range(count)]
                return torch.from_numpy(np.stack(grams))
            factors, scaled = factors.sqrt(), x.new_empty(len(x), self.width)
            for k in range(count):
                torch.mul(x, factors[:, k : k + 1], out=scaled[:, : x.shape[1]])
                scaled[:, x.shape[1] :] = factors[:, k : k + 1]
                result[k].addmm_(scaled.T, scaled)
        return result

    def dense(self, part: slice) -> Tensor:
        """Some of the rows in float64, with the constant feature."""
        if self.sparse:
            return torch.from_numpy(self._with_ones(CsrRows(self.rows.X[part])).toarray())
        rows: Tensor = self._with_ones(self.rows[part].double())
        return rows

    def _chunks(self) -> Iterator[tuple[Any, slice]]:
        """The rows: dense ones in float64, some at a time; sparse ones as they are, since products read non-zeros."""
        step = len(self) if self.sparse else max(CHUNK // self.rows.shape[1], 1)
        for first in range(0, len(self), step):
            part = slice(first, first + step)
            yield self.rows if self.sparse else self.rows[part].double(), part

    def _with_ones(self, x: Any) -> Any:
        """A chunk with the constant feature: a tensor, or a CSR array in float64."""
        if not self.sparse:
            return torch.cat((x, x.new_ones(len(x), 1)), 1) if self.bias else x
        from scipy.sparse import csr_array, hstack

        given = x.X.astype(np.float64)
        return csr_array(hstack((given, np.ones((len(x), 1))))) if self.bias else given

    def _scores(self, x: Any, weights: Tensor) -> Tensor:
        weight = weights[:, : self.width - self.bias]
        s: Tensor = x.scores(weight, 0.0) if self.sparse else x @ weight.T
        return s.add_(weights[:, -1]) if self.bias else s

    def _collect(self, total: Tensor, slope: Tensor, x: Any) -> None:
        part = total[:, : self.width - self.bias]
        if self.sparse:
            part += x.mix(slope)
        else:
            part.addmm_(slope.T, x)
        if self.bias:
            total[:, -1] += slope.sum(0)


class Squares(Objective):
    """½ Σ_k (t_k − s_k)²; targets (N, K)."""

    def terms(self, s: Tensor, t: Tensor) -> tuple[Terms, float]:
        return derivatives.lms(s, t), -math.inf

    @property
    def zero_loss(self) -> float:
        return float(self.counted(self.targets.square().sum(1), slice(None)).sum()) / 2 / len(self)


class Softmax(Objective):
    """log Σ_k exp(s_k) − s_t; targets are class indices (N,), the curvature is kept as the probabilities p."""

    def terms(self, s: Tensor, t: Tensor) -> tuple[Terms, float]:
        if self.l2:
            return derivatives.softmax(s, t), 0.0
        index = t[:, None]
        rival = s.scatter(1, index, -math.inf).amax(1, keepdim=True)
        return derivatives.softmax(s, t), float((s.gather(1, index) - rival).min())

    @property
    def zero_loss(self) -> float:
        return math.log(self.units)

    def own_curvature(self, curvature: Tensor) -> Tensor:
        return curvature * (1 - curvature)

    def bent(self, curvature: Tensor, u: Tensor) -> Tensor:
        weighted = curvature * u
        return weighted - curvature * weighted.sum(1, keepdim=True)


class Logistic(Objective):
    """log(1 + exp(−t·s)); targets are signs (N,) in float64."""

    def terms(self, s: Tensor, t: Tensor) -> tuple[Terms, float]:
        return derivatives.logistic(s, t), float((s * t[:, None]).min())

    @property
    def zero_loss(self) -> float:
        return math.log(2)


class _CompiledLogistic(Logistic):
    """The same in compiled loops, each a single reading, the rows shared out among as many threads as torch has.

    What little is left to do beside them is done without torch's own threads: where others use the machine too, they
    wait for one another longer than they work.
    """

    def slopes(self, weights: Tensor) -> tuple[float, Tensor, Tensor, float]:
        from torchperc.descent.loops import slope_rows

        curvature = np.empty(len(self))
        found, total = self._sum(slope_rows, (self.targets.numpy(), curvature), _vector(weights))
        losses, margins = zip(*found, strict=True)
        return sum(losses), torch.from_numpy(total)[None], torch.from_numpy(curvature)[:, None], min(margins)

    def bends(self, curvature: Tensor, direction: Tensor) -> tuple[Tensor, float]:
        from torchperc.descent.loops import bend_rows

        reaches, total = self._sum(bend_rows, (curvature[:, 0].numpy(),), _vector(direction))
        return torch.from_numpy(total)[None], max(reaches)

    def squares(self, curvature: Tensor, count: int) -> Tensor:
        from torchperc.descent.loops import square_rows

        count = min(self.rows.numel() * self.width // (8 * SHARE), 16)  # as each has a matrix of its own
        _, lower = self._sum(square_rows, (curvature[:, 0].numpy(),), dims=2, count=count)
        return torch.from_numpy(lower + np.tril(lower, -1).T)[None]

    def cholesky(self, matrices: Tensor) -> tuple[Tensor, Tensor]:
        from torchperc.descent.loops import cholesky_in_place

        factor = matrices[0].numpy().copy()
        failed = not cholesky_in_place(factor)
        return torch.from_numpy(factor)[None], torch.tensor([failed])

    def _sum(
        self,
        loop: Callable[..., Any],
        by_row: tuple[_Array, ...],
        *rest: _Array,
        dims: int = 1,
        count: int | None = None,
    ) -> tuple[list[Any], _Array]:
        """What a loop returns for each of ``count`` stretches of rows, and the sum of what it adds to its last one.

        Stretches are many and taken one by one, so that a thread that is held up does fewer. They are the same however
        many threads there are, so that sums are too, and nobody waits: what a helper has not finished is done again.
        """
        x, count = self.rows.numpy(), max(self.rows.numel() // SHARE if count is None else count, 1)
        parts = [slice(*pair) for pair in pairwise(len(self) * k // count for k in range(count + 1))]
        results: list[Any] = [None] * count
        left = iter(range(count))

        def one(part: slice) -> tuple[Any, _Array]:
            total = np.zeros((self.width,) * dims)
            return loop(x[part], *(values[part] for values in by_row), *rest, total), total

        def work() -> None:
            for k in left:
                results[k] = one(parts[k])

        helpers = min(compiling.cores(), count) - 1
        tasks = [_helpers(helpers).submit(work) for _ in range(helpers)]
        work()
        for task in tasks:
            task.cancel()
        done = [one(part) if result is None else result for part, result in zip(parts, results, strict=True)]
        return [found for found, _ in done], np.sum([total for _, total in done], 0)


@cache
def _helpers(count: int) -> ThreadPoolExecutor:
    """Threads that wait for work; starting one takes as long as a pass."""
    return ThreadPoolExecutor(count, thread_name_prefix="torchperc")


if hasattr(os, "register_at_fork"):  # threads do not survive a fork, so a child makes its own
    os.register_at_fork(after_in_child=_helpers.cache_clear)


def _vector(weights: Tensor) -> _Array:
    return np.ascontiguousarray(weights[0].numpy())  # a kernel is compiled for each layout it meets


def take(rows: Tensor | CsrRows, index: Tensor) -> Tensor | CsrRows:
    """Some of the rows."""
    return rows[index] if isinstance(rows, Tensor) else rows.take(index)


def objective(
    head: Head, rows: Tensor | CsrRows, labels: Tensor, units: int, bias: bool, l2: float, counts: Tensor | None = None
) -> Objective:
    """The objective of a head with a squared loss or a :class:`LogisticHead`, in the form that is fastest to read."""
    if isinstance(head, SquaredHead):
        return Squares(rows, head.target(labels, units).double(), units, bias, l2, counts)
    if units > 1:
        return Softmax(rows, labels, units, bias, l2, counts)
    known = counts is None and rows.device.type == "cpu" and rows.dtype in (torch.float32, torch.float64)
    compiles = isinstance(rows, Tensor) and known and rows.numel() >= COMPILED_FROM
    return (_CompiledLogistic if compiles else Logistic)(rows, labels.double(), units, bias, l2, counts)
