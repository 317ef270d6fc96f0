"""The derivative of each loss as `descend` has it, and the bounds of its curvature, against autograd."""

import numpy as np
import pytest
import torch

import torchperc as tp
from torchperc.nn.heads import NAMED_HEADS, curvature_bound

ONE = [-1e4, -800.0, -30.0, -1.0, -1e-9, 0.0, 1e-9, 0.5, 1.0, 30.0, 800.0, 1e4]
MANY = [[0.0, 0.0, 0.0], [1.0, 1.0, 0.0], [0.0, 1.0, 1.0], [2.0, -1.0, 0.5], [1e4, -1e4, 0.0], [-900.0, 900.0, 899.0]]


def slopes(head, s, y):
    """dℓ/ds: what a step of length 1 takes from the bias, where the weights are the scores of x = 1."""
    net = torch.nn.Linear(1, len(s), dtype=torch.float64)
    net.weight.data, net.bias.data = s[:, None].clone(), torch.zeros_like(s)
    tp.descend(net, head, torch.ones(1, 1, dtype=torch.float64), [y], lr=1.0)
    return -net.bias.detach()


def by_autograd(head, s, y):
    s = s.clone().requires_grad_()
    return torch.autograd.grad(head.loss(s if len(s) == 1 else s[None], torch.as_tensor(np.array([y]))), s)[0]


@pytest.mark.parametrize("head", NAMED_HEADS.values(), ids=NAMED_HEADS)
def test_steps_are_along_the_derivative(head):
    regression = isinstance(head, tp.RegressionHead)
    cases = [([s], y) for s in ONE for y in ((-50.0, 0.3) if regression else (-1, 1))]
    cases += [] if regression else [(scores, label) for scores in MANY for label in range(3)]
    for scores, y in cases:
        s = torch.tensor(scores, dtype=torch.float64)
        torch.testing.assert_close(slopes(head, s, y), by_autograd(head, s, y), rtol=1e-15, atol=1e-15 * (len(s) > 1))


def test_scores_that_overflow_are_reported():
    net = tp.MulticlassPerceptron(1, 3)
    net.weight.data[1] = 3e38
    with pytest.raises(ValueError, match="overflow"):
        tp.descend(net, tp.PerceptronHead(), torch.tensor([[3e38]]), [0], lr=1.0)


@pytest.mark.parametrize("units", [1, 3])
@pytest.mark.parametrize("head", NAMED_HEADS.values(), ids=NAMED_HEADS)
def test_no_curvature_is_above_its_bound(head, units):
    scores = torch.cat((torch.zeros(1, units), torch.randn(50, units, generator=torch.Generator().manual_seed(0))))
    scores[0, 2:] = -1e3  # two classes share all probability: the largest eigenvalue of diag(p) − p·pᵀ is ½
    y = torch.ones(1, units) if isinstance(head, tp.RegressionHead) and units > 1 else torch.ones(1, dtype=torch.int64)
    found = []
    for s in scores.double():
        loss = lambda s: head.loss(s if units == 1 else s[None], y)  # noqa: E731
        found.append(float(torch.linalg.eigvalsh(torch.autograd.functional.hessian(loss, s)).max()))
    assert max(found) == pytest.approx(curvature_bound(head, units), rel=1e-12)


def test_a_head_of_another_kind_is_named():
    with pytest.raises(TypeError, match=r"head must be PerceptronHead.*found 'lms'"):
        tp.descend(tp.Perceptron(1), "lms", [[1.0]], [1], lr=1.0)
