"""The estimators: scikit-learn's own checks, oracles (scikit-learn, plain loops, closed forms), conversions, refusals."""

import itertools
import pickle
import re
import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import torch
from refusals import refusals
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.linear_model import (
    Lasso,
    LinearRegression,
    LogisticRegression,
    Perceptron,
    Ridge,
    RidgeClassifier,
    SGDClassifier,
    SGDRegressor,
)  # fmt: skip
from sklearn.metrics import r2_score
from sklearn.model_selection import cross_val_score, train_test_split
from sklearn.svm import LinearSVC
from sklearn.utils.estimator_checks import check_estimator, parametrize_with_checks

import torchperc as tp
from torchperc.sklearn import LMSClassifier, LMSRegressor, LogisticClassifier, PerceptronClassifier

ALL = [PerceptronClassifier, LMSClassifier, LogisticClassifier]
GRADIENT = [LMSClassifier, LogisticClassifier]
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def integers(seed=0, count=60, width=4, classes=2, noise=0):
    """Whole numbers, so that sums are exact, and labels of a linear model, some of them wrong."""
    rng = np.random.default_rng(seed)
    X = rng.integers(-4, 5, (count, width)) * (rng.random((count, width)) < 0.7)
    scores = X @ rng.normal(size=(width, classes)) + rng.normal(size=classes)
    y = scores.argmax(1)
    wrong = rng.choice(count, noise, replace=False)
    y[wrong] = (y[wrong] + 1) % classes
    return X.astype(float), np.array(["ant", "bee", "cow", "dog"])[y]


CHECKED = [
    PerceptronClassifier(max_iter=5),
    LMSClassifier(max_iter=100),
    LogisticClassifier(update="optimum", l2=0.01),
    LMSRegressor(update="optimum"),
]


def expected_failed_checks(estimator):
    """What an estimator cannot pass: a weight of 3 is not three copies, and what ``partial_fit`` refuses."""
    options, failed = estimator.get_params(), {}
    stepwise = options.get("update", "sample") == "sample"
    endless = isinstance(estimator, LogisticClassifier) and options["update"] == "optimum" and not options["l2"]
    if stepwise or endless or options["early_stopping"]:
        kinds = ("dense", "sparse")
        failed = {f"check_sample_weight_equivalence_on_{kind}_data": "order, or no minimum" for kind in kinds}
    if options["early_stopping"] or options.get("class_weight") == "balanced":
        names = ("fit_score_takes_y", "n_features_in_after_fitting", "estimators_partial_fit_n_features")
        failed |= {f"check_{name}": "partial_fit refuses these parameters" for name in names}
    return failed


@pytest.mark.filterwarnings("ignore:.*:UserWarning")
@parametrize_with_checks(CHECKED, expected_failed_checks=expected_failed_checks)
def test_what_scikit_learn_asks_of_estimators(estimator, check):
    check(estimator)


OTHERS = [
    PerceptronClassifier(kernel="rbf", gamma=1e-3, max_iter=2),
    PerceptronClassifier(select="voted", max_iter=3),
    PerceptronClassifier(tol=1e-3, class_weight="balanced", max_iter=5),
    LMSClassifier(update="sample", targets="0/1", max_iter=3),
    LogisticClassifier(max_iter=50),
    LMSRegressor(),
    LMSRegressor(update="sample", max_iter=50),
    LMSRegressor(early_stopping=True),
]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*:UserWarning")
@pytest.mark.parametrize("estimator", OTHERS, ids=str)
def test_other_settings_pass_the_checks_too(estimator):
    check_estimator(estimator, expected_failed_checks=expected_failed_checks(estimator), on_skip=None)


@pytest.mark.parametrize("noise", [0, 6])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_the_rule_is_that_of_scikit_learn(fit_intercept, noise):
    X, y = integers(3, noise=noise)
    theirs = Perceptron(shuffle=False, tol=None, max_iter=7, fit_intercept=fit_intercept).fit(X, y)
    mine = PerceptronClassifier(shuffle=False, max_iter=7, fit_intercept=fit_intercept).fit(X, y)
    assert np.array_equal(mine.coef_, theirs.coef_)
    assert np.array_equal(mine.intercept_, theirs.intercept_)
    off = theirs.decision_function(X) != 0  # where scikit-learn decides for the other class
    assert np.array_equal(mine.predict(X)[off], theirs.predict(X)[off])
    sparse = PerceptronClassifier(shuffle=False, max_iter=7, fit_intercept=fit_intercept).fit(sp.csr_matrix(X), y)
    assert np.array_equal(mine.coef_, sparse.coef_)  # where scikit-learn's steps of the intercept differ
    assert sparse.log_.equals(mine.log_)


