"""The compiled loops of single-sample descent, with the formulas of nn/derivatives.

The scores before each step go into ``seen``. Each loop returns how many steps were made, fewer than there are samples
if a score of the perceptron's is not finite.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit
from numba.extending import overload, register_jitable

from torchperc.nn.derivatives import PERCEPTRON, logistic_terms, slope, slopes
from torchperc.samples.loops import SUM, _add, _fetch, _score, _scores

for _formula in (logistic_terms, slope, slopes):
    register_jitable(error_model="numpy")(_formula)

SMALL = 1e-9  # a scale below this is multiplied into the weights, far before anything overflows


def _shrink(rows, w, scale, keep):  # pragma: no cover - compiled
    """Make the weights scale·w smaller by the factor ``keep``; return the new scale."""


@overload(_shrink)
def _shrink_of(rows, w, scale, keep):
    if len(rows) == 1:

        def dense(rows, w, scale, keep):  # a step writes to all weights anyway
            _fold(w, keep)
            return scale

        return dense

    def csr(rows, w, scale, keep):  # weights that are not touched share one factor
        scale *= keep
        return scale if scale >= SMALL else _fold(w, scale)

    return csr


@njit
def _fold(w, scale):
    """Multiply the scale into the weights."""
    flat = w.reshape(-1)
    for j in range(len(flat)):
        flat[j] *= scale
    return w.dtype.type(1)


def _descend_weighted(rows, at, y, rates, l2, w, b, has_bias, kind, tie, low, seen):  # pragma: no cover - compiled
    """:func:`descend_weighted`, by the number of scores."""


@overload(_descend_weighted, jit_options={"error_model": "numpy"})
def _descend_weighted_of(rows, at, y, rates, l2, w, b, has_bias, kind, tie, low, seen):
    if w.ndim == 1:

        def one(rows, at, y, rates, l2, w, b, has_bias, kind, tie, low, seen):
            scale = w.dtype.type(1)
            for p in range(len(at)):
                i = at[p]
                score = scale * _score(rows, i, w) + b[0]
                seen[p, 0] = score
                if kind == PERCEPTRON and not math.isfinite(score):
                    return p
                move = w.dtype.type(-rates[i] * slope(np.float64(score), y[i], kind, tie, low))
                if l2 > 0:
                    scale = _shrink(rows, w, scale, w.dtype.type(1.0 - rates[i] * l2))
                if move != 0:
                    _add(rows, i, move / scale, w, 0)
                    if has_bias:
                        b[0] += move
            _fold(w, scale)
            return len(at)

        return one

    def many(rows, at, y, rates, l2, w, b, has_bias, kind, tie, low, seen):
        classes, scale = len(b), w.dtype.type(1)
        out, bends = np.empty(classes + 8, w.dtype), np.empty(classes)
        for p in range(len(at)):
            i = at[p]
            _scores(rows, i, w, out)
            for k in range(classes):
                out[k] = scale * out[k] + b[k]
                seen[p, k] = out[k]
            if not slopes(out, y[i], classes, kind, tie, low, bends) and kind == PERCEPTRON:
                return p
            if l2 > 0:
                scale = _shrink(rows, w, scale, w.dtype.type(1.0 - rates[i] * l2))
            for k in range(classes):
                move = w.dtype.type(-rates[i] * bends[k])
                if move != 0:
                    _add(rows, i, move / scale, w, k)
                    if has_bias:
                        b[k] += move
        _fold(w, scale)
        return len(at)

    return many


@njit(cache=True, nogil=True, error_model="numpy")
def descend_weighted(rows, at, y, rates, l2, w, b, has_bias, kind, tie, low, seen):
    """One step per sample, in the order ``at``: w ← (1 − r_i·l2)·w − r_i·ℓ'·x_i, the bias without the penalty."""
    return _descend_weighted(rows, at, y, rates, l2, w, b, has_bias, kind, tie, low, seen)


def _add_and_score(rows, i, coef, w, k):  # pragma: no cover - compiled
    """w += coef·x_i, then w·x_k."""


