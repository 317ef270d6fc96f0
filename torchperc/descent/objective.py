"""The mean loss of linear scores plus a penalty, with gradient and Hessian: dense, sparse and compiled.

Weights, gradients and directions are arrays (K, D): vectors of that size gain nothing by torch's threads, and these
would go on spinning for a while on the cores that the passes over the rows need.
"""

from __future__ import annotations

import math
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache, cached_property, partial
from itertools import pairwise
from typing import Any, TypeAlias, TypeVar

import numpy as np
import torch
from torch import Tensor

from torchperc.nn import derivatives
from torchperc.nn.derivatives import Terms
from torchperc.nn.heads import Head, SquaredHead
from torchperc.samples import compiling
from torchperc.samples.rows import CsrRows

Array: TypeAlias = "np.ndarray[Any, Any]"
_Result = TypeVar("_Result")

COMPILED_FROM = 2**22  # numbers in X from which compiled passes repay loading the compiler
COMPILED_SPARSE_FROM = 2**20  # non-zeros times classes from which they do
SHARE = 2**20  # numbers in X that a thread is given at a time
STRETCHES = 16  # into which rows are cut at most where each has sums of some size
CHUNK = 2**19  # numbers of X that are worked on at a time, so that the second use finds them in the cache


@dataclass(frozen=True)
class Point:
    """The objective at some weights: value, gradient (K, D), curvature in the scores (N, K), least margin."""

    weights: Array
    loss: float
    gradient: Array
    curvature: Any
    margin: float

    @property
    def finite(self) -> bool:
        """Whether loss and gradient are."""
        return math.isfinite(self.loss) and bool(np.isfinite(self.gradient).all())


