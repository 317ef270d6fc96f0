"""LMS, logistic and linear regression as scikit-learn estimators, learned by gradient descent."""

from __future__ import annotations

import copy
import math
import warnings
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
import torch
from scipy.special import expit, log_expit, log_softmax, softmax
from sklearn.base import RegressorMixin, is_regressor
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.extmath import row_norms
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted
from torch import nn

from torchperc._checks import Data, check_choice, check_int, check_number, is_sparse
from torchperc.descent.minimise import minimise
from torchperc.descent.objective import Objective
from torchperc.descent.sgd import descend
from torchperc.nn import derivatives
from torchperc.nn.functional import TARGETS
from torchperc.nn.heads import Head, LMSHead, LogisticHead, RegressionHead, SquaredHead, loss_code
from torchperc.rules.conventions import Verdict
from torchperc.samples.dense import Samples as Rows
from torchperc.samples.mapped import as_samples
from torchperc.sklearn.base import (
    RECENT,
    Array,
    LinearClassifier,
    LinearEstimator,
    Net,
    Samples,
    net_weights,
    sample_weights,
    weights_of,
)
from torchperc.theory.learning_rate import largest_eigenvalue

UPDATES = ("batch", "sample", "optimum")
QUADRATIC_UP_TO = 1024  # features up to which batch descent on squares keeps their matrix, if samples are more
_E = TypeVar("_E", bound="GradientDescent")


@dataclass(frozen=True)
class DescentRecord:
    """One epoch: its number from 1, the loss it started from (for single samples and batches, the mean on the way).

    ``gradient`` is max ``|g|`` of the full-batch gradient, ``validation_loss`` and ``validation_error`` are taken after
    the epoch. What was not looked at is ``None``.
    """

    epoch: int
    loss: float
    gradient: float | None = None
    validation_loss: float | None = None
    validation_error: float | None = None

    def __str__(self) -> str:
        named = {"gradient": self.gradient, "validation loss": self.validation_loss}
        named["validation error"] = self.validation_error
        rest = "".join(f", {name} {value:.6g}" for name, value in named.items() if value is not None)
        return f"epoch {self.epoch}: loss {self.loss:.6g}{rest}"


class _Quadratic:
    """Loss and gradient of the squared loss by its matrix, so that a step costs d², however many samples there are."""

    def __init__(self, objective: Objective) -> None:
        zero = np.zeros((1, objective.width))
        one = Objective(
            RegressionHead(), objective.X, np.zeros(len(objective)), 1, objective.bias, objective.l2,
            objective.sample_weight,
        )  # fmt: skip
        self._hessian = one.hessian(one.at(zero))
        start = objective.at(np.zeros((objective.units, objective.width)))
        self._loss, self._gradient = start.loss, start.gradient

    def __call__(self, weights: Array) -> tuple[float, Array]:
        bent = weights @ self._hessian
        return max(self._loss + float((weights * (self._gradient + bent / 2)).sum()), 0.0), self._gradient + bent


@dataclass(frozen=True)
class _Problem:
    """Samples, what is minimised over them, and what an epoch of steps reads instead of X."""

    samples: Samples
    objective: Objective
    rows: Rows | None = None  # of single-sample steps
    quadratic: _Quadratic | None = None  # of full-batch steps on squares


def _can_stream(estimator: GradientDescent) -> bool:
    if estimator.update == "optimum":
        raise AttributeError("there is no partial_fit with update='optimum', which needs all samples together; use fit")
    return True


