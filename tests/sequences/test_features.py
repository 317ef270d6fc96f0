"""Templates and features, against an extractor in plain Python that knows nothing of bytes, tables and batches."""

import copy
import pickle
import re
import unicodedata
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from torchperc.sequences import Column, Corpus, DictFeatures, FeatureMap, Templates
from torchperc.sequences import features as module

MACRO = re.compile(r"%(\w+)\[([^\]]*)\]")


def plain_shape(text):
    marks = ["X" if c.isupper() or c.istitle() else "x" if c.isalpha() else "d" if c.isdigit() else c for c in text]
    return "".join(m for k, m in enumerate(marks) if marks[max(0, k - 2) : k] != [m, m])


def plain_value(sentence, t, kind, numbers):
    row, column, *length = numbers
    place = t + row
    if place < 0:
        return f"_B-{-place}"
    if place >= len(sentence):
        return f"_B+{place - len(sentence) + 1}"
    text = sentence[place][column]
    if kind == "prefix":
        return text[: length[0]]
    if kind == "suffix":
        return text[-length[0] :]
    return {"x": str, "lower": str.lower, "shape": plain_shape}[kind](text)


def plain_features(sentences, lines):
    """For each token, in order: (template's text, values) for each line."""
    for sentence in sentences:
        for t in range(len(sentence)):
            yield [
                (
                    tuple(MACRO.split(line)[::3]),
                    tuple(
                        plain_value(sentence, t, kind, [int(n) for n in numbers.split(",")])
                        for kind, numbers in MACRO.findall(line)
                    ),
                )
                for line in lines
            ]


def plain_ids(tokens, cutoff=1):
    tokens = list(tokens)
    counts = Counter(feature for token in tokens for feature in token)
    numbers = {}
    for token in tokens:
        for feature in token:
            if counts[feature] >= cutoff:
                numbers.setdefault(feature, len(numbers))
    return numbers, [[numbers[feature] for feature in token if feature in numbers] for token in tokens]


def rows(X):
    return [X.ids[a:b].tolist() for a, b in zip(X.indptr[:-1], X.indptr[1:], strict=True)]


def name(feature):
    texts, values = feature
    return texts[0] + "".join(value + text for value, text in zip(values, texts[1:], strict=True))


LINES = [
    "Ubias",
    "U00:%x[0,0]",
    "U01:%lower[-1,0]",
    "U02:%prefix[0,0,2]",
    "U03:%suffix[1,0,3]",
    "U04:%shape[0,0]",
    "U05:%x[-2,0]/%x[0,0]",
    "U06:%lower[-1,0]|%suffix[0,0,1]|%x[2,0]",
    "U07:%x[0,1]",
    "U08:%x[-1,1]/%shape[0,0]-end",
    "U:%x[-1,0]",
    "U:%x[0,0]",
]
WORDS = ["the", "The", "THE", "dog", "dogs", "Ünder", "ſtraße", "İi", "ΑΣ", "e\u0301", "\U0001f600\U0001f600\U0001f600", "1984", "a-b", "日本語",
         "_B-1", "", "x" * 300, "Dž", "٣٤", "...", "'s", "a/b", "a", "b"]  # fmt: skip


def random_sentences(seed, count=60, words=WORDS):
    rng = np.random.default_rng(seed)
    pick = lambda: words[int(rng.integers(len(words)) * rng.random())]  # noqa: E731
    return [[(pick(), "NV"[int(rng.integers(2))]) for _ in range(rng.integers(1, 9))] for _ in range(count)]


