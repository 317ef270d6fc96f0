"""LMS, logistic and linear regression as scikit-learn estimators, learned by gradient descent."""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, TypeVar

import numpy as np
import torch
from sklearn.base import RegressorMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from torchperc import _checks as checks
from torchperc.descent.minimise import minimise
from torchperc.descent.sgd import descend
from torchperc.model.fitted import FittedModel
from torchperc.nn.functional import TARGETS
from torchperc.nn.heads import Head, LMSHead, LogisticHead, RegressionHead
from torchperc.nn.modules import LinearNet
from torchperc.rules.conventions import STEP_ENGINES, Verdict
from torchperc.rules.orders import Order
from torchperc.sklearn.base import RECENT, LinearClassifier, LinearEstimator, Net, say
from torchperc.sklearn.conversion import regression_weights
from torchperc.sklearn.inputs import Array, RealSamples, Samples, factors_of
from torchperc.sklearn.passes import SCHEDULES, Course, MeanLoss, Slope, mean_loss

UPDATES = ("batch", "sample", "optimum")
SLOWEST = 1e-6  # the learning rate at which schedule="adaptive" ends
ORDERS = ("given", "shuffled")
Ending = Verdict  # its name in pickles of version 0.1
_E = TypeVar("_E", bound="GradientEstimator")


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


def _can_stream(estimator: GradientEstimator) -> bool:
    if estimator.update == "optimum":
        raise AttributeError("there is no partial_fit with update='optimum', which needs all samples together; use fit")
    return True


