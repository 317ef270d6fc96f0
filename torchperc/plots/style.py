"""What all displays share: the base class, colours and markers, axes, numbers, legends.

Figures are made without pyplot: no screen is needed and nothing stays open. To draw into a figure of your own, pass its
axes as ``ax``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from io import BytesIO
from typing import Any, TypeAlias

import matplotlib
import numpy as np
from matplotlib.axes import Axes as Axes
from matplotlib.axis import Axis
from matplotlib.cbook import is_math_text
from matplotlib.colors import to_hex
from matplotlib.figure import Figure as Figure
from matplotlib.ticker import MaxNLocator
from typing_extensions import Self

AnyAxes: TypeAlias = Axes | Sequence[Axes] | None
Labels: TypeAlias = Sequence[object] | None
Place: TypeAlias = tuple[Any, Any]  # a figure or a part of one, and axes

COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442")
"""Okabe and Ito's palette, which colour-blind readers can tell apart."""

BLUE, ORANGE, GREEN, PURPLE, SKY, RED, YELLOW = COLOURS
MARKERS = "os^vDP*X<>"
_SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


class Display:
    """Base of all displays: :meth:`plot` draws on given axes or in a new figure, kept as ``ax_`` and ``figure_``.

    The ``from_…`` methods share these arguments:

    - ``model``: a net, a Lightning module, a model out of a log, a ``RuleResult``, or a function from samples to
      scores, such as an estimator's ``decision_function``;
    - ``X``, ``y``: samples (N, d), and their labels −1/+1 or class indices;
    - ``log``: the mistake log of a run, or its ``RuleResult``;
    - ``head``: decides; the module's own by default, else a perceptron's;
    - ``names`` of the features; ``labels``, names of the classes in the order −1, +1 or 0 … K−1;
    - ``ax``: axes to draw on, a new figure by default. Displays of several panels take as many axes, or divide the
      place of one, and have a list as ``ax_``.

    A notebook shows a display that is the last value of a cell, unless it was drawn on axes of the user's.
    """

    ax_: Any
    figure_: Any
    _draw: Callable[[], None]  # on ``ax_``; the legend is added to what it draws
    _own = False  # whether the figure is ours
    _size = (6.0, 4.0)  # inches of 100 dots
    _side_by_side = 1  # panels; with several, ``ax_`` is a list
    _legend_columns = 5
    _legend_inside = True  # on the user's axes

    def plot(self, *, ax: AnyAxes = None) -> Self:
        """Draw on axes, or in a new figure."""
        self.figure_, self.ax_ = self._place(ax)
        self._own = ax is None
        self._draw()
        if self._own or self._legend_inside:
            legend(self.ax_, self._own, self._legend_columns)
        return self

    def _repr_png_(self) -> bytes | None:
        """The picture in a notebook; ``None`` on the user's axes, whose figure is shown anyway."""
        if not self._own:
            return None
        self.figure_.get_figure(root=True).savefig(file := BytesIO(), format="png")
        return file.getvalue()

    def _place(self, ax: Any) -> Place:
        count = self._side_by_side
        return canvas(ax, self._size) if count == 1 else panels(ax, count, count, self._size)


def class_colours(count: int) -> list[str]:
    """A colour for each of ``count`` classes: the palette, or steps of viridis if it is too short."""
    if count <= len(COLOURS):
        return list(COLOURS[:count])
    return [to_hex(matplotlib.colormaps["viridis"](k / (count - 1))) for k in range(count)]


def ink() -> str:
    """The colour of boundaries and rings: black, or that of axes in the user's matplotlib style."""
    return str(matplotlib.rcParams["axes.edgecolor"])


def label_names(labels: Labels, codes: Sequence[int]) -> list[str]:
    """The user's names of the classes, or their codes as text."""
    if labels is None:
        return ["−1", "+1"] if list(codes) == [-1, 1] else [str(code) for code in codes]
    if isinstance(labels, str) or len(labels) != len(codes):
        raise ValueError(f"labels={labels!r} must name {len(codes)} classes, in the order {', '.join(map(str, codes))}")
    return [str(label) for label in labels]


def shortened(name: str, longest: int = 28) -> str:
    """A name of at most ``longest`` characters: a longer one loses its middle; formulas between dollars stay."""
    if len(name) <= longest or is_math_text(name):
        return name
    tail = (longest - 1) * 2 // 5
    return f"{name[: longest - 1 - tail].rstrip(chr(92))}…{name[len(name) - tail :]}"


