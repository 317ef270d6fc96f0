"""Learning chains by rule: per sequence one decoding, per mistake one update; the log of the mistakes is the model.

Arithmetic: if features, weights and coefficients are integers, as from zero weights they mostly are, everything is
exact: in float32 while a bound says so, then in float64. Else it is float64, rounded to the net's type at the end.
"""

from __future__ import annotations

import io
import json
import math
import warnings
from collections.abc import Iterator
from dataclasses import astuple, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from torchperc import _checks as checks
from torchperc._atomic import write_whole
from torchperc.rules.conventions import Verdict
from torchperc.rules.orders import Order
from torchperc.rules.run import EpochRecord, RuleResult
from torchperc.samples import compiling, digest
from torchperc.sequences.chains import ChainPerceptron
from torchperc.sequences.decoding import ChainWeights, plain
from torchperc.sequences.layout import Array, Sequences, flat_tags, split
from torchperc.theory.bounds import structured_mistake_bound

if TYPE_CHECKING:
    from torchperc.rules.trainer import RuleTrainer

_FORMAT = 1
_PLAIN = 1000  # tokens up to which a plain loop is done before a compiled one is loaded
_EXACT = 2.0**24  # integers below which float32 adds exactly


# --- the log ------------------------------------------------------------------------------------------------------


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

    index: Array
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
    """One set of weights of a run; ``net`` is a :class:`ChainPerceptron` with them."""

    weights: ChainWeights
    like: dict[str, Any]

    @cached_property
    def net(self) -> ChainPerceptron:
        """A net with these weights, on the CPU."""
        net = ChainPerceptron(**self.like)
        self.weights.write_to(net)
        return net

    @property
    def weight(self) -> Tensor:
        """(K, d)."""
        return self.net.weight.detach()

    @property
    def transition(self) -> Tensor:
        """(K + 1, K), row K for the start."""
        return self.net.transition.detach()

    @property
    def end(self) -> Tensor:
        """(K,)."""
        return self.net.end.detach()

    def predict(self, X: Any, *, n_jobs: int | None = None) -> list[Tensor]:
        """The best tags of each sequence."""
        sequences = Sequences.of(X, width=self.like["features"])
        return split(self.flat_predict(sequences, n_jobs), sequences)

    def flat_predict(self, sequences: Sequences, n_jobs: int | None = None) -> Array:
        """The best tags of all sequences, as one array (T,)."""
        return self.net.flat_predict(sequences, n_jobs=n_jobs)

    def write_to(self, net: ChainPerceptron) -> None:
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
        return votes.argmax(1)


