"""Iterative parameter mixing: each process makes a pass over its own samples, then the weights are mixed."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from torchperc._checks import Data, check_labels, weights_overflow
from torchperc.nn.modules import JointPerceptron
from torchperc.rules import make_problem as make
from torchperc.rules.engines import Engine, choose_engine
from torchperc.rules.log import MistakeLog
from torchperc.rules.models import Model
from torchperc.rules.orders import Order
from torchperc.rules.problem import Array, Mistakes, Problem, Weights, digest
from torchperc.rules.run import RuleRun
from torchperc.samples import process_group
from torchperc.samples.dense import Samples


def start_mixing(trainer: Any, net: object, X: Data, y: Data, validation: Any, sample_weight: Data | None) -> MixedRun:
    """Return a run over the samples of all processes, of which each gives its own; a collective call.

    ``trainer`` is a :class:`~torchperc.RuleTrainer`, whose options must be the same in all processes.
    """
    size = os.environ.get("WORLD_SIZE", "1")
    if process_group.rank_and_size()[1] == 1 and size.isdigit() and int(size) > 1:
        raise ValueError(
            f"WORLD_SIZE={size}, but this process has no process group, so each would train by itself; call "
            "torch.distributed.init_process_group() first"
        )

    def check() -> tuple[Problem, Weights, Array, tuple[Samples, Tensor] | None]:
        if isinstance(net, JointPerceptron):
            raise TypeError("distributed training is for nets with one weight vector per class, not joint features")
        start, samples, classes = trainer._linear(net, X)
        alone = replace_options(trainer, class_weight=None)
        problem, ids = make.make_problem(alone, net, samples, y, sample_weight, num_classes=classes, scale=1.0)
        return problem, start, ids, make.check_validation(validation, problem)

    problem, start, ids, held_out = process_group.run_on_all_ranks(check)
    samples, rank = problem.samples, process_group.rank_and_size()[0]
    given = {name: value for name, value in vars(trainer).items() if name != "_streams"}
    given["X"] = f"{'sparse' if samples.sparse else 'dense'}, {samples.dtype}, {samples.n_features} features"
    given |= {"validation": held_out is not None, "net.weight": start.weight.cpu(), "net.bias": start.bias.cpu()}
    process_group.check_same_options(given)

    problem = _with_class_weights(trainer, problem, ids)
    ids, classes = np.flatnonzero(problem.sample_weight), problem.num_classes
    labels = problem.y[ids]
    process_group.run_on_all_ranks(lambda: check_labels(labels, len(ids), classes, name="y of a weight above 0"))
    bias_step = max(process_group.gather(make.bias_step_of(net, trainer.bias_step, samples, ids)))
    weights = problem.sample_weight
    process_group.run_on_all_ranks(lambda: make.check_steps(trainer.lr, weights, bias_step, samples))
    problem = replace(problem, steps=trainer.lr * weights, bias_step=bias_step)
    make.warn_if_stuck(trainer.rule, start, stacklevel=5)
    order = Order(
        trainer.order, ids, trainer.seed + rank, trainer.max_epochs, make.chunk_bounds(samples, trainer.order)
    )
    start = problem.laid_out(start) if problem.can_compile else start
    options = {"max_epochs": trainer.max_epochs, "select": trainer.select, "validation": held_out}
    engine = choose_engine(trainer.engine, problem)
    return MixedRun(problem, start, engine, order, mixing=trainer.mixing, conventions=trainer.conventions(), **options)


def replace_options(trainer: Any, **options: Any) -> Any:
    """Return a copy of a trainer with other options."""
    copy = object.__new__(type(trainer))
    vars(copy).update(vars(trainer), **options)
    return copy


def _with_class_weights(trainer: Any, problem: Problem, ids: Array) -> Problem:
    """Return the problem with class weights by the samples of all processes."""
    class_weight = trainer.class_weight
    if class_weight is None:
        return problem
    if isinstance(class_weight, str):
        counts = process_group.gather(Counter(problem.y[ids].tolist()))
        class_weight = make.balanced_weights(sum(counts, Counter()))
    factors = make.sample_weights(problem.y, None, class_weight, problem.num_classes)
    return replace(problem, sample_weight=problem.sample_weight * factors)


class MixedRun(RuleRun):
    """A run in several processes; every process calls the same methods in the same order.

    After a pass of each process over its samples w ← w + Σ_r μ_r·Δ_r, where Δ_r is the sum of the updates of process
    r; μ_r is 1/R (``"uniform"``) or k_r/Σ k, k_r being its mistakes (``"mistakes"``). The log has coefficients μ·c and
    numbers samples and steps as if the samples of the processes followed one another. A pass takes one message of the
    size of the weights.
    """

    def __init__(self, problem: Problem, start: Weights, engine: Engine, order: Order, *, mixing: str, **options: Any):
        super().__init__(problem, start, engine, order, **options)
        self._mixing = mixing
        self._mixed = Weights(*(values.to(torch.float64, copy=True) for values in start))
        self._mixed_mistakes = 0.0
        counts = process_group.gather((len(order.ids), len(problem.y)))
        rank, (steps, samples) = process_group.rank_and_size()[0], zip(*counts, strict=True)
        self._steps_before, self._steps = sum(steps[:rank]), sum(steps)
        self._samples_before, self._samples = sum(samples[:rank]), sum(samples)
        self.squared_radius = max(process_group.gather(problem.squared_radius(order.ids)))

    def _pass(self, presented: int) -> int:
        made, overflow = Mistakes.of(()), False
        try:
            made = self._local_pass()
        except ValueError:  # the weights overflow, of which the others must hear
            overflow = True
        own = self._change(made, np.ones(len(made.sample)))
        facts = (math.nan if overflow else float(len(made.sample)), float(np.abs(made.coef).sum()))
        message = torch.cat((own.weight.flatten(), own.bias, own.bias.new_tensor(facts)))
        messages = process_group.all_stack(message)
        if not bool(torch.isfinite(messages).all()):
            raise weights_overflow()
        counts, sums = (column.tolist() for column in messages[:, -2:].T)
        by_mistakes = self._mixing == "mistakes" and any(counts)
        factors = [k / sum(counts) if by_mistakes else 1 / len(counts) for k in counts]
        for factor, each in zip(factors, messages, strict=True):  # one after the other, so that all round alike
            weight, bias = each[:-2].split((own.weight.numel(), len(own.bias)))
            self._mixed.weight.add_(factor * weight.view_as(own.weight))
            self._mixed.bias.add_(factor * bias)
        self.weights.load_state_dict(self._mixed._asdict())
        mixed = made._replace(coef=made.coef * factors[process_group.rank_and_size()[0]])
        self._found.append(mixed.moved(0, presented + self._steps_before))
        self._total += sum(factor * each for factor, each in zip(factors, sums, strict=True))
        self._mixed_mistakes += sum(factor * k for factor, k in zip(factors, counts, strict=True))
        self._ends.append(presented + self._steps)
        return int(sum(counts))

    def _local_pass(self) -> Mistakes:
        found, done = [], 0
        for ids in self.order.epoch(len(self.history)):
            for part, first, local in self.problem.parts(ids):
                found.append(self.engine(part, self.weights, local).moved(first, done))
                done += len(local)
        return Mistakes.joined(found)

    def _change(self, made: Mistakes, times: Array) -> Weights:
        """Return the sum of what these mistakes add to the weights, each so many times, in float64."""
        zeros = Weights(*map(torch.zeros_like, self._mixed))
        once = made._replace(coef=made.coef * times, step=np.zeros_like(made.step))
        return self.problem.total(zeros, once, 1)

    @property
    def count(self) -> int:
        """The number of training samples, in all processes."""
        return int(self._samples)

    def survey(self) -> tuple[float, float]:
        """Return the mean perceptron criterion and the smallest functional margin over all processes."""
        loss, margin = super().survey()
        found = process_group.gather((loss * len(self.samples), margin))
        return sum(each[0] for each in found) / self._samples, min(each[1] for each in found)

    def _counted(self) -> float:
        """Return Σ μ·k, which the mistake bound holds for."""
        return self._mixed_mistakes

    def _any_wrong(self) -> bool:
        return any(process_group.gather(super()._any_wrong()))

    def _validation_counts(self, samples: Samples, y: Tensor) -> tuple[int, int]:
        found = process_group.gather(super()._validation_counts(samples, y))
        return sum(each[0] for each in found), sum(each[1] for each in found)

    def _digest(self) -> str:
        return digest(self._mixed)

    def log(self) -> MistakeLog:
        """Return the log of all processes; a collective call."""
        problem = self.problem
        own = Mistakes.joined(self._found)
        own = own._replace(sample=own.sample + self._samples_before)
        y, weights, *columns = (
            np.concatenate(process_group.gather(values)) for values in (problem.y, problem.sample_weight, *own)
        )
        order = columns[1].argsort()
        made = Mistakes(*(column[order] for column in columns))
        samples = (
            self.samples
            if process_group.rank_and_size()[1] == 1
            else cast(Samples, _Elsewhere(self.samples, self._samples))
        )
        of_all = (samples, y, problem.num_classes, weights, weights, problem.rule, problem.bias_step)
        ends = torch.tensor(self._ends, dtype=torch.int64)
        return MistakeLog(MixedProblem(*of_all), self.start, (made,), ends, self._conventions)

    def _averaged(self) -> Model:
        return self._mean(lambda step: self._ends[-1] - step, self._ends[-1])

    def _after_epoch(self, log: MistakeLog, epoch: int) -> Model:
        return self._mean(lambda step: (step < self._ends[epoch - 1]).astype(float), 1)

    def _mean(self, times: Callable[[Array], Array], steps: int) -> Model:
        """Return the mean of the weights after each step, each process adding what its own mistakes contribute."""
        made = Mistakes.joined(self._found)
        own = self._change(made, times(made.step))
        total = (a.double() * steps + process_group.all_reduce(b) for a, b in zip(self.start, own, strict=True))
        return self.problem.mean(Weights(*total), steps)

    @cached_property
    def _data(self) -> Any:
        return process_group.gather(self.samples.hash(torch.from_numpy(self.problem.y)))

    def state_dict(self) -> dict[str, Any]:
        """Return everything needed to resume exactly, of all processes; a collective call."""
        own = {name: torch.from_numpy(column) for name, column in Mistakes.joined(self._found)._asdict().items()}
        state = {**super().state_dict(), "mixed": self._mixed.state_dict(), "mixed_mistakes": self._mixed_mistakes}
        return {**state, "mistakes": process_group.gather(own), "order": process_group.gather(self.order.state_dict())}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume from a :meth:`state_dict`, with as many processes."""
        rank, size = process_group.rank_and_size()
        if len(state["order"]) != size:
            raise ValueError(
                f"the saved run was made by {len(state['order'])} processes, found {size}; resume with the same number"
            )
        super().load_state_dict({**state, "order": state["order"][rank], "mistakes": state["mistakes"][rank]})
        self._mixed.load_state_dict(state["mixed"])
        self._mixed_mistakes = state["mixed_mistakes"]


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
        raise ValueError(
            "this process holds a shard of the samples, not all of them; use log.bind(X, y) with all samples, in their "
            "order over the processes"
        )
