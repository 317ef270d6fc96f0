"""Engines hold the weights of a run and present samples in order; all make the same mistakes, at different speeds."""

from __future__ import annotations

import hashlib
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from torchperc import _checks as checks
from torchperc.nn import functional as tpf
from torchperc.rules.conventions import Compare, mistaken_for
from torchperc.rules.engines.rounding import Rounding, precise, side
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
        return float(self.coefs[0]) if self.coefs.stride(0) == 0 else None

    def coef(self, i: int, own: int) -> float:
        """The coefficient of an update with sample i, times y with two classes."""
        coef = float(self.coefs[i]) if self.common is None else self.common
        return coef * (own if self.space.classes is None else 1)


class Engine(ABC):
    """The state of a run and how it changes, before scaling; the model is scaled."""

    task: Task
    again = 0
    """How often the same samples may be presented after the pass that is made now."""
    wanted: Callable[[], Tensor] | None = None
    """What else to read off the device at the end of a pass, for engines that look there anyway."""
    told: list[float] | None = None
    """What it was; ``None`` if nobody has looked since the weights changed."""

    @abstractmethod
    def run(self, order: Tensor) -> Mistakes:
        """Present these samples in order and make the updates; steps count from the first of them."""

    def total(self, found: Mistakes) -> float:
        """Σ|c| of the mistakes that :meth:`run` returned last; no wait for a device where c is common."""
        if self.task.common is not None:
            return len(found.step) * abs(self.task.common)
        return float(np.abs(found.coef.cpu().numpy()).sum())

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
        loss, slack = self.surveyed().tolist()
        return loss, slack

    def surveyed(self) -> Tensor:
        """The same two numbers, on the device: (2,)."""
        slack = tpf.slacks(shaped(self.training_scores(), self.task.space), self.task.y).double()
        return torch.stack(((-slack).clamp_min(0).mean(), slack.min()))

    def mistakes(self) -> Tensor:
        """Which training samples are mistakes now: bool (N,)."""
        return self._mistakes(self.task.tie, self.task.margin)

    def wrong_decisions(self) -> Tensor:
        """Which training samples are decided wrongly now: bool (N,)."""
        return self._mistakes("sign", 0.0)

    def _mistakes(self, tie: str, margin: float) -> Tensor:
        scores = self.training_scores()
        if not torch.isfinite(scores).all():
            raise checks.weights_overflow()
        found = tpf.mistakes(shaped(scores, self.task.space), self.task.y, tie=tie, margin=margin)
        return self._settled(found, scores, tie, margin)

    def _settled(self, found: Tensor, scores: Tensor, tie: str, margin: float) -> Tensor:
        """Mistakes by rounded scores, corrected where rounding leaves them open."""
        return found


