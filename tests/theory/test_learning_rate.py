"""The rates that gradient descent bears, against Hessians by autograd, all batches one by one, and descent itself."""

import math
from itertools import combinations, pairwise

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array, diags_array

import torchperc as tp
from torchperc.nn import functional as tpf
from torchperc.theory.learning_rate import auto_lr, largest_eigenvalue, rate_warning, step_limit


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


def descent(loss, start, lr, steps):
    """Weights and losses of plain descent."""
    w, losses = start.clone().requires_grad_(), []
    for _ in range(steps):
        value = loss(w)
        losses.append(value.item())
        w = (w - lr * torch.autograd.grad(value, w)[0]).detach().requires_grad_()
    return w.detach(), losses


# --- the largest eigenvalue ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(30, 4), (4, 30), (7, 7), (1, 3), (8, 1)])
def test_the_largest_eigenvalue_of_few(shape, bias):
    X, _ = data(1, *shape)
    expected = top(lifted(X, bias))
    for given in (X, X.numpy(), csr_array(X.numpy())):
        assert expected * (1 - 1e-14) <= largest_eigenvalue(given, bias=bias) <= expected * (1 + 1e-11)


def test_the_largest_eigenvalue_of_many_features_and_samples():
    """Two directions of nearly the same length, where an iteration that stops early would come out too low."""
    lengths = np.concatenate(([1.0, 0.9999], np.linspace(0.999, 0.1, 2098)))
    found = largest_eigenvalue(diags_array(lengths).tocsr(), bias=False)
    assert 1 / 2100 * (1 - 1e-13) <= found <= 1 / 2100 * (1 + 1e-6)


# --- the limits are those of the Hessian --------------------------------------------------------------------------


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_lms_limit_is_two_over_the_hessian(bias, reduction):
    X, y = data(2)
    phi = lifted(X, bias)
    for targets in ("-1/+1", "0/1"):

        def loss(w, targets=targets):
            return tpf.lms_loss(phi @ w, y, reduction=reduction, targets=targets)

        expected = 2 / curvature(loss, torch.zeros(phi.shape[1], dtype=torch.float64))
        assert step_limit("lms", X, bias=bias, reduction=reduction) == pytest.approx(expected, rel=1e-10)


def test_logistic_limit_bounds_every_hessian_and_is_reached_at_zero():
    X, y = data(4)
    phi = lifted(X)

    def loss(w):
        return tpf.logistic_loss(phi @ w, y)

    L = 2 / step_limit("logistic", X)
    assert curvature(loss, torch.zeros(5, dtype=torch.float64)) == pytest.approx(L, rel=1e-10)
    for seed in range(10):
        w = torch.from_numpy(np.random.default_rng(seed).normal(size=5))
        assert curvature(loss, w) <= L


@pytest.mark.parametrize("classes", [2, 3, 5])
def test_logistic_limit_of_many_classes_bounds_every_hessian(classes):
    X, y = data(5, classes=classes)
    phi = lifted(X)

    def loss(w):
        return tpf.logistic_loss(phi @ w.T, y)

    L = 2 / step_limit("logistic", X, num_classes=classes)
    zero = torch.zeros(classes, 5, dtype=torch.float64)
    # two probabilities of ½ have the eigenvalue ½; K of 1/K have 1/K, and ½ is come near to where two classes share all
    assert curvature(loss, zero) == pytest.approx(L * 2 / classes, rel=1e-10)
    two_of_them = zero.clone()
    two_of_them[2:, -1] = -40.0
    assert curvature(loss, two_of_them) == pytest.approx(L, rel=1e-10)
    for seed in range(5):
        assert curvature(loss, torch.from_numpy(np.random.default_rng(seed).normal(size=(classes, 5)))) <= L


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


def test_limits_by_batch_lie_between_those_of_one_sample_and_of_all():
    X, _ = data(7, count=24)
    one, full = step_limit("lms", X, batch_size=1), step_limit("lms", X)
    assert one == pytest.approx(2 / float(lifted(X).square().sum(1).max()), rel=1e-12)
    found = [step_limit("lms", X, batch_size=size) for size in (1, 2, 4, 8, 12, 24)]
    assert found == sorted(found)
    assert found[0] == one
    assert found[-1] == full == step_limit("lms", X, batch_size=100) == step_limit("lms", X, batch_size="full")
    assert step_limit("lms", X, batch_size=23) == one  # the last batch has one sample
    assert step_limit("logistic", X, batch_size=4) == pytest.approx(4 * step_limit("lms", X, batch_size=4), rel=1e-14)


# --- and descent keeps to them ------------------------------------------------------------------------------------


def test_lms_converges_below_the_limit_and_diverges_above():
    X, y = data(9)
    phi = lifted(X)
    best = torch.linalg.lstsq(phi, y.double()[:, None]).solution[:, 0]

    def loss(w):
        return tpf.lms_loss(phi @ w, y)

    start = torch.zeros(5, dtype=torch.float64)
    limit = step_limit("lms", X)
    below, _ = descent(loss, start, 0.98 * limit, 800)
    above, _ = descent(loss, start, 1.02 * limit, 800)
    assert float((below - best).norm()) < 1e-6
    assert float((above - best).norm()) > 1e6


