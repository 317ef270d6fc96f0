"""Rows of a table through a known encoding, into features and codes of labels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from torchperc._checks import Option, ParameterError
from torchperc.data.encoding import Encoding, codes_of, is_number, listed
from torchperc.data.io.blocks import Array, Block, Numbers, Words, small_indices


class Encoder:
    """Writes the rows of blocks as features; positions are those of the encoding's columns and of the labels."""

    def __init__(self, encoding: Encoding, positions: Sequence[int], target: int | None, path: Path) -> None:
        self.encoding, self.positions, self.target, self.path = encoding, tuple(positions), target, path
        self._levels = [None if c.levels is None else {x: k for k, x in enumerate(c.levels)} for c in encoding.columns]
        self._starts = np.cumsum([0, *(column.width for column in encoding.columns)]).tolist()

    @property
    def words(self) -> dict[int, bool]:
        """The columns that are wanted from the file, and whether as words."""
        wanted = {j: not c.is_number for j, c in zip(self.positions, self.encoding.columns, strict=True)}
        return wanted if self.target is None else wanted | {self.target: bool(self.encoding.labels)}

    def labels(self, block: Block) -> Array:
        """Codes of the labels, or real targets."""
        assert self.target is not None
        return targets(block.columns[self.target], self.encoding.labels)

    def write(self, block: Block, out: Array) -> Array:
        """Write features (rows, d), means where values are missing; return row and feature of those (M, 2)."""
        gaps = [np.empty((0, 2), np.int64)]
        for k, position in enumerate(self.positions):
            cells, start, stop = block.columns[position], self._starts[k], self._starts[k + 1]
            if isinstance(cells, Numbers):
                out[:, start] = cells.values
            else:
                known = self._levels[k]
                assert known is not None
                place = np.array([*(known.get(level, -1) for level in cells.levels), -1])[cells.codes]
                rows = np.flatnonzero(place >= 0)
                out[:, start:stop] = 0
                out[rows, start + place[rows]] = 1
            absent = cells.missing()
            if absent is not None and self.encoding.fills is not None:
                rows = np.flatnonzero(absent)
                out[rows, start:stop] = self.encoding.fills[start:stop]
                gaps.append(np.stack([np.repeat(rows, stop - start), np.tile(np.arange(start, stop), len(rows))], 1))
        found = np.concatenate(gaps)
        return found[np.lexsort((found[:, 1], found[:, 0]))]

    def sparse(self, block: Block) -> tuple[Any, Array]:
        """What :meth:`write` writes as a CSR array, for tables with text, and the same places of missing values.

        A missing text has no words and is no such place: there is nothing to be filled in.
        """
        from scipy.sparse import csr_array, hstack

        pieces, gaps = [], [np.empty((0, 2), np.int64)]
        for k, (position, column) in enumerate(zip(self.positions, self.encoding.columns, strict=True)):
            cells = block.columns[position]
            if column.vocabulary is not None:
                assert isinstance(cells, Words)
                pieces.append(column.vocabulary.features((*cells.levels, ""))[cells.codes])
                continue
            start, stop = self._starts[k], self._starts[k + 1]
            if isinstance(cells, Numbers):
                rows = np.flatnonzero(cells.values)
                where, values = np.zeros(len(rows), np.int64), cells.values[rows]
            else:
                known = self._levels[k]
                assert known is not None
                place = np.array([*(known.get(level, -1) for level in cells.levels), -1])[cells.codes]
                rows = np.flatnonzero(place >= 0)
                where, values = place[rows], np.ones(len(rows))
            absent = cells.missing()
            if absent is not None and self.encoding.fills is not None:
                missing = np.flatnonzero(absent)
                there = ~absent[rows]
                filled = np.repeat(missing, stop - start), np.tile(np.arange(stop - start), len(missing))
                means = np.tile(np.array(self.encoding.fills[start:stop]), len(missing))
                rows, where = np.append(rows[there], filled[0]), np.append(where[there], filled[1])
                values = np.append(values[there], means)
                gaps.append(np.stack([filled[0], filled[1] + start], 1))
            pieces.append(csr_array((values, (rows, where)), shape=(block.count, stop - start)))
        X = csr_array(hstack(pieces, format="csr"))
        X.sort_indices()
        found = np.concatenate(gaps)
        return X, found[np.lexsort((found[:, 1], found[:, 0]))]

    def features(self, block: Block) -> Any:
        """The features (rows, d) of a block of a new file, which is checked: a tensor, with text a CSR array."""
        self.check(block)
        if self.encoding.texts:
            return small_indices(self.sparse(block)[0])
        out = np.empty((block.count, self.encoding.width))
        self.write(block, out)
        import torch

        return torch.from_numpy(out)

    def check(self, block: Block) -> None:
        """Refuse rows of a new file that the encoding does not know what to do with; the first is named."""
        wrong = [found for k in range(len(self.positions)) for found in self._wrong(block, k)]
        if not wrong:
            return
        row, k, why = min(wrong)
        spot = block.spot(row, self.positions[k])
        column = self.encoding.columns[k]
        at = f"{spot.place}, column {column.name!r}: "
        if why == "absent":
            mean, means = Option("missing", "mean"), ", which keeps means for such cells"
            raise ParameterError(f"{at}the value is missing; fill it in, or train with ", mean, means)
        said = {
            "word": f"{spot.cell!r} is not a number, as it was in training; correct it, or remove a header that "
            "training did not have",
            "level": f"{spot.cell!r} did not occur in training; known are {listed(column.levels or ())}: "
            "correct it, or train again on data that have it",
            "infinite": f"{spot.cell} is not a finite number; correct it",
        }
        raise ValueError(f"{at}{said[why]}")

    def _wrong(self, block: Block, k: int) -> Iterator[tuple[int, int, str]]:
        cells, known = block.columns[self.positions[k]], self._levels[k]
        absent = cells.missing()
        if absent is not None and self.encoding.fills is None:
            yield int(np.flatnonzero(absent)[0]), k, "absent"
        if self.encoding.columns[k].vocabulary is not None:
            row = None  # a word that is not known is ignored
        elif isinstance(cells, Numbers):
            row = cells.infinite()
        else:
            good = [is_number(level) if known is None else level in known for level in cells.levels]
            bad = np.flatnonzero(~np.array([*good, True])[cells.codes])
            row = int(bad[0]) if len(bad) else None
        if row is not None:
            yield row, k, "infinite" if isinstance(cells, Numbers) else "word" if known is None else "level"


def targets(cells: object, labels: Sequence[str]) -> Array:
    """−1/+1 for two labels, 0 … K−1 for K; 0 for what is none, as in rows that are dropped. Without labels numbers."""
    if not labels and isinstance(cells, Numbers):
        return cells.values
    assert isinstance(cells, Words)
    if not labels:
        return np.array([*(float(level) if is_number(level) else np.nan for level in cells.levels), np.nan])[
            cells.codes
        ]
    codes = codes_of(labels)
    return np.array([codes.get(level, 0) for level in cells.levels], np.int64)[cells.codes]
