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
DONE, GROW, PRECISION, OVERFLOW = 0, 1, 2, 3
USED, FOUND, WRITTEN = 0, 1, 2  # places in ``state``: rows in use, mistakes found, wrong tags written


@njit
def _emission(data, t, slot, rows, out, near):
    """The scores of all tags at token t; ``near`` has room for four numbers."""
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
        many = 0
        for p in range(indptr[t], indptr[t + 1]):
            s = slot[ids[p]]
            if s >= 0:
                near[many] = s
                many += 1
                if many == 4:  # four rows at a time, added one after the other
                    one, two, three, four = rows[near[0]], rows[near[1]], rows[near[2]], rows[near[3]]
                    for j in range(count):
                        out[j] = out[j] + one[j] + two[j] + three[j] + four[j]
                    many = 0
        for m in range(many):
            row = rows[near[m]]
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
        if not (before[i] + highs[i] < floor or before[i] == -np.inf):
            near[many] = i
            many += 1
    if many == 0:
        near[0], many = 0, 1
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
def _prune(delta, count, width, own, last):
    """Keep the best tags, the lowest of equals, but the tag ``last`` last of equals; the others become −inf.

    Returns whether the tag ``own`` is among them.
    """
    kept = np.zeros(count, np.bool_)
    for _ in range(width):
        top = -1
        for k in range(count):
            if not kept[k] and (top < 0 or delta[k] > delta[top] or (delta[k] == delta[top] and top == last)):
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


@njit
def _buffers(trans):
    """Three arrays over tags: of zeros, and two for maxima."""
    padded = trans.shape[1]
    return np.zeros(padded, trans.dtype), np.empty(padded, trans.dtype), np.empty(padded, trans.dtype)


@njit(cache=True, nogil=True, error_model="numpy")
def decode(data, offsets, first, end_, slot, rows, trans, end, lows, highs, width, tags):
    """The best tags of the sequences from ``first`` to ``end_``; returns the first with a score that is not finite."""
    count, longest = len(end), 0
    for i in range(first, end_):
        longest = max(longest, offsets[i + 1] - offsets[i])
    deltas = np.empty((longest, trans.shape[1]), trans.dtype)
    score, one, two = _buffers(trans)
    near = np.empty(count + 4, np.int64)
    for i in range(first, end_):
        start, length = offsets[i], offsets[i + 1] - offsets[i]
        for t in range(length):
            _emission(data, start + t, slot, rows, score, near)
            if t > 0 and width < count:
                _prune(deltas[t - 1], count, width, -1, -1)
            best = _step(deltas[t - 1], trans, lows, highs, one, two, near) if t > 0 else trans[count]
            for j in range(trans.shape[1]):
                deltas[t, j] = best[j] + score[j]
        found = tags[start : start + length]
        found[length - 1] = _last(deltas[length - 1], end)
        if not math.isfinite(deltas[length - 1, found[length - 1]] + end[found[length - 1]]):
            return i
        _trace(deltas, trans, count, length - 1, found)
    return -1


@njit
def _mistaken(
    data, start, y, slot, rows, trans, end, lows, highs, width, tie, margin, deltas, score, one, two, near, tags
):
    """Decode one sequence against its tags y; return how many of the tags found count as a mistake.

    0: no mistake. Less than all: at this prefix the tags y fell out of the beam. −1: a score is not finite.
    """
    count, length, padded = len(end), len(y), trans.shape[1]
    own = trans.dtype.type(0)
    for t in range(length):
        _emission(data, start + t, slot, rows, score, near)
        own = (own + trans[y[t - 1], y[t]] if t > 0 else trans[count, y[t]]) + score[y[t]]
        if margin > 0:
            kept = score[y[t]]
            for j in range(padded):
                score[j] += margin
            score[y[t]] = kept
        best = _step(deltas[t - 1], trans, lows, highs, one, two, near) if t > 0 else trans[count]
        for j in range(padded):
            deltas[t, j] = best[j] + score[j]
        falls = width < count and t < length - 1
        if falls and not _prune(deltas[t], count, width, y[t], y[t] if tie == UPDATE else -1):
            top = 0
            for k in range(1, count):
                if deltas[t, k] > deltas[t, top]:
                    top = k
            tags[t] = top
            _trace(deltas, trans, count, t, tags)
            return t + 1 if math.isfinite(deltas[t, top]) else -1
    last = _last(deltas[length - 1], end)
    value = deltas[length - 1, last] + end[last]
    if not math.isfinite(value):
        return -1
    tags[length - 1] = last
    _trace(deltas, trans, count, length - 1, tags)
    for t in range(length):
        if tags[t] != y[t]:
            return length if tie != STRICT or value > own + end[y[length - 1]] else 0
    return _tied(deltas, trans, end, y, tags) if tie == UPDATE else 0


@njit
def _tied(deltas, trans, end, y, tags):
    """Whether a sequence other than y, which is the best, has its score; it goes into ``tags``, and all of them count.

    It leaves y at the first position where it can, for the lowest tag: the second in the order of ties.
    """
    count, length = len(end), len(y)
    for t in range(length):
        at = y[t]
        own = deltas[t, at] + (end[at] if t == length - 1 else trans[at, y[t + 1]])
        for k in range(count):
            if k != at and deltas[t, k] + (end[k] if t == length - 1 else trans[k, y[t + 1]]) == own:
                tags[t] = k
                _trace(deltas, trans, count, t, tags)
                return length
    return 0


@njit
def _add(rows, s, coef, x, own, wrong, largest):
    """Move a row by coef·x towards the own tag and away from the wrong one."""
    rows[s, own] += rows.dtype.type(coef * x)
    rows[s, wrong] -= rows.dtype.type(coef * x)
    largest[0] = max(largest[0], abs(np.float64(rows[s, own])), abs(np.float64(rows[s, wrong])))