@dataclass(frozen=True, eq=False, repr=False)
class ChainLog:
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

    def __len__(self) -> int:
        return len(self.found.index)

    def __repr__(self) -> str:
        return f"ChainLog({len(self)} mistakes in {self.steps} steps, {len(self.epoch_ends)} epochs)"

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
        return np.ascontiguousarray(self.cost[self.found.index]) * (self.lr / self.scale)

    @property
    def index(self) -> Tensor:
        """Which sequence, per mistake."""
        return torch.from_numpy(self.found.index)

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

    def last(self) -> ChainModel:
        """The weights at the end of training, bit for bit."""
        return self.state_at(len(self))

    def state_at(self, t: int) -> ChainModel:
        """The weights after the first ``t`` mistakes; ``state_at(0)`` is the start."""
        if checks.whole("t", t, at_least=0) > len(self):
            raise ValueError(f"t={t} is beyond the log, which has {len(self)} mistakes")
        return self._model(self._moved(self.start.astype(np.float64), 0, t))

    def averaged(self) -> ChainModel:
        """The mean of the weights after each presented sequence: start + Σ cⱼ·(T − tⱼ)/T·(φ(x, y) − φ(x, ŷ)).

        One replay of the log, in float64; on integers the sum is exact.
        """
        if not self.steps:
            return self.state_at(0)
        return self._model(self.total(), self.steps)

    def total(self, rows: int = 0) -> ChainWeights:
        """The sum of the weights after each presented sequence, before they are scaled.

        Room for so many rows of features is made at once, which saves copies of large weights.
        """
        left, weights = (self.steps - self.found.step).astype(np.float64), self.start.scaled(float(self.steps))
        weights.ensure(rows - weights.used)
        return self._moved(weights, 0, len(self), left)

    def voted(self) -> VotedChain:
        """Every state decodes and votes at each position, as often as the number of sequences it survived; slow."""
        return VotedChain((self,))

    def pocket(self) -> ChainModel:
        """The weights with the fewest wrong tags in training of all that occurred, the earliest of equals; slow."""
        return self.state_at(self.pocket_index())

    def best_validation(self, X: Any, y: Any) -> ChainModel:
        """The weights at the end of the epoch with the fewest wrong tags on validation data, the earliest of equals."""
        sequences = Sequences.of(X, width=self.sequences.width)
        tags = flat_tags(y, sequences, self.like["tags"])
        ends = [0, *self.mistakes_by_epoch().cumsum(0).tolist()]
        weights, best, fewest = self.start.astype(np.float64), ends[min(1, len(ends) - 1)], math.inf
        for a, b in zip(ends, ends[1:], strict=False):
            weights = self._moved(weights, a, b)
            wrong = int((weights.decode(sequences, self.width) != tags).sum())
            if wrong < fewest:
                best, fewest = b, wrong
        return self.state_at(best)

    def states(self) -> Iterator[ChainWeights]:
        """The weights of every state, from the start to the last, before they are scaled; each moves on to the next."""
        weights = self.start.astype(np.float64)
        yield weights
        for j in range(len(self)):
            yield self._moved(weights, j, j + 1)

    def _moved(self, weights: ChainWeights, first: int, end: int, left: Array | None = None) -> ChainWeights:
        """Weights after the updates from ``first`` to ``end``, in place; each as often as ``left`` says."""
        coefs = self._steps[first:end] if left is None else self._steps[first:end] * left[first:end]
        part = self.found.index[first:end], coefs, self._bounds[first : end + 1], self.found.wrong
        weights.replay(self.sequences, self.y, *part)
        return weights

    def _model(self, weights: ChainWeights, over: float = 1.0) -> ChainModel:
        return ChainModel(weights.scaled(self.scale, over), self.like)

    # --- what happened ---

    def survivals(self) -> Tensor:
        """The number of sequences that each state survived, from the start to the last: (len + 1,)."""
        return self.step.diff(prepend=self.step.new_zeros(1), append=self.step.new_tensor([self.steps]))

    def mistakes_by_epoch(self) -> Tensor:
        """Mistakes per epoch: the learning curve."""
        return torch.searchsorted(self.step, self.epoch_ends).diff(prepend=self.step.new_zeros(1))

    def errors(self, X: Any = None, y: Any = None) -> Tensor:
        """Wrong tags of every state, from the start to the last: (len + 1,) in float64.

        On the training data, which is the default, a wrong tag counts the weight of its sequence.
        """
        sequences, tags, cost = self.sequences, self.y, np.repeat(self.cost, self.sequences.lengths)
        if X is not None or y is not None:
            sequences = Sequences.of(X, width=self.sequences.width)
            tags, cost = flat_tags(y, sequences, self.like["tags"]), np.ones(sequences.tokens)
        wrong = [float(cost @ (each.decode(sequences, self.width) != tags)) for each in self.states()]
        return torch.tensor(wrong, dtype=torch.float64)

    def pocket_index(self) -> int:
        """How many mistakes had been made when the pocket weights came up."""
        return int(self.errors().argmin())

    def equals(self, other: ChainLog) -> bool:
        """Whether two runs made the same mistakes at the same moments with the same coefficients."""
        same = (np.array_equal(a, b) for a, b in zip(self.found, other.found, strict=True))
        return self.steps == other.steps and all(same) and torch.equal(self.coef, other.coef)

    def mistake_bound(self, separator: ChainPerceptron | ChainModel) -> float:
        """How many mistakes a run from zero weights makes at most on this data, given weights that separate it.

        (R² + 2·m·L/η)/γ², see :func:`torchperc.theory.structured_mistake_bound`: R² is the largest bound of
        ‖φ(x, y) − φ(x, y′)‖² of any sequence, L the longest of them, γ the margin of the separator, found by decoding
        the second-best sequence. Infinity if they do not separate.
        """
        if self.width < self.like["tags"]:
            raise ValueError(f"decode={self.like['decode']!r} updates on prefixes, whose margin is another; use viterbi")
        net = separator if isinstance(separator, ChainPerceptron) else separator.net
        used = self.sequences if self.cost.all() else self.sequences.take(self.cost > 0)
        tags = self.y if self.cost.all() else self.y[np.repeat(self.cost > 0, self.sequences.lengths)]
        gaps = slacks(net, used, tags)
        norm = ChainWeights.of(net).norm
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
        arrays["about"] = np.array(json.dumps(about))
        content = io.BytesIO()
        np.savez_compressed(content, **arrays, checksum=np.array(digest.of_named(arrays)))
        write_whole(Path(path), content.getvalue())

    @classmethod
    def load(cls, path: str | Path, X: Any, y: Any) -> ChainLog:
        """Read a log and bind it to its data; other data are refused.

        Args:
            path: a file that :meth:`save` wrote.
            X: the sequences the log was made on.
            y: their tags.
        """
        about, arrays = _read(Path(path))
        like = {**about["like"], "dtype": getattr(torch, about["like"]["dtype"])}
        sequences = Sequences.of(X, width=like["features"])
        tags = flat_tags(y, sequences, like["tags"])
        if sequences.hash(tags) != about["data"]:
            raise ValueError(f"{path} belongs to other data: X and y are not those the log was made on")
        start = ChainWeights.packed(*(arrays[name] for name in _START), like["features"])
        found = Found(*(arrays[name] for name in Found._fields))
        ends = torch.from_numpy(arrays["epoch_ends"])
        rest = (about[name] for name in ("scale", "lr", "margin"))
        return cls(sequences, tags, start, found, about["steps"], ends, arrays["cost"], *rest, like)


