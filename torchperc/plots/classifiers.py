"""Adapter from models to displays: scores, decisions and weights, and their grid over the plane of a picture."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import Any, NamedTuple

import torch
from matplotlib.colors import ListedColormap
from torch import Tensor, nn

from torchperc._checks import Data, check_labels, is_sparse
from torchperc.nn import functional as tpf
from torchperc.nn.heads import Head, PerceptronHead
from torchperc.nn.modules import MLP, MulticlassPerceptron, Perceptron, eval_mode
from torchperc.plots import style
from torchperc.rules.kernel import KernelModel
from torchperc.rules.log import MistakeLog, VotedModel
from torchperc.rules.models import LinearModel, Model
from torchperc.rules.run import RuleResult
from torchperc.samples import convert

_TINY = 1e-10
_PRINCIPAL = "first principal direction", "second principal direction"


@dataclass(frozen=True, eq=False)
class Classifier:
    """Scores and how they are decided, with the weights of a linear classifier."""

    score: Callable[[Tensor], Any]  # from samples (N, d) to scores (N,) or (N, K)
    head: Head
    dtype: torch.dtype | None = None  # that samples must have
    device: torch.device | None = None
    weight: Tensor | None = None  # of a linear classifier, (1, d) or (K, d)
    graded: bool = False  # whether a score says how far a sample is from the boundary, here or in a kernel's space

    def judge(self, X: Data, y: Data) -> tuple[Any, Tensor, Tensor]:
        """Checked samples, their scores, and checked labels: −1/+1 for one score per sample, else class indices."""
        samples = self.admit(X)
        scores = self.scores(samples)
        classes = scores.shape[1] if scores.dim() > 1 else None
        return samples, scores, check_labels(y, len(scores), classes, both=False).cpu()

    def admit(self, X: Data) -> Any:
        """Checked samples, in the classifier's dtype: a tensor, or a CSR array if they are sparse."""
        width = None if self.weight is None else self.weight.shape[1]
        if is_sparse(X):
            return convert.sparse_features(X, dtype=self.dtype or torch.get_default_dtype(), width=width)
        given = X.dtype if isinstance(X, Tensor) and X.is_floating_point() else torch.get_default_dtype()
        return convert.features(X, dtype=self.dtype or given, device=self.device, width=width, convert=True)

    @torch.no_grad()
    def scores(self, X: Any) -> Tensor:
        """Scores on the CPU: (N,), or (N, K)."""
        given = X if isinstance(X, Tensor) else convert.csr_tensor(X).to(self.device)
        scores: Tensor = torch.as_tensor(self.score(given)).detach().cpu()
        scores = scores.squeeze(-1) if scores.dim() == 2 and scores.shape[1] == 1 else scores
        if scores.dim() not in (1, 2) or len(scores) != X.shape[0]:
            found = f"scores of shape {tuple(scores.shape)} for {X.shape[0]} samples"
            raise ValueError(f"the model gives {found}; (N,) or (N, K) is needed")
        return scores

    @property
    def length(self) -> float:
        """‖w‖ of a linear classifier of two classes, else 0."""
        return 0.0 if self.weight is None or len(self.weight) > 1 else float(self.weight.double().norm())

    def functional_margins(self, scores: Tensor, y: Tensor) -> Tensor:
        """y·(s − threshold), or s_y − s_r against the strongest other class: (N,)."""
        return tpf.functional_margins(scores.double() - (self.head.threshold if scores.dim() == 1 else 0.0), y)


def classifier(model: Any, head: Head | None = None) -> Classifier:
    """The adapter of a model; see :class:`torchperc.plots.style.Display` for what models are."""
    model = model.model if isinstance(model, RuleResult) else model
    like: Any = None  # has the dtype and the device
    own, net, linear = getattr(model, "head", None), model, False
    if isinstance(model, nn.Module):
        net, like = getattr(model, "net", model), next(model.parameters(), None)
        net = net.layers[0] if isinstance(net, MLP) and not net.hidden else net
        linear = isinstance(net, nn.Linear | Perceptron | MulticlassPerceptron)

        def score(X: Tensor) -> Any:
            with eval_mode(model):
                return model(X)
    elif isinstance(model, Model):
        score, linear, like = model.scores, type(model) is LinearModel, getattr(model, "weight", None)
        if isinstance(model, KernelModel | VotedModel):
            like = model.support if isinstance(model, KernelModel) else model.log.problem.samples
    elif callable(model):
        score = model
    else:
        raise TypeError(f"model must be a net, a model, a RuleResult or a function, found {type(model).__name__}")
    head = head or (own if isinstance(own, Head) else PerceptronHead())
    dtype, device = (None, None) if like is None else (like.dtype, like.device)
    weight = net.weight.detach().cpu() if linear else None
    return Classifier(score, head, dtype, device, weight, graded=linear or isinstance(model, KernelModel))


