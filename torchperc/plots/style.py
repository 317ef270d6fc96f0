"""What all pictures share: colours, markers and line styles, where axes come from, where legends go.

Figures are made without pyplot: no display is looked for, nothing is shown, nothing stays open. To draw into a figure
of your own, pyplot's or any other, hand over its axes as ``ax``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from io import BytesIO
from itertools import chain, cycle, islice
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:  # for all displays: matplotlib is imported on first use
    from typing import Self, TypeAlias

    from matplotlib.axes import Axes as Axes
    from matplotlib.axis import Axis
    from matplotlib.colorbar import Colorbar
    from matplotlib.figure import Figure as Figure
    from matplotlib.figure import SubFigure
    from matplotlib.gridspec import GridSpecBase
    from matplotlib.lines import Line2D as Line2D

    AnyAxes: TypeAlias = Axes | Sequence[Axes] | None
    AnyFigure: TypeAlias = Figure | SubFigure
    Labels: TypeAlias = Sequence[object] | None
    Place: TypeAlias = tuple[AnyFigure, Any]

COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442")
"""Okabe and Ito's palette, told apart by every kind of eye."""

BLUE, ORANGE, GREEN, PURPLE, SKY, RED, YELLOW = COLOURS
MARKERS = "os^vDP*X<>"
LINES = ("-", "--", "-.", ":")
WIDE = (6.0, 4.0)
"""Inches, at 100 dots each: numbers can still be read where a phone shrinks it."""
LONGEST = 28
"""Characters of a name in a legend or at a tick."""
_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
_CHARACTER = 0.095  # inches that a character of a tick takes, with what must be free beside it


class Display:
    """What all displays do: :meth:`plot` draws on given axes or in a new figure, kept as ``ax_`` and ``figure_``.

    What their ``from_…`` methods have in common:

    - ``model``: a net, a Lightning module with one, a model out of a log, a ``RuleResult``, or a function from samples
      to scores, such as an estimator's ``decision_function``;
    - ``X``, ``y``: samples (N, d), and their labels −1/+1 or class indices;
    - ``log``: of a run by rule; its ``RuleResult`` will do;
    - ``head``: decides; the module's own by default, else a perceptron's;
    - ``names`` of the features; ``labels``, names of the classes in the order −1, +1 or 0 … K−1;
    - ``ax``: axes to draw on, a new figure by default. Displays of several panels take as many axes, or divide the
      place of one, and have a list as ``ax_``.

    A notebook shows a display that is the last value of a cell, unless it was drawn on axes of the user's.
    """

    ax_: Any
    figure_: AnyFigure

    def plot(self, *, ax: AnyAxes = None) -> Self:
        """Draw on axes, or in a new figure."""
        self.figure_, self.ax_ = self._place(ax)
        self._own = ax is None
        self._draw(self._own)
        for axes in self.ax_ if isinstance(self.ax_, list) else [self.ax_]:
            plain_numbers(axes)
        return self

    def _repr_png_(self) -> bytes | None:
        """The picture in a notebook; one on the user's axes is left to their figure, which is shown anyway."""
        if not getattr(self, "_own", False):
            return None
        self.figure_.get_figure(root=True).savefig(file := BytesIO(), format="png")
        return file.getvalue()

    def _place(self, ax: Any) -> Place:
        return canvas(ax)

    def _draw(self, own: bool) -> None:
        """Draw on ``ax_``, in a figure of our own or the user's."""
        raise NotImplementedError


class LineStyle(NamedTuple):
    """How one of several lines looks."""

    colour: str
    dashes: str
    marker: str


def class_colours(count: int) -> list[str]:
    """A colour for each of ``count`` classes: the palette while it lasts, else a scale of as many steps."""
    if count <= len(COLOURS):
        return list(COLOURS[:count])
    from matplotlib import colormaps
    from matplotlib.colors import to_hex

    return [to_hex(colormaps["viridis"](k / (count - 1))) for k in range(count)]


def line_styles(count: int) -> list[LineStyle]:
    """Styles for ``count`` lines, which differ in dashes and markers as well as in colour; yellow is lost on white.

    Example:
        >>> line_styles(2)
        [LineStyle(colour='#0072B2', dashes='-', marker='o'), LineStyle(colour='#E69F00', dashes='--', marker='s')]
    """
    styles = zip(cycle(COLOURS[:-1]), cycle(LINES), cycle(MARKERS), strict=False)
    return [LineStyle(*style) for style in islice(styles, count)]


def label_text(label: int, many: bool) -> str:
    """A label as it is written in legends.

    Example:
        >>> label_text(-1, many=False), label_text(1, many=False), label_text(1, many=True)
        ('−1', '+1', '1')
    """
    return str(label) if many else f"{label:+d}".replace("-", "−")


