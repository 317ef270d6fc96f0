"""Metrics of an epoch: sums over all samples and all processes, in double precision, read off the device once."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import groupby
from typing import Any

import torch
from torch import Tensor
from torchmetrics import Metric

from torchperc.nn.heads import Head

TOGETHER = 2**15  # scores that are measured at once; torch would wake threads for more


def exact_dtype(device: torch.device) -> torch.dtype:
    """Return double precision where the device has it, which Apple's have not."""
    return torch.float32 if device.type == "mps" else torch.float64


class EpochMetric(Metric):
    """Mean loss per sample, and sums of what else is given of each; subclasses measure more.

    :meth:`add` keeps batches and :meth:`merge` measures many of them in a few calls, which would cost as much as a step
    if they were made for every batch. NaN and infinity are kept, so that divergence shows.

    Args:
        exact: the type of the sums, see :func:`exact_dtype`.
    """

    full_state_update = False
    samples: Tensor
    loss: Tensor

    def __init__(self, exact: torch.dtype = torch.float64) -> None:
        super().__init__()
        self.exact = exact
        self.batches: list[tuple[Any, ...]] = []  # which are not measured yet
        self.merges: dict[str, Callable[[Tensor], Tensor]] = {}  # of each state, those of batches or processes: (R, …)
        self.add_sums("samples", "loss")

    def add_merged(self, name: str, empty: Tensor, merge: Callable[[Tensor], Tensor]) -> None:
        """Add a state, its value for no samples, and the function that merges those of several sets of samples."""
        self.merges[name] = merge
        self.add_state(name, empty.to(self.exact), dist_reduce_fx=merge)

    def add_sums(self, *names: str) -> None:
        """Add states that are summed over batches and processes."""
        for name in names:
            self.add_merged(name, torch.zeros(()), partial(torch.sum, dim=0))

    def add(self, losses: Tensor, *columns: Any) -> None:
        """Add a batch: the weighted loss of each sample, and what :meth:`measure` needs of each, or ``None``."""
        size = columns[0].numel()
        if size < TOGETHER:  # copies, as a loader or a compiled net may use the memory again
            columns = tuple(None if column is None else column.clone() for column in columns)
        self.batches.append((losses, *columns))
        if len(self.batches) * size >= TOGETHER:
            self.merge()

    def measure(self, *columns: Any) -> tuple[Tensor, ...]:
        """Return what some samples add to the states besides samples and loss: the sum of each column."""
        return tuple(column.sum() for column in columns)

    def merge(self) -> None:
        """Measure the batches, and merge what was found into the states."""
        for _, batches in groupby(self.batches, lambda batch: [column is None for column in batch]):
            losses, *columns = map(_joined, zip(*batches, strict=True))
            samples = torch.full((), len(losses), dtype=self.exact, device=self.device)  # for which no host waits
            self.update(samples, losses.sum(dtype=self.exact), *self.measure(*columns))
        self.batches.clear()

    def update(self, *values: Tensor, **_: Any) -> None:
        """Merge one value for each state into the states."""
        for (name, merge), value in zip(self.merges.items(), values, strict=True):
            state = getattr(self, name)
            setattr(self, name, merge(torch.stack([state.expand_as(value), value.to(state)])))

    def compute(self) -> dict[str, Tensor]:
        """Return the metrics of all processes by name."""
        return {"loss": self.loss / self.samples}

    @property
    def is_empty(self) -> bool:
        """Whether no batch was added."""
        return not self.batches and not self.update_called

    def reset(self) -> None:
        """Begin anew."""
        super().reset()
        self.batches.clear()

    def saved(self) -> dict[str, Tensor]:
        """Return the states of this process, for a checkpoint."""
        self.merge()
        return {name: getattr(self, name).cpu().clone() for name in self.merges}

    def restore(self, saved: dict[str, Tensor]) -> None:
        """Continue from what a checkpoint saved."""
        self.reset()
        self.update(*saved.values())


