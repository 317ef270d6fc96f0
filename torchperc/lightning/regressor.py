"""Regression by gradient descent under a Lightning Trainer: any net that gives numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from torchperc.lightning.base import LitNet, Samples
from torchperc.lightning.descent import LitDescent, rows_of
from torchperc.lightning.metrics import Moments, RegressionSums, moments
from torchperc.nn import functional as tpf
from torchperc.nn.heads import RegressionHead
from torchperc.samples import shards

_Place: TypeAlias = "tuple[int, Tensor, float]"
"""The number of a sample, the sample (1, d) and its target."""


class Regression(LitNet):
    """What modules for regression share: RMSE and R² in place of errors, and numbers as predictions.

    Where the Trainer has a data module that scales targets and says so by its ``target_unit``, as
    :class:`TabularDataModule` does, RMSE is logged in the target's own units.
    """

    _measures = ("loss", "rmse", "r2")

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


class LitRegressor(Regression, LitDescent):
    """Regression: gradient descent on the mean of ½(y − s)², full batch, mini-batches or one sample at a time.

    Each epoch logs ``loss/train``, ``rmse/train``, ``r2/train``, ``norm`` and ``lr``, and ``loss/val``, ``rmse/val``
    and ``r2/val`` if there is validation data. Those of the training set are taken before the step they lead to. RMSE
    and R² are scikit-learn's ``root_mean_squared_error`` and ``r2_score``, weighted by the sample weights; RMSE of
    targets that :class:`TabularDataModule` has scaled is in their own units.

    Batches are (x, y) or (x, y, sample weights), with real targets y of shape (N,), or (N, K) for a net of K outputs,
    whose loss is ½ Σ_k (y_k − s_k)². ``trainer.predict`` gives the outputs. :class:`EpsilonStop` stops when the loss
    changes by less than ε. All else, several processes and samples larger than memory included, is as for
    :class:`LitClassifier`.

    All arguments are hyper-parameters: ``LitRegressor.load_from_checkpoint(path)`` gives the same module back, except
    for a net that is not torchperc's own and an optimizer that is not torch's; pass ``net=`` or ``optimizer=`` again.

    Args:
        net: any module that gives numbers (N,), (N, 1) or (N, K).
        lr: the learning rate of the default optimizer, plain SGD; 0.1 if neither it nor an optimizer is given.
            ``"auto"`` is 1/λmax, half the limit 2/λmax of a linear net on the training data. Full-batch descent warns
            above the limit, where the loss diverges.
        update: ``"batch"`` makes one step per batch, ``"sample"`` one step per sample, in one call per batch: the
            weights of ``batch_size=1`` up to rounding. For linear nets and plain SGD in one process.
        optimizer: a function from parameters to an optimizer, such as ``partial(torch.optim.Adam, lr=0.01)``.
        scheduler: a function from an optimizer to a scheduler, such as ``partial(StepLR, step_size=10)``.
        start: ``"as-is"``, or ``"two-sample"``: the flattest plane through the first two training samples that differ,
            see :func:`torchperc.nn.functional.two_sample_start`.
        interval: whether the scheduler steps after each ``"epoch"`` or each ``"step"`` (batch).
        monitor: the metric of a ``ReduceLROnPlateau`` scheduler, such as ``"loss/val"``.

    Example:
        >>> import torchperc as tp
        >>> lit = tp.lightning.LitRegressor(tp.Perceptron(2), lr="auto")
        >>> lit.predict_step(torch.zeros(3, 2))
        tensor([0., 0., 0.])
        >>> lit.hparams.lr, lit.hparams.net["class_path"]
        ('auto', 'torchperc.Perceptron')
    """

    _starts = "one output"
    _by_autograd = "LitRegressor"

    def __init__(
        self,
        net: nn.Module,
        lr: float | str | None = None,
        update: str = "batch",
        optimizer: Callable[[Iterable[nn.Parameter]], Optimizer] | None = None,
        scheduler: Callable[[Optimizer], LRScheduler] | None = None,
        start: str = "as-is",
        *,
        interval: str = "epoch",
        monitor: str | None = None,
    ) -> None:
        super().__init__(net, RegressionHead(), lr, update, optimizer, scheduler, start, interval, monitor)

    def _two_sample_start(self, batches: Iterator[Samples], *, spread: bool) -> tuple[Tensor, Tensor]:
        own = _two_that_differ(batches)
        given = shards.gathered(own) if spread else [own]
        found = sorted((place for each in given for place in each), key=lambda place: place[0])
        X, y = torch.cat([x for _, x, _ in found]), torch.tensor([target for *_, target in found], dtype=torch.float64)
        return tpf.two_sample_start(X, y, targets=tpf.REAL)


def _two_that_differ(batches: Iterator[Samples]) -> list[_Place]:
    """The first sample and the first with another x, dense; no batch is read after both are found.

    Of several processes, to which samples are dealt in turn, these of each are enough: a process whose first sample is
    the first of all has the other, too, and any other process has one of its two that differs from it.
    """
    found: list[_Place] = []
    start = 0
    for X, y, _ in batches:
        rows, first, size = rows_of(X), 0, 2
        while first < len(y) and len(found) < 2:
            index = torch.arange(first, min(first + size, len(y)))
            x, targets = rows.take(index).dense().cpu(), y[index.to(y.device)].cpu()
            if not found:
                found.append((start, x[:1], float(targets[0])))
            others = (x != found[0][1]).any(1).nonzero()
            if len(others):
                place = int(others[0, 0])
                found.append((start + first + place, x[place : place + 1], float(targets[place])))
            first, size = first + size, 2 * size
        if len(found) == 2:
            break
        start += len(y)
    return found
