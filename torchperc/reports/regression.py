"""The report of a regression: fit against the baseline, weights and residuals."""

from __future__ import annotations

import copy
import math
from typing import Any

import torch
from torch import Tensor, nn

from torchperc import plots
from torchperc.data.prepared_data import PreparedData
from torchperc.data.scaling import unscaled
from torchperc.lightning.loader import predictions
from torchperc.reports.page import Block, Picture, Report, Section, Table, Text
from torchperc.reports.results import Fit
from torchperc.reports.sections import LISTED, SETS, SHOWN, Training, about_data, curve_blocks, drawn, page
from torchperc.reports.text import number, plural, short

_UNITS = {
    "standard": "its standard deviation over the training set",
    "minmax": "its range in the training set",
    "maxabs": "its largest absolute value in the training set",
    "none": "1",
}


def of_module(title: str, module: Any, data: PreparedData, training: Training) -> Report:
    """Report a module for regression after its run, and the data it was trained on."""
    sets = {name: predictions(module, data, which) for which, name in enumerate(SETS) if len(data.indices[which])}
    mean, target = sets["training"][1].mean(), data.dataset.target or "the target"
    fits = {name: (Fit.of(said, y), Fit.of(mean.expand(len(y)), y)) for name, (said, y) in sets.items()}
    errors = [(name, *fit.cells, base.cells[0]) for name, (fit, base) in fits.items()]
    model = f"{type(module.net).__name__}: {plural(data.width, 'feature')}, predicts {target}"
    learned = [
        Table(("set", "RMSE", "R²", "baseline RMSE"), errors),
        Text("The baseline always predicts the mean of the training targets."),
        Table(("what", "value"), [("model", model), *training.how]),
        *_weights(module.net, data, target),
    ]
    judged = (
        Section("Predictions", [_predicted(name, *sets[name], target) for name in list(sets)[1:] or sets]),
        Section("Learning curves", curve_blocks(training.curves)),
    )
    about = about_data(data), data.names, (Text(f"The target, {target}, in each set:"), _targets(sets))
    *_, last = sets
    return page(title, "{} {}; baseline {}".format(last, *fits[last]), training, learned, judged, about)


def _weights(net: Any, data: PreparedData, target: str) -> list[Block]:
    """Weights in the units of the table, those with the largest effect first."""
    scaler = data.scaler
    if not isinstance(net, nn.Linear):
        return []
    raw = unscaled(copy.deepcopy(net).double(), scaler, data.target_scaler).requires_grad_(False)
    weight, bias = raw.weight[0], torch.zeros(1) if raw.bias is None else raw.bias
    effect = weight * scaler.scale
    order = effect.abs().argsort(descending=True, stable=True)[:LISTED].tolist()
    rows = [(data.names[k], number(weight[k]), short(float(effect[k]))) for k in order]
    more = f" The {LISTED} largest of {data.width:,} are listed." if data.width > LISTED else ""
    said = "The prediction is bias + Σ weight·value, in the units of the table. The effect is by how much"
    grown = f"{target} changes if the feature grows by {_UNITS[scaler.kind]}."
    table = Table(("feature", "weight", "effect"), [*rows, ("bias", number(bias), "")])
    return [table, Text(f"{said} {grown}{more}")]


def _predicted(name: str, predicted: Tensor, y: Tensor, target: str) -> Picture:
    """Predicted against true values of a set, and the residuals."""
    errors, step = (y - predicted).abs(), math.ceil(len(y) / SHOWN)
    few = "" if step == 1 else f" {len(y[::step]):,} of {len(y):,} samples are drawn."
    display = plots.ResidualDisplay.from_predictions(y[::step], predicted[::step], target=drawn([target])[0])
    caption = (
        f"The {name} data: left, true against predicted, on the line where they agree; right, the residuals. Half of "
        f"the predictions are off by less than {short(float(errors.median()))}, the worst by "
        f"{short(float(errors.max()))}.{few}"
    )
    return Picture.of(display.figure_, f"Predicted against true values of the {name} data, and residuals.", caption)


def _targets(sets: dict[str, tuple[Tensor, Tensor]]) -> Table:
    """The targets of each set in figures."""
    rows = []
    for name, (_, y) in sets.items():
        figures = (y.min(), y.mean(), y.max(), y.std(correction=0))
        rows.append((name, f"{len(y):,}", *(short(float(value)) for value in figures)))
    return Table(("set", "samples", "smallest", "mean", "largest", "standard deviation"), rows)
