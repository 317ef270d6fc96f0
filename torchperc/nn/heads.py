"""Heads: what a linear score means. Perceptron, LMS and logistic classifiers and regression differ in nothing else.

A head turns scores into an output (what the model says), a loss (what training lowers) and a decision (a label).
Scores of shape (N,) go with labels −1/+1, scores of shape (N, K) with class indices. Regression has no decision; its
targets are real numbers of the scores' shape.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, NoReturn

import torch.nn.functional as F
from torch import Tensor

from torchperc._checks import Data, Option, ParameterError, check_choice, check_labels, check_targets
from torchperc.nn import derivatives
from torchperc.nn import functional as tpf


@dataclass(frozen=True)
class Head(ABC):
    """What the heads share: decisions, and the split into two classes and K classes."""

    @property
    def threshold(self) -> float:
        """The score from which the decision is +1."""
        return 0.0

    @abstractmethod
    def output(self, scores: Tensor) -> Tensor:
        """What the model says for these scores."""

    @abstractmethod
    def loss(self, scores: Tensor, y: Tensor, reduction: str = "mean") -> Tensor:
        """What training lowers."""

    def mistakes(self, scores: Tensor, y: Tensor) -> Tensor:
        """Which samples count as mistakes: those decided wrongly, and for the perceptron what its tie says."""
        return self.decide(scores) != y

    def decide(self, scores: Tensor) -> Tensor:
        """Labels: −1/+1 for scores (N,), class indices for scores (N, K)."""
        return tpf.decide_class(scores) if _has_classes(scores) else tpf.decide(scores, self.threshold)


def _has_classes(scores: Tensor) -> bool:
    if scores.dim() > 1 and scores.shape[-1] < 2:
        raise ValueError(f"scores have shape {tuple(scores.shape)}; for one score per sample pass scores.squeeze(-1)")
    return scores.dim() > 1


def head(name: Head | str) -> Head:
    """Return a head by name: ``"perceptron"``, ``"perceptron sign"``, ``"lms"``, ``"logistic"``, ``"regression"``, ….

    A second word is the head's option, ``tie`` or ``targets``; without one it has its default. A head is returned as
    it is.

    Example:
        >>> head("lms 0/1")
        LMSHead(targets='0/1')
    """
    if isinstance(name, Head):
        return name
    asked = re.sub(
        r"[^a-z]|loss|head|with|logits", "", str(name if isinstance(name, str) else type(name).__name__).lower()
    )
    if name not in NAMED_HEADS and asked in OTHER_NAMES:
        raise ParameterError(Option("head", name), f" is unknown; use head={OTHER_NAMES[asked]!r}")
    return NAMED_HEADS[check_choice("head", name, tuple(NAMED_HEADS))]


@dataclass(frozen=True)
class PerceptronHead(Head):
    """Threshold unit: output sign(s) (one-hot of the argmax for K classes), loss max(0, −y·s), decision s ≥ 0.

    Args:
        tie: derivative of the loss at y·s = 0, see :func:`torchperc.nn.functional.perceptron_loss`.

    Example:
        >>> import torch
        >>> head = PerceptronHead()
        >>> head.output(torch.tensor([-2.0, 0.5])), head.decide(torch.tensor([-2.0, 0.5]))
        (tensor([-1., 1.]), tensor([-1, 1]))
    """

    tie: str = "update"

    def __post_init__(self) -> None:
        check_choice("tie", self.tie, tpf.TIES)

    def output(self, scores: Tensor) -> Tensor:
        """The thresholded score, in the scores' dtype."""
        label = self.decide(scores)
        return (F.one_hot(label, scores.shape[-1]) if _has_classes(scores) else label).to(scores.dtype)

    def mistakes(self, scores: Tensor, y: Tensor) -> Tensor:
        """Samples that the loss moves the weights for."""
        return tpf.mistakes(scores, y, tie=self.tie)

    def loss(self, scores: Tensor, y: Tensor, reduction: str = "mean") -> Tensor:
        """Perceptron criterion, two or K classes."""
        return tpf.perceptron_loss(scores, y, reduction=reduction, tie=self.tie)


class SquaredHead(Head):
    """What the two heads with a squared loss ½(t − s)² share: their output is the score itself."""

    def output(self, scores: Tensor) -> Tensor:
        """The score itself."""
        return scores

    @abstractmethod
    def target(self, y: Any, units: int) -> Any:
        """What scores (N, K) are drawn to, given labels or targets y: tensors or arrays (N, K)."""


@dataclass(frozen=True)
class LMSHead(SquaredHead):
    """Linear unit (Adaline): output s itself, loss ½(t − s)², decision at the middle of the two targets.

    Args:
        targets: ``"-1/+1"`` (decision s ≥ 0) or ``"0/1"`` (decision s ≥ ½).

    Example:
        >>> import torch
        >>> LMSHead(targets="0/1").decide(torch.tensor([0.4, 0.6]))
        tensor([-1, 1])
    """

    targets: str = "-1/+1"

    def __post_init__(self) -> None:
        if self.targets == tpf.REAL:
            raise ValueError("targets='real' is regression, which decides no class; use RegressionHead()")
        check_choice("targets", self.targets, tpf.TARGETS)

    @property
    def low(self) -> float:
        """The target of samples that are not of a class: −1 or 0."""
        return 0.0 if self.targets == "0/1" else -1.0

    @property
    def threshold(self) -> float:
        """0, or ½ with 0/1 targets."""
        return (1 + self.low) / 2

    def target(self, y: Any, units: int) -> Any:
        """1 for the right class (or y = +1), the lower target for the others."""
        return derivatives.targets(y, units, self.low)

    def loss(self, scores: Tensor, y: Tensor, reduction: str = "mean") -> Tensor:
        """Squared error, two or K classes."""
        return tpf.lms_loss(scores, y, reduction=reduction, targets=self.targets)


