"""How far samples are from the boundary, on the right side or on the wrong one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from torchperc._checks import Data, check_int
from torchperc.nn.heads import Head
from torchperc.plots import style
from torchperc.plots.classifiers import Classifier, classifier


@dataclass(eq=False, repr=False)
class MarginDisplay(style.Display):
    """The distribution of margins: right decisions to the right of 0, mistakes hatched to the left of it.

    Args:
        margins: of the samples (N,), above 0 where the decision is right.
        xlabel: what they are measured in.
        bins: how many bars.

    After :meth:`plot`, ``right_`` and ``wrong_`` are the bars, ``smallest_`` is the line of the smallest margin.

    Example:
        >>> display = MarginDisplay(torch.tensor([-0.5, 0.25, 1.0])).plot()
        >>> [float(sum(bar.get_height() for bar in bars)) for bars in (display.right_, display.wrong_)]
        [2.0, 1.0]
    """

    margins: Tensor
    xlabel: str = "margin"
    bins: int = 30

    @classmethod
    def from_model(
        cls,
        model: Any,
        X: Data,
        y: Data,
        *,
        head: Head | None = None,
        bins: int = 30,
        ax: style.AnyAxes = None,
    ) -> MarginDisplay:
        """Draw the margins that a model has on data.

        They are distances y·(w·x + b)/‖w‖ for a linear model of two classes (geometric margins), else what the scores
        say: y·s, or s_y − s_r against the strongest other class. A sample exactly on the boundary is counted as on the
        wrong side.

        Example:
            >>> import torchperc as tp
            >>> X, y = tp.data.gate("AND")
            >>> result = tp.RuleTrainer().fit(tp.Perceptron(2), X, y)
            >>> round(float(MarginDisplay.from_model(result, X, y).margins.min()), 3)
            0.277
        """
        bins = check_int("bins", bins, at_least=1)
        known = classifier(model, head)
        _, scores, target = known.judge(X, y)
        margins = known.slack(scores, target)
        if not torch.isfinite(margins).all():
            raise ValueError("some scores are not finite, so they have no margin; has the run diverged?")
        scale, name = _measure(known, scores.dim() > 1)
        return cls(margins / scale, name, bins).plot(ax=ax)

    def _draw(self, own: bool) -> None:
        axes: style.Axes = self.ax_
        margins = self.margins.numpy()
        right, wrong = margins[margins > 0], margins[margins <= 0]
        edges = _edges(margins, self.bins)
        wrong = np.where(wrong == 0, edges[edges < 0].max(initial=-np.inf) / 2, wrong)  # into the bar left of 0
        look: dict[str, Any] = {"bins": edges, "edgecolor": "white", "linewidth": 0.6}
        *_, self.right_ = axes.hist(right, color=style.BLUE, label=f"right side: {len(right):,}", **look)
        look = {**look, "color": style.ORANGE, "hatch": "///"}
        *_, self.wrong_ = axes.hist(wrong, label=f"wrong side: {len(wrong):,}", **look)
        axes.axvline(0, color="black", linewidth=1.6, label="boundary")
        smallest = float(margins.min())
        nearest = smallest > 0 and self.xlabel.startswith("distance")
        name = f"{'nearest sample' if nearest else 'smallest'}: {style.figure_of(smallest)}"
        self.smallest_ = axes.axvline(smallest, color="black", linestyle="--", linewidth=1.4, label=name)
        axes.set(xlabel=self.xlabel, ylabel="samples", title="How far samples are from the boundary")
        style.counts(axes.yaxis)
        style.legend(axes, own)


def _measure(known: Classifier, many: bool) -> tuple[float, str]:
    """What the slack is divided by, and the name of the quotient."""
    if many:
        return 1.0, "lead of the true class's score over the best other, $s_y - s_r$"
    length = 0.0 if known.weight is None else float(known.weight.double().norm())
    if length == 0:
        return 1.0, "score, positive on the right side: y·s"
    return length, "distance from the boundary, positive on the right side: y·(w·x + b)/‖w‖"


def _edges(margins: np.ndarray[Any, Any], bins: int) -> np.ndarray[Any, Any]:
    """Edges of equal bars, one of them at 0, so that no bar holds both kinds."""
    low, high = min(float(margins.min()), 0.0), max(float(margins.max()), 0.0)
    width = (high - low) / bins or 1.0
    first, last = np.floor(low / width), np.ceil(high / width)
    first = min(first, -1.0) if (margins <= 0).any() else first
    edges = np.arange(first, last + 1) * width
    edges[0], edges[-1] = min(edges[0], low), max(edges[-1], high)  # rounding must not leave a sample out
    return edges
