"""Learning curves: errors by epoch, and mistakes against their bound."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from torchperc import _checks as checks
from torchperc.plots import style
from torchperc.plots.classifiers import check_log
from torchperc.rules.log import MistakeLog
from torchperc.rules.run import RuleResult

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure
    from matplotlib.lines import Line2D

Curve = npt.NDArray[np.float64]


@dataclass(eq=False)
class LearningCurveDisplay:
    """Train and validation error by epoch, and, with a bound, the mistakes so far against it in a second panel.

    Args:
        train: error of each epoch.
        validation: error after each epoch, or ``None``.
        mistakes: how many were made by the end of each epoch, or ``None``.
        bound: that they cannot exceed, or ``None``.

    After :meth:`plot`, ``ax_`` is the axes, or the list of both with a bound; ``figure_`` their figure; ``train_``,
    ``validation_``, ``mistakes_`` and ``bound_`` are the lines.

    Example:
        >>> display = LearningCurveDisplay([0.5, 0.25, 0.0]).plot()
        >>> display.train_.get_ydata().tolist()
        [50.0, 25.0, 0.0]
    """

    train: Sequence[float] | Curve
    validation: Sequence[float] | Curve | None = None
    mistakes: Sequence[float] | Curve | None = None
    bound: float | None = None
    ax_: Axes | list[Axes] = field(init=False)
    figure_: Figure | SubFigure = field(init=False)
    train_: Line2D = field(init=False)
    validation_: Line2D | None = field(init=False, default=None)
    mistakes_: Line2D | None = field(init=False, default=None)
    bound_: Line2D | None = field(init=False, default=None)

    @classmethod
    def from_result(
        cls, result: RuleResult, *, bound: float | None = None, ax: Axes | Sequence[Axes] | None = None
    ) -> LearningCurveDisplay:
        """Draw the curves of a run by rule.

        The train error is what the log gives for nothing: the mistakes made in an epoch, of the samples presented in
        it. The validation error is taken after the epoch, if the run had validation data.

        Args:
            result: of the run; its log alone will do, but knows no validation error.
            bound: on the number of mistakes, such as (R/γ)²; with it there is a second panel.
            ax: axes to draw on; with a bound two of them, or one whose place is divided. A new figure by default.

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

    def plot(self, *, ax: Axes | Sequence[Axes] | None = None) -> LearningCurveDisplay:
        """Draw on axes, or in a new figure."""
        if self.bound is None:
            self.figure_, above = style.canvas(ax)  # type: ignore[arg-type]  # which refuses a sequence
            self.ax_ = above
        else:
            self.figure_, axes = style.panels(ax, 2, 2, (7.0, 3.8))
            above, self.ax_ = axes[0], axes
            self._mistakes(axes[1])
        self._errors(above)
        for one in (above,) if self.bound is None else axes:
            one.grid(alpha=0.3)
            one.set_xlabel("epoch")
            whole_epochs(one)
            one.legend(fontsize=9)
        return self

    def _errors(self, ax: Axes) -> None:
        look: dict[str, Any] = _look(len(self.train))
        epochs = np.arange(1, len(self.train) + 1)
        (self.train_,) = ax.plot(
            epochs, 100 * np.asarray(self.train), color=style.BLUE, marker="o", label="train, in the epoch", **look
        )
        if self.validation is not None:
            values = 100 * np.asarray(self.validation)
            name = "validation, after it"
            (self.validation_,) = ax.plot(epochs, values, "--", color=style.RED, marker="s", label=name, **look)
        ax.set(ylabel="error (%)", title="Error")
        _from_zero(ax)

    def _mistakes(self, ax: Axes) -> None:
        if self.mistakes is None or self.bound is None:
            raise ValueError(f"bound={self.bound} goes with mistakes, found None; give the mistakes by epoch")
        epochs = np.arange(1, len(self.mistakes) + 1)
        look: dict[str, Any] = _look(len(self.mistakes))
        (self.mistakes_,) = ax.plot(
            epochs, self.mistakes, color=style.BLUE, marker="o", label=f"mistakes: {self.mistakes[-1]:.0f}", **look
        )
        name = f"bound: {self.bound:.4g}"
        self.bound_ = ax.axhline(self.bound, color="black", linestyle="--", linewidth=1.6, label=name)
        ax.set(ylabel="mistakes so far", title="Mistakes and their bound")
        _from_zero(ax)


def errors_by_epoch(log: MistakeLog) -> Curve:
    """Mistakes made in each epoch, as a share of the samples presented in it.

    Example:
        >>> import torchperc as tp
        >>> log = tp.RuleTrainer().fit(tp.Perceptron(2), *tp.data.gate("AND")).log
        >>> errors_by_epoch(log).tolist()
        [0.5, 0.75, 0.75, 0.5, 0.5, 0.75, 0.5, 0.25, 0.0]
    """
    presented = log.epoch_ends.diff(prepend=log.epoch_ends.new_zeros(1))
    shares: Curve = (log.mistakes_by_epoch().double() / presented.clamp(min=1)).cpu().numpy()
    return shares


def whole_epochs(ax: Axes) -> None:
    """Ticks at whole numbers only.

    Example:
        >>> figure, axes = style.canvas(None)
        >>> whole_epochs(axes)
    """
    from matplotlib.ticker import MaxNLocator

    ax.xaxis.set_major_locator(MaxNLocator(integer=True))


def _from_zero(ax: Axes) -> None:
    """Begin a little below 0, so that markers there are whole."""
    top = ax.get_ylim()[1]
    ax.set_ylim(-0.03 * top, top)


def _look(count: int) -> dict[str, Any]:
    """Markers tell lines apart without colour; on long curves every so often."""
    return {"markevery": max(1, count // 12), "markersize": 5, "linewidth": 1.8}
