"""What the states of a log decide: their errors, their votes, and by both the pocket."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np
import torch
from torch import Tensor

from torchperc.rules.engines.rounding import doubles, floor, gamma, radius, side
from torchperc.rules.models import decisions
from torchperc.rules.spaces import Entries, LinearSpace, Space, Weights
from torchperc.samples import compiling
from torchperc.samples.rows import Rows

_Array: TypeAlias = "np.ndarray[Any, Any]"
_STATES, _NUMBERS = 256, 2**24  # how many states decide at a time, and how many weights they have


class Errors(Protocol):
    """Counts the errors of some states on all samples."""

    everything: float
    """What a state costs that decides every sample wrongly."""

    def of(self, states: Sequence[int]) -> list[float]:
        """The cost of errors of states in ascending order, each later than those of the call before."""

    def every(self) -> Tensor:
        """The cost of errors of all states, from the start to the last, in float64."""


def pocket_by_runs(runs: _Array, errors: Errors) -> int:
    """Return the state that Gallant's pocket with ratchet holds in the end.

    The pocket begins with the start, a run of 0 and no sample decided correctly. A state whose run is longer than the
    pocket's takes its place if it has fewer errors on all samples.

    Args:
        runs: how many samples each state survived, (S,).
        errors: counts the errors of the states that are asked for, each at most once.

    Example:
        >>> class Few:
        ...     everything = 10.0
        ...     def of(self, states):
        ...         return [[9.0, 5.0, 2.0, 6.0, 3.0][state] for state in states]
        >>> pocket_by_runs(np.array([0, 2, 1, 3, 4]), Few())
        4
    """
    pocket, run, fewest, first = 0, 0, errors.everything, 0
    while len(longer := np.flatnonzero(runs[first:] > run)):
        state = first + int(longer[0])
        count, first = errors.of([state])[0], state + 1
        if count < fewest:
            pocket, run, fewest = state, int(runs[state]), count
    return pocket


class StateErrors:
    """:class:`Errors` of the states of a log on some samples."""

    def __init__(self, space: Space, start: Weights, entries: Entries, rows: Rows, y: Tensor, cost: Tensor) -> None:
        self._log, self._y, self._cost = (space, start, entries, rows), y, cost
        self._at, self._weights, self.everything = 0, start, float(cost.sum())

    def of(self, states: Sequence[int]) -> list[float]:
        """The cost of errors of some states."""
        space, _, entries, rows = self._log
        if not decided_exactly(space, rows):
            return [float(self._every[state]) for state in states]
        assert isinstance(space, LinearSpace)
        found = []
        for state in states:
            self._weights = space.moved(self._weights, entries.part(self._at, state))
            self._at = state
            some = _States.of([self._weights], rows)
            found.append(sum(float(self._wrong(block, some.decide(part))) for block, part in space.blocks(rows)))
        return found

    def every(self) -> Tensor:
        """The cost of errors of all states."""
        return self._every

    @cached_property
    def _every(self) -> Tensor:
        total = torch.zeros(len(self._log[2].sample) + 1, dtype=torch.float64, device=self._y.device)
        for block, first, labels in decided(*self._log):
            total[first : first + labels.shape[1]] += self._wrong(block, labels)
        return total

    def _wrong(self, block: slice, labels: Tensor) -> Tensor:
        return self._cost[block] @ (labels != self._y[block, None]).double()


def decided_exactly(space: Space, rows: Rows) -> bool:
    """Whether states of this space decide on these samples as exact arithmetic does, and not by sums in float64."""
    return type(space) is LinearSpace and compiling.suits(rows.dtype, rows.device)


def decided(space: Space, start: Weights, entries: Entries, rows: Rows) -> Iterator[tuple[slice, int, Tensor]]:
    """Yield a slice of samples, the number of a state, and the labels it and the following states decide for: (n, S).

    Args:
        space: the log's.
        start: the weights before the first entry.
        entries: the log's.
        rows: the samples to decide on.
    """
    if not decided_exactly(space, rows):
        for block, first, path in space.paths(start, entries, rows):
            yield block, first, decisions(path, space.classes)
        return
    assert isinstance(space, LinearSpace)
    count, size = len(entries.sample), max(1, min(_STATES, _NUMBERS // start.weight.numel()))
    weights, some, first = start, _States.of([start], rows), 0
    while True:
        for block, part in space.blocks(rows):
            yield block, first, some.decide(part)
        first += len(some.bias)
        if first > count:
            return
        states = space.unfolded(weights, entries.part(first - 1, min(first - 1 + size, count)))
        weights, some = Weights(states.weight[-1], states.bias[-1]), _States.of(states, rows)


class _States(NamedTuple):
    """Weights (S, K, d) and biases (S, K) of some states, with the largest rounding error of a score: (S,)."""

    weight: Tensor
    bias: Tensor
    error: Tensor

    @classmethod
    def of(cls, states: Weights | Sequence[Weights], rows: Rows) -> _States:
        """States as tensors, or as single weights."""
        if isinstance(states, Weights):
            weight, bias = states.weight, states.bias
        else:
            weight, bias = torch.stack([each.weight for each in states]), torch.stack([each.bias for each in states])
        length = torch.linalg.vector_norm(weight.flatten(1).double(), dim=1) + 2.0**-536
        size = length * radius(rows) + bias.abs().amax(1).double()
        unit = torch.finfo(rows.dtype).eps / 2
        return cls(weight, bias, gamma(rows.terms, unit) * size + floor(rows, rows.dtype))

    def decide(self, rows: Rows) -> Tensor:
        """Labels −1/+1 or class indices: (n, S); scores within their rounding errors are compared exactly."""
        from torchperc.rules.loops.learn import UNCLEAR, settle

        states, outputs = self.bias.shape
        scores = rows.scores(self.weight.flatten(0, 1), self.bias.flatten()).unflatten(1, (states, outputs))
        labels = decisions(scores, None if outputs == 1 else outputs)
        highest = scores.abs() if outputs == 1 else scores.topk(2).values
        apart = highest[..., 0] if outputs == 1 else highest[..., 0] - highest[..., 1]
        near = torch.nonzero(~(apart > 2 * self.error)).numpy()
        if len(near):
            weight = self.weight.numpy().swapaxes(1, 2) if rows.sparse else self.weight.numpy()
            settled = np.empty(len(near), np.int64)
            settle(rows.plain(), near, weight, self.bias.numpy(), labels.numpy(), settled)
            for place in np.flatnonzero(settled == UNCLEAR).tolist():
                settled[place] = self._exact(rows, *near[place].tolist())
            labels[near[:, 0], near[:, 1]] = torch.from_numpy(settled)
        return labels

    def _exact(self, rows: Rows, i: int, state: int) -> int:
        """The label of one sample by one state, in exact arithmetic."""
        columns, x = rows.row(i)
        weight, bias = doubles(self.weight[state])[:, columns], doubles(self.bias[state])
        if len(bias) == 1:
            return 1 if side(x, weight[0], float(bias[0]), 0.0) >= 0 else -1
        best, twice = 0, np.concatenate((x, -x, (1.0, -1.0)))
        for k in range(1, len(bias)):
            if side(twice, np.concatenate((weight[k], weight[best], bias[[k, best]])), 0.0, 0.0) > 0:
                best = k
        return best