@pytest.mark.parametrize("cutoff", [1, 3])
def test_features_are_those_of_the_plain_extractor(cutoff):
    train, new = random_sentences(0), random_sentences(1, words=[*WORDS, "unseen", "Neu", "thy"])
    features = FeatureMap(Templates("\n".join(LINES)), cutoff=cutoff)
    X = features.fit_transform(Corpus.of(train))
    numbers, expected = plain_ids(plain_features(train, LINES), cutoff)
    assert rows(X) == expected
    assert X.values is None
    assert X.offsets.tolist() == np.cumsum([0, *map(len, train)]).tolist()
    assert features.width == X.width == len(numbers)
    assert features.names() == [name(feature) for feature in numbers]
    assert features.names([1, 0]) == features.names()[1::-1]
    assert rows(features.transform(Corpus.of(train))) == expected
    seen = [[numbers[each] for each in token if each in numbers] for token in plain_features(new, LINES)]
    for jobs in (None, 1, 2, 3, -1):
        assert rows(features.transform(Corpus.of(new), n_jobs=jobs)) == seen
    assert rows(features.transform(Corpus.of([[token[::-1] for token in each] for each in new]), [1, 0])) == seen


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)


@settings(max_examples=60)
@given(st.lists(st.lists(TEXT, min_size=1, max_size=4), min_size=1, max_size=5), st.data())
def test_any_unicode_text(sentences, data):
    lines = [line for line in LINES if ",1]" not in line]
    lines = data.draw(st.lists(st.sampled_from(lines), min_size=1, unique=True))
    features = FeatureMap(Templates("\n".join(lines)))
    tokens = plain_features([[(word,) for word in sentence] for sentence in sentences], lines)
    numbers, expected = plain_ids(tokens)
    assert rows(features.fit_transform(Corpus.of(sentences))) == expected
    assert features.names() == [name(feature) for feature in numbers]
    assert rows(features.transform(Corpus.of(sentences))) == expected


def test_shapes_and_lower_case_are_unicodes():
    words = [unicodedata.normalize("NFD", "Émile"), "ΑΣ", "McCoy-1984", "\U0001f600" * 4, "A\u0301A\u0301A\u0301"]
    assert [module.shape(word) for word in words] == [plain_shape(word) for word in words]
    features = FeatureMap(Templates("U:%lower[0,0]")).fit(Corpus.of([words]))
    assert features.names() == [f"U:{word.lower()}" for word in words]


def test_tables_grow_and_words_are_forgotten_without_a_trace(monkeypatch):
    rng = np.random.default_rng(0)
    sentences = [[f"w{number}" for number in rng.integers(0, 3000, rng.integers(1, 30))] for _ in range(300)]
    lines = ["U0:%x[0,0]", "U1:%x[-1,0]/%x[0,0]", "U2:%suffix[0,0,2]/%x[1,0]/%x[2,0]"]
    _, expected = plain_ids(plain_features([[(word,) for word in each] for each in sentences], lines))
    corpus = Corpus.of(sentences)
    for most in (module._MOST_WORDS, 10):
        monkeypatch.setattr(module, "_MOST_WORDS", most)
        features = FeatureMap(Templates("\n".join(lines)))
        assert rows(features.fit_transform(corpus.blocks(100))) == expected
        assert features.fit(corpus.blocks(1)).width == max(max(row) for row in expected) + 1
        assert [row for block in corpus.blocks(70) for row in rows(features.transform(block))] == expected


def plain_hash(text, buckets):
    """The bucket of (texts, values), as the module states it."""
    bits = 2**64 - 1

    def mix(h):
        h = ((h ^ h >> 30) * 0xBF58476D1CE4E5B9) & bits
        h = ((h ^ h >> 27) * 0x94D049BB133111EB) & bits
        return h ^ h >> 31

    def of(string):
        h = 0xCBF29CE484222325
        for byte in string.encode():
            h = ((h ^ byte) * 0x100000001B3) & bits
        return mix(h)

    texts, values = text
    h = of("\0".join(texts))
    for value in values:
        h = mix(((h ^ of(value)) + 0x9E3779B97F4A7C15) & bits)
    return h, h >> (64 - (buckets.bit_length() - 1))


