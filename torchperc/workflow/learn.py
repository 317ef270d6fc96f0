"""From a file to a classifier or a regression: split, scale, learn in several ways, keep the best, write a report."""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, cast

import torch
from torch import Tensor
from torch.optim.lr_scheduler import CosineAnnealingLR

from torchperc import _checks as checks
from torchperc._atomic import appearing, write_whole
from torchperc.data import SOURCES, is_gate
from torchperc.lightning import LitClassifier, LitRule, TabularDataModule, fitted_model
from torchperc.lightning.trainer import LAST, wrong_decisions
from torchperc.model.format import MODEL
from torchperc.nn.modules import MulticlassPerceptron, Perceptron
from torchperc.reports import runs
from torchperc.reports.learned import RESULTS, Tally, of_learned, of_shards
from torchperc.reports.runs import CONFIG
from torchperc.rules.conventions import DISTRIBUTED, Verdict
from torchperc.samples import shards
from torchperc.workflow.outcome import Candidate as Candidate
from torchperc.workflow.outcome import Learned as Learned
from torchperc.workflow.outcome import LearnedRegression as LearnedRegression
from torchperc.workflow.places import claimed_folder, config
from torchperc.workflow.regression import check_alone, learn_regression
from torchperc.workflow.training import table_notes, train_into

EPOCHS = {"rule": 30, "perceptron": 200, "lms": 200, "logistic": 200}  # epochs at most
MANY = 20_000  # training samples from which fewer epochs do; squared and logistic loss then make one step per sample
EPOCHS_OF_MANY = {"rule": 10, "perceptron": 50, "lms": 20, "logistic": 20}
PROVED_UP_TO = 400_000
"""Numbers in the training data up to which a run by rule looks for a proof, where it does not separate them."""

T = TypeVar("T")
_SETS = ("training", "validation", "test")
_MODELS: dict[str, tuple[type[LitRule] | type[LitClassifier], dict[str, Any]]] = {
    "rule": (LitRule, {"order": "shuffled", "select": "averaged"}),
    "perceptron": (LitClassifier, {"head": "perceptron", "lr": 1.0}),
    "lms": (LitClassifier, {"head": "lms", "lr": "auto"}),
    "logistic": (LitClassifier, {"head": "logistic", "lr": "auto"}),
}


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
    watch: Callable[[str], None] = lambda what: None,
) -> Learned:
    """Learn to classify the samples of a table, or to predict a quantity.

    The table is split and scaled by its training set. Classes are learned four times, by the perceptron rule and by
    gradient on each of the three losses, from a stratified split; the classifier with the lowest validation error is
    kept and judged once on the test set. A quantity is learned three times, by least squares, by ridge regression,
    whose penalty l2 has the lowest validation RMSE of eleven (0.0001 to 10 times the mean square of the features), and
    by descent on the squared error (LMS); the lowest validation RMSE is kept, and a :class:`LearnedRegression` is
    returned. The folder of the run is written atomically: config, checkpoint and weights of the best (``torchperc
    apply`` and ``torchperc export`` read those), a report, and below it each candidate with its event files for
    TensorBoard.

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
        watch: called with the name of what comes next.

    Example:
        >>> import tempfile
        >>> learned = learn("breast-cancer", folder=tempfile.mkdtemp() + "/cancer", max_epochs=10)
        >>> learned.best.validation.error < 0.05, sorted(path.name for path in learned.folder.iterdir())[:4]
        (True, ['card.md', 'config.yaml', 'last.ckpt', 'lms'])
    """
    given = {"target": target, "header": header, "delimiter": delimiter, "positive": positive, "stream": stream}
    given |= {"max_unpacked": max_unpacked, "max_features": max_features}
    listed = {name: _columns(given) for name, given in (("categories", categories), ("ignore", ignore), ("text", text))}
    options = {name: value for name, value in {**given, **listed}.items() if value not in (None, [])}
    if missing != "error":
        options["missing"] = missing
    epochs = None if max_epochs is None else checks.whole("max_epochs", max_epochs, at_least=1)
    named = str(source) if isinstance(source, str | Path) else [str(each) for each in source]
    settings: dict[str, Any] = {"source": named, "options": options, "split": split, "scale": scale}
    settings |= {"seed": seed, "dtype": dtype, **({} if task is None else {"task": task})}
    checks.flag("overwrite", overwrite)
    checks.one_of("distributed", distributed, DISTRIBUTED)
    if _together():
        _check_processes(source)
        options["shard"] = "auto"
    with contextlib.ExitStack() as stack:
        final = _by_first(lambda: claimed_folder(source, folder, overwrite, stack))
        data = TabularDataModule(**settings)
        watch("reading")
        _check_sets(data)
        if data.task == "regression":
            check_alone(shards.here()[1])
        part = _by_first(lambda: _made(stack.enter_context(appearing(final))))
        if data.task == "regression":
            learned: Learned = learn_regression(data, settings, part, final, epochs, watch)
        else:
            learned = _learn(data, settings, part, final, epochs, distributed, watch)
        _by_first(stack.close)  # where the folder gets its name
        return learned


