"""The compiled passes of the rule; near ties are decided exactly, see :mod:`torchperc.rules.decision`.

Each loop is compiled for dense and for CSR rows, in which samples and weights lie as :mod:`torchperc.samples.loops`
says.
"""

from __future__ import annotations

import math
from functools import cache

import numpy as np
from numba import cfunc, njit, types

from torchperc.rules import decision
from torchperc.rules.decision import UNCLEAR, UPDATE
from torchperc.samples.loops import SUM, add, dot, dots, loop, of_class, row, squares

predicted_as = njit(decision.predicted_as)


@njit(fastmath=SUM)
def _precise_score(x, columns, w, b):
    """Return w·x + b in double precision, Σ|w·x| + |b|, and how far all numbers are from integers."""
    total = np.float64(b)
    size, fraction = abs(total), abs(total - np.rint(total))
    for j in range(x.size):
        p, q = np.float64(x[j]), np.float64(w[j if columns is None else np.uint32(columns[j])])
        total += p * q
        size += abs(p * q)
        fraction += abs(p - np.rint(p)) + abs(q - np.rint(q))
    return total, size, fraction


@njit
def predicted_precisely(x, columns, w, b, label, tie, margin, limit, scores):
    """Decide by scores in double precision, which are exact for sums of integers; see ``predicted_as``."""
    largest, fraction = 0.0, 0.0
    for k in range(b.size):
        scores[k], size, apart = _precise_score(x, columns, of_class(columns, w, k), b[k])
        largest, fraction = max(largest, size), fraction + apart
        if not size < limit:
            return UNCLEAR
    exact = fraction == 0.0 and largest < 2.0**53
    error = 0.0 if exact else 1.01 * (x.size + 2) * (2.0**-53 * largest + 2.0**-1070)
    return predicted_as(scores, label, tie, margin, error)


@njit
def score_error(w, b, bound, reserve):
    """Return the largest rounding error of a score; infinite if one may overflow before the norm is computed anew.

    The norm of all weights is at least that of each class; squares of tiny weights vanish.
    """
    size = (math.sqrt(squares(w.reshape(-1))) + 2.0**-536 * math.sqrt(np.float64(w.size))) * bound.radius
    largest = 0.0
    for k in range(b.size):
        largest = max(largest, abs(np.float64(b[k])))
    size += largest
    return bound.gamma * size + bound.floor if size + reserve < bound.limit else np.inf


@njit(forceinline=True)
def update(x, columns, label, predicted, coef, w, b, bias_step):
    """Make one update: w_label += coef·x, w_predicted −= coef·x; with one score, coef has the label's sign."""
    if w.ndim == 1:
        add(x, columns, coef, w)
        b[0] += b.dtype.type(coef * bias_step)
    else:
        add(x, columns, coef, of_class(columns, w, label))
        add(x, columns, -coef, of_class(columns, w, predicted))
        b[label] += b.dtype.type(coef * bias_step)
        b[predicted] += b.dtype.type(-coef * bias_step)


@loop()
def margins_two(rows, y, w, b, out):
    """Compute y·s of samples with labels −1/+1, several times as fast as MKL's product of a matrix and a vector."""
    for i in range(y.size):
        x, columns = row(rows, i)
        out[i] = y[i] * (dot(x, columns, w) + b[0])


@loop()
def learn_two(rows, ids, y, step_sizes, w, b, settings, first, at, predicted, made):
    """Present samples with labels −1/+1 from position ``first`` on: make the updates, record the mistakes.

    Where rounding leaves a decision open, it is made in double precision; where that leaves it open, the loop stops.
    ``w`` and ``b`` are changed in place; ``at`` (positions in ``ids``) and ``predicted`` are filled from ``made`` on.
    Returns the position where it stopped, ``len(ids)`` at the end, and the number of mistakes recorded.
    """
    bound, margin, growth, refresh = settings.bound, settings.margin, settings.growth, settings.refresh
    scores, since, reserve = np.empty(1), 0, refresh * growth
    # within this distance of the margin a rounded score leaves the decision open: 2 errors of a score, see predicted_as
    bias, unclear = b[0], 2.0 * score_error(w, b, bound, reserve)
    low, high = margin - unclear, margin + unclear
    for p in range(first, ids.size):
        i = ids[p]
        x, columns = row(rows, i)
        label = y[i]
        functional_margin = label * (dot(x, columns, w) + bias)
        if functional_margin > high:
            continue
        if not functional_margin < low:
            found = predicted_precisely(x, columns, w, b, label, settings.tie, margin, bound.limit, scores)
            if found == UNCLEAR:
                return p, made
            if found == label:
                continue
        update(x, columns, label, -label, step_sizes[i] * label, w, b, settings.bias_step)
        at[made], predicted[made] = p, -label
        made += 1
        bias, unclear, since = b[0], unclear + 2.0 * bound.gamma * growth, since + 1
        if since == refresh:
            unclear, since = 2.0 * score_error(w, b, bound, reserve), 0
        low, high = margin - unclear, margin + unclear
    return ids.size, made