_START = ("active", "weight", "transition", "end")


def _read(path: Path) -> tuple[dict[str, Any], dict[str, Array]]:
    content = path.read_bytes()
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        if str(arrays.pop("checksum")) != digest.of_named(arrays):
            raise ValueError("its checksum does not match")
        about = json.loads(str(arrays.pop("about")))
        version, _ = about["format"], about["like"]
    except Exception as error:  # whatever zip, zlib, numpy and json make of a damaged file
        raise ValueError(f"{path} is not a log of sequences, or is damaged ({error}); save it again") from None
    if version != _FORMAT:
        raise ValueError(f"{path} has log format {version!r}; this torchperc reads format {_FORMAT}")
    return about, arrays


def _width(like: dict[str, Any]) -> int:
    tags: int = like["tags"]
    return {"viterbi": tags, "greedy": 1}.get(like["decode"], min(like["beam_width"], tags))


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

    assert sequences.indptr is not None and sequences.ids is not None
    values = np.ones(len(sequences.ids)) if sequences.values is None else sequences.values.astype(np.float64)
    rows = csr_array((values, sequences.ids.copy(), sequences.indptr.copy()), (sequences.tokens, sequences.width))
    rows.sum_duplicates()
    return np.asarray(rows.multiply(rows).sum(1)).reshape(-1)


def slacks(net: ChainPerceptron, sequences: Sequences, y: Array, block: int = 64) -> Array:
    """s(x, y) − max_{y′≠y} s(x, y′) of every sequence, in float64: (N,)."""
    from torchperc.sequences.chains import best_others

    exact = ChainPerceptron(net.features, net.tags, dtype=torch.float64)
    exact.load_state_dict({name: values.detach().double().cpu() for name, values in net.state_dict().items()})
    found, tags = np.empty(len(sequences)), split(y, sequences)
    for first in range(0, len(sequences), block):
        numbers = np.arange(first, min(first + block, len(sequences)))
        batch = sequences.padded(numbers)
        x = batch.x.double() if batch.x.is_floating_point() else batch.x
        target = torch.nn.utils.rnn.pad_sequence([tags[i] for i in numbers], batch_first=True, padding_value=-100)
        with torch.no_grad():
            scores = exact(x, batch.lengths)
            found[numbers] = (exact.score(scores, target) - best_others(scores, target)).numpy()
    return found


# --- engines ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Task:
    """What is learned: sequences, tags, the coefficient of each update, what is a mistake."""

    sequences: Sequences
    y: Array
    coefs: Array
    width: int
    tie: str
    margin: float

    @cached_property
    def whole(self) -> bool:
        """Whether features, coefficients and margin are integers."""
        numbers = (self.sequences.dense, self.sequences.values, self.coefs, np.array(self.margin))
        return all(bool((np.rint(array) == array).all()) for array in numbers if array is not None)

    @cached_property
    def reach(self) -> float:
        """The largest Σ|x| of a token."""
        data = self.sequences
        if data.dense is not None:
            return float(np.abs(data.dense).sum(1, dtype=np.float64).max())
        assert data.indptr is not None
        if data.values is None:
            return float(np.diff(data.indptr).max())
        sums = np.concatenate(([0.0], np.abs(data.values).cumsum(dtype=np.float64)))
        return float((sums[data.indptr[1:]] - sums[data.indptr[:-1]]).max()) * (1 + 1e-9)


