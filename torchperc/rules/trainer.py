"""The rule trainer: exact mistake-driven learning, without gradients."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast
from weakref import WeakKeyDictionary

import numpy as np
from torch import Tensor, nn

from torchperc import _checks as checks
from torchperc.rules import problem
from torchperc.rules.conventions import BIAS_STEPS, DISTRIBUTED, ENGINES, LOGS, MIXINGS, SELECTS, TIES
from torchperc.rules.distributed import (
    ExactEngine,
    ExactRun,
    MixedRun,
    MixedSpace,
    check_group,
    gathered_problem,
    local_task,
    shared,
)
from torchperc.rules.engines.choice import choose_engine
from torchperc.rules.engines.reference import Engine, LinearEngine, Task
from torchperc.rules.kernels import Kernel
from torchperc.rules.models import Net, OwnRule
from torchperc.rules.online import Stream, new_stream
from torchperc.rules.orders import Order, all_numbers, check_order
from torchperc.rules.progress import bar
from torchperc.rules.run import RuleResult, RuleRun
from torchperc.rules.spaces import Weights
from torchperc.rules.unlogged import UnloggedResult, UnloggedRun
from torchperc.samples import shards
from torchperc.samples.rows import LookFirst


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
            and type. ``"compiled"``: the same loop compiled by numba, float32 and float64 on the CPU. ``"blocked"``:
            blocks of samples by matrix products, any device. ``"triton"``: a pass as one program on CUDA, float32 and
            float64 (interpreted on the CPU if ``TRITON_INTERPRET=1``). ``"auto"``: the fastest of them for this data.
            Or an engine of your own: a subclass of :class:`~torchperc.rules.engines.LinearEngine`, or a function from
            its arguments, task and start, to one.
        seed: of shuffled and random orders.
        margin: the slack y·s that every sample must exceed; 0 is the classic rule.
        class_weight: a factor per label for its updates, as ``{label: factor}``, or ``"balanced"`` for N/(K·N_label).
        kernel: ``"poly"`` (1 + x·z)^degree, ``"rbf"`` exp(−gamma·‖x − z‖²), ``"linear"``, or a function from (N, d) and
            (M, d) to (N, M); then the net is ``None``.
        degree: of the polynomial kernel; 3 by default.
        gamma: of the rbf kernel; 1 by default.
        log: ``"off"`` keeps no log of the mistakes, so that a stream of any length, or a long run, takes no more
            memory as it goes on; ``select`` may then be ``"last"`` or ``"averaged"``. Not for kernels, sequences and
            several processes.
        progress: show a progress bar on standard error; by default for data larger than memory if that is a terminal.
        prove: if the data are not separated, find out whether they can be: the verdict becomes ``NOT_SEPARABLE`` if it
            is proved that they cannot, and the result has the certificate. For linear nets.
        distributed: in a process group of ``torch.distributed``, where each process gives :meth:`fit` its own shard of
            the samples and all end with the same weights. ``"exact"``: the mistakes of one process that has the shards
            one after the other; a message per mistake. ``"mix"``: iterative parameter mixing, each process makes a pass
            over its shard and the weights are mixed; a message of d + 2 numbers per pass, other mistakes than in one
            process, and the same bound for Σ μ·k. The log numbers samples through all shards.
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
        log: str = "on",
    ) -> None:
        self.max_epochs = checks.whole("max_epochs", max_epochs, at_least=1)
        self.lr = checks.number("lr", lr, above=0)
        self.tie = checks.one_of("tie", tie, TIES)
        self.bias_step = None if bias_step is None else checks.one_of("bias_step", bias_step, BIAS_STEPS)
        self.order = check_order(order)
        self.select = checks.one_of("select", select, SELECTS)
        self.engine = engine if callable(engine) else checks.one_of("engine", engine, ENGINES)
        self.seed = checks.whole("seed", seed, at_least=0)
        self.margin = checks.number("margin", margin, at_least=0)
        if self.margin and tie == "sign":
            raise ValueError(
                f"margin={margin} has no effect with tie='sign', which looks at the decision only; "
                "use tie='update' or tie='strict'"
            )
        self.class_weight = check_class_weight(class_weight)
        self.kernel = _kernel(kernel, degree, gamma)
        self.progress = None if progress is None else checks.flag("progress", progress)
        self.prove = checks.flag("prove", prove)
        if self.prove and kernel is not None:
            raise ValueError("prove=True is about hyperplanes in the space of X; leave it out with a kernel")
        self.distributed = None if distributed is None else checks.one_of("distributed", distributed, DISTRIBUTED)
        self.mixing = checks.one_of("mixing", mixing, MIXINGS)
        self._check_own_engine()
        self._check_distributed()
        self.log = checks.one_of("log", log, LOGS)
        self._check_log()
        self._streams: WeakKeyDictionary[nn.Module, Stream] = WeakKeyDictionary()

    def _check_own_engine(self) -> None:
        if callable(self.engine) and self.kernel is not None:
            raise ValueError(f"engine={self.engine!r} cannot run kernel={self.kernel.name!r}; use engine='auto'")

    def _check_distributed(self) -> None:
        """Refuse options that have no meaning in several processes."""
        if self.mixing != "uniform" and self.distributed != "mix":
            raise ValueError(
                f"mixing={self.mixing!r} needs distributed='mix', found {self.distributed!r}; leave it out"
            )
        if self.distributed is None:
            return
        mix, order = self.distributed == "mix", self.order if isinstance(self.order, str) else "explicit"
        for what, refused, why in (
            (f"kernel={self.kernel and self.kernel.name!r}", self.kernel is not None, "support vectors are not shared"),
            ("prove=True", self.prove, "the proof needs all samples in one process"),
            (f"engine={self.engine!r}", not mix and self.engine != "auto", "all processes score ahead in one way"),
            (f"order={order!r}", mix and order not in ("given", "shuffled"), "each shard has an order of its own"),
            (f"select={self.select!r}", mix and self.select in ("voted", "pocket"), "weights are mixed after a pass"),
        ):
            if refused:
                raise ValueError(f"{what} cannot be used with distributed={self.distributed!r}: {why}; leave it out")

    def _check_log(self) -> None:
        """Refuse options that need the log, if there is none."""
        for what, refused, why in (
            (
                f"select={self.select!r}",
                self.select not in ("last", "averaged"),
                "it is made from the states in the log",
            ),
            (f"kernel={self.kernel and self.kernel.name!r}", self.kernel is not None, "support vectors are the log"),
            (f"distributed={self.distributed!r}", self.distributed is not None, "the processes share the log"),
        ):
            if self.log == "off" and refused:
                raise ValueError(f"{what} cannot be used with log='off': {why}; use log='on'")

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_streams": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _streams=WeakKeyDictionary())

    def fit(
        self,
        net: Net | OwnRule | None,
        X: checks.Data,
        y: checks.Data,
        *,
        validation: tuple[checks.Data, checks.Data] | None = None,
        sample_weight: checks.Data | None = None,
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
        options: dict[str, Any] = {"validation": validation, "sample_weight": sample_weight, "num_classes": num_classes}
        try:
            result = self._to_the_end(self.start(net, X, y, **options, unseen=True))
        except LookFirst:
            result = self._to_the_end(self.start(net, X, y, **options))
        target: Any = net  # one with a rule of its own brings its own result
        if target is not None:
            result.write_to(target)
        return result

    def _to_the_end(self, run: RuleRun) -> RuleResult:
        with bar(run.rows, self.progress) as after_epoch:
            while run.verdict is None:
                after_epoch(run.epoch())
        return run.result()

    def partial_fit(
        self, net: Net | OwnRule, X: checks.Data, y: checks.Data, *, sample_weight: checks.Data | None = None
    ) -> RuleResult:
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
        if type(known) is Stream and sample_weight is None and (quick := known.learn_one(self, target, X, y)):
            return quick
        stream = known if known is not None and known.fits(target) else new_stream(net)
        result = self.learn_chunk(stream, net, X, y, sample_weight=sample_weight)
        self._streams[target] = stream
        if type(stream) is Stream and len(result.log.y) == 1:
            stream.prepare(self, target, result.log.space)
        return UnloggedResult.of(result) if self.log == "off" else result

    def learn_chunk(
        self,
        stream: Stream,
        net: Net | OwnRule,
        X: checks.Data,
        y: checks.Data,
        *,
        sample_weight: checks.Data | None = None,
    ) -> RuleResult:
        """:meth:`partial_fit` with a stream that the caller keeps."""
        self.check_stream()
        run = self.start(net, X, y, sample_weight=sample_weight, online=stream)
        run.epoch()
        result, target = stream.take(run.result(), self.select), cast("Any", net)
        result.write_to(target)
        stream.remember(target)
        return result

    def start(
        self,
        net: Net | OwnRule | None,
        X: checks.Data,
        y: checks.Data,
        *,
        validation: tuple[checks.Data, checks.Data] | None = None,
        sample_weight: checks.Data | None = None,
        num_classes: int | None = None,
        online: Stream | None = None,
        numbers: Tensor | None = None,
        unseen: bool = False,
    ) -> RuleRun:
        """A run before its first epoch; everything is checked, nothing is changed.

        With ``distributed``, a collective call; ``numbers`` says which of all samples the local ones are, if the shards
        do not follow one another. With ``unseen``, samples may be looked at by the first epoch, which the caller makes
        before anything else; if it raises :class:`~torchperc.samples.rows.LookFirst`, start anew without ``unseen``.
        """
        if isinstance(net, OwnRule):
            if self.log == "off":
                raise ValueError(f"log='off' is not for a {type(net).__name__}; use log='on'")
            own = {"sample_weight": sample_weight, "num_classes": num_classes, "online": online}
            run: RuleRun = net.start_rule(self, X, y, validation=validation, **own)
            return run
        if self.distributed:
            check_group()
        if self.kernel is not None:
            space, start = problem.kernel_problem(net, X, self.kernel, num_classes)
        elif num_classes is not None:
            raise ValueError(f"num_classes={num_classes} needs a kernel; a net has its number of classes already")
        elif self.distributed:
            space, start = shards.together(lambda: problem.linear_problem(net, X))
            about = str({name: value for name, value in vars(self).items() if name not in ("_streams", "progress")})
            about += f" validation={validation is not None}"
            space, y, sample_weight = gathered_problem(space, start, y, sample_weight, numbers, about)
        else:
            unseen = unseen and sample_weight is None and self.presents_all()
            space, start = problem.linear_problem(net, X, unseen=unseen)
        labels = checks.labels(y, len(space.rows), space.classes, both=online is None).to(space.rows.device)
        factors = problem.sample_factors(labels, sample_weight, self.class_weight, space.classes)
        ids = all_numbers(labels)
        if factors.stride(0):  # otherwise nothing is weighted
            ids = ids[factors > 0]
            if not len(ids) or (not online and labels[ids].min() == labels[ids].max()):
                left = "no sample" if online else "one class only; at least two classes are required"
                raise ValueError(f"sample_weight and class_weight leave {left}")
        space = problem.with_bias_step(space, net, self.bias_step, ids)
        scale = self.lr if start.at_zero and self.distributed != "mix" else 1.0
        if online and (going_on := online.begin(self.lr)):
            start, scale = going_on
        space = replace(space, scale=scale)
        steps = problem.check_steps(self.lr, factors, space)
        margin = problem.learning_margin(self.margin, space)
        epochs, select = (1, "last") if online else (self.max_epochs, self.select)
        task = Task(space, labels, factors if scale != 1.0 else steps, self.tie, margin)
        held = problem.held_out(validation, space)
        problem.warn_if_stuck(self.tie, self.margin, start, stacklevel=4)
        prove = problem.prover(space, start, labels, ids) if self.prove and not online else None
        options: dict[str, Any] = {"max_epochs": epochs, "select": select, "validation": held, "prove": prove}
        options["cost"] = factors
        if self.distributed == "mix":
            return self._start_mixing(task, start, options)
        order = Order(self.order, ids, self.seed, self.max_epochs, problem.part_bounds(space.rows, self.order))
        if self.distributed:
            return ExactRun(ExactEngine(task, start), start, order, **options)
        runs = UnloggedRun if self.log == "off" and not online else RuleRun
        return runs(choose_engine(self.engine, task, start), start, order, **options)

    def presents_all(self) -> bool:
        """Whether the first epoch reads every sample before anything else does, by an engine that looks at them."""
        leaves_out = isinstance(self.class_weight, Mapping) and not all(self.class_weight.values())
        plain = isinstance(self.order, str) and self.order in ("given", "shuffled") and self.bias_step != "radius"
        return plain and not leaves_out and self.engine in ("auto", "compiled")

    def _start_mixing(self, whole: Task, start: Weights, options: dict[str, Any]) -> MixedRun:
        task, space = local_task(whole), whole.space
        own = (options["cost"][shared(space.rows).numbers] > 0).nonzero().squeeze(-1)
        rank = shards.here()[0]

        def two_classes() -> None:
            found = task.y[own].unique().tolist()
            if len(found) < 2:
                raise ValueError(
                    f"its shard has {f'samples of class {found[0]} only' if found else 'no samples'}; shuffle the "
                    "samples before they are cut into shards, or use distributed='exact'"
                )

        shards.together(two_classes)
        order = Order(
            self.order, own, self.seed + rank, self.max_epochs, problem.part_bounds(task.space.rows, self.order)
        )
        engine = choose_engine(self.engine, task, start)
        assert isinstance(engine, LinearEngine)
        mixed = MixedSpace(space.rows, space.classes, space.bias_scale)
        return MixedRun(engine, start, order, whole=replace(whole, space=mixed), mixing=self.mixing, **options)

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
        return checks.one_of("class_weight", class_weight, ("balanced",))
    if not isinstance(class_weight, Mapping):
        raise TypeError(f"class_weight must be a mapping {{label: factor}}, found {type(class_weight).__name__}")
    return {label: checks.number(f"class_weight[{label!r}]", w, at_least=0) for label, w in class_weight.items()}
