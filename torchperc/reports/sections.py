"""What there is to say of a trained model: the chapters of a report, each with its figures and pictures."""

from __future__ import annotations

import math
import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from importlib.metadata import version
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from torchperc import plots, theory
from torchperc.nn.heads import Head
from torchperc.nn.modules import MLP
from torchperc.plots.classifiers import Classifier, classifier
from torchperc.plots.curves import Curve, errors_by_epoch
from torchperc.plots.style import label_names
from torchperc.reports.page import Block, Picture, Section, Table, Text
from torchperc.reports.text import visible
from torchperc.rules.models import LinearModel
from torchperc.rules.run import RuleResult
from torchperc.rules.spaces import LinearSpace
from torchperc.theory.certificate import Certificate, Hyperplane

Part = tuple[Tensor, Tensor]
Rows = Sequence[tuple[str, str]]

_LISTED = 20  # features whose weights are listed one by one
_SHOWN = 2000  # samples in a picture
_SAMPLES, _ENTRIES = 5000, 400_000  # up to which data are moderate enough to be proved separable on the way
_WIDE = 1000  # features beyond which no plane is drawn: each point of it is a sample of so many numbers
_SECONDS = 30.0  # that a proof may take
_PACKAGES = ("torchperc", "torch", "numpy", "scipy", "matplotlib", "pytorch-lightning")


@dataclass(frozen=True, eq=False)
class Subject:
    """A model, the data it is judged on, and what is known of how it came about.

    Args:
        model: a ``RuleResult``, a net, or a Lightning module with one.
        parts: samples and labels by name, the training data first; none is empty.
        head: decides; the module's own by default, else a perceptron's.
        names: of the features.
        labels: names of the classes, in the order −1, +1 or 0 … K−1.
        how: what else is known of the training, in words.
        about: what else is known of the data.
        curves: epochs and values by tag, as a logger has them.
        margin: the slack that a run by rule demanded of every sample.
        image_shape: rows and columns of the picture that a sample is.
        again: how the run is made again.
        sentence: how the run ended; by default what a result says of itself.
        counted: wrong decisions and samples of those parts of which only some samples are given.

    Example:
        >>> import torchperc as tp
        >>> X, y = tp.data.gate("AND")
        >>> subject = Subject(tp.RuleTrainer().fit(tp.Perceptron(2), X, y), {"training": (X, y)})
        >>> subject.classes is None, subject.class_names
        (True, ['−1', '+1'])
    """

    model: Any
    parts: Mapping[str, Part]
    head: Head | None = None
    names: Sequence[str] | None = None
    labels: Sequence[object] | None = None
    how: Rows = ()
    about: Rows = ()
    curves: Mapping[str, tuple[Curve, Curve]] = field(default_factory=dict)
    margin: float = 0.0
    image_shape: tuple[int, int] | None = None
    again: Sequence[Block] = ()
    sentence: str = ""
    counted: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    known: Classifier = field(init=False)
    scores: dict[str, Tensor] = field(init=False)
    truth: dict[str, Tensor] = field(init=False)

    def __post_init__(self) -> None:
        known = classifier(self.model, self.head)
        parts = {name: (known.admit(X), y) for name, (X, y) in self.parts.items()}
        scores = {name: known.scores(X) for name, (X, _) in parts.items()}
        for name, found in scores.items():
            if not torch.isfinite(found).all():
                raise ValueError(f"some scores of the {name} data are not finite; has the run diverged?")
        truth = {name: known.labels(y, scores[name]) for name, (_, y) in parts.items()}
        for name, value in (("known", known), ("parts", parts), ("scores", scores), ("truth", truth)):
            object.__setattr__(self, name, value)
        if self.names is not None and (isinstance(self.names, str) or len(self.names) != self.X.shape[1]):
            raise ValueError(f"names={self.names!r} must name {self.X.shape[1]} features")
        label_names(self.labels, self.codes, self.classes is not None)

    @property
    def X(self) -> Tensor:  # noqa: N802  # as everywhere
        """The training samples."""
        return next(iter(self.parts.values()))[0]

    @property
    def y(self) -> Tensor:
        """Their labels."""
        return next(iter(self.truth.values()))

    @property
    def result(self) -> RuleResult | None:
        """The result of a run by rule."""
        return self.model if isinstance(self.model, RuleResult) else None

    @property
    def classes(self) -> int | None:
        """``None`` for labels −1/+1, else the number of classes."""
        first = next(iter(self.scores.values()))
        return first.shape[1] if first.dim() > 1 else None

    @property
    def codes(self) -> list[int]:
        """The labels."""
        return [-1, 1] if self.classes is None else list(range(self.classes))

    @property
    def class_names(self) -> list[str]:
        """The labels by name."""
        return label_names(self.labels, self.codes, self.classes is not None)

    @property
    def feature_names(self) -> list[str]:
        """The features by name."""
        return [f"x{k + 1}" for k in range(self.X.shape[1])] if self.names is None else list(map(str, self.names))

    @property
    def linear(self) -> bool:
        """Whether a hyperplane for each score is what it learns."""
        return self.known.weight is not None or (
            self.result is not None and isinstance(self.result.log.space, LinearSpace)
        )

    @property
    def bias(self) -> Tensor | None:
        """The bias of a linear model; ``None`` without one."""
        if self.result is not None:
            model = self.result.model
            return model.bias if isinstance(model, LinearModel) and self.result.log.space.bias_scale else None
        net = getattr(self.model, "net", self.model)
        found = (net.layers[0] if isinstance(net, MLP) and not net.hidden else net).bias
        return found if isinstance(found, Tensor) else None

    @property
    def bias_step(self) -> str:
        """How the bias of a run by rule moves, as theory asks for it."""
        if self.result is None:
            return "none" if self.bias is None else "unit"
        scale = self.result.log.space.bias_scale
        return "none" if scale == 0 else "unit" if scale == 1 else "radius"

    def wrong(self, part: str) -> int:
        """How many samples of a part are decided wrongly."""
        return int((self.known.head.decide(self.scores[part]) != self.truth[part]).sum())

    def errors(self, part: str) -> tuple[int, int]:
        """Wrong decisions and samples of a part, all of them even if fewer are looked at."""
        return self.counted.get(part, (self.wrong(part), len(self.truth[part])))

    def lead(self) -> str:
        """The outcome in a sentence."""
        errors = "; ".join(f"{name} error {_share(*self.errors(name))}" for name in self.truth)
        said = self.sentence or (self.result.sentence if self.result is not None else "")
        return f"{said}; {errors}." if said else f"{errors[0].upper()}{errors[1:]}."


