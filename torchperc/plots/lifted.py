"""An added feature: the 2-D boundary without it, and the 3-D plane with it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from torchperc._checks import Data, check_choice, check_labels
from torchperc.nn.modules import Perceptron
from torchperc.plots import style
from torchperc.plots.planes import feature_plane, grid_of
from torchperc.plots.regions import DecisionRegionDisplay
from torchperc.rules.conventions import Verdict
from torchperc.rules.run import RuleResult
from torchperc.rules.trainer import RuleTrainer
from torchperc.samples import convert

FEATURES: dict[str, tuple[Callable[[Tensor], Tensor], str]] = {
    "product": (lambda X: X[:, 0] * X[:, 1], "x₁·x₂"),
    "squares": (lambda X: X.square().sum(1), "x₁² + x₂²"),
}


@dataclass(eq=False, repr=False)
class LiftedDisplay(style.Display):
    """Two features with the best line that the rule found, and three with a plane; the third is made of the two.

    After :meth:`plot`, ``before_`` is the display of the first panel, ``points_`` are the lifted samples by label in
    the second, which has three dimensions, and ``plane_`` is the plane, or ``None`` if none was found.

    Example:
        >>> import torchperc as tp
        >>> display = LiftedDisplay.from_data(*tp.data.gate("XOR"))
        >>> display.before.verdict.name, display.after.verdict.name, display.height.tolist()
        ('BUDGET', 'SEPARATED', [0.0, 0.0, 0.0, 1.0])
    """

    X: Tensor
    y: Tensor
    height: Tensor  # the added feature
    before: RuleResult  # the run on the two features
    after: RuleResult  # the run on the three
    name: str  # of the added feature

    @classmethod
    def from_data(
        cls,
        X: Data,
        y: Data,
        feature: str | Callable[[Tensor], Tensor] = "product",
        *,
        name: str | None = None,
        max_epochs: int = 1000,
        ax: style.AnyAxes = None,
    ) -> LiftedDisplay:
        """Learn by rule without and with an added feature, and draw both.

        Args:
            X: samples (N, 2).
            y: labels −1/+1.
            feature: ``"product"`` for x₁·x₂, ``"squares"`` for x₁² + x₂², or a function from (N, 2) to (N,).
            name: of the feature, on its axis.
            max_epochs: of each run; the one without the feature makes 100 at most.
            ax: if two axes are given, the second must be in three dimensions.
        """
        samples = convert.features(X, dtype=torch.float64, width=2, convert=True).cpu()
        target = check_labels(y, len(samples), None).cpu()
        if callable(feature):
            lift, known = feature, getattr(feature, "__name__", "feature").replace("<lambda>", "feature")
        else:
            lift, known = FEATURES[check_choice("feature", feature, tuple(FEATURES))]
        height = torch.as_tensor(lift(samples)).double()
        if height.shape != target.shape:
            found = f"{tuple(height.shape)} for N = {len(target)}"
            raise ValueError(f"feature must map (N, 2) to (N,), found shape {found}")
        column = convert.features(height[:, None], dtype=torch.float64, name="feature")
        before = _best(samples, target, min(max_epochs, 100))  # a run that cannot end finds its best line early
        after = _best(torch.cat((samples, column), 1), target, max_epochs)
        return cls(samples, target, height, before, after, known if name is None else name).plot(ax=ax)

    def _place(self, ax: Any) -> style.Place:
        return style.panels(ax, 2, 2, (7.0, 3.7), widths=(1.0, 1.2), projection=[None, "3d"])

    def _draw(self, own: bool) -> None:
        flat, deep = self.ax_
        if not hasattr(deep, "zaxis"):
            raise ValueError("the second of the axes must be in three dimensions; make it with projection='3d'")
        title, look = f"before\n{_outcome(self.before, 'line')}", {"ax": flat, "names": ("x₁", "x₂")}
        self.before_ = DecisionRegionDisplay.from_model(self.before, self.X, self.y, title=title, **look)
        flat.title.set_fontsize(10)
        style.few_ticks(flat, 5)
        self._draw_lifted(deep)
        if own and (inside := flat.get_legend()) is not None:
            inside.remove()
            style.legend(flat, own=True)

    def _draw_lifted(self, ax: Any) -> None:
        self.points_, self.plane_ = {}, None
        floor, few = min(0.0, float(self.height.min())), len(self.y) <= 50
        for code, colour, marker in zip((-1, 1), style.COLOURS, style.MARKERS, strict=False):
            part, up = self.X[self.y == code].numpy(), self.height[self.y == code].numpy()
            look: dict[str, Any] = {"color": colour, "marker": marker, "edgecolor": "white", "s": 45 if few else 14}
            self.points_[code] = ax.scatter(part[:, 0], part[:, 1], up, depthshade=False, **look)
            for (first, second), top in zip(part, up, strict=True) if few else ():  # a stem from the floor
                ax.plot([first, first], [second, second], [floor, top], color=colour, linewidth=1, alpha=0.6)
        if self.after.verdict is Verdict.SEPARATED:
            self.plane_ = self._draw_plane(ax)
            normal = self.after.model.weight[0, :2] * (self.X.amax(0) - self.X.amin(0))  # type: ignore[attr-defined]
            ax.view_init(12, math.degrees(math.atan2(normal[1], normal[0])) - 90)  # nearly along the plane
        name = style.shortened(self.name, 20)
        ax.set(xlabel="x₁", ylabel="x₂", zlabel=name)
        style.few_ticks(ax, 3)
        for axis in (ax.xaxis, ax.yaxis, ax.zaxis):
            axis.set_tick_params(labelsize=8, pad=-1)
            axis.labelpad = -1
            axis.set_major_formatter(lambda value, position: style.tick(value, position, written=1e4))
        widest = max(len(style.tick(value, written=1e4)) for value in ax.zaxis.get_majorticklocs())
        ax.zaxis.labelpad = max(-1.0, 2.0 * (widest - 3))  # beyond the numbers
        ax.set_box_aspect(None, zoom=0.9 if widest < 5 else 0.8)  # the upright axis's label stays within the panel
        ax.set_title(f"after, with {name}\n{_outcome(self.after, 'plane')}", fontsize=10)

    def _draw_plane(self, ax: Any) -> Any:
        """Draw the part of the separating plane within the picture; ``None`` if it stands upright."""
        weight, bias = self.after.model.weight[0], self.after.model.bias[0]  # type: ignore[attr-defined]  # linear
        if float(weight[2].abs()) < 1e-9 * float(weight.abs().max()):
            return None
        across, up = grid_of(feature_plane(), self.X, self.X, steps=40, room=0.1).points.T.reshape(2, 40, 40)
        surface = -(weight[0] * across + weight[1] * up + bias) / weight[2]
        low, high = self.height.min(), self.height.max()
        room = 0.25 * (high - low) + 1e-9
        values = surface.masked_fill((surface < low - room) | (surface > high + room), float("nan")).numpy()
        return ax.plot_surface(across.numpy(), up.numpy(), values, color="#999999", alpha=0.45, linewidth=0)


def _best(X: Tensor, y: Tensor, epochs: int) -> RuleResult:
    """A run with the weights of the fewest errors that occurred."""
    result = RuleTrainer(epochs, order="shuffled").fit(Perceptron(X.shape[1], dtype=torch.float64), X, y)
    return replace(result, select="pocket", model=result.log.pocket(ratchet="every"))


def _outcome(result: RuleResult, what: str) -> str:
    if result.verdict is Verdict.SEPARATED:
        return f"a {what} separates"
    return f"best {what} found, {int(result.log.errors().min())} wrong"
