"""Batches of sequences, and what is counted in them: for modules whose head is that of chains."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from torchperc._checks import check_sample_weight
from torchperc.lightning.metrics import EpochSums, exact, squared_length
from torchperc.model.describe import uncompiled
from torchperc.nn.heads import Head
from torchperc.nn.modules import MLP, LinearNet
from torchperc.samples import process_group
from torchperc.sequences.chains import ChainPerceptron
from torchperc.sequences.heads import StructuredHead
from torchperc.sequences.layout import PAD, PaddedSequences, Sequences, flat_tags, tag_lengths
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


def check_chain(net: nn.Module, head: Head) -> bool:
    """Whether a module is about sequences; a net that does not fit the head is refused.

    Example:
        >>> check_chain(ChainPerceptron(2, 3), StructuredHead())
        True
    """
    chain, inner = isinstance(head, StructuredHead), uncompiled(net)
    if isinstance(inner, ChainPerceptron) and not chain:
        raise ValueError(
            f"head={head!r} is for scores of single samples, and the net is a chain; use "
            "LitClassifier(net, 'structured')"
        )
    if chain and isinstance(inner, LinearNet | MLP):
        raise ValueError(f"head={head!r} is for chains, found a {type(inner).__name__}; use a ChainPerceptron")
    return chain


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


def without_last(x: PaddedSequences | WholeSequences, kept: slice) -> PaddedSequences | WholeSequences:
    """Some sequences of a batch."""
    if isinstance(x, WholeSequences):
        return WholeSequences(x.source.take(kept))
    return PaddedSequences(x.x[kept], x.lengths[kept])


def chain_factors(weight: Tensor | None, count: int) -> Tensor | None:
    """The weight of each sequence's loss, in float64."""
    if weight is None:
        return None
    return check_sample_weight(weight, count, all_zero=True)


class ChainTally(NamedTuple):
    """Sums over a batch: losses, wrong tags, sequences that count as mistakes, tokens, sequences with a wrong tag."""

    loss: Tensor
    errors: Tensor
    mistakes: Tensor
    tokens: Tensor
    wrong: Tensor


@torch.no_grad()
def chain_tally(
    head: Head, scores: Any, y: Tensor, factors: Tensor | None, judged: tuple[Tensor, Tensor] | None
) -> ChainTally:
    """Count a batch; losses and mistakes may be known already."""
    assert isinstance(head, StructuredHead)
    losses, counts = head.judge(scores, y) if judged is None else judged
    inside = torch.arange(y.shape[1], device=y.device) < scores.lengths[:, None]
    wrong = (head.decide(scores) != y) & inside
    loss = exact(losses) if factors is None else exact(losses) * factors.to(losses.device)
    sums = (counts.sum(), scores.lengths.sum(), wrong.any(1).sum())
    return ChainTally(loss.sum(), exact(wrong.sum()), *(exact(each) for each in sums))


def compiled_tally(net: nn.Module, head: Head, x: Any, y: Tensor, factors: Tensor | None) -> ChainTally | None:
    """:func:`chain_tally` of a batch without a gradient, by compiled loops; ``None`` where those are not for it.

    They are for a chain on the CPU, and for so much work that they are worth loading.
    """
    inner = uncompiled(net)
    if not isinstance(inner, ChainPerceptron) or inner.weight.device.type != "cpu" or inner.weight.dtype.itemsize < 4:
        return None
    if getattr(head, "margin", 1.0) or y.numel() * inner.tags**2 < _WORTH_IT or torch.is_autocast_enabled("cpu"):
        return None
    X, padded = as_sequences(x, y, inner.features)
    if X.width != inner.features:
        return None  # the net says what is wrong
    tags, weights = flat_tags(padded, X, inner.tags), ChainWeights.view(inner)
    best = weights.decode(X)
    losses, wrong = torch.from_numpy(weights.score_differences(X, best, tags).clip(0)), best != tags
    sequences = np.add.reduceat(wrong, X.offsets[:-1], dtype=np.int64) > 0
    loss = losses.sum() if factors is None else (losses * factors.cpu()).sum()
    sums = (wrong.sum(), sequences.sum(), X.tokens, sequences.sum())
    return ChainTally(loss, *(torch.tensor(float(each), dtype=torch.float64) for each in sums))


class ChainSums(EpochSums):
    """:class:`EpochSums` of sequences: the loss is per sequence, the error per token and per sequence.

    Example:
        >>> sums = ChainSums()
        >>> sums.add(2, ChainTally(*(torch.tensor(each, dtype=torch.float64) for each in (3.0, 1, 1, 10, 1))), None)
        >>> sums.means()
        {'loss': 1.5, 'error': 0.1, 'error/sequence': 0.5, 'mistakes': 1.0, 'norm': 0.0}
    """

    def reset(self) -> None:
        """Forget everything."""
        super().reset()
        self.tallied = ChainTally(*[torch.zeros((), dtype=torch.float64)] * 5)

    @torch.no_grad()
    def add(self, count: int, found: Any, norm: Tensor | None) -> None:
        """Add a batch of so many sequences."""
        self.begun = True
        if found is not None:
            if self.count:
                found = ChainTally(*(old + new for old, new in zip(self.tallied, found, strict=True)))
            self.tallied, self.count = found, self.count + count

    def over_processes(self, device: torch.device) -> ChainSums:
        """The sums of all processes; ``device`` is where they tell each other."""
        own = [torch.tensor(self.count, dtype=torch.float64), *self.tallied]
        count, *values = process_group.all_reduce(torch.stack([each.to(device) for each in own]))
        total = ChainSums()
        total.add(int(count), ChainTally(*values), None)
        return total

    def decisions(self) -> tuple[int, int]:
        """How many tags were wrong, and of how many."""
        return int(self.tallied.errors), int(self.tallied.tokens)

    def state_dict(self) -> dict[str, Any]:
        """The sums so far."""
        return {"begun": self.begun, "count": self.count, **self.tallied._asdict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume from there."""
        self.begun, self.count = state["begun"], state["count"]
        self.tallied = ChainTally(*(state[name] for name in ChainTally._fields))

    def means(self, parameters: Iterable[Tensor] = ()) -> dict[str, float]:
        """Mean loss of a sequence, fractions of wrong tags and of sequences with one, mistakes, norm."""
        norm = math.sqrt(squared_length(parameters))
        loss, errors, mistakes, tokens, wrong = torch.stack(list(self.tallied)).tolist()
        found = {"loss": loss / self.count, "error": errors / tokens, "error/sequence": wrong / self.count}
        return {**found, "mistakes": mistakes, "norm": norm}
