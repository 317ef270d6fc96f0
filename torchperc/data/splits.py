"""Stratified train/validation/test splits, seeded."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import torch
from torch import Tensor

from torchperc._checks import Data, Option, ParameterError, check_bool, check_int, check_number

_FEW = 2**16
_PARTS = ("train", "validation", "test")


def split(
    y: Data, fractions: Sequence[float] = (0.6, 0.2, 0.2), seed: int = 0, stratify: bool = True
) -> tuple[Tensor, Tensor, Tensor]:
    """Sample numbers (int64) of a training, a validation and a test set, each in ascending order.

    The sets have no sample in common and hold all of them. Of a class with n samples a set with fraction f gets
    ⌊n·f⌋ or ⌈n·f⌉, and the training set at least one.

    Args:
        y: the labels (N,), of any kind.
        fractions: of train, validation and test, adding up to 1; the last two may be 0.
        seed: of the generator.
        stratify: split each class by itself; if not, all samples together.

    Example:
        >>> train, validation, test = split([-1] * 6 + [1] * 4, fractions=(0.5, 0.5, 0))
        >>> len(train), len(validation), len(test), (train < 6).sum().item()
        (5, 5, 0, 3)
    """
    classes = _classes(y, check_bool("stratify", stratify))
    shares = _shares(fractions)
    counts = _counts(torch.bincount(classes).tolist(), shares)
    for part, name in enumerate(_PARTS):
        if fractions[part] > 0 and not any(count[part] for count in counts):
            why = f" leaves no sample for the {name} set of {len(classes)}; give more samples, or 0 for {name}"
            raise ParameterError(Option("fractions", tuple(fractions)), why)
    chunks = _shuffled(classes, seed).split([size for count in counts for size in count])
    train, validation, test = (torch.cat(chunks[part::3]).sort().values for part in range(3))
    return train, validation, test


def _classes(y: Data, stratify: bool) -> Tensor:
    """Class numbers from 0, all 0 without stratification."""
    array: np.ndarray[Any, Any] = y.detach().cpu().numpy() if isinstance(y, Tensor) else np.asarray(y)
    if array.ndim != 1 or not len(array):
        raise ValueError(f"y must be one label per sample, found shape {array.shape}; give at least one sample")
    if array.dtype == object:
        strange = [value for value in array if not isinstance(value, str)]
        if strange:
            raise TypeError(f"y must hold numbers or strings, found {type(strange[0]).__name__} {strange[0]!r}")
        array = array.astype(str)
    if not stratify:
        return torch.zeros(len(array), dtype=torch.int64)
    if array.dtype.kind == "i" and int(array.max()) - int(array.min()) < _FEW:
        codes = torch.from_numpy(array).long() - int(array.min())  # counting takes a fraction of the time of sorting
        return (codes.bincount().bool().cumsum(0) - 1)[codes]
    return torch.from_numpy(np.unique(array, return_inverse=True)[1])


def _shares(fractions: Sequence[float]) -> list[Fraction]:
    """The fractions as they were meant: 0.29 of 100 samples is 29 of them, which it is not in binary."""
    if not hasattr(fractions, "__len__") or len(fractions) != 3:
        given = Option("fractions", fractions)
        raise ParameterError(given, " must be three numbers: of train, validation and test")
    values = [check_number(f"fractions[{i}]", value, at_least=0) for i, value in enumerate(fractions)]
    given = Option("fractions", tuple(fractions))
    if abs(sum(values) - 1) > 1e-6:
        raise ParameterError(given, f" must add up to 1, found {sum(values):g}")
    if not values[0]:
        raise ParameterError(given, " leaves nothing to train on; the first must be above 0")
    exact = [Fraction(value).limit_denominator(10**6) for value in values]
    return [value / sum(exact) for value in exact]


def _counts(sizes: list[int], shares: list[Fraction]) -> list[list[int]]:
    """How many of each class go to each set.

    What rounding down leaves over goes to the sets that are furthest behind so far, so that the sets as a whole come
    near their fractions too; small classes first, because they have the least choice.
    """
    counts = [[int(size * share) for share in shares] for size in sizes]
    due = [Fraction(0)] * len(shares)
    for number in sorted(range(len(sizes)), key=lambda number: sizes[number]):
        count = counts[number]
        due = [d + sizes[number] * share - n for d, share, n in zip(due, shares, count, strict=True)]
        for part in _furthest_behind(due, count, sizes[number], shares):
            count[part] += 1
            due[part] -= 1
    return counts


def _furthest_behind(due: list[Fraction], count: list[int], size: int, shares: list[Fraction]) -> list[int]:
    """The sets that get one more of a class: as many as are left over, none that has its exact fraction already."""
    open_parts = [part for part, share in enumerate(shares) if (size * share).denominator > 1]
    untrained = count[0] == 0
    open_parts.sort(key=lambda part: (not (untrained and part == 0), -due[part]))
    return open_parts[: size - sum(count)]


def _shuffled(classes: Tensor, seed: int) -> Tensor:
    """Sample numbers, class after class, in random order within each."""
    generator = torch.Generator().manual_seed(check_int("seed", seed, at_least=0))
    order = torch.randperm(len(classes), generator=generator)
    return order[classes[order].argsort(stable=True)]
