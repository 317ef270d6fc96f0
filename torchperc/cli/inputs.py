"""Data on the command line: how every command that reads a table is told where it is and how to read it."""

from __future__ import annotations

import argparse
import contextlib
import re
import sys
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from torchperc.reports.text import visible

if TYPE_CHECKING:
    from torchperc.data import Dataset

FORMATS = "CSV, TSV (also .gz), Parquet, svmlight, .npy or .npz"
_NAMES = "missing|ignore|categories|header|delimiter|positive|target|folder|scale|seed|max_unpacked|max_features"
_DENSE = 2**28  # bytes up to which sparse data are written out for those who need them dense


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """How a file is read; the same for every command that reads one."""
    parser.add_argument("--target", help="column of labels, by name or position from 1 (default: the last)")
    parser.add_argument(
        "--missing",
        choices=("error", "drop", "mean"),
        default="error",
        help="rows with missing values: stop, drop them, or fill in the mean of the column (default: %(default)s)",
    )
    parser.add_argument(
        "--header",
        choices=("auto", "yes", "no"),
        default="auto",
        help="whether the first line names the columns (default: if it has no number)",
    )
    parser.add_argument("--delimiter", help="between the cells of text (default: found among , ; tab and |)")
    again = "by name or position; may be given several times"
    parser.add_argument(
        "--categories", action="append", metavar="COLUMN", help=f"a column of numbers to be taken as words, {again}"
    )
    parser.add_argument("--ignore", action="append", metavar="COLUMN", help=f"a column to leave out, {again}")
    parser.add_argument("--positive", metavar="LABEL", help="learn this label against all others together")
    add_limit(parser)
    parser.add_argument(
        "--max-features", type=int, metavar="N", help="features there may be (default: as many as memory is good for)"
    )


def add_limit(parser: argparse.ArgumentParser) -> None:
    """How far a compressed file may expand; the same for every command that reads one."""
    parser.add_argument(
        "--max-unpacked",
        type=int,
        metavar="BYTES",
        help="that a compressed file may unpack to (default: 256 MiB, or 500 times its size if that is more)",
    )


def options(arguments: argparse.Namespace) -> dict[str, Any]:
    """The options of :func:`torchperc.data.load` that were given on the command line."""
    given = {
        "target": arguments.target,
        "missing": None if arguments.missing == "error" else arguments.missing,
        "header": {"auto": None, "yes": True, "no": False}[arguments.header],
        "delimiter": arguments.delimiter,
        "categories": arguments.categories,
        "ignore": arguments.ignore,
        "positive": arguments.positive,
        "max_unpacked": arguments.max_unpacked,
        "max_features": arguments.max_features,
    }
    return {name: value for name, value in given.items() if value is not None}


def words(arguments: argparse.Namespace) -> list[str]:
    """The same options as words of a command."""
    found = []
    for name, value in options(arguments).items():
        values = value if isinstance(value, list) else [{True: "yes", False: "no"}.get(value, str(value))]
        found += [word for each in values for word in (_option(name), each)]
    return found


def one_line_warnings() -> None:
    """Warnings from now on are one line on standard error."""
    warnings.showwarning = warn


def warn(message: Warning | str, *_: Any, **__: Any) -> None:
    """Print a warning in one line on standard error."""
    print(f"torchperc: warning: {visible(' '.join(str(message).split()))}", file=sys.stderr)


def load(arguments: argparse.Namespace) -> Dataset:
    """The table, by the name of a gate or a data set, or from a file."""
    from pathlib import Path

    from torchperc import data

    given = options(arguments)
    if data.is_gate(arguments.data) and given:
        name, value = next(iter(given.items()))
        raise ValueError(f"--{name}={value} goes with a file; {arguments.data} is a gate")
    known = data.is_gate(arguments.data) or arguments.data in data.SOURCES
    with as_options():
        return data.load(arguments.data if known else Path(arguments.data), **given)


@contextlib.contextmanager
def as_options() -> Iterator[None]:
    """Errors of the library in the words of the command line: ``--missing drop`` where it says ``missing=drop``."""
    try:
        yield
    except ValueError as error:
        raise ValueError(_as_options(str(error))) from None


def _as_options(message: str) -> str:
    said = re.sub(r"\bfractions=\(([^)]*)\)", lambda found: f"--split {found[1].replace(',', '')}", message)
    said = re.sub(r"\bmax_epochs=", "--epochs ", said).replace("overwrite=True (--overwrite)", "--overwrite")
    said = re.sub(rf"\b({_NAMES})='([^']*)'", lambda found: f"{_option(found[1])} {found[2]}", said)
    return re.sub(rf"\b({_NAMES})=(?=\S)", lambda found: f"{_option(found[1])} ", said)


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def load_dense(arguments: argparse.Namespace) -> Dataset:
    """The table, sparse samples written out."""
    from dataclasses import replace

    import torch

    from torchperc import _checks as checks

    table = load(arguments)
    if not checks.is_sparse(table.X):
        return table
    rows, width = table.X.shape
    if rows * width * 8 > _DENSE:
        raise ValueError(
            f"{arguments.data} is sparse, and {rows:,} samples of {width:,} features are too many to be written out; "
            "take some of them, or use torchperc learn, which keeps them sparse"
        )
    return replace(table, X=torch.from_numpy(table.X.toarray()))
