"""What the estimators share: parameters, input, decisions, conversions."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, TypeAlias

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import train_test_split
from sklearn.utils import check_random_state
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.multiclass import check_classification_targets, unique_labels
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor, nn

from torchperc._checks import Data, as_csr, check_bool, check_int, check_number, check_sample_weight, is_sparse
from torchperc.model.fitted import FittedModel
from torchperc.nn.heads import Head
from torchperc.nn.modules import LinearNet, MulticlassPerceptron, Perceptron
from torchperc.rules.conventions import Verdict as Verdict
from torchperc.samples import convert
from torchperc.samples.mapped import CsrParts

Array: TypeAlias = "np.ndarray[Any, Any]"
Net: TypeAlias = Perceptron | MulticlassPerceptron
RECENT = 1000
"""Calls of partial_fit that ``history_`` remembers, so that a stream without end needs no memory without end."""


@dataclass(frozen=True)
class Samples:
    """Checked samples: X dense or CSR, y as positions in ``classes`` or as real targets, and their weights.

    ``classes`` is ``None`` for regression, ``weight`` where all samples count 1.
    """

    X: Any
    y: Array
    classes: Array | None
    weight: Array | None

    def __len__(self) -> int:
        return len(self.y)

    @property
    def units(self) -> int:
        """How many scores a net has for them."""
        return 1 if self.classes is None or len(self.classes) == 2 else len(self.classes)

    @property
    def labels(self) -> Array:
        """What nets learn from: −1/+1 for two classes, class indices for more, real targets."""
        return 2 * self.y - 1 if self.classes is not None and self.units == 1 else self.y

    def take(self, index: Array) -> Samples:
        """Some of the samples."""
        weight = None if self.weight is None else self.weight[index]
        return replace(self, X=self.X[index], y=self.y[index], weight=weight)

    def counted(self) -> Samples:
        """The samples whose weight is not 0."""
        return self if self.weight is None or self.weight.all() else self.take(np.flatnonzero(self.weight))

    def hold_out(self, fraction: float, seed: int) -> tuple[Samples, Samples]:
        """The samples to learn from and those to validate with, the same fraction of each class."""
        samples = self.counted()
        try:
            parts = train_test_split(
                np.arange(len(samples)), test_size=fraction, random_state=seed % 2**32,
                stratify=None if self.classes is None else samples.y,
            )  # fmt: skip
        except ValueError as error:
            raise ValueError(
                f"validation_fraction={fraction} of {len(samples)} samples cannot be held out: {error}. Give more "
                "samples or another validation_fraction, or use early_stopping=False"
            ) from None
        train, held = (samples.take(np.sort(part)) for part in parts)
        return train, held


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
        verbose: 1 prints a line per epoch.
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
    verbose: int = 0

    _numeric: ClassVar[bool] = False  # whether y must hold numbers

    @property
    def _head(self) -> Head:
        """What the scores mean."""
        raise NotImplementedError

    @property
    def coef_(self) -> Array:
        """The weights, (1, d) or (K, d), in the net's own memory."""
        return self._parameter("coef_", "weight")

    @property
    def intercept_(self) -> Array:
        """The bias, (1,) or (K,), in the net's own memory; zeros without one."""
        return self._parameter("intercept_", "bias")

    def _parameter(self, name: str, parameter: str) -> Array:
        if vars(self).get("net_") is None:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}: it is not fitted yet")
        values: Tensor | None = getattr(self.net_, parameter)
        return (torch.zeros_like(self.net_.weight[:, 0]) if values is None else values).detach().numpy()

    def __sklearn_is_fitted__(self) -> bool:
        return "net_" in vars(self)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def _unlike_copies(self) -> str | None:
        """Why a sample of weight 3 is not the same as three copies; ``None`` where it is."""
        return "a sample of weight 3 takes one step, three times as long, where three copies take three"

    # --- input ---

    def _validated(self, X: Data, y: Any = None, *, reset: bool) -> Any:
        """Samples, and labels if there are any, in a form to learn from."""
        if isinstance(X, CsrParts):
            raise TypeError(
                "X is in pieces on disk, and estimators need samples that are in memory; read it with stream=False, "
                "give partial_fit one piece after the other (X.load(i)), or use RuleTrainer or LitRule"
            )
        # scikit-learn would not look into sparse matrices and tensors
        X = as_csr(X) if is_sparse(X) else convert.as_array(X)
        wanted: dict[str, Any] = {"accept_sparse": "csr", "dtype": [np.float64, np.float32], "order": "C"}
        if y is None and not reset:
            return validate_data(self, X, reset=False, **wanted)
        y = None if y is None else convert.as_array(y, "y")
        X, y = validate_data(self, X, y, reset=reset, y_numeric=self._numeric, **wanted)
        if is_sparse(X):  # a sorted csr_array without duplicates
            X = convert.sparse_features(X, dtype=torch.float32 if X.dtype == np.float32 else torch.float64)
        return X, y

    def _samples(self, X: Data, y: Data, sample_weight: Data | None, classes: Array | None, whole: bool) -> Samples:
        """Checked samples of a ``whole`` fit or of a chunk; ``classes`` are those known before."""
        raise NotImplementedError

    def _error(self, scores: Array, samples: Samples) -> float | None:
        """The fraction of samples that scores (N, K) of the net decide wrongly; ``None`` where nothing is decided."""
        return None

    def _refuse_in_chunks(self) -> None:
        """Refuse what partial_fit would have to ignore."""
        if check_bool("early_stopping", self.early_stopping):
            raise ValueError("early_stopping should be False with partial_fit, which holds nothing out; use fit")

    # --- starting ---

    def _check_shared(self) -> None:
        """The parameters of every estimator, checked whether they are used or not."""
        check_int("max_iter", self.max_iter, at_least=1)
        check_int("n_iter_no_change", self.n_iter_no_change, at_least=1)
        check_int("verbose", int(self.verbose) if isinstance(self.verbose, bool) else self.verbose, at_least=0)
        for name in ("fit_intercept", "shuffle", "early_stopping", "warm_start"):
            check_bool(name, getattr(self, name))
        if check_number("validation_fraction", self.validation_fraction, above=0) >= 1:
            raise ValueError(f"validation_fraction={self.validation_fraction} must be below 1; training needs samples")
        if self.tol is not None:
            check_number("tol", self.tol, at_least=0)

    def _goes_on(self) -> bool:
        """Whether this fit starts from the weights of the last."""
        return self.warm_start and vars(self).get("net_") is not None

    def _new_net(self, width: int, units: int, dtype: Any) -> Net:
        kind = torch.float32 if dtype == np.float32 else torch.float64
        if units == 1:
            return Perceptron(width, self.fit_intercept, dtype=kind)
        return MulticlassPerceptron(width, units, self.fit_intercept, dtype=kind)

    def _start(self, samples: Samples, going_on: bool) -> tuple[Net, Samples]:
        """The net to learn with, and the samples in its type."""
        if not going_on:
            return self._new_net(samples.X.shape[1], samples.units, samples.X.dtype), samples
        net = copy.deepcopy(self.net_)
        if (net.bias is None) == self.fit_intercept:
            raise ValueError(f"fit_intercept={self.fit_intercept} is not what the weights at hand have; fit anew first")
        return net, replace(samples, X=samples.X.astype(self.coef_.dtype, copy=False))

    def _seed(self) -> int:
        """The seed of orders: ``random_state`` itself where it is a number, else a draw from it."""
        state = self.random_state
        if isinstance(state, int | np.integer) and not isinstance(state, bool):
            return check_int("random_state", state, at_least=0)
        return int(check_random_state(state).randint(2**31 - 1))

    def _say(self, line: object) -> None:
        """Print a line if ``verbose`` asks for it."""
        if self.verbose:
            print(line, flush=True)

    # --- scikit-learn's own and other nets ---

    def to_sklearn(self) -> Any:
        """The same model as one of scikit-learn's, with its default parameters; decisions and predictions are the same.

        But for scores of exactly 0, which scikit-learn gives to ``classes_[0]``, and the perceptron and LMS here to
        ``classes_[1]``.

        Example:
            >>> from torchperc.sklearn import LMSRegressor
            >>> LMSRegressor(update="optimum").fit([[0.0], [1.0]], [1.0, 3.0]).to_sklearn().predict([[2.0]]).round(6)
            array([5.])
        """
        from scipy.sparse import csr_array

        check_is_fitted(self)
        peer, labels = self._peer(), getattr(self, "classes_", np.zeros(1))
        with warnings.catch_warnings():  # fitted to an empty sample per class, for all it keeps beside its weights
            warnings.simplefilter("ignore", ConvergenceWarning)
            peer.fit(csr_array((len(labels), self.n_features_in_), dtype=self.coef_.dtype), labels)
        peer.coef_, peer.intercept_ = self.coef_.copy(), self._decision_intercept()
        if (names := getattr(self, "feature_names_in_", None)) is not None:
            peer.feature_names_in_ = names.copy()
        return peer

    def _decision_intercept(self) -> Any:
        """The intercept of scores that are compared with 0."""
        return copy.copy(self.intercept_)

    def _peer(self) -> Any:
        """The unfitted model of scikit-learn that decides or predicts alike."""
        raise NotImplementedError

    def to_fitted(self) -> FittedModel:
        """The same model as one that can be saved to one file, and exported to ONNX and torch.export.

        Its labels are strings: a label 1 is ``'1'`` there.

        Example:
            >>> from torchperc.sklearn import LogisticClassifier
            >>> model = LogisticClassifier().fit([[0.0], [1.0], [2.0], [3.0]], ["no", "yes", "no", "yes"]).to_fitted()
            >>> model.predict([[0.0], [3.0]])
            ['no', 'yes']
        """
        check_is_fitted(self)
        self._peer()  # refuses what no single set of weights decides like
        names, labels = getattr(self, "feature_names_in_", None), getattr(self, "classes_", None)
        return FittedModel.of(self.net_, self._head, labels=labels, names=names)

    def _take_over(self, coef: Array, intercept: Array, names: Array | None) -> Any:
        """Be fitted, with given weights (K, d) and biases (K,)."""
        if not self.fit_intercept and intercept.any():
            raise ValueError("fit_intercept=False, but the given model has an intercept; use fit_intercept=True")
        net = self._new_net(coef.shape[1], len(coef), coef.dtype)
        with torch.no_grad():
            net.weight.copy_(torch.from_numpy(coef))
            if net.bias is not None:
                net.bias.copy_(torch.from_numpy(intercept))
        self.n_features_in_, self.net_ = coef.shape[1], net
        if names is not None:
            self.feature_names_in_ = names
        return self


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

    zero_is_positive: ClassVar[bool] = True  # the class of a score of exactly 0

    def decision_function(self, X: Data) -> Array:
        """Scores: above 0 for ``classes_[1]``, or one per class: (N, d) → (N,) for two classes, (N, K) for K."""
        check_is_fitted(self)
        scores = self._scores(self._validated(X, reset=False))
        return scores[:, 0] if scores.shape[1] == 1 else scores

    def predict(self, X: Data) -> Array:
        """Labels, as ``fit`` was given them: (N, d) → (N,)."""
        codes = self._decided(self.decision_function(X))
        return np.asarray(self.classes_[codes])

    def _decided(self, scores: Array) -> Array:
        """Scores (N,), (N, 1) or (N, K) as positions in ``classes_``."""
        if scores.ndim == 2 and scores.shape[1] > 1:
            return np.asarray(scores.argmax(1))
        return (scores >= 0 if self.zero_is_positive else scores > 0).astype(np.int64).reshape(-1)

    def _scores(self, X: Any) -> Array:
        """Scores (N, K) of checked samples, K = 1 for two classes."""
        product = X.astype(self.coef_.dtype, copy=False) @ self.coef_.T
        return np.asarray(product + self._decision_intercept())

    def _error(self, scores: Array, samples: Samples) -> float | None:
        return float(np.mean(self._decided(scores - self._threshold(samples.units)) != samples.y))

    def _threshold(self, units: int) -> float:
        """The net's score at which two classes meet; 0 for more."""
        return 0.0

    def _decision_intercept(self) -> Array:
        return np.asarray(self.intercept_ - self.intercept_.dtype.type(self._threshold(len(self.coef_))))

    # --- scikit-learn's own and other nets ---

    @classmethod
    def from_sklearn(cls, fitted: Any, **parameters: Any) -> Any:
        """A fitted estimator with the weights of a linear classifier of scikit-learn's, to decide or to learn on.

        Args:
            fitted: a Perceptron, SGDClassifier, LogisticRegression, RidgeClassifier, LinearSVC or any other with
                ``coef_``, ``intercept_`` and ``classes_`` that decides by coef·x + intercept. Decisions are the same;
                probabilities of more than two classes are the softmax of the scores, not those of one-vs-rest.
            parameters: of the estimator; ``fit_intercept`` is that of the other by default.
        """
        coef, intercept = weights_of(fitted, "decision_function", "classifier")
        estimator = cls(**{"fit_intercept": bool(getattr(fitted, "fit_intercept", True)), **parameters})
        names = getattr(fitted, "feature_names_in_", None)
        return estimator._take_planes(coef, intercept, np.asarray(fitted.classes_), names)

    @classmethod
    def from_net(cls, net: nn.Module, classes: Data, **parameters: Any) -> Any:
        """A fitted estimator with a copy of a net's weights.

        Args:
            net: a :class:`Perceptron`, a :class:`MulticlassPerceptron` or an ``nn.Linear``.
            classes: the labels in the order of the net's: of −1 and +1, or of the indices 0 to K − 1.
            parameters: of the estimator; ``fit_intercept`` is whether the net has a bias by default.
        """
        coef, intercept = net_weights(net)
        estimator = cls(**{"fit_intercept": getattr(net, "bias", None) is not None, **parameters})
        labels, count = np.asarray(classes), max(len(coef), 2)
        if labels.ndim != 1 or len(labels) != count or len(np.unique(labels)) != count:
            raise ValueError(f"classes must be {count} different labels for this net, found {classes!r}")
        order = np.argsort(labels)
        if len(coef) == 1:
            sign = 1 if order[0] == 0 else -1
            coef, intercept = sign * coef, sign * (intercept - estimator._threshold(1))
        else:
            coef, intercept = coef[order], intercept[order]
        if len(coef) == 2:  # what decides is the difference of two rows
            coef, intercept = coef[1:] - coef[:1], intercept[1:] - intercept[:1]
        return estimator._take_planes(coef, intercept, labels[order], None)

    def _take_planes(self, coef: Array, intercept: Array, classes: Array, names: Array | None) -> Any:
        """Be fitted, to decide by coef·x + intercept."""
        self.classes_ = classes
        return self._take_over(coef, intercept + intercept.dtype.type(self._threshold(len(coef))), names)

    # --- input ---

    def _samples(self, X: Data, y: Data, sample_weight: Data | None, classes: Array | None, whole: bool) -> Samples:
        X, y = self._validated(X, y, reset=classes is None or not hasattr(self, "classes_"))
        try:
            check_classification_targets(y)
        except ValueError as error:
            raise ValueError(f"{error} For real-valued targets use LMSRegressor.") from None
        found, codes = np.unique(y, return_inverse=True)
        if classes is None:
            classes = found
        elif (unknown := np.setdiff1d(found, classes)).size:
            raise ValueError(
                f"y has the label {unknown.tolist()[0]!r}, which is not one of the classes {classes.tolist()}; "
                "name all classes on the first call, or fit anew with warm_start=False"
            )
        codes = np.searchsorted(classes, found)[codes]
        samples = Samples(X, codes, classes, self._weights(codes, classes, sample_weight))
        counted = samples.counted().y
        if whole and counted.min() == counted.max():
            left = "y" if samples.weight is None else "y, after what sample_weight and class_weight leave out,"
            raise ValueError(
                f"{left} has one class only, found {classes.tolist()[counted[0]]!r}; at least two classes are required "
                "(partial_fit with classes= accepts such samples)"
            )
        return samples

    def _weights(self, codes: Array, classes: Array, sample_weight: Data | None) -> Array | None:
        """The weight of each sample, its own times that of its class; ``None`` where all are 1."""
        own, by_class = sample_weights(sample_weight, len(codes)), self.class_weight
        if by_class is None:
            return own
        factors: Array
        if isinstance(by_class, Mapping):
            for label, value in by_class.items():
                check_number(f"class_weight[{label!r}]", value, at_least=0)
            factors = compute_class_weight(dict(by_class), classes=classes, y=classes[codes])
        else:
            used = slice(None) if own is None else own > 0
            present = np.unique(codes[used])
            factors = np.ones(len(classes))
            weighted = {} if own is None else {"sample_weight": own[used]}
            factors[present] = compute_class_weight(by_class, classes=present, y=codes[used], **weighted)
        return factors[codes] if own is None else own * factors[codes]

    def _chunk(self, X: Data, y: Data, classes: Any, sample_weight: Data | None) -> Samples:
        """Checked samples of one call of partial_fit, which may be of one class."""
        known = vars(self).get("classes_")
        if known is None and classes is None:
            raise ValueError("classes must be passed on the first call to partial_fit: all labels that will ever come")
        if classes is not None:
            labels = unique_labels(classes)
            if known is not None and not np.array_equal(labels, known):
                raise ValueError(f"classes={classes!r} is not what it was before, {known.tolist()}")
            if len(labels) < 2:
                raise ValueError(f"classes={classes!r} has one class only; at least two classes are required")
            known = labels
        return self._samples(X, y, sample_weight, known, whole=False)

    def _refuse_in_chunks(self) -> None:
        super()._refuse_in_chunks()
        if isinstance(self.class_weight, str):
            raise ValueError(
                f"class_weight={self.class_weight!r} is not supported for partial_fit, which never sees all samples. "
                "In order to use 'balanced' weights, use compute_class_weight('balanced', classes=classes, y=y) on a "
                "large enough subset of y, and pass them as class_weight={label: weight}"
            )


