"""The report of a classifier: what it learned, confusion, curves, boundary, data, and last the proofs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from torchperc import plots, theory
from torchperc._checks import Data, check_labels, is_sparse
from torchperc.data.prepared_data import PreparedData
from torchperc.lightning.loader import SliceLoader, part_size
from torchperc.nn.heads import Head
from torchperc.plots.classifiers import classifier, codes_of
from torchperc.plots.style import label_names
from torchperc.reports import results
from torchperc.reports.page import Block, Code, Picture, Report, Section, Table, Text
from torchperc.reports.sections import LISTED, SETS, SHOWN, Rows, Training, about_data, curve_blocks, drawn, page, went
from torchperc.reports.text import number, percent, plural
from torchperc.rules.decision import PerceptronRule
from torchperc.rules.problem import Problem
from torchperc.rules.run import RuleResult
from torchperc.samples.mapped import CsrParts, chunked, is_chunked
from torchperc.theory.certificate import Certificate

_FEW = 6  # classes whose weights and confusions are listed one by one
_WIDE = 1000  # features beyond which no plane is drawn
_SECONDS = 30.0  # that a proof may take
_LOOKED_AT = 2 * 10**7  # numbers of a sparse set, or of one larger than memory, that pictures and proofs look at
_STORED = 1000  # numbers that a sparse sample has at most, where it is not known before it is read


class Subject:
    """A classifier, its decisions on all samples of each set, and the training samples for pictures and proofs.

    ``sets`` are samples and labels by name: first the training set, last the one that judges.
    """

    image_shape: tuple[int, int] | None = None  # rows and columns of the picture that a sample is
    scaled = False  # whether samples are in other units than the names of their features say

    def __init__(
        self,
        model: Any,
        sets: Mapping[str, tuple[Any, Any]],
        training: Training,
        head: Head | None = None,
        names: Sequence[str] | None = None,
        labels: Sequence[object] | None = None,
    ) -> None:
        self.model, self.training, self.known = model, training, classifier(model, head)
        self.answers = dict[str, tuple[Tensor, Tensor]]()  # decisions and labels by set
        for name, (X, y) in sets.items():
            decisions = []
            for some, _ in SliceLoader(X, torch.zeros(X.shape[0]), part_size(X), sharding="none"):
                scores = self.known.scores(some.to(self.known.device))
                if not torch.isfinite(scores).all():
                    raise ValueError(f"some scores of the {name} data are not finite; has the run diverged?")
                decisions.append(self.known.head.decide(scores))
            self.classes = scores.shape[1] if scores.dim() > 1 else None  # of labels −1/+1 none
            self.answers[name] = torch.cat(decisions), check_labels(y, X.shape[0], self.classes, both=False).cpu()
        first, self.last = next(iter(sets)), name
        self.X, self.y = _looked_at(sets[first][0], self.answers[first][1])
        self.majority, width = self.answers[first][1].mode().values, self.X.shape[1]
        if names is not None and (isinstance(names, str) or len(names) != width):
            raise ValueError(f"names={names!r} must name {width} features")
        self.feature_names = [f"x{k + 1}" for k in range(width)] if names is None else list(map(str, names))
        self.codes = codes_of(scores)
        self.class_names = label_names(labels, self.codes)

    @property
    def bias_step(self) -> str:
        """How the bias moves, as theory asks for it; that of a net trained otherwise is one."""
        if self.training.result is None:
            return "unit" if any(name.endswith("bias") for name, _ in self.model.named_parameters()) else "none"
        return {0.0: "none", 1.0: "unit"}.get(float(self.training.result.log.problem.bias_step), "radius")

    def errors(self, part: str) -> tuple[str, str]:
        """The error on a set, and that of always predicting the training set's most frequent label."""
        said, y = self.answers[part]
        wrong = int((said != y).sum()), int((y != self.majority).sum())
        model, baseline = (f"{percent(count / len(y))} ({count:,} of {len(y):,})" for count in wrong)
        return model, baseline