def _joined(columns: tuple[Any, ...]) -> Any:
    return columns[0] if len(columns) == 1 or columns[0] is None else torch.cat(columns)


class ClassificationMetric(EpochMetric):
    """Mean loss, error (fraction of wrong decisions), mistakes (by the head's tie) and margin, infinite if unknown."""

    errors: Tensor
    mistakes: Tensor
    margin: Tensor

    def __init__(self, head: Head, exact: torch.dtype = torch.float64) -> None:
        super().__init__(exact)
        self.head = head
        self.own_mistakes = type(head).mistakes is not Head.mistakes
        self.add_sums("errors", "mistakes")
        self.add_merged("margin", torch.tensor(torch.inf), partial(torch.amin, dim=0))

    def measure(
        self, scores: Tensor, y: Tensor, weight: Any = None, norm: Any = None, made: Any = None
    ) -> tuple[Tensor, ...]:
        """Return errors and mistakes (of the rule those made), and the smallest y·s/‖w‖ of a linear net."""
        errors = torch.count_nonzero(self.head.decide(scores) != y if made is None else made)
        mistakes = self.head.mistakes(scores, y).sum() if made is None and self.own_mistakes else errors
        if norm is None or scores.dim() > 1 or not len(y):
            return errors, mistakes, scores.new_full((), torch.inf)
        threshold = self.head.threshold
        margins = y * (scores - threshold if threshold else scores)
        return errors, mistakes, (margins / norm).nan_to_num(0.0, torch.inf, -torch.inf).min()  # 0 of zero weights

    def compute(self) -> dict[str, Tensor]:
        """Return the metrics of all processes by name."""
        margin = torch.where(self.loss.isfinite(), self.margin, torch.nan)
        return {**super().compute(), "error": self.errors / self.samples, "mistakes": self.mistakes, "margin": margin}


class RegressionMetric(EpochMetric):
    """Mean loss, RMSE and R²: scikit-learn's, weighted by the sample weights, averaged over outputs.

    The state has four numbers per output: weight, mean target, Σ w·(y − mean)² and Σ w·(y − s)². Batches and processes
    are merged around their means, so that large targets lose no digits. The RMSE is multiplied by ``unit``, such as the
    standard deviation that scaled targets were divided by.
    """

    moments: Tensor

    def __init__(self, unit: float = 1.0, exact: torch.dtype = torch.float64) -> None:
        super().__init__(exact)
        self.unit = unit
        self.add_merged("moments", torch.zeros(4, 1), _merge_moments)

    def measure(self, scores: Tensor, y: Tensor, weight: Tensor | None = None, *_: Any) -> tuple[Tensor]:
        """Return the moments of predictions and targets, (N,) or (N, K), with sample weights (N,)."""
        outputs = y.shape[1] if y.dim() > 1 else 1
        s, y = (values.to(self.exact).reshape(len(y), outputs) for values in (scores, y))
        w = torch.ones_like(y) if weight is None else weight.to(self.exact)[:, None].expand_as(y)
        return (_merge_moments(torch.stack([w, y, torch.zeros_like(y), w * (y - s).square()], dim=1)),)

    def compute(self) -> dict[str, Tensor]:
        """Return the metrics by name; R² of equal targets is 1 if all are met, else 0."""
        weight, _, spread, squares = self.moments
        r2 = torch.where(spread > 0, 1 - squares / spread, (squares == 0).to(self.exact))
        rmse = self.unit * (squares / weight).sqrt().mean()
        return {**super().compute(), "rmse": rmse, "r2": r2.mean()}


def _merge_moments(moments: Tensor) -> Tensor:
    """Return the moments (4, K) of all samples from those of R sets of them, (R, 4, K)."""
    weight, mean, spread, squares = moments.unbind(1)
    total = weight.sum(0)
    center = (weight * mean).sum(0) / total.clamp_min(torch.finfo(total.dtype).tiny)
    spread = spread + weight * (mean - center).square()
    return torch.stack([total, center, spread.sum(0), squares.sum(0)])
