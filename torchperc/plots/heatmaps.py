"""Heat maps: images of each class's weights, transitions between tags, and the confusion matrix."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import lazy_loader
import numpy as np
import torch
from torch import Tensor
from typing_extensions import Self

from torchperc._checks import Data
from torchperc.nn.heads import Head
from torchperc.plots import style
from torchperc.plots.classifiers import classifier, codes_of

sklearn = lazy_loader.load("sklearn")

_WRITTEN = 12  # tags up to which each weight is written as a number
_SMALLEST = 5.0  # points: smaller text cannot be read


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
            raise ValueError(f"model is a {type(model).__name__} without feature weights; pass a linear model")
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

    def _draw(self) -> None:
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

    def _draw(self) -> None:
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


@dataclass(eq=False, repr=False)
class ConfusionDisplay(style.Display):
    """The confusion matrix: counts by true label (rows) and predicted label, shaded by the fraction of the row.

    ``matrix`` has the counts (K, K), ``labels`` names the classes. With too many classes for legible numbers, the
    shades have a scale instead. After :meth:`plot`, ``image_`` is the image and ``texts_`` has the numbers by row and
    column.

    Example:
        >>> display = ConfusionDisplay(torch.tensor([[3, 1], [0, 2]]), ("no", "yes")).plot()
        >>> display.texts_[0, 1].get_text()
        '1'
    """

    matrix: Tensor
    labels: Sequence[str]

    @classmethod
    def from_predictions(
        cls, y: Data, predicted: Data, labels: style.Labels = None, *, ax: style.AnyAxes = None
    ) -> Self:
        """Draw how predictions compare with the truth: labels −1/+1, class indices, or strings.

        Example:
            >>> ConfusionDisplay.from_predictions(["no", "yes", "no"], ["no", "no", "no"]).matrix
            tensor([[2, 0],
                    [1, 0]])
        """
        truth, said = (np.asarray(v.detach().cpu() if isinstance(v, Tensor) else v) for v in (y, predicted))
        if truth.shape != said.shape or truth.ndim != 1 or not truth.size:
            found = f"y has shape {truth.shape} and predicted {said.shape}"
            raise ValueError(f"{found}; both need one label per sample, (N,) with N ≥ 1")
        values = np.unique(np.concatenate((truth, said)).astype(str if truth.dtype.kind in "UO" else None))
        codes, names = _classes(values, labels)
        if missing := set(values.tolist()) - set(codes):
            wanted = f"−1 and +1, class indices from 0, or strings that labels={labels!r} names"
            raise ValueError(f"y and predicted must hold {wanted}; found {min(missing, key=str)!r}")
        return cls(torch.from_numpy(sklearn.metrics.confusion_matrix(truth, said, labels=codes)), names).plot(ax=ax)

    @classmethod
    def from_model(
        cls, model: Any, X: Data, y: Data, *, head: Head | None = None, labels: style.Labels = None, ax: Any = None
    ) -> Self:
        """Draw which labels a model predicts for which; its arguments are those of all displays."""
        known = classifier(model, head)
        _, scores, truth = known.judge(X, y)
        codes, said = codes_of(scores), known.head.decide(scores)
        matrix = sklearn.metrics.confusion_matrix(truth, said, labels=codes)
        return cls(torch.from_numpy(matrix), style.label_names(labels, codes)).plot(ax=ax)

    def _place(self, ax: Any) -> style.Place:
        count = len(self.matrix)
        self._cell = min(6.4, max(1.6, 0.4 * count)) / count  # inches
        self._names = [style.shortened(label, 24) for label in self.labels]
        longest = max(map(len, self._names))
        self._slanted = 0.1 * (longest + 1) > self._cell  # too long to stand side by side
        side, room = self._cell * count, 0.085 * longest
        return style.canvas(ax, (max(3.4, side + room + 0.6), side + 0.9 + (0.75 * room if self._slanted else 0.2)))

    def _draw(self) -> None:
        axes, counts = self.ax_, self.matrix.numpy()
        fractions = counts / counts.sum(1, keepdims=True).clip(min=1)  # of a row: a rare class's confusions are seen
        size = min(9.0, 90 * self._cell / len(str(counts.max())))
        every = int(np.ceil(_SMALLEST / (60 * self._cell)))  # of very many classes some are named
        names = [name if k % every == 0 else "" for k, name in enumerate(self._names)]
        look: dict[str, Any] = {"include_values": size >= _SMALLEST, "colorbar": False, "text_kw": {"fontsize": size}}
        drawn = sklearn.metrics.ConfusionMatrixDisplay(fractions, display_labels=names)
        drawn.plot(ax=axes, cmap="Blues", im_kw={"vmin": 0, "vmax": 1}, **look)
        self.image_, self.texts_ = drawn.im_, dict(np.ndenumerate([] if drawn.text_ is None else drawn.text_))
        if not self.texts_:
            bar = self.figure_.colorbar(self.image_, ax=axes, pad=0.02, aspect=30, shrink=0.8)
            bar.set_label("fraction of the row", fontsize=9)
        for (row, column), text in self.texts_.items():
            number, light = counts[row, column], fractions[row, column] > 0.5
            weight = "bold" if number and row != column else "normal"
            text.set(text=number, color="white" if light else "black" if number else "#8A8A8A", fontweight=weight)
        slanted = {"rotation": 45, "ha": "right", "rotation_mode": "anchor"} if self._slanted else {}
        for label in axes.get_xticklabels():
            label.set(**slanted)
        axes.tick_params(labelsize=min(10.0, max(_SMALLEST, 57.6 * self._cell)))
        axes.set(xlabel="predicted label", ylabel="true label")
        title = f"{int(counts.sum() - counts.trace()):,} of {int(counts.sum()):,} wrong"
        axes.set_title(title, fontsize=11 if len(title) < 24 else 9)


def _classes(values: np.ndarray[Any, Any], labels: style.Labels) -> tuple[list[Any], list[str]]:
    """The codes of all classes in order, and their names, by the values that occur."""
    if values.dtype.kind == "U":
        codes = values.tolist() if labels is None else [str(label) for label in labels]
        return codes, codes
    few = labels is None or len(labels) == 2 or -1 in values  # of three classes, class 1 may occur alone
    count = max(int(np.nan_to_num(values[-1])) + 1, 2 if labels is None else len(labels))
    every = [-1, 1] if few and np.isin(values, [-1, 1]).all() else list(range(count))
    return every, style.label_names(labels, every)
