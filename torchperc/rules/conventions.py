"""What the authors of perceptrons disagree about, by name: ties, bias steps, orders, selections, verdicts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from typing import Any

import numpy as np
import torch
from torch import Tensor

from torchperc._checks import check_choice
from torchperc.nn.functional import TIES as TIES
from torchperc.samples.rows import Array

BIAS_STEPS = ("unit", "radius", "none")
ORDERS = ("given", "shuffled", "random-mistake")
SELECTS = ("last", "averaged", "voted", "pocket", "best-validation")
RATCHETS = ("runs", "every")
DISTRIBUTED = ("mix",)
ENGINES = ("auto", "reference", "compiled")


class Verdict(Enum):
    """How training ended; a result in every case, not an exception.

    Example:
        >>> Verdict.SEPARATED.sentence
        'an epoch without a mistake: these weights separate the training data'
    """

    SEPARATED = "separated", "an epoch without a mistake: these weights separate the training data"
    NOT_SEPARABLE = "not separable", "it is proved that no hyperplane separates the training data"
    CYCLING = "cycling", "the weights of an earlier epoch recurred: in this order the run repeats forever"
    BUDGET = "budget", "reached max_epochs with mistakes left: try more epochs, or select averaged or pocket"
    CONVERGED = "converged", "the gradient is below tol, or the loss has stopped falling"
    STOPPED_EARLY = "stopped early", "the loss on the validation samples has stopped falling"
    UNBOUNDED = "unbounded", "the loss has no minimum: a hyperplane separates the samples, so it falls forever"

    def __new__(cls, value: str, sentence: str = "") -> Verdict:
        """Return the member of a value, with the sentence that says what it means."""
        member = object.__new__(cls)
        member._value_, member.sentence = value, sentence
        return member

    sentence: str


class Order:
    """The order of every epoch of a run.

    Args:
        order: ``"given"``, ``"shuffled"`` (a new permutation each epoch), ``"random-mistake"`` (N random picks of a
            current mistake per epoch), sample numbers for every epoch, or one row of sample numbers per epoch.
        ids: the samples that take part, in their given order.
        seed: random seed of the permutations and picks.
        max_epochs: maximum number of epochs.
        bounds: where chunks of samples larger than memory begin and end; ``"shuffled"`` shuffles the chunks and the
            samples within each.

    Example:
        >>> order = Order("shuffled", np.arange(4), seed=0)
        >>> [part.tolist() for part in order.epoch(0, lambda: np.ones(4, bool))]
        [[0, 1, 3, 2]]
    """

    def __init__(self, order: Any, ids: Array, seed: int = 0, max_epochs: int = 1, bounds: Array | None = None) -> None:
        self.name = order if isinstance(order, str) else "explicit"
        self.ids, self.generator = ids, torch.Generator().manual_seed(seed)
        self.table: Any = None if isinstance(order, str) else _table(order, ids, max_epochs)
        self.no_mistake_left = False
        self._chunks = [ids] if bounds is None else np.split(ids, np.searchsorted(ids, bounds[1:-1]))

    @property
    def repeats(self) -> bool:
        """Whether every epoch has the same order, so that recurring weights mean a cycle."""
        return self.name == "given" or (self.table is not None and self.table.ndim == 1)

    def covers(self, number: int) -> bool:
        """Return whether epoch ``number`` presents every sample that takes part."""
        return self.table is None or len(np.unique(self._row(number))) == len(self.ids)

    def epoch(self, number: int, mistakes: Callable[[], Array] | None = None) -> Iterator[Array]:
        """Yield the sample numbers of an epoch in parts; ``mistakes()`` says which samples are mistakes now."""
        if self.table is not None:
            yield self._row(number)
        elif self.name == "given":
            yield self.ids
        elif self.name == "shuffled":
            for chunk in torch.randperm(len(self._chunks), generator=self.generator).tolist():
                ids = self._chunks[chunk]
                yield ids[torch.randperm(len(ids), generator=self.generator).numpy()]
        else:
            assert mistakes is not None
            for _ in range(len(self.ids)):
                wrong = self.ids[mistakes()[self.ids]]
                if not len(wrong):
                    self.no_mistake_left = True
                    return
                pick = int(torch.randint(len(wrong), (1,), generator=self.generator))
                yield wrong[pick : pick + 1]

    def _row(self, number: int) -> Any:
        return self.table if self.table.ndim == 1 else self.table[number]

    def state_dict(self) -> dict[str, Any]:
        """Return the random state."""
        return {"random": self.generator.get_state(), "no_mistake_left": self.no_mistake_left}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume from a :meth:`state_dict`."""
        self.generator.set_state(state["random"])
        self.no_mistake_left = state["no_mistake_left"]


def check_order(order: Any) -> Any:
    """Return ``order`` if it is a known name or a sequence."""
    if isinstance(order, str):
        return check_choice("order", order, ORDERS)
    if not isinstance(order, (Sequence, Tensor, np.ndarray)):
        raise TypeError(f"order must be one of {', '.join(ORDERS)} or sample numbers, found {type(order).__name__}")
    return order


def _table(order: Any, ids: Array, max_epochs: int) -> Array:
    try:
        table = np.asarray(order.detach().cpu() if isinstance(order, Tensor) else order)
    except (ValueError, TypeError, NotImplementedError) as error:
        raise ValueError(f"order must be integer sample numbers, in rows of equal length: {error}") from None
    if table.ndim not in (1, 2) or not table.size or table.dtype.kind not in "iu":
        raise ValueError(f"order must be integer sample numbers, found shape {table.shape} of {table.dtype}")
    if table.ndim == 2 and max_epochs > len(table):
        raise ValueError(f"max_epochs={max_epochs}, but order has rows for {len(table)} epochs only")
    unknown = np.setdiff1d(table, ids)
    if len(unknown):
        raise ValueError(f"order contains sample {unknown[0]}; use 0 to {ids.max()}, with weights above 0")
    return table.astype(np.int64)