def _columns(given: str | int | Sequence[str | int]) -> list[str | int]:
    return [given] if isinstance(given, str | int) else list(given)


def _together() -> bool:
    return shards.here()[1] > 1


def _by_first(act: Callable[[], T]) -> T:
    """What the first process's action returns, or its error, in all of them; only it acts on files."""
    first = shards.here()[0] == 0
    done = shards.together(lambda: act() if first else None)
    return cast(T, shards.gathered(done)[0])


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def _check_processes(source: object) -> None:
    """Refuse what cannot be shared out among processes."""
    if isinstance(source, str) and (is_gate(source) or source in SOURCES):
        raise ValueError(f"source={source!r} is small and no file; learn it in one process")
    if not torch.distributed.is_torchelastic_launched():
        raise ValueError("the processes must be started by torchrun, or by torchperc learn --processes")


def _learn(
    data: TabularDataModule,
    settings: dict[str, Any],
    part: Path,
    final: Path,
    epochs: int | None,
    distributed: str,
    watch: Callable[[str], None],
) -> Learned:
    """Train all candidates into a folder that is to become the final one, and write what is about the best."""
    modules, candidates, configs = {}, [], {}
    for name, (kind, _) in _MODELS.items():
        watch(name)
        budget = epochs or (EPOCHS_OF_MANY if _many(data) else EPOCHS)[name]
        options = _options(name, data, budget, distributed)
        modules[name], candidate = _train(name, options, data, part / name, budget)
        candidates.append(candidate)
        configs[name] = config(kind, options, data, settings, final / name, budget)
    best = min(candidates, key=lambda candidate: candidate.validation.error)
    module = modules[best.name]
    watch("writing")
    test = _tally(module, data, 2) if _count(data, 2) else None
    held = {"validation": best.validation, **({} if test is None else {"test": test})}
    about = {"learned by": best.name, **{f"{name} error": str(tally) for name, tally in held.items()}}
    model = fitted_model(module, data, about)
    baseline = _baseline(data)
    results = {"best": best.name, "baseline": baseline, "test": test, "candidates": [asdict(c) for c in candidates]}

    def write() -> None:
        for name, each in modules.items():
            write_whole(part / name / CONFIG, configs[name].encode())
            fitted_model(each, data).save(part / name / MODEL)
        model.save(part / MODEL)
        shutil.copy(part / best.name / LAST, part / LAST)
        write_whole(part / CONFIG, configs[best.name].replace(str(final / best.name), str(final)).encode())
        write_whole(part / RESULTS, json.dumps(results, indent=1).encode())
        again = runs.command_and_config(final, (part / CONFIG).read_text())
        report = of_shards if _together() else partial(of_learned, module=module, data=data)
        report(part, title=final.name, again=again).save(part / "report.html", part / "card.md")

    _by_first(write)
    notes, taken = tuple(_notes(data)), data.dataset.guess
    if best.validation.error >= baseline.error:
        notes += ("no model has a lower validation error than the majority-class baseline",)
    return Learned(final, tuple(candidates), best, test, baseline, model, notes, taken)


