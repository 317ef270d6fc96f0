"""The compiled loops over one sample: scores, updates, lengths, by how samples and weights lie in memory.

Samples come as a tuple, ``(X,)`` for dense rows and ``(values, columns, starts)`` for CSR; weights as ``(d,)`` for one
score, ``(K, d)`` for K scores of dense rows, and ``(d, K)`` for K scores of CSR rows, where one gather serves all
classes. CSR rows may bring a lighter copy of themselves and of the weights, ``(values, columns, starts, light values,
light weights)``, by which most samples are decided: :func:`_look`. An update keeps the light weights up to date. These
functions are chosen by type when a loop that calls them is compiled, so each loop is written once.

Sums may be reordered and fused (that is what makes them fast), but NaN and infinity keep their meaning. An update
rounds exactly as torch does: dense rows by a fused multiply-add like ``add_``, CSR rows by a product and a sum like
``index_add_``. So two runs with the same mistakes have the same weights to the bit, whichever engine made them.
"""

from __future__ import annotations

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic, overload

SUM = {"reassoc", "contract", "nsz"}
FUSED = {"contract", "nsz"}
EXACT = {"nsz"}
UNSURE = -(2**31) + 1  # in the place of the class a sample is taken for: a light score does not tell


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


@overload(_score, jit_options={"fastmath": FUSED, "forceinline": True})
def _score_csr(rows, i, w):
    if len(rows) == 1:
        return None

    def csr(rows, i, w):  # four sums at a time by hand: vectors of gathered numbers are slower than none
        values, columns, starts = rows[:3]
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


def _score_and_square(rows, i, w):  # pragma: no cover - compiled
    """w·x_i and ‖x_i‖² in one pass, in the samples' own type.

    The square is NaN or infinite if a number is or if it overflows, and NaN if a CSR row does not lie within the arrays
    or its columns do not rise within the width: of such a row nothing is read that is not there.
    """


@overload(_score_and_square, jit_options={"fastmath": SUM})
def _score_and_square_dense(rows, i, w):
    if len(rows) != 1:
        return None

    def dense(rows, i, w):
        X = rows[0]
        total = square = w.dtype.type(0)
        for j in range(np.uint64(len(w))):
            total += X[i, j] * w[j]
            square += X[i, j] * X[i, j]
        return total, square

    return dense


@overload(_score_and_square, jit_options={"fastmath": FUSED})
def _score_and_square_csr(rows, i, w):
    if len(rows) != 3:
        return None

    def csr(rows, i, w):
        values, columns, starts = rows
        one, two, three, width = np.uint64(1), np.uint64(2), np.uint64(3), np.int64(len(w))
        s0 = s1 = s2 = s3 = q0 = q1 = q2 = q3 = w.dtype.type(0)
        first, end = np.int64(starts[i]), np.int64(starts[i + one])
        if first < 0 or end < first or end > len(values) or end > len(columns):
            return s0, w.dtype.type(np.nan)
        j, stop, before = np.uint64(first), np.uint64(end), np.int64(-1)
        while j + three < stop:
            c0, c1, c2, c3 = columns[j], columns[j + one], columns[j + two], columns[j + three]
            if not ((before < c0) & (c0 < c1) & (c1 < c2) & (c2 < c3) & (c3 < width)):
                return s0, w.dtype.type(np.nan)
            v0, v1, v2, v3 = values[j], values[j + one], values[j + two], values[j + three]
            s0 += v0 * w[np.uint64(c0)]
            s1 += v1 * w[np.uint64(c1)]
            s2 += v2 * w[np.uint64(c2)]
            s3 += v3 * w[np.uint64(c3)]
            q0 += v0 * v0
            q1 += v1 * v1
            q2 += v2 * v2
            q3 += v3 * v3
            before = np.int64(c3)
            j += np.uint64(4)
        while j < stop:
            c0, v0 = columns[j], values[j]
            if not ((before < c0) & (c0 < width)):
                return s0, w.dtype.type(np.nan)
            s0 += v0 * w[np.uint64(c0)]
            q0 += v0 * v0
            before = np.int64(c0)
            j += one
        return (s0 + s1) + (s2 + s3), (q0 + q1) + (q2 + q3)

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


