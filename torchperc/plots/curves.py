"""Curves by epoch: errors, mistakes against their bound, the bracket around γ*, and several runs on one chart."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from typing_extensions import Self

from torchperc._checks import check_choice, check_number
from torchperc.plots import style
from torchperc.plots.classifiers import check_log
from torchperc.rules.log import MistakeLog
from torchperc.rules.run import RuleResult

Curve = npt.NDArray[np.float64]
Values = Sequence[float] | Curve
VALUES = {"error": "error in the epoch (%)", "mistakes": "mistakes in the epoch", "total": "mistakes so far"}


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

    train: Values
    validation: Values | None = None
    mistakes: Values | None = None
    bound: float | None = None

    @classmethod
    def from_result(cls, result: RuleResult, *, bound: float | None = None, ax: style.AnyAxes = None) -> Self:
        """Draw the curves of a run by rule, of which the log alone has no validation error.

        The train error is the mistakes made in an epoch, as a fraction of the samples presented in it; the validation
        error is measured after the epoch. ``bound`` is one on the number of mistakes, such as (R/γ)².
        """
        log = check_log(result)
        history = result.history if isinstance(result, RuleResult) else ()
        held = [math.nan if record.validation_error is None else record.validation_error for record in history]
        bound = None if bound is None else check_number("bound", bound, at_least=0)
        made = log.mistakes_by_epoch().cumsum(0).numpy()
        return cls(errors_by_epoch(log), None if all(map(math.isnan, held)) else held, made, bound).plot(ax=ax)

    def _place(self, ax: Any) -> style.Place:
        return super()._place(ax) if self.bound is None else style.panels(ax, 2, 2, (6.4, 3.8))

    def _draw(self, own: bool) -> None:
        self.mistakes_ = self.bound_ = None
        axes = [self.ax_] if self.bound is None else self.ax_
        errors = {"training, during the epoch": self.train, "validation, after the epoch": self.validation}
        shown = {name: 100 * np.asarray(values) for name, values in errors.items() if values is not None}
        self.train_, self.validation_, *_ = *_draw_curves(axes[0], shown), None
        axes[0].set_title("Error")
        style.epoch_axis(axes[0], "error (%)")
        if self.bound is not None:
            if self.mistakes is None:
                raise ValueError(f"bound={self.bound} needs mistakes, found None; give the mistakes by epoch")
            (self.mistakes_,) = _draw_curves(axes[1], {f"mistakes: {self.mistakes[-1]:,.0f}": self.mistakes}, first=2)
            name, look = f"bound: {style.format_number(self.bound, 4)}", {"color": style.ink(), "linestyle": "--"}
            self.bound_ = axes[1].axhline(self.bound, label=name, linewidth=1.6, **look)
            axes[1].set_title("Mistakes and their bound")
            style.epoch_axis(axes[1], "mistakes so far")
        style.legend(axes, own)


def _draw_curves(ax: style.Axes, curves: Mapping[str, Any], epochs: Any = None, first: int = 0) -> list[style.Line2D]:
    """Draw curves by epoch, from the look of number ``first`` on; markers tell lines apart without colour."""
    lines = []
    for number, (name, values) in enumerate(curves.items(), first):
        look: dict[str, Any] = {"color": style.COLOURS[number % 6], "linestyle": ("-", "--", "-.", ":")[number % 4]}
        every = max(1, len(values) // 10)
        places = (number % every, every)  # lines that lie on one another show their markers in turn
        steps = np.arange(1, len(values) + 1) if epochs is None else epochs[name]
        look |= {"marker": style.MARKERS[number % 10], "markevery": places, "markersize": 5, "linewidth": 1.8}
        lines += ax.plot(steps, values, label=name, **look)
    return lines


def errors_by_epoch(log: MistakeLog) -> Curve:
    """Mistakes made in each epoch, as a fraction of the samples presented in it.

    Example:
        >>> import torchperc as tp
        >>> log = tp.RuleTrainer().fit(tp.Perceptron(2), *tp.data.gate("AND")).log
        >>> errors_by_epoch(log).tolist()
        [0.5, 0.75, 0.75, 0.5, 0.5, 0.75, 0.5, 0.25, 0.0]
    """
    presented = log.epoch_ends.diff(prepend=log.epoch_ends.new_zeros(1))
    fractions: Curve = (log.mistakes_by_epoch().double() / presented.clamp(min=1)).numpy()
    return fractions


@dataclass(eq=False, repr=False)
class BracketDisplay(style.Display):
    """The bracket that a run puts around the largest margin γ*, by epoch: margin(w) ≤ γ* ≤ ‖w‖/Σ|c|.

    ``lower`` and ``upper`` are the bounds of each epoch, NaN where there is none; ``gamma`` is γ* where it is known.
    Lines are the best bounds so far; the values of the epochs are faint beside them. After :meth:`plot`, ``lower_`` and
    ``upper_`` are the best bounds, ``lower_points_`` and ``upper_points_`` the values, ``between_`` the area and
    ``gamma_`` the line of γ*.

    Example:
        >>> display = BracketDisplay([-0.5, 0.1, 0.05], [1.0, 0.7, 0.8]).plot()
        >>> display.lower_.get_ydata().tolist(), display.upper_.get_ydata().tolist()
        ([-0.5, 0.1, 0.1], [1.0, 0.7, 0.7])
    """

    lower: Values
    upper: Values
    gamma: float | None = None

    @classmethod
    def from_log(cls, log: MistakeLog, *, gamma: float | None = None, ax: style.AnyAxes = None) -> Self:
        """Draw the bracket of a run that started from zero weights, see :func:`bracket_by_epoch`.

        ``gamma`` is γ*, where it is known: that of ``max_margin`` with the bias counted as a weight.
        """
        gamma = None if gamma is None else check_number("gamma", gamma)
        return cls(*bracket_by_epoch(check_log(log)), gamma).plot(ax=ax)

    def _draw(self, own: bool) -> None:
        axes: style.Axes = self.ax_
        lower, upper = (np.asarray(values, dtype=np.float64) for values in (self.lower, self.upper))
        if lower.ndim != 1 or lower.shape != upper.shape:
            raise ValueError(f"lower has shape {lower.shape} and upper {upper.shape}; both need a value for each epoch")
        best = np.fmax.accumulate(lower), np.fmin.accumulate(upper)
        epochs, self.gamma_ = np.arange(1, len(lower) + 1), None
        area: dict[str, Any] = {"color": style.SKY, "alpha": 0.25, "linewidth": 0, "label": "γ* is here"}
        self.between_ = axes.fill_between(epochs, *best, step="post", **area)
        bold: dict[str, Any] = {"drawstyle": "steps-post", "linewidth": 2}  # a bound holds from its epoch on
        (self.upper_,) = axes.plot(epochs, best[1], "--", color=style.RED, label="upper bound: ‖w‖/(η·t)", **bold)
        (self.lower_,) = axes.plot(epochs, best[0], color=style.BLUE, label="lower bound: min y·s/‖w‖", **bold)
        (self.upper_points_,) = axes.plot(epochs, upper, "v", color=style.RED, markersize=5, alpha=0.6)
        (self.lower_points_,) = axes.plot(epochs, lower, "^", color=style.BLUE, markersize=5, alpha=0.6)
        if self.gamma is not None:
            name = f"γ* = {style.format_number(self.gamma, 4)}"
            self.gamma_ = axes.axhline(self.gamma, color=style.ink(), linestyle=":", linewidth=1.6, label=name)
        axes.set_title("Bounds on γ*, the margin with the bias as a weight")
        style.epoch_axis(axes, "γ*")
        top = np.nanmax(upper) if np.isfinite(upper).any() else math.nan
        if top > 0 and (lower < -top / 2).any():  # so far below 0 they would flatten the rest: γ* is not there
            axes.set_ylim(-top / 2, top * 1.05)
        style.legend(axes, own)


@torch.no_grad()
def bracket_by_epoch(log: MistakeLog) -> tuple[Curve, Curve]:
    """Lower and upper bound of the largest margin γ* after each epoch of a run from zero weights.

    From zero weights, w = Σ cⱼ·x_{iⱼ}. Any unit vector u of margin γ* has u·w ≥ γ*·Σ|cⱼ|, and u·w ≤ ‖w‖, so
    margin(w) ≤ γ* ≤ ‖w‖/Σ|cⱼ|; the sum is η·t after t mistakes of weight 1. The bias counts as the weight of a constant
    feature √(bias step). With K classes the margin is min (s_y − s_r)/‖w‖, over all weight vectors together. A bound is
    NaN where there is none; an upper one of 0 proves that nothing separates the data.

    Example:
        >>> import torchperc as tp
        >>> log = tp.RuleTrainer().fit(tp.Perceptron(2), *tp.data.gate("OR")).log
        >>> lower, upper = bracket_by_epoch(log)
        >>> round(float(lower[-1]), 4), round(float(upper[-1]), 4)
        (0.3333, 0.3333)
    """
    if log.start.any_nonzero:
        raise ValueError("the run did not start from zero weights, and the bracket holds only then; use init='zeros'")
    problem, weights, bounds = log.problem, log.start.clone(), np.full((2, len(log.epoch_ends)), np.nan)
    made, total = [0, *log.mistakes_by_epoch().cumsum(0).tolist()], np.append(0, log.coef.abs().cumsum(0))
    for epoch, (before, t) in enumerate(pairwise(made)):
        problem.replay(weights, log.mistakes.part(before, t))
        if norm := problem.norm(weights) * problem.scale:  # a sample of weight 0 took no part
            bounds[0, epoch] = problem.functional_margins(weights)[problem.sample_weight > 0].min() / norm
        if t:
            bounds[1, epoch] = norm / total[t]
    return bounds[0], bounds[1]


@dataclass(eq=False, repr=False)
class ComparisonDisplay(style.Display):
    """One curve of several runs, by epoch.

    ``curves`` has epochs and values by the name of the run, ``ylabel`` says what the values are. After
    :meth:`plot`, ``lines_`` has the lines by name.

    Example:
        >>> display = ComparisonDisplay({"a": ([1, 2], [3, 1]), "b": ([1, 2], [2, 0])}, "mistakes").plot()
        >>> sorted(display.lines_)
        ['a', 'b']
    """

    curves: Mapping[str, tuple[Values, Values]]
    ylabel: str

    @classmethod
    def from_logs(cls, logs: Mapping[str, MistakeLog], *, value: str = "error", ax: style.AnyAxes = None) -> Self:
        """Compare runs by rule by their logs (or results), named as in the legend.

        ``value`` is ``"error"`` for the fraction of mistakes among the samples of an epoch, ``"mistakes"`` for their
        number, ``"total"`` for the number so far.
        """
        check_choice("value", value, tuple(VALUES))
        if not isinstance(logs, Mapping) or not logs:
            raise TypeError(f"logs must be a mapping from names to at least one run, found {logs!r}")
        curves = {}
        for name, log in logs.items():
            values: Curve = check_log(log).mistakes_by_epoch().double().numpy()
            if value != "mistakes":
                values = 100 * errors_by_epoch(check_log(log)) if value == "error" else values.cumsum()
            curves[str(name)] = (np.arange(1.0, len(values) + 1), values)
        return cls(curves, VALUES[value]).plot(ax=ax)

    def _draw(self, own: bool) -> None:
        axes: style.Axes = self.ax_
        steps, values = ({name: curve[k] for name, curve in self.curves.items()} for k in (0, 1))
        self.lines_ = dict(zip(self.curves, _draw_curves(axes, values, steps), strict=True))
        style.epoch_axis(axes, self.ylabel)
        style.legend(axes, own, columns=4)
