"""Training without a Trainer: the same steps to the bit, the curves of a report kept, no event files."""

from __future__ import annotations

import math
import time
import warnings
from collections import defaultdict
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from torchperc.data.tabular import SplitTable
from torchperc.descent.minimise import minimise
from torchperc.descent.sgd import descend
from torchperc.lightning.loader import SliceLoader
from torchperc.lightning.outcome import divergence
from torchperc.nn import functional as tpf
from torchperc.nn.heads import Head, PerceptronHead, RegressionHead
from torchperc.nn.modules import MulticlassPerceptron, Perceptron
from torchperc.rules.run import RuleResult
from torchperc.rules.trainer import RuleTrainer
from torchperc.theory.rates import auto_lr

if TYPE_CHECKING:
    from torchperc.reports.subject import Curves


class Trained(nn.Module):
    """A linear net of torchperc after its training, with its head, as a Lightning module has them.

    Args:
        net: after its training.
        head: what its scores mean.

    Example:
        >>> import torchperc as tp
        >>> Trained(tp.Perceptron(2), tp.LogisticHead()).predict_step(torch.zeros(1, 2))
        tensor([-1])
    """

    def __init__(self, net: nn.Module, head: Head) -> None:
        super().__init__()
        self.net, self.head = net, head

    @property
    def device(self) -> torch.device:
        """Where it computes."""
        return next(self.net.parameters()).device

    def forward(self, x: Tensor) -> Tensor:
        """Scores: (N,), or (N, K)."""
        scores: Tensor = self.net(x)
        return scores

    def predict_step(self, batch: Any) -> Tensor:
        """Labels −1/+1 or class indices of samples; numbers if it is a regression."""
        scores = tpf.finite_scores(self(batch))
        return self.head.output(scores).detach() if isinstance(self.head, RegressionHead) else self.head.decide(scores)


class Course(NamedTuple):
    """How a training went: epochs, seconds, curves by epoch, and of a run by rule its result."""

    epochs: int
    seconds: float
    curves: Curves
    result: RuleResult | None = None


def train_by_rule(
    net: Perceptron | MulticlassPerceptron, data: SplitTable, epochs: int, options: Mapping[str, Any]
) -> Course:
    """Train by the perceptron rule for so many epochs at most, as ``LitRule(net, **options)`` does."""
    recorder = _Recorder(net, PerceptronHead(), data)
    run = RuleTrainer(max_epochs=epochs, **options).start(net, *recorder.samples)
    while run.verdict is None:
        record = run.epoch()
        run.write_to(net)
        recorder.after_epoch({"error": record.mistakes / run.count})
    result = run.result()
    result.write_to(net)
    return recorder.course(result)


def train_by_descent(
    net: Perceptron | MulticlassPerceptron, head: Head, data: SplitTable, epochs: int, options: Mapping[str, Any]
) -> Course:
    """Train by gradient descent for so many epochs, as ``LitClassifier`` and ``LitRegressor`` with these options do.

    Of their options it knows ``lr``, ``update`` and ``scheduler``, which is cosine annealing. If loss or weights stop
    being finite, it stops with the last finite weights and warns.
    """
    recorder = _Recorder(net, head, data)
    X, y = recorder.samples
    by_sample, lr = options.get("update") == "sample", options["lr"]
    if lr == "auto":
        classes, size = None if len(net.weight) == 1 else len(net.weight), 1 if by_sample else "full"
        lr = auto_lr(head, recorder.X, bias=net.bias is not None, num_classes=classes, batch_size=size)
    kept = _copied(net)
    for epoch, rate in enumerate(_annealed(lr, epochs) if "scheduler" in options else [lr] * epochs, start=1):
        if by_sample:
            measured = recorder.measured(descend(net, head, X, y, rate), y)
        else:
            scores = net(X)
            losses = head.loss(scores, y, reduction="none")
            _step(net, losses.mean(), rate)
            measured = recorder.measured(scores.detach(), y, losses.detach())
        recorder.after_epoch(measured)
        finite = all(bool(torch.isfinite(values).all()) for values in net.parameters())
        if not finite or not math.isfinite(measured["loss"]):
            net.load_state_dict(kept)
            warnings.warn(divergence(epoch, finite), stacklevel=2)
            break
        kept = _copied(net)
    return recorder.course()


