"""The length of weights in the space where the update happens, and the bounds on the margin that follow from it."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from torchperc.nn import functional as tpf


def weights_norm(weight: Tensor, bias: Tensor, bias_scale: float) -> float:
    """Return √(Σ ‖w_k‖² + b_k²/β): a bias step of β is a constant feature √β.

    Without a bias step (β = 0) the bias does not count.

    Example:
        >>> import torch
        >>> weights_norm(torch.tensor([[3.0, 4.0]]), torch.tensor([24.0]), 4.0)
        13.0
    """
    squares, more = (float(np.square(column_major(values)).sum()) for values in (weight, bias))
    return math.sqrt(squares + (more / bias_scale if bias_scale else 0.0))


def column_major(values: Tensor) -> np.ndarray[Any, Any]:
    """Return weights (K, d) as a float64 array (d, K): the same sums and bytes however they lie in memory."""
    return np.ascontiguousarray(values.detach().cpu().double().numpy().T)


class Bracket(NamedTuple):
    """Bounds on the largest margin with a regularized bias: lower ≤ γ* ≤ upper."""

    lower: float
    upper: float


def live_bracket(scores: Tensor, y: Tensor, norm: float, total: float, *, moved: float | None = None) -> Bracket:
    """Return the bracket of a run from its scores: min y·s/‖w_t‖ and ‖w_t − w₀‖/Σ c.

    The bounds are −∞ for zero weights and ∞ without a mistake.

    Args:
        scores: of the training samples under the weights w_t: (N,), or (N, K).
        y: their labels −1/+1, or class indices.
        norm: ‖w_t‖ by :func:`weights_norm`.
        total: Σ c over the mistakes so far, c = η·(sample weight); η·t if samples have no weights.
        moved: ‖w_t − w₀‖; ``norm`` by default, as w₀ = 0.

    Example:
        >>> import torch
        >>> live_bracket(torch.tensor([-4.0, 2.0]), torch.tensor([-1, 1]), norm=5.0, total=10.0)
        Bracket(lower=0.4, upper=0.5)
    """
    lower = float(tpf.functional_margins(scores, y).min()) / norm if norm else -math.inf
    return Bracket(lower, (norm if moved is None else moved) / total if total else math.inf)
