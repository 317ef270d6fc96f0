"""The point of a convex hull that is nearest to the origin, by Wolfe's method.

Keep a set of points (a corral) with the nearest point of their affine hull, add the point that is furthest on the wrong
side of it, leave out points whose weight λ would be negative, and so on. In exact arithmetic that ends after finitely
many steps; here it ends when the bounds are close enough, or when rounding allows no more.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[np.float64]
Index: TypeAlias = NDArray[np.int64]
Key: TypeAlias = tuple[int, ...]

EPS = float(np.finfo(np.float64).eps)
_WORKING_SET = 1000  # samples that the solver looks at between two looks at all of them


class _Hull(Protocol):
    """Points that belong to samples, each known by a key: what the method asks about them."""

    def longest(self) -> float: ...  # a length that no point exceeds
    def first(self) -> Key: ...  # the point from which the search starts
    def point(self, key: Key) -> Array: ...  # as one vector
    def samples(self, key: Key) -> list[int]: ...  # that the point is made of
    def slacks(self, direction: Array) -> Array: ...  # by how much each sample is on the right side
    def lowest(self, direction: Array) -> tuple[float, Key]: ...  # the smallest inner product, and its point
    def of(self, samples: Index) -> _Hull: ...  # the points of some samples, under the keys that they have here


@dataclass(frozen=True, eq=False)
class Corral:
    """Points with weights λ > 0, Σ λ = 1, that make the nearest point to the origin of their affine hull.

    That point minimises ‖Pλ‖ under Σ λ = 1. With any scale s, the least squares solution of (P; s·1ᵀ)·μ = (0; s) is a
    multiple of that λ, so an orthogonal factorisation QT of (P; s·1ᵀ) gives it without squaring P's condition; a
    column more or less changes the factors at the cost of one product.
    """

    keys: tuple[Key, ...]
    points: Array  # (D, M)
    lambdas: Array  # (M,)
    Q: Array
    T: Array
    scale: float

    @classmethod
    def of(cls, keys: tuple[Key, ...], points: Array, lambdas: Array, scale: float) -> Corral:
        """A corral with fresh factors."""
        Q, T = np.linalg.qr(np.vstack((points, np.full(len(keys), scale))))
        return cls(keys, points, lambdas, Q, T, scale)

    @cached_property
    def distance(self) -> float:
        """‖Pλ‖, and what rounding can have taken away from it."""
        return float(np.linalg.norm(self._point)) + self.rounding

    @property
    def rounding(self) -> float:
        """How far the computed Pλ can be from the hull."""
        return (len(self.keys) + 8) * EPS * self.scale

    @cached_property
    def _point(self) -> Array:
        return self.points @ self.lambdas

    @cached_property
    def direction(self) -> Array:
        """Pλ, corrected until its inner product with every point is the same.

        Where the hull is much nearer to the origin than its points are, Pλ is a small difference of large numbers. The
        correction is the shortest step that evens out the products, which are sums without that cancellation.
        """
        from scipy.linalg import solve_triangular

        vector = self._point
        for _ in range(2):
            products = self.points.T @ vector
            even = products.mean() - products
            if np.abs(even).max() <= 1e-12 * products.mean():
                break
            vector = vector + (self.Q @ solve_triangular(self.T, even, trans="T", check_finite=False))[:-1]
        return vector

    def __hash__(self) -> int:
        return hash(frozenset(self.keys))

    def entered(self, key: Key, point: Array) -> Corral | None:
        """The corral with one more point, less those it makes superfluous; ``None`` if it is too near to the others."""
        from scipy.linalg import LinAlgError, qr_delete, qr_insert, solve_triangular

        if len(self.keys) >= len(self.Q):
            return None
        try:
            Q, T = qr_insert(
                self.Q, self.T, np.append(point, self.scale), len(self.keys), which="col", check_finite=False
            )
        except LinAlgError:
            return None
        keys, points = [*self.keys, key], np.column_stack((self.points, point))
        lambdas = np.append(self.lambdas, 0.0)
        while True:
            target = solve_triangular(T, Q[-1], check_finite=False)
            target /= target.sum()
            if not np.isfinite(target).all():
                return None
            if (target > 0).all():
                return Corral(tuple(keys), points, target, Q, T, self.scale)
            falling = np.flatnonzero(target <= 0)  # go as far towards the target as no weight is negative
            fall = lambdas[falling] - target[falling]
            limits = np.divide(lambdas[falling], fall, out=np.zeros_like(fall), where=fall > 0)
            lambdas = np.maximum(lambdas + limits.min() * (target - lambdas), 0.0)
            gone = int(falling[limits.argmin()])
            del keys[gone]
            points, lambdas = np.delete(points, gone, axis=1), np.delete(lambdas, gone)
            Q, T = qr_delete(Q, T, gone, which="col", check_finite=False)
            Q, T = Q[:, : len(keys)], T[: len(keys)]


def nearest_point(hull: _Hull, tolerance: float, max_cycles: int) -> Corral:
    """The nearest corral: by the samples that matter, with a look at all samples in between."""
    key = hull.first()
    corral = Corral.of((key,), hull.point(key)[:, None], np.ones(1), hull.longest() or 1.0)
    cycles, seen = 0, {hash(corral)}
    while True:
        slacks = hull.slacks(corral.direction)
        if _done(corral, float(slacks.min()), tolerance) or cycles >= max_cycles:
            return corral
        samples = np.arange(len(slacks))
        if len(slacks) > 2 * _WORKING_SET:  # those of the corral, and those with the smallest slacks
            used = np.array([i for key in corral.keys for i in hull.samples(key)])
            samples = np.union1d(used, np.argpartition(slacks, _WORKING_SET)[:_WORKING_SET])
        moved, made = _solved(hull, samples, corral, tolerance / 2, max_cycles - cycles, seen)
        if not made:
            return corral
        corral, cycles = Corral.of(moved.keys, moved.points, moved.lambdas, moved.scale), cycles + made


def _solved(
    hull: _Hull, samples: Index, corral: Corral, tolerance: float, max_cycles: int, seen: set[int]
) -> tuple[Corral, int]:
    """The nearest corral over some samples, and the number of points that were added on the way.

    In exact arithmetic every corral is nearer than the one before, so none comes back. One that does has gone as far
    as rounding allows; the distance itself would not tell, because its decrease may be too small to see.
    """
    some = hull.of(samples)
    for made in range(max_cycles):
        lowest, key = some.lowest(corral.direction)
        if _done(corral, lowest, tolerance) or key in corral.keys:
            return corral, made
        moved = corral.entered(key, hull.point(key))
        if moved is None or moved.distance > corral.distance + moved.rounding or hash(moved) in seen:
            return corral, made
        corral = moved
        seen.add(hash(moved))
    return corral, max_cycles


def _done(corral: Corral, lowest: float, tolerance: float) -> bool:
    """Whether the gap is small enough, or the hull contains the origin as far as float64 can tell.

    ``lowest`` is the smallest inner product of the corral's direction with any point.
    """
    lower = lowest / (float(np.linalg.norm(corral.direction)) or 1.0)
    return corral.distance - lower <= tolerance * corral.distance or corral.distance <= 2 * corral.rounding
