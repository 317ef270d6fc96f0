"""What compiled loops need to know: how weights lie in memory, how many cores there are."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

WORTH_IT = 256
"""Samples below which a plain loop is done before a compiled one is loaded."""
WORTH_TWO = 2**18
"""Bytes of samples below which two cores are slower than one."""


def pays(dtype: torch.dtype, device: torch.device, count: int) -> bool:
    """Whether a compiled loop can go through so many samples, and is faster than loading it.

    Example:
        >>> pays(torch.float32, torch.device("cpu"), 4)
        False
    """
    known = dtype in (torch.float32, torch.float64) and device.type == "cpu"
    return known and count >= WORTH_IT


class Laid(NamedTuple):
    """Weights as a tensor (K, d) and as the loops want them, in the same memory."""

    tensor: Tensor
    loop: np.ndarray[Any, Any]


def laid_out(weight: Tensor, sparse: bool) -> Laid:
    """A copy of the weights in the order in memory that suits the samples."""
    if sparse and len(weight) > 1:  # classes side by side, padded to whole vector registers
        numbers = np.zeros((weight.shape[1], -(-len(weight) // 8) * 8), weight.detach()[:0].numpy().dtype)
        tensor = torch.from_numpy(numbers)[:, : len(weight)].T  # numpy's memory: in large pages where it is large
        return Laid(tensor.copy_(weight), numbers)
    tensor = weight.detach().clone(memory_format=torch.contiguous_format)
    return Laid(tensor, tensor.numpy() if len(weight) > 1 else tensor[0].numpy())


TIES = {"update": 0, "sign": 1, "strict": 2}


def cores() -> int:
    """How many threads may run: what torch was told, and what this process is given."""
    given = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(torch.get_num_threads(), given)


@cache
def second_core() -> ThreadPoolExecutor:
    """One thread beside this one."""
    return ThreadPoolExecutor(1, thread_name_prefix="torchperc")


def in_halves(function: Callable[[int, int], Any], count: int, row_bytes: int) -> list[Any]:
    """What a compiled function gives from first to end: of both halves at once where two cores are worth it.

    Example:
        >>> in_halves(lambda first, end: end - first, 10, row_bytes=8)
        [10]
    """
    middle = count // 2 if row_bytes * count > WORTH_TWO and cores() > 1 else 0
    other = second_core().submit(function, 0, middle) if middle else None
    found = [function(middle, count)]
    return found if other is None else [other.result(), *found]


@contextmanager
def threads() -> Iterator[None]:
    """As many threads for a parallel loop as there are cores to use; one loop at a time, as numba may need."""
    import numba

    before = numba.get_num_threads()
    with _Pools.turn:
        numba.set_num_threads(min(cores(), before))
        try:
            yield
        finally:
            numba.set_num_threads(before)


class _Pools:
    """What this process may do with pools of threads, which do not survive a fork."""

    turn = threading.Lock()
    lost = False  # whether numba's pool is one of OpenMP's that a parent had started, with which numba ends the process

    @classmethod
    def after_fork(cls) -> None:
        """In a child: one thread for torch, which would wait forever for the pool of its parent."""
        torch.set_num_threads(1)
        cls.turn = threading.Lock()
        second_core.cache_clear()
        if (numba := sys.modules.get("numba")) is not None:
            with suppress(ValueError):  # no pool was started
                cls.lost = cls.lost or numba.threading_layer() == "omp"


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_Pools.after_fork)


def parallel_loops_run() -> bool:
    """Whether a parallel loop can be started here: not in a forked child whose parent has OpenMP's threads.

    Example:
        >>> parallel_loops_run()
        True
    """
    return not _Pools.lost