OPTIONS = [
    {"select": "averaged"},
    {"select": "pocket", "margin": 2.0},
    {"select": "voted", "shuffle": False},
    {"tie": "sign", "bias_step": "radius", "lr": 0.5},
    {"shuffle": False, "prove": True},
    {"kernel": "poly", "degree": 2},
    {"kernel": "rbf", "gamma": 0.125, "select": "averaged", "bias_step": "unit"},
]


@pytest.mark.parametrize("classes", [2, 4])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_every_option_goes_to_the_trainer(options, classes):
    X, y = integers(5, classes=classes, noise=8)
    mine = PerceptronClassifier(random_state=7, max_iter=6, **options).fit(X, y)
    names, codes = np.unique(y, return_inverse=True)
    classes = len(names)
    options = {"order": "shuffled" if options.get("shuffle", True) else "given", "max_epochs": 6, **options}
    options.pop("shuffle", None)
    net, many = None, {} if classes == 2 else {"num_classes": classes}
    if "kernel" not in options:
        net, many = tp.Perceptron(4) if classes == 2 else tp.MulticlassPerceptron(4, classes), {}
        net = net.double()
    result = tp.RuleTrainer(seed=7, **options).fit(net, X, 2 * codes - 1 if classes == 2 else codes, **many)
    assert mine.log_.equals(result.log)
    assert (mine.verdict_, mine.mistakes_, mine.n_iter_) == (result.verdict, result.mistakes, result.epochs)
    decided = result.predict(X).numpy()
    assert np.array_equal(mine.predict(X), names[(decided + 1) // 2 if classes == 2 else decided])
    np.testing.assert_allclose(mine.decision_function(X), result.scores(X).numpy(), rtol=1e-12, atol=1e-12)
    if net is not None:
        assert np.array_equal(mine.coef_, net.weight.detach().numpy())
        assert np.array_equal(mine.intercept_, net.bias.detach().numpy())
    assert (mine.certificate_ is None) == ("prove" not in options or mine.verdict_ is tp.Verdict.SEPARATED)


def test_kernels_have_support_vectors_instead_of_weights():
    X, y = [[0, 0], [0, 1], [1, 0], [1, 1]], [False, True, True, False]
    model = PerceptronClassifier(kernel="poly", degree=2, shuffle=False).fit(X, y)
    assert model.verdict_ is tp.Verdict.SEPARATED
    assert model.predict(X).tolist() == y
    gram = (1 + np.array(X) @ model.support_vectors_.T) ** 2
    np.testing.assert_allclose(gram @ model.dual_coef_[0] + model.intercept_, model.decision_function(X))
    assert np.array_equal(model.support_vectors_, np.array(X)[model.support_])
    assert not hasattr(model, "coef_")
    assert not hasattr(model, "net_")
    model.set_params(kernel=None, degree=None, max_iter=5).fit(X, y)
    assert hasattr(model, "coef_")
    assert not hasattr(model, "support_")


XOR = np.array([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]]), np.array([0, 1, 1, 0])


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (PerceptronClassifier(shuffle=False), r"CYCLING.*select='averaged'"),
        (PerceptronClassifier(max_iter=5), r"BUDGET.*max_iter=5"),
        (PerceptronClassifier(prove=True), "NOT_SEPARABLE"),
        (LMSClassifier(max_iter=3), r"BUDGET.*max_iter=3.*update='optimum'"),
        (LogisticClassifier(update="optimum"), r"UNBOUNDED.*l2 > 0"),
    ],
    ids=str,
)
def test_the_warning_names_the_verdict_and_what_to_do(model, words):
    X, y = XOR
    with pytest.warns(ConvergenceWarning, match=words) as told:
        model.fit(X, y if isinstance(model, PerceptronClassifier) else [0, 0, 0, 1])
    assert len(str(told[0].message)) < 250


def test_a_cross_validation_is_told_in_a_line_and_not_what_is_set_already():
    X, y = np.random.default_rng(0).normal(size=(120, 3)), np.arange(120) % 2
    for select, words in (("last", {"select='averaged'"}), ("averaged", set()), ("pocket", set())):
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            cross_val_score(PerceptronClassifier(select=select, max_iter=10), X, y, cv=5)
        assert all(len(str(each.message)) < 200 for each in told)
        assert {word for each in told for word in re.findall(r"select='\w+'", str(each.message))} == words
        assert bool(told) == bool(words)


