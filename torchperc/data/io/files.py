"""Data sets out of files: text, Parquet, svmlight, numpy arrays; in memory, or converted if they are too large."""

from __future__ import annotations

import math
import zipfile
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import lazy_loader
import numpy as np

from torchperc._checks import Option, ParameterError, check_bool, check_choice, check_int, is_sparse
from torchperc.data.encoding import MISSING, Column, Encoding, in_order, listed, word
from torchperc.data.io import opening
from torchperc.data.io.blocks import Array, Block, Numbers, block_of, small_indices
from torchperc.data.io.caching import Cache, stacked
from torchperc.data.io.features import Encoder, targets
from torchperc.data.io.opening import Form, Unchanged, free_memory
from torchperc.data.io.survey import Plan, Survey, check_labels, kept
from torchperc.data.io.svmlight import SparseBlock, SvmlightFile
from torchperc.data.io.tables import Table, open_tables
from torchperc.data.task import LABELS, TASKS, guessed, is_regression
from torchperc.samples.streams import found, title, unreadable

if TYPE_CHECKING:
    import torch

    from torchperc.data.dataset import Dataset
else:
    torch = lazy_loader.load("torch")

SHARE = 0.25  # fraction of the free memory that features may take; what takes more is converted and mapped instead
_NAME, _SMALL = 64, 2**24  # bytes that a feature's name takes, and that are always there for names and weights
SAMPLED = 2**25  # bytes of files beyond which a vocabulary is learned from a sample of the texts
_PACKED = 4  # times that compressed files expand, roughly


class _How(NamedTuple):
    """How files are to be read: where samples go, and within which limits."""

    paths: tuple[Path, ...]
    source: Unchanged
    dtype: str
    room: float
    cache: str | Path | None
    max_features: int | None
    task: str | None


