"""Predictions against the truth: the confusion matrix of labels, the residuals of numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from torchperc._checks import Data, as_tensor, check_targets, require_packages
from torchperc.nn.heads import Head
from torchperc.plots import style
from torchperc.plots.classifiers import classifier, codes_of

require_packages(__name__, "sklearn")
_SMALLEST = 5.0  # points: smaller text cannot be read


@dataclass(eq=False, repr=False)
class ConfusionDisplay(style.Display):
    """The confusion matrix: counts by true label (rows) and predicted label, shaded by the fraction of the row.

    ``matrix`` has the counts (K, K), ``labels`` names the classes. With too many classes for legible numbers, the
    shades have a scale instead. After :meth:`plot`, ``image_`` is the image and ``texts_`` has the numbers by row and
    column.

    Example:
        >>> display = ConfusionDisplay(torch.tensor([[3, 1], [0, 2]]), ("no", "yes")).plot()
        >>> display.texts_[0, 1].get_text()
        '1'
    """

    matrix: Tensor
    labels: Sequence[str]

    @classmethod
    def from_predictions(
        cls, y: Data, predicted: Data, labels: style.Labels = None, *, ax: style.AnyAxes = None
    ) -> ConfusionDisplay:
        """Draw how predictions compare with the truth: labels −1/+1, class indices, or strings.

        Example:
            >>> ConfusionDisplay.from_predictions(["no", "yes", "no"], ["no", "no", "no"]).matrix
            tensor([[2, 0],
                    [1, 0]])
        """
        truth, said = _labels("y", y), _labels("predicted", predicted)
        if not len(truth):
            raise ValueError("y is empty; give at least one label")
        if len(truth) != len(said):
            raise ValueError(f"y has {len(truth)} labels and predicted {len(said)}; they must have the same length")
        codes, names = _classes(np.concatenate((truth, said)), labels)
        return cls(_counts(truth, said, codes), names).plot(ax=ax)

    @classmethod
    def from_model(
        cls,
        model: Any,
        X: Data,
        y: Data,
        *,
        head: Head | None = None,
        labels: style.Labels = None,
        ax: style.AnyAxes = None,
    ) -> ConfusionDisplay:
        """Draw which labels a model predicts for which; its arguments are those of all displays."""
        known = classifier(model, head)
        _, scores, truth = known.judge(X, y)
        names = style.label_names(labels, codes_of(scores))
        return cls(_counts(truth, known.head.decide(scores), codes_of(scores)), names).plot(ax=ax)

    def _place(self, ax: Any) -> style.Place:
        count = len(self.matrix)
        self._cell = min(6.4, max(1.6, 0.4 * count)) / count  # inches
        self._names = [style.shortened(label, 24) for label in self.labels]
        longest = max(map(len, self._names))
        self._slanted = 0.1 * (longest + 1) > self._cell  # too long to stand side by side
        side, room = self._cell * count, 0.085 * longest
        return style.canvas(ax, (max(3.4, side + room + 0.6), side + 0.9 + (0.75 * room if self._slanted else 0.2)))

    def _draw(self, own: bool) -> None:
        from sklearn.metrics import ConfusionMatrixDisplay

        axes, counts, self.texts_ = self.ax_, self.matrix.numpy(), {}
        fractions = counts / counts.sum(1, keepdims=True).clip(min=1)
        size = min(9.0, 90 * self._cell / len(str(counts.max())))
        drawn = ConfusionMatrixDisplay(counts)
        look: dict[str, Any] = {"include_values": size >= _SMALLEST, "values_format": "d", "colorbar": False}
        drawn.plot(ax=axes, cmap="Blues", im_kw={"vmin": 0, "vmax": 1}, text_kw={"fontsize": size}, **look)
        self.image_ = drawn.im_
        self.image_.set_data(fractions)  # a rare class's confusions are as visible as those of a frequent one
        if drawn.text_ is None:
            bar = self.figure_.colorbar(self.image_, ax=axes, pad=0.02, aspect=30, shrink=0.8)
            bar.set_label("fraction of the row", fontsize=9)
        else:
            self.texts_ = dict(np.ndenumerate(drawn.text_))
        for (row, column), text in self.texts_.items():
            number = counts[row, column]
            text.set_color("white" if fractions[row, column] > 0.5 else "black" if number else "#8A8A8A")
            text.set_fontweight("bold" if number and row != column else "normal")
        every = int(np.ceil(_SMALLEST / (60 * self._cell)))  # of very many classes some are named
        places, font = range(0, len(counts), every), min(10.0, max(_SMALLEST, 57.6 * self._cell))
        slanted: dict[str, Any] = {"rotation": 45, "ha": "right", "rotation_mode": "anchor"} if self._slanted else {}
        axes.set_xticks(places, self._names[::every], fontsize=font, **slanted)
        axes.set_yticks(places, self._names[::every], fontsize=font)
        axes.set(xlabel="predicted label", ylabel="true label")
        title = f"{int(counts.sum() - counts.trace()):,} of {int(counts.sum()):,} wrong"
        axes.set_title(title, fontsize=11 if len(title) < 24 else 9)


def _labels(name: str, values: Data) -> np.ndarray[Any, Any]:
    """style.Labels (N,) as integers or as strings."""
    flat = values.detach().cpu().numpy() if isinstance(values, Tensor) else np.asarray(values)
    if flat.ndim != 1:
        raise ValueError(f"{name} must have one dimension, found shape {flat.shape}; use {name}.reshape(-1)")
    if flat.dtype.kind in "UO":
        return flat.astype(str)
    if flat.dtype.kind not in "iuf" or not np.array_equal(flat, np.trunc(flat)):
        raise ValueError(f"{name} must hold −1 and +1, class indices or strings, found {flat[:5].tolist()}")
    return flat.astype(np.int64)


def _classes(found: np.ndarray[Any, Any], labels: style.Labels) -> tuple[Sequence[Any], list[str]]:
    """The codes of the classes in order, and their names."""
    values = np.unique(found).tolist()
    if found.dtype.kind == "U":
        codes = values if labels is None else [str(label) for label in labels]
        if missing := set(values) - set(codes):
            raise ValueError(f"labels={labels!r} must name every class of y and predicted; {min(missing)!r} is missing")
        return codes, codes
    indices = labels is not None and len(labels) > 2 and -1 not in values  # class 1 alone may be one of three
    if set(values) <= {-1, 1} and not indices:
        return [-1, 1], style.label_names(labels, [-1, 1])
    if values[0] < 0:
        shown = ", ".join(map(str, values[:5]))
        raise ValueError(f"y and predicted must hold −1 and +1, or class indices from 0; found {shown}")
    every = range(max(values[-1] + 1, 2 if labels is None else len(labels)))
    return every, style.label_names(labels, every)


def _counts(truth: Any, said: Any, codes: Sequence[Any]) -> Tensor:
    from sklearn.metrics import confusion_matrix

    return torch.from_numpy(confusion_matrix(truth, said, labels=list(codes)))


@dataclass(eq=False, repr=False)
class ResidualDisplay(style.Display):
    """Regression in two panels: true values against predictions, and residuals y − s against predictions.

    A good model has its points along the diagonal on the left, and a level band around 0 without a shape on the right;
    a bend says that the model is too stiff, a funnel that errors grow with the prediction.

    ``y`` and ``predicted`` are (N,), ``target`` names what is predicted. After :meth:`plot`, ``points_`` and
    ``residuals_`` are the points of the two panels, ``diagonal_`` and ``zero_`` the lines they should be near,
    ``band_`` the two lines at ± RMSE; ``rmse`` and ``r2`` are numbers.

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
        """Draw how predictions compare with the truth, both (N,)."""
        count = len(as_tensor(y, "y"))
        truth, said = (check_targets(v, count, name=n).cpu() for v, n in ((y, "y"), (predicted, "predicted")))
        if not count:
            raise ValueError("y is empty; give at least one sample")
        return cls(truth, said, str(target)).plot(ax=ax)

    @classmethod
    def from_estimator(
        cls, estimator: Any, X: Data, y: Data, *, target: str = "y", ax: style.AnyAxes = None
    ) -> ResidualDisplay:
        """Draw the predictions of a regressor, a net, a Lightning module or a function from samples to numbers."""
        if isinstance(estimator, nn.Module):  # a net's own predict would decide
            known = classifier(estimator)
            said: Any = known.scores(known.admit(X))
        elif hasattr(estimator, "predict") or callable(estimator):
            said = getattr(estimator, "predict", estimator)(X)
        else:
            raise TypeError(f"estimator must be a regressor, a net or a function, found {type(estimator).__name__}")
        return cls.from_predictions(y, said, target=target, ax=ax)

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
        return style.panels(ax, 2, 2, (6.5, 3.8))

    def _draw(self, own: bool) -> None:
        from sklearn.metrics import PredictionErrorDisplay

        truth, said = self.y.double().numpy(), self.predicted.double().numpy()
        count, name, (left, right) = len(truth), style.shortened(self.target, 18), self.ax_
        look: dict[str, Any] = {"s": 22 if count <= 500 else 10, "alpha": max(0.15, min(0.8, 400 / count))}
        look |= {"color": style.BLUE, "edgecolors": "white", "linewidths": 0.4, "rasterized": count > 5000}
        line: dict[str, Any] = {"color": style.ink(), "alpha": 1.0, "linewidth": 1.4, "linestyle": "-", "zorder": 1}
        drawn = []
        for axes, kind in ((left, "actual_vs_predicted"), (right, "residual_vs_predicted")):
            made = PredictionErrorDisplay(y_true=truth, y_pred=said)
            made.plot(axes, kind=kind, scatter_kwargs=look, line_kwargs=line)
            drawn += [made.scatter_, made.line_]
            axes.set_xlabel(f"predicted {name}")
            style.few_ticks(axes, 5)
            axes.grid(alpha=0.3)
            axes.set_axisbelow(True)
        self.points_, self.diagonal_, self.residuals_, self.zero_ = drawn
        self.diagonal_.set_label("prediction = truth")
        low, high = min(truth.min(), said.min()), max(truth.max(), said.max())
        pad = 0.04 * (high - low) or 1.0
        left.set_aspect("equal", adjustable="box")
        left.set(xlim=(low - pad, high + pad), ylim=(low - pad, high + pad), ylabel=f"true {name}")
        known = "" if np.isnan(self.r2) else f"R² = {self.r2:.3f}, ".replace("-", "−")
        size = f"{self.rmse:,.0f}" if 999.5 <= self.rmse < 1e9 else style.format_number(self.rmse)
        left.set_title(f"{known}RMSE = {size}", fontsize=11)
        line |= {"color": style.RED, "linestyle": "--"}
        self.band_ = [right.axhline(sign * self.rmse, **line) for sign in (1, -1)]
        self.band_[0].set_label("± RMSE")
        reach = max(float(np.abs(truth - said).max()), self.rmse) * 1.12 or 1.0
        right.set(ylim=(-reach, reach), ylabel="residual, true − predicted")
        right.set_title(f"Residuals of {count:,} sample{'s' * (count != 1)}", fontsize=11)
        style.legend(self.ax_, own)
