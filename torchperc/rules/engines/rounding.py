"""Scores within rounding of a limit: how far a rounded score can be off, and on which side it is exactly.

Engines sum a score in different orders. A score farther from the limit than γₙ·(‖w‖·‖x‖ + |b|), γₙ = n·u/(1 − n·u) with
n terms and unit roundoff u, is on the same side for all of them; nearer ones are decided in exact arithmetic. So every
engine makes the same mistakes by construction.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

if TYPE_CHECKING:
    from torchperc.rules.spaces import Space, Weights
    from torchperc.samples.rows import Rows

_SMALLEST = 2.0**-536  # the square of what is smaller is lost in float64


@dataclass(frozen=True)
class Rounding:
    """Rounding errors of the scores of these samples."""

    rows: Rows

    @cached_property
    def unit(self) -> float:
        """The unit roundoff u of the type, or of matrix products in single precision."""
        return max(torch.finfo(self.rows.dtype).eps / 2, _products() if self.rows.dtype == torch.float32 else 0.0)

    def gamma(self, terms: int) -> float:
        """γ of so many terms and a bias, with 1 % to spare for the rounding of the bound itself."""
        relative = (terms + 2) * self.unit
        return 1.01 * relative / (1 - relative) if relative < 0.5 else math.inf

    @cached_property
    def floor(self) -> float:
        """What products too small for the type add to the error."""
        return (self.rows.terms + 2) * torch.finfo(self.rows.dtype).smallest_normal * self.unit * 4

    @cached_property
    def radius(self) -> float:
        """At least the length of the longest sample."""
        return math.sqrt(self.rows.longest) * (1 + 1e-6) + _SMALLEST * math.sqrt(self.rows.width)

    def bound(self, weights: Weights, total: float = 0.0, bias_scale: float = 0.0) -> float:
        """How far a score can be off under these weights and all on the way from them, 0 if it is exact.

        ``total`` is the sum of |coefficients| on that way, which must be integers, as the bias steps.
        """
        weight, bias = (values.detach().double().cpu().numpy().reshape(-1) for values in (weights.weight, weights.bias))
        size = float(self._size(math.sqrt(weight @ weight), float(abs(bias).max()), len(weight), total, bias_scale))
        if self.rows.whole and size < 1 / self.unit and not (weight % 1).any() and not (bias % 1).any():
            return 0.0
        return self.gamma(self.rows.terms) * size + self.floor

    def bound_of_block(self, weights: Weights, steps: Tensor, bias_scale: float, *, whole: bool) -> Tensor:
        """The same for scores that include updates by ``steps`` not yet made, on the device.

        ``whole``: coefficients and bias steps are integers.
        """
        dtype = precise(weights.bias.device)
        weight, bias = weights.weight.to(dtype), weights.bias.to(dtype)
        total, count = steps.abs().sum(dtype=dtype), (steps != 0).sum()
        length = torch.linalg.vector_norm(weight)
        size = self._size(length, bias.abs().max(), weight.numel(), total, abs(bias_scale))
        bound: Tensor = (self.gamma(self.rows.terms) + 3 * self.unit * count) * size + self.floor
        if not whole or not self.rows.whole:
            return bound
        exact = torch.eq(weight, weight.trunc()).all() & torch.eq(bias, bias.trunc()).all() & (size < 1 / self.unit)
        return torch.where(exact, 0.0, bound)

    def _size(self, length: Any, largest_bias: Any, count: int, total: Any, bias_scale: float) -> Any:
        """At least Σ|w_j·x_j| + |b| of any sample, with weights of this length and updates of this total besides."""
        reach = length + _SMALLEST * math.sqrt(count) + 1.5 * total * self.radius
        return reach * self.radius + largest_bias + total * bias_scale


def nearness(space: Space) -> np.ndarray[Any, Any]:
    """What compiled loops need to know of all this."""
    from torchperc.rules.loops import exact

    rounding, near = Rounding(space.rows), np.zeros(exact.NEAR)
    near[exact.UNIT], near[exact.GAMMA] = rounding.unit, rounding.gamma(space.rows.terms)
    near[exact.RADIUS], near[exact.FLOOR] = rounding.radius, rounding.floor
    near[exact.STEP] = 1.5 * rounding.radius**2 + abs(space.bias_scale)
    near[exact.PERIOD] = max(8, space.outputs * space.rows.width // space.rows.terms)
    return near


def precise(device: torch.device) -> torch.dtype:
    """The widest floating-point type of a device."""
    return torch.float32 if device.type == "mps" else torch.float64


def _products() -> float:
    """The unit roundoff of matrix products in single precision, which is a setting of torch."""
    try:
        chosen = torch.get_float32_matmul_precision()
    except RuntimeError:  # the settings of one backend were changed by themselves
        chosen = "medium"
    return {"highest": 2.0**-24, "high": 2.0**-11}.get(chosen, 2.0**-8)


def side(x: np.ndarray[Any, Any], weight: np.ndarray[Any, Any], bias: float, limit: float) -> int:
    """The sign of w·x + b − limit, in exact arithmetic.

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
    """m and e with value = m·2^e."""
    mantissa, exponent = np.frexp(values.astype(np.float64))
    numbers: list[int] = np.ldexp(mantissa, 53).astype(np.int64).tolist()
    return numbers, exponent.astype(np.int64) - 53
