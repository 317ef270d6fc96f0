"""What commands share: files to write, tables on the terminal, one line for each warning, options in errors."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NoReturn

from torchperc._checks import Option, ParameterError
from torchperc.reports.text import columns, visible

_NAMES = {"folder": "out", "max_epochs": "epochs", "fractions": "split"}  # parameters with another name here


def is_first() -> bool:
    """Whether this process is the only one, or the first of its machine, as launchers number them."""
    return os.environ.get("LOCAL_RANK", "0") == "0"


def say(text: str, file: Any = None) -> None:
    """Print text of the data, made fit to be shown."""
    print(visible(text), file=file)


def warn(message: Warning | str, *_: Any, **__: Any) -> None:
    """Print a warning in one line on standard error; the first of several processes does."""
    if is_first():
        say(f"torchperc: warning: {' '.join(str(message).split())}", sys.stderr)


def fail(message: str, code: int = 2) -> NoReturn:
    """Print an error in one line and exit; of unconnected processes only the first prints."""
    dist = sys.modules.get("torch.distributed")
    if is_first() or (dist is not None and dist.is_available() and dist.is_initialized()):
        say(f"torchperc: error: {' '.join(message.split())}", sys.stderr)
    raise SystemExit(code)


def output_file(path: str | Path, option: str = "out") -> Path:
    """A file to write, in a folder that exists."""
    path = Path(path)
    if path.is_dir() or not path.absolute().parent.is_dir():
        raise ParameterError(Option(option, path), " is not a file in a folder that exists; make the folder first")
    return path


def print_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print cells in columns under a head."""
    for line in columns(head, rows):
        say(line)


def spelled(option: Option, flags: Iterable[str]) -> str:
    """Spell a parameter of a library's error as an option, if it is among those of the command.

    Example:
        >>> spelled(Option("max_epochs", 0), ["--epochs"]), spelled(Option("tie", "x"), [])
        ('--epochs 0', "tie='x'")
    """
    value, flag = option.value, f"--{_NAMES.get(option.name, option.name).replace('_', '-')}"
    if flag not in flags:
        return str(option)
    values = [] if isinstance(value, bool) else value if isinstance(value, list | tuple) else [value]
    return shlex.join([flag, *map(str, values)])
