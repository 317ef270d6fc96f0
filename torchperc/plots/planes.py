"""The plane a picture is drawn in: two features as they are, or a projection of more; and a grid over it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from torchperc.plots.classifiers import Classifier

STEPS = 200
"""Points of the grid along each axis."""

_TINY = 1e-10


@dataclass(frozen=True, eq=False)
class Plane:
    """Two orthonormal directions through a point, and what they are called.

    Args:
        origin: a point that is orthogonal to both directions.
        directions: of the axes.
        names: of the axes.
        projected: whether samples have other coordinates too.

    Shape:
        origin (d,), directions (2, d).

    Example:
        >>> plane = Plane(torch.zeros(2), torch.eye(2), ("x", "y"), projected=False)
        >>> plane.project(torch.tensor([[3.0, 4.0]])), plane.lift(torch.tensor([[3.0, 4.0]]))
        (tensor([[3., 4.]]), tensor([[3., 4.]]))
    """

    origin: Tensor
    directions: Tensor
    names: tuple[str, str]
    projected: bool

    def project(self, X: Tensor) -> Tensor:
        """Coordinates in the plane: (N, d) → (N, 2)."""
        return X.to(self.directions) @ self.directions.T

    def lift(self, points: Tensor) -> Tensor:
        """Points of the plane as samples: (N, 2) → (N, d)."""
        return self.origin + points.to(self.directions) @ self.directions


def plane_of(classifier: Classifier, X: Tensor, names: Sequence[str] | None = None) -> Plane:
    """The plane in which a classifier's regions can be drawn without error.

    With two features that is their plane. With more, a linear classifier decides by its weights alone: the first axis
    is w/‖w‖ (with three classes, the plane that the differences of the weights span), and the axes still missing are
    the first principal directions of what is left of the samples. A sample's decision is that of its projection.

    Args:
        classifier: see :func:`torchperc.plots.classifiers.classifier`.
        X: samples.
        names: of the features.

    Shape:
        X (N, d).

    Example:
        >>> import torchperc as tp
        >>> from torchperc.plots.classifiers import classifier
        >>> net = tp.Perceptron(3)
        >>> _ = torch.nn.init.ones_(net.weight)
        >>> plane_of(classifier(net), torch.eye(3)).names
        ('along w/‖w‖', 'first principal direction of the rest')
    """
    width = X.shape[1]
    if width == 1:
        raise ValueError("X has 1 feature; decision regions are drawn over 2 features or more: (N, d) with d ≥ 2")
    _check_names(names, width)
    if width == 2:
        return feature_plane(names)
    if classifier.weight is None:
        raise ValueError(
            f"X has {width} features and the model is not linear, so no plane shows its regions; draw a net that was "
            "trained on two of them"
        )
    return _projection(classifier.weight.double(), X.detach().cpu().double())


def feature_plane(names: Sequence[str] | None = None) -> Plane:
    """The plane of two features.

    Example:
        >>> feature_plane().names
        ('feature 1', 'feature 2')
    """
    _check_names(names, 2)
    first, second = names or ("feature 1", "feature 2")
    origin, directions = torch.zeros(2, dtype=torch.float64), torch.eye(2, dtype=torch.float64)
    return Plane(origin, directions, (str(first), str(second)), projected=False)


def _check_names(names: Sequence[str] | None, width: int) -> None:
    if names is not None and (isinstance(names, str) or len(names) != width):
        raise ValueError(f"names={names!r} must name {width} features")


def _projection(weight: Tensor, X: Tensor) -> Plane:
    own = weight if len(weight) == 1 else weight - weight.mean(0)
    own = _directions(own, own.norm())
    if len(own) > 2:
        raise ValueError(
            f"X has {X.shape[1]} features and the weights of {len(weight)} classes differ in {len(own)} directions; a "
            "plane shows the regions of two or three classes"
        )
    if len(weight) < 3 and len(own) and float((weight[-1] - (weight[0] if len(weight) > 1 else 0)) @ own[0]) < 0:
        own = -own  # +1, or class 1, to the right
    centre = X.mean(0)
    rest = X - centre
    rest = rest - rest @ own.T @ own
    directions = own
    for row in _directions(rest, X.norm())[: 2 - len(own)]:
        directions = _extended(directions, row)
    while len(directions) < 2:  # samples that differ along w only: any direction across it will do
        directions = _extended(directions, torch.eye(X.shape[1]).to(X)[directions.abs().sum(0).argmin()])
    origin = centre - directions.T @ (directions @ centre)
    return Plane(origin, directions, _axis_names(len(weight), len(own)), projected=True)


def _directions(rows: Tensor, scale: Tensor) -> Tensor:
    """Orthonormal directions that the rows span, the strongest first; what is tiny against the scale is rounding."""
    _, sizes, directions = torch.linalg.svd(rows, full_matrices=False)
    spanned: Tensor = directions[sizes > _TINY * scale]
    return spanned


def _extended(directions: Tensor, row: Tensor) -> Tensor:
    """One direction more: what of the row is across the others, of length 1."""
    across = row - directions.T @ (directions @ row)
    return torch.cat((directions, (across / across.norm())[None]))


def _axis_names(classes: int, own: int) -> tuple[str, str]:
    if own == 0:  # zero weights: the score is the same everywhere
        return "first principal direction", "second principal direction"
    if own == 1:
        return (
            "along w/‖w‖" if classes < 2 else "along the weights' difference",
            "first principal direction of the rest",
        )
    return "first direction of the weights", "second direction of the weights"


@dataclass(frozen=True, eq=False)
class Grid:
    """Points over a part of a plane, as samples of a classifier.

    Args:
        across: coordinates along the first axis.
        up: along the second.
        points: samples, the second axis running fastest.

    Shape:
        across and up (M,), points (M², d).

    Example:
        >>> grid = Grid(torch.tensor([0.0, 1.0]), torch.tensor([5.0, 6.0]), torch.zeros(4, 2))
        >>> grid.extent, grid.picture(torch.arange(4)).tolist()
        ((0.0, 1.0, 5.0, 6.0), [[0, 2], [1, 3]])
    """

    across: Tensor
    up: Tensor
    points: Tensor

    @property
    def extent(self) -> tuple[float, float, float, float]:
        """Left, right, bottom and top."""
        left, right, bottom, top = (float(axis[end]) for axis in (self.across, self.up) for end in (0, -1))
        return left, right, bottom, top

    def picture(self, values: Tensor) -> Tensor:
        """Values at the points as rows from bottom to top: (M²,) → (M, M)."""
        return values.reshape(len(self.across), len(self.up)).T


def grid_of(plane: Plane, points: Tensor, like: Tensor, steps: int = STEPS, room: float = 0.25) -> Grid:
    """A grid around points of a plane.

    Args:
        plane: what the points lie in.
        points: coordinates in it.
        like: samples, whose dtype and device those of the grid get.
        steps: along each axis.
        room: around the points, as a share of their extent.

    Example:
        >>> plane = Plane(torch.zeros(2), torch.eye(2), ("x", "y"), projected=False)
        >>> grid_of(plane, torch.tensor([[0.0, 0.0], [4.0, 8.0]]), torch.zeros(1, 2)).extent
        (-1.0, 5.0, -2.0, 10.0)
    """
    low, high = points.amin(0).double(), points.amax(0).double()
    pad = (high - low).clamp(min=1e-6) * room
    axes = [torch.linspace(*ends, steps, dtype=torch.float64) for ends in zip(low - pad, high + pad, strict=True)]
    return Grid(axes[0], axes[1], plane.lift(torch.cartesian_prod(*axes)).to(like))