@dataclass(kw_only=True, eq=False, repr=False)
class GradientDescent(LinearEstimator):
    """What the estimators below share: descent on Σ c·loss/Σ c + ½·l2·‖w‖².

    Parameters not listed here are those of :class:`LinearEstimator`; with ``early_stopping``, the mean loss of the
    held-out samples decides and the weights of the best epoch are restored.

    Args:
        update: ``"batch"``: each epoch is a step along the gradient of the mean over all samples, or over each batch of
            ``batch_size``; ``"sample"``: a step for each sample, by :func:`torchperc.descend`; ``"optimum"``: the
            minimum itself, by :func:`torchperc.minimise`.
        lr: the learning rate η, or ``"auto"`` for 1/L, the largest at which the loss is certain to fall: L bounds the
            curvature of the loss, of any batch or of any sample. ``"optimum"`` has none.
        tol: all samples at once: converged when max ``|gradient|`` ≤ tol. Samples or batches: when the loss has not
            fallen by more than tol for ``n_iter_no_change`` epochs. Optimum: when the relative gap is at most tol².
            ``None``: all ``max_iter`` epochs are made, without a warning.
        l2: the weight of the penalty ½·‖w‖²; the intercept is not penalised.
        batch_size: samples in a batch; all by default.

    Attributes:
        net_: the weights as a torch module; ``coef_`` and ``intercept_`` are the same.
        n_iter_: epochs made.
        lr_: the learning rate.
        loss_: the loss of the weights on the training samples, with the penalty.
        verdict_: how the run ended, a :class:`torchperc.Verdict`: ``CONVERGED``, ``STOPPED_EARLY``, ``BUDGET`` or
            ``UNBOUNDED``.
        history_: a :class:`DescentRecord` for each epoch; by ``partial_fit`` for each of the last 1000 calls.
        n_errors_: of a classifier, how many training samples it decides wrongly.
    """

    update: str = "batch"
    lr: float | str = "auto"
    tol: float | None = 1e-4
    l2: float = 0.0
    batch_size: int | None = None

    def fit(self: _E, X: Data, y: Data, sample_weight: Data | None = None) -> _E:
        """Learn from samples X (N, d), dense or sparse, and labels or real targets y (N,).

        ``sample_weight`` (N,) is how much each sample counts in the mean, with single-sample steps how long its step
        is; 0 leaves it out.
        """
        self._check_parameters()
        seed, going_on = self._seed(), self._goes_on()
        known = self.classes_ if going_on and hasattr(self, "classes_") else None
        samples = self._samples(X, y, sample_weight, known, whole=True).counted()
        net, samples = self._start(samples, going_on)
        if self.update == "optimum":
            records, verdict = self._minimise(net, samples)
            rate = math.nan
        else:
            samples, held = samples.hold_out(self.validation_fraction, seed) if self.early_stopping else (samples, None)
            rate = self._rate(samples)
            net, records, verdict = self._descend(net, samples, held, rate, seed)
        self._keep(net, samples, rate, records, verdict)
        self._chunks: list[DescentRecord] = []
        if verdict is Verdict.UNBOUNDED or (verdict is Verdict.BUDGET and self.tol is not None):
            warnings.warn(self._warning(), ConvergenceWarning, stacklevel=2)
        return self

    @available_if(_can_stream)  # type: ignore[untyped-decorator]
    def partial_fit(
        self: _E,
        X: Data,
        y: Data,
        classes: Data | None = None,
        sample_weight: Data | None = None,
    ) -> _E:
        """One epoch over these samples, going on from the weights at hand: a step, or a step per batch or sample.

        A chunk may hold one class only; ``classes``, all labels that will ever come, is needed on the first call.
        Nothing is held out. With ``lr="auto"`` the learning rate is 1/L for the largest L of all chunks so far.
        """
        self._refuse_in_chunks()
        self._check_parameters()
        self._learn_chunk(self._chunk(X, y, classes, sample_weight))  # of LinearClassifier
        return self

    def _learn_chunk(self, samples: Samples) -> None:
        """One epoch over a chunk, going on from the weights at hand."""
        net, samples = self._start(samples.counted(), vars(self).get("net_") is not None)
        before: list[DescentRecord] = vars(self).get("_chunks", [])[1 - RECENT :]
        calls = before[-1].epoch if before else 0
        rate = self._rate(samples)
        if before and self.lr == "auto":
            rate = min(rate, self.lr_)
        order = np.random.default_rng(self._seed() + calls)
        record = self._epoch(net, self._problem(samples, 1), rate, order, calls)
        self._say(record)
        self._keep(net, samples, rate, [*before, record], Verdict.BUDGET)
        self._chunks = self.history_

    # --- parameters ---

    def _unlike_copies(self) -> str | None:
        if self.early_stopping:
            return "copies of one sample may be held out and learned from"
        if self.update == "optimum" and isinstance(self._head, LogisticHead) and not self.l2:
            return "without l2, samples that a hyperplane separates have no minimum that could be the same"
        if self.update == "sample" or self.batch_size is not None:
            return super()._unlike_copies()
        return None

    def _check_parameters(self) -> None:
        self._check_shared()
        check_choice("update", self.update, UPDATES)
        if isinstance(self.lr, str):
            check_choice("lr", self.lr, ("auto",))
        else:
            check_number("lr", self.lr, above=0)
        check_number("l2", self.l2, at_least=0)
        if self.update == "optimum" and self.early_stopping:
            raise ValueError("early_stopping=True has no effect with update='optimum', which makes no steps")
        if self.batch_size is not None:
            check_int("batch_size", self.batch_size, at_least=1)
            if self.update != "batch":
                raise ValueError(f"batch_size={self.batch_size} needs update='batch', found {self.update!r}")

    @property
    def _tol(self) -> float:
        return -math.inf if self.tol is None else self.tol

    def _in_batches(self, count: int) -> bool:
        return self.update == "sample" or (self.batch_size is not None and self.batch_size < count)

    def _objective(self, samples: Samples) -> Objective:
        weight = None if samples.weight is None else samples.weight / samples.weight.mean()
        return Objective(
            self._head, samples.X, samples.labels, samples.units, self.fit_intercept, float(self.l2), weight
        )

    def _problem(self, samples: Samples, epochs: int) -> _Problem:
        """Samples made ready for some epochs."""
        objective = self._objective(samples)
        if self.update == "sample":
            kind = torch.float32 if samples.X.dtype == np.float32 else torch.float64
            return _Problem(samples, objective, rows=as_samples(samples.X, dtype=kind))
        small = objective.width <= min(QUADRATIC_UP_TO, len(samples) - 1) and epochs > objective.width // 2
        if small and isinstance(self._head, SquaredHead) and not self._in_batches(len(samples)):
            return _Problem(samples, objective, quadratic=_Quadratic(objective))
        return _Problem(samples, objective)

    def _rate(self, samples: Samples) -> float:
        """The learning rate, or 1/L: of single samples L = max c·(h·‖φ‖² + l2), else L = h·λ + l2.

        λ is the largest eigenvalue of the mean of c·φφᵀ, for batches the largest c·‖φ‖², where c is 1 on average.
        """
        if not isinstance(self.lr, str):
            return float(self.lr)
        with np.errstate(over="ignore"):
            squares = row_norms(samples.X, squared=True).astype(np.float64) + self.fit_intercept
        if not math.isfinite(squares.max()):
            raise ValueError("X holds values whose squares overflow; scale it, for instance with StandardScaler")
        h, weight = derivatives.curvature_bound(loss_code(self._head)[0], samples.units), samples.weight
        if self.update == "sample":
            return derivatives.safe_lr(float(((h * squares + self.l2) * (1.0 if weight is None else weight)).max()))
        if self._in_batches(len(samples)):
            largest = float((squares if weight is None else squares * weight / weight.mean()).max())
        elif weight is None:
            largest = largest_eigenvalue(samples.X, bias=self.fit_intercept)
        else:
            root = np.sqrt(weight / weight.mean())[:, None]
            scaled = [samples.X.multiply(root) if is_sparse(samples.X) else samples.X * root]
            if self.fit_intercept:
                scaled.append(root)
            largest = largest_eigenvalue(_hstack(scaled), bias=False)
        return derivatives.safe_lr(h * largest + self.l2)

    # --- learning ---

    def _descend(
        self, net: Net, samples: Samples, held: Samples | None, rate: float, seed: int
    ) -> tuple[Net, list[DescentRecord], Verdict]:
        """The epochs: the net they end with, what happened in each, and how they ended."""
        problem, watch = self._problem(samples, self.max_iter), None if held is None else self._objective(held)
        full, order = not self._in_batches(len(samples)), np.random.default_rng(seed)
        records: list[DescentRecord] = []
        lowest, since = math.inf, 0
        best, best_loss, unbeaten = net, math.inf, 0  # by the validation loss, and for how many epochs
        for number in range(self.max_iter):
            record = self._epoch(net, problem, rate, order, number)
            if watch is not None and held is not None:
                scores = watch.scores(_weights(net))
                value = float(np.average(watch.terms(scores).loss, weights=watch.sample_weight))
                record = replace(record, validation_loss=value, validation_error=self._error(scores, held))
                unbeaten += 1
                if value < best_loss:
                    best, best_loss, unbeaten = copy.deepcopy(net), value, 0
            records.append(record)
            self._say(record)
            since = 0 if record.loss < lowest - self._tol else since + 1
            lowest = min(lowest, record.loss)
            if self._arrived(records) if full else since >= self.n_iter_no_change:
                return net if watch is None else best, records, Verdict.CONVERGED
            if unbeaten >= self.n_iter_no_change:
                return best, records, Verdict.STOPPED_EARLY
        return net if watch is None else best, records, Verdict.BUDGET

    def _arrived(self, records: list[DescentRecord]) -> bool:
        """Whether full-batch descent has converged."""
        return (records[-1].gradient or 0.0) <= self._tol

    def _epoch(
        self, net: Net, problem: _Problem, rate: float, order: np.random.Generator, number: int
    ) -> DescentRecord:
        """Change the net by one epoch; say what loss and max |g| were before."""
        samples, objective, loss, steepest = problem.samples, problem.objective, 0.0, None
        index = order.permutation(len(samples)) if self.shuffle else np.arange(len(samples))
        with np.errstate(over="ignore", invalid="ignore"):  # a loss that is not finite is looked out for
            if self.update == "sample":
                scores = descend(
                    net, self._head, problem.rows, samples.labels, rate, sample_weight=samples.weight, l2=self.l2,
                    order=index,
                )  # fmt: skip
                losses = objective.terms(scores.double().numpy().reshape(len(index), -1), index).loss
                weight = None if samples.weight is None else samples.weight[index]
                loss = float(np.average(losses, weights=weight)) + objective.penalty_of(_weights(net))
            elif self._in_batches(len(samples)):
                size = int(self.batch_size or 1)
                for first in range(0, len(index), size):
                    part = objective.part(index[first : first + size])
                    point = part.at(_weights(net))
                    _write(net, point.weights - rate * point.gradient)
                    loss += point.loss * len(part) / len(index)
            else:
                weights = _weights(net)
                loss, gradient = (problem.quadratic or objective.value_and_gradient)(weights)
                steepest = float(np.abs(gradient).max())
                _write(net, weights - rate * gradient)
        return self._checked(DescentRecord(number + 1, loss, steepest), rate)

    def _checked(self, record: DescentRecord, rate: float) -> DescentRecord:
        if math.isfinite(record.loss) and math.isfinite(record.gradient or 0.0):
            return record
        raise ValueError(
            f"the loss became {record.loss} in epoch {record.epoch}: lr={rate:g} is too large for these samples; use "
            "lr='auto' or scale X, for instance with StandardScaler"
        )

    def _gap(self) -> float:
        """The relative gap that update="optimum" is content with."""
        return (self.tol or 0.0) ** 2

    def _minimise(self, net: Net, samples: Samples) -> tuple[list[DescentRecord], Verdict]:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="the loss has no minimum")
            found = minimise(
                net, self._head, samples.X, samples.labels, l2=self.l2, max_iter=self.max_iter,
                tol=max(self._gap(), np.finfo(float).tiny), sample_weight=samples.weight,
            )  # fmt: skip
        done = found.converged or found.iterations < self.max_iter  # else there is nothing better but for rounding
        verdict = Verdict.UNBOUNDED if found.unbounded else Verdict.CONVERGED if done else Verdict.BUDGET
        if self.tol and verdict is Verdict.CONVERGED and not found.converged:
            warnings.warn(
                f"rounding to {samples.X.dtype} leaves a relative gap of {found.gap:.2g}, more than tol={self.tol:g} "
                f"asks for ({self._gap():.2g}); raise tol, or pass float64",
                ConvergenceWarning,
                stacklevel=3,
            )
        return [DescentRecord(max(found.iterations, 1), found.loss, found.gradient_norm)], verdict

    def _keep(self, net: Net, samples: Samples, rate: float, records: list[DescentRecord], verdict: Verdict) -> None:
        with np.errstate(over="ignore", invalid="ignore"):
            point = self._objective(samples).at(_weights(net))
        self._checked(replace(records[-1], loss=point.loss), rate)
        self.net_, self.lr_, self.loss_ = net, rate, point.loss
        self.verdict_, self.history_, self.n_iter_ = verdict, records, records[-1].epoch
        if samples.classes is not None:
            self.classes_ = samples.classes
            self.n_errors_ = round((self._error(point.scores, samples) or 0.0) * len(samples))

    def _warning(self) -> str:
        name = type(self).__name__
        if self.verdict_ is Verdict.UNBOUNDED:
            return f"{name} ended UNBOUNDED: {self.verdict_.sentence}. Use l2 > 0."
        ways = [
            "scale the samples, for instance with StandardScaler",
            f"raise max_iter={self.max_iter} or tol={self.tol}",
        ]
        if self.loss_ > self.history_[0].loss:
            ways = ["lower lr, as the loss has risen"]
        if self.update != "optimum":
            ways.append("use update='optimum', which goes to the minimum directly")
        return f"{name} ended on BUDGET: reached max_iter before tol; {', or '.join(ways)}."


