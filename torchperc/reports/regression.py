"""The report of a regression: how well it fits, against the mean as the baseline, its weights and its residuals."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from torchperc import plots
from torchperc.data.prepared_data import PreparedData
from torchperc.data.scaling import in_chunks
from torchperc.lightning.outcome import Learned, fitted_model, predictions
from torchperc.reports.page import Block, Picture, Section, Table, Text
from torchperc.reports.report import Report
from torchperc.reports.scores import Fit, share, short
from torchperc.reports.sections import curve_picture, drawn, versions
from torchperc.reports.subject import Curves, Rows
from torchperc.reports.text import number, plural
from torchperc.reports.trained import SETS, about_data

_LISTED = 20  # features whose weights are listed
_SHOWN = 2000  # samples in a picture
_NAMES = {"training": "rmse/train", "validation": "rmse/val"}


def of_module(
    title: str,
    module: Learned,
    data: PreparedData,
    *,
    how: Rows,
    curves: Curves | None = None,
    again: Sequence[Block] = (),
    sentence: str = "",
) -> Report:
    """Report a module for regression after its run, and the data it was trained on."""
    sets = {name: predictions(module, data, which) for which, name in enumerate(SETS) if len(data.indices[which])}
    fits = {name: Fit.of(*both) for name, both in sets.items()}
    lead = "; ".join(f"{name} {fit}" for name, fit in fits.items())
    lead = f"{sentence}; {lead}." if sentence else f"{lead[0].upper()}{lead[1:]}."
    repeat = again or (Text("The page was made from a model in memory, whose config is not known."),)
    sections = (
        _learned(module, data, how, fits),
        _data(data),
        Section("Learning curves", _logged(curves or {}, data)),
        _predicted(sets, data),
        Section("How to reproduce it", repeat),
        versions(),
    )
    return Report(title, lead, sections)


def _logged(curves: Curves, data: PreparedData) -> list[Block]:
    shown = {name: curves[tag] for name, tag in _NAMES.items() if tag in curves}
    if shown and all(len(steps) == 1 for steps, _ in shown.values()):
        return [Text("None: the minimum was found in one step.")]
    picture = curve_picture(shown, 1, f"RMSE of {_target(data)}", "RMSE")
    return [Text("None: nothing was logged while the model was trained.")] if picture is None else [picture]


def _learned(module: Learned, data: PreparedData, how: Rows, fits: Mapping[str, Fit]) -> Section:
    model = type(module.net).__name__
    rows = [("model", f"{model}: {plural(data.width, 'feature')}, predicts {_target(data)}"), *how]
    rows += [(f"{name} RMSE and R²", f"{short(fit.rmse)} and {share(fit.r2)}") for name, fit in fits.items()]
    return Section("What was learned", (Table(("what", "value"), rows), *_weights(module, data)))


def _weights(module: Learned, data: PreparedData) -> list[Block]:
    """Weights in the units of the table, those with the largest effect first."""
    try:
        raw = fitted_model(module, data).raw_weights()
    except TypeError:  # a net that no file describes
        raw = None
    if raw is None:
        return []
    weight, bias = raw
    spread = _spread(data)
    effect = weight * spread
    order = effect.abs().argsort(descending=True, stable=True)[:_LISTED].tolist()
    rows = [(data.names[k], number(weight[k]), short(float(effect[k]))) for k in order]
    rows.append(("bias", number(bias), ""))
    more = f" The {_LISTED} largest of {data.width:,} are listed." if data.width > _LISTED else ""
    said = (
        f"The prediction is bias + Σ weight·value, in the units of the table. The effect is by how much "
        f"{_target(data)} changes if the feature grows by its standard deviation over the training set.{more}"
    )
    return [Table(("feature", "weight", "effect"), rows), Text(said)]


def _spread(data: PreparedData) -> Tensor:
    """The standard deviation of each feature over the training set, in its own units (d,)."""
    X, scale = data.parts[0][0], data.scaler.scale
    assert scale is not None
    if isinstance(X, Tensor):
        return X.double().std(0, correction=0) * scale
    mean, squares, count = torch.zeros_like(scale), torch.zeros_like(scale), X.shape[0]
    for piece in in_chunks(X)():
        square = piece.square() if isinstance(piece, Tensor) else piece.power(2)
        mean += torch.as_tensor(piece.sum(0)).reshape(-1) / count
        squares += torch.as_tensor(square.sum(0)).reshape(-1) / count
    return (squares - mean.square()).clamp(min=0).sqrt() * scale


def _data(data: PreparedData) -> Section:
    listed = f": {', '.join(data.names)}" if data.width <= _LISTED else ""
    rows = []
    for index, name in zip(data.indices, SETS, strict=True):
        y = data.dataset.y[index]
        if len(y):
            figures = (y.min(), y.mean(), y.max(), y.std(correction=0))
            rows.append((name, f"{len(y):,}", *(short(float(value)) for value in figures)))
    heads = ("set", "samples", "smallest", "mean", "largest", "standard deviation")
    target = Text(f"The target, {_target(data)}, in each set:")
    about = Table(("what", "value"), about_data(data))
    return Section("Data", (about, Text(f"{plural(data.width, 'feature')}{listed}."), target, Table(heads, rows)))


def _predicted(sets: Mapping[str, tuple[Tensor, Tensor]], data: PreparedData) -> Section:
    """Predicted against true and the residuals, of what the model has not seen if there is such a set."""
    blocks: list[Block] = []
    for name in [name for name in ("validation", "test") if name in sets] or ["training"]:
        predicted, y = sets[name]
        errors = (y - predicted).abs()
        step = math.ceil(len(y) / _SHOWN)
        few = "" if step == 1 else f" {len(y[::step]):,} of {len(y):,} samples are drawn."
        display = plots.ResidualDisplay.from_predictions(y[::step], predicted[::step], target=drawn([_target(data)])[0])
        half, most = float(errors.median()), float(errors.max())
        caption = (
            f"The {name} data: left, true against predicted, on the line where they agree; right, what is left over. "
            f"Half of the predictions are off by less than {short(half)}, the worst by {short(most)}.{few}"
        )
        alt = f"Predicted against true values of the {name} data, and their differences."
        blocks.append(Picture.of(display.figure_, alt, caption))
    return Section("Predictions", blocks)


def _target(data: PreparedData) -> str:
    return data.dataset.target or "the target"
