"""From a file to a classifier or a regression: split, scale, learn in several ways, keep the best, write a report."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path

from torchperc import _checks as checks
from torchperc._atomic import appearing
from torchperc._lazy import old_names, requires
from torchperc.data.gates import is_gate
from torchperc.data.sources import SOURCES
from torchperc.data.tabular import SplitTable
from torchperc.samples import shards
from torchperc.workflow.outcome import Candidate as Candidate
from torchperc.workflow.outcome import Learned as Learned
from torchperc.workflow.outcome import LearnedRegression as LearnedRegression
from torchperc.workflow.places import claimed_folder

_MOVED = {name: f"torchperc.workflow.classes.{name}" for name in ("EPOCHS", "EPOCHS_OF_MANY", "MANY")}
__getattr__ = old_names(__name__, {**_MOVED, "PROVED_UP_TO": "torchperc.reports.budget.ENTRIES"})


def learn(
    source: str | Path | Sequence[str | Path],
    target: str | int | None = None,
    *,
    folder: str | Path | None = None,
    missing: str = "error",
    header: bool | None = None,
    delimiter: str | None = None,
    categories: str | int | Sequence[str | int] = (),
    ignore: str | int | Sequence[str | int] = (),
    text: str | int | Sequence[str | int] = (),
    positive: str | int | None = None,
    stream: bool | None = None,
    max_unpacked: int | None = None,
    max_features: int | None = None,
    split: tuple[float, float, float] = (0.6, 0.2, 0.2),
    scale: str = "auto",
    max_epochs: int | None = None,
    seed: int = 0,
    dtype: str = "float32",
    overwrite: bool = False,
    distributed: str = "exact",
    task: str | None = None,
    report: bool = True,
    curves: bool = False,
    watch: Callable[[str], None] = lambda what: None,
) -> Learned:
    """Learn to classify the samples of a table, or to predict a quantity.

    The table is split and scaled by its training set. Classes are learned four times, by the perceptron rule and by
    gradient on each of the three losses, from a stratified split; the classifier with the lowest validation error is
    kept and judged once on the test set. A quantity is learned three times, by least squares, by ridge regression,
    whose penalty l2 has the lowest validation RMSE of eleven (0.0001 to 10 times the mean square of the features), and
    by descent on the squared error (LMS); the lowest validation RMSE is kept, and a :class:`LearnedRegression` is
    returned. The folder of the run is written atomically: config and weights of the best (``torchperc apply`` and
    ``torchperc export`` read those), a report, and below it each candidate with its config, its weights and its curves
    by epoch (``metrics.csv``). ``torchperc fit --config`` makes the same weights again, to the bit.

    No Trainer is needed for that, and none is made. With ``curves=True`` each candidate is trained under a Lightning
    Trainer instead, by the same steps: its folder then has event files for TensorBoard and a checkpoint. So it is with
    several processes, and with data larger than memory.

    Whether the training data are separable is proved on the way if they have at most 400,000 numbers, and at most
    1,000,000 numbers times classes; else :func:`torchperc.theory.separability` does that.

    In several processes, as ``torchrun`` or ``torchperc learn --processes`` start them, all must call this. Each reads
    its own shard of the files; split, scaling and the rule's mistakes (``distributed="exact"``) are those of one
    process, descent is full-batch, errors are those of all shards, and the first process writes the folder. Its report
    has no part that needs the samples themselves.

    Args:
        source: a file, a pattern such as ``data/part-*.parquet``, a list of files, or a data set by name; see
            :func:`torchperc.data.load`.
        target: the column of labels or numbers, by name or by position from 1; the last one by default.
        folder: of the run; by default ``runs/`` and the name of the file, with a number if that is taken. No other
            run can use it while this one is made.
        missing: what to do about missing values: ``"error"``, ``"drop"`` the row, or the ``"mean"`` of the column.
        header: whether the first line names the columns; found out by default.
        delimiter: between the cells of text; found by default.
        categories: columns of numbers that are categories.
        ignore: columns to ignore.
        text: columns of free text, whose words become features; also found by itself, see :func:`torchperc.data.read`.
        positive: a label to be learned against all others together.
        stream: read the file in blocks; by default if it is too large for memory.
        max_unpacked: size allowed for a decompressed file; see :func:`torchperc.data.read`.
        max_features: features allowed; see :func:`torchperc.data.read`.
        split: fractions of training, validation and test; validation must have some.
        scale: ``"auto"``, ``"standard"``, ``"minmax"``, ``"maxabs"`` or ``"none"``.
        max_epochs: epochs at most; 30 by rule and 200 full-batch steps if not given. From 20,000 training samples on
            they are fewer, and descent on the squared and the logistic loss makes one step per sample.
        seed: of split and order.
        dtype: ``"float32"`` or ``"float64"``.
        overwrite: replace a run that is in the folder.
        distributed: how several processes learn by rule, see :class:`~torchperc.RuleTrainer`: ``"exact"`` makes the
            mistakes of one process, with a message for each; ``"mix"`` one message per epoch.
        task: ``"classification"`` or ``"regression"``, which is learned in one process; by default what the target
            looks like, see :func:`torchperc.data.read`.
        report: write ``report.html`` and ``card.md``; without them no picture is drawn.
        curves: train under a Trainer, which writes event files for TensorBoard and a checkpoint per candidate.
        watch: called with the name of what comes next.

    Example:
        >>> import tempfile
        >>> learned = learn("breast-cancer", folder=tempfile.mkdtemp() + "/cancer", max_epochs=10)
        >>> learned.best.validation.error < 0.05, sorted(path.name for path in learned.folder.iterdir())[:4]
        (True, ['card.md', 'config.yaml', 'lms', 'logistic'])
    """
    given = {"target": target, "header": header, "delimiter": delimiter, "positive": positive, "stream": stream}
    given |= {"max_unpacked": max_unpacked, "max_features": max_features}
    listed = {name: _columns(given) for name, given in (("categories", categories), ("ignore", ignore), ("text", text))}
    options = {name: value for name, value in {**given, **listed}.items() if value not in (None, [])}
    if missing != "error":
        options["missing"] = missing
    several = isinstance(source, list | tuple) and len(source) and all(isinstance(each, str | Path) for each in source)
    if not several and not isinstance(source, str | Path):
        found = f"{type(source).__name__}; write it to a file first, such as .csv, .parquet or .npz"
        raise TypeError(f"source must be a path, a list of paths or the name of a data set, found {found}")
    epochs = None if max_epochs is None else checks.whole("max_epochs", max_epochs, at_least=1)
    named = str(source) if isinstance(source, str | Path) else [str(each) for each in source]
    for name, flag in (("overwrite", overwrite), ("report", report), ("curves", curves)):
        checks.flag(name, flag)
    checks.one_of("distributed", distributed, shards.DISTRIBUTED)
    if report:
        requires("a report", "matplotlib")
    if curves:
        requires("curves=True", "tensorboard")
    if shards.here()[1] > 1:
        _check_processes(source)
        options["shard"] = "auto"
    with contextlib.ExitStack() as stack:
        final = shards.by_first(lambda: claimed_folder(source, folder, overwrite, stack))
        data = SplitTable(named, options, split, scale, seed, dtype, task)
        watch("reading")
        if data.task == "regression":
            check_alone(shards.here()[1])
        _check_sets(data)
        # what takes long to import comes after what may be refused
        from torchperc.workflow.classes import learn_classes
        from torchperc.workflow.regression import learn_regression
        from torchperc.workflow.threads import few_threads
        from torchperc.workflow.training import Run

        part = shards.by_first(lambda: _made(stack.enter_context(appearing(final))))
        run = Run(data, part, final, epochs, report, curves, watch)
        with few_threads(data):
            learned: Learned = learn_regression(run) if data.task == "regression" else learn_classes(run, distributed)
        shards.by_first(stack.close)  # where the folder gets its name
        return learned


def _columns(given: str | int | Sequence[str | int]) -> list[str | int]:
    return [given] if isinstance(given, str | int) else list(given)


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def _check_processes(source: object) -> None:
    """Refuse what cannot be shared out among processes."""
    if isinstance(source, str) and (is_gate(source) or source in SOURCES):
        raise ValueError(f"source={source!r} is small and no file; learn it in one process")
    from torch.distributed import is_torchelastic_launched

    if not is_torchelastic_launched():
        raise ValueError("the processes must be started by torchrun, or by torchperc learn --processes")


def check_alone(processes: int) -> None:
    """Refuse to learn a regression in several processes."""
    if processes > 1:
        why = f"a regression is learned in one process, found {processes}; start one alone, or learn classes with "
        raise checks.ParameterError(why, checks.Option("task", "classification"))


def _check_sets(data: SplitTable) -> None:
    count, given = sum(shards.gathered(len(data.dataset.y))), checks.Option("split", data.split)
    try:
        indices = data.indices
    except ValueError:
        if count >= 3 * len(data.dataset.labels):
            raise
        why = f"{data.source} has {count} samples, too few for "
        raise checks.ParameterError(why, given, "; give more") from None
    if not sum(shards.gathered(len(indices[1]))):
        raise checks.ParameterError(given, " leaves no validation set, which selects the best; give it a fraction")
