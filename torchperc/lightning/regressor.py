"""Regression by gradient descent under a Lightning Trainer: any net that gives numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from torchperc.lightning.base import LitDescent
from torchperc.lightning.metrics import RegressionMetric
from torchperc.nn.heads import RegressionHead


class LitRegressor(LitDescent):
    """Gradient descent on the mean of ½(y − s)²: full batch, mini-batches or one sample at a time.

    Logs per epoch ``loss/train``, ``rmse/train``, ``r2/train`` and ``norm``; with validation data ``loss/val``,
    ``rmse/val`` and ``r2/val``. RMSE and R² are scikit-learn's, weighted by the sample weights. Where the Trainer has a
    data module with a ``target_unit``, as :class:`TabularDataModule`, RMSE is in the target's own units.

    Batches are (x, y) or (x, y, sample weights), with real targets y of shape (N,), or (N, K) for a net of K outputs,
    whose losses are added up. ``trainer.predict`` gives the outputs. All else, several processes included, is as for
    :class:`LitClassifier`.

    Args:
        net: any module that gives numbers (N,), (N, 1) or (N, K).
        lr: the learning rate, 0.1 by default; with an optimizer of yours its own. Full-batch descent of a linear net
            diverges above 2/L; ``tp.theory.auto_lr("regression", X)`` is half of it.
        update, optimizer, scheduler, interval, monitor: see :class:`LitClassifier`.

    Example:
        >>> import torch, torchperc as tp
        >>> X = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
        >>> lit = tp.lightning.LitRegressor(tp.Perceptron(2), lr=tp.theory.auto_lr("regression", X))
        >>> lit.predict_step(torch.zeros(3, 2))
        tensor([0., 0., 0.])
        >>> round(lit.hparams.lr, 6), lit.hparams.net["class_path"]
        (0.514719, 'torchperc.Perceptron')
    """

    logged = ("loss", "rmse", "r2")

    def __init__(
        self,
        net: nn.Module,
        lr: float | None = None,
        update: str = "batch",
        optimizer: Callable[[Iterable[nn.Parameter]], Optimizer] | None = None,
        scheduler: Callable[[Optimizer], LRScheduler] | None = None,
        *,
        interval: str = "epoch",
        monitor: str | None = None,
    ) -> None:
        super().__init__(net, RegressionHead(), lr, update, optimizer, scheduler, interval, monitor)
        self.save_arguments()

    def unpack(self, batch: Any) -> tuple[Any, Tensor, Tensor | None]:
        """Return samples, targets (N,) or (N, K), and sample weights or ``None``."""
        x, y, weight = super().unpack(batch)
        return x, y.squeeze(-1) if y.dim() == 2 and y.shape[1] == 1 else y, weight

    def new_metric(self, exact: torch.dtype) -> RegressionMetric:
        """Return loss, RMSE and R²."""
        data = getattr(self._trainer, "datamodule", None)
        return RegressionMetric(float(getattr(data, "target_unit", 1.0)), exact)

    def predict_step(self, batch: Any, batch_idx: int = 0, dataloader_idx: int = 0) -> Tensor:
        """Return the outputs for a batch with targets or without."""
        return self.head.output(self(self.inputs(batch))).detach()
