"""torchperc's parts in a LightningModule of your own: its nets and losses, your steps, your optimizer.

    python experiments/own_module.py

A line through two moons against a net with two hidden layers. Everything else is plain Lightning.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

import pytorch_lightning as pl
import torch
from pytorch_lightning.loggers import TensorBoardLogger
from rich.console import Console
from rich.table import Table
from sklearn.datasets import make_moons
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import torchperc as tp

FOLDER = Path("runs/own-module")


class OwnModule(pl.LightningModule):
    """Any net that gives one score per sample, any loss of scores and labels −1/+1."""

    def __init__(self, net: nn.Module, loss: Callable[[Tensor, Tensor], Tensor], lr: float = 0.01) -> None:
        super().__init__()
        self.net, self.loss, self.lr = net, loss, lr
        self.error = tp.ZeroOneLoss()  # its mean is the fraction of wrong decisions

    def training_step(self, batch: list[Tensor], batch_idx: int) -> Tensor:
        x, y = batch
        loss = self.loss(self.net(x), y)
        self.log("loss/train", loss, on_step=False, on_epoch=True)
        return loss

    def validation_step(self, batch: list[Tensor], batch_idx: int) -> None:
        x, y = batch
        scores = self.net(x)
        self.log_dict({"loss/val": self.loss(scores, y), "error/val": self.error(scores, y)})

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=self.lr)


def loaders() -> tuple[DataLoader, DataLoader]:
    """Two noisy moons, 400 samples for training and 200 for validation."""
    X, y = make_moons(600, noise=0.2, random_state=0)  # in random order already
    samples, labels = torch.tensor(X).float(), torch.tensor(2 * y - 1)
    train, val = (TensorDataset(samples[part], labels[part]) for part in (slice(400), slice(400, None)))
    return DataLoader(train, batch_size=50, shuffle=True), DataLoader(val, batch_size=200)


def validation_error(name: str, module: OwnModule, folder: Path, epochs: int) -> float:
    """Train; the error on the validation samples after the last epoch."""
    pl.seed_everything(0)  # before each run, so that both see the same batches
    trainer = pl.Trainer(
        max_epochs=epochs,
        accelerator="cpu",
        log_every_n_steps=1,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        logger=TensorBoardLogger(folder, name=name, default_hp_metric=False),
    )
    trainer.fit(module, *loaders())
    return float(trainer.callback_metrics["error/val"])


def main(folder: Path = FOLDER, epochs: int = 60, quick: bool = False) -> dict[str, float]:
    modules = {
        "one line, perceptron loss": OwnModule(tp.Perceptron(2), tp.PerceptronLoss()),
        "2-16-16-1, logistic loss": OwnModule(tp.MLP(2, hidden=(16, 16), seed=0), tp.LogisticHead().loss),
    }
    errors = {}
    table = Table("net", "validation error")
    for name, module in modules.items():
        errors[name] = validation_error(name.split(",")[0], module, folder, min(epochs, 10) if quick else epochs)
        table.add_row(name, f"{100 * errors[name]:.1f} %")
    console = Console()
    console.print(table)
    console.print(f"curves: tensorboard --logdir {folder}", soft_wrap=True)
    return errors


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--out", "--folder", dest="folder", type=Path, default=FOLDER, help="for event files (%(default)s)"
    )
    parser.add_argument("--epochs", type=int, default=60, help="(%(default)s)")
    parser.add_argument("--quick", action="store_true", help="at most 10 epochs")
    main(**vars(parser.parse_args()))
