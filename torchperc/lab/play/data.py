"""``tp.play``: data sets, logs and trainers of the user on the interactive page."""

from __future__ import annotations

import importlib.util
import json
import math
import sys
import warnings
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from torchperc._checks import Data, Option, ParameterError, check_choice, check_int, is_sparse
from torchperc.data.datasets import Dataset
from torchperc.lab.play import page
from torchperc.lab.play.page import HEIGHT, Play
from torchperc.rules.log import MistakeLog
from torchperc.rules.problem import Problem
from torchperc.rules.run import RuleResult
from torchperc.rules.trainer import RuleTrainer
from torchperc.theory.weights import live_bracket

if TYPE_CHECKING:
    from torchperc.lab.play.widget import PlayWidget

ENDINGS = ("SEPARATED", "CYCLING", "BUDGET")
MAX_CLASSES, MAX_POINTS, MAX_MISTAKES = 4, 1000, 20_000
_AXES, _SIGNS = ["x1", "x2"], ["-1", "1"]  # for which the page has its own signs
_CONVENTIONS = ("tie", "bias_step", "order", "seed", "lr", "margin", "max_epochs")
_PROJECTED = (
    "A run with {count} features, seen in {first} and {second}: the boundary is exact where every other feature is at "
    "the mean of the samples. Mistakes, scores, errors and bounds are those of the run; the proof, and whatever the "
    "page runs itself, see two features only."
)
_UNKNOWN = "The log does not say how ties were decided and in which order the samples came."


def play(
    X: Data | None = None,
    y: Data | None = None,
    *,
    log: MistakeLog | RuleResult | str | Path | None = None,
    trainer: RuleTrainer | None = None,
    features: Sequence[str | int] | None = None,
    names: Sequence[str] | None = None,
    samples: int | None = None,
    out: str | Path | None = None,
    height: int = HEIGHT,
) -> Play | PlayWidget:
    """Open the interactive page on your data: the rule step by step, conventions, proof, gradient.

    In a notebook it returns a widget that shows the page and hands the edited points back as ``.X`` and ``.y``; this
    needs ``pip install 'torchperc[notebook]'``, without which the page is shown and hands nothing back. Elsewhere the
    page is written to a temporary folder and opened in the browser. With ``out`` it is written there, and nothing is
    opened.

    Args:
        X: samples (N, 2), or more features of which ``features`` names two; an example to begin with if ``None``.
        y: their labels of any kind, at most four.
        log: a run to replay: a log or a result, or the path of a ``.json`` log. It has its data itself.
        trainer: whose conventions the page begins with; also those of a run in ``log`` that does not store them.
        features: two features by name, or by position from 1.
        names: of all features; those of a data frame by default.
        samples: number to draw at random.
        out: the file to write.
        height: pixels in a notebook.

    Example:
        >>> import tempfile, torchperc as tp
        >>> X, y = tp.data.gate("XOR")
        >>> page = tp.play(X, y, trainer=tp.RuleTrainer(tie="sign"), out=Path(tempfile.mkdtemp(), "xor.html"))
        >>> "point" in page.html
        True
    """
    given: dict[str, Any] = {"log": log, "trainer": trainer, "features": features, "names": names}
    made = Play(content_of(X, y, samples=samples, **given), check_int("height", height, at_least=100))
    if out is not None:
        made.save(out)
    elif not _in_notebook():
        print(f"the page: {made.open()}")
    elif importlib.util.find_spec("anywidget") is None:
        why = "edits cannot be read back; install anywidget with: pip install 'torchperc[notebook]'"
        warnings.warn(why, stacklevel=2)
    else:
        from torchperc.lab.play.widget import Coding, PlayWidget

        return PlayWidget(made.content, Coding.of(X, y), height)
    return made


