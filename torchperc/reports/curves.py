"""Curves by epoch, of one run or of several on one chart."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from torchperc import plots
from torchperc.reports.page import Block, Picture, Section, Text
from torchperc.reports.text import number, percent, visible

Curve = npt.NDArray[np.float64]
Curves = Mapping[str, tuple[Curve, Curve]]  # epochs and values by name
_QUANTITIES = {"error": (100, "error", "error (%)"), "rmse": (1, "RMSE", "RMSE"), "loss": (1, "loss", "loss")}
_SETS = {"train": "training", "val": "validation"}


def compared_curves(found: Mapping[str, Curves]) -> list[Section]:
    """The errors of several runs by name, on one chart each; a run of one step is a level beside the others."""
    pictures = []
    for tag in ("error/train", "error/val", "rmse/train", "rmse/val"):
        curves = {name: curves[tag] for name, curves in found.items() if tag in curves}
        last = max((steps[-1] for steps, _ in curves.values()), default=1)
        for name, (steps, values) in curves.items():
            if len(steps) == 1 < last:
                curves[name] = np.array([1.0, last]), np.repeat(values, 2)
        what, part = tag.split("/")
        if curves:
            pictures.append(_picture(curves, what, f"{_SETS[part]} "))
    return [Section("All runs", pictures)] if pictures else []


def curve_section(curves: Curves) -> list[Block]:
    """Error, RMSE and loss as a logger has them, training and validation on one chart."""
    pictures: list[Block] = []
    for what in _QUANTITIES:
        shown = {name: curves[f"{what}/{part}"] for part, name in _SETS.items() if f"{what}/{part}" in curves}
        if shown and max(len(steps) for steps, _ in shown.values()) > 1:
            pictures.append(_picture(shown, what))
    return pictures or [Text("None: nothing was logged while the model was trained, or it was found in one step.")]


def _picture(curves: Curves, what: str, part: str = "") -> Picture:
    """Curves on one chart, and in words where they begin and end."""
    scale, name, axis = _QUANTITIES[what]
    shown = {drawn([each])[0]: (steps, scale * values) for each, (steps, values) in curves.items()}
    display = plots.ComparisonDisplay(shown, f"{part}{axis}").plot()
    ends = [steps[-1] for steps, _ in curves.values()]
    if max(ends) > 100 and max(ends) > 10 * min(ends):  # a long run would squeeze the short ones to the edge
        display.ax_.set(xscale="log", xlabel="epoch (logarithmic)")
    ways = [f"{each} {went(*curve, percent if scale == 100 else number)}" for each, curve in curves.items()]
    said = f"The {part}{name} by epoch"
    return Picture.of(display.figure_, f"{said}.", f"{said}: {'; '.join(ways)}.")


def went(steps: Curve, values: Curve, form: Callable[[Any], str]) -> str:
    """Where a curve begins and ends, in words."""
    last = f"{form(values[-1])} in epoch {steps[-1]:.0f}"
    return last if len(steps) == 1 else f"from {form(values[0])} in epoch {steps[0]:.0f} to {last}"


def drawn(names: Sequence[str]) -> list[str]:
    """Names for a picture, with dollars that do not begin a formula."""
    return [visible(name).replace("$", r"\$") for name in names]
