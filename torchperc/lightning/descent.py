"""Gradient descent under a Lightning Trainer, whatever the scores mean: what classifier and regressor share."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from torchperc._checks import check_choice, check_number
from torchperc.descent.sgd import LinearNet, check_linear, descend
from torchperc.lightning.base import WEIGHTS_ALONE, LitNet, Samples, padded
from torchperc.lightning.checkpoints import CheckpointError, plain
from torchperc.lightning.metrics import EpochSums
from torchperc.model.describe import as_factory, described_factory, uncompiled
from torchperc.nn import functional as tpf
from torchperc.nn.heads import Head, LogisticHead, SquaredHead
from torchperc.rules.make_problem import check_net
from torchperc.samples import process_group
from torchperc.theory import rate_warning

UPDATES = ("batch", "sample")
INTERVALS = ("epoch", "step")
_REMOVED = {  # what checkpoints of 0.2 may have been made with
    "module": ("LitLeastSquares", "use tp.minimise, or load the weights into a LitRegressor by load_state_dict"),
    "lr": ("auto", f"pass lr=tp.theory.auto_lr(head, X), or {WEIGHTS_ALONE}"),
    "start": ("two-sample", WEIGHTS_ALONE),
    "class_weight": ("balanced", f"pass class_weight=tp.functional.balanced_weights(y), or {WEIGHTS_ALONE}"),
}
_LOGISTIC_BEARS = 10  # times the limit 2/L: above it a squared error grows forever, the logistic loss flattens out
_WORTH_A_LOOK = 10**9  # multiplications to find the curvature before a run: a fraction of a second


class LitDescent(LitNet):
    """What :class:`LitClassifier` and :class:`LitRegressor` share: options, steps, epochs and checkpoints of descent.

    Arguments are those of :class:`LitClassifier`.
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
        super().__init__(net, head)
        self._optimizer, self._scheduler = as_factory("optimizer", optimizer), as_factory("scheduler", scheduler)
        if lr is not None and optimizer is not None:
            raise ValueError(
                f"lr={lr} is for the default optimizer; give the learning rate to your optimizer and leave lr out "
                "(lr=None), or the optimizer (optimizer=None)"
            )
        if optimizer is None:  # else there is no lr to look up, which Lightning's learning rate finder relies on
            self.lr = 0.1 if lr is None else check_number("lr", lr, above=0)
        self.update = check_choice("update", update, UPDATES)
        self.interval = check_choice("interval", interval, INTERVALS)
        self.monitor = monitor
        if self._scheduler is None and (monitor is not None or interval != "epoch"):
            raise ValueError("interval and monitor are for a scheduler, and there is none; leave them out")
        if update == "sample":
            check_linear(uncompiled(self.net))
        self._lr_used = math.nan
        self._sums = self._new_sums()
        self._counted: tuple[int, int] | None = None
        options = {"lr": getattr(self, "lr", None), "update": update, "interval": interval, "monitor": monitor}
        self.save_hyperparameters(plain({**self._described(), **options}))

    def _described(self) -> dict[str, Any]:
        described = {"optimizer": described_factory(self._optimizer), "scheduler": described_factory(self._scheduler)}
        return {**super()._described(), **described}

    # --- optimizers and schedulers ---

    def configure_optimizers(self) -> Any:
        """The optimizer, and the scheduler with its interval."""
        optimizer = self._make_optimizer()
        if self._scheduler is None:
            return optimizer
        scheduler = self._scheduler(optimizer)
        plateau = isinstance(scheduler, ReduceLROnPlateau)
        if plateau and self.monitor is None:
            raise ValueError("ReduceLROnPlateau needs a metric to look at; use monitor='loss/val'")
        if self.monitor is not None and not plateau:
            raise ValueError(f"monitor={self.monitor!r} is for ReduceLROnPlateau, found {type(scheduler).__name__}")
        config = {"scheduler": scheduler, "interval": self.interval, "monitor": self.monitor}
        return {"optimizer": optimizer, "lr_scheduler": config}

    def _make_optimizer(self) -> Optimizer:
        make = self._optimizer or (lambda parameters: torch.optim.SGD(parameters, lr=self.lr))
        optimizer: Optimizer = make(self.net.parameters())
        return optimizer

    def _warn_of_a_large_lr(self, X: Any) -> None:
        """Before the first step of plain full-batch descent in one process."""
        net, alone = uncompiled(self.net), self._processes() == 1 and self.trainer.num_training_batches == 1
        if not alone or self.update == "sample" or self._optimizer is not None or not isinstance(net, LinearNet):
            return
        if not isinstance(self.head, SquaredHead | LogisticHead) or X.dtype.itemsize < 4:
            return
        numbers = X.values().numel() if X.layout == torch.sparse_csr else X.numel()
        if numbers * X.shape[1] <= _WORTH_A_LOOK:
            lr = self.lr if isinstance(self.head, SquaredHead) else self.lr / _LOGISTIC_BEARS
            units, X = len(net.weight), X.detach().cpu()
            options: dict[str, Any] = {"bias": net.bias is not None, "num_classes": None if units == 1 else units}
            if rate_warning(lr, self.head, X, **options):
                warnings.warn(str(rate_warning(self.lr, self.head, X, **options)), UserWarning, stacklevel=2)

    # --- steps ---

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        """One step per batch, or one step per sample."""
        samples = padded(self._samples(batch, "train", batch_idx))
        here = (self.trainer.current_epoch, batch_idx)
        again, self._counted = here == self._counted, here  # LBFGS asks for a loss several times
        if batch_idx == 0 and not again:  # a new epoch, which no hook says of a run resumed at the end of one
            self._sums.reset()
            if self.trainer.global_step == 0:
                self._warn_of_a_large_lr(samples.x)
        self._lr_used = float(self.trainer.optimizers[0].param_groups[0]["lr"])  # before a scheduler's next
        if self.update == "sample":
            return self._step_by_samples(samples)
        loss = self._batch_loss(samples, self._new_sums() if again else self._sums)
        return loss if self._processes() == 1 else self._over_batch(loss, len(samples.y))

    def backward(self, loss: Tensor, *args: Any, **options: Any) -> None:
        """With ``update="sample"`` nothing: the weights have moved, and the optimizer finds no gradients."""
        if self.update == "batch":
            super().backward(loss, *args, **options)

    def _over_batch(self, loss: Tensor, count: int) -> Tensor:
        """Rescale the loss so that DDP's averaging gives the gradient of the mean over all processes."""
        own = torch.tensor(float(count), dtype=torch.float64, device=loss.device)
        total, samples = process_group.all_reduce(torch.stack([loss.detach() * own, own]))
        scaled: Tensor = loss * (own / samples * self._processes()).to(loss.dtype)
        mean: Tensor = (total / samples).to(loss.dtype)  # the value, too, as a line search compares values
        return mean + (scaled - scaled.detach())

    def _batch_loss(self, samples: Samples, sums: EpochSums) -> Tensor:
        x, y, weight = samples
        if self.chains and not len(y):  # as below
            sums.add(0, None, None)
            return torch.stack([values.sum() * 0 for values in self.net.parameters()]).sum()
        scores = self(x)
        factors = self._factors(scores, y, weight)
        losses, known = self._losses(scores, y)
        if not len(y):  # other processes have samples, and wait for the gradient of this one
            sums.add(0, None, None)
            return losses.sum()
        sums.add(len(y), self._tally(scores if self.chains else scores.detach(), y, factors, known), self._length())
        return losses.mean() if factors is None else (losses * factors.to(losses)).mean()

    def _step_by_samples(self, samples: Samples) -> Tensor:
        x, y, weight = samples
        if tpf.is_sparse(x) and x.device.type != "cpu":
            raise ValueError("update='sample' needs sparse samples on the CPU; use Trainer(accelerator='cpu')")
        length, net = self._length(), check_linear(uncompiled(self.net))
        factors = self._factors(net.weight.T.squeeze(-1), y, weight)  # which has the shape of scores
        learns = factors is None or bool(factors.any())  # a batch may hold nothing but weights of 0
        lr = self._lr_used
        scores = descend(net, self.head, x, y, lr, sample_weight=factors) if learns else self(x).detach()
        found = self._tally(scores, y, factors)
        self._sums.add(len(y), found, length)
        return found.loss / len(y)  # type: ignore[no-any-return]  # a tensor

    def _length(self) -> Tensor | None:
        """‖w‖ of a linear net, which turns a slack into a distance; ``None`` for other nets."""
        weight = getattr(self.net, "weight", None)
        return None if weight is None or self.chains else torch.linalg.vector_norm(weight.detach())

    # --- epochs ---

    def setup(self, stage: str) -> None:
        """Refuse the learning rate finder if there is no learning rate to set."""
        finds = any(type(callback).__name__ == "LearningRateFinder" for callback in self.trainer.callbacks)  # type: ignore[attr-defined]
        if finds and self._optimizer is not None:
            raise ValueError("the learning rate finder sets lr, which your optimizer does not use; leave it out")

    def on_fit_start(self) -> None:
        """Refuse what would be ignored or give other results."""
        if self.update == "sample":
            self._refuse("update='sample', one step per sample in turn,", "update='batch' or devices=1")
            check_net(uncompiled(self.net))
            trainer, optimizer = self.trainer, self.trainer.optimizers[0]
            names = ("momentum", "weight_decay", "dampening", "nesterov", "maximize")
            extras = [name for name in names if any(group.get(name) for group in optimizer.param_groups)]
            extras += ["several parameter groups"] if len(optimizer.param_groups) > 1 else []
            extras += ["accumulate_grad_batches"] if trainer.accumulate_grad_batches > 1 else []
            extras += ["gradient_clip_val"] if trainer.gradient_clip_val else []
            if not isinstance(optimizer, torch.optim.SGD) or extras:
                found = type(optimizer).__name__ + (f" with {', '.join(extras)}" if extras else "")
                raise ValueError(f"update='sample' makes the steps of plain SGD, found {found}; use update='batch'")

    def on_train_start(self) -> None:
        """Refuse processes with different numbers of batches, which would wait for each other forever."""
        if self._processes() > 1:
            process_group.check_same_options({"the number of batches per epoch": self.trainer.num_training_batches})

    def on_train_batch_end(self, *_: Any) -> None:
        """Log the epoch after its last batch, before any callback looks at it."""
        trainer = self.trainer
        if trainer.is_last_batch or trainer.global_step == trainer.max_steps:
            self._log_epoch()

    def on_train_epoch_end(self) -> None:
        """Log an epoch that was cut short, as by ``max_time``."""
        self._log_epoch()

    def _log_epoch(self) -> None:
        if not self._sums.begun:
            return
        values = self._over_processes(self._sums).means(self.net.parameters())
        if self._length() is None:
            values.pop("margin", None)  # a slack is a distance only where there is one hyperplane
        values["lr"] = self._lr_used
        self._log({f"{name}/train" if name in self._measures else name: value for name, value in values.items()})
        self._sums.reset()

    # --- checkpoints ---

    def _kind(self) -> dict[str, Any]:
        optimizer = type(self._make_optimizer()).__name__
        kind: dict[str, Any] = {"module": type(self).__name__, "update": self.update, "optimizer": optimizer}
        if self._processes() > 1:
            kind["processes"] = self._processes()
        return {**super()._kind(), **kind}

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Save the sums of the epoch so far, too: those of every process."""
        super().on_save_checkpoint(checkpoint)
        sums = self._sums.state_dict()
        checkpoint["sums"] = sums if self._processes() == 1 else process_group.gather(sums)

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Resume with the sums of the epoch; refuse what needs something that 0.3 removed."""
        given = {**checkpoint.get("torchperc", {}), **checkpoint.get("hyper_parameters", {})}
        for name, (value, instead) in _REMOVED.items():
            if given.get(name) == value:
                raise CheckpointError(f"the checkpoint needs {name}={value!r}, which torchperc 0.3 removed; {instead}")
        super().on_load_checkpoint(checkpoint)
        sums = checkpoint["sums"]
        if isinstance(sums, list):
            sums = sums[self.trainer.global_rank if self._is_fitting() else 0]
        self._sums.load_state_dict(sums)
