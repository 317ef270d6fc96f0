"""From a file to a classifier: split, scale, learn by rule and by the three heads, keep the best, write it all down."""

from __future__ import annotations

import contextlib
import itertools
import json
import shutil
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
import yaml
from torch import Tensor
from torch.optim.lr_scheduler import CosineAnnealingLR

from torchperc import _checks as checks
from torchperc._atomic import LOCK, FolderInUseError, appearing, claimed, write_whole
from torchperc.lightning import LitClassifier, LitRule, TabularDataModule, fitted_model, make_trainer
from torchperc.lightning.trainer import LAST, wrong_decisions
from torchperc.model.fitted import MODEL, FittedModel
from torchperc.nn.modules import MulticlassPerceptron, Perceptron
from torchperc.reports import runs
from torchperc.reports.learned import RESULTS, Tally, of_learned
from torchperc.reports.runs import CONFIG
from torchperc.rules.conventions import Verdict

EPOCHS = {"rule": 30, "perceptron": 200, "lms": 200, "logistic": 200}
"""Passes at most."""
MANY = 20_000
"""Training samples from which fewer passes do; squared and logistic loss then take one step a sample, not a pass."""
EPOCHS_OF_MANY = {"rule": 10, "perceptron": 50, "lms": 20, "logistic": 20}
PROVED_UP_TO = 400_000
"""Numbers in the training data up to which a run by rule looks for a proof, where it does not separate them."""

_PARTS = ("training", "validation", "test")
_MODELS: dict[str, tuple[type[LitRule] | type[LitClassifier], dict[str, Any]]] = {
    "rule": (LitRule, {"order": "shuffled", "select": "averaged"}),
    "perceptron": (LitClassifier, {"head": "perceptron", "lr": 1.0}),
    "lms": (LitClassifier, {"head": "lms", "lr": "auto"}),
    "logistic": (LitClassifier, {"head": "logistic", "lr": "auto"}),
}


@dataclass(frozen=True)
class Candidate:
    """One of the classifiers that :func:`learn` compared.

    Args:
        name: ``"rule"``, or that of the head.
        validation: wrong decisions on the validation part.
        training: wrong decisions on the training part.
        verdict: how training ended, in words.
        epochs: passes over the training part.
        seconds: of wall-clock time.

    Example:
        >>> Candidate("rule", Tally(1, 30), Tally(0, 90), "SEPARATED", 2, 0.1).validation.error
        0.03333333333333333
    """

    name: str
    validation: Tally
    training: Tally
    verdict: str
    epochs: int
    seconds: float


@dataclass(frozen=True)
class Learned:
    """What :func:`learn` found, and where it is.

    Args:
        folder: of the run.
        candidates: in the order in which they were trained.
        best: the one with the fewest wrong decisions on the validation part, the first of equals.
        test: its wrong decisions on the test part, which nothing was chosen by; ``None`` if there is no such part.
        guess: wrong decisions on the validation part if every label were the most frequent one.
        model: the best, from a table's features to labels.
        notes: what is worth knowing about the data.

    Example:
        >>> import tempfile
        >>> learned = learn("iris", folder=tempfile.mkdtemp() + "/iris", max_epochs=10)
        >>> [candidate.name for candidate in learned.candidates]
        ['rule', 'perceptron', 'lms', 'logistic']
        >>> learned.best.validation.error <= min(c.validation.error for c in learned.candidates)
        True
        >>> learned.model.predict([[5.1, 3.5, 1.4, 0.2]])
        ['setosa']
    """

    folder: Path
    candidates: tuple[Candidate, ...]
    best: Candidate
    test: Tally | None
    guess: Tally
    model: FittedModel
    notes: tuple[str, ...] = ()


