"""The minimum itself: where gradient descent on a convex loss would end, reached by Newton's method."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

import numpy as np
import torch
from scipy.linalg import LinAlgError, cho_factor, cho_solve
from scipy.sparse.linalg import LinearOperator, cg

from torchperc._checks import Data, check_int, check_number, check_sample_weight, is_sparse
from torchperc.descent.objective import Array, Objective, Point, net_weights, write_weights
from torchperc.descent.sgd import check_parameters
from torchperc.nn.heads import Head, LogisticHead, RegressionHead, SquaredHead, labels_or_targets
from torchperc.nn.modules import LinearNet
from torchperc.samples import convert

Solve: TypeAlias = Callable[[Array], Array]

HESSIAN_UP_TO = 600  # weights of all classes up to which Newton's method is used on the logistic loss
SQUARES_UP_TO = 4096  # weights of one class up to which least squares are solved directly
SAMPLED = 16  # one sample in so many gives Newton's method its start
NEAR = 0.02  # a relative gap from which on the Hessian hardly changes, so that it serves the next step too
FAR, FLAT, DRIFTS = 0.5, 1e-6, 5  # scores moving so far, the relative gap being so small, so many steps long: a drift
ROUNDING = 1e-10  # a relative gap below this that has stopped halving is due to rounding


@dataclass(frozen=True)
class Optimum:
    """Where :func:`torchperc.minimise` ended, in figures of the weights that it left in the net.

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
    """Take a linear net to the minimum of its head's loss, in place: mean loss + ½·l2·‖w‖², the bias not penalised.

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
    l2 = check_number("l2", l2, at_least=0)
    tol = check_number("tol", tol, above=0)
    max_iter = check_int("max_iter", max_iter, at_least=1)
    if not isinstance(head, SquaredHead | LogisticHead):
        what = f"head must be an LMSHead, a LogisticHead or a RegressionHead, found {type(head).__name__}"
        raise TypeError(f"{what}; for the perceptron's use RuleTrainer")
    if not isinstance(net, LinearNet):
        raise TypeError(f"net must be a linear net such as nn.Linear, found {type(net).__name__}; use gradient descent")
    check_parameters(net)
    problem = _problem(net, head, X, y, l2, sample_weight)
    with np.errstate(over="ignore", invalid="ignore"):  # numbers that are not finite are found in the first gradient
        try:
            weights, found = _solve(problem, net_weights(net), net.weight.dtype, tol, max_iter)
        except FloatingPointError:
            raise _not_finite(net, X, problem) from None
    write_weights(net, weights)
    if found.unbounded:
        why = "the loss has no minimum: a hyperplane separates the samples, so it falls forever as the weights grow"
        warnings.warn(f"{why}. The net has the weights at which this was found. Use l2 > 0.", UserWarning, stacklevel=3)
    return found


def _problem(net: LinearNet, head: Head, X: Data, y: Data, l2: float, sample_weight: Data | None) -> Objective:
    """The objective over checked samples that count."""
    dtype, units = net.weight.dtype, len(net.weight)
    if is_sparse(X):
        data = convert.sparse_features(X, dtype=dtype, width=net.in_features)
    else:
        tensor = convert.features(X, dtype=dtype, device=torch.device("cpu"), width=net.in_features, finite=False)
        data = (tensor if dtype in (torch.float32, torch.float64) else tensor.float()).numpy()
    labels, weight = labels_or_targets(head, y, data.shape[0], units).numpy(force=True), None
    if sample_weight is not None:
        weight = check_sample_weight(sample_weight, data.shape[0]).numpy(force=True)
        used = np.flatnonzero(weight)
        data, labels, weight = data[used], labels[used], weight[used] / weight[used].mean()
        if not isinstance(head, RegressionHead) and labels.min() == labels.max():
            raise ValueError("sample_weight leaves samples of one class only; at least two classes are required")
    if isinstance(head, LogisticHead) and units > 1 and net.bias is not None:
        missing = np.flatnonzero(np.bincount(labels, minlength=units) == 0)
        if len(missing):
            why = f"y has no sample of class {missing[0]}, whose bias would fall forever"
            raise ValueError(f"{why}; give the net only the classes that occur, or a net without bias")
    return Objective(head, data, labels, units, net.bias is not None, l2, weight)


def _not_finite(net: LinearNet, X: Data, problem: Objective) -> ValueError:
    """The error for samples whose first loss or gradient is not finite."""
    if not problem.sparse:
        convert.features(X, dtype=net.weight.dtype)  # names the entry that is not finite
    largest = f"X holds values up to {float(abs(problem.X).max()):g}"
    if isinstance(problem.head, RegressionHead):
        return ValueError(f"{largest} and y up to {np.abs(problem.y).max():g}, whose products overflow; scale them")
    return ValueError(f"{largest}, whose products overflow; scale it")


def _solve(problem: Objective, start: Array, dtype: torch.dtype, tol: float, max_iter: int) -> tuple[Array, Optimum]:
    """The weights of the minimum, or where minimising ended, and the figures there."""
    squared, aim = problem.squared, tol
    solver: Callable[[Point], Solve] = partial(_cg_inverse, problem)
    if squared and problem.width <= SQUARES_UP_TO:
        inverse, aim = _squares_inverse(problem, dtype), 1e-24
        solver = lambda point: inverse  # noqa: E731
    elif not squared and problem.width * problem.units <= HESSIAN_UP_TO:
        start, solver = _minimum_of_sample(problem, start, dtype), partial(_hessian_inverse, problem)
    elif not squared:
        start = _by_lbfgs(problem, start, tol, max_iter)
    point, gap, steps, drifting = _newton(problem, start, solver, dtype, aim, max_iter)
    unbounded = drifting or problem.separates(point)
    norm = float(np.linalg.norm(point.gradient))
    return point.weights, Optimum(point.loss, norm, gap, steps, gap <= tol and not unbounded, unbounded)


def _newton(
    problem: Objective, start: Array, solver: Callable[[Point], Solve], dtype: torch.dtype, tol: float, max_iter: int
) -> tuple[Point, float, int, bool]:
    """The last point, its relative gap, the number of steps, and whether the weights had begun to drift.

    Without a minimum, a step moves scores far although the loss hardly changes.
    """
    point, zero_loss = problem.at(_rounded(start, dtype)), problem.zero_loss
    if not point.loss <= zero_loss and not problem.squared:  # also if it is NaN
        point = problem.at(np.zeros_like(start))
    if not point.finite:
        raise FloatingPointError
    gap, drifts, before, solve = math.inf, 0, None, solver(point)
    for step in range(max_iter + 1):
        scale, previous = max(point.loss, torch.finfo(dtype).eps * zero_loss), gap
        direction, slope, gap = _step(solve, point, scale)
        serves = previous <= NEAR and gap <= previous / 10 and not drifts and not tol / 10 < gap <= tol
        if before is not None and not serves:
            solve = solver(point)
            direction, slope, gap = _step(solve, point, scale)
        if before is not None and gap < ROUNDING and gap > previous / 2:
            return (point, gap, step, False) if gap < previous else (before, previous, step - 1, False)
        flat = problem.l2 == 0 and gap <= FLAT and not problem.squared
        drifts = drifts + 1 if flat and np.abs(problem.scores(direction)).max() > FAR else 0
        if (gap <= tol and not drifts) or drifts == DRIFTS or step == max_iter or problem.separates(point):
            break
        following = _search(problem, point, direction, slope, dtype)
        if following is None:
            break
        before, point = point, following
    return point, gap, step, drifts == DRIFTS


def _step(solve: Solve, point: Point, scale: float) -> tuple[Array, float, float]:
    """The Newton step at a point, the slope of the loss along it, and the relative gap."""
    direction = -solve(point.gradient)
    slope = float((point.gradient * direction).sum())
    return direction, slope, -slope / 2 / scale


def _search(problem: Objective, point: Point, direction: Array, slope: float, dtype: torch.dtype) -> Point | None:
    """The first point along a direction, nearer each time, that is low enough."""
    for length in 3.0 ** -np.arange(40):
        weights = _rounded(point.weights + length * direction, dtype)
        if np.array_equal(weights, point.weights):
            return None
        following = problem.at(weights)
        rise = following.loss - point.loss
        if following.finite and rise <= 1e-4 * length * slope:
            return following
        # close to the minimum the slope still shows what rounding hides in the loss
        if rise <= 1e-12 * point.loss and abs(float((following.gradient * direction).sum())) <= -0.5 * slope:
            return following
    return None


def _rounded(weights: Array, dtype: torch.dtype) -> Array:
    """The nearest weights that the net can hold."""
    rounded: Array = torch.from_numpy(weights).to(dtype).double().numpy()
    return rounded


# --- where to start, and H⁻¹ --------------------------------------------------------------------------------------


def _minimum_of_sample(problem: Objective, start: Array, dtype: torch.dtype) -> Array:
    """Where a sample of the rows has its minimum, which saves steps over all of them; else what was given."""
    size = max(len(problem) // SAMPLED, 4 * problem.width * problem.units, 1000)
    if 4 * size > len(problem):
        return start
    sample = problem.take(np.sort(np.random.default_rng(0).choice(len(problem), size, replace=False)))
    if len(np.unique(sample.y)) < max(problem.units, 2):
        return start
    tol = 0.1 * problem.width / size
    point, *_ = _newton(sample, start, partial(_hessian_inverse, sample), dtype, tol, 20)
    return point.weights


def _by_lbfgs(problem: Objective, start: Array, tol: float, max_iter: int) -> Array:
    """Weights near the minimum, by scipy's L-BFGS."""

    from scipy.optimize import minimize

    def value_and_gradient(weights: Array) -> tuple[float, Array]:
        loss, gradient = problem.loss_and_gradient(weights.reshape(start.shape))
        return loss, gradient.reshape(-1)

    if not problem.at(start).loss <= problem.zero_loss:
        start = np.zeros_like(start)
    options = {"maxiter": 10 * max_iter, "maxfun": 20 * max_iter, "ftol": tol / 1000, "gtol": 0.0}
    found = minimize(value_and_gradient, start.reshape(-1), jac=True, method="L-BFGS-B", options=options)
    return np.asarray(found.x.reshape(start.shape))