def test_buckets_are_the_stated_hash_and_collisions_are_counted():
    sentences, buckets = random_sentences(2, 30), 128
    corpus, templates = Corpus.of(sentences), Templates("\n".join(LINES))
    features = FeatureMap(templates, buckets=buckets)
    tokens = list(plain_features(sentences, LINES))
    expected = [[plain_hash(feature, buckets)[1] for feature in token] for token in tokens]
    assert rows(features.fit_transform(corpus)) == expected
    assert rows(features.transform(corpus, n_jobs=2)) == expected
    different = {plain_hash(feature, buckets) for token in tokens for feature in token}
    shared = Counter(bucket for _, bucket in different)
    assert features.collisions == sum(count for count in shared.values() if count > 1)
    assert features.width == buckets
    assert FeatureMap(templates, buckets=buckets).fit(corpus.blocks(20)).collisions == features.collisions
    again = FeatureMap.from_state(*features.state())
    assert rows(again.transform(corpus)) == expected
    assert again.collisions == features.collisions
    with pytest.raises(ValueError, match="no names"):
        features.names([0])


@pytest.mark.parametrize("cutoff", [1, 2])
def test_more_features_come_behind_those_known(cutoff):
    first, more = random_sentences(4, 20), random_sentences(5, 20, [*WORDS, "unseen", "Neu", "thy"])
    features = FeatureMap(Templates("\n".join(LINES)), cutoff=cutoff)
    features.fit(Corpus.of(first))
    numbers, _ = plain_ids(plain_features(first, LINES), cutoff)
    for corpus in (Corpus.of(more), list(Corpus.of(more).blocks(9))):
        again = FeatureMap.from_state(*features.state())
        X = again.fit_more(corpus)
        known = dict(numbers)
        counts = Counter(each for token in plain_features(more, LINES) for each in token)
        for token in plain_features(more, LINES):
            for each in token:
                if counts[each] >= cutoff:
                    known.setdefault(each, len(known))
        expected = [[known[each] for each in token if each in known] for token in plain_features(more, LINES)]
        assert rows(X) == expected
        assert again.names() == [name(each) for each in known]
        assert rows(again.transform(Corpus.of(more))) == expected
    assert features.width == len(numbers)  # the first map is as it was
    hashed = FeatureMap(features.templates, buckets=64).fit(Corpus.of(first))
    assert rows(hashed.fit_more(Corpus.of(more).blocks(9))) == rows(hashed.transform(Corpus.of(more)))
    fresh = FeatureMap(features.templates, cutoff=cutoff)
    assert rows(fresh.fit_more(Corpus.of(first))) == plain_ids(plain_features(first, LINES), cutoff)[1]