def chapters(subject: Subject) -> list[Section]:
    """All sections of a report of one model.

    Example:
        >>> import torchperc as tp
        >>> X, y = tp.data.gate("XOR")
        >>> subject = Subject(tp.RuleTrainer().fit(tp.Perceptron(2), X, y), {"training": (X, y)})
        >>> [section.title for section in chapters(subject)][:3]
        ['What was learned', 'Data', 'Verdict and proof']
    """
    proof = certificate(subject)
    bound, bounded = _bound(subject, proof)
    return [
        _learned(subject),
        _data(subject),
        _verdict(subject, proof),
        bounded,
        _curves(subject, bound),
        _boundary(subject),
        _confusion(subject),
        Section("How to reproduce it", subject.again or (_unknown(subject),)),
        versions(),
    ]


def versions() -> Section:
    """The versions that made the page.

    Example:
        >>> versions().title
        'Versions'
    """
    rows = [("Python", platform.python_version()), *((name, version(name)) for name in _PACKAGES)]
    return Section("Versions", (Table(("package", "version"), rows),))


# --- what was learned, and from what ------------------------------------------------------------------------------


def _learned(subject: Subject) -> Section:
    d, K = subject.X.shape[1], subject.classes
    rows = [("model", f"{_kind(subject)}: {d} feature{'s' * (d != 1)}, {K or 2} classes"), *subject.how]
    result = subject.result
    if result is not None:
        rows += [("weights kept", result.select), ("epochs", str(result.epochs)), ("mistakes", str(result.mistakes))]
    rows += [(f"{name} error", _share(*subject.errors(name))) for name in subject.truth]
    blocks: list[Block] = [Table(("what", "value"), rows)]
    return Section("What was learned", (*blocks, *_weights(subject)))


