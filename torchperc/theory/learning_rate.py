"""The learning rate below which gradient descent converges: 2/L, where L bounds the curvature of the loss.

With φ = (x, 1), λmax the largest eigenvalue of mean φ·φᵀ, and h a bound on the second derivative of the loss in the
score, L = h·λmax. A batch of b out of N samples has at most h·max ‖φ‖², and at most N/b times that of all samples.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

from torchperc._checks import Data, check_bool, check_choice, check_int, check_number, is_sparse
from torchperc.nn import heads as tph
from torchperc.theory.problem import Points, class_count

_DIRECT = 2000  # the smaller side of X up to which all eigenvalues of a Gram matrix are computed
_ROUNDING = 1e-12  # of λmax: far above what rounding does to it, far below what matters


def step_limit(
    head: tph.Head | str,
    X: Data,
    *,
    bias: bool = True,
    num_classes: int | None = None,
    reduction: str = "mean",
    batch_size: int | str = "full",
) -> float:
    """Return the limit 2/L of a head's loss under a linear net; infinity for the perceptron.

    Args:
        head: a head, or its name, see :func:`torchperc.heads.head`.
        X: samples (N, d), as a tensor, an array, lists or a scipy sparse matrix.
        bias: whether the net has a bias, φ = (x, 1), or not, φ = x.
        num_classes: K, or ``None`` for one score per sample; for regression the number of outputs.
        reduction: ``"mean"`` or ``"sum"`` over a batch.
        batch_size: ``"full"``, or how many samples a batch has, the last one perhaps fewer; 1 for ``update="sample"``.

    Example:
        >>> step_limit("perceptron", [[1.0], [-1.0]]), round(step_limit("lms", [[1.0], [-1.0]]), 9)
        (inf, 2.0)
    """
    head = tph.head(head) if isinstance(head, str) else head
    second_derivative = tph.curvature_bound(head, class_count(num_classes) or 1)
    points = Points.of(X, "unit" if check_bool("bias", bias) else "none")
    check_choice("reduction", reduction, ("mean", "sum"))
    largest = len(points)
    if isinstance(batch_size, str):
        check_choice("batch_size", batch_size, ("full",))
    else:
        largest = min(check_int("batch_size", batch_size, at_least=1), largest)
    smallest = len(points) % largest or largest  # the last batch
    if not second_derivative:
        return math.inf
    curvature = longest = points.squared_radius(None)
    if largest > 1:
        total = len(points) * _largest(points)
        curvature = min(longest, total / smallest) if reduction == "mean" else min(largest * longest, total)
    return 2 / (second_derivative * curvature) if curvature else math.inf


def auto_lr(head: tph.Head | str, X: Data, **options: Any) -> float:
    """Return a learning rate that is never too large: 1/L, half of :func:`step_limit`.

    A step of 1/L lowers a loss of curvature at most L by at least ‖gradient‖²/(2L). Where there is no limit it is 1:
    from zero weights the perceptron's learning rate scales the weights and changes nothing else.

    Example:
        >>> X = [[1.0], [-1.0]]
        >>> [round(auto_lr(head, X), 9) for head in ("perceptron", "lms", "logistic")]
        [1.0, 1.0, 4.0]
    """
    limit = step_limit(head, X, **options)
    return limit / 2 if math.isfinite(limit) else 1.0


def rate_warning(lr: float, head: tph.Head | str, X: Data, **options: Any) -> str | None:
    """Return a warning if a learning rate is above :func:`step_limit`; ``None`` if it is not.

    Example:
        >>> rate_warning(3, "lms", [[1.0], [-1.0]])
        'lr=3 is above 2/L = 2, so the loss will diverge; use a learning rate of at most 1 (1/L), or scale X down'
        >>> rate_warning(1, "lms", [[1.0], [-1.0]])
    """
    check_number("lr", lr, above=0)
    head = tph.head(head) if isinstance(head, str) else head
    limit = step_limit(head, X, **options)
    if lr <= limit:
        return None
    sharp = isinstance(head, tph.SquaredHead) and options.get("batch_size", "full") == "full"
    what = "the loss will diverge" if sharp else "steps may overshoot and the loss may grow"
    remedy = f"use a learning rate of at most {limit / 2:.4g} (1/L), or scale X down"
    return f"lr={lr:g} is above 2/L = {limit:.4g}, so {what}; {remedy}"


def largest_eigenvalue(X: Data, *, bias: bool = True) -> float:
    """Return an upper bound on λmax of mean φ·φᵀ, φ = (x, 1) or x: the curvature of LMS.

    Up to 2000 features or samples it is computed directly and raised by 10⁻¹² of itself, more than its rounding error.
    Beyond that it is an upper bound with probability one (Lanczos plus residual norm), at most mean ‖φ‖².

    Example:
        >>> round(largest_eigenvalue([[1.0], [-1.0]]), 9), round(largest_eigenvalue([[3, 4]], bias=False), 9)
        (1.0, 25.0)
    """
    return _largest(Points.of(X, "unit" if check_bool("bias", bias) else "none"))


def _largest(points: Points) -> float:
    from scipy.sparse import hstack
    from scipy.sparse.linalg import ArpackNoConvergence, aslinearoperator, eigsh

    phi: Any = points.X
    if points.bias_scale:
        ones = np.ones((len(points), 1))
        phi = hstack((phi, ones), format="csr") if is_sparse(phi) else np.hstack((phi, ones))
    if min(points.X.shape) <= _DIRECT:  # φᵀφ and φφᵀ have the same eigenvalues but for zeros
        product = phi @ phi.T if phi.shape[0] <= phi.shape[1] else phi.T @ phi
        gram = np.asarray(product.toarray() if is_sparse(product) else product)
        value = float(torch.linalg.eigvalsh(torch.from_numpy(gram))[-1])
    else:
        square, start = aslinearoperator(phi).H @ aslinearoperator(phi), np.random.default_rng(0)
        try:
            (value,), vector = eigsh(square, k=1, which="LA", v0=start.normal(size=phi.shape[1]), tol=1e-10)
            value += np.linalg.norm(square @ vector[:, 0] - value * vector[:, 0])
        except ArpackNoConvergence:  # the sum of all eigenvalues is left as a bound
            value = math.inf
    return min(float(value) / len(points), float(points.squared_norms.mean()) + points.bias_scale) * (1 + _ROUNDING)
