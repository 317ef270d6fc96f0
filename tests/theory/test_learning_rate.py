"""The rates that gradient descent bears, against Hessians by autograd, all batches one by one, and descent itself."""

import math
from itertools import combinations

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array, diags_array

import torchperc as tp
from torchperc import functional as tpf
from torchperc.theory import auto_lr, rate_warning, step_limit


def data(seed, count=30, width=4, classes=None):
    rng = np.random.default_rng(seed)
    X = torch.from_numpy(rng.normal(size=(count, width)) * rng.uniform(0.3, 3, width) + rng.normal(size=width))
    y = rng.choice([-1, 1], count) if classes is None else rng.integers(0, classes, count)
    return X, torch.from_numpy(y)


def lifted(X, bias=True):
    return torch.cat((X, X.new_ones(len(X), 1)), 1) if bias else X


def top(phi):
    """The largest eigenvalue of mean φ·φᵀ, from singular values of φ."""
    return float(torch.linalg.svdvals(phi)[0]) ** 2 / len(phi)


def curvature(loss, weights):
    """The largest eigenvalue of the Hessian at these weights, by autograd."""
    size = weights.numel()
    hessian = torch.autograd.functional.hessian(loss, weights).reshape(size, size)
    return float(torch.linalg.eigvalsh(hessian)[-1])


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("shape", [(30, 4), (4, 30), (7, 7), (1, 3), (8, 1)])
def test_lms_limit_is_two_over_the_hessian(shape, bias, reduction):
    X, y = data(1, *shape)
    phi = lifted(X, bias)
    start, largest = torch.zeros(phi.shape[1], dtype=torch.float64), top(phi) * (1 if reduction == "mean" else len(X))
    for targets in ("-1/+1", "0/1"):
        hessian = curvature(lambda w, t=targets: tpf.lms_loss(phi @ w, y, reduction=reduction, targets=t), start)
        for given in (X, X.numpy(), csr_array(X.numpy())):
            found = 2 / step_limit(tp.LMSHead(targets), given, bias=bias, reduction=reduction)
            assert found == pytest.approx(hessian, rel=1e-10)
            assert largest * (1 - 1e-14) <= found <= largest * (1 + 1e-11)


def test_the_limit_with_many_features_and_samples():
    """Two directions of nearly the same length, where an iteration that stops early would allow too much."""
    lengths = np.concatenate(([1.0, 0.9999], np.linspace(0.999, 0.1, 2098)))
    found = 2 / step_limit("lms", diags_array(lengths).tocsr(), bias=False)
    assert 1 / 2100 * (1 - 1e-13) <= found <= 1 / 2100 * (1 + 1e-6)


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("size", [1, 2, 3, 4, 6, 7, 9])
def test_no_batch_has_more_curvature_than_the_limit_allows(size, reduction):
    X, _ = data(6, count=7, width=2)
    phi, largest = lifted(X), min(size, 7)
    sizes = {largest, 7 % largest or largest}
    factor = {n: 1 if reduction == "mean" else n for n in sizes}
    worst = max(factor[n] * top(phi[list(rows)]) for n in sizes for rows in combinations(range(7), n))
    L = 2 / step_limit("lms", X, batch_size=size, reduction=reduction)
    assert worst <= L * (1 + 1e-12)
    if size == 1 or size >= 7:
        assert worst == pytest.approx(L, rel=1e-10)


@pytest.mark.parametrize("classes", [None, 2, 3, 5])
def test_logistic_limit_bounds_every_hessian_and_is_reached(classes):
    """K probabilities of 1/K have the eigenvalue 1/K, two of ½ have ½, which is the largest."""
    X, y = data(5, classes=classes)

    def loss(w):
        return tpf.logistic_loss(lifted(X) @ w.T, y) if classes else tpf.logistic_loss(lifted(X) @ w, y)

    L = 2 / step_limit("logistic", X, num_classes=classes)
    zero = torch.zeros(*([classes] if classes else []), 5, dtype=torch.float64)
    assert curvature(loss, zero) == pytest.approx(L * (2 / classes if classes else 1), rel=1e-10)
    if classes:
        two_of_them = zero.clone()
        two_of_them[2:, -1] = -40.0
        assert curvature(loss, two_of_them) == pytest.approx(L, rel=1e-10)
    for seed in range(5):
        assert curvature(loss, torch.from_numpy(np.random.default_rng(seed).normal(size=tuple(zero.shape)))) <= L


def test_auto_rates_and_limits_of_batches():
    X, _ = data(7, count=24)
    one, full = step_limit("lms", X, batch_size=1), step_limit("lms", X)
    assert one == pytest.approx(2 / float(lifted(X).square().sum(1).max()), rel=1e-12)
    found = [step_limit("lms", X, batch_size=size) for size in (1, 2, 4, 8, 12, 24, 100)]
    assert found == sorted(found)
    assert (found[0], found[-1]) == (one, full)
    assert step_limit("lms", X, batch_size=23) == one  # the last batch has one sample
    assert (auto_lr("perceptron", X), step_limit(tp.PerceptronHead(), X)) == (1, math.inf)
    assert auto_lr("lms", X) == auto_lr(tp.LMSHead(targets="0/1"), X) == full / 2
    assert auto_lr("logistic", X, num_classes=3, bias=False) == step_limit("logistic", X, num_classes=3, bias=False) / 2
    zeros = np.zeros((3, 2))
    assert (step_limit("lms", zeros, bias=False), auto_lr("lms", zeros, bias=False)) == (math.inf, 1)


def test_too_large_is_said_before_the_run():
    X, _ = data(12)
    for head in (tp.PerceptronHead(), "lms", "logistic"):
        assert rate_warning(0.999 * min(step_limit(head, X), 1e9), head, X) is None
    limit = step_limit("lms", X)
    warning = rate_warning(1.001 * limit, "lms", X)
    assert "will diverge" in warning
    assert f"2/L = {limit:.4g}" in warning
    assert "may" in rate_warning(1.001 * step_limit("logistic", X), "logistic", X)
    assert "may" in rate_warning(1.001 * limit, "lms", X, batch_size=1)
