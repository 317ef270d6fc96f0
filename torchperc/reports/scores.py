"""How good a model is: wrong decisions among samples, or how predictions fit their targets; candidates compared."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from torchperc._checks import Data, as_tensor
from torchperc.reports.text import percent
from torchperc.theory.bounds import wilson


class Tally(NamedTuple):
    """Wrong decisions among samples, and the error with its 95 % interval.

    Example:
        >>> print(Tally(3, 114))
        2.6 % (0.9–7.5)
        >>> Tally(3, 114).error
        0.02631578947368421
    """

    wrong: int
    samples: int

    @property
    def error(self) -> float:
        """The fraction of wrong decisions."""
        return self.wrong / self.samples

    @property
    def interval(self) -> tuple[float, float]:
        """Wilson's 95 % interval of the error, see :func:`torchperc.theory.bounds.wilson`."""
        return wilson(self.wrong, self.samples)

    def __str__(self) -> str:
        low, high = self.interval
        return f"{percent(self.error, '.1f')} ({low * 100:.1f}–{high * 100:.1f})"


class Fit(NamedTuple):
    """How predictions fit targets: RMSE in the target's units, R², and the number of samples.

    RMSE = √(mean (y − p)²) and R² = 1 − Σ(y − p)²/Σ(y − ȳ)²; where all targets are equal, R² is 1 if all are met,
    else 0.

    Example:
        >>> print(Fit.of([2.0, 4.0], [1.0, 5.0]))
        RMSE 1.000, R² 0.750
    """

    rmse: float
    r2: float
    samples: int

    @classmethod
    def of(cls, predicted: Data, y: Data) -> Fit:
        """Of predictions (N,) for targets (N,)."""
        targets = as_tensor(y, "y").double()
        errors = targets - as_tensor(predicted, "predicted").double()
        squares, spread = float(errors.square().sum()), float((targets - targets.mean()).square().sum())
        r2 = 1 - squares / spread if spread else float(squares == 0)
        return cls(math.sqrt(squares / len(targets)), r2, len(targets))

    def __str__(self) -> str:
        return f"RMSE {short(self.rmse)}, R² {share(self.r2)}"


@dataclass(frozen=True)
class Candidate:
    """One of the models that ``learn`` compared. Its scores are a :class:`Tally`, of a regression a :class:`Fit`.

    Example:
        >>> Candidate("rule", Tally(1, 30), Tally(0, 90), "the perceptron rule", 2, 0.1, "SEPARATED").validation.error
        0.03333333333333333
    """

    name: str  # "rule", that of the head, "least squares" or "ridge"
    validation: Any
    training: Any
    how: str  # it was learned, in words
    epochs: int
    seconds: float
    verdict: str = ""  # of a classifier


def comparison(candidates: Sequence[Candidate], baseline: Any) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Heads and rows of a table of candidates, the baseline last.

    Example:
        >>> heads, rows = comparison([Candidate("lms", Fit(5.0, 0.5, 9), Fit(4.0, 0.6, 9), "", 20, 0.1)], Fit(7, 0, 9))
        >>> heads[1:3], rows[0][1:3], rows[1][:2]
        (('validation RMSE', 'R²'), ('5.000', '0.500'), ('mean', '7.000'))
    """
    rows: list[tuple[str, ...]] = []
    for each in candidates:
        ends = str(each.epochs), f"{each.seconds:.1f} s"
        if isinstance(each.validation, Fit):
            rows.append((each.name, *_cells(each.validation), *_cells(each.training), *ends))
        else:
            rows.append((each.name, str(each.validation), percent(each.training.error, ".1f"), each.verdict, *ends))
    if isinstance(baseline, Fit):
        columns: tuple[str, ...] = ("validation RMSE", "R²", "training RMSE", "R²")
        last: tuple[str, ...] = ("mean", *_cells(baseline), "", "", "", "")
    else:
        columns, last = ("validation error", "training", "verdict"), ("majority class", str(baseline), "", "", "", "")
    return ("learned by", *columns, "epochs", "time"), [*rows, last]


def _cells(fit: Fit) -> tuple[str, str]:
    return short(fit.rmse), share(fit.r2)


def short(value: float) -> str:
    """Four figures.

    Example:
        >>> short(1234.56), short(54.6), short(0.0123456)
        ('1,235', '54.60', '0.01235')
    """
    return (f"{value:,.0f}" if 999.5 <= abs(value) < 1e9 else f"{value:#.4g}").replace("-", "−")


def share(r2: float) -> str:
    """R² with three decimals.

    Example:
        >>> share(-0.0316), share(-0.0001)
        ('−0.032', '0.000')
    """
    return f"{round(r2, 3) + 0.0:.3f}".replace("-", "−")
