"""Every gate by rule and by gradient
==================================

Every gate by rule and by gradient: a line separates four of them; XOR, XNOR and parity defeat both ways.

The rule says so itself: it ends SEPARATED, or the weights come back and it is CYCLING. Gradient descent on the logistic
loss just settles, on XOR at the zero weights where it started.
"""

from __future__ import annotations

from pathlib import Path

import torch
from _common import BLACK, BLUE, ORANGE, RED, command_line, fit, picture, show
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from torch import Tensor

import torchperc as tp

GATES = ("AND", "OR", "NAND", "NOR", "XOR", "XNOR", "parity-3")
FOLDER = Path("runs/gates")
Lit = tp.lightning.LitRule | tp.lightning.LitClassifier


def main(folder: Path = FOLDER, quick: bool = False) -> dict[str, float]:
    figures: dict[str, float] = {}
    rows, learners = [], {}
    for gate in GATES:
        X, y = tp.data.gate(gate)
        rule = tp.lightning.LitRule(tp.Perceptron(X.shape[1]))
        gradient = tp.lightning.LitClassifier(tp.Perceptron(X.shape[1]), tp.LogisticHead(), lr=4.0)
        for name, lit, epochs in (("rule", rule, 100), ("gradient", gradient, 10 if quick else 30)):
            fit(lit, tp.lightning.TabularDataModule(gate), folder / f"{gate}-{name}", epochs)
            figures[f"{gate} wrong by {name}"] = float((lit.predict_step(X) != y).sum())
        figures[f"{gate} mistakes"] = float(rule.result.mistakes)
        figures[f"{gate} separated"] = float(rule.result.verdict is tp.Verdict.SEPARATED)
        wrong = [f"{figures[f'{gate} wrong by {name}']:.0f} of {len(y)}" for name in ("rule", "gradient")]
        learned = "yes" if figures[f"{gate} separated"] else "no"
        rows.append((gate, learned, rule.result.verdict.name, rule.result.mistakes, *wrong))
        learners[gate] = rule, gradient
    columns = ("gate", "learned", "verdict of the rule", "mistakes made", "wrong by rule", "wrong by gradient")
    show(folder, _boundaries(learners), "gates by rule and by gradient", columns, rows)
    return figures


def _boundaries(learners: dict[str, tuple[Lit, Lit]]) -> Figure:
    figure = picture()
    panels = figure.subplots(2, 3, sharex=True, sharey=True).flat
    for axes, gate in zip(panels, GATES[:6], strict=True):  # parity-3 has no plane to be drawn in
        X, y = tp.data.gate(gate)
        rule, gradient = learners[gate]
        lines = [_line(axes, rule.net, BLACK, "-"), _line(axes, gradient.net, RED, "--")]
        for label, colour, marker in ((-1, BLUE, "o"), (1, ORANGE, "s")):
            axes.scatter(*X[y == label].T, color=colour, marker=marker, s=70, zorder=3, edgecolor="white")
        axes.set(title=gate if any(lines) else f"{gate}: not learned", xlim=(-0.5, 1.5), ylim=(-0.5, 1.5))
        axes.set(xticks=(0, 1), yticks=(0, 1), aspect="equal", xlabel="input 1", ylabel="input 2")
        axes.label_outer()
        if not any(lines):
            axes.text(0.5, 0.5, "no line:\nzero weights", ha="center", va="center")
    figure.suptitle("A line separates four gates; XOR and XNOR have none")
    handles = [
        Line2D([], [], color=BLUE, marker="o", linestyle="", label="−1"),
        Line2D([], [], color=ORANGE, marker="s", linestyle="", label="+1"),
        Line2D([], [], color=BLACK, label="rule"),
        Line2D([], [], color=RED, linestyle="--", label="gradient (logistic)"),
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=4)
    return figure


@torch.no_grad()
def _line(axes: Axes, net: tp.Perceptron, colour: str, style: str) -> bool:
    """Draw where the score is 0; nothing if the weights are zero."""
    if not net.weight.any():
        return False
    ends = torch.tensor([-0.5, 1.5])
    grid: Tensor = net(torch.cartesian_prod(ends, ends)).reshape(2, 2).T
    axes.contour(ends, ends, grid, levels=[0.0], colors=colour, linestyles=style)
    return True


if __name__ == "__main__":
    command_line(main, FOLDER, __doc__)
