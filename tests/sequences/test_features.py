"""Templates and features, against an extractor in plain Python that knows nothing of bytes, tables and batches."""

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from refusals import refusals

from torchperc.sequences import FeatureMap, Templates

MACRO = re.compile(r"%(\w+)\[([^\]]*)\]")


def plain_shape(text):
    marks = ["X" if c.isupper() or c.istitle() else "x" if c.isalpha() else "d" if c.isdigit() else c for c in text]
    return "".join(m for k, m in enumerate(marks) if marks[max(0, k - 2) : k] != [m, m])


def plain_value(sentence, t, kind, numbers):
    row, column, *length = map(int, numbers.split(","))
    place = t + row
    if not 0 <= place < len(sentence):
        return f"_B-{-place}" if place < 0 else f"_B+{place - len(sentence) + 1}"
    text = sentence[place][column]
    if length:
        return text[: length[0]] if kind == "prefix" else text[-length[0] :]
    return {"x": str, "lower": str.lower, "shape": plain_shape}[kind](text)


def plain_features(sentences, lines):
    """For each token, in order: (template's text, values) for each line."""
    parts = [(tuple(MACRO.split(line)[::3]), MACRO.findall(line)) for line in lines]
    for sentence in sentences:
        for t in range(len(sentence)):
            yield [(texts, tuple(plain_value(sentence, t, *macro) for macro in macros)) for texts, macros in parts]


def rows(X):
    return [X.ids[a:b].tolist() for a, b in zip(X.indptr[:-1], X.indptr[1:], strict=True)]


LINES = ["Ubias", "U00:%x[0,0]", "U01:%lower[-1,0]", "U02:%prefix[0,0,2]", "U03:%suffix[1,0,3]", "U04:%shape[0,0]", "U05:%x[-2,0]/%x[0,0]",
         "U06:%lower[-1,0]|%suffix[0,0,1]|%x[2,0]", "U07:%x[0,1]", "U08:%x[-1,1]/%shape[0,0]-end", "U:%x[-1,0]", "U:%x[0,0]"]  # fmt: skip
WORDS = ["the", "The", "THE", "dog", "dogs", "Ünder", "ſtraße", "İi", "ΑΣ", "e\u0301", "\U0001f600\U0001f600\U0001f600", "1984", "a-b", "日本語",
         "_B-1", "", "x" * 300, "Dž", "McCoy-1984", "A\u0301A\u0301A\u0301", "٣٤", "...", "'s", "a/b", "a", "b"]  # fmt: skip


def random_sentences(seed, count=60, words=WORDS):
    rng = np.random.default_rng(seed)
    pick = lambda: words[int(rng.integers(len(words)) * rng.random())]  # noqa: E731
    return [[(pick(), "NV"[int(rng.integers(2))]) for _ in range(rng.integers(1, 9))] for _ in range(count)]


def check_against_plain(features, train, new, lines):
    """The same feature has one number, another one another, and unknown ones have none."""
    X = features.fit_transform(train)
    names = {}
    for found, expected in zip(rows(X), plain_features(train, lines), strict=True):
        assert len(found) == len(expected)
        for number, feature in zip(found, expected, strict=True):
            assert names.setdefault(number, feature) == feature
    assert sorted(names) == list(range(features.n_features))
    assert len(set(names.values())) == features.n_features == X.n_features
    known = set(names.values())
    for found, expected in zip(rows(features.transform(new)), plain_features(new, lines), strict=True):
        assert [names[number] for number in found] == [feature for feature in expected if feature in known]
    return X


def test_features_are_those_of_the_plain_extractor():
    train, new = random_sentences(0), random_sentences(1, words=[*WORDS, "unseen", "Neu", "thy"])
    features = FeatureMap(Templates("\n".join(LINES)))
    X = check_against_plain(features, train, new, LINES)
    assert X.values is None
    assert X.offsets.tolist() == np.cumsum([0, *map(len, train)]).tolist()
    wider = [[(*token, "more") for token in sentence] for sentence in new]
    assert rows(features.transform(wider)) == rows(features.transform(new))


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)


@given(st.lists(st.lists(TEXT, min_size=1, max_size=4), min_size=1, max_size=5), st.data())
def test_any_unicode_text(sentences, data):
    new = data.draw(st.lists(st.lists(TEXT, min_size=1, max_size=4), min_size=1, max_size=3))
    lines = [line for line in LINES if ",1]" not in line]
    given, other = ([[(word,) for word in each] for each in part] for part in (sentences, new))
    check_against_plain(FeatureMap(Templates("\n".join(lines))), given, other, lines)


test_wrong_calls_say_what_is_wrong = refusals(
    (lambda: FeatureMap("U:%x[0,0]"), TypeError, "templates must be Templates"),
    (lambda: FeatureMap().transform([["a"]]), ValueError, "call fit_transform first"),
    (lambda: FeatureMap(Templates("U:%x[0,1]")).fit_transform([["a"]]), ValueError, "1 column, and 2 are needed"),
    (lambda: FeatureMap().fit_transform([]), ValueError, "empty"),
    (lambda: FeatureMap().fit_transform([["a"], []]), ValueError, "sentence 1 is empty"),
    (lambda: FeatureMap().fit_transform("text"), TypeError, "found a string"),
    (lambda: Templates(3), TypeError, "string"),
    (lambda: FeatureMap().fit_transform([[1, 2]]), TypeError, "words or tuples of strings"),
    (lambda: FeatureMap().fit_transform([[("a", "b"), ("a",)]]), TypeError, "all with as many columns"),
)


test_templates_are_refused_with_file_and_line = refusals(
    ("U00:%x[0,0]\nX01:%x[0,0]", r"mine, line 2: 'X01:%x\[0,0\]' begins with neither"),
    ("U00:%x[0]", r"mine, line 1: '%x\[0\]' is not of the form %x\[row,column\]"),
    ("U00:%y[0,0]", "unknown macro '%y'"),
    ("U00:%x[-101,0]", "row from -100"),
    ("# nothing\n\nB\n", "mine has no template"),
    by=lambda text: Templates(text, "mine"),
    error=ValueError,
)


def test_templates_as_crf_has_them(tmp_path):
    path = tmp_path / "template"
    path.write_bytes(
        b"\xef\xbb\xbf# Unigram\r\nU00:%x[-2,0]\r\n\r\nU05:%x[-1, 0]/%x[0,1]\r\nU05:%x[-1,0]/%x[0,1]\r\nB\r\n"
    )
    templates = Templates.read(path)
    assert (len(templates), templates.columns) == (2, 2)
    assert templates.groups == Templates("U00:%x[-2,0]\nU05:%x[-1,0]/%x[0,1]").groups
    with pytest.raises(ValueError, match="cannot read"):
        Templates.read(tmp_path / "missing")
