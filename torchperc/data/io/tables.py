"""Tables of any kind of file behind one face: names of columns, and rows some at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from torchperc._checks import Option, ParameterError, first_line
from torchperc.data.io.blocks import (
    Array,
    Block,
    Cells,
    Numbers,
    Spot,
    Words,
    from_dictionary,
    from_numbers,
    from_strings,
    from_values,
)
from torchperc.data.io.opening import Checksums, Form, changed, check_unpacked, unreadable
from torchperc.data.io.text import TextTable

ROWS = 2**16
"""Rows of a Parquet file or array that are read together, fewer if they are wide."""

_CELLS = 2**22  # numbers that are read together


class Table(Protocol):
    """What every kind of table has."""

    path: Path
    names: tuple[str, ...]
    named: bool
    guess: tuple[bool, ...]

    def size(self) -> int:
        """Bytes that the features would take in memory."""

    def blocks(self, words: Mapping[int, bool], watch: Callable[[int], None] = ...) -> Iterator[Block]:
        """The rows, some at a time; ``words`` says which columns are wanted, and whether as words."""


def open_table(
    path: Path, form: Form, *, delimiter: str | None = None, header: bool | None = None, known: Sequence[str] = ()
) -> Table:
    """The table in a file.

    Args:
        path: the file.
        form: what kind it is.
        delimiter: between the cells of text; found if ``None``.
        header: whether text begins with the names of its columns; found out if ``None``.
        known: names of columns by which a header is known as one.

    Example:
        >>> import tempfile
        >>> file = Path(tempfile.mkdtemp()) / "fruit.tsv"
        >>> _ = file.write_text("weight\\tfruit\\n120\\tapple\\n")
        >>> table = open_table(file, Form("text", None))
        >>> table.names, [block.columns for block in table.blocks({1: True})]
        (('weight', 'fruit'), [{1: Words(codes=array([0]), levels=('apple',))}])
    """
    if form.kind == "text":
        return TextTable(path, form.packing, delimiter, header, known, form.limit)
    for option, value in (("header", header), ("delimiter", delimiter)):
        if value is not None:
            raise ValueError(f"{option}={value!r} goes with text files such as .csv, but {path} is none; leave it out")
    return ParquetTable(path, form.limit) if form.kind == "parquet" else ArrayTable(path)


class ParquetTable:
    """A Parquet file, read by its batches of rows."""

    named = True

    def __init__(self, path: Path, limit: int | None = None) -> None:
        self.path = path
        with self._file() as file:
            schema, self._count = file.schema_arrow, file.metadata.num_rows
        self.names = tuple(schema.names)
        self._types = list(schema.types)
        self.guess = (False,) * len(self.names)  # words come as words anyway
        check_unpacked(path, self.size(), limit)

    def size(self) -> int:
        """Bytes of all rows as float64."""
        return int(self._count) * len(self.names) * 8

    def _file(self) -> Any:
        import pyarrow as pa
        import pyarrow.parquet

        try:
            return pyarrow.parquet.ParquetFile(self.path)
        except (OSError, pa.ArrowException, ValueError) as error:
            raise self._damaged(error) from None

    def _damaged(self, error: Exception) -> ValueError:
        if isinstance(error, OSError) and error.strerror:
            return unreadable(self.path, error)
        return ValueError(f"{self.path} is not a whole Parquet file ({first_line(error)}); fetch or write it again")

    def blocks(self, words: Mapping[int, bool], watch: Callable[[int], None] = lambda done: None) -> Iterator[Block]:
        """The rows, some at a time; ``words`` says which columns are wanted, and whether as words."""
        import pyarrow as pa

        for position in words:
            self._check(position)
        total, first = self.path.stat().st_size, 0
        with self._file() as file:
            batches = file.iter_batches(_rows(len(words)), columns=[self.names[j] for j in words])
            while True:
                try:
                    batch = next(batches, None)
                except (OSError, pa.ArrowException, ValueError) as error:
                    raise self._damaged(error) from None
                if batch is None:
                    return
                columns = {j: cells_of(batch.column(self.names[j]), wanted) for j, wanted in words.items()}
                yield block_of(batch.num_rows, columns, first)
                first += batch.num_rows
                watch(total * first // max(1, self._count))

    def _check(self, position: int) -> None:
        import pyarrow as pa

        kind, types = self._types[position], pa.types
        value = kind.value_type if types.is_dictionary(kind) else kind
        numeric = types.is_integer(value) or types.is_floating(value) or types.is_decimal(value)
        if not (numeric or types.is_boolean(value) or types.is_null(value) or _is_text(value)):
            name = self.names[position]
            why = f"{self.path}, column {name!r} holds {kind}, neither numbers nor words; convert it, or leave it out ("
            raise ParameterError(why, Option("ignore", name), ")")


def _is_text(kind: Any) -> bool:
    import pyarrow as pa

    if pa.types.is_dictionary(kind):
        return _is_text(kind.value_type)
    view = getattr(pa.types, "is_string_view", lambda kind: False)
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or view(kind))


def cells_of(array: Any, words: bool) -> Cells:
    """A column from Arrow."""
    import pyarrow as pa

    if pa.types.is_null(array.type):
        nothing = np.full(len(array), -1)
        return Words(nothing, ()) if words else Numbers(np.where(nothing, np.nan, 0.0))
    if pa.types.is_dictionary(array.type):
        if _is_text(array.type):
            return from_dictionary(array, words)
        array = array.dictionary_decode()
    if _is_text(array.type):
        return from_strings(array.cast(pa.large_string()), words)
    return from_numbers(array, words)


class ArrayTable:
    """A matrix of numbers: of an ``.npy`` file, read some rows at a time, or as given."""

    named = False

    def __init__(self, path: Path, array: Array | None = None) -> None:
        self.path, self._array = path, mapped(path) if array is None else array
        self.names = tuple(str(j + 1) for j in range(self._array.shape[1]))
        self.guess = (False,) * len(self.names)
        self._sums = Checksums(path)

    def size(self) -> int:
        """Bytes of the matrix as float64."""
        return int(self._array.size) * 8

    def blocks(self, words: Mapping[int, bool], watch: Callable[[int], None] = lambda done: None) -> Iterator[Block]:
        """The rows, some at a time; ``words`` says which columns are wanted, and whether as words."""
        step = _rows(self._array.shape[1])
        for first in range(0, len(self._array), step):
            part = self._rows(first, min(step, len(self._array) - first))
            self._sums.check(first // step, np.ascontiguousarray(part))
            yield block_of(len(part), {j: from_values(part[:, j], wanted) for j, wanted in words.items()}, first)
            watch((first + len(part)) * part.shape[1] * part.itemsize)

    def _rows(self, first: int, count: int) -> Array:
        """Some rows. A file is read, since a process that looks at a map of it dies when the file is cut off."""
        array = self._array
        if not isinstance(array, np.memmap):
            return array[first : first + count]
        width, size = array.shape[1], array.itemsize
        if array.flags.c_contiguous:
            return _numbers(self.path, array, first * width * size, count * width).reshape(count, width)
        columns = [_numbers(self.path, array, (j * len(array) + first) * size, count) for j in range(width)]
        return np.stack(columns, 1)


def mapped(path: Path) -> Array:
    """The matrix of numbers in an ``.npy`` file. Python objects in it are not looked at, let alone run.

    Example:
        >>> import tempfile
        >>> file = Path(tempfile.mkdtemp()) / "data.npy"
        >>> np.save(file, np.eye(3))
        >>> mapped(file).shape
        (3, 3)
    """
    try:
        array: Array = np.load(path, mmap_mode="r", allow_pickle=False)
    except OSError as error:
        raise unreadable(path, error) from None
    except Exception as error:  # numpy reads the header as Python text, so damage fails in many ways
        raise ValueError(f"{path} is not a whole array of numbers ({first_line(error)}); write it again") from None
    if array.ndim != 2 or array.dtype.kind not in "biuf":
        raise ValueError(
            f"{path} holds an array of {array.dtype} of shape {array.shape}; a matrix of numbers is needed, with the "
            f"labels in one of its columns, or X and y in an .npz file"
        )
    return array


def _numbers(path: Path, like: np.memmap[Any, Any], offset: int, count: int) -> Array:
    try:
        return np.fromfile(path, like.dtype, count, offset=like.offset + offset).reshape(count)
    except (OSError, ValueError):  # gone, or cut off
        raise changed(path) from None


def _rows(width: int) -> int:
    return max(1, min(ROWS, _CELLS // max(1, width)))


def block_of(count: int, columns: dict[int, Cells], first: int) -> Block:
    """Some rows, of which the first has a number; cells are found again by their row."""

    def spot(row: int, position: int) -> Spot:
        cells = columns[position]
        if isinstance(cells, Numbers):
            return Spot(f"row {first + row + 1}", str(cells.values[row]))
        code = cells.codes[row]
        return Spot(f"row {first + row + 1}", "" if code < 0 else cells.levels[code])

    return Block(count, columns, spot, lambda: np.zeros(count, bool))
