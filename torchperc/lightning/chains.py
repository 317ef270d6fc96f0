"""Modules for sequences of tags: gradient descent and the rule on a :class:`~torchperc.sequences.ChainPerceptron`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from torchperc._checks import check_sample_weight
from torchperc.lightning.base import LitModel
from torchperc.lightning.descent import LitDescent
from torchperc.lightning.metrics import EpochMetric
from torchperc.lightning.rule import LitRule
from torchperc.model.describe import NETS, uncompiled
from torchperc.rules.run import RuleRun
from torchperc.samples.process_group import rank_and_size
from torchperc.sequences.chains import ChainPerceptron
from torchperc.sequences.heads import StructuredHead
from torchperc.sequences.layout import PAD, PaddedSequences, Sequences, flat_tags, tag_lengths
from torchperc.sequences.rule import check_options
from torchperc.sequences.weights import ChainWeights

_WORTH_IT = 10**6  # steps of Viterbi from which compiled loops are used


class WholeSequences:
    """All sequences of a loader as one batch, without padding.

    Args:
        source: the sequences.

    Example:
        >>> whole = WholeSequences(Sequences.of([[[1.0]], [[2.0], [3.0]], [[4.0]]]))
        >>> len(whole), whole.padded().lengths
        (3, tensor([1, 2, 1]))
    """

    def __init__(self, source: Sequences) -> None:
        self.source = source

    def __len__(self) -> int:
        return len(self.source)

    def padded(self) -> PaddedSequences:
        """All of them as one padded batch, for modules of your own."""
        return self.source.padded()


def chain_batch(batch: Any, *, may_be_empty: bool = False) -> tuple[PaddedSequences | WholeSequences, Tensor, Any]:
    """A batch ((x, lengths), y) or (x, y) of sequences, and sequence weights or ``None``, checked.

    Without lengths, a sequence ends before the first −100 of its tags.

    Example:
        >>> x, y, _ = chain_batch([torch.zeros(2, 3, 1), torch.tensor([[0, 1, 1], [0, -100, -100]])])
        >>> x.lengths
        tensor([3, 1])
    """
    if not isinstance(batch, tuple | list) or len(batch) not in (2, 3):
        found = f"{len(batch)} items" if isinstance(batch, tuple | list) else type(batch).__name__
        raise TypeError(
            "a batch of sequences must be ((x, lengths), y), (x, y), or one of them and sample weights, found "
            f"{found}; change the loader's dataset"
        )
    x, y, weight = (*batch, None)[:3]
    if isinstance(weight, Tensor) and weight.dim() == 2 and isinstance(y, Tensor) and y.dim() == 1:
        raise ValueError("the loader gives (x, lengths, y); lengths belong to x, so let it give ((x, lengths), y)")
    whole = isinstance(weight, Tensor) and not weight.is_floating_point() and isinstance(y, Tensor) and y.dim() == 2
    if whole and torch.equal(weight, (y != PAD).sum(1)):
        raise ValueError(
            "the loader gives (x, y, lengths); lengths belong to x, so let it give ((x, lengths), y), and sample "
            "weights as floats"
        )
    x, lengths = x if isinstance(x, tuple | list) and len(x) == 2 else (x, None)
    if not isinstance(y, Tensor) or not isinstance(x, Tensor | WholeSequences):
        raise TypeError(f"a batch must hold tensors, found {type(x).__name__} and {type(y).__name__}")
    if y.dim() != 2 or y.is_floating_point():
        raise ValueError(
            f"tags must be integers of shape (N, T), with {PAD} behind the end of a sequence, found {y.dtype} of shape "
            f"{tuple(y.shape)}"
        )
    if isinstance(x, WholeSequences):
        if len(x) != len(y):
            raise ValueError(f"a batch must have tags for each sequence, found {len(x)} and {len(y)}")
        return x, y, weight
    if x.dim() != 3 or x.shape[:2] != y.shape or not (len(y) or may_be_empty):
        raise ValueError(
            f"a batch must have x of shape (N, T, d) and tags of shape (N, T), at least one, found {tuple(x.shape)} "
            f"and {tuple(y.shape)}"
        )
    return PaddedSequences(x, tag_lengths(y) if lengths is None else lengths), y, weight


def as_sequences(x: PaddedSequences | WholeSequences, y: Tensor, width: int) -> tuple[Sequences, Tensor]:
    """A batch as the rule reads it: sequences, and tags with −100 behind the end.

    Example:
        >>> x = PaddedSequences(torch.tensor([[[2], [0]], [[1], [-1]]]), torch.tensor([2, 1]))
        >>> as_sequences(x, torch.zeros(2, 2, dtype=torch.int64), 3)[0]
        Sequences(2 sequences, 3 tokens, 3 binary features)
    """
    if isinstance(x, WholeSequences):
        return x.source, y
    inside = torch.arange(y.shape[1], device=y.device) < x.lengths[:, None]
    return Sequences.unpadded(x, width), y.masked_fill(~inside, PAD)


def unlabelled(batch: Any) -> PaddedSequences:
    """A batch to predict: x (N, T, d), (x, lengths), or one of them with tags, which are not looked at."""
    if isinstance(batch, WholeSequences):
        return batch.padded()
    if isinstance(batch, tuple | list) and batch:
        first, second = batch[0], batch[1] if len(batch) > 1 else None
        if not isinstance(first, Tensor):
            return unlabelled(first)
        if isinstance(second, Tensor) and second.dim() == 1 and first.dim() == 3:
            return PaddedSequences(first, second)
        batch = first
    if not isinstance(batch, Tensor) or batch.dim() != 3:
        found = tuple(batch.shape) if isinstance(batch, Tensor) else type(batch).__name__
        raise TypeError(f"a batch to predict must be x (N, T, d) or (x, lengths), found {found}; change the loader")
    return PaddedSequences(batch, torch.full((len(batch),), batch.shape[1], device=batch.device))


class ChainMetric(EpochMetric):
    """Mean loss of a sequence, fractions of wrong tags and of sequences with one, and mistakes.

    Example:
        >>> metric = ChainMetric()
        >>> metric.update(torch.tensor([3.0, 0.0]), errors=1, tokens=10, wrong=1, mistakes=1)
        >>> {name: float(value) for name, value in metric.compute().items()}
        {'loss': 1.5, 'error': 0.1, 'error/sequence': 0.5, 'mistakes': 1.0}
    """

    errors: Tensor
    tokens: Tensor
    wrong: Tensor
    mistakes: Tensor

    def __init__(self, exact: torch.dtype = torch.float64) -> None:
        super().__init__(exact)
        self.add_sums("errors", "tokens", "wrong", "mistakes")

    def update(self, losses: Tensor, *_: Any, **counts: Any) -> None:
        """Add a batch: the loss of each sequence; wrong tags, tokens, sequences with a wrong tag, and mistakes."""
        super().update(losses)
        for name, value in counts.items():
            getattr(self, name).add_(value)

    def compute(self) -> dict[str, Tensor]:
        """Return the metrics by name."""
        found = {"error": self.errors / self.tokens, "error/sequence": self.wrong / self.samples}
        return {**super().compute(), **found, "mistakes": self.mistakes}


class ChainModule(LitModel):
    """What modules for sequences share: batches, evaluation and metrics.

    Batches are ((x, lengths), y), or (x, y) with −100 behind the end of the tags, and sequence weights or none. The
    loss is per sequence, ``error`` per token, ``error/sequence`` per sequence, and ``mistakes`` are sequences.
    """

    logged = ("loss", "error", "error/sequence")
    nets: ClassVar[Mapping[str, type[nn.Module]]] = {**NETS, "torchperc.sequences.ChainPerceptron": ChainPerceptron}
    head: StructuredHead

    def unpack(self, batch: Any) -> tuple[Any, Tensor, Tensor | None]:
        """Return sequences, tags (N, T), and sequence weights or ``None``."""
        x, y, weight = chain_batch(batch, may_be_empty=rank_and_size()[1] > 1)
        return x, y, None if weight is None else check_sample_weight(weight, len(y), all_zero=True).to(y.device)

    def forward(self, x: Any) -> Any:
        """Return the scores, as the net gives them."""
        return self.net(x)

    def new_metric(self, exact: torch.dtype) -> ChainMetric:
        """Return loss, errors and mistakes."""
        return ChainMetric(exact)

    def weight_norm(self) -> None:
        """Return ``None``: a chain has no hyperplane."""

    def step(self, batch: Any, stage: str, batch_idx: int, dataloader_idx: int = 0) -> Tensor:
        """Return the weighted loss of each sequence, and add the batch to the metrics of the stage."""
        x, y, weight = self.unpack(self.own_samples(batch, stage, batch_idx, dataloader_idx))
        if not len(y):  # another process has the samples, and waits for the gradient of this one
            return torch.stack([values.sum() * 0 for values in self.net.parameters()])[:0]
        counts: dict[str, Any] | None = None
        if stage != "train":
            losses, counts = compiled_counts(self.net, self.head, x, y)
        if counts is None:
            x = x.padded() if isinstance(x, WholeSequences) else x
            x, y = PaddedSequences(*(part.to(y.device) for part in x)), y[:, : x.x.shape[1]]
            scores = self(x)
            losses, made = self.head.judge(scores, y)
            inside = torch.arange(y.shape[1], device=y.device) < scores.lengths[:, None]
            wrong = (self.head.decide(scores) != y) & inside
            counts = {"errors": wrong.sum(), "tokens": scores.lengths.sum(), "wrong": wrong.any(1).sum()}
            counts["mistakes"] = made.sum()
        losses = losses if weight is None else losses * weight.to(losses)
        if stage != "train" or self.is_new(batch_idx):
            self.metric(stage, dataloader_idx).update(losses.detach(), **counts)
        return losses  # type: ignore[no-any-return]

    def predict_step(self, batch: Any, batch_idx: int = 0, dataloader_idx: int = 0) -> Tensor:
        """Return tags (N, T) with −100 behind the end of each sequence, of a batch with tags or without."""
        return self.head.decide(self.net(unlabelled(batch)))


class LitTagger(ChainModule, LitDescent):
    """Gradient descent on the structured perceptron criterion of a chain.

    Args:
        net: a :class:`~torchperc.sequences.ChainPerceptron`, or a net that gives ``ChainScores``.
        margin: of the criterion, see :class:`~torchperc.sequences.StructuredHead`.
        lr, optimizer, scheduler, interval, monitor: as for :class:`LitClassifier`.

    Example:
        >>> import torchperc as tp
        >>> tp.lightning.LitTagger(tp.sequences.ChainPerceptron(2, 3), lr=0.5).hparams.lr
        0.5
    """

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
        super().__init__(net, StructuredHead(margin), lr, "batch", optimizer, scheduler, interval, monitor)
        if isinstance(uncompiled(self.net), tuple(NETS.values())):
            raise TypeError(
                f"net must give scores of tag sequences, found {type(self.net).__name__}; use LitClassifier"
            )
        self.save_hyperparameters({"margin": margin})
        self.save_arguments()


class LitTaggerRule(ChainModule, LitRule):  # type: ignore[misc]  # the metrics are those of ChainModule
    """The rule on a :class:`~torchperc.sequences.ChainPerceptron`: :class:`LitRule` for sequences.

    ``mistakes`` are sequences, ``error/train`` is the fraction of wrong tags in them, and there is no ``margin`` and no
    ``theory/lower``. Arguments are those of :class:`LitRule`.

    Example:
        >>> import torchperc as tp
        >>> tp.lightning.LitTaggerRule(tp.sequences.ChainPerceptron(2, 3), select="averaged").hparams.select
        'averaged'
    """

    rule_head = StructuredHead()

    def check_net(self) -> None:
        """Refuse a net that is no chain, and options that are not for one."""
        inner = uncompiled(self.net)
        if not isinstance(inner, ChainPerceptron):
            raise TypeError(f"net must be a ChainPerceptron, found {type(inner).__name__}; use LitRule")
        check_options(self.rule, inner)

    def rule_samples(self, x: Any, y: Tensor) -> tuple[Any, Tensor]:
        """Return sequences and tags as the rule reads them."""
        return as_sequences(x, y, uncompiled(self.net).features)  # type: ignore[arg-type]

    def log_run(self, run: RuleRun) -> None:
        """Log an epoch of a run on one batch."""
        log: Any = run.log()
        record, loss = run.history[-1], run.survey()
        shown = log.cost > 0
        values = {"mistakes": float(record.mistakes), "norm": record.norm, "theory/mistakes": float(len(log))}
        wrong = float(log.wrong_tags_by_epoch()[-1])
        errors = {"error/train": wrong / float(log.sequences.lengths[shown].sum())}
        errors["error/sequence/train"] = record.mistakes / float(shown.sum())
        self.log_once({"loss/train": loss, **errors}, prog_bar=True)  # type: ignore[dict-item]
        self.log_once(values if record.upper is None else {**values, "theory/upper": record.upper})

    def learn_next(self, x: Any, y: Tensor, weight: Tensor | None) -> None:
        """Learn these sequences online; the loss is that before."""
        net: Any = uncompiled(self.net)
        X, padded = self.rule_samples(x, y)
        tags, before = flat_tags(padded, X, net.tags), ChainWeights.view(net)
        losses = torch.from_numpy(before.score_differences(X, before.decode(X), tags).clip(0))
        wrong = made = 0
        if weight is None or weight.any():
            made = self.learn_chunk(X, tags, weight)
            wrong = int(self.result.log.wrong_tags_by_epoch()[-1])  # type: ignore[union-attr]
        self.metric("train").update(losses, errors=wrong, tokens=X.tokens, wrong=made, mistakes=made)

    def decisions(self, metric: Any) -> tuple[float, float]:
        """Return how many tags were wrong, and of how many."""
        return float(metric.errors), float(metric.tokens)


def compiled_counts(net: nn.Module, head: StructuredHead, x: Any, y: Tensor) -> tuple[Any, dict[str, Any] | None]:
    """Return losses and counts of a batch without a gradient, by compiled loops, or ``None`` where they do not pay."""
    inner = uncompiled(net)
    if not isinstance(inner, ChainPerceptron) or inner.weight.device.type != "cpu" or inner.weight.dtype.itemsize < 4:
        return None, None
    if head.margin or y.numel() * inner.tags**2 < _WORTH_IT or torch.is_autocast_enabled("cpu"):
        return None, None
    X, padded = as_sequences(x, y, inner.features)
    if X.width != inner.features:
        return None, None  # the net says what is wrong
    tags, weights = flat_tags(padded, X, inner.tags), ChainWeights.view(inner)
    best = weights.decode(X)
    losses, wrong = torch.from_numpy(weights.score_differences(X, best, tags).clip(0)), best != tags
    sequences = int((np.add.reduceat(wrong, X.offsets[:-1], dtype=np.int64) > 0).sum())
    return losses, {"errors": int(wrong.sum()), "tokens": X.tokens, "wrong": sequences, "mistakes": sequences}
