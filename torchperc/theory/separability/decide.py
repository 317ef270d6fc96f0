"""Whether a hyperplane separates labelled data: the question, answered with a proof."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from torchperc._checks import Data, check_number
from torchperc.theory import verifier
from torchperc.theory.certificate import Certificate, Hyperplane, Witness, hyperplane
from torchperc.theory.separability.exchange import Clock, Report, UndecidedError, Weights
from torchperc.theory.separability.linear import UnsolvedError, independent, null_residues, null_vectors
from torchperc.theory.separability.rows import Problem
from torchperc.theory.separability.search import decide
from torchperc.theory.separability.spaces import Space


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

    Separable: there are w and b with y·(w·x + b) > 0 for every sample; the certificate has them, with the exact margin.
    Not separable: there is α ≥ 0 with Σ α = 1 and Σ αᵢ·yᵢ·(xᵢ, 1) = 0, a point in both convex hulls; the certificate
    has it. By Gordan's theorem one of the two is always the case. With K classes every sample asks for s_y > s_k for
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
            found = decide(Space(problem), clock, report)
            if isinstance(found, list):
                made = _certificate(problem, "separable", _measured(problem, found))
            else:
                made = _not_separable(problem, found, clock, report)
        except UndecidedError as reason:
            return _certificate(problem, "undecided", reason=str(reason))
        report("checking the proof", 0, 1)
        fault = made.fault_in(problem)
        report("checking the proof", 1, 1)
    return made if fault is None else _certificate(problem, "undecided", reason=f"the proof did not hold: {fault}")


class Weak(NamedTuple):
    """What is left to say when there is a witness: a weak separator, or that there is none.

    ``vector`` is 0 or positive on all rows, and positive on some. Otherwise ``further`` are sums of rows and ``null``
    vectors at right angles to all rows that prove that there is none. Without both the question was left open, for the
    ``reason``.
    """

    vector: list[Fraction] | None = None
    further: tuple[Weights, ...] = ()
    null: list[list[int]] | None = None
    reason: str = ""


def weaken(problem: Problem, witness: Weights, clock: Clock, report: Report) -> Weak:
    """Whether a vector is ≥ 0 on all rows and > 0 on some.

    Such a vector is 0 on the rows of a witness. Among the vectors that are, either one is positive on all rows outside
    their span, or there is Σ b·z + Σ c·z = 0 with b > 0 on some rows outside and c of any sign on rows of the witness.
    Then the vector is 0 on these rows too, and the question is put again, until the span has all rows in it.
    """
    further: list[Weights] = []
    zero: list[int] = []
    try:
        while True:
            clock.tick()
            known = [*zero, *(key for key in (further or [witness])[-1] if key not in zero)]
            kept, _ = independent([problem.exact_row(key)[0] for key in known], clock.tick)
            zero = [known[number] for number in kept]
            if len(zero) == problem.dimension:
                return Weak(further=tuple(further), null=[])
            table = [problem.exact_row(key)[0] for key in zero]
            outside = np.flatnonzero(problem.outside(null_residues(table, problem.dimension, clock.tick)))
            if not len(outside):
                return Weak(further=tuple(further), null=null_vectors(table, problem.dimension, clock.tick))
            found = decide(Space(problem, outside, zero), clock, report)
            if isinstance(found, list):
                return Weak(vector=found)
            further.append(found)
    except (UndecidedError, UnsolvedError) as error:
        return Weak(reason=f"whether the data are weakly separable was not decided: {error}")


def _not_separable(problem: Problem, witness: Weights, clock: Clock, report: Report) -> Certificate:
    weak = weaken(problem, witness, clock, report)
    evidence = _sum(problem, witness)
    if weak.null is not None:
        planes = (_plane(problem, list(map(Fraction, column))) for column in weak.null)
        null = tuple(hyperplane(plane, problem.bias) for plane in planes)
        evidence = replace(evidence, further=tuple(_sum(problem, part) for part in weak.further), null=null)
    if weak.vector is not None:
        plane = _measured(problem, weak.vector)
        return _certificate(problem, "weakly separable", plane, evidence)
    return _certificate(problem, "not separable", None, evidence, weak.reason)


def _sum(problem: Problem, weights: Weights) -> Witness:
    """A witness in the smallest integers that are proportional to it, by ascending keys."""
    samples, rivals = zip(*(problem.sample_and_rival(key) for key in sorted(weights)), strict=True)
    return Witness(samples, rivals, tuple(_integers([weights[key] for key in sorted(weights)])))


def _measured(problem: Problem, vector: list[Fraction]) -> Hyperplane:
    """The hyperplane of a vector with its exact margin."""
    plane = _plane(problem, vector)
    least, positive, _ = problem.measure(plane)
    squared = verifier.squared_margin(plane, least)
    return hyperplane(plane._replace(least=least, squared_margin=squared, positive=positive), problem.bias)


def _plane(problem: Problem, vector: Sequence[Fraction]) -> verifier.Plane:
    """Units for the user: one for −1/+1, else K that sum to zero, which has the largest margin of the equivalent ones.

    They are in the smallest integers, if these are numbers of float64 too, and multiplied by K for a sum of zero.
    """
    whole = _integers(vector)
    vector = list(map(Fraction, whole)) if all(abs(value) < 2**53 for value in whole) else vector
    if problem.signs:
        return problem.plane(vector)
    blocks = [[Fraction(0)] * problem.width, *problem.blocks(vector)]
    sums = [sum(values, Fraction(0)) for values in zip(*blocks, strict=True)]
    return problem.plane_of(
        [[problem.classes * value - total for value, total in zip(block, sums, strict=True)] for block in blocks]
    )


def _integers(values: Sequence[Fraction]) -> list[int]:
    """The smallest integers that are proportional to some numbers."""
    common = math.lcm(*(value.denominator for value in values))
    integers = [int(value * common) for value in values]
    divisor = math.gcd(*integers) or 1
    return [value // divisor for value in integers]


def _certificate(
    problem: Problem, kind: str, plane: Hyperplane | None = None, witness: Witness | None = None, reason: str = ""
) -> Certificate:
    labels = ("-1", "1") if problem.signs else tuple(map(str, range(problem.classes)))
    size, digest = (len(problem.own), problem.features), problem.digest
    return Certificate(kind, *size, labels, problem.signs, problem.bias, digest, plane, witness, reason, problem)


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
