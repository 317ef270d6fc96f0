"""The rows z of a separability problem: dense or sparse samples of two classes or many, in floats and exactly.

Sample i of class yᵢ and each other class k give one row zᵢₖ = φ(xᵢ, yᵢ) − φ(xᵢ, k), φ(x, k) being (x, 1) (x without a
bias) in block k. The blocks of a row sum to 0, so adding one vector to the weights of all classes changes no z·w, and
the weights of class 0 may be set to 0: w then has K − 1 blocks, and with two classes z is y·(x, 1).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from torchperc._checks import Data, check_bool, check_labels, is_sparse
from torchperc.theory import verifier
from torchperc.theory.points import Array, Indices, class_count, feature_range, float64_samples
from torchperc.theory.verifier import Digest, Hyperplane

_CHUNK = 2**20  # entries of X that are read together
_MANY = 1000  # rows on the wrong side that are enough
_UNIT_ROUNDOFF = 2.0**-53


@dataclass(frozen=True, eq=False)
class Problem:
    """N·(K − 1) rows; the key of a row is sample·(K − 1) + the number of the other class among the other classes.

    ``X`` is in float64, an array or a CSR array; ``y`` is the class of each sample, from 0; ``bias`` says whether there
    is a constant feature, ``signs`` whether the labels were −1/+1.
    """

    X: Any
    y: Indices
    classes: int
    bias: bool
    signs: bool = True

    @classmethod
    def of(cls, X: Data, y: Data, *, bias: bool, num_classes: int | None) -> Problem:
        """Check samples and labels."""
        check_bool("bias", bias)
        if isinstance(X, np.ndarray) and X.dtype.kind == "f" and X.dtype.itemsize > 8:
            raise TypeError(
                f"X has dtype {X.dtype}, which float64 does not hold exactly; convert it with .astype(float)"
            )
        X = float64_samples(X)
        found = _distinct_values(y) if num_classes is None else 0
        classes = found if found > 2 else class_count(num_classes)
        codes = check_labels(y, X.shape[0], classes).cpu().numpy()
        return cls(X, (codes + 1) // 2 if classes is None else codes, classes or 2, bias, classes is None)

    @property
    def features(self) -> int:
        """d."""
        return int(self.X.shape[1])

    @property
    def width(self) -> int:
        """Numbers in a block: d + 1, or d without a bias."""
        return self.features + self.bias

    @property
    def dimension(self) -> int:
        """Numbers in w: (K − 1)·width."""
        return (self.classes - 1) * self.width

    def __len__(self) -> int:
        return len(self.y) * (self.classes - 1)

    @cached_property
    def limits(self) -> tuple[Array, Array]:
        """The smallest and the largest value of each feature."""
        return feature_range(self.X)

    @cached_property
    def digest(self) -> str:
        """The digest of the data, see :class:`torchperc.theory.verifier.Digest`."""
        return digest(self.X, self.y)

    def sample_and_rival(self, key: int) -> tuple[int, int]:
        """Return the sample and the other class of a row."""
        sample, number = divmod(int(key), self.classes - 1)
        return sample, number + int(number >= self.y[sample])

    def dense(self, samples: Indices | slice) -> Array:
        """Return some samples as an array: (n, d)."""
        some = self.X[samples]
        return np.asarray(some.toarray() if is_sparse(some) else some)

    def sample(self, i: int) -> verifier.Row:
        """Return the numbers of one sample, and its class."""
        return self.dense(slice(i, i + 1))[0].tolist(), int(self.y[i])

    def chunks(self, samples: Indices) -> Iterator[Indices]:
        """Split samples into parts that fit into memory as arrays."""
        step = max(1, _CHUNK // self.features)
        return (samples[start : start + step] for start in range(0, len(samples), step))

    # --- in floats --------------------------------------------------------------------------------------------

    def margins(self, weight: Array, offset: Array) -> Array:
        """Return z·w of all rows in float64: weight (units, d), offset (units,) → (N, K − 1)."""
        return self.from_scores(np.asarray(self.X @ weight.T) + offset)

    def from_scores(self, scores: Array) -> Array:
        """Return z·w from scores: ±s, by the two classes, of one unit; s_y − s_k of K units."""
        if scores.shape[1] == 1:
            return np.where(self.y == 1, scores[:, 0], -scores[:, 0])[:, None]
        margins = np.take_along_axis(scores, self.y[:, None], axis=1) - scores
        return np.asarray(margins[np.arange(self.classes) != self.y[:, None]].reshape(len(scores), -1))

    def bounded_margins(self, plane: Hyperplane) -> tuple[Array, float, Fraction]:
        """Return z·w of all rows times a positive number, a bound on their errors, and that number.

        A sum of n products, in whatever order and with or without fused steps, is off by at most γ·Σ|x_j·w_j| with
        γ = n·u/(1 − n·u) and u = 2⁻⁵³, plus what is lost below the smallest normal number. That holds for every
        computer with IEEE arithmetic, so a number larger than the bound has its sign proved. Σ|x_j·w_j| is at most
        Σ max|x_j|·|w_j|; the factor below is twice what is needed, for the rounding of weights and bound themselves.
        If nothing is known, the bound is infinite.
        """
        units, denominator = plane.integers
        shift = max(value.bit_length() for unit in units for value in unit)
        table = np.array([[value / (1 << shift) for value in unit] for unit in units])
        weight, offset = table[:, :-1], table[:, -1]
        with np.errstate(all="ignore"):
            largest = np.maximum(*map(np.abs, self.limits))
            reach = float(largest @ np.abs(weight).max(axis=0) + np.abs(offset).max())
            below = 2.0**-1000 * (self.features + 8) * (1 + float(largest.sum()))
            error = 8 * (self.features + 8) * _UNIT_ROUNDOFF * reach + below
            margins = self.margins(weight, offset)
        known = math.isfinite(error) and bool(np.isfinite(margins).all())
        return margins, error if known else math.inf, Fraction(denominator, 1 << shift)

    # --- exactly ----------------------------------------------------------------------------------------------

    def hyperplane(self, vector: Sequence[Fraction]) -> Hyperplane:
        """Return w as a hyperplane: one unit for two classes, else K, the first of them zero."""
        blocks = self.blocks(vector)
        return self.hyperplane_of(blocks if self.classes == 2 else [[Fraction(0)] * self.width, *blocks])

    def blocks(self, vector: Sequence[Fraction]) -> list[list[Fraction]]:
        """Return the K − 1 blocks of w."""
        return [list(vector[at : at + self.width]) for at in range(0, self.dimension, self.width)]

    def hyperplane_of(self, units: Sequence[Sequence[Fraction]]) -> Hyperplane:
        """Return units with their biases last, if they have any, as a hyperplane."""
        weight = tuple(tuple(unit[: self.features]) for unit in units)
        return Hyperplane(weight, tuple(unit[-1] for unit in units) if self.bias else None)

    def exact_margins(self, sample: int, plane: Hyperplane) -> list[Fraction]:
        """Return z·w of the rows of a sample."""
        tops, below = verifier.functional_margins(*self.sample(sample), plane)
        return [Fraction(top, below) for top in tops]

    def exact_row(self, key: int) -> tuple[list[int], int]:
        """Return z as integers over a power of two."""
        sample, rival = self.sample_and_rival(key)
        return verifier.row_vector(self.sample(sample), rival, self.classes, self.bias)

    def measure(self, plane: Hyperplane, keys: Indices | None = None) -> tuple[Fraction, int, Indices]:
        """Return the smallest z·w of some or all rows, how many are positive, and keys of some that are not.

        All of it is exact: floats decide the rows whose sign they prove; only the others, and those that may be the
        smallest, are computed in integers.
        """
        margins, error, _ = self.bounded_margins(plane)
        asked = np.ones(margins.shape, dtype=bool)
        if keys is not None:
            asked[:] = False
            asked.reshape(-1)[keys] = True
            margins = np.where(asked, margins, np.inf)
        uncertain = ~(np.abs(margins) > error)
        smallest = ~(margins - error > (margins + error).min()) if math.isfinite(error) else uncertain
        positive = int(((margins > error) & np.isfinite(margins)).sum())
        wrong = np.flatnonzero((margins < -error).reshape(-1))[:_MANY].tolist()
        values = []
        for sample in np.flatnonzero((uncertain | smallest).any(axis=1)).tolist():
            for number, value in enumerate(self.exact_margins(sample, plane)):
                if not asked[sample, number]:
                    continue
                values.append(value)
                if uncertain[sample, number]:
                    positive += value > 0
                    if value <= 0 and len(wrong) < 2 * _MANY:
                        wrong.append(sample * (self.classes - 1) + number)
        return min(values), positive, np.array(wrong, dtype=np.int64)  # the row of the smallest float is among them

    def is_orthogonal(self, plane: Hyperplane) -> bool:
        """Return whether z·n = 0 for all rows, exactly."""
        return not self.nonzero(plane).any()

    def nonzero(self, plane: Hyperplane) -> NDArray[np.bool_]:
        """Return which rows have z·n ≠ 0, by key; floats decide the rows for which they prove it."""
        low, high = self.limits
        used = [j for j in range(self.features) if (low[j] or high[j]) and any(unit[j] for unit in plane.weight)]
        if not used and not any(plane.bias or ()):
            return np.zeros(len(self), dtype=bool)
        margins, error, _ = self.bounded_margins(plane)
        certain = np.abs(margins) > error
        part = Hyperplane(tuple(tuple(unit[j] for j in used or [0]) for unit in plane.weight), plane.bias)
        for some in self.chunks(np.flatnonzero(~certain.all(axis=1))):
            rows = zip(some.tolist(), self.dense(some)[:, used or [0]].tolist(), self.y[some].tolist(), strict=True)
            for sample, values, label in rows:
                certain[sample] = [top != 0 for top in verifier.functional_margins(values, label, part)[0]]
        return certain.reshape(-1)


def digest(X: Any, y: Indices) -> str:
    """Return the digest of samples and classes, some samples at a time."""
    made, (samples, features) = Digest(), X.shape
    made.samples = samples
    made.labels.update(y.astype("<i8").tobytes())
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


def _distinct_values(y: Data) -> int:
    """Return how many values y has, if they are numbers; what they must be is checked elsewhere."""
    try:
        array = np.asarray(y.detach().cpu() if isinstance(y, Tensor) else y)
    except ValueError:
        return 0
    return len(np.unique(array)) if array.ndim == 1 and array.dtype.kind in "biuf" else 0
