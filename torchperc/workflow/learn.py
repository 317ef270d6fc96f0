"""From a file to a classifier or a regression: split, scale, learn in several ways, keep the best, write a report."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torchperc._checks import Option, ParameterError, check_bool, check_int, require_packages
from torchperc._files import atomic_path
from torchperc.data.prepared_data import PreparedData
from torchperc.workflow.places import claimed_folder

if TYPE_CHECKING:
    from torchperc.model.fitted import FittedModel
    from torchperc.reports.page import Block
    from torchperc.reports.report import Report
    from torchperc.reports.scores import Candidate
    from torchperc.workflow.candidates import Trained
    from torchperc.workflow.classes import Classes
    from torchperc.workflow.regression import Quantity


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


def learn(
    source: str | Path | Sequence[str | Path],
    target: str | int | None = None,
    *,
    folder: str | Path | None = None,
    split: tuple[float, float, float] = (0.6, 0.2, 0.2),
    scale: str = "auto",
    max_epochs: int | None = None,
    seed: int = 0,
    dtype: str = "float32",
    overwrite: bool = False,
    task: str | None = None,
    report: bool = True,
    watch: Callable[[str], None] = lambda what: None,
    **options: Any,
) -> LearnResult:
    """Learn to classify the samples of a table, or to predict a quantity.

    The table is split and scaled by its training set. Classes are learned four times, by the perceptron rule and by
    gradient on each of the three losses, from a stratified split; the classifier with the lowest validation error is
    kept and judged once on the test set. A quantity is learned three times, by least squares, by ridge regression,
    whose penalty l2 has the lowest validation RMSE of eleven (0.0001 to 10 times the mean square of the features), and
    by descent on the squared error (LMS); the lowest validation RMSE is kept. The folder of the run is written
    atomically: the model that was kept (``torchperc apply`` and ``torchperc export`` read it), ``results.json``, a
    report, and below it each candidate with its weights and its curves by epoch (``metrics.csv``).

    Whether the training data are separable is proved on the way if they have at most 400,000 numbers, and at most
    1,000,000 numbers times classes; else :func:`torchperc.theory.separability` does that.

    Args:
        source: a file, a pattern such as ``data/part-*.parquet``, a list of files, or a data set by name; see
            :func:`torchperc.data.load`.
        target: the column of labels or numbers, by name or by position from 1; the last one by default.
        folder: of the run; by default ``runs/`` and the name of the file, with a number if that is taken. No other
            run can use it while this one is made.
        split: fractions of training, validation and test; validation must have some.
        scale: ``"auto"``, ``"standard"``, ``"minmax"``, ``"maxabs"`` or ``"none"``.
        max_epochs: epochs at most; 30 by rule and 200 full-batch steps if not given. From 20,000 training samples on,
            and with data larger than memory, they are fewer, and descent on the squared and the logistic loss makes one
            step per sample.
        seed: of split and order.
        dtype: ``"float32"`` or ``"float64"``.
        overwrite: replace a run that is in the folder.
        task: ``"classification"`` or ``"regression"``; by default what the target looks like, see
            :func:`torchperc.data.read`.
        report: write ``report.html`` and ``card.md``; without them no picture is drawn.
        watch: called with the name of what comes next.
        options: how a file is read, those of :func:`torchperc.data.read`: ``missing``, ``categories``, ``ignore``, …

    Example:
        >>> import tempfile
        >>> learned = learn("breast-cancer", folder=tempfile.mkdtemp() + "/cancer", max_epochs=10)
        >>> learned.best.validation.error < 0.05, sorted(path.name for path in learned.folder.iterdir())[:4]
        (True, ['card.md', 'lms', 'logistic', 'metrics.csv'])
    """
    given = {name: value for name, value in {"target": target, **options}.items() if value is not None}
    options = {name: list(value) if isinstance(value, tuple) else value for name, value in given.items()}
    several = isinstance(source, list | tuple) and len(source) and all(isinstance(each, str | Path) for each in source)
    if not several and not isinstance(source, str | Path):
        found = f"{type(source).__name__}; write it to a file first, such as .csv, .parquet or .npz"
        raise TypeError(f"source must be a path, a list of paths or the name of a data set, found {found}")
    epochs = None if max_epochs is None else check_int("max_epochs", max_epochs, at_least=1)
    named = str(source) if isinstance(source, str | Path) else [str(each) for each in source]
    for name, flag in (("overwrite", overwrite), ("report", report)):
        check_bool(name, flag)
    if report:
        require_packages("a report", "matplotlib")
    with contextlib.ExitStack() as stack:
        final = claimed_folder(source, folder, overwrite, stack)
        data = PreparedData(named, options, split, scale, seed, dtype, task)
        watch("reading")
        _check_sets(data)
        # what takes long to import comes after what may be refused
        from torchperc.workflow.threads import few_threads

        part = stack.enter_context(atomic_path(final))
        part.mkdir()
        with few_threads(data):
            return _learned(_task(data, epochs), epochs, part, final, report, watch)


def _task(data: PreparedData, max_epochs: int | None) -> Classes | Quantity:
    from torchperc.workflow.classes import Classes
    from torchperc.workflow.regression import Quantity

    return Quantity(data, max_epochs) if data.task == "regression" else Classes(data, max_epochs)


def _learned(
    task: Any, max_epochs: int | None, part: Path, final: Path, report: bool, watch: Callable[[str], None]
) -> LearnResult:
    """Train all candidates of a task, and write the folder of the run."""
    from torchperc.lightning.outcome import fitted_model
    from torchperc.model.format import MODEL
    from torchperc.reports.folders import CURVES, write_curves
    from torchperc.reports.learned import Results
    from torchperc.reports.scores import Candidate

    data, found, candidates = task.data, dict[str, Any](), list[Candidate]()
    seal = {"digest": data.digest}
    for name in task.names:
        watch(name)
        trained = found[name] = task.train(name)
        training, validation = (task.score(trained.module, which) for which in (0, 1))
        told = trained.how, trained.epochs, trained.seconds, task.verdict(trained, training)
        candidates.append(Candidate(name, validation, training, *told))
        below = part / folder_of(name)
        below.mkdir()
        write_curves(below, trained.curves)
        fitted_model(trained.module, data, seal).save(below / MODEL)
    best = min(candidates, key=lambda each: task.loss(each.validation))
    watch("writing")
    test = task.score(found[best.name].module, 2) if len(data.indices[2]) else None
    held = {"validation": best.validation, **({} if test is None else {"test": test})}
    about = {"learned by": best.name, **{f"{name} score": str(score) for name, score in held.items()}}
    model = fitted_model(found[best.name].module, data, {**about, **seal})
    model.save(part / MODEL)
    shutil.copy(part / folder_of(best.name) / CURVES, part / CURVES)
    compared, baseline = tuple(candidates), task.baseline()
    results = Results(task.task, data.settings, max_epochs, best.name, baseline, test, compared, **task.results())
    results.save(part)
    if report:
        page = _report(final, results, task, found[best.name], found.get("rule"), part)
        page.save(part / "report.html", part / "card.md")
    notes = (*_table_notes(data), *task.notes())
    if task.loss(best.validation) >= task.loss(baseline):
        notes += (task.worse,)
    taken, penalties = data.dataset.inferred_task, results.penalties
    return LearnResult(final, compared, best, test, baseline, model, notes, taken, penalties)


def report_of(folder: Path) -> Report:
    """The report of a run by :func:`learn`, made again from its folder and its data."""
    from torchperc.model.fitted import FittedModel
    from torchperc.reports.folders import curves_of
    from torchperc.reports.learned import Results
    from torchperc.workflow.candidates import Trained, TrainedModule
    from torchperc.workflow.threads import few_threads

    results, model = Results.load(folder), FittedModel.load(folder)
    data = PreparedData(**results.data)
    if model.about.get("digest") != data.digest:
        raise ValueError(f"source={data.source!r} is not the data the run was made on, or its split differs")
    with few_threads(data):
        task, best = (
            _task(data, results.max_epochs),
            next(each for each in results.candidates if each.name == results.best),
        )
        if best.name == "rule":  # for its mistakes
            return _report(folder, results, task, task.train("rule"), None, folder)
        curves, module = curves_of(folder), TrainedModule(model.net, model.head)
        trained = Trained(module, best.how, best.epochs, best.seconds, curves)
        return _report(folder, results, task, trained, None, folder)


def _report(folder: Path, results: Any, task: Any, best: Trained, rule: Trained | None, part: Path) -> Report:
    """The report of a run whose folder has, or will have, a name."""
    from torchperc.reports.folders import curves_of
    from torchperc.reports.learned import of_comparison

    title = folder.resolve().name or str(folder)
    one = task.report(title, best, rule, _again(results.data, results.max_epochs))
    curves = {each.name: curves_of(part / folder_of(each.name)) for each in results.candidates}
    return of_comparison(one, results, curves, task.data.dataset.target)


def _again(settings: Mapping[str, Any], max_epochs: int | None) -> list[Block]:
    """How the run is made again.

    Example:
        >>> _again({"source": "iris", "options": {"positive": "setosa"}, "seed": 1, "task": None}, 5)[1].text
        "torchperc.learn('iris', positive='setosa', seed=1, max_epochs=5)"
    """
    from torchperc.reports.page import Code, Text

    own = {name: value for name, value in settings.items() if name not in ("source", "options", "scale_target")}
    given = {**settings["options"], **own, "max_epochs": max_epochs}
    words = [repr(settings["source"]), *(f"{name}={value!r}" for name, value in given.items() if value is not None)]
    return [Text("This call and the versions below reproduce the run:"), Code(f"torchperc.learn({', '.join(words)})")]


def folder_of(name: str) -> str:
    """The folder of a candidate, by its name.

    Example:
        >>> folder_of("least squares")
        'least-squares'
    """
    return name.replace(" ", "-")


def _check_sets(data: PreparedData) -> None:
    count, given = len(data.dataset.y), Option("split", data.split)
    try:
        indices = data.indices
    except ValueError:
        if count >= 3 * len(data.dataset.labels):
            raise
        why = f"{data.source} has {count} samples, too few for "
        raise ParameterError(why, given, "; give more") from None
    if not len(indices[1]):
        raise ParameterError(given, " leaves no validation set, which selects the best; give it a fraction")


def _table_notes(data: PreparedData) -> Iterator[str]:
    """What a reader of the figures should know about the table."""
    from torchperc.reports.text import plural

    if data.dataset.dropped:
        yield f"{plural(data.dataset.dropped, 'row')} with missing values dropped"
    yield from data.dataset.notes
