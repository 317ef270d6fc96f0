"""The triton engine: a whole pass as one program on the device, and many runs at once as a grid of programs."""

from __future__ import annotations

import hashlib
import math
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache, cached_property
from importlib.util import find_spec, module_from_spec
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from torchperc import _checks as checks
from torchperc.rules.engines.reference import LinearEngine, ReferenceEngine, Task
from torchperc.rules.engines.rounding import Rounding
from torchperc.rules.log import Mistakes
from torchperc.rules.spaces import JointSpace, LinearSpace, Space, Weights
from torchperc.samples import compiling
from torchperc.samples.rows import Rows

ON_CHIP = 2**14  # bytes of weights that stay in registers from the first sample to the last
TILE = 2**13  # products that a program works on at a time
LEAST = 16  # features that are read at a time, at least


def obstacle(space: Space) -> str | None:
    """Why a task in this space cannot be a program of Triton, or ``None``."""
    if not isinstance(space, LinearSpace) or isinstance(space, JointSpace):
        return "only linear nets have a Triton program, not kernels and joint features"
    if space.rows.sparse:
        return "X is sparse, which has no Triton program; use engine='compiled', or X.toarray()"
    if space.rows.dtype not in (torch.float32, torch.float64):
        return f"Triton programs are for float32 and float64, found {space.rows.dtype}; use net.float()"
    if find_spec("triton") is None:
        return "Triton is not installed; pip install triton, or use engine='blocked'"
    where = space.rows.device.type
    if where == "cpu" and not interprets():
        return "X is on the CPU; move net and X to CUDA, or set TRITON_INTERPRET=1 to have the program interpreted"
    if where not in ("cpu", "cuda"):
        return f"X is on {space.rows.device}, and Triton compiles for CUDA; use engine='blocked'"
    return None


def interprets() -> bool:
    """Whether TRITON_INTERPRET is set."""
    from triton import knobs

    return bool(knobs.runtime.interpret)


@cache
def program(interpreted: bool, /) -> Any:
    """The module :mod:`torchperc.rules.loops.device`, for Triton to compile or to interpret."""
    from triton import knobs

    spec = find_spec("torchperc.rules.loops.device")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    with knobs.runtime.scope():
        knobs.runtime.interpret = interpreted
        spec.loader.exec_module(module)
    return module


