"""From the strings of tokens to numbered binary features, by templates in the syntax of CRF++.

======================  ==============================================================================================
macro                   what it stands for
======================  ==============================================================================================
``%x[r,c]``             the string of column c (from 0), r tokens further on (r < 0: before)
``%lower[r,c]``         the same in lower case, as ``str.lower`` has it
``%prefix[r,c,n]``      its first n characters, as ``s[:n]``: all of a shorter string
``%suffix[r,c,n]``      its last n characters, as ``s[-n:]``
``%shape[r,c]``         its shape: X for capital letters, x for other letters, d for digits, any other character as it
                        is, of equal ones in a row at most two: ``McCoy-12`` is ``XxXxx-dd``
======================  ==============================================================================================

Beyond the first token of a sentence every macro gives ``_B-1``, ``_B-2``, …, beyond the last ``_B+1``, ``_B+2``, …

A line that begins with ``U`` is a template: ``U05:%x[-1,0]/%x[0,0]`` gives the feature ``U05:the/dog``. Without a macro
it is the same feature in every token (a bias). Templates with the same text around their macros share their features,
as in CRF++: that is how a bag of words is written. ``B`` stands for the pairs of neighbouring tags, which the chain
always has. Empty lines and those that begin with ``#`` are ignored.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import chain, count, repeat
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from torchperc.sequences.layout import Array, Sequences

_ARGUMENTS = {"x": 2, "lower": 2, "prefix": 3, "suffix": 3, "shape": 2}
_FURTHEST = 100  # tokens that a macro may look away
_MACRO = re.compile(r"%(\w*)(?:\[([^\]]*)\])?")
_RUNS = re.compile(r"(.)\1{2,}", re.DOTALL)

DEFAULT = """\
# the word, its beginnings, endings and shape
U:bias
U00:%x[0,0]
U01:%lower[0,0]
U02:%prefix[0,0,1]
U03:%prefix[0,0,2]
U04:%prefix[0,0,3]
U05:%prefix[0,0,4]
U06:%suffix[0,0,1]
U07:%suffix[0,0,2]
U08:%suffix[0,0,3]
U09:%suffix[0,0,4]
U10:%shape[0,0]
# its neighbours
U11:%lower[-2,0]
U12:%lower[-1,0]
U13:%lower[1,0]
U14:%lower[2,0]
U15:%shape[-1,0]
U16:%shape[1,0]
U17:%lower[-1,0]/%lower[0,0]
U18:%lower[0,0]/%lower[1,0]
# pairs of neighbouring tags
B
"""


class Macro(NamedTuple):
    """A view of the string in a column, ``row`` tokens further on; ``length`` is that of an affix, else 0."""

    kind: str
    row: int
    column: int
    length: int

    @property
    def view(self) -> tuple[str, int]:
        """What is taken of the string, which depends on the string alone."""
        return self.kind, self.length


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
            if line and line[0] not in "#B":
                texts, macros = _parsed(line, f"{name}, line {number}")
                known = self.groups.setdefault(texts, [])
                known += [] if macros in known else [macros]
            elif line.startswith("B") and "%" in line:
                why = "asks for pairs of tags with a macro, which the chain does not have; write B alone"
                raise ValueError(f"{name}, line {number}: {line!r} {why}")
        if not self.groups:
            raise ValueError(f"{name} has no template; write at least one line such as U00:%x[0,0]")

    @classmethod
    def read(cls, path: str | Path) -> Templates:
        """Templates from a file."""
        try:
            return cls(Path(path).read_bytes().decode("utf-8-sig"), str(path))
        except OSError as error:
            raise ValueError(f"cannot read {path}: {error.strerror}") from None
        except UnicodeDecodeError as error:
            line = error.object[: error.start].count(b"\n") + 1
            raise ValueError(f"{path}, line {line}: not valid UTF-8; save the templates as UTF-8") from None

    @classmethod
    def default(cls, columns: int = 1) -> Templates:
        """The default set for words in column 0, with the values of further columns at −1, 0 and +1.

        Example:
            >>> len(Templates.default(columns=2)) - len(Templates.default())
            3
        """
        rows = (("-1", -1), ("+0", 0), ("+1", 1))
        more = [f"U{column}{place}:%x[{row},{column}]" for column in range(1, columns) for place, row in rows]
        return cls("\n".join([DEFAULT, *more]), "the default templates")

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

    def __repr__(self) -> str:
        return f"Templates({self.text!r})"


def _parsed(line: str, where: str) -> tuple[tuple[str, ...], tuple[Macro, ...]]:
    """A template's text before, between and behind its macros, and the macros."""
    if line[0] != "U":
        why = f"{line!r} begins with neither U (a template), B (pairs of tags) nor # (a comment)"
        raise ValueError(f"{where}: {why}; write U00:%x[0,0] for the word itself")
    texts, macros, end = [], [], 0
    for found in _MACRO.finditer(line):
        texts.append(line[end : found.start()])
        macros.append(_macro(found[1], found[2] or "", where))
        end = found.end()
    return (*texts, line[end:]), tuple(macros)


