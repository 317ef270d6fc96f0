# mypy: ignore-errors
# numba reads this function; its types are what the loop is compiled for
"""The loop of single-sample descent with a penalty ‖w‖₁, compiled: dense and CSR, one score and K."""

from __future__ import annotations

import numpy as np
from numba import njit

from torchperc.descent.loops import SMALL
from torchperc.nn.derivatives import slope, slopes


@njit(error_model="numpy")
def _truncate(w, k, j, scale, owed, paid):
    """Move a weight towards 0 by what it owes, and no further; note what it has paid."""
    before = w[k, j]
    if before > 0:
        w[k, j] = max(0.0, before - (owed + paid[k, j]) / scale)
    elif before < 0:
        w[k, j] = min(0.0, before + (owed - paid[k, j]) / scale)
    paid[k, j] += scale * (w[k, j] - before)


@njit(cache=True, nogil=True, error_model="numpy")
def descend_l1(values, columns, starts, shifts, at, y, rates, l1, l2, w, b, has_bias, kind, low, owed, paid, seen):
    """One step per sample, w ← (1 − r·l2)·w − r·ℓ'·x, and then each of the sample's weights towards 0.

    All weights owe the same in all, Σ r·l1 over the steps so far; ``paid`` is what each has been moved by, with its
    sign. A weight pays when a sample needs it, and all pay in the end: without ``l2``, which makes smaller what owes,
    stored zeros make no difference.

    Sample i has the values from ``starts[i]`` to ``starts[i + 1]``, and their columns from ``shifts[i]`` on. Scores
    before each step go into ``seen``; returns what is owed.
    """
    classes, width = w.shape
    scale, out, bends = 1.0, np.empty(classes), np.empty(classes)
    for p in range(len(at)):
        i = at[p]
        first, count, shift = starts[i], starts[i + 1] - starts[i], shifts[i]
        for k in range(classes):
            score = 0.0
            for e in range(count):
                _truncate(w, k, columns[shift + e], scale, owed, paid)  # of the steps of samples without it
                score += values[first + e] * w[k, columns[shift + e]]
            out[k] = scale * score + b[k]
            seen[p, k] = out[k]
        if classes == 1:
            bends[0] = slope(out[0], y[i], kind, 0, low)
        else:
            slopes(out, y[i], classes, kind, 0, low, bends)
        scale *= 1.0 - rates[i] * l2
        owed += rates[i] * l1
        for k in range(classes):
            move = -rates[i] * bends[k]
            for e in range(count):
                w[k, columns[shift + e]] += move * values[first + e] / scale
                _truncate(w, k, columns[shift + e], scale, owed, paid)
            if has_bias:
                b[k] += move
        if scale < SMALL:
            w *= scale
            scale = 1.0
    for k in range(classes):
        for j in range(width):
            _truncate(w, k, j, scale, owed, paid)
            w[k, j] *= scale
    return owed
