"""The mean loss of linear scores plus a penalty, with its gradient and Hessian, over dense or CSR samples."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch
from scipy.special import expit, log_expit, log_softmax

from torchperc._checks import is_sparse
from torchperc.nn.heads import Head, LMSHead, RegressionHead, SquaredHead
from torchperc.nn.modules import LinearNet

Array: TypeAlias = "np.ndarray[Any, Any]"

CHUNK = 2**19  # numbers of X that are worked on at a time, so that their second use finds them in the cache


@dataclass(frozen=True)
class Point:
    """The objective at some weights: loss, gradient (K, D), scores (N, K) and the curvature (N, K) of their losses.

    ``curvature`` is ∂²ℓ/∂s², but for softmax the probabilities p, of which the Hessian is diag(p) − p·pᵀ.
    """

    weights: Array
    loss: float
    gradient: Array
    scores: Array
    curvature: Array

    @property
    def finite(self) -> bool:
        """Whether loss and gradient are finite."""
        return bool(np.isfinite(self.loss) and np.isfinite(self.gradient).all())


def net_weights(net: LinearNet) -> Array:
    """Return weights and bias of a net as one float64 matrix (K, D), the bias last."""
    parts = [net.weight] if net.bias is None else [net.weight, net.bias[:, None]]
    weights: Array = torch.cat(parts, 1).detach().double().cpu().numpy()
    return weights


@torch.no_grad()
def write_weights(net: LinearNet, weights: Array) -> None:
    """Write a matrix (K, D) into weights and bias of a net."""
    net.weight.copy_(torch.from_numpy(weights[:, : net.in_features]))
    if net.bias is not None:
        net.bias.copy_(torch.from_numpy(weights[:, -1]))


class Objective:
    """Mean loss of a head + ½·l2·‖w‖² of weights (K, D), whose last column is the bias if there is one.

    Samples X are a float array or a CSR array, y an array as the head has it; ``sample_weight`` is 1 on average. All
    arithmetic is numpy's: torch's threads and those of numpy's BLAS would wait for each other.

    Example:
        >>> objective = Objective(LMSHead(), np.array([[1.0], [3.0]]), np.array([1, -1]), 1, bias=False, l2=0.0)
        >>> objective.at(np.zeros((1, 1))).gradient
        array([[1.]])
    """

    def __init__(
        self, head: Head, X: Any, y: Array, units: int, bias: bool, l2: float, sample_weight: Array | None = None
    ) -> None:
        self.head, self.y, self.units, self.bias, self.l2, self.sample_weight = head, y, units, bias, l2, sample_weight
        self.sparse, self.squared = is_sparse(X), isinstance(head, SquaredHead)
        self.X = X.astype(np.float64, copy=False) if self.sparse else X
        self.width = X.shape[1] + bias
        self.penalty = np.append(np.full(X.shape[1], l2), np.zeros(int(bias)))
        self.softmax = units > 1 and not self.squared
        self.target = y.reshape(-1, units) if isinstance(head, RegressionHead) or units == 1 else np.eye(units)[y]
        if isinstance(head, LMSHead):
            self.target = np.where(self.target > 0, 1.0, head.low)

    def __len__(self) -> int:
        return int(self.X.shape[0])

    def take(self, index: Array) -> Objective:
        """The same objective over some of the samples."""
        weight = None if self.sample_weight is None else self.sample_weight[index]
        return Objective(self.head, self.X[index], self.y[index], self.units, self.bias, self.l2, weight)

    @property
    def zero_loss(self) -> float:
        """The loss of zero weights."""
        return float(self._terms(np.zeros((len(self), self.units)), slice(None))[0].mean())

    def scores(self, weights: Array) -> Array:
        """The scores (N, K) that weights give, or by which a direction changes them."""
        return np.concatenate([self._scores(x, weights) for x, _ in self._chunks()])

    def at(self, weights: Array) -> Point:
        """Loss, gradient and curvature at some weights: one reading of the samples."""
        loss, gradient = 0.0, np.zeros((self.units, self.width))
        scores, curvature = np.empty((2, len(self), self.units))
        for x, part in self._chunks():
            scores[part] = self._scores(x, weights)
            losses, slope, curvature[part] = self._terms(scores[part], part)
            loss += float(losses.sum())
            self._collect(gradient, slope, x)
        loss = loss / len(self) + float((self.penalty * weights**2).sum()) / 2
        return Point(weights, loss, gradient / len(self) + self.penalty * weights, scores, curvature)

    def loss_and_gradient(self, weights: Array) -> tuple[float, Array]:
        """Loss and gradient (K, D) at some weights."""
        point = self.at(weights)
        return point.loss, point.gradient

    def hessian_vector_product(self, point: Point, direction: Array) -> Array:
        """The Hessian at a point times a direction, both (K, D)."""
        product = np.zeros((self.units, self.width))
        for x, part in self._chunks():
            change = point.curvature[part] * self._scores(x, direction)
            if self.softmax:
                change -= point.curvature[part] * change.sum(1)[:, None]
            self._collect(product, change * self._weight(part), x)
        return np.asarray(product / len(self) + self.penalty * direction)

    def hessian(self, point: Point) -> Array:
        """The Hessian at a point, (K·D, K·D)."""
        K, D = self.units, self.width
        total, weight = np.zeros((K, D, K, D)), np.broadcast_to(self._weight(slice(None)), (len(self), 1))
        for k in range(K):
            total[k, :, k] = sum(x.T @ x for x, _ in self.scaled_rows(np.sqrt(point.curvature[:, k, None] * weight)))
        if self.softmax:  # diag(p) − p·pᵀ for each sample
            for x, part in self.scaled_rows(np.sqrt(weight)):
                flat = (point.curvature[part, :, None] * x[:, None]).reshape(len(x), K * D)
                total -= (flat.T @ flat).reshape(total.shape)
        return np.asarray(total.reshape(K * D, K * D) / len(self) + np.diag(np.tile(self.penalty, K)))

    def scaled_rows(self, factors: Array) -> Iterator[tuple[Array, slice]]:
        """Some samples (x, 1) or x at a time in float64, times their factors (N, 1)."""
        step = max(CHUNK // (self.width * self.units), 1)
        for first in range(0, len(self), step):
            part = slice(first, first + step)
            x = self.X[part].toarray() if self.sparse else self.X[part]
            rows = np.empty((len(x), self.width))
            np.multiply(x, factors[part], out=rows[:, : x.shape[1]])
            rows[:, x.shape[1] :] = factors[part]
            yield rows, part

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

    def _terms(self, scores: Array, part: slice) -> tuple[Array, Array, Array]:
        """Losses (n,) and slopes (n, K) of some samples, times their weights, and their curvature (n, K)."""
        target, weight = self.target[part], self._weight(part)
        if self.squared:
            slope = scores - target
            losses, curvature = (slope**2).sum(1) / 2, np.ones_like(scores)
        elif self.softmax:
            logs = log_softmax(scores, axis=1)
            curvature = np.exp(logs)
            losses, slope = -np.take_along_axis(logs, self.y[part, None], 1)[:, 0], curvature - target
        else:
            m = target * scores
            wrong = expit(-m)
            losses, slope, curvature = -log_expit(m)[:, 0], -target * wrong, wrong * expit(m)
        return losses * weight[..., 0], slope * weight, curvature

    def separates(self, point: Point) -> bool:
        """Whether every sample is right by more than rounding, so that larger weights are always better."""
        if self.l2 > 0 or self.squared:
            return False
        margins = self.target * point.scores
        if self.units > 1:
            rivals = np.where(self.target > 0, -np.inf, point.scores).max(1)
            margins = np.take_along_axis(point.scores, self.y[:, None], 1)[:, 0] - rivals
        return float(margins.min()) > 1e-6

    def _weight(self, part: slice) -> Array:
        """The weights (n, 1) of some samples, or (1,) if all count the same."""
        return np.ones(1) if self.sample_weight is None else self.sample_weight[part, None]
