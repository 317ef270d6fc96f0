"""The command line: options from the signatures of functions, errors in one line on stderr."""

from __future__ import annotations

import argparse
import contextlib
import gc
import inspect
import os
import re
import signal
import sys
import threading
import warnings
from ast import literal_eval
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torchperc as tp
from torchperc._checks import ParameterError, require_packages
from torchperc.cli import commands, tag
from torchperc.cli.output import FLAGS, NAMES, is_first, say, spelled, warn

CONFIGURED = {
    "fit": "train from a config",
    "validate": "validation loss and error of a checkpoint",
    "test": "test loss and error of a checkpoint",
    "predict": "labels or numbers by a checkpoint",
}
COMMANDS = ("learn", "apply", "tag", "export", "report", "separable", "crosscheck", *CONFIGURED, "demo", "play", "xor")
TAG: dict[str, Callable[..., Any]] = {"fit": tag.fit, "eval": tag.evaluate, "apply": tag.apply}
_READERS: dict[str, tuple[Callable[..., Any], set[str]]] = {
    "options": (tp.data.read, {"path"}),
    "reading": (tp.data.read, {"path", "task", "stream"}),
    "layout": (tag.read, {"file", "default"}),
    "text": (tag.read, {"file", "default", "column"}),
}
"""Whose parameters stand for ``**``, by the name of the latter, and which of them are not options."""
_SIGNALS = {"SIGINT": "interrupted", "SIGTERM": "stopped", "SIGHUP": "stopped, as the terminal was closed"}


class UsageError(ValueError):
    """An unknown command."""


class _Parser(argparse.ArgumentParser):
    def __init__(self, **options: Any) -> None:
        super().__init__(allow_abbrev=False, **options)

    def error(self, message: str) -> None:  # type: ignore[override]  # argparse prints the whole usage first
        raise UsageError(f"{message} (see {self.prog} --help)")


def main(argv: Sequence[str] | None = None) -> None:
    """Entry point of the ``torchperc`` command."""
    try:
        with _signals() as faults:
            _run(list(sys.argv[1:] if argv is None else argv), faults)
    finally:
        # a program, which ends here: its objects need not be looked through for garbage first; Triton complains
        if argv is None and "triton" not in sys.modules:
            gc.freeze()


def _run(words: list[str], faults: list[Any]) -> None:
    warnings.showwarning = warn
    try:
        if words and words[0] in CONFIGURED:
            _run_configured(words)
        else:
            _call(vars(_parsed(words)))
        sys.stdout.flush()
    except BrokenPipeError:  # the reader went away, as in `torchperc demo | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(141) from None
    except (ValueError, TypeError, OSError, MemoryError) as error:
        if not faults or not isinstance(error, OSError):
            fail(str(error))
    except KeyboardInterrupt:  # where no signal is listened for
        say("torchperc: interrupted", sys.stderr)
        raise SystemExit(130) from None
    except RuntimeError as error:
        if type(error).__name__ != "ProcessError":  # whose module takes long to import
            raise
        fail(str(error), code=1)
    if faults:  # of the only thread that there is, which writes for TensorBoard
        reason = getattr(faults[0], "strerror", None) or faults[0]
        fail(f"cannot write the event files of the run ({reason}); free some space, or choose a writable folder")


def fail(message: str, code: int = 2) -> None:
    """Print an error in one line and exit; of unconnected processes only the first prints."""
    dist = sys.modules.get("torch.distributed")
    if is_first() or (dist is not None and dist.is_available() and dist.is_initialized()):
        say(f"torchperc: error: {' '.join(message.split())}", sys.stderr)
    raise SystemExit(code)


def _run_configured(words: list[str]) -> None:
    if {"-h", "--help"} & set(words):
        print(commands.CONFIGURED_HELP.format(command=words[0], what=CONFIGURED[words[0]]))
        return
    require_packages(f"torchperc {words[0]}", "jsonargparse")
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "FATAL")  # of a process that is lost, torch prints its own stack
    from torchperc.cli import fit

    try:
        fit.run(["--help" if word == "--help.all" else word for word in words])
    except ParameterError as error:
        raise ValueError(error.text(lambda option: spelled(option, {"out": None}))) from None


def _call(given: dict[str, Any]) -> None:
    """Call the function of a command; an error names its options as they are written here."""
    name = given.pop("command")
    command = TAG[given.pop("action")] if name == "tag" else getattr(commands, name)
    known = {each.name: each.default for each, _ in parameters(command)}
    if name != "tag" and len(given.get("source", ())) == 1:  # which may be a name instead of a file
        given["source"] = given["source"][0]
    try:
        command(**{name: value for name, value in given.items() if value != known[name]})
    except ParameterError as error:  # errors of apply name an option of learn
        raise ValueError(error.text(lambda option: spelled(option, {"missing": None, **known}))) from None


@contextlib.contextmanager
def _signals() -> Iterator[list[Any]]:
    """Within the block a signal ends the command after cleanup, a second one at once; yields what threads raise.

    Signals that are ignored, as by ``nohup``, stay so.
    """
    faults: list[Any] = []
    hook, threading.excepthook = threading.excepthook, lambda args: faults.append(args.exc_value)
    own = threading.current_thread() is threading.main_thread()  # no other can listen
    known = [getattr(signal, name) for name in _SIGNALS if own and hasattr(signal, name)]
    before = {number: signal.getsignal(number) for number in known if signal.getsignal(number) != signal.SIG_IGN}
    for number in before:
        signal.signal(number, _leave)
    try:
        yield faults
    finally:
        threading.excepthook = hook
        for number, handler in before.items():
            signal.signal(number, handler)


