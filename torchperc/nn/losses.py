"""Losses as modules: each ``forward`` is one call into :mod:`torchperc.nn.functional`, which holds the formula.

``reduction`` is ``"mean"``, ``"sum"`` or ``"none"``. Scores (…,) need labels −1/+1, scores (…, K) class indices.
"""

from __future__ import annotations

import torch
from torch import nn

from torchperc._checks import check_choice, check_number
from torchperc.nn import functional as tpf


class _Loss(nn.Module):
    def __init__(self, reduction: str = "mean") -> None:
        super().__init__()
        self.reduction = check_choice("reduction", reduction, tpf.REDUCTIONS)

    def extra_repr(self) -> str:
        """The options, for ``print(loss)``."""
        options = {name: value for name, value in vars(self).items() if name[0] != "_" and name != "training"}
        return ", ".join(f"{name}={value!r}" for name, value in options.items())


class PerceptronLoss(_Loss):
    """Perceptron criterion max(0, −y·s); see :func:`torchperc.nn.functional.perceptron_loss`.

    Args:
        reduction: of the losses of the samples.
        tie: derivative at y·s = 0: ``"update"`` −y, ``"strict"`` 0, ``"sign"`` −y for y = −1 only.

    Example:
        >>> PerceptronLoss()(torch.tensor([-2.0, 3.0]), torch.tensor([1, 1]))
        tensor(1.)
    """

    def __init__(self, reduction: str = "mean", tie: str = "update") -> None:
        super().__init__(reduction)
        self.tie = check_choice("tie", tie, tpf.TIES)

    def forward(self, scores: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """The loss of scores against labels −1/+1."""
        return tpf.perceptron_loss(scores, y, reduction=self.reduction, tie=self.tie)


class MulticlassPerceptronLoss(PerceptronLoss):
    """K-class perceptron criterion max(0, max_{r≠y} s_r − s_y), with the options of :class:`PerceptronLoss`.

    Example:
        >>> MulticlassPerceptronLoss()(torch.tensor([[1.0, 3.0, 0.0]]), torch.tensor([0]))
        tensor(2.)
    """


class LMSLoss(_Loss):
    """Squared error ½(t − s)²; see :func:`torchperc.nn.functional.lms_loss`.

    Args:
        reduction: of the losses of the samples.
        targets: ``"-1/+1"`` for t = y, ``"0/1"`` for t = (y + 1)/2, ``"real"`` for regression on any finite numbers.

    Example:
        >>> LMSLoss(targets="0/1")(torch.tensor([0.0, 1.0]), torch.tensor([1, 1]))
        tensor(0.2500)
    """

    def __init__(self, reduction: str = "mean", targets: str = "-1/+1") -> None:
        super().__init__(reduction)
        self.targets = check_choice("targets", targets, (*tpf.TARGETS, tpf.REAL))

    def forward(self, scores: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """The loss of scores against labels −1/+1, or against real targets."""
        return tpf.lms_loss(scores, y, reduction=self.reduction, targets=self.targets)


class LogisticLoss(_Loss):
    """Logistic loss softplus(−y·s), stable for any finite score.

    Example:
        >>> LogisticLoss()(torch.tensor([0.0]), torch.tensor([1]))
        tensor(0.6931)
    """

    def forward(self, scores: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """The loss of scores against labels −1/+1."""
        return tpf.logistic_loss(scores, y, reduction=self.reduction)


class ZeroOneLoss(_Loss):
    """Zero-one loss: 1 where the decision is wrong. The mean is the error rate; there is no gradient.

    Example:
        >>> ZeroOneLoss(reduction="sum")(torch.tensor([0.0, -1.0]), torch.tensor([1, 1]))
        tensor(1.)
    """

    def forward(self, scores: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """The loss of scores against labels."""
        return tpf.zero_one_loss(scores, y, reduction=self.reduction)


class CostLoss(_Loss):
    """Asymmetric cost of a decision: ``fp`` for a false positive, ``fn`` for a false negative, each at least 0.

    Example:
        >>> CostLoss(fp=1, fn=10)(torch.tensor([1.0, -1.0]), torch.tensor([-1, 1]))
        tensor(5.5000)
    """

    def __init__(self, fp: float = 1.0, fn: float = 1.0, reduction: str = "mean") -> None:
        super().__init__(reduction)
        self.fp, self.fn = check_number("fp", fp, at_least=0), check_number("fn", fn, at_least=0)

    def forward(self, scores: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """The cost of the decisions that follow from the scores."""
        return tpf.cost_loss(scores, y, fp=self.fp, fn=self.fn, reduction=self.reduction)
