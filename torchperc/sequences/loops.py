"""The compiled loops of chains: decoding, learning by rule, replay of a log.

The weights of a feature are a row over all tags; ``slot[f]`` is the row of feature f, −1 if it has none yet and all its
weights are 0. Rows and the columns of transitions are padded, so that loops over tags fill whole vector registers. No
loop reorders sums: the reference engine adds in the same order.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

UPDATE, SIGN, STRICT = 0, 1, 2


@njit
def _emission(data, t, slot, rows, out):
    """The scores of all tags at token t."""
    indptr, ids, values, dense = data
    count = rows.shape[1]
    out[:] = 0
    if dense.shape[0] > 0:
        for f in range(dense.shape[1]):
            x = dense[t, f]
            s = slot[f]
            if x != 0 and s >= 0:
                row = rows[s]
                for j in range(count):
                    out[j] += x * row[j]
    elif len(values) > 0:
        for p in range(indptr[t], indptr[t + 1]):
            s = slot[ids[p]]
            if s >= 0:
                x = values[p]
                row = rows[s]
                for j in range(count):
                    out[j] += x * row[j]
    else:
        for p in range(indptr[t], indptr[t + 1]):
            s = slot[ids[p]]
            if s >= 0:
                row = rows[s]
                for j in range(count):
                    out[j] += row[j]


@njit
def _step(before, trans, lows, highs, best):
    """best[j] = max_i before[i] + trans[i, j]; an i that can reach none of these maxima is skipped.

    Rounding is monotone, so the sums with the smallest and largest transition of a tag are bounds of what is computed.
    """
    count, padded = len(lows), trans.shape[1]
    floor = before[0] + lows[0]
    for i in range(1, count):
        floor = max(floor, before[i] + lows[i])
    best[:] = -np.inf
    for i in range(count):
        base = before[i]
        if base + highs[i] < floor or base == -np.inf:
            continue
        row = trans[i]
        for j in range(padded):
            reached = base + row[j]
            best[j] = reached if reached > best[j] else best[j]


@njit
def _prune(delta, count, width, own):
    """Keep the best tags, the lowest of equals; the others become −inf. ``own`` ranks last of equals, if it is a tag.

    Returns whether ``own`` is among them.
    """
    kept = np.zeros(count, np.bool_)
    for _ in range(width):
        top = -1
        for k in range(count):
            if not kept[k] and (top < 0 or delta[k] > delta[top] or (delta[k] == delta[top] and top == own)):
                top = k
        kept[top] = True
    for k in range(count):
        if not kept[k]:
            delta[k] = -np.inf
    return kept[own] if own >= 0 else True


@njit
def _last(delta, end):
    """The best last tag, the lowest of equals."""
    top = 0
    for k in range(1, len(end)):
        if delta[k] + end[k] > delta[top] + end[top]:
            top = k
    return top


@njit
def _trace(deltas, trans, count, stop, tags):
    """Tags before position ``stop``, from the tag that stands there backwards."""
    for t in range(stop - 1, -1, -1):
        after, top = tags[t + 1], 0
        best = deltas[t, 0] + trans[0, after]
        for i in range(1, count):
            reached = deltas[t, i] + trans[i, after]
            if reached > best:
                top, best = i, reached
        tags[t] = top


@njit(cache=True, nogil=True, error_model="numpy")
def decode(data, offsets, first, end_, slot, rows, trans, end, lows, highs, width, tags):
    """The best tags of the sequences from ``first`` to ``end_``; returns the first with a score that is not finite."""
    count, longest = len(end), 0
    for i in range(first, end_):
        longest = max(longest, offsets[i + 1] - offsets[i])
    deltas = np.empty((longest, trans.shape[1]), trans.dtype)
    best, score = np.empty(trans.shape[1], trans.dtype), np.zeros(trans.shape[1], trans.dtype)
    for i in range(first, end_):
        start, length = offsets[i], offsets[i + 1] - offsets[i]
        for t in range(length):
            _emission(data, start + t, slot, rows, score)
            if t == 0:
                best[:] = trans[count]
            else:
                if width < count:
                    _prune(deltas[t - 1], count, width, -1)
                _step(deltas[t - 1], trans, lows, highs, best)
            for j in range(trans.shape[1]):
                deltas[t, j] = best[j] + score[j]
        found = tags[start : start + length]
        found[length - 1] = _last(deltas[length - 1], end)
        if not math.isfinite(deltas[length - 1, found[length - 1]] + end[found[length - 1]]):
            return i
        _trace(deltas, trans, count, length - 1, found)
    return -1
