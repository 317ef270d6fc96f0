"""Gradient descent under a Lightning Trainer: optimizer, scheduler, a step per batch or per sample."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from torchperc._checks import check_choice, check_number, is_sparse
from torchperc.descent.sgd import check_linear, descend
from torchperc.lightning.base import LitModel
from torchperc.lightning.metrics import exact_dtype
from torchperc.model.describe import as_factory, described_factory, uncompiled
from torchperc.nn.heads import Head, LogisticHead, SquaredHead
from torchperc.samples.process_group import all_reduce, gather
from torchperc.theory import rate_warning

_SGD_OPTIONS = ("momentum", "weight_decay", "dampening", "nesterov", "maximize")
_LOGISTIC_BEARS = 10  # times the limit 2/L: above it a squared error grows forever, the logistic loss flattens out
_WORTH_A_LOOK = 10**9  # multiplications to find the curvature before a run: a fraction of a second


class LitDescent(LitModel):
    """Gradient descent on a head's loss: a step per batch by autograd, or per sample by a compiled loop.

    The arguments are those of :class:`LitClassifier`. They are hyper-parameters, and ``load_from_checkpoint(path)``
    rebuilds torchperc's own nets and heads and torch's optimizers and schedulers; pass others again, as ``net=`` or
    ``optimizer=``.
    """

    def __init__(
        self,
        net: nn.Module,
        head: Head | str,
        lr: float | None = None,
        update: str = "batch",
        optimizer: Callable[[Iterable[nn.Parameter]], Optimizer] | None = None,
        scheduler: Callable[[Optimizer], LRScheduler] | None = None,
        interval: str = "epoch",
        monitor: str | None = None,
    ) -> None:
        super().__init__(net, head)
        self.make_optimizer = as_factory("optimizer", optimizer)
        self.make_scheduler = as_factory("scheduler", scheduler)
        default = 0.1 if optimizer is None else None
        self.lr = default if lr is None else check_number("lr", lr, above=0)
        self.update = check_choice("update", update, ("batch", "sample"))
        self.interval, self.monitor = check_choice("interval", interval, ("epoch", "step")), monitor
        if scheduler is None and (monitor is not None or interval != "epoch"):
            raise ValueError(f"interval={interval!r} and monitor={monitor!r} need a scheduler; leave them out")
        if update == "sample":
            check_linear(uncompiled(self.net))

    def save_arguments(self, **arguments: Any) -> None:
        """Save the arguments of ``__init__`` as hyper-parameters."""
        made = {"optimizer": self.make_optimizer, "scheduler": self.make_scheduler}
        arguments |= {name: described_factory(make) for name, make in made.items()}
        own = {"lr": self.lr, "update": self.update, "interval": self.interval, "monitor": self.monitor}
        super().save_arguments(**own, **arguments)

    def configure_optimizers(self) -> Any:
        """Return the optimizer, and the scheduler if there is one."""
        make: Callable[..., Optimizer] = self.make_optimizer or torch.optim.SGD
        parameters = self.net.parameters()
        optimizer = make(parameters) if self.lr is None else make(parameters, lr=self.lr)
        if self.make_scheduler is None:
            return optimizer
        scheduler = self.make_scheduler(optimizer)
        if isinstance(scheduler, ReduceLROnPlateau) == (self.monitor is None):
            name = type(scheduler).__name__
            raise ValueError(f"monitor={self.monitor!r} with {name}; ReduceLROnPlateau needs one, such as 'loss/val'")
        config = {"scheduler": scheduler, "interval": self.interval, "monitor": self.monitor}
        return {"optimizer": optimizer, "lr_scheduler": config}

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        """Return the mean loss of a batch; with ``update="sample"``, after a step for each of its samples."""
        if self.update == "sample":
            return self.sample_steps(batch)
        if batch_idx == 0 and self.trainer.global_step == 0:
            self.warn_of_a_large_lr(batch)
        return self.batch_mean(self.step(batch, "train"))

    def batch_mean(self, losses: Tensor) -> Tensor:
        """Return the mean over the batch of all processes, such that DDP's mean of gradients is its gradient."""
        processes = self.trainer.world_size
        if processes == 1:
            return losses.mean()
        sums = torch.stack([losses.detach().sum(), losses.new_tensor(len(losses))]).to(exact_dtype(losses.device))
        total, samples = all_reduce(sums)
        own = losses.sum() * (processes / samples).to(losses)
        mean: Tensor = own + ((total / samples).to(losses) - own.detach())  # the value that a line search compares
        return mean

    def on_train_start(self) -> None:
        """Refuse processes with different numbers of batches, which would wait for each other forever."""
        counts = gather(self.trainer.num_training_batches)
        if len(set(counts)) > 1:
            raise ValueError(f"the number of batches per epoch differs between processes: {counts}; use a SliceLoader")

    def kind(self) -> dict[str, Any]:
        """Return what a run must have in common with the checkpoint that it resumes from."""
        made = described_factory(self.make_optimizer)
        optimizer = made["class_path"] if isinstance(made, dict) else made
        return {**super().kind(), "update": self.update, "optimizer": optimizer}

    # --- update="sample" ---

    def sample_steps(self, batch: Any) -> Tensor:
        """Make a step for each sample of a batch; return the mean loss before the steps."""
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
        self.metric("train").add(losses, scores, y, weight, norm)
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
        options = {name: any(group.get(name) for group in optimizer.param_groups) for name in _SGD_OPTIONS}
        options |= {
            type(optimizer).__name__: not isinstance(optimizer, torch.optim.SGD),
            "several parameter groups": len(optimizer.param_groups) > 1,
            "accumulate_grad_batches": trainer.accumulate_grad_batches > 1,
            "gradient_clip_val": bool(trainer.gradient_clip_val),
            f"precision={trainer.precision!r}": "mixed" in str(trainer.precision),
            f"{trainer.world_size} processes": trainer.world_size > 1,
            "requires_grad=False": not all(each.requires_grad for each in self.net.parameters()),
        }
        if found := [name for name, holds in options.items() if holds]:
            raise ValueError(
                f"update='sample' makes the steps of plain SGD in one process, found {', '.join(found)}; use 'batch'"
            )

    def warn_of_a_large_lr(self, batch: Any) -> None:
        """Warn if plain full-batch descent in one process is certain to diverge."""
        net, lr, squared = uncompiled(self.net), self.lr or 0.0, isinstance(self.head, SquaredHead)
        alone = self.trainer.world_size == 1 and self.trainer.num_training_batches == 1
        if not alone or self.make_optimizer is not None or not isinstance(net, nn.Linear):
            return
        X = self.unpack(batch)[0].detach().cpu()
        numbers = X.values().numel() if X.layout == torch.sparse_csr else X.numel()
        known = (squared or isinstance(self.head, LogisticHead)) and numbers * X.shape[1] <= _WORTH_A_LOOK
        if known and X.dtype.itemsize >= 4 and X.shape[1] == net.in_features:
            classes = None if len(net.weight) == 1 else len(net.weight)
            warned = partial(rate_warning, head=self.head, X=X, bias=net.bias is not None, num_classes=classes)
            if warned(lr if squared else lr / _LOGISTIC_BEARS):
                warnings.warn(str(warned(lr)), UserWarning, stacklevel=2)
