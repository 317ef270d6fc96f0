"""The report of a classifier: what it learned, confusion, curves, boundary, data, and last the proofs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from torchperc import plots
from torchperc._checks import Data, check_number, is_sparse
from torchperc.data.prepared_data import PreparedData
from torchperc.lightning.loader import wrong_decisions
from torchperc.nn.heads import Head
from torchperc.reports import proof
from torchperc.reports.page import Block, Code, Picture, Report, Section, Table, Text
from torchperc.reports.proof import Subject
from torchperc.reports.results import PROVED, Rows, curve_section, drawn, went
from torchperc.reports.text import number, percent, plural
from torchperc.rules.run import RuleResult
from torchperc.samples.mapped import CsrParts, chunked, is_chunked

LISTED, FEW = 20, 6  # rows, and columns, that are listed one by one
SETS = ("training", "validation", "test")
_SHOWN, _WIDE = 2000, 1000  # samples in a picture; features beyond which no plane is drawn
_LOOKED_AT = 2 * 10**7  # numbers of a sparse set, or of one larger than memory, that a page looks at
_STORED = 1000  # numbers that a sparse sample has at most, where it is not known before it is read
UNKNOWN = "The page was made from a model in memory, whose config is not known."


def report(
    model: Any,
    X: Data,
    y: Data,
    *,
    title: str = "A perceptron",
    held_out: Mapping[str, tuple[Data, Data]] | None = None,
    head: Head | None = None,
    names: Sequence[str] | None = None,
    labels: Sequence[object] | None = None,
    margin: float = 0.0,
    config: str | None = None,
) -> Report:
    """Report a trained model: what it learned, confusion, curves, boundary, data, verdict with proof, bound.

    Args:
        model: a ``RuleResult``, or a net.
        X: the training samples.
        y: labels −1/+1, or class indices.
        title: of the page.
        held_out: other data by name, such as ``{"test": (X, y)}``; the page opens with the error on the last.
        head: decides; a net's own by default, else a perceptron's.
        names: of the features.
        labels: names of the classes, in the order −1, +1 or 0 … K−1.
        margin: the margin y·s that a run by rule required, if its trainer had one.
        config: how the run is made again, as text that is shown as it is.

    Shape:
        X (N, d), y (N,).

    Example:
        >>> import torchperc as tp
        >>> X, y = tp.data.gate("AND")
        >>> report(tp.Perceptron(2), X, y).lead
        'Training error 75 % (3 of 4); baseline 25 % (1 of 4).'
        >>> "the bound is 51" in report(tp.RuleTrainer().fit(tp.Perceptron(2), X, y), X, y).card()
        True
    """
    given = {"training": (X, y), **(held_out or {})}
    parts = {name: (_dense_if_small(A), target) for name, (A, target) in given.items()}
    again = () if config is None else (Code(config),)
    margin = check_number("margin", margin, at_least=0)
    subject = Subject(model, parts, head=head, names=names, labels=labels, margin=margin, again=again)
    return report_subject(str(title), subject)


def of_model(
    title: str, module: Any, data: PreparedData, *, how: Rows, result: RuleResult | None = None, **known: Any
) -> Report:
    """Report a module with ``net`` and ``head``, and the data it was trained on; ``known`` as of :class:`Subject`."""
    every = {name: given for name, given in zip(SETS, data.parts, strict=True) if len(given[1])}
    parts = {name: _looked_at(*given) for name, given in every.items()}
    some = {name: every[name] for name, (_, y) in parts.items() if len(y) < len(every[name][1])}
    few = ", ".join(f"{len(parts[name][1]):,} of {len(y):,} {name} samples" for name, (_, y) in some.items())
    table, kind = data.dataset, data.scaler.kind
    scaled = [] if kind == "none" else [("weights", f"of the features as scaled ({kind}, by the training set)")]
    looked_at = [("looked at for this page", f"{few}, evenly spaced")] if few else []
    subject = Subject(
        module if result is None else result,
        parts,
        names=table.names,
        labels=table.labels,
        how=[*how, *scaled],
        about=[*about_data(data), *looked_at],
        image_shape=table.image_shape,
        whole={name: (wrong_decisions(module, X, y), y) for name, (X, y) in some.items()},
        scaled=kind != "none",
        **known,
    )
    return report_subject(title, subject)


def report_subject(title: str, subject: Subject) -> Report:
    """Report a model of which everything that is known has been put together."""
    found = proof.certificate(subject)
    bound, about_bound = proof.bound(subject, found)
    log = None if subject.result is None else subject.result.log
    digest = "" if log is None else f" The digest of data and labels is {log.problem.samples.hash(log.y)}."
    sections = (
        Section("What was learned", _learned(subject)),
        Section("Confusion", _confusion(subject)),
        Section("Learning curves", _curves(subject, bound)),
        Section("Boundary", _boundary(subject)),
        Section("Data", _data(subject)),
        Section("How to reproduce it", subject.again or [Text(f"{UNKNOWN}{digest}")]),
        Section("Verdict and proof", proof.verdict(subject, found)),
        Section("Mistakes against the bound", about_bound),
    )
    last, (error, baseline) = subject.judging, subject.errors(subject.judging)
    ended = f" {subject.sentence}." if subject.sentence else ""
    return Report(title, f"{last[0].upper()}{last[1:]} error {error}; baseline {baseline}.{ended}", sections)


def about_data(data: PreparedData) -> list[tuple[str, str]]:
    """Where data come from, and how they were split, scaled and cut into batches."""
    known = {**data.settings, **data.options, "task": data.task, "options": None}
    known |= {name: getattr(data, name, None) for name in ("batch_size", "order")}
    if data.task == "classification":
        del known["scale_target"]
    return [(name, str(value)) for name, value in known.items() if value is not None]


def _looked_at(X: Any, y: Tensor) -> tuple[Any, Tensor]:
    """Samples in memory: all of them, or evenly spaced ones if they have too many numbers."""
    if isinstance(X, Tensor):
        return X, y
    per_sample = min(X.shape[1], _STORED) if isinstance(X, CsrParts) else X.shape[1]
    stored = X.nnz if is_sparse(X) else X.shape[0] * per_sample
    index = torch.arange(0, X.shape[0], max(1, math.ceil(stored / _LOOKED_AT)))
    return _dense_if_small(chunked(X).take(index).raw() if is_chunked(X) else X[index.numpy()]), y[index]


def _dense_if_small(X: Any) -> Any:
    """Sparse samples dense if they are so few that a proof is to be found; others as they are."""
    if not is_sparse(X) or math.prod(X.shape) > PROVED:
        return X
    return X.to_dense() if isinstance(X, Tensor) else torch.from_numpy(X.toarray())


# --- sections ---


def _learned(subject: Subject) -> list[Block]:
    """Errors beside those of the baseline, the model, how it was trained, and its weights."""
    result, net, ended = subject.result, getattr(subject.model, "net", subject.model), list[tuple[str, str]]()
    if result is not None:
        net = result.model
        ended = [("weights kept", result.select), ("epochs", str(result.epochs)), ("mistakes", str(result.mistakes))]
    model = f"{type(net).__name__}: {plural(subject.X.shape[1], 'feature')}, {subject.classes or 2} classes"
    return [
        Table(("set", "error", "baseline"), [(part, *subject.errors(part)) for part in subject.parts]),
        Text("The baseline always predicts the most frequent label of the training set."),
        Table(("what", "value"), [("model", model), *subject.how, *ended]),
        *_weights(subject),
    ]


def _weights(subject: Subject) -> list[Block]:
    """The weights of a linear model: as images, all of them, or the strongest."""
    weight = subject.known.weight
    if weight is None:
        return []
    count, low, high = len(weight), number(weight.min()), number(weight.max())
    if subject.image_shape is not None:
        labels = None if count == 1 else drawn(subject.class_names)
        figure = plots.WeightsDisplay.from_model(subject.model, subject.image_shape, labels=labels).figure_
        alt = f"The weights as {'an image' if count == 1 else f'{count} images, one for each class'}."
        size = "{} by {} pixels".format(*subject.image_shape)
        return [Picture.of(figure, alt, f"The weights of {size}, from {low} to {high}.")]
    if weight.shape[1] > LISTED or count > FEW:
        said = Text(f"The {weight.numel():,} weights lie between {low} and {high}.")
        return [said, *strongest(weight, subject.feature_names, subject.class_names)]
    rows = [(name, *map(number, weight[:, k])) for k, name in enumerate(subject.feature_names)]
    if subject.bias_step != "none":
        origin = torch.zeros(1, weight.shape[1], dtype=weight.dtype, device=subject.known.device)
        rows.append(("bias", *map(number, subject.known.scores(origin).reshape(-1))))
    heads = ["weight"] if count == 1 else [f"weight of {name}" for name in subject.class_names]
    return [Table(("feature", *heads), rows)]


def strongest(weight: Tensor, features: Sequence[str], names: Sequence[str]) -> list[Block]:
    """The features with the largest weights (1, d) or (K, d) for each label; with a few labels those against it, too.

    Example:
        >>> strongest(torch.tensor([[0.5, -2.0, 1.0]]), ["a", "b", "c"], ["no", "yes"])[1].rows
        [('for no', 'b (2)'), ('for yes', 'c (1); a (0.5)')]
    """
    rows = list(zip(names, (-weight[0], weight[0]) if len(weight) == 1 else weight, strict=True))[:LISTED]
    signed = [(f"for {name}", row) for name, row in rows]
    if 1 < len(weight) <= FEW:  # what is against one of two labels is for the other
        signed += [(f"against {name}", -row) for name, row in rows]
    lists = []
    for what, row in signed:
        pairs = zip(*(found.tolist() for found in row.topk(min(LISTED, len(row)))), strict=True)
        lists.append((what, "; ".join(f"{features[j]} ({value:.3g})" for value, j in pairs if value > 0)))
    first = f" The first {LISTED} of {len(names)} labels." if len(names) > LISTED else ""
    said = Text(f"The strongest features, each with the absolute value of its weight.{first}")
    return [said, Table(("label", "features"), lists)]


def _confusion(subject: Subject) -> list[Block]:
    """A table of all sets; with many classes a picture of each."""
    names, K = subject.class_names, len(subject.class_names)
    rows, pictures = list[tuple[str, ...]](), list[Block]()
    for part, y in subject.truth.items():
        truth, said = ((v + 1) // 2 if subject.classes is None else v for v in (y, subject.decisions[part]))
        matrix = (truth * K + said).bincount(minlength=K * K).reshape(K, K)
        rows += [(part, name, *(f"{n:,}" for n in row)) for name, row in zip(names, matrix.tolist(), strict=True)]
        if K > FEW:
            wrong = matrix - torch.diag(matrix.diagonal())
            row, column = divmod(int(wrong.argmax()), K)
            total = f"Of {len(y):,} {part} samples {int(wrong.sum()):,} are predicted as another label, most often"
            caption = f"{total} {names[row]} as {names[column]}. The darker a cell, the more of its row."
            figure = plots.ConfusionDisplay(matrix, drawn(names)).plot().figure_
            pictures.append(Picture.of(figure, f"The confusion matrix of the {part} data.", caption))
    return pictures or [Table(("set", "true label", *(f"predicted {name}" for name in names)), rows)]


def _curves(subject: Subject, bound: float | None) -> list[Block]:
    """Errors by epoch, and of a run by rule the mistakes against their bound."""
    result, logged = subject.result, curve_section(subject.curves)
    if result is None or (subject.curves and bound is None):
        return logged
    display = plots.LearningCurveDisplay.from_result(result, bound=bound)
    errors = np.asarray(display.train)
    limit = "" if bound is None else f", at most {number(bound)} by theory"
    caption = (
        f"Mistakes as a fraction of each epoch's samples: {went(np.arange(1.0, 1 + len(errors)), errors, percent)}; "
    )
    caption += f"{plural(result.mistakes, 'mistake')} in all{limit}."
    return [*(logged if subject.curves else ()), Picture.of(display.figure_, "The error by epoch.", caption)]


def _boundary(subject: Subject) -> list[Block]:
    """The regions of the labels in a plane, with how far the nearest sample is from the boundary."""
    every, d = math.ceil(len(subject.y) / _SHOWN), subject.X.shape[1]
    X, y, names = subject.X[::every], subject.y[::every], drawn(subject.feature_names)
    few = "" if every == 1 else f" {len(y):,} of {len(subject.y):,} samples are drawn."
    look: dict[str, Any] = {"head": subject.head, "labels": drawn(subject.class_names)}
    look["names"] = [f"{name}, scaled" for name in names] if subject.scaled else names
    if d > _WIDE or not isinstance(X, Tensor):
        return [Text(f"No picture of the boundary: {d:,} features are too many for a plane.")]
    try:
        display = plots.DecisionRegionDisplay.from_model(subject.model, X, y, **look)
    except ValueError as reason:  # more features than a plane shows
        return [Text(f"No picture of the boundary: {reason}.")]
    caption = f"The {subject.training} data, the regions of the labels and the boundary.{few}"
    if display.margin is not None and subject.known.length:
        caption += (
            f" The nearest sample is {number(display.margin / subject.known.length)} away, as the dashed lines are."
        )
    return [Picture.of(display.figure_, "Samples over the decision regions, with the boundary.", caption)]


def _data(subject: Subject) -> list[Block]:
    """Where the data come from, their features, and how many samples each label has."""
    d, labels = subject.X.shape[1], {name: y for name, (_, y) in subject.counted.items()}
    listed = f": {', '.join(subject.feature_names)}" if d <= LISTED else ""
    counted = zip(subject.class_names, subject.codes, strict=True)
    rows = [(name, *(f"{int((y == code).sum()):,}" for y in labels.values())) for name, code in counted]
    rows.append(("all", *(f"{len(y):,}" for y in labels.values())))
    table = Table(("label", *(f"{part} samples" for part in labels)), rows)
    about = [Table(("what", "value"), subject.about)] if subject.about else []
    return [*about, Text(f"{plural(d, 'feature')}{listed}."), table]