def test_a_reduced_map_knows_the_chosen_features_only():
    sentences = random_sentences(6)
    features = FeatureMap(Templates("\n".join(LINES)))
    X = features.fit_transform(Corpus.of(sentences))
    chosen = np.random.default_rng(0).permutation(features.width)[: features.width // 2]
    reduced = features.reduced(chosen)
    number = {old: new for new, old in enumerate(chosen.tolist())}
    assert rows(reduced.transform(Corpus.of(sentences))) == [[number[j] for j in row if j in number] for row in rows(X)]
    assert reduced.names() == features.names(chosen)
    for wrong in ([0, 0], [], [-1]):
        with pytest.raises(ValueError, match=r"none twice|from 0 to"):
            features.reduced(wrong)
    with pytest.raises(ValueError, match="cannot be reduced"):
        FeatureMap(buckets=64).fit(Corpus.of(sentences)).reduced([0])


def test_the_state_is_the_map():
    sentences = random_sentences(3)
    features = FeatureMap(Templates("\n".join(LINES), "mine.txt"), cutoff=2)
    X = features.fit_transform(Corpus.of(sentences))
    arrays, rest = features.state()
    again = FeatureMap.from_state({name: array.copy() for name, array in arrays.items()}, rest)
    for other in (again, copy.deepcopy(features), pickle.loads(pickle.dumps(features))):
        assert other.names() == features.names()
        assert rows(other.transform(Corpus.of(sentences))) == rows(X)
    assert (again.templates.name, again.cutoff) == ("mine.txt", 2)
    for change in (
        {"keys": arrays["keys"][:, 1:]},
        {"keys": arrays["keys"] + 10_000},
        {"bounds": arrays["bounds"][::-1]},
        {"strings": arrays["strings"][1:]},
        {"keys": arrays["keys"].astype(np.int64)},
    ):
        with pytest.raises(ValueError, match="damaged"):
            FeatureMap.from_state({**arrays, **change}, rest)
    for text in ("", "[]", "{}", rest.replace('"version": 1', '"version": 9')):
        with pytest.raises(ValueError, match="damaged or too new"):
            FeatureMap.from_state(arrays, text)


def test_the_default_set_knows_further_columns():
    features = FeatureMap()
    features.fit(Corpus.of([[("the", "DT"), ("dog", "NN")]]))
    assert {"U1-1:DT", "U1+0:NN", "U1+1:NN", "U:bias", "U00:dog"} <= set(features.names())
    assert not any(line.startswith("U1+") for line in FeatureMap().fit(Corpus.of([["the"]])).names())


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: FeatureMap("U00:%x[0,0]"), TypeError, "Templates"),
        (lambda: FeatureMap(buckets=100), ValueError, "power of two"),
        (lambda: FeatureMap(buckets=2**32), ValueError, "power of two"),
        (lambda: FeatureMap(buckets=64, cutoff=2), ValueError, "leave one out"),
        (lambda: FeatureMap(cutoff=0), ValueError, "at least 1"),
        (lambda: FeatureMap().width, ValueError, "call fit"),
        (lambda: FeatureMap().fit([]), ValueError, "empty"),
        (lambda: FeatureMap().fit([["a"]]), TypeError, "Corpus.of"),
        (lambda: FeatureMap(cutoff=9).fit(Corpus.of([["a"]])), ValueError, "lower it"),
        (lambda: FeatureMap(Templates("U:%x[0,2]")).fit(Corpus.of([["a"]])), ValueError, "name column 2"),
        (lambda: FeatureMap().fit(Corpus.of([["a"]])).transform([["a"]]), TypeError, "Corpus.of"),
        (lambda: FeatureMap().fit(Corpus.of([["a"]])).transform(Corpus.of([["a"]]), n_jobs=0), ValueError, "n_jobs"),
        (lambda: FeatureMap().fit(Corpus.of([["a"]])).names([99]), ValueError, "from 0 to"),
    ],
)
def test_wrong_calls_say_what_is_wrong(call, error, words):
    with pytest.raises(error, match=words):
        call()


# --- templates ---


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("U00:%x[0,0]\nX01:%x[0,0]", "mine, line 2: 'X01:%x[0,0]' begins with neither"),
        ("U00:%x[0]", "mine, line 1, column 5: '%x[0]' is not of the form %x[row,column]"),
        ("\n\nU00:%x[a,0]", "mine, line 3, column 5"),
        ("U00:%x", "'%x' is not of the form"),
        ("U00:50%", "unknown macro '%'"),
        ("U00:%y[0,0]", "unknown macro '%y'"),
        ("U00:%prefix[0,0]", "%prefix[row,column,length]"),
        ("U00:%suffix[0,0,0]", "length 0"),
        ("U00:%x[0,-1]", "no column -1"),
        ("U00:%x[-101,0]", "too far"),
        ("U00:%x[0,0]\nB01:%x[0,0]", "mine, line 2: 'B01:%x[0,0]' asks for pairs of tags"),
        ("# nothing\n\nB\n", "mine has no template"),
    ],
)
def test_templates_are_refused_with_file_and_line(text, words):
    with pytest.raises(ValueError, match=re.escape(words)):
        Templates(text, "mine")


def test_templates_as_crf_has_them(tmp_path):
    path = tmp_path / "template"
    path.write_bytes(
        b"\xef\xbb\xbf# Unigram\r\nU00:%x[-2,0]\r\n\r\nU05:%x[-1, 0]/%x[0,1]\r\nU05:%x[-1,0]/%x[0,1]\r\nB\r\nB02\r\n"
    )
    templates = Templates.read(path)
    assert (len(templates), templates.columns, templates.name) == (2, 2, str(path))
    assert templates == Templates("U00:%x[-2,0]\nU05:%x[-1,0]/%x[0,1]")
    assert hash(templates) == hash(Templates(templates.text))
    assert "U05" in repr(templates)
    with pytest.raises(ValueError, match="cannot read"):
        Templates.read(tmp_path / "missing")
    path.write_bytes(b"U00:%x[0,0]\n\xff\n")
    with pytest.raises(ValueError, match="line 2: not valid UTF-8"):
        Templates.read(path)
    with pytest.raises(TypeError, match="string"):
        Templates(3)


