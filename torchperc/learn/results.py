"""What learn returns and writes: scores of candidates, baseline, notes and the run's folder."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from torchperc._files import write_atomically
from torchperc.data.prepared_data import PreparedData
from torchperc.learn import candidates
from torchperc.learn.candidates import Trained, TrainedModule, names
from torchperc.lightning.loader import fitted_model, predictions, wrong_decisions
from torchperc.model.model import FittedModel
from torchperc.model.model_file import MODEL
from torchperc.reports.page import Block, Code, Text
from torchperc.reports.results import CURVES, RESULTS, Candidate, Fit, Tally, curves_of, write_curves
from torchperc.reports.text import plural
from torchperc.rules.conventions import Verdict

if TYPE_CHECKING:
    from torchperc.reports.page import Report
    from torchperc.theory.certificate import Certificate

_SETS = ("training", "validation", "test")


@dataclass(frozen=True)
class LearnResult:
    """What :func:`learn` found, and where it is.

    Args:
        folder: of the run.
        candidates: in the order in which they were trained.
        best: the one with the lowest validation error or RMSE, the first of equals.
        test: its error or fit on the test set, which nothing was chosen by; ``None`` if there is no such set.
        baseline: on the validation set, that of the majority class or of the mean of the training targets.
        model: the best, from a table's features to labels, or to numbers in the target's own units.
        notes: what is worth knowing about the data.
        taken: what the target was taken for, if nobody said and it could be otherwise.
        penalties: of a regression, the l2 that ridge was tried with, and the validation RMSE of each.
        settings: ``data``, as :class:`~torchperc.data.PreparedData` takes them, and ``max_epochs``.

    Example:
        >>> import tempfile, torchperc as tp
        >>> learned = tp.learn("iris", folder=tempfile.mkdtemp() + "/iris", max_epochs=10)
        >>> [candidate.name for candidate in learned.candidates]
        ['rule', 'perceptron', 'lms', 'logistic']
        >>> learned.best.validation.error <= min(c.validation.error for c in learned.candidates)
        True
        >>> learned.model.predict([[5.1, 3.5, 1.4, 0.2]])
        ['setosa']
        >>> learned = tp.learn("diabetes", folder=tempfile.mkdtemp() + "/diabetes", max_epochs=10)
        >>> [candidate.name for candidate in learned.candidates]
        ['least squares', 'ridge', 'lms']
        >>> learned.best.validation.rmse < learned.baseline.rmse, round(learned.test.r2, 1)
        (True, 0.6)
    """

    folder: Path
    candidates: tuple[Candidate, ...]
    best: Candidate
    test: Any
    baseline: Any
    model: FittedModel
    notes: tuple[str, ...] = ()
    taken: str = ""
    penalties: tuple[tuple[float, float], ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def save(self, folder: Path) -> None:
        """Write ``results.json`` and the model into the folder of the run."""
        task = "regression" if self.model.regression else "classification"
        texts = {"task": task, "best": self.best.name, **self.settings}
        scores = {name: getattr(self, name) for name in ("baseline", "test", "penalties", "notes", "taken")}
        found = {**texts, **scores, "candidates": [asdict(each) for each in self.candidates]}
        write_atomically(folder / RESULTS, json.dumps(found, indent=1).encode())
        self.model.save(folder / MODEL)

    @classmethod
    def load(cls, folder: Path) -> LearnResult:
        """Read the folder of a run; what :func:`learn` did not write is a ``ValueError``."""
        path = folder / RESULTS
        try:
            found = json.loads(path.read_text())
            score = Fit if found.pop("task") == "regression" else Tally
            for each in (found, *found["candidates"]):
                names = [name for name in ("baseline", "test", "training", "validation") if each.get(name) is not None]
                each |= {name: score(*each[name]) for name in names}
            found["candidates"] = tuple(Candidate(**each) for each in found["candidates"])
            found["best"] = next(each for each in found["candidates"] if each.name == found["best"])
            found["settings"] = {name: found.pop(name) for name in ("data", "max_epochs")}
            found |= {"notes": tuple(found["notes"]), "penalties": tuple(map(tuple, found["penalties"]))}
        except (ValueError, KeyError, TypeError, AttributeError, OSError, StopIteration) as error:
            raise ValueError(f"{path} is not what this `torchperc learn` writes ({error}); run it again") from None
        return cls(folder, model=FittedModel.load(folder), **found)


def score(module: TrainedModule, data: PreparedData, which: int) -> Tally | Fit:
    """Wrong decisions on a set, or how predictions fit it: 0 training, 1 validation, 2 test."""
    if data.task == "regression":
        return Fit.of(*predictions(module, data, which))
    X, y = data.parts[which]
    return Tally(wrong_decisions(module, X, y), len(y))


def loss(score: Tally | Fit) -> float:
    """The criterion that selects the best: error or RMSE."""
    return score.rmse if isinstance(score, Fit) else score.error


def baseline(data: PreparedData) -> Tally | Fit:
    """The score on the validation set of the majority class, or of the mean of the training targets."""
    if data.task == "regression":
        training, validation = (data.dataset.y[index] for index in data.indices[:2])
        return Fit.of(torch.full_like(validation, float(training.mean())), validation)
    counts = _per_class(data, 1)
    right, total = int(counts[_per_class(data, 0).argmax()]), int(counts.sum())
    return Tally(total - right, total)


def verdict(trained: Trained, training: Tally | Fit) -> str:
    """Return how a training ended; a regression has no verdict."""
    if isinstance(training, Fit):
        return ""
    if trained.result is not None:
        return trained.result.verdict.name
    return (Verdict.BUDGET if training.wrong else Verdict.SEPARATED).name


def notes(data: PreparedData, best: Tally | Fit, base: Tally | Fit) -> Iterator[str]:
    """What a reader of the figures should know about the table and the candidates."""
    if data.dataset.dropped:
        yield f"{plural(data.dataset.dropped, 'row')} with missing values dropped"
    yield from data.dataset.notes
    if data.task == "regression":
        if "ridge" not in names(data):
            yield "least squares and ridge were left out, since the training samples are larger than memory"
    else:
        yield from _rare_classes(data)
    if loss(best) >= loss(base):
        real, classes = "RMSE than the mean of the training targets", "error than the majority-class baseline"
        yield f"no model has a lower validation {real if isinstance(base, Fit) else classes}"


def _rare_classes(data: PreparedData) -> Iterator[str]:
    for which, name in enumerate(_SETS):
        counts = _per_class(data, which).tolist()
        absent = [label for label, count in zip(data.dataset.labels, counts, strict=True) if not count]
        if any(counts) and absent:
            few = ", ".join(map(repr, absent[:5])) + (", …" if len(absent) > 5 else "")
            yield f"the {name} set has no sample of {few}, of which there are very few"


def _per_class(data: PreparedData, which: int) -> Tensor:
    """How many samples of each class a set has (K,)."""
    y = data.parts[which][1]
    codes = (y + 1) // 2 if data.classes is None else y
    return codes.bincount(minlength=len(data.dataset.labels))


# --- the folder ---


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
        training, validation = (score(trained.module, data, which) for which in (0, 1))
        told = trained.how, trained.epochs, trained.seconds, verdict(trained, training)
        compared.append(Candidate(name, validation, training, *told))
        below = part / compared[-1].folder
        below.mkdir()
        write_curves(below, trained.curves)
        fitted_model(trained.module, data, seal).save(below / MODEL)
    best = min(compared, key=lambda each: loss(each.validation))
    watch("writing")
    kept, base = found[best.name], baseline(data)
    test = score(kept.module, data, 2) if len(data.indices[2]) else None
    about = {"learned by": best.name, "validation score": str(best.validation)}
    about |= {} if test is None else {"test score": str(test)}
    learned = LearnResult(
        final,
        tuple(compared),
        best,
        test,
        base,
        model=fitted_model(kept.module, data, {**about, **seal}),
        notes=tuple(notes(data, best.validation, base)),
        taken=data.dataset.inferred_task,
        penalties=found["ridge"].penalties if "ridge" in found else (),
        settings={"data": data.settings, "max_epochs": max_epochs},
    )
    learned.save(part)
    shutil.copy(part / best.folder / CURVES, part / CURVES)
    if report:
        rule = found["rule"].result if "rule" in found else None
        _report(learned, data, part, None if rule is None else rule.certificate).save(part / "report.html")
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
    """Report a run whose files are in ``part``; reuse the rule's proof."""
    from torchperc.reports.sections import Training, compared, of_module

    curves = {each.name: curves_of(part / each.folder) for each in learned.candidates}
    how = [("learned by", learned.best.how)]
    training = Training(_again(**learned.settings), how, curves, compared=[compared(learned)], certificate=proof)
    module = TrainedModule(learned.model.net, learned.model.head)
    made = of_module(learned.folder.resolve().name or str(learned.folder), module, data, training)
    return replace(made, lead=f"{made.lead} Kept: {learned.best.name}.")


def _again(data: Mapping[str, Any], max_epochs: int | None) -> list[Block]:
    """How the run is made again.

    Example:
        >>> _again({"source": "iris", "options": {"positive": "setosa"}, "seed": 1}, 5)[1].text
        "torchperc.learn('iris', positive='setosa', seed=1, max_epochs=5)"
    """
    own = {name: value for name, value in data.items() if name not in ("source", "options")}
    given = {**data["options"], **own, "max_epochs": max_epochs}
    source = "X, y" if data["source"] is None else repr(data["source"])
    words = [source, *(f"{name}={value!r}" for name, value in given.items() if value is not None)]
    return [Text("This call and the versions below reproduce the run:"), Code(f"torchperc.learn({', '.join(words)})")]
