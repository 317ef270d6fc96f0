"""The harness: contenders take turns in one process, and what they learned is compared beside every time.

A ratio of two times says something only if both ran under the same conditions and did the same work. So the contenders
of a comparison run round by round, each once a round, the first place going round; the best of the rounds counts, and
how far the worst is from it is told. Each round's results are compared, outside the times.

Each round is made twice: on an idle machine, and beside a process that keeps one core busy, as other work does on most
machines. Calls that wait for a thread pool show it there.
"""

from __future__ import annotations

import gc
import shutil
import statistics
import subprocess
import sys
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import torch

from torchperc._checks import check_choice, check_int, check_number

GOALS = ("at least", "at most", "within", "seconds")
Clock = Callable[[], float]
Times = Mapping[str, list[float]]
Progress = Callable[[str], None]


@dataclass(frozen=True)
class Goal:
    """What is asked of our side, against one contender.

    With r = their time for a row / ours: ``"at least"`` r ≥ value · ``"at most"`` 1/r ≤ value · ``"within"`` both r and
    1/r ≤ value · ``"seconds"`` our own seconds ≤ value, whatever the others take.

    Args:
        kind: one of these.
        value: the number.

    Example:
        >>> Goal("at least", 3).met(ratio=3.5, seconds=1.0), Goal("at most", 1.2).met(ratio=0.5, seconds=1.0)
        (True, False)
        >>> Goal("at most", 1.25).tick, Goal("seconds", 0.2).text
        (0.8, '≤ 0.2 s')
    """

    kind: str
    value: float

    def __post_init__(self) -> None:
        check_choice("kind", self.kind, GOALS)
        check_number("value", self.value, above=0)

    def met(self, ratio: float, seconds: float) -> bool:
        """Whether our side does what is asked."""
        return {
            "at least": ratio >= self.value,
            "at most": self.value * ratio >= 1,
            "within": max(ratio, 1 / ratio) <= self.value,
            "seconds": seconds <= self.value,
        }[self.kind]

    @property
    def tick(self) -> float | None:
        """The ratio at which the goal is just met; ``None`` if it is not one of ratios, or of a band of them."""
        return {"at least": self.value, "at most": 1 / self.value}.get(self.kind)

    @property
    def text(self) -> str:
        """The goal in a few signs."""
        sign = {"at least": "≥ {}×", "at most": "cost ≤ {}×", "within": "within {}×", "seconds": "≤ {} s"}[self.kind]
        return sign.format(f"{self.value:,.4g}" if self.value < 1000 else f"{self.value:,.0f}")


@dataclass(frozen=True)
class Contender:
    """Something that is timed.

    Args:
        name: in the table.
        call: what is timed; what it returns is compared.
        rows: the samples that one call presents, epochs counted, by which times become comparable.
        goal: asked of our side against this contender.
        threads: for torch, BLAS and OpenMP while it runs; as many as they have now if ``None``.
        seconds: takes the time from what the call returns, for calls that bring their own; the clock's if ``None``.
        needs: the library it comes from, if torchperc does without; a contender whose library is not there is left out.

    Example:
        >>> Contender("sum", lambda: sum(range(10)), rows=10).call()
        45
        >>> Contender("sum", int, rows=10, needs="a_library_of_nobody").missing
        'a_library_of_nobody is not installed'
    """

    name: str
    call: Callable[[], Any]
    rows: int
    goal: Goal | None = None
    threads: int | None = None
    seconds: Callable[[Any], float] | None = None
    needs: str | None = None

    @property
    def missing(self) -> str | None:
        """Why it cannot run here; ``None`` if it can."""
        if self.needs is None or find_spec(self.needs) is not None:
            return None
        return f"{self.needs} is not installed"


@dataclass(frozen=True)
class Finding:
    """What a comparison of results found: as it should be, or not, or nothing to compare with; and in words.

    Example:
        >>> Finding(True, "same weights").ok
        True
    """

    ok: bool | None
    text: str


