"""Learning chains by rule, epoch by epoch: per sequence one decoding, per mistake one update."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from torchperc._checks import check_sample_weight
from torchperc.rules.orders import Order
from torchperc.rules.run import RuleResult
from torchperc.sequences.base import Run
from torchperc.sequences.engines import Engine, Task, engine_of
from torchperc.sequences.layout import Array, Sequences, flat_tags, with_lengths
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

    def write_to(self, net: ChainNet) -> None:
        """Write the selected weights into a net of the same shape; for ``"voted"`` the averaged ones."""
        self.single.write_to(net)

    def scores(self, X: Any) -> Tensor:
        """Not for sequences, which have too many scores."""
        raise TypeError("a chain scores tags and pairs of tags; write the weights into a net and use net(x)")

    def predict(self, X: Any, *, n_jobs: int | None = None) -> list[Tensor]:  # type: ignore[override]
        """The best tags of each sequence by the selected model."""
        return self.model.predict(X, n_jobs=n_jobs)


class ChainRun(Run[ChainResult]):
    """A run in progress: call :meth:`epoch` until there is a verdict, then ask for the :meth:`result`."""

    _results = ChainResult

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
        total = math.nan if start else 0.0
        super().__init__(
            engine, start, order, max_epochs=max_epochs, select=select, cost=cost, scale=scale, total=total,
            seen={start.digest(): 0} if order.repeats else {}, validation=validation,
        )  # fmt: skip
        self._engine: Engine = engine
        self._lr, self._margin, self._like = lr, margin, like
        self._parts: list[Found] = []
        self._moment: ChainWeights | None = None  # the sum of all updates, each times its step, …
        self._counted = 0  # … of so many mistakes

    @property
    def rows(self) -> Sequences:
        """The training sequences."""
        return self._engine.task.sequences

    samples = rows

    @property
    def weights(self) -> ChainWeights:
        """The weights as they are now, before they are scaled; not to be written to."""
        return self._engine.weights()

    def _pass(self, presented: int) -> int:
        made = 0
        for chunk in self._order.epoch(len(self.history)):
            found = self._engine.run(chunk)
            self._parts.append(found._replace(step=found.step + presented))
            made, presented = made + len(found.sequence), presented + len(chunk)
            self._total += float(self._cost[found.sequence].sum()) * (self._lr / self._scale)
        self._ends.append(presented)
        return made

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
        return ChainModel(self.weights.astype(np.float64).scale(self._scale), self._like)

    def survey(self) -> float:
        """The mean perceptron criterion max(0, s(x, ŷ) − s(x, y)) of the training sequences now, ŷ as decoded."""
        task, weights = self._engine.task, self._engine.weights()
        best = weights.decode(task.sequences)
        return float(weights.score_differences(task.sequences, best, task.y).clip(0).mean()) * self._scale

    def state_dict(self) -> dict[str, Any]:
        """Everything needed to resume exactly, as tensors and plain types."""
        weights = {"weights": _tensors(self.weights.unpacked()), "start": _tensors(self._start.unpacked())}
        return {**super().state_dict(), **weights, "mistakes": [_tensors(part) for part in self._parts]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume from a :meth:`state_dict`, on the same data."""
        super().load_state_dict(state)
        weights, self._start = (_weights(self.rows.width, state[name]) for name in ("weights", "start"))
        self._engine.load(weights)
        self._parts = [Found(*(values.cpu().numpy() for values in part)) for part in state["mistakes"]]
        self._moment, self._counted = None, 0

    def _norm(self) -> float:
        return self.weights.norm

    def _digest(self) -> bytes:
        return self.weights.digest()

    def _any_wrong(self) -> bool:
        task = self._engine.task
        wrong = self.weights.decode(task.sequences) != task.y
        return bool((wrong & np.repeat(self._cost > 0, task.sequences.lengths)).any())

    def _validation_counts(self, sequences: Sequences, y: Array) -> tuple[int, int]:
        wrong = self.weights.decode(sequences) != y
        return int(wrong.sum()), len(y)

    def _averaged(self) -> ChainModel:
        return ChainModel(self.averaged(), self._like)

    def averaged(self) -> ChainWeights:
        """The mean of the weights so far; each mistake is replayed once in all epochs."""
        log = self.log()
        if self._moment is None:
            self._moment = self._start.astype(np.float64).scale(0.0)
        self._moment.ensure(self.weights.used - self._moment.used)  # at once, which saves copies
        log.add_moments(self._moment, self._counted)
        self._counted = len(log)
        return self.weights.mean(self._moment, log.steps, self._scale)


