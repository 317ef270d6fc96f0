"""The minimum itself: where gradient descent on a convex loss would end, reached by Newton's method.

:class:`Objective` is the mean loss of linear scores plus a penalty, with its gradient and Hessian, over dense or CSR
samples; :func:`minimise` goes to where it is lowest.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import torch
from scipy.linalg import LinAlgError, cho_factor, cho_solve
from scipy.sparse.linalg import LinearOperator, cg
from scipy.special import expit, log_expit, log_softmax

from torchperc._checks import Data, check_int, check_number, check_sample_weight, is_sparse
from torchperc.descent.sgd import check_linear
from torchperc.nn.functional import functional_margins
from torchperc.nn.heads import Head, LMSHead, LogisticHead, RegressionHead, SquaredHead, labels_or_targets
from torchperc.nn.modules import LinearNet
from torchperc.samples import convert

Array: TypeAlias = "np.ndarray[Any, Any]"
Inverse: TypeAlias = Callable[[Array], Array]
InverseAt: TypeAlias = "Callable[[Point], Inverse]"

CHUNK = 2**19  # numbers of X that are worked on at a time, so that their second use finds them in the cache
HESSIAN_UP_TO = 600  # weights of all classes up to which Newton's method has the Hessian of the logistic loss
SQUARES_UP_TO = 4096  # weights of one class up to which least squares are solved directly
SAMPLED = 16  # one sample in so many gives Newton's method its start
FAR, FLAT, DRIFTS = 0.5, 1e-6, 5  # scores moving so far, the relative gap being so small, so many steps long: a drift
NEAR = 0.02  # a relative gap below which the Hessian hardly changes, so that it serves the next step, too
ROUNDING = 1e-10  # a relative gap below this that has stopped halving is due to rounding


def net_weights(net: LinearNet) -> Array:
    """Return weights and bias of a net as one float64 matrix (K, D), the bias last."""
    parts = [net.weight] if net.bias is None else [net.weight, net.bias[:, None]]
    return np.asarray(torch.cat(parts, 1).detach().double().cpu())


@torch.no_grad()
def write_weights(net: LinearNet, weights: Array) -> None:
    """Write a matrix (K, D) into weights and bias of a net."""
    net.weight.copy_(torch.from_numpy(weights[:, : net.in_features]))
    if net.bias is not None:
        net.bias.copy_(torch.from_numpy(weights[:, -1]))


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


class Objective:
    """Mean loss of a head + ½·l2·‖w‖² of weights (K, D), whose last column is the bias if there is one.

    Samples X are a float array or a CSR array, y an array as the head has it; ``sample_weight`` is 1 on average. Shape
    and type of the weights are those of a net. All arithmetic is numpy's: torch's threads and those of numpy's BLAS
    would wait for each other.
    """

    def __init__(
        self, head: Head, X: Any, y: Array, net: LinearNet, l2: float, sample_weight: Array | None = None
    ) -> None:
        units, bias = len(net.weight), net.bias is not None
        self.head, self.y, self.net, self.units, self.bias, self.l2 = head, y, net, units, bias, l2
        self.sparse, self.squared = is_sparse(X), isinstance(head, SquaredHead)
        self.X = X.astype(np.float64, copy=False) if self.sparse else X
        self.width, self.softmax = X.shape[1] + bias, units > 1 and not self.squared
        self.sample_weight = np.ones(len(y)) if sample_weight is None else sample_weight
        self.penalty = np.append(np.full(X.shape[1], l2), np.zeros(int(bias)))
        self.target = y.reshape(-1, units) if isinstance(head, RegressionHead) or units == 1 else np.eye(units)[y]
        if isinstance(head, LMSHead):
            self.target = np.where(self.target > 0, 1.0, 2 * head.threshold - 1)

    def __len__(self) -> int:
        return len(self.y)

    def rounded(self, weights: Array) -> Array:
        """Return the weights rounded to the net's dtype."""
        return np.asarray(torch.from_numpy(weights).to(self.net.weight.dtype).double())

    def at(self, weights: Array) -> Point:
        """Return loss, gradient and curvature at some weights, from one reading of the samples."""
        loss, gradient = 0.0, np.zeros((self.units, self.width))
        scores, curvature = np.empty((2, len(self), self.units))
        for x, part in self._chunks():
            scores[part] = self._scores(x, weights)
            losses, slope, curvature[part] = self.terms(scores[part], part)
            loss += float(losses @ self.sample_weight[part])
            self._add_rows(gradient, slope, x, part)
        loss = loss / len(self) + float((self.penalty * weights**2).sum()) / 2
        return Point(weights, loss, gradient / len(self) + self.penalty * weights, scores, curvature)

    def hessian_vector_product(self, point: Point, direction: Array) -> Array:
        """Return the Hessian at a point times a direction, both (K, D)."""
        product = np.zeros((self.units, self.width))
        for x, part in self._chunks():
            change = point.curvature[part] * self._scores(x, direction)
            if self.softmax:
                change -= point.curvature[part] * change.sum(1)[:, None]
            self._add_rows(product, change, x, part)
        return np.asarray(product / len(self) + self.penalty * direction)

    def hessian(self, point: Point) -> Array:
        """Return the Hessian at a point, (K·D, K·D)."""
        K, D = self.units, self.width
        total = np.zeros((K, D, K, D))
        for k in range(K):
            total[k, :, k] = sum(x.T @ x for x, _ in self.scaled_rows(point.curvature[:, k]))
        if self.softmax:  # diag(p) − p·pᵀ for each sample
            for x, part in self.scaled_rows():
                flat = (point.curvature[part, :, None] * x[:, None]).reshape(len(x), K * D)
                total -= (flat.T @ flat).reshape(total.shape)
        return np.asarray(total.reshape(K * D, K * D) / len(self) + np.diag(np.tile(self.penalty, K)))

    def scaled_rows(self, factor: Array | float = 1.0) -> Iterator[tuple[Array, slice]]:
        """Yield some samples (x, 1) or x at a time, times the root of their weight and of a factor (N,)."""
        roots = np.sqrt(self.sample_weight * factor)[:, None]
        for x, part in self._chunks(dense=True):
            rows = np.empty((len(x), self.width))
            np.multiply(x, roots[part], out=rows[:, : x.shape[1]])
            rows[:, x.shape[1] :] = roots[part]
            yield rows, part

    def separates(self, point: Point) -> bool:
        """Return whether every sample is right beyond rounding, so that scaling up lowers the loss."""
        if self.l2 > 0 or self.squared:
            return False
        scores = point.scores if self.units > 1 else point.scores[:, 0]
        return float(functional_margins(torch.from_numpy(scores), torch.from_numpy(self.y)).min()) > 1e-6

    def overflow(self) -> ValueError:
        """Return the error for samples whose loss or gradient is not finite."""
        largest = f"X holds values up to {abs(self.X).max():g} and y up to {np.abs(self.y).max():g}"
        return ValueError(f"{largest}, whose products overflow; scale them")

    def _chunks(self, dense: bool = False) -> Iterator[tuple[Any, slice]]:
        """Yield some samples at a time in float64, all CSR samples at once; or as many as a Hessian needs, dense."""
        step = len(self) if self.sparse and not dense else CHUNK // self.width // (self.units if dense else 1) + 1
        for part in (slice(first, first + step) for first in range(0, len(self), step)):
            x = self.X[part] if step < len(self) else self.X
            yield (x.toarray() if self.sparse else x) if dense else x.astype(np.float64, copy=False), part

    def _scores(self, x: Any, weights: Array) -> Array:
        scores: Array = x @ weights[:, : x.shape[1]].T
        return scores + weights[:, -1] if self.bias else scores

    def _add_rows(self, total: Array, factors: Array, x: Any, part: slice) -> None:
        """Add Σ factor·x, times the samples' weights, to a total (K, D)."""
        factors = factors * self.sample_weight[part, None]
        total[:, : x.shape[1]] += (x.T @ factors).T
        if self.bias:
            total[:, -1] += factors.sum(0)

    def terms(self, scores: Array, part: slice) -> tuple[Array, Array, Array]:
        """Return losses (n,), slopes (n, K) and curvature (n, K) of some samples."""
        target = self.target[part]
        if self.squared:
            slope = scores - target
            return (slope**2).sum(1) / 2, slope, np.ones_like(scores)
        if self.softmax:
            logs = log_softmax(scores, axis=1)
            p = np.exp(logs)
            return -np.take_along_axis(logs, self.y[part, None], 1)[:, 0], p - target, p
        m = target * scores
        wrong = expit(-m)
        return -log_expit(m)[:, 0], -target * wrong, wrong * expit(m)


