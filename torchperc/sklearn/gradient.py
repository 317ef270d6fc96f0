"""LMS and logistic classifiers as scikit-learn estimators, learned by gradient descent."""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.metaestimators import available_if
from torch import Tensor

from torchperc import _checks as checks
from torchperc.descent.minimise import minimise
from torchperc.descent.sgd import descend
from torchperc.nn.functional import TARGETS
from torchperc.nn.heads import Head, LMSHead, LogisticHead
from torchperc.rules.conventions import STEP_ENGINES, Verdict
from torchperc.rules.orders import Order
from torchperc.sklearn.base import RECENT, LinearClassifier, Net, say
from torchperc.sklearn.inputs import Array, Samples
from torchperc.sklearn.passes import SCHEDULES, Course, MeanLoss, Slope, mean_loss

UPDATES = ("batch", "sample", "optimum")
SLOWEST = 1e-6  # the learning rate at which schedule="adaptive" ends
ORDERS = ("given", "shuffled")
Ending = Verdict  # its name in pickles of version 0.1


@dataclass(frozen=True)
class DescentRecord:
    """One epoch: its number from 1, the loss it started from (for single samples and batches, the mean on the way).

    ``gradient`` is max |g| of the full-batch gradient, ``validation_loss`` and ``validation_error`` are taken after the
    epoch. What was not looked at is ``None``.
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


def _can_stream(estimator: GradientClassifier) -> bool:
    if estimator.update == "optimum":
        raise AttributeError("there is no partial_fit with update='optimum', which needs all samples together; use fit")
    return True


@dataclass(kw_only=True, eq=False, repr=False)
class GradientClassifier(LinearClassifier):
    """What :class:`LMSClassifier` and :class:`LogisticClassifier` share: descent on Σ c·loss/Σ c + ½·l2·‖w‖² + l1·‖w‖₁.

    Parameters not listed here are those of :class:`LinearClassifier`; with ``early_stopping``, the mean loss of the
    held-out samples decides and the weights of the best epoch are restored.

    Args:
        update: ``"batch"``: each epoch is a step along the gradient of the mean over all samples, or over each batch of
            ``batch_size``; ``"sample"``: a step for each sample; ``"optimum"``: the minimum itself, by
            :func:`torchperc.minimise`.
        lr: the learning rate η, or ``"auto"`` for 1/L, the largest at which the loss is certain to fall: L bounds the
            curvature of the loss, of any batch or of any sample. ``"optimum"`` has none.
        max_iter: epochs at most.
        tol: all samples at once: converged when max |gradient| ≤ tol. Samples or batches: when the loss has not fallen
            by more than tol for ``n_iter_no_change`` epochs. Optimum: when the relative gap is at most tol². ``None``:
            all ``max_iter`` epochs are made, without a warning.
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
        coef_, intercept_: weights, (1, d) and (1,) for two classes, (K, d) and (K,) for K.
        classes_: the labels, sorted.
        net_: the same weights as a torch module.
        n_iter_: epochs made.
        lr_: the learning rate of the first step.
        loss_: the loss of the weights on the training samples, with the penalty.
        n_errors_: how many training samples they decide wrongly.
        verdict_: how the run ended, a :class:`torchperc.Verdict`: ``CONVERGED``, ``STOPPED_EARLY``, ``BUDGET`` or
            ``UNBOUNDED``.
        history_: a :class:`DescentRecord` for each epoch; by ``partial_fit`` for each of the last 1000 calls.
        log_: ``None``; a log of mistakes is the rule's.
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
    def mistakes_(self) -> int:  # type: ignore[override]
        """The old name of ``n_errors_``; mistakes are the updates of the rule."""
        warnings.warn("mistakes_ of a gradient estimator is now n_errors_", DeprecationWarning, stacklevel=2)
        return self.n_errors_

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

    def fit(self, X: checks.Data, y: checks.Data, sample_weight: checks.Data | None = None) -> GradientClassifier:
        """Learn from samples X (N, d), dense or sparse, and labels y (N,).

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
        self.classes_ = samples.classes
        self._chunks: list[DescentRecord] = []
        self._online: tuple[Net | None, Course] | None = None  # with the last weights where net_ has averaged ones
        if ending is Verdict.UNBOUNDED or (ending is Verdict.BUDGET and self.tol is not None):
            warnings.warn(self._warning(), ConvergenceWarning, stacklevel=2)
        return self

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
        samples = self._chunk(X, y, classes, sample_weight).counted()
        net, samples = self._start(samples, vars(self).get("net_") is not None)
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
        return self

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
            arrived = record.gradient is not None and record.gradient <= self._tol
            if watch is not None:
                kept = _averaged(net, course)
                value, wrong = watch.value(*_numbers(kept))
                record = replace(record, validation_loss=value, validation_error=wrong / len(watch))
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
                if steepest > self._tol:
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

    def _minimise(self, net: Net, samples: Samples) -> tuple[list[DescentRecord], Verdict]:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="the loss has no minimum")
            found = minimise(
                net, self._head, samples.X, samples.labels, l2=self.l2, max_iter=self.max_iter,
                tol=max((self.tol or 0.0) ** 2, np.finfo(float).tiny), sample_weight=samples.factors,
            )  # fmt: skip
        done = found.converged or found.iterations < self.max_iter  # else there is nothing better but for rounding
        ending = Verdict.UNBOUNDED if found.unbounded else Verdict.CONVERGED if done else Verdict.BUDGET
        if self.tol and ending is Verdict.CONVERGED and not found.converged:
            warnings.warn(
                f"rounding to {samples.X.dtype} leaves a relative gap of {found.gap:.2g}, more than tol² = "
                f"{self.tol**2:.2g}; raise tol={self.tol:g}, or pass float64",
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
        self.n_errors_, self.verdict_, self.history_ = wrong, ending, records
        self.n_iter_, self.log_ = records[-1].epoch, None  # a log is the rule's

    def _warning(self) -> str:
        name, last = type(self).__name__, self.history_[-1]
        if self.verdict_ is Verdict.UNBOUNDED:
            return f"{name} ended UNBOUNDED: {self.verdict_.sentence}. Use l2 > 0."
        reached = "" if last.gradient is None else f" (max |gradient| {last.gradient:.2g}, tol={self._tol:g})"
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