class CompiledEngine:
    """The loop compiled by numba: float32 while that is exact, else float64."""

    def __init__(self, task: Task, start: ChainWeights) -> None:
        self.task = task
        self._exact = task.whole and start.whole
        self.load(start)

    def load(self, weights: ChainWeights) -> None:
        """Go on from these weights."""
        small = self._exact and weights.largest < _EXACT
        self._lay(weights.astype(np.float32 if small else np.float64))

    def _lay(self, weights: ChainWeights) -> None:
        self._weights, (self._lows, self._highs) = weights, weights.bounds()
        self._data = plain(self.task.sequences, weights.trans.dtype)

    def weights(self) -> ChainWeights:
        """The weights now; not to be written to."""
        return self._weights

    def run(self, order: Array) -> Found:
        """Present the sequences of the order; the steps of what is found count from 0."""
        from torchperc.sequences import loops

        task, offsets = self.task, self.task.sequences.offsets
        room = int((offsets[order + 1] - offsets[order]).sum())
        position, lengths = np.empty(len(order), np.int64), np.empty(len(order), np.int64)
        wrong, state = np.empty(room, np.int16), np.zeros(3, np.int64)
        largest, done, reason = np.array([self._weights.largest]), 0, loops.GROW
        while reason != loops.DONE:
            w = self._weights
            state[loops.USED] = w.used
            small = w.trans.dtype == np.float32
            done, reason = loops.learn(
                self._data, offsets, order, done, task.y, task.coefs, w.slot, w.rows, w.trans, w.end, self._lows,
                self._highs, task.width, compiling.TIES[task.tie], w.trans.dtype.type(task.margin),
                _EXACT if small else math.inf, task.reach, state, largest, position, lengths, wrong,
            )  # fmt: skip
            w.used = int(state[loops.USED])
            if reason == loops.GROW:
                w.grow()
            elif reason == loops.PRECISION:
                self._lay(w.astype(np.float64))
            elif reason == loops.OVERFLOW:
                raise checks.weights_overflow()
        found = int(state[loops.FOUND])
        at = position[:found].copy()
        return Found(order[at], at, lengths[:found].copy(), wrong[: state[loops.WRITTEN]].copy())


class ReferenceEngine:
    """The plain loop, in torch and float64; its sums have the order of the compiled ones."""

    def __init__(self, task: Task, start: ChainWeights) -> None:
        self.task = task
        self.load(start)

    def load(self, weights: ChainWeights) -> None:
        """Go on from these weights."""
        active, rows, trans, end = (torch.from_numpy(np.array(array)) for array in weights.unpacked())
        self._rows = torch.zeros(len(weights.slot), len(end), dtype=torch.float64)
        self._rows[active] = rows.double()
        self._trans, self._end = trans.double(), end.double()

    def weights(self) -> ChainWeights:
        """The weights now."""
        rows = self._rows.numpy()
        return ChainWeights.packed(rows.any(1).nonzero()[0], rows, self._trans.numpy(), self._end.numpy(), len(rows))

    def run(self, order: Array) -> Found:
        """Present the sequences of the order; the steps of what is found count from 0."""
        made = []
        for step, i in enumerate(order.tolist()):
            wrong = self.present(i)
            if wrong is not None:
                tags = np.array(wrong, np.int16)
                made.append(Found(np.array([i]), np.array([step]), np.array([len(tags)]), tags))
        return Found.joined(made)

    def present(self, i: int) -> list[int] | None:
        """Decode a sequence; if it is a mistake, make the update and return the wrong tags."""
        tokens = range(*self.task.sequences.offsets[i : i + 2].tolist())
        y = self.task.y[tokens.start : tokens.stop].tolist()
        features = [self._features(token) for token in tokens]
        wrong = self._mistaken(torch.stack([self._emission(each) for each in features]), y)
        if wrong is not None:
            self._update(features, y, wrong, float(self.task.coefs[i if len(self.task.coefs) > 1 else 0]))
        return wrong

    def _features(self, token: int) -> list[tuple[int, float]]:
        data = self.task.sequences
        if data.dense is not None:
            return [(f, x) for f, x in enumerate(data.dense[token].tolist()) if x]
        assert data.indptr is not None and data.ids is not None
        part = slice(data.indptr[token], data.indptr[token + 1])
        ids = data.ids[part].tolist()
        return list(zip(ids, [1.0] * len(ids) if data.values is None else data.values[part].tolist(), strict=True))

    def _emission(self, features: list[tuple[int, float]]) -> Tensor:
        score = torch.zeros_like(self._end)
        for f, x in features:
            score = score + x * self._rows[f]
        return score

    def _mistaken(self, emission: Tensor, y: list[int]) -> list[int] | None:
        """The wrong tags, or those of a prefix; ``None`` if it is no mistake."""
        tie, trans, end, count = self.task.tie, self._trans, self._end, len(self._end)
        plain, emission = emission, emission + self.task.margin
        own = torch.zeros((), dtype=torch.float64)
        deltas: list[Tensor] = []
        for t, tag in enumerate(y):
            emission[t, tag] = plain[t, tag]
            own = (own + trans[y[t - 1], tag] if t else trans[count, tag]) + emission[t, tag]
            reached = (deltas[-1][:, None] + trans[:count]).amax(0) if t else trans[count]
            deltas.append(reached + emission[t])
            if self.task.width < count and t < len(y) - 1:
                last = tag if tie == "update" else -1
                ranked = sorted(range(count), key=lambda k: (-float(deltas[-1][k]), k == last, k))
                deltas[-1][ranked[self.task.width :]] = -math.inf
                if tag not in ranked[: self.task.width]:
                    return self._path(deltas, int(deltas[-1].argmax()))
        value, best = (deltas[-1] + end).max(0)
        if not math.isfinite(float(value)):
            raise checks.weights_overflow(float(value))
        found = self._path(deltas, int(best))
        if found != y:
            return found if tie != "strict" or value > own + end[y[-1]] else None
        for t, tag in enumerate(y if tie == "update" else ()):
            through = deltas[t] + (trans[:count, y[t + 1]] if t < len(y) - 1 else end)
            for k in range(count):
                if k != tag and through[k] == through[tag]:
                    return self._path(deltas[: t + 1], k) + y[t + 1 :]
        return None

    def _path(self, deltas: list[Tensor], last: int) -> list[int]:
        path = [last]
        for delta in deltas[-2::-1]:
            path.append(int((delta + self._trans[: len(self._end), path[-1]]).argmax()))
        return path[::-1]

    def _update(self, features: list[list[tuple[int, float]]], y: list[int], wrong: list[int], coef: float) -> None:
        count = len(self._end)
        before = after = count
        for t, (own, other) in enumerate(zip(y, wrong, strict=False)):
            if (before, own) != (after, other):
                self._trans[before, own] += coef
                self._trans[after, other] -= coef
            for f, x in features[t] if own != other else ():
                self._rows[f, own] += coef * x
                self._rows[f, other] -= coef * x
            before, after = own, other
        if len(wrong) == len(y) and y[-1] != wrong[-1]:
            self._end[y[-1]] += coef
            self._end[wrong[-1]] -= coef


