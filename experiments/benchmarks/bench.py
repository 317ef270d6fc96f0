"""All benchmarks: ``make bench``, or ``PYTHONPATH=experiments python -m benchmarks.bench CASE`` for one.

The cases are in :mod:`benchmarks.cases`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks.cases import CASES, about
from benchmarks.report import summary, table, write
from benchmarks.tag_cases import BROWN
from benchmarks.tagged import checked
from benchmarks.timing import Row, measure
from torchperc._checks import check_choice
from torchperc.reports.text import visible

_ROUNDS = 5


def main(argv: Sequence[str] | None = None) -> None:
    """Run the cases, print the tables, write the files."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.bench",
        description="Times torchperc and its peers in turns, in one process, on the machine as it is and with one core "
        "kept busy besides, and compares what they learned beside every time. Prints a table for each comparison; "
        "writes bench.json, bench.md and bench.png. Exit code 1 if results differ that should be equal.",
    )
    parser.add_argument("cases", nargs="*", metavar="CASE", help="which of them (default: all; see --list)")
    parser.add_argument("--quick", action="store_true", help="tiny sizes and one round, to see that it runs")
    parser.add_argument("--idle-only", action="store_true", help="leave out the rounds with a busy core")
    rounds = f"repetitions, of which the best counts; {_ROUNDS} or more (default: {_ROUNDS})"
    parser.add_argument("--rounds", type=int, help=rounds)
    parser.add_argument("--out", default="runs/bench", help="folder of the files (default: %(default)s)")
    brown = "the Brown corpus for the case tag: a folder or an archive (default: generated sentences)"
    parser.add_argument("--brown", metavar="PATH", help=brown)
    parser.add_argument("--list", action="store_true", help="list the cases and exit")
    try:
        _run(parser.parse_args(argv))
    except (ValueError, OSError) as error:
        print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
        raise SystemExit(2) from None


def _run(arguments: argparse.Namespace) -> None:
    if arguments.list:
        for name, case in CASES.items():
            print(f"{name:12}{about(case)}")
        return
    names, rounds, out = _options(arguments)
    if arguments.brown is not None:
        BROWN[:] = [checked(arguments.brown)]
    console = Console(highlight=False, markup=False)
    if not console.is_terminal:
        console.width = max(console.width, 160)
    rows, absent = _measure(names, rounds, arguments, console)
    files = write(out, rows, absent, rounds=rounds, quick=arguments.quick)
    for line in summary(rows, absent):
        console.print(line)
    console.print(visible(f"written: {', '.join(map(str, files))}"), soft_wrap=True)
    raise SystemExit(1 if any(row.differs for row in rows) else 0)


def _options(arguments: argparse.Namespace) -> tuple[list[str], int, Path]:
    """The names, the rounds and the directory, checked before the first case runs."""
    names = list(dict.fromkeys(check_choice("CASE", name, tuple(CASES)) for name in arguments.cases)) or list(CASES)
    least = 1 if arguments.quick else _ROUNDS
    rounds = least if arguments.rounds is None else arguments.rounds
    if rounds < least:
        remedy = "" if arguments.quick else ", as fewer say little; add --quick to see it run"
        raise ValueError(f"--rounds {rounds} must be at least {least}{remedy}")
    out = Path(arguments.out)
    out.mkdir(parents=True, exist_ok=True)
    return names, rounds, out


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


if __name__ == "__main__":
    main()
