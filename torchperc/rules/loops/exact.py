"""Scores within rounding of a limit, decided in exact arithmetic, see :mod:`torchperc.rules.engines.rounding`."""

from __future__ import annotations

import math

import numpy as np
from numba import njit
from numba.extending import overload

from torchperc.samples.loops import SUM, _squares

BOUND, UNIT, GAMMA, RADIUS, FLOOR, STEP, COUNT, PERIOD, LIGHT, LIGHT_FLOOR, NEAR = range(11)
"""Places in the array that says how far a score can be off: the bound now, what it is made of, when to renew it, and
how many times as far a light score can be off, and how much farther."""
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
def _sign_of(limbs):
    """−1, 0 or 1."""
    carry, anything = 0, False
    for n in range(len(limbs)):
        value = limbs[n] + carry
        carry = value >> 32
        anything = anything or (value & _LOW32) != 0
    return -1 if carry < 0 else np.int64(anything)


@njit
def _factors(rows, i, w, b, plus, minus):
    """What the scores of a sample add up, (2 or 3, terms): x, the weights of one class, of the other; the bias last.

    In double precision, so that all that follows is compiled once. Without the second score if ``minus`` < 0.
    """
    terms = _terms(rows, i, w)
    factors = np.empty((2 if minus < 0 else 3, terms + 1))
    for t in range(terms):
        factors[0, t], factors[1, t] = _term(rows, i, t, w, plus)
    factors[0, terms], factors[1, terms] = 1.0, b[plus]
    if minus >= 0:
        for t in range(terms):
            factors[2, t] = _term(rows, i, t, w, minus)[1]
        factors[2, terms] = b[minus]
    return factors


@njit
def _exact(factors, sign, limit):
    """The sign of sign·s_plus − s_minus − limit in exact arithmetic."""
    limbs = np.zeros(_LIMBS, np.int64)
    for k in range(1, len(factors)):
        for t in range(factors.shape[1]):
            _put_product(limbs, factors[0, t], factors[k, t], sign < 0 or k == 2)
    _put_product(limbs, limit, 1.0, True)
    return _sign_of(limbs)


@njit
def _near_side(factors, sign, limit, apart, near):
    """The same; in floating point if the sums are of integers, or if the bound for this very sample is small enough."""
    size, whole = abs(limit), limit == np.floor(limit)
    terms = factors.shape[1]
    for k in range(1, len(factors)):
        for t in range(terms):
            x, v = factors[0, t], factors[k, t]
            size += abs(x * v)
            whole = whole and x == np.floor(x) and v == np.floor(v)
    relative = (terms + 3) * near[UNIT]
    if (whole and size < 0.5 / near[UNIT]) or (relative < 0.5 and abs(apart) > 2.02 * relative * size + near[FLOOR]):
        return np.int64(apart > 0) - np.int64(apart < 0)
    return _exact(factors, sign, limit)


@njit(cache=True, nogil=True)
def exact_side(rows, i, w, b, plus, minus, sign, limit):
    """The sign of sign·s_plus − s_minus − limit in exact arithmetic; without the second score if ``minus`` < 0."""
    return _exact(_factors(rows, i, w, b, np.int64(plus), np.int64(minus)), np.int64(sign), limit)


@njit
def _side(rows, i, w, b, plus, minus, sign, limit, value, near):
    """The sign of sign·s_plus − s_minus − limit, of which ``value`` is the rounded difference of scores."""
    apart = value - limit
    if near[BOUND] == 0.0 or abs(apart) > 2.0 * near[BOUND]:
        return np.int64(apart > 0) - np.int64(apart < 0)
    return _near_side(_factors(rows, i, w, b, np.int64(plus), np.int64(minus)), np.int64(sign), limit, apart, near)


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


@njit
def lengthen(square, w, b, bias_scale, near):
    """The bound once a sample of this ‖x‖² has come up, where samples are looked at as they are learned."""
    radius = math.sqrt(square * (1.0 + 2.0 * near[GAMMA])) + 2.0**-63 * math.sqrt(np.float64(w.size))
    if radius > near[RADIUS]:
        near[RADIUS] = 1.1 * radius  # so that not every longer one changes it
        near[STEP] = 1.5 * near[RADIUS] ** 2 + abs(bias_scale)
        renew(w, b, near)


@njit
def light_off(near):
    """How far the difference of two light scores can be off."""
    return 2.0 * (near[LIGHT] * near[BOUND] + near[LIGHT_FLOOR])
