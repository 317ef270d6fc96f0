"""What the LightningModules share: evaluation, logging, checkpoints."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from torchperc._checks import as_csr, check_sample_weight, is_sparse
from torchperc.lightning import chains
from torchperc.lightning._pl import pl
from torchperc.lightning.checkpoints import CheckpointError, plain
from torchperc.lightning.loader import repeated
from torchperc.lightning.metrics import ONCE_PER_EPOCH, EpochSums, tally
from torchperc.model.describe import as_head, as_net, described_head, described_net
from torchperc.nn import functional as tpf
from torchperc.nn.heads import Head, RegressionHead
from torchperc.nn.modules import scores_of
from torchperc.samples import convert
from torchperc.sequences.layout import PaddedSequences

FORMAT = 2  # of what the modules write into a checkpoint; version 0.1.0 wrote none
_SHOWN = ("loss/train", "error/train", "error/val", "mistakes", "rmse/train", "rmse/val")
_COMPILED = "net._orig_mod."
WEIGHTS_ALONE = "load the weights alone: module.load_state_dict(torch.load(path)['state_dict'])"


class Samples(NamedTuple):
    """A batch: samples, labels, and sample weights or ``None``."""

    x: Any
    y: Tensor
    weight: Tensor | None


class LitNet(pl.LightningModule):
    """A net with a head: scores, labels, validation, test, and checkpoints that rebuild it.

    Metrics go through ``self.log`` in double precision, once per epoch, over all samples. In several processes they are
    those of all of them: sums and counts are added up, and a sample that a ``DistributedSampler`` repeats counts once.

    Args:
        net: gives scores, (N,) or (N, 1) for labels −1/+1, (N, K) for class indices; or a checkpoint's description.
        head: what the scores mean.

    Example:
        >>> from torchperc import Perceptron
        >>> LitNet(Perceptron(2), "logistic").predict_step(torch.zeros(1, 2))
        tensor([-1])
    """

    _measures: tuple[str, ...] = ("loss", "error")  # what is logged of each set of samples
    class_weight: Mapping[int, float] | None = None  # a factor per label for its loss

    def __init__(self, net: nn.Module, head: Head | str) -> None:
        super().__init__()
        self.net = as_net(net)
        self.head = as_head(head)
        self.chains = chains.check_chain(self.net, self.head)
        if self.chains:
            self._measures = ("loss", "error", "error/sequence")
        self._evaluated: dict[int, EpochSums] = {}

    def forward(self, x: Tensor) -> Tensor:
        """Scores: (N,), or (N, K); of sequences what the net gives, ``ChainScores``."""
        if self.chains:
            return self.net(x)  # type: ignore[no-any-return]
        scores = scores_of(self.net, x)
        return scores.squeeze(-1) if scores.dim() == 2 and scores.shape[1] == 1 else scores

    # --- validation, test, prediction ---

    def validation_step(self, batch: Any, batch_idx: int = 0, dataloader_idx: int = 0) -> None:
        """Loss and error on validation data."""
        self._evaluate(batch, "val", batch_idx, dataloader_idx)

    def test_step(self, batch: Any, batch_idx: int = 0, dataloader_idx: int = 0) -> None:
        """Loss and error on test data."""
        self._evaluate(batch, "test", batch_idx, dataloader_idx)

    def on_validation_epoch_start(self) -> None:
        """Forget an evaluation that was interrupted."""
        self._evaluated = {}

    on_test_epoch_start = on_validation_epoch_start

    def on_validation_epoch_end(self) -> None:
        """Log what a loader without length gave."""
        self._log_the_rest("val")

    def on_test_epoch_end(self) -> None:
        """Log what a loader without length gave."""
        self._log_the_rest("test")

    def predict_step(self, batch: Any, batch_idx: int = 0, dataloader_idx: int = 0) -> Tensor:
        """Labels −1/+1, or class indices. A batch may come with labels or without."""
        if self.chains:
            return self._best_tags(batch)
        x = batch[0] if isinstance(batch, tuple | list) and batch else batch
        if not isinstance(x, Tensor):
            raise TypeError(f"a batch to predict must be x or (x, ...), found {type(x).__name__}; change the loader")
        return self._predicted(tpf.finite_scores(self(x)))

    def _predicted(self, scores: Tensor) -> Tensor:
        """What the module says of samples with these scores."""
        return self.head.decide(scores)

    # --- sums over the batches of an epoch ---

    def _best_tags(self, batch: Any) -> Tensor:
        """(N, T) with −100 behind the end of each sequence, of a batch with tags or without."""
        return self.head.decide(self.net(chains.unlabelled(batch)))

    def _new_sums(self) -> EpochSums:
        return chains.ChainSums() if self.chains else EpochSums()

    def _losses(self, scores: Any, y: Tensor) -> tuple[Tensor, Any]:
        """The loss of each sample, and what :meth:`_tally` is to know of it."""
        if self.chains:
            losses, mistakes = self.head.judge(scores, y)  # type: ignore[attr-defined]  # it is a StructuredHead
            return losses, (losses.detach(), mistakes)
        losses = self.head.loss(scores, y, reduction="none")
        return losses, losses.detach()

    def _tally(self, scores: Any, y: Tensor, factors: Tensor | None, judged: Any = None) -> Any:
        """What the sums of an epoch add up of a batch; the losses may be known, of sequences with what is a mistake."""
        if self.chains:
            return chains.chain_tally(self.head, scores, y, factors, judged)
        return tally(self.head, scores, y, factors, judged)

    def _evaluate(self, batch: Any, stage: str, batch_idx: int, dataloader_idx: int) -> None:
        """Add up loss and errors; log them after a loader's last batch, before any callback looks at them."""
        sums = self._evaluated.setdefault(dataloader_idx, self._new_sums())
        x, y, weight = padded(self._samples(batch, stage, batch_idx, dataloader_idx))
        found: Any = None
        if self.chains and len(y):
            found = chains.compiled_tally(self.net, self.head, x, y, self._factors(None, y, weight))
        if found is None and len(y):
            scores = self(x)
            found = self._tally(scores, y, self._factors(scores, y, weight))
        sums.add(len(y), found, None)
        if self._has_trainer() and batch_idx + 1 == self._batch_counts(stage)[dataloader_idx]:
            self._log_evaluated(stage, dataloader_idx)

    def _log_the_rest(self, stage: str) -> None:
        several = len(self._batch_counts(stage)) > 1
        for number in sorted(self._evaluated):
            self._log_evaluated(stage, number, f"/dataloader_idx_{number}" if several else "")

    def _log_evaluated(self, stage: str, number: int, suffix: str = "") -> None:
        sums = self._over_processes(self._evaluated.pop(number))
        if sums.count:
            means = sums.means()
            values = {f"{name}/{stage}{suffix}": means[name] for name in self._measures}
            self._log(values, add_dataloader_idx=not suffix)
            self._count_decisions(sums)

    def _count_decisions(self, sums: EpochSums) -> None:
        """What a module does with the evaluation of a loader, besides logging it."""

    def _batch_counts(self, stage: str) -> list[float]:
        counts: list[float] = self.trainer.num_val_batches if stage == "val" else self.trainer.num_test_batches
        return counts

    # --- several processes ---

    def _processes(self) -> int:
        """How many train or evaluate together."""
        return self.trainer.world_size if self._has_trainer() else 1

    def _over_processes(self, sums: EpochSums) -> EpochSums:
        return sums if self._processes() == 1 else sums.over_processes(self.device)

    def _samples(self, batch: Any, stage: str, batch_idx: int, dataloader_idx: int = 0) -> Samples:
        """A batch, checked, without samples that another process has, too; there may be none left."""
        if self._processes() == 1:
            return self._unpacked(batch)
        loaders = {"train": self.trainer.train_dataloader, "val": self.trainer.val_dataloaders}
        loader = loaders.get(stage, self.trainer.test_dataloaders)
        if isinstance(loader, Mapping):
            loader = list(loader.values())
        if isinstance(loader, list | tuple):
            loader = loader[dataloader_idx]
        return _without_last(self._unpacked(batch, may_be_empty=True), repeated(loader, batch_idx))

    def _unpacked(self, batch: Any, *, may_be_empty: bool = False) -> Samples:
        if self.chains:
            return Samples(*chains.chain_batch(batch, may_be_empty=may_be_empty))
        return unpacked(batch, may_be_empty=may_be_empty, real=isinstance(self.head, RegressionHead))

    def _factors(self, scores: Any, y: Tensor, weight: Tensor | None) -> Tensor | None:
        """The weight of each sample's loss, its own times its class's, in float64."""
        if self.chains:
            return chains.chain_factors(weight, len(y))
        if weight is None and self.class_weight is None:
            return None
        classes = None if scores.dim() == 1 else scores.shape[-1]
        factors = torch.ones(len(y), dtype=torch.float64, device=y.device)
        if weight is not None:
            factors = check_sample_weight(weight, len(y), all_zero=True).to(y.device)  # 0 in a batch, not in all data
        labels = (-1, 1) if classes is None else range(classes)
        for label, factor in (self.class_weight or {}).items():
            if label not in labels:
                raise ValueError(f"class_weight names label {label!r}; the labels are {', '.join(map(str, labels))}")
            factors = torch.where(y == label, factors * factor, factors)
        return factors

    def _log(self, values: Mapping[str, Tensor | float], *, add_dataloader_idx: bool = True) -> None:
        for name, value in values.items():
            number = value if isinstance(value, Tensor) else torch.tensor(value, dtype=torch.float64)
            shown = name in _SHOWN
            self.log(name, number, prog_bar=shown, add_dataloader_idx=add_dataloader_idx, **ONCE_PER_EPOCH)

    # --- checkpoints ---

    def _kind(self) -> dict[str, Any]:
        """What a run must have in common with the checkpoint that it resumes from."""
        return {"module": "LitNet", "head": repr(self.head)}

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Save the kind of run, and a description of the net as it is now."""
        checkpoint["torchperc"] = {"format": FORMAT, **self._kind()}
        checkpoint["hyper_parameters"] = {**checkpoint["hyper_parameters"], **plain(self._described())}

    def _described(self) -> dict[str, Any]:
        return {"net": described_net(self.net), "head": described_head(self.head)}

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Refuse a checkpoint of another kind of run or another net, before anything is loaded."""
        found = checkpoint.get("torchperc")
        if not isinstance(found, dict) or found.get("format") != FORMAT:
            raise CheckpointError(
                "the checkpoint was not written by this version of torchperc, and 0.1.0 did not save the arguments of "
                f"its modules; create the module again and {WEIGHTS_ALONE}"
            )
        kind = {"format": FORMAT, **self._kind()}
        if found.get("module") != kind["module"]:
            raise CheckpointError(
                f"the checkpoint is of a {found.get('module')}, this is a {kind['module']}; use the same module"
            )
        before, now = (each.get("processes", 1) for each in (found, kind))
        if self._is_fitting() and before != now:
            raise CheckpointError(
                f"the checkpoint is of a run in {before} process{'es' * (before > 1)}, and this one has {now}; resume "
                f"with devices × num_nodes = {before}, or load the weights alone: load_from_checkpoint(path)"
            )
        if self._is_fitting() and found != kind:
            raise CheckpointError(
                f"the checkpoint is of another run: it has {found}, this run is {kind}; resume the same run"
            )
        checkpoint["state_dict"] = self._renamed(checkpoint["state_dict"])
        own = {name: tuple(values.shape) for name, values in self.state_dict().items()}
        saved = {name: tuple(values.shape) for name, values in checkpoint["state_dict"].items()}
        strict = self._is_fitting() and self.strict_loading  # else Lightning's strict= decides what may be missing
        other = any(own.get(name, shape) != shape for name, shape in saved.items()) or not own.keys() & saved.keys()
        if other or (strict and own != saved):
            raise CheckpointError(
                f"the checkpoint is of another net: it has {saved}, this net has {own}; use the same net"
            )

    def _renamed(self, state: Mapping[str, Any]) -> dict[str, Any]:
        """Parameters under the names they have here, if one of the two nets is compiled by ``torch.compile``."""
        values_of = {name.replace(_COMPILED, "net."): values for name, values in state.items()}
        names = {name.replace(_COMPILED, "net."): name for name in self.state_dict()}
        return {names.get(name, name): values for name, values in values_of.items()}

    def _refuse(self, what: str, instead: str | None = "devices=1") -> None:
        """Refuse mixed precision, frozen parameters and several processes, where steps are made without autograd.

        ``instead`` says what to use with several processes; ``None`` if they are fine.
        """
        if "mixed" in str(self.trainer.precision):
            raise ValueError(
                f"{what} computes in the net's own type, and precision={self.trainer.precision!r} would change "
                "nothing; use precision='32-true' or '64-true'"
            )
        frozen = [name for name, values in self.net.named_parameters() if not values.requires_grad]
        if frozen:
            raise ValueError(
                f"{what} would move net.{frozen[0]}, which has requires_grad=False; use gradient descent with "
                "update='batch', which leaves it as it is"
            )
        if instead is not None and self.trainer.world_size > 1:
            raise ValueError(
                f"{what} would learn different weights in each of {self.trainer.world_size} processes; use {instead}"
            )

    def _is_fitting(self) -> bool:
        return self._has_trainer() and self.trainer.state.fn == pl.trainer.states.TrainerFn.FITTING

    def _has_trainer(self) -> bool:
        """There is none in ``load_from_checkpoint``."""
        try:
            return self.trainer is not None
        except RuntimeError:
            return False


