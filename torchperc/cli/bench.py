"""``torchperc bench``: benchmarks against other libraries, timed in the same run."""

from __future__ import annotations

import argparse
import importlib
import sys
from pathlib import Path

_ROUNDS = 5
_HOME = Path(__file__).parents[2] / "experiments"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command."""
    parser.description = (
        "Times torchperc and its peers in turns, in one process, on the machine as it is and with one core kept busy "
        "besides, and compares what they learned beside every time. Prints a table for each comparison; writes "
        "bench.json, bench.md and bench.png. Exit code 1 if results differ that should be equal, 0 otherwise, targets "
        "met or missed."
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


def run(arguments: argparse.Namespace) -> None:
    """Run the benchmarks of the checkout that the package is installed from."""
    if not (_HOME / "benchmarks").is_dir():
        raise ValueError(
            "the benchmarks are not part of the installed package; clone the repository and run there: "
            "pip install -e '.[bench]' && torchperc bench"
        )
    sys.path.insert(0, str(_HOME))
    importlib.import_module("benchmarks.bench").run(arguments)
