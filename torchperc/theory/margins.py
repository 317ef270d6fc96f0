"""Radius, margin and the largest margin there is, in the space where the update happens.

An update adds c·y·φ to the weights. With ``bias_step="unit"`` the bias moves by c·y, so φ = (x, 1). With ``"radius"``
it moves by c·y·ρ², ρ the largest ‖x‖: as if a constant feature ρ had a weight v of its own, which moves by c·y·ρ, and
b = v·ρ; so φ = (x, ρ). With ``"none"`` φ = x. In short φ = (x, √β) with β = 1, ρ² or 0, and the weights (w, b) have
the length √(‖w‖² + b²/β). Theorems on the rule hold for these lengths, and not for ‖w‖ alone.

With K classes φ(x, k) is φ in the k-th of K blocks. An update adds c·(φ(x, y) − φ(x, r)), r the class that x was taken
for; so these differences stand in place of y·φ, and all K weight vectors together are one vector of length
√(Σ_k ‖w_k‖² + b_k²/β).

Such a margin counts the bias: it is what theorems on the rule speak of. The margin of a support vector machine, the
distance of the nearest sample from the hyperplane, leaves the bias free, with ‖w‖ alone below the line.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from torchperc import _checks as checks
from torchperc.nn import functional as tpf
from torchperc.nn.modules import MulticlassPerceptron, Perceptron
from torchperc.samples import convert

BIAS_STEPS = ("unit", "radius", "none")
BIASES = ("free", "counted")
_EPS = float(np.finfo(np.float64).eps)
_WORKING_SET = 1000  # samples that the solver looks at between two looks at all of them

Array: TypeAlias = NDArray[np.float64]
Key: TypeAlias = tuple[int, ...]


# --- samples and weights, checked ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Samples:
    """Checked samples in float64, dense or CSR, with the bias step β that goes with them.

    Example:
        >>> samples([[3, 4], [0, 1]], "radius").bias_scale
        25.0
    """

    X: Any  # an array, or a CSR array
    squared_lengths: Array
    bias_step: str
    bias_scale: float

    def __len__(self) -> int:
        return int(self.X.shape[0])

    @property
    def width(self) -> int:
        """d."""
        return int(self.X.shape[1])

    def squared_radius(self, num_classes: int | None) -> float:
        """max ‖x‖² + β; with K classes twice that, the squared length of φ(x, y) − φ(x, r)."""
        value = float(self.squared_lengths.max()) + self.bias_scale
        return value if num_classes is None else 2 * value

    def scores(self, weight: Array, bias: Array) -> Tensor:
        """w·x + b: (N,), or (N, K) with a (K, d) weight."""
        values = torch.from_numpy(np.asarray(self.X @ weight.T) + bias)
        return values.squeeze(-1) if len(weight) == 1 else values

    def length(self, weight: Array, bias: Array) -> float:
        """√(Σ ‖w_k‖² + b_k²/β)."""
        if bias.any() and not self.bias_scale:
            raise ValueError(
                f"bias_step={self.bias_step!r} has no place for a bias, found {float(bias[bias != 0][0]):g}; choose "
                "the bias_step of the run, or torchperc.functional.geometric_margin for distances from the hyperplane"
            )
        return math.hypot(np.linalg.norm(weight), np.linalg.norm(bias) / math.sqrt(self.bias_scale or 1.0))

    def phi(self, i: int) -> Array:
        """One sample as φ = (x, √β): (d + 1,)."""
        row = self.X[[i]].toarray()[0] if checks.is_sparse(self.X) else self.X[i]
        return np.append(row, math.sqrt(self.bias_scale))

    def take(self, index: NDArray[np.int64]) -> Samples:
        """Some of the samples, with the bias step of all of them."""
        return Samples(self.X[index], self.squared_lengths[index], self.bias_step, self.bias_scale)


def samples(X: checks.Data, bias_step: str) -> Samples:
    """Check samples and bias step.

    Example:
        >>> len(samples([[3, 4], [0, 1]], "unit"))
        2
    """
    checks.one_of("bias_step", bias_step, BIAS_STEPS)
    if checks.is_sparse(X):
        values: Any = convert.sparse_features(X, dtype=torch.float64)
    else:
        values = convert.features(X, dtype=torch.float64, device=torch.device("cpu"), convert=True).numpy()
    with np.errstate(over="ignore"):
        squared = values.multiply(values).sum(axis=1) if checks.is_sparse(X) else np.einsum("nd,nd->n", values, values)
    longest = float(squared.max())
    if not longest < np.finfo(np.float64).max / 4:  # so that twice as much with a bias is finite as well
        raise ValueError("X is so large that ‖x‖² overflows; scale X down")
    scale = longest if bias_step == "radius" else float(bias_step == "unit")
    return Samples(values, np.asarray(squared).reshape(-1), bias_step, scale)


def labels(y: checks.Data, count: int, num_classes: int | None, *, both: bool = True) -> Tensor:
    """Labels −1/+1 for ``num_classes=None``, class indices otherwise.

    Example:
        >>> labels([1, -1], 2, None), labels([2, 0], 2, 3)
        (tensor([ 1, -1]), tensor([2, 0]))
    """
    if num_classes is None:
        return checks.signs(y, count, both=both).cpu()
    return checks.class_indices(y, count, checks.whole("num_classes", num_classes, at_least=2), both=both).cpu()


def weights_of(net: Any, width: int) -> tuple[Array, Array]:
    """Weight (K, d) and bias (K,) in float64, of a linear net, a :class:`MaxMargin` or a pair (weight, bias).

    Example:
        >>> weights_of(([[3, 2]], [-4]), 2)
        (array([[3., 2.]]), array([-4.]))
    """
    if isinstance(net, Perceptron | MulticlassPerceptron | nn.Linear | MaxMargin):
        given: Sequence[Any] = (net.weight, net.bias)
    elif isinstance(net, tuple | list) and len(net) == 2:
        given = net
    else:
        raise TypeError(
            "net must be a Perceptron, a MulticlassPerceptron, an nn.Linear or a pair (weight, bias), found "
            f"{type(net).__name__}"
        )
    here = torch.device("cpu")
    weight = convert.features(given[0], dtype=torch.float64, device=here, width=width, name="weight", convert=True)
    if given[1] is None:
        return weight.numpy(), np.zeros(len(weight))
    column = given[1].reshape(-1, 1) if isinstance(given[1], Tensor) else np.asarray(given[1]).reshape(-1, 1)
    bias = convert.features(column, dtype=torch.float64, device=here, name="bias", convert=True)[:, 0]
    if len(bias) != len(weight):
        raise ValueError(f"bias has {len(bias)} values for a weight of shape {tuple(weight.shape)}; they must be (K,)")
    return weight.numpy(), bias.numpy()


# --- radius and margin --------------------------------------------------------------------------------------------


def radius(X: checks.Data, *, bias_step: str = "unit", num_classes: int | None = None) -> float:
    """Radius of the data in the space where the update happens: R = √(max ‖x‖² + β).

    With K classes R is the largest ‖φ(x, y) − φ(x, r)‖, which is √2 times that: two blocks hold φ and the others 0.

    Args:
        X: samples, as a tensor, an array, lists or a scipy sparse matrix.
        bias_step: ``"unit"`` β = 1, ``"radius"`` β = max ‖x‖², ``"none"`` β = 0.
        num_classes: K, or ``None`` for two classes by one score.

    Shape:
        X (N, d) → a number.

    Example:
        >>> radius([[3, 4], [0, 1]], bias_step="none"), radius([[2, 2], [0, 1]])
        (5.0, 3.0)
    """
    classes = None if num_classes is None else checks.whole("num_classes", num_classes, at_least=2)
    return math.sqrt(samples(X, bias_step).squared_radius(classes))


def slack(scores: Tensor, y: Tensor) -> Tensor:
    """By how much a sample is on its side: y·s, or s_y − max_{r≠y} s_r with K classes.

    Shape:
        scores (N,) and labels −1/+1, or (N, K) and class indices → (N,).

    Example:
        >>> slack(torch.tensor([2.0, 1.0]), torch.tensor([1, -1]))
        tensor([ 2., -1.])
    """
    if scores.dim() == y.dim():
        return y * scores
    return scores.gather(-1, y.unsqueeze(-1)).squeeze(-1) - tpf.rival_scores(scores, y)[0]


def margin(net: Any, X: checks.Data, y: checks.Data, *, bias_step: str = "unit") -> float:
    """Margin of given weights in the space where the update happens: min_n y_n·s_n/√(‖w‖² + b²/β).

    With K classes it is min_n (s_y − max_{r≠y} s_r)/√(Σ ‖w_k‖² + b_k²/β). It is negative if a sample is on the wrong
    side. The largest value that any weights reach is γ* of :func:`max_margin` with ``bias="counted"``. Distances from
    the hyperplane, with ‖w‖ alone below the line, are :func:`torchperc.nn.functional.geometric_margin`.

    Args:
        net: a :class:`Perceptron`, a :class:`MulticlassPerceptron`, an ``nn.Linear`` or a pair (weight, bias).
        X: samples.
        y: labels −1/+1, or class indices if the weight has more than one row.
        bias_step: that of the run, see :func:`radius`.

    Shape:
        X (N, d), y (N,) → a number.

    Example:
        >>> margin(([[2.0]], [-1.0]), [[0], [3]], [-1, 1], bias_step="unit")
        0.4472135954999579
    """
    data = samples(X, bias_step)
    weight, bias = weights_of(net, data.width)
    y = labels(y, len(data), None if len(weight) == 1 else len(weight), both=False)
    length = data.length(weight, bias)
    if not length:
        raise ValueError("the weights are all zero, so they have no margin; train the net first")
    return float(slack(data.scores(weight, bias), y).min()) / length


# --- the largest margin -------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class MaxMargin:
    """The largest margin γ* (0 if nothing separates) between two bounds, with weights that reach the lower one.

    Both bounds hold in exact arithmetic: they are widened by what rounding can have done to them.

    Args:
        weight: weights (float64), with ‖w‖ = 1 where the bias is free, and √(‖w‖² + b²/β) = 1 where it is counted;
            zeros if none were found that separate the data.
        bias: the bias that goes with them; zeros with ``bias_step="none"``.
        margin: a lower bound of γ*: the margin that these weights reach, or 0 if they do not separate.
        upper: an upper bound of γ*: the distance of a point of the hull from the origin.
        support: the samples whose combination that point is, in ascending order.
        bias_kind: which margin this is: ``"free"``, the geometric one; ``"counted"``, that of the mistake bound; or
            ``"none"``, where there is no bias and both are the same.

    Shape:
        weight (1, d) and bias (1,), or (K, d) and (K,); support (M,).

    Example:
        >>> best = max_margin([[0], [4]], [-1, 1], bias_step="none")
        >>> best.separable, best.margin, best.upper < 1e-12, best.bias_kind
        (False, 0.0, True, 'none')
    """

    weight: Tensor
    bias: Tensor
    margin: float
    upper: float
    support: Tensor
    bias_kind: str

    @property
    def gap(self) -> float:
        """How far γ* can be from ``margin``: upper − margin."""
        return self.upper - self.margin

    @property
    def separable(self) -> bool:
        """Whether these weights separate the data, which is then sure.

        ``False`` says that no such weights were found and that any margin there may be is below ``upper``, which is 0
        but for rounding if the hull was found to contain the origin.
        """
        return self.margin > 0


def max_margin(
    X: checks.Data,
    y: checks.Data,
    *,
    bias: str = "free",
    bias_step: str = "unit",
    tolerance: float = 1e-6,
    num_classes: int | None = None,
    max_cycles: int = 10_000,
) -> MaxMargin:
    """The largest margin γ* and how well it is known: of hyperplanes (a free bias), or of updates (a counted one).

    - ``bias="free"``: γ* = max min_n y_n·(w·x_n + b)/‖w‖, the largest distance of the nearest sample from a hyperplane;
      half the distance between the convex hulls of the two classes. It is what a support vector machine finds.
    - ``bias="counted"``: γ* = max min_n y_n·(w·x_n + b)/√(‖w‖² + b²/β), the bias being one more weight. It is never
      larger. The mistake bound (R/γ)² and the brackets need this one: with the other they would be wrong.

    γ* is the distance from the origin of a convex hull: of the points y·φ if the bias is counted, of (x − x′)/2 over
    all pairs of a sample x of class +1 and a sample x′ of class −1 if it is free. For every p in the hull, and every
    unit vector u, the least inner product of u with the points is at most u·p ≤ ‖p‖, so ‖p‖ is an upper bound of γ*
    whatever p is, and the margin of u = p/‖p‖ is a lower one. The nearest p makes them equal. It is found by Wolfe's
    method: keep a set of points with the nearest point of their affine hull, add the point that is furthest on the
    wrong side of p, leave out points whose share λ would be negative, and so on. In exact arithmetic that ends after
    finitely many steps; here it ends when upper − margin ≤ tolerance·upper, when rounding allows no more, or after
    ``max_cycles``. The bounds are true in each case.

    With K classes the differences φ(x, y) − φ(x, r) stand in place of y·φ. A free bias means that they are combined so
    that the biases cancel: along cycles of classes k → r → … → k, of which the pairs above are those of two classes.

    A step costs one look at a thousand samples and a few products with the M points that are kept, M ≤ K·(d + 1) + 1:
    seconds for 50,000 samples of 100 features, minutes where thousands of features make for thousands of such points.

    Args:
        X: samples, as a tensor, an array, lists or a scipy sparse matrix.
        y: labels −1/+1, or class indices with ``num_classes``.
        bias: ``"free"`` or ``"counted"``.
        bias_step: how a counted bias counts, see :func:`radius`; ``"none"`` is for hyperplanes through the origin, for
            which both margins are the same.
        tolerance: the gap that is good enough, as a share of γ*.
        num_classes: K, or ``None`` for two classes by one score.
        max_cycles: how many points may be added at most.

    Shape:
        X (N, d), y (N,).

    Example:
        >>> AND = [[0, 0], [0, 1], [1, 0], [1, 1]], [-1, -1, -1, 1]
        >>> best = max_margin(*AND)
        >>> round(best.margin**-2, 9), best.gap < 1e-12, best.support, best.bias_kind
        (8.0, True, tensor([1, 2, 3]), 'free')
        >>> round(max_margin(*AND, bias="counted").margin**-2, 9)
        17.0
    """
    checks.one_of("bias", bias, BIASES)
    data = samples(X, bias_step)
    y = labels(y, len(data), num_classes)
    tolerance = checks.number("tolerance", tolerance, above=0)
    checks.whole("max_cycles", max_cycles, at_least=1)
    kind = "none" if bias_step == "none" else bias
    if kind == "free":
        data = replace(data, bias_step="none", bias_scale=0.0)
    hull = _Hull(data, y, num_classes, kind == "free")
    corral = _nearest(hull, tolerance, max_cycles)
    support = torch.tensor([hull.row(edge) for key in corral.keys for edge in key]).unique()
    weight, offset = hull.weights(corral.direction / (np.linalg.norm(corral.direction) or 1.0))
    R = math.sqrt(data.squared_radius(num_classes)) + (float(np.abs(offset).max()) if kind == "free" else 0.0)
    lowest = float(slack(data.scores(weight, offset), y).min()) - 2 * (data.width + 8) * _EPS * R
    if lowest <= 0:
        weight, offset, lowest = np.zeros_like(weight), np.zeros_like(offset), 0.0
    return MaxMargin(torch.from_numpy(weight), torch.from_numpy(offset), lowest, corral.distance, support, kind)


@dataclass(frozen=True)
class _Hull:
    """The points whose hull is looked at.

    Its edges are y·φ, or φ(x, y) − φ(x, r) for every wrong class r; an edge is known by the row of its sample, or by
    row·K + r. A counted bias makes each edge a point. A free one makes points of edges in which it cancels: the mean
    of the edges along a cycle of classes. A point is known by the edges it is the mean of.
    """

    data: Samples
    y: Tensor
    classes: int | None
    free: bool
    rows: NDArray[np.int64] | None = None  # where the samples are in the whole hull, if these are some of them

    @property
    def shape(self) -> tuple[int, int]:
        """Of a point, a direction, or weights with their bias: (1, d + 1), or (K, d + 1)."""
        return self.classes or 1, self.data.width + 1

    def longest(self) -> float:
        """A length that no point exceeds."""
        if not self.free:
            return math.sqrt(self.data.squared_radius(self.classes))
        ends = (self.data.X.max(axis=0), self.data.X.min(axis=0))  # x − x′ is no longer than from end to end
        high, low = (end.toarray() if checks.is_sparse(end) else end for end in ends)
        return float(np.linalg.norm(high - low))

    def first(self) -> Key:
        """A point from which the search starts: the shortest, or any."""
        if self.free:
            return self.lowest(np.zeros(self.shape))[1]
        row = int(self.data.squared_lengths.argmin())
        return (row if self.classes is None else row * self.classes + int(self.y[row] == 0),)

    def row(self, edge: int) -> int:
        """The row of an edge's sample."""
        return edge // (self.classes or 1)

    def point(self, key: Key) -> Array:
        """The point with this key, as one vector; with a free bias, each number is a difference of two."""
        point = np.zeros(self.shape)
        for edge in key:
            row = self.row(edge)
            phi, own = self.data.phi(row), int(self.y[row])
            if self.classes is None:
                point[0] += phi * own
            else:
                point[own] += phi
                point[edge % self.classes] -= phi
        return point.reshape(-1) / len(key)

    def weights(self, direction: Array) -> tuple[Array, Array]:
        """Weight and bias of a direction: b = v·√β if it is counted, the best there is if it is free."""
        rows = direction.reshape(self.shape)
        if not self.free:
            return rows[:, :-1], rows[:, -1] * math.sqrt(self.data.bias_scale)
        best = _least_mean_cycle(self._leads(rows[:, :-1])[0])[2]
        return rows[:, :-1], np.diff(best) if self.classes is None else best

    def slacks(self, direction: Array) -> Tensor:
        """By how much each sample is on its side of a direction's weights."""
        return slack(self.data.scores(*self.weights(direction)), self.y)

    def lowest(self, direction: Array) -> tuple[float, Key]:
        """The smallest inner product of a direction with the points, and the key of a point that has it."""
        if self.free:
            leads, rows = self._leads(direction.reshape(self.shape)[:, :-1])
            cycle, mean, _ = _least_mean_cycle(leads)
            return mean, tuple(self._edge(int(rows[own, rival]), rival) for own, rival in cycle)
        scores = self.data.scores(*self.weights(direction))
        slacks = slack(scores, self.y)
        row = int(slacks.argmin())
        rival = 0 if self.classes is None else int(tpf.rival_scores(scores[row], self.y[row])[1])
        return float(slacks[row]), (self._edge(row, rival),)

    def part(self, rows: NDArray[np.int64]) -> _Hull:
        """The points of some samples, for many looks at few of them; their keys are those of the whole hull."""
        return _Hull(self.data.take(rows), self.y[torch.from_numpy(rows)], self.classes, self.free, rows)

    def _edge(self, row: int, rival: int) -> int:
        row = row if self.rows is None else int(self.rows[row])
        return row if self.classes is None else row * self.classes + rival

    @cached_property
    def _members(self) -> list[NDArray[np.int64]]:
        """The rows of each class."""
        codes = (-1, 1) if self.classes is None else range(self.classes)
        return [np.flatnonzero(self.y.numpy() == code) for code in codes]

    def _leads(self, weight: Array) -> tuple[Array, NDArray[np.int64]]:
        """The smallest s_k − s_r without biases over the samples of class k, and where it is: (K, K) each."""
        scores = self.data.scores(weight, np.zeros(len(weight))).numpy()
        if self.classes is None:
            scores = np.column_stack((-scores / 2, scores / 2))  # two classes, −1 and +1, as two scores
        width = scores.shape[1]
        leads, rows = np.full((width, width), math.inf), np.zeros((width, width), np.int64)
        for own, members in enumerate(self._members):
            if len(members):
                ahead = scores[members, own : own + 1] - scores[members]
                lowest = ahead.argmin(axis=0)
                leads[own], rows[own] = ahead[lowest, np.arange(width)], members[lowest]
        np.fill_diagonal(leads, math.inf)
        return leads, rows


