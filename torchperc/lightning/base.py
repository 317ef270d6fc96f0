"""What the modules share: scores, metrics once per epoch, gradient descent, checkpoints to resume and rebuild from."""

from __future__ import annotations

import atexit
import math
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from torchperc._checks import check_choice, check_number, check_sample_weight, is_sparse
from torchperc.descent.sgd import check_linear, descend
from torchperc.lightning._pl import pl
from torchperc.lightning.checkpoints import CheckpointError, plain, verified
from torchperc.lightning.metrics import ClassificationMetric, EpochMetric, exact_dtype
from torchperc.model.describe import NETS, as_factory, as_net, described_factory, described_net
from torchperc.nn import functional as tpf
from torchperc.nn.heads import Head
from torchperc.nn.heads import head as head_by_name
from torchperc.nn.modules import scores_of
from torchperc.samples.process_group import all_reduce, gather, rank_and_size

FORMAT = 3  # of what the modules write into a checkpoint
_SGD_OPTIONS = ("momentum", "weight_decay", "dampening", "nesterov", "maximize")


class LitModel(pl.LightningModule):
    """A net with a head under a Trainer: batches, metrics and checkpoints; subclasses say how it is trained.

    Batches are (x, y) or (x, y, sample weights). Metrics are means over all samples of an epoch, those of the training
    set before the step they lead to; in several processes over the samples that their loaders give, those included that
    a ``DistributedSampler`` repeats.

    Args:
        net: gives scores (N,), (N, 1) or (N, K).
        head: what the scores mean: a head, or its name, see :func:`torchperc.nn.heads.head`.
    """

    logged: tuple[str, ...] = ("loss", "error")  # for train, val and test; other metrics for train only
    nets: ClassVar[Mapping[str, type[nn.Module]]] = NETS  # which a checkpoint can rebuild
    free: tuple[str, ...] = ("net", "lr", "scheduler", "interval", "monitor")  # arguments that may change on resuming

    def __init__(self, net: nn.Module, head: Head | str) -> None:
        super().__init__()
        self.net, self.head = as_net(net, self.nets), head_by_name(head)
        self.metrics: dict[tuple[str, int], EpochMetric] = {}  # by stage and loader
        self.counted = False  # whether the current batch is in the training metrics
        self.unfinished: dict[str, Tensor] | None = None  # training metrics of a checkpoint in the middle of an epoch

    def save_arguments(self, **arguments: Any) -> None:
        """Save the arguments of ``__init__`` as hyper-parameters, in a form that a checkpoint can hold."""
        self.save_hyperparameters(plain({"net": described_net(self.net, self.nets), **arguments}))

    def forward(self, x: Tensor) -> Tensor:
        """Return the scores: (N,), or (N, K)."""
        try:
            scores = scores_of(self.net, x)
        except RuntimeError as error:
            width, weight = getattr(self.net, "in_features", None), next(self.net.parameters(), None)
            found = f"found a batch of shape {tuple(x.shape)} in {x.dtype}"
            if width is not None and x.shape[-1] != width:
                raise ValueError(f"net has in_features={width}, {found}; change the net or the dataset") from error
            if weight is not None and x.dtype != weight.dtype:
                other = f", or net.to({x.dtype})" if x.is_floating_point() else ""
                raise TypeError(f"net is {weight.dtype}, {found}; use x.to({weight.dtype}){other}") from error
            raise
        return scores.squeeze(-1) if scores.dim() == 2 and scores.shape[1] == 1 else scores

    # --- steps ---

    def step(self, batch: Any, stage: str, dataloader_idx: int = 0) -> Tensor:
        """Return the weighted loss of each sample, and add the batch to the metrics of the stage."""
        x, y, weight = self.unpack(batch)
        scores = self(x)
        weight = self.weights(y, weight, None if scores.dim() == 1 else scores.shape[-1])
        return self.measured(stage, dataloader_idx, scores, y, weight, self.weight_norm())

    def measured(
        self, stage: str, number: int, scores: Tensor, y: Tensor, weight: Any, norm: Any, made: Any = None
    ) -> Tensor:
        """Return the weighted loss of each sample, and add the batch to the metrics of the stage."""
        losses = self.head.loss(scores, y, reduction="none")
        losses = losses if weight is None else losses * weight.to(losses)
        norm = norm if norm is None else norm.expand(len(losses))
        self.count(stage, number, losses, scores.detach(), y, weight, norm, made)
        return losses

    def count(self, stage: str, number: int, losses: Tensor, *batch: Any) -> None:
        """Add a batch to the metrics of a loader, unless it is a training batch whose loss LBFGS asks for again."""
        if stage != "train" or not self.counted:
            self.metric(stage, number).add(losses.detach(), *batch)
            self.counted = stage == "train"

    def validation_step(self, batch: Any, batch_idx: int = 0, dataloader_idx: int = 0, stage: str = "val") -> None:
        """Add a batch to the metrics of validation, and log those of a loader after its last batch."""
        self.step(batch, stage, dataloader_idx)
        counts = self.trainer.num_val_batches if stage == "val" else self.trainer.num_test_batches
        if batch_idx + 1 == counts[dataloader_idx]:
            self.log_epoch(stage, dataloader_idx)

    def test_step(self, batch: Any, batch_idx: int = 0, dataloader_idx: int = 0) -> None:
        """Add a batch to the metrics of the test likewise."""
        self.validation_step(batch, batch_idx, dataloader_idx, "test")

    def unpack(self, batch: Any) -> tuple[Any, Tensor, Tensor | None]:
        """Return samples, labels, and sample weights or ``None``; refuse batches of another form."""
        items = list(batch) if isinstance(batch, tuple | list) else [batch]
        if len(items) not in (2, 3) or not all(isinstance(each, Tensor) for each in items[:2]):
            found = " and ".join(type(each).__name__ for each in items)
            raise TypeError(f"a batch must be (x, y) or (x, y, sample_weight), found {found}; change the loader")
        x, y, weight = (*items, None)[:3]
        if not y.dim() or x.shape[0] != len(y) or (not len(y) and rank_and_size()[1] == 1):
            found = f"found x {tuple(x.shape)} and y {tuple(y.shape)}"
            raise ValueError(f"a batch must have one label per sample, at least one, {found}; give a batch_size")
        return x, y, weight

    def weights(self, y: Tensor, weight: Tensor | None, classes: int | None) -> Tensor | None:
        """Return the weight of each sample's loss, in double precision where the device has it, or ``None``."""
        if weight is None:
            return None
        return check_sample_weight(weight, len(y), all_zero=True).to(y.device, exact_dtype(y.device))

    def predict_step(self, batch: Any, batch_idx: int = 0, dataloader_idx: int = 0) -> Tensor:
        """Return labels −1/+1, or class indices, of a batch with labels or without."""
        return self.head.decide(tpf.finite_scores(self(self.inputs(batch))))

    def inputs(self, batch: Any) -> Tensor:
        """Return the samples of a batch with labels or without."""
        x = batch[0] if isinstance(batch, tuple | list) and batch else batch
        if not isinstance(x, Tensor):
            raise TypeError(f"a batch to predict must be x or (x, ...), found {type(x).__name__}; change the loader")
        return x

    def weight_norm(self) -> Tensor | None:
        """Return ‖w‖ of a linear net, which turns y·s into a distance; ``None`` for other nets."""
        weight = getattr(self.net, "weight", None)
        return None if weight is None else torch.linalg.vector_norm(weight.detach())

    def parameter_norm(self) -> Tensor:
        """Return the norm of all parameters, which is logged as ``norm``."""
        exact = exact_dtype(self.device)
        return torch.stack([each.detach().to(exact).square().sum() for each in self.net.parameters()]).sum().sqrt()

    # --- metrics ---

    def new_metric(self, exact: torch.dtype) -> EpochMetric:
        """Return what is measured in an epoch, with sums of the given type: loss, error, mistakes and margin."""
        return ClassificationMetric(self.head, exact)

    def metric(self, stage: str, dataloader_idx: int = 0) -> EpochMetric:
        """Return the metrics of the current epoch; of a run that is resumed, those of its checkpoint at first."""
        if (stage, dataloader_idx) not in self.metrics:
            made = self.metrics[stage, dataloader_idx] = self.new_metric(exact_dtype(self.device)).to(self.device)
            if stage == "train" and self.unfinished is not None:
                made.restore(self.unfinished)
        return self.metrics[stage, dataloader_idx]

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
        """Begin new metrics with the first batch; no other hook is called in every run that is resumed."""
        self.counted = False
        if batch_idx == 0:
            self.unfinished = None
            self.metric("train").reset()

    def on_train_batch_end(self, *_: Any) -> None:
        """Log the epoch after its last batch, so that ``on_train_epoch_end`` of every callback sees it."""
        trainer = self.trainer
        if trainer.is_last_batch or -1 < trainer.max_steps == trainer.global_step:
            self.log_epoch("train")

    def on_train_epoch_end(self) -> None:
        """Log an epoch that was cut short, as by ``max_time``."""
        self.log_epoch("train")

    def on_validation_epoch_end(self) -> None:
        """Log the metrics of loaders without length."""
        self.log_epoch("val")
        self.log_epoch("test")

    on_test_epoch_end = on_validation_epoch_end

    def log_epoch(self, stage: str, dataloader_idx: int | None = None) -> None:
        """Log the metrics of a stage, or of one of its loaders, unless they are logged already."""
        for (name, number), metric in sorted(self.metrics.items()):
            if name != stage or dataloader_idx not in (None, number) or metric.is_empty:
                continue
            metric.merge()
            self.end_epoch(stage, metric)
            found = metric.compute()
            if stage == "train":
                found["norm"] = self.parameter_norm().to(metric.exact)
            values = dict(zip(found, torch.stack(list(found.values())).tolist(), strict=True))  # one wait for a device
            metric.reset()
            suffix = f"/dataloader_idx_{number}" if dataloader_idx is None and number else ""  # else Lightning's own
            shown = {f"{name}/{stage}{suffix}": values.pop(name) for name in self.logged}
            self.log_once(shown, prog_bar=True, add_dataloader_idx=dataloader_idx is not None)
            if stage == "train":
                self.log_once({name: value for name, value in values.items() if (name, value) != ("margin", math.inf)})

    def end_epoch(self, stage: str, metric: Any) -> None:
        """Do what an epoch ends with, given its metrics in this process, before they are logged."""

    def log_once(self, values: Mapping[str, float], **options: Any) -> None:
        """Log values of an epoch, which are the same in all processes: their maximum, as a mean would be rounded."""
        device = self.device if self.trainer.world_size > 1 else torch.device("cpu")  # where processes send from
        options |= {"on_step": False, "on_epoch": True, "batch_size": 1, "sync_dist": True, "reduce_fx": "max"}
        exact = {name: torch.tensor(value, dtype=exact_dtype(device), device=device) for name, value in values.items()}
        self.log_dict(exact, **options)

    def refuse(self, needed: str, found: Mapping[str, bool]) -> None:
        """Raise if any of what was found holds, or what no step without a gradient can honour."""
        mixed, frozen = "mixed" in str(self.trainer.precision), not all(p.requires_grad for p in self.net.parameters())
        precision = f"precision={self.trainer.precision!r}, which should be '32-true' or '64-true'"
        found = {**found, precision: mixed, "requires_grad=False, which LitClassifier's update='batch' honours": frozen}
        if names := "; ".join(name for name, holds in found.items() if holds):
            raise ValueError(f"{needed}, found {names}")

    # --- checkpoints ---

    def kind(self) -> dict[str, Any]:
        """Return what a run must have in common with the checkpoint that it resumes from."""
        fixed = {name: value for name, value in self.hparams.items() if name not in self.free}
        if isinstance(made := fixed.get("optimizer"), dict):
            fixed["optimizer"] = made["class_path"]
        fixed |= {"format": FORMAT, "module": type(self).__name__, "processes": rank_and_size()[1]}
        kind: dict[str, Any] = plain({**fixed, "head": repr(self.head)})
        return kind

    def is_fitting(self) -> bool:
        """Return whether a Trainer is training the module; ``load_from_checkpoint`` has none."""
        return self._trainer is not None and self.trainer.state.fn == pl.trainer.states.TrainerFn.FITTING

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Save the kind of run, the net's description as it is now, and the sums of an epoch that is not over."""
        checkpoint["torchperc"] = self.kind()
        net = plain({"net": described_net(self.net, self.nets)})
        checkpoint["hyper_parameters"] = {**checkpoint["hyper_parameters"], **net}
        metric = self.metrics.get(("train", 0))
        checkpoint["metrics"] = gather(self.unfinished if metric is None or metric.is_empty else metric.saved())

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Refuse a checkpoint of another run; continue the metrics of its epoch."""
        saved, own, resumed = checkpoint.get("torchperc") or {}, self.kind(), self.is_fitting()
        for name in own if resumed else ("format", "module"):
            if saved.get(name) != own[name]:
                other = f"the checkpoint is of a run with {name}={saved.get(name)!r}, this one has {name}={own[name]!r}"
                raise CheckpointError(f"{other}; resume that run, or load_state_dict(torch.load(path)['state_dict'])")
        both = self.state_dict(), checkpoint["state_dict"]
        here, found = ({name: tuple(v.shape) for name, v in each.items()} for each in both)
        if any(here.get(name, shape) != shape for name, shape in found.items()) or not here.keys() & found:
            raise CheckpointError(f"the checkpoint is of another net: it has {found}, this net has {here}")
        self.unfinished = checkpoint["metrics"][self.global_rank] if resumed else None

    @classmethod
    def load_from_checkpoint(cls, checkpoint_path: Any, *args: Any, **options: Any) -> Any:
        """Return the module of a checkpoint, as Lightning does, after checking its checksum."""
        if isinstance(checkpoint_path, str | Path) and Path(checkpoint_path).is_file():  # Lightning reads URLs, too
            verified(checkpoint_path)
        return super().load_from_checkpoint(checkpoint_path, *args, **options)

    def setup(self, stage: str) -> None:
        """Begin with new metrics; end the group of processes before the interpreter, whose end its threads abort."""
        self.metrics.clear()
        if self.trainer.world_size > 1:
            atexit.register(_end_processes)


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
            check_linear(self.net)

    def save_arguments(self, **arguments: Any) -> None:
        """Save the arguments of ``__init__`` as hyper-parameters."""
        made = {"optimizer": self.make_optimizer, "scheduler": self.make_scheduler}
        arguments |= {name: described_factory(make) for name, make in made.items()}
        own = {"lr": self.lr, "update": self.update, "interval": self.interval, "monitor": self.monitor}
        super().save_arguments(**own, **arguments)

    def configure_optimizers(self) -> Any:
        """Return the optimizer, and the scheduler if there is one."""
        make: Callable[..., Optimizer] = self.make_optimizer or torch.optim.SGD
        optimizer = make(self.net.parameters(), **({} if self.lr is None else {"lr": self.lr}))
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

    # --- update="sample" ---

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
            f"{trainer.world_size} processes": trainer.world_size > 1,
        }
        self.refuse("use update='batch', as update='sample' makes steps of plain SGD in one process", options)

    def sample_steps(self, batch: Any) -> Tensor:
        """Make a step for each sample of a batch; return the mean loss before the steps."""
        x, y, weight = self.unpack(batch)
        if is_sparse(x) and x.device.type != "cpu":
            raise ValueError("update='sample' needs sparse samples on the CPU; use Trainer(accelerator='cpu')")
        norm, net = self.weight_norm(), check_linear(self.net)
        weight = self.weights(y, weight, None if len(net.weight) == 1 else len(net.weight))
        lr, moves = float(self.trainer.optimizers[0].param_groups[0]["lr"]), weight is None or bool(weight.any())
        scores = descend(net, self.head, x, y, lr, sample_weight=weight) if moves else self(x).detach()
        return self.measured("train", 0, scores, y, weight, norm).mean()

    def backward(self, loss: Tensor, *args: Any, **options: Any) -> None:
        """With ``update="sample"`` nothing: the weights have moved, and the optimizer finds no gradients."""
        if self.update == "batch":
            super().backward(loss, *args, **options)


def _end_processes() -> None:
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