def sample_weights(sample_weight: Data | None, count: int) -> Array | None:
    """Checked weights of samples; ``None`` if there are none.

    Example:
        >>> sample_weights([1, 2], 2)
        array([1., 2.])
    """
    if sample_weight is None:
        return None
    given = np.asarray(sample_weight, dtype=np.float64)
    if given.size and not given.any():
        raise ValueError("sample_weight is zero for every sample; at least one must count")
    weights: Array = check_sample_weight(given, count).numpy()
    return weights


def weights_of(fitted: Any, method: str, kind: str) -> tuple[Array, Array]:
    """Weights (K, d) and intercepts (K,) of a fitted linear model of scikit-learn's.

    Whether its ``method`` is coef·x + intercept is tried out on a few points, so that models that use these names for
    something else are refused.

    Example:
        >>> from sklearn.linear_model import LinearRegression
        >>> coef, intercept = weights_of(LinearRegression().fit([[0.0], [1.0]], [1.0, 3.0]), "predict", "regressor")
        >>> coef.round(9), intercept.round(9)
        (array([[2.]]), array([1.]))
    """
    name = type(fitted).__name__
    if not isinstance(fitted, BaseEstimator):
        raise TypeError(f"fitted must be a scikit-learn {kind}, found {name}")
    check_is_fitted(fitted)
    for needed in ("coef_", "intercept_", method):
        if not hasattr(fitted, needed):
            raise TypeError(f"{name} has no {needed}, so it is no linear {kind}; use a linear {kind} of scikit-learn")
    coef = fitted.coef_.toarray() if is_sparse(fitted.coef_) else np.asarray(fitted.coef_)
    coef = np.array(np.atleast_2d(coef), dtype=np.float32 if coef.dtype == np.float32 else np.float64)
    intercept = np.zeros(len(coef), coef.dtype) + np.asarray(fitted.intercept_, dtype=coef.dtype).reshape(-1)
    points = np.random.default_rng(0).normal(size=(4, coef.shape[1])).astype(coef.dtype)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="X does not have valid feature names")
        found = np.asarray(getattr(fitted, method)(points))
    size = np.abs(points) @ np.abs(coef.T) + np.abs(intercept)
    shape = (4,) if len(coef) == 1 else (4, len(coef))
    if found.shape != shape or (np.abs(found.reshape(4, -1) - points @ coef.T - intercept) > 1e-4 * size).any():
        raise ValueError(
            f"{name} does not decide or predict by coef·x + intercept with one row per class (coef_ has shape "
            f"{coef.shape}); use a linear {kind} that does"
        )
    return coef, intercept


