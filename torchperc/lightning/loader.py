"""Batches that are slices of samples; no Trainer is needed."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from torchperc._checks import as_csr, check_choice, check_int, is_sparse, tensor_view
from torchperc.rules.conventions import Order
from torchperc.samples import convert, process_group
from torchperc.samples.mapped import Chunked, CsrParts, chunked

LOADER_ORDERS = ("given", "shuffled")


class SliceLoader:
    """Batches of (X, y) as slices, dense or of the layout ``torch.sparse_csr``.

    The order depends on seed and epoch alone, and the loader keeps its position, so that a run resumed in the middle of
    an epoch sees the same samples in the same order. Batches of a ``numpy.memmap`` are slices of it, those of
    ``CsrParts`` are read from its files, which needs a ``batch_size``.

    In several processes of ``torch.distributed`` the batches are those of one process, each cut into contiguous pieces,
    one per process. All processes see the same number of batches; a piece may be empty.

    Args:
        X: samples: a tensor, a scipy CSR array or a sparse tensor, a ``numpy.memmap``, or ``CsrParts``.
        y: labels.
        batch_size: samples per batch, or ``"full"`` for all of them in one.
        order: ``"given"``, or ``"shuffled"`` as :class:`~torchperc.RuleTrainer` shuffles with the same seed.
        seed: of the permutations.
        sharding: what several processes read of each batch: ``"split"``, a piece; ``"none"``, all of it.

    Shape:
        yields (B, d), (B,).

    Example:
        >>> loader = SliceLoader(torch.arange(6.0).reshape(3, 2), torch.tensor([1, -1, 1]), batch_size=2)
        >>> [batch[0].tolist() for batch in loader]
        [[[0.0, 1.0], [2.0, 3.0]], [[4.0, 5.0]]]
    """

    def __init__(
        self,
        X: Any,
        y: Tensor,
        batch_size: int | str = "full",
        order: str = "given",
        seed: int = 0,
        sharding: str = "split",
    ) -> None:
        self.X, self.y = _sliced(X), y
        if self.X.shape[0] != len(y):
            raise ValueError(f"y has {len(y)} values for {self.X.shape[0]} samples; they must have the same length")
        if isinstance(self.X, Chunked) and batch_size == "full":
            raise ValueError("batch_size='full' would read all parts of X into memory; give a number of samples")
        check_batch_size(batch_size, 1)
        self._asked = batch_size
        self.order = check_choice("order", order, LOADER_ORDERS)
        self.seed = check_int("seed", seed, at_least=0)
        self.sharding = check_choice("sharding", sharding, ("split", "none"))
        self.resumable = True  # else each pass begins at the first batch
        self._epoch = self._position = self._drawn = 0
        self._resumed = False
        self._shuffler: Order | None = None
        self._whole: tuple[slice, Tensor] | None = None

    @property
    def batch_size(self) -> int:
        """Samples per batch, of all processes together."""
        return check_batch_size(self._asked, max(1, len(self.y)))

    def __len__(self) -> int:
        return -(-len(self.y) // self.batch_size)

    def __iter__(self) -> Iterator[tuple[Any, Tensor]]:
        resumed, self._resumed = self._resumed and self.resumable, False
        first = self._position if resumed else 0  # where a pass was broken off that is not resumed does not matter
        order = self._permutation() if self.order == "shuffled" else None
        for number in range(first, len(self)):
            self._position = number + 1
            yield self._batch(number, order)
        self._epoch, self._position = self._epoch + 1, 0

    @property
    def batch_sampler(self) -> SimpleNamespace:
        """Where a Trainer looks for :meth:`set_epoch`."""
        return SimpleNamespace(sampler=self)

    def set_epoch(self, epoch: int) -> None:
        """Make the next pass that of the given epoch; called by the Trainer."""
        if epoch != self._epoch:
            self._epoch, self._position, self._resumed = epoch, 0, False

    def _permutation(self) -> Tensor:
        """The permutation of this epoch: the n-th that the seed yields, whichever epochs were drawn before."""
        if self._shuffler is None or self._drawn > self._epoch:
            # the parts are shuffled, and samples within each
            bounds = self.X.bounds.numpy() if isinstance(self.X, Chunked) else None
            self._shuffler, self._drawn = Order("shuffled", np.arange(len(self.y)), self.seed, bounds=bounds), 0
        while True:
            order = torch.from_numpy(np.concatenate(list(self._shuffler.epoch(self._drawn))))
            self._drawn += 1
            if self._drawn > self._epoch:
                return order.to(self.y.device)

    def _batch(self, number: int, order: Tensor | None) -> tuple[Any, Tensor]:
        """Return this process's piece of a batch."""
        start = number * self.batch_size
        count = min(self.batch_size, len(self.y) - start)
        part = process_group.own_slice(count, *(process_group.rank_and_size() if self.sharding == "split" else (0, 1)))
        part = slice(start + part.start, start + part.stop)
        index: Any = part if order is None else order[part]
        labels = self.y[index]
        if isinstance(self.X, Tensor):
            return self.X[index], labels
        if isinstance(self.X, Chunked):
            raw = self.X.take(torch.arange(part.start, part.stop) if order is None else index.cpu()).raw()
            return raw if isinstance(raw, Tensor) else convert.csr_tensor(raw), labels
        if order is not None:
            return convert.csr_tensor(self.X[index.cpu().numpy()]), labels
        if self._whole is None or self._whole[0] != part:
            self._whole = part, convert.csr_tensor(self.X[part])
        return self._whole[1], labels

    def state_dict(self) -> dict[str, Any]:
        """The epoch and the position in it."""
        if self._position >= len(self):
            return {"epoch": self._epoch + 1, "position": 0}
        return {"epoch": self._epoch, "position": self._position}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume from there."""
        self._epoch, self._position, self._resumed = int(state["epoch"]), int(state["position"]), True


def part_size(X: Any) -> int | str:
    """Return a batch size for evaluation: the largest part of samples in parts, else ``"full"``."""
    rows = _sliced(X)
    return int(rows.bounds.diff().max()) if isinstance(rows, Chunked) else "full"


def _sliced(X: Any) -> Any:
    """Samples as a tensor, a CSR array, or rows in parts; a memory map stays mapped."""
    if isinstance(X, CsrParts):
        return chunked(X)
    if isinstance(X, np.memmap):
        return tensor_view(X)
    return as_csr(X) if is_sparse(X) else X


def check_batch_size(batch_size: int | str, samples: int) -> int:
    """Return a batch size as a number of samples."""
    if isinstance(batch_size, str):
        check_choice("batch_size", batch_size, ("full",))
        return samples
    return min(check_int("batch_size", batch_size, at_least=1), samples)
