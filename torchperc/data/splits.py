"""Which samples train, which choose and which judge: seeded splits and folds, class by class."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import torch
from torch import Tensor

from torchperc import _checks as checks
from torchperc._checks import Data
from torchperc.samples.shards import gathered, here

_FEW = 2**16
_PARTS = ("train", "validation", "test")


def split(
    y: Data,
    fractions: Sequence[float] = (0.6, 0.2, 0.2),
    seed: int = 0,
    stratify: bool = True,
    together: bool = False,
) -> tuple[Tensor, Tensor, Tensor]:
    """Sample numbers (int64) of a training, a validation and a test set, each in ascending order.

    The sets have no sample in common and hold all of them. Of a class with n samples a set with fraction f gets
    ⌊n·f⌋ or ⌈n·f⌉, and the training set at least one.

    Args:
        y: the labels (N,), of any kind.
        fractions: of train, validation and test, adding up to 1; the last two may be 0.
        seed: of the generator.
        stratify: split each class by itself; if not, all samples together.
        together: ``y`` are the labels of this process's shard. All processes of the process group must call this; the
            split is that of one process with all shards one after the other, and of it each gets the numbers of its own
            samples, counted from its first. For that every process sees the labels of all samples.

    Example:
        >>> train, validation, test = split([-1] * 6 + [1] * 4, fractions=(0.5, 0.5, 0))
        >>> len(train), len(validation), len(test), (train < 6).sum().item()
        (5, 5, 0, 3)
    """
    if checks.flag("together", together):
        every = gathered(_small(y))
        starts = np.cumsum([0, *map(len, every)]).tolist()
        first, last = starts[here()[0]], starts[here()[0] + 1]
        parts = split(np.concatenate(every), fractions, seed, stratify)
        train, validation, test = (part[(part >= first) & (part < last)] - first for part in parts)
        return train, validation, test
    classes = _classes(y, checks.flag("stratify", stratify))
    shares = _shares(fractions)
    counts = _counts(torch.bincount(classes).tolist(), shares)
    for part, name in enumerate(_PARTS):
        if fractions[part] > 0 and not any(count[part] for count in counts):
            why = f" leaves no sample for the {name} set of {len(classes)}; give more samples, or 0 for {name}"
            raise checks.ParameterError(checks.Option("fractions", tuple(fractions)), why)
    chunks = _shuffled(classes, seed).split([size for count in counts for size in count])
    train, validation, test = (torch.cat(chunks[part::3]).sort().values for part in range(3))
    return train, validation, test


def folds(y: Data | int, k: int = 5, seed: int = 0) -> list[tuple[Tensor, Tensor]]:
    """k pairs of sample numbers (train, held out): every sample is held out once, numbers in ascending order.

    The folds differ in size by one sample at most, and so does each class from fold to fold. A class with one sample
    only is missing from the training set of the fold that holds it out.

    Args:
        y: the labels (N,), of any kind; or the number of samples, to split them without regard to classes.
        k: the number of folds, from 2 to N; N leaves one out at a time.
        seed: of the generator.

    Example:
        >>> for train, held_out in folds([-1] * 4 + [1] * 2, k=2):
        ...     print(len(train), (held_out < 4).sum().item(), (held_out >= 4).sum().item())
        3 2 1
        3 2 1
    """
    whole = isinstance(y, (int, np.integer))
    classes = torch.zeros(checks.whole("y", y, at_least=2), dtype=torch.int64) if whole else _classes(y, True)
    k = checks.whole("k", k, at_least=2)
    if k > len(classes):
        raise ValueError(f"k={k} must be at most the number of samples, {len(classes)}")
    fold = torch.empty_like(classes)
    fold[_shuffled(classes, seed)] = torch.arange(len(classes)) % k  # dealt like cards, one class after the other
    return [(torch.nonzero(fold != i)[:, 0], torch.nonzero(fold == i)[:, 0]) for i in range(k)]


def _small(y: Data) -> np.ndarray[Any, Any]:
    """Labels in the fewest bytes, to be sent to others."""
    array: np.ndarray[Any, Any] = y.detach().cpu().numpy() if isinstance(y, Tensor) else np.asarray(y)
    return array.astype(np.int16) if array.dtype == np.int64 and not (abs(array) > 2**15 - 1).any() else array


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
        given = checks.Option("fractions", fractions)
        raise checks.ParameterError(given, " must be three numbers: of train, validation and test")
    values = [checks.number(f"fractions[{i}]", value, at_least=0) for i, value in enumerate(fractions)]
    given = checks.Option("fractions", tuple(fractions))
    if abs(sum(values) - 1) > 1e-6:
        raise checks.ParameterError(given, f" must add up to 1, found {sum(values):g}")
    if not values[0]:
        raise checks.ParameterError(given, " leaves nothing to train on; the first must be above 0")
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
    generator = torch.Generator().manual_seed(checks.whole("seed", seed, at_least=0))
    order = torch.randperm(len(classes), generator=generator)
    return order[classes[order].argsort(stable=True)]
