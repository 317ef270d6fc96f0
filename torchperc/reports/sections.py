"""The sections of a report: what was learned, data, verdict and proof, bound, curves, boundary, confusion, versions."""

from __future__ import annotations

import math
import platform
from collections.abc import Callable, Sequence
from importlib.metadata import version
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from torchperc import plots
from torchperc.plots.curves import Curve, errors_by_epoch
from torchperc.plots.style import logarithmic_epochs
from torchperc.reports import proof
from torchperc.reports.page import Block, Picture, Section, Table, Text
from torchperc.reports.subject import Curves, Subject, of_total
from torchperc.reports.text import number, percent, plural, visible

_LISTED = 20  # features whose weights are listed one by one
_FEW, _LABELS = 6, 20  # labels up to which features against each are listed, and up to which any are
_SHOWN = 2000  # samples in a picture
_WIDE = 1000  # features beyond which no plane is drawn: each point of it is a sample of so many numbers
_PACKAGES = ("torchperc", "torch", "numpy", "scipy", "matplotlib", "pytorch-lightning")
_KINDS = {"KernelProblem": "kernel perceptron", "JointProblem": "perceptron over joint features"}


def sections(subject: Subject) -> list[Section]:
    """All sections of a report of one model."""
    found = proof.certificate(subject)
    gamma = proof.margin_of_data(subject, found)
    bound, bounded = proof.bound(subject, found, gamma)
    return [
        _learned(subject),
        _data(subject),
        proof.verdict(subject, found, gamma),
        Section("Mistakes against the bound", bounded),
        _curves(subject, bound),
        _boundary(subject, gamma),
        _confusion(subject),
        Section("How to reproduce it", subject.again or (Text(_unknown(subject)),)),
        versions(),
    ]


def versions() -> Section:
    """The versions that made the page."""
    rows = [("Python", platform.python_version()), *((name, version(name)) for name in _PACKAGES)]
    return Section("Versions", (Table(("package", "version"), rows),))


def _learned(subject: Subject) -> Section:
    d, result = subject.X.shape[1], subject.result
    if result is not None:
        kind = _KINDS.get(type(result.log.problem).__name__, "perceptron")
    else:
        net = getattr(subject.model, "net", subject.model)
        kind = type(net).__name__ if isinstance(net, nn.Module) else "function from samples to scores"
    rows = [("model", f"{kind}: {plural(d, 'feature')}, {subject.classes or 2} classes"), *subject.how]
    if result is not None:
        rows += [("weights kept", result.select), ("epochs", str(result.epochs)), ("mistakes", str(result.mistakes))]
    rows += [(f"{name} error", subject.error(name)) for name in subject.truth]
    return Section("What was learned", (Table(("what", "value"), rows), *_weights(subject)))


def _weights(subject: Subject) -> list[Block]:
    weight = subject.known.weight
    if weight is None:
        return []
    d, count = weight.shape[1], len(weight)
    span = f"{number(weight.min())} {{}} {number(weight.max())}."
    if subject.image_shape is not None:
        labels = None if count == 1 else drawn(subject.class_names)
        figure = plots.WeightsDisplay.from_model(subject.model, subject.image_shape, labels=labels).figure_
        alt = f"The weights as {'an image' if count == 1 else f'{count} images, one for each class'}."
        size = f"{subject.image_shape[0]} by {subject.image_shape[1]} pixels"
        return [Picture.of(figure, alt, f"The weights of {size}, from {span.format('to')}")]
    if d > _LISTED or count > 6:
        said = Text(f"The {weight.numel():,} weights lie between {span.format('and')}")
        return (
            [said] if subject.names is None else [said, *strongest(weight, subject.feature_names, subject.class_names)]
        )
    rows = [(name, *map(number, weight[:, k])) for k, name in enumerate(subject.feature_names)]
    if subject.bias is not None:
        rows.append(("bias", *map(number, subject.bias.detach())))
    return [Table(("feature", *proof.weight_heads(subject, count)), rows)]


