"""The subject of a report: a model, the data it is judged on, and what is known of how it was trained."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from torchperc.nn.heads import Head
from torchperc.nn.modules import MLP
from torchperc.plots.classifiers import classifier, codes_of
from torchperc.plots.curves import Curve
from torchperc.plots.style import label_names
from torchperc.reports.page import Block
from torchperc.reports.text import percent
from torchperc.rules.models import LinearModel
from torchperc.rules.problem import Problem
from torchperc.rules.run import RuleResult
from torchperc.theory.certificate import Certificate

Rows = Sequence[tuple[str, str]]
Curves = Mapping[str, tuple[Curve, Curve]]  # epochs and values by name


@dataclass(eq=False)
class Subject:
    """A model, the data it is judged on, and what is known of how it was trained."""

    model: Any  # a RuleResult, a net, or a Lightning module with one
    parts: Mapping[str, tuple[Any, Tensor]]  # samples and labels by name, the training set first; none is empty
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
    counted: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """Wrong decisions and samples of those sets of which only some samples are given."""
    certificate: Certificate | None = None  # a proof about the training data, made before
    scaled: bool = False  # whether samples are in other units than their features' names say

    def __post_init__(self) -> None:
        self.known = classifier(self.model, self.head)
        self.result = self.model if isinstance(self.model, RuleResult) else None
        self.parts = {name: (self.known.admit(X), y) for name, (X, y) in self.parts.items()}
        self.scores = {name: self.known.scores(X) for name, (X, _) in self.parts.items()}
        for name, found in self.scores.items():
            if not torch.isfinite(found).all():
                raise ValueError(f"some scores of the {name} data are not finite; has the run diverged?")
        self.truth = {name: self.known.labels(y, self.scores[name]) for name, (_, y) in self.parts.items()}
        training = next(iter(self.parts))
        self.X, self.y, scores = self.parts[training][0], self.truth[training], self.scores[training]
        width = self.X.shape[1]
        if self.names is not None and (isinstance(self.names, str) or len(self.names) != width):
            raise ValueError(f"names={self.names!r} must name {width} features")
        self.feature_names = [f"x{k + 1}" for k in range(width)] if self.names is None else list(map(str, self.names))
        self.classes = scores.shape[1] if scores.dim() > 1 else None  # of labels −1/+1 none
        self.codes = codes_of(scores)
        self.class_names = label_names(self.labels, self.codes)
        if self.result is not None and not self.sentence:
            self.sentence = self.result.sentence
        if self.certificate is None and self.result is not None:
            self.certificate = self.result.certificate

    @property
    def linear(self) -> bool:
        """Whether it learns a hyperplane per score."""
        by_rule = self.result is not None and type(self.result.log.problem) is Problem
        return by_rule or self.known.weight is not None

    @property
    def bias(self) -> Tensor | None:
        """The bias of a linear model; ``None`` without one."""
        if self.result is not None:
            model = self.result.model
            return model.bias if isinstance(model, LinearModel) and self.result.log.problem.bias_step else None
        net = getattr(self.model, "net", self.model)
        found = (net.layers[0] if isinstance(net, MLP) and not net.hidden else net).bias
        return found if isinstance(found, Tensor) else None

    @property
    def bias_step(self) -> str:
        """How the bias of a run by rule moves, as theory asks for it."""
        if self.result is None:
            return "none" if self.bias is None else "unit"
        scale = self.result.log.problem.bias_step
        return "none" if scale == 0 else "unit" if scale == 1 else "radius"

    def wrong(self, part: str) -> int:
        """How many of the samples given are decided wrongly."""
        return int((self.known.head.decide(self.scores[part]) != self.truth[part]).sum())

    def error(self, part: str) -> str:
        """The error on a set, with its counts, over all its samples even if only some of them are given."""
        return of_total(*self.counted.get(part, (self.wrong(part), len(self.truth[part]))))

    def lead(self) -> str:
        """The outcome in a sentence."""
        errors = "; ".join(f"{name} error {self.error(name)}" for name in self.truth)
        return f"{self.sentence}; {errors}." if self.sentence else f"{errors[0].upper()}{errors[1:]}."


def of_total(count: int, total: int) -> str:
    """A count as a percentage."""
    return f"{percent(count / total)} ({count:,} of {total:,})"
