"""Newton's method for the logistic losses, each step H·p = −g solved by conjugate gradients.

All that is asked of the data is products with them, one reading of X each. To keep the readings few, a sample of rows
is minimised first, which starts the whole close to its minimum, and the sample's Hessian preconditions the whole's.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import torch

from torchperc.descent.objective import Array, Objective, Point, Squares

Solve: TypeAlias = Callable[[Array], Array]

DENSE_UP_TO = 1024  # parameters up to which the Hessian's blocks are written down; beyond, its diagonal
PATIENCE = 8  # products after which a new diagonal is worth its cost; new blocks are after an eighth of their width
SAMPLED = 16  # one row in so many goes into the sample
FAR, FLAT, DRIFTS = 0.5, 1e-6, 5  # scores moving so far, the relative gap being so small, so many steps long: a drift


@dataclass(frozen=True)
class Optimum:
    """Where :func:`torchperc.minimise` ended, in figures of the weights that it left in the net.

    Args:
        loss: the mean loss plus ½·l2·‖w‖².
        gradient_norm: ‖g‖₂ of its gradient, that in the bias included.
        gap: how far the loss may still be above its minimum, relative to the loss: half the squared Newton decrement
            ½·gᵀH⁻¹g divided by the loss (or, where that is larger, by the rounding unit of the net's type times the
            loss of zero weights). Exact for the squared loss; for the logistic losses an estimate that is exact in the
            limit and no bound. What conjugate gradients have left over of H⁻¹g is counted in.
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


@dataclass(frozen=True)
class _Step:
    """A Newton step p, what ½·gᵀH⁻¹g comes to, how many products it took, and its reach.

    The reach is the largest change of a score; it is looked at only where the loss is flat and has no penalty.
    """

    direction: Array
    decrease: float
    reach: float
    products: int


def solve_logistic(objective: Objective, start: Array, tolerance: float, max_iterations: int) -> tuple[Array, Optimum]:
    """The weights of the minimum, or where minimising ended, and the figures there."""
    if objective.l2 > 0:  # what classes have in common costs penalty and does nothing
        start = np.where(objective.penalty > 0, _centred(start), start)
    point, step, iterations, adrift = _descend(objective, start, tolerance, max_iterations)
    gap = step.decrease / objective.scale(point)
    unbounded = adrift or _separates(objective, point)
    return point.weights, optimum(point, gap, iterations, gap <= tolerance and not unbounded, unbounded)


