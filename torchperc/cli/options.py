"""The options of all commands; one that is not given keeps the default of its command's function."""

from __future__ import annotations

import argparse
import inspect
from collections.abc import Callable
from typing import Any

import torchperc as tp
from torchperc.cli import commands, tag

CONFIGURED = {
    "fit": "train from a config",
    "validate": "validation loss and error of a checkpoint",
    "test": "test loss and error of a checkpoint",
    "predict": "labels or numbers by a checkpoint",
}
_CONFIGURED_HELP = """\
usage: torchperc {} --config FILE [options]

{}, as Lightning's own command line does; options override the config, later configs earlier ones.

options:
  --config FILE              YAML with model, data and trainer; may be given several times
  --out FOLDER               folder of the run: event files, checkpoint, weights (default: runs/last)
  --ckpt-path FILE           checkpoint to resume from, or to validate, test or predict with
  --seed-everything N        random seed (default: 0)
  --data.source FILE         data set by name, or a file
  --model.init_args.lr X     learning rate; other arguments of the module likewise
  --trainer.max_epochs N     maximum number of epochs (default: 100)
  --trainer.accelerator NAME cpu, gpu or auto; --trainer.devices N of them
  --picture-every N          epochs between pictures (default: 10; 0: none)
  --print_config             print the whole config and stop
  --help.all                 every option of module, data and Trainer (takes some seconds)
"""
_DATA = "AND, OR, NAND, NOR, XOR, XNOR, parity-n, iris, …, or a file: CSV, TSV, Parquet, svmlight, .npy or .npz"
_RUN: dict[str, Any] = {"metavar": "RUN", "help": "the folder of a run, or its weights.safetensors"}
_PLAY_DATA = "begin with these points: a file; or AND, XOR, iris, …; two features, up to four classes"
_ACTIVATIONS = ("tanh", "relu", "sigmoid", "leaky_relu", "elu", "gelu", "silu", "softplus", "identity")


class UsageError(ValueError):
    """An unknown command."""


class _Parser(argparse.ArgumentParser):
    def __init__(self, **options: Any) -> None:
        super().__init__(allow_abbrev=False, argument_default=argparse.SUPPRESS, **options)

    def error(self, message: str) -> None:  # type: ignore[override]  # argparse prints the whole usage first
        raise UsageError(f"{message} (see {self.prog} --help)")

    def format_help(self) -> str:
        name = self.prog.split()[-1]
        return _CONFIGURED_HELP.format(name, CONFIGURED[name]) if name in CONFIGURED else super().format_help()


