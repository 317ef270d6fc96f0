"""Helpers for trained modules: the model for new data, wrong decisions, predictions. They need no Trainer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from torchperc.data.prepared_data import PreparedData
from torchperc.lightning.loader import SliceLoader, part_size
from torchperc.model.fitted import FittedModel
from torchperc.nn.heads import Head


class DivergenceWarning(UserWarning):
    """The loss or the weights of a run stopped being finite."""


def divergence(epoch: int, finite_weights: bool) -> DivergenceWarning:
    """The warning that a run diverged in an epoch: in its loss, if its weights are finite."""
    return DivergenceWarning(
        f"the run diverged in epoch {epoch}: {'the loss' if finite_weights else 'a weight'} is not finite any more. "
        "The last finite weights are kept. Try a smaller lr, or scaled data (scale='standard')."
    )


class Learned(Protocol):
    """What is asked of a module here; Lightning's have it, and those that are trained without a Trainer."""

    net: nn.Module
    head: Head

    @property
    def device(self) -> torch.device:
        """Where it computes."""

    def predict_step(self, batch: Any) -> Tensor:
        """Labels, or numbers."""


def fitted_model(module: Learned, data: PreparedData, about: Mapping[str, str] | None = None) -> FittedModel:
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


@torch.no_grad()
def wrong_decisions(module: Learned, X: Any, y: Tensor) -> int:
    """Number of wrong decisions of a module on scaled samples, as a data module has them in ``parts``.

    Example:
        >>> import torchperc as tp
        >>> wrong_decisions(tp.lightning.LitRule(tp.Perceptron(2)), *tp.data.gate("AND"))
        3
    """
    wrong = 0
    for some, labels in SliceLoader(X, y, part_size(X), sharding="none"):
        wrong += int((module.predict_step(some.to(module.device)).cpu() != labels).sum())
    return wrong


@torch.no_grad()
def predictions(module: Learned, data: PreparedData, which: int) -> tuple[Tensor, Tensor]:
    """Predictions and targets of a set of the data, 0 for training, 1 for validation, 2 for test, in raw units.

    Shape:
        (N,) and (N,), float64.

    Example:
        >>> import torchperc as tp
        >>> data = tp.lightning.TabularDataModule("diabetes")
        >>> predicted, y = predictions(tp.lightning.LitRegressor(tp.Perceptron(10)), data, 1)
        >>> len(predicted), bool((predicted == data.unscaled(torch.zeros(1))).all())  # the mean of the training targets
        (89, True)
    """
    X, y = data.parts[which]
    loader = SliceLoader(X, y, part_size(X), sharding="none")
    found = [data.unscaled(module.predict_step(some.to(module.device)).cpu()) for some, _ in loader]
    return torch.cat(found) if found else y.double(), data.dataset.y[data.indices[which]]
