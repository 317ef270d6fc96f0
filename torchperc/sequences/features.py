"""From the strings of tokens to numbered features, by templates."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from torchperc import _checks as checks
from torchperc.samples.compiling import threads
from torchperc.sequences import feature_loops as loops
from torchperc.sequences.corpus import Array, Column, Corpus
from torchperc.sequences.layout import Sequences
from torchperc.sequences.tables import (
    LARGEST,
    VERSION,
    Dictionary,
    Strings,
    checked_ids,
    different_ids,
    grown,
    known_state,
    state_array,
    state_strings,
    within,
)
from torchperc.sequences.templates import Templates, View

_MOST_WORDS = 2**18  # different words that are remembered from one block to the next

Resolve = Callable[[Array, Array, Array], Array]


class _Plan:
    """Templates as the compiled loops want them: see there."""

    def __init__(self, templates: Templates) -> None:
        lines = templates.lines
        parts = [part for line in lines for part in line.parts]
        self.views = tuple(dict.fromkeys(part.view for part in parts))
        places = tuple(dict.fromkeys((part.row, part.column) for part in parts))
        self.width = max(1, *(len(line.parts) for line in lines))
        self.columns = templates.columns
        self.left, self.right = max([0, *(-row for row, _ in places)]), max([0, *(row for row, _ in places)])
        texts = ["\0".join(line.texts) for line in lines]
        self.texts = tuple(dict.fromkeys(texts))
        counts = np.array([len(line.parts) for line in lines], np.int64)
        numbered = np.zeros((len(lines), self.width, 2), np.int64)
        for f, line in enumerate(lines):
            for p, part in enumerate(line.parts):
                numbered[f, p] = places.index((part.row, part.column)), self.views.index(part.view)
        self.templates, self.cells = len(lines), int((counts < 2).sum())
        patterns = np.array([self.texts.index(text) for text in texts], np.int64)
        rest = (counts, np.cumsum(counts < 2) - 1, numbered)
        self.numbers = (np.array(places, np.int64).reshape(-1, 2), patterns, *rest)
        column = Column.of(self.texts)
        self.hashes = (self.numbers[0], _hashed(column.data, column.starts, column.ends)[patterns], *rest)

    @property
    def boundaries(self) -> list[str]:
        """What stands before and behind a sentence, by increasing distance."""
        return [f"_B-{row + 1}" for row in range(self.left)] + [f"_B+{row + 1}" for row in range(self.right)]


# --- what is looked at of a word ---


class _Marks(dict[int, str]):
    """The mark of each character in a shape, by its code point."""

    def __missing__(self, code: int) -> str:
        letter = chr(code)
        mark = letter
        if letter.isupper() or letter.istitle():
            mark = "X"
        elif letter.isalpha():
            mark = "x"
        elif letter.isdigit():
            mark = "d"
        self[code] = mark
        return mark


_MARKS = _Marks()
_RUNS = re.compile(r"(.)\1{2,}", re.DOTALL)


def shape(text: str) -> str:
    """The shape of a word: X, x and d for capital letters, other letters and digits, at most two equal marks in a row.

    Example:
        >>> shape("McCoy-1984"), shape("Élan…")
        ('XxXxx-dd', 'Xxx…')
    """
    return _RUNS.sub(r"\1\1", text.translate(_MARKS))


def _viewed(view: View, data: Array, starts: Array, stops: Array) -> tuple[Array, Array, Array]:
    """A view of each string: bytes, and where each begins and ends in them."""
    if view.kind == "x":
        return data, starts, stops
    begins, ends = np.empty_like(starts), np.empty_like(stops)
    if view.kind in ("prefix", "suffix"):
        loops.affixes(data, starts, stops, view.length, view.kind == "suffix", begins, ends)
        return data, begins, ends
    out, other = np.empty(len(data), np.uint8), np.empty(len(starts), bool)
    loops.ascii_forms(data, starts, stops, view.kind == "shape", out, begins, ends, other)
    beyond = np.flatnonzero(other)
    if len(beyond):  # Unicode's own rules, once per word
        form = shape if view.kind == "shape" else str.lower
        whole = data.tobytes()
        words = [
            form(whole[starts[i] : stops[i]].decode(errors="surrogateescape")).encode(errors="surrogateescape")
            for i in beyond.tolist()
        ]
        sizes = np.array([len(word) for word in words])
        ends[beyond] = len(out) + np.cumsum(sizes)
        begins[beyond] = ends[beyond] - sizes
        out = np.concatenate([out, np.frombuffer(b"".join(words), np.uint8)])
    return out, begins, ends


class _Words:
    """The different words met so far, with the value of each view (its number or its hash) and one cell per template.

    Rows 0, 1, … of ``values`` and ``cells`` are what stands before and behind a sentence, then come the words.
    """

    def __init__(self, plan: _Plan, resolve: Resolve | None) -> None:
        self.plan, self._resolve, self._hashed = plan, resolve or _hashed, resolve is None
        self.strings = Strings()
        edge = Column.of(plan.boundaries)
        self.count = len(edge)
        self._empty = 0 if self._hashed else loops.UNSEEN
        size, kind = max(2**8, self.count), np.uint64 if self._hashed else np.int32
        self.values = np.zeros((size, max(1, len(plan.views))), kind)
        self.cells = np.full((size, max(1, plan.cells)), self._empty, kind)
        if len(edge):
            self.values[: len(edge)] = self._resolve(edge.data, edge.starts, edge.ends)[:, None]
            self._fill(0)

    @property
    def arrays(self) -> tuple[Array, Array]:
        return self.values, self.cells

    def _grow(self) -> None:
        before = len(self.cells)
        self.values, self.cells = grown(self.values, self.count), grown(self.cells, self.count)
        self.cells[before:] = self._empty

    def _fill(self, before: int) -> None:
        if self._hashed:
            loops.hash_cells(before, self.count, self.plan.hashes, self.arrays)

    def types(self, columns: Sequence[Column]) -> Array:
        """The row of each token's string, (columns, T); new words get theirs."""
        before, edges = self.strings.count, self.plan.left + self.plan.right
        types = np.empty((len(columns), len(columns[0])), np.int32)
        for number, column in enumerate(columns):
            types[number] = self.strings.add(column.data, column.starts, column.ends)
        types += np.int32(edges)
        self.count = edges + self.strings.count
        self._grow()
        starts, stops = (
            self.strings.ends[before : self.strings.count],
            self.strings.ends[before + 1 : self.strings.count + 1],
        )
        begin = int(starts[0]) if len(starts) else 0
        data = self.strings.data[begin : int(self.strings.ends[self.strings.count])]
        for number, view in enumerate(self.plan.views):
            self.values[edges + before : self.count, number] = self._resolve(
                *_viewed(view, data, starts - begin, stops - begin)
            )
        self._fill(edges + before)
        return types