@dataclass(frozen=True)
class Optimum:
    """Result of :func:`torchperc.minimise`, for the weights as written into the net.

    Args:
        loss: the mean loss plus ½·l2·‖w‖².
        gradient_norm: ‖g‖₂ of its gradient, that in the bias included.
        gap: how far the loss may still be above its minimum, relative to the loss: ½·gᵀH⁻¹g over the loss. Exact for
            the squared loss; for the logistic losses exact in the limit and no bound.
        iterations: Newton steps over all samples.
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


@torch.no_grad()
def minimise(
    net: LinearNet,
    head: Head,
    X: Data,
    y: Data,
    *,
    l2: float = 0.0,
    tol: float = 1e-6,
    max_iter: int = 100,
    sample_weight: Data | None = None,
) -> Optimum:
    """Minimise mean loss + ½·l2·‖w‖² of a linear net in place; the bias is not penalised.

    A squared loss is solved directly; if features depend on each other, by the solution nearest to the net's weights.
    A logistic loss is minimised by Newton's method until its relative gap is at most ``tol``, from the net's weights
    or from zero, whichever is lower; with many features, its Hessian is not written down, and L-BFGS goes ahead. All
    arithmetic is in float64 on the CPU, and the figures returned are those of the weights as rounded to the net's type.

    Samples that a hyperplane separates, some perhaps lying on it, have no logistic minimum without ``l2``: minimising
    stops, warns, and returns ``unbounded=True``.

    Args:
        net: a :class:`Perceptron`, :class:`MulticlassPerceptron` or ``nn.Linear``.
        head: an :class:`LMSHead`, :class:`LogisticHead` or :class:`RegressionHead`.
        X: samples (N, d), dense or sparse; sparse ones stay so.
        y: labels −1/+1, or class indices for a net of K classes; for regression real targets (N,) or (N, K).
        l2: the weight of the penalty.
        tol: the relative gap that is good enough.
        max_iter: maximum number of Newton steps, before which L-BFGS makes at most ten times as many of its own;
            reaching it is reported, not raised.
        sample_weight: how much each sample counts in the mean, Σ c·loss/Σ c; 0 leaves it out, and a weight of 3 is the
            same as three copies.

    Example:
        >>> from torchperc.nn.modules import Perceptron
        >>> net = Perceptron(1)
        >>> found = minimise(net, LogisticHead(), [[0.0], [1.0], [2.0], [3.0]], [-1, 1, -1, 1], tol=1e-9)
        >>> found.converged, round(found.loss, 4), net.weight.data
        (True, 0.5869, tensor([[0.9082]]))
        >>> found = minimise(net, RegressionHead(), [[1.6], [1.7], [1.8]], [60.0, 68.0, 73.0])
        >>> net.weight.data, net.bias.data
        (tensor([[65.0000]]), tensor([-43.5000]))
    """
    check_linear(net)
    l2, tol = check_number("l2", l2, at_least=0), check_number("tol", tol, above=0)
    max_iter = check_int("max_iter", max_iter, at_least=1)
    if not isinstance(head, SquaredHead | LogisticHead):
        what = f"head must be an LMSHead, a LogisticHead or a RegressionHead, found {type(head).__name__}"
        raise TypeError(f"{what}; for the perceptron use RuleTrainer")
    problem = _problem(net, head, X, y, l2, sample_weight)
    with np.errstate(over="ignore", invalid="ignore"):  # numbers that are not finite are found in the first gradient
        weights, found = _solve(problem, net_weights(net), tol, max_iter)
    write_weights(net, weights)
    if found.unbounded:
        why = "the loss has no minimum: a hyperplane separates the samples, so it falls forever as the weights grow"
        warnings.warn(f"{why}. The net has the weights at which this was found. Use l2 > 0.", UserWarning, stacklevel=3)
    return found


def _problem(net: LinearNet, head: Head, X: Data, y: Data, l2: float, sample_weight: Data | None) -> Objective:
    """Return the objective over checked samples that count."""
    dtype, units = net.weight.dtype, len(net.weight)
    if is_sparse(X):
        data = convert.sparse_features(X, dtype=dtype, width=net.in_features)
    else:
        tensor = convert.features(X, dtype=dtype, device=torch.device("cpu"), width=net.in_features)
        data = (tensor if dtype in (torch.float32, torch.float64) else tensor.float()).numpy()
    labels, weight = labels_or_targets(head, y, data.shape[0], units).numpy(force=True), None
    if sample_weight is not None:
        weight = check_sample_weight(sample_weight, data.shape[0]).numpy(force=True)
        if not weight.all():
            used = np.flatnonzero(weight)
            data, labels, weight = data[used], labels[used], weight[used]
        weight = weight / weight.mean()
        if not isinstance(head, RegressionHead) and labels.min() == labels.max():
            raise ValueError("sample_weight leaves samples of one class only; at least two classes are required")
    falls = isinstance(head, LogisticHead) and units > 1 and net.bias is not None
    if falls and len(missing := np.setdiff1d(range(units), labels)):
        why = f"y has no sample of class {missing[0]}, whose bias would fall forever"
        raise ValueError(f"{why}; give the net only the classes that occur, or a net without bias")
    return Objective(head, data, labels, net, l2, weight)


def _solve(problem: Objective, start: Array, tol: float, max_iter: int) -> tuple[Array, Optimum]:
    """Return the weights of the minimum, or where minimising ended, and the figures there."""
    inverse_at: InverseAt = partial(_inverse_by_cg, problem)
    aim, inverse = tol, None
    if problem.squared:
        if problem.width <= SQUARES_UP_TO:
            aim, inverse_at = 1e-24, _inverse_of_squares(problem)
    elif problem.width * problem.units <= HESSIAN_UP_TO:
        inverse_at = partial(_inverse_by_cholesky, problem)
        start, inverse = _minimum_of_sample(problem, start)
    else:
        start = _by_lbfgs(problem, start, tol, max_iter)
    point, gap, steps, unbounded, _ = _newton(problem, start, inverse_at, aim, max_iter, inverse)
    norm = float(np.linalg.norm(point.gradient))
    return point.weights, Optimum(point.loss, norm, gap, steps, gap <= tol and not unbounded, unbounded)


def _newton(
    problem: Objective, start: Array, inverse_at: InverseAt, tol: float, most: int, inverse: Inverse | None = None
) -> tuple[Point, float, int, bool, Inverse]:
    """Return the last point, its relative gap, the number of steps, whether the loss has no minimum, and H⁻¹ used last.

    Without a minimum, either all samples are right, or steps move scores far although the loss hardly changes.
    """
    zero, _, _ = problem.terms(np.zeros((len(problem), problem.units)), slice(None))
    point, zero_loss = problem.at(problem.rounded(start)), float(zero @ problem.sample_weight) / len(problem)
    smallest = torch.finfo(problem.net.weight.dtype).eps * zero_loss
    if not point.loss <= zero_loss and not problem.squared:  # also if it is NaN
        point = problem.at(np.zeros_like(start))
    if not np.isfinite([point.loss, *point.gradient.flat]).all():
        raise problem.overflow()
    gap, drifts, before, inverse = math.inf, 0, point, inverse or inverse_at(point)
    for step in range(most + 1):
        previous, scale = gap, max(point.loss, smallest)
        direction, slope, gap = _step(inverse, point, scale)
        serves = previous <= NEAR and gap <= previous / 10 and not drifts and not tol / 10 < gap <= tol
        if step > 0 and not serves:
            inverse = inverse_at(point)
            direction, slope, gap = _step(inverse, point, scale)
        if previous / 2 < gap < ROUNDING:
            point, gap, step = (point, gap, step) if gap < previous else (before, previous, step - 1)
            return point, gap, step, False, inverse
        flat = problem.l2 == 0 and gap <= FLAT and not problem.squared
        drifts = drifts + 1 if flat and np.abs(problem.at(direction).scores).max() > FAR else 0
        unbounded = drifts == DRIFTS or problem.separates(point)
        done = unbounded or (gap <= tol and not drifts) or step == most
        following = None if done else _search(problem, point, direction, slope)
        if following is None:
            break
        before, point = point, following
    return point, gap, step, unbounded, inverse


def _step(inverse: Inverse, point: Point, scale: float) -> tuple[Array, float, float]:
    """Return the Newton step −H⁻¹g at a point, the slope of the loss along it, and the relative gap."""
    direction = -inverse(point.gradient)
    slope = float((point.gradient * direction).sum())
    return direction, slope, -slope / 2 / scale


def _search(problem: Objective, point: Point, direction: Array, slope: float) -> Point | None:
    """Return the first point along a direction, nearer each time, that is low enough."""
    for length in 3.0 ** -np.arange(40):
        weights = problem.rounded(point.weights + length * direction)
        if np.array_equal(weights, point.weights):
            return None
        following = problem.at(weights)
        rise = following.loss - point.loss
        if rise <= 1e-4 * length * slope + 1e-14 * point.loss:  # the latter is rounding
            return following
    return None


def _minimum_of_sample(problem: Objective, start: Array) -> tuple[Array, Inverse | None]:
    """Return where a sample of the rows has its minimum, and H⁻¹ there, which save Hessians of all rows."""
    size = max(len(problem) // SAMPLED, 4 * problem.width * problem.units, 1000)
    if 4 * size > len(problem):
        return start, None
    at = np.sort(np.random.default_rng(0).choice(len(problem), size, replace=False))
    options = {"net": problem.net, "l2": problem.l2, "sample_weight": problem.sample_weight[at]}
    sample = Objective(problem.head, problem.X[at], problem.y[at], **options)
    point, *_, inverse = _newton(sample, start, partial(_inverse_by_cholesky, sample), 0.1 * problem.width / size, 20)
    return point.weights, inverse


def _by_lbfgs(problem: Objective, start: Array, tol: float, max_iter: int) -> Array:
    """Return weights near the minimum, by scipy's L-BFGS."""
    from scipy.optimize import minimize

    def value_and_gradient(weights: Array) -> tuple[float, Array]:
        point = problem.at(weights.reshape(start.shape))
        return point.loss, point.gradient.reshape(-1)

    options = {"maxiter": 10 * max_iter, "maxfun": 20 * max_iter, "ftol": tol / 1000, "gtol": 0.0}
    found = minimize(value_and_gradient, start.reshape(-1), jac=True, method="L-BFGS-B", options=options)
    return np.asarray(found.x.reshape(start.shape))