def net_weights(net: nn.Module) -> tuple[Array, Array]:
    """Weights (K, d) and biases (K,) of a linear net, in float32 or float64; zeros without a bias."""
    if not isinstance(net, LinearNet):
        raise TypeError(
            f"net must be a Perceptron, MulticlassPerceptron or nn.Linear, found {type(net).__name__}; an "
            "estimator has one weight vector per class"
        )
    weight = net.weight.detach().cpu()
    bias = weight.new_zeros(len(weight)) if net.bias is None else net.bias.detach().cpu()
    kind = torch.float32 if weight.dtype == torch.float32 else torch.float64
    return weight.to(kind).numpy(), bias.to(kind).numpy()


def expected_failed_checks(estimator: LinearEstimator) -> dict[str, str]:
    """Which of scikit-learn's checks an estimator cannot pass, and why; for ``check_estimator``.

    Where the result depends on the order of samples, or on which are held out, a weight of 3 is not three copies.
    Parameters that ``partial_fit`` refuses, as scikit-learn's own does, fail the checks that call it. No others are
    expected to fail, unless a learning rate is too large for a check's samples.

    Example:
        >>> from torchperc.sklearn import LMSClassifier
        >>> expected_failed_checks(LMSClassifier()), len(expected_failed_checks(LMSClassifier(update="sample")))
        ({}, 2)
    """
    reason, kinds = estimator._unlike_copies(), ("dense", "sparse")
    failed = {f"check_sample_weight_equivalence_on_{kind}_data": reason for kind in kinds if reason is not None}
    try:
        if hasattr(estimator, "partial_fit"):
            estimator._refuse_in_chunks()
    except ValueError as refusal:
        for name in ("fit_score_takes_y", "n_features_in_after_fitting", "estimators_partial_fit_n_features"):
            failed[f"check_{name}"] = str(refusal)
    return failed
