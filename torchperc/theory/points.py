"""Samples as points φ = (x, √β) in float64, and the scores that linear weights give them.

β is 1 for ``bias_step="unit"``, max ‖x‖² for ``"radius"`` and 0 for ``"none"``: an update adds c·y·φ to the weights.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from torchperc._checks import Data, check_choice, check_int, is_sparse
from torchperc.samples import convert
from torchperc.theory.weights import weights_norm

Array: TypeAlias = NDArray[np.float64]
Indices: TypeAlias = NDArray[np.int64]

BIAS_STEPS = ("unit", "radius", "none")


def float64_samples(X: Data) -> Any:
    """Return checked samples in float64, as an array or a scipy CSR array."""
    if is_sparse(X):
        return convert.sparse_features(X, dtype=torch.float64)
    return convert.features(X, dtype=torch.float64, device=torch.device("cpu"), convert=True).numpy()


def feature_range(X: Any) -> tuple[Array, Array]:
    """Return the smallest and the largest value of each feature."""
    low, high = X.min(axis=0), X.max(axis=0)
    return (low.toarray().reshape(-1), high.toarray().reshape(-1)) if is_sparse(X) else (low, high)


def class_count(num_classes: int | None) -> int | None:
    """Return K, checked to be at least 2, or ``None`` for labels −1/+1."""
    return None if num_classes is None else check_int("num_classes", num_classes, at_least=2)


@dataclass(frozen=True, eq=False)
class Points:
    """Samples as points φ = (x, √β), with the β of their bias step."""

    X: Any
    squared_norms: Array
    bias_step: str
    bias_scale: float

    @classmethod
    def of(cls, X: Data, bias_step: str) -> Points:
        """Check samples and bias step."""
        check_choice("bias_step", bias_step, BIAS_STEPS)
        X = float64_samples(X)
        with np.errstate(over="ignore"):
            squares = X.multiply(X).sum(axis=1) if is_sparse(X) else np.einsum("ij,ij->i", X, X)
        longest = float(squares.max())
        if not longest < np.finfo(np.float64).max / 4:  # twice as much with a bias must be finite too
            raise ValueError("X is so large that ‖x‖² overflows; scale X down")
        return cls(X, squares, bias_step, longest if bias_step == "radius" else float(bias_step == "unit"))

    def __len__(self) -> int:
        return int(self.X.shape[0])

    def squared_radius(self, num_classes: int | None) -> float:
        """Return max ‖x‖² + β; with K classes twice that, the squared length of φ(x, y) − φ(x, r)."""
        value = float(self.squared_norms.max()) + self.bias_scale
        return value if num_classes is None else 2 * value

    def scores(self, weight: Tensor, bias: Tensor) -> Tensor:
        """Return w·x + b: (N,), or (N, K) for a (K, d) weight."""
        scores = torch.from_numpy(np.asarray(self.X @ weight.numpy().T) + bias.numpy())
        return scores.squeeze(-1) if len(weight) == 1 else scores

    def norm(self, weight: Tensor, bias: Tensor) -> float:
        """Return the length of weights where the update happens; a bias needs a bias step."""
        if bias.any() and not self.bias_scale:
            raise ValueError(
                f"bias_step={self.bias_step!r} has no place for a bias, found {float(bias[bias != 0][0]):g}; choose "
                "the bias_step of the run, or regularize_bias=False for distances from the hyperplane"
            )
        return weights_norm(weight, bias, self.bias_scale)
