"""The kernel perceptron's loops: bring scores up to date with new log entries, learn a block of samples."""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from torchperc.rules.loops.learn import SIGN, UPDATE, _mistaken, _of
from torchperc.rules.loops.states import _multiply
from torchperc.samples.loops import SUM

LINEAR, POLY, RBF = 0, 1, 2
_ROWS = 32  # samples whose products with a tile stay in the nearest cache


@njit
def _kernel(dot, square, other, kind, degree, gamma):
    """k from an inner product and both squared norms."""
    if kind == RBF:
        return math.exp(-gamma * max(0.0, square - 2.0 * dot + other))
    if kind == LINEAR:
        return dot
    value = base = dot + 1.0
    for _ in range(degree - 1):
        value *= base
    return value


@njit(fastmath=SUM)
def _dot(x, z):
    total = x.dtype.type(0)
    for j in range(np.uint64(len(x))):
        total += x[j] * z[j]
    return total


@njit(cache=True, nogil=True)
def add_entries(X, squares, ids, first, end, included, scores, tiles, others, signed, since, how, bias_scale):
    """Add to the scores of samples what log entries from number ``since`` on contribute, each sample once.

    Args:
        X: all samples.
        squares: ‖x‖² of each, for rbf.
        ids: the samples of a block.
        first: the first of them to look at.
        end: behind the last.
        included: how many entries the scores of each include already.
        scores: of the block, (N, K).
        tiles: the entries' samples, (tiles, d, lanes) in the type of the inner products.
        others: ‖z‖² of each entry's sample, for rbf.
        signed: what each entry adds to each score, per unit of k: (M, K).
        since: the number of the first entry.
        how: kind of kernel, degree and gamma.
        bias_scale: added to k.
    """
    lanes, one = tiles.shape[2], scores.dtype.type
    some, sums = np.empty((_ROWS, X.shape[1]), tiles.dtype), np.empty((_ROWS, lanes), tiles.dtype)
    for begin in range(first, end, _ROWS):
        count = min(_ROWS, end - begin)
        for r in range(count):
            i = np.uint64(ids[begin + r])
            for j in range(np.uint64(X.shape[1])):
                some[np.uint64(r), j] = X[i, j]
        for t in range(len(tiles)):
            _multiply(some, count, tiles[t], sums)
            for r in range(count):
                square = squares[ids[begin + r]]
                for m in range(max(t * lanes, included[begin + r] - since), min(t * lanes + lanes, len(signed))):
                    value = one(_kernel(sums[r, m - t * lanes], square, others[m], how[0], how[1], how[2]))
                    for k in range(signed.shape[1]):
                        scores[begin + r, k] += (value + one(bias_scale)) * signed[m, k]


@njit
def _wrong_class(scores, own, tie, margin):
    """The class that a sample is taken for by its scores, ``own`` if it is no mistake."""
    if len(scores) == 1:
        return -own if _mistaken(own * np.float64(scores[0]), own, tie, margin) else own
    rival = np.int64(-1)
    for k in range(len(scores)):
        if k != own and (rival < 0 or scores[k] > scores[rival]):
            rival = k
    slack = np.float64(scores[own] - scores[rival])
    tied = slack == margin and (tie == UPDATE or (tie == SIGN and rival < own))
    return rival if slack < margin or tied else own


@njit(cache=True, nogil=True)
def learn_block(X, squares, ids, y, coefs, scores, how, bias_scale, tie, margin, kind_of, position, wrong, norm):
    """Present a block of samples whose scores are up to date; a mistake changes the scores of the whole block.

    Returns the number of mistakes, or −1 if a score is not finite. ``norm[0]`` is ‖w‖², which is kept up. ``kind_of``
    is an array of the type of the inner products.
    """
    found, one = 0, scores.dtype.type
    z = np.empty(X.shape[1], kind_of.dtype)
    x = np.empty(X.shape[1], kind_of.dtype)
    for p in range(len(ids)):
        own = y[ids[p]]
        for k in range(scores.shape[1]):
            if not math.isfinite(scores[p, k]):
                return -1
        r = _wrong_class(scores[p], own, tie, margin)
        if r == own:
            continue
        coef = _of(coefs, ids[p])
        plus = own if scores.shape[1] > 1 else 0
        step = one(coef if scores.shape[1] > 1 else coef * own)
        before = np.float64(scores[p, plus]) - (np.float64(scores[p, r]) if scores.shape[1] > 1 else 0.0)
        z[:] = X[ids[p]]
        for q in range(len(ids)):
            x[:] = X[ids[q]]
            dot = _dot(x, z)
            value = one(_kernel(dot, squares[ids[q]], squares[ids[p]], how[0], how[1], how[2])) + one(bias_scale)
            scores[q, plus] += value * step
            if scores.shape[1] > 1:
                scores[q, r] -= value * step
            if q == p:
                pairs = 1.0 if scores.shape[1] == 1 else 2.0
                norm[0] += 2.0 * np.float64(step) * before + pairs * np.float64(step) ** 2 * np.float64(value)
        position[found], wrong[found] = p, r
        found += 1
    for k in range(scores.shape[1]):
        for p in range(len(ids)):
            if not math.isfinite(scores[p, k]):
                return -1
    return found
