"""The command line. Commands are imported when they are called, so that help answers at once."""

from __future__ import annotations

import argparse
import gc
import importlib
import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import torchperc
from torchperc._checks import require_packages
from torchperc.cli.ending import Ending, is_first, speaks
from torchperc.reports.text import visible

_CONFIGURED = {
    "fit": "train from a config",
    "validate": "validation loss and error of a checkpoint",
    "test": "test loss and error of a checkpoint",
    "predict": "labels or numbers by a checkpoint",
}
_COMMANDS = {
    "learn": "from a file of samples to the best of several linear models",
    "apply": "labels or numbers for new data, by a trained model",
    "tag": "learn to tag the tokens of sentences, evaluate, tag new text",
    "export": "a run's model as ONNX, torch.export or safetensors",
    "report": "one HTML page of a run: verdict, proof, curves, config",
    "separable": "prove whether a hyperplane separates the classes",
    "crosscheck": "compare the rule with autograd, mistake by mistake",
    **_CONFIGURED,
    "demo": "a tour: AND, XOR, noisy data, by rule and by gradient",
    "play": "an interactive page: points, mistakes, conventions, proofs",
    "xor": "the XOR lab: thousands of small nets trained at once",
}


class _Parser(argparse.ArgumentParser):
    def __init__(self, **options: Any) -> None:
        super().__init__(allow_abbrev=False, **options)

    def error(self, message: str) -> None:  # type: ignore[override]  # argparse prints the whole usage first
        fail(f"{message} (see {self.prog} --help)")


def fail(message: str, code: int = 2, *, of_all: bool = True) -> None:
    """Say what is wrong in one line on stderr and leave with an exit code.

    An error that several processes have, if it may be one ``of_all``, is said by the first of them.
    """
    text = " ".join(str(message).split())
    if not of_all or speaks(text):
        print(f"torchperc: error: {visible(text)}", file=sys.stderr)
    raise SystemExit(code)


def warn(message: Warning | str, *_: Any, **__: Any) -> None:
    """Print a warning in one line on standard error; the first of several processes does."""
    if is_first():
        print(f"torchperc: warning: {visible(' '.join(str(message).split()))}", file=sys.stderr)


def main(argv: Sequence[str] | None = None) -> None:
    """Entry point of the ``torchperc`` command."""
    with Ending() as ending:
        try:
            _run(list(sys.argv[1:] if argv is None else argv), ending)
        except BaseException:
            if not ending.sentence:
                raise
            ending.say()  # whatever became of the exception on its way
            raise SystemExit(ending.code) from None
        finally:
            # a program, which ends here: its objects need not be looked through for garbage first; Triton complains
            if argv is None and "triton" not in sys.modules:
                gc.freeze()


def _run(words: list[str], ending: Ending) -> None:
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
        fail(str(error) if ending.fault is None or not isinstance(error, OSError) else _unwritten(ending.fault))
    except KeyboardInterrupt:
        print("torchperc: interrupted", file=sys.stderr)
        raise SystemExit(130) from None
    if ending.fault is not None:
        fail(_unwritten(ending.fault))


def _unwritten(fault: BaseException) -> str:
    """What is lost when a thread fails: the one that there is writes for TensorBoard."""
    reason = getattr(fault, "strerror", None) or fault
    return f"cannot write the event files of the run ({reason}); free some space, or choose a writable folder"


def _dispatch(words: list[str]) -> None:
    if words and words[0] in _CONFIGURED:
        require_packages(f"torchperc {words[0]}", "jsonargparse")
        os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "FATAL")  # of a process that is lost, torch prints its own stack
        command, arguments = importlib.import_module("torchperc.cli.configured"), argparse.Namespace(words=words)
    else:
        arguments = _parser().parse_args(words)
        command = importlib.import_module(f"torchperc.cli.{arguments.command}")
    try:
        command.run(arguments)
    except ValueError as error:
        if not hasattr(error, "text"):  # a ParameterError has: its parameters are data
            raise
        names = getattr(command, "OPTIONS", {})
        raise ValueError(error.text(lambda option: _spelled(option, arguments, names))) from None


def _spelled(option: Any, arguments: argparse.Namespace, names: Mapping[str, str]) -> str:
    """A parameter of a library's error as the command's own option; others as in Python."""
    known = vars(arguments)
    name, value = names.get(option.name, option.name), option.value
    if name not in known and option.name not in names:
        return str(option)
    flag = f"--{name.replace('_', '-')}"
    if isinstance(value, bool):
        return flag if isinstance(known.get(name), bool | None) else f"{flag} {'yes' if value else 'no'}"
    return shlex.join([flag, *map(str, value if isinstance(value, list | tuple) else [value])])


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="torchperc", description="Perceptrons, learned by rule and by gradient.")
    parser.add_argument("--version", action="version", version=f"torchperc {torchperc.__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="command")
    for name, text in _COMMANDS.items():
        added = commands.add_parser(name, help=text)
        if name not in _CONFIGURED:
            importlib.import_module(f"torchperc.cli.{name}").add_arguments(added)
    return parser
