"""The compiled readings of :func:`torchperc.minimise`; sums may be taken in any order, as every vectorised sum is.

Each row is used for its scores and for the gradient while it is at hand.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit
from numba.extending import register_jitable

from torchperc.nn.derivatives import logistic_terms, softmax_terms
from torchperc.samples.loops import SUM, _add, _score, _scores, _scores_of_four

for _formula in (logistic_terms, softmax_terms):
    register_jitable(error_model="numpy")(_formula)

STRIDE = 512  # factors 1 + e ≤ 2 that are multiplied before their logarithm is taken: 2⁵¹² is far from overflow


# --- two classes, dense rows or sparse ----------------------------------------------------------------------------


@njit(cache=True, nogil=True)
def slope_rows(rows, y, curvature, w, bias, total, first, end):
    """Sums of the losses and of their slopes, and the least margin; adds up the gradient in ``total``."""
    loss, slope, least, product = 0.0, 0.0, np.inf, 1.0
    for i in range(np.uint64(first), np.uint64(end)):
        m = y[i] * (_score(rows, i, w) + bias)
        e, wrong, curvature[i] = logistic_terms(m)
        residual = -y[i] * wrong
        # log(1 + exp(−m)) = max(−m, 0) + log(1 + e), and the logarithms are taken of many factors at once
        loss += max(-m, 0.0)
        product *= 1.0 + e
        if i % np.uint64(STRIDE) == 0:
            loss += math.log(product)
            product = 1.0
        least = min(least, m)
        slope += residual
        _add(rows, i, residual, total, 0)
    return loss + math.log(product), slope, least


@njit(cache=True, nogil=True)
def bend_rows(rows, curvature, w, bias, total, first, end):
    """Sum of the changes of the slopes along a direction and the largest of a score; adds up H·w in ``total``."""
    bends, reach = 0.0, 0.0
    for i in range(np.uint64(first), np.uint64(end)):
        u = _score(rows, i, w) + bias
        reach = max(reach, abs(u))
        bent = curvature[i] * u
        bends += bent
        _add(rows, i, bent, total, 0)
    return bends, reach


@njit(cache=True, nogil=True, fastmath=SUM)
def square_rows(x, curvature, total):
    """Adds up the lower half of Σ curvature·(x, 1)(x, 1)ᵀ in ``total``, four rows to each reading of that."""
    n, d = x.shape
    for i in range(0, n, 4):
        i1, i2, i3 = min(i + 1, n - 1), min(i + 2, n - 1), min(i + 3, n - 1)
        x0, x1, x2, x3 = x[i], x[i1], x[i2], x[i3]
        c0 = curvature[i]
        c1 = curvature[i1] if i1 > i else 0.0  # past the last row, its copies count nothing
        c2 = curvature[i2] if i2 > i1 else 0.0
        c3 = curvature[i3] if i3 > i2 else 0.0
        for j in range(len(total)):
            if j < d:
                a0, a1, a2, a3 = c0 * x0[j], c1 * x1[j], c2 * x2[j], c3 * x3[j]
            else:
                a0, a1, a2, a3 = c0, c1, c2, c3
                total[d, d] += c0 + c1 + c2 + c3
            line = total[j]
            for k in range(min(j + 1, d)):
                line[k] += a0 * x0[k] + a1 * x1[k] + a2 * x2[k] + a3 * x3[k]


@njit(cache=True, nogil=True, fastmath=SUM)
def cholesky_in_place(a):
    """Turns a symmetric matrix into its lower Cholesky factor; whether it is positive definite."""
    for i in range(len(a)):
        row = a[i]
        for j in range(i + 1):
            other = a[j]
            rest = row[j]
            for k in range(j):
                rest -= row[k] * other[k]
            if j < i:
                row[j] = rest / other[j]
            elif rest > 0:
                row[i] = math.sqrt(rest)
            else:
                return False
        for j in range(i + 1, len(a)):
            row[j] = 0.0
    return True


# --- dense rows, K classes: four rows at a time -------------------------------------------------------------------


@njit(fastmath=SUM)
def _collect_four(x, i0, i1, i2, i3, s, total):
    """total_k += Σ s_rk·x_r over four rows; two classes to each reading of the rows."""
    width, classes, one = np.uint64(x.shape[1]), np.uint64(len(total)), np.uint64(1)
    k = np.uint64(0)
    while k + one < classes:
        a0, a1, a2, a3 = s[0, k], s[1, k], s[2, k], s[3, k]
        c0, c1, c2, c3 = s[0, k + one], s[1, k + one], s[2, k + one], s[3, k + one]
        first, second = total[k], total[k + one]
        for j in range(width):
            x0, x1, x2, x3 = x[i0, j], x[i1, j], x[i2, j], x[i3, j]
            first[j] += a0 * x0 + a1 * x1 + a2 * x2 + a3 * x3
            second[j] += c0 * x0 + c1 * x1 + c2 * x2 + c3 * x3
        k += np.uint64(2)
    if k < classes:
        a0, a1, a2, a3 = s[0, k], s[1, k], s[2, k], s[3, k]
        first = total[k]
        for j in range(width):
            first[j] += a0 * x[i0, j] + a1 * x[i1, j] + a2 * x[i2, j] + a3 * x[i3, j]


@njit(fastmath=SUM)
def _slope(s, bias, y, p, total_bias):
    """Turns the scores of one sample, before the bias, into its slopes; its loss and margin."""
    classes = len(bias)
    for k in range(classes):
        s[k] += bias[k]
    loss, margin = softmax_terms(s, y, classes, p)
    for k in range(classes):
        s[k] = p[k] - (1.0 if k == y else 0.0)
        total_bias[k] += s[k]
    return loss, margin


@njit(fastmath=SUM)
def _bend(u, bias, p, total_bias):
    """Turns the changes of one sample's scores, before the bias, into those of its slopes; the largest of the first."""
    mean, reach, classes = 0.0, 0.0, len(bias)
    for k in range(classes):
        u[k] += bias[k]
        reach = max(reach, abs(u[k]))
        mean += p[k] * u[k]
    for k in range(classes):
        u[k] = p[k] * (u[k] - mean)
        total_bias[k] += u[k]
    return reach


