"""Chains in torch, on any device: scores of tags, the best sequence, the best of the others."""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from torchperc.nn import functional as tpf
from torchperc.sequences.layout import PAD


class ChainScores(NamedTuple):
    """What a chain gives to tags: emission (N, T, K), transition (K + 1, K) with the start in row K, end (K,), lengths
    (N,). Without a batch the emission is (T, K) and the length a number."""

    emission: Tensor
    transition: Tensor
    end: Tensor
    lengths: Tensor


def emissions(x: Tensor, weight: Tensor) -> Tensor:
    """w_k·x for every token and tag: (…, d) or, as numbers of the features that are 1, (…, F) → (…, K)."""
    if x.is_floating_point():
        return F.linear(x, weight)
    ids = x.flatten(0, -2).long()
    ones = (ids >= 0).to(weight.dtype)
    summed: Tensor = F.embedding_bag(ids.clamp(min=0), weight.t(), mode="sum", per_sample_weights=ones)
    return summed.reshape(*x.shape[:-1], len(weight))


class Decoded(NamedTuple):
    """Best tags (N, T), their score (N,), and δ (N, T, K): the best score of a prefix that ends in each tag."""

    tags: Tensor
    value: Tensor
    deltas: Tensor


def decode(scores: ChainScores, width: int) -> Decoded:
    """Viterbi, or with a smaller width than K a beam; lowest tags among equals, from the last backwards."""
    emission, transition, end, lengths = scores
    _, longest, tags = emission.shape
    pairs = transition[:tags]
    delta = transition[tags] + emission[:, 0]
    deltas, back = [delta], []
    for t in range(1, longest):
        if width < tags:
            kept = torch.sort(delta, dim=1, descending=True, stable=True).indices[:, :width]
            delta = torch.full_like(delta, -torch.inf).scatter(1, kept, delta.gather(1, kept))
        best, before = (delta.unsqueeze(2) + pairs).max(1)
        delta = torch.where((t < lengths).unsqueeze(1), best + emission[:, t], deltas[-1])
        deltas.append(delta)
        back.append(before)
    value, tag = (delta + end).max(1)
    path = [tag]
    for t in range(longest - 1, 0, -1):
        tag = torch.where(t < lengths, back[t - 1].gather(1, tag.unsqueeze(1)).squeeze(1), tag)
        path.append(tag)
    found = torch.stack(path[::-1], 1)
    beyond = torch.arange(longest, device=found.device) >= lengths.unsqueeze(1)
    return Decoded(found.masked_fill(beyond, PAD), value, torch.stack(deltas, 1))


def best_tags(scores: ChainScores, width: int | None = None) -> Tensor:
    """The best tags by scores: (N, T) int64 with −100 behind the end, or (T,); by Viterbi, or by a beam of a width."""
    found = decode(batched(scores), width or scores.emission.shape[-1])
    tpf.finite_scores(found.value)
    return found.tags if scores.emission.dim() == 3 else found.tags[0]


def runner_up(scores: ChainScores, found: Decoded) -> tuple[Tensor, Tensor]:
    """Of sequences that are the decision, another one with the same score: (N, T), and whether there is one (N,).

    It leaves the decision at the first position where it can, for the lowest tag: the second in the order in which ties
    are decided.
    """
    emission, transition, end, lengths = scores
    tags, (_, longest, count) = found.tags.clamp(min=0), emission.shape
    after = torch.where(
        (torch.arange(longest, device=tags.device) == lengths.unsqueeze(1) - 1).unsqueeze(2),
        end,
        transition[:count].t()[tags.roll(-1, 1)],  # transition[k, next tag]
    )
    through = found.deltas + after
    own = through.gather(2, tags.unsqueeze(2))
    others = torch.ones_like(through, dtype=torch.bool).scatter(2, tags.unsqueeze(2), False)
    equal = (through == own) & others & (found.tags != PAD).unsqueeze(2)
    first = equal.flatten(1).to(torch.uint8).argmax(1)  # the first of equals: position by position, tag by tag
    at = first // count
    tag = first - at * count
    path = [torch.where(at == longest - 1, tag, tags[:, -1])]
    for t in range(longest - 2, -1, -1):
        before = (found.deltas[:, t] + transition[:count].t()[path[-1]]).argmax(1)
        path.append(torch.where(at < t, tags[:, t], torch.where(at == t, tag, before)))
    other = torch.stack(path[::-1], 1)
    return other.masked_fill(found.tags == PAD, PAD), equal.flatten(1).any(1)


