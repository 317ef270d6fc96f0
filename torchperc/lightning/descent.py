"""Gradient descent under a Lightning Trainer, whatever the scores mean: what classifier and regressor share."""

from __future__ import annotations

import math
import warnings
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from torchperc import _checks as checks
from torchperc.descent.sgd import LinearNet, check_linear, descend
from torchperc.lightning._pl import pl
from torchperc.lightning.base import LitNet, Samples, pieces
from torchperc.lightning.checkpoints import plain
from torchperc.lightning.loader import Mapped, SliceLoader, is_mapped
from torchperc.lightning.metrics import Sums
from torchperc.model.describe import as_factory, described_factory, uncompiled
from torchperc.nn import functional as tpf
from torchperc.nn.derivatives import curvature_bound, safe_lr
from torchperc.nn.heads import Head, LogisticHead, SquaredHead, loss_code
from torchperc.rules.problem import check_net
from torchperc.samples import shards
from torchperc.samples.parts import rows_as_read
from torchperc.samples.rows import CsrRows, DenseRows, Rows
from torchperc.theory import auto_lr, rate_warning

UPDATES = ("batch", "sample")
STARTS = ("as-is", "two-sample")
INTERVALS = ("epoch", "step")


class LitDescent(LitNet):
    """What :class:`LitClassifier` and :class:`LitRegressor` share: options, steps, epochs and checkpoints of descent.

    Arguments are those of :class:`LitClassifier`.
    """

    _starts: str  # what two samples are a start for

    def __init__(
        self,
        net: nn.Module,
        head: Head | str,
        lr: float | str | None,
        update: str,
        optimizer: Callable[[Iterable[nn.Parameter]], Optimizer] | None,
        scheduler: Callable[[Optimizer], LRScheduler] | None,
        start: str,
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
        self._auto = isinstance(lr, str) and checks.one_of("lr", lr, ("auto",)) == "auto"
        if optimizer is None:  # else there is no lr to look up, which Lightning's learning rate finder relies on
            self.lr = 0.1 if lr is None or isinstance(lr, str) else checks.number("lr", lr, above=0)
        self.update = checks.one_of("update", update, UPDATES)
        self.start = checks.one_of("start", start, STARTS)
        self.interval = checks.one_of("interval", interval, INTERVALS)
        self.monitor = monitor
        if self._scheduler is None and (monitor is not None or interval != "epoch"):
            raise ValueError("interval and monitor are for a scheduler, and there is none; leave them out")
        for asked, what in ((self._auto, "lr='auto'"), (start != "as-is", f"start={start!r}")):
            if asked and not isinstance(uncompiled(self.net), LinearNet):
                raise TypeError(f"{what} needs a linear net, found {type(uncompiled(self.net)).__name__}; leave it out")
        if update == "sample" or start == "two-sample":
            net = self._linear()
            if start == "two-sample" and len(net.weight) > 1:
                raise ValueError(
                    f"start='two-sample' is for {self._starts}, the net has {len(net.weight)}; leave it out"
                )
        self.automatic_optimization = update == "batch"
        self._lr_used = math.nan
        self._sums = self._new_sums()
        self._begun = False
        self._compared = True
        self._counted: tuple[int, int] | None = None
        options = {"update": update, "start": start, "interval": interval, "monitor": monitor}
        self.save_hyperparameters(plain({**self._described(), "lr": None if optimizer else lr or self.lr, **options}))

    def _linear(self) -> LinearNet:
        return check_linear(uncompiled(self.net))

    def _described(self) -> dict[str, Any]:
        described = {"optimizer": described_factory(self._optimizer), "scheduler": described_factory(self._scheduler)}
        return {**super()._described(), **described}

    # --- optimizers and schedulers ---

    def configure_optimizers(self) -> Any:
        """The optimizer, and the scheduler with its interval."""
        if self._auto:
            self.lr = self._largest_safe_lr()
        optimizer = self._make_optimizer()
        if self._scheduler is None:
            return optimizer
        scheduler = self._scheduler(optimizer)
        config = {"scheduler": scheduler, "interval": self.interval}
        if isinstance(scheduler, ReduceLROnPlateau):
            if self.monitor is None:
                raise ValueError("ReduceLROnPlateau needs a metric to look at; use monitor='loss/val'")
            if self.automatic_optimization:
                config["monitor"] = self.monitor
            elif self.interval == "step":  # the module steps it itself
                raise ValueError(
                    "with update='sample' ReduceLROnPlateau steps at the end of an epoch; use interval='epoch'"
                )
        elif self.monitor is not None:
            raise ValueError(f"monitor={self.monitor!r} is for ReduceLROnPlateau, found {type(scheduler).__name__}")
        return {"optimizer": optimizer, "lr_scheduler": config}

    def _make_optimizer(self) -> Optimizer:
        make = self._optimizer or (lambda parameters: torch.optim.SGD(parameters, lr=self.lr))
        optimizer: Optimizer = make(self.net.parameters())
        return optimizer

    def _largest_safe_lr(self) -> float:
        loader, size = train_loader(self.trainer), None
        if isinstance(loader, SliceLoader):
            size = "full" if len(loader) == 1 else loader.batch_size
        options = self._curvature(1 if self.update == "sample" else size)
        if isinstance(loader, SliceLoader) and self._sees_all(loader) and not is_mapped(loader.X):
            return auto_lr(self.head, loader.X.float() if loader.X.dtype.itemsize < 4 else loader.X, **options)
        spread = not self._sees_all(loader)
        return _auto_lr_of_batches(self.head, self._batches_before("lr='auto'"), **options, spread=spread)

    def _curvature(self, batch_size: int | str | None) -> dict[str, Any]:
        """What the largest learning rate depends on, besides head and data."""
        net = self._linear()
        classes = None if len(net.weight) == 1 else len(net.weight)
        return {"bias": net.bias is not None, "num_classes": classes, "batch_size": batch_size}

    def _warn_of_a_large_lr(self, X: Tensor) -> None:
        """Before the first step of full-batch descent."""
        net = uncompiled(self.net)
        if self._auto or self._optimizer is not None or not isinstance(net, LinearNet):
            return
        if not isinstance(self.head, SquaredHead | LogisticHead) or X.dtype.itemsize < 4:
            return
        numbers = X.values().numel() if X.layout == torch.sparse_csr else X.numel()
        if numbers * X.shape[1] <= _WORTH_A_LOOK:
            # above the limit a squared error grows forever; the logistic loss flattens out
            lr = self.lr if isinstance(self.head, SquaredHead) else self.lr / _LOGISTIC_BEARS
            X, options = X.detach().cpu(), self._curvature("full")
            if rate_warning(lr, self.head, X, **options):
                warnings.warn(str(rate_warning(self.lr, self.head, X, **options)), UserWarning, stacklevel=2)

    # --- steps ---

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        """One step per batch, or one step per sample."""
        samples = self._samples(batch, "train", batch_idx)
        here = (self.trainer.current_epoch, batch_idx)
        again, self._counted = here == self._counted, here  # LBFGS asks for a loss several times
        if batch_idx == 0 and not again:  # a new epoch, which no hook says of a run resumed at the end of one
            self._sums.reset()
        first = self.trainer.global_step == 0 and self.trainer.num_training_batches == 1
        if not self._compared:
            self._compared = True
            shards.agreed("the shape of a sample", tuple(samples.x.shape[1:]))
        loader: Any = self.trainer.train_dataloader
        X = samples.x if self._processes() == 1 else loader.X if self._sees_all(loader) else None
        if first and not again and self.update == "batch" and isinstance(X, Tensor) and self.trainer.is_global_zero:
            self._warn_of_a_large_lr(X)
        self._lr_used = float(self.trainer.optimizers[0].param_groups[0]["lr"])  # before a scheduler's next
        if self.update == "sample":
            loss = self._step_by_samples(samples)
            for config in self.trainer.lr_scheduler_configs:  # here, before a callback saves the batch's state
                due = self.trainer.is_last_batch or config.interval == "step"
                if due and not isinstance(config.scheduler, ReduceLROnPlateau):
                    config.scheduler.step()
            return loss
        sums = self._new_sums() if again else self._sums
        loss = self._accumulated(samples, sums) if isinstance(samples.x, Mapped) else self._batch_loss(samples, sums)
        return loss if self._processes() == 1 else self._over_batch(loss, len(samples.y))

    def _over_batch(self, loss: Tensor, count: int) -> Tensor:
        """The mean loss of the batch of all processes, whose mean gradient is what DDP makes of their gradients."""
        own = torch.tensor(float(count), dtype=torch.float64, device=loss.device)
        total, samples = shards.summed(torch.stack([loss.detach() * own, own]))
        scaled: Tensor = loss * (own / samples * self._processes()).to(loss.dtype)
        mean: Tensor = (total / samples).to(loss.dtype)  # the value, too, as a line search compares values
        return mean + (scaled - scaled.detach())

    def _batch_loss(self, samples: Samples, sums: Sums) -> Tensor:
        x, y, weight = samples
        scores = self(x)
        factors = self._factors(scores, y, weight)
        losses = self.head.loss(scores, y, reduction="none")
        if not len(y):  # other processes have samples, and wait for the gradient of this one
            sums.add(0, None, None)
            return losses.sum()
        sums.add(len(y), self._tally(scores.detach(), y, factors, losses.detach()), self._length())
        return losses.mean() if factors is None else (losses * factors.to(scores.dtype)).mean()

    def _step_by_samples(self, samples: Samples) -> Tensor:
        optimizer = self.optimizers()
        length, net = self._length(), self._linear()
        total = torch.zeros((), dtype=torch.float64, device=samples.y.device)
        for x, y, weight in pieces(samples):
            if tpf.is_sparse(x) and x.device.type != "cpu":
                raise ValueError("update='sample' needs sparse samples on the CPU; use Trainer(accelerator='cpu')")
            factors = self._factors(net.weight.T.squeeze(-1), y, weight)  # which has the shape of scores
            lr = optimizer.param_groups[0]["lr"]  # type: ignore[union-attr]  # there is one optimizer
            learns = factors is None or bool(factors.any())  # a batch may hold nothing but weights of 0
            scores = descend(net, self.head, x, y, float(lr), sample_weight=factors) if learns else self(x).detach()
            found = self._tally(scores, y, factors)
            self._sums.add(len(y), found, length)
            total = total.to(found.loss.device) + found.loss
        optimizer.step()  # type: ignore[union-attr]  # no gradients, so nothing moves: it counts the step
        return total / len(samples.y)

    def _accumulated(self, samples: Samples, sums: Sums) -> Tensor:
        """The mean loss of samples larger than memory; it has the gradient that was added up piece by piece."""
        parameters = [p for p in self.net.parameters() if p.requires_grad]
        gradient = [torch.zeros_like(p) for p in parameters]
        total = torch.zeros((), dtype=torch.float64, device=samples.y.device)
        for part in pieces(samples):
            loss = self._batch_loss(part, sums)
            fraction = len(part.y) / len(samples.y)
            for total_g, g in zip(gradient, torch.autograd.grad(loss, parameters, allow_unused=True), strict=True):
                if g is not None:
                    total_g.add_(g, alpha=fraction)
            total += loss.detach() * fraction
        slope = torch.stack([(p * g).sum() for p, g in zip(parameters, gradient, strict=True)]).sum()
        return total.to(slope.dtype) + (slope - slope.detach())

    def _length(self) -> Tensor | None:
        """‖w‖ of a linear net, which turns a slack into a distance; ``None`` for other nets."""
        weight = getattr(self.net, "weight", None)
        return None if weight is None else torch.linalg.vector_norm(weight.detach())

    # --- epochs ---

    def setup(self, stage: str) -> None:
        """Refuse the learning rate finder if there is no learning rate to set, and processes that differ."""
        finds = any(type(callback).__name__ == "LearningRateFinder" for callback in self.trainer.callbacks)  # type: ignore[attr-defined]
        if finds and (self._auto or self._optimizer is not None):
            what = "lr='auto'" if self._auto else "an optimizer of its own"
            raise ValueError(f"the learning rate finder sets lr, which {what} does not use; give lr a number")
        if stage == "fit":
            self._agree()
            self._compared = self._processes() == 1

    def on_fit_start(self) -> None:
        """Refuse what would be ignored or give other results."""
        if self.update == "sample":
            self._refuse("update='sample', one step per sample in turn,", "update='batch' or devices=1")
            check_net(uncompiled(self.net))
            optimizer = self.trainer.optimizers[0]
            names = ("momentum", "weight_decay", "dampening", "nesterov", "maximize")
            extras = [name for name in names if any(group.get(name) for group in optimizer.param_groups)]
            extras += ["several parameter groups"] if len(optimizer.param_groups) > 1 else []
            if not isinstance(optimizer, torch.optim.SGD) or extras:
                found = type(optimizer).__name__ + (f" with {', '.join(extras)}" if extras else "")
                raise ValueError(f"update='sample' makes the steps of plain SGD, found {found}; use update='batch'")

    def on_train_start(self) -> None:
        """The two-sample start, which reads training data."""
        loader: Any = train_loader(self.trainer)
        if self._processes() > 1:
            shards.agreed("the number of batches per epoch", self.trainer.num_training_batches)
            shards.agreed("the number of samples", len(loader.y) if self._sees_all(loader) else None)
        begun, self._begun = self._begun, True
        if self.start == "two-sample" and not begun:
            weight, bias = self._two_sample_start(self._batches_before(), spread=not self._sees_all(loader))
            net = self._linear()
            with torch.no_grad():
                net.weight.copy_(weight)
                if net.bias is not None:
                    net.bias.copy_(bias)

    @abstractmethod
    def _two_sample_start(self, batches: Iterator[Samples], *, spread: bool) -> tuple[Tensor, Tensor]:
        """Weight and bias to start from; with ``spread`` each process has a part of every batch."""

    def on_train_batch_end(self, *_: Any) -> None:
        """Log the epoch after its last batch, before any callback looks at it."""
        trainer = self.trainer
        if trainer.is_last_batch or trainer.global_step == trainer.max_steps:
            self._log_epoch()

    def on_train_epoch_end(self) -> None:
        """Log an epoch that was cut short, as by ``max_time``."""
        self._log_epoch()
        scheduler = self.lr_schedulers()
        if not self.automatic_optimization and isinstance(scheduler, ReduceLROnPlateau):
            metrics = self.trainer.callback_metrics
            if self.monitor in metrics:
                scheduler.step(metrics[self.monitor])
            elif not self.trainer.fit_loop.restarting:  # then it was there before the checkpoint was made
                known = ", ".join(sorted(metrics)) or "none"
                raise ValueError(f"monitor={self.monitor!r} was not logged in this epoch; the metrics are {known}")

    def _log_epoch(self) -> None:
        if not self._sums.begun:
            return
        values = self._over_processes(self._sums).means(self.net.parameters())
        if self._length() is None:
            values.pop("margin", None)  # a slack is a distance only where there is one hyperplane
        values["lr"] = self._lr_used
        self._log({f"{name}/train" if name in self._measures else name: value for name, value in values.items()})
        self._sums.reset()

    # --- a look at the training data ---

    def _batches_before(self, needs_all: str | None = None) -> Iterator[Samples]:
        """The training batches, in a pass that changes no random draw of the training."""
        loader, count = train_loader(self.trainer), self.trainer.num_training_batches
        if isinstance(loader, SliceLoader):  # which remembers how far it has been read
            yield Samples(loader.X, loader.y, None)
            return
        if needs_all is not None and math.isinf(count):
            raise ValueError(f"{needs_all} needs to read all training data, and the loader has no length; leave it out")
        with _draws_unchanged(loader):
            for number, batch in enumerate(islice(loader, None if math.isinf(count) else int(count))):
                yield self._samples(batch, "train", number)

    def _sees_all(self, loader: Any) -> bool:
        """Whether :meth:`_batches_before` gives this process all samples, not a part of them."""
        return self._processes() == 1 or (isinstance(loader, SliceLoader) and loader.sharding != "own")

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
        checkpoint["sums"] = sums if self._processes() == 1 else shards.gathered(sums)
        checkpoint["begun"] = self._begun

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Resume with the sums of the epoch."""
        super().on_load_checkpoint(checkpoint)
        sums = checkpoint["sums"]
        if isinstance(sums, list):
            sums = sums[self.trainer.global_rank if self._is_fitting() else 0]
        self._sums.load_state_dict(sums)
        self._begun = checkpoint["begun"]


_LOGISTIC_BEARS = 10
_WORTH_A_LOOK = 10**9  # multiplications to find the curvature before a run: a fraction of a second
_DIRECT = 2000


def train_loader(trainer: pl.Trainer) -> Any:
    """The loader of the training data, also before the Trainer has made it."""
    if trainer.train_dataloader is None:  # optimizers are made before loaders are
        trainer.fit_loop.setup_data()
    return trainer.train_dataloader


@contextmanager
def _draws_unchanged(loader: Any) -> Iterator[None]:
    """Restore all random states that a pass over a ``DataLoader`` uses."""
    owners = (loader, getattr(loader, "sampler", None))
    generators = [g for g in (getattr(owner, "generator", None) for owner in owners) if isinstance(g, torch.Generator)]
    states = [generator.get_state() for generator in generators]
    try:
        with torch.random.fork_rng(devices=[]):
            yield
    finally:
        for generator, state in zip(generators, states, strict=True):
            generator.set_state(state)


def rows_of(X: Any) -> Rows:
    """The samples of a batch."""
    if is_mapped(X):
        return rows_as_read(X)
    return CsrRows(checks.as_csr(X)) if checks.is_sparse(X) else DenseRows(X)


def _auto_lr_of_batches(
    head: Head,
    batches: Iterator[Samples],
    *,
    bias: bool,
    num_classes: int | None,
    batch_size: int | str | None,
    spread: bool,
) -> float:
    """1/L in one pass over batches, see :mod:`torchperc.theory.rates`; ``batch_size=None`` is that of the batches.

    With ``spread`` each process has a part of every batch.
    """
    bound = curvature_bound(loss_code(head)[0], num_classes or 1)
    if not bound:
        return 1.0
    constant, gram = float(bias), None
    longest = total = 0.0
    sizes = []
    for X, y, _ in batches:
        sizes.append(len(y))
        for part in rows_as_read(X, torch.float64).pieces() if is_mapped(X) else (rows_of(X).double(),):
            if not len(part):
                continue
            lengths = part.squared_norms() + constant
            longest, total = max(longest, float(lengths.max())), total + float(lengths.sum())
            if part.width > _DIRECT:
                continue
            if gram is None:
                gram = torch.zeros(part.width + 1, part.width + 1, dtype=torch.float64)
            raw = part.raw()
            gram[:-1, :-1] += torch.from_numpy((raw.T @ raw).toarray()) if part.sparse else part.mix(part.dense())
            ones = constant * torch.ones(len(part), 1, dtype=torch.float64)
            gram[-1, :-1] += part.mix(ones)[0]
            gram[-1, -1] += ones.square().sum()
    if spread:
        total, *sizes = shards.summed(torch.tensor([total, *sizes], dtype=torch.float64)).tolist()
        longest = -float(shards.least(torch.tensor(-longest, dtype=torch.float64)))
        if width := max(shards.gathered(0 if gram is None else len(gram))):
            gram = shards.summed(torch.zeros(width, width, dtype=torch.float64) if gram is None else gram)
    if gram is not None:
        gram[:-1, -1] = gram[-1, :-1]
        total = min(total, float(torch.linalg.eigvalsh(gram)[-1]) * (1 + 1e-12))
    if batch_size is not None:
        size = sum(sizes) if isinstance(batch_size, str) else batch_size
        sizes = [size, sum(sizes) % size or size]
    curvature = longest if max(sizes) == 1 else min(longest, total / min(sizes))
    return safe_lr(bound * curvature)
