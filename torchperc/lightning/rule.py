"""The perceptron rule under a Lightning Trainer."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import astuple, replace
from typing import Any

import torch
from torch import Tensor, nn

from torchperc._checks import check_choice, is_sparse
from torchperc.lightning.base import LitModel
from torchperc.lightning.checkpoints import CheckpointError, plain
from torchperc.lightning.classifier import check_class_weight, label_factors
from torchperc.lightning.metrics import exact_dtype
from torchperc.model.describe import uncompiled
from torchperc.nn.heads import Head, PerceptronHead
from torchperc.rules.conventions import ENGINES, Verdict
from torchperc.rules.make_problem import check_net
from torchperc.rules.run import EpochRecord, RuleResult, RuleRun
from torchperc.rules.trainer import RuleTrainer
from torchperc.samples.process_group import gather

_REFUSED = ("StochasticWeightAveraging", "WeightAveraging", "EMAWeightAveraging", "LearningRateFinder")


class LitRule(LitModel):
    """Trains by the perceptron rule and stops at the verdict, which is in ``result``.

    A loader of one batch is learned as by :meth:`RuleTrainer.fit <torchperc.RuleTrainer.fit>`, an epoch of the run per
    epoch of the Trainer; the batch must be the same every epoch, so shuffle by ``order`` and not by the loader. Of any
    other loader each batch is learned as by :meth:`RuleTrainer.partial_fit <torchperc.RuleTrainer.partial_fit>`, and an
    epoch without a mistake is ``SEPARATED``.

    Logs the tags of :class:`LitClassifier`: ``mistakes`` of the epoch, ``error/train`` as their fraction of samples,
    ``loss/train`` (the perceptron criterion) and ``margin`` after the epoch, ``norm``, ``loss/val`` and ``error/val``.
    Besides, the mistake bound: ``theory/lower`` ≤ γ* ≤ ``theory/upper`` for the largest margin with the bias in the
    norm, ``theory/mistakes`` and ``theory/bound``. With several batches, ``loss/train`` and ``margin`` are those of
    each batch before it is learned, and ``theory/lower`` and ``theory/bound`` are not known.

    Batches are (x, y) or (x, y, sample weights). Sparse samples are read on the CPU. In several processes
    (``strategy="ddp"``), each with one batch of its own samples, ``distributed="mix"`` mixes their weights after every
    pass; all of them have the same weights and metrics.

    Args:
        net: a linear net.
        lr, tie, bias_step, engine, seed, margin, prove: see :class:`~torchperc.RuleTrainer`.
        order: of the samples; with several batches ``"given"``, which is the loader's.
        select: which weights the net has in the end. ``"averaged"`` and ``"voted"`` put the average into the net after
            every epoch; with ``"pocket"`` and ``"best-validation"`` the net has the last weights until the run ends.
            ``"best-validation"`` uses the Trainer's validation, over all its loaders.
        class_weight: a factor per label for its updates, as for :class:`LitClassifier`.
        distributed: ``"mix"`` if several processes learn together.
        mixing: the weight of a process then: ``"uniform"`` or by its ``"mistakes"``.

    Example:
        >>> import torchperc as tp
        >>> lit = tp.lightning.LitRule(tp.Perceptron(2), order="shuffled")
        >>> lit.hparams.order, lit.hparams.net["class_path"]
        ('shuffled', 'torchperc.Perceptron')
    """

    rule_head: Head = PerceptronHead()

    def __init__(
        self,
        net: nn.Module,
        lr: float = 1.0,
        tie: str = "update",
        bias_step: str | None = None,
        order: str = "given",
        select: str = "last",
        engine: str = "auto",
        seed: int = 0,
        margin: float = 0.0,
        class_weight: Mapping[int, float] | Sequence[float] | Tensor | None = None,
        prove: bool = False,
        distributed: str | None = None,
        mixing: str = "uniform",
    ) -> None:
        super().__init__(net, self.rule_head)
        class_weight = check_class_weight(class_weight)  # Lightning compares arguments by ==
        if isinstance(class_weight, list):
            units = len(getattr(uncompiled(self.net), "weight", ()))
            class_weight = label_factors(class_weight, None if units == 1 else units)
        check_choice("engine", engine, ENGINES)  # an engine of the user's own could not be read from a checkpoint
        options: dict[str, Any] = {"lr": lr, "tie": tie, "bias_step": bias_step, "order": order, "select": select}
        options |= {"engine": engine, "seed": seed, "margin": margin, "prove": prove}
        options |= {"class_weight": class_weight, "distributed": distributed, "mixing": mixing}
        self.trainer_options = plain(options)
        self.rule = RuleTrainer(**self.trainer_options)  # checks the other arguments
        self.check_net()
        self.save_arguments(**self.trainer_options)
        self.automatic_optimization = False
        self.run: RuleRun | None = None  # of one batch
        self.stream: Any = None  # of several batches
        self.result: RuleResult | None = None
        self.history: list[EpochRecord] = []
        self.verdict: Verdict | None = None
        self.norm = 0.0  # of the stream's weights
        self.total = 0.0  # Σ of the coefficients of all mistakes in the stream; NaN if it began at other weights
        self.saved: dict[str, Any] | None = None  # the state of a run that is resumed
        self.wrong: list[tuple[float, float]] = []  # wrong decisions and samples of each validation loader

    def check_net(self) -> None:
        """Refuse a net that the rule cannot train."""
        check_net(uncompiled(self.net))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Return an optimizer without gradients: it counts batches as steps, for checkpoints and ``max_steps``."""
        return torch.optim.SGD(self.net.parameters(), lr=self.trainer_options["lr"])

    # --- training ---

    def setup(self, stage: str) -> None:
        """Refuse what would change the weights or give each process other ones."""
        super().setup(stage)
        trainer = self.trainer
        names = [type(callback).__name__ for callback in trainer.callbacks]  # type: ignore[attr-defined]
        several = stage == "fit" and trainer.world_size > 1 and self.trainer_options["distributed"] is None
        refused = {
            f"precision={trainer.precision!r}; use '32-true' or '64-true'": "mixed" in str(trainer.precision),
            "requires_grad=False; use LitClassifier": not all(each.requires_grad for each in self.net.parameters()),
            f"{trainer.world_size} processes; use distributed='mix', or devices=1": several,
            **{f"{name}; use select='averaged' and lr=1": name in _REFUSED for name in names},
        }
        for found in (text for text, holds in refused.items() if holds):
            raise ValueError(f"the rule trains all weights in one process in the net's own precision, found {found}")

    def on_fit_start(self) -> None:
        """Begin a new run; one that is resumed after its verdict stops at once."""
        self.run, self.stream = None, None
        if self.saved is not None and self.saved["verdict"] not in (None, Verdict.BUDGET.value):
            self.trainer.should_stop = True

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
        """End an epoch whose last batch was saved, but not its end, and begin a new one."""
        metric: Any = self.metrics.get(("train", 0))
        if batch_idx == 0 and metric is not None and not metric.is_empty:
            self.begin_stream()
            metric.merge()
            self.end_epoch(int(metric.mistakes))
        super().on_train_batch_start(batch, batch_idx)

    def training_step(self, batch: Any, batch_idx: int) -> None:
        """Present a batch to the rule."""
        x, y, weight = self.unpack(batch)
        if self.trainer.num_training_batches == 1:
            self.learn_all(x, y, weight)
        else:
            if self.stream is None:
                self.begin_stream()
            self.learn_next(x, y, weight)
        self.optimizers().step()  # type: ignore[union-attr]  # there is one

    def rule_samples(self, x: Any, y: Tensor) -> tuple[Any, Tensor]:
        """Return samples and labels as the rule reads them."""
        return x, y.cpu() if is_sparse(x) else y

    def learn_all(self, x: Any, y: Tensor, weight: Tensor | None) -> None:
        """Make one epoch of the run on these samples."""
        if self.run is None:
            if self.trainer_options["select"] == "best-validation" and not any(self.trainer.num_val_batches):
                raise ValueError("select='best-validation' needs validation data; give the Trainer a validation loader")
            self.samples = (x, y, weight)
            self.run = self.started_run(x, y, weight)
        if not _same((x, y, weight), self.samples):
            raise ValueError(
                "the batch differs from that of the last epoch; use LitRule(order='shuffled') and shuffle=False, in "
                "several processes of a DistributedSampler of your own"
            )
        self.run.epoch()
        self.run.write_to(uncompiled(self.net))
        self.history, self.verdict = self.run.history, self.run.verdict
        self.log_run(self.run)
        self.trainer.should_stop |= self.verdict is not None

    def started_run(self, x: Any, y: Tensor, weight: Tensor | None) -> RuleRun:
        """Return a run before its next epoch: a new one, or the one of a checkpoint."""
        most = self.trainer.max_epochs or -1
        rule = RuleTrainer(max_epochs=most if most > 0 else 2**31, **self.trainer_options)
        net: Any = deepcopy(uncompiled(self.net))
        saved = self.take_saved("run")
        if saved is not None:
            net.load_state_dict(saved["start"])
        self.start = {name: values.clone() for name, values in net.state_dict().items()}
        if is_sparse(x):  # which the rule reads on the CPU
            net = net.cpu()
        run = rule.start(net, *self.rule_samples(x, y), sample_weight=weight)
        if saved is not None:
            run.load_state_dict(saved["run"])
            run.verdict = None if run.verdict is Verdict.BUDGET else run.verdict  # max_epochs may be larger now
        return run

    def take_saved(self, kind: str) -> dict[str, Any] | None:
        """Return the state of a checkpoint to resume from, if there is one, of a ``"run"`` or a ``"stream"``."""
        saved, self.saved = self.saved, None
        if saved is not None and kind not in saved:
            raise CheckpointError("the checkpoint is of a run on other batches; resume it with the same loader")
        return saved

    def log_run(self, run: RuleRun) -> None:
        """Log an epoch of a run on one batch: what it counted, and loss and margin after it."""
        record, (loss, slack) = run.history[-1], run.survey()
        values = {"mistakes": float(record.mistakes), "norm": record.norm, **run.theory(slack)}
        weight = run.weights.weight
        if len(weight) == 1:
            length = float(torch.linalg.vector_norm(weight.double())) * run.problem.scale
            values["margin"] = slack / length if length else 0.0
        self.log_once({"loss/train": loss, "error/train": record.mistakes / run.count}, prog_bar=True)
        self.log_once(values)

    @torch.no_grad()
    def learn_next(self, x: Any, y: Tensor, weight: Tensor | None) -> None:
        """Learn these samples online."""
        scores, norm = self(x), self.weight_norm()
        losses, made = self.head.loss(scores, y, reduction="none"), 0
        if weight is None or weight.any():
            made = self.learn_chunk(*self.rule_samples(x, y), weight)
        self.metric("train").add(losses, scores, y, weight, norm, made)

    def begin_stream(self) -> None:
        """Begin online learning, or continue that of a checkpoint."""
        saved, net = self.take_saved("stream"), uncompiled(self.net)
        try:
            self.rule.check_stream()
            for name, value in (("prove", True), ("select", "voted")):
                if self.trainer_options[name] == value:
                    raise ValueError(f"{name}={value!r} would have to keep all samples")
        except ValueError as error:
            raise ValueError(
                f"several batches are learned online, where {error}; or use one batch, as by batch_size='full'"
            ) from None
        self.stream, self.history, self.verdict = self.rule.new_stream(net), [], None
        self.total = math.nan if any(bool(values.any()) for values in net.parameters()) else 0.0
        if saved is not None:
            self.stream.load_state_dict(saved["stream"])
            self.history = [EpochRecord(*record) for record in saved["history"]]
            self.total, self.norm = saved["total"], saved["norm"]

    def learn_chunk(self, X: Any, y: Any, weight: Tensor | None) -> int:
        """Learn a chunk of the stream; return the number of mistakes."""
        net: Any = uncompiled(self.net)
        self.result = self.rule.learn_chunk(self.stream, net, X, y, sample_weight=weight)
        self.norm = self.result.history[-1].norm
        self.total += float(self.result.log.coef.abs().sum())
        return len(self.result.log)

    def log_epoch(self, stage: str, dataloader_idx: int | None = None) -> None:
        """Log the metrics of a stage; of a stream, the end of the epoch and what it means for the verdict."""
        metric: Any = self.metrics.get((stage, dataloader_idx or 0))
        if metric is None or metric.is_empty:
            super().log_epoch(stage, dataloader_idx)
            return
        metric.merge()
        mistakes = int(metric.mistakes)
        if stage == "val" and self.trainer_options["select"] == "best-validation":
            self.wrong += gather(self.decisions(metric))
        super().log_epoch(stage, dataloader_idx)
        if stage != "train":
            return
        record, most = self.end_epoch(mistakes), self.trainer.max_epochs or -1
        values = {"theory/mistakes": float(sum(record.mistakes for record in self.history))}
        self.log_once(values if record.upper is None else {**values, "theory/upper": record.upper})
        if self.trainer.is_last_batch and not mistakes and self.trainer_options["tie"] != "strict":
            self.verdict = Verdict.SEPARATED
        elif len(self.history) >= most > 0:
            self.verdict = Verdict.BUDGET
        self.trainer.should_stop |= self.verdict is not None

    def parameter_norm(self) -> Tensor:
        """Return the norm of the stream's weights; the net may have their average."""
        return torch.tensor(self.norm, dtype=exact_dtype(self.device), device=self.device)

    def end_epoch(self, mistakes: int) -> EpochRecord:
        """Return the record of an epoch of the stream, which is added to the history."""
        upper = self.norm / self.total if self.total > 0 else None
        self.history = [*self.history, EpochRecord(len(self.history) + 1, mistakes, self.norm, None, upper)]
        return self.history[-1]

    def decisions(self, metric: Any) -> tuple[float, float]:
        """Return how many decisions were wrong, and of how many."""
        return float(metric.errors), float(metric.samples)

    def on_validation_epoch_end(self) -> None:
        """Record the error for ``"best-validation"``."""
        super().on_validation_epoch_end()
        history = [] if self.run is None or self.trainer.sanity_checking else self.run.history
        if history and self.wrong and self.is_fitting():
            wrong, count = map(sum, zip(*self.wrong, strict=True))
            history[-1] = replace(history[-1], validation_error=wrong / count)
        self.wrong = []

    def on_train_end(self) -> None:
        """Write the selected weights into the net; keep the result."""
        if self.run is not None and self.run.history:
            self.result = self.run.result()
            self.result.write_to(uncompiled(self.net))
        elif self.stream is not None and self.result is not None:
            self.result = replace(self.result, verdict=self.verdict or Verdict.BUDGET, history=tuple(self.history))

    def on_fit_end(self) -> None:
        """Make the result of a run that was resumed after its last epoch."""
        if self.run is None and self.saved is not None and "run" in self.saved:
            loader: Any = self.trainer.train_dataloader
            batch = self.transfer_batch_to_device(next(iter(loader)), self.device, 0)
            self.run = self.started_run(*self.unpack(batch))
            self.on_train_end()

    # --- checkpoints ---

    def kind(self) -> dict[str, Any]:
        """Return what a run must have in common with the checkpoint that it resumes from."""
        return {**super().kind(), **{name: value for name, value in self.trainer_options.items() if name != "engine"}}

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Save the run: log, weights, random state."""
        super().on_save_checkpoint(checkpoint)
        rule: dict[str, Any] = {"verdict": self.verdict and self.verdict.value, "total": self.total, "norm": self.norm}
        rule["history"] = [astuple(record) for record in self.history]
        if self.run is not None:
            rule |= {"run": self.run.state_dict(), "start": self.start}
        elif self.stream is not None:
            rule["stream"] = self.stream.state_dict()
        checkpoint["rule"] = rule if self.saved is None else self.saved

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Continue the run if it is resumed by ``trainer.fit(ckpt_path=…)``, else keep its result."""
        super().on_load_checkpoint(checkpoint)
        rule = checkpoint["rule"]
        if rule["history"]:
            history = tuple(EpochRecord(*each) for each in rule["history"])
            nothing: Any = None  # log and model would need the samples
            verdict = Verdict(rule["verdict"] or Verdict.BUDGET.value)
            self.result = RuleResult(verdict, nothing, history, self.trainer_options["select"], nothing)
        self.saved = rule if self.is_fitting() and ("run" in rule or "stream" in rule) else None


def _same(one: Any, other: Any) -> bool:
    """Return whether two tensors, or tuples of them, are equal; nothing is read if they share memory."""
    if isinstance(one, tuple):
        return all(map(_same, one, other))
    if one is None or other is None:
        return one is other
    if is_sparse(one):
        return all(_same(part(one), part(other)) for part in (Tensor.crow_indices, Tensor.col_indices, Tensor.values))
    return one.shape == other.shape and (one.data_ptr() == other.data_ptr() or torch.equal(one, other))
