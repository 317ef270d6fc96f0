"""A pass of the rule over the samples: find mistakes, make updates; replay a log; survey losses."""

from __future__ import annotations

import math

import numpy as np
from numba import njit
from numba.extending import overload

from torchperc.rules.loops.exact import BOUND, _moved, _side, lengthen, light_off, renew
from torchperc.samples.loops import (
    UNSURE,
    _add,
    _length,
    _look,
    _score,
    _score_and_square,
    _scores,
    _scores_of_four,
)

UPDATE, SIGN, STRICT = 0, 1, 2
OVERFLOW = -(2**31)  # in the place of the class a sample was taken for: its score is not finite


@njit
def _of(coefs, i):
    """The coefficient of sample i; one stands for all if they are equal."""
    return coefs[i] if len(coefs) > 1 else coefs[0]


@njit
def _mistaken(slack, own, tie, margin):
    """Whether the slack y·s of one score is a mistake."""
    return slack < margin or (slack == margin and (tie == UPDATE or (tie == SIGN and own < 0)))


@njit
def _rival(rows, i, own, w, b, tie, margin, out, near):
    """With K scores (the bias is still to be added), the class a sample is taken for, or ``own``, or ``OVERFLOW``."""
    rival, best, finite = np.int64(-1), -np.inf, True
    for k in range(len(b)):
        out[k] += b[k]
        value = np.float64(out[k])
        finite = finite and math.isfinite(value)
        if k != own and value > best:
            rival, best = k, value
    if not finite:
        return OVERFLOW
    slack = np.float64(out[own]) - best
    if slack > margin + 2.0 * near[BOUND]:
        return own
    if near[BOUND] > 0.0:  # the strongest wrong class, too, is found out exactly
        lowest = best - 2.0 * near[BOUND]
        for k in range(len(b)):
            if k != own and k != rival and out[k] >= lowest:
                side = _side(rows, i, w, b, k, rival, 1, 0.0, np.float64(out[k]) - np.float64(out[rival]), near)
                if side > 0 or (side == 0 and k < rival):
                    rival = k
        slack = np.float64(out[own]) - np.float64(out[rival])
    side = _side(rows, i, w, b, own, rival, 1, margin, slack, near)
    return rival if side < 0 or (side == 0 and (tie == UPDATE or (tie == SIGN and rival < own))) else own


def _taken_for(rows, i, own, w, b, tie, margin, out, near):  # pragma: no cover - compiled
    """The class a sample is taken for, ``own`` if it is no mistake, ``OVERFLOW`` if a score is not finite."""


@overload(_taken_for)
def _taken_for_of(rows, i, own, w, b, tie, margin, out, near):
    if w.ndim == 1:

        def one(rows, i, own, w, b, tie, margin, out, near):
            slack = np.float64(own) * np.float64(_score(rows, i, w) + b[0])
            if not math.isfinite(slack):
                return OVERFLOW
            side = _side(rows, i, w, b, 0, -1, own, margin, slack, near)
            return -own if _mistaken(np.float64(side), own, tie, 0.0) else own

        return one

    def many(rows, i, own, w, b, tie, margin, out, near):
        _scores(rows, i, w, out)
        return _rival(rows, i, own, w, b, tie, margin, out, near)

    return many


def update(rows, i, coef, own, wrong, w, b, bias_scale):  # pragma: no cover - compiled
    """One entry's update: w_own += coef·x, w_wrong −= coef·x; with one score the coefficient has the label's sign."""


@overload(update)
def _update_of(rows, i, coef, own, wrong, w, b, bias_scale):
    if w.ndim == 1:

        def one(rows, i, coef, own, wrong, w, b, bias_scale):
            _add(rows, i, w.dtype.type(coef * own), w, 0)
            if bias_scale:
                b[0] += b.dtype.type(coef * own * bias_scale)

        return one

    def many(rows, i, coef, own, wrong, w, b, bias_scale):
        _add(rows, i, w.dtype.type(coef), w, own)
        _add(rows, i, w.dtype.type(-coef), w, wrong)
        if bias_scale:
            b[own] += b.dtype.type(coef * bias_scale)
            b[wrong] += b.dtype.type(-coef * bias_scale)

    return many


@njit
def _corrected(rows, i, own, coef, w, b, bias_scale, tie, margin, near, slack):
    """With one score, whether a sample that may be a mistake is one; then its update is made."""
    side = _side(rows, i, w, b, 0, -1, own, margin, np.float64(slack), near)
    if not _mistaken(np.float64(side), own, tie, 0.0):
        return False
    _add(rows, i, w.dtype.type(coef), w, 0)
    b[0] += w.dtype.type(coef * bias_scale)
    _moved(coef, w, b, near)
    return True


