"""Kernels: inner products in a feature space that is never built."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from torchperc._checks import check_choice, check_int, check_number
from torchperc.samples.rows import Rows

KERNELS = ("linear", "poly", "rbf")


@dataclass(frozen=True)
class Kernel:
    """k(x, z): ``"linear"`` x·z, ``"poly"`` (1 + x·z)^degree, ``"rbf"`` exp(−gamma·‖x − z‖²), or a function.

    Args:
        name: one of the above, or a function from (N, d) and (M, d) to the (N, M) matrix of k.
        degree: of ``"poly"``, at least 1.
        gamma: of ``"rbf"``, above 0.

    Example:
        >>> from torchperc.samples.parts import as_rows
        >>> x = as_rows([[0, 1], [1, 1]], dtype=torch.float32)
        >>> Kernel("poly", degree=2).gram(x, x)
        tensor([[4., 4.],
                [4., 9.]])
    """

    name: str | Callable[[Any, Any], Any]
    degree: int = 3
    gamma: float = 1.0

    def __post_init__(self) -> None:
        if not callable(self.name):
            check_choice("kernel", self.name, KERNELS)
        object.__setattr__(self, "degree", check_int("degree", self.degree, at_least=1))
        object.__setattr__(self, "gamma", check_number("gamma", self.gamma, above=0))

    def gram(self, rows: Rows, others: Rows) -> Tensor:
        """k of each of N samples with each of M others: (N, M)."""
        if callable(self.name):
            return _checked(self.name(rows.raw(), others.raw()), rows, others)
        if self.name == "rbf":
            x, z = rows.double(), others.double()  # far from the origin the three terms cancel
            distance = x.squared_norms()[:, None] - 2 * x.dots(z) + z.squared_norms()
            return distance.clamp_(min=0).mul_(-self.gamma).exp_().to(rows.dtype)
        dots = rows.dots(others)
        return dots if self.name == "linear" else dots.add_(1).pow_(self.degree)


def _checked(gram: Any, rows: Rows, others: Rows) -> Tensor:
    if not isinstance(gram, Tensor | np.ndarray) or (isinstance(gram, Tensor) and gram.is_complex()):
        raise TypeError(f"the kernel function must return a tensor or an array of numbers, found {type(gram).__name__}")
    gram = gram.detach() if isinstance(gram, Tensor) else gram
    result = torch.as_tensor(gram, dtype=rows.dtype, device=rows.device)
    if result.shape != (len(rows), len(others)):
        raise ValueError(
            f"the kernel function returned shape {tuple(result.shape)} for {len(rows)} and {len(others)} samples; "
            f"it must return ({len(rows)}, {len(others)})"
        )
    if not torch.isfinite(result).all():
        raise ValueError("the kernel function returned numbers that are not finite; scale the data or the kernel")
    return result
