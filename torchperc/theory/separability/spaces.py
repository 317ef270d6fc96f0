"""Where a separating vector is looked for: among all vectors, or among those that are 0 on some rows.

The linear program sees features shifted and scaled, so that floats serve it well; the way back is exact.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from fractions import Fraction
from functools import cached_property

import numpy as np

from torchperc._checks import is_sparse
from torchperc.theory.separability.linear import Square, Tick, independent
from torchperc.theory.separability.rows import Array, Keys, Problem

_MODERATE = 300  # exponents of two up to which products of weights and features neither overflow nor vanish


class Space:
    """Vectors w, the rows on which they have to be positive, and those on which they have to be 0.

    A point is w in the coordinates of the linear program. Features are shifted towards 0 only with a bias, which makes
    up for the shift, for dense data, and where the values are far from 0 compared with their range; scales are powers
    of two.

    Args:
        problem: all rows.
        keys: of the rows on which w has to be positive; all if None.
        zero: keys of independent rows on which w has to be 0.
    """

    def __init__(self, problem: Problem, keys: Keys | None = None, zero: Sequence[int] = ()) -> None:
        self.rows, self.zero, self.some = problem, list(zero), keys
        self.dimension = problem.dimension
        self.keys = np.arange(len(problem)) if keys is None else keys
        low, high = problem.extent
        half, middle = high / 2 - low / 2, low / 2 + high / 2
        far = (np.abs(middle) > 4 * half) & (problem.bias and not is_sparse(problem.X))
        self.centre = np.where(far, np.where(half > 0, _few_bits(middle, half), low), 0.0)
        largest = np.maximum(np.abs(high - self.centre), np.abs(low - self.centre))
        self.exponents = np.where(largest > 0, np.frexp(largest)[1], 0)

    # --- for the linear program -------------------------------------------------------------------------------

    def table(self, keys: Keys) -> Array:
        """Some rows as the linear program sees them: (n, dimension)."""
        samples, numbers = np.divmod(keys, self.rows.classes - 1)
        own = self.rows.own[samples]
        phi = np.pad(self._scaled(samples), ((0, 0), (0, int(self.rows.bias))), constant_values=1.0)
        table = np.zeros((len(keys), self.rows.classes - 1, self.rows.width))
        for blocks, signed in ((own - 1, phi), (numbers + (numbers >= own) - 1, -phi)):
            there = np.flatnonzero(blocks >= 0)
            table[there, blocks[there]] = signed[there]
        return table.reshape(len(keys), self.dimension)

    @cached_property
    def zero_table(self) -> Array:
        """The rows that w has to be 0 on: (r, dimension)."""
        return self.table(np.array(self.zero, dtype=np.int64))

    def slacks(self, point: Array) -> Array:
        """z·w of the rows that w has to be positive on, by floats."""
        blocks = point.reshape(-1, self.rows.width)
        blocks = blocks if len(blocks) == 1 else np.pad(blocks, ((1, 0), (0, 0)))  # zeros for class 0
        weight, offset = blocks[:, : self.rows.features], blocks[:, -1] * self.rows.bias
        if np.abs(self.exponents).max() > _MODERATE:
            scores = np.concatenate([self._scaled(chunk) @ weight.T for chunk in self.rows.chunks()]) + offset
            return self.chosen(self.rows.from_scores(scores))
        weight = np.ldexp(weight, -self.exponents)
        return self.chosen(self.rows.slacks(weight, offset - weight @ self.centre))

    def chosen(self, slacks: Array) -> Array:
        """Of numbers of all rows those of the rows that w has to be positive on."""
        return slacks.reshape(-1) if self.some is None else slacks.reshape(-1)[self.some]

    def corrected(self, point: Array) -> Array:
        """The point with its pivots set so that it is 0 on the rows it has to be 0 on, as far as floats go."""
        if not self.zero:
            return point
        others = np.delete(np.arange(self.dimension), self.pivots)
        point, right = point.copy(), -self.zero_table[:, others] @ point[others]
        with suppress(np.linalg.LinAlgError):
            point[self.pivots] = np.linalg.solve(self.zero_table[:, self.pivots], right)
        return point

    def _scaled(self, samples: Keys | slice) -> Array:
        return np.ldexp(self.rows.dense(samples) - self.centre, -self.exponents)

    # --- exactly ----------------------------------------------------------------------------------------------

    @cached_property
    def pivots(self) -> list[int]:
        """As many coordinates as rows to be 0 on, by which these rows can be met, best in floats."""
        from scipy.linalg import qr

        rows = [self.rows.exact_row(key)[0] for key in self.zero]
        best: list[int] = np.sort(qr(self.zero_table, mode="r", pivoting=True)[1][: len(rows)]).tolist()
        if len(independent([[row[j] for j in best] for row in rows])[0]) == len(rows):
            return best
        return independent(rows)[1]

    def vector(self, point: Sequence[float], tick: Tick) -> list[Fraction]:
        """w of a point: each scale undone, each shift moved into the bias, the pivots set exactly."""
        made: list[Fraction] = []
        scales = [Fraction(2) ** -exponent for exponent in self.exponents.tolist()]
        for block in self.rows.blocks(list(map(Fraction, point))):
            weight = [value * scale for value, scale in zip(block, scales, strict=False)]
            made += weight
            if self.rows.bias:
                shifts = zip(weight, self.centre.tolist(), strict=True)
                made.append(block[-1] - sum((w * Fraction(c) for w, c in shifts if c), Fraction(0)))
        if not self.zero:
            return made
        inside, table = set(self.pivots), [self.rows.exact_row(key)[0] for key in self.zero]
        common = math.lcm(*(value.denominator for j, value in enumerate(made) if j not in inside))
        others = [0 if j in inside else int(value * common) for j, value in enumerate(made)]
        rights = [-sum(z * v for z, v in zip(row, others, strict=True) if z) for row in table]
        solved = Square([[row[j] for j in self.pivots] for row in table], tick).solve(rights)
        for j, value in zip(self.pivots, solved, strict=True):
            made[j] = value / common
        return made


def _few_bits(values: Array, scale: Array) -> Array:
    """Values rounded to a multiple of a power of two not much below the scale."""
    step = np.frexp(scale)[1] - 3
    return np.asarray(np.ldexp(np.round(np.ldexp(values, -step)), step))
