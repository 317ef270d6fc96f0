"""A Trainer with torchperc's callbacks in one call."""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torchperc._checks import require_packages
from torchperc.lightning._pl import pl
from torchperc.lightning.callbacks import RandomState, SaveOnSignal, SetAside, StopOnDivergence
from torchperc.lightning.checkpoints import LAST, SafeCheckpointIO
from torchperc.lightning.tensorboard import Board

_CHATTER = (
    r".*isinstance\(treespec, LeafSpec\).*",
    r".*You defined a `validation_step` but have no `val_dataloader`.*",
    r".*The number of training batches .* is smaller than the logging interval.*",
    r".*Checkpoint directory .* exists and is not empty.*",
    r".*does not have many workers.*",
    r".*GPU available but not used.*",
    r"The dirpath has changed from.*",
    r"You called `self.log\(.*logger=True\)` but have no logger configured.*",
    r"LightningCLI.s args parameter is intended.*",
    r"Total length of `list` across ranks is zero.*",  # no validation set
)


def make_trainer(
    folder: str | Path,
    max_epochs: int,
    *,
    callbacks: Sequence[pl.Callback] = (),
    picture_every: int = 10,
    **options: Any,
) -> pl.Trainer:
    """Return a Trainer that logs curves per epoch, saves after each, and stops on divergence and on signals.

    Args:
        folder: of the run: event files for TensorBoard, and ``last.ckpt``, from which ``trainer.fit(ckpt_path=…)``
            resumes exactly: from the end of an epoch with any loader that draws by torch's global generator; from
            within one, after a signal, with a loader that keeps its position, as :class:`SliceLoader` does. An earlier
            run in the folder is moved to ``version_0``, ``version_1``, …, unless it is resumed.
        max_epochs: as for ``pl.Trainer``.
        callbacks: more of them.
        picture_every: epochs between pictures of the boundary, see :class:`Board`.
        options: for ``pl.Trainer``; ``enable_checkpointing=False`` saves nothing. Under ``torchrun`` the number of
            devices and nodes is that of its processes.

    Example:
        >>> import tempfile, torchperc as tp
        >>> trainer = make_trainer(tempfile.mkdtemp(), 20, enable_progress_bar=False)
        >>> lit = tp.lightning.LitRule(tp.Perceptron(2))
        >>> trainer.fit(lit, tp.lightning.TabularDataModule("AND"))
        >>> lit.result.verdict.name, lit.result.mistakes
        ('SEPARATED', 18)
    """
    return trainer_in(folder, max_epochs, [*callbacks, SetAside(folder)], picture_every, **options)


def trainer_in(
    folder: str | Path, max_epochs: int, callbacks: Sequence[pl.Callback], picture_every: int, **options: Any
) -> pl.Trainer:
    """Return the Trainer of :func:`make_trainer`, for a folder whose earlier runs the caller takes care of."""
    quiet()
    folder = Path(folder)
    if "logger" not in options:
        require_packages("make_trainer", "tensorboard")
        options["logger"] = pl.loggers.TensorBoardLogger(folder.parent, folder.name, "", default_hp_metric=False)
    own: list[pl.Callback] = [Board(picture_every), StopOnDivergence(), RandomState()]
    if options.get("enable_checkpointing", True):
        last: dict[str, Any] = {"filename": Path(LAST).stem, "every_n_epochs": 1, "save_on_train_epoch_end": True}
        after_epoch = pl.callbacks.ModelCheckpoint(folder, **last, enable_version_counter=False)
        own += [after_epoch, SaveOnSignal(folder / LAST)]
    settings: dict[str, Any] = {"accelerator": "auto", "devices": 1, "plugins": [SafeCheckpointIO()]}
    settings |= {"enable_model_summary": False, "log_every_n_steps": 1, "num_sanity_val_steps": 0, **options}
    if "TORCHELASTIC_RUN_ID" in os.environ:  # started by torchrun, of which a Trainer has to be told
        here = int(os.environ["LOCAL_WORLD_SIZE"])
        settings |= {"devices": here, "num_nodes": int(os.environ["WORLD_SIZE"]) // here}
    return pl.Trainer(max_epochs=max_epochs, callbacks=[*callbacks, *own], **settings)


def quiet() -> None:
    """Mute Lightning's tips and hardware chatter; its other warnings and errors stay."""
    for name in ("pytorch_lightning", "lightning.pytorch", "lightning_fabric"):
        logging.getLogger(name).setLevel(logging.WARNING)
    for message in _CHATTER:
        warnings.filterwarnings("ignore", message=message)
