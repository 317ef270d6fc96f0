"""Tables of any kind of file behind one interface: names of columns, and rows some at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from torchperc._checks import Option, ParameterError, first_line
from torchperc.data.io.blocks import Array, Block, block_of, cells_of, from_values, is_text
from torchperc.data.io.opening import Checksums, Form, Watch, changed, check_unpacked, unreadable
from torchperc.data.io.text import TextTable

ROWS = 2**16  # rows of a Parquet file or array that are read together, fewer if they are wide
_CELLS = 2**20  # numbers that are read together


def open_table(
    path: Path, form: Form, *, delimiter: str | None = None, header: bool | None = None, known: Sequence[str] = ()
) -> Table:
    """The table in a file; ``known`` are names of columns by which the header of a text is known as one."""
    if form.kind == "text":
        return TextTable(path, form, delimiter, header, known)
    for option, value in (("header", header), ("delimiter", delimiter)):
        if value is not None:
            raise ValueError(f"{option}={value!r} needs text files such as .csv, but {path} is none; leave it out")
    return ParquetTable(path, form.limit) if form.kind == "parquet" else ArrayTable(path)


class ParquetTable:
    """A Parquet file, read by its batches of rows."""

    named = True

    def __init__(self, path: Path, limit: int | None = None) -> None:
        self.path = path
        with self._file() as file:
            schema, self._count = file.schema_arrow, file.metadata.num_rows
        self.names, self._types = tuple(schema.names), list(schema.types)
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
        return ValueError(f"{self.path} is not a complete Parquet file ({first_line(error)}); write it again")

    def blocks(self, words: Mapping[int, bool], watch: Watch = lambda done: None) -> Iterator[Block]:
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
        if not (numeric or types.is_boolean(value) or types.is_null(value) or is_text(value)):
            name = self.names[position]
            why = f"{self.path}, column {name!r} holds {kind}, neither numbers nor text; convert it, or leave it out ("
            raise ParameterError(why, Option("ignore", name), ")")


class ArrayTable:
    """A matrix of numbers: of an ``.npy`` file, read some rows at a time, or as given."""

    named = False

    def __init__(self, path: Path, array: Array | None = None) -> None:
        self.path, self._array = path, _mapped(path) if array is None else array
        self.names = tuple(str(j + 1) for j in range(self._array.shape[1]))
        self.guess = (False,) * len(self.names)
        self._sums = Checksums(path)

    def size(self) -> int:
        """Bytes of the matrix as float64."""
        return int(self._array.size) * 8

    def blocks(self, words: Mapping[int, bool], watch: Watch = lambda done: None) -> Iterator[Block]:
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
        (rows, width), size = array.shape, array.itemsize

        def read(begin: int, numbers: int) -> Array:
            try:
                found = np.fromfile(self.path, array.dtype, numbers, offset=array.offset + begin * size)
                return found.reshape(numbers)
            except (OSError, ValueError):  # gone, or cut off
                raise changed(self.path) from None

        if array.flags.c_contiguous:
            return read(first * width, count * width).reshape(count, width)
        return np.stack([read(j * rows + first, count) for j in range(width)], 1)


Table: TypeAlias = TextTable | ParquetTable | ArrayTable


def _mapped(path: Path) -> Array:
    """The matrix of numbers in an ``.npy`` file. Python objects in it are not looked at, let alone run."""
    try:
        array: Array = np.load(path, mmap_mode="r", allow_pickle=False)
    except OSError as error:
        raise unreadable(path, error) from None
    except Exception as error:  # numpy reads the header as Python text, so damage fails in many ways
        raise ValueError(f"{path} is not a complete array of numbers ({first_line(error)}); write it again") from None
    if array.ndim != 2 or array.dtype.kind not in "biuf":
        needed = "a matrix of numbers is needed, with the labels in one of its columns, or X and y in an .npz file"
        raise ValueError(f"{path} holds an array of {array.dtype} of shape {array.shape}; {needed}")
    return array


def _rows(width: int) -> int:
    return max(1, min(ROWS, _CELLS // max(1, width)))