def _least_mean_cycle(costs: Array) -> tuple[list[tuple[int, int]], float, Array]:
    """The cycle k → r → … → k of the smallest mean cost, that mean, and b with costs[k, r] + b_k − b_r ≥ mean.

    Such b are the lengths of shortest paths (by Bellman and Ford) where every edge costs its cost less the mean. They
    exist unless a cycle has a smaller mean, which then takes the place of the one before.
    """
    pairs = (costs + costs.T) / 2
    k, r = (int(place) for place in np.unravel_index(pairs.argmin(), pairs.shape))
    cycle, mean, every = [(k, r), (r, k)], float(pairs[k, r]), np.arange(len(costs))
    while True:
        b, before = np.zeros(len(costs)), np.full(len(costs), -1)
        for _ in every:
            paths = b[:, None] + (costs - mean)
            via = paths.argmin(axis=0)
            shorter = paths[via, every] < b
            b, before = np.where(shorter, paths[via, every], b), np.where(shorter, via, before)
            if not shorter.any():
                return cycle, mean, b
        other = _cycle_back(before, int(shorter.argmax()))
        lower = float(np.mean([costs[edge] for edge in other])) if other else math.inf
        if lower >= mean:  # what still shortened was rounding
            return cycle, mean, b
        cycle, mean = other, lower


