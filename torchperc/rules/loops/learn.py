"""A pass of the rule over the samples, compiled; near ties are decided exactly, see :mod:`.engines.rounding`.

Each loop is compiled for dense and for CSR rows, in which samples and weights lie as :mod:`torchperc.samples.loops`
says.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from torchperc.samples.loops import SUM, add, dot, dots, of_class, row, squares

UPDATE, SIGN, STRICT = 0, 1, 2
UNCLEAR = -(2**31)  # in the place of the class a sample is taken for: double precision does not tell


@njit(fastmath=SUM)
def _precise(x, columns, w, b):
    """Return w·x + b in double precision and its largest error, which is 0 for sums of integers."""
    total = np.float64(b)
    size, fraction, terms = abs(total), abs(total - np.rint(total)), 0
    for j in range(x.size):
        p, q = np.float64(x[j]), np.float64(w[j if columns is None else np.uint32(columns[j])])
        total += p * q
        size += abs(p * q)
        fraction += abs(p - np.rint(p)) + abs(q - np.rint(q))
        terms += (p != 0.0) & (q != 0.0)
    if terms == 0 or (fraction == 0.0 and size < 2.0**53):
        return total, 0.0
    return total, 1.01 * (terms + 2) * (2.0**-53 * size + 2.0**-1070)


@njit
def _decide(x, columns, label, w, b, tie, margin, limit, scores, errors):
    """Return the class a sample is taken for, ``label`` if it is no mistake, or ``UNCLEAR``."""
    for k in range(b.size):
        scores[k], errors[k] = _precise(x, columns, of_class(columns, w, k), b[k])
        if not abs(scores[k]) + errors[k] < limit:
            return UNCLEAR
    if b.size == 1:
        rival, slack, error, loses_tie = -label, label * scores[0], errors[0], label < 0  # 0 is decided as +1
    else:
        rival = -1
        for k in range(b.size):
            if k != label and (rival < 0 or scores[k] > scores[rival]):
                rival = k
        slack, error, loses_tie = scores[label] - scores[rival], errors[label] + errors[rival], rival < label
    if slack > margin + error:
        return label
    if not slack < margin - error:
        if error > 0.0:
            return UNCLEAR
        if not (tie == UPDATE or (tie == SIGN and loses_tie)):
            return label
    if b.size > 1:
        for k in range(b.size):  # whether another wrong class may be stronger
            error = errors[k] + errors[rival]
            if k != label and k != rival and error > 0.0 and not scores[rival] - scores[k] > error:
                return UNCLEAR
    return rival


@njit
def _error(w, b, rounding):
    """Return the largest error of the difference of two scores now; infinite if one may overflow before the next look.

    The norm of the weights is at least as large as that of each class; squares of tiny weights vanish.
    """
    gamma, radius, floor, limit, growth, period = rounding
    size = (math.sqrt(squares(w.reshape(-1))) + 2.0**-536 * math.sqrt(np.float64(w.size))) * radius
    largest = 0.0
    for k in range(b.size):
        largest = max(largest, abs(np.float64(b[k])))
    size += largest
    return 2.0 * (gamma * size + floor) if size + period * growth < 0.25 * limit else np.inf


@njit(forceinline=True)
def update(x, columns, coef, own, wrong, w, b, bias_scale):
    """Make one update: w_own += coef·x, w_wrong −= coef·x; with one score the coefficient has the label's sign."""
    if w.ndim == 1:
        add(x, columns, coef, w)
        b[0] += b.dtype.type(coef * bias_scale)
    else:
        add(x, columns, coef, of_class(columns, w, own))
        add(x, columns, -coef, of_class(columns, w, wrong))
        b[own] += b.dtype.type(coef * bias_scale)
        b[wrong] += b.dtype.type(-coef * bias_scale)


