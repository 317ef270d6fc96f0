"""Synthetic data for the benchmarks: integers, so that equal learning gives equal weights to the last bit.

A fraction of the labels is flipped, or the classes overlap, so that mistakes never end and both sides make all epochs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from torchperc._checks import check_number

if TYPE_CHECKING:
    from scipy.sparse import csr_array

Array = npt.NDArray[Any]


def planes(
    rows: int,
    width: int,
    *,
    flips: float,
    gap: int = 0,
    fractions: bool = False,
    dtype: str = "float64",
    seed: int = 0,
) -> tuple[Array, Array]:
    """Two classes on the two sides of a plane through the origin: sign(u·x), a fraction of the labels turned round.

    Args:
        rows: N.
        width: d.
        flips: fraction of wrong labels.
        gap: the first ``gap`` features move by ±1 away from the plane, which leaves a strip about it empty.
        fractions: add a random multiple of 1/1024 between −1/2 and 1/2 to every feature, which no 8 bits hold.
        dtype: of X.
        seed: of the generator.

    Shape:
        X (N, d) of integers −5 to 5 (−6 to 6 with a gap), y (N,) int64 of −1/+1.

    Example:
        >>> X, y = planes(1000, 20, flips=0.0)
        >>> X.shape, X.dtype, sorted(set(y.tolist()))
        ((1000, 20), dtype('float64'), [-1, 1])
    """
    rng = np.random.default_rng(seed)
    X = rng.integers(-5, 6, size=(rows, width), dtype=np.int8).astype(dtype)
    normal = _odd(rng, width).astype(dtype)
    y = np.where(X @ normal >= 0, 1, -1)
    gap = min(gap, width)
    X[:, :gap] += y.astype(dtype)[:, None] * np.sign(normal[:gap])
    if fractions:
        X += rng.integers(-512, 513, size=X.shape, dtype=np.int16).astype(dtype) / 1024
    return X, np.where(rng.random(rows) < check_number("flips", flips, at_least=0), -y, y)


def pictures(rows: int, width: int, classes: int, *, dtype: str = "float32", seed: int = 0) -> tuple[Array, Array]:
    """A prototype of mostly empty pixels for each class, seen through noise so heavy that the classes overlap.

    Shape:
        X (N, d) of whole numbers, y (N,) int64 of class indices.

    Example:
        >>> X, y = pictures(1000, 50, 10)
        >>> X.shape, X.dtype, len(set(y.tolist()))
        ((1000, 50), dtype('float32'), 10)
    """
    rng = np.random.default_rng(seed)
    prototypes = rng.integers(1, 4, size=(classes, width), dtype=np.int8) * (rng.random((classes, width)) < 0.2)
    y = rng.integers(classes, size=rows)
    return (prototypes[y] + rng.integers(-12, 13, size=(rows, width), dtype=np.int8)).astype(dtype), y


def words(
    rows: int, width: int, filled: int, classes: int, *, flips: float, dtype: str = "float64", seed: int = 0
) -> tuple[csr_array, Array]:
    """Sparse counts as of words in short texts: ``filled`` entries of 1 to 3 a row, a tenth of them words of its class.

    The columns are cut into ``filled`` stretches and each row has one entry in each, so that the entries of a row are
    distinct and sorted. A class owns a hundredth of each stretch.

    Shape:
        X (N, d) scipy CSR, y (N,) int64: −1/+1 for two classes, class indices for more.

    Example:
        >>> X, y = words(100, 1000, 10, 3, flips=0.1)
        >>> X.shape, X.nnz, sorted(set(y.tolist()))
        ((100, 1000), 1000, [0, 1, 2])
    """
    from scipy.sparse import csr_array

    rng = np.random.default_rng(seed)
    stretch = width // filled
    owned = max(1, stretch // 100)
    y = rng.integers(classes, size=rows)
    common = rng.integers(stretch, size=(rows, filled))
    own = owned * y[:, None] + rng.integers(owned, size=(rows, filled))
    columns = np.where(rng.random((rows, filled)) < 0.1, own, common) + stretch * np.arange(filled)
    counts = rng.integers(1, 4, size=rows * filled).astype(dtype)
    ends = np.arange(rows + 1, dtype=np.int32) * filled
    X = csr_array((counts, columns.ravel().astype(np.int32), ends), shape=(rows, width))
    y = np.where(rng.random(rows) < flips, rng.integers(classes, size=rows), y)
    return X, 2 * y - 1 if classes == 2 else y


_CENSUS = (5, 8, 5, 16, 5, 7, 14, 6, 5, 2, 2, 2, 5, 41)  # values of each attribute, 123 in all


def census(rows: int, *, dtype: str = "float64", seed: int = 0) -> tuple[csr_array, Array]:
    """Rows of fourteen attributes, each as one 1 among its columns, as a9a has them; about a quarter are positive.

    Labels are drawn by a logistic model, so that the best linear model errs on about 15 % of new rows.

    Shape:
        X (N, 123) scipy CSR of ones, y (N,) int64 of −1/+1.

    Example:
        >>> X, y = census(1000)
        >>> X.shape, X.nnz, set(X.data.tolist()), sorted(set(y.tolist()))
        ((1000, 123), 14000, {1.0}, [-1, 1])
    """
    from scipy.sparse import csr_array

    fixed = np.random.default_rng(123)  # the same model for every sample of it
    weight = fixed.normal(scale=1.15, size=sum(_CENSUS))
    chances = [fixed.dirichlet(np.full(size, 0.7)) for size in _CENSUS]
    rng = np.random.default_rng(seed)
    starts = np.concatenate(([0], np.cumsum(_CENSUS)[:-1]))
    values = [start + rng.choice(len(p), size=rows, p=p) for start, p in zip(starts, chances, strict=True)]
    columns = np.stack(values, axis=1).astype(np.int32)
    middle = sum(p @ weight[start : start + len(p)] for start, p in zip(starts, chances, strict=True))
    scores = weight[columns].sum(1) - middle - 2.1
    y = np.where(rng.random(rows) < 1 / (1 + np.exp(-scores)), 1, -1)
    ends = np.arange(rows + 1, dtype=np.int32) * len(_CENSUS)
    return csr_array((np.ones(columns.size, dtype), columns.ravel(), ends), shape=(rows, sum(_CENSUS))), y


def bell(rows: int, width: int, *, flips: float, dtype: str = "float64", seed: int = 0) -> tuple[Array, Array]:
    """Two classes on the sides of a plane, normal features of length about 1: for descent, which has no whole numbers.

    Shape:
        X (N, d), y (N,) int64 of −1/+1.

    Example:
        >>> X, y = bell(1000, 4, flips=0.1)
        >>> round(float((X ** 2).sum(1).mean()), 1)
        1.0
    """
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((rows, width), dtype=np.float32).astype(dtype) / np.asarray(width**0.5, dtype)
    y = np.where(X @ rng.normal(size=width).astype(dtype) >= 0, 1, -1)
    return X, np.where(rng.random(rows) < flips, -y, y)


def _odd(rng: np.random.Generator, width: int) -> Array:
    """A random normal without zeros: ±1 and ±3."""
    return 2 * rng.integers(-2, 2, size=width) + 1
