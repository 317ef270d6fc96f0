"""Means over samples that are the same to the bit in whatever order, pieces or processes the samples come."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from torchperc.samples.shards import summed

_BITS = 56  # of each number that are added, counted from its column's largest one: three more than it has itself
_TOGETHER = 2**15  # numbers that are worked on together, which stay in the processor's cache


def column_means(
    pieces: Iterable[Any], bound: Tensor, count: int, divisor: Tensor | int | None = None, together: bool = False
) -> Tensor:
    """The mean of each feature in float64, of which every bit is independent of the order of addition.

    Numbers are cut into slices of bits, q = (t + M) − M with a constant M that depends on the largest number
    and the number of samples alone; sums of such slices need no rounding, so nothing depends on who adds what.

    Args:
        pieces: of the samples: tensors of float64 or CSR arrays.
        bound: what no absolute value of a feature exceeds.
        count: the number of samples, of all processes.
        divisor: what sums are divided by; ``count`` by default.
        together: whether each process of the process group has samples of its own.

    Shape:
        pieces (n, d), bound (d,); out: (d,).

    Example:
        >>> column_means([torch.tensor([[1e16], [1.0]]), torch.tensor([[-1e16], [2.0]])], torch.tensor([1e16]), 4)
        tensor([0.7500], dtype=torch.float64)
    """
    bits = int(count).bit_length()
    exponents = np.maximum(np.frexp(bound.double().numpy())[1], -1000)  # 2**1000 is still a number
    unit = torch.from_numpy(np.ldexp(1.0, -exponents))
    cuts = [1.5 * 2.0 ** (bits + 1 - (52 - bits) * fold) for fold in range(-(-_BITS // (52 - bits)))]
    totals = torch.zeros(len(cuts), len(bound), dtype=torch.float64)
    for numbers, add in _parts(pieces, unit):
        rest = numbers
        for total, cut in zip(totals, cuts, strict=True):
            slices = (rest + cut).sub_(cut)
            add(total, slices)
            rest = rest - slices
    if together:
        totals = summed(totals)
    mean = totals.sum(0) / (count if divisor is None else divisor)
    return torch.from_numpy(np.ldexp(mean.numpy(), exponents))


def _parts(pieces: Iterable[Any], unit: Tensor) -> Iterator[tuple[Tensor, Callable[[Tensor, Tensor], object]]]:
    """Numbers in units of their column, all below 1, and the way to add them to the column's totals."""
    for piece in pieces:
        if isinstance(piece, Tensor):
            for rows in piece.split(max(1, _TOGETHER // max(1, piece.shape[1]))):
                yield rows * unit, lambda total, slices: total.add_(slices.sum(0))
        else:
            where = torch.from_numpy(piece.indices.astype(np.int64))
            numbers = torch.from_numpy(piece.data) * unit[where]
            yield numbers, lambda total, slices, where=where: total.index_add_(0, where, slices)  # type: ignore[misc]
