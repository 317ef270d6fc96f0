"""The compiled engine: the plain loop compiled by numba, on two cores where mistakes are rare."""

from __future__ import annotations

import math
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from torchperc import _checks as checks
from torchperc.rules.engines import light
from torchperc.rules.engines.light import Light, State
from torchperc.rules.engines.reference import LinearEngine, Task
from torchperc.rules.engines.rounding import nearness
from torchperc.rules.engines.screening import AGAIN, LIMIT, SEGMENT, Screen, screen_for
from torchperc.rules.log import Mistakes
from torchperc.rules.spaces import JointSpace, LinearSpace, Space, Weights
from torchperc.samples import compiling
from torchperc.samples.compiling import other_cores
from torchperc.samples.parts import PartRows
from torchperc.samples.rows import CsrRows, LookFirst, Rows

_Array: TypeAlias = "np.ndarray[Any, Any]"
# bytes of samples between two looks at whether a second core is worth it, or a copy in eight bits; those of the first
_SEGMENT, _FIRST = 2**25, 2**22
# bytes of samples below which two cores are slower than one, and after which they look at each other's work
_STRETCH, _LOOK = compiling.WORTH_TWO, 2**14
_SPARSE_STRETCH, _SPARSE_LOOK = 2**20, 2**15
_BLOCK = 2**17  # bytes of samples that stay in the cache between being looked at and being learned
_SHORTEST, _WORTH_CODES = 4096, 4096  # samples of a segment, at least; below which codes are no faster
_SCATTERED = 2**20  # samples larger than memory after which pages of those that were read are given back


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
    since, so the result is that of the plain loop. If dense samples are presented again and again, a copy of them in
    eight bits tells which need not be read, see :mod:`torchperc.rules.engines.screening`; of sparse ones a copy in
    single precision does, see :mod:`torchperc.rules.engines.light`.

    Samples that nobody has looked at yet are looked at as they are learned; what cannot be learned raises
    :class:`~torchperc.samples.rows.LookFirst`.
    """

    def __init__(self, task: Task, start: Weights) -> None:
        super().__init__(task, start)
        self._gap, self._looked = 0.0, False
        self._screen: Screen | None = None
        self._can_screen, self._shut = True, False
        self._light: Light | None = None
        self._presented = 0
        self._near = nearness(self.space, longest=0.0 if self.space.rows.unseen else None)
        self._found = np.empty((2, 0), np.int64)
        laid = compiling.laid_out(self.weights.weight, self.space.rows.sparse)
        self.weights.weight, self._w = laid.tensor, laid.loop
        self._b = self.weights.bias.numpy()
        coefs = task.coefs[:1] if task.coefs.stride(0) == 0 else task.coefs
        self._y, self._coefs = task.y.numpy(), coefs.contiguous().numpy()

    def run(self, order: Tensor) -> Mistakes:
        """Present these samples in order: by their codes in eight bits where that is faster, else as they are."""
        found: list[Mistakes] = []
        done, self._shut, all_read = 0, False, len(order) >= len(self.space.rows)
        while done < len(order):
            by_codes = self._screen is not None and self._screen.open and len(order) >= _WORTH_CODES
            made, count = (self._by_codes if by_codes else self._as_they_are)(order[done:])
            found += [mistakes.later(done) for mistakes in made]
            done, all_read = done + count, all_read and not by_codes
        self._looked = True
        if all_read:
            self.space.rows.unseen = False
        return Mistakes.joined(found)

    def _as_they_are(self, order: Tensor) -> tuple[list[Mistakes], int]:
        """Present samples, a segment at a time, until codes are faster; the mistakes, and how many were presented."""
        found, before = [], 0
        for rows, at in self.space.rows.parts(order):
            state = self._state(rows, len(at))
            ids = order[before : before + len(at)].numpy().view(np.uint64)
            numbers = at.numpy().view(np.uint64)
            first, size = 0, max(_SHORTEST, _FIRST // rows.row_bytes)
            while first < len(at):
                part = slice(first, len(at) if self._looked else min(first + size, len(at)))  # some first looks
                found.append(self._segment(rows, state, numbers[part], ids[part]).later(before + first))
                first, size = part.stop, max(_SHORTEST, _SEGMENT // rows.row_bytes)
                if self._consider(int(ids[0] - numbers[0]), len(rows)):
                    return found, before + first
            if self._light is not None:
                self._light.keep(state)
            before += len(at)
        return found, before

    def _by_codes(self, order: Tensor) -> tuple[list[Mistakes], int]:
        """Present samples of which few have to be read, a segment at a time, until there are many."""
        from torchperc.rules.loops.screened import learn_screened

        assert self._screen is not None
        ids, found, first, total = order.numpy().view(np.uint64), list[Mistakes](), 0, 0
        test = compiling.TIES[self.task.tie], float(self.task.margin), self._near
        size = max(_SHORTEST, SEGMENT // self.space.rows.row_bytes, len(ids) // 16 * self._screen.complete)
        while first < len(ids) and self._screen.open:
            part = ids[first : first + size]
            new = not self._screen.complete
            low, high = (int(part.min()), int(part.max()) + 1) if new else (0, len(self._y))
            screen = self._screen.arrays(low, high, make=self.again > 0)
            if screen is None:  # another core has them almost ready
                mistakes, count = self._as_they_are(order[first : first + size])
            else:
                (position, wrong), count = self._room(len(part)), len(part)
                made, read = learn_screened(
                    screen, *self._screen.samples, part, self._y, self._coefs, self._w, self._b,
                    float(self.space.bias_scale), *test, 0, position, wrong, 0,
                )  # fmt: skip
                mistakes, total, self._gap = [self._written(part, made)], total + read, len(part) / (abs(made) + 0.5)
            found += [each.later(first) for each in mistakes]
            first += count
            self._screen.judge(total, first)
            if isinstance(self.space.rows, PartRows):
                if new and screen is not None:
                    self._screen.keep(part)
                self.space.rows.release(scattered=self._screen.complete and self._screen.open)
                size = max(size, _SCATTERED * self._screen.complete)
            elif self._screen.complete:
                size = len(ids)
        self._shut = not self._screen.open
        return found, first

    def _consider(self, first: int, count: int) -> bool:
        """Whether to go on by codes in eight bits, by a look at so many samples from the first on."""
        if self.again * self._w.itemsize < AGAIN or self._shut or not self._can_screen or self._gap * LIMIT < 1.0:
            return False
        if self._screen is None:
            self._screen = screen_for(self.space.rows, self._y, self.space.outputs)
            self._can_screen = self._screen is not None
        if self._screen is not None and not self._screen.open:
            self._screen.consider(first, first + count, self._w, self._b, self._near, float(self.task.margin))
        return self._screen is not None and self._screen.open

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
        again = not rows.unseen and (self.again > 0 or self._presented >= len(rows))
        self._presented += count
        plain = State(rows.plain(), self._w, self._b, self._near)
        if not again or rows is not self.space.rows or not isinstance(rows, CsrRows):
            return plain
        if not light.pays(rows.row_bytes * count, self._w.nbytes):
            return plain
        self._light = self._light or Light(rows, self.space, plain, self._coefs)
        return self._light.state(plain, count)

    def _segment(self, rows: Rows, state: State, at: _Array, ids: _Array) -> Mistakes:
        from torchperc.rules.loops import two_cores
        from torchperc.rules.loops.learn import learn, learn_unseen

        task, (position, wrong) = self.task, self._room(len(at))
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
        self._gap = len(at) / (max(found, 0) + 0.5)
        return self._written(ids, found)

    def _room(self, count: int) -> _Array:
        """Where a loop writes the positions of mistakes among so many samples, and what they were taken for."""
        if self._found.shape[1] < count:
            self._found = np.empty((2, count), np.int64)
        return self._found

    def _written(self, ids: _Array, found: int) -> Mistakes:
        """The mistakes that a loop has written, so many of these samples."""
        if found < 0:
            raise LookFirst if self.space.rows.unseen else checks.weights_overflow()
        position, wrong = (column[:found].copy() for column in self._found)
        sample = ids[position].view(np.int64)  # in numpy, since torch would wake its threads for a few thousand numbers
        coef = self._coefs[sample if len(self._coefs) > 1 else np.zeros_like(sample)]
        columns = sample, position, coef * self._y[sample] if self.space.classes is None else coef, wrong
        return Mistakes(*map(torch.from_numpy, columns))
