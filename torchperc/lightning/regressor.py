"""Regression by gradient descent under a Lightning Trainer: any net that gives numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from torchperc.lightning.descent import LitDescent
from torchperc.lightning.metrics import Moments, RegressionSums, moments
from torchperc.nn.heads import RegressionHead


class LitRegressor(LitDescent):
    """Regression: gradient descent on the mean of ½(y − s)², full batch, mini-batches or one sample at a time.

    Each epoch logs ``loss/train``, ``rmse/train``, ``r2/train``, ``norm`` and ``lr``, and ``loss/val``, ``rmse/val``
    and ``r2/val`` if there is validation data. Those of the training set are taken before the step they lead to. RMSE
    and R² are scikit-learn's ``root_mean_squared_error`` and ``r2_score``, weighted by the sample weights. Where the
    Trainer has a data module with a ``target_unit``, as :class:`TabularDataModule`, RMSE is in the target's own units.

    Batches are (x, y) or (x, y, sample weights), with real targets y of shape (N,), or (N, K) for a net of K outputs,
    whose loss is ½ Σ_k (y_k − s_k)². ``trainer.predict`` gives the outputs. :class:`EpsilonStop` stops when the loss
    changes by less than ε. All else, several processes included, is as for :class:`LitClassifier`.

    All arguments are hyper-parameters: ``LitRegressor.load_from_checkpoint(path)`` gives the same module back, except
    for a net that is not torchperc's own and an optimizer that is not torch's; pass ``net=`` or ``optimizer=`` again.

    Args:
        net: any module that gives numbers (N,), (N, 1) or (N, K).
        lr: the learning rate of the default optimizer, plain SGD; 0.1 if neither it nor an optimizer is given.
            Full-batch descent of a linear net warns above the limit 2/λmax, where the loss diverges;
            ``tp.theory.auto_lr("regression", X)`` is half of it.
        update: ``"batch"`` makes one step per batch, ``"sample"`` one step per sample, in one call per batch: the
            weights of ``batch_size=1`` up to rounding. For linear nets and plain SGD in one process.
        optimizer: a function from parameters to an optimizer, such as ``partial(torch.optim.Adam, lr=0.01)``.
        scheduler: a function from an optimizer to a scheduler, such as ``partial(StepLR, step_size=10)``.
        interval: whether the scheduler steps after each ``"epoch"`` or each ``"step"`` (batch).
        monitor: the metric of a ``ReduceLROnPlateau`` scheduler, such as ``"loss/val"``.

    Example:
        >>> import torch, torchperc as tp
        >>> X = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
        >>> lit = tp.lightning.LitRegressor(tp.Perceptron(2), lr=tp.theory.auto_lr("regression", X))
        >>> lit.predict_step(torch.zeros(3, 2))
        tensor([0., 0., 0.])
        >>> round(lit.hparams.lr, 6), lit.hparams.net["class_path"]
        (0.514719, 'torchperc.Perceptron')
    """

    _measures = ("loss", "rmse", "r2")

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

    def _described(self) -> dict[str, Any]:
        return {name: value for name, value in super()._described().items() if name != "head"}

    def _predicted(self, scores: Tensor) -> Tensor:
        return self.head.output(scores).detach()

    def _new_sums(self) -> RegressionSums:
        return RegressionSums()

    def _tally(self, scores: Tensor, y: Tensor, factors: Tensor | None, losses: Tensor | None = None) -> Moments:
        return moments(self.head, scores, y, factors, losses)

    def _log(self, values: Mapping[str, Tensor | float], *, add_dataloader_idx: bool = True) -> None:
        unit = float(getattr(getattr(self.trainer, "datamodule", None), "target_unit", 1.0))
        scaled = {name: unit * value if name.startswith("rmse/") else value for name, value in values.items()}
        super()._log(scaled, add_dataloader_idx=add_dataloader_idx)
