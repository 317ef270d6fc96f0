"""Whether a hyperplane separates labelled data, answered with a proof.

A linear program finds w with z·w ≥ t for the rows of a working set, t as large as possible. If t is positive, the rows
of all the data on which that w is worst join the set, until none is wrong. If t is 0, the rows that hold it there are
the support of a witness. The program only suggests: what is returned was checked exactly.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from torchperc._checks import Data, check_number
from torchperc.theory import verifier
from torchperc.theory.certificate import Certificate
from torchperc.theory.exact_simplex import (
    Clock,
    Report,
    SearchSpace,
    UndecidedError,
    Weights,
    exact_dual_simplex,
    independent,
    null_vectors,
)
from torchperc.theory.points import Array, Indices
from torchperc.theory.problem import Problem
from torchperc.theory.verifier import Hyperplane, Witness

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
    progress: bool | Callable[[str, int, int], object] | None = None,
    time_limit: float | None = None,
    known: Certificate | None = None,
) -> Certificate:
    """Decide whether a hyperplane separates the data, with a proof either way.

    Separable: there are w and b with y·(w·x + b) > 0 for each sample; the certificate has them, with the exact margin.
    Not separable: there is α ≥ 0 with Σ α = 1 and Σ αᵢ·yᵢ·(xᵢ, 1) = 0, a point in both convex hulls; the certificate
    has it. By Gordan's theorem one of the two is always the case. With K classes each sample asks for s_y > s_k for
    all other k, of one joint argmax, and φ(x, y) − φ(x, k) takes the place of y·(x, 1).

    Linear programs (HiGHS) suggest w or the support of α, which are then checked or computed in exact rational
    arithmetic. What is not proved is returned as undecided.

    Args:
        X: samples (N, d), as a tensor, an array, lists or a scipy sparse matrix; converted to float64, exactly.
        y: labels −1/+1, or class indices 0 … K−1 of three or more classes.
        bias: whether hyperplanes may lie off the origin.
        num_classes: K, if ``y`` holds class indices of two classes or not of all classes.
        progress: True for a bar on stderr, or a function of (what is counted, how many, of how many).
        time_limit: seconds after which the search ends undecided; exact equations that are being solved are solved
            first, which takes half a minute for 500 equations of doubles.
        known: a certificate, such as a result's; if it decides the same question about the same data, it is returned,
            and nothing is proved again.

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
    limit = None if time_limit is None else check_number("time_limit", time_limit, above=0)
    problem = Problem.of(X, y, bias=bias, num_classes=num_classes)
    if not isinstance(known, Certificate | None):
        raise TypeError(f"known must be a certificate or None, found {known!r}; give a result's certificate")
    if known is not None and known.kind != "undecided":
        asked = (problem.bias, problem.signs, problem.classes, problem.digest)
        if asked == (known.bias, known.signs, len(known.labels), known.digest):
            return replace(known, rows=problem)
    with _reporting(progress) as report:
        clock = Clock(limit)
        try:
            found = decide(SearchSpace(problem), clock, report)
            if isinstance(found, list):
                made = _certificate(problem, "separable", _measured(problem, found))
            else:
                made = find_weak_separator(problem, found, clock, report)
        except UndecidedError as reason:
            return _certificate(problem, "undecided", reason=str(reason))
        report("checking the proof", 0, 1)
        error = made.verification_error()
        report("checking the proof", 1, 1)
    return made if error is None else _certificate(problem, "undecided", reason=f"the proof did not hold: {error}")


@contextmanager
def _reporting(progress: bool | Callable[[str, int, int], object] | None) -> Iterator[Report]:
    if callable(progress):
        yield progress
    elif progress is None or progress is False:
        yield lambda text, done, total: None
    elif progress is True:
        from rich.console import Console
        from rich.progress import Progress

        console = Console(stderr=True)
        with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
            task = bar.add_task("looking for a hyperplane", total=None)
            yield lambda text, done, total: bar.update(task, description=text, completed=done, total=total)
    else:
        raise TypeError(f"progress must be True, False or a function, found {type(progress).__name__} {progress!r}")


# --- certificates -------------------------------------------------------------------------------------------------


