"""Linear equations in integers, solved exactly.

A solution modulo a prime p is lifted to modulo p², p³, … (Dixon's method) until the rational numbers that fit it are
found; whether they solve the equations is then checked over the integers. Nothing here is rounded.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

_PRIMES = (67108859, 67108837, 67108819, 67108777)  # a matrix of full rank is singular for hardly any of them
PRIME = _PRIMES[0]  # the largest below 2²⁶: sums of up to 2,047 products of residues fit into 63 bits
LARGEST = 2047  # equations
_LIMB = 24  # bits; entries of any size are cut into pieces that numpy multiplies without overflow

Residues: TypeAlias = NDArray[np.int64]
Vector: TypeAlias = list[int]
Tick: TypeAlias = Callable[[], object]
"""Called between two steps; may raise to end them."""


class UnsolvedError(ArithmeticError):
    """The equations are too many, or have no single solution."""


class Square:
    """A square integer matrix A of full rank, given by its rows, for equations A·x = b and Aᵀ·u = b."""

    def __init__(self, matrix: Sequence[Sequence[int]], tick: Tick = lambda: None) -> None:
        if len(matrix) > LARGEST:
            raise UnsolvedError(f"{len(matrix)} equations are more than the {LARGEST} that are solved exactly here")
        self._common = [math.gcd(*row) or 1 for row in matrix]  # features of integers or few bits become small
        rows = [[value // common for value in row] for row, common in zip(matrix, self._common, strict=True)]
        self._matrix, self._tick = rows, tick
        if rows:
            self._prime, self._inverse = _inverse(rows)
            self._limbs = _limbs(rows)

    def solve(self, right: Sequence[int], *, transposed: bool = False) -> list[Fraction]:
        """x with A·x = b, or Aᵀ·x = b."""
        (solution,), below = self.solve_all([right], transposed=transposed)
        return [Fraction(value, below) for value in solution]

    def solve_all(self, rights: Sequence[Sequence[int]], *, transposed: bool = False) -> tuple[list[Vector], int]:
        """X with A·X = B, or Aᵀ·X = B, column by column, as integers over one positive denominator."""
        if not self._matrix or not rights:
            return [[] for _ in rights], 1
        scale = math.lcm(*self._common)
        factors = [scale // common for common in self._common]
        columns = self._lift([list(right) if transposed else _times(right, factors) for right in rights], transposed)
        below = math.lcm(*(part for _, part in columns))
        solutions = [[value * (below // part) for value in column] for column, part in columns]
        return [_times(column, factors) for column in solutions] if transposed else solutions, below * scale

    def _lift(self, rights: list[Vector], transposed: bool) -> list[tuple[Vector, int]]:
        inverse = self._inverse.T if transposed else self._inverse
        limbs = [limb.T for limb in self._limbs] if transposed else self._limbs
        rows = [list(row) for row in zip(*self._matrix, strict=True)] if transposed else self._matrix
        rest = np.array(rights, dtype=object).T
        found, modulus, steps, next_try = np.zeros_like(rest), 1, 0, 4
        while True:
            self._tick()
            digit = inverse @ (rest % self._prime).astype(np.int64) % self._prime
            product = sum((limb @ digit).astype(object) << (_LIMB * at) for at, limb in enumerate(limbs))
            rest = (rest - product) // self._prime
            found, modulus, steps = found + digit.astype(object) * modulus, modulus * self._prime, steps + 1
            if steps == next_try or not rest.any():
                answer = [_fractions(column, modulus) for column in found.T.tolist()]
                if all(_solves(rows, part, right) for part, right in zip(answer, rights, strict=True)):
                    return [part for part in answer if part is not None]
                next_try = steps + max(4, steps // 3)


def independent(rows: Sequence[Sequence[int]], tick: Tick = lambda: None) -> tuple[list[int], list[int]]:
    """Numbers of rows that are linearly independent, the first ones first, and as many columns that keep them so."""
    kept, pivots, _ = _reduced(rows, tick)
    return kept, pivots


def _reduced(rows: Sequence[Sequence[int]], tick: Tick) -> tuple[list[int], list[int], Residues]:
    """Independent rows, their pivots, and combinations modulo a prime that are 1 at one pivot and 0 at the others."""
    kept: list[int] = []
    pivots: list[int] = []
    width = len(rows[0]) if rows else 0
    reduced = np.zeros((min(len(rows), width), width), dtype=np.int64)
    for number, given in enumerate(rows):
        if len(kept) == width:
            break
        tick()
        done = reduced[: len(kept)]
        row = _residues([given], PRIME)[0]
        row = (row - row[pivots] @ done) % PRIME
        if not row.any():
            continue
        if len(kept) == LARGEST:
            raise UnsolvedError(f"more than {LARGEST} independent rows")
        pivot = int(np.flatnonzero(row)[0])
        row = row * pow(int(row[pivot]), -1, PRIME) % PRIME
        done -= np.outer(done[:, pivot], row)
        done %= PRIME
        reduced[len(kept)] = row
        kept.append(number)
        pivots.append(pivot)
    return kept, pivots, reduced[: len(kept)]


def null_residues(rows: Sequence[Sequence[int]], width: int, tick: Tick = lambda: None) -> Residues:
    """Three vectors at right angles to some rows, in columns, modulo a prime; else at random, by a fixed seed.

    A vector outside the span of the rows is at right angles to all three with a probability of one in p³.
    """
    _, pivots, reduced = _reduced(rows, tick)
    free = [j for j in range(width) if j not in set(pivots)]
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
    """A basis of the vectors at right angles to independent rows, in integers."""
    _, pivots = independent(rows, tick)
    free = [j for j in range(width) if j not in set(pivots)]
    square = Square([[row[j] for j in pivots] for row in rows], tick)
    solutions, below = square.solve_all([[-row[j] for row in rows] for j in free])
    columns = []
    for j, solution in zip(free, solutions, strict=True):
        entries = {j: below, **dict(zip(pivots, solution, strict=True))}
        common = math.gcd(*entries.values())
        columns.append([entries.get(i, 0) // common for i in range(width)])
    return columns


def _times(values: Sequence[int], factors: Sequence[int]) -> Vector:
    return [value * factor for value, factor in zip(values, factors, strict=True)]


def _residues(rows: Sequence[Sequence[int]], prime: int) -> Residues:
    return np.array([[value % prime for value in row] for row in rows], dtype=np.int64)


def _inverse(matrix: list[Vector]) -> tuple[int, Residues]:
    """A prime and the inverse of a matrix modulo that prime."""
    for prime in _PRIMES:
        inverse = _inverse_modulo(_residues(matrix, prime).astype(np.float64), prime)
        if inverse is not None:
            return prime, inverse
    raise UnsolvedError("the equations have no single solution")


def _inverse_modulo(table: NDArray[np.float64], prime: int) -> Residues | None:
    """Gauss and Jordan's elimination in place, in doubles that hold integers below 2⁵³ and so are exact."""
    swaps, scratch = [], np.empty_like(table)
    for column in range(len(table)):
        table[:, column] %= prime
        found = np.flatnonzero(table[column:, column])
        if not len(found):
            return None
        swaps.append(column + int(found[0]))
        table[[column, swaps[-1]]] = table[[swaps[-1], column]]
        pivot = pow(int(table[column, column]), -1, prime)
        table[column, column] = 1
        table[column] = table[column] % prime * pivot % prime
        factors = table[:, column].copy()
        factors[column] = 0
        kept = table[column].copy()
        table[:, column] = 0
        table[column] = kept
        table -= np.multiply(factors[:, None], kept, out=scratch)
        np.floor(np.multiply(table, 1 / prime, out=scratch), out=scratch)
        table -= np.multiply(scratch, prime, out=scratch)  # now between −p and 2p: the quotient may be off by one
    for column in reversed(range(len(table))):
        table[:, [column, swaps[column]]] = table[:, [swaps[column], column]]
    return (table % prime).astype(np.int64)


