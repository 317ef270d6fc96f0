"""Samples of which each process holds some, numbered through over all processes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NoReturn

import numpy as np
import torch
from torch import Tensor

from torchperc.samples import shards
from torchperc.samples.digest import of_cells
from torchperc.samples.parts import ScatteredRows, joined
from torchperc.samples.rows import CsrRows, DenseRows, Rows

_PIECES = 32  # that rows which were sent are kept in


class SharedRows(ScatteredRows):
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
        self.local, self.numbers, self._count = local, numbers.contiguous(), count
        self.dtype, self.device, self.sparse = local.dtype, local.device, local.sparse
        self.width, self.row_bytes = local.width, local.row_bytes
        first, last = int(numbers[0]), int(numbers[-1])
        self._first = first if last - first == len(numbers) - 1 else None  # of numbers that follow one another
        self._known: set[int] = set()
        self._places: dict[int, int] = {}
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
        """Where samples are in the local rows; −1 for those of other processes."""
        if self._first is not None:
            place = numbers - self._first
            return place.where((place >= 0) & (place < len(self.local)), -1)
        place = torch.searchsorted(self.numbers, numbers.contiguous()).clamp(max=len(self.numbers) - 1)
        return place.where(self.numbers[place] == numbers, -1)

    def _place(self, numbers: Tensor) -> Tensor:
        """Where samples are in the local rows and, beyond them, in those that were sent."""
        place = self.local_place(numbers)
        for at in (place < 0).nonzero().squeeze(-1).tolist():
            found = self._places.get(int(numbers[at]))
            if found is None:
                self._elsewhere()
            place[at] = found
        return place

    def unsent(self, numbers: Tensor) -> Tensor:
        """Which samples were never sent, each once; every process answers alike."""
        wanted = sorted(set(numbers.tolist()) - self._known)
        return torch.tensor(wanted, dtype=torch.int64, device=numbers.device)

    def message(self, numbers: Tensor) -> Any:
        """Local samples as plain arrays, to be sent."""
        rows = self.local.take(self.local_place(numbers))
        return rows.plain() if self.sparse else rows.dense().cpu().numpy()

    def keep(self, numbers: Tensor, message: Any) -> None:
        """Remember samples that were sent, and keep those of other processes."""
        sent = numbers.tolist()
        self._known.update(sent)
        if not sent or int(self.local_place(numbers[:1])) >= 0:  # they are this process's own
            return
        held = len(self.local) + sum(map(len, self._sent))
        self._places.update(zip(sent, range(held, held + len(sent)), strict=True))
        self._sent.append(self._unpacked(message))
        if len(self._sent) > _PIECES:
            self._sent = [joined(self._sent)]

    def share_all(self, numbers: Tensor) -> None:
        """Send samples from their owners to all others; a collective call."""
        wanted = self.unsent(numbers)
        own = wanted[self.local_place(wanted) >= 0]
        for theirs, message in shards.gathered((own.cpu(), self.message(own) if len(own) else None)):
            self.keep(theirs.to(wanted.device), message)

    def _unpacked(self, message: Any) -> Rows:
        if not self.sparse:
            return DenseRows(torch.from_numpy(message).to(self.device))
        from scipy.sparse import csr_array

        values, columns, starts = message
        return CsrRows(csr_array((values, columns, starts), shape=(len(starts) - 1, self.width)))

    def _at(self, i: int) -> tuple[Rows, int]:
        place = int(self._place(torch.tensor([i], device=self.numbers.device)))
        for rows in (self.local, *self._sent):
            if place < len(rows):
                break
            place -= len(rows)
        return rows, place

    def _elsewhere(self) -> NoReturn:
        raise ValueError(
            "this process holds a shard of the samples, not all of them; use log.bind(X, y) with all samples, in their "
            "order over the processes"
        )

    def take(self, index: Tensor) -> Rows:
        place = self._place(index)
        pieces, order, start = [], [], 0
        for rows in (self.local, *self._sent):
            here = (place >= start) & (place < start + len(rows))
            if bool(here.any()):
                pieces.append(rows.take(place[here] - start))
                order.append(here.nonzero().squeeze(-1))
            start += len(rows)
        return joined(pieces).take(torch.cat(order).argsort())

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
        numbers, done = self.numbers.cpu().numpy(), 0
        total = of_cells(y[self.numbers].double().cpu().numpy()[:, None], numbers, column=2**40)
        for piece in self.local.pieces():
            values = piece.raw() if self.sparse else piece.dense().double().cpu().numpy()
            total += of_cells(values, numbers[done : done + len(piece)])
            done += len(piece)
        return f"{self._count}x{self.width} {self.dtype} {sum(shards.gathered(total)) % 2**64:016x}"

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
