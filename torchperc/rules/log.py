"""The mistake log is the model: weights are the start plus Σ cⱼ·x_{iⱼ} over the mistakes made so far.

Last, averaged, voted and pocket weights, the weights at any moment, the dual form and the learning curve are functions
of the log and the data.
"""

from __future__ import annotations

import io
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeAlias, TypeVar

import numpy as np
import torch
from torch import Tensor

from torchperc._checks import Data, check_choice, check_float_dtype, check_int, check_labels, numpy_view
from torchperc._files import write_atomically
from torchperc.nn import functional as tpf
from torchperc.rules import log_json
from torchperc.rules.conventions import RATCHETS
from torchperc.rules.kernels import Kernel
from torchperc.rules.models import Model, rows_like
from torchperc.rules.spaces import Entries, JointSpace, KernelSpace, LinearSpace, Space, Weights, dual
from torchperc.rules.states import Errors, StateErrors, decided, pocket_by_runs
from torchperc.samples import digest
from torchperc.samples.parts import as_rows
from torchperc.samples.rows import Rows

_FORMAT = 2
_M = TypeVar("_M", covariant=True)
_Late: TypeAlias = Tensor | Callable[[], Tensor]


class Mistake(NamedTuple):
    """At ``step`` (samples seen before), ``sample`` was taken for the class ``wrong`` and added ``coef`` times."""

    sample: int
    step: int
    coef: float
    wrong: int


class Mistakes:
    """Entries as columns, see :class:`Mistake`; a column may be a function, which is called when it is first used."""

    def __init__(self, sample: _Late, step: _Late, coef: _Late, wrong: _Late, *, count: int | None = None) -> None:
        self._columns = {"sample": sample, "step": step, "coef": coef, "wrong": wrong}
        self._count = len(self.step) if count is None else count

    def __getattr__(self, name: str) -> Tensor:
        if name not in Mistake._fields:
            raise AttributeError(name)
        column = self._columns[name]
        self._columns[name] = value = column if isinstance(column, Tensor) else column()
        return value

    @classmethod
    def of(cls, entries: Sequence[Mistake], device: torch.device | None = None) -> Mistakes:
        """Columns from single entries."""
        sample, step, coef, wrong = zip(*entries, strict=True) if entries else ((), (), (), ())
        whole = [torch.tensor(values, dtype=torch.int64, device=device) for values in (sample, step, wrong)]
        return cls(whole[0], whole[1], torch.tensor(coef, dtype=torch.float64, device=device), whole[2])

    @classmethod
    def joined(cls, parts: Sequence[Mistakes], device: torch.device | None = None) -> Mistakes:
        """The entries of several parts, one after the other."""
        if len(parts) < 2:
            return parts[0] if parts else cls.of((), device)
        whole = tuple(parts)

        def column(name: str) -> Tensor:
            columns = [numpy_view(getattr(part, name)) for part in whole]
            return torch.cat(columns) if isinstance(columns[0], Tensor) else torch.from_numpy(np.concatenate(columns))

        return cls(*(partial(column, name) for name in Mistake._fields), count=sum(map(len, whole)))

    def later(self, steps: int) -> Mistakes:
        """The same entries, so many steps later."""
        return self.replaced(step=lambda: self.step + steps) if steps else self

    def replaced(self, **columns: _Late) -> Mistakes:
        """The same entries with other columns."""
        return Mistakes(**{**self._columns, **columns}, count=len(self))

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Tensor]:
        return (getattr(self, name) for name in Mistake._fields)

    def __reduce__(self) -> tuple[Any, ...]:
        return Mistakes, tuple(self)