def find_weak_separator(problem: Problem, witness: Weights, clock: Clock, report: Report) -> Certificate:
    """Return the certificate of a witness, with a weak separator or the proof that there is none.

    A weak separator is ≥ 0 on all rows and > 0 on some; it is 0 on the rows of a witness. Among the vectors that are,
    either one is positive on all rows outside their span, or there is Σ b·z + Σ c·z = 0 with b > 0 on some rows outside
    and c of any sign on rows of the witness. Then the vector is 0 on these rows too, and the question is asked again,
    until the span has all rows in it.
    """
    random = np.random.default_rng(0)
    sums, zero = [witness], list[int]()
    evidence, dimension = _sum(problem, witness), problem.dimension
    try:
        while True:
            clock.check()
            known = [*zero, *(key for key in sums[-1] if key not in zero)]
            kept, pivots = independent([problem.exact_row(key)[0] for key in known])
            if len(kept) == len(zero) and len(sums) > 1:
                raise UndecidedError("a further sum has no new rows")
            zero = [known[number] for number in kept]
            table = [problem.exact_row(key)[0] for key in zero]
            free = [j for j in range(dimension) if j not in pivots]
            values = dict(zip(free, random.integers(1, 2**40, len(free)).tolist(), strict=True))
            (vector,) = null_vectors(table, dimension, [values])  # orthogonal to no row outside the span, but by chance
            outside = np.flatnonzero(problem.nonzero(problem.hyperplane(list(map(Fraction, vector)))))
            if not len(outside):
                columns = null_vectors(table, dimension, [{j: 1} for j in free])
                null = tuple(_centred(problem, list(map(Fraction, column))) for column in columns)
                evidence = replace(evidence, further=tuple(_sum(problem, part) for part in sums[1:]), null=null)
                return _certificate(problem, "not separable", None, evidence)
            found = decide(SearchSpace(problem, outside, zero), clock, report)
            if isinstance(found, list):
                return _certificate(problem, "weakly separable", _measured(problem, found), evidence)
            sums.append(found)
    except UndecidedError as error:
        reason = f"whether the data are weakly separable was not decided: {error}"
        return _certificate(problem, "not separable", None, evidence, reason)


def _sum(problem: Problem, weights: Weights) -> Witness:
    """Return a witness in the smallest integers that are proportional to it, by ascending keys."""
    samples, rivals = zip(*(problem.sample_and_rival(key) for key in sorted(weights)), strict=True)
    return Witness(samples, rivals, tuple(_integers([weights[key] for key in sorted(weights)])))


def _measured(problem: Problem, vector: list[Fraction]) -> Hyperplane:
    """Return the hyperplane of a vector with its exact margin."""
    plane = _centred(problem, vector)
    least, positive, _ = problem.measure(plane)
    return replace(plane, least=least, squared_margin=verifier.squared_margin(plane, least), positive=positive)


def _centred(problem: Problem, vector: Sequence[Fraction]) -> Hyperplane:
    """Return one unit for −1/+1, else K that sum to zero, which has the largest margin of the equivalent ones.

    They are in the smallest integers, if these are numbers of float64 too, and multiplied by K for a sum of zero.
    """
    whole = _integers(vector)
    vector = list(map(Fraction, whole)) if all(abs(value) < 2**53 for value in whole) else vector
    if problem.signs:
        return problem.hyperplane(vector)
    blocks = [[Fraction(0)] * problem.width, *problem.blocks(vector)]
    sums = [sum(values, Fraction(0)) for values in zip(*blocks, strict=True)]
    return problem.hyperplane_of(
        [[problem.classes * value - total for value, total in zip(block, sums, strict=True)] for block in blocks]
    )


