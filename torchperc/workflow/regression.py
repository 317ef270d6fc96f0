"""From a table to a prediction of numbers: least squares, ridge and LMS compared, the best kept, with a report."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.optim.lr_scheduler import CosineAnnealingLR

from torchperc import _checks as checks
from torchperc._atomic import write_whole
from torchperc.descent.minimise import minimise
from torchperc.lightning import LitLeastSquares, LitRegressor, TabularDataModule, fitted_model
from torchperc.lightning.trainer import LAST, predictions
from torchperc.model.format import MODEL
from torchperc.nn.modules import Perceptron
from torchperc.reports import runs
from torchperc.reports.learned import RESULTS
from torchperc.reports.regression import Fit, of_learned
from torchperc.reports.runs import CONFIG
from torchperc.samples.parts import in_parts
from torchperc.workflow.outcome import LearnedRegression, Regressor
from torchperc.workflow.places import config
from torchperc.workflow.training import table_notes, train_into

PENALTIES = tuple(10 ** (k / 2) for k in range(-8, 3))
"""What l2 of ridge regression is tried with, in units of the mean square of the features: 0.0001 to 10."""
EPOCHS, EPOCHS_OF_MANY = 200, 20  # of LMS: full-batch steps, or passes with a step per sample
MANY = 20_000  # training samples from which the latter are better
_Module: TypeAlias = LitLeastSquares | LitRegressor


def learn_regression(
    data: TabularDataModule,
    settings: dict[str, Any],
    part: Path,
    final: Path,
    epochs: int | None,
    watch: Callable[[str], None],
) -> LearnedRegression:
    """Train all candidates into a folder that is to become the final one, and write what is about the best."""
    settings = {**settings, "task": "regression"}  # so that the config does not guess again
    small = not in_parts(data.parts[0][0])
    penalties = _penalties(data) if small else ()
    modules: dict[str, _Module] = {}
    candidates, configs = [], {}
    for name in ("least squares", "ridge", "lms") if small else ("lms",):
        watch(name)
        kind, options, how = _options(name, data, penalties)
        budget = 1 if name != "lms" else epochs or (EPOCHS_OF_MANY if _many(data) else EPOCHS)
        if "scheduler" in options:
            options["scheduler"] = partial(CosineAnnealingLR, T_max=budget)
        module = kind(Perceptron(data.width).to(data.dtype), **options)
        took = train_into(part / _folder(name), module, data, budget)
        training, validation = (Fit.of(*predictions(module, data, which)) for which in (0, 1))
        candidates.append(Regressor(name, validation, training, how, *took))
        modules[name] = module
        configs[name] = config(kind, options, data, settings, final / _folder(name), budget)
    best = min(candidates, key=lambda candidate: candidate.validation.rmse)
    module = modules[best.name]
    watch("writing")
    test = Fit.of(*predictions(module, data, 2)) if len(data.indices[2]) else None
    held = {"validation": best.validation, **({} if test is None else {"test": test})}
    model = fitted_model(module, data, {"learned by": best.name, **{name: str(fit) for name, fit in held.items()}})
    baseline = _baseline(data)
    results: dict[str, Any] = {"task": "regression", "best": best.name, "baseline": asdict(baseline)}
    results["penalties"] = penalties
    results |= {"test": None if test is None else asdict(test), "candidates": [asdict(each) for each in candidates]}
    for name, each in modules.items():
        write_whole(part / _folder(name) / CONFIG, configs[name].encode())
        fitted_model(each, data).save(part / _folder(name) / MODEL)
    model.save(part / MODEL)
    shutil.copy(part / _folder(best.name) / LAST, part / LAST)
    text = configs[best.name].replace(str(final / _folder(best.name)), str(final))
    write_whole(part / CONFIG, text.encode())
    write_whole(part / RESULTS, json.dumps(results, indent=1).encode())
    again = runs.command_and_config(final, text)
    of_learned(part, module, data, title=final.name, again=again).save(part / "report.html", part / "card.md")
    notes = tuple(_notes(data, small))
    if best.validation.rmse >= baseline.rmse:
        notes += ("no model has a lower validation RMSE than the mean of the training targets",)
    taken = data.dataset.guess
    return LearnedRegression(final, tuple(candidates), best, test, baseline, model, notes, taken, penalties)


def _folder(name: str) -> str:
    return name.replace(" ", "-")


def _many(data: TabularDataModule) -> bool:
    return len(data.indices[0]) >= MANY


def _options(
    name: str, data: TabularDataModule, penalties: tuple[tuple[float, float], ...]
) -> tuple[type[_Module], dict[str, Any], str]:
    """What a candidate is made with, and how it is found, in words."""
    if name == "least squares":
        return LitLeastSquares, {}, "the minimum of the squared error"
    if name == "ridge":
        l2 = min(penalties, key=lambda tried: tried[1])[0]
        return LitLeastSquares, {"l2": l2}, f"the same with the penalty l2 {l2:.3g}"
    if _many(data):
        return LitRegressor, {"lr": "auto", "update": "sample", "scheduler": None}, "descent, one step per sample"
    return LitRegressor, {"lr": "auto"}, "full-batch gradient descent"


def _penalties(data: TabularDataModule) -> tuple[tuple[float, float], ...]:
    """Each l2 that ridge regression is tried with, and the RMSE on the validation set."""
    X, y = data.parts[0]
    squares = X.double().square().mean() if isinstance(X, Tensor) else (X.data.astype(float) ** 2).sum() / X.shape[0]
    unit = float(squares) / (1 if isinstance(X, Tensor) else X.shape[1]) or 1.0
    found = []
    for factor in PENALTIES:
        module = LitLeastSquares(Perceptron(data.width).to(data.dtype), factor * unit)
        minimise(module.net, module.head, X, y, l2=module.l2)  # type: ignore[arg-type]  # a Perceptron
        found.append((module.l2, Fit.of(*predictions(module, data, 1)).rmse))
    return tuple(found)


def _baseline(data: TabularDataModule) -> Fit:
    training, validation = (data.dataset.y[index] for index in data.indices[:2])
    return Fit.of(torch.full_like(validation, float(training.mean())), validation)


def _notes(data: TabularDataModule, small: bool) -> Iterator[str]:
    """What a reader of the figures should know about the data."""
    yield from table_notes(data)
    if not small:
        yield "least squares and ridge were left out, since the training samples are larger than memory"


def check_alone(processes: int) -> None:
    """Refuse to learn a regression in several processes."""
    if processes > 1:
        why = f"a regression is learned in one process, found {processes}; start one alone, or learn classes with "
        raise checks.ParameterError(why, checks.Option("task", "classification"))
