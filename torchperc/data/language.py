"""Made-up sentences with tags, from a small grammar."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from itertools import accumulate
from random import Random

from torchperc._checks import check_int, check_number

TAGS = ("ADJ", "ADV", "DET", "NOUN", "PREP", "PRON", "PUNCT", "VERB")
"""Of :func:`tagged_sentences`."""

_START = "start"
_NEXT: Mapping[str, Mapping[str, float]] = {  # in percent; a sentence ends after PUNCT
    _START: {"DET": 55, "PRON": 20, "ADJ": 8, "NOUN": 7, "VERB": 5, "ADV": 5},
    "DET": {"NOUN": 65, "ADJ": 35},
    "ADJ": {"NOUN": 88, "ADJ": 12},
    "NOUN": {"VERB": 45, "PUNCT": 30, "PREP": 18, "ADV": 7},
    "VERB": {"DET": 40, "PREP": 16, "PUNCT": 12, "ADV": 12, "PRON": 10, "NOUN": 5, "ADJ": 5},
    "ADV": {"PUNCT": 30, "VERB": 25, "DET": 20, "PREP": 15, "ADJ": 10},
    "PREP": {"DET": 70, "PRON": 10, "ADJ": 10, "NOUN": 10},
    "PRON": {"VERB": 70, "ADV": 15, "PUNCT": 10, "PREP": 5},
}
_WORDS = {
    "NOUN VERB": "play walk watch run dance cook paint drink plant park ring hand face book name order report visit",
    "NOUN": "dog tree river house child teacher window letter garden city bread",
    "VERB": "see find keep bring know eat say make",
    "ADJ": "old quiet happy small tall red",
    "ADJ NOUN": "cold sweet square novel",
    "ADJ VERB": "clean open dry warm",
    "ADJ NOUN VERB": "light",
    "ADJ ADV": "fast hard late early",
    "ADV": "often never here soon",
    "ADV PREP": "over near down",
    "PREP": "in on with under",
    "DET": "the a every",
    "DET PRON": "that this her",
    "PRON": "she he it they",
    "PUNCT": ".",
}
_SUFFIXES: Mapping[str, Mapping[str, float]] = {  # of coined words, in percent
    "NOUN": {"ness": 25, "tion": 25, "er": 20, "s": 20, "ing": 10},
    "VERB": {"ize": 30, "ed": 30, "s": 20, "ing": 20},
    "ADJ": {"ous": 35, "ful": 25, "ed": 20, "er": 20},
    "ADV": {"ly": 80, "er": 20},
}
_CONSONANTS, _VOWELS = "bdfgklmnprtv", "aeiou"


@cache
def _vocabulary() -> dict[str, dict[str, float]]:
    """The words of each tag with their probabilities: the n-th of K words is 1/n as frequent as the first."""
    found: dict[str, dict[str, float]] = {tag: {} for tag in TAGS}
    for tags, words in _WORDS.items():
        for tag in tags.split():
            found[tag] |= dict.fromkeys(words.split(), 0.0)
    for words_of in found.values():
        total = sum(1 / n for n in range(1, len(words_of) + 1))
        words_of |= {word: 1 / n / total for n, word in enumerate(words_of, 1)}
    return found


class _Draw:
    """Draws from a fixed distribution."""

    def __init__(self, weights: Mapping[str, float]) -> None:
        self.names, self.bounds = list(weights), list(accumulate(weights.values()))

    def __call__(self, random: Random) -> str:
        return random.choices(self.names, cum_weights=self.bounds)[0]


def tagged_sentences(sentences: int = 1000, new_words: float = 0.1, seed: int = 0) -> list[list[tuple[str, str]]]:
    """Sentences of a small grammar, each a list of (word, tag).

    Tags follow one another as a Markov chain, and each tag draws a word of its own list. Many words are on several
    lists: *play* is a noun or a verb, *light* an adjective, too, *near* an adverb or a preposition, so that the tags
    around them decide. Of adjectives, adverbs, nouns and verbs, a fraction ``new_words`` is coined: three consonants
    around two vowels and a suffix such as *-ness* or *-ed*, which says which tags are possible. Few coined words are
    ever met twice, so nearly all of them are unknown in a test set. Sentences of another seed are of the same grammar.

    Args:
        sentences: how many.
        new_words: the fraction of coined words, from 0 to 1.
        seed: of the draws.

    Example:
        >>> for sentence in tagged_sentences(2, seed=1):
        ...     print(" ".join(f"{word}/{tag}" for word, tag in sentence))
        that/DET happy/ADJ book/NOUN moraved/VERB near/ADV bubotous/ADJ gonugtion/NOUN ./PUNCT
        hard/ADV old/ADJ walk/NOUN ./PUNCT
    """
    count = check_int("sentences", sentences, at_least=1)
    new = _fraction("new_words", new_words)
    random = Random(check_int("seed", seed, at_least=0))
    following = {tag: _Draw(weights) for tag, weights in _NEXT.items()}
    listed = {tag: _Draw(weights) for tag, weights in _vocabulary().items()}
    suffixes = {tag: _Draw(weights) for tag, weights in _SUFFIXES.items()}
    found = []
    for _ in range(count):
        sentence, tag = [], _START
        while tag != "PUNCT":
            tag = following[tag](random)
            coined = tag in suffixes and random.random() < new
            sentence.append((_stem(random) + suffixes[tag](random) if coined else listed[tag](random), tag))
        found.append(sentence)
    return found


def _stem(random: Random) -> str:
    return "".join(random.choice(letters) for letters in (_CONSONANTS, _VOWELS, _CONSONANTS, _VOWELS, _CONSONANTS))


def _fraction(name: str, value: float) -> float:
    fraction = check_number(name, value, at_least=0)
    if fraction > 1:
        raise ValueError(f"{name}={value} must be at most 1; it is a fraction")
    return fraction
