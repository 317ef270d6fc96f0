"""Data sets out of files: text, Parquet, svmlight, numpy arrays; in memory, or converted if they are too large."""

from __future__ import annotations

import math
import zipfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from torchperc import _checks as checks
from torchperc._checks import Option, ParameterError
from torchperc.data.dataset import Dataset, small_indices
from torchperc.data.encoding import MISSING, Column, Encoding, in_order
from torchperc.data.io import opening
from torchperc.data.io.blocks import Array, Block, Words
from torchperc.data.io.caching import Cache
from torchperc.data.io.features import Encoder, Gathered
from torchperc.data.io.opening import Form, Unchanged, free_memory
from torchperc.data.io.survey import Plan, Survey, check_label_count, kept
from torchperc.data.io.svmlight import SparseBlock, SvmlightFile
from torchperc.data.io.tables import Table, open_table

SHARE = 0.25
"""Share of the free memory that the features of a file may take; what takes more is converted and mapped instead."""

_NAME, _SMALL = 64, 2**24  # bytes that a feature's name takes, and that are always there for names and weights

OPTIONS = (
    "target", "positive", "missing", "header", "delimiter", "categories", "ignore", "dtype", "stream", "cache",
    "progress", "max_unpacked", "max_features",
)  # fmt: skip
"""What :func:`read` takes besides the path."""


