"""The compiled loops over one sample: scores, updates, lengths, by how samples and weights lie in memory.

Samples come as a tuple, ``(X,)`` for dense rows and ``(values, columns, starts)`` for CSR; weights as ``(d,)`` for one
score, ``(K, d)`` for K scores of dense rows, and ``(d, K)`` for K scores of CSR rows, where one gather serves all
classes. These functions are chosen by type when a loop that calls them is compiled, so each loop is written once.

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


def _length(rows, i, width):  # pragma: no cover - compiled
    """:func:`length`, by how the samples lie."""


@overload(_length)
def _length_of(rows, i, width):
    if len(rows) == 1:
        return lambda rows, i, width: _squares(rows[0][i])

    def csr(rows, i, width):
        values, columns, starts = rows
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
