"""The mean loss of linear scores plus a penalty, with its gradient and Hessian, over dense or CSR samples."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from torchperc._checks import is_sparse
from torchperc.nn import derivatives
from torchperc.nn.heads import Head, SquaredHead

Array: TypeAlias = "np.ndarray[Any, Any]"

CHUNK = 2**18  # numbers of X that are worked on at a time, so that their second use finds them in the cache


@dataclass(frozen=True)
class Point:
    """The objective at some weights: loss, gradient (K, D), scores (N, K) and their ``bend``, see ``Terms``."""

    weights: Array
    loss: float
    gradient: Array
    scores: Array
    bend: Array

    @property
    def finite(self) -> bool:
        """Whether loss and gradient are."""
        return math.isfinite(self.loss) and bool(np.isfinite(self.gradient).all())


class Objective:
    """Σ c·loss/Σ c + ½·l2·‖w‖² as a function of weights (K, D), whose last column is the bias if there is one.

    Args:
        head: one with a squared or a logistic loss.
        X: samples (N, d), a float array or a CSR array.
        y: labels −1/+1, class indices, or real targets (N,) or (N, K), as the head has them.
        units: K, the number of scores per sample.
        bias: whether there is a bias, which is not penalised.
        l2: the weight of the penalty.
        sample_weight: how much each sample counts; on average 1.

    Example:
        >>> from torchperc.nn.heads import LMSHead
        >>> objective = Objective(LMSHead(), np.array([[1.0], [3.0]]), np.array([1, -1]), 1, bias=False, l2=0.0)
        >>> objective.at(np.zeros((1, 1))).gradient
        array([[1.]])
    """

    def __init__(
        self, head: Head, X: Any, y: Array, units: int, bias: bool, l2: float, sample_weight: Array | None = None
    ) -> None:
        self.head, self.X, self.y, self.units, self.bias, self.l2 = head, X, y, units, bias, l2
        self.sample_weight = sample_weight
        self.sparse = is_sparse(X)
        if self.sparse:
            self.X = X.astype(np.float64, copy=False)
        self.width = X.shape[1] + bias
        self.penalty = np.full(self.width, l2)
        if bias:
            self.penalty[-1] = 0.0

    def __len__(self) -> int:
        return int(self.X.shape[0])

    def part(self, index: Array) -> Objective:
        """The same objective over some of the samples."""
        weight = None if self.sample_weight is None else self.sample_weight[index]
        return Objective(self.head, self.X[index], self.y[index], self.units, self.bias, self.l2, weight)

    @property
    def zero_loss(self) -> float:
        """The loss of zero weights."""
        if isinstance(self.head, SquaredHead):
            squares = np.square(self.head.target(self.y, self.units)).sum(1)
            return float(np.average(squares, weights=self.sample_weight)) / 2
        return math.log(max(self.units, 2))

    def terms(self, scores: Array, part: slice | Array = slice(None)) -> derivatives.Terms:
        """Loss (n,), slope (n, K) and bend (n, K) of some samples with these scores."""
        if isinstance(self.head, SquaredHead):
            return derivatives.lms(scores, self.head.target(self.y[part], self.units))
        return (derivatives.logistic if self.units == 1 else derivatives.softmax)(scores, self.y[part])

    def scores(self, weights: Array) -> Array:
        """The scores (N, K) that weights give, or by which a direction changes them."""
        return np.concatenate([self._scores(x, weights) for x, _ in self._chunks()])

    def at(self, weights: Array) -> Point:
        """Loss and gradient at some weights: one reading of the samples."""
        loss, gradient = 0.0, np.zeros((self.units, self.width))
        scores, bend = np.empty((len(self), self.units)), np.empty((len(self), self.units))
        for x, part in self._chunks():
            scores[part] = self._scores(x, weights)
            terms = self.terms(scores[part], part)
            bend[part] = terms.bend
            loss += float(self._weighted(terms.loss, part).sum())
            self._collect(gradient, self._weighted(terms.slope, part), x)
        loss = loss / len(self) + self.penalty_of(weights)
        return Point(weights, loss, gradient / len(self) + self.penalty * weights, scores, bend)

    def value_and_gradient(self, weights: Array) -> tuple[float, Array]:
        """Loss and gradient (K, D) at some weights."""
        point = self.at(weights)
        return point.loss, point.gradient

    def penalty_of(self, weights: Array) -> float:
        """½·l2·‖w‖² of weights (K, D)."""
        return float((self.penalty * weights**2).sum()) / 2

    def hessian_vector_product(self, point: Point, direction: Array) -> Array:
        """The Hessian at a point times a direction, both (K, D)."""
        product = np.zeros((self.units, self.width))
        for x, part in self._chunks():
            bend, change = point.bend[part], point.bend[part] * self._scores(x, direction)
            if self._is_softmax:
                change -= bend * change.sum(1)[:, None]
            self._collect(product, self._weighted(change, part), x)
        return np.asarray(product / len(self) + self.penalty * direction)

    def hessian(self, point: Point) -> Array:
        """The Hessian at a point, (K·D, K·D)."""
        K, D = self.units, self.width
        total = np.zeros((K, D, K, D))
        for x, part in self.dense_chunks():
            bend = point.bend[part]
            for k in range(K):
                scaled = x * np.sqrt(self._weighted(bend[:, k], part))[:, None]
                total[k, :, k] += scaled.T @ scaled
            if self._is_softmax:  # diag(p) − p·pᵀ for each sample
                outer = (np.sqrt(self._weighted(np.ones(len(x)), part))[:, None, None] * bend[:, :, None]) * x[:, None]
                flat = outer.reshape(len(x), K * D)
                total -= (flat.T @ flat).reshape(total.shape)
        return np.asarray(total.reshape(K * D, K * D) / len(self) + np.diag(np.tile(self.penalty, K)))

    def dense_chunks(self) -> Iterator[tuple[Array, slice]]:
        """Some samples at a time in float64, with a constant feature for the bias."""
        step = max(CHUNK // (self.width * self.units), 1)
        for first in range(0, len(self), step):
            part = slice(first, first + step)
            x = self.X[part].toarray() if self.sparse else self.X[part].astype(np.float64, copy=False)
            yield np.hstack((x, np.ones((len(x), 1)))) if self.bias else x, part

    @property
    def _is_softmax(self) -> bool:
        return self.units > 1 and not isinstance(self.head, SquaredHead)

    def _chunks(self) -> Iterator[tuple[Any, slice]]:
        """Some dense samples at a time in float64; all CSR samples at once."""
        step = len(self) if self.sparse else max(CHUNK // self.X.shape[1], 1)
        for first in range(0, len(self), step):
            part = slice(first, first + step)
            yield self.X if self.sparse else self.X[part].astype(np.float64, copy=False), part

    def _scores(self, x: Any, weights: Array) -> Array:
        scores: Array = x @ weights[:, : x.shape[1]].T
        return scores + weights[:, -1] if self.bias else scores

    def _collect(self, total: Array, slope: Array, x: Any) -> None:
        """Add Σ slope·x to a total (K, D)."""
        total[:, : x.shape[1]] += (x.T @ slope).T
        if self.bias:
            total[:, -1] += slope.sum(0)

    def _weighted(self, values: Array, part: slice) -> Array:
        """Values (n,) or (n, K) of some samples times their sample weights."""
        if self.sample_weight is None:
            return values
        weight = self.sample_weight[part]
        return values * (weight if values.ndim == 1 else weight[:, None])