def read(
    path: str | Path,
    target: str | int | None = None,
    *,
    missing: str = "error",
    header: bool | None = None,
    delimiter: str | None = None,
    categories: str | int | Sequence[str | int] = (),
    ignore: str | int | Sequence[str | int] = (),
    positive: str | int | None = None,
    dtype: str = "float64",
    stream: bool | None = None,
    cache: str | Path | None = None,
    progress: bool | None = None,
    max_unpacked: int | None = None,
    max_features: int | None = None,
) -> Dataset:
    """Read a file with a column of labels.

    What kind of file it is, its ending says: text (``.csv .tsv .txt .data``, and any other), Parquet
    (``.parquet .pq``), svmlight (``.svm .svmlight .libsvm``), a matrix (``.npy``), or arrays X and y (``.npz``). Text
    and svmlight may be packed (``.gz .bz2 .xz .zst``).

    A column is a number if all that is in it are numbers, and a category if fewer than half are: then each of its
    levels becomes a feature of 0 and 1. Anything between is an error that names the cell. Missing values are empty
    cells, ``NA``, ``N/A``, ``nan``, ``null`` and ``?``. A line in which nothing is written is no row.

    Args:
        path: the file.
        target: the column of labels, by name or by position from 1; the last one by default. Of an ``.npz`` file, the
            name of the array of labels.
        missing: what to do about missing values: ``"error"`` names the first; ``"drop"`` leaves their rows out, and
            counts them in ``Dataset.dropped``; ``"mean"`` fills in the mean of a number, and of a category the share of
            each level. A label cannot be filled in.
        header: whether text begins with a line of names; by default it does if no number is in that line.
        delimiter: between the cells of text; found among comma, semicolon, tab and | by default.
        categories: columns that are categories even if they hold numbers, by name or position.
        ignore: columns to leave out, by name or position.
        positive: a label to be +1 against all others.
        dtype: of the features where they are mapped from a file, ``"float64"`` or ``"float32"``; in memory they are
            float64.
        stream: convert the file, a part at a time, and map the result rather than hold it in memory; by default if the
            features would take more than a quarter of the free memory.
        cache: the folder for the converted file; a temporary one that goes away with the data set by default. Each
            data set has an entry of its own there, named by its content, which stays until you remove it.
        progress: show how far reading is; by default for large files if standard error is a terminal.
        max_unpacked: bytes that a compressed file, a Parquet file or an archive may unpack to; by default 256 MiB, or
            500 times its size if that is more.
        max_features: features that there may be; by default as many as a quarter of the free memory holds names and
            weights for.

    Raises:
        ValueError: if the file cannot be read, is not as described, exceeds a limit, or changes while it is read.

    Example:
        >>> import tempfile, pathlib
        >>> file = pathlib.Path(tempfile.mkdtemp()) / "fruit.csv"
        >>> _ = file.write_text("weight,colour,fruit\\n120,red,apple\\n110,,banana\\n90,green,apple\\n")
        >>> fruit = read(file, missing="mean")
        >>> fruit.names, fruit.labels
        (('weight', 'colour=green', 'colour=red'), ('apple', 'banana'))
        >>> fruit.X.tolist(), fruit.y.tolist()
        ([[120.0, 0.0, 1.0], [110.0, 0.5, 0.5], [90.0, 1.0, 0.0]], [-1, 1, -1])
        >>> fruit.gaps.tolist()
        [[1, 1], [1, 2]]
    """
    path = Path(path)
    checks.one_of("missing", missing, MISSING)
    checks.one_of("dtype", dtype, ("float32", "float64"))
    if max_features is not None:
        checks.whole("max_features", max_features, at_least=1)
    for name, value in (("header", header), ("stream", stream), ("progress", progress)):
        if value is not None:
            checks.flag(name, value)
    if delimiter is not None and (not isinstance(delimiter, str) or len(delimiter) != 1 or delimiter in '"\r\n'):
        raise ParameterError(Option("delimiter", delimiter), " must be one character, such as ',' or ';'")
    with opening.Unchanged(path) as source:
        form = opening.form(path, max_unpacked)
        only_tables = {
            "header": header, "delimiter": delimiter, "categories": _list(categories), "ignore": _list(ignore)
        }  # fmt: skip
        if form.kind == "npz" and missing != "error":
            remedy = f" goes with tables, but {path} is none; save it as .npy or .parquet"
            raise ParameterError(Option("missing", missing), remedy)
        if dtype != "float64" and stream is False:
            raise ValueError(
                f"dtype={dtype} is that of a converted file, but stream=False holds the features in memory"
            )
        if form.kind in ("svmlight", "npz"):
            _refuse_options(path, form, only_tables | ({"target": target} if form.kind == "svmlight" else {}))
        if form.kind == "svmlight":
            file = SvmlightFile(path, form.packing, form.limit)
            made = _sparse(file, missing, stream, cache, progress, source, max_features)
        elif form.kind == "npz":
            made = _archive(path, None if target is None else str(target), stream, form.limit, max_features)
        else:
            known = () if target is None else (str(target),)
            table = open_table(path, form, delimiter=delimiter, header=header, known=known)
            plan = _plan(table, target, _list(categories), _list(ignore), missing)
            made = _table(table, plan, dtype, stream, cache, progress, source, max_features)
    return made if positive is None else made.against_rest(positive)


def read_csv(path: str | Path, target: str | int | None = None) -> Dataset:
    """Read a table with a column of labels, all else as :func:`read` does by itself.

    Args:
        path: the file.
        target: the column of labels, by name or by position from 1; the last one by default.

    Example:
        >>> import tempfile, pathlib
        >>> file = pathlib.Path(tempfile.mkdtemp()) / "fruit.csv"
        >>> _ = file.write_text("weight,length,fruit\\n120,7,apple\\n110,19,banana\\n")
        >>> table = read_csv(file)
        >>> table.X.tolist(), table.y.tolist(), table.labels
        ([[120.0, 7.0], [110.0, 19.0]], [-1, 1], ('apple', 'banana'))
    """
    return read(path, target)


def _list(columns: str | int | Sequence[str | int]) -> tuple[str, ...]:
    return (str(columns),) if isinstance(columns, str | int) else tuple(map(str, columns))


def _refuse_options(path: Path, form: Form, options: dict[str, Any]) -> None:
    for name, value in options.items():
        if value not in (None, ()):
            why = f" goes with columns, and {path} ({form.kind}) has none; leave it out"
            raise ParameterError(Option(name, value), why)


# --- tables ---