def _cycle_back(before: NDArray[np.int64], here: int) -> list[tuple[int, int]]:
    """The cycle that is reached by going from each class to the one before; empty if there is none."""
    way: list[int] = []
    while here >= 0 and here not in way:
        way.append(here)
        here = int(before[here])
    round_trip = way[way.index(here) :] if here >= 0 else []
    return [(int(before[place]), place) for place in round_trip]


@dataclass(frozen=True, eq=False)
class _Corral:
    """Points with positive shares λ, Σ λ = 1, that make the nearest point to the origin of their affine hull.

    That point minimises ‖Pλ‖ under Σ λ = 1. With any scale s, the least squares solution of (P; s·1ᵀ)·μ = (0; s) is a
    multiple of that λ, so an orthogonal factorisation QT of (P; s·1ᵀ) gives it without squaring P's condition; a
    column more or less changes the factors at the cost of one product.
    """

    keys: tuple[Key, ...]
    points: Array  # (D, M)
    shares: Array  # (M,)
    Q: Array
    T: Array
    scale: float

    @classmethod
    def of(cls, keys: tuple[Key, ...], points: Array, shares: Array, scale: float) -> _Corral:
        """A corral with fresh factors."""
        Q, T = np.linalg.qr(np.vstack((points, np.full(len(keys), scale))))
        return cls(keys, points, shares, Q, T, scale)

    @cached_property
    def point(self) -> Array:
        """Pλ."""
        return self.points @ self.shares

    @cached_property
    def distance(self) -> float:
        """‖Pλ‖, and what rounding can have taken away from it."""
        return float(np.linalg.norm(self.point)) + self.rounding

    @property
    def rounding(self) -> float:
        """How far the computed Pλ can be from the hull."""
        return (len(self.keys) + 8) * _EPS * self.scale

    @cached_property
    def direction(self) -> Array:
        """Pλ, corrected until its inner product with every point is the same.

        Where the hull is much nearer to the origin than its points are, Pλ is a small difference of large numbers. The
        correction is the shortest step that evens out the products, which are sums without that cancellation.
        """
        from scipy.linalg import solve_triangular

        vector = self.point
        for _ in range(2):
            products = self.points.T @ vector
            even = products.mean() - products
            if np.abs(even).max() <= 1e-12 * products.mean():
                break
            vector = vector + (self.Q @ solve_triangular(self.T, even, trans="T", check_finite=False))[:-1]
        return vector

    def __hash__(self) -> int:
        return hash(frozenset(self.keys))

    def entered(self, key: Key, point: Array) -> _Corral | None:
        """The corral with one more point, less those it makes superfluous; ``None`` if it is too near to the others."""
        from scipy.linalg import LinAlgError, qr_insert

        if len(self.keys) >= len(self.Q):
            return None
        column = np.append(point, self.scale)
        try:
            Q, T = qr_insert(self.Q, self.T, column, len(self.keys), which="col", check_finite=False)
        except LinAlgError:
            return None
        keys, points = (*self.keys, key), np.column_stack((self.points, point))
        return _Corral(keys, points, np.append(self.shares, 0.0), Q, T, self.scale)._settled()

    def _settled(self) -> _Corral | None:
        """Go towards the nearest point of the affine hull; leave out each point whose share runs out on the way."""
        from scipy.linalg import qr_delete, solve_triangular

        keys, points, shares, Q, T = list(self.keys), self.points, self.shares, self.Q, self.T
        while True:
            target = solve_triangular(T, Q[-1], check_finite=False)
            target /= target.sum()
            if not np.isfinite(target).all():
                return None
            if (target > 0).all():
                return _Corral(tuple(keys), points, target, Q, T, self.scale)
            shares, gone = _towards(shares, target)
            del keys[gone]
            points, shares = np.delete(points, gone, axis=1), np.delete(shares, gone)
            Q, T = qr_delete(Q, T, gone, which="col", check_finite=False)
            Q, T = Q[:, : len(keys)], T[: len(keys)]


