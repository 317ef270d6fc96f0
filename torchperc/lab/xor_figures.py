"""Pictures of the XOR lab: the losses of thousands of members, and how one of them divides the plane."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from torch import Tensor

from torchperc._checks import check_choice
from torchperc.data.example_data import gate
from torchperc.lab.xor import INPUTS, KINDS, LabResult
from torchperc.nn.heads import Head, LogisticHead
from torchperc.nn.modules import MLP
from torchperc.plots.classifiers import Grid, classifier, feature_plane
from torchperc.plots.style import BLUE, GREEN, ORANGE, PURPLE, RED, legend, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_LOGISTIC = LogisticHead()
_COLOURS = dict(zip(KINDS, (BLUE, ORANGE, RED, "#000000", PURPLE, GREEN), strict=True))
_DASHED = ("stuck at 75 %", "saddle", "diverged")  # drawn over the others, whose plateaus they may share


def plot_curves(result: LabResult) -> Figure:
    """Draw the loss of every member over the steps, on logarithmic scales, coloured by how the member ended.

    A loss of exactly 0 is drawn at the lower edge; a curve ends where it is no longer finite.

    Example:
        >>> from torchperc.lab.xor import train
        >>> figure = plot_curves(train(range(5), steps=20))
        >>> figure.axes[0].get_xlabel(), figure.axes[0].get_yscale()
        ('full-batch steps', 'log')
    """
    figure = new_figure((8.0, 5.0))
    axes = figure.add_subplot(title=result.sentence)
    low, high = _range(result.curves)
    steps, curves = result.recorded, result.curves.clamp_min(low).masked_fill(~result.curves.isfinite(), math.nan)
    opacity = min(0.9, max(0.25, 30 / len(result.seeds)))
    # the many first, so that the few are not buried under them
    for kind, count in sorted(result.counts.items(), key=lambda item: (item[0] in _DASHED, -item[1])):
        members = [k for k, own in enumerate(result.kinds) if own == kind]
        if members:
            colour, style = _COLOURS[kind], (0, (5, 4)) if kind in _DASHED else "solid"
            axes.plot(steps.numpy(), curves[:, members].numpy(), color=colour, lw=0.8, ls=style, alpha=opacity)
            axes.plot([], [], color=colour, lw=2.5, ls="--" if kind in _DASHED else "-", label=f"{kind} ({count:,})")
    axes.set_xscale("symlog", linthresh=float(steps[1]))  # 0 has no logarithm: evenly up to the first step recorded
    axes.set(yscale="log", ylim=(low, high), xlim=(0, result.steps), xlabel="full-batch steps", ylabel="mean loss")
    axes.grid(alpha=0.25)
    legend(axes, True, 3)
    return figure


def plot_boundary(net: MLP, *, inputs: str = "0/1", head: Head = _LOGISTIC) -> Figure:
    """Draw how a net divides the plane, the four rows of XOR, and the line of each hidden unit.

    Args:
        net: with two inputs and one score.
        inputs: where the four rows lie.
        head: decides.

    Example:
        >>> figure = plot_boundary(MLP(2, seed=0))
        >>> figure.axes[0].get_xlabel(), figure.axes[0].get_ylabel()
        ('x₁', 'x₂')
    """
    if net.in_features != 2 or net.num_classes is not None:
        found = f"{net.in_features} inputs and num_classes={net.num_classes}"
        raise ValueError(f"net has {found}; a picture needs MLP(2), with one score")
    check_choice("inputs", inputs, INPUTS)
    X, y = gate("XOR")
    X = X if inputs == "0/1" else 2 * X - 1
    sizes = "-".join(map(str, (2, *net.hidden, 1)))
    figure = new_figure((5.4, 5.6))
    axes = figure.add_subplot(title=f"Decision regions of a {sizes} net with {net.activation_name}")
    plane, at = feature_plane(), X.to(next(net.parameters()))
    grid = Grid.of(classifier(net, head), plane, at, steps=400, room=0.3)
    grid.draw_regions(axes, "boundary of the net")
    for k in range(net.hidden[0] if net.hidden else 0):
        unit = Grid.of(classifier(lambda points, k=k: net.layers[0](points)[:, k]), plane, at, steps=50, room=0.3)
        look = {"colors": "#555555", "linewidths": 1, "linestyles": "dashed"}
        unit.draw_lines(axes, [0.0], "w·x + b = 0 of hidden units", **look)
    grid.draw_points(axes, X, y, ["XOR = −1", "XOR = +1"], 120, y == 0, "")
    ticks = X.unique().tolist()
    axes.set(xticks=ticks, yticks=ticks, xlabel="x₁", ylabel="x₂", aspect="equal")
    legend(axes, True, 2)
    return figure


def _range(curves: Tensor) -> tuple[float, float]:
    """Limits of the loss axis: from the lowest loss above 0 to the highest, but no more than 10⁸ of either."""
    seen = curves[curves.isfinite() & (curves > 0)].double()
    if not len(seen):
        return 0.1, 1.0
    low, high = max(seen.min().item(), 1e-8), min(seen.max().item(), 1e8)
    return low / 1.5, max(high, low) * 1.5
