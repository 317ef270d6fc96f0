"""Columns of a table as features: numbers, categories as one-hot, dates as days, text as words; and back to labels."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np

from torchperc._checks import Data, Option, ParameterError, check_choice
from torchperc.data.file_formats import MISSING, ReadOptions
from torchperc.data.file_formats import TASKS as TASKS
from torchperc.data.table_files import (
    Array,
    ArrowTable,
    FileTable,
    TableBatch,
    Words,
    first_infinite,
    is_number,
    listed,
    missing_in,
    shortest,
)
from torchperc.data.text_features import PROSE, Counts, Vocabulary, word_count

LEVELS = 1000  # levels above which a column of words is an identifier, unless it is named as a category
FEW = 50  # levels that are never too many, however few rows there are
TEXTS = 20  # levels above which a column of long values may be text
MAX_LABELS = 2**16  # maximum number of classes
_TYPOS = 0.05  # fraction of words in a column of numbers up to which they look like typos
_COMMA = re.compile(r"[+-]?\d+,\d+")
_DATE = re.compile(r"\d{1,4}([-./])\d{1,2}\1\d{1,4}([ T].*)?")
_DATE_ORDERS = ("Y-M-D", "Y/M/D", "D.M.Y", "D/M/Y", "M/D/Y")
_TIME = r"(?:[ T](?P<time>\d{2}:\d{2}(?::\d{2}(?:\.\d+)?)?)Z?)?"
_DROP, _MEAN = Option("missing", "drop"), Option("missing", "mean")


# --- words --------------------------------------------------------------------------------------------------------


def in_order(words: Iterable[str]) -> tuple[str, ...]:
    """Words as labels are sorted: numbers first, by their size."""
    return tuple(sorted(words, key=lambda text: (False, float(text), text) if is_number(text) else (True, 0.0, text)))


def codes_of(labels: Sequence[str]) -> dict[str, int]:
    """−1/+1 for two labels, 0 … K−1 for K."""
    return {label: 2 * k - 1 if len(labels) == 2 else k for k, label in enumerate(labels)}


def is_finite(text: str) -> bool:
    """Whether a text is a finite number."""
    return is_number(text) and math.isfinite(float(text))


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
    """The task that was inferred, in words; empty where there is no doubt.

    Example:
        >>> inferred_task("price", ["1.5"] * 187, True)
        "target 'price' has 187 different numbers: regression"
    """
    if not quantity and (len(labels) <= 20 or not all(map(is_number, labels))):
        return ""
    named, more = "the target" if target is None else f"target {target!r}", "more than " * (len(labels) > MAX_LABELS)
    return f"{named} has {more}{min(len(labels), MAX_LABELS):,} different numbers: {TASKS[quantity]}"


def check_classes(where: str, labels: Collection[str], rows: int, task: str | None, remedy: str) -> None:
    """Refuse labels of which there is one alone, or which occur once each and so are no classes."""
    if len(labels) < 2:
        found = next(iter(labels))
        if task == "regression":
            raise ValueError(f"{where} is {found} in every row; there is nothing to predict, so name another target")
        raise ValueError(f"{where} has one label only: {found!r}; at least two classes are required")
    many = len(labels) > (FEW if task is None else MAX_LABELS) and 2 * len(labels) > rows
    if many and task != "regression" and not (task is None and is_quantity(labels, rows)):
        found = f"has {len(labels)} different labels in {rows} rows"
        raise ValueError(f"{where} {found}; it looks like a quantity or an identifier: {remedy}")


def similar_labels(labels: Sequence[str]) -> str:
    """A sentence on labels that differ in case, blanks or one letter; empty if none do.

    Example:
        >>> similar_labels(("No", "no", "yes", "yess", "type1", "type2"))
        "labels that may be the same: 'No' and 'no', 'yes' and 'yess'"
    """

    def alike(one: str, two: str) -> bool:
        one, two = "".join(one.casefold().split()), "".join(two.casefold().split())
        start = next((k for k, (a, b) in enumerate(zip(one, two, strict=False)) if a != b), min(len(one), len(two)))
        rests = (one[start + 1 :], two[start + 1 :]), (one[start:], two[start + 1 :]), (one[start + 1 :], two[start:])
        other = one[start : start + 1] + two[start : start + 1]
        return one == two or (max(len(one), len(two)) > 3 and other.isalpha() and any(a == b for a, b in rests))

    words = [label for label in labels[:FEW] if not is_number(label)]
    pairs = [f"{one!r} and {two!r}" for one, two in combinations(words, 2) if alike(one, two)]
    return f"labels that may be the same: {', '.join(pairs)}" if pairs else ""


# --- columns ------------------------------------------------------------------------------------------------------


def parse_dates(texts: Sequence[str], order: str) -> Array:
    """Dates as ``datetime64[s]``, NaT for what is none; ``order`` is one such as ``"D.M.Y"``.

    Example:
        >>> parse_dates(["31.1.2024", "31.2.2024", "today"], "D.M.Y")
        array(['2024-01-31T00:00:00',                 'NaT',                 'NaT'],
              dtype='datetime64[s]')
    """
    digits = {"Y": r"(?P<Y>\d{4})", "M": r"(?P<M>\d{1,2})", "D": r"(?P<D>\d{1,2})"}
    pattern = re.compile("".join(digits.get(sign, re.escape(sign)) for sign in order) + _TIME)
    found = np.full(len(texts), np.datetime64("NaT"), "datetime64[s]")
    for number, text in enumerate(texts):
        match = pattern.fullmatch(text)
        if match is not None:
            try:
                day = f"{match['Y']}-{match['M']:>02}-{match['D']:>02}"
                found[number] = np.datetime64(f"{day}T{match['time'] or '00:00:00'}", "s")
            except ValueError:
                pass  # no day of any calendar
    return found


def date_orders(texts: Collection[str]) -> list[str]:
    """The orders of day, month and year in which all of some texts are dates."""
    if not texts or not all(map(_DATE.fullmatch, texts)):
        return []
    return [order for order in _DATE_ORDERS if not np.isnat(parse_dates(list(texts), order)).any()]


def _date_parts(dates: Array) -> dict[str, Array]:
    """Numbers of dates: days since 1970, year, month and weekday (1 is Monday); NaN where there is none."""
    day, month = dates.astype("datetime64[D]"), dates.astype("datetime64[M]")
    parts = {
        "days": dates.astype(np.int64) / 86400,
        "year": dates.astype("datetime64[Y]").astype(np.int64) + 1970.0,
        "month": month.astype(np.int64) % 12 + 1.0,
        "weekday": (day.astype(np.int64) + 3) % 7 + 1.0,
    }
    return {name: np.where(np.isnat(dates), np.nan, values) for name, values in parts.items()}


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

    def encode(self, cells: Any) -> tuple[Any, Array]:
        """The features (N, k) of some rows, of text a CSR array; and which rows have a value that is not known."""
        if isinstance(cells, Words):
            codes, levels = cells.codes, (*cells.levels, "")
        if self.vocabulary is not None:
            return self.vocabulary.features(levels)[codes], np.zeros(len(codes), bool)
        if self.date is not None:
            parts = _date_parts(parse_dates(levels, self.date[0]))
            values = np.stack([parts[part] for part in self.date[1:]], 1)[codes]
            return values, np.isnan(values[:, 0]) & (codes >= 0)
        if self.levels is not None:
            known = {level: k for k, level in enumerate(self.levels)}
            place = np.array([known.get(level, -1) for level in levels])[codes]
            block, rows = np.zeros((len(codes), len(known))), np.flatnonzero((place >= 0) & (codes >= 0))
            block[rows, place[rows]] = 1
            return block, (place < 0) & (codes >= 0)
        if isinstance(cells, Words):  # numbers as only Python reads them, or words among them
            values = np.array([float(level) if is_number(level) else math.inf for level in levels])[codes]
            cells = np.where(codes < 0, math.nan, values)
        return cells[:, None], np.isinf(cells) if first_infinite(cells) is not None else np.zeros(len(cells), bool)


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
        twice = [name for name, count in Counter(names).items() if count > 1]
        if twice:
            raise ValueError(f"column names must be unique, found {twice[0]!r} more than once")
        for column in self.columns:
            if column.levels is not None and not 0 < len(column.levels) == len(set(column.levels)):
                raise ValueError(f"column {column.name!r} has the levels {column.levels!r}; they must be different")
        if len(self.labels) == 1 or len(set(self.labels)) < len(self.labels):
            raise ValueError(f"labels={self.labels!r} must be at least two different names, or none for real targets")
        check_choice("missing", self.missing, MISSING)
        if bool(self.columns) == (self.indices is not None):
            raise ValueError(f"indices={self.indices} cannot be combined with {len(self.columns)} columns")
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
        return self.indices[1] if self.indices is not None else int(self._starts()[-1])

    def _starts(self) -> Array:
        """Where the features of each column begin, and where the last end."""
        return np.cumsum([0, *(len(column.features) for column in self.columns)])

    @property
    def text_columns(self) -> tuple[str, ...]:
        """The names of the columns of text; samples are sparse if there are any."""
        return tuple(column.name for column in self.columns if column.vocabulary is not None)

    @staticmethod
    def fit(
        table: FileTable,
        target: str | int | None = None,
        options: ReadOptions | None = None,
        keep: Callable[[TableBatch | None], None] = lambda batch: None,
    ) -> TableFit:
        """Learn from the rows of a table what its columns are; the result has the encoder.

        Args:
            table: that is read, once, or again where a column turned out to be another than its first rows promised.
            target: its name or position from 1; the last column by default.
            options: how to read it.
            keep: called with the rows that count, batch by batch, and with ``None`` when reading begins again.
        """
        learned = TableFit(table, target, options or ReadOptions())
        while True:
            keep(None)
            for batch in table.batches(learned.wanted):
                keep(learned.add(batch))
            if not learned.begin_again():
                return learned

    def wanted(self, positions: Sequence[int], target: int | None = None) -> dict[int, str]:
        """How columns at some positions of a file are to be read."""
        kinds = {j: column.kind for j, column in zip(positions, self.columns, strict=True)}
        return kinds if target is None else kinds | {target: "words" if self.labels else "number"}

    def encode(
        self, batch: TableBatch, positions: Sequence[int], out: Array | None = None, unknown: str = "error"
    ) -> tuple[Any, Array]:
        """Features of some rows, and row and feature (M, 2) of the missing values among them.

        The first value that the encoder does not know is an error that names its place.

        Args:
            batch: the rows.
            positions: of the columns in the file.
            out: where to write features (N, d).
            unknown: ``"ignore"`` encodes a level that training did not have as zeros.
        """
        starts, means, wrong = self._starts(), self.imputed_values, list[tuple[int, int, bool]]()
        blocks, gaps = [], [np.empty((0, 2), np.int64)]
        for k, (column, position) in enumerate(zip(self.columns, positions, strict=True)):
            cells = batch.columns[position]
            (block, bad), absent = column.encode(cells), missing_in(cells)
            if bad.any() and (column.levels is None or unknown == "error"):
                wrong.append((int(np.argmax(bad)), k, False))
            if absent is not None and means is None:
                wrong.append((int(np.argmax(absent)), k, True))
            elif absent is not None and means is not None and column.vocabulary is None:
                rows, features = np.flatnonzero(absent), np.arange(starts[k], starts[k + 1])
                gaps.append(np.stack([np.repeat(rows, len(features)), np.tile(features, len(rows))], 1))
                block = np.array(block)
                block[rows] = means[starts[k] : starts[k + 1]]
            blocks.append(block)
        if wrong:
            raise self._unknown(batch, positions, *min(wrong))
        missing = np.concatenate(gaps)
        missing = missing[np.lexsort((missing[:, 1], missing[:, 0]))]
        if self.text_columns:
            from scipy.sparse import csr_array, hstack

            return csr_array(hstack([csr_array(block) for block in blocks], format="csr")), missing
        out = np.empty((len(batch.rows), self.n_features)) if out is None else out
        for k, block in enumerate(blocks):
            out[:, starts[k] : starts[k + 1]] = block
        return out, missing

    def _unknown(self, batch: TableBatch, positions: Sequence[int], row: int, k: int, absent: bool) -> ValueError:
        spot, column = batch.spot(row, positions[k]), self.columns[k]
        at = f"{spot.place}, column {column.name!r}: "
        if absent:
            return ParameterError(f"{at}the value is missing; fill it in, or train with ", _MEAN, ", which imputes it")
        if column.levels is not None:
            said = f"{at}{spot.cell!r} did not occur in training; known are {listed(column.levels)}"
            ignore = Option("unknown", "ignore")
            return ParameterError(said, ": correct it, or accept unknown levels with ", ignore, " of apply")
        what = "a finite number" if is_number(spot.cell) else "a number" if column.date is None else "a date"
        return ValueError(f"{at}{spot.cell!r} is not {what}, as it was in training; correct it")

    def targets(self, cells: Any) -> Array:
        """Codes of labels, −1/+1 for two, 0 … K−1 for K; without labels the numbers."""
        if not isinstance(cells, Words):
            return cells  # type: ignore[no-any-return]
        if not self.labels:
            return np.array([*map(float, cells.levels), math.nan])[cells.codes]
        codes = codes_of(self.labels)
        return np.array([*(codes.get(level, 0) for level in cells.levels), 0], np.int64)[cells.codes]

    def transform(self, X: Any, unknown: str = "error") -> Any:
        """Features (N, d) of a data frame or a list of dicts, columns found by name: a tensor, with text a CSR array.

        ``None`` and NaN are missing values; columns that training did not have are ignored.
        """
        wanted = [column.name for column in self.columns]
        if self.indices is not None:
            raise TypeError("X has named columns, but training had numbered features; pass a sparse matrix")
        if isinstance(X, list):
            for i, row in enumerate(X):
                if not isinstance(row, Mapping):
                    raise TypeError(f"X[{i}] is {type(row).__name__}, but X[0] is a dict; give a dict per row")
                lost = [name for name in wanted if name not in row]
                if lost:
                    has = listed(list(map(str, row)))
                    raise ValueError(f"X[{i}] must have each column of training; it lacks {lost[0]!r} and has {has}")
            table = ArrowTable("X", wanted, lambda j: [row[wanted[j]] for row in X])
        else:
            table = frame_table(X)
        lost = [name for name in wanted if table.names.count(name) != 1]
        if lost:
            raise ValueError(
                f"X must have each column of training once; look at {listed(lost)}, it has {listed(table.names)}"
            )
        positions = [table.names.index(name) for name in wanted]
        made, _ = self.encode(next(table.batches(self.wanted(positions))), positions, unknown=unknown)
        return as_samples(made)

    def impute(self, X: Data) -> Any:
        """Dense features (N, d) with ``imputed_values`` in the place of NaN; without them NaN is an error."""
        import torch

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
        values, starts = np.array(means, np.float64).reshape(-1), self._starts()
        for k, column in enumerate(self.columns):
            if column.vocabulary is not None:
                values[starts[k] : starts[k + 1]] = 0
        return replace(self, imputed_values=tuple(values.tolist()))

    def to_json(self) -> dict[str, Any]:
        """Everything about it as plain types; :meth:`from_json` is the inverse."""
        columns = [
            {"name": c.name, "levels": c.levels, "date": c.date, "vocabulary": c.vocabulary and c.vocabulary.to_json()}
            for c in self.columns
        ]
        kept = [{name: value for name, value in column.items() if value is not None} for column in columns]
        return {**vars(self), "columns": kept, "options": self.options.to_json()}

    @classmethod
    def from_json(cls, state: Mapping[str, Any]) -> TableEncoder:
        """The inverse of :meth:`to_json`, also by way of a JSON file; anything else is a ``ValueError``."""

        def plain(values: Mapping[str, Any]) -> dict[str, Any]:
            return {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}

        try:
            columns = [
                Column(
                    **plain({**each, "vocabulary": each.get("vocabulary") and Vocabulary.from_json(each["vocabulary"])})
                )
                for each in state["columns"]
            ]
            return cls(**{**plain(state), "columns": tuple(columns), "options": ReadOptions(**state["options"])})
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"an encoder must be what to_json() returned: {error!r}") from None


def frame_table(frame: Any, title: str = "X") -> ArrowTable:
    """A pandas data frame as a table."""
    return ArrowTable(title, [str(name) for name in frame.columns], lambda j: frame.iloc[:, j])


def as_samples(X: Any) -> Any:
    """A matrix as a tensor, a CSR array with indices of 32 bits if they fit, as scikit-learn needs them."""
    if isinstance(X, np.ndarray):
        import torch

        return torch.from_numpy(X)
    if X.indices.dtype == X.indptr.dtype == np.int32 or max(X.nnz, *X.shape) > np.iinfo(np.int32).max:
        return X
    return type(X)((X.data, X.indices.astype(np.int32), X.indptr.astype(np.int32)), shape=X.shape)


# --- learning what columns are ------------------------------------------------------------------------------------


@dataclass
class _Seen:
    """What has been seen of one column."""

    numbers: int = 0
    others: int = 0
    first_other: tuple[TableBatch, int] | None = None
    missing: int = 0
    levels: Counter[str] = field(default_factory=Counter)  # no further ones if they are too many
    total: Any = 0.0  # of the numbers, in the widest type, so that those of huge ones do not overflow
    as_numbers: bool = False
    words: int = 0  # in all values together
    counts: Counts | None = None  # of a column of text, whose levels are forgotten
    counting: float | None = math.nan  # the next number, if the column counts the rows

    def read_as_text(self) -> Counts:
        """Count n-grams from now on, those of the levels so far included."""
        self.counts = self.counts or Counts()
        self.counts.add(self.levels)
        self.levels = Counter()
        return self.counts


class _Problem(NamedTuple):
    """Something that only the user can decide: what it is, what to do about it, and an option that settles it."""

    what: str
    advice: tuple[str | Option, ...]
    settled_by: Option | None


class TableFit:
    """What the rows of a table say about its columns; :attr:`encoder` is the result."""

    def __init__(self, table: FileTable, target: str | int | None, options: ReadOptions) -> None:
        self.table, self.options = table, options
        self._choose_columns(None if target is None else str(target))
        self.wanted = {j: "words" if j in table.words or j in self._named else "number" for j in self.features}
        self.wanted[self.target] = "number" if options.task == "regression" else "words"
        self._start()

    def _start(self) -> None:
        self.rows = self.dropped = 0
        self._seen = {j: _Seen() for j in self.features}
        self._labels: Counter[str] = Counter()  # of a target that is read as numbers, the ends of each batch alone
        self._odd_target: tuple[TableBatch, int] | None = None
        self._first_missing: tuple[TableBatch, int, int] | None = None

    def _choose_columns(self, target: str | None) -> None:
        """Positions of target and features, and of what is named as categories and text."""
        names, path = self.table.names, self.table.path
        if len(names) < 2:
            apart = ", separated by commas, semicolons, tabs or |" if hasattr(self.table, "delimiter") else ""
            raise ValueError(f"{path} has one column; a feature and a label are needed{apart}")
        ignored = self._positions("ignore")
        self.target = len(names) - 1 if target is None else self._position(target, "target")
        if self.target in ignored:
            raise ValueError(f"ignore names column {names[self.target]!r} of {path}, the target; choose another target")
        self.features = tuple(j for j in range(len(names)) if j != self.target and j not in ignored)
        if not self.features:
            raise ValueError(f"ignore leaves no column of {path} but the labels; a feature is needed")
        self.categories, self.text = self._positions("categories"), self._positions("text")
        self._named = self.categories | self.text
        both = self.categories & self.text
        if both:
            raise ValueError(f"categories and text both name column {names[min(both)]!r} of {path}; choose one")
        for option, chosen in (("categories", self.categories), ("text", self.text)):
            others = sorted(chosen - set(self.features))
            if others:
                raise ValueError(f"{option} names column {names[others[0]]!r} of {path}, which is no feature")
        for j in sorted((*self.features, self.target)):
            if not names[j]:
                why = f"{path}: column {j + 1} has no name in the header, as an index that pandas wrote; name it, or "
                raise ParameterError(why, "ignore it with ", Option("ignore", j + 1))
            if names[j] in names[:j] and names.index(names[j]) not in ignored:
                twice = f"twice, in positions {names.index(names[j]) + 1} and {j + 1}"
                why = f"{path} has the column {names[j]!r} {twice}; rename one of them, or ignore it with "
                raise ParameterError(why, Option("ignore", j + 1))

    def _positions(self, option: str) -> frozenset[int]:
        given = getattr(self.options, option)
        split = [part for name in given for part in ([name] if name in self.table.names else name.split(","))]
        return frozenset(self._position(name.strip(), option) for name in split)

    def _position(self, name: str, option: str) -> int:
        """Where a column is, from 0, by its name or its position from 1."""
        names = self.table.names
        if names.count(name) > 1:
            raise ValueError(f"{self.table.path} has {names.count(name)} columns {name!r}; name it by position from 1")
        if name in names:
            return names.index(name)
        if name.isascii() and name.isdigit() and 1 <= int(name) <= len(names):
            return int(name) - 1
        raise ParameterError(Option(option, name), f" is no column of {self.table.path}; it has {listed(names, 50)}")

    def begin_again(self) -> bool:
        """Whether columns that were read as numbers are words, so that the table must be read again."""
        misread = [j for j, seen in self._seen.items() if seen.as_numbers and self._is_words(j)]
        self.wanted.update(dict.fromkeys(misread, "words"))
        if misread:
            self._start()
        return bool(misread)

    def add(self, given: TableBatch) -> TableBatch:
        """Learn from some rows; return those that count."""
        mask, gone = counted_rows(given, self.options.missing)
        batch = given.keep(mask)
        if gone is not None and self.options.missing == "drop":
            self.dropped += int(gone.sum())
        elif gone is not None:
            self._count_missing(batch)
        self.rows += len(batch.rows)
        for j in self.features:
            self._look(j, given, batch)
        self._look_at_target(batch)
        return batch

    def _count_missing(self, batch: TableBatch) -> None:
        wanted = (self.target,) if self.options.missing == "mean" else tuple(batch.columns)
        for j, cells in batch.columns.items():
            absent = missing_in(cells)
            if absent is not None and absent.any():
                found = (batch, int(np.argmax(absent)), j)
                if j in self._seen:
                    self._seen[j].missing += int(absent.sum())
                before = self._first_missing
                if j in wanted and (before is None or (batch is before[0] and found[1:] < before[1:])):
                    self._first_missing = found

    def _look(self, j: int, given: TableBatch, batch: TableBatch) -> None:
        """Learn from a column: of the rows as given, and of those that count."""
        cells, those, seen = given.columns[j], batch.columns[j], self._seen[j]
        if not isinstance(cells, Words):
            seen.as_numbers = True
            absent = missing_in(cells)
            seen.numbers += len(cells) - (0 if absent is None else int(absent.sum()))
            row = first_infinite(those)
            if row is not None and seen.first_other is None:
                seen.first_other = batch, row
            if self.options.missing == "mean":
                seen.total += np.nansum(those, dtype=np.longdouble)
            if seen.counting is not None and len(cells):
                start = cells[0] if math.isnan(seen.counting) else seen.counting
                rising = cells[0] == start and start in (0, 1, seen.counting) and cells[-1] - start == len(cells) - 1
                rising = rising and np.array_equal(cells, np.arange(start, start + len(cells)))
                seen.counting = float(cells[-1]) + 1 if rising else None
            return
        numeric = np.array([*map(is_number, cells.levels), True])
        counts = np.array(cells.counts(), np.int64)
        others = int(counts[~numeric[:-1]].sum())
        if seen.first_other is None and others:
            seen.first_other = given, int(np.argmax(~numeric[cells.codes]))
        seen.numbers, seen.others = seen.numbers + int(counts.sum()) - others, seen.others + others
        found = {level: count for level, count in zip(those.levels, those.counts(), strict=True) if count}
        seen.words += sum(count * word_count(level) for level, count in found.items())
        if len(seen.levels) <= LEVELS or j in self._named or all(map(_DATE.fullmatch, found)):
            seen.levels.update(found)
        if j in self.text or seen.counts is not None or (len(seen.levels) > LEVELS and self._is_text(j)):
            seen.read_as_text()

    def _look_at_target(self, batch: TableBatch) -> None:
        """Learn which labels there are; of a quantity, whether all are finite numbers, and two of them different."""
        cells = batch.columns[self.target]
        if not isinstance(cells, Words):
            row = first_infinite(cells)
            if row is not None and self._odd_target is None:
                self._odd_target = batch, row
            there = cells[~np.isnan(cells)]
            if len(there):
                self._labels.update(map(shortest, (float(there.min()), float(there.max()))))
            return
        odd = ~np.array([*map(is_finite, cells.levels), True])[cells.codes]
        if self._odd_target is None and odd.any():
            self._odd_target = batch, int(np.argmax(odd))
        if len(self._labels) <= MAX_LABELS or self._odd_target is not None or self.options.task is not None:
            self._labels.update({level: n for level, n in zip(cells.levels, cells.counts(), strict=True) if n})

    def _is_words(self, j: int) -> bool:
        return j in self.categories or self._seen[j].numbers < self._seen[j].others

    def _is_text(self, j: int) -> bool:
        """Whether a column is free text: named as such, or its values are long and nearly all different."""
        seen = self._seen[j]
        if j in self.text or j in self.categories or not self._is_words(j):
            return j in self.text
        different = len(seen.levels)
        many = seen.counts is not None or different > LEVELS or (different > TEXTS and 2 * different > self.rows)
        return many and seen.words >= PROSE * (seen.numbers + seen.others)

    @property
    def quantity(self) -> bool:
        """Whether the target is a quantity: as was said, or else by its values."""
        task = self.options.task
        return is_quantity(self._labels, self.rows) if task is None else task == "regression"

    @property
    def inferred_task(self) -> str:
        """What the target was taken for, if nobody said and it could be taken for something else."""
        named = self.table.names[self.target]
        return "" if self.options.task else inferred_task(named, self._labels, self.quantity)

    def encoder(self) -> TableEncoder:
        """What has been learned; all that is wrong with the table is one error."""
        names, path = self.table.names, self.table.path
        if not self.rows:
            every = f"a missing value in every one of its {self.dropped} rows"
            raise ValueError(f"{path} has {every if self.dropped else 'a header but no rows of data'}")
        self._problems: list[_Problem] = []
        self._check_missing()
        columns = [self._column(j) for j in self.features]
        self._check_target()
        if self._problems:
            raise self._all_problems()
        pairs = zip(self.features, filter(None, columns), strict=True) if self.options.missing == "mean" else ()
        means = tuple(value for j, column in pairs for value in self._means(j, column))
        return TableEncoder(
            tuple(column for column in columns if column is not None),
            names[self.target],
            () if self.quantity else in_order(self._labels),
            self.options.missing,
            means or None,
            n_columns=None if self.table.named else len(names),
            options=self.options.of_new_files(decimal="," if self.table.decimal == "," else None),
        )

    def _all_problems(self) -> ParameterError:
        """One error that names all problems, and the options that settle them."""
        problems, settled = self._problems, dict[str, list[object]]()
        if len(problems) == 1:
            return ParameterError(problems[0].what, *problems[0].advice)
        for option in [each.settled_by for each in problems if each.settled_by is not None]:
            settled.setdefault(option.name, []).append(option.value)
        said = f"{len(problems)} problems: {'; '.join(each.what for each in problems)}"
        remedy = [Option(name, values[0] if name == "missing" else values) for name, values in settled.items()]
        lead = "; correct them, or use" if remedy else "; correct them"
        return ParameterError(said, lead, *(part for option in remedy for part in (" ", option)))

    def _problem(self, what: str, *advice: str | Option, settled_by: Option | None = None) -> Column | None:
        self._problems.append(_Problem(what, advice, settled_by))
        return None

    def _check_missing(self) -> None:
        if self._first_missing is None:
            return
        batch, row, j = self._first_missing
        spot = batch.spot(row, j)
        at, written = f"{spot.place}, column {self.table.names[j]!r}: ", f", written {spot.cell!r}" if spot.cell else ""
        if j == self.target:
            what = f"{at}the {'target' if self.options.task == 'regression' else 'label'} is missing{written}"
            self._problem(what, "; fill it in, or drop such rows with ", _DROP, settled_by=_DROP)
            return
        counts = {self.table.names[k]: seen.missing for k, seen in self._seen.items() if seen.missing}
        several = f" (in all: {_counted(counts)})" if sum(counts.values()) > 1 else ""
        advice = "; correct it, or say what to do about such rows: ", _DROP, " drops them, ", _MEAN, " imputes means"
        self._problem(f"{at}the value is missing{written}{several}", *advice, settled_by=_MEAN)

    def _column(self, j: int) -> Column | None:
        """What a column is; ``None``, and a problem, if that cannot be said."""
        seen, name = self._seen[j], self.table.names[j]
        where, ignored = f"{self.table.path}, column {name!r} ", Option("ignore", name)
        if not seen.numbers + seen.others:
            return self._problem(f"{where}has no values at all", "; ignore it (", ignored, ")", settled_by=ignored)
        if self._is_text(j):
            if seen.others:
                return Column(name, vocabulary=seen.read_as_text().vocabulary())
            return self._problem(f"{where}holds numbers, no text", "; leave out ", Option("text", name))
        orders = date_orders(seen.levels) if j not in self.categories else []
        if len(orders) > 1:
            advice = "; write 2024-01-31, or ignore it (", ignored, ")"
            return self._problem(f"{where}has dates with the day or the month first", *advice, settled_by=ignored)
        if orders:
            parts = _date_parts(parse_dates(list(seen.levels), orders[0]))
            vary = [part for part, values in parts.items() if values.min() < values.max()]
            return Column(name, date=(orders[0], *(vary or ["days"])))
        if not self._is_words(j):
            return Column(name) if seen.first_other is None else self._no_number(j)
        if j not in self.categories:
            different = len(seen.levels) if seen.counts is None else LEVELS + 1
            if different > LEVELS or (different > FEW and 2 * different > self.rows):
                return self._identifier(j)
            if 2 * sum(_COMMA.fullmatch(level) is not None for level in seen.levels) >= different:
                return self._no_number(j)
        return Column(name, in_order(seen.levels))

    def _identifier(self, j: int) -> Column | None:
        seen, name = self._seen[j], self.table.names[j]
        count = len(seen.levels) if 0 < len(seen.levels) <= LEVELS else f"more than {LEVELS}"
        first = [] if seen.first_other is None else [seen.first_other[0].spot(seen.first_other[1], j).cell]
        some = [value if len(value) <= 60 else f"{value[:60]}…" for value in list(seen.levels)[:3] or first]
        what = f"has {count} different values in {self.rows} rows, such as {', '.join(map(repr, some))}"
        ignored, category, text = (Option(option, name) for option in ("ignore", "categories", "text"))
        advice = (
            ": ignore it (",
            ignored,
            "), make every value a feature (",
            category,
            "), or, if it is free text, its ",
        )
        what = f"{self.table.path}, column {name!r} {what}; it looks like an identifier"
        return self._problem(what, *advice, "words (", text, ")", settled_by=ignored)

    def _no_number(self, j: int) -> Column | None:
        seen, name = self._seen[j], self.table.names[j]
        assert seen.first_other is not None
        what, comma = self._not_a_number(*seen.first_other, j)
        category, decimal = Option("categories", name), Option("decimal", ",")
        if comma:
            return self._problem(what, "; if that is a decimal comma, say ", decimal, settled_by=decimal)
        if seen.others <= _TYPOS * (seen.numbers + seen.others):
            return self._problem(what, "; correct it or drop the row")
        return self._problem(what, "; correct it, or make the column a category (", category, ")", settled_by=category)

    def _not_a_number(self, batch: TableBatch, row: int, j: int) -> tuple[str, bool]:
        """Where a cell is that is no number, and whether it has a decimal comma."""
        spot = batch.spot(row, j)
        what = f"{spot.cell!r} is not a {'finite ' * is_number(spot.cell)}number"
        return f"{spot.place}, column {self.table.names[j]!r}: {what}", bool(_COMMA.fullmatch(spot.cell))

    def _check_target(self) -> None:
        path, name, task = self.table.path, self.table.names[self.target], self.options.task
        if self._odd_target is not None and task != "classification":
            numbers = [label for label in self._labels if is_finite(label)]
            others = sum(count for label, count in self._labels.items() if not is_finite(label))
            if task == "regression" or (others <= _TYPOS * self.rows and is_quantity(numbers, self.rows)):
                what, comma = self._not_a_number(*self._odd_target, self.target)
                decimal = (", or say ", Option("decimal", ",")) if comma else ()
                classes = ", or learn the values as classes with ", Option("task", "classification")
                self._problem(what, "; correct it or drop the row", *decimal, *classes)
                return
        if self._labels and not self._problems:
            check_classes(
                f"{path}, column {name!r}", self._labels, self.rows, task, "name the column of classes as the target"
            )

    def _means(self, j: int, column: Column) -> list[float]:
        """The mean of each feature of a column over the rows that have it."""
        seen = self._seen[j]
        if column.vocabulary is not None:
            return [0.0] * len(column.features)  # a missing text has no words
        if column.date is not None:
            parts = _date_parts(parse_dates(list(seen.levels), column.date[0]))
            return [float(np.average(parts[part], weights=list(seen.levels.values()))) for part in column.date[1:]]
        if column.levels is not None:
            return [seen.levels[level] / seen.levels.total() for level in column.levels]
        if not seen.as_numbers:
            seen.total = sum(float(level) * count for level, count in seen.levels.items())
        return [float(seen.total / max(1, self.rows - seen.missing))]

    def notes(self, columns: Sequence[Column]) -> tuple[str, ...]:
        """What was recognised, and what a reader of the results should know about the table."""
        found = list(self.table.notes)
        counts = {self.table.names[j]: seen.missing for j, seen in self._seen.items() if seen.missing}
        if counts:
            found.append(f"missing values imputed: {_counted(counts)}")
        for j, column in zip(self.features, columns, strict=True):
            name = f"column {column.name!r}"
            if column.date is not None:
                found.append(f"{name} is a date; its features are {', '.join(column.date[1:])} (days since 1970)")
            elif column.vocabulary is not None and j not in self.text:
                found.append(f"{name} is free text; its {len(column.features):,} words and pairs of words are features")
            elif column.kind == "number" and self._seen[j].counting is not None and self.rows > 2:
                found.append(f"{name} counts the rows; ignore it if it is an identifier")
            elif column.kind == "number" and j in self.table.zero_padded:
                found.append(f"{name} has numbers with leading zeros; make it a category if they are codes")
        alike = "" if self.quantity else similar_labels(in_order(self._labels))
        return (*found, alike) if alike else tuple(found)


def _counted(counts: Mapping[str, int]) -> str:
    """How many values of which columns."""
    return ", ".join(f"{count:,} in {name!r}" for name, count in counts.items())


def counted_rows(batch: TableBatch, missing: str) -> tuple[Array | None, Array | None]:
    """Which rows count (``None``: all), and which have missing values (``None``: none)."""
    masks = [mask for cells in batch.columns.values() if (mask := missing_in(cells)) is not None]
    if not masks:
        return None, None
    gone = np.logical_or.reduce(masks)
    blank = np.logical_and.reduce(masks) if len(masks) == len(batch.columns) else np.zeros(len(gone), bool)
    if blank.any():
        blank[blank] = batch.table.blank(batch.rows[blank])
    rows = ~(gone | blank) if missing == "drop" else ~blank if blank.any() else None
    return rows, gone & ~blank