class Log(ABC, Generic[_M]):
    """What logs of samples and of sequences have in common; ``_M`` is what :meth:`state_at` returns."""

    steps: int
    epoch_ends: Tensor

    if TYPE_CHECKING:  # a field or a property

        @property
        def step(self) -> Tensor:
            """How many samples were presented before each mistake."""

    def __len__(self) -> int:
        return len(self.step)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self)} mistakes in {self.steps} steps, {len(self.epoch_ends)} epochs)"

    @abstractmethod
    def state_at(self, t: int) -> _M:
        """The weights after the first ``t`` mistakes; ``state_at(0)`` is the start."""

    @abstractmethod
    def errors(self) -> Tensor:
        """The training error of every state, from the start to the last: (len + 1,) in float64."""

    def last(self) -> _M:
        """The weights at the end of training, bit for bit."""
        return self.state_at(len(self))

    @abstractmethod
    def _errors_of_states(self) -> Errors:
        """Counts the training errors of single states."""

    def pocket(self, ratchet: str = "runs") -> _M:
        """The weights that Gallant's pocket algorithm with ratchet keeps.

        A run of weights is the number of samples in a row that they decided without a mistake. The pocket begins with
        the start and a run of 0; weights whose run is longer than that of the pocket replace it if they have fewer
        errors on all training samples.

        Args:
            ratchet: ``"runs"`` as above, which looks at all samples a few times in a whole run; or ``"every"``: the
                weights with the lowest training error that occurred, the earliest of equals. Where every sample that
                was presented was a mistake (``order="random-mistake"``) there are no runs, and both mean the latter.
        """
        return self.state_at(self.pocket_index(ratchet))

    def pocket_index(self, ratchet: str = "runs") -> int:
        """How many mistakes had been made when the :meth:`pocket` weights came up."""
        check_choice("ratchet", ratchet, RATCHETS)
        errors = self._errors_of_states()
        if ratchet == "runs" and self.steps > len(self):
            return pocket_by_runs(self.runs().cpu().numpy(), errors)
        return int(errors.every().argmin())

    def survivals(self) -> Tensor:
        """The number of samples that each state survived, from the start to the last: (len + 1,)."""
        return self.step.diff(prepend=self.step.new_zeros(1), append=self.step.new_tensor([self.steps]))

    def runs(self) -> Tensor:
        """How many samples in a row each state decided without a mistake, from the start to the last: (len + 1,).

        One less than :meth:`survivals`, which counts the sample that a state was learned from, too.
        """
        runs = self.survivals()
        runs[1:] -= 1
        return runs

    def mistakes_by_epoch(self) -> Tensor:
        """Mistakes per epoch: the learning curve."""
        return torch.searchsorted(self.step, self.epoch_ends).diff(prepend=self.step.new_zeros(1))

    def _checked(self, t: int) -> int:
        if check_int("t", t, at_least=0) > len(self):
            raise ValueError(f"t={t} is beyond the log, which has {len(self)} mistakes")
        return t


