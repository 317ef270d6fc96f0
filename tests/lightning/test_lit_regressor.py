"""LitRegressor under a plain Trainer: plain loops, scikit-learn's metrics, checkpoints, the stop by epsilon."""

import math

import numpy as np
import pytest
import torch
from plain import CHATTER, History, trained
from sklearn.linear_model import LinearRegression
from sklearn.metrics import r2_score, root_mean_squared_error
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import torchperc as tp
from torchperc.lightning.metrics import RegressionMetric

L = tp.lightning
pytestmark = [pytest.mark.filterwarnings(each) for each in CHATTER]

rng = np.random.default_rng(0)
X = torch.from_numpy(rng.normal(size=(40, 3)))
Y = X @ torch.tensor([3.0, -2.0, 0.5], dtype=torch.float64) + 60 + torch.from_numpy(rng.normal(size=40))
WEIGHT = torch.arange(40) % 3 / 2


def net(outputs=1):
    return nn.Linear(3, outputs, dtype=torch.float64) if outputs > 1 else tp.Perceptron(3, dtype=torch.float64)


def loader(*columns, size=40):
    return DataLoader(TensorDataset(*columns), batch_size=size)


def descended(w, b, x, y, weight, lr):
    """A step on the mean loss of a batch."""
    error = (x @ w + b - y) * weight
    return w - lr * x.T @ error / len(y), b - lr * error.mean(0)


@pytest.mark.parametrize("size", [40, 7])
@pytest.mark.parametrize("weighted", [False, True])
def test_batches_are_a_plain_loop_and_metrics_are_scikit_learns(size, weighted):
    history, lit = History(), L.LitRegressor(net(), lr=0.05)
    columns = (X, Y, WEIGHT) if weighted else (X, Y)
    factors = WEIGHT if weighted else torch.ones(40, dtype=torch.float64)
    trained(lit, loader(*columns, size=size), loader(X[:9], Y[:9]), epochs=4, callbacks=[history])
    w, b = torch.zeros(3, dtype=torch.float64), torch.zeros((), dtype=torch.float64)
    for metrics in history.epochs:
        seen = []
        for part in torch.arange(40).split(size):
            seen.append(X[part] @ w + b)
            w, b = descended(w, b, X[part], Y[part], factors[part], 0.05)
        s, held = torch.cat(seen), X[:9] @ w + b
        assert metrics["loss/train"] == pytest.approx(float((factors * (s - Y) ** 2).mean() / 2))
        assert metrics["rmse/train"] == pytest.approx(root_mean_squared_error(Y, s, sample_weight=factors))
        assert metrics["r2/train"] == pytest.approx(r2_score(Y, s, sample_weight=factors))
        assert metrics["rmse/val"] == pytest.approx(root_mean_squared_error(Y[:9], held))
        assert metrics["r2/val"] == pytest.approx(r2_score(Y[:9], held))
        assert metrics["loss/val"] == pytest.approx(float((held - Y[:9]).square().mean() / 2))
        assert metrics["norm"] == pytest.approx(math.hypot(*w.tolist(), float(b)))
        assert not {"mistakes", "margin", "error/train"} & metrics.keys()
    torch.testing.assert_close(lit.net.weight[0], w)
    torch.testing.assert_close(lit.net.bias[0], b)


@pytest.mark.parametrize("outputs", [1, 2])
def test_single_samples_in_one_call_are_batches_of_one(outputs):
    y = Y if outputs == 1 else torch.stack([Y, -2 * Y], 1)
    runs = []
    for update, size in (("sample", 40), ("batch", 1)):
        history, lit = History(), L.LitRegressor(net(outputs), 0.02, update)
        with torch.no_grad():
            for values in lit.net.parameters():
                values.zero_()
        trained(lit, loader(X, y, WEIGHT, size=size), epochs=2, callbacks=[history])
        runs.append((lit, history.epochs[-1]))
    for mine, other in zip(runs[0][0].net.parameters(), runs[1][0].net.parameters(), strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-12, atol=1e-12)
    assert runs[0][1] == pytest.approx(runs[1][1], rel=1e-10)


