"""What a report is about, and what is proved of its training data: whether they are separable, the mistake bound."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from torchperc import theory
from torchperc.nn.heads import Head
from torchperc.plots.classifiers import classifier, codes_of
from torchperc.plots.style import label_names
from torchperc.reports import results
from torchperc.reports.page import Block, Text
from torchperc.reports.results import Curves, Rows
from torchperc.reports.text import number, percent, plural
from torchperc.rules.problem import Problem
from torchperc.rules.run import RuleResult
from torchperc.theory.certificate import Certificate

_SECONDS = 30.0  # that a proof may take


@dataclass(eq=False)
class Subject:
    """A model, the data it is judged on, and what is known of how it was trained."""

    model: Any  # a RuleResult, a net, or a Lightning module with one
    parts: Mapping[str, tuple[Any, Any]]  # samples and labels by name: first the training set, last the one that judges
    head: Head | None = None  # decides; the module's own by default, else a perceptron's
    names: Sequence[str] | None = None  # of the features
    labels: Sequence[object] | None = None  # names of the classes, in the order −1, +1 or 0 … K−1
    how: Rows = ()  # what else is known of the training, in words
    about: Rows = ()  # what else is known of the data
    curves: Curves = field(default_factory=dict)  # by tag, as a logger has them
    margin: float = 0.0  # y·s that a run by rule required of every sample
    image_shape: tuple[int, int] | None = None  # rows and columns of the picture that a sample is
    again: Sequence[Block] = ()  # how the run is made again
    sentence: str = ""  # how the run ended; by default what a result says of itself
    certificate: Certificate | None = None  # a proof about the training data, made before
    scaled: bool = False  # whether samples are in other units than their features' names say
    whole: Mapping[str, tuple[int, Tensor]] = field(default_factory=dict)  # wrong decisions and labels of whole sets

    def __post_init__(self) -> None:
        self.known = classifier(self.model, self.head)
        self.result = self.model if isinstance(self.model, RuleResult) else None
        judged = {name: self.known.judge(X, y) for name, (X, y) in self.parts.items()}
        for name, (_, scores, _) in judged.items():
            if not torch.isfinite(scores).all():
                raise ValueError(f"some scores of the {name} data are not finite; has the run diverged?")
        self.truth = {name: y for name, (_, _, y) in judged.items()}
        self.decisions = {name: self.known.head.decide(scores) for name, (_, scores, _) in judged.items()}
        self.training, self.judging = next(iter(judged)), list(judged)[-1]
        self.X, scores, self.y = judged[self.training]
        width = self.X.shape[1]
        if self.names is not None and (isinstance(self.names, str) or len(self.names) != width):
            raise ValueError(f"names={self.names!r} must name {width} features")
        self.feature_names = [f"x{k + 1}" for k in range(width)] if self.names is None else list(map(str, self.names))
        self.classes = scores.shape[1] if scores.dim() > 1 else None  # of labels −1/+1 none
        self.codes = codes_of(scores)
        self.class_names = label_names(self.labels, self.codes)
        wrong = {name: int((self.decisions[name] != y).sum()) for name, y in self.truth.items()}
        self.counted = {name: self.whole.get(name, (wrong[name], y)) for name, y in self.truth.items()}
        if self.result is not None:
            self.sentence = self.sentence or self.result.sentence
            self.certificate = self.certificate or self.result.certificate

    @property
    def bias_step(self) -> str:
        """How the bias moves, as theory asks for it; that of a net trained otherwise is one."""
        if self.result is None:
            return "unit" if any(name.endswith("bias") for name, _ in self.model.named_parameters()) else "none"
        return {0.0: "none", 1.0: "unit"}.get(float(self.result.log.problem.bias_step), "radius")

    def errors(self, part: str) -> tuple[str, str]:
        """The error on all samples of a set, and that of always predicting the training set's most frequent label."""
        (wrong, y), majority = self.counted[part], self.counted[self.training][1].mode().values
        both = wrong, int((y != majority).sum())
        model, baseline = (f"{percent(count / len(y))} ({count:,} of {len(y):,})" for count in both)
        return model, baseline


def certificate(subject: Subject) -> Certificate | str:
    """The proof that a hyperplane separates the training data, or that none does; or why there is no proof."""
    (N, d), y, K, known = subject.X.shape, subject.y, subject.classes, subject.certificate
    if known is not None and known.separable is not None and known.samples == len(y):  # of no fewer, weighted 0
        return known
    by_rule = subject.result is not None and type(subject.result.log.problem) is Problem
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


def verdict(subject: Subject, proof: Certificate | str) -> list[Block]:
    """How the run ended, and the proof in words."""
    blocks: list[Block] = [Text(f"{subject.sentence}.")] if subject.sentence else []
    if isinstance(proof, str):
        return [*blocks, Text(proof)]
    blocks.append(Text(f"The training data are {proof}."))
    if proof.kind == "undecided":
        return blocks
    shown = "weights that have every sample on its side"
    if not proof.separable:
        equal = "Σ α·(φ(x, y) − φ(x, k)) = 0" if subject.classes else f"Σ α·y·{'(x, 1)' if proof.bias else 'x'} = 0"
        shown = f"weights α > 0 of some samples with {equal}, so that no hyperplane can have them all on their sides"
    error = proof.verification_error()
    held = "it holds" if error is None else f"it does NOT hold: {error}"
    where = "torchperc separable writes it to a file"
    checked = f"The proof was checked again, in exact rational arithmetic: {held}"
    return [*blocks, Text(f"The proof consists of {shown}; {where}. {checked}.")]


def bound(subject: Subject, proof: Certificate | str) -> tuple[float | None, list[Block]]:
    """(R/γ*)² if it is one of this run, and the blocks about it."""
    if isinstance(proof, str):
        return None, [Text(proof)]
    result, bias_step, K = subject.result, subject.bias_step, subject.classes
    made = "" if result is None else f" The run made {plural(result.mistakes, 'mistake')}."
    if not proof.separable:
        why = "were not decided to be" if proof.separable is None else "are not"
        return None, [Text(f"No bound: there is one for separable data, and these {why}.{made}")]
    X, y = subject.X.cpu(), subject.y
    gamma = theory.max_margin(X, y, regularize_bias=True, bias_step=bias_step, num_classes=K).margin
    if gamma <= 0:
        return None, [Text("No bound: the largest margin is too small for floating point.")]
    lr = 1.0 if result is None or not len(result.log) else float(result.log.coef.abs().max())
    slack = {"margin": subject.margin, "lr": lr} if subject.margin else {}
    limit = theory.mistake_bound(X, y, bias_step=bias_step, gamma=gamma, num_classes=K, **slack)
    formula = "(R² + 2·margin/η)/γ*²" if subject.margin else "(R/γ*)²"
    start = "A" if bias_step == "none" else "With a constant feature, whose weight is the bias, a"
    longest = f"n update is at most R = {number(theory.radius(X, bias_step=bias_step, num_classes=K))} long"
    figures = Text(f"{start}{longest}, and the margin is γ* = {number(gamma)}: {formula} = {number(limit)}.")
    if result is None:
        said = f"From zero weights, with updates of one size, the rule makes at most {number(limit)} mistakes here."
    elif result.log.start.any_nonzero:
        said = f"The bound is for runs from zero weights, and this one started from others.{made}"
    elif len(result.log) and float(result.log.coef.abs().min()) != lr:
        said = f"The bound is for updates of one size, and here samples were weighted.{made}"
    else:
        said = f"{made[1:-1]}; the bound is {number(limit)}, whatever the order of the samples."
        return limit, [Text(said), figures]
    return None, [Text(said), figures]