def _weights(net: Net) -> Array:
    """Weights and bias of a net as one float64 matrix, the bias last."""
    parts = [net.weight.detach()] if net.bias is None else [net.weight.detach(), net.bias.detach()[:, None]]
    weights: Array = torch.cat(parts, 1).double().numpy()
    return weights


@torch.no_grad()
def _write(net: Net, weights: Array) -> None:
    """Inverse of ``_weights``."""
    values = torch.from_numpy(weights)
    net.weight.copy_(values[:, : net.in_features])
    if net.bias is not None:
        net.bias.copy_(values[:, -1])


def _hstack(columns: list[Any]) -> Any:
    """Columns side by side, dense or CSR."""
    if not is_sparse(columns[0]):
        return np.hstack(columns)
    from scipy.sparse import csr_array, hstack

    return csr_array(hstack([csr_array(column) for column in columns]))


@dataclass(kw_only=True, eq=False, repr=False)
class LMSClassifier(GradientDescent, LinearClassifier):
    """Least mean squares (Adaline): gradient descent on the mean of ½·(t − s)², plus ½·l2·‖w‖².

    Scores are s = w·x + b and targets t are those of the sample's class. With K classes the squares are summed over
    them. The decision is s ≥ 0, or s ≥ ½ with targets 0/1; ``decision_function`` is s less that threshold. All other
    parameters and the attributes are those of :class:`GradientDescent` and :class:`LinearClassifier`.

    Args:
        targets: ``"-1/+1"`` or ``"0/1"``.

    Example:
        >>> from torchperc.sklearn import LMSClassifier
        >>> X, y = [[0.0], [1.0], [2.0], [3.0]], [False, False, True, True]
        >>> model = LMSClassifier(tol=1e-9).fit(X, y)
        >>> model.coef_.round(6), model.intercept_.round(6), model.verdict_.name
        (array([[0.8]]), array([-1.2]), 'CONVERGED')
        >>> model.predict([[1.4], [1.6]])
        array([False,  True])
    """

    targets: str = "-1/+1"

    @property
    def _head(self) -> Head:
        return LMSHead(check_choice("targets", self.targets, TARGETS))

    def _threshold(self, units: int) -> float:
        return self._head.threshold if units == 1 else 0.0

    def _peer(self) -> Any:
        from sklearn.linear_model import RidgeClassifier

        return RidgeClassifier(fit_intercept=self.fit_intercept)


