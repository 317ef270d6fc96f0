"""Which labels are predicted for which."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from torchperc._checks import Data
from torchperc.nn.heads import Head
from torchperc.plots import style
from torchperc.plots.classifiers import classifier
from torchperc.plots.planes import codes_of

_SMALLEST = 5.0  # points: what is smaller cannot be read


@dataclass(eq=False, repr=False)
class ConfusionDisplay(style.Display):
    """The confusion matrix: samples by true label (rows) and predicted label (columns), as numbers and as shades.

    Args:
        matrix: counts (K, K).
        labels: names of the classes.

    With so many classes that numbers would not be legible, the shades have a scale instead.

    After :meth:`plot`, ``image_`` is the image and ``texts_`` has the numbers by row and column.

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
    ) -> ConfusionDisplay:
        """Draw how predictions compare with the truth: labels −1/+1, or class indices.

        Example:
            >>> ConfusionDisplay.from_predictions([1, 1, -1, -1], [1, -1, -1, -1]).matrix
            tensor([[2, 0],
                    [1, 1]])
        """
        truth, said = _integers("y", y), _integers("predicted", predicted)
        if not len(truth):
            raise ValueError("y is empty; give at least one label")
        if len(truth) != len(said):
            raise ValueError(f"y has {len(truth)} labels and predicted {len(said)}; they must have the same length")
        found = torch.cat((truth, said))
        indices = labels is not None and len(labels) > 2 and bool((found == 1).all())  # index 1 of three or more
        signs = not indices and bool((found.abs() == 1).all())
        if not signs and int(found.min()) < 0:
            values = ", ".join(map(str, found.unique().tolist()[:5]))
            raise ValueError(f"y and predicted must hold −1 and +1, or class indices from 0; found {values}")
        count = max(int(found.max()) + 1, 2 if labels is None else len(labels))
        codes = [-1, 1] if signs else list(range(count))
        return cls(_count(truth, said, codes), style.label_names(labels, codes, not signs)).plot(ax=ax)

    @classmethod
    def from_model(
        cls,
        model: Any,
        X: Data,
        y: Data,
        *,
        head: Head | None = None,
        labels: style.Labels = None,
        ax: style.AnyAxes = None,
    ) -> ConfusionDisplay:
        """Draw which labels a model predicts for which; its arguments are those of all displays.

        Example:
            >>> import torchperc as tp
            >>> ConfusionDisplay.from_model(tp.Perceptron(2), *tp.data.gate("AND")).matrix
            tensor([[0, 3],
                    [0, 1]])
        """
        known = classifier(model, head)
        _, scores, truth = known.judge(X, y)
        codes = codes_of(scores)
        names = style.label_names(labels, codes, scores.dim() > 1)
        return cls(_count(truth, known.head.decide(scores), codes), names).plot(ax=ax)

    def _place(self, ax: Any) -> style.Place:
        side, names = self._side, self._names
        room = 0.085 * max(map(len, names))  # that names take beside the rows, and slanted below the columns
        width, height = side + room, side + (0.75 * room if self._slanted else 0.2)
        return style.canvas(ax, (max(3.4, width + 0.6), height + 0.9))

    @property
    def _side(self) -> float:
        """Inches of the matrix: a number fits into each of some tens of rows."""
        return min(6.4, max(1.6, 0.4 * len(self.matrix)))

    @property
    def _names(self) -> list[str]:
        return [style.shortened(label, 24) for label in self.labels]

    @property
    def _slanted(self) -> bool:
        """Whether names of columns are too long to stand side by side."""
        return 0.1 * (max(map(len, self._names)) + 1) > self._side / len(self.matrix)

    def _draw(self, own: bool) -> None:
        axes: style.Axes = self.ax_
        count = len(self.matrix)
        # shades by fraction of the row: a rare class's confusions are as visible as those of a frequent one
        fractions = self.matrix.double() / self.matrix.sum(1, keepdim=True).clamp(min=1)
        self.image_ = axes.imshow(fractions.numpy(), cmap="Blues", vmin=0, vmax=1)
        self.texts_ = {}
        cell = 72 * self._side / count  # points
        size = min(9.0, 1.25 * cell / len(str(int(self.matrix.max()))))
        written = torch.cartesian_prod(torch.arange(count), torch.arange(count)).tolist() if size >= _SMALLEST else ()
        for row, column in written:
            number = int(self.matrix[row, column])
            colour = "white" if fractions[row, column] > 0.5 else "black" if number else "#8A8A8A"
            weight = "bold" if number and row != column else "normal"
            look: dict[str, Any] = {"color": colour, "fontsize": size, "fontweight": weight}
            self.texts_[row, column] = axes.text(column, row, f"{number}", ha="center", va="center", **look)
        small: dict[str, Any] = {"fontsize": min(10.0, max(_SMALLEST, 0.8 * cell))}
        slanted: dict[str, Any] = {"rotation": 45, "ha": "right", "rotation_mode": "anchor"} if self._slanted else {}
        every = math.ceil(1.2 * _SMALLEST / cell)  # of very many classes some are named
        axes.set_xticks(range(0, count, every), self._names[::every], **small, **slanted)
        axes.set_yticks(range(0, count, every), self._names[::every], **small)
        if not written:
            bar = self.figure_.colorbar(self.image_, ax=axes, pad=0.02, aspect=30, shrink=0.8)
            bar.set_label("fraction of the row", fontsize=9)
        wrong = int(self.matrix.sum() - self.matrix.trace())
        axes.set(xlabel="predicted label", ylabel="true label")
        title = f"{wrong:,} of {int(self.matrix.sum()):,} wrong"
        axes.set_title(title, fontsize=11 if len(title) < 24 else 9)


def _integers(name: str, values: Data) -> Tensor:
    """Labels as integers, of whatever kind."""
    flat = torch.as_tensor(values).detach().cpu()
    if flat.dim() != 1:
        raise ValueError(f"{name} must have one dimension, found shape {tuple(flat.shape)}; use {name}.reshape(-1)")
    whole = flat.to(torch.int64)
    if flat.dtype == torch.bool or not bool((whole == flat).all()):
        raise ValueError(f"{name} must hold −1 and +1, or class indices; map your labels to them and pass labels=")
    return whole


def _count(truth: Tensor, said: Tensor, codes: Sequence[int]) -> Tensor:
    places = torch.tensor(codes)
    rows, columns = torch.searchsorted(places, truth), torch.searchsorted(places, said)
    return torch.bincount(rows * len(codes) + columns, minlength=len(codes) ** 2).reshape(len(codes), -1)
