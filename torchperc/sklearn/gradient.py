"""LMS, logistic and linear regression as scikit-learn estimators, learned by gradient descent."""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
import scipy.sparse
import torch
from scipy.special import log_softmax, softmax
from sklearn.base import RegressorMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.extmath import row_norms
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import _check_sample_weight, check_is_fitted

from torchperc._checks import Data, check_choice, check_number, is_sparse
from torchperc.descent.minimise import Objective, minimise, net_weights, write_weights
from torchperc.descent.sgd import descend
from torchperc.nn.functional import TARGETS
from torchperc.nn.heads import Head, LMSHead, LogisticHead, RegressionHead, curvature_bound
from torchperc.rules.conventions import Verdict
from torchperc.samples.mapped import as_samples
from torchperc.sklearn.base import RECENT, Array, LinearClassifier, LinearEstimator, Net, Samples, seed_of
from torchperc.theory.learning_rate import largest_eigenvalue

UPDATES = ("batch", "sample", "optimum")
QUADRATIC_UP_TO = 1024  # features up to which batch descent on squares keeps their matrix, if samples are more
_E = TypeVar("_E", bound="GradientDescent")


@dataclass(frozen=True)
class DescentRecord:
    """One epoch: its number, the loss at its start (of single samples: their mean), and what was looked at.

    ``gradient`` is max ``|g|`` over all samples; ``validation_loss`` and ``validation_error`` are taken afterwards.
    """

    epoch: int
    loss: float
    gradient: float | None = None
    validation_loss: float | None = None
    validation_error: float | None = None


def _can_stream(estimator: GradientDescent) -> bool:
    """Return whether there is a ``partial_fit``; the optimum needs all samples together."""
    return estimator.update != "optimum"


