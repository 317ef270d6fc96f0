"""Which weights to keep when labels are noisy
===========================================

Which weights to keep when labels are noisy: last, averaged, voted, pocket or best on validation data.

The rule never settles on such data, so its last weights are whatever the last mistake made of them. One run a seed is
enough to compare all five: each is a function of the same mistake log.
"""

from __future__ import annotations

from pathlib import Path

import torch
from _common import BLACK, BLUE, GREEN, ORANGE, PURPLE, RED, command_line, fit, picture, show
from matplotlib.figure import Figure
from torch import Tensor

import torchperc as tp

FOLDER = Path("runs/noisy_selection")
NOISE = 0.1
FIRST = 1000  # width and scaling were chosen while looking at seeds 0 to 19; the figures are of seeds nobody had seen
COLOURS = {"last": RED, "averaged": BLUE, "voted": GREEN, "pocket": ORANGE, "best-validation": PURPLE}


def main(folder: Path = FOLDER, quick: bool = False) -> dict[str, float]:
    seeds = 4 if quick else 12
    errors = torch.stack([_errors(folder / f"seed-{seed}", seed) for seed in range(FIRST, FIRST + seeds)])
    means, spreads = errors.mean(0).tolist(), errors.std(0).tolist()
    figures = {f"{name} mean": mean for name, mean in zip(COLOURS, means, strict=True)}
    figures |= {f"{name} spread": spread for name, spread in zip(COLOURS, spreads, strict=True)}
    last, averaged = errors[:, 0], errors[:, 1]
    figures |= {"averaged better": float((averaged < last).sum()), "seeds": float(seeds)}
    rows = [
        (name, f"{mean:.2f}", f"{spread:.2f}", f"{int((errors[:, k] < last).sum())} of {seeds}")
        for k, (name, mean, spread) in enumerate(zip(COLOURS, means, spreads, strict=True))
    ]
    title = f"test error in % over {seeds} seeds, {100 * NOISE:.0f} % of the labels wrong"
    show(folder, _chart(errors), title, ("weights", "mean", "standard deviation", "better than last"), rows)
    return figures


def _errors(folder: Path, seed: int) -> Tensor:
    """Test error in % of each selection, from one run."""
    options = {"samples": 1000, "features": 20, "noise": NOISE, "seed": seed}
    data = tp.lightning.TabularDataModule("noisy-blobs", options, split=(0.3, 0.2, 0.5), scale="standard", seed=seed)
    lit = tp.lightning.LitRule(tp.Perceptron(data.width), order="shuffled", seed=seed)
    fit(lit, data, folder, epochs=10)
    log, (_, validation, (X, y)) = lit.result.log, data.parts
    models = (log.last(), log.averaged(), log.voted(), log.pocket(), log.best_validation(*validation))
    return torch.stack([100 * (model.predict(X) != y).double().mean() for model in models])


def _chart(errors: Tensor) -> Figure:
    figure = picture()
    axes = figure.add_subplot()
    spread = torch.linspace(-0.2, 0.2, len(errors))
    for k, (name, colour) in enumerate(COLOURS.items()):
        axes.scatter(k + spread, errors[:, k], color=colour, s=25, alpha=0.7)
        mean, deviation = float(errors[:, k].mean()), float(errors[:, k].std())
        label = "mean ± standard deviation" if name == "last" else None
        axes.errorbar(k + 0.32, mean, deviation, color=BLACK, marker="D", markersize=5, capsize=4, label=label)
    axes.axhline(100 * NOISE, color=BLACK, linestyle="--", label="share of wrong labels in the data")
    axes.set_xticks(range(len(COLOURS)), COLOURS)
    axes.set(xlabel="weights kept", ylabel="test error (%)", ylim=(0, None))
    axes.set_title(f"Noisy labels: what to keep of one run ({len(errors)} seeds, a dot each)")
    axes.grid(axis="y", alpha=0.3)
    axes.legend(loc="upper right")
    return figure


if __name__ == "__main__":
    command_line(main, FOLDER, __doc__)
