"""Radius, margin and the largest margin there is, in the space where the update happens.

An update adds c·y·φ to the weights, φ = (x, √β) with β = 1 for ``bias_step="unit"``, max ‖x‖² for ``"radius"`` and 0
for ``"none"``, so the weights (w, b) have the length √(‖w‖² + b²/β). With K classes φ(x, k) is φ in the k-th of K
blocks, the differences φ(x, y) − φ(x, r) stand in place of y·φ, and all K weight vectors together are one vector.
Such a margin *counts* the bias; the geometric margin leaves it *free*. See docs/concepts/theory.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from torchperc._checks import Data, check_choice, check_int, check_labels, check_number, is_sparse
from torchperc.nn import functional as tpf
from torchperc.nn.modules import MulticlassPerceptron, Perceptron
from torchperc.samples import convert
from torchperc.samples.dense import Dense, Samples
from torchperc.samples.sparse import Sparse
from torchperc.theory.nearest_point import EPS, Array, Index, Key, nearest_point

BIAS_STEPS = ("unit", "radius", "none")
BIASES = ("free", "counted")


# --- samples and weights, checked ---------------------------------------------------------------------------------


def float64_rows(X: Data) -> Samples:
    """Checked samples in float64 on the CPU."""
    if is_sparse(X):
        return Sparse(convert.sparse_features(X, dtype=torch.float64))
    return Dense(convert.features(X, dtype=torch.float64, device=torch.device("cpu"), convert=True))


def array_of(rows: Samples) -> Any:
    """The samples as an array, or as a CSR array: torch's threads and numpy's in one loop would wait for each other."""
    X = rows.raw()
    return X.numpy() if isinstance(X, Tensor) else X


def extent(rows: Samples) -> tuple[Array, Array]:
    """The smallest and the largest value of every feature."""
    X = rows.raw()
    if isinstance(X, Tensor):
        return X.amin(0).numpy(), X.amax(0).numpy()
    return X.min(axis=0).toarray().reshape(-1), X.max(axis=0).toarray().reshape(-1)


@dataclass(frozen=True)
class Points:
    """Samples as points φ = (x, √β), with the β of their bias step."""

    rows: Samples
    bias_step: str
    bias_scale: float

    @classmethod
    def of(cls, X: Data, bias_step: str) -> Points:
        """Check samples and bias step."""
        check_choice("bias_step", bias_step, BIAS_STEPS)
        rows = float64_rows(X)
        with np.errstate(over="ignore"):
            longest = float(rows.squared_norms().max())
        if not longest < np.finfo(np.float64).max / 4:  # so that twice as much with a bias is finite as well
            raise ValueError("X is so large that ‖x‖² overflows; scale X down")
        return cls(rows, bias_step, longest if bias_step == "radius" else float(bias_step == "unit"))

    @cached_property
    def X(self) -> Any:  # noqa: N802
        """The samples as an array, or as a CSR array."""
        return array_of(self.rows)

    @cached_property
    def squared_norms(self) -> Tensor:
        """‖x‖² per sample."""
        return self.rows.squared_norms()

    def squared_radius(self, num_classes: int | None) -> float:
        """max ‖x‖² + β; with K classes twice that, the squared length of φ(x, y) − φ(x, r)."""
        value = float(self.squared_norms.max()) + self.bias_scale
        return value if num_classes is None else 2 * value

    def scores(self, weight: Tensor, bias: Tensor) -> Tensor:
        """w·x + b: (N,), or (N, K) with a (K, d) weight."""
        scores = torch.from_numpy(np.asarray(self.X @ weight.numpy().T) + bias.numpy())
        return scores.squeeze(-1) if len(weight) == 1 else scores

    def phi(self, i: int) -> Array:
        """One sample as φ = (x, √β): (d + 1,)."""
        row = self.X[[i]].toarray()[0] if self.rows.sparse else self.X[i]
        return np.append(row, math.sqrt(self.bias_scale))

    def length(self, weight: Tensor, bias: Tensor) -> float:
        """√(Σ ‖w_k‖² + b_k²/β)."""
        if bias.any() and not self.bias_scale:
            raise ValueError(
                f"bias_step={self.bias_step!r} has no place for a bias, found {float(bias[bias != 0][0]):g}; choose "
                "the bias_step of the run, or bias='free' for distances from the hyperplane"
            )
        return weights_norm(weight, bias, self.bias_scale)


def weights_norm(weight: Tensor, bias: Tensor, bias_scale: float) -> float:
    """√(Σ ‖w_k‖² + b_k²/β): a bias step of β is a constant feature √β; without one the bias does not count.

    Example:
        >>> weights_norm(torch.tensor([[3.0, 4.0]]), torch.tensor([24.0]), 4.0)
        13.0
    """
    counted = float(bias.double().norm()) / math.sqrt(bias_scale) if bias_scale else 0.0
    return math.hypot(float(weight.double().norm()), counted)


def weights_of(net: Any, width: int) -> tuple[Tensor, Tensor]:
    """Weight (K, d) and bias (K,) in float64, of a linear net, a :class:`MaxMargin` or a pair (weight, bias)."""
    if isinstance(net, Perceptron | MulticlassPerceptron | nn.Linear | MaxMargin):
        given: Sequence[Any] = (net.weight, net.bias)
    elif isinstance(net, tuple | list) and len(net) == 2:
        given = net
    else:
        raise TypeError(
            "net must be a Perceptron, a MulticlassPerceptron, an nn.Linear or a pair (weight, bias), found "
            f"{type(net).__name__}"
        )
    options: dict[str, Any] = {"dtype": torch.float64, "device": torch.device("cpu"), "convert": True}
    weight = convert.features(given[0], width=width, name="weight", **options)
    if given[1] is None:
        return weight, weight.new_zeros(len(weight))
    column = given[1].reshape(-1, 1) if isinstance(given[1], Tensor) else np.asarray(given[1]).reshape(-1, 1)
    bias = convert.features(column, name="bias", **options)[:, 0]
    if len(bias) != len(weight):
        raise ValueError(f"bias has {len(bias)} values for a weight of shape {tuple(weight.shape)}; they must be (K,)")
    return weight, bias


def class_count(num_classes: int | None) -> int | None:
    """K, at least 2; ``None`` for labels −1/+1."""
    return None if num_classes is None else check_int("num_classes", num_classes, at_least=2)


def slacks_of(net: Any, points: Points, y: Data) -> tuple[Tensor, Tensor, Tensor]:
    """Weight and bias of a net, and by how much each sample is on its side: y·s, or s_y − max_{r≠y} s_r."""
    weight, bias = weights_of(net, points.rows.n_features)
    target = check_labels(y, len(points.rows), None if len(weight) == 1 else len(weight), both=False).cpu()
    return weight, bias, tpf.slacks(points.scores(weight, bias), target)


# --- radius and margin --------------------------------------------------------------------------------------------


def radius(X: Data, *, bias_step: str = "unit", num_classes: int | None = None) -> float:
    """Radius of the data in the space where the update happens: R = √(max ‖x‖² + β).

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


