"""Networks built by the rule
==========================

Networks built by the rule: the units that tower, pyramid, upstart and tiling need, and MADALINE beside them.

XOR, parity, random Boolean functions of six inputs (another one for each seed) and two spirals, without a gradient. The
first four methods end without an error by their theorems; what differs is the number of units. For parity of n inputs,
Gallant's tower (1990) can do with ⌊n/2⌋ + 1, Frean's upstart (1990) with n, Mézard & Nadal's tiling (1989) with n + 1:
the column "known". Inputs are −1 and +1. MADALINE has n hidden units, and no theorem.
"""

from __future__ import annotations

import math
from collections import defaultdict
from pathlib import Path
from statistics import mean

import torch
from _common import BLUE, GREEN, ORANGE, PURPLE, RED, command_line, picture, save, show
from pytorch_lightning.loggers import TensorBoardLogger
from torch import Tensor

import torchperc as tp

FOLDER = Path("runs/built_networks")
COLOURS = {"tower": BLUE, "pyramid": GREEN, "upstart": RED, "tiling": ORANGE, "madaline": PURPLE}
KNOWN = {"tower": lambda n: n // 2 + 1, "upstart": lambda n: n, "tiling": lambda n: n + 1}  # to suffice for parity n
Samples = tuple[Tensor, Tensor]


def main(folder: Path = FOLDER, quick: bool = False) -> dict[str, float]:
    seeds, widest = (2, 3) if quick else (50, 8)
    results, figures = defaultdict(list), {}
    for name in [*(f"parity-{n}" for n in range(2, widest + 1)), "random-6", "spirals"]:
        for method in COLOURS if name in ("parity-2", "parity-3", "parity-4") else list(COLOURS)[:4]:
            for seed in range(seeds):
                results[name, method].append(built(name, method, seed, folder, quick))
    rows = []
    for (name, method), runs in results.items():
        units, solved = [run.net.units for run in runs], sum(run.errors == 0 for run in runs)
        n = int(name[-1]) if name.startswith("parity") else 0
        known = KNOWN[method](n) if n and method in KNOWN else "–"
        made = mean(sum(step.constructed for step in run.steps) for run in runs)
        updates = mean(run.updates for run in runs)
        figures |= {f"{name} {method} units": mean(units), f"{name} {method} solved": solved / seeds}
        figures |= {f"{name} {method} constructed": made, f"{name} {method} updates": updates}
        if n and method in KNOWN:
            figures[f"{name} {method} as known"] = sum(count == known for count in units) / seeds
        spread = f"{mean(units):.1f}, {min(units)}–{max(units)}"
        rows.append((name, method, f"{solved} of {seeds}", spread, str(known), made, f"{updates:,.0f}"))
    columns = ("samples", "method", "solved", "units", "known", "constructed", "updates")
    save_pictures(folder, results, quick)
    show(folder, chart(results, widest), f"units (mean, least–most) by method, {seeds} seeds", columns, rows)
    return {name: float(value) for name, value in figures.items()}


def built(name: str, method: str, seed: int, folder: Path, quick: bool) -> tp.rules.BuildResult:
    """Build one net; the first seed of each method has an event file."""
    X, y = samples(name, seed, quick)
    hidden = X.shape[1] if method == "madaline" else None
    made = tp.rules.build(X, y, method, hidden=hidden, max_epochs=30 if name == "spirals" else 100, seed=seed)
    if seed == 0:
        for old in (folder / name / method).glob("events.out.tfevents.*"):
            old.unlink()  # TensorBoard would draw this run over the last one
        log = TensorBoardLogger(folder, name=name, version=method, default_hp_metric=False)
        for number, step in enumerate(made.steps, 1):
            log.log_metrics({"error/train": step.errors / len(y)}, number)
        log.finalize("success")
    return made


def samples(name: str, seed: int, quick: bool) -> Samples:
    """Samples and labels −1/+1 by name."""
    if name == "spirals":
        return spirals(30 if quick else 97)
    X, y = tp.data.gate(f"parity-{name[-1]}", dtype=torch.float64)
    if name.startswith("random"):
        y = 2 * torch.randint(2, (len(X),), generator=torch.Generator().manual_seed(seed)) - 1
    return 2 * X - 1, y


def spirals(count: int) -> Samples:
    """Two spirals that wind around one another three times, (2 · count, 2)."""
    turn = torch.arange(count, dtype=torch.float64) / (count - 1)
    angle, radius = 6 * math.pi * turn, 1 - 0.92 * turn
    arm = torch.stack((radius * angle.sin(), radius * angle.cos()), 1)
    return torch.cat((arm, -arm)), torch.tensor([1] * count + [-1] * count)


def chart(results: dict[tuple[str, str], list[tp.rules.BuildResult]], widest: int) -> object:
    """Units by the number of inputs of parity, and errors after each unit on the spirals."""
    figure = picture()
    left, right = figure.subplots(1, 2)
    sizes = range(2, widest + 1)
    for method, colour in list(COLOURS.items())[:4]:
        counts = [[run.net.units for run in results[f"parity-{n}", method]] for n in sizes]
        left.plot(sizes, list(map(mean, counts)), "o-", color=colour, label=method)
        left.fill_between(sizes, list(map(min, counts)), list(map(max, counts)), color=colour, alpha=0.15, linewidth=0)
        errors = [step.errors for step in results["spirals", method][0].steps]
        right.plot(range(1, len(errors) + 1), errors, color=colour, label=method)
    left.set(title="Parity", xlabel="inputs n", ylabel="units: mean, least and most of all seeds", xticks=sizes)
    right.set(title="Two spirals, first seed", xlabel="units so far", ylabel="samples wrong")
    for axes in (left, right):
        axes.grid(alpha=0.3)
        axes.legend()
    return figure


def save_pictures(folder: Path, results: dict[tuple[str, str], list[tp.rules.BuildResult]], quick: bool) -> None:
    """The plane after each unit: XOR by upstart, the spirals by pyramid."""
    save(
        folder,
        xor=tp.plots.PathDisplay.from_build(results["parity-2", "upstart"][0], *samples("parity-2", 0, quick)).figure_,
        spirals=tp.plots.PathDisplay.from_build(
            results["spirals", "pyramid"][0], *samples("spirals", 0, quick)
        ).figure_,
    )


if __name__ == "__main__":
    command_line(main, FOLDER, __doc__)