def best_others(scores: ChainScores, y: Tensor) -> Tensor:
    """max s(x, y′) over all sequences y′ ≠ y: (N,).

    Such a sequence has a last position where it differs from y: the best prefix up to there, and y behind it.
    """
    emission, transition, end, lengths = scores
    (_, longest, count), inside = emission.shape, y != PAD
    tags = torch.where(inside, y, 0)
    last = torch.arange(longest, device=y.device) == lengths.unsqueeze(1) - 1
    links = torch.where(last, end[tags], transition[tags, tags.roll(-1, 1)])
    own = (emission.gather(2, tags.unsqueeze(2)).squeeze(2) + links) * inside
    behind = own.flip(1).cumsum(1).flip(1) - own  # of y after each position
    after = torch.where(last.unsqueeze(2), end, transition[:count].t()[tags.roll(-1, 1)])
    through = (decode(scores, count).deltas + after).scatter(2, tags.unsqueeze(2), -torch.inf)
    return (through.amax(2) + behind).masked_fill(~inside, -torch.inf).amax(1)


def batched(scores: ChainScores) -> ChainScores:
    """The scores as a batch, of one if they are of one sequence."""
    if scores.emission.dim() == 3:
        return scores
    return scores._replace(emission=scores.emission.unsqueeze(0), lengths=scores.lengths.reshape(1))


def checked_tags(scores: ChainScores, y: Tensor) -> tuple[ChainScores, Tensor, Tensor]:
    """A batch of scores, its tags as (N, T) int64, and which of them are not behind the end; wrong tags are refused.

    In a batch, a sequence as long as the batch, as all are if no lengths were given, ends where its tags are padded.
    """
    if not isinstance(y, Tensor) or y.is_floating_point() or y.is_complex() or y.dtype == torch.bool:
        found = y.dtype if isinstance(y, Tensor) else type(y).__name__
        raise TypeError(f"y must be a tensor of integers, found {found}; number your tags from 0")
    emission, tags = scores.emission, (y if y.dim() == 2 else y.unsqueeze(0)).long()
    if tags.shape != emission.shape[:2]:
        raise ValueError(f"y has shape {tuple(y.shape)} but the scores are for {tuple(emission.shape[:2])} tokens")
    if y.dim() == 2:  # a sequence by itself is not padded
        marked = (tags != PAD).sum(1).clamp(min=1)
        scores = scores._replace(lengths=torch.where(scores.lengths == tags.shape[1], marked, scores.lengths))
    inside = torch.arange(tags.shape[1], device=tags.device) < scores.lengths.unsqueeze(1)
    if not torch.compiler.is_compiling():
        wrong = inside & ((tags < 0) | (tags >= emission.shape[2]))
        if wrong.any():
            i, t = wrong.nonzero()[0].tolist()
            raise ValueError(
                f"y: sequence {i}, position {t} has tag {int(tags[i, t])}; tags run from 0 to {emission.shape[2] - 1}"
            )
    return scores, tags, inside


def score(scores: ChainScores, y: Tensor) -> Tensor:
    """s(x, y) of given tags: (N, T) → (N,), or (T,) → ()."""
    (emission, transition, end, lengths), tags, inside = checked_tags(batched(scores), y)
    known = torch.where(inside, tags, 0)
    single = emission.gather(2, known.unsqueeze(2)).squeeze(2)
    first = torch.full_like(known[:, :1], emission.shape[2])
    pairs = transition[torch.cat((first, known[:, :-1]), 1), known]
    last = end[known.gather(1, lengths.unsqueeze(1) - 1)].squeeze(1)
    total = ((single + pairs) * inside).sum(1) + last
    return total if scores.emission.dim() == 3 else total.squeeze(0)