@pytest.mark.parametrize("select", ["last", "best-validation"])
def test_early_stopping_restores_the_best_weights(select):
    X, y = integers(8, count=200, noise=30)
    model = PerceptronClassifier(early_stopping=True, n_iter_no_change=4, select=select).fit(X, y)
    errors = [record.validation_error for record in model.history_]
    best = int(np.argmin(errors))
    assert len(errors) == best + 5 == model.n_iter_
    made = sum(record.mistakes for record in model.history_[: best + 1])
    assert np.array_equal(model.coef_, model.log_.state_at(made).weight.numpy())
    assert len(model.log_.y) == 180
    rest = PerceptronClassifier(select="best-validation", max_iter=len(errors)).fit(X, y)  # looks, and does not stop
    assert [record.validation_error for record in rest.history_] == errors


def loss_of(head, X, codes, weights, W, b, l2):
    """The objective by torch's autograd: its value and its gradient."""
    W, b = (torch.tensor(part, dtype=torch.float64, requires_grad=True) for part in (W, b))
    scores = torch.from_numpy(X) @ W.T + b
    y = torch.from_numpy(2 * codes - 1 if len(W) == 1 else codes)
    losses = head.loss(scores[:, 0] if len(W) == 1 else scores, y, reduction="none")
    loss = (losses * torch.from_numpy(weights)).sum() / weights.sum() + 0.5 * l2 * W.square().sum()
    loss.backward()
    return loss.item(), W.grad.numpy(), b.grad.numpy()


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("update", ["batch", "sample"])
@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("kind", GRADIENT)
def test_descent_is_a_plain_loop(kind, classes, update, sparse):
    rng = np.random.default_rng(1)
    X, codes, weights = rng.normal(size=(40, 3)), rng.integers(0, classes, 40), rng.integers(1, 4, 40).astype(float)
    head, units = kind()._head, 1 if classes == 2 else classes
    W, b = np.zeros((units, 3)), np.zeros(units)
    for _ in range(4):
        for part in [slice(None)] if update == "batch" else [slice(i, i + 1) for i in range(40)]:
            _, slope, in_bias = loss_of(head, X[part], codes[part], weights[part], W, b, 0.25)
            step = 0.05 * (1.0 if update == "batch" else weights[part])
            W, b = W - step * slope, b - step * in_bias
    model = kind(lr=0.05, max_iter=4, tol=0, l2=0.25, update=update, shuffle=False)
    model.fit(sp.csr_array(X) if sparse else X, codes, sample_weight=weights)
    np.testing.assert_allclose(model.coef_, W, rtol=1e-10, atol=1e-13)
    np.testing.assert_allclose(model.intercept_, b, rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize("update", ["batch", "optimum"])
@pytest.mark.parametrize("classes", [2, 4])
def test_the_logistic_minimum_is_that_of_scikit_learn(classes, update):
    X, y = integers(2, count=80, classes=classes, noise=10)
    weights = np.random.default_rng(0).integers(0, 4, len(y))
    theirs = LogisticRegression(C=1 / (0.02 * weights.sum()), tol=1e-10, max_iter=10000).fit(X, y, weights)
    mine = LogisticClassifier(l2=0.02, tol=1e-8, max_iter=50000, update=update).fit(X, y, weights)
    np.testing.assert_allclose(mine.coef_, theirs.coef_, atol=2e-6)
    np.testing.assert_allclose(mine.predict_proba(X), theirs.predict_proba(X), atol=2e-6)
    np.testing.assert_allclose(mine.predict_log_proba(X), np.log(mine.predict_proba(X)), rtol=1e-9)
    assert mine.verdict_ is tp.Verdict.CONVERGED
    assert mine.n_errors_ == np.count_nonzero((mine.predict(X) != y) & (weights > 0))


@pytest.mark.parametrize("update", ["batch", "optimum"])
@pytest.mark.parametrize("targets", ["-1/+1", "0/1"])
def test_the_least_squares_are_those_of_scikit_learn(targets, update):
    X, y = integers(2, count=80, noise=10)
    t = np.where(y == "bee", 1.0, -1.0 if targets == "-1/+1" else 0.0)
    threshold, options = 0.0 if targets == "-1/+1" else 0.5, {"tol": 1e-10, "max_iter": 50000, "update": update}
    for theirs, own in (
        (LinearRegression(), {}),
        (LinearRegression(fit_intercept=False), {"fit_intercept": False}),
        (Ridge(alpha=0.3 * len(X)), {"l2": 0.3}),
    ):
        theirs.fit(X, t)
        mine = LMSClassifier(targets=targets, **options, **own).fit(X, y)
        np.testing.assert_allclose(mine.coef_[0], theirs.coef_, atol=1e-8)
        np.testing.assert_allclose(mine.intercept_[0], theirs.intercept_, atol=1e-8)
        np.testing.assert_allclose(mine.decision_function(X), theirs.predict(X) - threshold, atol=1e-8)
        assert np.array_equal(mine.predict(X) == "bee", theirs.predict(X) >= threshold)


@pytest.mark.parametrize("kind", GRADIENT)
def test_the_auto_rate_is_one_over_the_curvature(kind):
    X, y = integers(4, noise=9)
    weights = np.random.default_rng(0).random(len(y))
    phi = np.hstack((X, np.ones((len(X), 1))))
    bend = 1.0 if kind is LMSClassifier else 0.25
    full = bend * np.linalg.eigvalsh((phi * weights[:, None]).T @ phi / weights.sum())[-1] + 0.1
    longest = (weights * (bend * np.square(phi).sum(1) + 0.1)).max()
    assert kind(l2=0.1, max_iter=2).fit(X, y, weights).lr_ == pytest.approx(1 / full, rel=1e-9)
    assert kind(l2=0.1, max_iter=2, update="sample").fit(X, y, weights).lr_ == pytest.approx(1 / longest)
    wide = sp.csr_array(np.hstack((X, np.zeros((len(X), 2000)))))
    assert kind(l2=0.1, max_iter=2).fit(wide, y, weights).lr_ == pytest.approx(1 / full, rel=1e-9)
    assert kind(max_iter=2).fit(X, y).lr_ == pytest.approx(tp.theory.auto_lr(kind()._head, X), rel=1e-9)
    losses = [record.loss for record in kind(max_iter=300, tol=1e-2).fit(X, y).history_]
    assert (np.diff(losses) < 0).all()


@pytest.mark.parametrize("kind", GRADIENT)
def test_early_stopping_by_validation_loss(kind):
    X, y = integers(11, count=40, width=30, noise=12)
    model = kind(early_stopping=True, validation_fraction=0.3, tol=0, max_iter=5000).fit(X, y)
    losses = [record.validation_loss for record in model.history_]
    assert model.verdict_ is tp.Verdict.STOPPED_EARLY
    assert len(losses) == int(np.argmin(losses)) + 6
    again = clone(model).set_params(max_iter=int(np.argmin(losses)) + 1)
    assert np.array_equal(again.fit(X, y).coef_, model.coef_)


@pytest.mark.parametrize("update", ["batch", "sample"])
@pytest.mark.parametrize("kind", GRADIENT)
def test_a_rate_that_is_too_large_is_named(kind, update):
    X, y = integers(4, noise=9)
    with pytest.raises(ValueError, match=r"the loss became (inf|nan) in epoch \d+: lr=1e\+307 .*lr='auto'"):
        kind(lr=1e307, update=update).fit(X, y)
    with pytest.raises(ValueError, match="squares overflow; scale it"):
        kind(update=update).fit(X * 1e200, y)


def noisy(seed=0, count=150, width=5):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(count, width))
    return X, np.where(X @ rng.normal(size=width) + rng.normal(size=count) > 0, "bee", "ant")


