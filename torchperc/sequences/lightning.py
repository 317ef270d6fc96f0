"""Sequences under a Trainer: gradient descent on a chain, and batches of sequences."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from torchperc._checks import check_sample_weight
from torchperc.lightning.base import LitDescent
from torchperc.lightning.metrics import EpochMetric
from torchperc.model.describe import NETS
from torchperc.sequences.chain import ChainPerceptron, StructuredPerceptronLoss, best_tags
from torchperc.sequences.sequences import PAD, PaddedSequences


def _padded(x: Any, lengths: Any) -> PaddedSequences:
    """Return x (N, T, d) with the lengths beside it, or else with those given."""
    x, lengths = x if isinstance(x, tuple | list) and len(x) == 2 else (x, lengths)
    if not isinstance(x, Tensor) or x.dim() != 3:
        found = tuple(x.shape) if isinstance(x, Tensor) else type(x).__name__
        raise TypeError(f"a batch must hold x (N, T, d), or (x, lengths), found {found}")
    return PaddedSequences(x, torch.full((len(x),), x.shape[1], device=x.device) if lengths is None else lengths)


class ChainMetric(EpochMetric):
    """Mean loss of a sequence, fractions of wrong tags and of sequences with one, and mistakes."""

    errors: Tensor
    tokens: Tensor
    wrong: Tensor
    mistakes: Tensor

    def __init__(self, exact: torch.dtype = torch.float64) -> None:
        super().__init__(exact)
        self.add_sums("errors", "tokens", "wrong", "mistakes")

    def compute(self) -> dict[str, Tensor]:
        """Return the metrics by name."""
        found = {"error": self.errors / self.tokens, "error/sequence": self.wrong / self.samples}
        return {**super().compute(), **found, "mistakes": self.mistakes}


class LitTagger(LitDescent):
    """Gradient descent on the structured perceptron criterion of a chain.

    Batches are ((x, lengths), y), or (x, y) with −100 behind the end of the tags, and sequence weights or none. The
    loss is per sequence, ``error`` per token, ``error/sequence`` per sequence, and ``mistakes`` are sequences.

    Args:
        net: a :class:`~torchperc.sequences.ChainPerceptron`, or a net that gives ``ChainScores``.
        margin: of the criterion, see :class:`~torchperc.StructuredPerceptronLoss`.
        lr, optimizer, scheduler, interval, monitor: as for :class:`LitClassifier`.

    Example:
        >>> import torchperc as tp
        >>> tp.lightning.LitTagger(tp.sequences.ChainPerceptron(2, 3), lr=0.5).hparams.lr
        0.5
    """

    logged = ("loss", "error", "error/sequence")
    nets: ClassVar[Mapping[str, type[nn.Module]]] = {**NETS, "torchperc.sequences.ChainPerceptron": ChainPerceptron}

    def __init__(
        self,
        net: nn.Module,
        margin: float = 0.0,
        lr: float | None = None,
        optimizer: Callable[[Iterable[nn.Parameter]], Optimizer] | None = None,
        scheduler: Callable[[Optimizer], LRScheduler] | None = None,
        *,
        interval: str = "epoch",
        monitor: str | None = None,
    ) -> None:
        super().__init__(net, "perceptron", lr, "batch", optimizer, scheduler, interval, monitor)
        self.criterion = StructuredPerceptronLoss("none", margin)
        if isinstance(self.net, tuple(NETS.values())):
            raise TypeError(f"net must give ChainScores, found {type(self.net).__name__}; use LitClassifier")
        self.save_hyperparameters({"margin": margin})
        self.save_arguments()

    def unpack(self, batch: Any) -> tuple[Any, Tensor, Tensor | None]:
        """Return sequences, tags (N, T), and sequence weights or ``None``; refuse batches of another form."""
        items = list(batch) if isinstance(batch, tuple | list) else [batch]
        x, y, weight = (*items, None, None)[:3]
        if len(items) not in (2, 3) or not isinstance(y, Tensor) or y.dim() != 2 or y.is_floating_point():
            found = f"{y.dtype} {tuple(y.shape)}" if isinstance(y, Tensor) else type(y).__name__
            needed = f"((x, lengths), y), weights if any, with integer tags y (N, T) padded with {PAD}"
            raise ValueError(f"a batch must be {needed}, found {len(items)} items and y {found}")
        lengths = (y != PAD).sum(1)
        if isinstance(weight, Tensor) and not weight.is_floating_point() and torch.equal(weight, lengths):
            raise ValueError("the loader gives (x, y, lengths); let it give ((x, lengths), y), and weights as floats")
        if weight is not None:
            weight = check_sample_weight(weight, len(y), all_zero=True).to(y.device)
        return _padded(x, lengths), y, weight

    def forward(self, x: Any) -> Any:
        """Return the scores, as the net gives them."""
        return self.net(x)

    def new_metric(self, exact: torch.dtype) -> ChainMetric:
        """Return loss, errors and mistakes."""
        return ChainMetric(exact)

    def step(self, batch: Any, stage: str, dataloader_idx: int = 0) -> Tensor:
        """Return the weighted loss of each sequence, and add the batch to the metrics of the stage."""
        x, y, weight = self.unpack(batch)
        if not len(y):  # another process has the samples, and waits for the gradient of this one
            return torch.stack([values.sum() * 0 for values in self.net.parameters()])[:0]
        scores = self(x)
        losses, made = self.criterion.judge(scores, y)
        wrong = (best_tags(scores) != y) & (torch.arange(y.shape[1], device=y.device) < scores.lengths[:, None])
        losses = losses if weight is None else losses * weight.to(losses)
        counts = wrong.sum(1), scores.lengths, wrong.any(1), made
        self.count(stage, dataloader_idx, losses, *counts)
        return losses

    def predict_step(self, batch: Any, batch_idx: int = 0, dataloader_idx: int = 0) -> Tensor:
        """Return tags (N, T) with −100 behind the end, of x, (x, lengths), or one of them with tags."""
        beside = isinstance(batch, tuple | list) and (len(batch) != 2 or getattr(batch[1], "ndim", 0) != 1)
        return best_tags(self.net(_padded(batch[0] if beside else batch, None)))
