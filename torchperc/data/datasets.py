"""Data sets: labels of any name mapped to −1/+1 or to 0 … K−1, and back; or real targets as they are."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from torchperc._checks import (
    Data,
    Option,
    ParameterError,
    check_choice,
    check_labels,
    check_shape,
    check_targets,
    is_sparse,
)
from torchperc.data.table_encoder import TableEncoder, as_samples, codes_of, in_order
from torchperc.data.table_files import TASKS, is_number, listed, shortest
from torchperc.samples import convert
from torchperc.samples.mapped import CsrParts as CsrParts

_CLASSES = Option("task", "classification")


@dataclass(frozen=True, eq=False)  # tensors have no single answer to ==, so a data set equals itself only
class Dataset:
    """Samples with their labels mapped: two labels to −1/+1, K labels to 0 … K−1, and back by name.

    The second label in the order of ``labels`` is +1. :meth:`of` does the mapping; the constructor takes mapped codes.
    Without labels the samples have real targets, for regression.

    Args:
        X: the features (N, d). Dense ones are kept as a tensor of float64, sparse ones (scipy, or a sparse tensor) as a
            scipy CSR array of float64. A ``numpy.memmap`` and :class:`~torchperc.data.CsrParts` stay where they are.
        y: codes (N,): −1/+1 for two labels, 0 … K−1 for K. Of a regression the targets, float64.
        labels: the names of the labels, in the order of their codes; none for a regression.
        names: of the features.
        image_shape: rows and columns of the picture a sample is, if it is one.
        name: of the data set.
        encoder: how the columns of a table became the features, if they come from one.
        missing_positions: row and feature (M, 2) of the values that were missing in the source; X has the feature's
            mean there. Whoever splits the data imputes them again with the mean over the training set, or with 0 if no
            sample of that has a value.
        dropped: how many rows of the source were dropped because values were missing.
        target: the name of the target, if it has one.
        inferred_task: classification or regression, in a sentence, where that was inferred and could be otherwise.
        notes: sentences on what was recognised in a file, and what a reader of results should know about it.

    Example:
        >>> fruit = Dataset.of([[120, 7], [110, 19]], ["apple", "banana"], names=("weight", "length"))
        >>> fruit.y.tolist(), fruit.labels, fruit.classes
        ([-1, 1], ('apple', 'banana'), None)
        >>> fruit.decode([1, 1, -1])
        ['banana', 'banana', 'apple']
        >>> Dataset.of([[120], [110]], [0.85, 0.6], task="regression").y
        tensor([0.8500, 0.6000], dtype=torch.float64)
    """

    X: Data
    y: Tensor
    labels: tuple[str, ...]
    names: tuple[str, ...]
    image_shape: tuple[int, int] | None = None
    name: str = ""
    encoder: TableEncoder | None = None
    missing_positions: Tensor | None = None
    dropped: int = 0
    target: str | None = None
    inferred_task: str = ""
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        X = samples(self.X)
        if len(set(self.labels)) != len(self.labels) or len(self.labels) == 1:
            raise ValueError(f"labels={self.labels!r} must be at least two different names, or none for real targets")
        widths = {"names": len(self.names), "image_shape": self.image_shape and math.prod(self.image_shape)}
        for name, width in (widths | {"encoder": self.encoder and self.encoder.n_features}).items():
            if width not in (None, X.shape[1]):
                raise ValueError(f"{name} has {width} entries for {X.shape[1]} features of X; it needs one per feature")
        count = X.shape[0]
        y = check_labels(self.y, count, self.classes, both=False) if self.labels else check_targets(self.y, count)
        object.__setattr__(self, "y", y)
        object.__setattr__(self, "X", X)

    @classmethod
    def of(
        cls,
        X: Data,
        y: Data,
        *,
        names: Sequence[str] | None = None,
        task: str = "classification",
        **about: Any,
    ) -> Dataset:
        """A data set from labels ``y`` (N,) of any kind: words, numbers, truth values; numbers sort before words.

        With ``task="regression"`` they are finite numbers, and stay what they are. The features are called x1, x2, …
        unless ``names`` says otherwise; ``about`` are further arguments of the class, such as ``name``.

        Example:
            >>> digits = Dataset.of([[1.0], [2.0], [3.0]], [10, 9, 8])
            >>> digits.labels, digits.y.tolist(), digits.names
            (('8', '9', '10'), [2, 1, 0], ('x1',))
        """
        X = samples(X)
        names = tuple(f"x{j + 1}" for j in range(X.shape[1])) if names is None else tuple(map(str, names))
        values = _line(y)
        if check_choice("task", task, TASKS) == "regression":
            return cls(X, _targets(values), (), names, **about)
        labels, which = label_codes(values)
        if len(labels) < 2:
            raise ValueError(f"y has one label only, found {', '.join(labels)!r}; at least two classes are required")
        return cls(X, which if len(labels) > 2 else 2 * which - 1, labels, names, **about)

    @property
    def task(self) -> str:
        """``"classification"``, or ``"regression"`` if the targets are real numbers."""
        return "classification" if self.labels else "regression"

    @property
    def classes(self) -> int | None:
        """``None`` for two labels and for real targets, else the number of labels."""
        return len(self.labels) if len(self.labels) > 2 else None

    def decode(self, codes: Data) -> list[str]:
        """The names of labels given by their codes (N,), as ``predict`` returns them."""
        if not self.labels:
            raise ValueError("the targets are real numbers, which need no decoding; use the predictions as they are")
        values = check_labels(codes, sum(np.shape(codes)[:1]), self.classes, name="codes", both=False)
        names = {code: label for label, code in codes_of(self.labels).items()}
        return [names[code] for code in values.tolist()]

    def against_rest(self, positive: str | int) -> Dataset:
        """The same samples in two classes: one label (+1) against all others together (−1).

        Example:
            >>> Dataset.of([[1.0], [2.0], [3.0]], ["a", "b", "c"]).against_rest("b").labels
            ('not b', 'b')
        """
        if not self.labels:
            why = " needs classes, but the target is a quantity; leave it out, or use "
            raise ParameterError(Option("positive", positive), why, _CLASSES)
        if str(positive) not in self.labels:
            raise ParameterError(Option("positive", positive), f" is not a label; choose one of {listed(self.labels)}")
        y = torch.where(self.y == codes_of(self.labels)[str(positive)], 1, -1)
        other, *more = (label for label in self.labels if label != str(positive))
        return replace(self, y=y, labels=(f"not {positive}" if more else other, str(positive)))


def samples(X: Data) -> Any:
    """Samples as a data set keeps them: a tensor or CSR array of float64; what is larger than memory stays as it is."""
    if isinstance(X, CsrParts | np.memmap):
        check_shape(X.shape)
        if isinstance(X, np.memmap) and X.dtype not in (np.float32, np.float64):
            raise TypeError(f"X is mapped from a file as {X.dtype}; float32 or float64 is needed, so convert the file")
        return X
    if is_sparse(X):
        return as_samples(convert.sparse_features(X, dtype=torch.float64))
    return convert.features(X, dtype=torch.float64, convert=True)


def label_codes(y: Data) -> tuple[tuple[str, ...], Tensor]:
    """The different labels of any kind as words, in order, and the position of that of each sample."""
    values = _line(y)
    which = np.arange(len(values))
    if values.dtype.kind != "O":  # each value is looked at once
        values, which = np.unique(values, return_inverse=True)
    texts = [shortest(value) if isinstance(value, float) else str(value) for value in values.tolist()]
    for k, text in enumerate(texts):
        if values[k] is None or text.lower() == "nan":
            raise ValueError(f"y[{(which == k).argmax()}] = {text} is a missing label; fill it in or drop the sample")
    labels = in_order(set(texts))
    position = {label: k for k, label in enumerate(labels)}
    return labels, torch.tensor([position[text] for text in texts])[torch.from_numpy(which)]


def _targets(y: Any) -> Tensor:
    """Real targets as float64, not all the same."""
    values = np.array([float(value) if is_number(str(value)) else math.nan for value in y.tolist()])
    for wrong in np.flatnonzero(~np.isfinite(values))[:1]:
        said = f"y[{wrong}] = {y[wrong]} is not a finite number; correct it or drop the sample, or use "
        raise ParameterError(said, _CLASSES)
    if len(values) and values.min() == values.max():
        raise ValueError(f"y is {values[0]:g} for every sample; there is nothing to predict")
    return torch.from_numpy(values)


def _line(y: Data) -> Any:
    """An array of one dimension, of objects unless they are numbers or strings alone."""
    array = y.detach().cpu().numpy() if isinstance(y, Tensor) else y
    if not isinstance(array, np.ndarray) or array.dtype.kind not in "biufU":
        array = np.asarray(array, dtype=object)  # 1 and "a" stay two types
    if array.ndim != 1:
        raise ValueError(f"y must have one dimension, found shape {array.shape}; give one value per sample")
    return array
