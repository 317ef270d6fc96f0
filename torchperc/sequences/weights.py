"""Weights of a chain as the compiled loops want them: decoding with them, moving them along a log."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from torchperc.samples import compiling
from torchperc.sequences.layout import Array, Sequences

_BLOCK = 4096  # features that are written at once
_LANES = 8  # tags are padded to whole vector registers


class ChainNet(Protocol):
    """A net of these weights, such as :class:`torchperc.sequences.ChainPerceptron`."""

    weight: nn.Parameter
    transition: nn.Parameter
    end: nn.Parameter
    features: int
    tags: int
    decode: str
    beam_width: int

    @property
    def width(self) -> int:
        """How many tags are kept at each position."""


def _padded(array: Array) -> Array:
    made = np.zeros((len(array), -(-array.shape[1] // _LANES) * _LANES), array.dtype)
    made[:, : array.shape[1]] = array
    return made


def plain(sequences: Sequences, dtype: Any) -> tuple[Array, Array, Array, Array]:
    """Features as the loops read them: (indptr, ids, values, dense), with nothing in what is not there."""
    none, no_ids = np.empty(0, np.int64), np.empty(0, np.int32)
    values, dense = np.empty(0, dtype), np.empty((0, 0), dtype)
    if sequences.dense is not None:
        return none, no_ids, values, sequences.dense.astype(dtype, copy=False)
    assert sequences.indptr is not None
    assert sequences.ids is not None
    if sequences.values is not None:
        values = sequences.values.astype(dtype, copy=False)
    return sequences.indptr, sequences.ids, values, dense


@dataclass(eq=False)
class ChainWeights:
    """The numbers that the rule moves. A feature whose weights were never moved has no row.

    Args:
        slot: the row of each feature, −1 for none: (d,).
        rows: weights over tags, padded; those in use come first.
        used: how many rows are in use.
        trans: (K + 1, K) padded, row K for the start.
        end: (K,).
    """

    slot: Array
    rows: Array
    used: int
    trans: Array
    end: Array

    @classmethod
    def zeros(cls, features: int, tags: int, dtype: Any = np.float64) -> ChainWeights:
        """No rows, and zeros."""
        trans = _padded(np.zeros((tags + 1, tags), dtype))
        return cls(
            np.full(features, -1, np.int32), np.zeros((0, trans.shape[1]), dtype), 0, trans, np.zeros(tags, dtype)
        )

    @classmethod
    def view(cls, net: ChainNet) -> ChainWeights:
        """The weights of a net, to decode with: in rows per feature."""
        for name in ("weight", "transition", "end"):
            values = getattr(net, name).detach()
            # a finite sum, which is found quickly, has finite terms
            if not torch.isfinite(values.sum()) and not torch.isfinite(values).all():
                raise ValueError(f"net.{name} is not finite; reset the weights first")
        weight, trans, end = (
            np.asarray(each.detach().cpu().float() if each.dtype.itemsize < 4 else each.detach().cpu())
            for each in (net.weight, net.transition, net.end)
        )
        rows, slot = np.require(weight.T, None, ["C", "W"]), np.arange(net.features, dtype=np.int32)
        return cls(slot, rows, len(rows), _padded(trans), np.require(end, None, ["C", "W"]))

    @classmethod
    def of(cls, net: ChainNet) -> ChainWeights:
        """A copy of the weights of a net in float64, without rows of zeros."""
        given = cls.view(net)
        return cls.packed(net.features, np.flatnonzero(given.rows.any(1)), given.rows, given.trans, given.end)

    @classmethod
    def packed(cls, features: int, active: Array, weight: Array, trans: Array, end: Array) -> ChainWeights:
        """From the features that have rows, and the rows of these or of all features, in float64."""
        slot = np.full(features, -1, np.int32)
        slot[active] = np.arange(len(active))
        rows = weight if len(weight) == len(active) else weight[active]
        return cls(slot, _padded(rows[:, : len(end)].astype(np.float64)), len(active),
                   _padded(trans[:, : len(end)].astype(np.float64)), end.astype(np.float64))  # fmt: skip

    def unpacked(self) -> tuple[Array, Array, Array, Array]:
        """Features with weights other than 0 in ascending order, their rows, transitions and end, without padding."""
        tags, active = len(self.end), np.flatnonzero(self.slot >= 0)
        rows = self.rows[self.slot[active]][:, :tags]
        some = rows.any(1)
        return active[some], rows[some], self.trans[:, :tags], self.end

    def astype(self, dtype: Any) -> ChainWeights:
        """A copy in another type, without room for more rows."""
        rows, trans, end = (array.astype(dtype) for array in (self.rows[: self.used], self.trans, self.end))
        return ChainWeights(self.slot.copy(), rows, self.used, trans, end)

    def rounded(self, dtype: torch.dtype) -> ChainWeights:
        """A copy rounded to the type of a net, and as this net decodes."""
        made = self.astype(np.float32 if dtype.itemsize <= 4 else np.float64)
        if dtype.itemsize < 4:
            for array in (made.rows, made.trans, made.end):
                array[...] = torch.from_numpy(array).to(dtype).to(torch.float32).numpy()
        return made

    def tensors(self, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
        """Weight (K, d), transition (K + 1, K) and end (K,)."""
        active, rows, trans, end = self.unpacked()
        weight = torch.zeros(len(end), len(self.slot), dtype=dtype)
        weight[:, torch.from_numpy(active)] = torch.from_numpy(rows).to(dtype).t()
        return weight, torch.tensor(trans, dtype=dtype), torch.tensor(end, dtype=dtype)

    def scaled(self, factor: float, over: float = 1.0) -> ChainWeights:
        """A copy in float64, divided and multiplied."""
        return self.astype(np.float64).scale(factor, over)

    def scale(self, factor: float, over: float = 1.0) -> ChainWeights:
        """Divide and multiply the weights themselves."""
        for array in (self.rows, self.trans, self.end):
            if over != 1.0:
                array /= over
            if factor != 1.0:
                array *= factor
        return self

    def __bool__(self) -> bool:
        """Whether any weight is not 0."""
        return any(bool(array.any()) for array in (self.rows[: self.used], self.trans, self.end))

    @property
    def whole(self) -> bool:
        """Whether all weights are integers."""
        return all(bool((np.rint(array) == array).all()) for array in (self.rows[: self.used], self.trans, self.end))

    @property
    def largest(self) -> float:
        """The largest absolute value."""
        arrays = (self.rows[: self.used], self.trans, self.end)
        return max(float(max(array.max(initial=0), -array.min(initial=0))) for array in arrays)

    @property
    def norm(self) -> float:
        """‖w‖ over all weights."""
        arrays = (each.reshape(-1) for each in (self.rows[: self.used], self.trans, self.end))
        # einsum converts piece by piece, where np.square would make a float64 copy of all rows
        return math.sqrt(sum(float(np.einsum("i,i->", array, array, dtype=np.float64)) for array in arrays))

    def digest(self) -> bytes:
        """A hash by which weights are recognised when they come back."""
        made = hashlib.blake2b(digest_size=16)
        active, *numbers = self.unpacked()
        for array in (active.astype(np.int64), *(each.astype(np.float64) + 0.0 for each in numbers)):  # −0 is 0
            made.update(np.ascontiguousarray(array).tobytes())
        return made.digest()

    def grow(self) -> None:
        """Make room for more rows."""
        room = min(len(self.slot), max(1024, 2 * len(self.rows)))
        made = np.zeros((room, self.rows.shape[1]), self.rows.dtype)
        made[: self.used] = self.rows[: self.used]
        self.rows = made

    def ensure(self, more: int) -> None:
        """Make room for so many more rows, if it is not there."""
        while len(self.rows) < min(len(self.slot), self.used + more):
            self.grow()

    def bounds(self) -> tuple[Array, Array]:
        """The smallest and largest transition from each tag."""
        pairs = self.trans[: len(self.end), : len(self.end)]
        return np.ascontiguousarray(pairs.min(1)), np.ascontiguousarray(pairs.max(1))

    @torch.no_grad()
    def write_to(self, net: ChainNet) -> None:
        """Copy the weights into a net of the same shape."""
        if (net.features, net.tags) != (len(self.slot), len(self.end)):
            raise ValueError(
                f"net has {net.features} features and {net.tags} tags, the weights are for {len(self.slot)} and "
                f"{len(self.end)}; use a net like the one that was trained"
            )
        net.weight.zero_()
        active = np.flatnonzero(self.slot >= 0)
        for first in range(0, len(active), _BLOCK):  # which makes no second copy of all rows
            at = active[first : first + _BLOCK]
            rows = torch.from_numpy(self.rows[self.slot[at], : net.tags])
            net.weight[:, torch.from_numpy(at).to(net.weight.device)] = rows.to(net.weight).t()
        net.transition.copy_(torch.from_numpy(np.ascontiguousarray(self.trans[:, : net.tags])))
        net.end.copy_(torch.from_numpy(self.end))

    def decode(self, sequences: Sequences, width: int, n_jobs: int | None = None) -> Array:
        """The best tags of all sequences, as one array (T,)."""
        from torchperc.sequences import loops

        tags, (lows, highs) = np.empty(sequences.tokens, np.int64), self.bounds()
        data = plain(sequences, self.trans.dtype)
        threads = compiling.threads(n_jobs)
        bad: list[int] = []

        def stretch(first: int, end: int) -> None:
            found = loops.decode(
                data, sequences.offsets, first, end, self.slot, self.rows, self.trans, self.end, lows, highs, width,
                tags,
            )  # fmt: skip
            if found >= 0:
                bad.append(found)

        compiling.on_all_cores(stretch, len(sequences), threads)
        if bad:
            raise ValueError(
                f"sequence {min(bad)} has a score that is not finite; its features or the weights are too large"
            )
        return tags

    def replay(self, sequences: Sequences, y: Array, index: Array, coefs: Array, bounds: Array, wrong: Array) -> None:
        """Make the updates of log entries, in place."""
        from torchperc.sequences import loops

        data, done, state = plain(sequences, self.trans.dtype), 0, np.array([self.used, 0, 0])
        while done < len(index):
            done = loops.replay(
                data, sequences.offsets, y, index, done, coefs, bounds, wrong, self.slot, self.rows, self.trans,
                self.end, state,
            )  # fmt: skip
            self.used = int(state[0])
            if done < len(index):
                self.grow()

    def leads(self, sequences: Sequences, tags: Array, y: Array) -> Array:
        """s(x, tags) − s(x, y) of every sequence, in float64: (N,). What both have in common is not summed up."""
        count, first = len(self.end), sequences.offsets[:-1]
        total = np.zeros(sequences.tokens)
        for sign, each in ((1.0, tags), (-1.0, y)):
            before = np.concatenate(([count], each[:-1]))
            before[first] = count
            total += sign * self.trans[before, each]
            total[sequences.offsets[1:] - 1] += sign * self.end[each[sequences.offsets[1:] - 1]]
        at = (tags != y).nonzero()[0]
        features, numbers, values = _features_of(sequences, at)
        here = self.slot[features] >= 0
        rows, owner = self.slot[features[here]], at[numbers[here]]
        gains = self.rows[rows, tags[owner]].astype(np.float64) - self.rows[rows, y[owner]]
        np.add.at(total, owner, gains * values[here])
        made: Array = np.add.reduceat(total, first)
        return made


def _features_of(sequences: Sequences, tokens: Array) -> tuple[Array, Array, Array]:
    """The features of some tokens, by which of them each is, and their values, in float64."""
    if sequences.dense is not None:
        part = sequences.dense[tokens]
        numbers, features = part.nonzero()
        return features, numbers, part[numbers, features].astype(np.float64)
    assert sequences.indptr is not None
    assert sequences.ids is not None
    counts = sequences.indptr[tokens + 1] - sequences.indptr[tokens]
    numbers = np.repeat(np.arange(len(tokens)), counts)
    at = np.arange(len(numbers)) + np.repeat(sequences.indptr[tokens] - (counts.cumsum() - counts), counts)
    values = np.ones(len(at)) if sequences.values is None else sequences.values[at].astype(np.float64)
    return sequences.ids[at], numbers, values
