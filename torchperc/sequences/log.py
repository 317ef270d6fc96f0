"""The log of a run over sequences, bound to its data: every model of the run is a function of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from torchperc._checks import check_float_dtype, check_int, check_number
from torchperc.sequences.base import (
    Log,
    check_fit,
    holds_integers,
    holds_moments,
    holds_numbers,
    read_arrays,
    write_arrays,
)
from torchperc.sequences.layout import Array, Sequences, flat_tags, split
from torchperc.sequences.weights import ChainNet, ChainWeights

_FORMAT = 2


class ChainMistake(NamedTuple):
    """At ``step`` (sequences seen before) ``sequence`` was predicted as ``wrong``; ``coef`` scaled its update."""

    sequence: int
    step: int
    coef: float
    wrong: Tensor


class Found(NamedTuple):
    """Mistakes as columns: sequence, step, and the wrong tags one after the other."""

    sequence: Array
    step: Array
    wrong: Array

    @classmethod
    def joined(cls, parts: list[Found]) -> Found:
        """The entries of several parts, one after the other."""
        none = (np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.int16))
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
        return self._rounded.decode(sequences, n_jobs)

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
                    votes[at, weights.decode(sequences, n_jobs)] += count
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
        like: features, tags and type of the net.

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
        return np.concatenate(([0], self.sequences.lengths[self.found.sequence].cumsum()))

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

    # --- the models ---

    def state_at(self, t: int) -> ChainModel:
        """The weights after the first ``t`` mistakes; ``state_at(0)`` is the start."""
        return self._model(self.moved(self._begin(), 0, self._checked(t)))

    def averaged(self) -> ChainModel:
        """The mean of the weights after each presented sequence: start + Σ cⱼ·(T − tⱼ)/T·(φ(x, y) − φ(x, ŷ))."""
        if not self.steps:
            return self.state_at(0)
        moment = self.add_moments(self.start.astype(np.float64).scale(0.0))
        last = self.moved(self._begin(), 0, len(self))
        return ChainModel(last.mean(moment, self.steps, self.scale), self.like)

    def add_moments(self, weights: ChainWeights, first: int = 0) -> ChainWeights:
        """Add Σ cⱼ·tⱼ·(φ(x, y) − φ(x, ŷ)) over the mistakes from ``first`` on, in place."""
        return self.moved(weights, first, len(self), self.found.step.astype(np.float64))

    def total(self) -> ChainWeights:
        """The sum of the weights after each presented sequence, before they are scaled."""
        left = (self.steps - self.found.step).astype(np.float64)
        return self.moved(self.start.astype(np.float64).scale(float(self.steps)), 0, len(self), left)

    def voted(self) -> VotedChain:
        """Every state decodes and votes at each position, as often as the number of sequences it survived; slow."""
        return VotedChain((self,))

    def states(self) -> Iterator[ChainWeights]:
        """The weights of every state, from the start to the last, before they are scaled; each moves on to the next."""
        weights = self._begin()
        yield weights
        for j in range(len(self)):
            yield self.moved(weights, j, j + 1)

    def moved(self, weights: ChainWeights, first: int, end: int, left: Array | None = None) -> ChainWeights:
        """Weights after the updates from ``first`` to ``end``, in place; each as often as ``left`` says."""
        coefs = self._steps[first:end] if left is None else self._steps[first:end] * left[first:end]
        part = self.found.sequence[first:end], coefs, self._bounds[first : end + 1], self.found.wrong
        weights.replay(self.sequences, self.y, *part)
        return weights

    def _begin(self) -> ChainWeights:
        """A copy of the start, to be moved in the type in which the run learned."""
        return self.start.astype(self.start.trans.dtype)

    def _model(self, weights: ChainWeights) -> ChainModel:
        return ChainModel(weights.scale(self.scale), self.like)  # in place: they were made for it

    # --- what happened ---

    def wrong_tags_by_epoch(self) -> Tensor:
        """Wrong tags of the mistakes in each epoch."""
        lengths = self.sequences.lengths[self.found.sequence]
        places = np.repeat(self.sequences.offsets[self.found.sequence] - self._bounds[:-1], lengths)
        wrong = self.found.wrong != self.y[places + np.arange(len(places))]
        sums = np.concatenate(([0], wrong.cumsum()))[self._bounds]
        return torch.from_numpy(sums[np.concatenate(([0], self.mistakes_by_epoch().cumsum(0).numpy()))]).diff()

    def errors(self) -> Tensor:
        """Wrong tags in training of every state, each at the weight of its sequence: (len + 1,) in float64."""
        return self._errors_of_states().every()

    def _errors_of_states(self) -> _ChainErrors:
        return _ChainErrors(self)

    def equals(self, other: ChainLog) -> bool:
        """Whether two runs made the same mistakes at the same moments with the same coefficients."""
        same = (np.array_equal(a, b) for a, b in zip(self.found, other.found, strict=True))
        return self.steps == other.steps and all(same) and torch.equal(self.coef, other.coef)

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

    def __init__(self, log: ChainLog) -> None:
        self._log, self._cost = log, np.repeat(log.cost, log.sequences.lengths)
        self._at, self._weights, self.everything = 0, log.start.astype(log.start.trans.dtype), float(self._cost.sum())

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
        return float(self._cost @ (weights.decode(self._log.sequences) != self._log.y))


_START = ("active", "weight", "transition", "end")


def _known(about: dict[str, Any]) -> bool:
    """Whether a description names a net and options that there are."""
    like = about["like"]
    for name, least in (("features", 1), ("tags", 2)):
        check_int(name, like[name], at_least=least)
    check_float_dtype("dtype", getattr(torch, like["dtype"]))
    check_number("scale", about["scale"], above=0)
    check_number("lr", about["lr"], above=0)
    check_number("margin", about["margin"], at_least=0)
    return bool(like["tags"] <= 2**15)


def _fits(arrays: dict[str, Array], steps: object, sequences: Sequences, tags: int) -> bool:
    """Whether a log read from a file stays within its sequences, features and tags."""
    count, active = len(arrays["sequence"]), arrays["active"]
    if not holds_integers(arrays["sequence"], count, 0, len(sequences)):
        return False
    kind = arrays["weight"].dtype
    return (
        holds_integers(arrays["wrong"], int(sequences.lengths[arrays["sequence"]].sum()), 0, tags, np.int16)
        and holds_moments(arrays, count, steps)
        and holds_integers(active, len(active), 0, sequences.width)
        and len(np.unique(active)) == len(active)
        and kind in (np.float32, np.float64)
        and all(arrays[name].dtype == kind for name in ("transition", "end"))
        and holds_numbers(arrays["weight"].astype(np.float64), (len(active), tags))
        and holds_numbers(arrays["transition"].astype(np.float64), (tags + 1, tags))
        and holds_numbers(arrays["end"].astype(np.float64), (tags,))
        and holds_numbers(arrays["cost"], (len(sequences),))
    )