def _descend(
    objective: Objective, start: Array, tolerance: float, max_iterations: int
) -> tuple[Point, _Step, int, bool]:
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
    patience = PATIENCE if _is_large(objective) else objective.width // 8
    most: int | None = None
    while True:
        if solve is None or spent > patience:
            solve, spent = _preconditioner(objective, point), 0
        scale = objective.scale(point)
        step = newton_step(objective, point, solve, tolerance * scale, most)
        drifts = drifts + 1 if step.reach > FAR else 0
        arrived = step.decrease <= tolerance * scale and not drifts
        if arrived or drifts == DRIFTS or _separates(objective, point) or steps == max_iterations:
            break
        length, following = _search(objective, point, step)
        if following is None:
            break
        # a step that had to be made shorter had gone by the Hessian further than that holds; fewer products go less far
        if length < 0.5:
            most = max(step.products // 2, 1)
        elif most is not None:
            most = 2 * step.products + 1
        point, steps = following, steps + 1
        spent += step.products - 1
    return point, step, steps, drifts == DRIFTS


def _on_trust(objective: Objective, point: Point, solve: Solve, tolerance: float) -> Point | None:
    """The point a step away by the sample's Hessian alone, without a product, if it is lower and there is far to go."""
    direction = solve(-point.gradient)
    slope = float((point.gradient * direction).sum())
    if -slope / 2 <= 10 * tolerance * objective.scale(point):
        return None
    following = objective.at(objective.rounded(point.weights + direction))
    return following if following.finite and following.loss <= point.loss + 1e-4 * slope else None


def _from_sample(objective: Objective, start: Array) -> tuple[Array, Solve | None]:
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


def _preconditioner(objective: Objective, point: Point) -> Solve:
    """v ↦ P⁻¹v with P the Hessian's blocks, one per class, or its diagonal where blocks would be too large.

    Steps are centred: the loss does not see what K classes have in common, and the penalty wants none of it.
    """
    if _is_large(objective):
        diagonal = objective.diagonal(point)
        diagonal = diagonal.clip(min=_least_positive(diagonal))
        return lambda v: _centred(v / diagonal)
    factor = torch.from_numpy(_cholesky(objective, objective.blocks(point, objective.units)))
    return lambda v: _centred(torch.cholesky_solve(torch.from_numpy(v[..., None]), factor).numpy()[..., 0])


def _is_large(objective: Objective) -> bool:
    """Whether the Hessian's blocks would take longer to write down than they save."""
    return objective.width * objective.units > DENSE_UP_TO


def _cholesky(objective: Objective, blocks: Array) -> Array:
    """Cholesky factors of positive semidefinite matrices, each with as small a ridge as makes it definite."""
    if not np.isfinite(blocks).all():
        raise FloatingPointError
    diagonal = np.einsum("kii->ki", blocks)
    size = np.sqrt(diagonal.clip(min=_least_positive(diagonal)))
    scaled = blocks / size[:, :, None] / size[:, None, :]  # so that no feature is small beside the ridge
    ridge = 1e-13 * blocks.shape[-1]
    while True:
        np.einsum("kii->ki", scaled)[:] = 1.0 + ridge
        factor, definite = objective.cholesky(scaled)
        if definite:
            result: Array = factor * size[:, :, None]
            return result
        ridge *= 100


def _least_positive(values: Array) -> float:
    return float(values.min(initial=math.inf, where=values > 0)) if (values > 0).any() else 1.0


def newton_step(objective: Objective, point: Point, solve: Solve, target: float, most: int | None = None) -> _Step:
    """Solve H·p = −g by conjugate gradients with a preconditioner P, as far as it is of use, in ``most`` products.

    Every product adds to ½·gᵀH⁻¹g; at most ½·rᵀP⁻¹r of the residual over the least eigenvalue of P⁻¹H is missing.
    Of that, 1 over the longest step so far is a fair guess; for the last step, whose gap is told, it is worked out.
    """
    residual, scale = -point.gradient, objective.scale(point)
    preconditioned = solve(residual)
    direction, power = preconditioned, float((residual * preconditioned).sum())
    total = np.zeros_like(residual)
    decrease, missing, longest = 0.0, abs(power) / 2, 1.0
    lengths: list[float] = []
    ratios: list[float] = []
    most = residual.size + 10 if most is None else most
    while power > 0 and len(lengths) < most:
        product, _ = objective.along(point, direction)
        bent = float((direction * product).sum())
        if not bent > 0:
            break
        length = power / bent
        longest = max(longest, length)
        total += length * direction
        residual -= length * product
        decrease += length * power / 2
        preconditioned = solve(residual)
        last, power = power, float((residual * preconditioned).sum())
        lengths.append(length)
        ratios.append(power / last)
        missing = longest * abs(power) / 2
        if decrease + missing <= target:  # the last step: it may miss what does not blur the gap
            enough = max(0.1 * decrease, 1e-14 * scale)
            if missing <= enough:
                missing = max(longest, 1 / _least_eigenvalue(lengths, ratios)) * abs(power) / 2
        else:  # what the next will make good, as Newton's method misses as much
            own_error = 0.0 if isinstance(objective, Squares) else min(0.1, decrease / scale)
            enough = max(own_error * decrease, 0.3 * target)
        if missing <= enough:
            break
        direction = preconditioned + ratios[-1] * direction
    flat = objective.l2 == 0 and decrease + missing <= FLAT * scale
    reach = objective.along(point, total)[1] if flat else 0.0
    return _Step(total, decrease + missing, reach, len(lengths))


def _least_eigenvalue(lengths: list[float], ratios: list[float]) -> float:
    """Of P⁻¹H, as far as conjugate gradients have seen it: that of the tridiagonal matrix behind their coefficients."""
    a, b = np.array(lengths), np.array(ratios[:-1])
    diagonal = 1 / a
    diagonal[1:] += b / a[:-1]
    beside = np.sqrt(b) / a[:-1]
    return float(np.linalg.eigvalsh(np.diag(diagonal) + np.diag(beside, -1))[0])  # which reads the lower half


def _centred(values: Array) -> Array:
    """Without what the classes have in common, which their scores' softmax does not see."""
    return values - values.mean(0) if len(values) > 1 else values


def _search(objective: Objective, point: Point, step: _Step) -> tuple[float, Point | None]:
    """The first point along the step, nearer each time, that is low enough, and how far it is; else 0 and ``None``."""
    slope = float((point.gradient * step.direction).sum())
    length = 1.0
    for _ in range(40):
        weights = objective.rounded(point.weights + length * step.direction)
        if np.array_equal(weights, point.weights):
            break
        following = objective.at(weights)
        rise = following.loss - point.loss
        if following.finite and rise <= 1e-4 * length * slope:
            return length, following
        # close to the minimum the slope still shows what rounding hides in the loss
        if rise <= 1e-12 * point.loss and abs(float((following.gradient * step.direction).sum())) <= -0.5 * slope:
            return length, following
        excess = rise - length * slope
        length *= min(max(-slope * length / (2 * excess), 0.1), 0.5) if math.isfinite(excess) and excess > 0 else 0.1
    return 0.0, None


def _separates(objective: Objective, point: Point) -> bool:
    """Whether every sample is on its right side, by more than rounding, so that larger weights are always better."""
    return objective.l2 == 0 and point.margin > 1e-6


def optimum(point: Point, gap: float, iterations: int, converged: bool, unbounded: bool = False) -> Optimum:
    """The figures at a point."""
    norm = float(np.sqrt((point.gradient**2).sum()))
    return Optimum(point.loss, norm, gap, iterations, converged, unbounded)
