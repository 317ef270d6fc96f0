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


def stream(text):
    return io.BytesIO(text.encode())


@pytest.mark.parametrize(
    "text",
    [
        "the DT\ndog NN\n\nrun VB\n",
        "the\tDT\ndog  NN\n\n\n \nrun VB",
        "\ufeffthe DT\r\ndog NN\r\n\r\nrun VB\r\n\r\n",
        "# a comment, and more\nthe DT\ndog NN\n\n# another of four\nrun VB\n",
        "-DOCSTART- -X-\n\nthe DT\ndog NN\n\n-DOCSTART- -X-\nrun VB\n",
    ],
)
def test_columns(text):
    assert read(stream(text)) == TWO
    assert list(iter_sentences(stream(text), "conll")) == TWO


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


def test_a_given_separator_splits_exactly():
    assert read(stream("New York\tLOC\n"), "conll", separator="\t") == [[("New York", "LOC")]]
    assert read(stream("a,b,c\n"), "conll", separator=",") == [[("a", "b", "c")]]
    with pytest.raises(ValueError, match="line 1: column 2 is empty"):
        read(stream("a,,c\n"), "conll", separator=",")


def test_a_number_sign_is_a_token_where_its_columns_fit():
    assert read(stream("a A\n# B\n"), "conll") == [[("a", "A"), ("#", "B")]]
    with pytest.raises(ValueError, match="line 2: found 3 columns, and 2"):
        read(stream("a A\n# B C\n"), "conll")  # within a sentence nothing is a comment


CONLLU = (
    "# sent_id = 1\n1-2\tdu\t_\t_\t_\t_\t_\t_\t_\t_\n1\tde\tde\tADP\tIN\t_\t_\t_\t_\t_\n2\tle café\tle\tDET\tDT\t_\t_\t_"
    "\t_\t_\n2.1\tx\t_\t_\t_\t_\t_\t_\t_\t_\n\n1\tva\taller\tVERB\tVB\t_\t_\t_\t_\t_\n"
)


def test_conllu():
    expected = [[("de", "ADP"), ("le café", "DET")], [("va", "VERB")]]
    assert read(stream(CONLLU)) == read(stream(CONLLU), "conllu") == expected
    assert read(stream(CONLLU), "conllu", column="xpos")[1] == [("va", "VB")]
    with pytest.raises(ValueError, match="line 4: found 9 columns between tabs; CoNLL-U has 10"):
        read(stream(CONLLU.replace("le café\tle", "le café")), "conllu")


def test_words_with_slashes():
    assert read(stream("The/at 1/2/cd\n\n \nI'm/ppss+bem\n")) == [[("The", "at"), ("1/2", "cd")], [("I'm", "ppss+bem")]]
    assert read(stream("a_X b_Y\n"), "slash", separator="_") == [[("a", "X"), ("b", "Y")]]
    for text in ("a/X\nb c/Y\n", "a/X\nb/\n", "a/X\n/Y\n"):
        with pytest.raises(ValueError, match=r"the stream, line 2: '.*' has no '/' between word and tag"):
            read(stream(text), "slash")


def test_plain_text_is_split_at_white_space():
    text = "Mr. Smith  isn't here.\n\n\tNo\u00a0way\n"
    assert read(stream(text), "text") == [[("Mr.",), ("Smith",), ("isn't",), ("here.",)], [("No",), ("way",)]]


@pytest.mark.parametrize(("ending", "pack"), [(".gz", gzip), (".bz2", bz2), (".xz", lzma), ("", None)])
def test_compressed_files(tmp_path, ending, pack):
    path = tmp_path / f"x.conllu{ending}"
    path.write_bytes(CONLLU.encode() if pack is None else pack.compress(CONLLU.encode()))
    assert read(path)[1] == read(str(path))[1] == [("va", "VERB")]
    if pack is not None:
        path.write_bytes(path.read_bytes()[:-12])
        with pytest.raises(ValueError, match=f"cannot read .*x.conllu{ending} after line"):
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
    ("content", "message"),
    [
        (b"a A\nb\n", r"x.txt, line 2: found 1 column, and 2 in the lines before"),
        (b"a b\tA\nc\tB\n", "line 2: found 2 columns, and 3 in the lines before; if columns hold blanks, give a sep"),
        (b"a A\nb\xff B\n", r"x.txt, line 2: not valid UTF-8 at byte 2"),
        (b"", "x.txt has no tokens"),
        (b"\n \n", "x.txt has no tokens"),
    ],
)
def test_errors_name_file_and_line(tmp_path, content, message):
    (tmp_path / "x.txt").write_bytes(content)
    with pytest.raises(ValueError, match=message):
        read(tmp_path / "x.txt")


def test_wrong_calls(tmp_path):
    for call, message in (
        (lambda: read(tmp_path / "nowhere"), "cannot read .*nowhere: No such file"),
        (lambda: read(tmp_path), "cannot read .*: Is a directory"),
        (lambda: read(stream("a A\n"), "csv"), "format='csv' is unknown"),
        (lambda: read(stream("a A\n"), separator=""), "separator='' is empty"),
        (lambda: read(stream(CONLLU), column="pos"), "column='pos' is unknown"),
    ):
        with pytest.raises(ValueError, match=message):
            call()
