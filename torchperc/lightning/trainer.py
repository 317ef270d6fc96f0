"""A Trainer with torchperc's callbacks in one call, and the fitted model of a run."""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from torchperc._lazy import requires
from torchperc.lightning._pl import pl
from torchperc.lightning.callbacks import RandomState, SaveOnSignal, StopOnDivergence
from torchperc.lightning.checkpoints import SafeCheckpointIO
from torchperc.lightning.classifier import LitClassifier
from torchperc.lightning.datamodule import TabularDataModule
from torchperc.lightning.loader import SliceLoader, part_size
from torchperc.lightning.regressor import Regression
from torchperc.lightning.rule import LitRule
from torchperc.lightning.tensorboard import Board
from torchperc.model.fitted import FittedModel

LAST = "last.ckpt"
_ONE_NODE = {"num_nodes": 1}  # what a Trainer takes if it is told nothing
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
    """A Trainer that logs curves per epoch, saves after each, and stops on divergence and on signals.

    Args:
        folder: of the run: event files for TensorBoard, and ``last.ckpt``, from which ``trainer.fit(ckpt_path=…)``
            resumes exactly.
        max_epochs: as for ``pl.Trainer``.
        callbacks: more of them.
        picture_every: epochs between pictures of the boundary and histograms of the weights, see :class:`Board`.
        options: for ``pl.Trainer``; ``enable_checkpointing=False`` saves nothing. Under ``torchrun`` the number of
            devices and nodes is that of its processes, and the strategy ``"ddp"``.

    Example:
        >>> import tempfile, torchperc as tp
        >>> trainer = make_trainer(tempfile.mkdtemp(), 20, enable_progress_bar=False)
        >>> lit = tp.lightning.LitRule(tp.Perceptron(2))
        >>> trainer.fit(lit, tp.lightning.TabularDataModule("AND"))
        >>> lit.result.verdict.name, lit.result.mistakes
        ('SEPARATED', 18)
    """
    quiet()
    folder = Path(folder)
    if "logger" not in options:
        requires("make_trainer", "tensorboard")
        board = pl.loggers.TensorBoardLogger(folder.parent, name=folder.name, version="", default_hp_metric=False)
        options["logger"] = board
    own: list[pl.Callback] = [Board(picture_every), StopOnDivergence(), RandomState()]
    if options.get("enable_checkpointing", True):
        last: dict[str, Any] = {"filename": Path(LAST).stem, "every_n_epochs": 1, "save_on_train_epoch_end": True}
        after_epoch = pl.callbacks.ModelCheckpoint(folder, **last, enable_version_counter=False)
        own += [after_epoch, SaveOnSignal(folder / LAST)]
    settings: dict[str, Any] = {"accelerator": "auto", "devices": 1, "plugins": [SafeCheckpointIO()]}
    settings |= {"enable_model_summary": False, "log_every_n_steps": 1, "num_sanity_val_steps": 0}
    settings |= {**options, **_launched(options)}
    return pl.Trainer(max_epochs=max_epochs, callbacks=[*callbacks, *own], **settings)


def _launched(options: Mapping[str, Any]) -> dict[str, Any]:
    """The processes that ``torchrun`` has started, which a Trainer has to be told of, where options leave them open."""
    if not torch.distributed.is_available() or not torch.distributed.is_torchelastic_launched():
        return {}
    processes, here = int(os.environ["WORLD_SIZE"]), int(os.environ["LOCAL_WORLD_SIZE"])
    if processes == 1:
        return {}
    found = {"devices": here, "num_nodes": processes // here, "strategy": "ddp"}
    return {name: value for name, value in found.items() if options.get(name, "auto") in ("auto", _ONE_NODE.get(name))}


def fitted_model(
    module: LitRule | LitClassifier | Regression, data: TabularDataModule, about: Mapping[str, str] | None = None
) -> FittedModel:
    """The trained module with the labels or the target, the encoding and the scaling of its data.

    Args:
        module: after training; a net that no file can describe is a ``TypeError``.
        data: that it was trained on.
        about: notes to keep with the model, beside the name of the data.

    Example:
        >>> import torchperc as tp
        >>> lit = tp.lightning.LitClassifier(tp.Perceptron(4), "logistic")
        >>> fitted_model(lit, tp.lightning.TabularDataModule("iris", {"positive": "setosa"})).labels
        ('not setosa', 'setosa')
    """
    table = data.dataset
    return FittedModel.of(
        module.net,
        module.head,
        scaler=data.scaler,
        labels=table.labels,
        names=table.names,
        encoding=data.encoding,
        about={"data": table.name, "seed": str(data.seed), **(about or {})},
        target=table.target,
        target_scaler=data.target_scaler,
    )


@torch.no_grad()
def wrong_decisions(module: LitRule | LitClassifier, X: Any, y: Tensor) -> int:
    """Number of wrong decisions of a module on scaled samples, as a data module has them in ``parts``.

    Example:
        >>> import torchperc as tp
        >>> wrong_decisions(tp.lightning.LitRule(tp.Perceptron(2)), *tp.data.gate("AND"))
        3
    """
    wrong = 0
    for some, labels in SliceLoader(X, y, part_size(X), sharding="none"):
        wrong += int((module.predict_step(some.to(module.device)).cpu() != labels).sum())
    return wrong


@torch.no_grad()
def predictions(module: Regression, data: TabularDataModule, which: int) -> tuple[Tensor, Tensor]:
    """Predictions and targets of a set of the data, 0 for training, 1 for validation, 2 for test, in raw units.

    Shape:
        (N,) and (N,), float64.

    Example:
        >>> import torchperc as tp
        >>> data = tp.lightning.TabularDataModule("diabetes")
        >>> predicted, y = predictions(tp.lightning.LitRegressor(tp.Perceptron(10)), data, 1)
        >>> len(predicted), bool((predicted == data.unscaled(torch.zeros(1))).all())  # the mean of the training targets
        (89, True)
    """
    X, y = data.parts[which]
    loader = SliceLoader(X, y, part_size(X), sharding="none")
    found = [data.unscaled(module.predict_step(some.to(module.device)).cpu()) for some, _ in loader]
    return torch.cat(found) if found else y.double(), data.dataset.y[data.indices[which]]


def quiet() -> None:
    """Mute Lightning's tips and hardware chatter; its other warnings and errors stay."""
    for name in ("pytorch_lightning", "lightning.pytorch", "lightning_fabric"):
        logging.getLogger(name).setLevel(logging.WARNING)
    for message in _CHATTER:
        warnings.filterwarnings("ignore", message=message)
