"""Losses, decisions, mistakes and geometry against formulas, torch's own functions and finite differences."""

import math

import numpy as np
import oracles
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from sklearn.utils.class_weight import compute_class_weight
from torch.autograd import gradcheck

import torchperc as tp
from torchperc import functional as tpf

LOSSES = {
    "perceptron": tpf.perceptron_loss,
    "lms": tpf.lms_loss,
    "lms 0/1": lambda s, y, **k: tpf.lms_loss(s, y, targets="0/1", **k),
    "logistic": tpf.logistic_loss,
}
S = torch.tensor([2.0, -1.5, 0.25, -0.75], dtype=torch.float64)
Y = torch.tensor([1, 1, -1, -1])


@pytest.mark.parametrize(
    ("name", "formula"),
    [
        ("perceptron", lambda s, y: max(0.0, -y * s)),
        ("lms", lambda s, y: 0.5 * (y - s) ** 2),
        ("lms 0/1", lambda s, y: 0.5 * ((y + 1) / 2 - s) ** 2),
        ("logistic", lambda s, y: math.log1p(math.exp(-y * s))),
    ],
)
def test_losses_follow_their_formula(name, formula):
    each = torch.tensor([formula(s, y) for s, y in zip(S.tolist(), Y.tolist(), strict=True)], dtype=torch.float64)
    torch.testing.assert_close(LOSSES[name](S, Y, reduction="none"), each, rtol=1e-15, atol=1e-15)
    torch.testing.assert_close(LOSSES[name](S, Y, reduction="sum"), each.sum(), rtol=1e-15, atol=0)
    torch.testing.assert_close(LOSSES[name](S, Y), each.mean(), rtol=1e-15, atol=0)


@pytest.mark.parametrize("name", LOSSES)
def test_gradients_away_from_the_kink(name):
    assert gradcheck(lambda s: LOSSES[name](s, Y, reduction="none"), S.clone().requires_grad_())
    s = torch.tensor([[1.0, 3.0, 0.5], [2.0, -1.0, 0.0]], dtype=torch.float64, requires_grad=True)
    assert gradcheck(lambda s: LOSSES[name](s, torch.tensor([0, 0]), reduction="none"), s)


@pytest.mark.parametrize(
    ("tie", "slopes"),
    [
        ("update", ([-1], [1], [-1, 1, 0], [1, -1, 0])),
        ("strict", ([0], [0], [0, 0, 0], [0, 0, 0])),
        ("sign", ([0], [1], [0, 0, 0], [1, -1, 0])),  # a mistake where a lower class ties
    ],
)
def test_the_kink_is_a_named_choice_and_its_gradient_goes_to_one_rival(tie, slopes):
    for y, slope in zip((1, -1, 0, 1), slopes, strict=True):
        s = torch.zeros(1, 3) if len(slope) == 3 else torch.zeros(1)
        loss = tpf.perceptron_loss(s.requires_grad_(), torch.tensor([y]), tie=tie)
        assert loss == 0
        loss.backward()
        assert s.grad.flatten().tolist() == slope


@pytest.mark.slow
def test_compile_gives_the_same_gradient_at_the_kink():
    def loss(s, y):
        return tpf.perceptron_loss(s, y, reduction="sum")

    compiled = torch.compile(loss, backend="aot_eager", fullgraph=True)
    s = torch.tensor([0.0, 0.0, 1.0, -1.0], requires_grad=True)
    compiled(s, torch.tensor([1, -1, 1, 1])).backward()
    assert s.grad.tolist() == [-1, 1, 0, -1]


def test_logistic_is_stable_in_float32():
    s = torch.tensor([-1e4, -100.0, 0.0, 100.0, 1e4], requires_grad=True)
    y = torch.ones(5, dtype=torch.int64)
    loss = tpf.logistic_loss(s, y, reduction="none")
    loss.sum().backward()
    assert loss[[0, 1, 4]].tolist() == [1e4, 100.0, 0.0]
    assert torch.isfinite(s.grad).all()
    assert s.grad[0] == -1
    exact = tpf.logistic_loss(torch.tensor([30.0], dtype=torch.float64), torch.tensor([1]))
    assert exact.item() == pytest.approx(math.log1p(math.exp(-30)), rel=1e-12)  # torch's softplus would say 0


def test_class_logistic_is_cross_entropy():
    s, y = torch.randn(6, 4, dtype=torch.float64), torch.tensor([0, 1, 2, 3, 0, 1])
    torch.testing.assert_close(tpf.logistic_loss(s, y), F.cross_entropy(s, y))


def test_costs():
    s, y = torch.tensor([1.0, -1.0, 1.0, -1.0]), torch.tensor([-1, 1, 1, -1])
    assert tpf.cost_loss(s, y, fp=2, fn=7, reduction="none").tolist() == [2, 7, 0, 0]
    assert tpf.cost_loss(s, y) == tpf.zero_one_loss(s, y) == 0.5
    assert tpf.cost_loss(s.double(), y, fp=0.1, reduction="none")[0].item() == 0.1
    for loss in (tpf.cost_loss, tpf.zero_one_loss):
        assert loss(torch.tensor([math.nan, 1.0]), y[:2], reduction="none").isnan().tolist() == [True, False]
    with pytest.raises(ValueError, match="fp=-1"):
        tp.CostLoss(fp=-1)


