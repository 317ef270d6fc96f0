"""A copy of dense samples in eight bits, by which most samples are known to be right without being read."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from torchperc.samples import compiling
from torchperc.samples.parts import PartRows
from torchperc.samples.rows import DenseRows, Rows

_Array: TypeAlias = "np.ndarray[Any, Any]"
LIMIT = 1 / 12
"""The fraction of samples to be read, mistakes among them, above which a pass over the samples themselves is faster."""
AGAIN = 32
"""How many bytes of each feature must still be read in passes to come, for a copy to pay: 4 passes in float64."""
SEGMENT = 2**22
"""Bytes of samples that are encoded, and then presented, at a time."""
_MEMORY = 2  # a copy takes at most half of the memory that is free
_KEPT = 4  # samples that are kept take this fraction, one in so many, of a copy's memory
_WORTH_IT, _ROW = 2**22, 256  # bytes of all samples and of one, below which they are read as fast as their codes
_WIDEST = 2**15  # features, above which weights have too few bits
_PILOT = 256  # samples that are encoded first, to see how many would have to be read
_BLOCK = 2**19  # bytes of samples that are encoded together


def samples_of(rows: Rows) -> _Array | None:
    """All samples as one array from which any can be read, if there is one."""
    if isinstance(rows, PartRows):
        return rows.array
    return rows.plain()[0] if isinstance(rows, DenseRows) else None


def screen_for(rows: Rows, y: _Array, classes: int) -> Screen | None:
    """A screen of samples, where it can pay."""
    X = samples_of(rows)
    if X is None or rows.row_bytes < _ROW or rows.width > _WIDEST or X.nbytes < _WORTH_IT:
        return None
    size = len(rows) * row_bytes(rows.width)
    return Screen(X, y, classes, isinstance(rows, PartRows)) if _MEMORY * size <= compiling.free_memory() else None


def row_bytes(width: int) -> int:
    """The size of the code of a sample of so many features.

    Example:
        >>> row_bytes(100)
        128
    """
    return 16 + -(-width // 16) * 16


class Screen:
    """Codes of samples, the weights in as few bits, and whether few samples had to be read lately.

    Codes are made when they are first needed, a block at a time, by any thread that is free: while one learns by the
    codes of a segment, another makes those of the next.

    Args:
        X: samples (N, d) as compiled loops see them.
        y: labels (N,).
        classes: number of scores K.
        mapped: whether X is larger than memory. Then samples that were read are kept, as they are likely read again,
            and no other thread helps, as none is to read ahead.
    """

    def __init__(self, X: _Array, y: _Array, classes: int, mapped: bool = False) -> None:
        from torchperc.rules.loops import eightbit, screened

        self.X, self._y, self._alone = X, y, mapped
        kept = max(1, min(len(X), len(X) * row_bytes(X.shape[1]) // (_KEPT * X.itemsize * X.shape[1])))
        slots = np.full(len(X) + 1 if mapped else 0, -1, np.int64)
        slots[-1:] = 0
        self.samples = (X, slots, np.empty((kept, X.shape[1]), X.dtype) if mapped else X)
        codes = row_bytes(X.shape[1]) - eightbit.HEAD
        self._weights = (
            np.zeros((1 if classes == 1 else -(-classes // 5) * 5, codes), np.int16),
            np.zeros((classes, screened.SIZES)),
        )
        self._copy: tuple[_Array, _Array] | None = None
        self._block = max(1, _BLOCK // (X.itemsize * X.shape[1]))
        self._made = np.zeros(-(-len(X) // self._block), np.bool_)
        self._next = iter(range(len(self._made)))
        self._begun, self._near = 0, 1.0
        self.open = False

    @property
    def complete(self) -> bool:
        """Whether all codes are made."""
        return bool(self._made.all())

    def consider(self, first: int, end: int, w: _Array, b: _Array, near: _Array, margin: float) -> None:
        """Open the screen if few of samples first to end would have to be read with these weights."""
        from torchperc.rules.loops import eightbit, screened

        step = max(1, (end - first) // _PILOT)
        count = -(-(end - first) // step)
        some = self._empty(count)
        eightbit.encode(self.X, self._y, *some, step, first, end)
        ids = np.arange(count, dtype=np.uint64)
        self.judge(screened.count_open((*some, *self._weights), ids, w, b, margin, near), count)
        if self.open and self._copy is None:
            try:
                self._copy = self._empty(len(self.X))
            except MemoryError:  # less than the system told
                self.open = False
                return
            if compiling.cores() > 1 and not self._alone:
                compiling.other_cores().submit(self._make)

    def judge(self, read: int, count: int) -> None:
        """Open or shut: so many of so many samples had to be read."""
        self.open = read <= LIMIT * count

    def arrays(self, first: int, end: int, make: bool) -> tuple[_Array, ...] | None:
        """What :mod:`torchperc.rules.loops.screened` takes, if codes first to end are there, or can be made now."""
        assert self._copy is not None
        if make:
            self._make(end)
        part = self._made[first // self._block : -(-end // self._block)]
        if make and not part.all():  # another thread is about to have made the last of them
            self._make(end + 2 * self._block)
        return (*self._copy, *self._weights) if part.all() else None

    def keep(self, ids: _Array) -> None:
        """Of samples larger than memory that were just read, keep those nearest to being mistakes."""
        from torchperc.rules.loops.screened import LENGTH, keep_near

        assert self._copy is not None
        sizes, most = self._weights[1], len(ids) * len(self.samples[2]) // (2 * len(self.X))  # room is left for others
        screen = (*self._copy, *self._weights)
        found = keep_near(screen, *self.samples, ids, self._near * float(sizes[:, LENGTH].max()), most)
        self._near *= 0.8 if found >= most else 1.25

    def _empty(self, count: int) -> tuple[_Array, _Array]:
        from torchperc.rules.loops.eightbit import HEAD

        codes = np.empty((count, row_bytes(self.X.shape[1])), np.int8)
        return codes, codes[:, :HEAD].view(np.float32)

    def _make(self, end: int | None = None) -> None:
        """Encode blocks that no other thread has begun with, up to sample ``end``, as long as the screen is open."""
        from torchperc.rules.loops.eightbit import encode

        assert self._copy is not None
        codes, numbers = self._copy
        while self.open and (end is None or self._begun < end):
            block = next(self._next, None)
            if block is None:
                return
            first = block * self._block
            self._begun = last = min(first + self._block, len(self.X))
            encode(self.X, self._y, codes[first:last], numbers[first:last], 1, first, last)
            self._made[block] = True