def _plan(
    table: Table, target: str | int | None, categories: Sequence[str], ignore: Sequence[str], missing: str
) -> Plan:
    names, path = table.names, table.path
    if len(names) < 2:
        apart = ", separated by commas, semicolons, tabs or |" if path.suffix not in (".npy", ".parquet", ".pq") else ""
        raise ValueError(f"{path} has one column; a feature and a label are needed{apart}")
    left_out = {position(table, name, "ignore") for name in ignore}
    column = len(names) - 1 if target is None else position(table, str(target), "target")
    if column in left_out:
        raise ValueError(
            f"ignore leaves out column {names[column]!r} of {path}, the column of labels; name another target"
        )
    features = tuple(j for j in range(len(names)) if j != column and j not in left_out)
    if not features:
        raise ValueError(f"ignore leaves no column of {path} but that of the labels; a feature is needed")
    forced = frozenset(position(table, name, "categories") for name in categories)
    if not forced <= set(features):
        wrong = names[min(forced - set(features))]
        raise ValueError(f"categories names column {wrong!r} of {path}, which is no feature; leave it out")
    _check_names(table, (*features, column))
    return Plan(column, features, forced, missing)


def position(table: Table, name: str, option: str) -> int:
    """Where a column is, from 0, by its name or its position from 1."""
    names = table.names
    if names.count(name) > 1:
        raise ValueError(f"{table.path} has {names.count(name)} columns {name!r}; say {option} by position from 1")
    if name in names:
        return names.index(name)
    if name.isascii() and name.isdigit() and 1 <= int(name) <= len(names):
        return int(name) - 1
    shown = ", ".join(names[:50]) + (f", … ({len(names)} in all)" if len(names) > 50 else "")
    raise ValueError(f"{table.path} has no column {name!r}; it has {shown}")


def _check_names(table: Table, used: Sequence[int]) -> None:
    seen: dict[str, int] = {}
    for j in sorted(used):
        name = table.names[j]
        if not name:
            why = f"{table.path}: column {j + 1} has no name in the header, as an index that pandas wrote; "
            raise ParameterError(f"{why}leave it out with ", Option("ignore", j + 1), ", or give it a name")
        if name in seen:
            places = f"in positions {seen[name] + 1} and {j + 1}"
            why = f"{table.path} has the column {name!r} twice, {places}; rename one of them, or leave it out with "
            raise ParameterError(why, Option("ignore", j + 1))
        seen[name] = j


def _table(
    table: Table,
    plan: Plan,
    dtype: str,
    stream: bool | None,
    cache: str | Path | None,
    progress: bool | None,
    source: Unchanged,
    max_features: int | None,
) -> Dataset:
    room = _room(stream)
    survey, gathered = _surveyed(table, plan, progress, room)
    encoding = survey.encoding()
    _check_width(table.path, encoding.width, encoding.labels, max_features)
    encoder = Encoder(encoding, plan.features, plan.target, table.path)
    shape = (survey.rows, encoding.width)
    if gathered is None:
        with opening.bar(table.path, progress, "converting") as watch:
            rows = _second_time(table, encoder, plan.missing, watch, source, shape[0])
            X, y, gaps = _mapped_features(rows, encoder, shape, dtype, cache)
    else:
        X, y, gaps = map(torch.from_numpy, gathered.features(encoder))
    return Dataset(
        X,
        y,
        encoding.labels,
        encoding.names,
        name=table.path.name,
        encoding=encoding,
        gaps=gaps if plan.missing == "mean" else None,
        dropped=survey.dropped,
    )


def _surveyed(table: Table, plan: Plan, progress: bool | None, room: float) -> tuple[Survey, Gathered | None]:
    """What is learned from the rows, and the rows themselves if they take no more bytes than there is room for."""
    survey = Survey(table, plan)
    while True:
        gathered = Gathered(survey.words, plan.target) if table.size() <= room else None
        with opening.bar(table.path, progress, "reading") as watch:
            for block in survey.go(table.blocks(survey.words, watch)):
                if gathered is not None:
                    gathered.add(block)
                    if gathered.size > room:  # the first lines promised less
                        gathered = None
        if not survey.again():
            return survey, gathered


