"""Chains as a problem of the perceptron rule: a sample is a sequence, its label the tuple of its tags.

A mistake is a sequence whose best tags ŷ are not y (Collins 2002); the update is w ← w + η·(φ(x, y) − φ(x, ŷ)).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from torchperc._checks import check_sample_weight, weights_overflow
from torchperc._files import checksum
from torchperc.rules.decision import PerceptronRule
from torchperc.rules.problem import Mistakes, Problem
from torchperc.samples import parallel
from torchperc.sequences.sequences import Array, Sequences, flat, labelled_sequences, split, tuples

_BLOCK = 4096  # features that are written at once
_NET = ("weight", "transition", "end")  # parameters of a net
_LANES = 8  # tags are padded to whole vector registers


@dataclass(eq=False)
class ChainWeights:
    """The numbers that the rule moves, and the model they make. A feature that was never moved has no row.

    Args:
        slot: the row of each feature, −1 for none: (d,).
        rows: weights over tags, padded. Those in use come first; the others are memory that is never touched.
        used: how many rows are in use, (1,).
        trans, ends: transitions (K + 1, K) padded, row K for the start, and ends (K,); of a net's own memory apart.
    """

    slot: Array
    rows: Array
    used: Array
    trans: Array
    ends: Array

    @classmethod
    def zeros(cls, features: int, tags: int, dtype: Any = np.float32) -> ChainWeights:
        """Return weights of 0; transitions and end are the first rows."""
        rows = np.zeros((tags + 2 + features, -(-tags // _LANES) * _LANES), dtype)
        slot, used = np.full(features, -1, np.int32), np.array([tags + 2])
        return cls(slot, rows, used, rows[: tags + 1], rows[tags + 1, :tags])

    @classmethod
    def view(cls, net: Any) -> ChainWeights:
        """Return the weights of a net in its own memory, if it is on the CPU and not of half precision."""
        parts = {name: getattr(net, name).detach().cpu() for name in _NET}
        for name, values in parts.items():
            if not float(torch.linalg.vector_norm(values, math.inf)) < math.inf:
                raise ValueError(f"net.{name} is not finite; reset the weights first")
        weight, *others = (each.float() if each.dtype.itemsize < 4 else each for each in parts.values())
        made = cls.packed(1, [], weight.new_zeros(0, net.tags), *others)
        slot, rows = np.arange(net.features, dtype=np.int32), np.ascontiguousarray(weight.t().numpy())
        return cls(slot, rows, np.array([net.features]), made.trans, made.ends)

    @classmethod
    def packed(cls, features: Any, active: Any, weight: Any, transition: Any, end: Any) -> ChainWeights:
        """Return weights from those of some features, as :meth:`state_dict` has them."""
        weight, transition, end = (torch.as_tensor(each).cpu().numpy() for each in (weight, transition, end))
        made, tags = cls.zeros(int(features), len(end), weight.dtype), len(end)
        made.rows[made.slots(torch.as_tensor(active).long().cpu().numpy()), :tags] = weight
        made.trans[:, :tags], made.ends[:] = transition, end
        return made

    def slots(self, features: Array) -> Array:
        """Return the rows of different features; those that have none get one."""
        new = features[self.slot[features] < 0]
        self.slot[new] = self.used[0] + np.arange(len(new))
        self.used += len(new)
        return self.slot[features]

    def __iter__(self) -> Iterator[Tensor]:
        """Yield the features with weights other than 0 in ascending order, their rows, transitions and end."""
        tags, active = len(self.ends), np.flatnonzero(self.slot >= 0)
        active = active[np.asarray(self.rows[: self.used[0]].any(1))[self.slot[active]]]
        return map(torch.from_numpy, (active, self.rows[self.slot[active], :tags], self.trans[:, :tags], self.ends))

    def state_dict(self) -> dict[str, Tensor]:
        """Return the weights by name; features whose weights are 0 are left out."""
        parts = zip(("active", *_NET), self, strict=True)
        return {"features": torch.tensor(len(self.slot)), **{name: values.clone() for name, values in parts}}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Take over weights from a :meth:`state_dict`."""
        vars(self).update(vars(ChainWeights.packed(**state)))

    def scaled(self, factor: float = 1.0, dtype: Any = None, operation: Any = np.multiply) -> ChainWeights:
        """Return a copy in a type, multiplied (or divided) by a number in float64."""
        made, used = ChainWeights.zeros(len(self.slot), len(self.ends), dtype or self.ends.dtype), self.used[0]
        made.slot[:], made.used[:] = self.slot, used
        operation(self.rows[:used], factor, out=made.rows[:used], dtype=np.float64, casting="unsafe")
        return made

    clone = scaled

    def plus(self, other: ChainWeights, factor: float = 1.0) -> ChainWeights:
        """Add other weights times a number, in place; return the sum."""
        own, features = len(self.ends) + 2, np.flatnonzero(other.slot >= 0)
        self.rows[:own] += other.rows[:own].astype(self.rows.dtype) * factor
        for first in range(0, len(features), _BLOCK):  # which makes no second copy of all rows
            at = features[first : first + _BLOCK]
            self.rows[self.slots(at)] += other.rows[other.slot[at]].astype(self.rows.dtype) * factor
        return self

    @property
    def any_nonzero(self) -> bool:
        """Whether any weight is not 0."""
        return bool(self.rows[: self.used[0]].any())

    @property
    def weight(self) -> Tensor:
        """(K, d)."""
        active, rows, _, ends = self
        made = rows.new_zeros(len(self.slot), len(ends))
        made[active] = rows
        return made.t()

    @property
    def transition(self) -> Tensor:
        """(K + 1, K), row K for the start."""
        return torch.tensor(self.trans[:, : len(self.ends)])

    @property
    def end(self) -> Tensor:
        """(K,)."""
        return torch.tensor(self.ends)

    def predict(self, X: Any) -> list[Tensor]:
        """Return the best tags of each sequence, as a list of tensors."""
        sequences = Sequences.of(X, n_features=len(self.slot))
        return split(self.decode(sequences), sequences)

    @torch.no_grad()
    def write_to(self, net: Any) -> None:
        """Copy the weights into a net of the same shape."""
        if (net.features, net.tags) != (len(self.slot), len(self.ends)):
            needed = f"the weights are for {len(self.slot)} and {len(self.ends)}"
            raise ValueError(f"net has {net.features} features and {net.tags} tags, {needed}")
        for name in _NET:
            getattr(net, name).copy_(getattr(self, name))

    def loop_arrays(self, sequences: Sequences) -> tuple[Any, Any]:
        """Return features, values in the type of the weights, and weights with their bounds, for the compiled loops."""
        values = np.empty(0) if sequences.values is None else sequences.values  # none if each is 1
        pairs = self.trans[: len(self.ends), : len(self.ends)]
        weights = (self.slot, self.rows, self.used, self.trans, self.ends, pairs.min(1), pairs.max(1))
        return (sequences.indptr, sequences.ids, values.astype(self.ends.dtype, copy=False)), weights

    def decode(self, sequences: Sequences, n_jobs: int | None = None) -> Array:
        """Return the best tags of all sequences, as one array (T,)."""
        from torchperc.sequences import loops

        sequences = Sequences.of(sequences, n_features=len(self.slot))
        tags, (data, weights) = np.empty(sequences.tokens, np.int64), self.loop_arrays(sequences)

        def stretch(first: int, end: int) -> None:
            bad = loops.decode(data, sequences.offsets, np.arange(first, end), weights, tags)
            if bad >= 0:
                raise ValueError(f"sequence {bad} has a score that is not finite: features or weights are too large")

        parallel.map_chunks(stretch, len(sequences), parallel.threads(n_jobs))
        return tags


