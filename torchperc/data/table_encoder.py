"""Columns of a table as features: numbers, categories as one-hot, dates as days, text as words; and back to labels."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timedelta
from functools import cached_property
from itertools import chain, combinations, pairwise, repeat
from pathlib import Path
from typing import Any

import lazy_loader
import numpy as np

from torchperc._checks import Data, Option, ParameterError
from torchperc.data.table_files import (
    TASKS,
    Array,
    Cells,
    ReadOptions,
    Table,
    TableBatch,
    Words,
    frame_table,
    is_finite,
    is_number,
    listed,
    missing_in,
    rows_table,
    shortest,
    word,
)
from torchperc.data.text_features import Counts, Vocabulary

torch: Any = lazy_loader.load("torch")

LEVELS = 1000  # levels above which a column of words is an identifier, unless it is named as a category
FEW = 50  # levels that are never too many, however few rows there are
MAX_LABELS = 2**16  # maximum number of classes
_TYPOS = 0.05  # fraction of words in a column of numbers up to which they look like typos
_COMMA = re.compile(r"[+-]?\d+,\d+")
_DATE = re.compile(r"(\d{1,4})([-./])(\d{1,2})\2(\d{1,4})(?:[ T](\d\d:\d\d(?::\d\d)?)(?:\.\d+)?Z?)?")
_DATE_PARTS = ("days", "year", "month", "weekday")
_DROP, _MEAN = Option("missing", "drop"), Option("missing", "mean")


def in_order(words: Iterable[str]) -> tuple[str, ...]:
    """Words as labels are sorted: numbers first, by their size."""
    return tuple(sorted(words, key=lambda text: (False, float(text), text) if is_number(text) else (True, 0.0, text)))


def codes_of(labels: Sequence[str]) -> dict[str, int]:
    """−1/+1 for two labels, 0 … K−1 for K."""
    return {label: 2 * k - 1 if len(labels) == 2 else k for k, label in enumerate(labels)}


def is_quantity(labels: Collection[str], rows: int) -> bool:
    """Whether the different values of a target are a quantity: all finite numbers, and many.

    More than 20 are many, as are more than 10 if they are more than half as many as rows.

    Example:
        >>> is_quantity(list("0123456789"), rows=10), is_quantity([str(k / 8) for k in range(30)], rows=100)
        (False, True)
    """
    return len(labels) > (10 if 2 * len(labels) > rows else 20) and all(map(is_finite, labels))


def infer_task(labels: Collection[str], rows: int, task: str | None, target: str | None = None) -> tuple[bool, str]:
    """Whether a target is a quantity, and a sentence that says so if only its values did."""
    if task is not None or not is_quantity(labels, rows):
        return task == "regression", ""
    many = f"more than {MAX_LABELS:,}" if len(labels) > MAX_LABELS else len(labels)
    return True, f"{'the target' if target is None else f'target {target!r}'} has {many} different numbers: regression"


def similar_labels(labels: Sequence[str]) -> str:
    """A sentence on labels that differ in case, blanks or one letter; empty if none do.

    Example:
        >>> similar_labels(("No", "no", "yes", "yess", "type1", "type2"))
        "labels that may be the same: 'No' and 'no', 'yes' and 'yess'"
    """

    def forms(label: str) -> set[str]:
        """The label without case and blanks, and with each of its letters left out."""
        plain = "".join(label.casefold().split())
        long = plain.isalpha() and len(plain) > 3
        return {plain} | {plain[:k] + plain[k + 1 :] for k in range(len(plain)) if long}

    some = [(label, forms(label)) for label in labels[:FEW]]
    pairs = [f"{one!r} and {two!r}" for (one, a), (two, b) in combinations(some, 2) if a & b]
    return f"labels that may be the same: {', '.join(pairs)}" if pairs else ""


def date_values(text: str) -> tuple[float, ...]:
    """Days since 1970, year, month and weekday (1 is Monday) of a date, maybe with a time; NaN for what is no date.

    Example:
        >>> date_values("31.01.2024 12:00") == date_values("2024-01-31 12:00") == date_values("2024/1/31T12:00")
        True
        >>> date_values("31.01.2024 12:00"), date_values("01/31/2024")[0]
        ((19753.5, 2024, 1, 3), nan)
    """
    if match := _DATE.fullmatch(text):
        first, mark, month, last, time = match.groups()
        year, day = (last, first) if mark == "." else (first, last)
        with suppress(ValueError):  # no day of any calendar
            when = datetime.fromisoformat(f"{year:>04}-{month:>02}-{day:>02} {time or '00:00'}")
            return (when - datetime(1970, 1, 1)) / timedelta(days=1), when.year, when.month, when.isoweekday()
    return (math.nan,) * len(_DATE_PARTS)


@dataclass(frozen=True)
class Column:
    """A column of a table: a number, a category, text, or a date.

    Args:
        name: as in the header, or the position from 1 in a table without one.
        levels: of a category, in the order of its features; ``None`` for others.
        vocabulary: of text; ``None`` for others.
        date: what of a date are features (``"days"``, ``"year"``, ``"month"``, ``"weekday"``); ``None`` for others.

    Example:
        >>> Column("colour", ("green", "red")).features
        ('colour=green', 'colour=red')
        >>> Column("born", date=("days", "month")).features
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
            return tuple(f"{self.name} ({part})" for part in self.date)
        return (self.name,) if self.levels is None else tuple(f"{self.name}={level}" for level in self.levels)

    @property
    def kind(self) -> str:
        """What a file is asked for: "number", or "words"."""
        return "number" if self.levels is None and self.vocabulary is None and self.date is None else "words"

    def values(self, words: Sequence[str], unknown: str = "error") -> Any:
        """The features (N, k) of some words, NaN where a word is missing or unknown; of text a CSR array."""
        if self.vocabulary is not None:
            return self.vocabulary.features(words)
        if self.date is not None:
            chosen = [_DATE_PARTS.index(part) for part in self.date]
            return np.array([date_values(word) for word in words])[:, chosen]
        if self.levels is None:
            return np.array([[float(word) if is_finite(word) else math.nan] for word in words])
        count = len(self.levels)
        known = {level: k for k, level in enumerate(self.levels)} | {"": -1}
        at = np.array([known.get(word, -1 if unknown == "error" else count) for word in words])[:, None]
        return np.where(at < 0, math.nan, at == np.arange(count))


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
        imputed_values: what a missing value becomes, one number per feature; ``None``: it is an error.
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
        return self.indices[1] if self.indices is not None else self._ends[-1]

    @cached_property
    def _ends(self) -> list[int]:
        """Where the features of each column begin, and those of the last end."""
        return np.cumsum([0, *(len(column.features) for column in self.columns)]).tolist()  # type: ignore[no-any-return]

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
        means, missing, blocks = self.imputed_values, [np.empty((0, 2), np.int64)], list[Any]()
        dense = None if self.text_columns else np.empty((batch.n_rows, self.n_features)) if out is None else out
        for column, position, (first, last) in zip(self.columns, positions, pairwise(self._ends), strict=True):
            cells, absent = batch.columns[position], missing_in(batch.columns[position])
            block = (
                column.values((*cells.levels, ""), unknown)[cells.codes] if isinstance(cells, Words) else cells[:, None]
            )
            known = ~absent if column.vocabulary is not None else np.isfinite(block[:, 0])
            if not (known if means is None else known | absent).all():
                raise self._first_unknown(table, positions, unknown)
            if column.vocabulary is None and absent.any():
                block = np.where(absent[:, None], np.array(means)[first:last], block)
                rows = np.flatnonzero(absent)
                missing.append(np.stack([np.repeat(rows, last - first), np.tile(range(first, last), len(rows))], 1))
            if dense is None:
                blocks.append(block)
            else:
                dense[:, first:last] = block
        found = np.concatenate(missing)
        found = found[np.lexsort(found.T[::-1])]  # row by row
        if dense is not None:
            return dense, found
        from scipy.sparse import csr_array, hstack

        return csr_array(hstack([csr_array(block) for block in blocks], format="csr")), found

    def _first_unknown(self, table: Table, positions: Sequence[int], unknown: str) -> ValueError:
        """The error for the first cell of a table that cannot be encoded."""
        columns = dict(zip(positions, self.columns, strict=True))

        def is_wrong(position: int, cell: str) -> bool:
            if not cell or columns[position].vocabulary is not None:
                return not cell and self.imputed_values is None
            return bool(np.isnan(columns[position].values([word(cell)], unknown)).any())

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
        codes = codes_of(self.labels)
        return cells.look_up([codes.get(level, 0) if codes else float(level) for level in cells.levels], 0)

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
        names: list[Any] = [*table.names]
        if self.n_columns is not None:
            names = [str(j + 1) for j in range(self.n_columns)]
            if len(table.names) == self.n_columns - 1:
                names.remove(self.target)
            elif len(table.names) != self.n_columns:
                found = f"{len(table.names)} columns, but training had {self.n_columns} with the target"
                raise ValueError(f"{table.path} has {found}; without names they go by position")
        wanted, there = [column.name for column in self.columns], [self.target] * (self.target in names)
        if wrong := [str(name) for name in (*wanted, *there) if names.count(name) != 1]:
            lacks = f"has no column {listed(wrong)}, which training had, or several of that name"
            raise ValueError(f"{table.path} {lacks}; it has {listed(names) if table.named else 'no names'}")
        return [names.index(name) for name in wanted], names.index(there[0]) if there else None

    def impute(self, X: Data) -> Any:
        """Dense features (N, d) with ``imputed_values`` in the place of NaN; without them NaN is an error."""
        given = torch.as_tensor(X, dtype=torch.float64)
        if self.imputed_values is not None:
            return torch.where(given.isnan(), torch.tensor(self.imputed_values, dtype=torch.float64), given)
        for row, feature in given.isnan().nonzero()[:1].tolist():
            at = f"X[{row}, {feature}] ({self.feature_names[feature]!r}) is missing; fill it in, or train with "
            raise ParameterError(at, _MEAN)
        return given

    def with_imputed_values(self, means: Data) -> TableEncoder:
        """The same with other numbers (d,) for missing values, such as the means over the training set.

        A missing text has no words, so these features stay 0.
        """
        text = chain((column.vocabulary is not None for column in self.columns for _ in column.features), repeat(False))
        values = tuple(0.0 if is_text else float(mean) for mean, is_text in zip(means, text, strict=False))
        return replace(self, imputed_values=values)

    def to_json(self) -> dict[str, Any]:
        """Everything about it as plain types; :meth:`from_json` is the inverse."""
        return asdict(self) | {"options": self.options.to_json()}

    @classmethod
    def from_json(cls, state: Mapping[str, Any]) -> TableEncoder:
        """The inverse of :meth:`to_json`, also by way of a JSON file; anything else is a ``ValueError``."""

        def plain(values: Mapping[str, Any]) -> dict[str, Any]:
            return {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}

        try:
            columns = [plain(each) for each in state["columns"]]
            for each in columns:
                each["vocabulary"] = each["vocabulary"] and Vocabulary(**plain(each["vocabulary"]))
            made = {"columns": tuple(Column(**each) for each in columns), "options": ReadOptions(**state["options"])}
            return cls(**plain(state) | made)
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"an encoder must be what to_json() returned: {error!r}") from None


