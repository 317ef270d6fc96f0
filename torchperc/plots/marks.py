"""What is drawn in a plane: regions, boundaries and margins, samples, rings."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from torch import Tensor

from torchperc.nn.heads import Head
from torchperc.plots.planes import Grid
from torchperc.plots.style import MARKERS, class_colours

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.collections import PathCollection
    from matplotlib.contour import QuadContourSet
    from matplotlib.image import AxesImage

Array = npt.NDArray[Any]


def codes_of(scores: Tensor) -> list[int]:
    """The labels that scores stand for: −1/+1 for one a sample, else class indices.

    Example:
        >>> import torch
        >>> codes_of(torch.zeros(5)), codes_of(torch.zeros(5, 3))
        ([-1, 1], [0, 1, 2])
    """
    return [-1, 1] if scores.dim() == 1 else list(range(scores.shape[1]))


def draw_regions(ax: Axes, grid: Grid, scores: Tensor, head: Head) -> AxesImage:
    """Each class's region in its colour.

    Example:
        >>> import torch
        >>> from torchperc.plots.planes import feature_plane, grid_of
        >>> grid = grid_of(feature_plane(), 4 * torch.eye(2), torch.zeros(1, 2))
        >>> from torchperc.nn.heads import PerceptronHead
        >>> from torchperc.plots.style import canvas
        >>> _, axes = canvas(None)
        >>> draw_regions(axes, grid, grid.points[:, 0] - 2, PerceptronHead()).get_array().shape
        (200, 200)
    """
    from matplotlib.colors import ListedColormap

    codes = codes_of(scores)
    return ax.imshow(
        grid.picture(head.decide(scores)).numpy(),
        extent=grid.extent,
        origin="lower",
        aspect="auto",
        cmap=ListedColormap(class_colours(len(codes))),
        alpha=0.25,
        vmin=codes[0],
        vmax=codes[-1],
        interpolation="nearest",
    )


def fields(grid: Grid, scores: Tensor, threshold: float) -> list[Array]:
    """Functions that are 0 on the boundary: the score, or each class's lead over the best of the others.

    Example:
        >>> import torch
        >>> from torchperc.plots.planes import feature_plane, grid_of
        >>> grid = grid_of(feature_plane(), 4 * torch.eye(2), torch.zeros(1, 2))
        >>> len(fields(grid, grid.points[:, 0] - 2, 0.0)), len(fields(grid, grid.points, 0.0))
        (1, 2)
    """
    values = scores.double().numpy()
    if values.ndim == 1:
        return [grid.picture(scores.double() - threshold).numpy()]
    leads = (column - np.delete(values, k, axis=1).max(1) for k, column in enumerate(values.T))
    side = len(grid.across)
    return [lead.reshape(side, -1).T for lead in leads]


def draw_lines(
    ax: Axes, grid: Grid, over: Sequence[Array], levels: Sequence[float], name: str = "", **style: Any
) -> list[QuadContourSet]:
    """The lines where the fields have these levels, as far as they cross the picture, and their name in the legend.

    Example:
        >>> import torch
        >>> from torchperc.plots.planes import feature_plane, grid_of
        >>> grid = grid_of(feature_plane(), 4 * torch.eye(2), torch.zeros(1, 2))
        >>> from torchperc.plots.style import canvas
        >>> _, axes = canvas(None)
        >>> over = fields(grid, grid.points[:, 0] - 2, 0.0)
        >>> len(draw_lines(axes, grid, over, [0.0], "boundary")), len(draw_lines(axes, grid, over, [9.0], "far away"))
        (1, 0)
    """
    look = {"linestyles": "solid", "linewidths": 1.3, "colors": "black", **style}
    drawn = []
    for field in over:
        low, high = float(field.min()), float(field.max())
        inside = [level for level in levels if math.isfinite(high - low) and low < level < high]
        if inside:
            drawn.append(ax.contour(grid.across.numpy(), grid.up.numpy(), field, levels=inside, **look))
    if drawn and name:  # a contour has no entry in the legend
        ax.plot([], [], color=look["colors"], linestyle=look["linestyles"], label=name)
    return drawn


def draw_points(
    ax: Axes, points: Tensor, y: Tensor, codes: Sequence[int], names: Sequence[str], size: float | None = None
) -> dict[int, PathCollection]:
    """The samples of each class, in its colour and with its marker.

    Example:
        >>> import torch
        >>> from torchperc.plots.style import canvas
        >>> _, axes = canvas(None)
        >>> drawn = draw_points(axes, torch.eye(2), torch.tensor([1, -1]), (-1, 1), ("−1", "+1"))
        >>> drawn[1].get_offsets().tolist()
        [[1.0, 0.0]]
    """
    drawn = {}
    for number, (code, name, colour) in enumerate(zip(codes, names, class_colours(len(codes)), strict=True)):
        part = points[y == code].numpy()
        drawn[code] = ax.scatter(
            part[:, 0],
            part[:, 1],
            color=colour,
            marker=MARKERS[number % len(MARKERS)],
            edgecolor="white",
            linewidth=0.8,
            s=point_size(len(y)) if size is None else size,
            label=name,
            zorder=3,
        )
    return drawn


def draw_rings(ax: Axes, points: Tensor, name: str, size: float) -> PathCollection | None:
    """Rings around these points; ``None`` if there are none.

    Example:
        >>> import torch
        >>> from torchperc.plots.style import canvas
        >>> _, axes = canvas(None)
        >>> draw_rings(axes, torch.eye(2), "mistake", 45).get_offsets().shape
        (2, 2)
        >>> draw_rings(axes, torch.zeros(0, 2), "mistake", 45) is None
        True
    """
    if not len(points):
        return None
    style: dict[str, Any] = {"facecolor": "none", "edgecolor": "black", "linewidth": 1.3}
    return ax.scatter(points[:, 0].numpy(), points[:, 1].numpy(), s=3 * size, label=name, zorder=4, **style)


def point_size(count: int) -> float:
    """Many samples are drawn small.

    Example:
        >>> point_size(4), point_size(1000)
        (45, 18)
    """
    return 45 if count <= 200 else 18
