"""The path of a run: the boundary after each mistake, as small multiples and as an animation, out of the log."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from torchperc._checks import check_int, check_number
from torchperc._files import write_atomically
from torchperc.nn.heads import PerceptronHead
from torchperc.plots import planes, style
from torchperc.plots.classifiers import check_log
from torchperc.rules.log import MistakeLog

if TYPE_CHECKING:
    from matplotlib.animation import AbstractMovieWriter
    from matplotlib.collections import PathCollection
    from matplotlib.contour import QuadContourSet

_HEAD = PerceptronHead()
_STEPS = 100  # of the grid: panels are small
_COLUMNS = 6
_HOLD = 4  # how many times the last frame is shown


@dataclass(eq=False, repr=False)
class PathDisplay(style.Display):
    """The boundary after each mistake: the state before it dashed, the sample it was made on ringed.

    After :meth:`plot`, ``boundary_`` has the lines of each panel and ``ring_`` the ring, ``None`` at the start, where
    no mistake has been made.

    Example:
        >>> import torchperc as tp
        >>> result = tp.RuleTrainer().fit(tp.Perceptron(2), *tp.data.gate("AND"))
        >>> PathDisplay.from_log(result.log, most=2).ring_[1].get_offsets().tolist()
        [[0.0, 1.0]]
    """

    log: MistakeLog
    states: Sequence[int]  # after how many mistakes the panels are
    columns: int  # of panels side by side
    names: tuple[str, str]
    labels: style.Labels = None

    @classmethod
    def from_log(
        cls,
        log: MistakeLog,
        *,
        ax: style.AnyAxes = None,
        states: Sequence[int] | None = None,
        most: int = 18,
        columns: int | None = None,
        names: Sequence[str] | None = None,
        labels: style.Labels = None,
    ) -> PathDisplay:
        """Draw a panel for each mistake, or for ``most`` of them spread evenly, the last among them.

        The arguments that are not listed here are those of all displays.

        Args:
            log: of the run, over two features.
            states: after how many mistakes, if you want to choose; 0 is the start.
            most: how many panels at most.
            columns: of panels side by side; at most 6 by default.

        Example:
            >>> import torchperc as tp
            >>> log = tp.RuleTrainer().fit(tp.Perceptron(2), *tp.data.gate("OR")).log
            >>> display = PathDisplay.from_log(log)
            >>> len(log), len(display.ax_), display.ax_[8].get_title()
            (9, 9, 'mistake 9')
        """
        log = check_log(log)
        width = log.problem.samples.n_features
        if width != 2:
            raise ValueError(f"the log is over {width} features; a path is drawn over 2: learn from two of them")
        plane = planes.feature_plane(names)
        chosen = spread(len(log), most) if states is None else [check_int("states", t, at_least=0) for t in states]
        if not chosen:
            raise ValueError("states is empty; name at least one, 0 is the start")
        if max(chosen) > len(log):
            raise ValueError(f"states has {max(chosen)}, which is beyond the log of {len(log)} mistakes")
        columns = min(_COLUMNS, len(chosen)) if columns is None else check_int("columns", columns, at_least=1)
        _class_names(log, labels)  # refused before anything is drawn
        return cls(log, chosen, columns, plane.names, labels).plot(ax=ax)

    def _place(self, ax: Any) -> style.Place:
        rows = -(-len(self.states) // self.columns)
        side = min(6.6 / self.columns, 3.6)
        size = max(0.4 + side * self.columns, 5.0), 0.9 + rows * side
        return style.panels(ax, len(self.states), self.columns, size)

    def _draw(self, own: bool) -> None:
        scene = _Scene(self.log, self.labels)
        self.boundary_, self.ring_ = [], []
        for k, (panel, t) in enumerate(zip(self.ax_, self.states, strict=True)):
            lines, ring = scene.draw(panel, t, size=26)
            self.boundary_.append(lines)
            self.ring_.append(ring)
            panel.set_title(f"mistake {t}" if t else "start", fontsize=9, pad=3)
            panel.locator_params(nbins=3)
            left, lowest = k % self.columns == 0, k + self.columns >= len(self.states)
            panel.tick_params(labelsize=7, length=2, labelleft=left, labelbottom=lowest)
            across, up = (style.shortened(name, 70 // self.columns) for name in self.names)
            panel.set_xlabel(across if lowest else "", fontsize=8)
            panel.set_ylabel(up if left else "", fontsize=8)
        if own:
            _legend(self.figure_, self.ax_)

    def animate(self, path: str | Path, *, fps: float = 2.0, most: int = 200, size: float = 5.0) -> Path:
        """Write the path as a moving picture, a frame for each mistake, from the start to the last.

        Args:
            path: ends in ``.gif``, which needs nothing further, or in ``.mp4``, which needs ffmpeg.
            fps: frames per second; the last is held a little longer.
            most: how many mistakes to show at most; of a longer log they are spread evenly.
            size: width of the picture in inches, of 100 dots each.

        Example:
            >>> import tempfile
            >>> import torchperc as tp
            >>> log = tp.RuleTrainer().fit(tp.Perceptron(2), *tp.data.gate("OR")).log
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     PathDisplay.from_log(log, most=1).animate(f"{folder}/path.gif", most=2).name
            'path.gif'
        """
        target = Path(path)
        writer = _writer(target, check_number("fps", fps, above=0))
        inches = check_number("size", size, above=0)
        frames = [0, *spread(len(self.log), most)]
        if not target.parent.is_dir():
            raise ValueError(f"path={str(target)!r} is in a folder that does not exist; make {target.parent} first")
        figure = style.new_figure((inches, 0.84 * inches))
        axes = figure.add_subplot()
        scene = _Scene(self.log, self.labels)
        epochs = self.log.mistakes_by_epoch().cumsum(0)
        scene.draw(axes, 0, size=60)
        _legend(figure, [axes], ring=True)  # first, as the figure grows with it
        with tempfile.TemporaryDirectory() as folder:
            beside = Path(folder) / f"path{target.suffix}"
            with writer.saving(figure, str(beside), dpi=100):
                for number, t in enumerate(dict.fromkeys(frames)):
                    axes.clear()
                    scene.draw(axes, t, size=60)
                    epoch = int(torch.searchsorted(epochs, t)) + 1
                    axes.set(xlabel=self.names[0], ylabel=self.names[1])
                    count = len(self.log)
                    now = f"after mistake {t} of {count}, in epoch {epoch}"
                    axes.set_title(now if t else f"before the first of {count} mistakes")
                    axes.locator_params(nbins=5)
                    style.plain_numbers(axes)
                    if number == 0:
                        figure.draw_without_rendering()
                        figure.set_layout_engine("none")  # so that the axes stay where they are
                    for _ in range(_HOLD if t == frames[-1] else 1):
                        writer.grab_frame()
            write_atomically(target, beside.read_bytes())
        return target


class _Scene:
    """A log's data and the grid around them, to draw any of its states."""

    def __init__(self, log: MistakeLog, labels: style.Labels) -> None:
        self.log = log
        self.X, self.y = log.problem.samples.dense().cpu(), log.y.cpu()
        self.grid = planes.grid_of(planes.feature_plane(), self.X, log.problem.samples.dense(), _STEPS, room=0.4)
        self._kept: tuple[int, Tensor] = (-1, torch.empty(0))
        self.codes, self.names = _class_names(log, labels)

    def draw(self, ax: style.Axes, t: int, size: float) -> tuple[list[QuadContourSet], PathCollection | None]:
        """The state after ``t`` mistakes, the boundary before the last of them, and the sample it was made on."""
        size = size if len(self.y) <= 50 else size / 2
        before = planes.fields(self.grid, self._scores(t - 1), 0.0) if t else []
        scores = self._scores(t)
        planes.draw_regions(ax, self.grid, scores, _HEAD)
        planes.draw_lines(ax, self.grid, before, [0.0], colors="#555555", linestyles="dashed", linewidths=1.0)
        lines = planes.draw_lines(ax, self.grid, planes.fields(self.grid, scores, 0.0), [0.0])
        planes.draw_points(ax, self.X, self.y, self.codes, self.names, size)
        return lines, planes.draw_rings(
            ax, self.X[self.log.sample[t - 1 : t].cpu()] if t else self.X[:0], "mistake", size
        )

    def _scores(self, t: int) -> Tensor:
        """Scores of the grid after ``t`` mistakes; those asked for last are at hand, as the next frame needs them."""
        if self._kept[0] != t:
            self._kept = (t, self.log.state_at(t).scores(self.grid.points).cpu())
        return self._kept[1]


