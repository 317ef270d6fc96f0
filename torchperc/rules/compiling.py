"""What compiled loops need to know: is there a compiler, how do weights lie in memory, how many cores are there."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

WORTH_IT = 256
"""Samples below which a plain loop is done before a compiled one is loaded."""


@cache
def numba_is_there() -> bool:
    """Whether loops can be compiled."""
    return find_spec("numba") is not None


def pays(dtype: torch.dtype, device: torch.device, count: int) -> bool:
    """Whether a compiled loop can go through so many samples, and is faster than loading it.

    Example:
        >>> pays(torch.float32, torch.device("cpu"), 4)
        False
    """
    known = dtype in (torch.float32, torch.float64) and device.type == "cpu"
    return known and count >= WORTH_IT and numba_is_there()


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


@contextmanager
def threads() -> Iterator[None]:
    """As many threads for a parallel loop as there are cores to use."""
    import numba

    before = numba.get_num_threads()
    numba.set_num_threads(min(cores(), before))
    try:
        yield
    finally:
        numba.set_num_threads(before)
