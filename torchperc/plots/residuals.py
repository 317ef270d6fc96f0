"""How far predictions of numbers are from the truth."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from torchperc._checks import Data, as_tensor, check_targets
from torchperc.nn.modules import resting
from torchperc.plots import style
from torchperc.samples import convert

WIDTH, HEIGHT = 6.5, 3.8


@dataclass(eq=False, repr=False)
class ResidualDisplay(style.Display):
    """Regression in two panels: true values against predictions, and residuals y − s against predictions.

    A good model has its points along the diagonal on the left, and a level band around 0 without a shape on the right;
    a bend says that the model is too stiff, a funnel that errors grow with the prediction.

    Args:
        y: true values (N,).
        predicted: predictions (N,).
        target: the name of what is predicted, for the axes.

    After :meth:`plot`, ``points_`` and ``residuals_`` are the points of the two panels, ``diagonal_`` and ``zero_`` the
    lines they should be near, ``band_`` the two lines at ± RMSE; ``rmse`` and ``r2`` are numbers.

    Example:
        >>> display = ResidualDisplay(torch.tensor([1.0, 2.0, 4.0]), torch.tensor([1.0, 3.0, 4.0])).plot()
        >>> display.residuals_.get_offsets()[:, 1].tolist(), round(display.rmse, 4), round(display.r2, 4)
        ([0.0, -1.0, 0.0], 0.5774, 0.7857)
    """

    y: Tensor
    predicted: Tensor
    target: str = "y"

    @classmethod
    def from_predictions(
        cls, y: Data, predicted: Data, *, target: str = "y", ax: style.AnyAxes = None
    ) -> ResidualDisplay:
        """Draw how predictions compare with the truth, both (N,).

        Example:
            >>> ResidualDisplay.from_predictions([60.0, 72.0], [61.0, 70.0], target="weight in kg").ax_[0].get_ylabel()
            'true weight in kg'
        """
        count = len(as_tensor(y, "y"))
        truth, said = (check_targets(v, count, name=n).cpu() for v, n in ((y, "y"), (predicted, "predicted")))
        if not count:
            raise ValueError("y is empty; give at least one sample")
        return cls(truth, said, str(target)).plot(ax=ax)

    @classmethod
    def from_estimator(
        cls, estimator: Any, X: Data, y: Data, *, target: str = "y", ax: style.AnyAxes = None
    ) -> ResidualDisplay:
        """Draw how a model predicts.

        Args:
            estimator: a fitted regressor of torchperc's or scikit-learn's, a fitted model, a net or a Lightning module,
                whose output is the prediction, or a function from samples to predictions.
            X: samples (N, d), as the estimator accepts them.
            y: true values (N,).
            target: the name of what is predicted.
            ax: axes to draw on: two, or one whose place is divided.

        Example:
            >>> from torchperc.sklearn import LMSRegressor
            >>> X, y = [[0.0], [1.0], [2.0]], [1.0, 2.0, 2.0]
            >>> model = LMSRegressor(update="optimum").fit(X, y)
            >>> ResidualDisplay.from_estimator(model, X, y).predicted.round(decimals=4)
            tensor([1.1667, 1.6667, 2.1667], dtype=torch.float64)
        """
        return cls.from_predictions(y, _predictions(estimator, X), target=target, ax=ax)

    @property
    def rmse(self) -> float:
        """√ mean (y − s)²."""
        return float((self.y - self.predicted).double().square().mean().sqrt())

    @property
    def r2(self) -> float:
        """1 − Σ (y − s)²/Σ (y − mean)²; NaN where all true values are equal."""
        y = self.y.double()
        spread = float((y - y.mean()).square().sum())
        return 1 - float((y - self.predicted).square().sum()) / spread if spread else float("nan")

    def _place(self, ax: Any) -> style.Place:
        return style.panels(ax, 2, 2, (WIDTH, HEIGHT))

    def _draw(self, own: bool) -> None:
        left, right = self.ax_
        target = style.shortened(self.target, 20)
        truth, said = self.y.double().numpy(), self.predicted.double().numpy()
        count = len(truth)
        look: dict[str, Any] = {"s": 22 if count <= 500 else 10, "alpha": max(0.15, min(0.8, 400 / count))}
        look |= {"color": style.BLUE, "edgecolors": "white", "linewidths": 0.4, "rasterized": count > 5000}
        line: dict[str, Any] = {"color": "black", "linewidth": 1.4, "zorder": 1}
        low, high = min(truth.min(), said.min()), max(truth.max(), said.max())
        pad = 0.04 * (high - low) or 1.0
        ends = np.array([low - pad, high + pad])
        (self.diagonal_,) = left.plot(ends, ends, label="prediction = truth", **line)
        self.points_ = left.scatter(said, truth, **look)
        left.set(xlim=ends, ylim=ends, xlabel=f"predicted {target}", ylabel=f"true {target}")
        left.set_title(_figures(self.r2, self.rmse), fontsize=11)
        left.set_aspect("equal", adjustable="box")
        self.zero_ = right.axhline(0, **line)
        dashes: dict[str, Any] = {"color": style.RED, "linestyle": "--", "linewidth": 1.2, "zorder": 1}
        self.band_ = [right.axhline(sign * self.rmse, **dashes) for sign in (1, -1)]
        self.band_[0].set_label("± RMSE")
        self.residuals_ = right.scatter(said, truth - said, **look)
        reach = max(float(np.abs(truth - said).max()), self.rmse) * 1.12 or 1.0
        right.set(ylim=(-reach, reach), xlabel=f"predicted {target}", ylabel="residual, true − predicted")
        right.set_title(f"Residuals of {count:,} sample{'s' * (count != 1)}", fontsize=11)
        for axes in (left, right):
            axes.locator_params(nbins=5)  # so that numbers of many digits do not run into each other
            axes.grid(alpha=0.3)
            axes.set_axisbelow(True)
        style.legends(self.ax_, own)


def _figures(r2: float, rmse: float) -> str:
    known = "" if np.isnan(r2) else f"R² = {r2:.3f}, "
    size = f"{rmse:,.0f}" if 999.5 <= rmse < 1e9 else style.figure_of(rmse)
    return f"{known}RMSE = {size}".replace("-", "−")


@torch.no_grad()
def _predictions(estimator: Any, X: Data) -> Any:
    """What a model predicts for samples, (N,)."""
    if isinstance(estimator, nn.Module):  # a net's own predict would decide
        weight = next(estimator.parameters(), None)
        wanted = torch.get_default_dtype() if weight is None else weight.dtype
        device = None if weight is None else weight.device
        with resting(estimator):
            said = estimator(convert.features(X, dtype=wanted, device=device, convert=True))
    elif hasattr(estimator, "predict"):
        said = estimator.predict(X)
    elif callable(estimator):
        said = estimator(X)
    else:
        raise TypeError(
            f"estimator must be a fitted regressor, a net or a function from samples to predictions, found "
            f"{type(estimator).__name__}"
        )
    values = as_tensor(said, "predicted")
    return values.squeeze(-1) if values.dim() == 2 and values.shape[1] == 1 else values
