"""Loss, error, mistakes and margin of an epoch, of regression RMSE and R²: accumulated on the device and read once."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from torchperc.nn import functional as tpf
from torchperc.nn.heads import Head
from torchperc.samples import process_group

# How ``self.log`` takes values that are the same in all processes already: sync_dist says so to Lightning, and
# rank_zero_only keeps it from averaging them again, which is not exact. Every process logs them, for its callbacks.
ONCE_PER_EPOCH: dict[str, Any] = {"on_step": False, "on_epoch": True, "batch_size": 1}
ONCE_PER_EPOCH |= {"sync_dist": True, "rank_zero_only": True}


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
    losses = head.loss(scores, y, reduction="none") if losses is None else losses
    errors = exact((head.decide(scores) != y).sum())
    mistakes = errors if type(head).mistakes is Head.mistakes else exact(head.mistakes(scores, y).sum())
    loss = losses.sum(dtype=errors.dtype) if factors is None else (losses * factors).sum(dtype=errors.dtype)
    centred = scores - head.threshold if scores.dim() == y.dim() else scores
    return Tally(loss, errors, mistakes, exact(tpf.slacks(centred, y).min()))


def exact(values: Tensor) -> Tensor:
    """Values in double precision, where the device has it.

    Example:
        >>> exact(torch.tensor(1.0)).dtype
        torch.float64
    """
    return values.to(torch.float32 if values.device.type == "mps" else torch.float64)


def squared_length(parameters: Iterable[Tensor]) -> float:
    """Σ w² over parameters in double precision.

    Example:
        >>> squared_length([torch.tensor([3.0, 4.0])])
        25.0
    """
    return float(sum(exact(parameter.detach()).square().sum() for parameter in parameters))


class EpochSums:
    """Sums over the batches of an epoch: losses, wrong decisions, mistakes and the smallest slack.

    Nothing is read off the device before :meth:`means`.
    """

    sums: Any
    begun: bool
    count: int

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
        count, loss, errors, mistakes = process_group.all_reduce(values)
        slack = self.sums.slack if self.count else torch.full((), torch.inf, dtype=torch.float64)
        total.add(int(count), Tally(loss, errors, mistakes, process_group.all_reduce(slack.to(device), "MIN")), None)
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
        """Mean loss, error, mistakes as the head counts them, smallest slack, and ``norm``, √Σ w² over parameters."""
        lengths = [parameter.detach().to(self.sums.loss).square().sum() for parameter in parameters]
        loss, errors, mistakes, slack, *squares = torch.stack([*self.sums, *lengths]).tolist()  # one wait for a device
        means = {"loss": loss / self.count, "error": errors / self.count, "mistakes": mistakes, "margin": slack}
        return {**means, "norm": math.sqrt(sum(squares))}


class Moments(NamedTuple):
    """Of samples with targets: the sum of the losses, the weight, and per output Σ c·(y − s)², mean and spread of y.

    The spread is Σ c·(y − mean)², added up around the mean of each batch, so that large targets lose no digits.
    """

    loss: Tensor
    weight: Tensor
    squares: Tensor
    mean: Tensor
    spread: Tensor

    def merge(self, of: Moments) -> Moments:
        """The moments of two sets of samples together."""
        weight = self.weight + of.weight
        fraction = torch.where(weight > 0, of.weight / weight, torch.zeros_like(weight))
        apart = of.mean - self.mean
        spread = self.spread + of.spread + apart.square() * self.weight * fraction
        return Moments(self.loss + of.loss, weight, self.squares + of.squares, self.mean + apart * fraction, spread)


@torch.no_grad()
def moments(
    head: Head, scores: Tensor, y: Tensor, factors: Tensor | None = None, losses: Tensor | None = None
) -> Moments:
    """Those of a batch: scores and targets (N,) or (N, K), a factor per sample.

    Example:
        >>> from torchperc.nn.heads import RegressionHead
        >>> found = moments(RegressionHead(), torch.tensor([1.0, 2.0]), torch.tensor([1.0, 4.0]))
        >>> [each.tolist() for each in found]
        [2.0, 2.0, [4.0], [2.5], [4.5]]
    """
    losses = exact(head.loss(scores, y, reduction="none") if losses is None else losses)
    target = exact(y).reshape(len(y), -1)
    c = torch.ones_like(losses) if factors is None else exact(factors)
    weight, each = c.sum(), c[:, None]
    mean = (each * target).sum(0) / torch.where(weight > 0, weight, torch.ones_like(weight))
    squares = (each * (target - exact(scores).reshape(len(y), -1)).square()).sum(0)
    return Moments((c * losses).sum(), weight, squares, mean, (each * (target - mean).square()).sum(0))


class RegressionSums(EpochSums):
    """Those of regression: mean loss, and RMSE and R² as scikit-learn has them, averaged over outputs."""

    sums: Moments | None

    def reset(self) -> None:
        """Forget everything."""
        self.begun, self.count, self.sums = False, 0, None

    def add(self, count: int, found: Any, norm: Tensor | None = None) -> None:
        """Add a batch of so many samples; ``norm`` is for classifiers."""
        self.begun = True
        if found is not None:
            self.count += count
            self.sums = found if self.sums is None else self.sums.merge(found)

    def over_processes(self, device: torch.device) -> RegressionSums:
        """The sums of all processes."""
        total = RegressionSums()
        own = None if self.sums is None else [value.cpu() for value in self.sums]
        for count, values in process_group.gather((self.count, own)):
            total.add(count, None if values is None else Moments(*values))
        return total

    def state_dict(self) -> dict[str, Any]:
        """The sums so far."""
        return {"begun": self.begun, "count": self.count, "moments": None if self.sums is None else list(self.sums)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume from there."""
        self.begun, self.count = state["begun"], state["count"]
        self.sums = None if state["moments"] is None else Moments(*state["moments"])

    def means(self, parameters: Iterable[Tensor] = ()) -> dict[str, float]:
        """Mean loss, RMSE, R² and the norm of the weights.

        R² is 1 − Σ c·(y − s)²/Σ c·(y − mean)²; where all targets are equal, 1 if all are met and else 0.
        """
        assert self.sums is not None
        loss, weight, squares, _, spread = (value.cpu() for value in self.sums)
        r2 = torch.where(spread > 0, 1 - squares / spread, (squares == 0).to(spread.dtype))
        found = {
            "loss": float(loss) / self.count,
            "rmse": float((squares / weight).sqrt().mean()),
            "r2": float(r2.mean()),
        }
        return {**found, "norm": math.sqrt(squared_length(parameters))}