def read(
    path: str | Path | Sequence[str | Path],
    target: str | int | None = None,
    *,
    missing: str = "error",
    header: bool | None = None,
    delimiter: str | None = None,
    categories: str | int | Sequence[str | int] = (),
    ignore: str | int | Sequence[str | int] = (),
    text: str | int | Sequence[str | int] = (),
    positive: str | int | None = None,
    dtype: str = "float64",
    stream: bool | None = None,
    cache: str | Path | None = None,
    max_features: int | None = None,
    task: str | None = None,
) -> Dataset:
    """Read a file with a column of labels or real targets, or several files as one.

    What kind of file it is, its ending says: text (``.csv .tsv .txt .data``, and any other), Parquet
    (``.parquet .pq``), svmlight (``.svm .svmlight .libsvm``), a matrix (``.npy``), or arrays X and y (``.npz``). Text
    and svmlight may be compressed (``.gz .bz2 .xz .zst``).

    A column is a number if all that is in it are numbers, and a category if fewer than half are: then each of its
    levels becomes a feature of 0 and 1. Anything between is an error that names the cell. Missing values are empty
    cells, ``NA``, ``N/A``, ``nan``, ``null`` and ``?``. A line in which nothing is written is no row.

    Text is a column that is named as such, or one whose values are nearly all different and long: five words of two
    letters or more on average, and more than 20 different values that are more than half as many as rows (or more than
    1,000). Its words and pairs of words that occur in two rows or more become features, see
    :class:`~torchperc.data.ngrams.Vocabulary`, and X is sparse.

    Several files are one table, their rows one after the other, so they must have the same columns in the same order
    (of text, a header in each or in the first only).

    Args:
        path: the file; a pattern such as ``data/part-*.parquet``, whose files are read in the order of their names; or
            a list of files.
        target: the column of labels or targets, by name or by position from 1; the last one by default. Of an ``.npz``
            file, the name of that array.
        missing: what to do about missing values: ``"error"`` names the first; ``"drop"`` leaves their rows out, and
            counts them in ``Dataset.dropped``; ``"mean"`` fills in the mean of a number, and of a category the fraction
            of each level, and a missing text has no words. A label cannot be filled in.
        header: whether text begins with a line of names; by default it does if no number is in that line.
        delimiter: between the cells of text; detected among comma, semicolon, tab and | by default.
        categories: columns that are categories even if they hold numbers, by name or position.
        ignore: columns to leave out, by name or position.
        text: columns of free text, by name or position, whose words and pairs of words become features.
        positive: a label to be +1 against all others.
        dtype: of the features where they are mapped from a file, ``"float64"`` or ``"float32"``; in memory they are
            float64.
        stream: convert the file, a part at a time, and map the result rather than hold it in memory; by default if the
            features would take more than a quarter of the free memory.
        cache: the folder for the converted file; a temporary one that goes away with the data set by default. Each
            data set has an entry of its own there, named by its content, which stays until you remove it.
        max_features: by default as many as a quarter of the free memory holds names and weights for.
        task: ``"classification"`` reads the target as labels, ``"regression"`` as numbers, of which none may be missing
            or infinite. By default many different numbers are a quantity, all else are labels; what was taken is in
            ``Dataset.task``, and in words in ``Dataset.guess`` where it could be otherwise. Numbers are a quantity if
            there are more than 10, and more than half as many as rows; or more than 20, not all of them integers; or
            more than 50 integers, with gaps between them and fewer than five rows for each on average; or more than
            65,536.

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
        >>> read(file, "weight", ignore="colour", task="regression").y.tolist()
        [120.0, 110.0, 90.0]
    """
    check_choice("missing", missing, MISSING)
    if task is not None:
        check_choice("task", task, TASKS)
    if positive is not None:
        if task == "regression":
            why = " names a class, but there is none with "
            raise ParameterError(Option("positive", positive), why, Option("task", task), "; leave one of them out")
        task = "classification"
    check_choice("dtype", dtype, ("float32", "float64"))
    if max_features is not None:
        check_int("max_features", max_features, at_least=1)
    for name, value in (("header", header), ("stream", stream)):
        if value is not None:
            check_bool(name, value)
    if delimiter is not None and (not isinstance(delimiter, str) or len(delimiter) != 1 or delimiter in '"\r\n'):
        raise ParameterError(Option("delimiter", delimiter), " must be one character, such as ',' or ';'")
    if dtype != "float64" and stream is False:
        raise ValueError(f"dtype={dtype} is that of a converted file, but stream=False holds the features in memory")
    room = SHARE * free_memory() if stream is None else -1 if stream else math.inf
    chosen, left_out, texts, paths = _list(categories), _list(ignore), _list(text), found(path)
    with Unchanged(*paths) as source:
        forms, path = _forms(paths), paths[0]
        how, form = _How(paths, source, dtype, room, cache, max_features, task), forms[0]
        if form.kind in ("svmlight", "npz"):
            only_tables = {"header": header, "delimiter": delimiter, "categories": chosen, "ignore": left_out}
            only_tables |= {"text": texts}
            for name, given in (only_tables | ({"target": target} if form.kind == "svmlight" else {})).items():
                if given not in (None, ()):
                    why = f" needs columns, and {path} ({form.kind}) has none; leave it out"
                    raise ParameterError(Option(name, given), why)
        if form.kind == "svmlight":
            made = _sparse(forms, missing, how)
        elif form.kind == "npz":
            if missing != "error":
                why = f" needs tables, but {path} is none; save it as .npy or .parquet"
                raise ParameterError(Option("missing", missing), why)
            for given, what in ((stream, "stream=True"), (len(paths) > 1, "several files")):
                if given:
                    raise ValueError(f"{what} is not possible with {path}, which is read as a whole; save it as .npy")
            made = _archive(path, None if target is None else str(target), how)
        else:
            known = () if target is None else (str(target),)
            table = open_tables(paths, forms, delimiter=delimiter, header=header, known=known)
            plan = _plan(table, target, chosen, left_out, texts, missing)
            plan = plan._replace(task=task, sampled=min(1.0, SAMPLED / max(1, _text_size(paths, forms))))
            made = _table(table, plan, how)
    return made if positive is None else made.against_rest(positive)


def _forms(paths: Sequence[Path]) -> list[Form]:
    forms = [opening.form(path) for path in paths]
    for path, form in zip(paths, forms, strict=True):
        if form.kind != forms[0].kind:
            raise ValueError(f"{path} is {form.kind}, but {paths[0]} is {forms[0].kind}; read one kind at a time")
    return forms


def _list(columns: str | int | Sequence[str | int]) -> tuple[str, ...]:
    return (str(columns),) if isinstance(columns, str | int) else tuple(map(str, columns))


def _check_width(path: Path, width: int, labels: Sequence[str], most: int | None) -> None:
    """Refuse more features than are allowed, or than memory holds names and weights for."""
    if most is not None:
        if width > most:
            why = f"{path} has {width:,} features, more than "
            raise ParameterError(why, Option("max_features", most), "; raise it if that is right")
        return
    size, free = width * (_NAME + 8 * len(labels)), free_memory()
    if size > max(SHARE * free, _SMALL):
        room = f"names and weights take {size / 1e9:,.1f} GB where {free / 1e9:,.1f} GB are free"
        why = f"{path} has {width:,} features and {len(labels):,} labels, whose {room}"
        remedy = "; look for a wrong index or column, or allow it with "
        raise ParameterError(why, remedy, Option("max_features", width))


