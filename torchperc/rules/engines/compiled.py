"""The compiled engine: the plain loop compiled by numba, on two cores where mistakes are rare."""

from __future__ import annotations

import math
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from torch import Tensor

from torchperc import _checks as checks
from torchperc.rules.engines.reference import LinearEngine, Task
from torchperc.rules.engines.rounding import Rounding
from torchperc.rules.log import Mistakes
from torchperc.rules.spaces import JointSpace, LinearSpace, Space, Weights
from torchperc.samples import compiling
from torchperc.samples.compiling import other_cores
from torchperc.samples.rows import CsrRows, LookFirst, Rows

_Array: TypeAlias = "np.ndarray[Any, Any]"
_SEGMENT = 2**25  # bytes of samples between two looks at whether a second core is worth it
# bytes of samples below which two cores are slower than one, and after which they look at each other's work
_STRETCH, _LOOK = compiling.WORTH_TWO, 2**14
_SPARSE_STRETCH, _SPARSE_LOOK = 2**20, 2**15
_BLOCK = 2**17  # bytes of samples that stay in the cache between being looked at and being learned
_LIGHT = 2**20  # bytes of sparse samples below which all is near the processor anyway
_EXACT = 2**24  # integers up to this are exact in float32


def obstacle(space: Space) -> str | None:
    """Why a task in this space cannot be compiled, or ``None``."""
    if not isinstance(space, LinearSpace) or isinstance(space, JointSpace):
        return "only linear nets are compiled, not kernels and joint features"
    if space.rows.device.type != "cpu":
        return f"X is on {space.rows.device}, and loops are compiled for the CPU; use engine='blocked'"
    if space.rows.dtype not in (torch.float32, torch.float64):
        return f"loops are compiled for float32 and float64, found {space.rows.dtype}; use net.float()"
    return None


