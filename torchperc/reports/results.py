"""The results of runs: scores of models, the comparison of candidates, and the files in a run's folder."""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from torchperc._checks import Data, as_tensor, require_packages
from torchperc._files import write_atomically
from torchperc.reports.text import percent, short

Curve = npt.NDArray[np.float64]
Curves = Mapping[str, tuple[Curve, Curve]]  # epochs and values by name
CONFIG, RESULTS, CURVES = "config.yaml", "results.json", "metrics.csv"  # in the folder of a run
PROVED, PROVED_BY_CLASSES = 400_000, 1_000_000  # numbers, and numbers times classes, of data that are proved separable


def small_enough_to_prove(shape: Sequence[int], classes: int | None) -> bool:
    """Whether training data (N, d) can be proved separable, or not, within seconds."""
    numbers = math.prod(shape)
    return numbers <= PROVED and numbers * (classes or 1) <= PROVED_BY_CLASSES


class Tally(NamedTuple):
    """Wrong decisions among samples, and the error with its 95 % interval.

    Example:
        >>> print(Tally(3, 114))
        2.6 % (0.9–7.5)
    """

    wrong: int
    samples: int

    @property
    def error(self) -> float:
        """The fraction of wrong decisions."""
        return self.wrong / self.samples

    def __str__(self) -> str:
        from scipy.stats import binomtest

        low, high = binomtest(self.wrong, self.samples).proportion_ci(method="wilson")
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
        return cls.of_sums(squares, spread, len(targets))

    @classmethod
    def of_sums(cls, squares: float, spread: float, samples: int) -> Fit:
        """Of the sums Σ(y − p)² and Σ(y − ȳ)²."""
        return cls(math.sqrt(squares / samples), 1 - squares / spread if spread else float(squares == 0), samples)

    def __str__(self) -> str:
        r2 = f"{round(self.r2, 3) + 0.0:.3f}" if abs(self.r2) < 1000 else f"{self.r2:.3g}"  # of a run that diverged
        return f"RMSE {short(self.rmse)}, R² {r2.replace('-', '−')}"


@dataclass(frozen=True)
class Candidate:
    """One of the models that ``learn`` compared. Its scores are a :class:`Tally`, of a regression a :class:`Fit`."""

    name: str  # "rule", that of the head, "least squares" or "ridge"
    validation: Any
    training: Any
    how: str  # it was learned, in words
    epochs: int
    seconds: float
    verdict: str = ""  # of a classifier

    @property
    def folder(self) -> str:
        """Its folder below that of the run."""
        return self.name.replace(" ", "-")


def comparison(candidates: Sequence[Candidate], baseline: Any) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Heads and rows of a table of candidates, the baseline last.

    Example:
        >>> heads, rows = comparison([Candidate("lms", Fit(5.0, 0.5, 9), Fit(4.0, 0.6, 9), "", 20, 0.1)], Fit(7, 0, 9))
        >>> heads[:2], rows[0][1], rows[1][:2]
        (('learned by', 'validation'), 'RMSE 5.000, R² 0.500', ('mean', 'RMSE 7.000, R² 0.000'))
    """
    real = isinstance(baseline, Fit)
    heads = ("learned by", *(("validation", "training") if real else ("validation error", "training", "verdict")))
    rows = []
    for each in candidates:
        training = (str(each.training),) if real else (percent(each.training.error, ".1f"), each.verdict)
        rows.append((each.name, str(each.validation), *training, str(each.epochs), f"{each.seconds:.1f} s"))
    last = "mean" if real else "majority class", str(baseline), *[""] * (len(heads) - 2)
    return (*heads, "epochs", "time"), [*rows, (*last, "", "")]


def is_run(folder: Path) -> bool:
    """Whether a folder is that of a run, by ``torchperc fit`` or ``torchperc learn``."""
    return (folder / CONFIG).is_file() or (folder / RESULTS).is_file()


def write_curves(folder: Path, curves: Curves) -> None:
    """Write curves, of which each has a value for the epochs 1, 2, …; :func:`curves_of` reads them."""
    epochs = range(1, 1 + max((len(steps) for steps, _ in curves.values()), default=0))
    rows = zip(epochs, *(values.tolist() for _, values in curves.values()), strict=True)
    lines = [",".join(("epoch", *curves)), *(",".join(map(repr, row)) for row in rows)]
    write_atomically(folder / CURVES, "".join(f"{line}\n" for line in lines).encode())


def curves_of(folder: Path) -> Curves:
    """Epochs and values of every curve of a run; of an epoch logged twice the later value.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     write_curves(Path(folder), {"error/val": (np.array([1.0, 2.0]), np.array([0.5, 0.25]))})
        ...     curves_of(Path(folder))
        {'error/val': (array([1., 2.]), array([0.5 , 0.25]))}
    """
    path = folder / CURVES
    if not path.is_file():
        return _logged_curves(folder)
    try:
        names, *rows = csv.reader(path.read_text().splitlines())
        table = np.array(rows, dtype=np.float64).reshape(-1, len(names))
    except (ValueError, OSError) as error:
        raise ValueError(f"{path} is not what `torchperc learn` writes ({error}); run it again") from None
    return {name: (table[:, 0], table[:, j]) for j, name in enumerate(names) if j}


def _logged_curves(folder: Path) -> Curves:
    """The scalars of event files; a Trainer counts batches, and logs beside them how many epochs are complete."""
    require_packages("reading event files", "tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator  # type: ignore[import-untyped]

    events = EventAccumulator(str(folder), size_guidance={"scalars": 0, "images": 1, "histograms": 1})
    events.Reload()
    tags = events.Tags()["scalars"]
    logged = events.Scalars("epoch") if "epoch" in tags else []
    epochs = {event.step: event.value + 1 for event in reversed(logged)}  # a test after the last epoch counts it again
    curves = {}
    for tag in tags:
        values = {epochs.get(event.step, event.step): event.value for event in events.Scalars(tag)}
        curves[tag] = np.array(sorted(values), dtype=np.float64), np.array([values[step] for step in sorted(values)])
    return curves