@pytest.mark.filterwarnings("error")
def test_without_tol_all_epochs_are_made_and_nothing_is_said():
    X, y = noisy()
    for update in ("batch", "sample"):
        assert LogisticClassifier(update=update, tol=None, max_iter=40).fit(X, y).n_iter_ == 40
    assert LogisticClassifier(update="optimum", tol=None).fit(X, y).verdict_ is tp.Verdict.CONVERGED


def test_the_optimum_honours_tol():
    X, y = noisy()
    gaps, codes = {}, (y == "bee").astype(int)
    for tol in (1e-6, 1e-12):
        model = LogisticClassifier(update="optimum", tol=tol).fit(X, y)
        parts = loss_of(tp.LogisticHead(), X, codes, np.ones(150), model.coef_, model.intercept_, 0.0)[1:]
        gaps[tol] = max(np.abs(part).max() for part in parts)
        assert model.verdict_ is tp.Verdict.CONVERGED
    assert gaps[1e-12] < 1e-14 < gaps[1e-6]
    with pytest.warns(ConvergenceWarning, match=r"rounding to float32 leaves a relative gap of .* tol=1e-12"):
        LogisticClassifier(update="optimum", tol=1e-12).fit(X.astype(np.float32), y)


def test_the_rule_stops_when_its_loss_stops_falling():
    X, y = noisy()
    model = PerceptronClassifier(tol=1e-3, n_iter_no_change=3, max_iter=200, shuffle=False).fit(X, y)
    losses, signs = [], np.where(y == "bee", 1, -1)
    for count in np.cumsum([record.mistakes for record in model.history_]):
        scores = model.log_.state_at(int(count)).scores(X).numpy()
        losses.append(np.maximum(0, -signs * scores).mean())
    lowest, since = np.inf, []
    for loss in losses:
        since.append(0 if loss < lowest - 1e-3 else (since[-1] if since else 0) + 1)
        lowest = min(lowest, loss)
    assert since.index(3) + 1 == model.n_iter_ == len(losses) < 200
    assert model.verdict_ is tp.Verdict.BUDGET


