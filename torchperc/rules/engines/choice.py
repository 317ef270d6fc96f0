"""Which engine runs a task."""

from __future__ import annotations

from collections.abc import Callable

from torchperc.rules.engines.compiled import CompiledEngine, obstacle
from torchperc.rules.engines.kernelized import KernelEngine
from torchperc.rules.engines.reference import Engine, ReferenceEngine, Task
from torchperc.rules.spaces import KernelSpace, Space, Weights


def choose_engine(name: str | Callable[[Task, Weights], Engine], task: Task, start: Weights) -> Engine:
    """Return the engine of a given name, or the user's own; kernels have one engine by any name."""
    if callable(name):
        own = name(task, start)
        if not isinstance(own, Engine):
            raise TypeError(f"engine={name!r} must make an Engine, found {type(own).__name__}; see docs/extend.md")
        return own
    if engine_name(name, task.space) == "compiled":
        return CompiledEngine(task, start)
    return KernelEngine(task) if isinstance(task.space, KernelSpace) else ReferenceEngine(task, start)


def engine_name(name: str, space: Space) -> str:
    """Return ``name``; for ``"auto"``, ``"compiled"`` where loops are compiled, else ``"reference"``."""
    why = obstacle(space)
    if name == "compiled" and why:
        raise ValueError(f"engine='compiled' cannot run this: {why}")
    if name == "auto":
        return "reference" if why else "compiled"
    return name
