"""Whether a hyperplane separates labelled data, answered with a proof.

A linear program finds w with z·w ≥ t for the rows of a working set, t as large as possible. If t is positive, the rows
of all the data on which that w is worst join the set, until none is wrong. If t is 0, the rows that hold it there are
the support of a witness. The program only suggests: what is returned was checked exactly.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial
from typing import Any, TypeAlias

import numpy as np
from flint import fmpz_mat, nmod_mat

from torchperc._checks import Data, check_number, is_sparse
from torchperc.theory.certificate import Certificate
from torchperc.theory.problem import Array, Indices, Problem
from torchperc.theory.verifier import PRIME, Hyperplane, Witness

Clock: TypeAlias = Callable[[], float]  # see seconds_left
Weights: TypeAlias = dict[int, Fraction]  # a witness: a positive number for some rows, by their keys

MAX_EQUATIONS = 2000  # solved exactly; more would take hours
_BLAND_AFTER = 200  # exchanges; from then on by Bland's rule, which cannot cycle
_SMALL = 1e-7  # t up to which the program's answer says nothing: its own tolerance
_BITS = (3, 6, 10, 16, 24, 34, 52)  # of a rounded w, the first that loses little
_ENTRIES = 2**25  # of a dense table that is made at once
_WIDE = 200  # dimensions from which on the interior-point method is faster than the simplex method
_ROUNDS = 200  # linear programs
_STEPS = 1000  # exchanges in exact arithmetic
_FEW_STEPS = 2  # exchanges that are tried before a program is trusted whose t is small


def separability(
    X: Data,
    y: Data,
    *,
    bias: bool = True,
    num_classes: int | None = None,
    time_limit: float | None = None,
) -> Certificate:
    """Decide whether a hyperplane separates the data, with a proof either way.

    Separable: there are w and b with y·(w·x + b) > 0 for each sample; the certificate has them, with the exact margin.
    Not separable: there is α ≥ 0 with Σ α = 1 and Σ αᵢ·yᵢ·(xᵢ, 1) = 0, a point in both convex hulls; the certificate
    has it. By Gordan's theorem one of the two is always the case. With K classes each sample asks for s_y > s_k for
    all other k, of one joint argmax, and φ(x, y) − φ(x, k) takes the place of y·(x, 1).

    Linear programs (HiGHS) suggest w or the support of α; exact rational arithmetic checks or computes them.

    Args:
        X: samples (N, d), as a tensor, an array, lists or a scipy sparse matrix; converted to float64, exactly.
        y: labels −1/+1, or class indices 0 … K−1 of three or more classes.
        bias: whether hyperplanes may lie off the origin.
        num_classes: K, if ``y`` holds class indices of two classes or not of all classes.
        time_limit: seconds after which the search ends undecided; exact equations are solved to their end first.

    Example:
        >>> import torchperc as tp
        >>> tp.theory.separability(*tp.data.gate("AND")).separable
        True
        >>> certificate = tp.theory.separability(*tp.data.gate("XOR"))
        >>> certificate.separable, certificate.verify(), certificate.point()
        (False, True, (Fraction(1, 2), Fraction(1, 2)))
        >>> tp.theory.separability([[0], [1], [1], [2]], [-1, -1, 1, 1]).kind
        'weakly separable'
    """
    limit = math.inf if time_limit is None else check_number("time_limit", time_limit, above=0)
    problem = Problem.of(X, y, bias=bias, num_classes=num_classes)
    clock = partial(seconds_left, time.monotonic(), limit)
    try:
        found = decide(SearchSpace(problem), clock)
        if isinstance(found, list):
            made = _certificate(problem, "separable", _measured(problem, found))
        else:
            made = find_weak_separator(problem, found, clock)
    except UndecidedError as reason:
        return _certificate(problem, "undecided", reason=str(reason))
    error = made.verification_error()
    return made if error is None else _certificate(problem, "undecided", reason=f"the proof did not hold: {error}")


def find_weak_separator(problem: Problem, witness: Weights, clock: Clock) -> Certificate:
    """Return the certificate of a witness, with a weak separator or the proof that there is none.

    A weak separator is 0 on the rows of a witness. Among such vectors, either one is positive on all rows outside their
    span, or a further sum proves that it is 0 on some of these rows too. Then the question is asked again, until the
    span has all rows in it.
    """
    random = np.random.default_rng(0)
    sums, zero = [witness], list[int]()
    evidence, dimension = _sum(problem, witness), problem.dimension
    try:
        while True:
            clock()
            known = [*zero, *(key for key in sums[-1] if key not in zero)]
            rows = [problem.exact_row(key)[0] for key in known]
            kept, _ = independent(rows)
            if len(kept) == len(zero) and len(sums) > 1:
                raise UndecidedError("a further sum has no new rows")
            zero, rows = [known[number] for number in kept], [rows[number] for number in kept]
            (vector,) = null_vectors(rows, dimension, random.integers(1, 2**40, dimension).tolist())
            outside = np.flatnonzero(problem.signs_on(problem.hyperplane(vector)))  # of their span, but for bad luck
            if not len(outside):
                columns = null_vectors(rows, dimension)
                null = tuple(problem.hyperplane(_normalised(problem, column)) for column in columns)
                evidence = replace(evidence, further=tuple(_sum(problem, part) for part in sums[1:]), null=null)
                return _certificate(problem, "not separable", None, evidence)
            found = decide(SearchSpace(problem, outside, zero), clock)
            if isinstance(found, list):
                return _certificate(problem, "weakly separable", _measured(problem, found), evidence)
            sums.append(found)
    except UndecidedError as error:
        reason = f"whether the data are weakly separable was not decided: {error}"
        return _certificate(problem, "not separable", None, evidence, reason)


def _sum(problem: Problem, weights: Weights) -> Witness:
    """Return a witness in the smallest integers that are proportional to it, by ascending keys."""
    keys = sorted(weights)
    samples, rivals = (tuple(each.tolist()) for each in problem.samples_and_rivals(np.array(keys)))
    return Witness(samples, rivals, tuple(_integers([weights[key] for key in keys])))


def _measured(problem: Problem, vector: list[Fraction]) -> Hyperplane:
    """Return the hyperplane of a vector with its exact margin."""
    plane = problem.hyperplane(_normalised(problem, vector))
    least, positive = problem.measure(plane)
    return replace(plane, least=least, positive=positive)


def _normalised(problem: Problem, vector: Sequence[Fraction | int]) -> list[Fraction | int]:
    """Return a vector in the smallest integers, if float64 holds them; K times that for units that sum to zero."""
    whole = _integers(vector)
    factor = 1 if problem.signs else problem.classes
    return [factor * value for value in (whole if max(map(abs, whole)) < 2**53 else vector)]


def _integers(values: Sequence[Fraction | int]) -> list[int]:
    """Return the smallest integers that are proportional to some numbers."""
    common = math.lcm(*(value.denominator for value in values))
    integers = [int(value * common) for value in values]
    divisor = math.gcd(*integers) or 1
    return [value // divisor for value in integers]


def _certificate(
    problem: Problem, kind: str, plane: Hyperplane | None = None, witness: Witness | None = None, reason: str = ""
) -> Certificate:
    labels = ("-1", "1") if problem.signs else tuple(map(str, range(problem.classes)))
    about = (len(problem.y), problem.features, labels, problem.signs, problem.bias, problem.digest)
    return Certificate(kind, *about, plane, witness, reason, problem)


def linear_program(table: Array, zero: Array, seconds: float) -> tuple[Array, float, Array] | None:
    """Return w, t and dual values of: max t, z·w ≥ t, |w_j| ≤ 1, z·w = 0 on ``zero``; ``None`` if HiGHS fails."""
    from scipy.optimize import linprog
    from scipy.sparse import csr_array

    count, width = table.shape
    result = linprog(
        np.append(np.zeros(width), -1.0),
        A_ub=csr_array(np.column_stack((-_directions(table), np.ones(count)))),
        b_ub=np.zeros(count),
        A_eq=csr_array(np.column_stack((_directions(zero), np.zeros(len(zero))))),
        b_eq=np.zeros(len(zero)),
        bounds=[(-1.0, 1.0)] * width + [(0.0, None)],
        method="highs-ds" if width < _WIDE else "highs-ipm",
        options={"time_limit": max(seconds, 0.1)} if math.isfinite(seconds) else {},
    )
    if result.x is None or not result.success:
        return None
    return result.x[:-1], float(result.x[-1]), -np.asarray(result.ineqlin.marginals)


def _directions(table: Array) -> Array:
    """Return rows scaled to about the same length, as only their directions matter."""
    sizes = np.abs(table).max(axis=1, initial=0.0)
    return np.ldexp(table, -np.where(sizes > 0, np.frexp(sizes)[1], 0)[:, None])


def decide(space: SearchSpace, clock: Clock) -> list[Fraction] | Weights:
    """Return a vector of the space that is positive on its rows, exactly; or a witness that there is none.

    The witness is positive on some rows; on those that the vector had to be 0 on it may have any sign. If the linear
    programs fail, exact arithmetic goes on from the rows that may be a witness, the likeliest first.
    """
    if len(space.keys) <= space.dimension and len(space.keys) * space.dimension <= 4 * _ENTRIES:
        table = space.table(space.keys)  # so few rows are independent as a rule, and then some w has z·w = 1 for all
        gram = table @ table.T + 1e-9 * table.shape[1] * np.eye(len(table))
        point = table.T @ np.linalg.solve(gram, np.ones(len(table)))
        vector = space.vector(_rounded(space, point / (np.abs(point).max() or 1.0), table))
        if not len(space.wrong_rows(vector)):
            return vector
    working = likely = space.keys
    size = _affordable(space, 2 * space.dimension)
    if len(working) > 2 * size:  # begin with those that are hardest for the nearest class mean
        working = likely = working[np.argpartition(space.problem.mean_margins()[working], size)[:size]]
    for _ in range(_ROUNDS):
        table = space.table(working)
        answer = linear_program(table, space.table(np.array(space.zero, dtype=np.int64)), clock())
        if answer is None:
            break
        solution, least, duals = answer
        held = np.flatnonzero(duals > 1e-12)  # the rows with a dual value, the largest first
        held = held[np.argsort(-duals[held], kind="stable")]
        low = np.argsort(table @ solution, kind="stable")[: table.shape[1] + 1]
        likely = working[np.concatenate((held, low[~np.isin(low, held)]))]
        if not least > _SMALL:
            settled = exact_dual_simplex(space, working[held], clock, _FEW_STEPS)
            if settled is not None:
                return settled
        point = _rounded(space, solution, table)
        if not (table @ point).min() > 0:
            break
        margins = space.margins(point)
        if (margins <= 0).any():
            violated = np.flatnonzero(margins < least / 2)
            count = _affordable(space, space.dimension)
            wrong = space.keys[violated[np.argsort(margins[violated])[:count]]]
        else:
            vector = space.vector(point)
            wrong = space.wrong_rows(vector)
            if not len(wrong):
                return vector
        fresh = np.setdiff1d(wrong, working)
        if not len(fresh):
            break
        working = np.concatenate((working, fresh))
    settled = exact_dual_simplex(space, likely, clock, _STEPS)
    if settled is None:
        raise UndecidedError(f"the linear program was not precise enough, and {_STEPS} exact exchanges did not help")
    return settled


def _affordable(space: SearchSpace, wanted: int) -> int:
    """Return how many rows to take at once: the wanted number, within limits."""
    return min(max(wanted, 100), max(_ENTRIES // space.dimension, 100))


def _rounded(space: SearchSpace, exact: Array, table: Array) -> Array:
    """Return w with few bits, as long as it separates the working set nearly as well."""
    best = float((table @ exact).min())
    for bits in () if space.zero else _BITS:
        point = np.ldexp(np.round(np.ldexp(exact, bits)), -bits)
        if float((table @ point).min()) >= 0.98 * best:
            return np.asarray(point)
    return exact


class UndecidedError(Exception):
    """No proof was found; the message says why."""


def seconds_left(start: float, limit: float) -> float:
    """Return how much of a time limit is left; :class:`UndecidedError` if nothing is."""
    left = limit - (time.monotonic() - start)
    if left <= 0:
        raise UndecidedError(f"the time limit of {limit:g} s was reached; allow more time")
    return left


def solve_exactly(matrix: Sequence[Sequence[int]], rights: Sequence[Sequence[int]]) -> tuple[list[list[int]], int]:
    """Return x with A·x = b for each right side b, as integers over one positive denominator."""
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
    """Return the positions of rows that are independent (modulo a prime), and as many columns that keep them so."""
    kept = _pivots(list(zip(*rows, strict=True)))
    return kept, _pivots([rows[number] for number in kept])


def _pivots(rows: Sequence[Sequence[int]]) -> list[int]:
    if not rows or not rows[0]:
        return []
    form, rank = nmod_mat([[value % PRIME for value in row] for row in rows], PRIME).rref()
    return [next(j for j, value in enumerate(row) if int(value)) for row in form.tolist()[:rank]]


def null_vectors(rows: Sequence[Sequence[int]], width: int, given: Sequence[int] | None = None) -> list[list[int]]:
    """Return a basis of the integer vectors orthogonal to independent rows, or one such vector.

    The one vector is proportional to given numbers in all columns without a pivot.
    """
    pivots = independent(rows)[1]
    free = [j for j in range(width) if j not in pivots]
    starts = [{j: 1} for j in free] if given is None else [{j: given[j] for j in free}]
    rights = [[-sum(row[j] * value for j, value in start.items()) for row in rows] for start in starts]
    solutions, below = solve_exactly([[row[j] for j in pivots] for row in rows], rights)
    vectors = []
    for start, solution in zip(starts, solutions, strict=True):
        entries = {j: value * below for j, value in start.items()} | dict(zip(pivots, solution, strict=True))
        vectors.append(_integers([entries.get(j, 0) for j in range(width)]))
    return vectors


class SearchSpace:
    """Vectors w, the rows on which they have to be positive, and those on which they have to be 0.

    A point is w in the coordinates of the linear program, which sees features scaled, and shifted where they are far
    from 0 compared with their range and a bias makes up for it; the way back is exact. ``zero`` are independent rows.
    """

    def __init__(self, problem: Problem, keys: Indices | None = None, zero: Sequence[int] = ()) -> None:
        self.problem, self.zero, self.dimension = problem, list(zero), problem.dimension
        self.keys = np.arange(len(problem)) if keys is None else keys
        low, high = problem.limits
        half, middle = high / 2 - low / 2, low / 2 + high / 2
        far = (np.abs(middle) / 4 > half) & (problem.bias and not is_sparse(problem.X))
        step = np.frexp(np.where(half > 0, half, middle))[1] - 3  # the centre is rounded to few bits
        rounded = np.ldexp(np.round(np.ldexp(middle, -step)), step)
        self.centre = np.where(far, np.where(half > 0, rounded, low), 0.0)
        largest = np.maximum(np.abs(high - self.centre), np.abs(low - self.centre))
        self.exponents = np.where(largest > 0, np.frexp(largest)[1], 0)

    def table(self, keys: Indices) -> Array:
        """Return some rows as the linear program sees them: (n, dimension)."""
        phi = np.ldexp(self.problem.dense(keys // (self.problem.classes - 1)) - self.centre, -self.exponents)
        phi = np.pad(phi, ((0, 0), (0, int(self.problem.bias))), constant_values=1.0)
        signs = self.problem.signs_of(keys)[:, 1:]
        return (signs[:, :, None] * phi[:, None, :]).reshape(len(keys), self.dimension)

    def margins(self, point: Array) -> Array:
        """Return z·w of the rows that w has to be positive on, in floats."""
        blocks = point.reshape(-1, self.problem.width)
        blocks = blocks if len(blocks) == 1 else np.pad(blocks, ((1, 0), (0, 0)))  # zeros for class 0
        with np.errstate(all="ignore"):
            weight = np.ldexp(blocks[:, : self.problem.features], -self.exponents)
            offset = blocks[:, -1] * self.problem.bias - weight @ self.centre
            return self.problem.margins(weight, offset).reshape(-1)[self.keys]

    def wrong_rows(self, vector: Sequence[Fraction]) -> Indices:
        """Return keys of rows on which w is not positive, exactly."""
        return self.keys[self.problem.signs_on(self.problem.hyperplane(vector), self.keys)[self.keys] <= 0]

    def vector(self, point: Array) -> list[Fraction]:
        """Return w of a point, up to a positive factor; exactly 0 on the rows where it has to be."""
        made: list[Fraction] = []
        scales = [Fraction(2) ** -exponent for exponent in self.exponents.tolist()]
        for block in point.reshape(-1, self.problem.width).tolist():
            made += [Fraction(value) * scale for value, scale in zip(block, scales, strict=False)]
            if self.problem.bias:
                weight = made[-len(scales) :]
                shifts = zip(weight, self.centre.tolist(), strict=True)
                made.append(Fraction(block[-1]) - sum((w * Fraction(c) for w, c in shifts if c), Fraction(0)))
        if self.zero:
            rows = [self.problem.exact_row(key)[0] for key in self.zero]
            made = list(map(Fraction, null_vectors(rows, self.dimension, _integers(made))[0]))
        return made


def exact_dual_simplex(
    space: SearchSpace, start: Indices, clock: Clock, max_steps: int
) -> list[Fraction] | Weights | None:
    """Return a vector of the space that is positive on its rows, or a witness that there is none.

    Looked for is a ≥ 0 with Σ a·z = 0 and Σ a = 1. A basis is a set of independent columns (z, 1) and as many
    coordinates, the pivots; unit columns, whose numbers have to be 0, stand for the other coordinates. If a number is
    not allowed, the corresponding row u of the inverse has u·(0, 1) < 0; a column with u·(z, 1) < 0 takes the place of
    the bad one. If there is none, u = (w, c) has w·z ≥ −c > 0 for each row: w separates. Rows that w has to be 0 on
    are columns (z, 0) whose numbers may have any sign. None if it takes more than ``max_steps`` exchanges.
    """
    fixed, last = set(space.zero), space.dimension
    scales: dict[int, int] = {}

    def column(key: int) -> list[int]:
        row, scales[key] = space.problem.exact_row(key)
        return [*row, 0 if key in fixed else scales[key]]

    likely = [*space.zero, *start[: 2 * last + 2].tolist()]
    columns = [column(key) for key in likely]
    kept, pivots = independent(columns)
    basis = {likely[number]: columns[number] for number in kept}
    for step in range(max_steps + 1):
        clock()
        columns, by_index, u = list(basis.values()), step > _BLAND_AFTER, [0] * (last + 1)
        square = [[entries[j] for j in pivots] for entries in columns]
        (numbers,), below = solve_exactly(list(zip(*square, strict=True)), [[int(j == last) for j in pivots]])
        others = (j for j in range(last + 1) if j not in pivots)
        sums = ((j, sum(entries[j] * n for entries, n in zip(columns, numbers, strict=True))) for j in others)
        beside = next((j for j, total in sums if total != below * (j == last)), None)
        if beside is None:
            solution = {key: Fraction(n * scales[key], below) for key, n in zip(basis, numbers, strict=True)}
            negative = [key for key, value in solution.items() if value < 0 and key not in fixed]
            if not negative:
                return {key: value for key, value in solution.items() if value}
            bad = min(negative) if by_index else min(negative, key=lambda key: solution[key])
            (values,), _ = solve_exactly(square, [[int(key == bad) for key in basis]])
        else:
            (values,), u[beside] = solve_exactly(square, [[-entries[beside] for entries in columns]])
        for j, value in zip(pivots, values, strict=True):
            u[j] = value
        u = u if u[last] < 0 else [-value for value in u]
        entering = _entering(space, u, by_index=by_index)
        if entering is None:
            return [Fraction(value) for value in u[:last]]
        if beside is None:
            basis = {entering if key == bad else key: basis[key] for key in basis}
        else:
            pivots.append(beside)
        basis[entering] = column(entering)
    return None


def _entering(space: SearchSpace, u: list[int], *, by_index: bool) -> int | None:
    """Return the key of a row with u·(z, 1) < 0, exactly: the lowest in floats, or the first."""
    plane = space.problem.hyperplane(u[:-1])
    margins, error, scale = space.problem.bounded_margins(plane)
    try:
        constant = float(u[-1] * scale)
    except OverflowError:
        constant, error = 0.0, math.inf
    margins = margins.reshape(-1)[space.keys] + constant
    possible = np.flatnonzero(~(margins > 2 * error + 2.0**-50 * abs(constant)))
    if not by_index:
        possible = possible[np.argsort(margins[possible], kind="stable")]
    for key in space.keys[possible].tolist():
        sample, number = divmod(key, space.problem.classes - 1)
        if space.problem.exact_margins(sample, plane)[number] + u[-1] < 0:
            return int(key)
    return None