def label_names(labels: Labels, codes: Sequence[int], many: bool) -> list[str]:
    """The user's names of the classes, or their codes as text.

    Example:
        >>> label_names(None, (-1, 1), many=False), label_names(("no", "yes"), (-1, 1), many=False)
        (['−1', '+1'], ['no', 'yes'])
    """
    if labels is None:
        return [label_text(code, many) for code in codes]
    if isinstance(labels, str) or len(labels) != len(codes):
        raise ValueError(f"labels={labels!r} must name {len(codes)} classes, in the order {', '.join(map(str, codes))}")
    return [str(label) for label in labels]


def shortened(name: str, most: int = LONGEST) -> str:
    """A name of so many characters at most: of a longer one the middle is left out, as the ends tell names apart.

    A formula between dollars stays as it is.

    Example:
        >>> shortened("sepal length (cm)"), shortened("a label with a long name, number 12", 16)
        ('sepal length (cm)', 'a label w…ber 12')
    """
    if len(name) <= most or _is_formula(name):
        return name
    tail = (most - 1) * 2 // 5
    return f"{name[: most - 1 - tail].rstrip(chr(92))}…{name[len(name) - tail :]}"


def _is_formula(name: str) -> bool:
    from matplotlib.cbook import is_math_text

    return bool(is_math_text(name))


def tick(value: float, position: float | None = None, written: float = 1e9) -> str:
    """A number at a tick: written out below 10⁹, or another limit, with six figures at most, else as a power of ten.

    Example:
        >>> tick(-0.25), tick(20000.0), tick(2.5e9), tick(1e-7)
        ('−0.25', '20,000', '2.5×10⁹', '10⁻⁷')
    """
    digits, _, power = (f"{value:,.0f}" if 1e4 <= abs(value) < written else f"{value + 0.0:.6g}").partition("e")
    times = "" if not power else "10" if digits in ("1", "-1") else "×10"
    digits = digits.removesuffix("1") if times == "10" else digits
    return f"{digits}{times}".replace("-", "−") + (str(int(power)).translate(_RAISED) if power else "")


def figure_of(value: float, digits: int = 3) -> str:
    """A number in a legend, of so many figures.

    Example:
        >>> figure_of(0.27735), figure_of(-6.5179e9, 4)
        ('0.277', '−6.518×10⁹')
    """
    return tick(float(f"{value:.{digits}g}"))


def plain_numbers(ax: Axes) -> None:
    """Write the numbers of axes out at their ticks, which are as few as their length needs: no "1e9" in a corner.

    Where all ticks are nearly the same number, matplotlib's way of writing what differs remains.
    """
    from matplotlib.ticker import FuncFormatter, MaxNLocator, ScalarFormatter

    for axis in (ax.xaxis, ax.yaxis, *([ax.zaxis] if hasattr(ax, "zaxis") else [])):
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
            if len(ticks) > (most := max(2, int(width / (_CHARACTER * longest)))):
                locator.set_params(nbins=most)


def canvas(ax: Axes | None, size: tuple[float, float] = WIDE) -> tuple[AnyFigure, Axes]:
    """The axes to draw on and their figure: a new one if ``ax`` is ``None``."""
    if ax is None:
        figure = new_figure(size)
        return figure, figure.add_subplot()
    check_axes(ax)
    return ax.figure, ax


def new_figure(size: tuple[float, float] = WIDE) -> Figure:
    """A figure that pyplot knows nothing of."""
    from matplotlib.figure import Figure

    return Figure(figsize=size, dpi=100, layout="constrained")