def _many(data: TabularDataModule) -> bool:
    """Whether there are so many samples that one step per sample is better; several processes cannot make those."""
    return not _together() and len(data.parts[0][1]) >= MANY


def _count(data: TabularDataModule, which: int) -> int:
    """The number of samples in a set, of all processes."""
    return sum(shards.gathered(len(data.parts[which][1])))


def _options(name: str, data: TabularDataModule, epochs: int, distributed: str) -> dict[str, Any]:
    """What a candidate's module is made with."""
    options = dict(_MODELS[name][1])
    if name == "rule" and _together():
        return {**options, "seed": data.seed, "distributed": distributed}
    if name == "rule":
        X = data.parts[0][0]
        return {**options, "seed": data.seed, "prove": isinstance(X, Tensor) and X.numel() <= PROVED_UP_TO}
    if _many(data) and name != "perceptron":  # whose single steps do not settle: they would be the rule's own
        options["update"] = "sample"
    if name == "perceptron" or _many(data):  # whose steps do not get smaller by themselves
        options["scheduler"] = partial(CosineAnnealingLR, T_max=epochs)
    return options


def _train(
    name: str, options: dict[str, Any], data: TabularDataModule, folder: Path, epochs: int
) -> tuple[LitRule | LitClassifier, Candidate]:
    net = Perceptron(data.width) if data.classes is None else MulticlassPerceptron(data.width, data.classes)
    module = _MODELS[name][0](net.to(data.dtype), **options)
    took = train_into(folder, module, data, epochs)
    training = _tally(module, data, 0)
    verdict = Verdict.BUDGET if training.wrong else Verdict.SEPARATED  # by the weights that were kept
    if isinstance(module, LitRule) and module.result is not None:
        verdict = module.result.verdict
    return module, Candidate(name, _tally(module, data, 1), training, verdict.name, *took)


def _tally(module: LitRule | LitClassifier, data: TabularDataModule, which: int) -> Tally:
    X, y = data.parts[which]
    return Tally(sum(shards.gathered(wrong_decisions(module, X, y))), _count(data, which))


def _per_class(data: TabularDataModule, which: int) -> Tensor:
    """How many samples of each class a set has, in all processes (K,)."""
    y = data.parts[which][1]
    codes = (y + 1) // 2 if data.classes is None else y
    return shards.summed(codes.bincount(minlength=len(data.dataset.labels)))


def _baseline(data: TabularDataModule) -> Tally:
    validation = _per_class(data, 1)
    right, total = int(validation[_per_class(data, 0).argmax()]), int(validation.sum())
    return Tally(total - right, total)


def _notes(data: TabularDataModule) -> Iterator[str]:
    """What a reader of the figures should know about the data."""
    yield from table_notes(data)
    for which, name in enumerate(_SETS):
        counts = _per_class(data, which).tolist()
        absent = [label for label, count in zip(data.dataset.labels, counts, strict=True) if not count]
        if any(counts) and absent:
            few = ", ".join(map(repr, absent[:5])) + (", …" if len(absent) > 5 else "")
            yield f"the {name} set has no sample of {few}, of which there are very few"


def _check_sets(data: TabularDataModule) -> None:
    count, given = sum(shards.gathered(len(data.dataset.y))), checks.Option("split", data.split)
    try:
        indices = data.indices
    except ValueError:
        if count >= len(_SETS) * len(data.dataset.labels):
            raise
        why = f"{data.source} has {count} samples, too few for "
        raise checks.ParameterError(why, given, "; give more") from None
    if not sum(shards.gathered(len(indices[1]))):
        raise checks.ParameterError(given, " leaves no validation set, which selects the best; give it a fraction")
