"""The command line: the options of all commands, calls, signals, errors in one line on stderr."""

from __future__ import annotations

import argparse
import contextlib
import gc
import inspect
import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn

import torchperc as tp
from torchperc._checks import ParameterError, require_packages
from torchperc.cli import commands, tag
from torchperc.cli.output import fail, is_first, say, spelled, warn

CONFIGURED = {
    "fit": "train from a config",
    "validate": "validation loss and error of a checkpoint",
    "test": "test loss and error of a checkpoint",
    "predict": "labels or numbers by a checkpoint",
}
_CONFIGURED_OPTIONS = {
    "--config": "YAML with model, data and trainer; later configs override earlier ones, options all of them",
    "--out": "folder of the run: event files, checkpoint, weights (default: runs/last)",
    "--ckpt-path": "checkpoint to resume from, or to validate, test or predict with",
    "--seed-everything": "random seed (default: 0)",
    "--data.source": "data set by name, or a file",
    "--model.init_args.lr": "learning rate; other arguments of the module likewise",
    "--trainer.max_epochs": "maximum number of epochs (default: 100)",
    "--trainer.accelerator": "cpu, gpu or auto; --trainer.devices: how many",
    "--picture-every": "epochs between pictures (default: 10; 0: none)",
    "--print_config": "print the whole config and stop",
    "--help.all": "every option of module, data and Trainer (takes some seconds)",
}
_DATA = "AND, OR, NAND, NOR, XOR, XNOR, parity-n, iris, …, or a file: CSV, TSV, Parquet, svmlight, .npy or .npz"
_SIGNALS = {"SIGINT": "interrupted", "SIGTERM": "stopped", "SIGHUP": "stopped, as the terminal was closed"}


def yes_or_no(word: str) -> bool | None:
    """The value of a word; others are a ``ValueError``."""
    return (True, False, None)[("yes", "no", "auto").index(word)]


_YES_OR_NO: dict[str, Any] = {"type": yes_or_no, "metavar": "{yes,no,auto}"}
_COLUMNS: dict[str, Any] = {"action": "extend", "nargs": "+", "metavar": "COLUMN"}


def main(argv: Sequence[str] | None = None) -> None:
    """Entry point of the ``torchperc`` command."""
    faults: list[Any] = []  # of the only other thread, which writes for TensorBoard
    warnings.showwarning = warn
    try:
        with _signals(faults):
            _call(list(sys.argv[1:] if argv is None else argv))
            sys.stdout.flush()
    except BrokenPipeError:  # the reader went away, as in `torchperc demo | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(141) from None
    except KeyboardInterrupt:  # where no signal is listened for
        say("torchperc: interrupted", sys.stderr)
        raise SystemExit(130) from None
    except (ValueError, TypeError, OSError, MemoryError) as error:
        if not faults or not isinstance(error, OSError):
            fail(str(error))
    finally:
        if argv is None and "triton" not in sys.modules:  # which complains
            gc.freeze()  # a program, which ends here: its objects need not be looked through for garbage first
    if faults:
        reason = getattr(faults[0], "strerror", None) or faults[0]
        fail(f"cannot write the event files of the run ({reason}); free some space, or choose a writable folder")


def _call(words: list[str]) -> None:
    """Call the function of a command; an error names its options as they are written here."""
    flags: Any = ("--out",)
    try:
        if words and words[0] in CONFIGURED and not {"-h", "--help"} & set(words):
            require_packages(f"torchperc {words[0]}", "jsonargparse")
            os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "FATAL")  # of a lost process, torch prints its own stack
            from torchperc.cli import fit

            fit.run(words[0], ["--help" if word == "--help.all" else word for word in words[1:]])
            return
        given = vars(parser().parse_args(words))
        command, flags = given.pop("command"), [*given.pop("flags"), "--missing"]  # which errors of apply name
        if len(given.get("source", ())) == 1:  # which may be a name instead of a file
            given["source"] = given["source"][0]
        command(**given)
    except ParameterError as error:
        raise ValueError(error.text(lambda option: spelled(option, flags))) from None


