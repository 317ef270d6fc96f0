"""Each loss's derivatives: tensors, plain Python and compiled loops against each other and against autograd."""

import math

import numpy as np
import pytest
import torch
from numba import njit

import torchperc as tp
from torchperc.descent import loops  # noqa: F401 - makes the formulas known to numba
from torchperc.nn import derivatives as d
from torchperc.nn.heads import NAMED_HEADS, loss_code

ONE = [-1e4, -800.0, -30.0, -1.0, -1e-9, 0.0, 1e-9, 0.5, 1.0, 30.0, 800.0, 1e4]
MANY = [[0.0, 0.0, 0.0], [1.0, 1.0, 0.0], [0.0, 1.0, 1.0], [2.0, -1.0, 0.5], [1e4, -1e4, 0.0], [-900.0, 900.0, 899.0]]
CLASSIFIERS = {name: head for name, head in NAMED_HEADS.items() if not isinstance(head, tp.RegressionHead)}
ROWS = [(scores, y) for scores in MANY for y in range(3)]


@njit
def compiled_slope(s, y, kind, tie, low):
    return d.slope(s, y, kind, tie, low)


@njit
def compiled_slopes(s, y, classes, kind, tie, low, out):
    return d.slopes(s, y, classes, kind, tie, low, out)


@njit
def compiled_terms(slack):
    return d.logistic_terms(slack)


def by_autograd(head, s, y):
    s = s.clone().requires_grad_()
    loss = head.loss(s, y, reduction="none")
    (slope,) = torch.autograd.grad(loss.sum(), s)
    return loss.detach(), slope


def by_formula(head, s, y):
    """Loss and slope by nn/derivatives, of scores (N, K); for arrays they are those for tensors."""
    units = s.shape[1]
    arrays = terms_of(head, s.numpy(), y.numpy(), units)
    tensors = terms_of(head, s, y, units)
    for array, tensor in zip(arrays, tensors, strict=True):
        assert array.dtype == tensor.numpy().dtype
        np.testing.assert_allclose(array, tensor.numpy(), rtol=4 * torch.finfo(s.dtype).eps, atol=1e-38)
    return tensors[:2]


def terms_of(head, s, y, units):
    if isinstance(head, tp.LMSHead):
        target = d.targets(y, units, head.low)
        return d.lms(s, target.astype(s.dtype) if isinstance(s, np.ndarray) else target.to(s.dtype))
    return (d.logistic if units == 1 else d.softmax)(s, y)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("head", CLASSIFIERS.values(), ids=CLASSIFIERS)
def test_one_score(head, dtype):
    s, y = torch.tensor([ONE, ONE], dtype=dtype).reshape(-1), torch.tensor([1] * len(ONE) + [-1] * len(ONE))
    exact = {"rtol": 4 * torch.finfo(dtype).eps, "atol": 0.0}
    loss, slope = by_autograd(head, s, y)
    if not isinstance(head, tp.PerceptronHead):  # whose slope is written for one sample only
        found = by_formula(head, s[:, None], y)
        torch.testing.assert_close(found[0], loss, **exact)
        subnormal = 1e-38 if dtype == torch.float32 else 0
        torch.testing.assert_close(found[1][:, 0], slope, rtol=exact["rtol"], atol=subnormal)
    code = loss_code(head)
    plain = [d.slope(score, label, *code) for score, label in zip(s.tolist(), y.tolist(), strict=True)]
    assert [compiled_slope(a, b, *code) for a, b in zip(s.tolist(), y.tolist(), strict=True)] == plain
    torch.testing.assert_close(torch.tensor(plain, dtype=dtype), slope, rtol=exact["rtol"], atol=1e-38)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("head", CLASSIFIERS.values(), ids=CLASSIFIERS)
def test_many_scores(head, dtype):
    s, y = torch.tensor([scores for scores, _ in ROWS], dtype=dtype), torch.tensor([label for _, label in ROWS])
    close = {"rtol": 8 * torch.finfo(dtype).eps, "atol": 2 * torch.finfo(dtype).eps}
    loss, slope = by_autograd(head, s, y)
    if not isinstance(head, tp.PerceptronHead):
        found = by_formula(head, s, y)
        torch.testing.assert_close(found[0], loss, **close)
        torch.testing.assert_close(found[1], slope, **close)
    for row, label, expected in zip(s.tolist(), y.tolist(), slope, strict=True):
        plain, compiled = [0.0] * 3, np.zeros(3)
        assert d.slopes(row, label, 3, *loss_code(head), plain)
        assert compiled_slopes(np.array(row, s.numpy().dtype), label, 3, *loss_code(head), compiled)
        assert compiled.tolist() == plain
        torch.testing.assert_close(torch.tensor(plain, dtype=dtype), expected, **close)