@njit(cache=True, nogil=True)
def learn_two(rows, at, ids, y, coefs, w, b, bias_scale, tie, margin, rounding, first, position, wrong, made):
    """Present samples with labels −1/+1 from position ``first`` on: make the updates, record the mistakes.

    Where rounding leaves a decision open, it is made in double precision; where that leaves it open, the loop stops.

    Args:
        rows: the samples.
        at: their numbers in ``rows``.
        ids: their numbers in ``y`` and ``coefs``.
        y: labels.
        coefs: the step size of each sample.
        w: weights, changed in place.
        b: bias, changed in place.
        bias_scale: the bias step for a step size of 1.
        tie: ``UPDATE``, ``SIGN`` or ``STRICT``.
        margin: the slack that every sample must exceed.
        rounding: γ, the largest ‖x‖, the error of tiny products, the largest number of the type, by how much an update
            raises a score at most, and after how many updates the norm of the weights is computed anew.
        first: where to begin.
        position: the positions of mistakes, filled from ``made`` on.
        wrong: what they were taken for.
        made: the number of mistakes recorded before.

    Returns:
        the position where it stopped, ``len(at)`` at the end, and the number of mistakes recorded.
    """
    gamma, _, _, limit, growth, period = rounding
    scores, errors = np.empty(1), np.empty(1)
    bias, error, since = b[0], _error(w, b, rounding), 0
    low, high = margin - error, margin + error
    for p in range(first, at.size):
        x, columns = row(rows, at[p])
        label = y[ids[p]]
        slack = label * (dot(x, columns, w) + bias)
        if slack > high:
            continue
        if not slack < low:
            taken = _decide(x, columns, label, w, b, tie, margin, limit, scores, errors)
            if taken == UNCLEAR:
                return p, made
            if taken == label:
                continue
        coef = coefs[ids[p]]
        update(x, columns, coef * label, label, -label, w, b, bias_scale)
        position[made], wrong[made] = p, -label
        made += 1
        bias, error, since = b[0], error + 2.0 * gamma * growth, since + 1
        if since == period:
            error, since = _error(w, b, rounding), 0
        low, high = margin - error, margin + error
    return at.size, made


@njit(cache=True, nogil=True)
def learn_classes(rows, at, ids, y, coefs, w, b, bias_scale, tie, margin, rounding, first, position, wrong, made):
    """Present samples with class indices; otherwise as :func:`learn_two`."""
    gamma, _, _, limit, growth, period = rounding
    out, scores, errors = np.empty(b.size, w.dtype), np.empty(b.size), np.empty(b.size)
    error, since = _error(w, b, rounding), 0
    for p in range(first, at.size):
        x, columns = row(rows, at[p])
        label, rival = y[ids[p]], -1
        dots(x, columns, w, out)
        for k in range(b.size):
            out[k] += b[k]
            if k != label and (rival < 0 or out[k] > out[rival]):
                rival = k
        slack = out[label] - out[rival]
        if slack > margin + error:
            continue
        sure = slack < margin - error
        for k in range(b.size):
            sure &= k in (label, rival) or out[rival] - out[k] > error
        if not sure:
            rival = _decide(x, columns, label, w, b, tie, margin, limit, scores, errors)
            if rival == UNCLEAR:
                return p, made
            if rival == label:
                continue
        coef = coefs[ids[p]]
        update(x, columns, coef, label, rival, w, b, bias_scale)
        position[made], wrong[made] = p, rival
        made += 1
        error, since = error + 2.0 * gamma * growth, since + 1
        if since == period:
            error, since = _error(w, b, rounding), 0
    return at.size, made


@njit(cache=True, nogil=True)
def replay(rows, at, coefs, own, wrong, w, b, bias_scale):
    """Make the updates of log entries again, in their order."""
    for p in range(at.size):
        x, columns = row(rows, at[p])
        update(x, columns, coefs[p], own[p], wrong[p], w, b, bias_scale)


@njit(cache=True, nogil=True)
def unfold(rows, at, coefs, own, wrong, w, b, bias_scale, states, biases):
    """Make the updates of log entries in their order, and keep the weights after each."""
    for p in range(at.size):
        x, columns = row(rows, at[p])
        update(x, columns, coefs[p], own[p], wrong[p], w, b, bias_scale)
        states[p] = w
        biases[p] = b


@njit(cache=True, nogil=True)
def settle(rows, pairs, weights, biases, labels, out):
    """Decide pairs of a sample and a state in double precision; ``UNCLEAR`` where that does not tell."""
    scores, errors = np.empty(biases.shape[1]), np.empty(biases.shape[1])
    for p in range(len(pairs)):
        i, s = pairs[p]
        x, columns = row(rows, i)
        out[p] = _decide(x, columns, labels[i, s], weights[s], biases[s], SIGN, 0.0, np.inf, scores, errors)
