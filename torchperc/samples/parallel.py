"""Work spread over the cores of this machine."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import torch

from torchperc._checks import Option, ParameterError, check_int


def threads(n_jobs: int | None, by_default: int | None = None) -> int:
    """Return the number of threads that ``n_jobs`` asks for; −1 and, by default, ``None`` mean all cores.

    Example:
        >>> threads(3), threads(None, 1), threads(-1) == threads(None)
        (3, 1, True)
    """
    asked = by_default if n_jobs is None else check_int("n_jobs", n_jobs, at_least=-1)
    if asked == 0:
        raise ParameterError(Option("n_jobs", n_jobs), " must not be 0; -1 means all cores")
    return asked if asked is not None and asked > 0 else torch.get_num_threads()


def map_chunks(function: Callable[[int, int], Any], count: int, n_threads: int) -> None:
    """Call ``function(first, end)`` on ranges that cover ``count``, in several threads.

    Example:
        >>> map_chunks(lambda first, end: print(first, end), 3, 1)
        0 3
    """
    parts = max(1, min(count, 8 * n_threads)) if n_threads > 1 else 1
    bounds = [count * part // parts for part in range(parts + 1)]
    with ThreadPoolExecutor(min(n_threads, parts)) as pool:
        list(pool.map(function, bounds[:-1], bounds[1:]))


@contextmanager
def one_thread() -> Iterator[None]:
    """Limit torch to one thread, for work shorter than the cost of waking others."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


if hasattr(os, "register_at_fork"):  # a child would wait forever for torch's threads, which it does not have
    os.register_at_fork(after_in_child=lambda: torch.set_num_threads(1))
