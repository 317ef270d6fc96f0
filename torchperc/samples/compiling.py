"""What compiled loops need to know: how weights lie in memory, how many cores there are."""

from __future__ import annotations

import math
import os
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from torchperc import _checks as checks
from torchperc._lazy import Late

if TYPE_CHECKING:
    import torch
    from torch import Tensor
else:
    torch = Late("torch")

WORTH_IT = 256  # samples below which a plain loop is done before a compiled one is loaded
WORTH_LOADING = 2**16  # samples below which torch makes one pass before numba itself is imported, in half a second
WORTH_TWO = 2**18  # bytes of samples below which two cores are slower than one
_PIECES = 8  # that two cores share


def pays(dtype: torch.dtype, device: torch.device, count: int) -> bool:
    """Whether a compiled loop can go through so many samples once, and is faster than loading it."""
    return suits(dtype, device) and count >= (WORTH_IT if "numba" in sys.modules else WORTH_LOADING)


def suits(dtype: torch.dtype, device: torch.device) -> bool:
    """Whether compiled loops can read samples of this type on this device."""
    return dtype in (torch.float32, torch.float64) and device.type == "cpu"


class Laid(NamedTuple):
    """Weights as a tensor (K, d) and as the loops want them, in the same memory."""

    tensor: Tensor
    loop: np.ndarray[Any, Any]


def laid_out(weight: Tensor, sparse: bool) -> Laid:
    """A copy of the weights in the order in memory that suits the samples."""
    if sparse and len(weight) > 1:  # classes side by side, padded to whole vector registers
        given = weight.detach().numpy()
        numbers = in_lines((weight.shape[1], -(-len(weight) // 8) * 8), given.dtype)
        numbers[:, : len(weight)].T[:] = given
        return Laid(torch.from_numpy(numbers)[:, : len(weight)].T, numbers)
    numbers = weight.detach().numpy().copy()  # numpy's memory: in large pages where it is large
    return Laid(torch.from_numpy(numbers), numbers if len(weight) > 1 else numbers[0])


def in_lines(shape: tuple[int, ...], dtype: Any) -> np.ndarray[Any, Any]:
    """Zeros that begin with a cache line of 64 bytes.

    Example:
        >>> in_lines((2, 8), np.float32).ctypes.data % 64
        0
    """
    size = math.prod(shape) * np.dtype(dtype).itemsize
    memory = np.zeros(size + 64, np.uint8)
    begin = -memory.ctypes.data % 64
    numbers: np.ndarray[Any, Any] = memory[begin : begin + size].view(dtype)
    return numbers.reshape(shape)


TIES = {"update": 0, "sign": 1, "strict": 2}


def cores() -> int:
    """How many threads may run: what torch was told, and what this process is given."""
    given = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    told = torch.get_num_threads() if "torch" in sys.modules else int(os.environ.get("OMP_NUM_THREADS") or given)
    return min(told, given)


def threads(n_jobs: int | None, by_default: int | None = None) -> int:
    """How many threads ``n_jobs`` asks for: −1 is all cores, and so is ``None`` if there is no other default.

    Example:
        >>> threads(3), threads(None, 1), threads(-1) == threads(None) == cores()
        (3, 1, True)
    """
    if n_jobs is None:
        return cores() if by_default is None else by_default
    if checks.whole("n_jobs", n_jobs, at_least=-1) == 0:
        raise checks.ParameterError(checks.Option("n_jobs", n_jobs), " must not be 0; -1 means all cores")
    return cores() if n_jobs == -1 else int(n_jobs)


def free_memory() -> int:
    """Bytes that can be had without swapping, within what this process is given."""
    try:
        words = Path("/proc/meminfo").read_text().split()
        free = 1024 * int(words[words.index("MemAvailable:") + 1])
    except (OSError, ValueError):
        try:
            free = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
        except (AttributeError, OSError, ValueError):
            free = 2**32  # nothing is known; a small machine of today
    try:
        limit, used = (int(Path(f"/sys/fs/cgroup/memory.{what}").read_text()) for what in ("max", "current"))
        return max(0, min(free, limit - used))
    except (OSError, ValueError):  # no limit
        return free


@cache
def other_cores() -> ThreadPoolExecutor:
    """Threads beside this one, started when they are needed."""
    return ThreadPoolExecutor(os.cpu_count(), thread_name_prefix="torchperc")


def in_halves(function: Callable[[int, int], Any], count: int, row_bytes: int) -> list[Any]:
    """What a compiled function gives from first to end: in one piece, or by two cores in several where it pays.

    A core takes the next piece as it becomes free, so that one that is busy with something else is not waited for.

    Example:
        >>> in_halves(lambda first, end: end - first, 10, row_bytes=8)
        [10]
    """
    if row_bytes * count <= WORTH_TWO or cores() < 2:
        return [function(0, count)]
    found: list[Any] = [None] * _PIECES
    places = iter(range(_PIECES))

    def work() -> None:
        for place in places:
            found[place] = function(count * place // _PIECES, count * (place + 1) // _PIECES)

    other = other_cores().submit(work)
    work()
    if not other.cancel():
        other.result()
    return found


def on_all_cores(function: Callable[[int, int], Any], count: int, threads: int | None = None) -> None:
    """Call a compiled function from first to end, in stretches that so many threads, or all cores, take as they become
    free.

    Example:
        >>> on_all_cores(lambda first, end: print(first, end), 1)
        0 1
    """
    threads = threads or cores()
    parts = min(count, 8 * threads) if threads > 1 else 1
    stretches = iter([(count * part // parts, count * (part + 1) // parts) for part in range(parts)])

    def work() -> None:
        for first, end in stretches:  # of which each thread takes the next
            function(first, end)

    others = [other_cores().submit(work) for _ in range(min(threads, parts) - 1)]
    work()
    for other in others:
        if not other.cancel():  # one that has not begun has nothing left to do
            other.result()


_alone: list[int] = []  # how many threads torch is to have again, once for each that works alone
_alone_lock = threading.Lock()


@contextmanager
def one_thread() -> Iterator[None]:
    """Keep torch's threads out of work of microseconds, where they are waited for longer than they work.

    Example:
        >>> before = torch.get_num_threads()
        >>> with one_thread():
        ...     torch.get_num_threads()
        1
        >>> torch.get_num_threads() == before
        True
    """
    with _alone_lock:  # of several at once, the first knows what there was before
        _alone.append(_alone[0] if _alone else torch.get_num_threads())
    torch.set_num_threads(1)
    try:
        yield
    finally:
        with _alone_lock:
            torch.set_num_threads(_alone.pop())


def _after_fork() -> None:
    """In a child: no threads of the parent are there; torch would wait forever for its own."""
    torch.set_num_threads(1)
    other_cores.cache_clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
