"""Heads: what a linear score means. Perceptron, LMS and logistic classifiers and regression differ in nothing else.

A head turns scores into an output, a loss (what training lowers) and a decision (a label). Scores (N,) go with labels
−1/+1, scores (N, K) with class indices. Regression has no decision; its targets are real numbers of the scores' shape.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from torchperc._checks import Data, Option, ParameterError, check_choice, check_labels, check_targets
from torchperc.nn import functional as tpf


@dataclass(frozen=True)
class Head(ABC):
    """Base class of heads: decisions for two classes and for K classes."""

    @property
    def threshold(self) -> float:
        """The score from which the decision is +1."""
        return 0.0

    @abstractmethod
    def output(self, scores: Tensor) -> Tensor:
        """Activation of the scores."""

    @abstractmethod
    def loss(self, scores: Tensor, y: Tensor, reduction: str = "mean") -> Tensor:
        """Loss to minimise."""

    def mistakes(self, scores: Tensor, y: Tensor) -> Tensor:
        """Which samples are decided wrongly; for the perceptron, which it updates on."""
        return self.decide(scores) != y

    def decide(self, scores: Tensor) -> Tensor:
        """Labels: −1/+1 for scores (N,), class indices for scores (N, K)."""
        threshold = self.threshold  # which regression has none of
        return tpf.decide_class(scores) if _has_classes(scores) else tpf.decide(scores, threshold)


def _has_classes(scores: Tensor) -> bool:
    if scores.dim() > 1 and scores.shape[-1] < 2:
        raise ValueError(f"scores have shape {tuple(scores.shape)}; for one score per sample pass scores.squeeze(-1)")
    return scores.dim() > 1


@dataclass(frozen=True)
class PerceptronHead(Head):
    """Threshold unit: output sign(s) (one-hot of the argmax for K classes), loss max(0, −y·s), decision s ≥ 0.

    Args:
        tie: derivative of the loss at y·s = 0, see :func:`torchperc.nn.functional.perceptron_loss`.

    Example:
        >>> head = PerceptronHead()
        >>> head.output(torch.tensor([-2.0, 0.5])), head.decide(torch.tensor([-2.0, 0.5]))
        (tensor([-1., 1.]), tensor([-1, 1]))
    """

    tie: str = "update"

    def __post_init__(self) -> None:
        check_choice("tie", self.tie, tpf.TIES)

    def output(self, scores: Tensor) -> Tensor:
        """The thresholded score, in the scores' dtype."""
        labels = self.decide(scores)
        if _has_classes(scores):
            labels = torch.nn.functional.one_hot(labels, scores.shape[-1])
        return labels.to(scores.dtype)

    def mistakes(self, scores: Tensor, y: Tensor) -> Tensor:
        """Samples with a non-zero gradient."""
        return tpf.mistakes(scores, y, tie=self.tie)

    def loss(self, scores: Tensor, y: Tensor, reduction: str = "mean") -> Tensor:
        """Perceptron criterion, two or K classes."""
        return tpf.perceptron_loss(scores, y, reduction=reduction, tie=self.tie)


class SquaredHead(Head):
    """Base class of the heads with a squared loss ½(t − s)²; the output is the score itself."""

    def output(self, scores: Tensor) -> Tensor:
        """The score itself."""
        return scores


@dataclass(frozen=True)
class LMSHead(SquaredHead):
    """Linear unit (Adaline): output s itself, loss ½(t − s)², decision at the middle of the two targets.

    Args:
        targets: ``"-1/+1"`` (decision s ≥ 0) or ``"0/1"`` (decision s ≥ ½).

    Example:
        >>> LMSHead(targets="0/1").decide(torch.tensor([0.4, 0.6]))
        tensor([-1, 1])
    """

    targets: str = "-1/+1"

    def __post_init__(self) -> None:
        if self.targets == tpf.REAL:
            raise ValueError("targets='real' is regression, which decides no class; use RegressionHead()")
        check_choice("targets", self.targets, tpf.TARGETS)

    @property
    def threshold(self) -> float:
        """The middle of the two targets: 0, or ½ with 0/1 targets."""
        return 0.5 if self.targets == "0/1" else 0.0

    def loss(self, scores: Tensor, y: Tensor, reduction: str = "mean") -> Tensor:
        """Squared error, two or K classes."""
        return tpf.lms_loss(scores, y, reduction=reduction, targets=self.targets)


