"""The distribution of the samples' distances from the boundary."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from torchperc._checks import Data, check_int
from torchperc.nn.heads import Head
from torchperc.plots import style
from torchperc.plots.classifiers import classifier


@dataclass(eq=False, repr=False)
class MarginDisplay(style.Display):
    """A histogram of margins (N,): right decisions to the right of 0, errors hatched to the left of it.

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
        """
        bins = check_int("bins", bins, at_least=1)
        known = classifier(model, head)
        _, scores, target = known.judge(X, y)
        margins = known.functional_margins(scores, target)
        if not torch.isfinite(margins).all():
            raise ValueError("some scores are not finite, so they have no margin; has the run diverged?")
        if scores.dim() > 1:
            return cls(margins, "lead of the true class's score over the best other, $s_y - s_r$", bins).plot(ax=ax)
        length = 0.0 if known.weight is None else float(known.weight.double().norm())
        if length == 0:
            return cls(margins, "score, positive on the right side: y·s", bins).plot(ax=ax)
        name = "distance from the boundary, positive on the right side: y·(w·x + b)/‖w‖"
        return cls(margins / length, name, bins).plot(ax=ax)

    def _draw(self, own: bool) -> None:
        axes, margins = self.ax_, self.margins.numpy()
        right, wrong = margins[margins > 0], margins[margins <= 0]
        edges = _edges(margins, self.bins)
        wrong = np.where(wrong == 0, edges[edges < 0].max(initial=-np.inf) / 2, wrong)  # into the bar left of 0
        look: dict[str, Any] = {"bins": edges, "edgecolor": "white", "linewidth": 0.6}
        *_, self.right_ = axes.hist(right, color=style.BLUE, label=f"right side: {len(right):,}", **look)
        look |= {"color": style.ORANGE, "hatch": "///"}
        *_, self.wrong_ = axes.hist(wrong, label=f"wrong side: {len(wrong):,}", **look)
        axes.axvline(0, color=style.ink(), linewidth=1.6, label="boundary")
        smallest = float(margins.min())
        nearest = smallest > 0 and self.xlabel.startswith("distance")
        name = f"{'nearest sample' if nearest else 'smallest'}: {style.format_number(smallest)}"
        self.smallest_ = axes.axvline(smallest, color=style.ink(), linestyle="--", linewidth=1.4, label=name)
        axes.set(xlabel=self.xlabel, ylabel="samples", title="How far samples are from the boundary")
        style.integer_ticks(axes.yaxis)
        style.legend(axes, own)


def _edges(margins: np.ndarray[Any, Any], bins: int) -> np.ndarray[Any, Any]:
    """Edges of equal bars, one of them at 0, so that no bar holds both kinds."""
    low, high = min(float(margins.min()), 0.0), max(float(margins.max()), 0.0)
    width = (high - low) / bins or 1.0
    first, last = np.floor(low / width), np.ceil(high / width)
    first = min(first, -1.0) if (margins <= 0).any() else first
    edges = np.arange(first, last + 1) * width
    edges[0], edges[-1] = min(edges[0], low), max(edges[-1], high)  # rounding must not leave a sample out
    return edges
