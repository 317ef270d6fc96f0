"""What runs and logs of sequences are made of: epochs, verdict, selection, pocket, and files of arrays."""

from __future__ import annotations

import io
import json
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import astuple
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeAlias, TypeVar

import numpy as np
import torch
from torch import Tensor

from torchperc._checks import check_choice, check_int, weights_overflow
from torchperc._files import write_atomically
from torchperc.rules.conventions import RATCHETS, Verdict
from torchperc.rules.orders import Order
from torchperc.rules.run import EpochRecord, RuleResult
from torchperc.samples import digest

if TYPE_CHECKING:
    from torchperc.theory.certificate import Certificate

_Array: TypeAlias = "np.ndarray[Any, Any]"
_M = TypeVar("_M", covariant=True)
_R = TypeVar("_R", bound=RuleResult)


class Errors(Protocol):
    """Counts the errors of some states on all samples."""

    everything: float
    """What a state costs that decides every sample wrongly."""

    def of(self, states: Sequence[int]) -> list[float]:
        """The cost of errors of states in ascending order, each later than those of the call before."""

    def every(self) -> Tensor:
        """The cost of errors of all states, from the start to the last, in float64."""


def pocket_by_runs(runs: _Array, errors: Errors) -> int:
    """Return the state that Gallant's pocket with ratchet holds in the end.

    The pocket begins with the start, a run of 0 and no sample decided correctly. A state whose run is longer than the
    pocket's takes its place if it has fewer errors on all samples.

    Args:
        runs: how many samples each state survived, (S,).
        errors: counts the errors of the states that are asked for, each at most once.

    Example:
        >>> class Few:
        ...     everything = 10.0
        ...     def of(self, states):
        ...         return [[9.0, 5.0, 2.0, 6.0, 3.0][state] for state in states]
        >>> pocket_by_runs(np.array([0, 2, 1, 3, 4]), Few())
        4
    """
    pocket, run, fewest, first = 0, 0, errors.everything, 0
    while len(longer := np.flatnonzero(runs[first:] > run)):
        state = first + int(longer[0])
        count, first = errors.of([state])[0], state + 1
        if count < fewest:
            pocket, run, fewest = state, int(runs[state]), count
    return pocket


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


