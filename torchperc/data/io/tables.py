"""Tables of any kind of file behind one interface: names of columns, and rows some at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from torchperc._checks import Option, ParameterError, first_line
from torchperc.data.encoding import listed
from torchperc.data.io.blocks import Array, Block, Cells, block_of, cells_of, from_values, is_text
from torchperc.data.io.opening import Form
from torchperc.data.io.text import TextTable
from torchperc.samples.streams import changed, title, unreadable

ROWS = 2**16  # rows of a Parquet file or array that are read together, fewer if they are wide
_CELLS = 2**20  # numbers that are read together


def open_table(
    path: Path, form: Form, *, delimiter: str | None = None, header: bool | None = None, known: Sequence[str] = ()
) -> FileTable:
    """The table in a file; ``known`` are names of columns by which the header of a text is known as one."""
    if form.kind == "text":
        return TextTable(path, form, delimiter, header, known)
    for option, value in (("header", header), ("delimiter", delimiter)):
        if value is not None:
            raise ValueError(f"{option}={value!r} needs text files such as .csv, but {path} is none; leave it out")
    return ParquetTable(path) if form.kind == "parquet" else ArrayTable(path)


def open_tables(
    paths: Sequence[Path],
    forms: Sequence[Form],
    *,
    delimiter: str | None = None,
    header: bool | None = None,
    known: Sequence[str] = (),
) -> Table:
    """The table in one file or in several; options are those of :func:`open_table`."""
    first = open_table(paths[0], forms[0], delimiter=delimiter, header=header, known=known)
    if len(paths) == 1:
        return first
    rest = zip(paths[1:], forms[1:], strict=True)
    if isinstance(first, TextTable):
        return Tables(paths, [first, *(TextTable(path, form, None, header, (), like=first) for path, form in rest)])
    return Tables(paths, [first, *(open_table(path, form) for path, form in rest)])


class Tables:
    """Several files with the same columns as one table, the rows one after the other."""

    def __init__(self, paths: Sequence[Path], tables: Sequence[FileTable]) -> None:
        self.path, first = paths[0].with_name(title(paths)), tables[0]
        self.named, self.names, self.guess = first.named, first.names, first.guess
        self.tables = tables
        for table in tables:
            if table.names != first.names:
                theirs = f"{table.path} has the columns {listed(table.names)}"
                ours = f"{first.path} has {listed(first.names)}"
                raise ValueError(f"{theirs}, but {ours}; several files need the same columns in the same order")

    def size(self) -> int:
        """Bytes of all rows as float64."""
        return sum(table.size() for table in self.tables)

    def blocks(self, words: Mapping[int, bool]) -> Iterator[Block]:
        """The rows, some at a time; ``words`` says which columns are wanted, and whether as words."""
        for table in self.tables:
            yield from table.blocks(words)


class ParquetTable:
    """A Parquet file, read by its batches of rows."""

    named = True

    def __init__(self, path: Path) -> None:
        self.path = path
        with self._file() as file:
            schema, self.count = file.schema_arrow, int(file.metadata.num_rows)
        self.names, self._types = tuple(schema.names), list(schema.types)
        self.guess = (False,) * len(self.names)  # words come as words anyway

    def size(self) -> int:
        """Bytes of all rows as float64."""
        return self.count * len(self.names) * 8

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

    def blocks(self, words: Mapping[int, bool]) -> Iterator[Block]:
        """The rows, some at a time; ``words`` says which columns are wanted, and whether as words."""
        import pyarrow as pa

        for position in words:
            self._check(position)
        first = 0
        with self._file() as file:
            batches = file.iter_batches(_rows(len(words)), columns=[self.names[j] for j in words])
            while True:
                try:
                    batch = next(batches, None)
                except (OSError, pa.ArrowException, ValueError) as error:
                    raise self._damaged(error) from None
                if batch is None:
                    return
                columns = {j: self._cells(batch, j, wanted) for j, wanted in words.items()}
                yield block_of(batch.num_rows, columns, self.path, first)
                first += batch.num_rows

    def _cells(self, batch: Any, position: int, words: bool) -> Cells:
        try:
            return cells_of(batch.column(self.names[position]), words)
        except UnicodeDecodeError:
            why = f"column {self.names[position]!r} holds bytes that are not UTF-8; write it again as text in UTF-8"
            raise ValueError(f"{self.path}, {why}") from None

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
        self.count = len(self._array)

    def size(self) -> int:
        """Bytes of the matrix as float64."""
        return self.count * len(self.names) * 8

    def blocks(self, words: Mapping[int, bool]) -> Iterator[Block]:
        """The rows, some at a time; ``words`` says which columns are wanted, and whether as words."""
        step = _rows(self._array.shape[1])
        for first in range(0, self.count, step):
            part = self._rows(first, min(step, self.count - first))
            columns = {j: from_values(part[:, j], wanted) for j, wanted in words.items()}
            yield block_of(len(part), columns, self.path, first)

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


FileTable: TypeAlias = TextTable | ParquetTable | ArrayTable
Table: TypeAlias = FileTable | Tables


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
