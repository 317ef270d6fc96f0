"""The perceptron rule under a Lightning Trainer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, cast

import torch
from torch import Tensor
from torch.utils.data import DistributedSampler, SequentialSampler

from torchperc._checks import check_choice
from torchperc.lightning.base import LitNet, Samples
from torchperc.lightning.checkpoints import plain
from torchperc.lightning.loader import SliceLoader
from torchperc.lightning.metrics import EpochSums
from torchperc.lightning.rule_runs import Learning, OnlineChains, OnlineLearning, WholeChains, WholeLearning
from torchperc.model.describe import as_net, uncompiled
from torchperc.nn.heads import PerceptronHead
from torchperc.rules.conventions import ENGINES, Verdict
from torchperc.rules.make_problem import check_net
from torchperc.rules.models import Net, OwnRule
from torchperc.rules.run import RuleResult
from torchperc.rules.trainer import RuleTrainer
from torchperc.sequences.chains import ChainPerceptron
from torchperc.sequences.heads import StructuredHead
from torchperc.sequences.rule import check_options


class LitRule(LitNet):
    """Trains by the perceptron rule and stops at the verdict, which is in ``result``.

    Logs the tags of :class:`LitClassifier`: ``mistakes`` of the epoch, ``error/train`` as their fraction of samples,
    ``loss/train`` (the perceptron criterion) and ``margin`` after the epoch, ``norm``, ``lr``, ``loss/val`` and
    ``error/val``. Besides, the mistake bound: ``theory/lower`` ≤ γ* ≤ ``theory/upper`` for the largest margin with the
    bias in the norm, ``theory/mistakes`` and ``theory/bound``.

    One batch with all samples, the same every epoch, is learned as by :meth:`RuleTrainer.fit
    <torchperc.RuleTrainer.fit>`. Mini-batches and shuffled batches are learned online, as by
    :meth:`RuleTrainer.partial_fit <torchperc.RuleTrainer.partial_fit>`: the selected weights are in the net after every
    batch, ``loss/train`` and ``margin`` are those of each batch before its updates, ``theory/lower`` and
    ``theory/bound`` are not known, and an epoch without a mistake is ``SEPARATED``.

    A :class:`~torchperc.sequences.ChainPerceptron` learns sequences, in batches ((x, lengths), y) as
    :class:`LitClassifier` accepts them: ``mistakes`` are sequences, ``error/train`` is the fraction of wrong tags in
    them, ``error/sequence/train`` their fraction of all sequences; there is no ``margin`` and no ``theory/lower``.

    Batches are (x, y) or (x, y, sample weights). Sparse samples are read on the CPU.

    In several processes (``strategy="ddp"``), each with one batch of its own samples, ``distributed="mix"`` mixes their
    weights after every pass; all of them have the same weights, log and metrics. Samples are presented as ``order``
    says, whether the loader shuffles or not, and numbered as if those of the processes followed one another.

    Args:
        net: a linear net or a chain, see :class:`~torchperc.RuleTrainer` for this and all other arguments.
        lr: the learning rate η.
        tie: what is a mistake.
        bias_step: how the bias moves.
        order: of the samples; with mini-batches ``"given"``, which is the loader's.
        select: which weights the net has in the end. ``"averaged"`` and ``"voted"`` put the average into the net after
            every epoch; with ``"pocket"`` and ``"best-validation"`` the net has the last weights until the run ends.
            ``"best-validation"`` uses the Trainer's validation, over all its loaders.
        engine: how epochs are computed.
        seed: of the order.
        margin: the slack that every sample must exceed.
        class_weight: a factor per label for its updates, as ``{label: factor}``;
            :func:`torchperc.functional.balanced_weights` makes those that balance the classes.
        prove: if the run does not separate the data, find out whether that is possible.
        distributed: ``"mix"`` if several processes learn together.
        mixing: the weight of a process then: ``"uniform"`` or by its ``"mistakes"``.

    Example:
        >>> import torchperc as tp
        >>> lit = tp.lightning.LitRule(tp.Perceptron(2), order="shuffled")
        >>> lit.hparams.order, lit.hparams.net["class_path"]
        ('shuffled', 'torchperc.Perceptron')
    """

    def __init__(
        self,
        net: Net | ChainPerceptron,
        lr: float = 1.0,
        tie: str = "update",
        bias_step: str | None = None,
        order: str = "given",
        select: str = "last",
        engine: str = "auto",
        seed: int = 0,
        margin: float = 0.0,
        class_weight: Mapping[int, float] | None = None,
        prove: bool = False,
        distributed: str | None = None,
        mixing: str = "uniform",
    ) -> None:
        own = isinstance(uncompiled(as_net(net)), OwnRule)  # a chain; other nets are linear
        super().__init__(net, StructuredHead() if own else PerceptronHead())
        if isinstance(class_weight, str):
            raise TypeError(
                f"class_weight must be a mapping {{label: factor}} such as tp.functional.balanced_weights(y), found "
                f"{class_weight!r}"
            )
        weights = None if class_weight is None else dict(class_weight)
        options: dict[str, Any] = {"lr": lr, "tie": tie, "bias_step": bias_step, "order": order, "select": select}
        options |= {"engine": engine, "seed": seed, "margin": margin, "class_weight": weights, "prove": prove}
        options |= {"distributed": distributed, "mixing": mixing}
        check_choice("engine", engine, ENGINES)  # an engine of the user's own could not be read from a checkpoint
        trainer = RuleTrainer(**options)  # which checks the other arguments
        inner = uncompiled(self.net)
        if isinstance(inner, ChainPerceptron):
            check_options(trainer, inner)
        else:
            check_net(inner)
        self.trainer_options: dict[str, Any] = plain(options)
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
        """An optimizer without gradients: it counts batches as steps, for checkpoints and ``max_steps``."""
        return torch.optim.SGD(self.net.parameters(), lr=self.trainer_options["lr"])

    # --- epochs ---

    def setup(self, stage: str) -> None:
        """Refuse callbacks that change learning rates and weights."""
        for callback in self.trainer.callbacks:  # type: ignore[attr-defined]
            if why := _REFUSED.get(type(callback).__name__):
                raise ValueError(f"LitRule cannot be run under {type(callback).__name__}: {why}")

    def on_fit_start(self) -> None:
        """A new run; one that is resumed after its verdict stops at once."""
        together = self.trainer_options["distributed"] is not None
        instead = "devices=1" if self.chains else "distributed='mix', or devices=1"
        self._refuse("the rule", None if together else instead)
        self._learning = None
        if self._resume is not None and self._resume["verdict"] not in (None, Verdict.BUDGET.value):
            self.trainer.should_stop = True

    def on_train_start(self) -> None:
        """Present samples as ``order`` says: a Trainer's ``DistributedSampler`` would shuffle those in order, too."""
        sampler = getattr(self.trainer.train_dataloader, "sampler", None)
        if self.trainer_options["distributed"] is not None and isinstance(sampler, DistributedSampler):
            sampler.shuffle = False

    def training_step(self, batch: Any, batch_idx: int) -> None:
        """One epoch of the rule, or one batch of it."""
        samples = self._samples(batch, "train", batch_idx)
        if self._learning is None:
            self._learning = self._begin(samples)
        if batch_idx == 0:  # a checkpoint made at an epoch's last batch has an epoch that was not ended
            self._learning.epoch_values(complete=True)
        self._learning.learn(samples)
        if isinstance(self._learning, OnlineLearning):
            self.result = self._learning.last
        self.optimizers().step()  # type: ignore[union-attr]  # there is one

    def on_train_batch_end(self, *_: Any) -> None:
        """Log the epoch after its last batch, before any callback looks at it."""
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
        most = epochs if epochs is not None and epochs > 0 else 2**31
        in_order = isinstance(loader, SliceLoader) and loader.order == "given"
        sampler = getattr(loader, "sampler", None)
        dealt = isinstance(sampler, DistributedSampler) and not sampler.shuffle
        in_order = in_order or dealt or isinstance(sampler, SequentialSampler)
        whole, online = (WholeChains, OnlineChains) if self.chains else (WholeLearning, OnlineLearning)
        learning: Learning
        if trainer.num_training_batches == 1 and in_order:
            known = trainer.val_dataloaders is not None
            validates = trainer.enable_validation and (not known or any(trainer.num_val_batches))
            if self.trainer_options["select"] == "best-validation" and not validates:
                raise ValueError("select='best-validation' needs validation data; give the Trainer a validation loader")
            learning = whole(net, self.trainer_options, samples, most, self._resume)
        else:
            learning = online(net, self.trainer_options, self.head, most)
        if self._resume is not None:
            learning.load_state_dict(self._resume)
            self._resume = None
        return learning

    def on_fit_end(self) -> None:
        """The result of a run that was resumed after its last epoch."""
        if self.result is None and self._resume is not None:
            loader: Any = self.trainer.train_dataloader
            batch = self._samples(next(iter(loader)), "train", 0)
            here: Iterator[Any] = (part.to(self.device) if isinstance(part, Tensor) else part for part in batch)
            self._learning = self._begin(Samples(*here))
            self.on_train_end()

    def on_train_end(self) -> None:
        """Write the selected weights into the net; keep the result."""
        if self._learning is not None and (result := self._learning.result()) is not None:
            self.result = result
            result.write_to(self._inner())

    # --- validation ---

    def _count_decisions(self, sums: EpochSums) -> None:
        if self.trainer_options["select"] == "best-validation":
            wrong, count = sums.decisions()
            self._held[0] += wrong
            self._held[1] += count

    def on_validation_epoch_end(self) -> None:
        """Record the error for ``"best-validation"``."""
        super().on_validation_epoch_end()
        if self._held[1] and self._learning is not None and self._is_fitting() and not self.trainer.sanity_checking:
            self._learning.validated(self._held[0] / self._held[1])
        self._held = [0, 0]

    # --- checkpoints ---

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Save the run: log, weights, random state."""
        super().on_save_checkpoint(checkpoint)
        checkpoint["rule"] = self._resume if self._learning is None else self._learning.state_dict()

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Load the weights; if the run is resumed, the run too."""
        super().on_load_checkpoint(checkpoint)
        self._resume = checkpoint.get("rule") if self._is_fitting() else None

    def _kind(self) -> dict[str, Any]:
        options = ", ".join(f"{name}={value!r}" for name, value in self.trainer_options.items() if name != "engine")
        return {"module": "LitRule", "options": options}


_AVERAGES = ("StochasticWeightAveraging", "WeightAveraging", "EMAWeightAveraging")
_REFUSED = {
    **dict.fromkeys(_AVERAGES, "the rule has averages of its own; use select='averaged'"),
    "LearningRateFinder": "from zero weights lr only scales the weights; use lr=1",
}
