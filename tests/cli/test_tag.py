"""``torchperc tag``: fit, eval and apply, what they print, how they fail."""

import gzip
import io
import re
import sys

import pytest

from torchperc.data import tagged_sentences
from torchperc.sequences import Tagger


def conll(sentences, separator="\t"):
    return "".join("".join(f"{separator.join(token)}\n" for token in sentence) + "\n" for sentence in sentences)


TRAIN, HELD = tagged_sentences(60, seed=0), tagged_sentences(20, seed=1)
BIO = [[("Anna", "B-PER"), ("Smith", "I-PER"), ("saw", "O"), ("Rome", "B-LOC")], [("he", "O"), ("left", "O")]] * 5
CONLLU = "\n".join(
    "".join(f"{k}\t{word}\t_\t{tag.lower()}\t{tag}" + "\t_" * 5 + "\n" for k, (word, tag) in enumerate(each, 1))
    for each in TRAIN
)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.conll").write_text(conll(TRAIN))
    (tmp_path / "held.conll").write_text(conll(HELD))
    (tmp_path / "new.txt").write_text("".join(" ".join(word for word, _ in each) + "\n" for each in HELD))
    return tmp_path


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("tagger") / "m.safetensors"
    Tagger.fit(TRAIN, epochs=3).save(path)
    return path


def tagged(model):
    """The held-out sentences with a column of tags by a tagger added."""
    found = Tagger.load(model).apply(HELD)
    return [[(*token, tag) for token, tag in zip(*pair, strict=True)] for pair in zip(HELD, found, strict=True)]


def test_from_a_file_to_a_tagger(call, folder, model):
    code, out, err = call("tag", "fit", "train.conll", "--dev", "held.conll", "--epochs", "3")
    assert (code, err) == (0, "")
    read, head, *lines = out.splitlines()
    assert re.fullmatch(r"train.conll: 60 sentences, \d+ tokens; tags in column 2, features of column 1", read)
    assert " ".join(head.split()) == "epoch wrong sentences wrong tokens training accuracy time dev accuracy"
    assert [line.split()[0] for line in lines[:3]] == ["1", "2", "3"]
    assert "runs/train.safetensors" in out
    assert (folder / "runs/train.safetensors").read_bytes() == model.read_bytes()
    code, out, _ = call("tag", "fit", "train.conll", "--epochs", "1")
    assert (code, "runs/train-2.safetensors" in out) == (0, True)
    dev = re.findall(r"([\d.]+) %", lines[2])[-1]
    code, out, _ = call("tag", "eval", "runs/train.safetensors", "held.conll")
    assert out.splitlines()[0].startswith(f"accuracy {dev} % (")
    assert re.search(r"known words .*\nunknown words .*\nsentences without an error .*\nmost frequent confusions", out)


def test_columns_behind_the_tags_are_ignored_and_said_to_be(call, folder):
    (folder / "wide.conll").write_text("".join(f"w{k} {'AB'[k % 2]} {'ab'[k % 2]}\n" for k in range(201)))
    code, out, _ = call("tag", "fit", "wide.conll", "--column", "2", "--out", "wide", "--epochs", "1")
    assert code == 0
    assert "wide.conll: 1 sentence, 201 tokens; tags in column 2, features of column 1; ignored: 3\n" in out
    assert "Note: all tokens are one sentence; sentences are separated by empty lines." in out
    assert "torchperc tag apply wide new.txt" in out
    for name in ("wide.conll", "new.txt"):
        assert call("tag", "apply", "wide", name, "-o", "out")[::2] == (0, "")
    assert call("tag", "eval", "wide", "wide.conll")[0] == 0
    code, out, _ = call("tag", "fit", "wide.conll", "--out", "all", "--epochs", "1")
    assert (code, "tags in column 3, features of columns 1, 2\n" in out) == (0, True)


def test_out_is_not_overwritten_silently(call, folder):
    assert call("tag", "fit", "train.conll", "--out", "m", "--epochs", "1")[0] == 0
    before = (folder / "m").read_bytes()
    code, _, err = call("tag", "fit", "held.conll", "--out", "m", "--epochs", "1")
    assert (code, err) == (2, "torchperc: error: --out m exists already; choose another, or use --overwrite\n")
    assert (folder / "m").read_bytes() == before
    assert call("tag", "fit", "held.conll", "--out", "m", "--epochs", "1", "--overwrite")[0] == 0
    assert (folder / "m").read_bytes() != before


