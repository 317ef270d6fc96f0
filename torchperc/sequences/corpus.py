"""Tokens with their columns, as bytes that compiled loops read: what every format becomes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Any, TypeAlias

import numpy as np

from torchperc import _checks as checks

Array: TypeAlias = np.ndarray[Any, Any]


@dataclass(frozen=True, eq=False)
class Column:
    """One string per token, such as its word or its tag.

    Args:
        name: the column's name, if the format has names.
        data: the strings one after the other, in UTF-8. Shape (B,), uint8.
        ends: where each string ends: string i is ``data[ends[i - 1] : ends[i]]``. Shape (T,), int64.

    Example:
        >>> Column.of(["a", "dög", "c"]).strings()
        ['a', 'dög', 'c']
    """

    name: str | None
    data: Array
    ends: Array

    def __post_init__(self) -> None:
        data, ends = self.data, self.ends
        if not (isinstance(data, np.ndarray) and data.dtype == np.uint8 and data.ndim == 1):
            raise TypeError("data must be a numpy array of uint8 with one dimension")
        if not (isinstance(ends, np.ndarray) and ends.dtype == np.int64 and ends.ndim == 1):
            raise TypeError("ends must be a numpy array of int64 with one dimension")
        if len(ends) and (ends[0] < 0 or ends[-1] > len(data) or bool((ends[1:] < ends[:-1]).any())):
            raise ValueError(f"ends must rise from 0 to at most {len(data)}, the number of bytes")

    @classmethod
    def of(cls, strings: Iterable[str], name: str | None = None) -> Column:
        """A column of these strings."""
        found = list(strings)
        try:
            coded = [text.encode() for text in found]
        except (AttributeError, UnicodeEncodeError):
            for number, text in enumerate(found):
                _check_string(number, text)
            raise
        ends = np.fromiter(accumulate(map(len, coded)), np.int64, len(coded))
        return cls(name, np.frombuffer(bytearray(b"".join(coded)), np.uint8), ends)

    def __len__(self) -> int:
        return len(self.ends)

    @cached_property
    def starts(self) -> Array:
        """Where each string begins. Shape (T,), int64."""
        starts = np.zeros_like(self.ends)
        starts[1:] = self.ends[:-1]
        return starts

    def strings(self) -> list[str]:
        """All strings."""
        whole = self.data.tobytes()
        if whole.isascii():
            text, bounds = whole.decode("ascii"), self.ends.tolist()
            return [text[start:stop] for start, stop in zip([0, *bounds], bounds, strict=False)]
        bounds = self.ends.tolist()
        return [whole[start:stop].decode() for start, stop in zip([0, *bounds], bounds, strict=False)]

    def taken(self, first: int, stop: int) -> Column:
        """The strings from ``first`` to ``stop``, on the same memory where that is possible."""
        begin = int(self.ends[first - 1]) if first else 0
        end = int(self.ends[stop - 1]) if stop > first else begin
        return Column(self.name, self.data[begin:end], self.ends[first:stop] - begin)


def _check_string(number: int, text: object) -> None:
    if not isinstance(text, str):
        raise TypeError(f"token {number} must be a string, found {type(text).__name__} {text!r}")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError(
            f"token {number} is {text!r}, which has half a surrogate pair and no UTF-8; decode its file as UTF-8"
        ) from None


@dataclass(frozen=True, eq=False)
class Corpus:
    """Sentences of tokens, each token with one string per column.

    Args:
        columns: at least one, all of T tokens.
        offsets: the tokens of sentence i are ``offsets[i]`` to ``offsets[i + 1]``. Shape (N + 1,), int64.
        name: of the file, for messages.
        lines: the line of each token in that file, counted from 1. Shape (T,), int64.

    Example:
        >>> corpus = Corpus.of([[("the", "DT"), ("dog", "NN")], [("run", "VB")]])
        >>> len(corpus), corpus.tokens, corpus.strings(0), corpus.strings(-1)
        (2, 3, ['the', 'dog', 'run'], ['DT', 'NN', 'VB'])
        >>> corpus.take([1]).strings(0)
        ['run']
    """

    columns: tuple[Column, ...]
    offsets: Array
    name: str = "the corpus"
    lines: Array | None = None

    def __post_init__(self) -> None:
        if not self.columns:
            raise ValueError("columns is empty; a corpus needs at least one, the words")
        count = len(self.columns[0])
        for number, column in enumerate(self.columns):
            if len(column) != count:
                raise ValueError(
                    f"column {number} has {len(column)} tokens and column 0 has {count}; all need the same"
                )
        offsets = self.offsets
        if not (isinstance(offsets, np.ndarray) and offsets.dtype == np.int64 and offsets.ndim == 1 and len(offsets)):
            raise TypeError("offsets must be a numpy array of int64 with one dimension and at least one number")
        if offsets[0] != 0 or offsets[-1] != count or bool((offsets[1:] < offsets[:-1]).any()):
            raise ValueError(f"offsets must rise from 0 to {count}, the number of tokens")
        if bool((offsets[1:] == offsets[:-1]).any()):
            empty = int((offsets[1:] == offsets[:-1]).argmax())
            raise ValueError(f"sentence {empty} of {self.name} is empty; leave empty sentences out")
        if self.lines is not None and len(self.lines) != count:
            raise ValueError(f"lines has {len(self.lines)} numbers for {count} tokens; it needs one per token")

    @classmethod
    def of(cls, sentences: Iterable[Iterable[Any]], *, names: Sequence[str] | None = None, name: str = "X") -> Corpus:
        """A corpus of lists of strings, or of lists of tuples of strings with one string per column.

        Args:
            sentences: a list of sentences, each a list of at least one token.
            names: the columns' names.
            name: what to call the corpus in messages.
        """
        rows = [list(_listed(sentence, number, name)) for number, sentence in enumerate(sentences)]
        offsets = np.zeros(len(rows) + 1, np.int64)
        np.cumsum([len(row) for row in rows], out=offsets[1:])
        tokens = [token for row in rows for token in row]
        single = not tokens or isinstance(tokens[0], str)
        width = (len(names) if names and not tokens else 1) if single else len(_fields(tokens[0], 0, name))
        if names is not None and len(names) != width:
            raise ValueError(f"names has {len(names)} names for {width} columns; it needs one per column")
        if single and width == 1:
            return cls((Column.of(tokens, names[0] if names else None),), offsets, name)
        for number, token in enumerate(tokens):
            found = len(_fields(token, number, name))
            if found != width:
                why = f"has {found} column{'s' * (found != 1)} and token 0 has {width}; all need the same"
                raise ValueError(f"token {number} of {name} {why}")
        columns = tuple(
            Column.of((token[number] for token in tokens), names[number] if names else None) for number in range(width)
        )
        return cls(columns, offsets, name)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __repr__(self) -> str:
        return f"Corpus({self.name}: {len(self)} sentences, {self.tokens} tokens, {len(self.columns)} columns)"

    @property
    def tokens(self) -> int:
        """T, the number of tokens."""
        return len(self.columns[0])

    @property
    def lengths(self) -> Array:
        """The number of tokens of each sentence. Shape (N,), int64."""
        return np.diff(self.offsets)

    def column(self, which: int | str) -> Column:
        """A column by its name or by its number, counted from 0, or from the end by −1, −2, …"""
        return self.columns[self.number(which)]

    def number(self, which: int | str) -> int:
        """The number of a column from 0, by its name or its number."""
        names = [column.name for column in self.columns]
        if isinstance(which, str):
            if which in names:
                return names.index(which)
            known = ", ".join(name for name in names if name) or "no column of it has a name; use its number"
            raise ValueError(f"{self.name} has no column {which!r}, found {known}")
        if isinstance(which, bool) or not isinstance(which, (int, np.integer)):
            raise TypeError(f"column must be a name or an integer, found {type(which).__name__} {which!r}")
        if not -len(names) <= which < len(names):
            raise ValueError(f"{self.name} has {len(names)} columns, so there is no column {which}; they count from 0")
        return int(which) % len(names)

    def strings(self, which: int | str = 0) -> list[str]:
        """The strings of a column, one per token."""
        return self.column(which).strings()

    def sentences(self, which: int | str = 0) -> list[list[str]]:
        """The strings of a column, one list per sentence."""
        strings, bounds = self.strings(which), self.offsets.tolist()
        return [strings[start:stop] for start, stop in pairwise(bounds)]

    def take(self, index: slice | Sequence[int] | Array) -> Corpus:
        """Some sentences: a slice, which shares memory where it has step 1, or their numbers or a mask."""
        if isinstance(index, slice):
            first, stop, step = index.indices(len(self))
            if step == 1:
                return self._run(first, max(first, stop))
            index = np.arange(len(self))[index]
        chosen = _numbers(index, len(self))
        starts, lengths = self.offsets[chosen], self.lengths[chosen]
        offsets = np.zeros(len(chosen) + 1, np.int64)
        np.cumsum(lengths, out=offsets[1:])
        tokens = _ranges(starts, lengths)
        columns = []
        for column in self.columns:
            sizes = (column.ends - column.starts)[tokens]
            columns.append(Column(column.name, column.data[_ranges(column.starts[tokens], sizes)], np.cumsum(sizes)))
        return Corpus(tuple(columns), offsets, self.name, None if self.lines is None else self.lines[tokens])

    def _run(self, first: int, stop: int) -> Corpus:
        begin, end = int(self.offsets[first]), int(self.offsets[stop])
        lines = None if self.lines is None else self.lines[begin:end]
        columns = tuple(column.taken(begin, end) for column in self.columns)
        return Corpus(columns, self.offsets[first : stop + 1] - begin, self.name, lines)

    def blocks(self, tokens: int = 100_000) -> Iterable[Corpus]:
        """The corpus in pieces of at most so many tokens, or of one longer sentence."""
        checks.whole("tokens", tokens, at_least=1)
        first = 0
        while first < len(self):
            stop = int(np.searchsorted(self.offsets, self.offsets[first] + tokens, "right")) - 1
            stop = min(max(stop, first + 1), len(self))
            yield self._run(first, stop)
            first = stop

    @classmethod
    def joined(cls, corpora: Sequence[Corpus]) -> Corpus:
        """Several corpora with the same columns as one, in their order.

        Example:
            >>> Corpus.joined([Corpus.of([["a"]]), Corpus.of([["b", "c"]])]).sentences()
            [['a'], ['b', 'c']]
        """
        if not corpora:
            raise ValueError("corpora is empty; give at least one")
        if len(corpora) == 1:
            return corpora[0]
        width = len(corpora[0].columns)
        for corpus in corpora:
            if len(corpus.columns) != width:
                raise ValueError(
                    f"{corpus.name} has {len(corpus.columns)} columns and {corpora[0].name} has {width}; "
                    "choose the same ones with columns="
                )
        columns = []
        for number, first in enumerate(corpora[0].columns):
            pieces = [corpus.columns[number] for corpus in corpora]
            bytes_before = accumulate((int(piece.ends[-1]) if len(piece) else 0 for piece in pieces), initial=0)
            ends = [piece.ends + before for piece, before in zip(pieces, bytes_before, strict=False)]
            data = [piece.data[: int(piece.ends[-1]) if len(piece) else 0] for piece in pieces]
            columns.append(Column(first.name, np.concatenate(data), np.concatenate(ends)))
        before = accumulate((corpus.tokens for corpus in corpora), initial=0)
        offsets = [corpus.offsets[:-1] + start for corpus, start in zip(corpora, before, strict=False)]
        total = np.array([sum(corpus.tokens for corpus in corpora)])
        lines = [corpus.lines for corpus in corpora if corpus.lines is not None]
        whole = len(lines) == len(corpora) and len({corpus.name for corpus in corpora}) == 1
        return cls(
            tuple(columns),
            np.concatenate([*offsets, total]),
            corpora[0].name if len({corpus.name for corpus in corpora}) == 1 else f"{corpora[0].name} and others",
            np.concatenate(lines) if whole else None,
        )


def _listed(sentence: object, number: int, name: str) -> Iterable[Any]:
    if isinstance(sentence, (str, bytes)) or not isinstance(sentence, Iterable):
        raise TypeError(
            f"sentence {number} of {name} must be a list of tokens, found {type(sentence).__name__} {sentence!r}; "
            "split it into words first"
        )
    return sentence


def _fields(token: object, number: int, name: str) -> Sequence[str]:
    if not isinstance(token, (tuple, list)) or not token:
        raise TypeError(
            f"token {number} of {name} must be a tuple of strings, one per column, found "
            f"{type(token).__name__} {token!r}"
        )
    return token


def _numbers(index: Sequence[int] | Array, count: int) -> Array:
    numbers = np.asarray(index)
    if numbers.dtype == bool:
        if numbers.shape != (count,):
            raise ValueError(
                f"index is a mask of shape {numbers.shape} for {count} sentences; it needs one per sentence"
            )
        return np.flatnonzero(numbers)
    if numbers.ndim != 1 or (numbers.size and numbers.dtype.kind not in "iu"):
        raise TypeError(f"index must be a slice, a mask or a list of integers, found {index!r}")
    numbers = numbers.astype(np.int64)
    if numbers.size and (numbers.min() < -count or numbers.max() >= count):
        raise ValueError(f"index goes from {numbers.min()} to {numbers.max()}, but there are {count} sentences")
    return np.where(numbers < 0, numbers + count, numbers)


def _ranges(starts: Array, lengths: Array) -> Array:
    """All integers of some ranges, one range after the other."""
    ends = np.cumsum(lengths)
    numbers: Array = np.arange(int(ends[-1]) if len(ends) else 0)
    numbers += np.repeat(starts - (ends - lengths), lengths)
    return numbers