def _step(net: Perceptron | MulticlassPerceptron, loss: Tensor, lr: float) -> None:
    """A step of plain SGD; an optimizer of torch's would import its compiler, which takes longer than all the rest."""
    parameters = list(net.parameters())
    with torch.no_grad():
        for values, gradient in zip(parameters, torch.autograd.grad(loss, parameters), strict=True):
            values.add_(gradient, alpha=-lr)


def _annealed(lr: float, epochs: int) -> list[float]:
    """The learning rates of ``CosineAnnealingLR(optimizer, T_max=epochs)``, which are made one out of the other."""
    rates = [lr]
    for epoch in range(1, epochs):
        fall = (1 + math.cos(math.pi * epoch / epochs)) / (1 + math.cos(math.pi * (epoch - 1) / epochs))
        rates.append(fall * rates[-1])
    return rates


def train_to_minimum(net: Perceptron, data: SplitTable, l2: float) -> Course:
    """Take a net to the minimum of mean ½(y − s)² + ½·l2·‖w‖², as ``LitLeastSquares(net, l2)`` does."""
    recorder = _Recorder(net, RegressionHead(), data)
    X, y = recorder.samples
    minimise(net, recorder.head, X, y, l2=l2)
    with torch.no_grad():
        recorder.after_epoch(recorder.measured(net(X), y))
    return recorder.course()


class _Recorder:
    """The samples of a training in memory, and what is measured of it after each epoch."""

    def __init__(self, net: Perceptron | MulticlassPerceptron, head: Head, data: SplitTable) -> None:
        self._begun = time.perf_counter()
        self.net, self.head = net, head
        loader = SliceLoader(*data.parts[0], sharding="none")
        self.X = loader.X
        self.samples: tuple[Tensor, Tensor] = next(iter(loader))
        self._validation = next(iter(SliceLoader(*data.parts[1], sharding="none")), None)
        self._unit = data.target_unit
        self._curves: dict[str, list[float]] = defaultdict(list)

    def measured(self, scores: Tensor, y: Tensor, losses: Tensor | None = None) -> dict[str, float]:
        """Loss and error or RMSE of samples with these scores, RMSE in the target's own units."""
        losses = self.head.loss(scores, y, reduction="none") if losses is None else losses
        loss = float(losses.sum(dtype=torch.float64)) / len(y)
        if isinstance(self.head, RegressionHead):
            squares = (y.double() - scores.double()).square().mean()
            return {"rmse": self._unit * math.sqrt(squares), "loss": loss}
        return {"error": int((self.head.decide(scores) != y).sum()) / len(y), "loss": loss}

    @torch.no_grad()
    def after_epoch(self, training: Mapping[str, float]) -> None:
        """Record what was measured of the training set, and measure the validation set."""
        sets = {"train": training}
        if self._validation is not None:
            X, y = self._validation
            sets["val"] = self.measured(self.net(X), y)
        for name, measured in sets.items():
            for what in training:
                self._curves[f"{what}/{name}"].append(measured[what])

    def course(self, result: RuleResult | None = None) -> Course:
        """How the training went."""
        curves = {name: (np.arange(1.0, len(values) + 1), np.array(values)) for name, values in self._curves.items()}
        epochs = max((len(steps) for steps, _ in curves.values()), default=0)
        return Course(epochs, time.perf_counter() - self._begun, curves, result)


def _copied(net: Perceptron | MulticlassPerceptron) -> dict[str, Tensor]:
    return {name: values.clone() for name, values in net.state_dict().items()}
