"""``torchperc tag``: fit, eval and apply, what they print, how they fail."""

import gzip
import io
import re
import sys
from types import SimpleNamespace

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


def test_from_a_file_to_a_tagger(call, folder, model):
    code, out, err = call("tag", "fit", "train.conll", "--dev", "held.conll", "--epochs", "3")
    assert (code, err) == (0, "")
    read, head, *lines = out.splitlines()
    assert re.fullmatch(r"train.conll: 60 sentences, \d+ tokens; tags in column 2, features of column 1", read)
    assert " ".join(head.split()) == "epoch wrong sentences wrong tokens training accuracy time dev accuracy"
    assert [line.split()[0] for line in lines[:3]] == ["1", "2", "3"]
    assert (folder / "runs/train.safetensors").read_bytes() == model.read_bytes()
    assert "runs/train-2.safetensors" in call("tag", "fit", "train.conll", "--epochs", "1")[1]
    dev = re.findall(r"([\d.]+) %", lines[2])[-1]
    code, out, _ = call("tag", "eval", "runs/train.safetensors", "held.conll")
    assert out.startswith(f"accuracy {dev} % (")
    assert re.search(r"known words .*\nunknown words .*\nsentences without an error .*\nmost frequent confusions", out)


def test_columns_behind_the_tags_are_ignored_and_said_to_be(call, folder):
    (folder / "wide.conll").write_text("".join(f"w{k} {'AB'[k % 2]} {'ab'[k % 2]}\n" for k in range(201)))
    code, out, _ = call("tag", "fit", "wide.conll", "--column", "2", "--out", "wide", "--epochs", "1")
    assert code == 0
    assert "1 sentence, 201 tokens; tags in column 2, features of column 1; ignored: 3\n" in out
    assert "Note: all tokens are one sentence" in out
    assert "torchperc tag apply wide new.txt" in out
    for name in ("wide.conll", "new.txt"):
        assert call("tag", "apply", "wide", name, "-o", "out")[::2] == (0, "")
    assert call("tag", "eval", "wide", "wide.conll")[0] == 0
    out = call("tag", "fit", "wide.conll", "--epochs", "1", "--out", "two")[1]
    assert "tags in column 3, features of columns 1, 2\n" in out
    (folder / "c.conll").write_text("a\nb\n")
    for words in (["new.txt", "--format", "text"], ["c.conll"]):
        code, _, err = call("tag", "apply", "two", *words, "-o", "x")
        assert (code, "has 1 column; the tagger was trained on 2 columns" in err) == (2, True), err
    assert call("tag", "apply", "two", "held.conll", "-o", "x")[0] == 0


def test_options_of_fit(call, folder):
    (folder / "t.txt").write_text("U0:%x[0,0]\nU1:%x[-1,0]\nB\n")
    words = ["--templates", "t.txt", "--seed", "4", "--epochs", "2", "--out", "m"]
    assert call("tag", "fit", "train.conll", *words)[0] == 0
    made, before = Tagger.load("m"), (folder / "m").read_bytes()
    assert len(made.features.templates) == 2
    code, _, err = call("tag", "fit", "held.conll", *words)  # which is there already
    assert (code, err.count("\n"), "--out m" in err, "--overwrite" in err) == (2, 1, True, True)
    assert (folder / "m").read_bytes() == before
    (folder / "train.csv.gz").write_bytes(gzip.compress(conll(TRAIN, ",").encode()))
    more = ["--format", "conll", "--separator", ",", "--overwrite"]
    assert call("tag", "fit", "train.csv.gz", *words, *more)[0] == 0
    assert Tagger.load("m").apply(HELD) == made.apply(HELD)


@pytest.mark.parametrize(("name", "column"), [("x.conllu", "xpos"), ("u.txt", "5")])
def test_columns_of_conllu(call, folder, name, column):
    (folder / name).write_text(CONLLU)
    for words, lower in (((), True), (("--column", column, "--overwrite"), False)):
        assert call("tag", "fit", name, "--out", "n", "--epochs", "1", *words)[0] == 0
        assert Tagger.load("n").tags[0].islower() == lower
    code, _, err = call("tag", "fit", name, "--column", "pos", "--out", "x")
    assert (code, err.count("\n"), "--column pos" in err) == (2, 1, True), err
    assert call("tag", "eval", "n", name, "--column", "xpos")[::2] == (0, "")
    assert call("tag", "apply", "n", name, "-o", "out")[0] == 0
    assert (folder / "out").read_text().split("\t")[:2] == [TRAIN[0][0][0], TRAIN[0][0][1].lower()]