@dataclass(kw_only=True, eq=False, repr=False)
class LogisticClassifier(GradientDescent, LinearClassifier):
    """Logistic regression: gradient descent on the mean of log(1 + exp(−y·s)), plus ½·l2·‖w‖².

    P(classes_[1]) = 1/(1 + e^−s) for two classes. With K classes it is the softmax of K scores, and the loss is
    log Σ exp(s_k) − s_y. The decision is P > ½, or the most probable class. scikit-learn's ``LogisticRegression`` has
    its minimum in the same place for C = 1/(l2·N), N being the number of samples, or the sum of their weights.

    Parameters and attributes are those of :class:`GradientDescent` and :class:`LinearClassifier`.

    Example:
        >>> from torchperc.sklearn import LogisticClassifier
        >>> X, y = [[0.0], [1.0], [2.0], [3.0]], ["a", "b", "a", "b"]
        >>> model = LogisticClassifier(tol=1e-9).fit(X, y)
        >>> model.coef_.round(4), model.predict_proba([[1.5]]).round(4)
        (array([[0.9082]]), array([[0.5, 0.5]]))
        >>> model.predict([[0.0], [3.0]])
        array(['a', 'b'], dtype='<U1')
    """

    zero_is_positive = False

    @property
    def _head(self) -> Head:
        return LogisticHead()

    def predict_proba(self, X: Data) -> Array:
        """The probability of each class, in the order of ``classes_``: (N, d) → (N, K)."""
        scores = self.decision_function(X)
        return np.stack((expit(-scores), expit(scores)), 1) if scores.ndim == 1 else np.asarray(softmax(scores, axis=1))

    def predict_log_proba(self, X: Data) -> Array:
        """Its logarithm, without a loss of precision where the probability is next to 0: (N, d) → (N, K)."""
        scores = self.decision_function(X)
        if scores.ndim == 1:
            return np.stack((log_expit(-scores), log_expit(scores)), 1)
        return np.asarray(log_softmax(scores, axis=1))

    def _peer(self) -> Any:
        from sklearn.linear_model import LogisticRegression

        return LogisticRegression(fit_intercept=self.fit_intercept)


