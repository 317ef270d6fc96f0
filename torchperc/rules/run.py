"""Training by rule, epoch by epoch, and its result."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass, field
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np
import torch
from torch import Tensor

from torchperc._checks import Data, weights_overflow
from torchperc.rules.conventions import Verdict
from torchperc.rules.engines.reference import Engine
from torchperc.rules.log import MistakeLog, Mistakes, VotedModel
from torchperc.rules.models import LinearModel, Model, Net, decisions
from torchperc.rules.orders import Order
from torchperc.rules.spaces import Weights
from torchperc.samples.rows import Rows

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
        average: the averaged weights where the log does not tell them, as after several calls of ``partial_fit``.

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
    average: Model | None = None

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
        """For ``CYCLING``, after how many epochs the weights come back."""
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
        return (self.average or self.log.averaged()) if isinstance(self.model, VotedModel) else self.model

    def write_to(self, net: Net) -> None:
        """Write the selected weights into a net of the same shape; for ``"voted"`` the averaged ones.

        Example:
            >>> import torchperc as tp
            >>> result, net = tp.RuleTrainer().fit(tp.Perceptron(2), *tp.data.gate("AND")), torch.nn.Linear(2, 1)
            >>> result.write_to(net)
            >>> net.weight.data
            tensor([[3., 2.]])
        """
        model = self.single
        if not isinstance(model, LinearModel):
            raise TypeError("a kernel's weights fit into no net; use result.model")
        model.write_to(net)

    def scores(self, X: Data) -> Tensor:
        """Scores of the selected model: (N,), or (N, K). For ``"voted"``, the votes."""
        return self.model.scores(X)

    def predict(self, X: Data) -> Tensor:
        """Labels by the selected model: −1/+1, or class indices: (N,)."""
        return self.model.predict(X)


_R = TypeVar("_R", bound=RuleResult)


class Run(ABC, Generic[_R]):
    """Epochs, verdict, selection and checkpoint of a run, whatever it learns; a subclass makes the passes."""

    _results: type[_R]
    _misfit = "another lr"  # what else a saved run was made with, if its scale differs

    def __init__(
        self,
        engine: Any,
        start: Any,
        order: Order,
        *,
        max_epochs: int,
        select: str,
        cost: Any,
        scale: float,
        total: float,
        seen: dict[bytes, int],
        validation: tuple[Any, Any] | None,
    ) -> None:
        self.verdict: Verdict | None = None
        self.history: list[EpochRecord] = []
        self.cycle: tuple[int, int] | None = None
        self._engine, self._start, self._order = engine, start, order
        self._max_epochs, self._select, self._cost, self._validation = max_epochs, select, cost, validation
        self._scale, self._total, self._seen = scale, total, seen
        self._ends: list[int] = []

    @property
    @abstractmethod
    def rows(self) -> Any:
        """The training samples."""

    @abstractmethod
    def current(self) -> Any:
        """The model with the weights as they are now."""

    @abstractmethod
    def log(self) -> Any:
        """The mistakes so far."""

    @abstractmethod
    def _pass(self, presented: int) -> int:
        """Present all samples, the first of them after so many others; return the number of mistakes."""

    @abstractmethod
    def _norm(self) -> float:
        """The norm of the weights before they are scaled."""

    @abstractmethod
    def _digest(self) -> bytes:
        """A hash of the weights, by which they are recognised when they come back."""

    @abstractmethod
    def _any_wrong(self) -> bool:
        """Whether any sample that takes part is decided wrongly."""

    @abstractmethod
    def _validation_counts(self, X: Any, y: Any) -> tuple[int, int]:
        """How many decisions on validation data are wrong, and how many there are."""

    @property
    def count(self) -> int:
        """The number of training samples, in all processes."""
        return len(self.rows)

    @torch.no_grad()
    def epoch(self) -> EpochRecord:
        """Make one pass, record what happened, and settle the verdict if possible."""
        made = self._pass(self._ends[-1] if self._ends else 0)
        norm = self._norm()
        if not math.isfinite(norm):
            raise weights_overflow()
        upper = norm / self._total if self._total > 0 else None
        record = EpochRecord(len(self.history) + 1, made, norm * self._scale, self._validation_error(), upper)
        self.history.append(record)
        self.verdict = self._judge(record)
        return record

    @torch.no_grad()
    def result(self) -> _R:
        """The log so far, the verdict (``BUDGET`` while there is none) and the selected model."""
        if not self.history:
            raise ValueError("the run has made no epoch yet, so there is no result; call epoch() first")
        log, verdict = self.log(), self.verdict or Verdict.BUDGET
        model, proof = self._selected(log), self._proof(verdict)
        return self._results(verdict, log, tuple(self.history), self._select, model, self.cycle, proof)

    def write_to(self, net: Any) -> None:
        """Write into a net what is known of the selected weights: averaged, for a vote too, else the current ones."""
        (self._averaged() if self._select in ("averaged", "voted") else self.current()).write_to(net)

    def state_dict(self) -> dict[str, Any]:
        """Everything needed to resume exactly, as tensors and plain types."""
        return {
            "data": self._data,
            "ends": list(self._ends),
            "history": [astuple(record) for record in self.history],
            "seen": {state.hex(): epoch for state, epoch in self._seen.items()},
            "cycle": self.cycle,
            "verdict": None if self.verdict is None else self.verdict.value,
            "scale": self._scale,
            "order": self._order.state_dict(),
            "total": self._total,
        }

    @cached_property
    def _data(self) -> str:
        digest: str = self.rows.hash(self._engine.task.y)
        return digest

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume from a :meth:`state_dict`, on the same data."""
        if state["data"] != self._data:
            raise ValueError("the saved run belongs to other data: X and y are not those it was made on")
        if state.get("scale", 1.0) != self._scale:
            raise ValueError(f"the saved run was made with {self._misfit}; start it anew")
        self._ends = list(state["ends"])
        self.history = [EpochRecord(*record) for record in state["history"]]
        self._seen = {bytes.fromhex(key): epoch for key, epoch in state["seen"].items()}
        self.cycle = None if state["cycle"] is None else (state["cycle"][0], state["cycle"][1])
        self.verdict = None if state["verdict"] is None else Verdict(state["verdict"])
        self._order.load_state_dict(state["order"])
        self._total = state["total"]

    def _proof(self, verdict: Verdict) -> Certificate | None:
        """Whether the samples are separable, if that is to be proved."""
        return None

    def _judge(self, record: EpochRecord) -> Verdict | None:
        clean = record.mistakes == 0 or self._order.ran_dry
        all_seen = clean and self._order.covers(record.epoch - 1)
        # a strict tie passes over scores of 0 on the wrong side, and an explicit order may leave samples out
        sure = self._engine.task.tie != "strict" and all_seen
        if clean and (sure or not self._any_wrong()):
            return Verdict.SEPARATED
        if self._order.repeats or all_seen:
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

    def _validation_error(self) -> float | None:
        if self._validation is None:
            return None
        wrong, count = self._validation_counts(*self._validation)
        return wrong / count

    def _selected(self, log: Any) -> Any:
        if self._select == "last":
            return self.current()
        if self._select == "pocket":
            return log.pocket()
        if self._select != "best-validation":
            return self._averaged() if self._select == "averaged" else log.voted()
        judged = [record for record in self.history if record.validation_error is not None]
        if not judged:
            raise ValueError("select='best-validation' needs validation data, and no epoch was validated")
        best = min(judged, key=lambda record: (record.validation_error, record.epoch))
        return self._after_epoch(log, best.epoch)

    def _averaged(self) -> Any:
        return self.log().averaged()

    def _after_epoch(self, log: Any, epoch: int) -> Any:
        return log.state_at(sum(record.mistakes for record in self.history[:epoch]))


