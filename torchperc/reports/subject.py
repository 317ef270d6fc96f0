"""The subject of a report: a classifier, the data it is judged on, and what is known of how it was trained."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from torchperc.nn.heads import Head
from torchperc.plots.classifiers import classifier, codes_of
from torchperc.plots.style import label_names
from torchperc.reports.page import Block
from torchperc.reports.results import Curves
from torchperc.reports.text import percent
from torchperc.rules.run import RuleResult
from torchperc.theory.certificate import Certificate

Rows = Sequence[tuple[str, str]]
LISTED, FEW = 20, 6  # rows, and columns, that are listed one by one


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

    def weight_heads(self, count: int) -> tuple[str, ...]:
        """The heads of columns of weights."""
        return ("weight",) if count == 1 else tuple(f"weight of {name}" for name in self.class_names)
