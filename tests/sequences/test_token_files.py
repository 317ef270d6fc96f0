"""Reading tokens from files: every format, compressed or not, and errors with file and line."""

import bz2
import gzip
import io
import lzma

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchperc.sequences import files, iter_sentences, read

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