@dataclass(kw_only=True, eq=False, repr=False)
class GradientEstimator(LinearEstimator):
    """What the estimators below share: descent on Σ c·loss/Σ c + ½·l2·‖w‖² + l1·‖w‖₁.

    Parameters not listed here are those of :class:`LinearEstimator`; with ``early_stopping``, the mean loss of the
    held-out samples decides and the weights of the best epoch are restored.

    Args:
        update: ``"batch"``: each epoch is a step along the gradient of the mean over all samples, or over each batch of
            ``batch_size``; ``"sample"``: a step for each sample; ``"optimum"``: the minimum itself, by
            :func:`torchperc.minimise`.
        lr: the learning rate η, or ``"auto"`` for 1/L, the largest at which the loss is certain to fall: L bounds the
            curvature of the loss, of any batch or of any sample. ``"optimum"`` has none.
        max_iter: epochs at most.
        tol: all samples at once: converged when max ``|gradient|`` ≤ tol. Samples or batches: when the loss has not
            fallen by more than tol for ``n_iter_no_change`` epochs. Optimum: when the relative gap is at most tol².
            ``None``: all ``max_iter`` epochs are made, without a warning.
        l2: the weight of the penalty ½·‖w‖²; the intercept is not penalised.
        l1: the weight of the penalty ‖w‖₁, for ``update="sample"``: after each step, weights of the sample's non-zeros
            move towards 0 by all the penalty that they have not had yet, and stop there. With ``l2`` it is the elastic
            net; SGDClassifier's ``alpha`` and ``l1_ratio`` are l2 = alpha·(1 − l1_ratio) and l1 = alpha·l1_ratio.
        schedule: the learning rate of step t = 1, 2, …, as SGDClassifier has it. ``"constant"``: lr; ``"invscaling"``:
            lr/t^power_t; ``"optimal"``: 1/(α·(t₀ + t − 1)) with α = l1 + l2 and t₀ = α^(−3/4); ``"adaptive"``: lr,
            divided by 5 whenever training would stop for ``tol`` or early stopping, until it is at most 1e-6.
            ``partial_fit`` goes on counting, ``fit`` begins anew.
        power_t: the exponent of ``"invscaling"``.
        average: ``True`` makes ``coef_`` and ``intercept_`` the mean of the weights after each step, an integer the
            mean from that step on.
        batch_size: samples in a batch; all by default.
        order: of samples and batches: ``"shuffled"`` anew in each epoch, or ``"given"``.
        engine: of single-sample steps; see :func:`torchperc.descend`.

    Attributes:
        net_: the weights as a torch module; ``coef_`` and ``intercept_`` are the same.
        n_iter_: epochs made.
        lr_: the learning rate of the first step.
        loss_: the loss of the weights on the training samples, with the penalty.
        verdict_: how the run ended, a :class:`torchperc.Verdict`: ``CONVERGED``, ``STOPPED_EARLY``, ``BUDGET`` or
            ``UNBOUNDED``.
        history_: a :class:`DescentRecord` for each epoch; by ``partial_fit`` for each of the last 1000 calls.
    """

    update: str = "batch"
    lr: float | str = "auto"
    tol: float | None = 1e-4
    l2: float = 0.0
    l1: float = 0.0
    schedule: str = "constant"
    power_t: float = 0.5
    average: bool | int = False
    batch_size: int | None = None
    order: str = "shuffled"
    engine: str = "auto"

    @property
    def _unlike_copies(self) -> str | None:
        if self.early_stopping:
            return "copies of one sample may be held out and learned from"
        if self.update == "optimum" and isinstance(self._head, LogisticHead) and not self.l2:
            return "without l2, samples that a hyperplane separates have no minimum that could be the same"
        if self.update == "sample" or self.batch_size is not None:
            return super()._unlike_copies
        return None

    @property
    def _unlike_others(self) -> dict[str, str]:
        if self.schedule not in ("invscaling", "optimal"):
            return {}
        reason = f"schedule={self.schedule!r} is not suited to unscaled samples of weight 1000"
        return {"check_class_weight_classifiers": reason}

    def fit(self: _E, X: checks.Data, y: checks.Data, sample_weight: checks.Data | None = None) -> _E:
        """Learn from samples X (N, d), dense or sparse, and labels or real targets y (N,).

        ``sample_weight`` (N,) is how much each sample counts in the mean, with single-sample steps how long its step
        is; 0 leaves it out.
        """
        self._check_parameters()
        seed, going_on = self._seed(), self._goes_on()
        samples = self._samples(X, y, sample_weight, going_on).counted()
        net, samples = self._start(samples, going_on)
        if self.update == "optimum":
            records, ending = self._minimise(net, samples)
            loss, rate = self._loss(samples), math.nan
        else:
            part, held = samples.hold_out(self.validation_fraction, seed) if self.early_stopping else (samples, None)
            loss = self._loss(part, MeanLoss if self._in_batches(len(part)) else mean_loss)
            rate = self._rate(loss)
            watch = None if held is None else self._loss(held)
            net, records, ending = self._descend(net, loss, watch, self._course(rate), seed)
        self._keep(net, loss, rate, records, ending)
        self._chunks: list[DescentRecord] = []
        self._online: tuple[Net | None, Course] | None = None  # with the last weights where net_ has averaged ones
        if ending is Verdict.UNBOUNDED or (ending is Verdict.BUDGET and self.tol is not None):
            warnings.warn(self._warning(), ConvergenceWarning, stacklevel=2)
        return self

    def _learn_chunk(self, samples: Samples) -> None:
        """One epoch over a chunk, going on from the weights at hand."""
        net, samples = self._start(samples.counted(), vars(self).get("net_") is not None)
        loss = self._loss(samples)
        before: list[DescentRecord] = vars(self).get("_chunks", [])[1 - RECENT :]
        calls = before[-1].epoch if before else 0
        rate = min(self._rate(loss), self.lr_) if before and self.lr == "auto" else self._rate(loss)
        order = Order(self.order, torch.arange(len(samples)), self._seed() + calls)
        course = self._course(rate)
        if (online := vars(self).get("_online")) is not None:
            net = copy.deepcopy(online[0]) if course.first and online[0] is not None else net
            course.made, course.count, course.total = online[1].made, online[1].count, online[1].total
        record = self._epoch(net, _numbers(net), loss, course, order, calls)
        say(self.verbose, record)
        self._keep(_averaged(net, course), loss, rate, [*before, record], Verdict.BUDGET)
        self._chunks, self._online = self.history_, (net if course.first else None, course)

    def _samples(self, X: checks.Data, y: checks.Data, sample_weight: checks.Data | None, going_on: bool) -> Samples:
        """Checked samples of a whole fit."""
        raise NotImplementedError

    def _check_parameters(self) -> None:
        self._check_shared()
        checks.one_of("update", self.update, UPDATES)
        checks.one_of("order", self.order, ORDERS)
        if isinstance(self.lr, str):
            checks.one_of("lr", self.lr, ("auto",))
        else:
            checks.number("lr", self.lr, above=0)
        checks.one_of("engine", self.engine, STEP_ENGINES)
        for name in ("l2", "l1", "power_t"):
            checks.number(name, getattr(self, name), at_least=0)
        checks.one_of("schedule", self.schedule, SCHEDULES)
        if not isinstance(self.average, bool):
            checks.whole("average", self.average, at_least=0)
        if self.l1 and self.update != "sample":
            raise ValueError(
                f"l1={self.l1:g} needs update='sample', found {self.update!r}; l2 is valid with every update"
            )
        if self.l1 and self.engine not in ("auto", "compiled"):
            raise ValueError(f"engine={self.engine!r} does not know l1={self.l1:g}; use engine='auto'")
        if self.l1 and self.average:
            raise ValueError(f"average={self.average} works with l2 only, found l1={self.l1:g}; leave one of them out")
        if self.schedule == "optimal" and not self.l1 + self.l2:
            raise ValueError("schedule='optimal' is computed from the penalty; use l2 > 0, or another schedule")
        for name, plain in (("schedule", "constant"), ("average", False), ("early_stopping", False)):
            if self.update == "optimum" and getattr(self, name) != plain:
                raise ValueError(
                    f"{name}={getattr(self, name)!r} has no effect with update='optimum', which makes no steps"
                )
        if self.batch_size is not None:
            checks.whole("batch_size", self.batch_size, at_least=1)
            if self.update != "batch":
                raise ValueError(f"batch_size={self.batch_size} needs update='batch', found {self.update!r}")

    def _loss(self, samples: Samples, kind: Callable[..., MeanLoss] = MeanLoss) -> MeanLoss:
        return kind(self._head, samples, self.fit_intercept, float(self.l2), float(self.l1))

    def _course(self, rate: float) -> Course:
        return Course(rate, self.schedule, float(self.power_t), float(self.l1 + self.l2), first=int(self.average))

    @property
    def _tol(self) -> float:
        return -math.inf if self.tol is None else self.tol

    def _in_batches(self, count: int) -> bool:
        return self.update == "sample" or (self.batch_size is not None and self.batch_size < count)

    def _rate(self, loss: MeanLoss) -> float:
        if self.schedule == "optimal":
            return float(self._course(1.0).rates(1)[0])
        if not isinstance(self.lr, str):
            return float(self.lr)
        if self.update == "sample":
            return loss.sample_rate()
        return loss.batch_rate() if self._in_batches(len(loss)) else loss.full_rate()

    def _descend(
        self, net: Net, loss: MeanLoss, watch: MeanLoss | None, course: Course, seed: int
    ) -> tuple[Net, list[DescentRecord], Verdict]:
        """The epochs: the net they end with, what happened in each, and how they ended."""
        kind = net.weight.dtype
        net = net.to(torch.float64 if loss.dtype is np.float64 else torch.float32)
        order, full = Order(self.order, torch.arange(len(loss)), seed), not self._in_batches(len(loss))
        records: list[DescentRecord] = []
        numbers = _numbers(net)
        lowest, since, ending = math.inf, 0, Verdict.BUDGET
        best, best_loss, unbeaten = net, math.inf, 0  # by the validation loss, and for how many epochs
        for number in range(self.max_iter):
            record = self._epoch(net, numbers, loss, course, order, number)
            arrived = full and self._arrived(record, records[-1] if records else None)
            if watch is not None:
                kept = _averaged(net, course)
                value, wrong = watch.value(*_numbers(kept))
                error = None if wrong is None else wrong / len(watch)
                record = replace(record, validation_loss=value, validation_error=error)
                unbeaten += 1
                if value < best_loss:
                    best, best_loss, unbeaten = copy.deepcopy(kept), value, 0
            records.append(record)
            say(self.verbose, record)
            since = 0 if record.loss < lowest - self._tol else since + 1
            lowest = min(lowest, record.loss)
            stalled = (not full or self.schedule == "adaptive") and since >= self.n_iter_no_change
            if self.schedule == "adaptive" and not arrived and course.rate > SLOWEST:
                if stalled or unbeaten >= self.n_iter_no_change:
                    course.rate, since, unbeaten = course.rate / 5, 0, 0
                continue
            if arrived or stalled:
                ending = Verdict.CONVERGED
                break
            if unbeaten >= self.n_iter_no_change:
                ending = Verdict.STOPPED_EARLY
                break
        return (_averaged(net, course) if watch is None else best).to(kind), records, ending

    def _flat(self, steepest: float) -> bool:
        """Whether max |gradient| is so small that no step is made."""
        return steepest <= self._tol

    def _arrived(self, record: DescentRecord, before: DescentRecord | None) -> bool:
        """Whether full-batch descent has converged, by an epoch and the one before."""
        return record.gradient is not None and self._flat(record.gradient)

    def _epoch(
        self, net: Net, numbers: tuple[Array, Array], loss: MeanLoss, course: Course, order: Order, number: int
    ) -> DescentRecord:
        """Change the net by one epoch; say what loss and max |g| were before."""
        weight, bias = numbers
        mean, steepest = 0.0, None
        with np.errstate(over="ignore", invalid="ignore"):  # a loss that is not finite is looked out for
            if not self._in_batches(len(loss)):
                slope = loss.at(weight, bias)
                mean, steepest = slope.loss, float(max(np.abs(slope.weight).max(), np.abs(slope.bias).max()))
                if not self._flat(steepest):
                    _step(weight, bias, slope, course)
            elif self.update == "sample":
                mean = self._by_samples(net, numbers, loss, course, torch.cat(list(order.epoch(number))))
            else:
                index = torch.cat(list(order.epoch(number)))
                for ids in index.split(int(self.batch_size or len(index))):
                    slope = loss.over(ids.numpy(), weight, bias)
                    _step(weight, bias, slope, course)
                    mean += slope.loss * len(ids) / len(index)
        return self._checked(DescentRecord(number + 1, mean, steepest), course.rate)

    def _by_samples(
        self, net: Net, numbers: tuple[Array, Array], loss: MeanLoss, course: Course, index: Tensor
    ) -> float:
        """One step per sample; the mean loss on the way, with the penalty of the weights in the end."""
        rate, weights = course.rate, loss.factors
        weight, bias = (each.copy() if course.first else each for each in numbers)
        steps = course.rates(len(index))
        if self.schedule in ("optimal", "invscaling") or self.l1:  # a learning rate of its own for each sample
            rate, weights = 1.0, np.empty(len(index))
            weights[index.numpy()] = steps
            weights *= 1.0 if loss.factors is None else loss.factors
        if self.l1 and weights is not None:
            seen = loss.descend_l1(*numbers, index.numpy(), weights, course)
        else:
            scores = descend(
                net, self._head, loss.rows, loss.labels, rate, engine=self.engine, sample_weight=weights, l2=self.l2,
                order=None if self.order == "given" else index,
            )  # fmt: skip
            seen = scores.numpy().reshape(len(index), -1)
        if course.first:
            moves, kept = loss.path(seen, index.numpy(), steps)
            course.add_path(weight, bias, loss.X, index.numpy(), moves, kept)
        return loss.of_scores(seen, index.numpy()) + loss.penalty(numbers[0])

    def _checked(self, record: DescentRecord, rate: float) -> DescentRecord:
        if math.isfinite(record.loss) and math.isfinite(record.gradient or 0.0):
            return record
        way = "raise l2, use schedule='constant'" if self.schedule == "optimal" else "use lr='auto'"
        raise ValueError(
            f"the loss became {record.loss} in epoch {record.epoch}: lr={rate:g} is too large for these samples; {way} "
            "or scale X, for instance with StandardScaler"
        )

    _gap_is: ClassVar[str] = "tol²"  # the relative gap that update="optimum" is content with

    @property
    def _gap(self) -> float:
        return (self.tol or 0.0) ** 2

    def _minimise(self, net: Net, samples: Samples) -> tuple[list[DescentRecord], Verdict]:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="the loss has no minimum")
            found = minimise(
                net, self._head, samples.X, samples.labels, l2=self.l2, max_iter=self.max_iter,
                tol=max(self._gap, np.finfo(float).tiny), sample_weight=samples.factors,
            )  # fmt: skip
        done = found.converged or found.iterations < self.max_iter  # else there is nothing better but for rounding
        ending = Verdict.UNBOUNDED if found.unbounded else Verdict.CONVERGED if done else Verdict.BUDGET
        if self.tol and ending is Verdict.CONVERGED and not found.converged:
            warnings.warn(
                f"rounding to {samples.X.dtype} leaves a relative gap of {found.gap:.2g}, more than {self._gap_is} = "
                f"{self._gap:.2g}; raise tol={self.tol:g}, or pass float64",
                ConvergenceWarning,
                stacklevel=3,
            )
        return [DescentRecord(max(found.iterations, 1), found.loss, found.gradient_norm)], ending

    def _keep(self, net: Net, loss: MeanLoss, rate: float, records: list[DescentRecord], ending: Verdict) -> None:
        weight, bias = _numbers(net)
        with np.errstate(over="ignore", invalid="ignore"):
            value, wrong = loss.value(weight, bias)
        self._checked(replace(records[-1], loss=value), rate)
        self.net_, self.lr_, self.loss_ = net, rate, value + loss.penalty(weight)
        self.verdict_, self.history_, self.n_iter_ = ending, records, records[-1].epoch
        self._keep_more(loss, wrong)

    def _keep_more(self, loss: MeanLoss, wrong: int | None) -> None:
        """What a kind of estimator knows besides."""

    def _distance(self) -> str:
        """What full-batch descent compares with tol."""
        return f"max |gradient| {self.history_[-1].gradient:.2g}"

    def _warning(self) -> str:
        name, last = type(self).__name__, self.history_[-1]
        if self.verdict_ is Verdict.UNBOUNDED:
            return f"{name} ended UNBOUNDED: {self.verdict_.sentence}. Use l2 > 0."
        reached = "" if last.gradient is None else f" ({self._distance()}, tol={self._tol:g})"
        ways = ["scale the samples, for instance with StandardScaler", f"raise max_iter={self.max_iter}", "raise tol"]
        if self.loss_ > self.history_[0].loss:
            ways.insert(0, f"lower lr, as the loss rose from {self.history_[0].loss:.3g} to {self.loss_:.3g}")
        if self.update == "batch":
            ways.append("use update='sample', which comes near the minimum in fewer passes")
        if self.update != "optimum":
            ways.append("use update='optimum', which goes to the minimum directly")
        said = f"{name} ended on BUDGET: reached max_iter while the loss is still falling{reached}"
        return f"{said}. What may help: {'; '.join(ways)}."


