"""The list of cases: each gives the comparisons it is made of, one after the other, so that their data come and go."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import descent_cases, online_cases, rule_cases, samples, tag_cases
from benchmarks.timing import Comparison, Contender, Finding, Goal, with_folder

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

    def call() -> dict[str, Any]:
        seconds, *loaded = _output(["-c", code]).split()
        return {"seconds": float(seconds), "loaded": set(loaded)}

    return call


def _output(arguments: list[str]) -> str:
    """What a new Python process prints."""
    # the package that runs here, wherever the new process would look first
    path = os.pathsep.join([str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")])
    env = {**os.environ, "PYTHONPATH": path.rstrip(os.pathsep)}
    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=True, env=env)
    return done.stdout


def commands(quick: bool) -> Iterator[Comparison]:
    """``torchperc learn`` from start to end: a data set of 569 rows, and a CSV file of 100,000 × 30."""
    rows = 300 if quick else 100_000
    for title, source, most in (("breast-cancer", "breast-cancer", 4.0), (f"a CSV file of {rows:,} × 30", None, 12.0)):
        folder = tempfile.mkdtemp()
        data = [source] if source else [_table(Path(folder, "table.csv"), rows), "--target", "label"]
        ours = Contender("torchperc learn", _learning(data, folder), 1, Goal("seconds", most))
        bare = Contender("without a report", _learning([*data, "--report", "no"], folder), 1)
        yield with_folder(Comparison(title, [ours, bare], _same_model), folder)


def _table(path: Path, rows: int) -> str:
    X, y = samples.bell(rows, 30, flips=0.05)
    header = ",".join([*(f"x{column}" for column in range(30)), "label"])
    np.savetxt(path, np.column_stack([X, y]), fmt=["%.5g"] * 30 + ["%d"], delimiter=",", header=header, comments="")
    return str(path)


def _learning(data: list[str], folder: str) -> Callable[[], str]:
    return lambda: _output(["-m", "torchperc", "learn", *data, "--out", f"{folder}/run", "--overwrite"])


def _same_model(results: Mapping[str, Any]) -> dict[str, Finding]:
    """Each says how good its model is, and the same."""
    said = [[line for line in text.splitlines() if line.startswith("On the held-out")] for text in results.values()]
    same = len(said[0]) == 1 and all(lines == said[0] for lines in said)
    return dict.fromkeys(results, Finding(same, said[0][0].partition(" has ")[2] if said[0] else "says no test error"))


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
    "first-epoch": rule_cases.first_epoch,
    "growth": rule_cases.growth,
    "orders": rule_cases.orders,
    "pocket": rule_cases.pocket,
    "online": online_cases.online,
    "census": online_cases.census,
    "tag": tag_cases.tag,
    "import": importing,
    "commands": commands,
}
"""Every case by its name."""


def about(case: Case) -> str:
    """The first sentence that a case says of itself.

    Example:
        >>> about(CASES["dense-784"])
        'The rule on 50,000 × 784: noisy labels, and data with at most 1 % mistakes per row.'
    """
    return (case.__doc__ or "").split("\n")[0].replace("``", "")
