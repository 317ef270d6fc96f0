"""Which rows of which files are a process's own: ranges of bytes that begin and end with a line, or ranges of rows."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np

from torchperc import _checks as checks
from torchperc._checks import Option, ParameterError
from torchperc.data.io.opening import Stream
from torchperc.samples import shards

CHUNK = 2**16  # bytes that are read together where a line is looked for
_COUNTED = 2**24  # bytes of which the quotes are counted together
_T = TypeVar("_T")


class Shard(NamedTuple):
    """Which of how many, and whether the other processes read theirs at the same time and say what they find."""

    rank: int = 0
    size: int = 1
    together: bool = False

    def alike(self, step: Callable[[], _T]) -> _T:
        """The result of a step; what fails in one process fails in all of them."""
        return shards.together(step) if self.together else step()


class Range(NamedTuple):
    """Bytes or rows of the file with a number."""

    number: int
    start: int
    stop: int


def shard_of(shard: object) -> Shard:
    """What ``read`` was told: nothing, ``"auto"`` or two numbers.

    Example:
        >>> shard_of(None), shard_of((1, 3))
        (Shard(rank=0, size=1, together=False), Shard(rank=1, size=3, together=False))
    """
    if shard is None:
        return Shard()
    here = shards.here()
    if isinstance(shard, str):
        checks.one_of("shard", shard, ("auto",))
        promised = os.environ.get("WORLD_SIZE", "1")
        if here[1] == 1 and promised not in ("", "1"):
            why = f" finds no process group, although WORLD_SIZE={promised}"
            raise ParameterError(Option("shard", shard), why, "; call torch.distributed.init_process_group first")
        return Shard(*here, here[1] > 1)
    if not isinstance(shard, tuple | list) or len(shard) != 2:
        raise TypeError(f"shard must be None, 'auto' or (rank, size), found {type(shard).__name__} {shard!r}")
    size = checks.whole("shard[1]", shard[1], at_least=1)
    rank = checks.whole("shard[0]", shard[0], at_least=0)
    if rank >= size:
        raise ParameterError(Option("shard", (rank, size)), f" must be a number from 0 to {size - 1}, and {size}")
    return Shard(rank, size, size > 1 and (rank, size) == here)


def ranges(sizes: Sequence[int], shard: Shard) -> list[Range]:
    """What is a shard's own of files of these sizes, as if they were one.

    Example:
        >>> ranges([10, 2, 6], Shard(1, 2))
        [Range(number=0, start=9, stop=10), Range(number=1, start=0, stop=2), Range(number=2, start=0, stop=6)]
    """
    own, begin, found = shards.own_slice(sum(sizes), shard.rank, shard.size), 0, []
    for number, size in enumerate(sizes):
        start, stop = max(own.start - begin, 0), min(own.stop - begin, size)
        if start < stop:
            found.append(Range(number, start, stop))
        begin += size
    return found


def quotes_before(paths: Sequence[Path], own: Sequence[Range], shard: Shard) -> list[tuple[int, int]]:
    """How many quotes a file has before each range begins and before it ends; processes count those in their own."""

    def counted() -> dict[int, int]:
        return {each.number: _quotes(paths[each.number], each.start, each.stop) for each in own}

    if shard.together:
        every = shards.gathered(shard.alike(counted))
        before = [sum(counts.get(each.number, 0) for counts in every[: shard.rank]) for each in own]
        within = every[shard.rank]
    else:
        before, within = [_quotes(paths[each.number], 0, each.start) for each in own], counted()
    return [(count, count + within[each.number]) for count, each in zip(before, own, strict=True)]


def _quotes(path: Path, start: int, stop: int) -> int:
    count = 0
    with Stream(path, None, start=start, stop=stop) as stream:
        while data := stream.read(_COUNTED):
            count += data.count(b'"')
    return count


def lines(path: Path, own: Range, quotes: tuple[int, int] | None = None, end: bytes = b"\n") -> tuple[int, int]:
    """The bytes of the lines that begin in a range; none begins within quotes.

    Args:
        path: a file that is not compressed.
        own: the range.
        quotes: that come before its start and before its stop; ``None`` if quotes are letters as any other.
        end: of a line.
    """
    before_start, before_stop = (None, None) if quotes is None else quotes
    return _line(path, own.start, before_start, end), _line(path, own.stop, before_stop, end)


def _line(path: Path, offset: int, quotes: int | None, end: bytes) -> int:
    """The first byte from ``offset`` on with which a line begins."""
    if not offset:
        return 0
    with Stream(path, None, start=offset - 1) as stream:
        if stream.read(1) == end and not (quotes or 0) % 2:
            return offset
        while data := stream.read(CHUNK):
            text = np.frombuffer(data, np.uint8)
            ends = np.flatnonzero(text == ord(end))
            if quotes is not None:
                marks = np.flatnonzero(text == ord('"'))
                ends = ends[(np.searchsorted(marks, ends) + quotes) % 2 == 0]
                quotes += len(marks)
            if len(ends):
                return offset + int(ends[0]) + 1
            offset += len(data)
    return offset
