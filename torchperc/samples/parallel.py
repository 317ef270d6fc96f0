"""Work spread over threads, and by joblib over processes or machines, as ``joblib.parallel_config`` says."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeVar

import lazy_loader

from torchperc._checks import Option, ParameterError, check_int, require_packages

if TYPE_CHECKING:
    import torch
else:
    torch = lazy_loader.load("torch")

_CHUNKS_PER_WORKER = 4  # so that none waits long for the last
T = TypeVar("T")
R = TypeVar("R")


def cores() -> int:
    """Return the number of threads that may run: torch's setting, within what this process is given."""
    given = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    loaded = "torch.nn" in sys.modules
    return min(torch.get_num_threads() if loaded else int(os.environ.get("OMP_NUM_THREADS") or given), given)


def threads(n_jobs: int | None, by_default: int | None = None) -> int:
    """Return the number of threads that ``n_jobs`` asks for (−1: all cores).

    Example:
        >>> threads(3), threads(None, 1), threads(-1) == threads(None) == cores()
        (3, 1, True)
    """
    if n_jobs is None:
        return cores() if by_default is None else by_default
    return cores() if _check_jobs(n_jobs, -1) == -1 else n_jobs


def _check_jobs(n_jobs: int, at_least: int) -> int:
    if check_int("n_jobs", n_jobs, at_least=at_least) == 0:
        raise ParameterError(Option("n_jobs", n_jobs), " must not be 0; -1 means all cores")
    return n_jobs


def map_chunks(function: Callable[[int, int], Any], count: int, n_threads: int | None = None) -> None:
    """Call a function on stretches from first to end that cover ``count``, in several threads.

    Example:
        >>> map_chunks(lambda first, end: print(first, end), 1)
        0 1
    """
    n_threads = n_threads or cores()
    parts = max(1, min(count, 8 * n_threads)) if n_threads > 1 else 1
    bounds = [count * part // parts for part in range(parts + 1)]
    with ThreadPoolExecutor(min(n_threads, parts)) as pool:
        list(pool.map(function, bounds[:-1], bounds[1:]))


def joblib_workers(n_jobs: int | None) -> int:
    """Return the number of joblib workers for ``n_jobs``; 0 without it and without a context of joblib.

    Example:
        >>> joblib_workers(None), joblib_workers(2)
        (0, 2)
    """
    if n_jobs is not None:
        _check_jobs(n_jobs, -(2**31))
        require_packages("n_jobs", "joblib")
    elif "joblib" not in sys.modules:  # so there is no context of it either
        return 0
    import joblib

    found = int(joblib.effective_n_jobs(n_jobs))
    return 0 if n_jobs is None and found == 1 else found


def joblib_map(function: Callable[..., R], items: Sequence[T], n_jobs: int | None, *args: Any) -> list[R]:
    """Return ``function(chunk, *args)`` for chunks of the items, in their order.

    Example:
        >>> joblib_map(sum, range(10), 1)
        [1, 9, 11, 24]
    """
    import joblib

    count = min(len(items), _CHUNKS_PER_WORKER * max(1, joblib_workers(n_jobs)))
    bounds = [len(items) * number // count for number in range(count + 1)]
    calls = (joblib.delayed(function)(items[a:b], *args) for a, b in pairwise(bounds))
    return list(joblib.Parallel(n_jobs=n_jobs)(calls))


_limits: list[int] = []  # the threads that torch is to have again, once for each block that runs with one
_limits_lock = threading.Lock()


@contextmanager
def one_thread() -> Iterator[None]:
    """Keep torch to one thread for work of microseconds, which would wait for the others longer than it takes.

    Example:
        >>> before = torch.get_num_threads()
        >>> with one_thread():
        ...     torch.get_num_threads()
        1
        >>> torch.get_num_threads() == before
        True
    """
    with _limits_lock:  # of several at once, the first knows what there was before
        _limits.append(_limits[0] if _limits else torch.get_num_threads())
    torch.set_num_threads(1)
    try:
        yield
    finally:
        with _limits_lock:
            torch.set_num_threads(_limits.pop())


def _one_thread_after_fork() -> None:
    if "torch.nn" in sys.modules:
        torch.set_num_threads(1)


if hasattr(os, "register_at_fork"):  # a child would wait forever for torch's threads, which it does not have
    os.register_at_fork(after_in_child=_one_thread_after_fork)
