"""The compiled derivatives of each loss, and the bounds of its curvature, against autograd."""

import math

import numpy as np
import pytest
import torch
from numba import njit

import torchperc as tp
from torchperc.descent import loops
from torchperc.nn.heads import NAMED_HEADS, curvature_bound

ONE = [-1e4, -800.0, -30.0, -1.0, -1e-9, 0.0, 1e-9, 0.5, 1.0, 30.0, 800.0, 1e4]
MANY = [[0.0, 0.0, 0.0], [1.0, 1.0, 0.0], [0.0, 1.0, 1.0], [2.0, -1.0, 0.5], [1e4, -1e4, 0.0], [-900.0, 900.0, 899.0]]
CLASSIFIERS = {name: head for name, head in NAMED_HEADS.items() if name != "regression"}


@njit
def compiled_slope(s, y, kind, tie, low):
    return loops.slope(s, y, kind, tie, low)


@njit
def compiled_slopes(s, y, classes, kind, tie, low, out):
    return loops.slopes(s, y, classes, kind, tie, low, out)


def by_autograd(head, s, y):
    s = s.clone().requires_grad_()
    return torch.autograd.grad(head.loss(s, y, reduction="sum"), s)[0]


@pytest.mark.parametrize("head", NAMED_HEADS.values(), ids=NAMED_HEADS)
def test_one_score(head):
    s = torch.tensor([ONE, ONE], dtype=torch.float64).reshape(-1)
    y = torch.tensor([1] * len(ONE) + [-1] * len(ONE))
    if isinstance(head, tp.RegressionHead):
        y = torch.linspace(-50, 70, len(s), dtype=torch.float64)
    found = [compiled_slope(a, b, *loops.loss_code(head)) for a, b in zip(s.tolist(), y.tolist(), strict=True)]
    np.testing.assert_allclose(found, by_autograd(head, s, y), rtol=1e-15)


@pytest.mark.parametrize("head", CLASSIFIERS.values(), ids=CLASSIFIERS)
def test_many_scores(head):
    for scores in MANY:
        for label in range(3):
            s, found = torch.tensor([scores], dtype=torch.float64), np.zeros(3)
            assert compiled_slopes(s[0].numpy(), label, 3, *loops.loss_code(head), found)
            np.testing.assert_allclose(found, by_autograd(head, s, torch.tensor([label]))[0], rtol=1e-15, atol=1e-15)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_scores_that_are_not_finite_are_reported(value):
    assert not compiled_slopes(np.array([0.0, value, 1.0]), 0, 3, *loops.loss_code(tp.PerceptronHead()), np.zeros(3))


@pytest.mark.parametrize("units", [1, 3])
@pytest.mark.parametrize("head", NAMED_HEADS.values(), ids=NAMED_HEADS)
def test_no_curvature_is_above_its_bound(head, units):
    scores = torch.cat((torch.zeros(1, units), torch.randn(50, units, generator=torch.Generator().manual_seed(0))))
    scores[0, 2:] = -1e3  # two classes share all probability: the largest eigenvalue of diag(p) − p·pᵀ is ½
    y = torch.ones(1, dtype=torch.int64) if not isinstance(head, tp.RegressionHead) else torch.ones(1, units)
    found = []
    for s in scores.double():
        target = y[:, 0] if y.dim() == 2 and units == 1 else y
        loss = lambda s: head.loss(s if units == 1 else s[None], target)  # noqa: E731, B023
        found.append(float(torch.linalg.eigvalsh(torch.autograd.functional.hessian(loss, s)).max()))
    assert max(found) == pytest.approx(curvature_bound(head, units), rel=1e-12)


def test_a_head_of_another_kind_is_named():
    with pytest.raises(TypeError, match="head must be PerceptronHead"):
        curvature_bound("lms", 1)
    with pytest.raises(TypeError, match="head must be PerceptronHead"):
        loops.loss_code("lms")
