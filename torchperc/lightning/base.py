"""What all modules share: scores, metrics once per epoch, checkpoints that can be resumed and rebuilt."""

from __future__ import annotations

import atexit
import math
from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from torchperc._checks import check_sample_weight
from torchperc.lightning._pl import pl
from torchperc.lightning.checkpoints import CheckpointError, plain, verify
from torchperc.lightning.metrics import ClassificationMetric, EpochMetric, exact_dtype
from torchperc.model.describe import NETS, as_net, described_net
from torchperc.nn import functional as tpf
from torchperc.nn.heads import Head
from torchperc.nn.heads import head as head_by_name
from torchperc.nn.modules import scores_of
from torchperc.samples.process_group import gather, rank_and_size

FORMAT = 3  # of what the modules write into a checkpoint
COMPILED = "net._orig_mod."  # what torch.compile makes of the parameter names "net."


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

    def __init__(self, net: nn.Module, head: Head | str) -> None:
        super().__init__()
        self.net, self.head = as_net(net, self.nets), head_by_name(head)
        self.metrics: dict[tuple[str, int], EpochMetric] = {}  # by stage and loader
        self.counted = False  # whether the current batch is in the training metrics

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
                raise TypeError(f"net is {weight.dtype}, {found}; convert x, or use net.to({x.dtype})") from error
            raise
        return scores.squeeze(-1) if scores.dim() == 2 and scores.shape[1] == 1 else scores

    # --- steps ---

    def step(self, batch: Any, stage: str, dataloader_idx: int = 0) -> Tensor:
        """Return the weighted loss of each sample, and add the batch to the metrics of the stage."""
        x, y, weight = self.unpack(batch)
        scores = self(x)
        losses = self.head.loss(scores, y, reduction="none")
        weight = self.weights(y, weight, None if scores.dim() == 1 else scores.shape[-1])
        losses = losses if weight is None else losses * weight.to(losses)
        if not self.is_repeated(stage):
            self.metric(stage, dataloader_idx).add(losses.detach(), scores.detach(), y, weight, self.weight_norm())
        return losses

    def validation_step(self, batch: Any, batch_idx: int = 0, dataloader_idx: int = 0, stage: str = "val") -> None:
        """Add a batch to the metrics of validation, and log those of a loader after its last batch."""
        self.step(batch, stage, dataloader_idx)
        if self._trainer is not None:
            counts = self.trainer.num_val_batches if stage == "val" else self.trainer.num_test_batches
            if batch_idx + 1 == counts[dataloader_idx]:
                self.log_epoch(stage, dataloader_idx)

    def test_step(self, batch: Any, batch_idx: int = 0, dataloader_idx: int = 0) -> None:
        """Add a batch to the metrics of the test likewise."""
        self.validation_step(batch, batch_idx, dataloader_idx, "test")

    def unpack(self, batch: Any) -> tuple[Any, Tensor, Tensor | None]:
        """Return samples, labels, and sample weights or ``None``; refuse batches of another form."""
        if not isinstance(batch, tuple | list) or len(batch) not in (2, 3):
            found = f"{len(batch)} items" if isinstance(batch, tuple | list) else type(batch).__name__
            raise TypeError(f"a batch must be (x, y) or (x, y, sample_weight), found {found}; change the loader")
        x, y, weight = (*batch, None)[:3]
        if not isinstance(x, Tensor) or not isinstance(y, Tensor):
            raise TypeError(f"a batch must hold tensors, found {type(x).__name__} and {type(y).__name__}")
        if not y.dim() or x.shape[0] != len(y) or (not len(y) and rank_and_size()[1] == 1):
            found = f"found x {tuple(x.shape)} and y {tuple(y.shape)}"
            raise ValueError(f"a batch must have one label per sample, at least one, {found}; give a batch_size")
        return x, y, weight

    def is_repeated(self, stage: str) -> bool:
        """Return whether a training batch is seen again, as LBFGS asks for its loss repeatedly."""
        before, self.counted = self.counted, stage == "train"
        return before and self.counted

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
        """Return the metrics of the current epoch, on the device of the module."""
        found = self.metrics.get((stage, dataloader_idx))
        if found is None or found.device != self.device:
            made = self.metrics[stage, dataloader_idx] = self.new_metric(exact_dtype(self.device)).to(self.device)
            if found is not None:
                made.restore(found.saved())
            return made
        return found

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
        """Begin new metrics with the first batch; no other hook is called in every run that is resumed."""
        self.counted = False
        if batch_idx == 0 and ("train", 0) in self.metrics:
            self.metrics["train", 0].reset()

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
        for (name, number), metric in sorted(self.metrics.items(), key=lambda item: item[0]):
            if name != stage or dataloader_idx not in (None, number) or metric.is_empty:
                continue
            suffix = f"/dataloader_idx_{number}" if dataloader_idx is None and number else ""  # else Lightning's own
            metric.merge()
            computed = metric.compute()
            if stage == "train":
                computed["norm"] = self.parameter_norm().to(metric.exact)
            numbers = torch.stack(list(computed.values())).tolist()  # one wait for a device
            metric.reset()
            values = dict(zip(computed, numbers, strict=True))
            found = {f"{name}/{stage}{suffix}": values.pop(name) for name in self.logged}
            self.log_once(found, prog_bar=True, add_dataloader_idx=dataloader_idx is not None)
            if stage == "train":
                self.log_once({name: value for name, value in values.items() if (name, value) != ("margin", math.inf)})

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

    def is_fitting(self) -> bool:
        """Return whether a Trainer is training the module; ``load_from_checkpoint`` has none."""
        return self._trainer is not None and self.trainer.state.fn == pl.trainer.states.TrainerFn.FITTING

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Save the kind of run, the net's description as it is now, and the sums of an epoch that is not over."""
        checkpoint["torchperc"] = plain({"format": FORMAT, **self.kind()})
        net = plain({"net": described_net(self.net, self.nets)})
        checkpoint["hyper_parameters"] = {**checkpoint["hyper_parameters"], **net}
        metric = self.metrics.get(("train", 0))
        checkpoint["metrics"] = gather(None if metric is None or metric.is_empty else metric.saved())

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Refuse a checkpoint of another run or net; continue the metrics of its epoch."""
        saved, own, resumed = checkpoint.get("torchperc"), plain({"format": FORMAT, **self.kind()}), self.is_fitting()
        if not isinstance(saved, dict) or saved.get("format") != FORMAT:
            raise CheckpointError(
                "the checkpoint was not written by a module of torchperc 0.3; load the weights alone: "
                "module.load_state_dict(torch.load(path)['state_dict'])"
            )
        for name in own if resumed else ("module",):
            if saved.get(name) != own[name]:
                raise CheckpointError(
                    f"the checkpoint is of a run with {name}={saved.get(name)!r}, this one has {name}={own[name]!r}; "
                    "resume the same run, or load the weights alone by load_from_checkpoint(path) of that module"
                )
        names = {name.replace(COMPILED, "net."): name for name in self.state_dict()}  # compiled or not
        state = {name.replace(COMPILED, "net."): values for name, values in checkpoint["state_dict"].items()}
        checkpoint["state_dict"] = {names.get(name, name): values for name, values in state.items()}
        here = {name: tuple(values.shape) for name, values in self.state_dict().items()}
        found = {name: tuple(values.shape) for name, values in checkpoint["state_dict"].items()}
        other = any(here.get(name, shape) != shape for name, shape in found.items()) or not here.keys() & found
        if other or (resumed and self.strict_loading and here != found):  # else strict= says what may be missing
            raise CheckpointError(f"the checkpoint is of another net: it has {found}, this net has {here}")
        metrics = checkpoint["metrics"][self.global_rank] if resumed else None
        if metrics is not None:
            self.metric("train").restore(metrics)

    @classmethod
    def load_from_checkpoint(cls, checkpoint_path: Any, *args: Any, **options: Any) -> Any:
        """Return the module of a checkpoint, as Lightning does, after a look at its checksum."""
        verify(checkpoint_path)
        return super().load_from_checkpoint(checkpoint_path, *args, **options)

    def setup(self, stage: str) -> None:
        """Begin with new metrics; end the group of processes before the interpreter, whose end its threads abort."""
        self.metrics.clear()
        if self.trainer.world_size > 1:
            atexit.unregister(_end_processes)
            atexit.register(_end_processes)


def _end_processes() -> None:
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
