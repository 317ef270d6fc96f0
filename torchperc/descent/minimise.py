"""The minimum itself: where gradient descent on a convex loss would end, reached directly.

The squared loss has a closed form. The logistic losses are taken there by Newton's method: each step solves
H·p = −g by conjugate gradients, so that all that is asked of the data is products with them, one reading of X each. Two
things keep the readings few. A sample of the rows is minimised first, which starts the whole close to its minimum, and
the sample's Hessian preconditions the whole's, which is nearly the same matrix.
"""

from __future__ import annotations

import math
import os
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn

from torchperc import _checks as checks
from torchperc.nn.heads import Head, LMSHead, LogisticHead
from torchperc.nn.modules import MulticlassPerceptron, Perceptron
from torchperc.samples import compiling, convert
from torchperc.samples.rows import CsrRows

_Array: TypeAlias = "np.ndarray[Any, Any]"
LinearNet: TypeAlias = Perceptron | MulticlassPerceptron | nn.Linear
Solve: TypeAlias = Callable[[Tensor], Tensor]

COMPILED_FROM = 2**22  # numbers in X from which compiled passes repay loading the compiler
SHARE = 2**20  # numbers in X that a thread is given at a time
DENSE_UP_TO = 1024  # parameters a class up to which Hessians are written down; beyond, their diagonals
CHUNK = 2**19  # numbers of X that are worked on at a time, so that the second use finds them in the cache
SAMPLED = 16  # one row in so many goes into the sample
SQUARES_UP_TO = 4096  # parameters a class up to which normal equations are written down
FAR, FLAT, DRIFTS = 0.5, 1e-6, 5  # scores moving so far, the relative gap being so small, so many steps long: a drift
STRIDE = 512  # factors 1 + e ≤ 2 that are multiplied before their logarithm is taken: 2⁵¹² is far from overflow


@dataclass(frozen=True)
class Optimum:
    """Where :func:`minimise` ended, in figures of the weights that it left in the net.

    Args:
        loss: the mean loss plus ½·l2·‖w‖².
        gradient_norm: ‖g‖₂ of its gradient, the bias's part included.
        gap: how far the loss may still be above its minimum, relative to the loss: half the squared Newton decrement
            ½·gᵀH⁻¹g, with the Hessian of all rows at these weights, divided by the loss (or, where that is larger, by
            the rounding unit of the net's type times the loss of zero weights). For the squared loss this is the gap
            itself; for the logistic losses it is what the quadratic model of the loss says, an estimate that is exact
            in the limit and no bound. H⁻¹g comes from conjugate gradients, and what these have left over is counted in.
        iterations: Newton steps over all rows, or solutions of the normal equations.
        converged: whether ``gap`` came down to the tolerance.
        unbounded: there is no minimum: the loss falls forever as the weights grow.

    Example:
        >>> Optimum(loss=0.25, gradient_norm=0.0, gap=0.0, iterations=1, converged=True).unbounded
        False
    """

    loss: float
    gradient_norm: float
    gap: float
    iterations: int
    converged: bool
    unbounded: bool = False


