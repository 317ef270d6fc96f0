"""A perceptron over whole tag sequences: scores, decoding in torch on any device, and its loss."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from torchperc._checks import check_float_dtype, check_int, check_number
from torchperc.nn import functional as tpf
from torchperc.nn.losses import _Loss
from torchperc.sequences.rule import ChainWeights, chain_problem
from torchperc.sequences.sequences import MOST_TAGS, PAD, PaddedSequences, Sequences


class ChainScores(NamedTuple):
    """Scores of tags and transitions, for decoding and the loss; any net may return it.

    Args:
        emission: (N, T, K); without a batch (T, K).
        transition: (K + 1, K), the start in row K.
        end: (K,).
        lengths: (N,); without a batch a number.
    """

    emission: Tensor
    transition: Tensor
    end: Tensor
    lengths: Tensor


def emissions(x: Tensor, weight: Tensor) -> Tensor:
    """Return w_k·x for every token and tag: (…, d), or (…, F) of the numbers of features that are 1 → (…, K)."""
    if x.is_floating_point():
        return F.linear(x, weight)
    ids = x.flatten(0, -2).long()
    ones = (ids >= 0).to(weight.dtype)
    summed: Tensor = F.embedding_bag(ids.clamp(min=0), weight.t(), mode="sum", per_sample_weights=ones)
    return summed.reshape(*x.shape[:-1], len(weight))


def viterbi(scores: ChainScores) -> tuple[Tensor, Tensor]:
    """Return the best tags of a batch (N, T), −100 behind the end, and their scores (N,).

    Of equals it is the lowest last tag, then the lowest before it, and so on to the first.
    """
    emission, transition, end, lengths = scores
    _, longest, tags = emission.shape
    delta = transition[tags] + emission[:, 0]
    back = []
    for t in range(1, longest):
        best, before = (delta.unsqueeze(2) + transition[:tags]).max(1)
        delta = torch.where((t < lengths).unsqueeze(1), best + emission[:, t], delta)
        back.append(before)
    value, tag = (delta + end).max(1)
    path = [tag]
    for t in range(longest - 1, 0, -1):
        tag = torch.where(t < lengths, back[t - 1].gather(1, tag.unsqueeze(1)).squeeze(1), tag)
        path.append(tag)
    beyond = torch.arange(longest, device=tag.device) >= lengths.unsqueeze(1)
    return torch.stack(path[::-1], 1).masked_fill(beyond, PAD), value


def best_tags(scores: ChainScores) -> Tensor:
    """Return the best tags by Viterbi: (N, T) int64 with −100 behind the end, or (T,)."""
    found, value = viterbi(_batched(scores))
    tpf.finite_scores(value)
    return found if scores.emission.dim() == 3 else found[0]


def _batched(scores: ChainScores) -> ChainScores:
    if scores.emission.dim() == 3:
        return scores
    return scores._replace(emission=scores.emission.unsqueeze(0), lengths=scores.lengths.reshape(1))


def _checked_tags(scores: ChainScores, y: Tensor) -> tuple[Tensor, Tensor]:
    """Return the tags of a batch of scores as (N, T) int64, and which of them are not behind the end."""
    if not isinstance(y, Tensor) or y.is_floating_point() or y.is_complex() or y.dtype == torch.bool:
        found = y.dtype if isinstance(y, Tensor) else type(y).__name__
        raise TypeError(f"y must be a tensor of integers, found {found}; number your tags from 0")
    shape, tags = scores.emission.shape, (y if y.dim() == 2 else y.unsqueeze(0)).long()
    if tags.shape != shape[:2]:
        raise ValueError(f"y has shape {tuple(y.shape)} but the scores are for {tuple(shape[:2])} tokens")
    inside = torch.arange(shape[1], device=tags.device) < scores.lengths.unsqueeze(1)
    if not torch.compiler.is_compiling():
        for i, t in (inside & ((tags < 0) | (tags >= shape[2]))).nonzero()[:1].tolist():
            remedy = f"tags run from 0 to {shape[2] - 1}; where sequences are padded, give the net their lengths"
            raise ValueError(f"y: sequence {i}, position {t} has tag {int(tags[i, t])}; {remedy}")
    return tags, inside


class ChainPerceptron(nn.Module):
    """A linear model of tag sequences, in which neighbouring tags see each other.

        s(x, y) = Σ_t w[y_t]·x_t + A[K, y_1] + Σ_{t>1} A[y_{t−1}, y_t] + e[y_T]

    with weight w (K, d), transition A (K + 1, K), its row K for the start, and end e (K,). There is no bias: a feature
    that is always 1 is one. The decision is the sequence of the largest score; of several, the one with the lowest last
    tag, then the lowest tag before it, and so on to the first. Weights start at zero.

    Args:
        features: d.
        tags: K.
        device, dtype: as for any module.

    Shape:
        x (N, T, d) of numbers, or (N, T, F) of integers: the numbers of the features that are 1, −1 for none.
        Without N, one sequence.

    Example:
        >>> net = ChainPerceptron(2, 3)
        >>> _ = net.transition.data[0, 2].fill_(1), net.weight.data[0, 0].fill_(1)
        >>> net.predict(torch.tensor([[1.0, 0.0], [0.0, 1.0]]))
        tensor([0, 2])
    """

    rule_weights, rule_problem = staticmethod(ChainWeights.packed), chain_problem  # for RuleTrainer

    def __init__(self, features: int, tags: int, *, device: Any = None, dtype: torch.dtype | None = None) -> None:
        super().__init__()
        self.features = check_int("features", features, at_least=1)
        self.tags = check_int("tags", tags, at_least=2)
        if self.tags > MOST_TAGS:
            raise ValueError(f"tags={tags} is too many: decoding takes tags² steps per token; at most {MOST_TAGS}")
        dtype = check_float_dtype("dtype", dtype or torch.get_default_dtype())
        made = partial(torch.zeros, dtype=dtype, device=device)
        self.weight = nn.Parameter(made(self.features, self.tags).t())  # feature by feature, as the loops read it
        self.transition = nn.Parameter(made(self.tags + 1, self.tags))
        self.end = nn.Parameter(made(self.tags))

    def extra_repr(self) -> str:
        """Return the sizes, for ``print(net)``."""
        return f"features={self.features}, tags={self.tags}"

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Set all weights to zero."""
        for values in self.parameters():
            values.zero_()

    def forward(self, x: Tensor | PaddedSequences, lengths: Tensor | None = None) -> ChainScores:
        """Return the scores of tags and pairs of tags.

        Args:
            x: a batch, or one sequence; see the class.
            lengths: of the sequences of a batch; by default all are T long.
        """
        if isinstance(x, PaddedSequences):
            x, lengths = x
        if not torch.compiler.is_compiling():
            self._check(x, lengths)
        if lengths is None:
            lengths = torch.full(x.shape[:-2], x.shape[-2], dtype=torch.int64, device=x.device)
        return ChainScores(emissions(x, self.weight), self.transition, self.end, lengths)

    def _check(self, x: Tensor, lengths: Tensor | None) -> None:
        if not isinstance(x, Tensor) or x.dim() not in (2, 3) or not x.numel() or x.dtype == torch.bool:
            found = f"{x.dtype} {tuple(x.shape)}" if isinstance(x, Tensor) else type(x).__name__
            raise ValueError(f"x must be a tensor (N, T, d) or (T, d) of numbers, not empty, found {found}")
        if not x.is_floating_point():
            for number in (int(x.min()), int(x.max())):
                if not -1 <= number < self.features:
                    raise ValueError(f"x has feature {number}; use 0 to {self.features - 1}, and −1 for no feature")
        elif x.shape[-1] != self.features:
            raise ValueError(f"x has {x.shape[-1]} features but {self.features} are needed, as the net has")
        elif x.dtype != self.weight.dtype and not torch.is_autocast_enabled(x.device.type):
            raise TypeError(f"x is {x.dtype} but the net is {self.weight.dtype}; convert one of them")
        if lengths is None:
            return
        fits = isinstance(lengths, Tensor) and lengths.shape == x.shape[:-2] and not lengths.is_floating_point()
        if not fits or int(lengths.min()) < 1 or int(lengths.max()) > x.shape[-2]:
            needed = f"integers of shape {tuple(x.shape[:-2])} between 1 and T={x.shape[-2]}"
            raise ValueError(f"lengths must be a tensor of {needed}, found {lengths}")

    @staticmethod
    def score(scores: ChainScores, y: Tensor) -> Tensor:
        """Return s(x, y) of given tags: (N, T) → (N,), or (T,) → (); tags behind the end are ignored.

        Example:
            >>> net = ChainPerceptron(1, 2)
            >>> _ = net.transition.data.fill_(1)
            >>> net.score(net(torch.ones(3, 1)), torch.tensor([0, 1, 1]))
            tensor(3., grad_fn=<SqueezeBackward1>)
        """
        emission, transition, end, lengths = batch = _batched(scores)
        tags, inside = _checked_tags(batch, y)
        known = torch.where(inside, tags, 0)
        single = emission.gather(2, known.unsqueeze(2)).squeeze(2)
        first = torch.full_like(known[:, :1], emission.shape[2])
        pairs = transition[torch.cat((first, known[:, :-1]), 1), known]
        last = end[known.gather(1, lengths.unsqueeze(1) - 1)].squeeze(1)
        total = ((single + pairs) * inside).sum(1) + last
        return total if scores.emission.dim() == 3 else total.squeeze(0)

    @torch.no_grad()
    def predict(self, x: Tensor | PaddedSequences | Sequences | Any, lengths: Tensor | None = None) -> Any:
        """Return the best tags.

        Args:
            x: a batch (N, T, d) or (N, T, F), or one sequence, decoded in torch where it is; or :class:`Sequences` or a
                list of sequences, decoded by a compiled loop on the CPU, by all threads that torch may use.
            lengths: of the sequences of a batch.

        Returns:
            (N, T) int64 with −100 behind the end, (T,) for one sequence; for :class:`Sequences` and lists a list of
            tensors (T_i,).
        """
        if isinstance(x, Tensor | PaddedSequences):
            return best_tags(self(x, lengths))
        if lengths is not None:
            raise ValueError(f"lengths={lengths} is for a batch, found {type(x).__name__}; leave it out")
        return ChainWeights.view(self).predict(x)


