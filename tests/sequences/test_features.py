"""Features against an extractor in plain Python; tokens from files of every format, and errors with file and line."""

import bz2
import gzip
import io
import lzma
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from refusals import refusals

from torchperc.sequences import FeatureMap, Templates, files, iter_sentences, read

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


TWO = [[("the", "DT"), ("dog", "NN")], [("run", "VB")]]
CONLLU = (
    "# sent_id = 1\n1-2\tdu\t_\t_\t_\t_\t_\t_\t_\t_\n1\tde\tde\tADP\tIN\t_\t_\t_\t_\t_\n2\tle café\tle\tDET\tDT\t_\t_\t_"
    "\t_\t_\n2.1\tx\t_\t_\t_\t_\t_\t_\t_\t_\n\n1\tva\taller\tVERB\tVB\t_\t_\t_\t_\t_\n"
)


def stream(text):
    return io.BytesIO(text.encode())


WORD = st.text(st.characters(exclude_categories=["Z", "C"]), min_size=1, max_size=5).filter(
    lambda word: word[0] != "#" and not any(map(str.isspace, word))
)


@given(
    st.lists(st.lists(st.tuples(WORD, WORD, WORD), min_size=1, max_size=4), min_size=1, max_size=4),
    st.sampled_from([" ", "\t"]),
)
def test_columns_of_any_text(sentences, between):
    text = "\n\n".join("\n".join(map(between.join, sentence)) for sentence in sentences)
    assert read(stream(text), "conll") == sentences
    assert read(stream(text), "conll", separator=between) == sentences


@pytest.mark.parametrize(
    ("text", "options", "expected"),
    [
        ("the DT\ndog NN\n\nrun VB\n", {}, TWO),
        ("the\tDT\ndog  NN\n\n\n \nrun VB", {}, TWO),
        ("\ufeffthe DT\r\ndog NN\r\n\r\nrun VB\r\n\r\n", {}, TWO),
        ("# a comment, and more\nthe DT\ndog NN\n\n# another of four\nrun VB\n", {}, TWO),
        ("-DOCSTART- -X-\n\nthe DT\ndog NN\n\n-DOCSTART- -X-\nrun VB\n", {}, TWO),
        ("the/DT dog/NN\n\n \nrun/VB\n", {}, TWO),
        ("New York\tLOC\n", {"format": "conll", "separator": "\t"}, [[("New York", "LOC")]]),
        ("a,b,c\n", {"format": "conll", "separator": ","}, [[("a", "b", "c")]]),
        ("a A\n# B\n", {"format": "conll"}, [[("a", "A"), ("#", "B")]]),
        ("The/at 1/2/cd\n", {}, [[("The", "at"), ("1/2", "cd")]]),
        ("a_X b_Y\n", {"format": "slash", "separator": "_"}, [[("a", "X"), ("b", "Y")]]),
        ("Mr. isn't  here.\n\n\tNo\u00a0way\n", {"format": "text"}, [[("Mr.",), ("isn't",), ("here.",)], [("No",), ("way",)]]),
        (CONLLU, {}, [[("de", "ADP"), ("le café", "DET")], [("va", "VERB")]]),
        (CONLLU, {"format": "conllu", "column": "xpos"}, [[("de", "IN"), ("le café", "DT")], [("va", "VB")]]),
    ],
)  # fmt: skip
def test_what_a_text_means(text, options, expected):
    assert read(stream(text), **options) == list(iter_sentences(stream(text), **options)) == expected


@pytest.mark.parametrize(("ending", "pack"), [(".gz", gzip), (".bz2", bz2), (".xz", lzma), ("", None)])
def test_compressed_files(tmp_path, ending, pack):
    path = tmp_path / f"x.conllu{ending}"
    path.write_bytes(CONLLU.encode() if pack is None else pack.compress(CONLLU.encode()))
    assert read(path)[1] == read(str(path))[1] == [("va", "VERB")]
    if pack is not None:
        path.write_bytes(path.read_bytes()[:-12])
        with pytest.raises(ValueError, match=f"cannot read .*x.conllu{ending}"):
            read(path, "conllu")


def test_formats_are_recognised(tmp_path):
    for name, text, kind, plain in (
        ("a.conll", "a/X\n", "conll", "conll"),
        ("a.tsv.gz", "", "conll", "conll"),
        ("a.conllu", "a/X\n", "conllu", "conllu"),
        ("a.txt", "a/X b/Y\n", "slash", "text"),
        ("a.txt", "a X\nb Y\n", "conll", "text"),
        ("a.txt", "a\tX\nb\tY\n", "conll", "conll"),
        ("a.txt", "We\nrun\nhome\n", "conll", "conll"),
        ("eng.testa", CONLLU, "conllu", "conllu"),
        ("a", "The dog runs.\nHome\n", "conll", "text"),
    ):
        path = tmp_path / name
        path.write_bytes(gzip.compress(text.encode()) if name.endswith("gz") else text.encode())
        assert (files.format_of(path), files.format_of(path, plain=True)) == (kind, plain), (name, text)


@pytest.mark.parametrize(
    ("content", "options", "message"),
    [
        (b"a A\nb\n", {}, r"x.txt, line 2: found 1 column, and 2"),
        (b"a b\tA\nc\tB\n", {}, r"x.txt, line 2: found 2 columns, and 3 .*separator"),
        (b"a A\n# B C\n", {}, r"x.txt, line 2: found 3 columns, and 2"),  # within a sentence nothing is a comment
        (b"a,,c\n", {"format": "conll", "separator": ","}, r"x.txt, line 1: column 2"),
        (b"a A\nb\xff B\n", {}, r"x.txt, line 2: not valid UTF-8 at byte 2"),
        (b"a/X\nb c/Y\n", {"format": "slash"}, r"x.txt, line 2: 'b'"),
        (CONLLU.replace("le café\tle", "le café").encode(), {"format": "conllu"}, r"x.txt, line 4: found 9 columns"),
        (b"", {}, r"x.txt has no tokens"),
        (b"a A\n", {"format": "csv"}, "format='csv'"),
        (b"a A\n", {"separator": ""}, "separator=''"),
        (CONLLU.encode(), {"column": "pos"}, "column='pos'"),
        (None, {}, r"cannot read .*x.txt: No such file"),
    ],
)
def test_errors_name_file_and_line_or_parameter(tmp_path, content, options, message):
    if content is not None:
        (tmp_path / "x.txt").write_bytes(content)
    with pytest.raises(ValueError, match=message):
        read(tmp_path / "x.txt", **options)
