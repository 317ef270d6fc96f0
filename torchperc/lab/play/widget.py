"""The page as a widget of a notebook, which hands the edited points back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anywidget
import numpy as np
import torch
import traitlets

from torchperc._checks import Data
from torchperc.data.datasets import Dataset
from torchperc.lab.play import page
from torchperc.lab.play.page import HEIGHT, SANDBOX, Play


@dataclass(frozen=True)
class Coding:
    """Converts points and classes of the page back to the types and label values that were given.

    A class that was added on the page has a label that follows: of −1/+1, all become class indices 0 … K − 1; other
    numbers continue after the largest, words with "class 3".

    Example:
        >>> coding = Coding.of(np.zeros((2, 2)), ["yes", "no"])
        >>> coding.labels_of([0, 1, 1, 2])
        array(['no', 'yes', 'yes', 'class 3'], dtype='<U7')
    """

    values: tuple[Any, ...] = (-1, 1)  # the label of each class, in the order of the page
    X: Data = None  # the samples and labels that were given
    y: Data = None

    @classmethod
    def of(cls, X: Data | None, y: Data | None) -> Coding:
        """The coding of data as they were given; −1/+1 in numpy arrays without any."""
        if y is None:
            return cls()
        table = Dataset.of(X, y)
        codes = table.y if table.classes else (table.y + 1) // 2
        given = y.detach().cpu().numpy() if isinstance(y, torch.Tensor) else np.asarray(y)
        return cls(tuple(given[int((codes == k).nonzero()[0, 0])] for k in range(len(table.labels))), X, y)

    def samples_of(self, points: Any) -> Data:
        """Points (N, 2) as samples of the type that was given."""
        array = np.array(points, dtype=np.float64).reshape(-1, 2)
        if not isinstance(self.X, torch.Tensor):
            return array
        floating = self.X.dtype if self.X.is_floating_point() else torch.get_default_dtype()
        return torch.from_numpy(array).to(self.X.device, floating)

    def labels_of(self, classes: Any) -> Data:
        """Class indices (N,) as labels of the coding that was given."""
        indices, values = np.array(classes, dtype=np.int64), list(self.values)
        added = range(len(values), int(indices.max(initial=0)) + 1)
        if added and set(values) == {-1, 1}:
            values = list(range(added.stop))
        elif added and all(isinstance(value, int | float | np.number) for value in values):
            values += [max(values) + k + 1 for k in range(len(added))]
        elif added:
            values = [*map(str, values), *(f"class {k + 1}" for k in added)]
        array = np.array(values)[indices]
        return torch.from_numpy(array).to(self.y.device) if isinstance(self.y, torch.Tensor) else array


class PlayWidget(anywidget.AnyWidget):
    """The page in a notebook; the points as they are there now are :attr:`X` and :attr:`y`.

    Args:
        content: of the page.
        coding: how points and labels are handed back.
        height: pixels.

    Attributes:
        points: [[x₁, x₂], …], to be observed: ``widget.observe(act, "points")``.
        labels: class indices from 0.

    Example:
        >>> widget = PlayWidget(page.content({"preset": "OR"}))
        >>> widget.X.shape, widget.y.tolist()
        ((4, 2), [-1, 1, 1, 1])
    """

    _esm = page.source("widget.js")
    sandbox = traitlets.Unicode(SANDBOX).tag(sync=True)
    frame = traitlets.Unicode().tag(sync=True)
    content = traitlets.Dict().tag(sync=True)
    height = traitlets.Int(HEIGHT).tag(sync=True)
    points: traitlets.List[Any] = traitlets.List().tag(sync=True)
    labels: traitlets.List[Any] = traitlets.List().tag(sync=True)
    edited = traitlets.Bool(False).tag(sync=True)

    def __init__(self, content: Mapping[str, Any], coding: Coding | None = None, height: int = HEIGHT) -> None:
        shown, data = {**content, "widget": True}, _data(content)
        begin = {"points": data["points"], "labels": data["labels"]}
        super().__init__(frame=page.frame(content["title"]), content=shown, height=height, **begin)
        self._coding = coding or Coding()

    @property
    def X(self) -> Any:  # noqa: N802  as everywhere
        """The points (N, 2), as a tensor if a tensor was given, else as an array."""
        return self._coding.samples_of(self.points)

    @property
    def y(self) -> Any:
        """Their labels (N,), by the values that were given."""
        return self._coding.labels_of(self.labels)

    def save(self, path: str | Path) -> Path:
        """Write the page with the points as they are now to a file."""
        content = {**self.content, "widget": False}
        if self.edited:
            data = {**_data(content), "points": self.points, "labels": self.labels}
            data["classes"] = max(2, data["classes"], max(self.labels, default=0) + 1)
            content |= {"start": {**content["start"], "data": data}, "recorded": None}
        return Play(content).save(path)


def _data(content: Mapping[str, Any]) -> dict[str, Any]:
    """The data that a page begins with."""
    start = content["start"]
    chosen = start.get("data") or next(each for each in content["presets"] if each["id"] == start["preset"])
    shown = ("points", "labels", "classes", "names", "classNames", "description")
    return {name: chosen[name] for name in shown if name in chosen}
