"""The rule trainer: exact mistake-driven learning, without gradients."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast
from weakref import WeakKeyDictionary

import numpy as np
from torch import Tensor, nn

from torchperc._checks import Data, check_bool, check_choice, check_int, check_labels, check_number
from torchperc.rules import problem
from torchperc.rules.conventions import BIAS_STEPS, DISTRIBUTED, ENGINES, MIXINGS, SELECTS, TIES
from torchperc.rules.distributed import start_mixing
from torchperc.rules.engines.choice import choose_engine
from torchperc.rules.engines.reference import Engine, Task
from torchperc.rules.kernels import Kernel
from torchperc.rules.models import Net, OwnRule
from torchperc.rules.online import Stream, new_stream
from torchperc.rules.orders import Order, all_numbers, check_order
from torchperc.rules.progress import bar
from torchperc.rules.run import RuleResult, RuleRun
from torchperc.rules.spaces import Space, Weights


class RuleTrainer:
    """Learns by the perceptron rule: for each sample that is a mistake, w ← w + η·y·x and b ← b + η·y·(bias step).

    With K classes, the true class's vector gains η·x and the strongest wrong one loses it. With a kernel, the model has
    one coefficient per support vector.

    Args:
        max_epochs: at most so many; training ends earlier after an epoch without a mistake or when weights repeat.
        lr: the learning rate η. From zero weights it only scales the result: the mistakes are the same for every η.
        tie: what is a mistake: ``"update"`` y·s ≤ 0, ``"sign"`` decision ≠ y, ``"strict"`` y·s < 0.
        bias_step: ``"unit"`` η·y, ``"radius"`` η·y·R² with R the largest ‖x‖, ``"none"``. By default ``"unit"`` for a
            net with a bias, else ``"none"``.
        order: ``"given"``, ``"shuffled"``, ``"random-mistake"``, sample numbers for every epoch, or a row per epoch.
        select: which weights the net has in the end: ``"last"``, ``"averaged"``, ``"voted"`` (the net gets the averaged
            ones; ``result.predict`` votes), ``"pocket"``, ``"best-validation"``.
        engine: how epochs are computed; the mistakes are the same. ``"reference"``: a plain loop in torch, any device
            and type. ``"compiled"``: the same loop compiled by numba for float32 and float64; samples on a device are
            copied to the CPU once, and the weights back at the end. ``"auto"``: ``"compiled"`` for these types, else
            ``"reference"``. Or an engine of your own: a subclass of
            :class:`~torchperc.rules.engines.LinearEngine`, or a function from its arguments, task and start, to one.
        seed: of shuffled and random orders.
        margin: the slack y·s that every sample must exceed; 0 is the classic rule.
        class_weight: a factor per label for its updates, as ``{label: factor}``, or ``"balanced"`` for N/(K·N_label).
        kernel: ``"poly"`` (1 + x·z)^degree, ``"rbf"`` exp(−gamma·‖x − z‖²), ``"linear"``, or a function from (N, d) and
            (M, d) to (N, M); then the net is ``None``.
        degree: of the polynomial kernel; 3 by default.
        gamma: of the rbf kernel; 1 by default.
        progress: show a progress bar on standard error; by default for data larger than memory if that is a terminal.
        prove: if the data are not separated, find out whether they can be: the verdict becomes ``NOT_SEPARABLE`` if it
            is proved that they cannot, and the result has the certificate. For linear nets.
        distributed: ``"mix"`` in a process group of ``torch.distributed``, where each process gives :meth:`fit` its own
            samples: each makes a pass over them, then the weights are mixed (iterative parameter mixing), by one
            message of the size of the weights. All processes end with the same weights; the mistakes are other than in
            one process, with the same bound for Σ μ·k. The log numbers the samples of all processes one after another.
        mixing: with ``"mix"``, the weight μ of a process: ``"uniform"``, or by its number of ``"mistakes"``.

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
        engine: str | Callable[[Task, Weights], Engine] = "auto",
        seed: int = 0,
        *,
        margin: float = 0.0,
        class_weight: Mapping[int, float] | str | None = None,
        kernel: str | Callable[[Any, Any], Any] | None = None,
        degree: int | None = None,
        gamma: float | None = None,
        progress: bool | None = None,
        prove: bool = False,
        distributed: str | None = None,
        mixing: str = "uniform",
    ) -> None:
        self.max_epochs = check_int("max_epochs", max_epochs, at_least=1)
        self.lr = check_number("lr", lr, above=0)
        self.tie = check_choice("tie", tie, TIES)
        self.bias_step = None if bias_step is None else check_choice("bias_step", bias_step, BIAS_STEPS)
        self.order = check_order(order)
        self.select = check_choice("select", select, SELECTS)
        self.engine = engine if callable(engine) else check_choice("engine", engine, ENGINES)
        self.seed = check_int("seed", seed, at_least=0)
        self.margin = check_number("margin", margin, at_least=0)
        if self.margin and tie == "sign":
            raise ValueError(
                f"margin={margin} has no effect with tie='sign', which looks at the decision only; "
                "use tie='update' or tie='strict'"
            )
        self.class_weight = check_class_weight(class_weight)
        self.kernel = _kernel(kernel, degree, gamma)
        self.progress = None if progress is None else check_bool("progress", progress)
        self.prove = check_bool("prove", prove)
        if self.prove and kernel is not None:
            raise ValueError("prove=True is about hyperplanes in the space of X; leave it out with a kernel")
        self.distributed = None if distributed is None else check_choice("distributed", distributed, DISTRIBUTED)
        self.mixing = check_choice("mixing", mixing, MIXINGS)
        self._check_own_engine()
        self._check_distributed()
        self._streams: WeakKeyDictionary[nn.Module, Stream] = WeakKeyDictionary()

    def _check_own_engine(self) -> None:
        if callable(self.engine) and self.kernel is not None:
            raise ValueError(f"engine={self.engine!r} cannot run kernel={self.kernel.name!r}; use engine='auto'")

    def _check_distributed(self) -> None:
        """Refuse options that have no meaning in several processes."""
        if self.mixing != "uniform" and self.distributed is None:
            raise ValueError(
                f"mixing={self.mixing!r} needs distributed='mix', found {self.distributed!r}; leave it out"
            )
        if self.distributed is None:
            return
        order = self.order if isinstance(self.order, str) else "explicit"
        for what, refused, why in (
            (f"kernel={self.kernel and self.kernel.name!r}", self.kernel is not None, "support vectors are not shared"),
            ("prove=True", self.prove, "the proof needs all samples in one process"),
            (f"order={order!r}", order not in ("given", "shuffled"), "each process orders its own samples"),
            (f"select={self.select!r}", self.select in ("voted", "pocket"), "weights are mixed after a pass"),
        ):
            if refused:
                raise ValueError(f"{what} cannot be used with distributed={self.distributed!r}: {why}; leave it out")

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_streams": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _streams=WeakKeyDictionary())

    def fit(
        self,
        net: Net | OwnRule | None,
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
                ``None`` with a kernel. With a :class:`torchperc.sequences.ChainPerceptron`, samples are sequences.
            X: samples (N, d), as a tensor, a numpy array or a scipy sparse matrix; or sequences of tokens.
            y: labels (N,): −1/+1, or class indices for a net of K classes; or tags of all tokens.
            validation: samples and labels whose error is recorded after each epoch.
            sample_weight: a factor per sample for its updates; 0 leaves the sample out.
            num_classes: with a kernel, the number of classes if ``y`` holds class indices.
        """
        if self.select == "best-validation" and validation is None:
            raise ValueError("select='best-validation' needs validation=(X, y)")
        run = self.start(net, X, y, validation=validation, sample_weight=sample_weight, num_classes=num_classes)
        with bar(run.rows, self.progress) as after_epoch:
            while run.verdict is None:
                after_epoch(run.epoch())
        result, target = run.result(), cast("Any", net)  # one with a rule of its own brings its own result
        if target is not None:
            result.write_to(target)
        return result

    def partial_fit(self, net: Net | OwnRule, X: Data, y: Data, *, sample_weight: Data | None = None) -> RuleResult:
        """Online learning: one pass over these samples, which may be of one class only.

        ``select`` may be ``"last"``, or ``"averaged"`` and ``"voted"`` over all calls with this net; they start anew if
        its weights were changed in between. The result's log is that of this call.

        Example:
            >>> import torchperc as tp
            >>> net, trainer = tp.Perceptron(2), tp.RuleTrainer()
            >>> trainer.partial_fit(net, [[2, 1]], [1]).mistakes, trainer.partial_fit(net, [[1, 1]], [1]).mistakes
            (1, 0)
        """
        target: Any = net
        known = self._streams.get(target) if isinstance(net, nn.Module) else None
        stream = known if known is not None and known.fits(target) else new_stream(net)
        result = self.learn_chunk(stream, net, X, y, sample_weight=sample_weight)
        if stream is not known:
            self._streams[target] = stream
        return result

    def learn_chunk(
        self,
        stream: Any,
        net: Net | OwnRule,
        X: Data,
        y: Data,
        *,
        sample_weight: Data | None = None,
    ) -> RuleResult:
        """:meth:`partial_fit` with a stream that the caller keeps."""
        self.check_stream()
        target: Any = net
        if isinstance(stream, Stream):
            result = stream.learn(self, target, X, y, sample_weight)
        else:  # of a net with a rule of its own
            run = self.start(net, X, y, sample_weight=sample_weight, online=stream)
            run.epoch()
            result = stream.take(run.result(), self.select)
        result.write_to(target)
        stream.remember(target)
        return result

    def start(
        self,
        net: Net | OwnRule | None,
        X: Data,
        y: Data,
        *,
        validation: tuple[Data, Data] | None = None,
        sample_weight: Data | None = None,
        num_classes: int | None = None,
        online: Any = None,
    ) -> RuleRun:
        """A run before its first epoch; everything is checked, nothing is changed.

        With ``distributed``, a collective call. ``online`` is the stream of a net with a rule of its own.
        """
        if not isinstance(net, Net) and isinstance(net, OwnRule):
            own = {"sample_weight": sample_weight, "num_classes": num_classes, "online": online}
            run: RuleRun = net.start_rule(self, X, y, validation=validation, **own)
            return run
        if self.distributed is not None:
            return start_mixing(self, net, X, y, validation, sample_weight)
        if self.kernel is not None:
            space, start = problem.kernel_problem(net, X, self.kernel, num_classes)
        elif num_classes is not None:
            raise ValueError(f"num_classes={num_classes} needs a kernel; a net has its number of classes already")
        else:
            space, start = problem.linear_problem(net, X, to_cpu=self.engine in ("auto", "compiled"))
        scale = self.lr if start.at_zero else 1.0
        task, factors, ids = self.make_task(net, replace(space, scale=scale), y, sample_weight, both=True)
        space, labels = task.space, task.y
        held = problem.held_out(validation, space)
        problem.warn_if_stuck(self.tie, self.margin, start, stacklevel=4)
        prove = problem.prover(space, start, labels, ids) if self.prove else None
        options: dict[str, Any] = {"max_epochs": self.max_epochs, "select": self.select, "cost": factors}
        options |= {"validation": held, "prove": prove}
        order = Order(self.order, ids, self.seed, self.max_epochs, problem.part_bounds(space.rows, self.order))
        return RuleRun(choose_engine(self.engine, task, start), start, order, **options)

    def make_task(
        self, net: Any, space: Space, y: Data, sample_weight: Data | None, *, both: bool
    ) -> tuple[Task, Tensor, Tensor]:
        """What to learn in a space of checked samples, the weight of each sample, and the samples that take part.

        Args:
            net: that is trained, ``None`` with a kernel.
            space: of its weights, with their scale; the bias step is added.
            y: the labels, unchecked.
            sample_weight: a factor per sample.
            both: whether at least two classes are required.
        """
        labels = check_labels(y, len(space.rows), space.classes, both=both).to(space.rows.device)
        factors = problem.sample_factors(labels, sample_weight, self.class_weight, space.classes)
        ids = all_numbers(labels)
        if sample_weight is not None or self.class_weight is not None:
            ids = ids[factors > 0]
            if not len(ids) or (both and labels[ids].min() == labels[ids].max()):
                left = "one class only; at least two classes are required" if both else "no sample"
                raise ValueError(f"sample_weight and class_weight leave {left}")
        space = problem.with_bias_step(space, net, self.bias_step, ids)
        coefs = problem.check_steps(self.lr, factors, space)
        margin = problem.learning_margin(self.margin, space)
        return Task(space, labels, factors if space.scale != 1.0 else coefs, self.tie, margin), factors, ids

    def check_stream(self) -> None:
        """Refuse options that need all samples at once."""
        if self.distributed:
            raise ValueError(f"distributed={self.distributed!r} needs all samples of each process at once; use fit")
        for what, asked in (
            (f"select={self.select!r}", self.select in ("pocket", "best-validation")),
            ("bias_step='radius'", self.bias_step == "radius"),
            ("class_weight='balanced'", self.class_weight == "balanced"),
        ):
            if asked:
                raise ValueError(f"{what} needs all samples, which partial_fit never sees together; use fit")
        if self.kernel is not None:
            raise ValueError("partial_fit with a kernel would have to keep its support vectors; use fit")
        if not isinstance(self.order, str) or self.order != "given":
            raise ValueError("partial_fit presents samples as they come; use order='given'")


def _kernel(kernel: str | Callable[[Any, Any], Any] | None, degree: int | None, gamma: float | None) -> Kernel | None:
    for name, value, owner in (("degree", degree, "poly"), ("gamma", gamma, "rbf")):
        if value is not None and kernel != owner:
            raise ValueError(f"{name}={value!r} needs kernel={owner!r}, found kernel={kernel!r}; leave it out")
    return None if kernel is None else Kernel(kernel, 3 if degree is None else degree, 1.0 if gamma is None else gamma)


def check_class_weight(class_weight: Mapping[int, float] | str | None) -> Mapping[int, float] | str | None:
    """``class_weight`` if it is ``None``, ``"balanced"`` or a factor per label."""
    if class_weight is None:
        return None
    if isinstance(class_weight, str):
        return check_choice("class_weight", class_weight, ("balanced",))
    if not isinstance(class_weight, Mapping):
        raise TypeError(f"class_weight must be a mapping {{label: factor}}, found {type(class_weight).__name__}")
    return {label: check_number(f"class_weight[{label!r}]", w, at_least=0) for label, w in class_weight.items()}