def minimise(
    net: LinearNet,
    head: Head,
    X: checks.Data,
    y: checks.Data,
    *,
    l2: float = 0.0,
    tolerance: float = 1e-6,
    max_iterations: int = 100,
    sample_weight: checks.Data | None = None,
) -> Optimum:
    """Take a linear net to the minimum of its head's loss, in place: mean loss + ½·l2·‖w‖², the bias not penalised.

    A squared loss is solved by its normal equations; if features depend on each other, the minimum nearest to the
    weights the net had is taken. A logistic loss is minimised by Newton's method until its relative gap is at most
    ``tolerance``, from the net's weights or from zero, whichever is lower. All arithmetic is in float64, whatever the
    net's type, and the figures returned are those of the weights as rounded to it.

    Samples that a hyperplane separates have no logistic minimum without ``l2``. This is found out, since weights with
    every sample on its right side are a proof of it: minimising stops there, warns, and returns ``unbounded=True``. The
    same goes for samples that are separated but for some on the boundary, where the weights grow and grow while the
    gap falls below 1e-6; at tolerances above that, nobody looks.

    Args:
        net: a :class:`Perceptron`, :class:`MulticlassPerceptron` or ``nn.Linear``.
        head: an :class:`LMSHead` or :class:`LogisticHead`.
        X: samples, dense or sparse; sparse ones stay so, on the CPU.
        y: labels −1/+1, or class indices for a net of K classes.
        l2: the weight of the penalty.
        tolerance: the relative gap that is good enough.
        max_iterations: Newton steps over all rows at most; running out is reported, not raised.
        sample_weight: how much each sample counts in the mean, Σ c·loss/Σ c; 0 leaves it out, and a weight of 3 is the
            same as three copies.

    Shape:
        X (N, d), y (N,), sample_weight (N,).

    Example:
        >>> from torchperc.nn.modules import Perceptron
        >>> net = Perceptron(1)
        >>> found = minimise(net, LogisticHead(), [[0.0], [1.0], [2.0], [3.0]], [-1, 1, -1, 1])
        >>> found.converged, round(found.loss, 4), net.weight.data
        (True, 0.5869, tensor([[0.9082]]))
    """
    l2 = checks.number("l2", l2, at_least=0)
    tolerance = checks.number("tolerance", tolerance, above=0)
    max_iterations = checks.whole("max_iterations", max_iterations, at_least=1)
    if not isinstance(head, LMSHead | LogisticHead):
        raise TypeError(
            f"head must be an LMSHead or a LogisticHead, found {type(head).__name__}; the perceptron criterion has its "
            "minimum 0 at zero weights, so train for it with RuleTrainer"
        )
    start = _parameters(net)
    # whether X is finite shows in the first gradient, so no reading is spent on that
    dtype, device = net.weight.dtype, net.weight.device
    rows: Tensor | CsrRows
    if checks.is_sparse(X):
        if device.type != "cpu":
            raise ValueError(f"X is sparse, which needs a net on the CPU, found one on {device}; pass net.cpu()")
        rows = CsrRows(convert.sparse_features(X, dtype=dtype, width=net.in_features))
    else:
        rows = convert.features(X, dtype=dtype, device=device, width=net.in_features, finite=False).contiguous()
    labels = _labels(y, len(rows), len(start)).to(device)
    counts = None if sample_weight is None else checks.nonnegative_weights(sample_weight, len(rows)).to(device)
    if counts is not None and not counts.all():
        rows, labels, counts = _take(rows, counts > 0), labels[counts > 0], counts[counts > 0]
        if labels.min() == labels.max():
            raise ValueError("sample_weight leaves samples of one class only; there is nothing to learn")
    if isinstance(head, LogisticHead) and len(start) > 1 and net.bias is not None:
        _check_classes_occur(labels, len(start))
    counts = None if counts is None else counts / counts.mean()  # so that sums over samples can be divided by N
    objective = _objective(head, rows, labels, len(start), net.bias is not None, l2, counts)
    try:
        solver = _solve_squares if isinstance(head, LMSHead) else _solve_logistic
        weights, found = solver(objective, start, tolerance, max_iterations)
    except FloatingPointError:
        if isinstance(rows, Tensor):
            convert.features(X, dtype=dtype, device=device)  # names the entry that is not finite
        largest = float(rows.abs().max() if isinstance(rows, Tensor) else abs(rows.X).max())
        raise ValueError(f"X holds values up to {largest:g}, whose products overflow; scale it") from None
    _write(net, weights)
    if found.unbounded:
        warnings.warn(
            "the loss has no minimum: a hyperplane separates the samples, some perhaps lying on it, so the loss falls "
            "forever as the weights grow. The net has the weights at which this was found. Use l2 > 0.",
            UserWarning,
            stacklevel=2,
        )
    return found


# --- from a net and data to a problem -----------------------------------------------------------------------------


def _parameters(net: object) -> Tensor:
    """Weights and bias of a linear net as one float64 matrix, the bias last."""
    if not isinstance(net, LinearNet):
        raise TypeError(
            "net must be a linear net (Perceptron, MulticlassPerceptron or nn.Linear), found "
            f"{type(net).__name__}; other losses than a convex one are left to gradient descent"
        )
    for name, values in (("weight", net.weight), ("bias", net.bias)):
        if values is not None and (not isinstance(values, nn.Parameter) or values.is_inference() or values.is_meta):
            raise TypeError(
                f"net.{name} must be a plain parameter that can be written, found {type(values).__name__} on "
                f"{values.device}; remove parametrizations and pruning first, and make the net outside inference_mode"
            )
    checks.floating("net.weight's dtype", net.weight.dtype)
    parts = [net.weight.detach()] if net.bias is None else [net.weight.detach(), net.bias.detach()[:, None]]
    start = torch.cat([part.double() for part in parts], 1)
    if not torch.isfinite(start).all():
        raise ValueError("net has weights that are not finite; reset them first")
    return start


def _labels(y: checks.Data, count: int, units: int) -> Tensor:
    if units > 1:
        return checks.class_indices(y, count, units)
    plain = isinstance(y, Tensor) and y.device.type == "cpu" and y.dtype in (torch.int64, torch.float32, torch.float64)
    values = y.detach().numpy() if plain else y
    if type(values) is np.ndarray and values.shape == (count,) and values.dtype.kind in "if":
        plus, minus = np.count_nonzero(values == 1), np.count_nonzero(values == -1)
        if plus and minus and plus + minus == count:
            return torch.from_numpy(values.astype(np.float64))
    return checks.signs(y, count)


def _take(rows: Tensor | CsrRows, index: Tensor) -> Tensor | CsrRows:
    return rows[index] if isinstance(rows, Tensor) else rows.take(index)


def _check_classes_occur(labels: Tensor, classes: int) -> None:
    missing = (labels.bincount(minlength=classes) == 0).nonzero().squeeze(-1).tolist()
    if missing:
        raise ValueError(
            f"y has no sample of class {missing[0]}, whose bias would fall forever; give the net only the classes "
            "that occur, or a net without bias"
        )


def _write(net: LinearNet, weights: Tensor) -> None:
    with torch.no_grad():
        net.weight.copy_(weights[:, : net.in_features])
        if net.bias is not None:
            net.bias.copy_(weights[:, -1])


# --- the objective and its passes over the data -------------------------------------------------------------------


@dataclass(frozen=True)
class _Point:
    """The objective at some weights: value, gradient (K, D), curvature in the scores (N, K), least margin."""

    weights: Tensor
    loss: float
    gradient: Tensor
    curvature: Tensor
    margin: float

    @property
    def finite(self) -> bool:
        return math.isfinite(self.loss) and bool(torch.isfinite(self.gradient).all())


