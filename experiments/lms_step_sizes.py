"""LMS and its step size
=====================

LMS by full batch: below the rate 2/λmax it finds the least-squares solution, above it the loss grows without end.

The loss ½·mean (y − w·x̃)² with x̃ = (x, 1) has the Hessian H = mean x̃·x̃ᵀ. A step takes w − w* to (I − η·H)·(w − w*),
which shrinks in every direction exactly when η < 2/λmax(H).
"""

from __future__ import annotations

from pathlib import Path

import torch
from _common import BLACK, BLUE, GREEN, ORANGE, RED, SKY, Watch, command_line, fit, picture, show
from matplotlib.figure import Figure
from torch import Tensor

import torchperc as tp

FOLDER = Path("runs/lms_step_sizes")
# by the share of the limit that the rate is
STYLES = {0.1: (SKY, "-"), 0.5: (BLUE, "--"), 0.95: (GREEN, "-."), 1.05: (ORANGE, "--"), 1.1: (RED, "-")}


def main(folder: Path = FOLDER, quick: bool = False) -> dict[str, float]:
    epochs, shares = (75, (0.5, 0.95, 1.05)) if quick else (120, tuple(STYLES))
    data = tp.lightning.TabularDataModule("moons", split=(1, 0, 0), scale="standard", dtype="float64")
    X, y = data.parts[0]
    lifted = torch.cat((X, X.new_ones(len(X), 1)), dim=1)
    best = torch.linalg.lstsq(lifted, y.double()[:, None]).solution[:, 0]
    lowest = float(tp.functional.lms_loss(lifted @ best, y))
    start = float(best.norm())  # the net starts at zero weights
    limit = 2 / float(torch.linalg.eigvalsh(lifted.T @ lifted / len(X)).max())
    figures, distances, rows = {"limit": limit, "start distance": start}, {}, []
    for share in shares:
        lit = tp.lightning.LitClassifier(tp.Perceptron(2, dtype=torch.float64), tp.LMSHead(), lr=share * limit)
        watch = Watch(lambda net: float((_lifted(net) - best).norm()))
        loss = fit(lit, data, folder / f"rate-{share}", epochs, [watch])["loss/train"][-1]
        distances[share] = [start, *(distance for _, distance in watch.points)]
        end = distances[share][-1]
        figures[f"{share} distance"] = end
        verdict = "converged" if end < 1e-3 else "diverged" if end > start else "on its way"
        rows.append((f"{share} · 2/λmax", f"{share * limit:.4f}", f"{loss:.4g}", f"{end:.1e}", verdict))
    columns = ("rate", "η", "last loss", "distance from least squares", "")
    title = f"LMS on moons, {epochs} epochs; 2/λmax = {limit:.4f}, least squares has loss {lowest:.4f}"
    show(folder, _chart(distances), title, columns, rows)
    return figures


def _lifted(net: tp.Perceptron) -> Tensor:
    return torch.cat((net.weight[0], net.bias)).detach()


def _chart(distances: dict[float, list[float]]) -> Figure:
    figure = picture()
    axes = figure.add_subplot()
    for share, values in distances.items():
        colour, line = STYLES[share]
        axes.plot(values, color=colour, linestyle=line, linewidth=2, label=f"η = {share} · 2/λmax")
    axes.axhline(next(iter(distances.values()))[0], color=BLACK, linewidth=0.8, linestyle=":", label="start")
    axes.set(xlabel="steps, one an epoch", ylabel="distance of the weights from least squares", yscale="log")
    axes.set_title("LMS converges below the rate 2/λmax and diverges above it")
    axes.grid(alpha=0.3)
    axes.legend()
    return figure


if __name__ == "__main__":
    command_line(main, FOLDER, __doc__)
