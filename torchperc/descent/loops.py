# mypy: ignore-errors
# numba reads these functions; their types are what the loops are compiled for
"""The loop of single-sample descent where each sample has a rate of its own or the weights are penalised, compiled."""

from __future__ import annotations

import math

import numpy as np
from numba import njit
from numba.extending import overload

from torchperc.rules.loops.exact import NEAR
from torchperc.rules.loops.learn import OVERFLOW, _mistaken, _rival, update
from torchperc.samples.loops import SUM, _add, _score, _scores

PERCEPTRON, LMS, LOGISTIC = 0, 1, 2

_SMALL = 1e-9  # a scale below this is multiplied into the weights, far before anything overflows


def _shrink(rows, w, scale, keep):  # pragma: no cover - compiled
    """Make the weights scale·w smaller by the factor ``keep``; return the new scale."""


@overload(_shrink)
def _shrink_of(rows, w, scale, keep):
    if len(rows) == 1:

        def dense(rows, w, scale, keep):  # a step writes to all weights anyway
            flat = w.reshape(-1)
            for j in range(len(flat)):
                flat[j] *= keep
            return scale

        return dense

    def csr(rows, w, scale, keep):  # weights that are not touched share one factor
        scale *= keep
        return scale if scale >= _SMALL else _fold(w, scale)

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
                move = w.dtype.type(-rates[i] * _slope(np.float64(score), y[i], kind, tie, low))
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
        out, slope, near = np.empty(classes + 8, w.dtype), np.empty(classes), np.zeros(NEAR)
        for p in range(len(at)):
            i = at[p]
            own = y[i]
            _scores(rows, i, w, out)
            for k in range(classes):
                out[k] *= scale
            wrong = own
            if kind == PERCEPTRON:
                wrong = _rival(rows, i, own, w, b, tie, 0.0, out, near)  # which adds the bias
                for k in range(classes):
                    slope[k] = np.float64(k == wrong) - np.float64(k == own)
            else:
                for k in range(classes):
                    out[k] += b[k]
                _slopes(out, own, classes, kind, low, slope)
            for k in range(classes):
                seen[p, k] = out[k]
            if wrong == OVERFLOW:
                return p
            if l2 > 0:
                scale = _shrink(rows, w, scale, w.dtype.type(1.0 - rates[i] * l2))
            for k in range(classes):
                move = w.dtype.type(-rates[i] * slope[k])
                if move != 0:
                    _add(rows, i, move / scale, w, k)
                    if has_bias:
                        b[k] += move
        _fold(w, scale)
        return len(at)

    return many


@njit(cache=True, nogil=True, error_model="numpy")
def descend_weighted(rows, at, y, rates, l2, w, b, has_bias, kind, tie, low, seen):
    """One step a sample, in the order ``at``: w ← (1 − r_i·l2)·w − r_i·ℓ'·x_i, the bias without the penalty.

    The scores before each step go into ``seen``. Returns how many steps were made, fewer than there are samples if a
    score of the perceptron's is not finite.
    """
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


@njit(error_model="numpy")
def _slope(s, y, kind, tie, low):
    """ℓ'(s) for one score."""
    if kind == LMS:
        return s - (1.0 if y > 0 else low)
    if kind == LOGISTIC:
        return -y / (1.0 + math.exp(y * s))
    return -np.float64(y) if _mistaken(y * s, y, tie, 0.0) else 0.0


@njit
def _slopes(out, y, classes, kind, low, slope):
    """ℓ'(s) for K scores by squared error or softmax."""
    top, total = -np.inf, 0.0
    for k in range(classes):
        top = max(top, np.float64(out[k]))
    for k in range(classes):
        slope[k] = math.exp(np.float64(out[k]) - top) if kind == LOGISTIC else np.float64(out[k]) - low
        total += slope[k]
    for k in range(classes):
        if kind == LOGISTIC:
            slope[k] /= total
    slope[y] -= 1.0 if kind == LOGISTIC else 1.0 - low


def _descend(rows, at, y, w, b, rate, has_bias, kind, tie, low, seen):  # pragma: no cover - compiled
    """:func:`descend`, by the number of scores."""


@overload(_descend, jit_options={"error_model": "numpy"})
def _descend_of(rows, at, y, w, b, rate, has_bias, kind, tie, low, seen):
    if w.ndim == 1:

        def one(rows, at, y, w, b, rate, has_bias, kind, tie, low, seen):
            bias, score = b[0], _score(rows, at[0], w)
            for p in range(len(at)):
                score += bias
                seen[p, 0] = score
                if kind == PERCEPTRON and not math.isfinite(score):
                    return p
                move = w.dtype.type(-rate * _slope(np.float64(score), y[at[p]], kind, tie, low))
                following = at[min(p + 1, len(at) - 1)]
                if move != 0:
                    score = _add_and_score(rows, at[p], move, w, following)
                    if has_bias:
                        bias += move
                else:
                    score = _score(rows, following, w)
            b[0] = bias
            return len(at)

        return one

    def many(rows, at, y, w, b, rate, has_bias, kind, tie, low, seen):
        classes = len(b)
        out, slope = np.empty(classes + 8, w.dtype), np.empty(classes)
        near = np.zeros(NEAR)  # descent gives the rounded scores back, so these decide
        for p in range(len(at)):
            own = y[at[p]]
            _scores(rows, at[p], w, out)
            if kind == PERCEPTRON:
                wrong = _rival(rows, at[p], own, w, b, tie, 0.0, out, near)
                if wrong != own and wrong != OVERFLOW:
                    update(rows, at[p], rate, own, wrong, w, b, 1.0 if has_bias else 0.0)
            else:
                wrong = own
                for k in range(classes):
                    out[k] += b[k]
                _slopes(out, own, classes, kind, low, slope)
                for k in range(classes):
                    move = w.dtype.type(-rate * slope[k])
                    _add(rows, at[p], move, w, k)
                    if has_bias:
                        b[k] += move
            for k in range(classes):
                seen[p, k] = out[k]
            if wrong == OVERFLOW:
                return p
        return len(at)

    return many


@njit(cache=True, nogil=True, error_model="numpy")
def descend(rows, at, y, w, b, rate, has_bias, kind, tie, low, seen):
    """One step a sample, in order; the scores before each step go into ``seen``. Returns how many were made.

    Fewer than there are samples if a score of the perceptron's is not finite.
    """
    return _descend(rows, at, y, w, b, rate, has_bias, kind, tie, low, seen)
