"""Reading token files, against parsers in plain Python; what is wrong with a file is one error with its place."""

import bz2
import gzip
import io
import lzma
import os
import re
import threading

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from torchperc.sequences import Corpus, iter_blocks, read, write_conll
from torchperc.sequences import formats as module


def stream(text):
    return io.BytesIO(text.encode() if isinstance(text, str) else text)


def table(corpus):
    """Sentences of tuples."""
    columns = [corpus.sentences(k) for k in range(len(corpus.columns))]
    return [list(zip(*each, strict=True)) for each in zip(*columns, strict=True)]


def plain(text, separator=None):
    """Sentences and line numbers of a text without comments."""
    sentences, lines = [[]], []
    for number, line in enumerate(text.split("\n"), 1):
        fields = tuple(line.strip(" \t\r").split(separator)) if separator else tuple(re.findall(r"[^ \t\r]+", line))
        if not line.strip(" \t\r") or fields[0] == "-DOCSTART-":
            sentences.append([])
        else:
            sentences[-1].append(fields)
            lines.append(number)
    return [sentence for sentence in sentences if sentence], lines


TEXTS = [
    "the DT\ndog NN\n\nrun VB\n",
    "the DT\ndog NN\n\nrun VB",
    "\n\n\n  \t\nthe DT  \n dog\t NN\r\n\r\n \n\nrun   VB\t\n\n\n\n",
    "-DOCSTART- -X- O O\n\nthe DT\n-DOCSTART- x\ndog NN\n",
    "\ufeffä ö\n日本 \u00a0\n\n😀 e\u0301\n",
    "a b",
    "# NN\n# NN\n",
]


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("block", [None, 1, 3, 100])
def test_columns(text, block):
    sentences, lines = plain(text.removeprefix("\ufeff"))
    if block is None:
        corpus = read(stream(text), "conll")
    else:
        blocks = list(iter_blocks(stream(text), "conll", tokens_per_block=block))
        assert all(each.tokens <= block or len(each) == 1 for each in blocks)
        corpus = Corpus.joined(blocks)
    assert table(corpus) == sentences
    assert corpus.lines.tolist() == lines


WORD = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\n\t \0#-\ufeff"), min_size=1, max_size=4)


@settings(max_examples=60)
@given(
    st.lists(st.lists(st.tuples(WORD, WORD), max_size=4), min_size=1, max_size=4).filter(any),
    st.sampled_from(["\n", "\r\n"]),
    st.sampled_from([None, "\t", "||"]),
    st.integers(1, 30),
)
def test_columns_of_any_text(sentences, end, separator, bytes_at_once):
    if separator:
        sentences = [[(a.replace("|", "x"), b.replace("|", "y")) for a, b in each] for each in sentences]
    text = (end * 2).join(end.join((separator or " \t ").join(token) for token in each) for each in sentences)

    class Slow(io.BytesIO):
        def read1(self, size=-1):
            return self.read(bytes_at_once)

    expected = [each for each in sentences if each]
    assert table(read(stream(text), "conll", separator=separator)) == expected
    blocks = list(iter_blocks(Slow(text.encode()), "conll", separator=separator, tokens_per_block=2))
    assert [each for block in blocks for each in table(block)] == expected


def test_comments_are_told_from_the_token_by_their_width():
    text = "# text = the # sign\n# two words here\nthe DT\n# NN\nsign NN\n\n# x\n"
    assert table(read(stream(text), "conll")) == [[("the", "DT"), ("#", "NN"), ("sign", "NN")], [("#", "x")]]
    assert table(read(stream(text), "conll", comments=True)) == [[("the", "DT"), ("sign", "NN")]]
    with pytest.raises(ValueError, match="line 2: found 4 columns and 6 in the lines before"):
        read(stream(text), "conll", comments=False)
    with pytest.raises(ValueError, match="line 2: found 3 columns and 2"):
        read(stream("the DT\n# a comment\n"), "conll")
    only = "# one\n\n" * 20_000 + "a b c\n"
    assert table(Corpus.joined(list(iter_blocks(stream(only), "conll", tokens_per_block=1)))) == [[("a", "b", "c")]]


