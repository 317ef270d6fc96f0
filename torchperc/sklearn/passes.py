"""The mean loss of weighted samples and its gradient, dense or sparse: what full-batch descent asks for in each step.

Everything is a sum over samples, Σ c·loss/Σ c, so that a sample of weight 3 is the same as three copies, and what is
summed does not depend on how X is stored.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor

from torchperc import _checks as checks
from torchperc.nn import derivatives
from torchperc.nn.heads import Head, LMSHead, RegressionHead, SquaredHead, loss_code
from torchperc.samples.parts import as_rows
from torchperc.samples.rows import Rows
from torchperc.sklearn.inputs import Array, Samples
from torchperc.theory.rates import largest_eigenvalue

SQUARES_UP_TO = 1024  # features up to which the squared loss is written down as a quadratic, if samples are more
_BLOCK = 2**22  # numbers in X that are made float64 at a time
_CACHED = 2**18  # numbers in X that are worked on at a time, so that the second use finds them in the cache
_OVERFLOW = "X holds values whose squares overflow; scale it, for instance with StandardScaler"


class Slope(NamedTuple):
    """The loss at some weights and its gradient: (K, d) in the weights and (K,) in the bias."""

    loss: float
    weight: Array
    bias: Array


SCHEDULES = ("constant", "optimal", "invscaling", "adaptive")


class Course:
    """The learning rate of each step, and the mean of the weights over the steps made so far.

    Args:
        rate: the learning rate that a schedule starts from.
        schedule: see :class:`torchperc.sklearn.GradientClassifier`, as for ``power`` (of ``"invscaling"``).
        alpha: the weight of the penalty, for ``"optimal"``.
        first: the step from which on weights are averaged, counted from 1; 0 for no average.

    Example:
        >>> Course(1.0, "invscaling", 0.5, 0.0).rates(4)
        array([1.        , 0.70710678, 0.57735027, 0.5       ])
    """

    def __init__(self, rate: float, schedule: str, power: float, alpha: float, first: int = 0) -> None:
        self.rate, self.schedule, self.power, self.alpha, self.first = rate, schedule, power, alpha, first
        self.made = self.count = 0  # steps made, and steps averaged over
        self.total: tuple[Any, Any] = (0.0, 0.0)
        self.owed, self.paid = 0.0, cast(Array, np.zeros(0))  # of the penalty ‖w‖₁, see descent/loops

    def rates(self, count: int) -> Array:
        """The learning rates of the next steps."""
        t = np.arange(self.made + 1.0, self.made + count + 1)
        self.made += count
        rates: Array = self.rate / t**self.power if self.schedule == "invscaling" else np.full(count, self.rate)
        return 1.0 / (self.alpha * (self.alpha**-0.75 + t - 1)) if self.schedule == "optimal" else rates

    def add(self, weight: Array, bias: Array) -> None:
        """Count the weights that the last step led to."""
        if 0 < self.first <= self.made:
            self._add(weight, bias, 1)

    def add_path(self, weight: Array, bias: Array, X: Any, index: Array, moves: Array, kept: Array) -> None:
        """Count the weights after each of the last steps, w ← kept·w + move·x, b ← b + move, without making them.

        A step's move is in all weights from there on, shrunk by every later step: Σ_t w_t is a sum over samples, each
        with the sum of what is left of its move. ``weight`` and ``bias`` are those before the first step; moves (N, K).
        """
        skipped = max(self.first - 1 - (self.made - len(index)), 0)
        if (left := len(index) - skipped) <= 0:
            return
        logs = np.log(kept).cumsum()
        sums = np.logaddexp.accumulate(logs[skipped:][::-1])[::-1]  # log Σ of the products from each step on
        sums = np.concatenate((np.full(skipped, sums[0]), sums))
        coefs = np.empty(moves.shape, X.dtype)
        coefs[index] = moves * np.exp(sums - logs)[:, None]
        later = np.minimum(np.arange(len(index), 0, -1), left)
        self._add(
            np.exp(sums[0]) * weight.astype(np.float64) + (X.T @ coefs).T,
            left * bias.astype(np.float64) + later @ moves,
            left,
        )

    def _add(self, weight: Array, bias: Array, count: int) -> None:
        self.total, self.count = (self.total[0] + weight, self.total[1] + bias), self.count + count


class MeanLoss:
    """Σ c·loss/Σ c + ½·l2·‖w‖² + l1·‖w‖₁ of a head under a linear net, over samples that count; gradients have no l1.

    Example:
        >>> samples = Samples(np.array([[1.0], [3.0]]), np.array([1, 0]), np.array(["a", "b"]), None)
        >>> loss = MeanLoss(LMSHead(), samples, bias=False, l2=0.0)
        >>> loss.at(np.zeros((1, 1)), np.zeros(1)).weight, round(loss.full_rate(), 9)
        (array([[1.]]), 0.2)
    """

    def __init__(self, head: Head, samples: Samples, bias: bool, l2: float, l1: float = 0.0) -> None:
        self.head, self.X, self.codes, self.bias, self.l2, self.l1 = head, samples.X, samples.codes, bias, l2, l1
        self.labels: Tensor = samples.labels
        self.classes = samples.classes
        self.units = samples.units
        self.dtype: Any = self.X.dtype.type  # of the weights that descend
        self.factors = samples.factors
        self.total = float(len(samples)) if samples.factors is None else float(samples.factors.sum())

    def __len__(self) -> int:
        return len(self.codes)

    @cached_property
    def rows(self) -> Rows:
        """The samples for single-sample steps, checked once for all epochs."""
        return as_rows(self.X, dtype=torch.float32 if self.dtype is np.float32 else torch.float64)

    # --- losses and their gradients ---

    def at(self, weight: Array, bias: Array) -> Slope:
        """Loss and gradient: two readings of the samples."""
        return self._slope(self.X, self.codes, self.factors, self.total, weight, bias)

    def over(self, index: Array, weight: Array, bias: Array) -> Slope:
        """The same over some of the samples, Σ c·loss/(n·mean of all c), so that on average it is that over all."""
        factors, total = None if self.factors is None else self.factors[index], len(index) * self.total / len(self)
        return self._slope(self.X[index], self.codes[index], factors, total, weight, bias)

    def value(self, weight: Array, bias: Array) -> tuple[float, int | None]:
        """The loss without penalty, and how many samples are decided wrongly; ``None`` where nothing is decided."""
        scores = self.X @ weight.T + bias
        if isinstance(self.head, RegressionHead):
            return self.of_scores(scores), None
        if self.units > 1:
            decided = scores.argmax(1)
        else:
            threshold = self.head.threshold
            decided = scores[:, 0] >= threshold if isinstance(self.head, LMSHead) else scores[:, 0] > threshold
        return self.of_scores(scores), int(np.count_nonzero(decided != self.codes))

    def of_scores(self, scores: Array, index: Array | slice = slice(None)) -> float:
        """The mean loss, without penalty, that samples have whose scores (n, K) are given."""
        losses = self._terms(scores, self.codes[index])[0]
        factors = None if self.factors is None else self.factors[index]
        return float(losses.mean(dtype=np.float64) if factors is None else losses @ factors / factors.sum())

    def penalty(self, weight: Array) -> float:
        """½·l2·‖w‖² + l1·‖w‖₁."""
        squares = float(np.square(weight, dtype=np.float64).sum()) * self.l2 / 2 if self.l2 else 0.0
        return squares + float(np.abs(weight).sum(dtype=np.float64)) * self.l1 if self.l1 else squares

    def path(self, scores: Array, index: Array, rates: Array) -> tuple[Array, Array]:
        """The moves of single samples' steps, from the scores before each, and what each keeps of the weights."""
        steps = rates if self.factors is None else rates * self.factors[index]
        moves = -steps[:, None] * self._terms(scores.astype(np.float64), self.codes[index])[1]
        return moves, 1 - steps * self.l2

    def _slope(self, X: Any, codes: Array, factors: Array | None, total: float, weight: Array, bias: Array) -> Slope:
        loss, in_weight, in_bias = 0.0, np.zeros(weight.shape), np.zeros(bias.shape)
        step = len(codes) if checks.is_sparse(X) else max(_CACHED // X.shape[1], 1)
        for first in range(0, len(codes), step):
            part = slice(first, first + step)
            x = X if step >= len(codes) else X[part]
            losses, slopes = self._terms(x @ weight.T + bias, codes[part])
            if factors is not None:
                losses, slopes = losses * factors[part], (slopes * factors[part, None]).astype(self.dtype, copy=False)
            loss += float(losses.sum(dtype=np.float64))
            in_weight += (x.T @ slopes).T
            in_bias += slopes.sum(0, dtype=np.float64)
        return Slope(
            loss / total + self.penalty(weight), in_weight / total + self.l2 * weight, in_bias / total * self.bias
        )

    def _terms(self, scores: Array, codes: Array) -> tuple[Array, Array]:
        """The loss of each sample (n,) and its derivative in each score (n, K)."""
        if isinstance(self.head, SquaredHead):
            return derivatives.lms(scores, self._targets(codes).astype(self.dtype))[:2]
        return (derivatives.logistic if self.units == 1 else derivatives.softmax)(scores, self._labels(codes))[:2]

    def _labels(self, codes: Array) -> Array:
        if isinstance(self.head, RegressionHead):
            return codes
        return 2 * codes - 1 if self.units == 1 else codes

    def _targets(self, codes: Array) -> Array:
        """The targets of the squared loss: (n, K)."""
        assert isinstance(self.head, SquaredHead)
        return np.asarray(self.head.target(self._labels(codes), self.units))

    def descend_l1(self, weight: Array, bias: Array, index: Array, rates: Array, course: Course) -> Array:
        """One step of length ``rates`` per sample with the penalty ‖w‖₁, in place; the scores (n, K) before each."""
        from torchperc.descent.loops import descend_l1

        if self.l2 * rates.max() >= 1:
            raise ValueError(f"l2={self.l2:g} with steps of up to {rates.max():g} flips weights; lower l2 or lr")
        count, width = self.X.shape
        if checks.is_sparse(self.X):
            stored = (self.X.data, self.X.indices, self.X.indptr, self.X.indptr[:-1])
        else:
            starts, zeros = np.arange(0, count * width + 1, width), np.zeros(count, np.int64)
            stored = (self.X.reshape(-1), np.arange(width), starts, zeros)
        if not course.paid.size:
            course.paid = np.zeros(weight.shape)
        (kind, _, low), seen = loss_code(self.head), np.empty((len(index), self.units))
        course.owed = descend_l1(
            *stored, index, self.labels.numpy(), rates, self.l1, self.l2, weight, bias, self.bias, kind, low,
            course.owed, course.paid, seen,
        )  # fmt: skip
        return seen

    # --- rates ---

    def full_rate(self) -> float:
        """1/L for all samples at once: L = h·λmax(Σ c·φφᵀ/Σ c) + l2."""
        return self._inverse(self._bend * self._eigenvalue() + self.l2)

    def batch_rate(self) -> float:
        """1/L for any batch: L = h·max c·‖φ‖²/(mean of all c) + l2."""
        squares = self._squares() if self.factors is None else self._squares() * self.factors * (len(self) / self.total)
        return self._inverse(self._bend * float(squares.max()) + self.l2)

    def sample_rate(self) -> float:
        """1/L for steps of single samples, each as long as its factor says: L = max c·(h·‖φ‖² + l2)."""
        bends = self._bend * self._squares() + self.l2
        return self._inverse(float((bends if self.factors is None else bends * self.factors).max()))

    @property
    def _bend(self) -> float:
        """The largest second derivative of a sample's loss in its scores."""
        return derivatives.curvature_bound(loss_code(self.head)[0], self.units)

    def _squares(self) -> Array:
        """‖φ‖² of each sample."""
        with np.errstate(over="ignore"):
            if checks.is_sparse(self.X):
                squares: Array = np.asarray(self.X.multiply(self.X).sum(axis=1), dtype=np.float64).reshape(-1)
            else:
                squares = np.einsum("nd,nd->n", self.X, self.X, dtype=np.float64)
        return squares + self.bias

    def _inverse(self, curvature: float) -> float:
        if not math.isfinite(curvature):
            raise ValueError(_OVERFLOW)
        return derivatives.safe_lr(curvature)

    def _eigenvalue(self) -> float:
        if not math.isfinite(self._squares().max()):
            return math.inf
        if self.factors is None:
            return largest_eigenvalue(self.X, bias=self.bias)
        root = np.sqrt(self.factors * (len(self) / self.total))[:, None]
        return largest_eigenvalue(_joined(_scaled(self.X.astype(np.float64), root), root * self.bias), bias=False)


def _scaled(X: Any, factors: Array) -> Any:
    """Rows times factors (N, 1), dense or CSR."""
    return X.multiply(factors).tocsr() if checks.is_sparse(X) else X * factors


def _joined(X: Any, column: Array) -> Any:
    """Rows with one more feature (N, 1), dense or CSR."""
    if not checks.is_sparse(X):
        return np.hstack((X, column))
    from scipy.sparse import csr_array, hstack

    return csr_array(hstack((X, csr_array(column))))


class Quadratic(MeanLoss):
    """The squared loss as ½·W·A·Wᵀ − W·Bᵀ + c, summed up once, in float64: a step costs d², however many samples."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.dtype = np.float64
        d = self.X.shape[1] + 1
        step = max(_BLOCK // d, 1)
        self._A, self._B, self._c = np.zeros((d, d)), np.zeros((self.units, d)), 0.0
        with np.errstate(over="ignore", invalid="ignore"):
            for first in range(0, len(self), step):
                self._add(slice(first, first + step))
        if not np.isfinite(self._A).all():
            raise ValueError(_OVERFLOW)
        self._A, self._B, self._c = self._A / self.total, self._B / self.total, self._c / self.total

    def _add(self, part: slice) -> None:
        targets = self._targets(self.codes[part])
        x = _joined(self.X[part].astype(np.float64, copy=False), np.ones((len(targets), 1)))
        if self.factors is not None:
            root = np.sqrt(self.factors[part, None])
            x, targets = _scaled(x, root), targets * root
        squares = x.T @ x
        self._A += squares.toarray() if checks.is_sparse(squares) else squares
        self._B += (x.T @ targets).T
        self._c += float(np.square(targets).sum()) / 2

    def at(self, weight: Array, bias: Array) -> Slope:
        """Loss and gradient, without a look at the samples."""
        joined = np.hstack((weight, bias[:, None]))
        product = joined @ self._A
        loss = float((joined * (product / 2 - self._B)).sum()) + self._c
        loss = 0.0 if loss < 0 else loss  # by rounding
        slope = product - self._B
        return Slope(loss + self.penalty(weight), slope[:, :-1] + self.l2 * weight, slope[:, -1] * self.bias)

    def _eigenvalue(self) -> float:
        matrix = self._A if self.bias else self._A[:-1, :-1]
        return float(np.linalg.eigvalsh(matrix)[-1]) * (1 + 1e-12)


def mean_loss(head: Head, samples: Samples, bias: bool, l2: float, l1: float = 0.0) -> MeanLoss:
    """The objective in the form that is fastest to descend on.

    Example:
        >>> few = Samples(np.zeros((2, 5)), np.array([0, 1]), np.array(["a", "b"]), None)
        >>> type(mean_loss(LMSHead(), few, True, 0.0)).__name__
        'MeanLoss'
    """
    count, width = samples.X.shape
    squares = isinstance(head, SquaredHead) and width <= SQUARES_UP_TO and width < count
    return (Quadratic if squares else MeanLoss)(head, samples, bias, l2, l1)