def _numbers(net: Net) -> tuple[Array, Array]:
    """Weight and bias in the net's own memory; without a bias, zeros that no step moves."""
    weight = net.weight.detach()
    bias = torch.zeros_like(weight[:, 0]) if net.bias is None else net.bias.detach()
    return weight.numpy(), bias.numpy()


def _step(weight: Array, bias: Array, slope: Slope, course: Course) -> None:
    rate = course.rates(1)[0]
    weight -= (rate * slope.weight).astype(weight.dtype, copy=False)
    bias -= (rate * slope.bias).astype(bias.dtype, copy=False)
    course.add(weight, bias)


def _averaged(net: Net, course: Course) -> Net:
    """The net with the mean of the weights, where there is one."""
    if not course.count:
        return net
    mean = copy.deepcopy(net)
    for into, total in zip(_numbers(mean), course.total, strict=True):
        into[...] = total / course.count
    return mean


@dataclass(kw_only=True, eq=False, repr=False)
class GradientClassifier(GradientEstimator, LinearClassifier):
    """What :class:`LMSClassifier` and :class:`LogisticClassifier` share.

    Parameters and attributes not listed here are those of :class:`GradientEstimator` and :class:`LinearClassifier`.

    Attributes:
        coef_, intercept_: weights, (1, d) and (1,) for two classes, (K, d) and (K,) for K.
        classes_: the labels, sorted.
        n_errors_: how many training samples they decide wrongly.
        log_: ``None``; a log of mistakes is the rule's.
    """

    @property
    def mistakes_(self) -> int:  # type: ignore[override]
        """The old name of ``n_errors_``; mistakes are the updates of the rule."""
        warnings.warn("mistakes_ of a gradient estimator is now n_errors_", DeprecationWarning, stacklevel=2)
        return self.n_errors_

    @available_if(_can_stream)  # type: ignore[untyped-decorator]
    def partial_fit(
        self,
        X: checks.Data,
        y: checks.Data,
        classes: checks.Data | None = None,
        sample_weight: checks.Data | None = None,
    ) -> GradientClassifier:
        """One epoch over these samples, going on from the weights at hand: a step, or a step per batch or sample.

        A chunk may hold one class only; ``classes``, all labels that will ever come, is needed on the first call.
        Nothing is held out. With ``lr="auto"`` the learning rate is 1/L for the largest L of all chunks so far.
        """
        self._refuse_in_chunks()
        self._check_parameters()
        self._learn_chunk(self._chunk(X, y, classes, sample_weight))
        return self

    _samples = LinearClassifier._samples

    def _keep_more(self, loss: MeanLoss, wrong: int | None) -> None:
        self.classes_, self.n_errors_, self.log_ = loss.classes, wrong or 0, None  # a log is the rule's


