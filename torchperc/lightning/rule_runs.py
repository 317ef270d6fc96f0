"""How LitRule learns from a loader: all samples in one batch every epoch, or online, batch after batch."""

from __future__ import annotations

import math
from copy import deepcopy
from dataclasses import astuple, replace
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from torch import Tensor

from torchperc._checks import is_sparse
from torchperc.lightning.base import Samples
from torchperc.lightning.chains import ChainSums, ChainTally, as_sequences
from torchperc.lightning.checkpoints import CheckpointError
from torchperc.lightning.metrics import EpochSums, squared_length, tally
from torchperc.rules.conventions import Verdict
from torchperc.rules.models import Net
from torchperc.rules.run import EpochRecord, RuleResult
from torchperc.rules.trainer import RuleTrainer
from torchperc.sequences.layout import flat_tags
from torchperc.sequences.weights import ChainWeights

if TYPE_CHECKING:
    from torchperc.nn.heads import Head
    from torchperc.sequences.rule import ChainRun


class WholeLearning:
    """All samples in one batch, the same every epoch: learned as by :meth:`torchperc.RuleTrainer.fit`.

    ``resume`` is the state that is loaded next.
    """

    def __init__(
        self,
        net: Net,
        options: dict[str, Any],
        samples: Samples,
        max_epochs: int,
        resume: dict[str, Any] | None = None,
    ) -> None:
        self.net, self._samples = net, samples
        trainer = RuleTrainer(max_epochs=max_epochs, **options)
        given = self._admitted(_as_at_start(deepcopy(net), resume), samples)
        self._run = trainer.start(*given, sample_weight=samples.weight)
        self._new: EpochRecord | None = None

    def _admitted(self, net: Any, samples: Samples) -> tuple[Any, Any, Any]:
        """Net, samples and labels as the rule reads them."""
        X, y = samples.x, samples.y
        if is_sparse(X):  # which the rule reads on the CPU
            net, y = net.cpu(), y.cpu()
        return net, X, y

    @property
    def verdict(self) -> Verdict | None:
        """Of the run."""
        return self._run.verdict

    def learn(self, samples: Samples) -> None:
        """One epoch, on the samples of the first batch."""
        if not all(map(_same, samples, self._samples)):
            raise ValueError(
                "the loader gives other samples than in the first epoch, or in another order; use a sequential "
                "sampler with LitRule(order='shuffled'), or shuffle=True, which is learned online"
            )
        self._new = self._run.epoch()
        self._run.write_to(self.net)

    def epoch_values(self, *, complete: bool) -> dict[str, float]:
        """What the epoch logs."""
        record, self._new = self._new, None
        if record is None:
            return {}
        loss, slack = self._run.survey()
        length = math.sqrt(squared_length([self._run.weights.weight * self._run.problem.scale]))
        return {
            "mistakes": float(record.mistakes),
            "error/train": record.mistakes / self._run.count,
            "norm": record.norm,
            "loss/train": loss,
            "margin": slack / length if length else 0.0,
            **self._run.theory(slack),
        }

    def validated(self, error: float | None) -> None:
        """Record the validation error after the last epoch."""
        self._run.history[-1] = replace(self._run.history[-1], validation_error=error)

    def result(self) -> RuleResult | None:
        """The result; ``None`` before the first epoch."""
        return self._run.result() if self._run.history else None

    def state_dict(self) -> dict[str, Any]:
        """The state of the run."""
        return self._run.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume; ``max_epochs`` may be larger now."""
        if "stream" in state:
            raise CheckpointError("the checkpoint is of a run on mini-batches; resume it with the same loader")
        self._run.load_state_dict(state)
        if self._run.verdict is Verdict.BUDGET:
            self._run.verdict = None


class OnlineLearning:
    """Batch after batch: learned as by :meth:`torchperc.RuleTrainer.partial_fit`."""

    def __init__(self, net: Net, options: dict[str, Any], head: Head, max_epochs: int) -> None:
        self.net = net
        self.verdict: Verdict | None = None
        self._head, self._max_epochs = head, max_epochs
        self._trainer = RuleTrainer(**options)
        try:
            self._trainer.check_stream()
            if options["prove"] or options["select"] == "voted":
                what = "prove=True" if options["prove"] else "select='voted'"
                raise ValueError(f"{what} would have to keep all samples")
        except ValueError as error:
            raise ValueError(
                f"mini-batches and shuffled batches are learned online, where {error}; or use LitRule with a loader "
                "that gives all samples in one batch without shuffling (batch_size='full'), or RuleTrainer"
            ) from None
        self._stream, self._sums = self._trainer.new_stream(net), self._new_sums()
        self._norm = math.sqrt(squared_length(net.parameters()))
        self._total = 0.0 if self._norm == 0 else math.nan
        self._history: list[EpochRecord] = []
        self.last: RuleResult | None = None

    def _new_sums(self) -> EpochSums:
        return EpochSums()

    def learn(self, samples: Samples) -> None:
        """One batch in turn."""
        x, y, weight = samples
        with torch.no_grad():
            scores = self.net(x)
            scores = scores.squeeze(-1) if len(self.net.weight) == 1 and scores.dim() == 2 else scores
            found = tally(self._head, scores, y)
            length = torch.linalg.vector_norm(self.net.weight)
        made = torch.zeros_like(found.errors)
        if weight is None or weight.any():
            made += self._learn_chunk(x, y, weight).mistakes
        self._sums.add(len(y), found._replace(errors=made, mistakes=made), length)

    def _learn_chunk(self, X: Any, y: Any, weight: Tensor | None) -> RuleResult:
        self.last = result = self._trainer.learn_chunk(self._stream, self.net, X, y, sample_weight=weight)
        self._norm = result.history[-1].norm
        self._total += float(result.log.coef.abs().sum())
        return result

    def epoch_values(self, *, complete: bool) -> dict[str, float]:
        """What the epoch logs, and what it means for the verdict."""
        if not self._sums.count:
            return {}
        means, norm = self._sums.means(), self._norm
        self._sums.reset()
        upper = norm / self._total if self._total > 0 else None
        record = EpochRecord(len(self._history) + 1, int(means["mistakes"]), norm, None, upper)
        self._history.append(record)
        if complete and not record.mistakes and self._trainer.tie != "strict":
            self.verdict = Verdict.SEPARATED
        elif len(self._history) >= self._max_epochs:
            self.verdict = Verdict.BUDGET
        tags = {name: f"{name}/train" if name.partition("/")[0] in ("loss", "error") else name for name in means}
        values = {tags[name]: value for name, value in means.items()} | {"norm": norm}
        values["theory/mistakes"] = float(sum(past.mistakes for past in self._history))
        return values if upper is None else {**values, "theory/upper": upper}

    def validated(self, error: float) -> None:
        """Record the validation error after the last epoch; one in the middle of an epoch is ignored."""
        if self._history and not self._sums.count:
            self._history[-1] = replace(self._history[-1], validation_error=error)

    def result(self) -> RuleResult | None:
        """The last batch's result with the verdict and history of the run; ``None`` before the first batch."""
        if self.last is None:
            return None
        return replace(self.last, verdict=self.verdict or Verdict.BUDGET, history=tuple(self._history))

    def state_dict(self) -> dict[str, Any]:
        """The stream, and the epochs so far."""
        return {
            "stream": self._stream.state_dict(),
            "sums": self._sums.state_dict(),
            "norm": self._norm,
            "total": self._total,
            "history": [astuple(record) for record in self._history],
            "verdict": None if self.verdict is None else self.verdict.value,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume; ``max_epochs`` may be larger now."""
        if "stream" not in state:
            raise CheckpointError("the checkpoint is of a run on one full batch; resume it with the same loader")
        self._stream.load_state_dict(state["stream"])
        self._sums.load_state_dict(state["sums"])
        self._norm, self._total = state["norm"], state["total"]
        self._history = [EpochRecord(*record) for record in state["history"]]
        found = None if state["verdict"] is None else Verdict(state["verdict"])
        self.verdict = None if found is Verdict.BUDGET else found


class WholeChains(WholeLearning):
    """All sequences in one batch, the same every epoch."""

    _run: ChainRun  # type: ignore[assignment]

    def _admitted(self, net: Any, samples: Samples) -> tuple[Any, Any, Any]:
        return net, *as_sequences(samples.x, samples.y, net.features)

    def epoch_values(self, *, complete: bool) -> dict[str, float]:
        """What the epoch logs."""
        record, self._new = self._new, None
        if record is None:
            return {}
        log = self._run.log()
        shown = log.cost > 0
        values = {
            "mistakes": float(record.mistakes),
            "error/train": float(log.wrong_tags_by_epoch()[-1]) / float(log.sequences.lengths[shown].sum()),
            "error/sequence/train": record.mistakes / float(shown.sum()),
            "norm": record.norm,
            "loss/train": self._run.survey(),
            "theory/mistakes": float(len(log)),
        }
        return values if record.upper is None else {**values, "theory/upper": record.upper}


class OnlineChains(OnlineLearning):
    """Batch after batch of sequences."""

    def _new_sums(self) -> EpochSums:
        return ChainSums()

    def learn(self, samples: Samples) -> None:
        """One batch in turn; its loss is that before its updates."""
        net: Any = self.net
        X, y = as_sequences(samples.x, samples.y, net.features)
        tags, weight = flat_tags(y, X, net.tags), samples.weight
        before = ChainWeights.view(net)
        loss = before.score_differences(X, before.decode(X), tags).clip(0).sum()
        wrong = made = 0
        if weight is None or weight.any():
            log: Any = self._learn_chunk(X, tags, weight).log
            wrong, made = int(log.wrong_tags_by_epoch()[-1]), len(log)
        sums = (torch.tensor(float(each), dtype=torch.float64) for each in (loss, wrong, made, X.tokens, made))
        self._sums.add(len(X), ChainTally(*sums), None)  # type: ignore[arg-type]  # they are ChainSums


def _as_at_start(net: Any, resume: dict[str, Any] | None) -> Any:
    """The net, or for a run that is resumed a copy whose weights are 0 if they were when the run began.

    From zero weights a run counts in units of lr. Which weights it had is in the state that is loaded next.
    """
    if resume is None or "start" not in resume:
        return net
    start = resume["start"]  # by name, or the arrays of a chain
    numbers = start.values() if isinstance(start, dict) else start
    begun, nonzero = deepcopy(net), any(bool(values.any()) for values in numbers)
    with torch.no_grad():
        for values in begun.parameters():
            values.fill_(float(nonzero))
    return begun


Learning: TypeAlias = WholeLearning | OnlineLearning


def _same(one: Any, other: Any) -> bool:
    """Whether two batches are equal; nothing is read if they share memory."""
    if isinstance(one, tuple) and isinstance(other, tuple):
        return all(map(_same, one, other))
    if not isinstance(one, Tensor) or not isinstance(other, Tensor):
        return one is other
    if one.shape != other.shape:
        return False
    if is_sparse(one):
        parts = (Tensor.crow_indices, Tensor.col_indices, Tensor.values)
        return all(_same(part(one), part(other)) for part in parts)
    return one.data_ptr() == other.data_ptr() or torch.equal(one, other)
