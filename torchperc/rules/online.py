"""What online learning keeps from one chunk of samples to the next."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, cast

import torch

from torchperc._checks import Data, weights_overflow
from torchperc.rules import problem
from torchperc.rules.conventions import Verdict
from torchperc.rules.engines.choice import choose_engine
from torchperc.rules.engines.reference import LinearEngine
from torchperc.rules.log import MistakeLog, Mistakes, VotedModel
from torchperc.rules.models import LinearModel, Net, OwnRule, rows_like
from torchperc.rules.run import EpochRecord, RuleResult
from torchperc.rules.spaces import LinearSpace, Weights


class Stream:
    """The weights that a stream of samples has led to, their running average, and for a vote the logs so far."""

    def __init__(self) -> None:
        self.weights: Weights | None = None
        self.scale = 1.0
        self._sum: Weights | None = None
        self._steps = 0
        self._logs: tuple[MistakeLog, ...] = ()
        self._left: Weights | None = None
        self._engine: LinearEngine | None = None  # of the last chunk, and what it was chosen by
        self._chosen: tuple[Any, ...] = ()

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_engine": None}  # whose loops share memory with its weights, which copies would not

    def begin(self, lr: float) -> tuple[Weights, float] | None:
        """The weights in the units of learning and the scale of a model; ``None`` at the beginning."""
        if self.weights is None or self.scale in (1.0, lr):
            return None if self.weights is None else (self.weights, self.scale)
        return self.weights.times(self.scale), 1.0  # lr was changed

    def fits(self, net: Net) -> bool:
        """Whether the net still has the weights that this stream left in it."""
        left, weight, bias = self._left, net.weight, net.bias
        if left is None or (weight.dtype, weight.device) != (left.weight.dtype, left.weight.device):
            return False
        return torch.equal(weight, left.weight) and (bias is None or torch.equal(bias, left.bias))

    def learn(self, trainer: Any, net: Any, X: Data, y: Data, sample_weight: Data | None) -> RuleResult:
        """One pass over samples by the options of a trainer; the result has the model that the stream selects."""
        going_on = self.begin(trainer.lr)
        if going_on is None or self._engine is None:
            space, start = problem.linear_problem(net, X, to_cpu=trainer.engine in ("auto", "compiled"))
            scale = trainer.lr if start.at_zero else 1.0
            problem.warn_if_stuck(trainer.tie, trainer.margin, start, stacklevel=5)
        else:
            space = replace(self._engine.space, rows=rows_like(self._engine.space.rows, X))
        if going_on is not None:
            start, scale = going_on
        if space.scale != scale:
            space = replace(space, scale=scale)
        task, factors, ids = trainer.make_task(net, space, y, sample_weight, both=False)
        engine, chosen = self._engine, (trainer.engine, scale, space.rows.sparse)
        if engine is not None and chosen == self._chosen and not callable(trainer.engine):
            start = start.clone()
            self.weights, self._engine = start, None  # if the pass fails, the next goes on from here
            engine.go_on(task)
        else:
            start = start.to(space.rows.device)
            engine = cast("LinearEngine", choose_engine(trainer.engine, task, start))
        with torch.no_grad():
            found = engine.run(ids)
            record, verdict = _record(engine, start, found), _verdict(engine, start, found)
            log = MistakeLog.of(task.space, task.y, start, found, [len(ids)], factors)
            cycle = (0, 1) if verdict is Verdict.CYCLING else None
            result = RuleResult(verdict, log, (record,), "last", engine.model(), cycle)
            if self._sum is not None and scale != self.scale:
                self._sum = self._sum.times(self.scale / scale)
            self.weights, self.scale, self._engine, self._chosen = engine.weights, scale, engine, chosen
            return result if trainer.select == "last" else self._selected(result, trainer.select)

    def _selected(self, result: RuleResult, select: str) -> RuleResult:
        averaged = self._averaged(result.log)
        if select == "averaged":
            return replace(result, select=select, model=averaged, average=averaged)
        if len(result.log) or not self._logs:
            self._logs += (compact(result.log),)
        else:  # the weights only outlived more samples; a log for each such chunk would fill the memory
            *before, last = self._logs
            steps = result.log.steps
            self._logs = (*before, replace(last, steps=last.steps + steps, epoch_ends=last.epoch_ends + steps))
        return replace(result, select=select, model=VotedModel(self._logs), average=averaged)

    def _averaged(self, log: MistakeLog) -> LinearModel:
        """The mean of the weights after each sample of the stream, of which this log is the last chunk."""
        assert isinstance(log.space, LinearSpace)
        total = log.space.total(log.start, log.entries, log.steps - log.step, log.steps)
        if self._sum is not None:
            before = self._sum.to(total.weight.device)
            total = Weights(before.weight + total.weight, before.bias + total.bias)
        self._sum, self._steps = total, self._steps + log.steps
        return log.space.mean(total, self._steps)

    def remember(self, net: Net) -> None:
        """Note the weights that were left in the net."""
        weight, bias = net.weight.detach(), net.bias
        self._left = Weights(weight.clone(), weight.new_zeros(0) if bias is None else bias.detach().clone())

    def state_dict(self) -> dict[str, Any]:
        """Everything needed to resume exactly, except the logs of a vote."""
        return {
            "weights": None if self.weights is None else (self.weights.weight.clone(), self.weights.bias.clone()),
            "scale": self.scale,
            "sum": None if self._sum is None else (self._sum.weight, self._sum.bias),
            "steps": self._steps,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume from a :meth:`state_dict`, on any device."""
        pairs = (state["weights"], state["sum"])
        self.weights, self._sum = (None if pair is None else Weights(*pair) for pair in pairs)
        self._engine = None
        self._steps, self.scale = state["steps"], state["scale"]


def _record(engine: LinearEngine, start: Weights, found: Mistakes) -> EpochRecord:
    norm, total = engine.norm(), engine.task.total(found.sample)
    if not math.isfinite(norm):
        raise weights_overflow()
    upper = norm / total if total and start.at_zero else None
    return EpochRecord(1, len(found), norm * engine.space.scale, None, upper)


def _verdict(engine: LinearEngine, start: Weights, found: Mistakes) -> Verdict:
    if len(found) == 0 and (engine.task.tie != "strict" or not engine.wrong_decisions().any()):
        return Verdict.SEPARATED
    same = torch.equal(engine.weights.bias, start.bias) and torch.equal(engine.weights.weight, start.weight)
    return Verdict.CYCLING if same else Verdict.BUDGET


def compact(log: MistakeLog) -> MistakeLog:
    """The log with a copy of the samples that made mistakes, and no others."""
    index, place = log.index.unique(return_inverse=True)
    space = replace(log.space, rows=log.space.rows.take(index))
    mistakes = Mistakes(place, log.step, log.coef, log.wrong)
    return replace(log, space=space, y=log.y[index], mistakes=mistakes, cost=log.cost[index])


def new_stream(net: object) -> Stream:
    """The beginning of online learning with a net."""
    if not isinstance(net, Net) and isinstance(net, OwnRule):
        stream: Stream = net.rule_stream()
        return stream
    return Stream()
