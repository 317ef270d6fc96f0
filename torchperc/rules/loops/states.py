"""What many states of a log decide on many samples: the states by replay, their decisions block by block."""

from __future__ import annotations

import numpy as np
from numba import njit
from numba.extending import overload

from torchperc.rules.loops.exact import BOUND, _side, renew
from torchperc.rules.loops.learn import OVERFLOW, SIGN, _of, _rival, update
from torchperc.samples.loops import FUSED, _score, _scores

_ROWS, LANES = 32, 64  # samples and scores whose sums stay in the nearest cache


@njit(cache=True, nogil=True)
def unfold(rows, at, coefs, own, wrong, w, b, bias_scale, states, biases):
    """Make the updates of log entries in their order, and keep the weights after each."""
    for p in range(len(at)):
        update(rows, at[p], coefs[p], own[p], wrong[p], w, b, bias_scale)
        states[p] = w
        biases[p] = b


@njit(cache=True, nogil=True)
def renew_all(states, biases, near):
    """The bound of rounding errors under each state."""
    for s in range(len(states)):
        renew(states[s], biases[s], near[s])


@njit
def _copied(X, begin, end, some):
    """Copy samples one after the other, which memory is fastest at; return how many."""
    count = min(len(some), end - begin)
    for r in range(np.uint64(count)):
        i = np.uint64(begin) + r
        for j in range(np.uint64(some.shape[1])):
            some[r, j] = X[i, j]
    return count


@njit(fastmath=FUSED)
def _multiply(X, count, tile, out):
    """out = X·tile of ``count`` samples.

    Four features at a time, so that sums are read and written less often than they are added to.
    """
    one, two, three = np.uint64(1), np.uint64(2), np.uint64(3)
    width, lanes = np.uint64(tile.shape[0]), np.uint64(tile.shape[1])
    out[:] = 0
    j = np.uint64(0)
    while j + three < width:
        for r in range(np.uint64(count)):
            x0, x1, x2, x3 = X[r, j], X[r, j + one], X[r, j + two], X[r, j + three]
            for c in range(lanes):
                out[r, c] += (x0 * tile[j, c] + x1 * tile[j + one, c]) + (
                    x2 * tile[j + two, c] + x3 * tile[j + three, c]
                )
        j += np.uint64(4)
    while j < width:
        for r in range(np.uint64(count)):
            x0 = X[r, j]
            for c in range(lanes):
                out[r, c] += x0 * tile[j, c]
        j += one


@njit
def _class_of(rows, i, scores, w, b, near):
    """The class with the largest score (the bias is still to be added), the lowest of equals."""
    best = 0
    for k in range(1, len(b)):
        if scores[k] + b[k] > scores[best] + b[best]:
            best = k
    found = _rival(rows, i, best, w, b, SIGN, 0.0, scores, near)
    return best if found == OVERFLOW else found


@njit
def _sign_of(rows, i, score, w, b, near):
    """+1 if w·x + b ≥ 0, else −1; the bias is still to be added."""
    return 1 if _side(rows, i, w, b, 0, -1, 1, 0.0, np.float64(score + b[0]), near) >= 0 else -1


@njit
def _signs(sums, bias, open_below, found):
    """The signs of scores; whether all are farther from 0 than their rounding errors."""
    far = True
    for c in range(len(sums)):
        value = np.float64(sums[c] + bias[c])
        far &= abs(value) > open_below[c]
        found[c] = 1 if value > 0.0 else -1
    return far


@njit
def _settle(rows, i, sums, states, biases, near, first, count, found):
    """Find out the signs of one sample's scores that are nearer to 0 than their rounding errors."""
    for c in range(count):
        s = first + c
        found[c] = _sign_of(rows, i, sums[c], states[s], biases[s], near[s])


def _decide(rows, first, end, states, biases, tiles, near, out):  # pragma: no cover - compiled
    """:func:`decide`, by how samples and weights lie."""