def _looked_at(X: Any, y: Tensor) -> tuple[Any, Tensor]:
    """Return dense samples, or evenly spaced ones of larger sets, dense if small enough to prove."""
    if isinstance(X, Tensor):
        return X, y
    per_sample = min(X.shape[1], _STORED) if isinstance(X, CsrParts) else X.shape[1]
    stored = X.nnz if is_sparse(X) else X.shape[0] * per_sample
    index = torch.arange(0, X.shape[0], max(1, math.ceil(stored / _LOOKED_AT)))
    some = chunked(X).take(index).raw() if is_chunked(X) else X[index.numpy()]
    small = is_sparse(some) and math.prod(some.shape) <= results.PROVED
    return torch.from_numpy(some.toarray()) if small else some, y[index]


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
    known, again = classifier(model, head), "The page was made from a model in memory, whose config is not known."
    result = model if isinstance(model, RuleResult) else None
    if result is not None:
        again += f" The digest of data and labels is {result.log.problem.samples.hash(result.log.y)}."
    training = Training(result=result, again=[Text(again) if config is None else Code(config)])
    sets = {name: (known.admit(A), b) for name, (A, b) in {"training": (X, y), **(held_out or {})}.items()}
    return report_subject(str(title), Subject(model, sets, training, head, names, labels))


def of_module(title: str, module: Any, data: PreparedData, training: Training) -> Report:
    """Report a module with ``net`` and ``head``, and the data it was trained on."""
    sets = {name: given for name, given in zip(SETS, data.parts, strict=True) if len(given[1])}
    table, kind, about = data.dataset, data.scaler.kind, about_data(data)
    subject = Subject(training.result or module, sets, training, names=table.names, labels=table.labels)
    subject.image_shape, subject.scaled = table.image_shape, kind != "none"
    if len(subject.y) < (count := len(sets["training"][1])):
        about.append(("looked at for pictures and proofs", f"{len(subject.y):,} of {count:,} training samples"))
    scaled = [("weights", f"of the features as scaled ({kind}, by the training set)")] if subject.scaled else []
    return report_subject(title, subject, scaled, about)


def report_subject(title: str, subject: Subject, scaled: Rows = (), about: Rows = ()) -> Report:
    """Put the sections of a classifier together."""
    training, result, net = subject.training, subject.training.result, getattr(subject.model, "net", subject.model)
    how = [*training.how, *scaled]
    if result is not None:
        net, counts = result.model, (("epochs", str(result.epochs)), ("mistakes", str(result.mistakes)))
        how += [("weights kept", result.select), *counts]
    size = f"{plural(subject.X.shape[1], 'feature')}, {subject.classes or 2} classes"
    learned = [
        Table(("set", "error", "baseline"), [(part, *subject.errors(part)) for part in subject.answers]),
        Text("The baseline always predicts the most frequent label of the training set."),
        Table(("what", "value"), [("model", f"{type(net).__name__}: {size}"), *how]),
        *_weights(subject),
    ]
    found = _certificate(subject)
    bound, about_bound = _bound(subject, found)
    judged = (
        Section("Confusion", _confusion(subject)),
        Section("Learning curves", _curves(subject, bound)),
        Section("Boundary", _boundary(subject)),
    )
    proofs = (
        Section("Verdict and proof", _verdict(subject, found)),
        Section("Mistakes against the bound", about_bound),
    )
    lead = "{} error {}; baseline {}".format(subject.last, *subject.errors(subject.last))
    return page(title, lead, training, learned, judged, (about, subject.feature_names, [_counts(subject)]), proofs)


def _weights(subject: Subject) -> list[Block]:
    """The weights of a linear model: as images, all of them, or the strongest."""
    weight = subject.known.weight
    if weight is None:
        return []
    count, low, high = len(weight), number(weight.min()), number(weight.max())
    said = f"The {weight.numel():,} weights lie between {low} and {high}."
    if subject.image_shape is not None:
        labels = None if count == 1 else drawn(subject.class_names)
        figure = plots.WeightsDisplay.from_model(subject.model, subject.image_shape, labels=labels).figure_
        return [Picture.of(figure, f"The weights as {plural(count, 'image')}.", said)]
    if weight.shape[1] > LISTED or count > _FEW:
        return [Text(said), *strongest(weight, subject.feature_names, subject.class_names)]
    rows = [(name, *map(number, weight[:, k])) for k, name in enumerate(subject.feature_names)]
    if subject.bias_step != "none":
        origin = torch.zeros(1, weight.shape[1], dtype=weight.dtype, device=subject.known.device)
        rows.append(("bias", *map(number, subject.known.scores(origin).reshape(-1))))
    heads = ["weight"] if count == 1 else [f"weight of {name}" for name in subject.class_names]
    return [Table(("feature", *heads), rows)]


