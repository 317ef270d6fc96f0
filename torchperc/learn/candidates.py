"""Candidates: training by rule, by gradient descent or to the minimum, with curves by epoch."""

from __future__ import annotations

import math
import time
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from torchperc.data.prepared_data import PreparedData
from torchperc.data.scaling import in_chunks
from torchperc.lightning.loader import divergence, predictions
from torchperc.nn import functional as tpf
from torchperc.nn.heads import Head, RegressionHead
from torchperc.nn.heads import head as head_by_name
from torchperc.nn.modules import MulticlassPerceptron, Perceptron
from torchperc.reports.results import Fit, small_enough_to_prove
from torchperc.reports.text import plural
from torchperc.rules.run import RuleResult
from torchperc.rules.trainer import RuleTrainer
from torchperc.samples import convert
from torchperc.samples.mapped import chunked, is_chunked
from torchperc.samples.parallel import one_thread
from torchperc.theory.learning_rate import auto_lr

if TYPE_CHECKING:
    from torchperc.reports.results import Curves

MANY = 20_000  # training samples from which, as with those larger than memory, fewer epochs and single steps do
PENALTIES = tuple(10 ** (k / 2) for k in range(-8, 3))
"""What l2 of ridge regression is tried with, in units of the mean square of the features: 0.0001 to 10."""
_SMALL = 2**24  # multiplications in a pass over the training set up to which one thread makes it: some milliseconds


class TrainedModule(nn.Module):
    """A linear net after its training, with its head, as a Lightning module has them."""

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
    penalties: tuple[tuple[float, float], ...] = ()  # each l2 that was tried, and its validation RMSE


def is_many(data: PreparedData) -> bool:
    """Whether single steps over few epochs are better than full-batch steps."""
    X, y = data.parts[0]
    return len(y) >= MANY or is_chunked(X)


@contextmanager
def few_threads(data: PreparedData) -> Iterator[None]:
    """One thread of torch within the block, if the training set is small.

    Waking others takes as long as they save, and thirty times as long while another program keeps a core busy. How sums
    are cut depends on the number of threads, so all commands decide by this.
    """
    samples, features = data.parts[0][0].shape
    with one_thread() if samples * features * (data.classes or 1) <= _SMALL else nullcontext():
        yield


# --- ways to learn ------------------------------------------------------------------------------------------------


def _by_rule(data: PreparedData, head: Head, epochs: int) -> Trained:
    """Train by the perceptron rule; prove separability if the data are small enough."""
    X, net = data.parts[0][0], _linear_net(data)
    prove = isinstance(X, Tensor) and small_enough_to_prove(X.shape, data.classes)
    options: dict[str, Any] = {"order": "shuffled", "select": "averaged", "seed": data.seed, "prove": prove}
    recorder = _Recorder(net, head, data)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "X is larger than memory")  # its order is good enough
        run = RuleTrainer(max_epochs=epochs, **options).start(net, *data.parts[0])
    while run.verdict is None:
        record = run.epoch()
        run.write_to(net)
        recorder.after_epoch({"error": record.mistakes / run.count})
    result = run.result()
    result.write_to(net)
    shown = ", ".join(f"{name} {value}" for name, value in options.items())
    return recorder.trained(f"the perceptron rule, {shown}; {plural(result.mistakes, 'mistake')}", result)


def _annealed(data: PreparedData, head: Head, epochs: int) -> Trained:
    """Full-batch steps on the perceptron criterion, which do not get smaller by themselves; one by one are the rule."""
    return _descend(data, head, epochs, 1.0, by_sample=False, anneal=True)


def _by_gradient(data: PreparedData, head: Head, epochs: int) -> Trained:
    """Gradient descent with a learning rate that is never too large, see :func:`torchperc.theory.auto_lr`."""
    X, classes, many = data.parts[0][0], data.classes, is_many(data)
    if many:
        lr = min(auto_lr(head, piece, num_classes=classes, batch_size=1) for piece in in_chunks(X)())
    else:
        lr = auto_lr(head, X, num_classes=classes)
    return _descend(data, head, epochs, lr, by_sample=many, anneal=many and not isinstance(head, RegressionHead))


def _minimum(data: PreparedData, head: Head, epochs: int = 1, l2: float = 0.0) -> Trained:
    """Find the minimum of mean ½(y − s)² + ½·l2·‖w‖²."""
    from torchperc.descent.minimise import minimise

    recorder = _Recorder(_linear_net(data), head, data)
    minimise(recorder.net, recorder.head, *data.parts[0], l2=l2)
    with torch.no_grad():
        recorder.after_epoch(recorder.measured(recorder.scored(0), 0))
    return recorder.trained(f"the minimum of the squared error{f' with the penalty l2 {l2:.3g}' if l2 else ''}")