class StructuredPerceptronLoss(_Loss):
    """The perceptron criterion of whole sequences, with a margin that grows with the number of wrong tags:

        L = max_{y′} s(x, y′) + m·H(y′, y) − s(x, y)

    H is the Hamming distance: the number of positions where the tags differ. The loss is never negative, since y is one
    of the y′. The gradient is φ(x, ŷ) − φ(x, y) for the ŷ of the maximum, which Viterbi finds.

    Args:
        reduction: over sequences: ``"mean"``, ``"sum"`` or ``"none"``.
        margin: m; 0 is the classic criterion.

    Shape:
        scores as :class:`ChainPerceptron` gives them, y (N, T) or (T,); tags behind the end are ignored.

    Example:
        >>> net = ChainPerceptron(1, 2)
        >>> loss = StructuredPerceptronLoss(margin=1)(net(torch.ones(3, 1)), torch.tensor([0, 1, 1]))
        >>> loss.backward()
        >>> loss.item(), net.weight.grad.tolist()
        (3.0, [[1.0], [-1.0]])
    """

    def __init__(self, reduction: str = "mean", margin: float = 0.0) -> None:
        super().__init__(reduction)
        self.margin = check_number("margin", margin, at_least=0)

    def forward(self, scores: ChainScores, y: Tensor) -> Tensor:
        """Return the loss of scores against tags."""
        loss = self.judge(scores, y)[0]
        return loss if self.reduction == "none" else loss.mean() if self.reduction == "mean" else loss.sum()

    def judge(self, scores: ChainScores, y: Tensor) -> tuple[Tensor, Tensor]:
        """Return the loss of each sequence (N,), and whether its best tags, margin included, are others than y."""
        if not isinstance(scores, ChainScores):
            raise TypeError(f"scores must be ChainScores, as a ChainPerceptron gives, found {type(scores).__name__}")
        with torch.no_grad():
            given = _batched(ChainScores(*(part.detach() for part in scores)))
            tags, inside = _checked_tags(given, y)
            cost = torch.full_like(given.emission, self.margin).scatter(2, tags.clamp(min=0).unsqueeze(2), 0.0)
            found, _ = viterbi(given._replace(emission=given.emission + cost))
            apart = ((found != tags) & inside).sum(1)
        wrong, apart = (found, apart) if y.dim() == 2 else (found[0], apart[0])
        loss = ChainPerceptron.score(scores, wrong) + self.margin * apart - ChainPerceptron.score(scores, y)
        return loss - loss.detach().clamp(max=0), apart > 0  # rounding may leave it below 0
