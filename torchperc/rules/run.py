"""Training by rule, epoch by epoch or online, and its result."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import astuple, dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from torchperc._checks import Data, weights_overflow
from torchperc.rules.conventions import Order, Verdict
from torchperc.rules.decision import PerceptronRule
from torchperc.rules.engines import Engine
from torchperc.rules.log import MistakeLog, VotedModel
from torchperc.rules.models import Model
from torchperc.rules.problem import Array, Mistakes, Problem, Weights
from torchperc.samples.rows import Samples

if TYPE_CHECKING:
    from torchperc.theory.certificate import Certificate


@dataclass(frozen=True)
class EpochRecord:
    """One epoch: its number from 1, the mistakes made in it, the norm of the weights after it, validation error.

    ``upper`` is ‖w‖/Σ c over all mistakes so far, c = η·(sample weight), if training started from zero weights: no
    hyperplane has a larger margin on the data.
    """

    epoch: int
    mistakes: int
    norm: float
    validation_error: float | None
    upper: float | None = field(default=None, repr=False)


@dataclass(frozen=True, eq=False, repr=False)
class RuleResult:
    """What training by rule returns.

    Args:
        verdict: how training ended.
        log: the mistakes, and through them every model of the run; after ``partial_fit``, those of the last call.
        history: a record per epoch.
        select: which weights were asked for.
        model: the classifier that ``select`` names.
        cycle: for ``CYCLING``, the epochs (0 is the start) after which the same weights were seen first and again.
        certificate: with ``prove=True``, whether the data are separable, see :func:`torchperc.theory.separability`.

    Example:
        >>> import torchperc as tp
        >>> X, y = tp.data.gate("XOR")
        >>> result = tp.RuleTrainer().fit(tp.Perceptron(2), X, y)
        >>> result.verdict.name, result.mistakes, result.period
        ('CYCLING', 4, 1)
        >>> result.history[0]
        EpochRecord(epoch=1, mistakes=4, norm=0.0, validation_error=None)
    """

    verdict: Verdict
    log: MistakeLog
    history: tuple[EpochRecord, ...]
    select: str
    model: Model
    cycle: tuple[int, int] | None = None
    certificate: Certificate | None = None

    def __repr__(self) -> str:
        return f"RuleResult({self.verdict.name}, {self.log!r}, select={self.select!r})"

    @property
    def mistakes(self) -> int:
        """Number of mistakes, which is the number of updates."""
        return sum(record.mistakes for record in self.history)

    @property
    def epochs(self) -> int:
        """Number of epochs, the one without a mistake included."""
        return len(self.history)

    @property
    def period(self) -> int | None:
        """For ``CYCLING``, the number of epochs until weights recur."""
        return None if self.cycle is None else self.cycle[1] - self.cycle[0]

    @property
    def sentence(self) -> str:
        """The verdict in words, with the figures of this run."""
        many = f"{self.epochs} epoch{'s' * (self.epochs != 1)} and {self.mistakes} mistake{'s' * (self.mistakes != 1)}"
        text = f"{self.verdict.name} after {many}: {self.verdict.sentence}"
        if self.certificate is not None and self.verdict is not Verdict.SEPARATED:
            text += f" ({self.certificate})"
        return text if self.cycle is None else f"{text} (period {self.period}, first seen after epoch {self.cycle[0]})"

    @property
    def single(self) -> Model:
        """The selected model as one set of weights: for ``"voted"`` the averaged ones, else ``model`` itself."""
        return self.log.averaged() if isinstance(self.model, VotedModel) else self.model

    def write_to(self, net: Any) -> None:
        """Write the selected weights into a net of the same shape; for ``"voted"`` the averaged ones.

        Example:
            >>> import torchperc as tp
            >>> result, net = tp.RuleTrainer().fit(tp.Perceptron(2), *tp.data.gate("AND")), torch.nn.Linear(2, 1)
            >>> result.write_to(net)
            >>> net.weight.data
            tensor([[3., 2.]])
        """
        self.single.write_to(net)

    def scores(self, X: Data) -> Tensor:
        """Return scores of the selected model: (N,), or (N, K). For ``"voted"``, the votes."""
        return self.model.scores(X)

    def predict(self, X: Data) -> Tensor:
        """Return labels by the selected model: −1/+1, or class indices: (N,)."""
        return self.model.predict(X)


def _record(
    problem: Problem, weights: Any, made: int, total: float, epoch: int = 1, error: float | None = None
) -> EpochRecord:
    """Return the record of an epoch; ``total`` is Σ c over all mistakes, NaN if training began with other weights."""
    norm = problem.norm(weights)
    if not math.isfinite(norm):
        raise weights_overflow()
    return EpochRecord(epoch, made, norm * problem.scale, error, norm / total if total > 0 else None)


_COUNTS = ("cycle", "_ends", "_seen", "_total", "_counted")  # what a saved run holds as it is


class RuleRun:
    """A run in progress: call :meth:`epoch` until there is a verdict, then ask for the :meth:`result`.

    Args:
        problem: what to learn.
        start: the first weights.
        engine: presents samples, see :mod:`torchperc.rules.engines`.
        order: the order of the samples.
        max_epochs: maximum number of epochs.
        select: which weights the result has.
        validation: samples and labels whose error is recorded after each epoch.
        prove: decides whether the samples are separable, if the run ends without separating them.
        conventions: the names of the choices that were made, for a saved log.
    """

    _rank = 0

    def __init__(
        self,
        problem: Problem,
        start: Any,
        engine: Engine,
        order: Order,
        *,
        max_epochs: int,
        select: str,
        validation: tuple[Samples, Tensor] | None = None,
        prove: Callable[[], Certificate] | None = None,
        conventions: dict[str, Any] | None = None,
    ) -> None:
        self.verdict: Verdict | None = None
        self.history: list[EpochRecord] = []
        self.cycle: tuple[int, int] | None = None
        self.problem, self.engine, self.order = problem, engine, order
        self.start, self.weights = start, start.clone()
        self._max_epochs, self._select, self._validation = max_epochs, select, validation
        self._prove, self._conventions = prove, conventions or {}
        self._certificate: Certificate | None = None
        self._found: list[Mistakes] = []
        self._sums: dict[str, Any] = {}  # of the running average
        self._ends: list[int] = []
        self._seen = {self._digest(): 0}
        classic = type(problem.rule) is PerceptronRule and not start.any_nonzero
        self._total = 0.0 if classic else math.nan  # Σ c over all mistakes
        self._counted = 0.0  # the mistakes, as the mistake bound counts them

    @cached_property
    def count(self) -> int:
        """The number of training samples, in all processes."""
        return sum(self._gather(len(self.problem.samples)))

    def _gather(self, value: Any) -> list[Any]:
        """Return a value of every process that takes part: this one."""
        return [value]

    @torch.no_grad()
    def epoch(self) -> EpochRecord:
        """Run one epoch, record it, and set the verdict if possible."""
        made = self._pass(self._ends[-1] if self._ends else 0)
        record = _record(self.problem, self.weights, made, self._total, len(self.history) + 1, self._validation_error())
        self.history.append(record)
        self.verdict = self._judge(record)
        return record

    def _learn(self, presented: int) -> tuple[Mistakes, int]:
        """Present the samples of one epoch, after so many others; return the mistakes, and where the epoch ends."""
        problem, found = self.problem, []
        for ids in self.order.epoch(len(self.history), lambda: problem.mistakes(self.weights)):
            for part, first, local in problem.parts(ids):
                found.append(self.engine(part, self.weights, local).moved(first, presented))
                presented += len(local)
        return Mistakes.joined(found), presented

    def _pass(self, presented: int) -> int:
        """Make one epoch, of which the first sample comes after so many others; return the mistakes made."""
        found, end = self._learn(presented)
        self._found.append(found)
        self._ends.append(end)
        self._total += float(np.abs(found.coef).sum())
        self._counted += len(found.sample)
        return len(found.sample)

    def _validation_error(self) -> float | None:
        if self._validation is None:
            return None
        counts = self._gather(self.problem.wrong_decisions(self.weights, *self._validation))
        wrong, count = map(sum, zip(*counts, strict=True))
        return float(wrong / count)

    @torch.no_grad()
    def result(self) -> RuleResult:
        """Return the log so far, the verdict (``BUDGET`` while there is none) and the selected model."""
        if not self.history:
            raise ValueError("the run has made no epoch yet, so there is no result; call epoch() first")
        log, verdict = self.log(), self.verdict or Verdict.BUDGET
        model, proof = self._selected(log), self._proof(verdict)
        return RuleResult(verdict, log, tuple(self.history), self._select, model, self.cycle, proof)

    def log(self) -> MistakeLog:
        """Return the mistakes so far."""
        ends = torch.tensor(self._ends, dtype=torch.int64)
        return MistakeLog(self.problem, self.start, tuple(self._found), ends, self._conventions)

    def current(self) -> Model:
        """Return the model with the weights as they are now."""
        return self.problem.model(self.weights.clone())

    def write_to(self, net: Any) -> None:
        """Write weights into a net: the average for ``"averaged"`` and ``"voted"``, else the current ones."""
        (self._averaged() if self._select in ("averaged", "voted") else self.current()).write_to(net)

    def survey(self) -> tuple[float, float]:
        """Return the mean perceptron criterion and the smallest functional margin of the training samples now."""
        margins = self.problem.functional_margins(self.weights)
        losses, smallest = zip(*self._gather((-np.minimum(margins, 0).sum(), margins.min())), strict=True)
        return float(sum(losses) / self.count), float(min(smallest))

    @cached_property
    def squared_radius(self) -> float:
        """R² over the samples that take part, see :meth:`Problem.squared_radius`."""
        return float(max(self._gather(self.problem.squared_radius(self.order.ids))))

    def theory(self, margin: float) -> dict[str, float]:
        """Return what the perceptron theorem says so far, given the smallest functional margin of the samples.

        ``theory/lower`` ≤ γ* ≤ ``theory/upper`` for the largest margin γ* with the bias in the norm;
        ``theory/mistakes`` so far; ``theory/bound`` (R² + 2m/η)/γ² with the margin γ reached. What is not known is left
        out.
        """
        record, sizes = self.history[-1], self.problem.step_sizes
        lower = margin / record.norm if record.norm else -math.inf
        values = {"theory/lower": lower, "theory/mistakes": self._counted}
        if record.upper is not None:
            values["theory/upper"] = record.upper
            if lower > 0 and (sizes == sizes[0]).all():
                values["theory/bound"] = self.problem.rule.bound(self.squared_radius, lower, float(sizes[0]))
        return {name: value for name, value in values.items() if math.isfinite(value)}

    def _judge(self, record: EpochRecord) -> Verdict | None:
        clean = record.mistakes == 0 or self.order.no_mistake_left
        all_seen = clean and self.order.covers(record.epoch - 1)
        # a strict tie passes over scores of 0 on the wrong side, and an explicit order may leave samples out
        sure = self.problem.rule.tie != "strict" and all_seen
        if clean and (sure or not self._any_wrong()):
            return Verdict.SEPARATED
        if self.order.repeats or all_seen:
            before = self._seen.setdefault(self._digest(), record.epoch)
            self.cycle = (before, record.epoch) if before < record.epoch else None
        if self.cycle is None and record.epoch < self._max_epochs:
            return None
        verdict = Verdict.BUDGET if self.cycle is None else Verdict.CYCLING
        certificate = self._proof(verdict)
        if certificate is not None and certificate.separable is False:
            self.cycle = None
            return Verdict.NOT_SEPARABLE
        return verdict

    def _digest(self) -> str:
        return self.problem.digest(self.weights)

    def _any_wrong(self) -> bool:
        wrong = self.problem.mistakes(self.weights, PerceptronRule("sign"))
        return any(self._gather(bool(wrong[self.order.ids].any())))

    def _proof(self, verdict: Verdict) -> Certificate | None:
        if self._prove is not None and self._certificate is None and verdict is not Verdict.SEPARATED:
            self._certificate = self._prove()
        return self._certificate

    def _selected(self, log: MistakeLog) -> Model:
        if self._select == "last":
            return self.current()
        if self._select == "averaged":
            return self._averaged()
        if self._select != "best-validation":
            return log.pocket() if self._select == "pocket" else log.voted()
        errors = [record.validation_error for record in self.history]
        known = [(error, epoch) for epoch, error in enumerate(errors, 1) if error is not None]
        if not known:
            raise ValueError("select='best-validation' needs validation data, and no epoch was validated")
        return self._after_epoch(log, min(known)[1])

    def _averaged(self) -> Model:
        return self.problem.running_average(self.log(), self.weights, self._sums)

    def _after_epoch(self, log: MistakeLog, epoch: int) -> Model:
        return log.state_at(sum(record.mistakes for record in self.history[:epoch]))

    @cached_property
    def _data(self) -> list[str]:
        return self._gather(self.problem.data_hash())

    def state_dict(self) -> dict[str, Any]:
        """Return everything needed to resume exactly, as tensors and plain types; of all processes that take part."""
        self._found = self._found and [Mistakes.joined(self._found)]
        columns = self.problem.columns(Mistakes.joined(self._found)).items()
        return {
            "data": self._data,
            "about": self.problem.describe(),
            "start": self.start.state_dict(),
            "weights": self.weights.state_dict(),
            "mistakes": self._gather({name: torch.from_numpy(column) for name, column in columns}),
            "history": [astuple(record) for record in self.history],
            "verdict": None if self.verdict is None else self.verdict.value,
            "order": self._gather(self.order.state_dict()),
            **{name.lstrip("_"): copy.copy(getattr(self, name)) for name in _COUNTS},
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume from a :meth:`state_dict`, on the same data and with the same options, by as many processes."""
        if "counted" not in state:
            raise ValueError("the saved run was made by an earlier version of torchperc; start again")
        if state["data"] != self._data:
            count, now = len(state["data"]), len(self._data)
            why = "other data; resume it with the same X and y" if count == now else f"{count} processes, found {now}"
            raise ValueError(f"the saved run belongs to {why}")
        about = self.problem.describe()
        for name, value in state["about"].items():
            if about.get(name) != value:
                raise ValueError(f"the saved run was made with {name}={value!r}, found {about.get(name)!r}")
        self.start.load_state_dict(state["start"])
        self.weights.load_state_dict(state["weights"])
        columns = {name: column.cpu().numpy() for name, column in state["mistakes"][self._rank].items()}
        self._found, self._sums = [self.problem.from_columns(columns)], {}
        self.history = [EpochRecord(*record) for record in state["history"]]
        self.problem.made[0] = sum(record.mistakes for record in self.history)
        self.verdict = None if state["verdict"] is None else Verdict(state["verdict"])
        self.order.load_state_dict(state["order"][self._rank])
        for name in _COUNTS:
            setattr(self, name, copy.copy(state[name.lstrip("_")]))