Engine = CompiledEngine | ReferenceEngine


def engine_of(name: str, task: Task, start: ChainWeights) -> Engine:
    """The engine of a name; ``"auto"`` is the compiled one, unless there is too little to do."""
    if name not in ("auto", "reference", "compiled"):
        raise ValueError(f"engine={name!r} is not for sequences; use 'compiled', 'reference' or 'auto'")
    small = task.sequences.tokens <= _PLAIN and task.sequences.width <= _PLAIN
    return (ReferenceEngine if name == "reference" or (name == "auto" and small) else CompiledEngine)(task, start)


# --- runs ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False, repr=False)
class ChainResult(RuleResult):
    """What learning chains by rule returns, as :class:`torchperc.RuleResult`: ``log`` is a :class:`ChainLog`.

    A mistake is a sequence; ``validation_error`` in the history is the fraction of wrong tags.
    """

    log: ChainLog = field()  # type: ignore[assignment]
    model: ChainModel | VotedChain = field()  # type: ignore[assignment]
    average: ChainModel | None = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"ChainResult({self.verdict.name}, {self.log!r}, select={self.select!r})"

    @property
    def single(self) -> ChainModel:  # type: ignore[override]
        """The selected model as one set of weights: for ``"voted"`` the averaged ones, else ``model`` itself."""
        return self.model if isinstance(self.model, ChainModel) else self.average or self.log.averaged()

    def write_to(self, net: ChainPerceptron) -> None:  # type: ignore[override]
        """Write the selected weights into a net of the same shape; for ``"voted"`` the averaged ones."""
        self.single.write_to(net)

    def scores(self, X: Any) -> Tensor:
        """Not for sequences, which have too many scores."""
        raise TypeError("a chain scores tags and pairs of tags; use result.single.net(x) for a batch x")

    def predict(self, X: Any, *, n_jobs: int | None = None) -> list[Tensor]:  # type: ignore[override]
        """The best tags of each sequence by the selected model."""
        return self.model.predict(X, n_jobs=n_jobs)


