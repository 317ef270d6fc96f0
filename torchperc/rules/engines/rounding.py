"""Scores within rounding of a limit: how far a rounded score can be off, and on which side it is exactly.

Engines sum a score in different orders. A score farther from the limit than γₙ·(‖w‖·‖x‖ + |b|), γₙ = n·u/(1 − n·u) with
n terms and unit roundoff u, is on the same side for all of them; nearer ones are decided in exact arithmetic. So every
engine makes the same mistakes by construction.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from torchperc._checks import numpy_view

if TYPE_CHECKING:
    from torchperc.rules.spaces import Weights
    from torchperc.samples.rows import Rows


def doubles(values: Tensor) -> np.ndarray[Any, Any]:
    """Return values as an array in double precision, on the host."""
    numbers = numpy_view(values)
    array: np.ndarray[Any, Any] = numbers.double().cpu().numpy() if isinstance(numbers, Tensor) else numbers
    return array.astype(np.float64, copy=False)


def gamma(terms: int, unit: float) -> float:
    """Return γ for so many terms and a bias, with 1 % to spare for the rounding of the bound itself."""
    relative = (terms + 2) * unit
    return 1.01 * relative / (1 - relative) if relative < 0.5 else math.inf


def radius(rows: Rows) -> float:
    """Return at least the norm of the longest sample; squares of tiny values vanish."""
    return math.sqrt(rows.longest) * (1 + 1e-6) + 2.0**-536 * math.sqrt(rows.width)


def floor(rows: Rows, dtype: torch.dtype) -> float:
    """Return what products too small for the type add to the error of a score."""
    return (rows.terms + 2) * 4 * torch.finfo(dtype).smallest_normal * torch.finfo(dtype).eps


def score_error(rows: Rows, weights: Weights) -> float:
    """Return the largest error of a score of these samples in the weights' type; 0 if all are sums of integers."""
    weight, bias = (doubles(values).reshape(-1) for values in (weights.weight, weights.bias))
    length = math.sqrt(weight @ weight) + 2.0**-536 * math.sqrt(len(weight))
    size = length * radius(rows) + float(abs(bias).max())
    dtype = weights.weight.dtype
    unit = max(torch.finfo(dtype).eps / 2, _products() if dtype == torch.float32 else 0.0)
    if size < 1 / unit and not (weight % 1).any() and not (bias % 1).any() and rows.whole:
        return 0.0
    return gamma(rows.terms, unit) * size + floor(rows, dtype)


def _products() -> float:
    """Return the unit roundoff of matrix products in single precision, which is a setting of torch."""
    try:
        chosen = torch.get_float32_matmul_precision()
    except RuntimeError:  # the settings of one backend were changed by themselves
        chosen = "medium"
    return {"highest": 2.0**-24, "high": 2.0**-11}.get(chosen, 2.0**-8)


def side(x: np.ndarray[Any, Any], weight: np.ndarray[Any, Any], bias: float, limit: float) -> int:
    """Return the sign of w·x + b − limit in exact arithmetic.

    Example:
        >>> side(np.array([1e16, 1.0, -1e16]), np.array([1.0, 1.0, 1.0]), 0.0, 0.5)
        1
    """
    used = (x != 0) & (weight != 0)
    factors = [_integers(np.append(values[used], ends)) for values, ends in ((x, (1.0, -1.0)), (weight, (bias, limit)))]
    exponents = factors[0][1] + factors[1][1]
    lowest = int(exponents.min())
    shifts = (exponents - lowest).tolist()
    total: int = sum((a * b) << shift for a, b, shift in zip(factors[0][0], factors[1][0], shifts, strict=True))
    return (total > 0) - (total < 0)


def _integers(values: np.ndarray[Any, Any]) -> tuple[list[int], np.ndarray[Any, Any]]:
    """Return m and e with value = m·2^e."""
    mantissa, exponent = np.frexp(values.astype(np.float64))
    numbers: list[int] = np.ldexp(mantissa, 53).astype(np.int64).tolist()
    return numbers, exponent.astype(np.int64) - 53
