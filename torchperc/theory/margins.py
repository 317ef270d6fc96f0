"""Radius, margin and the largest margin there is, in the space where the update happens.

An update adds c·y·φ to the weights, φ = (x, √β), so the weights (w, b) have the length √(‖w‖² + b²/β). With K classes
the differences φ(x, y) − φ(x, r) take the place of y·φ, and all K weight vectors together are one vector. Such a margin
regularizes the bias; the geometric margin leaves it free. See docs/concepts/theory.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from torchperc._checks import Data, check_bool, check_labels, check_number
from torchperc.nn import functional as tpf
from torchperc.nn.modules import MulticlassPerceptron, Perceptron
from torchperc.samples import convert
from torchperc.theory.problem import Array, Indices, Points, Problem, class_count

EPS = float(np.finfo(np.float64).eps)
_CYCLES = 10_000  # least squares problems
_WORKING_SET = 1000  # rows that are solved together, besides the support found so far
_FREE_BIAS = 1e3  # the weight of the equations Σ λ·e = 0 in the least squares


def radius(X: Data, *, bias_step: str = "unit", num_classes: int | None = None) -> float:
    """Return the radius of the data where the update happens: R = √(max ‖x‖² + β).

    With K classes R is the largest ‖φ(x, y) − φ(x, r)‖, which is √2 times that: two blocks hold φ and the others 0.

    Args:
        X: samples (N, d), as a tensor, an array, lists or a scipy sparse matrix.
        bias_step: ``"unit"`` β = 1, ``"radius"`` β = max ‖x‖², ``"none"`` β = 0.
        num_classes: K, or ``None`` for two classes by one score.

    Example:
        >>> radius([[3, 4], [0, 1]], bias_step="none"), radius([[2, 2], [0, 1]])
        (5.0, 3.0)
    """
    return math.sqrt(Points.of(X, bias_step).squared_radius(class_count(num_classes)))


def margin(net: Any, X: Data, y: Data, *, regularize_bias: bool = True, bias_step: str = "unit") -> float:
    """Return the margin of given weights: min_n y_n·s_n/‖(w, b)‖, with or without the bias in the norm.

    - ``regularize_bias=True``: divided by √(‖w‖² + b²/β), the margin in the space where the update happens, which the
      mistake bound needs. For w = (3, 2), b = −4 and the gate AND it is 1/√29 = 0.186.
    - ``regularize_bias=False``: divided by ‖w‖, the distance of the nearest sample from the hyperplane, the geometric
      margin of :func:`torchperc.functional.geometric_margin`. For the same weights it is 1/√13 = 0.277.

    Either is negative if a sample is on the wrong side; the largest value is that of :func:`max_margin`. With K classes
    s_y − max_{r≠y} s_r takes the place of y·s, and the length is that of all K weight vectors.

    Args:
        net: a :class:`Perceptron`, a :class:`MulticlassPerceptron`, an ``nn.Linear`` or a pair (weight, bias).
        X: samples (N, d).
        y: labels −1/+1, or class indices if the weight has more than one row.
        regularize_bias: whether the bias is part of the norm.
        bias_step: that of the run, see :func:`radius`; for a regularized bias.

    Example:
        >>> AND = [[0, 0], [0, 1], [1, 0], [1, 1]], [-1, -1, -1, 1]
        >>> [round(margin(([[3, 2]], [-4]), *AND, regularize_bias=choice), 3) for choice in (True, False)]
        [0.186, 0.277]
    """
    check_bool("regularize_bias", regularize_bias)
    points = Points.of(X, bias_step)
    weight, bias, target = weights_and_labels(net, points, y)
    norm = points.norm(weight, bias) if regularize_bias else float(weight.norm())
    if not norm:
        raise ValueError("the weights are all zero, so they have no margin; train the net first")
    return float(tpf.functional_margins(points.scores(weight, bias), target).min()) / norm


def weights_and_labels(net: Any, points: Points, y: Data) -> tuple[Tensor, Tensor, Tensor]:
    """Return weight and bias of a net, and the checked labels of the points it scores."""
    weight, bias = weights_of(net, points.X.shape[1])
    return weight, bias, check_labels(y, len(points), None if len(weight) == 1 else len(weight), both=False).cpu()


def weights_of(net: Any, width: int) -> tuple[Tensor, Tensor]:
    """Return weight (K, d) and bias (K,) in float64, of a linear net, a :class:`MaxMargin` or a pair."""
    if isinstance(net, Perceptron | MulticlassPerceptron | nn.Linear | MaxMargin):
        net = net.weight, net.bias
    if not isinstance(net, tuple | list) or len(net) != 2:
        raise TypeError(f"net must be a linear net or a pair (weight, bias), found {type(net).__name__}")
    options: dict[str, Any] = {"dtype": torch.float64, "device": torch.device("cpu"), "convert": True}
    weight, bias = convert.features(net[0], width=width, name="weight", **options), net[1]
    if bias is None:
        return weight, weight.new_zeros(len(weight))
    column = bias.reshape(-1, 1) if isinstance(bias, Tensor) else np.asarray(bias).reshape(-1, 1)
    offset = convert.features(column, name="bias", **options)[:, 0]
    if len(offset) != len(weight):
        raise ValueError(f"bias has {len(offset)} values for a weight of shape {tuple(weight.shape)}; (K,) is needed")
    return weight, offset


@dataclass(frozen=True, eq=False)
class MaxMargin:
    """The largest margin γ* (0 if nothing separates) between two rigorous bounds, with weights that reach the lower.

    Args:
        weight: (1, d) or (K, d) in float64, with ‖w‖ = 1 where the bias is free, and √(‖w‖² + b²/β) = 1 where it is
            regularized; zeros if none were found that separate the data.
        bias: (1,) or (K,); zeros with ``bias_step="none"``.
        margin: a lower bound on γ*: the margin that these weights reach, or 0 if they do not separate.
        upper: an upper bound on γ*: the distance of a point of the hull from the origin.
        support: the samples whose combination that point is, in ascending order.

    Example:
        >>> best = max_margin([[0], [4]], [-1, 1], bias_step="none")
        >>> best.separable, best.margin, best.upper < 1e-12
        (False, 0.0, True)
    """

    weight: Tensor
    bias: Tensor
    margin: float
    upper: float
    support: Tensor

    @property
    def gap(self) -> float:
        """How far γ* can be from ``margin``: upper − margin."""
        return self.upper - self.margin

    @property
    def separable(self) -> bool:
        """Whether these weights separate the data, for certain; if not, γ* is at most ``upper``."""
        return self.margin > 0


def max_margin(
    X: Data,
    y: Data,
    *,
    regularize_bias: bool = False,
    bias_step: str = "unit",
    tolerance: float = 1e-6,
    num_classes: int | None = None,
) -> MaxMargin:
    """Return the largest margin γ* with bounds, for a free or a regularized bias.

    - ``regularize_bias=False``: γ* = max min_n y_n·(w·x_n + b)/‖w‖, the largest distance of the nearest sample from a
      hyperplane; half the distance between the convex hulls of the two classes. A support vector machine finds it.
    - ``regularize_bias=True``: γ* = max min_n y_n·(w·x_n + b)/√(‖w‖² + b²/β), the bias being one more weight. It is
      never larger. The mistake bound (R/γ)² and the brackets need this one: with the other they would be wrong.

    γ* is the distance of the origin from the convex hull of the rows y·φ, or φ(x, y) − φ(x, r). A non-negative least
    squares problem (Lawson and Hanson's) finds the nearest point of the hull of some rows; the rows of all data that
    violate it most join its support for the next cycle. The bounds are true whenever the cycles end.

    Args:
        X: samples (N, d), as a tensor, an array, lists or a scipy sparse matrix.
        y: labels −1/+1, or class indices with ``num_classes``.
        regularize_bias: whether the bias is part of the norm.
        bias_step: β of a regularized bias, see :func:`radius`; ``"none"`` is for hyperplanes through the origin, for
            which both margins are the same.
        tolerance: the gap that is good enough, as a fraction of γ*.
        num_classes: K, or ``None`` for two classes by one score.

    Example:
        >>> AND = [[0, 0], [0, 1], [1, 0], [1, 1]], [-1, -1, -1, 1]
        >>> best = max_margin(*AND)
        >>> round(best.margin**-2, 9), best.gap < 1e-12, best.support
        (8.0, True, tensor([1, 2, 3]))
        >>> round(max_margin(*AND, regularize_bias=True).margin**-2, 9)
        17.0
    """
    check_bool("regularize_bias", regularize_bias)
    points = Points.of(X, bias_step)
    target = check_labels(y, len(points), class_count(num_classes)).cpu().numpy()
    check_number("tolerance", tolerance, above=0)
    free = bias_step != "none" and not regularize_bias
    points = replace(points, bias_scale=0.0) if free else points
    codes = target if num_classes else (target + 1) // 2
    problem = Problem(points.X, codes, num_classes or 2, free, num_classes is None)
    rows = _Rows(problem, math.sqrt(points.bias_scale), math.sqrt(points.squared_radius(num_classes)) or 1.0)
    weight, bias = (torch.zeros(num_classes or 1, *width, dtype=torch.float64) for width in (points.X.shape[1:], ()))
    best = MaxMargin(weight, bias, 0.0, math.inf, torch.arange(0))
    keys = _lowest(problem.mean_margins(), np.arange(0))
    for _ in range(_CYCLES):
        Z, E = rows.table(keys)
        found = _nearest_point(Z, E)
        if found is None:
            break
        support, shares, w, b = found
        upper = min(rows.upper_bound(Z[support], E[support], each) for each in shares)
        if upper < best.upper:
            samples, _ = problem.samples_and_rivals(keys[support])
            best = replace(best, upper=upper, support=torch.from_numpy(samples).unique())
        weight, bias = rows.weights(w, b)
        margins = problem.margins(weight.numpy(), bias.numpy()).reshape(-1)
        lower = rows.lower_bound(margins, bias)
        if lower > best.margin:
            best = replace(best, weight=weight, bias=bias, margin=lower)
        if best.gap <= tolerance * best.upper or best.upper <= 4 * rows.rounding(len(support)):
            break
        before, keys = keys, _lowest(margins, keys[support])
        if np.isin(keys, before).all():
            break
    return best


class _Rows(NamedTuple):
    """All rows y·φ, or φ(x, y) − φ(x, r); the problem's bias is free, and no part of the rows."""

    problem: Problem
    constant: float  # √β
    longest: float  # the length of the longest row

    def table(self, keys: Indices) -> tuple[Array, Array]:
        """Return some rows Z: (n, D), and the coefficients E of the free biases in them."""
        phi = self.problem.dense(self.problem.samples_and_rivals(keys)[0])
        if self.constant:
            phi = np.column_stack((phi, np.full(len(phi), self.constant)))
        signs = self.problem.signs_of(keys)[:, int(self.problem.signs) :]
        Z = (signs[:, :, None] * phi[:, None, :]).reshape(len(keys), -1)
        return Z, signs if self.problem.bias else signs[:, :0]

    def weights(self, weight: Array, bias: Array) -> tuple[Tensor, Tensor]:
        """Return weight and bias of a solution, scaled to length 1."""
        problem, norm = self.problem, np.linalg.norm(weight) or 1.0
        units = torch.from_numpy(weight / norm).reshape(1 if problem.signs else problem.classes, -1)
        if problem.bias:
            offset = torch.from_numpy(bias / norm)
            absent = np.setdiff1d(np.arange(len(units)), problem.y if len(units) > 1 else 0)
            offset[absent] = -3 * self.longest - 2 * offset.abs().max()  # classes without samples are never predicted
            return units, offset
        return units[:, : problem.features], self.constant * units[:, -1]

    def rounding(self, count: int) -> float:
        """Return how far a computed combination of so many rows can be from the hull."""
        return (count + 8) * EPS * self.longest

    def upper_bound(self, Z: Array, E: Array, shares: Array) -> float:
        """Return an upper bound on γ* in exact arithmetic: ‖Σ λ·z‖ for Σ λ = 1.

        A free bias adds b·Σ λ·e, 0 but for rounding; biases of weights of length 1 differ by the longest row at most.
        """
        distance = float(np.linalg.norm(Z.T @ shares)) + self.longest * float(np.abs(E.T @ shares).sum())
        return float(distance * (1 + (Z.shape[1] + 8) * EPS) + 2 * self.rounding(len(Z)))

    def lower_bound(self, margins: Array, bias: Tensor) -> float:
        """Return a lower bound on the margin of weights of length 1 in exact arithmetic."""
        reach = self.longest + (float(bias.abs().max()) if self.problem.bias else 0.0)
        return float(margins.min() - 2 * (self.problem.features + 8) * EPS * reach)


def _lowest(margins: Array, support: Indices) -> Indices:
    """Return the keys of the rows to solve next: the support, and the rows with the smallest margins."""
    if len(margins) <= 2 * _WORKING_SET:
        return np.arange(len(margins))
    return np.union1d(support, np.argpartition(margins, _WORKING_SET)[:_WORKING_SET])


def _nearest_point(Z: Array, E: Array) -> tuple[Indices, list[Array], Array, Array] | None:
    """Return the rows of the nearest point, one or two approximations of their shares, w and b; ``None`` without one.

    The least squares solution μ ≥ 0 of Zᵀμ = 0, Eᵀμ = 0 and 1ᵀμ = 1 is proportional to the shares λ of the rows. On
    those that have one Z·w + E·b = 1 and w = Zᵀλ: w is the shortest solution of NᵀZ·w = Nᵀ1, with corrections, where N
    is a basis of the null space of Eᵀ.
    """
    from scipy.linalg import null_space
    from scipy.optimize import nnls

    scale = math.sqrt(float(np.einsum("ij,ij->i", Z, Z).max())) or 1.0
    system = np.vstack((_FREE_BIAS * E.T, Z.T / scale, np.ones(len(Z))))
    try:
        solution = nnls(system, np.append(np.zeros(len(system) - 1), 1.0), maxiter=30 * len(Z))[0]
    except RuntimeError:  # too many iterations
        return None
    support = np.flatnonzero(solution)
    Z, E = Z[support], E[support]
    N = null_space(E.T) if E.shape[1] else np.eye(len(Z))
    reduced, weight, coefs = N.T @ Z, np.zeros(Z.shape[1]), np.zeros(N.shape[1])
    inverse = np.linalg.pinv(reduced)
    for _ in range(3):
        step = inverse @ (N.sum(axis=0) - reduced @ weight)
        weight, coefs = weight + step, coefs + step @ inverse
    bias = np.asarray(np.linalg.lstsq(E, 1 - Z @ weight, rcond=None)[0]) if E.shape[1] else np.zeros(0)
    candidates = [np.maximum(each, 0.0) for each in (solution[support], N @ coefs)]
    return support, [each / each.sum() for each in candidates if each.any()], weight, bias
