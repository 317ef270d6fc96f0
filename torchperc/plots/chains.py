"""Sequence labelling: the weights between tags."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from torchperc.plots import style

_QUANTILE = 0.995  # of the weights of many tags, at which the scale of colours ends
_WRITTEN = 12  # tags up to which each weight is written as a number


@dataclass(eq=False, repr=False)
class TransitionDisplay(style.Display):
    """Which tag likes to follow which: the weights of all transitions, those of start and end included.

    A row for each tag before and a column for each tag after it, on one scale of colours that is symmetric about 0. Up
    to 12 tags have their weights written as numbers; of more tags, the scale leaves out the 0.5 % largest weights.

    Args:
        transition: weights (K + 1, K) from a tag, the last row from the start, to a tag.
        end: weights (K,) from a tag to the end.
        labels: names of the tags.

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
    def from_model(cls, model: Any, *, labels: style.Labels = None, ax: style.AnyAxes = None) -> TransitionDisplay:
        """Draw the transitions of a ``ChainPerceptron``, or of what has one as ``net``, as Lightning modules do.

        Example:
            >>> import torchperc as tp
            >>> display = TransitionDisplay.from_model(tp.sequences.ChainPerceptron(3, 2), labels=("noun", "verb"))
            >>> [label.get_text() for label in display.ax_.get_yticklabels()]
            ['start', 'noun', 'verb']
        """
        net = getattr(model, "net", model)
        weights = [getattr(net, name, None) for name in ("transition", "end")]
        if not all(isinstance(each, Tensor) for each in weights):
            raise TypeError(f"model must be a ChainPerceptron or have one as its net, found {type(model).__name__}")
        transition, end = (each.detach().double().cpu() for each in weights)  # type: ignore[union-attr]  # see above
        return cls(transition, end, labels).plot(ax=ax)

    def _place(self, ax: Any) -> style.Place:
        return style.canvas(ax, (self._side + 1.0 + self._room, self._side + self._room))

    @property
    def _names(self) -> list[str]:
        return [style.shortened(name) for name in style.label_names(self.labels, range(len(self.end)), True)]

    @property
    def _room(self) -> float:
        """Inches that long names need beyond those of usual tags."""
        return 0.08 * max(0, max(map(len, self._names)) - 8)

    @property
    def _side(self) -> float:
        """Inches: as large as numbers need, and with many tags as their names do."""
        count = len(self.end)
        return min(16.0, 2.6 + 0.42 * min(count, _WRITTEN) + 0.12 * max(0, count - _WRITTEN))

    def _draw(self, own: bool) -> None:
        count, axes = len(self.end), self.ax_
        if self.transition.shape != (count + 1, count):
            raise ValueError(
                f"transition has shape {tuple(self.transition.shape)} for {count} weights of the end; it must be "
                f"{(count + 1, count)}, with the start as its last row"
            )
        names = self._names
        after = torch.cat((self.end.new_full((1,), math.nan), self.end))  # nothing goes from the start to the end
        weights = torch.cat((self.transition.roll(1, 0), after[:, None]), 1).double()
        sizes = weights[weights.isfinite()].abs()
        clipped = count > _WRITTEN  # among many tags a few extreme weights would leave the others pale
        largest = float(sizes.quantile(_QUANTILE) if clipped else sizes.max()) or float(sizes.max()) or 1.0
        self.image_ = axes.imshow(weights.numpy(), cmap="PuOr_r", vmin=-largest, vmax=largest)
        axes.set_facecolor("#DDDDDD")
        self.texts_ = {}
        for row, column in weights.isfinite().nonzero().tolist() if count <= _WRITTEN else ():
            weight = float(weights[row, column]) + 0.0  # which turns −0 into 0
            colour = "white" if abs(weight) > 0.6 * largest else "black"
            text = f"{weight:.2g}" if abs(weight) < 100 else f"{weight:.0f}"
            look: dict[str, Any] = {"color": colour, "fontsize": 8}
            self.texts_[row, column] = axes.text(column, row, text.replace("-", "−"), ha="center", va="center", **look)
        small: dict[str, Any] = {"fontsize": min(10.0, 0.6 * 72 * (self._side - 1.6) / (count + 1))}
        small["parse_math"] = False  # tags such as PRP$ are no formulas
        upright = {"rotation": 90} if (count + 1) * max(map(len, names)) > 40 else {}
        axes.set_xticks(range(count + 1), [*names, "end"], **small, **upright)
        axes.set_yticks(range(count + 1), ["start", *names], **small)
        axes.set(xlabel="tag", ylabel="previous tag")
        axes.axhline(0.5, color="black", linewidth=0.8)
        axes.axvline(count - 0.5, color="black", linewidth=0.8)
        axes.set_title("Weights of the transitions", fontsize=11)
        beyond = "both" if float(sizes.max()) > largest else "neither"
        self.colorbar_ = style.weight_bar(self.figure_, self.image_, axes, shrink=0.8, extend=beyond)