def _sum_lanes(lanes):
    """out[k : k + lanes] = Σ_j values[j]·w[columns[j], k : k + lanes], in vectors.

    Numba leaves so short a loop to scalars. Two sums take turns, so that an addition need not wait for the one before.
    """

    @intrinsic
    def sum_lanes(typingctx, values, columns, start, stop, w, k, out):
        def codegen(context, builder, signature, args):
            kinds = dict(zip(("values", "columns", "start", "stop", "w", "k", "out"), signature.args, strict=True))
            given = dict(zip(kinds, args, strict=True))
            element, wide = context.get_data_type(kinds["w"].dtype), ir.IntType(64)
            vectors, size = ir.VectorType(element, lanes), context.get_abi_sizeof(element)
            nothing = ir.Constant(vectors, ir.Undefined)
            first = ir.Constant(ir.VectorType(ir.IntType(32), lanes), [0] * lanes)
            totals = [cgutils.alloca_once_value(builder, ir.Constant(vectors, None)) for _ in range(2)]

            def place(name, *index):
                array = context.make_array(kinds[name])(context, builder, given[name])
                return cgutils.get_item_pointer(context, builder, kinds[name], array, index, wraparound=False)

            def vector(name, kind, *index):
                return builder.bitcast(place(name, *index), kind.as_pointer())

            def take(j, total):
                column = builder.load(place("columns", j))
                column = builder.zext(column, wide) if column.type.width < 64 else column
                value = builder.load(place("values", j))
                value = value if value.type == element else builder.fpext(value, element)
                value = builder.insert_element(nothing, value, wide(0))
                weights = builder.load(vector("w", vectors, column, given["k"]), align=size)
                product = builder.fmul(builder.shuffle_vector(value, nothing, first), weights, flags=("contract",))
                builder.store(builder.fadd(builder.load(total), product, flags=("contract",)), total)

            pairs = builder.and_(builder.sub(given["stop"], given["start"]), wide(-2))
            middle = builder.add(given["start"], pairs)
            with cgutils.for_range_slice(builder, given["start"], middle, wide(2), intp=wide) as (j, _):
                take(j, totals[0])
                take(builder.add(j, wide(1)), totals[1])
            with cgutils.for_range(builder, given["stop"], start=middle, intp=wide) as loop:
                take(loop.index, totals[0])
            total = builder.fadd(*map(builder.load, totals))
            kept = ir.VectorType(context.get_data_type(kinds["out"].dtype), lanes)
            total = total if kept == vectors else builder.fpext(total, kept)
            builder.store(total, vector("out", kept, given["k"]), align=size)
            return context.get_dummy_value()

        return types.void(values, columns, types.int64, types.int64, w, types.uint64, out), codegen

    return sum_lanes


_sum_eight, _sum_sixteen = _sum_lanes(8), _sum_lanes(16)


@njit
def _csr_scores(values, columns, starts, i, w, out):
    """out_k = w_k·x_i; the width of the weights is a multiple of eight."""
    start, stop = np.int64(starts[i]), np.int64(starts[i + np.uint64(1)])
    k, classes = np.uint64(0), np.uint64(w.shape[1])
    while k + np.uint64(8) < classes:
        _sum_sixteen(values, columns, start, stop, w, k, out)
        k += np.uint64(16)
    if k < classes:
        _sum_eight(values, columns, start, stop, w, k, out)


@overload(_scores)
def _scores_csr(rows, i, w, out):
    if len(rows) == 1:
        return None

    def csr(rows, i, w, out):
        _csr_scores(rows[0], rows[1], rows[2], i, w, out)

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


@overload(_add, jit_options={"fastmath": EXACT, "forceinline": True})
def _add_csr(rows, i, coef, w, k):
    if len(rows) == 1:
        return None
    light = len(rows) > 3
    if w.ndim == 1:

        def one(rows, i, coef, w, k):
            values, columns, starts = rows[:3]
            for j in range(np.uint64(starts[i]), np.uint64(starts[i + np.uint64(1)])):
                w[np.uint64(columns[j])] += coef * values[j]
                if light:
                    rows[4][np.uint64(columns[j])] = w[np.uint64(columns[j])]

        return one

    def many(rows, i, coef, w, k):
        values, columns, starts = rows[:3]
        for j in range(np.uint64(starts[i]), np.uint64(starts[i + np.uint64(1)])):
            w[np.uint64(columns[j]), k] += coef * values[j]
            if light:
                rows[4][np.uint64(columns[j]), k] = w[np.uint64(columns[j]), k]

    return many


def _look(rows, at, ids, y, b, margin, off, low, high, out):  # pragma: no cover - compiled
    """The first position from ``low`` on that is not clearly right, and the class it is taken for, if that is clear.

    By light scores; of rows without, ``low`` itself is unsure.

    Args:
        b: the biases (K,).
        off: how far the difference of two light scores can be off.
        out: room for K scores and eight more.
    """


