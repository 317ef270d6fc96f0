"""Features that the caller has made: a dictionary or a list of strings per token, as crfsuite takes them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from torchperc import _checks as checks
from torchperc.sequences.corpus import Array, Column
from torchperc.sequences.layout import Sequences
from torchperc.sequences.tables import VERSION, checked_ids, different_ids, known_state, state_strings


class DictFeatures:
    """Features from one dictionary or list of strings per token, as sklearn-crfsuite and python-crfsuite take them.

    =================================  =====================================================
    in the dictionary                  feature
    =================================  =====================================================
    ``"word": "dog"``                  ``word:dog`` = 1
    ``"title": True``                  ``title`` = 1; False and 0 are no feature
    ``"length": 3.5``                  ``length`` = 3.5
    ``"ends": ["g", "og"]``, a set     ``ends:g`` = 1, ``ends:og`` = 1
    ``"prev": {"word": "the"}``        ``prev:word:the`` = 1, and so on inside of it
    =================================  =====================================================

    A list of strings instead of a dictionary has each of them with 1. Features are numbered by first occurrence, those
    that are unknown at ``transform`` are ignored; one that a token has twice counts twice.

    Args:
        cutoff: features that occur in fewer places of the data of ``fit`` are dropped.

    Example:
        >>> features = DictFeatures()
        >>> X = features.fit_transform([[{"word": "the"}, {"word": "dog", "length": 3}]])
        >>> features.names(), X.ids, X.values
        (['word:the', 'word:dog', 'length'], array([0, 1, 2], dtype=int32), array([1., 1., 3.]))
    """

    def __init__(self, *, cutoff: int = 1) -> None:
        self.cutoff = checks.whole("cutoff", cutoff, at_least=1)
        self._numbers: dict[str, int] | None = None

    @property
    def width(self) -> int:
        """d, the number of features."""
        return len(self._known())

    def _known(self) -> dict[str, int]:
        if self._numbers is None:
            raise ValueError("this DictFeatures has seen no data; call fit or fit_transform first")
        return self._numbers

    def fit(self, X: Iterable[Iterable[Any]]) -> DictFeatures:
        """Learn which features there are."""
        self.fit_transform(X)
        return self

    def fit_transform(self, X: Iterable[Iterable[Any]]) -> Sequences:
        """Learn which features there are, and return those of each token."""
        self._numbers = None
        return self.fit_more(X)

    def fit_more(self, X: Iterable[Iterable[Any]]) -> Sequences:
        """Learn the features of further data as well; those known keep their numbers, new ones come behind them."""
        numbers = dict(self._numbers or {})
        known = len(numbers)
        ids, values, indptr, offsets = self._read(X, lambda name: numbers.setdefault(name, len(numbers)))
        if not numbers:
            raise ValueError("X has no features: every dictionary is empty")
        if self.cutoff > 1:
            kept = np.bincount(ids, minlength=len(numbers)) >= self.cutoff
            kept[:known] = True
            if not kept.any():
                raise checks.ParameterError(
                    checks.Option("cutoff", self.cutoff), " drops every feature: none occurs that often; lower it"
                )
            renumbered = np.where(kept, np.cumsum(kept) - 1, -1)
            numbers = {name: int(renumbered[old]) for name, old in numbers.items() if kept[old]}
            there = kept[ids]
            indptr = np.concatenate([[0], np.cumsum(there)])[indptr]
            ids, values = renumbered[ids[there]].astype(np.int32), values[there]
        self._numbers = numbers
        return self._sequences(ids, values, indptr, offsets)

    def transform(self, X: Iterable[Iterable[Any]]) -> Sequences:
        """The features of each token; those that are unknown are ignored."""
        known = self._known()
        return self._sequences(*self._read(X, known.get))

    def _sequences(self, ids: Array, values: Array, indptr: Array, offsets: Array) -> Sequences:
        binary = bool((values == 1).all())
        return Sequences(offsets, self.width, indptr=indptr, ids=ids, values=None if binary else values)

    def _read(
        self, X: Iterable[Iterable[Any]], number: Callable[[str], int | None]
    ) -> tuple[Array, Array, Array, Array]:
        ids: list[int] = []
        values: list[float] = []
        indptr, offsets = [0], [0]
        for sentence, tokens in enumerate(X):
            for position, token in enumerate(tokens):
                for name, value in _pairs(token, sentence, position):
                    found = number(name)
                    if found is not None:
                        ids.append(found)
                        values.append(value)
                indptr.append(len(ids))
            offsets.append(len(indptr) - 1)
        return np.array(ids, np.int32), np.array(values, np.float64), np.array(indptr), np.array(offsets)

    def names(self, ids: Sequence[int] | Array | None = None) -> list[str]:
        """Features in words; all of them if ``ids`` is None."""
        names = list(self._known())
        if ids is None:
            return names
        return [names[number] for number in checked_ids(ids, self.width)]

    def reduced(self, numbers: Sequence[int] | Array) -> DictFeatures:
        """Only the features with these numbers, which are numbered in that order."""
        found = DictFeatures(cutoff=self.cutoff)
        found._numbers = {name: number for number, name in enumerate(self.names(different_ids(numbers, self.width)))}
        return found

    def state(self) -> tuple[dict[str, Array], str]:
        """Arrays, and JSON with the rest: what :meth:`from_state` needs, for a safetensors file."""
        column = Column.of(self._known())
        rest = {"kind": "dicts", "version": VERSION, "cutoff": self.cutoff}
        return {"strings": column.data, "bounds": np.concatenate([[0], column.ends])}, json.dumps(rest)

    @classmethod
    def from_state(cls, arrays: dict[str, Array], rest: str) -> DictFeatures:
        """The features that :meth:`state` was called on; a ``ValueError`` if the state is damaged."""
        found = cls(cutoff=known_state(rest, "dicts")["cutoff"])
        data, bounds = state_strings(arrays)
        try:
            names = Column(None, data, bounds[1:]).strings()
        except UnicodeDecodeError:
            names = []
        found._numbers = {name: number for number, name in enumerate(names)}
        if len(found._numbers) != len(bounds) - 1:
            raise ValueError("the names of the features are damaged; train again")
        return found


def _pairs(token: Any, sentence: int, position: int) -> Iterator[tuple[str, float]]:
    """The features of a token with their values."""
    if isinstance(token, Mapping):
        for key, value in token.items():
            if type(value) is str and type(key) is str:  # by far the most
                yield f"{key}:{value}", 1.0
            else:
                yield from _flat(key, value, sentence, position)
    elif isinstance(token, (list, tuple, set, frozenset)) and all(isinstance(name, str) for name in token):
        for name in sorted(token) if isinstance(token, (set, frozenset)) else token:
            yield name, 1.0
    else:
        raise TypeError(
            f"token {position} of sentence {sentence} must be a dictionary or a list of strings, found "
            f"{type(token).__name__} {token!r}"
        )


def _flat(key: Any, value: Any, sentence: int, position: int) -> Iterator[tuple[str, float]]:
    where = f"token {position} of sentence {sentence}"
    if not isinstance(key, str):
        raise TypeError(f"{where} has the key {key!r}; keys must be strings, found {type(key).__name__}")
    if isinstance(value, str):
        yield f"{key}:{value}", 1.0
    elif isinstance(value, (bool, np.bool_)):
        if value:
            yield key, 1.0
    elif isinstance(value, (int, float, np.integer, np.floating)):
        try:
            number = checks.number(key, value)
        except ValueError:
            raise ValueError(
                f"feature {key!r} of token {position} in sentence {sentence} is {value}; it must be finite"
            ) from None
        if number:
            yield key, number
    elif isinstance(value, Mapping):
        for inner, each in value.items():
            yield from _flat(f"{key}:{inner}", each, sentence, position)
    elif isinstance(value, (list, tuple, set, frozenset)) and all(isinstance(name, str) for name in value):
        for name in sorted(value) if isinstance(value, (set, frozenset)) else value:
            yield f"{key}:{name}", 1.0
    else:
        raise TypeError(
            f"{key!r} of {where} must be a string, a number, True or False, a list of strings or a dictionary, found "
            f"{type(value).__name__} {value!r}"
        )
