"""What online learning keeps from one chunk of samples to the next."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

import torch

from torchperc import _checks as checks
from torchperc.rules.log import MistakeLog, VotedModel
from torchperc.rules.models import LinearModel, Net, OwnRule
from torchperc.rules.one_by_one import OneByOne, Options
from torchperc.rules.run import RuleResult
from torchperc.rules.spaces import LinearSpace, Space, Weights

_WORTH_LOADING = 100  # single samples, whose plain steps take a fraction of the time that numba needs to be imported


class Stream:
    """The weights that a stream of samples has led to, their running average, and for a vote the logs so far."""

    def __init__(self) -> None:
        self.weights: Weights | None = None
        self.scale = 1.0
        self._sum: Weights | None = None
        self._steps = 0
        self._logs: tuple[MistakeLog, ...] = ()
        self._left: Weights | None = None
        self._single: OneByOne | None = None
        self._ones = 0

    def learn_one(self, trainer: Options, net: Net, X: checks.Data, y: checks.Data) -> RuleResult | None:
        """Learn a single sample quickly, if it looks as usual and the net is as the stream left it; else nothing."""
        return None if self._single is None else self._single.learn(trainer, net, X, y)

    def prepare(self, trainer: Options, net: Net, space: Space) -> None:
        """Make ready for single samples, after one was learned; after some of them if numba has to be loaded for it."""
        self._ones += 1
        if "numba" not in sys.modules and self._ones < _WORTH_LOADING:
            return
        if self.weights is not None and OneByOne.can(trainer, net, space):
            assert isinstance(space, LinearSpace)
            total = self._sum if trainer.select == "averaged" else None
            self._single = OneByOne(trainer, net, space, self.weights, total, self._steps)

    def _settle(self) -> None:
        """Take over what single samples have led to."""
        if self._single is not None:
            single, self._single = self._single, None
            self.weights = single.weights()
            if (total := single.total()) is not None:
                self._sum, self._steps = total, single.steps
            self._left = single.left()

    def begin(self, lr: float) -> tuple[Weights, float] | None:
        """The weights in the units of learning and the scale of a model; ``None`` at the beginning."""
        self._settle()
        if self.weights is None or self.scale in (1.0, lr):
            return None if self.weights is None else (self.weights, self.scale)
        return Weights(self.weights.weight * self.scale, self.weights.bias * self.scale), 1.0  # lr was changed

    def fits(self, net: Net) -> bool:
        """Whether the net still has the weights that this stream left in it."""
        self._settle()
        left = self._left
        if left is None or (net.weight.dtype, net.weight.device) != (left.weight.dtype, left.weight.device):
            return False
        return torch.equal(net.weight, left.weight) and (net.bias is None or torch.equal(net.bias, left.bias))

    def take(self, result: RuleResult, select: str) -> RuleResult:
        """Add a chunk's result to the stream; return it with the model that the whole stream selects."""
        space = result.log.space
        assert isinstance(space, LinearSpace)
        self.weights, self.scale = space.moved(result.log.start, result.log.entries), space.scale
        if select == "last":
            return result
        averaged = self._averaged(result.log)
        if select == "averaged":
            return replace(result, select=select, model=averaged, average=averaged)
        if len(result.log) or not self._logs:
            self._logs += (result.log,)
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
            total = Weights(self._sum.weight + total.weight, self._sum.bias + total.bias)
        self._sum, self._steps = total, self._steps + log.steps
        return log.space.mean(total, self._steps)

    def remember(self, net: Net) -> None:
        """Note the weights that were left in the net."""
        bias = net.weight.new_zeros(0) if net.bias is None else net.bias
        self._left = Weights(net.weight.detach().clone(), bias.detach().clone())

    def state_dict(self) -> dict[str, Any]:
        """Everything needed to resume exactly, except the logs of a vote."""
        self._settle()
        return {
            "weights": None if self.weights is None else (self.weights.weight, self.weights.bias),
            "scale": self.scale,
            "sum": None if self._sum is None else (self._sum.weight, self._sum.bias),
            "steps": self._steps,
        }

    def load_state_dict(self, state: dict[str, Any], device: torch.device | None = None) -> None:
        """Resume from a :meth:`state_dict`, on a device of its own."""
        self._single = None
        self.weights, self._sum = (
            None if pair is None else Weights(*(values.to(device) for values in pair))
            for pair in (state["weights"], state["sum"])
        )
        self._steps, self.scale = state["steps"], state["scale"]


def new_stream(net: object) -> Stream:
    """The beginning of online learning with a net."""
    if isinstance(net, OwnRule):
        stream: Stream = net.rule_stream()
        return stream
    return Stream()
