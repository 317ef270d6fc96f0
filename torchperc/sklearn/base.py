"""What the three estimators share: checked input, any labels, weights, hold-outs, decisions, conversions."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from dataclasses import dataclass
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
from torchperc.nn.modules import MulticlassPerceptron, Perceptron
from torchperc.samples import convert
from torchperc.samples.parts import CsrParts
from torchperc.sklearn.conversion import Planes, filled, planes

Array: TypeAlias = "np.ndarray[Any, Any]"
Net: TypeAlias = Perceptron | MulticlassPerceptron
RECENT = 1000
"""Calls of partial_fit that ``history_`` remembers, so that a stream without end needs no memory without end."""


@dataclass(frozen=True)
class Samples:
    """Checked samples: X dense or CSR, labels as positions in ``classes``, a factor each or ``None`` for 1."""

    X: Any
    codes: Array
    classes: Array
    factors: Array | None

    def __len__(self) -> int:
        return len(self.codes)

    @property
    def labels(self) -> Tensor:
        """Labels as nets know them: −1/+1 for two classes, else class indices."""
        return torch.from_numpy(2 * self.codes - 1 if len(self.classes) == 2 else self.codes)

    def take(self, index: Array) -> Samples:
        """Some of the samples."""
        factors = None if self.factors is None else self.factors[index]
        return Samples(self.X[index], self.codes[index], self.classes, factors)

    def counted(self) -> Samples:
        """Without those whose factor is 0."""
        if self.factors is None or self.factors.all():
            return self
        return self.take(np.flatnonzero(self.factors))


class LinearClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """A linear net behind scikit-learn's interface; the three estimators say how it learns.

    X may be an array, a frame, lists, or any scipy sparse matrix, which is never made dense. float32 samples are
    learned in float32, all others in float64. Labels may be any two or more values that can be sorted. The net has one
    weight vector for two classes (``classes_[1]`` is its positive side) and one a class for more.
    """

    fit_intercept: bool
    class_weight: Mapping[Any, float] | str | None
    early_stopping: bool
    validation_fraction: float
    random_state: Any
    warm_start: bool

    net_: Net
    classes_: Array
    n_features_in_: int

    zero_is_positive: ClassVar[bool] = True  # the class of a score of exactly 0

    # --- decisions ---

    def decision_function(self, X: checks.Data) -> Array:
        """Scores: above 0 for ``classes_[1]``, or one a class.

        Shape:
            (N, d) → (N,) for two classes, (N, K) for K.
        """
        check_is_fitted(self)
        X = self._validated(X, reset=False)
        scores: Array = self._scores(X)
        return scores[:, 0] if scores.shape[1] == 1 else scores

    def predict(self, X: checks.Data) -> Array:
        """Labels, as ``fit`` was given them.

        Shape:
            (N, d) → (N,).
        """
        scores = self.decision_function(X)
        if scores.ndim == 2:
            codes = scores.argmax(1)
        else:
            codes = (scores >= 0 if self.zero_is_positive else scores > 0).astype(np.int64)
        labels: Array = self.classes_[codes]
        return labels

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
        if values is None:
            values = torch.zeros_like(self.net_.weight[:, 0])
        numbers: Array = values.detach().numpy()
        return numbers

    def _no_planes(self, name: str) -> str:
        return f"{type(self).__name__!r} object has no attribute {name!r}: it is not fitted yet"

    def _scores(self, X: Any) -> Array:
        """Scores (N, K) of checked samples, K = 1 for two classes."""
        product: Array = X.astype(self.coef_.dtype, copy=False) @ self.coef_.T
        scores: Array = product + (self.intercept_ - product.dtype.type(self._threshold(len(self.classes_))))
        return scores

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

        Its labels are words: a label 1 is ``'1'`` there.

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

    @property
    def _head(self) -> Head:
        """What the scores mean."""
        raise NotImplementedError

    def _peer(self) -> Any:
        """The unfitted classifier of scikit-learn that decides alike."""
        raise NotImplementedError

    @classmethod
    def from_sklearn(cls, fitted: Any, **parameters: Any) -> Any:
        """A fitted estimator with the weights of a linear classifier of scikit-learn's, to decide or to learn on.

        Args:
            fitted: a Perceptron, SGDClassifier, LogisticRegression, RidgeClassifier, LinearSVC or any other with
                ``coef_``, ``intercept_`` and ``classes_`` that decides by coef·x + intercept. Decisions are the same;
                probabilities of more than two classes are the softmax of the scores, which is not what one-vs-rest
                classifiers such as SGDClassifier make of them.
            parameters: of the estimator; ``fit_intercept`` is that of the other by default.
        """
        given = planes(fitted)
        return cls(**{"fit_intercept": bool(getattr(fitted, "fit_intercept", True)), **parameters})._take_over(given)

    @classmethod
    def from_net(cls, net: nn.Module, classes: checks.Data, **parameters: Any) -> Any:
        """A fitted estimator with a copy of a net's weights.

        Args:
            net: a :class:`Perceptron`, a :class:`MulticlassPerceptron` or an ``nn.Linear``.
            classes: the labels in the order of the net's: first that of −1 and then that of +1, or of the indices 0 to
                K − 1.
            parameters: of the estimator; ``fit_intercept`` is whether the net has a bias by default.
        """
        if not isinstance(net, Perceptron | MulticlassPerceptron | nn.Linear):
            raise TypeError(
                f"net must be a Perceptron, MulticlassPerceptron or nn.Linear, found {type(net).__name__}; an "
                "estimator has one weight vector a class"
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
        net = self._new_net(given.coef.shape[1], len(given.classes), given.coef.dtype)
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

    def _validated(self, X: checks.Data, y: Any = None, *, reset: bool) -> Any:
        if isinstance(X, CsrParts):
            raise TypeError(
                "X is in parts on disk, and estimators take samples that are in memory; read it with stream=False, "
                "give partial_fit one part after the other (X.load(i)), or use RuleTrainer or LitRule"
            )
        X = checks.as_csr(X) if checks.is_sparse(X) else convert.as_array(X)  # which scikit-learn would not look into
        y = None if y is None else convert.as_array(y, "y")
        wanted: dict[str, Any] = {"accept_sparse": "csr", "dtype": [np.float64, np.float32], "order": "C"}
        if y is None and not reset:
            return validate_data(self, X, reset=False, **wanted)
        return validate_data(self, X, y, reset=reset, **wanted)

    def _samples(self, X: checks.Data, y: checks.Data, sample_weight: checks.Data | None, going_on: bool) -> Samples:
        """Checked samples of a whole fit, with two classes or more that count."""
        X, y = self._validated(X, y, reset=not going_on)
        check_classification_targets(y)
        if going_on:
            classes, codes = self.classes_, self._codes(y)
        else:
            classes, codes = np.unique(y, return_inverse=True)
        factors = self._factors(codes, classes, sample_weight)
        counted = codes if factors is None else codes[factors > 0]
        if counted.min() == counted.max():
            left = "y" if factors is None else "y, after what sample_weight and class_weight leave out,"
            raise ValueError(
                f"{left} has one class only, found {classes.tolist()[counted[0]]!r}; there is nothing to separate "
                "(partial_fit with classes= takes such samples)"
            )
        return Samples(self._canonical(X), codes, classes, factors)

    def _chunk(self, X: checks.Data, y: checks.Data, classes: Any, sample_weight: checks.Data | None) -> Samples:
        """Checked samples of one call of partial_fit, which may be of one class."""
        first = not hasattr(self, "classes_")
        if first and classes is None:
            raise ValueError("classes must be passed on the first call to partial_fit: all labels that will ever come")
        if classes is not None:
            labels = unique_labels(classes)
            if not first and not np.array_equal(labels, self.classes_):
                raise ValueError(f"classes={classes!r} is not what it was before, {self.classes_.tolist()}")
            if len(labels) < 2:
                raise ValueError(f"classes={classes!r} has one class only; there is nothing to separate")
        X, y = self._validated(X, y, reset=first)
        check_classification_targets(y)
        if first:
            self.classes_ = labels
        codes = self._codes(y)
        return Samples(self._canonical(X), codes, self.classes_, self._factors(codes, self.classes_, sample_weight))

    def _refuse_in_chunks(self) -> None:
        """Refuse what partial_fit would have to ignore."""
        if checks.flag("early_stopping", self.early_stopping):
            raise ValueError("early_stopping should be False with partial_fit, which holds nothing out; use fit")
        if isinstance(self.class_weight, str):
            raise ValueError(
                f"class_weight={self.class_weight!r} is not supported for partial_fit, which never sees all samples. "
                "In order to use 'balanced' weights, use compute_class_weight('balanced', classes=classes, y=y) on a "
                "large enough subset of y, and pass them as class_weight={label: weight}"
            )

    def _canonical(self, X: Any) -> Any:
        """Sparse samples as a sorted ``csr_array`` without duplicates, in the type of the weights."""
        if not checks.is_sparse(X):
            return X
        return convert.sparse_features(X, dtype=torch.float32 if X.dtype == np.float32 else torch.float64)

    def _codes(self, y: Array) -> Array:
        """Labels as positions in ``classes_``."""
        found, inverse = np.unique(y, return_inverse=True)
        place = np.searchsorted(self.classes_, found).clip(max=len(self.classes_) - 1)
        if (unknown := found[self.classes_[place] != found]).size:
            raise ValueError(
                f"y has the label {unknown.tolist()[0]!r}, which is not one of the classes {self.classes_.tolist()}; "
                "name all classes on the first call, or fit anew with warm_start=False"
            )
        codes: Array = place[inverse]
        return codes

    def _factors(self, codes: Array, classes: Array, sample_weight: checks.Data | None) -> Array | None:
        factors: Array | None = None
        if sample_weight is not None:
            given = np.asarray(sample_weight, dtype=np.float64)
            if given.size and not given.any():
                raise ValueError("sample_weight is zero for every sample; at least one must count")
            factors = checks.nonnegative_weights(given, len(codes)).numpy()
        by_class = self._class_factors(codes, classes, factors)
        if by_class is None:
            return factors
        return by_class[codes] if factors is None else factors * by_class[codes]

    def _class_factors(self, codes: Array, classes: Array, factors: Array | None) -> Array | None:
        """A factor for each class; ``"balanced"``: all weight/(number of classes · weight of the class)."""
        weight = self.class_weight
        if weight is None:
            return None
        if isinstance(weight, str):
            checks.one_of("class_weight", weight, ("balanced",))
            total = np.bincount(codes, factors, minlength=len(classes))
            counted = np.where(total > 0, total, 1.0)
            return np.where(total > 0, total.sum() / (np.count_nonzero(total) * counted), 1.0)
        if not isinstance(weight, Mapping):
            raise TypeError(f"class_weight must be 'balanced' or a mapping {{label: factor}}, found {weight!r}")
        by_class = [checks.number(f"class_weight[{c!r}]", weight.get(c, 1.0), at_least=0) for c in classes.tolist()]
        known = [c in weight for c in classes.tolist()]
        if not all(known) and sum(known) < len(weight):  # a class without a factor, a factor without a class: a slip
            unknown = next(label for label in weight if label not in classes.tolist())
            raise ValueError(f"class_weight names {unknown!r}; the classes are {classes.tolist()}")
        return np.array(by_class)

    # --- starting ---

    def _goes_on(self) -> bool:
        """Whether this fit starts from the weights of the last."""
        return checks.flag("warm_start", self.warm_start) and vars(self).get("net_") is not None

    def _new_net(self, width: int, classes: int, dtype: Any) -> Net:
        kind, bias = (
            torch.float32 if dtype == np.float32 else torch.float64,
            checks.flag("fit_intercept", self.fit_intercept),
        )
        if classes == 2:
            return Perceptron(width, bias, dtype=kind)
        return MulticlassPerceptron(width, classes, bias, dtype=kind)

    def _start(self, samples: Samples, going_on: bool) -> tuple[Net, Samples]:
        """The net to learn with, and the samples in its type."""
        if not going_on:
            return self._new_net(samples.X.shape[1], len(samples.classes), samples.X.dtype), samples
        net = copy.deepcopy(self.net_)
        if (net.bias is None) == checks.flag("fit_intercept", self.fit_intercept):
            raise ValueError(f"fit_intercept={self.fit_intercept} is not what the weights at hand have; fit anew first")
        X = samples.X.astype(self.coef_.dtype, copy=False)
        return net, Samples(X, samples.codes, samples.classes, samples.factors)

    def _seed(self) -> int:
        """The seed of orders: ``random_state`` itself where it is a number, else a draw from it."""
        state = self.random_state
        if isinstance(state, int | np.integer) and not isinstance(state, bool):
            return checks.whole("random_state", state, at_least=0)
        return int(check_random_state(state).randint(2**31 - 1))

    def _fraction(self) -> float:
        """``validation_fraction``, checked whether it is used or not."""
        fraction = checks.number("validation_fraction", self.validation_fraction, above=0)
        if fraction >= 1:
            raise ValueError(f"validation_fraction={fraction} must be below 1; something has to be learned from")
        return fraction

    def _hold_out(self, samples: Samples, seed: int) -> tuple[Samples, Samples]:
        """The samples to learn from and those to validate with, a share of each class that leaves one to learn from."""
        fraction, samples = self._fraction(), samples.counted()
        shuffled = np.random.RandomState(seed % 2**32).permutation(len(samples))
        of_class = [shuffled[samples.codes[shuffled] == code] for code in range(len(samples.classes))]
        wanted = math.ceil(fraction * len(samples))
        ideal = np.array([fraction * len(members) for members in of_class])
        quota = np.floor(ideal).astype(int)
        room = np.array([max(len(members) - 1, 0) for members in of_class])
        for place in np.argsort(quota - ideal, kind="stable"):  # what rounding left over goes where it left most
            quota[place] += quota.sum() < wanted
        quota = np.minimum(quota, room)
        if not quota.any():
            raise ValueError(
                f"validation_fraction={fraction} of {len(samples)} samples leaves none to validate with and one of "
                "each class to learn from; give more samples or use early_stopping=False"
            )
        held = np.concatenate([members[:count] for members, count in zip(of_class, quota, strict=True)])
        rest = np.setdiff1d(np.arange(len(samples)), held)
        return samples.take(rest), samples.take(np.sort(held))


def say(verbose: Any, line: object) -> None:
    """Print a line, or what has one, if ``verbose`` asks for it.

    Example:
        >>> say(1, "epoch 1")
        epoch 1
    """
    if verbose:
        print(line, flush=True)


def expected_failed_checks(estimator: LinearClassifier) -> dict[str, str]:
    """Which of scikit-learn's checks an estimator cannot pass, and why; for ``check_estimator``.

    Where the result depends on the order of samples, or on which are held out, a weight of 3 is not three copies. The
    rule with held-out samples chooses among its epochs by very few of them in one check, whose class weights are too
    far apart for some schedules. Parameters that ``partial_fit`` refuses, as scikit-learn's own does, fail the checks
    that call it. No others are expected to fail, unless a learning rate (``lr``, or that of ``schedule="optimal"``) is
    too large for a check's samples.

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