def _kind(subject: Subject) -> str:
    net = getattr(subject.model, "net", subject.model)
    if subject.result is None:
        return type(net).__name__ if isinstance(net, nn.Module) else "function from samples to scores"
    space = subject.result.log.space
    return {"KernelSpace": "kernel perceptron", "JointSpace": "perceptron over joint features"}.get(
        type(space).__name__, "perceptron"
    )


def _weights(subject: Subject) -> list[Block]:
    weight = subject.known.weight
    if weight is None:
        return []
    d, count = weight.shape[1], len(weight)
    if subject.image_shape is not None:
        labels = None if count == 1 else _drawn(subject.class_names)
        figure = plots.WeightsDisplay.from_model(subject.model, subject.image_shape, labels=labels).figure_
        alt = f"The weights as {'an image' if count == 1 else f'{count} images, one for each class'}."
        size = f"{subject.image_shape[0]} by {subject.image_shape[1]} pixels"
        caption = f"The weights of {size}, from {number(weight.min())} to {number(weight.max())}."
        return [Picture.of(figure, alt, caption)]
    if d > _LISTED or count > 6:
        return [Text(f"The {weight.numel():,} weights lie between {number(weight.min())} and {number(weight.max())}.")]
    heads = ("weight",) if count == 1 else tuple(f"weight of {name}" for name in subject.class_names)
    bias = subject.bias
    rows = [(name, *map(number, weight[:, k])) for k, name in enumerate(subject.feature_names)]
    if bias is not None:
        rows.append(("bias", *map(number, bias.detach())))
    return [Table(("feature", *heads), rows)]


def _data(subject: Subject) -> Section:
    blocks: list[Block] = [Table(("what", "value"), subject.about)] if subject.about else []
    d = subject.X.shape[1]
    listed = f": {', '.join(subject.feature_names)}" if d <= _LISTED else ""
    blocks.append(Text(f"{d} feature{'s' * (d != 1)}{listed}."))
    labels = list(zip(subject.class_names, subject.codes, strict=True))
    rows = [(name, *(f"{int((y == code).sum()):,}" for y in subject.truth.values())) for name, code in labels]
    rows.append(("all", *(f"{len(y):,}" for y in subject.truth.values())))
    blocks.append(Table(("label", *(f"{name} samples" for name in subject.truth)), rows))
    return Section("Data", blocks)


# --- verdict, proof and bound -------------------------------------------------------------------------------------


def certificate(subject: Subject) -> Certificate | str:
    """The proof that a hyperplane separates the training data, or that none does; or why there is no proof.

    Example:
        >>> import torchperc as tp
        >>> X, y = tp.data.gate("XOR")
        >>> certificate(Subject(tp.Perceptron(2), {"training": (X, y)})).kind
        'not separable'
        >>> certificate(Subject(tp.MLP(2, (2,)), {"training": (X, y)}))
        'Left out: the model is not linear; proof and bound are about a hyperplane.'
    """
    X, y = subject.X, subject.y
    if not subject.linear:
        return "Left out: the model is not linear; proof and bound are about a hyperplane."
    if len(y.unique()) < 2:
        return "Left out: the training data have one class only, so there is nothing to separate."
    if len(X) > _SAMPLES or X.numel() > _ENTRIES:
        size = f"{len(X):,} samples with {X.shape[1]:,} feature{'s' * (X.shape[1] != 1)}"
        return f"Left out: {size} are many; torchperc separable, or theory.separability, decides in its own time."
    return theory.separability(
        X.cpu(), y, bias=subject.bias_step != "none", num_classes=subject.classes, time_limit=_SECONDS
    )


def _verdict(subject: Subject, proof: Certificate | str) -> Section:
    said = subject.sentence or (subject.result.sentence if subject.result is not None else "")
    blocks: list[Block] = [Text(f"{said}.")] if said else []
    if isinstance(proof, str):
        return Section("Verdict and proof", (*blocks, Text(proof)))
    blocks.append(Text(f"The training data are {proof}."))
    if proof.hyperplane is not None:
        blocks += _hyperplane(subject, proof.hyperplane, proof.kind)
    if proof.witness is not None:
        blocks += _witness(subject, proof)
    if proof.kind != "undecided":
        fault = proof.fault()
        held = "it holds" if fault is None else f"it does NOT hold: {fault}"
        blocks.append(Text(f"verify() went through the proof again, in exact rational arithmetic: {held}."))
    return Section("Verdict and proof", blocks)


