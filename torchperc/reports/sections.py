"""What all reports share: how a model was trained, its learning curves, the order of the sections."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from torchperc import plots
from torchperc.data.prepared_data import PreparedData
from torchperc.reports.page import Block, Picture, Report, Section, Table, Text
from torchperc.reports.results import Curve, Curves, comparison
from torchperc.reports.text import number, percent, plural, visible

if TYPE_CHECKING:
    from torchperc.rules.run import RuleResult
    from torchperc.theory.certificate import Certificate

Rows = Sequence[tuple[str, str]]
SETS = ("training", "validation", "test")
LISTED, SHOWN = 20, 2000  # rows or columns that are listed one by one; samples in a picture
_QUANTITIES = {"error": (100, "error", "error (%)"), "rmse": (1, "RMSE", "RMSE"), "loss": (1, "loss", "loss")}
_LOGGED = {"train": "training", "val": "validation"}
_INTERVALS = "Intervals are Wilson's, 95 %. Majority class: the baseline that always predicts the most frequent label."
_MEAN = (
    "RMSE is the root of the mean squared error, in the units of {}: the lower, the better. R² is the fraction of the "
    "variance that is explained, 1 at best. Mean: the baseline that always predicts the mean of the training targets."
)


@dataclass(frozen=True)
class Training:
    """What is known of how a model was trained."""

    again: Sequence[Block]  # how the run is made again
    how: Rows = ()  # in words
    curves: Mapping[str, Curves] = field(default_factory=dict)  # by name of the run
    sentence: str = ""  # how the run ended; of a run by rule, by default what its result says
    compared: Sequence[Section] = ()  # with other models
    result: RuleResult | None = None  # of a run by rule
    certificate: Certificate | None = None  # a proof about the training data, made before

    @property
    def ended(self) -> list[str]:
        """How the run ended, if that is known."""
        sentence = self.sentence or ("" if self.result is None else self.result.sentence)
        return [f"{sentence}."] if sentence else []


def page(
    title: str,
    lead: str,
    training: Training,
    learned: Sequence[Block],
    judged: Sequence[Section],
    data: tuple[Rows, Sequence[str], Sequence[Block]],
    proofs: Sequence[Section] = (),
) -> Report:
    """The page of a model: the result first, proofs last; ``data`` are facts, names of features, and blocks."""
    about, names, blocks = data
    listed = f": {', '.join(names)}" if len(names) <= LISTED else ""
    facts = [Table(("what", "value"), about)] if about else []
    sections = (
        *training.compared,
        Section("What was learned", learned),
        *judged,
        Section("Data", [*facts, Text(f"{plural(len(names), 'feature')}{listed}."), *blocks]),
        Section("How to reproduce it", training.again),
        *proofs,
    )
    return Report(title, " ".join([f"{lead[0].upper()}{lead[1:]}.", *training.ended]), sections)


def about_data(data: PreparedData) -> list[tuple[str, str]]:
    """Where data come from, and how they were split, scaled and cut into batches."""
    known = {**data.settings, **data.options, "task": data.task, "options": None}
    known |= {name: getattr(data, name, None) for name in ("batch_size", "order")}
    if data.task == "classification":
        del known["scale_target"]
    return [(name, str(value)) for name, value in known.items() if value is not None]


def compared(found: Any) -> Section:
    """The candidates of ``learn`` side by side, from its result."""
    real, best = found.model.regression, found.best.name
    said = f"Kept: {best}, the first with the lowest validation {'RMSE' if real else 'error'}."
    if found.test is not None:
        said += f" On the held-out test set: {'' if real else 'error '}{found.test}."
    legend = _MEAN.format(found.model.target or "the target") if real else _INTERVALS
    ways = "; ".join(f"{each.name}: {each.how}" for each in found.candidates)
    table = Table(*comparison(found.candidates, found.baseline))
    return Section("Compared", [table, Text(f"{said} {legend}"), Text(f"Learned by {ways}.")])


def curve_blocks(runs: Mapping[str, Curves]) -> list[Block]:
    """Draw error, RMSE and loss by epoch; several runs share a chart per set."""
    one, charts = len(runs) == 1, defaultdict[tuple[str, str], dict[str, Any]](dict)
    for what, (part, name), (run, curves) in product(_QUANTITIES, _LOGGED.items(), runs.items()):
        if f"{what}/{part}" in curves and (one or what != "loss"):  # losses of different heads cannot be compared
            chart, label = ("", name) if one else (f"{name} ", run)
            charts[what, chart][label] = curves[f"{what}/{part}"]
    blocks: list[Block] = [_picture(found, *which) for which, found in charts.items() if _last_epoch(found) > 1]
    return blocks or [Text("None: nothing was logged while the model was trained, or it was found in one step.")]


def _picture(curves: Curves, what: str, part: str) -> Picture:
    """Draw curves on one chart; a run of one step is a level."""
    last = _last_epoch(curves)
    scale, name, axis = _QUANTITIES[what]
    curves = {
        each: (steps, values) if len(steps) > 1 else (np.array([1.0, last]), np.repeat(values, 2))
        for each, (steps, values) in curves.items()
    }
    shown = {drawn([each])[0]: (steps, scale * values) for each, (steps, values) in curves.items()}
    display = plots.ComparisonDisplay(shown, f"{part}{axis}").plot()
    if last > 100 and last > 10 * min(
        steps[-1] for steps, _ in curves.values()
    ):  # a long run would squeeze the short ones to the edge
        display.ax_.set(xscale="log", xlabel="epoch (logarithmic)")
    ways = [f"{each} {went(*curve, percent if scale == 100 else number)}" for each, curve in curves.items()]
    said = f"The {part}{name} by epoch"
    return Picture.of(display.figure_, f"{said}.", f"{said}: {'; '.join(ways)}.")


def _last_epoch(curves: Curves) -> float:
    return max(float(steps[-1]) for steps, _ in curves.values())


def went(steps: Curve, values: Curve, form: Callable[[Any], str]) -> str:
    """Where a curve begins and ends, in words."""
    last = f"{form(values[-1])} in epoch {steps[-1]:.0f}"
    return last if len(steps) == 1 else f"from {form(values[0])} in epoch {steps[0]:.0f} to {last}"


def drawn(names: Sequence[str]) -> list[str]:
    """Names for a picture, with dollars that do not begin a formula."""
    return [visible(name).replace("$", r"\$") for name in names]
