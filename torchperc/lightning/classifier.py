"""Gradient descent under a Lightning Trainer: any net that gives scores, any head."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.trainer.states import TrainerFn
from pytorch_lightning.utilities.types import OptimizerLRScheduler
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from torchperc import checks
from torchperc import functional as tpf
from torchperc.descent import LinearNet, check_linear, descend
from torchperc.heads import Head, LMSHead, LogisticHead
from torchperc.heads import head as head_by_name
from torchperc.lightning.checkpoints import CheckpointError
from torchperc.lightning.loader import Mapped, SliceLoader, is_mapped
from torchperc.lightning.metrics import EpochSums
from torchperc.rules.parts import rows_as_read
from torchperc.theory import auto_lr, rate_warning
from torchperc.theory.limits import step_limit

UPDATES = ("batch", "sample")
STARTS = ("as-is", "two-sample")
Batch = tuple[Any, Tensor]
"""Samples and labels; samples are a tensor, dense or sparse CSR, or :class:`~torchperc.lightning.loader.Mapped`."""


class LitClassifier(pl.LightningModule):
    """Gradient descent on a head's loss: full batch, mini-batches or one sample at a time, as the loader cuts them.

    Each epoch logs ``loss/train``, ``error/train``, ``mistakes``, ``margin`` and ``norm``, and ``loss/val`` and
    ``error/val`` where there is validation data. Error (wrong decisions) and mistakes (what the head's tie says) are
    counted as samples are presented, before the step they lead to.

    Sparse samples come as tensors of the layout ``torch.sparse_csr``; linear nets and :class:`~torchperc.MLP` take
    them at the cost of their non-zeros. Samples that are larger than memory and come as one batch are gone through a
    part at a time, and a step has the exact gradient of their mean loss.

    Args:
        net: any module that gives scores (N,) for labels −1/+1, or (N, K) for class indices.
        head: what the scores mean: a head, or its name, see :func:`torchperc.heads.head`.
        lr: the rate of the default optimizer, plain SGD; 0.1 if neither it nor an optimizer is given. ``"auto"`` takes
            1/L, L being the curvature of the loss on the training data; for linear nets. Of more than 2000 features
            that are larger than memory, L is bounded by mean ‖x‖². Before full-batch descent a rate that is too large
            is warned of: above 2/L for LMS, ten times that for the logistic loss.
        update: ``"batch"`` makes one step a batch. ``"sample"`` makes one step a sample, in order, in one call for the
            whole batch: the weights of ``batch_size=1`` without its cost. For linear nets and plain SGD.
        optimizer: a function from parameters to an optimizer, such as ``partial(torch.optim.Adam, lr=0.01)``.
        scheduler: a function from an optimizer to a scheduler, stepped once an epoch.
        start: ``"as-is"``, or ``"two-sample"``: the plane through one sample of either class, see
            :func:`torchperc.functional.two_sample_start`.

    Example:
        >>> import torchperc as tp
        >>> lit = tp.lightning.LitClassifier(tp.Perceptron(2), tp.LogisticHead(), lr=0.5)
        >>> lit(torch.zeros(3, 2))
        tensor([0., 0., 0.], grad_fn=<SqueezeBackward1>)
    """

    def __init__(
        self,
        net: nn.Module,
        head: Head | str = "perceptron",
        lr: float | str | None = None,
        update: str = "batch",
        optimizer: Callable[[Iterable[nn.Parameter]], Optimizer] | None = None,
        scheduler: Callable[[Optimizer], LRScheduler] | None = None,
        start: str = "as-is",
    ) -> None:
        super().__init__()
        if not isinstance(net, nn.Module):
            raise TypeError(f"net must be a module that gives scores, found {type(net).__name__}")
        self.net = net
        self.head = head_by_name(head) if isinstance(head, str) else head
        if not isinstance(self.head, Head):
            raise TypeError(f"head must be PerceptronHead(), LMSHead() or LogisticHead(), found {head!r}")
        if lr is not None and optimizer is not None:
            raise ValueError(f"lr={lr} is the rate of the default optimizer; give the rate to your optimizer instead")
        self._auto = isinstance(lr, str) and checks.one_of("lr", lr, ("auto",)) == "auto"
        self.lr = 0.1 if lr is None or isinstance(lr, str) else checks.number("lr", lr, above=0)
        self.update = checks.one_of("update", update, UPDATES)
        self.start = checks.one_of("start", start, STARTS)
        if update == "sample":
            check_linear(net)
            self.automatic_optimization = False
        if start == "two-sample" or self._auto:
            check_linear(net)
        self._optimizer, self._scheduler = optimizer, scheduler
        self.save_hyperparameters(
            {
                "model": type(net).__name__,
                "rule": "gradient",
                "head": type(self.head).__name__.removesuffix("Head").lower(),
                "update_by": update,
                "rate": "optimizer's" if optimizer is not None else lr if self._auto else self.lr,
            }
        )
        self._rate = self.lr
        self._sums = {stage: EpochSums() for stage in ("train", "val", "test")}

    # --- the model ---

    def forward(self, x: Tensor) -> Tensor:
        """Scores."""
        return scores_of(self.net, x)

    def predict_step(self, batch: Batch | Tensor, batch_idx: int = 0) -> Tensor:
        """Labels −1/+1, or class indices."""
        return decided(self, self.head, batch)

    def configure_optimizers(self) -> OptimizerLRScheduler:
        """The optimizer, and the scheduler stepped once an epoch."""
        if self._auto:
            X, _ = _all_batches(self.trainer)
            if is_mapped(X):
                self.lr = _auto_lr_in_parts(self.head, X, **self._curvature())
            else:
                self.lr = auto_lr(self.head, X.float() if X.dtype.itemsize < 4 else X, **self._curvature())
        optimizer = self._make_optimizer()
        if self.update == "sample":
            _check_plain_sgd(optimizer)
        if self._scheduler is None:
            return optimizer
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": self._scheduler(optimizer), "interval": "epoch"}}

    def _curvature(self) -> dict[str, Any]:
        """How the steps are made, as far as the limit of their size depends on it."""
        net = check_linear(self.net)
        classes = None if len(net.weight) == 1 else len(net.weight)
        batches: int | str = 1 if self.update == "sample" else _batch_size(self.trainer)
        return {"bias": net.bias is not None, "num_classes": classes, "batch_size": batches}

    def _warn_of_a_large_rate(self) -> None:
        linear = isinstance(self.net, LinearNet) and isinstance(self.head, LMSHead | LogisticHead)
        if self._auto or self._optimizer is not None or self.update == "sample" or not linear or self.trainer.ckpt_path:
            return
        X, _ = _all_batches(self.trainer)
        if is_mapped(X) or _batch_size(self.trainer) != "full" or X.dtype.itemsize < 4:
            return
        if (X.numel() if isinstance(X, Tensor) else X.nnz) * X.shape[1] <= _WORTH_A_LOOK:
            # a squared error grows for ever above the limit; the logistic loss flattens out, and bears more
            rate = self.lr if isinstance(self.head, LMSHead) else self.lr / _LOGISTIC_BEARS
            X = X.cpu() if isinstance(X, Tensor) else X
            if rate_warning(rate, self.head, X, **self._curvature()):
                said = rate_warning(self.lr, self.head, X, **self._curvature())
                warnings.warn(str(said), UserWarning, stacklevel=2)

    def _make_optimizer(self) -> Optimizer:
        make = self._optimizer or (lambda parameters: torch.optim.SGD(parameters, lr=self.lr))
        return make(self.net.parameters())

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Take along what the epoch has added up to so far, and what kind of run it is."""
        checkpoint["torchperc"] = self._kind()
        checkpoint["sums"] = self._sums["train"].state_dict()

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Refuse the checkpoint of another kind of run; go on with the epoch's sums."""
        check_same_kind(self, checkpoint, self._kind())
        self._sums["train"].load_state_dict(checkpoint["sums"])

    def _kind(self) -> dict[str, str]:
        optimizer = type(self._make_optimizer()).__name__
        return {"run": "gradient", "head": repr(self.head), "update": self.update, "optimizer": optimizer}

    # --- one step for all stages ---

    def _observe(self, scores: Tensor, y: Tensor, stage: str) -> Tensor:
        """Take a batch down under its stage; return its loss."""
        loss = self.head.loss(scores, y)
        self._sums[stage].add(self.head, loss, scores.detach(), y, self._length())
        return loss

    def training_step(self, batch: Batch, batch_idx: int = 0) -> Tensor | None:
        """One step a batch, or one step a sample."""
        x, y = batch
        self._rate = float(self.trainer.optimizers[0].param_groups[0]["lr"])  # of this step, before a scheduler's next
        if self.update == "batch":
            return self._accumulated(x, y) if isinstance(x, Mapped) else self._observe(self(x), y, "train")
        optimizer = self.optimizers()
        assert isinstance(optimizer, pl.core.optimizer.LightningOptimizer)
        length, net = self._length(), check_linear(self.net)
        for part, labels in pieces(x, y):
            if part.layout != torch.strided and part.device.type != "cpu":
                raise ValueError("update='sample' takes sparse samples on the CPU; use Trainer(accelerator='cpu')")
            scores = descend(net, self.head, part, labels, optimizer.param_groups[0]["lr"])
            self._sums["train"].add(self.head, self.head.loss(scores, labels), scores, labels, length)
        optimizer.step()  # no gradients, so nothing moves: it counts the step for checkpoints and max_steps
        return None

    def _accumulated(self, x: Mapped, y: Tensor) -> Tensor:
        """The mean loss of samples larger than memory, with its gradient, a part in memory at a time.

        What is returned has the value of the loss, and in the parameters the gradient that was added up.
        """
        parameters = [p for p in self.net.parameters() if p.requires_grad]
        gradient = [torch.zeros_like(p) for p in parameters]
        total = torch.zeros((), dtype=torch.float64, device=y.device)
        for part, labels in pieces(x, y):
            loss = self._observe(self(part), labels, "train")
            share = len(labels) / len(y)
            for sums, g in zip(gradient, torch.autograd.grad(loss, parameters, allow_unused=True), strict=True):
                if g is not None:
                    sums.add_(g, alpha=share)
            total += loss.detach() * share
        slope = torch.stack([(p * g).sum() for p, g in zip(parameters, gradient, strict=True)]).sum()
        return total.to(slope.dtype) + (slope - slope.detach())

    def validation_step(self, batch: Batch, batch_idx: int = 0) -> None:
        """Loss and error on validation data."""
        for x, y in pieces(*batch):
            self._observe(self(x), y, "val")

    def test_step(self, batch: Batch, batch_idx: int = 0) -> None:
        """Loss and error on test data."""
        for x, y in pieces(*batch):
            self._observe(self(x), y, "test")

    def _length(self) -> Tensor | None:
        """Length of a linear net's weights, by which a slack becomes a distance; ``None`` for other nets."""
        weight = getattr(self.net, "weight", None)
        return None if weight is None else torch.linalg.vector_norm(weight.detach())

    # --- epochs ---

    def on_fit_start(self) -> None:
        """The two-sample start, unless the run is a resumed one; a word if the rate is too large."""
        self._warn_of_a_large_rate()
        if self.start == "two-sample" and self.trainer.ckpt_path is None:
            X, y = _first_of_each(*_all_batches(self.trainer))
            targets = self.head.targets if isinstance(self.head, LMSHead) else "-1/+1"
            weight, bias = tpf.two_sample_start(X, y, targets=targets)
            net = check_linear(self.net)
            with torch.no_grad():
                net.weight.copy_(weight)
                if net.bias is not None:
                    net.bias.copy_(bias)

    def on_train_epoch_start(self) -> None:
        """A new epoch, unless it is the rest of one."""
        self._sums["train"].reset()

    def on_train_batch_end(self, *_: Any) -> None:
        """Log the epoch after its last batch, so that every callback finds it at the end of the epoch."""
        if not self.trainer.is_last_batch:
            return
        values = self._sums["train"].means()
        values["norm"] = math.sqrt(sum(float(p.detach().double().square().sum()) for p in self.net.parameters()))
        values["lr"] = self._rate
        if self._length() is None:
            del values["margin"]  # a slack is a distance only where there is one hyperplane
        log_epoch(self, {_TAGS.get(name, name): value for name, value in values.items()})
        if self.update == "sample" and self._scheduler is not None:  # which manual optimization leaves to us
            scheduler = self.lr_schedulers()
            assert isinstance(scheduler, LRScheduler)
            scheduler.step()

    def on_validation_epoch_start(self) -> None:
        """Forget the last validation."""
        self._sums["val"].reset()

    def on_validation_epoch_end(self) -> None:
        """Log the validation."""
        means = self._sums["val"].means()
        log_epoch(self, {f"{name}/val": means[name] for name in ("loss", "error") if name in means})

    def on_test_epoch_start(self) -> None:
        """Forget the last test."""
        self._sums["test"].reset()

    def on_test_epoch_end(self) -> None:
        """Log the test."""
        means = self._sums["test"].means()
        log_epoch(self, {f"{name}/test": means[name] for name in ("loss", "error") if name in means})


def pieces(x: Any, y: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """A batch as it is, or one that is larger than memory a part at a time, on the labels' device.

    Example:
        >>> [labels.tolist() for _, labels in pieces(torch.zeros(2, 1), torch.tensor([1, -1]))]
        [[1, -1]]
    """
    if not isinstance(x, Mapped):
        yield x, y
        return
    start = 0
    for part in x:
        yield part.to(y.device), y[start : start + len(part)]
        start += len(part)


def scores_of(net: nn.Module, x: Tensor) -> Tensor:
    """Scores of a net; for ``nn.Linear`` and sparse samples by the product that has a quick way back.

    Example:
        >>> scores_of(nn.Linear(2, 3), torch.zeros(4, 2).to_sparse_csr()).shape
        torch.Size([4, 3])
    """
    if x.layout != torch.strided and isinstance(net, nn.Linear):
        return tpf.linear(x, net.weight, net.bias)
    scores: Tensor = net(x)
    return scores


def decided(module: nn.Module, head: Head, batch: Any) -> Tensor:
    """Labels by the scores that a module gives a batch, which may come with labels or without.

    Example:
        >>> decided(nn.Identity(), LogisticHead(), torch.tensor([0.5, -2.0]))
        tensor([ 1, -1])
    """
    x = batch[0] if isinstance(batch, tuple | list) else batch
    if not isinstance(x, Mapped):
        return head.decide(module(x))
    device = next(module.parameters()).device
    return torch.cat([head.decide(module(part.to(device))) for part in x])


def log_epoch(module: pl.LightningModule, values: dict[str, float]) -> None:
    """Log an epoch's values: for callbacks and progress bar while fitting, where :class:`Board` serves the loggers."""
    trainer = module.trainer
    exact = {name: torch.tensor(value, dtype=torch.float64) for name, value in values.items()}
    if (
        trainer.state.fn == TrainerFn.FITTING
    ):  # an epoch's means are ready, and ``log`` would take longer than the epoch
        trainer.callback_metrics.update(exact)
        trainer.progress_bar_metrics.update({name: values[name] for name in _SHOWN if name in values})
        return
    for name, value in exact.items():
        module.log(name, value, on_step=False, on_epoch=True, prog_bar=name in _SHOWN, batch_size=1)


def _is_fitting(module: pl.LightningModule) -> bool:
    trainer = module._trainer  # the public name raises where there is none, as in load_from_checkpoint
    return trainer is not None and trainer.state.fn == TrainerFn.FITTING


def check_same_kind(module: pl.LightningModule, checkpoint: dict[str, Any], kind: dict[str, str]) -> None:
    """Refuse a checkpoint that was made by another kind of run or for another net, before anything is loaded."""
    found = checkpoint.get("torchperc")
    if _is_fitting(module) and found != kind:
        raise CheckpointError(
            f"the checkpoint is of another run: it has {found}, this run is {kind}; resume the same run"
        )
    own = {name: tuple(values.shape) for name, values in module.state_dict().items()}
    saved = {name: tuple(values.shape) for name, values in checkpoint["state_dict"].items()}
    if own != saved:
        raise CheckpointError(f"the checkpoint is of another net: it has {saved}, this net has {own}; use the same net")


_LOGISTIC_BEARS = 10
_WORTH_A_LOOK = 10**9
"""Multiplications for which the curvature is looked at before a run: a fraction of a second."""
_SHOWN = ("loss/train", "error/train", "error/val", "mistakes")
_TAGS = {"loss": "loss/train", "error": "error/train"}


def _check_plain_sgd(optimizer: Optimizer) -> None:
    group = optimizer.param_groups[0]
    extras = [name for name in ("momentum", "weight_decay", "dampening", "nesterov", "maximize") if group.get(name)]
    if not isinstance(optimizer, torch.optim.SGD) or extras:
        found = type(optimizer).__name__ + (f" with {', '.join(extras)}" if extras else "")
        raise ValueError(f"update='sample' makes the steps of plain SGD, found {found}; use update='batch'")


def _batch_size(trainer: pl.Trainer) -> int | str:
    """How many samples a step takes: ``"full"`` for all, else the smallest batch."""
    trainer.fit_loop.setup_data()
    loader = trainer.train_dataloader
    if isinstance(loader, SliceLoader):
        return "full" if len(loader) == 1 else len(loader.y) - (len(loader) - 1) * loader.batch_size
    sizes = [len(y) for _, y in loader or ()]
    return "full" if len(sizes) == 1 else min(sizes)


def _all_batches(trainer: pl.Trainer) -> Batch:
    trainer.fit_loop.setup_data()
    if isinstance(trainer.train_dataloader, SliceLoader):  # which remembers how far it has been gone through
        return trainer.train_dataloader.X, trainer.train_dataloader.y
    return joined(list(trainer.train_dataloader or ()))


def joined(batches: list[Batch]) -> Batch:
    """Batches as one.

    Example:
        >>> joined([(torch.ones(1, 2), torch.tensor([1])), (torch.zeros(1, 2), torch.tensor([-1]))])[1]
        tensor([ 1, -1])
    """
    y = torch.cat([labels for _, labels in batches])
    if not checks.is_sparse(batches[0][0]):
        return torch.cat([x for x, _ in batches]), y
    from scipy.sparse import csr_array, vstack

    return csr_array(vstack([checks.as_csr(x) for x, _ in batches], format="csr")), y


def _first_of_each(X: Any, y: Tensor) -> Batch:
    """The first sample of −1 and the first of +1, dense."""
    index = torch.cat([(y == label).nonzero()[:1, 0] for label in (-1, 1)])
    if isinstance(X, Tensor):
        return X[index.to(X.device)], y[index]
    if is_mapped(X):
        return rows_as_read(X).gather(index.cpu()).dense(), y[index].cpu()
    return torch.from_numpy(X[index.cpu().numpy()].toarray()), y[index].cpu()


def _auto_lr_in_parts(head: Head, X: Any, *, bias: bool, num_classes: int | None, batch_size: int | str) -> float:
    """1/L of samples that are read in parts, in one pass; see :mod:`torchperc.theory.limits`."""
    unit = step_limit(head, [[1.0]], bias=False, num_classes=num_classes) / 2  # of a loss whose φ has length 1
    if math.isinf(unit):
        return 1.0
    rows = rows_as_read(X, torch.float64)
    width, count, constant = rows.width, len(rows), float(bias)
    small = width <= _DIRECT
    gram = torch.zeros(width + 1, width + 1, dtype=torch.float64) if small else None
    longest = total = 0.0
    for part in rows.pieces():
        lengths = part.squared_norms() + constant
        longest, total = max(longest, float(lengths.max())), total + float(lengths.sum())
        if gram is not None:
            gram[:-1, :-1] += part.mix(part.dense()) if not part.sparse else torch.from_numpy(_own_gram(part.raw()))
            gram[-1, :-1] += constant * part.mix(torch.ones(len(part), 1, dtype=torch.float64))[0]
    if gram is not None:
        gram[:-1, -1], gram[-1, -1] = gram[-1, :-1], constant * count
        total = min(total, float(torch.linalg.eigvalsh(gram)[-1]) * (1 + 1e-12))
    size = count if isinstance(batch_size, str) else batch_size
    curvature = longest if size == 1 else min(longest, total / (count % size or size))
    return unit / curvature if curvature else 1.0


def _own_gram(X: Any) -> Any:
    return (X.T @ X).toarray()


_DIRECT = 2000
