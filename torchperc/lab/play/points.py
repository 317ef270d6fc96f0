"""A data set for the page: two features, up to four classes, labels by the names that the user gave them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from torchperc._checks import Option, ParameterError, check_int, is_sparse
from torchperc.data.datasets import Dataset
from torchperc.rules.trainer import RuleTrainer

MOST_POINTS = 1000
MOST_CLASSES = 4
_AXES, _SIGNS = ["x1", "x2"], ["-1", "1"]


def named(features: Sequence[str], classes: Sequence[str] | None) -> dict[str, list[str]]:
    """Names as the page reads them; it has its own signs for x1, x2 and for −1, +1.

    Example:
        >>> named(("x1", "x2"), ("no", "yes"))
        {'classNames': ['no', 'yes']}
    """
    given = {"names": list(features), "classNames": list(classes or _SIGNS)}
    return {name: names for name, names in given.items() if names not in (_AXES, _SIGNS)}


def data_of(table: Dataset, features: Sequence[str | int] | None = None, samples: int | None = None) -> dict[str, Any]:
    """Two features of a data set as the page reads them, with what of it is not shown as a description.

    Args:
        table: labels of any kind, at most four.
        features: two of its features by name, or by position from 1, where it has more.
        samples: draw so many at random, and keep their order.

    Example:
        >>> data_of(Dataset.of([[0.0, 1.0], [1.0, 0.5]], ["no", "yes"]))["classNames"]
        ['no', 'yes']
    """
    check_classes(table)
    chosen = two_features(table.names, features)
    rows = some_rows(table.X.shape[0], samples)
    names = [table.names[j] for j in chosen]
    about = []
    if len(table.names) > 2:
        about.append(f"The plane shows 2 of {len(table.names)} features: {names[0]} and {names[1]}.")
    if len(rows) < table.X.shape[0]:
        about.append(f"{len(rows)} of {table.X.shape[0]:,} samples were drawn at random.")
    y = table.y.numpy()[rows]
    labels = y if table.classes else (y + 1) // 2
    data = {"points": columns_of(table, chosen)[rows].tolist(), "labels": labels.tolist(), "classes": len(table.labels)}
    return {**data, **named(names, table.labels), **({"description": " ".join(about)} if about else {})}


def columns_of(table: Dataset, chosen: Sequence[int]) -> np.ndarray[Any, Any]:
    """Some features of all samples, dense."""
    X = table.X[:, list(chosen)]
    if isinstance(X, torch.Tensor):
        return X.numpy()
    return np.asarray(X.toarray() if is_sparse(X) else X, dtype=np.float64)


def check_classes(table: Dataset) -> None:
    """Refuse what the page has no colours for."""
    if not table.labels:
        raise ValueError("the target is a quantity, and the page shows classes; choose a column of labels")
    if len(table.labels) > MOST_CLASSES:
        why = f"{len(table.labels)} classes are more than the page shows, {MOST_CLASSES}; compare one with the rest by "
        raise ParameterError(why, Option("positive", table.labels[0]))


def two_features(names: Sequence[str], features: Sequence[str | int] | None) -> tuple[int, int]:
    """Which two features, by name or by position from 1; both if there are two.

    Example:
        >>> two_features(("age", "height", "weight"), ("weight", 1))
        (2, 0)
    """
    listed = ", ".join(map(str, names[:12])) + (", …" if len(names) > 12 else "")
    if features is None and len(names) != 2:
        if len(names) < 2:
            raise ValueError(f"the page needs two features, and the data have {len(names)}: {listed}; add a column")
        why = f"the page shows two features, and the data have {len(names)}: {listed}; choose two by "
        raise ParameterError(why, Option("features", list(names[:2])))
    wanted = tuple(names) if features is None else tuple(features)
    if isinstance(features, str) or len(wanted) != 2:
        raise ParameterError(Option("features", features), " must be two of the features: ", listed)
    first, second = (_feature(names, each, listed) for each in wanted)
    if first == second:
        raise ParameterError(Option("features", list(wanted)), " is one feature twice; choose two of ", listed)
    return first, second


def _feature(names: Sequence[str], wanted: str | int, listed: str) -> int:
    text = str(wanted)
    if text in names:
        return list(names).index(text)
    if text.isascii() and text.isdigit() and 1 <= int(text) <= len(names):
        return int(text) - 1
    raise ParameterError(
        Option("features", wanted), f" is no feature; choose two of {listed}, or their positions from 1"
    )


def some_rows(count: int, samples: int | None) -> np.ndarray[Any, Any]:
    """All rows, or so many drawn at random in their order; more than the page can show are an error."""
    wanted = count if samples is None else min(count, check_int("samples", samples, at_least=2))
    if wanted > MOST_POINTS:
        why = f"{wanted:,} samples are more than the page can show, {MOST_POINTS:,}; draw some at random by "
        raise ParameterError(why, Option("samples", MOST_POINTS // 2))
    if wanted == count:
        return np.arange(count)
    drawn = torch.randperm(count, generator=torch.Generator().manual_seed(0))[:wanted]
    return np.sort(drawn.numpy())


def conventions_of(trainer: RuleTrainer) -> dict[str, Any]:
    """The conventions of a trainer as the page has them; what it does not have is an error.

    Example:
        >>> conventions_of(RuleTrainer(tie="sign", max_epochs=20))["tie"]
        'sign'
    """
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


def start_of(trainer: RuleTrainer | None) -> dict[str, Any]:
    """How the page begins by a trainer: its conventions, and the weights that it selects drawn beside the last ones.

    Example:
        >>> start_of(RuleTrainer(select="pocket"))["overlays"]
        {'pocket': True}
    """
    if trainer is None:
        return {}
    conventions = conventions_of(trainer)
    return {"conventions": conventions, "overlays": {} if trainer.select == "last" else {trainer.select: True}}
