"""The rule on one sample: is it a mistake, and the update if it is."""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from torchperc.rules.loops.exact import RADIUS, renew
from torchperc.rules.loops.learn import OVERFLOW, _taken_for, update
from torchperc.samples.loops import _length, _squares


@njit(cache=True, nogil=True)
def present(rows, width, own, coef, w, b, bias_scale, tie, margin, near, out):
    """Present the one sample in ``rows`` and make the update if it is a mistake.

    Returns the class it was taken for, ``own`` if it is no mistake, ``OVERFLOW`` if something is not finite or not in
    order; then the weights may have changed.
    """
    square = _length(rows, np.uint64(0), width)  # not finite, too, if columns do not rise within the width
    if not square < np.inf:
        return np.int64(OVERFLOW)
    near[RADIUS] = math.sqrt(square) * (1 + 1e-6) + 2.0**-536 * math.sqrt(np.float64(width))
    renew(w, b, near)
    wrong = np.int64(_taken_for(rows, np.uint64(0), own, w, b, tie, margin, out, near))
    if wrong in (own, OVERFLOW):
        return wrong
    update(rows, np.uint64(0), coef, own, wrong, w, b, bias_scale)
    return wrong if _squares(w.reshape(-1)) + _squares(b) < np.inf else np.int64(OVERFLOW)


@njit(cache=True, nogil=True)
def add_weights(weight, bias, total_weight, total_bias, steps, scale, mean_weight, mean_bias):
    """Add weights to a total, and divide it by the number of steps, rounding before the mean is scaled."""
    for k in range(len(bias)):
        total_bias[k] += bias[k]
        mean_bias[k] = mean_bias.dtype.type(total_bias[k] / steps) * scale
        for j in range(weight.shape[1]):
            total_weight[k, j] += weight[k, j]
            mean_weight[k, j] = mean_weight.dtype.type(total_weight[k, j] / steps) * scale