@dataclass(frozen=True)
class LogisticHead(Head):
    """Sigmoid unit: output P(+1) = 1/(1 + e^−s) (softmax for K classes), loss softplus(−y·s), decision P ≥ ½.

    Example:
        >>> LogisticHead().output(torch.tensor([0.0])), LogisticHead().decide(torch.tensor([0.0, 1e-9]))
        (tensor([0.5000]), tensor([1, 1]))
    """

    def output(self, scores: Tensor) -> Tensor:
        """Probability of +1, or of each class."""
        return scores.softmax(-1) if _has_classes(scores) else scores.sigmoid()

    def loss(self, scores: Tensor, y: Tensor, reduction: str = "mean") -> Tensor:
        """Logistic loss, two or K classes."""
        return tpf.logistic_loss(scores, y, reduction=reduction)


@dataclass(frozen=True)
class RegressionHead(SquaredHead):
    """Linear regression: output s itself, loss ½(y − s)² for real targets y, no decision.

    With K outputs the loss of a sample is ½ Σ_k (y_k − s_k)², which is K regressions on the same inputs. Scores and y
    are (N,), or both (N, K).

    Example:
        >>> RegressionHead().loss(torch.tensor([70.0, 61.0]), torch.tensor([72.0, 60.0]))
        tensor(1.2500)
    """

    @property
    def threshold(self) -> float:
        """A ``TypeError``: regression has no threshold, so it decides nothing and makes no mistakes."""
        raise TypeError("RegressionHead predicts numbers and decides no class; use LMSHead() or LogisticHead()")

    def loss(self, scores: Tensor, y: Tensor, reduction: str = "mean") -> Tensor:
        """Squared error per sample, summed over its outputs."""
        losses = tpf.lms_loss(scores, y, reduction="none", targets=tpf.REAL)
        return tpf.reduce(losses.sum(-1) if losses.dim() > 1 else losses, reduction)


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


def head(name: Head | str) -> Head:
    """Return a head by name: ``"perceptron"``, ``"perceptron sign"``, ``"lms"``, ``"logistic"``, ``"regression"``, ….

    A second word is the head's option, ``tie`` or ``targets``. A head is returned as it is.

    Example:
        >>> head("lms 0/1")
        LMSHead(targets='0/1')
    """
    if isinstance(name, Head):
        return name
    spelled = name if isinstance(name, str) else type(name).__name__
    asked = re.sub(r"[^a-z]|loss|head|with|logits", "", spelled.lower())
    if name not in NAMED_HEADS and asked in OTHER_NAMES:
        raise ParameterError(Option("head", name), f" is unknown; use head={OTHER_NAMES[asked]!r}")
    return NAMED_HEADS[check_choice("head", name, tuple(NAMED_HEADS))]


def curvature_bound(head: Head, units: int) -> float:
    """Return the largest second derivative of a loss in its scores; 0 for the perceptron.

    It is 1 for squares, ¼ for one logistic score, ½ for softmax: diag(p) − p·pᵀ has no eigenvalue above ½.
    """
    if isinstance(head, LogisticHead):
        return 0.25 if units == 1 else 0.5
    if isinstance(head, PerceptronHead | SquaredHead):
        return float(isinstance(head, SquaredHead))
    raise TypeError(f"head must be PerceptronHead(), LMSHead(), LogisticHead() or RegressionHead(), found {head!r}")


def labels_or_targets(head: Head, y: Data, count: int, units: int, *, both: bool = True) -> Tensor:
    """Return checked labels in int64, or for regression real targets (N,) or (N, K) in float64."""
    if isinstance(head, RegressionHead):
        return check_targets(y, count, units)
    return check_labels(y, count, units if units > 1 else None, both=both)