def learn(
    source: str | Path,
    target: str | int | None = None,
    *,
    folder: str | Path | None = None,
    missing: str = "error",
    header: bool | None = None,
    delimiter: str | None = None,
    categories: Sequence[str | int] = (),
    ignore: Sequence[str | int] = (),
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
    watch: Callable[[str], None] = lambda what: None,
) -> Learned:
    """Learn to tell the labels of a table apart: by the perceptron rule and by gradient on each of the three losses.

    The table is split (stratified), scaled by its training part and learned four times. The classifier with the
    fewest wrong decisions on the validation part is kept and judged once on the test part. The folder of the run
    appears when everything is in it: config, checkpoint and weights of the best (``torchperc apply`` and ``torchperc
    export`` read those), a report, and below it each candidate with its event files for TensorBoard.

    Args:
        source: a file, or a data set by name; see :func:`torchperc.data.load`.
        target: the column of labels, by name or by position from 1; the last one by default.
        folder: of the run; by default ``runs/`` and the name of the file, with a number if that is taken. No other
            run can take it while this one is made.
        missing: what to do about missing values: ``"error"``, ``"drop"`` the row, or the ``"mean"`` of the column.
        header: whether the first line names the columns; found out by default.
        delimiter: between the cells of text; found by default.
        categories: columns of numbers that are to be taken as words.
        ignore: columns to leave out.
        positive: a label to be learned against all others together.
        stream: read the file in parts; by default if it is too large for memory.
        max_unpacked: bytes that a compressed file may unpack to; see :func:`torchperc.data.read`.
        max_features: features that the table may have; see :func:`torchperc.data.read`.
        split: shares of training, validation and test; validation must have some.
        scale: ``"auto"``, ``"standard"``, ``"minmax"``, ``"maxabs"`` or ``"none"``.
        max_epochs: passes at most; 30 by rule and 200 full-batch steps if not given. From 20,000 training samples on
            they are fewer, and descent on the squared and the logistic loss makes one step a sample.
        seed: of split and order.
        dtype: ``"float32"`` or ``"float64"``.
        overwrite: replace a run that is in the folder.
        watch: called with the name of what comes next.

    Example:
        >>> import tempfile
        >>> learned = learn("breast-cancer", folder=tempfile.mkdtemp() + "/cancer", max_epochs=10)
        >>> learned.best.validation.error < 0.05, sorted(path.name for path in learned.folder.iterdir())[:4]
        (True, ['card.md', 'config.yaml', 'last.ckpt', 'lms'])
    """
    given = {"target": target, "header": header, "delimiter": delimiter, "positive": positive, "stream": stream}
    given |= {"max_unpacked": max_unpacked, "max_features": max_features}
    listed = {"categories": list(categories), "ignore": list(ignore)}
    options = {name: value for name, value in {**given, **listed}.items() if value not in (None, [])}
    if missing != "error":
        options["missing"] = missing
    epochs = None if max_epochs is None else checks.whole("max_epochs", max_epochs, at_least=1)
    settings: dict[str, Any] = {
        "source": str(source),
        "options": options,
        "split": split,
        "scale": scale,
        "seed": seed,
        "dtype": dtype,
    }
    with contextlib.ExitStack() as stack:
        final = _claimed_folder(source, folder, checks.flag("overwrite", overwrite), stack)
        data = TabularDataModule(**settings)
        watch("reading")
        _check_parts(data)
        part = stack.enter_context(appearing(final))
        part.mkdir()
        return _learn(data, settings, part, final, epochs, watch)