def _hyperplane(subject: Subject, plane: Hyperplane, kind: str) -> list[Block]:
    where = "on its side or on it" if kind == "weakly separable" else "on its side"
    has = "a hyperplane that has every sample" if len(plane.weight) == 1 else "weights that have every sample"
    margin = f"least y·s = {exact(plane.least)}, geometric margin {number(plane.margin)}"
    said = Text(f"Certificate: {has} {where} ({margin}).")
    if len(plane.weight[0]) > _LISTED or len(plane.weight) > 6:
        return [said]
    heads = ("weight",) if len(plane.weight) == 1 else tuple(f"weight of {name}" for name in subject.class_names)
    rows = [(name, *(exact(row[k]) for row in plane.weight)) for k, name in enumerate(subject.feature_names)]
    if plane.bias is not None:
        rows.append(("bias", *map(exact, plane.bias)))
    return [said, Table(("feature", *heads), rows)]


def _witness(subject: Subject, proof: Certificate) -> list[Block]:
    witness = proof.witness
    assert witness is not None
    two = subject.classes is None
    sums = "Σ α·y·(x, 1) = 0" if two and proof.bias else "Σ α·y·x = 0" if two else "Σ α·(φ(x, y) − φ(x, k)) = 0"
    blocks: list[Block] = [
        Text(f"Certificate: {sums} over the rows below, with α > 0 and Σ α = 1; no hyperplane can separate such rows.")
    ]
    listed = len(subject.feature_names) <= 6
    head = ["sample", *(subject.feature_names if listed else ()), "label", *(() if two else ("against",)), "α"]
    rows = []
    for sample, rival, alpha in list(zip(witness.samples, witness.rivals, witness.alpha, strict=True))[:_LISTED]:
        values = [number(value) for value in subject.X[sample]] if listed else []
        own = subject.class_names[subject.codes.index(int(subject.y[sample]))]
        rows.append([str(sample + 1), *values, own, *(() if two else (subject.class_names[rival],)), exact(alpha)])
    blocks.append(Table(head, rows))
    if len(witness.samples) > _LISTED:
        blocks.append(Text(f"These are the first {_LISTED} of {len(witness.samples)} rows."))
    if two and proof.bias and len(subject.feature_names) <= 6:
        blocks.append(Text(f"The point in both convex hulls: ({', '.join(map(exact, proof.point()))})."))
    return blocks


def _bound(subject: Subject, proof: Certificate | str) -> tuple[float | None, Section]:
    """(R/γ*)² if it is one of this run, and the section about it."""
    title = "Mistakes against the bound"
    if isinstance(proof, str):
        return None, Section(title, (Text(proof),))
    if not proof.separable:
        made = "" if subject.result is None else f" The run made {_mistakes(subject.result)}."
        why = "were not decided to be" if proof.separable is None else "are not"
        return None, Section(title, (Text(f"No bound: there is one for separable data, and these {why}.{made}"),))
    bias_step, K = subject.bias_step, subject.classes
    X, y = subject.X.cpu(), subject.y
    gamma = theory.max_margin(X, y, bias="counted", bias_step=bias_step, num_classes=K).margin
    if gamma <= 0:
        return None, Section(title, (Text("No bound: the largest margin is too small for floating point."),))
    R = theory.radius(X, bias_step=bias_step, num_classes=K)
    result = subject.result
    lr = 1.0 if result is None or not len(result.log) else float(result.log.coef.abs().max())
    slack = {"margin": subject.margin, "lr": lr} if subject.margin else {}
    bound = theory.mistake_bound(X, y, bias_step=bias_step, gamma=gamma, num_classes=K, **slack)
    counted = "" if bias_step == "none" else " with the bias counted"
    formula = "(R² + 2·margin/η)/γ*²" if subject.margin else "(R/γ*)²"
    figures = f"R = {number(R)}, the largest margin{counted} γ* = {number(gamma)}: {formula} = {number(bound)}"
    if result is None:
        said = f"The run was not by rule; from zero weights the rule would make at most {number(bound)} mistakes here."
        return None, Section(title, (Text(said), Text(f"{figures}.")))
    if (exception := _exception(result)) is not None:
        return None, Section(title, (Text(f"{exception} The run made {_mistakes(result)}."), Text(f"{figures}.")))
    said = f"The run made {_mistakes(result)}; the bound is {number(bound)}, whatever the order of the samples."
    display = plots.BracketDisplay.from_log(result.log, gamma=gamma)
    low, high = (float(line.get_ydata()[-1]) for line in (display.lower_, display.upper_))  # type: ignore[index, arg-type]  # an array
    alt = "Two lines by epoch that close around the largest margin from below and from above."
    caption = (
        f"What the run itself tells of γ*: by its end between {number(low)} and {number(high)}; it is {number(gamma)}."
    )
    return bound, Section(title, (Text(said), Text(f"{figures}."), Picture.of(display.figure_, alt, caption)))