@njit
def _row(slot, f, state):
    """The row of feature f, a new one if it has none."""
    if slot[f] < 0:
        slot[f] = state[USED]
        state[USED] += 1
    return slot[f]


@njit
def _bounds(trans, i, lows, highs):
    low, high = trans[i, 0], trans[i, 0]
    for j in range(1, len(lows)):
        low, high = min(low, trans[i, j]), max(high, trans[i, j])
    lows[i], highs[i] = low, high


@njit
def _update(data, start, y, tags, whole, coef, slot, rows, trans, end, lows, highs, state, largest):
    """w += coef·(φ(x, y) − φ(x, tags)); what both have in common is not touched. ``whole``: they end the sequence."""
    indptr, ids, values, dense = data
    count, length, one = len(end), len(tags), trans.dtype.type(1)
    step = trans.dtype.type(coef)
    for t in range(length):
        own, wrong = np.int64(y[t]), np.int64(tags[t])
        before, after = (np.int64(y[t - 1]), np.int64(tags[t - 1])) if t > 0 else (count, count)
        if own != wrong or before != after:
            trans[before, own] += step
            trans[after, wrong] -= step
            top = max(abs(np.float64(trans[before, own])), abs(np.float64(trans[after, wrong])))
            largest[0] = max(largest[0], top)
            if t > 0 and len(lows) > 0:
                _bounds(trans, before, lows, highs)
                _bounds(trans, after, lows, highs)
        if own == wrong:
            continue
        if dense.shape[0] > 0:
            for f in range(dense.shape[1]):
                if dense[start + t, f] != 0:
                    _add(rows, _row(slot, f, state), coef, dense[start + t, f], own, wrong, largest)
        else:
            for p in range(indptr[start + t], indptr[start + t + 1]):
                x = values[p] if len(values) > 0 else one
                _add(rows, _row(slot, ids[p], state), coef, x, own, wrong, largest)
    if whole and y[length - 1] != tags[length - 1]:
        end[y[length - 1]] += step
        end[tags[length - 1]] -= step
        top = max(abs(np.float64(end[y[length - 1]])), abs(np.float64(end[tags[length - 1]])))
        largest[0] = max(largest[0], top)


@njit
def _new_rows(data, start, length, slot, state):
    """How many rows a sequence needs at most that are not there yet."""
    indptr, _, _, dense = data
    left = len(slot) - state[USED]
    return left if dense.shape[0] > 0 else min(left, indptr[start + length] - indptr[start])


@njit(cache=True, nogil=True, error_model="numpy")
def learn(
    data, offsets, order, low, y, coefs, slot, rows, trans, end, lows, highs, width, tie, margin, limit, reach,
    state, largest, position, lengths, wrong,
):  # fmt: skip
    """Present sequences from position ``low`` of the order on; record each mistake and make its update.

    ``reach`` is the largest Σ|x| of a token and ``limit`` a bound of scores below which every sum is exact. Returns how
    many were presented, and why it stopped: all done, no room for rows, scores may exceed the limit, overflow.
    """
    longest = 0
    for p in range(low, len(order)):
        longest = max(longest, offsets[order[p] + 1] - offsets[order[p]])
    padded = trans.shape[1]
    deltas, tags = np.empty((longest, padded), trans.dtype), np.empty(longest, np.int64)
    score, one, two = _buffers(trans)
    near, step = np.empty(len(end) + 4, np.int64), 0.0
    for p in range(len(coefs)):
        step = max(step, abs(coefs[p]))
    for p in range(low, len(order)):
        i = order[p]
        start, length = offsets[i], offsets[i + 1] - offsets[i]
        if limit < np.inf and length * ((reach + 1.0) * (largest[0] + step) + margin) + largest[0] >= limit:
            return p, PRECISION
        if _new_rows(data, start, length, slot, state) + state[USED] > len(rows):
            return p, GROW
        own = y[start : start + length]
        stop = _mistaken(
            data,
            start,
            own,
            slot,
            rows,
            trans,
            end,
            lows,
            highs,
            width,
            tie,
            margin,
            deltas,
            score,
            one,
            two,
            near,
            tags,
        )
        if stop < 0:
            return p, OVERFLOW
        if stop > 0:
            coef = coefs[i] if len(coefs) > 1 else coefs[0]
            _update(
                data, start, own, tags[:stop], stop == length, coef, slot, rows, trans, end, lows, highs, state, largest
            )
            place = state[WRITTEN]
            for t in range(stop):
                wrong[place + t] = tags[t]
            position[state[FOUND]], lengths[state[FOUND]] = p, stop
            state[FOUND] += 1
            state[WRITTEN] += stop
    return len(order), DONE


@njit(cache=True, nogil=True, error_model="numpy")
def replay(data, offsets, y, index, low, coefs, bounds, wrong, slot, rows, trans, end, state):
    """Make the updates of log entries again, from entry ``low`` on; returns how many were made, fewer if there is no
    room for rows."""
    none, largest, tags = np.empty(0, trans.dtype), np.zeros(1), np.empty(0, np.int64)
    for e in range(low, len(index)):
        start, length = offsets[index[e]], offsets[index[e] + 1] - offsets[index[e]]
        stop = bounds[e + 1] - bounds[e]
        if _new_rows(data, start, length, slot, state) + state[USED] > len(rows):
            return e
        if len(tags) < stop:
            tags = np.empty(stop, np.int64)
        for t in range(stop):
            tags[t] = wrong[bounds[e] + t]
        _update(
            data, start, y[start : start + length], tags[:stop], stop == length, coefs[e], slot, rows, trans, end,
            none, none, state, largest,
        )  # fmt: skip
    return len(index)
