"""Residuals: the numbers drawn, from every kind of model, and what is refused."""

import numpy as np
import pandas as pd
import pytest
import torch
from matplotlib.figure import Figure
from scipy.sparse import csr_array
from sklearn.ensemble import RandomForestRegressor
from sklearn.linear_model import LinearRegression
from sklearn.metrics import r2_score, root_mean_squared_error

import torchperc as tp
from torchperc.plots import ResidualDisplay
from torchperc.sklearn import LMSRegressor

rng = np.random.default_rng(0)
X = rng.normal(size=(30, 2))
Y = X @ [3.0, -1.0] + 60 + rng.normal(size=30)
BEST = LinearRegression().fit(X, Y).predict(X)


def drawn(display):
    return display.points_.get_offsets().data, display.residuals_.get_offsets().data


def test_points_lines_and_figures(tmp_path):
    display = ResidualDisplay.from_predictions(Y, BEST, target="weight in kg")
    points, residuals = drawn(display)
    np.testing.assert_array_equal(points, np.column_stack([BEST, Y]))
    np.testing.assert_array_equal(residuals, np.column_stack([BEST, Y - BEST]))
    assert display.r2 == pytest.approx(r2_score(Y, BEST))
    assert display.rmse == pytest.approx(root_mean_squared_error(Y, BEST))
    assert [line.get_ydata()[0] for line in display.band_] == [display.rmse, -display.rmse]
    assert display.ax_[0].get_title() == f"R² = {display.r2:.3f}, RMSE = {display.rmse:.3g}"
    assert [axes.get_xlabel() for axes in display.ax_] == ["predicted weight in kg"] * 2
    low, high = display.ax_[1].get_ylim()
    assert low == -high
    display.figure_.savefig(tmp_path / "residuals.png")


def models():
    net = tp.Perceptron(2)
    tp.minimise(net, tp.RegressionHead(), X.astype(np.float32), Y)
    column = torch.nn.Linear(2, 1, dtype=torch.float64)
    tp.minimise(column, tp.RegressionHead(), X, Y)
    fitted = LinearRegression().fit(X, Y)
    return {
        "ours": LMSRegressor(update="optimum").fit(X, Y),
        "scikit-learn": fitted,
        "net": net,
        "column": column,
        "module": tp.lightning.LitRegressor(column),
        "function": fitted.predict,
    }


@pytest.mark.parametrize("name", ["ours", "scikit-learn", "net", "column", "module", "function"])
def test_every_kind_of_model(name):
    display = ResidualDisplay.from_estimator(models()[name], X, Y)
    np.testing.assert_allclose(display.predicted, BEST, rtol=1e-5 if name == "net" else 1e-10)


def test_what_the_estimator_accepts_is_passed_on():
    frame = pd.DataFrame(X, columns=["height", "age"])
    forest = RandomForestRegressor(3, random_state=0).fit(frame, Y)
    np.testing.assert_array_equal(ResidualDisplay.from_estimator(forest, frame, Y).predicted, forest.predict(frame))
    ours = LMSRegressor(update="optimum").fit(csr_array(X), Y)
    np.testing.assert_allclose(ResidualDisplay.from_estimator(ours, csr_array(X), Y).predicted, BEST)


def test_axes_of_ones_own():
    two = Figure().subplots(1, 2)
    display = ResidualDisplay.from_predictions(Y, BEST, ax=two)
    assert list(display.ax_) == list(two)
    assert [text.get_text() for axes in two for text in axes.get_legend().get_texts()] == [
        "prediction = truth",
        "± RMSE",
    ]
    one = Figure().subplots()
    assert len(ResidualDisplay.from_predictions(Y, BEST, ax=one).ax_) == 2


def test_equal_targets_and_many_samples():
    same = ResidualDisplay.from_predictions([2.0, 2.0], [2.0, 2.0])
    assert np.isnan(same.r2)
    assert same.ax_[0].get_title() == "RMSE = 0"
    many = ResidualDisplay.from_predictions(np.zeros(6000), rng.normal(size=6000))
    assert many.points_.get_rasterized()


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: ResidualDisplay.from_predictions([], []), ValueError, "y is empty"),
        (lambda: ResidualDisplay.from_predictions(Y, BEST[1:]), ValueError, "predicted has 29 values for 30 samples"),
        (lambda: ResidualDisplay.from_predictions(Y, BEST * np.nan), ValueError, "predicted must hold finite numbers"),
        (lambda: ResidualDisplay.from_predictions([[1.0]], [1.0]), ValueError, "y must have one dimension"),
        (lambda: ResidualDisplay.from_estimator(3, X, Y), TypeError, "estimator .*found int"),
        (lambda: ResidualDisplay.from_estimator(torch.nn.Linear(2, 2), X, Y), ValueError, "one dimension"),
        (lambda: ResidualDisplay.from_predictions(Y, BEST, ax=3), TypeError, "ax must be matplotlib axes"),
    ],
)
def test_what_is_refused(call, error, words):
    with pytest.raises(error, match=words):
        call()
