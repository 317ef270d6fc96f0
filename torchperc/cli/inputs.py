"""What commands share: one line for each warning and error, files to write, tables on the terminal."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torchperc._checks import Option, ParameterError
from torchperc.cli.signals import is_first
from torchperc.reports.text import visible

if TYPE_CHECKING:
    from rich.console import Console


def say(text: str, file: Any = None) -> None:
    """Print text of the data, made fit to be shown."""
    print(visible(text), file=file)


def warn(message: Warning | str, *_: Any, **__: Any) -> None:
    """Print a warning in one line on standard error; the first of several processes does."""
    if is_first():
        say(f"torchperc: warning: {' '.join(str(message).split())}", sys.stderr)


def one_line_warnings() -> None:
    """Warnings from now on are one line on standard error."""
    warnings.showwarning = warn


def output_file(path: str | Path, option: str = "out") -> Path:
    """A file to write, in a folder that exists."""
    path = Path(path)
    if path.is_dir() or not path.absolute().parent.is_dir():
        raise ParameterError(Option(option, path), " is not a file in a folder that exists; make the folder first")
    return path


def output_folder(path: str | Path) -> Path:
    """A folder to write into, made if there is none."""
    path = Path(path)
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        why = f" cannot be made: {error.strerror or error}; choose another folder"
        raise ParameterError(Option("out", path), why) from None
    return path


def open_console(width: int = 0) -> Console:
    """Standard output for tables and the user's own text, brackets and all; so wide at least if it is no terminal."""
    from rich.console import Console

    made = Console(highlight=False, markup=False)
    if not made.is_terminal:
        made.width = max(made.width, width)
    return made