@dataclass(kw_only=True, eq=False, repr=False)
class LMSClassifier(GradientClassifier):
    """Least mean squares (Adaline): gradient descent on the mean of ½·(t − s)², plus ½·l2·‖w‖².

    Scores are s = w·x + b and targets t are those of the sample's class. With K classes the squares are summed over
    them. The decision is s ≥ 0, or s ≥ ½ with targets 0/1; ``decision_function`` is s less that threshold. All other
    parameters and the attributes are those of :class:`GradientClassifier`.

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
        return LMSHead(checks.one_of("targets", self.targets, TARGETS))

    def _threshold(self, classes: int) -> float:
        return self._head.threshold if classes == 2 else 0.0

    def _peer(self) -> Any:
        from sklearn.linear_model import RidgeClassifier

        return RidgeClassifier(fit_intercept=self.fit_intercept)


class LogisticClassifier(GradientClassifier):
    """Logistic regression: gradient descent on the mean of log(1 + exp(−y·s)), plus ½·l2·‖w‖².

    P(classes_[1]) = 1/(1 + e^−s) for two classes. With K classes it is the softmax of K scores, and the loss is
    log Σ exp(s_k) − s_y. The decision is P > ½, or the most probable class. scikit-learn's ``LogisticRegression`` has
    its minimum in the same place for C = 1/(l2·N), N being the number of samples, or the sum of their weights.

    Parameters and attributes are those of :class:`GradientClassifier`.

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

    def predict_proba(self, X: checks.Data) -> Array:
        """The probability of each class, in the order of ``classes_``: (N, d) → (N, K)."""
        return np.exp(self.predict_log_proba(X))

    def predict_log_proba(self, X: checks.Data) -> Array:
        """Its logarithm, without a loss of precision where the probability is next to 0: (N, d) → (N, K)."""
        scores = torch.from_numpy(self.decision_function(X))
        if scores.dim() == 1:
            return torch.nn.functional.logsigmoid(torch.stack((-scores, scores), 1)).numpy()
        return scores.log_softmax(1).numpy()

    def _peer(self) -> Any:
        from sklearn.linear_model import LogisticRegression

        return LogisticRegression(fit_intercept=self.fit_intercept)


