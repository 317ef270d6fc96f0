"""Decision regions of a classifier over a plane, with the samples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from torchperc._checks import Data, check_bool, check_choice, is_sparse
from torchperc.nn.heads import Head
from torchperc.plots import planes, style
from torchperc.plots.classifiers import Classifier, check_log, classifier, codes_of
from torchperc.rules.log import MistakeLog
from torchperc.rules.run import RuleResult


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
            width = samples.shape[1]
            title = f"{width} features, projected onto two directions" if width > 2 else ""
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
