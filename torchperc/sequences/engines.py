"""How an epoch over sequences is made: by a plain loop or a compiled one, with the same mistakes.

Both learn in the type of the net (half precision in float32) and add in the same order.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from torchperc._checks import weights_overflow
from torchperc.sequences.layout import Array, Sequences
from torchperc.sequences.log import Found
from torchperc.sequences.weights import ChainWeights


@dataclass(frozen=True, eq=False)
class Task:
    """What is learned: sequences, tags, the coefficient of each update (one, or one per sequence), the margin."""

    sequences: Sequences
    y: Array
    coefs: Array
    margin: float
    tie: str = "sign"  # a mistake is a wrong decision


class CompiledEngine:
    """The loop compiled by numba."""

    def __init__(self, task: Task, start: ChainWeights) -> None:
        self.task = task
        self.load(start)

    def load(self, weights: ChainWeights) -> None:
        """Go on from these weights, of which a copy is made."""
        self._weights = weights.astype(weights.trans.dtype)

    def weights(self) -> ChainWeights:
        """The weights now; not to be written to."""
        return self._weights

    def run(self, order: Array) -> Found:
        """Present the sequences of the order; the steps of what is found count from 0."""
        from torchperc.sequences import loops

        task, w, offsets = self.task, self._weights, self.task.sequences.offsets
        tokens = int((offsets[order + 1] - offsets[order]).sum())
        position, wrong = np.empty(len(order), np.int64), np.empty(tokens, np.int16)
        state, data, done, reason = np.array([w.used, 0, 0]), w.loop_data(task.sequences), 0, loops.GROW
        margin = w.trans.dtype.type(task.margin)
        while reason != loops.DONE:
            weights = w.loop_arrays()
            done, reason = loops.learn(
                data, offsets, order, done, task.y, task.coefs, weights, margin, state, position, wrong
            )
            w.used = int(state[loops.USED])
            if reason == loops.GROW:
                first, stop = offsets[order[done]], offsets[order[done] + 1]
                w.ensure(int(task.sequences.indptr[stop] - task.sequences.indptr[first]))
            elif reason == loops.OVERFLOW:
                raise weights_overflow()
        at = position[: state[loops.FOUND]].copy()
        return Found(order[at], at, wrong[: state[loops.WRITTEN]].copy())


class ReferenceEngine:
    """The plain loop, in torch; its sums have the order of the compiled ones."""

    def __init__(self, task: Task, start: ChainWeights) -> None:
        self.task = task
        self.load(start)

    def load(self, weights: ChainWeights) -> None:
        """Go on from these weights, of which a copy is made."""
        active, rows, trans, end = (torch.from_numpy(np.array(array)) for array in weights.unpacked())
        self._rows = rows.new_zeros(len(weights.slot), len(end))
        self._rows[active] = rows
        self._trans, self._end = trans, end

    def weights(self) -> ChainWeights:
        """The weights now."""
        rows = self._rows.numpy()
        active = np.flatnonzero(rows.any(1))
        return ChainWeights.packed(len(rows), active, rows[active], self._trans.numpy(), self._end.numpy())

    def run(self, order: Array) -> Found:
        """Present the sequences of the order; the steps of what is found count from 0."""
        made = []
        for step, i in enumerate(order.tolist()):
            wrong = self.present(i)
            if wrong is not None:
                made.append(Found(np.array([i]), np.array([step]), np.array(wrong, np.int16)))
        return Found.joined(made)

    def present(self, i: int) -> list[int] | None:
        """Decode a sequence; if it is a mistake, make the update and return the wrong tags."""
        tokens = range(*self.task.sequences.offsets[i : i + 2].tolist())
        y = self.task.y[tokens.start : tokens.stop].tolist()
        features = [self._features(token) for token in tokens]
        wrong = self._decoded(torch.stack([self._emission(each) for each in features]), y)
        if wrong == y:
            return None
        self._update(features, y, wrong, float(self.task.coefs[i if len(self.task.coefs) > 1 else 0]))
        return wrong

    def _features(self, token: int) -> list[tuple[int, Tensor]]:
        data = self.task.sequences
        part = slice(data.indptr[token], data.indptr[token + 1])
        ids = data.ids[part].tolist()
        values = np.ones(len(ids)) if data.values is None else data.values[part]
        return list(zip(ids, torch.from_numpy(values).to(self._end.dtype), strict=True))

    def _emission(self, features: list[tuple[int, Tensor]]) -> Tensor:
        score = torch.zeros_like(self._end)
        for f, x in features:
            score = score + x * self._rows[f]
        return score

    def _decoded(self, emission: Tensor, y: list[int]) -> list[int]:
        """The best tags, where each tag but that of y scores the margin more."""
        trans, count = self._trans, len(self._end)
        deltas: list[Tensor] = []
        for t, tag in enumerate(y):
            score = emission[t] + self.task.margin
            score[tag] = emission[t, tag]
            reached = (deltas[-1][:, None] + trans[:count]).amax(0) if t else trans[count]
            deltas.append(reached + score)
        value, best = (deltas[-1] + self._end).max(0)
        if not math.isfinite(float(value)):
            raise weights_overflow(float(value))
        path = [int(best)]
        for delta in deltas[-2::-1]:
            path.append(int((delta + trans[:count, path[-1]]).argmax()))
        return path[::-1]

    def _update(self, features: list[list[tuple[int, Tensor]]], y: list[int], wrong: list[int], coef: float) -> None:
        before = after = len(self._end)
        for t, (own, other) in enumerate(zip(y, wrong, strict=True)):
            if (before, own) != (after, other):
                self._trans[before, own] += coef
                self._trans[after, other] -= coef
            for f, x in features[t] if own != other else ():
                step = (coef * x.double()).to(x.dtype)
                self._rows[f, own] += step
                self._rows[f, other] -= step
            before, after = own, other
        if before != after:
            self._end[before] += coef
            self._end[after] -= coef


Engine = CompiledEngine | ReferenceEngine


def engine_of(name: object, task: Task, start: ChainWeights) -> Engine:
    """The engine of a name; ``"auto"`` is the compiled one."""
    if name not in ("auto", "reference", "compiled"):
        raise ValueError(f"engine={name!r} is not for sequences; use 'compiled', 'reference' or 'auto'")
    return (ReferenceEngine if name == "reference" else CompiledEngine)(task, start)
