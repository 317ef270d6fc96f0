"""Metrics of an epoch: sums over all samples and all processes, in double precision, read off the device once."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torchmetrics import Metric

from torchperc.nn.heads import Head


def exact_dtype(device: torch.device) -> torch.dtype:
    """Return double precision where the device has it.

    Example:
        >>> exact_dtype(torch.device("cpu")), exact_dtype(torch.device("mps"))
        (torch.float64, torch.float32)
    """
    return torch.float32 if device.type == "mps" else torch.float64


class EpochMetric(Metric):
    """Mean loss per sample; subclasses add what else is measured.

    :meth:`compute` adds up the processes of a distributed run. NaN and infinity are kept, so that divergence shows.

    Args:
        exact: the type of the sums, see :func:`exact_dtype`.
    """

    full_state_update = False
    samples: Tensor
    loss: Tensor

    def __init__(self, exact: torch.dtype = torch.float64) -> None:
        super().__init__()
        self.exact = exact
        self.add_sums("samples", "loss")

    def add_sums(self, *names: str) -> None:
        """Add states that are summed over batches and processes."""
        for name in names:
            self.add_state(name, torch.zeros((), dtype=self.exact), dist_reduce_fx="sum")

    def update(self, losses: Tensor, *_: Any, **__: Any) -> None:
        """Add a batch: the weighted loss of each sample."""
        self.samples.add_(len(losses))  # in place, which takes half the time of assigning a module's attribute
        self.loss.add_(losses.sum(dtype=self.exact))

    def compute(self) -> dict[str, Tensor]:
        """Return the metrics by name."""
        return {"loss": self.loss / self.samples}

    def saved(self) -> dict[str, Tensor]:
        """Return the sums of this process, for a checkpoint."""
        return {name: torch.as_tensor(state).detach().cpu().clone() for name, state in self.metric_state.items()}

    def restore(self, states: dict[str, Tensor]) -> None:
        """Continue from the sums of a checkpoint."""
        for name, state in states.items():
            setattr(self, name, state.to(self.device, self.exact))
        self._update_count = 1  # else torchmetrics warns that nothing was added


class ClassificationMetric(EpochMetric):
    """Mean loss, error (fraction of wrong decisions), mistakes (by the head's tie) and margin.

    Example:
        >>> from torchperc.nn.heads import PerceptronHead
        >>> metric = ClassificationMetric(PerceptronHead())
        >>> metric.update(torch.tensor([0.0, 1.5]), torch.tensor([2.0, -1.5]), torch.tensor([1, 1]))
        >>> {name: float(value) for name, value in metric.compute().items()}
        {'loss': 0.75, 'error': 0.5, 'mistakes': 1.0}
    """

    errors: Tensor
    mistakes: Tensor
    margin: Tensor

    def __init__(self, head: Head, exact: torch.dtype = torch.float64) -> None:
        super().__init__(exact)
        self.head, self.has_margin = head, False
        self.add_sums("errors", "mistakes")
        self.add_state("margin", torch.full((), torch.inf, dtype=exact), dist_reduce_fx="min")

    def update(
        self,
        losses: Tensor,
        scores: Tensor,
        y: Tensor,
        weight: Tensor | None = None,
        norm: Tensor | None = None,
        mistakes: int | None = None,
    ) -> None:
        """Add a batch.

        Args:
            losses: the weighted loss of each sample.
            scores, y: (N,) and labels −1/+1, or (N, K) and class indices.
            weight: of each sample; errors and mistakes are counted without.
            norm: ‖w‖ of a linear net, with which the margin is a distance; of two classes only.
            mistakes: made by the perceptron rule in this batch, which are its errors, too.
        """
        super().update(losses)
        if mistakes is None:
            errors = (self.head.decide(scores) != y).sum()
            self.errors.add_(errors)
            same = type(self.head).mistakes is Head.mistakes
            self.mistakes.add_(errors if same else self.head.mistakes(scores, y).sum())
        else:
            self.errors.add_(mistakes)
            self.mistakes.add_(mistakes)
        if norm is not None and scores.dim() == 1:
            self.has_margin = True
            if len(y):
                nearest = (y * (scores - self.head.threshold)).min() / norm  # of zero weights 0/0, which is 0 here
                self.margin = torch.minimum(self.margin, nearest.nan_to_num(0.0, -torch.inf, torch.inf))

    def reset(self) -> None:
        """Begin anew."""
        super().reset()
        self.has_margin = False

    def compute(self) -> dict[str, Tensor]:
        """Return the metrics by name; the margin, if it is a distance."""
        found = {**super().compute(), "error": self.errors / self.samples, "mistakes": self.mistakes}
        return {**found, "margin": self.margin} if self.has_margin else found

    def restore(self, states: dict[str, Tensor]) -> None:
        """Continue from the sums of a checkpoint."""
        super().restore(states)
        self.has_margin = bool(self.margin < torch.inf)


class RegressionMetric(EpochMetric):
    """Mean loss, RMSE and R²: scikit-learn's, weighted by the sample weights, averaged over outputs.

    The state has four numbers per output: weight, mean target, Σ w·(y − mean)² and Σ w·(y − s)². Batches and processes
    are merged around their means, so that large targets lose no digits.

    Args:
        unit: factor of the RMSE, such as the standard deviation that scaled targets were divided by.
        exact: the type of the sums.

    Example:
        >>> metric = RegressionMetric()
        >>> metric.update(torch.tensor([0.0, 2.0]), torch.tensor([1.0, 2.0]), torch.tensor([1.0, 4.0]))
        >>> {name: round(float(value), 3) for name, value in metric.compute().items()}
        {'loss': 1.0, 'rmse': 1.414, 'r2': 0.111}
    """

    moments: Tensor

    def __init__(self, unit: float = 1.0, exact: torch.dtype = torch.float64) -> None:
        super().__init__(exact)
        self.unit = unit
        self.add_state("moments", torch.zeros(4, 1, dtype=exact), dist_reduce_fx=merge_moments)

    def update(self, losses: Tensor, scores: Tensor, y: Tensor, weight: Tensor | None = None, *_: Any) -> None:
        """Add a batch: losses (N,), predictions and targets (N,) or (N, K), sample weights (N,)."""
        super().update(losses)
        outputs = y.shape[1] if y.dim() > 1 else 1
        s, y = (values.to(self.exact).reshape(len(y), outputs) for values in (scores, y))
        w = torch.ones_like(y) if weight is None else weight.to(self.exact)[:, None].expand_as(y)
        batch = merge_moments(torch.stack([w, y, torch.zeros_like(y), w * (y - s).square()], dim=1))
        self.moments = merge_moments(torch.stack([self.moments.expand_as(batch), batch]))

    def compute(self) -> dict[str, Tensor]:
        """Return the metrics by name; R² of equal targets is 1 if all are met, else 0."""
        weight, _, spread, squares = self.moments
        r2 = torch.where(spread > 0, 1 - squares / spread, (squares == 0).to(self.exact))
        rmse = self.unit * (squares / weight).sqrt().mean()
        return {**super().compute(), "rmse": rmse, "r2": r2.mean()}


def merge_moments(moments: Tensor) -> Tensor:
    """Return the moments (4, K) of all samples from those of R sets of them, (R, 4, K).

    Example:
        >>> one = torch.tensor([[1.0], [2.0], [0.0], [0.5]])
        >>> merge_moments(torch.stack([one, one + torch.tensor([[0.0], [2.0], [0.0], [0.0]])])).squeeze()
        tensor([2., 3., 2., 1.])
    """
    weight, mean, spread, squares = moments.unbind(1)
    total = weight.sum(0)
    center = (weight * mean).sum(0) / total.clamp_min(torch.finfo(total.dtype).tiny)
    spread = spread + weight * (mean - center).square()
    return torch.stack([total, center, spread.sum(0), squares.sum(0)])
