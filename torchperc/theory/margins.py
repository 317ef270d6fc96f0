"""Radius, margin and the largest margin there is, in the space where the update happens.

An update adds c·y·φ to the weights, φ = (x, √β), see :mod:`torchperc.theory.points`, so the weights (w, b) have the
length √(‖w‖² + b²/β). With K classes φ(x, k) is φ in the k-th of K blocks, the differences φ(x, y) − φ(x, r) take the
place of y·φ, and all K weight vectors together are one vector. Such a margin regularizes the bias; the geometric margin
leaves it free. See docs/concepts/theory.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from torchperc._checks import Data, check_bool, check_int, check_labels, check_number, is_sparse
from torchperc.nn import functional as tpf
from torchperc.nn.modules import MulticlassPerceptron, Perceptron
from torchperc.samples import convert
from torchperc.theory.points import Array, Indices, Points, class_count

EPS = float(np.finfo(np.float64).eps)
_WORKING_SET = 1000  # rows that are solved together, besides the support found so far
_FREE_BIAS = (1e4, 1e2)  # weights of the equations Σ λ·e = 0 in the least squares, in turn: precise, and stable


# --- radius and margin --------------------------------------------------------------------------------------------


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

    Either is negative if a sample is on the wrong side; the largest value that any weights reach is γ* of
    :func:`max_margin` with the same ``regularize_bias``. (``RuleTrainer(margin=)`` is neither: it is the y·s that the
    rule requires of every sample, not divided by a length.) With K classes s_y − max_{r≠y} s_r takes the place of y·s,
    and the length is that of all K weight vectors.

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
    return float(tpf.slacks(points.scores(weight, bias), target).min()) / norm


def weights_and_labels(net: Any, points: Points, y: Data) -> tuple[Tensor, Tensor, Tensor]:
    """Return weight and bias of a net, and the checked labels of the points it scores."""
    weight, bias = weights_of(net, points.X.shape[1])
    return weight, bias, check_labels(y, len(points), None if len(weight) == 1 else len(weight), both=False).cpu()


def weights_of(net: Any, width: int) -> tuple[Tensor, Tensor]:
    """Return weight (K, d) and bias (K,) in float64, of a linear net, a :class:`MaxMargin` or a pair."""
    if isinstance(net, tuple | list) and len(net) == 2:
        weight, bias = net
    elif isinstance(net, Perceptron | MulticlassPerceptron | nn.Linear | MaxMargin):
        weight, bias = net.weight, net.bias
    else:
        raise TypeError(
            "net must be a Perceptron, a MulticlassPerceptron, an nn.Linear or a pair (weight, bias), found "
            f"{type(net).__name__}"
        )
    options: dict[str, Any] = {"dtype": torch.float64, "device": torch.device("cpu"), "convert": True}
    weight = convert.features(weight, width=width, name="weight", **options)
    if bias is None:
        return weight, weight.new_zeros(len(weight))
    column = bias.reshape(-1, 1) if isinstance(bias, Tensor) else np.asarray(bias).reshape(-1, 1)
    offset = convert.features(column, name="bias", **options)[:, 0]
    if len(offset) != len(weight):
        raise ValueError(
            f"bias has {len(offset)} values for a weight of shape {tuple(weight.shape)}; they must be (K,)"
        )
    return weight, offset


# --- the largest margin -------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class MaxMargin:
    """The largest margin γ* (0 if nothing separates) between two bounds, with weights that reach the lower one.

    Both bounds hold in exact arithmetic: they include a bound on their rounding errors.

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
        """Whether these weights separate the data, which is then certain.

        ``False`` says that no such weights were found, and that γ* is at most ``upper``.
        """
        return self.margin > 0


