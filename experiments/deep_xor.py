"""XOR, its larger relatives and deeper nets
=========================================

XOR and its larger relatives, learned by nets with one to three hidden layers under a plain Lightning Trainer.

python experiments/deep_xor.py
"""

from __future__ import annotations

import argparse
import logging
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median

import pytorch_lightning as pl
import torch
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from pytorch_lightning.callbacks import EarlyStopping
from pytorch_lightning.loggers import TensorBoardLogger
from rich.console import Console
from rich.table import Table
from torch.utils.data import DataLoader, TensorDataset

import torchperc as tp

FOLDER = Path("runs/deep-xor")
SHAPES = {"n": (1,), "2n": (2,), "2n, 2n": (2, 2), "2n, 2n, 2n": (2, 2, 2)}  # hidden layers, in multiples of n
COLOURS = dict(zip(SHAPES, ("#D55E00", "#E69F00", "#009E73", "#0072B2"), strict=True))
LOW_LOSS = 0.04  # a wrong decision costs at least ln 2, so a mean loss below ln 2 / 2ⁿ = 0.043 (n = 4) has none


class Curves(pl.Callback):
    """Loss and error of each epoch. With one batch per epoch both are those before the epoch's step."""

    def __init__(self) -> None:
        self.loss: list[float] = []
        self.error: list[float] = []

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.loss.append(float(trainer.callback_metrics["loss/train"]))
        self.error.append(float(trainer.callback_metrics["error/train"]))


@dataclass
class Run:
    """One net, trained from one seed. ``solved_after`` epochs all its decisions are right and stay so, or never."""

    n: int
    shape: str
    layers: str
    seed: int
    model: tp.lightning.LitClassifier
    loss: list[float]
    solved_after: int | None


