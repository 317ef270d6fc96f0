"""Single-sample descent and regression: against plain loops, autograd, numpy and scikit-learn."""

import math
from functools import partial

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from sklearn.linear_model import LinearRegression

import torchperc as tp

HEADS = [tp.LMSHead(), tp.LMSHead(targets="0/1"), tp.LogisticHead(), tp.PerceptronHead()]
rng = np.random.default_rng(0)
X = rng.normal(size=(300, 4))
Y = X @ [3.0, -2.0, 0.5, 0.0] + 60 + rng.normal(size=300)
WEIGHTS = rng.integers(0, 4, 300) / 2


def net_for(width, classes, bias=True):
    options = {"bias": bias, "init": "normal", "seed": 1, "dtype": torch.float64}
    return tp.Perceptron(width, **options) if classes is None else tp.MulticlassPerceptron(width, classes, **options)


def slopes(head, s, y):
    """ℓ'(s) by the textbook; s is a list of scores."""
    if isinstance(head, tp.PerceptronHead):
        if len(s) == 1:
            return [-y if y * s[0] <= 0 else 0]
        rival = max((k for k in range(len(s)) if k != y), key=lambda k: (s[k], -k))
        wrong = s[y] - s[rival] <= 0
        return [wrong * ((k == rival) - (k == y)) for k in range(len(s))]
    if isinstance(head, tp.RegressionHead):
        return [value - target for value, target in zip(s, np.atleast_1d(y), strict=True)]
    if isinstance(head, tp.LMSHead):
        low = 0 if head.targets == "0/1" else -1
        return [s[k] - (1 if (y == 1 if len(s) == 1 else k == y) else low) for k in range(len(s))]
    if len(s) == 1:
        return [-y / (1 + math.exp(y * s[0]))]
    powers = [math.exp(value) for value in s]
    return [powers[k] / sum(powers) - (k == y) for k in range(len(s))]


def plain(net, head, X, y, lr, weights, l2, order):
    """One step a sample, over Python numbers."""
    W = net.weight.tolist()
    b = [0.0] * len(W) if net.bias is None else net.bias.tolist()
    seen = []
    for i in order:
        s = [bk + sum(w * x for w, x in zip(Wk, X[i], strict=True)) for Wk, bk in zip(W, b, strict=True)]
        seen.append(s)
        rate = lr * weights[i]
        for k, e in enumerate(slopes(head, s, y[i])):
            W[k] = [(1 - rate * l2) * w - rate * e * x for w, x in zip(W[k], X[i], strict=True)]
            if net.bias is not None:
                b[k] -= rate * e
    return np.array(seen), np.array(W), np.array(b)


@pytest.mark.parametrize("l2", [0.0, 0.25])
@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "csr"])
@pytest.mark.parametrize("classes", [None, 4])
@pytest.mark.parametrize("head", [*HEADS, tp.RegressionHead()], ids=str)
def test_steps_are_those_of_a_plain_loop(head, classes, sparse, l2):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 5)) * (rng.random((300, 5)) < 0.6)
    y = rng.choice([-1, 1], 300) if classes is None else rng.integers(0, classes, 300)
    if isinstance(head, tp.RegressionHead):
        y = 60 + rng.normal(size=300 if classes is None else (300, classes))
    weights, order = rng.integers(0, 4, 300) * 0.5, rng.permutation(300)[:290]
    for bias in (True, False):
        net = net_for(5, classes, bias)
        seen, W, b = plain(net, head, X.tolist(), y.tolist(), 0.0625, weights, l2, order)
        samples = sp.csr_array(X) if sparse else torch.from_numpy(X)
        options = {"sample_weight": weights, "l2": l2, "order": torch.from_numpy(order)}
        scores = tp.descend(net, head, samples, torch.from_numpy(y), 0.0625, **options)
        assert scores.shape == (290,) if classes is None else (290, 4)
        np.testing.assert_allclose(scores.numpy().reshape(290, -1), seen, rtol=1e-10, atol=1e-12)
        np.testing.assert_allclose(net.weight.detach().numpy(), W, rtol=1e-10, atol=1e-12)
        if bias:
            np.testing.assert_allclose(net.bias.detach().numpy(), b, rtol=1e-10, atol=1e-12)


