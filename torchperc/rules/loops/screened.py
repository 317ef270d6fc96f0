"""A pass of the rule over a copy in eight bits: a sample is read only if its code leaves open whether it is a mistake.

With x̃ the sample by its code and w̃ the weights in sixteen bits, |w·x − w̃·x̃| ≤ ‖w‖·‖x − x̃‖ + ‖w − w̃‖·‖x̃‖. A sample
whose slack by w̃·x̃ is farther above the margin than that, and than the rounding of this very sum, is no mistake; all
others are decided by the samples themselves. So the log is that of the plain loop. A sample with a number that is not
finite has a code of which nothing is certain, so that it is read.

A screen is (codes, numbers, v, sizes): codes and numbers as :mod:`torchperc.rules.loops.eightbit` makes them, the
weights in sixteen bits v (K, D), and five numbers for each class, see SIZES.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from torchperc.rules.loops.eightbit import (
    ERROR,
    LABEL,
    LARGEST,
    OFFSET,
    SCALE,
    come,
    dot,
    encode_weights,
    extent,
    five_dots,
)
from torchperc.rules.loops.exact import RADIUS, _moved, lengthen, renew
from torchperc.rules.loops.learn import OVERFLOW, _of, _taken_for, update
from torchperc.samples.loops import _squares

UNIT, SUMMED, LENGTH, LEFT, BIAS, SIZES = 0, 1, 2, 3, 4, 5
"""Of weights t·v: t, Σ t·v, at least ‖w‖, at least ‖w − t·v‖ with what rounding of a score adds, the bias."""
_AHEAD = 8  # samples between one that is scored and one that is called from memory
_SMALL = 2.0**-46  # far above the rounding of a few sums in double precision
_FLOOR = 1e-290


@njit
def bits(width):
    """How many bits weights may have beside so many codes: 2^7·2^bits·width < 2^31, where all products are added."""
    return min(15, math.ceil(24 - math.log2(width)) - 1)


@njit
def quantise(w, b, v, sizes, room, k):
    """The weights of a class in sixteen bits, and how far they are off."""
    row = w.reshape(-1, w.shape[-1])[k]
    for j in range(np.uint64(len(row))):
        room[j] = row[j]
    low, high = extent(room)
    largest = max(np.float64(high), -np.float64(low))
    length = math.sqrt(_squares(room)) * (1.0 + 1e-6) + 2.0**-536 * math.sqrt(np.float64(len(room)))
    sizes[k, BIAS], sizes[k, LENGTH] = np.float64(b[k]), length
    greatest = np.float64(np.finfo(w.dtype).max)
    if not 129.0 * LARGEST * math.sqrt(np.float64(len(room))) * length + abs(sizes[k, BIAS]) < 0.25 * greatest:
        # a score may overflow, which is for the plain loop to find out; 0·∞ would be no bound
        sizes[k, LENGTH], sizes[k, LEFT] = min(length, 1e300), np.inf
        return
    exponent = max(math.frexp(largest)[1] - bits(len(room)), -900) if largest > 0.0 else 0
    left, total = encode_weights(room, w.dtype.type(0), math.ldexp(1.0, -exponent), v[k])
    sizes[k, UNIT] = math.ldexp(1.0, exponent)
    sizes[k, SUMMED] = sizes[k, UNIT] * total
    sizes[k, LEFT] = math.sqrt(left) * sizes[k, UNIT] * (1.0 + 1e-6) + _SMALL * length


@njit(cache=True, nogil=True)
def skip(codes, numbers, v, sizes, ids, margin, low, high):
    """The first position from low to high whose sample is not certainly right by its code; ``high`` if all are."""
    classes, root = len(sizes), math.sqrt(np.float64(v.shape[1])) * (1.0 + 1e-6)
    largest = 0.0
    for k in range(classes):
        largest = max(largest, abs(sizes[k, BIAS]))
    limit = margin + _SMALL * (2.0 * largest + margin) + _FLOOR
    for p in range(np.uint64(low), np.uint64(high)):
        i = np.uint64(ids[p])
        come(codes, np.int64(ids[min(p + np.uint64(_AHEAD), np.uint64(high - 1))]))
        scale, offset = np.float64(numbers[i, SCALE]), np.float64(numbers[i, OFFSET])
        error, size = np.float64(numbers[i, ERROR]), root * (128.0 * scale + abs(offset))
        if classes == 1:
            (product,) = dot(codes, np.int64(i), v, 0)
            value = scale * (sizes[0, UNIT] * product) + offset * sizes[0, SUMMED] + sizes[0, BIAS]
            if np.float64(numbers[i, LABEL]) * value > limit + sizes[0, LENGTH] * error + sizes[0, LEFT] * size:
                continue
            return np.int64(p)
        own, least, most = np.int64(numbers[i, LABEL]), np.inf, -np.inf
        for k in range(0, classes, 5):
            products = five_dots(codes, np.int64(i), v, k)
            for c in range(k, min(k + 5, classes)):
                value = scale * (sizes[c, UNIT] * products[c - k]) + offset * sizes[c, SUMMED] + sizes[c, BIAS]
                apart = sizes[c, LENGTH] * error + sizes[c, LEFT] * size
                if c == own:
                    least = value - apart
                else:
                    most = max(most, value + apart)
        if not least - most > limit:
            return np.int64(p)
    return np.int64(high)


@njit
def _kept(source, X, slots, i):
    """Where sample i is in X, which has room for some of the source; the last place is for those that find none."""
    if slots[i] < 0:
        place = slots[-1]
        for j in range(np.uint64(X.shape[1])):
            X[place, j] = source[i, j]
        if place == len(X) - 1:
            return place
        slots[i], slots[-1] = place, place + 1
    return slots[i]


@njit(cache=True, nogil=True)
def learn_screened(
    screen, source, slots, X, ids, y, coefs, w, b, bias_scale, tie, margin, near, low, position, wrong, found
):
    """:func:`torchperc.rules.loops.learn.learn` over a copy; returns the samples that were read, too.

    If there are slots, one for each sample and one more, X is a store of samples of the source that were read lately.
    """
    codes, numbers, v, sizes = screen
    rows, read, out, room = (X,), 0, np.empty(len(b) + 8, w.dtype), np.zeros(v.shape[1], w.dtype)
    renew(w, b, near)
    for k in range(len(b)):
        quantise(w, b, v, sizes, room, k)
    while True:
        low = skip(codes, numbers, v, sizes, ids, margin, low, len(ids))
        if low >= len(ids):
            return found, read
        own, at = y[ids[low]], ids[low]
        if len(slots):
            at = np.uint64(_kept(source, X, slots, at))
        square = _squares(X[at])
        if not square < np.inf and near[RADIUS] < np.inf:  # which nobody has seen before
            return -1 - low, read
        lengthen(square, w, b, bias_scale, near)
        r = _taken_for(rows, at, own, w, b, tie, margin, out, near)
        read += 1
        if r == OVERFLOW:
            return -1 - low, read
        if r != own:
            coef = _of(coefs, ids[low])
            update(rows, at, coef, own, r, w, b, bias_scale)
            _moved(coef, w, b, near)
            if len(b) == 1:
                quantise(w, b, v, sizes, room, 0)
            else:
                quantise(w, b, v, sizes, room, own)
                quantise(w, b, v, sizes, room, r)
            position[found], wrong[found] = low, r
            found += 1
        low += 1


@njit(cache=True, nogil=True)
def count_open(screen, ids, w, b, margin, near):
    """How many samples are not certainly right by their codes."""
    codes, numbers, v, sizes = screen
    room = np.zeros(v.shape[1], w.dtype)
    for k in range(len(b)):
        quantise(w, b, v, sizes, room, k)
    found, low = 0, skip(codes, numbers, v, sizes, ids, margin, 0, len(ids))
    while low < len(ids):
        found, low = found + 1, skip(codes, numbers, v, sizes, ids, margin, low + 1, len(ids))
    return found


@njit(cache=True, nogil=True)
def keep_near(screen, source, slots, X, ids, margin, most):
    """Keep samples whose slack may be within a margin, at most so many; how many they are."""
    codes, numbers, v, sizes = screen
    found, low = 0, skip(codes, numbers, v, sizes, ids, margin, 0, len(ids))
    while low < len(ids) and found < most:
        _kept(source, X, slots, ids[low])
        found, low = found + 1, skip(codes, numbers, v, sizes, ids, margin, low + 1, len(ids))
    return found