@pytest.mark.parametrize("kind", ALL)
def test_class_weights_are_sample_weights(kind):
    X, y = integers(6, classes=3, noise=15)
    options = {"max_iter": 8, "random_state": 3}
    by_class = kind(class_weight={"ant": 3, "bee": 0.5}, **options).fit(X, y)
    factors = np.select([y == "ant", y == "bee"], [3, 0.5], 1.0)
    by_sample = kind(**options).fit(X, y, factors)
    assert np.array_equal(by_class.coef_, by_sample.coef_)
    weights = np.random.default_rng(0).integers(1, 4, len(y))
    balanced = kind(class_weight="balanced", **options).fit(X, y, weights)
    share = {name: weights.sum() / (3 * weights[y == name].sum()) for name in np.unique(y)}
    by_sample = kind(**options).fit(X, y, weights * np.array([share[name] for name in y]))
    np.testing.assert_allclose(balanced.coef_, by_sample.coef_, rtol=1e-10)
    with pytest.raises(ValueError, match=r"class_weight\['bee'\]=-1 must be"):
        kind(class_weight={"bee": -1}).fit(X, y)


@pytest.mark.parametrize("kind", ALL)
def test_float32_stays_float32(kind):
    X, y = integers(6, classes=3)
    small = kind(max_iter=50).fit(X.astype(np.float32), y)
    assert small.coef_.dtype == small.decision_function(X).dtype == np.float32
    assert kind(max_iter=50).fit(X.astype(np.int32), y).coef_.dtype == np.float64
    if kind is PerceptronClassifier:  # whole numbers are exact in both
        assert np.array_equal(small.coef_, kind(max_iter=50).fit(X, y).coef_)
    assert small.predict(torch.from_numpy(X)).tolist() == small.predict(X).tolist()


@pytest.mark.parametrize("select", ["last", "averaged"])
@pytest.mark.parametrize("classes", [2, 3])
def test_chunks_make_one_pass_of_the_rule(select, classes):
    X, y = integers(7, classes=classes, noise=9)
    order = np.argsort(y, kind="stable")  # chunks of one class
    X, y = X[order], y[order]
    online = PerceptronClassifier(select=select)
    for first in range(0, len(X), 10):
        part = slice(first, first + 10)
        online.partial_fit(X[part], y[part], classes=np.unique(y) if first == 0 else None)
        online = pickle.loads(pickle.dumps(online))  # and elsewhere
    whole = PerceptronClassifier(select=select, shuffle=False, max_iter=1).fit(X, y)
    np.testing.assert_allclose(online.coef_, whole.coef_, rtol=1e-13, atol=1e-15)
    np.testing.assert_allclose(online.decision_function(X), whole.decision_function(X), rtol=1e-12, atol=1e-13)
    assert (online.mistakes_, online.n_iter_) == (whole.mistakes_, 6)


@pytest.mark.parametrize("update", ["batch", "sample"])
@pytest.mark.parametrize("kind", GRADIENT)
def test_chunks_make_an_epoch_of_descent(kind, update):
    X, y = integers(7, noise=9)
    options = {"update": update}
    online = kind(lr=0.01, shuffle=False, **options)
    steps = clone(online).set_params(max_iter=1, warm_start=True)
    for part in (slice(0, 20), slice(20, 40), slice(40, 60)):
        online.partial_fit(X[part], y[part], classes=["ant", "bee"])
        steps.fit(X[part], y[part])
    np.testing.assert_allclose(online.coef_, steps.coef_, rtol=1e-12)
    assert len(online.history_) == online.n_iter_ == 3
    online.partial_fit(X[y == "ant"], y[y == "ant"])
    auto = kind(**options).partial_fit(X[:5], y[:5], classes=["ant", "bee"])
    slow = auto.lr_
    assert auto.partial_fit(X[:5] * 10, y[:5]).lr_ < slow
    assert auto.partial_fit(X[:5], y[:5]).lr_ < slow


@pytest.mark.parametrize("kind", ALL)
def test_partial_fit_refuses(kind):
    X, y = integers(7)
    model, both = kind().partial_fit(X, y, classes=["bee", "ant"]), ["ant", "bee"]
    for call, words in (
        (lambda: kind().partial_fit(X, y), "classes must be passed on the first call"),
        (lambda: model.partial_fit(X[:1], ["cow"]), "'cow'.*name all classes"),
        (lambda: model.partial_fit(X, y, classes=["ant", "cow"]), r"classes=\['ant', 'cow'\]"),
        (lambda: kind().partial_fit(X, y, classes=["ant"]), r"classes=\['ant'\] has one class only"),
        (lambda: kind(class_weight="balanced").partial_fit(X, y, both), "class_weight='balanced'"),
        (lambda: kind(early_stopping=True).partial_fit(X, y, both), "early_stopping should be False"),
    ):
        with pytest.raises(ValueError, match=words):
            call()
    assert not hasattr(PerceptronClassifier(select="pocket"), "partial_fit")
    assert not hasattr(LMSClassifier(update="optimum"), "partial_fit")


