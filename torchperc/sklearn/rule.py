"""The perceptron rule as a scikit-learn estimator."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import torch
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.metaestimators import available_if
from torch import Tensor

from torchperc._checks import Data
from torchperc.nn.heads import PerceptronHead
from torchperc.rules.conventions import Verdict
from torchperc.rules.log import MistakeLog, VotedModel
from torchperc.rules.run import RuleResult, RuleRun, Stream
from torchperc.rules.trainer import RuleTrainer
from torchperc.samples.mapped import as_samples
from torchperc.sklearn.base import RECENT, Array, LinearClassifier, Net, Samples, seed_of

_TRAINER = ("lr", "tie", "bias_step", "select", "engine", "margin", "rule", "kernel", "degree", "gamma", "prove")
"""Parameters that RuleTrainer has, too."""


def _can_stream(estimator: PerceptronClassifier) -> bool:
    """Return whether there is a ``partial_fit``, which never sees all samples together."""
    whole = estimator.select in ("voted", "pocket", "best-validation") or estimator.bias_step == "radius"
    return estimator.kernel is None and not whole


@dataclass(kw_only=True, eq=False, repr=False)
class PerceptronClassifier(LinearClassifier):
    """The perceptron rule: for each sample that is a mistake, w ← w + η·y·x and b ← b + η·y·(bias step).

    With K classes, the right class's vector gains η·x and the strongest wrong one loses it. Everything that
    :class:`torchperc.RuleTrainer` can do is reached by the parameters that it names so.

    Parameters not listed here are those of :class:`LinearClassifier`.

    Args:
        max_iter: maximum number of passes; the run ends earlier at a clean pass or when its weights repeat.
        lr: the learning rate η.
        tie: what is a mistake: ``"update"`` y·s ≤ 0, ``"sign"`` decision ≠ y, ``"strict"`` y·s < 0.
        bias_step: ``"unit"`` η·y, ``"radius"`` η·y·R² with R the largest ‖x‖, ``"none"``. By default ``"unit"``, and
            ``"none"`` without an intercept and for kernels, which bring a constant of their own.
        shuffle: present the samples in a new random order in each epoch; ``False`` for the given order, which
            ``partial_fit`` always has. :class:`torchperc.RuleTrainer` has further orders.
        select: which weights it has in the end: ``"last"``, ``"averaged"``, ``"voted"`` (decisions are votes;
            ``coef_`` are the averaged weights), ``"pocket"`` (fewest errors among the longest runs without a mistake),
            or ``"best-validation"``, for which ``validation_fraction`` is held out.
        rule: another rule than the perceptron, as for :class:`torchperc.RuleTrainer`.
        margin: the required margin, a slack y·s that every sample must exceed; 0 is the classic rule.
        kernel: ``"poly"`` (1 + x·z)^degree, ``"rbf"`` exp(−gamma·‖x − z‖²), ``"linear"``, or a function from (N, d) and
            (M, d) to (N, M). Then there is no ``coef_`` but ``dual_coef_``, ``support_`` and ``support_vectors_``.
        degree: of the polynomial kernel; 3 by default.
        gamma: of the rbf kernel; 1 by default. ``"scale"`` of scikit-learn is 1/(d·variance of X).
        engine: how passes are made; the mistakes are the same. See :class:`torchperc.RuleTrainer`.
        prove: if the run ends without separating the samples, find out whether that is possible: the verdict becomes
            ``NOT_SEPARABLE`` where a proof says no, and ``certificate_`` has the proof.
        early_stopping: stop when the (weighted) error of the held-out samples has not fallen. The weights of the best
            epoch are restored, unless ``select`` asks for others than the last; then it selects among those of the run
            so far.
        tol: if it is not ``None``, stop as well when the mean of max(0, −y·s) over the training samples, under the
            weights after the epoch, has not fallen by more than tol below its lowest for ``n_iter_no_change`` epochs.
            With ``early_stopping``, what the error of the held-out samples must fall by instead.

    Attributes:
        coef_, intercept_: weights, (1, d) and (1,) for two classes, (K, d) and (K,) for K.
        classes_: the labels, sorted.
        net_: the same weights as a torch module; not with a kernel.
        n_iter_, mistakes_: epochs (by ``partial_fit``, calls) and updates made.
        n_errors_: how many training samples (by ``partial_fit``, of the last call) are decided wrongly in the end.
        log_: the :class:`torchperc.MistakeLog` of the run, or of the last chunk; not pickled, nor is ``n_errors_``.
        verdict_: how the run ended, a :class:`torchperc.Verdict`; ``BUDGET`` if early stopping or ``tol`` did.
        history_: a record for each epoch, by ``partial_fit`` for each of the last 1000 calls.
        certificate_: with ``prove=True``, the proof, or ``None`` if the samples were separated.
        dual_coef_, support_, support_vectors_: with a kernel: coefficients (1, M) or (K, M), and of which samples.

    A score of exactly 0 is decided for ``classes_[1]``, while scikit-learn's Perceptron decides it for ``classes_[0]``.
    A run for the last weights that ends without separating the samples gives a ``ConvergenceWarning``; with any other
    ``select`` the weights are useful without that, and ``verdict_`` says how the run ended.

    Example:
        >>> from torchperc.sklearn import PerceptronClassifier
        >>> X, y = [[0, 0], [0, 1], [1, 0], [1, 1]], ["no", "no", "no", "yes"]
        >>> model = PerceptronClassifier(shuffle=False).fit(X, y)
        >>> model.verdict_.name, model.mistakes_, model.coef_, model.intercept_
        ('SEPARATED', 18, array([[3., 2.]]), array([-4.]))
        >>> model.predict([[1, 1], [0, 0]])
        array(['yes', 'no'], dtype='<U3')
    """

    max_iter: int = 100
    lr: float = 1.0
    tie: str = "update"
    bias_step: str | None = None
    select: str = "last"
    margin: float = 0.0
    rule: Any = None
    kernel: str | Callable[[Any, Any], Any] | None = None
    degree: int | None = None
    gamma: float | None = None
    engine: str = "auto"
    prove: bool = False

    peer, _head = "Perceptron", PerceptronHead()

    # --- learning ---

    def fit(self, X: Data, y: Data, sample_weight: Data | None = None) -> PerceptronClassifier:
        """Learn from samples X (N, d), dense or sparse, and labels y (N,).

        ``sample_weight`` (N,) is a factor for each sample's updates; 0 leaves it out.
        """
        seed, go_on = seed_of(self.random_state), self.warm_start and hasattr(self, "coef_")
        trainer = self._trainer(seed=seed, order="shuffled" if self.shuffle else "given")
        samples = self._samples(X, y, sample_weight, go_on=go_on)
        net: Net | None = None
        if self.kernel is None:
            net, samples = self._start(samples, go_on)
        holds_out = self.early_stopping or self.select == "best-validation"
        part, held = samples.hold_out(self.validation_fraction, seed) if holds_out else (samples, None)
        many = samples.units if net is None and samples.units > 1 else None
        run = trainer.start(net, part.X, part.labels, sample_weight=part.weight, num_classes=many)
        stopped = self._run(run, held)
        result = run.result()
        if self.select == "voted":  # with a copy of the samples that it needs, as X may change
            result = replace(result, model=result.log.compact().voted())
        if result.certificate is not None and result.certificate.separable is False:
            result = replace(result, verdict=Verdict.NOT_SEPARABLE, cycle=None)
        self.history_, self.mistakes_ = list(result.history), result.mistakes
        self._stream: Stream | None = None
        self._keep(result, samples, net)
        if self.select == "last" and not stopped and self.verdict_ is not Verdict.SEPARATED:
            more = f"raise max_iter={self.max_iter}, or " if self.verdict_ is Verdict.BUDGET else ""
            said = f"PerceptronClassifier ended on {self.verdict_.name}: the training samples are not separated"
            remedy = f"{more}use select='averaged', or LogisticClassifier"
            warnings.warn(f"{said}. To do: {remedy}.", ConvergenceWarning, stacklevel=2)
        return self

    @available_if(_can_stream)  # type: ignore[untyped-decorator]
    def partial_fit(
        self, X: Data, y: Data, classes: Data | None = None, sample_weight: Data | None = None
    ) -> PerceptronClassifier:
        """Online learning: one pass over these samples, continuing from the last call.

        A chunk may hold one class only; ``classes``, all labels that will ever come, is needed on the first call. With
        ``select="averaged"`` all samples since the first call count. Nothing is held out.
        """
        trainer, go_on = self._trainer(online=True), hasattr(self, "coef_")
        samples = self._samples(X, y, sample_weight, go_on=go_on, online=True, classes=classes)
        net, samples = self._start(samples, go_on)
        stream = vars(self).get("_stream")
        if stream is not None and stream.fits(net):
            past, made = self.history_[1 - RECENT :], self.mistakes_
        else:
            stream, past, made = Stream(), [], 0
        result = trainer.learn_chunk(stream, net, samples.X, samples.labels, sample_weight=samples.weight)
        record = replace(result.history[-1], epoch=past[-1].epoch + 1 if past else 1)
        self.history_, self.mistakes_, self._stream = [*past, record], made + result.mistakes, stream
        self._keep(result, samples, net)
        return self

    def _trainer(self, online: bool = False, **options: Any) -> RuleTrainer:
        """Return the trainer that these parameters describe."""
        self._check_shared(online)
        if not self.fit_intercept and self.bias_step not in (None, "none"):
            raise ValueError(f"bias_step={self.bias_step!r} moves an intercept; use fit_intercept=True with it")
        if self.kernel is not None and self.warm_start:
            raise ValueError("warm_start=True needs weights, which a kernel does not have; omit it")
        options |= {name: getattr(self, name) for name in _TRAINER}
        if self.early_stopping and self.select == "last":  # the weights of the best epoch are restored
            options["select"] = "best-validation"
        return RuleTrainer(self.max_iter, **options)

    def _run(self, run: RuleRun, held: Samples | None) -> bool:
        """Make the epochs; return whether ``early_stopping`` or ``tol`` ended them."""
        rows = None if held is None else as_samples(held.X, dtype=run.problem.samples.dtype)
        best, since = math.inf, 0
        while run.verdict is None:
            record = run.epoch()
            if held is not None and rows is not None:
                codes = self._decided(run.current().row_scores(rows).numpy())
                error = float(np.average(codes != held.y, weights=held.weight))
                run.history[-1] = record = replace(record, validation_error=error)
            if self.early_stopping or self.tol is not None:
                value = (record.validation_error or 0.0) if self.early_stopping else run.survey()[0]
                best, since = min(best, value), 0 if value < best - (self.tol or 0.0) else since + 1
            if since >= self.n_iter_no_change and run.verdict is None:
                return True
        return False

    def _keep(self, result: RuleResult, samples: Samples, net: Net | None) -> None:
        """Set the attributes; a kernel has no net."""
        self.classes_, self.n_iter_ = np.asarray(samples.classes), self.history_[-1].epoch
        self.verdict_, self.certificate_ = result.verdict, result.certificate
        self._log: MistakeLog | None = result.log
        self._voter = result.model if isinstance(result.model, VotedModel) else None
        self._machine = cast(Any, result.single if net is None else None)
        if net is not None:
            result.write_to(net)
            self._set_net(net)
        else:
            self.__dict__.pop("coef_", None)
            self.intercept_ = self._machine.bias.numpy()

    # --- deciding ---

    def _scores(self, X: Any) -> Array:
        model = vars(self).get("_voter") or vars(self).get("_machine")
        if model is None:
            return super()._scores(X)
        rows = model.log.problem.samples if isinstance(model, VotedModel) else model.support
        scores: Array = model.scores(X.astype(np.float32 if rows.dtype == torch.float32 else np.float64)).numpy()
        return scores.reshape(len(scores), -1)

    @property
    def dual_coef_(self) -> Array:
        """With a kernel, the coefficients of the support vectors: (1, M), or (K, M)."""
        return np.asarray(self._machine.coefs.T)

    @property
    def support_(self) -> Array:
        """With a kernel, which training samples are support vectors: (M,)."""
        return np.asarray(self._machine.index)

    @property
    def support_vectors_(self) -> Any:
        """With a kernel, the support vectors: (M, d), dense or CSR as the training samples were."""
        raw = self._machine.support.raw()
        return raw.numpy() if isinstance(raw, Tensor) else raw

    @property
    def log_(self) -> MistakeLog:
        """The mistakes of the run, bound to the training samples."""
        log: MistakeLog | None = vars(self).get("_log")
        if log is None:
            raise AttributeError("log_ exists after fit, but is not pickled or converted; save it with log_.save(path)")
        return log

    @property
    def n_errors_(self) -> int:
        """How many training samples are decided wrongly, counted when it is asked for."""
        log, X = self.log_, self.log_.problem.samples.raw()
        codes = self._decided(self._scores(X.numpy() if isinstance(X, Tensor) else X))
        truth = (log.y > 0).long() if len(self.classes_) == 2 else log.y
        return int(np.count_nonzero((codes != truth.numpy()) & (log.sample_weight > 0).numpy()))

    def _check_linear(self) -> None:
        super()._check_linear()
        if (vars(self).get("_machine") or vars(self).get("_voter")) is not None:
            what = f"kernel={self.kernel!r}, select={self.select!r}"
            raise ValueError(f"{what} does not decide by one weight vector per class: no linear classifier is the same")

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = {**super().__getstate__()}
        if "_log" in state:  # it is bound to all training samples, of which a model needs those that made mistakes
            state["_log"] = None
            if state["certificate_"] is not None:  # verify(X, y) takes them from whoever asks
                state["certificate_"] = replace(state["certificate_"], rows=None)
        return state
