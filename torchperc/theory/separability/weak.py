"""Weak separation: what is left to ask when no hyperplane separates strictly."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from torchperc.theory.separability.exchange import Clock, Report, UndecidedError, Weights
from torchperc.theory.separability.linear import UnsolvedError, independent, null_residues, null_vectors
from torchperc.theory.separability.rows import Problem
from torchperc.theory.separability.search import decide
from torchperc.theory.separability.spaces import Space


@dataclass(frozen=True)
class Weak:
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
        return Weak(reason=f"whether the data are weakly separable was left open: {error}")