def parser(several: bool = True) -> argparse.ArgumentParser:
    """The parser of all commands; an option of several words reads one word each time unless ``several``."""
    words: dict[str, Any] = {"action": "extend", "nargs": "+" if several else 1, "metavar": "COLUMN"}
    made = _Parser(prog="torchperc", description="Perceptrons, learned by rule and by gradient.")
    made.add_argument("--version", action="version", version=f"torchperc {tp.__version__}")
    found = made.add_subparsers(required=True, metavar="command")

    def command(function: Callable[..., Any], name: str = "", among: Any = found) -> Callable[..., Any]:
        about = inspect.getdoc(function) or ""
        summary = about.partition("\n")[0].rstrip(".")
        one = among.add_parser(name or function.__name__, help=summary, description=about)
        one.set_defaults(command=function, flags=one._option_string_actions)
        add: Callable[..., Any] = one.add_argument
        return add

    add = command(commands.learn)
    add("source", nargs="+", metavar="data", help=f"{_DATA}; a pattern, or several files")
    add("-o", "--out", dest="folder", help="folder of the run (default: runs/NAME, or runs/NAME-2 if that exists)")
    add("--overwrite", action="store_true", help="replace an earlier run in the folder")
    _add_reading(add, words)
    add("--task", choices=("classification", "regression"), help="default: inferred from the target")
    add("--stream", **_yes_or_no("auto"), help="convert the file to a memory-mapped array (default: if it is large)")
    add("--split", type=float, nargs=3, help="training, validation and test fractions (default: 0.6 0.2 0.2)")
    add("--scale", choices=("auto", "standard", "minmax", "maxabs", "none"), help="default: auto")
    add("--epochs", type=int, dest="max_epochs", help="maximum (default: 30 for the rule, 200 full-batch steps)")
    add("--seed", type=int, help="random seed of split and order (default: 0)")
    add("--dtype", choices=("float32", "float64"), help="of the weights (default: float32)")
    add("--report", **_yes_or_no(), help="write report.html and card.md (default: yes)")

    add = command(commands.apply)
    add("model", **_RUN)
    add("source", nargs="+", metavar="data", help="files with the columns of training; or a pattern, such as new/*.csv")
    add("-o", "--out", help=".csv, .csv.gz, .tsv, .tsv.gz or .parquet (default: CSV on standard output)")
    add("--unknown", choices=("error", "ignore"), help="a category that training did not have (default: error)")
    add("--keep", **{**words, "nargs": "*" if several else 1}, help="columns to write, too; without a name all")

    text = "Tags for the tokens of sentences, learned by the perceptron rule on whole sentences."
    tags = found.add_parser("tag", help=text.partition(",")[0].lower(), description=text)
    actions = tags.add_subparsers(required=True, metavar="fit | eval | apply")
    formats = ("conll", "conllu", "slash", "text")
    for action, function in {"fit": tag.fit, "eval": tag.evaluate, "apply": tag.apply}.items():
        add = command(function, action, actions)
        if action == "fit":
            add("file", help="tokens with tags")
            add("--dev", metavar="FILE", help="evaluate on this file after each epoch")
            add("-o", "--out", help="file of the tagger (default: runs/ and the name of the file)")
            add("--overwrite", action="store_true", help="replace the file of the tagger if there is one")
            add("--epochs", type=int, help="passes over the file (default: 5)")
            add("--templates", metavar="FILE", help="feature templates in the syntax of CRF++")
            add("--seed", type=int, help="random seed for shuffling sentences (default: 0)")
        else:
            add("model", help="a file written by tag fit")
        if action == "apply":
            add("file", nargs="?", help="text (default: standard input)")
            add("-o", "--out", help="write to this file (default: standard output)")
        else:
            add("--column", help="of the tags, by number from 1, in CoNLL-U also by name (default: the last, or upos)")
        if action == "eval":
            add("file", help="tokens with tags")
        add("--format", choices=formats, help="of the file (default: by its name and first lines)")
        add("--separator", help="between columns, \\t for a tab (default: runs of blanks and tabs)")

    add = command(commands.export)
    add("run", **_RUN)
    add("--to", choices=("onnx", "safetensors", "torch"), required=True, help="kind of file")
    add("-o", "--out", help="the file (default: model.onnx, model.safetensors or model.pt2 in the run)")

    add = command(commands.report)
    add("run", metavar="RUN", help="the folder of a run, or one with runs directly below it")
    add("-o", "--out", help="the page (default: report.html in the folder)")
    add("--card", help="write the same content as Markdown to this file, too")

    add = command(commands.separable)
    add("data", help=_DATA)
    add("--no-bias", action="store_true", help="hyperplanes through the origin only")
    add("--time-limit", type=float, help="seconds before giving up (default: no limit)")
    add("-o", "--out", help="write the proof to a JSON file")
    add("--verify", metavar="PROOF", help="check the proof in this file instead")
    _add_reading(add, words)

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
    _add_reading(add, words)

    for name, text in CONFIGURED.items():
        found.add_parser(name, help=text)

    command(commands.demo)("-o", "--out", help="folder of the files (default: runs/demo)")

    add = command(commands.play)
    add("-o", "--out", help="write the page to this file, and open nothing")
    add("--data", help=_PLAY_DATA)
    add("--log", help="replay a log that MistakeLog.save wrote: .npz, with --data for its data, or JSON")
    add("--features", nargs=2, help="the two features to be shown, by name or position from 1, where there are more")
    add("--samples", type=int, help="number to draw at random")
    _add_reading(add, words)

    add = command(commands.xor)
    add("--seeds", type=int, help="how many, 0, 1, 2, … (default: 1000)")
    add("--hidden", type=int, nargs="+", help="widths of the hidden layer (default: 2 4)")
    add("--activation", nargs="+", choices=_ACTIVATIONS, help="of the hidden layer (default: tanh relu)")
    add("--steps", type=int, help="full-batch steps (default: 5000)")
    add("-o", "--out", help="folder of the pictures (default: runs/xor)")
    return made


def _add_reading(add: Callable[..., Any], words: dict[str, Any]) -> None:
    """Add how a table is read, see ReadOptions."""
    add("--target", metavar="COLUMN", help="labels or targets, by name or position from 1 (default: the last column)")
    add("--missing", help="values: error names them, drop drops their rows, mean imputes (default: error)")
    add("--na", **{**words, "metavar": "SIGN"}, help="further signs of a missing value, beside empty cells, NA, nan, …")
    add("--header", **_yes_or_no("auto"), help="whether a text file begins with the names of its columns")
    add("--delimiter", help="between the cells of a text file (default: detected)")
    add("--decimal", help='"." or "," (default: recognised)')
    add("--encoding", help="of a text file, such as cp1252 (default: UTF-8)")
    add("--categories", **words, help="columns that are categories even if they hold numbers or dates")
    add("--ignore", **words, help="columns to ignore, by name or position")
    add("--text", **words, help="columns of free text, whose words and pairs of words become features")
    add("--positive", metavar="LABEL", help="a label to be +1 against all others")


def _yes_or_no(*more: str) -> dict[str, Any]:
    return {"type": yes_or_no, "metavar": f"{{{','.join(('yes', 'no', *more))}}}"}


def yes_or_no(word: str) -> bool | None:
    """The value of a word; others are a ``ValueError``."""
    return (True, False, None)[("yes", "no", "auto").index(word)]
