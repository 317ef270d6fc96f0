"""Curves by epoch: errors, mistakes against their bound, the bracket around γ*, and several runs on one chart."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from torchperc._checks import check_choice, check_number, require_packages
from torchperc.plots import style
from torchperc.plots.classifiers import check_log
from torchperc.rules.kernel import KernelModel
from torchperc.rules.log import MistakeLog
from torchperc.rules.models import LinearModel, Model
from torchperc.rules.problem import Problem
from torchperc.rules.run import RuleResult
from torchperc.theory.weights import live_bracket, weights_norm

Curve = npt.NDArray[np.float64]
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
            bound = check_number("bound", bound, at_least=0)
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

        ``gamma`` is γ*, where it is known, drawn as a line: ``max_margin(X, y, regularize_bias=True).margin``.

        Example:
            >>> import torchperc as tp
            >>> log = tp.RuleTrainer().fit(tp.Perceptron(2), *tp.data.gate("AND")).log
            >>> display = BracketDisplay.from_log(log)
            >>> display.ax_.get_xlabel()
            'epoch'
        """
        if gamma is not None:
            gamma = check_number("gamma", gamma)
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
    if log.start.any_nonzero:
        raise ValueError("the run did not start from zero weights, and the bracket holds only then; use init='zeros'")
    used = log.sample_weight.nonzero().squeeze(-1)  # a sample of weight 0 took no part
    rows, y, bounds = log.problem.samples.take(used), log.y[used], []
    sums = torch.cat((log.coef.new_zeros(1), log.coef.abs().cumsum(0)))
    for t, model in _epoch_models(log):
        length, scores = _length(model, log.problem.bias_step), model.row_scores(rows).double()
        scores = scores[:, 0] if log.problem.num_classes is None else scores
        bounds.append(live_bracket(scores, y, length, float(sums[t])))
    lower, upper = np.array(bounds, dtype=np.float64).reshape(-1, 2).T
    return np.where(np.isinf(lower), np.nan, lower), np.where(np.isinf(upper), np.nan, upper)


def _epoch_models(log: MistakeLog) -> Iterator[tuple[int, Model]]:
    """The number of mistakes and the model after each epoch, every update made once."""
    before, weights = 0, log.start.clone()
    for t in log.mistakes_by_epoch().cumsum(0).tolist():
        if type(log.problem) is Problem:
            log.problem.replay(weights, log.mistakes.part(before, t))
            before = t
            yield t, log.problem.model(weights.clone())
        else:
            yield t, log.state_at(t)


def _length(model: Model, bias_scale: float) -> float:
    """‖w‖ where the updates are made: a bias step β adds to the weight of a constant feature √β."""
    if isinstance(model, KernelModel):
        coefs = model.coefs.double()
        products = model.kernel.gram(model.support, model.support).double() + bias_scale
        return math.sqrt(max(0.0, float((coefs * (products @ coefs)).sum())))
    assert isinstance(model, LinearModel)
    return weights_norm(model.weight, model.bias, bias_scale)


