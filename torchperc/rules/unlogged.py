"""Training by rule that keeps no log: the last weights, their average and the number of mistakes remain."""

from __future__ import annotations

from typing import Any, NoReturn

import torch

from torchperc.rules.conventions import Verdict
from torchperc.rules.log import MistakeLog, Mistakes
from torchperc.rules.models import Model
from torchperc.rules.run import RuleResult, RuleRun
from torchperc.rules.spaces import Entries, LinearSpace, dual

_NO_LOG = "log='off' keeps no log of the mistakes; use RuleTrainer(log='on')"


class UnloggedResult(RuleResult):
    """What training by rule returns with ``log="off"``: everything but the log."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.verdict.name}, {self.mistakes} mistakes, select={self.select!r})"

    @property
    def log(self) -> MistakeLog:
        """Not kept."""
        raise AttributeError(_NO_LOG)

    @log.setter
    def log(self, log: MistakeLog | None) -> None:
        """Keep nothing of it."""

    @classmethod
    def of(cls, result: RuleResult) -> UnloggedResult:
        """The same result without its log."""
        about = (result.history, result.select, result.model, result.cycle, result.certificate, result.average)
        return cls(result.verdict, None, *about)  # type: ignore[arg-type]


class UnloggedRun(RuleRun):
    """A run whose mistakes are counted, and summed up per sample where an average is asked for.

    Σ c·(T − t) over the mistakes of a sample is T·Σ c − Σ c·t, so that two numbers per sample make the average at any
    time.
    """

    _results = UnloggedResult

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        space, y = self._engine.task.space, self._engine.task.y
        assert isinstance(space, LinearSpace)
        self._space = space
        shape = (2, len(y), space.outputs) if self._select == "averaged" else (2, 0, space.outputs)
        self._sums = torch.zeros(shape, dtype=torch.float64, device=y.device)

    def _pass(self, presented: int) -> int:
        made = super()._pass(presented)
        found, self._mistakes, self._unsaved = Mistakes.joined(self._mistakes, self._sums.device), [], []
        if self._select == "averaged":
            entries = Entries(found.sample, found.coef, self._engine.task.y[found.sample], found.wrong)
            timed = entries._replace(coef=entries.coef * found.step)
            for total, each in zip(self._sums, (entries, timed), strict=True):
                total += dual(len(total), each, self._space.classes)
        return made

    def log(self) -> NoReturn:
        """Not kept."""
        raise AttributeError(_NO_LOG)

    @torch.no_grad()
    def result(self) -> UnloggedResult:
        """The verdict (``BUDGET`` while there is none) and the selected model."""
        if not self.history:
            raise ValueError("the run has made no epoch yet, so there is no result; call epoch() first")
        verdict = self.verdict or Verdict.BUDGET
        model = self._averaged() if self._select == "averaged" else self.current()
        about = (tuple(self.history), self._select, model, self.cycle, self._proof(verdict))
        return UnloggedResult(verdict, None, *about)  # type: ignore[arg-type]

    def _averaged(self) -> Model:
        steps, (plain, timed) = self._ends[-1], self._sums
        if not steps:  # no sample was presented, because none was a mistake: the start is all there is
            return self._space.model(self._start.clone())
        return self._space.mean(self._space.total_by(self._start, plain * steps - timed, steps), steps)

    def state_dict(self) -> dict[str, Any]:
        """Everything needed to resume exactly, as tensors and plain types."""
        return {**super().state_dict(), "sums": self._sums.clone()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume from a :meth:`state_dict`, on the same data."""
        if "sums" not in state:
            raise ValueError("the saved run was made with log='on'; resume it with that")
        super().load_state_dict(state)
        self._mistakes = []
        self._sums.copy_(state["sums"])