@contextlib.contextmanager
def _signals(faults: list[Any]) -> Iterator[None]:
    """Within the block a signal, unless ignored, ends the command after cleanup, a second one at once; lists faults."""
    hook, threading.excepthook = threading.excepthook, lambda args: faults.append(args.exc_value)
    own = threading.current_thread() is threading.main_thread()  # no other can listen
    known = [getattr(signal, name) for name in _SIGNALS if own and hasattr(signal, name)]
    before = {number: signal.getsignal(number) for number in known if signal.getsignal(number) != signal.SIG_IGN}
    for number in before:
        signal.signal(number, _leave)
    try:
        yield
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


class _Parser(argparse.ArgumentParser):
    def __init__(self, **options: Any) -> None:
        super().__init__(allow_abbrev=False, argument_default=argparse.SUPPRESS, **options)

    def error(self, message: str) -> NoReturn:  # argparse prints the whole usage first
        told = message.replace("required: data", "required: data, before options of several words")
        raise ValueError(f"{told} (see {self.prog} --help)")


def parser() -> argparse.ArgumentParser:
    """The parser of all commands; an option that is not given keeps the default of its command's function."""
    made = _Parser(prog="torchperc", description="Perceptrons, learned by rule and by gradient.")
    made.add_argument("--version", action="version", version=f"torchperc {tp.__version__}")
    found = made.add_subparsers(required=True, metavar="command")

    def command(function: Any, name: str = "", among: Any = found) -> Any:
        about = inspect.getdoc(function) or ""
        one = among.add_parser(name or function.__name__, help=about.partition(".\n")[0], description=about)
        one.set_defaults(command=function, flags=one._option_string_actions)
        return one.add_argument

    add = command(commands.learn)
    add("source", nargs="+", metavar="data", help=f"{_DATA}; a pattern, or several files")
    add("-o", "--out", dest="folder", help="folder of the run (default: runs/NAME, or runs/NAME-2 if that exists)")
    add("--overwrite", action="store_true", help="replace an earlier run in the folder")
    _add_reading(add)
    add("--task", choices=("classification", "regression"), help="default: inferred from the target")
    add("--split", type=float, nargs=3, help="training, validation and test fractions (default: 0.6 0.2 0.2)")
    add("--scale", choices=("auto", "standard", "minmax", "maxabs", "none"), help="default: auto")
    add("--epochs", type=int, dest="max_epochs", help="maximum (default: 30 for the rule, 200 full-batch steps)")
    add("--seed", type=int, help="random seed of split and order (default: 0)")
    add("--dtype", choices=("float32", "float64"), help="of the weights (default: float32)")
    add("--report", **_YES_OR_NO, help="write report.html (default: yes)")

    add = command(commands.apply)
    add("model", metavar="RUN", help="the folder of a run, or its weights.safetensors")
    add("source", nargs="+", metavar="data", help="files with the columns of training; or a pattern, such as new/*.csv")
    add("-o", "--out", help=".csv, .csv.gz, .tsv, .tsv.gz or .parquet (default: CSV on standard output)")
    add("--unknown", choices=("error", "ignore"), help="a category that training did not have (default: error)")
    add("--keep", **{**_COLUMNS, "nargs": "*"}, help="columns to write, too; without a name all")

    about = "Tags for the tokens of sentences, learned by the perceptron rule on whole sentences."
    tags = found.add_parser("tag", help=about.partition(",")[0].lower(), description=about)
    actions = tags.add_subparsers(required=True, metavar="fit | eval | apply")
    for action, function in {"fit": tag.fit, "eval": tag.evaluate, "apply": tag.apply}.items():
        add, new = command(function, action, actions), action == "apply"
        if action != "fit":
            add("model", help="a file written by tag fit")
        add("file", nargs="?" if new else None, help="text (default: standard input)" if new else "tokens with tags")
        if action != "eval":
            out = "standard output" if new else "runs/ and the name of the file"
            add("-o", "--out", help=f"file of the {'tags' if new else 'tagger'} (default: {out})")
        if action == "fit":
            add("--overwrite", action="store_true", help="replace the file of the tagger if there is one")
            add("--dev", metavar="FILE", help="evaluate on this file after each epoch")
            add("--epochs", type=int, help="passes over the file (default: 5)")
            add("--templates", metavar="FILE", help="feature templates in the syntax of CRF++")
            add("--seed", type=int, help="random seed for shuffling sentences (default: 0)")
        if not new:
            add("--column", help="of the tags, by number from 1, in CoNLL-U also by name (default: the last, or upos)")
        add(
            "--format",
            choices=("conll", "conllu", "slash", "text"),
            help="default: by name and first lines of the file",
        )
        tab = {"type": lambda word: word.replace("\\t", "\t")}  # which a shell has no short way to write
        add("--separator", **tab, help="between columns, \\t for a tab (default: runs of blanks and tabs)")

    add = command(commands.export)
    add("run", metavar="RUN", help="the folder of a run, or its weights.safetensors")
    add("--to", choices=("onnx", "safetensors", "torch"), required=True, help="kind of file")
    add("-o", "--out", help="the file (default: model.onnx, model.safetensors or model.pt2 in the run)")

    add = command(commands.report)
    add("run", metavar="RUN", help="the folder of a run")
    add("-o", "--out", help="the page (default: report.html in the folder)")

    add = command(commands.separable)
    add("data", help=_DATA)
    add("--no-bias", action="store_true", help="hyperplanes through the origin only")
    add("--time-limit", type=float, help="seconds before giving up (default: no limit)")
    add("-o", "--out", help="write the proof to a JSON file")
    _add_reading(add)

    add = command(commands.crosscheck)
    add("data", help=_DATA)
    add("--lr", type=float, help="learning rate η of both sides (default: 1)")
    add("--epochs", type=int, help="maximum number of epochs (default: 20)")
    add("--tie", choices=("update", "sign", "strict"), help="what is a mistake (default: update)")
    add("--bias-step", choices=("unit", "radius", "none"), help="how the bias moves (default: unit)")
    add("--order", choices=("given", "shuffled", "random-mistake"), help="of the samples (default: given)")
    add("--seed", type=int, help="of the order (default: 0)")
    add("--dtype", choices=("float32", "float64"), help="of the weights (default: float64)")
    add("--mode", choices=("sample", "batch"), help="a step per sample, or per batch (default: sample)")
    _add_reading(add)

    for name, text in CONFIGURED.items():
        one = found.add_parser(name, help=text, description=text, usage=f"torchperc {name} --config FILE [options]")
        for flag, meaning in _CONFIGURED_OPTIONS.items():
            one.add_argument(flag, metavar="", help=meaning)

    command(commands.demo)("-o", "--out", help="folder of the files (default: runs/demo)")

    add = command(commands.play)
    add("-o", "--out", help="write the page to this file, and open nothing")
    add("--data", help="begin with these points: a file; or AND, XOR, iris, …; two features, up to four classes")
    add("--log", help="replay a log that MistakeLog.save wrote: .npz, with --data for its data, or JSON")
    add("--features", nargs=2, help="the two features to be shown, by name or position from 1, where there are more")
    add("--samples", type=int, help="number to draw at random")
    _add_reading(add)

    add = command(commands.xor)
    add("--seeds", type=int, help="how many, 0, 1, 2, … (default: 1000)")
    add("--hidden", type=int, nargs="+", help="widths of the hidden layer (default: 2 4)")
    add("--activation", nargs="+", help="of the hidden layer: tanh, relu, sigmoid, … (default: tanh relu)")
    add("--steps", type=int, help="full-batch steps (default: 5000)")
    add("--method", help="gradient, or build step units by the rule: tower, pyramid, upstart, tiling, madaline")
    add("-o", "--out", help="folder of the pictures (default: runs/xor)")
    return made


def _add_reading(add: Callable[..., Any]) -> None:
    """Add how a table is read, see ReadOptions."""
    add("--target", metavar="COLUMN", help="labels or targets, by name or position from 1 (default: the last column)")
    add("--missing", help="values: error names them, drop drops their rows, mean imputes (default: error)")
    add(
        "--na", **{**_COLUMNS, "metavar": "SIGN"}, help="signs of a missing value, beside empty cells, NA, nan, null, ?"
    )
    add("--header", **_YES_OR_NO, help="whether a text file begins with the names of its columns (default: auto)")
    add("--delimiter", help="between the cells of a text file (default: detected)")
    add("--decimal", help='"." or "," (default: recognised)')
    add("--encoding", help="of a text file, such as cp1252 (default: UTF-8)")
    add("--categories", **_COLUMNS, help="columns that are categories even if they hold numbers or dates")
    add("--ignore", **_COLUMNS, help="columns to ignore, by name or position")
    add("--text", **_COLUMNS, help="columns of free text, whose words and pairs of words become features")
    add("--positive", metavar="LABEL", help="a label to be +1 against all others")