class RuleRun(Run[RuleResult]):
    """A run in progress: call :meth:`epoch` until there is a verdict, then ask for the :meth:`result`.

    ``cost`` is what an error on each sample costs, for the pocket; ``prove`` decides whether the samples are separable,
    if the run ends without separating them.
    """

    _results = RuleResult
    _misfit = "another lr or by an earlier version"

    def __init__(
        self,
        engine: Engine,
        start: Weights,
        order: Order,
        *,
        max_epochs: int,
        select: str,
        cost: Tensor,
        validation: tuple[Rows, Tensor] | None = None,
        prove: Callable[[], Certificate] | None = None,
    ) -> None:
        total = 0.0 if start.at_zero else math.nan
        super().__init__(
            engine, start, order, max_epochs=max_epochs, select=select, cost=cost, scale=engine.task.space.scale,
            total=total, seen={engine.digest(): 0}, validation=validation,
        )  # fmt: skip
        self._engine: Engine = engine
        self._prove = prove
        self._certificate: Certificate | None = None
        self._mistakes: list[Mistakes] = []
        self._unsaved: list[Mistakes] = []
        self._saved: list[tuple[Tensor, ...]] = []

    def _pass(self, presented: int) -> int:
        made = 0
        for chunk in self._order.epoch(len(self.history), self._engine.mistakes):
            found = self._engine.run(chunk)
            if len(found):
                self._mistakes.append(found.later(presented))
                self._unsaved.append(self._mistakes[-1])
                self._total += self._engine.task.total(found.sample)
            made += len(found)
            presented += len(chunk)
        self._ends.append(presented)
        return made

    @property
    def rows(self) -> Rows:
        """The training samples."""
        return self._engine.task.space.rows

    def current(self) -> Model:
        """The model with the weights as they are now."""
        return self._engine.model()

    def training_scores(self) -> Tensor:
        """Scores of the training samples now: (N, K), K = 1 for two classes."""
        return self._engine.training_scores() * self._scale

    def survey(self) -> tuple[float, float]:
        """The mean perceptron criterion and the smallest slack on the training samples now."""
        loss, slack = self._engine.survey()
        return loss * self._scale, slack * self._scale

    def weight(self) -> Tensor:
        """The weight as it is now, on the host."""
        weight, *_ = self._engine._numbers()
        return weight.to(self.rows.dtype) * self._scale

    @cached_property
    def squared_radius(self) -> float:
        """R² over the samples that take part, see :meth:`Space.squared_radius`."""
        return self._engine.task.space.squared_radius(self._order.ids)

    def theory(self, slack: float) -> dict[str, float]:
        """What the perceptron theorem says of the run so far, given the smallest slack on the training samples.

        ``theory/lower`` ≤ γ* ≤ ``theory/upper`` for the largest margin γ* with the bias in the norm;
        ``theory/mistakes`` so far; ``theory/bound`` (R² + 2m/η)/γ² with the margin γ reached. What is not known is left
        out.
        """
        record, lr = self.history[-1], self._engine.task.common
        lower = slack / record.norm if record.norm else -math.inf
        values = {"theory/lower": lower, "theory/mistakes": self._counted()}
        if record.upper is not None:
            values["theory/upper"] = record.upper
            if lower > 0 and lr is not None:
                values["theory/bound"] = (self.squared_radius + 2 * self._engine.task.margin / lr) / lower**2
        return {name: value for name, value in values.items() if math.isfinite(value)}

    def _counted(self) -> float:
        """The mistakes so far, as the mistake bound counts them."""
        return float(sum(past.mistakes for past in self.history))

    def state_dict(self) -> dict[str, Any]:
        """Everything needed to resume exactly, as tensors and plain types."""
        weights = {"engine": self._engine.state_dict(), "start": [self._start.weight, self._start.bias]}
        return {**super().state_dict(), **weights, "mistakes": self._compressed_parts()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume from a :meth:`state_dict`, on the same data."""
        if "sums" in state:
            raise ValueError("the saved run was made with log='off', which there is no more; start it anew")
        super().load_state_dict(state)
        self._engine.load_state_dict(state["engine"])
        self._mistakes, self._saved = [self._decompressed(state["mistakes"])], list(state["mistakes"])
        self._start = Weights(*(values.to(self._engine.task.y.device) for values in state["start"]))
        self._unsaved = []

    def _proof(self, verdict: Verdict) -> Certificate | None:
        if self._prove is not None and self._certificate is None and verdict is not Verdict.SEPARATED:
            self._certificate = self._prove()
        return self._certificate

    def _norm(self) -> float:
        return self._engine.norm()

    def _digest(self) -> bytes:
        return self._engine.digest()

    def _any_wrong(self) -> bool:
        return bool(self._engine.wrong_decisions()[self._order.ids].any())

    def _validation_counts(self, rows: Rows, y: Tensor) -> tuple[int, int]:
        scores = self._engine.scores(rows)
        if not torch.isfinite(scores).all():
            raise ValueError("scores of the validation samples are not finite; scale validation X down")
        return int((decisions(scores, self._engine.task.space.classes) != y).sum()), len(y)

    def _compressed_parts(self) -> list[tuple[Tensor, ...]]:
        """The mistakes since each state that was saved: what the task does not know, in 32 bits where that is exact."""
        if self._unsaved:
            part, self._unsaved = Mistakes.joined(self._unsaved), []
            columns = [part.sample, part.step, *([] if self._engine.task.space.classes is None else [part.wrong])]
            if max(self._ends, default=0) < 2**31:
                # on the CPU, so that a run resumes on any device, and by numpy, which wakes no threads
                columns = [torch.from_numpy(column.cpu().numpy().astype(np.int32)) for column in columns]
            self._saved.append(tuple(columns))
        return list(self._saved)

    def _decompressed(self, parts: Sequence[tuple[Tensor, ...]]) -> Mistakes:
        task = self._engine.task
        if not parts:
            return Mistakes.of((), task.y.device)
        sample, step, *wrong = (torch.cat(column).to(task.y) for column in zip(*parts, strict=True))
        return Mistakes(sample, step, partial(task.signed, sample), *(wrong or [-task.y[sample]]))

    def log(self) -> MistakeLog:
        """The mistakes so far."""
        task = self._engine.task
        mistakes = Mistakes.joined(self._mistakes, task.y.device)
        return MistakeLog.of(task.space, task.y, self._start, mistakes, self._ends, self._cost)
