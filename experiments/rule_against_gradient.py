"""The rule against gradient descent
=================================

The rule against gradient descent on the perceptron criterion, on the same samples in the same order.

One sample at a time, gradient descent is the rule: the same weights to the last bit. With the whole batch at once it is
another algorithm: one step an epoch, along the sum of all mistakes.
"""

from __future__ import annotations

from pathlib import Path

import torch
from _common import BLUE, GREEN, ORANGE, command_line, fit, picture, show
from matplotlib.figure import Figure

import torchperc as tp

FOLDER = Path("runs/rule_against_gradient")


def main(folder: Path = FOLDER, quick: bool = False) -> dict[str, float]:
    epochs, seed = 10 if quick else 40, 0
    given, shuffled = (_data(order, seed) for order in ("given", "shuffled"))
    rule = tp.lightning.LitRule(_net(given.width), order="shuffled", seed=seed)
    sample, batch = (
        tp.lightning.LitClassifier(_net(given.width), tp.PerceptronHead(), lr=1.0, update=update)
        for update in ("sample", "batch")
    )
    curves = {
        "rule": fit(rule, given, folder / "rule", epochs),  # the rule shuffles by itself
        "sample": fit(sample, shuffled, folder / "sample", epochs),
        "batch": fit(batch, given, folder / "batch", epochs),
    }
    difference = _difference(rule.net, sample.net)
    figures = {f"{name} mistakes in the last epoch": curve["mistakes"][-1] for name, curve in curves.items()}
    figures |= {f"{name} mistakes": sum(curve["mistakes"]) for name, curve in curves.items()}
    figures |= {"difference of weights": difference, "samples": float(len(given.parts[0][1]))}
    figures["difference of weights, batch"] = _difference(rule.net, batch.net)
    rows = [
        ("rule", figures["rule mistakes"], figures["rule mistakes in the last epoch"], "—"),
        ("gradient, a sample a step", figures["sample mistakes"], figures["sample mistakes in the last epoch"],
         f"{difference:g}"),
        ("gradient, a full batch a step", figures["batch mistakes"], figures["batch mistakes in the last epoch"],
         f"{figures['difference of weights, batch']:.3g}"),
    ]  # fmt: skip
    columns = ("trained by", "mistakes", "in the last epoch", "largest difference from the rule's weights")
    errors = {name: [100 * error for error in curve["error/train"]] for name, curve in curves.items()}
    show(folder, _chart(errors), f"breast-cancer, {epochs} epochs", columns, rows)
    return figures


def _data(order: str, seed: int) -> tp.lightning.TabularDataModule:
    return tp.lightning.TabularDataModule(
        "breast-cancer", order=order, split=(1, 0, 0), scale="standard", seed=seed, dtype="float64"
    )


def _net(width: int) -> tp.Perceptron:
    return tp.Perceptron(width, dtype=torch.float64)


def _difference(one: tp.Perceptron, other: tp.Perceptron) -> float:
    """The largest difference of any weight; 0 only if all are the same to the last bit."""
    pairs = zip(one.parameters(), other.parameters(), strict=True)
    return max(float((p - q).detach().abs().max()) for p, q in pairs)


def _chart(errors: dict[str, list[float]]) -> Figure:
    figure = picture()
    axes = figure.add_subplot()
    epochs = range(1, len(errors["rule"]) + 1)
    axes.plot(epochs, errors["batch"], color=GREEN, linestyle="-.", label="gradient, a full batch a step")
    axes.plot(epochs, errors["rule"], color=BLUE, linewidth=3.5, label="rule")
    axes.plot(
        epochs, errors["sample"], color=ORANGE, linestyle="", marker="o", markersize=4,
        label="gradient, a sample a step: the rule's weights",
    )  # fmt: skip
    axes.set(xlabel="epoch", ylabel="mistakes among the presented samples (%)", yscale="log")
    axes.set_yticks((1, 2, 5, 10, 20, 50), ("1", "2", "5", "10", "20", "50"))
    axes.minorticks_off()
    axes.set_title("Sample by sample, gradient descent is the rule")
    axes.grid(alpha=0.3)
    axes.legend()
    return figure


if __name__ == "__main__":
    command_line(main, FOLDER, __doc__)
