"""LMSRegressor: LinearRegression, Ridge, SGDRegressor and plain loops as oracles; refusals."""

import numpy as np
import pytest
import scipy.sparse as sp
from refusals import refusals
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import Lasso, LinearRegression, Ridge, SGDRegressor
from sklearn.metrics import r2_score
from sklearn.model_selection import train_test_split

import torchperc as tp
from torchperc.sklearn import LMSClassifier, LMSRegressor, Verdict

rng = np.random.default_rng(0)
X = rng.normal(size=(80, 4)) * (rng.random((80, 4)) < 0.7)
Y = X @ [3.0, -2.0, 0.5, 0.0] + 60 + rng.normal(size=80)
WEIGHT = rng.integers(0, 4, 80) / 2


def near(mine, theirs, tolerance):
    np.testing.assert_allclose(mine.coef_, theirs.coef_, rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(mine.intercept_, np.ravel(theirs.intercept_)[0], rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("weight", [None, WEIGHT])
@pytest.mark.parametrize("sparse", [False, True])
def test_the_optimum_is_linear_regression_and_ridge(weight, sparse):
    x, total = sp.csr_array(X) if sparse else X, 80 if weight is None else weight.sum()
    ridge = Ridge(alpha=0.2 * total).fit(X, Y, weight)
    for options, theirs, tolerance in (
        ({"update": "optimum"}, LinearRegression(), 1e-11),
        ({"update": "optimum", "fit_intercept": False}, LinearRegression(fit_intercept=False), 1e-11),
        ({"update": "optimum", "l2": 0.2}, ridge, 1e-11),
        ({"l2": 0.2, "tol": 1e-16}, ridge, 1e-6),
    ):
        near(LMSRegressor(**options).fit(x, Y, weight), theirs.fit(X, Y, weight), tolerance)


@pytest.mark.parametrize("fit_intercept", [True, False])
def test_steps_are_those_of_sgd_regressor(fit_intercept):
    same = {"fit_intercept": fit_intercept, "max_iter": 4, "tol": None}
    theirs = SGDRegressor(alpha=1e-2, learning_rate="constant", eta0=0.01, shuffle=False, **same).fit(X, Y)
    mine = LMSRegressor(update="sample", shuffle=False, l2=1e-2, lr=0.01, **same).fit(X, Y)
    near(mine, theirs, 1e-12)
    theirs, mine = clone(theirs), clone(mine)
    for first in (0, 20, 40, 60, 0):
        part = slice(first, first + 20)
        near(mine.partial_fit(X[part], Y[part]), theirs.partial_fit(X[part], Y[part]), 1e-12)
    plain = {"max_iter": 3, "tol": None, "shuffle": False}
    theirs = SGDRegressor(alpha=0.0, learning_rate="constant", eta0=0.01, **plain).fit(X, Y, sample_weight=WEIGHT)
    near(LMSRegressor(update="sample", lr=0.01, **plain).fit(X, Y, WEIGHT), theirs, 1e-12)


def losses_of(lr, epsilon):
    """Batch descent with the stop of note E, in numpy: the losses and the weights."""
    features, w, losses = np.column_stack([X, np.ones(80)]), np.zeros(5), []
    while len(losses) < 2 or abs(losses[-1] - losses[-2]) >= epsilon:
        error = features @ w - Y
        losses.append(error @ error / 160)
        w = w - lr * features.T @ error / 80
    return losses, w


@pytest.mark.parametrize("sparse", [False, True])
def test_tol_is_the_change_of_the_loss(sparse):
    model = LMSRegressor(lr=0.1, tol=1e-4).fit(sp.csr_array(X) if sparse else X, Y)
    losses, w = losses_of(0.1, 1e-4)
    assert (model.n_iter_, model.verdict_) == (len(losses), Verdict.CONVERGED)
    np.testing.assert_allclose([record.loss for record in model.history_], losses, rtol=1e-9)
    np.testing.assert_allclose([*model.coef_, model.intercept_], w, rtol=1e-9)
    assert model.loss_ == pytest.approx(np.square(model.predict(X) - Y).mean() / 2)
    assert model.score(X, Y) == r2_score(Y, model.predict(X))
    with pytest.warns(ConvergenceWarning, match="max_iter=3"):
        LMSRegressor(lr=0.1, max_iter=3).fit(X, Y)


def test_the_auto_rate_is_one_over_the_largest_eigenvalue():
    assert LMSRegressor().fit(X, Y).lr_ == pytest.approx(tp.theory.auto_lr("regression", X))
    sample = LMSRegressor(update="sample", max_iter=1, tol=None).fit(X, Y)
    assert sample.lr_ == pytest.approx(tp.theory.auto_lr("regression", X, batch_size=1))


def test_early_stopping_keeps_the_best_epoch():
    model = LMSRegressor(update="sample", lr=0.2, early_stopping=True, max_iter=60, tol=None, random_state=3).fit(X, Y)
    values = [record.validation_loss for record in model.history_]
    assert model.verdict_ is Verdict.STOPPED_EARLY
    assert all(record.validation_error is None for record in model.history_)
    held = train_test_split(np.arange(80), test_size=0.1, random_state=3)[1]
    assert np.square(model.predict(X[held]) - Y[held]).mean() / 2 == pytest.approx(min(values), rel=1e-12)
    with pytest.raises(ValueError, match=r"validation_fraction=0\.1 of 1 samples"):
        LMSRegressor(early_stopping=True).fit(X[:1], Y[:1])


@pytest.mark.parametrize("theirs", [LinearRegression(), Ridge(), Lasso(alpha=0.01), SGDRegressor()], ids=str)
def test_to_scikit_learn_and_back(theirs):
    theirs.fit(X, Y)
    mine = LMSRegressor(warm_start=True)
    mine.coef_, mine.intercept_ = theirs.coef_, float(np.ravel(theirs.intercept_)[0])
    np.testing.assert_allclose(mine.predict(X), theirs.predict(X), rtol=1e-13)
    np.testing.assert_array_equal(mine.to_sklearn().predict(X), mine.predict(X))
    near(mine.set_params(update="optimum").fit(X, Y), LinearRegression().fit(X, Y), 1e-10)


test_what_is_refused = refusals(
    (lambda: LMSRegressor(lr=3.0).fit(X * 100, Y), ValueError, "the loss became .* is too large"),
    (lambda: LMSRegressor(update="optimum").partial_fit, AttributeError, "has no attribute 'partial_fit'"),
    (lambda: LMSRegressor(early_stopping=True).partial_fit(X, Y), ValueError, "early_stopping should be False"),
    (lambda: LMSRegressor().fit(X, Y * 1e200), ValueError, "whose squares overflow; scale y"),
    (lambda: LMSRegressor().fit(X, ["a"] * 80), ValueError, "y must hold numbers, found 'a'"),
    (lambda: LMSRegressor(class_weight="balanced"), TypeError, "class_weight"),
    (lambda: LMSClassifier().fit(X, Y), ValueError, "For real-valued targets use LMSRegressor"),
)


@pytest.mark.parametrize("update", ["batch", "sample", "optimum"])
def test_targets_of_float32_are_learned_without_a_warning(update):
    model = LMSRegressor(update=update, max_iter=500, tol=None).fit(X.astype(np.float32), Y.astype(np.float32))
    assert model.coef_.dtype == model.predict(X.astype(np.float32)).dtype == np.float32
    assert model.score(X, Y) > 0.5
