"""What all displays share: the base class, colours and markers, axes, numbers at ticks, legends.

Figures are made without pyplot: no screen is needed and nothing stays open. To draw into a figure of your own, pass its
axes as ``ax``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from io import BytesIO
from itertools import chain
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # for all displays: matplotlib is imported on first use
    from typing import Self, TypeAlias

    from matplotlib.axes import Axes as Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure as Figure
    from matplotlib.figure import SubFigure
    from matplotlib.lines import Line2D as Line2D

    AnyAxes: TypeAlias = Axes | Sequence[Axes] | None
    AnyFigure: TypeAlias = Figure | SubFigure
    Labels: TypeAlias = Sequence[object] | None
    Place: TypeAlias = tuple[AnyFigure, Any]

COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442")
"""Okabe and Ito's palette, which colour-blind readers can tell apart."""

BLUE, ORANGE, GREEN, PURPLE, SKY, RED, YELLOW = COLOURS
MARKERS = "os^vDP*X<>"
_SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
_CHARACTER = 0.095  # inches per character of a tick label, with the space beside it


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
    figure_: AnyFigure
    _own = False

    def plot(self, *, ax: AnyAxes = None) -> Self:
        """Draw on axes, or in a new figure."""
        self.figure_, self.ax_ = self._place(ax)
        self._own = ax is None
        self._draw(self._own)
        for axes in self.ax_ if isinstance(self.ax_, list) else [self.ax_]:
            plain_numbers(axes)
        return self

    def _repr_png_(self) -> bytes | None:
        """The picture in a notebook; ``None`` on the user's axes, whose figure is shown anyway."""
        if not self._own:
            return None
        self.figure_.get_figure(root=True).savefig(file := BytesIO(), format="png")
        return file.getvalue()

    def _place(self, ax: Any) -> Place:
        return canvas(ax)

    def _draw(self, own: bool) -> None:
        """Draw on ``ax_``, in a figure of our own or the user's."""
        raise NotImplementedError


def class_colours(count: int) -> list[str]:
    """A colour for each of ``count`` classes: the palette, or steps of viridis if it is too short."""
    if count <= len(COLOURS):
        return list(COLOURS[:count])
    from matplotlib import colormaps
    from matplotlib.colors import to_hex

    return [to_hex(colormaps["viridis"](k / (count - 1))) for k in range(count)]


def ink() -> str:
    """The colour of boundaries and rings: black, or that of axes in the user's matplotlib style."""
    from matplotlib import rcParams

    return str(rcParams["axes.edgecolor"])


def label_names(labels: Labels, codes: Sequence[int]) -> list[str]:
    """The user's names of the classes, or their codes as text."""
    if labels is None:
        return ["−1", "+1"] if list(codes) == [-1, 1] else [str(code) for code in codes]
    if isinstance(labels, str) or len(labels) != len(codes):
        raise ValueError(f"labels={labels!r} must name {len(codes)} classes, in the order {', '.join(map(str, codes))}")
    return [str(label) for label in labels]


def shortened(name: str, longest: int = 28) -> str:
    """A name of at most ``longest`` characters: a longer one loses its middle; formulas between dollars stay."""
    from matplotlib.cbook import is_math_text

    if len(name) <= longest or is_math_text(name):
        return name
    tail = (longest - 1) * 2 // 5
    return f"{name[: longest - 1 - tail].rstrip(chr(92))}…{name[len(name) - tail :]}"


def tick(value: float, position: float | None = None) -> str:
    """A number at a tick, such as 20,000 or 2.5×10⁹: six digits at most, and a power of ten from 10⁹ on."""
    digits, _, power = (f"{value:,.0f}" if 1e4 <= abs(value) < 1e9 else f"{value + 0.0:.6g}").partition("e")
    if power:
        mantissa = {"1": "", "-1": "-"}.get(digits, f"{digits}×")
        digits = f"{mantissa}10{str(int(power)).translate(_SUPERSCRIPT)}"
    return digits.replace("-", "−")


def format_number(value: float, digits: int = 3) -> str:
    """A number in a legend, rounded to so many significant digits."""
    return tick(float(f"{value:.{digits}g}"))


