"""What the estimators share: parameters, input, decisions, conversions."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, TypeAlias

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets, unique_labels
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor, nn

from torchperc import _checks as checks
from torchperc.model.fitted import FittedModel
from torchperc.nn.heads import Head
from torchperc.nn.modules import LinearNet, MulticlassPerceptron, Perceptron
from torchperc.rules.conventions import Verdict as Verdict
from torchperc.samples import convert
from torchperc.samples.parts import CsrParts
from torchperc.sklearn.conversion import Planes, filled, planes
from torchperc.sklearn.inputs import Array, Samples, classes_and_codes, codes_of, factors_of

Net: TypeAlias = Perceptron | MulticlassPerceptron
RECENT = 1000
"""Calls of partial_fit that ``history_`` remembers, so that a stream without end needs no memory without end."""


class _Fitted(BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    net_: Net
    n_features_in_: int
    n_iter_: int
    history_: list[Any]
    verdict_: Verdict


@dataclass(kw_only=True, eq=False, repr=False)
class LinearEstimator(_Fitted):
    """A linear net behind scikit-learn's interface: what classifiers and the regressor share.

    X may be an array, a frame, lists, or any scipy sparse matrix, which is never made dense. float32 samples are
    learned in float32, all others in float64.

    Args:
        fit_intercept: ``False`` for a hyperplane through the origin.
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
        return self._numbers("coef_", "weight")

    @property
    def intercept_(self) -> Array:
        """The bias, (1,) or (K,), in the net's own memory; zeros without one."""
        return self._numbers("intercept_", "bias")

    def _numbers(self, name: str, parameter: str) -> Array:
        if vars(self).get("net_") is None:
            raise AttributeError(self._no_planes(name))
        values: Tensor | None = getattr(self.net_, parameter)
        return (torch.zeros_like(self.net_.weight[:, 0]) if values is None else values).detach().numpy()

    def _no_planes(self, name: str) -> str:
        return f"{type(self).__name__!r} object has no attribute {name!r}: it is not fitted yet"

    @property
    def _unlike_copies(self) -> str | None:
        """Why a sample of weight 3 is not the same as three copies; ``None`` where it is."""
        return "a sample of weight 3 takes one step, three times as long, where three copies take three"

    @property
    def _unlike_others(self) -> dict[str, str]:
        """Other checks of scikit-learn's that these parameters cannot pass, and why."""
        return {}

    def __sklearn_is_fitted__(self) -> bool:
        return "net_" in vars(self)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    # --- input ---

    def _validated(self, X: checks.Data, y: Any = None, *, reset: bool, unseen: bool = False) -> Any:
        """Samples, and labels if there are any, in a form to learn from; ``unseen``: nobody looks at X's numbers."""
        if isinstance(X, CsrParts):
            raise TypeError(
                "X is in pieces on disk, and estimators need samples that are in memory; read it with stream=False, "
                "give partial_fit one piece after the other (X.load(i)), or use RuleTrainer or LitRule"
            )
        # scikit-learn would not look into sparse matrices and tensors
        X = checks.as_csr(X, look=not unseen) if checks.is_sparse(X) else convert.as_array(X)
        wanted: dict[str, Any] = {"accept_sparse": "csr", "dtype": [np.float64, np.float32], "order": "C"}
        wanted["ensure_all_finite"] = not unseen
        if y is None and not reset:
            return validate_data(self, X, reset=False, **wanted)
        X, y = validate_data(
            self, X, None if y is None else convert.as_array(y, "y"), reset=reset, y_numeric=self._numeric, **wanted
        )
        self._check_targets(y)
        if checks.is_sparse(X) and not unseen:  # a sorted csr_array without duplicates
            X = convert.sparse_features(X, dtype=torch.float32 if X.dtype == np.float32 else torch.float64)
        return X, y

    def _check_targets(self, y: Array) -> None:
        """Refuse a y that cannot be learned from."""

    def _refuse_in_chunks(self) -> None:
        """Refuse what partial_fit would have to ignore."""
        if checks.flag("early_stopping", self.early_stopping):
            raise ValueError("early_stopping should be False with partial_fit, which holds nothing out; use fit")

    # --- starting ---

    def _check_shared(self) -> None:
        """The parameters of every estimator, checked whether they are used or not."""
        checks.whole("max_iter", self.max_iter, at_least=1)
        checks.whole("n_iter_no_change", self.n_iter_no_change, at_least=1)
        checks.whole("verbose", int(self.verbose) if isinstance(self.verbose, bool) else self.verbose, at_least=0)
        checks.flag("early_stopping", self.early_stopping)
        if checks.number("validation_fraction", self.validation_fraction, above=0) >= 1:
            raise ValueError(f"validation_fraction={self.validation_fraction} must be below 1; training needs samples")
        if self.tol is not None:
            checks.number("tol", self.tol, at_least=0)

    def _goes_on(self) -> bool:
        """Whether this fit starts from the weights of the last."""
        return checks.flag("warm_start", self.warm_start) and vars(self).get("net_") is not None

    def _new_net(self, width: int, units: int, dtype: Any) -> Net:
        kind = torch.float32 if dtype == np.float32 else torch.float64
        bias = checks.flag("fit_intercept", self.fit_intercept)
        if units == 1:
            return Perceptron(width, bias, dtype=kind)
        return MulticlassPerceptron(width, units, bias, dtype=kind)

    def _start(self, samples: Samples, going_on: bool) -> tuple[Net, Samples]:
        """The net to learn with, and the samples in its type."""
        if not going_on:
            return self._new_net(samples.X.shape[1], samples.units, samples.X.dtype), samples
        net = copy.deepcopy(self.net_)
        if (net.bias is None) == checks.flag("fit_intercept", self.fit_intercept):
            raise ValueError(f"fit_intercept={self.fit_intercept} is not what the weights at hand have; fit anew first")
        return net, replace(samples, X=samples.X.astype(self.coef_.dtype, copy=False))

    def _seed(self) -> int:
        """The seed of orders: ``random_state`` itself where it is a number, else a draw from it."""
        state = self.random_state
        if isinstance(state, int | np.integer) and not isinstance(state, bool):
            return checks.whole("random_state", state, at_least=0)
        return int(check_random_state(state).randint(2**31 - 1))


