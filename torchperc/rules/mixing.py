"""Iterative parameter mixing: each process makes a pass over its own samples, then the weights are mixed."""

from __future__ import annotations

import copy
import math
import os
from collections import Counter
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast

import numpy as np
import torch

from torchperc._checks import Data, weights_overflow
from torchperc.nn.functional import balanced_weights
from torchperc.nn.modules import JointPerceptron
from torchperc.rules import make_problem as make
from torchperc.rules.conventions import Order
from torchperc.rules.log import MistakeLog
from torchperc.rules.models import Model
from torchperc.rules.problem import Mistakes, Problem, Weights
from torchperc.rules.run import RuleRun
from torchperc.samples import process_group
from torchperc.samples.rows import Samples


def start_mixing(trainer: Any, net: object, X: Data, y: Data, validation: Any, sample_weight: Data | None) -> MixedRun:
    """Return a run over all processes, each with its own samples; a collective call.

    ``trainer`` is a :class:`~torchperc.RuleTrainer`, whose options must be the same in all processes.
    """
    size = os.environ.get("WORLD_SIZE", "1")
    if process_group.rank_and_size()[1] == 1 and size.isdigit() and int(size) > 1:
        alone = f"WORLD_SIZE={size}, but this process has no process group, so each would train by itself"
        raise ValueError(f"{alone}; call torch.distributed.init_process_group() first")
    if isinstance(net, JointPerceptron):
        raise TypeError("distributed training is for nets with one weight vector per class, not joint features")

    def prepared(trainer: Any, X: Data) -> Any:
        return everywhere(lambda: trainer.problem_for(net, X, y, sample_weight, None, 1.0))

    everywhere = process_group.run_on_all_ranks
    problem, start, ids = prepared(trainer, X)
    samples = problem.samples
    given = {name: value for name, value in vars(trainer).items() if name != "_streams"}
    given["X"] = f"{'sparse' if samples.sparse else 'dense'}, {samples.dtype}, {samples.n_features} features"
    given |= {f"net.{name}": problem.digest([values]) for name, values in start._asdict().items()}
    given["validation"] = validation is not None
    process_group.check_same_options(given)
    if trainer.class_weight == "balanced":
        counts = process_group.gather(Counter(problem.y[ids].tolist()))
        trainer = copy.copy(trainer)
        trainer.class_weight = balanced_weights(sum(counts, Counter()))
        problem, start, ids = prepared(trainer, samples)
    held_out = everywhere(lambda: make.check_validation(validation, problem))
    problem = replace(problem, bias_step=max(process_group.gather(problem.bias_step)))
    everywhere(lambda: make.check_steps(trainer.lr, problem.sample_weight, problem.bias_step, samples))
    options = trainer.run_options(problem, ids, trainer.seed + process_group.rank_and_size()[0])
    return MixedRun(problem, start, **options, validation=held_out)


