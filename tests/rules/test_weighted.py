"""Weights of samples: single-sample descent against a plain loop, in every engine, and minima against repetition."""

import math

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from sklearn.linear_model import LogisticRegression

import torchperc as tp

HEADS = [tp.LMSHead(), tp.LMSHead(targets="0/1"), tp.LogisticHead(), tp.PerceptronHead()]
ENGINES = ["reference", "compiled", "blocked"]


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
        for k, e in enumerate(slopes(head, s, int(y[i]))):
            W[k] = [(1 - rate * l2) * w - rate * e * x for w, x in zip(W[k], X[i], strict=True)]
            if net.bias is not None:
                b[k] -= rate * e
    return np.array(seen), np.array(W), np.array(b)


@pytest.mark.parametrize("l2", [0.0, 0.25])
@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "csr"])
@pytest.mark.parametrize("classes", [None, 4])
@pytest.mark.parametrize("head", HEADS, ids=str)
def test_weighted_descent_is_a_plain_loop(head, classes, sparse, l2):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 5)) * (rng.random((300, 5)) < 0.6)
    y = rng.choice([-1, 1], 300) if classes is None else rng.integers(0, classes, 300)
    weights, order = rng.integers(0, 4, 300) * 0.5, rng.permutation(300)[:290]
    for bias in (True, False):
        start = net_for(5, classes, bias)
        seen, W, b = plain(start, head, X.tolist(), y, 0.0625, weights, l2, order)
        for engine in ENGINES:
            net = net_for(5, classes, bias)
            samples = sp.csr_array(X) if sparse else torch.from_numpy(X)
            scores = tp.descend(
                net, head, samples, torch.from_numpy(y), 0.0625,
                engine=engine, sample_weight=weights, l2=l2, order=torch.from_numpy(order),
            )  # fmt: skip
            np.testing.assert_allclose(scores.numpy().reshape(290, -1), seen, atol=1e-12)
            np.testing.assert_allclose(net.weight.detach().numpy(), W, atol=1e-12)
            if bias:
                np.testing.assert_allclose(net.bias.detach().numpy(), b, atol=1e-12)


def test_many_small_steps_of_a_penalty_do_not_overflow():
    X, y = sp.csr_array(np.eye(3)[np.arange(3000) % 3]), torch.from_numpy(np.where(np.arange(3000) % 2, 1, -1))
    nets = [net_for(3, None), net_for(3, None)]
    for net, samples in zip(nets, (X, torch.from_numpy(X.toarray())), strict=True):
        tp.descend(net, tp.LMSHead(), samples, y, 0.5, l2=1.5, engine="compiled")  # Π ¼ over 3000 steps
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


@pytest.mark.parametrize("count", [60, 9000])  # the larger has a sample to start from
@pytest.mark.parametrize("kind", ["plain", "collinear"])
@pytest.mark.parametrize("l2", [0.0, 0.1])
@pytest.mark.parametrize("classes", [None, 3])
@pytest.mark.parametrize("head", [tp.LMSHead(), tp.LogisticHead()], ids=str)
def test_a_weight_is_so_many_copies(head, classes, l2, kind, count):
    rng = np.random.default_rng(3)
    X = rng.normal(size=(count, 6))
    if kind == "collinear":
        X[:, 5] = X[:, 0] - X[:, 1]
    scores = X @ rng.normal(size=(6, classes or 2)) + 2 * rng.gumbel(size=(count, classes or 2))
    y = scores.argmax(1) if classes else 2 * scores.argmax(1) - 1
    weights = rng.integers(0, 4, count)
    found, steps = [], []
    for data, labels, counts in ((X, y, weights), (np.repeat(X, weights, 0), np.repeat(y, weights), None)):
        net = net_for(6, classes)
        torch.nn.init.zeros_(net.weight)
        optimum = tp.minimise(net, head, data, labels, l2=l2, tol=1e-12, sample_weight=counts)
        assert optimum.converged
        found.append((net.weight.detach(), net.bias.detach(), optimum.loss))
        steps.append(optimum.iterations)
    assert found[0][2] == pytest.approx(found[1][2], rel=1e-11)
    if count == 60:  # no sample is taken, so the way is the same
        assert steps[0] == steps[1]
    if isinstance(head, tp.LMSHead) or l2 or kind == "plain":  # otherwise many weights are as good
        for mine, copies in zip(*found, strict=True):
            torch.testing.assert_close(mine, copies, rtol=0, atol=1e-5)


def test_a_weighted_minimum_is_that_of_scikit_learn():
    rng = np.random.default_rng(0)
    X, y, weights = rng.normal(size=(200, 4)), rng.choice([-1, 1], 200), rng.random(200)
    net = net_for(4, None)
    tp.minimise(net, tp.LogisticHead(), X, y, l2=0.01, tol=1e-12, sample_weight=weights)
    theirs = LogisticRegression(C=1 / (0.01 * weights.sum()), tol=1e-10).fit(X, y, weights)
    np.testing.assert_allclose(net.weight.detach().numpy(), theirs.coef_, atol=2e-6)


def test_weights_of_a_minimum_that_are_refused():
    with pytest.raises(ValueError, match="sample_weight leaves samples of one class only"):
        tp.minimise(tp.Perceptron(1), tp.LMSHead(), [[0.0], [1.0]], [1, -1], sample_weight=[1, 0])
    with pytest.raises(ValueError, match="sample_weight has 3 values for 2 samples"):
        tp.minimise(tp.Perceptron(1), tp.LMSHead(), [[0.0], [1.0]], [1, -1], sample_weight=[1, 0, 1])
