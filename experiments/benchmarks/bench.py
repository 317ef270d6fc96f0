"""All benchmarks, as ``torchperc bench`` runs them: the cases are in :mod:`benchmarks.cases`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks.cases import CASES, about
from benchmarks.report import summary, table, write
from benchmarks.tag_cases import BROWN
from benchmarks.tagged import checked
from benchmarks.timing import Row, measure
from torchperc import _checks as checks
from torchperc.cli import inputs
from torchperc.reports.text import visible

_ROUNDS = 5


def run(arguments: argparse.Namespace) -> None:
    """Run the cases, print the tables, write the files."""

    if arguments.list:
        for name, case in CASES.items():
            print(f"{name:12}{about(case)}")
        return
    names, rounds, out = _options(arguments)
    if arguments.brown is not None:
        BROWN[:] = [checked(arguments.brown)]
    console = inputs.console(width=160)
    rows, absent = _measure(names, rounds, arguments, console)
    files = write(out, rows, absent, rounds=rounds, quick=arguments.quick)
    for line in summary(rows, absent):
        console.print(line)
    console.print(visible(f"written: {', '.join(map(str, files))}"), soft_wrap=True)
    raise SystemExit(1 if any(row.differs for row in rows) else 0)


def _options(arguments: argparse.Namespace) -> tuple[list[str], int, Path]:
    """The names, the rounds and the directory, checked before the first case runs."""

    names = list(dict.fromkeys(checks.one_of("CASE", name, tuple(CASES)) for name in arguments.cases)) or list(CASES)
    least = 1 if arguments.quick else _ROUNDS
    rounds = least if arguments.rounds is None else arguments.rounds
    if rounds < least:
        remedy = "" if arguments.quick else ", as fewer say little; add --quick to see it run"
        raise checks.ParameterError(checks.Option("rounds", rounds), f" must be at least {least}{remedy}")
    return names, rounds, inputs.output_folder(arguments.out)


def _measure(
    names: list[str], rounds: int, arguments: argparse.Namespace, console: Console
) -> tuple[list[Row], dict[str, str]]:
    quick, busy = arguments.quick, not arguments.idle_only
    errors = Console(stderr=True)
    rows: list[Row] = []
    absent: dict[str, str] = {}
    with errors.status("") if errors.is_terminal else _Quiet() as status:
        for name in names:
            status.update(f"{name}: data")
            for comparison in CASES[name](quick):
                how: dict[str, Any] = {
                    "warm_up": not quick,
                    "judge": not quick,
                    "busy": busy,
                    "progress": status.update,
                }
                found = measure(comparison, case=name, rounds=rounds, **how)
                console.print(table(found))
                rows += found
                absent.update(comparison.absent)
                status.update(f"{name}: data")
    return rows, absent


class _Quiet:
    """Shows nothing, where there is no terminal to show it on."""

    def __enter__(self) -> _Quiet:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def update(self, text: str) -> None:
        """Told what runs."""