@dataclass(kw_only=True, eq=False, repr=False)
class GradientDescent(LinearEstimator):
    """What the estimators below share: descent on Σ c·loss/Σ c + ½·l2·‖w‖².

    Parameters not listed here are those of :class:`LinearEstimator`; with ``early_stopping``, the mean loss of the
    held-out samples decides and the weights of the best epoch are restored.

    Args:
        update: ``"batch"``: each epoch is a step along the gradient of the mean over all samples; ``"sample"``: a step
            for each sample, by :func:`torchperc.descend`; ``"optimum"``: the minimum itself, by
            :func:`torchperc.minimise`.
        lr: the learning rate η, or ``"auto"`` for 1/L, the largest at which the loss is certain to fall: L bounds the
            curvature of the loss, or of the loss of any sample. ``"optimum"`` has none.
        tol: all samples at once: converged when max ``|gradient|`` ≤ tol. Single samples: when the loss has not fallen
            by more than tol for ``n_iter_no_change`` epochs. Optimum: when the relative gap is at most tol².
            ``None``: all ``max_iter`` epochs are made, without a warning.
        l2: the weight of the penalty ½·‖w‖²; the intercept is not penalised.

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

    def fit(self: _E, X: Data, y: Data, sample_weight: Data | None = None) -> _E:
        """Learn from samples X (N, d), dense or sparse, and labels or real targets y (N,).

        ``sample_weight`` (N,) is how much each sample counts in the mean, with single-sample steps how long its step
        is; 0 leaves it out.
        """
        self._check_parameters()
        seed, go_on, rate = seed_of(self.random_state), self.warm_start and hasattr(self, "coef_"), math.nan
        net, samples = self._start(self._samples(X, y, sample_weight, go_on=go_on).counted(), go_on)
        if self.update == "optimum":
            records, verdict = self._minimise(net, samples)
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
    @np.errstate(over="ignore", invalid="ignore")
    def partial_fit(self: _E, X: Data, y: Data, classes: Data | None = None, sample_weight: Data | None = None) -> _E:
        """Train for one epoch from the current weights: one step, or one step per sample.

        A chunk may hold one class only; ``classes``, the list of all labels, is required on the first call.
        Nothing is held out. With ``lr="auto"`` the learning rate is 1/L for the largest L of all chunks so far.
        """
        self._check_parameters(online=True)
        go_on = hasattr(self, "coef_")
        samples = self._samples(X, y, sample_weight, go_on=go_on, online=True, classes=classes)
        net, samples = self._start(samples.counted(), go_on)
        before: list[DescentRecord] = vars(self).get("_chunks", [])[1 - RECENT :]
        calls, rate = before[-1].epoch if before else 0, self._rate(samples)
        if before and self.lr == "auto":
            rate = min(rate, self.lr_)
        epoch = self._epochs(net, samples, rate, seed_of(self.random_state) + calls, 1)
        record = DescentRecord(calls + 1, *next(epoch))
        self._keep(net, samples, rate, [*before, _checked(record, rate)], Verdict.BUDGET)
        self._chunks = self.history_
        return self

    # --- parameters ---

    def _check_parameters(self, online: bool = False) -> None:
        self._check_shared(online)
        check_choice("update", self.update, UPDATES)
        check_number("l2", self.l2, at_least=0)
        if isinstance(self.lr, str):
            check_choice("lr", self.lr, ("auto",))
        else:
            check_number("lr", self.lr, above=0)
        if self.update == "optimum" and self.early_stopping:
            raise ValueError("early_stopping=True has no effect with update='optimum', which makes no steps")

    def _objective(self, net: Net, samples: Samples, l2: float) -> Objective:
        return Objective(self._head, samples.X, samples.labels, net, l2, samples.weight / samples.weight.mean())

    def _rate(self, samples: Samples) -> float:
        """Return the learning rate, or 1/L: of single samples L = max c·(h·‖φ‖² + l2), else L = h·λ + l2.

        λ is the largest eigenvalue of the mean of c·φφᵀ, where c is 1 on average.
        """
        if not isinstance(self.lr, str):
            return float(self.lr)
        parts = [samples.X, np.ones((len(samples), 1), samples.X.dtype)][: 1 + self.fit_intercept]
        phi = (scipy.sparse.hstack if is_sparse(samples.X) else np.hstack)(parts)
        with np.errstate(over="ignore"):
            squares = row_norms(phi, squared=True).astype(np.float64)
        if not math.isfinite(squares.max()):
            raise ValueError("X holds values whose squares overflow; scale it, for instance with StandardScaler")
        h, weight = curvature_bound(self._head, samples.units), samples.weight
        if self.update == "sample":
            return 1 / float(((h * squares + self.l2) * weight).max() or 1.0)
        scaled = scipy.sparse.diags_array(np.sqrt(weight / weight.mean())) @ phi
        return 1 / (h * largest_eigenvalue(scaled, bias=False) + self.l2 or 1.0)

    # --- learning ---

    @np.errstate(over="ignore", invalid="ignore")  # a loss that is not finite is looked out for
    def _descend(
        self, net: Net, samples: Samples, held: Samples | None, rate: float, seed: int
    ) -> tuple[Net, list[DescentRecord], Verdict]:
        """Return the net that the epochs end with, what happened in each, and how they ended."""
        watch, records = None if held is None else self._objective(net, held, 0.0), list[DescentRecord]()
        lowest, since = math.inf, 0
        best, best_loss, unbeaten = net, math.inf, 0  # by the validation loss, and for how many epochs
        for number, made in enumerate(self._epochs(net, samples, rate, seed, self.max_iter), 1):
            record = DescentRecord(number, *made)
            if watch is not None and held is not None:
                point = watch.at(net_weights(net))
                record = replace(record, validation_loss=point.loss, validation_error=self._error(point.scores, held))
                unbeaten += 1
                if point.loss < best_loss:
                    best, best_loss, unbeaten = copy.deepcopy(net), point.loss, 0
            records.append(_checked(record, rate))
            if self.tol is not None:
                since = 0 if record.loss < lowest - self.tol else since + 1
                lowest = min(lowest, record.loss)
                if self._converged(records, since):
                    return best, records, Verdict.CONVERGED
            if unbeaten >= self.n_iter_no_change:
                return best, records, Verdict.STOPPED_EARLY
        return best, records, Verdict.BUDGET

    def _converged(self, records: list[DescentRecord], since: int) -> bool:
        """Return whether ``tol`` is reached; the loss has not fallen by more than that ``since`` so many epochs."""
        gradient = records[-1].gradient
        return since >= self.n_iter_no_change if gradient is None else gradient <= (self.tol or 0.0)

    def _epochs(
        self, net: Net, samples: Samples, rate: float, seed: int, count: int
    ) -> Iterator[tuple[float, float | None]]:
        """Change the net epoch by epoch; yield the loss on the way, and max |g| of the full gradient."""
        if self.update == "batch":
            loss_and_gradient = _loss_and_gradient(self._objective(net, samples, self.l2), count)
            for _ in range(count):
                weights = net_weights(net)
                loss, gradient = loss_and_gradient(weights)
                write_weights(net, weights - rate * gradient)
                yield loss, float(np.abs(gradient).max())
            return
        rng, y, weight = np.random.default_rng(seed), samples.labels, samples.weight
        rows = as_samples(samples.X, dtype=net.weight.dtype)
        for _ in range(count):
            index = rng.permutation(len(y)) if self.shuffle else np.arange(len(y))
            scores = descend(net, self._head, rows, y, rate, sample_weight=weight, l2=self.l2, order=index)
            losses = self._head.loss(scores.double(), torch.from_numpy(y[index]), "none").numpy()
            penalty = self.l2 * float(net.weight.detach().square().sum()) / 2
            yield float(np.average(losses, weights=weight[index])) + penalty, None

    def _error(self, scores: Array, samples: Samples) -> float | None:
        """Return the fraction of samples that scores (N, K) of the net decide wrongly; ``None`` for regression."""
        if samples.classes is None:
            return None
        return float(np.mean(self._decided(scores - self._threshold(samples.units)) != samples.y))

    def _minimise(self, net: Net, samples: Samples) -> tuple[list[DescentRecord], Verdict]:
        gap = max((self.tol or 0.0) ** 2, np.finfo(float).tiny)
        options: dict[str, Any] = {"l2": self.l2, "max_iter": self.max_iter, "sample_weight": samples.weight}
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="the loss has no minimum")
            found = minimise(net, self._head, samples.X, samples.labels, tol=gap, **options)
        done = found.converged or found.iterations < self.max_iter  # else there is nothing better but for rounding
        verdict = Verdict.UNBOUNDED if found.unbounded else Verdict.CONVERGED if done else Verdict.BUDGET
        if self.tol and verdict is Verdict.CONVERGED and not found.converged and isinstance(self._head, LogisticHead):
            why = f"rounding to {samples.X.dtype} leaves a relative gap of {found.gap:.2g}, more than {gap:.2g}"
            warnings.warn(f"{why}; raise tol={self.tol:g}, or pass float64", ConvergenceWarning, stacklevel=3)
        return [DescentRecord(max(found.iterations, 1), found.loss, found.gradient_norm)], verdict

    @np.errstate(over="ignore", invalid="ignore")
    def _keep(self, net: Net, samples: Samples, rate: float, records: list[DescentRecord], verdict: Verdict) -> None:
        point = self._objective(net, samples, self.l2).at(net_weights(net))
        _checked(replace(records[-1], loss=point.loss), rate)
        self._set_net(net)
        self.lr_, self.loss_ = rate, point.loss
        self.verdict_, self.history_, self.n_iter_ = verdict, records, records[-1].epoch
        if samples.classes is not None:
            self.classes_ = samples.classes
            self.n_errors_ = round((self._error(point.scores, samples) or 0.0) * len(samples))

    def _warning(self) -> str:
        name = type(self).__name__
        if self.verdict_ is Verdict.UNBOUNDED:
            return f"{name} ended UNBOUNDED: {self.verdict_.sentence}. Use l2 > 0."
        way = f"scale X, or raise max_iter={self.max_iter} or tol={self.tol}"
        if self.loss_ > self.history_[0].loss:
            way = "lower lr, as the loss has risen"
        direct = "" if self.update == "optimum" else ", or use update='optimum', which goes to the minimum directly"
        return f"{name} ended on BUDGET: reached max_iter before tol; {way}{direct}."


def _checked(record: DescentRecord, rate: float) -> DescentRecord:
    """Return a record whose numbers are finite."""
    if math.isfinite(record.loss) and math.isfinite(record.gradient or 0.0):
        return record
    why = f"the loss became {record.loss} in epoch {record.epoch}: lr={rate:g} is too large for these samples"
    raise ValueError(f"{why}; use lr='auto' or scale X, for instance with StandardScaler")


def _loss_and_gradient(objective: Objective, epochs: int) -> Callable[[Array], tuple[float, Array]]:
    """Return loss and gradient as a function of weights; for squares, d² a step where that pays over the epochs."""
    small = objective.width <= min(QUADRATIC_UP_TO, len(objective) - 1) and epochs > objective.width // 2
    if not small or not objective.squared:
        return lambda weights: ((point := objective.at(weights)).loss, point.gradient)
    start = objective.at(np.zeros((objective.units, objective.width)))
    hessian = sum(x.T @ x for x, _ in objective.scaled_rows()) / len(objective) + np.diag(objective.penalty)

    def by_matrix(weights: Array) -> tuple[float, Array]:
        change = weights @ hessian
        loss = start.loss + float((weights * (start.gradient + change / 2)).sum())
        return max(loss, 0.0), start.gradient + change

    return by_matrix


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
    peer = "RidgeClassifier"

    @property
    def _head(self) -> Head:  # type: ignore[override]
        return LMSHead(check_choice("targets", self.targets, TARGETS))


@dataclass(kw_only=True, eq=False, repr=False)
class LogisticClassifier(GradientDescent, LinearClassifier):
    """Logistic regression: gradient descent on the mean of log(1 + exp(−y·s)), plus ½·l2·‖w‖².

    P(classes_[1]) = 1/(1 + e^−s) for two classes. With K classes it is the softmax of K scores, and the loss is
    log Σ exp(s_k) − s_y. The decision is P ≥ ½, or the most probable class. scikit-learn's ``LogisticRegression`` has
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

    peer, _head = "LogisticRegression", LogisticHead()

    def predict_proba(self, X: Data) -> Array:
        """Return the probability of each class, in the order of ``classes_``: (N, d) → (N, K)."""
        return np.asarray(softmax(self._class_scores(X), axis=1))

    def predict_log_proba(self, X: Data) -> Array:
        """Return its logarithm, precise where the probability is next to 0: (N, d) → (N, K)."""
        return np.asarray(log_softmax(self._class_scores(X), axis=1))

    def _class_scores(self, X: Data) -> Array:
        scores = self.decision_function(X)
        return np.stack((np.zeros_like(scores), scores), 1) if scores.ndim == 1 else scores