def _towards(shares: Array, target: Array) -> tuple[Array, int]:
    """As far towards the target as no share is negative, and the place of the share that stops the way there."""
    falling = np.flatnonzero(target <= 0)
    fall = shares[falling] - target[falling]
    limits = np.divide(shares[falling], fall, out=np.zeros_like(fall), where=fall > 0)
    first = int(limits.argmin())
    return np.maximum(shares + limits[first] * (target - shares), 0.0), int(falling[first])


def _nearest(hull: _Hull, tolerance: float, max_cycles: int) -> _Corral:
    """Wolfe's method on the samples that matter, and a look at all samples in between."""
    key = hull.first()
    corral = _Corral.of((key,), hull.point(key)[:, None], np.ones(1), hull.longest() or 1.0)
    cycles, seen = 0, {hash(corral)}
    while True:
        slacks = hull.slacks(corral.direction).numpy()
        if _done(corral, float(slacks.min()), tolerance) or cycles >= max_cycles:
            return corral
        rows = _working_set(slacks, [hull.row(edge) for key in corral.keys for edge in key])
        moved, made = _solved(hull, rows, corral, tolerance / 2, max_cycles - cycles, seen)
        if not made:
            return corral
        corral, cycles = _Corral.of(moved.keys, moved.points, moved.shares, moved.scale), cycles + made


