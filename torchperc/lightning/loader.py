"""A loader whose batches are slices, for data in memory and larger than memory; it can resume within an epoch."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from torchperc import _checks as checks
from torchperc.rules.orders import Order
from torchperc.samples import convert
from torchperc.samples.parts import PartRows, in_parts, rows_as_read

LOADER_ORDERS = ("given", "shuffled")


class SliceLoader:
    """Batches of (X, y) as slices, dense or of the layout ``torch.sparse_csr``.

    The order depends on seed and epoch alone, and the loader keeps its position, so that a run resumed in the middle of
    an epoch sees the same samples in the same order. Samples larger than memory are read batch by batch; with
    ``batch_size="full"`` the batch is a :class:`Mapped`.

    Args:
        X: samples: a tensor, a scipy CSR array or a sparse tensor, a ``numpy.memmap``, or ``CsrParts``.
        y: labels.
        batch_size: samples per batch, or ``"full"`` for all of them in one.
        order: ``"given"``, or ``"shuffled"`` as :class:`~torchperc.RuleTrainer` shuffles with the same seed.
        seed: of the permutations.

    Shape:
        yields (B, d), (B,).

    Example:
        >>> loader = SliceLoader(torch.arange(6.0).reshape(3, 2), torch.tensor([1, -1, 1]), batch_size=2)
        >>> [batch[0].tolist() for batch in loader]
        [[[0.0, 1.0], [2.0, 3.0]], [[4.0, 5.0]]]
    """

    def __init__(self, X: Any, y: Tensor, batch_size: int | str = "full", order: str = "given", seed: int = 0) -> None:
        self.X, self.y = _kept(X), y
        if self.X.shape[0] != len(y):
            raise ValueError(f"y has {len(y)} values for {self.X.shape[0]} samples; they must have the same length")
        self.batch_size, self._full = check_batch_size(batch_size, len(y)), batch_size == "full"
        self.order = checks.one_of("order", order, LOADER_ORDERS)
        self.seed = checks.whole("seed", seed, at_least=0)
        self._epoch = self._position = 0
        self._shuffler: Order | None = None
        self._drawn = 0
        self._rows = self.X if isinstance(self.X, PartRows) else rows_as_read(self.X) if is_mapped(self.X) else None
        self._whole: Any = None

    def __len__(self) -> int:
        return -(-len(self.y) // self.batch_size)

    def __iter__(self) -> Iterator[tuple[Any, Tensor]]:
        order = self._permutation() if self.order == "shuffled" else None
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

    def _batch(self, number: int, order: Tensor | None) -> tuple[Any, Tensor]:
        part = slice(number * self.batch_size, (number + 1) * self.batch_size)
        labels = self.y[part] if order is None else self.y[order[part]]
        if self._rows is not None:
            if self._full:
                return Mapped(self.X, self._rows, order), labels
            index = torch.arange(*part.indices(len(self.y))) if order is None else order[part].cpu()
            return _tensor(self._rows.take(index).raw()), labels
        if isinstance(self.X, Tensor):
            return self.X[part] if order is None else self.X[order[part]], labels
        if order is None and len(self) == 1:
            self._whole = convert.csr_tensor(self.X) if self._whole is None else self._whole
            return self._whole, labels
        return convert.csr_tensor(self.X[part] if order is None else self.X[order[part].cpu().numpy()]), labels

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
        self.shape, self.dtype = (len(rows), rows.width), rows.dtype
        self._rows = rows

    def __len__(self) -> int:
        return self.shape[0]

    def __iter__(self) -> Iterator[Tensor]:
        if self.order is None:
            for rows in self._rows.pieces():
                yield _tensor(rows.raw())
            return
        for rows, at in self._rows.parts(self.order.cpu()):
            yield _tensor(rows.take(at).raw())


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