class Run(ABC, Generic[_R]):
    """Epochs, verdict, selection and checkpoint of a run, whatever it learns; a subclass makes the passes."""

    _results: type[_R]
    _misfit = "another lr"  # what else a saved run was made with, if its scale differs

    def __init__(
        self,
        engine: Any,
        start: Any,
        order: Order,
        *,
        max_epochs: int,
        select: str,
        cost: Any,
        scale: float,
        total: float,
        seen: dict[bytes, int],
        validation: tuple[Any, Any] | None,
    ) -> None:
        self.verdict: Verdict | None = None
        self.history: list[EpochRecord] = []
        self.cycle: tuple[int, int] | None = None
        self._engine, self._start, self._order = engine, start, order
        self._max_epochs, self._select, self._cost, self._validation = max_epochs, select, cost, validation
        self._scale, self._total, self._seen = scale, total, seen
        self._ends: list[int] = []

    @property
    @abstractmethod
    def rows(self) -> Any:
        """The training samples."""

    @abstractmethod
    def current(self) -> Any:
        """The model with the weights as they are now."""

    @abstractmethod
    def log(self) -> Any:
        """The mistakes so far."""

    @abstractmethod
    def _pass(self, presented: int) -> int:
        """Present all samples, the first of them after so many others; return the number of mistakes."""

    @abstractmethod
    def _norm(self) -> float:
        """The norm of the weights before they are scaled."""

    @abstractmethod
    def _digest(self) -> bytes:
        """A hash of the weights, by which they are recognised when they come back."""

    @abstractmethod
    def _any_wrong(self) -> bool:
        """Whether any sample that takes part is decided wrongly."""

    @abstractmethod
    def _validation_counts(self, X: Any, y: Any) -> tuple[int, int]:
        """How many decisions on validation data are wrong, and how many there are."""

    @property
    def count(self) -> int:
        """The number of training samples, in all processes."""
        return len(self.rows)

    @torch.no_grad()
    def epoch(self) -> EpochRecord:
        """Make one pass, record what happened, and settle the verdict if possible."""
        made = self._pass(self._ends[-1] if self._ends else 0)
        norm = self._norm()
        if not math.isfinite(norm):
            raise weights_overflow()
        upper = norm / self._total if self._total > 0 else None
        record = EpochRecord(len(self.history) + 1, made, norm * self._scale, self._validation_error(), upper)
        self.history.append(record)
        self.verdict = self._judge(record)
        return record

    @torch.no_grad()
    def result(self) -> _R:
        """The log so far, the verdict (``BUDGET`` while there is none) and the selected model."""
        if not self.history:
            raise ValueError("the run has made no epoch yet, so there is no result; call epoch() first")
        log, verdict = self.log(), self.verdict or Verdict.BUDGET
        model, proof = self._selected(log), self._proof(verdict)
        return self._results(verdict, log, tuple(self.history), self._select, model, self.cycle, proof)

    def write_to(self, net: Any) -> None:
        """Write into a net what is known of the selected weights: averaged, for a vote too, else the current ones."""
        (self._averaged() if self._select in ("averaged", "voted") else self.current()).write_to(net)

    def state_dict(self) -> dict[str, Any]:
        """Everything needed to resume exactly, as tensors and plain types."""
        return {
            "data": self._data,
            "ends": list(self._ends),
            "history": [astuple(record) for record in self.history],
            "seen": {state.hex(): epoch for state, epoch in self._seen.items()},
            "cycle": self.cycle,
            "verdict": None if self.verdict is None else self.verdict.value,
            "scale": self._scale,
            "order": self._order.state_dict(),
            "total": self._total,
        }

    @cached_property
    def _data(self) -> str:
        digest: str = self.rows.hash(self._engine.task.y)
        return digest

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume from a :meth:`state_dict`, on the same data."""
        if state["data"] != self._data:
            raise ValueError("the saved run belongs to other data: X and y are not those it was made on")
        if state.get("scale", 1.0) != self._scale:
            raise ValueError(f"the saved run was made with {self._misfit}; start it anew")
        self._ends = list(state["ends"])
        self.history = [EpochRecord(*record) for record in state["history"]]
        self._seen = {bytes.fromhex(key): epoch for key, epoch in state["seen"].items()}
        self.cycle = None if state["cycle"] is None else (state["cycle"][0], state["cycle"][1])
        self.verdict = None if state["verdict"] is None else Verdict(state["verdict"])
        self._order.load_state_dict(state["order"])
        self._total = state["total"]

    def _proof(self, verdict: Verdict) -> Certificate | None:
        """Whether the samples are separable, if that is to be proved."""
        return None

    def _judge(self, record: EpochRecord) -> Verdict | None:
        clean = record.mistakes == 0 or self._order.no_mistake_left
        all_seen = clean and self._order.covers(record.epoch - 1)
        # a strict tie passes over scores of 0 on the wrong side, and an explicit order may leave samples out
        sure = self._engine.task.tie != "strict" and all_seen
        if clean and (sure or not self._any_wrong()):
            return Verdict.SEPARATED
        if self._order.repeats or all_seen:
            before = self._seen.setdefault(self._digest(), record.epoch)
            self.cycle = (before, record.epoch) if before < record.epoch else None
        if self.cycle is None and record.epoch < self._max_epochs:
            return None
        verdict = Verdict.BUDGET if self.cycle is None else Verdict.CYCLING
        certificate = self._proof(verdict)
        if certificate is not None and certificate.separable is False:
            self.cycle = None
            return Verdict.NOT_SEPARABLE
        return verdict

    def _validation_error(self) -> float | None:
        if self._validation is None:
            return None
        wrong, count = self._validation_counts(*self._validation)
        return wrong / count

    def _selected(self, log: Any) -> Any:
        if self._select == "last":
            return self.current()
        if self._select == "pocket":
            return log.pocket()
        if self._select != "best-validation":
            return self._averaged() if self._select == "averaged" else log.voted()
        judged = [record for record in self.history if record.validation_error is not None]
        if not judged:
            raise ValueError("select='best-validation' needs validation data, and no epoch was validated")
        best = min(judged, key=lambda record: (record.validation_error, record.epoch))
        return self._after_epoch(log, best.epoch)

    def _averaged(self) -> Any:
        return self.log().averaged()

    def _after_epoch(self, log: Any, epoch: int) -> Any:
        return log.state_at(sum(record.mistakes for record in self.history[:epoch]))


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
