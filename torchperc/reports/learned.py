"""The report of a run that compared several models: which was kept and why, then everything about that one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from torchperc._files import write_atomically
from torchperc.reports.folders import RESULTS
from torchperc.reports.page import Block, Section, Table, Text
from torchperc.reports.report import Report
from torchperc.reports.scores import Candidate, Fit, Tally, comparison, short
from torchperc.reports.subject import Curves
from torchperc.reports.trained import compared_curves

_INTERVALS = "Intervals are Wilson's, 95 %. Majority class: the baseline that always predicts the most frequent label."
_MEAN = (
    "RMSE is the root of the mean squared error, in the units of {}: the lower, the better. R² is the fraction of the "
    "variance that is explained, 1 at best. Mean: the baseline that always predicts the mean of the training targets."
)


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
            found["candidates"] = tuple(
                Candidate(**{**each, **{name: score(*each[name]) for name in ("validation", "training")}})
                for each in found["candidates"]
            )
            found["baseline"], test = score(*found["baseline"]), found["test"]
            found["penalties"] = tuple((l2, rmse) for l2, rmse in found["penalties"])
            return cls(**{**found, "test": None if test is None else score(*test)})
        except OSError as error:
            raise ValueError(f"cannot read {path}: {error.strerror}") from None
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"{path} is not what `torchperc learn` writes ({error}); run it again") from None


def of_comparison(one: Report, found: Results, curves: Mapping[str, Curves], target: str | None) -> Report:
    """The report of the model that was kept, after a comparison with the others."""
    real = found.task == "regression"
    what = "RMSE" if real else "error"
    said = f"Kept: {found.best}, the first with the lowest validation {what}."
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
    sections = (Section("Compared", blocks), *compared_curves(curves), *one.sections)
    return Report(one.title, f"Kept: {found.best}. {one.lead}", sections)
