"""Predictions against the truth by scikit-learn's displays: the confusion matrix of labels, residuals of numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from typing_extensions import Self

from torchperc._checks import Data, as_tensor, check_targets, require_packages
from torchperc.nn.heads import Head
from torchperc.plots import style
from torchperc.plots.classifiers import classifier, codes_of

require_packages(__name__, "sklearn")
from sklearn import metrics  # noqa: E402

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
    ) -> Self:
        """Draw how predictions compare with the truth: labels −1/+1, class indices, or strings.

        Example:
            >>> ConfusionDisplay.from_predictions(["no", "yes", "no"], ["no", "no", "no"]).matrix
            tensor([[2, 0],
                    [1, 0]])
        """
        truth, said = (np.asarray(v.detach().cpu() if isinstance(v, Tensor) else v) for v in (y, predicted))
        if truth.shape != said.shape or truth.ndim != 1 or not truth.size:
            found = f"y has shape {truth.shape} and predicted {said.shape}"
            raise ValueError(f"{found}; both need one label per sample, (N,) with N ≥ 1")
        values = np.unique(np.concatenate((truth, said)).astype(str if truth.dtype.kind in "UO" else None))
        codes, names = _classes(values, labels)
        if missing := set(values.tolist()) - set(codes):
            wanted = f"−1 and +1, class indices from 0, or strings that labels={labels!r} names"
            raise ValueError(f"y and predicted must hold {wanted}; found {min(missing, key=str)!r}")
        return cls(torch.from_numpy(metrics.confusion_matrix(truth, said, labels=codes)), names).plot(ax=ax)

    @classmethod
    def from_model(
        cls, model: Any, X: Data, y: Data, *, head: Head | None = None, labels: style.Labels = None, ax: Any = None
    ) -> Self:
        """Draw which labels a model predicts for which; its arguments are those of all displays."""
        known = classifier(model, head)
        _, scores, truth = known.judge(X, y)
        codes, said = codes_of(scores), known.head.decide(scores)
        matrix = metrics.confusion_matrix(truth, said, labels=codes)
        return cls(torch.from_numpy(matrix), style.label_names(labels, codes)).plot(ax=ax)

    def _place(self, ax: Any) -> style.Place:
        count = len(self.matrix)
        self._cell = min(6.4, max(1.6, 0.4 * count)) / count  # inches
        self._names = [style.shortened(label, 24) for label in self.labels]
        longest = max(map(len, self._names))
        self._slanted = 0.1 * (longest + 1) > self._cell  # too long to stand side by side
        side, room = self._cell * count, 0.085 * longest
        return style.canvas(ax, (max(3.4, side + room + 0.6), side + 0.9 + (0.75 * room if self._slanted else 0.2)))

    def _draw(self, own: bool) -> None:
        axes, counts = self.ax_, self.matrix.numpy()
        fractions = counts / counts.sum(1, keepdims=True).clip(min=1)  # of a row: a rare class's confusions are seen
        size = min(9.0, 90 * self._cell / len(str(counts.max())))
        every = int(np.ceil(_SMALLEST / (60 * self._cell)))  # of very many classes some are named
        names = [name if k % every == 0 else "" for k, name in enumerate(self._names)]
        look: dict[str, Any] = {"include_values": size >= _SMALLEST, "colorbar": False, "text_kw": {"fontsize": size}}
        drawn = metrics.ConfusionMatrixDisplay(fractions, display_labels=names)
        drawn.plot(ax=axes, cmap="Blues", im_kw={"vmin": 0, "vmax": 1}, **look)
        self.image_, self.texts_ = drawn.im_, dict(np.ndenumerate([] if drawn.text_ is None else drawn.text_))
        if not self.texts_:
            bar = self.figure_.colorbar(self.image_, ax=axes, pad=0.02, aspect=30, shrink=0.8)
            bar.set_label("fraction of the row", fontsize=9)
        for (row, column), text in self.texts_.items():
            number, light = counts[row, column], fractions[row, column] > 0.5
            weight = "bold" if number and row != column else "normal"
            text.set(text=number, color="white" if light else "black" if number else "#8A8A8A", fontweight=weight)
        slanted = {"rotation": 45, "ha": "right", "rotation_mode": "anchor"} if self._slanted else {}
        for label in axes.get_xticklabels():
            label.set(**slanted)
        axes.tick_params(labelsize=min(10.0, max(_SMALLEST, 57.6 * self._cell)))
        axes.set(xlabel="predicted label", ylabel="true label")
        title = f"{int(counts.sum() - counts.trace()):,} of {int(counts.sum()):,} wrong"
        axes.set_title(title, fontsize=11 if len(title) < 24 else 9)


def _classes(values: np.ndarray[Any, Any], labels: style.Labels) -> tuple[list[Any], list[str]]:
    """The codes of all classes in order, and their names, by the values that occur."""
    if values.dtype.kind == "U":
        codes = values.tolist() if labels is None else [str(label) for label in labels]
        return codes, codes
    few = labels is None or len(labels) == 2 or -1 in values  # of three classes, class 1 may occur alone
    count = max(int(np.nan_to_num(values[-1])) + 1, 2 if labels is None else len(labels))
    every = [-1, 1] if few and np.isin(values, [-1, 1]).all() else list(range(count))
    return every, style.label_names(labels, every)


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
    def from_predictions(cls, y: Data, predicted: Data, *, target: str = "y", ax: style.AnyAxes = None) -> Self:
        """Draw how predictions compare with the truth, both (N,)."""
        count = len(as_tensor(y, "y"))
        truth, said = (check_targets(v, count, name=n).cpu() for v, n in ((y, "y"), (predicted, "predicted")))
        if not count:
            raise ValueError("y is empty; give at least one sample")
        return cls(truth, said, str(target)).plot(ax=ax)

    @classmethod
    def from_estimator(cls, estimator: Any, X: Data, y: Data, *, target: str = "y", ax: style.AnyAxes = None) -> Self:
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
        return float(metrics.root_mean_squared_error(self.y, self.predicted))

    @property
    def r2(self) -> float:
        """1 − Σ (y − s)²/Σ (y − mean)²; NaN where all true values are equal."""
        return float(metrics.r2_score(self.y, self.predicted)) if len(self.y.unique()) > 1 else float("nan")

    def _place(self, ax: Any) -> style.Place:
        return style.panels(ax, 2, 2, (6.5, 3.8))

    def _draw(self, own: bool) -> None:
        from matplotlib.ticker import MaxNLocator

        truth, said = self.y.double().numpy(), self.predicted.double().numpy()
        count, name, (left, right) = len(truth), style.shortened(self.target, 18), self.ax_
        look: dict[str, Any] = {"s": 22 if count <= 500 else 10, "alpha": max(0.15, min(0.8, 400 / count))}
        look |= {"color": style.BLUE, "edgecolors": "white", "linewidths": 0.4, "rasterized": count > 5000}
        line: dict[str, Any] = {"color": style.ink(), "alpha": 1.0, "linewidth": 1.4, "linestyle": "-", "zorder": 1}
        drawn = []
        for axes, kind in ((left, "actual_vs_predicted"), (right, "residual_vs_predicted")):
            made = metrics.PredictionErrorDisplay(y_true=truth, y_pred=said)
            made.plot(axes, kind=kind, scatter_kwargs=look, line_kwargs=line)
            drawn += [made.scatter_, made.line_]
            axes.set_xlabel(f"predicted {name}")
            for axis, most in ((axes.xaxis, 3), (axes.yaxis, 5)):  # a power of ten at the corner would cover the title
                axis.set_major_locator(MaxNLocator(most))
                axis.set_major_formatter(lambda value, place: style.format_number(value, 4))
            axes.grid(alpha=0.3)
            axes.set_axisbelow(True)
        self.points_, self.diagonal_, self.residuals_, self.zero_ = drawn
        self.diagonal_.set_label("prediction = truth")
        low, high = min(truth.min(), said.min()), max(truth.max(), said.max())
        pad = 0.04 * (high - low) or 1.0
        left.set_aspect("equal", adjustable="box")
        left.set(xlim=(low - pad, high + pad), ylim=(low - pad, high + pad), ylabel=f"true {name}")
        known = "" if np.isnan(self.r2) else f"R² = {self.r2:.3f}, ".replace("-", "−")
        left.set_title(f"{known}RMSE = {style.format_number(self.rmse)}", fontsize=11)
        line |= {"color": style.RED, "linestyle": "--"}
        self.band_ = [right.axhline(sign * self.rmse, **line) for sign in (1, -1)]
        self.band_[0].set_label("± RMSE")
        reach = max(float(np.abs(truth - said).max()), self.rmse) * 1.12 or 1.0
        right.set(ylim=(-reach, reach), ylabel="residual, true − predicted")
        right.set_title(f"Residuals of {count:,} sample{'s' * (count != 1)}", fontsize=11)
        style.legend(self.ax_, own)
