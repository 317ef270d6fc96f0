"""The compiled loops of single-sample descent: one or K scores, dense or CSR rows.

Each makes the steps w ← (1 − r·l2)·w − r·ℓ'·x of the rows ``at``, in that order, with one label and one learning rate
per step. The scores before each step go into ``seen``. A loop returns the number of steps made, which is smaller than
the number of rows only if a perceptron's score is not finite.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numba.extending import register_jitable

from torchperc.nn.derivatives import PERCEPTRON, logistic_terms, slope, slopes

for _formula in (logistic_terms, slope, slopes):
    register_jitable(error_model="numpy")(_formula)

SUM = {"reassoc", "contract", "nsz"}  # sums may be reordered; NaN and infinity keep their meaning
SMALL = 1e-9  # a common factor below this is multiplied into the weights, long before anything overflows


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