def test_eval_of_entities(call, folder):
    (folder / "bio.conll").write_text(conll(BIO))
    assert call("tag", "fit", "bio.conll", "--out", "m", "--epochs", "4")[0] == 0
    code, out, _ = call("tag", "eval", "m", "bio.conll")
    assert (code, "accuracy 100.00 % (30 of 30 tokens)" in out) == (0, True)
    figures = "precision 100.00 %, recall 100.00 %, F1 100.00 % (10 correct, 10 predicted, 10 true)"
    assert f"entities, all: {figures}\nentities, LOC: " in out
    (folder / "other.conll").write_text(conll([*BIO, [("Anna", "B-GOD"), ("Smith", "I-GOD")]]))
    code, out, err = call("tag", "eval", "m", "other.conll")
    assert (code, err.count("\n"), "accuracy" in out) == (2, 1, True)
    assert re.search(r"other.conll, line 41: .*'B-GOD', 'I-GOD'", err)


def test_apply_to_text_and_tokens(call, folder, model):
    found = Tagger.load(model).apply(HELD)
    expected = [[(*token, tag) for token, tag in zip(*pair, strict=True)] for pair in zip(HELD, found, strict=True)]
    text = conll([[(token[0], token[2]) for token in each] for each in expected])
    code, out, _ = call("tag", "apply", model, "new.txt", "-o", "out.conll")
    assert (code, out) == (0, f"{sum(map(len, HELD))} tags in out.conll\n")
    assert (folder / "out.conll").read_text() == text
    assert call("tag", "apply", model, "held.conll", "-o", "out.conll", "--separator", r"\t")[0] == 0
    assert (folder / "out.conll").read_text() == conll(expected)
    (folder / "c.txt").write_text("\n\n".join("\n".join(word for word, _ in each) for each in HELD))
    code, _, err = call("tag", "apply", model, "c.txt", "-o", "out.conll")  # a token per line, which is said
    assert (code, err) == (0, "c.txt is read as conll; use --format text for plain text\n")
    assert (folder / "out.conll").read_text() == text
    assert call("tag", "apply", model, "c.txt", "-o", "out.conll", "--format", "text")[::2] == (0, "")


@pytest.mark.parametrize("words", [[], ["-"]])
def test_apply_reads_standard_input(call, folder, model, monkeypatch, words):
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(b"The dog runs\n\nThe")))
    assert call("tag", "apply", model, *words, "-o", "out")[0] == 0
    lines = (folder / "out").read_text().split("\n")
    assert [line.split("\t")[0] for line in lines] == ["The", "dog", "runs", "", "The", "", ""]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("", "required"),
        ("fit nowhere.conll", "nowhere.conll: No such file"),
        ("fit train.conll --column 3", "--column 3"),
        ("fit train.conll --column 1", "--column 1"),
        ("fit train.conll --templates held.conll", "held.conll, line 1"),
        ("fit train.conll --out no/such/folder/m", "--out no/such/folder/m"),
        ("eval train.conll held.conll", "train.conll"),
        ("apply nowhere", "nowhere"),
        ("fit words.conll --out x", "words.conll, line 1: found 1 column"),  # no tags
        ("eval MODEL words.conll", "words.conll, line 1: found 1 column"),
        ("fit bad.conll --out x", "bad.conll, line 2: not valid UTF-8"),
        ("apply MODEL bad.conll -o x", "bad.conll, line 2: not valid UTF-8"),
        ("apply MODEL empty.conll -o x", "empty.conll has no tokens"),
        ("apply MODEL new.txt --separator=", "--separator ''"),
        ("apply MODEL held.conll -o ./held.conll", "--out held.conll"),  # which is what it reads
    ],
)
def test_wrong_words_are_one_line_and_exit_code_two(refused, folder, model, words, message):
    for name, content in {"words": b"a\nb\n\nc\n", "bad": b"a A\nb\xff B\n", "empty": b""}.items():
        (folder / f"{name}.conll").write_bytes(content)
    before = (folder / "held.conll").read_bytes()
    assert message in refused("tag", *(model if word == "MODEL" else word for word in words.split()), silent=False)
    assert not (folder / "runs").exists()
    assert not (folder / "x").exists()
    assert (folder / "held.conll").read_bytes() == before
