"""The results of runs: scores of models, the files in a run's folder, and the comparison of candidates."""

from __future__ import annotations

import csv
import json
import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from torchperc._checks import Data, as_tensor, require_packages
from torchperc._files import write_atomically
from torchperc.reports.page import Block, Code, Report, Section, Table, Text
from torchperc.reports.text import percent

if TYPE_CHECKING:
    from torchperc.reports.curves import Curves

CONFIG, RESULTS, CURVES = "config.yaml", "results.json", "metrics.csv"  # in the folder of a run
PROVED, PROVED_BY_CLASSES = 400_000, 1_000_000  # numbers, and numbers times classes, of data that are proved separable
_INTERVALS = "Intervals are Wilson's, 95 %. Majority class: the baseline that always predicts the most frequent label."
_MEAN = (
    "RMSE is the root of the mean squared error, in the units of {}: the lower, the better. R² is the fraction of the "
    "variance that is explained, 1 at best. Mean: the baseline that always predicts the mean of the training targets."
)


def small_enough_to_prove(shape: Sequence[int], classes: int | None) -> bool:
    """Whether training data (N, d) can be proved separable, or not, within seconds."""
    numbers = math.prod(shape)
    return numbers <= PROVED and numbers * (classes or 1) <= PROVED_BY_CLASSES


# --- scores ---


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
        from torchperc.theory.bounds import wilson  # which needs torch; a folder that is taken is refused without it

        low, high = wilson(self.wrong, self.samples)
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

    @property
    def cells(self) -> tuple[str, str]:
        """RMSE with four figures and R² with three decimals, as a table shows them."""
        return short(self.rmse), f"{round(self.r2, 3) + 0.0:.3f}".replace("-", "−")

    def __str__(self) -> str:
        return "RMSE {}, R² {}".format(*self.cells)


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


def comparison(candidates: Sequence[Candidate], baseline: Any) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Heads and rows of a table of candidates, the baseline last.

    Example:
        >>> heads, rows = comparison([Candidate("lms", Fit(5.0, 0.5, 9), Fit(4.0, 0.6, 9), "", 20, 0.1)], Fit(7, 0, 9))
        >>> heads[1:3], rows[0][1:3], rows[1][:2]
        (('validation RMSE', 'R²'), ('5.000', '0.500'), ('mean', '7.000'))
    """
    if isinstance(baseline, Fit):
        heads: tuple[str, ...] = ("validation RMSE", "R²", "training RMSE", "R²")
        scores = [(*each.validation.cells, *each.training.cells) for each in candidates]
        last: tuple[str, ...] = ("mean", *baseline.cells, "", "", "", "")
    else:
        heads = ("validation error", "training", "verdict")
        scores = [(str(each.validation), percent(each.training.error, ".1f"), each.verdict) for each in candidates]
        last = ("majority class", str(baseline), "", "", "", "")
    both = zip(candidates, scores, strict=True)
    rows = [(each.name, *cells, str(each.epochs), f"{each.seconds:.1f} s") for each, cells in both]
    return ("learned by", *heads, "epochs", "time"), [*rows, last]


def short(value: float) -> str:
    """Four figures, such as 1,235 and 0.01235."""
    return (f"{value:,.0f}" if 999.5 <= abs(value) < 1e9 else f"{value:#.4g}").replace("-", "−")


# --- folders ---


def is_run(folder: Path) -> bool:
    """Whether a folder is that of a run, by ``torchperc fit`` or ``torchperc learn``."""
    return (folder / CONFIG).is_file() or (folder / RESULTS).is_file()


def runs_below(folder: Path) -> list[Path]:
    """The folders of runs directly below a folder, by name."""
    shown = (path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))
    return sorted(path for path in shown if is_run(path))


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


def command_and_config(folder: Path, text: str) -> list[Block]:
    """How the run of a folder with a config is made again.

    Example:
        >>> command_and_config(Path("runs/and"), "lr: 1")[1].text
        'torchperc fit --config runs/and/config.yaml --out runs/and-again'
    """
    command = shlex.join(["torchperc", "fit", "--config", str(folder / CONFIG), "--out", f"{folder}-again"])
    return [Text("The config and the versions below reproduce the run:"), Code(command), Code(text)]


@dataclass(frozen=True)
class Results:
    """What ``results.json`` says of a comparison: the settings of the table, the candidates, which was kept."""

    task: str
    data: Mapping[str, Any]
    max_epochs: int | None
    best: str
    baseline: Any
    test: Any
    candidates: tuple[Candidate, ...]
    penalties: tuple[tuple[float, float], ...] = ()

    def save(self, folder: Path) -> None:
        """Write the file of a run's folder."""
        write_atomically(folder / RESULTS, json.dumps(asdict(self), indent=1).encode())

    @classmethod
    def load(cls, folder: Path) -> Results:
        """Read what :meth:`save` wrote; anything else is a ``ValueError``."""
        path = folder / RESULTS
        try:
            found = json.loads(path.read_text())
            if "data" not in found and "best" in found:
                raise ValueError("it is of torchperc 0.2 and does not name its data")
            score = Fit if found["task"] == "regression" else Tally
            for each in found["candidates"]:
                each |= {"validation": score(*each["validation"]), "training": score(*each["training"])}
            found["candidates"] = tuple(Candidate(**each) for each in found["candidates"])
            found["penalties"] = tuple((l2, rmse) for l2, rmse in found["penalties"])
            found["baseline"], test = score(*found["baseline"]), found["test"]
            return cls(**{**found, "test": None if test is None else score(*test)})
        except OSError as error:
            raise ValueError(f"cannot read {path}: {error.strerror}") from None
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"{path} is not what `torchperc learn` writes ({error}); run it again") from None


def of_comparison(one: Report, found: Results, curves: Sequence[Section], target: str | None) -> Report:
    """The report of the model that was kept, after a comparison with the others."""
    real = found.task == "regression"
    said = f"Kept: {found.best}, the first with the lowest validation {'RMSE' if real else 'error'}."
    if found.test is not None:
        said += f" On the held-out test set: {'' if real else 'error '}{found.test}."
    legend = _MEAN.format(target or "the target") if real else _INTERVALS
    ways = "; ".join(f"{each.name}: {each.how}" for each in found.candidates)
    table = Table(*comparison(found.candidates, found.baseline))
    blocks: list[Block] = [table, Text(f"{said} {legend}"), Text(f"Learned by {ways}.")]
    if found.penalties:
        l2, rmse = min(found.penalties, key=lambda each: each[1])
        span = f"l2 from {found.penalties[0][0]:.3g} to {found.penalties[-1][0]:.3g}"
        tried = f"Ridge was tried with {len(found.penalties)} penalties, {span}"
        blocks.append(Text(f"{tried}; {l2:.3g} has the lowest validation RMSE, {short(rmse)}."))
    sections = (Section("Compared", blocks), *curves, *one.sections)
    return Report(one.title, f"{one.lead} Kept: {found.best}.", sections)
