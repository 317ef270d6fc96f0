"""Made-up sentences: they follow the grammar that the docstrings promise."""

from collections import Counter

import pytest

import torchperc as tp
from torchperc.data import example_data as language


def test_sentences_follow_the_grammar():
    sentences = tp.data.tagged_sentences(3000, new_words=0.2, seed=5)
    assert len(sentences) == 3000
    pairs, emitted = Counter(), Counter()
    for sentence in sentences:
        tags = [tag for _, tag in sentence]
        assert tags.index("PUNCT") == len(tags) - 1
        pairs.update(zip(["start", *tags], tags, strict=False))
        emitted.update(sentence)
    expected = {(before, tag): weight / 100 for before, row in language._NEXT.items() for tag, weight in row.items()}
    assert set(pairs) == set(expected)
    before = Counter()
    for (tag, _), count in pairs.items():
        before[tag] += count
    for (tag, after), chance in expected.items():
        spread = (chance * (1 - chance) / before[tag]) ** 0.5
        assert abs(pairs[tag, after] / before[tag] - chance) < 5 * spread
    listed = {(word, tag) for tags, words in language._WORDS.items() for tag in tags.split() for word in words.split()}
    coined = {pair: count for pair, count in emitted.items() if pair not in listed}
    assert all(any(word.endswith(end) for end in language._SUFFIXES[tag]) for word, tag in coined)
    open_class = sum(count for (_, tag), count in emitted.items() if tag in language._SUFFIXES)
    assert sum(coined.values()) / open_class == pytest.approx(0.2, abs=0.01)
    assert {tag for word, tag in emitted if word == "light"} == {"ADJ", "NOUN", "VERB"}


def test_sentences_repeat_with_their_seed_and_are_new_with_another():
    first, same, other = (tp.data.tagged_sentences(50, seed=seed) for seed in (0, 0, 1))
    assert first == same != other
    assert tp.data.tagged_sentences(20) == first[:20]
    words = {word for sentence in tp.data.tagged_sentences(2000) for word, _ in sentence}
    unknown = [word for sentence in tp.data.tagged_sentences(300, seed=1) for word, _ in sentence if word not in words]
    assert 0.03 < len(unknown) / sum(map(len, tp.data.tagged_sentences(300, seed=1))) < 0.09
    assert all(len(word) > 5 for word in unknown)  # coined ones, with a suffix
    plain = tp.data.tagged_sentences(200, new_words=0)
    assert max(len(word) for sentence in plain for word, _ in sentence) == 7  # teacher