def check_log(log: object) -> MistakeLog:
    """The log, or that of a result; anything else raises."""
    found = log.log if isinstance(log, RuleResult) else log
    if not isinstance(found, MistakeLog):
        raise TypeError(f"log must be a MistakeLog, such as result.log, found {type(found).__name__}")
    return found


def codes_of(scores: Tensor) -> list[int]:
    """The labels that scores stand for: −1/+1 for one per sample, else class indices."""
    return [-1, 1] if scores.dim() == 1 else list(range(scores.shape[1]))


class Plane(NamedTuple):
    """Two orthonormal directions through a point that is orthogonal to both, and their names."""

    origin: Tensor  # (d,)
    directions: Tensor  # (2, d)
    names: tuple[str, str]

    def project(self, X: Tensor) -> Tensor:
        """Coordinates in the plane: (N, d) → (N, 2)."""
        return X.to(self.directions) @ self.directions.T

    def lift(self, points: Tensor) -> Tensor:
        """Points of the plane as samples: (N, 2) → (N, d)."""
        return self.origin + points.to(self.directions) @ self.directions


def feature_plane(names: Sequence[str] | None = None, width: int = 2) -> Plane:
    """The plane of the first two of ``width`` features, which are named all or not at all."""
    if names is not None and (isinstance(names, str) or len(names) != width):
        raise ValueError(f"names={names!r} must name {width} features")
    first, second, *_ = names or ("feature 1", "feature 2")
    return Plane(torch.zeros(2, dtype=torch.float64), torch.eye(2, dtype=torch.float64), (str(first), str(second)))


def plane_of(classifier: Classifier, X: Tensor, names: Sequence[str] | None = None) -> Plane:
    """The plane in which a classifier's regions can be drawn without error.

    With two features that is their plane. With more, the first axis is w/‖w‖ of a linear classifier (with three
    classes, the plane of the weights' differences); axes still missing are the principal directions of the rest.
    """
    width = X.shape[1]
    if width == 1:
        raise ValueError("X has 1 feature; decision regions are drawn over 2 features or more: (N, d) with d ≥ 2")
    features = feature_plane(names, width)
    if width == 2:
        return features
    if classifier.weight is None:
        why = f"X has {width} features and the model is not linear, so no plane shows its regions"
        raise ValueError(f"{why}; draw a net that was trained on two of them")
    weight, X = classifier.weight.double(), X.detach().cpu().double()
    own = weight if len(weight) == 1 else weight - weight.mean(0)
    own = _principal(own, own.norm())
    if len(own) > 2:
        why = f"X has {width} features and the weights of {len(weight)} classes differ in {len(own)} directions"
        raise ValueError(f"{why}; a plane shows the regions of two or three classes")
    if len(weight) < 3 and len(own) and float((weight[-1] - (weight[0] if len(weight) > 1 else 0)) @ own[0]) < 0:
        own = -own  # +1, or class 1, to the right
    centre = X.mean(0)
    rest = _principal(X - centre - (X - centre) @ own.T @ own, X.norm())
    found = torch.cat((own, rest))[:2]
    spare = torch.eye(width).to(X)[found.abs().sum(0).argsort()]  # where samples differ along w only
    across, upper = torch.linalg.qr(torch.cat((found, spare))[:2].T)
    directions = (across * upper.diagonal().sign()).T
    along = "along w/‖w‖" if len(weight) == 1 else "along the weights' difference"
    both = "first direction of the weights", "second direction of the weights"
    axes = (_PRINCIPAL, (along, f"{_PRINCIPAL[0]} of the rest"), both)[len(own)]
    return Plane(centre - directions.T @ (directions @ centre), directions, axes)