@dataclass(frozen=True, eq=False, repr=False)
class MistakeLog(Log[Model]):
    """The mistakes of a run in order, bound to the data they were made on.

    Args:
        space: the training samples, which are not copied, and the space in which they are added up.
        y: the labels, −1/+1 or class indices.
        start: the weights before the first sample.
        mistakes: the columns ``index`` (which sample), ``step`` (how many samples were presented before it), ``coef``
            (η·y·(sample weight), or η·(sample weight) with K classes) and ``wrong`` (the class it was taken for).
        steps: how many samples were presented in all.
        epoch_ends: how many samples had been presented by the end of each epoch.
        cost: of an error on each sample, for the pocket; its weight.

    Example:
        >>> import torchperc as tp
        >>> X, y = tp.data.gate("AND")
        >>> log = tp.RuleTrainer().fit(tp.Perceptron(2), X, y).log
        >>> len(log), log[0]
        (18, Mistake(sample=0, step=0, coef=-1.0, wrong=1))
        >>> log.last().bias, log.last().weight
        (tensor([-4.]), tensor([[3., 2.]]))
    """

    space: Space
    y: Tensor
    start: Weights
    mistakes: Mistakes
    steps: int
    epoch_ends: Tensor
    cost: Tensor

    @classmethod
    def of(
        cls,
        space: Space,
        y: Tensor,
        start: Weights,
        mistakes: Mistakes,
        epoch_ends: Sequence[int],
        cost: Tensor | None = None,
    ) -> MistakeLog:
        """A log from its entries, whose coefficients are not scaled."""
        steps, scale = epoch_ends[-1] if epoch_ends else 0, space.scale
        ends = torch.from_numpy(np.array(epoch_ends, np.int64)).to(y.device, non_blocking=True)
        if scale != 1.0:
            unscaled, mistakes = mistakes, mistakes.replaced(coef=lambda: unscaled.coef * scale)
        return cls(space, y, start, mistakes, steps, ends, _ones(y) if cost is None else cost)

    @property
    def index(self) -> Tensor:
        """Which sample, per mistake."""
        return self.mistakes.sample

    @property
    def step(self) -> Tensor:
        """How many samples were presented before each mistake."""
        return self.mistakes.step

    @property
    def coef(self) -> Tensor:
        """η·y·(sample weight), or η·(sample weight) with K classes, per mistake."""
        return self.mistakes.coef

    @property
    def wrong(self) -> Tensor:
        """The class that each sample was taken for."""
        return self.mistakes.wrong

    def __getitem__(self, j: int) -> Mistake:
        return Mistake(int(self.index[j]), int(self.step[j]), float(self.coef[j]), int(self.wrong[j]))

    def __iter__(self) -> Iterator[Mistake]:
        return (Mistake(*entry) for entry in zip(*(column.tolist() for column in self.mistakes), strict=True))

    @cached_property
    def entries(self) -> Entries:
        """The columns that a space works with; coefficients without the factor by which it scales a model."""
        own, coef = self.y[self.index], self.coef
        if self.space.scale != 1.0:
            coef = self.cost[self.index] * (own if self.space.classes is None else 1)
        return Entries(self.index, coef, own, self.wrong)

    # --- the models ---

    def state_at(self, t: int) -> Model:
        """The weights after the first ``t`` mistakes; ``state_at(0)`` is the start."""
        return self.space.replay(self.start, self.entries.part(0, self._checked(t)))

    def averaged(self) -> Model:
        """The mean of the weights after each presented sample: start + Σ cⱼ·(T − tⱼ)/T·x_{iⱼ}."""
        if not self.steps:  # no sample was presented, because none was a mistake: the start is all there is
            return self.state_at(0)
        return self.space.average(self.start, self.entries, self.steps - self.step, self.steps)

    def voted(self) -> VotedModel:
        """Every weight vector votes, as often as the number of samples it survived."""
        return VotedModel((self,))

    def best_validation(self, X: Data, y: Data) -> Model:
        """The weights at the end of the epoch with the lowest error on validation data, the earliest of equals."""
        if X is None or y is None:
            raise TypeError("best_validation needs validation samples X and labels y, found None")
        ends = self.mistakes_by_epoch().cumsum(0) if len(self.epoch_ends) else self.index.new_zeros(1)
        return self.state_at(int(ends[self.errors(X, y)[ends].argmin()]))

    # --- what happened ---

    def dual(self) -> Tensor:
        """The sum of coefficients per training sample: (N,), or (N, K) with K classes."""
        total = dual(len(self.y), self.entries, self.space.classes) * self.space.scale
        return total.squeeze(-1) if self.space.classes is None else total

    def errors(self, X: Data | None = None, y: Data | None = None) -> Tensor:
        """Number of wrong decisions of every state, from the start to the last: (len + 1,) in float64.

        On the training data, which is the default, an error counts its sample's weight. ``errors().cummin(0).values``
        is the training error of ``pocket("every")``.
        """
        if X is None and y is None:
            return self._errors_of_states().every()
        rows = rows_like(self.space.rows, X)
        labels = check_labels(y, len(rows), self.space.classes, both=False).to(self.y.device)
        return self.errors_on(rows, labels, _ones(labels)).every()

    def equals(self, other: MistakeLog) -> bool:
        """Whether two runs made the same mistakes at the same moments with the same coefficients."""
        both = zip(self.mistakes, other.mistakes, strict=True)
        same = (torch.equal(one.cpu(), another.cpu()) for one, another in both)
        return self.steps == other.steps and all(same)

    def errors_on(self, rows: Rows, y: Tensor, cost: Tensor) -> Errors:
        """Counts the wrong decisions of single states on given rows."""
        return StateErrors(self.space, self.start, self.entries, rows, y, cost)

    def _errors_of_states(self) -> Errors:
        return self.errors_on(self.space.rows, self.y, self.cost)

    def bind(self, X: Data, y: Data) -> MistakeLog:
        """The log of a run in several processes, bound to all samples, in their order over the processes.

        Args:
            X: the samples of all processes.
            y: their labels.
        """
        rows = rows_like(self.space.rows, X)
        labels = check_labels(y, len(rows), self.space.classes, both=False).to(self.y.device)
        if not torch.equal(labels, self.y):
            raise ValueError("y are not the labels of this log; give all samples in their order over the processes")
        return replace(self, space=replace(self.space, rows=rows))

    # --- on disk ---

    def save(self, path: str | Path) -> None:
        """Write the log atomically to one file.

        ``.npz``: without pickle; of the data it holds a hash. ``.json``: a log of a linear net with its data, which
        ``torchperc play --log`` shows, see :meth:`to_json`.
        """
        if _is_json(path):
            write_atomically(Path(path), f"{self.to_json()}\n".encode())
            return
        about = {
            "format": _FORMAT,
            "dtype": str(self.space.rows.dtype).removeprefix("torch."),
            "data": self.space.rows.hash(self.y),
            "classes": self.space.classes,
            "bias_scale": self.space.bias_scale,
            "scale": self.space.scale,
            "steps": self.steps,
            **_describe(self.space),
        }
        arrays = {name: getattr(self, name).cpu().numpy() for name in _COLUMNS}
        arrays |= {name: getattr(self.start, name).double().cpu().numpy() for name in _START}
        write_arrays(Path(path), about, arrays)

    @classmethod
    def load(
        cls,
        path: str | Path,
        X: Data | None = None,
        y: Data | None = None,
        *,
        kernel: Callable[[Any, Any], Any] | None = None,
        features: Callable[[Tensor], Tensor] | None = None,
    ) -> MistakeLog:
        """Read a log and bind it to its data; other data are refused.

        Args:
            path: a file that :meth:`save` wrote, or JSON that the interactive page downloaded.
            X: the samples the log was made on; JSON holds them itself, so they may be left out.
            y: their labels.
            kernel: your kernel function, if the run used one.
            features: your joint features φ, if the run used any.
        """
        if _is_json(path):
            _given_as_needed("kernel", kernel, False)
            _given_as_needed("features", features, False)
            return _read_json(cls, Path(path), X, y)
        if X is None or y is None:
            raise TypeError(f"{path} holds a hash of its data only; pass X and y, the data the log was made on")
        about, arrays = read_arrays(Path(path), "mistake log", "classes", (1, _FORMAT))
        check_fit(path, lambda: _known(about, arrays))
        columns = {name: torch.from_numpy(arrays[name]) for name in (*_COLUMNS, *_START)}
        rows = as_rows(X, dtype=getattr(torch, about["dtype"]))
        labels = check_labels(y, len(rows), about["classes"], both=False)
        if rows.hash(labels, "sha256" if len(about["data"]) == 64 else "blake2b") != about["data"]:
            raise ValueError(f"{path} belongs to other data: X and y are not those the log was made on")
        space = _space(about, rows, kernel, features)
        check_fit(path, lambda: _fits(arrays, about["steps"], space))
        weight, bias = (columns.pop(name).to(rows.dtype) for name in _START)
        mistakes = Mistakes(*map(columns.pop, _MISTAKES))
        return cls(space, labels, Weights(weight, bias), mistakes, about["steps"], **columns)

    def to_json(self) -> str:
        """The log of a linear net with its data as JSON: one object, described in ``torchperc/lab/play/js/log.js``.

        Example:
            >>> import torchperc as tp
            >>> X, y = tp.data.gate("AND")
            >>> log = tp.RuleTrainer().fit(tp.Perceptron(2), X, y).log
            >>> MistakeLog.from_json(log.to_json()).last().weight
            tensor([[3., 2.]])
        """
        if type(self.space) is not LinearSpace:
            kind = _describe(self.space)["space"]
            raise ValueError(f"a log of a {kind} run has no weights for each feature; save it as .npz")
        space, rows = self.space, self.space.rows
        columns: dict[str, Any] = {name: getattr(self, name).cpu().numpy() for name in _COLUMNS}
        columns |= {name: getattr(self.start, name).double().cpu().numpy() for name in _START}
        content = log_json.Content(
            points=rows.double().dense().cpu().numpy(),
            labels=self.y.cpu().numpy(),
            classes=space.classes,
            bias_scale=float(space.bias_scale),
            scale=float(space.scale),
            steps=self.steps,
            dtype=str(rows.dtype).removeprefix("torch."),
            **columns,
        )
        return json.dumps(content.entries(), allow_nan=False)

    @classmethod
    def from_json(cls, text: str | bytes) -> MistakeLog:
        """A log from the JSON of :meth:`to_json` or of the interactive page; whatever does not fit is refused."""
        return _of_json(cls, _parsed(text, "text"))


