"""What a table is, learned from its rows: which columns are numbers, the levels of the others, labels and means."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from torchperc._checks import Option, ParameterError
from torchperc.data.encoding import Column, Encoding, in_order, is_absent, is_number, shortest
from torchperc.data.io.blocks import Array, Block, Numbers, Spot, Words
from torchperc.data.io.tables import Table
from torchperc.data.ngrams import PROSE, Counts, word_count
from torchperc.data.task import LABELS, guessed, is_finite, is_quantity, is_regression

LEVELS = 1000  # levels above which a column of words is an identifier, unless it is named as a category
FEW = 50  # levels that are never too many, however few rows there are
TEXTS = 20  # levels above which a column of long values may be text
_SHOWN = 60  # characters of a value in an error message
_TYPOS = 0.05  # fraction of words in a column of numbers up to which they look like slips
_COMMA = re.compile(r"[+-]?\d+,\d+")
_DROP, _MEAN = Option("missing", "drop"), Option("missing", "mean")
_REMEDY = "; correct it, or say what to do about such rows: ", _DROP, " leaves them out, ", _MEAN, " fills in means"


class Plan(NamedTuple):
    """Which columns of a table are what, by position: labels, features, those named as categories and as text."""

    target: int
    features: tuple[int, ...]
    forced: frozenset[int]
    missing: str
    text: frozenset[int] = frozenset()
    sampled: float = 1.0  # fraction of the texts by which a vocabulary is learned
    task: str | None = None


@dataclass
class _Seen:
    """What has been seen of one column."""

    numbers: int = 0
    others: int = 0
    first_other: Spot | None = None
    levels: dict[str, int] = field(default_factory=dict)
    total: Any = 0.0  # of the numbers, in the widest type, so that those of huge ones do not overflow
    count: int = 0
    as_numbers: bool = False
    values: int = 0  # that are words, of rows that count
    prose: int = 0  # how many words are in them
    counts: Counts | None = None  # of words in a column of text; its levels are forgotten

    def read_as_text(self, fraction: float) -> Counts:
        """Count words from now on, those of the levels so far included."""
        self.counts = self.counts or Counts(fraction)
        self.counts.add(self.levels)
        self.levels = {}
        return self.counts


class Survey:
    """Reads the rows of a table once and learns its encoding; a second time where a column turned out otherwise."""

    def __init__(self, table: Table, plan: Plan) -> None:
        self.table, self.plan = table, plan
        named = plan.forced | plan.text
        self.words = {j: table.guess[j] or j in named for j in plan.features}
        self.words[plan.target] = plan.task != "regression"
        self._start()

    def _start(self) -> None:
        self.rows = self.dropped = 0
        self._seen = {j: _Seen() for j in self.plan.features}
        self._labels: dict[str, int] = {}  # of a target that is read as numbers, the ends of each block alone
        self._odd: Spot | None = None  # the first target that is no finite number

    def learn(self, blocks: Iterator[Block]) -> Iterator[Block]:
        """Learn from blocks as they come, and hand on their rows that count."""
        for given in blocks:
            block = self._sift(given)
            self.rows += block.count
            for position in self.plan.features:
                self._look(position, given, block)
            self._look_at_target(block)
            self._check_labels()
            yield block

    def misread(self) -> list[int]:
        """Columns that were read as numbers and are categories, so that their levels are still to be seen."""
        return [j for j, seen in self._seen.items() if seen.as_numbers and self._is_category(j)]

    def again(self, misread: Sequence[int]) -> None:
        """Begin again, and read these columns as words."""
        self.words.update(dict.fromkeys(misread, True))
        self._start()

    def _sift(self, block: Block) -> Block:
        """The rows that count: none in which nothing is written, and none with missing values if they are dropped."""
        rows, gone = kept(block, self.plan.missing)
        if gone is not None and self.plan.missing == "drop":
            self.dropped += int(gone.sum())
        elif gone is not None:
            self._refuse(block, np.ones(block.count, bool) if rows is None else rows)
        block = block.kept(rows)
        for position in self.plan.features:
            cells = block.columns[position]
            row = cells.infinite() if isinstance(cells, Numbers) else None
            if row is not None:
                spot = block.spot(row, position)
                raise self._wrong(spot, position, f"{spot.cell} is not a finite number; correct it or drop the row")
        return block

    def _refuse(self, block: Block, rows: Array) -> None:
        """Name the first missing value that is neither filled nor left out."""
        wanted = (self.plan.target,) if self.plan.missing == "mean" else sorted(block.columns)
        masks = {j: mask & rows for j in wanted if (mask := block.columns[j].missing()) is not None}
        found = [(int(np.flatnonzero(mask)[0]), j) for j, mask in masks.items() if mask.any()]
        if found:
            row, position = min(found)
            spot = block.spot(row, position)
            if position == self.plan.target:
                what = "target" if self.plan.task == "regression" else "label"
                raise self._wrong(spot, position, f"the {what} is missing; fill it in, or drop such rows with ", _DROP)
            if is_absent(spot.cell) and spot.cell.lower().strip("+-") == "nan":
                said = f"{spot.cell} is not a finite number but a missing value"
            else:
                said = f"the value is missing{f', written {spot.cell!r}' if spot.cell else ''}"
            raise self._wrong(spot, position, said, *_REMEDY)

    def _wrong(self, spot: Spot, position: int, *said: str | Option) -> ValueError:
        return ParameterError(f"{spot.place}, column {self.table.names[position]!r}: ", *said)

    def _look(self, position: int, given: Block, block: Block) -> None:
        """Learn from a column: of the rows as given, and of those that count."""
        cells, those, seen = given.columns[position], block.columns[position], self._seen[position]
        if isinstance(cells, Numbers) and isinstance(those, Numbers):
            seen.as_numbers = True
            absent = cells.missing()
            seen.numbers += given.count - (0 if absent is None else int(absent.sum()))
            if self.plan.missing == "mean":
                values = those.values if absent is None else those.values[~np.isnan(those.values)]
                seen.total, seen.count = seen.total + values.sum(dtype=np.longdouble), seen.count + len(values)
            return
        assert isinstance(cells, Words)
        numeric = np.array([is_number(level) for level in cells.levels] + [True])
        counts = np.array(cells.counts(), np.int64)
        numbers, others = int(counts[numeric[:-1]].sum()), int(counts[~numeric[:-1]].sum())
        if seen.first_other is None and others:
            seen.first_other = given.spot(int(np.flatnonzero(~numeric[cells.codes])[0]), position)
        seen.numbers, seen.others = seen.numbers + numbers, seen.others + others
        _count(seen.levels, those)
        if position in self.plan.forced:
            return
        assert isinstance(those, Words)
        found = list(zip(those.levels, those.counts(), strict=True))
        seen.values += sum(count for _, count in found)
        seen.prose += sum(count * word_count(level) for level, count in found if count)
        if position in self.plan.text or seen.counts is not None:
            seen.read_as_text(self.plan.sampled)
        elif len(seen.levels) > LEVELS and self._is_category(position):
            if not self._is_text(position):
                raise self._identifier(position)
            seen.read_as_text(self.plan.sampled)

    def _is_text(self, position: int) -> bool:
        """Whether a column is free text: named as such, or its values are long and nearly all different."""
        seen = self._seen[position]
        if position in self.plan.text:
            return True
        if position in self.plan.forced or not self._is_category(position):
            return False
        different = len(seen.levels)
        many = seen.counts is not None or different > LEVELS or (different > TEXTS and 2 * different > self.rows)
        return many and seen.prose >= PROSE * seen.values

    def _look_at_target(self, block: Block) -> None:
        """Learn which labels there are; of a quantity, whether all are finite numbers, and two of them different."""
        cells = block.columns[self.plan.target]
        if isinstance(cells, Numbers):
            row = cells.infinite()
            if row is not None:
                raise self._no_target(block.spot(row, self.plan.target))
            if block.count:
                ends = cells.values.min(), cells.values.max()
                _add(self._labels, {shortest(float(value)): 1 for value in ends})
            return
        assert isinstance(cells, Words)
        odd = ~np.array([*map(is_finite, cells.levels), True])[cells.codes]
        if self._odd is None and odd.any():
            self._odd = block.spot(int(np.flatnonzero(odd)[0]), self.plan.target)
        if self.plan.task == "regression" and self._odd is not None:
            raise self._no_target(self._odd)
        if len(self._labels) <= LABELS or self._odd is not None or self.plan.task is not None:  # else a quantity anyway
            _count(self._labels, cells)

    def _no_target(self, spot: Spot) -> ValueError:
        finite = "finite " if is_number(spot.cell) else ""
        comma = _without_comma(spot.cell)
        said = f"{spot.cell!r} is not a {finite}number; {comma}, or learn the values as classes with "
        return self._wrong(spot, self.plan.target, said, Option("task", "classification"))

    @property
    def quantity(self) -> bool:
        """Whether the target is a quantity: as was said, or else by its values."""
        return is_regression(self.plan.task, self._labels, self.rows)

    @property
    def guess(self) -> str:
        """What the target was taken for, if nobody said and it could be taken for something else."""
        return "" if self.plan.task else guessed(self.table.names[self.plan.target], self._labels, self.quantity)

    def _is_category(self, position: int) -> bool:
        seen = self._seen[position]
        return position in self.plan.forced or seen.numbers < seen.others

    def _identifier(self, position: int) -> ValueError:
        seen, name = self._seen[position], self.table.names[position]
        count = len(seen.levels) if seen.counts is None else f"more than {LEVELS}"
        first = [] if seen.first_other is None else [seen.first_other.cell]
        some = [value if len(value) <= _SHOWN else f"{value[:_SHOWN]}…" for value in list(seen.levels)[:3] or first]
        return ParameterError(
            f"{self.table.path}, column {name!r} has {count} different values in {self.rows} rows, "
            f"such as {', '.join(map(repr, some))}; it looks like an identifier or a date: leave it out (",
            Option("ignore", name),
            "), make every value a feature (",
            Option("categories", name),
            "), or, if it is free text, its words (",
            Option("text", name),
            ")",
        )

    def encoding(self) -> Encoding:
        """What has been learned."""
        names, missing, path = self.table.names, self.plan.missing, self.table.path
        for j, seen in self._seen.items():
            if not seen.numbers + seen.others and (self.rows or self.dropped):
                why = f"{path}, column {names[j]!r} has no values at all; leave it out ("
                raise ParameterError(why, Option("ignore", names[j]), ")")
        if not self.rows:
            every = f"a missing value in every one of its {self.dropped} rows"
            raise ValueError(f"{path} has {every if self.dropped else 'a header but no rows of data'}")
        columns = tuple(self._column(j) for j in self.plan.features)
        self._check_labels(last=True)
        return Encoding(
            columns,
            names[self.plan.target],
            () if self.quantity else in_order(self._labels),
            missing,
            self._means(columns) if missing == "mean" else None,
            positions=None if self.table.named else len(names),
        )

    def _column(self, position: int) -> Column:
        seen, name = self._seen[position], self.table.names[position]
        if self._is_text(position):
            if not seen.others:
                why = f"{self.table.path}, column {name!r} holds numbers, no text; leave out "
                raise ParameterError(why, Option("text", name))
            return Column(name, vocabulary=seen.read_as_text(self.plan.sampled).vocabulary())
        if seen.counts is not None:  # which its first rows were taken for
            raise self._identifier(position)
        if not self._is_category(position):
            if seen.others:
                raise self._no_number(position)
            return Column(name)
        if position not in self.plan.forced:
            if len(seen.levels) > FEW and 2 * len(seen.levels) > self.rows:
                raise self._identifier(position)
            if 2 * sum(_COMMA.fullmatch(level) is not None for level in seen.levels) >= len(seen.levels):
                raise self._no_number(position)
        return Column(name, in_order(seen.levels))

    def _no_number(self, position: int) -> ValueError:
        seen, name = self._seen[position], self.table.names[position]
        spot = seen.first_other
        assert spot is not None
        comma = _without_comma(spot.cell)
        rare = seen.others <= _TYPOS * (seen.numbers + seen.others)
        words = () if rare else (", or read the column as categories (", Option("categories", name), ")")
        return self._wrong(spot, position, f"{spot.cell!r} is not a number; {comma}", *words)

    def _means(self, columns: Sequence[Column]) -> tuple[float, ...]:
        means: list[float] = []
        for column, (position, seen) in zip(columns, self._seen.items(), strict=True):
            if column.vocabulary is not None:
                means += [0.0] * column.width  # a missing text has no words
            elif self._is_category(position):
                total = sum(seen.levels.values())
                means += [seen.levels[level] / total for level in in_order(seen.levels)]
            else:
                means.append(float(seen.total / max(1, seen.count)))
        return tuple(means)

    def _check_labels(self, last: bool = False) -> None:
        where, task = f"{self.table.path}, column {self.table.names[self.plan.target]!r}", self.plan.task
        if last and task is None and self._odd is not None:
            numbers = [label for label in self._labels if is_finite(label)]
            others = sum(count for label, count in self._labels.items() if not is_finite(label))
            if others <= _TYPOS * self.rows and is_quantity(numbers, self.rows):
                raise self._no_target(self._odd)
        check_labels(where, self._labels, self.rows, task, last, "name the column of classes as the target")


def check_labels(
    where: str,
    labels: dict[str, int],
    rows: int,
    task: str | None = None,
    last: bool = False,
    remedy: str = "write a class in its place",
) -> None:
    """Refuse labels that are no classes, since most of them occur once; in the end also one alone.

    Those of a quantity are fine, and if somebody has said that they are classes, only very many are refused.
    """
    if last and len(labels) < 2:
        found = next(iter(labels))
        if task == "regression":
            raise ValueError(f"{where} is {found} in every row; there is nothing to predict, so name another target")
        raise ValueError(f"{where} has one label only: {found!r}; at least two classes are required")
    many = len(labels) > (FEW if last and task is None else LABELS) and 2 * len(labels) > rows
    if many and not is_regression(task, labels, rows):
        found = f"has {len(labels)} different labels in {rows} rows"
        raise ValueError(f"{where} {found}; it looks like a quantity or an identifier: {remedy}")


def kept(block: Block, missing: str) -> tuple[Array | None, Array | None]:
    """Which rows of a block count (``None``: all), and which have missing values (``None``: none)."""
    masks = [mask for cells in block.columns.values() if (mask := cells.missing()) is not None]
    if not masks:
        return None, None
    gone = np.logical_or.reduce(masks)
    blank = np.logical_and.reduce(masks) if len(masks) == len(block.columns) else np.zeros(1, bool)
    if blank.any():
        blank = blank & block.blank()
    rows = ~(gone | blank) if missing == "drop" else ~blank if blank.any() else None
    return rows, (gone & ~blank if blank.any() else gone)


def _count(levels: dict[str, int], cells: object) -> None:
    assert isinstance(cells, Words)
    _add(levels, {level: count for level, count in zip(cells.levels, cells.counts(), strict=True) if count})


def _add(levels: dict[str, int], more: dict[str, int]) -> None:
    for level, count in more.items():
        levels[level] = levels.get(level, 0) + count


def _without_comma(cell: str) -> str:
    """What to do about a number that is written with a comma, or about another cell that is no number."""
    if not _COMMA.fullmatch(cell):
        return "correct it or drop the row"
    digits = len(cell) - cell.index(",") - 1
    thousands = f"write {cell.replace(',', '')} if the comma separates thousands, " if digits == 3 else ""
    return f"{thousands}{'or ' if thousands else ''}write a point for the comma"
