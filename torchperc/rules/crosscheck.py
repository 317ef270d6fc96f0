"""The cross-check: the rule and autograd on the same samples, compared mistake by mistake and weight by weight.

One side is the rule. The other is a net, the perceptron criterion, ``backward`` and ``torch.optim.SGD``; a mistake
there is a non-zero derivative of the loss in the score. Both round alike: the rule makes steps of η here and decides by
the rounded score, where :class:`~torchperc.RuleTrainer` scales steps of 1 and decides near ties exactly.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from torchperc._checks import Data, check_choice, check_int
from torchperc.nn import functional as tpf
from torchperc.nn.losses import MulticlassPerceptronLoss, PerceptronLoss
from torchperc.rules.conventions import Order
from torchperc.rules.decision import predicted_as
from torchperc.rules.log import MistakeLog
from torchperc.rules.make_problem import dtype_of, zero_net
from torchperc.rules.problem import Mistake, Mistakes, Weights
from torchperc.rules.trainer import RuleTrainer
from torchperc.samples import convert
from torchperc.samples.rows import Dense

MODES = ("sample", "batch")
FEW_ULPS = 4.0
"""How far float weights may be apart, in units of the last place of the largest of them."""


class Side(NamedTuple):
    """One side of a step: its scores, the predicted label if it was a mistake, the coefficient of the update."""

    scores: list[float]
    predicted: int | None
    coef: float


class Step(NamedTuple):
    """One presented sample on both sides, and the weights after it (live tensors: copy what you keep)."""

    epoch: int
    sample: int
    rule: Side
    gradient: Side
    rule_weights: Weights
    gradient_weights: Weights


@dataclass(frozen=True)
class CrossCheck:
    """The result of a cross-check.

    Args:
        equal: the same mistakes, and the same weights: to the bit where the arithmetic is exact (integer samples, a
            learning rate that is a power of two), else within a few units in the last place (in batch mode within the
            rounding bound of sums in different orders).
        exact: the weights are the same to the bit.
        ulps: the largest difference of weights, in units of the last place of the largest number added up.
        rule: the rule's log.
        gradient: autograd's log.
        first_difference: the first step after which the sides differ, or ``None``.

    Example:
        >>> import torchperc as tp
        >>> check = tp.crosscheck(*tp.data.gate("AND"), epochs=10)
        >>> check.equal, check.exact, len(check.rule), len(check.gradient)
        (True, True, 18, 18)
    """

    equal: bool
    exact: bool
    ulps: float
    rule: MistakeLog
    gradient: MistakeLog
    first_difference: Step | None


def crosscheck(
    X: Data,
    y: Data,
    lr: float = 1.0,
    epochs: int = 5,
    tie: str = "update",
    dtype: torch.dtype | None = None,
    order: Any = "given",
    seed: int = 0,
    *,
    bias_step: str = "unit",
    num_classes: int | None = None,
    mode: str = "sample",
) -> CrossCheck:
    """Compare the rule with autograd, from zero weights until an epoch without a mistake.

    Args:
        X: samples.
        y: labels −1/+1, or class indices with ``num_classes``.
        lr: learning rate η of both sides.
        epochs: maximum number of epochs.
        tie: ``"update"``, ``"sign"`` or ``"strict"``; of the loss, the derivative at the kink that means the same.
        dtype: of the arithmetic; that of X if it is floating, else torch's default.
        order: ``"given"``, ``"shuffled"``, ``"random-mistake"`` or sample numbers.
        seed: random seed of the order.
        bias_step: ``"unit"``, ``"radius"`` or ``"none"``; for autograd, a learning rate of its own for the bias.
        num_classes: K for class indices.
        mode: ``"sample"`` makes one step per sample. ``"batch"`` makes one step per epoch: the gradient of the summed
            loss on one side, the sum of the updates of all current mistakes on the other.

    Shape:
        X (N, d), y (N,).

    Example:
        >>> import torchperc as tp
        >>> check = crosscheck(*tp.data.gate("XOR"), epochs=3, tie="sign")
        >>> check.equal, len(check.rule), check.first_difference
        (True, 10, None)
    """
    if check_choice("mode", mode, MODES) == "batch" and not (isinstance(order, str) and order == "given"):
        raise ValueError("mode='batch' makes one step for all samples; order must be 'given'")
    epochs = check_int("epochs", epochs, at_least=1)
    trainer = RuleTrainer(epochs, lr, tie, bias_step, order, engine="reference", seed=seed)
    return _compare(_Sides(trainer, X, y, dtype, num_classes, mode))


def trace(X: Data, y: Data, lr: float = 1.0, epochs: int = 5, tie: str = "update") -> Iterator[Step]:
    """Yield both sides sample by sample in the given order: every score, mistake and weight.

    Example:
        >>> import torchperc as tp
        >>> step = next(trace(*tp.data.gate("AND")))
        >>> step.rule, step.gradient_weights.bias.data
        (Side(scores=[0.0], predicted=1, coef=-1.0), tensor([-1.]))
    """
    trainer = RuleTrainer(check_int("epochs", epochs, at_least=1), lr, tie, "unit", engine="reference")
    return _Sides(trainer, X, y).steps()


class _Sides:
    """Checked data with both sides at their start: a problem with weights, and a net with a loss and SGD."""

    def __init__(
        self, trainer: RuleTrainer, X: Data, y: Data, dtype: Any = None, classes: Any = None, mode: str = "sample"
    ) -> None:
        self.epochs, self.lr, self.batch = trainer.max_epochs, trainer.lr, mode == "batch"
        self.X = convert.features(X, dtype=dtype_of(X, dtype), convert=True)
        net = zero_net(Dense(self.X), classes)
        assert net.bias is not None
        self.net, self.gradient_weights = net, Weights(net.weight, net.bias)
        self.problem, self.start, ids = trainer.problem_for(net, Dense(self.X), y, None, None, 1.0)
        self.weights = self.start.clone()
        self.y = torch.from_numpy(self.problem.y).to(self.X.device)
        self.order = Order(trainer.order, ids, trainer.seed, self.epochs)
        self.loss = (PerceptronLoss if classes is None else MulticlassPerceptronLoss)("sum", tie=trainer.tie)
        groups = [(net.weight, self.lr), (net.bias, self.lr * self.problem.bias_step)]
        self.optimizer = torch.optim.SGD([{"params": [values], "lr": lr} for values, lr in groups])

    def tolerance(self) -> float:
        """Return the allowed difference of weights, in units of the last place of the largest number in them.

        0 where every sum is exact: integers, a learning rate that is a power of two, no sum beyond the mantissa. In
        batch mode the two sides add in different orders, which costs up to N units per epoch.
        """
        largest = float(self.X.abs().sum(0).max()) * self.epochs * max(1.0, self.problem.bias_step)
        whole = bool((self.X.round() == self.X).all()) and math.frexp(self.lr)[0] == 0.5
        if whole and largest < 1 / torch.finfo(self.X.dtype).eps:
            return 0.0
        return FEW_ULPS + (len(self.X) * self.epochs if self.batch else 0)

    def steps(self) -> Iterator[Step]:
        """Present one sample at a time to both sides, or all of them at once."""
        for epoch in range(self.epochs):
            clean = True
            for ids in self.order.epoch(epoch, self._mistakes):
                for some in [ids] if self.batch else ids[:, None]:
                    for i, rule, gradient in zip(some.tolist(), self._rule(some), self._gradient(some), strict=True):
                        clean &= rule.predicted is None and gradient.predicted is None
                        yield Step(epoch + 1, i, rule, gradient, self.weights, self.gradient_weights)
            if clean or self.order.no_mistake_left:
                return

    def _mistakes(self) -> Any:
        scores = F.linear(self.X, *self.weights)
        scores = scores.squeeze(-1) if self.problem.num_classes is None else scores
        return tpf.mistakes(scores, self.y, tie=self.problem.rule.tie).cpu().numpy()

    def _rule(self, ids: Any) -> list[Side]:
        """Decide for some samples by the scores of now, then make the updates of those that are mistakes."""
        problem, sides = self.problem, []
        for i, scores in zip(ids.tolist(), F.linear(self.X[ids], *self.weights).tolist(), strict=True):
            predicted = int(predicted_as(scores, int(problem.y[i]), problem.rule.code, 0.0, 0.0))
            mistake = predicted != problem.y[i]
            sides.append(Side(scores, predicted, float(problem.coef(i))) if mistake else Side(scores, None, 0.0))
        for i, side in zip(ids.tolist(), sides, strict=True):
            if side.predicted is not None:
                problem.update(self.weights, i, side.predicted, self.lr)
        return sides

    def _gradient(self, ids: Any) -> list[Side]:
        """Make one step of SGD on some samples; return what autograd did to each."""
        self.optimizer.zero_grad()
        scores = self.net(self.X[ids])
        scores.retain_grad()
        self.loss(scores, self.y[ids]).backward()
        self.optimizer.step()
        assert scores.grad is not None
        rows = [each.detach().reshape(-1, self.problem.outputs) for each in (scores, scores.grad)]
        return [self._slope_side(*pair) for pair in zip(*rows, strict=True)]

    def _slope_side(self, scores: Tensor, slope: Tensor) -> Side:
        if not slope.any():
            return Side(scores.tolist(), None, 0.0)
        if len(slope) == 1:  # the loss falls towards the right label, so it rises towards the predicted one
            return Side(scores.tolist(), int(slope.sign()), -self.lr * float(slope))
        return Side(scores.tolist(), int(slope.argmax()), self.lr * float(slope.max()))


def _compare(sides: _Sides) -> CrossCheck:
    logs: tuple[list[Mistake], list[Mistake]] = ([], [])
    ends: dict[int, int] = {}
    # the size of the numbers that a batch step adds up, which a sum that cancels does not show
    entered = sides.lr * float(sides.X.abs().sum(0).max()) * sides.epochs if sides.batch else 0.0
    allowed, worst, first = sides.tolerance(), 0.0, None
    for number, step in enumerate(sides.steps(), 1):
        ends[step.epoch] = number
        for log, side in zip(logs, (step.rule, step.gradient), strict=True):
            if side.predicted is not None:
                log.append(Mistake(step.sample, number - 1, side.coef, side.predicted))
        apart = _ulps(step.rule_weights, step.gradient_weights, entered)
        worst = max(worst, apart)
        if first is None and (step.rule[1:] != step.gradient[1:] or apart > allowed):
            copies = {name: getattr(step, name).clone() for name in ("rule_weights", "gradient_weights")}
            first = step._replace(**copies)
    every = torch.tensor(list(ends.values()), dtype=torch.int64)
    rule, gradient = (MistakeLog(sides.problem, sides.start, (Mistakes.of(each),), every) for each in logs)
    return CrossCheck(first is None, worst == 0.0, worst, rule, gradient, first)


def _ulps(one: Weights, other: Weights, entered: float) -> float:
    pairs = [(a, b.detach()) for a, b in zip(one, other, strict=True)]
    if all(torch.equal(a, b) for a, b in pairs):
        return 0.0
    apart = max(float((a - b).abs().max()) for a, b in pairs)
    largest = max(entered, *(float(a.abs().max()) for pair in pairs for a in pair))
    return apart / (largest * torch.finfo(one.weight.dtype).eps) if math.isfinite(apart) else math.inf