# --- dictionaries ---


def test_dictionaries_as_crfsuite_has_them():
    X = [
        [
            {"word": "the", "title": False, "n": 2.5, "zero": 0},
            {"ends": ["g", "og"], "prev": {"word": "the", "up": True}},
        ],
        [["bias", "word:the"], {"more": {"b", "a"}, "n": np.float32(1)}, {}],
    ]
    features = DictFeatures()
    found = features.fit_transform(X)
    assert features.names() == [
        "word:the", "n", "ends:g", "ends:og", "prev:word:the", "prev:up", "bias", "more:a", "more:b"
    ]  # fmt: skip
    assert rows(found) == [[0, 1], [2, 3, 4, 5], [6, 0], [7, 8, 1], []]
    assert found.values.tolist() == [1, 2.5, 1, 1, 1, 1, 1, 1, 1, 1, 1]
    assert found.offsets.tolist() == [0, 2, 5]
    new = features.transform([[{"word": "dog", "title": True}, {"word": "the"}]])
    assert rows(new) == [[], [0]]
    assert new.values is None
    again = DictFeatures.from_state(*features.state())
    assert again.names() == features.names()
    assert again.names([1]) == ["n"]
    assert rows(again.transform(X)) == rows(found)


def test_dictionaries_with_a_cutoff():
    X = [[{"a": "x", "b": 2}, {"a": "y"}, {"b": 1, "a": "x"}]]
    features = DictFeatures(cutoff=2)
    found = features.fit_transform(X)
    assert (features.names(), rows(found), found.values.tolist()) == (["a:x", "b"], [[0, 1], [], [1, 0]], [1, 2, 1, 1])


def test_more_and_fewer_dictionaries():
    features = DictFeatures(cutoff=2)
    features.fit([[{"a": "x"}, {"a": "x"}]])
    assert rows(features.fit_more([[{"a": "x"}, {"b": "y", "c": 1}, {"b": "y"}]])) == [[0], [1], [1]]
    assert features.names() == ["a:x", "b:y"]
    assert rows(features.reduced([1]).transform([[{"a": "x"}, {"b": "y"}]])) == [[], [0]]


@pytest.mark.parametrize(
    ("X", "error", "words"),
    [
        ([[3]], TypeError, "token 0 of sentence 0 must be a dictionary"),
        ([[{}], [{}, {"a": None}]], TypeError, "'a' of token 1 of sentence 1"),
        ([[{1: "a"}]], TypeError, "keys must be strings"),
        ([[{"a": float("nan")}]], ValueError, "feature 'a' of token 0 in sentence 0 is nan; it must be finite"),
        ([[{"a": 10**400}]], ValueError, "it must be finite"),
        ([[{}]], ValueError, "no features"),
    ],
)
def test_wrong_dictionaries(X, error, words):
    with pytest.raises(error, match=words):
        DictFeatures().fit(X)


def test_wrong_uses_of_dictionaries():
    with pytest.raises(ValueError, match="call fit"):
        _ = DictFeatures().width
    with pytest.raises(ValueError, match="lower it"):
        DictFeatures(cutoff=5).fit([[{"a": "b"}]])
    fitted = DictFeatures().fit([[{"a": "b"}]])
    with pytest.raises(ValueError, match="from 0 to 0"):
        fitted.names([1])
    arrays, rest = fitted.state()
    with pytest.raises(ValueError, match="damaged"):
        DictFeatures.from_state({**arrays, "strings": np.array([255, 255, 255], np.uint8)}, rest)
    with pytest.raises(ValueError, match="dicts"):
        DictFeatures.from_state(*FeatureMap().fit(Corpus.of([["a"]])).state())