class ChainRun:
    """A run in progress: call :meth:`epoch` until there is a verdict, then ask for the :meth:`result`."""

    def __init__(
        self,
        engine: Engine,
        start: ChainWeights,
        order: Order,
        *,
        max_epochs: int,
        select: str,
        cost: Array,
        scale: float,
        lr: float,
        margin: float,
        like: dict[str, Any],
        validation: tuple[Sequences, Array] | None = None,
    ) -> None:
        self.verdict: Verdict | None = None
        self.history: list[EpochRecord] = []
        self.cycle: tuple[int, int] | None = None
        self._engine, self._start, self._order = engine, start, order
        self._max_epochs, self._select, self._cost, self._validation = max_epochs, select, cost, validation
        self._scale, self._lr, self._margin, self._like = scale, lr, margin, like
        self._parts: list[Found] = []
        self._ends: list[int] = []
        # with a beam the updates are on prefixes, of which the margin may be smaller
        viterbi = engine.task.width == like["tags"]
        self._total = 0.0 if not start and viterbi else math.nan
        self._seen = {start.digest(): 0} if order.repeats else {}

    @property
    def rows(self) -> Any:
        """The training sequences."""
        return self._engine.task.sequences

    @property
    def count(self) -> int:
        """The number of training sequences."""
        return len(self._engine.task.sequences)

    @property
    def weights(self) -> ChainWeights:
        """The weights now, before they are scaled; not to be written to."""
        return self._engine.weights()

    def epoch(self) -> EpochRecord:
        """Make one pass, record what happened, and settle the verdict if possible."""
        presented, made = self._ends[-1] if self._ends else 0, 0
        for chunk in self._order.epoch(len(self.history)):
            order = chunk.numpy()
            found = self._engine.run(order)
            self._parts.append(found._replace(step=found.step + presented))
            made, presented = made + len(found.index), presented + len(order)
            coefs = self._engine.task.coefs
            self._total += float(coefs[found.index].sum()) if len(coefs) > 1 else float(coefs[0]) * len(found.index)
        self._ends.append(presented)
        norm = self._engine.weights().norm
        if not math.isfinite(norm):
            raise checks.weights_overflow()
        upper = norm / self._total if self._total > 0 else None
        record = EpochRecord(len(self.history) + 1, made, norm * self._scale, self._validation_error(), upper)
        self.history.append(record)
        self.verdict = self._judge(record)
        return record

    def result(self) -> ChainResult:
        """The log so far, the verdict (``BUDGET`` while there is none) and the selected model."""
        if not self.history:
            raise ValueError("the run has made no epoch yet, so there is no result; call epoch() first")
        log = self.log()
        model = self._selected(log)
        return ChainResult(
            self.verdict or Verdict.BUDGET, log, tuple(self.history), self._select, model, self.cycle
        )

    def log(self) -> ChainLog:
        """The mistakes so far."""
        self._parts = [Found.joined(self._parts)]
        task, ends = self._engine.task, torch.tensor(self._ends, dtype=torch.int64)
        steps = self._ends[-1] if self._ends else 0
        return ChainLog(
            task.sequences, task.y, self._start, self._parts[0], steps, ends, self._cost, self._scale, self._lr,
            self._margin, self._like,
        )  # fmt: skip

    def current(self) -> ChainModel:
        """The model with the weights as they are now."""
        return ChainModel(self._engine.weights().scaled(self._scale), self._like)

    def write_to(self, net: ChainPerceptron) -> None:
        """Write into a net what is known of the selected weights: averaged, for a vote too, else the current ones."""
        (self.log().averaged() if self._select in ("averaged", "voted") else self.current()).write_to(net)

    def state_dict(self) -> dict[str, Any]:
        """Everything needed to resume exactly, as tensors and plain types."""
        return {
            "data": self._data,
            "weights": _tensors(self._engine.weights().unpacked()),
            "start": _tensors(self._start.unpacked()),
            "mistakes": [_tensors(part) for part in self._parts],
            "ends": list(self._ends),
            "history": [astuple(record) for record in self.history],
            "seen": {state.hex(): epoch for state, epoch in self._seen.items()},
            "cycle": self.cycle,
            "verdict": None if self.verdict is None else self.verdict.value,
            "scale": self._scale,
            "order": self._order.state_dict(),
            "total": self._total,
        }

    @cached_property
    def _data(self) -> str:
        return self._engine.task.sequences.hash(self._engine.task.y)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume from a :meth:`state_dict`, on the same data."""
        if state["data"] != self._data:
            raise ValueError("the saved run belongs to other data: X and y are not those it was made on")
        if state["scale"] != self._scale:
            raise ValueError("the saved run was made with another lr; start it anew")
        width = self._engine.task.sequences.width
        weights, self._start = (
            ChainWeights.packed(*(values.cpu().numpy() for values in state[name]), width) for name in ("weights", "start")
        )
        self._engine.load(weights)
        self._parts = [Found(*(values.cpu().numpy() for values in part)) for part in state["mistakes"]]
        self._ends = list(state["ends"])
        self.history = [EpochRecord(*record) for record in state["history"]]
        self._seen = {bytes.fromhex(key): epoch for key, epoch in state["seen"].items()}
        self.cycle = None if state["cycle"] is None else (state["cycle"][0], state["cycle"][1])
        self.verdict = None if state["verdict"] is None else Verdict(state["verdict"])
        self._order.load_state_dict(state["order"])
        self._total = state["total"]

    def _judge(self, record: EpochRecord) -> Verdict | None:
        task, clean = self._engine.task, record.mistakes == 0
        all_seen = clean and self._order.covers(record.epoch - 1)
        # a strict tie passes over equal scores that are decided wrongly, and an explicit order may leave some out
        if clean and ((task.tie != "strict" and all_seen) or not self._any_wrong()):
            return Verdict.SEPARATED
        if self._order.repeats or all_seen:
            before = self._seen.setdefault(self._engine.weights().digest(), record.epoch)
            self.cycle = (before, record.epoch) if before < record.epoch else None
        if self.cycle is not None:
            return Verdict.CYCLING
        return None if record.epoch < self._max_epochs else Verdict.BUDGET

    def _any_wrong(self) -> bool:
        """Whether any sequence that takes part is decided wrongly."""
        task = self._engine.task
        wrong = self._engine.weights().decode(task.sequences, task.width) != task.y
        return bool((wrong & np.repeat(self._cost > 0, task.sequences.lengths)).any())

    def _validation_error(self) -> float | None:
        if self._validation is None:
            return None
        sequences, y = self._validation
        wrong = self._engine.weights().decode(sequences, self._engine.task.width) != y
        return float(wrong.mean())

    def _selected(self, log: ChainLog) -> ChainModel | VotedChain:
        if self._select == "last":
            return self.current()
        if self._select == "best-validation":
            judged = [record for record in self.history if record.validation_error is not None]
            if not judged:
                raise ValueError("select='best-validation' needs validation data, and no epoch was validated")
            best = min(judged, key=lambda record: (record.validation_error, record.epoch))
            return log.state_at(sum(record.mistakes for record in self.history[: best.epoch]))
        return {"averaged": log.averaged, "voted": log.voted, "pocket": log.pocket}[self._select]()


def _tensors(arrays: Any) -> tuple[Tensor, ...]:
    return tuple(torch.from_numpy(np.array(array)) for array in arrays)


class ChainStream:
    """What online learning keeps from one chunk of sequences to the next."""

    def __init__(self) -> None:
        self._weights: ChainWeights | None = None
        self._scale, self._sum, self._steps = 1.0, None, 0
        self._logs: tuple[ChainLog, ...] = ()
        self._left: tuple[Tensor, ...] | None = None

    _sum: ChainWeights | None

    def begin(self, lr: float) -> tuple[ChainWeights, float] | None:
        """The weights to go on from, not rounded, and their scale; ``None`` for those of the net."""
        if self._weights is None:
            return None
        if self._scale in (1.0, lr):
            return self._weights, self._scale
        return self._weights.scaled(self._scale), 1.0  # lr was changed

    def fits(self, net: ChainPerceptron) -> bool:
        """Whether the net still has the weights that this stream left in it."""
        own = tuple(net.parameters())
        return self._left is not None and all(
            (a.dtype, a.device, a.shape) == (b.dtype, b.device, b.shape) and torch.equal(a, b)
            for a, b in zip(own, self._left, strict=True)
        )

    def take(self, result: ChainResult, select: str) -> ChainResult:
        """Add a chunk's result to the stream; return it with the model that the whole stream selects."""
        log = result.log
        if self._scale != log.scale and self._sum is not None:
            self._sum = self._sum.scaled(self._scale / log.scale)
        self._weights, self._scale = log._moved(log.start.astype(np.float64), 0, len(log)), log.scale
        if select == "last":
            return result
        total = log.total()
        self._sum = total if self._sum is None else _added(self._sum, total)
        self._steps += log.steps
        averaged = ChainModel(self._sum.scaled(log.scale, self._steps), log.like)
        if select == "averaged":
            return replace(result, select=select, model=averaged, average=averaged)
        self._logs += (log,)
        return replace(result, select=select, model=VotedChain(self._logs), average=averaged)

    def remember(self, net: ChainPerceptron) -> None:
        """Note the weights that were left in the net."""
        self._left = tuple(values.detach().clone() for values in net.parameters())

    def state_dict(self) -> dict[str, Any]:
        """Everything needed to resume exactly, except the logs of a vote."""
        width = None if self._weights is None else len(self._weights.slot)
        pairs = {"weights": self._weights, "sum": self._sum}
        packed = {name: None if each is None else _tensors(each.unpacked()) for name, each in pairs.items()}
        return {**packed, "scale": self._scale, "steps": self._steps, "features": width}

    def load_state_dict(self, state: dict[str, Any], device: torch.device | None = None) -> None:
        """Resume from a :meth:`state_dict`; the weights are kept on the CPU whatever the device."""
        self._weights, self._sum = (
            None
            if state[name] is None
            else ChainWeights.packed(*(values.cpu().numpy() for values in state[name]), state["features"])
            for name in ("weights", "sum")
        )
        self._steps, self._scale = state["steps"], state["scale"]