def strongest(weight: Tensor, features: Sequence[str], names: Sequence[str]) -> list[Block]:
    """The features with the largest weights for each label; with a few labels those against it, too.

    Shape:
        weight (1, d) or (K, d).

    Example:
        >>> strongest(torch.tensor([[0.5, -2.0, 1.0]]), ["a", "b", "c"], ["no", "yes"])[1].rows
        [['b (2)', 'c (1)'], ['', 'a (0.5)']]
    """
    two = len(weight) == 1
    lists = {}
    for name, row in zip(names, (-weight[0], weight[0]) if two else weight, strict=True):
        lists[f"for {name}"] = _largest(row, features)
        if not two and len(names) <= _FEW:  # what is against one of two labels is for the other
            lists[f"against {name}"] = _largest(-row, features)
        if len(lists) >= _LABELS:
            break
    said = "The strongest features, each with the absolute value of its weight."
    said += f" The first {_LABELS} of {len(names)} labels." if len(names) > _LABELS else ""
    if two:
        longest = max(map(len, lists.values()))
        rows = [[found[k] if k < len(found) else "" for found in lists.values()] for k in range(longest)]
        return [Text(said), Table(tuple(lists), rows)]
    return [Text(said), Table(("label", "features"), [(what, "; ".join(found)) for what, found in lists.items()])]


def _largest(row: Tensor, features: Sequence[str]) -> list[str]:
    """The features with the largest positive weights, and these weights."""
    values, index = row.topk(min(_LISTED, len(row)))
    pairs = zip(values.tolist(), index.tolist(), strict=True)
    return [f"{features[j]} ({value:.3g})" for value, j in pairs if value > 0]


def _data(subject: Subject) -> Section:
    blocks: list[Block] = [Table(("what", "value"), subject.about)] if subject.about else []
    d = subject.X.shape[1]
    listed = f": {', '.join(subject.feature_names)}" if d <= _LISTED else ""
    blocks.append(Text(f"{plural(d, 'feature')}{listed}."))
    labels = zip(subject.class_names, subject.codes, strict=True)
    rows = [(name, *(f"{int((y == code).sum()):,}" for y in subject.truth.values())) for name, code in labels]
    rows.append(("all", *(f"{len(y):,}" for y in subject.truth.values())))
    blocks.append(Table(("label", *(f"{name} samples" for name in subject.truth)), rows))
    return Section("Data", blocks)


def _unknown(subject: Subject) -> str:
    log = None if subject.result is None else subject.result.log
    digest = "" if log is None else f" The digest of data and labels is {log.problem.samples.hash(log.y)}."
    return f"The page was made from a model in memory, whose config is not known.{digest}"


def _curves(subject: Subject, bound: float | None) -> Section:
    if subject.result is None:
        return logged_curves(subject.curves)
    errors, held = errors_by_epoch(subject.result.log), subject.curves.get("error/val")
    recorded = [record.validation_error for record in subject.result.history]
    known = np.array([value for value in recorded if value is not None])
    validation = held[1] if held is not None and len(held[1]) == len(errors) else known
    epochs = np.arange(1.0, len(errors) + 1)
    made = subject.result.log.mistakes_by_epoch().cumsum(0).cpu().numpy()
    full = len(validation) == len(errors)
    display = plots.LearningCurveDisplay(errors, validation if full else None, made, bound).plot()
    caption = f"Mistakes as a fraction of each epoch's samples: {_went(epochs, errors, percent)}; "
    caption += f"{plural(subject.result.mistakes, 'mistake')} in all"
    caption += f", at most {number(bound)} by theory." if bound is not None else "."
    if full:
        caption += f" The validation error after it: {_went(epochs, validation, percent)}."
    return Section("Learning curves", (Picture.of(display.figure_, "The error by epoch.", caption),))


def logged_curves(curves: Curves) -> Section:
    """Error and loss as a logger has them, training and validation on one chart."""
    blocks = []
    for what, scale, ylabel in (("error", 100, "error (%)"), ("loss", 1, "loss")):
        names = {"training": f"{what}/train", "validation": f"{what}/val"}
        picture = curve_picture({n: curves[tag] for n, tag in names.items() if tag in curves}, scale, ylabel, what)
        blocks += [] if picture is None else [picture]
    return Section("Learning curves", blocks or (Text("None: nothing was logged while the model was trained."),))


