"""Linear equations in integers, solved exactly by FLINT; what is asked modulo a prime is only ever a suggestion."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any, TypeAlias

import numpy as np
from flint import fmpz_mat, nmod_mat
from numpy.typing import NDArray

PRIME = 67108859  # the largest below 2²⁶: sums of up to 2,047 products of residues fit into 63 bits
LARGEST = 2047  # equations

Residues: TypeAlias = NDArray[np.int64]
Vector: TypeAlias = list[int]
Tick: TypeAlias = Callable[[], object]
"""Called between two steps; may raise to end them."""


class UnsolvedError(ArithmeticError):
    """The equations are too many, or have no single solution."""


class Square:
    """A square integer matrix A of full rank, given by its rows, for equations A·x = b and Aᵀ·u = b.

    Example:
        >>> Square([[2, 1], [1, 3]]).solve([1, 0])
        [Fraction(3, 5), Fraction(-1, 5)]
    """

    def __init__(self, matrix: Sequence[Sequence[int]], tick: Tick = lambda: None) -> None:
        if len(matrix) > LARGEST:
            raise UnsolvedError(f"{len(matrix)} equations are more than the {LARGEST} that are solved exactly here")
        self._matrix, self._tick = fmpz_mat([list(row) for row in matrix]), tick

    def solve(self, right: Sequence[int], *, transposed: bool = False) -> list[Fraction]:
        """x with A·x = b, or Aᵀ·x = b."""
        (solution,), below = self.solve_all([right], transposed=transposed)
        return [Fraction(value, below) for value in solution]

    def solve_all(self, rights: Sequence[Sequence[int]], *, transposed: bool = False) -> tuple[list[Vector], int]:
        """X with A·X = B, or Aᵀ·X = B, column by column, as integers over one positive denominator."""
        self._tick()
        if not self._matrix.nrows() or not rights:
            return [[] for _ in rights], 1
        matrix = self._matrix.transpose() if transposed else self._matrix
        try:
            found: Any = matrix.solve(fmpz_mat([list(right) for right in rights]).transpose())
        except ZeroDivisionError:
            raise UnsolvedError("the equations have no single solution") from None
        above, below = found.numer_denom()
        return [[int(value) for value in row] for row in above.transpose().tolist()], int(below)


def independent(rows: Sequence[Sequence[int]], tick: Tick = lambda: None) -> tuple[list[int], list[int]]:
    """Numbers of rows that are linearly independent, the first ones first, and as many columns that keep them so.

    Example:
        >>> independent([[0, 1, 1], [0, 2, 2], [1, 0, 0]])
        ([0, 2], [0, 1])
    """
    kept, _ = _reduced(list(zip(*rows, strict=True)), tick)
    pivots, _ = _reduced([rows[number] for number in kept], tick)
    return kept, pivots


def _reduced(rows: Sequence[Sequence[int]], tick: Tick) -> tuple[list[int], Residues]:
    """Pivots, and the rows of the reduced echelon form modulo the prime: 1 at one pivot and 0 at the others."""
    tick()
    width = len(rows[0]) if rows else 0
    if not width:
        return [], np.zeros((0, width), dtype=np.int64)
    form, rank = nmod_mat([[value % PRIME for value in row] for row in rows], PRIME).rref()
    reduced = np.array([[int(value) for value in row] for row in form.tolist()[:rank]], dtype=np.int64)
    reduced = reduced.reshape(rank, width)
    return (reduced != 0).argmax(axis=1).tolist(), reduced


def null_residues(rows: Sequence[Sequence[int]], width: int, tick: Tick = lambda: None) -> Residues:
    """Three vectors at right angles to some rows, in columns, modulo a prime; else at random, by a fixed seed.

    A vector outside the span of the rows is at right angles to all three with a probability of one in p³.
    """
    pivots, reduced = _reduced(rows, tick)
    free = _others(pivots, width)
    vectors = np.zeros((width, 3), dtype=np.int64)
    vectors[free] = np.random.default_rng(0).integers(0, PRIME, (len(free), 3))
    if pivots:
        vectors[pivots] = -modular_product(reduced[:, free], vectors[free]) % PRIME
    return vectors


def modular_product(left: Residues, right: Residues) -> Residues:
    """A matrix product modulo the prime, in parts whose sums fit into 63 bits."""
    total = np.zeros((len(left), right.shape[1]), dtype=np.int64)
    for start in range(0, left.shape[1], LARGEST):
        some = slice(start, start + LARGEST)
        total = (total + left[:, some] @ right[some] % PRIME) % PRIME
    return total


def null_vectors(rows: Sequence[Sequence[int]], width: int, tick: Tick = lambda: None) -> list[Vector]:
    """A basis of the vectors at right angles to independent rows, in integers.

    Example:
        >>> null_vectors([[1, 0, 2]], 3)
        [[0, 1, 0], [-2, 0, 1]]
    """
    _, pivots = independent(rows, tick)
    free = _others(pivots, width)
    square = Square([[row[j] for j in pivots] for row in rows], tick)
    solutions, below = square.solve_all([[-row[j] for row in rows] for j in free])
    columns = []
    for j, solution in zip(free, solutions, strict=True):
        entries = {j: below, **dict(zip(pivots, solution, strict=True))}
        common = math.gcd(*entries.values())
        columns.append([entries.get(i, 0) // common for i in range(width)])
    return columns


def _others(pivots: Sequence[int], width: int) -> list[int]:
    inside = set(pivots)
    return [j for j in range(width) if j not in inside]