@dataclass(kw_only=True, eq=False, repr=False)
class LMSRegressor(RegressorMixin, GradientDescent):  # type: ignore[misc]
    """Linear regression by least mean squares: gradient descent on the mean of ½·(y − s)², plus ½·l2·‖w‖².

    Predictions are s = w·x + b. ``update="optimum"`` gives the weights of scikit-learn's ``LinearRegression``, with
    ``l2`` those of ``Ridge`` for alpha = l2·N, N being the number of samples or the sum of their weights;
    ``update="sample"`` makes the steps of ``SGDRegressor``. With ``early_stopping``, the mean loss of the held-out
    samples decides. Parameters and attributes not listed here are those of :class:`GradientDescent` and
    :class:`LinearEstimator`.

    Args:
        tol: converged when the loss changes by less than tol from one epoch to the next, the ε stop of gradient
            descent. ``None``: all ``max_iter`` epochs are made, without a warning.

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

    peer, _head = "LinearRegression", RegressionHead()

    def predict(self, X: Data) -> Array:
        """Predictions: (N, d) → (N,)."""
        check_is_fitted(self)
        return self._scores(self._validated(X, reset=False))

    def _set_net(self, net: Net) -> None:
        super()._set_net(net)
        self.coef_, self.intercept_ = self.coef_[0], float(self.intercept_[0])

    @available_if(_can_stream)  # type: ignore[untyped-decorator]
    def partial_fit(self, X: Data, y: Data, sample_weight: Data | None = None) -> LMSRegressor:
        """One epoch over these samples, going on from the weights at hand; see :meth:`LMSClassifier.partial_fit`."""
        return super().partial_fit(X, y, None, sample_weight)  # type: ignore[no-any-return]

    def _samples(self, X: Any, y: Any, sample_weight: Any, *, go_on: bool, **_: Any) -> Samples:
        X, y = self._validated(X, y, reset=not go_on)
        if y.dtype.kind not in "biuf":
            raise ValueError(f"y must hold numbers, found {y.tolist()[0]!r}; for classes use LMSClassifier")
        if float(np.abs(y).max()) > 1e150:  # as a Python number, which float32 does not overflow on
            raise ValueError(f"y holds values up to {np.abs(y).max():g}, whose squares overflow; scale y")
        weights = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        return Samples(X, y.astype(np.float64), None, weights)

    def _converged(self, records: list[DescentRecord], since: int) -> bool:
        return len(records) > 1 and abs(records[-1].loss - records[-2].loss) < (self.tol or 0.0)
