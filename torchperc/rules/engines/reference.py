"""Engines hold the weights of a run and present samples in order; all make the same mistakes, at different speeds."""

from __future__ import annotations

import hashlib
import math
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from torchperc._checks import weights_overflow
from torchperc.nn import functional as tpf
from torchperc.rules.conventions import Compare, mistaken_for
from torchperc.rules.engines.rounding import doubles, score_error, side
from torchperc.rules.log import Mistake, Mistakes
from torchperc.rules.models import Model
from torchperc.rules.spaces import JointSpace, LinearSpace, Space, Weights
from torchperc.samples.rows import Rows

_AT_ONCE = 4096  # samples that are scored together


@dataclass(frozen=True)
class Task:
    """What to learn: samples, labels, the coefficient of each sample, tie and margin, before the space's scaling."""

    space: Space
    y: Tensor
    coefs: Tensor
    tie: str
    margin: float

    @cached_property
    def common(self) -> float | None:
        """The coefficient of every sample, if they have one in common."""
        first = float(self.coefs[0])
        return first if bool((self.coefs == first).all()) else None

    def coef(self, i: int, own: int) -> float:
        """The coefficient of an update with sample i, times y with two classes."""
        return float(self.coefs[i]) * (own if self.space.classes is None else 1)

    def signed(self, sample: Tensor) -> Tensor:
        """The coefficients of updates with some samples, times y with two classes."""
        return self.coefs[sample] * self.y[sample] if self.space.classes is None else self.coefs[sample]

    def total(self, sample: Tensor) -> float:
        """The sum of the coefficients of updates with some samples, without their signs."""
        return float(self.coefs.cpu().numpy().take(sample.cpu().numpy()).sum())


class Engine(ABC):
    """The state of a run and how it changes, before scaling; the model is scaled."""

    task: Task

    @abstractmethod
    def run(self, order: Tensor) -> Mistakes:
        """Present these samples in order and make the updates; steps count from the first of them."""

    @abstractmethod
    def training_scores(self) -> Tensor:
        """Scores of all training samples now: (N, K)."""

    @abstractmethod
    def scores(self, rows: Rows) -> Tensor:
        """Scores of other samples now: (N, K)."""

    @abstractmethod
    def model(self) -> Model:
        """The classifier with the current weights."""

    @abstractmethod
    def norm(self) -> float:
        """Norm of the weights where the update happens, bias included."""

    @abstractmethod
    def state_dict(self) -> dict[str, Any]:
        """Everything needed to resume exactly, as tensors and plain types."""

    @abstractmethod
    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume from a :meth:`state_dict`."""

    @abstractmethod
    def _numbers(self) -> list[Tensor]:
        """The numbers that make up the state."""

    def digest(self) -> bytes:
        """A hash of the state."""
        return digest_of(self._numbers())

    def survey(self) -> tuple[float, float]:
        """The mean perceptron criterion and the smallest slack of all training samples now."""
        slack = tpf.slacks(shaped(self.training_scores(), self.task.space), self.task.y).double()
        return float((-slack).clamp_min(0).mean()), float(slack.min())

    def mistakes(self) -> Tensor:
        """Which training samples are mistakes now: bool (N,)."""
        return self._mistakes(self.task.tie, self.task.margin)

    def wrong_decisions(self) -> Tensor:
        """Which training samples are decided wrongly now: bool (N,)."""
        return self._mistakes("sign", 0.0)

    def _mistakes(self, tie: str, margin: float) -> Tensor:
        scores = self.training_scores()
        if not torch.isfinite(scores).all():
            raise weights_overflow()
        return tpf.mistakes(shaped(scores, self.task.space), self.task.y, tie=tie, margin=margin)


class LinearEngine(Engine):
    """An engine whose state is a weight and a bias."""

    def __init__(self, task: Task, start: Weights) -> None:
        assert isinstance(task.space, LinearSpace)
        self.task, self.space = task, task.space
        self.weights = start.clone()
        self.exact = not isinstance(task.space, JointSpace)  # joint features are scored in one way only

    def go_on(self, task: Task) -> None:
        """Go on with other samples, from the weights as they are."""
        assert isinstance(task.space, LinearSpace)
        self.task, self.space = task, task.space

    def training_scores(self) -> Tensor:
        """w·x + b for all training samples."""
        return self.scores(self.space.rows)

    def scores(self, rows: Rows) -> Tensor:
        """w·x + b."""
        return self.space.all_scores(self.weights, rows)

    def model(self) -> Model:
        """The classifier with a copy of the current weights."""
        return self.space.model(self.weights.clone())

    def norm(self) -> float:
        """√(‖w‖² + b²/β): a bias step of β is a constant feature of √β."""
        squares, more = [float(np.square(_laid(numbers)).sum()) for numbers in self._numbers()]
        return math.sqrt(squares + (more / self.space.bias_scale if self.space.bias_scale else 0.0))

    def state_dict(self) -> dict[str, Any]:
        """Weight and bias."""
        return {"weight": self.weights.weight.clone(), "bias": self.weights.bias.clone()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume from there."""
        self.weights.weight.copy_(state["weight"])
        self.weights.bias.copy_(state["bias"])

    def _numbers(self) -> list[Tensor]:
        return [self.weights.weight, self.weights.bias]

    def _mistakes(self, tie: str, margin: float) -> Tensor:
        return self.mistaken(self.space.rows, self.task.y, tie, margin)

    def mistaken(self, rows: Rows, y: Tensor, tie: str, margin: float) -> Tensor:
        """Which of some samples are mistakes now, near ties decided exactly: bool (N,)."""
        scores, error = self.scores(rows), self._error()
        if not torch.isfinite(scores).all():
            raise weights_overflow()
        found = tpf.mistakes(shaped(scores, self.space), y, tie=tie, margin=margin)
        if error:
            slack = tpf.slacks(shaped(scores, self.space), y).double()
            for i in ((slack - margin).abs() <= 2 * error).nonzero().squeeze(-1).tolist():
                compare = self._comparing(rows, i, error)
                wrong = mistaken_for(scores[i].tolist(), int(y[i]), tie=tie, margin=margin, compare=compare)
                found[i] = wrong is not None
        return found

    def first(self, order: Tensor) -> int:
        """The place in an order of the first sample that is a mistake now, or its length; the weights stay."""
        for begin in range(0, len(order), _AT_ONCE):
            some = order[begin : begin + _AT_ONCE]
            found = self.mistaken(self.space.rows.take(some), self.task.y[some], self.task.tie, self.task.margin)
            if found.any():
                return begin + int(found.int().argmax())
        return len(order)

    def _error(self) -> float:
        """The largest rounding error of a score."""
        return score_error(self.space.rows, self.weights) if self.exact else 0.0

    def _comparing(self, rows: Rows, i: int, error: float) -> Compare:
        """On which side of its limit a slack of sample i lies, by exact arithmetic if it is within the error."""

        def compare(value: float, limit: float, own: int, other: int | None) -> int:
            apart = value - limit
            if error == 0 or abs(apart) > 2 * error:
                return (apart > 0) - (apart < 0)
            columns, x = rows.row(i)
            weight, bias = self.weights.weight, doubles(self.weights.bias)
            if other is None:
                return side(own * x, doubles(weight[0])[columns], own * float(bias[0]), limit)
            terms = (doubles(weight[own])[columns], doubles(weight[other])[columns], bias[[own, other]])
            return side(np.concatenate((x, -x, (1.0, -1.0))), np.concatenate(terms), 0.0, limit)

        return compare