def as_samples(X: Any) -> Any:
    """A matrix as a tensor, a CSR array with indices of 32 bits if they fit, as scikit-learn needs them."""
    if isinstance(X, np.ndarray):
        return torch.from_numpy(X)
    if X.indices.dtype == X.indptr.dtype == np.int32 or max(X.nnz, *X.shape) > np.iinfo(np.int32).max:
        return X
    return type(X)((X.data, X.indices.astype(np.int32), X.indptr.astype(np.int32)), shape=X.shape)


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
        quantity, self.inferred_task = infer_task(labels, self.rows, task, target)
        if len(labels) < 2:
            found = f"one {'value' if quantity else 'label'} only: {next(iter(labels))!r}"
            raise ValueError(f"{where} has {found}; at least two are required, so name another target")
        if not quantity and len(labels) > (FEW if task is None else MAX_LABELS) and 2 * len(labels) > self.rows:
            found = f"has {len(labels)} different labels in {self.rows} rows"
            raise ValueError(f"{where} {found}; it looks like a quantity or an identifier: name classes as the target")
        return () if quantity else in_order(labels)


class _Cells:
    """What the cells of one column say about it; ``option`` names it, or is "target"."""

    def __init__(self, option: str | None, options: ReadOptions) -> None:
        few = option == "target" and options.task is None
        self.most = LEVELS if option is None else MAX_LABELS if few else math.inf  # levels that are counted
        self.option, self.summed = option, options.missing == "mean"
        self.rows = self.missing = self.others = 0  # others: values that are no finite numbers
        self.levels = Counter[str]()  # of a target of numbers, the smallest and the largest of each batch
        self.total: Any = 0.0  # of the numbers, in the widest type, so that those of huge ones do not overflow
        self.texts = Counts()  # of the n-grams of a text, instead of levels
        self.last: float | None = math.nan  # number of a column that counts the rows

    def add(self, cells: Cells, rows: int) -> None:
        """Learn from some rows."""
        absent = missing_in(cells)
        self.rows, self.missing = self.rows + rows, self.missing + int(np.count_nonzero(absent))
        if isinstance(cells, Words):
            counts = np.bincount(cells.codes[~absent], minlength=len(cells.levels)).tolist()
            found = {level: count for level, count in zip(cells.levels, counts, strict=True) if count}
            self.others += sum(count for level, count in found.items() if not is_finite(level))
            if self.option == "text":
                self.texts.add(found)
            elif len(self.levels) <= self.most or all(map(_DATE.fullmatch, found)):
                self.levels.update(found)
        elif not absent.all():
            self.others += int(np.count_nonzero(np.isinf(cells)))
            if self.summed:
                self.total += np.nansum(cells, dtype=np.longdouble)
            if self.option == "target":
                self.levels.update(map(shortest, (float(np.nanmin(cells)), float(np.nanmax(cells)))))
            if self.last is not None:
                before = cells[0] - 1 if math.isnan(self.last) and cells[0] in (0, 1) else self.last
                self.last = float(cells[-1]) if (np.diff(cells, prepend=before) == 1).all() else None

    @property
    def numbers(self) -> int:
        """How many finite numbers there are."""
        return self.rows - self.missing - self.others

    def means(self, column: Column) -> list[float]:
        """The mean of each feature over the rows that have it; a missing text has no words."""
        if column.kind == "number":
            return [float(self.total / max(1, self.numbers))]
        if column.vocabulary is not None:
            return [0.0] * len(column.features)
        values = column.values([*self.levels])
        return np.average(values, 0, [*self.levels.values()]).tolist()  # type: ignore[no-any-return]