def test_many_small_steps_of_a_penalty_do_not_overflow():
    X, y = sp.csr_array(np.eye(3)[np.arange(3000) % 3]), torch.from_numpy(np.where(np.arange(3000) % 2, 1, -1))
    nets = [net_for(3, None), net_for(3, None)]
    for net, samples in zip(nets, (X, torch.from_numpy(X.toarray())), strict=True):
        tp.descend(net, tp.LMSHead(), samples, y, 0.5, l2=1.5)  # Π ¼ over 3000 steps
    torch.testing.assert_close(nets[0].weight, nets[1].weight, rtol=1e-12, atol=1e-14)


def test_what_weighted_descent_refuses():
    X, y = torch.ones(2, 1), torch.tensor([1, -1])
    for options, words in (
        ({"sample_weight": [1, -1]}, "sample_weight must hold finite numbers >= 0"),
        ({"sample_weight": [1]}, "sample_weight has 1 values for 2 samples"),
        ({"l2": -1}, "l2=-1 must be"),
        ({"l2": 10, "sample_weight": [1, 2]}, r"l2=10 with steps of up to 0\.2"),
        ({"order": torch.tensor([2])}, "order must be sample numbers 0 to 1"),
    ):
        net = tp.Perceptron(1)
        with pytest.raises(ValueError, match=words):
            tp.descend(net, tp.LMSHead(), X, y, 0.1, **options)
        assert not net.weight.any()


# --- regression ---


