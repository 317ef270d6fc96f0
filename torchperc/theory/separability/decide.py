"""Whether a hyperplane separates labelled data: the question, answered with a proof."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from fractions import Fraction

from torchperc import _checks as checks
from torchperc.theory import verifier
from torchperc.theory.certificate import Certificate, Hyperplane, Witness, hyperplane
from torchperc.theory.separability.exchange import Clock, Report, UndecidedError, Weights
from torchperc.theory.separability.rows import Rows, checked
from torchperc.theory.separability.search import decide
from torchperc.theory.separability.spaces import Space
from torchperc.theory.separability.weak import weaken, whole_numbers


def separability(
    X: checks.Data,
    y: checks.Data,
    *,
    bias: bool = True,
    num_classes: int | None = None,
    progress: bool | Callable[[str, int, int], object] | None = None,
    time_limit: float | None = None,
) -> Certificate:
    """Decide whether a hyperplane separates the data, with a proof either way.

    Separable: there are w and b with y·(w·x + b) > 0 for every sample; the certificate has them, with the exact margin.
    Not separable: there is α ≥ 0 with Σ α = 1 and Σ αᵢ·yᵢ·(xᵢ, 1) = 0, a point in both convex hulls; the certificate
    has it. By Gordan's theorem one of the two is always the case. With K classes every sample asks for s_y > s_k for
    all other k, of one joint argmax, and φ(x, y) − φ(x, k) takes the place of y·(x, 1).

    Linear programs (HiGHS) over those samples that matter suggest w or the support of α; what they suggest is rounded,
    so w is checked and α computed in exact rational arithmetic, and if that contradicts the program, the search goes
    on in rational numbers. What is not proved is returned as undecided.

    Args:
        X: samples, as a tensor, an array, lists or a scipy sparse matrix; taken as float64, which is exact.
        y: labels −1/+1, or class indices 0 … K−1 of three or more classes.
        bias: whether hyperplanes may lie off the origin.
        num_classes: K, if ``y`` holds class indices of two classes or not of all classes.
        progress: True for a bar on stderr, or a function of (what is counted, how many, of how many).
        time_limit: seconds after which the search ends undecided.

    Shape:
        X (N, d), y (N,).

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
    limit = None if time_limit is None else checks.number("time_limit", time_limit, above=0)
    rows, signs = checked(X, y, bias=bias, num_classes=num_classes)
    with _reporting(progress) as report:
        clock = Clock.started(limit)
        try:
            found = decide(Space(rows), clock, report)
            made = (
                _separable(rows, signs, found) if isinstance(found, list) else _not(rows, signs, found, clock, report)
            )
        except UndecidedError as reason:
            return _certificate(rows, signs, "undecided", reason=str(reason))
        report("checking the proof", 0, 1)
        fault = made.fault_in(rows)
        report("checking the proof", 1, 1)
    return made if fault is None else _certificate(rows, signs, "undecided", reason=f"the proof did not hold: {fault}")


def _separable(rows: Rows, signs: bool, vector: list[Fraction]) -> Certificate:
    return _certificate(rows, signs, "separable", _measured(rows, signs, vector))


def _not(rows: Rows, signs: bool, witness: Weights, clock: Clock, report: Report) -> Certificate:
    weak = weaken(rows, witness, clock, report)
    evidence = _sum(rows, witness)
    if weak.null is not None:
        planes = (_plane(rows, signs, list(map(Fraction, column))) for column in weak.null)
        null = tuple(hyperplane(plane, rows.bias) for plane in planes)
        evidence = replace(evidence, further=tuple(_sum(rows, part) for part in weak.further), null=null)
    if weak.vector is not None:
        plane = _measured(rows, signs, weak.vector)
        return _certificate(rows, signs, "weakly separable", plane, evidence)
    return _certificate(rows, signs, "not separable", None, evidence, weak.reason)


def _sum(rows: Rows, weights: Weights) -> Witness:
    integers = whole_numbers(weights)
    samples, rivals = zip(*(rows.sample_and_rival(key) for key in integers), strict=True)
    return Witness(samples, tuple(map(int, rivals)), tuple(integers.values()))


def _measured(rows: Rows, signs: bool, vector: list[Fraction]) -> Hyperplane:
    """The hyperplane of a vector with its exact margin."""
    plane = _plane(rows, signs, vector)
    least, positive, _ = rows.measure(plane)
    made = hyperplane(plane, rows.bias)
    return Hyperplane(made.weight, made.bias, least, verifier.squared_margin(plane, least), positive)


def _plane(rows: Rows, signs: bool, vector: Sequence[Fraction]) -> verifier.Plane:
    """Units for the user: one for −1/+1, else K that sum to zero, which has the largest margin of the equivalent ones.

    They are multiplied by K for that, which keeps the numbers short.
    """
    vector = _whole(vector)
    if signs:
        return rows.plane(vector)
    blocks = [list(vector[at : at + rows.width]) for at in range(0, rows.dimension, rows.width)]
    sums = [sum(values, Fraction(0)) for values in zip(*blocks, strict=True)]
    units = [
        [rows.classes * value - total for value, total in zip(block, sums, strict=True)]
        for block in ([Fraction(0)] * rows.width, *blocks)
    ]
    offsets = [unit.pop() if rows.bias else Fraction(0) for unit in units]
    return verifier.as_plane(units, offsets)


def _whole(vector: Sequence[Fraction]) -> Sequence[Fraction]:
    """The same direction in the smallest integers, if these are numbers of float64 too; else the vector as it is."""
    common = math.lcm(*(value.denominator for value in vector))
    divisor = math.gcd(*(int(value * common) for value in vector)) or 1
    whole = [value * common / divisor for value in vector]
    return whole if all(abs(value) < 2**53 for value in whole) else vector


def _certificate(
    rows: Rows,
    signs: bool,
    kind: str,
    plane: Hyperplane | None = None,
    witness: Witness | None = None,
    reason: str = "",
) -> Certificate:
    labels = ("-1", "1") if signs else tuple(map(str, range(rows.classes)))
    return Certificate(
        kind, rows.samples, rows.features, labels, signs, rows.bias, rows.digest, plane, witness, reason, rows
    )


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
