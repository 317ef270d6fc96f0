"""The report of a regression: how well it fits, against the mean as the baseline, its weights and its residuals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from torchperc import plots
from torchperc.data.prepared_data import PreparedData
from torchperc.data.scaling import unscaled_weights
from torchperc.lightning.loader import predictions
from torchperc.reports.classification import LISTED, SETS, UNKNOWN, about_data
from torchperc.reports.page import Block, Picture, Report, Section, Table, Text
from torchperc.reports.results import Curves, Fit, Rows, curve_section, drawn
from torchperc.reports.text import number, plural, short

_SHOWN = 2000  # samples in a picture
_UNITS = {
    "standard": "its standard deviation over the training set",
    "minmax": "its range in the training set",
    "maxabs": "its largest absolute value in the training set",
    "none": "1",
}


def of_module(
    title: str,
    module: Any,
    data: PreparedData,
    *,
    how: Rows,
    curves: Curves | None = None,
    again: Sequence[Block] = (),
    sentence: str = "",
) -> Report:
    """Report a module for regression after its run, and the data it was trained on."""
    sets = {name: predictions(module, data, which) for which, name in enumerate(SETS) if len(data.indices[which])}
    mean = sets["training"][1].mean()
    fits = {name: (Fit.of(*both), Fit.of(mean.expand(len(both[1])), both[1])) for name, both in sets.items()}
    last = list(sets)[-1]
    lead = f"{last[0].upper()}{last[1:]} {fits[last][0]}; baseline {fits[last][1]}."
    sections = (
        Section("What was learned", _learned(module, data, how, fits)),
        Section("Predictions", [_predicted(name, *sets[name], data) for name in list(sets)[1:] or sets]),
        Section("Learning curves", curve_section(curves or {})),
        Section("Data", _data(data)),
        Section("How to reproduce it", again or [Text(UNKNOWN)]),
    )
    return Report(title, f"{lead} {sentence}." if sentence else lead, sections)


def _learned(module: Any, data: PreparedData, how: Rows, fits: dict[str, tuple[Fit, Fit]]) -> list[Block]:
    """RMSE and R² beside those of the baseline, the model, how it was trained, and its weights."""
    errors = [(name, *fit.cells, mean.cells[0]) for name, (fit, mean) in fits.items()]
    model = f"{type(module.net).__name__}: {plural(data.width, 'feature')}, predicts {_target(data)}"
    return [
        Table(("set", "RMSE", "R²", "baseline RMSE"), errors),
        Text("The baseline always predicts the mean of the training targets."),
        Table(("what", "value"), [("model", model), *how]),
        *_weights(module, data),
    ]


def _weights(module: Any, data: PreparedData) -> list[Block]:
    """Weights in the units of the table, those with the largest effect first."""
    scaler, net = data.scaler, module.net
    if not isinstance(net, nn.Linear) or scaler.scale is None or data.target_scaler is None:
        return []
    first = torch.zeros(1) if net.bias is None else net.bias
    (weight,), bias = unscaled_weights(net.weight, first, scaler, data.target_scaler)
    effect = weight * scaler.scale
    order = effect.abs().argsort(descending=True, stable=True)[:LISTED].tolist()
    rows = [(data.names[k], number(weight[k]), short(float(effect[k]))) for k in order]
    more = f" The {LISTED} largest of {data.width:,} are listed." if data.width > LISTED else ""
    said = "The prediction is bias + Σ weight·value, in the units of the table. The effect is by how much"
    grown = f"{_target(data)} changes if the feature grows by {_UNITS[scaler.kind]}."
    table = Table(("feature", "weight", "effect"), [*rows, ("bias", number(bias), "")])
    return [table, Text(f"{said} {grown}{more}")]


def _predicted(name: str, predicted: Tensor, y: Tensor, data: PreparedData) -> Picture:
    """Predicted against true values of a set, and the residuals."""
    errors, step = (y - predicted).abs(), math.ceil(len(y) / _SHOWN)
    few = "" if step == 1 else f" {len(y[::step]):,} of {len(y):,} samples are drawn."
    display = plots.ResidualDisplay.from_predictions(y[::step], predicted[::step], target=drawn([_target(data)])[0])
    caption = (
        f"The {name} data: left, true against predicted, on the line where they agree; right, the residuals. Half of "
        f"the predictions are off by less than {short(float(errors.median()))}, the worst by "
        f"{short(float(errors.max()))}.{few}"
    )
    alt = f"Predicted against true values of the {name} data, and their differences."
    return Picture.of(display.figure_, alt, caption)


def _data(data: PreparedData) -> list[Block]:
    """Where the data come from, their features, and the target in each set."""
    listed = f": {', '.join(data.names)}" if data.width <= LISTED else ""
    rows = []
    for index, name in zip(data.indices, SETS, strict=True):
        if len(y := data.dataset.y[index]):
            figures = (y.min(), y.mean(), y.max(), y.std(correction=0))
            rows.append((name, f"{len(y):,}", *(short(float(value)) for value in figures)))
    about = Table(("what", "value"), about_data(data))
    target = Text(f"The target, {_target(data)}, in each set:")
    heads = ("set", "samples", "smallest", "mean", "largest", "standard deviation")
    return [about, Text(f"{plural(data.width, 'feature')}{listed}."), target, Table(heads, rows)]


def _target(data: PreparedData) -> str:
    return data.dataset.target or "the target"
