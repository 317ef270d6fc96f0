"""From data, logs and trainers of the user to the content of the page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torchperc import _checks as checks
from torchperc.data.dataset import Dataset
from torchperc.lab.play import page
from torchperc.lab.play.points import check_classes, conventions_of, of_table
from torchperc.lab.play.recorded import recording
from torchperc.rules.log import MistakeLog
from torchperc.rules.run import RuleResult
from torchperc.rules.trainer import RuleTrainer

_ENDINGS = ("SEPARATED", "CYCLING", "BUDGET")


def content_of_data(
    table: Dataset,
    *,
    features: Sequence[str | int] | None = None,
    samples: int | None = None,
    trainer: RuleTrainer | None = None,
    texts: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """The content of a page that begins with a data set, see :func:`torchperc.lab.play.points.of_table`."""
    start: dict[str, Any] = {"data": of_table(table, features, samples).entry()}
    if trainer is not None:
        start["conventions"] = conventions_of(trainer)
    return page.content(start, texts=texts, title=table.name or None)


def content_of_log(
    log: MistakeLog | RuleResult,
    *,
    table: Dataset | None = None,
    names: Sequence[str] | None = None,
    features: Sequence[str | int] | None = None,
    trainer: RuleTrainer | None = None,
    texts: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """The content of a page that replays a run, see :func:`torchperc.lab.play.recorded.recording`.

    Args:
        log: the run, or its result.
        table: its data, for the names of labels and features.
        names: of the features, without a table.
        features: two of them, where there are more.
        trainer: the conventions of the run; a log does not tell all of them.
        texts: a translation.
    """
    known: dict[str, Any] = {} if trainer is None else {"conventions": conventions_of(trainer)}
    if isinstance(log, RuleResult):
        ending = log.verdict.name if log.verdict.name in _ENDINGS else "BUDGET" if log.cycle is None else "CYCLING"
        known |= {"verdict": ending, "cycle": log.cycle}
        log = log.log
    made = recording(log, table.names if table else names, features, **known)
    data = {**made.data, "names": list(made.feature_names)}
    if table is not None:
        data["classNames"] = list(table.labels)
    start = {"data": data} | ({"conventions": known["conventions"]} if "conventions" in known else {})
    return page.content(start, made.entries, texts=texts, title=table.name or None if table else None)


def content_of(
    X: checks.Data | None = None,
    y: checks.Data | None = None,
    *,
    log: MistakeLog | RuleResult | str | Path | None = None,
    names: Sequence[str] | None = None,
    features: Sequence[str | int] | None = None,
    trainer: RuleTrainer | None = None,
    texts: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """The content of :func:`torchperc.play` by its arguments."""
    if (X is None) != (y is None):
        raise TypeError(f"{'y' if y is None else 'X'} is missing; give samples X and labels y, or neither")
    table = None if X is None else Dataset.of(X, y, names=names)
    if isinstance(log, str | Path):
        log = load_log(Path(log), table)
    elif log is not None and table is not None:
        raise ValueError("X and y were given beside a log, which has its own data; leave them out")
    if log is not None:
        return content_of_log(log, table=table, names=names, features=features, trainer=trainer, texts=texts)
    if table is not None:
        check_classes(table)
        return content_of_data(table, features=features, trainer=trainer, texts=texts)
    start: dict[str, Any] = {"preset": "AND"}
    return page.content(start if trainer is None else {**start, "conventions": conventions_of(trainer)}, texts=texts)


def load_log(path: Path, table: Dataset | None) -> MistakeLog:
    """A log from a file; ``.npz`` holds no data, so it needs the table that it was made on."""
    if table is None and path.suffix.lower() != ".json":
        raise ValueError(f"{path} holds a hash of its data only; give the data it was made on, too")
    if table is None:
        return MistakeLog.load(path)
    X = table.X if checks.is_sparse(table.X) else table.X.numpy()  # an array is converted to the type of the log
    return MistakeLog.load(path, X, table.y)
