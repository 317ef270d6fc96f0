"""The minimum of the squared loss, by its normal equations."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from torchperc.descent.newton import Optimum, Solve, newton_step, optimum
from torchperc.descent.objective import CHUNK, Array, Objective, Point

SQUARES_UP_TO = 4096  # parameters per class up to which normal equations are written down


def solve_squares(objective: Objective, start: Array, tolerance: float, max_iterations: int) -> tuple[Array, Optimum]:
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
    return point.weights, optimum(point, gap, iteration, gap <= tolerance)


def _correction(objective: Objective, point: Point, solve: Solve | None, tolerance: float) -> tuple[Array, float]:
    """The step −H⁻¹g to the minimum and the relative gap that it closes."""
    scale = objective.scale(point)
    if solve is None:
        step = newton_step(objective, point, np.copy, 1e-3 * tolerance * scale)
        return step.direction, step.decrease / scale
    direction = solve(-point.gradient)
    return direction, abs(float((direction * point.gradient).sum())) / 2 / scale


def _normal_equations(objective: Objective, point: Point) -> Solve | None:
    """v ↦ H⁻¹v, the shortest solution where H is singular; ``None`` if H is too large to write down.

    Conjugate gradients serve then: without a preconditioner they stay where the shortest solution is.
    """
    if objective.width > SQUARES_UP_TO:
        return None
    if len(objective) >= objective.width or objective.l2 > 0:
        hessian = objective.blocks(point, 1)[0]
        size = np.sqrt(hessian.diagonal())
        with np.errstate(all="ignore"):  # a feature that is always 0, or numbers that are not finite: not definite
            factors, definite = objective.cholesky((hessian / size[:, None] / size)[None])
        # a diagonal entry is the part of a feature that those before it do not explain
        if definite and factors[0].diagonal().min() > 1e-5:
            factor = torch.from_numpy(factors[0])
            return lambda v: torch.cholesky_solve(torch.from_numpy(v / size).T, factor).numpy().T / size
    triangle = _triangle(objective)
    if not torch.isfinite(triangle).all():
        raise FloatingPointError
    _, values, directions = torch.linalg.svd(triangle, full_matrices=False)
    rounding = torch.finfo(torch.float64).eps * max(len(objective), objective.width)
    # features that depend on each other but for the rounding of their type would get huge weights to no effect
    of_rows = torch.finfo(objective.rows.dtype).eps * objective.width**0.5
    kept = values > values[0] * max(rounding, of_rows)
    basis = (directions[kept] / values[kept, None]).cpu().numpy()
    return lambda v: v @ basis.T @ basis


def _triangle(objective: Objective) -> Tensor:
    """R with RᵀR = H, by orthogonal transformations, whose rounding does not square the condition of X."""
    ridge = np.diag(np.sqrt(objective.penalty * len(objective)))[objective.penalty > 0]
    triangle = torch.from_numpy(ridge).to(objective.rows.device)
    step = max(CHUNK // objective.width, objective.width)
    for first in range(0, len(objective), step):
        part = slice(first, first + step)
        rows = objective.dense(part)
        if objective.counts is not None:
            rows = rows * objective.counts[part, None].sqrt()
        triangle = torch.linalg.qr(torch.cat((triangle, rows)), mode="r").R
    result: Tensor = triangle / len(objective) ** 0.5
    return result
