"""The subject of a report: a model, the data it is judged on, and what is known of how it was trained."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from torchperc.nn.heads import Head
from torchperc.nn.modules import MLP
from torchperc.plots.classifiers import Classifier, classifier
from torchperc.plots.curves import Curve
from torchperc.plots.style import label_names
from torchperc.reports.page import Block
from torchperc.reports.text import percent
from torchperc.rules.models import LinearModel
from torchperc.rules.run import RuleResult
from torchperc.rules.spaces import LinearSpace

Rows = Sequence[tuple[str, str]]
Curves = Mapping[str, tuple[Curve, Curve]]
"""Epochs and values by name."""


@dataclass(frozen=True, eq=False)
class Subject:
    """A model, the data it is judged on, and what is known of how it was trained.

    Example:
        >>> import torchperc as tp
        >>> X, y = tp.data.gate("AND")
        >>> subject = Subject(tp.RuleTrainer().fit(tp.Perceptron(2), X, y), {"training": (X, y)})
        >>> subject.classes is None, subject.class_names
        (True, ['−1', '+1'])
    """

    model: Any  # a RuleResult, a net, or a Lightning module with one
    parts: Mapping[str, tuple[Tensor, Tensor]]  # samples and labels by name, the training set first; none is empty
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
        if self.result is not None and not self.sentence:
            object.__setattr__(self, "sentence", self.result.sentence)
        _ = self.class_names  # refuses labels that are not as many as the classes

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
        """Whether it learns a hyperplane per score."""
        by_rule = self.result is not None and isinstance(self.result.log.space, LinearSpace)
        return by_rule or self.known.weight is not None

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
