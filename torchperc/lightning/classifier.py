"""Classification by gradient descent under a Lightning Trainer: any net that gives scores, any head."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from operator import itemgetter
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from torchperc.lightning.base import Samples, head_of
from torchperc.lightning.descent import INTERVALS as INTERVALS
from torchperc.lightning.descent import STARTS as STARTS
from torchperc.lightning.descent import UPDATES as UPDATES
from torchperc.lightning.descent import LitDescent, rows_of, train_loader
from torchperc.nn import functional as tpf
from torchperc.nn.heads import Head, LMSHead, RegressionHead
from torchperc.rules.problem import balanced
from torchperc.rules.trainer import check_class_weight
from torchperc.samples import shards


class LitClassifier(LitDescent):
    """Gradient descent on a head's loss: full batch, mini-batches or one sample at a time, as the loader cuts them.

    Each epoch logs ``loss/train``, ``error/train``, ``mistakes``, ``margin`` (of linear nets), ``norm`` and ``lr``, and
    ``loss/val`` and ``error/val`` if there is validation data. Error (wrong decisions) and mistakes (by the head's tie)
    are counted before the step they lead to: torchmetrics' accuracy of these scores is 1 − ``error/train``.

    Batches are (x, y) or (x, y, sample weights); the loss of N samples is (1/N)·Σ weight·ℓ. Sparse samples are tensors
    of the layout ``torch.sparse_csr``. One batch of samples larger than memory is read piece by piece, with the exact
    gradient of the mean loss. Only ``lr="auto"``, ``start="two-sample"`` and ``class_weight="balanced"`` read the
    training data before training.

    Under ``strategy="ddp"`` a step has the mean loss of the batch of all processes, however many samples each of them
    has: the weights and metrics are those of one process on the same batches. A ``DataLoader``'s ``batch_size`` is that
    of each process, a :class:`SliceLoader`'s that of all together.

    All arguments are hyper-parameters: ``LitClassifier.load_from_checkpoint(path)`` gives the same module back, except
    for a net that is not torchperc's own and an optimizer that is not torch's; pass ``net=`` or ``optimizer=`` again.

    Args:
        net: any module that gives scores (N,) for labels −1/+1, or (N, K) for class indices.
        head: what the scores mean: a head, or its name, see :func:`torchperc.nn.heads.head`.
        lr: the learning rate of the default optimizer, plain SGD; 0.1 if neither it nor an optimizer is given.
            ``"auto"`` is 1/L, L being the curvature of the loss of a linear net on the training data; with more than
            2000 features that are read batch by batch, L is bounded by mean ‖x‖². Full-batch descent warns above 2/L
            for LMS, ten times that for the logistic loss.
        update: ``"batch"`` makes one step per batch. ``"sample"`` makes one step per sample, in one call per batch: the
            weights of ``batch_size=1`` up to rounding, without its cost. For linear nets and plain SGD in one process.
        optimizer: a function from parameters to an optimizer, such as ``partial(torch.optim.Adam, lr=0.01)``.
        scheduler: a function from an optimizer to a scheduler, such as ``partial(StepLR, step_size=10)``.
        start: ``"as-is"``, or ``"two-sample"``, see :func:`torchperc.nn.functional.two_sample_start`.
        interval: whether the scheduler steps after each ``"epoch"`` or each ``"step"`` (batch).
        monitor: the metric of a ``ReduceLROnPlateau`` scheduler, such as ``"loss/val"``.
        class_weight: a factor per label for its loss, as ``{label: factor}``, or ``"balanced"`` for N/(K·N_label).

    Example:
        >>> import torchperc as tp
        >>> lit = tp.lightning.LitClassifier(tp.Perceptron(2), tp.LogisticHead(), lr=0.5)
        >>> lit(torch.zeros(3, 2))
        tensor([0., 0., 0.], grad_fn=<SqueezeBackward1>)
        >>> lit.hparams.lr, lit.hparams.head, lit.hparams.net["class_path"]
        (0.5, 'logistic', 'torchperc.Perceptron')
    """

    _starts = "two classes"

    def __init__(
        self,
        net: nn.Module,
        head: Head | str = "perceptron",
        lr: float | str | None = None,
        update: str = "batch",
        optimizer: Callable[[Iterable[nn.Parameter]], Optimizer] | None = None,
        scheduler: Callable[[Optimizer], LRScheduler] | None = None,
        start: str = "as-is",
        *,
        interval: str = "epoch",
        monitor: str | None = None,
        class_weight: Mapping[int, float] | str | None = None,
    ) -> None:
        if isinstance(head_of(head), RegressionHead):
            raise ValueError("head=RegressionHead() predicts numbers and no classes; use LitRegressor(net)")
        self.class_weight = check_class_weight(class_weight)
        super().__init__(net, head, lr, update, optimizer, scheduler, start, interval, monitor)
        self.class_factors = self.class_weight if isinstance(self.class_weight, Mapping) else None

    def _described(self) -> dict[str, Any]:
        weight = self.class_weight
        return {**super()._described(), "class_weight": dict(weight) if isinstance(weight, Mapping) else weight}

    def on_train_start(self) -> None:
        """Balanced class weights and the two-sample start, which read training data."""
        super().on_train_start()
        if self.class_weight == "balanced":
            counts: Counter[int] = Counter()
            for _, y, weight in self._batches_before("class_weight='balanced'"):
                present = (y if weight is None else y[weight > 0]).unique(return_counts=True)
                counts.update(dict(zip(*(values.tolist() for values in present), strict=True)))
            given = [counts] if self._sees_all(train_loader(self.trainer)) else shards.gathered(counts)
            self.class_factors = balanced(dict(sorted(sum(given, Counter()).items())))

    def _two_sample_start(self, batches: Iterator[Samples], *, spread: bool) -> tuple[Tensor, Tensor]:
        found = _first_of_each(batches)
        if spread:
            found = _earliest(shards.gathered(found))
        X, y = torch.cat([row for _, row in found.values()]), torch.tensor(list(found))
        return tpf.two_sample_start(X, y, targets=self.head.targets if isinstance(self.head, LMSHead) else "-1/+1")

    # --- checkpoints ---

    def _kind(self) -> dict[str, Any]:
        return {**super()._kind(), "class_weight": repr(self.class_weight)}

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Save balanced class weights, too."""
        super().on_save_checkpoint(checkpoint)
        checkpoint["balanced"] = dict(self.class_factors or {}) if self.class_weight == "balanced" else None

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Resume with the sums of the epoch and balanced class weights."""
        super().on_load_checkpoint(checkpoint)
        if self.class_weight == "balanced":
            self.class_factors = checkpoint["balanced"] or None


def _first_of_each(batches: Iterator[Samples]) -> dict[int, tuple[int, Tensor]]:
    """The first sample of −1 and of +1, dense, after its position; no batch is read after both are found."""
    found: dict[int, tuple[int, Tensor]] = {}
    start = 0
    for X, y, _ in batches:
        for label in (-1, 1):
            index = (y == label).nonzero()[:1, 0].cpu()
            if label not in found and len(index):
                taken = rows_of(X).take(index)
                found[label] = start + int(index), taken.dense().cpu()
        if len(found) == 2:
            break
        start += len(y)
    return found


def _earliest(given: list[dict[int, tuple[int, Tensor]]]) -> dict[int, tuple[int, Tensor]]:
    """The first of each label over processes, to which samples are dealt in turn."""
    labels = sorted({label for each in given for label in each})
    return {label: min((each[label] for each in given if label in each), key=itemgetter(0)) for label in labels}