class Stream:
    """Weights of online learning, and the running sum for their average."""

    def __init__(self, make_weights: Callable[..., Any] = Weights) -> None:
        self._make_weights = make_weights  # from their ``state_dict``
        self.weights: Any = None  # before scaling
        self.scale = 1.0
        self._total: Any = None
        self._steps = 0
        self._made = 0  # updates
        self._left: tuple[Tensor, ...] = ()

    def go_on(self, lr: float) -> tuple[Any, float]:
        """Return the weights to resume from, before scaling, and the scale."""
        if self.scale in (1.0, lr):
            return self.weights, self.scale
        return self.weights.scaled(self.scale), 1.0  # lr was changed

    def fits(self, net: Any) -> bool:
        """Return whether the net still has the weights that this stream left in it."""
        now = tuple(net.parameters())
        return len(now) == len(self._left) and all(
            a.dtype == b.dtype and a.device == b.device and torch.equal(a, b)
            for a, b in zip(now, self._left, strict=True)
        )

    @torch.no_grad()
    def learn(self, problem: Problem, start: Any, engine: Engine, ids: Array, select: str) -> RuleResult:
        """Make one pass over samples; the result's model is that of the whole stream."""
        weights = start.clone()
        problem.made[0] = self._made
        found = engine(problem, weights, ids)
        self._made += len(found.sample)
        classic = type(problem.rule) is PerceptronRule and not start.any_nonzero
        total = float(np.abs(found.coef).sum()) if classic else math.nan
        record = _record(problem, weights, len(found.sample), total)
        verdict, cycle = _verdict(problem, start, weights, found)
        log = MistakeLog(problem, start, (found,), torch.from_numpy(np.array([len(ids)])))
        if self._total is not None and problem.scale != self.scale:
            self._total = self._total.scaled(self.scale / problem.scale)
        self.weights, self.scale = weights, problem.scale
        model = problem.model(weights) if select == "last" else self._averaged(log)
        return RuleResult(verdict, log, (record,), select, model, cycle)

    def _averaged(self, log: MistakeLog) -> Model:
        total = log.problem.total(log.start, log.mistakes, log.steps)
        self._total = total if self._total is None else self._total.plus(total)
        self._steps += log.steps
        return log.problem.mean(self._total, self._steps)

    def remember(self, net: Any) -> None:
        """Note the weights that were left in the net."""
        self._left = tuple(values.detach().clone() for values in net.parameters())

    def state_dict(self) -> dict[str, Any]:
        """Return everything needed to resume exactly."""
        weights, total = (None if each is None else each.state_dict() for each in (self.weights, self._total))
        return {"weights": weights, "total": total, "scale": self.scale, "steps": self._steps, "made": self._made}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume from a :meth:`state_dict`, on any device."""
        pairs = (state["weights"], state["total"])
        self.weights, self._total = (None if each is None else self._make_weights(**each) for each in pairs)
        self._steps, self.scale, self._made = state["steps"], state["scale"], state.get("made", 0)


def _verdict(problem: Problem, start: Any, weights: Any, found: Mistakes) -> tuple[Verdict, tuple[int, int] | None]:
    """Return how one pass ended, and the cycle if it led back to the start."""
    strict = problem.rule.tie == "strict"
    if not len(found.sample) and not (strict and problem.mistakes(weights, PerceptronRule("sign")).any()):
        return Verdict.SEPARATED, None
    return (Verdict.CYCLING, (0, 1)) if all(map(torch.equal, weights, start)) else (Verdict.BUDGET, None)