def margin(net: Any, X: Data, y: Data, *, bias: str = "counted", bias_step: str = "unit") -> float:
    """Margin of given weights: min_n y_n·s_n/‖(w, b)‖, where the bias is counted in the length or left free.

    - ``bias="counted"``: divided by √(‖w‖² + b²/β), the margin in the space where the update happens, of which the
      mistake bound speaks. For w = (3, 2), b = −4 and the gate AND it is 1/√29 = 0.186.
    - ``bias="free"``: divided by ‖w‖, the distance of the nearest sample from the hyperplane, the geometric margin of
      :func:`torchperc.functional.geometric_margin`. For the same weights it is 1/√13 = 0.277.

    Either is negative if a sample is on the wrong side; the largest value that any weights reach is γ* of
    :func:`max_margin` with the same ``bias``. (``RuleTrainer(margin=)`` is neither: it is the y·s that the rule demands
    of every sample, not divided by a length.) With K classes s_y − max_{r≠y} s_r takes the place of y·s, and the length
    is that of all K weight vectors.

    Args:
        net: a :class:`Perceptron`, a :class:`MulticlassPerceptron`, an ``nn.Linear`` or a pair (weight, bias).
        X: samples (N, d).
        y: labels −1/+1, or class indices if the weight has more than one row.
        bias: ``"counted"`` or ``"free"``.
        bias_step: that of the run, see :func:`radius`; for a counted bias.

    Example:
        >>> AND = [[0, 0], [0, 1], [1, 0], [1, 1]], [-1, -1, -1, 1]
        >>> [round(margin(([[3, 2]], [-4]), *AND, bias=bias), 3) for bias in ("counted", "free")]
        [0.186, 0.277]
    """
    check_choice("bias", bias, BIASES)
    points = Points.of(X, bias_step)
    weight, offset, slacks = slacks_of(net, points, y)
    length = points.length(weight, offset) if bias == "counted" else float(weight.norm())
    if not length:
        raise ValueError("the weights are all zero, so they have no margin; train the net first")
    return float(slacks.min()) / length


