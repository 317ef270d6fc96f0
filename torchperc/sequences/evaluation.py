"""How good predicted tags are: accuracy, on known and unknown words, entities as the seqeval package counts them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple, TypeAlias

Tags: TypeAlias = Sequence[Sequence[str]]  # of each sentence
_ENTITY_TAG = re.compile(r"O|[BIESLU](?:-.+)?", re.DOTALL)


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
        """The fraction of the predicted that is correct."""
        return self.correct / self.predicted if self.predicted else 0.0

    @property
    def recall(self) -> float:
        """The fraction of the true that is found."""
        return self.correct / self.true if self.true else 0.0

    @property
    def f1(self) -> float:
        """The harmonic mean of precision and recall."""
        return 2 * self.correct / (self.predicted + self.true) if self.correct else 0.0


@dataclass(frozen=True)
class Evaluation:
    """What :func:`evaluate` found.

    Args:
        correct: tokens with the right tag.
        tokens: all of them.
        right_sentences: sentences without a wrong tag.
        sentences: all of them.
        known: tokens whose word occurred in training, as (correct, all); ``None`` if that was not told.
        entities: counts per type of entity, if the true tags are those of entities; ``None`` if not.
        confusions: (true tag, predicted tag, tokens) of different tags, the most frequent first.
    """

    correct: int
    tokens: int
    right_sentences: int
    sentences: int
    known: tuple[int, int] | None
    entities: dict[str, Counts] | None
    confusions: tuple[tuple[str, str, int], ...]

    @property
    def accuracy(self) -> float:
        """The fraction of tokens with the right tag."""
        return self.correct / self.tokens

    @property
    def unknown(self) -> tuple[int, int] | None:
        """Tokens whose word did not occur in training, as (correct, all)."""
        return None if self.known is None else (self.correct - self.known[0], self.tokens - self.known[1])

    @property
    def all_entities(self) -> Counts | None:
        """All types of entities counted together (the micro average)."""
        counts = self.entities
        return None if counts is None else Counts(*map(sum, zip((0, 0, 0), *counts.values(), strict=True)))

    def __str__(self) -> str:
        """The figures, a line each, accuracy first."""
        lines = [f"accuracy {_percent(self.accuracy)} ({self.correct:,} of {self.tokens:,} tokens)"]
        others = {"known words": self.known, "unknown words": self.unknown}
        others["sentences without an error"] = (self.right_sentences, self.sentences)
        for name, (correct, count) in ((name, pair) for name, pair in others.items() if pair is not None):
            lines.append(f"{name} {_percent(correct / (count or 1))} ({correct:,} of {count:,})")
        for name, each in {"all": self.all_entities, **(self.entities or {})}.items():
            if each is not None:
                shown = "precision {}, recall {}, F1 {}".format(*map(_percent, (each.precision, each.recall, each.f1)))
                counted = f"{each.correct:,} correct, {each.predicted:,} predicted, {each.true:,} true"
                lines.append(f"entities, {name}: {shown} ({counted})")
        if self.confusions:
            some = ", ".join(f"{true} {said} {count:,}" for true, said, count in self.confusions[:10])
            lines.append(f"most frequent confusions (true, predicted, tokens): {some}")
        return "\n".join(lines)


def _percent(fraction: float) -> str:
    return f"{100 * fraction:.2f} %"


def evaluate(true: Tags, predicted: Tags, words: Tags | None = None, known: Collection[str] = ()) -> Evaluation:
    """Compare predicted tags with true ones.

    Args:
        true: the tags of each sentence.
        predicted: as many.
        words: the words of each sentence, if known and unknown ones are to be told apart.
        known: the words of training.

    Example:
        >>> true = [["B-PER", "I-PER", "O", "B-LOC"], ["O", "B-LOC"]]
        >>> found = evaluate(true, [["B-PER", "I-PER", "O", "B-ORG"], ["O", "B-LOC"]])
        >>> found.accuracy, found.all_entities, found.entities["PER"].f1
        (0.8333333333333334, Counts(correct=2, predicted=3, true=3), 1.0)
        >>> print(evaluate([["a", "b"], ["a"]], [["a", "a"], ["a"]]))
        accuracy 66.67 % (2 of 3 tokens)
        sentences without an error 50.00 % (1 of 2)
        most frequent confusions (true, predicted, tokens): b a 1
    """
    lengths = [len(sentence) for sentence in true]
    for name, other in (("predicted", predicted), ("words", words)):
        if other is not None and [len(sentence) for sentence in other] != lengths:
            raise ValueError(f"{name} and true differ in sentences or tokens; give one per token of each sentence")
    if not sum(lengths):
        raise ValueError("true has no tokens to evaluate; give at least one sentence")
    tokens = list(zip(chain.from_iterable(true), chain.from_iterable(predicted), strict=True))
    pairs, right, seen = Counter(tokens), [a == b for a, b in tokens], None
    if words is not None:
        here = [word in known for word in chain.from_iterable(words)]
        seen = sum(a and b for a, b in zip(right, here, strict=True)), sum(here)
    right_sentences = sum(list(a) == list(b) for a, b in zip(true, predicted, strict=True))
    counts = _count_entities(true, predicted) if _are_entities({own for own, _ in pairs}) else None
    confusions = tuple((*pair, count) for pair, count in pairs.most_common() if pair[0] != pair[1])
    return Evaluation(sum(right), len(right), right_sentences, len(true), seen, counts, confusions)


def _are_entities(tags: set[str]) -> bool:
    """Return whether tags are those of entities: ``O`` and such as ``B-PER``, or plain ``B`` and ``I`` beside ``O``."""
    plain = "O" in tags and not tags.isdisjoint("BI")
    return (plain or any("-" in tag for tag in tags)) and all(map(_ENTITY_TAG.fullmatch, tags))


def _count_entities(*given: Tags) -> dict[str, Counts]:
    """Return counts per type of entity; one is correct if its type, its first and its last token are."""
    true, found = ({(i, *span) for i, tags in enumerate(each) for span in entities(tags)} for each in given)
    counts = [Counter(span[1] for span in spans) for spans in (true & found, found, true)]
    return {kind: Counts(*(count[kind] for count in counts)) for kind in sorted(counts[1] | counts[2])}


def entities(tags: Sequence[str]) -> Iterator[tuple[str, int, int]]:
    """Type, first and last token of each entity of a sentence, as conlleval and seqeval find them.

    An entity begins at ``B-``, and also where its type begins after ``O``, after another type or after an end.

    Example:
        >>> list(entities(["B-PER", "I-PER", "O", "I-LOC", "B-LOC"]))
        [('PER', 0, 1), ('LOC', 3, 3), ('LOC', 4, 4)]
    """
    first, before, kind_before = 0, "O", ""
    for place, tag in enumerate((*tags, "O")):
        prefix, kind = (tag[0], tag[2:] or "_") if _ENTITY_TAG.fullmatch(tag) else ("O", "")
        fresh = prefix in "BSUO" or before in "OESLU" or kind != kind_before
        if before != "O" and fresh:
            yield kind_before, first, place - 1
        if fresh:
            first = place
        before, kind_before = prefix, kind