class Objective(ABC):
    """Mean loss of the rows plus penalty, as a function of weights (K, D) whose last column may be the bias.

    ``counts`` says how often each row counts, once on average; ``None`` for once each.
    """

    def __init__(
        self, rows: Tensor | CsrRows, targets: Tensor, units: int, bias: bool, l2: float, counts: Tensor | None = None
    ) -> None:
        self.rows: Any = rows
        self.targets, self.units, self.bias, self.l2, self.counts = targets, units, bias, l2, counts
        self.width = (rows.shape[1] if isinstance(rows, Tensor) else rows.width) + bias
        self.penalty = np.full(self.width, l2)
        if bias:
            self.penalty[-1] = 0.0

    @abstractmethod
    def terms(self, s: Any, t: Any) -> tuple[Terms, float]:
        """Of scores (n, K) and targets, tensors or arrays: loss, slope and curvature, and the least margin.

        The margin is what a sample's score is on its right side by; it means something without penalty only.
        """

    @property
    @abstractmethod
    def zero_loss(self) -> float:
        """The loss of zero weights."""

    def own_curvature(self, curvature: Any) -> Any:
        """∂²loss/∂s_k²."""
        return curvature

    def bent(self, curvature: Any, u: Any) -> Any:
        """How the losses' slopes change as the scores change by u, all (n, K)."""
        return curvature * u

    def part(self, index: Tensor) -> Objective:
        """The same objective over some of the rows."""
        counts = None if self.counts is None else self.counts[index]
        return type(self)(take(self.rows, index), self.targets[index], self.units, self.bias, self.l2, counts)

    def __len__(self) -> int:
        return len(self.rows)

    def counted(self, values: Any, part: slice = slice(None)) -> Any:
        """Values of some rows, (n,) or (n, K), each as often as its row counts."""
        if self.counts is None:
            return values
        counts = self.counts[part] if isinstance(values, Tensor) else self.counts[part].numpy()
        return values * (counts if values.ndim == 1 else counts[:, None])

    def zeros(self) -> Array:
        """Zero weights (K, D)."""
        return np.zeros((self.units, self.width))

    def rounded(self, weights: Array) -> Array:
        """The nearest weights that the net can hold."""
        if self.rows.dtype == torch.float64:
            return weights
        rounded: Array = torch.from_numpy(weights).to(self.rows.dtype).double().numpy()
        return rounded

    def scale(self, point: Point) -> float:
        """What gaps are relative to."""
        return max(point.loss, torch.finfo(self.rows.dtype).eps * self.zero_loss)

    def at(self, weights: Array) -> Point:
        """The objective at some weights: one reading of the rows."""
        loss, gradient, curvature, margin = self.slopes(weights)
        loss = loss / len(self) + float((self.penalty * weights**2).sum()) / 2
        return Point(weights, loss, gradient / len(self) + self.penalty * weights, curvature, margin)

    def along(self, point: Point, direction: Array) -> tuple[Array, float]:
        """The Hessian at a point times a direction (K, D), and the largest change of a score along it."""
        product, reach = self.bends(point.curvature, direction)
        product /= len(self)
        product += self.penalty * direction
        return product, reach

    def blocks(self, point: Point, count: int) -> Array:
        """The Hessian's block for each of the first ``count`` classes, (count, D, D)."""
        return self.squares(point.curvature, count) / len(self) + np.diag(self.penalty)

    def cholesky(self, matrices: Array) -> tuple[Array, bool]:
        """Their lower factors, and whether all are positive definite."""
        factors, failed = torch.linalg.cholesky_ex(torch.from_numpy(matrices))
        return factors.numpy(), not failed.any()

    def diagonal(self, point: Point) -> Array:
        """The Hessian's diagonal, (K, D)."""
        diagonal: Array = self.square_sums(point.curvature) / len(self) + self.penalty
        return diagonal

    def slopes(self, weights: Array) -> tuple[float, Array, Any, float]:
        """Sum of the losses, of their gradients, the curvature, and the least margin."""
        loss, margin, (w, gradient) = 0.0, math.inf, self._there(weights)
        curvature = gradient.new_empty(len(self), self.units)
        for x, part in self._chunks():
            terms, least = self.terms(self._scores(x, w), self.targets[part])
            curvature[part] = terms.bend
            loss, margin = loss + float(self.counted(terms.loss, part).sum()), min(margin, least)
            self._collect(gradient, self.counted(terms.slope, part), x)
        return loss, gradient.cpu().numpy(), curvature, margin

    def bends(self, curvature: Any, direction: Array) -> tuple[Array, float]:
        """Sum of the Hessians times a direction, and the largest change of a score."""
        reach, (v, product) = 0.0, self._there(direction)
        for x, part in self._chunks():
            change = self._scores(x, v)
            reach = max(reach, float(change.abs().max()))
            self._collect(product, self.counted(self.bent(curvature[part], change), part), x)
        return product.cpu().numpy(), reach

    def square_sums(self, curvature: Any) -> Array:
        """Sum of the Hessians' diagonals, (K, D)."""
        _, result = self._there(self.zeros())
        for x, part in self._chunks():
            self._collect(result, self.counted(self.own_curvature(curvature[part]), part), x.square())
        total: Array = result.cpu().numpy()
        return total

    def squares(self, curvature: Any, count: int) -> Array:
        """Sum of the Hessians' blocks for the first ``count`` classes, (count, D, D)."""
        result = torch.zeros(count, self.width, self.width, dtype=torch.float64, device=self.rows.device)
        for x, part in self._chunks():
            factors = self.counted(self.own_curvature(curvature[part]), part).sqrt()
            scaled = x.new_empty(len(x), self.width)
            for k in range(count):
                torch.mul(x, factors[:, k : k + 1], out=scaled[:, : x.shape[1]])
                scaled[:, x.shape[1] :] = factors[:, k : k + 1]
                result[k].addmm_(scaled.T, scaled)
        blocks: Array = result.cpu().numpy()
        return blocks

    def dense(self, part: slice) -> Tensor:
        """Some of the rows in float64, with the constant feature."""
        x = self.rows[part].double()
        return torch.cat((x, x.new_ones(len(x), 1)), 1) if self.bias else x

    def _there(self, weights: Array) -> tuple[Tensor, Tensor]:
        """Weights where the rows are, and zeros to collect sums in."""
        w = torch.from_numpy(weights).to(self.rows.device)
        return w, torch.zeros_like(w)

    def _chunks(self) -> Iterator[tuple[Tensor, slice]]:
        """Some rows at a time in float64."""
        step = max(CHUNK // self.rows.shape[1], 1)
        for first in range(0, len(self), step):
            part = slice(first, first + step)
            yield self.rows[part].double(), part

    def _scores(self, x: Tensor, weights: Tensor) -> Tensor:
        s = x @ weights[:, : self.width - self.bias].T
        return s.add_(weights[:, -1]) if self.bias else s

    def _collect(self, total: Tensor, slope: Tensor, x: Tensor) -> None:
        total[:, : self.width - self.bias].addmm_(slope.T, x)
        if self.bias:
            total[:, -1] += slope.sum(0)


class Squares(Objective):
    """½ Σ_k (t_k − s_k)²; targets (N, K)."""

    def terms(self, s: Any, t: Any) -> tuple[Terms, float]:
        return derivatives.lms(s, t), -math.inf

    @property
    def zero_loss(self) -> float:
        return float(self.counted(self.targets.square().sum(1)).sum()) / 2 / len(self)


class Softmax(Objective):
    """log Σ_k exp(s_k) − s_t; targets are class indices (N,), the curvature is kept as the probabilities p."""

    def terms(self, s: Any, t: Any) -> tuple[Terms, float]:
        found = derivatives.softmax(s, t)
        if self.l2:
            return found, 0.0
        everyone = torch.arange(len(t), device=s.device) if isinstance(s, Tensor) else np.arange(len(t))
        rivals = s + 0
        rivals[everyone, t] = -math.inf
        rival = rivals.amax(1) if isinstance(s, Tensor) else rivals.max(1)
        return found, float((s[everyone, t] - rival).min())

    @property
    def zero_loss(self) -> float:
        return math.log(self.units)

    def own_curvature(self, curvature: Any) -> Any:
        return curvature * (1 - curvature)

    def bent(self, curvature: Any, u: Any) -> Any:
        weighted = curvature * u
        return weighted - curvature * weighted.sum(1)[:, None]


class Logistic(Objective):
    """log(1 + exp(−t·s)); targets are signs (N,) in float64."""

    def terms(self, s: Any, t: Any) -> tuple[Terms, float]:
        return derivatives.logistic(s, t), float((s * t[:, None]).min())

    @property
    def zero_loss(self) -> float:
        return math.log(2)


# --- sparse rows --------------------------------------------------------------------------------------------------


class _Sparse(Objective):
    """Of CSR rows: products with them and with their transpose, by scipy."""

    @cached_property
    def _rows(self) -> Any:
        return self.rows.X.astype(np.float64, copy=False)

    @cached_property
    def _squared(self) -> Any:
        return self._rows**2

    def slopes(self, weights: Array) -> tuple[float, Array, Any, float]:
        terms, margin = self.terms(self._change(weights), self.targets.numpy())
        gradient = self._collected(self._rows, self.counted(terms.slope))
        return float(self.counted(terms.loss).sum()), gradient, terms.bend, margin

    def bends(self, curvature: Any, direction: Array) -> tuple[Array, float]:
        change = self._change(direction)
        product = self._collected(self._rows, self.counted(self.bent(curvature, change)))
        return product, float(abs(change).max())

    def square_sums(self, curvature: Any) -> Array:
        return self._collected(self._squared, self.counted(self.own_curvature(curvature)))

    def squares(self, curvature: Any, count: int) -> Array:
        x, factors = self._with_ones(self._rows), self.counted(self.own_curvature(curvature))
        grams = [(x.T @ x.multiply(factors[:, k : k + 1])).toarray() for k in range(count)]
        return np.stack(grams)

    def dense(self, part: slice) -> Tensor:
        return torch.from_numpy(self._with_ones(self._rows[part]).toarray())

    def _with_ones(self, x: Any) -> Any:
        from scipy.sparse import csr_array, hstack

        return csr_array(hstack((x, np.ones((x.shape[0], 1))))) if self.bias else x

    def _change(self, weights: Array) -> Array:
        """The scores (N, K) that weights give, or by which a direction changes them."""
        s: Array = self._rows @ weights[:, : self.width - self.bias].T
        return s + weights[:, -1] if self.bias else s

    def _collected(self, x: Any, slopes: Array) -> Array:
        """Σ_i slopes_ik·x_i: (K, D)."""
        total = np.empty((self.units, self.width))
        total[:, : x.shape[1]] = (x.T @ slopes).T
        if self.bias:
            total[:, -1] = slopes.sum(0)
        return total


class _SparseSquares(_Sparse, Squares):
    pass


class _SparseSoftmax(_Sparse, Softmax):
    pass


class _SparseLogistic(_Sparse, Logistic):
    pass


class _CompiledSparseSoftmax(_SparseSoftmax):
    """The same in compiled loops on all cores: a reading of the rows for slopes, one of the columns for their sums."""

    def slopes(self, weights: Array) -> tuple[float, Array, Any, float]:
        from torchperc.descent.passes import softmax_slope_sparse

        p = np.empty((len(self), self.units))
        found, gradient = self._pass(softmax_slope_sparse, (self.targets.numpy(), p), weights)
        losses, margins, _ = zip(*found, strict=True)
        return sum(losses), gradient, p, min(margins)

    def bends(self, curvature: Any, direction: Array) -> tuple[Array, float]:
        from torchperc.descent.passes import softmax_bend_sparse

        found, product = self._pass(softmax_bend_sparse, (curvature,), direction)
        return product, max(reach for reach, _ in found)

    @cached_property
    def _columns(self) -> Any:
        """The transpose, in CSR too: its products collect, where those of the rows would scatter."""
        return type(self._rows)(self._rows.T)

    @cached_property
    def _space(self) -> tuple[Array, Array, Array]:
        """Room for weights, slopes and their sums, K padded to whole vector registers; kept, as new memory would be
        cleared page by page in every pass.
        """
        padded, d = -(-self.units // 8) * 8, self.width - self.bias
        return np.zeros((d, padded)), np.empty((len(self), padded)), np.empty((d, padded))

    def _pass(self, loop: Callable[..., Any], by_row: tuple[Array, ...], weights: Array) -> tuple[list[Any], Array]:
        """What a loop returns for each stretch of rows, the sums of the slopes last, and Σ slope·x (K, D)."""
        from torchperc.descent.passes import sparse_product

        d, (weight, slopes, total) = self.width - self.bias, self._space
        weight[:, : self.units] = weights[:, :d].T
        bias = weights[:, -1].copy() if self.bias else np.zeros(self.units)
        found: list[Any] = [None] * STRETCHES
        rows, columns = (CsrRows(x).plain() for x in (self._rows, self._columns))

        def some(first: int, end: int) -> None:
            for k in range(first, end):
                part = (len(self) * k // STRETCHES, len(self) * (k + 1) // STRETCHES)
                found[k] = loop(rows, *by_row, weight, bias, slopes, *part)

        compiling.on_all_cores(some, STRETCHES)
        compiling.on_all_cores(partial(sparse_product, columns, slopes, total), d)
        result = np.empty((self.units, self.width))
        result[:, :d] = total[:, : self.units].T
        if self.bias:
            result[:, -1] = np.sum([sums for *_, sums in found], 0)
        return found, result


# --- in one reading, compiled -------------------------------------------------------------------------------------


class _Compiled(Objective):
    """Passes over the rows in compiled loops, each a single reading, shared out among as many threads as torch has.

    What little is left to do beside them is done without torch's own threads: where others use the machine too, they
    wait for one another longer than they work.
    """

    def _stretches(self, one: Callable[[slice], _Result], count: int) -> list[_Result]:
        """What ``one`` returns for each of ``count`` stretches of rows.

        Stretches are many and taken one by one, so that a thread that is held up does fewer. They are the same however
        many threads there are, so that sums are too, and nobody waits: what a helper has not finished is done again.
        """
        count = max(count, 1)
        parts = [slice(*pair) for pair in pairwise(len(self) * k // count for k in range(count + 1))]
        results: list[_Result | None] = [None] * count
        left = iter(range(count))

        def work() -> None:
            for k in left:
                results[k] = one(parts[k])

        helpers = min(compiling.cores(), count) - 1
        tasks = [_helpers(helpers).submit(work) for _ in range(helpers)]
        work()
        for task in tasks:
            task.cancel()
        return [one(part) if result is None else result for part, result in zip(parts, results, strict=True)]


class _CompiledSoftmax(_Compiled, Softmax):
    def slopes(self, weights: Array) -> tuple[float, Array, Any, float]:
        from torchperc.descent.passes import softmax_slope_rows

        p = np.empty((len(self), self.units))
        found, gradient = self._sum(softmax_slope_rows, (self.targets.numpy(), p), weights)
        losses, margins = zip(*found, strict=True)
        return sum(losses), gradient, p, min(margins)

    def bends(self, curvature: Any, direction: Array) -> tuple[Array, float]:
        from torchperc.descent.passes import softmax_bend_rows

        reaches, product = self._sum(softmax_bend_rows, (curvature,), direction)
        return product, max(reaches)

    def square_sums(self, curvature: Any) -> Array:
        return super().square_sums(torch.from_numpy(curvature))

    def squares(self, curvature: Any, count: int) -> Array:
        return super().squares(torch.from_numpy(curvature), count)

    def _sum(self, loop: Callable[..., Any], by_row: tuple[Array, ...], weights: Array) -> tuple[list[Any], Array]:
        """What a loop returns for each stretch of rows, and the sum (K, D) of what it adds to its totals."""
        x, w, d = self.rows.numpy(), weights, self.width - self.bias
        weight, bias = np.ascontiguousarray(w[:, :d]), w[:, -1].copy() if self.bias else np.zeros(self.units)

        def one(part: slice) -> tuple[Any, Array, Array]:
            total, total_bias = np.zeros((self.units, d)), np.zeros(self.units)
            return (
                loop(x[part], *(values[part] for values in by_row), weight, bias, total, total_bias),
                total,
                total_bias,
            )

        found, totals, biases = zip(
            *self._stretches(one, min(self.rows.numel() * self.units // SHARE, STRETCHES)), strict=True
        )
        result = np.empty((self.units, self.width))
        result[:, :d] = np.sum(totals, 0)
        if self.bias:
            result[:, -1] = np.sum(biases, 0)
        return list(found), result


class _CompiledLogistic(_Compiled, Logistic):
    """Two classes, the rows dense or sparse."""

    def slopes(self, weights: Array) -> tuple[float, Array, Any, float]:
        from torchperc.descent.passes import slope_rows

        curvature = np.empty((len(self), 1))
        found, total = self._sum(slope_rows, (self.targets.numpy(), curvature[:, 0]), weights)
        losses, _, margins = zip(*found, strict=True)
        return sum(losses), total, curvature, min(margins)

    def bends(self, curvature: Any, direction: Array) -> tuple[Array, float]:
        from torchperc.descent.passes import bend_rows

        found, total = self._sum(bend_rows, (curvature[:, 0],), direction)
        return total, max(reach for _, reach in found)

    def cholesky(self, matrices: Array) -> tuple[Array, bool]:
        from torchperc.descent.passes import cholesky_in_place

        factor = matrices[0].copy()
        return factor[None], cholesky_in_place(factor)

    def _sum(self, loop: Callable[..., Any], by_row: tuple[Array, ...], weights: Array) -> tuple[list[Any], Array]:
        """What a loop returns for each stretch of rows, and the sum (1, D) of what it adds up and of slopes."""
        d, rows = self.width - self.bias, self._plain
        w, bias = weights[0, :d].copy(), float(weights[0, -1]) if self.bias else 0.0

        def one(part: slice) -> tuple[Any, Array]:
            total = np.zeros(d)
            return loop(rows, *by_row, w, bias, total, part.start, part.stop), total

        found, totals = zip(*self._stretches(one, self._count), strict=True)
        result = np.empty((1, self.width))
        result[0, :d] = np.sum(totals, 0)
        if self.bias:
            result[0, -1] = sum(each[-2] for each in found)
        return list(found), result

    @property
    def _plain(self) -> tuple[Array, ...]:
        return (self.rows.numpy(),)

    @property
    def _count(self) -> int:
        """Of stretches."""
        return int(self.rows.numel()) // SHARE


class _CompiledDenseLogistic(_CompiledLogistic):
    def squares(self, curvature: Any, count: int) -> Array:
        from torchperc.descent.passes import square_rows

        x = self.rows.numpy()

        def one(part: slice) -> Array:
            total = np.zeros((self.width, self.width))
            square_rows(x[part], curvature[part, 0], total)
            return total

        count = min(self.rows.numel() * self.width // (8 * SHARE), STRETCHES)  # as each has a matrix of its own
        lower = np.sum(self._stretches(one, count), 0)
        blocks: Array = (lower + np.tril(lower, -1).T)[None]
        return blocks

    def square_sums(self, curvature: Any) -> Array:
        return super().square_sums(torch.from_numpy(curvature))


class _CompiledSparseLogistic(_CompiledLogistic, _SparseLogistic):
    @property
    def _plain(self) -> tuple[Array, ...]:
        return CsrRows(self._rows).plain()

    @property
    def _count(self) -> int:
        return min(int(self._rows.nnz) // (8 * self.width), STRETCHES)  # as each has a gradient of its own


@cache
def _helpers(count: int) -> ThreadPoolExecutor:
    """Threads that wait for work; starting one takes as long as a pass."""
    return ThreadPoolExecutor(count, thread_name_prefix="torchperc")


if hasattr(os, "register_at_fork"):  # threads do not survive a fork, so a child makes its own
    os.register_at_fork(after_in_child=_helpers.cache_clear)


def take(rows: Tensor | CsrRows, index: Tensor) -> Tensor | CsrRows:
    """Some of the rows."""
    return rows[index] if isinstance(rows, Tensor) else rows.take(index)


def objective(
    head: Head, rows: Tensor | CsrRows, labels: Tensor, units: int, bias: bool, l2: float, counts: Tensor | None = None
) -> Objective:
    """The objective of a head with a squared loss or a :class:`LogisticHead`, in the form that is fastest to read."""
    kind: Any
    if isinstance(head, SquaredHead):
        kind, targets = Squares, head.target(labels, units).double()
    elif units > 1:
        kind, targets = Softmax, labels
    else:
        kind, targets = Logistic, labels.double()
    known = counts is None and rows.device.type == "cpu" and rows.dtype in (torch.float32, torch.float64)
    if not isinstance(rows, Tensor):
        kind = {Squares: _SparseSquares, Softmax: _SparseSoftmax, Logistic: _SparseLogistic}[kind]
        if known and rows.X.nnz * max(units, 2) >= COMPILED_SPARSE_FROM:
            kind = {_SparseSoftmax: _CompiledSparseSoftmax, _SparseLogistic: _CompiledSparseLogistic}.get(kind, kind)
    elif known and rows.numel() * units >= COMPILED_FROM:
        kind = {Softmax: _CompiledSoftmax, Logistic: _CompiledDenseLogistic}.get(kind, kind)
    found: Objective = kind(rows, targets, units, bias, l2, counts)
    return found
