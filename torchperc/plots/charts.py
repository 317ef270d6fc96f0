"""Charts: errors, mistakes and the bracket around γ* by epoch, runs compared, margins, and residuals of numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import lazy_loader
import numpy as np
import numpy.typing as npt
import torch
from matplotlib.ticker import MaxNLocator
from torch import Tensor
from typing_extensions import Self

from torchperc._checks import Data, as_tensor, check_choice, check_int, check_number, check_targets
from torchperc.nn.heads import Head
from torchperc.plots import style
from torchperc.plots.classifiers import check_log, classifier
from torchperc.rules.log import MistakeLog
from torchperc.rules.run import RuleResult

sklearn = lazy_loader.load("sklearn")

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

    def _draw(self) -> None:
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


def _draw_curves(ax: style.Axes, curves: Mapping[str, Any], epochs: Any = None, first: int = 0) -> list[Any]:
    """Draw curves by epoch, from the look of number ``first`` on; markers tell lines apart without colour."""
    lines = []
    for number, (name, values) in enumerate(curves.items(), first):
        look: dict[str, Any] = {"color": style.COLOURS[number % 6], "linestyle": ("-", "--", "-.", ":")[number % 4]}
        every = max(1, len(values) // 10)
        steps = np.arange(1, len(values) + 1) if epochs is None else epochs[name]
        places = (number % every, every)  # lines that lie on one another show their markers in turn
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
    return np.asarray(log.mistakes_by_epoch().double() / presented.clamp(min=1))


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

    def _draw(self) -> None:
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
    _legend_columns = 4

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

    def _draw(self) -> None:
        axes: style.Axes = self.ax_
        steps, values = ({name: curve[k] for name, curve in self.curves.items()} for k in (0, 1))
        self.lines_ = dict(zip(self.curves, _draw_curves(axes, values, steps), strict=True))
        style.epoch_axis(axes, self.ylabel)


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
        cls, model: Any, X: Data, y: Data, *, head: Head | None = None, bins: int = 30, ax: style.AnyAxes = None
    ) -> Self:
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
        name = "score, positive on the right side: y·s"
        if known.length:
            name = "distance from the boundary, positive on the right side: y·(w·x + b)/‖w‖"
        elif scores.dim() > 1:
            name = "lead of the true class's score over the best other, $s_y - s_r$"
        return cls(margins / (known.length or 1.0), name, bins).plot(ax=ax)

    def _draw(self) -> None:
        axes, margins = self.ax_, self.margins.numpy()
        right, wrong = margins[margins > 0], margins[margins <= 0]
        low, high = min(margins.min(), 0.0), max(margins.max(), 0.0)
        width = (high - low) / self.bins or 1.0
        # equal bars with an edge at 0, so that none holds both kinds; rounding must not leave a sample out
        edges = np.arange(min(np.floor(low / width), -1.0 if len(wrong) else 0.0), np.ceil(high / width) + 1) * width
        edges[0], edges[-1] = min(edges[0], low), max(edges[-1], high)
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


@dataclass(eq=False, repr=False)
class ResidualDisplay(style.Display):
    """Regression in two panels: true values against predictions, and residuals y − s against predictions.

    A good model has its points along the diagonal on the left, and a level band around 0 without a shape on the right;
    a bend says that the model is too stiff, a funnel that errors grow with the prediction.

    ``y`` and ``predicted`` are (N,), ``target`` names what is predicted. After :meth:`plot`, ``points_`` and
    ``residuals_`` are the points of the two panels, ``diagonal_`` and ``zero_`` the lines they should be near,
    ``band_`` the two lines at ± RMSE; ``rmse`` and ``r2`` are numbers.

    Example:
        >>> display = ResidualDisplay(torch.tensor([1.0, 2.0, 4.0]), torch.tensor([1.0, 3.0, 4.0])).plot()
        >>> display.residuals_.get_offsets()[:, 1].tolist(), round(display.rmse, 4), round(display.r2, 4)
        ([0.0, -1.0, 0.0], 0.5774, 0.7857)
    """

    y: Tensor
    predicted: Tensor
    target: str = "y"
    _size, _side_by_side = (6.5, 3.8), 2

    @classmethod
    def from_predictions(cls, y: Data, predicted: Data, *, target: str = "y", ax: style.AnyAxes = None) -> Self:
        """Draw how predictions compare with the truth, both (N,)."""
        count = len(as_tensor(y, "y"))
        truth, said = (check_targets(v, count, name=n).cpu() for v, n in ((y, "y"), (predicted, "predicted")))
        if not count:
            raise ValueError("y is empty; give at least one sample")
        return cls(truth, said, str(target)).plot(ax=ax)

    @property
    def rmse(self) -> float:
        """√ mean (y − s)²."""
        return float(sklearn.metrics.root_mean_squared_error(self.y, self.predicted))

    @property
    def r2(self) -> float:
        """1 − Σ (y − s)²/Σ (y − mean)²; NaN where all true values are equal."""
        return float(sklearn.metrics.r2_score(self.y, self.predicted)) if len(self.y.unique()) > 1 else float("nan")

    def _draw(self) -> None:
        truth, said = self.y.double().numpy(), self.predicted.double().numpy()
        count, name, (left, right) = len(truth), style.shortened(self.target, 18), self.ax_
        look: dict[str, Any] = {"s": 22 if count <= 500 else 10, "alpha": max(0.15, min(0.8, 400 / count))}
        look |= {"color": style.BLUE, "edgecolors": "white", "linewidths": 0.4, "rasterized": count > 5000}
        line: dict[str, Any] = {"color": style.ink(), "alpha": 1.0, "linewidth": 1.4, "linestyle": "-", "zorder": 1}
        drawn = []
        for axes, kind in ((left, "actual_vs_predicted"), (right, "residual_vs_predicted")):
            made = sklearn.metrics.PredictionErrorDisplay(y_true=truth, y_pred=said)
            made.plot(axes, kind=kind, scatter_kwargs=look, line_kwargs=line)
            drawn += [made.scatter_, made.line_]
            axes.set_xlabel(f"predicted {name}")
            for axis, most in ((axes.xaxis, 3), (axes.yaxis, 5)):  # a power of ten at the corner would cover the title
                axis.set_major_locator(MaxNLocator(most))
                axis.set_major_formatter(lambda value, place: style.format_number(value, 4))
            axes.grid(alpha=0.3)
            axes.set_axisbelow(True)
        self.points_, self.diagonal_, self.residuals_, self.zero_ = drawn
        self.diagonal_.set_label("prediction = truth")
        low, high = min(truth.min(), said.min()), max(truth.max(), said.max())
        pad = 0.04 * (high - low) or 1.0
        left.set_aspect("equal", adjustable="box")
        left.set(xlim=(low - pad, high + pad), ylim=(low - pad, high + pad), ylabel=f"true {name}")
        known = "" if np.isnan(self.r2) else f"R² = {self.r2:.3f}, ".replace("-", "−")
        left.set_title(f"{known}RMSE = {style.format_number(self.rmse)}", fontsize=11)
        line |= {"color": style.RED, "linestyle": "--"}
        self.band_ = [right.axhline(sign * self.rmse, **line) for sign in (1, -1)]
        self.band_[0].set_label("± RMSE")
        reach = max(float(np.abs(truth - said).max()), self.rmse) * 1.12 or 1.0
        right.set(ylim=(-reach, reach), ylabel="residual, true − predicted")
        right.set_title(f"Residuals of {count:,} sample{'s' * (count != 1)}", fontsize=11)
