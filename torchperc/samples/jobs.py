"""Work that is spread: by joblib over processes or machines, as ``joblib.parallel_config`` says; over threads."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import pairwise
from typing import Any, TypeVar

from torchperc._checks import Option, ParameterError, check_int, require_packages

_PER_WORKER = 4  # chunks per worker, so that none waits long for the last
T = TypeVar("T")
R = TypeVar("R")


def workers(n_jobs: int | None) -> int:
    """How many workers joblib has for ``n_jobs``; 0 if nothing is to be spread, without it or a context of it.

    Example:
        >>> workers(None), workers(2)
        (0, 2)
    """
    if n_jobs is not None:
        if check_int("n_jobs", n_jobs, at_least=-(2**31)) == 0:
            raise ParameterError(Option("n_jobs", n_jobs), " must not be 0; -1 means all cores")
        require_packages("n_jobs", "joblib")
    elif "joblib" not in sys.modules:  # so there is no context of it either
        return 0
    import joblib

    found = int(joblib.effective_n_jobs(n_jobs))
    return 0 if n_jobs is None and found == 1 else found


def spread(function: Callable[..., R], items: Sequence[T], n_jobs: int | None, *args: Any) -> list[R]:
    """What a function returns for chunks of the items, in their order: ``function(chunk, *args)``.

    Example:
        >>> spread(sum, range(10), 1)
        [1, 9, 11, 24]
    """
    import joblib

    count = min(len(items), _PER_WORKER * max(1, workers(n_jobs)))
    bounds = [len(items) * number // count for number in range(count + 1)]
    calls = (joblib.delayed(function)(items[a:b], *args) for a, b in pairwise(bounds))
    return list(joblib.Parallel(n_jobs=n_jobs)(calls))


def in_order(function: Callable[[T], R], items: Iterable[T], jobs: int, waits: Callable[[], bool]) -> Iterator[R]:
    """What a function gives for each item, in their order; so many at a time, and few more in memory.

    If the next item has to be waited for, all results so far are given first. A thread that reads ahead would do the
    same, but nothing ends one that waits for standard input.
    """
    if jobs == 1:
        yield from map(function, items)
        return
    with ThreadPoolExecutor(jobs) as pool:
        waiting: deque[Future[R]] = deque()
        try:
            for item in items:
                waiting.append(pool.submit(function, item))
                while waiting and (len(waiting) > 2 * jobs or waiting[0].done() or waits()):
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for left in waiting:
                left.cancel()
