"""The search for a proof: linear programs on few rows, then exact arithmetic.

A linear program finds w with z·w ≥ t for the rows of a working set, t as large as possible. If t is positive, the rows
of all the data on which that w is worst join the set, until none is wrong. If t is 0, the rows that hold it there are
the support of a witness. The program only suggests: what is returned was checked exactly.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from torchperc.theory.separability.exchange import Clock, Report, UndecidedError, Weights, settle, wrong_rows
from torchperc.theory.separability.rows import Array, Keys
from torchperc.theory.separability.spaces import Space

_SMALL = 1e-7  # t up to which the program's answer says nothing: its own tolerance
_BITS = (3, 6, 10, 16, 24, 34, 52)  # of a rounded w, the first that loses little
_ENTRIES = 2**25  # of a dense table that is made at once
_WIDE = 200  # dimensions from which on the interior-point method is faster than the simplex method
_ROUNDS = 200  # linear programs
_STEPS = 1000  # exchanges in exact arithmetic
_FEW_STEPS = 2  # that are tried before a program is trusted whose t is small


class FailedError(Exception):
    """The linear program has no answer."""


@dataclass(frozen=True)
class Program:
    """The answer of a linear program: w, t and a number for every row that holds t where it is."""

    point: Array
    least: float
    duals: Array


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
    if len(space.keys) <= space.dimension and len(space.keys) * space.dimension <= 4 * _ENTRIES:
        table = space.table(space.keys)  # so few rows are independent as a rule, and then some w has z·w = 1 for all
        found = space.vector(_rounded(space, _fit(table), table).tolist(), clock.tick)
        if not len(wrong_rows(space, found)):
            return found
    working = likely = _first_rows(space)
    for _ in range(_ROUNDS):
        clock.tick()
        table = space.table(working)
        try:
            answer = linear_program(table, space.zero_table, clock.left())
        except FailedError:
            return likely
        held, likely = _support(working, answer, table)
        if not answer.least > _SMALL:
            settled = settle(space, held, clock, report, _FEW_STEPS)
            if settled is not None:
                return settled
        point = _rounded(space, answer.point, table)
        if not (table @ point).min() > 0:
            return likely
        slacks = space.slacks(point)
        report("rows on the right side", int((slacks > 0).sum()), len(slacks))
        worst = _worst(space, slacks, answer.least)
        if not (slacks <= 0).any():
            vector = space.vector(point.tolist(), clock.tick)
            worst = wrong_rows(space, vector)
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
    sample = np.sort(random.choice(every, min(len(every), _many(space, 10 * size)), replace=False))
    slacks = space.slacks(_fit(space.table(sample)))
    hardest = every[np.argpartition(slacks, size)[:size]]
    return np.union1d(hardest, random.choice(every, size, replace=False))


def _fit(table: Array) -> Array:
    """w of a size of at most 1 for which z·w is nearly the same for all rows, by least squares."""
    count, width = table.shape
    few = 1e-9 * max(count, width)
    if count < width:
        point = table.T @ np.linalg.solve(table @ table.T + few * np.eye(count), np.ones(count))
    else:
        point = np.linalg.solve(table.T @ table + few * np.eye(width), table.sum(axis=0))
    return np.asarray(point / (np.abs(point).max() or 1.0))


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


def _support(working: Keys, answer: Program, table: Array) -> tuple[Keys, Keys]:
    """The rows that hold t where it is, the most important first; and these with some that are nearly as low."""
    held = np.flatnonzero(answer.duals > 1e-12)
    held = held[np.argsort(-answer.duals[held], kind="stable")]
    low = np.argsort(table @ answer.point, kind="stable")[: table.shape[1] + 1]
    return working[held], working[np.concatenate((held, low[~np.isin(low, held)]))]


def _rounded(space: Space, exact: Array, table: Array) -> Array:
    """w with few bits, as long as it separates the working set nearly as well."""
    best = float((table @ exact).min())
    for bits in _BITS:
        point = space.corrected(np.ldexp(np.round(np.ldexp(exact, bits)), -bits))
        if float((table @ point).min()) >= 0.98 * best:
            break
    return point