def _macro(kind: str, arguments: str, where: str) -> Macro:
    if kind not in _ARGUMENTS:
        kinds = ", ".join(f"%{each}" for each in _ARGUMENTS)
        raise ValueError(f"{where}: unknown macro '%{kind}'; choose one of {kinds}")
    try:
        row, column, length = (*map(int, arguments.split(",")), *[0] * (3 - _ARGUMENTS[kind]))
    except ValueError:
        usage = f"%{kind}[row,column{',length' if _ARGUMENTS[kind] == 3 else ''}]"
        raise ValueError(f"{where}: '%{kind}[{arguments}]' is not of the form {usage}, with integers in it") from None
    if abs(row) > _FURTHEST:
        raise ValueError(f"{where}: row {row} looks too far away; choose one from -{_FURTHEST} to {_FURTHEST}")
    if not 0 <= column < 1000:
        raise ValueError(f"{where}: there is no column {column}; columns count from 0")
    if _ARGUMENTS[kind] == 3 and not 1 <= length <= 1000:
        raise ValueError(f"{where}: length {length} of a {kind} must be from 1 to 1000")
    return Macro(kind, row, column, length)


class _Marks(dict[int, str]):
    """The mark of each character in a shape, by its code point."""

    def __missing__(self, code: int) -> str:
        letter = chr(code)
        capital = letter.isupper() or letter.istitle()
        self[code] = "X" if capital else "x" if letter.isalpha() else "d" if letter.isdigit() else letter
        return self[code]


_MARKS = _Marks()


def shape(text: str) -> str:
    """The shape of a word: X, x and d for capital letters, other letters and digits, at most two equal marks in a row.

    Example:
        >>> shape("McCoy-1984"), shape("Élan…")
        ('XxXxx-dd', 'Xxx…')
    """
    return _shortened(text.translate(_MARKS))


@lru_cache(2**16)
def _shortened(marks: str) -> str:
    return _RUNS.sub(r"\1\1", marks)


def _views(kind: str, length: int, words: Iterable[str]) -> Iterable[str]:
    """What a macro of this kind takes of each word."""
    if kind == "prefix":
        return [word[:length] for word in words]
    if kind == "suffix":
        return [word[-length:] for word in words]
    return words if kind == "x" else map(str.lower if kind == "lower" else shape, words)


