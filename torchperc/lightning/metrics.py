"""What an epoch adds up to: loss, error, mistakes and margin, accumulated on the device and read once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from torchperc import functional as tpf
from torchperc.heads import Head

_ONE_THREAD = 32767
"""So many numbers torch works on without waking its thread pool, whose barriers cost milliseconds on a busy machine."""


class Counts(NamedTuple):
    """Of a batch: wrong decisions, mistakes as the head counts them, and the smallest slack."""

    errors: Tensor
    mistakes: Tensor
    slack: Tensor


@torch.no_grad()
def counts(head: Head, scores: Tensor, y: Tensor) -> Counts:
    """Count a batch.

    Shape:
        scores (N,) or (N, K), y (N,).

    Example:
        >>> from torchperc.heads import PerceptronHead
        >>> counts(PerceptronHead(), torch.tensor([2.0, 0.0, -1.0]), torch.tensor([1, 1, 1]))
        Counts(errors=tensor(1), mistakes=tensor(2), slack=tensor(-1.))
    """
    found = [
        Counts((head.decide(s) != t).sum(), head.mistakes(s, t).sum(), tpf.slacks(s, t).min())
        for s, t in _few_at_once(scores, y)
    ]
    if len(found) == 1:
        return found[0]
    errors, mistakes, slack = (torch.stack(column) for column in zip(*found, strict=True))
    return Counts(errors.sum(), mistakes.sum(), slack.min())


@torch.no_grad()
def total_loss(head: Head, scores: Tensor, y: Tensor, factors: Tensor | None = None) -> Tensor:
    """The sum of a batch's losses, each times its sample's factor, in double precision where the device has it.

    Example:
        >>> from torchperc.heads import PerceptronHead
        >>> total_loss(PerceptronHead(), torch.tensor([-2.0, -1.0]), torch.tensor([1, 1]), torch.tensor([1.0, 3.0]))
        tensor(5., dtype=torch.float64)
    """
    weights = torch.ones_like(y) if factors is None else factors
    sums = [
        exact(head.loss(s, t, reduction="none") * w).sum()
        for (s, t), (_, w) in zip(_few_at_once(scores, y), _few_at_once(scores, weights), strict=True)
    ]
    return torch.stack(sums).sum()


def exact(values: Tensor) -> Tensor:
    """Values in double precision, which Lightning keeps as they are; Apple's GPUs have single precision only.

    Example:
        >>> exact(torch.tensor(1.0)).dtype
        torch.float64
    """
    return values.to(torch.float32 if values.device.type == "mps" else torch.float64)


def squared_length(parameters: Iterable[Tensor]) -> float:
    """Σ w² over parameters, in double precision and, on the CPU, in one thread.

    Example:
        >>> squared_length([torch.tensor([3.0, 4.0])])
        25.0
    """
    total = 0.0
    for parameter in parameters:
        values = exact(parameter.detach())
        square = np.square(values.numpy()).sum() if values.device.type == "cpu" else values.square().sum()
        total += float(square)
    return total


def _few_at_once(scores: Tensor, y: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    size = max(1, _ONE_THREAD // (1 if scores.dim() == 1 else scores.shape[-1]))
    if scores.device.type != "cpu" or len(y) <= size:
        yield scores, y
    else:
        yield from zip(scores.split(size), y.split(size), strict=True)


class EpochSums:
    """Sums over the batches of an epoch. Nothing is read off the device before :meth:`means`."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget everything."""
        self.count = 0
        self._loss = self._errors = self._mistakes = self._slack = torch.zeros((), dtype=torch.float64)

    @torch.no_grad()
    def add(self, count: int, loss: Tensor, found: Counts, norm: Tensor | None) -> None:
        """Add a batch: how many, the sum of their losses, what was counted; norm makes a slack a distance."""
        slack = found.slack
        if norm is not None:
            slack = torch.where(norm > 0, slack / norm, torch.zeros_like(slack))
        loss, errors, mistakes, slack = (exact(each.detach()) for each in (loss, found.errors, found.mistakes, slack))
        if self.count:
            loss, errors, mistakes = self._loss + loss, self._errors + errors, self._mistakes + mistakes
            slack = torch.minimum(self._slack, slack)
        self._loss, self._errors, self._mistakes, self._slack = loss, errors, mistakes, slack
        self.count += count

    def state_dict(self) -> dict[str, Any]:
        """The sums so far."""
        columns = {"loss": self._loss, "errors": self._errors, "mistakes": self._mistakes, "slack": self._slack}
        return {"count": self.count, **columns}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """The sums so far again."""
        self.count, self._loss, self._errors = state["count"], state["loss"], state["errors"]
        self._mistakes, self._slack = state["mistakes"], state["slack"]

    def means(self) -> dict[str, float]:
        """Mean loss, fraction of wrong decisions, number of mistakes as the head counts them, smallest slack."""
        loss, errors, mistakes, slack = torch.stack([self._loss, self._errors, self._mistakes, self._slack]).tolist()
        return {"loss": loss / self.count, "error": errors / self.count, "mistakes": mistakes, "margin": slack}
