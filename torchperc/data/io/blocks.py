"""Columns of a table as they are read, some rows at a time: numbers, or codes of words."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from torchperc.data.dataset import is_number, shortest
from torchperc.data.encoding import ABSENT, is_absent, word

Array: TypeAlias = np.ndarray[Any, Any]


class Numbers:
    """A column of float64, NaN where a value is missing."""

    def __init__(self, values: Array) -> None:
        self.values = values

    @cached_property
    def _plain(self) -> bool:
        with np.errstate(over="ignore", invalid="ignore"):
            return math.isfinite(self.values.sum())  # one pass; a number that is not finite never leaves a finite sum

    def missing(self) -> Array | None:
        """Which values are missing; ``None`` if none is."""
        if self._plain:
            return None
        absent = np.isnan(self.values)
        return absent if absent.any() else None

    def infinite(self) -> int | None:
        """The first row with an infinite value."""
        if self._plain:
            return None
        rows = np.flatnonzero(np.isinf(self.values))
        return int(rows[0]) if len(rows) else None

    def take(self, rows: Array) -> Numbers:
        """Some of the rows."""
        return Numbers(self.values[rows])


class Words(NamedTuple):
    """A column of codes, −1 where a value is missing, and the words they stand for."""

    codes: Array
    levels: tuple[str, ...]

    def missing(self) -> Array | None:
        """Which values are missing; ``None`` if none is."""
        return self.codes < 0 if len(self.codes) and self.codes.min() < 0 else None

    def counts(self) -> list[int]:
        """How often each word occurs."""
        return np.bincount(self.codes[self.codes >= 0], minlength=len(self.levels)).tolist()  # type: ignore[no-any-return]

    def take(self, rows: Array) -> Words:
        """Some of the rows."""
        return Words(self.codes[rows], self.levels)


Cells: TypeAlias = Numbers | Words


class Spot(NamedTuple):
    """A cell of a file: the line or row it is in, in words, and what is written there."""

    place: str
    cell: str


@dataclass
class Block:
    """Some rows of a table.

    Args:
        count: how many.
        columns: by their position in the file, from 0.
        spot: where in the file the cell of a row and a position is.
        blank: which rows have nothing written in them, and so are no rows.
    """

    count: int
    columns: dict[int, Cells]
    spot: Callable[[int, int], Spot]
    blank: Callable[[], Array]

    def take(self, rows: Array) -> Block:
        """Some of the rows."""
        columns = {position: cells.take(rows) for position, cells in self.columns.items()}
        spot, blank = self.spot, self.blank
        return Block(len(rows), columns, lambda row, j: spot(int(rows[row]), j), lambda: blank()[rows])


def from_strings(array: Any, words: bool) -> Cells:
    """A column of text from Arrow: numbers if all that is there are numbers, and ``words`` does not ask otherwise.

    Example:
        >>> import pyarrow as pa
        >>> from_strings(pa.array([" 1", "?", "+2.5"]), words=False).values.tolist()
        [1.0, nan, 2.5]
        >>> from_strings(pa.array(["a", "", "a"]), words=False)
        Words(codes=array([ 0, -1,  0]), levels=('a',))
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    if not words:
        trimmed = pc.utf8_trim_whitespace(array)
        absent = pc.is_in(trimmed, value_set=pa.array(ABSENT, trimmed.type))
        try:
            return Numbers(_floats(pc.if_else(absent, pa.scalar(None, trimmed.type), trimmed)))
        except pa.ArrowInvalid:  # some word among them, or a way of writing numbers that only Python knows
            pass
    return from_dictionary(array.dictionary_encode(), words)


def from_dictionary(array: Any, words: bool) -> Cells:
    """A dictionary-encoded column from Arrow, of text or of anything that has a text."""
    given = array.dictionary.to_pylist()
    texts = ["" if value is None else _text(value).strip() for value in given]
    numbering: dict[str, int] = {}
    known = [-1 if is_absent(text) else numbering.setdefault(word(text), len(numbering)) for text in texts]
    codes = np.asarray(array.indices.fill_null(len(given)), np.int64)
    cells = Words(np.array([*known, -1], np.int64)[codes], tuple(numbering))
    if words or not all(map(is_number, cells.levels)):
        return cells
    return Numbers(np.array([*map(float, cells.levels), math.nan])[cells.codes])


def _text(value: Any) -> str:
    return shortest(value) if isinstance(value, float) else str(value)


def from_numbers(array: Any, words: bool) -> Cells:
    """A column of numbers or truth values from Arrow; truth values are words, as they are in a text file."""
    import pyarrow as pa

    if pa.types.is_boolean(array.type):
        return from_dictionary(array.dictionary_encode(), words=True)
    if words:
        if pa.types.is_float16(array.type):
            array = array.cast(pa.float32())
        return from_dictionary(array.dictionary_encode(), words=True)
    return Numbers(_floats(array))


def _floats(array: Any) -> Array:
    import pyarrow as pa

    values: Array = array.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    return values


def from_values(values: Array, words: bool) -> Cells:
    """A column of a numpy array of numbers."""
    if not words:
        return Numbers(values.astype(np.float64))
    different, codes = np.unique(values, return_inverse=True)
    texts = [str(value) if values.dtype.kind in "biu" else shortest(float(value)) for value in different.tolist()]
    numbering: dict[str, int] = {}
    known = [-1 if is_absent(text) else numbering.setdefault(text, len(numbering)) for text in texts]
    return Words(np.array(known, np.int64)[codes], tuple(numbering))
