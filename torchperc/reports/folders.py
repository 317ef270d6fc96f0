"""What a run leaves in its folder: names of files, curves by epoch, how the run is made again."""

from __future__ import annotations

import csv
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from torchperc._files import write_atomically
from torchperc.reports.page import Block, Code, Text

if TYPE_CHECKING:
    from torchperc.reports.subject import Curves

CONFIG = "config.yaml"
RESULTS = "results.json"
CURVES = "metrics.csv"
"""Curves by epoch, a column each, of a run that was not logged to event files."""


def is_run(folder: Path) -> bool:
    """Whether a folder is that of a run, by ``torchperc fit`` or ``torchperc learn``."""
    return (folder / CONFIG).is_file() or (folder / RESULTS).is_file()


def runs_below(folder: Path) -> list[Path]:
    """The folders of runs directly below a folder, by name."""
    shown = (path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))
    return sorted(path for path in shown if is_run(path))


def write_curves(folder: Path, curves: Curves) -> None:
    """Write curves, of which each has a value for the epochs 1, 2, …; :func:`curves_of` reads them."""
    epochs = range(1, 1 + max((len(steps) for steps, _ in curves.values()), default=0))
    rows = zip(epochs, *(values.tolist() for _, values in curves.values()), strict=True)
    lines = [",".join(("epoch", *curves)), *(",".join(map(repr, row)) for row in rows)]
    write_atomically(folder / CURVES, "".join(f"{line}\n" for line in lines).encode())


def curves_of(folder: Path) -> Curves:
    """Epochs and values of every curve of a run; of an epoch logged twice the later value.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     write_curves(Path(folder), {"error/val": (np.array([1.0, 2.0]), np.array([0.5, 0.25]))})
        ...     curves_of(Path(folder))
        {'error/val': (array([1., 2.]), array([0.5 , 0.25]))}
    """
    path = folder / CURVES
    if path.is_file():
        try:
            names, *rows = csv.reader(path.read_text().splitlines())
            table = np.array(rows, dtype=np.float64).reshape(-1, len(names))
        except (ValueError, OSError) as error:
            raise ValueError(f"{path} is not what `torchperc learn` writes ({error}); run it again") from None
        return {name: (table[:, 0], table[:, j]) for j, name in enumerate(names) if j}
    from torchperc.plots.curves import curve_of, read_events

    events = read_events(folder)
    return {tag: curve_of(events, tag) for tag in events.Tags()["scalars"]}


def command_and_config(folder: Path, text: str) -> list[Block]:
    """How the run of a folder with a config is made again.

    Example:
        >>> command_and_config(Path("runs/and"), "lr: 1")[1].text
        'torchperc fit --config runs/and/config.yaml --out runs/and-again'
    """
    return [
        Text("The config and the versions below reproduce the run:"),
        Code(shlex.join(["torchperc", "fit", "--config", str(folder / CONFIG), "--out", f"{folder}-again"])),
        Code(text),
    ]
