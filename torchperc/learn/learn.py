"""Learn from a table: split, scale, train several candidates, keep the best, write a report."""

from __future__ import annotations

import contextlib
import itertools
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from torchperc._checks import Option, ParameterError, check_bool, check_int, require_packages
from torchperc._files import LOCK, FolderInUseError, atomic_path, locked_folder
from torchperc.data.example_data import is_gate
from torchperc.data.prepared_data import PreparedData
from torchperc.data.read import is_frame
from torchperc.data.table_encoder import infer_task
from torchperc.data.table_files import TASKS, word
from torchperc.reports.results import is_run

if TYPE_CHECKING:
    from torchperc.data.datasets import Dataset
    from torchperc.learn.results import LearnResult


def learn(
    source: str | Path | Sequence[Any] | Any,
    target: Any = None,
    *,
    folder: str | Path | None = None,
    split: tuple[float, float, float] = (0.6, 0.2, 0.2),
    scale: Literal["auto", "standard", "minmax", "maxabs", "none"] = "auto",
    max_epochs: int | None = None,
    seed: int = 0,
    dtype: Literal["float32", "float64"] = "float32",
    overwrite: bool = False,
    task: Literal["classification", "regression"] | None = None,
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
    1,000,000 numbers times classes; for larger data use ``torchperc separable``.

    Args:
        source: a file (CSV, TSV, Parquet, svmlight, ``.npy``, ``.npz``), a pattern such as ``data/part-*.parquet``,
            several files, or a data set by name, such as iris; in Python also a data frame or an array X (N, d).
        target: the column of labels or numbers, by name or by position from 1; the last one by default. With an array
            X, the array y (N,).
        folder: folder of the run; by default ``runs/NAME``, or ``runs/NAME-2`` if that exists. It is locked while the
            run is made.
        split: fractions of training, validation and test samples; validation must not be empty.
        scale: ``"auto"``, ``"standard"``, ``"minmax"``, ``"maxabs"`` or ``"none"``.
        max_epochs: maximum number of epochs; by default 30 for the rule and 200 full-batch steps. With 20,000 training
            samples or more, or data larger than memory, the defaults are lower, and descent on the squared and the
            logistic loss makes one step per sample.
        seed: random seed of split and order.
        dtype: ``"float32"`` or ``"float64"``.
        overwrite: replace an earlier run in the folder.
        task: ``"classification"`` or ``"regression"``; inferred from the target by default.
        report: write ``report.html``; without it no picture is drawn.
        watch: called with the name of what comes next.
        options: how a file is read, those of :func:`torchperc.data.read`: ``missing``, ``categories``, ``ignore``, …

    Example:
        >>> import tempfile
        >>> X, y = [[k, k % 3] for k in range(30)], ["low"] * 15 + ["high"] * 15
        >>> learned = learn(X, y, folder=tempfile.mkdtemp() + "/small", max_epochs=5, report=False)
        >>> learned.model.predict([[1, 1], [28, 1]])
        ['low', 'high']
        >>> learned = learn("breast-cancer", folder=tempfile.mkdtemp() + "/cancer", max_epochs=10)
        >>> learned.best.validation.error < 0.05, sorted(path.name for path in learned.folder.iterdir())[:4]
        (True, ['lms', 'logistic', 'metrics.csv', 'perceptron'])
    """
    for name, flag in (("overwrite", overwrite), ("report", report)):
        check_bool(name, flag)
    epochs = None if max_epochs is None else check_int("max_epochs", max_epochs, at_least=1)
    if report:
        require_packages("a report", "matplotlib")
    options = {name: list(value) if isinstance(value, tuple) else value for name, value in options.items()}
    with contextlib.ExitStack() as stack:
        final = _claimed_folder(source, folder, overwrite, stack)
        data = _prepared(source, target, options, task, split, scale, seed, dtype)
        watch("reading")
        _check_sets(data)
        # what takes long to import comes after what may be refused
        from torchperc.learn.candidates import few_threads
        from torchperc.learn.results import write_run

        part = stack.enter_context(atomic_path(final))
        with few_threads(data):
            return write_run(data, epochs, part, final, report, watch)


def _prepared(
    source: Any, target: Any, options: dict[str, Any], task: str | None, split: Any, scale: str, seed: int, dtype: str
) -> PreparedData:
    """The split and scaled table: names and files as they are, arrays as a data set."""
    given = {name: value for name, value in {**options, "task": task}.items() if value is not None}
    column = target is None or isinstance(target, str | int)
    if isinstance(source, str) and is_gate(source):
        why = "is a truth table, too small to split into training, validation and test sets; learn all of it by "
        raise ValueError(f"source={source!r} {why}RuleTrainer().fit(net, *data.gate({source!r})), or torchperc fit")
    if is_frame(source) and not column:
        name, y = str(getattr(target, "name", None) or "target"), np.asarray(target)  # whatever index it has
        if y.shape != (len(source),):
            raise ValueError(f"target has shape {y.shape} for {len(source)} samples; give one label or number each")
        name += "_2" * (name in source.columns)
        source, target, column = source.assign(**{name: y}), name, True
    if _is_file(source) or is_frame(source):
        if not column:
            found = type(target).__name__
            raise TypeError(f"target must be a column of {source!r}, by name or position from 1, found {found}")
        if not is_frame(source):
            source = str(source) if isinstance(source, str | Path) else [str(each) for each in source]
        given = given if target is None else {"target": target, **given}
    elif not hasattr(source, "against_rest"):  # which a Dataset has
        if column:
            wanted = "labels or numbers y (N,), as in learn(X, y)"
            raise TypeError(f"target={target!r} must be {wanted}, as source is no file: {type(source).__name__}")
        source = _dataset(source, target, given.pop("task", None), given.pop("positive", None))
    return PreparedData(source, given, split, scale, seed, dtype)


def _is_file(source: Any) -> bool:
    several = source if isinstance(source, list | tuple) else [source]
    return bool(several) and all(isinstance(each, str | Path) for each in several)


def _dataset(X: Any, y: Any, task: str | None, positive: str | None) -> Dataset:
    """Features and labels in memory; numbers that look like a quantity make a regression."""
    from torchperc.data.datasets import Dataset

    values = np.asarray(y)
    different = {word(str(value)) for value in (values if values.dtype == object else np.unique(values)).tolist()}
    quantity, said = infer_task(different, values.size, task)
    X = np.array(X, order="C") if isinstance(X, np.ndarray) else X  # of one feature, strides may be any
    made = Dataset.of(X, y, task=task or TASKS[quantity], name="data")
    return replace(made if positive is None else made.against_rest(positive), inferred_task=said)


def _claimed_folder(source: Any, folder: str | Path | None, overwrite: bool, stack: contextlib.ExitStack) -> Path:
    """The folder of a run, locked until the stack is closed; refused if something else is there."""
    named = source[0] if isinstance(source, list | tuple) and source else source
    first = Path(named if isinstance(named, str | Path) else "data")
    stem = re.sub(r"[-_]*[*?\[\]]+", "", first.name.split(".")[0]) or first.parent.name.strip("*?[]") or "data"
    if folder is not None or overwrite:
        path = Path("runs", stem) if folder is None else Path(folder)
        _check_free(path, overwrite)
        stack.enter_context(locked_folder(path))
        _check_free(path, overwrite)  # another process may have been quicker
        return path
    for path in (Path("runs", stem if n == 1 else f"{stem}-{n}") for n in itertools.count(1)):
        with contextlib.suppress(FolderInUseError), contextlib.ExitStack() as attempt:
            if _is_free(path):
                attempt.enter_context(locked_folder(path))
                if _is_free(path):
                    stack.push(attempt.pop_all())
                    return path
    raise AssertionError("there is always a next number")


def _is_free(path: Path) -> bool:
    return not path.exists() or (path.is_dir() and all(entry.name == LOCK for entry in path.iterdir()))


def _check_free(path: Path, overwrite: bool) -> None:
    if _is_free(path):
        return
    if not (path.is_dir() and is_run(path)):
        raise ParameterError(Option("folder", path), " exists and is not a run; choose another")
    if not overwrite:
        remedy = Option("overwrite", True)
        raise ParameterError(Option("folder", path), " exists already; choose another, or use ", remedy)


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
