"""Free text as sparse features: its words and pairs of words, weighted by how rare they are, in rows of length 1."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any
from unicodedata import normalize
from zlib import crc32

import numpy as np

from torchperc._checks import check_int

MOST = 2**17  # words and pairs that a vocabulary has at most: those in the most rows
FEWEST = 2  # rows that a word must be in, unless no word is in so many
PROSE = 5  # words per value, on average, from which on a column reads as text
_TOKEN = re.compile(r"\w+(?:['’]\w+)*|[^\w\s]+")
_LETTERS = re.compile(r"[^\W\d_]{2,}")


def tokens(text: str) -> list[str]:
    """The words of a text in small letters, in their order; signs that touch are one word.

    Example:
        >>> tokens("Don't CALL now!!")
        ["don't", 'call', 'now', '!!']
    """
    return _TOKEN.findall(normalize("NFC", text).lower())


def ngrams(text: str) -> list[str]:
    """The words of a text, then its pairs of neighbours.

    Example:
        >>> ngrams("Call now!!")
        ['call', 'now', '!!', 'call now', 'now !!']
    """
    words = tokens(text)
    return [*words, *(f"{one} {two}" for one, two in pairwise(words))]


def word_count(text: str) -> int:
    """How many words of two letters or more a text has, by which prose is told from codes, dates and names.

    Example:
        >>> word_count("See you at 8, I hope"), word_count("A-17/2024")
        (4, 0)
    """
    return len(_LETTERS.findall(text))


class Counts:
    """In how many rows each word and each pair of words is, of a fixed sample of the texts if they are very many.

    The sample depends on the texts alone.

    Args:
        fraction: of the different texts that are counted.

    Example:
        >>> counts = Counts()
        >>> counts.add({"free prize": 2, "free now": 1})
        >>> counts.rows, counts.vocabulary().words, counts.vocabulary().counts
        (3, ('free', 'free prize', 'prize'), (3, 2, 2))
    """

    def __init__(self, fraction: float = 1.0) -> None:
        self.fraction, self.rows = fraction, 0
        self._found: dict[str, int] = {}

    def add(self, texts: Mapping[str, int]) -> None:
        """Count the words of texts, each with the number of its rows."""
        found = self._found
        for text, rows in texts.items():
            if self.fraction < 1 and crc32(text.encode()) >= self.fraction * 2**32:
                continue
            self.rows += rows
            for each in set(ngrams(text)):
                found[each] = found.get(each, 0) + rows

    def vocabulary(self) -> Vocabulary:
        """What is in two rows or more (all, if nothing is), and of that what is in the most rows."""
        kept = [each for each, rows in self._found.items() if rows >= FEWEST] or list(self._found)
        kept = sorted(kept, key=lambda each: (-self._found[each], each))[:MOST] if len(kept) > MOST else kept
        words = tuple(sorted(kept))
        return Vocabulary(words, tuple(self._found[each] for each in words), max(1, self.rows))


@dataclass(frozen=True)
class Vocabulary:
    """Words and pairs of words, of which each is a feature of a text.

    With tf the number of times that a word is in a text, df the number of the N rows of training that have it:

        x = (1 + ln tf)·(1 + ln((1 + N)/(1 + df))), then x/‖x‖

    This is scikit-learn's ``TfidfVectorizer(sublinear_tf=True)``. A text without any known word is a row of zeros.

    Args:
        words: in the order of their features.
        counts: of rows that have each.
        rows: N.

    Example:
        >>> Vocabulary(("free", "now"), (1, 1), 1).features(["Free, free NOW", "never"]).toarray().round(3)
        array([[0.861, 0.509],
               [0.   , 0.   ]])
    """

    words: tuple[str, ...]
    counts: tuple[int, ...]
    rows: int

    def __post_init__(self) -> None:
        if not self.words or len(set(self.words)) < len(self.words):
            raise ValueError(f"a vocabulary must have different words, found {len(self.words)} with some twice or none")
        if len(self.counts) != len(self.words):
            raise ValueError(f"counts has {len(self.counts)} numbers for {len(self.words)} words; give one per word")
        rows = check_int("rows", self.rows, at_least=1)
        if any(type(count) is not int or not 0 < count <= rows for count in self.counts):
            raise ValueError(f"counts must be integers from 1 to rows={rows}, found {min(self.counts)!r} and others")

    @cached_property
    def _lookup(self) -> tuple[dict[str, int], Any, Any, Any]:
        """A number for every word, also of pairs; the feature of each word; the pairs by number, and their features."""
        numbers: dict[str, int] = {}
        parts = [[numbers.setdefault(word, len(numbers)) for word in each.split(" ")] for each in self.words]
        single = np.full(len(numbers) + 1, -1, np.int64)  # the last is of any other word
        pairs = np.array([(a[0] * len(numbers) + a[1], j) for j, a in enumerate(parts) if len(a) == 2], np.int64)
        pairs = pairs.reshape(-1, 2)[pairs.reshape(-1, 2)[:, 0].argsort()]
        for j, part in enumerate(parts):
            if len(part) == 1:
                single[part[0]] = j
        return numbers, single, pairs[:, 0], pairs[:, 1]

    @cached_property
    def _rarity(self) -> Any:
        by_count = {count: 1 + math.log((1 + self.rows) / (1 + count)) for count in set(self.counts)}
        return np.array([by_count[count] for count in self.counts])

    def features(self, texts: Iterable[str]) -> Any:
        """The rows of texts as a CSR array (N, words); the same text gives the same row, to the bit."""
        from scipy.sparse import csr_array

        numbers, single, pairs, features = self._lookup
        found, lengths = list[int](), list[int]()
        for text in texts:
            words = tokens(text)
            found += [numbers.get(word, -1) for word in words]
            lengths.append(len(words))
        ids, count, width = np.array(found, np.int64), len(lengths), len(self.words)
        rows = np.repeat(np.arange(count), lengths)
        cells = [(rows * width + single[ids])[single[ids] >= 0]]
        if len(pairs) and len(ids) > 1:
            beside = np.flatnonzero((ids[:-1] >= 0) & (ids[1:] >= 0) & (rows[:-1] == rows[1:]))
            keys = ids[beside] * len(numbers) + ids[beside + 1]
            at = np.minimum(np.searchsorted(pairs, keys), len(pairs) - 1)
            known = pairs[at] == keys
            cells.append(rows[beside[known]] * width + features[at[known]])
        places, times = np.unique(np.concatenate(cells), return_counts=True)
        rows, columns = np.divmod(places, width)
        repeated = {number: 1 + math.log(number) for number in set(times.tolist())}
        values = np.array([repeated[number] for number in times.tolist()]) * self._rarity[columns]
        norms = np.sqrt(np.bincount(rows, values * values, minlength=count))  # added up in order, always
        starts = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=count))])
        return csr_array((values / norms[rows], columns, starts), shape=(count, width))

    def state(self) -> dict[str, Any]:
        """As plain types, ready for JSON."""
        return {"words": list(self.words), "counts": list(self.counts), "rows": self.rows}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Vocabulary:
        """What :meth:`state` returned; anything else is a ``ValueError``."""
        try:
            return cls(tuple(state["words"]), tuple(state["counts"]), state["rows"])
        except (KeyError, TypeError) as error:
            raise ValueError(f"state is not what state() returned: {error!r}") from None
