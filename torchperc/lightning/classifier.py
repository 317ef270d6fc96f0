"""Classification by gradient descent under a Lightning Trainer: any net that gives scores, any head."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from torchperc._checks import check_number
from torchperc.lightning.descent import LitDescent
from torchperc.nn.heads import Head, RegressionHead


class LitClassifier(LitDescent):
    """Gradient descent on a head's loss: full batch, mini-batches or one sample at a time, as the loader cuts them.

    Each epoch logs ``loss/train``, ``error/train``, ``mistakes``, ``margin`` (of linear nets), ``norm`` and ``lr``, and
    ``loss/val`` and ``error/val`` if there is validation data. Error (wrong decisions) and mistakes (by the head's tie)
    are counted before the step they lead to: torchmetrics' accuracy of these scores is 1 − ``error/train``.

    Batches are (x, y) or (x, y, sample weights); the loss of N samples is (1/N)·Σ weight·ℓ. Sparse samples are tensors
    of the layout ``torch.sparse_csr``.

    Under ``strategy="ddp"`` a step has the mean loss of the batch of all processes, however many samples each of them
    has: the weights and metrics are those of one process on the same batches. A ``DataLoader``'s ``batch_size`` is that
    of each process, a :class:`SliceLoader`'s that of all together.

    With the head ``"structured"`` the net is a :class:`~torchperc.sequences.ChainPerceptron`, or gives ``ChainScores``,
    and batches are ((x, lengths), y), or (x, y) with −100 behind the end of the tags: the loss is per sequence,
    ``error/train`` per token, ``error/sequence/train`` per sequence, and ``mistakes`` are sequences.

    All arguments are hyper-parameters: ``LitClassifier.load_from_checkpoint(path)`` gives the same module back, except
    for a net that is not torchperc's own and an optimizer that is not torch's; pass ``net=`` or ``optimizer=`` again.

    Args:
        net: any module that gives scores (N,) for labels −1/+1, or (N, K) for class indices.
        head: what the scores mean: a head, or its name, see :func:`torchperc.nn.heads.head`.
        lr: the learning rate of the default optimizer, plain SGD; 0.1 if neither it nor an optimizer is given.
            Full-batch descent of a linear net warns above 2/L for LMS, ten times that for the logistic loss, L being
            the curvature of the loss; ``tp.theory.auto_lr(head, X)`` is 1/L.
        update: ``"batch"`` makes one step per batch. ``"sample"`` makes one step per sample, in one call per batch: the
            weights of ``batch_size=1`` up to rounding, without its cost. For linear nets and plain SGD in one process.
        optimizer: a function from parameters to an optimizer, such as ``partial(torch.optim.Adam, lr=0.01)``.
        scheduler: a function from an optimizer to a scheduler, such as ``partial(StepLR, step_size=10)``.
        interval: whether the scheduler steps after each ``"epoch"`` or each ``"step"`` (batch).
        monitor: the metric of a ``ReduceLROnPlateau`` scheduler, such as ``"loss/val"``.
        class_weight: a factor per label for its loss, as ``{label: factor}``;
            :func:`torchperc.nn.functional.balanced_weights` gives N/(K·N_label).

    Example:
        >>> import torch, torchperc as tp
        >>> lit = tp.lightning.LitClassifier(tp.Perceptron(2), tp.LogisticHead(), lr=0.5)
        >>> lit(torch.zeros(3, 2))
        tensor([0., 0., 0.], grad_fn=<SqueezeBackward1>)
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
        class_weight: Mapping[int, float] | None = None,
    ) -> None:
        self.class_weight = _checked(class_weight)
        super().__init__(net, head, lr, update, optimizer, scheduler, interval, monitor)
        if isinstance(self.head, RegressionHead):
            raise ValueError("head=RegressionHead() predicts numbers and no classes; use LitRegressor(net)")
        if self.chains and class_weight is not None:
            raise ValueError(
                f"class_weight={class_weight!r} is for samples of one label, and a sequence has many tags; leave it "
                "out, or weight whole sequences by batches ((x, lengths), y, sample_weight)"
            )

    def _described(self) -> dict[str, Any]:
        return {**super()._described(), "class_weight": self.class_weight}

    def _kind(self) -> dict[str, Any]:
        return {**super()._kind(), "class_weight": repr(self.class_weight)}


def _checked(class_weight: Mapping[int, float] | None) -> dict[int, float] | None:
    """Factors per label as a dict of finite numbers ≥ 0."""
    if class_weight is None:
        return None
    if not isinstance(class_weight, Mapping):
        raise TypeError(
            f"class_weight must be a mapping {{label: factor}} such as tp.functional.balanced_weights(y), found "
            f"{class_weight!r}"
        )
    return {label: check_number(f"class_weight[{label!r}]", w, at_least=0) for label, w in class_weight.items()}