_MISTAKES = ("index", "step", "coef", "wrong")
_COLUMNS = (*_MISTAKES, "epoch_ends", "cost")
_START = ("weight", "bias")


@dataclass(frozen=True, eq=False)
class VotedModel(Model):
    """The vote of all states, weighted by the samples each survived: Σ count·sign(s), or votes per class."""

    logs: tuple[MistakeLog, ...]

    @property
    def classes(self) -> int | None:  # type: ignore[override]  # read-only here
        """As in the logs."""
        return self.logs[0].space.classes

    def _admit(self, X: Data) -> Rows:
        return rows_like(self.logs[0].space.rows, X)

    def row_scores(self, rows: Rows) -> Tensor:
        """Votes: (N, 1) or (N, K)."""
        votes = torch.zeros(len(rows), self.classes or 1, dtype=torch.float64, device=rows.device)
        for log in self.logs:
            counts = log.survivals().double() if log.steps else torch.ones(1, dtype=torch.float64, device=rows.device)
            for block, first, ballots in decided(log.space, log.start, log.entries, rows):
                weight = counts[first : first + ballots.shape[1]]
                if self.classes is None:
                    votes[block, 0] += ballots.double() @ weight
                else:
                    votes[block].scatter_add_(1, ballots, weight.expand_as(ballots))
        return votes


