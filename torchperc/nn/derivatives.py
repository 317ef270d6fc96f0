"""The losses' values ℓ, derivatives ℓ′ and ℓ″ in the scores, and bounds of the curvature: the one home of each formula.

Each is written twice: for tensors and arrays, and for one sample in plain Python, which compiled loops compile as it
stands. ``slope`` has the sign of dℓ/ds. y is −1/+1 for one score per sample, a class index for K, and for regression
a real target per score.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

PERCEPTRON, LMS, LOGISTIC, REGRESSION = 0, 1, 2, 3
UPDATE, SIGN, STRICT = 0, 1, 2
"""What counts as a mistake at y·s = 0, by number, as compiled loops know it."""

# --- for tensors and arrays, which stay arrays: torch's threads and those of numpy's BLAS would wait for each other ---


class Terms(NamedTuple):
    """Of scores (N, K): the loss per sample (N,), its slope (N, K) and ``bend`` (N, K), tensors or arrays.

    ``bend`` is ∂²ℓ/∂s², but for softmax the probabilities p, of which the Hessian is diag(p) − p·pᵀ.
    """

    loss: Any
    slope: Any
    bend: Any


def targets(y: Any, units: int, low: float) -> Any:
    """What scores (N, K) are drawn to by LMS: 1 for the right class (or y = +1), ``low`` for the others."""
    if units == 1:
        hot = (y > 0)[:, None]
    else:
        hot = y[:, None] == (torch.arange(units, device=y.device) if isinstance(y, Tensor) else np.arange(units))
    return hot * (1.0 - low) + low


def lms(s: Any, target: Any) -> Terms:
    """The terms of ½ Σ_k (t_k − s_k)²."""
    error = s - target
    return Terms((error * error).sum(1) / 2, error, (torch if isinstance(s, Tensor) else np).ones_like(error))


def logistic(s: Any, y: Any) -> Terms:
    """The terms of log(1 + e^−y·s), one score per sample."""
    xp: Any = torch if isinstance(s, Tensor) else np
    sign = xp.asarray(y, dtype=s.dtype)[:, None]
    slack = sign * s
    small = xp.exp(-abs(slack))
    right = 1 / (1 + small)
    loss = xp.clip(-slack, 0, None) + xp.log1p(small)
    return Terms(loss[:, 0], -sign * xp.where(slack > 0, small, 1) * right, small * right * right)


def softmax(s: Any, y: Any) -> Terms:
    """The terms of log Σ_k exp(s_k) − s_y."""
    xp: Any = torch if isinstance(s, Tensor) else np
    everyone = torch.arange(len(y), device=s.device) if isinstance(s, Tensor) else np.arange(len(y))
    shifted, own = s - xp.amax(s, 1)[:, None], (everyone, y)
    powers = xp.exp(shifted)
    total = powers.sum(1)
    p = powers / total[:, None]
    slope = p + 0
    slope[own] -= 1
    return Terms(xp.log(total) - shifted[own], slope, p)


# --- for one sample, in plain Python that numba compiles ---


def logistic_terms(slack: float) -> tuple[float, float, float]:
    """e^−|m|, −dℓ/dm = 1/(1 + e^m) and d²ℓ/dm² of ℓ = log(1 + e^−m) = max(−m, 0) + log(1 + e^−|m|)."""
    small = math.exp(-abs(slack))
    right = 1.0 / (1.0 + small)
    return small, small * right if slack > 0 else right, small * right * right


def slope(s: float, y: float, kind: int, tie: int, low: float) -> float:
    """dℓ/ds of one score; y is a label −1/+1, for regression the target."""
    slack = y * s
    if kind == REGRESSION:
        return s - y
    if kind == LMS:
        return s - (1.0 if y > 0 else low)
    if kind == LOGISTIC:
        return -y * logistic_terms(slack)[1]
    mistake = slack < 0 or (slack == 0 and (tie == UPDATE or (tie == SIGN and y < 0)))
    return -1.0 * y if mistake else 0.0


def slopes(s: Any, y: int, classes: int, kind: int, tie: int, low: float, out: Any) -> bool:
    """dℓ/ds of K scores into ``out``; whether all scores are finite."""
    rival, top, total = -1, -math.inf, 0.0
    y, finite = int(y), True  # compiled with real targets, too, which never come here
    for k in range(classes):
        value = 1.0 * s[k]
        finite = finite and math.isfinite(value)
        if kind == PERCEPTRON and k == y:
            continue
        if rival < 0 or value > top:
            rival, top = k, value
    if kind == PERCEPTRON:
        slack = 1.0 * s[y] - top
        mistake = slack < 0 or (slack == 0 and (tie == UPDATE or (tie == SIGN and rival < y)))
        for k in range(classes):
            out[k] = (1.0 if k == rival else -1.0 if k == y else 0.0) if mistake else 0.0
        return finite
    for k in range(classes):
        out[k] = math.exp(1.0 * s[k] - top) if kind == LOGISTIC else 1.0 * s[k] - low
        total += out[k]
    for k in range(classes):
        if kind == LOGISTIC:
            out[k] /= total
    out[y] -= 1.0 if kind == LOGISTIC else 1.0 - low
    return finite


# --- curvature ---


def curvature_bound(kind: int, units: int) -> float:
    """The largest second derivative of a loss in its scores: 1 for squares, ¼ for logistic, ½ for softmax, else 0.

    Of softmax because diag(p) − p·pᵀ has no eigenvalue above ½."""
    return (0.0, 1.0, 0.25 if units == 1 else 0.5, 1.0)[kind]


def safe_lr(curvature: float) -> float:
    """The learning rate 1/L, the largest at which a loss of curvature at most L is certain to fall; 1 for L = 0."""
    return 1 / curvature if curvature else 1.0
