"""Made-up sentences and letters: they follow the grammar and the noise that the docstrings promise."""

from collections import Counter
from itertools import product

import pytest
import torch

import torchperc as tp
from torchperc.data import language


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


def test_letters_have_their_glyphs_and_their_noise():
    X, y = tp.data.letter_words(40, noise=0, seed=3)
    blurred, same = tp.data.letter_words(40, noise=0.2, seed=3)
    assert [word.tolist() for word in y] == [word.tolist() for word in same]
    assert [len(word) for word in X] == [len(word) for word in y]
    turned = torch.cat(X) != torch.cat(blurred)
    assert turned.double().mean().item() == pytest.approx(0.2, abs=0.01)
    assert set(torch.cat(blurred).unique().tolist()) == {0, 1}
    words = {"".join(tp.data.LETTERS[tag] for tag in word.tolist()) for word in y}
    assert words <= set(language._SPELLED.split())
    # an "l" is a vertical bar on the left over a horizontal one; an "i" is in the middle of its image
    images = torch.cat(X).reshape(-1, 16, 8)
    letters = torch.cat(y)
    bar = images[letters == tp.data.LETTERS.index("l")]
    assert (bar[:, :, :4].sum((1, 2)) > bar[:, :, 4:].sum((1, 2))).all()
    assert (bar[:, 8:].sum((1, 2)) > bar[:, :8].sum((1, 2))).all()


def test_every_letter_has_a_glyph_of_its_own_and_a_word():
    glyphs = language._glyphs()
    assert glyphs.shape == (26, 7, 5)
    assert len(glyphs.flatten(1).unique(dim=0)) == 26
    assert set("".join(language._SPELLED.split())) == set(tp.data.LETTERS)
    assert len(set(language._SPELLED.split())) == len(language._SPELLED.split())


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: tp.data.tagged_sentences(0), "sentences=0 must be at least 1"),
        (lambda: tp.data.tagged_sentences(new_words=1.5), "new_words=1.5 must be at most 1"),
        (lambda: tp.data.tagged_sentences(new_words=-0.5), "new_words=-0.5 must be a finite number >= 0"),
        (lambda: tp.data.letter_words(0), "words=0 must be at least 1"),
        (lambda: tp.data.letter_words(noise=0.6), "noise=0.6 must be at most 0.5"),
        (lambda: tp.data.letter_words(seed=-1), "seed=-1 must be at least 0"),
    ],
)
def test_wrong_values_are_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_the_most_probable_tags_by_all_sequences():
    sentences = [sentence for sentence in tp.data.tagged_sentences(60, new_words=0.3, seed=2) if len(sentence) < 5]
    words = [[word for word, _ in sentence] for sentence in sentences]
    vocabulary = language._vocabulary()

    def chance(given, tags):
        total = 1.0 if tags[-1] == "PUNCT" else 0.0
        for before, tag, word in zip(("start", *tags), tags, given, strict=False):
            new = 0.3 if tag in language._SUFFIXES else 0.0
            coined = language._SUFFIXES.get(tag, {}).get(word[5:], 0) / 100
            drawn = (1 - new) * vocabulary[tag][word] if word in vocabulary[tag] else new * coined
            total *= language._NEXT.get(before, {}).get(tag, 0) / 100 * drawn
        return total

    found = tp.data.most_probable_tags(words, new_words=0.3)
    assert len(found) > 10
    for given, tags in zip(words, found, strict=True):
        every = product(tp.data.TAGS, repeat=len(given))
        assert chance(given, tags) == pytest.approx(max(chance(given, each) for each in every), rel=1e-9)
        assert chance(given, tags) > 0
    with pytest.raises(ValueError, match="'xyzzy' is no word of the grammar"):
        tp.data.most_probable_tags([["xyzzy", "."]])