def _limbs(matrix: list[Vector]) -> list[Residues]:
    """A = Σ limb_l·2^(24·l) with small signed entries."""
    rest = np.array(matrix, dtype=object)
    signs = np.where(rest < 0, -1, 1).astype(np.int64)
    limbs: list[Residues] = []
    rest = abs(rest)
    while rest.any() or not limbs:
        limbs.append((rest & (2**_LIMB - 1)).astype(np.int64) * signs)
        rest = rest >> _LIMB
    return limbs


def _fractions(column: Vector, modulus: int) -> tuple[Vector, int] | None:
    """Small integers over one denominator that are the given residues; None if there are none."""
    bound = math.isqrt(modulus // 2)
    below = 1
    tops: Vector = []
    for residue in column:
        value = residue * below % modulus
        value = value - modulus if 2 * value > modulus else value
        if abs(value) > bound:
            fraction = _fraction(value % modulus, modulus, bound)
            if fraction is None:
                return None
            value, more = fraction
            tops, below = [top * more for top in tops], below * more
            if below > bound:
                return None
        tops.append(value)
    return tops, below


def _fraction(residue: int, modulus: int, bound: int) -> tuple[int, int] | None:
    """n and d of at most the bound with n ≡ residue·d, by Euclid's algorithm stopped half-way."""
    a, b, s, t = modulus, residue, 0, 1
    while b > bound:
        quotient = a // b
        a, b, s, t = b, a - quotient * b, t, s - quotient * t
    if abs(t) > bound or t == 0:
        return None
    return (b, t) if t > 0 else (-b, -t)


def _solves(rows: list[Vector], answer: tuple[Vector, int] | None, right: Vector) -> bool:
    if answer is None:
        return False
    tops, below = answer
    return all(
        sum(a * x for a, x in zip(row, tops, strict=True) if a) == value * below
        for row, value in zip(rows, right, strict=True)
    )