def spread(count: int, most: int) -> list[int]:
    """At most ``most`` of the numbers 1 to ``count``, evenly spread, the last among them; 0 if there are none."""
    most = check_int("most", most, at_least=1)
    if not count:
        return [0]
    return [-(-count * k // most) for k in range(1, most + 1)] if count > most else list(range(1, count + 1))


def _class_names(log: MistakeLog, labels: style.Labels) -> tuple[list[int], list[str]]:
    """Codes and names of the classes."""
    classes = log.problem.num_classes
    codes = [-1, 1] if classes is None else list(range(classes))
    return codes, style.label_names(labels, codes, classes is not None)


def _legend(figure: style.AnyFigure, axes: Sequence[style.Axes], ring: bool = False) -> None:
    """One legend for all panels, which also names the two kinds of line."""
    from matplotlib.lines import Line2D

    named = {name: handle for ax in axes for handle, name in zip(*ax.get_legend_handles_labels(), strict=True)}
    after = Line2D([], [], color="black")
    before = Line2D([], [], color="#555555", linestyle="dashed", linewidth=1.0)
    if ring or "mistake" in named:
        look: dict[str, Any] = {"marker": "o", "linestyle": "", "markerfacecolor": "none", "markersize": 10}
        named["mistake"] = Line2D([], [], color="black", **look)
    names = [*named, "boundary after the mistake", "boundary before it"]
    style.legend_below(figure, [*named.values(), after, before], names)


def _writer(path: Path, fps: float) -> AbstractMovieWriter:
    from matplotlib.animation import FFMpegWriter, PillowWriter

    kind = path.suffix.lower()
    if kind == ".gif":
        return PillowWriter(fps=fps)  # type: ignore[arg-type]  # any number will do
    if kind == ".mp4":
        if not FFMpegWriter.isAvailable():
            raise ValueError(f"path={str(path)!r}: MP4 needs ffmpeg, and none was found; install it, or write a .gif")
        return FFMpegWriter(fps=fps)  # type: ignore[arg-type]
    raise ValueError(f"path={str(path)!r} must end in .gif or .mp4")