def format_number(value: float, digits: int = 3) -> str:
    """A number with ``digits`` significant digits, such as 20,000 or 2.5×10¹⁰.

    Example:
        >>> format_number(12345.6), format_number(-2.5e-7)
        ('12,300', '−2.5×10⁻⁷')
    """
    value = float(f"{value:.{digits}g}")
    written, _, power = (f"{value:,.0f}" if 1e4 <= abs(value) < 1e9 else f"{value:g}").partition("e")
    written += f"×10{str(int(power)).translate(_SUPERSCRIPT)}" if power else ""
    return written.replace("-", "−")


def new_figure(size: tuple[float, float] = (6.0, 4.0)) -> Figure:
    """A figure that pyplot does not manage; ``size`` in inches of 100 dots."""
    return Figure(figsize=size, dpi=100, layout="constrained")


def canvas(ax: Any, size: tuple[float, float]) -> Place:
    """The axes to draw on and their figure: a new one if ``ax`` is ``None``."""
    if ax is None:
        return (figure := new_figure(size)), figure.add_subplot()
    if not isinstance(ax, Axes):
        raise TypeError(f"ax must be matplotlib axes or None, found {type(ax).__name__}; make some with subplots()")
    return ax.figure, ax


def panels(
    ax: Any, count: int, columns: int, size: tuple[float, float], widths: Sequence[float] | None = None, last: str = ""
) -> Place:
    """Axes for ``count`` panels and their figure: new, in place of one axes, or those that were given.

    ``last`` is the projection of the last panel, if it has another than the rest.
    """
    if ax is not None and not hasattr(ax, "get_subplotspec"):
        given = [canvas(one, size)[1] for one in np.ravel(ax)]
        if len(given) != count:
            raise ValueError(f"ax has {len(given)} axes for {count} panels; pass one each, or one to divide")
        return given[0].figure, given
    figure, shape = new_figure(size) if ax is None else ax.figure, (-(-count // columns), columns)
    if ax is not None:
        ax.set_axis_off()
        if ax.get_subplotspec() is None:
            raise ValueError("ax is not part of a grid, so its place cannot be divided; make it with subplots()")
    divide = figure.add_gridspec if ax is None else ax.get_subplotspec().subgridspec
    grid: Any = divide(*shape, width_ratios=widths)
    kinds = [*[None] * (count - 1), last or None]
    return figure, [figure.add_subplot(grid[k // columns, k % columns], projection=kinds[k]) for k in range(count)]


def integer_ticks(axis: Axis) -> None:
    """Ticks of an axis at integers only."""
    axis.set_major_locator(MaxNLocator("auto", steps=[1, 2, 5, 10], integer=True, min_n_ticks=1))


def epoch_axis(ax: Axes, ylabel: str) -> None:
    """Name both axes, with epochs at integers over a faint grid.

    Mistakes are at integers, too. Mistakes and percentages begin a little below 0, so that markers there are whole, and
    end at 1 or above.
    """
    ax.set(xlabel="epoch", ylabel=ylabel)
    first, last = ax.dataLim.intervalx
    if math.isfinite(last - first):
        room = max(0.5, 0.02 * (last - first))
        ax.set_xlim(max(first - room, 0.5), last + room)
    integer_ticks(ax.xaxis)
    ax.grid(alpha=0.3)
    if ylabel.startswith("mistakes"):
        integer_ticks(ax.yaxis)
    if ylabel.startswith("mistakes") or ylabel.endswith("(%)"):
        top = max(ax.get_ylim()[1], 1.0)
        ax.set_ylim(-0.03 * top, top)


def legend(axes: Axes | Sequence[Axes], own: bool, columns: int = 5) -> None:
    """One legend for all panels below the picture if the figure is ``own``, else one in each of the user's axes.

    The one below has as many columns as fit, and the figure grows with its rows.
    """
    every = list(axes) if isinstance(axes, Sequence) else [axes]
    if not own:
        for ax in (ax for ax in every if ax.get_legend_handles_labels()[1]):
            ax.legend(fontsize=8, framealpha=0.85)
        return
    figure: Any = every[0].figure
    named = {name: handle for ax in every for handle, name in zip(*ax.get_legend_handles_labels(), strict=True)}
    look: dict[str, Any] = {"fontsize": 9, "frameon": False, "handletextpad": 0.4, "columnspacing": 1.2}
    short = [shortened(name) for name in named]
    for count in range(min(columns, len(short)), 0, -1):
        made = figure.legend(list(named.values()), short, ncols=count, loc="outside lower center", **look)
        extent = made.get_window_extent()
        if count == 1 or extent.width <= figure.bbox.width:
            rows = -(-len(short) // count)
            width, height = figure.get_size_inches()  # rows beyond the first take nothing from the axes
            figure.set_size_inches(width, height + extent.height / figure.dpi * (rows - 1) / rows)
            return
        made.remove()
