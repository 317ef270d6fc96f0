"""What a run leaves in its folder: names of files, curves by epoch, how the run is made again."""

from __future__ import annotations

import csv
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from torchperc._checks import require_packages
from torchperc._files import write_atomically
from torchperc.reports.page import Block, Code, Text

if TYPE_CHECKING:
    from torchperc.plots.curves import Curve
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
    events = _read_events(folder)
    return {tag: _curve_of(events, tag) for tag in events.Tags()["scalars"]}


def _read_events(folder: Path) -> Any:
    """The event files of a folder, as TensorBoard reads them."""
    require_packages("reading event files", "tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator  # type: ignore[import-untyped]

    events = EventAccumulator(str(folder), size_guidance={"scalars": 0, "images": 1, "histograms": 1})
    events.Reload()
    return events


def _curve_of(events: Any, tag: str) -> tuple[Curve, Curve]:
    """Epochs and values of a scalar; of a step that was logged twice, as by a run that was resumed, the later one."""
    values = {event.step: event.value for event in events.Scalars(tag)}
    steps = sorted(values)
    return _epochs(events, steps), np.array([values[step] for step in steps], dtype=np.float64)


def _epochs(events: Any, steps: Sequence[int]) -> Curve:
    """Where steps are among epochs; of several within one, each is as far as its number among them.

    A Trainer counts batches, and logs how many epochs are complete beside them; without that, steps are epochs.
    """
    scalars = events.Tags()["scalars"]
    tests = {event.step for tag in scalars if tag.endswith("/test") for event in events.Scalars(tag)}
    logged = events.Scalars("epoch") if "epoch" in scalars else ()
    known = {event.step: event.value + (event.step not in tests) for event in logged}  # a test follows its epoch's end
    if not all(step in known for step in steps):
        return np.array(steps, dtype=np.float64)
    epochs, first, own, counts = np.unique([known[step] for step in steps], True, True, True)
    return np.asarray(epochs[own] - 1 + (np.arange(1, len(steps) + 1) - first[own]) / counts[own], dtype=np.float64)


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
