"""What the experiments share: a run with its curves, the picture, the table and the command line."""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from matplotlib.figure import Figure
from matplotlib.image import imread
from rich.console import Console
from rich.table import Table
from torch import Tensor
from torch.utils.tensorboard import SummaryWriter

import torchperc as tp

# Okabe and Ito's palette, told apart by every kind of eye
BLUE, ORANGE, GREEN, RED, PURPLE, SKY, BLACK = (
    "#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#000000",
)  # fmt: skip


class Curves(pl.Callback):
    """Every metric of every epoch, kept for the picture."""

    def __init__(self) -> None:
        self.values: defaultdict[str, list[float]] = defaultdict(list)

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        for name, value in trainer.callback_metrics.items():
            self.values[name].append(float(value))


class Watch(pl.Callback):
    """A figure of the net after every batch, with the number of samples seen by then.

    Logged metrics are those of an epoch; some experiments need more.
    """

    def __init__(self, look: Callable[[Any], float]) -> None:
        self.look, self.seen = look, 0
        self.points: list[tuple[int, float]] = []

    @torch.no_grad()
    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: tuple[Tensor, Tensor], at: int
    ) -> None:
        self.seen += len(batch[1])
        self.points.append((self.seen, self.look(pl_module.net)))


def fit(
    lit: pl.LightningModule,
    data: pl.LightningDataModule | tuple[Iterable[Any], Iterable[Any]],
    folder: Path,
    epochs: int,
    callbacks: Sequence[pl.Callback] = (),
) -> dict[str, list[float]]:
    """Train under the Trainer, with event files in the folder; return the curves by their names.

    ``data`` is a data module, or a loader for training and one for validation.
    """
    for old in (*folder.glob("events.out.tfevents.*"), *folder.glob("*.ckpt")):
        old.unlink()  # TensorBoard would draw this run over the last one
    curves = Curves()
    trainer = tp.lightning.make_trainer(
        folder,
        epochs,
        callbacks=[*callbacks, curves],
        picture_every=0,  # the experiment draws its own
        accelerator="cpu",  # the data are small, and sums come out the same everywhere
        enable_progress_bar=False,
    )
    trainer.fit(lit, *(data if isinstance(data, tuple) else (data,)))
    return dict(curves.values)


def picture() -> Figure:
    return Figure(figsize=(8, 5), dpi=100, layout="constrained")


def by_rule(
    trainer: tp.RuleTrainer, net: Any, train: tuple[Any, Any], test: tuple[Any, Any]
) -> tuple[Any, list[float]]:
    """Learn sequences by rule; return the result, and the wrong tags of the test set in % after each epoch."""
    run, errors, tags = trainer.start(net, *train), [], tp.sequences.flat_tags(test[1], test[0], net.tags)
    while run.verdict is None:
        run.epoch()
        run.write_to(net)
        wrong = torch.cat(net.predict(test[0])).numpy() != tags
        errors.append(100 * float(wrong.mean()))
    return run.result(), errors


def show(folder: Path, figure: Figure, title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print the table; write the picture as a PNG, and into an event file beside the runs."""
    table = Table(*columns, title=title, title_justify="left")
    for row in rows:
        table.add_row(*(f"{cell:.4g}" if isinstance(cell, float) else str(cell) for cell in row))
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{folder.name}.png"
    figure.savefig(path)
    for old in folder.glob("events.out.tfevents.*"):
        old.unlink()
    with SummaryWriter(str(folder)) as board:
        board.add_image(folder.name, imread(path)[..., :3], dataformats="HWC")
    console = Console()
    console.print(table)
    console.print(f"picture: {path}", soft_wrap=True)


def save(folder: Path, **pictures: Figure) -> None:
    """Write pictures beside that of the experiment, and say where they are."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, figure in pictures.items():
        figure.savefig(folder / f"{name}.png")
        Console().print(f"picture: {folder / name}.png", soft_wrap=True)


def command_line(
    main: Callable[..., dict[str, float]], folder: Path, about: str | None, source: str | None = None
) -> None:
    """Call an experiment with its folder and whether it is to be quick; ``source`` says what data it may be given."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--out", "--folder", dest="folder", type=Path, default=folder, help="for event files and picture (%(default)s)"
    )
    parser.add_argument("--quick", action="store_true", help="less of everything, in a few seconds")
    if source is not None:
        parser.add_argument("source", nargs="?", help=source)
    options = parser.parse_args()
    given = () if source is None else (options.source,)
    try:
        main(options.folder, options.quick, *given)
    except (OSError, ValueError) as error:
        if not given:
            raise
        parser.error(str(error))
