"""What a trained module says of data, and that a run diverged; no Trainer is needed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from torchperc.data.prepared_data import PreparedData
from torchperc.lightning.loader import SliceLoader, part_size
from torchperc.model.model import FittedModel


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
    return FittedModel.of(
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