def _ridge(data: PreparedData, head: Head, epochs: int) -> Trained:
    """The minimum with the penalty that has the lowest validation RMSE."""
    X = data.parts[0][0]
    squares = (X.double() if isinstance(X, Tensor) else torch.from_numpy(X.data).double()).square().sum()
    unit = float(squares) / (X.shape[0] * X.shape[1]) or 1.0
    tried = [(factor * unit, _minimum(data, head, l2=factor * unit)) for factor in PENALTIES]
    penalties = [(l2, Fit.of(*predictions(found.module, data, 1)).rmse) for l2, found in tried]
    best = min(range(len(tried)), key=lambda k: penalties[k][1])
    return tried[best][1]._replace(penalties=tuple(penalties))


class Method(NamedTuple):
    """A way to learn: its head, the function that trains, and epochs with few and with many samples."""

    name: str
    task: str
    head: str
    train: Callable[[PreparedData, Head, int], Trained]
    epochs: int = 1
    epochs_of_many: int = 1


METHODS = (
    Method("rule", "classification", "perceptron", _by_rule, 30, 10),
    Method("perceptron", "classification", "perceptron", _annealed, 200, 50),
    Method("lms", "classification", "lms", _by_gradient, 200, 20),
    Method("logistic", "classification", "logistic", _by_gradient, 200, 20),
    Method("least squares", "regression", "regression", _minimum),
    Method("ridge", "regression", "regression", _ridge),
    Method("lms", "regression", "regression", _by_gradient, 200, 20),
)
"""What is compared, in the order of training."""


def names(data: PreparedData) -> tuple[str, ...]:
    """Return the candidates of a table; larger than memory, only those that train in parts."""
    at_once = (_minimum, _ridge) if is_chunked(data.parts[0][0]) else ()
    return tuple(each.name for each in METHODS if each.task == data.task and each.train not in at_once)


def train(name: str, data: PreparedData, max_epochs: int | None = None) -> Trained:
    """Train a candidate by its name."""
    method = next(each for each in METHODS if (each.name, each.task) == (name, data.task))
    head = RegressionHead() if method.head == "regression" else head_by_name(method.head)
    return method.train(data, head, max_epochs or (method.epochs_of_many if is_many(data) else method.epochs))


def _linear_net(data: PreparedData) -> Perceptron | MulticlassPerceptron:
    """The linear net for a table, with zero weights."""
    made = Perceptron(data.width) if data.classes is None else MulticlassPerceptron(data.width, data.classes)
    return made.to(data.dtype)


def _descend(data: PreparedData, head: Head, epochs: int, lr: float, *, by_sample: bool, anneal: bool) -> Trained:
    """Full-batch steps or one step per sample, annealed along a cosine; stop with the last finite weights and warn."""
    net = _linear_net(data)
    recorder, kept = _Recorder(net, head, data), [values.detach().clone() for values in net.parameters()]
    for epoch in range(1, epochs + 1):
        rate = lr * (1 + math.cos(math.pi * (epoch - 1) / epochs)) / 2 if anneal else lr
        measured = recorder.measured(_pass_by_sample(recorder, rate) if by_sample else _step(recorder, rate), 0)
        recorder.after_epoch(measured)
        finite = all(bool(torch.isfinite(values).all()) for values in net.parameters())
        if not finite or not math.isfinite(measured["loss"]):
            for values, last in zip(net.parameters(), kept, strict=True):
                values.data.copy_(last)
            warnings.warn(divergence(epoch, finite), stacklevel=2)
            break
        kept = [values.detach().clone() for values in net.parameters()]
    steps = "one step per sample" if by_sample else "full-batch steps"
    return recorder.trained(f"gradient descent, {steps}, learning rate {lr:.4g}{', annealed' if anneal else ''}")


def _pass_by_sample(recorder: _Recorder, rate: float) -> Tensor:
    """One step per sample; the sums of each sample before its own step."""
    from torchperc.descent.sgd import descend

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
        epochs, seconds = len(next(iter(self._curves.values()), ())), time.perf_counter() - self._begun
        return Trained(TrainedModule(self.net, self.head), how, epochs, seconds, curves, result)


def _tensor(X: Any) -> Any:
    """Samples in memory as a tensor, sparse ones in the layout CSR; others as they are."""
    return X if isinstance(X, Tensor) or is_chunked(X) else convert.csr_tensor(X)