@overload(_add_and_score, jit_options={"fastmath": SUM})
def _add_and_score_of(rows, i, coef, w, k):
    if len(rows) == 1:

        def dense(rows, i, coef, w, k):  # both in one run over the weights
            X = rows[0]
            total = w.dtype.type(0)
            for j in range(np.uint64(len(w))):
                w[j] += coef * X[i, j]
                total += w[j] * X[k, j]
            return total

        return dense

    def csr(rows, i, coef, w, k):
        _add(rows, i, coef, w, 0)
        return _score(rows, k, w)

    return csr


@njit(cache=True, nogil=True, error_model="numpy")
def descend(rows, at, y, w, b, rate, has_bias, kind, tie, low, seen):
    """One step per sample, in the order ``at``, for one score: w ← w − rate·ℓ'·x_i."""
    bias, score = b[0], _score(rows, at[0], w)
    for p in range(len(at)):
        score += bias
        seen[p, 0] = score
        if kind == PERCEPTRON and not math.isfinite(score):
            return p
        following = at[min(p + 1, len(at) - 1)]
        _fetch(rows, following, w)
        move = w.dtype.type(-rate * slope(np.float64(score), y[at[p]], kind, tie, low))
        if move != 0:
            score = _add_and_score(rows, at[p], move, w, following)
            if has_bias:
                bias += move
        else:
            score = _score(rows, following, w)
    b[0] = bias
    return len(at)


@njit(error_model="numpy")
def _truncate(w, k, j, scale, owed, paid):
    """Move a weight towards 0 by what it owes, and no further; note what it has paid."""
    before = w[k, j]
    if before > 0:
        w[k, j] = max(0.0, before - (owed + paid[k, j]) / scale)
    elif before < 0:
        w[k, j] = min(0.0, before + (owed - paid[k, j]) / scale)
    paid[k, j] += scale * (w[k, j] - before)


@njit(cache=True, nogil=True, error_model="numpy")
def descend_l1(values, columns, starts, shifts, at, y, rates, l1, l2, w, b, has_bias, kind, low, owed, paid, seen):
    """One step per sample, w ← (1 − r·l2)·w − r·ℓ'·x, and then each of the sample's weights towards 0.

    All weights owe the same in all, Σ r·l1 over the steps so far; ``paid`` is what each has been moved by, with its
    sign. A weight pays when a sample needs it, and all pay in the end: without ``l2``, which makes smaller what owes,
    stored zeros make no difference.

    Sample i has the values from ``starts[i]`` to ``starts[i + 1]``, and their columns from ``shifts[i]`` on. Scores
    before each step go into ``seen``; returns what is owed.
    """
    classes, width = w.shape
    scale, out, bends = 1.0, np.empty(classes), np.empty(classes)
    for p in range(len(at)):
        i = at[p]
        first, count, shift = starts[i], starts[i + 1] - starts[i], shifts[i]
        for k in range(classes):
            score = 0.0
            for e in range(count):
                _truncate(w, k, columns[shift + e], scale, owed, paid)  # of the steps of samples without it
                score += values[first + e] * w[k, columns[shift + e]]
            out[k] = scale * score + b[k]
            seen[p, k] = out[k]
        if classes == 1:
            bends[0] = slope(out[0], y[i], kind, 0, low)
        else:
            slopes(out, y[i], classes, kind, 0, low, bends)
        scale *= 1.0 - rates[i] * l2
        owed += rates[i] * l1
        for k in range(classes):
            move = -rates[i] * bends[k]
            for e in range(count):
                w[k, columns[shift + e]] += move * values[first + e] / scale
                _truncate(w, k, columns[shift + e], scale, owed, paid)
            if has_bias:
                b[k] += move
        if scale < SMALL:
            w *= scale
            scale = 1.0
    for k in range(classes):
        for j in range(width):
            _truncate(w, k, j, scale, owed, paid)
            w[k, j] *= scale
    return owed
