"""Batches that are slices of samples, and what a trained module says of them; no Trainer is needed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from torchperc._checks import as_csr, check_choice, check_int, is_sparse, tensor_view
from torchperc.data.prepared_data import PreparedData
from torchperc.model.model import FittedModel
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
        batch_size: samples per batch, of all processes together, or ``"full"`` for all of them in one.
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
        self.batch_size = check_batch_size(batch_size, max(1, len(y)))
        self.order = check_choice("order", order, LOADER_ORDERS)
        self.seed = check_int("seed", seed, at_least=0)
        self.sharding = check_choice("sharding", sharding, ("split", "none"))
        self._epoch = self._position = self._drawn = 0
        self._resumed = False
        self._shuffler: Order | None = None
        self._last: tuple[slice | None, Any] = None, None  # the last sparse slice, and where it is

    def __len__(self) -> int:
        return -(-len(self.y) // self.batch_size)

    def __iter__(self) -> Iterator[tuple[Any, Tensor]]:
        first, self._resumed = self._position if self._resumed else 0, False  # a pass broken off begins anew
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
        for epoch in range(self._drawn, self._epoch + 1):
            order = np.concatenate(list(self._shuffler.epoch(epoch)))
        self._drawn = self._epoch + 1
        return torch.from_numpy(order).to(self.y.device)

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
        if self._last[0] != part:
            self._last = part, convert.csr_tensor(self.X[part])
        return self._last[1], labels

    def state_dict(self) -> dict[str, Any]:
        """The epoch and the position in it."""
        over = self._position >= len(self)
        return {"epoch": self._epoch + over, "position": 0 if over else self._position}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume from there."""
        self._epoch, self._position, self._resumed = int(state["epoch"]), int(state["position"]), True


def check_batch_size(batch_size: int | str, samples: int) -> int:
    """Return a batch size as a number of samples."""
    if isinstance(batch_size, str):
        check_choice("batch_size", batch_size, ("full",))
        return samples
    return min(check_int("batch_size", batch_size, at_least=1), samples)


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


# --- what a trained module says of data ---


class DivergenceWarning(UserWarning):
    """The loss or the weights of a run stopped being finite."""


def divergence(epoch: int, finite_weights: bool) -> DivergenceWarning:
    """The warning that a run diverged in an epoch: in its loss, if its weights are finite."""
    return DivergenceWarning(
        f"the run diverged in epoch {epoch}: {'the loss' if finite_weights else 'a weight'} is not finite any more. "
        "The last finite weights are kept. Try a smaller lr, or scaled data (scale='standard')."
    )


def fitted_model(module: Any, data: PreparedData, about: Mapping[str, str] | None = None) -> FittedModel:
    """The trained module with the labels or the target, the encoding and the scaling of its data.

    Args:
        module: after training; a net that no file can describe is a ``TypeError``.
        data: that it was trained on.
        about: notes to keep with the model, beside the name of the data.

    Example:
        >>> import torchperc as tp
        >>> lit = tp.lightning.LitClassifier(tp.Perceptron(4), "logistic")
        >>> fitted_model(lit, tp.lightning.TabularDataModule("iris", {"positive": "setosa"})).labels
        ('not setosa', 'setosa')
    """
    table = data.dataset
    return FittedModel(
        module.net,
        module.head,
        scaler=data.scaler,
        labels=table.labels,
        names=table.names,
        encoding=data.encoder,
        about={"data": table.name, "seed": str(data.seed), **(about or {})},
        target=table.target,
        target_scaler=data.target_scaler,
    )


def wrong_decisions(module: Any, X: Any, y: Tensor) -> int:
    """Return the number of wrong decisions of a module on scaled samples, as a data module has them in ``parts``."""
    return sum(int((said != labels).sum()) for said, labels in _answers(module, X, y))


def predictions(module: Any, data: PreparedData, which: int) -> tuple[Tensor, Tensor]:
    """Return predictions and targets of a set of the data (training, validation, test), in raw units, float64."""
    X, y = data.parts[which]
    found = [data.unscaled(said) for said, _ in _answers(module, X, y)]
    return torch.cat(found) if found else y.double(), data.dataset.y[data.indices[which]]


@torch.no_grad()
def _answers(module: Any, X: Any, y: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    for some, labels in SliceLoader(X, y, part_size(X), sharding="none"):
        yield module.predict_step(some.to(module.device)).cpu(), labels
