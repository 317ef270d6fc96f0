"""Checked samples of the estimators: labels as codes or real targets, weights as factors, held-out samples."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from torchperc import _checks as checks

Array: TypeAlias = "np.ndarray[Any, Any]"
_SPREAD = 2**12  # of integer labels, below which they are counted however few they are


@dataclass(frozen=True)
class Samples:
    """Checked samples: X dense or CSR, labels as positions in ``classes``, a factor each or ``None`` for 1."""

    X: Any
    codes: Array
    classes: Array
    factors: Array | None

    def __len__(self) -> int:
        return len(self.codes)

    @property
    def units(self) -> int:
        """How many scores a net has for them."""
        return 1 if len(self.classes) == 2 else len(self.classes)

    @property
    def labels(self) -> Tensor:
        """Labels as nets know them: −1/+1 for two classes, else class indices."""
        return torch.from_numpy(2 * self.codes - 1 if len(self.classes) == 2 else self.codes)

    def take(self, index: Array) -> Samples:
        """Some of the samples."""
        factors = None if self.factors is None else self.factors[index]
        return replace(self, X=self.X[index], codes=self.codes[index], factors=factors)

    def counted(self) -> Samples:
        """Without those whose factor is 0."""
        if self.factors is None or self.factors.all():
            return self
        return self.take(np.flatnonzero(self.factors))

    def hold_out(self, fraction: float, seed: int) -> tuple[Samples, Samples]:
        """The samples to learn from and those to validate with, a fraction of each class that leaves one to learn."""
        samples = self.counted()
        shuffled = np.random.RandomState(seed % 2**32).permutation(len(samples))
        of_class = [shuffled[samples.codes[shuffled] == code] for code in range(len(samples.classes))]
        wanted = math.ceil(fraction * len(samples))
        ideal = np.array([fraction * len(members) for members in of_class])
        quota = np.floor(ideal).astype(int)
        for place in np.argsort(quota - ideal, kind="stable"):  # what rounding left over goes where it left most
            quota[place] += quota.sum() < wanted
        quota = np.minimum(quota, [max(len(members) - 1, 0) for members in of_class])
        if not quota.any():
            raise ValueError(
                f"validation_fraction={fraction} of {len(samples)} samples leaves none to validate with and one of "
                "each class to learn from; give more samples or use early_stopping=False"
            )
        held = np.concatenate([members[:count] for members, count in zip(of_class, quota, strict=True)])
        rest = np.setdiff1d(np.arange(len(samples)), held)
        return samples.take(rest), samples.take(np.sort(held))


class RealSamples(Samples):
    """Samples with real targets: ``codes`` holds them, and there are no classes."""

    @property
    def units(self) -> int:
        """One number is predicted."""
        return 1

    @property
    def labels(self) -> Tensor:
        """The targets."""
        return torch.from_numpy(self.codes)

    def hold_out(self, fraction: float, seed: int) -> tuple[Samples, Samples]:
        """The samples to learn from and those to validate with."""
        samples = self.counted()
        shuffled = np.random.RandomState(seed % 2**32).permutation(len(samples))
        count = math.ceil(fraction * len(samples))
        if count >= len(samples):
            raise ValueError(
                f"validation_fraction={fraction} of {len(samples)} samples leaves none to learn from; give more "
                "samples or use early_stopping=False"
            )
        return samples.take(np.sort(shuffled[count:])), samples.take(np.sort(shuffled[:count]))


def classes_and_codes(y: Array) -> tuple[Array, Array]:
    """The different labels in order, and each label as a position among them; integers are counted, not sorted.

    Example:
        >>> classes_and_codes(np.array([7, -1, 7]))
        (array([-1,  7]), array([1, 0, 1]))
    """
    if y.dtype.kind in "iu" and len(y) and 0 <= int(y.max()) - int(y.min()) < max(len(y), _SPREAD):
        wide = y if y.dtype.kind == "u" else y.astype(np.int64)  # in which no difference overflows
        places = (wide - wide.min()).astype(np.intp)
        found = np.flatnonzero(np.bincount(places))
        position = np.zeros(int(found[-1]) + 1, np.intp)
        position[found] = np.arange(len(found))
        return found.astype(y.dtype) + y.min(), position[places]
    classes, codes = np.unique(y, return_inverse=True)
    return classes, codes


def codes_of(y: Array, classes: Array) -> Array:
    """Labels as positions in ``classes``."""
    found, inverse = classes_and_codes(y)
    place = np.searchsorted(classes, found).clip(max=len(classes) - 1)
    if (unknown := found[classes[place] != found]).size:
        raise ValueError(
            f"y has the label {unknown.tolist()[0]!r}, which is not one of the classes {classes.tolist()}; "
            "name all classes on the first call, or fit anew with warm_start=False"
        )
    codes: Array = place[inverse]
    return codes


def factors_of(
    codes: Array, classes: Array, sample_weight: checks.Data | None, class_weight: Mapping[Any, float] | str | None
) -> Array | None:
    """The factor of each sample, by its own weight and that of its class; ``None`` where all are 1."""
    factors: Array | None = None
    if sample_weight is not None:
        given = np.asarray(sample_weight, dtype=np.float64)
        if given.size and not given.any():
            raise ValueError("sample_weight is zero for every sample; at least one must count")
        factors = checks.nonnegative_weights(given, len(codes)).numpy()
    if class_weight is None:
        return factors
    by_class = _class_factors(codes, classes, factors, class_weight)[codes]
    return by_class if factors is None else factors * by_class


def _class_factors(codes: Array, classes: Array, factors: Array | None, weight: Mapping[Any, float] | str) -> Array:
    """A factor for each class; ``"balanced"``: all weight/(number of classes · weight of the class)."""
    if isinstance(weight, str):
        checks.one_of("class_weight", weight, ("balanced",))
        total = np.bincount(codes, factors, minlength=len(classes))
        counted = np.where(total > 0, total, 1.0)
        return np.where(total > 0, total.sum() / (np.count_nonzero(total) * counted), 1.0)
    if not isinstance(weight, Mapping):
        raise TypeError(f"class_weight must be 'balanced' or a mapping {{label: factor}}, found {weight!r}")
    names = classes.tolist()
    by_class = [checks.number(f"class_weight[{c!r}]", weight.get(c, 1.0), at_least=0) for c in names]
    known = [c in weight for c in names]
    if not all(known) and sum(known) < len(weight):  # a class without a factor, a factor without a class: a slip
        unknown = next(label for label in weight if label not in names)
        raise ValueError(f"class_weight names {unknown!r}; the classes are {names}")
    return np.array(by_class)
