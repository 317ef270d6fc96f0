"""The cross-check: the rule and autograd on the same samples, compared mistake by mistake and weight by weight.

One side is the rule's reference engine. The other is a net, the perceptron criterion, ``backward`` and
``torch.optim.SGD``; a mistake there is a non-zero derivative of the loss in the score. Both round alike: the rule makes
steps of η here and decides by the rounded score, where :class:`~torchperc.RuleTrainer` scales steps of 1 and decides
near ties exactly.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from torchperc._checks import Data, check_choice, check_int, check_labels, check_number
from torchperc.nn import functional as tpf
from torchperc.nn.losses import MulticlassPerceptronLoss, PerceptronLoss
from torchperc.nn.modules import MulticlassPerceptron, Perceptron
from torchperc.rules.conventions import BIAS_STEPS, TIES
from torchperc.rules.engines.reference import ReferenceEngine, Task
from torchperc.rules.log import Mistake, MistakeLog, Mistakes
from torchperc.rules.orders import Order, check_order
from torchperc.rules.problem import check_steps, dtype_of, linear_problem, warn_if_stuck, with_bias_step, zero_net
from torchperc.rules.spaces import Space, Weights
from torchperc.samples import convert
from torchperc.samples.rows import DenseRows

MODES = ("sample", "batch")
FEW_ULPS = 4.0
"""How far float weights may be apart, in units of the last place of the largest of them."""


class Side(NamedTuple):
    """One side of a step: its scores, the wrong label if it was a mistake, the coefficient of the update."""

    scores: list[float]
    wrong: int | None
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
class Difference:
    """Where the two sides differ: epoch from 1, sample, scores before and weights after, on each side."""

    epoch: int
    sample: int
    rule_scores: list[float]
    gradient_scores: list[float]
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
        first_difference: the first, or ``None``.

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
    first_difference: Difference | None


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
    """Run the rule and autograd side by side from zero weights, until an epoch without a mistake, and compare them.

    Args:
        X: samples.
        y: labels −1/+1, or class indices with ``num_classes``.
        lr: the learning rate η of both sides.
        epochs: at most so many.
        tie: ``"update"``, ``"sign"`` or ``"strict"``; of the loss, the derivative at the kink that means the same.
        dtype: of the arithmetic; that of X if it is floating, else torch's default.
        order: ``"given"``, ``"shuffled"``, ``"random-mistake"`` or sample numbers.
        seed: of the order.
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
    problem = _Problem(X, y, lr, epochs, tie, dtype, order, seed, bias_step, num_classes)
    steps = problem.samples() if check_choice("mode", mode, MODES) == "sample" else problem.batches()
    return _compare(problem, steps, mode)


def trace(X: Data, y: Data, lr: float = 1.0, epochs: int = 5, tie: str = "update") -> Iterator[Step]:
    """Both sides sample by sample in the given order: every score, mistake and weight.

    Example:
        >>> import torchperc as tp
        >>> step = next(trace(*tp.data.gate("AND")))
        >>> step.rule, step.gradient_weights.bias.data
        (Side(scores=[0.0], wrong=1, coef=-1.0), tensor([-1.]))
    """
    return _Problem(X, y, lr, epochs, tie).samples()


class _Problem:
    """Checked data with both sides at their start."""

    def __init__(
        self,
        X: Data,
        y: Data,
        lr: float,
        epochs: int,
        tie: str,
        dtype: torch.dtype | None = None,
        order: Any = "given",
        seed: int = 0,
        bias_step: str = "unit",
        num_classes: int | None = None,
    ) -> None:
        check_choice("tie", tie, TIES)
        check_choice("bias_step", bias_step, BIAS_STEPS)
        self.lr = check_number("lr", lr, above=0)
        self.epochs = check_int("epochs", epochs, at_least=1)
        self.X = convert.features(X, dtype=dtype_of(X, dtype), convert=True)
        net = zero_net(DenseRows(self.X), num_classes)
        space, self.start = linear_problem(net, self.X)
        everyone = torch.arange(len(self.X), device=self.X.device)
        self.space = with_bias_step(space, net, bias_step, everyone)
        self.y = check_labels(y, len(self.X), self.space.classes).to(self.X.device)
        ones = torch.ones(len(self.y), dtype=torch.float64, device=self.X.device)
        steps = check_steps(self.lr, ones, self.space)
        self.rule = ReferenceEngine(Task(self.space, self.y, steps, tie, 0.0), self.start, exact=False)
        self.autograd = _Autograd(net, self.lr, tie, self.space)
        self.order = Order(check_order(order), everyone, check_int("seed", seed, at_least=0), self.epochs)
        warn_if_stuck(tie, 0.0, self.start, stacklevel=4)

    def tolerance(self, mode: str) -> float:
        """The allowed difference of weights, in units of the last place of the largest number that entered them.

        0 where every sum is exact: integers, a learning rate that is a power of two, no sum beyond the mantissa. In
        batch mode the two sides add in different orders, which costs up to N units per epoch.
        """
        largest = float(self.X.abs().sum(0).max()) * self.epochs * max(1.0, self.space.bias_scale)
        whole = bool((self.X.round() == self.X).all()) and math.frexp(self.lr)[0] == 0.5
        if whole and largest < 1 / torch.finfo(self.X.dtype).eps:
            return 0.0
        return FEW_ULPS if mode == "sample" else FEW_ULPS + len(self.X) * self.epochs

    def samples(self) -> Iterator[Step]:
        for epoch in range(self.epochs):
            clean = True
            for chunk in self.order.epoch(epoch, self.rule.mistakes):
                for i in chunk.tolist():
                    scores, found = self.rule.present(i)
                    rule = Side(scores, None, 0.0) if found is None else Side(scores, found.wrong, found.coef)
                    gradient = self.autograd.present(self.X[i], self.y[i])
                    clean &= rule.wrong is None and gradient.wrong is None
                    yield Step(epoch + 1, i, rule, gradient, self.rule.weights, self.autograd.weights)
            if clean or self.order.ran_dry:
                return

    def batches(self) -> Iterator[Step]:
        if self.order.name != "given":
            raise ValueError("mode='batch' makes one step for all samples; order must be 'given'")
        for epoch in range(self.epochs):
            rule, gradient = self._rule_batch(), self.autograd.batch(self.X, self.y)
            for i, sides in enumerate(zip(rule, gradient, strict=True)):
                yield Step(epoch + 1, i, *sides, self.rule.weights, self.autograd.weights)
            if not any(side.wrong is not None for side in (*rule, *gradient)):
                return

    def _rule_batch(self) -> list[Side]:
        scores, wrong = self.rule.training_scores(), self.rule.mistakes()
        rivals = -self.y if self.space.classes is None else tpf.rival_scores(scores, self.y)[1]
        sides = []
        for i, own in enumerate(self.y.tolist()):
            coef, rival = self.rule.task.coef(i, own), int(rivals[i])
            if wrong[i]:
                self.rule.space.update(self.rule.weights, i, coef, own, rival)
            sides.append(Side(scores[i].tolist(), rival, coef) if wrong[i] else Side(scores[i].tolist(), None, 0.0))
        return sides