def linear(outputs=1, bias=True, dtype=torch.float64):
    torch.manual_seed(1)
    return torch.nn.Linear(4, outputs, bias=bias, dtype=dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_descend_is_autograd_with_batch_size_one(dtype):
    head, order = tp.RegressionHead(), torch.randperm(300)
    x, y = torch.tensor(X, dtype=dtype), torch.tensor(Y, dtype=dtype)
    by_autograd = linear(dtype=torch.float32 if dtype == torch.bfloat16 else dtype)
    optimizer = torch.optim.SGD(by_autograd.parameters(), lr=0.05)
    for i in order:
        optimizer.zero_grad()
        score, target = by_autograd(x[i].to(by_autograd.weight)), y[i : i + 1].to(by_autograd.weight)
        head.loss(score, target).backward()
        optimizer.step()
    net = linear(dtype=dtype)
    seen = tp.descend(net, head, x, y, lr=0.05, order=order)
    assert seen.dtype == net.weight.dtype == dtype
    tolerance = {torch.float64: 1e-12, torch.float32: 1e-4, torch.bfloat16: 1e-2}[dtype]
    close = {"rtol": tolerance, "atol": tolerance, "check_dtype": False}
    torch.testing.assert_close(net.weight, by_autograd.weight, **close)
    torch.testing.assert_close(net.bias, by_autograd.bias, **close)


def test_a_diverging_descent_goes_to_infinity_and_a_perceptron_says_so():
    y = np.where(Y > 60, 1, -1)
    assert not torch.isfinite(tp.descend(linear(), tp.LMSHead(), X * 1e3, y, 1e3)).all()
    net = linear()
    before = net.weight.clone()
    with pytest.raises(ValueError, match="overflow"):
        tp.descend(net, tp.PerceptronHead(), X * 1e307, rng.choice([-1, 1], 300), 1e300)
    assert torch.equal(net.weight, before)


def test_a_memory_map_is_read_in_parts(tmp_path, monkeypatch):
    monkeypatch.setattr("torchperc.samples.mapped.CHUNK", 1000)
    np.save(tmp_path / "x.npy", X)
    nets, order = (linear(), linear()), rng.permutation(300)
    for net, rows in zip(nets, (X, np.load(tmp_path / "x.npy", mmap_mode="r")), strict=True):
        tp.descend(net, tp.RegressionHead(), rows, Y, 0.05, order=order, sample_weight=WEIGHTS)
    assert torch.equal(nets[0].weight, nets[1].weight)
    found = [tp.minimise(net, tp.RegressionHead(), np.load(tmp_path / "x.npy", mmap_mode="r"), Y) for net in nets]
    assert found[0].loss == pytest.approx(found[1].loss, rel=1e-12)


def test_k_outputs_have_k_minima_and_weights_count_samples():
    y = np.stack([Y, Y**2], 1)
    net = linear(2)
    tp.minimise(net, tp.RegressionHead(), X, y, sample_weight=WEIGHTS)
    expected = LinearRegression().fit(X, y, WEIGHTS)
    np.testing.assert_allclose(net.weight.detach(), expected.coef_, rtol=1e-11, atol=1e-10)
    np.testing.assert_allclose(net.bias.detach(), expected.intercept_, rtol=1e-11)


@pytest.mark.parametrize("weights", [None, WEIGHTS])
def test_a_constant_target_is_no_error(weights):
    net = linear()
    tp.minimise(net, tp.RegressionHead(), X, np.full(300, 7.0), sample_weight=weights)
    np.testing.assert_allclose(net.weight[0].detach(), np.zeros(4), atol=1e-13)
    assert net.bias.item() == pytest.approx(7.0)


BAD = Y.copy()
BAD[7] = np.nan
FOR_REAL = r"RegressionHead\(\), or LMSRegressor"


@pytest.mark.parametrize(
    ("head", "y", "words"),
    [
        (tp.LMSHead(), Y, FOR_REAL),
        (tp.LogisticHead(), Y, FOR_REAL),
        (tp.RegressionHead(), BAD, "y must hold finite numbers, found nan"),
        (tp.RegressionHead(), Y[1:], "y has 299 values for 300 samples"),
        (tp.RegressionHead(), Y[:, None], r"y must have one dimension, found shape \(300, 1\)"),
    ],
)
def test_wrong_targets_are_named(head, y, words):
    for learn in (tp.minimise, partial(tp.descend, lr=0.1)):
        with pytest.raises(ValueError, match=words):
            learn(linear(), head, X, y)
        with pytest.raises(ValueError, match=r"y has shape \(300,\) but \(300, 2\) is needed"):
            learn(linear(2), tp.RegressionHead(), X, Y)
    with pytest.raises(ValueError, match="cannot hold; scale y"):
        tp.descend(linear(dtype=torch.float32), tp.RegressionHead(), X.astype(np.float32), Y * 1e40, lr=0.1)
    with pytest.raises(ValueError, match=r"y up to .*e\+201, whose products overflow"):
        tp.minimise(linear(), tp.RegressionHead(), X, Y * 1e200)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_features_that_depend_on_each_other_but_for_rounding_have_small_weights(dtype):
    """One feature per level of a category, scaled: they add up to a constant, up to the rounding of their type."""
    rng = np.random.default_rng(0)
    X = np.c_[rng.normal(size=(240, 2)), np.eye(3)[rng.integers(0, 3, 240)]]
    X[:8, 2:] = X[8:, 2:].mean(0)  # values that were missing
    Z = torch.from_numpy((X - X.mean(0)) / X.std(0)).to(dtype)
    y = X @ [3.0, -2.0, 1.0, 2.0, 4.0] + rng.normal(size=240)
    net = tp.Perceptron(5, dtype=dtype)
    found = tp.minimise(net, tp.RegressionHead(), Z, y)
    assert found.converged
    assert net.weight.abs().max() < 5
    expected = LinearRegression().fit(X[:, :4], y).predict(X[:, :4])
    np.testing.assert_allclose(net(Z).detach().numpy(), expected, rtol=1e-4, atol=1e-5)
