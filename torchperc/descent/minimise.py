"""The minimum itself: where gradient descent on a convex loss would end, reached directly."""

from __future__ import annotations

import warnings
from contextlib import nullcontext

import numpy as np
import torch
from torch import Tensor

from torchperc import _checks as checks
from torchperc.descent.least_squares import solve_squares
from torchperc.descent.newton import Optimum as Optimum
from torchperc.descent.newton import solve_logistic
from torchperc.descent.objective import Array, objective, take
from torchperc.nn.heads import Head, LogisticHead, RegressionHead, SquaredHead, labels_or_targets
from torchperc.nn.modules import LinearNet
from torchperc.rules.problem import check_parameters
from torchperc.samples import compiling, convert
from torchperc.samples.rows import CsrRows

WORTH_THREADS = 2**20  # numbers in X times classes below which one core does the work


def minimise(
    net: LinearNet,
    head: Head,
    X: checks.Data,
    y: checks.Data,
    *,
    l2: float = 0.0,
    tol: float = 1e-6,
    max_iter: int = 100,
    sample_weight: checks.Data | None = None,
    tolerance: float | None = None,
    max_iterations: int | None = None,
) -> Optimum:
    """Take a linear net to the minimum of its head's loss, in place: mean loss + ½·l2·‖w‖², the bias not penalised.

    A squared loss is solved by its normal equations; if features depend on each other, by the solution nearest to the
    net's weights. A logistic loss is minimised by Newton's method until its relative gap is at most ``tol``, from
    the net's weights or from zero, whichever is lower. All arithmetic is in float64, and the figures returned are those
    of the weights as rounded to the net's type.

    Samples that a hyperplane separates have no logistic minimum without ``l2``: minimising stops, warns, and returns
    ``unbounded=True``. So it does for samples separated but for some on the boundary, where the weights grow while the
    gap falls below 1e-6; this is not looked for at tolerances above that.

    Args:
        net: a :class:`Perceptron`, :class:`MulticlassPerceptron` or ``nn.Linear``.
        head: an :class:`LMSHead`, :class:`LogisticHead` or :class:`RegressionHead`.
        X: samples (N, d), dense or sparse; sparse ones stay so, on the CPU.
        y: labels −1/+1, or class indices for a net of K classes; for regression real targets (N,) or (N, K).
        l2: the weight of the penalty.
        tol: the relative gap that is good enough.
        max_iter: Newton steps over all rows at most; reaching it is reported, not raised.
        sample_weight: how much each sample counts in the mean, Σ c·loss/Σ c; 0 leaves it out, and a weight of 3 is the
            same as three copies.
        tolerance: the old name of ``tol``.
        max_iterations: the old name of ``max_iter``.

    Example:
        >>> from torchperc.nn.modules import Perceptron
        >>> net = Perceptron(1)
        >>> found = minimise(net, LogisticHead(), [[0.0], [1.0], [2.0], [3.0]], [-1, 1, -1, 1])
        >>> found.converged, round(found.loss, 4), net.weight.data
        (True, 0.5869, tensor([[0.9082]]))
        >>> found = minimise(net, RegressionHead(), [[1.6], [1.7], [1.8]], [60.0, 68.0, 73.0])
        >>> net.weight.data, net.bias.data
        (tensor([[65.0000]]), tensor([-43.5000]))
    """
    l2 = checks.number("l2", l2, at_least=0)
    if tolerance is not None or max_iterations is not None:
        warnings.warn("tolerance and max_iterations are now tol and max_iter", DeprecationWarning, stacklevel=2)
    tol = checks.number("tol", tol if tolerance is None else tolerance, above=0)
    max_iter = checks.whole("max_iter", max_iter if max_iterations is None else max_iterations, at_least=1)
    if not isinstance(head, SquaredHead | LogisticHead):
        raise TypeError(
            f"head must be an LMSHead, a LogisticHead or a RegressionHead, found {type(head).__name__}; the perceptron "
            "criterion has its minimum 0 at zero weights, so train for it with RuleTrainer"
        )
    start = _parameters(net)
    # whether X is finite shows in the first gradient, so no reading is spent on that
    dtype, device, units = net.weight.dtype, net.weight.device, len(start)
    rows: Tensor | CsrRows
    if checks.is_sparse(X):
        if device.type != "cpu":
            raise ValueError(f"X is sparse, which needs a net on the CPU, found one on {device}; pass net.cpu()")
        rows = CsrRows(convert.sparse_features(X, dtype=dtype, width=net.in_features))
    else:
        rows = convert.features(X, dtype=dtype, device=device, width=net.in_features, finite=False).contiguous()
    labels = labels_or_targets(head, y, len(rows), units).to(device)
    counts = None if sample_weight is None else checks.nonnegative_weights(sample_weight, len(rows)).to(device)
    if counts is not None and not counts.all():
        rows, labels, counts = take(rows, counts > 0), labels[counts > 0], counts[counts > 0]
        if not isinstance(head, RegressionHead) and labels.min() == labels.max():
            raise ValueError("sample_weight leaves samples of one class only; at least two classes are required")
    if isinstance(head, LogisticHead) and units > 1 and net.bias is not None:
        missing = (labels.bincount(minlength=units) == 0).nonzero().squeeze(-1).tolist()
        if missing:
            raise ValueError(
                f"y has no sample of class {missing[0]}, whose bias would fall forever; give the net only the classes "
                "that occur, or a net without bias"
            )
    counts = None if counts is None else counts / counts.mean()  # so that sums over samples can be divided by N
    problem = objective(head, rows, labels, units, net.bias is not None, l2, counts)
    try:
        solve = solve_squares if isinstance(head, SquaredHead) else solve_logistic
        numbers = rows.numel() if isinstance(rows, Tensor) else rows.X.nnz
        with compiling.one_thread() if numbers * units < WORTH_THREADS else nullcontext():
            weights, found = solve(problem, start, tol, max_iter)
    except FloatingPointError:
        if isinstance(rows, Tensor):
            convert.features(X, dtype=dtype, device=device)  # names the entry that is not finite
        largest = float(rows.abs().max() if isinstance(rows, Tensor) else abs(rows.X).max())
        if isinstance(head, RegressionHead):
            also = f"X holds values up to {largest:g} and y up to {float(labels.abs().max()):g}"
            raise ValueError(f"{also}, whose products overflow; scale them") from None
        raise ValueError(f"X holds values up to {largest:g}, whose products overflow; scale it") from None
    with torch.no_grad():
        net.weight.copy_(torch.from_numpy(weights[:, : net.in_features]))
        if net.bias is not None:
            net.bias.copy_(torch.from_numpy(weights[:, -1]))
    if found.unbounded:
        warnings.warn(
            "the loss has no minimum: a hyperplane separates the samples, some perhaps lying on it, so the loss falls "
            "forever as the weights grow. The net has the weights at which this was found. Use l2 > 0.",
            UserWarning,
            stacklevel=2,
        )
    return found


def _parameters(net: object) -> Array:
    """Weights and bias of a linear net as one float64 matrix, the bias last."""
    if not isinstance(net, LinearNet):
        raise TypeError(
            "net must be a linear net (Perceptron, MulticlassPerceptron or nn.Linear), found "
            f"{type(net).__name__}; other losses than a convex one are left to gradient descent"
        )
    check_parameters(net)
    parts = [net.weight.detach()] if net.bias is None else [net.weight.detach(), net.bias.detach()[:, None]]
    start: Array = torch.cat([part.double() for part in parts], 1).cpu().numpy()
    if not np.isfinite(start).all():
        raise ValueError("net has weights that are not finite; reset them first")
    return start
