"""The compiled loops of single-sample descent: one or K scores, dense or CSR rows.

Each makes the steps w ← (1 − r·l2)·w − r·ℓ'·x of the rows ``at``, in that order, with one label and one learning rate
per step. The scores before each step go into ``seen``. A loop returns the number of steps made, which is smaller than
the number of rows only if a perceptron's score is not finite.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit
from numba.extending import register_jitable

from torchperc.nn.functional import TIES
from torchperc.nn.heads import Head, LMSHead, LogisticHead, PerceptronHead, RegressionHead

PERCEPTRON, LMS, LOGISTIC, REGRESSION = 0, 1, 2, 3
UPDATE, SIGN, STRICT = range(len(TIES))
SUM = {"reassoc", "contract", "nsz"}  # sums may be reordered; NaN and infinity keep their meaning
SMALL = 1e-9  # a common factor below this is multiplied into the weights, long before anything overflows


def loss_code(head: Head) -> tuple[int, int, float]:
    """Return a head's loss as the loops know it: kind, tie and the lower target, as numbers.

    Example:
        >>> loss_code(LMSHead())
        (1, 0, -1.0)
    """
    if isinstance(head, PerceptronHead):
        return PERCEPTRON, TIES.index(head.tie), 0.0
    if isinstance(head, LMSHead):
        return LMS, 0, head.low
    if isinstance(head, LogisticHead | RegressionHead):
        return LOGISTIC if isinstance(head, LogisticHead) else REGRESSION, 0, 0.0
    raise TypeError(f"head must be PerceptronHead(), LMSHead(), LogisticHead() or RegressionHead(), found {head!r}")


@register_jitable(error_model="numpy")
def slope(s, y, kind, tie, low):
    """dℓ/ds of one score; y is a label −1/+1, for regression the target."""
    m = y * s
    if kind == REGRESSION:
        return s - y
    if kind == LMS:
        return s - (1.0 if y > 0 else low)
    if kind == LOGISTIC:  # −y/(1 + e^m), without overflow
        small = math.exp(-abs(m))
        return -y * (small if m > 0 else 1.0) / (1.0 + small)
    mistake = m < 0 or (m == 0 and (tie == UPDATE or (tie == SIGN and y < 0)))
    return -1.0 * y if mistake else 0.0


@register_jitable(error_model="numpy")
def slopes(s, y, classes, kind, tie, low, out):
    """dℓ/ds of K scores into ``out``; whether all scores are finite."""
    rival, top, total = -1, -math.inf, 0.0
    y, finite = int(y), True  # compiled with real targets, too, which never come here
    for k in range(classes):
        value = 1.0 * s[k]
        finite = finite and math.isfinite(value)
        if kind == PERCEPTRON and k == y:
            continue
        if rival < 0 or value > top:
            rival, top = k, value
    if kind == PERCEPTRON:
        m = 1.0 * s[y] - top
        mistake = m < 0 or (m == 0 and (tie == UPDATE or (tie == SIGN and rival < y)))
        for k in range(classes):
            out[k] = (1.0 if k == rival else -1.0 if k == y else 0.0) if mistake else 0.0
        return finite
    for k in range(classes):
        out[k] = math.exp(1.0 * s[k] - top) if kind == LOGISTIC else 1.0 * s[k] - low
        total += out[k]
    if kind == LOGISTIC:
        for k in range(classes):
            out[k] /= total
    out[y] -= 1.0 if kind == LOGISTIC else 1.0 - low
    return finite


@njit(cache=True, nogil=True, fastmath=SUM, error_model="numpy")
def dense(X, at, y, rates, l2, w, b, has_bias, kind, tie, low, seen):
    """Dense rows and one score; weights ``w`` (d,)."""
    for p in range(len(at)):
        x, score = X[at[p]], w.dtype.type(0)
        for j in range(len(w)):
            score += w[j] * x[j]
        score += b[0]
        seen[p, 0] = score
        if kind == PERCEPTRON and not abs(score) < np.inf:
            return p
        move = w.dtype.type(-rates[p] * slope(np.float64(score), y[p], kind, tie, low))
        if l2 > 0:
            keep = w.dtype.type(1.0 - rates[p] * l2)
            for j in range(len(w)):
                w[j] = keep * w[j] + move * x[j]
        elif move != 0:
            for j in range(len(w)):
                w[j] += move * x[j]
        if has_bias:
            b[0] += move
    return len(at)


@njit(cache=True, nogil=True, fastmath=SUM, error_model="numpy")
def dense_classes(X, at, y, rates, l2, w, b, has_bias, kind, tie, low, seen):
    """Dense rows and K scores; weights ``w`` (K, d)."""
    classes = len(b)
    out = np.empty(classes)
    for p in range(len(at)):
        x = X[at[p]]
        for k in range(classes):
            row, score = w[k], w.dtype.type(0)
            for j in range(len(x)):
                score += row[j] * x[j]
            seen[p, k] = score + b[k]
        if not slopes(seen[p], y[p], classes, kind, tie, low, out) and kind == PERCEPTRON:
            return p
        keep = w.dtype.type(1.0 - rates[p] * l2)
        for k in range(classes):
            row, move = w[k], w.dtype.type(-rates[p] * out[k])
            if l2 > 0:
                for j in range(len(x)):
                    row[j] = keep * row[j] + move * x[j]
            elif move != 0:
                for j in range(len(x)):
                    row[j] += move * x[j]
            if has_bias:
                b[k] += move
    return len(at)


@njit(cache=True, nogil=True, fastmath=SUM, error_model="numpy")
def sparse(values, columns, starts, at, y, rates, l2, w, b, has_bias, kind, tie, low, seen):
    """CSR rows and one score; weights ``w`` (d,), of which a penalty changes a common factor."""
    scale = w.dtype.type(1)
    for p in range(len(at)):
        first, end = starts[at[p]], starts[at[p] + 1]
        x, column, score = values[first:end], columns[first:end], w.dtype.type(0)
        for j in range(len(x)):
            score += w[np.uint32(column[j])] * x[j]
        score = scale * score + b[0]
        seen[p, 0] = score
        if kind == PERCEPTRON and not abs(score) < np.inf:
            return p
        move = w.dtype.type(-rates[p] * slope(np.float64(score), y[p], kind, tie, low))
        scale *= w.dtype.type(1.0 - rates[p] * l2)
        if scale < SMALL:
            w *= scale
            scale = w.dtype.type(1)
        if move != 0:
            step = move / scale
            for j in range(len(x)):
                w[np.uint32(column[j])] += step * x[j]
        if has_bias:
            b[0] += move
    w *= scale
    return len(at)


@njit(cache=True, nogil=True, fastmath=SUM, error_model="numpy")
def sparse_classes(values, columns, starts, at, y, rates, l2, w, b, has_bias, kind, tie, low, seen):
    """CSR rows and K scores; weights ``w`` (d, K), so that one gather serves all classes."""
    classes, scale = len(b), w.dtype.type(1)
    out, total = np.empty(classes), np.empty(classes, w.dtype)
    for p in range(len(at)):
        first, end = starts[at[p]], starts[at[p] + 1]
        x, column = values[first:end], columns[first:end]
        total[:] = 0
        for j in range(len(x)):
            row = w[np.uint32(column[j])]
            for k in range(classes):
                total[k] += x[j] * row[k]
        for k in range(classes):
            seen[p, k] = scale * total[k] + b[k]
        if not slopes(seen[p], y[p], classes, kind, tie, low, out) and kind == PERCEPTRON:
            return p
        scale *= w.dtype.type(1.0 - rates[p] * l2)
        if scale < SMALL:
            w *= scale
            scale = w.dtype.type(1)
        for k in range(classes):
            out[k] *= -rates[p]
            total[k] = out[k] / scale
            if has_bias:
                b[k] += w.dtype.type(out[k])
        for j in range(len(x)):
            row = w[np.uint32(column[j])]
            for k in range(classes):
                row[k] += x[j] * total[k]
    w *= scale
    return len(at)