CONLLU = """# sent_id = 1
# text = Don't run
1-2\tDon't\t_\t_\t_\t_\t_\t_\t_\t_
1\tDo\tdo\tAUX\tVBP\t_\t3\taux\t_\t_
2\tn't\tnot\tPART\tRB\t_\t3\tadvmod\t_\t_
2.1\tempty\t_\t_\t_\t_\t_\t_\t_\t_
3\trun fast\trun\tVERB\tVB\t_\t0\troot\t_\t_

# sent_id = 2
1\t#\t#\tSYM\tNN\t_\t0\troot\t_\t_
"""


def test_conllu():
    expected = [[("Do", "AUX"), ("n't", "PART"), ("run fast", "VERB")], [("#", "SYM")]]
    for given_format in (None, "conllu"):
        assert table(read(stream(CONLLU), given_format)) == expected
    corpus = read(stream(CONLLU), columns=["lemma", -1, 4])
    assert [column.name for column in corpus.columns] == ["lemma", "misc", "xpos"]
    assert corpus.strings(2) == corpus.strings("xpos") == ["VBP", "RB", "VB", "NN"]
    assert corpus.lines.tolist() == [4, 5, 7, 10]
    with pytest.raises(ValueError, match="line 1: found 1 column, and CoNLL-U has ten"):
        read(stream("a b\n"), "conllu")
    with pytest.raises(ValueError, match="line 1, column 1: not the number of a token"):
        read(stream(CONLLU.split("\n")[3].replace("1", "x", 1)), "conllu")
    with pytest.raises(ValueError, match="no column 'pos'; its columns are id, form"):
        read(stream(CONLLU), columns=["pos"])
    with pytest.raises(ValueError, match="tabs"):
        read(stream(CONLLU), "conllu", separator=" ")


def test_words_with_slashes():
    text = "\n\n\tThe/at 1\\/2/cd and/or/cc //sym\r\n\n \nrun/vb  fast/rb"
    expected = [[("The", "at"), ("1\\/2", "cd"), ("and/or", "cc"), ("/", "sym")], [("run", "vb"), ("fast", "rb")]]
    for given_format in (None, "slash"):
        corpus = read(stream(text), given_format)
        assert table(corpus) == expected
        assert corpus.lines.tolist() == [3, 3, 3, 3, 6, 6]
    assert [len(block) for block in iter_blocks(stream(text), tokens_per_block=1)] == [1, 1]
    assert read(stream("a_b__X c__Y"), "slash", separator="__").strings("word") == ["a_b", "c"]
    assert read(stream(text), columns=["tag"]).strings(0) == ["at", "cd", "cc", "sym", "vb", "rb"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a/b c\n", "line 1, token 2: 'c' has no '/' between word and tag"),
        ("a/b\nc/d /e", "line 2, token 2: '/e' has no word before"),
        ("a/b é/", "line 1, token 2: 'é/' has no tag behind"),
        ("a/b\rc/d\n", "line 1, token 1: a carriage return"),
    ],
)
def test_wrong_words_with_slashes(text, words):
    with pytest.raises(ValueError, match=f"the stream, {words}"):
        read(stream(text), "slash")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a b\n\nc d e\n", "line 3: found 3 columns and 2 in the lines before"),
        ("a\tb\nc d\te\n", r"line 2: found 3 columns and 2 .* use separator='\\t'"),
        (b"a b\nd\xc3\xb6g \xff\n", "line 2, column 5: byte 0xff is not valid UTF-8"),
        (b"a b\nc \0d\n", "line 2, column 3: a NUL byte"),
        (b"\xff\xfea\0", "UTF-16; read it with encoding='utf-16'"),
        ("", "the stream has no tokens"),
        ("\n \n\t\n", "the stream has no tokens"),
        ("# only\n# comments of other widths\n", "line 2: found 5 columns and 2"),
        ("-DOCSTART- O\n", "the stream has no tokens"),
        ("a b\rc d\n", "line 1, column 2: a carriage return"),
    ],
)
def test_wrong_text(text, words):
    for function in (read, lambda *given, **more: list(iter_blocks(*given, **more))):
        with pytest.raises(ValueError, match=words) as caught:
            function(stream(text), "conll")
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"format": "xml"}, ValueError, "choose one of 'conll'"),
        ({"columns": [2]}, ValueError, "line 1: there is no column 2, as the line has 2"),
        ({"columns": [-3]}, ValueError, "no column -3"),
        ({"columns": ["pos"]}, ValueError, "no column 'pos'; its columns have no names"),
        ({"columns": [0, -2]}, ValueError, "twice"),
        ({"columns": "0"}, TypeError, "list of names or numbers"),
        ({"columns": [0.5]}, TypeError, "names or integers"),
        ({"separator": ""}, ValueError, "separator"),
        ({"separator": "\n"}, ValueError, "separator"),
        ({"encoding": "utf-99"}, ValueError, "encoding='utf-99' is unknown"),
        ({"encoding": "rot13"}, ValueError, "encoding='rot13' is unknown"),
        ({"comments": 1}, TypeError, "comments"),
        ({"max_unpacked": 0}, ValueError, "max_unpacked"),
    ],
)
def test_wrong_options(options, error, words):
    with pytest.raises(error, match=words):
        read(stream("a b\n"), **options)


