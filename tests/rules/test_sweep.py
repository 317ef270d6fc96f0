"""Many runs beside each other: rule and autograd agree, or the disagreement is found; the members of a sweep are the solo runs."""

import itertools
from contextlib import nullcontext

import numpy as np
import oracles
import pytest
import scipy.sparse as sp
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


# from zero weights a strict tie warns that nothing moves
pytestmark = pytest.mark.filterwarnings("ignore:tie='strict' updates only")


def integers(seed, count=25, width=3, classes=None):
    X, y = oracles.integers(seed, count=count, width=width, classes=classes)
    return np.array(X, float), np.array(y)


def assert_members_equal_solo_runs(sweep, X, y, classes=None, engine="auto"):
    for m in range(len(sweep)):
        net = tp.Perceptron(X.shape[1]) if classes is None else tp.MulticlassPerceptron(X.shape[1], classes)
        trainer = sweep.trainer(m)
        trainer.engine = engine
        result = trainer.fit(net.to(sweep.weight.dtype), X, y)
        expected = result.mistakes, result.epochs, result.verdict
        assert (sweep.mistakes[m], sweep.epochs[m], sweep.verdicts[m]) == expected
        assert torch.equal(net.weight, sweep.weight[m])
        assert torch.equal(net.bias, sweep.bias[m])


@pytest.mark.parametrize("classes", [None, 3])
@pytest.mark.parametrize("tie", ["update", "sign", "strict"])
@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "csr"])
def test_members_equal_solo_runs(sparse, tie, classes):
    rng = np.random.default_rng(0)
    X, y = integers(2, classes=classes)
    margins = [0] if tie == "sign" else [0, 1.5]
    data = sp.csr_array(X) if sparse else X
    options = {"tie": tie, "max_epochs": 8, "num_classes": classes}
    seeds = tp.sweep(data, y, seeds=[0, 9, 2**40], lr=[1, 0.7], margin=margins, **options)
    orders = tp.sweep(data, y, orders=[rng.permutation(25) for _ in range(3)], bias_step="radius", **options)
    assert (len(seeds), len(orders)) == (6 * len(margins), 3)
    for sweep in (seeds, orders):
        assert_members_equal_solo_runs(sweep, X, y, classes)


def test_threads_make_the_runs_of_one_thread():
    X, y = integers(5, count=60)
    options = {"seeds": range(12), "max_epochs": 5}
    one = tp.sweep(X, y, **options)
    torch.set_num_threads(4)
    try:
        four = tp.sweep(X, y, **options)
    finally:
        torch.set_num_threads(1)
    assert torch.equal(one.mistakes, four.mistakes)
    assert torch.equal(one.weight, four.weight)
    assert one.verdicts == four.verdicts


def test_margins_are_those_of_the_models():
    X, y = integers(3, count=40)
    sweep = tp.sweep(X, y, seeds=range(5), bias_step="radius", max_epochs=3)
    scale = np.square(X).sum(1).max()
    for m in range(5):
        w, b = sweep.weight[m, 0].numpy(), float(sweep.bias[m, 0])
        expected = (y * (X @ w + b)).min() / np.sqrt(w @ w + b**2 / scale)
        assert float(sweep.margins[m]) == pytest.approx(expected, rel=1e-12)


def test_a_given_gamma_sets_the_bound():
    sweep = tp.sweep(*tp.data.gate("AND"), margin=[0, 2], lr=2)
    assert sweep.bounds(0.5).tolist() == pytest.approx([3 / 0.25, (3 + 2) / 0.25])
    xor = tp.sweep(*tp.data.gate("XOR"))
    assert xor.bound == float("inf")
    assert xor.verdicts == (tp.Verdict.CYCLING,)


X, Y = tp.data.gate("AND")
test_bad_options_and_data = refusals(
    ({"orders": [[0, 1, 2, 4]]}, "sample 4"),
    ({"orders": [[0.0, 1, 2, 3]]}, "integer sample numbers"),
    ({"orders": [0, 1, 2, 3]}, TypeError, "found int"),
    ({"orders": [[0, 1, 2, 3]], "seeds": [1]}, "give one of them"),
    ({"seeds": []}, "must not be empty"),
    ({"seeds": [-1]}, "seeds=-1 must be at least 0"),
    ({"lr": [1, 0]}, "lr=0"),
    ({"margin": [1], "tie": "sign"}, "has no effect with tie='sign'"),
    ({"tie": "never"}, "tie='never' is unknown"),
    ({"bias_step": "two"}, "bias_step='two' is unknown"),
    ({"max_epochs": 0}, "max_epochs=0 must be at least 1"),
    ({"n_jobs": 0}, "n_jobs"),
    ({"n_jobs": 1.5}, TypeError, "n_jobs"),
    ({"y": [0, 1, 0, 1]}, "must hold -1 and"),
    ({"X": X[0]}, "two dimensions"),
    ({"X": X * 1e30, "bias_step": "none"}, "overflow"),
    by=lambda given: tp.sweep(**{"X": X, "y": Y, **given}),
    error=ValueError,
)