@pytest.mark.parametrize("kind", ALL)
def test_a_warm_start_goes_on(kind):
    X, y = integers(9, noise=9)
    whole = kind(max_iter=9, shuffle=False)
    parts = clone(whole).set_params(max_iter=3, warm_start=True)
    for _ in range(3):
        parts.fit(X, y)
    whole.fit(X, y)
    np.testing.assert_allclose(parts.coef_, whole.coef_, rtol=1e-12)
    with pytest.raises(ValueError, match=r"'cow'.*name all classes"):
        parts.fit(X, np.where(y == "ant", "cow", y))
    with pytest.raises(ValueError, match="fit_intercept=False"):
        parts.set_params(fit_intercept=False).fit(X, y)


@pytest.mark.parametrize(
    "options", [{}, {"select": "voted"}, {"kernel": "rbf"}, {"kernel": "poly", "select": "voted"}], ids=str
)
def test_saved_models_decide_alike_and_leave_the_samples_behind(options):
    X, y = integers(4, count=1000, width=60)
    model = PerceptronClassifier(max_iter=3, shuffle=False, prove=not options, **options).fit(X, y)
    other = pickle.loads(pickle.dumps(model))
    assert np.array_equal(other.decision_function(X), model.decision_function(X))
    assert (other.verdict_, other.mistakes_, other.history_) == (model.verdict_, model.mistakes_, model.history_)
    with pytest.raises(AttributeError, match=r"log_ .*log_.save"):
        _ = other.log_
    assert len(pickle.dumps(other)) < X.nbytes


@pytest.mark.parametrize(
    "options", [{"select": "voted"}, {"kernel": "rbf"}, {"kernel": "poly", "select": "voted"}], ids=str
)
@pytest.mark.parametrize("sparse", [False, True])
def test_decisions_do_not_change_with_the_samples_they_were_learned_from(options, sparse):
    X, y = integers(4, noise=9)
    new = X.copy()
    given = sp.csr_array(X) if sparse else X
    model = PerceptronClassifier(max_iter=3, **options).fit(given, y)
    before = model.decision_function(new)
    (given.data if sparse else given)[:] = -7.0
    assert np.array_equal(model.decision_function(new), before)


@pytest.mark.parametrize("classes", [2, 4])
@pytest.mark.parametrize("targets", ["-1/+1", "0/1"])
@pytest.mark.parametrize("kind", ALL)
def test_to_scikit_learn(kind, classes, targets):
    X, y = integers(12, classes=classes, noise=9)
    X = pd.DataFrame(X + np.random.default_rng(0).random(X.shape), columns=list("abcd"))
    options = {"targets": targets} if kind is LMSClassifier else {}
    mine = kind(max_iter=40, **options).fit(X, y)
    theirs = mine.to_sklearn()
    expected = dict(zip(ALL, (Perceptron, RidgeClassifier, LogisticRegression), strict=True))
    assert type(theirs) is expected[kind]
    np.testing.assert_allclose(theirs.decision_function(X), mine.decision_function(X), rtol=1e-12, atol=1e-12)
    before = mine.predict(X)
    assert np.array_equal(theirs.predict(X), before)
    if kind is LogisticClassifier:
        np.testing.assert_allclose(theirs.predict_proba(X), mine.predict_proba(X), rtol=1e-12)
    theirs.coef_ += 1
    assert np.array_equal(mine.predict(X), before)  # nobody shares memory


@pytest.mark.parametrize("theirs", [SGDClassifier(fit_intercept=False), LinearSVC()], ids=str)
@pytest.mark.parametrize("kind", ALL)
def test_the_weights_of_any_linear_classifier_and_on(kind, theirs):
    X, y = integers(12, noise=9)
    X += np.random.default_rng(0).random(X.shape)
    fitted = theirs.fit(X, y)
    mine = kind(fit_intercept=fitted.fit_intercept, warm_start=True, max_iter=1)
    mine.classes_, mine.coef_, mine.intercept_ = fitted.classes_, fitted.coef_, fitted.intercept_
    assert np.array_equal(mine.predict(X), fitted.predict(X))
    before = fitted.coef_.copy()
    for go_on in (mine.partial_fit, mine.fit):
        go_on(X, y)
        assert not np.array_equal(mine.coef_, before)
        assert np.array_equal(fitted.coef_, before)


