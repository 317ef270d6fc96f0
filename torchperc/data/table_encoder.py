"""Columns of a table as features: numbers, categories as one-hot, dates as days, text as words; and back to labels."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import lazy_loader
import numpy as np

from torchperc._checks import Data, Option, ParameterError
from torchperc.data.table_files import TASKS as TASKS
from torchperc.data.table_files import (
    Array,
    Cells,
    ReadOptions,
    Table,
    TableBatch,
    Words,
    frame_table,
    is_number,
    listed,
    missing_in,
    rows_table,
    shortest,
    word,
)
from torchperc.data.table_files import is_finite as is_finite
from torchperc.data.text_features import PROSE, Counts, Vocabulary, word_count

torch: Any = lazy_loader.load("torch")

LEVELS = 1000  # levels above which a column of words is an identifier, unless it is named as a category
FEW = 50  # levels that are never too many, however few rows there are
TEXTS = 20  # levels above which a column of long values may be text
MAX_LABELS = 2**16  # maximum number of classes
_TYPOS = 0.05  # fraction of words in a column of numbers up to which they look like typos
_COMMA = re.compile(r"[+-]?\d+,\d+")
_DATE = re.compile(r"\d{1,4}([-./])\d{1,2}\1\d{1,4}([ T].*)?")
_DATE_ORDERS = ("Y-M-D", "Y/M/D", "D.M.Y", "D/M/Y", "M/D/Y")
_DIGITS = {"Y": r"(?P<Y>\d{4})", "M": r"(?P<M>\d{1,2})", "D": r"(?P<D>\d{1,2})"}
_TIME = r"(?:[ T](?P<time>\d{2}:\d{2}(?::\d{2}(?:\.\d+)?)?)Z?)?"
_DROP, _MEAN = Option("missing", "drop"), Option("missing", "mean")


# --- labels -------------------------------------------------------------------------------------------------------


def in_order(words: Iterable[str]) -> tuple[str, ...]:
    """Words as labels are sorted: numbers first, by their size."""
    return tuple(sorted(words, key=lambda text: (False, float(text), text) if is_number(text) else (True, 0.0, text)))


def codes_of(labels: Sequence[str]) -> dict[str, int]:
    """−1/+1 for two labels, 0 … K−1 for K."""
    return {label: 2 * k - 1 if len(labels) == 2 else k for k, label in enumerate(labels)}


def is_quantity(labels: Collection[str], rows: int) -> bool:
    """Whether the different values of a target are a quantity rather than classes.

    They are if all of them are finite numbers, and there are more than 10, and more than half as many as rows; or more
    than 20, and some are not integers; or more than 50 integers, with gaps between them and fewer than five rows for
    each on average; or more than 65,536.

    Example:
        >>> is_quantity(["0.5", "1", "2.25"], rows=100), is_quantity([str(k / 8) for k in range(30)], rows=100)
        (False, True)
    """
    values = [float(text) for text in labels if is_finite(text)]
    count = len(values)
    if count < len(labels) or count <= 10:
        return False
    if 2 * count > rows or count > MAX_LABELS:
        return True
    if not all(value.is_integer() for value in values):
        return count > 20
    return count > 50 and rows < 5 * count and max(values) - min(values) >= count


def inferred_task(target: str | None, labels: Collection[str], quantity: bool) -> str:
    """The task that was inferred, in words; empty where there is no doubt."""
    if not quantity and (len(labels) <= 20 or not all(map(is_number, labels))):
        return ""
    named, more = "the target" if target is None else f"target {target!r}", "more than " * (len(labels) > MAX_LABELS)
    return f"{named} has {more}{min(len(labels), MAX_LABELS):,} different numbers: {TASKS[quantity]}"


def check_classes(where: str, labels: Collection[str], rows: int, task: str | None) -> None:
    """Refuse labels of which there is one alone, or which occur once each and so are no classes."""
    if len(labels) < 2:
        found = next(iter(labels))
        if task == "regression":
            raise ValueError(f"{where} is {found} in every row; there is nothing to predict, so name another target")
        raise ValueError(f"{where} has one label only: {found!r}; at least two classes are required")
    many = len(labels) > (FEW if task is None else MAX_LABELS) and 2 * len(labels) > rows
    if many and task != "regression" and not (task is None and is_quantity(labels, rows)):
        found = f"has {len(labels)} different labels in {rows} rows"
        raise ValueError(f"{where} {found}; it looks like a quantity or an identifier: name classes as the target")


def similar_labels(labels: Sequence[str]) -> str:
    """A sentence on labels that differ in case, blanks or one letter; empty if none do.

    Example:
        >>> similar_labels(("No", "no", "yes", "yess", "type1", "type2"))
        "labels that may be the same: 'No' and 'no', 'yes' and 'yess'"
    """

    def alike(one: str, two: str) -> bool:
        one, two = ("".join(text.casefold().split()) for text in (one, two))
        start = next((k for k, (a, b) in enumerate(zip(one, two, strict=False)) if a != b), min(len(one), len(two)))
        rests = (one[start + 1 :], two[start + 1 :]), (one[start:], two[start + 1 :]), (one[start + 1 :], two[start:])
        other = one[start : start + 1] + two[start : start + 1]
        return one == two or (max(len(one), len(two)) > 3 and other.isalpha() and any(a == b for a, b in rests))

    words = [label for label in labels[:FEW] if not is_number(label)]
    pairs = [f"{one!r} and {two!r}" for one, two in combinations(words, 2) if alike(one, two)]
    return f"labels that may be the same: {', '.join(pairs)}" if pairs else ""


# --- columns ------------------------------------------------------------------------------------------------------


def date_parts(texts: Sequence[str], order: str) -> dict[str, Array]:
    """Numbers of dates: days since 1970, year, month and weekday (1 is Monday); NaN for what is no date.

    Args:
        texts: dates, maybe with a time.
        order: of year, month and day, such as ``"D.M.Y"``.
    """
    pattern = re.compile("".join(_DIGITS.get(sign, re.escape(sign)) for sign in order) + _TIME)
    dates = np.full(len(texts), np.datetime64("NaT"), "datetime64[s]")
    for number, match in enumerate(map(pattern.fullmatch, texts)):
        if match is not None:
            day = f"{match['Y']}-{match['M']:>02}-{match['D']:>02}"
            with suppress(ValueError):  # no day of any calendar
                dates[number] = np.datetime64(f"{day}T{match['time'] or '00:00:00'}", "s")
    parts = {
        "days": dates.astype(np.int64) / 86400,
        "year": dates.astype("datetime64[Y]").astype(np.int64) + 1970.0,
        "month": dates.astype("datetime64[M]").astype(np.int64) % 12 + 1.0,
        "weekday": (dates.astype("datetime64[D]").astype(np.int64) + 3) % 7 + 1.0,
    }
    return {name: np.where(np.isnat(dates), np.nan, values) for name, values in parts.items()}


def date_orders(texts: Collection[str]) -> list[str]:
    """The orders of day, month and year in which all of some texts are dates."""
    if not texts or not all(map(_DATE.fullmatch, texts)):
        return []
    return [order for order in _DATE_ORDERS if not np.isnan(date_parts(list(texts), order)["days"]).any()]


@dataclass(frozen=True)
class Column:
    """A column of a table: a number, a category, text, or a date.

    Args:
        name: as in the header, or the position from 1 in a table without one.
        levels: of a category, in the order of its features; ``None`` for others.
        vocabulary: of text; ``None`` for others.
        date: the order of year, month and day as they are written, such as ``"D.M.Y"``, then the features it becomes
            (``"days"``, ``"year"``, ``"month"``, ``"weekday"``); ``None`` for others.

    Example:
        >>> Column("colour", ("green", "red")).features
        ('colour=green', 'colour=red')
        >>> Column("born", date=("Y-M-D", "days", "month")).features
        ('born (days)', 'born (month)')
    """

    name: str
    levels: tuple[str, ...] | None = None
    vocabulary: Vocabulary | None = None
    date: tuple[str, ...] | None = None

    @property
    def features(self) -> tuple[str, ...]:
        """The names of the features it becomes."""
        if self.vocabulary is not None:
            return tuple(f"{self.name}: {word}" for word in self.vocabulary.words)
        if self.date is not None:
            return tuple(f"{self.name} ({part})" for part in self.date[1:])
        return (self.name,) if self.levels is None else tuple(f"{self.name}={level}" for level in self.levels)

    @property
    def kind(self) -> str:
        """What a file is asked for: "number", or "words"."""
        return "number" if self.levels is None and self.vocabulary is None and self.date is None else "words"

    def values(self, words: Sequence[str]) -> Any:
        """The features (N, k) of some words, NaN where a word is unknown; of text a CSR array."""
        if self.vocabulary is not None:
            return self.vocabulary.features(words)
        if self.date is not None:
            parts = date_parts(words, self.date[0])
            return np.stack([parts[part] for part in self.date[1:]], 1)
        if self.levels is None:
            return np.array([[float(word) if is_finite(word) else math.nan] for word in words])
        known = {level: k for k, level in enumerate(self.levels)}
        at = np.array([known.get(word, -1) for word in words])[:, None]
        return np.where(at < 0, math.nan, at == np.arange(len(known)))

    def encode(self, cells: Cells) -> tuple[Any, Array]:
        """The features (N, k) of some rows, and which rows have a value that is not known."""
        if not isinstance(cells, Words):
            return cells[:, None], np.isinf(cells)
        values = self.values((*cells.levels, ""))[cells.codes]
        known = np.ones(len(cells.codes), bool) if self.vocabulary is not None else ~np.isnan(values[:, 0])
        return values, ~known & (cells.codes >= 0)


@dataclass(frozen=True)
class TableEncoder:
    """How the columns of a table become features, learned from one file and used for the next.

    A number stays what it is. A category with K levels becomes K features of 0 and 1. A date becomes the number of its
    days since 1970 and, where they vary, its year, month and weekday. Text becomes the features of its vocabulary, and
    samples with text are sparse. svmlight files have numbered features and no columns.

    Args:
        columns: of the features, in the order of the file, without the target.
        target: the name of the target, if the file has one.
        labels: in the order of their codes; none if the target is a quantity.
        missing: what was done about missing values: ``"error"``, ``"drop"`` or ``"mean"``.
        imputed_values: with ``"mean"``, what a missing value becomes, one number per feature.
        n_columns: how many columns the file had, where they have no names and go by position; ``None``: by name.
        indices: of numbered features, the number of the first (0 or 1) and how many there are.
        options: how the file was read.

    Example:
        >>> encoder = TableEncoder((Column("age"), Column("colour", ("green", "red"))), "label", ("no", "yes"))
        >>> encoder.feature_names, encoder.n_features
        (('age', 'colour=green', 'colour=red'), 3)
        >>> encoder.transform([{"age": 30, "colour": "red"}]).tolist()
        [[30.0, 0.0, 1.0]]
        >>> TableEncoder.from_json(encoder.to_json()) == encoder
        True
    """

    columns: tuple[Column, ...]
    target: str | None
    labels: tuple[str, ...]
    missing: str = "error"
    imputed_values: tuple[float, ...] | None = None
    n_columns: int | None = None
    indices: tuple[int, int] | None = None
    options: ReadOptions = field(default_factory=ReadOptions)

    def __post_init__(self) -> None:
        names = [column.name for column in self.columns] + ([] if self.target is None else [self.target])
        if len(set(names)) < len(names):
            raise ValueError(f"column names must be unique, found {max(names, key=names.count)!r} more than once")
        values = self.imputed_values
        if values is not None and (len(values) != self.n_features or not all(map(math.isfinite, values))):
            raise ValueError(f"imputed_values must be {self.n_features} finite numbers, found {len(values)}")

    @property
    def feature_names(self) -> tuple[str, ...]:
        """``age``, ``colour=green``, ``colour=red``; of svmlight, numbers."""
        if self.indices is not None:
            return tuple(map(str, range(self.indices[0], sum(self.indices))))
        return tuple(name for column in self.columns for name in column.features)

    @property
    def n_features(self) -> int:
        """The number of features."""
        return self.indices[1] if self.indices is not None else self._slices[-1].stop

    @cached_property
    def _slices(self) -> list[slice]:
        """The features of each column."""
        ends = np.cumsum([0, *(len(column.features) for column in self.columns)]).tolist()
        return [slice(*pair) for pair in pairwise(ends)]

    @property
    def text_columns(self) -> tuple[str, ...]:
        """The names of the columns of text; samples are sparse if there are any."""
        return tuple(column.name for column in self.columns if column.vocabulary is not None)

    def wanted(self, positions: Sequence[int], target: int | None = None) -> dict[int, str]:
        """How columns at some positions of a file are to be read."""
        kinds = {j: column.kind for j, column in zip(positions, self.columns, strict=True)}
        return kinds if target is None else kinds | {target: "words" if self.labels else "number"}

    def encode(
        self, table: Table, batch: TableBatch, positions: Sequence[int], out: Any = None, unknown: str = "error"
    ) -> tuple[Any, Array]:
        """Features of some rows, and row and feature (M, 2) of the missing values among them.

        The columns are at ``positions`` of the table; dense features are written to ``out`` if it is given. The first
        value that the encoder does not know is an error that names its place, unless ``unknown="ignore"``.
        """
        means, wrong, blocks, missing = self.imputed_values, False, [], [np.empty((0, 2), np.int64)]
        out = np.empty((batch.n_rows, self.n_features)) if out is None and not self.text_columns else out
        for column, position, those in zip(self.columns, positions, self._slices, strict=True):
            block, bad = column.encode(batch.columns[position])
            if column.levels is not None and unknown == "ignore":
                block[bad] = 0
            else:
                wrong |= bool(bad.any())
            absent = np.flatnonzero(missing_in(batch.columns[position]))
            if len(absent) and means is None:
                wrong = True
            elif len(absent) and means is not None and column.vocabulary is None:
                missing.append(np.stack(np.meshgrid(absent, np.r_[those], indexing="ij"), -1).reshape(-1, 2))
                block = np.array(block)
                block[absent] = means[those]
            if out is None:
                blocks.append(block)
            else:
                out[:, those] = block
        if wrong:
            raise self._first_unknown(table, positions, unknown)
        found = np.concatenate(missing)
        found = found[np.lexsort((found[:, 1], found[:, 0]))]
        if out is not None:
            return out, found
        from scipy.sparse import csr_array, hstack

        return csr_array(hstack([csr_array(block) for block in blocks], format="csr")), found

    def _first_unknown(self, table: Table, positions: Sequence[int], unknown: str) -> ValueError:
        """The error for the first cell of a table that cannot be encoded."""
        columns = dict(zip(positions, self.columns, strict=True))

        def is_wrong(position: int, cell: str) -> bool:
            column = columns[position]
            if not cell or column.vocabulary is not None or (column.levels is not None and unknown == "ignore"):
                return not cell and self.imputed_values is None
            return bool(np.isnan(column.values([word(cell)])).any())

        at, cell, position = table.locate(positions, is_wrong)
        column = columns[position]
        if not table.plain(cell):
            return ParameterError(f"{at}the value is missing; fill it in, or train with ", _MEAN, ", which imputes it")
        if column.levels is not None:
            said = f"{at}{cell!r} did not occur in training; known are {listed(column.levels)}"
            ignore = Option("unknown", "ignore")
            return ParameterError(said, ": correct it, or accept unknown levels with ", ignore, " of apply")
        what = "a finite number" if is_number(cell) else "a number" if column.date is None else "a date"
        return ValueError(f"{at}{cell!r} is not {what}, as it was in training; correct it")

    def targets(self, cells: Any) -> Array:
        """Codes of labels, −1/+1 for two, 0 … K−1 for K; without labels the numbers."""
        if not isinstance(cells, Words):
            return cells  # type: ignore[no-any-return]
        if not self.labels:
            return cells.look_up([*map(float, cells.levels)], math.nan)
        codes = codes_of(self.labels)
        return cells.look_up([codes.get(level, 0) for level in cells.levels], 0)

    def transform(self, X: Any, unknown: str = "error") -> Any:
        """Features (N, d) of a data frame or a list of dicts, columns found by name: a tensor, with text a CSR array.

        ``None`` and NaN are missing values; columns that training did not have are ignored.
        """
        if self.indices is not None:
            raise TypeError("X has named columns, but training had numbered features; pass a sparse matrix")
        table = rows_table(X, [each.name for each in self.columns]) if isinstance(X, list) else frame_table(X)
        positions, _ = self.find_columns(table)
        made, _ = self.encode(table, next(table.batches(self.wanted(positions))), positions, unknown=unknown)
        return as_samples(made)

    def find_columns(self, table: Table) -> tuple[list[int], int | None]:
        """Positions of the columns, and of the target if it is there: by name, or as in training if it had none."""
        table.na = tuple(self.options.na)
        wanted, names, count = [column.name for column in self.columns], table.names, self.n_columns
        if count is not None:
            positions, name = [int(name) - 1 for name in wanted], self.target
            target = None if name is None else int(name) - 1 if name.isdigit() else count - 1  # behind X in an archive
            if len(names) == count:
                return positions, target
            if target is not None and len(names) + 1 == count:
                return [j - (j > target) for j in positions], None
            without = "" if target is None else f", or {count - 1} without that of the labels"
            why = f"has {len(names)} columns where training had {count}{without}; columns without names go by position"
            raise ValueError(f"{table.path} {why}")
        if not table.named:
            why = f"has no names of columns, but they go by name: {listed(wanted)}; give it a header with them"
            raise ValueError(f"{table.path} {why}")
        lost = [name for name in wanted if name not in names]
        if lost:
            lacks = f"has no column{'s' * (len(lost) > 1)} {listed(lost)}, which training had"
            raise ValueError(f"{table.path} {lacks}; it has {listed(names)}")
        there = [self.target] if self.target in names else []
        for name in (*wanted, *there):
            if names.count(name) > 1:
                raise ValueError(f"{table.path} has {names.count(name)} columns {name!r}; which one is meant?")
        return [names.index(name) for name in wanted], names.index(there[0]) if there else None

    def impute(self, X: Data) -> Any:
        """Dense features (N, d) with ``imputed_values`` in the place of NaN; without them NaN is an error."""
        given = torch.as_tensor(X, dtype=torch.float64)
        absent = given.isnan()
        if not absent.any():
            return given
        if self.imputed_values is None:
            row, feature = absent.nonzero()[0].tolist()
            at = f"X[{row}, {feature}] ({self.feature_names[feature]!r}) is missing; fill it in, or train with "
            raise ParameterError(at, _MEAN)
        return torch.where(absent, torch.tensor(self.imputed_values, dtype=torch.float64), given)

    def with_imputed_values(self, means: Data) -> TableEncoder:
        """The same with other numbers (d,) for missing values, such as the means over the training set.

        A missing text has no words, so these features stay 0.
        """
        values = np.array(means, np.float64).reshape(-1)
        for column, those in zip(self.columns, self._slices, strict=True):
            if column.vocabulary is not None:
                values[those] = 0
        return replace(self, imputed_values=tuple(values.tolist()))

    def to_json(self) -> dict[str, Any]:
        """Everything about it as plain types; :meth:`from_json` is the inverse."""
        state = asdict(self)
        columns = [{name: value for name, value in column.items() if value is not None} for column in state["columns"]]
        return {**state, "columns": columns, "options": self.options.to_json()}

    @classmethod
    def from_json(cls, state: Mapping[str, Any]) -> TableEncoder:
        """The inverse of :meth:`to_json`, also by way of a JSON file; anything else is a ``ValueError``."""

        def plain(values: Mapping[str, Any], **made: Any) -> dict[str, Any]:
            return {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()} | made

        try:
            columns = []
            for each in state["columns"]:
                words = {"vocabulary": Vocabulary(**plain(each["vocabulary"]))} if "vocabulary" in each else {}
                columns.append(Column(**plain(each, **words)))
            return cls(**plain(state, columns=tuple(columns), options=ReadOptions(**state["options"])))
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"an encoder must be what to_json() returned: {error!r}") from None


def as_samples(X: Any) -> Any:
    """A matrix as a tensor, a CSR array with indices of 32 bits if they fit, as scikit-learn needs them."""
    if isinstance(X, np.ndarray):
        return torch.from_numpy(X)
    if X.indices.dtype == X.indptr.dtype == np.int32 or max(X.nnz, *X.shape) > np.iinfo(np.int32).max:
        return X
    return type(X)((X.data, X.indices.astype(np.int32), X.indptr.astype(np.int32)), shape=X.shape)


# --- learning what columns are ------------------------------------------------------------------------------------


@dataclass
class _Seen:
    """What has been seen of one column."""

    most: float = LEVELS  # levels that are counted
    numbers: int = 0
    others: int = 0  # values that are no finite numbers
    missing: int = 0
    levels: Counter[str] = field(default_factory=Counter)  # of numbers, the smallest and the largest of each batch
    total: Any = 0.0  # of the numbers, in the widest type, so that those of huge ones do not overflow
    words: int = 0  # in all values together
    counts: Counts | None = None  # of a column of text, whose levels are forgotten
    counting: float | None = math.nan  # the last number, if the column counts the rows

    def add_numbers(self, cells: Array, summed: bool, ends: bool) -> None:
        """Learn from numbers: their sum if that is needed, and their ends."""
        missing, infinite = int(np.count_nonzero(np.isnan(cells))), int(np.count_nonzero(np.isinf(cells)))
        self.missing, self.others = self.missing + missing, self.others + infinite
        self.numbers += len(cells) - missing - infinite
        if summed:
            self.total += np.nansum(cells, dtype=np.longdouble)
        if ends and missing < len(cells):
            self.levels.update(map(shortest, (float(np.nanmin(cells)), float(np.nanmax(cells)))))
        if self.counting is not None and len(cells):
            before = cells[0] - 1 if math.isnan(self.counting) and cells[0] in (0, 1) else self.counting
            self.counting = float(cells[-1]) if (np.diff(cells, prepend=before) == 1).all() else None

    def add_words(self, cells: Words) -> None:
        """Learn from words, of which some are numbers."""
        counts = np.bincount(cells.codes + 1, minlength=len(cells.levels) + 1).tolist()
        found = {level: count for level, count in zip(cells.levels, counts[1:], strict=True) if count}
        numbers = sum(count for level, count in found.items() if is_finite(level))
        self.missing, self.numbers = self.missing + counts[0], self.numbers + numbers
        self.others += sum(found.values()) - numbers
        if len(self.levels) <= self.most or all(map(_DATE.fullmatch, found)):
            self.levels.update(found)
        self.words += sum(count * word_count(level) for level, count in found.items())

    def read_as_text(self) -> Counts:
        """Count n-grams from now on, those of the levels so far included."""
        self.counts = self.counts or Counts()
        self.counts.add(self.levels)
        self.levels = Counter()
        return self.counts


class Fit:
    """What the rows of files say: the encoder, and what a reader of the results should know."""

    path: Path
    encoder: TableEncoder
    rows = 0
    dropped = 0  # rows with missing values
    notes: tuple[str, ...] = ()  # what was recognised
    inferred_task = ""

    def _infer_task(self, where: str, target: str | None, labels: Collection[str], task: str | None) -> tuple[str, ...]:
        """The labels in order, none if the target is a quantity: as was said, or else by its values."""
        check_classes(where, labels, self.rows, task)
        quantity = is_quantity(labels, self.rows) if task is None else task == "regression"
        self.inferred_task = "" if task else inferred_task(target, labels, quantity)
        return () if quantity else in_order(labels)


class TableFit(Fit):
    """What the rows of a table say about its columns; ``keep`` gets the rows that count, ``None`` to begin again."""

    def __init__(self, table: Table, target: Any, options: ReadOptions, keep: Callable[[Any], None]) -> None:
        self.table, self.path, self.options, table.na = table, table.path, options, tuple(options.na)
        self._choose_columns(None if target is None else str(target))
        words = table.words | self.categories | self.text
        self.wanted = {j: "words" if j in words else "number" for j in self.features}
        self.wanted[self.target] = "number" if options.task == "regression" else "words"
        while not self._read(keep):
            pass
        self._problems: list[tuple[str, tuple[str | Option, ...], Option | None]] = []
        self.encoder = self._fitted()
        self.notes = tuple(self._notes())

    def _choose_columns(self, target: str | None) -> None:
        """Positions of target and features, and of what is named as categories and text."""
        names, path = self.table.names, self.path
        if len(names) < 2:
            raise ValueError(
                f"{path} has one column; a feature and a label are needed, in text separated by , ; | or tabs"
            )
        ignored, self.categories, self.text = (self._positions(name) for name in ("ignore", "categories", "text"))
        self.target = len(names) - 1 if target is None else self._position(target, "target")
        self.features = tuple(j for j in range(len(names)) if j != self.target and j not in ignored)
        if not self.features:
            raise ValueError(f"ignore leaves no feature of {path}; ignore less")
        named = {self.target: "the target"}
        for option, those in (("ignore", ignored), ("categories", self.categories), ("text", self.text)):
            for j in sorted(those):
                if named.setdefault(j, option) != option:
                    why = f" is {named[j]}" if j == self.target else f" is also in {named[j]}"
                    raise ParameterError(Option(option, names[j]), f"{why} of {path}; name a column once")
        for j in sorted((*self.features, self.target)):
            twice = names[j] in names[:j] and names.index(names[j]) not in ignored
            if twice or not names[j]:
                why = f"has the name {names[j]!r} of another" if twice else "has no name, as an index of pandas"
                remedy = "; rename it in the header, or ignore it with "
                raise ParameterError(f"{path}: column {j + 1} {why}{remedy}", Option("ignore", j + 1))

    def _positions(self, option: str) -> frozenset[int]:
        given = getattr(self.options, option)
        split = [part for name in given for part in ([name] if name in self.table.names else name.split(","))]
        return frozenset(self._position(name.strip(), option) for name in split)

    def _position(self, name: str, option: str) -> int:
        """Where a column is, from 0, by its name or its position from 1."""
        names = self.table.names
        if names.count(name) > 1:
            raise ValueError(f"{self.path} has {names.count(name)} columns {name!r}; name it by position from 1")
        if name in names:
            return names.index(name)
        if name.isascii() and name.isdigit() and 1 <= int(name) <= len(names):
            return int(name) - 1
        raise ParameterError(Option(option, name), f" is no column of {self.path}; it has {listed(names, 50)}")

    def _read(self, keep: Callable[[Any], None]) -> bool:
        """Learn from all rows; False as soon as a column of numbers turns out to have words."""
        named, labels = self.categories | self.text, math.inf if self.options.task else MAX_LABELS
        self.seen = {j: _Seen(math.inf if j in named else LEVELS) for j in self.features}
        self.seen[self.target] = _Seen(labels)
        self.rows = self.dropped = 0
        keep(None)
        for given in self.table.batches(self.wanted):
            words = [j for j, cells in given.columns.items() if isinstance(cells, Words)]
            if any(self.wanted[j] == "number" for j in words):
                self.wanted.update(dict.fromkeys(words, "words"))
                return False
            batch = given.without_missing() if self.options.missing == "drop" else given
            self.dropped += given.n_rows - batch.n_rows
            self.rows += batch.n_rows
            for j, cells in batch.columns.items():
                seen = self.seen[j]
                if isinstance(cells, Words):
                    seen.add_words(cells)
                    if j in self.text or seen.counts is not None or (len(seen.levels) > LEVELS and self._is_text(j)):
                        seen.read_as_text()
                else:
                    seen.add_numbers(cells, self.options.missing == "mean", j == self.target)
            keep(batch)
        return True

    def _is_words(self, j: int) -> bool:
        return j in self.categories or self.seen[j].numbers < self.seen[j].others

    def _is_text(self, j: int) -> bool:
        """Whether a column is free text: named as such, or its values are long and nearly all different."""
        seen = self.seen[j]
        if j in self.text or j in self.categories or j == self.target or not self._is_words(j):
            return j in self.text
        different = len(seen.levels)
        many = seen.counts is not None or different > LEVELS or (different > TEXTS and 2 * different > self.rows)
        return many and seen.words >= PROSE * (seen.numbers + seen.others)

    def _fitted(self) -> TableEncoder:
        """The encoder; all that is wrong with the table is one error."""
        names, options, target = self.table.names, self.options, self.seen[self.target]
        if not self.rows:
            every = f"a missing value in every one of its {self.dropped} rows"
            raise ValueError(f"{self.path} has {every if self.dropped else 'a header but no rows of data'}")
        self._check_missing()
        columns = tuple(filter(None, map(self._column, self.features)))
        if target.others and options.task != "classification":
            numbers = [label for label in target.levels if is_finite(label)]
            few = target.others <= _TYPOS * self.rows
            if options.task == "regression" or (few and is_quantity(numbers, self.rows)):
                what, comma = self._first_other(self.target)
                decimal = (", or say ", Option("decimal", ",")) if comma else ()
                classes = ", or learn the values as classes with ", Option("task", "classification")
                self._problem(what, "; correct it or drop the row", *decimal, *classes)
        if self._problems:
            raise self._all_problems()
        where, name = f"{self.path}, column {names[self.target]!r}", names[self.target]
        means = [self._means(j, column) for j, column in zip(self.features, columns, strict=True)]
        return TableEncoder(
            columns,
            name,
            self._infer_task(where, name, target.levels, options.task),
            options.missing,
            tuple(value for each in means for value in each) if options.missing == "mean" else None,
            n_columns=None if self.table.named else len(names),
            options=options.of_new_files(decimal="," if self.table.decimal == "," else None),
        )

    def _problem(self, what: str, *advice: str | Option, settled_by: Option | None = None) -> None:
        """Record something that only the user can decide: what it is, what to do, an option that settles it."""
        self._problems.append((what, advice, settled_by))

    def _all_problems(self) -> ParameterError:
        """One error that names all problems, and the options that settle them."""
        if len(self._problems) == 1:
            what, advice, _ = self._problems[0]
            return ParameterError(what, *advice)
        settled = dict[str, list[object]]()
        for *_, option in self._problems:
            if option is not None:
                settled.setdefault(option.name, []).append(option.value)
        said = f"{len(self._problems)} problems: {'; '.join(what for what, *_ in self._problems)}; correct them"
        remedy = [Option(name, values[0] if name == "missing" else values) for name, values in settled.items()]
        return ParameterError(said, ", or use" * bool(remedy), *(part for option in remedy for part in (" ", option)))

    def _check_missing(self) -> None:
        """Record the first missing value that is not to be imputed."""
        wanted = [*(self.features if self.options.missing == "error" else ()), self.target]
        if not any(self.seen[j].missing for j in wanted):
            return
        at, cell, j = self.table.locate(sorted(wanted), lambda _, cell: not cell)
        written = f", written {cell!r}" if cell.strip() else ""
        if j == self.target:
            what = f"{at}the {'target' if self.options.task == 'regression' else 'label'} is missing{written}"
            self._problem(what, "; fill it in, or drop such rows with ", _DROP, settled_by=_DROP)
        else:
            some = sum(self.seen[j].missing for j in self.features)
            what = f"{at}the value is missing{written}{f' (in all: {self._missing_counts()})' * (some > 1)}"
            advice = "; correct it, or say what to do about such rows: ", _DROP, " drops them, ", _MEAN
            self._problem(what, *advice, " imputes means", settled_by=_MEAN)

    def _missing_counts(self) -> str:
        """How many values are missing in which columns."""
        counts = {self.table.names[j]: self.seen[j].missing for j in self.features}
        return ", ".join(f"{count:,} in {name!r}" for name, count in counts.items() if count)

    def _column(self, j: int) -> Column | None:
        """What a column is; ``None``, and a problem, if that cannot be said."""
        seen, name = self.seen[j], self.table.names[j]
        where, ignored = f"{self.path}, column {name!r} ", Option("ignore", name)
        orders = date_orders(seen.levels) if j not in self.categories else []
        different = len(seen.levels) if seen.counts is None else LEVELS + 1
        commas = sum(_COMMA.fullmatch(level) is not None for level in seen.levels)
        if not seen.numbers + seen.others:
            self._problem(f"{where}has no values at all", "; ignore it (", ignored, ")", settled_by=ignored)
        elif self._is_text(j) and not seen.others:
            self._problem(f"{where}holds numbers, no text", "; leave out ", Option("text", name))
        elif self._is_text(j):
            return Column(name, vocabulary=seen.read_as_text().vocabulary())
        elif len(orders) == 1:
            parts = date_parts(list(seen.levels), orders[0])
            vary = [part for part, values in parts.items() if values.min() < values.max()]
            return Column(name, date=(orders[0], *(vary or ["days"])))
        elif orders:
            advice = "; write 2024-01-31, or ignore it (", ignored, ")"
            self._problem(f"{where}has dates with the day or the month first", *advice, settled_by=ignored)
        elif j in self.categories:
            return Column(name, in_order(seen.levels))
        elif not seen.others:
            return Column(name)
        elif self._is_words(j) and (different > LEVELS or (different > FEW and 2 * different > self.rows)):
            count = different if different <= LEVELS else f"more than {LEVELS}"
            shown = list(seen.levels)[:3] or [self.table.locate([j], lambda _, cell: bool(cell))[1]]
            some = ", ".join(repr(value if len(value) <= 60 else f"{value[:60]}…") for value in shown)
            what = f"{where}has {count} different values in {self.rows} rows, such as {some}"
            category = "), make every value a feature (", Option("categories", name)
            text = "), or, if it is free text, its words (", Option("text", name)
            what += "; it looks like an identifier"
            self._problem(what, ": ignore it (", ignored, *category, *text, ")", settled_by=ignored)
        elif self._is_words(j) and self.wanted[j] == "words" and 2 * commas < different:
            return Column(name, in_order(seen.levels))
        else:
            what, comma = self._first_other(j)
            levels, decimal = Option("categories", name), Option("decimal", ",")
            if comma:
                self._problem(what, "; if that is a decimal comma, say ", decimal, settled_by=decimal)
            elif seen.others <= _TYPOS * (seen.numbers + seen.others):
                self._problem(what, "; correct it or drop the row")
            else:
                self._problem(what, "; correct it, or make the column a category (", levels, ")", settled_by=levels)
        return None

    def _first_other(self, j: int) -> tuple[str, bool]:
        """Where a column has no finite number, and whether it has a decimal comma."""
        at, cell, _ = self.table.locate([j], lambda _, cell: bool(cell) and not is_finite(cell))
        return f"{at}{cell!r} is not a {'finite ' * is_number(cell)}number", bool(_COMMA.fullmatch(cell))

    def _means(self, j: int, column: Column) -> list[float]:
        """The mean of each feature of a column over the rows that have it; a missing text has no words."""
        seen = self.seen[j]
        if column.vocabulary is not None:
            return [0.0] * len(column.features)
        if column.levels is not None:
            return [seen.levels[level] / seen.levels.total() for level in column.levels]
        if column.date is not None:
            values, counts = column.values(list(seen.levels)), list(seen.levels.values())
            return np.average(values, 0, counts).tolist()  # type: ignore[no-any-return]
        return [float(seen.total / max(1, seen.numbers))]

    def _notes(self) -> Iterator[str]:
        """What was recognised, and what a reader of the results should know about the table."""
        yield from self.table.notes
        if self._missing_counts():
            yield f"missing values imputed: {self._missing_counts()}"
        for j, column in zip(self.features, self.encoder.columns, strict=True):
            name = f"column {column.name!r}"
            if column.date is not None:
                yield f"{name} is a date; its features are {', '.join(column.date[1:])} (days since 1970)"
            elif column.vocabulary is not None and j not in self.text:
                yield f"{name} is free text; its {len(column.features):,} words and pairs of words are features"
            elif column.kind == "number" and self.seen[j].counting is not None and self.rows > 2:
                yield f"{name} counts the rows; ignore it if it is an identifier"
            elif column.kind == "number" and j in self.table.zero_padded:
                yield f"{name} has numbers with leading zeros; make it a category if they are codes"
        if alike := similar_labels(self.encoder.labels):
            yield alike

    def batches(self) -> Iterator[TableBatch]:
        """The rows that count, read again."""
        again = self.table.batches(self.encoder.wanted(self.features, self.target))
        return map(TableBatch.without_missing, again) if self.options.missing == "drop" else again

    def encode(self, batch: TableBatch, out: Any = None) -> tuple[Any, Array, Array]:
        """Features of some rows, the positions of missing values among them, and targets."""
        made, missing = self.encoder.encode(self.table, batch, self.features, out)
        return made, missing, self.encoder.targets(batch.columns[self.target])
