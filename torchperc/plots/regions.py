"""A classifier and its samples: decision regions, the distribution of the margins, and an added feature."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from torchperc._checks import Data, check_bool, check_choice, check_int, check_labels, is_sparse
from torchperc.nn.heads import Head
from torchperc.nn.modules import Perceptron
from torchperc.plots import planes, style
from torchperc.plots.classifiers import Classifier, check_log, classifier, codes_of
from torchperc.rules.conventions import Verdict
from torchperc.rules.log import MistakeLog
from torchperc.rules.run import RuleResult
from torchperc.rules.trainer import RuleTrainer
from torchperc.samples import convert

FEATURES: dict[str, tuple[Callable[[Tensor], Tensor], str]] = {
    "product": (lambda X: X[:, 0] * X[:, 1], "x₁·x₂"),
    "squares": (lambda X: X.square().sum(1), "x₁² + x₂²"),
}


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

    plane: planes.Plane
    grid: planes.Grid
    grid_scores: Tensor
    points: Tensor  # the samples' coordinates in the plane
    y: Tensor
    head: Head
    ringed: Tensor  # which samples have a ring
    ring_name: str = "mistake"
    margin: float | None = None  # the score of the sample nearest to the boundary
    margin_name: str = "nearest sample"
    labels: style.Labels = None
    title: str = ""

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
    ) -> DecisionRegionDisplay:
        """Draw the decision regions of a model and the samples.

        With more than two features, a linear model of two or three classes is drawn in a projection onto w and the
        first principal direction of the rest; axes and title say so. The regions are exact there.

        The arguments that are not listed here are those of all displays.

        Args:
            log: of the run, for ``ring="support"``; a result brings its own.
            ring: ``"mistakes"`` for the samples that the model decides wrongly, ``"support"`` for those that its
                weights are a sum of, which are the ones it was ever wrong about; ``None`` for no rings.
            margin: draw lines through the samples nearest to the boundary, if a linear or kernel model of two classes
                has them all on the right side.
        """
        if ring is not None:
            check_choice("ring", ring, ("mistakes", "support"))
        if log is None and isinstance(model, RuleResult):
            log = model.log
        log = None if log is None else check_log(log)
        known = classifier(model, head)
        if is_sparse(X):
            raise TypeError("X is sparse, and a plane is drawn of dense samples; pass X.toarray()")
        samples, scores, target = known.judge(X, y)
        ringed = torch.zeros(len(target), dtype=torch.bool)
        if ring == "mistakes":
            ringed = known.head.decide(scores) != target
        elif ring == "support":
            ringed[_support(log, samples.cpu())] = True
        level, name = _margin(known, scores, target) if check_bool("margin", margin) else (None, "")
        plane = planes.plane_of(known, samples, names)
        style.label_names(labels, codes_of(scores))  # raises before anything is drawn
        if title is None:
            title = f"{samples.shape[1]} features, projected onto two directions" if samples.shape[1] > 2 else ""
        points = plane.project(samples.cpu())
        grid = planes.grid_of(plane, points, samples)
        ring_name = "support vector" if ring == "support" else "mistake"
        drawn = (plane, grid, known.scores(grid.points), points, target, known.head, ringed)
        return cls(*drawn, ring_name, level, name, labels, title).plot(ax=ax)

    def _place(self, ax: Any) -> style.Place:
        return style.canvas(ax, (6.0, 4.6))

    def _draw(self, own: bool) -> None:
        ax, codes, over = self.ax_, codes_of(self.grid_scores), (self.grid, self.grid_scores, self.head)
        count, names = len(self.y), style.label_names(self.labels, codes)
        size = 45.0 if count <= 200 else 18.0 if count <= 2000 else 5.0
        self.regions_ = planes.draw_regions(ax, *over)
        self.boundary_ = planes.draw_lines(ax, *over, [0.0], "boundary")
        levels = [] if self.margin is None else [-self.margin, self.margin]
        self.margin_ = planes.draw_lines(ax, *over, levels, self.margin_name, linestyles="dashed")
        self.points_ = planes.draw_points(ax, self.points, self.y, codes, names, size)
        self.ring_ = planes.draw_rings(ax, self.points[self.ringed], self.ring_name, size)
        ax.set(xlabel=self.plane.names[0], ylabel=self.plane.names[1], title=self.title)
        style.legend(ax, own)


def _margin(known: Classifier, scores: Tensor, y: Tensor) -> tuple[float | None, str]:
    """The score of the nearest sample and a name for it, if all samples are on the right side."""
    least = float(known.functional_margins(scores, y).min()) if scores.dim() == 1 and known.graded else 0.0
    if not least > 0:
        return None, ""
    length = 0.0 if known.weight is None else float(known.weight.double().norm())
    return least, f"nearest sample: {style.format_number(least / length)}" if length else "nearest sample"


def _support(log: MistakeLog | None, X: Tensor) -> Tensor:
    """The indices of the samples that the weights are a sum of."""
    if log is None:
        raise ValueError("ring='support' needs the log of the run; pass log=result.log, or the result as the model")
    trained = log.problem.samples.dense().cpu()
    if trained.shape != X.shape or not torch.equal(trained, X.to(trained.dtype)):
        raise ValueError("ring='support' marks samples of the training data, and X is not what the log was made on")
    index: Tensor = log.sample.unique().cpu()
    return index


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
    ) -> MarginDisplay:
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
        length = 0.0 if known.weight is None or scores.dim() > 1 else float(known.weight.double().norm())
        name = "score, positive on the right side: y·s"
        if length:
            name = "distance from the boundary, positive on the right side: y·(w·x + b)/‖w‖"
        elif scores.dim() > 1:
            name = "lead of the true class's score over the best other, $s_y - s_r$"
        return cls(margins / (length or 1.0), name, bins).plot(ax=ax)

    def _draw(self, own: bool) -> None:
        axes, margins = self.ax_, self.margins.numpy()
        right, wrong = margins[margins > 0], margins[margins <= 0]
        edges = _edges(margins, self.bins)
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
        style.legend(axes, own)


def _edges(margins: np.ndarray[Any, Any], bins: int) -> np.ndarray[Any, Any]:
    """Edges of equal bars, one of them at 0, so that no bar holds both kinds."""
    low, high = min(float(margins.min()), 0.0), max(float(margins.max()), 0.0)
    width = (high - low) / bins or 1.0
    first, last = np.floor(low / width), np.ceil(high / width)
    first = min(first, -1.0) if (margins <= 0).any() else first
    edges = np.arange(first, last + 1) * width
    edges[0], edges[-1] = min(edges[0], low), max(edges[-1], high)  # rounding must not leave a sample out
    return edges


@dataclass(eq=False, repr=False)
class LiftedDisplay(style.Display):
    """Two features with the best line that the rule found, and three with a plane; the third is made of the two.

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
        cls,
        X: Data,
        y: Data,
        feature: str | Callable[[Tensor], Tensor] = "product",
        *,
        name: str | None = None,
        max_epochs: int = 1000,
        ax: style.AnyAxes = None,
    ) -> LiftedDisplay:
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
        return cls(samples, target, height, before, after, known if name is None else name).plot(ax=ax)

    def _place(self, ax: Any) -> style.Place:
        return style.panels(ax, 2, 2, (7.0, 3.7), widths=(1.0, 1.2), projection=[None, "3d"])

    def _draw(self, own: bool) -> None:
        flat, deep = self.ax_
        if not hasattr(deep, "zaxis"):
            raise ValueError("the second of the axes must be in three dimensions; make it with projection='3d'")
        title, look = f"before\n{_outcome(self.before, 'line')}", {"ax": flat, "names": ("x₁", "x₂")}
        self.before_ = DecisionRegionDisplay.from_model(self.before, self.X, self.y, title=title, **look)
        flat.title.set_fontsize(10)
        style.few_ticks(flat, 5)
        self._draw_lifted(deep)
        if own and (inside := flat.get_legend()) is not None:
            inside.remove()
            style.legend(flat, own=True)

    def _draw_lifted(self, ax: Any) -> None:
        self.points_, self.plane_ = {}, None
        floor, few = min(0.0, float(self.height.min())), len(self.y) <= 50
        for code, colour, marker in zip((-1, 1), style.COLOURS, style.MARKERS, strict=False):
            part, up = self.X[self.y == code].numpy(), self.height[self.y == code].numpy()
            look: dict[str, Any] = {"color": colour, "marker": marker, "edgecolor": "white", "s": 45 if few else 14}
            self.points_[code] = ax.scatter(part[:, 0], part[:, 1], up, depthshade=False, **look)
            for (first, second), top in zip(part, up, strict=True) if few else ():  # a stem from the floor
                ax.plot([first, first], [second, second], [floor, top], color=colour, linewidth=1, alpha=0.6)
        if self.after.verdict is Verdict.SEPARATED:
            self.plane_ = self._draw_plane(ax)
            normal = self.after.model.weight[0, :2] * (self.X.amax(0) - self.X.amin(0))  # type: ignore[attr-defined]
            ax.view_init(12, math.degrees(math.atan2(normal[1], normal[0])) - 90)  # nearly along the plane
        name = style.shortened(self.name, 20)
        ax.set(xlabel="x₁", ylabel="x₂", zlabel=name)
        style.few_ticks(ax, 3)
        ax.tick_params(labelsize=8, pad=-1)
        widest = max(len(style.tick(value)) for value in ax.zaxis.get_majorticklocs())
        ax.xaxis.labelpad = ax.yaxis.labelpad = -1
        ax.zaxis.labelpad = max(-1.0, 2.0 * (widest - 3))  # beyond the numbers
        ax.set_box_aspect(None, zoom=0.9 if widest < 5 else 0.8)  # the upright axis's label stays within the panel
        ax.set_title(f"after, with {name}\n{_outcome(self.after, 'plane')}", fontsize=10)

    def _draw_plane(self, ax: Any) -> Any:
        """Draw the part of the separating plane within the picture; ``None`` if it stands upright."""
        weight, bias = self.after.model.weight[0], self.after.model.bias[0]  # type: ignore[attr-defined]  # linear
        if float(weight[2].abs()) < 1e-9 * float(weight.abs().max()):
            return None
        grid = planes.grid_of(planes.feature_plane(), self.X, self.X, steps=40, room=0.1)
        across, up = grid.points.T.reshape(2, 40, 40)
        surface = -(weight[0] * across + weight[1] * up + bias) / weight[2]
        low, high = self.height.min(), self.height.max()
        room = 0.25 * (high - low) + 1e-9
        values = surface.masked_fill((surface < low - room) | (surface > high + room), float("nan")).numpy()
        return ax.plot_surface(across.numpy(), up.numpy(), values, color="#999999", alpha=0.45, linewidth=0)


def _best(X: Tensor, y: Tensor, epochs: int) -> RuleResult:
    """A run with the weights of the fewest errors that occurred."""
    result = RuleTrainer(epochs, order="shuffled").fit(Perceptron(X.shape[1], dtype=torch.float64), X, y)
    return replace(result, select="pocket", model=result.log.pocket(ratchet="every"))


def _outcome(result: RuleResult, what: str) -> str:
    if result.verdict is Verdict.SEPARATED:
        return f"a {what} separates"
    return f"best {what} found, {int(result.log.errors().min())} wrong"
