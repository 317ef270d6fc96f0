"""Learning curves, and a test set used once
=========================================

Note C's protocol on digits: shuffled epochs, the weights of the lowest validation error, the test set once.

The validation error chooses among the epochs, so it is no fair estimate any more; the test part has chosen nothing, and
is looked at a single time, at the end.
"""

from __future__ import annotations

from pathlib import Path

from _common import BLACK, BLUE, ORANGE, RED, command_line, fit, picture, show
from matplotlib.figure import Figure

import torchperc as tp

FOLDER = Path("runs/learning_curves")


def main(folder: Path = FOLDER, quick: bool = False) -> dict[str, float]:
    epochs, note = 9 if quick else 30, tp.dialects.NOTE_C
    data = tp.lightning.TabularDataModule("digits", scale="minmax")
    net = tp.MulticlassPerceptron(data.width, data.classes)
    lit = tp.lightning.LitRule(net, tie=note.tie, bias_step=note.bias_step, order=note.order, select=note.select)
    curves = fit(lit, data, folder / "digits", epochs)
    train, validation = ([100 * error for error in curves[f"error/{part}"]] for part in ("train", "val"))
    best = validation.index(min(validation))
    X, y = data.parts[1]
    restored = 100 * float((lit.predict_step(X) != y).double().mean())
    lit.trainer.test(lit, data, verbose=False)
    figures = {
        "epochs": float(len(train)),
        "best epoch": best + 1.0,
        "train": train[best],
        "validation": validation[best],
        "validation, last epoch": validation[-1],
        "validation, restored weights": restored,
        "test": 100 * float(lit.trainer.callback_metrics["error/test"]),
    }
    errors = ("train", "validation", "validation, restored weights", "validation, last epoch", "test")
    rows = [(name, f"{figures[name]:.2f}") for name in errors]
    title = f"digits, note C: epoch {best + 1} of {len(train)} is kept"
    show(folder, _chart(train, validation, best, figures["test"]), title, ("part", "error in %"), rows)
    return figures


def _chart(train: list[float], validation: list[float], best: int, test: float) -> Figure:
    figure = picture()
    axes = figure.add_subplot()
    epochs = range(1, len(train) + 1)
    axes.plot(epochs, train, color=BLUE, linestyle="--", label="train: mistakes made in the epoch")
    axes.plot(epochs, validation, color=ORANGE, linewidth=2, label="validation, after the epoch")
    axes.plot(best + 1, validation[best], color=BLACK, marker="o", markersize=9, fillstyle="none", linestyle="",
              label=f"lowest, epoch {best + 1}: these weights are kept")  # fmt: skip
    axes.plot(best + 1, test, color=RED, marker="*", markersize=11, linestyle="",
              label=f"test, once, with these weights: {test:.1f} %")  # fmt: skip
    axes.set(xlabel="epoch", ylabel="error (%)", ylim=(0, None))
    axes.set_title("Digits: train and validation error of the multiclass perceptron")
    axes.grid(alpha=0.3)
    axes.legend()
    return figure


if __name__ == "__main__":
    command_line(main, FOLDER, __doc__)
