"""A classifier and its samples: decision regions, the path of a run, and an added feature."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from matplotlib.animation import FuncAnimation, writers
from torch import Tensor
from typing_extensions import Self

from torchperc._checks import Data, check_bool, check_choice, check_int, check_labels, check_number, is_sparse
from torchperc._files import write_atomically
from torchperc.nn.heads import Head
from torchperc.nn.modules import Perceptron
from torchperc.plots import style
from torchperc.plots.classifiers import Grid, Plane, axes_around, check_log, classifier, feature_plane, plane_of
from torchperc.rules.construct import BuildResult
from torchperc.rules.conventions import Verdict
from torchperc.rules.log import MistakeLog
from torchperc.rules.run import RuleResult
from torchperc.rules.trainer import RuleTrainer
from torchperc.samples import convert

Feature = str | Callable[[Tensor], Tensor]
FEATURES: dict[str, tuple[Callable[[Tensor], Tensor], str]] = {
    "product": (lambda X: X[:, 0] * X[:, 1], "x₁·x₂"),
    "squares": (lambda X: X.square().sum(1), "x₁² + x₂²"),
}
_WRITERS = {".gif": "pillow", ".mp4": "ffmpeg"}


@dataclass(eq=False, repr=False)
class DecisionRegionDisplay(style.Display):
    """Decision regions with the boundary, the margin, and mistakes or support vectors ringed.

    :meth:`from_model` draws them. After :meth:`plot`, ``regions_`` is the image, ``boundary_`` and ``margin_`` are the
    lines, ``points_`` the samples by class and ``ring_`` the rings.

    Example:
        >>> import torchperc as tp
        >>> display = DecisionRegionDisplay.from_model(tp.Perceptron(2), *tp.data.gate("AND"))
        >>> display.ring_.get_offsets().tolist()
        [[0.0, 0.0], [0.0, 1.0], [1.0, 0.0]]
    """

    plane: Plane
    grid: Grid
    points: Tensor  # the samples' coordinates in the plane
    y: Tensor
    ringed: Tensor  # which samples have a ring
    ring_name: str = "mistake"
    margin: float | None = None  # the score of the sample nearest to the boundary
    margin_name: str = "nearest sample"
    labels: style.Labels = None
    title: str = ""
    _size = (6.0, 4.6)

    @classmethod
    def from_model(
        cls,
        model: Any,
        X: Data,
        y: Data,
        *,
        ax: style.AnyAxes = None,
        log: MistakeLog | None = None,
        ring: str | None = "mistakes",
        margin: bool = True,
        head: Head | None = None,
        names: Sequence[str] | None = None,
        labels: style.Labels = None,
        title: str | None = None,
    ) -> Self:
        """Draw the decision regions of a model and the samples.

        With more than two features, a linear model of two or three classes is drawn in a projection onto w and the
        first principal direction of the rest; axes and title say so. The regions are exact there.

        The arguments that are not listed here are those of all displays.

        Args:
            log: of the run, for ``ring="support"``; a result brings its own.
            ring: ``"mistakes"`` for the samples that the model decides wrongly, ``"support"`` for the
                support vectors, the samples in the log; ``None`` for no rings.
            margin: draw lines through the samples nearest to the boundary, if a linear or kernel model of two classes
                has them all on the right side.
        """
        if ring is not None:
            check_choice("ring", ring, ("mistakes", "support"))
        if log is None and isinstance(model, RuleResult):
            log = model.log
        known = classifier(model, head)
        if is_sparse(X):
            raise TypeError("X is sparse, but the plot needs dense samples; pass X.toarray()")
        samples, scores, target = known.judge(X, y)
        ringed = torch.zeros(len(target), dtype=torch.bool)
        if ring == "mistakes":
            ringed = known.head.decide(scores) != target
        elif ring == "support":
            trained = torch.empty(0) if log is None else check_log(log).problem.samples.dense().cpu()
            if log is None or not torch.equal(trained, samples.cpu().to(trained.dtype)):
                raise ValueError("ring='support' needs the log of a run, log=result.log, and the X it was made on")
            ringed[check_log(log).sample.unique()] = True
        level, name = None, "nearest sample"
        if check_bool("margin", margin) and scores.dim() == 1 and known.graded:
            least = float(known.functional_margins(scores, target).min())
            level = least if least > 0 else None
            name += f": {style.format_number(least / known.length)}" if known.length else ""
        plane = plane_of(known, samples, names)
        if title is None:
            title = f"{samples.shape[1]} features, projected onto two directions" if samples.shape[1] > 2 else ""
        drawn = plane, Grid.of(known, plane, samples), plane.project(samples.cpu()), target, ringed
        ring_name = "support vector" if ring == "support" else "mistake"
        return cls(*drawn, ring_name, level, name, labels, title).plot(ax=ax)

    def _draw(self) -> None:
        ax, count = self.ax_, len(self.y)
        size = 45.0 if count <= 200 else 18.0 if count <= 2000 else 5.0
        self.regions_, self.boundary_ = self.grid.draw_regions(ax)
        levels = [] if self.margin is None else [-self.margin, self.margin]
        self.margin_ = self.grid.draw_lines(ax, levels, self.margin_name, linestyles="dashed")
        rings = self.ringed, self.ring_name
        self.points_, self.ring_ = self.grid.draw_points(ax, self.points, self.y, self.labels, size, *rings)
        ax.set(xlabel=self.plane.names[0], ylabel=self.plane.names[1], title=self.title)


@dataclass(eq=False, repr=False)
class PathDisplay(style.Display):
    """How a boundary came about, state by state: the one before dashed, the samples that led to the next one ringed.

    After :meth:`plot`, ``boundary_`` has the lines of each panel and ``ring_`` the ring, ``None`` where no sample has
    one.

    Example:
        >>> import torchperc as tp
        >>> result = tp.RuleTrainer().fit(tp.Perceptron(2), *tp.data.gate("AND"))
        >>> PathDisplay.from_log(result.log, max_panels=2).ring_[1].get_offsets().tolist()
        [[0.0, 1.0]]
        >>> X, y = tp.data.gate("XOR")
        >>> [panel.get_title() for panel in PathDisplay.from_build(tp.rules.build(X, y), X, y).ax_]
        ['1: 1 wrong', '2: 0 wrong']
    """

    X: Tensor
    y: Tensor
    states: Sequence[int]  # that are drawn
    count: int  # the number of the last state
    state_at: Callable[[int], tuple[Any, Tensor, str, str]]  # model, ringed samples, title, and that of an animation
    start: int  # the number of the first state
    names: tuple[str, str]
    labels: style.Labels
    legend: tuple[str, str]  # names of the boundary and the rings
    _legend_inside = False  # panels are too small

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
    ) -> Self:
        """Draw the boundary after each mistake, or after ``max_panels`` of them spread evenly, the last among them.

        ``states`` chooses the numbers of mistakes after which to draw, 0 for the start. The log is over two features;
        the other arguments are those of all displays.
        """
        log = check_log(log)
        width, ends, count = log.problem.samples.n_features, log.mistakes_by_epoch().cumsum(0), len(log)
        if width != 2:
            raise ValueError(f"the log has {width} features, but a path needs 2; train on two of them")
        chosen = _spread(count, check_int("max_panels", max_panels, at_least=1))
        if states is not None:
            chosen = [check_int("states", t, at_least=0) for t in states]
        if not chosen or max(chosen) > count:
            raise ValueError(f"states={states} must be numbers from 0 (start) to {count} (last mistake)")

        def state_at(t: int) -> tuple[Any, Tensor, str, str]:
            title, now = "start", f"before the first of {count} mistakes"
            if t:
                epoch = int(torch.searchsorted(ends, t)) + 1
                title, now = f"mistake {t}", f"after mistake {t} of {count}, in epoch {epoch}"
            return log.state_at(t), log.sample[max(0, t - 1) : t], title, now

        told = feature_plane(names).names, labels, ("boundary after the mistake", "mistake")
        return cls(log.problem.samples.dense(), log.y, chosen, count, state_at, 0, *told).plot(ax=ax)

    @classmethod
    def from_build(
        cls, result: BuildResult, X: Data, y: Data, *, ax: style.AnyAxes = None, max_panels: int = 18, **options: Any
    ) -> Self:
        """Draw what a net decides after each step of :func:`torchperc.rules.build`, or ``max_panels`` of them.

        ``X`` and ``y`` are the samples it was built on, of two features; ``names`` and ``labels`` as for all displays.
        Samples that a step corrected are ringed.
        """
        samples = convert.features(X, dtype=torch.float64, width=2, convert=True).cpu()
        chosen = _spread(len(result.steps), check_int("max_panels", max_panels, at_least=1))

        def state_at(t: int) -> tuple[Any, Tensor, str, str]:
            step, title = result.steps[t - 1], f"{t}: {result.steps[t - 1].errors} wrong"
            return step.net, step.corrected[: None if t > 1 else 0], title, title

        names, labels = feature_plane(options.pop("names", None)).names, check_labels(y, len(samples), None).cpu()
        told = names, options.pop("labels", None), ("boundary of the net", "corrected")
        return cls(samples, labels, chosen, len(result.steps), state_at, 1, *told, **options).plot(ax=ax)

    def _place(self, ax: Any) -> style.Place:
        columns = min(6, len(self.states))
        side = min(6.6 / columns, 3.6)
        size = max(0.4 + side * columns, 5.0), 0.9 + side * -(-len(self.states) // columns)
        return style.panels(ax, len(self.states), columns, size)

    def _draw(self) -> None:
        self.boundary_, self.ring_ = [], []
        count, columns = len(self.states), min(6, len(self.states))
        for k, (panel, t) in enumerate(zip(self.ax_, self.states, strict=True)):
            lines, ring, (title, _) = self._draw_state(panel, t, 26)
            self.boundary_.append(lines)
            self.ring_.append(ring)
            panel.set_title(title, fontsize=9, pad=3)
            panel.locator_params(nbins=3)
            left, lowest = k % columns == 0, k + columns >= count
            panel.tick_params(labelsize=7, length=2, labelleft=left, labelbottom=lowest)
            across, up = (style.shortened(name, 70 // columns) for name in self.names)
            panel.set_xlabel(across if lowest else "", fontsize=8)
            panel.set_ylabel(up if left else "", fontsize=8)

    def _draw_state(self, ax: style.Axes, t: int, size: float) -> tuple[list[Any], Any, list[str]]:
        """Draw a state, the boundary of the one before, and the samples; return lines, rings and both titles."""
        model, chosen, *titles = self.state_at(t)
        models = [self.state_at(t - 1)[0]] if t > self.start else []
        *before, now = (Grid.of(classifier(each), feature_plane(), self.X, 100, 0.4) for each in [*models, model])
        for grid in before:
            grid.draw_lines(ax, [0.0], "boundary before it", linestyles="dashed", linewidths=1.0, colors="#777777")
        _, lines = now.draw_regions(ax, self.legend[0])
        ringed = torch.isin(torch.arange(len(self.y)), chosen)
        size = size if len(self.y) <= 50 else size / 2
        _, ring = now.draw_points(ax, self.X.cpu(), self.y, self.labels, size, ringed, self.legend[1])
        return lines, ring, titles

    def animate(self, path: str | Path, *, fps: float = 2.0, max_frames: int = 200, size: float = 5.0) -> Path:
        """Write an animation with a frame for each state, from the start to the last.

        Args:
            path: ends in ``.gif``, or in ``.mp4``, which needs ffmpeg.
            fps: frames per second; the last one is held longer.
            max_frames: maximum number of states after the start; those of a longer path are spread evenly.
            size: width of the picture in inches of 100 dots.
        """
        target, writer = Path(path), _WRITERS.get(Path(path).suffix.lower(), "")
        if not writer:
            raise ValueError(f"path={str(path)!r} must end in .gif or .mp4")
        if not writers.is_available(writer):
            raise ValueError(f"path={str(path)!r}: MP4 needs ffmpeg, and none was found; install it, or write a .gif")
        if not target.parent.is_dir():
            raise ValueError(f"path={str(path)!r} is in a folder that does not exist; make {target.parent} first")
        fps, inches = check_number("fps", fps, above=0), check_number("size", size, above=0)
        shown = _spread(self.count, check_int("max_frames", max_frames, at_least=1))
        figure = style.new_figure((inches, 0.84 * inches))
        axes = figure.add_subplot()

        def draw(t: int) -> list[Any]:
            axes.clear()
            axes.set_title(self._draw_state(axes, t, size=60)[2][1])
            axes.set(xlabel=self.names[0], ylabel=self.names[1])
            axes.locator_params(nbins=5)
            return []

        draw(shown[-1])
        style.legend(axes, own=True)  # the figure grows with it
        figure.draw_without_rendering()
        figure.set_layout_engine("none")  # the axes stay where they are
        frames = [*dict.fromkeys([self.start, *shown]), *shown[-1:] * 3]
        with tempfile.TemporaryDirectory() as folder:
            beside = Path(folder) / f"path{target.suffix}"
            film = FuncAnimation(figure, draw, frames, init_func=lambda: [])
            film.save(str(beside), writer=writer, fps=fps, dpi=100)  # type: ignore[arg-type]  # any number will do
            write_atomically(target, beside.read_bytes())
        return target


def _spread(count: int, most: int) -> list[int]:
    """At most ``most`` of the numbers 1 to ``count``, evenly spread, the last among them; 0 if there are none."""
    most = min(count, most)
    return [-(-count * k // most) for k in range(1, most + 1)] or [0]


@dataclass(eq=False, repr=False)
class LiftedDisplay(style.Display):
    """Two features with the best line that the rule found; with an added third one, a plane.

    After :meth:`plot`, ``before_`` is the display of the first panel, ``points_`` are the lifted samples by label in
    the second, which has three dimensions, and ``plane_`` is the plane, or ``None`` if none was found.

    Example:
        >>> import torchperc as tp
        >>> display = LiftedDisplay.from_data(*tp.data.gate("XOR"))
        >>> display.before.verdict.name, display.after.verdict.name, display.height.tolist()
        ('BUDGET', 'SEPARATED', [0.0, 0.0, 0.0, 1.0])
    """

    X: Tensor
    y: Tensor
    height: Tensor  # the added feature
    before: RuleResult  # the run on the two features
    after: RuleResult  # the run on the three
    name: str  # of the added feature

    @classmethod
    def from_data(
        cls, X: Data, y: Data, feature: Feature = "product", *, name: str = "", max_epochs: int = 1000, ax: Any = None
    ) -> Self:
        """Learn by rule without and with an added feature, and draw both.

        Args:
            X: samples (N, 2).
            y: labels −1/+1.
            feature: ``"product"`` for x₁·x₂, ``"squares"`` for x₁² + x₂², or a function from (N, 2) to (N,).
            name: of the feature, on its axis.
            max_epochs: of each run; the one without the feature makes 100 at most.
            ax: if two axes are given, the second must be in three dimensions.
        """
        samples = convert.features(X, dtype=torch.float64, width=2, convert=True).cpu()
        target = check_labels(y, len(samples), None).cpu()
        if callable(feature):
            lift, known = feature, getattr(feature, "__name__", "feature").replace("<lambda>", "feature")
        else:
            lift, known = FEATURES[check_choice("feature", feature, tuple(FEATURES))]
        height = torch.as_tensor(lift(samples)).double()
        if height.shape != target.shape:
            raise ValueError(f"feature must map (N, 2) to (N,), found {tuple(height.shape)} for N = {len(target)}")
        column = convert.features(height[:, None], dtype=torch.float64, name="feature")
        before = _best(samples, target, min(max_epochs, 100))  # a run that cannot end finds its best line early
        after = _best(torch.cat((samples, column), 1), target, max_epochs)
        return cls(samples, target, height, before, after, name or known).plot(ax=ax)

    def _place(self, ax: Any) -> style.Place:
        return style.panels(ax, 2, 2, (7.0, 3.7), widths=(1.0, 1.2), last="3d")

    def _draw(self) -> None:
        flat, deep = self.ax_
        if not hasattr(deep, "zaxis"):
            raise ValueError("the second of the axes must be in three dimensions; make it with projection='3d'")
        title, look = f"before\n{_outcome(self.before, 'line')}", {"ax": flat, "names": ("x₁", "x₂")}
        self.before_ = DecisionRegionDisplay.from_model(self.before, self.X, self.y, title=title, **look)
        flat.title.set_fontsize(10)
        flat.locator_params(nbins=5)
        self._draw_lifted(deep)
        if self._own:
            flat.get_legend().remove()  # the figure has one

    def _draw_lifted(self, ax: Any) -> None:
        self.points_, self.plane_ = {}, None
        floor, few = min(0.0, float(self.height.min())), len(self.y) <= 50
        for code, colour, marker in zip((-1, 1), style.COLOURS, style.MARKERS, strict=False):
            across, up, top = torch.cat((self.X, self.height[:, None]), 1)[self.y == code].numpy().T
            look: dict[str, Any] = {"color": colour, "marker": marker, "edgecolor": "white", "s": 45 if few else 14}
            self.points_[code] = ax.scatter(across, up, top, depthshade=False, **look)
            for x, y, z in zip(across, up, top, strict=True) if few else ():  # a stem from the floor
                ax.plot([x, x], [y, y], [floor, z], color=colour, linewidth=1, alpha=0.6)
        if self.after.verdict is Verdict.SEPARATED:
            weight, bias = self.after.model.weight[0], self.after.model.bias[0]  # type: ignore[attr-defined]  # linear
            normal = weight[:2] * (self.X.amax(0) - self.X.amin(0))
            ax.view_init(12, math.degrees(math.atan2(normal[1], normal[0])) - 90)  # nearly along the plane
            if float(weight[2].abs()) >= 1e-9 * float(weight.abs().max()):  # else the plane stands upright
                across, up = torch.meshgrid(*axes_around(self.X, 40, 0.1), indexing="ij")
                surface = -(weight[0] * across + weight[1] * up + bias) / weight[2]
                room = 0.25 * (self.height.max() - self.height.min()) + 1e-9
                outside = (surface < self.height.min() - room) | (surface > self.height.max() + room)
                drawn = across.numpy(), up.numpy(), surface.masked_fill(outside, math.nan).numpy()
                self.plane_ = ax.plot_surface(*drawn, color="#999999", alpha=0.45, linewidth=0)
        name = style.shortened(self.name, 20)
        ax.set(xlabel="x₁", ylabel="x₂", zlabel=name)
        ax.locator_params(nbins=3)
        ax.tick_params(labelsize=8, pad=-1)
        widest = max(len(f"{value:g}") for value in ax.zaxis.get_majorticklocs())
        ax.xaxis.labelpad = ax.yaxis.labelpad = -1
        ax.zaxis.labelpad = max(-1.0, 2.0 * (widest - 3))  # beyond the numbers
        ax.set_box_aspect(None, zoom=0.9 if widest < 5 else 0.8)  # the upright axis's label stays within the panel
        ax.set_title(f"after, with {name}\n{_outcome(self.after, 'plane')}", fontsize=10)


def _best(X: Tensor, y: Tensor, epochs: int) -> RuleResult:
    """A run with the weights of the fewest errors that occurred."""
    result = RuleTrainer(epochs, order="shuffled").fit(Perceptron(X.shape[1], dtype=torch.float64), X, y)
    return replace(result, select="pocket", model=result.log.pocket(ratchet="every"))


def _outcome(result: RuleResult, what: str) -> str:
    wrong = int(result.log.errors().min())
    return f"best {what} found, {wrong} wrong" if wrong else f"a {what} separates"