def _leave(number: int, _: object) -> None:
    signal.signal(number, signal.SIG_DFL)
    if is_first():
        with contextlib.suppress(OSError):  # the terminal may be gone
            os.write(2, f"torchperc: {_SIGNALS[signal.Signals(number).name]}\n".encode())
    raise SystemExit(128 + number)


# --- arguments ----------------------------------------------------------------------------------------------------


def _parsed(words: list[str]) -> argparse.Namespace:
    """The arguments of a command. ``--ignore a b data.csv`` leaves no data: then each ``--ignore`` reads one word."""
    try:
        return parser().parse_args(words)
    except UsageError as error:
        with contextlib.suppress(UsageError):
            return parser(several=False).parse_args(words)
        raise error


def parser(several: bool = True) -> argparse.ArgumentParser:
    """The parser of all commands; an option of several words reads one word each time unless ``several``."""
    made = _Parser(prog="torchperc", description="Perceptrons, learned by rule and by gradient.")
    made.add_argument("--version", action="version", version=f"torchperc {tp.__version__}")
    found = made.add_subparsers(dest="command", required=True, metavar="command")
    for name in COMMANDS:
        if name in CONFIGURED:
            found.add_parser(name, help=CONFIGURED[name])
        elif name != "tag":
            _add_command(found, name, getattr(commands, name), several)
        else:
            text = "Tags for the tokens of sentences, learned by the perceptron rule on whole sentences."
            tags = found.add_parser(name, help=text.partition(",")[0].lower(), description=text)
            actions = tags.add_subparsers(dest="action", required=True, metavar="fit | eval | apply")
            for action, function in TAG.items():
                _add_command(actions, action, function, several)
    return made


def _add_command(found: Any, name: str, function: Callable[..., Any], several: bool) -> None:
    """Describe a command by its function: a parameter without a default is an argument, others are options."""
    about = _plain(function).partition("\nArgs:\n")[0].partition("\nExample")[0]
    made = found.add_parser(name, help=about.partition("\n")[0].rstrip(".").replace("%", "%%"), description=about)
    for parameter, text in parameters(function):
        default, required = parameter.default, parameter.default is parameter.empty
        shown, how = NAMES.get(parameter.name, parameter.name), _reading(parameter, several)
        if default == "-" or (required and parameter.kind is not parameter.KEYWORD_ONLY):
            more = {} if required else {"nargs": "?", "default": default}
            made.add_argument(parameter.name, metavar="RUN" if shown == "run" else shown, help=text, **how, **more)
            continue
        if default is not False and default not in (None, (), parameter.empty) and "default" not in text:
            values = default if isinstance(default, tuple) else ["yes" if default is True else default]
            text = f"{text.rstrip('.')} (default: {' '.join(map(str, values))})"
        flags = ["-o"] * (shown == "out") + [f"--{shown.replace('_', '-')}"]
        made.add_argument(*flags, dest=parameter.name, default=argparse.SUPPRESS, required=required, help=text, **how)


def parameters(function: Callable[..., Any]) -> Iterator[tuple[inspect.Parameter, str]]:
    """Yield a command's parameters with their help; ``**`` stands for how a file is read."""
    arguments = _plain(function).partition("\nArgs:\n")[2].partition("\n\n")[0]
    found = re.findall(r"^ {4}(\w+): (.+(?:\n {8}.+)*)", arguments, re.MULTILINE)
    told = {name: " ".join(text.split()).replace("%", "%%") for name, text in found}
    own = inspect.signature(function).parameters
    for name, parameter in own.items():
        if parameter.kind is not parameter.VAR_KEYWORD:
            if not str(parameter.annotation).startswith("Callable"):
                yield parameter, told[name]
            continue
        reader, hidden = _READERS[name] if function is not tp.data.read else (tp.data.ReadOptions, set())
        for each, text in parameters(reader):
            if each.name not in {*own, *hidden}:
                yield each, text


def _reading(parameter: inspect.Parameter, several: bool) -> dict[str, Any]:
    """How argparse reads the words of a parameter, by its annotation."""
    kind, how = str(parameter.annotation), dict[str, Any]()
    if "bool" in kind:
        if parameter.default is False or parameter.name in FLAGS:
            return {"action": "store_true"}
        return {"type": yes_or_no, "metavar": "{yes,no,auto}" if parameter.default is None else "{yes,no}"}
    if choices := re.search(r"Literal\[([^\]]*)\]", kind):
        how["choices"] = literal_eval(f"({choices[1]},)")
    elif number := re.search(r"\b(int|float)\b", kind.replace("str | int", "str")):
        how["type"] = {"int": int, "float": float}[number[1]]
    if kind.startswith("tuple["):
        how["nargs"] = kind.partition("]")[0].count(",") + 1
    elif "Sequence[" in kind and parameter.default is parameter.empty:
        how["nargs"] = "+"
    elif "Sequence[" in kind:
        words = {"nargs": "*" if parameter.name == "keep" else "+", "action": "extend"}
        how |= words if several else {"action": "append"}
    return how


def yes_or_no(word: str) -> bool | None:
    """The value of a word; others are a ``ValueError``."""
    return (True, False, None)[("yes", "no", "auto").index(word)]


def _plain(function: Callable[..., Any]) -> str:
    """A docstring without its markup."""
    text = inspect.getdoc(function) or ""
    return re.sub(r':\w+:`[~.\w]*?(\w+)`|``"?([^`"]*)"?``', lambda found: found[1] or found[2], text)