class Tile(NamedTuple):
    """What a program works on at a time: samples, classes and features, as powers of 2, and by how many warps."""

    T: int
    K: int
    D: int
    ON_CHIP: bool
    num_warps: int

    @classmethod
    def of(cls, classes: int, width: int, itemsize: int) -> Tile:
        """The tile for so many classes and features of so many bytes each.

        Example:
            >>> Tile.of(1, 60, 4), Tile.of(10, 784, 8)
            (Tile(T=64, K=1, D=64, ON_CHIP=True, num_warps=4), Tile(T=16, K=16, D=32, ON_CHIP=False, num_warps=8))
        """
        K, D = _power(classes), _power(width)
        on_chip = K * D * itemsize <= ON_CHIP
        if not on_chip:
            D = min(D, max(LEAST, TILE // (16 * K)))
        T = max(1, min(64, TILE // (K * D)))
        return cls(T, K, D, on_chip, max(1, min(8, T * K * D // 1024)))


def _power(number: int) -> int:
    """The least power of 2 that is no smaller."""
    return 1 << max(0, number - 1).bit_length()


class Passes:
    """Passes of the rule over the samples of a task: one launch for all runs.

    Args:
        task: what to learn; its margin is not looked at.
        weights: of all runs, one after the other, contiguous; changed in place.
        margins: one per run.
    """

    def __init__(self, task: Task, weights: Weights, margins: list[float]) -> None:
        self.task, self.weights, self._y = task, weights, task.y.contiguous()
        rows, rounding, count = task.space.rows, Rounding(task.space.rows), weights.weight[0].numel()
        least = 2.0**-536 * math.sqrt(count)
        step = 1.5 * rounding.radius**2 + abs(task.space.bias_scale)
        numbers = [rounding.gamma(rows.terms), rounding.radius, rounding.floor, least, step, task.space.bias_scale]
        self._numbers, self._margins = (
            torch.tensor(values, dtype=torch.float64, device=rows.device) for values in (numbers, margins)
        )
        self.program = program(interprets())
        self.states = torch.zeros(len(margins), 4, dtype=torch.float64, device=rows.device)

    def launch(self, rows: Rows, at: Tensor, ids: Tensor, which: Tensor, log: Tensor | None = None) -> None:
        """Take all runs on from where ``states`` says.

        Args:
            rows: dense samples.
            at, ids: orders (P, N): the places of the samples in ``rows``, their numbers in the task.
            which: the order of each run.
            log: for the mistakes of a single run: (2, N).
        """
        X, coefs, space = rows.dense(), self.task.coefs, self.task.space
        tile = Tile.of(space.outputs, rows.width, X.element_size())
        with torch.cuda.device_of(X), _quiet():
            self.program.learn[(len(self.states),)](
                X, at, ids, self._y, coefs, self.weights.weight, self.weights.bias, which, self._margins, self._numbers,
                self.states, self.states if log is None else log,
                X.stride(0), X.stride(1), coefs.stride(0), at.shape[1],
                classes=space.outputs, width=rows.width, tie=compiling.TIES[self.task.tie], LOGGED=log is not None,
                **tile._asdict(), enable_fp_fusion=False,
            )  # fmt: skip


@contextmanager
def _quiet() -> Iterator[None]:
    """Numpy, which interprets a program, warns of scores that overflow; the program sees them itself."""
    with warnings.catch_warnings():
        if interprets():
            warnings.simplefilter("ignore", RuntimeWarning)
        yield


class TritonEngine(LinearEngine):
    """A pass is one launch of a program that keeps the weights and streams the samples.

    A score within rounding of the limit is added up again with every rounding error counted; what that leaves open is
    decided by the plain loop, and the program goes on behind it. So mistakes and weights are those of the plain loop.
    """

    def __init__(self, task: Task, start: Weights) -> None:
        super().__init__(task, start)
        self.weights.weight = self.weights.weight.contiguous()
        self._passes = Passes(task, Weights(self.weights.weight[None], self.weights.bias[None]), [task.margin])

    @cached_property
    def _plain(self) -> ReferenceEngine:
        """The plain loop on the same weights."""
        return ReferenceEngine.on(self.task, self.weights)

    def run(self, order: Tensor) -> Mistakes:
        """Present these samples in order, a launch for each part of them."""
        found, before, total = [], 0, 0.0
        for rows, at in self.space.rows.parts(order):
            mistakes, moved = self._part(rows, at.contiguous(), order[before : before + len(at)].contiguous())
            found.append(mistakes.later(before))
            before, total = before + len(at), total + moved
        self._total = total if order.device.type != "cpu" else None  # there, it is added up as for the other engines
        return Mistakes.joined(found)

    def _part(self, rows: Rows, at: Tensor, ids: Tensor) -> tuple[Mistakes, float]:
        passes, kernel, task = self._passes, self._passes.program, self.task
        which, log = torch.zeros_like(ids[:1]), ids.new_zeros(2, len(ids))
        passes.states.zero_()
        while True:
            passes.launch(rows, at[None], ids[None], which, log)
            status, position, count, total = self.look(passes.states)
            place, end = int(position), int(count)
            if status == kernel.OVERFLOW.value:
                raise checks.weights_overflow()
            if status != kernel.OPEN.value:
                break
            mistake = self._plain.decide(int(ids[place]))
            if mistake is not None:
                log[0, end], log[1, end] = place, mistake.wrong
                count, total = count + 1, total + abs(mistake.coef)
            passes.states[0] = torch.tensor([kernel.GOING.value, position + 1, count, total])
        step, wrong = log[:, :end]
        sample = ids[step]
        coef = task.coefs[sample]
        return Mistakes(sample, step, coef * task.y[sample] if self.space.classes is None else coef, wrong), total


class ManyRuns:
    """Runs from zero weights over the same samples, an epoch of all of them by one launch.

    Args:
        tasks: of the runs, which differ in their margins only.
    """

    def __init__(self, tasks: Sequence[Task]) -> None:
        self.tasks, rows = tasks, tasks[0].space.rows
        zeros = torch.zeros(len(tasks), tasks[0].space.outputs, rows.width + 1, dtype=rows.dtype, device=rows.device)
        self.weights = Weights(zeros[..., :-1].contiguous(), zeros[..., -1].contiguous())
        self._passes = Passes(tasks[0], self.weights, [task.margin for task in tasks])
        self._numbers = np.zeros((len(tasks), zeros[0].numel()))

    def epoch(self, orders: Tensor, which: list[int], going: list[int]) -> list[int]:
        """One epoch of the runs ``going``, each in its row of ``orders``; the mistakes of every run."""
        passes, place = self._passes, torch.tensor(which, device=orders.device)
        kernel, states = passes.program, np.zeros((len(which), 4))
        states[:, 0] = kernel.ENDED.value
        states[going, 0] = kernel.GOING.value
        while True:
            passes.states.copy_(torch.from_numpy(states))
            passes.launch(self.tasks[0].space.rows, orders, orders, place)
            states = self._look()
            if (states[:, 0] == kernel.OVERFLOW.value).any():
                raise checks.weights_overflow()
            doubtful = np.flatnonzero(states[:, 0] == kernel.OPEN.value)
            if not len(doubtful):
                return [int(count) for count in states[:, 2]]
            for m in doubtful.tolist():
                made = self.engine(m).decide(int(orders[which[m], int(states[m, 1])]))
                states[m, :3] = kernel.GOING.value, states[m, 1] + 1, states[m, 2] + (made is not None)

    def _look(self) -> np.ndarray[Any, Any]:
        """The states of the runs; their weights come along, in one wait for the device."""
        parts = (self._passes.states, self.weights.weight, self.weights.bias)
        numbers = torch.cat([part.flatten(1).double() for part in parts], 1).cpu().numpy()
        states, self._numbers = numbers[:, :4], numbers[:, 4:]
        return states

    def digests(self) -> list[bytes]:
        """A hash of each run's weights."""
        return [hashlib.sha256(row.tobytes()).digest() for row in self._numbers + 0.0]  # + 0.0 turns −0 into 0

    def engine(self, m: int) -> ReferenceEngine:
        """The plain loop on the weights of run m."""
        return ReferenceEngine.on(self.tasks[m], Weights(self.weights.weight[m], self.weights.bias[m]))
