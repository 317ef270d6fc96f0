"""Candidates trained: by rule, by descent or to the minimum, with their curves by epoch."""

from __future__ import annotations

import math
import time
import warnings
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from torchperc.data.prepared_data import PreparedData
from torchperc.data.scaling import in_chunks
from torchperc.descent.minimise import minimise
from torchperc.descent.sgd import descend
from torchperc.lightning.outcome import divergence
from torchperc.nn import functional as tpf
from torchperc.nn.heads import Head, PerceptronHead, RegressionHead
from torchperc.nn.modules import MulticlassPerceptron, Perceptron
from torchperc.rules.run import RuleResult
from torchperc.rules.trainer import RuleTrainer
from torchperc.samples import convert
from torchperc.samples.mapped import chunked, is_chunked
from torchperc.theory.learning_rate import auto_lr

if TYPE_CHECKING:
    from torchperc.reports.subject import Curves


class TrainedModule(nn.Module):
    """A linear net of torchperc after its training, with its head, as a Lightning module has them.

    Args:
        net: after its training.
        head: what its scores mean.

    Example:
        >>> import torchperc as tp
        >>> TrainedModule(tp.Perceptron(2), tp.LogisticHead()).predict_step(torch.zeros(1, 2))
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


class Trained(NamedTuple):
    """A candidate after its training: how it was learned in words, epochs, seconds, curves; by rule its result."""

    module: TrainedModule
    how: str
    epochs: int
    seconds: float
    curves: Curves
    result: RuleResult | None = None


def linear_net(data: PreparedData) -> Perceptron | MulticlassPerceptron:
    """The linear net for a table, with zero weights."""
    made = Perceptron(data.width) if data.classes is None else MulticlassPerceptron(data.width, data.classes)
    return made.to(data.dtype)


def safe_lr(data: PreparedData, head: Head, *, by_sample: bool) -> float:
    """A learning rate that is never too large, see :func:`torchperc.theory.auto_lr`."""
    X, classes = data.parts[0][0], data.classes
    if not by_sample:
        return auto_lr(head, X, num_classes=classes)
    return min(auto_lr(head, piece, num_classes=classes, batch_size=1) for piece in in_chunks(X)())


def train_by_rule(data: PreparedData, epochs: int, options: Mapping[str, Any]) -> Trained:
    """Train by the perceptron rule; ``options`` are those of :class:`~torchperc.RuleTrainer`."""
    net = linear_net(data)
    recorder = _Recorder(net, PerceptronHead(), data)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "X is larger than memory and read in chunks")  # its order is good enough
        run = RuleTrainer(max_epochs=epochs, **options).start(net, *data.parts[0])
    while run.verdict is None:
        record = run.epoch()
        run.write_to(net)
        recorder.after_epoch({"error": record.mistakes / run.count})
    result = run.result()
    result.write_to(net)
    shown = ", ".join(f"{name} {value}" for name, value in options.items())
    return recorder.trained(f"the perceptron rule, {shown}", result)


def train_by_descent(
    data: PreparedData, head: Head, epochs: int, lr: float, *, by_sample: bool = False, anneal: bool = False
) -> Trained:
    """Train by gradient descent: full-batch steps, or one step per sample.

    If loss or weights stop being finite, it stops with the last finite weights and warns.

    Args:
        data: the table.
        head: whose loss is lowered.
        epochs: of training.
        lr: the learning rate.
        by_sample: make one step per sample.
        anneal: let the learning rate fall to 0 along a cosine.
    """
    net = linear_net(data)
    recorder, kept = _Recorder(net, head, data), _copied(net)
    for epoch in range(1, epochs + 1):
        rate = lr * (1 + math.cos(math.pi * (epoch - 1) / epochs)) / 2 if anneal else lr
        measured = recorder.measured(_pass_by_sample(recorder, rate) if by_sample else _step(recorder, rate), 0)
        recorder.after_epoch(measured)
        finite = all(bool(torch.isfinite(values).all()) for values in net.parameters())
        if not finite or not math.isfinite(measured["loss"]):
            net.load_state_dict(kept)
            warnings.warn(divergence(epoch, finite), stacklevel=2)
            break
        kept = _copied(net)
    steps = "one step per sample" if by_sample else "full-batch steps"
    return recorder.trained(f"gradient descent, {steps}, learning rate {lr:.4g}{', annealed' if anneal else ''}")


def _pass_by_sample(recorder: _Recorder, rate: float) -> Tensor:
    """One step per sample; the sums of each sample before its own step."""
    net, head = recorder.net, recorder.head
    return sum((recorder.sums(descend(net, head, X, y, rate), y) for X, y in recorder.batches(0)), torch.zeros(2))


def _step(recorder: _Recorder, rate: float) -> Tensor:
    """A step of plain SGD on the mean loss of all samples; the sums before it.

    An optimizer of torch's would import its compiler, which takes longer than all the rest.
    """
    net, head, count, total = recorder.net, recorder.head, recorder.counts[0], torch.zeros(2)
    parameters = list(net.parameters())
    gradients = [torch.zeros_like(values) for values in parameters]
    for X, y in recorder.batches(0):
        scores = net(X)
        losses = head.loss(scores, y, reduction="none")
        for gradient, part in zip(gradients, torch.autograd.grad(losses.sum() / count, parameters), strict=True):
            gradient += part
        total = total + recorder.sums(scores.detach(), y, losses.detach())
    with torch.no_grad():
        for values, gradient in zip(parameters, gradients, strict=True):
            values.add_(gradient, alpha=-rate)
    return total


def train_to_minimum(data: PreparedData, l2: float) -> Trained:
    """Find the minimum of mean ½(y − s)² + ½·l2·‖w‖²."""
    recorder = _Recorder(linear_net(data), RegressionHead(), data)
    minimise(recorder.net, recorder.head, *data.parts[0], l2=l2)
    with torch.no_grad():
        recorder.after_epoch(recorder.measured(recorder.scored(0), 0))
    return recorder.trained(f"the minimum of the squared error{f' with the penalty l2 {l2:.3g}' if l2 else ''}")


class _Recorder:
    """Measures a training after each epoch."""

    def __init__(self, net: Perceptron | MulticlassPerceptron, head: Head, data: PreparedData) -> None:
        self._begun = time.perf_counter()
        self.net, self.head, self._unit = net, head, data.target_unit
        self._parts = [(_tensor(X), y) for X, y in data.parts[:2]]
        self.counts = [len(y) for _, y in self._parts]
        self._curves: dict[str, list[float]] = defaultdict(list)

    def batches(self, which: int) -> Iterator[tuple[Tensor, Tensor]]:
        """The training (0) or validation (1) set, as one batch or, larger than memory, as several."""
        X, y = self._parts[which]
        if not is_chunked(X):
            yield X, y
            return
        first = 0
        for rows in chunked(X).blocks(torch.arange(len(y))):
            yield _tensor(rows.raw()), y[first : first + len(rows)]
            first += len(rows)

    def sums(self, scores: Tensor, y: Tensor, losses: Tensor | None = None) -> Tensor:
        """Sums over samples (2,): of losses, and of wrong decisions or squared residuals."""
        losses = self.head.loss(scores, y, reduction="none") if losses is None else losses
        if isinstance(self.head, RegressionHead):
            second = (y.double() - scores.double()).square().sum()
        else:
            second = (self.head.decide(scores) != y).sum().double()
        return torch.stack([losses.sum(dtype=torch.float64), second])

    def scored(self, which: int) -> Tensor:
        """The sums of a set by the net as it is."""
        return sum((self.sums(self.net(X), y) for X, y in self.batches(which)), torch.zeros(2))

    def measured(self, sums: Tensor, which: int) -> dict[str, float]:
        """Loss and error or RMSE of a set with these sums, RMSE in the target's own units."""
        loss, second = (sums / self.counts[which]).tolist()
        if isinstance(self.head, RegressionHead):
            return {"rmse": self._unit * math.sqrt(second), "loss": loss}
        return {"error": second, "loss": loss}

    @torch.no_grad()
    def after_epoch(self, training: Mapping[str, float]) -> None:
        """Record what was measured of the training set, and the same of the validation set."""
        validation = self.measured(self.scored(1), 1)
        for what, value in training.items():
            self._curves[f"{what}/train"].append(value)
            self._curves[f"{what}/val"].append(validation[what])

    def trained(self, how: str, result: RuleResult | None = None) -> Trained:
        """The candidate after its training."""
        curves = {name: (np.arange(1.0, len(values) + 1), np.array(values)) for name, values in self._curves.items()}
        epochs = max((len(steps) for steps, _ in curves.values()), default=0)
        seconds = time.perf_counter() - self._begun
        return Trained(TrainedModule(self.net, self.head), how, epochs, seconds, curves, result)


def _tensor(X: Any) -> Any:
    """Samples in memory as a tensor, sparse ones in the layout CSR; others as they are."""
    return X if isinstance(X, Tensor) or is_chunked(X) else convert.csr_tensor(X)


def _copied(net: nn.Module) -> dict[str, Tensor]:
    return {name: values.clone() for name, values in net.state_dict().items()}
