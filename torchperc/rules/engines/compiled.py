"""The compiled engine: the plain loop compiled by numba, for float32 and float64 on the CPU."""

from __future__ import annotations

from functools import partial
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from torchperc.rules.engines.reference import LinearEngine, ReferenceEngine, Task
from torchperc.rules.engines.rounding import floor, gamma, radius
from torchperc.rules.log import Mistakes
from torchperc.rules.spaces import LinearSpace, Space, Weights
from torchperc.samples import compiling
from torchperc.samples.rows import Rows

_Array: TypeAlias = "np.ndarray[Any, Any]"


def obstacle(space: Space) -> str | None:
    """Return why a task in this space cannot be compiled, or ``None``."""
    if type(space) is not LinearSpace:
        return "only linear nets are compiled, not kernels and joint features; use engine='auto'"
    if not compiling.suits(space.rows.dtype, space.rows.device):
        found = f"{space.rows.dtype} on {space.rows.device}"
        return f"loops are compiled for float32 and float64 on the CPU, found {found}; use engine='reference'"
    return None


class CompiledEngine(LinearEngine):
    """The loop of the reference engine, compiled; what double precision cannot decide is left to that."""

    def __init__(self, task: Task, start: Weights) -> None:
        laid = compiling.laid_out(start.weight, task.space.rows.sparse)
        self.weights, self._w, self.exact = Weights(laid.tensor, start.bias.clone()), laid.loop, True
        self._b = self.weights.bias.numpy()
        self._found = np.empty((2, 0), np.int64)  # where loops write, kept because fresh memory takes its time
        self.go_on(task)

    def go_on(self, task: Task) -> None:
        """Go on with other samples, from the weights as they are."""
        super().go_on(task)
        rows, self._y, self._coefs = task.space.rows, task.y.numpy(), task.coefs.numpy()
        dtype, longest, period = torch.finfo(rows.dtype), radius(rows), max(64, self._w.size // rows.terms)
        growth = float(self._coefs.max()) * (1.5 * longest**2 + self.space.bias_scale)  # √2 where two classes move
        error = gamma(rows.terms, dtype.eps / 2), longest, floor(rows, rows.dtype)
        self._rounding = (*error, dtype.max, growth, period)

    def run(self, order: Tensor) -> Mistakes:
        """Present these samples in order."""
        found, done, ids = [], 0, order.numpy()
        for rows, some in self.space.rows.parts(order):
            at = some.numpy()
            found.append(self._part(rows, at, ids[done : done + len(at)]).later(done))
            done += len(at)
        return Mistakes.joined(found)

    def _part(self, rows: Rows, at: _Array, ids: _Array) -> Mistakes:
        """Present samples that are in memory; ``at`` are their numbers there, ``ids`` those among all."""
        from torchperc.rules.loops import learn

        task, plain = self.task, rows.plain()
        loop = learn.learn_two if self._w.ndim == 1 else learn.learn_classes
        rule = (self._w, self._b, self.space.bias_scale, compiling.TIES[task.tie], task.margin, self._rounding)
        if self._found.shape[1] < len(at):
            self._found = np.empty((2, len(at)), np.int64)
        (position, wrong), step, made = self._found, 0, 0
        while True:
            step, made = loop(plain, at, ids, self._y, self._coefs, *rule, step, position, wrong, made)
            if step == len(at):
                break
            mistake = ReferenceEngine.on(task, self.weights).decide(int(ids[step]))
            if mistake is not None:
                position[made], wrong[made] = step, mistake.wrong
                made += 1
            step += 1
        sample, when = map(torch.from_numpy, (ids.take(position[:made]), position[:made].copy()))
        taken = torch.from_numpy(wrong[:made].copy()) if self._w.ndim > 1 else lambda: -task.y[sample]
        return Mistakes(sample, when, partial(task.signed, sample), taken, count=made)
