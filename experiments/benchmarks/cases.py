"""The list of cases: each gives the comparisons it is made of, one after the other, so that their data come and go."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from benchmarks import descent_cases, rule_cases, tag_cases
from benchmarks.timing import Comparison, Contender, Finding, Goal

Case = Callable[[bool], Iterator[Comparison]]
"""From ``quick``, which asks for sizes that take no time and say nothing, to comparisons."""


def importing(quick: bool) -> Iterator[Comparison]:
    """``import torchperc`` on top of ``import torch``, each time in a new process."""
    call, goal = _import("import torchperc"), Goal("seconds", 0.2)
    first_use = _import("import torchperc; torchperc.Perceptron; torchperc.RuleTrainer")
    contenders = [
        Contender("import torchperc", call, 1, goal, seconds=lambda found: float(found["seconds"])),
        Contender("and Perceptron, RuleTrainer", first_use, 1, seconds=lambda found: float(found["seconds"])),
    ]

    if quick:
        del contenders[1:]

    def check(results: Mapping[str, Any]) -> dict[str, Finding]:
        findings = {}
        for name, found in results.items():
            heavy = ", ".join(sorted(_HEAVY & found["loaded"]))
            findings[name] = Finding(not heavy, f"loads {heavy}" if heavy else "loads no heavy library")
        return findings

    yield Comparison("on top of import torch", contenders, check)


_HEAVY = {"sklearn", "scipy", "matplotlib", "numba", "pandas", "pytorch_lightning", "tensorboard", "rich"}


def _import(statement: str) -> Callable[[], dict[str, Any]]:
    code = (
        "import sys, time, torch\n"
        "start = time.perf_counter()\n"
        f"{statement}\n"
        "print(time.perf_counter() - start, *{name.split('.')[0] for name in sys.modules})\n"
    )
    # the package that runs here, wherever the new process would look first
    path = os.pathsep.join([str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")])

    def call() -> dict[str, Any]:
        done = subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "PYTHONPATH": path.rstrip(os.pathsep)},
        )
        seconds, *loaded = done.stdout.split()
        return {"seconds": float(seconds), "loaded": set(loaded)}

    return call


CASES: dict[str, Case] = {
    "dense-100": rule_cases.dense_100,
    "dense-784": rule_cases.dense_784,
    "classes": rule_cases.classes,
    "sparse": rule_cases.sparse,
    "descent": descent_cases.descent,
    "trainer": descent_cases.trainer,
    "full-batch": descent_cases.full_batch,
    "optimum": descent_cases.optimum,
    "limit": rule_cases.limit,
    "validation": rule_cases.validation,
    "growth": rule_cases.growth,
    "orders": rule_cases.orders,
    "tag": tag_cases.tag,
    "import": importing,
}
"""Every case by its name."""


def about(case: Case) -> str:
    """The first sentence that a case says of itself.

    Example:
        >>> about(CASES["dense-784"])
        'The rule on 50,000 × 784.'
    """
    return (case.__doc__ or "").split("\n")[0].replace("``", "")
