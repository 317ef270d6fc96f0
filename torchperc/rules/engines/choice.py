"""Which engine runs a task."""

from __future__ import annotations

from torchperc.rules.engines import compiled
from torchperc.rules.engines.blocked import BlockedEngine
from torchperc.rules.engines.kernelized import KernelEngine
from torchperc.rules.engines.reference import Engine, ReferenceEngine, Task
from torchperc.rules.spaces import JointSpace, KernelSpace, Space, Weights
from torchperc.samples import compiling


def choose_engine(name: str, task: Task, start: Weights) -> Engine:
    """The engine of a given name, or for ``"auto"`` the fastest that can run the task."""
    name = engine_name(name, task.space)
    if name == "blocked" and isinstance(task.space, JointSpace):
        raise ValueError("engine='blocked' cannot run joint features; use engine='auto'")
    if isinstance(task.space, KernelSpace):
        return KernelEngine(task)  # one engine by any name, so that its sums round in one way
    if name == "compiled":
        return compiled.CompiledEngine(task, start)
    return BlockedEngine(task, start) if name == "blocked" else ReferenceEngine(task, start)


def engine_name(name: str, space: Space) -> str:
    """``name``, or for ``"auto"`` the fastest in this space."""
    why = compiled.obstacle(space)
    if name == "compiled" and why:
        raise ValueError(f"engine='compiled' cannot run this: {why}")
    if name != "auto":
        return name
    if space.rows.device.type != "cpu" and not isinstance(space, JointSpace):
        return "blocked"
    return "reference" if why or len(space.rows) < compiling.WORTH_IT else "compiled"