class LinearEngine(Engine):
    """An engine whose state is a weight and a bias.

    On the CPU, what it is asked for is computed from the weights themselves. On a device, :meth:`look` is the one place
    where the host waits: an engine calls it at the end of :meth:`run` with what it needs to know (how many mistakes,
    which flags), and weight and bias come along, so that norm and digest afterwards cost no wait.
    """

    def __init__(self, task: Task, start: Weights) -> None:
        assert isinstance(task.space, LinearSpace)
        self.task, self.space = task, task.space
        self.weights = start.clone()
        self.rounding = None if isinstance(task.space, JointSpace) else Rounding(task.space.rows)
        self._seen: tuple[tuple[int, ...], list[Tensor]] | None = None
        self._total: float | None = None

    def total(self, found: Mistakes) -> float:
        """Σ|c|, which :meth:`run` may have looked up already on a device."""
        return super().total(found) if self._total is None else self._total

    def look(self, *extra: Tensor) -> list[float]:
        """Wait for the device once, keep a host copy of weight and bias, and return the numbers of ``extra``.

        The copy counts until torch changes the weights. What changes them behind torch's back, as a kernel that is
        given their address, must be followed by a look.

        Args:
            extra: tensors on the weights' device, of any shape; numbers come back in their order, through float64
                (float32 on MPS, which has no other).
        """
        parts = [self.weights.weight, self.weights.bias, *extra]
        dtype = precise(self.weights.bias.device)
        numbers = torch.cat([part.detach().reshape(-1).to(dtype) for part in parts]).cpu()
        weight, bias, rest = numbers.split([parts[0].numel(), parts[1].numel(), sum(map(torch.numel, extra))])
        self._seen = self._version(), [weight.reshape(parts[0].shape), bias]
        found: list[float] = rest.tolist()
        return found

    def _version(self) -> tuple[int, ...]:
        """Another one after each change of the weights by torch; none in inference mode, which does not count them."""
        tensors = self.weights.weight, self.weights.bias
        if any(map(torch.is_inference, tensors)):
            return ()
        return tuple(number for tensor in tensors for number in (id(tensor), tensor._version))

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
        return weights_norm(self._numbers(), self.space.bias_scale)

    def state_dict(self) -> dict[str, Any]:
        """Weight and bias."""
        return {"weight": self.weights.weight.clone(), "bias": self.weights.bias.clone()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume from there."""
        self.weights.weight.copy_(state["weight"])
        self.weights.bias.copy_(state["bias"])

    def _numbers(self) -> list[Tensor]:
        """Weight and bias; of a device, a copy on the host."""
        weight, bias = self.weights.weight, self.weights.bias
        if weight.device.type == "cpu":
            return [weight, bias]
        if self._seen is None or not self._seen[0] or self._seen[0] != self._version():
            self.look()
        assert self._seen is not None
        return self._seen[1]

    def _settled(self, found: Tensor, scores: Tensor, tie: str, margin: float) -> Tensor:
        bound, y = self._bound(), self.task.y
        if not bound:
            return found
        near = (tpf.slacks(shaped(scores, self.space), y).double() - margin).abs() <= 2 * bound
        for i in near.nonzero().squeeze(-1).tolist():
            compare = self._comparing(i, bound)
            found[i] = mistaken_for(scores[i].tolist(), int(y[i]), tie=tie, margin=margin, compare=compare) is not None
        return found

    def first(self, order: Tensor) -> int:
        """The place in an order of the first sample that is a mistake now, or its length; the weights stay."""
        bound = self._bound()
        for begin in range(0, len(order), _AT_ONCE):
            some = order[begin : begin + _AT_ONCE]
            scores, y = self.scores(self.space.rows.take(some)), self.task.y[some]
            slack = tpf.slacks(shaped(scores, self.space), y).double() - self.task.margin
            for j in (~(slack > 2 * bound)).nonzero().squeeze(-1).tolist():  # all, if scores or the bound overflow
                seen, compare = scores[j].tolist(), self._comparing(int(some[j]), bound)
                if not all(map(math.isfinite, seen)):  # which learning the sample will tell
                    return begin + int(j)
                test = partial(mistaken_for, tie=self.task.tie, margin=self.task.margin, compare=compare)
                if test(seen, int(y[j])) is not None:
                    return begin + int(j)
        return len(order)

    def _bound(self) -> float:
        """The rounding error of a score; joint features are scored in one way only, and need none."""
        return 0.0 if self.rounding is None else self.rounding.bound(Weights(*self._numbers()))

    def _comparing(self, i: int, bound: float) -> Compare:
        """On which side of its limit a slack of sample i lies, by exact arithmetic if it is within the bound."""

        def compare(value: float, limit: float, own: int, other: int | None) -> int:
            apart = value - limit
            if bound == 0 or abs(apart) > 2 * bound:
                return (apart > 0) - (apart < 0)
            columns, x = self.space.rows.row(i)
            weight, bias = (_doubles(numbers) for numbers in self._numbers())
            if other is None:
                return side(own * x, weight[0][columns], own * float(bias[0]), limit)
            terms = np.concatenate((weight[own][columns], weight[other][columns], bias[[own, other]]))
            return side(np.concatenate((x, -x, (1.0, -1.0))), terms, 0.0, limit)

        return compare


class ReferenceEngine(LinearEngine):
    """A plain loop; with ``exact=False`` near ties are decided by the rounded score, as in a cross-check."""

    def __init__(self, task: Task, start: Weights, *, exact: bool = True) -> None:
        super().__init__(task, start)
        self._y = task.y.tolist()
        self.rounding = self.rounding if exact else None
        self._off: float | None = None

    @classmethod
    def on(cls, task: Task, weights: Weights) -> ReferenceEngine:
        """The plain loop on weights of another engine, which it changes in place."""
        engine = cls(task, weights)
        engine.weights = weights
        return engine

    def decide(self, i: int) -> Mistake | None:
        """Present one sample on behalf of that engine, which may have changed the weights since."""
        self._off = self._seen = None
        return self.present(i)[1]

    def present(self, i: int, position: int = 0) -> tuple[list[float], Mistake | None]:
        """Present one sample: its scores, and the mistake if it was one."""
        scores = self.space.score(self.weights, i)
        if self._off is None:
            self._off = self._bound()
        compare = self._comparing(i, self._off)
        wrong = mistaken_for(scores, self._y[i], tie=self.task.tie, margin=self.task.margin, compare=compare)
        if wrong is None:
            return scores, None
        self._off = None
        coef = self.task.coef(i, self._y[i])
        self.space.update(self.weights, i, coef, self._y[i], wrong)
        return scores, Mistake(i, position, coef, wrong)

    def run(self, order: Tensor) -> Mistakes:
        """Present these samples in order."""
        self._off = None  # the weights may have moved since
        made = (self.present(i, position)[1] for position, i in enumerate(order.tolist()))
        return Mistakes.of([mistake for mistake in made if mistake is not None], self.task.y.device)


def weights_norm(weights: Iterable[Tensor], bias_scale: float) -> float:
    """√(‖w‖² + b²/β): a bias step of β is a constant feature of √β."""
    squares, more = (float(np.square(_doubles(numbers)).sum()) for numbers in weights)
    return math.sqrt(squares + (more / bias_scale if bias_scale else 0.0))


def _doubles(numbers: Tensor) -> np.ndarray[Any, Any]:
    # numpy has no bfloat16, and wakes no threads for a few thousand numbers
    narrow = numbers.dtype not in (torch.float32, torch.float64)
    array = (numbers.double() if narrow else numbers).detach().cpu().numpy()
    return array.astype(np.float64, order="C")  # the same sums however the weights lie


def digest_of(tensors: Iterable[Tensor]) -> bytes:
    """A hash of numbers, whatever their type."""
    digest = hashlib.sha256()  # which processors have instructions for
    for numbers in tensors:
        digest.update(np.ascontiguousarray(_doubles(numbers) + 0.0).data)  # + 0.0 turns −0 into 0
    return digest.digest()


def shaped(scores: Tensor, space: Space) -> Tensor:
    """(N, 1) → (N,) for two classes, (N, K) as it is."""
    return scores.squeeze(-1) if space.classes is None else scores
