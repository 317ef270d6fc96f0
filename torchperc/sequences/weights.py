"""Weights of a chain as the compiled loops want them: decoding with them, moving them along a log."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from torchperc.samples import parallel
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


def _padded(array: Array) -> Array:
    made = np.zeros((len(array), -(-array.shape[1] // _LANES) * _LANES), array.dtype)
    made[:, : array.shape[1]] = array
    return made


def numpy_type(dtype: torch.dtype) -> type[np.floating[Any]]:
    """The type in which the rule learns for a net of this type."""
    return np.float32 if dtype.itemsize <= 4 else np.float64


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
    def view(cls, net: ChainNet) -> ChainWeights:
        """The weights of a net with a row for every feature, in its type or, of half precision, in float32."""
        parts = [values.detach().cpu() for values in (net.weight, net.transition, net.end)]
        for name, values in zip(("weight", "transition", "end"), parts, strict=True):
            if not torch.isfinite(values).all():
                raise ValueError(f"net.{name} is not finite; reset the weights first")
        weight, trans, end = (np.asarray(each.float() if each.dtype.itemsize < 4 else each) for each in parts)
        rows, slot = np.require(weight.T, None, ["C", "W"]), np.arange(net.features, dtype=np.int32)
        return cls(slot, _padded(rows), len(rows), _padded(trans), np.require(end, None, ["C", "W"]))

    @classmethod
    def of(cls, net: ChainNet) -> ChainWeights:
        """A copy of the weights of a net, without rows of zeros."""
        given = cls.view(net)
        active = np.flatnonzero(given.rows.any(1))
        return cls.packed(net.features, active, given.rows[active], given.trans, given.end)

    @classmethod
    def packed(cls, features: int, active: Array, rows: Array, trans: Array, end: Array) -> ChainWeights:
        """A copy of the rows of some features, transitions and end."""
        slot, count = np.full(features, -1, np.int32), len(end)
        slot[active] = np.arange(len(active))
        return cls(slot, _padded(rows[:, :count]), len(active), _padded(trans[:, :count]), end.copy())

    def unpacked(self) -> tuple[Array, Array, Array, Array]:
        """Features with weights other than 0 in ascending order, their rows, transitions and end, without padding."""
        tags, active = len(self.end), np.flatnonzero(self.slot >= 0)
        rows = self.rows[self.slot[active]][:, :tags]
        some = rows.any(1)
        return active[some], rows[some], self.trans[:, :tags], self.end

    def astype(self, dtype: Any) -> ChainWeights:
        """A copy in a type, without room for more rows."""
        rows, trans, end = (array.astype(dtype) for array in (self.rows[: self.used], self.trans, self.end))
        return ChainWeights(self.slot.copy(), rows, self.used, trans, end)

    def rounded(self, dtype: torch.dtype) -> ChainWeights:
        """A copy rounded to the type of a net."""
        made = self.astype(numpy_type(dtype))
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

    def scale(self, factor: float, over: float = 1.0) -> ChainWeights:
        """Divide and multiply the weights themselves."""
        for array in (self.rows, self.trans, self.end):
            array /= over
            array *= factor
        return self

    def mean(self, moment: ChainWeights, steps: int, scale: float = 1.0) -> ChainWeights:
        """(steps·w − moment)/steps·scale, the mean of all weights so far: see :meth:`ChainLog.averaged`."""
        made, active = moment.astype(self.trans.dtype), np.flatnonzero(moment.slot >= 0)

        def less(own: Array, other: Array) -> Array:
            found: Array = (own.astype(np.float64) * steps - other) / steps * scale
            return found

        for first in range(0, len(active), _BLOCK):  # which makes no second copy of all rows
            at = active[first : first + _BLOCK]
            known, slots = self.slot[at] >= 0, moment.slot[at]
            own = np.zeros((len(at), self.trans.shape[1]))
            own[known] = self.rows[self.slot[at[known]]]
            made.rows[slots] = less(own, moment.rows[slots])
        made.trans[:], made.end[:] = less(self.trans, moment.trans), less(self.end, moment.end)
        return made

    def add(self, other: ChainWeights) -> ChainWeights:
        """Add other weights, in place."""
        active = np.flatnonzero(other.slot >= 0)
        new = active[self.slot[active] < 0]
        self.ensure(len(new))
        self.slot[new] = self.used + np.arange(len(new))
        self.used += len(new)
        self.rows[self.slot[active]] += other.rows[other.slot[active]]
        self.trans += other.trans
        self.end += other.end
        return self

    def __bool__(self) -> bool:
        """Whether any weight is not 0."""
        return any(bool(array.any()) for array in (self.rows[: self.used], self.trans, self.end))

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
        for array in (active.astype(np.int64), *(each + 0.0 for each in numbers)):  # −0 is 0
            made.update(np.ascontiguousarray(array).tobytes())
        return made.digest()

    def ensure(self, more: int) -> None:
        """Make room for more rows, if it is not there."""
        wanted = min(len(self.slot), self.used + more)
        if len(self.rows) < wanted:
            room = min(len(self.slot), max(1024, 2 * len(self.rows), wanted))
            made = np.zeros((room, self.trans.shape[1]), self.rows.dtype)
            made[: self.used] = self.rows[: self.used]
            self.rows = made

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

    def loop_arrays(self) -> tuple[Array, ...]:
        """The arrays of the compiled loops: the weights, and the smallest and largest transition from each tag."""
        pairs = self.trans[: len(self.end), : len(self.end)]
        bounds = np.ascontiguousarray(pairs.min(1)), np.ascontiguousarray(pairs.max(1))
        return (self.slot, self.rows, self.trans, self.end, *bounds)

    def loop_data(self, sequences: Sequences) -> tuple[Array, Array, Array]:
        """Features as the compiled loops read them, the values in the type of the weights; none if each is 1."""
        values = np.empty(0) if sequences.values is None else sequences.values
        return sequences.indptr, sequences.ids, values.astype(self.trans.dtype, copy=False)

    def decode(self, sequences: Sequences, n_jobs: int | None = None) -> Array:
        """The best tags of all sequences, as one array (T,)."""
        from torchperc.sequences import loops

        if sequences.width != len(self.slot):
            raise ValueError(f"X has {sequences.width} features but {len(self.slot)} are needed, as the model has")
        tags, data, weights = np.empty(sequences.tokens, np.int64), self.loop_data(sequences), self.loop_arrays()
        bad: list[int] = []

        def stretch(first: int, end: int) -> None:
            found = loops.decode(data, sequences.offsets, np.arange(first, end), weights, tags)
            bad.extend([found] if found >= 0 else [])

        parallel.map_chunks(stretch, len(sequences), parallel.threads(n_jobs))
        if bad:
            raise ValueError(
                f"sequence {min(bad)} has a score that is not finite; its features or the weights are too large"
            )
        return tags

    def replay(self, sequences: Sequences, y: Array, index: Array, coefs: Array, bounds: Array, wrong: Array) -> None:
        """Make the updates of log entries, in place."""
        from torchperc.sequences import loops

        data, done, state = self.loop_data(sequences), 0, np.array([self.used, 0, 0])
        while done < len(index):
            weights = self.loop_arrays()
            done = loops.replay(data, sequences.offsets, y, index, done, coefs, bounds, wrong, weights, state)
            self.used = int(state[loops.USED])
            if done < len(index):
                self.ensure(int(np.diff(sequences.indptr[sequences.offsets[index[done] : index[done] + 2]])[0]))

    def score_differences(self, sequences: Sequences, tags: Array, y: Array) -> Array:
        """s(x, tags) − s(x, y) of every sequence, in float64: (N,). What both have in common is not summed up."""
        count, first, last = len(self.end), sequences.offsets[:-1], sequences.offsets[1:] - 1
        total = np.zeros(sequences.tokens)
        for sign, each in ((1.0, tags), (-1.0, y)):
            before = np.concatenate(([count], each[:-1]))
            before[first] = count
            total += sign * self.trans[before, each]
            total[last] += sign * self.end[each[last]]
        owner = np.repeat(np.arange(sequences.tokens), np.diff(sequences.indptr))
        counts = (tags != y)[owner] & (self.slot[sequences.ids] >= 0)
        rows, owner = self.slot[sequences.ids[counts]], owner[counts]
        gains = self.rows[rows, tags[owner]].astype(np.float64) - self.rows[rows, y[owner]]
        np.add.at(total, owner, gains if sequences.values is None else gains * sequences.values[counts])
        made: Array = np.add.reduceat(total, first)
        return made