def _room(stream: bool | None) -> float:
    """Bytes that samples may take in memory: all, none, or as many as is good."""
    return SHARE * free_memory() if stream is None else -1 if stream else math.inf


def _check_width(path: Path, width: int, labels: Sequence[str], most: int | None) -> None:
    """Refuse more features than are allowed, or than memory holds names and weights for."""
    if most is not None:
        if width > most:
            why = f"{path} has {width:,} features, more than "
            raise ParameterError(why, Option("max_features", most), "; raise it if that is right")
        return
    size, free = width * (_NAME + 8 * len(labels)), free_memory()
    if size > max(SHARE * free, _SMALL):
        raise ParameterError(
            f"{path} has {width:,} features and {len(labels):,} labels, whose names and weights take {size / 1e9:,.1f} "
            f"GB where {free / 1e9:,.1f} GB are free; look for a wrong index or column, or allow it with ",
            Option("max_features", width),
        )


def _shifted(gaps: Array, first: int) -> Array:
    return np.asarray(gaps + np.array([first, 0]))


def _second_time(
    table: Table, encoder: Encoder, missing: str, watch: Callable[[int], None], source: Unchanged, count: int
) -> Iterator[Block]:
    for given in table.blocks(encoder.words, watch):
        rows, _ = kept(given, missing)
        block = given if rows is None else given.take(np.flatnonzero(rows))
        count -= block.count
        yield block
    _check_end(source, count)


def _check_end(source: Unchanged, left: int) -> None:
    """Refuse a second pass that read another file than the first, before what it wrote has a name."""
    source.check()
    if left:
        raise opening.changed(source.path)


def _mapped_features(
    blocks: Iterator[Block], encoder: Encoder, shape: tuple[int, int], dtype: str, cache: str | Path | None
) -> tuple[Any, Tensor, Tensor]:
    """Features written to a file as they come, and mapped from there."""
    first = 0
    y: list[Array] = [np.empty(0, np.int64)]
    gaps: list[Array] = [np.empty((0, 2), np.int64)]

    def rows() -> Iterator[Array]:
        nonlocal first
        for block in blocks:
            encoder.check(block)  # only a file that has changed meanwhile can fail here
            out = np.empty((block.count, shape[1]))
            gaps.append(_shifted(encoder.write(block, out), first))
            y.append(encoder.labels(block))
            first += block.count
            yield _narrow(out, dtype, encoder)

    store = Cache(cache)
    try:
        X = store.array(rows(), shape, dtype)
    except BaseException:
        store.abandon()
        raise
    return X, torch.from_numpy(np.concatenate(y)), torch.from_numpy(np.concatenate(gaps))


def _narrow(rows: Array, dtype: str, encoder: Encoder) -> Array:
    if dtype == "float64":
        return rows
    with np.errstate(over="ignore"):
        result = rows.astype(dtype)
    if not np.isfinite(result).all():
        row, feature = np.argwhere(~np.isfinite(result))[0]
        name = encoder.encoding.names[feature]
        raise ValueError(
            f"{encoder.path}: {rows[row, feature]:g} in {name!r} is too large for float32; use dtype=float64"
        )
    return result


# --- numbered features ---


