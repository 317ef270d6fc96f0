"""Least squares and ridge regression under a Lightning Trainer: the minimum in one step."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from torchperc import _checks as checks
from torchperc.descent.minimise import minimise
from torchperc.descent.sgd import check_linear
from torchperc.lightning.base import Samples
from torchperc.lightning.checkpoints import plain
from torchperc.lightning.loader import Mapped
from torchperc.lightning.regressor import Regression
from torchperc.model.describe import uncompiled
from torchperc.nn.heads import RegressionHead


class LitLeastSquares(Regression):
    """Takes a linear net to the minimum of mean ½(y − s)² + ½·l2·‖w‖², by :func:`torchperc.minimise`.

    Without a penalty this is least squares, with one ridge regression; the bias is not penalised. With scikit-learn's
    ``Ridge``, ``alpha`` is N·l2 for N training samples. All training samples must come in one batch, and one epoch is
    all there is to do. It logs ``loss/train``, ``rmse/train``, ``r2/train`` and ``norm`` of the minimum, and
    ``loss/val``, ``rmse/val`` and ``r2/val`` if there is validation data.

    Args:
        net: a linear net: a :class:`~torchperc.Perceptron`, a ``MulticlassPerceptron`` or an ``nn.Linear``.
        l2: the weight of the penalty.

    Example:
        >>> import tempfile, torchperc as tp
        >>> lit, data = tp.lightning.LitLeastSquares(tp.Perceptron(10)), tp.lightning.TabularDataModule("diabetes")
        >>> trainer = tp.lightning.make_trainer(tempfile.mkdtemp(), 1, enable_progress_bar=False)
        >>> trainer.fit(lit, data)
        >>> round(float(trainer.callback_metrics["r2/val"]), 2)
        0.5
    """

    def __init__(self, net: nn.Module, l2: float = 0.0) -> None:
        super().__init__(net, RegressionHead())
        self.l2 = checks.number("l2", l2, at_least=0)
        check_linear(uncompiled(self.net))
        self.automatic_optimization = False
        self.save_hyperparameters(plain({**self._described(), "l2": self.l2}))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """An optimizer without gradients: it counts the step, for checkpoints and ``max_steps``."""
        return torch.optim.SGD(self.net.parameters(), lr=1.0)

    def on_fit_start(self) -> None:
        """Refuse what would be ignored or give other results."""
        self._refuse("the minimum")

    def training_step(self, batch: Any, batch_idx: int) -> None:
        """The minimum over the batch, which is the training set."""
        if self.trainer.num_training_batches != 1:
            raise ValueError(
                f"the minimum is that of all training samples, found {self.trainer.num_training_batches} batches of "
                "them; use batch_size='full', or LitRegressor, which descends batch by batch"
            )
        samples = self._samples(batch, "train", batch_idx)
        if isinstance(samples.x, Mapped):
            raise ValueError("the training samples are larger than memory; use LitRegressor, which reads them in parts")
        minimise(check_linear(uncompiled(self.net)), self.head, samples.x, samples.y, l2=self.l2, **_weights(samples))
        self.optimizers().step()  # type: ignore[union-attr]  # there is one, without gradients: it counts the step
        with torch.no_grad():
            scores = self(samples.x)
        sums = self._new_sums()
        sums.add(len(samples.y), self._tally(scores, samples.y, self._factors(scores, samples.y, samples.weight)))
        values = sums.means(self.net.parameters())
        self._log({f"{name}/train" if name in self._measures else name: value for name, value in values.items()})

    def _kind(self) -> dict[str, Any]:
        return {**super()._kind(), "module": "LitLeastSquares", "l2": self.l2}


def _weights(samples: Samples) -> dict[str, Any]:
    return {} if samples.weight is None else {"sample_weight": samples.weight}