def _is_json(path: str | Path) -> bool:
    return Path(path).suffix.lower() == ".json"


def _parsed(text: str | bytes, name: str) -> log_json.Content:
    try:
        return log_json.parse(text)
    except log_json.FormatError as error:
        raise ValueError(f"{name} is not a mistake log, or is damaged: {error}; save it again") from None


def _of_json(cls: type[MistakeLog], content: log_json.Content, rows: Rows | None = None) -> MistakeLog:
    """A log on its own data, or on the same as they are given."""
    dtype = getattr(torch, content.dtype)
    rows = as_rows(torch.from_numpy(content.points).to(dtype), dtype=dtype) if rows is None else rows
    space = LinearSpace(rows, content.classes, content.bias_scale, scale=content.scale)
    start = Weights(*(torch.from_numpy(getattr(content, name)).to(dtype) for name in _START))
    columns = {name: torch.from_numpy(getattr(content, name)) for name in _COLUMNS}
    mistakes = Mistakes(*map(columns.pop, _MISTAKES))
    return cls(space, torch.from_numpy(content.labels), start, mistakes, content.steps, **columns)


def _read_json(cls: type[MistakeLog], path: Path, X: Data | None, y: Data | None) -> MistakeLog:
    """A log from a JSON file, bound to these data if they are given."""
    if (X is None) != (y is None):
        raise TypeError(f"{'X' if X is None else 'y'} is missing; pass X and y, the data of the log, or neither")
    content = _parsed(path.read_bytes(), str(path))
    log = _of_json(cls, content)
    if X is None:
        return log
    rows = as_rows(X, dtype=log.space.rows.dtype)
    labels = check_labels(y, len(rows), log.space.classes, both=False)
    if not (torch.equal(rows.dense(), log.space.rows.dense()) and torch.equal(labels, log.y)):
        raise ValueError(f"{path} belongs to other data: X and y are not those the log was made on")
    return _of_json(cls, content, rows)


def _ones(y: Tensor) -> Tensor:
    """A cost of 1 per label."""
    return torch.ones(len(y), dtype=torch.float64, device=y.device)


def _describe(space: Space) -> dict[str, Any]:
    if isinstance(space, KernelSpace):
        name = space.kernel.name if isinstance(space.kernel.name, str) else "function"
        return {"space": "kernel", "kernel": name, "degree": space.kernel.degree, "gamma": space.kernel.gamma}
    if isinstance(space, JointSpace):
        block = isinstance(space.features, partial) and space.features.func is tpf.joint_features
        return {"space": "joint", "block_bias": space.features.keywords.get("bias", True) if block else None}  # type: ignore[attr-defined]
    return {"space": "linear"}


def _space(
    about: dict[str, Any],
    rows: Rows,
    kernel: Callable[[Any, Any], Any] | None,
    features: Callable[[Tensor], Tensor] | None,
) -> Space:
    common, scale = (rows, about["classes"], about["bias_scale"]), about.get("scale", 1.0)  # 0.1.0 learned as it read
    _given_as_needed("kernel", kernel, about.get("kernel") == "function")
    _given_as_needed("features", features, about["space"] == "joint" and about["block_bias"] is None)
    if about["space"] == "kernel":
        return KernelSpace(*common, Kernel(kernel or about["kernel"], about["degree"], about["gamma"]), scale=scale)
    if about["space"] == "joint":
        block = partial(tpf.joint_features, num_classes=about["classes"], bias=about["block_bias"])
        return JointSpace(*common, features or block, scale=scale)
    return LinearSpace(*common, scale=scale)