class MixedRun(RuleRun):
    """A run in several processes; every process calls the same methods in the same order.

    After a pass of each of R processes over its samples w ← w + Σ_r μ·Δ_r, where Δ_r is the sum of the updates of
    process r and μ = 1/R. The log has coefficients μ·c and numbers samples and steps as if the samples of the processes
    followed one another. A pass takes one message of the size of the weights.
    """

    def __init__(self, problem: Problem, start: Weights, order: Order, **options: Any) -> None:
        self._rank = process_group.rank_and_size()[0]
        self._mixed = Weights(*(values.to(torch.float64, copy=True) for values in start))
        super().__init__(problem, start, order=order, **options)
        steps, samples = zip(*self._gather((len(order.ids), len(problem.y))), strict=True)
        self._steps_before, self._steps = sum(steps[: self._rank]), sum(steps)
        self._samples_before = sum(samples[: self._rank])

    def _gather(self, value: Any) -> list[Any]:
        return process_group.gather(value)

    def _pass(self, presented: int) -> int:
        made, failure = Mistakes.of(()), None
        try:
            made, _ = self._learn(0)
        except Exception as error:  # of which the others must hear
            failure = error
        own = self._change(made)
        facts = (math.nan if failure else float(len(made.sample)), float(np.abs(made.coef).sum()))
        message = torch.cat((own.weight.flatten(), own.bias, own.bias.new_tensor(facts)))
        messages = process_group.all_stack(message)
        if not bool(torch.isfinite(messages).all()):
            process_group.run_on_all_ranks(partial(_raise, failure))
            raise weights_overflow()
        size, mean = len(messages), messages.mean(0)  # of the same numbers, so that all round alike
        weight, bias = mean[:-2].split((own.weight.numel(), len(own.bias)))
        self._mixed.weight.add_(weight.view_as(own.weight))
        self._mixed.bias.add_(bias)
        self.weights.load_state_dict(self._mixed._asdict())
        mixed = made._replace(coef=made.coef / size)
        self._found.append(mixed.moved(0, presented + self._steps_before))
        self._counted += float(mean[-2])  # Σ μ·k
        self._total += float(mean[-1])
        self._ends.append(presented + self._steps)
        return int(messages[:, -2].sum())

    def _change(self, made: Mistakes, steps: int | None = None) -> Weights:
        """Return what mistakes add to the weights, in float64; over so many steps, the sum after each of them."""
        zeros = Weights(*map(torch.zeros_like, self._mixed))
        once = made if steps else made._replace(step=np.zeros_like(made.step))
        return self.problem.total(zeros, once, steps or 1)

    def _digest(self) -> str:
        return self.problem.digest(self._mixed)

    def log(self) -> MistakeLog:
        """Return the log of all processes; a collective call."""
        problem = self.problem
        own = Mistakes.joined(self._found).moved(self._samples_before, 0)
        given = (problem.y, problem.sample_weight, *own)
        y, weights, *columns = (np.concatenate(self._gather(values)) for values in given)
        order = columns[1].argsort()
        made = Mistakes(*(column[order] for column in columns))
        elsewhere = process_group.rank_and_size()[1] > 1
        samples = cast(Samples, _Elsewhere(problem.samples, len(y))) if elsewhere else problem.samples
        of_all = (samples, y, problem.num_classes, weights, weights, problem.rule, problem.bias_step)
        ends = torch.tensor(self._ends, dtype=torch.int64)
        return MistakeLog(MixedProblem(*of_all), self.start, (made,), ends, self._conventions)

    def _averaged(self) -> Model:
        steps = self._ends[-1]
        return self._mean(self._change(Mistakes.joined(self._found), steps), steps)

    def _after_epoch(self, log: MistakeLog, epoch: int) -> Model:
        made = Mistakes.joined(self._found)
        return self._mean(self._change(made.part(0, int((made.step < self._ends[epoch - 1]).sum()))), 1)

    def _mean(self, own: Weights, steps: int) -> Model:
        """Return the mean of a sum over so many steps, of which each process has its own part."""
        total = (a.double() * steps + process_group.all_reduce(b) for a, b in zip(self.start, own, strict=True))
        return self.problem.mean(Weights(*total), steps)

    def state_dict(self) -> dict[str, Any]:
        """Return everything needed to resume exactly, of all processes; a collective call."""
        return {**super().state_dict(), "mixed": self._mixed.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume from a :meth:`state_dict`, with as many processes."""
        super().load_state_dict(state)
        self._mixed.load_state_dict(state["mixed"])


def _raise(failure: Exception | None) -> None:
    if failure is not None:
        raise failure


@dataclass(frozen=True, eq=False)
class MixedProblem(Problem):
    """The samples of all processes: a log with coefficients μ·c adds up to the mixed weights, in float64."""

    def replay(self, weights: Weights, mistakes: Mistakes) -> None:
        """Add Σ μ·c·x to the weights."""
        once = mistakes._replace(step=np.zeros_like(mistakes.step))
        for values, total in zip(weights, self.total(weights, once, 1), strict=True):
            values.copy_(total)


class _Elsewhere:
    """The samples of all processes, of which only number, width and type are known here."""

    def __init__(self, samples: Samples, count: int) -> None:
        self.n_features, self.dtype, self.device, self._count = samples.n_features, samples.dtype, samples.device, count
        self.sparse = samples.sparse

    def __len__(self) -> int:
        return self._count

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        raise ValueError("this process has only a shard of the samples; use log.bind(X, y) with all, in rank order")