def panels(
    ax: AnyAxes,
    count: int,
    columns: int,
    size: tuple[float, float],
    widths: Sequence[float] | None = None,
    **options: Any,
) -> tuple[AnyFigure, list[Axes]]:
    """Axes for ``count`` panels and their figure: new, in place of the given axes, or as many as were given.

    ``widths`` of the columns are in proportion; ``options`` are for ``add_subplot``, a list has one entry per panel.
    """
    rows = -(-count // columns)
    each = [{name: v[k] if isinstance(v, list) else v for name, v in options.items()} for k in range(count)]
    if ax is None:
        figure: AnyFigure = new_figure(size)
        grid: GridSpecBase = figure.add_gridspec(rows, columns, width_ratios=widths)
    elif hasattr(ax, "get_subplotspec"):
        figure, whole = canvas(ax)  # type: ignore[arg-type]  # one Axes
        grid = _divided(whole, rows, columns, widths)
    else:
        return _given(ax, count)
    return figure, [figure.add_subplot(grid[k // columns, k % columns], **each[k]) for k in range(count)]


def _divided(ax: Axes, rows: int, columns: int, widths: Sequence[float] | None) -> GridSpecBase:
    from matplotlib.gridspec import GridSpecFromSubplotSpec

    place = ax.get_subplotspec()
    if place is None:
        raise ValueError("ax is not part of a grid, so its place cannot be divided; make it with subplots()")
    ax.set_axis_off()
    return GridSpecFromSubplotSpec(rows, columns, subplot_spec=place, width_ratios=widths)


def _given(ax: Any, count: int) -> tuple[AnyFigure, list[Axes]]:
    flat = getattr(ax, "flat", ax)  # an array of axes, as subplots() returns it, or a sequence
    axes = list(flat) if hasattr(flat, "__iter__") else [ax]
    for one in axes:
        check_axes(one)
    if len(axes) != count:
        raise ValueError(f"ax has {len(axes)} axes for {count} panels; give as many, or one, whose place is divided")
    return axes[0].figure, axes


def check_axes(ax: object) -> None:
    """Refuse what is not matplotlib axes."""
    from matplotlib.axes import Axes

    if not isinstance(ax, Axes):
        raise TypeError(f"ax must be matplotlib axes or None, found {type(ax).__name__}; make some with subplots()")


def legend(ax: Axes, own: bool, columns: int = 5) -> None:
    """Put the legend below the picture if the figure is ``own``, else into the user's axes."""
    legends([ax], own, columns)


def legends(axes: Sequence[Axes], own: bool, columns: int = 5) -> None:
    """One legend for all panels below the picture if the figure is ``own``, else one in each of the user's axes."""
    found = [ax.get_legend_handles_labels() for ax in axes]
    if own and any(names for _, names in found):
        handles, names = ([*chain(*both)] for both in zip(*found, strict=True))
        legend_below(axes[0].figure, handles, names, columns)
    for ax, (_, names) in zip(axes, found, strict=True) if not own else ():
        if names:
            ax.legend(fontsize=8, framealpha=0.85)


def legend_below(figure: AnyFigure, handles: Sequence[Any], names: Sequence[str], columns: int = 5) -> None:
    """Put a legend below all axes, where it covers nothing, in as many columns as fit; the figure grows with it."""
    look: dict[str, Any] = {"fontsize": 9, "frameon": False, "handletextpad": 0.4, "columnspacing": 1.2}
    look["loc"] = "outside lower center"
    short = [shortened(name) for name in names]
    for count in range(min(columns, len(short)), 0, -1):
        made = figure.legend(list(handles), short, ncols=count, **look)
        extent = made.get_window_extent()
        if count == 1 or extent.width <= figure.bbox.width:
            break
        made.remove()
    if (whole := figure.get_figure(root=True)) is figure:  # rows beyond the first take nothing from the axes
        width, height = whole.get_size_inches()
        rows = -(-len(short) // count)
        whole.set_size_inches(width, height + extent.height / whole.dpi * (rows - 1) / rows)


def weight_bar(figure: AnyFigure, image: Any, axes: Any, **look: Any) -> Colorbar:
    """The scale of colours of weights."""
    bar = figure.colorbar(image, ax=axes, format=tick, pad=0.02, aspect=25, **look)
    bar.set_label("weight (+ for, − against)", fontsize=9)
    return bar


def epoch_axis(ax: Axes) -> None:
    """Name the axis of epochs, from the first to the last, with ticks at integers only, over a faint grid."""
    ax.set_xlabel("epoch")
    first, last = ax.dataLim.intervalx
    if math.isfinite(last - first):
        room = max(0.5, 0.02 * (last - first))
        ax.set_xlim(max(first - room, 0.5), last + room)
    counts(ax.xaxis)
    ax.grid(alpha=0.3)


def from_zero(ax: Axes) -> None:
    """Let percentages or counts begin a little below 0, so that markers there are whole, and end at 1 or above."""
    top = max(ax.get_ylim()[1], 1.0)
    ax.set_ylim(-0.03 * top, top)


def logarithmic_epochs(ax: Axes) -> None:
    """Draw epochs on a logarithmic scale, where the first are not squeezed to the edge."""
    ax.set_xscale("log")
    ax.set_xlabel("epoch (logarithmic)")
    ax.xaxis.set_major_formatter(tick)


def counts(axis: Axis) -> None:
    """Ticks of an axis at integers only."""
    from matplotlib.ticker import MaxNLocator

    axis.set_major_locator(MaxNLocator("auto", steps=[1, 2, 5, 10], integer=True, min_n_ticks=1))