# --- the largest margin -------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class MaxMargin:
    """The largest margin γ* (0 if nothing separates) between two bounds, with weights that reach the lower one.

    Both bounds hold in exact arithmetic: they are widened by what rounding can have done to them.

    Args:
        weight: (1, d) or (K, d) in float64, with ‖w‖ = 1 where the bias is free, and √(‖w‖² + b²/β) = 1 where it is
            counted; zeros if none were found that separate the data.
        bias: (1,) or (K,); zeros with ``bias_step="none"``.
        margin: a lower bound of γ*: the margin that these weights reach, or 0 if they do not separate.
        upper: an upper bound of γ*: the distance of a point of the hull from the origin.
        support: the samples whose combination that point is, in ascending order.
        bias_kind: which margin this is: ``"free"``, the geometric one; ``"counted"``, that of the mistake bound; or
            ``"none"``, where there is no bias and both are the same.

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
        """Whether these weights separate the data, which is then certain.

        ``False`` says that no such weights were found, and that γ* is at most ``upper``.
        """
        return self.margin > 0


def max_margin(
    X: Data,
    y: Data,
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
    all pairs of a sample x of class +1 and a sample x′ of class −1 if it is free. The search for its nearest point
    (:mod:`torchperc.theory.nearest_point`) ends when upper − margin ≤ tolerance·upper, when rounding allows no more, or
    after ``max_cycles``; the bounds are true in each case. It takes seconds for 50,000 samples of 100 features, minutes
    where thousands of features make for thousands of support vectors.

    Args:
        X: samples (N, d), as a tensor, an array, lists or a scipy sparse matrix.
        y: labels −1/+1, or class indices with ``num_classes``.
        bias: ``"free"`` or ``"counted"``.
        bias_step: how a counted bias counts, see :func:`radius`; ``"none"`` is for hyperplanes through the origin, for
            which both margins are the same.
        tolerance: the gap that is good enough, as a fraction of γ*.
        num_classes: K, or ``None`` for two classes by one score.
        max_cycles: how many points may be added at most.

    Example:
        >>> AND = [[0, 0], [0, 1], [1, 0], [1, 1]], [-1, -1, -1, 1]
        >>> best = max_margin(*AND)
        >>> round(best.margin**-2, 9), best.gap < 1e-12, best.support, best.bias_kind
        (8.0, True, tensor([1, 2, 3]), 'free')
        >>> round(max_margin(*AND, bias="counted").margin**-2, 9)
        17.0
    """
    check_choice("bias", bias, BIASES)
    points = Points.of(X, bias_step)
    y = check_labels(y, len(points.rows), class_count(num_classes)).cpu()
    tolerance = check_number("tolerance", tolerance, above=0)
    check_int("max_cycles", max_cycles, at_least=1)
    kind = "none" if bias_step == "none" else bias
    if kind == "free":
        points = replace(points, bias_step="none", bias_scale=0.0)
    hull = _Hull(points, y, num_classes, kind == "free")
    corral = nearest_point(hull, tolerance, max_cycles)
    support = torch.tensor([i for key in corral.keys for i in hull.samples(key)]).unique()
    weight, offset = hull.weights(corral.direction / (np.linalg.norm(corral.direction) or 1.0))
    R = math.sqrt(points.squared_radius(num_classes)) + (float(offset.abs().max()) if kind == "free" else 0.0)
    lowest = float(tpf.slacks(points.scores(weight, offset), y).min()) - 2 * (points.rows.n_features + 8) * EPS * R
    if lowest <= 0:
        weight, offset, lowest = torch.zeros_like(weight), torch.zeros_like(offset), 0.0
    return MaxMargin(weight, offset, lowest, corral.distance, support, kind)