@dataclass(frozen=True)
class LogisticHead(Head):
    """Sigmoid unit: output P(+1) = 1/(1 + e^−s) (softmax for K classes), loss softplus(−y·s), decision P > ½.

    The decision is strict, so a score of exactly 0 is decided −1; it is taken on the score, where P > ½ ⇔ s > 0
    holds without rounding.

    Example:
        >>> import torch
        >>> LogisticHead().output(torch.tensor([0.0])), LogisticHead().decide(torch.tensor([0.0, 1e-9]))
        (tensor([0.5000]), tensor([-1, 1]))
    """

    def output(self, scores: Tensor) -> Tensor:
        """Probability of +1, or of each class."""
        return scores.softmax(-1) if _has_classes(scores) else scores.sigmoid()

    def loss(self, scores: Tensor, y: Tensor, reduction: str = "mean") -> Tensor:
        """Logistic loss, two or K classes."""
        return tpf.logistic_loss(scores, y, reduction=reduction)

    def decide(self, scores: Tensor) -> Tensor:
        """Labels: +1 where P > ½, or the most probable class."""
        return tpf.decide_class(scores) if _has_classes(scores) else tpf.signs_of(scores > 0)


@dataclass(frozen=True)
class RegressionHead(SquaredHead):
    """Linear regression: output s itself, loss ½(y − s)² for real targets y, no decision.

    With K outputs the loss of a sample is ½ Σ_k (y_k − s_k)², which is K regressions on the same inputs.

    Shape:
        scores and y (N,), or both (N, K).

    Example:
        >>> import torch
        >>> RegressionHead().loss(torch.tensor([70.0, 61.0]), torch.tensor([72.0, 60.0]))
        tensor(1.2500)
    """

    @property
    def threshold(self) -> float:
        """There is none: a ``TypeError``."""
        self._no_decision()

    def target(self, y: Any, units: int) -> Any:
        """The targets themselves."""
        return y.reshape(-1, units)

    def loss(self, scores: Tensor, y: Tensor, reduction: str = "mean") -> Tensor:
        """Squared error per sample, summed over its outputs."""
        losses = tpf.lms_loss(scores, y, reduction="none", targets=tpf.REAL)
        return tpf.reduce(losses.sum(-1) if losses.dim() > 1 else losses, reduction)

    def decide(self, scores: Tensor) -> Tensor:
        """Regression decides nothing: a ``TypeError``."""
        self._no_decision()

    def mistakes(self, scores: Tensor, y: Tensor) -> Tensor:
        """Regression has no mistakes, only errors y − s: a ``TypeError``."""
        self._no_decision()

    def _no_decision(self) -> NoReturn:
        raise TypeError(
            "RegressionHead predicts numbers and decides no class, so it has no threshold and no mistakes; its output "
            "is the prediction, and for classes there are LMSHead(), LogisticHead() and PerceptronHead()"
        )


NAMED_HEADS: dict[str, Head] = {
    "perceptron": PerceptronHead(),
    "perceptron sign": PerceptronHead(tie="sign"),
    "perceptron strict": PerceptronHead(tie="strict"),
    "lms": LMSHead(),
    "lms 0/1": LMSHead(targets="0/1"),
    "logistic": LogisticHead(),
    "regression": RegressionHead(),
}
"""Every head with every option, by name."""

OTHER_NAMES = {
    **dict.fromkeys(("logistic", "bce", "crossentropy", "binarycrossentropy", "log", "logreg", "softmax"), "logistic"),
    **dict.fromkeys(("perceptron", "multiclassperceptron", "hinge"), "perceptron"),
    **dict.fromkeys(("lms", "mse", "squared", "adaline"), "lms"),
}
"""What other libraries call the losses of the heads, in lower-case letters."""


def loss_code(head: Head) -> tuple[int, int, float]:
    """A head's loss as :mod:`torchperc.nn.derivatives` knows it: kind, tie and the lower target, as numbers.

    Example:
        >>> loss_code(LMSHead())
        (1, 0, -1.0)
    """
    if isinstance(head, PerceptronHead):
        return derivatives.PERCEPTRON, tpf.TIES.index(head.tie), 0.0
    if isinstance(head, LMSHead):
        return derivatives.LMS, 0, head.low
    if isinstance(head, LogisticHead):
        return derivatives.LOGISTIC, 0, 0.0
    if isinstance(head, RegressionHead):
        return derivatives.REGRESSION, 0, 0.0
    raise TypeError(f"head must be PerceptronHead(), LMSHead(), LogisticHead() or RegressionHead(), found {head!r}")


def labels_or_targets(head: Head, y: Data, count: int, units: int, *, both: bool = True) -> Tensor:
    """What a head learns from, checked: labels in int64, or for regression real targets (N,) or (N, K) in float64.

    Args:
        head: which decides between the two.
        y: labels −1/+1 for one unit, class indices for K; any finite numbers for regression.
        count: the number of samples.
        units: how many scores the net has.
        both: require at least two classes; without meaning for regression.

    Example:
        >>> labels_or_targets(LMSHead(), [1, -1], 2, 1), labels_or_targets(RegressionHead(), [1, 2.5], 2, 1)
        (tensor([ 1, -1]), tensor([1.0000, 2.5000], dtype=torch.float64))
    """
    if isinstance(head, RegressionHead):
        return check_targets(y, count, units)
    return check_labels(y, count, units if units > 1 else None, both=both)