class _Classifier(ClassifierMixin, LinearEstimator):  # type: ignore[misc]
    classes_: Array
    mistakes_: int


@dataclass(kw_only=True, eq=False, repr=False)
class LinearClassifier(_Classifier):
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

    # --- decisions ---

    def decision_function(self, X: checks.Data) -> Array:
        """Scores: above 0 for ``classes_[1]``, or one per class: (N, d) → (N,) for two classes, (N, K) for K."""
        check_is_fitted(self)
        scores = self._scores(self._validated(X, reset=False))
        return scores[:, 0] if scores.shape[1] == 1 else scores

    def predict(self, X: checks.Data) -> Array:
        """Labels, as ``fit`` was given them: (N, d) → (N,)."""
        codes = self._decided(self.decision_function(X))
        return np.asarray(self.classes_[codes])

    def _decided(self, scores: Array) -> Array:
        """Scores (N,) or (N, K) as positions in ``classes_``."""
        if scores.ndim == 2:
            return np.asarray(scores.argmax(1))
        return (scores >= 0 if self.zero_is_positive else scores > 0).astype(np.int64)

    def _scores(self, X: Any) -> Array:
        """Scores (N, K) of checked samples, K = 1 for two classes."""
        product = np.asarray(X.astype(self.coef_.dtype, copy=False) @ self.coef_.T)
        return np.asarray(product + (self.intercept_ - product.dtype.type(self._threshold(len(self.classes_)))))

    def _threshold(self, classes: int) -> float:
        """The net's score at which two classes meet; 0 for more."""
        return 0.0

    # --- scikit-learn's own and other nets ---

    def to_sklearn(self) -> Any:
        """The same classifier as one of scikit-learn's, with its default parameters; decisions are the same.

        But for scores of exactly 0, which scikit-learn gives to ``classes_[0]``, and the perceptron and LMS here to
        ``classes_[1]``.
        """
        check_is_fitted(self)
        peer, names = self._peer(), getattr(self, "feature_names_in_", None)
        intercept = self.intercept_ - self.coef_.dtype.type(self._threshold(len(self.classes_)))
        return filled(peer, Planes(self.coef_, intercept, self.classes_, names))

    def to_fitted(self) -> FittedModel:
        """The same classifier as a model that can be saved to one file, and exported to ONNX and torch.export.

        Its labels are strings: a label 1 is ``'1'`` there.

        Example:
            >>> from torchperc.sklearn import LogisticClassifier
            >>> model = LogisticClassifier().fit([[0.0], [1.0], [2.0], [3.0]], ["no", "yes", "no", "yes"]).to_fitted()
            >>> model.predict([[0.0], [3.0]])
            ['no', 'yes']
        """
        check_is_fitted(self)
        self._peer()  # refuses what no single set of weights decides like
        names = getattr(self, "feature_names_in_", None)
        return FittedModel.of(self.net_, self._head, labels=self.classes_, names=names)

    def _peer(self) -> Any:
        """The unfitted classifier of scikit-learn that decides alike."""
        raise NotImplementedError

    @classmethod
    def from_sklearn(cls, fitted: Any, **parameters: Any) -> Any:
        """A fitted estimator with the weights of a linear classifier of scikit-learn's, to decide or to learn on.

        Args:
            fitted: a Perceptron, SGDClassifier, LogisticRegression, RidgeClassifier, LinearSVC or any other with
                ``coef_``, ``intercept_`` and ``classes_`` that decides by coef·x + intercept. Decisions are the same;
                probabilities of more than two classes are the softmax of the scores, not those of one-vs-rest.
            parameters: of the estimator; ``fit_intercept`` is that of the other by default.
        """
        given = planes(fitted)
        return cls(**{"fit_intercept": bool(getattr(fitted, "fit_intercept", True)), **parameters})._take_over(given)

    @classmethod
    def from_net(cls, net: nn.Module, classes: checks.Data, **parameters: Any) -> Any:
        """A fitted estimator with a copy of a net's weights.

        Args:
            net: a :class:`Perceptron`, a :class:`MulticlassPerceptron` or an ``nn.Linear``.
            classes: the labels in the order of the net's: of −1 and +1, or of the indices 0 to K − 1.
            parameters: of the estimator; ``fit_intercept`` is whether the net has a bias by default.
        """
        if not isinstance(net, LinearNet):
            raise TypeError(
                f"net must be a Perceptron, MulticlassPerceptron or nn.Linear, found {type(net).__name__}; an "
                "estimator has one weight vector per class"
            )
        estimator = cls(**{"fit_intercept": net.bias is not None, **parameters})
        weight = net.weight.detach().cpu()
        bias = weight.new_zeros(len(weight)) if net.bias is None else net.bias.detach().cpu()
        labels, count = np.asarray(classes), max(len(weight), 2)
        if labels.ndim != 1 or len(labels) != count or len(np.unique(labels)) != count:
            raise ValueError(f"classes must be {count} different labels for this net, found {classes!r}")
        kind, order = torch.float32 if weight.dtype == torch.float32 else torch.float64, np.argsort(labels)
        coef, intercept = weight.to(kind).numpy(), bias.to(kind).numpy()
        if len(coef) == 1:
            sign = 1 if order[0] == 0 else -1
            coef, intercept = sign * coef, sign * (intercept - estimator._threshold(2))
        else:
            coef, intercept = coef[order], intercept[order]
        if len(coef) == 2:  # what decides is the difference of two rows
            coef, intercept = coef[1:] - coef[:1], intercept[1:] - intercept[:1]
        return estimator._take_over(Planes(coef, intercept, labels[order]))

    def _take_over(self, given: Planes) -> Any:
        """Be fitted, to decide by the given planes."""
        self._check_planes()
        bias = given.intercept + given.intercept.dtype.type(self._threshold(len(given.classes)))
        if not self.fit_intercept and bias.any():
            raise ValueError("fit_intercept=False, but the given classifier has an intercept; use fit_intercept=True")
        net = self._new_net(given.coef.shape[1], len(given.coef), given.coef.dtype)
        with torch.no_grad():
            net.weight.copy_(torch.from_numpy(given.coef))
            if net.bias is not None:
                net.bias.copy_(torch.from_numpy(bias))
        self.classes_, self.n_features_in_, self.net_ = given.classes, given.coef.shape[1], net
        if given.names is not None:
            self.feature_names_in_ = given.names
        return self

    def _check_planes(self) -> None:
        """Refuse parameters that no weight vectors go with."""

    # --- input ---

    def _check_targets(self, y: Array) -> None:
        if y.dtype.kind in "iu" and y.ndim == 1 and int(y.max()) - int(y.min()) < len(y) // 2:
            return  # integers, and not as many as there are samples: classes
        try:
            check_classification_targets(y)
        except ValueError as error:
            raise ValueError(f"{error} For real-valued targets use LMSRegressor.") from None

    def _samples(
        self,
        X: checks.Data,
        y: checks.Data,
        sample_weight: checks.Data | None,
        going_on: bool,
        unseen: bool = False,
    ) -> Samples:
        """Checked samples of a whole fit, with two classes or more that count."""
        X, y = self._validated(X, y, reset=not going_on, unseen=unseen)
        if going_on:
            classes, codes = self.classes_, codes_of(y, self.classes_)
        else:
            classes, codes = classes_and_codes(y)
        factors = factors_of(codes, classes, sample_weight, self.class_weight)
        counted = codes if factors is None else codes[factors > 0]
        if counted.min() == counted.max():
            left = "y" if factors is None else "y, after what sample_weight and class_weight leave out,"
            raise ValueError(
                f"{left} has one class only, found {classes.tolist()[counted[0]]!r}; at least two classes are required "
                "(partial_fit with classes= accepts such samples)"
            )
        return Samples(X, codes, classes, factors)

    def _chunk(
        self, X: checks.Data, y: checks.Data, classes: Any, sample_weight: checks.Data | None, unseen: bool = False
    ) -> Samples:
        """Checked samples of one call of partial_fit, which may be of one class."""
        first = not hasattr(self, "classes_")
        if first and classes is None:
            raise ValueError("classes must be passed on the first call to partial_fit: all labels that will ever come")
        if classes is not None:
            labels = unique_labels(classes)
            if not first and not np.array_equal(labels, self.classes_):
                raise ValueError(f"classes={classes!r} is not what it was before, {self.classes_.tolist()}")
            if len(labels) < 2:
                raise ValueError(f"classes={classes!r} has one class only; at least two classes are required")
        X, y = self._validated(X, y, reset=first, unseen=unseen)
        if first:
            self.classes_ = labels
        codes = codes_of(y, self.classes_)
        return Samples(X, codes, self.classes_, factors_of(codes, self.classes_, sample_weight, self.class_weight))

    def _refuse_in_chunks(self) -> None:
        super()._refuse_in_chunks()
        if isinstance(self.class_weight, str):
            raise ValueError(
                f"class_weight={self.class_weight!r} is not supported for partial_fit, which never sees all samples. "
                "In order to use 'balanced' weights, use compute_class_weight('balanced', classes=classes, y=y) on a "
                "large enough subset of y, and pass them as class_weight={label: weight}"
            )


