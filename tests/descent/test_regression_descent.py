"""Regression by descent and at its minimum: against plain loops, autograd, numpy and scikit-learn."""

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array
from sklearn.linear_model import LinearRegression, Ridge

import torchperc as tp
from torchperc.theory import auto_lr, lms_limit, rate_warning, step_limit

ENGINES = ("reference", "compiled", "blocked")
rng = np.random.default_rng(0)
X = rng.normal(size=(300, 4))  # more than one block
Y = X @ [3.0, -2.0, 0.5, 0.0] + 60 + rng.normal(size=300)
WEIGHTS = rng.integers(0, 4, 300) / 2


def linear(outputs=1, bias=True, dtype=torch.float64):
    torch.manual_seed(1)
    return torch.nn.Linear(4, outputs, bias=bias, dtype=dtype)


def plain_descent(net, X, y, lr, weights, l2):
    """One step per sample in numpy; (weights, bias, scores before each step)."""
    w, b = net.weight.detach().numpy().copy(), net.bias.detach().numpy().copy()
    seen = []
    for x, target, c in zip(X, y.reshape(len(y), -1), weights, strict=True):
        s = w @ x + b
        seen.append(s)
        w = (1 - lr * c * l2) * w - lr * c * np.outer(s - target, x)
        b = b - lr * c * (s - target)
    return w, b, np.array(seen)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("outputs", [1, 3])
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize(("weights", "l2"), [(None, 0.0), (WEIGHTS, 0.1)])
def test_descend_is_a_plain_loop(engine, outputs, sparse, weights, l2):
    y = Y if outputs == 1 else np.stack([Y, -Y, Y**2 / 100], 1)
    net = linear(outputs)
    factors = np.ones(300) if weights is None else weights
    weight, bias, expected = plain_descent(net, X, y, 0.05, factors, l2)
    rows = csr_array(X) if sparse else X
    seen = tp.descend(net, tp.RegressionHead(), rows, y, lr=0.05, engine=engine, sample_weight=weights, l2=l2)
    assert seen.shape == ((300,) if outputs == 1 else (300, 3))
    np.testing.assert_allclose(seen.numpy().reshape(expected.shape), expected, rtol=1e-10, atol=1e-9)
    np.testing.assert_allclose(net.weight.detach(), weight, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(net.bias.detach(), bias, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_descend_is_autograd_with_batch_size_one(dtype):
    head, order = tp.RegressionHead(), torch.randperm(300)
    x, y = torch.tensor(X, dtype=dtype), torch.tensor(Y, dtype=dtype)
    by_autograd = linear(dtype=dtype)
    optimizer = torch.optim.SGD(by_autograd.parameters(), lr=0.05)
    for i in order:
        optimizer.zero_grad()
        head.loss(by_autograd(x[i : i + 1])[:, 0], y[i : i + 1]).backward()
        optimizer.step()
    for engine in ENGINES:
        net = linear(dtype=dtype)
        tp.descend(net, head, x, y, lr=0.05, engine=engine, order=order)
        close = {"rtol": 1e-12, "atol": 1e-12} if dtype == torch.float64 else {"rtol": 1e-4, "atol": 1e-4}
        torch.testing.assert_close(net.weight, by_autograd.weight, **close)
        torch.testing.assert_close(net.bias, by_autograd.bias, **close)


def test_labels_are_a_special_case():
    y = np.where(Y > 60, 1, -1)
    for engine in ENGINES:
        nets = linear(), linear()
        seen = [tp.descend(net, head, X, y, lr=0.05, engine=engine)
                for net, head in zip(nets, (tp.RegressionHead(), tp.LMSHead()), strict=True)]  # fmt: skip
        assert torch.equal(*seen)
        assert torch.equal(nets[0].weight, nets[1].weight)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("bias", [True, False])
def test_the_minimum_is_numpys(sparse, bias):
    net = linear(bias=bias)
    found = tp.minimise(net, tp.RegressionHead(), csr_array(X) if sparse else X, Y)
    features = np.hstack([X, np.ones((300, int(bias)))])
    expected, residual = np.linalg.lstsq(features, Y)[:2]
    weights = [net.weight[0]] + ([net.bias] if bias else [])
    np.testing.assert_allclose(torch.cat(weights).detach(), expected, rtol=0, atol=1e-10)
    assert found.converged
    assert found.loss == pytest.approx(residual[0] / 600, rel=1e-12)


def test_dependent_features_give_the_minimum_nearest_to_the_net():
    dependent = np.hstack([X[:, :3], X[:, :1] - 2 * X[:, 1:2]])
    net = linear()
    start = torch.cat([net.weight[0], net.bias]).detach().numpy()
    tp.minimise(net, tp.RegressionHead(), dependent, Y)
    features = np.hstack([dependent, np.ones((300, 1))])
    step = np.linalg.lstsq(features, Y - features @ start)[0]  # the shortest
    np.testing.assert_allclose(torch.cat([net.weight[0], net.bias]).detach(), start + step, rtol=0, atol=1e-10)


def test_fewer_samples_than_features():
    net = torch.nn.Linear(4, 1, dtype=torch.float64)
    with torch.no_grad():
        net.weight.zero_()
        net.bias.zero_()
    tp.minimise(net, tp.RegressionHead(), X[:3], Y[:3])
    expected = np.linalg.lstsq(np.hstack([X[:3], np.ones((3, 1))]), Y[:3])[0]
    np.testing.assert_allclose(torch.cat([net.weight[0], net.bias]).detach(), expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("weights", [None, WEIGHTS])
def test_a_penalty_is_ridge(weights):
    net = linear()
    tp.minimise(net, tp.RegressionHead(), X, Y, l2=0.3, sample_weight=weights)
    total = 300 if weights is None else weights.sum()
    expected = Ridge(alpha=0.3 * total, tol=1e-12).fit(X, Y, weights)
    np.testing.assert_allclose(net.weight[0].detach(), expected.coef_, rtol=0, atol=1e-10)
    np.testing.assert_allclose(net.bias.item(), expected.intercept_, rtol=0, atol=1e-10)


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


def full_batch(lr, steps):
    """The losses of batch descent on Y."""
    features, w, losses = np.hstack([X, np.ones((300, 1))]), np.zeros(5), []
    for _ in range(steps):
        error = features @ w - Y
        losses.append(error @ error / 600)
        w -= lr * features.T @ error / 300
    return losses


def test_the_limit_of_batch_descent_is_sharp():
    limit = step_limit("regression", X)
    features = np.hstack([X, np.ones((300, 1))])
    assert limit == pytest.approx(2 / np.linalg.eigvalsh(features.T @ features / 300)[-1])
    assert limit == lms_limit(X)
    below, above = full_batch(0.99 * limit, 3000), full_batch(1.01 * limit, 3000)
    least = np.linalg.lstsq(features, Y)[1][0] / 600
    assert below[-1] == pytest.approx(least, rel=1e-9)
    assert above[-1] > 1e9 * above[0]
    assert auto_lr(tp.RegressionHead(), X) == limit / 2
    assert "the loss will diverge" in rate_warning(1.01 * limit, tp.RegressionHead(), X)
    assert rate_warning(0.99 * limit, tp.RegressionHead(), X) is None


def test_the_limit_of_single_samples():
    longest = (np.square(X).sum(1) + 1).max()
    assert step_limit("regression", X, batch_size=1) == pytest.approx(2 / longest)
    assert step_limit("regression", X, batch_size=1, num_classes=3) == pytest.approx(2 / longest)
    worst = X[[np.square(X).sum(1).argmax()] * 200]
    for factor, grows in ((0.99, False), (1.01, True)):
        net = linear()
        seen = tp.descend(net, tp.RegressionHead(), worst, np.full(200, 5.0), lr=2 * factor / longest)
        assert (abs(seen[-1] - 5) > abs(seen[0] - 5)) == grows


def test_the_start_goes_through_two_samples():
    x, y = torch.tensor(X[[3, 3, 5, 6]]), torch.tensor(Y[[3, 3, 5, 6]])
    weight, bias = tp.functional.two_sample_start(x, y, targets="real")
    scores = tp.functional.scores(x, weight, bias)
    torch.testing.assert_close(scores[[0, 2]], y[[0, 2]])
    shortest = np.linalg.lstsq((x[2:3] - x[:1]).numpy(), (y[2:3] - y[:1]).numpy())[0]
    np.testing.assert_allclose(weight[0], shortest)
    weight, bias = tp.functional.two_sample_start(torch.tensor([[160], [180]]), torch.tensor([60, 72]), targets="real")
    assert (weight.item(), bias.item()) == (pytest.approx(0.6), pytest.approx(-36.0, rel=1e-5))
    with pytest.raises(ValueError, match="all samples are equal"):
        tp.functional.two_sample_start(x[:2], y[:2], targets="real")
    with pytest.raises(ValueError, match="targets='real'"):
        tp.functional.two_sample_start(x, y)


@pytest.mark.parametrize("head", [tp.PerceptronHead(), tp.LMSHead(), tp.LogisticHead()])
def test_classifiers_refuse_real_targets_and_name_the_way(head):
    for net in (tp.Perceptron(4), tp.MulticlassPerceptron(4, 3)):
        with pytest.raises(ValueError, match=r"RegressionHead\(\), or LMSRegressor"):
            tp.descend(net, head, X, Y, lr=0.1)
        if not isinstance(head, tp.PerceptronHead):
            with pytest.raises(ValueError, match=r"RegressionHead\(\), or LMSRegressor"):
                tp.minimise(net, head, X, Y)
    with pytest.raises(ValueError, match=r"RegressionHead\(\), or LMSRegressor"):
        tp.RuleTrainer().fit(tp.Perceptron(4), X, Y.round())


def test_wrong_targets_are_named():
    head, bad = tp.RegressionHead(), Y.copy()
    bad[7] = np.nan
    for learn in (lambda y: tp.minimise(linear(), head, X, y), lambda y: tp.descend(linear(), head, X, y, lr=0.1)):
        with pytest.raises(ValueError, match="y must hold finite numbers, found nan"):
            learn(bad)
        with pytest.raises(ValueError, match="y has 299 values for 300 samples"):
            learn(Y[1:])
        with pytest.raises(ValueError, match=r"y must have one dimension, found shape \(300, 1\)"):
            learn(Y[:, None])
    with pytest.raises(ValueError, match=r"y has shape \(300,\) but \(300, 2\) is needed"):
        tp.minimise(linear(2), head, X, Y)
    with pytest.raises(ValueError, match="cannot hold; scale y"):
        tp.descend(linear(dtype=torch.float32), head, X.astype(np.float32), Y * 1e40, lr=0.1)
    with pytest.raises(ValueError, match=r"y up to .*e\+201, whose products overflow"):
        tp.minimise(linear(), head, X, Y * 1e200)


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