def test_options_of_fit(call, folder):
    (folder / "t.txt").write_text("U0:%x[0,0]\nU1:%x[-1,0]\nB\n")
    words = ["--templates", "t.txt", "--seed", "4", "--epochs", "2", "--out", "m"]
    assert call("tag", "fit", "train.conll", *words)[0] == 0
    made = Tagger.load("m")
    assert len(made.features.templates) == 2
    (folder / "train.csv.gz").write_bytes(gzip.compress(conll(TRAIN, ",").encode()))
    more = ["--format", "conll", "--separator", ",", "--overwrite"]
    assert call("tag", "fit", "train.csv.gz", *words, *more)[0] == 0
    assert Tagger.load("m").apply(HELD) == made.apply(HELD)
    (folder / "t.conll").write_text("New York\tNAME\nis\tVERB\n")
    assert call("tag", "fit", "t.conll", "--separator", r"\t", "--out", "n", "--epochs", "1")[0] == 0
    assert "New York" in Tagger.load("n").words


@pytest.mark.parametrize("name", ["x.conllu", "u.txt"])
def test_columns_of_conllu(call, folder, name):
    (folder / name).write_text(CONLLU)
    assert call("tag", "fit", name, "--out", "m", "--epochs", "1")[0] == 0
    assert Tagger.load("m").tags[0].islower()
    for column in ("xpos", "5"):
        assert call("tag", "fit", name, "--column", column, "--out", "n", "--overwrite", "--epochs", "1")[0] == 0
        assert Tagger.load("n").tags[0].isupper()
    code, _, err = call("tag", "fit", name, "--column", "pos", "--out", "x")
    assert (code, err.count("\n"), "--column pos is unknown" in err) == (2, 1, True), err
    code, text, _ = call("tag", "eval", "n", name, "--column", "xpos")
    assert (code, "did not occur in training" in text) == (0, False)
    assert call("tag", "apply", "n", name, "-o", "out")[0] == 0
    assert (folder / "out").read_text().split("\n")[0].split("\t")[:2] == [TRAIN[0][0][0], TRAIN[0][0][1].lower()]


def test_eval_of_entities(call, folder):
    (folder / "bio.conll").write_text(conll(BIO))
    assert call("tag", "fit", "bio.conll", "--out", "m", "--epochs", "4")[0] == 0
    code, out, _ = call("tag", "eval", "m", "bio.conll")
    assert code == 0
    assert "accuracy 100.00 % (30 of 30 tokens)" in out
    figures = "precision 100.00 %, recall 100.00 %, F1 100.00 % (10 correct, 10 predicted, 10 true)"
    assert f"entities, all: {figures}\nentities, LOC: " in out
    (folder / "other.conll").write_text(conll([[("Anna", "B-GOD"), ("Smith", "I-GOD")], *BIO]))
    code, out, err = call("tag", "eval", "m", "other.conll")
    assert (code, err.count("\n"), "accuracy" in out) == (2, 1, True)
    assert "other.conll, line 1: tags unknown to the tagger count as wrong: 'B-GOD', 'I-GOD'" in err


def test_apply_to_text_and_tokens(call, folder, model):
    expected = tagged(model)
    code, out, _ = call("tag", "apply", model, "new.txt", "-o", "out.conll")
    assert (code, out) == (0, f"{sum(map(len, HELD))} tags in out.conll\n")
    text = conll([[(token[0], token[2]) for token in each] for each in expected])
    assert (folder / "out.conll").read_text() == text
    assert call("tag", "apply", model, "held.conll", "-o", "both.conll", "--separator", r"\t")[0] == 0
    assert (folder / "both.conll").read_text() == conll(expected)


def test_a_token_per_line_is_read_as_tokens_and_announced(call, folder, model):
    (folder / "c.txt").write_text("\n\n".join("\n".join(word for word, _ in each) for each in HELD))
    code, _, err = call("tag", "apply", model, "c.txt", "-o", "out")
    assert (code, err) == (0, "c.txt is read as conll; use --format text for plain text\n")
    assert (folder / "out").read_text() == conll([[(token[0], token[2]) for token in each] for each in tagged(model)])
    assert call("tag", "apply", model, "c.txt", "-o", "out", "--format", "text")[::2] == (0, "")


def test_apply_does_not_write_onto_what_it_reads(call, folder, model):
    before = (folder / "held.conll").read_bytes()
    code, _, err = call("tag", "apply", model, "held.conll", "-o", "./held.conll")
    assert (code, err) == (2, "torchperc: error: --out held.conll is the file to be tagged; choose another\n")
    assert (folder / "held.conll").read_bytes() == before


