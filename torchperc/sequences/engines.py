"""How an epoch over sequences is made: by a plain loop or a compiled one, with the same mistakes.

Arithmetic: if features, weights and coefficients are integers, as from zero weights they mostly are, everything is
exact: in float32 while a bound says so, then in float64. Else it is float64, rounded to the net's type at the end, and
both engines add in the same order.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from torchperc import _checks as checks
from torchperc.samples import compiling
from torchperc.sequences.layout import Array, Sequences
from torchperc.sequences.log import Found
from torchperc.sequences.weights import ChainWeights, plain

_PLAIN = 1000  # tokens up to which a plain loop is done before a compiled one is loaded
_EXACT = 2.0**24  # integers below which float32 adds exactly


@dataclass(frozen=True, eq=False)
class Task:
    """What is learned: sequences, tags, the coefficient of each update, what is a mistake."""

    sequences: Sequences
    y: Array
    coefs: Array
    width: int
    tie: str
    margin: float

    @cached_property
    def whole(self) -> bool:
        """Whether features, coefficients and margin are integers."""
        numbers = (self.sequences.dense, self.sequences.values, self.coefs, np.array(self.margin))
        return all(bool((np.rint(array) == array).all()) for array in numbers if array is not None)

    @cached_property
    def reach(self) -> float:
        """The largest Σ|x| of a token."""
        data = self.sequences
        if data.dense is not None:
            return float(np.abs(data.dense).sum(1, dtype=np.float64).max())
        assert data.indptr is not None
        if data.values is None:
            return float(np.diff(data.indptr).max())
        sums = np.concatenate(([0.0], np.abs(data.values).cumsum(dtype=np.float64)))
        return float((sums[data.indptr[1:]] - sums[data.indptr[:-1]]).max()) * (1 + 1e-9)


class CompiledEngine:
    """The loop compiled by numba: float32 while that is exact, else float64."""

    def __init__(self, task: Task, start: ChainWeights) -> None:
        self.task = task
        self._exact = task.whole and start.whole
        self.load(start)

    def load(self, weights: ChainWeights) -> None:
        """Go on from these weights."""
        small = self._exact and max(weights.largest, self.task.reach) < _EXACT
        self._lay(weights.astype(np.float32 if small else np.float64))

    def _lay(self, weights: ChainWeights) -> None:
        self._weights, (self._lows, self._highs) = weights, weights.bounds()
        self._data = plain(self.task.sequences, weights.trans.dtype)

    def weights(self) -> ChainWeights:
        """The weights now; not to be written to."""
        return self._weights

    def run(self, order: Array) -> Found:
        """Present the sequences of the order; the steps of what is found count from 0."""
        from torchperc.sequences import loops

        task, offsets = self.task, self.task.sequences.offsets
        room = int((offsets[order + 1] - offsets[order]).sum())
        position, lengths = np.empty(len(order), np.int64), np.empty(len(order), np.int64)
        wrong, state = np.empty(room, np.int16), np.zeros(3, np.int64)
        largest, done, reason = np.array([self._weights.largest]), 0, loops.GROW
        while reason != loops.DONE:
            w = self._weights
            state[loops.USED] = w.used
            small = w.trans.dtype == np.float32
            done, reason = loops.learn(
                self._data, offsets, order, done, task.y, task.coefs, w.slot, w.rows, w.trans, w.end, self._lows,
                self._highs, task.width, compiling.TIES[task.tie], w.trans.dtype.type(task.margin),
                _EXACT if small else math.inf, task.reach, state, largest, position, lengths, wrong,
            )  # fmt: skip
            w.used = int(state[loops.USED])
            if reason == loops.GROW:
                w.grow()
            elif reason == loops.PRECISION:
                self._lay(w.astype(np.float64))
            elif reason == loops.OVERFLOW:
                raise checks.weights_overflow()
        found = int(state[loops.FOUND])
        at = position[:found].copy()
        return Found(order[at], at, lengths[:found].copy(), wrong[: state[loops.WRITTEN]].copy())


class ReferenceEngine:
    """The plain loop, in torch and float64; its sums have the order of the compiled ones."""

    def __init__(self, task: Task, start: ChainWeights) -> None:
        self.task = task
        self.load(start)

    def load(self, weights: ChainWeights) -> None:
        """Go on from these weights."""
        active, rows, trans, end = (torch.from_numpy(np.array(array)) for array in weights.unpacked())
        self._rows = torch.zeros(len(weights.slot), len(end), dtype=torch.float64)
        self._rows[active] = rows.double()
        self._trans, self._end = trans.double(), end.double()

    def weights(self) -> ChainWeights:
        """The weights now."""
        rows = self._rows.numpy()
        return ChainWeights.packed(len(rows), np.flatnonzero(rows.any(1)), rows, self._trans.numpy(), self._end.numpy())

    def run(self, order: Array) -> Found:
        """Present the sequences of the order; the steps of what is found count from 0."""
        made = []
        for step, i in enumerate(order.tolist()):
            wrong = self.present(i)
            if wrong is not None:
                tags = np.array(wrong, np.int16)
                made.append(Found(np.array([i]), np.array([step]), np.array([len(tags)]), tags))
        return Found.joined(made)

    def present(self, i: int) -> list[int] | None:
        """Decode a sequence; if it is a mistake, make the update and return the wrong tags."""
        tokens = range(*self.task.sequences.offsets[i : i + 2].tolist())
        y = self.task.y[tokens.start : tokens.stop].tolist()
        features = [self._features(token) for token in tokens]
        wrong = self._mistaken(torch.stack([self._emission(each) for each in features]), y)
        if wrong is not None:
            self._update(features, y, wrong, float(self.task.coefs[i if len(self.task.coefs) > 1 else 0]))
        return wrong

    def _features(self, token: int) -> list[tuple[int, float]]:
        data = self.task.sequences
        if data.dense is not None:
            return [(f, x) for f, x in enumerate(data.dense[token].tolist()) if x]
        assert data.indptr is not None
        assert data.ids is not None
        part = slice(data.indptr[token], data.indptr[token + 1])
        ids = data.ids[part].tolist()
        return list(zip(ids, [1.0] * len(ids) if data.values is None else data.values[part].tolist(), strict=True))

    def _emission(self, features: list[tuple[int, float]]) -> Tensor:
        score = torch.zeros_like(self._end)
        for f, x in features:
            score = score + x * self._rows[f]
        return score

    def _mistaken(self, emission: Tensor, y: list[int]) -> list[int] | None:
        """The wrong tags, or those of a prefix; ``None`` if it is no mistake."""
        tie, trans, end, count = self.task.tie, self._trans, self._end, len(self._end)
        plain, emission = emission, emission + self.task.margin
        own = torch.zeros((), dtype=torch.float64)
        deltas: list[Tensor] = []
        for t, tag in enumerate(y):
            emission[t, tag] = plain[t, tag]
            own = (own + trans[y[t - 1], tag] if t else trans[count, tag]) + emission[t, tag]
            reached = (deltas[-1][:, None] + trans[:count]).amax(0) if t else trans[count]
            deltas.append(reached + emission[t])
            if self.task.width < count and t < len(y) - 1:
                last = tag if tie == "update" else -1
                ranked = sorted(range(count), key=lambda k: (-float(deltas[-1][k]), k == last, k))
                deltas[-1][ranked[self.task.width :]] = -math.inf
                if tag not in ranked[: self.task.width]:
                    return self._path(deltas, int(deltas[-1].argmax()))
        value, best = (deltas[-1] + end).max(0)
        if not math.isfinite(float(value)):
            raise checks.weights_overflow(float(value))
        found = self._path(deltas, int(best))
        if found != y:
            return found if tie != "strict" or value > own + end[y[-1]] else None
        for t, tag in enumerate(y if tie == "update" else ()):
            through = deltas[t] + (trans[:count, y[t + 1]] if t < len(y) - 1 else end)
            for k in range(count):
                if k != tag and through[k] == through[tag]:
                    return self._path(deltas[: t + 1], k) + y[t + 1 :]
        return None

    def _path(self, deltas: list[Tensor], last: int) -> list[int]:
        path = [last]
        for delta in deltas[-2::-1]:
            path.append(int((delta + self._trans[: len(self._end), path[-1]]).argmax()))
        return path[::-1]

    def _update(self, features: list[list[tuple[int, float]]], y: list[int], wrong: list[int], coef: float) -> None:
        count = len(self._end)
        before = after = count
        for t, (own, other) in enumerate(zip(y, wrong, strict=False)):
            if (before, own) != (after, other):
                self._trans[before, own] += coef
                self._trans[after, other] -= coef
            for f, x in features[t] if own != other else ():
                self._rows[f, own] += coef * x
                self._rows[f, other] -= coef * x
            before, after = own, other
        if len(wrong) == len(y) and y[-1] != wrong[-1]:
            self._end[y[-1]] += coef
            self._end[wrong[-1]] -= coef


Engine = CompiledEngine | ReferenceEngine


def engine_of(name: object, task: Task, start: ChainWeights) -> Engine:
    """The engine of a name; ``"auto"`` is the compiled one, unless there is too little to do."""
    if name not in ("auto", "reference", "compiled"):
        raise ValueError(f"engine={name!r} is not for sequences; use 'compiled', 'reference' or 'auto'")
    small = task.sequences.tokens <= _PLAIN and task.sequences.width <= _PLAIN
    return (ReferenceEngine if name == "reference" or (name == "auto" and small) else CompiledEngine)(task, start)