def _learn(
    rows, at, ids, y, coefs, w, b, bias_scale, tie, margin, near, low, position, wrong, found
):  # pragma: no cover
    """:func:`learn`, by the number of scores."""


@overload(_learn)
def _learn_of(rows, at, ids, y, coefs, w, b, bias_scale, tie, margin, near, low, position, wrong, found):
    if len(rows) > 3:

        def light(rows, at, ids, y, coefs, w, b, bias_scale, tie, margin, near, low, position, wrong, found):
            out, p, high = np.empty(len(b) + 8, w.dtype), np.int64(low), np.int64(len(at))
            while True:
                p, r = _look(rows, at, ids, y, b, margin, light_off(near), p, high, out)
                if p == high:
                    return found
                own, coef = y[ids[p]], _of(coefs, ids[p])
                if r == UNSURE:
                    r = _taken_for(rows, at[p], own, w, b, tie, margin, out, near)
                if r == OVERFLOW:
                    return -1 - p
                if r != own:
                    update(rows, at[p], coef, own, r, w, b, bias_scale)
                    _moved(coef, w, b, near)
                    position[found], wrong[found] = p, r
                    found += 1
                p += 1

        return light

    if w.ndim == 1:

        def one(rows, at, ids, y, coefs, w, b, bias_scale, tie, margin, near, low, position, wrong, found):
            bias, beyond = b[0], margin + 2.0 * near[BOUND]  # in registers: the compiler cannot know that w is not b
            for p in range(np.uint64(low), np.uint64(len(at))):
                own = y[ids[p]]
                slack = w.dtype.type(own) * (_score(rows, at[p], w) + bias)
                if slack > beyond and slack < np.inf:
                    continue
                if not math.isfinite(slack):
                    return -1 - np.int64(p)
                coef = _of(coefs, ids[p]) * own
                if _corrected(rows, at[p], own, coef, w, b, bias_scale, tie, margin, near, slack):
                    bias, beyond = b[0], margin + 2.0 * near[BOUND]
                    position[np.uint64(found)], wrong[np.uint64(found)] = p, -own
                    found += 1
            return found

        return one

    if len(rows) == 1:

        def ahead(rows, at, ids, y, coefs, w, b, bias_scale, tie, margin, near, low, position, wrong, found):
            out, gap, since, p = np.empty((4, len(b) + 8), w.dtype), 8.0, 0.0, low
            while p < len(at):
                many = 4 if gap > 4.0 and p + 4 <= len(at) else 1  # scored with the weights as they are
                if many == 4:
                    _scores_of_four(rows[0], at[p], at[p + 1], at[p + 2], at[p + 3], w, out)
                else:
                    _scores(rows, at[p], w, out[0])
                for m in range(many):  # and used up to the first mistake
                    own = y[ids[p]]
                    r = _rival(rows, at[p], own, w, b, tie, margin, out[m], near)
                    since += 1.0
                    p += 1
                    if r == own:
                        continue
                    if r == OVERFLOW:
                        return -p
                    update(rows, at[p - 1], _of(coefs, ids[p - 1]), own, r, w, b, bias_scale)
                    _moved(_of(coefs, ids[p - 1]), w, b, near)
                    position[found], wrong[found] = p - 1, r
                    found += 1
                    gap, since = gap + (since - gap) / 8.0, 0.0
                    break
            return found

        return ahead

    def many(rows, at, ids, y, coefs, w, b, bias_scale, tie, margin, near, low, position, wrong, found):
        out = np.empty(len(b) + 8, w.dtype)
        for p in range(low, len(at)):
            own = y[ids[p]]
            _scores(rows, at[p], w, out)
            r = _rival(rows, at[p], own, w, b, tie, margin, out, near)
            if r == own:
                continue
            if r == OVERFLOW:
                return -1 - p
            update(rows, at[p], _of(coefs, ids[p]), own, r, w, b, bias_scale)
            _moved(_of(coefs, ids[p]), w, b, near)
            position[found], wrong[found] = p, r
            found += 1
        return found

    return many


@njit(cache=True, nogil=True)
def learn(rows, at, ids, y, coefs, w, b, bias_scale, tie, margin, near, low, position, wrong, found):
    """Present the samples from position ``low`` on; record each mistake and make its update.

    Returns the number of recorded mistakes; if a score is not finite, −1 − its position.
    """
    renew(w, b, near)
    return _learn(rows, at, ids, y, coefs, w, b, bias_scale, tie, margin, near, low, position, wrong, found)


