"""An added feature, before and after: data that no line separates, lifted until a plane does."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

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

if TYPE_CHECKING:
    from mpl_toolkits.mplot3d.art3d import Path3DCollection, Poly3DCollection  # type: ignore[import-untyped]
    from mpl_toolkits.mplot3d.axes3d import Axes3D  # type: ignore[import-untyped]


def product(X: Tensor) -> Tensor:
    """x₁·x₂, which tells the diagonals of a square apart."""
    return X[:, 0] * X[:, 1]


def squares(X: Tensor) -> Tensor:
    """x₁² + x₂², which tells near from far."""
    return X.square().sum(1)


FEATURES: dict[str, tuple[Callable[[Tensor], Tensor], str]] = {
    "product": (product, "x₁·x₂"),
    "squares": (squares, "x₁² + x₂²"),
}


_BEFORE = 100  # epochs: a run that cannot end finds its best line early
_HEIGHT, _TILT = math.radians(20), math.radians(12)  # of the eye over the floor, and over the plane it looks along


@dataclass(eq=False, repr=False)
class LiftedDisplay(style.Display):
    """Two features before, with the best line the rule came by; and after, with a third that is made of them.

    After :meth:`plot`, ``before_`` is the display of the first panel, ``points_`` are the lifted samples by label in
    the second, which has three dimensions, and ``plane_`` is the plane, or ``None`` if none was found.

    Example:
        >>> import torchperc as tp
        >>> LiftedDisplay.from_data(*tp.data.gate("XOR")).height.tolist()
        [0.0, 0.0, 0.0, 1.0]
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

        Example:
            >>> import torchperc as tp
            >>> display = LiftedDisplay.from_data(*tp.data.gate("XOR"))
            >>> display.before.verdict.name, display.after.verdict.name
            ('BUDGET', 'SEPARATED')
        """
        samples = convert.features(X, dtype=torch.float64, width=2, convert=True).cpu()
        target = check_labels(y, len(samples), None).cpu()
        lift, known = _feature(feature)
        height = torch.as_tensor(lift(samples)).double()
        if height.shape != target.shape:
            raise ValueError(
                f"feature must map (N, 2) to (N,), found shape {tuple(height.shape)} for N = {len(target)}"
            )
        height = convert.features(height[:, None], dtype=torch.float64, name="feature").squeeze(1)
        lifted = torch.cat((samples, height[:, None]), 1)
        before, after = (
            _best(X, target, epochs) for X, epochs in ((samples, min(max_epochs, _BEFORE)), (lifted, max_epochs))
        )
        return cls(samples, target, height, before, after, known if name is None else name).plot(ax=ax)

    def _place(self, ax: Any) -> style.Place:
        return style.panels(ax, 2, 2, (7.0, 3.7), widths=(1.0, 1.2), projection=[None, "3d"])

    def _draw(self, own: bool) -> None:
        flat, deep = self.ax_
        if not hasattr(deep, "zaxis"):
            raise ValueError("the second of the axes must be in three dimensions; make it with projection='3d'")
        title = f"before\n{_outcome(self.before, 'line')}"
        self.before_ = DecisionRegionDisplay.from_model(
            self.before, self.X, self.y, ax=flat, names=("x₁", "x₂"), title=title
        )
        self._draw_lifted(deep)
        if own and (inside := flat.get_legend()) is not None:
            inside.remove()
            style.legend(flat, own=True)

    def _draw_lifted(self, ax: Axes3D) -> None:
        from matplotlib.ticker import MaxNLocator

        self.plane_: Poly3DCollection | None = None
        self.points_ = _points(ax, self.X, self.height, self.y)
        if self.after.verdict is Verdict.SEPARATED:
            self.plane_ = _plane(ax, self.after, self.X, self.height)
            ax.view_init(math.degrees(_HEIGHT), _azimuth(self.after, self.X, self.height))
        name = style.shortened(self.name, 20)
        ax.set(xlabel="x₁", ylabel="x₂", zlabel=name)
        for axis in (ax.xaxis, ax.yaxis, ax.zaxis):
            axis.set_major_locator(MaxNLocator(3))
            axis.set_tick_params(labelsize=8, pad=-1)
            axis.labelpad = -1
            axis.set_major_formatter(_brief)
        widest = max(len(_brief(value)) for value in ax.zaxis.get_majorticklocs())
        ax.zaxis.labelpad = max(-1.0, 2.0 * (widest - 3))  # beyond the numbers
        self.ax_[0].xaxis.set_major_locator(MaxNLocator(5))
        ax.set_box_aspect(
            None, zoom=0.9 if widest < 5 else 0.8
        )  # so that the label of the upright axis stays within the panel
        ax.set_title(f"after, with {name}\n{_outcome(self.after, 'plane')}", fontsize=10)
        self.ax_[0].title.set_fontsize(10)


def _brief(value: float, position: float | None = None) -> str:
    """A number at a tick of the box, where there is little room."""
    return style.tick(value, position, written=1e4)


def _best(X: Tensor, y: Tensor, epochs: int) -> RuleResult:
    """A run with the weights of the fewest errors that occurred."""
    result = RuleTrainer(epochs, order="shuffled").fit(Perceptron(X.shape[1], dtype=torch.float64), X, y)
    return replace(result, select="pocket", model=result.log.pocket(ratchet="every"))


def _outcome(result: RuleResult, what: str) -> str:
    if result.verdict is Verdict.SEPARATED:
        return f"a {what} separates"
    return f"best {what} found, {int(result.log.errors().min())} wrong"


def _feature(feature: object) -> tuple[Callable[[Tensor], Any], str]:
    if callable(feature):
        return feature, getattr(feature, "__name__", "feature").replace("<lambda>", "feature")
    return FEATURES[check_choice("feature", feature, tuple(FEATURES))]


def _points(ax: Axes3D, X: Tensor, height: Tensor, y: Tensor) -> dict[int, Path3DCollection]:
    """The lifted samples, each on a stem from the floor it was lifted from."""
    drawn = {}
    floor = min(0.0, float(height.min()))
    size = 45 if len(y) <= 50 else 14
    for number, (code, colour) in enumerate(zip((-1, 1), style.COLOURS, strict=False)):
        part, up = X[y == code].numpy(), height[y == code].numpy()
        look: dict[str, Any] = {"color": colour, "marker": style.MARKERS[number], "edgecolor": "white", "s": size}
        drawn[code] = ax.scatter(
            part[:, 0], part[:, 1], up, depthshade=False, label=style.label_text(code, False), **look
        )
        if len(y) <= 50:
            for (first, second), top in zip(part, up, strict=True):
                ax.plot([first, first], [second, second], [floor, top], color=colour, linewidth=1, alpha=0.6)
    return drawn


def _azimuth(result: RuleResult, X: Tensor, height: Tensor) -> float:
    """From where one sees along the plane, nearly, so that the classes are above and below it, in degrees.

    The eye is at (cos e·cos a, cos e·sin a, sin e), and its product with the unit normal n is to be sin(tilt).
    """
    spans = torch.cat((X.amax(0) - X.amin(0), (height.max() - height.min())[None]))
    normal = result.model.weight[0] * spans  # type: ignore[attr-defined]  # as the box shows it
    n1, n2, n3 = (normal / normal.norm()).tolist()
    flat, turn = math.hypot(n1, n2), math.atan2(n2, n1)
    wanted = (math.copysign(math.sin(_TILT), n3) - n3 * math.sin(_HEIGHT)) / math.cos(_HEIGHT)
    apart = math.acos(max(-1.0, min(1.0, wanted / flat))) if flat > 0 else 0.0
    return math.degrees(turn - apart)


def _plane(ax: Axes3D, result: RuleResult, X: Tensor, height: Tensor) -> Poly3DCollection | None:
    """The part of the separating plane within the picture; ``None`` if it stands upright."""
    weight, bias = result.model.weight[0], result.model.bias[0]  # type: ignore[attr-defined]  # a linear one
    if float(weight[2].abs()) < 1e-9 * float(weight.abs().max()):
        return None
    across, up = grid_of(feature_plane(), X, X, steps=40, room=0.1).points.T.reshape(2, 40, 40)
    surface = -(weight[0] * across + weight[1] * up + bias) / weight[2]
    room = 0.25 * float(height.max() - height.min()) + 1e-9
    outside = (surface < height.min() - room) | (surface > height.max() + room)
    values = surface.masked_fill(outside, float("nan")).numpy()
    return ax.plot_surface(across.numpy(), up.numpy(), values, color="#999999", alpha=0.45, linewidth=0)
