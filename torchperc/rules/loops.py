"""The loops that numba compiles: passes of the rule and of single-sample descent over dense and CSR rows.

Samples come as a tuple, ``(X,)`` for dense rows and ``(values, columns, starts)`` for CSR; weights as ``(d,)`` for one
score, ``(K, d)`` for K scores of dense rows, and ``(d, K)`` for K scores of CSR rows, where one gather serves all
classes. The small functions at the top are chosen by these types when a loop is compiled, so each loop is written once.

Sums may be reordered and fused (that is what makes them fast), but NaN and infinity keep their meaning. An update
rounds exactly as torch does: dense rows by a fused multiply-add like ``add_``, CSR rows by a product and a sum like
``index_add_``. So two runs with the same mistakes have the same weights to the bit, whichever engine made them.
"""

from __future__ import annotations

import math

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic, overload

SUM = {"reassoc", "contract", "nsz"}
FUSED = {"contract", "nsz"}
EXACT = {"nsz"}

UPDATE, SIGN, STRICT = 0, 1, 2
PERCEPTRON, LMS, LOGISTIC = 0, 1, 2
OVERFLOW = -(2**31)
"""In the place of the class a sample was taken for: its score is not finite."""

TURN, LOW, HIGH, DONE, FIRST, TALK = 0, 1, 2, 16, 17, 32
"""Places in the array through which two threads talk; those that one of them writes share no cache line with others."""
_SHIFT = 40
SHARE, LONGEST = 1.0, 32
"""Length of a stretch, in lengths between mistakes and in shortest stretches."""
PATIENCE = 1000
"""Looks at a second core that does not move, before its work is done by the first: some microseconds."""


# --- one sample ---


def _score(rows, i, w):  # pragma: no cover - compiled
    """w·x_i."""


@overload(_score, jit_options={"fastmath": SUM})
def _score_dense(rows, i, w):
    if len(rows) != 1:
        return None

    def dense(rows, i, w):
        X = rows[0]
        total = w.dtype.type(0)
        for j in range(np.uint64(len(w))):
            total += X[i, j] * w[j]
        return total

    return dense


@overload(_score, jit_options={"fastmath": FUSED})
def _score_csr(rows, i, w):
    if len(rows) != 3:
        return None

    def csr(rows, i, w):  # four sums at a time by hand: vectors of gathered numbers are slower than none
        values, columns, starts = rows
        one, two, three = np.uint64(1), np.uint64(2), np.uint64(3)
        s0 = s1 = s2 = s3 = w.dtype.type(0)
        j, stop = np.uint64(starts[i]), np.uint64(starts[i + one])
        while j + three < stop:
            s0 += values[j] * w[np.uint64(columns[j])]
            s1 += values[j + one] * w[np.uint64(columns[j + one])]
            s2 += values[j + two] * w[np.uint64(columns[j + two])]
            s3 += values[j + three] * w[np.uint64(columns[j + three])]
            j += np.uint64(4)
        while j < stop:
            s0 += values[j] * w[np.uint64(columns[j])]
            j += one
        return (s0 + s1) + (s2 + s3)

    return csr


def _scores(rows, i, w, out):  # pragma: no cover - compiled
    """out_k = w_k·x_i."""


@overload(_scores, jit_options={"fastmath": SUM})
def _scores_dense(rows, i, w, out):
    if len(rows) != 1:
        return None

    def dense(rows, i, w, out):
        X, zero, width = rows[0], w.dtype.type(0), np.uint64(w.shape[1])
        k, classes = np.uint64(0), np.uint64(w.shape[0])
        k1, k2, k3, k4 = np.uint64(1), np.uint64(2), np.uint64(3), np.uint64(4)
        while k1 + k3 + k < classes:  # five at a time, so that a sample is read from memory less often
            s0 = s1 = s2 = s3 = s4 = zero
            for j in range(width):
                x = X[i, j]
                s0 += x * w[k, j]
                s1 += x * w[k + k1, j]
                s2 += x * w[k + k2, j]
                s3 += x * w[k + k3, j]
                s4 += x * w[k + k4, j]
            out[k], out[k + k1], out[k + k2], out[k + k3], out[k + k4] = s0, s1, s2, s3, s4
            k += np.uint64(5)
        while k < classes:
            s0 = zero
            for j in range(width):
                s0 += X[i, j] * w[k, j]
            out[k] = s0
            k += k1

    return dense


