"""What the LightningModules share: gradient steps, metrics of an epoch, optimizer, checkpoints."""

from __future__ import annotations

import atexit
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from torchperc._checks import check_choice, check_number, check_sample_weight
from torchperc.lightning._pl import pl
from torchperc.lightning.checkpoints import CheckpointError, plain, verify
from torchperc.lightning.loader import ends_with_repeated, without_last
from torchperc.lightning.metrics import EpochMetric, exact_dtype
from torchperc.model.describe import NETS, as_factory, as_net, described_factory, described_net
from torchperc.nn.heads import NAMED_HEADS, Head
from torchperc.nn.heads import head as head_by_name
from torchperc.nn.modules import scores_of
from torchperc.samples.process_group import all_reduce, gather, rank_and_size

FORMAT = 3  # of what the modules write into a checkpoint
COMPILED = "net._orig_mod."  # what torch.compile makes of the parameter names "net."


class LitModel(pl.LightningModule):
    """A net with a head under a Trainer: gradient descent on the head's loss, metrics once per epoch.

    Batches are (x, y) or (x, y, sample weights); the loss of N samples is (1/N)·Σ weight·loss. Metrics are taken over
    all samples of an epoch, those of the training set before the step they lead to. In several processes loss and
    metrics are those of all of them together, however many samples each of them has.

    The arguments are hyper-parameters, and ``load_from_checkpoint(path)`` rebuilds torchperc's own nets and heads and
    torch's optimizers and schedulers; pass others again, as ``net=`` or ``optimizer=``.

    Args:
        net: gives scores (N,), (N, 1) or (N, K).
        head: what the scores mean: a head, or its name, see :func:`torchperc.nn.heads.head`.
        lr: the learning rate of the optimizer; by default 0.1 for plain SGD, and for an optimizer of yours its own.
        optimizer: a class, or a function from parameters to an optimizer; plain SGD by default.
        scheduler: a function from an optimizer to a scheduler, such as ``partial(StepLR, step_size=10)``.
        interval: whether the scheduler steps after each ``"epoch"`` or each ``"step"`` (batch).
        monitor: the metric of a ``ReduceLROnPlateau`` scheduler, such as ``"loss/val"``.
    """

    logged: tuple[str, ...] = ("loss",)  # for train, val and test; other metrics for train only
    nets: ClassVar[Mapping[str, type[nn.Module]]] = NETS  # which a checkpoint can rebuild

    def __init__(
        self,
        net: nn.Module,
        head: Head | str,
        lr: float | None = None,
        optimizer: Callable[[Iterable[nn.Parameter]], Optimizer] | None = None,
        scheduler: Callable[[Optimizer], LRScheduler] | None = None,
        interval: str = "epoch",
        monitor: str | None = None,
    ) -> None:
        super().__init__()
        self.net, self.head = as_net(net, self.nets), head_by_name(head)
        self.make_optimizer, self.make_scheduler = (
            as_factory("optimizer", optimizer),
            as_factory("scheduler", scheduler),
        )
        self.lr = None if lr is None else check_number("lr", lr, above=0)
        if lr is None and optimizer is None:
            self.lr = 0.1
        self.interval, self.monitor = check_choice("interval", interval, ("epoch", "step")), monitor
        if scheduler is None and (monitor is not None or interval != "epoch"):
            raise ValueError(f"interval={interval!r} and monitor={monitor!r} need a scheduler; leave them out")
        self.metrics: dict[str, dict[int, EpochMetric]] = {"train": {}, "val": {}, "test": {}}  # by stage and loader
        self.used: dict[tuple[str, int], EpochMetric] = {}  # metrics of earlier epochs
        self.resumed: dict[int, dict[str, Tensor]] = {}  # the sums of an epoch within which a run is resumed
        self.counted = (-1, -1)  # epoch and batch that were last added to the training metrics

    def save_arguments(self, **arguments: Any) -> None:
        """Save the arguments of ``__init__`` as hyper-parameters, in a form that a checkpoint can hold."""
        made = {"optimizer": self.make_optimizer, "scheduler": self.make_scheduler}
        arguments |= {name: described_factory(make) for name, make in made.items()}
        arguments |= {"interval": self.interval, "monitor": self.monitor}
        self.save_hyperparameters(plain({"net": described_net(self.net, self.nets), **arguments}))

    def forward(self, x: Tensor) -> Tensor:
        """Return the scores: (N,), or (N, K)."""
        try:
            scores = scores_of(self.net, x)
        except RuntimeError as error:
            raise self.explained(error, x) from error
        return scores.squeeze(-1) if scores.dim() == 2 and scores.shape[1] == 1 else scores

    def explained(self, error: RuntimeError, x: Tensor) -> Exception:
        """Return an error that names net and batch, if the batch is of the wrong width or type, else the error."""
        width, weight = getattr(self.net, "in_features", None), next(self.net.parameters(), None)
        found = f"a batch of shape {tuple(x.shape)} in {x.dtype}"
        if width is not None and x.shape[-1] != width:
            return ValueError(f"net has in_features={width}, found {found}; change the net or the loader's dataset")
        if weight is not None and x.dtype != weight.dtype:
            return TypeError(f"net is {weight.dtype}, found {found}; convert x, or the net by net.to({x.dtype})")
        return error

    def configure_optimizers(self) -> Any:
        """Return the optimizer, and the scheduler if there is one."""
        make: Callable[..., Optimizer] = self.make_optimizer or torch.optim.SGD
        parameters = self.net.parameters()
        optimizer = make(parameters) if self.lr is None else make(parameters, lr=self.lr)
        if self.make_scheduler is None:
            return optimizer
        scheduler = self.make_scheduler(optimizer)
        if isinstance(scheduler, ReduceLROnPlateau) == (self.monitor is None):
            raise ValueError(
                f"monitor={self.monitor!r} with {type(scheduler).__name__}; monitor='loss/val' or the like is for "
                "ReduceLROnPlateau, which needs it"
            )
        return {
            "optimizer": optimizer,
            "lr_scheduler": {"scheduler": scheduler, "interval": self.interval, "monitor": self.monitor},
        }

    # --- steps ---

    def training_step(self, batch: Any, batch_idx: int) -> Tensor | None:
        """Return the mean loss of a batch."""
        return self.batch_mean(self.step(batch, "train", batch_idx))

    def validation_step(self, batch: Any, batch_idx: int = 0, dataloader_idx: int = 0) -> None:
        """Add a batch to the metrics of validation, and log those of a loader after its last batch."""
        self.step(batch, "val", batch_idx, dataloader_idx)
        if self.has_trainer() and batch_idx + 1 == self.trainer.num_val_batches[dataloader_idx]:
            self.log_epoch("val", dataloader_idx)

    def test_step(self, batch: Any, batch_idx: int = 0, dataloader_idx: int = 0) -> None:
        """Add a batch to the metrics of the test, and log those of a loader after its last batch."""
        self.step(batch, "test", batch_idx, dataloader_idx)
        if self.has_trainer() and batch_idx + 1 == self.trainer.num_test_batches[dataloader_idx]:
            self.log_epoch("test", dataloader_idx)

    def step(self, batch: Any, stage: str, batch_idx: int, dataloader_idx: int = 0) -> Tensor:
        """Return the weighted loss of each sample, and add the batch to the metrics of the stage."""
        x, y, weight = self.unpack(self.own_samples(batch, stage, batch_idx, dataloader_idx))
        scores = self(x)
        losses = self.head.loss(scores, y, reduction="none")
        weight = self.weights(y, weight, None if scores.dim() == 1 else scores.shape[-1])
        losses = losses if weight is None else losses * weight.to(losses)
        if stage != "train" or self.is_new(batch_idx):
            metric = self.metric(stage, dataloader_idx)
            metric.update(losses.detach(), scores.detach(), y, weight, self.weight_norm())
        return losses

    def own_samples(self, batch: Any, stage: str, batch_idx: int, dataloader_idx: int = 0) -> Any:
        """Return a batch without the sample that a ``DistributedSampler`` repeats; another process has it, too."""
        if rank_and_size()[1] == 1 or not self.has_trainer():
            return batch
        trainer = self.trainer
        loaders = {"train": trainer.train_dataloader, "val": trainer.val_dataloaders, "test": trainer.test_dataloaders}
        loader = pl.utilities.CombinedLoader(loaders[stage]).flattened[dataloader_idx]
        return without_last(batch) if ends_with_repeated(loader, batch_idx) else batch

    def unpack(self, batch: Any) -> tuple[Any, Tensor, Tensor | None]:
        """Return samples, labels, and sample weights or ``None``; refuse batches of another form."""
        if not isinstance(batch, tuple | list) or len(batch) not in (2, 3):
            found = f"{len(batch)} items" if isinstance(batch, tuple | list) else type(batch).__name__
            raise TypeError(f"a batch must be (x, y) or (x, y, sample_weight), found {found}; change the loader")
        x, y, weight = (*batch, None)[:3]
        if not isinstance(x, Tensor) or not isinstance(y, Tensor):
            raise TypeError(f"a batch must hold tensors, found {type(x).__name__} and {type(y).__name__}")
        if not y.dim() or x.shape[0] != len(y) or (not len(y) and rank_and_size()[1] == 1):
            raise ValueError(
                f"a batch must have one label per sample, at least one, found x {tuple(x.shape)} and y "
                f"{tuple(y.shape)}; change the loader, which needs a batch_size"
            )
        return x, y, weight

    def weights(self, y: Tensor, weight: Tensor | None, classes: int | None) -> Tensor | None:
        """Return the weight of each sample's loss, in double precision where the device has it, or ``None``."""
        if weight is None:
            return None
        return check_sample_weight(weight, len(y), all_zero=True).to(y.device, exact_dtype(y.device))

    def batch_mean(self, losses: Tensor) -> Tensor:
        """Return the mean over the batch of all processes, each of which may have another number of samples.

        DDP averages the gradients of the processes, so the loss of each is scaled to give the gradient of the mean.
        """
        if self.trainer.world_size == 1:
            return losses.mean()
        sums = torch.stack([losses.detach().sum(), losses.new_tensor(len(losses))]).to(exact_dtype(losses.device))
        total, samples = all_reduce(sums)
        own = losses.sum() * (self.trainer.world_size / samples).to(losses)
        mean: Tensor = own + ((total / samples).to(losses) - own.detach())  # the value that a line search compares
        return mean

    def weight_norm(self) -> Tensor | None:
        """Return ‖w‖ of a linear net, which turns y·s into a distance; ``None`` for other nets."""
        weight = getattr(self.net, "weight", None)
        return None if weight is None else torch.linalg.vector_norm(weight.detach())

    def parameter_norm(self) -> Tensor:
        """Return the norm of all parameters, which is logged as ``norm``."""
        exact = exact_dtype(self.device)
        return torch.stack([each.detach().to(exact).square().sum() for each in self.net.parameters()]).sum().sqrt()

    def inputs(self, batch: Any) -> Tensor:
        """Return the samples of a batch with labels or without."""
        x = batch[0] if isinstance(batch, tuple | list) and batch else batch
        if not isinstance(x, Tensor):
            raise TypeError(f"a batch to predict must be x or (x, ...), found {type(x).__name__}; change the loader")
        return x

    # --- metrics ---

    def new_metric(self, exact: torch.dtype) -> EpochMetric:
        """Return what is measured in an epoch, with sums of the given type."""
        return EpochMetric(exact)

    def metric(self, stage: str, dataloader_idx: int = 0) -> EpochMetric:
        """Return the metrics of the current epoch."""
        current = self.metrics[stage]
        if dataloader_idx not in current:
            metric = self.used.pop((stage, dataloader_idx), None)  # as a new one makes the host wait for the device
            if metric is None or metric.device != self.device:
                metric = self.new_metric(exact_dtype(self.device)).to(self.device)
            metric.reset()
            current[dataloader_idx] = metric
            if stage == "train" and dataloader_idx in self.resumed:
                current[dataloader_idx].restore(self.resumed.pop(dataloader_idx))
        return current[dataloader_idx]

    def is_new(self, batch_idx: int) -> bool:
        """Return whether a batch is seen for the first time: LBFGS asks for its loss repeatedly."""
        here = (self.trainer.current_epoch, batch_idx)
        if here == self.counted:
            return False
        if batch_idx == 0:  # which no hook says of a run that is resumed at the end of an epoch
            self.metrics["train"].clear()
            self.resumed.clear()
        self.counted = here
        return True

    def on_train_start(self) -> None:
        """Refuse processes with different numbers of batches, which would wait for each other forever."""
        counts = gather(self.trainer.num_training_batches)
        if len(set(counts)) > 1:
            raise ValueError(f"the number of batches per epoch differs between processes: {counts}; use a SliceLoader")

    def on_validation_epoch_start(self) -> None:
        """Forget an evaluation that was interrupted."""
        self.metrics["val"].clear()

    def on_test_epoch_start(self) -> None:
        """Forget an evaluation that was interrupted."""
        self.metrics["test"].clear()

    def on_train_batch_end(self, *_: Any) -> None:
        """Log the epoch after its last batch, so that ``on_train_epoch_end`` of every callback sees it."""
        if self.trainer.is_last_batch or self.trainer.global_step == self.trainer.max_steps:
            self.log_epoch("train")

    def on_train_epoch_end(self) -> None:
        """Log an epoch that was cut short, as by ``max_time``."""
        self.log_epoch("train")

    def on_validation_epoch_end(self) -> None:
        """Log the metrics of a loader without length."""
        self.log_epoch("val")

    def on_test_epoch_end(self) -> None:
        """Log the metrics of a loader without length."""
        self.log_epoch("test")

    def log_epoch(self, stage: str, dataloader_idx: int | None = None) -> None:
        """Log the metrics of a stage, or of one of its loaders, unless they are logged already."""
        for number in sorted(self.metrics[stage]) if dataloader_idx is None else [dataloader_idx]:
            metric = self.used[stage, number] = self.metrics[stage].pop(number)
            suffix = f"/dataloader_idx_{number}" if dataloader_idx is None and number else ""  # else Lightning's own
            computed = metric.compute()
            if stage == "train":
                computed["norm"] = self.parameter_norm().to(metric.exact)
            numbers = torch.stack(list(computed.values())).tolist()  # one wait for a device
            values = dict(zip(computed, numbers, strict=True))
            found = {f"{name}/{stage}{suffix}": values.pop(name) for name in self.logged}
            self.log_once(found, prog_bar=True, add_dataloader_idx=dataloader_idx is not None)
            if stage == "train":
                self.log_once(values)

    def log_once(self, values: Mapping[str, float], **options: Any) -> None:
        """Log values of an epoch, which are the same in all processes: their maximum, as a mean would be rounded."""
        device = self.device if self.trainer.world_size > 1 else torch.device("cpu")  # where processes send from
        options |= {"on_step": False, "on_epoch": True, "batch_size": 1, "sync_dist": True, "reduce_fx": "max"}
        for name, value in values.items():
            self.log(name, torch.tensor(value, dtype=exact_dtype(device), device=device), **options)

    # --- checkpoints ---

    def kind(self) -> dict[str, Any]:
        """Return what a run must have in common with the checkpoint that it resumes from."""
        return {"module": type(self).__name__, "head": repr(self.head), "processes": rank_and_size()[1]}

    def has_trainer(self) -> bool:
        """Return whether the module runs under a Trainer; ``load_from_checkpoint`` has none."""
        try:
            return self.trainer is not None
        except RuntimeError:
            return False

    def is_fitting(self) -> bool:
        """Return whether a Trainer is training the module."""
        return self.has_trainer() and self.trainer.state.fn == pl.trainer.states.TrainerFn.FITTING

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Save the kind of run, the net's description as it is now, and the sums of an epoch that is not over."""
        checkpoint["torchperc"] = plain({"format": FORMAT, **self.kind()})
        net = plain({"net": described_net(self.net, self.nets)})
        checkpoint["hyper_parameters"] = {**checkpoint["hyper_parameters"], **net}
        sums = {number: metric.saved() for number, metric in self.metrics["train"].items()}
        checkpoint["metrics"] = gather({**self.resumed, **sums})

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Refuse a checkpoint of another run or net; continue the metrics of its epoch."""
        saved, own = checkpoint.get("torchperc"), plain({"format": FORMAT, **self.kind()})
        if not isinstance(saved, dict) or saved.get("format") != FORMAT:
            raise CheckpointError(
                "the checkpoint was not written by a module of torchperc 0.3; create the module again and load the "
                "weights alone: module.load_state_dict(torch.load(path)['state_dict'])"
            )
        resumed = self.is_fitting()
        for name in own if resumed else ("module",):
            if saved.get(name) != own[name]:
                raise CheckpointError(
                    f"the checkpoint is of a run with {name}={saved.get(name)!r}, this one has {name}={own[name]!r}; "
                    "resume the same run, or load the weights alone by load_from_checkpoint(path) of that module"
                )
        names = {name.replace(COMPILED, "net."): name for name in self.state_dict()}  # compiled or not
        state = {name.replace(COMPILED, "net."): values for name, values in checkpoint["state_dict"].items()}
        checkpoint["state_dict"] = {names.get(name, name): values for name, values in state.items()}
        shapes, found = ({name: tuple(v.shape) for name, v in each.items()} for each in (self.state_dict(), state))
        found = {names.get(name, name): shape for name, shape in found.items()}
        strict = resumed and self.strict_loading  # else Lightning's strict= decides what may be missing
        other = any(shapes.get(name, shape) != shape for name, shape in found.items()) or not shapes.keys() & found
        if other or (strict and shapes != found):
            raise CheckpointError(
                f"the checkpoint is of another net: it has {found}, this net has {shapes}; use the same net"
            )
        if resumed:
            self.resumed, self.counted = dict(checkpoint["metrics"][self.global_rank]), (-1, -1)

    @classmethod
    def load_from_checkpoint(cls, checkpoint_path: Any, *args: Any, **options: Any) -> Any:
        """Return the module of a checkpoint, as Lightning does, after a look at its checksum."""
        verify(checkpoint_path)
        return super().load_from_checkpoint(checkpoint_path, *args, **options)

    def setup(self, stage: str) -> None:
        """Begin with new metrics; end the group of processes before the interpreter, whose end its threads abort."""
        self.used.clear()
        if self.trainer.world_size > 1:
            atexit.unregister(_end_processes)
            atexit.register(_end_processes)


def _end_processes() -> None:
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


def head_description(head: Head) -> str:
    """Return the name of a head, such as ``"lms 0/1"``; of one that is not torchperc's own its ``repr``.

    Example:
        >>> from torchperc.nn.heads import LMSHead
        >>> head_description(LMSHead())
        'lms'
    """
    return next((name for name, known in NAMED_HEADS.items() if known == head), repr(head))