def _exception(result: RuleResult) -> str | None:
    """Why the bound does not speak of a run."""
    log = result.log
    if bool(log.start.weight.any()) or bool(log.start.bias.any()):
        return "The bound is for runs from zero weights, and this one started from others."
    if len(log) and float(log.coef.abs().min()) != float(log.coef.abs().max()):
        return "The bound is for updates of one size, and here samples were weighted."
    return None


def _mistakes(result: RuleResult) -> str:
    return f"{result.mistakes:,} mistake{'s' * (result.mistakes != 1)}"


# --- pictures -----------------------------------------------------------------------------------------------------


def _curves(subject: Subject, bound: float | None) -> Section:
    held = subject.curves.get("error/val")
    if subject.result is not None:
        errors = errors_by_epoch(subject.result.log)
        records = [record.validation_error for record in subject.result.history]
        known = np.array([value for value in records if value is not None])
        epochs = np.arange(1.0, len(errors) + 1)
        validation = held[1] if held is not None and len(held[1]) == len(errors) else known
        made = subject.result.log.mistakes_by_epoch().cumsum(0).cpu().numpy()
        display = plots.LearningCurveDisplay(
            errors, validation if len(validation) == len(errors) else None, made, bound
        ).plot()
        caption = f"Mistakes as a share of each epoch's samples: {_went(epochs, errors, percent)}; "
        caption += f"{_mistakes(subject.result)} in all"
        caption += f", at most {number(bound)} by theory." if bound is not None else "."
        if len(validation) == len(errors):
            caption += f" The validation error after it: {_went(epochs, validation, percent)}."
        return Section("Learning curves", (Picture.of(display.figure_, "The error by epoch.", caption),))
    return logged_curves(subject.curves)


def logged_curves(curves: Mapping[str, tuple[Curve, Curve]]) -> Section:
    """Error and loss as a logger has them, training and validation on one chart.

    Example:
        >>> logged_curves({}).blocks[0].text
        'None: nothing was logged while the model was trained.'
    """
    blocks = []
    for what, scale, ylabel in (("error", 100, "error (%)"), ("loss", 1, "loss")):
        names = {"training": f"{what}/train", "validation": f"{what}/val"}
        picture = curve_picture({n: curves[tag] for n, tag in names.items() if tag in curves}, scale, ylabel, what)
        blocks += [] if picture is None else [picture]
    return Section("Learning curves", blocks or (Text("None: nothing was logged while the model was trained."),))


def curve_picture(curves: Mapping[str, tuple[Curve, Curve]], scale: float, ylabel: str, what: str) -> Picture | None:
    """Curves by epoch on one chart; ``None`` if there are none.

    Example:
        >>> import numpy as np
        >>> curve_picture({"a": (np.array([1.0, 2.0]), np.array([0.5, 0.0]))}, 100, "error (%)", "error").caption
        'The error by epoch: a from 50% in epoch 1 to 0% in epoch 2.'
    """
    if not curves:
        return None
    shown = {_drawn([name])[0]: (steps, scale * values) for name, (steps, values) in curves.items()}
    display = plots.ComparisonDisplay(shown, ylabel).plot()
    ends = [steps[-1] for steps, _ in curves.values()]
    if max(ends) > 100 and max(ends) > 10 * min(ends):  # a long run would squeeze the short ones to the edge
        display.ax_.set_xscale("log")
        display.ax_.set_xlabel("epoch (logarithmic)")
    went = [f"{name} {_went(*curve, percent if scale == 100 else number)}" for name, curve in curves.items()]
    return Picture.of(display.figure_, f"The {what} by epoch.", f"The {what} by epoch: {'; '.join(went)}.")