@dataclass(frozen=True, eq=False)
class ChainProblem(Problem):
    """A :class:`Problem` whose samples are sequences; ``y`` has a tuple of tags for each, ``num_classes`` is K."""

    samples: Any
    dtype: Any = field(default=np.float32, kw_only=True)  # of the weights
    can_compile = True  # by the loops of chains

    @classmethod
    def of(
        cls, X: Sequences, y: Array, tags: int, *, weight: Any = None, lr: float = 1.0, margin: float = 0.0, **more: Any
    ) -> ChainProblem:
        """Return the problem of sequences with flat tags; by default each has weight 1."""
        weight = np.ones(len(X)) if weight is None else weight
        rule = PerceptronRule("sign", margin)
        return cls(X, tuples(y, X.lengths), tags, weight, weight * lr, rule, 0.0, **more)

    @cached_property
    def tags(self) -> Array:
        """The tags of all tokens: (T,)."""
        return flat(self.y)

    def own_engine(self, weights: Any, ids: Array) -> Mistakes:
        """Present sequences in order by a compiled loop."""
        from torchperc.sequences import loops

        X, lengths, margin = self.samples, self.samples.lengths, weights.ends.dtype.type(self.rule.margin)
        position, wrong = np.empty(len(ids), np.int64), np.empty(lengths[ids].sum(), np.int64)
        data, arrays = weights.loop_arrays(X)
        given = (data, X.offsets, ids, self.tags, self.step_sizes, arrays, margin)
        done, made, written = loops.learn(*given, position, wrong)
        if done < len(ids):
            raise weights_overflow()
        at, sample = position[:made].copy(), ids[position[:made]]
        return Mistakes(sample, at, self.step_sizes[sample], tuples(wrong[:written], lengths[sample]))

    def replay(self, weights: Any, mistakes: Mistakes) -> None:
        """Make the updates of these mistakes again in place, rounding as training did."""
        from torchperc.sequences import loops

        data, arrays = weights.loop_arrays(self.samples)
        wrong = flat(mistakes.predicted)
        loops.replay(data, self.samples.offsets, self.tags, mistakes.sample, mistakes.coef, wrong, arrays)

    def mistakes(self, weights: Any, rule: Any = None) -> Any:
        """Return which sequences are decided wrongly now: bool (N,)."""
        return np.logical_or.reduceat(weights.decode(self.samples) != self.tags, self.samples.offsets[:-1])

    def wrong_decisions(self, weights: Any, samples: Any, y: Any) -> tuple[int, int]:
        """Return how many tags of other sequences are wrong, and of how many."""
        return int((weights.decode(samples) != flat(y)).sum()), samples.tokens

    def decisions(self, start: Any, mistakes: Mistakes, samples: Any) -> Iterator[tuple[slice, int, Array]]:
        """Yield all sequences, the number of a state, and the tags it decides for: (N, 1)."""
        weights = start.clone()
        for state in range(len(mistakes.sample) + 1):
            self.replay(weights, mistakes.part(max(0, state - 1), state))
            yield slice(None), state, tuples(weights.decode(samples), samples.lengths)[:, None]

    def dual(self, mistakes: Mistakes) -> Array:
        """Raise: the updates of a sequence differ by its predicted tags."""
        raise TypeError("a chain has no dual form: updates of a sequence differ by its predicted tags; see log[j]")

    def total(self, start: Any, mistakes: Mistakes, steps: int) -> Any:
        """Return the sum in float64 of the weights after each of so many steps."""
        total = start.scaled(steps, np.float64)
        self.replay(total, mistakes._replace(coef=mistakes.coef * (steps - mistakes.step)))
        return total

    def mean(self, total: Any, steps: int) -> Any:
        """Return the model of the mean, from a sum over so many steps."""
        return self.model(total.scaled(steps, self.dtype, np.divide))

    def running_average(self, log: Any, weights: Any, sums: dict[str, Any]) -> Any:
        """Return the averaged model of a run, in which each mistake is replayed once in all epochs."""
        zero = ChainWeights.zeros(len(weights.slot), len(weights.ends), np.float64)
        total, steps, done = sums.get("total", (zero, 0, 0))
        new = log.mistakes.part(done, len(log))
        total.plus(weights, log.steps - steps)  # the weights now, less the updates made after each step
        self.replay(total, new._replace(coef=new.coef * (steps - new.step)))
        sums["total"] = total, log.steps, len(log)
        return self.mean(total, log.steps)

    def model(self, weights: Any) -> Any:
        """Return the model with these weights, scaled; do not change them afterwards."""
        return weights if self.scale == 1.0 else weights.scaled(self.scale)

    def norm(self, weights: Any) -> float:
        """Return ‖w‖ over all weights."""
        rows = weights.rows[: weights.used[0]]
        return math.sqrt(float(np.einsum("ij,ij->", rows, rows, dtype=np.float64)))  # without a float64 copy of rows

    def data_hash(self) -> str:
        """Return a hash of sequences and tags."""
        X = self.samples
        parts = [part for part in (X.offsets, X.indptr, X.ids, X.values, self.tags) if part is not None]
        about = " ".join(f"{part.dtype}{part.shape}" for part in parts)
        return checksum(f"{X.n_features} {about}".encode(), *(part.tobytes() for part in parts))

    def labelled(self, X: Any, y: Any, prefix: str = "") -> tuple[Any, Array]:
        """Return other sequences and their tags, checked; ``prefix`` is for error messages."""
        own, tags = labelled_sequences(X, y, self.samples.n_features, self.outputs, prefix)
        return own, tuples(tags, own.lengths)

    def columns(self, mistakes: Mistakes) -> dict[str, Array]:
        """Return mistakes as arrays of numbers, the predicted tags one after the other."""
        return {**mistakes._asdict(), "predicted": flat(mistakes.predicted)}

    def from_columns(self, columns: dict[str, Array]) -> Mistakes:
        """Return mistakes from :meth:`columns`."""
        predicted = tuples(columns["predicted"], self.samples.lengths[columns["sample"]])
        return Mistakes(**{**columns, "predicted": predicted})

    def describe(self) -> dict[str, Any]:
        """Return what a saved run must know of the problem besides the data."""
        about = {"kind": "chain", "tags": self.outputs, "margin": self.rule.margin, "scale": self.scale}
        return {**about, "dtype": np.dtype(self.dtype).name}


