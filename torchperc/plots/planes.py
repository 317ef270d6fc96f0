"""The plane a picture is drawn in, a grid over it, and how regions, boundaries, samples and rings are drawn there."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from torchperc.nn.heads import Head
from torchperc.plots import style
from torchperc.plots.classifiers import Classifier, codes_of

_TINY = 1e-10
_PRINCIPAL = "first principal direction", "second principal direction"


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


def plane_of(classifier: Classifier, X: Tensor, names: Sequence[str] | None = None) -> Plane:
    """The plane in which a classifier's regions can be drawn without error.

    With two features that is their plane. With more, the first axis is w/‖w‖ of a linear classifier (with three
    classes, the plane of the weights' differences); axes still missing are the principal directions of the rest.
    """
    width = X.shape[1]
    if width == 1:
        raise ValueError("X has 1 feature; decision regions are drawn over 2 features or more: (N, d) with d ≥ 2")
    check_names(names, width)
    if width == 2:
        return feature_plane(names)
    if classifier.weight is None:
        why = f"X has {width} features and the model is not linear, so no plane shows its regions"
        raise ValueError(f"{why}; draw a net that was trained on two of them")
    return _projection(classifier.weight.double(), X.detach().cpu().double())


def check_names(names: Sequence[str] | None, width: int) -> None:
    """Raise unless there is a name for each feature, or none at all."""
    if names is not None and (isinstance(names, str) or len(names) != width):
        raise ValueError(f"names={names!r} must name {width} features")


def feature_plane(names: Sequence[str] | None = None) -> Plane:
    """The plane of two features."""
    first, second = names or ("feature 1", "feature 2")
    return Plane(torch.zeros(2, dtype=torch.float64), torch.eye(2, dtype=torch.float64), (str(first), str(second)))


def _projection(weight: Tensor, X: Tensor) -> Plane:
    own = weight if len(weight) == 1 else weight - weight.mean(0)
    own = _principal(own, own.norm())
    if len(own) > 2:
        why = f"X has {X.shape[1]} features and the weights of {len(weight)} classes differ in {len(own)} directions"
        raise ValueError(f"{why}; a plane shows the regions of two or three classes")
    if len(weight) < 3 and len(own) and float((weight[-1] - (weight[0] if len(weight) > 1 else 0)) @ own[0]) < 0:
        own = -own  # +1, or class 1, to the right
    centre = X.mean(0)
    rest = _principal(X - centre - (X - centre) @ own.T @ own, X.norm())
    found = torch.cat((own, rest))[:2]
    spare = torch.eye(X.shape[1]).to(X)[found.abs().sum(0).argsort()]  # where samples differ along w only
    across, upper = torch.linalg.qr(torch.cat((found, spare))[:2].T)
    directions = (across * upper.diagonal().sign()).T
    along = "along w/‖w‖" if len(weight) == 1 else "along the weights' difference"
    names = [_PRINCIPAL, (along, f"{_PRINCIPAL[0]} of the rest")]
    names.append(("first direction of the weights", "second direction of the weights"))
    return Plane(centre - directions.T @ (directions @ centre), directions, names[len(own)])


def _principal(rows: Tensor, scale: Tensor) -> Tensor:
    """Orthonormal directions that the rows span, the strongest first; what is tiny against the scale is rounding."""
    _, sizes, directions = torch.linalg.svd(rows, full_matrices=False)
    spanned: Tensor = directions[sizes > _TINY * scale]
    return spanned


class Grid(NamedTuple):
    """Points over part of a plane, as samples of a classifier, the second axis running fastest."""

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


def grid_of(plane: Plane, points: Tensor, like: Tensor, steps: int = 200, room: float = 0.25) -> Grid:
    """A grid around points of a plane, with room as a fraction of their extent, in the dtype of ``like``."""
    low, high = points.amin(0).double(), points.amax(0).double()
    span = high - low
    level = torch.where(low == 0, 1.0, low.abs())  # where all points are at one place
    pad = torch.where(span > _TINY * level, span, level) * room
    axes = [torch.linspace(*ends, steps, dtype=torch.float64) for ends in zip(low - pad, high + pad, strict=True)]
    return Grid(axes[0], axes[1], plane.lift(torch.cartesian_prod(*axes)).to(like))


def draw_regions(ax: style.Axes, grid: Grid, scores: Tensor, head: Head) -> Any:
    """Draw each class's region in its colour."""
    from matplotlib.colors import ListedColormap

    codes = codes_of(scores)
    look: dict[str, Any] = {"extent": grid.extent, "origin": "lower", "aspect": "auto", "interpolation": "nearest"}
    look |= {"cmap": ListedColormap(style.class_colours(len(codes))), "vmin": codes[0], "vmax": codes[-1]}
    return ax.imshow(grid.picture(head.decide(scores)).numpy(), alpha=0.25, **look)


def draw_lines(
    ax: style.Axes, grid: Grid, scores: Tensor, head: Head, levels: Sequence[float], name: str = "", **options: Any
) -> list[Any]:
    """Draw the lines where the score, or each class's lead over the others, is at ``levels`` from the threshold."""
    look = {"linestyles": "solid", "linewidths": 1.3, "colors": style.ink(), **options}
    values, drawn = scores.double(), []
    if values.dim() == 1:
        fields = [values - head.threshold]
    else:
        every = torch.arange(values.shape[1])
        fields = [values[:, k] - values[:, every != k].amax(1) for k in every]
    for field in fields:
        low, high = float(field.min()), float(field.max())
        inside = [level for level in levels if math.isfinite(high - low) and low < level < high]
        if inside:
            picture = grid.picture(field).numpy()
            drawn.append(ax.contour(grid.across.numpy(), grid.up.numpy(), picture, levels=inside, **look))
    if drawn and name:  # a contour has no entry in the legend
        ax.plot([], [], color=look["colors"], linestyle=look["linestyles"], label=name)
    return drawn


def draw_points(
    ax: style.Axes, points: Tensor, y: Tensor, codes: Sequence[int], names: Sequence[str], size: float
) -> dict[int, Any]:
    """Draw the samples of each class, in its colour and with its marker."""
    drawn = {}
    edge = {"edgecolor": "#333333", "linewidth": min(0.5, 0.02 * size)}  # dark, so that yellow is seen on white
    for number, (code, name, colour) in enumerate(zip(codes, names, style.class_colours(len(codes)), strict=True)):
        look: dict[str, Any] = {"color": colour, "marker": style.MARKERS[number % 10], **edge}
        across, up = points[y == code].numpy().T
        drawn[code] = ax.scatter(across, up, s=size, label=name, zorder=3, **look)
    return drawn


def draw_rings(ax: style.Axes, points: Tensor, name: str, size: float) -> Any:
    """Draw rings around these points; ``None`` if there are none."""
    if not len(points):
        return None
    look: dict[str, Any] = {"facecolor": "none", "edgecolor": style.ink(), "linewidth": 1.3 if size > 10 else 0.5}
    return ax.scatter(points[:, 0].numpy(), points[:, 1].numpy(), s=3 * size, label=name, zorder=4, **look)