def _sparse(
    file: SvmlightFile,
    missing: str,
    stream: bool | None,
    cache: str | Path | None,
    progress: bool | None,
    source: Unchanged,
    max_features: int | None,
) -> Dataset:
    if not file.labelled:
        raise ValueError(f"{file.path} has no labels: its lines begin with index:value; a line is: label index:value …")
    room = _room(stream)
    stream = file.size() > room
    seen: dict[str, None] = {}
    blocks: list[SparseBlock] = []
    lowest, highest, rows, size = 1, 0, 0, 0
    with opening.bar(file.path, progress) as watch:
        for block in file.blocks(watch):
            assert block.labels is not None
            seen.update(dict.fromkeys(block.labels.levels))
            if len(block.columns):
                lowest, highest = min(lowest, int(block.columns.min())), max(highest, int(block.columns.max()))
            rows += block.rows
            check_label_count(str(file.path), len(seen), rows)
            size += block.nbytes
            if size > room:  # the first lines promised less
                stream = True
                blocks.clear()
            if not stream:
                blocks.append(block._replace(line=lambda row: 0))
    if not rows:
        raise ValueError(f"{file.path} has no samples in it")
    if highest < lowest:
        raise ValueError(f"{file.path} has no features in it: every line is a label alone")
    if len(seen) < 2:
        raise ValueError(f"{file.path} has one label only: {next(iter(seen))!r}; two are needed")
    check_label_count(str(file.path), len(seen), rows, last=True)
    labels = in_order(seen)
    _check_width(file.path, highest - lowest + 1, labels, max_features)
    encoding = Encoding((), None, labels, missing, sparse=True, size=highest - lowest + 1, first=lowest)
    if stream:
        with opening.bar(file.path, progress, "converting") as watch:
            X, y = _mapped_sparse(file.blocks(watch), encoding, cache, source, rows)
    else:
        y = np.concatenate([label_codes(block.labels, labels) for block in blocks])
        X = _joined(blocks, encoding)
    return Dataset(X, torch.from_numpy(y), labels, encoding.names, name=file.path.name, encoding=encoding)


def label_codes(words: Words | None, labels: Sequence[str]) -> Array:
    """−1/+1 for two labels, 0 … K−1 for K."""
    assert words is not None
    codes = {label: 2 * k - 1 if len(labels) == 2 else k for k, label in enumerate(labels)}
    return np.array([codes[level] for level in words.levels], np.int64)[words.codes]


def sparse_rows(block: SparseBlock, encoding: Encoding) -> Any:
    """A block as a CSR array."""
    from scipy.sparse import csr_array

    parts = (block.values, block.columns - np.int32(encoding.first), block.starts)
    return small_indices(csr_array(parts, shape=(block.rows, encoding.size)))


def _joined(blocks: list[SparseBlock], encoding: Encoding) -> Any:
    """All blocks as one CSR array; they are given up on the way."""
    from scipy.sparse import csr_array

    ends = np.cumsum([0, *(len(block.values) for block in blocks)])
    starts = np.concatenate([[0], *(block.starts[1:] + end for block, end in zip(blocks, ends, strict=False))])
    values, columns = np.empty(ends[-1]), np.empty(ends[-1], np.int32)
    while blocks:
        block, begin = blocks.pop(), ends[len(blocks)]
        values[begin : begin + len(block.values)] = block.values
        columns[begin : begin + len(block.columns)] = block.columns - np.int32(encoding.first)
    return csr_array((values, columns, starts), shape=(len(starts) - 1, encoding.size))


def _mapped_sparse(
    blocks: Iterator[SparseBlock], encoding: Encoding, cache: str | Path | None, source: Unchanged, count: int
) -> tuple[Any, Array]:
    y: list[Array] = []

    def pieces() -> Iterator[Any]:
        for block in blocks:
            if block.rows:
                y.append(label_codes(block.labels, encoding.labels))
                yield sparse_rows(block, encoding)
        _check_end(source, count - sum(map(len, y)))

    store = Cache(cache)
    try:
        X = store.pieces(pieces())
    except BaseException:
        store.abandon()
        raise
    return X, np.concatenate(y)


# --- archives ---

_PAIRS = (("X", "y"), ("data", "target"), ("x", "y"), ("arr_0", "arr_1"))
_CSR = {"data", "indices", "indptr", "shape"}


