"""A loader whose batches are slices, for data in memory and larger than memory; it can resume within an epoch.

In several processes each reads a part of every batch; what a ``DataLoader`` gives each of them is found out here, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DistributedSampler

from torchperc import _checks as checks
from torchperc.rules.orders import Order
from torchperc.samples import convert, shards
from torchperc.samples.parts import PartRows, in_parts, rows_as_read

LOADER_ORDERS = ("given", "shuffled")
SHARDINGS = ("split", "own", "none")


class SliceLoader:
    """Batches of (X, y) as slices, dense or of the layout ``torch.sparse_csr``.

    The order depends on seed and epoch alone, and the loader keeps its position, so that a run resumed in the middle of
    an epoch sees the same samples in the same order. Samples larger than memory are read batch by batch; with
    ``batch_size="full"`` the batch is a :class:`Mapped`.

    In several processes of ``torch.distributed`` the batches are those of one process, each cut into contiguous pieces,
    one per process. All processes see the same number of batches; a piece may be empty.

    Args:
        X: samples: a tensor, a scipy CSR array or a sparse tensor, a ``numpy.memmap``, or ``CsrParts``.
        y: labels.
        batch_size: samples per batch, or ``"full"`` for all of them in one.
        order: ``"given"``, or ``"shuffled"`` as :class:`~torchperc.RuleTrainer` shuffles with the same seed.
        seed: of the permutations.
        sharding: what several processes read: ``"split"``, a piece of each batch of the same X and y; ``"own"``, each
            its own X and y, of any number of samples, together in batches of about ``batch_size``; ``"none"``, all.

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
        self.X, self.y = _kept(X), y
        if self.X.shape[0] != len(y):
            raise ValueError(f"y has {len(y)} values for {self.X.shape[0]} samples; they must have the same length")
        check_batch_size(batch_size, 1)
        self._asked, self._full = batch_size, batch_size == "full"
        self.order = checks.one_of("order", order, LOADER_ORDERS)
        self.seed = checks.whole("seed", seed, at_least=0)
        self.sharding = checks.one_of("sharding", sharding, SHARDINGS)
        self._epoch = self._position = 0
        self.resumable = True  # else each pass begins at the first batch, also after one that was broken off
        self._shuffler: Order | None = None
        self._drawn = 0
        self._rows = self.X if isinstance(self.X, PartRows) else rows_as_read(self.X) if is_mapped(self.X) else None
        self._whole: tuple[slice, Tensor] | None = None

    @cached_property
    def counts(self) -> list[int]:
        """The number of samples of each process that has its own, else of all together."""
        return shards.gathered(len(self.y)) if self.sharding == "own" else [len(self.y)]

    @cached_property
    def _bounds(self) -> list[int]:
        """Where the batches of samples of one's own begin: the processes give one sample each in turn."""
        rank, own = shards.here()[0], torch.arange(len(self.y))
        turns = torch.zeros_like(own)
        for number, count in enumerate(self.counts):
            turns += own.clamp(max=count) + ((own < count) & (number < rank))
        bounds: list[int] = torch.searchsorted(turns, torch.arange(len(self) + 1) * self.batch_size).tolist()
        return bounds

    @property
    def batch_size(self) -> int:
        """Samples per batch, of all processes together."""
        return check_batch_size(self._asked, max(1, sum(self.counts)))  # a process may have none

    def __len__(self) -> int:
        return -(-sum(self.counts) // self.batch_size)

    def __iter__(self) -> Iterator[tuple[Any, Tensor]]:
        order = self._permutation() if self.order == "shuffled" else None
        if not self.resumable:
            self._position = 0
        for number in range(self._position, len(self)):
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
            self._epoch, self._position = epoch, 0

    def _permutation(self) -> Tensor:
        """The permutation of this epoch: the n-th that the seed yields, whichever epochs were drawn before."""
        if self._shuffler is None or self._drawn > self._epoch:
            bounds = None if self._rows is None else self._rows.bounds
            self._shuffler, self._drawn = Order("shuffled", torch.arange(len(self.y)), self.seed, bounds=bounds), 0
        while True:
            order = torch.cat(list(self._shuffler.epoch(self._drawn)))
            self._drawn += 1
            if self._drawn > self._epoch:
                return order.to(self.y.device)

    def _piece(self, number: int) -> slice:
        """Which of the samples, in the order of the epoch, a batch has in this process."""
        if self.sharding == "own":
            return slice(*self._bounds[number : number + 2])
        start = number * self.batch_size
        count = min(self.batch_size, len(self.y) - start)
        part = shards.own_slice(count, *(shards.here() if self.sharding == "split" else (0, 1)))
        return slice(start + part.start, start + part.stop)

    def _batch(self, number: int, order: Tensor | None) -> tuple[Any, Tensor]:
        part = self._piece(number)
        labels = self.y[part] if order is None else self.y[order[part]]
        if self._rows is not None:
            if self._full and len(labels) == len(self.y):
                return Mapped(self.X, self._rows, order), labels
            index = torch.arange(part.start, part.stop) if order is None else order[part].cpu()
            return Mapped(self.X, self._rows, index) if self._full else _tensor(self._rows.take(index).raw()), labels
        if isinstance(self.X, Tensor):
            return self.X[part] if order is None else self.X[order[part]], labels
        if order is not None:
            return convert.csr_tensor(self.X[order[part].cpu().numpy()]), labels
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
        self._epoch, self._position = int(state["epoch"]), int(state["position"])


class Mapped:
    """All samples of data larger than memory as one batch; iterating gives tensors of some of them at a time.

    Args:
        source: the ``numpy.memmap`` or ``CsrParts`` itself.
        rows: how it is read.
        order: the sample numbers in the order of the batch; the given order by default.

    Example:
        >>> from scipy.sparse import csr_array
        >>> import torchperc as tp
        >>> X = tp.data.CsrParts([csr_array([[1.0, 0.0]]), csr_array([[0.0, 2.0], [3.0, 0.0]])])
        >>> (batch, y), = SliceLoader(X, torch.tensor([1, -1, 1]))
        >>> len(batch), [part.to_dense().tolist() for part in batch]
        (3, [[[1.0, 0.0]], [[0.0, 2.0], [3.0, 0.0]]])
    """

    def __init__(self, source: Any, rows: PartRows, order: Tensor | None = None) -> None:
        self.source, self.order = source, order
        self.shape, self.dtype = (len(rows) if order is None else len(order), rows.width), rows.dtype
        self._rows = rows

    def __len__(self) -> int:
        return self.shape[0]

    def __iter__(self) -> Iterator[Tensor]:
        if self.order is None:
            for rows in self._rows.pieces():
                yield _tensor(rows.raw())
        elif len(self.order):
            for rows, at in self._rows.parts(self.order.cpu()):
                yield _tensor(rows.take(at).raw())


def local_numbers(loader: Any, rank: int, size: int) -> Tensor:
    """The numbers that the samples of process ``rank`` have among all samples, as one batch in the given order.

    A ``SliceLoader`` cuts the samples into contiguous pieces, a ``DistributedSampler`` deals them in turn; those that
    it repeats, so that all processes have as many, are left out. All processes must call this.

    Example:
        >>> loader = SliceLoader(torch.zeros(5, 1), torch.ones(5))
        >>> [local_numbers(loader, rank, 2).tolist() for rank in range(2)]
        [[0, 1, 2], [3, 4]]
    """
    if isinstance(loader, SliceLoader):
        if loader.order != "given":
            raise ValueError(f"order={loader.order!r} changes the numbers of the samples; use order='given'")
        if loader.sharding == "own":
            first = sum(loader.counts[:rank])
            return torch.arange(first, first + len(loader.y))
        part = shards.own_slice(len(loader.y), *((rank, size) if loader.sharding == "split" else (0, 1)))
        return torch.arange(part.start, part.stop)
    sampler = _sampler(loader)
    if isinstance(sampler, DistributedSampler):
        if sampler.shuffle:
            raise ValueError("the loader shuffles, so that the samples have no fixed numbers; use shuffle=False")
        return torch.arange(_count(sampler))[sampler.rank :: sampler.num_replicas][: sampler.num_samples]
    if size > 1:
        raise ValueError(
            f"{type(loader).__name__} does not say which of all samples it gives each of {size} processes; use a "
            "DataLoader with a DistributedSampler, which a Trainer adds, or a SliceLoader"
        )
    return torch.arange(len(loader.dataset))


def repeated(loader: Any, batch_idx: int) -> int:
    """How many samples at the end of a batch a ``DistributedSampler`` gave before, to have as many in each process.

    Example:
        >>> from torch.utils.data import DataLoader
        >>> five = DistributedSampler(range(5), num_replicas=2, rank=1, shuffle=False)
        >>> loader = DataLoader(range(5), batch_size=2, sampler=five)
        >>> [(batch.tolist(), repeated(loader, number)) for number, batch in enumerate(loader)]
        [([1, 3], 0), ([0], 1)]
    """
    sampler = _sampler(loader)
    if not isinstance(sampler, DistributedSampler) or batch_idx + 1 != len(loader):
        return 0
    batches = getattr(loader, "batch_sampler", None)
    if getattr(batches, "drop_last", False) and sampler.num_samples % getattr(batches, "batch_size", 1):
        return 0  # the last samples are in no batch
    return max(0, sampler.num_samples - len(range(sampler.rank, _count(sampler), sampler.num_replicas)))


def _sampler(loader: Any) -> Any:
    return getattr(getattr(loader, "batch_sampler", None), "sampler", getattr(loader, "sampler", None))


def _count(sampler: DistributedSampler[Any]) -> int:
    return len(sampler.dataset)  # type: ignore[arg-type]  # a dataset without length has no such sampler


def is_mapped(X: Any) -> bool:
    """Whether samples are larger than memory.

    Example:
        >>> is_mapped(torch.zeros(2, 2))
        False
    """
    return in_parts(X) or isinstance(X, PartRows)


def part_size(X: Any) -> int | str:
    """A batch size for evaluation: what is read at once of data larger than memory, else ``"full"``.

    Example:
        >>> part_size(torch.zeros(2, 2))
        'full'
    """
    if not is_mapped(X):
        return "full"
    rows = X if isinstance(X, PartRows) else rows_as_read(X)
    return int(rows.bounds.diff().max())


def _kept(X: Any) -> Any:
    if isinstance(X, np.memmap) and not in_parts(X):  # small enough to be read as a whole
        return torch.from_numpy(np.array(X))
    return checks.as_csr(X) if checks.is_sparse(X) else X


def _tensor(X: Any) -> Tensor:
    return X if isinstance(X, Tensor) else convert.csr_tensor(X)


def check_batch_size(batch_size: int | str, samples: int) -> int:
    """A batch size as a number of samples.

    Example:
        >>> check_batch_size("full", 100), check_batch_size(32, 100)
        (100, 32)
    """
    if isinstance(batch_size, str):
        checks.one_of("batch_size", batch_size, ("full",))
        return samples
    return min(checks.whole("batch_size", batch_size, at_least=1), samples)