class _Autograd:
    """The side of the gradient: a net, a loss, ``backward`` and SGD."""

    def __init__(self, net: Perceptron | MulticlassPerceptron, lr: float, tie: str, space: Space) -> None:
        loss = PerceptronLoss if space.classes is None else MulticlassPerceptronLoss
        assert net.bias is not None
        self.net, self.lr, self.loss = net, lr, loss("sum", tie=tie)
        self.weights = Weights(net.weight, net.bias)
        groups = [{"params": [net.weight], "lr": lr}, {"params": [net.bias], "lr": lr * space.bias_scale}]
        self.optimizer = torch.optim.SGD(groups)

    def present(self, x: Tensor, y: Tensor) -> Side:
        return self._side(*self._step(x, y))

    def batch(self, X: Tensor, y: Tensor) -> list[Side]:
        return [self._side(s, slope) for s, slope in zip(*self._step(X, y), strict=True)]

    def _step(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        self.optimizer.zero_grad()
        scores = self.net(x)
        scores.retain_grad()
        self.loss(scores, y).backward()
        self.optimizer.step()
        return scores.detach(), scores.grad

    def _side(self, scores: Tensor, slope: Tensor) -> Side:
        seen = scores.reshape(-1).tolist()
        if not slope.any():
            return Side(seen, None, 0.0)
        if slope.dim() == 0:  # the loss falls towards the right label, so it rises towards the wrong one
            return Side(seen, int(slope.sign()), -self.lr * float(slope))
        wrong = int(slope.argmax())
        return Side(seen, wrong, self.lr * float(slope[wrong]))


def _compare(problem: _Problem, steps: Iterator[Step], mode: str) -> CrossCheck:
    logs: tuple[list[Mistake], list[Mistake]] = ([], [])
    ends: list[int] = []
    # the size of the numbers that a batch step adds up, which a sum that cancels does not show
    entered = 0.0 if mode == "sample" else problem.lr * float(problem.X.abs().sum(0).max()) * problem.epochs
    allowed = problem.tolerance(mode)
    worst, first, number = 0.0, None, 0
    for number, step in enumerate(steps, 1):
        if step.epoch > len(ends):
            ends.append(0)
        ends[-1] = number
        for log, side in zip(logs, (step.rule, step.gradient), strict=True):
            if side.wrong is not None:
                log.append(Mistake(step.sample, number - 1, side.coef, side.wrong))
        apart = _ulps(step.rule_weights, step.gradient_weights, entered)
        worst = max(worst, apart)
        differs = (step.rule.wrong, step.rule.coef) != (step.gradient.wrong, step.gradient.coef) or apart > allowed
        if differs and first is None:
            weights = step.rule_weights.clone(), step.gradient_weights.clone()
            first = Difference(step.epoch, step.sample, step.rule.scores, step.gradient.scores, *weights)
    columns = (Mistakes.of(log, problem.y.device) for log in logs)
    rule, gradient = (MistakeLog.of(problem.space, problem.y, problem.start, each, ends) for each in columns)
    return CrossCheck(first is None, worst == 0.0, worst, rule, gradient, first)


def _ulps(one: Weights, other: Weights, entered: float) -> float:
    pairs = ((one.weight, other.weight.detach()), (one.bias, other.bias.detach()))
    if all(torch.equal(a, b) for a, b in pairs):
        return 0.0
    apart = max(float((a - b).abs().max()) for a, b in pairs)
    largest = max(entered, *(float(a.abs().max()) for pair in pairs for a in pair))
    return apart / (largest * torch.finfo(one.weight.dtype).eps) if math.isfinite(apart) else math.inf