def unpacked(batch: Any, *, may_be_empty: bool = False, real: bool = False) -> Samples:
    """A batch (x, y) or (x, y, sample weights), checked; ``real`` targets may be several columns, one is y itself.

    Example:
        >>> unpacked([torch.zeros(2, 1), torch.tensor([1, -1])]).y
        tensor([ 1, -1])
    """
    if not isinstance(batch, tuple | list) or len(batch) not in (2, 3):
        found = f"{len(batch)} items" if isinstance(batch, tuple | list) else type(batch).__name__
        raise TypeError(f"a batch must be (x, y) or (x, y, sample_weight), found {found}; change the loader's dataset")
    x, y = batch[:2]
    if not isinstance(y, Tensor) or not isinstance(x, Tensor):
        raise TypeError(f"a batch must hold tensors, found {type(x).__name__} and {type(y).__name__}")
    if y.dim() == 0:
        raise ValueError("the loader gives single samples; give it a batch_size")
    if real and y.dim() == 2 and y.shape[1] == 1:
        y = y.squeeze(-1)
    if real and y.dim() > 2:
        raise ValueError(f"targets must be of shape (N,), or (N, K) for K outputs, found {tuple(y.shape)}")
    if y.dim() != 1 and not real:
        raise ValueError(
            f"labels must be of shape (N,), found {tuple(y.shape)}; use y.squeeze(-1) for one column, and for several "
            "class indices, y.argmax(1)"
        )
    if x.shape[0] != len(y) or not (len(y) or may_be_empty):
        raise ValueError(f"a batch must have as many labels as samples, at least one, found {x.shape[0]} and {len(y)}")
    return Samples(x, y, batch[2] if len(batch) == 3 else None)


def _without_last(samples: Samples, count: int) -> Samples:
    """A batch without so many samples at its end."""
    if not count:
        return samples
    x, y, weight = samples
    kept = slice(0, len(y) - count)
    if isinstance(x, PaddedSequences | chains.WholeSequences):
        return Samples(chains.without_last(x, kept), y[kept], None if weight is None else weight[kept])
    some = convert.csr_tensor(as_csr(x)[kept]) if is_sparse(x) else x[kept]
    return Samples(some, y[kept], None if weight is None else weight[kept])


def padded(samples: Samples) -> Samples:
    """A batch of all sequences of a loader as one padded batch, on the device of the tags; others as they are."""
    x, y, weight = samples
    if not isinstance(x, chains.WholeSequences):
        return samples
    whole = x.padded()
    return Samples(PaddedSequences(*(part.to(y.device) for part in whole)), y[:, : whole.x.shape[1]], weight)
