"""Tables of any kind of file behind one interface: names of columns, and rows some at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from torchperc._checks import Option, ParameterError, first_line
from torchperc.data.encoding import listed
from torchperc.data.io.blocks import Array, Block, Cells, block_of, cells_of, from_values, is_text
from torchperc.data.io.cutting import Range, Shard, quotes_before, ranges
from torchperc.data.io.opening import Checksums, Form, Watch, changed, check_unpacked, title, unreadable
from torchperc.data.io.text import TextTable

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
    return ParquetTable(path, form.limit) if form.kind == "parquet" else ArrayTable(path)


def open_tables(
    paths: Sequence[Path],
    forms: Sequence[Form],
    shard: Shard,
    *,
    delimiter: str | None = None,
    header: bool | None = None,
    known: Sequence[str] = (),
) -> Table:
    """The table in several files, or what of it is a shard's own; options are those of :func:`open_table`."""
    first = shard.alike(lambda: open_table(paths[0], forms[0], delimiter=delimiter, header=header, known=known))
    if len(paths) == shard.size == 1:
        return first
    if not isinstance(first, TextTable):
        return shard.alike(lambda: _own_rows(first, paths, forms, shard))
    own = text_ranges(paths, forms, shard)
    cut = [each for each in own if (each.start, each.stop) != (0, paths[each.number].stat().st_size)]
    quotes = dict(zip(cut, quotes_before(paths, cut, shard), strict=True))

    def opened(each: Range) -> TextTable:
        path, form = paths[each.number], forms[each.number]
        table = TextTable(path, form, None, header, (), like=first) if each.number else first
        if each in quotes:
            table.narrow(each, quotes[each])
        return table

    return shard.alike(lambda: Tables(paths, first, [opened(each) for each in own]))


def _own_rows(first: RowTable, paths: Sequence[Path], forms: Sequence[Form], shard: Shard) -> Tables:
    tables = [first]
    for path, form in zip(paths[1:], forms[1:], strict=True):
        tables.append(ParquetTable(path, form.limit) if form.kind == "parquet" else ArrayTable(path))
    everything = Tables(paths, first, tables)  # which checks that they have the same columns
    own = ranges([table.count for table in tables], shard)
    for each in own:
        tables[each.number].narrow(each)
    everything.tables = [tables[each.number] for each in own]
    return everything


def text_ranges(paths: Sequence[Path], forms: Sequence[Form], shard: Shard) -> list[Range]:
    """The bytes of text files that are a shard's own; whole files if they are compressed, as many to each shard."""
    sizes = [path.stat().st_size for path in paths]
    if all(form.packing is None for form in forms):
        return ranges(sizes, shard)
    return [Range(each.number, 0, sizes[each.number]) for each in ranges([1] * len(paths), shard)]


class Tables:
    """Several files with the same columns as one table, the rows one after the other."""

    def __init__(self, paths: Sequence[Path], first: FileTable, tables: Sequence[FileTable]) -> None:
        self.path = paths[0].with_name(title(paths))
        self.named, self.names, self.guess = first.named, first.names, first.guess
        self.tables: list[FileTable] = list(tables)
        for table in tables:
            if table.names != first.names:
                theirs = f"{table.path} has the columns {listed(table.names)}"
                ours = f"{first.path} has {listed(first.names)}"
                raise ValueError(f"{theirs}, but {ours}; several files need the same columns in the same order")

    def size(self) -> int:
        """Bytes of all rows as float64."""
        return sum(table.size() for table in self.tables)

    def blocks(self, words: Mapping[int, bool], watch: Watch = lambda done: None) -> Iterator[Block]:
        """The rows, some at a time; ``words`` says which columns are wanted, and whether as words."""
        before = 0
        for table in self.tables:
            yield from table.blocks(words, lambda done, before=before: watch(before + done))  # type: ignore[misc]
            before += table.path.stat().st_size


class ParquetTable:
    """A Parquet file, read by its batches of rows."""

    named = True

    def __init__(self, path: Path, limit: int | None = None) -> None:
        self.path = path
        with self._file() as file:
            schema, self.count = file.schema_arrow, file.metadata.num_rows
            groups = [file.metadata.row_group(number).num_rows for number in range(file.metadata.num_row_groups)]
        self._groups = np.cumsum([0, *groups])  # where groups of rows begin
        self._own = range(self.count)
        self.names, self._types = tuple(schema.names), list(schema.types)
        self.guess = (False,) * len(self.names)  # words come as words anyway
        check_unpacked(path, self.size(), limit)

    def size(self) -> int:
        """Bytes of all rows as float64."""
        return len(self._own) * len(self.names) * 8

    def narrow(self, own: Range) -> None:
        """Read some rows, and of the file only the groups that they are in."""
        self._own = range(own.start, own.stop)

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
        total, own, begins = self.path.stat().st_size, self._own, self._groups
        groups = [g for g in range(len(begins) - 1) if begins[g] < own.stop and own.start < begins[g + 1]]
        first = int(begins[groups[0]]) if groups else own.stop
        with self._file() as file:
            names = [self.names[j] for j in words]
            batches = file.iter_batches(_rows(len(words)), row_groups=groups, columns=names)
            while first < own.stop:
                try:
                    batch = next(batches, None)
                except (OSError, pa.ArrowException, ValueError) as error:
                    raise self._damaged(error) from None
                if batch is None:
                    return
                skipped = max(0, own.start - first)
                some = batch.slice(skipped, max(0, own.stop - first - skipped))
                columns = {j: self._cells(some, j, wanted) for j, wanted in words.items()}
                if some.num_rows:
                    yield block_of(some.num_rows, columns, self.path, first + skipped)
                first += batch.num_rows
                watch(total * first // max(1, self.count))

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
        self._own = range(self.count)
        self._sums = Checksums(path)

    def size(self) -> int:
        """Bytes of the matrix as float64."""
        return len(self._own) * len(self.names) * 8

    def narrow(self, own: Range) -> None:
        """Read some rows, and no others of the file."""
        self._own = range(own.start, own.stop)

    def blocks(self, words: Mapping[int, bool], watch: Watch = lambda done: None) -> Iterator[Block]:
        """The rows, some at a time; ``words`` says which columns are wanted, and whether as words."""
        step, own = _rows(self._array.shape[1]), self._own
        for number, first in enumerate(range(own.start, own.stop, step)):
            part = self._rows(first, min(step, own.stop - first))
            self._sums.check(number, np.ascontiguousarray(part))
            columns = {j: from_values(part[:, j], wanted) for j, wanted in words.items()}
            yield block_of(len(part), columns, self.path, first)
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


RowTable: TypeAlias = ParquetTable | ArrayTable
FileTable: TypeAlias = TextTable | RowTable
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