def strongest(weight: Tensor, features: Sequence[str], names: Sequence[str]) -> list[Block]:
    """List the features with the largest weights for, and with few labels against, each label.

    Example:
        >>> strongest(torch.tensor([[0.5, -2.0, 1.0]]), ["a", "b", "c"], ["no", "yes"])[1].rows
        [('for no', 'b (2)'), ('for yes', 'c (1); a (0.5)')]
    """
    rows = list(zip(names, (-weight[0], weight[0]) if len(weight) == 1 else weight, strict=True))[:LISTED]
    signed = [(f"for {name}", row) for name, row in rows]
    if 1 < len(weight) <= _FEW:  # what is against one of two labels is for the other
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
    for part, answers in subject.answers.items():
        said, y = ((codes + 1) // 2 if subject.classes is None else codes for codes in answers)
        matrix = (y * K + said).bincount(minlength=K * K).reshape(K, K)
        rows += [(part, name, *(f"{n:,}" for n in row)) for name, row in zip(names, matrix.tolist(), strict=True)]
        if K > _FEW:
            wrong = matrix - torch.diag(matrix.diagonal())
            row, column = divmod(int(wrong.argmax()), K)
            total = f"Of {len(y):,} {part} samples {int(wrong.sum()):,} are predicted as another label, most often"
            caption = f"{total} {names[row]} as {names[column]}. The darker a cell, the more of its row."
            figure = plots.ConfusionDisplay(matrix, drawn(names)).plot().figure_
            pictures.append(Picture.of(figure, f"The confusion matrix of the {part} data.", caption))
    return pictures or [Table(("set", "true label", *(f"predicted {name}" for name in names)), rows)]


def _curves(subject: Subject, bound: float | None) -> list[Block]:
    """Errors by epoch, and of a run by rule the mistakes against their bound."""
    result, runs = subject.training.result, subject.training.curves
    if result is None or (runs and bound is None):
        return curve_blocks(runs)
    display = plots.LearningCurveDisplay.from_result(result, bound=bound)
    errors = np.asarray(display.train)
    way = went(np.arange(1.0, 1 + len(errors)), errors, percent)
    limit = "" if bound is None else f", at most {number(bound)} by theory"
    caption = (
        f"Mistakes as a fraction of each epoch's samples: {way}; {plural(result.mistakes, 'mistake')} in all{limit}."
    )
    return [*(curve_blocks(runs) if runs else ()), Picture.of(display.figure_, "The error by epoch.", caption)]


def _boundary(subject: Subject) -> list[Block]:
    """The regions of the labels in a plane, with how far the nearest sample is from the boundary."""
    every, d = math.ceil(len(subject.y) / SHOWN), subject.X.shape[1]
    X, y, names = subject.X[::every], subject.y[::every], drawn(subject.feature_names)
    few = "" if every == 1 else f" {len(y):,} of {len(subject.y):,} samples are drawn."
    look: dict[str, Any] = {"head": subject.known.head, "labels": drawn(subject.class_names)}
    look["names"] = [f"{name}, scaled" for name in names] if subject.scaled else names
    if d > _WIDE or not isinstance(X, Tensor):
        return [Text(f"No picture of the boundary: {d:,} features are too many for a plane.")]
    try:
        display = plots.DecisionRegionDisplay.from_model(subject.model, X, y, **look)
    except ValueError as reason:  # more features than a plane shows
        return [Text(f"No picture of the boundary: {reason}.")]
    caption = f"The training data, the regions of the labels and the boundary.{few}"
    if display.margin is not None and subject.known.length:
        away = number(display.margin / subject.known.length)
        caption += f" The nearest sample is {away} away, as the dashed lines are."
    return [Picture.of(display.figure_, "Samples over the decision regions, with the boundary.", caption)]


def _counts(subject: Subject) -> Table:
    """How many samples each label has in each set."""
    every = [y for _, y in subject.answers.values()]
    counted = zip(subject.class_names, subject.codes, strict=True)
    rows = [(name, *(f"{int((y == code).sum()):,}" for y in every)) for name, code in counted]
    rows.append(("all", *(f"{len(y):,}" for y in every)))
    return Table(("label", *(f"{part} samples" for part in subject.answers)), rows)


# --- proofs ---


def _certificate(subject: Subject) -> Certificate | str:
    """Return the proof of separability or inseparability, or why there is none."""
    (N, d), y, K, result = subject.X.shape, subject.y, subject.classes, subject.training.result
    known = subject.training.certificate or (result.certificate if result is not None else None)
    if known is not None and known.separable is not None and known.samples == len(y):  # of no fewer, weighted 0
        return known
    by_rule = result is not None and type(result.log.problem) is Problem
    if not by_rule and subject.known.weight is None:
        return "Left out: the model is not linear; proof and bound are about a hyperplane."
    if len(y.unique()) < 2:
        return "Left out: the training data have one class only; at least two classes are required."
    if results.small_enough_to_prove((N, d), K):
        bias = subject.bias_step != "none"
        return theory.separability(subject.X.cpu(), y, bias=bias, num_classes=K, time_limit=_SECONDS)
    size = f"{N:,} samples with {plural(d, 'feature')}" + (f" in {K} classes" if K else "")
    remedy = "torchperc separable, or theory.separability, decides without a limit"
    limit = f"{results.PROVED:,} numbers and {results.PROVED_BY_CLASSES:,} numbers times classes"
    return f"Left out: {size} are beyond the budget of a proof in a report, {limit}; {remedy}."


def _verdict(subject: Subject, proof: Certificate | str) -> list[Block]:
    """How the run ended, and the proof in words."""
    blocks: list[Block] = [Text(ended) for ended in subject.training.ended]
    if isinstance(proof, str):
        return [*blocks, Text(proof)]
    blocks.append(Text(f"The training data are {proof}."))
    if proof.kind == "undecided":
        return blocks
    shown = "weights that have every sample on its side"
    if not proof.separable:
        equal = "Σ α·(φ(x, y) − φ(x, k)) = 0" if subject.classes else f"Σ α·y·{'(x, 1)' if proof.bias else 'x'} = 0"
        shown = f"weights α > 0 of some samples with {equal}, so that no hyperplane can have them all on their sides"
    held = "it holds" if (error := proof.verification_error()) is None else f"it does NOT hold: {error}"
    checked = f"The proof was checked again, in exact rational arithmetic: {held}"
    return [*blocks, Text(f"The proof consists of {shown}; torchperc separable writes it to a file. {checked}.")]


def _bound(subject: Subject, proof: Certificate | str) -> tuple[float | None, list[Block]]:
    """(R/γ*)² if it is one of this run, and the blocks about it."""
    if isinstance(proof, str):
        return None, [Text(proof)]
    result, bias_step, K = subject.training.result, subject.bias_step, subject.classes
    made = "" if result is None else f" The run made {plural(result.mistakes, 'mistake')}."
    if not proof.separable:
        why = "were not decided to be" if proof.separable is None else "are not"
        return None, [Text(f"No bound: there is one for separable data, and these {why}.{made}")]
    rule = None if result is None else result.log.problem.rule
    if not isinstance(rule, PerceptronRule | None):
        return None, [Text(f"Bounds of other rules than the perceptron's: theory.mistake_bound(rule={rule}).{made}")]
    X, y = subject.X.cpu(), subject.y
    gamma = theory.max_margin(X, y, regularize_bias=True, bias_step=bias_step, num_classes=K).margin
    if gamma <= 0:
        return None, [Text("No bound: the largest margin is too small for floating point.")]
    lr = 1.0 if result is None or not len(result.log) else float(result.log.coef.abs().max())
    margin = 0.0 if result is None else result.log.problem.rule.margin * result.log.problem.scale
    limit = theory.mistake_bound(X, y, bias_step=bias_step, gamma=gamma, num_classes=K, margin=margin, lr=lr)
    formula = "(R² + 2·margin/η)/γ*²" if margin else "(R/γ*)²"
    start = "A" if bias_step == "none" else "With a constant feature, whose weight is the bias, a"
    longest = f"n update is at most R = {number(theory.radius(X, bias_step=bias_step, num_classes=K))} long"
    figures = Text(f"{start}{longest}, and the margin is γ* = {number(gamma)}: {formula} = {number(limit)}.")
    of_one_size = result is None or not len(result.log) or float(result.log.coef.abs().min()) == lr
    if result is not None and of_one_size and not result.log.start.any_nonzero:
        return limit, [Text(f"{made[1:-1]}; the bound is {number(limit)}, whatever the order of the samples."), figures]
    other = "" if result is None else f" This run started from other weights, or samples were weighted.{made}"
    said = f"From zero weights, with updates of one size, the rule makes at most {number(limit)} mistakes here.{other}"
    return None, [Text(said), figures]