@njit(fastmath=SUM)
def _scores_of_four(X, i0, i1, i2, i3, w, out):
    """The scores of four samples at once: weights too large for the nearest cache are read once, not four times."""
    zero, width, classes, one = w.dtype.type(0), np.uint64(w.shape[1]), np.uint64(w.shape[0]), np.uint64(1)
    k = np.uint64(0)
    while k + one < classes:  # two classes at a time
        s0 = s1 = s2 = s3 = t0 = t1 = t2 = t3 = zero
        for j in range(width):
            v, u = w[k, j], w[k + one, j]
            s0 += X[i0, j] * v
            t0 += X[i0, j] * u
            s1 += X[i1, j] * v
            t1 += X[i1, j] * u
            s2 += X[i2, j] * v
            t2 += X[i2, j] * u
            s3 += X[i3, j] * v
            t3 += X[i3, j] * u
        out[0, k], out[1, k], out[2, k], out[3, k] = s0, s1, s2, s3
        out[0, k + one], out[1, k + one], out[2, k + one], out[3, k + one] = t0, t1, t2, t3
        k += np.uint64(2)
    if k < classes:
        s0 = s1 = s2 = s3 = zero
        for j in range(width):
            v = w[k, j]
            s0 += X[i0, j] * v
            s1 += X[i1, j] * v
            s2 += X[i2, j] * v
            s3 += X[i3, j] * v
        out[0, k], out[1, k], out[2, k], out[3, k] = s0, s1, s2, s3


@intrinsic
def _sum_eight(typingctx, values, columns, start, stop, w, k, out):
    """out[k : k + 8] = Σ_j values[j]·w[columns[j], k : k + 8], in vectors; numba leaves so short a loop to scalars."""

    def codegen(context, builder, signature, args):
        kinds = dict(zip(("values", "columns", "start", "stop", "w", "k", "out"), signature.args, strict=True))
        given = dict(zip(kinds, args, strict=True))
        element, wide = context.get_data_type(kinds["values"].dtype), ir.IntType(64)
        eight, size = ir.VectorType(element, 8), context.get_abi_sizeof(element)

        def place(name, *index):
            array = context.make_array(kinds[name])(context, builder, given[name])
            return cgutils.get_item_pointer(context, builder, kinds[name], array, index, wraparound=False)

        def vector(name, *index):
            return builder.bitcast(place(name, *index), eight.as_pointer())

        nothing, first = ir.Constant(eight, ir.Undefined), ir.Constant(ir.VectorType(ir.IntType(32), 8), [0] * 8)
        total = cgutils.alloca_once(builder, eight)
        builder.store(ir.Constant(eight, None), total)
        with cgutils.for_range(builder, given["stop"], start=given["start"], intp=wide) as loop:
            column = builder.load(place("columns", loop.index))
            column = builder.zext(column, wide) if column.type.width < 64 else column
            value = builder.insert_element(nothing, builder.load(place("values", loop.index)), wide(0))
            weights = builder.load(vector("w", column, given["k"]), align=size)
            product = builder.fmul(builder.shuffle_vector(value, nothing, first), weights, flags=("contract",))
            builder.store(builder.fadd(builder.load(total), product, flags=("contract",)), total)
        builder.store(builder.load(total), vector("out", given["k"]), align=size)
        return context.get_dummy_value()

    return types.void(values, columns, types.int64, types.int64, w, types.uint64, out), codegen


@overload(_scores)
def _scores_csr(rows, i, w, out):
    if len(rows) != 3:
        return None

    def csr(rows, i, w, out):
        values, columns, starts = rows
        for k in range(np.uint64(0), np.uint64(w.shape[1]), np.uint64(8)):  # the width is a multiple of eight
            _sum_eight(values, columns, starts[i], starts[i + np.uint64(1)], w, k, out)

    return csr


def _add(rows, i, coef, w, k):  # pragma: no cover - compiled
    """w_k += coef·x_i."""


@overload(_add, jit_options={"fastmath": SUM})
def _add_dense(rows, i, coef, w, k):
    if len(rows) != 1:
        return None
    if w.ndim == 1:

        def one(rows, i, coef, w, k):
            X = rows[0]
            for j in range(np.uint64(len(w))):
                w[j] += coef * X[i, j]

        return one

    def many(rows, i, coef, w, k):
        X = rows[0]
        for j in range(np.uint64(w.shape[1])):
            w[k, j] += coef * X[i, j]

    return many


