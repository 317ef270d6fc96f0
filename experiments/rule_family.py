"""Eight rules on noisy labels
===========================

The family of mistake-driven rules on one noisy set: updates by epoch, and test error of the last and averaged weights.

A rule that asks for a margin makes more updates than the perceptron. On noisy labels, those that limit an update (PA-I,
PA-II) end with a smaller error than those that trust every label (PA, ROMMA); averages do so for all but ROMMA.
"""

from __future__ import annotations

from pathlib import Path

import torch
from _common import BLACK, BLUE, GREEN, ORANGE, PURPLE, RED, SKY, command_line, picture, show
from matplotlib.figure import Figure
from torch.utils.tensorboard import SummaryWriter

import torchperc as tp

FOLDER = Path("runs/rule_family")
GREY = "#999999"
RULES = {
    "perceptron": (tp.rules.PerceptronRule(), BLACK),
    "margin": (tp.rules.PerceptronRule(margin=20.0), GREY),
    "PA": (tp.rules.PassiveAggressive(variant=None), RED),
    "PA-I": (tp.rules.PassiveAggressive(C=0.01), BLUE),
    "PA-II": (tp.rules.PassiveAggressive(C=0.01, variant="II"), SKY),
    "ROMMA": (tp.rules.ROMMA(), PURPLE),
    "aggressive ROMMA": (tp.rules.AggressiveROMMA(), ORANGE),
    "ALMA": (tp.rules.ALMA(alpha=0.9), GREEN),
}


def main(folder: Path = FOLDER, quick: bool = False) -> dict[str, float]:
    epochs, count = (5, 300) if quick else (20, 500)
    curves = learned(epochs, count)
    for name, (made, errors, _) in curves.items():
        with SummaryWriter(folder / name.replace(" ", "-")) as writer:
            for epoch, values in enumerate(zip(made, errors, strict=True), 1):
                for tag, value in zip(("mistakes", "error/test"), values, strict=True):
                    writer.add_scalar(tag, value, epoch)
    rows = [
        (name, str(sum(made)), str(made[-1]), f"{errors[-1]:.1f}", f"{averaged:.1f}")
        for name, (made, errors, averaged) in curves.items()
    ]
    title = f"{epochs} epochs of {count} samples, 10 % of the labels wrong; test error in %"
    show(folder, chart(curves), title, ("rule", "updates", "in the last epoch", "error", "error, averaged"), rows)
    figures = {f"{name} updates": float(sum(made)) for name, (made, _, _) in curves.items()}
    figures |= {f"{name} error": errors[-1] for name, (_, errors, _) in curves.items()}
    return figures | {f"{name} averaged": averaged for name, (_, _, averaged) in curves.items()}


def learned(epochs: int, count: int) -> dict[str, tuple[list[int], list[float], float]]:
    """Updates and test error in % after each epoch, and the error of the averaged weights, of every rule."""
    options = {"samples": 2 * count, "features": 50, "noise": 0.1, "seed": 0}
    data = tp.lightning.TabularDataModule(
        "noisy-blobs", options, split=(0.5, 0, 0.5), scale="standard", dtype="float64"
    )
    (X, y), _, test = data.parts
    curves = {}
    for name, (rule, _) in RULES.items():
        log = tp.RuleTrainer(epochs, order="shuffled", rule=rule).fit(tp.Perceptron(50, dtype=torch.float64), X, y).log
        made, errors = log.mistakes_by_epoch(), 100 * log.errors(*test) / len(test[1])
        averaged = 100 * float((log.averaged().predict(test[0]) != test[1]).double().mean())
        curves[name] = (made.tolist(), errors[made.cumsum(0)].tolist(), averaged)
    return curves


def chart(curves: dict[str, tuple[list[int], list[float], float]]) -> Figure:
    figure = picture()
    left, right = figure.subplots(1, 2)
    for name, (made, errors, _) in curves.items():
        for axes, values in ((left, made), (right, errors)):
            axes.plot(range(1, len(made) + 1), values, color=RULES[name][1], linewidth=2, label=name)
    left.set(xlabel="epoch", ylabel="updates")
    right.set(xlabel="epoch", ylabel="test error (%)", ylim=(0, None))
    for axes in (left, right):
        axes.grid(alpha=0.3)
    figure.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=4)
    figure.suptitle("Eight rules on one noisy set")
    return figure


if __name__ == "__main__":
    command_line(main, FOLDER, __doc__)