def _text_size(paths: Sequence[Path], forms: Sequence[Form]) -> int:
    """Roughly the bytes of text that are in files."""
    packed = any(form.packing is not None or form.kind == "parquet" for form in forms)
    return sum(path.stat().st_size for path in paths) * (_PACKED if packed else 1)


def _plan(
    table: Table,
    target: object,
    categories: Sequence[str],
    ignore: Sequence[str],
    texts: Sequence[str],
    missing: str,
) -> Plan:
    names, path = table.names, table.path
    if len(names) < 2:
        text = not any(end in path.name for end in (".npy", ".parquet", ".pq"))
        apart = ", separated by commas, semicolons, tabs or |" if text else ""
        raise ValueError(f"{path} has one column; a feature and a label are needed{apart}")
    left_out = {_position(table, name, "ignore") for name in ignore}
    column = len(names) - 1 if target is None else _position(table, str(target), "target")
    if column in left_out:
        raise ValueError(f"ignore leaves out column {names[column]!r} of {path}, the labels; choose another target")
    features = tuple(j for j in range(len(names)) if j != column and j not in left_out)
    if not features:
        raise ValueError(f"ignore leaves no column of {path} but the labels; a feature is needed")
    forced = frozenset(_position(table, name, "categories") for name in categories)
    words = frozenset(_position(table, name, "text") for name in texts)
    for option, chosen in (("categories", forced), ("text", words)):
        if not chosen <= set(features):
            wrong = names[min(chosen - set(features))]
            raise ValueError(f"{option} names column {wrong!r} of {path}, which is no feature; leave it out")
    if forced & words:
        wrong = names[min(forced & words)]
        raise ValueError(f"categories and text both name column {wrong!r} of {path}; choose one")
    seen: dict[str, int] = {}
    for j in sorted((*features, column)):
        if not names[j]:
            why = f"{path}: column {j + 1} has no name in the header, as an index that pandas wrote; leave it out with "
            raise ParameterError(why, Option("ignore", j + 1), ", or give it a name")
        if names[j] in seen:
            twice = f"twice, in positions {seen[names[j]] + 1} and {j + 1}"
            why = f"{path} has the column {names[j]!r} {twice}; rename one of them, or leave it out with "
            raise ParameterError(why, Option("ignore", j + 1))
        seen[names[j]] = j
    return Plan(column, features, forced, missing, words)


def _position(table: Table, name: str, option: str) -> int:
    """Where a column is, from 0, by its name or its position from 1."""
    names = table.names
    if names.count(name) > 1:
        raise ValueError(f"{table.path} has {names.count(name)} columns {name!r}; say {option} by position from 1")
    if name in names:
        return names.index(name)
    if name.isascii() and name.isdigit() and 1 <= int(name) <= len(names):
        return int(name) - 1
    raise ValueError(f"{table.path} has no column {name!r}; it has {listed(names, 50)}")


def _table(table: Table, plan: Plan, how: _How) -> Dataset:
    """The samples of a table: one pass learns its encoding, a second one encodes unless the rows were kept."""
    survey = Survey(table, plan)
    held = _learned(survey, how)
    while misread := survey.misread():
        survey.again(misread)
        held = _learned(survey, how)
    made = _encoded(survey, how, survey.encoding(), held)
    return replace(made, target=table.names[plan.target], guess=survey.guess)


