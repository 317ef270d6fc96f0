"""The command line. Commands are imported when they are called, so that help answers at once."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import Any

_CONFIGURED = {
    "fit": "train from a config",
    "validate": "validation loss and error of a checkpoint",
    "test": "test loss and error of a checkpoint",
    "predict": "labels by a checkpoint",
}
_TIES = ("update", "sign", "strict")
_BIAS_STEPS = ("unit", "radius", "none")


class _Parser(argparse.ArgumentParser):
    def __init__(self, **options: Any) -> None:
        super().__init__(allow_abbrev=False, **options)

    def error(self, message: str) -> None:  # type: ignore[override]  # argparse prints the whole usage first
        """One line on stderr, exit code 2."""
        fail(f"{message} (see {self.prog} --help)")


def fail(message: str) -> None:
    """Say what is wrong in one line on stderr and leave with exit code 2."""
    print(f"torchperc: error: {' '.join(str(message).split())}", file=sys.stderr)
    raise SystemExit(2)


def main(argv: Sequence[str] | None = None) -> None:
    """Entry point of the ``torchperc`` command."""
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        _dispatch(words)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader went away, as in `torchperc demo | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(141) from None
    except (ValueError, TypeError, OSError) as error:
        fail(str(error))
    except KeyboardInterrupt:
        raise SystemExit(130) from None


def _dispatch(words: list[str]) -> None:
    if words and words[0] in _CONFIGURED:
        from torchperc.cli import configured

        configured.run(words)
        return
    arguments = _parser().parse_args(words)
    if arguments.command == "demo":
        from torchperc.cli import demo

        demo.run()
    elif arguments.command == "xor":
        from torchperc.cli import xor

        xor.run(arguments)
    elif arguments.command == "bench":
        from torchperc.cli import bench

        bench.run(arguments)
    elif arguments.command == "separable":
        from torchperc.cli import separable

        separable.run(arguments)
    elif arguments.command == "report":
        from torchperc.cli import report

        report.run(arguments)
    else:
        from torchperc.cli import crosscheck

        crosscheck.run(arguments)


def _parser() -> argparse.ArgumentParser:
    from torchperc.cli import bench, report, separable, xor

    parser = _Parser(prog="torchperc", description="Perceptrons, learned by rule and by gradient.")
    parser.add_argument("--version", action="version", version=_version())
    commands = parser.add_subparsers(dest="command", required=True, metavar="command")
    for name, text in _CONFIGURED.items():
        commands.add_parser(name, help=text)
    _add_crosscheck(commands.add_parser("crosscheck", help="compare the rule with autograd on a gate or a CSV file"))
    separable.add_arguments(commands.add_parser("separable", help="prove that a hyperplane separates data, or none"))
    commands.add_parser("demo", help="a tour: AND, XOR, noisy data, by rule and by gradient")
    xor.add_arguments(commands.add_parser("xor", help="the XOR lab: thousands of small nets trained at once"))
    report.add_arguments(commands.add_parser("report", help="one HTML page of a run: verdict, proof, curves, config"))
    bench.add_arguments(commands.add_parser("bench", help="how fast, against peers measured in the same run"))
    return parser


def _add_crosscheck(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Runs the perceptron rule and autograd with SGD on the same samples and compares every mistake and every "
        "weight. Exit code 0 if they are equal, 1 if not."
    )
    parser.add_argument("data", help="AND, OR, NAND, NOR, XOR, XNOR, parity-n, or a CSV file")
    parser.add_argument("--target", help="column of labels in the file, by name or position from 1 (default: the last)")
    parser.add_argument("--lr", type=float, default=1.0, help="rate η of both sides (default: %(default)s)")
    parser.add_argument("--epochs", type=int, default=20, help="passes at most (default: %(default)s)")
    parser.add_argument("--tie", choices=_TIES, default="update", help="what is a mistake (default: %(default)s)")
    parser.add_argument("--bias-step", choices=_BIAS_STEPS, default="unit", help="(default: %(default)s)")
    parser.add_argument("--order", choices=("given", "shuffled", "random-mistake"), default="given")
    parser.add_argument("--seed", type=int, default=0, help="of the order (default: %(default)s)")
    parser.add_argument("--dtype", choices=("float32", "float64"), default="float64", help="(default: %(default)s)")
    parser.add_argument("--mode", choices=("sample", "batch"), default="sample", help="(default: %(default)s)")


def _version() -> str:
    from importlib.metadata import version

    return f"torchperc {version('torchperc')}"