def test_regression():
    s = torch.tensor([ONE, ONE], dtype=torch.float64).reshape(-1)
    y = torch.linspace(-50, 70, len(s), dtype=torch.float64)
    loss, slope = by_autograd(tp.RegressionHead(), s, y)
    code = loss_code(tp.RegressionHead())
    plain = [d.slope(score, target, *code) for score, target in zip(s.tolist(), y.tolist(), strict=True)]
    assert plain == slope.tolist() == (s - y).tolist()
    assert [compiled_slope(a, b, *code) for a, b in zip(s.tolist(), y.tolist(), strict=True)] == plain
    terms = d.lms(s[:, None], tp.RegressionHead().target(y, 1))
    assert torch.equal(terms.loss, loss)
    assert torch.equal(terms.slope[:, 0], slope)
    assert d.curvature_bound(code[0], 1) == d.curvature_bound(code[0], 3) == 1.0


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_scores_that_are_not_finite_are_told(value):
    assert not d.slopes([0.0, value, 1.0], 0, 3, d.PERCEPTRON, d.UPDATE, 0.0, [0.0] * 3)
    assert not compiled_slopes(np.array([0.0, value, 1.0]), 0, 3, d.PERCEPTRON, d.UPDATE, 0.0, np.zeros(3))


@pytest.mark.parametrize("slack", ONE)
def test_the_terms_of_the_logistic_loss(slack):
    small, wrong, bend = d.logistic_terms(slack)
    assert compiled_terms(slack) == (small, wrong, bend)
    s = torch.tensor([[slack]], dtype=torch.float64)
    loss, slope, curvature = d.logistic(s, torch.tensor([1]))
    assert max(-slack, 0.0) + math.log1p(small) == pytest.approx(float(loss), rel=1e-15)
    assert (-wrong, bend) == pytest.approx((float(slope), float(curvature)), rel=1e-15, abs=0)


def test_the_curvature_is_that_of_autograd():
    s = torch.tensor([[0.3, -1.0, 2.0]], dtype=torch.float64)
    y = torch.tensor([1])
    p = d.softmax(s, y).bend[0]
    hessian = torch.autograd.functional.hessian(lambda s: torch.nn.functional.cross_entropy(s, y), s)[0, :, 0]
    torch.testing.assert_close(p.diag() - p[:, None] * p, hessian)
    one = s[:, :1]
    hessian = torch.autograd.functional.hessian(lambda s: torch.nn.functional.softplus(-s).sum(), one)
    torch.testing.assert_close(d.logistic(one, y).bend.flatten(), hessian.flatten())
    target = d.targets(y, 3, -1.0).double()
    hessian = torch.autograd.functional.hessian(lambda s: (target - s).square().sum() / 2, s)[0, :, 0]
    torch.testing.assert_close(d.lms(s, target).bend[0].diag(), hessian)


@pytest.mark.parametrize(("kind", "units", "bound"), [(0, 1, 0.0), (1, 3, 1.0), (2, 1, 0.25), (2, 3, 0.5)])
def test_the_bound_of_the_curvature_is_reached_and_not_passed(kind, units, bound):
    assert d.curvature_bound(kind, units) == bound
    if kind != d.LOGISTIC:
        return
    s = torch.cat((torch.zeros(1, units), torch.randn(500, units, generator=torch.Generator().manual_seed(0)))).double()
    if units == 1:
        found = d.logistic(s, torch.ones(len(s), dtype=torch.int64)).bend
        assert float(found.max()) == bound
        return
    s[0, 2] = -1e3  # two classes share all probability: the largest eigenvalue of diag(p) − p·pᵀ is ½
    p = d.softmax(s, torch.zeros(len(s), dtype=torch.int64)).bend
    largest = torch.linalg.eigvalsh(p.diag_embed() - p[:, :, None] * p[:, None]).max()
    assert float(largest) == pytest.approx(bound, rel=1e-15)
