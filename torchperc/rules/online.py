"""What online learning keeps from one call of ``partial_fit`` to the next."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from torchperc._checks import weights_overflow
from torchperc.rules.conventions import Verdict
from torchperc.rules.decision import PerceptronRule
from torchperc.rules.engines import Engine
from torchperc.rules.log import MistakeLog, VotedModel
from torchperc.rules.problem import Array, Mistakes, Problem, Weights
from torchperc.rules.run import EpochRecord, RuleResult


class Stream:
    """The weights that a stream of samples has led to, the sum for their average, and for a vote the logs so far."""

    def __init__(self) -> None:
        self.weights: Weights | None = None  # before scaling
        self.scale = 1.0
        self._total: Weights | None = None
        self._steps = 0
        self._logs: tuple[MistakeLog, ...] = ()
        self._left: tuple[torch.Tensor, ...] = ()

    def go_on(self, lr: float) -> tuple[Weights, float]:
        """Return the weights to go on from, before scaling, and the scale of a model."""
        assert self.weights is not None
        if self.scale in (1.0, lr):
            return self.weights, self.scale
        return self.weights.scaled(self.scale), 1.0  # lr was changed

    def fits(self, net: Any) -> bool:
        """Return whether the net still has the weights that this stream left in it."""
        now = _parameters(net)
        return len(now) == len(self._left) and all(
            a.dtype == b.dtype and a.device == b.device and torch.equal(a, b)
            for a, b in zip(now, self._left, strict=True)
        )

    def learn(self, problem: Problem, start: Weights, engine: Engine, ids: Array, select: str) -> RuleResult:
        """Make one pass over samples; the result has the model that the whole stream selects."""
        weights = start.clone()
        with torch.no_grad():
            found = engine(problem, weights, ids)
            norm, steps = problem.norm(weights), problem.steps[found.sample].sum()
            if not math.isfinite(norm):
                raise weights_overflow()
            upper = norm / float(steps) if steps and not start.any_nonzero else None
            record = EpochRecord(1, len(found.sample), norm * problem.scale, None, upper)
            verdict = _verdict(problem, start, weights, found)
            log = MistakeLog(problem, start, (found,), torch.tensor([len(ids)]))
            cycle = (0, 1) if verdict is Verdict.CYCLING else None
            if self._total is not None and problem.scale != self.scale:
                self._total = self._total.scaled(self.scale / problem.scale)
            self.weights, self.scale = weights, problem.scale
            result = RuleResult(verdict, log, (record,), "last", problem.model(weights), cycle)
            return result if select == "last" else self._selected(result, select)

    def _selected(self, result: RuleResult, select: str) -> RuleResult:
        log, problem = result.log, result.log.problem
        total = problem.total(log.start, log.mistakes, log.steps)
        if self._total is not None:
            total = Weights(*(a.to(b.device) + b for a, b in zip(self._total, total, strict=True)))
        self._total, self._steps = total, self._steps + log.steps
        averaged = problem.mean(total, self._steps)
        if select == "averaged":
            return replace(result, select=select, model=averaged, average=averaged)
        if len(log) or not self._logs:
            self._logs += (compact(log),)
        else:  # the weights only outlived more samples; a log for each such chunk would fill the memory
            *before, last = self._logs
            self._logs = (*before, replace(last, epoch_ends=last.epoch_ends + log.steps))
        return replace(result, select=select, model=VotedModel(self._logs), average=averaged)

    def remember(self, net: Any) -> None:
        """Note the weights that were left in the net."""
        self._left = tuple(values.detach().clone() for values in _parameters(net))

    def state_dict(self) -> dict[str, Any]:
        """Return everything needed to resume exactly, except the logs of a vote."""
        weights, total = (None if each is None else each.state_dict() for each in (self.weights, self._total))
        return {"weights": weights, "total": total, "scale": self.scale, "steps": self._steps}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume from a :meth:`state_dict`, on any device."""
        pairs = (state["weights"], state["total"])
        self.weights, self._total = (None if each is None else Weights(**each) for each in pairs)
        self._steps, self.scale = state["steps"], state["scale"]


def _parameters(net: Any) -> tuple[torch.Tensor, ...]:
    return tuple(values for values in (net.weight, net.bias) if values is not None)


def _verdict(problem: Problem, start: Weights, weights: Weights, found: Mistakes) -> Verdict:
    if len(found.sample) == 0 and (
        problem.rule.tie != "strict" or not problem.mistakes(weights, PerceptronRule("sign")).any()
    ):
        return Verdict.SEPARATED
    return Verdict.CYCLING if weights.equal(start) else Verdict.BUDGET


def compact(log: MistakeLog) -> MistakeLog:
    """Return the log with a copy of the samples that made mistakes, and no others."""
    index, place = np.unique(log.mistakes.sample, return_inverse=True)
    problem = log.problem
    columns = {name: getattr(problem, name)[index] for name in ("y", "sample_weight", "steps")}
    few = replace(problem, samples=problem.samples.take(torch.from_numpy(index)), **columns)
    return replace(log, problem=few, parts=(log.mistakes._replace(sample=place),))