@overload(_add, jit_options={"fastmath": EXACT})
def _add_csr(rows, i, coef, w, k):
    if len(rows) != 3:
        return None
    if w.ndim == 1:

        def one(rows, i, coef, w, k):
            values, columns, starts = rows
            for j in range(np.uint64(starts[i]), np.uint64(starts[i + np.uint64(1)])):
                w[np.uint64(columns[j])] += coef * values[j]

        return one

    def many(rows, i, coef, w, k):
        values, columns, starts = rows
        for j in range(np.uint64(starts[i]), np.uint64(starts[i + np.uint64(1)])):
            w[np.uint64(columns[j]), k] += coef * values[j]

    return many


@njit(cache=True, nogil=True, fastmath=SUM)
def _squares(values):
    """Σ v², in double precision."""
    total = 0.0
    for j in range(np.uint64(len(values))):
        total += np.float64(values[j]) * np.float64(values[j])
    return total


def _longest(rows, first, end):  # pragma: no cover - compiled
    """:func:`longest`, by how the samples lie."""


@overload(_longest)
def _longest_of(rows, first, end):
    if len(rows) == 1:

        def dense(rows, first, end):
            X, most = rows[0], 0.0
            for i in range(first, end):
                square = _squares(X[i])
                if not square < np.inf:
                    return square
                most = max(most, square)
            return most

        return dense

    def csr(rows, first, end):
        values, _, starts = rows
        most = 0.0
        for i in range(first, end):
            square = _squares(values[starts[i] : starts[i + 1]])
            if not square < np.inf:
                return square
            most = max(most, square)
        return most

    return csr


@njit(cache=True, nogil=True)
def longest(rows, first, end):
    """The largest ‖x_i‖² from one sample to another; not finite if a number is not, or if a square overflows."""
    return _longest(rows, first, end)


# --- scores within rounding of a limit, see rounding.py ---

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


# --- the rule ---


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
    rival, best, finite = -1, -np.inf, True
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


def _learn(
    rows, at, ids, y, coefs, w, b, bias_scale, tie, margin, near, low, position, wrong, found
):  # pragma: no cover
    """:func:`learn`, by the number of scores."""


@overload(_learn)
def _learn_of(rows, at, ids, y, coefs, w, b, bias_scale, tie, margin, near, low, position, wrong, found):
    if w.ndim == 1:

        def one(rows, at, ids, y, coefs, w, b, bias_scale, tie, margin, near, low, position, wrong, found):
            renew(w, b, near)
            bias, beyond = b[0], margin + 2.0 * near[BOUND]  # in registers: the compiler cannot know that w is not b
            for p in range(np.uint64(low), np.uint64(len(at))):
                own = y[ids[p]]
                slack = w.dtype.type(own) * (_score(rows, at[p], w) + bias)
                if slack > beyond and slack < np.inf:
                    continue
                if not math.isfinite(slack):
                    return -1 - np.int64(p)
                side = _side(rows, at[p], w, b, 0, -1, own, margin, np.float64(slack), near)
                if _mistaken(np.float64(side), own, tie, 0.0):
                    coef = _of(coefs, ids[p]) * own
                    _add(rows, at[p], w.dtype.type(coef), w, 0)
                    bias += w.dtype.type(coef * bias_scale)
                    b[0] = bias
                    _moved(coef, w, b, near)
                    beyond = margin + 2.0 * near[BOUND]
                    place = np.uint64(found)
                    position[place], wrong[place] = p, -own
                    found += 1
            return found

        return one

    if len(rows) == 1:

        def ahead(rows, at, ids, y, coefs, w, b, bias_scale, tie, margin, near, low, position, wrong, found):
            out, gap, since, p = np.empty((4, len(b) + 8), w.dtype), 8.0, 0.0, low
            renew(w, b, near)
            while p < len(at):
                many = 4 if gap > 4.0 and p + 4 <= len(at) else 1  # scored with the weights as they are
                if many == 4:
                    _scores_of_four(rows[0], at[p], at[p + 1], at[p + 2], at[p + 3], w, out)
                else:
                    _scores(rows, at[p], w, out[0])
                for m in range(many):  # and gone through up to the first mistake
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
        renew(w, b, near)
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
    """Present the samples from position ``low`` on, one after the other; take down each mistake and make its update.

    Returns how many mistakes are taken down; if a score is not finite, −1 − its position.
    """
    return _learn(rows, at, ids, y, coefs, w, b, bias_scale, tie, margin, near, low, position, wrong, found)


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


# --- the rule on two cores ---