def _parameters(net: ChainNet) -> tuple[Tensor, ...]:
    return net.weight, net.transition, net.end


def _tensors(arrays: Any) -> tuple[Tensor, ...]:
    return tuple(torch.from_numpy(np.array(array)) for array in arrays)


def _weights(features: int, tensors: Any) -> ChainWeights:
    """The opposite."""
    return ChainWeights.packed(features, *(values.cpu().numpy() for values in tensors))


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
        return self._weights.astype(self._weights.trans.dtype).scale(self._scale), 1.0  # lr was changed

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
            self._sum.scale(self._scale / log.scale)
        self._weights, self._scale = log.moved(log.start.astype(log.start.trans.dtype), 0, len(log)), log.scale
        if select == "last":
            return result
        total = log.total()
        self._sum = total if self._sum is None else self._sum.add(total)
        self._steps += log.steps
        averaged: Any = ChainModel(self._sum.astype(np.float64).scale(log.scale, self._steps), log.like)
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

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume from a :meth:`state_dict`; the weights are kept on the CPU whatever the device."""
        self._weights, self._sum = (
            None if state[name] is None else _weights(state["features"], state[name]) for name in ("weights", "sum")
        )
        self._steps, self._scale = state["steps"], state["scale"]


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
) -> ChainRun:
    """A run of a trainer on a chain before its first epoch; everything is checked, nothing is changed."""
    check_options(trainer, net, num_classes)
    sequences = Sequences.of(with_lengths(X, y), width=net.features)
    tags = flat_tags(y, sequences, net.tags)
    held = None
    if validation is not None:
        if not isinstance(validation, tuple | list) or len(validation) != 2:
            raise TypeError(f"validation must be a pair (X, y), found a {type(validation).__name__}")
        given = Sequences.of(with_lengths(*validation), width=net.features, name="validation X")
        held = given, flat_tags(validation[1], given, net.tags, "validation y")
    cost = np.ones(len(sequences))
    if sample_weight is not None:
        cost = check_sample_weight(sample_weight, len(sequences)).cpu().numpy()
    start = ChainWeights.of(net)
    scale = 1.0 if start else trainer.lr
    if online is not None and (going_on := online.begin(trainer.lr)):
        start, scale = going_on
    coefs = cost * (trainer.lr / scale)
    if (coefs == coefs[0]).all():
        coefs = coefs[:1]
    like = {"features": net.features, "tags": net.tags, "dtype": net.weight.dtype}
    task = Task(sequences, tags, coefs, trainer.margin / scale)
    order = order_of(trainer, (cost > 0).nonzero()[0])
    epochs, select = (1, "last") if online is not None else (trainer.max_epochs, trainer.select)
    return ChainRun(
        engine_of(trainer.engine, task, start), start, order, max_epochs=epochs, select=select, cost=cost, scale=scale,
        lr=trainer.lr, margin=trainer.margin, like=like, validation=held,
    )  # fmt: skip


def order_of(trainer: RuleTrainer, numbers: Array) -> Order:
    """The order in which a trainer presents some sequences."""
    return Order(trainer.order, numbers, trainer.seed, trainer.max_epochs)


def check_options(trainer: RuleTrainer, net: ChainNet, num_classes: int | None = None) -> None:
    """Refuse options that mean nothing for sequences."""
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
        ("tie='strict'", trainer.tie == "strict", "a mistake is a sequence with a wrong tag; leave it out"),
        (f"num_classes={num_classes}", num_classes is not None, "the net has its number of tags; leave it out"),
    ):  # fmt: skip
        if refused:
            raise ValueError(f"{what} cannot be used with a ChainPerceptron: {why}")
    for name, values in zip(("weight", "transition", "end"), _parameters(net), strict=True):
        if values.is_meta or values.is_inference():
            raise TypeError(f"net.{name} must be a plain parameter that can be written; make the net outside "
                            "inference_mode and on a real device")  # fmt: skip
