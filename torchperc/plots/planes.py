"""The plane a picture is drawn in, a grid over it, and what is drawn there: regions, boundaries, samples, rings."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from torchperc.nn.heads import Head
from torchperc.plots import style
from torchperc.plots.classifiers import Classifier

if TYPE_CHECKING:
    from matplotlib.collections import PathCollection
    from matplotlib.contour import QuadContourSet
    from matplotlib.image import AxesImage

Array = npt.NDArray[Any]

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
    span = high - low
    level = torch.where(low == 0, 1.0, low.abs())  # where all points are at one place
    pad = torch.where(span > _TINY * level, span, level) * room
    axes = [torch.linspace(*ends, steps, dtype=torch.float64) for ends in zip(low - pad, high + pad, strict=True)]
    return Grid(axes[0], axes[1], plane.lift(torch.cartesian_prod(*axes)).to(like))


# --- what is drawn in it ---


def codes_of(scores: Tensor) -> list[int]:
    """The labels that scores stand for: −1/+1 for one per sample, else class indices."""
    return [-1, 1] if scores.dim() == 1 else list(range(scores.shape[1]))


def draw_regions(ax: style.Axes, grid: Grid, scores: Tensor, head: Head) -> AxesImage:
    """Each class's region in its colour."""
    from matplotlib.colors import ListedColormap

    codes = codes_of(scores)
    return ax.imshow(
        grid.picture(head.decide(scores)).numpy(),
        extent=grid.extent,
        origin="lower",
        aspect="auto",
        cmap=ListedColormap(style.class_colours(len(codes))),
        alpha=0.25,
        vmin=codes[0],
        vmax=codes[-1],
        interpolation="nearest",
    )


def fields(grid: Grid, scores: Tensor, threshold: float) -> list[Array]:
    """Functions that are 0 on the boundary: the score, or each class's lead over the best of the others."""
    values = scores.double().numpy()
    if values.ndim == 1:
        return [grid.picture(scores.double() - threshold).numpy()]
    leads = (column - np.delete(values, k, axis=1).max(1) for k, column in enumerate(values.T))
    return [lead.reshape(len(grid.across), -1).T for lead in leads]


def draw_lines(
    ax: style.Axes, grid: Grid, over: Sequence[Array], levels: Sequence[float], name: str = "", **options: Any
) -> list[QuadContourSet]:
    """The lines where the fields have these levels, as far as they cross the picture, and their name in the legend."""
    look = {"linestyles": "solid", "linewidths": 1.3, "colors": "black", **options}
    drawn = []
    for field in over:
        low, high = float(field.min()), float(field.max())
        inside = [level for level in levels if math.isfinite(high - low) and low < level < high]
        if inside:
            drawn.append(ax.contour(grid.across.numpy(), grid.up.numpy(), field, levels=inside, **look))
    if drawn and name:  # a contour has no entry in the legend
        ax.plot([], [], color=look["colors"], linestyle=look["linestyles"], label=name)
    return drawn


def point_size(count: int) -> float:
    """The area of each of so many points, in square points: the more there are, the smaller."""
    return 45.0 if count <= 200 else 18.0 if count <= 2000 else 5.0


def draw_points(
    ax: style.Axes, points: Tensor, y: Tensor, codes: Sequence[int], names: Sequence[str], size: float
) -> dict[int, PathCollection]:
    """The samples of each class, in its colour and with its marker."""
    drawn = {}
    edge = {"edgecolor": "#333333", "linewidth": min(0.5, 0.02 * size)}  # dark, so that yellow is seen on white
    for number, (code, name, colour) in enumerate(zip(codes, names, style.class_colours(len(codes)), strict=True)):
        look: dict[str, Any] = {"color": colour, "marker": style.MARKERS[number % 10], **edge}
        across, up = points[y == code].numpy().T
        drawn[code] = ax.scatter(across, up, s=size, label=name, zorder=3, **look)
    return drawn


def draw_rings(ax: style.Axes, points: Tensor, name: str, size: float) -> PathCollection | None:
    """Rings around these points; ``None`` if there are none."""
    if not len(points):
        return None
    look: dict[str, Any] = {"facecolor": "none", "edgecolor": "black", "linewidth": 1.3 if size > 10 else 0.5}
    return ax.scatter(points[:, 0].numpy(), points[:, 1].numpy(), s=3 * size, label=name, zorder=4, **look)