def _encoded(survey: Survey, how: _How, encoding: Encoding, held: deque[Block] | None) -> Dataset:
    from torchperc.data.dataset import Dataset  # which needs torch; most files are refused before

    table, plan = survey.table, survey.plan
    _check_width(table.path, encoding.width, encoding.labels, how.max_features)
    encoder = Encoder(encoding, plan.features, plan.target, table.path)
    y = np.empty(survey.rows, np.int64 if encoding.labels else np.float64)
    gaps = [np.empty((0, 2), np.int64)]
    first, sparse = 0, bool(encoding.texts)

    def written(block: Block, out: Any = None) -> Any:
        nonlocal first
        out, found = encoder.sparse(block) if sparse else (out, encoder.write(block, out))
        gaps.append(found + np.array([first, 0]))
        y[first : first + block.count] = encoder.labels(block)
        first += block.count
        return out

    def second_pass() -> Iterator[Any]:
        for given in table.blocks(encoder.words):
            block = given.kept(kept(given, plan.missing)[0])
            encoder.check(block)  # only a file that has changed meanwhile can fail here
            how.source.check(first + block.count <= survey.rows)
            if not sparse:
                yield _narrow(written(block, np.empty((block.count, encoding.width))), how.dtype, encoder)
            elif block.count:
                yield small_indices(written(block))
        how.source.check(first == survey.rows)  # before what is written has a name

    if held is None:
        with Cache(how.cache) as store:
            shape = survey.rows, encoding.width
            X = store.sparse(second_pass()) if sparse else store.dense(second_pass(), shape, how.dtype)
    elif sparse:
        X = stacked([written(held.popleft()) for _ in range(len(held))])
    else:
        X = np.empty((survey.rows, encoding.width))
        while held:
            block = held.popleft()
            written(block, X[first : first + block.count])
        X = torch.from_numpy(X)
    filled = torch.from_numpy(np.concatenate(gaps)) if plan.missing == "mean" else None
    about: dict[str, Any] = {"name": table.path.name, "encoding": encoding, "gaps": filled, "dropped": survey.dropped}
    how.source.check()
    return Dataset(X, torch.from_numpy(y), encoding.labels, encoding.names, **about)


def _learned(survey: Survey, how: _How) -> deque[Block] | None:
    """Let a survey learn from its table, and keep the rows if they take no more bytes than there is room for."""
    held: deque[Block] | None = deque() if survey.table.size() <= how.room else None
    size = 0
    for block in survey.learn(survey.table.blocks(survey.words)):
        cells = block.columns.values()
        size += sum(c.values.nbytes if isinstance(c, Numbers) else c.nbytes for c in cells)
        if size > how.room:  # the first lines promised less
            held = None
        if held is not None:
            held.append(block_of(block.count, block.columns))  # without the text it comes from
    return held


def _narrow(rows: Array, dtype: str, encoder: Encoder) -> Array:
    if dtype == "float64":
        return rows
    with np.errstate(over="ignore"):
        result = rows.astype(dtype)
    if not np.isfinite(result).all():
        row, feature = np.argwhere(~np.isfinite(result))[0]
        cell = f"{rows[row, feature]:g} in {encoder.encoding.names[feature]!r}"
        raise ValueError(f"{encoder.path}: {cell} is too large for float32; use dtype=float64")
    return result


class _Seen(NamedTuple):
    """What is known of svmlight files after they are read once: labels, indices, rows, and the rows themselves."""

    labels: dict[str, int]
    lowest: int
    highest: int
    rows: int
    held: list[SparseBlock] | None


def _sparse(forms: Sequence[Form], missing: str, how: _How) -> Dataset:
    path, real = how.paths[0].with_name(title(how.paths)), how.task == "regression"
    files = [SvmlightFile(each, form, real) for each, form in zip(how.paths, forms, strict=True)]
    for file in files:
        if not file.labelled:
            why = "has no labels: its lines begin with index:value; a line is: label index:value …"
            raise ValueError(f"{file.path} {why}")
    seen = _scanned(files, path, how)
    if not seen.rows:
        raise ValueError(f"{path} has no samples in it")
    if seen.highest < seen.lowest:
        raise ValueError(f"{path} has no features in it: every line is a label alone")
    check_labels(str(path), seen.labels, seen.rows, how.task, last=True)
    size, real = seen.highest - seen.lowest + 1, is_regression(how.task, seen.labels, seen.rows)
    labels = () if real else in_order(seen.labels)
    encoding = Encoding((), None, labels, missing, sparse=True, size=size, first=seen.lowest)
    made = _joined_samples(files, seen, path, encoding, how)
    return made if how.task else replace(made, guess=guessed(None, seen.labels, real))


def _scanned(files: Sequence[SvmlightFile], path: Path, how: _How) -> _Seen:
    seen: dict[str, int] = {}
    held: list[SparseBlock] | None = [] if sum(file.size() for file in files) <= how.room else None
    lowest, highest, rows, size = 1, 0, 0, 0
    for block in chain.from_iterable(file.blocks() for file in files):
        assert block.labels is not None
        if len(seen) <= LABELS or how.task == "classification":  # else a quantity, or refused below
            seen.update(dict.fromkeys(block.labels.levels, 1))
        if len(block.columns):
            lowest, highest = min(lowest, int(block.columns.min())), max(highest, int(block.columns.max()))
        rows, size = rows + block.rows, size + block.nbytes
        check_labels(str(path), seen, rows, how.task)
        if size > how.room:  # the first lines promised less
            held = None
        if held is not None:
            held.append(block._replace(line=lambda row: 0))  # without the text it comes from
    return _Seen(seen, lowest, highest, rows, held)


