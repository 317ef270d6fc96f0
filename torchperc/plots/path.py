"""The boundary after each mistake of a run, as small multiples and as an animation."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from torchperc._checks import check_int, check_number
from torchperc._files import write_atomically
from torchperc.nn.heads import PerceptronHead
from torchperc.plots import planes, style
from torchperc.plots.classifiers import check_log
from torchperc.rules.log import MistakeLog

_HEAD = PerceptronHead()
_WRITERS = {".gif": "pillow", ".mp4": "ffmpeg"}
_BEFORE: dict[str, Any] = {"color": "#777777", "linestyle": "dashed", "linewidth": 1.0}


@dataclass(eq=False, repr=False)
class PathDisplay(style.Display):
    """The boundary after each mistake: the state before it dashed, the sample it was made on ringed.

    After :meth:`plot`, ``boundary_`` has the lines of each panel and ``ring_`` the ring, ``None`` at the start, where
    no mistake has been made.

    Example:
        >>> import torchperc as tp
        >>> result = tp.RuleTrainer().fit(tp.Perceptron(2), *tp.data.gate("AND"))
        >>> PathDisplay.from_log(result.log, max_panels=2).ring_[1].get_offsets().tolist()
        [[0.0, 1.0]]
    """

    log: MistakeLog
    states: Sequence[int]  # numbers of mistakes after which the panels are drawn
    names: tuple[str, str]
    labels: style.Labels = None

    @classmethod
    def from_log(
        cls,
        log: MistakeLog,
        *,
        ax: style.AnyAxes = None,
        states: Sequence[int] | None = None,
        max_panels: int = 18,
        names: Sequence[str] | None = None,
        labels: style.Labels = None,
    ) -> PathDisplay:
        """Draw a panel for each mistake, or for ``max_panels`` of them spread evenly, the last among them.

        ``states`` chooses the numbers of mistakes after which to draw, 0 for the start. The log is over two features;
        the other arguments are those of all displays.
        """
        log = check_log(log)
        width = log.problem.samples.n_features
        if width != 2:
            raise ValueError(f"the log is over {width} features; a path is drawn over 2: learn from two of them")
        planes.check_names(names, 2)
        chosen = _spread(len(log), check_int("max_panels", max_panels, at_least=1))
        if states is not None:
            chosen = [check_int("states", t, at_least=0) for t in states]
        if not chosen:
            raise ValueError("states is empty; name at least one, 0 is the start")
        if max(chosen) > len(log):
            raise ValueError(f"states has {max(chosen)}, which is beyond the log of {len(log)} mistakes")
        display = cls(log, chosen, planes.feature_plane(names).names, labels)
        style.label_names(labels, display._codes)  # raises before anything is drawn
        return display.plot(ax=ax)

    def _place(self, ax: Any) -> style.Place:
        columns = min(6, len(self.states))
        side = min(6.6 / columns, 3.6)
        size = max(0.4 + side * columns, 5.0), 0.9 + side * -(-len(self.states) // columns)
        return style.panels(ax, len(self.states), columns, size)

    def _draw(self, own: bool) -> None:
        self.boundary_, self.ring_ = [], []
        count, columns = len(self.states), min(6, len(self.states))
        for k, (panel, t) in enumerate(zip(self.ax_, self.states, strict=True)):
            lines, ring = self._draw_state(panel, t, size=26)
            self.boundary_.append(lines)
            self.ring_.append(ring)
            panel.set_title(f"mistake {t}" if t else "start", fontsize=9, pad=3)
            panel.locator_params(nbins=3)
            left, lowest = k % columns == 0, k + columns >= count
            panel.tick_params(labelsize=7, length=2, labelleft=left, labelbottom=lowest)
            across, up = (style.shortened(name, 70 // columns) for name in self.names)
            panel.set_xlabel(across if lowest else "", fontsize=8)
            panel.set_ylabel(up if left else "", fontsize=8)
        if own:
            _legend(self.figure_, self.ax_)

    @property
    def _codes(self) -> list[int]:
        return [-1, 1] if self.log.problem.num_classes is None else list(range(self.log.problem.num_classes))

    @cached_property
    def _grid(self) -> planes.Grid:
        rows = self.log.problem.samples.dense()
        return planes.grid_of(planes.feature_plane(), rows.cpu(), rows, 100, room=0.4)

    def _draw_state(self, ax: style.Axes, t: int, size: float) -> tuple[list[Any], Any]:
        """Draw the state after ``t`` mistakes, the boundary before, and the sample of the last mistake."""
        X, y = self.log.problem.samples.dense().cpu(), self.log.y.cpu()
        size = size if len(y) <= 50 else size / 2
        scores = self.log.state_at(t).scores(self._grid.points).cpu()
        planes.draw_regions(ax, self._grid, scores, _HEAD)
        if t:
            before = self.log.state_at(t - 1).scores(self._grid.points).cpu()
            planes.draw_lines(ax, self._grid, before, _HEAD, [0.0], **{f"{name}s": v for name, v in _BEFORE.items()})
        lines = planes.draw_lines(ax, self._grid, scores, _HEAD, [0.0])
        planes.draw_points(ax, X, y, self._codes, style.label_names(self.labels, self._codes), size)
        wrong = X[self.log.sample[t - 1 : t].cpu()] if t else X[:0]
        return lines, planes.draw_rings(ax, wrong, "mistake", size)

    def animate(self, path: str | Path, *, fps: float = 2.0, max_frames: int = 200, size: float = 5.0) -> Path:
        """Write an animation with a frame for each mistake, from the start to the last.

        Args:
            path: ends in ``.gif``, or in ``.mp4``, which needs ffmpeg.
            fps: frames per second; the last one is held longer.
            max_frames: maximum number of mistakes; those of a longer log are spread evenly.
            size: width of the picture in inches of 100 dots.
        """
        from matplotlib.animation import FuncAnimation

        target, writer = Path(path), _writer(Path(path))
        fps, inches = check_number("fps", fps, above=0), check_number("size", size, above=0)
        shown = _spread(len(self.log), check_int("max_frames", max_frames, at_least=1))
        figure = style.new_figure((inches, 0.84 * inches))
        axes = figure.add_subplot()
        ends, count = self.log.mistakes_by_epoch().cumsum(0), len(self.log)

        def draw(t: int) -> list[Any]:
            axes.clear()
            self._draw_state(axes, t, size=60)
            now = f"after mistake {t} of {count}, in epoch {int(torch.searchsorted(ends, t)) + 1}"
            axes.set_title(now if t else f"before the first of {count} mistakes")
            axes.set(xlabel=self.names[0], ylabel=self.names[1])
            axes.locator_params(nbins=5)
            style.plain_numbers(axes)
            return []

        draw(0)
        _legend(figure, [axes], ring=True)  # the figure grows with it
        figure.draw_without_rendering()
        figure.set_layout_engine("none")  # the axes stay where they are
        frames = [*dict.fromkeys([0, *shown]), *shown[-1:] * 3]
        with tempfile.TemporaryDirectory() as folder:
            beside = Path(folder) / f"path{target.suffix}"
            film = FuncAnimation(figure, draw, frames, init_func=lambda: [])
            film.save(str(beside), writer=writer, fps=fps, dpi=100)  # type: ignore[arg-type]  # any number will do
            write_atomically(target, beside.read_bytes())
        return target


def _spread(count: int, most: int) -> list[int]:
    """At most ``most`` of the numbers 1 to ``count``, evenly spread, the last among them; 0 if there are none."""
    if not count:
        return [0]
    return [-(-count * k // most) for k in range(1, most + 1)] if count > most else list(range(1, count + 1))


def _legend(figure: style.AnyFigure, axes: Sequence[style.Axes], ring: bool = False) -> None:
    """Draw one legend for all panels, which also names the two kinds of line."""
    from matplotlib.lines import Line2D

    named = {name: handle for ax in axes for handle, name in zip(*ax.get_legend_handles_labels(), strict=True)}
    if ring or "mistake" in named:
        look: dict[str, Any] = {"marker": "o", "linestyle": "", "markerfacecolor": "none", "markersize": 10}
        named["mistake"] = Line2D([], [], color=style.ink(), **look)
    named["boundary after the mistake"] = Line2D([], [], color=style.ink())
    named["boundary before it"] = Line2D([], [], **_BEFORE)
    style.legend_below(figure, list(named.values()), list(named))


def _writer(path: Path) -> str:
    """The name of matplotlib's writer for the file."""
    from matplotlib.animation import writers

    name = _WRITERS.get(path.suffix.lower(), "")
    if not name:
        raise ValueError(f"path={str(path)!r} must end in .gif or .mp4")
    if not writers.is_available(name):
        raise ValueError(f"path={str(path)!r}: MP4 needs ffmpeg, and none was found; install it, or write a .gif")
    if not path.parent.is_dir():
        raise ValueError(f"path={str(path)!r} is in a folder that does not exist; make {path.parent} first")
    return name