@overload(_look)
def _look_of(rows, at, ids, y, b, margin, off, low, high, out):
    if len(rows) <= 3:
        return lambda rows, at, ids, y, b, margin, off, low, high, out: (low, UNSURE)
    if rows[4].ndim == 1:

        def one(rows, at, ids, y, b, margin, off, low, high, out):
            light, bias = (rows[3], rows[1], rows[2]), np.float64(b[0])
            for p in range(np.uint64(low), np.uint64(high)):
                own = y[ids[p]]
                slack = own * (np.float64(_score(light, at[p], rows[4])) + bias)
                if not (slack > margin + off and slack < np.inf):
                    return np.int64(p), np.int64(-own if -np.inf < slack < margin - off else UNSURE)
            return high, UNSURE

        return one

    def many(rows, at, ids, y, b, margin, off, low, high, out):
        for p in range(np.uint64(low), np.uint64(high)):
            _csr_scores(rows[3], rows[1], rows[2], at[p], rows[4], out)
            own, rival, best, total = y[ids[p]], np.int64(-1), -np.inf, 0.0
            for k in range(len(b)):
                value = np.float64(out[k]) + b[k]
                total += value  # which is finite only if all are
                if k != own and value > best:
                    rival, best = k, value
            slack = np.float64(out[own]) + b[own] - best
            if slack > margin + off and abs(total) < np.inf:
                continue
            sure = slack < margin - off and abs(total) < np.inf
            for k in range(len(b)):
                if k != own and k != rival:
                    sure = sure and best - (np.float64(out[k]) + b[k]) > off
            return np.int64(p), np.int64(rival if sure else UNSURE)
        return high, UNSURE

    return many


@njit(cache=True, nogil=True)
def lighten(numbers, out, first, end):
    """Numbers in another type, from one to another; the largest magnitude if all are integers, else infinity."""
    largest, whole = 0.0, True
    for j in range(np.uint64(first), np.uint64(end)):
        out[j] = numbers[j]
        largest = max(largest, abs(numbers[j]))
        whole &= numbers[j] == np.rint(numbers[j])
    return largest if whole else np.inf


@intrinsic
def _fetch_one(typingctx, w, j):
    """Have the memory of w[j] brought near, without waiting for it."""

    def codegen(context, builder, signature, args):
        array = context.make_array(signature.args[0])(context, builder, args[0])
        there = cgutils.get_item_pointer(context, builder, signature.args[0], array, [args[1]], wraparound=False)
        byte, number = ir.IntType(8).as_pointer(), ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [byte, number, number, number])
        fetch = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0i8")
        builder.call(fetch, [builder.bitcast(there, byte), number(1), number(3), number(1)])
        return context.get_dummy_value()

    return types.void(w, types.uint64), codegen


def _fetch(rows, i, w):  # pragma: no cover - compiled
    """Have the weights of a sample brought near while others are worked on."""


@overload(_fetch, jit_options={"forceinline": True})
def _fetch_of(rows, i, w):
    if len(rows) == 1 or w.ndim > 1:
        return lambda rows, i, w: None

    def csr(rows, i, w):
        for j in range(np.uint64(rows[2][i]), np.uint64(rows[2][i + np.uint64(1)])):
            _fetch_one(w, np.uint64(rows[1][j]))

    return csr


@njit(cache=True, nogil=True, fastmath=EXACT)
def combine(values, columns, starts, coefs, out):
    """out_jk += Σ_i coef_ik·x_ij in float64, without the samples whose coefficients are 0."""
    for i in range(np.uint64(len(coefs))):
        for k in range(np.uint64(coefs.shape[1])):
            coef = coefs[i, k]
            if coef != 0.0:
                for j in range(np.uint64(starts[i]), np.uint64(starts[i + np.uint64(1)])):
                    out[np.uint64(columns[j]), k] += coef * np.float64(values[j])


@njit(cache=True, nogil=True, fastmath=SUM)
def _squares(values):
    """Σ v², in double precision."""
    total = 0.0
    for j in range(np.uint64(len(values))):
        total += np.float64(values[j]) * np.float64(values[j])
    return total


def _length(rows, i, width):  # pragma: no cover - compiled
    """:func:`length`, by how the samples lie."""


@overload(_length)
def _length_of(rows, i, width):
    if len(rows) == 1:
        return lambda rows, i, width: _squares(rows[0][i])

    def csr(rows, i, width):
        values, columns, starts = rows[:3]
        first, end = np.int64(starts[np.uint64(i)]), np.int64(starts[np.uint64(i) + np.uint64(1)])
        if first < 0 or end < first or end > len(values) or end > len(columns):
            return np.nan
        if first < end and (columns[first] < 0 or columns[end - 1] >= width):
            return np.nan
        falls = 0
        for j in range(np.uint64(first), np.uint64(max(first, end - 1))):
            falls |= columns[j] >= columns[j + np.uint64(1)]
        return np.nan if falls else _squares(values[first:end])

    return csr


@njit(cache=True, nogil=True)
def length(rows, i, width):
    """‖x_i‖²; NaN or infinite if a number is, if a square overflows, or if the columns of a CSR row do not rise."""
    return _length(rows, i, width)


@njit(cache=True, nogil=True)
def longest(rows, width, first, end):
    """The largest :func:`length` from one sample to another, or the first that is not finite."""
    most = 0.0
    for i in range(np.uint64(first), np.uint64(end)):
        square = _length(rows, i, width)
        if not square < np.inf:
            return square
        most = max(most, square)
    return most
