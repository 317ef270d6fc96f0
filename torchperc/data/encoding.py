"""How the columns of a table become features: numbers as they are, categories as 0 and 1 for each level."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from torchperc import _checks as checks
from torchperc.data.dataset import is_number, shortest

ABSENT = ("", "NA", "N/A", "n/a", "nan", "NaN", "null", "NULL", "?")
"""What stands for a missing value in a table, blanks around it left aside; so does anything that reads as NaN."""

MISSING = ("error", "drop", "mean")
"""What can be done about missing values."""


def is_absent(cell: str) -> bool:
    """Whether a cell stands for a missing value.

    Example:
        >>> [is_absent(cell) for cell in ("?", "n/a", "NAN", "none", "0")]
        [True, True, True, False, False]
    """
    return cell in ABSENT or (is_number(cell) and math.isnan(float(cell)))


def word(cell: str) -> str:
    """A label or level as written, or in one way of writing if it is a number: 1, 1.0 and +1 are the same.

    Example:
        >>> word("+1.0"), word("apple"), word("0x1")
        ('1', 'apple', '0x1')
    """
    return shortest(float(cell)) if is_number(cell) else cell


def in_order(words: Iterable[str]) -> tuple[str, ...]:
    """Words as labels are sorted: numbers first, by their size.

    Example:
        >>> in_order(["b", "10", "9", "a"])
        ('9', '10', 'a', 'b')
    """
    return tuple(sorted(words, key=lambda text: (False, float(text), text) if is_number(text) else (True, 0.0, text)))


@dataclass(frozen=True)
class Column:
    """A column of a table: a number, or a category with its levels.

    Args:
        name: as in the header, or the position from 1 in a table without one.
        levels: of a category, in the order of its features; ``None`` for a number.

    Example:
        >>> Column("colour", ("green", "red")).features
        ('colour=green', 'colour=red')
    """

    name: str
    levels: tuple[str, ...] | None = None

    @property
    def features(self) -> tuple[str, ...]:
        """The names of the features it becomes."""
        return (self.name,) if self.levels is None else tuple(f"{self.name}={level}" for level in self.levels)


@dataclass(frozen=True)
class Encoding:
    """How the columns of a table become features, learned from one file and good for the next.

    A number stays what it is. A category with K levels becomes K features, of which the one of its level is 1 and the
    others are 0. Sparse files (svmlight) have numbered features and no columns.

    Args:
        columns: of the features, in the order of the file; the column of labels is not among them.
        target: the name of the column of labels, if the file has one.
        labels: in the order of their codes.
        missing: what was done about missing values: ``"error"``, ``"drop"`` or ``"mean"``.
        fills: with ``"mean"``, what a missing value becomes, one number for each feature.
        sparse: whether features are numbered, as in svmlight.
        positions: how many columns the file had, where they have no names and go by position; ``None``: by name.
        size: the number of features, if ``sparse``.
        first: the number of the first feature, 0 or 1, if ``sparse``.

    Example:
        >>> encoding = Encoding((Column("age"), Column("colour", ("green", "red"))), "label", ("no", "yes"))
        >>> encoding.names, encoding.width
        (('age', 'colour=green', 'colour=red'), 3)
        >>> Encoding.from_state(encoding.state()) == encoding
        True
    """

    columns: tuple[Column, ...]
    target: str | None
    labels: tuple[str, ...]
    missing: str = "error"
    fills: tuple[float, ...] | None = None
    sparse: bool = False
    positions: int | None = None
    size: int = 0
    first: int = 1

    def __post_init__(self) -> None:
        names = [column.name for column in self.columns] + ([] if self.target is None else [self.target])
        twice = sorted({name for name in names if names.count(name) > 1}) if len(set(names)) < len(names) else []
        if twice:
            raise ValueError(f"columns have the name {twice[0]!r} more than once; every column needs one of its own")
        for column in self.columns:
            if column.levels is not None and (not column.levels or len(set(column.levels)) < len(column.levels)):
                raise ValueError(
                    f"column {column.name!r} has the levels {column.levels!r}; they must be different words"
                )
        if len(self.labels) < 2 or len(set(self.labels)) < len(self.labels):
            raise ValueError(f"labels={self.labels!r} must be at least two different names")
        checks.one_of("missing", self.missing, MISSING)
        if self.sparse == bool(self.columns):
            raise ValueError(
                f"sparse={self.sparse} does not go with {len(self.columns)} columns; it has numbers instead"
            )
        checks.whole("size", self.size, at_least=int(self.sparse))
        if self.first not in (0, 1):
            raise ValueError(f"first={self.first!r} must be 0 or 1")
        if self.positions is not None:
            checks.whole("positions", self.positions, at_least=max(1, len(self.columns)))
        if self.fills is not None:
            _check_fills(self.fills, self.width)

    @property
    def names(self) -> tuple[str, ...]:
        """Of the features: ``age``, ``colour=green``, ``colour=red``; the numbers of sparse ones."""
        if self.sparse:
            return tuple(map(str, range(self.first, self.first + self.size)))
        return tuple(name for column in self.columns for name in column.features)

    @property
    def width(self) -> int:
        """The number of features."""
        return self.size + sum(1 if column.levels is None else len(column.levels) for column in self.columns)

    def with_fills(self, means: checks.Data) -> Encoding:
        """The same with other numbers for missing values, such as the means over the training part.

        Args:
            means: one for each feature.

        Shape:
            (d,).

        Example:
            >>> Encoding((Column("age"),), "label", ("no", "yes"), "mean").with_fills([33.5]).fills
            (33.5,)
        """
        return replace(self, fills=tuple(float(value) for value in np.asarray(means, np.float64).reshape(-1)))

    def state(self) -> dict[str, Any]:
        """Everything about it as plain types, ready for JSON; :meth:`from_state` is the way back."""
        columns = [[c.name, None if c.levels is None else list(c.levels)] for c in self.columns]
        return {
            "columns": columns,
            "target": self.target,
            "labels": list(self.labels),
            "missing": self.missing,
            "fills": None if self.fills is None else list(self.fills),
            "sparse": self.sparse,
            "positions": self.positions,
            "size": self.size,
            "first": self.first,
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Encoding:
        """What :meth:`state` returned, as an encoding again; anything else is a ``ValueError``.

        Args:
            state: the mapping.
        """
        known = set(cls.__dataclass_fields__)
        if not isinstance(state, Mapping) or set(state) != known:
            found = sorted(map(str, state)) if isinstance(state, Mapping) else type(state).__name__
            raise ValueError(f"state must have {', '.join(sorted(known))}, found {found}; give what state() returned")
        values = dict(state)
        values["columns"] = tuple(_column(item) for item in _items("columns", state["columns"]))
        values["labels"] = _words("labels", state["labels"])
        if state["target"] is not None and not isinstance(state["target"], str):
            raise ValueError(f"state['target']={state['target']!r} must be a name or nothing")
        try:
            if state["fills"] is not None:
                fills = enumerate(_items("fills", state["fills"]))
                values["fills"] = tuple(checks.number(f"state['fills'][{j}]", value) for j, value in fills)
            checks.flag("state['sparse']", state["sparse"])
            return cls(**values)
        except TypeError as error:
            raise ValueError(str(error)) from None


def _check_fills(fills: Sequence[float], width: int) -> None:
    if len(fills) != width:
        raise ValueError(f"fills has {len(fills)} numbers for {width} features; give one for each")
    for j, value in enumerate(fills):
        checks.number(f"fills[{j}]", value)


def _items(name: str, value: object) -> list[Any]:
    if not isinstance(value, (list, tuple)):
        raise ValueError(f"state[{name!r}] must be a list, found {type(value).__name__} {value!r}")
    return list(value)


def _words(name: str, value: object) -> tuple[str, ...]:
    items = _items(name, value)
    if not all(isinstance(item, str) for item in items):
        raise ValueError(f"state[{name!r}] must hold words, found {value!r}")
    return tuple(items)


def _column(item: object) -> Column:
    pair = _items("columns", item)
    if len(pair) != 2 or not isinstance(pair[0], str):
        raise ValueError(f"state['columns'] must hold pairs of a name and levels, found {item!r}")
    return Column(pair[0], None if pair[1] is None else _words("columns", pair[1]))