def _in_notebook() -> bool:
    """Whether this runs in a kernel of Jupyter, VS Code or the like, which shows what a cell returns."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return getattr(shell, "kernel", None) is not None


def content_of(
    X: Data | None = None,
    y: Data | None = None,
    *,
    log: MistakeLog | RuleResult | str | Path | None = None,
    names: Sequence[str] | None = None,
    features: Sequence[str | int] | None = None,
    samples: int | None = None,
    trainer: RuleTrainer | None = None,
) -> dict[str, Any]:
    """The content of :func:`torchperc.play` by its arguments."""
    if (X is None) != (y is None):
        raise TypeError(f"{'y' if y is None else 'X'} is missing; give samples X and labels y, or neither")
    for name, value in {"names": names, "features": features}.items():
        if value is not None and X is None and log is None:
            raise ValueError(f"{name}={value!r} needs data; give X and y, or a log")
    if samples is not None and (X is None or log is not None):
        raise ValueError(f"samples={samples!r} draws from X and y; a log is replayed with all of its samples")
    names = getattr(X, "columns", None) if names is None else names  # of a data frame
    table = None if X is None else Dataset.of(X, y, names=names)
    if log is None and table is None:
        return page.content({"preset": "AND", **_start(trainer)})
    shown: dict[str, Any] = {"features": features, "trainer": trainer}
    if log is None:
        return content_of_data(table, samples=samples, **shown)
    if isinstance(log, str | Path):
        log, told = load_log(Path(log), table)
        shown |= told
    elif table is not None:
        raise ValueError("X and y were given beside a log, which has its own data; omit them")
    return content_of_log(log, table=table, names=names, **shown)


def content_of_data(
    table: Dataset | None,
    *,
    features: Sequence[str | int] | None = None,
    samples: int | None = None,
    trainer: RuleTrainer | None = None,
) -> dict[str, Any]:
    """The content of a page that begins with two features of a data set; a description says what is not shown."""
    assert table is not None
    if not table.labels:
        raise ValueError("the target is numeric, but the page needs classes; choose a column of labels")
    if len(table.labels) > MAX_CLASSES:
        why = f"y has {len(table.labels)} classes; at most {MAX_CLASSES} are shown. Compare one with the rest by "
        raise ParameterError(why, Option("positive", table.labels[0]))
    chosen, about = two_features(table.names, features), []
    rows, names = _rows(table.X.shape[0], samples), [table.names[j] for j in chosen]
    if len(table.names) > 2:
        about.append(f"The plane shows 2 of {len(table.names)} features: {names[0]} and {names[1]}.")
    if len(rows) < table.X.shape[0]:
        about.append(f"{len(rows)} of {table.X.shape[0]:,} samples were drawn at random.")
    X, y = table.X[:, list(chosen)], table.y.numpy()[rows]
    X = X.toarray() if is_sparse(X) else np.asarray(X)
    data = _data(X[rows].tolist(), y if table.classes else (y + 1) // 2, len(table.labels), names, table.labels)
    data |= {"description": " ".join(about)} if about else {}
    return page.content({"data": data, **_start(trainer)}, title=table.name or page.TITLE)


def content_of_log(
    log: MistakeLog | RuleResult,
    *,
    table: Dataset | None = None,
    names: Sequence[str] | None = None,
    features: Sequence[str | int] | None = None,
    trainer: RuleTrainer | None = None,
    ending: tuple[str, tuple[int, int] | None] | None = None,
) -> dict[str, Any]:
    """The content of a page that replays a run with its data, and the verdict and cycle if they are known."""
    if isinstance(log, RuleResult):
        verdict = log.verdict.name if log.verdict.name in ENDINGS else "CYCLING" if log.cycle else "BUDGET"
        ending, log = (verdict, log.cycle), log.log  # a proof that came later is left to the page
    entries, shown = recording(log, table.names if table else names, features, trainer=trainer, ending=ending)
    labels = entries["labels"] if entries["classes"] else [(label + 1) // 2 for label in entries["labels"]]
    data = _data(entries["points"], labels, entries["classes"] or 2, shown, table.labels if table else None)
    start = {**_start(trainer), "data": data}
    return page.content(start, entries, title=(table.name if table else "") or page.TITLE)


def load_log(path: Path, table: Dataset | None) -> tuple[MistakeLog, dict[str, Any]]:
    """A log from a file, and the ending that a file of the page tells, for :func:`content_of_log`."""
    is_json, told = path.suffix.lower() == ".json", dict[str, Any]()
    if table is None and not is_json:
        raise ValueError(f"{path} holds a hash of its data only; give the data it was made on, too")
    X = None if table is None else table.X if is_sparse(table.X) else table.X.numpy()  # in the log's dtype
    log = MistakeLog.load(path) if table is None else MistakeLog.load(path, X, table.y)
    found = json.loads(path.read_bytes()) if is_json else {}
    try:
        RuleTrainer(**_stored(log))  # raises if they are no conventions
        if found.get("verdict") is not None:
            first, again = found.get("cycle") or (0, 0)
            cycle = check_int("cycle", first, at_least=0), check_int("cycle", again, at_least=0)
            told["ending"] = check_choice("verdict", found["verdict"], ENDINGS), cycle if found.get("cycle") else None
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path} does not say how its log was made: {error}; save it again") from None
    return log, told


def _data(points: Any, labels: Any, classes: int, names: Sequence[str], values: Sequence[str] | None) -> dict[str, Any]:
    """Points, class indices and names as the page reads them; names that are the usual ones are left out."""
    given = {"names": list(names), "classNames": list(values or _SIGNS)}
    named = {name: texts for name, texts in given.items() if texts not in (_AXES, _SIGNS)}
    return {"points": points, "labels": [int(label) for label in labels], "classes": classes, **named}


def _rows(count: int, samples: int | None) -> np.ndarray[Any, Any]:
    """All rows, or so many drawn at random in their order."""
    wanted = count if samples is None else min(count, check_int("samples", samples, at_least=2))
    if wanted > MAX_POINTS:
        why = f"X has {wanted:,} samples; at most {MAX_POINTS:,} are shown. Draw some at random by "
        raise ParameterError(why, Option("samples", MAX_POINTS // 2))
    if wanted == count:
        return np.arange(count)
    drawn = torch.randperm(count, generator=torch.Generator().manual_seed(0))[:wanted]
    return np.sort(drawn.numpy())


def _conventions(trainer: RuleTrainer) -> dict[str, Any]:
    """The conventions of a trainer; those that the page does not have raise."""
    if not isinstance(trainer, RuleTrainer):
        raise TypeError(f"trainer must be a RuleTrainer, found {type(trainer).__name__}")
    for name in ("kernel", "class_weight", "distributed"):
        if getattr(trainer, name) is not None:
            raise ValueError(f"the page has no {name}; omit it")
    if not isinstance(trainer.order, str):
        raise ValueError("the page has no order of sample numbers; use order='given', 'shuffled' or 'random-mistake'")
    if trainer.select == "best-validation":
        raise ValueError("the page has no validation set; use a select other than 'best-validation'")
    if trainer.seed >= 2**53:
        raise ValueError(f"seed={trainer.seed} is too large for the page; use one below 2**53")
    return {name: getattr(trainer, name) for name in _CONVENTIONS} | {"bias_step": trainer.bias_step or "unit"}


def _stored(log: MistakeLog) -> dict[str, Any]:
    """The conventions that a log holds, as options of a trainer; an order of sample numbers is not among them."""
    found = {name: log.conventions[name] for name in _CONVENTIONS if name in log.conventions}
    return {name: value for name, value in found.items() if value != "explicit"}


def _start(trainer: RuleTrainer | None) -> dict[str, Any]:
    """How the page begins by a trainer: its conventions, and the weights that it selects beside the last ones."""
    if trainer is None:
        return {}
    known = _conventions(trainer)
    renamed = {"biasStep": known.pop("bias_step"), "maxEpochs": known.pop("max_epochs")}
    return {"conventions": known | renamed, "overlays": {} if trainer.select == "last" else {trainer.select: True}}


def recording(
    log: MistakeLog,
    names: Sequence[str] | None = None,
    features: Sequence[str | int] | None = None,
    *,
    trainer: RuleTrainer | None = None,
    ending: tuple[str, tuple[int, int] | None] | None = None,
) -> tuple[dict[str, Any], tuple[str, str]]:
    """The entries of a run to be replayed, and the names of the two features that are shown.

    With features a and b chosen, the page draws the boundary where every other feature is at its mean x̄_j,
    w_a·x_a + w_b·x_b + (b₀ + Σ w_j·x̄_j) = 0. Mistakes, scores, errors and bounds stay those of the run.

    Args:
        log: of a linear net.
        names: of the features.
        features: two of them, by name or by position from 1, where there are more.
        trainer: whose conventions are those of the run; by default they are those that the log stores.
        ending: the verdict, and the epochs between which the run went round if it did; by default what the log shows.

    Example:
        >>> import torchperc as tp
        >>> X, y = tp.data.separable_blobs(20, features=3, seed=1)
        >>> log = tp.RuleTrainer().fit(tp.Perceptron(3).double(), X, y).log
        >>> entries, shown = recording(log, features=(1, 3))
        >>> shown, entries["index"] == log.sample.tolist()
        (('x1', 'x3'), True)
    """
    if not isinstance(log, MistakeLog):
        raise TypeError(f"log must be a MistakeLog, such as result.log, found {type(log).__name__}")
    if type(log.problem) is not Problem:
        raise ValueError("the page replays linear runs; a run with a kernel or joint features has no line to draw")
    sizes = (log.problem.num_classes or 2, MAX_CLASSES), (len(log.y), MAX_POINTS), (len(log), MAX_MISTAKES)
    for what, (count, most) in zip(("classes", "samples", "mistakes"), sizes, strict=True):
        if count > most:
            raise ValueError(f"the log has {count:,} {what}; at most {most:,} are replayed: record a smaller run")
    width = log.problem.samples.n_features
    names = [f"x{j + 1}" for j in range(width)] if names is None else list(names)
    if len(names) != width:
        raise ValueError(f"names has {len(names)} entries for {width} features; name every feature once")
    first, second = two_features(names, features)
    conventions = _stored(log) if trainer is None else _conventions(trainer)
    clean = len(log.epoch_ends) and not log.mistakes_by_epoch()[-1] and not log.errors()[-1]
    verdict, cycle = ending or ("SEPARATED" if clean else None, None)
    entries = json.loads(log.to_json())
    entries |= {"conventions": _conventions(RuleTrainer()) | conventions, "verdict": verdict}
    entries |= {"cycle": None if cycle is None else list(cycle)}
    told = [] if conventions else [_UNKNOWN]
    if (first, second) != (0, 1) or width > 2:
        entries |= _restricted(log, (first, second))
        about = _PROJECTED if width > 2 else "The axes are {first} and {second}."
        told.insert(0, about.format(count=width, first=names[first], second=names[second]))
    entries |= {"description": " ".join(told)} if told else {}
    return entries, (names[first], names[second])


def two_features(names: Sequence[str], features: Sequence[str | int] | None) -> tuple[int, int]:
    """Which two features, by name or by position from 1; both if there are two.

    Example:
        >>> two_features(("age", "height", "weight"), ("weight", 1))
        (2, 0)
    """
    listed = ", ".join(map(str, names[:12])) + (", …" if len(names) > 12 else "")
    if features is None and len(names) != 2:
        why = f"the page shows two features, and the data have {len(names)}: {listed}; choose two by "
        raise ParameterError(why, Option("features", list(names[:2])))
    wanted = tuple(names) if features is None else tuple(features)
    if isinstance(features, str) or len(wanted) != 2:
        raise ParameterError(Option("features", features), " must be two of the features: ", listed)
    found: list[int] = []
    for each in wanted:
        text = str(each)
        position = int(text) - 1 if text.isascii() and text.isdigit() else -1
        position = list(names).index(text) if text in names else position
        if not 0 <= position < len(names):
            why = f" is unknown; choose two of {listed}, or their positions from 1"
            raise ParameterError(Option("features", each), why)
        if position in found:
            raise ParameterError(Option("features", list(wanted)), f" repeats a feature; choose two of {listed}")
        found.append(position)
    return found[0], found[1]


def _restricted(log: MistakeLog, chosen: tuple[int, int]) -> dict[str, Any]:
    """The entries of a log that change when all but two features are held at their mean."""
    problem, columns = log.problem, list(chosen)
    X, start, weights = problem.samples.double().dense().cpu(), log.start, log.start.clone()
    rest = [j for j in range(X.shape[1]) if j not in chosen]
    mean = X[:, rest].mean(0)
    scores, brackets, totals = [], [], [0.0, *log.coef.abs().cumsum(0).tolist()]
    for t, total in enumerate(totals):
        every = problem.scores(weights).double().cpu() * problem.scale
        norm, plain = problem.norm(weights) * problem.scale, every if problem.num_classes else every[:, 0]
        brackets.append(live_bracket(plain, log.y, norm, total))
        if t < len(log):
            scores.append(every[int(log.sample[t])].tolist())
            problem.replay(weights, log.mistakes.part(t, t + 1))
    lower, upper = zip(*brackets, strict=True)
    best = zip(accumulate(lower, max), accumulate(upper, min), strict=True)
    weight, bias = start.weight.double().cpu(), start.bias.double().cpu()
    return {
        "points": X[:, columns].tolist(),
        "start": {"weight": weight[:, columns].tolist(), "bias": (bias + weight[:, rest] @ mean).tolist()},
        "projection": {
            "features": X.shape[1],
            "offsets": (problem.bias_step + X[:, rest] @ mean).tolist(),
            "scores": scores,
            "errors": log.errors().tolist(),
            "pocket": log.pocket_index(),
            "brackets": [[bound if math.isfinite(bound) else None for bound in pair] for pair in best],
        },
    }
