"""Weights of a chain without their zeros, as the file of a tagger keeps them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from torchperc.sequences.layout import Array
from torchperc.sequences.weights import ChainWeights

_ROWS = 2**13  # of weights that are looked at once


class Sparse(NamedTuple):
    """Weights without their zeros: rows of some features, each with some tags; transitions and ends of all.

    Args:
        features: numbers of the features that have a row, ascending: (R,).
        indptr: where each row begins and ends: (R + 1,).
        tags: the tag of each value: (nnz,).
        values: (nnz,).
        trans: (K + 1, K), row K for the start.
        end: (K,).
    """

    features: Array
    indptr: Array
    tags: Array
    values: Array
    trans: Array
    end: Array

    @classmethod
    def of(cls, weights: ChainWeights) -> Sparse:
        """The weights as they are, in the smallest type that holds them exactly."""
        count, active = len(weights.end), np.flatnonzero(weights.slot >= 0)
        pieces = []
        for first in range(0, len(active), _ROWS):
            block = weights.rows[weights.slot[active[first : first + _ROWS]], :count]
            row, tag = block.nonzero()
            pieces.append((row + first, tag.astype(np.uint16), block[row, tag]))
        rows, tags, values = (
            np.concatenate([piece[k] for piece in pieces]) if pieces else np.zeros(0, kind)
            for k, kind in enumerate((np.int64, np.uint16, np.float64))
        )
        sizes = np.bincount(rows, minlength=len(active)) if len(active) else np.zeros(0, np.int64)
        kept = np.flatnonzero(sizes)
        indptr = np.concatenate(([0], np.cumsum(sizes[kept])))
        trans = weights.trans[:, :count]
        return cls(active[kept], indptr, tags, *map(_smallest, (values, trans, weights.end)))

    def dense(self, features: int, dtype: Any, over: float = 1.0) -> ChainWeights:
        """All divided by a number, as decoding needs them."""
        made = ChainWeights.zeros(features, len(self.end), dtype)
        made.slot[self.features] = np.arange(len(self.features), dtype=np.int32)
        made.rows, made.used = np.zeros((len(self.features), made.trans.shape[1]), dtype), len(self.features)
        made.rows[np.repeat(np.arange(made.used), np.diff(self.indptr)), self.tags] = self.values / over
        made.trans[:, : len(self.end)] = self.trans / over
        made.end[:] = self.end / over
        return made

    def add_to(self, weights: ChainWeights) -> None:
        """Add these to other weights, in place."""
        new = self.features[weights.slot[self.features] < 0]
        weights.ensure(len(new))
        weights.slot[new] = weights.used + np.arange(len(new))
        weights.used += len(new)
        weights.rows[np.repeat(weights.slot[self.features], np.diff(self.indptr)), self.tags] += self.values
        weights.trans[:, : len(self.end)] += self.trans
        weights.end += self.end

    def with_tags(self, count: int) -> Sparse:
        """The same with zeros for more tags."""
        own = len(self.end)
        trans, end = np.zeros((count + 1, count), self.trans.dtype), np.zeros(count, self.end.dtype)
        trans[:own, :own], trans[count, :own], end[:own] = self.trans[:own], self.trans[own], self.end
        return self._replace(trans=trans, end=end)

    def check(self, features: int, tags: int) -> None:
        """Refuse weights that would lead compiled loops out of their arrays."""
        numbers, bounds = self.features, self.indptr
        kinds = "".join(array.dtype.kind for array in self)
        fits = (
            kinds[:3] == "iiu" and set(kinds[3:]) <= set("if") and all(np.isfinite(array).all() for array in self[3:])
        )
        fits &= all(array.ndim == 1 for array in self[:4]) and bool((numbers[1:] > numbers[:-1]).all())
        fits &= self.trans.shape == (tags + 1, tags) and self.end.shape == (tags,)
        fits &= len(bounds) == len(numbers) + 1 and bounds[0] == 0 and bool((np.diff(bounds) >= 0).all())
        fits &= bounds[-1] == len(self.values) == len(self.tags)
        fits &= not len(numbers) or bool(numbers.min() >= 0 and numbers.max() < features)
        fits &= not len(self.tags) or int(self.tags.max()) < tags
        if not fits:
            raise TypeError("its weights do not fit its features and tags")


def _smallest(values: Array) -> Array:
    """The same numbers in the smallest type that holds them exactly."""
    for kind in (np.int8, np.int16, np.int32, np.float32):
        with np.errstate(invalid="ignore", over="ignore"):
            small = values.astype(kind)
        if np.array_equal(small.astype(np.float64), values):
            return small
    return np.ascontiguousarray(values, np.float64)
