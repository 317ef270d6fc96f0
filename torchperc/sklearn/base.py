"""What the estimators share: parameters, input, decisions, conversions."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, TypeAlias

import numpy as np
import torch
from scipy.sparse import csr_array
from sklearn import linear_model
from sklearn.base import BaseEstimator, ClassifierMixin, is_regressor
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import LabelEncoder
from sklearn.utils import check_random_state
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.multiclass import _check_partial_fit_first_call, check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from torchperc._checks import Data, as_csr, check_bool, check_int, check_number, is_sparse
from torchperc.model.model import FittedModel
from torchperc.nn.heads import Head
from torchperc.nn.modules import MulticlassPerceptron, Perceptron
from torchperc.rules.conventions import Verdict as Verdict
from torchperc.samples import convert
from torchperc.samples.mapped import CsrParts

Array: TypeAlias = "np.ndarray[Any, Any]"
Net: TypeAlias = Perceptron | MulticlassPerceptron
RECENT = 1000
"""Calls of partial_fit that ``history_`` remembers, so that a stream without end needs no memory without end."""


@dataclass(frozen=True)
class Samples:
    """Checked samples: X dense or CSR, y as positions in ``classes`` or real targets, and how much each one counts."""

    X: Any
    y: Array
    classes: Array | None
    weight: Array

    def __len__(self) -> int:
        return len(self.y)

    @property
    def units(self) -> int:
        """The number of scores per sample."""
        return 1 if self.classes is None or len(self.classes) == 2 else len(self.classes)

    @property
    def labels(self) -> Array:
        """What nets learn from: −1/+1 for two classes, class indices for more, real targets."""
        return 2 * self.y - 1 if self.classes is not None and self.units == 1 else self.y

    def take(self, index: Array) -> Samples:
        """Return some of the samples."""
        return replace(self, X=self.X[index], y=self.y[index], weight=self.weight[index])

    def counted(self) -> Samples:
        """Return the samples whose weight is not 0."""
        return self if self.weight.all() else self.take(np.flatnonzero(self.weight))

    def hold_out(self, fraction: float, seed: int) -> tuple[Samples, Samples]:
        """Return the samples to learn from and those to validate with, the same fraction of each class."""
        samples = self.counted()
        options = {"test_size": fraction, "random_state": seed % 2**32}
        try:
            stratify = None if self.classes is None else samples.y
            train, held = train_test_split(np.arange(len(samples)), stratify=stratify, **options)
        except ValueError as error:
            why = f"validation_fraction={fraction} of {len(samples)} samples cannot be held out: {error}"
            raise ValueError(f"{why}. Use another fraction, more samples or early_stopping=False") from None
        return samples.take(np.sort(train)), samples.take(np.sort(held))


@dataclass(kw_only=True, eq=False, repr=False)
class LinearEstimator(BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """A linear net behind scikit-learn's interface: what classifiers and the regressor share.

    X may be an array, a frame, lists, or any scipy sparse matrix, which is never made dense. float32 samples are
    learned in float32, all others in float64.

    Args:
        max_iter: maximum number of epochs.
        tol: when to stop; see the estimators.
        fit_intercept: ``False`` for a hyperplane through the origin.
        shuffle: present the samples in a new random order in each epoch; ``False`` for the given order.
        early_stopping: hold ``validation_fraction`` out and stop when it has not improved for ``n_iter_no_change``
            epochs.
        validation_fraction: the fraction of the samples, of each class where there are classes, that is held out.
        n_iter_no_change: see ``early_stopping`` and ``tol``.
        warm_start: let ``fit`` start from the weights that the last one left; otherwise it starts from zero.
        random_state: of orders and hold-outs; a number is the seed itself.
    """

    max_iter: int = 1000
    tol: float | None = None
    fit_intercept: bool = True
    shuffle: bool = True
    early_stopping: bool = False
    validation_fraction: float = 0.1
    n_iter_no_change: int = 5
    warm_start: bool = False
    random_state: Any = 0

    peer: ClassVar[str]  # the model of scikit-learn that decides or predicts alike
    _head: ClassVar[Head]  # the loss and the decisions

    @property
    def net_(self) -> Net:
        """The weights as a torch module, in the memory of ``coef_`` and ``intercept_``."""
        coef, intercept = np.atleast_2d(self.coef_), np.atleast_1d(self.intercept_)
        if not self.fit_intercept and intercept.any():
            raise ValueError("fit_intercept=False, but the current weights have an intercept; use fit_intercept=True")
        net = self._new_net(coef.shape[1], len(coef), coef.dtype)
        net.weight.data = torch.from_numpy(coef)
        if net.bias is not None:
            net.bias.data = torch.from_numpy(intercept.astype(coef.dtype, copy=False))
        return net

    def _set_net(self, net: Net) -> None:
        """Keep the weights of a net."""
        self.coef_: Array = net.weight.detach().numpy()
        bias = torch.zeros_like(net.weight[:, 0]) if net.bias is None else net.bias
        self.intercept_: Any = bias.detach().numpy()

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    # --- input and start ---

    def _validated(self, X: Data, y: Any = None, *, reset: bool) -> Any:
        """Return samples, and labels if there are any, in a form to learn from."""
        if isinstance(X, CsrParts):
            raise TypeError("X is in pieces on disk; read it with stream=False, or give partial_fit each X.load(i)")
        # scikit-learn would not look into sparse matrices and tensors
        X, y = as_csr(X) if is_sparse(X) else convert.as_array(X), None if y is None else convert.as_array(y, "y")
        wanted: dict[str, Any] = {"accept_sparse": "csr", "dtype": [np.float64, np.float32], "order": "C"}
        if y is None and not reset:
            return validate_data(self, X, reset=False, **wanted)
        X, y = validate_data(self, X, y, reset=reset, y_numeric=is_regressor(self), **wanted)
        if is_sparse(X) and not X.has_canonical_format:
            X = X.copy()
            X.sum_duplicates()
        return X, y

    def _check_shared(self, online: bool) -> None:
        """Check the parameters of every estimator, whether they are used or not; ``online`` for ``partial_fit``."""
        check_int("max_iter", self.max_iter, at_least=1)
        check_int("n_iter_no_change", self.n_iter_no_change, at_least=1)
        for name in ("fit_intercept", "shuffle", "early_stopping", "warm_start"):
            check_bool(name, getattr(self, name))
        if check_number("validation_fraction", self.validation_fraction, above=0) >= 1:
            raise ValueError(f"validation_fraction={self.validation_fraction} must be below 1; training needs samples")
        if self.tol is not None:
            check_number("tol", self.tol, at_least=0)
        if online and self.early_stopping:
            raise ValueError("early_stopping should be False with partial_fit, which holds nothing out; use fit")

    def _start(self, samples: Samples, go_on: bool) -> tuple[Net, Samples]:
        """Return the net to learn with, and the samples in its type."""
        if not go_on:
            return self._new_net(samples.X.shape[1], samples.units, samples.X.dtype), samples
        return copy.deepcopy(self.net_), replace(samples, X=samples.X.astype(self.coef_.dtype, copy=False))

    def _new_net(self, width: int, units: int, dtype: Any) -> Net:
        made: dict[str, Any] = {"bias": self.fit_intercept}
        made["dtype"] = torch.float32 if dtype == np.float32 else torch.float64
        return Perceptron(width, **made) if units == 1 else MulticlassPerceptron(width, units, **made)

    # --- conversions ---

    def to_sklearn(self) -> Any:
        """Return the same model as one of scikit-learn's, with its default parameters.

        The other way, assign ``coef_``, ``intercept_`` and ``classes_`` of a fitted model; ``warm_start`` goes on from
        them. Decisions and predictions are the same, but for scores of exactly 0, which scikit-learn gives to
        ``classes_[0]`` and torchperc to ``classes_[1]``.

        Example:
            >>> from torchperc.sklearn import LMSRegressor
            >>> LMSRegressor(update="optimum").fit([[0.0], [1.0]], [1.0, 3.0]).to_sklearn().predict([[2.0]]).round(6)
            array([5.])
        """
        self._check_linear()
        peer = getattr(linear_model, self.peer)(fit_intercept=self.fit_intercept)
        labels = getattr(self, "classes_", np.zeros(1))
        with warnings.catch_warnings():  # fitted to an empty sample per class, for all it keeps beside its weights
            warnings.simplefilter("ignore", ConvergenceWarning)
            peer.fit(csr_array((len(labels), self.coef_.shape[-1]), dtype=self.coef_.dtype), labels)
        peer.coef_, peer.intercept_ = self.coef_.copy(), self._decision_intercept()
        if hasattr(self, "feature_names_in_"):
            peer.feature_names_in_ = self.feature_names_in_.copy()
        return peer

    def _check_linear(self) -> None:
        """Refuse an estimator that is not fitted, or has no weight vector per class."""
        check_is_fitted(self)

    def _threshold(self, units: int) -> float:
        """Return the net's score at which two classes meet; 0 for more, and for regression."""
        return 0.0 if is_regressor(self) or units > 1 else self._head.threshold

    def _decision_intercept(self) -> Any:
        """Return the intercept of scores that are compared with 0."""
        return np.asarray(self.intercept_, self.coef_.dtype) - self.coef_.dtype.type(self._threshold(len(self.coef_)))

    def _scores(self, X: Any) -> Array:
        """Return scores (N, K) of checked samples, K = 1 for two classes; (N,) for regression."""
        return np.asarray(X.astype(self.coef_.dtype, copy=False) @ self.coef_.T + self._decision_intercept())

    def to_fitted(self) -> FittedModel:
        """Return the same model as one that can be saved to one file, and exported to ONNX and torch.export.

        Its labels are strings: a label 1 is ``'1'`` there.

        Example:
            >>> from torchperc.sklearn import LogisticClassifier
            >>> model = LogisticClassifier().fit([[0.0], [1.0], [2.0], [3.0]], ["no", "yes", "no", "yes"]).to_fitted()
            >>> model.predict([[0.0], [3.0]])
            ['no', 'yes']
        """
        self._check_linear()
        names, labels = getattr(self, "feature_names_in_", None), getattr(self, "classes_", None)
        return FittedModel(self.net_, self._head, labels=labels, names=names)


