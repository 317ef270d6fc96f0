"""What compiled loops need to know: how weights lie in memory, how many cores there are."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import lazy_loader
import numpy as np

from torchperc._checks import Option, ParameterError, check_int

if TYPE_CHECKING:
    import torch
    from torch import Tensor
else:
    torch = lazy_loader.load("torch")

TIES = {"update": 0, "sign": 1, "strict": 2}


def suits(dtype: torch.dtype, device: torch.device) -> bool:
    """Whether compiled loops can read samples of this type on this device."""
    return dtype in (torch.float32, torch.float64) and device.type == "cpu"


class Laid(NamedTuple):
    """Weights as a tensor (K, d) and as the loops want them, in the same memory."""

    tensor: Tensor
    loop: np.ndarray[Any, Any]


def laid_out(weight: Tensor, sparse: bool) -> Laid:
    """Return a copy of the weights as the loops want them: (d,), (K, d), or (d, K) for sparse samples."""
    given = weight.detach().numpy()
    if len(given) == 1:
        numbers = given.copy()
        return Laid(torch.from_numpy(numbers), numbers[0])
    numbers = np.array(given.T if sparse else given, order="C")
    return Laid(torch.from_numpy(numbers.T if sparse else numbers), numbers)


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
    if check_int("n_jobs", n_jobs, at_least=-1) == 0:
        raise ParameterError(Option("n_jobs", n_jobs), " must not be 0; -1 means all cores")
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


def on_all_cores(function: Callable[[int, int], Any], count: int, threads: int | None = None) -> None:
    """Call a compiled function from first to end, in stretches that several threads, by default all cores, share.

    Example:
        >>> on_all_cores(lambda first, end: print(first, end), 1)
        0 1
    """
    threads = threads or cores()
    parts = max(1, min(count, 8 * threads)) if threads > 1 else 1
    bounds = [count * part // parts for part in range(parts + 1)]
    if parts == 1:
        function(0, count)
        return
    with ThreadPoolExecutor(min(threads, parts)) as pool:
        list(pool.map(function, bounds[:-1], bounds[1:]))


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


if hasattr(os, "register_at_fork"):  # a child would wait forever for torch's threads, which it does not have
    os.register_at_fork(after_in_child=lambda: torch.set_num_threads(1))