class TableFit(Fit):
    """What the rows of a table say about its columns; ``keep`` gets the rows that count, ``None`` to begin again."""

    def __init__(self, table: Table, target: Any, options: ReadOptions, keep: Callable[[Any], None]) -> None:
        self.table, self.path, self.options, table.na = table, table.path, options, tuple(options.na)
        self._choose_columns(None if target is None else str(target))
        words = {j for j, option in self.named.items() if option in ("categories", "text")}
        self.wanted = {j: "words" if j in words else "number" for j in self.features}
        self.wanted[self.target] = "number" if options.task == "regression" else "words"
        while not self._read(keep):
            pass
        if not self.rows:
            every = f"a missing value in every one of its {self.dropped} rows"
            raise ValueError(f"{self.path} has {every if self.dropped else 'a header but no rows of data'}")
        counts = {table.names[j]: self.seen[j].missing for j in self.features}
        self.missing = ", ".join(f"{count:,} in {name!r}" for name, count in counts.items() if count)
        found = [self._check_missing(), *map(self._column, self.features), self._check_target()]
        if problems := [each for each in found if isinstance(each, ParameterError)]:
            raise _as_one(problems)
        columns = tuple(each for each in found if isinstance(each, Column))
        means = [mean for j, each in zip(self.features, columns, strict=True) for mean in self.seen[j].means(each)]
        name, width = table.names[self.target], None if table.named else len(table.names)
        where, levels = f"{self.path}, column {name!r}", self.seen[self.target].levels
        labels = self._infer_task(where, name, levels, options.task)
        how = options.of_new_files(decimal="," if table.decimal == "," else None)
        imputed = tuple(means) if options.missing == "mean" else None
        self.encoder = TableEncoder(columns, name, labels, imputed, width, options=how)
        self.notes = tuple(self._notes())

    def _choose_columns(self, target: str | None) -> None:
        """Positions of target and features, and which option names which column."""
        names, path = self.table.names, self.path
        if len(names) < 2:
            why = "has one column; a feature and a label are needed, in text separated by , ; | or tabs"
            raise ValueError(f"{path} {why}")
        self.target = len(names) - 1 if target is None else self._position(target, "target")
        self.named = {self.target: "target"}
        for option in ("ignore", "categories", "text"):
            for given in getattr(self.options, option):
                for name in [given] if given in names else given.split(","):
                    j = self._position(name.strip(), option)
                    if self.named.setdefault(j, option) != option:
                        why = f" is also in {self.named[j]} of {path}; name a column once"
                        raise ParameterError(Option(option, names[j]), why)
        used = [j for j in range(len(names)) if self.named.get(j) != "ignore"]
        self.features = tuple(j for j in used if j != self.target)
        if not self.features:
            raise ValueError(f"ignore leaves no feature of {path}; ignore less")
        counts = Counter(names[j] for j in used)
        for j in used:
            if not names[j] or counts[names[j]] > 1:
                found = f"has the name {names[j]!r} of another" if names[j] else "has no name, like an index of pandas"
                raise ParameterError(f"{path}: column {j + 1} {found}; rename or ignore it: ", Option("ignore", j + 1))

    def _position(self, name: str, option: str) -> int:
        """Where a column is, from 0, by its name or its position from 1."""
        names = self.table.names
        if names.count(name) == 1:
            return names.index(name)
        if name.isascii() and name.isdigit() and 1 <= int(name) <= len(names):
            return int(name) - 1
        why = f" is not the name of one column of {self.path}, nor a position from 1; it has {listed(names, 50)}"
        raise ParameterError(Option(option, name), why)

    def _read(self, keep: Callable[[Any], None]) -> bool:
        """Learn from all rows; False if a column turns out to be words instead of numbers."""
        self.seen = {j: _Cells(self.named.get(j), self.options) for j in self.wanted}
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
                self.seen[j].add(cells, batch.n_rows)
            keep(batch)
        return True

    def _check_missing(self) -> ParameterError | None:
        """The error for missing values that are not to be imputed; it names the place of the first."""
        wanted = [*(self.features if self.options.missing == "error" else ()), self.target]
        if not any(self.seen[j].missing for j in wanted):
            return None
        at, _, j = self.table.locate(sorted(wanted), lambda _, cell: not cell)
        if j == self.target:
            return ParameterError(f"{at}the target is missing", "; fill it in, or drop such rows with ", _DROP)
        what = f"{at}the value is missing (in all: {self.missing})"
        return ParameterError(what, "; correct it, impute means with ", _MEAN, ", or drop such rows with ", _DROP)

    def _column(self, j: int) -> Column | ParameterError:
        """What a column is; an error if only the user can say."""
        seen, name, levels = self.seen[j], self.table.names[j], self.seen[j].levels
        where = f"{self.path}, column {name!r} "
        ignored, category, text = (Option(each, name) for each in ("ignore", "categories", "text"))
        if seen.missing == self.rows:
            return ParameterError(f"{where}has no values at all", "; ignore it (", ignored, ")")
        if seen.option == "text":
            return Column(name, vocabulary=seen.texts.vocabulary())
        if not seen.others and seen.option is None:
            return Column(name)
        if seen.option == "categories":
            return Column(name, in_order(levels))
        if levels and all(map(_DATE.fullmatch, levels)):
            values = np.array([date_values(level) for level in levels])
            if np.isfinite(values).all():
                varying = np.ptp(values, 0) > 0
                parts = tuple(part for part, varies in zip(_DATE_PARTS, varying, strict=True) if varies)
                return Column(name, date=parts or _DATE_PARTS[:1])
            if all("/" in level for level in levels):
                what = f"{where}has dates with the day or the month first"
                return ParameterError(what, "; write 2024-01-31, or ignore it (", ignored, ")")
        if seen.numbers < seen.others and len(levels) > (LEVELS if 2 * len(levels) <= self.rows else FEW):
            some = [value if len(value) <= 60 else f"{value[:60]}…" for value in [*levels][:3]]
            count = len(levels) if len(levels) <= LEVELS else f"more than {LEVELS}"
            what = f"{where}has {count} different values in {self.rows} rows, such as {listed(some)}"
            others = "), make every value a feature (", category, "), or, if it is free text, its words (", text, ")"
            return ParameterError(f"{what}; it looks like an identifier", ": ignore it (", ignored, *others)
        commas = sum(_COMMA.fullmatch(level) is not None for level in levels)
        if seen.numbers < seen.others and self.wanted[j] == "words" and 2 * commas < len(levels):
            return Column(name, in_order(levels))
        return self._not_a_number(j, ", or make the column a category with ", category)

    def _check_target(self) -> ParameterError | None:
        """The error for words in a target that is a quantity."""
        target, task = self.seen[self.target], self.options.task
        if not target.others or task == "classification":
            return None
        numbers = [label for label in target.levels if is_finite(label)]
        if task is None and (target.others > _TYPOS * self.rows or not is_quantity(numbers, self.rows)):
            return None
        return self._not_a_number(self.target, ", or learn the values as classes with ", Option("task", TASKS[0]))

    def _not_a_number(self, j: int, *remedy: str | Option) -> ParameterError:
        """The error for the first value of a column that is no finite number."""
        seen, at = self.seen[j], self.table.locate([j], lambda _, cell: bool(cell) and not is_finite(cell))
        what = f"{at[0]}{at[1]!r} is not a {'finite ' * is_number(at[1])}number"
        if _COMMA.fullmatch(at[1]):
            return ParameterError(what, "; if that is a decimal comma, say ", Option("decimal", ","))
        if seen.option is None and seen.others <= _TYPOS * (seen.numbers + seen.others):
            dropped = (" and ", _DROP) if self.options.missing == "error" else ()
            remedy = ", or count it as missing with ", Option("na", at[1]), *dropped
        return ParameterError(what, "; correct it or drop the row", *remedy)

    def _notes(self) -> Iterator[str]:
        """What was recognised, and what a reader of the results should know about the table."""
        yield from self.table.notes
        if self.missing:
            yield f"missing values imputed: {self.missing}"
        for j, column in zip(self.features, self.encoder.columns, strict=True):
            name, number = f"column {column.name!r}", column.kind == "number"
            if column.date is not None:
                yield f"{name} is a date; its features are {', '.join(column.date)} (days since 1970)"
            elif number and self.seen[j].last is not None and self.rows > 2:
                yield f"{name} counts the rows; ignore it if it is an identifier"
            elif number and j in self.table.zero_padded:
                yield f"{name} has numbers with leading zeros; make it a category if they are codes"
        yield from filter(None, [similar_labels(self.encoder.labels)])

    def batches(self) -> Iterator[TableBatch]:
        """The rows that count, read again."""
        again = self.table.batches(self.encoder.wanted(self.features, self.target))
        return map(TableBatch.without_missing, again) if self.options.missing == "drop" else again

    def encode(self, batch: TableBatch, out: Any = None) -> tuple[Any, Array, Array]:
        """Features of some rows, the positions of missing values among them, and targets."""
        made, missing = self.encoder.encode(self.table, batch, self.features, out)
        return made, missing, self.encoder.targets(batch.columns[self.target])


def _as_one(problems: Sequence[ParameterError]) -> ParameterError:
    """One error that names all problems, and the options that settle them: the first that each names."""
    if len(problems) == 1:
        return problems[0]
    settled = dict[str, Any]()
    for problem in problems:
        for name, value in [part for part in problem.args if isinstance(part, Option)][:1]:
            several = name in ("ignore", "categories", "na")
            settled[name] = [*settled.get(name, ()), value] if several else value
    if "na" in settled:
        settled.setdefault("missing", "drop")
    said = "; ".join(problem.args[0] for problem in problems)
    remedy = (part for option in settled.items() for part in (" ", Option(*option)))
    return ParameterError(f"{len(problems)} problems: {said}; correct them{', or use' * bool(settled)}", *remedy)