def test_sums_of_batches_are_exact_for_large_targets_and_several_outputs():
    y = torch.stack([Y + 1e9, Y], 1)
    s = y + torch.from_numpy(rng.normal(size=(40, 2)))
    metric, head, weight = RegressionMetric(), tp.RegressionHead(), WEIGHT.double()
    for part in (*torch.arange(40).split(7), torch.arange(0)):
        losses = weight[part] * head.loss(s[part], y[part], "none")
        metric.add(losses, s[part], y[part], weight[part])
    again = RegressionMetric()
    again.restore(metric.saved())
    again.merge()
    means = {name: float(value) for name, value in again.compute().items()}
    assert means["r2"] == pytest.approx(r2_score(y, s, sample_weight=WEIGHT), rel=1e-9)
    assert means["rmse"] == pytest.approx(root_mean_squared_error(y, s, sample_weight=WEIGHT), rel=1e-9)
    assert means["loss"] == pytest.approx(float(head.loss(s, y, "none") @ WEIGHT.double()) / 40)


@pytest.mark.parametrize(("s", "expected"), [([2.0, 2.0], 1.0), ([2.0, 3.0], 0.0)])
def test_r2_of_a_constant_target(s, expected):
    metric = RegressionMetric()
    metric.add(torch.zeros(2), torch.tensor(s), torch.tensor([2.0, 2.0]))
    metric.merge()
    assert metric.compute()["r2"] == expected == r2_score([2.0, 2.0], s)


def test_full_batch_descent_reaches_the_minimum_and_stops_by_epsilon():
    lit = L.LitRegressor(net(), lr=tp.theory.auto_lr("regression", X))
    trainer = trained(lit, loader(X, Y), epochs=5000, callbacks=[L.EpsilonStop(1e-13), L.StopOnDivergence()])
    assert 10 < trainer.current_epoch < 5000
    best = LinearRegression().fit(X, Y)
    np.testing.assert_allclose(lit.net.weight[0].detach(), best.coef_, atol=1e-5)
    np.testing.assert_allclose(lit.net.bias.item(), best.intercept_, atol=1e-5)


def test_prediction_is_the_output():
    lit = L.LitRegressor(nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)).double())
    trainer = trained(lit, loader(X, Y[:, None]), epochs=1)  # a column of targets, as a net with one output has
    assert torch.equal(torch.cat(trainer.predict(lit, loader(X, size=9))), torch.cat([lit(x) for x in X.split(9)]))


def test_bfloat16_keeps_the_digits_of_the_loss():
    lit = L.LitRegressor(tp.Perceptron(3), lr=0.05)
    history = History()
    trained(lit, loader(X.float(), Y), epochs=1, callbacks=[history], precision="bf16-mixed")
    assert history.epochs[0]["loss/train"] == pytest.approx(float(Y.square().mean() / 2), rel=1e-6)


def test_what_cannot_work_is_refused():
    for head in (tp.RegressionHead(), "regression"):
        with pytest.raises(ValueError, match=r"use LitRegressor\(net\)"):
            L.LitClassifier(net(), head)
    with pytest.raises(TypeError, match="class_weight"):
        L.LitRegressor(net(), class_weight={1: 2.0})
    with pytest.raises(ValueError, match="RegressionHead"):
        trained(L.LitClassifier(net(), "lms"), loader(X, Y))
    with pytest.raises(ValueError, match=r"\(40,\).*\(40, 2\)"):
        trained(L.LitRegressor(net()), loader(X, torch.stack([Y, Y], 1)))
    bad = Y.clone()
    bad[3] = math.nan
    with pytest.raises(ValueError, match="targets must be finite numbers, found nan"):
        trained(L.LitRegressor(net()), loader(X, bad))
    with pytest.raises(ValueError, match="RegressionHead"):
        trained(L.LitRule(net()), loader(X, Y))


def test_a_board_shows_curves_and_no_boundary(tmp_path):
    lit = L.LitRegressor(tp.Perceptron(2, dtype=torch.float64), lr=0.1)
    trainer = L.make_trainer(tmp_path / "run", 2, enable_progress_bar=False, picture_every=1)
    trainer.fit(lit, loader(X[:, :2], Y))
    assert (tmp_path / "run" / "last.ckpt").exists()
    events = EventAccumulator(str(tmp_path / "run")).Reload()
    assert {"loss/train", "rmse/train", "r2/train", "norm"} <= set(events.Tags()["scalars"])
    assert not events.Tags()["images"]
    assert b"rmse/val" in events.Tensors("custom_scalars__config__")[0].tensor_proto.string_val[0]
