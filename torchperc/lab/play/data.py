"""``tp.play``: data sets, logs and trainers of the user on the interactive page."""

from __future__ import annotations

import importlib.util
import json
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from torchperc._checks import Data, Option, ParameterError, check_choice, check_int, is_sparse
from torchperc.data.datasets import Dataset
from torchperc.lab.play import page
from torchperc.lab.play.page import HEIGHT, Play
from torchperc.lab.play.recorded import ENDINGS, MAX_CLASSES, MAX_POINTS, ending_of, recording, two_features
from torchperc.rules.log import MistakeLog
from torchperc.rules.run import RuleResult
from torchperc.rules.trainer import RuleTrainer

if TYPE_CHECKING:
    from torchperc.lab.play.widget import PlayWidget

_AXES, _SIGNS = ["x1", "x2"], ["-1", "1"]  # for which the page has its own signs


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
    """The interactive page on data of one's own: the rule step by step, conventions, the proof, the gradient.

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
        samples: draw so many of them at random.
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
        why = "the page cannot hand points back; install anywidget with: pip install 'torchperc[notebook]'"
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
            raise ValueError(f"{name}={value!r} is about features of data; give X and y, or a log")
    if samples is not None and (X is None or log is not None):
        raise ValueError(f"samples={samples!r} draws from X and y; a log is replayed with all of its samples")
    if names is None:
        names = getattr(X, "columns", None)  # of a data frame
    table = None if X is None else Dataset.of(X, y, names=names)
    shown: dict[str, Any] = {"features": features, "trainer": trainer}
    if isinstance(log, str | Path):
        log, told = load_log(Path(log), table)
        shown = told | {name: value for name, value in shown.items() if value is not None}
    elif log is not None and table is not None:
        raise ValueError("X and y were given beside a log, which has its own data; leave them out")
    if log is not None:
        return content_of_log(log, table=table, names=names, **shown)
    if table is not None:
        return content_of_data(table, samples=samples, **shown)
    return page.content({"preset": "AND", **_start(trainer)})


def content_of_data(
    table: Dataset,
    *,
    features: Sequence[str | int] | None = None,
    samples: int | None = None,
    trainer: RuleTrainer | None = None,
) -> dict[str, Any]:
    """The content of a page that begins with a data set, see :func:`play`."""
    start = {"data": _data(table, features, samples), **_start(trainer)}
    return page.content(start, title=table.name or page.TITLE)


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
    known: dict[str, Any] = {} if trainer is None else {"conventions": _conventions(trainer)}
    if isinstance(log, RuleResult):
        ending, log = (ending_of(log), log.cycle), log.log
    if ending is not None:
        known |= {"verdict": ending[0], "cycle": ending[1]}
    entries, shown = recording(log, table.names if table else names, features, **known)
    labels = entries["labels"] if entries["classes"] else [(label + 1) // 2 for label in entries["labels"]]
    data = {"points": entries["points"], "labels": labels, "classes": entries["classes"] or 2}
    start = {**_start(trainer), "data": {**data, **_named(shown, table.labels if table else None)}}
    return page.content(start, entries, title=(table.name if table else "") or page.TITLE)


def load_log(path: Path, table: Dataset | None) -> tuple[MistakeLog, dict[str, Any]]:
    """A log from a file, and what the file tells besides, as arguments of :func:`content_of_log`."""
    is_json = path.suffix.lower() == ".json"
    if table is None and not is_json:
        raise ValueError(f"{path} holds a hash of its data only; give the data it was made on, too")
    if table is None:
        return MistakeLog.load(path), _told(path)
    X = table.X if is_sparse(table.X) else table.X.numpy()  # an array is converted to the type of the log
    return MistakeLog.load(path, X, table.y), _told(path) if is_json else {}


def _told(path: Path) -> dict[str, Any]:
    """The conventions and the ending that a log in JSON has beside its mistakes, as the page writes it."""
    found, told = json.loads(path.read_bytes()), dict[str, Any]()
    try:
        if found.get("conventions") is not None:
            told["trainer"] = RuleTrainer(**found["conventions"])
        if found.get("verdict") is not None:
            first, again = found.get("cycle") or (0, 0)
            cycle = check_int("cycle", first, at_least=0), check_int("cycle", again, at_least=0)
            told["ending"] = check_choice("verdict", found["verdict"], ENDINGS), cycle if found.get("cycle") else None
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path} does not say how its log was made: {error}; save it again") from None
    return told


def _named(features: Sequence[str], classes: Sequence[str] | None) -> dict[str, list[str]]:
    """Names as the page reads them, where they are not the usual ones."""
    given = {"names": list(features), "classNames": list(classes or _SIGNS)}
    return {name: names for name, names in given.items() if names not in (_AXES, _SIGNS)}


def _data(table: Dataset, features: Sequence[str | int] | None, samples: int | None) -> dict[str, Any]:
    """Two features of a data set as the page reads them; a description says what is not shown."""
    if not table.labels:
        raise ValueError("the target is a quantity, and the page shows classes; choose a column of labels")
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
    labels = y if table.classes else (y + 1) // 2
    data = {"points": X[rows].tolist(), "labels": labels.tolist(), "classes": len(table.labels)}
    return data | _named(names, table.labels) | ({"description": " ".join(about)} if about else {})


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
    """The conventions of a trainer as the page has them; those that it does not have raise."""
    if not isinstance(trainer, RuleTrainer):
        raise TypeError(f"trainer must be a RuleTrainer, found {type(trainer).__name__}")
    for name in ("kernel", "class_weight", "distributed"):
        if getattr(trainer, name) is not None:
            raise ValueError(f"the page has no {name}; leave it out of the trainer")
    if not isinstance(trainer.order, str):
        raise ValueError("the page has no order of sample numbers; use order='given', 'shuffled' or 'random-mistake'")
    if trainer.select == "best-validation":
        raise ValueError("the page has no validation set; use another select than 'best-validation'")
    if trainer.seed >= 2**53:
        raise ValueError(f"seed={trainer.seed} is beyond the integers of a page; use one below 2**53")
    same = {name: getattr(trainer, name) for name in ("tie", "order", "seed", "lr", "margin")}
    return {**same, "biasStep": trainer.bias_step or "unit", "maxEpochs": trainer.max_epochs}


def _start(trainer: RuleTrainer | None) -> dict[str, Any]:
    """How the page begins by a trainer: its conventions, and the weights that it selects beside the last ones."""
    if trainer is None:
        return {}
    conventions = _conventions(trainer)
    return {"conventions": conventions, "overlays": {} if trainer.select == "last" else {trainer.select: True}}
