"""The order in which samples are presented, as chunks of sample numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from torchperc._checks import check_choice
from torchperc.rules.conventions import ORDERS


class Order:
    """The order of every epoch of a run.

    Args:
        order: ``"given"``, ``"shuffled"`` (a new permutation each epoch), ``"random-mistake"`` (N random picks of a
            current mistake per epoch), sample numbers for every epoch, or one row of sample numbers per epoch.
        ids: the samples that take part, in their given order.
        seed: of the permutations and picks.
        max_epochs: at most so many.
        bounds: where chunks of samples larger than memory begin and end; ``"shuffled"`` shuffles the chunks and the
            samples within each.

    Example:
        >>> order = Order("shuffled", torch.arange(4), seed=0)
        >>> [chunk.tolist() for chunk in order.epoch(0, lambda: torch.ones(4, dtype=torch.bool))]
        [[0, 1, 3, 2]]
    """

    def __init__(
        self,
        order: str | Sequence[Any] | Tensor | np.ndarray[Any, Any],
        ids: Tensor,
        seed: int = 0,
        max_epochs: int = 1,
        bounds: Tensor | None = None,
    ) -> None:
        self.name = order if isinstance(order, str) else "explicit"
        self.ids = ids
        self.table = None if isinstance(order, str) else _table(order, ids, max_epochs)
        self.seed = seed
        self.ran_dry = False
        self._parts = (ids,) if bounds is None else ids.split(torch.searchsorted(ids, bounds).diff().tolist())

    @cached_property
    def generator(self) -> torch.Generator:
        """Of the permutations and picks."""
        return torch.Generator().manual_seed(self.seed)

    @property
    def repeats(self) -> bool:
        """Whether every epoch has the same order, so that equal weights have equal futures."""
        return self.name == "given" or (self.table is not None and self.table.dim() == 1)

    def covers(self, number: int) -> bool:
        """Whether epoch ``number`` presents every sample that takes part."""
        if self.table is None:
            return True
        return len((self.table if self.table.dim() == 1 else self.table[number]).unique()) == len(self.ids)

    def epoch(self, number: int, mistakes: Callable[[], Tensor] | None = None) -> Iterator[Tensor]:
        """Chunks of the sample numbers of an epoch; ``mistakes()`` says which samples are mistakes now."""
        if self.table is not None:
            yield self.table if self.table.dim() == 1 else self.table[number]
        elif self.name == "given":
            yield self.ids
        elif self.name == "shuffled":
            for number in torch.randperm(len(self._parts), generator=self.generator).tolist():
                ids = self._parts[number]
                yield _taken(ids, torch.randperm(len(ids), generator=self.generator))
        else:
            assert mistakes is not None
            for _ in range(len(self.ids)):
                wrong = self.ids[mistakes()[self.ids]]
                if not len(wrong):
                    self.ran_dry = True  # no sample is a mistake any more
                    return
                yield wrong[int(torch.randint(len(wrong), (1,), generator=self.generator))][None]

    def state_dict(self) -> dict[str, Any]:
        """The random state."""
        return {"random": self.generator.get_state(), "ran_dry": self.ran_dry}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume from a :meth:`state_dict`."""
        self.generator.set_state(state["random"])
        self.ran_dry = state["ran_dry"]


def all_numbers(y: Tensor) -> Tensor:
    """The numbers of all samples, of which these are the labels.

    Example:
        >>> all_numbers(torch.tensor([1, -1, 1]))
        tensor([0, 1, 2])
    """
    return torch.arange(len(y), device=y.device) if y.device.type != "cpu" else torch.from_numpy(np.arange(len(y)))


def _taken(ids: Tensor, places: Tensor) -> Tensor:
    if ids.device.type == "cpu":
        return torch.from_numpy(ids.numpy()[places.numpy()])
    return ids[places.to(ids.device, non_blocking=True)]


def check_order(order: Any) -> Any:
    """Refuse what cannot be an order of any data."""
    if isinstance(order, str):
        return check_choice("order", order, ORDERS)
    if not isinstance(order, (Sequence, Tensor, np.ndarray)):
        raise TypeError(f"order must be one of {', '.join(ORDERS)} or sample numbers, found {type(order).__name__}")
    return order


def sample_numbers(order: Any) -> Tensor:
    """Sample numbers as an int64 tensor.

    Example:
        >>> sample_numbers([2, 0, 1])
        tensor([2, 0, 1])
    """
    try:
        array = np.asarray(order.detach().cpu() if isinstance(order, Tensor) else order)
        if array.dtype.kind not in "iu" and array.size:
            raise TypeError(f"found {array.dtype}")
        return torch.from_numpy(array.astype(np.int64))
    except (ValueError, TypeError, NotImplementedError) as error:
        raise ValueError(f"order must be integer sample numbers, in rows of equal length: {error}") from None


def _table(order: Any, ids: Tensor, max_epochs: int) -> Tensor:
    table = sample_numbers(order)
    if table.dim() not in (1, 2) or table.numel() == 0:
        raise ValueError(f"order must be sample numbers in one or two dimensions, found shape {tuple(table.shape)}")
    if table.dim() == 2 and max_epochs > len(table):
        raise ValueError(f"max_epochs={max_epochs}, but order has rows for {len(table)} epochs only")
    unknown = table.unique()[~torch.isin(table.unique(), ids.cpu())].tolist()
    if unknown:
        raise ValueError(
            f"order names sample {unknown[0]}, which does not take part; samples run from 0 to "
            f"{int(ids.max())} and need a weight above 0"
        )
    return table.to(ids.device)
