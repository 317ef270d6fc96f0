"""Exact stochastic descent, one update a sample in order, without autograd: for linear nets and the three heads.

For a linear score s = w·x + b the gradient of any loss ℓ(s, y) is ℓ'(s)·x, so a step is w ← w − η·ℓ'(s)·x. Running
these steps in one call spares a Trainer's cost per step, which is a hundred times that of the arithmetic.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from torchperc.heads import Head, LMSHead, LogisticHead, PerceptronHead
from torchperc.modules import MulticlassPerceptron, Perceptron
from torchperc.rules.conventions import mistaken_for

LinearNet = Perceptron | MulticlassPerceptron | nn.Linear


def slopes(head: Head) -> Callable[[list[float], int], list[float]]:
    """The derivative ℓ'(s, y) of a head's loss in each score, for one sample.

    Example:
        >>> slopes(LMSHead())([0.25], 1)
        [-0.75]
    """
    if isinstance(head, PerceptronHead):
        tie = "strict" if head.tie == "ignore" else head.tie
        return lambda s, y: _perceptron(s, y, tie)
    if isinstance(head, LMSHead):
        low = 0.0 if head.targets == "0/1" else -1.0
        return lambda s, y: _lms(s, y, low)
    if isinstance(head, LogisticHead):
        return _logistic
    raise TypeError(f"update='sample' knows the heads PerceptronHead, LMSHead and LogisticHead, found {head!r}")


def _perceptron(s: list[float], y: int, tie: str) -> list[float]:
    wrong = mistaken_for(s, y, tie=tie, margin=0.0)
    if wrong is None:
        return [0.0] * len(s)
    return [-float(y)] if len(s) == 1 else [float(k == wrong) - float(k == y) for k in range(len(s))]


def _lms(s: list[float], y: int, low: float) -> list[float]:
    if len(s) == 1:
        return [s[0] - (1.0 if y > 0 else low)]
    return [value - (1.0 if k == y else low) for k, value in enumerate(s)]


def _logistic(s: list[float], y: int) -> list[float]:
    if len(s) == 1:
        return [-y * _sigmoid(-y * s[0])]
    top = max(s)
    powers = [math.exp(value - top) for value in s]
    total = sum(powers)
    return [power / total - float(k == y) for k, power in enumerate(powers)]


def _sigmoid(z: float) -> float:
    return 1.0 / (1.0 + math.exp(-z)) if z >= 0 else math.exp(z) / (1.0 + math.exp(z))


@torch.no_grad()
def descend(net: LinearNet, head: Head, X: Tensor, y: Tensor, lr: float) -> Tensor:
    """Run through the samples in order, one step each; return the scores each had before its own step.

    Args:
        net: a linear net; its weights are changed in place.
        head: whose loss is lowered.
        X: samples.
        y: labels.
        lr: the rate η.

    Shape:
        X (N, d), y (N,) → (N,), or (N, K).

    Example:
        >>> net = Perceptron(1)
        >>> descend(net, LMSHead(), torch.tensor([[1.0], [1.0]]), torch.tensor([1, 1]), lr=0.25)
        tensor([0.0000, 0.5000])
    """
    weight, bias, slope = net.weight, net.bias, slopes(head)
    largest = torch.finfo(weight.dtype).max
    seen = []
    for x, label in zip(X, y.tolist(), strict=True):
        scores = nn.functional.linear(x, weight, bias)
        seen.append(scores)
        for k, value in enumerate(slope(scores.tolist(), label)):
            step = -lr * value
            if abs(step) > largest:
                step = math.copysign(math.inf, step)  # as autograd would: the run diverges, which others look out for
            if step:
                weight[k].add_(x, alpha=step)
                if bias is not None:
                    bias[k].add_(step)
    scores = torch.stack(seen)
    return scores.squeeze(-1) if len(weight) == 1 else scores


def check_linear(net: nn.Module) -> LinearNet:
    """A net that :func:`descend` can train, or an error that names the alternative."""
    if not isinstance(net, LinearNet):
        raise TypeError(
            f"update='sample' needs a linear net (Perceptron, MulticlassPerceptron, nn.Linear), found "
            f"{type(net).__name__}; use update='batch' with batch_size=1, which makes the same steps for any net"
        )
    return net