@dataclass(kw_only=True, eq=False, repr=False)
class LMSRegressor(RegressorMixin, GradientDescent):  # type: ignore[misc]
    """Linear regression by least mean squares: gradient descent on the mean of ½·(y − s)², plus ½·l2·‖w‖².

    Predictions are s = w·x + b. ``update="optimum"`` gives the weights of scikit-learn's ``LinearRegression``, with
    ``l2`` those of ``Ridge`` for alpha = l2·N, N being the number of samples or the sum of their weights;
    ``update="sample"`` makes the steps of ``SGDRegressor``. With ``early_stopping``, the mean loss of the held-out
    samples decides. Parameters and attributes not listed here are those of :class:`GradientDescent` and
    :class:`LinearEstimator`.

    Args:
        tol: all samples at once: converged when the loss changes by less than tol from one epoch to the next, the ε
            stop of gradient descent. Samples or batches: when the loss has not fallen by more than tol for
            ``n_iter_no_change`` epochs. Optimum: when the relative gap is at most tol. ``None``: all ``max_iter``
            epochs are made, without a warning.

    Attributes:
        coef_: the weights (d,).
        intercept_: the bias, a number.

    Example:
        >>> from torchperc.sklearn import LMSRegressor
        >>> model = LMSRegressor(update="optimum").fit([[1.6], [1.7], [1.8]], [60.0, 68.0, 73.0])
        >>> model.coef_.round(6), round(model.intercept_, 6), model.predict([[1.75]]).round(6)
        (array([65.]), -43.5, array([70.25]))
    """

    tol: float | None = 1e-6

    _numeric = True

    @property
    def _head(self) -> Head:
        return RegressionHead()

    def _gap(self) -> float:
        return self.tol or 0.0

    def predict(self, X: Data) -> Array:
        """Predictions: (N, d) → (N,)."""
        check_is_fitted(self)
        given, coef = self._validated(X, reset=False), self.coef_
        return np.asarray(given.astype(coef.dtype, copy=False) @ coef + coef.dtype.type(self.intercept_))

    @property
    def coef_(self) -> Array:
        """The weights (d,), in the net's own memory."""
        weights: Array = self._parameter("coef_", "weight")[0]
        return weights

    @property
    def intercept_(self) -> float:  # type: ignore[override]
        """The bias; 0 without one."""
        return float(self._parameter("intercept_", "bias")[0])

    @available_if(_can_stream)  # type: ignore[untyped-decorator]
    def partial_fit(self, X: Data, y: Data, sample_weight: Data | None = None) -> LMSRegressor:
        """One epoch over these samples, going on from the weights at hand: a step, or a step per batch or sample.

        Nothing is held out. With ``lr="auto"`` the learning rate is 1/L for the largest L of all chunks so far.
        """
        self._refuse_in_chunks()
        self._check_parameters()
        self._learn_chunk(self._samples(X, y, sample_weight, None, whole=False))
        return self

    def _samples(self, X: Any, y: Any, sample_weight: Any, classes: Array | None, whole: bool) -> Samples:
        going_on = vars(self).get("net_") is not None and (self.warm_start or not whole)
        X, y = self._validated(X, y, reset=not going_on)
        if y.dtype.kind not in "biuf":
            raise ValueError(f"y must hold numbers, found {y.tolist()[0]!r}; for classes use LMSClassifier")
        if float(np.abs(y).max()) > 1e150:  # as a Python number, which float32 does not overflow on
            raise ValueError(f"y holds values up to {np.abs(y).max():g}, whose squares overflow; scale y")
        return Samples(X, y.astype(np.float64), None, sample_weights(sample_weight, len(y)))

    def _arrived(self, records: list[DescentRecord]) -> bool:
        return len(records) > 1 and abs(records[-1].loss - records[-2].loss) < self._tol

    # --- scikit-learn's own and other nets ---

    def _peer(self) -> Any:
        from sklearn.linear_model import LinearRegression

        return LinearRegression(fit_intercept=self.fit_intercept)

    @classmethod
    def from_sklearn(cls, fitted: Any, **parameters: Any) -> LMSRegressor:
        """A fitted estimator with the weights of a linear regressor of scikit-learn's, to predict or to learn on.

        Args:
            fitted: a LinearRegression, Ridge, SGDRegressor, Lasso or any other that predicts one number by
                coef·x + intercept.
            parameters: of the estimator; ``fit_intercept`` is that of the other by default.
        """
        coef, intercept = weights_of(fitted, "predict", "regressor")
        if not is_regressor(fitted) or len(coef) > 1:
            raise ValueError(
                f"{fitted} does not predict one number (coef_ has shape {coef.shape}); convert one that does"
            )
        estimator = cls(**{"fit_intercept": bool(getattr(fitted, "fit_intercept", True)), **parameters})
        return estimator._take_over(coef, intercept, getattr(fitted, "feature_names_in_", None))  # type: ignore[no-any-return]

    @classmethod
    def from_net(cls, net: nn.Module, **parameters: Any) -> LMSRegressor:
        """A fitted estimator with a copy of a net's weights.

        Args:
            net: a :class:`Perceptron`, or an ``nn.Linear`` of one output.
            parameters: of the estimator; ``fit_intercept`` is whether the net has a bias by default.
        """
        coef, intercept = net_weights(net)
        if len(coef) != 1:
            raise TypeError(f"net must be a Perceptron, or an nn.Linear of one output, found {net}")
        estimator = cls(**{"fit_intercept": net.bias is not None, **parameters})
        return estimator._take_over(coef, intercept, None)  # type: ignore[no-any-return]
