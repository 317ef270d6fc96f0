"""The cross-check of chains: the rule and autograd on the same sequences, mistake by mistake and weight by weight.

One side is the rule's reference engine. The other is a :class:`ChainPerceptron`, :class:`StructuredPerceptronLoss`,
``backward`` and ``torch.optim.SGD``; a mistake there is a gradient that is not 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from torchperc import _checks as checks
from torchperc.rules.conventions import TIES
from torchperc.rules.crosscheck import FEW_ULPS
from torchperc.rules.orders import Order, check_order
from torchperc.sequences.chains import ChainPerceptron, StructuredPerceptronLoss
from torchperc.sequences.engines import ReferenceEngine, Task
from torchperc.sequences.layout import Sequences, flat_tags, split
from torchperc.sequences.weights import ChainWeights


@dataclass(frozen=True)
class ChainDifference:
    """Where the two sides differ: epoch from 1, sequence, the wrong tags on each side (``None``: no mistake)."""

    epoch: int
    sequence: int
    rule: list[int] | None
    gradient: list[int] | None


@dataclass(frozen=True)
class ChainCrossCheck:
    """The result of a cross-check of chains.

    Args:
        equal: the same mistakes, and the same weights: to the bit where the arithmetic is exact (integers, a learning
            rate that is a power of two), else within a few units in the last place.
        exact: the weights are the same to the bit.
        ulps: the largest difference of weights, in units of the last place of the largest of them.
        mistakes: how many were made.
        first_difference: the first, or ``None``.
    """

    equal: bool
    exact: bool
    ulps: float
    mistakes: int
    first_difference: ChainDifference | None


def crosscheck_chains(
    X: Any,
    y: Any,
    tags: int,
    lr: float = 1.0,
    epochs: int = 5,
    tie: str = "update",
    *,
    margin: float = 0.0,
    order: Any = "given",
    seed: int = 0,
) -> ChainCrossCheck:
    """Run the rule and autograd side by side from zero weights in float64, until an epoch without a mistake.

    Args:
        X: sequences, in any form that :meth:`Sequences.of` accepts.
        y: their tags.
        tags: K.
        lr: the learning rate η of both sides.
        epochs: at most so many.
        tie: ``"update"``, ``"sign"`` or ``"strict"``; of the loss, the gradient at the kink that means the same.
        margin: per wrong tag, of the rule and the loss.
        order: ``"given"``, ``"shuffled"`` or sequence numbers.
        seed: of the order.

    Example:
        >>> check = crosscheck_chains([[[1, 0], [0, 1]], [[0, 1]]], [[0, 1], [1]], tags=2)
        >>> check.equal, check.exact, check.mistakes
        (True, True, 1)
    """
    sequences = Sequences.of(X)
    flat = flat_tags(y, sequences, checks.whole("tags", tags, at_least=2))
    lr, epochs = checks.number("lr", lr, above=0), checks.whole("epochs", epochs, at_least=1)
    net = ChainPerceptron(sequences.width, tags, dtype=torch.float64)
    loss = StructuredPerceptronLoss("sum", margin, checks.one_of("tie", tie, TIES))
    task = Task(sequences, flat, np.array([lr]), tags, tie, loss.margin)
    rule = ReferenceEngine(task, ChainWeights.zeros(sequences.width, tags))
    optimizer = torch.optim.SGD(net.parameters(), lr=lr)
    ids = torch.arange(len(sequences))
    presented = Order(check_order(order), ids, checks.whole("seed", seed, at_least=0), epochs)
    if presented.name == "random-mistake":
        raise ValueError(
            "order='random-mistake' would decode all sequences before each step; use 'given' or 'shuffled'"
        )
    targets, mistakes, worst, first = split(flat, sequences), 0, 0.0, None
    for epoch in range(1, epochs + 1):
        before = mistakes
        for i in torch.cat(list(presented.epoch(epoch - 1))).tolist():
            wrong = rule.present(i)
            found = _descend(net, loss, optimizer, sequences.padded([i]).x[0], targets[i])
            apart = _ulps(net, rule.weights())
            worst, mistakes = max(worst, apart), mistakes + (wrong is not None)
            allowed = 0.0 if task.whole and float(lr).hex().startswith("0x1.0000000000000p") else FEW_ULPS
            if first is None and (wrong != found or apart > allowed):
                first = ChainDifference(epoch, i, wrong, found)
        if mistakes == before:
            break
    return ChainCrossCheck(first is None, worst == 0.0, worst, mistakes, first)


def _descend(
    net: ChainPerceptron, loss: StructuredPerceptronLoss, optimizer: torch.optim.SGD, x: Tensor, y: Tensor
) -> list[int] | None:
    """One step down the gradient; the wrong tags, if there is a gradient."""
    scores = net(x.double() if x.is_floating_point() else x)
    scores.emission.retain_grad()
    optimizer.zero_grad()
    loss(scores, y).backward()
    optimizer.step()
    slopes = scores.emission.grad
    moved = any(bool(values.grad.any()) for values in net.parameters() if values.grad is not None)
    if slopes is None or not moved:
        return None
    wrong = torch.where((slopes > 0).any(1), slopes.argmax(1), y)  # the loss rises with the scores of the wrong tags
    return [int(tag) for tag in wrong]


def _ulps(net: ChainPerceptron, weights: ChainWeights) -> float:
    pairs = list(zip(net.parameters(), weights.tensors(torch.float64), strict=True))
    apart = max(float((a.detach() - b).abs().max()) for a, b in pairs)
    largest = max(float(b.abs().max()) for _, b in pairs)
    return apart / (largest * torch.finfo(torch.float64).eps) if apart else 0.0
