"""A sweep's members are the solo runs, and the bound holds for each of them."""

import numpy as np
import oracles
import pytest
import scipy.sparse as sp
import torch
from refusals import refusals

import torchperc as tp

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
