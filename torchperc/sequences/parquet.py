"""Reading tagged tokens from Parquet: one row per sentence with lists, or one row per token."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from torchperc._lazy import requires
from torchperc.samples import streams
from torchperc.sequences.corpus import Column, Corpus

_SENTENCES = ("sentence", "sentence_id", "sent_id", "sentence_number")


def blocks(
    path: Path, columns: Sequence[int | str] | None, sentence: str | None, tokens: int | None
) -> Iterator[Corpus]:
    """Blocks of about so many tokens, or one block.

    Args:
        path: the file.
        columns: names or numbers; all, or all that are lists if some are, if None.
        sentence: the column that numbers sentences where a row is one token; one of the usual names if None.
        tokens: per block.
    """
    requires(f"reading {path}", "pyarrow")
    import pyarrow as pa
    import pyarrow.parquet as pq

    found = 0
    try:
        with pq.ParquetFile(path) as file:
            names, key = _chosen(path, file.schema_arrow, columns, sentence)
            rows = file.metadata.num_rows if tokens is None else max(1, tokens if key else tokens // 16)
            batches = file.iter_batches(batch_size=max(1, rows), columns=[*names, *([key] if key else [])])
            tables = (pa.Table.from_batches([batch]) for batch in batches)
            for block in _long(path, tables, names, key) if key else _lists(path, tables, names):
                found += block.tokens
                yield block
    except (pa.ArrowException, OSError) as error:
        raise streams.unreadable(path, error) from None
    if not found:
        raise ValueError(f"{path} has no tokens")


def _chosen(
    path: Path, schema: Any, columns: Sequence[int | str] | None, sentence: str | None
) -> tuple[list[str], str | None]:
    """The names of the columns to read, and of the one that numbers sentences if a row is one token."""
    import pyarrow as pa

    kinds = {name: schema.field(name).type for name in schema.names}
    lists = [name for name, kind in kinds.items() if pa.types.is_list(kind) or pa.types.is_large_list(kind)]
    if columns is None:
        key = None if lists else _sentence_column(path, schema, sentence)
        return (lists, None) if lists else ([name for name in schema.names if name != key], key)
    names = []
    for which in columns:
        if isinstance(which, str) and which not in schema.names:
            raise ValueError(f"{path} has no column {which!r}; its columns are {', '.join(schema.names)}")
        if not isinstance(which, str) and not -len(schema.names) <= which < len(schema.names):
            raise ValueError(
                f"{path} has {len(schema.names)} columns, so there is no column {which}; they count from 0"
            )
        names.append(which if isinstance(which, str) else schema.names[which])
    if not set(names) & set(lists):
        return names, _sentence_column(path, schema, sentence)
    if not set(names) <= set(lists):
        other = next(name for name in names if name not in lists)
        raise ValueError(f"{path}: column {other!r} has one value per row and others have lists; choose with columns=")
    return names, None


def _sentence_column(path: Path, schema: Any, sentence: str | None) -> str:
    known = [name for name in ([sentence] if sentence else _SENTENCES) if name in schema.names]
    if known:
        return known[0]
    what = f"no column {sentence!r}" if sentence else "neither columns of lists nor one that numbers sentences"
    raise ValueError(f"{path} has {what}; its columns are {', '.join(schema.names)}: name one with sentence=")


def _lists(path: Path, tables: Iterable[Any], names: Sequence[str]) -> Iterator[Corpus]:
    row = 0
    for table in tables:
        columns: list[Column] = []
        first = np.zeros(0, np.int64)
        for name in names:
            column = _whole(table.column(name))
            if column.null_count:
                raise ValueError(f"{path}, row {row + _first_null(column)}, column {name!r}: no value")
            lengths = column.value_lengths().to_numpy(zero_copy_only=False).astype(np.int64)
            if columns and not np.array_equal(lengths, first):
                wrong = int(np.argmax(lengths != first))
                raise ValueError(
                    f"{path}, row {row + wrong + 1}: {name!r} has {lengths[wrong]} values and {names[0]!r} has "
                    f"{first[wrong]}; every token needs one of each"
                )
            first = lengths
            columns.append(_strings(path, name, column.flatten(), f"value {{}} from row {row + 1} on"))
        offsets = np.concatenate([[0], np.cumsum(first[first > 0])]).astype(np.int64)
        if len(offsets) > 1:
            yield Corpus(tuple(columns), offsets, str(path))
        row += table.num_rows


def _long(path: Path, tables: Iterable[Any], names: Sequence[str], key: str) -> Iterator[Corpus]:
    import pyarrow as pa

    rest, row = None, 0
    for table in chain(tables, [None]):
        whole = rest if table is None else table if rest is None else pa.concat_tables([rest, table])
        if whole is None or not whole.num_rows:
            continue
        number = _whole(whole.column(key))
        if number.null_count:
            raise ValueError(f"{path}, row {row + _first_null(number)}, column {key!r}: no value")
        codes = number if pa.types.is_dictionary(number.type) else number.dictionary_encode()
        codes = codes.indices.to_numpy(zero_copy_only=False)
        begins = np.flatnonzero(np.diff(codes)) + 1
        end = whole.num_rows if table is None else int(begins[-1]) if len(begins) else 0
        if end:
            taken = whole.slice(0, end)
            columns = tuple(_strings(path, name, taken.column(name), "row {}", row) for name in names)
            offsets = np.concatenate([[0], begins[begins < end], [end]]).astype(np.int64)
            yield Corpus(columns, offsets, str(path))
        rest, row = whole.slice(end), row + end


def _first_null(column: Any) -> int:
    import pyarrow.compute as pc

    return int(pc.index(pc.is_null(column), True).as_py()) + 1


def _whole(column: Any) -> Any:
    """A column in one piece."""
    import pyarrow as pa

    while isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    return column


def _strings(path: Path, name: str, values: Any, place: str, before: int = 0) -> Column:
    """A column of strings or integers, which become strings."""
    import pyarrow as pa

    values, where = _whole(values), f"{path}, column {name!r}"
    if values.null_count:
        raise ValueError(f"{where}, {place.format(before + _first_null(values))}: no value; leave such rows out")
    kind = values.type.value_type if pa.types.is_dictionary(values.type) else values.type
    if not (pa.types.is_integer(kind) or pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        raise ValueError(f"{where} holds {kind}, not strings; choose others with columns=")
    strings = _whole(values.cast(pa.large_string()))
    _, offsets, data = strings.buffers()
    bounds = np.frombuffer(offsets, np.int64)[strings.offset : strings.offset + len(strings) + 1]
    content = np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8)
    return Column(name, content[bounds[0] : bounds[-1]], bounds[1:] - bounds[0])
