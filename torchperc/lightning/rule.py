"""The rule under a Lightning Trainer: its epochs are the Trainer's epochs, with the same loggers and checkpoints."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import torch
from torch import Tensor
from torch.utils.data import SequentialSampler

from torchperc.lightning.base import LitNet, Samples, unpacked
from torchperc.lightning.checkpoints import plain
from torchperc.lightning.loader import SliceLoader
from torchperc.lightning.rule_runs import Learning, OnlineLearning, WholeLearning
from torchperc.model.describe import uncompiled
from torchperc.nn.heads import PerceptronHead
from torchperc.rules.conventions import Verdict
from torchperc.rules.models import Net
from torchperc.rules.problem import check_net
from torchperc.rules.run import RuleResult
from torchperc.rules.trainer import RuleTrainer


class LitRule(LitNet):
    """Learns by the perceptron rule, an epoch at a time; the run stops by itself at its verdict.

    Logs what :class:`LitClassifier` logs, under the same tags, so that both lie on one chart: ``mistakes`` made in the
    epoch, ``error/train`` as their fraction of the presented samples, ``loss/train`` (the perceptron criterion) and
    ``margin`` after it, ``norm``, ``lr``, and ``loss/val`` and ``error/val`` where there is validation data. And what
    the theorem says of the run: ``theory/lower`` ≤ γ* ≤ ``theory/upper`` for the largest margin with the bias counted,
    ``theory/mistakes`` and ``theory/bound``.

    A loader that gives all samples in one batch, in the same order every time, is learned as
    :meth:`RuleTrainer.fit <torchperc.RuleTrainer.fit>` learns it. Any other, with mini-batches or shuffling, is learned
    online: each batch in turn as by :meth:`RuleTrainer.partial_fit <torchperc.RuleTrainer.partial_fit>`, with the same
    log in ``result.log`` after each batch, in the loader's order. Then the weights that are selected are in the net
    after every batch, ``loss/train`` and ``margin`` are those of each batch before its updates, ``theory/lower`` and
    ``theory/bound`` are not known, and an epoch without a mistake is ``SEPARATED``.

    Batches are (x, y), or (x, y, sample weights). Sparse samples stay sparse, and samples that are larger than memory
    are read in parts, both on the CPU, wherever the net is.

    Args:
        net: a linear net, see :class:`~torchperc.RuleTrainer`.
        lr: the learning rate η.
        tie: what is a mistake.
        bias_step: how the bias moves.
        order: in which samples are presented; with mini-batches ``"given"``, which is the loader's.
        select: which weights the net has in the end; ``result`` has the others. ``"averaged"`` (and its kin,
            ``"voted"``) are in the net after every epoch, for validation and checkpoints; ``"pocket"`` and
            ``"best-validation"`` are found when the run ends, and the net has the last weights until then. For
            ``"best-validation"`` the Trainer's validation counts, over all its loaders.
        engine: as for the trainer.
        seed: of the order.
        margin: the slack that every sample must exceed.
        class_weight: a factor for each label's updates.
        prove: whether to find out, if the run ends without separating the data, if that is possible.

    Example:
        >>> import torchperc as tp
        >>> lit = tp.lightning.LitRule(tp.Perceptron(2), order="shuffled")
        >>> lit.hparams.order, lit.hparams.net["class_path"]
        ('shuffled', 'torchperc.Perceptron')
    """

    def __init__(
        self,
        net: Net,
        lr: float = 1.0,
        tie: str = "update",
        bias_step: str | None = None,
        order: str = "given",
        select: str = "last",
        engine: str = "auto",
        seed: int = 0,
        margin: float = 0.0,
        class_weight: Mapping[int, float] | str | None = None,
        prove: bool = False,
    ) -> None:
        super().__init__(net, PerceptronHead())
        check_net(self._inner())
        self.trainer_options: dict[str, Any] = {
            "lr": lr,
            "tie": tie,
            "bias_step": bias_step,
            "order": order,
            "select": select,
            "engine": engine,
            "seed": seed,
            "margin": margin,
            "class_weight": dict(class_weight) if isinstance(class_weight, Mapping) else class_weight,
            "prove": prove,
        }
        RuleTrainer(**self.trainer_options)  # refuses wrong options now rather than at the first epoch
        self.trainer_options = plain(self.trainer_options)
        self.automatic_optimization = False
        self.result: RuleResult | None = None
        self.save_hyperparameters({**self._described(), **self.trainer_options})
        self._learning: Learning | None = None
        self._resume: dict[str, Any] | None = None
        self._held = [0, 0]

    def _described(self) -> dict[str, Any]:
        return {"net": super()._described()["net"]}

    def _inner(self) -> Net:
        return cast(Net, uncompiled(self.net))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """An optimizer that never sees a gradient: it counts batches as steps, for checkpoints and ``max_steps``."""
        return torch.optim.SGD(self.net.parameters(), lr=self.trainer_options["lr"])

    # --- epochs ---

    def setup(self, stage: str) -> None:
        """Refuse callbacks that change learning rates and weights, before one of them begins."""
        for callback in self.trainer.callbacks:  # type: ignore[attr-defined]  # which every Trainer has
            if why := _REFUSED.get(type(callback).__name__):
                raise ValueError(f"LitRule cannot be run under {type(callback).__name__}: {why}")

    def on_fit_start(self) -> None:
        """A new run; one that is resumed after its verdict has nothing more to do."""
        self._refuse_mixed_precision("the rule")
        self._refuse_frozen("the rule")
        self._refuse_processes("the rule")
        self._learning = None
        if self._resume is not None and self._resume["verdict"] not in (None, Verdict.BUDGET.value):
            self.trainer.should_stop = True

    def training_step(self, batch: Any, batch_idx: int) -> None:
        """One epoch of the rule, or one batch of it."""
        samples = unpacked(batch)
        if self._learning is None:
            self._learning = self._begin(samples)
        if batch_idx == 0:  # a checkpoint made at an epoch's last batch has an epoch that was not ended
            self._learning.epoch_values(complete=True)
        self._learning.learn(samples)
        if isinstance(self._learning, OnlineLearning):
            self.result = self._learning.last
        optimizer = self.optimizers()
        optimizer.step()  # type: ignore[union-attr]  # there is one

    def on_train_batch_end(self, *_: Any) -> None:
        """Log the epoch after its last batch, so that every callback finds it at the end of the epoch."""
        if self.trainer.is_last_batch or self.trainer.global_step == self.trainer.max_steps:
            self._log_epoch(complete=self.trainer.is_last_batch)

    def on_train_epoch_end(self) -> None:
        """Log an epoch that was cut short, as by ``max_time``."""
        self._log_epoch(complete=False)

    def _log_epoch(self, *, complete: bool) -> None:
        if self._learning is None or not (values := self._learning.epoch_values(complete=complete)):
            return
        self._log({**values, "lr": float(self.trainer_options["lr"])})
        if self._learning.verdict is not None:
            self.trainer.should_stop = True

    def _begin(self, samples: Samples) -> Learning:
        trainer, net = self.trainer, self._inner()
        loader, epochs = trainer.train_dataloader, trainer.max_epochs
        most = epochs if epochs is not None and epochs > 0 else None
        in_order = isinstance(loader, SliceLoader) and loader.order == "given"
        in_order = in_order or isinstance(getattr(loader, "sampler", None), SequentialSampler)
        learning: Learning
        if trainer.num_training_batches == 1 and in_order:
            self._check_validation()
            learning = WholeLearning(net, self.trainer_options, samples, most)
        else:
            learning = OnlineLearning(net, self.trainer_options, self.head, most)
        if self._resume is not None:
            learning.load_state_dict(self._resume)
            self._resume = None
        return learning

    def _check_validation(self) -> None:
        trainer = self.trainer
        known = trainer.val_dataloaders is not None
        if self.trainer_options["select"] == "best-validation" and (
            not trainer.enable_validation or (known and not any(trainer.num_val_batches))
        ):
            raise ValueError("select='best-validation' needs validation data; give the Trainer a validation loader")

    def on_fit_end(self) -> None:
        """A run resumed after its last epoch has none to make, but a result to give."""
        if self.result is None and self._resume is not None:
            loader: Any = self.trainer.train_dataloader
            batch = unpacked(next(iter(loader)))
            self._learning = self._begin(Samples(*(self._here(part) for part in batch)))
            self.on_train_end()

    def _here(self, x: Any) -> Any:
        return x.to(self.device) if isinstance(x, Tensor) else x

    def on_train_end(self) -> None:
        """Leave the selected weights in the net, and the result on the module."""
        if self._learning is not None and (result := self._learning.result()) is not None:
            self.result = result
            result.write_to(self._inner())

    # --- validation ---

    def validation_step(self, batch: Any, batch_idx: int = 0, dataloader_idx: int = 0) -> None:
        """Loss and error on validation data."""
        wrong = self._evaluate(batch, "val")
        if self.trainer_options["select"] == "best-validation":
            self._held[0] += int(wrong)
            self._held[1] += len(unpacked(batch).y)

    def on_validation_epoch_end(self) -> None:
        """Record the error for the best validation."""
        if self._held[1] and self._learning is not None and self._is_fitting() and not self.trainer.sanity_checking:
            self._learning.validated(self._held[0] / self._held[1])
        self._held = [0, 0]

    # --- checkpoints ---

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Save the run, too: log, weights, random state."""
        super().on_save_checkpoint(checkpoint)
        checkpoint["rule"] = self._resume if self._learning is None else self._learning.state_dict()

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Go on from there at the first epoch, if the run is resumed; else only the weights are loaded."""
        super().on_load_checkpoint(checkpoint)
        self._resume = checkpoint.get("rule") if self._is_fitting() else None

    def _kind(self) -> dict[str, Any]:
        options = ", ".join(f"{name}={value!r}" for name, value in self.trainer_options.items() if name != "engine")
        return {"module": "LitRule", "options": options}


_REFUSED = {
    "StochasticWeightAveraging": "the rule has averages of its own; use select='averaged'",
    "WeightAveraging": "the rule has averages of its own; use select='averaged'",
    "EMAWeightAveraging": "the rule has averages of its own; use select='averaged'",
    "LearningRateFinder": "from zero weights lr scales the weights and changes nothing else; use lr=1",
}
