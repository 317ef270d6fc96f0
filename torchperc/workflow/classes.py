"""Classes learned four times: by the perceptron rule and by gradient on three losses."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from torch import Tensor

from torchperc.data.prepared_data import PreparedData
from torchperc.lightning.outcome import wrong_decisions
from torchperc.nn.heads import head as head_by_name
from torchperc.reports.budget import moderate
from torchperc.reports.scores import Tally
from torchperc.rules.conventions import Verdict
from torchperc.samples.mapped import is_chunked
from torchperc.workflow.candidates import Trained, TrainedModule, safe_lr, train_by_descent, train_by_rule

if TYPE_CHECKING:
    from torchperc.reports.page import Block
    from torchperc.reports.report import Report

EPOCHS = {"rule": 30, "perceptron": 200, "lms": 200, "logistic": 200}  # epochs at most
MANY = 20_000  # training samples from which, as with those larger than memory, fewer epochs and single steps do
EPOCHS_OF_MANY = {"rule": 10, "perceptron": 50, "lms": 20, "logistic": 20}
_SETS = ("training", "validation", "test")


class Classes:
    """The candidates of a table with labels, and how they are judged."""

    task, worse = "classification", "no model has a lower validation error than the majority-class baseline"

    def __init__(self, data: PreparedData, max_epochs: int | None) -> None:
        X, y = data.parts[0]
        self.data, self._many = data, len(y) >= MANY or is_chunked(X)
        self._epochs = {name: max_epochs or (EPOCHS_OF_MANY if self._many else EPOCHS)[name] for name in EPOCHS}
        self.names = tuple(EPOCHS)

    def train(self, name: str) -> Trained:
        """Train a candidate."""
        X, epochs = self.data.parts[0][0], self._epochs[name]
        if name == "rule":
            options: dict[str, Any] = {"order": "shuffled", "select": "averaged", "seed": self.data.seed}
            options["prove"] = isinstance(X, Tensor) and moderate(X.shape, self.data.classes)
            return train_by_rule(self.data, epochs, options)
        head = head_by_name(name)
        if name == "perceptron":  # whose steps do not get smaller by themselves, and one by one are the rule's own
            return train_by_descent(self.data, head, epochs, 1.0, anneal=True)
        lr = safe_lr(self.data, head, by_sample=self._many)
        return train_by_descent(self.data, head, epochs, lr, by_sample=self._many, anneal=self._many)

    def score(self, module: TrainedModule, which: int) -> Tally:
        """Wrong decisions on a set: 0 training, 1 validation, 2 test."""
        X, y = self.data.parts[which]
        return Tally(wrong_decisions(module, X, y), len(y))

    def loss(self, score: Tally) -> float:
        """What the best candidate has least of."""
        return score.error

    def verdict(self, trained: Trained, training: Tally) -> str:
        """How a training ended, by the weights that were kept unless it was by rule."""
        if trained.result is not None:
            return trained.result.verdict.name
        return (Verdict.BUDGET if training.wrong else Verdict.SEPARATED).name

    def baseline(self) -> Tally:
        """The validation error of always predicting the majority class of the training set."""
        validation = self._per_class(1)
        right, total = int(validation[self._per_class(0).argmax()]), int(validation.sum())
        return Tally(total - right, total)

    def _per_class(self, which: int) -> Tensor:
        """How many samples of each class a set has (K,)."""
        y = self.data.parts[which][1]
        codes = (y + 1) // 2 if self.data.classes is None else y
        return codes.bincount(minlength=len(self.data.dataset.labels))

    def results(self) -> dict[str, Any]:
        """What else is written of the comparison."""
        return {}

    def notes(self) -> Iterator[str]:
        """What a reader of the figures should know about the classes."""
        for which, name in enumerate(_SETS):
            counts = self._per_class(which).tolist()
            absent = [label for label, count in zip(self.data.dataset.labels, counts, strict=True) if not count]
            if any(counts) and absent:
                few = ", ".join(map(repr, absent[:5])) + (", …" if len(absent) > 5 else "")
                yield f"the {name} set has no sample of {few}, of which there are very few"

    def report(self, title: str, best: Trained, rule: Trained | None, again: list[Block]) -> Report:
        """Report the best candidate; the rule's proof about the training data is not made again if it is there."""
        from torchperc.reports.trained import of_model

        proof = None if rule is None or rule.result is None else rule.result.certificate
        known: dict[str, Any] = {"how": [("learned by", best.how)], "curves": best.curves, "certificate": proof}
        return of_model(title, best.module, self.data, result=best.result, again=again, **known)