@overload(_decide)
def _decide_of(rows, first, end, states, biases, tiles, near, out):
    if len(rows) != 1:  # the weights of one state after the other stay near the processor
        if states.ndim == 2:

            def one(rows, first, end, states, biases, tiles, near, out):
                for s in range(len(states)):
                    for i in range(np.uint64(first), np.uint64(end)):
                        score = _score(rows, i, states[s])
                        out[i - np.uint64(first), s] = _sign_of(rows, i, score, states[s], biases[s], near[s])

            return one

        def many(rows, first, end, states, biases, tiles, near, out):
            scores = np.empty(biases.shape[1] + 8, states.dtype)
            for s in range(len(states)):
                for i in range(np.uint64(first), np.uint64(end)):
                    _scores(rows, i, states[s], scores)
                    out[i - np.uint64(first), s] = _class_of(rows, i, scores, states[s], biases[s], near[s])

        return many
    if states.ndim == 2:

        def dense_one(rows, first, end, states, biases, tiles, near, out):
            lanes, some = tiles.shape[2], np.empty((_ROWS, tiles.shape[1]), states.dtype)
            sums, bias = np.empty((_ROWS, lanes), states.dtype), np.zeros(len(tiles) * lanes, states.dtype)
            open_below = -np.ones(len(tiles) * lanes)
            for s in range(len(states)):
                bias[s], open_below[s] = biases[s, 0], 2.0 * near[s, BOUND]
            for begin in range(first, end, _ROWS):
                count = _copied(rows[0], begin, end, some)
                for low in range(0, len(tiles) * lanes, lanes):
                    here, high = min(lanes, len(states) - low), low + lanes
                    _multiply(some, count, tiles[low // lanes], sums)
                    for r in range(count):
                        found = out[begin - first + r, low:high]
                        if not _signs(sums[r], bias[low:high], open_below[low:high], found):
                            _settle(rows, np.uint64(begin + r), sums[r], states, biases, near, low, here, found)

        return dense_one

    def dense_many(rows, first, end, states, biases, tiles, near, out):
        classes = biases.shape[1]
        together, some = tiles.shape[2] // classes, np.empty((_ROWS, tiles.shape[1]), states.dtype)
        sums = np.empty((_ROWS, tiles.shape[2]), states.dtype)
        for begin in range(first, end, _ROWS):
            count = _copied(rows[0], begin, end, some)
            for t in range(len(tiles)):
                _multiply(some, count, tiles[t], sums)
                for r in range(count):
                    for s in range(t * together, min(t * together + together, len(states))):
                        at = (s - t * together) * classes
                        scores = sums[r, at : at + classes]
                        found = _class_of(rows, np.uint64(begin + r), scores, states[s], biases[s], near[s])
                        out[begin - first + r, s] = found

    return dense_many


@njit(cache=True, nogil=True)
def decide(rows, first, end, states, biases, tiles, near, out):
    """The decisions of all states on the samples from ``first`` to ``end``: −1/+1 or class indices, (N, S) in out.

    Scores nearer to each other, or to 0, than their rounding errors are compared in exact arithmetic.

    Args:
        rows: the samples.
        first: the first of them.
        end: behind the last.
        states: weights (S, …), each as in training.
        biases: (S, K).
        tiles: the same weights for dense samples as (tiles, d, lanes): those of each tile side by side, then zeros.
        near: (S, NEAR), see :mod:`torchperc.rules.loops.exact`.
        out: int32, with room for the lanes of the last tile.
    """
    _decide(rows, first, end, states, biases, tiles, near, out)


@njit(cache=True, nogil=True)
def add_costs(decided, y, cost, first, total):
    """Add to each state's total what its wrong decisions cost; a cost of length 1 stands for all samples."""
    for r in range(len(decided)):
        own, each = y[first + r], _of(cost, first + r)
        for s in range(decided.shape[1]):
            total[s] += each if decided[r, s] != own else 0.0


@njit(cache=True, nogil=True)
def add_votes(decided, counts, votes):
    """Add each state's votes: Σ count·(±1) where there is one column, else a count per class."""
    for r in range(len(decided)):
        for s in range(decided.shape[1]):
            if votes.shape[1] == 1:
                votes[r, 0] += counts[s] * decided[r, s]
            else:
                votes[r, decided[r, s]] += counts[s]