def train(n: int, shape: str, seed: int, folder: Path, epochs: int) -> Run:
    """Full-batch Adam on all 2ⁿ samples, until the loss is low or the epochs are over."""
    X, y = tp.data.gate(f"parity-{n}")  # XOR is parity-2
    hidden = tuple(n * times for times in SHAPES[shape])
    layers = "-".join(map(str, (n, *hidden, 1)))
    net = tp.MLP(n, hidden=hidden, activation="tanh", seed=seed)
    model = tp.lightning.LitClassifier(net, "logistic", optimizer=partial(torch.optim.Adam, lr=0.03))
    curves = Curves()
    low = EarlyStopping("loss/train", stopping_threshold=LOW_LOSS, patience=epochs, check_on_train_epoch_end=True)
    trainer = pl.Trainer(
        max_epochs=epochs,
        accelerator="cpu",
        callbacks=[curves, low],
        logger=TensorBoardLogger(folder, name=f"parity-{n}", version=f"{layers}-seed-{seed}", default_hp_metric=False),
        log_every_n_steps=1,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    for old in Path(trainer.logger.log_dir).glob("events.out.tfevents.*"):
        old.unlink()  # TensorBoard would draw this run over the last one
    trainer.fit(model, DataLoader(TensorDataset(X, y), batch_size=len(X)))
    wrong_at_the_end = bool((model.predict_step(X) != y).any())
    solved_after = None if wrong_at_the_end else clean_from(curves.error)
    return Run(n, shape, layers, seed, model, curves.loss, solved_after)


def clean_from(errors: Sequence[float]) -> int:
    """The number of epochs after which the error stays at 0, from the error before each epoch's step."""
    return max((epoch for epoch, error in enumerate(errors, start=1) if error > 0), default=0)


def table(runs: Sequence[Run]) -> tuple[Table, dict[str, float]]:
    """How many seeds solve each problem with each net, and the median of their epochs."""
    shown, figures = Table("problem", "net", "solved", "median epochs"), {}
    for problem, layers in dict.fromkeys((f"parity-{run.n}", run.layers) for run in runs):
        same = [run for run in runs if (f"parity-{run.n}", run.layers) == (problem, layers)]
        solved = [run.solved_after for run in same if run.solved_after is not None]
        figures[f"{problem} {layers} seeds"], figures[f"{problem} {layers} solved"] = len(same), len(solved)
        if solved:
            figures[f"{problem} {layers} epochs"] = median(solved)
        shown.add_row(problem, layers, f"{len(solved)} of {len(same)}", f"{median(solved):g}" if solved else "–")
    return shown, figures


def curves_picture(runs: Sequence[Run]) -> Figure:
    """The loss by epoch, a line for each net, a panel for each problem."""
    sizes, shapes = sorted({run.n for run in runs}), dict.fromkeys(run.shape for run in runs)
    figure = Figure(figsize=(2 + 3 * len(sizes), 4.5), dpi=100, layout="constrained")
    panels = figure.subplots(1, len(sizes), sharex=True, sharey=True, squeeze=False)[0]
    for axes, n in zip(panels, sizes, strict=True):
        for run in (run for run in runs if run.n == n):
            axes.plot(range(len(run.loss)), run.loss, color=COLOURS[run.shape], linewidth=1, alpha=0.8)
        axes.axhline(LOW_LOSS, color="black", linestyle=":", linewidth=1)
        axes.set(title="parity-2 (XOR)" if n == 2 else f"parity-{n}", xlabel="epoch", yscale="log")
        axes.grid(alpha=0.3)
    panels[0].set_ylabel("mean logistic loss")
    handles = [Line2D([], [], color=COLOURS[shape], label=f"hidden layers {shape}") for shape in shapes]
    handles.append(Line2D([], [], color="black", linestyle=":", label="training stops here"))
    figure.legend(handles=handles, loc="outside lower center", ncols=3, frameon=False)
    figure.suptitle("Loss on all 2ⁿ samples, one line per seed")
    return figure


def regions_picture(runs: Sequence[Run]) -> Figure:
    """What a net that solves XOR says of the plane, and one that does not, if there is one."""
    xor = [run for run in runs if run.n == 2]
    pair = [next((run for run in xor if (run.solved_after is None) is failed), None) for failed in (False, True)]
    chosen = [run for run in pair if run is not None]
    figure = Figure(figsize=(4.2 * len(chosen), 4.6), dpi=100, layout="constrained")
    handles: dict[str, object] = {}
    for axes, run in zip(figure.subplots(1, len(chosen), squeeze=False)[0], chosen, strict=True):
        solved = "not solved" if run.solved_after is None else f"solved after {run.solved_after} epochs"
        tp.plots.DecisionRegionDisplay.from_model(
            run.model, *tp.data.gate("XOR"), ax=axes, margin=False, names=("input 1", "input 2")
        )
        axes.set(title=f"{run.layers}, seed {run.seed}: {solved}", aspect="equal", xticks=(0, 1), yticks=(0, 1))
        handles |= dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
        axes.get_legend().remove()  # one below both pictures covers no sample
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=4, frameon=False)
    figure.suptitle("XOR: what the net decides for every point of the plane")
    return figure


def quiet() -> None:
    """Dozens of Trainers need not say each time that there is no GPU and no validation data."""
    logging.getLogger("pytorch_lightning").setLevel(logging.WARNING)
    warnings.filterwarnings("ignore", message="You defined a `validation_step` but have no `val_dataloader`")


def main(folder: Path = FOLDER, quick: bool = False) -> dict[str, float]:
    quiet()
    sizes, shapes, seeds, epochs = ((2,), list(SHAPES)[:3], 2, 60) if quick else ((2, 3, 4), list(SHAPES), 8, 250)
    runs = [train(n, shape, seed, folder, epochs) for n in sizes for shape in shapes for seed in range(seeds)]
    shown, figures = table(runs)
    console = Console()
    console.print(shown)
    for name, picture in (("curves", curves_picture(runs)), ("regions", regions_picture(runs))):
        picture.savefig(folder / f"{name}.png")
        console.print(f"picture: {folder / name}.png", soft_wrap=True)
    console.print(f"curves: tensorboard --logdir {folder}", soft_wrap=True)
    return figures


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--out", "--folder", dest="folder", type=Path, default=FOLDER, help="for event files and pictures (%(default)s)"
    )
    parser.add_argument("--quick", action="store_true", help="XOR only, two seeds, in a few seconds")
    main(**vars(parser.parse_args()))
