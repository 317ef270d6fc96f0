"""What all pictures share: colours, markers and line styles, where axes come from, where legends go.

Figures are made without pyplot: no display is looked for, nothing is shown, nothing stays open. To draw into a figure
of your own, pyplot's or any other, hand over its axes as ``ax``.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle, islice
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:  # for all displays: matplotlib is imported on first use
    from typing import Self, TypeAlias

    from matplotlib.axes import Axes as Axes
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
WIDE = (7.0, 4.2)
"""Inches, at 100 dots each: the width of a README."""


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
    """

    ax_: Any
    figure_: AnyFigure

    def plot(self, *, ax: AnyAxes = None) -> Self:
        """Draw on axes, or in a new figure."""
        self.figure_, self.ax_ = self._place(ax)
        self._draw(own=ax is None)
        return self

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
    handles, names = ax.get_legend_handles_labels()
    if handles and own:
        legend_below(ax.figure, handles, names, columns)
    elif handles:
        ax.legend(fontsize=8, framealpha=0.85)


def legend_below(figure: AnyFigure, handles: Sequence[Any], names: Sequence[str], columns: int = 5) -> None:
    """Put a legend below all axes, where it covers nothing."""
    look: dict[str, Any] = {"fontsize": 9, "frameon": False, "handletextpad": 0.4, "columnspacing": 1.2}
    figure.legend(list(handles), list(names), loc="outside lower center", ncols=min(columns, len(names)), **look)


def epoch_axis(ax: Axes) -> None:
    """Name the axis of epochs, with ticks at integers only, over a faint grid."""
    from matplotlib.ticker import MaxNLocator

    ax.set_xlabel("epoch")
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.grid(alpha=0.3)