@loop()
def learn_classes(rows, ids, y, step_sizes, w, b, settings, first, at, predicted, made):
    """Present samples with class indices; otherwise as :func:`learn_two`."""
    bound, margin, growth, refresh = settings.bound, settings.margin, settings.growth, settings.refresh
    out, scores, since, reserve = np.empty(b.size, w.dtype), np.empty(b.size), 0, refresh * growth
    error = score_error(w, b, bound, reserve)
    for p in range(first, ids.size):
        i = ids[p]
        x, columns = row(rows, i)
        label = y[i]
        dots(x, columns, w, out)
        for k in range(b.size):
            out[k] += b[k]
        found = predicted_as(out, label, settings.tie, margin, error)
        if found == UNCLEAR:
            found = predicted_precisely(x, columns, w, b, label, settings.tie, margin, bound.limit, scores)
            if found == UNCLEAR:
                return p, made
        if found == label:
            continue
        update(x, columns, label, found, step_sizes[i], w, b, settings.bias_step)
        at[made], predicted[made] = p, found
        made += 1
        error, since = error + bound.gamma * growth, since + 1
        if since == refresh:
            error, since = score_error(w, b, bound, reserve), 0
    return ids.size, made


@njit
def settled(w, b, a, limit=2.0**20):
    """Return the factor of weights that stand for a·w; one beyond the limit is multiplied into them."""
    if 1.0 / limit < a < limit:
        return a
    w *= w.dtype.type(a)
    b *= b.dtype.type(a)
    return 1.0


@cache
def compiled_step(step):
    """Return a rule's step as a pointer to a compiled function, for which the loop is compiled once."""
    number = types.float64
    signature = types.UniTuple(number, 2)(number, number, number, number, number[::1])
    return cfunc(signature, cache=step.__module__.startswith("torchperc."), error_model="numpy")(step)


@loop()
def learn_by_rule(
    rows, ids, y, step_sizes, required, squared, w, b, bias_step, tie, counts, step, parameters, norm, k, at, predicted,
    coefs, factors,
):  # fmt: skip
    """Present samples to any rule, see :class:`torchperc.rules.family.RuleProblem`; −1 if a score overflows.

    Decides by rounded scores; fills ``at``, ``predicted``, ``coefs`` and ``factors`` and returns the number of updates.
    """
    a, made, scores, level = 1.0, 0, np.empty(b.size, w.dtype), math.sqrt(k) if counts else 1.0
    for p in range(ids.size):
        i = ids[p]
        x, columns = row(rows, i)
        label, margin = y[i], required[i] / level
        if w.ndim == 1:
            found, m = -label, label * a * (dot(x, columns, w) + b[0])
            if m > margin or (m == margin and tie != UPDATE):
                continue
        else:
            dots(x, columns, w, scores)
            for j in range(b.size):
                scores[j] = a * (scores[j] + b[j])
            found = predicted_as(scores, label, tie, margin, 0.0)
            if found == label:
                continue
            m = np.float64(scores[label]) - np.float64(scores[found])
        if not abs(m) < np.inf:
            return -1
        c, f = step(m, squared[i], norm, k, parameters)
        c *= step_sizes[i]
        a = settled(w, b, a * f)
        update(x, columns, label, found, (c * label if w.ndim == 1 else c) / a, w, b, bias_step)
        at[made], predicted[made], coefs[made], factors[made] = p, found, c, f
        norm = max(0.0, f * f * norm + 2.0 * f * c * m + c * c * squared[i])
        made, k = made + 1, k + 1.0
        level = math.sqrt(k) if counts else 1.0
    settled(w, b, a, 1.0)
    return made


@loop()
def replay(rows, ids, labels, predicted, coefs, factors, w, b, bias_step):
    """Make the updates of mistakes again, in their order; ``factors`` are those of old weights, or ``None``."""
    a = 1.0
    for p in range(ids.size):
        x, columns = row(rows, ids[p])
        if factors is not None:
            a = settled(w, b, a * factors[p])
        update(x, columns, labels[p], predicted[p], coefs[p] / a, w, b, bias_step)
    if factors is not None:
        settled(w, b, a, 1.0)
