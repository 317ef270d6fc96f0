"""The plane a picture is drawn in: two features as they are, or a projection of more; and a grid over it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from torchperc.plots.classifiers import Classifier

STEPS = 200
"""Points of the grid along each axis."""

_TINY = 1e-10


class Plane(NamedTuple):
    """Two orthonormal directions through a point that is orthogonal to both, and what they are called.

    ``projected`` says whether samples have other coordinates too.
    """

    origin: Tensor  # (d,)
    directions: Tensor  # (2, d)
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
    """The plane of two features."""
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
        along = "along w/‖w‖" if classes < 2 else "along the weights' difference"
        return along, "first principal direction of the rest"
    return "first direction of the weights", "second direction of the weights"


class Grid(NamedTuple):
    """Points over some of a plane, as samples of a classifier, the second axis running fastest."""

    across: Tensor  # (M,)
    up: Tensor  # (M,)
    points: Tensor  # (M², d)

    @property
    def extent(self) -> tuple[float, float, float, float]:
        """Left, right, bottom and top."""
        left, right, bottom, top = (float(axis[end]) for axis in (self.across, self.up) for end in (0, -1))
        return left, right, bottom, top

    def picture(self, values: Tensor) -> Tensor:
        """Values at the points as rows from bottom to top: (M²,) → (M, M)."""
        return values.reshape(len(self.across), len(self.up)).T


def grid_of(plane: Plane, points: Tensor, like: Tensor, steps: int = STEPS, room: float = 0.25) -> Grid:
    """A grid around points of a plane, of so many steps along each axis, in the dtype and on the device of ``like``.

    ``room`` is left around the points, as a fraction of their extent.
    """
    low, high = points.amin(0).double(), points.amax(0).double()
    pad = (high - low).clamp(min=1e-6) * room
    axes = [torch.linspace(*ends, steps, dtype=torch.float64) for ends in zip(low - pad, high + pad, strict=True)]
    return Grid(axes[0], axes[1], plane.lift(torch.cartesian_prod(*axes)).to(like))
