"""Labels in the user's own coding: what a class of the page is called in Python."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from torchperc._checks import Data
from torchperc.data.dataset import Dataset


@dataclass(frozen=True)
class Coding:
    """How samples and labels are handed back: as tensors or arrays, of the types and label values that were given.

    A class that was added on the page has a label that follows: of −1/+1, all become class indices 0 … K − 1, as
    torchperc has them with more than two classes; other numbers go on after the largest; words go on with "class 3".

    Args:
        values: the label of each class, in the order of the page.
        samples: an empty tensor like the samples, if they were a tensor.
        labels: one like the labels, if they were.

    Example:
        >>> coding = Coding.of(np.zeros((2, 2)), ["yes", "no"])
        >>> coding.labels_of([0, 1, 1, 2])
        array(['no', 'yes', 'yes', 'class 3'], dtype='<U7')
    """

    values: tuple[Any, ...] = (-1, 1)
    samples: Data = None
    labels: Data = None

    @classmethod
    def of(cls, X: Data | None, y: Data | None) -> Coding:
        """The coding of data as they were given; −1/+1 in numpy arrays without any."""
        if y is None:
            return cls()
        table = Dataset.of(X, y)
        codes = table.y if table.classes else (table.y + 1) // 2
        given = y.detach().cpu().numpy() if isinstance(y, torch.Tensor) else np.asarray(y)
        values = tuple(given[int((codes == k).nonzero()[0, 0])] for k in range(len(table.labels)))
        return cls(
            values, X[:0] if isinstance(X, torch.Tensor) else None, y[:0] if isinstance(y, torch.Tensor) else None
        )

    def samples_of(self, points: Any) -> Data:
        """Points (N, 2) as samples of the type that was given."""
        array = np.array(points, dtype=np.float64).reshape(-1, 2)
        if isinstance(self.samples, torch.Tensor):
            floating = self.samples.dtype if self.samples.is_floating_point() else torch.get_default_dtype()
            return torch.from_numpy(array).to(self.samples.device, floating)
        return array

    def labels_of(self, classes: Any) -> Data:
        """Class indices (N,) as labels of the coding that was given."""
        indices = np.array(classes, dtype=np.int64)
        array = self._labels(int(indices.max(initial=0)) + 1)[indices]
        return torch.from_numpy(array).to(self.labels.device) if isinstance(self.labels, torch.Tensor) else array

    def _labels(self, count: int) -> np.ndarray[Any, Any]:
        """The label of each class, so many at least."""
        more = max(count - len(self.values), 0)
        if not more:
            return np.array(self.values)
        if set(self.values) == {-1, 1}:
            return np.arange(count)
        if all(isinstance(value, int | float | np.integer | np.floating) for value in self.values):
            return np.array([*self.values, *(max(self.values) + k for k in range(1, more + 1))])
        return np.array([*map(str, self.values), *(f"class {len(self.values) + k + 1}" for k in range(more))])
