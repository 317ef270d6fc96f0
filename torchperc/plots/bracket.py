"""The bracket that closes around the largest margin γ* while a run by rule makes its mistakes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from torchperc import _checks as checks
from torchperc.nn import functional as tpf
from torchperc.plots import style
from torchperc.plots.classifiers import check_log
from torchperc.plots.curves import Curve
from torchperc.rules.log import MistakeLog
from torchperc.rules.models import KernelModel, LinearModel, Model
from torchperc.rules.spaces import LinearSpace


@dataclass(eq=False, repr=False)
class BracketDisplay(style.Display):
    """The bracket that a run puts around the largest margin γ*, epoch by epoch: margin(w) ≤ γ* ≤ ‖w‖/Σ|c|.

    Args:
        lower: the margin of the weights after each epoch; NaN where there is none.
        upper: their length over the sum of the coefficients of the mistakes, η·t for t mistakes at learning rate η;
            NaN before the first mistake.
        gamma: γ* itself, where it is known.

    Lines are the best bounds so far, which only ever close; the values of the epochs are faint beside them.
    After :meth:`plot`, ``lower_`` and ``upper_`` are the best bounds, ``lower_points_`` and ``upper_points_`` the
    values, ``between_`` the area and ``gamma_`` the line of γ*.

    Example:
        >>> display = BracketDisplay([-0.5, 0.1, 0.05], [1.0, 0.7, 0.8]).plot()
        >>> display.lower_.get_ydata().tolist(), display.upper_.get_ydata().tolist()
        ([-0.5, 0.1, 0.1], [1.0, 0.7, 0.7])
    """

    lower: Sequence[float] | Curve
    upper: Sequence[float] | Curve
    gamma: float | None = None

    @classmethod
    def from_log(cls, log: MistakeLog, *, gamma: float | None = None, ax: style.AnyAxes = None) -> BracketDisplay:
        """Draw the bracket of a run that started from zero weights, see :func:`bracket_by_epoch`.

        ``gamma`` is γ*, where it is known, drawn as a line: ``max_margin(X, y, bias="counted").margin``.

        Example:
            >>> import torchperc as tp
            >>> log = tp.RuleTrainer().fit(tp.Perceptron(2), *tp.data.gate("AND")).log
            >>> display = BracketDisplay.from_log(log)
            >>> display.ax_.get_xlabel()
            'epoch'
        """
        if gamma is not None:
            gamma = checks.number("gamma", gamma)
        return cls(*bracket_by_epoch(check_log(log)), gamma).plot(ax=ax)

    def _draw(self, own: bool) -> None:
        axes: style.Axes = self.ax_
        lower, upper = (np.asarray(values, dtype=np.float64) for values in (self.lower, self.upper))
        if lower.ndim != 1 or lower.shape != upper.shape:
            raise ValueError(f"lower has shape {lower.shape} and upper {upper.shape}; both need a value for each epoch")
        best = np.fmax.accumulate(lower), np.fmin.accumulate(upper)
        epochs = np.arange(1, len(lower) + 1)
        faint: dict[str, Any] = {"linestyle": "", "markersize": 5, "alpha": 0.6}
        # a bound holds from its epoch on, so lines are steps
        area: dict[str, Any] = {"color": style.SKY, "alpha": 0.25, "linewidth": 0, "label": "γ* is here"}
        self.between_ = axes.fill_between(epochs, *best, step="post", **area)
        bold: dict[str, Any] = {"drawstyle": "steps-post", "linewidth": 2}
        (self.upper_,) = axes.plot(epochs, best[1], "--", color=style.RED, label="upper bound: ‖w‖/(η·t)", **bold)
        (self.lower_,) = axes.plot(epochs, best[0], color=style.BLUE, label="lower bound: min y·s/‖w‖", **bold)
        (self.upper_points_,) = axes.plot(epochs, upper, marker="v", color=style.RED, **faint)
        (self.lower_points_,) = axes.plot(epochs, lower, marker="^", color=style.BLUE, **faint)
        self.gamma_: style.Line2D | None = None
        if self.gamma is not None:
            name = f"γ* = {style.figure_of(self.gamma, 4)}"
            self.gamma_ = axes.axhline(self.gamma, color="black", linestyle=":", linewidth=1.6, label=name)
        axes.set(ylabel="γ*", title="Bounds on γ*, the margin with the bias as a weight")
        style.epoch_axis(axes)
        top = np.nanmax(upper) if np.isfinite(upper).any() else math.nan
        if top > 0 and (lower < -top / 2).any():  # so far below 0 they would flatten the rest: γ* is not there
            axes.set_ylim(-top / 2, top * 1.05)
        style.legend(axes, own)


@torch.no_grad()
def bracket_by_epoch(log: MistakeLog) -> tuple[Curve, Curve]:
    """Bounds of the largest margin γ* that the weights after each epoch of a run from zero weights give.

    From zero weights, w = Σ cⱼ·x_{iⱼ}. Any unit vector u of margin γ* has u·w ≥ γ*·Σ|cⱼ|, and u·w ≤ ‖w‖, so
    margin(w) ≤ γ* ≤ ‖w‖/Σ|cⱼ|; the sum is η·t after t mistakes of weight 1. The bias counts as the weight of a constant
    feature √(bias step). With K classes the margin is min (s_y − s_r)/‖w‖, over all weight vectors together.

    Returns:
        The lower bound per epoch (NaN for zero weights) and the upper one (NaN before the first mistake; 0 if the
        weights came back to zero, which proves that nothing separates the data).

    Example:
        >>> import torchperc as tp
        >>> log = tp.RuleTrainer().fit(tp.Perceptron(2), *tp.data.gate("OR")).log
        >>> lower, upper = bracket_by_epoch(log)
        >>> round(float(lower[-1]), 4), round(float(upper[-1]), 4)
        (0.3333, 0.3333)
    """
    if bool(log.start.weight.any()) or bool(log.start.bias.any()):
        raise ValueError("the run did not start from zero weights, and the bracket holds only then; use init='zeros'")
    used = log.cost.nonzero().squeeze(-1)  # a sample of weight 0 took no part
    rows, y, bounds = log.space.rows.take(used), log.y[used], []
    sums = torch.cat((log.coef.new_zeros(1), log.coef.abs().cumsum(0)))
    for t, model in _epoch_models(log):
        length, scores = _length(model, log.space.bias_scale), model.row_scores(rows).double()
        slack = float(tpf.slacks(scores[:, 0] if log.space.classes is None else scores, y).min())
        bounds.append((slack / length if length > 0 else math.nan, length / float(sums[t]) if t else math.nan))
    lower, upper = np.array(bounds, dtype=np.float64).reshape(-1, 2).T
    return lower, upper


def _epoch_models(log: MistakeLog) -> Iterator[tuple[int, Model]]:
    """The number of mistakes and the model after each epoch, every update made once."""
    before, weights = 0, log.start
    for t in log.mistakes_by_epoch().cumsum(0).tolist():
        if isinstance(log.space, LinearSpace):
            before, weights = t, log.space.moved(weights, log.entries.part(before, t))
            yield t, log.space.model(weights)
        else:
            yield t, log.state_at(t)


def _length(model: Model, bias_scale: float) -> float:
    """‖w‖ where the updates are made: a bias step β adds to the weight of a constant feature √β."""
    if isinstance(model, KernelModel):
        coefs = model.coefs.double()
        products = model.kernel.gram(model.support, model.support).double() + bias_scale
        return math.sqrt(max(0.0, float((coefs * (products @ coefs)).sum())))
    assert isinstance(model, LinearModel)
    square = float(model.weight.double().square().sum())
    return math.sqrt(square + (float(model.bias.double().square().sum()) / bias_scale if bias_scale else 0.0))
