"""Pictures, as matplotlib figures made without pyplot: nothing is shown, nothing stays open."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from torchperc.heads import Head, PerceptronHead

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442")
"""Okabe and Ito's palette, told apart by every kind of eye."""

Array = npt.NDArray[Any]
_MARKERS = "os^vDP*X<>"
_STEPS = 200


@torch.no_grad()
def decision_boundary(
    score: Callable[[Tensor], Tensor],
    X: Tensor,
    y: Tensor,
    *,
    title: str = "",
    margin: float | None = None,
    head: Head | None = None,
) -> Figure:
    """Decision regions over two features: boundary, margin lines, samples, and mistakes ringed.

    Args:
        score: the classifier, from (N, 2) to scores (N,), or (N, K).
        X: samples.
        y: labels −1/+1, or class indices.
        title: above the picture.
        margin: draw lines where the score is this far from the boundary; none if ``None`` or with K classes.
        head: how scores are decided, see :mod:`torchperc.heads`; a perceptron's by default.

    Shape:
        X (N, 2), y (N,).

    Example:
        >>> import torchperc as tp
        >>> X, y = tp.data.gate("AND")
        >>> type(decision_boundary(tp.Perceptron(2), X, y)).__name__
        'Figure'
    """
    from matplotlib.colors import ListedColormap
    from matplotlib.figure import Figure

    if X.dim() != 2 or X.shape[1] != 2:
        raise ValueError(f"X has shape {tuple(X.shape)}; a decision boundary is drawn over 2 features: (N, 2)")
    head = head or PerceptronHead()
    low, high = X.amin(0), X.amax(0)
    pad = (high - low).clamp(min=1e-6) * 0.25
    ends = list(zip((low - pad).tolist(), (high + pad).tolist(), strict=True))
    axis = [torch.linspace(first, last, _STEPS, dtype=X.dtype) for first, last in ends]
    scores = score(torch.cartesian_prod(*axis).to(X.device)).cpu()
    many = scores.dim() > 1
    labels = list(range(scores.shape[1])) if many else [-1, 1]
    colours = _colours(len(labels))
    figure = Figure(figsize=(5, 4), dpi=100, layout="constrained")
    axes = figure.add_subplot()
    axes.imshow(
        head.decide(scores).reshape(_STEPS, _STEPS).T.numpy(),
        extent=(*ends[0], *ends[1]),
        origin="lower",
        aspect="auto",
        cmap=ListedColormap(colours),
        alpha=0.25,
        vmin=labels[0],
        vmax=labels[-1],
        interpolation="nearest",
    )
    fields = _fields(scores, head.threshold)
    _lines(axes, axis, fields, [0.0], "solid", "boundary")
    if margin and not many:
        _lines(axes, axis, fields, [-margin, margin], "dashed", "margin")
    _points(axes, X.cpu(), y.cpu(), head.decide(score(X)).cpu(), dict(zip(labels, colours, strict=True)), many)
    axes.set(xlabel="feature 1", ylabel="feature 2", title=title)
    figure.legend(loc="outside lower center", ncols=5, fontsize=9, frameon=False, handletextpad=0.4, columnspacing=1.2)
    return figure


def _fields(scores: Tensor, threshold: float) -> list[Array]:
    """Functions that are 0 on the boundary: the score, or each class's lead over the best of the others."""
    values = scores.double().numpy()
    if values.ndim == 1:
        return [(values - threshold).reshape(_STEPS, _STEPS).T]
    leads = (column - np.delete(values, k, axis=1).max(1) for k, column in enumerate(values.T))
    return [lead.reshape(_STEPS, _STEPS).T for lead in leads]


def _lines(axes: Axes, axis: list[Tensor], fields: list[Array], levels: list[float], style: str, name: str) -> None:
    """The lines where the fields have these levels, as far as they cross the picture, and their name in the legend."""
    across, up = (values.numpy() for values in axis)
    drawn = False
    for field in fields:
        low, high = float(field.min()), float(field.max())
        inside = [level for level in levels if math.isfinite(high - low) and low < level < high]
        if inside:
            axes.contour(across, up, field, levels=inside, colors="black", linestyles=style, linewidths=1.3)
            drawn = True
    if drawn:
        axes.plot([], [], color="black", linestyle=style, label=name)  # a contour has no entry in the legend


def _points(axes: Axes, X: Tensor, y: Tensor, decided: Tensor, colours: dict[int, str], many: bool) -> None:
    size = 45 if len(y) <= 200 else 18
    for number, (label, colour) in enumerate(colours.items()):
        part = X[y == label].numpy()
        axes.scatter(
            part[:, 0],
            part[:, 1],
            color=colour,
            marker=_MARKERS[number % len(_MARKERS)],
            edgecolor="white",
            linewidth=0.8,
            s=size,
            label=str(label) if many else f"{label:+d}".replace("-", "−"),
            zorder=3,
        )
    ringed = X[decided != y].numpy()
    if len(ringed):
        style = {"facecolor": "none", "edgecolor": "black", "linewidth": 1.3}
        axes.scatter(ringed[:, 0], ringed[:, 1], s=3 * size, label="mistake", zorder=4, **style)  # type: ignore[arg-type]


def _colours(count: int) -> list[str]:
    if count <= len(COLOURS):
        return list(COLOURS[:count])
    from matplotlib import colormaps
    from matplotlib.colors import to_hex

    return [to_hex(colormaps["viridis"](k / (count - 1))) for k in range(count)]