def test_logistic_loss_falls_with_every_step_below_the_limit():
    X, y = data(10)
    for classes in (None, 3):
        labels = y if classes is None else torch.arange(len(X)) % 3
        shape = (5,) if classes is None else (3, 5)

        def loss(w, classes=classes, labels=labels):
            if classes is None:
                return tpf.logistic_loss(lifted(X) @ w, labels)
            return tpf.logistic_loss(lifted(X) @ w.T, labels)

        start = torch.from_numpy(np.random.default_rng(0).normal(size=shape)) * 3
        _, losses = descent(loss, start, 0.999 * step_limit("logistic", X, num_classes=classes), 200)
        assert all(after < before for before, after in pairwise(losses))


def test_one_sample_at_a_time_stays_bounded_below_its_limit_and_need_not_above():
    """A sample whose own error grows with every step drags a run away; below 2/max ‖φ‖² none can."""
    X = torch.tensor([[1.0], [-1.0], [6.0]], dtype=torch.float64)
    y = [1.0, -1.0, 1.0]
    limit = step_limit("lms", X, batch_size=1)
    assert limit == 2 / 37

    def length_after(passes, lr):
        w = torch.zeros(2, dtype=torch.float64)
        for _ in range(passes):
            for x, t in zip(lifted(X), y, strict=True):
                w = w + lr * (t - w @ x) * x
        return float(w.norm())

    assert length_after(400, 0.99 * limit) < 10
    assert length_after(400, 1.3 * limit) > 1e6


def test_auto_rates():
    X, y = data(11)
    assert auto_lr("perceptron", X) == 1
    assert step_limit(tp.PerceptronHead(), X) == math.inf
    assert auto_lr("lms", X) == auto_lr(tp.LMSHead(targets="0/1"), X) == step_limit("lms", X) / 2
    assert auto_lr("logistic", X, batch_size=1) == step_limit("logistic", X, batch_size=1) / 2
    assert (
        auto_lr(tp.LogisticHead(), X, num_classes=3, bias=False)
        == step_limit("logistic", X, num_classes=3, bias=False) / 2
    )
    start = torch.from_numpy(np.random.default_rng(0).normal(size=5))
    _, losses = descent(lambda w: tp.LMSHead().loss(lifted(X) @ w, y), start, auto_lr("lms", X), 50)
    assert losses == sorted(losses, reverse=True)


def test_too_large_is_said_before_the_run():
    X, _ = data(12)
    for head in (tp.PerceptronHead(), "lms", "logistic"):
        assert rate_warning(0.999 * min(step_limit(head, X), 1e9), head, X) is None
    assert "will diverge" in rate_warning(1.001 * step_limit("lms", X), "lms", X)
    assert "may" in rate_warning(1.001 * step_limit("logistic", X), "logistic", X)
    assert "may" in rate_warning(1.001 * step_limit("lms", X), "lms", X, batch_size=1)
    assert f"2/L = {step_limit('lms', X):.4g}" in rate_warning(1e6, "lms", X)
    assert rate_warning(1e6, "perceptron", X) is None


def test_samples_of_zeros_have_no_limit():
    X = np.zeros((3, 2))
    assert step_limit("lms", X, bias=False) == math.inf
    assert auto_lr("lms", X, bias=False) == 1
    assert step_limit("lms", X) == pytest.approx(2.0)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: step_limit("lms", [[math.inf]]), ValueError, r"X\[0, 0\] = inf"),
        (lambda: step_limit("lms", [[1e200]]), ValueError, "scale X down"),
        (lambda: step_limit("lms", [[1.0]], bias=1), TypeError, "bias must be True or False"),
        (lambda: step_limit("lms", [[1.0]], reduction="none"), ValueError, "reduction='none' is unknown"),
        (lambda: step_limit("lms", [[1.0]], batch_size="all"), ValueError, "batch_size='all' is unknown"),
        (lambda: step_limit("lms", [[1.0]], batch_size=0), ValueError, "batch_size=0"),
        (lambda: step_limit("logistic", [[1.0]], num_classes=1), ValueError, "num_classes=1"),
        (lambda: step_limit("hinge", [[1.0]]), ValueError, "head='hinge' is unknown"),
        (lambda: step_limit(torch.nn.MSELoss(), [[1.0]]), TypeError, "found MSELoss"),
        (lambda: step_limit("perceptron", [[1.0]], batch_size=-1), ValueError, "batch_size=-1"),
        (lambda: rate_warning(0, "lms", [[1.0]]), ValueError, "lr=0"),
        (lambda: auto_lr("lms", np.zeros((0, 3))), ValueError, "X is empty"),
    ],
)  # fmt: skip
def test_bad_input_is_named(call, error, message):
    with pytest.raises(error, match=message):
        call()
