"""The perceptron rule under a Lightning Trainer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import astuple, replace
from typing import Any

import torch
from torch import Tensor, nn

from torchperc._checks import check_choice, is_sparse
from torchperc.lightning.base import LitModel
from torchperc.lightning.checkpoints import CheckpointError, plain
from torchperc.lightning.classifier import by_label, factors
from torchperc.lightning.metrics import exact_dtype
from torchperc.nn.heads import PerceptronHead
from torchperc.rules.conventions import ENGINES, Verdict
from torchperc.rules.decision import Rule
from torchperc.rules.family import check_rule
from torchperc.rules.make_problem import check_net
from torchperc.rules.run import EpochRecord, RuleResult, RuleRun
from torchperc.rules.trainer import RuleTrainer

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
    norm, ``theory/mistakes`` and ``theory/bound``. With several batches there is no bound, and ``loss/train`` and
    ``margin`` are those of each batch before it is learned.

    Batches are (x, y) or (x, y, sample weights). Sparse samples are read on the CPU. In several processes
    (``strategy="ddp"``), each with one batch of its own samples, ``distributed="mix"`` mixes their weights after every
    pass; all of them have the same weights and metrics.

    Args:
        net: a linear net.
        lr, tie, bias_step, engine, seed, margin, prove: see :class:`~torchperc.RuleTrainer`.
        order: of the samples; with several batches ``"given"``, which is the loader's.
        select: which weights the net has in the end. ``"averaged"`` and ``"voted"`` put the average into the net after
            every epoch; with ``"pocket"`` and ``"best-validation"`` the net has the last weights until the run ends.
            ``"best-validation"`` uses the Trainer's validation, of several loaders the last.
        class_weight: a factor per label for its updates, as for :class:`LitClassifier`; or ``"balanced"``.
        distributed: ``"mix"`` if several processes learn together.
        rule: as for :class:`~torchperc.RuleTrainer`, a rule of torchperc.

    Example:
        >>> import torchperc as tp
        >>> lit = tp.lightning.LitRule(tp.Perceptron(2), order="shuffled")
        >>> lit.hparams.order, lit.hparams.net["class_path"]
        ('shuffled', 'torchperc.Perceptron')
    """

    free = ("net", "engine")

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
        class_weight: Mapping[int, float] | Sequence[float] | Tensor | str | None = None,
        prove: bool = False,
        distributed: str | None = None,
        rule: Rule | Mapping[str, Any] | str | None = None,
    ) -> None:
        super().__init__(net, PerceptronHead())
        if isinstance(class_weight := factors(class_weight), list):
            units = len(getattr(self.net, "weight", ()))
            class_weight = by_label(class_weight, None if units == 1 else units)
        check_choice("engine", engine, ENGINES)  # an engine of the user's own could not be read from a checkpoint
        options = {"lr": lr, "tie": tie, "bias_step": bias_step, "order": order, "select": select, "engine": engine}
        options |= {"seed": seed, "margin": margin, "class_weight": class_weight, "prove": prove}
        if rule is not None:
            options["rule"] = Rule.describe(check_rule(rule))["rule"]
            check_rule(options["rule"])  # a rule of the user's own could not be read from a checkpoint
        self.trainer_options: dict[str, Any] = plain({**options, "distributed": distributed})
        self.rule = RuleTrainer(**self.trainer_options)  # checks the other arguments
        check_net(self.net)
        self.save_arguments(**self.trainer_options)
        self.automatic_optimization = False
        self.run: RuleRun | None = None  # of one batch
        self.stream: Any = None  # of several batches
        self.result: RuleResult | None = None
        self.history: list[EpochRecord] = []
        self.verdict: Verdict | None = None
        self.saved: dict[str, Any] = {}  # the state of a run that is resumed

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Return an optimizer without gradients: it counts batches as steps, for checkpoints and ``max_steps``."""
        return torch.optim.SGD(self.net.parameters(), lr=self.trainer_options["lr"])

    def setup(self, stage: str) -> None:
        """Refuse what would change the weights or give each process other ones."""
        super().setup(stage)
        trainer = self.trainer
        names = [type(callback).__name__ for callback in trainer.callbacks]  # type: ignore[attr-defined]
        several = stage == "fit" and trainer.world_size > 1 and self.trainer_options["distributed"] is None
        found = {f"{name}; use select='averaged' and lr=1": name in _REFUSED for name in names}
        found[f"{trainer.world_size} processes; use distributed='mix', or devices=1"] = several
        self.refuse("the rule trains all weights in one process in the net's own precision", found)

    def on_fit_start(self) -> None:
        """Begin a new run; one that is resumed after its verdict stops at once."""
        self.run, self.stream = None, None
        self.trainer.should_stop |= self.saved.get("verdict") not in (None, Verdict.BUDGET.value)

    def training_step(self, batch: Any, batch_idx: int) -> None:
        """Present a batch to the rule; after the last one, log the epoch."""
        x, y, weight = self.unpack(batch)
        if self.trainer.num_training_batches == 1:
            self.learn_all(x, y, weight)
        else:
            self.learn_next(x, y, weight)
        self.optimizers().step()  # type: ignore[union-attr]  # there is one
        self.on_train_batch_end()  # before a callback saves the run

    # --- one batch: a run ---

    def learn_all(self, x: Any, y: Tensor, weight: Tensor | None) -> None:
        """Make one epoch of the run on these samples."""
        if self.run is None:
            if self.trainer_options["select"] == "best-validation" and not any(self.trainer.num_val_batches):
                raise ValueError("select='best-validation' needs validation data; give the Trainer a validation loader")
            self.samples, self.run = (x, y, weight), self.started_run(x, y, weight)
        if not _same((x, y, weight), self.samples):
            raise ValueError(
                "the batch differs from that of the last epoch; use LitRule(order='shuffled'), shuffle=False"
            )
        self.run.epoch()
        self.run.write_to(self.net)
        self.history, self.verdict = self.run.history, self.run.verdict
        self.log_run(self.run)
        self.trainer.should_stop |= self.verdict is not None

    def started_run(self, x: Any, y: Tensor, weight: Tensor | None) -> RuleRun:
        """Return a run before its next epoch: a new one, or the one of a checkpoint."""
        most = self.trainer.max_epochs or -1
        rule = RuleTrainer(max_epochs=most if most > 0 else 2**31, **self.trainer_options)
        net: Any = deepcopy(self.net)
        saved = self.take_saved("run")
        if saved:
            net.load_state_dict(saved["start"])
        self.start = {name: values.clone() for name, values in net.state_dict().items()}
        x, y, net = (x, y.cpu(), net.cpu()) if is_sparse(x) else (x, y, net)  # sparse samples are read on the CPU
        run = rule.start(net, x, y, sample_weight=weight)
        if saved:
            run.load_state_dict(saved["run"])
            run.verdict = None if run.verdict is Verdict.BUDGET else run.verdict  # max_epochs may be larger now
        return run

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

    # --- several batches: a stream ---

    @torch.no_grad()
    def learn_next(self, x: Any, y: Tensor, weight: Tensor | None) -> None:
        """Learn these samples online."""
        if self.stream is None:
            self.begin_stream()
        scores, norm, made = self(x), self.weight_norm(), torch.zeros(len(y), dtype=torch.bool)
        if weight is None or weight.any():
            labels = y.cpu() if is_sparse(x) else y
            self.result = self.rule.learn_chunk(self.stream, self.net, x, labels, sample_weight=weight)
            made[self.result.log.mistakes.sample] = True
        self.measured("train", 0, scores, y, None, norm, made)

    def begin_stream(self) -> None:
        """Begin online learning, or continue that of a checkpoint."""
        saved = self.take_saved("stream")
        try:
            self.rule.check_stream()
        except ValueError as error:
            raise ValueError(f"several batches are learned online, where {error}; or use batch_size='full'") from None
        self.stream, self.verdict = self.rule.new_stream(self.net), None
        self.history = [EpochRecord(*record) for record in saved.get("history", ())]
        if saved:
            self.stream.load_state_dict(saved["stream"])

    def parameter_norm(self) -> Tensor:
        """Return the norm of the stream's weights; the net may have their average."""
        norm = self.result.history[-1].norm if self.result is not None else 0.0
        return torch.tensor(norm, dtype=exact_dtype(self.device), device=self.device)

    # --- the end of an epoch, and of the run ---

    def end_epoch(self, stage: str, metric: Any) -> None:
        """Add an epoch of a stream to the history and judge it."""
        if stage != "train":
            return
        mistakes, norm = int(metric.mistakes), float(self.parameter_norm())
        self.history = [*self.history, EpochRecord(len(self.history) + 1, mistakes, norm, None)]
        if self.trainer.is_last_batch and not mistakes and (self.rule.tie != "strict" or self.rule.margin > 0):
            self.verdict = Verdict.SEPARATED
        elif len(self.history) >= (self.trainer.max_epochs or -1) > 0:
            self.verdict = Verdict.BUDGET
        self.trainer.should_stop |= self.verdict is not None

    def log_once(self, values: Mapping[str, float], **options: Any) -> None:
        """Log values of an epoch; record the error for ``"best-validation"``."""
        super().log_once(values, **options)
        known = self.run is not None and self.trainer_options["select"] == "best-validation" and self.is_fitting()
        if self.run is not None and known and "error/val" in values:
            self.run.history[-1] = replace(self.run.history[-1], validation_error=values["error/val"])

    def on_train_end(self) -> None:
        """Write the selected weights into the net; keep the result."""
        if self.run is not None and self.run.history:
            self.result = self.run.result()
            self.result.write_to(self.net)
        elif self.stream is not None and self.result is not None:
            self.result = replace(self.result, verdict=self.verdict or Verdict.BUDGET, history=tuple(self.history))

    def on_fit_end(self) -> None:
        """Make the result of a run that was resumed after its last epoch."""
        if self.run is None and "run" in self.saved:
            loader: Any = self.trainer.train_dataloader
            batch = self.transfer_batch_to_device(next(iter(loader)), self.device, 0)
            self.run = self.started_run(*self.unpack(batch))
            self.on_train_end()

    # --- checkpoints ---

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Save the run: log, weights, random state."""
        super().on_save_checkpoint(checkpoint)
        history = [astuple(record) for record in self.history]
        rule: dict[str, Any] = {"verdict": self.verdict and self.verdict.value, "history": history}
        if self.run is not None:
            rule |= {"run": self.run.state_dict(), "start": self.start}
        elif self.stream is not None:
            rule["stream"] = self.stream.state_dict()
        checkpoint["rule"] = self.saved or rule

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Continue the run if it is resumed by ``trainer.fit(ckpt_path=…)``, else keep its result."""
        super().on_load_checkpoint(checkpoint)
        rule = checkpoint["rule"]
        if rule["history"]:
            history = tuple(EpochRecord(*each) for each in rule["history"])
            nothing: Any = None  # log and model would need the samples
            verdict = Verdict(rule["verdict"] or Verdict.BUDGET.value)
            self.result = RuleResult(verdict, nothing, history, self.trainer_options["select"], nothing)
        self.saved = rule if self.is_fitting() else {}

    def take_saved(self, kind: str) -> dict[str, Any]:
        """Return the state of a checkpoint to resume from, if there is one, of a ``"run"`` or a ``"stream"``."""
        saved, self.saved = self.saved, {}
        if saved.get("history") and kind not in saved:
            raise CheckpointError("the checkpoint is of a run on other batches; resume it with the same loader")
        return saved if kind in saved else {}


def _same(one: tuple[Any, ...], other: tuple[Any, ...]) -> bool:
    """Return whether two batches are equal; nothing is read of tensors that share memory."""
    parts = [[x.crow_indices(), x.col_indices(), x.values(), *r] if is_sparse(x) else [x, *r] for x, *r in (one, other)]
    pairs = zip(*parts, strict=True)
    return all(a is b or (a.data_ptr(), a.shape) == (b.data_ptr(), b.shape) or torch.equal(a, b) for a, b in pairs)
