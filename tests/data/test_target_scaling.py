"""Scaling of targets and the way back, against numpy on the raw data."""

import numpy as np
import pytest
import torch
from torch import nn

import torchperc as tp
from torchperc.data import MaxAbs, MinMax, Standard, make_scaler, unscaled

rng = np.random.default_rng(0)
X = np.column_stack([rng.normal(170, 10, 50), rng.uniform(18, 80, 50)])
Y = 0.9 * X[:, 0] + 0.1 * X[:, 1] - 90 + rng.normal(size=50)


@pytest.mark.parametrize("kind", ["minmax", "standard", "maxabs", "none"])
@pytest.mark.parametrize("columns", [1, 2])
def test_targets_go_there_and_back(kind, columns):
    y = Y if columns == 1 else np.stack([Y, -3 * Y], 1)
    scaler = make_scaler(kind).fit_target(y)
    column = make_scaler(kind).fit(y.reshape(50, columns))
    assert scaler.state() == column.state()
    z = scaler.transform(y)
    assert z.shape == y.shape
    assert torch.equal(z.reshape(50, columns), column.transform(y.reshape(50, columns)))
    np.testing.assert_allclose(scaler.inverse(z), y, rtol=1e-14)
    assert scaler.inverse(scaler.transform(torch.tensor(y, dtype=torch.float32))).dtype == torch.float32


@pytest.mark.parametrize(
    "kinds", [("minmax", "minmax"), ("standard", "minmax"), ("none", "standard"), ("maxabs", None)]
)
@pytest.mark.parametrize("outputs", [1, 2])
def test_a_net_learned_on_scaled_data_is_the_least_squares_of_the_raw_data(kinds, outputs):
    y = Y if outputs == 1 else np.stack([Y, Y**2], 1)
    scaler = make_scaler(kinds[0]).fit(X)
    target = None if kinds[1] is None else make_scaler(kinds[1]).fit_target(y)
    net = nn.Linear(2, outputs, dtype=torch.float64)
    tp.minimise(net, tp.RegressionHead(), scaler.transform(X), y if target is None else target.transform(y))
    before = net.weight.clone()
    raw = unscaled(net, scaler, target)
    assert torch.equal(net.weight, before)
    best = np.linalg.lstsq(np.column_stack([X, np.ones(50)]), y.reshape(50, -1))[0]
    np.testing.assert_allclose(raw.weight.detach(), best[:2].T, rtol=1e-9)
    np.testing.assert_allclose(raw.bias.detach(), best[2], rtol=1e-9)


def test_the_layers_of_an_mlp_are_folded():
    scaler, target = MinMax().fit(X), Standard().fit_target(Y)
    net = tp.MLP(2, (3,), seed=0, dtype=torch.float64)
    with torch.no_grad():
        expected = target.inverse(net(scaler.transform(X)))
        found = unscaled(net, scaler, target)(torch.tensor(X))
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)


def test_a_net_without_bias_bears_scales_only():
    net = tp.Perceptron(2, bias=False, dtype=torch.float64)
    with torch.no_grad():
        net.weight.fill_(1.0)
    raw = unscaled(net, MaxAbs().fit(X), MaxAbs().fit_target(Y))
    np.testing.assert_allclose(raw.weight[0].detach(), abs(Y).max() / abs(X).max(0))
    with pytest.raises(ValueError, match="net has no bias to fold a shift into"):
        unscaled(net, MinMax().fit(X))


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: MinMax().fit_target([[[1.0]]]), ValueError, "y must be of shape"),
        (lambda: MinMax().fit_target([1.0, np.nan]), ValueError, "y"),
        (lambda: MinMax().fit(X).transform([1.0, 2.0]), ValueError, "X must have two dimensions"),
        (
            lambda: MinMax().fit_target(Y).unscale_target([[1.0], [2.0]], [0.0, 0.0]),
            ValueError,
            "one row for each of 1",
        ),
        (
            lambda: MinMax().fit_target(Y).unscale_target([[1.0]], [0.0, 0.0]),
            ValueError,
            "bias has 2 values for 1 rows",
        ),
        (lambda: unscaled(nn.Conv1d(1, 1, 1), MinMax().fit(X)), TypeError, "net must be a Perceptron"),
    ],
)
def test_bad_requests(call, error, message):
    with pytest.raises(error, match=message):
        call()
