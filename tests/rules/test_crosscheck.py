"""The rule and autograd agree: exactly on integers, to the last few ulps on floats; and a disagreement is found."""

import itertools
from contextlib import nullcontext

import oracles
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from refusals import refusals

import torchperc as tp
from torchperc.rules import crosscheck as crosschecking

TIES, BIAS_STEPS = ("update", "sign", "strict"), ("unit", "radius", "none")


def run(X, y, **options):
    """A cross-check from zero weights, where a strict tie warns that nothing moves."""
    with pytest.warns(UserWarning, match="nothing will ever move") if options["tie"] == "strict" else nullcontext():
        return tp.crosscheck(X, y, **options)


@pytest.mark.parametrize("floats", [False, True], ids=["integers", "floats"])
@given(
    st.integers(0, 10_000),
    st.sampled_from(TIES),
    st.sampled_from(BIAS_STEPS),
    st.sampled_from([torch.float32, torch.float64]),
    st.sampled_from([None, 2, 4]),
    st.sampled_from(["given", "shuffled", "random-mistake"]),
)
def test_both_sides_make_the_same_mistakes(floats, seed, tie, bias_step, dtype, classes, order):
    X, y = oracles.integers(seed, count=20, width=7, classes=classes)
    if floats:
        X = torch.randn(20, 7, generator=torch.Generator().manual_seed(seed), dtype=dtype)
    lr = [1.0, 0.1, 0.37, 0.5][seed % 4] if floats else [1.0, 0.5, 2.0, 8.0][seed % 4]
    options = {"dtype": dtype, "order": "given" if floats else order, "seed": seed, "bias_step": bias_step}
    check = run(X, y, lr=lr, epochs=4, tie=tie, num_classes=classes, **options)
    assert check.equal, check.first_difference
    assert check.ulps <= crosschecking.FEW_ULPS if floats else check.exact
    assert check.rule.equals(check.gradient)


def test_the_logs_are_those_of_the_trainer():
    X, y = oracles.integers(11)
    check = tp.crosscheck(X, y, epochs=5, order="shuffled", seed=3)
    result = tp.RuleTrainer(max_epochs=5, order="shuffled", seed=3).fit(tp.Perceptron(3), X, y)
    assert check.rule.equals(result.log)
    assert check.gradient.equals(result.log)


@pytest.mark.parametrize(("tie", "bias_step", "classes"), list(itertools.product(TIES, BIAS_STEPS, (None, 3))))
def test_a_full_batch_step_is_the_sum_of_all_updates(tie, bias_step, classes):
    for seed in range(4):
        X, y = oracles.integers(seed, classes=classes)
        check = run(X, y, tie=tie, bias_step=bias_step, num_classes=classes, epochs=4, mode="batch")
        assert check.equal, check.first_difference
        assert check.exact
        floats = run(
            torch.randn(20, 5), oracles.integers(seed, count=20, classes=classes)[1],
            lr=0.3, tie=tie, bias_step=bias_step, num_classes=classes, epochs=3, mode="batch",
        )  # fmt: skip
        assert floats.rule.equals(floats.gradient)
        assert floats.equal


def test_the_batch_step_by_hand():
    X, y = tp.data.gate("AND")
    check = tp.crosscheck(X, y, epochs=1, mode="batch")
    # at zero all four are mistakes: −(0,0) − (0,1) − (1,0) + (1,1) and −1 −1 −1 +1
    assert check.rule.last().weight.tolist() == [[0, 0]]
    assert check.rule.last().bias.tolist() == [-2]
    assert len(check.gradient) == 4


def test_a_difference_is_found_where_it_is(monkeypatch):
    X, y = tp.data.gate("AND")
    honest, seen = tp.PerceptronLoss.forward, []

    def forward(self, scores, target):
        seen.append(None)  # the tenth sample: third epoch, sample 1, a mistake of the rule with score 0
        return honest(self, scores, target) * (len(seen) != 10)

    monkeypatch.setattr(tp.PerceptronLoss, "forward", forward)
    check = tp.crosscheck(X, y, epochs=10)
    assert not check.equal
    assert not check.exact
    first = check.first_difference
    assert (first.epoch, first.sample) == (3, 1)
    assert first.rule.scores == first.gradient.scores == [0.0]
    assert first.rule_weights.weight.tolist() == [[2, 0]]
    assert first.gradient_weights.weight.tolist() == [[2, 1]]
    assert not check.rule.equals(check.gradient)


test_wrong_options_are_named = refusals(
    ({"lr": float("inf")}, ValueError, "lr=inf"),
    ({"lr": 0}, ValueError, "lr=0"),
    ({"epochs": 0}, ValueError, "epochs=0"),
    ({"tie": "ignore"}, ValueError, "tie='ignore'"),
    ({"mode": "mini"}, ValueError, "mode='mini'"),
    ({"mode": "batch", "order": "shuffled"}, ValueError, "order must be 'given'"),
    ({"bias_step": "half"}, ValueError, "bias_step='half'"),
    ({"dtype": torch.int64}, TypeError, "dtype=torch.int64"),
    ({"order": "sorted"}, ValueError, "order='sorted'"),
    ({"seed": -1}, ValueError, "seed=-1"),
    ({"num_classes": 3}, ValueError, "class indices 0 to 2"),
    by=lambda options: tp.crosscheck(*tp.data.gate("AND"), **options),
)