def _archive(
    path: Path, target: str | None, stream: bool | None, limit: int | None, max_features: int | None
) -> Dataset:
    """Arrays X and y of an ``.npz`` file; X may be the parts of a CSR array."""
    if stream:
        raise ValueError(f"{path} is read as a whole; save the matrix as .npy to have it read in parts (stream=True)")
    arrays = load_arrays(path, limit)
    X, y_name = features_of(path, arrays, target)
    _check_width(path, X.shape[1], (), max_features)
    if y_name is None or y_name not in arrays:
        wanted = target or "y"
        raise ValueError(
            f"{path} has no labels: it holds {', '.join(arrays)} and no array {wanted!r}; add a label a row: "
            f"np.savez(path, X=X, y=y), or for sparse X np.savez(path, data=X.data, indices=X.indices, "
            f"indptr=X.indptr, shape=X.shape, y=y)"
        )
    y = arrays[y_name]
    if y.ndim != 1 or len(y) != X.shape[0]:
        raise ValueError(f"{path}: {y_name} has shape {y.shape} for {X.shape[0]} samples; give one label a sample")
    try:
        made = Dataset.of(X, y, names=[str(j + 1) for j in range(X.shape[1])], name=path.name)
    except (ValueError, TypeError) as error:
        raise ValueError(f"{path}: {error}") from None
    _check_width(path, X.shape[1], made.labels, max_features)
    if checks.is_sparse(made.X):
        encoding = Encoding((), None, made.labels, sparse=True, size=X.shape[1])
    else:
        encoding = Encoding(tuple(map(Column, made.names)), None, made.labels, positions=X.shape[1])
    return Dataset(made.X, made.y, made.labels, made.names, name=made.name, encoding=encoding)


def load_arrays(path: Path, limit: int | None = None) -> dict[str, Array]:
    """The arrays of an ``.npz`` file. Python objects among them are an error, never run.

    Args:
        path: the file.
        limit: bytes that it may unpack to.
    """
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            size = sum(member.file_size for member in archive.zip.infolist())
            arrays = {name: archive[name] for name in archive.files if limit is None or size <= limit}
    except (MemoryError, ValueError, zipfile.BadZipFile, EOFError, KeyError, NotImplementedError) as error:
        raise ValueError(f"{path} is not a whole archive of arrays of numbers ({error}); write it again") from None
    except OSError as error:
        raise opening.unreadable(path, error) from None
    opening.check_unpacked(path, size, limit)
    return arrays


def features_of(path: Path, arrays: dict[str, Array], target: str | None = None) -> tuple[Any, str | None]:
    """The features among some arrays, and the name of the labels."""
    if set(arrays) >= _CSR:
        return _csr(path, arrays), target or "y"
    pair = next((pair for pair in _PAIRS if pair[0] in arrays), None)
    if pair is None or arrays[pair[0]].ndim != 2 or arrays[pair[0]].dtype.kind not in "biuf":
        held = ", ".join(f"{name} {array.shape} {array.dtype}" for name, array in arrays.items())
        raise ValueError(f"{path} holds {held or 'nothing'}; a matrix of numbers X is needed, and labels y")
    return arrays[pair[0]], target or pair[1]


def _csr(path: Path, arrays: dict[str, Array]) -> Any:
    from scipy.sparse import csc_array, csr_array

    kind = arrays["format"].item() if "format" in arrays and arrays["format"].ndim == 0 else b"csr"
    kind = kind.decode(errors="replace") if isinstance(kind, bytes) else str(kind)
    if kind not in ("csr", "csc"):
        raise ValueError(f"{path} holds a sparse matrix in format {kind}; save X.tocsr() instead")
    try:
        make = csr_array if kind == "csr" else csc_array
        X = make((arrays["data"], arrays["indices"], arrays["indptr"]), shape=tuple(arrays["shape"].tolist()))
        X.check_format(full_check=True)
    except (ValueError, TypeError) as error:
        raise ValueError(f"{path} holds no whole sparse matrix: {error}") from None
    return csr_array(X)


__all__ = ["OPTIONS", "SHARE", "read", "read_csv"]
