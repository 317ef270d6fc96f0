"""What learning classes and learning a quantity share: a module trained into a folder, notes about the table."""

from __future__ import annotations

import shlex
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from torchperc.lightning import TabularDataModule, make_trainer
from torchperc.lightning.trainer import LAST
from torchperc.reports.text import plural
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
            warnings.filterwarnings("ignore", "X is larger than memory and read in chunks")  # its order is good enough
            trainer.fit(module, data)
    except SystemExit as left:  # how Lightning ends a run that is interrupted, with exit code 1
        if left.code == 1 and trainer.interrupted:
            raise KeyboardInterrupt from None
        raise
    seconds = time.perf_counter() - begun
    trainer.save_checkpoint(folder / LAST)
    return Trained(trainer.current_epoch, seconds)


def table_notes(data: TabularDataModule) -> Iterator[str]:
    """What a reader of the figures should know about the table."""
    dropped = sum(shards.gathered(data.dataset.dropped))
    if dropped:
        yield f"{plural(dropped, 'row')} with missing values dropped"
    encoding, named = data.encoding, data.options.get("text", [])
    for position, column in enumerate(() if encoding is None else encoding.columns):
        if column.vocabulary is not None and not {column.name, str(position + 1)} & set(map(str, named)):
            what = f"column {column.name!r} reads as free text, so its {column.width:,} words and pairs of words count"
            other = shlex.quote(column.name)
            yield f"{what}; --ignore {other} leaves it out, --categories {other} makes each value a feature"
