"""What is drawn in a plane: regions, boundaries and margins, samples, rings."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from torch import Tensor

from torchperc.nn.heads import Head
from torchperc.plots import style
from torchperc.plots.planes import Grid

if TYPE_CHECKING:
    from matplotlib.collections import PathCollection
    from matplotlib.contour import QuadContourSet
    from matplotlib.image import AxesImage

Array = npt.NDArray[Any]


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


def draw_points(
    ax: style.Axes, points: Tensor, y: Tensor, codes: Sequence[int], names: Sequence[str], size: float
) -> dict[int, PathCollection]:
    """The samples of each class, in its colour and with its marker."""
    drawn = {}
    for number, (code, name, colour) in enumerate(zip(codes, names, style.class_colours(len(codes)), strict=True)):
        look: dict[str, Any] = {"color": colour, "marker": style.MARKERS[number % 10], "edgecolor": "white"}
        across, up = points[y == code].numpy().T
        drawn[code] = ax.scatter(across, up, linewidth=0.8, s=size, label=name, zorder=3, **look)
    return drawn


def draw_rings(ax: style.Axes, points: Tensor, name: str, size: float) -> PathCollection | None:
    """Rings around these points; ``None`` if there are none."""
    if not len(points):
        return None
    look: dict[str, Any] = {"facecolor": "none", "edgecolor": "black", "linewidth": 1.3}
    return ax.scatter(points[:, 0].numpy(), points[:, 1].numpy(), s=3 * size, label=name, zorder=4, **look)