def chain_problem(
    net: Any, trainer: Any, X: Any, y: Any, sample_weight: Any = None, start: Any = None, scale: float = 1.0
) -> tuple[ChainProblem, ChainWeights, Array]:
    """Return the problem by which :class:`torchperc.RuleTrainer` learns a chain.

    Besides, the first weights (``start``, or the net's), and which sequences take part.
    """
    refused = {"order": "random-mistake", "tie": "strict", "select": "voted", "engine": "reference"}
    for name in ("class_weight", "kernel", "bias_step", "prove", "distributed", *refused):  # meaningless for sequences
        value = getattr(trainer, name)
        unset = value is None or value is False or str(value) != refused.get(name, str(value))
        if not unset or (name == "engine" and callable(value)):
            raise ValueError(f"{name}={value!r} is not for sequences; leave it out")
    for name, values in net.named_parameters():
        if values.is_meta or values.is_inference():
            raise TypeError(f"net.{name} must be a plain parameter on a real device, made outside inference_mode")
    sequences, tags = labelled_sequences(X, y, net.features, net.tags)
    given = torch.ones(len(sequences)) if sample_weight is None else sample_weight
    weight = check_sample_weight(given, len(sequences)).cpu().numpy()
    if start is None:
        start = ChainWeights.packed(**ChainWeights.view(net).state_dict())  # a copy
        scale = 1.0 if start.any_nonzero else trainer.lr
    how = {"lr": trainer.lr / scale, "margin": trainer.margin / scale, "scale": scale, "dtype": start.ends.dtype}
    return ChainProblem.of(sequences, tags, net.tags, weight=weight, **how), start, np.flatnonzero(weight)
