"""The sections of a report, as functions of a model and its data; those of both tasks are written once."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from torchperc import plots, theory
from torchperc._checks import Data, check_labels, is_sparse
from torchperc.data.prepared_data import PreparedData
from torchperc.lightning.loader import SliceLoader, part_size, predictions
from torchperc.plots.charts import errors_by_epoch
from torchperc.plots.classifiers import classifier, codes_of
from torchperc.plots.style import label_names
from torchperc.reports import results
from torchperc.reports.page import Block, Code, Picture, Report, Section, Table, Text
from torchperc.reports.results import Curve, Curves, Fit
from torchperc.reports.text import number, percent, plural, short, visible
from torchperc.rules.decision import PerceptronRule
from torchperc.rules.problem import Problem
from torchperc.rules.run import RuleResult
from torchperc.samples.mapped import CsrParts, chunked, is_chunked
from torchperc.theory.certificate import Certificate

Rows = Sequence[tuple[str, str]]
Scores = Mapping[str, tuple[str, str]]  # of the model and of the baseline, by set
_SETS = ("training", "validation", "test")
_FEW = 6  # classes whose weights and confusions are listed one by one
_LISTED, _SHOWN = 20, 2000  # rows or columns that are listed one by one; samples in a picture
_WIDE = 1000  # features beyond which no plane is drawn
_LOOKED_AT = 2 * 10**7  # numbers of a sparse set, or of one larger than memory, that pictures and proofs look at
_SECONDS = 30.0  # that a proof may take
_STORED = 1000  # numbers that a sparse sample has at most, where it is not known before it is read
_QUANTITIES = {"error": (100, "error", "error (%)"), "rmse": (1, "RMSE", "RMSE"), "loss": (1, "loss", "loss")}
_QUANTITIES["mistakes"] = 1, "mistakes so far", "mistakes so far"
_LOGGED = {"train": "training", "val": "validation"}
_UNITS = {"standard": "standard deviation", "minmax": "range", "maxabs": "largest absolute value"}
_INTERVALS = "Intervals are Wilson's, 95 %. Majority class: the baseline that always predicts the most frequent label."
_MEAN = "RMSE is in the units of {}; R² is the fraction of the variance explained. Mean: that of the training targets."


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


def report(
    model: Any,
    X: Data,
    y: Data,
    *,
    title: str = "A perceptron",
    held_out: Mapping[str, tuple[Data, Data]] | None = None,
    names: Sequence[str] | None = None,
    labels: Sequence[object] | None = None,
    config: str | None = None,
) -> Report:
    """Report a trained classifier: what it learned, confusion, curves, boundary, data, verdict with proof, bound.

    Args:
        model: a ``RuleResult``, or a net, whose ``head`` decides if it has one, else a perceptron's.
        X: the training samples (N, d).
        y: labels (N,): −1/+1, or class indices.
        title: of the page.
        held_out: other data by name, such as ``{"test": (X, y)}``; the page opens with the error on the last.
        names: of the features.
        labels: names of the classes, in the order −1, +1 or 0 … K−1.
        config: how the run is made again, as text that is shown as it is.

    Example:
        >>> import torchperc as tp
        >>> X, y = tp.data.gate("AND")
        >>> report(tp.Perceptron(2), X, y).lead
        'Training error 75 % (3 of 4); baseline 25 % (1 of 4).'
        >>> "the bound is 51" in report(tp.RuleTrainer().fit(tp.Perceptron(2), X, y), X, y).html()
        True
    """
    known, result = classifier(model), model if isinstance(model, RuleResult) else None
    again = (
        Text("The page was made from a model in memory, whose config is not known.") if config is None else Code(config)
    )
    training = Training([again], result=result)
    sets = {name: (known.admit(A), b) for name, (A, b) in {"training": (X, y), **(held_out or {})}.items()}
    return _of_classifier(str(title), Classified(model, sets, training, names, labels))


def of_module(title: str, module: Any, data: PreparedData, training: Training) -> Report:
    """Report a module with ``net`` and ``head``, and the data it was trained on."""
    if data.task == "regression":
        return _of_regression(title, module, data, training)
    sets = {name: given for name, given in zip(_SETS, data.parts, strict=True) if len(given[1])}
    names, labels = data.names, data.dataset.labels
    return _of_classifier(title, Classified(training.result or module, sets, training, names, labels, data))


def _page(title: str, training: Training, scores: Scores, sections: Sequence[Section], *proofs: Section) -> Report:
    """Put the result first and proofs last."""
    last, (model, baseline) = list(scores.items())[-1]
    lead, again = f"{last} {model}; baseline {baseline}.", Section("How to reproduce it", training.again)
    if ended := training.sentence or ("" if training.result is None else training.result.sentence):
        lead += f" {ended}."
    return Report(title, f"{lead[0].upper()}{lead[1:]}", (*training.compared, *sections, again, *proofs))


def _learned(scores: Scores, baseline: str, facts: Rows, weights: Sequence[Block]) -> Section:
    """Scores on each set, facts about model and training, and the weights."""
    table = Table(("set", "model", "baseline"), [(part, *both) for part, both in scores.items()])
    said = Text(f"The baseline always predicts {baseline}.")
    return Section("What was learned", [table, said, Table(("what", "value"), facts), *weights])


def _data(data: PreparedData | None, more: Rows, names: Sequence[str], counts: Sequence[Block]) -> Section:
    """Where data come from, how they were split, scaled and cut into batches, the features, and what each set holds."""
    listed = f": {', '.join(names)}" if len(names) <= _LISTED else ""
    blocks = [Text(f"{plural(len(names), 'feature')}{listed}."), *counts]
    if data is None:
        return Section("Data", blocks)
    known = {**data.settings, **data.options, "task": data.task, "options": None}
    known |= {name: getattr(data, name, None) for name in ("batch_size", "order")}
    about = [(name, str(value)) for name, value in known.items() if value is not None]
    return Section("Data", [Table(("what", "value"), [*about, *more]), *blocks])


def compared(found: Any) -> Section:
    """The candidates of ``learn`` side by side, from its result."""
    real, best = found.model.regression, found.best.name
    said = f"Kept: {best}, the first with the lowest validation {'RMSE' if real else 'error'}."
    if found.test is not None:
        said += f" On the held-out test set: {'' if real else 'error '}{found.test}."
    legend = _MEAN.format(found.model.target or "the target") if real else _INTERVALS
    ways = "; ".join(f"{each.name}: {each.how}" for each in found.candidates)
    table = Table(*results.comparison(found.candidates, found.baseline))
    return Section("Compared", [table, Text(f"{said} {legend}"), Text(f"Learned by {ways}.")])


def _curves(training: Training, bound: float | None = None) -> Section:
    """Error, RMSE and loss by epoch, several runs on a chart per set; of a run by rule mistakes and their bound."""
    result, runs = training.result, training.curves
    if result is not None:
        made = result.log.mistakes_by_epoch().cumsum(0).double().numpy()
        epochs = np.arange(1.0, 1 + len(made))
        runs = runs or {"": {"error/train": (epochs, errors_by_epoch(result.log))}}
    one, charts = len(runs) == 1, defaultdict[tuple[str, str], dict[str, Any]](dict)
    for what, (part, name), (run, curves) in product(_QUANTITIES, _LOGGED.items(), runs.items()):
        if f"{what}/{part}" in curves and (one or what != "loss"):  # losses of different heads cannot be compared
            chart, label = ("", name) if one else (f"{name} ", run)
            charts[what, chart][label] = curves[f"{what}/{part}"]
    if bound is not None:
        charts["mistakes", ""] = {"mistakes": (epochs, made), "bound": (epochs[:1], np.array([bound]))}
    pictures = [
        _chart(found, *which) for which, found in charts.items() if any(len(each[0]) > 1 for each in found.values())
    ]
    nothing = Text("None: nothing was logged while the model was trained, or it was found in one step.")
    return Section("Learning curves", pictures or [nothing])


def _chart(curves: Curves, what: str, part: str) -> Picture:
    """Draw curves on one chart; a run of one step is a level."""
    (scale, name, axis), last = _QUANTITIES[what], max(steps[-1] for steps, _ in curves.values())
    shown = {}
    for label, (steps, values) in zip(_drawn([*curves]), curves.values(), strict=True):
        shown[label] = (steps, scale * values) if len(steps) > 1 else ([1.0, last], scale * values.repeat(2))
    display = plots.ComparisonDisplay(shown, f"{part}{axis}").plot()
    if last > 100 and last > 10 * min(steps[-1] for steps, _ in shown.values()):  # short runs would be at the edge
        display.ax_.set(xscale="log", xlabel="epoch (logarithmic)")
    ways = [f"{each} {_way(*curve, percent if scale == 100 else number)}" for each, curve in curves.items()]
    said = f"The {part}{name} by epoch"
    return Picture.of(display.figure_, f"{said}.", f"{said}: {'; '.join(ways)}.")


def _way(steps: Curve, values: Curve, form: Callable[[Any], str]) -> str:
    """Where a curve begins and ends, or the level that it is, in words."""
    first, last = (f"{form(values[k])} in epoch {steps[k]:.0f}" for k in (0, -1))
    return form(values[0]) if len(steps) == 1 else f"from {first} to {last}"


def _drawn(names: Sequence[str]) -> list[str]:
    """Names for a picture, with dollars that do not begin a formula."""
    return [visible(name).replace("$", r"\$") for name in names]


def _thinned(count: int) -> tuple[int, str]:
    """Every how many samples one is drawn, and words about it."""
    step = math.ceil(count / _SHOWN)
    return step, "" if step == 1 else f" {math.ceil(count / step):,} of {count:,} samples are drawn."


class Classified:
    """A classifier, its decisions on all samples of each set, and the training samples for pictures and proofs.

    ``sets`` are samples and labels by name: first the training set, last the one that judges.
    """

    def __init__(
        self,
        model: Any,
        sets: Mapping[str, tuple[Any, Any]],
        training: Training,
        names: Sequence[str] | None = None,
        labels: Sequence[object] | None = None,
        data: PreparedData | None = None,
    ) -> None:
        self.model, self.training, self.data, self.known = model, training, data, classifier(model)
        self.answers = dict[str, tuple[Tensor, Tensor]]()
        for name, (X, y) in sets.items():
            parts = SliceLoader(X, torch.zeros(X.shape[0]), part_size(X), sharding="none")
            scores = torch.cat([self.known.scores(some.to(self.known.device)) for some, _ in parts])
            if not torch.isfinite(scores).all():
                raise ValueError(f"some scores of the {name} data are not finite; has the run diverged?")
            self.classes = scores.shape[1] if scores.dim() > 1 else None  # of labels −1/+1 none
            labelled = check_labels(y, X.shape[0], self.classes, both=False).cpu()
            self.answers[name] = self.known.head.decide(scores), labelled
        first = next(iter(sets))
        self.X, self.y = _looked_at(sets[first][0], self.answers[first][1])
        self.majority, width = self.answers[first][1].mode().values, self.X.shape[1]
        if names is not None and (isinstance(names, str) or len(names) != width):
            raise ValueError(f"names={names!r} must name {width} features")
        self.feature_names = [f"x{k + 1}" for k in range(width)] if names is None else list(map(str, names))
        self.codes, self.scaled = codes_of(scores), data is not None and data.scaler.kind != "none"
        self.class_names = label_names(labels, self.codes)

    @property
    def bias_step(self) -> str:
        """How the bias moves, as theory asks for it; that of a net trained otherwise is one."""
        if self.training.result is None:
            return "unit" if any(name.endswith("bias") for name, _ in self.model.named_parameters()) else "none"
        return {0.0: "none", 1.0: "unit"}.get(float(self.training.result.log.problem.bias_step), "radius")


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


def _of_classifier(title: str, subject: Classified) -> Report:
    """Put the sections of a classifier together."""
    training, result, data = subject.training, subject.training.result, subject.data
    net = getattr(subject.model, "net", subject.model) if result is None else result.model
    size = f"{plural(subject.X.shape[1], 'feature')}, {subject.classes or 2} classes"
    facts, more = [("model", f"{type(net).__name__}: {size}"), *training.how], list[tuple[str, str]]()
    if data is not None and subject.scaled:
        facts.append(("weights", f"of the features as scaled ({data.scaler.kind}, by the training set)"))
    if result is not None:
        facts.append(("weights kept", result.select))
    if len(subject.y) < (count := len(subject.answers["training"][1])):
        more.append(("looked at for pictures and proofs", f"{len(subject.y):,} of {count:,} training samples"))
    scores = {}
    for part, (said, y) in subject.answers.items():
        wrong = int((said != y).sum()), int((y != subject.majority).sum())
        error, baseline = (f"{percent(count / len(y))} ({count:,} of {len(y):,})" for count in wrong)
        scores[part] = f"error {error}", baseline
    bound, proofs = _proofs(subject)
    sections = (
        _learned(scores, "the most frequent label of the training set", facts, _weights(subject)),
        Section("Confusion", _confusion(subject)),
        _curves(training, bound),
        Section("Boundary", _boundary(subject)),
        _data(data, more, subject.feature_names, [_counts(subject)]),
    )
    return _page(title, training, scores, sections, *proofs)


def _weights(subject: Classified) -> list[Block]:
    """The weights of a linear model: as images, all of them, or the strongest."""
    weight = subject.known.weight
    if weight is None:
        return []
    count, low, high = len(weight), number(weight.min()), number(weight.max())
    said = f"The {weight.numel():,} weights lie between {low} and {high}."
    if subject.data is not None and (shape := subject.data.dataset.image_shape) is not None:
        labels = None if count == 1 else _drawn(subject.class_names)
        figure = plots.WeightsDisplay.from_model(subject.model, shape, labels=labels).figure_
        return [Picture.of(figure, f"The weights as {plural(count, 'image')}.", said)]
    if weight.shape[1] > _LISTED or count > _FEW:
        return [Text(said), *strongest(weight, subject.feature_names, subject.class_names)]
    rows = [(name, *map(number, weight[:, k])) for k, name in enumerate(subject.feature_names)]
    if subject.bias_step != "none":
        origin = torch.zeros(1, weight.shape[1], dtype=weight.dtype, device=subject.known.device)
        rows.append(("bias", *map(number, subject.known.scores(origin).reshape(-1))))
    heads = ["weight"] if count == 1 else [f"weight of {name}" for name in subject.class_names]
    return [Table(("feature", *heads), rows)]


def strongest(weight: Tensor, features: Sequence[str], names: Sequence[str]) -> list[Block]:
    """List the features with the largest weights for each label.

    Example:
        >>> strongest(torch.tensor([[0.5, -2.0, 1.0]]), ["a", "b", "c"], ["no", "yes"])[1].rows
        [('for no', 'b (2)'), ('for yes', 'c (1); a (0.5)')]
    """
    rows, lists = zip(names, (-weight[0], weight[0]) if len(weight) == 1 else weight, strict=True), []
    for name, row in list(rows)[:_LISTED]:
        pairs = zip(*(found.tolist() for found in row.topk(min(_LISTED, len(row)))), strict=True)
        lists.append((f"for {name}", "; ".join(f"{features[j]} ({value:.3g})" for value, j in pairs if value > 0)))
    said = Text(f"The strongest features of up to {_LISTED} labels, each with the absolute value of its weight.")
    return [said, Table(("label", "features"), lists)]


def _confusion(subject: Classified) -> list[Block]:
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
            total = f"{int(wrong.sum()):,} of {len(y):,} {part} samples are predicted as another label"
            caption = f"{total}, most often {names[row]} as {names[column]}. The darker a cell, the more of its row."
            figure = plots.ConfusionDisplay(matrix, _drawn(names)).plot().figure_
            pictures.append(Picture.of(figure, f"The confusion matrix of the {part} data.", caption))
    return pictures or [Table(("set", "true label", *(f"predicted {name}" for name in names)), rows)]


def _boundary(subject: Classified) -> list[Block]:
    """The regions of the labels in a plane, with how far the nearest sample is from the boundary."""
    (step, few), d = _thinned(len(subject.y)), subject.X.shape[1]
    X, y, labels, units = subject.X[::step], subject.y[::step], _drawn(subject.class_names), ", scaled" * subject.scaled
    names = [f"{name}{units}" for name in _drawn(subject.feature_names)]
    try:
        if d > _WIDE or not isinstance(X, Tensor):
            raise ValueError(f"{d:,} features are too many for a plane")
        display = plots.DecisionRegionDisplay.from_model(subject.model, X, y, names=names, labels=labels)
    except ValueError as reason:  # more features than a plane shows
        return [Text(f"No picture of the boundary: {reason}.")]
    caption = f"The training data, the regions of the labels and the boundary.{few}"
    if display.margin is not None and subject.known.length:
        away = number(display.margin / subject.known.length)
        caption += f" The nearest sample is {away} away, as the dashed lines are."
    return [Picture.of(display.figure_, "Samples over the decision regions, with the boundary.", caption)]


def _counts(subject: Classified) -> Table:
    """How many samples each label has in each set."""
    every, codes = [y for _, y in subject.answers.values()], zip(subject.class_names, subject.codes, strict=True)
    rows = [(name, *(f"{int((y == code).sum()):,}" for y in every)) for name, code in codes]
    rows.append(("all", *(f"{len(y):,}" for y in every)))
    return Table(("label", *(f"{part} samples" for part in subject.answers)), rows)


def _proofs(subject: Classified) -> tuple[float | None, list[Section]]:
    """The bound on the mistakes if there is one of this run, and the sections of verdict, proof and bound."""
    found, title = _certificate(subject), "Verdict and proof"
    if isinstance(found, str):
        return None, [Section(title, [Text(found)])]
    bound, about = _bound(subject, found)
    return bound, [Section(title, _in_words(found, subject.classes)), Section("Mistakes against the bound", about)]


def _certificate(subject: Classified) -> Certificate | str:
    """Return the proof of separability or inseparability, or why there is none."""
    (N, d), y, K, result = subject.X.shape, subject.y, subject.classes, subject.training.result
    known = subject.training.certificate or (result.certificate if result is not None else None)
    if known is not None and known.separable is not None and known.samples == len(y):  # of no fewer, weighted 0
        return known
    if subject.known.weight is None and (result is None or type(result.log.problem) is not Problem):
        return "Left out: the model is not linear; proof and bound are about a hyperplane."
    if len(y.unique()) < 2:
        return "Left out: the training data have one class only; at least two classes are required."
    if results.small_enough_to_prove((N, d), K):
        bias = subject.bias_step != "none"
        return theory.separability(subject.X.cpu(), y, bias=bias, num_classes=K, time_limit=_SECONDS)
    size = f"{N:,} samples with {plural(d, 'feature')}{f' in {K} classes' if K else ''}"
    remedy = "torchperc separable, or theory.separability, decides without a limit"
    return f"Left out: {size} are beyond the budget of a proof in a report; {remedy}."


def _in_words(proof: Certificate, classes: int | None) -> list[Block]:
    """What the proof says, what it consists of, and whether it holds."""
    said = Text(f"The training data are {proof}.")
    if proof.kind == "undecided":
        return [said]
    shown = "weights that have every sample on its side"
    if not proof.separable:
        equal = "Σ α·(φ(x, y) − φ(x, k)) = 0" if classes else f"Σ α·y·{'(x, 1)' if proof.bias else 'x'} = 0"
        shown = f"weights α > 0 of some samples with {equal}, so that no hyperplane can have them all on their sides"
    held = "it holds" if (error := proof.verification_error()) is None else f"it does NOT hold: {error}"
    checked = f"The proof was checked again, in exact rational arithmetic: {held}"
    return [said, Text(f"The proof consists of {shown}; torchperc separable writes it to a file. {checked}.")]


def _bound(subject: Classified, proof: Certificate) -> tuple[float | None, list[Block]]:
    """(R/γ*)² if it is one of this run, and the blocks about it."""
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
    constant = "" if bias_step == "none" else " (with a constant feature, whose weight is the bias)"
    longest = f"R = {number(theory.radius(X, bias_step=bias_step, num_classes=K))} long{constant}"
    figures = Text(
        f"An update is at most {longest}, and the margin is γ* = {number(gamma)}: {formula} = {number(limit)}."
    )
    of_one_size = result is None or not len(result.log) or float(result.log.coef.abs().min()) == lr
    if result is not None and of_one_size and not result.log.start.any_nonzero:
        return limit, [Text(f"{made[1:-1]}; the bound is {number(limit)}, whatever the order of the samples."), figures]
    other = "" if result is None else f" This run started from other weights, or samples were weighted.{made}"
    said = f"From zero weights, with updates of one size, the rule makes at most {number(limit)} mistakes here.{other}"
    return None, [Text(said), figures]


def _of_regression(title: str, module: Any, data: PreparedData, training: Training) -> Report:
    """Put the sections of a regression together."""
    sets = {name: predictions(module, data, which) for which, name in enumerate(_SETS) if len(data.indices[which])}
    mean, target = sets["training"][1].mean(), data.dataset.target or "the target"
    scores = {name: (str(Fit.of(said, y)), str(Fit.of(mean.expand(len(y)), y))) for name, (said, y) in sets.items()}
    model = f"{type(module.net).__name__}: {plural(data.width, 'feature')}, predicts {target}"
    weights = _effects(module.net, data, target)
    sections = (
        _learned(scores, "the mean of the training targets", [("model", model), *training.how], weights),
        Section("Predictions", [_predicted(name, *sets[name], target) for name in list(sets)[1:] or sets]),
        _curves(training),
        _data(data, (), data.names, (Text(f"The target, {target}, in each set:"), _targets(sets))),
    )
    return _page(title, training, scores, sections)


def _effects(net: Any, data: PreparedData, target: str) -> list[Block]:
    """Weights in the units of the table, those with the largest effect first."""
    if not isinstance(net, nn.Linear):
        return []
    scaler: Any = data.scaler
    (scaled,) = net.weight.detach().cpu().double()
    effect = scaled * data.target_unit
    origin = -(scaled / scaler.scale @ scaler.shift) + (0.0 if net.bias is None else net.bias.detach().cpu().double())
    order = effect.abs().argsort(descending=True, stable=True)[:_LISTED].tolist()
    rows = [(data.names[k], number(effect[k] / scaler.scale[k]), short(float(effect[k]))) for k in order]
    more = f" The {_LISTED} largest of {data.width:,} are listed." if data.width > _LISTED else ""
    said = "The prediction is bias + Σ weight·value, in the units of the table. The effect is by how much"
    unit = f"its {_UNITS[scaler.kind]} in the training set" if scaler.kind in _UNITS else "1"
    table = Table(("feature", "weight", "effect"), [*rows, ("bias", number(data.unscaled(origin.reshape(1))), "")])
    return [table, Text(f"{said} {target} changes if the feature grows by {unit}.{more}")]


def _predicted(name: str, predicted: Tensor, y: Tensor, target: str) -> Picture:
    """Predicted against true values of a set, and the residuals."""
    errors, (step, few) = (y - predicted).abs(), _thinned(len(y))
    display = plots.ResidualDisplay.from_predictions(y[::step], predicted[::step], target=_drawn([target])[0])
    half, worst = short(float(errors.median())), short(float(errors.max()))
    off = f"Half of the predictions are off by less than {half}, the worst by {worst}.{few}"
    caption = (
        f"The {name} data: left, true against predicted, on the line where they agree; right, the residuals. {off}"
    )
    return Picture.of(display.figure_, f"Predicted against true values of the {name} data, and residuals.", caption)


def _targets(sets: Mapping[str, tuple[Tensor, Tensor]]) -> Table:
    """The targets of each set in figures."""
    figures = {name: (y.min(), y.mean(), y.max(), y.std(correction=0)) for name, (_, y) in sets.items()}
    rows = [(name, f"{len(sets[name][1]):,}", *map(short, map(float, values))) for name, values in figures.items()]
    return Table(("set", "samples", "smallest", "mean", "largest", "standard deviation"), rows)
