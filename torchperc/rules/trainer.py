"""The rule trainer: exact mistake-driven learning, without gradients."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numpy as np
from torch import Tensor, nn

from torchperc._checks import Data, check_bool, check_choice, check_int, check_number
from torchperc.rules import make_problem as make
from torchperc.rules.conventions import BIAS_STEPS, DISTRIBUTED, ENGINES, SELECTS, Order, check_order
from torchperc.rules.decision import PerceptronRule, Rule
from torchperc.rules.engines import Engine, choose_engine
from torchperc.rules.family import check_rule, check_supported
from torchperc.rules.problem import Problem
from torchperc.rules.run import RuleResult, RuleRun, Stream

if TYPE_CHECKING:
    from torchperc.rules.kernel import Kernel


class RuleTrainer:
    """Learns by the perceptron rule: for each sample that is a mistake, w ← w + η·y·x and b ← b + η·y·(bias step).

    With K classes, the true class's vector gains η·x and the strongest wrong one loses it. With a kernel, the model has
    one coefficient per support vector.

    Args:
        max_epochs: maximum number of epochs; training ends earlier after one without a mistake or when weights recur.
        lr: learning rate η. From zero weights it only scales the result: the mistakes are the same for every η.
        tie: what is a mistake: ``"update"`` y·s ≤ 0, ``"sign"`` decision ≠ y, ``"strict"`` y·s < 0.
        bias_step: ``"unit"`` η·y, ``"radius"`` η·y·R² with R the largest ‖x‖, ``"none"``. By default ``"unit"`` for a
            net with a bias, else ``"none"``.
        order: ``"given"``, ``"shuffled"``, ``"random-mistake"``, sample numbers for every epoch, or a row per epoch.
        select: which weights the net has in the end: ``"last"``, ``"averaged"``, ``"voted"`` (the net gets the averaged
            ones; ``result.predict`` votes), ``"pocket"``, ``"best-validation"``.
        engine: how epochs are computed; the mistakes are the same. ``"reference"``: a plain loop in torch, any device
            and type. ``"compiled"``: the same loop compiled by numba for float32 and float64; samples on a device are
            copied to the CPU once, and the weights back at the end. ``"auto"``: ``"compiled"`` for these types, else
            ``"reference"``. Or a function of yours, see :mod:`torchperc.rules.engines`.
        seed: random seed of shuffled and random orders.
        rule: a rule of :mod:`torchperc.rules`, its name, or a :class:`~torchperc.rules.Rule` of your own; by default
            the perceptron with this ``tie`` and ``margin``.
        margin: the functional margin y·s that every sample must exceed; 0 is the classic rule.
        class_weight: a factor per label for its updates, as ``{label: factor}``, or ``"balanced"`` for N/(K·N_label).
        kernel: ``"poly"`` (1 + x·z)^degree, ``"rbf"`` exp(−gamma·‖x − z‖²), ``"linear"``, or a function from (N, d) and
            (M, d) to (N, M); then the net is ``None``.
        prove: if the data are not separated, find out whether they can be: the verdict becomes ``NOT_SEPARABLE`` if it
            is proved that they cannot, and the result has the certificate. For linear nets.
        distributed: ``"mix"`` in a process group of ``torch.distributed``, where each process gives :meth:`fit` its own
            samples: each makes a pass over them, then w moves by the mean of what they learned (iterative
            parameter mixing), by one message of the size of the weights. All processes end with the same weights; the
            mistakes are other than in one process, with the same bound for their mean per process. The log
            numbers the samples of all processes one after another.
        kernel_options: ``degree`` of the polynomial kernel (default 3), ``gamma`` of the rbf kernel (default 1).

    Example:
        >>> import torchperc as tp
        >>> X, y = tp.data.gate("AND")
        >>> net = tp.Perceptron(2)
        >>> result = tp.RuleTrainer().fit(net, X, y)
        >>> result.verdict.name, result.mistakes, result.epochs
        ('SEPARATED', 18, 9)
        >>> net.bias.data, net.weight.data
        (tensor([-4.]), tensor([[3., 2.]]))
    """

    def __init__(
        self,
        max_epochs: int = 100,
        lr: float = 1.0,
        tie: str = "update",
        bias_step: str | None = None,
        order: str | Sequence[Any] | Tensor | np.ndarray[Any, Any] = "given",
        select: str = "last",
        engine: str | Engine = "auto",
        seed: int = 0,
        *,
        rule: Any = None,
        margin: float = 0.0,
        class_weight: Mapping[int, float] | str | None = None,
        kernel: str | Callable[[Any, Any], Any] | None = None,
        prove: bool = False,
        distributed: str | None = None,
        **kernel_options: Any,
    ) -> None:
        self.max_epochs = check_int("max_epochs", max_epochs, at_least=1)
        self.lr = check_number("lr", lr, above=0)
        self.rule: Rule = PerceptronRule.checked(tie, margin)
        if rule is not None:
            if self.rule != PerceptronRule():
                raise ValueError(f"tie={tie!r} and margin={margin} are the rule's own, found rule={rule}; omit them")
            self.rule = check_rule(rule)
        self.bias_step = None if bias_step is None else check_choice("bias_step", bias_step, BIAS_STEPS)
        self.order = check_order(order)
        self.select = check_choice("select", select, SELECTS)
        self.engine = engine if callable(engine) else check_choice("engine", engine, ENGINES)
        self.seed = check_int("seed", seed, at_least=0)
        self.class_weight = make.check_class_weight(class_weight)
        self.kernel: Kernel | None = None
        if kernel is not None or kernel_options:
            from torchperc.rules.kernel import Kernel  # which a linear net does without

            self.kernel = Kernel.checked(kernel, kernel_options)
        self.prove = check_bool("prove", prove)
        self.distributed = None if distributed is None else check_choice("distributed", distributed, DISTRIBUTED)
        self._check_combination()
        self._not_online = self._need_all_samples(online=True)
        self._streams: WeakKeyDictionary[nn.Module, Any] = WeakKeyDictionary()

    @property
    def tie(self) -> str:
        """What is a mistake, see the class."""
        return self.rule.tie

    @property
    def margin(self) -> float:
        """The functional margin that every sample must exceed."""
        return self.rule.margin

    def _check_combination(self) -> None:
        """Refuse options that cannot be used together."""
        if self.kernel is not None and self.prove:
            raise ValueError("prove=True is about hyperplanes in the space of X, and there is a kernel; leave it out")
        if self.kernel is not None and self.engine not in ("auto", "reference"):
            raise ValueError(f"engine={self.engine!r} cannot run kernel={self.kernel.name!r}; leave it out")
        for option in self._need_all_samples(online=False) if self.distributed else ():
            why = "needs all samples in one process; leave it out"
            raise ValueError(f"{option} cannot be used with distributed={self.distributed!r}: it {why}")

    def _need_all_samples(self, online: bool) -> list[str]:
        """Return the options that need all samples in one place, or ``online`` at one time."""
        order = self.order if isinstance(self.order, str) else "explicit"
        used = {
            "a kernel": self.kernel is not None,
            "prove=True": self.prove,
            f"order={order!r}": order not in ("given", "shuffled"),
            f"select={self.select!r}": self.select in ("voted", "pocket"),
        }
        if online:
            used |= {
                f"distributed={self.distributed!r}": self.distributed is not None,
                "select='best-validation'": self.select == "best-validation",
                "bias_step='radius'": self.bias_step == "radius",
                "class_weight='balanced'": isinstance(self.class_weight, str),
                "order='shuffled'": order == "shuffled",
            }
        return [option for option, given in used.items() if given]

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_streams": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _streams=WeakKeyDictionary())

    def fit(
        self,
        net: Any,
        X: Data,
        y: Data,
        *,
        validation: tuple[Data, Data] | None = None,
        sample_weight: Data | None = None,
        num_classes: int | None = None,
    ) -> RuleResult:
        """Train from the net's current weights; write the selected ones into it.

        Args:
            net: a :class:`Perceptron`, :class:`MulticlassPerceptron`, :class:`JointPerceptron` or ``nn.Linear``;
                ``None`` with a kernel; or a net with ``rule_problem``, which defines X and y.
            X: samples (N, d), as a tensor, a numpy array or a scipy sparse matrix.
            y: labels (N,): −1/+1, or class indices for a net of K classes.
            validation: samples and labels whose error is recorded after each epoch.
            sample_weight: a factor per sample for its updates; 0 leaves the sample out.
            num_classes: with a kernel, the number of classes if ``y`` holds class indices.
        """
        if self.select == "best-validation" and validation is None:
            raise ValueError("select='best-validation' needs validation=(X, y)")
        run = self.start(net, X, y, validation=validation, sample_weight=sample_weight, num_classes=num_classes)
        while run.verdict is None:
            run.epoch()
        result = run.result()
        if net is not None:
            result.write_to(net)
        return result

    def start(
        self, net: Any, X: Data, y: Data, *, validation: Any = None, sample_weight: Data = None, num_classes: Any = None
    ) -> RuleRun:
        """Return a run before its first epoch; everything is checked, nothing is changed.

        With ``distributed``, a collective call.
        """
        if num_classes is not None and self.kernel is None:
            raise ValueError(f"num_classes={num_classes} needs a kernel; a net has its number of classes already")
        if self.distributed is not None and not has_own_rule(net):
            from torchperc.rules.mixing import start_mixing  # which needs runs

            return start_mixing(self, net, X, y, validation, sample_weight)
        problem, start, ids = self.problem_for(net, X, y, sample_weight, classes=num_classes)
        options = self.run_options(problem, ids, self.seed)
        options["validation"] = make.check_validation(validation, problem)
        return RuleRun(problem, start, **options, prove=make.prover(problem, start, ids) if self.prove else None)

    def problem_for(
        self, net: Any, X: Data, y: Data, sample_weight: Data, *going_on: Any, classes: Any = None, both: bool = True
    ) -> tuple[Problem, Any, np.ndarray[Any, Any]]:
        """Return the problem of a net and data, the first weights, and the samples that take part.

        ``going_on`` are first weights and scale, where they are known; ``classes`` is the number of classes of a
        kernel; ``both`` requires at least two classes.
        """
        if has_own_rule(net):
            found: tuple[Problem, Any, np.ndarray[Any, Any]] = net.rule_problem(self, X, y, sample_weight, *going_on)
        else:
            start, scale = going_on or (None, None)
            found = make.make_problem(self, net, X, y, sample_weight, start, scale, classes, both)
        if not isinstance(self.rule, PerceptronRule):
            check_supported(self, net, *found)
        return found

    def run_options(self, problem: Problem, ids: np.ndarray[Any, Any], seed: int) -> dict[str, Any]:
        """Return the options of a :class:`RuleRun` over some samples of a problem."""
        bounds = make.chunk_bounds(problem.samples, self.order)
        return {
            "engine": choose_engine(self.engine, problem),
            "order": Order(self.order, ids, seed, self.max_epochs, bounds),
            "max_epochs": self.max_epochs,
            "select": self.select,
            "conventions": self.conventions(),
        }

    def conventions(self) -> dict[str, Any]:
        """Return the conventions by name, as a saved log holds them.

        Example:
            >>> RuleTrainer(tie="sign").conventions()["tie"]
            'sign'
        """
        order = self.order if isinstance(self.order, str) else "explicit"
        bias = {} if self.bias_step is None else {"bias_step": self.bias_step}
        rest = {"order": order, "seed": self.seed, "select": self.select, "max_epochs": self.max_epochs}
        return {**self.rule.describe(), **bias, "lr": self.lr, **rest}

    def partial_fit(self, net: Any, X: Data, y: Data, *, sample_weight: Data | None = None) -> RuleResult:
        """Learn online: one pass over these samples, which may be of one class only.

        ``select`` may be ``"last"``, or ``"averaged"`` over all calls with this net; the average starts anew if its
        weights were changed in between. The result's log is that of this call.

        Example:
            >>> import torchperc as tp
            >>> net, trainer = tp.Perceptron(2), tp.RuleTrainer()
            >>> trainer.partial_fit(net, [[2, 1]], [1]).mistakes, trainer.partial_fit(net, [[1, 1]], [1]).mistakes
            (1, 0)
        """
        known = self._streams.get(net) if isinstance(net, nn.Module) else None
        stream = known if known is not None and known.fits(net) else self.new_stream(net)
        result = self.learn_chunk(stream, net, X, y, sample_weight=sample_weight)
        if stream is not known:
            self._streams[net] = stream
        return result

    @staticmethod
    def new_stream(net: Any) -> Any:
        """Return a new stream for online learning."""
        return Stream(net.rule_weights) if has_own_rule(net) else Stream()

    def learn_chunk(self, stream: Any, net: Any, X: Data, y: Data, *, sample_weight: Data | None = None) -> RuleResult:
        """:meth:`partial_fit` with a stream that the caller keeps."""
        self.check_stream()
        going_on = () if stream.weights is None else stream.go_on(self.lr)
        problem, start, ids = self.problem_for(net, X, y, sample_weight, *going_on, both=False)
        result: RuleResult = stream.learn(problem, start, choose_engine(self.engine, problem), ids, self.select)
        result.write_to(net)
        stream.remember(net)
        return result

    def check_stream(self) -> None:
        """Refuse options that need all samples at once."""
        for option in self._not_online:
            raise ValueError(f"{option} needs all samples, which partial_fit never sees together; use fit")


def has_own_rule(net: object) -> bool:
    """Return whether a net defines its own problem.

    Then ``net.rule_problem(trainer, X, y, sample_weight, start, scale)`` returns the problem, the first weights and the
    samples that take part, and ``net.rule_weights(**state_dict)`` makes weights.
    """
    return hasattr(type(net), "rule_problem")  # a module that lacks it takes long to say so
