"""Steps by gradient or per sample under a Lightning Trainer: what classifier and regressor share."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from torchperc._checks import check_choice, is_sparse
from torchperc.descent.sgd import check_linear, descend
from torchperc.lightning.base import LitModel
from torchperc.model.describe import described_factory, uncompiled
from torchperc.nn.heads import Head, LogisticHead, SquaredHead
from torchperc.theory import rate_warning

_SGD_OPTIONS = ("momentum", "weight_decay", "dampening", "nesterov", "maximize")
_LOGISTIC_BEARS = 10  # times the limit 2/L: above it a squared error grows forever, the logistic loss flattens out
_WORTH_A_LOOK = 10**9  # multiplications to find the curvature before a run: a fraction of a second


class LitDescent(LitModel):
    """A step per batch by autograd, or with ``update="sample"`` a step per sample by a compiled loop.

    Arguments are those of :class:`~torchperc.lightning.LitClassifier`.
    """

    def __init__(
        self,
        net: nn.Module,
        head: Head | str,
        lr: float | None,
        update: str,
        optimizer: Callable[[Iterable[nn.Parameter]], Optimizer] | None,
        scheduler: Callable[[Optimizer], LRScheduler] | None,
        interval: str,
        monitor: str | None,
    ) -> None:
        super().__init__(net, head, lr, optimizer, scheduler, interval, monitor)
        self.update = check_choice("update", update, ("batch", "sample"))
        if update == "sample":
            check_linear(uncompiled(self.net))

    def save_arguments(self, **arguments: Any) -> None:
        """Save the arguments of ``__init__`` as hyper-parameters."""
        super().save_arguments(lr=self.lr, update=self.update, **arguments)

    def training_step(self, batch: Any, batch_idx: int) -> Tensor | None:
        """Return the mean loss of a batch; with ``update="sample"``, after a step for each of its samples."""
        if self.update == "batch":
            if self.trainer.global_step == 0 and batch_idx == 0:
                self.warn_of_a_large_lr(batch)
            return super().training_step(batch, batch_idx)
        x, y, weight = self.unpack(batch)
        if is_sparse(x) and x.device.type != "cpu":
            raise ValueError("update='sample' needs sparse samples on the CPU; use Trainer(accelerator='cpu')")
        norm, net = self.weight_norm(), check_linear(uncompiled(self.net))
        weight = self.weights(y, weight, None if len(net.weight) == 1 else len(net.weight))
        if weight is None or bool(weight.any()):
            lr = float(self.trainer.optimizers[0].param_groups[0]["lr"])
            scores = descend(net, self.head, x, y, lr, sample_weight=weight)
        else:  # which moves nothing
            scores = self(x).detach()
        losses = self.head.loss(scores, y, reduction="none")
        losses = losses if weight is None else losses * weight.to(losses)
        self.is_new(batch_idx)
        self.metric("train").update(losses, scores, y, weight, norm)
        return losses.mean()

    def backward(self, loss: Tensor, *args: Any, **options: Any) -> None:
        """With ``update="sample"`` nothing: the weights have moved, and the optimizer finds no gradients."""
        if self.update == "batch":
            super().backward(loss, *args, **options)

    def on_fit_start(self) -> None:
        """Refuse what ``update="sample"`` would ignore, or what would give other weights in each process."""
        if self.update == "batch":
            return
        trainer, optimizer = self.trainer, self.trainer.optimizers[0]
        found = [name for name in _SGD_OPTIONS if any(group.get(name) for group in optimizer.param_groups)]
        found += [] if isinstance(optimizer, torch.optim.SGD) else [type(optimizer).__name__]
        found += ["several parameter groups"] if len(optimizer.param_groups) > 1 else []
        found += ["accumulate_grad_batches"] if trainer.accumulate_grad_batches > 1 else []
        found += ["gradient_clip_val"] if trainer.gradient_clip_val else []
        found += [f"precision={trainer.precision!r}"] if "mixed" in str(trainer.precision) else []
        found += [f"{trainer.world_size} processes"] if trainer.world_size > 1 else []
        found += ["requires_grad=False"] if not all(each.requires_grad for each in self.net.parameters()) else []
        if found:
            raise ValueError(
                f"update='sample' makes the steps of plain SGD in one process, found {', '.join(found)}; use "
                "update='batch'"
            )

    def warn_of_a_large_lr(self, batch: Any) -> None:
        """Warn if plain full-batch descent in one process is certain to diverge."""
        net, lr, squared = uncompiled(self.net), self.lr or 0.0, isinstance(self.head, SquaredHead)
        alone = self.trainer.world_size == 1 and self.trainer.num_training_batches == 1
        if not alone or self.make_optimizer is not None or not isinstance(net, nn.Linear):
            return
        X = self.unpack(batch)[0].detach().cpu()
        numbers = X.values().numel() if X.layout == torch.sparse_csr else X.numel()
        if not (squared or isinstance(self.head, LogisticHead)) or numbers * X.shape[1] > _WORTH_A_LOOK:
            return
        if X.dtype.itemsize >= 4 and X.shape[1] == net.in_features:
            units = len(net.weight)
            options: dict[str, Any] = {"bias": net.bias is not None, "num_classes": None if units == 1 else units}
            if rate_warning(lr if squared else lr / _LOGISTIC_BEARS, self.head, X, **options):
                warnings.warn(str(rate_warning(lr, self.head, X, **options)), UserWarning, stacklevel=2)

    def kind(self) -> dict[str, Any]:
        """Return what a run must have in common with the checkpoint that it resumes from."""
        made = described_factory(self.make_optimizer)
        optimizer = made["class_path"] if isinstance(made, dict) else made
        return {**super().kind(), "update": self.update, "optimizer": optimizer}