@dataclass(kw_only=True, eq=False, repr=False)
class LMSRegressor(RegressorMixin, GradientEstimator):  # type: ignore[misc]
    """Linear regression by least mean squares: gradient descent on the mean of ½·(y − s)², plus ½·l2·‖w‖².

    Predictions are s = w·x + b. ``update="optimum"`` gives the weights of scikit-learn's ``LinearRegression``, with
    ``l2`` those of ``Ridge`` for alpha = l2·N, N being the number of samples or the sum of their weights;
    ``update="sample"`` makes the steps of ``SGDRegressor``. With ``early_stopping``, the mean loss of the held-out
    samples decides. Parameters and attributes not listed here are those of :class:`GradientEstimator`.

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
    _gap_is = "tol"

    @property
    def _gap(self) -> float:
        return self.tol or 0.0

    @property
    def _head(self) -> Head:
        return RegressionHead()

    def predict(self, X: checks.Data) -> Array:
        """Predictions: (N, d) → (N,)."""
        check_is_fitted(self)
        given, coef = self._validated(X, reset=False), self.coef_
        return np.asarray(given.astype(coef.dtype, copy=False) @ coef + coef.dtype.type(self.intercept_))

    @property
    def coef_(self) -> Array:
        """The weights (d,), in the net's own memory."""
        weights: Array = self._numbers("coef_", "weight")[0]
        return weights

    @property
    def intercept_(self) -> float:  # type: ignore[override]
        """The bias; 0 without one."""
        return float(self._numbers("intercept_", "bias")[0])

    @available_if(_can_stream)  # type: ignore[untyped-decorator]
    def partial_fit(self, X: checks.Data, y: checks.Data, sample_weight: checks.Data | None = None) -> LMSRegressor:
        """One epoch over these samples, going on from the weights at hand: a step, or a step per batch or sample.

        Nothing is held out. With ``lr="auto"`` the learning rate is 1/L for the largest L of all chunks so far.
        """
        self._refuse_in_chunks()
        self._check_parameters()
        self._learn_chunk(self._samples(X, y, sample_weight, vars(self).get("net_") is not None))
        return self

    def _samples(self, X: checks.Data, y: checks.Data, sample_weight: checks.Data | None, going_on: bool) -> Samples:
        X, y = self._validated(X, y, reset=not going_on)
        return RealSamples(X, y.astype(np.float64), np.zeros(0), factors_of(y, np.zeros(0), sample_weight, None))

    def _check_targets(self, y: Array) -> None:
        if y.dtype.kind not in "biuf":
            raise ValueError(f"y must hold numbers, found {y.tolist()[0]!r}; for classes use LMSClassifier")
        if float(np.abs(y).max()) > 1e150:  # as a Python number, which float32 does not overflow on
            raise ValueError(f"y holds values up to {np.abs(y).max():g}, whose squares overflow; scale y")

    def _flat(self, steepest: float) -> bool:
        return steepest == 0  # the loss decides, and where it is flat it changes no more

    def _arrived(self, record: DescentRecord, before: DescentRecord | None) -> bool:
        return before is not None and abs(record.loss - before.loss) < self._tol

    def _distance(self) -> str:
        losses = [record.loss for record in self.history_[-2:]]
        return f"the loss changed by {abs(losses[-1] - losses[0]):.2g}"

    # --- scikit-learn's own and other nets ---

    def to_sklearn(self) -> Any:
        """The same model as scikit-learn's ``LinearRegression``, to predict alike.

        Example:
            >>> LMSRegressor(update="optimum").fit([[0.0], [1.0]], [1.0, 3.0]).to_sklearn().predict([[2.0]]).round(6)
            array([5.])
        """
        from sklearn.linear_model import LinearRegression

        check_is_fitted(self)
        given = np.zeros((1, self.n_features_in_), self.coef_.dtype)
        peer = LinearRegression(fit_intercept=self.fit_intercept).fit(given, given[:, 0])
        peer.coef_, peer.intercept_ = self.coef_.copy(), self.intercept_
        if (names := getattr(self, "feature_names_in_", None)) is not None:
            peer.feature_names_in_ = names.copy()
        return peer

    def to_fitted(self) -> FittedModel:
        """The same model as one that can be saved to one file, and exported to ONNX and torch.export.

        Example:
            >>> LMSRegressor(update="optimum").fit([[0.0], [1.0]], [1.0, 3.0]).to_fitted().predict([[2.0]])
            [5.0]
        """
        check_is_fitted(self)
        return FittedModel.of(self.net_, self._head, names=getattr(self, "feature_names_in_", None))

    @classmethod
    def from_sklearn(cls, fitted: Any, **parameters: Any) -> LMSRegressor:
        """A fitted estimator with the weights of a linear regressor of scikit-learn's, to predict or to learn on.

        Args:
            fitted: a LinearRegression, Ridge, SGDRegressor, Lasso or any other that predicts one number by
                coef·x + intercept.
            parameters: of the estimator; ``fit_intercept`` is that of the other by default.
        """
        coef, intercept, names = regression_weights(fitted)
        estimator = cls(**{"fit_intercept": bool(getattr(fitted, "fit_intercept", True)), **parameters})
        return estimator._take_over(coef, intercept, names)

    @classmethod
    def from_net(cls, net: nn.Module, **parameters: Any) -> LMSRegressor:
        """A fitted estimator with a copy of a net's weights.

        Args:
            net: a :class:`Perceptron`, or an ``nn.Linear`` of one output.
            parameters: of the estimator; ``fit_intercept`` is whether the net has a bias by default.
        """
        if not isinstance(net, LinearNet) or len(net.weight) != 1:
            raise TypeError(f"net must be a Perceptron, or an nn.Linear of one output, found {net}")
        weight = net.weight.detach().cpu()
        kind = torch.float32 if weight.dtype == torch.float32 else torch.float64
        estimator = cls(**{"fit_intercept": net.bias is not None, **parameters})
        return estimator._take_over(weight[0].to(kind).numpy(), 0.0 if net.bias is None else net.bias.item(), None)

    def _take_over(self, coef: Array, intercept: float, names: Array | None) -> LMSRegressor:
        if not self.fit_intercept and intercept:
            raise ValueError("fit_intercept=False, but the given model has an intercept; use fit_intercept=True")
        net = self._new_net(len(coef), 1, coef.dtype)
        with torch.no_grad():
            net.weight.copy_(torch.from_numpy(coef))
            if net.bias is not None:
                net.bias.fill_(intercept)
        self.n_features_in_, self.net_ = len(coef), net
        if names is not None:
            self.feature_names_in_ = names
        return self
