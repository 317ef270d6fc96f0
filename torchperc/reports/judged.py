"""How good a model is: wrong decisions among samples, or how predictions fit their targets."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from torchperc import _checks as checks
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


@dataclass(frozen=True)
class Fit:
    """How predictions fit targets: RMSE in the target's units, R², and the number of samples.

    RMSE = √(mean (y − p)²) and R² = 1 − Σ(y − p)²/Σ(y − ȳ)²; where all targets are equal, R² is 1 if all are met,
    else 0.

    Example:
        >>> print(Fit.of([2.0, 4.0], [1.0, 5.0]))
        RMSE 1.000, R² 0.750
    """

    rmse: float
    r2: float
    count: int

    @classmethod
    def of(cls, predicted: checks.Data, y: checks.Data) -> Fit:
        """Of predictions (N,) for targets (N,)."""
        targets = checks.as_tensor(y, "y").double()
        errors = targets - checks.as_tensor(predicted, "predicted").double()
        squares, spread = float(errors.square().sum()), float((targets - targets.mean()).square().sum())
        r2 = 1 - squares / spread if spread else float(squares == 0)
        return cls(math.sqrt(squares / len(targets)), r2, len(targets))

    def __str__(self) -> str:
        return f"RMSE {short(self.rmse)}, R² {share(self.r2)}"


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