def _inverse_by_cg(problem: Objective, point: Point) -> Inverse:
    """Return H⁻¹ by conjugate gradients; where features depend on each other, the shortest solution."""

    def times(vector: Array) -> Array:
        return problem.hessian_vector_product(point, vector.reshape(point.gradient.shape)).reshape(-1)

    hessian = LinearOperator((point.gradient.size,) * 2, matvec=times, dtype=np.float64)
    return lambda gradient: cg(hessian, gradient.reshape(-1), rtol=0.03)[0].reshape(gradient.shape)


def _inverse_by_cholesky(problem: Objective, point: Point) -> Inverse:
    """Return H⁻¹ with the smallest ridge that makes H positive definite."""
    hessian = problem.hessian(point)
    if not np.isfinite(hessian).all():
        raise problem.overflow()
    size = np.sqrt(np.where(hessian.diagonal() > 0, hessian.diagonal(), 1.0))
    scaled, ridge, factor = hessian / size / size[:, None], 1e-13 * len(hessian), None
    while factor is None:
        np.fill_diagonal(scaled, 1.0 + ridge)  # of features of one size, so that none is small beside the ridge
        try:
            factor = cho_factor(scaled, lower=True)
        except LinAlgError:
            ridge *= 100

    def inverse(gradient: Array) -> Array:
        direction: Array = (cho_solve(factor, gradient.reshape(-1) / size) / size).reshape(gradient.shape)
        if problem.units > 1:  # without what classes have in common, which only a penalty sees
            direction -= direction.mean(0) * (problem.penalty == 0)
        return direction

    return inverse


def _inverse_of_squares(problem: Objective) -> InverseAt:
    """Return the pseudo-inverse H⁻¹ of the squared loss, by H = RᵀR from QR, which keeps the condition of X."""
    triangle = np.diag(np.sqrt(problem.penalty * len(problem)))[problem.penalty > 0]
    for rows, _ in problem.scaled_rows():
        triangle = np.asarray(np.linalg.qr(np.vstack((triangle, rows)), mode="r"))
    if not np.isfinite(triangle).all():
        raise problem.overflow()
    of_numbers = np.finfo(np.float64).eps * max(len(problem), problem.width)
    of_features = torch.finfo(problem.net.weight.dtype).eps * problem.width**0.5
    root = np.linalg.pinv(triangle / len(problem) ** 0.5, rcond=max(of_numbers, of_features))
    return lambda point: lambda gradient: gradient @ root @ root.T