def test_a_given_separator_splits_exactly():
    corpus = read(stream("New York,B-LOC \n\nof the ,O\n"), separator=",")
    assert table(corpus) == [[("New York", "B-LOC")], [("of the ", "O")]]
    for text, place in (
        ("a\t\n", "line 1, column 2"),
        ("a\tb\n\tc\n", "line 2, column 1"),
        ("a\t\tb\r\n", "line 1, column 2"),
    ):
        with pytest.raises(ValueError, match=f"{place}: the column is empty"):
            read(stream(text), "conll", separator="\t")
    assert table(read(stream("a\tb\r\n\t\r\n\t\nc\td"), "conll", separator="\t")) == [[("a", "b")], [("c", "d")]]


def test_columns_are_chosen_in_any_order():
    text = "the DT B O\ndog NN I O\n"
    assert table(read(stream(text), columns=[-2, 0])) == [[("B", "the"), ("I", "dog")]]


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16", "utf-16-le", "cp1252"])
def test_encodings(encoding):
    text = "dög NÄ\n\nçà ß\n"
    coded = io.BytesIO(text.encode(encoding))
    assert table(read(coded, encoding=encoding)) == plain(text)[0]
    coded.seek(0)
    blocks = list(iter_blocks(coded, encoding=encoding, tokens_per_block=1))
    assert [each for block in blocks for each in table(block)] == plain(text)[0]
    with pytest.raises(ValueError, match="line 1 or later: not valid ascii"):
        read(io.BytesIO(text.encode("latin-1")), encoding="ascii")


PACK = {
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".zst": lambda data: pa.compress(data, "zstd", asbytes=True),
}


@pytest.mark.parametrize("ending", PACK)
def test_compressed_files(tmp_path, ending):
    path = tmp_path / f"mine.conll{ending}"
    text = "the DT\ndog NN\n\n" * 50
    path.write_bytes(PACK[ending](text.encode()))
    assert table(read(path)) == plain(text)[0]
    assert sum(len(block) for block in iter_blocks(str(path), tokens_per_block=3)) == 50
    with pytest.raises(ValueError, match="decompresses to more than 20 bytes"):
        read(path, max_unpacked=20)
    path.write_bytes(path.read_bytes()[:-6])
    with pytest.raises(ValueError, match="damaged or cut off"):
        read(path)
    path.write_bytes(text.encode())
    with pytest.raises(ValueError, match="is not compressed with"):
        read(path)


def test_files_and_errors_name_them(tmp_path):
    one, two = tmp_path / "a1", tmp_path / "a2"
    one.write_text("The/at dog/nn\n")
    two.write_text("runs/vbz\n")
    both = read(tmp_path / "a*")
    assert both.sentences() == [["The", "dog"], ["runs"]]
    assert both.name == f"{one} and others"
    assert [block.name for block in iter_blocks([one, two])] == [str(one), str(two)]
    two.write_text("a b\nc\n")
    with pytest.raises(ValueError, match=re.escape(f"{two}, line 2: found 1 column and 2")):
        read(two)
    two.write_text("")
    for path, words in (
        (two, "is empty"),
        (tmp_path, "directory"),
        (tmp_path / "missing", "No such file"),
        (tmp_path / "z*", "no file matches"),
    ):
        with pytest.raises(ValueError, match=words):
            read(path)
    with pytest.raises(TypeError, match="not of bytes"):
        read(io.StringIO("a b"))
    with pytest.raises(TypeError, match="path must be"):
        read(3)
    two.write_bytes(gzip.compress(b"a b\n"))
    with pytest.raises(ValueError, match="compressed with gzip, although"):
        read(two)
    two.write_bytes(bytes(range(256)) * 9)
    with pytest.raises(ValueError, match=re.escape(f"{two}, line")):
        read(two)


