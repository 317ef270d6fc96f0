"""Loss, error, mistakes and margin of an epoch, accumulated on the device and read once."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from torchperc.nn import functional as tpf
from torchperc.nn.heads import Head
from torchperc.samples import shards

# How ``self.log`` takes values that are the same in all processes already: sync_dist says so to Lightning, and
# rank_zero_only keeps it from averaging them again, which is not exact. Every process logs them, for its callbacks.
ONCE_PER_EPOCH: dict[str, Any] = {"on_step": False, "on_epoch": True, "batch_size": 1}
ONCE_PER_EPOCH |= {"sync_dist": True, "rank_zero_only": True}
_ONE_THREAD = 32767  # numbers that torch works on in one thread; waking others costs milliseconds on a busy machine


class Tally(NamedTuple):
    """The sum of losses, wrong decisions, mistakes as the head counts them, and the smallest slack of a batch."""

    loss: Tensor
    errors: Tensor
    mistakes: Tensor
    slack: Tensor


@torch.no_grad()
def tally(head: Head, scores: Tensor, y: Tensor, factors: Tensor | None = None, losses: Tensor | None = None) -> Tally:
    """Count a batch; each sample's loss, which may be known already, is multiplied by its factor.

    Example:
        >>> from torchperc.nn.heads import PerceptronHead
        >>> [float(each) for each in tally(PerceptronHead(), torch.tensor([2.0, 0.0, -1.0]), torch.tensor([1, 1, 1]))]
        [1.0, 1.0, 2.0, -1.0]
    """
    size = max(1, _ONE_THREAD // (1 if scores.dim() == 1 else scores.shape[-1]))
    if scores.device.type != "cpu" or len(y) <= size:
        return _tally(head, scores, y, factors, losses)
    none = [None] * -(-len(y) // size)
    columns = (none if column is None else column.split(size) for column in (scores, y, factors, losses))
    found = [_tally(head, *part) for part in zip(*columns, strict=True)]
    loss, errors, mistakes, slack = (torch.stack(column) for column in zip(*found, strict=True))
    return Tally(loss.sum(), errors.sum(), mistakes.sum(), slack.min())


def _tally(head: Head, scores: Tensor, y: Tensor, factors: Tensor | None, losses: Tensor | None) -> Tally:
    losses = head.loss(scores, y, reduction="none") if losses is None else losses
    errors = exact((head.decide(scores) != y).sum())
    mistakes = errors if type(head).mistakes is Head.mistakes else exact(head.mistakes(scores, y).sum())
    loss = losses.sum(dtype=errors.dtype) if factors is None else (losses * factors).sum(dtype=errors.dtype)
    return Tally(loss, errors, mistakes, exact(tpf.slacks(scores, y).min()))


def exact(values: Tensor) -> Tensor:
    """Values in double precision, where the device has it.

    Example:
        >>> exact(torch.tensor(1.0)).dtype
        torch.float64
    """
    return values.to(torch.float32 if values.device.type == "mps" else torch.float64)


def squared_length(parameters: Iterable[Tensor]) -> float:
    """Σ w² over parameters in double precision; on the CPU in one thread.

    Example:
        >>> squared_length([torch.tensor([3.0, 4.0])])
        25.0
    """
    return float(_squared_length(parameters))


def _squared_length(parameters: Iterable[Tensor]) -> Tensor | float:
    total: Tensor | float = 0.0
    for parameter in parameters:
        values = exact(parameter.detach())
        total += float(np.square(values.numpy()).sum()) if values.device.type == "cpu" else values.square().sum()
    return total


class EpochSums:
    """Sums over the batches of an epoch; nothing is read off the device before :meth:`means`."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget everything."""
        self.begun, self.count = False, 0
        self.sums = Tally(*[torch.zeros((), dtype=torch.float64)] * 4)

    @torch.no_grad()
    def add(self, count: int, found: Tally | None, norm: Tensor | None) -> None:
        """Add a batch of so many samples; the norm of the weights turns a slack into a distance.

        A batch without samples, as one of several processes may have, has begun the epoch and adds nothing.
        """
        self.begun = True
        if found is None:
            return
        if norm is not None:
            found = found._replace(slack=torch.where(norm > 0, found.slack / norm, torch.zeros_like(found.slack)))
        if self.count:
            sums, slack = self.sums, torch.minimum(self.sums.slack, found.slack)
            found = Tally(sums.loss + found.loss, sums.errors + found.errors, sums.mistakes + found.mistakes, slack)
        self.sums, self.count = found, self.count + count

    def over_processes(self, device: torch.device) -> EpochSums:
        """The sums of all processes; ``device`` is where they tell each other."""
        total, own = EpochSums(), [self.sums.loss, self.sums.errors, self.sums.mistakes]
        values = torch.stack(
            [torch.tensor(self.count, dtype=torch.float64, device=device), *(v.to(device) for v in own)]
        )
        count, loss, errors, mistakes = shards.summed(values)
        slack = self.sums.slack if self.count else torch.full((), torch.inf, dtype=torch.float64)
        total.add(int(count), Tally(loss, errors, mistakes, shards.least(slack.to(device))), None)
        return total

    def decisions(self) -> tuple[int, int]:
        """How many were wrong, and of how many."""
        return int(self.sums.errors), self.count

    def state_dict(self) -> dict[str, Any]:
        """The sums so far."""
        return {"begun": self.begun, "count": self.count, **self.sums._asdict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume from there."""
        self.count, self.sums = state["count"], Tally(*(state[name] for name in Tally._fields))
        self.begun = state.get("begun", self.count > 0)

    def means(self, parameters: Iterable[Tensor] = ()) -> dict[str, float]:
        """Mean loss, fraction of wrong decisions, number of mistakes as the head counts them, smallest slack.

        ``norm`` is √Σ w² over parameters, read off the device together with the others.
        """
        length = _squared_length(parameters)
        sums = torch.stack(list(self.sums))
        if isinstance(length, Tensor):
            sums = torch.cat((sums.to(length), length[None]))
        loss, errors, mistakes, slack, *squares = sums.tolist()
        norm = math.sqrt(squares[0] if squares else float(length))
        means = {"loss": loss / self.count, "error": errors / self.count, "mistakes": mistakes}
        return {**means, "margin": slack, "norm": norm}