@intrinsic
def _load(typingctx, array, index):
    def codegen(context, builder, signature, args):
        there = context.make_array(signature.args[0])(context, builder, args[0])
        pointer = cgutils.get_item_pointer(context, builder, signature.args[0], there, [args[1]], wraparound=False)
        return builder.load_atomic(pointer, "acquire", 8)

    return types.int64(array, types.intp), codegen


@intrinsic
def _store(typingctx, array, index, value):
    def codegen(context, builder, signature, args):
        there = context.make_array(signature.args[0])(context, builder, args[0])
        pointer = cgutils.get_item_pointer(context, builder, signature.args[0], there, [args[1]], wraparound=False)
        builder.store_atomic(args[2], pointer, "release", 8)
        return context.get_dummy_value()

    return types.void(array, types.intp, types.int64), codegen


@njit(cache=True, nogil=True)
def _scan(rows, at, ids, y, w, b, tie, margin, near, out, low, high):
    """The first mistake at positions low to high under the weights as they are, ``high`` if there is none."""
    for p in range(low, high):
        own = y[ids[p]]
        if _taken_for(rows, at[p], own, w, b, tie, margin, out, near) != own:
            return p
    return high


@njit(cache=True, nogil=True)
def assist(rows, at, ids, y, w, b, tie, margin, near, step, talk):
    """The second core: look through the samples it is told to, until the first core calls it to others.

    What it finds is marked with the number of the turn, so whatever it found under weights that have changed since, or
    while they were changing, is never looked at.
    """
    seen, out = 0, np.empty(len(b) + 8, w.dtype)
    while True:
        turn = _load(talk, TURN)
        if turn < 0:
            return
        if turn == seen:
            continue
        seen = turn
        low, high = _load(talk, LOW), _load(talk, HIGH)
        while low < high and _load(talk, TURN) == turn:
            upto = min(high, low + step)
            p = _scan(rows, at, ids, y, w, b, tie, margin, near, out, low, upto)
            low = upto if p == upto else high
            _store(talk, FIRST, p if p < upto else high)
            _store(talk, DONE, (turn << _SHIFT) | low)


@njit(cache=True, nogil=True)
def _second_half(rows, at, ids, y, w, b, tie, margin, near, out, turn, low, high, talk):
    """The first mistake in the second core's half, ``high`` if there is none; what it does not deliver is done here."""
    before, waited = low, 0
    while waited < PATIENCE:
        done = _load(talk, DONE)
        if done >> _SHIFT == turn:
            low = done & ((1 << _SHIFT) - 1)
            if low == high:
                return _load(talk, FIRST)
        waited = 0 if low > before else waited + 1
        before = low
    return _scan(rows, at, ids, y, w, b, tie, margin, near, out, low, high)


@njit(cache=True, nogil=True)
def learn_ahead(
    rows, at, ids, y, coefs, w, b, bias_scale, tie, margin, near, step, shortest, gap, talk, position, wrong
):
    """:func:`learn` with a second core that runs :func:`assist`: two halves of a stretch are looked through at once.

    If the first half is clean, the first mistake of the second half is the next; its update is made, and the next
    stretch begins behind it. Stretches are as long as mistakes were lately apart; below ``shortest`` the first core
    goes on alone.
    """
    high, low, found, turn, since = len(at), 0, 0, 0, 0
    out = np.empty(len(b) + 8, w.dtype)
    renew(w, b, near)
    while low < high:
        length = int(max(gap, since) * SHARE)
        if length < shortest:
            break
        stop = min(high, low + min(length, LONGEST * shortest))
        middle = (low + stop) // 2
        turn += 1
        _store(talk, LOW, middle)
        _store(talk, HIGH, stop)
        _store(talk, TURN, turn)
        p = _scan(rows, at, ids, y, w, b, tie, margin, near, out, low, middle)
        if p == middle:
            p = _second_half(rows, at, ids, y, w, b, tie, margin, near, out, turn, middle, stop, talk)
        since += min(p + 1, stop) - low
        low = min(p + 1, stop)
        if p == stop:
            continue
        own = y[ids[p]]
        r = _taken_for(rows, at[p], own, w, b, tie, margin, out, near)
        if r == OVERFLOW:
            _store(talk, TURN, -1)
            return -1 - p
        update(rows, at[p], _of(coefs, ids[p]), own, r, w, b, bias_scale)
        _moved(_of(coefs, ids[p]), w, b, near)
        position[found], wrong[found] = p, r
        found += 1
        gap += (since - gap) / 8
        since = 0
    _store(talk, TURN, -1)
    return learn(rows, at, ids, y, coefs, w, b, bias_scale, tie, margin, near, low, position, wrong, found)


