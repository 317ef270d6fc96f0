"""Decision regions, the path of a run and its bracket
===================================================

The pictures of the README: decision regions, the path of a run, and mistakes against theory.

Iris on two features, with the mistakes that remain ringed; AND, the boundary after each of its mistakes, as small
multiples and moving; and the same run against what theory says of it: at most (R/γ*)² mistakes, and a bracket that
closes around the largest margin γ*.
"""

from __future__ import annotations

from pathlib import Path

import torch
from _common import command_line
from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table

import torchperc as tp

FOLDER = Path("runs/pictures")


def main(folder: Path = FOLDER, quick: bool = False) -> dict[str, float]:
    folder.mkdir(parents=True, exist_ok=True)
    iris, wrong = _iris()
    X, y = tp.data.gate("AND")
    result = tp.RuleTrainer().fit(tp.Perceptron(2), X, y)
    best, bound = tp.theory.max_margin(X, y, regularize_bias=True), tp.theory.mistake_bound(X, y)
    path = tp.plots.PathDisplay.from_log(result.log, names=("x₁", "x₂"))
    bracket = tp.plots.BracketDisplay.from_log(result.log, gamma=best.margin)
    pictures: dict[str, Figure] = {
        "regions": iris.figure_,
        "path": path.figure_,
        "mistakes": tp.plots.LearningCurveDisplay.from_result(result, bound=bound).figure_,
        "bracket": bracket.figure_,
    }
    for name, figure in pictures.items():
        figure.savefig(folder / f"{name}.png")
    path.animate(folder / "path.gif", max_frames=3 if quick else 200)
    lower, upper = (float(line.get_ydata()[-1]) for line in (bracket.lower_, bracket.upper_))
    figures = {
        "iris, samples": float(len(iris.y)),
        "iris, wrong": wrong,
        "AND, mistakes": float(result.mistakes),
        "AND, bound": bound,
        "AND, lower bound of γ*": lower,
        "AND, γ*": best.margin,
        "AND, upper bound of γ*": upper,
    }
    _show(folder, figures)
    return figures


def _iris() -> tuple[tp.plots.DecisionRegionDisplay, float]:
    """Setosa against the rest by its sepals, which overlap a little for averaged weights."""
    data = tp.data.load("iris", positive="setosa")
    X, net = data.X[:, :2], tp.Perceptron(2, dtype=torch.float64)
    tp.RuleTrainer(max_epochs=20, order="shuffled", select="averaged").fit(net, X, data.y)
    display = tp.plots.DecisionRegionDisplay.from_model(
        net, X, data.y, names=data.names[:2], labels=data.labels, title="Iris by its sepals, averaged weights"
    )
    return display, float((net.predict(X) != data.y).sum())


def _show(folder: Path, figures: dict[str, float]) -> None:
    table = Table("figure", "value", title="what the pictures show", title_justify="left")
    for name, value in figures.items():
        table.add_row(name, f"{value:.4g}")
    console = Console()
    console.print(table)
    for path in sorted((*folder.glob("*.png"), *folder.glob("*.gif"))):
        console.print(f"picture: {path}", soft_wrap=True)


if __name__ == "__main__":
    command_line(main, FOLDER, __doc__)
