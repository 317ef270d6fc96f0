"""Free text as sparse features: L2-normalised TF–IDF of unigrams and bigrams."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any
from unicodedata import normalize

import numpy as np

MOST = 2**17  # n-grams that a vocabulary has at most: those in the most rows
FEWEST = 2  # rows that an n-gram must be in, unless none is in so many
_COUNTED = 2**22  # n-grams above which those met once are forgotten
_TOKEN = re.compile(r"\w+(?:['’]\w+)*|[^\w\s]+")


def ngrams(text: str) -> list[str]:
    """The words of a text in small letters, then its pairs of neighbours; signs that touch are one word.

    Example:
        >>> ngrams("Don't CALL now!!")
        ["don't", 'call', 'now', '!!', "don't call", 'call now', 'now !!']
    """
    words = _TOKEN.findall(normalize("NFC", text).lower())
    return [*words, *(f"{one} {two}" for one, two in pairwise(words))]


class Counts:
    """Counts the rows that have each n-gram."""

    def __init__(self) -> None:
        self.rows = 0
        self._found = Counter[str]()

    def add(self, texts: Mapping[str, int]) -> None:
        """Count the n-grams of texts, each with the number of its rows."""
        for text, rows in texts.items():
            self.rows += rows
            for each in set(ngrams(text)):
                self._found[each] += rows
        if len(self._found) > _COUNTED:
            self._found = Counter({each: rows for each, rows in self._found.items() if rows >= FEWEST})

    def vocabulary(self) -> Vocabulary:
        """The n-grams in two rows or more (all, if none is), and of those the ones in the most rows."""
        kept = [each for each, rows in self._found.items() if rows >= FEWEST] or list(self._found)
        words = tuple(sorted(sorted(kept, key=lambda each: (-self._found[each], each))[:MOST]))
        return Vocabulary(words, tuple(self._found[each] for each in words), max(1, self.rows))


@dataclass(frozen=True)
class Vocabulary:
    """Words and pairs of words, of which each is a feature of a text.

    With tf the number of times that a word is in a text, df the number of the N training rows that have it:

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

    @cached_property
    def _index_and_idf(self) -> tuple[dict[str, int], Any]:
        idf = 1 + np.log((1 + self.rows) / (1 + np.array(self.counts)))
        return {each: number for number, each in enumerate(self.words)}, idf

    def features(self, texts: Iterable[str]) -> Any:
        """The rows of texts as a CSR array (N, words)."""
        from scipy.sparse import csr_array

        (index, idf), found, ends = self._index_and_idf, list[int](), [0]
        for text in texts:
            found += [index[each] for each in ngrams(text) if each in index]
            ends.append(len(found))
        X = csr_array((np.ones(len(found)), found, ends), shape=(len(ends) - 1, len(self.words)))
        X.sum_duplicates()
        X.data = (1 + np.log(X.data)) * idf[X.indices]
        X.data /= np.sqrt(np.repeat((X * X).sum(axis=1), np.diff(X.indptr)))
        return X
