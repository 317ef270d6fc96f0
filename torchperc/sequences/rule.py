"""Learning chains by rule, epoch by epoch: per sequence one decoding, per mistake one update."""

from __future__ import annotations

import math
import warnings
from dataclasses import astuple, dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from torchperc import _checks as checks
from torchperc.rules.conventions import Verdict
from torchperc.rules.orders import Order
from torchperc.rules.run import EpochRecord, RuleResult
from torchperc.sequences.engines import Engine, Task, engine_of
from torchperc.sequences.layout import Array, Sequences, flat_tags
from torchperc.sequences.log import ChainLog, ChainModel, Found, VotedChain
from torchperc.sequences.weights import ChainNet, ChainWeights

if TYPE_CHECKING:
    from torchperc.rules.trainer import RuleTrainer


@dataclass(frozen=True, eq=False, repr=False)
class ChainResult(RuleResult):
    """What learning chains by rule returns, as :class:`torchperc.RuleResult`: ``log`` is a :class:`ChainLog`.

    A mistake is a sequence; ``validation_error`` in the history is the fraction of wrong tags.
    """

    log: ChainLog = field()  # type: ignore[assignment]
    model: ChainModel | VotedChain = field()  # type: ignore[assignment]
    average: ChainModel | None = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"ChainResult({self.verdict.name}, {self.log!r}, select={self.select!r})"

    @property
    def single(self) -> ChainModel:  # type: ignore[override]
        """The selected model as one set of weights: for ``"voted"`` the averaged ones, else ``model`` itself."""
        return self.model if isinstance(self.model, ChainModel) else self.average or self.log.averaged()

    def write_to(self, net: ChainNet) -> None:  # type: ignore[override]
        """Write the selected weights into a net of the same shape; for ``"voted"`` the averaged ones."""
        self.single.write_to(net)

    def scores(self, X: Any) -> Tensor:
        """Not for sequences, which have too many scores."""
        raise TypeError("a chain scores tags and pairs of tags; write the weights into a net and use net(x)")

    def predict(self, X: Any, *, n_jobs: int | None = None) -> list[Tensor]:  # type: ignore[override]
        """The best tags of each sequence by the selected model."""
        return self.model.predict(X, n_jobs=n_jobs)


