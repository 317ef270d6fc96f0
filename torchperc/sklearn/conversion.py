"""Between torchperc's linear models and scikit-learn's own: the same weights, so the same decisions or predictions."""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import BaseEstimator, is_regressor
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from torchperc import _checks as checks
from torchperc.sklearn.inputs import Array


class Planes(NamedTuple):
    """A linear classifier as numbers: s = coef·x + intercept, and the class that each row (or side) stands for.

    Shape:
        coef (1, d) and intercept (1,) for two classes, (K, d) and (K,) for K; classes (2,) or (K,).
    """

    coef: Array
    intercept: Array
    classes: Array
    names: Array | None = None


def planes(fitted: Any) -> Planes:
    """What a fitted scikit-learn classifier with ``coef_``, ``intercept_`` and ``classes_`` decides by.

    Whether its decision function is coef·x + intercept, one row per class, is tried out on a few points, so that
    classifiers that use these names for something else are refused.

    Example:
        >>> from sklearn.linear_model import Perceptron
        >>> planes(Perceptron().fit([[0.0], [1.0], [3.0]], ["a", "a", "b"])).classes.tolist()
        ['a', 'b']
    """
    kind = type(fitted).__name__
    if not isinstance(fitted, BaseEstimator):
        raise TypeError(f"fitted must be a scikit-learn classifier, found {kind}")
    check_is_fitted(fitted)
    if missing := [name for name in ("coef_", "intercept_", "classes_") if not hasattr(fitted, name)]:
        raise TypeError(
            f"{kind} has no {missing[0]}, so it is no linear classifier; use one such as Perceptron, SGDClassifier, "
            "LogisticRegression, RidgeClassifier or LinearSVC"
        )
    coef = fitted.coef_.toarray() if checks.is_sparse(fitted.coef_) else np.asarray(fitted.coef_)
    classes = np.asarray(fitted.classes_)
    coef = np.array(np.atleast_2d(coef), dtype=np.float32 if coef.dtype == np.float32 else np.float64)
    intercept = np.zeros(len(coef), coef.dtype) + np.asarray(fitted.intercept_, dtype=coef.dtype).reshape(-1)
    rows = 1 if len(classes) == 2 else len(classes)
    if coef.ndim != 2 or coef.shape[0] != rows or not _decides_by(fitted, coef, intercept):
        raise ValueError(
            f"{kind} does not decide by coef·x + intercept with one row per class (coef_ has shape {coef.shape} for "
            f"{len(classes)} classes); use a classifier that does, such as LinearSVC or LogisticRegression"
        )
    return Planes(coef, intercept, classes, getattr(fitted, "feature_names_in_", None))


def _decides_by(fitted: Any, coef: Array, intercept: Array) -> bool:
    points = np.random.default_rng(0).normal(size=(4, coef.shape[1])).astype(coef.dtype)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="X does not have valid feature names")
        found = np.asarray(fitted.decision_function(points))
    expected = points @ coef.T + intercept
    shape = (4,) if len(coef) == 1 else (4, len(coef))
    size = np.abs(points) @ np.abs(coef.T) + np.abs(intercept)
    return found.shape == shape and bool((np.abs(found.reshape(4, -1) - expected) <= 1e-4 * size).all())


def filled(empty: Any, given: Planes) -> Any:
    """An unfitted scikit-learn linear classifier, fitted to decide by the given planes.

    It is first fitted to nothing, one empty sample per class, so that whatever it keeps beside its weights is there.

    Example:
        >>> from sklearn.linear_model import RidgeClassifier
        >>> given = Planes(np.array([[1.0]]), np.array([-0.5]), np.array(["no", "yes"]))
        >>> filled(RidgeClassifier(), given).predict([[0.0], [1.0]]).tolist()
        ['no', 'yes']
    """
    from scipy.sparse import csr_array

    nothing = csr_array((len(given.classes), given.coef.shape[1]), dtype=given.coef.dtype)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        empty.fit(nothing, given.classes)
    empty.coef_, empty.intercept_ = given.coef.copy(), given.intercept.copy()
    if given.names is not None:
        empty.feature_names_in_ = given.names.copy()
    return empty


def regression_weights(fitted: Any) -> tuple[Array, float, Array | None]:
    """Weights (d,), intercept and feature names of a fitted linear regressor of scikit-learn's.

    Whether it predicts by coef·x + intercept is tried out on a few points.

    Example:
        >>> from sklearn.linear_model import LinearRegression
        >>> coef, intercept, _ = regression_weights(LinearRegression().fit([[0.0], [1.0]], [1.0, 3.0]))
        >>> coef.round(9), round(intercept, 9)
        (array([2.]), 1.0)
    """
    kind = type(fitted).__name__
    if not isinstance(fitted, BaseEstimator):
        raise TypeError(f"fitted must be a scikit-learn regressor, found {kind}")
    check_is_fitted(fitted)
    if not is_regressor(fitted) or not hasattr(fitted, "coef_"):
        raise TypeError(f"{kind} is no linear regressor; use one such as LinearRegression, Ridge or SGDRegressor")
    coef = fitted.coef_.toarray() if checks.is_sparse(fitted.coef_) else np.asarray(fitted.coef_)
    intercept = np.asarray(fitted.intercept_, dtype=np.float64).reshape(-1)
    if coef.size != fitted.n_features_in_ or len(intercept) != 1:
        raise ValueError(
            f"{kind} predicts several numbers (coef_ has shape {coef.shape}); convert one that predicts one"
        )
    coef = np.array(coef.reshape(-1), dtype=np.float32 if coef.dtype == np.float32 else np.float64)
    points = np.random.default_rng(0).normal(size=(4, len(coef))).astype(coef.dtype)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="X does not have valid feature names")
        found = np.asarray(fitted.predict(points)).reshape(-1)
    size = np.abs(points) @ np.abs(coef) + np.abs(intercept)
    if not (np.abs(found - (points @ coef + intercept)) <= 1e-4 * size).all():
        raise ValueError(f"{kind} does not predict by coef·x + intercept; use a regressor that does, such as Ridge")
    return coef, float(intercept[0]), getattr(fitted, "feature_names_in_", None)