@njit(cache=True, nogil=True, fastmath=SUM)
def softmax_slope_rows(x, y, p, weight, bias, total, total_bias):
    """Sum of the losses and least margin; the probabilities go into ``p``, the gradient is added up in the totals."""
    n = len(x)
    loss, least = 0.0, np.inf
    s = np.empty((4, len(bias)))
    for i in range(0, n, 4):
        i1, i2, i3 = min(i + 1, n - 1), min(i + 2, n - 1), min(i + 3, n - 1)
        _scores_of_four(x, i, i1, i2, i3, weight, s)
        for r in range(4):
            if i + r < n:
                own, margin = _slope(s[r], bias, y[i + r], p[i + r], total_bias)
                loss, least = loss + own, min(least, margin)
            else:
                s[r, :] = 0.0  # past the last row, its copies count nothing
        _collect_four(x, i, i1, i2, i3, s, total)
    return loss, least


@njit(cache=True, nogil=True, fastmath=SUM)
def softmax_bend_rows(x, p, weight, bias, total, total_bias):
    """The largest change of a score along a direction; adds up the Hessian's product with it in the totals."""
    n = len(x)
    reach = 0.0
    u = np.empty((4, len(bias)))
    for i in range(0, n, 4):
        i1, i2, i3 = min(i + 1, n - 1), min(i + 2, n - 1), min(i + 3, n - 1)
        _scores_of_four(x, i, i1, i2, i3, weight, u)
        for r in range(4):
            if i + r < n:
                reach = max(reach, _bend(u[r], bias, p[i + r], total_bias))
            else:
                u[r, :] = 0.0
        _collect_four(x, i, i1, i2, i3, u, total)
    return reach


# --- sparse rows, K classes: weights and slopes are (…, K) with K padded to a multiple of 8 -----------------------


@njit(cache=True, nogil=True)
def softmax_slope_sparse(rows, y, p, weight, bias, slopes, first, end):
    """Sum of the losses, least margin and sums of the slopes of the rows ``first`` to ``end``."""
    loss, least, total = 0.0, np.inf, np.zeros(len(bias))
    for i in range(np.uint64(first), np.uint64(end)):
        _scores(rows, i, weight, slopes[i])
        own, margin = _slope(slopes[i], bias, y[i], p[i], total)
        loss, least = loss + own, min(least, margin)
    return loss, least, total


@njit(cache=True, nogil=True)
def softmax_bend_sparse(rows, p, weight, bias, slopes, first, end):
    """The largest change of a score along a direction, and the sums of the changes of the slopes."""
    reach, total = 0.0, np.zeros(len(bias))
    for i in range(np.uint64(first), np.uint64(end)):
        _scores(rows, i, weight, slopes[i])
        reach = max(reach, _bend(slopes[i], bias, p[i], total))
    return reach, total


@njit(cache=True, nogil=True)
def sparse_product(rows, b, out, first, end):
    """Rows ``first`` to ``end`` of a CSR matrix times b: (d, K) → (n, K)."""
    for i in range(np.uint64(first), np.uint64(end)):
        _scores(rows, i, b, out[i])