class _Objective(ABC):
    """Mean loss of the rows plus penalty, as a function of weights (K, D) whose last column may be the bias.

    ``counts`` says how often each row counts, once on average; ``None`` for once each.
    """

    def __init__(
        self, rows: Tensor | CsrRows, targets: Tensor, units: int, bias: bool, l2: float, counts: Tensor | None = None
    ) -> None:
        self.rows: Any = rows
        self.targets, self.units, self.bias, self.l2, self.counts = targets, units, bias, l2, counts
        self.width = (rows.shape[1] if isinstance(rows, Tensor) else rows.width) + bias
        self.penalty = torch.full((self.width,), l2, dtype=torch.float64, device=rows.device)
        if bias:
            self.penalty[-1] = 0.0

    @abstractmethod
    def terms(self, s: Tensor, t: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Of scores (n, K) and targets: the losses (n,), their slopes (n, K), curvature (n, K), the least margin.

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

    def part(self, index: Tensor) -> _Objective:
        """The same objective over some of the rows."""
        counts = None if self.counts is None else self.counts[index]
        return type(self)(_take(self.rows, index), self.targets[index], self.units, self.bias, self.l2, counts)

    def __len__(self) -> int:
        return len(self.rows)

    def counted(self, values: Tensor, part: slice) -> Tensor:
        """Values of some rows, (n,) or (n, K), each as often as its row counts."""
        if self.counts is None:
            return values
        return values * (self.counts[part] if values.dim() == 1 else self.counts[part, None])

    def zeros(self) -> Tensor:
        return torch.zeros(self.units, self.width, dtype=torch.float64, device=self.rows.device)

    def rounded(self, weights: Tensor) -> Tensor:
        """The nearest weights that the net can hold."""
        return weights.to(self.rows.dtype).double()

    def scale(self, point: _Point) -> float:
        """What gaps are relative to."""
        return max(point.loss, torch.finfo(self.rows.dtype).eps * self.zero_loss)

    def at(self, weights: Tensor) -> _Point:
        loss, gradient, curvature, margin = self.slopes(weights)
        loss = loss / len(self) + float((self.penalty * weights.square()).sum()) / 2
        return _Point(weights, loss, gradient / len(self) + self.penalty * weights, curvature, margin)

    def along(self, point: _Point, direction: Tensor) -> tuple[Tensor, float]:
        """The Hessian at a point times a direction (K, D), and the largest change of a score along it."""
        product, reach = self.bends(point.curvature, direction)
        return product / len(self) + self.penalty * direction, reach

    def blocks(self, point: _Point, count: int) -> Tensor:
        """The Hessian's block for each of the first ``count`` classes, (count, D, D)."""
        return self.squares(point.curvature, count).div_(len(self)).add_(self.penalty.diag())

    def cholesky(self, matrices: Tensor) -> tuple[Tensor, Tensor]:
        """Their lower factors, and which are not positive definite."""
        factors, failed = torch.linalg.cholesky_ex(matrices)
        return factors, failed != 0

    def diagonal(self, point: _Point) -> Tensor:
        """The Hessian's diagonal, (K, D)."""
        result = self.zeros()
        for x, part in self.chunks():
            result += self.counted(self.own_curvature(point.curvature[part]), part).T @ self.with_ones(x).square()
        return result / len(self) + self.penalty

    def slopes(self, weights: Tensor) -> tuple[float, Tensor, Tensor, float]:
        """Sum of the losses, of their gradients, the curvature, and the least margin: one reading of the rows."""
        loss, margin, gradient = 0.0, math.inf, self.zeros()
        curvature = gradient.new_empty(len(self), self.units)
        for x, part in self.chunks():
            value, slope, curvature[part], least = self.terms(self._scores(x, weights), self.targets[part])
            loss, margin = loss + float(self.counted(value, part).sum()), min(margin, float(least))
            self._collect(gradient, self.counted(slope, part), x)
        return loss, gradient, curvature, margin

    def bends(self, curvature: Tensor, direction: Tensor) -> tuple[Tensor, float]:
        """Sum of the Hessians times a direction, and the largest change of a score: one reading of the rows."""
        product, reach = self.zeros(), 0.0
        for x, part in self.chunks():
            change = self._scores(x, direction)
            reach = max(reach, float(change.abs().max()))
            self._collect(product, self.counted(self.bent(curvature[part], change), part), x)
        return product, reach

    def squares(self, curvature: Tensor, count: int) -> Tensor:
        """Sum of the Hessians' blocks for the first ``count`` classes, (count, D, D)."""
        result = self.penalty.new_zeros(count, self.width, self.width)
        for x, part in self.chunks():
            factors = self.counted(self.own_curvature(curvature[part]), part).sqrt()
            scaled = x.new_empty(len(x), self.width)
            for k in range(count):
                torch.mul(x, factors[:, k : k + 1], out=scaled[:, : x.shape[1]])
                scaled[:, x.shape[1] :] = factors[:, k : k + 1]
                result[k].addmm_(scaled.T, scaled)
        return result

    def chunks(self) -> Iterator[tuple[Tensor, slice]]:
        step = max(CHUNK // self.rows.shape[1], 1)
        for first in range(0, len(self), step):
            part = slice(first, first + step)
            yield self.rows[part].double(), part

    def dense(self, part: slice) -> Tensor:
        """Some of the rows in float64, with the constant feature."""
        return self.with_ones(self.rows[part].double())

    def with_ones(self, x: Tensor) -> Tensor:
        return torch.cat((x, x.new_ones(len(x), 1)), 1) if self.bias else x

    def _scores(self, x: Tensor, weights: Tensor) -> Tensor:
        s = x @ weights[:, : x.shape[1]].T
        return s.add_(weights[:, -1]) if self.bias else s

    def _collect(self, total: Tensor, slope: Tensor, x: Tensor) -> None:
        total[:, : x.shape[1]].addmm_(slope.T, x)
        if self.bias:
            total[:, -1] += slope.sum(0)


class _Squares(_Objective):
    """½ Σ_k (t_k − s_k)²; targets (N, K)."""

    def terms(self, s: Tensor, t: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        slope = s - t
        return slope.square().sum(1) / 2, slope, torch.ones_like(s), s.new_tensor(-math.inf)

    @property
    def zero_loss(self) -> float:
        return float(self.counted(self.targets.square().sum(1), slice(None)).sum()) / 2 / len(self)

    def squares(self, curvature: Tensor, count: int) -> Tensor:
        if self.counts is not None:
            return super().squares(curvature, 1).expand(count, -1, -1).clone()
        result = self.penalty.new_zeros(1, self.width, self.width)
        for x, _ in self.chunks():
            result[0, : x.shape[1], : x.shape[1]].addmm_(x.T, x)
            if self.bias:
                result[0, -1, :-1] += x.sum(0)
        if self.bias:
            result[0, :-1, -1], result[0, -1, -1] = result[0, -1, :-1], len(self)
        return result.expand(count, -1, -1).clone()


class _Softmax(_Objective):
    """log Σ_k exp(s_k) − s_t; targets are class indices (N,), the curvature is kept as the probabilities p."""

    def terms(self, s: Tensor, t: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        own, index = s.gather(1, t[:, None]), t[:, None]
        log_sum = s.logsumexp(1, keepdim=True)
        p = (s - log_sum).exp_()
        slope = p.scatter_add(1, index, torch.full_like(own, -1.0))
        rival = s.scatter(1, index, -math.inf).amax(1, keepdim=True) if self.l2 == 0 else own
        return (log_sum - own).squeeze(1), slope, p, (own - rival).min()

    @property
    def zero_loss(self) -> float:
        return math.log(self.units)

    def own_curvature(self, curvature: Tensor) -> Tensor:
        return curvature * (1 - curvature)

    def bent(self, curvature: Tensor, u: Tensor) -> Tensor:
        weighted = curvature * u
        return weighted - curvature * weighted.sum(1, keepdim=True)


class _Logistic(_Objective):
    """log(1 + exp(−t·s)); targets are signs (N,) in float64."""

    def terms(self, s: Tensor, t: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        margin = s * t[:, None]
        wrong = torch.sigmoid(-margin)
        loss = torch.logaddexp(-margin, torch.zeros_like(margin)).squeeze(1)
        return loss, -wrong * t[:, None], wrong * torch.sigmoid(margin), margin.min()

    @property
    def zero_loss(self) -> float:
        return math.log(2)


class _Sparse(_Objective):
    """An objective over the rows of a CSR array, of which products read the non-zeros only."""

    def slopes(self, weights: Tensor) -> tuple[float, Tensor, Tensor, float]:
        loss, slope, curvature, margin = self.terms(self._scores(self.rows, weights), self.targets)
        whole = slice(None)
        gradient = self._mixed(self.counted(slope, whole))
        return float(self.counted(loss, whole).sum()), gradient, curvature, float(margin)

    def bends(self, curvature: Tensor, direction: Tensor) -> tuple[Tensor, float]:
        change = self._scores(self.rows, direction)
        return self._mixed(self.counted(self.bent(curvature, change), slice(None))), float(change.abs().max())

    def squares(self, curvature: Tensor, count: int) -> Tensor:
        factors, ones = self.counted(self.own_curvature(curvature), slice(None)), self._with_ones()
        grams = [(ones.T @ ones.multiply(factors[:, k : k + 1].numpy())).toarray() for k in range(count)]
        return torch.from_numpy(np.stack(grams))

    def diagonal(self, point: _Point) -> Tensor:
        factors, ones = self.counted(self.own_curvature(point.curvature), slice(None)), self._with_ones()
        return torch.from_numpy((ones.multiply(ones).T @ factors.numpy()).T) / len(self) + self.penalty

    def dense(self, part: slice) -> Tensor:
        return self.with_ones(torch.from_numpy(self.rows.X[part].toarray()).double())

    def _with_ones(self) -> Any:
        from scipy.sparse import csr_array, hstack

        given = self.rows.X.astype(np.float64)
        return csr_array(hstack((given, np.ones((len(self), 1))))) if self.bias else given

    def _scores(self, x: Any, weights: Tensor) -> Tensor:
        scores: Tensor = x.scores(weights[:, : x.width], weights[:, -1] if self.bias else 0.0)
        return scores

    def _mixed(self, slope: Tensor) -> Tensor:
        """Σ_i slope_ik·(x_i, 1): (K, D)."""
        total: Tensor = self.rows.mix(slope)
        return torch.cat((total, slope.sum(0)[:, None]), 1) if self.bias else total


class _SparseSquares(_Sparse, _Squares):
    """The squared loss of sparse rows."""


class _SparseSoftmax(_Sparse, _Softmax):
    """The loss of K classes, of sparse rows."""


class _SparseLogistic(_Sparse, _Logistic):
    """The logistic loss of sparse rows."""


class _CompiledLogistic(_Logistic):
    """The same in compiled loops, each a single reading, the rows shared out among as many threads as torch has.

    What little is left to do beside them is done without torch's own threads: where others use the machine too, they
    wait for one another longer than they work.
    """

    def part(self, index: Tensor) -> _Objective:
        rows, targets = (torch.from_numpy(values.numpy()[index.numpy()]) for values in (self.rows, self.targets))
        return type(self)(rows, targets, self.units, self.bias, self.l2)

    def slopes(self, weights: Tensor) -> tuple[float, Tensor, Tensor, float]:
        curvature, y, w = np.empty(len(self)), self.targets.numpy(), _vector(weights)

        def share(x: _Array, part: slice) -> tuple[float, float, _Array]:
            total = np.zeros(self.width)
            return (*_compiled().slopes(x, y[part], w, curvature[part], total), total)

        losses, margins, totals = zip(*self._shared(share), strict=True)
        return sum(losses), torch.from_numpy(sum(totals))[None], torch.from_numpy(curvature)[:, None], min(margins)

    def bends(self, curvature: Tensor, direction: Tensor) -> tuple[Tensor, float]:
        c, v = curvature[:, 0].numpy(), _vector(direction)

        def share(x: _Array, part: slice) -> tuple[float, _Array]:
            total = np.zeros(self.width)
            return _compiled().bends(x, c[part], v, total), total

        reaches, totals = zip(*self._shared(share), strict=True)
        return torch.from_numpy(sum(totals))[None], max(reaches)

    def squares(self, curvature: Tensor, count: int) -> Tensor:
        c = curvature[:, 0].numpy()

        def share(x: _Array, part: slice) -> _Array:
            total = np.zeros((self.width, self.width))
            _compiled().squares(x, c[part], total)
            return total

        count = min(self.rows.numel() * self.width // (8 * SHARE), 16)  # as each has a matrix of its own
        lower = sum(self._shared(share, count))
        return torch.from_numpy(lower + np.tril(lower, -1).T)[None]

    def cholesky(self, matrices: Tensor) -> tuple[Tensor, Tensor]:
        factor = matrices[0].numpy().copy()
        failed = not _compiled().cholesky(factor)
        return torch.from_numpy(factor)[None], torch.tensor([failed])

    def _shared(self, share: Callable[[_Array, slice], Any], count: int | None = None) -> list[Any]:
        """What ``share`` makes of each of ``count`` stretches of rows.

        Stretches are many and taken one by one, so that a thread that is held up does fewer. They are the same however
        many threads there are, so that sums are too, and nobody waits: what a helper has not finished is done again.
        """
        x, count = self.rows.numpy(), max(self.rows.numel() // SHARE if count is None else count, 1)
        parts = [slice(*pair) for pair in pairwise(len(self) * k // count for k in range(count + 1))]
        results: list[Any] = [None] * count
        left = iter(range(count))

        def take() -> None:
            for k in left:
                results[k] = share(x[parts[k]], parts[k])

        helpers = min(compiling.cores(), count) - 1
        tasks = [_helpers(helpers).submit(take) for _ in range(helpers)]
        take()
        for task in tasks:
            task.cancel()
        return [share(x[part], part) if done is None else done for part, done in zip(parts, results, strict=True)]


@cache
def _helpers(count: int) -> ThreadPoolExecutor:
    """Threads that wait for work; starting one takes as long as a pass."""
    return ThreadPoolExecutor(count, thread_name_prefix="torchperc")


if hasattr(os, "register_at_fork"):  # threads do not survive a fork, so a child makes its own
    os.register_at_fork(after_in_child=_helpers.cache_clear)


def _vector(weights: Tensor) -> _Array:
    return np.ascontiguousarray(weights[0].numpy())  # a kernel is compiled for each layout it meets


def _objective(
    head: Head, rows: Tensor | CsrRows, labels: Tensor, units: int, bias: bool, l2: float, counts: Tensor | None = None
) -> _Objective:
    sparse = isinstance(rows, CsrRows)
    if isinstance(head, LMSHead):
        low = 0.0 if head.targets == "0/1" else -1.0
        hot = labels[:, None] == (1 if units == 1 else torch.arange(units, device=labels.device))
        targets = torch.where(hot, 1.0, low).double()
        return (_SparseSquares if sparse else _Squares)(rows, targets, units, bias, l2, counts)
    if units > 1:
        return (_SparseSoftmax if sparse else _Softmax)(rows, labels, units, bias, l2, counts)
    if isinstance(rows, CsrRows):
        return _SparseLogistic(rows, labels.double(), units, bias, l2, counts)
    known = counts is None and rows.device.type == "cpu" and rows.dtype in (torch.float32, torch.float64)
    compiled = known and rows.numel() >= COMPILED_FROM and _compiled() is not None
    return (_CompiledLogistic if compiled else _Logistic)(rows, labels.double(), units, bias, l2, counts)


# --- compiled passes ----------------------------------------------------------------------------------------------


class _Loops(NamedTuple):
    """The compiled loops, by the methods they serve."""

    slopes: Any
    bends: Any
    squares: Any
    cholesky: Any


@cache
def _compiled() -> Any:
    """The loops below, compiled when first called and kept on disk; ``None`` without numba."""
    try:
        from numba import njit
    except ImportError:
        return None
    # sums may be taken in any order, as every vectorised sum is; infinities and NaN keep their meaning
    options: dict[str, Any] = {"nogil": True, "fastmath": {"reassoc", "contract", "nsz"}}
    loops = (_slope_rows, _bend_rows, _square_rows, _cholesky_in_place)
    try:
        return _Loops(*(njit(cache=True, **options)(loop) for loop in loops))
    except RuntimeError:  # nowhere to keep them
        return _Loops(*(njit(**options)(loop) for loop in loops))


def _slope_rows(x: Any, y: Any, w: Any, curvature: Any, total: Any) -> Any:
    """Sum of the losses and least margin; adds up the gradient in ``total``. Each row is used while it is at hand."""
    n, d = x.shape
    loss, least, product, total_bias = 0.0, np.inf, 1.0, 0.0
    bias = w[d] if len(w) > d else 0.0
    for i in range(n):
        s = bias
        for j in range(d):
            s += x[i, j] * w[j]
        m = y[i] * s
        e = math.exp(-abs(m))
        right = 1.0 / (1.0 + e)
        curvature[i] = e * right * right
        residual = -y[i] * (e * right if m > 0 else right)
        # log(1 + exp(−m)) = max(−m, 0) + log(1 + e), and the logarithms are taken of many factors at once
        loss += max(-m, 0.0)
        product *= 1.0 + e
        if i % STRIDE == 0:
            loss += math.log(product)
            product = 1.0
        least = min(least, m)
        total_bias += residual
        for j in range(d):
            total[j] += residual * x[i, j]
    if len(w) > d:
        total[d] += total_bias
    return loss + math.log(product), least


def _bend_rows(x: Any, curvature: Any, v: Any, total: Any) -> Any:
    """The largest change of a score along ``v``; adds up the Hessian's product with ``v`` in ``total``."""
    n, d = x.shape
    reach, total_bias = 0.0, 0.0
    bias = v[d] if len(v) > d else 0.0
    for i in range(n):
        u = bias
        for j in range(d):
            u += x[i, j] * v[j]
        reach = max(reach, abs(u))
        bent = curvature[i] * u
        total_bias += bent
        for j in range(d):
            total[j] += bent * x[i, j]
    if len(v) > d:
        total[d] += total_bias
    return reach


def _square_rows(x: Any, curvature: Any, total: Any) -> None:
    """Adds up the lower half of Σ curvature·(x, 1)(x, 1)ᵀ in ``total``, four rows to each reading of that."""
    n, d = x.shape
    for i in range(0, n, 4):
        i1, i2, i3 = min(i + 1, n - 1), min(i + 2, n - 1), min(i + 3, n - 1)
        x0, x1, x2, x3 = x[i], x[i1], x[i2], x[i3]
        c0 = curvature[i]
        c1 = curvature[i1] if i1 > i else 0.0  # past the last row, its copies count nothing
        c2 = curvature[i2] if i2 > i1 else 0.0
        c3 = curvature[i3] if i3 > i2 else 0.0
        for j in range(len(total)):
            if j < d:
                a0, a1, a2, a3 = c0 * x0[j], c1 * x1[j], c2 * x2[j], c3 * x3[j]
            else:
                a0, a1, a2, a3 = c0, c1, c2, c3
                total[d, d] += c0 + c1 + c2 + c3
            line = total[j]
            for k in range(min(j + 1, d)):
                line[k] += a0 * x0[k] + a1 * x1[k] + a2 * x2[k] + a3 * x3[k]


def _cholesky_in_place(a: Any) -> Any:
    """Turns a symmetric matrix into its lower Cholesky factor; whether it is positive definite."""
    for i in range(len(a)):
        row = a[i]
        for j in range(i + 1):
            other = a[j]
            rest = row[j]
            for k in range(j):
                rest -= row[k] * other[k]
            if j < i:
                row[j] = rest / other[j]
            elif rest > 0:
                row[i] = math.sqrt(rest)
            else:
                return False
        for j in range(i + 1, len(a)):
            row[j] = 0.0
    return True


# --- Newton's method ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Step:
    """A Newton step p, what ½·gᵀH⁻¹g comes to, how many products it took, and its reach.

    The reach is the largest change of a score; it is looked at only where the loss is flat and has no penalty.
    """

    direction: Tensor
    decrease: float
    reach: float
    products: int


def _solve_logistic(
    objective: _Objective, start: Tensor, tolerance: float, max_iterations: int
) -> tuple[Tensor, Optimum]:
    if objective.l2 > 0:  # what classes have in common costs penalty and does nothing
        start = torch.where(objective.penalty > 0, _centred(start), start)
    point, step, iterations, adrift = _descend(objective, start, tolerance, max_iterations)
    gap = step.decrease / objective.scale(point)
    unbounded = adrift or _separates(objective, point)
    return point.weights, _optimum(point, gap, iterations, gap <= tolerance and not unbounded, unbounded)


def _descend(
    objective: _Objective, start: Tensor, tolerance: float, max_iterations: int
) -> tuple[_Point, _Step, int, bool]:
    """The last point, the step that would be next, the number of steps taken, and whether they had begun to drift.

    Without penalty a step may move scores far although the loss hardly changes. Either samples far on their right side
    have yet to settle, which takes a step or two, or they never will, since there is no minimum.
    """
    start, solve = _from_sample(objective, start)
    point = objective.at(objective.rounded(start))
    if not point.loss <= objective.zero_loss:  # also if it is not a number
        point = objective.at(objective.zeros())
    if not point.finite:
        raise FloatingPointError
    following = None if solve is None else _on_trust(objective, point, solve, tolerance)
    point, steps = (point, 0) if following is None else (following, 1)
    spent = drifts = 0
    while True:
        if solve is None or spent > objective.width // 8:  # products that a better preconditioner would have saved
            solve, spent = _preconditioner(objective, point), 0
        scale = objective.scale(point)
        step = _newton_step(objective, point, solve, tolerance * scale)
        drifts = drifts + 1 if step.reach > FAR else 0
        arrived = step.decrease <= tolerance * scale and not drifts
        if arrived or drifts == DRIFTS or _separates(objective, point) or steps == max_iterations:
            break
        following = _search(objective, point, step)
        if following is None:
            break
        point, steps = following, steps + 1
        spent += step.products - 1
    return point, step, steps, drifts == DRIFTS


def _on_trust(objective: _Objective, point: _Point, solve: Solve, tolerance: float) -> _Point | None:
    """The point a step away by the sample's Hessian alone, without a product, if it is lower and there is far to go."""
    direction = solve(-point.gradient)
    slope = float((point.gradient * direction).sum())
    if -slope / 2 <= 10 * tolerance * objective.scale(point):
        return None
    following = objective.at(objective.rounded(point.weights + direction))
    return following if following.finite and following.loss <= point.loss + 1e-4 * slope else None


def _from_sample(objective: _Objective, start: Tensor) -> tuple[Tensor, Solve | None]:
    """Where a sample of the rows has its minimum, and its Hessian there as a preconditioner; else what was given."""
    size = max(len(objective) // SAMPLED, 4 * objective.width * objective.units, 1000)
    if 4 * size > len(objective):
        return start, None
    generator = torch.Generator().manual_seed(0)
    # one row from each stretch of the data, any of it: as even as a fixed stride and blind to whatever repeats
    within = torch.rand(size, generator=generator, dtype=torch.float64)
    index = ((torch.arange(size) + within) * (len(objective) / size)).long().clamp_(max=len(objective) - 1)
    sample = objective.part(index.to(objective.rows.device))
    if len(sample.targets.unique()) < max(objective.units, 2):
        return start, None
    point, *_ = _descend(sample, start, 0.1 * objective.width / size, 20)
    return point.weights, _preconditioner(sample, point)


def _preconditioner(objective: _Objective, point: _Point) -> Solve:
    """v ↦ P⁻¹v with P the Hessian's blocks, one a class, or its diagonal where blocks would be too large.

    Steps are centred: the loss does not see what K classes have in common, and the penalty wants none of it.
    """
    if objective.width > DENSE_UP_TO:
        diagonal = objective.diagonal(point)
        diagonal = diagonal.clamp(min=_least_positive(diagonal))
        return lambda v: _centred(v / diagonal)
    factor = _cholesky(objective, objective.blocks(point, objective.units))
    return lambda v: _centred(torch.cholesky_solve(v.unsqueeze(-1), factor).squeeze(-1))


def _cholesky(objective: _Objective, blocks: Tensor) -> Tensor:
    """Cholesky factors of positive semidefinite matrices, each with as small a ridge as makes it definite."""
    if not torch.isfinite(blocks).all():
        raise FloatingPointError
    diagonal = blocks.diagonal(dim1=-2, dim2=-1)
    size = diagonal.clamp(min=_least_positive(diagonal)).sqrt()
    scaled = blocks / size.unsqueeze(-1) / size.unsqueeze(-2)  # so that no feature is small beside the ridge
    ridge = 1e-13 * blocks.shape[-1]
    while True:
        scaled.diagonal(dim1=-2, dim2=-1).fill_(1.0 + ridge)
        factor, failed = objective.cholesky(scaled)
        if not failed.any():
            return factor * size.unsqueeze(-1)
        ridge *= 100


def _least_positive(values: Tensor) -> float:
    positive = values[values > 0]
    return float(positive.min()) if len(positive) else 1.0


def _newton_step(objective: _Objective, point: _Point, solve: Solve, target: float) -> _Step:
    """Solve H·p = −g by conjugate gradients with a preconditioner P, as far as it is of use.

    Every product adds to ½·gᵀH⁻¹g; ½·rᵀP⁻¹r of the residual, times the longest step so far (how much larger than H a
    stale P can be), says how much is missing.
    """
    residual, scale = -point.gradient, objective.scale(point)
    preconditioned = solve(residual)
    direction, power = preconditioned, float((residual * preconditioned).sum())
    total = torch.zeros_like(residual)
    decrease, missing, longest, products = 0.0, abs(power) / 2, 1.0, 0
    while power > 0 and products < residual.numel() + 10:
        product, _ = objective.along(point, direction)
        products += 1
        bent = float((direction * product).sum())
        if not bent > 0:
            break
        length = power / bent
        longest = max(longest, length)
        total = total + length * direction
        residual = residual - length * product
        decrease += length * power / 2
        preconditioned = solve(residual)
        last, power = power, float((residual * preconditioned).sum())
        missing = longest * abs(power) / 2
        if missing <= _may_miss(objective, decrease, missing, scale, target):
            break
        direction = preconditioned + (power / last) * direction
    flat = objective.l2 == 0 and decrease + missing <= FLAT * scale
    reach = objective.along(point, total)[1] if flat else 0.0
    return _Step(total, decrease + missing, reach, products)


def _may_miss(objective: _Objective, decrease: float, missing: float, scale: float, target: float) -> float:
    """What a Newton step may leave out: if it is the last, what blurs the gap; else what the next will make good."""
    if decrease + missing <= target:
        return max(0.1 * decrease, 1e-14 * scale)
    own_error = 0.0 if isinstance(objective, _Squares) else min(0.1, decrease / scale)  # Newton's method misses as much
    return max(own_error * decrease, 0.3 * target)


def _centred(values: Tensor) -> Tensor:
    """Without what the classes have in common, which their scores' softmax does not see."""
    return values - values.mean(0) if len(values) > 1 else values


def _search(objective: _Objective, point: _Point, step: _Step) -> _Point | None:
    """The first point along the step, nearer each time, that is low enough; ``None`` if rounding leaves none."""
    slope = float((point.gradient * step.direction).sum())
    length = 1.0
    for _ in range(40):
        weights = objective.rounded(point.weights + length * step.direction)
        if torch.equal(weights, point.weights):
            return None
        following = objective.at(weights)
        rise = following.loss - point.loss
        if following.finite and rise <= 1e-4 * length * slope:
            return following
        # close to the minimum the slope still shows what rounding hides in the loss
        if rise <= 1e-12 * point.loss and abs(float((following.gradient * step.direction).sum())) <= -0.5 * slope:
            return following
        excess = rise - length * slope
        length *= min(max(-slope * length / (2 * excess), 0.1), 0.5) if math.isfinite(excess) and excess > 0 else 0.1
    return None


def _separates(objective: _Objective, point: _Point) -> bool:
    """Whether every sample is on its right side, by more than rounding, so that larger weights are always better."""
    return objective.l2 == 0 and point.margin > 1e-6


def _optimum(point: _Point, gap: float, iterations: int, converged: bool, unbounded: bool = False) -> Optimum:
    norm = float(torch.linalg.vector_norm(point.gradient))
    return Optimum(point.loss, norm, gap, iterations, converged, unbounded)


# --- least squares ------------------------------------------------------------------------------------------------


def _solve_squares(
    objective: _Objective, start: Tensor, tolerance: float, max_iterations: int
) -> tuple[Tensor, Optimum]:
    """Solve the normal equations, and again for what rounding has left of the gradient as long as that helps."""
    point = objective.at(objective.rounded(start))
    if not point.finite:
        raise FloatingPointError
    solve = _normal_equations(objective, point)
    aim = torch.finfo(objective.rows.dtype).eps ** 1.5 if solve else tolerance
    correction, gap = _correction(objective, point, solve, tolerance)
    for iteration in range(1, max_iterations + 1):
        following = objective.at(objective.rounded(point.weights + correction))
        correction, left = _correction(objective, following, solve, tolerance)
        if iteration > 1 and left > gap / 2:  # as good as it gets: keep the better
            iteration -= 1
            break
        point, gap = following, left
        if gap <= aim:
            break
    return point.weights, _optimum(point, gap, iteration, gap <= tolerance)


def _correction(objective: _Objective, point: _Point, solve: Solve | None, tolerance: float) -> tuple[Tensor, float]:
    """The step −H⁻¹g to the minimum and the relative gap that it closes."""
    scale = objective.scale(point)
    if solve is None:
        step = _newton_step(objective, point, torch.clone, 1e-3 * tolerance * scale)
        return step.direction, step.decrease / scale
    direction = solve(-point.gradient)
    return direction, abs(float((direction * point.gradient).sum())) / 2 / scale


def _normal_equations(objective: _Objective, point: _Point) -> Solve | None:
    """v ↦ H⁻¹v, the shortest solution where H is singular; ``None`` if H is too large to write down.

    Conjugate gradients serve then: without a preconditioner they stay where the shortest solution is.
    """
    if objective.width > SQUARES_UP_TO:
        return None
    if len(objective) >= objective.width or objective.l2 > 0:
        hessian = objective.blocks(point, 1)[0]
        size = hessian.diagonal().sqrt()
        factor, failed = objective.cholesky(hessian / size[:, None] / size)
        # a diagonal entry is the part of a feature that those before it do not explain
        if not failed.any() and factor.diagonal().min() > 1e-5:
            return lambda v: torch.cholesky_solve((v / size).T, factor).T / size
    triangle = _triangle(objective)
    if not torch.isfinite(triangle).all():
        raise FloatingPointError
    _, values, directions = torch.linalg.svd(triangle, full_matrices=False)
    kept = values > values[0] * torch.finfo(torch.float64).eps * max(len(objective), objective.width)
    basis = directions[kept] / values[kept, None]
    return lambda v: v @ basis.T @ basis


def _triangle(objective: _Objective) -> Tensor:
    """R with RᵀR = H, by orthogonal transformations, whose rounding does not square the condition of X."""
    triangle = (objective.penalty * len(objective)).sqrt().diag()[objective.penalty > 0]
    step = max(CHUNK // objective.width, objective.width)
    for first in range(0, len(objective), step):
        part = slice(first, first + step)
        rows = objective.dense(part)
        if objective.counts is not None:
            rows = rows * objective.counts[part, None].sqrt()
        triangle = torch.linalg.qr(torch.cat((triangle, rows)), mode="r").R
    result: Tensor = triangle / len(objective) ** 0.5
    return result