# --- corpora ---


def test_a_corpus_of_lists():
    sentences = [[("the", "DT"), ("dög", "NN")], [("", "X")], [("run", "VB")] * 3]
    corpus = Corpus.of(sentences, names=["word", "tag"], name="mine")
    assert (len(corpus), corpus.tokens, corpus.lengths.tolist()) == (3, 6, [2, 1, 3])
    assert corpus.strings("tag") == corpus.strings(-1) == corpus.strings(1) == ["DT", "NN", "X", "VB", "VB", "VB"]
    assert corpus.sentences("word") == [["the", "dög"], [""], ["run"] * 3]
    for index in (slice(1, 3), slice(None, None, -1), [2, 0, 0], np.array([True, False, True]), [-1], slice(2, 1)):
        taken = corpus.take(index)
        expected = [corpus.sentences()[i] for i in np.arange(3)[index]]
        assert taken.sentences() == expected
        assert taken.sentences("tag") == [corpus.sentences("tag")[i] for i in np.arange(3)[index]]
    assert [block.sentences() for block in corpus.blocks(3)] == [corpus.sentences()[:2], corpus.sentences()[2:]]
    assert [len(block) for block in corpus.blocks(1)] == [1, 1, 1]
    assert Corpus.joined(list(corpus.blocks(1))).sentences("tag") == corpus.sentences("tag")
    assert "3 sentences, 6 tokens, 2 columns" in repr(corpus)
    assert Corpus.of([]).tokens == 0


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: Corpus.of(["the dog"]), TypeError, "split it into words"),
        (lambda: Corpus.of([["a"], []]), ValueError, "sentence 1 of X is empty"),
        (lambda: Corpus.of([["a", 3]]), TypeError, "found int 3"),
        (lambda: Corpus.of([[("a", "b"), ("a",)]]), ValueError, "token 1 of X has 1 column and"),
        (lambda: Corpus.of([[("a", "b"), "c"]]), TypeError, "token 1 of X must be a tuple"),
        (lambda: Corpus.of([["\ud800"]]), ValueError, "surrogate"),
        (lambda: Corpus.of([["a"]], names=["a", "b"]), ValueError, "2 names for 1 columns"),
        (lambda: Corpus.of([["a"]]).strings(1), ValueError, "no column 1"),
        (lambda: Corpus.of([["a"]]).strings("tag"), ValueError, "no column 'tag'"),
        (lambda: Corpus.of([["a"]]).strings(True), TypeError, "name or an integer"),
        (lambda: Corpus.of([["a"]]).take([1]), ValueError, "1 sentences"),
        (lambda: Corpus.of([["a"]]).take([True, False]), ValueError, "mask"),
        (lambda: Corpus.of([["a"]]).take([0.5]), TypeError, "integers"),
        (lambda: Corpus.joined([]), ValueError, "empty"),
        (lambda: Corpus.joined([Corpus.of([["a"]]), Corpus.of([[("a", "b")]])]), ValueError, "2 columns"),
        (lambda: Corpus((), np.zeros(1, np.int64)), ValueError, "at least one"),
        (lambda: Corpus((Column.of("ab"), Column.of("a")), np.array([0, 2])), ValueError, "column 1 has 1"),
        (lambda: Corpus((Column.of("ab"),), np.array([0, 1])), ValueError, "rise from 0 to 2"),
        (lambda: Corpus((Column.of("ab"),), [0, 2]), TypeError, "int64"),
        (lambda: Corpus((Column.of("ab"),), np.array([0, 2]), lines=np.arange(3)), ValueError, "one per token"),
        (lambda: Column(None, np.zeros(2, np.uint8), np.array([2, 1])), ValueError, "rise"),
        (lambda: Column(None, np.zeros(2), np.array([2])), TypeError, "uint8"),
        (lambda: Column(None, np.zeros(2, np.uint8), [2]), TypeError, "int64"),
    ],
)
def test_a_wrong_corpus_says_what_is_wrong(call, error, words):
    with pytest.raises(error, match=words):
        call()
