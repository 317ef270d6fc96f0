"""What learning from a table comes to: the models that were compared, and the one that was kept."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from torchperc.model.fitted import FittedModel
    from torchperc.reports.learned import Tally
    from torchperc.reports.regression import Fit


@dataclass(frozen=True)
class Candidate:
    """One of the classifiers that :func:`learn` compared: its name, errors, verdict and time.

    Example:
        >>> from torchperc.reports.learned import Tally
        >>> Candidate("rule", Tally(1, 30), Tally(0, 90), "SEPARATED", 2, 0.1).validation.error
        0.03333333333333333
    """

    name: str  # "rule", or that of the head
    validation: Tally
    training: Tally
    verdict: str
    epochs: int
    seconds: float


@dataclass(frozen=True)
class Learned:
    """What :func:`learn` found, and where it is.

    Args:
        folder: of the run.
        candidates: in the order in which they were trained.
        best: the one with the lowest validation error, the first of equals.
        test: its error on the test set, which nothing was chosen by; ``None`` if there is no such set.
        baseline: the validation error of always predicting the majority class.
        model: the best, from a table's features to labels.
        notes: what is worth knowing about the data.
        taken: what the target was taken for, if nobody said and it could be otherwise.

    Example:
        >>> import tempfile, torchperc as tp
        >>> learned = tp.learn("iris", folder=tempfile.mkdtemp() + "/iris", max_epochs=10)
        >>> [candidate.name for candidate in learned.candidates]
        ['rule', 'perceptron', 'lms', 'logistic']
        >>> learned.best.validation.error <= min(c.validation.error for c in learned.candidates)
        True
        >>> learned.model.predict([[5.1, 3.5, 1.4, 0.2]])
        ['setosa']
    """

    folder: Path
    candidates: tuple[Candidate, ...]
    best: Candidate
    test: Tally | None
    baseline: Tally
    model: FittedModel
    notes: tuple[str, ...] = ()
    taken: str = ""

    @property
    def guess(self) -> Tally:
        """Deprecated: ``baseline``."""
        warnings.warn("Learned.guess is now Learned.baseline", DeprecationWarning, stacklevel=2)
        return self.baseline


@dataclass(frozen=True)
class Regressor:
    """One of the regressions that :func:`learn` compared: its name, how it fits, how it was found, and its time.

    Example:
        >>> from torchperc.reports.regression import Fit
        >>> Regressor("ridge", Fit(54.2, 0.48, 89), Fit(53.1, 0.52, 264), "l2 0.01", 1, 0.1).validation.rmse
        54.2
    """

    name: str  # "least squares", "ridge" or "lms"
    validation: Fit
    training: Fit
    how: str
    epochs: int
    seconds: float


@dataclass(frozen=True)
class LearnedRegression(Learned):
    """What :func:`learn` found of a target that is a quantity, and where it is.

    Args:
        folder: of the run.
        candidates: in the order in which they were trained.
        best: the one with the lowest validation RMSE, the first of equals.
        test: how it fits the test set, which nothing was chosen by; ``None`` if there is no such set.
        baseline: how the mean of the training targets fits the validation set.
        model: the best, from a table's features to numbers in the target's own units.
        notes: what is worth knowing about the data.
        taken: what the target was taken for, if nobody said and it could be otherwise.
        penalties: the l2 that ridge regression was tried with, and the validation RMSE of each.

    Example:
        >>> import tempfile, torchperc as tp
        >>> learned = tp.learn("diabetes", folder=tempfile.mkdtemp() + "/diabetes", max_epochs=10)
        >>> [candidate.name for candidate in learned.candidates]
        ['least squares', 'ridge', 'lms']
        >>> learned.best.validation.rmse < learned.baseline.rmse, round(learned.test.r2, 1)
        (True, 0.6)
    """

    candidates: tuple[Regressor, ...]  # type: ignore[assignment]
    best: Regressor  # type: ignore[assignment]
    test: Fit | None  # type: ignore[assignment]
    baseline: Fit  # type: ignore[assignment]
    penalties: tuple[tuple[float, float], ...] = ()
