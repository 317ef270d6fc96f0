"""Data sets with named labels: any two of them mapped to −1/+1, any K to 0 … K−1, and back by name."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from torchperc import checks
from torchperc.checks import Data


@dataclass(frozen=True, eq=False)  # tensors have no single answer to ==, so a data set equals itself only
class Dataset:
    """Samples with their labels mapped: two labels to −1/+1, K labels to 0 … K−1, and back by name.

    The second label in the order of ``labels`` is +1. :meth:`of` does the mapping; the constructor takes mapped codes.

    Args:
        X: the features, kept in float64.
        y: −1/+1 for two labels, 0 … K−1 for K.
        labels: the names of the labels, in the order of their codes.
        names: of the features.
        image_shape: rows and columns of the picture a sample is, if it is one.
        name: of the data set.

    Shape:
        X (N, d), y (N,).

    Example:
        >>> fruit = Dataset.of([[120, 7], [110, 19]], ["apple", "banana"], names=("weight", "length"))
        >>> fruit.y.tolist(), fruit.labels, fruit.classes
        ([-1, 1], ('apple', 'banana'), None)
        >>> fruit.decode([1, 1, -1])
        ['banana', 'banana', 'apple']
    """

    X: Tensor
    y: Tensor
    labels: tuple[str, ...]
    names: tuple[str, ...]
    image_shape: tuple[int, int] | None = None
    name: str = ""

    def __post_init__(self) -> None:
        X = checks.features(self.X, dtype=torch.float64, convert=True)
        if len(set(self.labels)) != len(self.labels) or len(self.labels) < 2:
            raise ValueError(f"labels={self.labels!r} must be at least two different names")
        if len(self.names) != X.shape[1]:
            raise ValueError(f"names has {len(self.names)} entries for {X.shape[1]} features; name every feature once")
        if self.image_shape is not None and math.prod(self.image_shape) != X.shape[1]:
            raise ValueError(f"image_shape={self.image_shape} does not hold {X.shape[1]} features")
        object.__setattr__(self, "y", self._codes(self.y, len(X), "y"))
        object.__setattr__(self, "X", X)

    @classmethod
    def of(
        cls,
        X: Data,
        y: Data,
        *,
        names: Sequence[str] | None = None,
        image_shape: tuple[int, int] | None = None,
        name: str = "",
    ) -> Dataset:
        """A data set from labels of any kind: words, numbers, truth values; numbers sort before words.

        Args:
            X: samples in rows.
            y: one label a sample.
            names: of the features; x1, x2, … by default.
            image_shape: rows and columns of the picture a sample is, if it is one.
            name: of the data set.

        Shape:
            X (N, d), y (N,).

        Example:
            >>> digits = Dataset.of([[1.0], [2.0], [3.0]], [10, 9, 8])
            >>> digits.labels, digits.y.tolist(), digits.names
            (('8', '9', '10'), [2, 1, 0], ('x1',))
        """
        X = checks.features(X, dtype=torch.float64, convert=True)
        given = [_text(value, i) for i, value in enumerate(_one_each(y))]
        labels = tuple(sorted(set(given), key=_label_key))
        if len(labels) < 2:
            raise ValueError(f"y has one label only, found {', '.join(map(repr, labels))}; two are needed")
        codes = {label: 2 * k - 1 if len(labels) == 2 else k for k, label in enumerate(labels)}
        names = tuple(f"x{j + 1}" for j in range(X.shape[1])) if names is None else tuple(map(str, names))
        return cls(X, torch.tensor([codes[label] for label in given]), labels, names, image_shape, name)

    @property
    def classes(self) -> int | None:
        """``None`` for two labels, else their number."""
        return None if len(self.labels) == 2 else len(self.labels)

    def decode(self, codes: Data) -> list[str]:
        """The names of labels given by their codes, as ``predict`` returns them.

        Args:
            codes: −1/+1 for two labels, 0 … K−1 for K.

        Shape:
            (N,).
        """
        count = np.shape(codes)[0] if np.ndim(codes) else 0
        values = self._codes(codes, count, "codes").tolist()
        return [self.labels[value if self.classes else (value + 1) // 2] for value in values]

    def against_rest(self, positive: str | int) -> Dataset:
        """The same samples in two classes: one label (+1) against all others together (−1).

        Args:
            positive: the label that becomes +1.

        Example:
            >>> Dataset.of([[1.0], [2.0], [3.0]], ["a", "b", "c"]).against_rest("b").labels
            ('not b', 'b')
        """
        if str(positive) not in self.labels:
            raise ValueError(f"positive={positive!r} is no label; choose one of {', '.join(map(repr, self.labels))}")
        chosen = [label == str(positive) for label in self.decode(self.y)]
        others = [label for label in self.labels if label != str(positive)]
        rest = others[0] if len(others) == 1 else f"not {positive}"
        return replace(self, y=torch.tensor(chosen) * 2 - 1, labels=(rest, str(positive)))

    def _codes(self, codes: Data, count: int, name: str) -> Tensor:
        if self.classes is None:
            return checks.signs(codes, count, name=name, both=False)
        return checks.class_indices(codes, count, self.classes, name=name, both=False)


def shortest(number: float) -> str:
    """0.1 comes back as 0.1, 1.0 as 1, and −0 is 0."""
    return repr(number + 0.0).removesuffix(".0")


def _one_each(y: Data) -> list[Any]:
    array = (
        y.detach().cpu().numpy() if isinstance(y, Tensor) else np.asarray(y, dtype=object)
    )  # 1 and "a" stay two types
    if array.ndim != 1:
        raise ValueError(f"y must have one dimension, found shape {array.shape}; give one label a sample")
    values: list[Any] = array.tolist()
    return values


def _text(value: Any, index: int) -> str:
    text = shortest(value) if isinstance(value, float) else str(value)
    if value is None or text.lower() == "nan":
        raise ValueError(f"y[{index}] = {value} is a missing label; fill it in or drop the sample")
    return text


def is_number(cell: str) -> bool:
    """Whether a cell of a table reads as a number."""
    try:
        float(cell)
    except ValueError:
        return False
    return "_" not in cell  # Python's own way of writing 1_000, nobody's in a table


def _label_key(label: str) -> tuple[bool, float, str]:
    return (False, float(label), label) if is_number(label) else (True, 0.0, label)