@pytest.mark.parametrize("loss", [*LOSSES.values(), tpf.cost_loss])
def test_shapes_do_not_broadcast(loss):
    with pytest.raises(ValueError, match=r"\(4, 1\).*\(4,\)"):
        loss(S[:, None], Y)


@pytest.mark.parametrize("loss", [*LOSSES.values(), tpf.cost_loss, tpf.zero_one_loss])
@pytest.mark.parametrize("labels", [[0, 1, 0, 1], [1, 2, -1, 1]])
def test_losses_refuse_other_labels(loss, labels):
    with pytest.raises(ValueError, match=r"labels must be -1 and \+1, found"):
        loss(S, torch.tensor(labels))


@pytest.mark.parametrize("loss", LOSSES.values())
def test_class_losses_refuse_other_labels(loss):
    for labels in ([0, 3], [-1, 0]):
        with pytest.raises(ValueError, match="class indices 0 to 2"):
            loss(torch.zeros(2, 3), torch.tensor(labels))
    with pytest.raises(TypeError, match="RegressionHead"):
        loss(torch.zeros(2, 3), torch.tensor([0.0, 1.0]))
    with pytest.raises(TypeError, match="scores must be a tensor, found list"):
        loss([0.0, 1.0], torch.tensor([1, 1]))
    with pytest.raises(TypeError, match="labels must be a tensor, found list"):
        loss(torch.zeros(2), [1, 1])


def test_unsigned_labels_are_not_negated_around():
    assert tpf.perceptron_loss(torch.tensor([-2.0]), torch.tensor([1], dtype=torch.uint8)) == 2


def test_rivals_of_masked_classes_are_other_classes():
    s = torch.tensor([[5.0, -math.inf, -math.inf], [-math.inf, 5.0, -math.inf]])
    assert tpf.rival_scores(s, torch.tensor([0, 1]))[1].tolist() == [1, 0]


@given(
    st.lists(st.integers(-2, 2), min_size=1, max_size=4),
    st.sampled_from(["update", "sign", "strict"]),
    st.integers(0, 3),
)
def test_mistakes_on_tensors_are_those_of_the_plain_test(scores, tie, y):
    if len(scores) == 1:
        y = 1 if y % 2 else -1
        found = tpf.mistakes(torch.tensor(float(scores[0])), torch.tensor(y), tie=tie)
    else:
        y %= len(scores)
        found = tpf.mistakes(torch.tensor(scores, dtype=torch.float64), torch.tensor(y), tie=tie)
    assert bool(found) == (oracles.taken_for(scores, y, tie) is not None)


@pytest.mark.parametrize("tie", tpf.TIES)
def test_a_score_that_is_no_number_is_a_mistake(tie):
    assert tpf.mistakes(torch.tensor([math.nan, math.nan]), torch.tensor([1, -1]), tie=tie).all()


def test_geometry():
    w, b = torch.tensor([[3.0, 4.0]], dtype=torch.float64), torch.tensor([-10.0], dtype=torch.float64)
    x = torch.tensor([[3.0, 4.0], [0.0, 0.0], [6.0, -2.0]], dtype=torch.float64)
    assert torch.linalg.vector_norm(tpf.unit_normal(w)) == pytest.approx(1)
    foot = tpf.unit_normal(w) * tpf.offset(w, b)
    assert tpf.scores(foot[None], w, b).item() == pytest.approx(0, abs=1e-12)
    assert tpf.signed_distance(x, w, b).tolist() == pytest.approx([3, -2, 0])
    assert tpf.geometric_margin(x[:2], torch.tensor([1, -1]), w, b) == pytest.approx(2)
    assert tpf.geometric_margin(x[:2], torch.tensor([-1, -1]), w, b) == pytest.approx(-3)
    moved = tpf.signed_distance(x, 7 * w, 7 * b)
    torch.testing.assert_close(moved, tpf.signed_distance(x, w, b))  # a scaled hyperplane is the same hyperplane
    with pytest.raises(ValueError, match="all zero"):
        tpf.unit_normal(torch.zeros(1, 2))


@pytest.mark.parametrize("position", ["first", "last"])
def test_homogeneous_coordinates_are_the_same_model(position):
    x, w, b = torch.randn(5, 3), torch.randn(2, 3), torch.randn(2)
    folded = tpf.fold_bias(w, b, position)
    torch.testing.assert_close(
        tpf.scores(tpf.homogeneous(x, position), folded), tpf.scores(x, w, b), rtol=1e-5, atol=1e-6
    )
    assert all(map(torch.equal, tpf.unfold_bias(folded, position), (w, b)))
    assert tpf.homogeneous(torch.tensor([[1, 2]]), position, 0.5).sum() == 3.5  # integers become floats
    joint = tpf.joint_features(x, 2) @ tpf.fold_bias(w, b).flatten()
    torch.testing.assert_close(joint, tpf.scores(x, w, b))


