"""The compiled operations on one sample: scores, updates, norms, for dense and for CSR rows.

Samples come as a tuple, ``(X,)`` for dense rows and ``(values, columns, starts)`` for CSR; weights as ``(d,)`` for one
score, ``(K, d)`` for K scores of dense rows, and ``(d, K)`` for K scores of CSR rows, where one gather serves all
classes. Of a sample, loops see its values and its columns, which are ``None`` for a dense row.

Sums may be reordered and fused (that is what makes them fast), but NaN and infinity keep their meaning. An update
rounds exactly as torch does: dense rows by a fused multiply-add like ``add_``, CSR rows by a product and a sum like
``index_add_``. So two runs with the same mistakes have the same weights to the bit, whichever engine made them.
Columns become unsigned, which frees the loops from looking for negative ones and doubles their speed.
"""

from __future__ import annotations

import sys

import numpy as np
from numba import njit
from numba.core import event
from numba.extending import overload

SUM = {"reassoc", "contract", "nsz"}


class _FirstCompilation(event.Listener):
    """Says on a terminal, once per process, that loops are being compiled and not read from numba's cache."""

    told = False

    def on_start(self, begun):
        ours = begun.data["dispatcher"].py_func.__module__.startswith("torchperc.")
        if ours and not self.told and sys.stderr is not None and sys.stderr.isatty():
            self.told = True
            print("torchperc: compiling (once) …", file=sys.stderr, flush=True)

    def on_end(self, ended):
        """Nothing is to be said."""


event.register("numba:compile", _FirstCompilation())


def loop(**options):
    """Compile a loop that Python calls: kept in numba's cache, and run without Python's lock."""
    return njit(cache=True, nogil=True, **options)


def row(rows, i):
    """Return the values and the columns of sample i."""
    return _row_of(rows, i)(rows, i)


@overload(row)
def _row_of(rows, i):
    if len(rows) == 1:
        return lambda rows, i: (rows[0][i], None)

    def csr(rows, i):
        first, end = rows[2][np.uint64(i)], rows[2][np.uint64(i) + np.uint64(1)]
        return rows[0][first:end], rows[1][first:end]

    return csr


@njit(fastmath=SUM)
def dot(x, columns, w):
    """Return w·x."""
    total = w.dtype.type(0)
    for j in range(x.size):
        total += x[j] * w[j if columns is None else np.uint32(columns[j])]
    return total


@njit(fastmath=SUM)
def dots(x, columns, w, out):
    """Compute w_k·x for K scores."""
    if columns is None:
        for k in range(w.shape[0]):
            out[k] = dot(x, None, w[k])
    else:
        out[:] = 0
        for j in range(x.size):
            v = w[np.uint32(columns[j])]
            for k in range(v.size):
                out[k] += x[j] * v[k]


@njit
def of_class(columns, w, k):
    """Return the weights of class k: (d,)."""
    if w.ndim == 1:
        return w
    return w[k] if columns is None else w[:, k]


@njit(fastmath=SUM, forceinline=True)
def _add_dense(x, coef, w):
    for j in range(x.size):
        w[j] += coef * x[j]


@njit(fastmath={"nsz"}, forceinline=True)
def _add_csr(x, columns, coef, w):
    for j in range(x.size):
        w[np.uint32(columns[j])] += coef * x[j]


@njit(forceinline=True)
def add(x, columns, coef, w):
    """Add coef·x to the weights of a class."""
    if columns is None:
        _add_dense(x, w.dtype.type(coef), w)
    else:
        _add_csr(x, columns, w.dtype.type(coef), w)


@njit(fastmath=SUM)
def squares(values):
    """Return Σ v² in double precision."""
    total = 0.0
    for j in range(values.size):
        total += np.float64(values[j]) * np.float64(values[j])
    return total


@njit(cache=True, nogil=True)
def max_squared_norm(values, columns, starts, width):
    """Return the largest ‖x‖² of CSR rows.

    NaN or infinite if a value is, if a square overflows, or if rows leave the arrays or their columns do not rise.
    """
    most, before = 0.0, 0
    for i in range(len(starts) - 1):
        first, end = np.int64(starts[i]), np.int64(starts[i + 1])
        if first != before or end < first or end > len(values) or end > len(columns):
            return np.nan
        before = end
        j, falls = columns[first:end], False
        for k in range(j.size - 1):
            falls |= j[k] >= j[k + 1]
        if falls or (j.size > 0 and (j[0] < 0 or j[j.size - 1] >= width)):
            return np.nan
        square = squares(values[first:end])
        if not square < np.inf:
            return square
        most = max(most, square)
    return most