def nearness(space: Space, dtype: torch.dtype | None = None, longest: float | None = None) -> _Array:
    """What compiled loops need of :mod:`torchperc.rules.engines.rounding`, for weights of this type.

    ``longest``: at least the length of the longest sample, if it is known; 0 where samples are looked at as they come.
    """
    from torchperc.rules.loops import exact

    rounding, near = Rounding(space.rows, dtype, longest), np.zeros(exact.NEAR)
    radius = rounding.radius
    near[exact.UNIT], near[exact.GAMMA] = rounding.unit, rounding.gamma(space.rows.terms)
    near[exact.RADIUS], near[exact.FLOOR] = radius, rounding.floor
    near[exact.STEP] = 1.5 * radius**2 + abs(space.bias_scale)
    near[exact.PERIOD] = max(8, space.outputs * space.rows.width // space.rows.terms)
    near[exact.LIGHT], near[exact.LIGHT_FLOOR] = rounding.light or (math.inf, 0.0)
    return near


def light_pays(size: int, weights: int) -> bool:
    """Whether a pass over so many bytes of sparse samples is worth a light copy of so many bytes of weights."""
    return size > max(_LIGHT, weights)


class State(NamedTuple):
    """What a loop works on: samples, weights, biases, and how far scores can be off."""

    rows: tuple[_Array, ...]
    w: _Array
    b: _Array
    near: _Array


class Light:
    """A light copy of sparse samples and of weights: float32, half of what is read from memory.

    A loop decides by it whatever its rounding leaves clear. If samples, steps and weights are integers that float32
    holds exactly, it learns in float32 altogether.
    """

    def __init__(self, rows: CsrRows, space: LinearSpace, plain: State, coefs: _Array) -> None:
        from torchperc.rules.loops import exact

        self._plain, single = plain, plain.w.dtype == np.float32
        values, largest = (rows.X.data, math.inf) if single else rows.light()
        self._light = plain.w if single else compiling.in_lines(plain.w.shape, np.float32)
        whole = float(space.bias_scale).is_integer() and bool((coefs == np.rint(coefs)).all())
        self._step = float(abs(coefs).max()) * max(largest, abs(space.bias_scale)) if whole else math.inf
        self._rounded = plain._replace(rows=(*plain.rows, values, self._light))
        self._integers = State(
            (values, *plain.rows[1:], values, self._light),
            self._light, plain.b.astype(np.float32), nearness(space, torch.float32, float(plain.near[exact.RADIUS])),
        )  # fmt: skip

    def state(self, count: int) -> State:
        """What a loop works on for a pass over so many samples."""
        from torchperc.samples.loops import lighten

        plain, integers = self._plain, self._integers
        if self._light is plain.w:
            return self._rounded
        largest = lighten(plain.w.reshape(-1), self._light.reshape(-1), 0, plain.w.size)
        bias = lighten(plain.b, integers.b, 0, len(plain.b))
        exact = max(largest, bias) + count * self._step <= _EXACT
        return integers if exact else self._rounded

    def keep(self, state: State) -> None:
        """Take over what was learned in integers."""
        if state is self._integers:
            self._plain.w[...], self._plain.b[...] = state.w, state.b


class CompiledEngine(LinearEngine):
    """The loop of the reference engine, compiled.

    If mistakes are rare, a second core scores samples ahead; what it finds counts only if the weights have not changed
    since, so the result is that of the plain loop.
    """

    def __init__(self, task: Task, start: Weights) -> None:
        super().__init__(task, start)
        self._gap = 0.0
        self._near, self._presented = nearness(self.space, longest=0.0 if self.space.rows.unseen else None), 0
        self._found = np.empty((2, 0), np.int64)
        laid = compiling.laid_out(self.weights.weight, self.space.rows.sparse)
        self.weights.weight, self._w = laid.tensor, laid.loop
        self._b = self.weights.bias.numpy()
        coefs = task.coefs[:1] if task.coefs.stride(0) == 0 else task.coefs
        self._y, self._coefs = task.y.numpy(), coefs.contiguous().numpy()
        self._light: Light | None = None

    def run(self, order: Tensor) -> Mistakes:
        """Present these samples in order, a segment at a time."""
        found, before = [], 0
        for rows, at in self.space.rows.parts(order):
            state = self._state(rows, len(at))
            ids = order[before : before + len(at)].numpy().view(np.uint64)
            numbers = at.numpy().view(np.uint64)
            size = len(at) if self._gap else max(4096, _SEGMENT // rows.row_bytes)  # a first look, then all at once
            for first in range(0, len(at), size):
                part = slice(first, first + size)
                found.append(self._segment(rows, state, numbers[part], ids[part]).later(before + first))
            if self._light is not None:
                self._light.keep(state)
            before += len(at)
        if before >= len(self.space.rows):
            self.space.rows.unseen = False
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

    def _state(self, rows: Rows, count: int) -> State:
        """What a pass over so many samples works on: a light copy where several passes come."""
        from torchperc.rules.loops import exact

        again = not rows.unseen and (self.task.epochs > 1 or self._presented >= len(rows))
        self._presented += count
        plain = State(rows.plain(), self._w, self._b, self._near)
        if not again or rows is not self.space.rows or not isinstance(rows, CsrRows):
            return plain
        off = Rounding(rows, longest=float(self._near[exact.RADIUS])).light
        if off is None or not light_pays(rows.row_bytes * count, self._w.nbytes):
            return plain
        self._near[exact.LIGHT], self._near[exact.LIGHT_FLOOR] = off
        self._light = self._light or Light(rows, self.space, plain, self._coefs)
        return self._light.state(count)

    def _segment(self, rows: Rows, state: State, at: _Array, ids: _Array) -> Mistakes:
        from torchperc.rules.loops import two_cores
        from torchperc.rules.loops.learn import learn, learn_unseen

        task = self.task
        if self._found.shape[1] < len(at):
            self._found = np.empty((2, len(at)), np.int64)
        position, wrong = self._found
        seen = (state.rows, at, ids, self._y)
        test = (compiling.TIES[task.tie], float(task.margin), state.near)
        weights = (state.w, state.b)
        work = rows.row_bytes * (self.space.outputs if rows.sparse else 1)
        stretch, look = (_SPARSE_STRETCH, _SPARSE_LOOK) if rows.sparse else (_STRETCH, _LOOK)
        step, shortest = max(1, look // work), max(2, stretch // work)
        alone = (*seen, self._coefs, *weights, float(self.space.bias_scale), *test, 0, position, wrong, 0)
        if rows.unseen:
            found = learn_unseen(*alone, max(1, _BLOCK // rows.row_bytes))
        elif self._gap >= shortest and compiling.cores() > 1:
            talk = np.zeros(two_cores.TALK, np.int64)
            other_cores().submit(two_cores.assist, *seen, *weights, *test, step, talk)
            found = two_cores.learn_ahead(
                *seen, self._coefs, *weights, float(self.space.bias_scale), *test, step, shortest, self._gap, talk,
                position, wrong,
            )  # fmt: skip
        else:
            found = learn(*alone)
        if found < 0:
            if rows.unseen:
                raise LookFirst
            raise checks.weights_overflow()
        self._gap = len(at) / (found + 0.5)
        position, wrong = position[:found].copy(), wrong[:found].copy()
        sample = ids[position].view(np.int64)  # in numpy, since torch would wake its threads for a few thousand numbers
        coef = self._coefs[sample if len(self._coefs) > 1 else np.zeros_like(sample)]
        columns = sample, position, coef * self._y[sample] if self.space.classes is None else coef, wrong
        return Mistakes(*map(torch.from_numpy, columns))
