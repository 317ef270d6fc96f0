"""From the strings of tokens to numbered binary features, by templates in the syntax of CRF++.

A line that begins with ``U`` is a template: ``U05:%x[-1,0]/%x[0,0]`` gives the feature ``U05:the/dog``. The macros:

- ``%x[r,c]``: the string of column c (from 0), r tokens further on (r < 0: before)
- ``%lower[r,c]``: the same in lower case, as ``str.lower`` has it
- ``%prefix[r,c,n]``, ``%suffix[r,c,n]``: its first or last n characters, all of a shorter string
- ``%shape[r,c]``: X for capital letters, x for other letters, d for digits, any other character as it is, of equal ones
  in a row at most two: ``McCoy-12`` is ``XxXxx-dd``

Beyond the first token of a sentence every macro gives ``_B-1``, ``_B-2``, …, beyond the last ``_B+1``, ``_B+2``, …
Without a macro a template is the same feature in every token (a bias). Templates with the same text around their macros
share their features, as in CRF++: that is how a bag of words is written. ``B`` stands for the pairs of tags, which the
chain always has. Empty lines and those that begin with ``#`` are ignored.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from itertools import chain, count, repeat
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from torchperc.sequences import files
from torchperc.sequences.sequences import Array, Sequences

_ARGUMENTS = {"x": 2, "lower": 2, "prefix": 3, "suffix": 3, "shape": 2}
_MACRO = re.compile(r"%(\w*)(?:\[([^\]]*)\])?")
_REPEATED = re.compile(r"(.)\1{2,}", re.DOTALL)

_DEFAULT = (
    *("%x[0,0]", "%lower[0,0]", *(f"%{kind}[0,0,{length}]" for kind in ("prefix", "suffix") for length in range(1, 5))),
    *("%shape[0,0]", "%lower[-2,0]", "%lower[-1,0]", "%lower[1,0]", "%lower[2,0]", "%shape[-1,0]", "%shape[1,0]"),
    *("%lower[-1,0]/%lower[0,0]", "%lower[0,0]/%lower[1,0]"),
)


class Macro(NamedTuple):
    """A view of the string in a column, ``row`` tokens further on; ``length`` is that of an affix, else 1."""

    kind: str
    row: int
    column: int
    length: int


class Templates:
    """Feature templates in the syntax of CRF++, with the macros of this module.

    Args:
        text: the lines. An error names the file and line.
        name: of the file, for errors.

    Example:
        >>> templates = Templates("U00:%x[0,0]\\nU01:%x[-1,0]/%lower[0,0]\\nB")
        >>> len(templates), templates.columns
        (2, 1)
        >>> Templates("U00:%y[0,0]")
        Traceback (most recent call last):
        ValueError: templates, line 1: unknown macro '%y'; choose one of %x, %lower, %prefix, %suffix, %shape
    """

    def __init__(self, text: str, name: str = "templates") -> None:
        if not isinstance(text, str):
            raise TypeError(f"text must be a string of template lines, found {type(text).__name__}")
        self.text = text
        self.groups: dict[tuple[str, ...], list[tuple[Macro, ...]]] = {}  # by the text around the macros
        for number, line in enumerate(map(str.strip, text.splitlines()), 1):
            where = f"{name}, line {number}"
            if not line or line[0] == "#" or (line[0] == "B" and "%" not in line):
                continue
            if line[0] != "U":
                begins = "U (a template), B alone (pairs of tags) nor # (a comment)"
                raise ValueError(f"{where}: {line!r} begins with neither {begins}")
            texts = _MACRO.split(line)  # text, kind, arguments, text, …
            macros = tuple(map(_macro, texts[1::3], texts[2::3], repeat(where)))
            known = self.groups.setdefault(tuple(texts[::3]), [])
            known += [] if macros in known else [macros]
        if not self.groups:
            raise ValueError(f"{name} has no template; write at least one line such as U00:%x[0,0]")

    @classmethod
    def read(cls, path: str | Path) -> Templates:
        """Templates from a file."""
        return cls("\n".join(line for _, line in files.numbered_lines(path)), str(path))

    @classmethod
    def default(cls, columns: int = 1) -> Templates:
        """The default set for words in column 0, with the values of further columns at −1, 0 and +1.

        Example:
            >>> len(Templates.default(columns=2)) - len(Templates.default())
            3
        """
        rows = (("-1", -1), ("+0", 0), ("+1", 1))
        words = [f"U{number:02}:{macros}" for number, macros in enumerate(_DEFAULT)]
        more = [f"U{column}{place}:%x[{row},{column}]" for column in range(1, columns) for place, row in rows]
        return cls("\n".join(["U:bias", *words, *more]), "the default templates")

    @property
    def macros(self) -> list[Macro]:
        """The macros of all templates, each once."""
        return list(dict.fromkeys(chain.from_iterable(chain.from_iterable(self.groups.values()))))

    @property
    def columns(self) -> int:
        """How many columns are needed at least: one more than the highest column named."""
        return max((macro.column + 1 for macro in self.macros), default=1)

    def __len__(self) -> int:
        return sum(map(len, self.groups.values()))


def _macro(kind: str, arguments: str | None, where: str) -> Macro:
    if kind not in _ARGUMENTS:
        kinds = ", ".join(f"%{each}" for each in _ARGUMENTS)
        raise ValueError(f"{where}: unknown macro '%{kind}'; choose one of {kinds}")
    try:
        row, column, length = (*map(int, (arguments or "").split(",")), *[1] * (3 - _ARGUMENTS[kind]))
    except ValueError:
        row = column = length = -1
    if abs(row) > 100 or not 0 <= column < 1000 or not 1 <= length <= 1000:
        usage = f"%{kind}[row,column{',length' if _ARGUMENTS[kind] == 3 else ''}]"
        limits = "row from -100 to 100, column from 0, length from 1 to 1000"
        raise ValueError(f"{where}: '%{kind}[{arguments}]' is not of the form {usage}, with integers: {limits}")
    return Macro(kind, row, column, length)


@cache
def _mark(letter: str) -> str:
    capital = letter.isupper() or letter.istitle()
    return "X" if capital else "x" if letter.isalpha() else "d" if letter.isdigit() else letter


def shape(text: str) -> str:
    """Return the shape of a word, see above.

    Example:
        >>> shape("McCoy-1984"), shape("Élan…")
        ('XxXxx-dd', 'Xxx…')
    """
    return _REPEATED.sub(r"\1\1", "".join(map(_mark, text)))


def _views(kind: str, length: int, words: Iterable[str]) -> Iterable[str]:
    """What a macro of this kind takes of each word."""
    if kind in ("prefix", "suffix"):
        part = slice(length) if kind == "prefix" else slice(-length, None)
        return [word[part] for word in words]
    return words if kind == "x" else map(str.lower if kind == "lower" else shape, words)


def columns_of(sentences: Sequence[Sequence[Any]], count: int | None = None) -> tuple[list[list[str]], Array]:
    """The strings of the first ``count`` columns (default: all), and the lengths of the sentences.

    Example:
        >>> columns_of([[("a", "D"), ("dog", "N")], [("it", "P")]])
        ([['a', 'dog', 'it'], ['D', 'N', 'P']], array([2, 1]))
    """
    if isinstance(sentences, str) or any(isinstance(sentence, str) for sentence in sentences):
        raise TypeError("sentences must be lists of words or of tuples of strings, found a string; split it first")
    lengths = np.fromiter(map(len, sentences), np.int64, len(sentences))
    if not lengths.all() or not len(lengths):
        which = f"sentence {int(np.argmin(lengths))} is" if len(lengths) else "sentences are"
        raise ValueError(f"{which} empty; leave empty sentences out and give at least one")
    tokens = list(chain.from_iterable(sentences))
    words = set(map(type, tokens)) <= {str, np.str_}
    width, *others = [1] if words else {len(token) if isinstance(token, tuple | list) else 0 for token in tokens}
    columns = range(0 if others else min(count or width, width))
    found = [tokens] if words else [[token[column] for token in tokens] for column in columns]
    if not found or not all(set(map(type, column)) <= {str, np.str_} for column in found):
        raise TypeError("tokens must be words or tuples of strings, all with as many columns")
    if width < (count or 0):
        raise ValueError(f"tokens have {width} column{'s' * (width != 1)}, and {count} are needed")
    return found, lengths


class FeatureMap:
    """Numbers the features that templates give to tokens; those not seen in training are ignored later.

    Views of a string (lower case, affixes, shape) depend on the string alone, so they are made once per distinct word.

    Args:
        templates: what to look at; :meth:`Templates.default` if None, for as many columns as the sentences have.

    Example:
        >>> features = FeatureMap(Templates("U00:%x[0,0]\\nU01:%x[-1,0]/%x[0,0]"))
        >>> X = features.fit_transform([["the", "dog"], ["the", "cat"]])
        >>> features.n_features, X.ids, X.indptr
        (6, array([0, 3, 1, 4, 0, 3, 2, 5], dtype=int32), array([0, 2, 4, 6, 8]))
        >>> features.transform([["a", "dog"]]).ids
        array([1], dtype=int32)
    """

    def __init__(self, templates: Templates | None = None) -> None:
        if templates is not None and not isinstance(templates, Templates):
            raise TypeError(f"templates must be Templates(text) or None, found {type(templates).__name__}")
        self.templates: Any = templates
        self.values: dict[str, int] = {}  # the number of each string that a macro gave
        self.tables: list[list[Array]] = []  # per group of templates: the known values, pairs, triples, … in order

    @property
    def n_features(self) -> int:
        """d, the number of features."""
        return sum(len(tables[-1]) if tables else 1 for tables in self.tables)

    def fit_transform(self, sentences: Sequence[Sequence[Any]]) -> Sequences:
        """Learn which features there are, and return those of each token."""
        columns, lengths = columns_of(sentences, None if self.templates is None else self.templates.columns)
        self.templates = self.templates or Templates.default(len(columns))
        return self.made(columns, lengths, learn=True)

    def transform(self, sentences: Sequence[Sequence[Any]]) -> Sequences:
        """The known features of each token."""
        if self.templates is None or not self.tables:
            raise ValueError("this FeatureMap has seen no sentences; call fit_transform first")
        return self.made(*columns_of(sentences, self.templates.columns), learn=False)

    def made(self, columns: list[list[str]], lengths: Array, learn: bool) -> Sequences:
        """The features of tokens that are given by :func:`columns_of`, which become the known ones if ``learn``."""
        if learn:  # a string that is not known gets the next number
            self.values, self.tables = defaultdict(count().__next__), [[] for _ in self.templates.groups]
        offsets = np.concatenate(([0], lengths.cumsum()))
        seen = self._values(columns, offsets, learn)
        ids = np.empty((len(self.templates), len(columns[0])), np.int32)
        row = base = 0
        for group, tables in zip(self.templates.groups.values(), self.tables, strict=True):
            values = [[seen[macro] for macro in macros] for macros in group]
            for numbers in self._numbers(values, tables, len(columns[0]), learn):
                ids[row] = np.where(numbers < 0, -1, numbers + base)
                row += 1
            base += len(tables[-1]) if tables else 1
        flat, counts = np.ascontiguousarray(ids.T).reshape(-1), (ids >= 0).sum(0)
        return Sequences(offsets, base, np.concatenate(([0], counts.cumsum())), flat if learn else flat[flat >= 0])

    def _values(self, columns: list[list[str]], offsets: Array, learn: bool) -> dict[Macro, Array]:
        """What each macro gives at each token, as the numbers of strings; −1 for one that is not known."""
        macros, values = self.templates.macros, self.values
        before, behind = (max([0, *(sign * macro.row for macro in macros)]) for sign in (-1, 1))
        edges = [f"_B-{row + 1}" for row in range(before)] + [f"_B+{row + 1}" for row in range(behind)]
        places = {word: place for place, word in enumerate(dict.fromkeys(chain(*columns)), len(edges))}
        codes = {}
        for view in dict.fromkeys((macro.kind, macro.length) for macro in macros):
            strings = chain(edges, _views(*view, places))
            found = map(values.__getitem__, strings) if learn else map(values.get, strings, repeat(-1))
            codes[view] = np.fromiter(found, np.int64, len(edges) + len(places))
        if learn:
            self.values = dict(values)  # no string gets a number by being asked for any more
        words = [np.fromiter(map(places.__getitem__, column), np.int64, len(column)) for column in columns]
        lengths, tokens = np.diff(offsets), np.arange(offsets[-1])
        first, stop = np.repeat(offsets[:-1], lengths), np.repeat(offsets[1:], lengths)
        seen = {}
        for macro in macros:
            at, word = tokens + macro.row, words[macro.column]
            there = word[at.clip(0, len(word) - 1)]
            if macro.row < 0:
                there = np.where(at < first, first - at - 1, there)
            elif macro.row > 0:
                there = np.where(at >= stop, before + at - stop, there)
            seen[macro] = codes[macro.kind, macro.length][there]
        return seen

    def _numbers(self, group: list[list[Array]], tables: list[Array], tokens: int, learn: bool) -> list[Array]:
        """The number of each template's feature within its group, at each token; −1 for one that is not known."""
        if not group[0]:
            return [np.zeros(tokens, np.int64)]
        keys: Array = np.zeros((len(group), tokens), np.int64)
        for level in range(len(group[0])):
            value, size = np.stack([values[level] for values in group]), len(self.values)
            keys = np.where((keys < 0) | (value < 0), -1, keys * size + value)
            if learn:  # no need to sort numbers below the number of strings
                tables.append(np.unique(keys) if level else np.flatnonzero(np.bincount(keys.reshape(-1))))
            if not level:
                places = np.full(size + 1, -1)  # the last is that of −1
                places[tables[0]] = np.arange(len(tables[0]))
                keys = places[keys]
            else:
                found = np.searchsorted(tables[level], keys).clip(max=len(tables[level]) - 1)
                keys = np.where(tables[level][found] == keys, found, -1)
        return list(keys)

    def arrays(self) -> dict[str, Array]:
        """Return the tables by name, for a file."""
        return {f"features.{i}.{k}": table for i, each in enumerate(self.tables) for k, table in enumerate(each)}

    @classmethod
    def from_state(cls, templates: str, values: Iterable[str], arrays: Mapping[str, Array]) -> FeatureMap:
        """The map with these templates, values and :meth:`arrays`."""
        made = cls(Templates(templates))
        made.values = {value: number for number, value in enumerate(values)}
        for i, (macros, *_) in enumerate(made.templates.groups.values()):
            made.tables.append([arrays[f"features.{i}.{k}"] for k in range(len(macros))])
        if any(not len(table) or table[0] < 0 for table in chain.from_iterable(made.tables)):
            raise ValueError("a table of its features is empty")
        return made
