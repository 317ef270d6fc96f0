"""An in-memory loader that hands out slices of tensors and knows where it is.

A ``DataLoader`` fetches sample by sample and collates them again; for data in memory a slice is the batch. The order
depends on seed and epoch alone, and the loader keeps its position, so that a run resumed in the middle of an epoch sees
the same samples in the same order as one never interrupted.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from torchperc import checks

LOADER_ORDERS = ("given", "shuffled")


class SliceLoader:
    """Batches of (X, y) as slices.

    Args:
        X: samples.
        y: labels.
        batch_size: how many a batch, or ``"full"`` for all of them in one.
        order: ``"given"``, or ``"shuffled"`` with a new permutation each epoch: the same one that
            :class:`~torchperc.rules.trainer.RuleTrainer` draws from the same seed.
        seed: of the permutations.

    Shape:
        yields (B, d), (B,).

    Example:
        >>> loader = SliceLoader(torch.arange(6.0).reshape(3, 2), torch.tensor([1, -1, 1]), batch_size=2)
        >>> [batch[0].tolist() for batch in loader]
        [[[0.0, 1.0], [2.0, 3.0]], [[4.0, 5.0]]]
    """

    def __init__(
        self, X: Tensor, y: Tensor, batch_size: int | str = "full", order: str = "given", seed: int = 0
    ) -> None:
        self.X, self.y = X, y
        self.batch_size = check_batch_size(batch_size, len(y))
        self.order = checks.one_of("order", order, LOADER_ORDERS)
        self.seed = checks.whole("seed", seed, at_least=0)
        self._epoch = self._position = 0
        self._generator, self._drawn = torch.Generator().manual_seed(self.seed), 0

    def __len__(self) -> int:
        return -(-len(self.y) // self.batch_size)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
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
        """Make the next pass that of the given epoch; a Trainer calls this, so a resumed run sees the same order."""
        if epoch != self._epoch:
            self._epoch, self._position = epoch, 0

    def _permutation(self) -> Tensor:
        """The permutation of this epoch: the n-th that the seed yields, whichever epochs were drawn before."""
        if self._drawn > self._epoch:
            self._generator, self._drawn = torch.Generator().manual_seed(self.seed), 0
        while True:
            order = torch.randperm(len(self.y), generator=self._generator)
            self._drawn += 1
            if self._drawn > self._epoch:
                return order.to(self.y.device)

    def _batch(self, number: int, order: Tensor | None) -> tuple[Tensor, Tensor]:
        part = slice(number * self.batch_size, (number + 1) * self.batch_size)
        if order is None:
            return self.X[part], self.y[part]
        return self.X[order[part]], self.y[order[part]]

    def state_dict(self) -> dict[str, Any]:
        """The epoch, and how many batches of it have been handed out."""
        if self._position >= len(self):
            return {"epoch": self._epoch + 1, "position": 0}
        return {"epoch": self._epoch, "position": self._position}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from there."""
        self._epoch, self._position = int(state["epoch"]), int(state["position"])


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
