"""The page as a widget of a notebook, which hands the edited points back."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anywidget
import traitlets

from torchperc.lab.play import page
from torchperc.lab.play.coding import Coding
from torchperc.lab.play.shown import HEIGHT, SANDBOX, Play


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
        shown = {**content, "widget": True}
        data = _data(content)
        super().__init__(
            frame=page.frame(page.title_of(content)),
            content=shown,
            height=height,
            points=data["points"],
            labels=data["labels"],
        )
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
    if "data" in start:
        return dict(start["data"])
    chosen = next(each for each in content["presets"] if each["id"] == start["preset"])
    return {name: chosen[name] for name in ("points", "labels", "classes")}