def columns_of(sentences: Sequence[Sequence[Any]], count: int | None = None) -> tuple[list[list[str]], Array]:
    """The strings of each column, and the lengths of sentences of words or of tuples of strings.

    Args:
        sentences: lists of words, or of tuples with a string per column.
        count: how many columns are needed at least; by default all there are.

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
    flat = list(chain.from_iterable(sentences))
    if not isinstance(flat[0], tuple | list):
        flat = [(word,) for word in flat]
    try:
        fewest, most = min(map(len, flat)), max(map(len, flat))
        found = [[token[column] for token in flat] for column in range(most if count is None else min(count, most))]
    except (TypeError, IndexError):
        fewest, most, found = 0, 1, []
    if fewest != most or not all(set(map(type, column)) <= {str, np.str_} for column in found):
        raise TypeError("tokens must be words or tuples of strings, all with as many columns")
    if count is not None and most < count:
        raise ValueError(f"tokens have {most} column{'s' * (most != 1)}, and {count} are needed")
    return found, lengths


class FeatureMap:
    """Numbers the features that templates give to tokens; those not seen in training are ignored later.

    Views of a string (lower case, affixes, shape) depend on the string alone, so they are made once per distinct word.

    Args:
        templates: what to look at; :meth:`Templates.default` if None, for as many columns as the sentences have.

    Example:
        >>> features = FeatureMap(Templates("U00:%x[0,0]\\nU01:%x[-1,0]/%x[0,0]"))
        >>> X = features.fit_transform([["the", "dog"], ["the", "cat"]])
        >>> features.width, X.ids, X.indptr
        (6, array([0, 3, 1, 4, 0, 3, 2, 5], dtype=int32), array([0, 2, 4, 6, 8]))
        >>> features.transform([["a", "dog"]]).ids
        array([1], dtype=int32)
    """

    def __init__(self, templates: Templates | None = None) -> None:
        if templates is not None and not isinstance(templates, Templates):
            raise TypeError(f"templates must be Templates(text) or None, found {type(templates).__name__}")
        self.templates = templates
        self.values: dict[str, int] = {}  # the number of each string that a macro gave
        self.tables: list[list[Array]] = []  # per group of templates: the known values, pairs, triples, … in order

    @property
    def width(self) -> int:
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
        assert self.templates is not None
        if learn:  # a string that is not known gets the next number
            self.values, self.tables = defaultdict(count().__next__), [[] for _ in self.templates.groups]
        offsets = np.concatenate(([0], lengths.cumsum()))
        seen = self._values(columns, offsets, learn)
        ids = np.empty((len(self.templates), len(columns[0])), np.int32)
        row = base = 0
        for group, tables in zip(self.templates.groups.values(), self.tables, strict=True):
            found = self._numbers(
                [[seen[macro] for macro in macros] for macros in group], tables, len(columns[0]), learn
            )
            for numbers in found:
                ids[row] = np.where(numbers < 0, -1, numbers + base)
                row += 1
            base += len(tables[-1]) if tables else 1
        known = np.ascontiguousarray(ids.T)
        counts = (known >= 0).sum(1)
        flat = known.reshape(-1)
        return Sequences(offsets, base, np.concatenate(([0], counts.cumsum())), flat if learn else flat[flat >= 0])

    def _values(self, columns: list[list[str]], offsets: Array, learn: bool) -> dict[Macro, Array]:
        """What each macro gives at each token, as the numbers of strings; −1 for one that is not known."""
        assert self.templates is not None
        macros, values = self.templates.macros, self.values
        before, behind = (max([0, *(sign * macro.row for macro in macros)]) for sign in (-1, 1))
        edges = [f"_B-{row + 1}" for row in range(before)] + [f"_B+{row + 1}" for row in range(behind)]
        places = {word: place for place, word in enumerate(dict.fromkeys(chain(*columns)), len(edges))}
        codes = {}
        for view in dict.fromkeys(macro.view for macro in macros):
            strings = chain(edges, _views(*view, places))
            found = map(values.__getitem__, strings) if learn else map(values.get, strings, repeat(-1))
            codes[view] = np.fromiter(found, np.int64, len(edges) + len(places))
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
            seen[macro] = codes[macro.view][there]
        return seen

    def _numbers(self, group: list[list[Array]], tables: list[Array], tokens: int, learn: bool) -> list[Array]:
        """The number of each template's feature within its group, at each token; −1 for one that is not known."""
        if not group[0]:
            return [np.zeros(tokens, np.int64)]
        keys: Array = np.zeros((len(group), tokens), np.int64)
        for level in range(len(group[0])):
            value, size = np.stack([values[level] for values in group]), len(self.values)
            keys = np.where((keys < 0) | (value < 0), -1, keys * size + value)
            if learn and not level:  # no need to sort numbers below the number of strings
                tables.append(np.flatnonzero(np.bincount(keys.reshape(-1), minlength=size)))
            elif learn:
                tables.append(np.unique(keys))
            if not level:
                places = np.full(size + 1, -1)  # the last is that of −1
                places[tables[0]] = np.arange(len(tables[0]))
                keys = places[keys]
            else:
                found = np.searchsorted(tables[level], keys).clip(max=len(tables[level]) - 1)
                keys = np.where(tables[level][found] == keys, found, -1)
        return list(keys)

    def state(self) -> tuple[dict[str, Array], dict[str, Any]]:
        """Arrays, and what JSON can hold, from which :meth:`from_state` makes the same map."""
        assert self.templates is not None
        tables = {f"{i}.{k}": table for i, each in enumerate(self.tables) for k, table in enumerate(each)}
        return tables, {"templates": self.templates.text, "values": list(self.values)}

    @classmethod
    def from_state(cls, arrays: Mapping[str, Array], rest: Mapping[str, Any]) -> FeatureMap:
        """The map of a :meth:`state`."""
        made = cls(Templates(rest["templates"]))
        assert made.templates is not None
        made.values = {value: number for number, value in enumerate(rest["values"])}
        made.tables = [[arrays[f"{i}.{k}"] for k in range(len(group[0]))]
                       for i, group in enumerate(made.templates.groups.values())]  # fmt: skip
        for table in chain.from_iterable(made.tables):
            if table.dtype != np.int64 or table.ndim != 1 or not len(table) or (np.diff(table) <= 0).any():
                raise ValueError("its features are not in order")
        return made
