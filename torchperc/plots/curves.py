"""Learning curves: errors by epoch, and mistakes against their bound."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from torchperc import _checks as checks
from torchperc.plots import style
from torchperc.plots.classifiers import check_log
from torchperc.rules.log import MistakeLog
from torchperc.rules.run import RuleResult

Curve = npt.NDArray[np.float64]


@dataclass(eq=False, repr=False)
class LearningCurveDisplay(style.Display):
    """Train and validation error by epoch, and, with a bound, the mistakes so far against it in a second panel.

    Args:
        train: error of each epoch.
        validation: error after each epoch, or ``None``.
        mistakes: how many were made by the end of each epoch, or ``None``.
        bound: that they cannot exceed, or ``None``.

    After :meth:`plot`, ``ax_`` is the axes, or the list of both with a bound; ``train_``, ``validation_``,
    ``mistakes_`` and ``bound_`` are the lines.

    Example:
        >>> display = LearningCurveDisplay([0.5, 0.25, 0.0]).plot()
        >>> display.train_.get_ydata().tolist()
        [50.0, 25.0, 0.0]
    """

    train: Sequence[float] | Curve
    validation: Sequence[float] | Curve | None = None
    mistakes: Sequence[float] | Curve | None = None
    bound: float | None = None

    @classmethod
    def from_result(
        cls, result: RuleResult, *, bound: float | None = None, ax: style.AnyAxes = None
    ) -> LearningCurveDisplay:
        """Draw the curves of a run by rule.

        The train error is what the log gives for nothing: the mistakes made in an epoch, as a fraction of the samples
        presented in it. The validation error is measured after the epoch, if the run had validation data.

        The log alone will do, but knows no validation error. ``bound`` is one on the number of mistakes, such as
        (R/γ)²; with it there is a second panel.

        Example:
            >>> import torchperc as tp
            >>> result = tp.RuleTrainer().fit(tp.Perceptron(2), *tp.data.gate("AND"))
            >>> display = LearningCurveDisplay.from_result(result, bound=120)
            >>> display.mistakes_.get_ydata().tolist()
            [2, 5, 8, 10, 12, 15, 17, 18, 18]
        """
        log = check_log(result)
        history = result.history if isinstance(result, RuleResult) else ()
        held = [math.nan if record.validation_error is None else record.validation_error for record in history]
        if bound is not None:
            bound = checks.number("bound", bound, at_least=0)
        made = log.mistakes_by_epoch().cumsum(0).cpu().numpy()
        known = held if held and not all(map(math.isnan, held)) else None
        return cls(errors_by_epoch(log), known, made, bound).plot(ax=ax)

    def _place(self, ax: Any) -> style.Place:
        return style.canvas(ax) if self.bound is None else style.panels(ax, 2, 2, (6.4, 3.8))

    def _draw(self, own: bool) -> None:
        self.validation_: style.Line2D | None = None
        self.mistakes_: style.Line2D | None = None
        self.bound_: style.Line2D | None = None
        axes = [self.ax_] if self.bound is None else self.ax_
        if self.bound is not None:
            if self.mistakes is None:
                raise ValueError(f"bound={self.bound} needs mistakes, found None; give the mistakes by epoch")
            look: dict[str, Any] = {"color": style.GREEN, "marker": "^"}
            self.mistakes_ = draw_curve(axes[1], self.mistakes, f"mistakes: {self.mistakes[-1]:,.0f}", **look)
            look = {"color": "black", "linestyle": "--", "linewidth": 1.6}
            self.bound_ = axes[1].axhline(self.bound, label=f"bound: {style.figure_of(self.bound, 4)}", **look)
            axes[1].set(ylabel="mistakes so far", title="Mistakes and their bound")
            style.counts(axes[1].yaxis)
        self.train_ = draw_curve(axes[0], 100 * np.asarray(self.train), "training, during the epoch")
        if self.validation is not None:
            look = {"color": style.RED, "marker": "s", "linestyle": "--"}
            values = 100 * np.asarray(self.validation)
            self.validation_ = draw_curve(axes[0], values, "validation, after the epoch", **look)
        axes[0].set(ylabel="error (%)", title="Error")
        for ax in axes:
            style.from_zero(ax)
            style.epoch_axis(ax)
        style.legends(axes, own)


def errors_by_epoch(log: MistakeLog) -> Curve:
    """Mistakes made in each epoch, as a fraction of the samples presented in it.

    Example:
        >>> import torchperc as tp
        >>> log = tp.RuleTrainer().fit(tp.Perceptron(2), *tp.data.gate("AND")).log
        >>> errors_by_epoch(log).tolist()
        [0.5, 0.75, 0.75, 0.5, 0.5, 0.75, 0.5, 0.25, 0.0]
    """
    presented = log.epoch_ends.diff(prepend=log.epoch_ends.new_zeros(1))
    fractions: Curve = (log.mistakes_by_epoch().double() / presented.clamp(min=1)).cpu().numpy()
    return fractions


def draw_curve(ax: style.Axes, values: Any, name: str, epochs: Any = None, **look: Any) -> style.Line2D:
    """A curve by epoch; markers tell lines apart without colour, on long curves every so often."""
    look = {"color": style.BLUE, "marker": "o", "markevery": max(1, len(values) // 12), **look}
    epochs = np.arange(1, len(values) + 1) if epochs is None else epochs
    (line,) = ax.plot(epochs, values, label=name, markersize=5, linewidth=1.8, **look)
    return line
