"""Weights as images, for samples that are images themselves."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from torchperc._checks import check_int
from torchperc.plots import style
from torchperc.plots.classifiers import classifier

_COLUMNS = 5  # of images that are no wider than high


@dataclass(eq=False, repr=False)
class WeightsDisplay(style.Display):
    """What each class looks for: its weights as an image, on one scale for all classes that is symmetric about 0.

    Args:
        weight: a row (of rows·columns numbers) for each class; a single one for −1/+1.
        shape: rows and columns of an image.
        labels: names of the classes.

    After :meth:`plot`, ``images_`` are the images and ``colorbar_`` the scale.

    Example:
        >>> import torch
        >>> display = WeightsDisplay(torch.eye(4), (2, 2)).plot()
        >>> len(display.images_), display.images_[0].get_clim()
        (4, (-1.0, 1.0))
    """

    weight: Tensor
    shape: tuple[int, int]
    labels: style.Labels = None

    @classmethod
    def from_model(
        cls, model: Any, shape: tuple[int, int] | None = None, *, labels: style.Labels = None, ax: style.AnyAxes = None
    ) -> WeightsDisplay:
        """Draw the weights of a linear model, without the bias.

        ``shape`` is the rows and columns of an image, such as (8, 8); a square by default.

        Example:
            >>> import torchperc as tp
            >>> len(WeightsDisplay.from_model(tp.MulticlassPerceptron(64, 10), (8, 8)).images_)
            10
        """
        weight = classifier(model).weight
        if weight is None:
            raise ValueError(f"model is a {type(model).__name__} without weights for each feature; give a linear one")
        return cls(weight, _shape(shape, weight.shape[1]), labels).plot(ax=ax)

    def _place(self, ax: Any) -> style.Place:
        count, (rows, columns) = len(self.weight), self.shape
        if count == 1:
            return style.panels(ax, 1, 1, (4.6, 3.4))
        across = min(count, max(1, min(_COLUMNS, _COLUMNS * rows // columns)))
        height = 0.35 + min(6.0 / across * rows / columns, 1.6)
        return style.panels(ax, count, across, (7.0, max(2.4, height * -(-count // across))))

    def _draw(self, own: bool) -> None:
        count = len(self.weight)
        names = ["w"] if count == 1 and self.labels is None else style.label_names(self.labels, range(count), True)
        largest = float(self.weight.abs().max()) or 1.0
        self.images_ = []
        for panel, name, row in zip(self.ax_, names, self.weight.double(), strict=True):
            image = panel.imshow(row.reshape(self.shape).numpy(), cmap="PuOr_r", vmin=-largest, vmax=largest)
            self.images_.append(image)
            panel.set_title(style.shortened(name, 16), fontsize=9, pad=3)
            panel.set(xticks=[], yticks=[])
        self.colorbar_ = style.weight_bar(self.figure_, self.images_[0], self.ax_)


def _shape(shape: object, width: int) -> tuple[int, int]:
    if shape is None:
        side = math.isqrt(width)
        if side * side != width:
            raise ValueError(f"the model has {width} weights, which make no square; give shape=(rows, columns)")
        return side, side
    if not isinstance(shape, Sequence) or len(shape) != 2:
        raise TypeError(f"shape={shape!r} must be two integers, rows and columns, such as (8, 8)")
    rows, columns = (check_int("shape", side, at_least=1) for side in shape)
    if rows * columns != width:
        raise ValueError(
            f"shape={(rows, columns)} has {rows * columns} places for {width} weights; they must be as many"
        )
    return rows, columns
