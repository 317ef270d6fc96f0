"""What the states of a log decide: their errors, their votes, and by both the pocket."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, Protocol, TypeAlias

import numpy as np
import torch
from torch import Tensor

from torchperc.rules.models import decisions
from torchperc.rules.spaces import Entries, LinearSpace, Space, Weights
from torchperc.samples import compiling
from torchperc.samples.rows import CsrRows, DenseRows, Rows

_Array: TypeAlias = "np.ndarray[Any, Any]"
_SAMPLES = 1024  # that are decided at a time
_STATES, _BYTES = 256, 2**19  # how many states at a time: so many, or as fit into a cache
_CHAIN = 16  # states that may follow each other into the pocket, and are looked at together


class Errors(Protocol):
    """Counts the errors of some states on all samples."""

    everything: float
    """What a state costs that decides every sample wrongly."""
    at_once: int
    """How many states are counted together at little more than the price of one."""

    def of(self, states: Sequence[int]) -> list[float]:
        """The cost of errors of states in ascending order, each later than the first of the call before."""

    def every(self) -> Tensor:
        """The cost of errors of all states, from the start to the last, in float64."""


def pocket_by_runs(runs: _Array, errors: Errors) -> int:
    """Gallant's pocket with ratchet: the state that is in the pocket in the end.

    The pocket begins with the start, a run of 0 and no sample decided correctly. A state whose run is longer than the
    pocket's takes its place if it has fewer errors on all samples.

    Args:
        runs: how many samples each state survived, (S,).
        errors: counts the errors of the states that are asked for, each at most once.

    Example:
        >>> class Few:
        ...     everything, at_once = 10.0, 1
        ...     def of(self, states):
        ...         return [[9.0, 5.0, 2.0, 6.0, 3.0][state] for state in states]
        >>> pocket_by_runs(np.array([0, 2, 1, 3, 4]), Few())
        4
    """
    pocket, run, fewest, first = 0, 0, errors.everything, 0
    known: dict[int, float] = {}
    while len(longer := np.flatnonzero(runs[first:] > run) + first):
        state = int(longer[0])
        if state not in known:
            asked = [each for each in _likely(runs, longer, errors.at_once) if each not in known]
            known.update(zip(asked, errors.of(asked), strict=True))
        first, count = state + 1, known.pop(state)
        if count < fewest:
            pocket, run, fewest = state, int(runs[state]), count
    return pocket


def _likely(runs: _Array, longer: _Array, count: int) -> list[int]:
    """The states, among those with longer runs than the pocket's, that are looked at next.

    If each takes the place of the one before, these are the ones with the longest run so far; if none does, the next.
    """
    longest = np.maximum.accumulate(runs[longer])
    records = longer[np.append(True, longest[1:] > longest[:-1])][: max(1, count // 2)]
    rest = np.setdiff1d(longer[:count], records)
    chosen: list[int] = np.sort(np.append(records, rest[: count - len(records)])).tolist()
    return chosen


class Deciding:
    """The states of a log over a linear space on the CPU, and their decisions on samples.

    States are replayed as training made them, to the bit; a decision is that of exact arithmetic.

    Args:
        space: the log's.
        start: the weights before the first entry.
        entries: the log's.
        rows: the samples to decide on.
    """

    def __init__(self, space: Space, start: Weights, entries: Entries, rows: Rows) -> None:
        from torchperc.rules.engines.rounding import nearness

        assert isinstance(space, LinearSpace)
        self.space, self.entries, self.rows = space, entries, rows
        self._near = nearness(replace(space, rows=rows))
        self._at, self._weights = 0, start.clone()
        size = start.weight.numel() * start.weight.element_size()
        self.at_once = max(8, min(_STATES, _BYTES // size))

    @staticmethod
    def can(space: Space, rows: Rows) -> bool:
        """Whether states of this space are replayed and decided by compiled loops.

        However few the samples are: scores summed up in another order would decide near ties otherwise.
        """
        return type(space) is LinearSpace and compiling.suits(rows.dtype, rows.device)

    def every(self) -> Iterator[tuple[int, _Decisive]]:
        """All states, from the first to the last, some at a time, with the number of the first of them."""
        yield 0, self._decisive([self._weights])
        for first in range(0, len(self.entries.sample), self.at_once):
            states, biases = self._unfolded(first, min(first + self.at_once, len(self.entries.sample)))
            yield first + 1, _Decisive(self._relaid(states), biases, self._near, self.rows)

    def some(self, states: Sequence[int]) -> _Decisive:
        """States in ascending order, each later than the first of the call before."""
        laid, bias = compiling.laid_out(self._weights.weight, self.space.rows.sparse), self._weights.bias.clone()
        made, biases, at = [], [], self._at
        for state in states:
            self._replay(at, state, laid.loop, bias.numpy())
            made.append(laid.loop.copy())
            biases.append(bias.numpy().copy())
            if state == states[0]:
                self._weights = Weights(laid.tensor.clone(), bias.clone())
            at = state
        self._at = states[0]
        return _Decisive(self._relaid(np.stack(made)), np.stack(biases), self._near, self.rows)

    def _replay(self, first: int, end: int, w: _Array, b: _Array) -> None:
        """Make the updates of the entries from ``first`` to ``end``, in place."""
        from torchperc.rules.loops.learn import replay

        if isinstance(self.space.rows, DenseRows | CsrRows):
            rows, *columns = self._updates
            parts = iter([(rows, *(column[first:end] for column in columns))])
        else:  # read in parts
            parts = self.space.updates(self.entries.part(first, end))
        for rows, at, coefs, own, wrong in parts:
            replay(rows, at, coefs, own, wrong, w, b, float(self.space.bias_scale))

    @cached_property
    def _updates(self) -> Any:
        """All entries as compiled loops see them, where all samples are in memory."""
        return next(self.space.updates(self.entries))

    def _decisive(self, weights: Sequence[Weights]) -> _Decisive:
        laid = [compiling.laid_out(each.weight, self.rows.sparse).loop for each in weights]
        return _Decisive(np.stack(laid), np.stack([each.bias.numpy() for each in weights]), self._near, self.rows)

    def _relaid(self, states: _Array) -> _Array:
        """States as they suit the samples to decide on, if these are sparse and the log's are not, or vice versa."""
        if self.space.classes is None or self.rows.sparse == self.space.rows.sparse:
            return states
        weights = torch.from_numpy(states) if self.rows.sparse else torch.from_numpy(states[..., : self.space.classes])
        turned = (each if self.rows.sparse else each.T for each in weights)
        return np.stack([compiling.laid_out(each, self.rows.sparse).loop for each in turned])

    def _unfolded(self, first: int, end: int) -> tuple[_Array, _Array]:
        """The states after the entries from ``first`` to ``end``, of which the one before ``first`` is at hand."""
        from torchperc.rules.loops.states import unfold

        laid, bias = compiling.laid_out(self._weights.weight, self.space.rows.sparse), self._weights.bias.clone()
        states = np.empty((end - first, *laid.loop.shape), laid.loop.dtype)
        biases = np.empty((end - first, len(bias)), states.dtype)
        done = 0
        for rows, at, coefs, own, wrong in self.space.updates(self.entries.part(first, end)):
            some, scale = slice(done, done + len(at)), float(self.space.bias_scale)
            unfold(rows, at, coefs, own, wrong, laid.loop, bias.numpy(), scale, states[some], biases[some])
            done += len(at)
        self._weights = Weights(laid.tensor, bias)
        return states, biases


