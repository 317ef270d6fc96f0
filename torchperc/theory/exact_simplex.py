"""Exact arithmetic for what a linear program suggests: linear systems by FLINT, and the dual simplex method."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from flint import fmpz_mat, nmod_mat

from torchperc._checks import is_sparse
from torchperc.theory.points import Array, Indices
from torchperc.theory.problem import Problem
from torchperc.theory.verifier import PRIME

Report: TypeAlias = Callable[[str, int, int], object]
"""Called with what is counted, how many, and of how many."""
Weights: TypeAlias = dict[int, Fraction]
"""A witness: a positive number for some rows, by their keys."""

MAX_EQUATIONS = 2000  # solved exactly; more would take hours
_BLAND_AFTER = 200  # exchanges; from then on by Bland's rule, which cannot cycle


class UndecidedError(Exception):
    """No proof was found; the message says why."""


class Clock:
    """The time that is left of a limit in seconds, from now."""

    def __init__(self, limit: float | None) -> None:
        self.limit, self.end = limit, math.inf if limit is None else time.monotonic() + limit

    def left(self) -> float:
        """Return the seconds left."""
        return self.end - time.monotonic()

    def check(self) -> None:
        """Raise :class:`UndecidedError` if there is no time left."""
        if self.left() <= 0:
            raise UndecidedError(f"the time limit of {self.limit:g} s was reached; allow more time")


# --- linear systems -----------------------------------------------------------------------------------------------


def solve_exactly(matrix: Sequence[Sequence[int]], rights: Sequence[Sequence[int]]) -> tuple[list[list[int]], int]:
    """Return x with A·x = b for each right side b, as integers over one positive denominator.

    Example:
        >>> solve_exactly([[2, 1], [1, 3]], [[1, 0]])
        ([[3, -1]], 5)
    """
    if len(matrix) > MAX_EQUATIONS:
        raise UndecidedError(f"{len(matrix)} equations are more than the {MAX_EQUATIONS} that are solved exactly here")
    if not matrix or not rights:
        return [[] for _ in rights], 1
    try:
        found: Any = fmpz_mat([list(row) for row in matrix]).solve(fmpz_mat([list(row) for row in rights]).transpose())
    except ZeroDivisionError:
        raise UndecidedError("the exact equations have no single solution") from None
    above, below = found.numer_denom()
    return [[int(value) for value in row] for row in above.transpose().tolist()], int(below)


def independent(rows: Sequence[Sequence[int]]) -> tuple[list[int], list[int]]:
    """Return the positions of rows that are linearly independent, and as many columns that keep them so.

    Both are found modulo a prime, which never makes dependent rows independent.

    Example:
        >>> independent([[0, 1, 1], [0, 2, 2], [1, 0, 0]])
        ([0, 2], [0, 1])
    """
    kept = _pivots(list(zip(*rows, strict=True)))
    return kept, _pivots([rows[number] for number in kept])


def _pivots(rows: Sequence[Sequence[int]]) -> list[int]:
    if not rows or not rows[0]:
        return []
    form, rank = nmod_mat([[value % PRIME for value in row] for row in rows], PRIME).rref()
    return [next(j for j, value in enumerate(row) if int(value)) for row in form.tolist()[:rank]]


def null_vectors(rows: Sequence[Sequence[int]], width: int, free: Sequence[dict[int, int]]) -> list[list[int]]:
    """Return integer vectors orthogonal to independent rows, each with given values in the columns without a pivot.

    Example:
        >>> null_vectors([[1, 0, 2]], 3, [{1: 1}, {2: 1}])
        [[0, 1, 0], [-2, 0, 1]]
    """
    pivots = independent(rows)[1]
    rights = [[-sum(row[j] * value for j, value in given.items()) for row in rows] for given in free]
    solutions, below = solve_exactly([[row[j] for j in pivots] for row in rows], rights)
    vectors = []
    for given, solution in zip(free, solutions, strict=True):
        entries = {j: value * below for j, value in given.items()} | dict(zip(pivots, solution, strict=True))
        common = math.gcd(*entries.values()) or 1
        vectors.append([entries.get(j, 0) // common for j in range(width)])
    return vectors


# --- where a vector is looked for ---------------------------------------------------------------------------------


class SearchSpace:
    """Vectors w, the rows on which they have to be positive, and those on which they have to be 0.

    A point is w in the coordinates of the linear program, which sees features shifted and scaled, so that floats serve
    it well; the way back is exact. Features are shifted only with a bias, which makes up for the shift, for dense data,
    and where the values are far from 0 compared with their range; scales are powers of two.

    Args:
        problem: all rows.
        keys: of the rows on which w has to be positive; all if None.
        zero: keys of independent rows on which w has to be 0.
    """

    def __init__(self, problem: Problem, keys: Indices | None = None, zero: Sequence[int] = ()) -> None:
        self.problem, self.zero, self.dimension = problem, list(zero), problem.dimension
        self.keys = np.arange(len(problem)) if keys is None else keys
        low, high = problem.limits
        half, middle = high / 2 - low / 2, low / 2 + high / 2
        far = (np.abs(middle) > 4 * half) & (problem.bias and not is_sparse(problem.X))
        step = np.frexp(half)[1] - 3  # the centre is rounded to few bits
        rounded = np.ldexp(np.round(np.ldexp(middle, -step)), step)
        self.centre = np.where(far, np.where(half > 0, rounded, low), 0.0)
        largest = np.maximum(np.abs(high - self.centre), np.abs(low - self.centre))
        self.exponents = np.where(largest > 0, np.frexp(largest)[1], 0)

    def table(self, keys: Indices) -> Array:
        """Return some rows as the linear program sees them: (n, dimension)."""
        problem = self.problem
        samples, numbers = np.divmod(keys, problem.classes - 1)
        label = problem.y[samples]
        phi = np.ldexp(problem.dense(samples) - self.centre, -self.exponents)
        phi = np.pad(phi, ((0, 0), (0, int(problem.bias))), constant_values=1.0)
        table = np.zeros((len(keys), problem.classes - 1, problem.width))
        for blocks, signed in ((label - 1, phi), (numbers + (numbers >= label) - 1, -phi)):
            there = np.flatnonzero(blocks >= 0)
            table[there, blocks[there]] = signed[there]
        return table.reshape(len(keys), self.dimension)

    def margins(self, point: Array) -> Array:
        """Return z·w of the rows that w has to be positive on, in floats."""
        blocks = point.reshape(-1, self.problem.width)
        blocks = blocks if len(blocks) == 1 else np.pad(blocks, ((1, 0), (0, 0)))  # zeros for class 0
        with np.errstate(all="ignore"):
            weight = np.ldexp(blocks[:, : self.problem.features], -self.exponents)
            offset = blocks[:, -1] * self.problem.bias - weight @ self.centre
            return self.problem.margins(weight, offset).reshape(-1)[self.keys]

    def wrong_rows(self, vector: Sequence[Fraction]) -> Indices:
        """Return keys of rows on which w is not positive, exactly; some of them if they are many."""
        return self.problem.measure(self.problem.hyperplane(vector), self.keys)[2]

    @cached_property
    def _zero_rows(self) -> list[list[int]]:
        return [self.problem.exact_row(key)[0] for key in self.zero]

    @cached_property
    def _pivots(self) -> list[int]:
        """As many coordinates as rows to be 0 on, by which these rows can be met."""
        return independent(self._zero_rows)[1]

    def vector(self, point: Sequence[float]) -> list[Fraction]:
        """Return w of a point: each scale undone, each shift moved into the bias, the pivots set exactly."""
        made: list[Fraction] = []
        scales = [Fraction(2) ** -exponent for exponent in self.exponents.tolist()]
        for block in self.problem.blocks(list(map(Fraction, point))):
            weight = [value * scale for value, scale in zip(block, scales, strict=False)]
            made += weight
            if self.problem.bias:
                shifts = zip(weight, self.centre.tolist(), strict=True)
                made.append(block[-1] - sum((w * Fraction(c) for w, c in shifts if c), Fraction(0)))
        if not self.zero:
            return made
        free = [j for j in range(self.dimension) if j not in self._pivots]
        common = math.lcm(*(made[j].denominator for j in free))
        rights = [-sum(row[j] * int(made[j] * common) for j in free if row[j]) for row in self._zero_rows]
        (solved,), below = solve_exactly([[row[j] for j in self._pivots] for row in self._zero_rows], [rights])
        for j, value in zip(self._pivots, solved, strict=True):
            made[j] = Fraction(value, below * common)
        return made


# --- the dual simplex method --------------------------------------------------------------------------------------


def exact_dual_simplex(
    space: SearchSpace, start: Indices, clock: Clock, report: Report, max_steps: int
) -> list[Fraction] | Weights | None:
    """Return a vector of the space that is positive on its rows, or a witness that there is none.

    Looked for is a ≥ 0 with Σ a·z = 0 and Σ a = 1. A basis is a set of independent columns (z, 1), as many as
    coordinates; where there are fewer, unit columns stand in, whose numbers have to be 0. If the basis' solution has a
    number that is not allowed, the corresponding row u of the inverse has u·(0, 1) < 0; a column with u·(z, 1) < 0
    takes the place of the bad one. If there is none, u = (w, c) has w·z ≥ −c > 0 for each row: w separates. Rows that
    w has to be 0 on are columns (z, 0) whose numbers may have any sign, so that they never leave. From the support of
    a linear program's answer that takes no exchange at all, or a few. None if it takes more than ``max_steps``.
    """
    basis = _Basis(space, start)
    for step in range(max_steps + 1):
        clock.check()
        by_index = step > _BLAND_AFTER
        bad, solution = basis.solution(by_index=by_index)
        if bad is None:
            return {key: value for key, value in solution.items() if value}
        row = basis.inverse_row(bad)
        entering = _entering(space, row, basis.keys, by_index=by_index)
        if entering is None:
            return row[:-1]
        report("exchanges in exact arithmetic", step, max_steps)
        basis.exchange(bad, entering)
    return None


class _Basis:
    """The independent columns of some rows, the first ones first, and as many coordinates in which they are so.

    Each other coordinate has a unit column, whose key is −1 − coordinate.
    """

    def __init__(self, space: SearchSpace, start: Indices) -> None:
        self.space, self.fixed = space, set(space.zero)
        columns = {key: self._column(key) for key in [*space.zero, *start[: 2 * space.dimension + 2].tolist()]}
        kept, self.pivots = independent([column for column, _ in columns.values()])
        self.keys = [list(columns)[number] for number in kept]
        self.columns = {key: columns[key] for key in self.keys}

    def _column(self, key: int) -> tuple[list[int], int]:
        """Return (z, 1), or (z, 0) of a row to be 0 on, times a positive integer; and that integer."""
        row, below = self.space.problem.exact_row(key)
        return [*row, 0 if key in self.fixed else below], below

    def solution(self, *, by_index: bool) -> tuple[int | None, Weights]:
        """Return the worst, or first, number that is not allowed, and the numbers of all columns."""
        target = [0] * self.space.dimension + [1]
        matrix = [[self.columns[key][0][j] for key in self.keys] for j in self.pivots]
        (values,), below = solve_exactly(matrix, [[target[j] for j in self.pivots]])
        for j in sorted(set(range(len(target))) - set(self.pivots)):  # unit columns have to have the number 0
            entries = (self.columns[key][0][j] for key in self.keys)
            if sum(entry * value for entry, value in zip(entries, values, strict=True) if entry) != target[j] * below:
                return -1 - j, {}
        pairs = zip(self.keys, values, strict=True)
        solution = {key: Fraction(value * self.columns[key][1], below) for key, value in pairs}
        negative = [key for key in self.keys if solution[key] < 0 and key not in self.fixed]
        if not negative:
            return None, solution
        return (min(negative) if by_index else min(negative, key=lambda key: solution[key])), solution

    def inverse_row(self, bad: int) -> list[Fraction]:
        """Return u with u·(0, 1) < 0, u·bad ≠ 0 and u = 0 on the other columns of the basis."""
        row = [Fraction(0)] * (self.space.dimension + 1)
        if bad >= 0:
            right = [int(key == bad) for key in self.keys]
        else:
            row[-1 - bad] = Fraction(1)
            right = [-self.columns[key][0][-1 - bad] for key in self.keys]
        transposed = [[self.columns[key][0][j] for j in self.pivots] for key in self.keys]
        (values,), below = solve_exactly(transposed, [right])
        for j, value in zip(self.pivots, values, strict=True):
            row[j] = Fraction(value, below)
        return row if row[-1] < 0 else [-value for value in row]

    def exchange(self, bad: int, entering: int) -> None:
        """Replace a bad column by a new one."""
        self.columns[entering] = self._column(entering)
        if bad >= 0:
            self.keys[self.keys.index(bad)] = entering
            del self.columns[bad]
        else:
            self.keys.append(entering)
            self.pivots.append(-1 - bad)


def _entering(space: SearchSpace, row: list[Fraction], basis: Sequence[int], *, by_index: bool) -> int | None:
    """Return the key of a row with u·(z, 1) < 0: the lowest in floats where these are certain, or the first."""
    plane = space.problem.hyperplane(row[:-1])
    margins, error, scale = space.problem.bounded_margins(plane)
    try:
        constant = float(row[-1] * scale)
    except OverflowError:
        constant = math.copysign(math.inf, row[-1])
    margins = margins.reshape(-1)[space.keys] + constant
    error = 2 * error + 2.0**-50 * abs(constant)
    certain = np.flatnonzero(margins < -error)
    if len(certain) and not by_index:
        return int(space.keys[certain[np.argmin(margins[certain])]])
    limit = int(certain[0]) if len(certain) else len(margins)
    uncertain = np.flatnonzero(~(np.abs(margins[:limit]) > error) & ~np.isin(space.keys[:limit], list(basis)))
    for key in space.keys[uncertain].tolist():
        sample, number = divmod(key, space.problem.classes - 1)
        if space.problem.exact_margins(sample, plane)[number] + row[-1] < 0:
            return int(key)
    return int(space.keys[limit]) if len(certain) else None
