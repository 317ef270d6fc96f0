"""Samples of which each process holds some, numbered through over all processes."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any, NoReturn

import numpy as np
import torch
from torch import Tensor

from torchperc.samples import shards
from torchperc.samples.parts import joined
from torchperc.samples.rows import CsrRows, DenseRows, Rows

_GOLDEN, _MIX = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9)


class SharedRows(Rows):
    """Rows of all processes: this one holds its shard, and the rows that were sent to it.

    Making them is a collective call: all processes make theirs at the same time.

    Args:
        local: the rows of this process.
        numbers: which of all samples they are, ascending.
        count: the number of all samples.

    Example:
        >>> rows = SharedRows(DenseRows(torch.tensor([[3.0, 4.0], [0.0, 1.0]])), torch.tensor([0, 1]), 2)
        >>> len(rows), rows.longest, rows.take(torch.tensor([1])).dense()
        (2, 25.0, tensor([[0., 1.]]))
    """

    def __init__(self, local: Rows, numbers: Tensor, count: int) -> None:
        self.local, self.numbers, self._count = local, numbers, count
        self.dtype, self.device, self.sparse = local.dtype, local.device, local.sparse
        self.width, self.row_bytes = local.width, local.row_bytes
        self._place = torch.full((count,), -1, device=numbers.device)
        self._place[numbers] = torch.arange(len(local), device=numbers.device)
        self._sent: list[Rows] = []
        facts = shards.gathered((local.longest, local.whole, local.terms))
        self.longest = max(fact[0] for fact in facts)
        self.whole = all(fact[1] for fact in facts)
        self._terms = max(fact[2] for fact in facts)

    def __len__(self) -> int:
        return self._count

    @property
    def terms(self) -> int:
        return self._terms

    def local_place(self, numbers: Tensor) -> Tensor:
        """Where samples are in the local rows; −1, or beyond them, for those of other processes."""
        return self._place[numbers]

    def share(self, i: int, owner: int) -> None:
        """Send one sample from its owner to all others, which keep it; a collective call."""
        if not self._unsent(i):
            return
        mine = int(self._place[i])
        self._keep(i, mine, shards.sent(self._message(mine), owner))

    def share_all(self, numbers: Tensor) -> None:
        """Send many samples from their owners to all others; a collective call."""
        wanted = [i for i in numbers.unique().tolist() if self._unsent(i)]
        mine = {i: self._message(int(self._place[i])).cpu() for i in wanted if self._place[i] >= 0}
        found = {i: message for each in shards.gathered(mine) for i, message in each.items()}
        for i in wanted:
            self._keep(i, int(self._place[i]), found[i].to(self.device))

    @cached_property
    def _shared(self) -> set[int]:
        return set()

    def _unsent(self, i: int) -> bool:
        """Whether a sample is still to be sent; every process answers alike."""
        return i not in self._shared and shards.here()[1] > 1

    def _message(self, place: int) -> Tensor:
        """A row as one tensor of a length that all processes know; of zeros if it is not here."""
        if not self.sparse:
            return self.local.take(torch.tensor([place], device=self.device)).dense()[0] if place >= 0 else self._zeros
        message = np.zeros(1 + 2 * self._terms)
        if place >= 0:
            values, columns, _ = self.local.take(torch.tensor([place])).plain()
            message[0] = len(values)
            message[1 : 1 + len(values)] = columns
            message[1 + self._terms : 1 + self._terms + len(values)] = values
        return torch.from_numpy(message)

    @cached_property
    def _zeros(self) -> Tensor:
        return torch.zeros(self.width, dtype=self.dtype, device=self.device)

    def _keep(self, i: int, place: int, message: Tensor) -> None:
        self._shared.add(i)
        if place >= 0:
            return
        row: Rows
        if self.sparse:
            from scipy.sparse import csr_array

            numbers = message.numpy()
            size = int(numbers[0])
            values = numbers[1 + self._terms : 1 + self._terms + size]
            values = values.astype(np.float32 if self.dtype == torch.float32 else np.float64)
            columns = numbers[1 : 1 + size].astype(np.int32)
            row = CsrRows(csr_array((values, columns, np.array([0, size], np.int32)), shape=(1, self.width)))
        else:
            row = DenseRows(message[None])
        self._place[i] = len(self.local) + len(self._sent)
        self._sent.append(row)

    def _at(self, i: int) -> tuple[Rows, int]:
        place = int(self._place[i])
        if place < 0:
            self._elsewhere()
        return (self.local, place) if place < len(self.local) else (self._sent[place - len(self.local)], 0)

    def _elsewhere(self) -> NoReturn:
        raise ValueError(
            "this process holds a shard of the samples, not all of them; use log.bind(X, y) with all samples, in their "
            "order over the processes"
        )

    def score(self, i: int, weight: Tensor, bias: Tensor) -> Tensor:
        rows, at = self._at(i)
        return rows.score(at, weight, bias)

    def add(self, i: int, coef: float, target: Tensor) -> None:
        rows, at = self._at(i)
        rows.add(at, coef, target)

    def take(self, index: Tensor) -> Rows:
        place = self._place[index]
        if not len(place) or bool((place < 0).any()):
            self._elsewhere()
        here = place < len(self.local)
        pieces = [self.local.take(place[here])] if bool(here.any()) else []
        pieces += [self._sent[k - len(self.local)] for k in place[~here].tolist()]
        order = torch.cat((here.nonzero().squeeze(-1), (~here).nonzero().squeeze(-1)))
        return joined(pieces).take(order.argsort())

    def parts(self, order: Tensor) -> Iterator[tuple[Rows, Tensor]]:
        if len(order):
            used, at = order.unique(return_inverse=True)
            yield self.take(used), at

    def combine(self, coefs: Tensor) -> Tensor:
        used = coefs.abs().sum(-1).nonzero().squeeze(-1)
        if not len(used):
            return torch.zeros(coefs.shape[1], self.width, dtype=torch.float64, device=self.device)
        return self.take(used).combine(coefs[used])

    def squared_norms(self) -> Tensor:
        """‖x_i‖² of the samples of all processes; a collective call."""
        return self.spread(self.local.squared_norms())

    def spread(self, values: Tensor) -> Tensor:
        """One value per sample of all processes, from those of the local samples; a collective call.

        Example:
            >>> rows = SharedRows(DenseRows(torch.zeros(2, 1)), torch.tensor([0, 1]), 2)
            >>> rows.spread(torch.tensor([5, 6]))
            tensor([5, 6])
        """
        every = torch.zeros(self._count, *values.shape[1:], dtype=values.dtype, device=values.device)
        every[self.numbers.to(values.device)] = values
        return shards.summed(every)

    def fingerprint(self, y: Tensor) -> str:
        """A checksum of samples, numbers and labels, however they are cut into shards; a collective call."""
        weights = np.random.default_rng(0).integers(2**63, size=self.width, dtype=np.uint64) * np.uint64(2) + np.uint64(
            1
        )
        total, done = np.uint64(0), 0
        for piece in self.local.pieces():
            for first in range(0, len(piece), 4096):
                some = piece.take(torch.arange(first, min(first + 4096, len(piece)), device=self.device))
                numbers = self.numbers[done : done + len(some)].cpu().numpy().astype(np.uint64)
                labels = y[self.numbers[done : done + len(some)]].cpu().numpy().astype(np.uint64)
                sums = _row_sums(some, weights) + numbers * _GOLDEN + labels
                sums = (sums ^ (sums >> np.uint64(30))) * _MIX
                total += (sums ^ (sums >> np.uint64(27))).sum(dtype=np.uint64)
                done += len(some)
        found = shards.summed(torch.from_numpy(np.array([total]).view(np.int64)).to(self.device))
        return f"{self._count}x{self.width} {self.dtype} {int(found) % 2**64:016x}"

    def scores(self, weight: Tensor, bias: Tensor) -> Tensor:
        return self._elsewhere()

    def mix(self, coefs: Tensor) -> Tensor:
        return self._elsewhere()

    def dots(self, other: Rows) -> Tensor:
        return self._elsewhere()

    def double(self) -> Rows:
        return self._elsewhere()

    def dense(self) -> Tensor:
        return self._elsewhere()

    def raw(self) -> Any:
        return self._elsewhere()

    def plain(self) -> tuple[np.ndarray[Any, Any], ...]:
        return self._elsewhere()

    def arrays(self) -> list[np.ndarray[Any, Any]]:
        return self._elsewhere()


def _row_sums(rows: Rows, weights: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Σ_j bits(x_ij)·weight_j modulo 2⁶⁴, in which the zeros of a dense row count nothing."""
    if rows.sparse:
        values, columns, starts = rows.plain()
        bits = (values.astype(np.float64) + 0.0).view(np.uint64) * weights[columns]
        return np.diff(np.concatenate((np.zeros(1, np.uint64), bits.cumsum(dtype=np.uint64)))[starts])
    bits = (rows.dense().double().cpu().numpy() + 0.0).view(np.uint64)
    sums: np.ndarray[Any, Any] = (bits * weights).sum(axis=1, dtype=np.uint64)
    return sums