class ChainRun:
    """A run in progress: call :meth:`epoch` until there is a verdict, then ask for the :meth:`result`."""

    def __init__(
        self,
        engine: Engine,
        start: ChainWeights,
        order: Order,
        *,
        max_epochs: int,
        select: str,
        cost: Array,
        scale: float,
        lr: float,
        margin: float,
        like: dict[str, Any],
        validation: tuple[Sequences, Array] | None = None,
    ) -> None:
        self.verdict: Verdict | None = None
        self.history: list[EpochRecord] = []
        self.cycle: tuple[int, int] | None = None
        self._engine, self._start, self._order = engine, start, order
        self._max_epochs, self._select, self._cost, self._validation = max_epochs, select, cost, validation
        self._scale, self._lr, self._margin, self._like = scale, lr, margin, like
        self._parts: list[Found] = []
        self._ends: list[int] = []
        # with a beam the updates are on prefixes, of which the margin may be smaller
        viterbi = engine.task.width == like["tags"]
        self._total = 0.0 if not start and viterbi else math.nan
        self._seen = {start.digest(): 0} if order.repeats else {}

    @property
    def rows(self) -> Any:
        """The training sequences."""
        return self._engine.task.sequences

    @property
    def count(self) -> int:
        """The number of training sequences."""
        return len(self._engine.task.sequences)

    @property
    def weights(self) -> ChainWeights:
        """The weights as they are now, before they are scaled; not to be written to."""
        return self._engine.weights()

    def epoch(self) -> EpochRecord:
        """Make one pass, record what happened, and settle the verdict if possible."""
        presented, made = self._ends[-1] if self._ends else 0, 0
        for chunk in self._order.epoch(len(self.history)):
            order = chunk.numpy()
            found = self._engine.run(order)
            self._parts.append(found._replace(step=found.step + presented))
            made, presented = made + len(found.sequence), presented + len(order)
            self._total += float(self._cost[found.sequence].sum()) * (self._lr / self._scale)
        self._ends.append(presented)
        norm = self.weights.norm
        if not math.isfinite(norm):
            raise checks.weights_overflow()
        upper = norm / self._total if self._total > 0 else None
        record = EpochRecord(len(self.history) + 1, made, norm * self._scale, self._validation_error(), upper)
        self.history.append(record)
        self.verdict = self._judge(record)
        return record

    def result(self) -> ChainResult:
        """The log so far, the verdict (``BUDGET`` while there is none) and the selected model."""
        if not self.history:
            raise ValueError("the run has made no epoch yet, so there is no result; call epoch() first")
        log: Any = self.log()  # of which the class above knows the type
        model: Any = self._selected(log)
        return ChainResult(self.verdict or Verdict.BUDGET, log, tuple(self.history), self._select, model, self.cycle)

    def log(self) -> ChainLog:
        """The mistakes so far."""
        self._parts = [Found.joined(self._parts)]
        task, ends = self._engine.task, torch.tensor(self._ends, dtype=torch.int64)
        steps = self._ends[-1] if self._ends else 0
        return ChainLog(
            task.sequences, task.y, self._start, self._parts[0], steps, ends, self._cost, self._scale, self._lr,
            self._margin, self._like,
        )  # fmt: skip

    def current(self) -> ChainModel:
        """The model with the weights as they are now."""
        return ChainModel(self.weights.scaled(self._scale), self._like)

    def write_to(self, net: ChainNet) -> None:
        """Write into a net what is known of the selected weights: averaged, for a vote too, else the current ones."""
        averaged = self._select in ("averaged", "voted")
        (self.log().averaged(self.weights.used) if averaged else self.current()).write_to(net)

    def state_dict(self) -> dict[str, Any]:
        """Everything needed to resume exactly, as tensors and plain types."""
        return {
            "data": self._data,
            "weights": _tensors(self.weights.unpacked()),
            "start": _tensors(self._start.unpacked()),
            "mistakes": [_tensors(part) for part in self._parts],
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
        return self._engine.task.sequences.hash(self._engine.task.y)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume from a :meth:`state_dict`, on the same data."""
        if state["data"] != self._data:
            raise ValueError("the saved run belongs to other data: X and y are not those it was made on")
        if state["scale"] != self._scale:
            raise ValueError("the saved run was made with another lr; start it anew")
        width = self._engine.task.sequences.width
        weights, self._start = (
            ChainWeights.packed(width, *(values.cpu().numpy() for values in state[name]))
            for name in ("weights", "start")
        )
        self._engine.load(weights)
        self._parts = [Found(*(values.cpu().numpy() for values in part)) for part in state["mistakes"]]
        self._ends = list(state["ends"])
        self.history = [EpochRecord(*record) for record in state["history"]]
        self._seen = {bytes.fromhex(key): epoch for key, epoch in state["seen"].items()}
        self.cycle = None if state["cycle"] is None else (state["cycle"][0], state["cycle"][1])
        self.verdict = None if state["verdict"] is None else Verdict(state["verdict"])
        self._order.load_state_dict(state["order"])
        self._total = state["total"]

    def _judge(self, record: EpochRecord) -> Verdict | None:
        task, clean = self._engine.task, record.mistakes == 0
        all_seen = clean and self._order.covers(record.epoch - 1)
        # a strict tie passes over equal scores that are decided wrongly, and an explicit order may leave some out
        if clean and ((task.tie != "strict" and all_seen) or not self._any_wrong()):
            return Verdict.SEPARATED
        if self._order.repeats or all_seen:
            before = self._seen.setdefault(self.weights.digest(), record.epoch)
            self.cycle = (before, record.epoch) if before < record.epoch else None
        if self.cycle is not None:
            return Verdict.CYCLING
        return None if record.epoch < self._max_epochs else Verdict.BUDGET

    def _any_wrong(self) -> bool:
        """Whether any sequence that takes part is decided wrongly."""
        task = self._engine.task
        wrong = self.weights.decode(task.sequences, task.width) != task.y
        return bool((wrong & np.repeat(self._cost > 0, task.sequences.lengths)).any())

    def _validation_error(self) -> float | None:
        if self._validation is None:
            return None
        sequences, y = self._validation
        wrong = self.weights.decode(sequences, self._engine.task.width) != y
        return float(wrong.mean())

    def _selected(self, log: ChainLog) -> ChainModel | VotedChain:
        if self._select == "last":
            return self.current()
        if self._select == "best-validation":
            judged = [record for record in self.history if record.validation_error is not None]
            if not judged:
                raise ValueError("select='best-validation' needs validation data, and no epoch was validated")
            best = min(judged, key=lambda record: (record.validation_error, record.epoch))
            return log.state_at(sum(record.mistakes for record in self.history[: best.epoch]))
        if self._select == "voted":
            return log.voted()
        return log.averaged(self.weights.used) if self._select == "averaged" else log.pocket()


def _parameters(net: ChainNet) -> tuple[Tensor, ...]:
    return net.weight, net.transition, net.end


def _tensors(arrays: Any) -> tuple[Tensor, ...]:
    return tuple(torch.from_numpy(np.array(array)) for array in arrays)


class ChainStream:
    """What online learning keeps from one chunk of sequences to the next."""

    def __init__(self) -> None:
        self._weights: ChainWeights | None = None
        self._scale, self._sum, self._steps = 1.0, None, 0
        self._logs: tuple[ChainLog, ...] = ()
        self._left: tuple[Tensor, ...] | None = None

    _sum: ChainWeights | None

    def begin(self, lr: float) -> tuple[ChainWeights, float] | None:
        """The weights to go on from, not rounded, and their scale; ``None`` for those of the net."""
        if self._weights is None:
            return None
        if self._scale in (1.0, lr):
            return self._weights, self._scale
        return self._weights.scaled(self._scale), 1.0  # lr was changed

    def fits(self, net: ChainNet) -> bool:
        """Whether the net still has the weights that this stream left in it."""
        own = _parameters(net)
        return self._left is not None and all(
            (a.dtype, a.device, a.shape) == (b.dtype, b.device, b.shape) and torch.equal(a, b)
            for a, b in zip(own, self._left, strict=True)
        )

    def take(self, result: ChainResult, select: str) -> ChainResult:
        """Add a chunk's result to the stream; return it with the model that the whole stream selects."""
        log = result.log
        if self._scale != log.scale and self._sum is not None:
            self._sum = self._sum.scaled(self._scale / log.scale)
        self._weights, self._scale = log._moved(log.start.astype(np.float64), 0, len(log)), log.scale
        if select == "last":
            return result
        total = log.total()
        self._sum = total if self._sum is None else _added(self._sum, total)
        self._steps += log.steps
        averaged: Any = ChainModel(self._sum.scaled(log.scale, self._steps), log.like)
        if select == "averaged":
            return replace(result, select=select, model=averaged, average=averaged)
        self._logs += (log,)
        voted: Any = VotedChain(self._logs)
        return replace(result, select=select, model=voted, average=averaged)

    def remember(self, net: ChainNet) -> None:
        """Note the weights that were left in the net."""
        self._left = tuple(values.detach().clone() for values in _parameters(net))

    def state_dict(self) -> dict[str, Any]:
        """Everything needed to resume exactly, except the logs of a vote."""
        width = None if self._weights is None else len(self._weights.slot)
        pairs = {"weights": self._weights, "sum": self._sum}
        packed = {name: None if each is None else _tensors(each.unpacked()) for name, each in pairs.items()}
        return {**packed, "scale": self._scale, "steps": self._steps, "features": width}

    def load_state_dict(self, state: dict[str, Any], device: torch.device | None = None) -> None:
        """Resume from a :meth:`state_dict`; the weights are kept on the CPU whatever the device."""
        self._weights, self._sum = (
            None
            if state[name] is None
            else ChainWeights.packed(state["features"], *(values.cpu().numpy() for values in state[name]))
            for name in ("weights", "sum")
        )
        self._steps, self._scale = state["steps"], state["scale"]


def _added(one: ChainWeights, other: ChainWeights) -> ChainWeights:
    """The sum of two sets of weights, in float64."""
    total = one.astype(np.float64)
    active, rows, trans, end = other.unpacked()
    new = active[total.slot[active] < 0]
    total.ensure(len(new))
    total.slot[new] = total.used + np.arange(len(new))
    total.used += len(new)
    total.rows[total.slot[active], : len(end)] += rows
    total.trans[:, : len(end)] += trans
    total.end += end
    return total


def start_run(
    trainer: RuleTrainer,
    net: ChainNet,
    X: Any,
    y: Any,
    *,
    validation: Any = None,
    sample_weight: Any = None,
    num_classes: int | None = None,
    online: ChainStream | None = None,
    numbers: Any = None,
) -> ChainRun:
    """A run of a trainer on a chain before its first epoch; everything is checked, nothing is changed."""
    _refuse(trainer, net, num_classes)
    sequences = Sequences.of(X, width=net.features)
    tags = flat_tags(y, sequences, net.tags)
    held = None
    if validation is not None:
        if not isinstance(validation, tuple | list) or len(validation) != 2:
            raise TypeError(f"validation must be a pair (X, y), found a {type(validation).__name__}")
        given = Sequences.of(validation[0], width=net.features, name="validation X")
        held = given, flat_tags(validation[1], given, net.tags, "validation y")
    cost = np.ones(len(sequences))
    if sample_weight is not None:
        cost = checks.nonnegative_weights(sample_weight, len(sequences)).cpu().numpy()
    start = ChainWeights.of(net)
    scale = 1.0 if start else trainer.lr
    if online is not None and (going_on := online.begin(trainer.lr)):
        start, scale = going_on
    coefs = cost * (trainer.lr / scale)
    if (coefs == coefs[0]).all():
        coefs = coefs[:1]
    like = {"features": net.features, "tags": net.tags, "decode": net.decode, "beam_width": net.beam_width,
            "dtype": net.weight.dtype}  # fmt: skip
    task = Task(sequences, tags, coefs, net.width, trainer.tie, trainer.margin / scale)
    if trainer.tie == "strict" and not trainer.margin and not start:
        warnings.warn(
            "tie='strict' updates only where other tags score higher than y, but from zero weights all score 0: "
            "nothing will ever move. Use tie='update', or start from other weights.",
            UserWarning,
            stacklevel=5,
        )
    ids = torch.from_numpy((cost > 0).nonzero()[0])
    order = Order(trainer.order, ids, trainer.seed, trainer.max_epochs)
    epochs, select = (1, "last") if online is not None else (trainer.max_epochs, trainer.select)
    return ChainRun(
        engine_of(trainer.engine, task, start), start, order, max_epochs=epochs, select=select, cost=cost, scale=scale,
        lr=trainer.lr, margin=trainer.margin, like=like, validation=held,
    )  # fmt: skip


def _refuse(trainer: RuleTrainer, net: ChainNet, num_classes: int | None) -> None:
    """Refuse options that mean nothing for sequences."""
    beam = net.width < net.tags
    for what, refused, why in (
        (f"class_weight={trainer.class_weight!r}", trainer.class_weight is not None,
         "a sequence has many tags; give sample_weight, one per sequence"),
        ("kernel", trainer.kernel is not None, "the net keeps its weights; leave it out"),
        (f"bias_step={trainer.bias_step!r}", trainer.bias_step is not None,
         "a chain has no bias; add a feature that is always 1 and leave it out"),
        ("prove=True", trainer.prove, "the proof is for single samples; leave it out"),
        (f"distributed={trainer.distributed!r}", trainer.distributed is not None, "one process learns; leave it out"),
        ("order='random-mistake'", isinstance(trainer.order, str) and trainer.order == "random-mistake",
         "all sequences would be decoded before each step; use 'given' or 'shuffled'"),
        ("tie='strict'", beam and trainer.tie == "strict",
         f"decode={net.decode!r} drops tags of equal scores; use 'update' or 'sign'"),
        (f"num_classes={num_classes}", num_classes is not None, "the net has its number of tags; leave it out"),
    ):  # fmt: skip
        if refused:
            raise ValueError(f"{what} cannot be used with a ChainPerceptron: {why}")
    for name, values in zip(("weight", "transition", "end"), _parameters(net), strict=True):
        if values.is_meta or values.is_inference():
            raise TypeError(f"net.{name} must be a plain parameter that can be written; make the net outside "
                            "inference_mode and on a real device")  # fmt: skip
