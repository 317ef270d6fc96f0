"""The folder of a run: every candidate with its weights and curves, the best, results.json and the report."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torchperc.data.prepared_data import PreparedData
from torchperc.learn import candidates, results
from torchperc.learn.candidates import Trained, TrainedModule
from torchperc.learn.results import LearnResult
from torchperc.lightning.outcome import fitted_model
from torchperc.model.model_file import MODEL
from torchperc.reports.page import Block, Code, Text
from torchperc.reports.results import CURVES, Candidate, curves_of, write_curves

if TYPE_CHECKING:
    from torchperc.reports.page import Report
    from torchperc.theory.certificate import Certificate


def write_run(
    data: PreparedData, max_epochs: int | None, part: Path, final: Path, report: bool, watch: Callable[[str], None]
) -> LearnResult:
    """Train all candidates of a table and write the folder of the run, whose name will be ``final``."""
    part.mkdir()
    found, compared = dict[str, Trained](), list[Candidate]()
    seal = {"digest": data.digest}
    for name in candidates.names(data):
        watch(name)
        trained = found[name] = candidates.train(name, data, max_epochs)
        training, validation = (results.score(trained.module, data, which) for which in (0, 1))
        told = trained.how, trained.epochs, trained.seconds, results.verdict(trained, training)
        compared.append(Candidate(name, validation, training, *told))
        below = part / compared[-1].folder
        below.mkdir()
        write_curves(below, trained.curves)
        fitted_model(trained.module, data, seal).save(below / MODEL)
    best = min(compared, key=lambda each: results.loss(each.validation))
    watch("writing")
    kept, base = found[best.name], results.baseline(data)
    test = results.score(kept.module, data, 2) if len(data.indices[2]) else None
    about = {"learned by": best.name, "validation score": str(best.validation)}
    about |= {} if test is None else {"test score": str(test)}
    learned = LearnResult(
        final,
        tuple(compared),
        best,
        test,
        base,
        model=fitted_model(kept.module, data, {**about, **seal}),
        notes=tuple(results.notes(data, best.validation, base)),
        taken=data.dataset.inferred_task,
        penalties=found["ridge"].penalties if "ridge" in found else (),
        settings={"data": data.settings, "max_epochs": max_epochs},
    )
    learned.save(part)
    shutil.copy(part / best.folder / CURVES, part / CURVES)
    if report:
        rule = found["rule"].result if "rule" in found else None
        page = _report(learned, data, part, None if rule is None else rule.certificate)
        page.save(part / "report.html", part / "card.md")
    return learned


def report_of(folder: Path) -> Report:
    """The report of a run by :func:`learn`, made again from its folder and its data; nothing is trained."""
    learned = LearnResult.load(folder)
    settings = learned.settings["data"]
    if settings["source"] is None:
        raise ValueError(f"{folder} was learned from data in memory, which are not there any more; learn it again")
    data = PreparedData(**settings)
    if learned.model.about.get("digest") != data.digest:
        raise ValueError(f"source={data.source!r} is not the data the run was made on, or its split differs")
    with candidates.few_threads(data):
        return _report(learned, data, folder)


def _report(learned: LearnResult, data: PreparedData, part: Path, proof: Certificate | None = None) -> Report:
    """The report of a run whose files are in ``part``; a proof that the rule found is not made again."""
    from torchperc.reports import classification, regression
    from torchperc.reports.sections import Training, compared

    curves = {each.name: curves_of(part / each.folder) for each in learned.candidates}
    how = [("learned by", learned.best.how)]
    training = Training(_again(**learned.settings), how, curves, compared=[compared(learned)], certificate=proof)
    make = regression.of_module if data.task == "regression" else classification.of_module
    module = TrainedModule(learned.model.net, learned.model.head)
    made = make(learned.folder.resolve().name or str(learned.folder), module, data, training)
    return replace(made, lead=f"{made.lead} Kept: {learned.best.name}.")


def _again(data: Mapping[str, Any], max_epochs: int | None) -> list[Block]:
    """How the run is made again.

    Example:
        >>> _again({"source": "iris", "options": {"positive": "setosa"}, "seed": 1, "task": None}, 5)[1].text
        "torchperc.learn('iris', positive='setosa', seed=1, max_epochs=5)"
    """
    own = {name: value for name, value in data.items() if name not in ("source", "options", "scale_target")}
    given = {**data["options"], **own, "max_epochs": max_epochs}
    source = "X, y" if data["source"] is None else repr(data["source"])
    words = [source, *(f"{name}={value!r}" for name, value in given.items() if value is not None)]
    return [Text("This call and the versions below reproduce the run:"), Code(f"torchperc.learn({', '.join(words)})")]
