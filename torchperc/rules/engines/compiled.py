"""The compiled engine: the plain loop compiled by numba, on two cores where mistakes are rare."""

from __future__ import annotations

import math
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from torchperc import _checks as checks
from torchperc.rules.engines.reference import LinearEngine, Task
from torchperc.rules.engines.rounding import nearness
from torchperc.rules.log import Mistakes
from torchperc.rules.spaces import JointSpace, LinearSpace, Space, Weights
from torchperc.samples import compiling
from torchperc.samples.compiling import other_cores
from torchperc.samples.rows import Rows

_Array: TypeAlias = "np.ndarray[Any, Any]"
_SEGMENT = 2**25  # bytes of samples between two looks at whether a second core is worth it
# bytes of samples below which two cores are slower than one, and after which they look at each other's work
_STRETCH, _LOOK = compiling.WORTH_TWO, 2**14
_SPARSE_STRETCH, _SPARSE_LOOK = 2**15, 2**12


def obstacle(space: Space) -> str | None:
    """Why a task in this space cannot be compiled, or ``None``."""
    if not isinstance(space, LinearSpace) or isinstance(space, JointSpace):
        return "only linear nets are compiled, not kernels and joint features"
    if space.rows.device.type != "cpu":
        return f"X is on {space.rows.device}, and loops are compiled for the CPU; use engine='blocked'"
    if space.rows.dtype not in (torch.float32, torch.float64):
        return f"loops are compiled for float32 and float64, found {space.rows.dtype}; use net.float()"
    return None


class CompiledEngine(LinearEngine):
    """The loop of the reference engine, compiled.

    If mistakes are rare, a second core scores samples ahead; what it finds counts only if the weights have not changed
    since, so the result is that of the plain loop.
    """

    def __init__(self, task: Task, start: Weights) -> None:
        super().__init__(task, start)
        self._gap = 0.0
        self._near = nearness(self.space)
        self._found = np.empty((2, 0), np.int64)
        laid = compiling.laid_out(self.weights.weight, self.space.rows.sparse)
        self.weights.weight, self._w = laid.tensor, laid.loop
        self._b = self.weights.bias.numpy()
        coefs = task.coefs[:1] if task.coefs.stride(0) == 0 else task.coefs
        self._y, self._coefs = task.y.numpy(), coefs.contiguous().numpy()

    def run(self, order: Tensor) -> Mistakes:
        """Present these samples in order, a segment at a time."""
        found, before = [], 0
        for rows, at in self.space.rows.parts(order):
            ids = order[before : before + len(at)].numpy().view(np.uint64)
            numbers = at.numpy().view(np.uint64)
            size = len(at) if self._gap else max(4096, _SEGMENT // rows.row_bytes)  # a first look, then all at once
            for first in range(0, len(at), size):
                part = slice(first, first + size)
                found.append(self._segment(rows, numbers[part], ids[part]).later(before + first))
            before += len(at)
        return Mistakes.joined(found)

    def first(self, order: Tensor) -> int:
        """The place in an order of the first mistake under the weights as they are."""
        from torchperc.rules.loops.exact import renew
        from torchperc.rules.loops.two_cores import scan

        renew(self._w, self._b, self._near)
        test = (
            compiling.TIES[self.task.tie],
            float(self.task.margin),
            self._near,
            np.empty(len(self._b) + 8, self._w.dtype),
        )
        before = 0
        for rows, at in self.space.rows.parts(order):
            ids, numbers = (part.numpy().view(np.uint64) for part in (order[before : before + len(at)], at))
            found = scan(rows.plain(), numbers, ids, self._y, self._w, self._b, *test, 0, len(at))
            if found < len(at):
                return before + int(found)
            before += len(at)
        return before

    def survey(self) -> tuple[float, float]:
        """The mean perceptron criterion and the smallest slack, in one pass."""
        from torchperc.rules.loops.learn import survey

        loss, least, done = 0.0, math.inf, 0
        for rows in self.space.rows.pieces():
            part = (rows.plain(), self._y[done : done + len(rows)], self._w, self._b)
            found = compiling.in_halves(partial(survey, *part), len(rows), rows.row_bytes)
            loss, least = loss + sum(each[0] for each in found), min(least, *(each[1] for each in found))
            done += len(rows)
        return loss / done, least

    def _segment(self, rows: Rows, at: _Array, ids: _Array) -> Mistakes:
        from torchperc.rules.loops import two_cores
        from torchperc.rules.loops.learn import learn

        task = self.task
        if self._found.shape[1] < len(at):
            self._found = np.empty((2, len(at)), np.int64)
        position, wrong = self._found
        seen = (rows.plain(), at, ids, self._y)
        test = (compiling.TIES[task.tie], float(task.margin), self._near)
        state = (self._w, self._b)
        work = rows.row_bytes * (self.space.outputs if rows.sparse else 1)
        stretch, look = (_SPARSE_STRETCH, _SPARSE_LOOK) if rows.sparse else (_STRETCH, _LOOK)
        step, shortest = max(1, look // work), max(2, stretch // work)
        if self._gap >= shortest and compiling.cores() > 1:
            talk = np.zeros(two_cores.TALK, np.int64)
            other_cores().submit(two_cores.assist, *seen, *state, *test, step, talk)
            found = two_cores.learn_ahead(
                *seen, self._coefs, *state, float(self.space.bias_scale), *test, step, shortest, self._gap, talk,
                position, wrong,
            )  # fmt: skip
        else:
            found = learn(*seen, self._coefs, *state, float(self.space.bias_scale), *test, 0, position, wrong, 0)
        if found < 0:
            raise checks.weights_overflow()
        self._gap = len(at) / (found + 0.5)
        position, wrong = position[:found].copy(), wrong[:found].copy()
        sample = ids[position].view(np.int64)  # in numpy, since torch would wake its threads for a few thousand numbers
        coef = self._coefs[sample if len(self._coefs) > 1 else np.zeros_like(sample)]
        columns = sample, position, coef * self._y[sample] if self.space.classes is None else coef, wrong
        return Mistakes(*map(torch.from_numpy, columns))