@dataclass(eq=False, repr=False)
class ComparisonDisplay(style.Display):
    """One curve of several runs, by epoch.

    Args:
        curves: epochs and values, by the name of the run.
        ylabel: what the values are.
        logarithmic: whether the values are drawn on a logarithmic scale.

    After :meth:`plot`, ``lines_`` has the lines by name.

    Example:
        >>> display = ComparisonDisplay({"a": ([1, 2], [3, 1]), "b": ([1, 2], [2, 0])}, "mistakes").plot()
        >>> sorted(display.lines_)
        ['a', 'b']
    """

    curves: Mapping[str, tuple[Sequence[float] | Curve, Sequence[float] | Curve]]
    ylabel: str
    logarithmic: bool = False

    @classmethod
    def from_logs(
        cls,
        logs: Mapping[str, MistakeLog],
        *,
        value: str = "error",
        logarithmic: bool = False,
        ax: style.AnyAxes = None,
    ) -> ComparisonDisplay:
        """Compare runs by rule by their logs (or results), named as in the legend.

        ``value`` is ``"error"`` for the fraction of mistakes among the samples of an epoch, ``"mistakes"`` for their
        number, ``"total"`` for the number so far.

        Example:
            >>> import torchperc as tp
            >>> logs = {gate: tp.RuleTrainer().fit(tp.Perceptron(2), *tp.data.gate(gate)).log for gate in ("AND", "OR")}
            >>> ComparisonDisplay.from_logs(logs, value="total").lines_["OR"].get_ydata().tolist()
            [3.0, 4.0, 6.0, 8.0, 9.0, 9.0]
        """
        check_choice("value", value, tuple(VALUES))
        curves = {}
        for name, log in _named(logs).items():
            values: Curve = check_log(log).mistakes_by_epoch().double().cpu().numpy()
            if value == "error":
                values = 100 * errors_by_epoch(check_log(log))
            elif value == "total":
                values = values.cumsum()
            curves[str(name)] = (np.arange(1.0, len(values) + 1), values)
        return cls(curves, VALUES[value], logarithmic).plot(ax=ax)

    def _draw(self, own: bool) -> None:
        axes: style.Axes = self.ax_
        self.lines_ = {}
        looks = style.line_styles(len(self.curves))
        for number, ((name, (steps, values)), look) in enumerate(zip(self.curves.items(), looks, strict=True)):
            every = max(1, len(steps) // 10)
            drawn = {"color": look.colour, "linestyle": look.dashes, "marker": look.marker}
            places = (number % every, every)  # lines that lie on one another show their markers in turn
            self.lines_[name] = draw_curve(axes, values, name, steps, markevery=places, **drawn)
        axes.set_ylabel(self.ylabel)
        if self.ylabel.startswith("mistakes"):
            style.counts(axes.yaxis)
        style.epoch_axis(axes)
        if self.ylabel.endswith("(%)") and not self.logarithmic:
            style.from_zero(axes)
        if self.logarithmic:
            axes.set_yscale("log")
        style.legend(axes, own, columns=4)


def _named(logs: object) -> Mapping[str, Any]:
    if not isinstance(logs, Mapping):
        raise TypeError(f"logs must be a mapping from names to runs, found {type(logs).__name__}")
    if not logs:
        raise ValueError("logs is empty; give at least one run")
    return logs


def read_events(folder: Path) -> Any:
    """The event files of a folder, as TensorBoard reads them."""
    require_packages("reading event files", "tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator  # type: ignore[import-untyped]

    events = EventAccumulator(str(folder), size_guidance={"scalars": 0, "images": 1, "histograms": 1})
    events.Reload()
    return events


def curve_of(events: Any, tag: str) -> tuple[Curve, Curve]:
    """Epochs and values of a scalar; of a step that was logged twice, as by a run that was resumed, the later one."""
    values = {event.step: event.value for event in events.Scalars(tag)}
    steps = sorted(values)
    return _epochs(events, steps), np.array([values[step] for step in steps], dtype=np.float64)


def _epochs(events: Any, steps: Sequence[int]) -> Curve:
    """Where steps are among epochs; of several within one, each is as far as its number among them.

    A Trainer counts batches, and logs how many epochs are complete beside them; without that, steps are epochs.
    """
    scalars = events.Tags()["scalars"]
    tests = {event.step for tag in scalars if tag.endswith("/test") for event in events.Scalars(tag)}
    logged = events.Scalars("epoch") if "epoch" in scalars else ()
    known = {event.step: event.value + (event.step not in tests) for event in logged}  # a test follows its epoch's end
    if not all(step in known for step in steps):
        return np.array(steps, dtype=np.float64)
    epochs, first, own, counts = np.unique([known[step] for step in steps], True, True, True)
    return np.asarray(epochs[own] - 1 + (np.arange(1, len(steps) + 1) - first[own]) / counts[own], dtype=np.float64)