def max_margin(
    X: Data,
    y: Data,
    *,
    regularize_bias: bool = False,
    bias_step: str = "unit",
    tolerance: float = 1e-6,
    num_classes: int | None = None,
    max_cycles: int = 10_000,
) -> MaxMargin:
    """Return the largest margin γ* with bounds: of hyperplanes, or of updates (a regularized bias).

    - ``regularize_bias=False``: γ* = max min_n y_n·(w·x_n + b)/‖w‖, the largest distance of the nearest sample from a
      hyperplane; half the distance between the convex hulls of the two classes. A support vector machine finds it.
    - ``regularize_bias=True``: γ* = max min_n y_n·(w·x_n + b)/√(‖w‖² + b²/β), the bias being one more weight. It is
      never larger. The mistake bound (R/γ)² and the brackets need this one: with the other they would be wrong.

    γ* is the distance of the origin from the convex hull of the rows y·φ, or φ(x, y) − φ(x, r). The nearest point of
    the hull of some rows is a non-negative least squares problem (Lawson and Hanson's, by ``scipy.optimize.nnls``),
    which finds its support; the equations on the support are then solved directly. The rows of all data that violate
    this solution most join the support for the next cycle, until upper − margin ≤ tolerance·upper, until rounding
    allows no more, or after ``max_cycles``; the bounds are true in each case.

    Args:
        X: samples (N, d), as a tensor, an array, lists or a scipy sparse matrix.
        y: labels −1/+1, or class indices with ``num_classes``.
        regularize_bias: whether the bias is part of the norm.
        bias_step: β of a regularized bias, see :func:`radius`; ``"none"`` is for hyperplanes through the origin, for
            which both margins are the same.
        tolerance: the gap that is good enough, as a fraction of γ*.
        num_classes: K, or ``None`` for two classes by one score.
        max_cycles: maximum number of least squares problems.

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
    target = check_labels(y, len(points), class_count(num_classes)).cpu()
    check_number("tolerance", tolerance, above=0)
    check_int("max_cycles", max_cycles, at_least=1)
    free = bias_step != "none" and not regularize_bias
    rows = _Rows(replace(points, bias_scale=0.0) if free else points, target.numpy(), num_classes, free)
    weight, bias = (torch.zeros(num_classes or 1, *width, dtype=torch.float64) for width in (points.X.shape[1:], ()))
    best = MaxMargin(weight, bias, 0.0, math.inf, torch.arange(0))
    keys, stalled = rows.first(), 0
    for cycle in range(max_cycles):
        Z, E = rows.table(keys)
        found = _nearest_point(Z, E, _FREE_BIAS[cycle % 2])
        if found is None:
            break
        support, shares, w, b = found
        upper = min(rows.upper_bound(Z[support], E[support], each) for each in shares)
        if upper < best.upper:
            samples = torch.from_numpy(rows.samples(keys[support])).unique()
            best = replace(best, upper=upper, support=samples)
        weight, bias = rows.weights(w, b)
        slacks = rows.slacks(weight, bias)
        lower = rows.lower_bound(slacks, bias)
        if lower > best.margin:
            best = replace(best, weight=weight, bias=bias, margin=lower)
        if best.gap <= tolerance * best.upper or best.upper <= 4 * rows.rounding(len(support)):
            break
        before, keys = keys, rows.lowest(slacks, keys[support])
        stalled = stalled + 1 if np.isin(keys, before).all() else 0
        if stalled == len(_FREE_BIAS):
            break
    return best


@dataclass(frozen=True)
class _Rows:
    """All rows y·φ, or φ(x, y) − φ(x, r) for each wrong class r; a row's key is its sample, or sample·K + r.

    ``free`` says whether there is a free bias, which is no part of the rows Z and has coefficients E of its own.
    """

    points: Points
    y: Indices
    classes: int | None
    free: bool

    @property
    def longest(self) -> float:
        """The length of the longest row."""
        return math.sqrt(self.points.squared_radius(self.classes)) or 1.0

    def samples(self, keys: Indices) -> Indices:
        """Return the sample of each row."""
        return keys // (self.classes or 1)

    def first(self) -> Indices:
        """Return the keys of the rows to begin with: those that are hardest for the nearest class mean."""
        member = self.y[:, None] == (np.array([-1, 1]) if self.classes is None else np.arange(self.classes))
        means = np.asarray((self.points.X.T @ (member / np.maximum(member.sum(axis=0), 1))).T)
        weight, bias = torch.from_numpy(means), torch.from_numpy(-np.square(means).sum(axis=1) / 2)
        nearest = (weight.diff(dim=0), bias.diff()) if self.classes is None else (weight, bias)
        return self.lowest(self.slacks(*nearest), np.arange(0))

    def table(self, keys: Indices) -> tuple[Array, Array]:
        """Return some rows Z: (n, D), and the coefficients E of the free biases in them."""
        samples = self.samples(keys)
        chosen = self.points.X[samples]
        phi = chosen.toarray() if is_sparse(chosen) else chosen
        if self.points.bias_scale:
            phi = np.column_stack((phi, np.full(len(phi), math.sqrt(self.points.bias_scale))))
        if self.classes is None:
            signs = self.y[samples].astype(np.float64)[:, None]
        else:
            signs, every = np.zeros((len(keys), self.classes)), np.arange(len(keys))
            signs[every, self.y[samples]], signs[every, keys % self.classes] = 1.0, -1.0
        Z = (signs[:, :, None] * phi[:, None, :]).reshape(len(keys), -1)
        return Z, signs if self.free else signs[:, :0]

    def weights(self, weight: Array, bias: Array) -> tuple[Tensor, Tensor]:
        """Return weight and bias of a solution, scaled to length 1."""
        norm = np.linalg.norm(weight) or 1.0
        units = torch.from_numpy(weight / norm).reshape(self.classes or 1, -1)
        if self.free:
            offset = torch.from_numpy(bias / norm)
            if self.classes is not None:  # classes without samples are never predicted
                absent = np.setdiff1d(np.arange(self.classes), self.y)
                offset[absent] = -3 * self.longest - 2 * offset.abs().max()
            return units, offset
        if self.points.bias_scale:
            return units[:, :-1], units[:, -1] * math.sqrt(self.points.bias_scale)
        return units, units.new_zeros(len(units))

    def slacks(self, weight: Tensor, bias: Tensor) -> Array:
        """Return y·s, or s_y − s_r, of all rows by key; infinite for r = y, which is no row."""
        scores, labels = self.points.scores(weight, bias).numpy(), self.y[:, None]
        if self.classes is None:
            return np.asarray(scores * self.y)
        slacks = np.take_along_axis(scores, labels, axis=1) - scores
        np.put_along_axis(slacks, labels, math.inf, axis=1)
        return np.asarray(slacks.reshape(-1))

    def lowest(self, slacks: Array, support: Indices) -> Indices:
        """Return the keys of the rows to solve next: the support, and the rows with the smallest slacks."""
        if np.isfinite(slacks).sum() <= 2 * _WORKING_SET:
            return np.flatnonzero(np.isfinite(slacks))
        return np.union1d(support, np.argpartition(slacks, _WORKING_SET)[:_WORKING_SET])

    def rounding(self, count: int) -> float:
        """Return how far a computed combination of so many rows can be from the hull."""
        return (count + 8) * EPS * self.longest

    def upper_bound(self, Z: Array, E: Array, shares: Array) -> float:
        """Return an upper bound on γ* in exact arithmetic: ‖Σ λ·z‖ for Σ λ = 1.

        A free bias adds b·Σ λ·e, which is 0 but for rounding: the biases of separating weights of length 1 differ by
        no more than the longest row.
        """
        distance = float(np.linalg.norm(Z.T @ shares)) + self.longest * float(np.abs(E.T @ shares).sum())
        return float(distance * (1 + (Z.shape[1] + 8) * EPS) + 2 * self.rounding(len(Z)))

    def lower_bound(self, slacks: Array, bias: Tensor) -> float:
        """Return a lower bound on the margin of weights of length 1 in exact arithmetic."""
        reach = self.longest + (float(bias.abs().max()) if self.free else 0.0)
        return float(slacks.min() - 2 * (self.points.X.shape[1] + 8) * EPS * reach)


def _nearest_point(Z: Array, E: Array, free_bias: float) -> tuple[Indices, list[Array], Array, Array] | None:
    """Return the nearest point to the origin of the hull of rows Z; ``None`` if it was not found.

    The least squares solution μ ≥ 0 of Zᵀμ = 0, 1ᵀμ = 1 (and Eᵀμ = 0, with the weight ``free_bias``) is proportional to
    the shares λ of the rows. Returned are the rows with a share, one or two approximations of their shares, and w and
    b with Z·w + E·b = 1 on them.
    """
    from scipy.optimize import nnls

    scale = math.sqrt(float(np.einsum("ij,ij->i", Z, Z).max())) or 1.0
    system = np.vstack((free_bias * E.T, Z.T / scale, np.ones(len(Z))))
    try:
        solution = nnls(system, np.append(np.zeros(len(system) - 1), 1.0), maxiter=30 * len(Z))[0]
    except RuntimeError:  # too many iterations
        return None
    support = np.flatnonzero(solution)
    weight, bias, refined = _solve_on_support(Z[support], E[support])
    candidates = [np.maximum(each, 0.0) for each in (solution[support], refined) if np.isfinite(each).all()]
    return support, [each / each.sum() for each in candidates if each.any()], np.nan_to_num(weight), bias


def _solve_on_support(Z: Array, E: Array) -> tuple[Array, Array, Array]:
    """Return the shortest w with Z·w + E·b = 1, b, and λ with w = Zᵀλ and Eᵀλ = 0; not finite if there is none.

    With N a basis of the null space of Eᵀ, w is the shortest solution of NᵀZ·w = Nᵀ1. An orthogonal factorisation
    gives it without squaring the condition of Z, and repeated corrections make it as precise as the residuals.
    """
    from scipy.linalg import null_space, solve_triangular

    N = null_space(E.T) if E.shape[1] else np.eye(len(Z))
    reduced, right = N.T @ Z, N.sum(axis=0)
    Q, T = np.linalg.qr(reduced.T)
    weight, coefs = np.zeros(Z.shape[1]), np.zeros(len(right))
    if T.shape[0] < T.shape[1] or not np.diagonal(T).all():
        return weight * np.nan, np.zeros(E.shape[1]), np.full(len(Z), np.nan)
    for _ in range(3):
        step = solve_triangular(T, right - reduced @ weight, trans="T", check_finite=False)
        weight, coefs = weight + Q @ step, coefs + solve_triangular(T, step, check_finite=False)
    bias = np.asarray(np.linalg.lstsq(E, 1 - Z @ weight, rcond=None)[0]) if E.shape[1] else np.zeros(0)
    return np.asarray(weight), bias, np.asarray(N @ coefs)