# --- features by templates ---


class FeatureMap:
    """Binary features of tokens by templates: an exact dictionary of those seen, or a fixed number of buckets.

    Feature j of a token is 1 if one of the templates gives it there, else 0. Without ``buckets``, features are numbered
    by first occurrence (in the order of the tokens, then of the templates) and those that are unknown later are
    ignored. With ``buckets``, the number of a feature is the upper bits of its 64-bit hash (see
    :mod:`torchperc.sequences.feature_loops`), which is the same everywhere; different features may share a bucket, and
    :attr:`collisions` says how many did in the corpus of ``fit``. A feature that a token has twice counts twice.

    Args:
        templates: what to look at; :meth:`Templates.default` if None, for as many columns as the corpus has.
        buckets: a power of two, at least 2; ``None`` for the exact dictionary.
        cutoff: features that occur fewer times in the corpus of ``fit`` are dropped. Not with buckets.

    Example:
        >>> features = FeatureMap(Templates("U00:%x[0,0]\\nU01:%x[-1,0]/%x[0,0]"))
        >>> X = features.fit_transform(Corpus.of([["the", "dog"], ["the", "cat"]]))
        >>> features.width, X.ids, X.indptr
        (6, array([0, 1, 2, 3, 0, 1, 4, 5], dtype=int32), array([0, 2, 4, 6, 8]))
        >>> features.names([0, 3])
        ['U00:the', 'U01:the/dog']
        >>> features.transform(Corpus.of([["a", "dog"]])).ids
        array([2], dtype=int32)
    """

    def __init__(self, templates: Templates | None = None, *, buckets: int | None = None, cutoff: int = 1) -> None:
        if templates is not None and not isinstance(templates, Templates):
            raise TypeError(f"templates must be Templates(text) or None, found {type(templates).__name__}")
        if buckets is not None and (
            checks.whole("buckets", buckets, at_least=2) & (buckets - 1) or buckets > LARGEST + 1
        ):
            near = 2 ** min(31, buckets.bit_length())
            raise checks.ParameterError(
                checks.Option("buckets", buckets), f" must be a power of two up to 2**31, such as {near}"
            )
        self.templates, self.buckets = templates, buckets
        self.cutoff = checks.whole("cutoff", cutoff, at_least=1)
        if buckets is not None and cutoff > 1:
            raise checks.ParameterError(
                checks.Option("cutoff", cutoff), " needs the dictionary, which hashing replaces; leave one out"
            )
        self._collisions: int | None = None
        self._forget()

    def _forget(self) -> None:
        self._plan: _Plan | None = None
        self._table: Dictionary | None = None
        self._words: _Words | None = None
        self._renumbered: Array | None = None
        self._lock = threading.Lock()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_lock": None, "_words": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        known = f", {self.width} features" if self._plan is not None else ""
        return f"FeatureMap(buckets={self.buckets}, cutoff={self.cutoff}{known})"

    @property
    def width(self) -> int:
        """d, the number of features or buckets."""
        self._fitted()
        return self.buckets if self._table is None else self._table.count  # type: ignore[return-value]

    @property
    def collisions(self) -> int | None:
        """How many different features of the fitted corpus share their bucket; ``None`` without buckets."""
        self._fitted()
        return self._collisions

    def _fitted(self) -> _Plan:
        if self._plan is None:
            raise ValueError("this FeatureMap has seen no corpus; call fit or fit_transform first")
        return self._plan

    # --- learning ---

    def fit(self, corpus: Corpus | Iterable[Corpus], columns: Sequence[int | str] | None = None) -> FeatureMap:
        """Learn which features there are, from a corpus or its blocks, one after the other."""
        for _ in self._learned(corpus, columns, None, keep=False):
            pass
        return self

    def fit_transform(self, corpus: Corpus | Iterable[Corpus], columns: Sequence[int | str] | None = None) -> Sequences:
        """Learn which features there are, and return those of each token.

        Args:
            corpus: a corpus, or an iterator of its blocks, which are read once.
            columns: names or numbers of the columns that the templates count from 0; all if None.
        """
        return self._joined(self._learned(corpus, columns, None, keep=True))

    def fit_more(self, corpus: Corpus | Iterable[Corpus], columns: Sequence[int | str] | None = None) -> Sequences:
        """Learn the features of a further corpus as well, and return those of each of its tokens.

        Features known before keep their numbers; new ones are numbered behind them, by first occurrence, if they
        occur at least ``cutoff`` times here. Buckets stay what they are, and :attr:`collisions` those of ``fit``.

        Example:
            >>> features = FeatureMap(Templates("U:%x[0,0]")).fit(Corpus.of([["a", "b"]]))
            >>> features.fit_more(Corpus.of([["c", "b"]])).ids, features.names()
            (array([2, 1], dtype=int32), ['U:a', 'U:b', 'U:c'])
        """
        if self._plan is None:
            return self.fit_transform(corpus, columns)
        if self._table is None:
            return self._joined(
                (X.ids, X.indptr, X.offsets) for X in (self.transform(block, columns) for block in _blocks(corpus))
            )
        return self._joined(self._learned(corpus, columns, self._table, keep=True))

    def _joined(self, blocks: Iterable[tuple[Any, ...]]) -> Sequences:
        found = list(blocks)
        ids, indptr, offsets = (_chain([piece[k] for piece in found], shift=k > 0) for k in range(3))
        if self._renumbered is not None:
            ids = ids[: loops.keep_features(ids, indptr, self._renumbered)]
        return Sequences(offsets, self.width, indptr=indptr, ids=ids)

    def _learned(
        self,
        corpus: Corpus | Iterable[Corpus],
        columns: Sequence[int | str] | None,
        known: Dictionary | None,
        keep: bool,
    ) -> Iterator[tuple[Array, Array, Array]]:
        """Ids, indptr and offsets of each block, numbered before the cut-off; after the last, the map is fitted."""
        plan: _Plan | None = None
        learner: _Learning | _Hashing | None = None
        templates = self.templates
        for block in _blocks(corpus):
            if plan is None or learner is None:
                templates = templates or Templates.default(len(block.columns if columns is None else columns))
                plan = _Plan(templates)
                learner = _Hashing(plan, self.buckets) if self.buckets else _Learning(plan, self.cutoff, known)
            yield (*learner.block(_chosen(block, columns, plan.columns), block.offsets, keep), block.offsets)
        if plan is None or learner is None:
            raise ValueError("corpus is empty; give at least one block")
        table: Dictionary | None = None
        renumbered: Array | None = None
        if isinstance(learner, _Hashing):
            self._collisions = learner.collisions()
        else:
            table, renumbered = learner.finished()
            if not table.count:
                raise checks.ParameterError(
                    checks.Option("cutoff", self.cutoff), " drops every feature: none occurs that often; lower it"
                )
        self._forget()
        self.templates, self._plan, self._table, self._renumbered = templates, plan, table, renumbered

    # --- new corpora ---

    def transform(
        self, corpus: Corpus, columns: Sequence[int | str] | None = None, *, n_jobs: int | None = None
    ) -> Sequences:
        """The features of each token; those that are unknown are ignored.

        Args:
            corpus: with the columns that the templates name.
            columns: names or numbers of the columns that the templates count from 0; all if None.
            n_jobs: threads; −1 for all cores, ``None`` for one.
        """
        plan, jobs = self._fitted(), threads(n_jobs, 1)
        chosen = _chosen(corpus, columns, plan.columns)
        with self._lock:  # new words are remembered
            if self._words is None or self._words.strings.count > _MOST_WORDS:
                self._words = _Words(plan, None if self._table is None else self._table.strings.find)
            types = self._words.types(chosen)
            known = self._words.arrays  # a larger one may take their place, but these stay right
        bounds = [corpus.tokens * number // jobs for number in range(jobs + 1)]

        def work(first: int, stop: int) -> tuple[Array, Array]:
            where = _where(plan, types, corpus.offsets, first, stop)
            return self._stretch(plan, where, known)

        if jobs == 1 or corpus.tokens < 2 * jobs:
            ids, indptr = work(0, corpus.tokens)
        else:
            with ThreadPoolExecutor(jobs) as pool:
                found = list(pool.map(work, bounds[:-1], bounds[1:]))
            ids, indptr = (_chain([piece[k] for piece in found], shift=k > 0) for k in range(2))
        return Sequences(corpus.offsets, self.width, indptr=indptr, ids=ids)

    def _stretch(self, plan: _Plan, where: tuple[Any, ...], words: tuple[Array, Array]) -> tuple[Array, Array]:
        """Ids and indptr of the tokens from first to stop."""
        _, _, first, stop, *_ = where
        ids = np.empty((stop - first) * plan.templates, np.int32)
        if self._table is None:
            loops.hash_features(where, plan.hashes, words, _shift(self.width), ids)
            return ids, np.arange(0, len(ids) + 1, plan.templates)
        indptr, nothing = np.zeros(stop - first + 1, np.int64), np.zeros(0, np.int64)
        table = (self._table.slots, self._table.keys, 0, False, nothing)
        _, _, n, _ = loops.number_features(where, plan.numbers, words, *table, ids, 0, indptr[1:])
        return ids[:n], indptr

    # --- names and state ---

    def names(self, ids: Sequence[int] | Array | None = None) -> list[str]:
        """Features in words, such as ``U05:the/dog``; all of them if ``ids`` is None."""
        plan = self._fitted()
        if self._table is None:
            raise ValueError("hashed features have no names, as several share a bucket; leave buckets= out")
        numbers = np.arange(self.width) if ids is None else checked_ids(ids, self.width)
        texts, text = [pattern.split("\0") for pattern in plan.texts], self._table.strings.text
        return [
            texts[key[0]][0]
            + "".join(text(value) + texts[key[0]][p + 1] for p, value in enumerate(key[1:]) if value >= 0)
            for key in self._table.keys[numbers].tolist()
        ]

    def reduced(self, numbers: Sequence[int] | Array) -> FeatureMap:
        """A map of only the features with these numbers, which are numbered in that order.

        Example:
            >>> features = FeatureMap(Templates("U:%x[0,0]")).fit(Corpus.of([["a", "b", "c"]]))
            >>> features.reduced([2, 0]).names()
            ['U:c', 'U:a']
        """
        plan = self._fitted()
        if self._table is None:
            raise ValueError("hashed features cannot be reduced: the hash chooses the bucket; leave buckets= out")
        kept = different_ids(numbers, self.width)
        found = FeatureMap(self.templates, cutoff=self.cutoff)
        found._plan, found._table = plan, self._table.reduced(kept)
        return found

    def state(self) -> tuple[dict[str, Array], str]:
        """Arrays, and JSON with the rest: what :meth:`from_state` needs, for a safetensors file.

        Example:
            >>> features = FeatureMap(Templates("U00:%x[0,0]")).fit(Corpus.of([["a", "b"]]))
            >>> arrays, text = features.state()
            >>> sorted(arrays), FeatureMap.from_state(arrays, text).names()
            (['bounds', 'keys', 'strings'], ['U00:a', 'U00:b'])
        """
        self._fitted()
        assert self.templates is not None
        rest = {
            "kind": "templates",
            "version": VERSION,
            "templates": self.templates.text,
            "name": self.templates.name,
            "buckets": self.buckets,
            "cutoff": self.cutoff,
            "collisions": self._collisions,
        }
        arrays: dict[str, Array] = {}
        if self._table is not None:
            strings = self._table.strings
            arrays = {
                "strings": strings.data[: strings.ends[strings.count]].copy(),
                "bounds": strings.ends[: strings.count + 1].copy(),
                "keys": self._table.keys[: self._table.count].copy(),
            }
        return arrays, json.dumps(rest)

    @classmethod
    def from_state(cls, arrays: dict[str, Array], rest: str) -> FeatureMap:
        """The map that :meth:`state` was called on; a ``ValueError`` if the state is damaged."""
        known = known_state(rest, "templates")
        found = cls(Templates(known["templates"], known["name"]), buckets=known["buckets"], cutoff=known["cutoff"])
        plan = _Plan(found.templates)  # type: ignore[arg-type]
        if found.buckets is None:
            strings, keys = state_strings(arrays), state_array(arrays, "keys", np.int32, 2)
            values = keys[:, 1:]
            if keys.shape[1] != plan.width + 1 or not (
                within(keys[:, 0], 0, len(plan.texts)) and within(values, -1, len(strings[1]) - 1)
            ):
                raise ValueError("the features do not fit their templates: the file is damaged; train again")
            found._table = Dictionary(plan.width, Strings(*strings), keys)
        found._plan, found._collisions = plan, known["collisions"]
        return found


class _Learning:
    """Numbers the features of one block after the other by first occurrence."""

    def __init__(self, plan: _Plan, cutoff: int, known: Dictionary | None) -> None:
        self.plan, self._cutoff = plan, cutoff
        self.table = Dictionary(plan.width) if known is None else known.copy()
        self.seen = np.full(max(2**8, self.table.count) if cutoff > 1 else 0, cutoff, np.int64)  # those known stay
        self.seen[self.table.count :] = 0
        self._words = _Words(plan, self.table.strings.add)

    def finished(self) -> tuple[Dictionary, Array | None]:
        """The features that occur often enough, and their numbers by those so far if some do not."""
        count = self.table.count
        kept = self.seen[:count] >= self._cutoff if self._cutoff > 1 else np.ones(count, bool)
        numbers = None if kept.all() else np.where(kept, np.cumsum(kept) - 1, -1).astype(np.int32)
        return self.table.reduced(np.flatnonzero(kept)), numbers

    def block(self, columns: Sequence[Column], offsets: Array, keep: bool) -> tuple[Array, Array]:
        """Ids and indptr of a block's tokens; empty if they are not to be kept."""
        plan, table = self.plan, self.table
        if self._words.strings.count > 8 * _MOST_WORDS:
            self._words = _Words(plan, table.strings.add)
        types = self._words.types(columns)
        tokens = types.shape[1]
        ids, indptr = np.empty(tokens * plan.templates, np.int32), np.zeros(tokens + 1, np.int64)
        token = n = 0
        while token < tokens:
            table.grow(loops.BATCH * plan.templates)
            if len(self.seen):
                self.seen = grown(self.seen, len(table.keys))
            where = _where(plan, types, offsets, token, tokens)
            into = (table.slots, table.keys, table.count, True, self.seen)
            token, table.count, n, _ = loops.number_features(
                where, plan.numbers, self._words.arrays, *into, ids, n, indptr[token + 1 :]
            )
        return (ids, indptr) if keep else (ids[:0], indptr[:1])


class _Hashing:
    """Hashes the features of one block after the other, and collects the hashes to count collisions."""

    def __init__(self, plan: _Plan, buckets: int) -> None:
        self.plan, self._buckets = plan, buckets
        self._words = _Words(plan, None)
        self._used = np.zeros((0, max(1, plan.cells)), bool)
        self._table, self._count = np.zeros(2**12, np.uint64), 0

    def block(self, columns: Sequence[Column], offsets: Array, keep: bool) -> tuple[Array, Array]:
        """Ids and indptr of a block's tokens; empty if they are not to be kept."""
        plan = self.plan
        if self._words.strings.count > 8 * _MOST_WORDS:
            self._words = _Words(plan, None)
            self._used[:] = False
        types, words = self._words.types(columns), self._words.arrays
        self._used = grown(self._used, self._words.count)
        tokens, token = types.shape[1], 0
        while token < tokens:
            while 2 * (self._count + plan.templates) > len(self._table):
                table = np.zeros(2 * len(self._table), np.uint64)
                loops.place_hashes(self._table, table)
                self._table = table
            where = _where(plan, types, offsets, token, tokens)
            token, self._count = loops.collect_hashes(where, plan.hashes, words, self._used, self._table, self._count)
        if not keep:
            return np.empty(0, np.int32), np.zeros(1, np.int64)
        ids = np.empty(tokens * plan.templates, np.int32)
        loops.hash_features(_where(plan, types, offsets, 0, tokens), plan.hashes, words, _shift(self._buckets), ids)
        return ids, np.arange(0, len(ids) + 1, plan.templates)

    def collisions(self) -> int:
        """How many different features share their bucket with another."""
        _, sharing = np.unique(self._table[self._table > 0] >> _shift(self._buckets), return_counts=True)
        return int(sharing[sharing > 1].sum())


def _hashed(data: Array, starts: Array, stops: Array) -> Array:
    out = np.empty(len(starts), np.uint64)
    loops.hashes(data, starts, stops, out)
    return out


def _where(plan: _Plan, types: Array, offsets: Array, first: int, stop: int) -> tuple[Any, ...]:
    """Which tokens the compiled loops are to look at, with the sentence of the first."""
    sentence = min(int(np.searchsorted(offsets, first, "right")) - 1, max(0, len(offsets) - 2))
    return types, offsets, first, stop, sentence, plan.left


def _shift(buckets: int) -> np.uint64:
    return np.uint64(65 - buckets.bit_length())


def _blocks(corpus: Corpus | Iterable[Corpus]) -> Iterator[Corpus]:
    for block in [corpus] if isinstance(corpus, Corpus) else corpus:
        if not isinstance(block, Corpus):
            raise TypeError(
                f"corpus must be a Corpus or an iterable of them, found {type(block).__name__}; "
                "make one with Corpus.of(sentences)"
            )
        yield block


def _chosen(corpus: Corpus, columns: Sequence[int | str] | None, needed: int) -> list[Column]:
    if not isinstance(corpus, Corpus):
        raise TypeError(f"corpus must be a Corpus, found {type(corpus).__name__}; make one with Corpus.of(sentences)")
    chosen = list(corpus.columns) if columns is None else [corpus.column(which) for which in columns]
    if len(chosen) < needed:
        raise ValueError(
            f"the templates name column {needed - 1}, counted from 0, but {corpus.name} has {len(chosen)} "
            f"column{'s' * (len(chosen) != 1)} for them"
        )
    return chosen[:needed]


def _chain(pieces: Sequence[Array], shift: bool) -> Array:
    """Arrays one after the other; those of bounds begin where the one before ends."""
    if len(pieces) == 1:
        return pieces[0]
    if not shift:
        return np.concatenate(pieces)
    before = np.cumsum([0, *(piece[-1] for piece in pieces)])
    return np.concatenate([pieces[0][:1], *(piece[1:] + start for piece, start in zip(pieces, before, strict=False))])
