"""Exact arithmetic for what a linear program suggests: the dual simplex method in rational numbers, over all rows."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import TypeAlias

import numpy as np

from torchperc.theory.separability.linear import Square, UnsolvedError, independent
from torchperc.theory.separability.rows import Keys
from torchperc.theory.separability.spaces import Space

Report: TypeAlias = Callable[[str, int, int], object]
"""Told what is counted, how many, and of how many."""
Weights: TypeAlias = dict[int, Fraction]
"""A witness: a positive number for some rows, by their keys."""

_LEAST_INDEX_AFTER = 200  # exchanges; from then on by Bland's rule, which cannot go round in circles


class UndecidedError(Exception):
    """No proof was found; the message says why."""


class Clock:
    """The time that is left of a limit in seconds, from now."""

    def __init__(self, limit: float | None) -> None:
        self.limit, self.end = limit, math.inf if limit is None else time.monotonic() + limit

    def left(self) -> float:
        """Seconds left."""
        return self.end - time.monotonic()

    def tick(self) -> None:
        """Raise :class:`UndecidedError` if there is no time left."""
        if self.left() <= 0:
            raise UndecidedError(f"the time limit of {self.limit:g} s was reached; allow more time")


def settle(space: Space, start: Keys, clock: Clock, report: Report, steps: int) -> list[Fraction] | Weights | None:
    """A vector of the space that is positive on its rows, or a witness that there is none; by the dual simplex method.

    Looked for is a ≥ 0 with Σ a·z = 0 and Σ a = 1. A basis is a set of independent columns (z, 1), as many as
    coordinates; where there are fewer, unit columns stand in, whose numbers have to be 0. If the basis' solution has a
    number that is not allowed, the corresponding row u of the inverse has u·(0, 1) < 0; a column with u·(z, 1) < 0
    takes the place of the bad one. If there is none, u = (w, c) has w·z ≥ −c > 0 for every row: w separates. Rows that
    w has to be 0 on are columns (z, 0) whose numbers may have any sign, so that they never leave. From the support of
    a linear program's answer that takes no exchange at all, or a few. None if it takes more than ``steps``.
    """
    try:
        basis = _Basis(space, start, clock)
        for step in range(steps + 1):
            clock.tick()
            by_index = step > _LEAST_INDEX_AFTER
            bad, solution = basis.solution(by_index=by_index)
            if bad is None:
                return {key: value for key, value in solution.items() if value}
            row = basis.inverse_row(bad)
            entering = _entering(space, row, basis.keys, by_index=by_index)
            if entering is None:
                return _shorter(space, row[:-1])
            report("exchanges in exact arithmetic", step, steps)
            basis.exchange(bad, entering)
    except UnsolvedError as error:
        raise UndecidedError(f"the exact equations were not solved: {error}") from None
    return None


class _Basis:
    """The independent columns of some rows, the first ones first, and as many coordinates in which they are so.

    Every other coordinate has a unit column, called by its number as −1 − number.
    """

    def __init__(self, space: Space, start: Keys, clock: Clock) -> None:
        self.space, self.clock, self.fixed = space, clock, set(space.zero)
        columns = {key: _column(space, key) for key in [*space.zero, *start[: 2 * space.dimension + 2].tolist()]}
        kept, self.pivots = independent([column for column, _ in columns.values()], clock.tick)
        every = list(columns)
        self.keys = [every[number] for number in kept]
        self.columns = {key: columns[key] for key in self.keys}

    def solution(self, *, by_index: bool) -> tuple[int | None, Weights]:
        """The numbers of the columns, and the one that is worst, or first, among those that are not allowed."""
        target = [0] * self.space.dimension + [1]
        self._square = Square([[self.columns[key][0][j] for key in self.keys] for j in self.pivots], self.clock.tick)
        values = self._square.solve([target[j] for j in self.pivots])
        rest = self._first_rest(values, target)
        if rest is not None:
            return -1 - rest, {}
        solution = {key: value * self.columns[key][1] for key, value in zip(self.keys, values, strict=True)}
        negative = [key for key in self.keys if solution[key] < 0 and key not in self.fixed]
        if not negative:
            return None, solution
        return (min(negative) if by_index else min(negative, key=lambda key: solution[key])), solution

    def _first_rest(self, values: list[Fraction], target: list[int]) -> int | None:
        """The first coordinate whose unit column has a number other than 0."""
        common = math.lcm(*(value.denominator for value in values)) if values else 1
        tops = [int(value * common) for value in values]
        inside = set(self.pivots)
        for j, value in enumerate(target):
            entries = (self.columns[key][0][j] for key in self.keys)
            if j not in inside and sum(a * top for a, top in zip(entries, tops, strict=True) if a) != value * common:
                return j
        return None

    def inverse_row(self, bad: int) -> list[Fraction]:
        """u, with u·(0, 1) < 0, u·bad ≠ 0 and u = 0 on the other columns of the basis."""
        row = [Fraction(0)] * (self.space.dimension + 1)
        if bad >= 0:
            right = [int(key == bad) for key in self.keys]
        else:
            row[-1 - bad] = Fraction(1)
            right = [-self.columns[key][0][-1 - bad] for key in self.keys]
        for j, value in zip(self.pivots, self._square.solve(right, transposed=True), strict=True):
            row[j] = value
        return row if row[-1] < 0 else [-value for value in row]

    def exchange(self, bad: int, entering: int) -> None:
        """Put a new column in the place of a bad one."""
        self.columns[entering] = _column(self.space, entering)
        if bad >= 0:
            self.keys[self.keys.index(bad)] = entering
            del self.columns[bad]
        else:
            self.keys.append(entering)
            self.pivots.append(-1 - bad)


def _column(space: Space, key: int) -> tuple[list[int], int]:
    """(z, 1), or (z, 0) of a row to be 0 on, times a positive number, in integers; and that number."""
    row, below = space.rows.exact_row(key)
    return [*row, 0 if key in space.zero else below], below


def _entering(space: Space, row: list[Fraction], basis: Sequence[int], *, by_index: bool) -> int | None:
    """The key of a row with u·(z, 1) < 0: the lowest by floats where these are sure, or the first of all."""
    plane = space.rows.plane(row[:-1])
    slacks, error, scale = space.rows.bounded_slacks(plane)
    constant = _float(row[-1] * scale)
    slacks = space.chosen(slacks) + constant
    error = 2 * error + 2.0**-50 * abs(constant)
    sure = np.flatnonzero(slacks < -error)
    if len(sure) and not by_index:
        return int(space.keys[sure[np.argmin(slacks[sure])]])
    limit = int(sure[0]) if len(sure) else len(slacks)
    unsure = np.flatnonzero(~(np.abs(slacks[:limit]) > error) & ~np.isin(space.keys[:limit], list(basis)))
    for key in space.keys[unsure].tolist():
        sample, number = divmod(key, space.rows.classes - 1)
        if space.rows.exact_slacks(sample, plane)[number] + row[-1] < 0:
            return int(key)
    return int(space.keys[limit]) if len(sure) else None


def wrong_rows(space: Space, vector: Sequence[Fraction]) -> Keys:
    """Rows on which w is not positive, exactly; some of them if they are many."""
    return space.rows.measure(space.rows.plane(vector), space.some)[2]


def _float(value: Fraction) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.copysign(math.inf, value)


def _shorter(space: Space, vector: list[Fraction]) -> list[Fraction]:
    """A vector with its numbers rounded to few bits, if it is positive on all rows then too; as it is otherwise."""
    if not space.zero:
        for bits in (24, 53):
            exponents = (value.numerator.bit_length() - value.denominator.bit_length() - bits for value in vector)
            steps = (Fraction(2) ** exponent for exponent in exponents)
            rounded = [round(value / step) * step for value, step in zip(vector, steps, strict=True)]
            if not len(wrong_rows(space, rounded)):
                return rounded
    return vector
