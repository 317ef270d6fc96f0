"""Rows of a table through a known encoding, into features and codes of labels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from torchperc._checks import Option, ParameterError
from torchperc.data.dataset import is_number
from torchperc.data.encoding import Encoding
from torchperc.data.io.blocks import Array, Block, Cells, Numbers, Spot, Words

_CACHE = 2**22  # bytes of rows that are written together, so that they stay near the core


class Encoder:
    """Writes the rows of blocks as features.

    Args:
        encoding: how columns become features.
        positions: of the encoding's columns in the file.
        target: the position of the column of labels, if the file has one.
        path: of the file, for errors.
    """

    def __init__(self, encoding: Encoding, positions: Sequence[int], target: int | None, path: Path) -> None:
        self.encoding, self.positions, self.target, self.path = encoding, tuple(positions), target, path
        widths = [1 if column.levels is None else len(column.levels) for column in encoding.columns]
        self._starts = np.cumsum([0, *widths]).tolist()
        self._places = [
            None if column.levels is None else {level: k for k, level in enumerate(column.levels)}
            for column in encoding.columns
        ]
        self._codes = {label: 2 * k - 1 if len(encoding.labels) == 2 else k for k, label in enumerate(encoding.labels)}

    @property
    def words(self) -> dict[int, bool]:
        """The columns that are wanted from the file, and whether as words."""
        wanted = {j: places is not None for j, places in zip(self.positions, self._places, strict=True)}
        return wanted if self.target is None else wanted | {self.target: True}

    def labels(self, block: Block) -> Array:
        """−1/+1 for two labels, 0 … K−1 for K."""
        assert self.target is not None
        cells = block.columns[self.target]
        assert isinstance(cells, Words)
        return np.array([self._codes.get(level, 0) for level in cells.levels], np.int64)[
            cells.codes
        ]  # some may be dropped

    def features(self, block: Block) -> Array:
        """The features of a block.

        Shape:
            (rows, d) float64.
        """
        out = np.empty((block.count, self.encoding.width))
        self.write(block, out)
        return out

    def write(self, block: Block, out: Array, done: frozenset[int] = frozenset()) -> Array:
        """Write the features of a block, means where values are missing; return row and feature of those.

        Args:
            block: some rows.
            out: where their features go.
            done: positions of columns that are there already.

        Shape:
            out (rows, d), result (M, 2).
        """
        columns = [
            (start, *self._made(block, k)) for k, start in enumerate(self._starts[:-1]) if self.positions[k] not in done
        ]
        step = max(64, _CACHE // (8 * out.shape[1]))
        for low in range(0, block.count, step):
            high = min(low + step, block.count)
            for start, width, values in columns:
                if width is None:
                    out[low:high, start] = values[low:high]
                else:
                    some = out[low:high, start : start + width]
                    some[...] = 0
                    known = np.flatnonzero(values[low:high] >= 0)
                    some[known, values[low:high][known]] = 1
        return self.fill(block, out)

    def runs(self, slots: Mapping[int, int]) -> list[tuple[int, int, int]]:
        """Where columns of a matrix go together: first column there, first feature, how many.

        Args:
            slots: the column of the matrix that each position of the file has.
        """
        found: list[tuple[int, int, int]] = []
        for k, position in enumerate(self.positions):
            slot, start = slots.get(position), self._starts[k]
            if slot is None:
                continue
            if found and (found[-1][0] + found[-1][2], found[-1][1] + found[-1][2]) == (slot, start):
                found[-1] = (*found[-1][:2], found[-1][2] + 1)
            else:
                found.append((slot, start, 1))
        return found

    def _made(self, block: Block, k: int) -> tuple[int | None, Array]:
        """How many features a category has (``None``: a number), and its values or the places of its levels."""
        cells, places = block.columns[self.positions[k]], self._places[k]
        if isinstance(cells, Numbers):
            return None, cells.values
        assert places is not None
        return len(places), np.array([*(places.get(level, -1) for level in cells.levels), -1])[cells.codes]

    def fill(self, block: Block, out: Array) -> Array:
        """Write means where values are missing; return row and feature of those."""
        gaps = [np.empty((0, 2), np.int64)]
        for k, position in enumerate(self.positions):
            absent = block.columns[position].missing()
            if absent is None or self.encoding.fills is None:
                continue
            start, stop, rows = self._starts[k], self._starts[k + 1], np.flatnonzero(absent)
            out[rows, start:stop] = self.encoding.fills[start:stop]
            gaps.append(np.stack([np.repeat(rows, stop - start), np.tile(np.arange(start, stop), len(rows))], 1))
        found = np.concatenate(gaps)
        return found[np.lexsort((found[:, 1], found[:, 0]))]

    def check(self, block: Block) -> None:
        """Refuse rows of a new file that the encoding does not know what to do with; the first is named."""
        wrong = [found for k in range(len(self.positions)) for found in self._wrong(block, k)]
        if not wrong:
            return
        row, k, why = min(wrong)
        spot = block.spot(row, self.positions[k])
        name, known = self.encoding.columns[k].name, self.encoding.columns[k].levels
        at = f"{self.path}, {spot.place}, column {name!r}: "
        if why == "absent":
            mean, means = Option("missing", "mean"), ", which keeps means for such cells"
            raise ParameterError(f"{at}the value is missing; fill it in, or train with ", mean, means)
        said = {
            "word": f"{spot.cell!r} is not a number, as it was in training; correct it, or take off a header that "
            "training did not have",
            "level": f"{spot.cell!r} did not occur in training; known are {_some(known or ())}: "
            "correct it, or learn again from data that have it",
            "infinite": f"{spot.cell} is not a finite number; correct it",
        }
        raise ValueError(f"{at}{said[why]}")

    def _wrong(self, block: Block, k: int) -> Iterator[tuple[int, int, str]]:
        cells, places = block.columns[self.positions[k]], self._places[k]
        absent = cells.missing()
        if absent is not None and self.encoding.fills is None:
            yield int(np.flatnonzero(absent)[0]), k, "absent"
        row = _first_odd(cells, places)
        if row is not None:
            yield row, k, "infinite" if isinstance(cells, Numbers) else "word" if places is None else "level"


class Gathered:
    """Rows of a table in memory: numbers in one matrix that grows with them, and codes of words block by block.

    Args:
        words: the positions of columns, and whether they are wanted as words.
        target: the position of the column of labels.
    """

    def __init__(self, words: Mapping[int, bool], target: int) -> None:
        self._slots = {j: k for k, j in enumerate(j for j in words if j != target and not words[j])}
        self._features = len(words) - 1
        self._matrix = np.empty((0, len(self._slots)))
        self._rows = self._codes = 0
        self._blocks: list[tuple[int, dict[int, Words]]] = []

    def add(self, block: Block) -> None:
        """Take up the rows of a block."""
        first, self._rows = self._rows, self._rows + block.count
        if self._rows > len(self._matrix):  # memory is made larger in place where the system can, and only now used
            self._matrix.resize((self._rows + self._rows // 16, len(self._slots)), refcheck=False)
        words = {}
        for position, cells in block.columns.items():
            if isinstance(cells, Words):
                words[position] = cells
                self._codes += cells.codes.nbytes
            else:
                self._matrix[first : self._rows, self._slots[position]] = cells.values
        self._blocks.append((block.count, words))

    @property
    def size(self) -> int:
        """Bytes that the rows take."""
        return self._matrix.nbytes + self._codes

    def features(self, encoder: Encoder) -> tuple[Array, Array, Array]:
        """Features, codes of labels, and row and feature of what was missing.

        Shape:
            (N, d), (N,), (M, 2).
        """
        self._matrix.resize((self._rows, len(self._slots)), refcheck=False)
        plain = len(self._slots) == self._features and all(len(words) == 1 for _, words in self._blocks)
        X = self._matrix if plain else np.empty((self._rows, encoder.encoding.width))
        y: list[Array] = [np.empty(0, np.int64)]
        gaps: list[Array] = [np.empty((0, 2), np.int64)]
        first, runs = 0, encoder.runs(self._slots)
        for count, words in self._blocks:
            rows = slice(first, first + count)
            numbers = {j: Numbers(self._matrix[rows, k]) for j, k in self._slots.items() if j not in words}
            block = Block(count, {**numbers, **words}, lambda row, j: Spot("", ""), lambda: np.zeros(0, bool))
            if not plain:
                for slot, start, width in runs:  # columns of words among them are written over
                    X[rows, start : start + width] = self._matrix[rows, slot : slot + width]
                gaps.append(encoder.write(block, X[rows], frozenset(numbers)) + np.array([first, 0]))
            elif encoder.encoding.fills is not None:
                gaps.append(encoder.fill(block, X[rows]) + np.array([first, 0]))
            y.append(encoder.labels(block))
            first += count
        return X, np.concatenate(y), np.concatenate(gaps)


def _first_odd(cells: Cells, places: dict[str, int] | None) -> int | None:
    if isinstance(cells, Numbers):
        return cells.infinite()
    known = [is_number(level) if places is None else level in places for level in cells.levels]
    rows = np.flatnonzero(~np.array([*known, True])[cells.codes])
    return int(rows[0]) if len(rows) else None


def _some(words: Sequence[str], most: int = 20) -> str:
    shown = ", ".join(map(repr, words[:most]))
    return f"{shown}, … ({len(words)} in all)" if len(words) > most else shown
