"""A sweep's members are the solo runs, and the bound holds for each of them."""

import warnings

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from test_engines import integers

import torchperc as tp
from torchperc.rules import sweep as sweeping


def assert_members_equal_solo_runs(sweep, X, y, classes=None):
    for m in range(len(sweep)):
        net = (tp.Perceptron(X.shape[1]) if classes is None else tp.MulticlassPerceptron(X.shape[1], classes)).to(
            sweep.weight.dtype
        )
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="tie='strict' updates only")
            result = sweep.trainer(m).fit(net, X, y)
        assert (result.mistakes, result.epochs, result.verdict) == (
            sweep.mistakes[m],
            sweep.epochs[m],
            sweep.verdicts[m],
        )
        assert torch.equal(net.weight, sweep.weight[m])
        assert torch.equal(net.bias, sweep.bias[m])


@pytest.mark.parametrize("classes", [None, 3])
@pytest.mark.parametrize("tie", ["update", "sign", "strict"])
@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "csr"])
@pytest.mark.parametrize("how", ["orders", "seeds"])
def test_members_equal_solo_runs(how, sparse, tie, classes):
    rng = np.random.default_rng(0)
    for seed, bias_step in ((1, "unit"), (2, "radius")):
        X, y = integers(seed, count=25, width=3, classes=classes, noise=0.1 * (seed - 1))
        chosen = {"seeds": [0, 9, 2**40]} if how == "seeds" else {"orders": [rng.permutation(25) for _ in range(3)]}
        margins = [0] if tie == "sign" else [0, 1.5]
        data = sp.csr_array(X) if sparse else X
        sweep = tp.sweep(
            data,
            y,
            lr=[1, 0.5],
            margin=margins,
            tie=tie,
            bias_step=bias_step,
            max_epochs=8,
            num_classes=classes,
            **chosen,
        )
        assert len(sweep) == 6 * len(margins)
        assert_members_equal_solo_runs(sweep, X, y, classes)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize(
    "width", [1, 8, 21, 130]
)  # a part of a vector, a whole one, some and a part; too many for copies
def test_members_with_ties_that_rounding_hides_equal_solo_runs(width, dtype):
    rng = np.random.default_rng(width)
    X = torch.from_numpy(rng.integers(-3, 4, (40, width)) / 10).to(dtype)  # 0.1 + 0.2 − 0.3 is not 0, but 0 is meant
    y = np.where(rng.random(40) < 0.5, 1, -1)
    for bias_step in ("unit", "radius", "none"):
        sweep = tp.sweep(X, y, seeds=range(4), margin=[0, 0.3], bias_step=bias_step, max_epochs=30)
        for m in range(len(sweep)):
            net = tp.Perceptron(width, bias=bias_step != "none", dtype=dtype)
            trainer = sweep.trainer(m)
            trainer.engine = "reference"
            result = trainer.fit(net, X, y)
            assert (result.mistakes, result.epochs) == (sweep.mistakes[m], sweep.epochs[m])
            assert torch.equal(net.weight, sweep.weight[m])
            assert net.bias is None or torch.equal(net.bias, sweep.bias[m])


def test_scores_that_overflow_in_a_sweep_are_told():
    X = np.random.default_rng(0).standard_normal((30, 3)) * 1e200
    with pytest.raises(ValueError, match="overflow"):
        tp.sweep(X, np.where(X[:, 0] > X[:, 1], 1, -1), seeds=[0])


def test_permutations_are_those_of_torch():
    from torchperc.rules.loops import many as loops_many

    for seed, count in ((0, 1), (1, 2), (7, 623), (2**33 + 5, 1249)):
        generator = torch.Generator().manual_seed(seed)
        theirs = torch.stack([torch.randperm(count, generator=generator) for _ in range(3)])
        assert np.array_equal(loops_many.permutations(seed, count, 3), theirs.numpy())


def test_runs_made_one_by_one_are_the_same(monkeypatch):
    X, y = integers(5, count=30)
    together = tp.sweep(X, y, seeds=[1, 2], margin=[0, 1], max_epochs=5)
    monkeypatch.setattr(sweeping, "_draws_as_torch", lambda: False)
    apart = tp.sweep(X, y, seeds=[1, 2], margin=[0, 1], max_epochs=5)
    assert torch.equal(together.mistakes, apart.mistakes)
    assert torch.equal(together.weight, apart.weight)
    assert together.verdicts == apart.verdicts


def test_another_way_of_drawing_is_found_out(monkeypatch):
    from torchperc.rules.loops import many as loops_many

    sweeping._draws_as_torch.cache_clear()
    monkeypatch.setattr(loops_many, "permutations", lambda seed, count, epochs: np.zeros((epochs, count), np.uint64))
    assert not sweeping._draws_as_torch()
    sweeping._draws_as_torch.cache_clear()


@pytest.mark.parametrize("classes", [None, 3])
@pytest.mark.parametrize("bias_step", ["unit", "radius", "none"])
def test_no_member_exceeds_its_bound(bias_step, classes):
    for seed in range(6):
        X, y = integers(seed, count=40, width=4, classes=classes, noise=0)
        if classes is None:
            X[:, 0] += y  # no sample on the boundary
        sweep = tp.sweep(
            X,
            y,
            seeds=range(20),
            margin=[0, 1, 5],
            lr=[1, 0.5],
            bias_step=bias_step,
            num_classes=classes,
            max_epochs=400,
        )
        for verdict, mistakes, bound in zip(sweep.verdicts, sweep.mistakes, sweep.bounds(), strict=True):
            assert verdict is not tp.Verdict.SEPARATED or mistakes <= bound


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


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"orders": [[0, 1, 2, 2]]}, r"orders\[0\] is not a permutation"),
        ({"orders": [[0, 1, 2]]}, "rows of 4 sample numbers"),
        ({"orders": [[0.0, 1, 2, 3]]}, "rows of 4 sample numbers"),
        ({"orders": [[0, 1, 2, 3]], "seeds": [1]}, "give one of them"),
        ({"seeds": []}, "must not be empty"),
        ({"seeds": [-1]}, "seeds=-1 must be at least 0"),
        ({"lr": [1, 0]}, "lr=0"),
        ({"lr": []}, "must not be empty"),
        ({"margin": [1], "tie": "sign"}, "has no effect with tie='sign'"),
        ({"tie": "never"}, "tie='never' is unknown"),
        ({"bias_step": "two"}, "bias_step='two' is unknown"),
        ({"max_epochs": 0}, "max_epochs=0 must be at least 1"),
    ],
)
def test_bad_input(options, message):
    with pytest.raises(ValueError, match=message):
        tp.sweep(*tp.data.gate("AND"), **options)


def test_bad_data():
    X, y = tp.data.gate("AND")
    with pytest.raises(ValueError, match="must hold -1 and"):
        tp.sweep(X, [0, 1, 0, 1])
    with pytest.raises(ValueError, match="two dimensions"):
        tp.sweep(X[0], y)
    with pytest.raises(ValueError, match="overflow"):
        tp.sweep(X * 1e30, y, bias_step="none")
