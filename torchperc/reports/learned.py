"""The report of a run that compared several classifiers: which was kept and why, then everything about that one."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torchperc.data.tabular import SplitTable
from torchperc.model.fitted import FittedModel, linear_layers
from torchperc.reports.folders import RESULTS as RESULTS
from torchperc.reports.folders import curves_of
from torchperc.reports.judged import Tally as Tally
from torchperc.reports.page import Block, Section, Table, Text
from torchperc.reports.report import Report
from torchperc.reports.sections import strongest
from torchperc.reports.trained import compared, compared_curves, of_model


def of_learned(folder: Path, module: Any, data: SplitTable, *, title: str, **known: Any) -> Report:
    """Report the classifier that was kept, after a comparison with the others: those in ``results.json``.

    ``known`` is what :func:`torchperc.reports.trained.of_model` is told of it.
    """
    found = _results(folder / RESULTS)
    best = found["best"]
    curves = {each["name"]: curves_of(folder / each["name"]) for each in found["candidates"]}
    report = of_model(title, module, data, **known, curves=curves[best])
    first = [_compared(found), *compared_curves(curves)]
    return Report(title, f"Kept: {best}. {report.lead}", (*first, *report.sections))


def of_shards(folder: Path, *, title: str, again: Sequence[Block] = ()) -> Report:
    """Report a run of several processes, none of which has all samples: comparison, curves, weights and the config."""
    found = _results(folder / RESULTS)
    names = [candidate["name"] for candidate in found["candidates"]]
    model = FittedModel.load(folder)
    words = strongest(linear_layers(model.net)[0][0], model.names, model.labels)
    sections = [_compared(found), *compared({name: folder / name for name in names})]
    sections.append(Section("What was learned", words))
    repeat = [Section("How to reproduce it", tuple(again))] if again else []
    return Report(title, f"Kept: {found['best']}. Learned in several processes.", (*sections, *repeat))


def _compared(found: Mapping[str, Any]) -> Section:
    rows = []
    for each in found["candidates"]:
        errors = (str(Tally(*each[part])) for part in ("validation", "training"))
        rows.append((each["name"], *errors, each["verdict"], str(each["epochs"]), f"{each['seconds']:.2f} s"))
    rows.append(("majority-class baseline", str(Tally(*found["baseline"])), "", "", "", ""))
    heads = ("learned by", "validation error", "training error", "training verdict", "epochs", "time")
    kept = f"Kept: {found['best']}, the first with the lowest validation error."
    test = found["test"]
    judged = "" if test is None else f" Its error on the held-out test set: {Tally(*test)}."
    legend = " Intervals are Wilson's, 95 %; the baseline always predicts the most frequent label."
    return Section("Compared", (Table(heads, rows), Text(f"{kept}{judged}{legend}")))


def _results(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text())
        found["baseline"] = found["guess"] if "guess" in found else found["baseline"]  # its name until 0.1
        return {name: found[name] for name in ("best", "baseline", "test", "candidates")}
    except OSError as error:
        raise ValueError(f"cannot read {path}: {error.strerror}") from None
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path} is not what `torchperc learn` writes ({error}); run it again") from None
