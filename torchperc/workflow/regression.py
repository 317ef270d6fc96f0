"""From a table to a prediction of numbers: least squares, ridge and LMS compared, the best kept, with a report."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from torchperc.data.tabular import SplitTable
from torchperc.descent.minimise import minimise
from torchperc.lightning.outcome import Learned as Module
from torchperc.lightning.outcome import predictions
from torchperc.nn.heads import RegressionHead
from torchperc.nn.modules import Perceptron
from torchperc.reports.judged import Fit
from torchperc.samples.parts import in_parts
from torchperc.workflow.direct import Trained
from torchperc.workflow.outcome import LearnedRegression, Regressor
from torchperc.workflow.places import cosine
from torchperc.workflow.training import Run, table_notes

if TYPE_CHECKING:
    from torchperc.reports.page import Block
    from torchperc.reports.report import Report

PENALTIES = tuple(10 ** (k / 2) for k in range(-8, 3))
"""What l2 of ridge regression is tried with, in units of the mean square of the features: 0.0001 to 10."""
EPOCHS, EPOCHS_OF_MANY = 200, 20  # of LMS: full-batch steps, or passes with a step per sample
MANY = 20_000  # training samples from which the latter are better


def learn_regression(run: Run) -> LearnedRegression:
    """Train all candidates into the folder of a run, and write what is about the best."""
    data = run.data
    small = not in_parts(data.parts[0][0])
    penalties = _penalties(data) if small else ()
    modules: dict[str, Module] = {}
    options, candidates, configs = {}, [], {}
    for name in ("least squares", "ridge", "lms") if small else ("lms",):
        run.watch(name)
        kind, options[name], how = _options(name, data, penalties)
        epochs = 1 if name != "lms" else run.max_epochs or (EPOCHS_OF_MANY if _many(data) else EPOCHS)
        if "scheduler" in options[name]:
            options[name]["scheduler"] = cosine(epochs)
        trained = run.train(name, kind, RegressionHead(), options[name], epochs)
        modules[name] = trained.module
        training, validation = (Fit.of(*predictions(modules[name], data, which)) for which in (0, 1))
        candidates.append(Regressor(name, validation, training, how, trained.epochs, trained.seconds))
        configs[name] = run.config(name, kind, options[name], epochs)
    best = min(candidates, key=lambda candidate: candidate.validation.rmse)
    run.watch("writing")
    test = Fit.of(*predictions(modules[best.name], data, 2)) if len(data.indices[2]) else None
    held = {"validation": best.validation, **({} if test is None else {"test": test})}
    about = {"learned by": best.name, **{name: str(fit) for name, fit in held.items()}}
    baseline = _baseline(data)
    results: dict[str, Any] = {"task": "regression", "best": best.name, "baseline": asdict(baseline)}
    results["penalties"] = penalties
    results |= {"test": None if test is None else asdict(test), "candidates": [asdict(each) for each in candidates]}
    report = partial(_report, run, modules[best.name], options[best.name])
    model = run.write(modules, configs, best.name, about, results, report)
    notes = tuple(_notes(data, small))
    if best.validation.rmse >= baseline.rmse:
        notes += ("no model has a lower validation RMSE than the mean of the training targets",)
    taken = data.dataset.guess
    return LearnedRegression(run.final, tuple(candidates), best, test, baseline, model, notes, taken, penalties)


def _report(run: Run, module: Module, options: dict[str, Any], again: list[Block]) -> Report:
    from torchperc.reports import regression

    by_lr, update = "lr" in options, options.get("update", "batch")
    how = regression.by_descent(update, options["lr"]) if by_lr else regression.by_minimum(options.get("l2", 0.0))
    return regression.of_learned(run.part, module, run.data, title=run.final.name, how=how, again=again)


def _many(data: SplitTable) -> bool:
    return len(data.indices[0]) >= MANY


def _options(
    name: str, data: SplitTable, penalties: tuple[tuple[float, float], ...]
) -> tuple[str, dict[str, Any], str]:
    """What a candidate is made with, and how it is found, in words."""
    if name == "least squares":
        return "LitLeastSquares", {}, "the minimum of the squared error"
    if name == "ridge":
        l2 = min(penalties, key=lambda tried: tried[1])[0]
        return "LitLeastSquares", {"l2": l2}, f"the same with the penalty l2 {l2:.3g}"
    if _many(data):
        return "LitRegressor", {"lr": "auto", "update": "sample", "scheduler": None}, "descent, one step per sample"
    return "LitRegressor", {"lr": "auto"}, "full-batch gradient descent"


def _penalties(data: SplitTable) -> tuple[tuple[float, float], ...]:
    """Each l2 that ridge regression is tried with, and the RMSE on the validation set."""
    X, y = data.parts[0]
    squares = X.double().square().mean() if isinstance(X, Tensor) else (X.data.astype(float) ** 2).sum() / X.shape[0]
    unit = float(squares) / (1 if isinstance(X, Tensor) else X.shape[1]) or 1.0
    found = []
    for factor in PENALTIES:
        net, head = Perceptron(data.width).to(data.dtype), RegressionHead()
        minimise(net, head, X, y, l2=factor * unit)
        found.append((factor * unit, Fit.of(*predictions(Trained(net, head), data, 1)).rmse))
    return tuple(found)


def _baseline(data: SplitTable) -> Fit:
    training, validation = (data.dataset.y[index] for index in data.indices[:2])
    return Fit.of(torch.full_like(validation, float(training.mean())), validation)


def _notes(data: SplitTable, small: bool) -> Iterator[str]:
    """What a reader of the figures should know about the data."""
    yield from table_notes(data)
    if not small:
        yield "least squares and ridge were left out, since the training samples are larger than memory"
