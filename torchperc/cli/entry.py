"""The command line: finds the command, reads its words, prints what is wrong in one line."""

from __future__ import annotations

import argparse
import gc
import os
import sys
from collections.abc import Sequence
from typing import Any

import torchperc as tp
from torchperc._checks import ParameterError, require_packages
from torchperc.cli import commands, inputs, tag
from torchperc.cli.options import add_arguments, parameters, spelled, summary
from torchperc.cli.signals import SignalHandler, should_print

CONFIGURED = {
    "fit": "train from a config",
    "validate": "validation loss and error of a checkpoint",
    "test": "test loss and error of a checkpoint",
    "predict": "labels or numbers by a checkpoint",
}
COMMANDS = ("learn", "apply", "tag", "export", "report", "separable", "crosscheck", *CONFIGURED, "demo", "play", "xor")


class UsageError(ValueError):
    """Words that are no command."""


class _Parser(argparse.ArgumentParser):
    def __init__(self, **options: Any) -> None:
        super().__init__(allow_abbrev=False, **options)

    def error(self, message: str) -> None:  # type: ignore[override]  # argparse prints the whole usage first
        raise UsageError(f"{message} (see {self.prog} --help)")


def fail(message: str, code: int = 2, *, of_all: bool = True) -> None:
    """Say what is wrong in one line on stderr and leave with an exit code.

    An error that several processes have, if it may be one ``of_all``, is said by the first of them.
    """
    text = " ".join(str(message).split())
    if not of_all or should_print(text):
        inputs.say(f"torchperc: error: {text}", sys.stderr)
    raise SystemExit(code)


def main(argv: Sequence[str] | None = None) -> None:
    """Entry point of the ``torchperc`` command."""
    with SignalHandler() as handler:
        try:
            _run(list(sys.argv[1:] if argv is None else argv), handler)
        except BaseException:
            if not handler.sentence:
                raise
            handler.say()  # whatever became of the exception on its way
            raise SystemExit(handler.code) from None
        finally:
            # a program, which ends here: its objects need not be looked through for garbage first; Triton complains
            if argv is None and "triton" not in sys.modules:
                gc.freeze()


def _run(words: list[str], handler: SignalHandler) -> None:
    try:
        _dispatch(words)
        sys.stdout.flush()
    except RuntimeError as error:
        if type(error).__name__ != "ProcessError":  # whose module takes long to import
            raise
        fail(str(error), code=1, of_all=False)
    except BrokenPipeError:  # the reader went away, as in `torchperc demo | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(141) from None
    except (ValueError, TypeError, OSError) as error:
        if handler.fault is None or not isinstance(error, OSError):
            fail(str(error))
    except KeyboardInterrupt:
        inputs.say("torchperc: interrupted", sys.stderr)
        raise SystemExit(130) from None
    if handler.fault is not None:  # of the only thread that there is, which writes for TensorBoard
        reason = getattr(handler.fault, "strerror", None) or handler.fault
        fail(f"cannot write the event files of the run ({reason}); free some space, or choose a writable folder")


def _dispatch(words: list[str]) -> None:
    inputs.one_line_warnings()
    known: dict[str, Any] = {"out": None}
    try:
        if words and words[0] in CONFIGURED:
            _run_configured(words)
            return
        given = vars(_parsed(words))
        name = given.pop("command")
        if name == "tag":
            known = given
            tag.run(argparse.Namespace(**given))
            return
        command = getattr(commands, name)
        known = {"missing": None}  # an option of learn, which errors of apply name
        known |= {each.name: each.default for each, _ in parameters(command)}
        if len(given.get("source", ())) == 1:  # which may be a name instead of a file
            given["source"] = given["source"][0]
        command(**{name: value for name, value in given.items() if value != known[name]})
    except ParameterError as error:
        raise ValueError(error.text(lambda option: spelled(option, known))) from None


def _run_configured(words: list[str]) -> None:
    if {"-h", "--help"} & set(words):
        print(commands.CONFIGURED_HELP.format(command=words[0], what=CONFIGURED[words[0]]))
        return
    require_packages(f"torchperc {words[0]}", "jsonargparse")
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "FATAL")  # of a process that is lost, torch prints its own stack
    from torchperc.cli import fit

    fit.run(["--help" if word == "--help.all" else word for word in words])


def _parsed(words: list[str]) -> argparse.Namespace:
    """The arguments of a command. ``--ignore a b data.csv`` leaves no data: then each ``--ignore`` reads one word."""
    try:
        return parser().parse_args(words)
    except UsageError as error:
        try:
            return parser(several=False).parse_args(words)
        except UsageError:
            raise error from None


def parser(several: bool = True) -> argparse.ArgumentParser:
    """The parser of all commands."""
    made = _Parser(prog="torchperc", description="Perceptrons, learned by rule and by gradient.")
    made.add_argument("--version", action="version", version=f"torchperc {tp.__version__}")
    found = made.add_subparsers(dest="command", required=True, metavar="command")
    for name in COMMANDS:
        if name in CONFIGURED:
            found.add_parser(name, help=CONFIGURED[name])
        elif name == "tag":
            tag.add_arguments(
                found.add_parser(name, help="learn to tag the tokens of sentences, evaluate, tag new text")
            )
        else:
            command = getattr(commands, name)
            add_arguments(found.add_parser(name, help=summary(command)), command, several)
    return made
