"""Weak separation: what is left to ask when no hyperplane separates strictly."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from torchperc.theory.sep_exchange import Clock, Report, UndecidedError, Weights
from torchperc.theory.sep_linear import UnsolvedError, independent, null_residues, null_vectors
from torchperc.theory.sep_rows import Rows
from torchperc.theory.sep_search import decide
from torchperc.theory.sep_spaces import Space

_LONGEST = 50_000_000  # bits of a witness


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
