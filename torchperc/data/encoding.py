"""How the columns of a table become features: numbers as they are, categories as 0 and 1 per level, text as words."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from torchperc._checks import Data, check_choice, check_int, check_number
from torchperc.data.ngrams import Vocabulary

ABSENT = ("", "NA", "N/A", "n/a", "nan", "NaN", "null", "NULL", "?")  # missing values, as is what reads as NaN
MISSING = ("error", "drop", "mean")  # what can be done about them


def is_number(cell: str) -> bool:
    """Whether a cell of a table reads as a number."""
    try:
        float(cell)
    except ValueError:
        return False
    return "_" not in cell  # 1_000 is a number in Python only


def shortest(number: float) -> str:
    """0.1 comes back as 0.1, 1.0 as 1, and −0 is 0."""
    return repr(number + 0.0).removesuffix(".0")


def is_absent(cell: str) -> bool:
    """Whether a cell stands for a missing value."""
    return cell in ABSENT or (is_number(cell) and math.isnan(float(cell)))


def word(cell: str) -> str:
    """A label or level as written, or in one way of writing if it is a number: 1, 1.0 and +1 are the same."""
    return shortest(float(cell)) if is_number(cell) else cell


def in_order(words: Iterable[str]) -> tuple[str, ...]:
    """Words as labels are sorted: numbers first, by their size."""
    return tuple(sorted(words, key=lambda text: (False, float(text), text) if is_number(text) else (True, 0.0, text)))


def codes_of(labels: Sequence[str]) -> dict[str, int]:
    """−1/+1 for two labels, 0 … K−1 for K."""
    return {label: 2 * k - 1 if len(labels) == 2 else k for k, label in enumerate(labels)}


def listed(words: Sequence[str], most: int = 20) -> str:
    """Some words for an error message, the first of them if there are many."""
    shown = ", ".join(map(repr, words[:most]))
    return f"{shown}, … ({len(words)} in all)" if len(words) > most else shown


@dataclass(frozen=True)
class Column:
    """A column of a table: a number, a category with its levels, or text with its vocabulary.

    Args:
        name: as in the header, or the position from 1 in a table without one.
        levels: of a category, in the order of its features; ``None`` for others.
        vocabulary: of text; ``None`` for others.

    Example:
        >>> Column("colour", ("green", "red")).features
        ('colour=green', 'colour=red')
        >>> Column("message", vocabulary=Vocabulary(("free", "free prize"), (4, 2), 9)).features
        ('message: free', 'message: free prize')
    """

    name: str
    levels: tuple[str, ...] | None = None
    vocabulary: Vocabulary | None = None

    @property
    def is_number(self) -> bool:
        """Whether it is neither a category nor text."""
        return self.levels is None and self.vocabulary is None

    @property
    def features(self) -> tuple[str, ...]:
        """The names of the features it becomes."""
        if self.vocabulary is not None:
            return tuple(f"{self.name}: {word}" for word in self.vocabulary.words)
        return (self.name,) if self.levels is None else tuple(f"{self.name}={level}" for level in self.levels)

    @property
    def width(self) -> int:
        """The number of features it becomes."""
        return (
            1 if self.is_number else len(self.levels or ()) if self.vocabulary is None else len(self.vocabulary.words)
        )


@dataclass(frozen=True)
class Encoding:
    """How the columns of a table become features, learned from one file and used for the next.

    A number stays what it is. A category with K levels becomes K features, of which the one of its level is 1 and the
    others are 0. Text becomes the features of its :class:`~torchperc.data.ngrams.Vocabulary`, and samples with text are
    sparse. Sparse files (svmlight) have numbered features and no columns.

    Args:
        columns: of the features, in the order of the file, without the column of labels.
        target: the name of the column of labels, if the file has one.
        labels: in the order of their codes; none if the target is a quantity.
        missing: what was done about missing values: ``"error"``, ``"drop"`` or ``"mean"``.
        fills: with ``"mean"``, what a missing value becomes, one number per feature.
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
            raise ValueError(f"column names must be unique, found {twice[0]!r} more than once")
        for name, levels in ((column.name, column.levels) for column in self.columns):
            if levels is not None and (not levels or len(set(levels)) < len(levels)):
                raise ValueError(f"column {name!r} has the levels {levels!r}; they must be different strings")
        if any(column.levels is not None and column.vocabulary is not None for column in self.columns):
            raise ValueError("a column cannot have both levels and a vocabulary")
        if len(self.labels) == 1 or len(set(self.labels)) < len(self.labels):
            raise ValueError(f"labels={self.labels!r} must be at least two different names, or none for real targets")
        check_choice("missing", self.missing, MISSING)
        if self.sparse == bool(self.columns):
            raise ValueError(f"sparse={self.sparse} cannot be combined with {len(self.columns)} columns")
        check_int("size", self.size, at_least=int(self.sparse))
        if self.first not in (0, 1):
            raise ValueError(f"first={self.first!r} must be 0 or 1")
        if self.positions is not None:
            check_int("positions", self.positions, at_least=max(1, len(self.columns)))
        if self.fills is not None:
            if len(self.fills) != self.width:
                raise ValueError(f"fills has {len(self.fills)} numbers for {self.width} features; give one per feature")
            for j, value in enumerate(self.fills):
                check_number(f"fills[{j}]", value)

    @property
    def names(self) -> tuple[str, ...]:
        """Of the features: ``age``, ``colour=green``, ``colour=red``; the numbers of sparse ones."""
        if self.sparse:
            return tuple(map(str, range(self.first, self.first + self.size)))
        return tuple(name for column in self.columns for name in column.features)

    @property
    def width(self) -> int:
        """The number of features."""
        return self.size + sum(column.width for column in self.columns)

    @property
    def texts(self) -> tuple[str, ...]:
        """The names of the columns of text; samples are sparse if there are any."""
        return tuple(column.name for column in self.columns if column.vocabulary is not None)

    def of_text(self) -> np.ndarray[Any, Any]:
        """Which features are words of text (d,)."""
        kinds = [column.vocabulary is not None for column in self.columns]
        found = np.repeat(np.array(kinds, bool), [column.width for column in self.columns])
        return found if self.columns else np.zeros(self.size, bool)

    def with_fills(self, means: Data) -> Encoding:
        """The same with other numbers (d,) for missing values, such as the means over the training set.

        A missing text has no words, so these features stay 0.
        """
        values = np.array(means, np.float64).reshape(-1)
        if len(values) == self.width:
            values[self.of_text()] = 0
        return replace(self, fills=tuple(values.tolist()))

    def state(self) -> dict[str, Any]:
        """Everything about it as plain types, ready for JSON; :meth:`from_state` is the way back."""
        columns: list[list[Any]] = [[c.name, None if c.levels is None else list(c.levels)] for c in self.columns]
        for listed_column, column in zip(columns, self.columns, strict=True):
            listed_column += [] if column.vocabulary is None else [column.vocabulary.state()]
        fills = None if self.fills is None else list(self.fills)
        return {**vars(self), "columns": columns, "labels": list(self.labels), "fills": fills}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Encoding:
        """What :meth:`state` returned, as an encoding again; anything else is a ``ValueError``."""
        try:
            columns = tuple(
                Column(name, None if levels is None else tuple(levels), *map(Vocabulary.from_state, words))
                for name, levels, *words in state["columns"]
            )
            fills = None if state["fills"] is None else tuple(state["fills"])
            return cls(**{**state, "columns": columns, "labels": tuple(state["labels"]), "fills": fills})
        except (KeyError, TypeError) as error:
            raise ValueError(f"state is not what state() returned: {error!r}") from None
