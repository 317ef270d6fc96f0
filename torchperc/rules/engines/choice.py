"""Which engine runs a task."""

from __future__ import annotations

from collections.abc import Callable

from torchperc.rules.engines import compiled, triton
from torchperc.rules.engines.blocked import BlockedEngine
from torchperc.rules.engines.kernelized import CompiledKernelEngine, KernelEngine
from torchperc.rules.engines.reference import Engine, ReferenceEngine, Task
from torchperc.rules.spaces import JointSpace, KernelSpace, Space, Weights
from torchperc.samples import compiling


def choose_engine(name: str | Callable[[Task, Weights], Engine], task: Task, start: Weights) -> Engine:
    """The engine of a given name, for ``"auto"`` the fastest that can run the task, or the user's own."""
    if callable(name):
        own = name(task, start)
        if not isinstance(own, Engine):
            raise TypeError(f"engine={name!r} must make an Engine, found {type(own).__name__}; see docs/extend.md")
        return own
    name = rule_engine_name(name, task.space)
    if name == "blocked" and isinstance(task.space, JointSpace):
        raise ValueError("engine='blocked' cannot run joint features; use engine='auto'")
    if isinstance(task.space, KernelSpace):
        # one engine by any name, so that its sums round in one way
        return CompiledKernelEngine(task) if CompiledKernelEngine.can(task.space) else KernelEngine(task)
    engines: dict[str, Callable[[Task, Weights], Engine]] = {
        "compiled": compiled.CompiledEngine,
        "blocked": BlockedEngine,
        "triton": triton.TritonEngine,
    }
    return engines.get(name, ReferenceEngine)(task, start)


def rule_engine_name(name: str, space: Space) -> str:
    """``name``, or for ``"auto"`` the fastest engine of the rule in this space."""
    if name == "auto" and space.rows.device.type == "cuda" and triton.obstacle(space) is None:
        return "triton"
    if name == "triton" and (why := triton.obstacle(space)):
        raise ValueError(f"engine='triton' cannot run this: {why}")
    return engine_name(name, space)


def engine_name(name: str, space: Space) -> str:
    """``name``, or for ``"auto"`` the fastest in this space, of those that single-sample descent has too."""
    why = compiled.obstacle(space)
    if name == "compiled" and why:
        raise ValueError(f"engine='compiled' cannot run this: {why}")
    if name != "auto":
        return name
    if space.rows.device.type != "cpu" and not isinstance(space, JointSpace):
        return "blocked"
    return "reference" if why or len(space.rows) < compiling.WORTH_IT else "compiled"