def test_a_sentence_is_read_from_a_pipe_as_soon_as_it_is_complete():
    here, there = os.pipe()
    with open(here, "rb") as source, open(there, "wb", buffering=0) as sink:
        blocks = iter_blocks(source, "conll")
        sink.write(b"a X\nb Y\n\nc")
        assert next(blocks).sentences() == [["a", "b"]]
        sink.write(b" Z\n\n")
        assert next(blocks).sentences() == [["c"]]
        sink.close()
        assert list(blocks) == []


def test_a_named_pipe(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    writer = threading.Thread(target=path.write_bytes, args=(b"a X\n\nb Y\n",))
    writer.start()
    assert read(path).sentences() == [["a"], ["b"]]
    writer.join()


def test_a_very_long_sentence():
    count = 300_000
    text = b"word TAG\n" * count
    assert read(stream(text)).lengths.tolist() == [count]

    class Slow(io.BytesIO):
        def read1(self, size=-1):
            return self.read(2**16)

    (block,) = iter_blocks(Slow(text), tokens_per_block=10)
    assert block.lengths.tolist() == [count]


def test_writing_is_the_inverse_of_reading():
    corpus = Corpus.of([[("the", "DT"), ("dög", "NN")], [("run", "VB")]])
    out = io.StringIO()
    write_conll(out, corpus)
    assert table(read(stream(out.getvalue()))) == table(corpus)
    out = io.StringIO()
    write_conll(out, corpus, (tag for tag in "XYZ"), separator=" ")
    assert out.getvalue() == "the DT X\ndög NN Y\n\nrun VB Z\n\n"
    with pytest.raises(ValueError, match="1 tags for 3 tokens"):
        write_conll(out, corpus, ["X"])


# --- Parquet ---


def test_parquet_with_lists(tmp_path):
    path = tmp_path / "a.parquet"
    words, tags = [["the", "dög"], [], ["run"]], [[0, 1], [], [2]]
    pq.write_table(pa.table({"id": [1, 2, 3], "tokens": words, "tags": tags}), path)
    corpus = read(path)
    assert table(corpus) == [[("the", "0"), ("dög", "1")], [("run", "2")]]
    assert [column.name for column in corpus.columns] == ["tokens", "tags"]
    assert read(path, columns=["tags"]).strings(0) == read(path, columns=[2]).strings(0) == ["0", "1", "2"]
    assert [len(block) for block in iter_blocks(path, tokens_per_block=2)] == [1, 1]
    for data, words in (
        ({"a": [["x"], ["y"]], "b": [["x"], ["y", "z"]]}, "row 2: 'b' has 2 values and 'a' has 1"),
        ({"a": [["x"], None]}, "row 2, column 'a': no value"),
        ({"a": [["x", None]]}, "column 'a', value 2 from row 1 on: no value"),
        ({"a": [[0.5]]}, "column 'a' holds double"),
        ({"a": ["x"]}, "neither columns of lists nor one that numbers sentences"),
        ({"a": pa.array([[]], pa.list_(pa.string()))}, "has no tokens"),
    ):
        pq.write_table(pa.table(data), path)
        with pytest.raises(ValueError, match=words):
            read(path)
    pq.write_table(pa.table({"a": [["x"]], "b": ["x"]}), path)
    for columns, words in ((["c"], "no column 'c'"), ([5], "no column 5"), (["a", "b"], "one value per row")):
        with pytest.raises(ValueError, match=words):
            read(path, columns=columns)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(ValueError, match="damaged or cut off"):
        read(path)
    path.write_text("a b\n")
    with pytest.raises(ValueError, match="is not a Parquet file"):
        read(path)
    with pytest.raises(ValueError, match="is a stream"):
        read(stream("PAR1"), "parquet")


@pytest.mark.parametrize("block", [None, 1, 2, 100])
def test_parquet_with_one_row_per_token(tmp_path, block):
    path = tmp_path / "a.pq"
    data = {"sentence": [7, 7, 7, 1, 2, 2], "word": list("abcdef"), "tag": pa.array(list("XXYXYY")).dictionary_encode()}
    pq.write_table(pa.table(data), path, row_group_size=2)
    expected = [[("a", "X"), ("b", "X"), ("c", "Y")], [("d", "X")], [("e", "Y"), ("f", "Y")]]
    blocks = [read(path)] if block is None else list(iter_blocks(path, tokens_per_block=block))
    assert [each for corpus in blocks for each in table(corpus)] == expected
    assert read(path, columns=["word"], sentence="tag").sentences() == [["a", "b"], ["c"], ["d"], ["e", "f"]]
    with pytest.raises(ValueError, match="no column 'no'"):
        read(path, sentence="no")
    pq.write_table(pa.table({"sentence": [1, None], "a": ["x", "y"]}), path)
    with pytest.raises(ValueError, match="row 2, column 'sentence': no value"):
        read(path)
    pq.write_table(pa.table({"sentence": [1, 2, 3], "a": ["x", "y", None]}), path)
    with pytest.raises(ValueError, match="column 'a', row 3: no value"):
        read(path)


def test_formats_are_guessed():
    assert module.guess(b"1/2 CD\n") == "conll"
    assert module.guess(b"one/CD half/NN\n") == "slash"
    assert module.guess(CONLLU.encode()) == "conllu"
    assert module.guess(b"") == "conll"
    assert np.array_equal(read(stream("and/or CC\nx Y\n")).lines, [1, 2])


class Pieces(io.BytesIO):
    """A stream of which a read gives what was written at once."""

    def __init__(self, *pieces):
        super().__init__()
        self.pieces = list(pieces)

    def read1(self, size=-1):
        return self.pieces.pop(0) if self.pieces else b""


@pytest.mark.parametrize(
    "pieces",
    [
        (b"# X\n\n", b"a A\n"),
        (b"# a comment\n", b"# X\n\n", b"# x y\na A\n"),
        (b"\n", b"a/A b", b"/B\n"),
        (b"\xef", b"\xbb", b"\xbf", b"a A\n"),
        (b"# c\n", b"1\ta\t_\tX" + b"\t_" * 6 + b"\n"),
    ],
)
def test_a_stream_in_pieces_reads_as_a_whole(pieces):
    whole = read(io.BytesIO(b"".join(pieces)))
    found = Corpus.joined(list(iter_blocks(Pieces(*pieces))))
    assert table(found) == table(whole)
    assert found.lines.tolist() == whole.lines.tolist()


def test_words_of_the_slash_format_stand_between_blanks_only():
    with pytest.raises(ValueError, match=r"line 1, token 1: '\\x0c' has no '/' between"):
        read(io.BytesIO(b"\x0c\n"), "slash")
    with pytest.raises(ValueError, match=r"line 1, token 2: 'c' has no '/' between"):
        read(io.BytesIO(b"a\x0cb/X c\n"), "slash")
    for separator in (" ", "\t", "/ "):
        with pytest.raises(ValueError, match="must have no blank or tab, which stand between tokens"):
            read(io.BytesIO(b"a/X\n"), "slash", separator=separator)


def test_numbers_of_conllu_and_begins_of_documents_are_exact():
    rest = "\tform\t_\tX" + "\t_" * 6 + "\n"
    for number in ("-", ".", "-."):
        with pytest.raises(ValueError, match="line 2, column 1: not the number of a token"):
            read(io.BytesIO(f"1{rest}{number}{rest}".encode()), "conllu")
    assert table(read(io.BytesIO(b"-DOCSTART-X A\nb B\n"), "conll")) == [[("-DOCSTART-X", "A"), ("b", "B")]]
    assert table(read(io.BytesIO(b"-DOCSTART- O O\n-DOCSTART-X A\n"), "conll")) == [[("-DOCSTART-X", "A")]]
