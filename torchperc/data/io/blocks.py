"""Columns of a table as they are read, some rows at a time: numbers, or codes of words."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from torchperc.data.encoding import ABSENT, is_absent, is_number, shortest, word

Array: TypeAlias = np.ndarray[Any, Any]


class Numbers:
    """A column of float64, NaN where a value is missing."""

    def __init__(self, values: Array) -> None:
        self.values = values

    @cached_property
    def _finite(self) -> bool:
        with np.errstate(over="ignore", invalid="ignore"):
            return math.isfinite(self.values.sum())  # one pass; a number that is not finite never leaves a finite sum

    def missing(self) -> Array | None:
        """Which values are missing; ``None`` if none is."""
        absent = None if self._finite else np.isnan(self.values)
        return absent if absent is not None and absent.any() else None

    def infinite(self) -> int | None:
        """The first row with an infinite value."""
        found = not self._finite and np.isinf(self.values)
        return int(np.argmax(found)) if np.any(found) else None

    def take(self, rows: Array) -> Numbers:
        """Some of the rows."""
        return Numbers(self.values[rows])


class Words(NamedTuple):
    """A column of codes, −1 where a value is missing, and the words they stand for."""

    codes: Array
    levels: tuple[str, ...]

    @property
    def nbytes(self) -> int:
        """Bytes of codes and words, roughly."""
        return int(self.codes.nbytes) + sum(map(len, self.levels))

    def missing(self) -> Array | None:
        """Which values are missing; ``None`` if none is."""
        return self.codes < 0 if len(self.codes) and self.codes.min() < 0 else None

    def counts(self) -> list[int]:
        """How often each word occurs."""
        return np.bincount(self.codes[self.codes >= 0], minlength=len(self.levels)).tolist()  # type: ignore[no-any-return]

    def take(self, rows: Array) -> Words:
        """Some of the rows."""
        return Words(self.codes[rows], self.levels)

    def texts(self) -> list[str]:
        """The word of each row, empty where it is missing."""
        return np.array([*self.levels, ""], dtype=object)[self.codes].tolist()  # type: ignore[no-any-return]


Cells: TypeAlias = Numbers | Words


class Spot(NamedTuple):
    """A cell: the file and the line or row it is in, in words, and what is written there."""

    place: str
    cell: str


@dataclass
class Block:
    """Some rows of a table."""

    count: int
    columns: dict[int, Cells]  # by their position in the file, from 0
    spot: Callable[[int, int], Spot]  # where in the file the cell of a row and a position is
    blank: Callable[[], Array]  # which rows have nothing written in them, and so are no rows

    def kept(self, rows: Array | None) -> Block:
        """The rows that a mask selects, all if there is none."""
        if rows is None:
            return self
        index = np.flatnonzero(rows)
        columns = {position: cells.take(index) for position, cells in self.columns.items()}
        return Block(len(index), columns, lambda row, j: self.spot(int(index[row]), j), lambda: self.blank()[index])


def block_of(count: int, columns: dict[int, Cells], path: str | Path = "X", first: int = 0) -> Block:
    """Some rows of a file, of which the first has a number; cells are found again by their row."""

    def spot(row: int, position: int) -> Spot:
        cells = columns[position]
        cell = str(cells.values[row]) if isinstance(cells, Numbers) else (*cells.levels, "")[cells.codes[row]]
        return Spot(f"{path}, row {first + row + 1}", cell)

    return Block(count, columns, spot, lambda: np.zeros(count, bool))


def is_text(kind: Any) -> bool:
    """Whether a type of Arrow is one of text."""
    import pyarrow as pa

    view = getattr(pa.types, "is_string_view", lambda kind: False)
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or view(kind))


def cells_of(array: Any, words: bool) -> Cells:
    """A column from Arrow: numbers if all that is there are numbers, and ``words`` does not ask otherwise.

    Truth values are words, as they are in a text file.

    Example:
        >>> import pyarrow as pa
        >>> cells_of(pa.array([" 1", "?", "+2.5"]), words=False).values.tolist()
        [1.0, nan, 2.5]
        >>> cells_of(pa.array(["a", "", "a"]), words=False)
        Words(codes=array([ 0, -1,  0]), levels=('a',))
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_dictionary(array.type) and not is_text(array.type.value_type):
        array = array.dictionary_decode()
    if pa.types.is_null(array.type) or pa.types.is_float16(array.type):
        array = array.cast(pa.float32())
    words = words or pa.types.is_boolean(array.type)
    if is_text(array.type) and not words:
        trimmed = pc.utf8_trim_whitespace(array.cast(pa.large_string()))
        absent = pc.is_in(trimmed, value_set=pa.array(ABSENT, trimmed.type))
        try:
            return Numbers(_floats(pc.if_else(absent, pa.scalar(None, trimmed.type), trimmed)))
        except pa.ArrowInvalid:  # some word among them, or a way of writing numbers that only Python knows
            pass
    elif not words and not pa.types.is_dictionary(array.type):
        return Numbers(_floats(array))
    if not pa.types.is_dictionary(array.type):
        array = array.dictionary_encode()
    given = array.dictionary.to_pylist()
    texts = [shortest(x) if isinstance(x, float) else "" if x is None else str(x).strip() for x in given]
    numbering: dict[str, int] = {}
    known = [-1 if is_absent(text) else numbering.setdefault(word(text), len(numbering)) for text in texts]
    codes = np.array([*known, -1], np.int64)[_numbers(array.indices.cast(pa.int64()), np.int64, len(given))]
    if words or not all(map(is_number, numbering)):
        return Words(codes, tuple(numbering))
    return Numbers(np.array([*map(float, numbering), math.nan])[codes])


def _floats(array: Any) -> Array:
    import pyarrow as pa

    return _numbers(array.cast(pa.float64(), safe=False), np.float64, math.nan)


def _numbers(array: Any, dtype: type, missing: float) -> Array:
    """An array of numbers of Arrow, nulls replaced; its ``to_numpy`` and ``fill_null`` would import pandas."""
    import pyarrow as pa

    if not len(array):
        return np.empty(0, dtype)
    values: Array = np.frombuffer(array.buffers()[1], dtype, len(array), array.offset * np.dtype(dtype).itemsize)
    if not array.null_count:
        return values
    there = _numbers(array.is_valid().cast(pa.uint8()), np.uint8, 0)
    return np.where(there, values, dtype(missing))


def from_values(values: Array, words: bool) -> Cells:
    """A column of a numpy array of numbers."""
    if not words:
        return Numbers(values.astype(np.float64))
    different, codes = np.unique(values, return_inverse=True)
    texts = [str(value) if values.dtype.kind in "biu" else shortest(float(value)) for value in different.tolist()]
    numbering: dict[str, int] = {}
    known = [-1 if is_absent(text) else numbering.setdefault(text, len(numbering)) for text in texts]
    return Words(np.array(known, np.int64)[codes], tuple(numbering))


def small_indices(X: Any) -> Any:
    """A CSR array with indices of 32 bits if they fit: scikit-learn refuses longer ones, and they take less memory."""
    if X.indices.dtype == X.indptr.dtype == np.int32 or max(X.nnz, *X.shape) > np.iinfo(np.int32).max:
        return X
    return type(X)((X.data, X.indices.astype(np.int32), X.indptr.astype(np.int32)), shape=X.shape)
