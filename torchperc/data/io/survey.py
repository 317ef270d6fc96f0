"""What a table is, learned from its rows: which columns are numbers, the levels of the others, labels and means."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from torchperc._checks import Option, ParameterError
from torchperc.data.dataset import is_number
from torchperc.data.encoding import Column, Encoding, in_order, is_absent
from torchperc.data.io.blocks import Array, Block, Numbers, Spot, Words
from torchperc.data.io.tables import Table

LEVELS = 1000
"""Levels above which a column of words is taken for an identifier, unless it is named as a category."""

FEW = 50
"""Levels that are never too many, however few rows there are."""

_LABELS = 2**16  # different labels above which nobody means classes
_TYPOS = 0.05  # share of words in a column of numbers up to which they look like slips
_COMMA = re.compile(r"[+-]?\d+,\d+")


class Plan(NamedTuple):
    """Which columns of a table are what, by position: labels, features, and those named as categories."""

    target: int
    features: tuple[int, ...]
    forced: frozenset[int]
    missing: str


@dataclass
class _Seen:
    """What has been seen of one column."""

    numbers: int = 0
    others: int = 0
    first_other: Spot | None = None
    levels: dict[str, int] = field(default_factory=dict)
    mean: float = 0.0
    count: int = 0
    as_numbers: bool = False

    def add_mean(self, values: Array) -> None:
        """Take the mean together with that of more values."""
        if not len(values):
            return
        with np.errstate(over="ignore"):
            mean = float(values.mean())
        if not np.isfinite(mean):  # the sum was too large, not the mean
            mean = float((values / len(values)).sum())
        self.count += len(values)
        share = len(values) / self.count
        self.mean = mean if share == 1 else self.mean * (1 - share) + mean * share


class Survey:
    """Goes through the rows of a table once and learns its encoding; a second time where a column turned out otherwise.

    Args:
        table: the table.
        plan: which of its columns are what.
    """

    def __init__(self, table: Table, plan: Plan) -> None:
        self.table, self.plan = table, plan
        self.words = {j: table.guess[j] or j in plan.forced for j in plan.features} | {plan.target: True}
        self._start()

    def _start(self) -> None:
        self.rows = self.dropped = 0
        self._seen = {j: _Seen() for j in self.plan.features}
        self._labels: dict[str, int] = {}

    def go(self, blocks: Iterator[Block]) -> Iterator[Block]:
        """Learn from blocks as they come, and hand on their rows that count."""
        for given in blocks:
            block = self._sift(given)
            self.rows += block.count
            for position in self.plan.features:
                self._look(position, given, block)
            target = block.columns[self.plan.target]
            assert isinstance(target, Words)
            _count(self._labels, target)
            self._check_labels(self.rows)
            yield block

    def again(self) -> bool:
        """Whether a column that was read as numbers is a category, so that its levels are still to be seen."""
        changed = [j for j, seen in self._seen.items() if seen.as_numbers and self._is_category(j)]
        if changed:
            self.words.update(dict.fromkeys(changed, True))
            self._start()
        return bool(changed)

    # --- rows ---

    def _sift(self, block: Block) -> Block:
        """The rows that count: none in which nothing is written, and none with missing values if they are dropped."""
        rows, gone = kept(block, self.plan.missing)
        if gone is not None and self.plan.missing == "drop":
            self.dropped += int(gone.sum())
        elif gone is not None:
            self._refuse(block, rows)
        block = block if rows is None else block.take(np.flatnonzero(rows))
        for position in self.plan.features:
            cells = block.columns[position]
            row = cells.infinite() if isinstance(cells, Numbers) else None
            if row is not None:
                spot = block.spot(row, position)
                raise ValueError(
                    f"{self._at(spot, position)}: {spot.cell} is not a finite number; correct it or drop the row"
                )
        return block

    def _refuse(self, block: Block, rows: Array | None) -> None:
        """Name the first missing value that is neither filled nor left out."""
        wanted = (self.plan.target,) if self.plan.missing == "mean" else sorted(block.columns)
        masks = {j: mask for j in wanted if (mask := block.columns[j].missing()) is not None}
        found = [
            (int(np.flatnonzero(mask if rows is None else mask & rows)[0]), j)
            for j, mask in masks.items()
            if (mask if rows is None else mask & rows).any()
        ]
        if not found:
            return
        row, position = min(found)
        spot = block.spot(row, position)
        if position == self.plan.target:
            why = f"{self._at(spot, position)}: the label is missing; fill it in, or drop such rows with "
            raise ParameterError(why, Option("missing", "drop"))
        raise ParameterError(f"{self._at(spot, position)}: {absence(spot.cell)}; ", *_REMEDY)

    # --- columns ---

    def _look(self, position: int, given: Block, block: Block) -> None:
        cells, seen = given.columns[position], self._seen[position]
        if isinstance(cells, Numbers):
            seen.as_numbers = True
            absent = cells.missing()
            seen.numbers += given.count - (0 if absent is None else int(absent.sum()))
            if self.plan.missing == "mean":
                kept_cells = block.columns[position]
                assert isinstance(kept_cells, Numbers)
                values = kept_cells.values
                seen.add_mean(values if absent is None else values[~np.isnan(values)])
            return
        numeric = np.array([is_number(level) for level in cells.levels] + [True])
        counts = cells.counts()
        numbers = sum(count for count, is_one in zip(counts, numeric, strict=False) if is_one)
        if seen.first_other is None and sum(counts) > numbers:
            row = int(np.flatnonzero(~numeric[cells.codes])[0])
            seen.first_other = given.spot(row, position)
        seen.numbers, seen.others = seen.numbers + numbers, seen.others + sum(counts) - numbers
        kept_cells = block.columns[position]
        assert isinstance(kept_cells, Words)
        _count(seen.levels, kept_cells)
        if len(seen.levels) > LEVELS and self._is_category(position) and position not in self.plan.forced:
            raise self._identifier(position)

    def _is_category(self, position: int) -> bool:
        seen = self._seen[position]
        return position in self.plan.forced or seen.numbers < seen.others

    def _identifier(self, position: int) -> ValueError:
        levels = self._seen[position].levels
        name = self.table.names[position]
        return ParameterError(
            f"{self.table.path}, column {name!r} has {len(levels)} different words in {self.rows} rows, "
            f"such as {', '.join(map(repr, list(levels)[:3]))}; it looks like an identifier or a date: leave it out (",
            Option("ignore", name),
            "), or take every word for a feature (",
            Option("categories", name),
            ")",
        )

    def _at(self, spot: Spot, position: int) -> str:
        return f"{self.table.path}, {spot.place}, column {self.table.names[position]!r}"

    # --- the end ---

    def encoding(self) -> Encoding:
        """What has been learned."""
        names, missing = self.table.names, self.plan.missing
        for j, seen in self._seen.items():
            if not seen.numbers + seen.others and (self.rows or self.dropped):
                why = f"{self.table.path}, column {names[j]!r} has no values at all; leave it out ("
                raise ParameterError(why, Option("ignore", names[j]), ")")
        if not self.rows:
            every = f"in every one of its {self.dropped} rows a value is missing" if self.dropped else "no rows of data"
            raise ValueError(f"{self.table.path} has {'' if self.dropped else 'a header but '}{every}")
        columns = tuple(self._column(j) for j in self.plan.features)
        self._check_labels(self.rows, last=True)
        return Encoding(
            columns,
            names[self.plan.target],
            in_order(self._labels),
            missing,
            self._means() if missing == "mean" else None,
            positions=None if self.table.named else len(names),
        )

    def _column(self, position: int) -> Column:
        seen, name = self._seen[position], self.table.names[position]
        if not self._is_category(position):
            if seen.others and seen.first_other is not None:
                raise self._no_number(seen.first_other, position)
            return Column(name)
        if position not in self.plan.forced:
            if len(seen.levels) > FEW and 2 * len(seen.levels) > self.rows:
                raise self._identifier(position)
            commas = sum(_COMMA.fullmatch(level) is not None for level in seen.levels)
            if 2 * commas >= len(seen.levels) and seen.first_other is not None:
                raise self._no_number(seen.first_other, position)
        return Column(name, in_order(seen.levels))

    def _no_number(self, spot: Spot, position: int) -> ValueError:
        comma = "write a point for the comma" if _COMMA.fullmatch(spot.cell) else "correct it or drop the row"
        seen, name = self._seen[position], self.table.names[position]
        rare = seen.others <= _TYPOS * (seen.numbers + seen.others)
        words = () if rare else (", or take the column for words (", Option("categories", name), ")")
        return ParameterError(f"{self._at(spot, position)}: {spot.cell!r} is not a number; {comma}", *words)

    def _means(self) -> tuple[float, ...]:
        means: list[float] = []
        for position in self.plan.features:
            seen = self._seen[position]
            if self._is_category(position):
                total = sum(seen.levels.values())
                means += [seen.levels[level] / total for level in in_order(seen.levels)]
            else:
                means.append(seen.mean)
        return tuple(means)

    def _check_labels(self, rows: int, last: bool = False) -> None:
        labels, name, path = self._labels, self.table.names[self.plan.target], self.table.path
        if last and len(labels) < 2:
            raise ValueError(f"{path} has one label only in column {name!r}: {next(iter(labels))!r}; two are needed")
        check_label_count(
            f"{path}, column {name!r}", len(labels), rows, last, "name the column of classes as the target"
        )


def check_label_count(
    where: str, count: int, rows: int, last: bool = False, remedy: str = "write a class in its place"
) -> None:
    """Refuse labels that are no classes, since most of them occur once.

    Args:
        where: the labels are.
        count: how many there are.
        rows: that have been read.
        last: whether these are all.
        remedy: what to do about it.

    Example:
        >>> check_label_count("prices.svm", 90, 100, last=True)
        Traceback (most recent call last):
        ValueError: prices.svm has 90 different labels in 100 rows; it looks like a quantity or an identifier: write a
        class in its place
    """
    if count > (FEW if last else _LABELS) and 2 * count > rows:
        raise ValueError(
            f"{where} has {count} different labels in {rows} rows; it looks like a quantity or an identifier: {remedy}"
        )


_REMEDY = (
    "correct it, or say what to do about such rows: ",
    Option("missing", "drop"),
    " leaves them out, ",
    Option("missing", "mean"),
    " fills in means",
)


def absence(cell: str) -> str:
    """What to say about a missing value, by how it is written.

    Example:
        >>> absence(""), absence("?"), absence("nan")
        ('the value is missing', "the value is missing, written '?'", 'nan is not a finite number but a missing value')
    """
    if is_absent(cell) and cell.lower().strip("+-") == "nan":
        return f"{cell} is not a finite number but a missing value"
    return f"the value is missing, written {cell!r}" if cell else "the value is missing"


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


def _count(levels: dict[str, int], cells: Words) -> None:
    for level, count in zip(cells.levels, cells.counts(), strict=True):
        if count:
            levels[level] = levels.get(level, 0) + count