def _integers(values: Sequence[Fraction]) -> list[int]:
    """Return the smallest integers that are proportional to some numbers."""
    common = math.lcm(*(value.denominator for value in values))
    integers = [int(value * common) for value in values]
    divisor = math.gcd(*integers) or 1
    return [value // divisor for value in integers]


def _certificate(
    problem: Problem, kind: str, plane: Hyperplane | None = None, witness: Witness | None = None, reason: str = ""
) -> Certificate:
    labels = ("-1", "1") if problem.signs else tuple(map(str, range(problem.classes)))
    size, digest = (len(problem.y), problem.features), problem.digest
    return Certificate(kind, *size, labels, problem.signs, problem.bias, digest, plane, witness, reason, problem)


# --- the search ---------------------------------------------------------------------------------------------------


class LPSolution(NamedTuple):
    """The answer of a linear program: w, t and the dual value of each row."""

    point: Array
    least: float
    duals: Array


def linear_program(table: Array, zero: Array, seconds: float) -> LPSolution | None:
    """Maximise t with z·w ≥ t and |w_j| ≤ 1, and z·w = 0 on some other rows, by HiGHS; ``None`` if it fails."""
    from scipy.optimize import linprog

    count, width = table.shape
    result = linprog(
        np.append(np.zeros(width), -1.0),
        A_ub=_compact(np.column_stack((-_directions(table), np.ones(count)))),
        b_ub=np.zeros(count),
        A_eq=_compact(np.column_stack((_directions(zero), np.zeros(len(zero))))) if len(zero) else None,
        b_eq=np.zeros(len(zero)) if len(zero) else None,
        bounds=[(-1.0, 1.0)] * width + [(0.0, None)],
        method="highs-ds" if width < _WIDE else "highs-ipm",
        options={"time_limit": max(seconds, 0.1)} if math.isfinite(seconds) else {},
    )
    if result.x is None or not result.success:
        return None
    return LPSolution(result.x[:-1], float(result.x[-1]), -np.asarray(result.ineqlin.marginals))


def _directions(table: Array) -> Array:
    """Return rows scaled to about the same length, as only their directions matter."""
    sizes = np.abs(table).max(axis=1, initial=0.0)
    return np.ldexp(table, -np.where(sizes > 0, np.frexp(sizes)[1], 0)[:, None])


def _compact(table: Array) -> Any:
    from scipy.sparse import csr_array

    return csr_array(table) if np.count_nonzero(table) < 0.2 * table.size else table


def decide(space: SearchSpace, clock: Clock, report: Report) -> list[Fraction] | Weights:
    """Return a vector of the space that is positive on its rows, exactly; or a witness that there is none.

    The witness is positive on some rows; on those that the vector had to be 0 on it may have any sign.
    """
    found = _by_programs(space, clock, report)
    if not isinstance(found, np.ndarray):
        return found
    settled = exact_dual_simplex(space, found, clock, report, _STEPS)
    if settled is None:
        raise UndecidedError(
            f"the linear program was not precise enough, and {_STEPS} exchanges in exact arithmetic did not repair that"
        )
    return settled


def _by_programs(space: SearchSpace, clock: Clock, report: Report) -> list[Fraction] | Weights | Indices:
    """Return the same by linear programs; if they fail, the rows that may be a witness, the likeliest first."""
    if len(space.keys) <= space.dimension and len(space.keys) * space.dimension <= 4 * _ENTRIES:
        table = space.table(space.keys)  # so few rows are independent as a rule, and then some w has z·w = 1 for all
        found = space.vector(_rounded(space, _least_squares(table), table).tolist())
        if not len(space.wrong_rows(found)):
            return found
    working = likely = _first_rows(space)
    for _ in range(_ROUNDS):
        clock.check()
        table = space.table(working)
        answer = linear_program(table, space.table(np.array(space.zero, dtype=np.int64)), clock.left())
        if answer is None:
            return likely
        held, likely = _support(working, answer, table)
        if not answer.least > _SMALL:
            settled = exact_dual_simplex(space, held, clock, report, _FEW_STEPS)
            if settled is not None:
                return settled
        point = _rounded(space, answer.point, table)
        if not (table @ point).min() > 0:
            return likely
        margins = space.margins(point)
        report("rows on the right side", int((margins > 0).sum()), len(margins))
        worst = _worst(space, margins, answer.least)
        if not (margins <= 0).any():
            vector = space.vector(point.tolist())
            worst = space.wrong_rows(vector)
            if not len(worst):
                return vector
        fresh = np.setdiff1d(worst, working)
        if not len(fresh):
            return likely
        working = np.concatenate((working, fresh))
    return likely


def _first_rows(space: SearchSpace) -> Indices:
    """Return rows to begin with: those that a least-squares fit to some rows finds hardest, and some at random."""
    size, every = _affordable(space, 2 * space.dimension), space.keys
    if len(every) <= 2 * size:
        return every
    random = np.random.default_rng(0)
    sample = np.sort(random.choice(every, min(len(every), _affordable(space, 10 * size)), replace=False))
    margins = space.margins(_least_squares(space.table(sample)))
    hardest = every[np.argpartition(margins, size)[:size]]
    return np.union1d(hardest, random.choice(every, size, replace=False))


def _least_squares(table: Array) -> Array:
    """Return w of a size of at most 1 for which z·w is nearly the same for all rows."""
    count, width = table.shape
    ridge = 1e-9 * max(count, width)
    if count < width:
        point = table.T @ np.linalg.solve(table @ table.T + ridge * np.eye(count), np.ones(count))
    else:
        point = np.linalg.solve(table.T @ table + ridge * np.eye(width), table.sum(axis=0))
    return np.asarray(point / (np.abs(point).max() or 1.0))


def _affordable(space: SearchSpace, wanted: int) -> int:
    """Return how many rows to take at once: the wanted number, within limits."""
    return min(max(wanted, 100), max(_ENTRIES // space.dimension, 100))


def _worst(space: SearchSpace, margins: Array, least: float) -> Indices:
    """Return the rows that violate the program's solution, the worst ones of them."""
    count = _affordable(space, space.dimension)
    found = np.flatnonzero(margins < least / 2)
    if len(found) > count:
        found = found[np.argpartition(margins[found], count)[:count]]
    return space.keys[found]


def _support(working: Indices, answer: LPSolution, table: Array) -> tuple[Indices, Indices]:
    """Return the rows with a dual value, the largest first; and these with some that have the smallest z·w."""
    held = np.flatnonzero(answer.duals > 1e-12)
    held = held[np.argsort(-answer.duals[held], kind="stable")]
    low = np.argsort(table @ answer.point, kind="stable")[: table.shape[1] + 1]
    return working[held], working[np.concatenate((held, low[~np.isin(low, held)]))]


def _rounded(space: SearchSpace, exact: Array, table: Array) -> Array:
    """Return w with few bits, as long as it separates the working set nearly as well."""
    best = float((table @ exact).min())
    for bits in () if space.zero else _BITS:
        point = np.ldexp(np.round(np.ldexp(exact, bits)), -bits)
        if float((table @ point).min()) >= 0.98 * best:
            return np.asarray(point)
    return exact
