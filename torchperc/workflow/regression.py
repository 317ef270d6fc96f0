"""A quantity learned three times: by least squares, ridge regression and LMS."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from torchperc.data.prepared_data import PreparedData
from torchperc.lightning.outcome import predictions
from torchperc.nn.heads import RegressionHead
from torchperc.reports.scores import Fit
from torchperc.samples.mapped import is_chunked
from torchperc.workflow.candidates import Trained, TrainedModule, safe_lr, train_by_descent, train_to_minimum

if TYPE_CHECKING:
    from torchperc.reports.page import Block
    from torchperc.reports.report import Report

PENALTIES = tuple(10 ** (k / 2) for k in range(-8, 3))
"""What l2 of ridge regression is tried with, in units of the mean square of the features: 0.0001 to 10."""
EPOCHS, EPOCHS_OF_MANY = 200, 20  # of LMS: full-batch steps, or passes with a step per sample
MANY = 20_000  # training samples from which, as with those larger than memory, the latter are better


class Quantity:
    """The candidates of a table with real targets, and how they are judged."""

    task, worse = "regression", "no model has a lower validation RMSE than the mean of the training targets"

    def __init__(self, data: PreparedData, max_epochs: int | None) -> None:
        large = is_chunked(data.parts[0][0])
        self.data, self._many = data, large or len(data.indices[0]) >= MANY
        self._epochs = max_epochs or (EPOCHS_OF_MANY if self._many else EPOCHS)
        self.names = ("lms",) if large else ("least squares", "ridge", "lms")

    def train(self, name: str) -> Trained:
        """Train a candidate."""
        if name != "lms":
            l2 = min(self.penalties, key=lambda tried: tried[1])[0] if name == "ridge" else 0.0
            return train_to_minimum(self.data, l2)
        lr = safe_lr(self.data, RegressionHead(), by_sample=self._many)
        return train_by_descent(self.data, RegressionHead(), self._epochs, lr, by_sample=self._many)

    @cached_property
    def penalties(self) -> list[tuple[float, float]]:
        """Each l2 that ridge regression is tried with, and the RMSE on the validation set."""
        if "ridge" not in self.names:
            return []
        X = self.data.parts[0][0]
        squares = (X.double() if isinstance(X, Tensor) else torch.from_numpy(X.data).double()).square().sum()
        unit = float(squares) / (X.shape[0] * X.shape[1]) or 1.0
        tried = [(factor * unit, train_to_minimum(self.data, factor * unit)) for factor in PENALTIES]
        return [(l2, self.score(found.module, 1).rmse) for l2, found in tried]

    def score(self, module: TrainedModule, which: int) -> Fit:
        """How predictions fit a set: 0 training, 1 validation, 2 test."""
        return Fit.of(*predictions(module, self.data, which))

    def loss(self, score: Fit) -> float:
        """What the best candidate has least of."""
        return score.rmse

    def verdict(self, trained: Trained, training: Fit) -> str:
        """None: a verdict is about classes."""
        return ""

    def baseline(self) -> Fit:
        """How the mean of the training targets fits the validation set."""
        training, validation = (self.data.dataset.y[index] for index in self.data.indices[:2])
        return Fit.of(torch.full_like(validation, float(training.mean())), validation)

    def results(self) -> dict[str, Any]:
        """What else is written of the comparison."""
        return {"penalties": self.penalties}

    def notes(self) -> Iterator[str]:
        """What a reader of the figures should know about the candidates."""
        if "ridge" not in self.names:
            yield "least squares and ridge were left out, since the training samples are larger than memory"

    def report(self, title: str, best: Trained, rule: Trained | None, again: list[Block]) -> Report:
        """Report the best candidate."""
        from torchperc.reports import regression

        how = [("learned by", best.how)]
        return regression.of_module(title, best.module, self.data, how=how, curves=best.curves, again=again)