def test_what_cannot_be_converted():
    X, y = integers(12, classes=3)
    two = y != "cow"
    votes = PerceptronClassifier(select="voted", max_iter=50).fit(X[two], y[two])
    kernel = PerceptronClassifier(kernel="rbf").fit(X[two], y[two])
    for call, error, words in (
        (lambda: LogisticClassifier().to_sklearn(), NotFittedError, "not fitted"),
        (votes.to_sklearn, ValueError, "select='voted'"),
        (kernel.to_fitted, ValueError, "kernel='rbf'"),
    ):
        with pytest.raises(error, match=words):
            call()


def test_the_net_is_in_the_memory_of_the_weights():
    X, y = integers(2, classes=3)
    model = LogisticClassifier(tol=0.1).fit(X, y)
    model.coef_[0, 0] = 5.0
    expected = model.net_(torch.from_numpy(X)).softmax(1).detach().numpy()
    np.testing.assert_allclose(model.predict_proba(X), expected, rtol=1e-12)


def test_a_score_of_zero():
    for model, decided in (
        (PerceptronClassifier(), "b"),
        (LMSClassifier(), "b"),
        (LMSClassifier(targets="0/1"), "a"),
        (LogisticClassifier(), "b"),
    ):
        model.classes_, model.coef_, model.intercept_ = np.array(["a", "b"]), np.zeros((1, 2)), np.zeros(1)
        assert model.predict(np.zeros((1, 2))) == [decided]


BAD = [
    (PerceptronClassifier, {"max_iter": 0}, ValueError, "max_iter=0 must be at least 1"),
    (PerceptronClassifier, {"tie": "maybe"}, ValueError, "tie='maybe' is unknown"),
    (PerceptronClassifier, {"gamma": "auto", "kernel": "rbf"}, TypeError, "gamma"),
    (PerceptronClassifier, {"fit_intercept": False, "bias_step": "unit"}, ValueError, "bias_step='unit' moves"),
    (PerceptronClassifier, {"kernel": "rbf", "warm_start": True}, ValueError, "warm_start=True needs weights"),
    (PerceptronClassifier, {"early_stopping": True, "validation_fraction": 1.5}, ValueError, "must be below 1"),
    (PerceptronClassifier, {"early_stopping": True, "validation_fraction": 0}, ValueError, "validation_fraction=0"),
    (PerceptronClassifier, {"random_state": -1}, ValueError, "random_state=-1 must be at least 0"),
    (PerceptronClassifier, {"class_weight": "even"}, ValueError, "'class_weight'.*'even'"),
    (LMSClassifier, {"targets": "0/2"}, ValueError, "targets='0/2' is unknown"),
    (LMSClassifier, {"update": "adam"}, ValueError, "update='adam' is unknown"),
    (LMSClassifier, {"lr": "fast"}, ValueError, "lr='fast' is unknown"),
    (LMSClassifier, {"lr": 0}, ValueError, "lr=0 must be a finite number > 0"),
    (LMSClassifier, {"tol": -1}, ValueError, "tol=-1 must be"),
    (LMSClassifier, {"l2": -1}, ValueError, "l2=-1 must be"),
    (LMSClassifier, {"shuffle": "given"}, TypeError, "shuffle must be True or False"),
    (LogisticClassifier, {"update": "optimum", "early_stopping": True}, ValueError, "update='optimum'"),
    (LogisticClassifier, {"update": "sample", "lr": 10, "l2": 1}, ValueError, "l2=1 with steps of up to 10"),
]


@pytest.mark.parametrize(("kind", "options", "error", "words"), BAD, ids=lambda value: str(value)[:40])
def test_parameters_are_refused_in_fit_by_name(kind, options, error, words):
    X, y = integers(0)
    model = kind(**options)
    with pytest.raises(error, match=words):
        model.fit(X, y)
    assert not hasattr(model, "coef_")