def _learn(
    data: TabularDataModule,
    settings: dict[str, Any],
    part: Path,
    final: Path,
    epochs: int | None,
    watch: Callable[[str], None],
) -> Learned:
    modules, candidates, configs = {}, [], {}
    for name in _MODELS:
        watch(name)
        options, budget = _options(name, data), epochs or _budget(name, data)
        modules[name], candidate = _train(name, options, data, part / name, budget)
        candidates.append(candidate)
        configs[name] = _config(name, options, data, settings, final / name, budget)
        write_whole(part / name / CONFIG, configs[name].encode())
    best = min(candidates, key=lambda candidate: candidate.validation.error)
    module = modules[best.name]
    watch("writing")
    test = _tally(module, data, 2) if len(data.parts[2][1]) else None
    model = fitted_model(module, data, _figures(best, test))
    for name, each in modules.items():
        fitted_model(each, data).save(part / name / MODEL)
    model.save(part / MODEL)
    shutil.copy(part / best.name / LAST, part / LAST)
    write_whole(part / CONFIG, configs[best.name].replace(str(final / best.name), str(final)).encode())
    guess = _guess(data)
    results = {"best": best.name, "guess": guess, "test": test, "candidates": [asdict(each) for each in candidates]}
    write_whole(part / RESULTS, json.dumps(results, indent=1).encode())
    again = runs.command_and_config(final, (part / CONFIG).read_text())
    report = of_learned(part, module, data, title=final.name, again=again)
    report.save(part / "report.html", part / "card.md")
    return Learned(final, tuple(candidates), best, test, guess, model, tuple(_notes(data)))


def _budget(name: str, data: TabularDataModule) -> int:
    return (EPOCHS_OF_MANY if _many(data) else EPOCHS)[name]


def _many(data: TabularDataModule) -> bool:
    return len(data.parts[0][1]) >= MANY


def _options(name: str, data: TabularDataModule) -> dict[str, Any]:
    """What a candidate's module is made with."""
    options = dict(_MODELS[name][1])
    if name == "rule":
        X = data.parts[0][0]
        options["seed"] = data.seed
        options["prove"] = isinstance(X, Tensor) and X.numel() <= PROVED_UP_TO
    elif _many(data) and name != "perceptron":  # whose single steps do not settle: they would be the rule's own
        options["update"] = "sample"
    return options


def _settles(name: str, options: dict[str, Any]) -> bool:
    """Whether the rate falls to 0, along half a cosine: for those whose steps do not get smaller by themselves."""
    return name == "perceptron" or options.get("update") == "sample"


def _train(
    name: str, options: dict[str, Any], data: TabularDataModule, folder: Path, epochs: int
) -> tuple[LitRule | LitClassifier, Candidate]:
    net = Perceptron(data.width) if data.classes is None else MulticlassPerceptron(data.width, data.classes)
    if _settles(name, options):
        options = {**options, "scheduler": partial(CosineAnnealingLR, T_max=epochs)}
    module = _MODELS[name][0](net.to(data.dtype), **options)
    trainer = make_trainer(
        folder,
        epochs,
        picture_every=max(1, epochs // 4),
        enable_checkpointing=False,
        enable_progress_bar=False,
    )
    begun = time.perf_counter()
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "X is read in parts, so order='shuffled'")  # which is good enough
            trainer.fit(module, data)
    except SystemExit as left:  # how Lightning ends a run that is interrupted, with exit code 1
        if left.code == 1 and trainer.interrupted:
            raise KeyboardInterrupt from None
        raise
    seconds = time.perf_counter() - begun
    trainer.save_checkpoint(folder / LAST)
    training = _tally(module, data, 0)
    verdict = _verdict(module, training)
    return module, Candidate(name, _tally(module, data, 1), training, verdict, trainer.current_epoch, seconds)


def _verdict(module: LitRule | LitClassifier, training: Tally) -> str:
    """How a run ended: what the rule found out of the data, or what the weights that were kept make of them."""
    if isinstance(module, LitRule) and module.result is not None:
        return module.result.verdict.name
    return Verdict.SEPARATED.name if not training.wrong else Verdict.BUDGET.name


def _tally(module: LitRule | LitClassifier, data: TabularDataModule, part: int) -> Tally:
    X, y = data.parts[part]
    return Tally(wrong_decisions(module, X, y), len(y))


def _figures(best: Candidate, test: Tally | None) -> dict[str, str]:
    held = {"validation": best.validation, **({} if test is None else {"test": test})}
    return {"learned by": best.name, **{f"{name} error": str(figures) for name, figures in held.items()}}