def _cg_inverse(problem: Objective, point: Point) -> Solve:
    """g ↦ H⁻¹g at a point by conjugate gradients; of dependent features the shortest solution."""

    def times(vector: Array) -> Array:
        return problem.hessian_vector_product(point, vector.reshape(point.gradient.shape)).reshape(-1)

    hessian = LinearOperator((point.gradient.size,) * 2, matvec=times, dtype=np.float64)
    return lambda gradient: cg(hessian, gradient.reshape(-1), rtol=0.03)[0].reshape(gradient.shape)


def _hessian_inverse(problem: Objective, point: Point) -> Solve:
    """g ↦ H⁻¹g at a point, with the smallest ridge that makes H positive definite."""
    hessian = problem.hessian(point)
    if not np.isfinite(hessian).all():
        raise FloatingPointError
    size = np.sqrt(np.where(hessian.diagonal() > 0, hessian.diagonal(), 1.0))
    scaled, ridge = hessian / size / size[:, None], 1e-13 * len(hessian)  # so that no feature is small beside the ridge
    while True:
        np.fill_diagonal(scaled, 1.0 + ridge)
        try:
            factor = cho_factor(scaled, lower=True)
            break
        except LinAlgError:
            ridge *= 100

    def solve(gradient: Array) -> Array:
        direction: Array = (cho_solve(factor, gradient.reshape(-1) / size) / size).reshape(gradient.shape)
        if problem.units > 1:  # without what classes have in common, which only a penalty sees
            direction -= direction.mean(0) * (problem.penalty == 0)
        return direction

    return solve


def _squares_inverse(problem: Objective, dtype: torch.dtype) -> Solve:
    """g ↦ H⁻¹g of the squared loss, the shortest where H is singular; H = RᵀR by QR keeps the condition of X."""
    triangle = np.diag(np.sqrt(problem.penalty * len(problem)))[problem.penalty > 0]
    weight = np.ones(len(problem)) if problem.sample_weight is None else problem.sample_weight
    for rows, _ in problem.scaled_rows(np.sqrt(weight)[:, None]):
        triangle = np.asarray(np.linalg.qr(np.vstack((triangle, rows)), mode="r"))
    if not np.isfinite(triangle).all():
        raise FloatingPointError
    _, values, directions = np.linalg.svd(triangle / len(problem) ** 0.5, full_matrices=False)
    of_numbers = np.finfo(np.float64).eps * max(len(problem), problem.width)
    of_rows = torch.finfo(dtype).eps * problem.width**0.5
    kept = values > values[0] * max(of_numbers, of_rows)
    basis = directions[kept] / values[kept, None]
    return lambda gradient: gradient @ basis.T @ basis
