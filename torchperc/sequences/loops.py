"""The compiled loops of chains: decoding, learning by rule, replay of a log.

The weights of a feature are a row over all tags; ``slot[f]`` is the row of feature f, −1 if it has none yet and all its
weights are 0. Transitions are padded, so that loops over tags fill whole vector registers. No loop reorders sums: the
reference engine adds in the same order.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from torchperc.samples.loops import loop


@njit
def _emission(data, t, slot, rows, out):
    """The scores of all tags at token t."""
    indptr, ids, values = data
    count = rows.shape[1]
    out[:] = 0
    for p in range(indptr[t], indptr[t + 1]):
        s = slot[ids[p]]
        if s >= 0:
            row = rows[s]
            if len(values) > 0:
                x = values[p]
                for j in range(count):
                    out[j] += x * row[j]
            else:
                for j in range(count):
                    out[j] += row[j]


@njit
def _step(before, trans, lows, highs, best, other, near):
    """max_i before[i] + trans[i, j] for all j, in one of two arrays; an i that can reach none of these is skipped.

    Rounding is monotone, so the sums with the smallest and largest transition of a tag are bounds of what is computed.
    Four i at a time go from one array to the other: a maximum in place would become a masked store, which is slow.
    """
    count, padded = len(lows), trans.shape[1]
    floor = before[0] + lows[0]
    for i in range(1, count):
        floor = max(floor, before[i] + lows[i])
    many = 0
    for i in range(count):
        if not before[i] + highs[i] < floor:
            near[many] = i
            many += 1
    for g in range(0, many, 4):
        i0, i1, i2, i3 = near[g], near[min(g + 1, many - 1)], near[min(g + 2, many - 1)], near[min(g + 3, many - 1)]
        b0, b1, b2, b3 = before[i0], before[i1], before[i2], before[i3]
        r0, r1, r2, r3 = trans[i0], trans[i1], trans[i2], trans[i3]
        if g == 0:
            for j in range(padded):
                other[j] = max(max(b0 + r0[j], b1 + r1[j]), max(b2 + r2[j], b3 + r3[j]))
        else:
            for j in range(padded):
                other[j] = max(best[j], max(max(b0 + r0[j], b1 + r1[j]), max(b2 + r2[j], b3 + r3[j])))
        best, other = other, best
    return best


@njit
def _viterbi(data, start, y, margin, weights, buffers, tags):
    """The best tags of a sequence, each tag but that of y with a margin on top; returns whether the score is finite.

    Without tags y there is no margin. Of equals it is the lowest last tag, then the lowest before it, and so on.
    """
    slot, rows, _, trans, end, lows, highs = weights
    deltas, score, one, two, near = buffers
    count, length = len(end), len(tags)
    for t in range(length):
        _emission(data, start + t, slot, rows, score)
        if len(y) > 0 and margin > 0:
            kept = score[y[t]]
            for j in range(trans.shape[1]):
                score[j] += margin
            score[y[t]] = kept
        best = _step(deltas[t - 1], trans, lows, highs, one, two, near) if t > 0 else trans[count]
        for j in range(trans.shape[1]):
            deltas[t, j] = best[j] + score[j]
    last = 0
    for k in range(1, count):
        if deltas[length - 1, k] + end[k] > deltas[length - 1, last] + end[last]:
            last = k
    tags[length - 1] = last
    for t in range(length - 2, -1, -1):
        after, top = tags[t + 1], 0
        for i in range(1, count):
            if deltas[t, i] + trans[i, after] > deltas[t, top] + trans[top, after]:
                top = i
        tags[t] = top
    return math.isfinite(deltas[length - 1, last] + end[last])


@njit
def _buffers(offsets, order, trans, end):
    """Room for the scores of prefixes, of a token, for two maxima, and for the tags that are looked at."""
    longest, padded = 0, trans.shape[1]
    for i in order:
        longest = max(longest, offsets[i + 1] - offsets[i])
    deltas, score = np.empty((longest, padded), trans.dtype), np.zeros(padded, trans.dtype)
    return deltas, score, np.empty(padded, trans.dtype), np.empty(padded, trans.dtype), np.empty(len(end), np.int64)


@loop(error_model="numpy")
def decode(data, offsets, order, weights, tags):
    """The best tags of some sequences; returns the first with a score that is not finite, or −1."""
    trans, end = weights[3], weights[4]
    buffers = _buffers(offsets, order, trans, end)
    none, margin = tags[:0], trans.dtype.type(0)
    for i in order:
        if not _viterbi(data, offsets[i], none, margin, weights, buffers, tags[offsets[i] : offsets[i + 1]]):
            return i
    return -1


@njit
def _update(data, start, y, tags, coef, weights):
    """w += coef·(φ(x, y) − φ(x, tags)); what both have in common is not touched."""
    indptr, ids, values = data
    slot, rows, used, trans, end, lows, highs = weights
    step, before, after = trans.dtype.type(coef), len(end), len(end)
    for t in range(len(y)):
        own, wrong = y[t], tags[t]
        if own != wrong or before != after:
            trans[before, own] += step
            trans[after, wrong] -= step
            if t > 0:
                for i in (before, after):
                    lows[i], highs[i] = trans[i, : len(end)].min(), trans[i, : len(end)].max()
        if own != wrong:
            for p in range(indptr[start + t], indptr[start + t + 1]):
                if slot[ids[p]] < 0:
                    slot[ids[p]] = used[0]
                    used[0] += 1
                x = rows.dtype.type(coef * values[p]) if len(values) > 0 else step
                rows[slot[ids[p]], own] += x
                rows[slot[ids[p]], wrong] -= x
        before, after = own, wrong
    if before != after:
        end[before] += step
        end[after] -= step


@loop(error_model="numpy")
def learn(data, offsets, order, y, steps, weights, margin, position, wrong):
    """Present sequences in order; record the position and the wrong tags of each mistake, and make its update.

    Returns how many were presented, fewer if a score is not finite, and the number of mistakes and of wrong tags.
    """
    buffers = _buffers(offsets, order, weights[3], weights[4])
    tags = np.empty(len(buffers[0]), np.int64)
    made = written = 0
    for p in range(len(order)):
        i = order[p]
        own = y[offsets[i] : offsets[i + 1]]
        found = tags[: len(own)]
        if not _viterbi(data, offsets[i], own, margin, weights, buffers, found):
            return p, made, written
        if (found != own).any():
            _update(data, offsets[i], own, found, steps[i], weights)
            wrong[written : written + len(found)] = found
            position[made] = p
            made += 1
            written += len(found)
    return len(order), made, written


@loop(error_model="numpy")
def replay(data, offsets, y, sample, coefs, wrong, weights):
    """Make the updates of mistakes again; ``wrong`` has their tags one after the other."""
    read = 0
    for e in range(len(sample)):
        own = y[offsets[sample[e]] : offsets[sample[e] + 1]]
        _update(data, offsets[sample[e]], own, wrong[read : read + len(own)], coefs[e], weights)
        read += len(own)
