"""Several runs on one chart: logs of runs by rule, or TensorBoard folders of any runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from torchperc import _checks as checks
from torchperc._lazy import requires
from torchperc.plots import style
from torchperc.plots.classifiers import check_log
from torchperc.plots.curves import Curve, draw_curve, errors_by_epoch
from torchperc.rules.log import MistakeLog

VALUES = {"error": "error in the epoch (%)", "mistakes": "mistakes in the epoch", "total": "mistakes so far"}
_TAGS = {
    "error/train": "training error (%)",
    "error/val": "validation error (%)",
    "error/test": "test error (%)",
    "loss/train": "training loss",
    "loss/val": "validation loss",
    "norm": "norm of the weights",
}


@dataclass(eq=False, repr=False)
class ComparisonDisplay(style.Display):
    """One curve of several runs, by epoch.

    Args:
        curves: epochs and values, by the name of the run.
        ylabel: what the values are.
        logarithmic: whether the values are drawn on a logarithmic scale.

    After :meth:`plot`, ``lines_`` has the lines by name.

    Example:
        >>> display = ComparisonDisplay({"a": ([1, 2], [3, 1]), "b": ([1, 2], [2, 0])}, "mistakes").plot()
        >>> sorted(display.lines_)
        ['a', 'b']
    """

    curves: Mapping[str, tuple[Sequence[float] | Curve, Sequence[float] | Curve]]
    ylabel: str
    logarithmic: bool = False

    @classmethod
    def from_logs(
        cls,
        logs: Mapping[str, MistakeLog],
        *,
        value: str = "error",
        logarithmic: bool = False,
        ax: style.AnyAxes = None,
    ) -> ComparisonDisplay:
        """Compare runs by rule by their logs (or results), named as in the legend.

        ``value`` is ``"error"`` for the fraction of mistakes among the samples of an epoch, ``"mistakes"`` for their
        number, ``"total"`` for the number so far.

        Example:
            >>> import torchperc as tp
            >>> logs = {gate: tp.RuleTrainer().fit(tp.Perceptron(2), *tp.data.gate(gate)).log for gate in ("AND", "OR")}
            >>> ComparisonDisplay.from_logs(logs, value="total").lines_["OR"].get_ydata().tolist()
            [3.0, 4.0, 6.0, 8.0, 9.0, 9.0]
        """
        checks.one_of("value", value, tuple(VALUES))
        curves = {}
        for name, log in _named("logs", logs).items():
            values: Curve = check_log(log).mistakes_by_epoch().double().cpu().numpy()
            if value == "error":
                values = 100 * errors_by_epoch(check_log(log))
            elif value == "total":
                values = values.cumsum()
            curves[str(name)] = (np.arange(1.0, len(values) + 1), values)
        return cls(curves, VALUES[value], logarithmic).plot(ax=ax)

    @classmethod
    def from_folders(
        cls,
        folders: Mapping[str, str | Path],
        *,
        tag: str = "error/train",
        logarithmic: bool = False,
        ax: style.AnyAxes = None,
    ) -> ComparisonDisplay:
        """Compare runs by the scalars that a TensorBoard logger left in their folders, named as in the legend.

        ``tag`` is one of ``error/train error/val loss/train loss/val mistakes norm margin`` or any other.

        Example:
            >>> import tempfile
            >>> from torch.utils.tensorboard import SummaryWriter
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     with SummaryWriter(folder) as board:
            ...         board.add_scalar("margin", 0.5, 1)
            ...     display = ComparisonDisplay.from_folders({"run": folder}, tag="margin")
            >>> display.lines_["run"].get_xydata().tolist()
            [[1.0, 0.5]]
        """
        if not isinstance(tag, str):
            raise TypeError(f"tag must be the name of a scalar, found {type(tag).__name__}")
        scale = 100 if tag.startswith("error/") else 1
        curves = {}
        for name, folder in _named("folders", folders).items():
            if not Path(folder).is_dir():
                raise ValueError(f"folder {folder} does not exist; name one in which a TensorBoard logger wrote")
            events = read_events(Path(folder))
            if tag not in (tags := events.Tags()["scalars"]):
                found = f"it has {', '.join(tags)}" if tags else "it has no scalars at all"
                raise ValueError(f"folder {folder} has no scalar tag={tag!r}; {found}")
            steps, values = curve_of(events, tag)
            curves[str(name)] = steps, scale * values
        return cls(curves, _TAGS.get(tag, tag), logarithmic).plot(ax=ax)

    def _draw(self, own: bool) -> None:
        axes: style.Axes = self.ax_
        self.lines_ = {}
        looks = style.line_styles(len(self.curves))
        for number, ((name, (steps, values)), look) in enumerate(zip(self.curves.items(), looks, strict=True)):
            every = max(1, len(steps) // 10)
            drawn = {"color": look.colour, "linestyle": look.dashes, "marker": look.marker}
            places = (number % every, every)  # lines that lie on one another show their markers in turn
            self.lines_[name] = draw_curve(axes, values, name, steps, markevery=places, **drawn)
        axes.set_ylabel(self.ylabel)
        if self.ylabel.startswith("mistakes"):
            style.counts(axes.yaxis)
        style.epoch_axis(axes)
        if self.ylabel.endswith("(%)") and not self.logarithmic:
            style.from_zero(axes)
        if self.logarithmic:
            axes.set_yscale("log")
        style.legend(axes, own, columns=4)


def _named(name: str, given: object) -> Mapping[str, Any]:
    if not isinstance(given, Mapping):
        raise TypeError(f"{name} must be a mapping from names to runs, found {type(given).__name__}")
    if not given:
        raise ValueError(f"{name} is empty; give at least one run")
    return given


def read_events(folder: Path) -> Any:
    """The event files of a folder, as TensorBoard reads them."""
    requires("reading event files", "tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator  # type: ignore[import-untyped]

    events = EventAccumulator(str(folder), size_guidance={"scalars": 0, "images": 1, "histograms": 1})
    events.Reload()
    return events


def curve_of(events: Any, tag: str) -> tuple[Curve, Curve]:
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
