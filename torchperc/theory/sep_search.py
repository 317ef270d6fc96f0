"""The search for a proof: linear programs on few rows, then exact arithmetic.

A linear program finds w with z·w ≥ t for the rows of a working set, t as large as possible. If t is positive, the rows
of all the data on which that w is worst join the set, until none is wrong. If t is 0, the rows that hold it there are
the support of a witness. Either way the answer of the program is a guess: what is returned was found exact.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, TypeAlias

import numpy as np

from torchperc.theory.sep_linear import Square, UnsolvedError, independent, null_residues, null_vectors
from torchperc.theory.sep_rows import Array, Keys, Rows
from torchperc.theory.sep_spaces import Space

Report: TypeAlias = Callable[[str, int, int], object]
Weights: TypeAlias = dict[int, Fraction]
"""A witness: a positive number for some rows, by their keys."""

_SMALL = 1e-7  # t up to which the program's answer says nothing: its own tolerance
_BITS = (3, 6, 10, 16, 24, 34, 52)  # of a rounded w, the first that loses little
_ENTRIES = 2**25  # of a dense table that is made at once
_WIDE = 200  # dimensions from which on the interior-point method is faster than the simplex method
_ROUNDS = 200  # linear programs
_STEPS = 1000  # exchanges in exact arithmetic
_FEW_STEPS = 2  # that are tried before a program is trusted whose t is small
_LEAST_INDEX_AFTER = 200  # exchanges; from then on by Bland's rule, which cannot go round in circles
_LONGEST = 50_000_000  # bits of a witness


class UndecidedError(Exception):
    """No proof was found; the message says why."""


class FailedError(Exception):
    """The linear program has no answer."""


@dataclass(frozen=True)
class Clock:
    """The time that is left."""

    limit: float | None
    start: float

    @classmethod
    def started(cls, limit: float | None) -> Clock:
        """A clock that runs from now."""
        return cls(limit, time.monotonic())

    def left(self) -> float:
        """Seconds left."""
        return math.inf if self.limit is None else self.start + self.limit - time.monotonic()

    def tick(self) -> None:
        """Raise :class:`UndecidedError` if there is no time left."""
        if self.left() <= 0:
            raise UndecidedError(f"the time limit of {self.limit:g} s was reached; allow more time")


@dataclass(frozen=True)
class Program:
    """The answer of a linear program: w, t and a number for every row that holds t where it is."""

    point: Array
    least: float
    shares: Array


def linear_program(table: Array, zero: Array, seconds: float) -> Program:
    """max t with z·w ≥ t and |w_j| ≤ 1, and z·w = 0 on some other rows, by HiGHS."""
    from scipy.optimize import linprog

    count, width = table.shape
    result = linprog(
        np.append(np.zeros(width), -1.0),
        A_ub=_economical(np.column_stack((-_directions(table), np.ones(count)))),
        b_ub=np.zeros(count),
        A_eq=_economical(np.column_stack((_directions(zero), np.zeros(len(zero))))) if len(zero) else None,
        b_eq=np.zeros(len(zero)) if len(zero) else None,
        bounds=[(-1.0, 1.0)] * width + [(0.0, None)],
        method="highs-ds" if width < _WIDE else "highs-ipm",
        options={"time_limit": max(seconds, 0.1)} if math.isfinite(seconds) else {},
    )
    if result.x is None or not result.success:
        raise FailedError(str(result.message))
    return Program(result.x[:-1], float(result.x[-1]), -np.asarray(result.ineqlin.marginals))


def _directions(table: Array) -> Array:
    """Rows scaled to about the same length, as they count by their directions."""
    sizes = np.abs(table).max(axis=1, initial=0.0)
    return np.ldexp(table, -np.where(sizes > 0, np.frexp(sizes)[1], 0)[:, None])


def _economical(table: Array) -> Any:
    from scipy.sparse import csr_array

    return csr_array(table) if np.count_nonzero(table) < 0.2 * table.size else table


# --- one question: strict separation, or a witness against it -----------------------------------------------------


def decide(space: Space, clock: Clock, report: Report) -> list[Fraction] | Weights:
    """A vector of the space that is positive on its rows, exactly; or a witness that there is none.

    The witness is positive on some rows; on those that the vector had to be 0 on it may have any sign.
    """
    found = _by_programs(space, clock, report)
    if not isinstance(found, np.ndarray):
        return found
    settled = settle(space, found, clock, report, _STEPS)
    if settled is None:
        raise UndecidedError(
            f"the linear program was not precise enough, and {_STEPS} exchanges in exact arithmetic did not repair that"
        )
    return settled


def _by_programs(space: Space, clock: Clock, report: Report) -> list[Fraction] | Weights | Keys:
    """The same by linear programs; or, if they fail, the rows of which some may be a witness, the likeliest first."""
    working = likely = _first_rows(space)
    for _ in range(_ROUNDS):
        clock.tick()
        table = space.table(working)
        try:
            answer = linear_program(table, space.zero_table, clock.left())
        except FailedError:
            return likely
        likely = _support(working, answer, table)
        if not answer.least > _SMALL:
            settled = settle(space, likely, clock, report, _FEW_STEPS)
            if settled is not None:
                return settled
        point = _rounded(space, answer, table)
        if not (table @ point).min() > 0:
            return likely
        slacks = space.slacks(point)
        report("rows on the right side", int((slacks > 0).sum()), len(slacks))
        worst = _worst(space, slacks, answer.least)
        if not (slacks <= 0).any():
            vector = space.vector(point.tolist(), clock.tick)
            worst = _wrong(space, vector)
            if not len(worst):
                return vector
        fresh = np.setdiff1d(worst, working)
        if not len(fresh):
            return likely
        working = np.concatenate((working, fresh))
    return likely


def _first_rows(space: Space) -> Keys:
    """Rows to begin with: those that a least-squares fit to some rows finds hardest, and some of all kinds."""
    size, every = _many(space, 2 * space.dimension), space.keys
    if len(every) <= 2 * size:
        return every
    random = np.random.default_rng(0)
    sample = every if len(every) <= 20 * size else np.sort(random.choice(every, 10 * size, replace=False))
    table = space.table(sample)
    squares = table.T @ table + 1e-9 * len(sample) * np.eye(space.dimension)
    slacks = space.slacks(np.linalg.solve(squares, table.sum(axis=0)))
    hardest = every[np.argpartition(slacks, size)[:size]]
    return np.union1d(hardest, random.choice(every, size, replace=False))


def _many(space: Space, wanted: int) -> int:
    """How many rows to take at once: as many as are wanted, within reason."""
    return min(max(wanted, 100), max(_ENTRIES // space.dimension, 100))


def _worst(space: Space, slacks: Array, least: float) -> Keys:
    """The rows that the program would not have allowed, the worst ones of them."""
    count = _many(space, space.dimension)
    found = np.flatnonzero(slacks < least / 2)
    if len(found) > count:
        found = found[np.argpartition(slacks[found], count)[:count]]
    return space.keys[found]


def _support(working: Keys, answer: Program, table: Array) -> Keys:
    """The rows that hold t where it is, the most important first; then those that are nearly as low."""
    held = np.flatnonzero(answer.shares > 1e-12)
    held = held[np.argsort(-answer.shares[held], kind="stable")]
    low = np.argsort(table @ answer.point, kind="stable")[: table.shape[1] + 1]
    return working[np.concatenate((held, low[~np.isin(low, held)]))]


def _rounded(space: Space, answer: Program, table: Array) -> Array:
    """w with few bits, as long as it separates the working set nearly as well."""
    best = float((table @ answer.point).min())
    for bits in _BITS:
        point = space.corrected(np.ldexp(np.round(np.ldexp(answer.point, bits)), -bits))
        if float((table @ point).min()) >= 0.98 * best:
            break
    return point


def _wrong(space: Space, vector: Sequence[Fraction]) -> Keys:
    """Rows on which w is not positive, exactly; some of them if they are many."""
    return space.rows.measure(space.rows.plane(vector), space.some)[2]


# --- exact arithmetic ---------------------------------------------------------------------------------------------


def settle(space: Space, start: Keys, clock: Clock, report: Report, steps: int) -> list[Fraction] | Weights | None:
    """The same question without rounding: the dual simplex method in rational numbers, over all rows.

    Looked for is a ≥ 0 with Σ a·z = 0 and Σ a = 1. A basis is a set of independent columns (z, 1), as many as
    coordinates; where there are fewer, unit columns stand in, whose numbers have to be 0. If the basis' solution has a
    number that is not allowed, the corresponding row u of the inverse has u·(0, 1) < 0; a column with u·(z, 1) < 0
    takes the place of the bad one. If there is none, u = (w, c) has w·z ≥ −c > 0 for every row: w separates. Rows that
    w has to be 0 on are columns (z, 0) whose numbers may have any sign, so that they never leave. From the support of
    a linear program's answer that takes no exchange at all, or a few. None if it takes more than ``steps``.
    """
    try:
        basis = _Basis.of(space, start, clock)
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
    """Independent columns of some rows, and as many coordinates in which they are so.

    Every other coordinate has a unit column, called by its number as −1 − number.
    """

    def __init__(
        self, space: Space, columns: dict[int, tuple[list[int], int]], pivots: list[int], clock: Clock
    ) -> None:
        self.space, self.columns, self.pivots, self.clock = space, columns, pivots, clock
        self.keys = list(columns)
        self.fixed = set(space.zero)

    @classmethod
    def of(cls, space: Space, start: Keys, clock: Clock) -> _Basis:
        """From the independent ones among some rows, the first ones first."""
        columns = {key: _column(space, key) for key in [*space.zero, *start[: 2 * space.dimension + 2].tolist()]}
        kept, pivots = independent([column for column, _ in columns.values()], clock.tick)
        names = list(columns)
        return cls(space, {names[number]: columns[names[number]] for number in kept}, pivots, clock)

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


def _float(value: Fraction) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.copysign(math.inf, value)


def _shorter(space: Space, vector: list[Fraction]) -> list[Fraction]:
    """A vector with its numbers rounded, if it is positive on all rows then too; as it is otherwise."""
    if not space.zero:
        for bits in (24, 53):
            rounded = [_significant(value, bits) for value in vector]
            if not len(_wrong(space, rounded)):
                return rounded
    return vector


def _significant(value: Fraction, bits: int) -> Fraction:
    """A rational number rounded to a number of significant bits."""
    step = Fraction(2) ** (value.numerator.bit_length() - value.denominator.bit_length() - bits)
    return round(value / step) * step


# --- weak separation ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Weak:
    """What is left to say when there is a witness: a weak separator, or that there is none.

    ``vector`` is 0 or positive on all rows, and positive on some; ``null`` are vectors at right angles to all rows,
    which with the rows of the witness span everything. Both are None if the question was left open, for the ``reason``.
    """

    witness: Weights
    vector: list[Fraction] | None = None
    null: list[list[int]] | None = None
    reason: str = ""


def weaken(rows: Rows, witness: Weights, clock: Clock, report: Report) -> Weak:
    """Whether a vector is ≥ 0 on all rows and > 0 on some.

    Such a vector is 0 on the rows of a witness. Among the vectors that are, either one is positive on all rows outside
    their span, or a witness says that there is none: Σ b·z = Σ c·z with b > 0 on rows outside and c of any sign on rows
    of the first witness a. Then Σ b·z + Σ (s·a − c)·z = 0 for every s, and a large enough s makes all numbers positive:
    a witness with a larger span. The question is put again, until the span has all rows in it.
    """
    joined = witness
    try:
        while True:
            clock.tick()
            kept, _ = independent([rows.exact_row(key)[0] for key in joined], clock.tick)
            zero = [list(joined)[number] for number in kept]
            if len(zero) == rows.dimension:
                return Weak(joined, null=[])
            table = [rows.exact_row(key)[0] for key in zero]
            outside = np.flatnonzero(rows.outside(null_residues(table, rows.dimension)))
            if not len(outside):
                return Weak(joined, null=null_vectors(table, rows.dimension, clock.tick))
            found = decide(Space(rows, outside, zero), clock, report)
            if isinstance(found, list):
                return Weak(witness, vector=found)
            scale = max([-found.get(key, Fraction(0)) / joined[key] for key in joined] + [Fraction(0)]) + 1
            joined = {**found, **{key: scale * value + found.get(key, Fraction(0)) for key, value in joined.items()}}
            if sum(value.numerator.bit_length() for value in joined.values()) > _LONGEST:
                raise UndecidedError("the numbers of the proof become too long")
    except (UndecidedError, UnsolvedError) as error:
        return Weak(witness, reason=f"whether the data are weakly separable was left open: {error}")


def whole_numbers(weights: Weights) -> dict[int, int]:
    """A witness in the smallest integers that are proportional to it, by ascending keys.

    Example:
        >>> whole_numbers({3: Fraction(1, 4), 1: Fraction(1, 2)})
        {1: 2, 3: 1}
    """
    common = math.lcm(*(value.denominator for value in weights.values()))
    integers = {key: int(weights[key] * common) for key in sorted(weights)}
    divisor = math.gcd(*integers.values())
    return {key: value // divisor for key, value in integers.items()}