def _principal(rows: Tensor, scale: Tensor) -> Tensor:
    """Orthonormal directions that the rows span, the strongest first; what is tiny against the scale is rounding."""
    _, sizes, directions = torch.linalg.svd(rows, full_matrices=False)
    spanned: Tensor = directions[sizes > _TINY * scale]
    return spanned


def axes_around(points: Tensor, steps: int, room: float) -> list[Tensor]:
    """Values across and up over the points (N, 2), with room as a fraction of their extent."""
    low, high = points.amin(0).double(), points.amax(0).double()
    span = high - low
    level = torch.where(low == 0, 1.0, low.abs())  # where all points are at one place
    pad = torch.where(span > _TINY * level, span, level) * room
    return [torch.linspace(*ends, steps, dtype=torch.float64) for ends in zip(low - pad, high + pad, strict=True)]


class Grid(NamedTuple):
    """Scores of points over part of a plane, the second axis running fastest, and their classifier."""

    across: Tensor  # (M,)
    up: Tensor  # (M,)
    scores: Tensor  # (M²,) or (M², K)
    known: Classifier

    @classmethod
    def of(cls, known: Classifier, plane: Plane, X: Tensor, steps: int = 200, room: float = 0.25) -> Grid:
        """A grid around samples in a plane, with room as a fraction of their extent."""
        across, up = axes_around(plane.project(X.cpu()), steps, room)
        return cls(across, up, known.scores(plane.lift(torch.cartesian_prod(across, up)).to(X)), known)

    def draw_lines(self, ax: style.Axes, levels: Sequence[float], name: str = "", **options: Any) -> list[Any]:
        """Draw the lines where the score, or each class's lead over the others, is at ``levels`` from the threshold."""
        look = {"linestyles": "solid", "linewidths": 1.3, "colors": style.ink(), **options}
        drawn = []
        for code in [1] if self.scores.dim() == 1 else codes_of(self.scores):
            field = self.known.functional_margins(self.scores, torch.full((len(self.scores),), code))
            low, high = float(field.min()), float(field.max())
            inside = [level for level in levels if math.isfinite(high - low) and low < level < high]
            if inside:
                rows = field.reshape(len(self.across), -1).T
                drawn.append(ax.contour(self.across.numpy(), self.up.numpy(), rows, levels=inside, **look))
        if drawn and name:  # a contour has no entry in the legend
            ax.plot([], [], color=look["colors"], linestyle=look["linestyles"], label=name)
        return drawn

    def draw_regions(self, ax: style.Axes, name: str = "boundary") -> tuple[Any, list[Any]]:
        """Draw each class's region and the boundary: the image and the lines."""
        codes = codes_of(self.scores)
        extent = [float(axis[end]) for axis in (self.across, self.up) for end in (0, -1)]
        look: dict[str, Any] = {"extent": extent, "origin": "lower", "aspect": "auto", "interpolation": "nearest"}
        look |= {"cmap": ListedColormap(style.class_colours(len(codes))), "vmin": codes[0], "vmax": codes[-1]}
        rows = self.known.head.decide(self.scores).reshape(len(self.across), -1).T
        image = ax.imshow(rows.numpy(), alpha=0.25, **look)
        return image, self.draw_lines(ax, [0.0], name)

    def draw_points(
        self, ax: style.Axes, points: Tensor, y: Tensor, labels: style.Labels, size: float, ringed: Tensor, name: str
    ) -> tuple[dict[int, Any], Any]:
        """Draw the samples of each class in its colour and with its marker, and rings of this name around some."""
        codes, drawn, rings = codes_of(self.scores), {}, None
        names, colours = style.label_names(labels, codes), style.class_colours(len(codes))
        for code, label, colour, marker in zip(codes, names, colours, cycle(style.MARKERS), strict=False):
            across, up = points[y == code].numpy().T  # edges are dark, so that yellow is seen on white
            edge: dict[str, Any] = {"edgecolor": "#333333", "linewidth": min(0.5, 0.02 * size)}
            drawn[code] = ax.scatter(across, up, s=size, label=label, zorder=3, color=colour, marker=marker, **edge)
        if ringed.any():
            across, up = points[ringed].numpy().T
            edge = {"facecolor": "none", "edgecolor": style.ink(), "linewidth": 1.3 if size > 10 else 0.5}
            rings = ax.scatter(across, up, s=3 * size, label=name, zorder=4, **edge)
        return drawn, rings