# --- single-sample descent ---


def _add_and_score(rows, i, coef, w, k):  # pragma: no cover - compiled
    """w += coef·x_i, then w·x_k."""


@overload(_add_and_score, jit_options={"fastmath": SUM})
def _add_and_score_of(rows, i, coef, w, k):
    if len(rows) == 1:

        def dense(rows, i, coef, w, k):  # both in one run over the weights
            X = rows[0]
            total = w.dtype.type(0)
            for j in range(np.uint64(len(w))):
                w[j] += coef * X[i, j]
                total += w[j] * X[k, j]
            return total

        return dense

    def csr(rows, i, coef, w, k):
        _add(rows, i, coef, w, 0)
        return _score(rows, k, w)

    return csr


@njit(error_model="numpy")
def _slope(s, y, kind, tie, low):
    """ℓ'(s) for one score."""
    if kind == LMS:
        return s - (1.0 if y > 0 else low)
    if kind == LOGISTIC:
        return -y / (1.0 + math.exp(y * s))
    return -np.float64(y) if _mistaken(y * s, y, tie, 0.0) else 0.0


@njit
def _slopes(out, y, classes, kind, low, slope):
    """ℓ'(s) for K scores by squared error or softmax."""
    top, total = -np.inf, 0.0
    for k in range(classes):
        top = max(top, np.float64(out[k]))
    for k in range(classes):
        slope[k] = math.exp(np.float64(out[k]) - top) if kind == LOGISTIC else np.float64(out[k]) - low
        total += slope[k]
    for k in range(classes):
        if kind == LOGISTIC:
            slope[k] /= total
    slope[y] -= 1.0 if kind == LOGISTIC else 1.0 - low


def _descend(rows, at, y, w, b, rate, has_bias, kind, tie, low, seen):  # pragma: no cover - compiled
    """:func:`descend`, by the number of scores."""


@overload(_descend, jit_options={"error_model": "numpy"})
def _descend_of(rows, at, y, w, b, rate, has_bias, kind, tie, low, seen):
    if w.ndim == 1:

        def one(rows, at, y, w, b, rate, has_bias, kind, tie, low, seen):
            bias, score = b[0], _score(rows, at[0], w)
            for p in range(len(at)):
                score += bias
                seen[p, 0] = score
                if kind == PERCEPTRON and not math.isfinite(score):
                    return p
                move = w.dtype.type(-rate * _slope(np.float64(score), y[at[p]], kind, tie, low))
                following = at[min(p + 1, len(at) - 1)]
                if move != 0:
                    score = _add_and_score(rows, at[p], move, w, following)
                    if has_bias:
                        bias += move
                else:
                    score = _score(rows, following, w)
            b[0] = bias
            return len(at)

        return one

    def many(rows, at, y, w, b, rate, has_bias, kind, tie, low, seen):
        classes = len(b)
        out, slope = np.empty(classes + 8, w.dtype), np.empty(classes)
        near = np.zeros(NEAR)  # descent gives the rounded scores back, so these decide
        for p in range(len(at)):
            own = y[at[p]]
            _scores(rows, at[p], w, out)
            if kind == PERCEPTRON:
                wrong = _rival(rows, at[p], own, w, b, tie, 0.0, out, near)
                if wrong != own and wrong != OVERFLOW:
                    update(rows, at[p], rate, own, wrong, w, b, 1.0 if has_bias else 0.0)
            else:
                wrong = own
                for k in range(classes):
                    out[k] += b[k]
                _slopes(out, own, classes, kind, low, slope)
                for k in range(classes):
                    move = w.dtype.type(-rate * slope[k])
                    _add(rows, at[p], move, w, k)
                    if has_bias:
                        b[k] += move
            for k in range(classes):
                seen[p, k] = out[k]
            if wrong == OVERFLOW:
                return p
        return len(at)

    return many


@njit(cache=True, nogil=True, error_model="numpy")
def descend(rows, at, y, w, b, rate, has_bias, kind, tie, low, seen):
    """One step a sample, in order; the scores before each step go into ``seen``. Returns how many were made.

    Fewer than there are samples if a score of the perceptron's is not finite.
    """
    return _descend(rows, at, y, w, b, rate, has_bias, kind, tie, low, seen)