def curve_picture(curves: Curves, scale: float, ylabel: str, what: str) -> Picture | None:
    """Curves by epoch on one chart; ``None`` if there are none."""
    if not curves:
        return None
    shown = {drawn([name])[0]: (steps, scale * values) for name, (steps, values) in curves.items()}
    display = plots.ComparisonDisplay(shown, ylabel).plot()
    ends = [steps[-1] for steps, _ in curves.values()]
    if max(ends) > 100 and max(ends) > 10 * min(ends):  # a long run would squeeze the short ones to the edge
        logarithmic_epochs(display.ax_)
    went = [f"{name} {_went(*curve, percent if scale == 100 else number)}" for name, curve in curves.items()]
    return Picture.of(display.figure_, f"The {what} by epoch.", f"The {what} by epoch: {'; '.join(went)}.")


def _went(steps: Curve, values: Curve, form: Callable[[Any], str]) -> str:
    last = f"{form(values[-1])} in epoch {steps[-1]:.0f}"
    return last if len(steps) == 1 else f"from {form(values[0])} in epoch {steps[0]:.0f} to {last}"


def _boundary(subject: Subject, gamma: float | None) -> Section:
    every = math.ceil(len(subject.y) / _SHOWN)
    X, y = subject.X[::every], subject.y[::every]
    few = "" if every == 1 else f" {len(y):,} of {len(subject.y):,} samples are drawn."
    part = next(iter(subject.parts))
    blocks: list[Block] = []
    look: dict[str, Any] = {"head": subject.head, "labels": drawn(subject.class_names)}
    try:
        if X.shape[1] > _WIDE or not isinstance(X, Tensor):
            raise ValueError(f"{X.shape[1]:,} features are too many for a plane")
        names = [f"{name}, scaled" if subject.scaled else name for name in drawn(subject.feature_names)]
        regions = plots.DecisionRegionDisplay.from_model(subject.model, X, y, names=names, **look)
    except ValueError as reason:  # more features than a plane shows
        blocks.append(Text(f"No picture of the boundary: {reason}."))
    else:
        wrong = of_total(subject.wrong(part), len(subject.y))
        dashed = " The dashed lines are as far from the boundary as the nearest sample." if regions.margin_ else ""
        caption = f"The {part} data and the regions of the labels: {wrong} wrong.{dashed}{few}"
        blocks.append(Picture.of(regions.figure_, "Samples over the decision regions, with the boundary.", caption))
    margins = plots.MarginDisplay.from_model(subject.model, X, y, head=subject.head)
    caption = f"{_distances(subject, margins.margins, gamma)}{few}"
    blocks.append(Picture.of(margins.figure_, "A histogram of how far samples are on the right side.", caption))
    return Section("Boundary", blocks)


def _distances(subject: Subject, margins: Tensor, gamma: float | None) -> str:
    """How far samples are from the learned boundary, and whether another could be farther from all of them."""
    least, right = float(margins.min()), f"{int((margins > 0).sum()):,} of {len(margins):,} samples"
    if subject.classes is not None:
        return f"The score of the true class is above all others for {right}; the smallest lead is {number(least)}."
    said = f"{right} are on the right side of the boundary"
    if subject.known.weight is None or not subject.known.weight.any():
        return f"{said}; the smallest value is {number(least)}."
    if least <= 0:
        return f"{said}; the farthest on the wrong side is {number(-least)} away."
    best = "" if gamma is None else f" The best boundary would be γ = {number(gamma)} away from its nearest sample."
    return f"{said}, the nearest {number(least)} away.{best}"


def _confusion(subject: Subject) -> Section:
    blocks, labels = [], drawn(subject.class_names)
    for name, (X, _) in subject.parts.items():
        y, head = subject.truth[name], subject.head
        display = plots.ConfusionDisplay.from_model(subject.model, X, y, head=head, labels=labels)
        caption = _confused(name, display.matrix, subject.class_names)
        blocks.append(Picture.of(display.figure_, f"The confusion matrix of the {name} data.", caption))
    return Section("Confusion", blocks)


def _confused(part: str, matrix: Tensor, names: Sequence[str]) -> str:
    wrong = matrix - torch.diag(matrix.diagonal())
    total = f"Of {int(matrix.sum()):,} {part} samples {int(wrong.sum()):,} are predicted as another label"
    shades = "The darker a cell, the more of its row."
    if not wrong.any():
        return f"{total}. {shades}"
    row, column = divmod(int(wrong.argmax()), len(names))
    return f"{total}; most often {names[row]} as {names[column]}, {int(wrong[row, column]):,} times. {shades}"


def drawn(names: Sequence[str]) -> list[str]:
    """Names for a picture, with dollars that do not begin a formula."""
    return [visible(name).replace("$", r"\$") for name in names]
