"""Weights as heat maps: images of each class's weights, and the transitions between tags."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from typing_extensions import Self

from torchperc.plots import style
from torchperc.plots.classifiers import classifier

_WRITTEN = 12  # tags up to which each weight is written as a number


def _draw_weights(
    display: style.Display, axes: Sequence[style.Axes], tables: Sequence[Tensor], largest: float, **look: Any
) -> tuple[list[Any], Any]:
    """Draw tables of weights as colours on one scale that is symmetric about 0."""
    colours: dict[str, Any] = {"cmap": "PuOr_r", "vmin": -largest, "vmax": largest}
    images = [ax.imshow(table.double().numpy(), **colours) for ax, table in zip(axes, tables, strict=True)]
    bar = display.figure_.colorbar(images[0], ax=axes, pad=0.02, aspect=25, **look)
    bar.set_label("weight (+ for, − against)", fontsize=9)
    return images, bar


@dataclass(eq=False, repr=False)
class WeightsDisplay(style.Display):
    """The weights of each class as an image, on one scale for all classes.

    ``weight`` has a row of rows·columns numbers for each class, a single one for −1/+1; ``shape`` is the rows and
    columns of an image. After :meth:`plot`, ``images_`` are the images and ``colorbar_`` the scale.

    Example:
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
    ) -> Self:
        """Draw the weights of a linear model, without the bias.

        ``shape`` is the rows and columns of an image, such as (8, 8); a square by default.
        """
        weight = classifier(model).weight
        if weight is None:
            raise ValueError(f"model is a {type(model).__name__} without weights for each feature; give a linear one")
        width = weight.shape[1]
        given = (math.isqrt(width), math.isqrt(width)) if shape is None else shape
        if not isinstance(given, Sequence) or len(given) != 2 or math.prod(given) != width:
            raise ValueError(f"shape={given!r} must be the rows and columns of {width} weights, such as (8, 8) of 64")
        return cls(weight, (given[0], given[1]), labels).plot(ax=ax)

    def _place(self, ax: Any) -> style.Place:
        count, (rows, columns) = len(self.weight), self.shape
        if count == 1:
            return style.panels(ax, 1, 1, (4.6, 3.4))
        across = min(count, max(1, min(5, 5 * rows // columns)))
        height = 0.35 + min(6.0 / across * rows / columns, 1.6)
        return style.panels(ax, count, across, (7.0, max(2.4, height * -(-count // across))))

    def _draw(self, own: bool) -> None:
        count = len(self.weight)
        names = ["w"] if count == 1 and self.labels is None else style.label_names(self.labels, range(count))
        largest = float(self.weight.abs().max()) or 1.0
        for panel, name in zip(self.ax_, names, strict=True):
            panel.set_title(style.shortened(name, 16), fontsize=9, pad=3)
            panel.set(xticks=[], yticks=[])
        tables = [row.reshape(self.shape) for row in self.weight]
        self.images_, self.colorbar_ = _draw_weights(self, self.ax_, tables, largest)


@dataclass(eq=False, repr=False)
class TransitionDisplay(style.Display):
    """The weights of all transitions between tags, with those from the start and to the end.

    A row for each previous tag and a column for each tag after it. Up to 12 tags have their weights written as numbers;
    of more tags, the scale leaves out the 0.5 % largest weights. ``transition`` has weights (K + 1, K), the last row
    from the start; ``end`` has those to the end (K,).

    After :meth:`plot`, ``image_`` is the image, ``texts_`` has the numbers by row and column, ``colorbar_`` the scale.

    Example:
        >>> display = TransitionDisplay(torch.tensor([[0.0, 2.0], [-1.0, 0.0], [3.0, 0.0]]), torch.zeros(2)).plot()
        >>> display.texts_[0, 0].get_text(), display.texts_[1, 1].get_text()  # from the start to tag 0, from 0 to 1
        ('3', '2')
    """

    transition: Tensor
    end: Tensor
    labels: style.Labels = None

    @classmethod
    def from_model(cls, model: Any, *, labels: style.Labels = None, ax: style.AnyAxes = None) -> Self:
        """Draw the transitions of a ``ChainPerceptron``, or of a Lightning module with one as ``net``."""
        net = getattr(model, "net", model)
        weights = [getattr(net, name, None) for name in ("transition", "end")]
        if not all(isinstance(each, Tensor) for each in weights):
            raise TypeError(f"model must be a ChainPerceptron or have one as its net, found {type(model).__name__}")
        transition, end = (each.detach().double().cpu() for each in weights)  # type: ignore[union-attr]  # see above
        return cls(transition, end, labels).plot(ax=ax)

    def _place(self, ax: Any) -> style.Place:
        count = len(self.end)
        self._names = [style.shortened(name) for name in style.label_names(self.labels, range(count))]
        # inches that the numbers need, or the names of many tags
        self._side = min(16.0, 2.6 + 0.42 * min(count, _WRITTEN) + 0.12 * max(0, count - _WRITTEN))
        room = 0.08 * max(0, max(map(len, self._names)) - 8)  # for long names
        return style.canvas(ax, (self._side + 1.0 + room, self._side + room))

    def _draw(self, own: bool) -> None:
        count, axes, names = len(self.end), self.ax_, self._names
        if self.transition.shape != (count + 1, count):
            found = f"transition has shape {tuple(self.transition.shape)} for {count} weights of the end"
            raise ValueError(f"{found}; it must be {(count + 1, count)}, with the start as its last row")
        after = torch.cat((self.end.new_full((1,), math.nan), self.end))  # nothing goes from the start to the end
        weights = torch.cat((self.transition.roll(1, 0), after[:, None]), 1).double()
        sizes = weights[weights.isfinite()].abs()
        top = float(sizes.max())
        largest = (float(sizes.quantile(0.995)) if count > _WRITTEN else top) or top or 1.0
        more: dict[str, Any] = {"shrink": 0.8, "extend": "both" if top > largest else "neither"}
        (self.image_,), self.colorbar_ = _draw_weights(self, [axes], [weights], largest, **more)
        axes.set_facecolor("#DDDDDD")
        self.texts_ = {}
        for row, column in weights.isfinite().nonzero().tolist() if count <= _WRITTEN else ():
            weight = float(weights[row, column]) + 0.0  # which turns −0 into 0
            text = (f"{weight:.2g}" if abs(weight) < 100 else f"{weight:.0f}").replace("-", "−")
            look: dict[str, Any] = {"color": "white" if abs(weight) > 0.6 * largest else "black", "fontsize": 8}
            self.texts_[row, column] = axes.text(column, row, text, ha="center", va="center", **look)
        small: dict[str, Any] = {"fontsize": min(10.0, 0.6 * 72 * (self._side - 1.6) / (count + 1))}
        small["parse_math"] = False  # tags such as PRP$ are no formulas
        upright = {"rotation": 90} if (count + 1) * max(map(len, names)) > 40 else {}
        axes.set_xticks(range(count + 1), [*names, "end"], **small, **upright)
        axes.set_yticks(range(count + 1), ["start", *names], **small)
        axes.set(xlabel="tag", ylabel="previous tag")
        axes.axhline(0.5, color="black", linewidth=0.8)
        axes.axvline(count - 0.5, color="black", linewidth=0.8)
        axes.set_title("Weights of the transitions", fontsize=11)