@dataclass(frozen=True)
class Comparison:
    """Contenders on the same data; the first is ours.

    Args:
        title: which data.
        contenders: ours first.
        check: from the results of a round, by name, to a finding about each contender it can say something about.

    Example:
        >>> both = [Contender("ours", lambda: 3, 1), Contender("theirs", lambda: 3, 1)]
        >>> Comparison("three", both, lambda results: {"theirs": Finding(results["theirs"] == 3, "three")})
        Comparison('three', ours, theirs)
    """

    title: str
    contenders: Sequence[Contender]
    check: Callable[[Mapping[str, Any]], Mapping[str, Finding]]

    def __repr__(self) -> str:
        return f"Comparison({self.title!r}, {', '.join(contender.name for contender in self.contenders)})"

    @property
    def present(self) -> list[Contender]:
        """Those that can run here."""
        return [contender for contender in self.contenders if contender.missing is None]

    @property
    def absent(self) -> dict[str, str]:
        """Those that cannot, and why."""
        return {contender.name: contender.missing for contender in self.contenders if contender.missing is not None}


@dataclass(frozen=True)
class Row:
    """One contender of one comparison, measured.

    Args:
        case: the name of the case.
        comparison: the title of the comparison.
        contender: its name.
        rows: samples presented in a call.
        times: seconds of each round.
        ratio: their best time for a row / our best time for a row; 1 for ours.
        finding: what the comparison of results said, ``None`` if nothing.
        goal: what was asked.
        met: whether our side did it; ``None`` if nothing was asked.
        busy: the same seconds with a busy core; none if that was not measured.
        busy_ratio: the ratio of those, ``None`` without them.

    Example:
        >>> row = Row("case", "data", "ours", 1000, (0.25, 0.2, 0.3), 1.0, None, None, None)
        >>> row.best, row.median, round(row.spread, 3), round(row.microseconds, 6)
        (0.2, 0.25, 0.5, 200.0)
    """

    case: str
    comparison: str
    contender: str
    rows: int
    times: tuple[float, ...]
    ratio: float
    finding: Finding | None
    goal: Goal | None
    met: bool | None
    busy: tuple[float, ...] = ()
    busy_ratio: float | None = None

    @property
    def best(self) -> float:
        """The least of the seconds."""
        return min(self.times)

    @property
    def median(self) -> float:
        """The middle of the seconds."""
        return statistics.median(self.times)

    @property
    def spread(self) -> float:
        """(worst − best) / best."""
        return (max(self.times) - self.best) / self.best

    @property
    def microseconds(self) -> float:
        """Best time for a row, in µs."""
        return 1e6 * self.best / self.rows

    @property
    def differs(self) -> bool:
        """Whether its results are not what they should be."""
        return self.finding is not None and self.finding.ok is False


def measure(
    comparison: Comparison,
    *,
    case: str = "",
    rounds: int = 5,
    warm_up: bool = True,
    judge: bool = True,
    busy: bool = False,
    clock: Clock = time.perf_counter,
    progress: Progress | None = None,
) -> list[Row]:
    """Time the contenders of a comparison in turns, and compare what they learned after each turn.

    Args:
        comparison: what is timed.
        case: the name that the rows carry.
        rounds: how often each is timed.
        warm_up: run everything once before, so that no time includes what is compiled or loaded at first use.
        judge: hold the times against the goals; without, the goals are left out. Goals are about an idle machine,
            those of kind ``"at most"`` about one with a busy core, too.
        busy: make each round once more beside a :func:`neighbour`.
        clock: seconds.
        progress: told what runs.

    Returns:
        A row for each contender, ours first.

    Example:
        >>> ticks = iter(range(100))
        >>> goal = Goal("at least", 2)
        >>> both = [Contender("ours", lambda: 3, rows=10), Contender("theirs", lambda: 4, rows=5, goal=goal)]
        >>> equal = lambda results: {"theirs": Finding(results["ours"] == results["theirs"], "equal?")}
        >>> rows = measure(Comparison("three", both, equal), clock=lambda: float(next(ticks)))
        >>> rows[1].best, rows[1].ratio, rows[1].met, rows[1].differs
        (1.0, 2.0, True, True)
    """
    check_int("rounds", rounds, at_least=1)
    contenders = comparison.present
    idle: Times = {contender.name: [] for contender in contenders}
    loaded: Times = {contender.name: [] for contender in contenders}
    findings: dict[str, Finding] = {}

    def turn(number: int, times: Times, what: str) -> None:
        results = {}
        for contender in _turns(contenders, number):
            if progress is not None:
                progress(f"{comparison.title}: {contender.name}, {what}")
            seconds, results[contender.name] = _timed(contender, clock)
            times[contender.name].append(seconds)
        for name, finding in comparison.check(results).items():
            if findings.get(name) is None or findings[name].ok is not False:  # a difference once found stays
                findings[name] = finding

    if warm_up:
        gc.collect()  # once is enough: the calls leave little, and collecting takes a moment in a large process
        turn(-1, {contender.name: [] for contender in contenders}, "warm-up")
    for number in range(rounds):
        turn(number, idle, f"round {number + 1}")
        if busy:
            with neighbour():
                turn(number, loaded, f"round {number + 1}, with a busy core")
    return _rows(comparison, case, idle, loaded, findings, judge)


