"""How many threads torch uses for a table."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from torchperc.data.prepared_data import PreparedData

SMALL = 2**24  # multiplications in a pass over the training set up to which one thread makes it: some milliseconds


@contextmanager
def few_threads(data: PreparedData) -> Iterator[None]:
    """One thread of torch within the block, if the training set is small.

    Waking others takes as long as they save, and thirty times as long while another program keeps a core busy. How sums
    are cut depends on the number of threads, so all commands decide by this.
    """
    samples, features = data.parts[0][0].shape
    before = torch.get_num_threads()
    if samples * features * (data.classes or 1) <= SMALL:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
