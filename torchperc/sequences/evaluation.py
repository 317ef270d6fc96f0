"""How good predicted tags are: accuracy, precision and recall per tag and per entity, the most frequent errors.

Everything is counted on integers: tags are numbered once, then counted in arrays.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from torchperc import _checks as checks

Array = np.ndarray[Any, Any]
SCHEMES = ("IOB1", "IOB2", "IOBES", "BILOU")
_ENTITY_TAG = re.compile(r"O|[BIESLU](?:-.+)?", re.DOTALL)
_OUT, _BEGIN, _INSIDE, _END, _SINGLE = range(5)
_PREFIXES = {"O": _OUT, "B": _BEGIN, "I": _INSIDE, "E": _END, "L": _END, "S": _SINGLE, "U": _SINGLE}
_AROUND = 12  # words of a long sentence that an example shows on each side


class Counts(NamedTuple):
    """How often something was predicted correctly, predicted, and true; a ratio of nothing is 0.

    Example:
        >>> counts = Counts(correct=3, predicted=4, true=6)
        >>> counts.precision, counts.recall, counts.f1
        (0.75, 0.5, 0.6)
    """

    correct: int
    predicted: int
    true: int

    @property
    def precision(self) -> float:
        """Correct ones among the predicted."""
        return self.correct / self.predicted if self.predicted else 0.0

    @property
    def recall(self) -> float:
        """Correct ones among the true."""
        return self.correct / self.true if self.true else 0.0

    @property
    def f1(self) -> float:
        """The harmonic mean of precision and recall."""
        both = self.precision + self.recall
        return 2 * self.precision * self.recall / both if both else 0.0


class Scores(NamedTuple):
    """An average of precision, recall and F1."""

    precision: float
    recall: float
    f1: float


@dataclass(frozen=True, eq=False)
class PerKind:
    """Counts per kind (a tag, or a type of entity), and their averages as the seqeval package reports them.

    Example:
        >>> found = PerKind({"LOC": Counts(1, 1, 2), "PER": Counts(1, 2, 1)})
        >>> found.micro
        Counts(correct=2, predicted=3, true=3)
        >>> found.macro
        Scores(precision=0.75, recall=0.75, f1=0.6666666666666666)
    """

    counts: Mapping[str, Counts]

    @property
    def micro(self) -> Counts:
        """All kinds counted together."""
        return Counts(*(sum(each[k] for each in self.counts.values()) for k in range(3)))

    @property
    def macro(self) -> Scores:
        """The mean over the kinds."""
        return self._average([1] * len(self.counts))

    @property
    def weighted(self) -> Scores:
        """The mean over the kinds, each weighted by how often it is true."""
        return self._average([each.true for each in self.counts.values()])

    def _average(self, weights: list[int]) -> Scores:
        if not sum(weights):
            return Scores(0.0, 0.0, 0.0)
        rows = np.array([(each.precision, each.recall, each.f1) for each in self.counts.values()])
        return Scores(*(float(mean) for mean in np.average(rows, axis=0, weights=weights)))


@dataclass(frozen=True, eq=False)
class Entities(PerKind):
    """Entities per type. One is correct if its type, its first and its last token are.

    Tags that are not well formed are counted as conlleval counts them: an entity begins at ``B-``, and also where its
    type begins after ``O``, after another type or after the end of an entity. With ``strict=True``, only what the
    scheme allows is an entity.

    Args:
        counts: per type of entity.
        scheme: of the true tags, one of ``"IOB1"``, ``"IOB2"`` (also called BIO), ``"IOBES"``, ``"BILOU"``.
        malformed: what is not well formed in the true tags, with its count; nothing with ``"IOB1"``.
        malformed_predictions: the same in the predicted tags.
    """

    scheme: str = "IOB2"
    strict: bool = False
    malformed: Mapping[str, int] = field(default_factory=dict)
    malformed_predictions: Mapping[str, int] = field(default_factory=dict)

    def notes(self) -> Iterator[str]:
        """A sentence for each kind of malformed tags."""
        counted = "ignored, as strict asks" if self.strict else "counted as conlleval counts them"
        if self.strict and self.scheme == "IOB1":
            yield "every sequence of IOB1 tags is well formed, so strict counts as conlleval does"
        for where, found in (("true", self.malformed), ("predicted", self.malformed_predictions)):
            for what, count in found.items():
                one = count == 1
                said = f"{count:,} {where} tag{' ' if one else 's '}{what if one else _PLURAL[what]}"
                yield f"{said}; {'it is' if one else 'they are'} {counted}"


_PLURAL = {
    "begins with I- without a B- before it": "begin with I- without a B- before them",
    "continues an entity that has not begun": "continue an entity that has not begun",
    "begins an entity that does not end": "begin an entity that does not end",
}
_NO_BEGIN_IOB2, _NO_BEGIN, _NO_END = _PLURAL


class Example(NamedTuple):
    """A token with a wrong tag.

    Args:
        sentence: its number, from 0.
        place: of the token in the sentence, from 0.
        first: the place of the first of the words shown.
        words: of the sentence, or of a stretch around the token if it is long.
    """

    sentence: int
    place: int
    first: int
    words: tuple[str, ...]


class Confusion(NamedTuple):
    """One tag taken for another: how often, the words most often concerned with their counts, examples."""

    true: str
    predicted: str
    tokens: int
    words: tuple[tuple[str, int], ...] = ()
    examples: tuple[Example, ...] = ()


@dataclass(frozen=True, eq=False)
class Evaluation:
    """What :func:`evaluate` found.

    Args:
        tags: names of all tags, true and predicted.
        true: numbers of tags (P,): of each pair of a true and a predicted tag that occurs,
        predicted: (P,) the predicted one,
        count: (P,) and how often it occurs.
        sentences: how many sentences there are.
        right_sentences: those without a wrong tag.
        known: tokens whose word occurred in training, as (correct, all); ``None`` if that was not told.
        entities: per type of entity, if the true tags are those of entities.
        worst: the most frequent confusions.
        strange: true tags that the tagger does not know, with their counts; each such token counts as wrong.
    """

    tags: tuple[str, ...]
    true: Array
    predicted: Array
    count: Array
    sentences: int
    right_sentences: int
    known: tuple[int, int] | None = None
    entities: Entities | None = None
    worst: tuple[Confusion, ...] = ()
    strange: Mapping[str, int] = field(default_factory=dict)

    @property
    def tokens(self) -> int:
        """How many tokens there are."""
        return int(self.count.sum())

    @property
    def correct(self) -> int:
        """How many of them have the right tag."""
        return int(self.count[self.true == self.predicted].sum())

    @property
    def accuracy(self) -> float:
        """The fraction of tokens with the right tag."""
        return self.correct / self.tokens

    @property
    def unknown(self) -> tuple[int, int] | None:
        """Tokens whose word did not occur in training, as (correct, all)."""
        return None if self.known is None else (self.correct - self.known[0], self.tokens - self.known[1])

    @property
    def per_tag(self) -> PerKind:
        """Precision, recall and F1 per tag."""
        size, same = len(self.tags), self.true == self.predicted
        columns = (
            np.bincount(self.true[same], self.count[same], size),
            np.bincount(self.predicted, self.count, size),
            np.bincount(self.true, self.count, size),
        )
        rows = np.stack(columns, axis=1).astype(np.int64).tolist()
        return PerKind({tag: Counts(*row) for tag, row in zip(self.tags, rows, strict=True)})

    @property
    def confusion(self) -> Array:
        """The confusion matrix (K, K): true tags in rows, predicted tags in columns."""
        matrix = np.zeros((len(self.tags), len(self.tags)), np.int64)
        matrix[self.true, self.predicted] = self.count
        return matrix


def evaluate(
    true: Sequence[Sequence[str]],
    predicted: Sequence[Sequence[str]],
    words: Sequence[Sequence[str]] | None = None,
    *,
    strict: bool = False,
    worst: int = 20,
) -> Evaluation:
    """Compare predicted tags with true ones.

    Args:
        true: the tags of each sentence.
        predicted: the same number of sentences and tags.
        words: the words of each sentence, for examples of errors.
        strict: see :class:`Entities`.
        worst: how many confusions are listed.

    Example:
        >>> true = [["B-PER", "I-PER", "O", "B-LOC"], ["O", "B-LOC"]]
        >>> predicted = [["B-PER", "I-PER", "O", "B-ORG"], ["O", "B-LOC"]]
        >>> found = evaluate(true, predicted)
        >>> found.accuracy, found.entities.scheme, found.entities.micro
        (0.8333333333333334, 'IOB2', Counts(correct=2, predicted=3, true=3))
        >>> found.worst[0][:3]
        ('B-LOC', 'B-ORG', 1)
    """
    lengths = [len(sentence) for sentence in true]
    for name, other in (("predicted", predicted), ("words", words)):
        if other is not None and [len(sentence) for sentence in other] != lengths:
            why = "differ in sentences or tokens; give one per token of each sentence"
            raise ValueError(f"{name} and true {why}")
    for tag in chain.from_iterable((*true, *predicted)):
        if not isinstance(tag, str):
            raise TypeError(f"tags must be strings, found {type(tag).__name__} {tag!r}")
    numbers: dict[str, int] = {}
    own, others = (
        np.array([numbers.setdefault(tag, len(numbers)) for tag in chain.from_iterable(tags)], np.int64)
        for tags in (true, predicted)
    )
    flat = None if words is None else list(chain.from_iterable(words))
    return evaluate_codes(
        own,
        others,
        tuple(numbers),
        np.concatenate(([0], np.cumsum(np.array(lengths, np.int64)))),
        word=None if flat is None else flat.__getitem__,
        strict=strict,
        worst=worst,
    )


def evaluate_codes(
    true: Array,
    predicted: Array,
    tags: Sequence[str],
    offsets: Array,
    *,
    word: Callable[[int], str] | None = None,
    known: Array | None = None,
    strange: int | None = None,
    strict: bool = False,
    worst: int = 20,
) -> Evaluation:
    """:func:`evaluate` on numbers of tags.

    Args:
        true: (T,) numbers of tags.
        predicted: (T,).
        tags: the names of the numbers.
        offsets: (N + 1,) of the sentences: tokens of sentence i are ``offsets[i]:offsets[i + 1]``.
        word: the word of a token by its number, for examples.
        known: (T,) whether its word occurred in training.
        strange: the number of the first tag that the tagger does not know, if it knows those before it.
        strict: see :class:`Entities`.
        worst: how many confusions are listed.
    """
    checks.flag("strict", strict)
    checks.whole("worst", worst, at_least=0)
    if not len(true):
        raise ValueError("there are no tokens to evaluate; give at least one sentence")
    size, right = len(tags), true == predicted
    pairs, count = np.unique(true * size + predicted, return_counts=True)
    wrong_before = np.concatenate(([0], np.cumsum(~right)))[offsets]
    starts, ends = offsets[:-1], offsets[1:]
    right_sentences = int(((np.diff(wrong_before) == 0) & (ends > starts)).sum())
    lost = {tags[k]: int((true == k).sum()) for k in range(size if strange is None else strange, size)}
    return Evaluation(
        tuple(tags),
        pairs // size,
        pairs % size,
        count,
        sentences=int((ends > starts).sum()),
        right_sentences=right_sentences,
        known=None if known is None else (int((right & known).sum()), int(known.sum())),
        entities=count_entities(true, predicted, tags, offsets, strict=strict)
        if are_entities([tags[k] for k in np.unique(true)])
        else None,
        worst=tuple(
            _confusion(pair // size, pair % size, n, true, predicted, tags, offsets, word)
            for pair, n in _most_frequent(pairs, count, size, worst)
        ),
        strange={tag: n for tag, n in sorted(lost.items(), key=lambda each: -each[1]) if n},
    )


def _most_frequent(pairs: Array, count: Array, size: int, most: int) -> list[tuple[int, int]]:
    """The most frequent pairs of two different tags, and how often they occur."""
    wrong = np.flatnonzero(pairs // size != pairs % size)
    first = wrong[np.argsort(-count[wrong], kind="stable")][:most]
    return list(zip(pairs[first].tolist(), count[first].tolist(), strict=True))


def _confusion(
    own: int,
    other: int,
    count: int,
    true: Array,
    predicted: Array,
    tags: Sequence[str],
    offsets: Array,
    word: Callable[[int], str] | None,
) -> Confusion:
    if word is None:
        return Confusion(tags[own], tags[other], count)
    places = np.flatnonzero((true == own) & (predicted == other))
    words = Counter(map(word, places.tolist())).most_common(5)
    examples = tuple(_example(int(place), offsets, word) for place in places[:3])
    return Confusion(tags[own], tags[other], count, tuple(words), examples)


def _example(token: int, offsets: Array, word: Callable[[int], str]) -> Example:
    sentence = int(np.searchsorted(offsets, token, side="right")) - 1
    begin, end = int(offsets[sentence]), int(offsets[sentence + 1])
    first, last = max(begin, token - _AROUND), min(end, token + _AROUND + 1)
    return Example(sentence, token - begin, first - begin, tuple(map(word, range(first, last))))


# --- entities ---


def are_entities(tags: Sequence[str]) -> bool:
    """Whether tags are those of entities: ``O`` and tags such as ``B-PER``, or plain ``B`` and ``I`` beside ``O``.

    Example:
        >>> are_entities(["O", "B-PER", "I-PER"]), are_entities(["B", "I", "O"]), are_entities(["NN", "O"])
        (True, True, False)
    """
    typed = any("-" in tag for tag in tags)
    plain = {"O", "B"} <= set(tags) or {"O", "I"} <= set(tags)
    return (typed or plain) and all(_ENTITY_TAG.fullmatch(tag) for tag in tags)


class _Kinds(NamedTuple):
    """Tags as what they say: where in an entity a token is, and the type of the entity."""

    prefix: Array  # (T,)
    kind: Array  # (T,)
    before: Array  # (T,) the prefix of the token before, outside at the beginning of a sentence
    after: Array  # (T,)
    same_before: Array  # (T,) whether the token before is of the same type and in the same sentence
    same_after: Array


def _kinds(codes: Array, prefixes: Array, types: Array, first: Array, last: Array) -> _Kinds:
    prefix, kind = prefixes[codes], types[codes]
    before, after = np.roll(prefix, 1), np.roll(prefix, -1)
    before[first], after[last] = _OUT, _OUT
    same = kind[1:] == kind[:-1]
    same_before, same_after = np.append(False, same), np.append(same, False)
    same_before[first], same_after[last] = False, False
    return _Kinds(prefix, kind, before, after, same_before & (before != _OUT), same_after & (after != _OUT))


def _spans(tags: _Kinds, strict: bool, closed: bool) -> Array:
    """Entities (E, 3): type, first token, last token. ``closed``: of a scheme that marks the last token, too."""
    prefix, inside = tags.prefix, tags.prefix != _OUT
    fresh = np.isin(tags.before, (_OUT, _END, _SINGLE)) | ~tags.same_before
    begins = inside & (np.isin(prefix, (_BEGIN, _SINGLE)) | fresh)
    ends = inside & (np.isin(prefix, (_END, _SINGLE)) | np.isin(tags.after, (_OUT, _BEGIN, _SINGLE)) | ~tags.same_after)
    start, end = np.flatnonzero(begins), np.flatnonzero(ends)
    if strict:
        proper = np.isin(prefix[start], (_BEGIN, _SINGLE))
        if closed:
            proper &= np.where(start == end, prefix[start] == _SINGLE, prefix[end] == _END)
        start, end = start[proper], end[proper]
    return np.stack((tags.kind[start], start, end), axis=1)


def count_entities(
    true: Array, predicted: Array, tags: Sequence[str], offsets: Array, *, strict: bool = False
) -> Entities:
    """Count entities on numbers of tags, see :func:`evaluate_codes`; other tags than those of entities are outside."""
    split = [_split(tag) for tag in tags]
    names = sorted({name for prefix, name in split if prefix != _OUT})
    number = {name: k for k, name in enumerate(names)}
    prefixes = np.array([prefix for prefix, _ in split])
    types = np.array([number.get(name, -1) for _, name in split])
    there = offsets[:-1] < offsets[1:]
    first, last = offsets[:-1][there], offsets[1:][there] - 1
    both = [_kinds(codes, prefixes, types, first, last) for codes in (true, predicted)]
    scheme = _scheme([tags[k] for k in np.unique(true)], both[0])
    closed = scheme in ("IOBES", "BILOU")
    strict_here = strict and scheme != "IOB1"  # by which every sequence of tags means something
    spans = [_spans(kinds, strict_here, closed) for kinds in both]
    correct = {tuple(span) for span in spans[0].tolist()} & {tuple(span) for span in spans[1].tolist()}
    size = len(names)
    columns = (
        np.bincount(np.array([kind for kind, _, _ in correct], np.int64), minlength=size),
        *(np.bincount(each[:, 0], minlength=size) for each in reversed(spans)),
    )
    rows = np.stack(columns, axis=1).tolist()
    counts = {name: Counts(*row) for name, row in zip(names, rows, strict=True) if any(row)}
    return Entities(counts, scheme, strict, _malformed(both[0], scheme), _malformed(both[1], scheme))


def _split(tag: str) -> tuple[int, str]:
    """A tag as prefix and type; ``_`` is the type of a tag without one, as in seqeval."""
    if not _ENTITY_TAG.fullmatch(tag):
        return _OUT, ""
    return _PREFIXES[tag[0]], tag[2:] or "_"


def _scheme(used: Sequence[str], tags: _Kinds) -> str:
    """The scheme of the true tags, by the prefixes used, and IOB1 if ``B-`` only parts two entities of one type."""
    letters = {tag[0] for tag in used}
    if letters & {"L", "U"}:
        return "BILOU"
    if letters & {"E", "S"}:
        return "IOBES"
    parting = tags.same_before[tags.prefix == _BEGIN]
    begun = (tags.prefix == _INSIDE) & ~tags.same_before
    return "IOB1" if parting.all() and begun.any() else "IOB2"


def _malformed(tags: _Kinds, scheme: str) -> dict[str, int]:
    if scheme == "IOB1":
        return {}
    goes_on = tags.same_before & np.isin(tags.before, (_BEGIN, _INSIDE))
    found = {}
    lost = int((np.isin(tags.prefix, (_INSIDE, _END)) & ~goes_on).sum())
    if lost:
        found[_NO_BEGIN_IOB2 if scheme == "IOB2" else _NO_BEGIN] = lost
    if scheme != "IOB2":
        ends = tags.same_after & np.isin(tags.after, (_INSIDE, _END))
        left = int((np.isin(tags.prefix, (_BEGIN, _INSIDE)) & ~ends).sum())
        if left:
            found[_NO_END] = left
    return found
