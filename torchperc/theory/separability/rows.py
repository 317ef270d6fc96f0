"""The rows z of a separability problem: dense or sparse samples, of two classes or many, and what is exact about them.

Sample i of class yᵢ and every other class k give one row zᵢₖ = φ(xᵢ, yᵢ) − φ(xᵢ, k), φ(x, k) being (x, 1) (x without a
bias) in block k. The blocks of a row sum to 0, so adding one vector to the weights of all classes changes no z·w, and
the weights of class 0 may be taken as 0: w then has K − 1 blocks, and with two classes z is y·(x, 1).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from torchperc import _checks as checks
from torchperc.samples import convert
from torchperc.theory import verifier
from torchperc.theory.separability.linear import PRIME, Residues, modular_product
from torchperc.theory.verifier import Digest, Plane

if TYPE_CHECKING:
    from scipy.sparse import csr_array

Array: TypeAlias = NDArray[np.float64]
Keys: TypeAlias = NDArray[np.int64]
_CHUNK = 2**20  # entries of X that are looked at together
_UNIT = 2.0**-53  # of rounding


@dataclass(frozen=True, eq=False)
class Rows:
    """N·(K − 1) rows, known by their keys: sample·(K − 1) + the number of the other class among the other classes.

    Args:
        X: samples in float64, a C-ordered array or a canonical CSR array.
        own: the class of every sample, from 0.
        classes: K.
        bias: whether there is a constant feature.

    Shape:
        X (N, d), own (N,).
    """

    X: Array | csr_array
    own: NDArray[np.int64]
    classes: int
    bias: bool

    @property
    def samples(self) -> int:
        """N."""
        return int(self.X.shape[0])

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
        return self.samples * (self.classes - 1)

    def sample_and_rival(self, key: int) -> tuple[int, int]:
        """The sample and the other class of a row."""
        sample, number = divmod(int(key), self.classes - 1)
        return sample, number + (number >= self.own[sample])

    @cached_property
    def sparse(self) -> bool:
        """Whether X is CSR."""
        return checks.is_sparse(self.X)

    @cached_property
    def bounds(self) -> tuple[Array, Array]:
        """The least and the largest value of every feature."""
        if self.sparse:
            low, high = (np.asarray(part.toarray()).reshape(-1) for part in (self.X.min(axis=0), self.X.max(axis=0)))
        else:
            low, high = self.X.min(axis=0), self.X.max(axis=0)
        return low, high

    def dense(self, samples: Keys | slice) -> Array:
        """Some samples as an array: (n, d)."""
        part: Any = self.X[samples]
        return np.asarray(part.toarray() if self.sparse else part)

    def chunks(self) -> Iterator[slice]:
        """All samples, some at a time."""
        step = max(1, _CHUNK // self.features)
        return (slice(start, start + step) for start in range(0, self.samples, step))

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
        own = np.take_along_axis(scores, self.own[:, None], axis=1)
        others = np.ones(scores.shape, dtype=bool)
        np.put_along_axis(others, self.own[:, None], False, axis=1)
        return (own - scores)[others].reshape(self.samples, -1)

    def units(self, blocks: Array) -> Array:
        """K − 1 blocks as units of :meth:`slacks`: one for two classes, else K with zeros for class 0."""
        return blocks if self.classes == 2 else np.vstack((np.zeros_like(blocks[:1]), blocks))

    # --- exactly ----------------------------------------------------------------------------------------------

    def plane(self, vector: Sequence[Fraction]) -> Plane:
        """The numbers of w as a plane: one unit for two classes, else K, the first of them zero."""
        blocks = [list(vector[at : at + self.width]) for at in range(0, self.dimension, self.width)]
        if self.classes > 2:
            blocks.insert(0, [Fraction(0)] * self.width)
        offsets = [block.pop() if self.bias else Fraction(0) for block in blocks]
        return verifier.as_plane(blocks, offsets)

    def exact_slacks(self, sample: int, plane: Plane) -> list[Fraction]:
        """z·w of the rows of a sample."""
        tops, below = verifier.slacks(self.dense(slice(sample, sample + 1))[0].tolist(), int(self.own[sample]), plane)
        return [Fraction(top, below) for top in tops]

    def exact_row(self, key: int) -> tuple[list[int], int]:
        """z as integers over a power of two."""
        sample, rival = self.sample_and_rival(key)
        values = self.dense(slice(sample, sample + 1))[0].tolist()
        entries, below = verifier.integers([*values, 1.0] if self.bias else values)
        row, own = [0] * self.dimension, int(self.own[sample])
        for block, sign in ((own - 1, 1), (rival - 1, -1)):
            if block >= 0:
                row[block * self.width : (block + 1) * self.width] = [sign * entry for entry in entries]
        return row, below

    def bounded_slacks(self, plane: Plane) -> tuple[Array, float, Fraction]:
        """z·w of all rows, times a positive number; by how much any of them can be off; and that number.

        A sum of n products, in whatever order and with or without fused steps, is off by at most γ·Σ|x_j·w_j| with
        γ = n·u/(1 − n·u) and u = 2⁻⁵³, plus what is lost below the smallest normal number. That holds for every
        computer with IEEE arithmetic, so a number larger than the bound has its sign proved. Σ|x_j·w_j| is at most
        Σ max|x_j|·|w_j|; the factor below is twice what is needed, for the rounding of weights and bound themselves.

        Shape:
            (N, K − 1) and two numbers, the first of which is not finite if nothing is known.
        """
        shift = max(value.bit_length() for row in (*plane.weight, plane.bias) for value in row)
        weight = np.array([[value / (1 << shift) for value in row] for row in plane.weight])
        offset = np.array([value / (1 << shift) for value in plane.bias])
        with np.errstate(all="ignore"):
            largest = np.maximum(np.abs(self.bounds[0]), np.abs(self.bounds[1]))
            reach = float(largest @ np.abs(weight).max(axis=0) + np.abs(offset).max())
            below = 2.0**-1000 * (self.features + 8) * (1 + float(largest.sum()))
            error = 8 * (self.features + 8) * _UNIT * reach + below
            slacks = self.slacks(weight, offset)
        known = math.isfinite(error) and bool(np.isfinite(slacks).all())
        return slacks, error if known else math.inf, Fraction(plane.denominator, 1 << shift)

    def measure(self, plane: Plane, keys: Keys | None = None) -> tuple[Fraction, int, Keys]:
        """The least z·w of some rows, or of all; how many are positive; and keys of some that are not. Exact.

        Floats settle the rows whose sign they prove; only the others, and those that may be the least, are taken up
        in integers.
        """
        slacks, error, _ = self.bounded_slacks(plane)
        if keys is not None:
            asked = np.zeros(slacks.shape, dtype=bool)
            asked.reshape(-1)[keys] = True
            slacks = np.where(asked, slacks, np.inf)
        least: Fraction | None = None
        unsettled = ~(np.abs(slacks) > error)
        nearest = ~(slacks - error > (slacks + error).min()) if math.isfinite(error) else unsettled
        positive = int(((slacks > error) & np.isfinite(slacks)).sum())
        wrong = np.flatnonzero((slacks < -error).reshape(-1))[:_MANY].tolist()
        for sample in np.flatnonzero((unsettled | nearest).any(axis=1)).tolist():
            for number, value in enumerate(self.exact_slacks(sample, plane)):
                if keys is not None and not asked[sample, number]:
                    continue
                least = value if least is None else min(least, value)
                if unsettled[sample, number]:
                    positive += value > 0
                    if value <= 0 and len(wrong) < 2 * _MANY:
                        wrong.append(sample * (self.classes - 1) + number)
        assert least is not None  # the row of the least float is always among them
        return least, positive, np.array(wrong, dtype=np.int64)

    def is_null(self, plane: Plane) -> bool:
        """Whether z·n = 0 for all rows, exactly; looks at those features only that n has a part of."""
        used = [j for j in range(self.features) if any(weight[j] for weight in plane.weight)] or [0]
        part = Plane(tuple(tuple(weight[j] for j in used) for weight in plane.weight), plane.bias, 1, *_NOTHING)
        low, high = self.bounds
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
        blocks = vectors.reshape(self.classes - 1, self.width, -1)
        flat = blocks.transpose(1, 0, 2).reshape(self.width, -1)
        for chunk in self.chunks():
            scores = modular_product(residues_of(self.dense(chunk)), flat[: self.features]) + (
                flat[-1] if self.bias else 0
            )
            units = (scores % PRIME).reshape(len(scores), self.classes - 1, -1)
            units = np.concatenate((np.zeros_like(units[:, :1]), units), axis=1)
            own = np.take_along_axis(units, self.own[chunk][:, None, None], axis=1)
            differs = ((own - units) % PRIME != 0).any(axis=2)
            others = np.ones(differs.shape, dtype=bool)
            np.put_along_axis(others, self.own[chunk][:, None], False, axis=1)
            parts.append(differs[others])
        return np.concatenate(parts)

    @cached_property
    def digest(self) -> str:
        """The digest of the data as :class:`torchperc.theory.verifier.Digest` has it, taken some samples at a time."""
        return digest(self.X, self.own)


_MANY = 1000
_NOTHING = (Fraction(0), Fraction(0), 0)


def digest(X: Any, own: NDArray[np.int64]) -> str:
    """The digest of samples and classes.

    Example:
        >>> digest(np.array([[0.0, 1.5]]), np.array([1]))[:8]
        '07521301'
    """
    made, (samples, features) = Digest(), X.shape
    made.samples = samples
    made.labels.update(own.astype("<i8").tobytes())
    if checks.is_sparse(X):
        X = X.copy()
        X.eliminate_zeros()
        made.counts.update(np.diff(X.indptr).astype("<i8").tobytes())
        made.columns.update(X.indices.astype("<u4").tobytes())
        made.values.update(X.data.astype("<f8").tobytes())
        return made.text(features)
    step = max(1, _CHUNK // features)
    every = np.arange(features, dtype="<u4")
    for start in range(0, samples, step):
        part = X[start : start + step]
        used = part != 0
        made.counts.update(used.sum(axis=1).astype("<i8").tobytes())
        made.columns.update(np.broadcast_to(every, part.shape)[used].tobytes())
        made.values.update(part[used].astype("<f8").tobytes())
    return made.text(features)


def residues_of(values: Array) -> Residues:
    """Floats modulo a prime, 2⁻¹ being the prime's inverse of 2.

    Example:
        >>> residues_of(np.array([3.0, 0.5])).tolist() == [3, (PRIME + 1) // 2]
        True
    """
    mantissas, exponents = np.frexp(values)
    whole = np.ldexp(mantissas, 53).astype(np.int64) % PRIME
    return np.asarray(whole * _powers()[exponents + 1100] % PRIME)


@cache
def _powers() -> Residues:
    """2^(e − 53) modulo the prime for every exponent e of a float, from −1100."""
    return np.array([pow(2, e - 53, PRIME) for e in range(-1100, 1026)], dtype=np.int64)


def checked(X: checks.Data, y: checks.Data, *, bias: bool, num_classes: int | None) -> tuple[Rows, bool]:
    """Rows of checked data, and whether the labels are −1/+1."""
    checks.flag("bias", bias)
    if checks.is_sparse(X):
        data: Any = convert.sparse_features(X, dtype=torch.float64)
    else:
        _refuse_wider(X)
        data = convert.features(X, dtype=torch.float64, device=torch.device("cpu"), convert=True).contiguous().numpy()
    codes, classes = _codes(y, data.shape[0], num_classes)
    own = (codes + 1) // 2 if classes is None else codes
    return Rows(data, np.ascontiguousarray(own), classes or 2, bias), classes is None


def _refuse_wider(X: checks.Data) -> None:
    if isinstance(X, np.ndarray) and X.dtype.kind == "f" and X.dtype.itemsize > 8:
        raise TypeError(f"X has dtype {X.dtype}, which float64 does not hold exactly; convert it with .astype(float)")


def _codes(y: checks.Data, count: int, num_classes: int | None) -> tuple[NDArray[np.int64], int | None]:
    """−1/+1 and no number of classes, or class indices and their number."""
    if num_classes is not None:
        classes = checks.whole("num_classes", num_classes, at_least=2)
        return checks.class_indices(y, count, classes).cpu().numpy(), classes
    found = _different(y)
    if len(found) > 2:
        codes = checks.class_indices(y, count, len(found)).cpu().numpy()
        return codes, len(found)
    return checks.signs(y, count).cpu().numpy(), None


def _different(y: checks.Data) -> list[Any]:
    """The values in y, if they are numbers; what they must be is checked elsewhere."""
    try:
        array = np.asarray(y.detach().cpu() if isinstance(y, torch.Tensor) else y)
    except ValueError:
        return []
    return np.unique(array).tolist() if array.ndim == 1 and array.dtype.kind in "biuf" else []
