"""From a table to a classifier: the perceptron rule and three losses compared, the best kept, with a report."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from functools import partial
from inspect import signature
from typing import TYPE_CHECKING, Any

from torch import Tensor

from torchperc.data.tabular import SplitTable
from torchperc.lightning.outcome import Learned as Module
from torchperc.lightning.outcome import wrong_decisions
from torchperc.nn.heads import head as head_by_name
from torchperc.reports.budget import moderate
from torchperc.reports.judged import Tally
from torchperc.rules.conventions import Verdict
from torchperc.rules.trainer import RuleTrainer
from torchperc.samples import shards
from torchperc.workflow.outcome import Candidate, Learned
from torchperc.workflow.places import cosine
from torchperc.workflow.training import Run, Trained, table_notes

if TYPE_CHECKING:
    from torchperc.reports.page import Block
    from torchperc.reports.report import Report

EPOCHS = {"rule": 30, "perceptron": 200, "lms": 200, "logistic": 200}  # epochs at most
MANY = 20_000  # training samples from which fewer epochs do; squared and logistic loss then make one step per sample
WORTH_IT = 2**15  # presentations of samples by the rule from which loading its compiled loop is repaid
EPOCHS_OF_MANY = {"rule": 10, "perceptron": 50, "lms": 20, "logistic": 20}

_SETS = ("training", "validation", "test")
_SHOWN = (  # options of the rule that a report names, as LitRule has them
    "lr", "tie", "bias_step", "order", "select", "engine", "seed", "margin", "class_weight", "prove",
    "distributed", "mixing",
)  # fmt: skip
_MODELS: dict[str, dict[str, Any]] = {
    "rule": {"order": "shuffled", "select": "averaged"},
    "perceptron": {"head": "perceptron", "lr": 1.0},
    "lms": {"head": "lms", "lr": "auto"},
    "logistic": {"head": "logistic", "lr": "auto"},
}


def learn_classes(run: Run, distributed: str) -> Learned:
    """Train all candidates into the folder of a run, and write what is about the best."""
    data = run.data
    found: dict[str, Trained] = {}
    options, candidates, configs = {}, [], {}
    for name, fixed in _MODELS.items():
        run.watch(name)
        epochs = run.max_epochs or (EPOCHS_OF_MANY if _many(run) else EPOCHS)[name]
        options[name] = _options(name, run, epochs, distributed)
        kind = "LitRule" if name == "rule" else "LitClassifier"
        found[name] = run.train(name, kind, head_by_name(fixed.get("head", "perceptron")), options[name], epochs)
        candidates.append(_candidate(name, found[name], data))
        configs[name] = run.config(name, kind, options[name], epochs)
    best = min(candidates, key=lambda candidate: candidate.validation.error)
    module = found[best.name].module
    run.watch("writing")
    test = _tally(module, data, 2) if _count(data, 2) else None
    held = {"validation": best.validation, **({} if test is None else {"test": test})}
    about = {"learned by": best.name, **{f"{name} error": str(tally) for name, tally in held.items()}}
    baseline = _baseline(data)
    results = {"best": best.name, "baseline": baseline, "test": test, "candidates": [asdict(c) for c in candidates]}
    report = partial(_report, run, best.name, found, options[best.name])
    model = run.write({name: each.module for name, each in found.items()}, configs, best.name, about, results, report)
    notes, taken = tuple(_notes(data)), data.dataset.guess
    if best.validation.error >= baseline.error:
        notes += ("no model has a lower validation error than the majority-class baseline",)
    return Learned(run.final, tuple(candidates), best, test, baseline, model, notes, taken)


def _report(run: Run, best: str, found: dict[str, Trained], options: dict[str, Any], again: list[Block]) -> Report:
    from torchperc.reports import trained
    from torchperc.reports.learned import of_learned, of_shards

    if not run.alone:
        return of_shards(run.part, title=run.final.name, again=again)
    rule, kept = found["rule"].result, found[best]
    known: dict[str, Any] = {
        "how": trained.by_descent(options.get("head"), options.get("update", "batch"), options.get("lr"))
    }
    if kept.result is not None:
        defaults = {name: each.default for name, each in signature(RuleTrainer).parameters.items() if name in _SHOWN}
        known = {
            "how": trained.by_rule({**{name: defaults[name] for name in _SHOWN}, **options}),
            "result": kept.result,
        }
    known["certificate"] = None if rule is None else rule.certificate
    return of_learned(run.part, kept.module, run.data, title=run.final.name, again=again, **known)


def _many(run: Run) -> bool:
    """Whether there are so many samples that one step per sample is better; several processes cannot make those."""
    return run.alone and len(run.data.parts[0][1]) >= MANY


def _count(data: SplitTable, which: int) -> int:
    """The number of samples in a set, of all processes."""
    return sum(shards.gathered(len(data.parts[which][1])))


def _options(name: str, run: Run, epochs: int, distributed: str) -> dict[str, Any]:
    """What a candidate's module is made with."""
    data, options = run.data, dict(_MODELS[name])
    if name == "rule" and not run.alone:
        return {**options, "seed": data.seed, "distributed": distributed}
    if name == "rule":
        X, y = data.parts[0]
        options |= {"seed": data.seed, "prove": isinstance(X, Tensor) and moderate(X.shape, data.classes)}
        return options if len(y) * epochs >= WORTH_IT else {**options, "engine": "reference"}
    if _many(run) and name != "perceptron":  # whose single steps do not settle: they would be the rule's own
        options["update"] = "sample"
    if name == "perceptron" or _many(run):  # whose steps do not get smaller by themselves
        options["scheduler"] = cosine(epochs)
    return options


def _candidate(name: str, found: Trained, data: SplitTable) -> Candidate:
    training = _tally(found.module, data, 0)
    verdict = Verdict.BUDGET if training.wrong else Verdict.SEPARATED  # by the weights that were kept
    if found.result is not None:
        verdict = found.result.verdict
    return Candidate(name, _tally(found.module, data, 1), training, verdict.name, found.epochs, found.seconds)


def _tally(module: Module, data: SplitTable, which: int) -> Tally:
    X, y = data.parts[which]
    return Tally(sum(shards.gathered(wrong_decisions(module, X, y))), _count(data, which))


def _per_class(data: SplitTable, which: int) -> Tensor:
    """How many samples of each class a set has, in all processes (K,)."""
    y = data.parts[which][1]
    codes = (y + 1) // 2 if data.classes is None else y
    return shards.summed(codes.bincount(minlength=len(data.dataset.labels)))


def _baseline(data: SplitTable) -> Tally:
    validation = _per_class(data, 1)
    right, total = int(validation[_per_class(data, 0).argmax()]), int(validation.sum())
    return Tally(total - right, total)


def _notes(data: SplitTable) -> Iterator[str]:
    """What a reader of the figures should know about the data."""
    yield from table_notes(data)
    for which, name in enumerate(_SETS):
        counts = _per_class(data, which).tolist()
        absent = [label for label, count in zip(data.dataset.labels, counts, strict=True) if not count]
        if any(counts) and absent:
            few = ", ".join(map(repr, absent[:5])) + (", …" if len(absent) > 5 else "")
            yield f"the {name} set has no sample of {few}, of which there are very few"
