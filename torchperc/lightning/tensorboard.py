"""What TensorBoard shows of a run: curves per epoch, boundary, weights, graph, hyper-parameters."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from torchperc._checks import check_int, is_sparse, require_packages
from torchperc.data.prepared_data import PreparedData
from torchperc.lightning._pl import pl
from torchperc.nn.heads import Head, RegressionHead

SAMPLES = 2000  # at most so many in a picture of the boundary

LAYOUT = {
    "learning curves": {
        "loss": ["Multiline", ["loss/train", "loss/val"]],
        "error": ["Multiline", ["error/train", "error/val"]],
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


REGRESSION_LAYOUT = {
    "learning curves": {
        "loss": ["Multiline", ["loss/train", "loss/val"]],
        "RMSE": ["Multiline", ["rmse/train", "rmse/val"]],
        "R²": ["Multiline", ["r2/train", "r2/val"]],
    },
    "gradient": {"norm": ["Multiline", ["norm"]]},
}


class Board(pl.Callback):
    """Logs the epoch as the x-axis of every logger's curves and, to TensorBoard, what helps to read them.

    A ``TensorBoardLogger`` gets charts with train and validation together, a picture of the decision boundary (two
    features, classifiers with a ``head``), histograms of the weights, and the hyper-parameters with the last values of
    the curves. The run itself is not changed. Works with any LightningModule. Of several processes the first writes,
    and its samples are in the pictures.

    Args:
        picture_every: epochs between pictures and histograms, besides the first and the last epoch; 0 for none.

    Example:
        >>> Board(picture_every=10).picture_every
        10
    """

    def __init__(self, picture_every: int = 10) -> None:
        self.picture_every = check_int("picture_every", picture_every, at_least=0)
        self._batches: list[tuple[Tensor, Tensor]] = []
        self._room = SAMPLES
        self._pictured = -1

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """The layout."""
        self._batches, self._room, self._pictured = [], SAMPLES, -1
        if self.picture_every and _boards(trainer):
            require_packages("Board(picture_every > 0)", "matplotlib")
        for board in _boards(trainer):
            real = isinstance(getattr(pl_module, "head", None), RegressionHead)
            board.experiment.add_custom_scalars(REGRESSION_LAYOUT if real else LAYOUT)

    def on_train_batch_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: tuple[Any, Tensor], batch_idx: int
    ) -> None:
        """Keep samples of the first epoch for the pictures."""
        if self._room <= 0:
            return
        x, y = batch[:2] if isinstance(batch, tuple | list) and len(batch) > 1 else (None, None)
        if not isinstance(x, Tensor) or not isinstance(y, Tensor) or is_sparse(x):
            self._room = 0
            return
        X, labels = (part[: self._room].detach().cpu() for part in (x, y))
        self._batches.append((X, labels))
        self._room -= len(labels)

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """The x-axis, and pictures."""
        epoch, self._room = trainer.current_epoch + 1, 0
        _on_axis(pl_module, epoch)
        if self.picture_every and (epoch == 1 or epoch % self.picture_every == 0):
            self._picture(trainer, pl_module, epoch)

    def on_validation_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """The x-axis of validation while training."""
        if trainer.state.fn == pl.trainer.states.TrainerFn.FITTING and not trainer.sanity_checking:
            _on_axis(pl_module, trainer.current_epoch + 1)

    def on_fit_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """The last picture and the hyper-parameters."""
        epoch = trainer.current_epoch
        if self.picture_every and self._pictured != epoch:
            self._picture(trainer, pl_module, epoch)
        data = dict(getattr(getattr(trainer, "datamodule", None), "hparams", {}))
        options = {"module": type(pl_module).__name__, **_plain(pl_module.hparams), **_plain({"data": data})}
        for board in _boards(trainer):
            _hyperparameters(board, options, epoch)
            board.experiment.flush()

    def _picture(self, trainer: pl.Trainer, pl_module: pl.LightningModule, epoch: int) -> None:
        self._pictured = epoch
        boards = _boards(trainer)
        head = getattr(pl_module, "head", None)
        drawn = isinstance(head, Head) and not isinstance(head, RegressionHead)  # which has no boundary
        flat = drawn and bool(self._batches) and self._batches[0][0].shape[1:] == (2,)
        figure = self._boundary(trainer, pl_module, epoch) if boards and flat else None
        for board in boards:
            for name, values in _net(pl_module).named_parameters():
                shown = values.detach().cpu().double()
                # the bins end at 1e20, weights of a diverging run do not
                shown = shown[~shown.isnan()].clamp(-9e19, 9e19)
                if len(shown):
                    board.experiment.add_histogram(f"weights/{name}", shown, epoch)
            if figure is not None:
                board.experiment.add_figure("boundary", figure, epoch, close=False)

    def _boundary(self, trainer: pl.Trainer, pl_module: pl.LightningModule, epoch: int) -> Any:
        from torchperc.plots import DecisionRegionDisplay

        X, y = (torch.cat(parts) for parts in zip(*self._batches, strict=True))
        look = {"title": f"epoch {epoch}", **_names(trainer)}
        return DecisionRegionDisplay.from_model(pl_module, X, y, **look).figure_


def _names(trainer: pl.Trainer) -> dict[str, Any]:
    """What features and classes are called, where the data are a table of ours."""
    data = getattr(trainer, "datamodule", None)
    if not isinstance(data, PreparedData):
        return {}
    scaled = "" if data.scaler.kind == "none" else ", scaled"  # no longer in the units of the name
    return {"names": [f"{name}{scaled}" for name in data.names], "labels": data.dataset.labels}


def _net(module: pl.LightningModule) -> torch.nn.Module:
    net = getattr(module, "net", module)
    return net if isinstance(net, torch.nn.Module) else module


def _on_axis(module: pl.LightningModule, epoch: int) -> None:
    """Lightning's loggers take a metric of the name "step" as the x-axis of the others."""
    module.log("step", float(epoch), on_step=False, on_epoch=True, batch_size=1, sync_dist=True)


def _hyperparameters(board: pl.loggers.TensorBoardLogger, options: dict[str, Any], epoch: int) -> None:
    """A run's row in the table, without a list of columns, which TensorBoard would use for all runs."""
    from torch.utils.tensorboard.summary import hparams

    _, start, end = hparams(options, {})
    for summary in (start, end):
        board.experiment._get_file_writer().add_summary(summary, epoch)


def _boards(trainer: pl.Trainer) -> list[pl.loggers.TensorBoardLogger]:
    loggers: list[pl.loggers.Logger] = trainer.loggers if trainer.is_global_zero else []
    return [logger for logger in loggers if isinstance(logger, pl.loggers.TensorBoardLogger)]


def _plain(options: Any, before: str = "") -> dict[str, str | float | int | bool]:
    """Nested options under flat names such as ``net/class_path``."""
    found: dict[str, str | float | int | bool] = {}
    for name, value in dict(options).items():
        if isinstance(value, dict):
            found |= _plain(value, f"{before}{name}/")
        else:
            found[f"{before}{name}"] = value if isinstance(value, str | float | int | bool) else str(value)
    return found
