"""Which engine runs a task."""

from __future__ import annotations

from torchperc.rules.engines import compiled
from torchperc.rules.engines.blocked import BlockedEngine
from torchperc.rules.engines.kernelized import KernelEngine
from torchperc.rules.engines.reference import Engine, ReferenceEngine, Task
from torchperc.rules.spaces import JointSpace, KernelSpace, Weights
from torchperc.samples import compiling


def choose_engine(name: str, task: Task, start: Weights) -> Engine:
    """The engine of a given name, or for ``"auto"`` the fastest that can run the task."""
    space = task.space
    if name == "compiled" and (why := compiled.obstacle(space)):
        raise ValueError(f"engine='compiled' cannot run this: {why}")
    if name == "blocked" and isinstance(space, JointSpace):
        raise ValueError("engine='blocked' cannot run joint features; use engine='auto'")
    if isinstance(space, KernelSpace):
        return KernelEngine(task)  # one engine by any name, so that its sums round in one way
    if name == "auto":
        name = _fastest(task)
    if name == "compiled":
        return compiled.CompiledEngine(task, start)
    return BlockedEngine(task, start) if name == "blocked" else ReferenceEngine(task, start)


def _fastest(task: Task) -> str:
    rows = task.space.rows
    if isinstance(task.space, JointSpace):
        return "reference"
    if rows.device.type != "cpu":
        return "blocked"
    return "reference" if len(rows) < compiling.WORTH_IT or compiled.obstacle(task.space) else "compiled"
