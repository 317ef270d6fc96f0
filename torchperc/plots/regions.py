"""Decision regions: what a classifier says of every point of a plane, and the samples it says it of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from torchperc._checks import Data, check_bool, check_choice, is_sparse
from torchperc.nn.heads import Head
from torchperc.plots import planes, style
from torchperc.plots.classifiers import Classifier, check_log, classifier
from torchperc.rules.kernel import KernelModel
from torchperc.rules.log import MistakeLog
from torchperc.rules.run import RuleResult

RINGS = ("mistakes", "support")


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
        """Draw what a model makes of data.

        With more than two features, a linear model of two or three classes is drawn in a projection onto w and the
        first principal direction of the rest; axes and title say so. The regions are exact there.

        The arguments that are not listed here are those of all displays.

        Args:
            log: of the run, for ``ring="support"``; a result brings its own.
            ring: ``"mistakes"`` for the samples that the model decides wrongly, ``"support"`` for those that its
                weights are a sum of, which are the ones it was ever wrong about; ``None`` for no rings.
            margin: draw lines through the samples nearest to the boundary, if a linear or kernel model of two classes
                has them all on the right side.

        Example:
            >>> import torchperc as tp
            >>> X, y = tp.data.gate("AND")
            >>> result = tp.RuleTrainer().fit(tp.Perceptron(2), X, y)
            >>> display = DecisionRegionDisplay.from_model(result, X, y)
            >>> display.ax_.get_xlabel(), display.ring_ is None
            ('feature 1', True)
        """
        if ring is not None:
            check_choice("ring", ring, RINGS)
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
            ringed[_support(model, log, samples.cpu())] = True
        level, name = _margin(known, scores, target) if check_bool("margin", margin) else (None, "")
        plane = planes.plane_of(known, samples, names)
        style.label_names(labels, planes.codes_of(scores), scores.dim() > 1)  # refused before anything is drawn
        if title is None:
            title = f"{samples.shape[1]} features, projected onto two directions" if plane.projected else ""
        points = plane.project(samples.cpu())
        grid = planes.grid_of(plane, points, samples)
        ring_name = "support vector" if ring == "support" else "mistake"
        drawn = (plane, grid, known.scores(grid.points), points, target, known.head, ringed)
        return cls(*drawn, ring_name, level, name, labels, title).plot(ax=ax)

    def _place(self, ax: Any) -> style.Place:
        return style.canvas(ax, (6.0, 4.6))

    def _draw(self, own: bool) -> None:
        ax: style.Axes = self.ax_
        codes, size = planes.codes_of(self.grid_scores), planes.point_size(len(self.y))
        names = style.label_names(self.labels, codes, self.grid_scores.dim() > 1)
        self.regions_ = planes.draw_regions(ax, self.grid, self.grid_scores, self.head)
        over = planes.fields(self.grid, self.grid_scores, self.head.threshold)
        self.boundary_ = planes.draw_lines(ax, self.grid, over, [0.0], "boundary")
        levels = [] if self.margin is None else [-self.margin, self.margin]
        self.margin_ = planes.draw_lines(ax, self.grid, over, levels, self.margin_name, linestyles="dashed")
        self.points_ = planes.draw_points(ax, self.points, self.y, codes, names, size)
        self.ring_ = planes.draw_rings(ax, self.points[self.ringed], self.ring_name, size)
        ax.set(xlabel=self.plane.names[0], ylabel=self.plane.names[1], title=self.title)
        style.legend(ax, own)


def decision_boundary(
    score: Callable[[Tensor], Tensor],
    X: Tensor,
    y: Tensor,
    *,
    title: str = "",
    margin: float | None = None,
    head: Head | None = None,
    names: Sequence[str] | None = None,
    labels: style.Labels = None,
) -> style.Figure:
    """Decision regions over two features: the small form of :class:`DecisionRegionDisplay`, for boards and the demo.

    Args:
        score: the classifier, from (N, 2) to scores (N,), or (N, K).
        X: samples (N, 2).
        y: labels −1/+1, or class indices.
        title: above the picture.
        margin: draw lines where the score is this far from the boundary; none if ``None`` or with K classes.
        head: how scores are decided; a module's own by default, else a perceptron's.
        names: of the two features.
        labels: names of the classes, in the order −1, +1 or 0 … K−1.

    Example:
        >>> import torchperc as tp
        >>> X, y = tp.data.gate("AND")
        >>> type(decision_boundary(tp.Perceptron(2), X, y)).__name__
        'Figure'
    """
    if X.dim() != 2 or X.shape[1] != 2:
        raise ValueError(f"X has shape {tuple(X.shape)}; a decision boundary is drawn over 2 features: (N, 2)")
    known = classifier(score, head)
    scores = known.scores(X)
    plane = planes.plane_of(known, X, names)
    grid = planes.grid_of(plane, X.cpu(), X)
    level = None if not margin or scores.dim() > 1 else margin
    drawn = (plane, grid, known.scores(grid.points), X.cpu(), y.cpu(), known.head)
    wrong = known.head.decide(scores) != y.cpu()
    display = DecisionRegionDisplay(*drawn, wrong, margin=level, labels=labels, title=title)
    figure = style.new_figure((5.0, 4.0))
    display.figure_, display.ax_ = figure, figure.add_subplot()
    display._draw(own=True)
    style.plain_numbers(display.ax_)
    return figure


def _margin(known: Classifier, scores: Tensor, y: Tensor) -> tuple[float | None, str]:
    """The score of the nearest sample and a name for it, if all samples are on the right side."""
    slack = float(known.slack(scores, y).min()) if scores.dim() == 1 and known.graded else 0.0
    if not slack > 0:
        return None, ""
    if known.weight is None:
        return slack, "nearest sample"
    return slack, f"nearest sample: {style.figure_of(slack / float(known.weight.double().norm()))}"


def _support(model: Any, log: MistakeLog | None, X: Tensor) -> Tensor:
    """The numbers of the samples that the weights are a sum of."""
    inner = model.model if isinstance(model, RuleResult) else model
    own: Tensor | None = None
    index: Tensor
    if log is not None:
        index, support = log.sample.unique().cpu(), log.problem.samples
        own = support.dense().cpu() if len(support) == len(X) else None
    elif isinstance(inner, KernelModel):
        index = inner.index.cpu()
        if len(index) and int(index.max()) < len(X) and torch.equal(inner.support.dense().cpu(), X[index]):
            own = X
    else:
        raise ValueError("ring='support' needs the log of the run; pass log=result.log, or the result as the model")
    if own is None or own.shape != X.shape or not torch.equal(own, X.to(own.dtype)):
        raise ValueError("ring='support' marks samples of the training data, and X is not what the log was made on")
    return index