def _added(one: ChainWeights, other: ChainWeights) -> ChainWeights:
    """The sum of two sets of weights, in float64."""
    total = one.astype(np.float64)
    active, rows, trans, end = other.unpacked()
    new = active[total.slot[active] < 0]
    total.ensure(len(new))
    total.slot[new] = total.used + np.arange(len(new))
    total.used += len(new)
    total.rows[total.slot[active], : len(end)] += rows
    total.trans[:, : len(end)] += trans
    total.end += end
    return total


def start_run(
    trainer: RuleTrainer,
    net: ChainPerceptron,
    X: Any,
    y: Any,
    *,
    validation: Any = None,
    sample_weight: Any = None,
    num_classes: int | None = None,
    online: ChainStream | None = None,
    numbers: Any = None,
) -> ChainRun:
    """A run of a trainer on a chain before its first epoch; everything is checked, nothing is changed."""
    _refuse(trainer, net, num_classes)
    sequences = Sequences.of(X, width=net.features)
    tags = flat_tags(y, sequences, net.tags)
    held = None
    if validation is not None:
        if not isinstance(validation, tuple | list) or len(validation) != 2:
            raise TypeError(f"validation must be a pair (X, y), found a {type(validation).__name__}")
        given = Sequences.of(validation[0], width=net.features, name="validation X")
        held = given, flat_tags(validation[1], given, net.tags, "validation y")
    cost = np.ones(len(sequences))
    if sample_weight is not None:
        cost = checks.nonnegative_weights(sample_weight, len(sequences)).cpu().numpy()
    start = ChainWeights.of(net)
    scale = 1.0 if start else trainer.lr
    if online is not None and (going_on := online.begin(trainer.lr)):
        start, scale = going_on
    coefs = cost * (trainer.lr / scale)
    if (coefs == coefs[0]).all():
        coefs = coefs[:1]
    like = {"features": net.features, "tags": net.tags, "decode": net.decode, "beam_width": net.beam_width,
            "dtype": net.weight.dtype}  # fmt: skip
    task = Task(sequences, tags, coefs, net.width, trainer.tie, trainer.margin / scale)
    if trainer.tie == "strict" and not trainer.margin and not start:
        warnings.warn(
            "tie='strict' updates only where other tags score higher than y, but from zero weights all score 0: nothing "
            "will ever move. Use tie='update', or start from other weights.",
            UserWarning,
            stacklevel=5,
        )
    ids = torch.from_numpy((cost > 0).nonzero()[0])
    order = Order(trainer.order, ids, trainer.seed, trainer.max_epochs)
    epochs, select = (1, "last") if online is not None else (trainer.max_epochs, trainer.select)
    return ChainRun(
        engine_of(trainer.engine, task, start), start, order, max_epochs=epochs, select=select, cost=cost, scale=scale,
        lr=trainer.lr, margin=trainer.margin, like=like, validation=held,
    )  # fmt: skip


