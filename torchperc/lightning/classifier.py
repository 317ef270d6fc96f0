"""Classification by gradient descent under a Lightning Trainer: any net that gives scores, any head."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from torchperc._checks import check_number
from torchperc.lightning.base import LitDescent
from torchperc.lightning.metrics import exact_dtype
from torchperc.nn.heads import NAMED_HEADS, Head, RegressionHead


class LitClassifier(LitDescent):
    """Gradient descent on a head's loss: full batch, mini-batches or one sample at a time, as the loader cuts them.

    Logs per epoch ``loss/train``, ``error/train`` (fraction of wrong decisions), ``mistakes`` (by the head's tie),
    ``margin`` (distance of the nearest sample from the boundary; linear nets, two classes) and ``norm`` of the weights;
    with validation data ``loss/val`` and ``error/val``. Training metrics are taken before each step: torchmetrics'
    accuracy of these scores is 1 − ``error/train``.

    Batches are (x, y) or (x, y, sample weights); the loss of N samples is (1/N)·Σ weight·loss. Sparse samples are
    tensors of the layout ``torch.sparse_csr``. With ``strategy="ddp"`` the batch is that of all processes: weights and
    metrics are those of one process on the same batches; samples that a ``DistributedSampler`` repeats count again. A
    ``DataLoader``'s ``batch_size`` is that of each process, a :class:`SliceLoader`'s that of all together.

    Args:
        net: any module that gives scores (N,) for labels −1/+1, or (N, K) for class indices.
        head: ``"perceptron"``, ``"lms"``, ``"logistic"`` or a head, see :func:`torchperc.nn.heads.head`.
        lr: the learning rate, 0.1 by default; with an optimizer of yours its own. ``tp.theory.auto_lr(head, X)``
            is 1/L, and full-batch descent of a linear net is safe below 2/L.
        update: ``"batch"`` makes one step per batch. ``"sample"`` makes one step per sample, in one call per batch: the
            weights of ``batch_size=1`` up to rounding, without its cost. For linear nets and plain SGD in one process.
        optimizer: a class such as ``torch.optim.Adam``, or a function such as ``partial(torch.optim.Adam, lr=0.01)``.
        scheduler: a function from an optimizer to a scheduler, such as ``partial(StepLR, step_size=10)``.
        interval: whether the scheduler steps after each ``"epoch"`` or each ``"step"`` (batch).
        monitor: the metric of a ``ReduceLROnPlateau`` scheduler, such as ``"loss/val"``.
        class_weight: a factor per label for its loss, as ``{label: factor}`` or as a tensor in the order of the classes
            (−1 first); :func:`torchperc.functional.balanced_weights` makes those that balance the classes.

    Example:
        >>> import torch, torchperc as tp
        >>> lit = tp.lightning.LitClassifier(tp.Perceptron(2), tp.LogisticHead(), lr=0.5)
        >>> lit.predict_step(torch.zeros(3, 2))
        tensor([1, 1, 1])
        >>> lit.hparams.lr, lit.hparams.head, lit.hparams.net["class_path"]
        (0.5, 'logistic', 'torchperc.Perceptron')
    """

    def __init__(
        self,
        net: nn.Module,
        head: Head | str = "perceptron",
        lr: float | None = None,
        update: str = "batch",
        optimizer: Callable[[Iterable[nn.Parameter]], Optimizer] | None = None,
        scheduler: Callable[[Optimizer], LRScheduler] | None = None,
        *,
        interval: str = "epoch",
        monitor: str | None = None,
        class_weight: Mapping[int, float] | Sequence[float] | Tensor | None = None,
    ) -> None:
        super().__init__(net, head, lr, update, optimizer, scheduler, interval, monitor)
        if isinstance(self.head, RegressionHead):
            raise ValueError("head=RegressionHead() predicts numbers and no classes; use LitRegressor(net)")
        self.class_weight = class_weight = factors(class_weight)  # Lightning compares arguments by ==
        if isinstance(class_weight, str):
            raise TypeError(f"class_weight={class_weight!r} needs the labels; use tp.functional.balanced_weights(y)")
        self.table: Tensor | None = None  # of the factors, on the device
        known = (name for name, known in NAMED_HEADS.items() if known == self.head)
        self.save_arguments(head=next(known, repr(self.head)), class_weight=self.class_weight)

    def weights(self, y: Tensor, weight: Tensor | None, classes: int | None) -> Tensor | None:
        """Return the weight of each sample's loss, its own times that of its class, or ``None``."""
        weight = super().weights(y, weight, classes)
        if self.class_weight is None:
            return weight
        if self.table is None or self.table.device != y.device:
            values = list(by_label(self.class_weight, classes).values())
            self.table = torch.tensor(values, dtype=exact_dtype(y.device), device=y.device)
        factors = self.table[(y > 0).long() if classes is None else y.clamp(0, classes - 1)]  # the loss checks labels
        return factors if weight is None else weight * factors


def factors(class_weight: Any) -> Any:
    """Return factors per class as a list, those per label as a dict, words and ``None`` as they are."""
    values = class_weight.tolist() if hasattr(class_weight, "tolist") else class_weight
    if values is None or isinstance(values, str):
        return values
    if not isinstance(values, Mapping | list | tuple):
        raise TypeError(f"class_weight must be {{label: factor}} or a tensor of a factor per class, found {values!r}")
    pairs = values.items() if isinstance(values, Mapping) else enumerate(values)
    found = {label: check_number(f"class_weight[{label!r}]", w, at_least=0) for label, w in pairs}
    return found if isinstance(values, Mapping) else list(found.values())


def by_label(given: Mapping[int, float] | list[float], classes: int | None) -> dict[int, float]:
    """Return the factor of every label: −1 and +1, or 0 to K − 1."""
    labels = (-1, 1) if classes is None else tuple(range(classes))
    if isinstance(given, list):
        if len(given) != len(labels):
            raise ValueError(f"class_weight has {len(given)} factors for {len(labels)} classes; give one each")
        given = dict(zip(labels, given, strict=True))
    if unknown := given.keys() - set(labels):
        raise ValueError(f"class_weight names label {unknown.pop()!r}; the labels are {', '.join(map(str, labels))}")
    return {label: given.get(label, 1.0) for label in labels}