def _guess(data: TabularDataModule) -> Tally:
    labels, counts = data.parts[0][1].unique(return_counts=True)
    validation = data.parts[1][1]
    return Tally(int((validation != labels[counts.argmax()]).sum()), len(validation))


def _notes(data: TabularDataModule) -> Iterator[str]:
    """What a reader of the figures should know about the data."""
    dropped = data.dataset.dropped
    if dropped:
        yield f"{dropped:,} row{'s' * (dropped != 1)} with missing values left out"
    for name, (_, y) in zip(_PARTS, data.parts, strict=True):
        codes = [-1, 1] if data.classes is None else range(data.classes)
        absent = [label for label, code in zip(data.dataset.labels, codes, strict=True) if not (y == code).any()]
        if len(y) and absent:
            few = ", ".join(map(repr, absent[:5])) + (", …" if len(absent) > 5 else "")
            yield f"the {name} part has no sample of {few}, of which there are very few"


def _check_parts(data: TabularDataModule) -> None:
    count = len(data.dataset.y)
    try:
        parts = data.indices
    except ValueError:
        if count >= len(_PARTS) * len(data.dataset.labels):
            raise
        raise ValueError(f"{data.source} has {count} samples, too few to be split by {data.split}; give more") from None
    if not len(parts[1]):
        raise ValueError(f"split={data.split} has no validation part, by which the best is chosen; give it a share")


# --- folders and configs ------------------------------------------------------------------------------------------


def _config(
    name: str, options: dict[str, Any], data: TabularDataModule, settings: dict[str, Any], folder: Path, epochs: int
) -> str:
    """The run as ``torchperc fit --config`` takes it."""
    if _settles(name, options):
        kind = f"{CosineAnnealingLR.__module__}.{CosineAnnealingLR.__name__}"
        options = {**options, "scheduler": {"class_path": kind, "init_args": {"T_max": epochs}}}
    net = "Perceptron" if data.classes is None else "MulticlassPerceptron"
    dtype = {} if data.dtype == torch.float32 else {"dtype": str(data.dtype)}
    content = {
        "seed_everything": 0,
        "folder": str(folder),
        "trainer": {"max_epochs": epochs},
        "data": {**settings, "split": list(settings["split"]), "batch_size": "full", "order": "given"},
        "model": {
            "class_path": f"torchperc.lightning.{_MODELS[name][0].__name__}",
            "init_args": {**options, "net": {"class_path": f"torchperc.{net}", "init_args": dtype}},
        },
    }
    text: str = yaml.safe_dump(content, sort_keys=False)
    return text


def _claimed_folder(
    source: str | Path, folder: str | Path | None, overwrite: bool, stack: contextlib.ExitStack
) -> Path:
    """Where the run goes, claimed until the stack is closed; refused if something else is there."""
    stem = Path(source).name.split(".")[0] or "data"
    if folder is not None or overwrite:
        path = Path("runs", stem) if folder is None else Path(folder)
        _check_free(path, overwrite)
        stack.enter_context(claimed(path))
        _check_free(path, overwrite)  # another process may have been quicker
        return path
    for path in (Path("runs", stem if n == 1 else f"{stem}-{n}") for n in itertools.count(1)):
        with contextlib.suppress(FolderInUseError), contextlib.ExitStack() as attempt:
            if _is_free(path):
                attempt.enter_context(claimed(path))
                if _is_free(path):
                    stack.push(attempt.pop_all())
                    return path
    raise AssertionError("there is always a next number")


def _is_free(path: Path) -> bool:
    return not path.exists() or (path.is_dir() and all(entry.name == LOCK for entry in path.iterdir()))


def _check_free(path: Path, overwrite: bool) -> None:
    if _is_free(path):
        return
    if not (path.is_dir() and runs.is_run(path)):
        raise ValueError(f"folder={path} is there and is not a run; name another")
    if not overwrite:
        raise ValueError(f"folder={path} is there already; name another, or use overwrite=True (--overwrite)")