def _refuse(trainer: RuleTrainer, net: ChainPerceptron, num_classes: int | None) -> None:
    """Refuse options that mean nothing for sequences."""
    beam = net.width < net.tags
    for what, refused, why in (
        (f"class_weight={trainer.class_weight!r}", trainer.class_weight is not None,
         "a sequence has many tags; give sample_weight, one per sequence"),
        ("kernel", trainer.kernel is not None, "the net keeps its weights; leave it out"),
        (f"bias_step={trainer.bias_step!r}", trainer.bias_step is not None,
         "a chain has no bias; add a feature that is always 1 and leave it out"),
        ("prove=True", trainer.prove, "the proof is for single samples; leave it out"),
        (f"distributed={trainer.distributed!r}", trainer.distributed is not None, "sequences are not shared; leave it out"),
        ("order='random-mistake'", isinstance(trainer.order, str) and trainer.order == "random-mistake",
         "all sequences would be decoded before each step; use 'given' or 'shuffled'"),
        ("tie='strict'", beam and trainer.tie == "strict",
         f"decode={net.decode!r} drops tags of equal scores; use 'update' or 'sign'"),
        (f"num_classes={num_classes}", num_classes is not None, "the net has its number of tags; leave it out"),
    ):  # fmt: skip
        if refused:
            raise ValueError(f"{what} cannot be used with a ChainPerceptron: {why}")
    for name, values in net.named_parameters():
        if values.is_meta or values.is_inference():
            raise TypeError(f"net.{name} must be a plain parameter that can be written; make the net outside "
                            "inference_mode and on a real device")  # fmt: skip