@dataclass(frozen=True)
class _Hull:
    """The points whose hull is looked at.

    Its edges are y·φ, or φ(x, y) − φ(x, r) for every wrong class r; an edge is known by the number of its sample, or
    by number·K + r. A counted bias makes each edge a point. A free one makes points of edges in which it cancels: the
    mean of the edges along a cycle of classes. A point is known by the edges it is the mean of.
    """

    points: Points
    y: Tensor
    classes: int | None
    free: bool
    numbers: Index | None = None  # of the samples in the whole hull, if these are some of them

    @property
    def shape(self) -> tuple[int, int]:
        """Of a point, a direction, or weights with their bias: (1, d + 1), or (K, d + 1)."""
        return self.classes or 1, self.points.rows.n_features + 1

    def longest(self) -> float:
        if not self.free:
            return math.sqrt(self.points.squared_radius(self.classes))
        low, high = extent(self.points.rows)  # x − x′ is no longer than from end to end
        return float(np.linalg.norm(high - low))

    def first(self) -> Key:
        if self.free:
            return self.lowest(np.zeros(self.shape))[1]
        shortest = int(self.points.squared_norms.argmin())
        return (shortest if self.classes is None else shortest * self.classes + int(self.y[shortest] == 0),)

    def samples(self, key: Key) -> list[int]:
        return [edge // (self.classes or 1) for edge in key]

    def point(self, key: Key) -> Array:
        """With a free bias, each number is a difference of two."""
        point = np.zeros(self.shape)
        for edge, sample in zip(key, self.samples(key), strict=True):
            phi, own = self.points.phi(sample), int(self.y[sample])
            if self.classes is None:
                point[0] += phi * own
            else:
                point[own] += phi
                point[edge % self.classes] -= phi
        return point.reshape(-1) / len(key)

    def weights(self, direction: Array) -> tuple[Tensor, Tensor]:
        """Weight and bias of a direction: b = v·√β if it is counted, the best there is if it is free."""
        rows = torch.from_numpy(direction.reshape(self.shape))
        if not self.free:
            return rows[:, :-1], rows[:, -1] * math.sqrt(self.points.bias_scale)
        best = torch.from_numpy(_least_mean_cycle(self._leads(rows[:, :-1])[0])[2])
        return rows[:, :-1], best.diff() if self.classes is None else best

    def slacks(self, direction: Array) -> Array:
        return tpf.slacks(self.points.scores(*self.weights(direction)), self.y).numpy()

    def lowest(self, direction: Array) -> tuple[float, Key]:
        if self.free:
            leads, samples = self._leads(torch.from_numpy(direction.reshape(self.shape)[:, :-1]))
            cycle, mean, _ = _least_mean_cycle(leads)
            return mean, tuple(self._edge(int(samples[own, rival]), rival) for own, rival in cycle)
        scores = self.points.scores(*self.weights(direction))
        slacks = tpf.slacks(scores, self.y)
        sample = int(slacks.argmin())
        rival = 0 if self.classes is None else int(tpf.rival_scores(scores[sample], self.y[sample])[1])
        return float(slacks[sample]), (self._edge(sample, rival),)

    def of(self, samples: Index) -> _Hull:
        index = torch.from_numpy(samples)
        return _Hull(
            replace(self.points, rows=self.points.rows.take(index)), self.y[index], self.classes, self.free, samples
        )

    def _edge(self, sample: int, rival: int) -> int:
        sample = sample if self.numbers is None else int(self.numbers[sample])
        return sample if self.classes is None else sample * self.classes + rival

    @cached_property
    def _members(self) -> list[Index]:
        """The samples of each class."""
        codes = (-1, 1) if self.classes is None else range(self.classes)
        return [np.flatnonzero(self.y.numpy() == code) for code in codes]

    def _leads(self, weight: Tensor) -> tuple[Array, Index]:
        """The smallest s_k − s_r without biases over the samples of class k, and where it is: (K, K) each."""
        scores = self.points.scores(weight, weight.new_zeros(len(weight))).numpy()
        if self.classes is None:
            scores = np.column_stack((-scores / 2, scores / 2))  # two classes, −1 and +1, as two scores
        width = scores.shape[1]
        leads, where = np.full((width, width), math.inf), np.zeros((width, width), np.int64)
        for own, members in enumerate(self._members):
            if len(members):
                ahead = scores[members, own : own + 1] - scores[members]
                lowest = ahead.argmin(axis=0)
                leads[own], where[own] = ahead[lowest, np.arange(width)], members[lowest]
        np.fill_diagonal(leads, math.inf)
        return leads, where


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


def _cycle_back(before: Index, here: int) -> list[tuple[int, int]]:
    """The cycle that is reached by going from each class to the one before; empty if there is none."""
    way: list[int] = []
    while here >= 0 and here not in way:
        way.append(here)
        here = int(before[here])
    round_trip = way[way.index(here) :] if here >= 0 else []
    return [(int(before[place]), place) for place in round_trip]
