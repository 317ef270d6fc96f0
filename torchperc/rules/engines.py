"""Engines: how a pass over the samples is made. Each gives the same mistakes; they differ in speed and reach.

An engine holds the state of a run. It is handed samples to present, in order, and answers with the mistakes it made;
epochs, verdicts and selections are the trainer's business.
"""

from __future__ import annotations

import hashlib
import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from torchperc import functional as tpf
from torchperc.rules.conventions import mistaken_for
from torchperc.rules.log import Mistake, Mistakes
from torchperc.rules.models import Model
from torchperc.rules.rows import Rows
from torchperc.rules.spaces import LinearSpace, Space, Weights


@dataclass(frozen=True)
class Task:
    """What is to be learned and by which test: samples, labels, the coefficient of each sample, tie and margin."""

    space: Space
    y: Tensor
    coefs: Tensor
    tie: str
    margin: float

    def coef(self, i: int, own: int) -> float:
        """The coefficient of an update with sample i: η·weight, times y with two classes."""
        return float(self.coefs[i]) * (own if self.space.classes is None else 1)


class Presentation(NamedTuple):
    """What happened when one sample was presented: its scores, and the mistake if it was one."""

    scores: list[float]
    mistake: Mistake | None


class Engine(ABC):
    """The state of a run and the way it moves."""

    task: Task

    @abstractmethod
    def run(self, order: Tensor) -> Mistakes:
        """Present these samples in order, making every update on the way; steps count from the first of them."""

    @abstractmethod
    def training_scores(self) -> Tensor:
        """Scores of all training samples under the current weights: (N, K)."""

    @abstractmethod
    def scores(self, rows: Rows) -> Tensor:
        """Scores of other samples under the current weights: (N, K)."""

    @abstractmethod
    def model(self) -> Model:
        """The classifier with the current weights."""

    @abstractmethod
    def norm(self) -> float:
        """Length of the weights in the space where the update happens, bias included."""

    @abstractmethod
    def state_dict(self) -> dict[str, Any]:
        """The state as tensors and plain numbers, to go on from exactly."""

    @abstractmethod
    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a state that :meth:`state_dict` gave."""

    @abstractmethod
    def _numbers(self) -> list[Tensor]:
        """The numbers that make up the state."""

    def digest(self) -> bytes:
        """A fingerprint of the state; the same exactly when the state is the same."""
        digest = hashlib.sha256()  # which processors have instructions for
        for numbers in self._numbers():
            digest.update(np.ascontiguousarray(_doubles(numbers) + 0.0).data)  # + 0.0 turns −0 into 0
        return digest.digest()

    def survey(self) -> tuple[float, float]:
        """The mean perceptron criterion and the smallest slack of all training samples under the current weights."""
        slack = tpf.slacks(shaped(self.training_scores(), self.task.space), self.task.y).double()
        return float((-slack).clamp_min(0).mean()), float(slack.min())

    def mistakes(self) -> Tensor:
        """Which training samples are mistakes under the current weights, all looked at together: bool (N,)."""
        task, scores = self.task, self.training_scores()
        if not torch.isfinite(scores).all():
            raise ValueError("a score is not finite any more: the weights overflow; scale X down or lower lr")
        return tpf.mistakes(shaped(scores, task.space), task.y, tie=task.tie, margin=task.margin)


class LinearEngine(Engine):
    """An engine whose state is a weight and a bias."""

    def __init__(self, task: Task, start: Weights) -> None:
        assert isinstance(task.space, LinearSpace)
        self.task, self.space = task, task.space
        self.weights = start.clone()

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
        scale = self.space.bias_scale
        weight, bias = (float(np.square(_doubles(numbers)).sum()) for numbers in self._numbers())
        return math.sqrt(weight + (bias / scale if scale else 0.0))

    def state_dict(self) -> dict[str, Any]:
        """Weight and bias."""
        return {"weight": self.weights.weight.clone(), "bias": self.weights.bias.clone()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Weight and bias again."""
        self.weights.weight.copy_(state["weight"])
        self.weights.bias.copy_(state["bias"])

    def _numbers(self) -> list[Tensor]:
        return [self.weights.weight, self.weights.bias]


class ReferenceEngine(LinearEngine):
    """A plain loop: score a sample; if it is a mistake, add it; go on."""

    def __init__(self, task: Task, start: Weights) -> None:
        super().__init__(task, start)
        self._y = task.y.tolist()

    def present(self, i: int, position: int = 0) -> Presentation:
        """Present one sample."""
        scores = self.space.score(self.weights, i)
        wrong = mistaken_for(scores, self._y[i], tie=self.task.tie, margin=self.task.margin)
        if wrong is None:
            return Presentation(scores, None)
        coef = self.task.coef(i, self._y[i])
        self.space.update(self.weights, i, coef, self._y[i], wrong)
        return Presentation(scores, Mistake(i, position, coef, wrong))

    def run(self, order: Tensor) -> Mistakes:
        """Present these samples in order."""
        presented = (self.present(i, position) for position, i in enumerate(order.tolist()))
        found = [presentation.mistake for presentation in presented if presentation.mistake is not None]
        return Mistakes.of(found, self.task.y.device)


def _doubles(numbers: Tensor) -> np.ndarray[Any, Any]:
    # numpy has no bfloat16, and no threads to wake for a few thousand numbers
    narrow = numbers.dtype not in (torch.float32, torch.float64)
    array = (numbers.double() if narrow else numbers).detach().cpu().numpy()
    return array.astype(np.float64)


def shaped(scores: Tensor, space: Space) -> Tensor:
    """(N, 1) → (N,) for two classes, (N, K) as it is."""
    return scores.squeeze(-1) if space.classes is None else scores
