"""From data, logs and trainers of the user to the content of the page."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torchperc._checks import Data, check_choice, check_int, is_sparse
from torchperc.data.datasets import Dataset
from torchperc.lab.play import page
from torchperc.lab.play.points import MOST_CLASSES, conventions_of, data_of, named, start_of
from torchperc.lab.play.recorded import ENDINGS, ending_of, recording
from torchperc.rules.log import MistakeLog
from torchperc.rules.run import RuleResult
from torchperc.rules.trainer import RuleTrainer


def content_of_data(
    table: Dataset,
    *,
    features: Sequence[str | int] | None = None,
    samples: int | None = None,
    trainer: RuleTrainer | None = None,
) -> dict[str, Any]:
    """The content of a page that begins with a data set, see :func:`torchperc.lab.play.points.data_of`."""
    start = {"data": data_of(table, features, samples), **start_of(trainer)}
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
    """The content of a page that replays a run, see :func:`torchperc.lab.play.recorded.recording`.

    Args:
        log: the run, or its result.
        table: its data, for the names of labels and features.
        names: of the features, without a table.
        features: two of them, where there are more.
        trainer: the conventions of the run; without it, the page says that they are unknown.
        ending: the verdict and the cycle of the run, if they are known.
    """
    known: dict[str, Any] = {} if trainer is None else {"conventions": conventions_of(trainer)}
    if isinstance(log, RuleResult):
        ending, log = (ending_of(log), log.cycle), log.log
    if ending is not None:
        known |= {"verdict": ending[0], "cycle": ending[1]}
    made = recording(log, table.names if table else names, features, **known)
    data = {**made.data, **named(made.feature_names, table.labels if table else None)}
    start = {**start_of(trainer), "data": data}
    return page.content(start, made.entries, title=(table.name if table else "") or page.TITLE)


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
        if len(table.labels) > MOST_CLASSES:
            why = f"y has {len(table.labels)} classes, and the page shows {MOST_CLASSES} at most"
            raise ValueError(f"{why}; compare one of them with the rest")
        return content_of_data(table, samples=samples, **shown)
    return page.content({"preset": "AND", **start_of(trainer)})


def load_log(path: Path, table: Dataset | None) -> tuple[MistakeLog, dict[str, Any]]:
    """A log from a file, and what the file tells besides, as arguments of :func:`content_of_log`.

    ``.npz`` holds no data, so it needs the table that it was made on.
    """
    if table is None and path.suffix.lower() != ".json":
        raise ValueError(f"{path} holds a hash of its data only; give the data it was made on, too")
    if table is None:
        return MistakeLog.load(path), _told(path)
    X = table.X if is_sparse(table.X) else table.X.numpy()  # an array is converted to the type of the log
    return MistakeLog.load(path, X, table.y), _told(path)


def _told(path: Path) -> dict[str, Any]:
    """The conventions and the ending that a log in JSON has beside its mistakes, as the page writes it."""
    if path.suffix.lower() != ".json":
        return {}
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
