"""Options that several commands share: where data are and how they are read, where results go, how to print them."""

from __future__ import annotations

import argparse
import shlex
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torchperc.cli.entry import warn
from torchperc.reports.text import visible

if TYPE_CHECKING:
    from rich.console import Console

    from torchperc.data import Dataset

FORMATS = "CSV, TSV (also .gz), Parquet, svmlight, .npy or .npz"
_DENSE = 2**28  # bytes up to which sparse data are converted for those who need them dense


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """How a file is read; the same for every command that reads one."""
    parser.add_argument("--target", help="column of labels or numbers, by name or position from 1 (default: the last)")
    missing = "rows with missing values: stop, drop them, or fill in the mean of the column (default: %(default)s)"
    parser.add_argument("--missing", choices=("error", "drop", "mean"), default="error", help=missing)
    header = "whether the first line names the columns (default: if it has no number)"
    parser.add_argument("--header", choices=("auto", "yes", "no"), default="auto", help=header)
    parser.add_argument("--delimiter", help="between the cells of text (default: found among , ; tab and |)")
    again = "by name or position; may be given several times"
    columns: dict[str, Any] = {"action": "append", "metavar": "COLUMN"}
    parser.add_argument("--categories", **columns, help=f"a column of numbers that are categories, {again}")
    words = "a column of free text, whose words become features (default: columns of long texts that are nearly all"
    parser.add_argument("--text", **columns, help=f"{words} different), {again}")
    parser.add_argument("--ignore", **columns, help=f"a column to ignore, {again}")
    parser.add_argument("--positive", metavar="LABEL", help="learn this label against all others together")
    parser.add_argument("--decimal", choices=(".", ","), help="decimal sign (default: found in the file)")
    parser.add_argument("--encoding", help="of a text file, such as cp1252 (default: UTF-8)")
    parser.add_argument("--na", action="append", metavar="SIGN", help="a further sign of a missing value, such as -")


def options(arguments: argparse.Namespace) -> dict[str, Any]:
    """The options of :func:`torchperc.data.load` that were given on the command line."""
    names = ("target", "missing", "header", "delimiter", "decimal", "encoding", "na")
    given = {name: getattr(arguments, name) for name in (*names, "categories", "text", "ignore", "positive")}
    given["missing"] = None if arguments.missing == "error" else arguments.missing
    given["header"] = {"auto": None, "yes": True, "no": False}[arguments.header]
    return {name: value for name, value in given.items() if value is not None}


def words(arguments: argparse.Namespace) -> list[str]:
    """The same options as words of a command."""
    found = []
    for name, value in options(arguments).items():
        values = value if isinstance(value, list) else [{True: "yes", False: "no"}.get(value, str(value))]
        found += [word for each in values for word in (f"--{name.replace('_', '-')}", each)]
    return found


def load(arguments: argparse.Namespace) -> Dataset:
    """The table, by the name of a gate or a data set, or from a file; one with labels."""
    from torchperc import data
    from torchperc._checks import Option, ParameterError

    given = options(arguments)
    if data.is_gate(arguments.data) and given:
        raise ParameterError(Option(*next(iter(given.items()))), f" needs a file; {arguments.data} is a gate")
    known = data.is_gate(arguments.data) or arguments.data in data.SOURCES
    table = data.load(arguments.data if known else Path(arguments.data), **given)
    if table.task == "regression":
        has = table.inferred_task.removesuffix(": regression") or f"the target of {arguments.data} is a quantity"
        why = f"{has}, and torchperc {arguments.command} needs classes; to predict numbers: torchperc learn "
        words = ([] if arguments.target is None else ["--target", arguments.target]) + ["--task", "regression"]
        raise ValueError(f"{why}{shlex.join([arguments.data, *words])}")
    return table


def load_dense(arguments: argparse.Namespace) -> Dataset:
    """The table, sparse samples made dense."""
    table = load(arguments)
    from dataclasses import replace

    import torch

    from torchperc._checks import is_sparse

    if not is_sparse(table.X):
        return table
    rows, width = table.X.shape
    if rows * width * 8 > _DENSE:
        raise ValueError(
            f"{arguments.data} is sparse, and {rows:,} samples of {width:,} features are too many to be made dense; "
            "use fewer of them, or torchperc learn, which keeps them sparse"
        )
    return replace(table, X=torch.from_numpy(table.X.toarray()))


def output_file(path: str | Path, option: str = "out") -> Path:
    """A file to write, in a folder that exists."""
    from torchperc._checks import Option, ParameterError

    path = Path(path)
    if path.is_dir() or not path.absolute().parent.is_dir():
        raise ParameterError(Option(option, path), " is not a file in a folder that exists; make the folder first")
    return path


def output_folder(path: str | Path) -> Path:
    """A folder to write into, made if there is none."""
    from torchperc._checks import Option, ParameterError

    path = Path(path)
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        why = f" cannot be made: {error.strerror or error}; choose another folder"
        raise ParameterError(Option("out", path), why) from None
    return path


def console(width: int = 0) -> Console:
    """Standard output for tables and the user's own text, brackets and all; so wide at least if it is no terminal."""
    from rich.console import Console

    made = Console(highlight=False, markup=False)
    if not made.is_terminal:
        made.width = max(made.width, width)
    return made


def say(text: str) -> None:
    """Print text of the data, made fit to be shown."""
    print(visible(text))


def one_line_warnings() -> None:
    """Warnings from now on are one line on standard error."""
    warnings.showwarning = warn
