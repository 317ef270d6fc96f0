"""The cross-check: the rule and autograd on the same samples, compared mistake by mistake and weight by weight.

One side is the rule's reference engine. The other knows nothing of it: a net, the perceptron criterion, ``backward``
and ``torch.optim.SGD``. What counts as a mistake there is a non-zero derivative of the loss in the score.

Both sides score one sample at a time, x first, the bias in the same call, and step with the same multiply-add, so that
they round alike and a run can be repeated to the bit. So the rule's side makes steps of η here and decides by the
rounded score, as autograd must, where :class:`~torchperc.RuleTrainer` scales steps of 1 and decides near ties exactly.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from torchperc import _checks as checks
from torchperc.nn import functional as tpf
from torchperc.nn.losses import MulticlassPerceptronLoss, PerceptronLoss
from torchperc.nn.modules import MulticlassPerceptron, Perceptron
from torchperc.rules.conventions import BIAS_STEPS, TIES
from torchperc.rules.engines.reference import ReferenceEngine, Task
from torchperc.rules.log import Mistake, MistakeLog, Mistakes, check_labels
from torchperc.rules.orders import Order, check_order
from torchperc.rules.problem import check_steps, linear_problem, warn_if_stuck, with_bias_step
from torchperc.rules.spaces import Space, Weights
from torchperc.samples import convert

MODES = ("sample", "batch")
FEW_ULPS = 4.0
"""How far float weights may be apart, in units of the last place of the largest of them."""


class Side(NamedTuple):
    """One side of a step: the scores it saw, the label it took the sample for if that was a mistake, coefficient."""

    scores: list[float]
    wrong: int | None
    coef: float


class Step(NamedTuple):
    """One presented sample on both sides, and the weights after it (live tensors: copy what is to be kept)."""

    epoch: int
    sample: int
    rule: Side
    gradient: Side
    rule_weights: Weights
    gradient_weights: Weights


@dataclass(frozen=True)
class Difference:
    """Where the two sides part: epoch from 1, sample, scores before and weights after, on either side."""

    epoch: int
    sample: int
    rule_scores: list[float]
    gradient_scores: list[float]
    rule_weights: Weights
    gradient_weights: Weights


@dataclass(frozen=True)
class CrossCheck:
    """What the comparison found.

    Args:
        equal: the same mistakes, and the same weights: to the bit where the arithmetic is exact (integer-valued
            samples, a rate that is a power of two), else within a few units in the last place (in batch mode, where
            both sides add up in different orders, within the rounding bound of such sums).
        exact: the weights are the same to the bit.
        ulps: how far apart the weights were at most, in units of the last place of the largest number added up.
        rule: the rule's log.
        gradient: autograd's log.
        first_difference: where they part, or ``None``.

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
    X: checks.Data,
    y: checks.Data,
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
    """Run the rule and autograd side by side from zero weights, until a clean epoch or the last, and compare them.

    Args:
        X: samples.
        y: labels −1/+1, or class indices with ``num_classes``.
        lr: the rate η of both sides.
        epochs: passes at most.
        tie: ``"update"``, ``"sign"`` or ``"strict"``; on the side of the loss the derivative at the kink that means it.
        dtype: of the arithmetic; that of X if it is floating, else torch's default.
        order: ``"given"``, ``"shuffled"``, ``"random-mistake"`` or sample numbers.
        seed: of the order.
        bias_step: ``"unit"``, ``"radius"`` or ``"none"``; on the side of the loss, a rate of its own for the bias.
        num_classes: K for class indices.
        mode: ``"sample"`` steps at each sample. ``"batch"`` makes one step an epoch: the gradient of the summed loss on
            one side, the sum of the updates of all current mistakes on the other.

    Shape:
        X (N, d), y (N,).

    Example:
        >>> import torchperc as tp
        >>> check = crosscheck(*tp.data.gate("XOR"), epochs=3, tie="sign")
        >>> check.equal, len(check.rule), check.first_difference
        (True, 10, None)
    """
    problem = _Problem(X, y, lr, epochs, tie, dtype, order, seed, bias_step, num_classes)
    steps = problem.samples() if checks.one_of("mode", mode, MODES) == "sample" else problem.batches()
    return _compare(problem, steps, mode)


def trace(X: checks.Data, y: checks.Data, lr: float = 1.0, epochs: int = 5, tie: str = "update") -> Iterator[Step]:
    """Both sides sample by sample in the given order, to look on: every score, mistake and weight.

    Example:
        >>> import torchperc as tp
        >>> step = next(trace(*tp.data.gate("AND")))
        >>> step.rule, step.gradient_weights.bias.data
        (Side(scores=[0.0], wrong=1, coef=-1.0), tensor([-1.]))
    """
    return _Problem(X, y, lr, epochs, tie, None, "given", 0, "unit", None).samples()


