"""The rows z of a separability problem: dense or sparse samples of two classes or many, in floats and exactly.

Sample i of class yᵢ and each other class k give one row zᵢₖ = φ(xᵢ, yᵢ) − φ(xᵢ, k), φ(x, k) being (x, 1) (x without a
bias) in block k. The blocks of a row sum to 0, so adding one vector to the weights of all classes changes no z·w, and
the weights of class 0 may be set to 0: w then has K − 1 blocks, and with two classes z is y·(x, 1).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from torchperc._checks import Data, as_tensor, check_bool, check_choice, check_int, check_labels, is_sparse
from torchperc.samples import convert
from torchperc.theory import verifier
from torchperc.theory.verifier import Digest, Hyperplane
from torchperc.theory.weights import weights_norm

Array: TypeAlias = NDArray[np.float64]
Indices: TypeAlias = NDArray[np.int64]

BIAS_STEPS = ("unit", "radius", "none")
_CHUNK = 2**20  # entries of X that are read together
_UNIT_ROUNDOFF = 2.0**-53


def float64_samples(X: Data) -> Any:
    """Return checked samples in float64, as an array or a scipy CSR array."""
    if is_sparse(X):
        return convert.sparse_features(X, dtype=torch.float64)
    return convert.features(X, dtype=torch.float64, device=torch.device("cpu"), convert=True).numpy()


def class_count(num_classes: int | None) -> int | None:
    """Return K, checked to be at least 2, or ``None`` for labels −1/+1."""
    return None if num_classes is None else check_int("num_classes", num_classes, at_least=2)


@dataclass(frozen=True, eq=False)
class Points:
    """Samples as points φ = (x, √β), as the rule adds them; β is 1, max ‖x‖² or 0 by the bias step."""

    X: Any
    squared_norms: Array
    bias_step: str
    bias_scale: float

    @classmethod
    def of(cls, X: Data, bias_step: str) -> Points:
        """Check samples and bias step."""
        check_choice("bias_step", bias_step, BIAS_STEPS)
        X = float64_samples(X)
        with np.errstate(over="ignore"):
            squares = X.multiply(X).sum(axis=1) if is_sparse(X) else np.einsum("ij,ij->i", X, X)
        longest = float(squares.max())
        if not longest < np.finfo(np.float64).max / 4:  # twice as much with a bias must be finite too
            raise ValueError("X is so large that ‖x‖² overflows; scale X down")
        return cls(X, squares, bias_step, longest if bias_step == "radius" else float(bias_step == "unit"))

    def __len__(self) -> int:
        return int(self.X.shape[0])

    def squared_radius(self, num_classes: int | None) -> float:
        """Return max ‖x‖² + β; with K classes twice that, the squared length of φ(x, y) − φ(x, r)."""
        return (float(self.squared_norms.max()) + self.bias_scale) * (1 if num_classes is None else 2)

    def scores(self, weight: Tensor, bias: Tensor) -> Tensor:
        """Return w·x + b: (N,), or (N, K) for a (K, d) weight."""
        scores = torch.from_numpy(np.asarray(self.X @ weight.numpy().T) + bias.numpy())
        return scores.squeeze(-1) if len(weight) == 1 else scores

    def norm(self, weight: Tensor, bias: Tensor) -> float:
        """Return the length of weights where the update happens; a bias needs a bias step."""
        if bias.any() and not self.bias_scale:
            found = f"bias_step={self.bias_step!r} allows no bias, found {float(bias[bias != 0][0]):g}"
            raise ValueError(f"{found}; choose the run's bias_step, or regularize_bias=False for distances")
        return weights_norm(weight, bias, self.bias_scale)


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
        """Check samples and labels; more than two different labels are class indices."""
        check_bool("bias", bias)
        if isinstance(X, np.ndarray) and X.dtype.kind == "f" and X.dtype.itemsize > 8:
            raise TypeError(f"X has dtype {X.dtype}, which float64 does not hold exactly; use X.astype(float)")
        X = float64_samples(X)
        classes = class_count(num_classes)
        if classes is None:
            values = as_tensor(y, "y")
            different = len(values[values == values].unique())  # NaN is no label
            classes = different if different > 2 else None
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
        low, high = self.X.min(axis=0), self.X.max(axis=0)
        return (low.toarray().reshape(-1), high.toarray().reshape(-1)) if is_sparse(self.X) else (low, high)

    @cached_property
    def digest(self) -> str:
        """The digest of the data, see :class:`torchperc.theory.verifier.Digest`."""
        from scipy.sparse import csr_array

        made, count = Digest(), len(self.y)
        step = count if is_sparse(self.X) else max(1, _CHUNK // self.features)
        for start in range(0, count, step):
            part = csr_array(self.X[start : start + step])
            part.eliminate_zeros()
            made.counts.update(np.diff(part.indptr).astype("<i8").tobytes())
            made.columns.update(part.indices.astype("<u4").tobytes())
            made.values.update(part.data.astype("<f8").tobytes())
        made.labels.update(self.y.astype("<i8").tobytes())
        made.samples = count
        return made.text(self.features)

    def dense(self, samples: Indices | slice) -> Array:
        """Return some samples as an array: (n, d)."""
        some = self.X[samples]
        return np.asarray(some.toarray() if is_sparse(some) else some)

    def sample(self, i: int) -> verifier.Row:
        """Return the numbers of one sample, and its class."""
        return self.dense(slice(i, i + 1))[0].tolist(), int(self.y[i])

    def samples_and_rivals(self, keys: Indices) -> tuple[Indices, Indices]:
        """Return the sample and the other class of some rows."""
        samples, numbers = np.divmod(keys, self.classes - 1)
        return samples, numbers + (numbers >= self.y[samples])

    def signs_of(self, keys: Indices) -> Array:
        """Return the sign of φ in each block of some rows: (n, K)."""
        samples, rivals = self.samples_and_rivals(keys)
        signs, every = np.zeros((len(keys), self.classes)), np.arange(len(keys))
        signs[every, self.y[samples]], signs[every, rivals] = 1.0, -1.0
        return signs

    def margins(self, weight: Array, offset: Array) -> Array:
        """Return z·w of all rows in float64: weight (units, d), offset (units,) → (N, K − 1)."""
        scores = np.asarray(self.X @ weight.T) + offset
        if scores.shape[1] == 1:
            return np.where(self.y == 1, scores[:, 0], -scores[:, 0])[:, None]
        margins = np.take_along_axis(scores, self.y[:, None], axis=1) - scores
        return np.asarray(margins[np.arange(self.classes) != self.y[:, None]].reshape(len(scores), -1))

    def mean_margins(self) -> Array:
        """Return z·w of all rows, by key, where w decides for the nearest class mean: its low rows are hard ones."""
        member = self.y[:, None] == np.arange(self.classes)
        with np.errstate(all="ignore"):
            means = np.asarray((self.X.T @ (member / np.maximum(member.sum(axis=0), 1))).T)
            return self.margins(means, -np.square(means).sum(axis=1) / 2).reshape(-1)

    def bounded_margins(self, plane: Hyperplane) -> tuple[Array, float, Fraction]:
        """Return z·w of all rows times a positive number, a bound on their errors, and that number.

        A sum of n products, in any order, is off by at most γ·Σ max|x_j|·|w_j| with γ = n·u/(1 − n·u), u = 2⁻⁵³, plus
        what is lost below the smallest normal number: a number larger than the bound has its sign proved. The factor
        is twice what is needed, for the rounding of weights and bound. If nothing is known, the bound is infinite.
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

    def hyperplane(self, vector: Sequence[Fraction | int]) -> Hyperplane:
        """Return w as a hyperplane: one unit for −1/+1, else K that sum to zero, which has the largest margin."""
        blocks = (vector[at : at + self.width] for at in range(0, len(vector), self.width))
        units = [list(map(Fraction, block)) for block in blocks]
        if not self.signs:
            units = [[Fraction(0)] * self.width, *units]
            means = [sum(values, Fraction(0)) / self.classes for values in zip(*units, strict=True)]
            units = [[value - mean for value, mean in zip(unit, means, strict=True)] for unit in units]
        weight = tuple(tuple(unit[: self.features]) for unit in units)
        return Hyperplane(weight, tuple(unit[-1] for unit in units) if self.bias else None)

    def exact_margins(self, sample: int, plane: Hyperplane) -> list[Fraction]:
        """Return z·w of the rows of a sample."""
        tops, below = verifier.functional_margins(*self.sample(sample), plane)
        return [Fraction(top, below) for top in tops]

    def exact_row(self, key: int) -> tuple[list[int], int]:
        """Return z as integers over a power of two."""
        (sample,), (rival,) = self.samples_and_rivals(np.array([key]))
        return verifier.row_vector(self.sample(int(sample)), int(rival), self.classes, self.bias)

    def signs_on(self, plane: Hyperplane, keys: Indices | None = None) -> NDArray[np.float64]:
        """Return the sign of z·w by key, exactly for some or all rows: integers decide what floats do not prove."""
        low, high = self.limits
        used = [j for j in range(self.features) if (low[j] or high[j]) and any(unit[j] for unit in plane.weight)]
        if not used and not any(plane.bias or ()):
            return np.zeros(len(self))
        margins, error, _ = self.bounded_margins(plane)
        doubtful, signs = ~(np.abs(margins) > error), np.sign(margins)
        if keys is not None:
            doubtful &= np.isin(np.arange(len(self)), keys).reshape(doubtful.shape)
        part = Hyperplane(tuple(tuple(unit[j] for j in used or [0]) for unit in plane.weight), plane.bias)
        samples, step = np.flatnonzero(doubtful.any(axis=1)), max(1, _CHUNK // self.features)
        for some in np.split(samples, range(step, len(samples), step)):
            for sample, values in zip(some.tolist(), self.dense(some)[:, used or [0]].tolist(), strict=True):
                tops, _ = verifier.functional_margins(values, int(self.y[sample]), part)
                signs[sample] = [(top > 0) - (top < 0) for top in tops]
        return signs.reshape(-1)

    def measure(self, plane: Hyperplane) -> tuple[Fraction, int]:
        """Return the smallest z·w and how many are positive, exactly; floats tell which may be the smallest."""
        margins, error, _ = self.bounded_margins(plane)
        lowest = margins.min(axis=1)
        with np.errstate(invalid="ignore"):  # nothing is known, and each sample is looked at
            samples = np.flatnonzero(~(lowest - error > lowest.min() + error))
        least = min(min(self.exact_margins(sample, plane)) for sample in samples.tolist())
        return least, int((self.signs_on(plane) > 0).sum())