@dataclass(kw_only=True, eq=False, repr=False)
class LinearClassifier(ClassifierMixin, LinearEstimator):  # type: ignore[misc]
    """A linear net that decides between classes; the three estimators say how it learns.

    Labels may be any two or more values that can be sorted. The net has one weight vector for two classes
    (``classes_[1]`` is its positive side) and one per class for more. Parameters not listed here are those of
    :class:`LinearEstimator`.

    Args:
        class_weight: a factor for the weight of each label's samples, as ``{label: factor}``, or ``"balanced"`` for all
            weight over (number of classes · weight of the class).
    """

    class_weight: Mapping[Any, float] | str | None = None

    def decision_function(self, X: Data) -> Array:
        """Return scores: above 0 for ``classes_[1]``, or one per class: (N, d) → (N,) for two classes, (N, K) for K."""
        check_is_fitted(self)
        scores = self._scores(self._validated(X, reset=False))
        return scores[:, 0] if scores.shape[1] == 1 else scores

    def predict(self, X: Data) -> Array:
        """Return labels, as ``fit`` was given them: (N, d) → (N,)."""
        codes = self._decided(self.decision_function(X))
        return np.asarray(self.classes_[codes])

    def _decided(self, scores: Array) -> Array:
        """Return scores (N,), (N, 1) or (N, K) as positions in ``classes_``."""
        if scores.ndim == 2 and scores.shape[1] > 1:
            return np.asarray(scores.argmax(1))
        return (scores >= 0).astype(np.int64).reshape(-1)

    def _samples(
        self, X: Data, y: Data, sample_weight: Data | None, *, go_on: bool, online: bool = False, classes: Any = None
    ) -> Samples:
        """Return checked samples of ``fit``, or of ``partial_fit``, where they may be of one class."""
        if online and isinstance(self.class_weight, str):
            remedy = "give it the weights that compute_class_weight has for a subset of the samples"
            raise ValueError(f"class_weight={self.class_weight!r} is not supported for partial_fit; {remedy}")
        if classes is not None and len(np.unique(classes)) < 2:
            raise ValueError(f"classes={classes!r} has one class only; at least two classes are required")
        if online:
            _check_partial_fit_first_call(self, classes)
        X, y = self._validated(X, y, reset=not go_on)
        try:
            check_classification_targets(y[:1] if y.dtype.kind in "biu" else y)  # integers are always classes
        except ValueError as error:
            raise ValueError(f"{error} For real-valued targets use LMSRegressor.") from None
        encoder = LabelEncoder()
        try:
            codes = encoder.fit(self.classes_).transform(y) if go_on or online else encoder.fit_transform(y)
        except ValueError as error:
            raise ValueError(f"{error}; name all classes on the first call, or use warm_start=False") from None
        weight = self._weights(codes, encoder.classes_, X, sample_weight)
        counted = encoder.classes_[np.flatnonzero(np.bincount(codes, weight))].tolist()
        if not online and len(counted) < 2:
            left = "y" if weight.all() else "y, after what sample_weight and class_weight leave out,"
            why = f"{left} has one class only, found {counted}"
            raise ValueError(f"{why}; at least two classes are required (or partial_fit with classes=)")
        return Samples(X, codes, encoder.classes_, weight)

    def _weights(self, codes: Array, classes: Array, X: Any, sample_weight: Data | None) -> Array:
        """Return the weight of each sample, its own times that of its class."""
        weights: Array = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        if self.class_weight is None:
            return weights
        if isinstance(self.class_weight, Mapping):
            for label, value in self.class_weight.items():
                check_number(f"class_weight[{label!r}]", value, at_least=0)
        used, factors = np.flatnonzero(weights), np.ones(len(classes))
        # by "balanced" the classes whose samples count
        present = np.unique(codes[used]) if isinstance(self.class_weight, str) else np.arange(len(classes))
        given = {"y": classes[codes[used]], "sample_weight": weights[used]}
        factors[present] = compute_class_weight(self.class_weight, classes=classes[present], **given)
        return np.asarray(weights * factors[codes])


def seed_of(random_state: Any) -> int:
    """Return the seed of orders: ``random_state`` itself where it is a number, else a draw from it."""
    if isinstance(random_state, int | np.integer) and not isinstance(random_state, bool):
        return check_int("random_state", random_state, at_least=0)
    return int(check_random_state(random_state).randint(2**31 - 1))