def plain_numbers(ax: Axes) -> None:
    """Write tick labels out, unless all are nearly equal, and no more of them than the axis has room for."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator, ScalarFormatter

    for axis in _all_axis(ax):
        low, high = axis.get_view_interval()
        form = axis.get_major_formatter()
        ours = isinstance(form, ScalarFormatter) or (isinstance(form, FuncFormatter) and form.func is tick)
        if not ours or high - low < 1e-4 * max(abs(low), abs(high)):
            continue
        axis.set_major_formatter(tick)
        locator, ticks = axis.get_major_locator(), axis.get_majorticklocs()
        if axis is ax.xaxis and isinstance(locator, MaxNLocator) and len(ticks):
            longest = max(len(tick(value)) for value in ticks) + 1
            width = ax.get_position().width * ax.get_figure(root=True).get_figwidth()  # type: ignore[union-attr]
            if len(ticks) > (fitting := max(2, int(width / (_CHARACTER * longest)))):
                locator.set_params(nbins=fitting)


# --- axes ---


def new_figure(size: tuple[float, float] = (6.0, 4.0)) -> Figure:
    """A figure that pyplot does not manage; ``size`` in inches of 100 dots."""
    from matplotlib.figure import Figure

    return Figure(figsize=size, dpi=100, layout="constrained")


def canvas(ax: Any, size: tuple[float, float] = (6.0, 4.0)) -> tuple[AnyFigure, Axes]:
    """The axes to draw on and their figure: a new one if ``ax`` is ``None``."""
    from matplotlib.axes import Axes

    if ax is None:
        figure = new_figure(size)
        return figure, figure.add_subplot()
    if not isinstance(ax, Axes):
        raise TypeError(f"ax must be matplotlib axes or None, found {type(ax).__name__}; make some with subplots()")
    return ax.figure, ax


def panels(
    ax: Any, count: int, columns: int, size: tuple[float, float], widths: Sequence[float] | None = None, **options: Any
) -> tuple[AnyFigure, list[Axes]]:
    """Axes for ``count`` panels and their figure: new, in place of one axes, or those that were given.

    ``options`` are for ``add_subplot``; a list has one entry per panel.
    """
    shape = -(-count // columns), columns
    if ax is None:
        figure: AnyFigure = new_figure(size)
        grid: Any = figure.add_gridspec(*shape, width_ratios=widths)
    elif hasattr(ax, "get_subplotspec"):
        figure, _ = canvas(ax)
        if (place := ax.get_subplotspec()) is None:
            raise ValueError("ax is not part of a grid, so its place cannot be divided; make it with subplots()")
        ax.set_axis_off()
        grid = place.subgridspec(*shape, width_ratios=widths)
    else:
        flat = getattr(ax, "flat", ax)  # an array of axes, as subplots() returns it, or a sequence
        given = [canvas(one) for one in (flat if hasattr(flat, "__iter__") else [ax])]
        if len(given) != count:
            raise ValueError(f"ax has {len(given)} axes for {count} panels; give as many, or one to be divided")
        return given[0][0], [one for _, one in given]
    each = [{name: v[k] if isinstance(v, list) else v for name, v in options.items()} for k in range(count)]
    return figure, [figure.add_subplot(grid[k // columns, k % columns], **each[k]) for k in range(count)]


def few_ticks(ax: Any, count: int) -> None:
    """At most ``count`` intervals between the ticks of each axis."""
    from matplotlib.ticker import MaxNLocator

    for axis in _all_axis(ax):
        axis.set_major_locator(MaxNLocator(count))


def _all_axis(ax: Any) -> list[Axis]:
    return [ax.xaxis, ax.yaxis, *([ax.zaxis] if hasattr(ax, "zaxis") else [])]


def integer_ticks(axis: Axis) -> None:
    """Ticks of an axis at integers only."""
    from matplotlib.ticker import MaxNLocator

    axis.set_major_locator(MaxNLocator("auto", steps=[1, 2, 5, 10], integer=True, min_n_ticks=1))


def epoch_axis(ax: Axes) -> None:
    """Name the axis of epochs, with ticks at integers only, over a faint grid."""
    ax.set_xlabel("epoch")
    first, last = ax.dataLim.intervalx
    if math.isfinite(last - first):
        room = max(0.5, 0.02 * (last - first))
        ax.set_xlim(max(first - room, 0.5), last + room)
    integer_ticks(ax.xaxis)
    ax.grid(alpha=0.3)


def from_zero(ax: Axes) -> None:
    """Let the vertical axis begin a little below 0, so that markers there are whole, and end at 1 or above."""
    top = max(ax.get_ylim()[1], 1.0)
    ax.set_ylim(-0.03 * top, top)


def logarithmic_epochs(ax: Axes) -> None:
    """Draw epochs on a logarithmic scale."""
    ax.set_xscale("log")
    ax.set_xlabel("epoch (logarithmic)")
    ax.xaxis.set_major_formatter(tick)


# --- legends ---


def legend(axes: Axes | Sequence[Axes], own: bool, columns: int = 5) -> None:
    """One legend for all panels below the picture if the figure is ``own``, else one in each of the user's axes."""
    every = list(axes) if isinstance(axes, Sequence) else [axes]
    found = {ax: ax.get_legend_handles_labels() for ax in every}
    if not own:
        for ax in (ax for ax, (_, names) in found.items() if names):
            ax.legend(fontsize=8, framealpha=0.85)
    elif any(names for _, names in found.values()):
        handles, names = (list(chain.from_iterable(side)) for side in zip(*found.values(), strict=True))
        legend_below(every[0].figure, handles, names, columns)


def legend_below(figure: AnyFigure, handles: Sequence[Any], names: Sequence[str], columns: int = 5) -> None:
    """Put a legend below all axes, in as many columns as fit; the figure grows with its rows."""
    look: dict[str, Any] = {"fontsize": 9, "frameon": False, "handletextpad": 0.4, "columnspacing": 1.2}
    short = [shortened(name) for name in names]
    for count in range(min(columns, len(short)), 0, -1):
        made = figure.legend(list(handles), short, ncols=count, loc="outside lower center", **look)
        extent = made.get_window_extent()
        if count == 1 or extent.width <= figure.bbox.width:
            break
        made.remove()
    if (whole := figure.get_figure(root=True)) is figure:  # rows beyond the first take nothing from the axes
        width, height = whole.get_size_inches()
        rows = -(-len(short) // count)
        whole.set_size_inches(width, height + extent.height / whole.dpi * (rows - 1) / rows)
