"""The head of linear regression and its loss."""

import copy
import pickle

import pytest
import torch
import torch.nn.functional as F

import torchperc as tp
from torchperc.nn import functional as tpf
from torchperc.nn.heads import head

S, Y = torch.tensor([70.0, 61.0, -3.5]), torch.tensor([72.0, 60.0, 0.25])


def test_output_and_loss_are_torchs():
    one = tp.RegressionHead()
    assert one.output(S) is S
    for reduction in ("mean", "sum", "none"):
        expected = F.mse_loss(S, Y, reduction=reduction) / 2
        assert torch.equal(one.loss(S, Y, reduction), expected)
        assert torch.equal(tp.LMSLoss(reduction, targets="real")(S, Y), expected)
    s = S.clone().requires_grad_()
    one.loss(s, Y, "sum").backward()
    assert torch.equal(s.grad, S - Y)


def test_k_outputs_are_k_regressions_on_the_same_samples():
    s, y = torch.stack((S, -S), 1), torch.stack((Y, 2 * Y), 1)
    one = tp.RegressionHead()
    assert torch.equal(one.loss(s, y, "none"), one.loss(S, Y, "none") + one.loss(-S, 2 * Y, "none"))
    assert one.loss(s, y) == one.loss(s, y, "none").mean()


def test_integer_targets_are_numbers():
    assert tp.RegressionHead().loss(S, torch.tensor([71, 60, -3])) == pytest.approx((1 + 1 + 0.25) / 6)


@pytest.mark.parametrize("name", ["decide", "mistakes", "threshold"])
def test_there_is_no_decision(name):
    one = tp.RegressionHead()
    with pytest.raises(TypeError, match="decides no class"):
        {"decide": lambda: one.decide(S), "mistakes": lambda: one.mistakes(S, Y), "threshold": lambda: one.threshold}[
            name
        ]()


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_targets_must_be_finite(value):
    with pytest.raises(ValueError, match=f"targets must be finite numbers, found {value}"):
        tp.RegressionHead().loss(S, torch.tensor([1.0, value, 2.0]))


def test_shapes_do_not_broadcast():
    with pytest.raises(ValueError, match=r"scores have shape \(3, 1\) and targets \(3,\)"):
        tp.RegressionHead().loss(S[:, None], Y)


@pytest.mark.parametrize("one", [tp.PerceptronHead(), tp.LMSHead(), tp.LogisticHead()])
def test_classifiers_name_the_way_for_real_targets(one):
    with pytest.raises(ValueError, match="RegressionHead"):
        one.loss(S, Y)
    with pytest.raises(TypeError, match="RegressionHead"):
        one.loss(torch.stack((S, S), 1), Y)


def test_real_targets_are_not_an_option_of_the_classifier():
    with pytest.raises(ValueError, match="RegressionHead"):
        tp.LMSHead(targets="real")
    with pytest.raises(ValueError, match=r"\(2, 3\)"):
        tpf.lms_loss(torch.zeros(2, 3), torch.tensor([0, 1]), targets="real")


def test_the_head_is_a_plain_value():
    one = head("regression")
    assert one == tp.RegressionHead() == copy.deepcopy(one) == pickle.loads(pickle.dumps(one))
