"""Full batch, folds and single samples
====================================

Full batch, folds and one sample at a time: the same logistic loss, the same rate, the same samples.

An epoch costs the same arithmetic in all three, but holds one step, a few, or one for every sample. So the loss over
all samples is taken not only after each epoch but within it, against the samples seen so far.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

from _common import BLUE, GREEN, ORANGE, Watch, command_line, fit, picture, show
from matplotlib.figure import Figure
from matplotlib.ticker import ScalarFormatter
from torch import Tensor

import torchperc as tp

FOLDER = Path("runs/batch_against_stochastic")
RATE, FOLD, GLANCE = 0.1, 32, 16
# batch size and update; one sample at a time is handed over in slices of GLANCE, which is how often we look
WAYS: dict[str, tuple[int | str, str]] = {
    "full batch": ("full", "batch"),
    f"folds of {FOLD}": (FOLD, "batch"),
    "one sample": (GLANCE, "sample"),
}
STYLES = ((BLUE, "--"), (GREEN, "-."), (ORANGE, "-"))
Points = list[tuple[int, float]]


def main(folder: Path = FOLDER, quick: bool = False) -> dict[str, float]:
    epochs = 5 if quick else 20
    points, steps = {}, {}
    for name, (size, update) in WAYS.items():
        data = tp.lightning.TabularDataModule(
            "breast-cancer", batch_size=size, order="shuffled", split=(1, 0, 0), scale="standard"
        )
        X, y = data.parts[0]
        head, samples = tp.LogisticHead(), len(y)
        lit = tp.lightning.LitClassifier(tp.Perceptron(data.width), head, lr=RATE, update=update)
        watch = Watch(partial(_loss, head, X, y))
        fit(lit, data, folder / name.replace(" ", "-"), epochs, [watch])
        points[name] = watch.points
        steps[name] = samples if update == "sample" else len(data.train_dataloader())
    figures: dict[str, float] = {"samples": float(samples)}
    for name in WAYS:
        ends = _ends(points[name], samples)
        figures |= {f"{name}, steps an epoch": float(steps[name])}
        figures |= {f"{name}, after 1 epoch": ends[0], f"{name}, after all": ends[-1]}
    rows = [(name, steps[name], figures[f"{name}, after 1 epoch"], figures[f"{name}, after all"]) for name in WAYS]
    columns = ("update by", "steps an epoch", "loss after 1 epoch", f"after {epochs} epochs")
    show(folder, _chart(points, samples), f"breast-cancer, logistic loss, rate {RATE}", columns, rows)
    return figures


def _loss(head: tp.LogisticHead, X: Tensor, y: Tensor, net: tp.Perceptron) -> float:
    return float(head.loss(net(X), y))


def _ends(points: Points, samples: int) -> list[float]:
    return [loss for seen, loss in points if seen % samples == 0]


def _chart(points: dict[str, Points], samples: int) -> Figure:
    figure = picture()
    by_epoch, by_sample = figure.subplots(1, 2, sharey=True)
    for (name, path), (colour, line) in zip(points.items(), STYLES, strict=True):
        ends = _ends(path, samples)
        by_epoch.plot(range(1, len(ends) + 1), ends, color=colour, linestyle=line, label=name)
        seen, loss = zip(*path, strict=True)
        by_sample.plot(seen, loss, color=colour, linestyle=line)
    by_sample.axvline(samples, color="black", linewidth=0.8, linestyle=":")
    by_sample.annotate("1 epoch", (samples, 0.02), xycoords=("data", "axes fraction"), rotation=90, ha="right")
    by_epoch.set(xlabel="epochs", ylabel="logistic loss over all samples", yscale="log")
    by_epoch.set_yticks((0.05, 0.1, 0.2, 0.5))
    by_epoch.yaxis.set_major_formatter(ScalarFormatter())
    by_epoch.yaxis.set_minor_formatter("")
    by_sample.set(xlabel="samples seen", xscale="log")
    for axes in (by_epoch, by_sample):
        axes.grid(alpha=0.3, which="both")
    by_epoch.legend()
    figure.suptitle(f"More steps an epoch learn faster at the same rate ({RATE})")
    return figure


if __name__ == "__main__":
    command_line(main, FOLDER, __doc__)
