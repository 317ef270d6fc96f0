"""Dialects, live against the installed libraries: the same weights, exactly on integer data."""

import numpy as np
import oracles
import pytest
import torch
from mlxtend.classifier import Perceptron as MlxtendPerceptron
from river import linear_model
from sklearn.linear_model import Perceptron as SklearnPerceptron

import torchperc as tp

SEEDS = range(8)


def ours(dialect, X, y, start=None, **options):
    net = tp.Perceptron(len(X[0]), dtype=torch.float64)
    if start is not None:
        net.load_state_dict(start)
    return net, dialect.trainer(**options).fit(net, X, y)


@pytest.mark.parametrize("seed", SEEDS)
def test_scikit_learn(seed):
    X, y = oracles.integers(seed, count=30, width=5)
    for epochs in (1, 2, 7):
        net, result = ours(tp.dialects.SCIKIT_LEARN, X, y, max_epochs=epochs)
        theirs = SklearnPerceptron(shuffle=False, tol=None, max_iter=epochs).fit(np.array(X, dtype=float), y)
        if result.epochs == epochs or result.verdict.name == "SEPARATED":
            assert net.weight.tolist() == theirs.coef_.tolist()
            assert net.bias.tolist() == theirs.intercept_.tolist()


@pytest.mark.parametrize("seed", SEEDS)
def test_mlxtend(seed):
    """Its start weights and its orders handed over; its step is η·(y − ŷ), which is 2η·y at a mistake."""
    X, y = oracles.integers(seed, count=20, width=4)
    data, zero_one = np.array(X, dtype=float), (np.array(y) + 1) // 2
    eta, epochs = 0.25, 6
    theirs = MlxtendPerceptron(eta=eta, epochs=epochs, random_seed=seed)
    bias, weight = theirs._init_params(weights_shape=(4, 1), bias_shape=(1,), random_seed=seed)
    scale = 2.0**-10  # round their random start to a grid, so that every sum is exact
    bias, weight = (np.round(value / scale) * scale for value in (bias, weight))
    theirs._init_params = lambda **_: (bias.copy(), weight.copy())
    theirs.fit(data, zero_one)
    generator = np.random.RandomState(seed)
    orders = np.array([generator.permutation(20) for _ in range(epochs)])
    start = {"weight": torch.tensor(weight.T), "bias": torch.tensor(bias)}
    net, result = ours(tp.dialects.MLXTEND, X, y, start, lr=2 * eta, order=orders, max_epochs=epochs)
    assert net.weight.tolist() == theirs.w_.T.tolist()
    assert net.bias.tolist() == theirs.b_.tolist()
    assert [record.mistakes for record in result.history] == theirs.cost_[: result.epochs]


@pytest.mark.parametrize("seed", SEEDS)
def test_river(seed):
    X, y = oracles.integers(seed, count=25, width=3)
    theirs = linear_model.Perceptron()
    net, trainer = tp.Perceptron(3, dtype=torch.float64), tp.dialects.RIVER.trainer()
    for x, label in zip(X, y, strict=True):
        theirs.learn_one(dict(enumerate(x)), label == 1)
        trainer.partial_fit(net, [x], [label])
        assert net.weight[0].tolist() == [theirs.weights.get(j, 0.0) for j in range(3)]
        assert net.bias.item() == theirs.intercept


@pytest.mark.parametrize("dialect", tp.dialects.ALL, ids=lambda dialect: dialect.name)
def test_every_dialect_trains(dialect):
    X, y = tp.data.gate("AND")
    net = tp.Perceptron(2, init="normal", seed=3)  # not zero, where note E would stand still
    result = dialect.trainer(max_epochs=50).fit(net, X, y, validation=(X, y))
    assert result.verdict.name == "SEPARATED"
    assert torch.equal(result.predict(X), y)