@pytest.mark.parametrize("words", [[], ["-"]])
def test_apply_reads_standard_input_and_writes_standard_output(call, folder, model, monkeypatch, words):
    class Standard:
        buffer = io.BytesIO(b"The dog runs\n\nThe")

    monkeypatch.setattr(sys, "stdin", Standard())
    assert call("tag", "apply", model, *words, "-o", "out")[0] == 0
    lines = (folder / "out").read_text().split("\n")
    assert [line.split("\t")[0] for line in lines] == ["The", "dog", "runs", "", "The", "", ""]


BAD = {
    "no tags": (b"a\nb\n\nc\n", ["fit", "eval"], "bad.conll, line 1: found 1 column and none of tags"),
    "widths": (b"a A\nb\n", ["fit", "eval", "apply"], "bad.conll, line 2: found 1 column, and 2 in the lines before"),
    "utf-8": (b"a A\nb\xff B\n", ["fit", "eval", "apply"], "bad.conll, line 2: not valid UTF-8"),
    "empty": (b"", ["fit", "eval", "apply"], "bad.conll has no tokens"),
    "blank": (b"\n\n", ["fit", "eval", "apply"], "bad.conll has no tokens"),
    "one tag": (b"a A\nb A\n", ["fit"], "1 different tags"),
}


@pytest.mark.parametrize(("name", "action"), [(name, action) for name in BAD for action in BAD[name][1]])
def test_bad_files_are_one_line_and_exit_code_two(call, folder, model, name, action):
    content, _, message = BAD[name]
    (folder / "bad.conll").write_bytes(content)
    words = {"fit": ["bad.conll", "--out", "x"], "eval": [model, "bad.conll"], "apply": [model, "bad.conll", "-o", "x"]}
    code, out, err = call("tag", action, *words[action])
    assert code == 2, out
    assert err.startswith("torchperc: error: ")
    assert message in err
    assert err.count("\n") == 1
    assert not (folder / "x").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["tag"], "required"),
        (["tag", "fit"], "required: file"),
        (["tag", "fit", "nowhere.conll"], "cannot read nowhere.conll: No such file"),
        (["tag", "fit", "train.conll", "--column", "3"], "--column 3 is not a column of tags in train.conll, which has 2"),
        (["tag", "fit", "train.conll", "--column", "1"], "--column 1 is not a column of tags"),
        (["tag", "fit", "train.conll", "--column", "pos"], "--column pos is not a column of tags in train.conll"),
        (["tag", "fit", "train.conll", "--epochs", "0"], "--epochs 0 must be at least 1"),
        (["tag", "fit", "train.conll", "--hash", "8"], "unrecognized arguments: --hash 8"),
        (["tag", "fit", "train.conll", "--separator", ""], "--separator '' is empty"),
        (["tag", "fit", "train.conll", "--templates", "train.conll"], "train.conll, line 1"),
        (["tag", "fit", "train.conll", "--out", "no/such/folder/m"], "is not a file in a folder that exists"),
        (["tag", "eval", "train.conll", "held.conll"], "train.conll is not a safetensors file"),
        (["tag", "apply", "train.conll", "held.conll"], "train.conll is not a safetensors file"),
        (["tag", "eval", "nowhere", "held.conll"], "no such tagger: nowhere"),
        (["tag", "apply", "nowhere"], "no such tagger: nowhere"),
    ],
)  # fmt: skip
def test_wrong_words_are_one_line_and_exit_code_two(call, folder, words, message):
    code, _, err = call(*words)
    assert code == 2
    assert message in err
    assert err.count("\n") == 1
    assert not (folder / "runs").exists()


@pytest.mark.parametrize("name", ["new.txt", "held.conll"])
def test_an_empty_separator_is_refused(call, folder, model, name):
    code, out, err = call("tag", "apply", model, name, "--separator", "")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "--separator" in err


def test_a_tagger_of_two_columns(call, folder, model):
    (folder / "two.conll").write_text(conll([[(word, word[-1], tag) for word, tag in each] for each in TRAIN]))
    assert call("tag", "fit", "two.conll", "--out", "two", "--epochs", "1")[0] == 0
    for words in (["new.txt", "--format", "text"], ["c.conll"]):
        (folder / "c.conll").write_text("a\nb\n")
        code, _, err = call("tag", "apply", "two", *words, "-o", "x")
        assert (code, "has 1 column; the tagger was trained on 2 columns besides the tag" in err) == (2, True), err
    assert call("tag", "apply", "two", "held.conll", "-o", "x")[0] == 0
