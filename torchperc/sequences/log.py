"""The log of a run over sequences, bound to its data: every model of the run is a function of it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from torchperc import _checks as checks
from torchperc.rules.log import (
    Log,
    check_fit,
    holds_integers,
    holds_moments,
    holds_numbers,
    read_arrays,
    write_arrays,
)
from torchperc.sequences.decoding import ChainScores, best_others, emissions, score
from torchperc.sequences.layout import PAD, Array, Sequences, flat_tags, split
from torchperc.sequences.weights import ChainNet, ChainWeights
from torchperc.theory.bounds import structured_mistake_bound

_FORMAT = 1


class ChainMistake(NamedTuple):
    """At ``step`` (sequences seen before), ``sequence`` was taken for the tags ``wrong`` and added ``coef`` times.

    With a beam, ``wrong`` may be shorter than the sequence: the update was made on this prefix.
    """

    sequence: int
    step: int
    coef: float
    wrong: Tensor


class Found(NamedTuple):
    """Mistakes as columns: sequence, step, number of tags, and the tags one after the other."""

    sequence: Array
    step: Array
    length: Array
    wrong: Array

    @classmethod
    def joined(cls, parts: list[Found]) -> Found:
        """The entries of several parts, one after the other."""
        none = (np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.int16))
        return cls(*(np.concatenate([first, *rest]) for first, *rest in zip(none, *parts, strict=True)))


@dataclass(frozen=True, eq=False)
class ChainModel:
    """One set of weights of a run, for nets like the one that was trained."""

    weights: ChainWeights
    like: dict[str, Any]

    @cached_property
    def _tensors(self) -> tuple[Tensor, Tensor, Tensor]:
        return self.weights.tensors(self.like["dtype"])

    @property
    def weight(self) -> Tensor:
        """(K, d)."""
        return self._tensors[0]

    @property
    def transition(self) -> Tensor:
        """(K + 1, K), row K for the start."""
        return self._tensors[1]

    @property
    def end(self) -> Tensor:
        """(K,)."""
        return self._tensors[2]

    def predict(self, X: Any, *, n_jobs: int | None = None) -> list[Tensor]:
        """The best tags of each sequence, as a net with these weights finds them."""
        sequences = Sequences.of(X, width=self.like["features"])
        return split(self.flat_predict(sequences, n_jobs), sequences)

    @cached_property
    def _rounded(self) -> ChainWeights:
        return self.weights.rounded(self.like["dtype"])

    def flat_predict(self, sequences: Sequences, n_jobs: int | None = None) -> Array:
        """The best tags of all sequences, as one array (T,)."""
        return self._rounded.decode(sequences, _width(self.like), n_jobs)

    def write_to(self, net: ChainNet) -> None:
        """Copy the weights into a net of the same shape."""
        self.weights.write_to(net)


@dataclass(frozen=True, eq=False)
class VotedChain:
    """Every state of the logs decodes, and votes at each position, as often as the number of sequences it survived."""

    logs: tuple[ChainLog, ...]

    def predict(self, X: Any, *, n_jobs: int | None = None) -> list[Tensor]:
        """The tag with the most votes at each position, the lowest of equals."""
        log = self.logs[0]
        sequences = Sequences.of(X, width=log.sequences.width)
        return split(self.flat_predict(sequences, n_jobs), sequences)

    def flat_predict(self, sequences: Sequences, n_jobs: int | None = None) -> Array:
        """As one array (T,)."""
        log = self.logs[0]
        votes, at = np.zeros((sequences.tokens, log.like["tags"])), np.arange(sequences.tokens)
        for log in self.logs:
            counts = log.survivals().tolist() if log.steps else [1]
            for count, weights in zip(counts, log.states(), strict=True):
                if count:
                    votes[at, weights.decode(sequences, log.width, n_jobs)] += count
        found: Array = votes.argmax(1)
        return found


@dataclass(frozen=True, eq=False, repr=False)
class ChainLog(Log[ChainModel]):
    """The mistakes of a run over sequences in order, bound to the data they were made on.

    Args:
        sequences: the training sequences, which are not copied.
        y: their tags, flat.
        start: the weights before the first sequence, before they are scaled.
        found: the mistakes as columns.
        steps: how many sequences were presented in all.
        epoch_ends: how many had been presented by the end of each epoch.
        cost: of an error in each sequence: its weight.
        scale: by which weights are multiplied to become a model; the learning rate, if training began at zero.
        lr: the learning rate.
        margin: that was required, per wrong tag.
        like: features, tags, decode, beam width and type of the net.

    Example:
        >>> import torchperc as tp
        >>> net = tp.sequences.ChainPerceptron(2, 2)
        >>> log = tp.RuleTrainer().fit(net, [[[1, 0], [0, 1]], [[0, 1]]], [[0, 1], [1]]).log
        >>> len(log), log[0]
        (1, ChainMistake(sequence=0, step=0, coef=1.0, wrong=tensor([0, 0])))
        >>> log.last().weight
        tensor([[ 0., -1.],
                [ 0.,  1.]])
    """

    sequences: Sequences
    y: Array
    start: ChainWeights
    found: Found
    steps: int
    epoch_ends: Tensor
    cost: Array
    scale: float
    lr: float
    margin: float
    like: dict[str, Any]

    def __getitem__(self, j: int) -> ChainMistake:
        if not -len(self) <= j < len(self):
            raise IndexError(f"j={j} is outside the log, which has {len(self)} mistakes")
        j = range(len(self))[j]
        tags = torch.from_numpy(self.found.wrong[self._bounds[j] : self._bounds[j + 1]].astype(np.int64))
        return ChainMistake(int(self.index[j]), int(self.step[j]), float(self.coef[j]), tags)

    def __iter__(self) -> Iterator[ChainMistake]:
        return (self[j] for j in range(len(self)))

    @cached_property
    def _bounds(self) -> Array:
        """Where the wrong tags of each mistake begin and end."""
        return np.concatenate(([0], self.found.length.cumsum()))

    @cached_property
    def _steps(self) -> Array:
        """The coefficient of each mistake, before it is scaled."""
        return np.ascontiguousarray(self.cost[self.found.sequence]) * (self.lr / self.scale)

    @property
    def index(self) -> Tensor:
        """Which sequence, per mistake."""
        return torch.from_numpy(self.found.sequence)

    @property
    def step(self) -> Tensor:
        """How many sequences were presented before it."""
        return torch.from_numpy(self.found.step)

    @property
    def coef(self) -> Tensor:
        """η·(weight of the sequence)."""
        return torch.from_numpy(self._steps * self.scale)

    @property
    def length(self) -> Tensor:
        """How many tags were compared: all of a sequence, or with a beam a prefix."""
        return torch.from_numpy(self.found.length)

    @property
    def width(self) -> int:
        """How many tags decoding kept at each position."""
        return _width(self.like)

    # --- the models ---

    def state_at(self, t: int) -> ChainModel:
        """The weights after the first ``t`` mistakes; ``state_at(0)`` is the start."""
        return self._model(self.moved(self.start.astype(np.float64), 0, self._checked(t)))

    def averaged(self, rows: int = 0) -> ChainModel:
        """The mean of the weights after each presented sequence: start + Σ cⱼ·(T − tⱼ)/T·(φ(x, y) − φ(x, ŷ)).

        One replay of the log, in float64; on integers the sum is exact. See :meth:`total` for ``rows``.
        """
        return self._model(self.total(rows), self.steps) if self.steps else self.state_at(0)

    def total(self, rows: int = 0) -> ChainWeights:
        """The sum of the weights after each presented sequence, before they are scaled.

        Room for so many rows of features is made at once, which saves copies of large weights.
        """
        left, weights = (self.steps - self.found.step).astype(np.float64), self.start.scaled(float(self.steps))
        weights.ensure(rows - weights.used)
        return self.moved(weights, 0, len(self), left)

    def voted(self) -> VotedChain:
        """Every state decodes and votes at each position, as often as the number of sequences it survived; slow."""
        return VotedChain((self,))

    def best_validation(self, X: Any, y: Any) -> ChainModel:
        """The weights at the end of the epoch with the fewest wrong tags on validation data, the earliest of equals."""
        sequences = Sequences.of(X, width=self.sequences.width)
        tags = flat_tags(y, sequences, self.like["tags"])
        ends = [0, *self.mistakes_by_epoch().cumsum(0).tolist()]
        weights, best, fewest = self.start.astype(np.float64), ends[min(1, len(ends) - 1)], math.inf
        for a, b in pairwise(ends):
            weights = self.moved(weights, a, b)
            wrong = int((weights.decode(sequences, self.width) != tags).sum())
            if wrong < fewest:
                best, fewest = b, wrong
        return self.state_at(best)

    def states(self) -> Iterator[ChainWeights]:
        """The weights of every state, from the start to the last, before they are scaled; each moves on to the next."""
        weights = self.start.astype(np.float64)
        yield weights
        for j in range(len(self)):
            yield self.moved(weights, j, j + 1)

    def moved(self, weights: ChainWeights, first: int, end: int, left: Array | None = None) -> ChainWeights:
        """Weights after the updates from ``first`` to ``end``, in place; each as often as ``left`` says."""
        coefs = self._steps[first:end] if left is None else self._steps[first:end] * left[first:end]
        part = self.found.sequence[first:end], coefs, self._bounds[first : end + 1], self.found.wrong
        weights.replay(self.sequences, self.y, *part)
        return weights

    def _model(self, weights: ChainWeights, over: float = 1.0) -> ChainModel:
        return ChainModel(weights.scale(self.scale, over), self.like)  # in place: they were made for it

    # --- what happened ---

    def wrong_tags_by_epoch(self) -> Tensor:
        """Wrong tags of the mistakes in each epoch; with a beam, of the prefixes that were compared."""
        places = np.repeat(self.sequences.offsets[self.found.sequence] - self._bounds[:-1], self.found.length)
        wrong = self.found.wrong != self.y[places + np.arange(len(places))]
        sums = np.concatenate(([0], wrong.cumsum()))[self._bounds]
        return torch.from_numpy(sums[np.concatenate(([0], self.mistakes_by_epoch().cumsum(0).numpy()))]).diff()

    def errors(self, X: Any = None, y: Any = None) -> Tensor:
        """Wrong tags of every state, from the start to the last: (len + 1,) in float64.

        On the training data, which is the default, a wrong tag counts the weight of its sequence.
        """
        if X is None and y is None:
            return self._errors_of_states().every()
        sequences = Sequences.of(X, width=self.sequences.width)
        tags, cost = flat_tags(y, sequences, self.like["tags"]), np.ones(sequences.tokens)
        return _ChainErrors(self, sequences, tags, cost).every()

    def _errors_of_states(self) -> _ChainErrors:
        return _ChainErrors(self, self.sequences, self.y, np.repeat(self.cost, self.sequences.lengths))

    def equals(self, other: ChainLog) -> bool:
        """Whether two runs made the same mistakes at the same moments with the same coefficients."""
        same = (np.array_equal(a, b) for a, b in zip(self.found, other.found, strict=True))
        return self.steps == other.steps and all(same) and torch.equal(self.coef, other.coef)

    def mistake_bound(self, separator: ChainNet | ChainModel) -> float:
        """How many mistakes a run from zero weights makes at most on this data, given weights that separate it.

        (R² + 2·m·L/η)/γ², see :func:`torchperc.theory.structured_mistake_bound`: R² is the largest bound of
        ‖φ(x, y) − φ(x, y′)‖² of any sequence, L the longest of them, γ the margin of the separator, found by decoding
        the second-best sequence. Infinity if they do not separate. With sample weights c it bounds (Σ c)²/Σ c².
        """
        if self.width < self.like["tags"]:
            raise ValueError(
                f"decode={self.like['decode']!r} updates on prefixes, whose margin is another; use viterbi"
            )
        weights = separator.weights if isinstance(separator, ChainModel) else ChainWeights.of(separator)
        used = self.sequences if self.cost.all() else self.sequences.take(self.cost > 0)
        tags = self.y if self.cost.all() else self.y[np.repeat(self.cost > 0, self.sequences.lengths)]
        gaps, norm = slacks(weights, used, tags), weights.norm
        slack = 2 * self.margin * float(used.lengths.max()) / self.lr
        return structured_mistake_bound(radii(used), gaps / norm if norm else gaps, slack=slack)

    # --- on disk ---

    def save(self, path: str | Path) -> None:
        """Write the log atomically to one ``.npz`` file, without pickle; of the data it holds a hash."""
        like = {**self.like, "dtype": str(self.like["dtype"]).removeprefix("torch.")}
        about = {"format": _FORMAT, "data": self.sequences.hash(self.y), "steps": self.steps, "scale": self.scale,
                 "lr": self.lr, "margin": self.margin, "like": like}  # fmt: skip
        active, *weights = self.start.unpacked()
        arrays = dict(zip(Found._fields, self.found, strict=True)) | {"epoch_ends": self.epoch_ends.numpy()}
        arrays |= dict(zip(_START, (active, *weights), strict=True)) | {"cost": self.cost}
        write_arrays(Path(path), about, arrays)

    @classmethod
    def load(cls, path: str | Path, X: Any, y: Any) -> ChainLog:
        """Read a log and bind it to its data; other data are refused.

        Args:
            path: a file that :meth:`save` wrote.
            X: the sequences the log was made on.
            y: their tags.
        """
        about, arrays = read_arrays(Path(path), "log of sequences", "like", (_FORMAT,))
        check_fit(path, lambda: _known(about))
        like = {**about["like"], "dtype": getattr(torch, about["like"]["dtype"])}
        sequences = Sequences.of(X, width=like["features"])
        tags = flat_tags(y, sequences, like["tags"])
        if sequences.hash(tags) != about["data"]:
            raise ValueError(f"{path} belongs to other data: X and y are not those the log was made on")
        check_fit(path, lambda: _fits(arrays, about["steps"], sequences, like["tags"]))
        start = ChainWeights.packed(like["features"], *(arrays[name] for name in _START))
        found = Found(*(arrays[name] for name in Found._fields))
        ends = torch.from_numpy(arrays["epoch_ends"])
        options = {name: about[name] for name in ("steps", "scale", "lr", "margin")}
        return cls(sequences, tags, start, found, epoch_ends=ends, cost=arrays["cost"], like=like, **options)


class _ChainErrors:
    """The wrong tags of states, each at the weight of its sequence."""

    at_once = 1  # a state decodes by itself

    def __init__(self, log: ChainLog, sequences: Sequences, tags: Array, cost: Array) -> None:
        self._log, self._sequences, self._tags, self._cost = log, sequences, tags, cost
        self._at, self.everything = 0, float(cost.sum())

    @cached_property
    def _weights(self) -> ChainWeights:
        """Of the last state that was asked for."""
        return self._log.start.astype(np.float64)

    def of(self, states: Iterable[int]) -> list[float]:
        """The cost of wrong tags of some states."""
        found = []
        for state in states:
            self._log.moved(self._weights, self._at, state)
            self._at = state
            found.append(self._wrong(self._weights))
        return found

    def every(self) -> Tensor:
        """The cost of wrong tags of all states."""
        return torch.tensor([self._wrong(each) for each in self._log.states()], dtype=torch.float64)

    def _wrong(self, weights: ChainWeights) -> float:
        return float(self._cost @ (weights.decode(self._sequences, self._log.width) != self._tags))


_START = ("active", "weight", "transition", "end")


def _known(about: dict[str, Any]) -> bool:
    """Whether a description names a net and options that there are."""
    like = about["like"]
    for name, least in (("features", 1), ("tags", 2), ("beam_width", 1)):
        checks.whole(name, like[name], at_least=least)
    checks.floating("dtype", getattr(torch, like["dtype"]))
    checks.number("scale", about["scale"], above=0)
    checks.number("lr", about["lr"], above=0)
    checks.number("margin", about["margin"], at_least=0)
    return like["tags"] <= 2**15 and like["decode"] in ("viterbi", "greedy", "beam")


def _fits(arrays: dict[str, Array], steps: object, sequences: Sequences, tags: int) -> bool:
    """Whether a log read from a file stays within its sequences, features and tags."""
    count, active, length = len(arrays["sequence"]), arrays["active"], arrays["length"]
    if not holds_integers(arrays["sequence"], count, 0, len(sequences)):
        return False
    return (
        holds_integers(length, count, 1, int(sequences.lengths.max()) + 1)
        and bool((length <= sequences.lengths[arrays["sequence"]]).all())
        and holds_integers(arrays["wrong"], int(length.sum()), 0, tags, np.int16)
        and holds_moments(arrays, count, steps)
        and holds_integers(active, len(active), 0, sequences.width)
        and len(np.unique(active)) == len(active)
        and holds_numbers(arrays["weight"], (len(active), tags))
        and holds_numbers(arrays["transition"], (tags + 1, tags))
        and holds_numbers(arrays["end"], (tags,))
        and holds_numbers(arrays["cost"], (len(sequences),))
    )


def _width(like: dict[str, Any]) -> int:
    return kept_tags(like["decode"], like["beam_width"], like["tags"])


def kept_tags(decode: str, beam_width: int, tags: int) -> int:
    """How many tags decoding keeps at each position: all, one, or the width of the beam."""
    return {"viterbi": tags, "greedy": 1}.get(decode, min(beam_width, tags))


def radii(sequences: Sequences) -> Array:
    """A bound of ‖φ(x, y) − φ(x, y′)‖² per sequence: 2·(Σ_t ‖x_t‖)² + 2·(T − 1)² + 4.

    The emissions differ by Σ_t (e_{y_t} − e_{y′_t}) ⊗ x_t, terms of length √2·‖x_t‖ or 0. The T − 1 pairs differ by
    terms of length √2 or 0, and so do the start and the end, which have coordinates of their own.
    """
    squares = _squared_norms(sequences)
    lengths = np.add.reduceat(np.sqrt(squares), sequences.offsets[:-1])
    count = sequences.lengths.astype(np.float64)
    made: Array = 2 * lengths**2 + 2 * (count - 1) ** 2 + 4
    return made


def _squared_norms(sequences: Sequences) -> Array:
    """‖x_t‖² per token; a feature that is there twice counts as one of twice its value."""
    if sequences.dense is not None:
        made: Array = np.einsum("td,td->t", sequences.dense, sequences.dense, dtype=np.float64)
        return made
    from scipy.sparse import csr_array

    assert sequences.indptr is not None
    assert sequences.ids is not None
    values = np.ones(len(sequences.ids)) if sequences.values is None else sequences.values.astype(np.float64)
    rows = csr_array((values, sequences.ids.copy(), sequences.indptr.copy()), (sequences.tokens, sequences.width))
    rows.sum_duplicates()
    return np.asarray(rows.multiply(rows).sum(1)).reshape(-1)


def slacks(weights: ChainWeights, sequences: Sequences, y: Array, block: int = 64) -> Array:
    """s(x, y) − max_{y′≠y} s(x, y′) of every sequence, in float64: (N,)."""
    weight, transition, end = weights.tensors(torch.float64)
    found, tags = np.empty(len(sequences)), split(y, sequences)
    for first in range(0, len(sequences), block):
        numbers = np.arange(first, min(first + block, len(sequences)))
        x, lengths = sequences.padded(numbers)
        target = torch.nn.utils.rnn.pad_sequence([tags[i] for i in numbers], batch_first=True, padding_value=PAD)
        emission = emissions(x.double() if x.is_floating_point() else x, weight)
        scores = ChainScores(emission, transition, end, lengths)
        found[numbers] = (score(scores, target) - best_others(scores, target)).numpy()
    return found
