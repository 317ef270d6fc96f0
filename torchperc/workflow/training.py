"""One module trained into a folder, as every candidate of a comparison is."""

from __future__ import annotations

import time
import warnings
from pathlib import Path
from typing import Any, NamedTuple

from torchperc.lightning import TabularDataModule, make_trainer
from torchperc.lightning.trainer import LAST
from torchperc.samples import shards


class Trained(NamedTuple):
    """How long a training took."""

    epochs: int
    seconds: float


def train_into(folder: Path, module: Any, data: TabularDataModule, epochs: int) -> Trained:
    """Train a module for so many epochs at most; event files and a checkpoint are in the folder."""
    quiet: dict[str, Any] = {"enable_checkpointing": False, "enable_progress_bar": False}
    if shards.here()[1] > 1:  # by gloo, which has no use for a GPU
        quiet |= {"accelerator": "cpu"}
    trainer = make_trainer(folder, epochs, picture_every=max(1, epochs // 4), **quiet)
    begun = time.perf_counter()
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "X is read in chunks, so order='shuffled'")  # which is good enough
            trainer.fit(module, data)
    except SystemExit as left:  # how Lightning ends a run that is interrupted, with exit code 1
        if left.code == 1 and trainer.interrupted:
            raise KeyboardInterrupt from None
        raise
    seconds = time.perf_counter() - begun
    trainer.save_checkpoint(folder / LAST)
    return Trained(trainer.current_epoch, seconds)
