"""What TensorBoard shows of a run: curves per epoch, train and validation together, the decision boundary."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from torchperc._checks import check_int, is_sparse, require_packages
from torchperc.lightning._pl import pl
from torchperc.nn.heads import Head, RegressionHead

SAMPLES = 2000  # at most so many in a picture of the boundary

LAYOUT: dict[str, dict[str, Any]] = {
    "learning curves": {
        title: ["Multiline", [f"{name}/train", f"{name}/val"]]
        for title, name in {"loss": "loss", "error": "error", "RMSE": "rmse", "R²": "r2"}.items()
    },
    "rule and gradient": {
        "mistakes": ["Multiline", ["mistakes"]],
        "norm": ["Multiline", ["norm"]],
        "distance of the nearest sample": ["Multiline", ["margin"]],
    },
    "mistake bound": {
        "bounds on γ*, the margin with the bias as a weight": ["Multiline", ["theory/lower", "theory/upper"]],
        "mistakes and their bound": ["Multiline", ["theory/mistakes", "theory/bound"]],
    },
}


class Board(pl.Callback):
    """Logs the epoch as the x-axis of every logger's curves and, to TensorBoard, what helps to read them.

    A ``TensorBoardLogger`` gets charts with train and validation together, and pictures of the decision boundary (two
    features, classifiers with a ``head``). The run itself is not changed. Works with any LightningModule. Of several
    processes the first writes, and its samples are in the pictures.

    Args:
        picture_every: epochs between pictures, besides the first and the last epoch; 0 for none.

    Example:
        >>> Board(picture_every=10).picture_every
        10
    """

    def __init__(self, picture_every: int = 10) -> None:
        self.picture_every = check_int("picture_every", picture_every, at_least=0)
        self._batches: list[list[Tensor]] = []
        self._room, self._pictured, self._laid_out = SAMPLES, -1, False
        self._metrics: dict[str, Tensor] = {}

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Begin without samples."""
        self._metrics = trainer.callback_metrics
        self._batches, self._room, self._pictured, self._laid_out = [], SAMPLES, -1, False
        if self.picture_every and _boards(trainer):
            require_packages("Board(picture_every > 0)", "matplotlib")

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Log the epoch as the x-axis."""
        _log_step(trainer, pl_module, trainer.current_epoch + 1)

    def on_train_batch_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: tuple[Any, Tensor], batch_idx: int
    ) -> None:
        """Keep samples of the first epoch for the pictures."""
        parts = batch[:2] if isinstance(batch, tuple | list) and self._room > 0 else ()
        if len(parts) == 2 and all(isinstance(part, Tensor) and not is_sparse(part) for part in parts):
            self._batches.append([part[: self._room].detach().cpu() for part in parts])
            self._room -= len(parts[1])

    def on_train_batch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule, *batch: Any) -> None:
        """Keep the steps made among the metrics, for names of checkpoints; logging them takes ten times as long."""
        self._metrics["step"] = torch.tensor(float(trainer.global_step))

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Log, after the first epoch, the charts of what is logged, and pictures."""
        epoch, self._room, logged = trainer.current_epoch + 1, 0, {*trainer.callback_metrics}
        _log_step(trainer, pl_module, trainer.global_step, logger=False)
        for board in [] if self._laid_out else _boards(trainer):
            shown = ((part, {k: v for k, v in charts.items() if logged & {*v[1]}}) for part, charts in LAYOUT.items())
            board.experiment.add_custom_scalars({part: charts for part, charts in shown if charts})
        self._laid_out = True
        if self.picture_every and (epoch == 1 or epoch % self.picture_every == 0):
            self._picture(trainer, pl_module, epoch)

    def on_validation_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Log the x-axis of validation while training."""
        _log_step(trainer, pl_module, trainer.current_epoch + 1)

    def on_validation_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Tell callbacks the steps made."""
        _log_step(trainer, pl_module, trainer.global_step, logger=False)

    def on_fit_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Log the last picture."""
        if self.picture_every and self._pictured != trainer.current_epoch:
            self._picture(trainer, pl_module, trainer.current_epoch)
        for board in _boards(trainer):
            board.experiment.flush()

    def _picture(self, trainer: pl.Trainer, pl_module: pl.LightningModule, epoch: int) -> None:
        self._pictured, head = epoch, getattr(pl_module, "head", None)
        classifies = isinstance(head, Head) and not isinstance(head, RegressionHead)  # which has no boundary
        if classifies and _boards(trainer) and self._batches and self._batches[0][0].shape[1:] == (2,):
            from torchperc.plots import DecisionRegionDisplay

            X, y = map(torch.cat, zip(*self._batches, strict=True))
            for board in _boards(trainer):
                figure = DecisionRegionDisplay.from_model(pl_module, X, y, title=f"epoch {epoch}").figure_
                board.experiment.add_figure("boundary", figure, epoch)


def _log_step(trainer: pl.Trainer, module: pl.LightningModule, value: int, logger: bool | None = None) -> None:
    """Log the metric "step", the x-axis of loggers; without a logger only callbacks see it, in place of the x-axis."""
    if trainer.state.fn == pl.trainer.states.TrainerFn.FITTING and not trainer.sanity_checking:
        module.log("step", float(value), on_step=False, on_epoch=True, batch_size=1, sync_dist=True, logger=logger)


def _boards(trainer: pl.Trainer) -> list[pl.loggers.TensorBoardLogger]:
    loggers: list[pl.loggers.Logger] = trainer.loggers if trainer.is_global_zero else []
    return [logger for logger in loggers if isinstance(logger, pl.loggers.TensorBoardLogger)]
