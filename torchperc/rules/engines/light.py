"""A light copy of sparse samples and weights, by which most samples are decided with half the memory read."""

from __future__ import annotations

import math
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch

from torchperc.rules.engines.rounding import Rounding, nearness
from torchperc.rules.spaces import LinearSpace
from torchperc.samples import compiling
from torchperc.samples.rows import CsrRows

_Array: TypeAlias = "np.ndarray[Any, Any]"
_WORTH_IT = 2**20  # bytes of sparse samples below which all is near the processor anyway
_EXACT = 2**24  # integers up to this are exact in float32


class State(NamedTuple):
    """What a loop works on: samples, weights, biases, and how far scores can be off."""

    rows: tuple[_Array, ...]
    w: _Array
    b: _Array
    near: _Array


def pays(size: int, weights: int) -> bool:
    """Whether a pass over so many bytes of sparse samples is worth a light copy of so many bytes of weights."""
    return size > max(_WORTH_IT, weights)


class Light:
    """A light copy of sparse samples and of weights: float32, half of what is read from memory.

    A loop decides by it whatever its rounding leaves clear. If samples, steps and weights are integers that float32
    holds exactly, it learns in float32 altogether.

    Args:
        rows: the samples.
        space: theirs.
        plain: what a loop works on without a copy; it is told how far light scores can be off.
        coefs: of the updates.
    """

    def __init__(self, rows: CsrRows, space: LinearSpace, plain: State, coefs: _Array) -> None:
        from torchperc.rules.loops import exact

        longest = float(plain.near[exact.RADIUS])
        self.off = Rounding(rows, longest=longest).light
        plain.near[exact.LIGHT], plain.near[exact.LIGHT_FLOOR] = self.off or (math.inf, 0.0)
        if self.off is None:
            return
        self._plain, single = plain, plain.w.dtype == np.float32
        values, largest = (rows.X.data, math.inf) if single else rows.light()
        self._light = plain.w if single else compiling.in_lines(plain.w.shape, np.float32)
        whole = float(space.bias_scale).is_integer() and bool((coefs == np.rint(coefs)).all())
        self._step = float(abs(coefs).max()) * max(largest, abs(space.bias_scale)) if whole else math.inf
        self._rounded = plain._replace(rows=(*plain.rows, values, self._light))
        self._integers = State(
            (values, *plain.rows[1:], values, self._light),
            self._light, plain.b.astype(np.float32), nearness(space, torch.float32, longest),
        )  # fmt: skip

    def state(self, plain: State, count: int) -> State:
        """What a loop works on for a pass over so many samples: ``plain`` where single precision has no room."""
        from torchperc.samples.loops import lighten

        if self.off is None:
            return plain
        integers = self._integers
        if self._light is plain.w:
            return self._rounded
        largest = lighten(plain.w.reshape(-1), self._light.reshape(-1), 0, plain.w.size)
        bias = lighten(plain.b, integers.b, 0, len(plain.b))
        exact = max(largest, bias) + count * self._step <= _EXACT
        return integers if exact else self._rounded

    def keep(self, state: State) -> None:
        """Take over what was learned in integers."""
        if self.off is not None and state is self._integers:
            self._plain.w[...], self._plain.b[...] = state.w, state.b
