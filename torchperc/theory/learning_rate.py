"""The learning rate below which gradient descent converges: 2/L, where L bounds the curvature of the loss.

With φ = (x, 1) and λmax the largest eigenvalue of mean φ·φᵀ, the curvature of the mean loss is at most L = h·λmax,
where h bounds the second derivative of the loss in the score, see :func:`torchperc.nn.derivatives.curvature_bound`.
A batch of b out of N samples has a curvature of its own, at most h·max ‖φ‖², and at most N/b times that of all samples.
What 2/L promises depends on the loss and on the batch: see docs/concepts/theory.md.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from torchperc._checks import Data, check_bool, check_choice, check_int, check_number, is_sparse
from torchperc.nn import heads as tph
from torchperc.nn.derivatives import curvature_bound
from torchperc.theory.points import Points, class_count

REDUCTIONS = ("mean", "sum")
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
        num_classes: K, or ``None`` for one score per sample; for regression the number of outputs, which changes
            nothing.
        reduction: ``"mean"`` or ``"sum"`` over a batch.
        batch_size: ``"full"``, or how many samples a batch has, the last one perhaps fewer; 1 for ``update="sample"``.

    Example:
        >>> step_limit("perceptron", [[1.0], [-1.0]]), round(step_limit("lms", [[1.0], [-1.0]]), 9)
        (inf, 2.0)
    """
    code = tph.loss_code(tph.head(head) if isinstance(head, str) else head)
    second_derivative = curvature_bound(code[0], class_count(num_classes) or 1)
    points = _points(X, bias)
    check_choice("reduction", reduction, REDUCTIONS)
    smallest = largest = len(points)
    if isinstance(batch_size, str):
        check_choice("batch_size", batch_size, ("full",))
    else:  # the smallest batch is the last
        largest = min(check_int("batch_size", batch_size, at_least=1), largest)
        smallest = smallest % largest or largest
    if not second_derivative:
        return math.inf
    curvature = longest = points.squared_radius(None)
    if largest > 1:
        total = len(points) * _largest(points)
        curvature = min(longest, total / smallest) if reduction == "mean" else min(largest * longest, total)
    return 2 / (second_derivative * curvature) if curvature else math.inf


def auto_lr(head: tph.Head | str, X: Data, **options: Any) -> float:
    """Return a learning rate that is never too large: 1/L, half of :func:`step_limit`.

    A step of 1/L lowers a loss of curvature at most L by at least ‖gradient‖²/(2L), the most that can be promised for
    any learning rate. Where there is no limit, as for the perceptron, it is 1: from zero weights the perceptron's
    learning rate scales the weights and changes nothing else.

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

    Up to 2000 features or samples it is computed by a direct method and raised by 10⁻¹² of itself, more than its
    rounding error. Beyond that it is an upper bound with probability one (Lanczos plus residual norm), and never above
    mean ‖φ‖², the sum of all eigenvalues, which is the answer if Lanczos does not converge.

    Example:
        >>> round(largest_eigenvalue([[1.0], [-1.0]]), 9), round(largest_eigenvalue([[3, 4]], bias=False), 9)
        (1.0, 25.0)
    """
    return _largest(_points(X, bias))


def _points(X: Data, bias: bool) -> Points:
    return Points.of(X, "unit" if check_bool("bias", bias) else "none")


def _largest(points: Points) -> float:
    small = min(len(points), points.X.shape[1]) <= _DIRECT
    value = (_by_gram if small else _by_lanczos)(points.X, points.bias_scale)
    return min(value, float(points.squared_norms.mean()) + points.bias_scale) * (1 + _ROUNDING)


def _by_gram(X: Any, b: float) -> float:
    """From the smaller of φᵀφ and φφᵀ, which have the same eigenvalues but for zeros."""
    count, width = X.shape
    product = X @ X.T if count <= width else X.T @ X
    gram = np.asarray(product.toarray() if is_sparse(product) else product)
    if count <= width:
        gram = gram + b
    else:
        sums = b * np.asarray(X.sum(axis=0)).reshape(-1, 1)
        gram = np.block([[gram, sums], [sums.T, np.full((1, 1), b * count)]])
    return float(torch.linalg.eigvalsh(torch.from_numpy(gram))[-1] / count)


def _by_lanczos(X: Any, b: float) -> float:
    from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, eigsh

    size = X.shape[1] + 1  # without a bias the last coordinate meets zeros only

    def times(vector: NDArray[np.float64]) -> NDArray[np.float64]:
        scores = X @ vector[:-1] + b * vector[-1]
        return np.asarray(np.append(X.T @ scores, b * scores.sum()) / X.shape[0])

    operator = LinearOperator((size, size), matvec=lambda vector: times(vector.reshape(-1)), dtype=np.float64)
    start = np.random.default_rng(0).normal(size=size)
    try:
        values, vectors = eigsh(operator, k=1, which="LA", v0=start, tol=1e-10)
    except ArpackNoConvergence:  # the sum of all eigenvalues is left as a bound
        return math.inf
    value, vector = float(values[0]), vectors[:, 0]
    return value + float(np.linalg.norm(times(vector) - value * vector))
