"""``torchperc demo``: a tour of AND, XOR and noisy data, by rule and by gradient."""

from __future__ import annotations

import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command."""
    parser.description = (
        "AND learned by rule and by gradient, side by side; XOR, which one layer cannot learn and two can; noisy data. "
        "Prints the tour; writes pictures, event files for TensorBoard and report.html."
    )
    parser.add_argument("--out", default="runs/demo", help="folder of the files (default: %(default)s)")


def run(arguments: argparse.Namespace) -> None:
    """Show the tour."""
    from pathlib import Path

    from torchperc.lab.demo import demo

    demo(Path(arguments.out))