def _joined_samples(files: Sequence[SvmlightFile], seen: _Seen, path: Path, encoding: Encoding, how: _How) -> Dataset:
    from torchperc.data.dataset import Dataset

    labels = encoding.labels
    _check_width(path, encoding.size, labels, how.max_features)
    y: list[Array] = []

    def second_pass() -> Iterator[Any]:
        for block in chain.from_iterable(file.blocks() for file in files):
            if block.rows:
                y.append(targets(block.labels, labels))
                yield sparse_rows(block, encoding)
        how.source.check(seen.rows == sum(map(len, y)))  # before what is written has a name

    if seen.held is None:
        with Cache(how.cache) as store:
            X: Any = store.sparse(second_pass())
    else:
        y += [targets(block.labels, labels) for block in seen.held]
        X = _joined(seen.held, encoding)
    codes = torch.from_numpy(np.concatenate(y))
    how.source.check()
    return Dataset(X, codes, labels, encoding.names, name=path.name, encoding=encoding)


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


_PAIRS = (("X", "y"), ("data", "target"), ("x", "y"), ("arr_0", "arr_1"))
_CSR = {"data", "indices", "indptr", "shape"}


def _archive(path: Path, target: str | None, how: _How) -> Dataset:
    """Arrays X and y of an ``.npz`` file; X may be the parts of a CSR array."""
    from torchperc.data.dataset import Dataset

    X, y, name, held = load_archive(path, target)
    _check_width(path, X.shape[1], (), how.max_features)
    if y is None:
        raise ValueError(
            f"{path} has no labels: it holds {held} and no array {name!r}; add a label per row: "
            f"np.savez(path, X=X, y=y), or for sparse X np.savez(path, data=X.data, indices=X.indices, "
            f"indptr=X.indptr, shape=X.shape, y=y)"
        )
    different = [word(str(value)) for value in np.unique(y).tolist()] if how.task is None else []
    real = is_regression(how.task, different, len(y))
    try:
        numbers, task = [str(j + 1) for j in range(X.shape[1])], TASKS[real]
        made = Dataset.of(X, y, names=numbers, name=path.name, task=task, target=name)
    except (ValueError, TypeError) as error:
        raise ValueError(f"{path}: {error}") from None
    made = replace(made, guess="" if how.task else guessed(name, different, real))
    _check_width(path, X.shape[1], made.labels, how.max_features)
    if is_sparse(made.X):
        encoding = Encoding((), None, made.labels, sparse=True, size=X.shape[1])
    else:
        encoding = Encoding(tuple(map(Column, made.names)), None, made.labels, positions=X.shape[1])
    return replace(made, encoding=encoding)


def load_archive(path: Path, target: str | None = None) -> tuple[Any, Array | None, str, str]:
    """Features and labels of an ``.npz`` file, the name of the labels, and the names of all arrays.

    Python objects among the arrays are an error, never run.
    """
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
    except (MemoryError, ValueError, zipfile.BadZipFile, EOFError, KeyError, NotImplementedError) as error:
        raise ValueError(f"{path} is not a complete archive of arrays of numbers ({error}); write it again") from None
    except OSError as error:
        raise unreadable(path, error) from None
    X, name = next(((arrays[a], b) for a, b in _PAIRS if a in arrays), (None, "y"))
    if set(arrays) >= _CSR:
        X, name = _csr(path, arrays), "y"
    elif X is None or X.ndim != 2 or X.dtype.kind not in "biuf":
        found = ", ".join(f"{name} {array.shape} {array.dtype}" for name, array in arrays.items())
        raise ValueError(f"{path} holds {found or 'nothing'}; a matrix of numbers X is needed, and labels y")
    name = target or name
    y = arrays.get(name)
    if y is not None and (y.ndim != 1 or len(y) != X.shape[0]):
        raise ValueError(f"{path}: {name} has shape {y.shape} for {X.shape[0]} samples; give one label per sample")
    return X, y, name, ", ".join(arrays)


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
        raise ValueError(f"{path} holds no complete sparse matrix: {error}") from None
    return csr_array(X)
