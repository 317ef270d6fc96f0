"""Scores within rounding of a limit, decided in exact arithmetic, see :mod:`torchperc.rules.engines.rounding`."""

from __future__ import annotations

import math

import numpy as np
from numba import njit
from numba.extending import overload

from torchperc.samples.loops import SUM, _squares

BOUND, UNIT, GAMMA, RADIUS, FLOOR, STEP, COUNT, PERIOD, NEAR = 0, 1, 2, 3, 4, 5, 6, 7, 8
"""Places in the array that says how far a score can be off: the bound now, what it is made of, when to renew it."""
_LIMBS, _LOWEST = 144, 2256
_LOW27, _LOW32 = 2**27 - 1, 2**32 - 1


def _terms(rows, i, w):  # pragma: no cover - compiled
    """How many products the score of a sample adds up."""


@overload(_terms)
def _terms_of(rows, i, w):
    if len(rows) == 1:
        return lambda rows, i, w: rows[0].shape[1]
    return lambda rows, i, w: np.int64(rows[2][i + np.uint64(1)]) - np.int64(rows[2][i])


def _term(rows, i, t, w, k):  # pragma: no cover - compiled
    """The factors of one of them, in double precision, for score k."""


@overload(_term)
def _term_of(rows, i, t, w, k):
    if len(rows) == 1 and w.ndim == 1:
        return lambda rows, i, t, w, k: (np.float64(rows[0][i, t]), np.float64(w[t]))
    if len(rows) == 1:
        return lambda rows, i, t, w, k: (np.float64(rows[0][i, t]), np.float64(w[k, t]))
    if w.ndim == 1:

        def one(rows, i, t, w, k):
            j = np.int64(rows[2][i]) + t
            return np.float64(rows[0][j]), np.float64(w[rows[1][j]])

        return one

    def many(rows, i, t, w, k):
        j = np.int64(rows[2][i]) + t
        return np.float64(rows[0][j]), np.float64(w[rows[1][j], k])

    return many


@njit
def _put(limbs, value, place, negative):
    """Add ±value·2^place, value < 2^54, to a number of 32-bit limbs."""
    for half in (value & _LOW27, value >> 27):
        limb, shifted = place >> 5, half << (place & 31)
        low, high = shifted & _LOW32, shifted >> 32
        limbs[limb] += -low if negative else low
        limbs[limb + 1] += -high if negative else high
        place += 27


@njit
def _put_product(limbs, x, w, negative):
    """Add ±x·w, exactly."""
    if x == 0.0 or w == 0.0:
        return
    mx, ex = math.frexp(x)
    mw, ew = math.frexp(w)
    if (mx < 0) != (mw < 0):
        negative = not negative
    a, c = np.int64(abs(mx) * 2.0**53), np.int64(abs(mw) * 2.0**53)
    place = np.int64(ex) + np.int64(ew) - 106 + _LOWEST
    a0, a1, c0, c1 = a & _LOW27, a >> 27, c & _LOW27, c >> 27
    _put(limbs, a0 * c0, place, negative)
    _put(limbs, a0 * c1 + a1 * c0, place + 27, negative)
    _put(limbs, a1 * c1, place + 54, negative)


@njit
def _put_score(limbs, rows, i, w, b, k, negative):
    """Add ±(w_k·x_i + b_k), exactly."""
    for t in range(_terms(rows, i, w)):
        x, v = _term(rows, i, t, w, k)
        _put_product(limbs, x, v, negative)
    _put_product(limbs, np.float64(b[k]), 1.0, negative)


@njit
def _sign_of(limbs):
    """−1, 0 or 1."""
    carry, anything = 0, False
    for n in range(len(limbs)):
        value = limbs[n] + carry
        carry = value >> 32
        anything = anything or (value & _LOW32) != 0
    return -1 if carry < 0 else np.int64(anything)


@njit(cache=True, nogil=True)
def exact_side(rows, i, w, b, plus, minus, sign, limit):
    """The sign of sign·s_plus − s_minus − limit in exact arithmetic; without the second score if ``minus`` < 0."""
    limbs = np.zeros(_LIMBS, np.int64)
    _put_score(limbs, rows, i, w, b, plus, sign < 0)
    if minus >= 0:
        _put_score(limbs, rows, i, w, b, minus, True)
    _put_product(limbs, limit, 1.0, True)
    return _sign_of(limbs)


@njit
def _side(rows, i, w, b, plus, minus, sign, limit, value, near):
    """The sign of sign·s_plus − s_minus − limit, of which ``value`` is the rounded difference of scores."""
    apart = value - limit
    if near[BOUND] == 0.0 or abs(apart) > 2.0 * near[BOUND]:
        return np.int64(apart > 0) - np.int64(apart < 0)
    size, whole = abs(np.float64(b[plus])) + abs(limit), b[plus] == np.floor(b[plus]) and limit == np.floor(limit)
    terms = _terms(rows, i, w)
    for t in range(terms):
        x, v = _term(rows, i, t, w, plus)
        size += abs(x * v)
        whole = whole and x == np.floor(x) and v == np.floor(v)
    if minus >= 0:
        size += abs(np.float64(b[minus]))
        whole = whole and b[minus] == np.floor(b[minus])
        for t in range(terms):
            x, v = _term(rows, i, t, w, minus)
            size += abs(x * v)
            whole = whole and v == np.floor(v)
    relative = (terms + 4) * near[UNIT]
    if (whole and size < 0.5 / near[UNIT]) or (relative < 0.5 and abs(apart) > 2.02 * relative * size + near[FLOOR]):
        return np.int64(apart > 0) - np.int64(apart < 0)
    return exact_side(rows, i, w, b, plus, minus, sign, limit)


@njit(fastmath=SUM)
def renew(w, b, near):
    """The bound for the weights as they are, at the start and from time to time."""
    flat = w.reshape(-1)
    largest = 0.0
    for k in range(len(b)):
        largest = max(largest, abs(np.float64(b[k])))
    length = math.sqrt(_squares(flat)) + 2.0**-536 * math.sqrt(np.float64(len(flat)))
    near[BOUND] = near[GAMMA] * (length * near[RADIUS] + largest) + near[FLOOR]
    near[COUNT] = 0.0


@njit
def _moved(coef, w, b, near):
    """The bound after an update with this coefficient."""
    near[BOUND] += near[GAMMA] * near[STEP] * abs(coef)
    near[COUNT] += 1.0
    if near[COUNT] >= near[PERIOD]:
        renew(w, b, near)