def _learn_unseen(
    rows, at, ids, y, coefs, w, b, bias_scale, tie, margin, near, low, position, wrong, found, block
):  # pragma: no cover
    """:func:`learn_unseen`, by the number of scores."""


@overload(_learn_unseen)
def _learn_unseen_of(rows, at, ids, y, coefs, w, b, bias_scale, tie, margin, near, low, position, wrong, found, block):
    if w.ndim == 1:

        def one(rows, at, ids, y, coefs, w, b, bias_scale, tie, margin, near, low, position, wrong, found, block):
            bias, beyond, longest = b[0], margin + 2.0 * near[BOUND], w.dtype.type(0)
            for p in range(np.uint64(low), np.uint64(len(at))):
                own = y[ids[p]]
                score, square = _score_and_square(rows, at[p], w)
                if not square <= longest:
                    if not square < np.inf:
                        return -1 - np.int64(p)
                    longest = square
                    lengthen(np.float64(square), w, b, bias_scale, near)
                    beyond = margin + 2.0 * near[BOUND]
                slack = w.dtype.type(own) * (score + bias)
                if slack > beyond and slack < np.inf:
                    continue
                if not math.isfinite(slack):
                    return -1 - np.int64(p)
                coef = _of(coefs, ids[p]) * own
                if _corrected(rows, at[p], own, coef, w, b, bias_scale, tie, margin, near, slack):
                    bias, beyond = b[0], margin + 2.0 * near[BOUND]
                    position[np.uint64(found)], wrong[np.uint64(found)] = p, -own
                    found += 1
            return found

        return one

    axis = 1 if len(rows) == 1 else 0

    def many(rows, at, ids, y, coefs, w, b, bias_scale, tie, margin, near, low, position, wrong, found, block):
        while low < len(at) and found >= 0:
            high, longest = min(low + block, len(at)), 0.0
            for p in range(low, high):
                square = _length(rows, at[p], w.shape[axis])
                if not square < np.inf:
                    return -1 - p
                longest = max(longest, square)
            lengthen(longest, w, b, bias_scale, near)
            rest = (coefs, w, b, bias_scale, tie, margin, near, low, position, wrong, found)
            found = _learn(rows, at[:high], ids, y, *rest)
            low = high
        return found

    return many


@njit(cache=True, nogil=True)
def learn_unseen(rows, at, ids, y, coefs, w, b, bias_scale, tie, margin, near, low, position, wrong, found, block):
    """:func:`learn` from samples that nobody has looked at yet: each is looked at right before it is learned.

    One score looks at a sample while it is added up, K scores at a block of samples that stays in the cache. Also
    returns −1 − its position if a sample cannot be learned as it is: if a number in it is not finite or its square
    overflows, or if the columns of a CSR row do not rise within the width.
    """
    renew(w, b, near)
    rest = (coefs, w, b, bias_scale, tie, margin, near, low, position, wrong, found)
    return _learn_unseen(rows, at, ids, y, *rest, block)


@njit(cache=True, nogil=True)
def replay(rows, at, coefs, own, wrong, w, b, bias_scale):
    """Make the updates of log entries again, in their order."""
    for p in range(len(at)):
        update(rows, at[p], coefs[p], own[p], wrong[p], w, b, bias_scale)


def _slack(rows, i, own, w, b, out):  # pragma: no cover - compiled
    """y·s, or s_y − s_r against the strongest wrong class."""


@overload(_slack)
def _slack_of(rows, i, own, w, b, out):
    if w.ndim == 1:

        def one(rows, i, own, w, b, out):
            return own * np.float64(_score(rows, i, w) + b[0])

        return one

    def many(rows, i, own, w, b, out):
        _scores(rows, i, w, out)
        best = -np.inf
        for k in range(len(b)):
            if k != own:
                best = max(best, np.float64(out[k] + b[k]))
        return np.float64(out[own] + b[own]) - best

    return many


@njit(cache=True, nogil=True)
def survey(rows, y, w, b, first, end):
    """Σ max(0, −slack) and the smallest slack, of the samples from ``first`` to ``end``."""
    out = np.empty(len(b) + 8, w.dtype)
    loss, least = 0.0, np.inf
    for i in range(np.uint64(first), np.uint64(end)):
        slack = _slack(rows, i, y[i], w, b, out)
        loss += max(0.0, -slack)
        least = min(least, slack)
    return loss, least