class _Decisive:
    """Some states, ready to decide."""

    def __init__(self, states: _Array, biases: _Array, near: _Array, rows: Rows) -> None:
        from torchperc.rules.loops.states import renew_all

        self._rows, self._states, self._biases = rows, states, biases
        self._near = np.tile(near, (len(states), 1))
        renew_all(states, biases, self._near)
        self._tiles = np.empty((0, 0, 0), states.dtype) if rows.sparse else tiled(states)

    def __len__(self) -> int:
        return len(self._states)

    def costs(self, y: _Array, cost: _Array) -> _Array:
        """What the wrong decisions of each state cost; a cost of length 1 stands for all samples."""
        from torchperc.rules.loops.states import add_costs

        total = np.zeros((-(-len(self._rows) // _SAMPLES), len(self._states)))  # by blocks: sums in a fixed order

        def add(first: int, decided: _Array) -> None:
            add_costs(decided, y, cost, first, total[first // _SAMPLES])

        self._each(add)
        made: _Array = total.sum(0)
        return made

    def vote(self, counts: _Array, votes: _Array) -> None:
        """Add to votes (N, 1) or (N, K) what each state decides, as often as its count says."""
        from torchperc.rules.loops.states import add_votes

        self._each(lambda first, decided: add_votes(decided, counts, votes[first : first + len(decided)]))

    def _each(self, use: Any) -> None:
        """Call a function with the first sample of each block and what all states decide on it, on all cores."""
        from torchperc.rules.loops.states import LANES, decide

        done = 0
        for piece in self._rows.pieces():
            plain, count = piece.plain(), len(piece)

            def blocks(first: int, end: int, plain: Any = plain, count: int = count, done: int = done) -> None:
                decided = np.empty((_SAMPLES, len(self._states) + LANES), np.int32)
                for begin in range(first * _SAMPLES, min(end * _SAMPLES, count), _SAMPLES):
                    stop = min(begin + _SAMPLES, count)
                    decide(plain, begin, stop, self._states, self._biases, self._tiles, self._near, decided)
                    use(done + begin, decided[: stop - begin, : len(self._states)])

            compiling.on_all_cores(blocks, -(-count // _SAMPLES))
            done += count


def tiled(states: _Array) -> _Array:
    """Weights (S, d) or (S, K, d) as (tiles, d, lanes), each tile with the weights of as many states as fit into it."""
    from torchperc.rules.loops.states import LANES

    scores, width = (1 if states.ndim == 2 else states.shape[1]), states.shape[-1]
    together = min(len(states), max(1, LANES // scores))
    count, lanes = -(-len(states) // together), -(-together * scores // 8) * 8
    together = lanes // scores  # a few more, if there are lanes left
    tiles = np.zeros((count, lanes, width), states.dtype)
    for tile, some in zip(tiles, np.split(states, range(together, len(states), together)), strict=False):
        tile[: len(some) * scores] = some.reshape(-1, width)
    return np.ascontiguousarray(tiles.transpose(0, 2, 1))


class CompiledErrors:
    """:class:`Errors` by compiled loops."""

    def __init__(self, deciding: Deciding, y: Tensor, cost: Tensor) -> None:
        self._deciding, self._y, self._cost = deciding, y.numpy(), _shortest(cost)
        self.everything, self.at_once = _sum(cost), min(_CHAIN, deciding.at_once)

    def of(self, states: Sequence[int]) -> list[float]:
        """The cost of errors of some states."""
        found: list[float] = self._deciding.some(states).costs(self._y, self._cost).tolist()
        return found

    def every(self) -> Tensor:
        """The cost of errors of all states."""
        found = [decisive.costs(self._y, self._cost) for _, decisive in self._deciding.every()]
        return torch.from_numpy(np.concatenate(found))


class SummedErrors:
    """:class:`Errors` by the scores of all samples in float64, to which the entries between two states are added."""

    at_once = 1

    def __init__(self, space: Space, start: Weights, entries: Entries, rows: Rows, y: Tensor, cost: Tensor) -> None:
        self._space, self._start, self._entries, self._rows = space, start, entries, rows
        self._y, self._cost = y, cost
        self._at, self.everything = 0, _sum(cost)

    @cached_property
    def _scores(self) -> Tensor:
        """Of all samples under the last state that was asked for."""
        return torch.cat([self._space.start_scores(self._start, part) for _, part in self._space.blocks(self._rows)])

    def of(self, states: Sequence[int]) -> list[float]:
        """The cost of errors of some states."""
        found = []
        for state in states:
            between, self._at = self._entries.part(self._at, state), state
            for block, part in self._space.blocks(self._rows):
                self._scores[block] += self._space.effect(part, between)
            wrong = decisions(self._scores, self._space.classes) != self._y
            found.append(float(self._cost @ wrong.double()))
        return found

    def every(self) -> Tensor:
        """The cost of errors of all states."""
        total = torch.zeros(len(self._entries.sample) + 1, dtype=torch.float64, device=self._y.device)
        for block, first, path in self._space.paths(self._start, self._entries, self._rows):
            wrong = decisions(path, self._space.classes) != self._y[block, None]
            total[first : first + path.shape[1]] += self._cost[block] @ wrong.double()
        return total


def state_errors(space: Space, start: Weights, entries: Entries, rows: Rows, y: Tensor, cost: Tensor) -> Errors:
    """The errors of states of a log on samples, in the way that suits the space."""
    if Deciding.can(space, rows):
        return CompiledErrors(Deciding(space, start, entries, rows), y, cost)
    return SummedErrors(space, start, entries, rows, y, cost)


def _sum(cost: Tensor) -> float:
    """The cost of all samples."""
    return float(cost[0]) * len(cost) if cost.stride(0) == 0 else float(cost.cpu().numpy().sum())


def _shortest(cost: Tensor) -> _Array:
    """One cost for all samples, if they have it in common."""
    return (cost[:1] if cost.stride(0) == 0 else cost).contiguous().numpy()
