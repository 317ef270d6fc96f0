"""The compiled loops of single-sample descent, for one score and for K scores; rows are dense or CSR.

Each makes the steps w ← (1 − r·l2)·w − r·ℓ'·x of the rows ``at``, in that order, with one label and one learning rate r
per step. The scores before each step go into ``seen``. A loop returns the number of steps made, which is smaller than
the number of rows only if a perceptron's score is not finite. Samples and weights lie in memory as
:mod:`torchperc.samples.loops` says.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from torchperc.nn.functional import TIES
from torchperc.nn.heads import Head, LMSHead, LogisticHead, PerceptronHead, RegressionHead
from torchperc.samples.loops import SUM, add, dot, dots, loop, row

PERCEPTRON, LMS, LOGISTIC, REGRESSION = range(4)
UPDATE, SIGN, STRICT = range(len(TIES))
SMALL = 1e-9  # a common factor below this is multiplied into the weights, long before anything overflows


def loss_code(head: Head) -> tuple[int, int, float]:
    """Return a head's loss as the loops know it: kind, tie and the lower target, as numbers."""
    kinds = (PerceptronHead, LMSHead, LogisticHead, RegressionHead)
    kind = next(number for number, each in enumerate(kinds) if isinstance(head, each))
    return kind, TIES.index(getattr(head, "tie", TIES[0])), 2 * head.threshold - 1 if isinstance(head, LMSHead) else 0.0


@njit(error_model="numpy")
def slope(s, y, loss):
    """Return dℓ/ds of one score; y is a label −1/+1, for regression the target."""
    kind, tie, low = loss
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


@njit(error_model="numpy")
def slopes(s, y, loss, out):
    """Write dℓ/ds of K scores into ``out``; y is a class index."""
    kind, tie, low = loss
    rival, top, total = -1, -math.inf, 0.0
    for k in range(s.size):
        if (kind != PERCEPTRON or k != y) and (rival < 0 or s[k] > top):
            rival, top = k, np.float64(s[k])
    if kind == PERCEPTRON:
        m = s[y] - top
        mistake = m < 0 or (m == 0 and (tie == UPDATE or (tie == SIGN and rival < y)))
        out[:] = 0.0
        out[rival], out[y] = 1.0 * mistake, -1.0 * mistake
        return
    for k in range(s.size):
        out[k] = math.exp(s[k] - top) if kind == LOGISTIC else s[k] - low
        total += out[k]
    if kind == LOGISTIC:
        for k in range(s.size):
            out[k] /= total
    out[y] -= 1.0 if kind == LOGISTIC else 1.0 - low


@njit(fastmath=SUM)
def add_to_all(x, columns, coefs, w):
    """Add coef_k·x to the weights of each class k."""
    if columns is None:
        for k in range(coefs.size):
            if coefs[k] != 0:
                add(x, columns, coefs[k], w[k])
    else:
        for j in range(x.size):
            v = w[np.uint32(columns[j])]
            for k in range(coefs.size):
                v[k] += x[j] * coefs[k]


@loop(fastmath=SUM, error_model="numpy")
def one_score(rows, at, y, rates, l2, w, b, has_bias, loss, seen):
    """Make the steps of one score; weights ``w`` are (d,)."""
    scale = w.dtype.type(1)
    for p in range(at.size):
        x, columns = row(rows, at[p])
        score = scale * dot(x, columns, w) + b[0]
        seen[p, 0] = score
        if loss[0] == PERCEPTRON and not abs(score) < np.inf:
            return p
        move = step = w.dtype.type(-rates[p] * slope(np.float64(score), y[p], loss))
        if l2 > 0:
            scale *= w.dtype.type(1.0 - rates[p] * l2)
            if scale < SMALL:
                for j in range(w.size):  # w *= scale would slow the whole loop down
                    w[j] *= scale
                scale = w.dtype.type(1)
            step = move / scale
        if move != 0:
            add(x, columns, step, w)
        if has_bias:
            b[0] += move
    w *= scale
    return at.size


@loop(fastmath=SUM, error_model="numpy")
def class_scores(rows, at, y, rates, l2, w, b, has_bias, loss, seen):
    """Make the steps of K scores; weights ``w`` are (K, d), for CSR rows (d, K)."""
    scale, out, steps = w.dtype.type(1), np.empty(b.size), np.empty(b.size, w.dtype)
    for p in range(at.size):
        x, columns = row(rows, at[p])
        dots(x, columns, w, steps)
        finite = True
        for k in range(b.size):
            seen[p, k] = scale * steps[k] + b[k]
            finite = finite and abs(seen[p, k]) < np.inf
        if loss[0] == PERCEPTRON and not finite:
            return p
        slopes(seen[p], y[p], loss, out)
        scale *= w.dtype.type(1.0 - rates[p] * l2)
        if scale < SMALL:
            w *= scale
            scale = w.dtype.type(1)
        for k in range(b.size):
            out[k] *= -rates[p]
            steps[k] = out[k] / scale
            if has_bias:
                b[k] += w.dtype.type(out[k])
        add_to_all(x, columns, steps, w)
    w *= scale
    return at.size