def _went(steps: Curve, values: Curve, form: Callable[[Any], str]) -> str:
    last = f"{form(values[-1])} in epoch {steps[-1]:.0f}"
    return last if len(steps) == 1 else f"from {form(values[0])} in epoch {steps[0]:.0f} to {last}"


def _boundary(subject: Subject) -> Section:
    every = math.ceil(len(subject.X) / _SHOWN)
    X, y = subject.X[::every], subject.y[::every]
    few = "" if every == 1 else f" {len(X):,} of {len(subject.X):,} samples are drawn."
    part = next(iter(subject.parts))
    blocks: list[Block] = []
    look: dict[str, Any] = {"head": subject.head, "labels": _drawn(subject.class_names)}
    try:
        if X.shape[1] > _WIDE:
            raise ValueError(f"{X.shape[1]:,} features are too many for a plane")
        regions = plots.DecisionRegionDisplay.from_model(
            subject.model, X, y, names=_drawn(subject.feature_names), **look
        )
    except ValueError as reason:  # more features than a plane shows
        blocks.append(Text(f"No picture of the boundary: {reason}."))
    else:
        wrong = _share(subject.wrong(part), len(subject.y))
        caption = f"The {part} data and the regions of the labels: {wrong} wrong.{few}"
        blocks.append(Picture.of(regions.figure_, "Samples over the decision regions, with the boundary.", caption))
    margins = plots.MarginDisplay.from_model(subject.model, X, y, head=subject.head)
    least, right = float(margins.margins.min()), int((margins.margins > 0).sum())
    caption = f"{right:,} of {len(X):,} samples are on the right side; the smallest value is {number(least)}.{few}"
    blocks.append(Picture.of(margins.figure_, "A histogram of how far samples are on the right side.", caption))
    return Section("Boundary", blocks)


def _confusion(subject: Subject) -> Section:
    blocks = []
    for name, (X, _) in subject.parts.items():
        display = plots.ConfusionDisplay.from_model(
            subject.model, X, subject.truth[name], head=subject.head, labels=_drawn(subject.class_names)
        )
        alt = f"The confusion matrix of the {name} data."
        blocks.append(Picture.of(display.figure_, alt, _confused(name, display.matrix, subject.class_names)))
    return Section("Confusion", blocks)


def _confused(part: str, matrix: Tensor, names: Sequence[str]) -> str:
    wrong = matrix - torch.diag(matrix.diagonal())
    total = f"Of {int(matrix.sum()):,} {part} samples {int(wrong.sum()):,} are taken for another label"
    if not wrong.any():
        return f"{total}."
    row, column = divmod(int(wrong.argmax()), len(names))
    return f"{total}; most often {names[row]} for {names[column]}, {int(wrong[row, column]):,} times."


def _unknown(subject: Subject) -> Text:
    known = "The page was made from a model in memory, whose config is not known."
    if subject.result is None:
        return Text(known)
    log = subject.result.log
    return Text(f"{known} The digest of data and labels is {log.space.rows.hash(log.y)}.")


# --- figures in words ---------------------------------------------------------------------------------------------


def number(value: Any) -> str:
    """Six figures at most, with a true minus.

    Example:
        >>> number(-0.25), number(51.0000000001), number(1e-9)
        ('−0.25', '51', '1e−09')
    """
    return f"{float(value):.6g}".replace("-", "−")


def percent(share: Any) -> str:
    """A share as a percentage of four figures at most.

    Example:
        >>> percent(0.5), percent(2 / 3)
        ('50%', '66.67%')
    """
    return f"{100 * float(share):.4g}%"


def exact(value: Fraction) -> str:
    """A fraction as it is, or rounded if it is long.

    Example:
        >>> exact(Fraction(-1, 4)), exact(Fraction(10**9, 10**9 + 1))
        ('−1/4', '≈ 1')
    """
    text = str(value).replace("-", "−")
    return text if len(text) <= 14 else f"≈ {number(value)}"


def _share(count: int, total: int) -> str:
    return f"{percent(count / total)} ({count:,} of {total:,})"


def _drawn(names: Sequence[str]) -> list[str]:
    """Names for a picture: short, and with dollars that do not begin a formula."""
    short = [name if len(name) <= 28 else f"{name[:27]}…" for name in map(visible, names)]
    return [name.replace("$", r"\$") for name in short]