@pytest.mark.parametrize("kind", ALL)
def test_samples_are_refused_by_name(kind):
    X, y = integers(0)
    for bad, words in (
        ((X, np.full(60, "ant")), r"y has one class only, found \['ant'\]"),
        ((X, y, np.where(y == "ant", 1, 0)), "sample_weight and class_weight leave out, has one class only"),
        ((X, y, np.zeros(60)), "(?i)sample.weight"),
        ((X, y, -np.ones(60)), "sample_weight"),
        ((X, y, np.ones(59)), "sample_weight.* .59"),
        ((X, np.linspace(0, 1, 60)), "Unknown label type"),
    ):
        with pytest.raises(ValueError, match=words):
            kind().fit(*bad)
    for fraction, count in ((0.1, 2), (0.99, 8)):  # none to validate with, none to learn from
        with pytest.raises(ValueError, match=f"validation_fraction={fraction} of {count} samples"):
            kind(early_stopping=True, validation_fraction=fraction).fit(X[:count], ["ant", "bee"] * (count // 2))


@pytest.mark.parametrize(("kind", "classes"), [*itertools.product(ALL, (2, 3)), (LMSRegressor, 50)])
def test_fitted_models_decide_as_the_estimator(kind, classes, tmp_path):
    rng = np.random.default_rng(classes)
    X = pd.DataFrame(rng.normal(size=(90, 4)), columns=list("abcd"))
    codes = rng.integers(0, classes, 90)
    y = codes.astype(float) if kind is LMSRegressor else np.array(["x", "y", "z"])[codes]
    est = kind(max_iter=5).fit(X, y)
    est.to_fitted().save(tmp_path / "m.safetensors")
    expected = est.predict(X).tolist()
    for model in (est.to_fitted(), tp.FittedModel.load(tmp_path / "m.safetensors")):
        assert model.names == ("a", "b", "c", "d")
        found = list(model.predict(X.to_numpy()))
        assert found == (pytest.approx(expected, rel=1e-13) if kind is LMSRegressor else expected)


@pytest.mark.parametrize("options", [{}, {"select": "voted"}, {"kernel": "rbf"}, {"select": "averaged"}], ids=str)
@pytest.mark.parametrize("kind", [lambda X: X, sp.csr_array])
def test_errors_are_wrong_decisions_and_mistakes_are_updates(options, kind):
    rng = np.random.default_rng(3)
    X, y = rng.normal(size=(60, 3)), rng.choice(["ant", "bee", "cat"][: 3 if options else 2], size=60)
    weights = rng.integers(0, 2, size=60)
    model = PerceptronClassifier(max_iter=3, **options).fit(kind(X), y, weights)
    assert model.n_errors_ == np.count_nonzero((model.predict(X) != y) & (weights > 0)) > 0
    assert model.mistakes_ == len(model.log_)


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
    assert (model.n_iter_, model.verdict_) == (len(losses), tp.Verdict.CONVERGED)
    np.testing.assert_allclose([record.loss for record in model.history_], losses, rtol=1e-9)
    np.testing.assert_allclose([*model.coef_, model.intercept_], w, rtol=1e-9)
    assert model.loss_ == pytest.approx(np.square(model.predict(X) - Y).mean() / 2)
    assert model.score(X, Y) == r2_score(Y, model.predict(X))
    with pytest.warns(ConvergenceWarning, match="max_iter=3"):
        LMSRegressor(lr=0.1, max_iter=3).fit(X, Y)


def test_the_auto_rate_of_the_regressor_is_one_over_the_largest_eigenvalue():
    assert LMSRegressor().fit(X, Y).lr_ == pytest.approx(tp.theory.auto_lr("regression", X))
    sample = LMSRegressor(update="sample", max_iter=1, tol=None).fit(X, Y)
    assert sample.lr_ == pytest.approx(tp.theory.auto_lr("regression", X, batch_size=1))


def test_early_stopping_of_the_regressor_keeps_the_best_epoch():
    model = LMSRegressor(update="sample", lr=0.2, early_stopping=True, max_iter=60, tol=None, random_state=3).fit(X, Y)
    values = [record.validation_loss for record in model.history_]
    assert model.verdict_ is tp.Verdict.STOPPED_EARLY
    assert all(record.validation_error is None for record in model.history_)
    held = train_test_split(np.arange(80), test_size=0.1, random_state=3)[1]
    assert np.square(model.predict(X[held]) - Y[held]).mean() / 2 == pytest.approx(min(values), rel=1e-12)
    with pytest.raises(ValueError, match=r"validation_fraction=0\.1 of 1 samples"):
        LMSRegressor(early_stopping=True).fit(X[:1], Y[:1])


@pytest.mark.parametrize("theirs", [LinearRegression(), Ridge(), Lasso(alpha=0.01), SGDRegressor()], ids=str)
def test_the_regressor_to_scikit_learn_and_back(theirs):
    theirs.fit(X, Y)
    mine = LMSRegressor(warm_start=True)
    mine.coef_, mine.intercept_ = theirs.coef_, float(np.ravel(theirs.intercept_)[0])
    np.testing.assert_allclose(mine.predict(X), theirs.predict(X), rtol=1e-13)
    np.testing.assert_array_equal(mine.to_sklearn().predict(X), mine.predict(X))
    near(mine.set_params(update="optimum").fit(X, Y), LinearRegression().fit(X, Y), 1e-10)


test_what_the_regressor_refuses = refusals(
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