def _known(about: dict[str, Any], arrays: dict[str, np.ndarray[Any, Any]]) -> bool:
    """Whether a description names a type and classes that there are, and all columns hold numbers."""
    check_float_dtype("dtype", getattr(torch, about["dtype"]))
    if about["classes"] is not None:
        check_int("classes", about["classes"], at_least=2)
    return all(arrays[name].dtype.kind in "if" for name in (*_COLUMNS, *_START))


def _fits(arrays: dict[str, np.ndarray[Any, Any]], steps: object, space: Space) -> bool:
    """Whether a log read from a file stays within its samples and classes."""
    count, classes, (weight, bias) = len(arrays["index"]), space.classes, (arrays[name] for name in _START)
    outputs = 1 if classes is None else classes
    return (
        holds_integers(arrays["index"], count, 0, len(space.rows))
        and holds_integers(arrays["wrong"], count, *((-1, 2) if classes is None else (0, classes)))
        and holds_moments(arrays, count, steps)
        and holds_numbers(arrays["coef"], (count,))
        and holds_numbers(arrays["cost"], (len(space.rows),))
        and (type(space) is not LinearSpace or weight.shape == (outputs, space.rows.width))
        and (type(space) is not LinearSpace or bias.shape == (outputs,))
    )


def check_fit(path: str | Path, fits: Callable[[], bool]) -> None:
    """Refuse a file whose checksum is right and whose arrays are not: loops would read and write outside of them."""
    try:
        fine = fits()
    except (AttributeError, KeyError, TypeError, ValueError):  # something is missing, or of another kind
        fine = False
    if not fine:
        raise ValueError(f"{path} does not hold a log that fits its data; save it again")


def holds_integers(
    array: np.ndarray[Any, Any], count: int, low: int, stop: int, dtype: type[np.signedinteger[Any]] = np.int64
) -> bool:
    """Whether an array has so many integers of a type, from ``low`` to ``stop`` − 1.

    Example:
        >>> holds_integers(np.array([0, 2]), 2, 0, 3), holds_integers(np.array([0, 2]), 2, 0, 2)
        (True, False)
    """
    fine = array.dtype == dtype and array.shape == (count,)
    return bool(fine and (not count or (array.min() >= low and array.max() < stop)))


def holds_numbers(array: np.ndarray[Any, Any], shape: tuple[int, ...]) -> bool:
    """Whether an array has finite numbers of a shape."""
    return bool(array.dtype == np.float64 and array.shape == shape and np.isfinite(array).all())


def holds_moments(arrays: dict[str, np.ndarray[Any, Any]], count: int, steps: object) -> bool:
    """Whether the steps of mistakes and the ends of epochs lie within the steps of a run."""
    stop, ends = check_int("steps", steps, at_least=0) + 1, arrays["epoch_ends"]
    return holds_integers(arrays["step"], count, 0, stop) and holds_integers(ends, len(ends), 0, stop)


def _given_as_needed(name: str, value: object, needed: bool) -> None:
    if needed and not callable(value):
        raise ValueError(f"{name}={value!r}, but this log was made with a function of your own; pass it again")
    if value is not None and not needed:
        raise ValueError(f"{name} was given, but this log was made without a function of your own; leave it out")


def write_arrays(path: Path, about: dict[str, Any], arrays: dict[str, Any]) -> None:
    """Write arrays and a description atomically to one ``.npz`` file, with a checksum."""
    arrays = {**arrays, "about": np.array(json.dumps(about))}
    content = io.BytesIO()
    np.savez_compressed(content, **arrays, checksum=np.array(digest.of_named(arrays)))
    write_atomically(path, content.getvalue())


def read_arrays(
    path: Path, kind: str, key: str, formats: tuple[int, ...]
) -> tuple[dict[str, Any], dict[str, np.ndarray[Any, Any]]]:
    """Read what :func:`write_arrays` wrote; ``key`` is what only a description of this kind has."""
    content = path.read_bytes()
    try:
        if not content.startswith(b"PK"):
            raise ValueError("it is no .npz file")
        with np.load(io.BytesIO(content), allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        if str(arrays.pop("checksum")) != digest.of_named(arrays):
            raise ValueError("its checksum does not match")
        about = json.loads(str(arrays.pop("about")))
        version, _ = about["format"], about[key]
    except Exception as error:  # whatever zip, zlib, numpy and json make of a damaged file
        raise ValueError(f"{path} is not a {kind}, or is damaged ({error}); save it again") from None
    if version not in formats:
        known = f"format{'s' * (len(formats) > 1)} {' and '.join(map(str, formats))}"
        raise ValueError(f"{path} has log format {version!r}; this torchperc reads {known}")
    return about, arrays