def say(verbose: Any, line: object) -> None:
    """Print a line, or what has one, if ``verbose`` asks for it.

    Example:
        >>> say(1, "epoch 1")
        epoch 1
    """
    if verbose:
        print(line, flush=True)


def expected_failed_checks(estimator: LinearEstimator) -> dict[str, str]:
    """Which of scikit-learn's checks an estimator cannot pass, and why; for ``check_estimator``.

    Where the result depends on the order of samples, or on which are held out, a weight of 3 is not three copies. The
    rule with held-out samples chooses among its epochs by very few of them in one check, whose class weights are too
    far apart for some schedules. Parameters that ``partial_fit`` refuses, as scikit-learn's own does, fail the checks
    that call it. No others are expected to fail, unless a learning rate is too large for a check's samples.

    Example:
        >>> from torchperc.sklearn import LMSClassifier
        >>> expected_failed_checks(LMSClassifier()), len(expected_failed_checks(LMSClassifier(update="sample")))
        ({}, 2)
    """
    reason = estimator._unlike_copies
    names = ("check_sample_weight_equivalence_on_dense_data", "check_sample_weight_equivalence_on_sparse_data")
    failed = {**({} if reason is None else dict.fromkeys(names, reason)), **estimator._unlike_others}
    try:
        if hasattr(estimator, "partial_fit"):
            estimator._refuse_in_chunks()
    except ValueError as refusal:
        failed |= dict.fromkeys(_IN_CHUNKS, str(refusal))
    return failed


_IN_CHUNKS = ("check_fit_score_takes_y", "check_n_features_in_after_fitting", "check_estimators_partial_fit_n_features")
