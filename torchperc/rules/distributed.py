"""The rule in several processes: each makes a pass over its own samples, then the weights are mixed."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from typing import Any, cast

import torch
from torch import Tensor

from torchperc._checks import Data, check_labels, weights_overflow
from torchperc.rules import problem
from torchperc.rules.engines.choice import choose_engine
from torchperc.rules.engines.reference import LinearEngine, Task, digest_of
from torchperc.rules.log import MistakeLog, Mistakes
from torchperc.rules.models import LinearModel, Model
from torchperc.rules.orders import Order
from torchperc.rules.run import RuleRun
from torchperc.rules.spaces import Entries, LinearSpace, Weights
from torchperc.samples import shards
from torchperc.samples.rows import Rows


def start_mixing(trainer: Any, net: object, X: Data, y: Data, validation: Any, sample_weight: Any) -> MixedRun:
    """Return a run over the samples of all processes, of which each gives its own; a collective call.

    ``trainer`` is a :class:`~torchperc.RuleTrainer`, whose options must be the same in all processes.
    """
    size = os.environ.get("WORLD_SIZE", "1")
    if shards.here()[1] == 1 and size.isdigit() and int(size) > 1:
        raise ValueError(
            f"WORLD_SIZE={size}, but this process has no process group, so each would train by itself; call "
            "torch.distributed.init_process_group() first"
        )

    def checked() -> tuple[LinearSpace, Weights, Tensor, Tensor, tuple[Rows, Tensor] | None]:
        space, start = problem.linear_problem(net, X, to_cpu=trainer.engine in ("auto", "compiled"))
        if type(space) is not LinearSpace:
            raise TypeError("distributed training is for nets with one weight vector per class, not joint features")
        labels = check_labels(y, len(space.rows), space.classes).to(space.rows.device)
        factors = problem.sample_factors(labels, sample_weight, None, space.classes)
        return space, start, labels, factors, problem.held_out(validation, space)

    space, start, labels, factors, held = shards.together(checked)
    rows, rank = space.rows, shards.here()[0]
    given = {name: value for name, value in vars(trainer).items() if name not in ("_streams", "progress")}
    given["X"] = f"{'sparse' if rows.sparse else 'dense'}, {rows.dtype}, {rows.width} features"
    given |= {"validation": held is not None, "net.weight": start.weight.cpu(), "net.bias": start.bias.cpu()}
    shards.agreed_options(given)

    class_weight = trainer.class_weight
    if isinstance(class_weight, str):
        counts = shards.gathered(Counter(labels[factors > 0].tolist()))
        class_weight = problem.balanced(sum(counts, Counter()))
    if class_weight is not None:
        factors = factors * problem.sample_factors(labels, None, class_weight, space.classes)
    ids = (factors > 0).nonzero().squeeze(-1)
    shards.together(lambda: check_labels(labels[ids], len(ids), space.classes, name="y of a weight above 0"))
    bias_scale = problem.with_bias_step(space, net, trainer.bias_step, ids).bias_scale
    space = replace(space, bias_scale=max(shards.gathered(bias_scale)))
    steps = shards.together(lambda: problem.check_steps(trainer.lr, factors, space))
    task = Task(space, labels, steps, trainer.tie, problem.learning_margin(trainer.margin, space))
    engine = choose_engine(trainer.engine, task, start)
    assert isinstance(engine, LinearEngine)
    problem.warn_if_stuck(trainer.tie, trainer.margin, start, stacklevel=5)
    bounds = problem.part_bounds(rows, trainer.order)
    order = Order(trainer.order, ids, trainer.seed + rank, trainer.max_epochs, bounds)
    options = {"max_epochs": trainer.max_epochs, "select": trainer.select, "cost": factors, "validation": held}
    return MixedRun(engine, start, order, mixing=trainer.mixing, **options)


class MixedRun(RuleRun):
    """Iterative parameter mixing; every process calls the same methods in the same order.

    After a pass of each process over its samples w ← w + Σ_r μ_r·Δ_r, where Δ_r is the sum of the updates of process
    r; μ_r is 1/R (``"uniform"``) or k_r/Σ k, k_r being its mistakes (``"mistakes"``). The log has coefficients μ·c and
    numbers samples and steps as if the samples of the processes followed one another. A pass takes one message of the
    size of the weights.
    """

    def __init__(self, engine: LinearEngine, start: Weights, order: Order, *, mixing: str, **options: Any) -> None:
        super().__init__(engine, start, order, **options)
        self._linear, self._mixing = engine, mixing
        self._mixed = Weights(start.weight.to(torch.float64, copy=True), start.bias.to(torch.float64, copy=True))
        self._mixed_mistakes = 0.0
        counts = shards.gathered((len(order.ids), len(engine.task.y)))
        rank, (steps, samples) = shards.here()[0], zip(*counts, strict=True)
        self._steps_before, self._steps = sum(steps[:rank]), sum(steps)
        self._samples_before, self._samples = sum(samples[:rank]), sum(samples)
        self.squared_radius = max(shards.gathered(engine.space.squared_radius(order.ids)))

    def _pass(self, presented: int) -> int:
        made, overflow = Mistakes.of((), self._linear.task.y.device), False
        try:
            made = self._local_pass()
        except ValueError:  # the weights overflow, of which the others must hear
            overflow = True
        own = self._total_of(made, torch.ones_like(made.coef), 1)
        facts = (math.nan if overflow else float(len(made)), float(made.coef.abs().sum()))
        messages = shards.stacked(torch.cat((own.weight.flatten(), own.bias, own.bias.new_tensor(facts))))
        if not bool(torch.isfinite(messages).all()):
            raise weights_overflow()
        counts, sums = (column.tolist() for column in messages[:, -2:].T)
        by_mistakes = self._mixing == "mistakes" and any(counts)
        factors = [k / sum(counts) if by_mistakes else 1 / len(counts) for k in counts]
        for factor, message in zip(factors, messages, strict=True):  # one after the other, so that all round alike
            weight, bias = message[:-2].split((own.weight.numel(), len(own.bias)))
            self._mixed.weight += factor * weight.view_as(own.weight)
            self._mixed.bias += factor * bias
        self._linear.load_state_dict(vars(self._mixed))
        mixed = made.replaced(coef=made.coef * factors[shards.here()[0]])
        self._mistakes.append(mixed.later(presented + self._steps_before))
        self._total += sum(factor * each for factor, each in zip(factors, sums, strict=True))
        self._mixed_mistakes += sum(factor * k for factor, k in zip(factors, counts, strict=True))
        self._ends.append(presented + self._steps)
        return int(sum(counts))

    def _local_pass(self) -> Mistakes:
        found, done = [], 0
        for chunk in self._order.epoch(len(self.history)):
            found.append(self._linear.run(chunk).later(done))
            done += len(chunk)
        return Mistakes.joined(found, self._linear.task.y.device)

    def _total_of(self, made: Mistakes, left: Tensor, steps: int) -> Weights:
        """The sum of what these mistakes add to the weights after each step."""
        zeros = Weights(torch.zeros_like(self._mixed.weight), torch.zeros_like(self._mixed.bias))
        entries = Entries(made.sample, made.coef, self._linear.task.y[made.sample], made.wrong)
        return self._linear.space.total(zeros, entries, left, steps)

    @property
    def count(self) -> int:
        """The number of training samples, in all processes."""
        return int(self._samples)

    def survey(self) -> tuple[float, float]:
        """The mean perceptron criterion and the smallest slack on the training samples of all processes."""
        loss, slack = super().survey()
        found = shards.gathered((loss * len(self.rows), slack))
        return sum(each[0] for each in found) / self._samples, min(each[1] for each in found)

    def _counted(self) -> float:
        """Σ μ·k, which the mistake bound holds for."""
        return self._mixed_mistakes

    def _any_wrong(self) -> bool:
        return any(shards.gathered(super()._any_wrong()))

    def _validation_counts(self, rows: Rows, y: Tensor) -> tuple[int, int]:
        found = shards.gathered(super()._validation_counts(rows, y))
        return sum(each[0] for each in found), sum(each[1] for each in found)

    def _digest(self) -> bytes:
        return digest_of((self._mixed.weight, self._mixed.bias))

    def log(self) -> MistakeLog:
        """The log of all processes; a collective call."""
        task, space = self._linear.task, self._linear.space
        rows = space.rows if shards.here()[1] == 1 else cast(Rows, _Elsewhere(space.rows, self._samples))
        own = Mistakes.joined(self._mistakes, task.y.device)
        own = own.replaced(sample=own.sample + self._samples_before)
        y, cost, *columns = (
            torch.cat([each.to(task.y.device) for each in shards.gathered(values.cpu())])
            for values in (task.y, self._cost, *own)
        )
        made = Mistakes(*(column[columns[1].argsort()] for column in columns))
        return MistakeLog.of(MixedSpace(rows, space.classes, space.bias_scale), y, self._start, made, self._ends, cost)

    def _averaged(self) -> Model:
        return self._mean(lambda step: self._ends[-1] - step, self._ends[-1])

    def _after_epoch(self, log: MistakeLog, epoch: int) -> Model:
        return self._mean(lambda step: (step < self._ends[epoch - 1]).double(), 1)

    def _mean(self, left: Callable[[Tensor], Tensor], steps: int) -> Model:
        """The mean of the weights after each step, each process adding what its own mistakes contribute."""
        made = Mistakes.joined(self._mistakes, self._linear.task.y.device)
        own, start = self._total_of(made, left(made.step), steps), self._start
        weight, bias = start.weight.double() * steps, start.bias.double() * steps
        return self._linear.space.mean(
            Weights(weight + shards.summed(own.weight), bias + shards.summed(own.bias)), steps
        )

    @cached_property
    def _data(self) -> Any:
        return shards.gathered(super()._data)

    def state_dict(self) -> dict[str, Any]:
        """Everything needed to resume exactly, of all processes; a collective call."""
        own = tuple(column.cpu() for column in Mistakes.joined(self._mistakes, self._linear.task.y.device))
        state = {**super().state_dict(), "mixed": [self._mixed.weight, self._mixed.bias]}
        state["mixed_mistakes"] = self._mixed_mistakes
        return {**state, "mistakes": shards.gathered(own), "order": shards.gathered(self._order.state_dict())}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume, with the same number of processes."""
        rank, size = shards.here()
        if len(state["order"]) != size:
            raise ValueError(
                f"the saved run was made by {len(state['order'])} processes, found {size}; resume with the same number"
            )
        super().load_state_dict({**state, "order": state["order"][rank], "mistakes": []})
        self._mistakes = [Mistakes(*(column.to(self._linear.task.y.device) for column in state["mistakes"][rank]))]
        self._mixed = Weights(*(values.to(self._mixed.weight, copy=True) for values in state["mixed"]))
        self._mixed_mistakes = state["mixed_mistakes"]


class MixedSpace(LinearSpace):
    """A log with coefficients μ·c adds up to the mixed weights; sums are made in float64."""

    def replay(self, start: Weights, entries: Entries) -> LinearModel:
        """w₀ + Σ μ·c·x."""
        return self.mean(self.total(start, entries, torch.ones_like(entries.coef), 1), 1)


class _Elsewhere:
    """The samples of all processes, of which only number, width and type are known here."""

    def __init__(self, rows: Rows, count: int) -> None:
        self.width, self.dtype, self.device, self._count = rows.width, rows.dtype, rows.device, count

    def __len__(self) -> int:
        return self._count

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        raise ValueError(
            "this process holds a shard of the samples, not all of them; use log.bind(X, y) with all samples, in their "
            "order over the processes"
        )