def test_geometry_is_that_of_one_hyperplane():
    with pytest.raises(ValueError, match=r"\(2, 2\); one hyperplane has \(1, d\)"):
        tpf.unit_normal(torch.ones(2, 2))
    with pytest.raises(ValueError, match=r"\(2, 1\)"):
        tpf.geometric_margin(torch.zeros(2, 1), torch.ones(2, 1), torch.ones(1, 1))


def test_two_sample_start():
    x, y = torch.tensor([[1.0, 2.0], [1.0, 4.0], [5.0, 5.0]]), torch.tensor([-1, 1, 1])
    for targets, wanted in (("-1/+1", [-1, 1]), ("0/1", [0, 1])):
        weight, bias = tpf.two_sample_start(x, y, targets=targets)
        assert (x[:2] @ weight[0] + bias).tolist() == pytest.approx(wanted)
        assert weight[0, 0] == 0  # where the two samples agree, the plane is flat
    weight, bias = tpf.two_sample_start(x[[0, 0, 2]], torch.tensor([60.0, 60.0, 72.0]), targets="real")
    assert (x[[0, 2]] @ weight[0] + bias).tolist() == pytest.approx([60, 72])  # through the first two that differ
    weight, bias = tpf.two_sample_start(torch.tensor([[160], [180]]), torch.tensor([60, 72]), targets="real")
    assert (weight.item(), bias.item()) == (pytest.approx(0.6), pytest.approx(-36.0, rel=1e-5))  # integers, too
    for samples, labels, targets in (
        (x[[0, 0]], torch.tensor([-1, 1]), "-1/+1"),
        (x, torch.ones(3), "-1/+1"),
        (x[[0, 0]], torch.ones(2), "real"),
    ):
        with pytest.raises(ValueError, match="two samples that differ"):
            tpf.two_sample_start(samples, labels, targets=targets)


@pytest.mark.parametrize("y", [[1, -1, -1, -1], [0, 0, 2, 1, 2, 2], [1, 1]])
def test_balanced_weights_are_those_of_scikit_learn(y):
    classes = np.unique(y)
    expected = compute_class_weight("balanced", classes=classes, y=y)
    assert tpf.balanced_weights(torch.tensor(y)) == dict(zip(classes.tolist(), expected.tolist(), strict=True))
    with pytest.raises(ValueError, match="y is empty"):
        tpf.balanced_weights(torch.tensor([]))


# --- regression ---

REAL_S, REAL_Y = torch.tensor([70.0, 61.0, -3.5]), torch.tensor([72.0, 60.0, 0.25])
REGRESSION = tp.RegressionHead()


def test_the_loss_of_regression_is_torchs():
    assert REGRESSION.output(REAL_S) is REAL_S
    for reduction in ("mean", "sum", "none"):
        expected = F.mse_loss(REAL_S, REAL_Y, reduction=reduction) / 2
        assert torch.equal(REGRESSION.loss(REAL_S, REAL_Y, reduction), expected)
        assert torch.equal(tp.LMSLoss(reduction, targets="real")(REAL_S, REAL_Y), expected)
    s, y = torch.stack((REAL_S, -REAL_S), 1), torch.stack((REAL_Y, 2 * REAL_Y), 1)  # K outputs are K regressions
    each = REGRESSION.loss(REAL_S, REAL_Y, "none") + REGRESSION.loss(-REAL_S, 2 * REAL_Y, "none")
    assert torch.equal(REGRESSION.loss(s, y, "none"), each)
    assert REGRESSION.loss(s, y) == each.mean()
    assert REGRESSION.loss(REAL_S, torch.tensor([71, 60, -3])) == pytest.approx((1 + 1 + 0.25) / 6)  # integers, too


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: REGRESSION.decide(REAL_S), TypeError, "decides no class"),
        (lambda: REGRESSION.mistakes(REAL_S, REAL_Y), TypeError, "decides no class"),
        (lambda: REGRESSION.threshold, TypeError, "decides no class"),
        (lambda: REGRESSION.loss(REAL_S, torch.tensor([1.0, math.nan, 2.0])), ValueError, "found nan"),
        (lambda: REGRESSION.loss(REAL_S, torch.tensor([1.0, math.inf, 2.0])), ValueError, "found inf"),
        (lambda: REGRESSION.loss(REAL_S[:, None], REAL_Y), ValueError, r"scores have shape \(3, 1\) and y \(3,\)"),
        (lambda: tpf.lms_loss(torch.zeros(2, 3), torch.tensor([0, 1]), targets="real"), ValueError, r"\(2, 3\)"),
        (lambda: tp.LMSHead(targets="real"), ValueError, "RegressionHead"),
        (lambda: tp.PerceptronHead().loss(REAL_S, REAL_Y), ValueError, "RegressionHead"),
        (lambda: tp.LogisticHead().loss(REAL_S, REAL_Y), ValueError, "RegressionHead"),
    ],
)
def test_real_targets_and_classes_are_kept_apart(call, error, words):
    with pytest.raises(error, match=words):
        call()
