"""Eight rules on noisy labels
===========================

The family of mistake-driven rules on one noisy set: updates by epoch and test error of the last and the averaged weights.

A rule that asks for a margin makes more updates than the perceptron. On noisy labels those that limit an update
(PA-I, PA-II) or average end with a smaller error than those that trust every label (PA, ROMMA).
"""

from __future__ import annotations

from pathlib import Path

import torch
from _common import BLACK, BLUE, GREEN, ORANGE, PURPLE, RED, SKY, command_line, picture, show
from matplotlib.figure import Figure

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
    options = {"samples": 2 * count, "features": 50, "noise": 0.1, "seed": 0}
    data = tp.lightning.TabularDataModule(
        "noisy-blobs", options, split=(0.5, 0, 0.5), scale="standard", dtype="float64"
    )
    (X, y), _, test = data.parts
    curves: dict[str, list[list[float]]] = {}
    for name, (rule, _) in RULES.items():
        net = tp.Perceptron(data.width, dtype=torch.float64)
        log = tp.RuleTrainer(epochs, order="shuffled", rule=rule).fit(net, X, y).log
        made, errors = log.mistakes_by_epoch(), 100 * log.errors(*test) / len(test[1])
        averaged = 100 * float((log.averaged().predict(test[0]) != test[1]).double().mean())
        curves[name] = [made.tolist(), errors[made.cumsum(0)].tolist(), [averaged]]
    rows = [
        (n, *(f"{v:.0f}" for v in (sum(made), made[-1])), f"{e[-1]:.1f}", f"{a[0]:.1f}")
        for n, (made, e, a) in curves.items()
    ]
    title = f"{epochs} epochs of {count} samples, 10 % of the labels wrong; test error in %"
    show(folder, _chart(curves), title, ("rule", "updates", "in the last epoch", "error", "error, averaged"), rows)
    figures = {f"{name} updates": float(sum(made)) for name, (made, _, _) in curves.items()}
    figures |= {f"{name} error": errors[-1] for name, (_, errors, _) in curves.items()}
    return figures | {f"{name} averaged": averaged[0] for name, (_, _, averaged) in curves.items()}


def _chart(curves: dict[str, list[list[float]]]) -> Figure:
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