class _Problem:
    """Checked data with both sides at their start."""

    def __init__(
        self,
        X: checks.Data,
        y: checks.Data,
        lr: float,
        epochs: int,
        tie: str,
        dtype: torch.dtype | None,
        order: Any,
        seed: int,
        bias_step: str,
        num_classes: int | None,
    ) -> None:
        checks.one_of("tie", tie, TIES)
        checks.one_of("bias_step", bias_step, BIAS_STEPS)
        self.lr = checks.number("lr", lr, above=0)
        self.epochs = checks.whole("epochs", epochs, at_least=1)
        self.X = convert.features(X, dtype=_dtype(X, dtype), convert=True)
        net = _net(self.X, num_classes)
        space, self.start = linear_problem(net, self.X)
        everyone = torch.arange(len(self.X), device=self.X.device)
        self.space = with_bias_step(space, net, bias_step, everyone)
        self.y = check_labels(y, len(self.X), self.space.classes).to(self.X.device)
        ones = torch.ones(len(self.y), dtype=torch.float64, device=self.X.device)
        rates = check_steps(self.lr, ones, self.space)
        self.rule = ReferenceEngine(Task(self.space, self.y, rates, tie, 0.0), self.start, exact=False)
        self.autograd = _Autograd(net, self.lr, tie, self.space)
        self.order = Order(check_order(order), everyone, checks.whole("seed", seed, at_least=0), self.epochs)
        warn_if_stuck(tie, 0.0, self.start, stacklevel=4)

    def tolerance(self, mode: str) -> float:
        """How far the weights may be apart, in units of the last place of the largest number that entered them.

        0 where every sum is exact: whole numbers, a rate that is a power of two, and no sum beyond the type's mantissa.
        A few at one sample a step. In batch mode the two sides add the same numbers in different orders, which by the
        usual bound on sums costs up to N units an epoch.
        """
        largest = float(self.X.abs().sum(0).max()) * self.epochs * max(1.0, self.space.bias_scale)
        whole = bool((self.X.round() == self.X).all()) and math.frexp(self.lr)[0] == 0.5
        if whole and largest < 1 / torch.finfo(self.X.dtype).eps:
            return 0.0
        return FEW_ULPS if mode == "sample" else FEW_ULPS + len(self.X) * self.epochs

    def entered(self, mode: str) -> float:
        """The size of the numbers that a batch step adds up, which a sum that cancels does not show."""
        return 0.0 if mode == "sample" else self.lr * float(self.X.abs().sum(0).max()) * self.epochs

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
            raise ValueError("mode='batch' takes all samples together; order must be 'given'")
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
        self.net, self.lr, self.loss = net, lr, loss("sum", tie="ignore" if tie == "strict" else tie)
        self.weights = Weights(net.weight, net.bias)
        rates = [{"params": [net.weight], "lr": lr}, {"params": [net.bias], "lr": lr * space.bias_scale}]
        self.optimizer = torch.optim.SGD(rates)

    def present(self, x: Tensor, y: Tensor) -> Side:
        scores, slope = self._step(x, y)
        return self._side(scores, slope)

    def batch(self, X: Tensor, y: Tensor) -> list[Side]:
        scores, slopes = self._step(X, y)
        return [self._side(s, slope) for s, slope in zip(scores, slopes, strict=True)]

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
    allowed, entered = problem.tolerance(mode), problem.entered(mode)
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
            first = _difference(step)
    made = [
        MistakeLog.of(problem.space, problem.y, problem.start, Mistakes.of(log, problem.y.device), ends) for log in logs
    ]
    return CrossCheck(first is None, worst == 0.0, worst, made[0], made[1], first)


def _ulps(one: Weights, other: Weights, entered: float) -> float:
    pairs = ((one.weight, other.weight.detach()), (one.bias, other.bias.detach()))
    if all(torch.equal(a, b) for a, b in pairs):
        return 0.0
    apart = max(float((a - b).abs().max()) for a, b in pairs)
    largest = max(entered, *(float(a.abs().max()) for pair in pairs for a in pair))
    return apart / (largest * torch.finfo(one.weight.dtype).eps) if math.isfinite(apart) else math.inf


def _difference(step: Step) -> Difference:
    rule, gradient = (_copy(weights) for weights in (step.rule_weights, step.gradient_weights))
    return Difference(step.epoch, step.sample, step.rule.scores, step.gradient.scores, rule, gradient)


def _copy(weights: Weights) -> Weights:
    return Weights(weights.weight.detach().clone(), weights.bias.detach().clone())


def _dtype(X: checks.Data, dtype: torch.dtype | None) -> torch.dtype:
    if dtype is not None:
        return checks.floating("dtype", dtype)
    own = getattr(X, "dtype", None)
    if isinstance(own, torch.dtype):
        return own if own.is_floating_point else torch.get_default_dtype()
    return {"float32": torch.float32, "float64": torch.float64}.get(str(own), torch.get_default_dtype())


def _net(X: Tensor, num_classes: int | None) -> Perceptron | MulticlassPerceptron:
    made: dict[str, Any] = {"dtype": X.dtype, "device": X.device}
    if num_classes is None:
        return Perceptron(X.shape[1], **made)
    return MulticlassPerceptron(X.shape[1], num_classes, **made)