class ReferenceEngine(LinearEngine):
    """A plain loop; with ``exact=False`` near ties are decided by the rounded score, as in a cross-check."""

    def __init__(self, task: Task, start: Weights, *, exact: bool = True) -> None:
        super().__init__(task, start)
        self.exact = self.exact and exact
        self._off: float | None = None  # the rounding error, until the weights change

    @classmethod
    def on(cls, task: Task, weights: Weights) -> ReferenceEngine:
        """The plain loop on weights of another engine, which it changes in place."""
        engine = cls(task, weights)
        engine.weights = weights
        return engine

    def decide(self, i: int) -> Mistake | None:
        """Present one sample on behalf of that engine, which may have changed the weights since."""
        self._off = None
        return self.present(i)[1]

    def present(self, i: int, position: int = 0) -> tuple[list[float], Mistake | None]:
        """Present one sample: its scores, and the mistake if it was one."""
        scores, label = self.space.score(self.weights, i), int(self.task.y[i])
        if self._off is None:
            self._off = self._error()
        compare = self._comparing(self.space.rows, i, self._off)
        wrong = mistaken_for(scores, label, tie=self.task.tie, margin=self.task.margin, compare=compare)
        if wrong is None:
            return scores, None
        self._off = None
        coef = self.task.coef(i, label)
        self.space.update(self.weights, i, coef, label, wrong)
        return scores, Mistake(i, position, coef, wrong)

    def run(self, order: Tensor) -> Mistakes:
        """Present these samples in order."""
        self._off = None  # the weights may have moved since
        made = (self.present(i, position)[1] for position, i in enumerate(order.tolist()))
        return Mistakes.of([mistake for mistake in made if mistake is not None], self.task.y.device)


def _laid(numbers: Tensor) -> np.ndarray[Any, Any]:
    """Weights (K, d) as an array (d, K): the same sums and bytes however they lie, and no copy for CSR rows."""
    return np.ascontiguousarray(doubles(numbers).T)


def digest_of(tensors: Iterable[Tensor]) -> bytes:
    """A hash of numbers, whatever their type."""
    digest = hashlib.sha256()  # which processors have instructions for
    for numbers in tensors:
        digest.update((_laid(numbers) + 0.0).data)  # + 0.0 turns −0 into 0
    return digest.digest()


def shaped(scores: Tensor, space: Space) -> Tensor:
    """(N, 1) → (N,) for two classes, (N, K) as it is."""
    return scores.squeeze(-1) if space.classes is None else scores
