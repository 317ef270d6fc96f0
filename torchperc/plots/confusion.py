"""Which labels are predicted for which."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from torchperc import _checks as checks
from torchperc.nn.heads import Head
from torchperc.plots import style
from torchperc.plots.classifiers import classifier
from torchperc.plots.planes import codes_of


@dataclass(eq=False)
class ConfusionDisplay(style.Display):
    """The confusion matrix: samples by true label (rows) and predicted label (columns), as numbers and as shades.

    Args:
        matrix: counts (K, K).
        labels: names of the classes.

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
        cls, y: checks.Data, predicted: checks.Data, labels: style.Labels = None, *, ax: style.AnyAxes = None
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
        signs = bool(((found == 1) | (found == -1)).all())
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
        X: checks.Data,
        y: checks.Data,
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
        side = min(6.0, 2.6 + 0.35 * len(self.matrix))
        return style.canvas(ax, (side + 0.6, side))

    def _draw(self, own: bool) -> None:
        axes: style.Axes = self.ax_
        count = len(self.matrix)
        # shades by fraction of the row: a rare class's confusions are as visible as those of a frequent one
        fractions = self.matrix.double() / self.matrix.sum(1, keepdim=True).clamp(min=1)
        self.image_ = axes.imshow(fractions.numpy(), cmap="Blues", vmin=0, vmax=1)
        self.texts_ = {}
        for row, column in torch.cartesian_prod(torch.arange(count), torch.arange(count)).tolist():
            number = int(self.matrix[row, column])
            colour = "white" if fractions[row, column] > 0.5 else "black" if number else "#8A8A8A"
            weight = "bold" if number and row != column else "normal"
            look: dict[str, Any] = {"color": colour, "fontsize": 9, "fontweight": weight}
            self.texts_[row, column] = axes.text(column, row, f"{number}", ha="center", va="center", **look)
        slanted: dict[str, Any] = {"rotation": 45, "ha": "right"} if count * max(map(len, self.labels)) > 30 else {}
        axes.set_xticks(range(count), self.labels, **slanted)
        axes.set_yticks(range(count), self.labels)
        wrong = int(self.matrix.sum() - self.matrix.trace())
        axes.set(xlabel="predicted label", ylabel="true label")
        axes.set_title(f"{wrong:,} of {int(self.matrix.sum()):,} wrong", fontsize=11)


def _integers(name: str, values: checks.Data) -> Tensor:
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
