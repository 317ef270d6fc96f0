"""The rows z of a separability problem: dense or sparse samples, of two classes or many, and what is exact about them.

Sample i of class yᵢ and every other class k give one row zᵢₖ = φ(xᵢ, yᵢ) − φ(xᵢ, k), φ(x, k) being (x, 1) (x without a
bias) in block k. The blocks of a row sum to 0, so adding one vector to the weights of all classes changes no z·w, and
the weights of class 0 may be set to 0: w then has K − 1 blocks, and with two classes z is y·(x, 1).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, cached_property
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from torchperc._checks import Data, check_bool, check_labels, is_sparse
from torchperc.theory import verifier
from torchperc.theory.points import class_count, feature_range, float64_samples
from torchperc.theory.separability.linear import PRIME, Residues, modular_product
from torchperc.theory.verifier import Digest, Plane

Array: TypeAlias = NDArray[np.float64]
Keys: TypeAlias = NDArray[np.int64]
_CHUNK = 2**20  # entries of X that are looked at together
_MANY = 1000  # wrong rows that are enough
_UNIT = 2.0**-53  # of rounding


@dataclass(frozen=True, eq=False)
class Problem:
    """N·(K − 1) rows, known by their keys: sample·(K − 1) + the number of the other class among the other classes.

    ``own`` is the class of every sample, from 0; ``bias`` says whether there is a constant feature, ``signs`` whether
    the labels were −1/+1.
    """

    samples: Any  # in float64
    own: NDArray[np.int64]
    classes: int
    bias: bool
    signs: bool = True

    @classmethod
    def of(cls, X: Data, y: Data, *, bias: bool, num_classes: int | None) -> Problem:
        """The rows of data, which are checked."""
        check_bool("bias", bias)
        if isinstance(X, np.ndarray) and X.dtype.kind == "f" and X.dtype.itemsize > 8:
            raise TypeError(
                f"X has dtype {X.dtype}, which float64 does not hold exactly; convert it with .astype(float)"
            )
        samples = float64_samples(X)
        found = _different(y) if num_classes is None else 0
        classes = found if found > 2 else class_count(num_classes)
        codes = check_labels(y, samples.shape[0], classes).cpu().numpy()
        return cls(samples, (codes + 1) // 2 if classes is None else codes, classes or 2, bias, classes is None)

    @property
    def features(self) -> int:
        """d."""
        return int(self.samples.shape[1])

    @property
    def width(self) -> int:
        """Numbers in a block: d + 1, or d without a bias."""
        return self.features + self.bias

    @property
    def dimension(self) -> int:
        """Numbers in w: (K − 1)·width."""
        return (self.classes - 1) * self.width

    def __len__(self) -> int:
        return len(self.own) * (self.classes - 1)

    @cached_property
    def X(self) -> Any:  # noqa: N802
        """The samples as an array, or as a CSR array."""
        return self.samples

    @cached_property
    def extent(self) -> tuple[Array, Array]:
        """The smallest and the largest value of every feature."""
        return feature_range(self.samples)

    def sample_and_rival(self, key: int) -> tuple[int, int]:
        """The sample and the other class of a row."""
        sample, number = divmod(int(key), self.classes - 1)
        return sample, number + int(number >= self.own[sample])

    def dense(self, samples: Keys | slice) -> Array:
        """Some samples as an array: (n, d)."""
        some = self.X[samples]
        return np.asarray(some.toarray() if is_sparse(some) else some)

    def sample(self, i: int) -> verifier.Row:
        """The numbers of one sample, and its class."""
        return self.dense(slice(i, i + 1))[0].tolist(), int(self.own[i])

    def chunks(self) -> Iterator[slice]:
        """All samples, some at a time."""
        step = max(1, _CHUNK // self.features)
        return (slice(start, start + step) for start in range(0, len(self.own), step))

    # --- in floats, for the search ----------------------------------------------------------------------------

    def slacks(self, weight: Array, offset: Array) -> Array:
        """z·w of all rows by float64: weight (units, d), offset (units,) → (N, K − 1).

        One unit gives ±s, by the two classes; K units give s_y − s_k.
        """
        return self.from_scores(np.asarray(self.X @ weight.T) + offset)

    def from_scores(self, scores: Array) -> Array:
        """The same from scores: (N, units) → (N, K − 1)."""
        if scores.shape[1] == 1:
            return np.where(self.own == 1, scores[:, 0], -scores[:, 0])[:, None]
        return _leads(scores[:, :, None], self.own)[:, :, 0]

    # --- exactly ----------------------------------------------------------------------------------------------

    def plane(self, vector: Sequence[Fraction]) -> Plane:
        """The numbers of w as a plane: one unit for two classes, else K, the first of them zero."""
        blocks = self.blocks(vector)
        return self.plane_of(blocks if self.classes == 2 else [[Fraction(0)] * self.width, *blocks])

    def blocks(self, vector: Sequence[Fraction]) -> list[list[Fraction]]:
        """The K − 1 blocks of w."""
        return [list(vector[at : at + self.width]) for at in range(0, self.dimension, self.width)]

    def plane_of(self, units: Sequence[Sequence[Fraction]]) -> Plane:
        """Units with their biases last, if they have any, as a plane."""
        offsets = [unit[-1] if self.bias else Fraction(0) for unit in units]
        return verifier.as_plane([unit[: self.features] for unit in units], offsets)

    def exact_slacks(self, sample: int, plane: Plane) -> list[Fraction]:
        """z·w of the rows of a sample."""
        tops, below = verifier.slacks(*self.sample(sample), plane)
        return [Fraction(top, below) for top in tops]

    def exact_row(self, key: int) -> tuple[list[int], int]:
        """z as integers over a power of two."""
        sample, rival = self.sample_and_rival(key)
        return verifier.row_vector(self.sample(sample), rival, self.classes, self.bias)

    def bounded_slacks(self, plane: Plane) -> tuple[Array, float, Fraction]:
        """z·w of all rows, times a positive number; by how much any of them can be off; and that number.

        A sum of n products, in whatever order and with or without fused steps, is off by at most γ·Σ|x_j·w_j| with
        γ = n·u/(1 − n·u) and u = 2⁻⁵³, plus what is lost below the smallest normal number. That holds for every
        computer with IEEE arithmetic, so a number larger than the bound has its sign proved. Σ|x_j·w_j| is at most
        Σ max|x_j|·|w_j|; the factor below is twice what is needed, for the rounding of weights and bound themselves.
        If nothing is known, the bound is infinite.
        """
        shift = max(value.bit_length() for row in (*plane.weight, plane.bias) for value in row)
        weight = np.array([[value / (1 << shift) for value in row] for row in plane.weight])
        offset = np.array([value / (1 << shift) for value in plane.bias])
        with np.errstate(all="ignore"):
            largest = np.maximum(*map(np.abs, self.extent))
            reach = float(largest @ np.abs(weight).max(axis=0) + np.abs(offset).max())
            below = 2.0**-1000 * (self.features + 8) * (1 + float(largest.sum()))
            error = 8 * (self.features + 8) * _UNIT * reach + below
            slacks = self.slacks(weight, offset)
        known = math.isfinite(error) and bool(np.isfinite(slacks).all())
        return slacks, error if known else math.inf, Fraction(plane.denominator, 1 << shift)

    def measure(self, plane: Plane, keys: Keys | None = None) -> tuple[Fraction, int, Keys]:
        """The least z·w of some rows, or of all; how many are positive; and keys of some that are not. Exact.

        Floats settle the rows whose sign they prove; only the others, and those that may be the least, are computed
        in integers.
        """
        slacks, error, _ = self.bounded_slacks(plane)
        asked = np.ones(slacks.shape, dtype=bool)
        if keys is not None:
            asked[:] = False
            asked.reshape(-1)[keys] = True
            slacks = np.where(asked, slacks, np.inf)
        unsettled = ~(np.abs(slacks) > error)
        nearest = ~(slacks - error > (slacks + error).min()) if math.isfinite(error) else unsettled
        positive = int(((slacks > error) & np.isfinite(slacks)).sum())
        wrong = np.flatnonzero((slacks < -error).reshape(-1))[:_MANY].tolist()
        values = []
        for sample in np.flatnonzero((unsettled | nearest).any(axis=1)).tolist():
            for number, value in enumerate(self.exact_slacks(sample, plane)):
                if not asked[sample, number]:
                    continue
                values.append(value)
                if unsettled[sample, number]:
                    positive += value > 0
                    if value <= 0 and len(wrong) < 2 * _MANY:
                        wrong.append(sample * (self.classes - 1) + number)
        return min(values), positive, np.array(wrong, dtype=np.int64)  # the row of the least float is among them

    def is_null(self, plane: Plane) -> bool:
        """Whether z·n = 0 for all rows, exactly; looks at those features only that n has a part of."""
        used = [j for j in range(self.features) if any(weight[j] for weight in plane.weight)] or [0]
        part = Plane(tuple(tuple(weight[j] for j in used) for weight in plane.weight), plane.bias, 1)
        low, high = self.extent
        if not any(plane.bias) and not (low[used].any() or high[used].any()):
            return True  # features that are 0 for every sample
        return not any(
            any(verifier.slacks(entries, own, part)[0])
            for chunk in self.chunks()
            for entries, own in zip(self.dense(chunk)[:, used].tolist(), self.own[chunk].tolist(), strict=True)
        )

    def outside(self, vectors: Residues) -> NDArray[np.bool_]:
        """Rows z with z·n ≠ 0 modulo a prime for one of some vectors n: (dimension, f) → (N·(K − 1),)."""
        parts = []
        flat = vectors.reshape(self.classes - 1, self.width, -1).transpose(1, 0, 2).reshape(self.width, -1)
        for chunk in self.chunks():
            scores = modular_product(residues_of(self.dense(chunk)), flat[: self.features])
            scores = (scores + (flat[-1] if self.bias else 0)) % PRIME
            units = np.pad(scores.reshape(len(scores), self.classes - 1, -1), ((0, 0), (1, 0), (0, 0)))
            parts.append((_leads(units, self.own[chunk]) % PRIME != 0).any(axis=2).reshape(-1))
        return np.concatenate(parts)

    @cached_property
    def digest(self) -> str:
        """The digest of the data, as :class:`torchperc.theory.verifier.Digest` has it."""
        return digest(self.X, self.own)


def _leads(scores: NDArray[Any], own: Keys) -> NDArray[Any]:
    """s_y − s_k of all other classes k: (n, K, f) → (n, K − 1, f)."""
    count, classes, width = scores.shape
    leads = np.take_along_axis(scores, own[:, None, None], axis=1) - scores
    return np.asarray(leads[np.arange(classes) != own[:, None]].reshape(count, classes - 1, width))


def digest(X: Any, own: NDArray[np.int64]) -> str:
    """The digest of samples and classes, some samples at a time."""
    made, (samples, features) = Digest(), X.shape
    made.samples = samples
    made.labels.update(own.astype("<i8").tobytes())
    if is_sparse(X):
        X = X.copy()
        X.eliminate_zeros()
        parts: Iterable[tuple[Any, Any, Any]] = [(np.diff(X.indptr), X.indices, X.data)]
    else:
        step, every = max(1, _CHUNK // features), np.arange(features)
        chunks = (X[start : start + step] for start in range(0, samples, step))
        used = ((chunk, chunk != 0) for chunk in chunks)
        parts = ((use.sum(axis=1), np.broadcast_to(every, use.shape)[use], part[use]) for part, use in used)
    for counts, columns, values in parts:
        made.counts.update(counts.astype("<i8").tobytes())
        made.columns.update(columns.astype("<u4").tobytes())
        made.values.update(values.astype("<f8").tobytes())
    return made.text(features)


def residues_of(values: Array) -> Residues:
    """Floats modulo a prime, 2⁻¹ being the prime's inverse of 2."""
    mantissas, exponents = np.frexp(values)
    whole = np.ldexp(mantissas, 53).astype(np.int64) % PRIME
    return np.asarray(whole * _powers()[exponents + 1100] % PRIME)


@cache
def _powers() -> Residues:
    """2^(e − 53) modulo the prime for every exponent e of a float, from −1100."""
    return np.array([pow(2, e - 53, PRIME) for e in range(-1100, 1026)], dtype=np.int64)


def _different(y: Data) -> int:
    """How many values y has, if they are numbers; what they must be is checked elsewhere."""
    try:
        array = np.asarray(y.detach().cpu() if isinstance(y, Tensor) else y)
    except ValueError:
        return 0
    return len(np.unique(array)) if array.ndim == 1 and array.dtype.kind in "biuf" else 0