def _solved(
    hull: _Hull,
    rows: NDArray[np.int64],
    corral: _Corral,
    tolerance: float,
    max_cycles: int,
    seen: set[int],
) -> tuple[_Corral, int]:
    """The corral nearest to the origin over some samples, and the number of points that were added on the way.

    In exact arithmetic every corral is nearer than the one before, so none comes back. One that does has gone as far
    as rounding allows; the distance itself would not tell, because its decrease may be too small to see.
    """
    part = hull.part(rows)
    for made in range(max_cycles):
        lowest, key = part.lowest(corral.direction)
        if _done(corral, lowest, tolerance) or key in corral.keys:
            return corral, made
        moved = corral.entered(key, hull.point(key))
        if moved is None or moved.distance > corral.distance + moved.rounding or hash(moved) in seen:
            return corral, made
        corral = moved
        seen.add(hash(moved))
    return corral, max_cycles


def _done(corral: _Corral, lowest: float, tolerance: float) -> bool:
    """Whether the gap is small enough, or the hull contains the origin as far as float64 can tell.

    ``lowest`` is the smallest inner product of the corral's direction with any point.
    """
    lower = lowest / (float(np.linalg.norm(corral.direction)) or 1.0)
    return corral.distance - lower <= tolerance * corral.distance or corral.distance <= 2 * corral.rounding


def _working_set(slacks: Array, rows: list[int]) -> NDArray[np.int64]:
    """The samples of the corral and those with the smallest slacks; all of them where they are few."""
    if len(slacks) <= 2 * _WORKING_SET:
        return np.arange(len(slacks))
    return np.union1d(np.array(rows), np.argpartition(slacks, _WORKING_SET)[:_WORKING_SET])