def with_folder(comparison: Comparison, folder: str) -> Comparison:
    """A comparison whose calls need a folder, which is removed when the comparison is."""
    weakref.finalize(comparison, shutil.rmtree, folder, ignore_errors=True)
    return comparison


def _turns(contenders: Sequence[Contender], number: int) -> list[Contender]:
    """The contenders of a round, the first place going round."""
    first = number % len(contenders)
    return [*contenders[first:], *contenders[:first]]


def _timed(contender: Contender, clock: Clock) -> tuple[float, Any]:
    with threads(contender.threads), _no_collection():
        start = clock()
        result = contender.call()
        seconds = clock() - start
    return seconds if contender.seconds is None else contender.seconds(result), result


def _rows(
    comparison: Comparison, case: str, idle: Times, loaded: Times, findings: Mapping[str, Finding], judge: bool
) -> list[Row]:
    ours = comparison.contenders[0]

    def ratio(contender: Contender, times: Times) -> float:
        return (min(times[contender.name]) / contender.rows) / (min(times[ours.name]) / ours.rows)

    rows = []
    for contender in comparison.present:
        name, goal = contender.name, contender.goal if judge else None
        taken, with_load = tuple(idle[name]), tuple(loaded[name])
        own, busy_ratio = ratio(contender, idle), ratio(contender, loaded) if with_load else None
        met = None if goal is None else goal.met(own, min(idle[ours.name]))
        if goal is not None and goal.kind == "at most" and busy_ratio is not None:
            met = met and goal.met(busy_ratio, min(loaded[ours.name]))
        found = findings.get(name)
        rows.append(
            Row(case, comparison.title, name, contender.rows, taken, own, found, goal, met, with_load, busy_ratio)
        )
    return rows


_SPIN = "import os\nparent = os.getppid()\nwhile os.getppid() == parent:\n    sum(range(10**5))"


@contextmanager
def neighbour() -> Iterator[subprocess.Popen[bytes]]:
    """A process that keeps one core busy, for as long as this lasts; it also ends if this process does.

    Example:
        >>> with neighbour() as process:
        ...     process.poll() is None
        True
        >>> process.poll() is None
        False
    """
    with subprocess.Popen([sys.executable, "-S", "-c", _SPIN]) as process:
        try:
            yield process
        finally:
            process.kill()


@contextmanager
def threads(count: int | None) -> Iterator[None]:
    """Give torch, BLAS, OpenMP and numba this many threads for a while; as they are if ``None``.

    Example:
        >>> before = torch.get_num_threads()
        >>> with threads(1):
        ...     torch.get_num_threads()
        1
        >>> torch.get_num_threads() == before
        True
    """
    if count is None:
        yield
        return
    check_int("threads", count, at_least=1)
    with ExitStack() as undo:
        undo.callback(torch.set_num_threads, torch.get_num_threads())
        torch.set_num_threads(count)
        numba = sys.modules.get("numba")
        if numba is not None:
            undo.callback(numba.set_num_threads, numba.get_num_threads())
            numba.set_num_threads(min(count, numba.config.NUMBA_NUM_THREADS))
        pools = sys.modules.get("threadpoolctl")  # which comes with scikit-learn
        if pools is not None:
            undo.enter_context(pools.threadpool_limits(count))
        yield


@contextmanager
def _no_collection() -> Iterator[None]:
    """Keep the garbage collector out of the times, as ``timeit`` does."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()
