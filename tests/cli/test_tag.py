"""``torchperc tag``: fit, eval and apply, what they print, how they fail."""

import io
import re
import sys

import pytest

from torchperc.data import tagged_sentences
from torchperc.sequences import Corpus, Tagger, read


def conll(sentences, separator="\t"):
    return "".join("".join(f"{separator.join(token)}\n" for token in sentence) + "\n" for sentence in sentences)


TRAIN, HELD = tagged_sentences(60, seed=0), tagged_sentences(20, seed=1)
BIO = [[("Anna", "B-PER"), ("Smith", "I-PER"), ("saw", "O"), ("Rome", "B-LOC")], [("he", "O"), ("left", "O")]] * 5


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
    Tagger.fit(Corpus.of(TRAIN), epochs=3).save(path)
    return path


def test_from_a_file_to_a_tagger(call, folder, model):
    code, out, err = call("tag", "fit", "train.conll", "--dev", "held.conll", "--epochs", "3")
    assert (code, err) == (0, "")
    read, *lines = out.splitlines()
    assert re.fullmatch(r"train.conll: \d+ sentences, [\d,]+ tokens; tags in column 2, features of column 1", read)
    rows = [line.split() for line in lines]
    assert rows[0] == [
        "epoch",
        "wrong",
        "sentences",
        "wrong",
        "tokens",
        "training",
        "accuracy",
        "dev",
        "accuracy",
        "time",
    ]
    assert [row[0] for row in rows[1:4]] == ["1", "2", "3"]
    assert "runs/train.safetensors" in out
    assert (folder / "runs/train.safetensors").read_bytes() == model.read_bytes()
    code, out, _ = call("tag", "fit", "train.conll", "--epochs", "1")
    assert (code, "runs/train-2.safetensors" in out) == (0, True)
    dev = re.findall(r"([\d.]+) %", " ".join(rows[3]))[-1]
    code, out, _ = call("tag", "eval", "runs/train.safetensors", "held.conll")
    assert out.splitlines()[0].startswith(f"accuracy {dev} % (")
    assert re.search(r"known words .*\nunknown words .*\nsentences without an error", out)


def test_what_was_read_and_what_comes_next_are_said(call, folder):
    (folder / "wide.conll").write_text("".join(f"w{k} p{k % 3} {'AB'[k % 2]}\n" for k in range(201)))
    code, out, _ = call("tag", "fit", "wide.conll", "--column", "2", "--out", "wide", "--epochs", "1")
    assert code == 0
    assert "wide.conll: 1 sentence, 201 tokens; tags in column 2, features of columns 1, 3\n" in out
    assert "Note: all tokens are one sentence; sentences are separated by empty lines." in out
    assert "tag new tokens     torchperc tag apply wide new.conll, with the feature columns of training" in out


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
    words = ["--templates", "t.txt", "--decode", "beam", "--beam-width", "3", "--select", "last", "--seed", "4"]
    assert call("tag", "fit", "train.conll", "--out", "m", "--epochs", "2", *words)[0] == 0
    made = Tagger.load("m")
    assert (len(made.templates), made.decode, made.beam_width, made.select) == (2, "beam", 3, "last")
    assert call("tag", "fit", "train.conll", "--out", "h", "--epochs", "1", "--hash", "8")[0] == 0
    assert Tagger.load("h").buckets == 256
    (folder / "moved.csv").write_text(conll([[(tag, word) for word, tag in each] for each in TRAIN], ","))
    code, _, _ = call(
        "tag",
        "fit",
        "moved.csv",
        "--format",
        "conll",
        "--separator",
        ",",
        "--column",
        "1",
        "--out",
        "c",
        "--epochs",
        "2",
    )
    assert code == 0
    assert Tagger.load("c").layout.place == 0


def test_columns_of_conllu(call, folder):
    rows = [[(word, tag.lower(), tag) for word, tag in each] for each in TRAIN]
    lines = (
        "".join(f"{k}\t{word}\t_\t{coarse}\t{tag}" + "\t_" * 5 + "\n" for k, (word, coarse, tag) in enumerate(each, 1))
        for each in rows
    )
    (folder / "x.conllu").write_text("\n".join(lines) + "\n")
    assert call("tag", "fit", "x.conllu", "--out", "m", "--epochs", "1")[0] == 0
    assert Tagger.load("m").tags[0].islower()
    for column, out in (("xpos", "by-name"), ("5", "by-position")):
        assert call("tag", "fit", "x.conllu", "--column", column, "--out", out, "--epochs", "3")[0] == 0
        assert Tagger.load(out).tags[0].isupper()
    code, text, _ = call("tag", "eval", "by-name", "x.conllu")
    assert (code, "did not occur in training" in text) == (0, False)
    with pytest.raises(ValueError, match="has no column 'xpos' of tags, found form, upos"):
        Tagger.load("by-name").evaluate(read("x.conllu"))


def test_columns_of_conllu_under_any_name(call, folder):
    lines = "".join(
        f"{k}\t{word}\t_\t{tag.lower()}\t{tag}" + "\t_" * 5 + "\n" for k, (word, tag) in enumerate(TRAIN[0], 1)
    )
    for name in ("x.conllu", "u.txt"):
        (folder / name).write_text(lines + "\n")
        for column in ("xpos", "5"):
            assert call("tag", "fit", name, "--column", column, "--out", "m", "--overwrite", "--epochs", "1")[0] == 0
            assert Tagger.load("m").layout == (("form",), "xpos", 1)
        for column in ("0", "99", "form", "2", "pos"):
            code, _, err = call("tag", "fit", name, "--column", column, "--out", "x")
            assert (code, err.count("\n")) == (2, 1)
            assert f"--column {column} is not a column of tags in CoNLL-U; choose one of id, lemma, upos" in err
    code, _, _ = call("tag", "fit", "x.conllu", "--format", "conll", "--out", "c", "--column", "5", "--epochs", "1")
    assert (code, len(Tagger.load("c").layout.features)) == (0, 9)


@pytest.mark.parametrize("name", ["c.txt", "eng.testa", "plain"])
def test_tokens_under_any_name_are_tagged_as_tokens(call, folder, model, name):
    contents = {
        "conll": [conll(HELD), conll(HELD, " ")],
        "slash": ["".join(" ".join(map("/".join, each)) + "\n" for each in HELD)],
        "conllu": ["".join(f"{k}\t{word}" + "\t_" * 8 + "\n" for k, (word, _) in enumerate(HELD[0], 1)) + "\n"],
    }
    for kind, texts in contents.items():
        for text in texts:
            (folder / name).write_text(text)
            code, _, err = call("tag", "apply", model, name, "-o", "out")
            assert (code, err) == (0, f"{name} reads as {kind}; --format text takes it as plain text\n")
            words = [line.split("\t")[0] for line in (folder / "out").read_text().split("\n") if line]
            assert words == [word for each in (HELD if kind != "conllu" else HELD[:1]) for word, _ in each]
            assert call("tag", "apply", model, name, "-o", "out", "--format", "text")[2] == ""
    for prose in ("The dog.\nA cat.\nWe run.\n", "and/or\neither/or\n", "One line\n", "A\tB C\nD\n", ""):
        (folder / name).write_text(prose or "x")
        assert call("tag", "apply", model, name, "-o", "out")[::2] == (0, "")


def test_apply_does_not_write_onto_what_it_reads(call, folder, model):
    before = (folder / "held.conll").read_bytes()
    code, _, err = call("tag", "apply", model, "held.conll", "-o", "./held.conll")
    assert (code, err) == (2, "torchperc: error: --out held.conll is the file to be tagged; choose another\n")
    assert (folder / "held.conll").read_bytes() == before


def test_learning_goes_on(call, folder, model):
    code, _, err = call("tag", "fit", "held.conll", "--continue", model, "--out", "more", "--epochs", "2")
    assert (code, err) == (0, "")
    assert Tagger.load("more").epochs == 5
    (folder / "t.txt").write_text("U0:%x[0,0]\n")
    code, _, err = call("tag", "fit", "held.conll", "--continue", model, "--out", "x", "--templates", "t.txt")
    assert code == 2
    assert "--templates t.txt is not what" in err
    assert "trained with" in err


def test_options_that_a_tagger_to_go_on_from_has_already(call, folder, model):
    for words in (["--decode", "greedy"], ["--select", "last"], ["--cutoff", "2"]):
        code, _, err = call("tag", "fit", "held.conll", "--continue", model, "--out", "x", *words)
        assert (code, f"{' '.join(words)} is not what" in err) == (2, True), err
    own = ["--decode", "viterbi", "--select", "averaged", "--cutoff", "1"]
    assert call("tag", "fit", "held.conll", "--continue", model, "--out", "y", "--epochs", "1", *own)[0] == 0
    for words in (["--continue", model], [], ["--decode", "greedy"]):
        code, _, err = call("tag", "fit", "held.conll", "--out", "x", *words, "--beam-width", "4")
        assert (code, err) == (2, "torchperc: error: --beam-width 4 is for --decode beam\n")


def test_a_separator_is_written_as_in_a_shell(call, folder):
    (folder / "t.conll").write_text("New York\tNAME\nis\tVERB\n")
    assert call("tag", "fit", "t.conll", "--separator", r"\t", "--out", "m", "--epochs", "1")[0] == 0
    assert "New York" in Tagger.load("m").vocabulary


def test_the_column_is_that_of_training_if_none_is_named(call, folder):
    (folder / "moved.conll").write_text(conll([[(tag, word) for word, tag in each] for each in TRAIN]))
    assert call("tag", "fit", "moved.conll", "--column", "1", "--out", "m", "--epochs", "1")[0] == 0
    assert call("tag", "fit", "moved.conll", "--continue", "m", "--out", "n", "--epochs", "1")[0] == 0
    assert Tagger.load("m").tags == Tagger.load("n").tags


def test_eval_of_entities_and_the_page(call, folder):
    (folder / "bio.conll").write_text(conll(BIO))
    assert call("tag", "fit", "bio.conll", "--out", "m", "--epochs", "4")[0] == 0
    broken = [[("Anna", "I-PER"), ("Smith", "I-PER"), ("saw", "X"), ("Rome", "B-LOC")]]
    (folder / "broken.conll").write_text(conll([*broken, *BIO]))
    code, out, _ = call("tag", "eval", "m", "bio.conll", "--report", "page.html")
    assert code == 0
    assert "accuracy 100.00 % (30 of 30 tokens)" in out
    assert "entities (IOB2) precision 100.00 %, recall 100.00 %, F1 100.00 % (10 correct, 10 predicted, 10 true)" in out
    page = (folder / "page.html").read_text()
    assert "<h2" in page
    assert "No tag is wrong." in page
    (folder / "broken.conll").write_text(conll([[("Anna", "I-PER"), ("Rome", "B-LOC")], *BIO]))
    code, out, err = call("tag", "eval", "m", "broken.conll")
    assert (code, err) == (0, "")
    assert "1 true tag begins with I- without a B- before it; it is counted as conlleval counts them" in out


def test_the_page_shows_confusions_and_examples(call, folder, model, unpainted):
    code, out, _ = call("tag", "eval", model, "held.conll", "--report", "page.html")
    assert (code, "report: page.html" in out) == (0, True)
    page = (folder / "page.html").read_text()
    for text in ("Most frequent errors", "Confusion", "words known from training", "Its templates:", "["):
        assert text in page


def test_no_line_for_unknown_words_if_there_are_none(call, folder, model):
    code, out, _ = call("tag", "eval", model, "train.conll")
    assert (code, "known words" in out, "unknown words" in out) == (0, True, False)


def test_unknown_tags_at_eval_are_counted_and_named(call, folder, model):
    (folder / "x.conll").write_text(conll([[("the", "DET"), ("dog", "ANIMAL")]]))
    code, out, _ = call("tag", "eval", model, "x.conll")
    assert code == 0
    assert "1 token whose tag did not occur in training counts as wrong: 'ANIMAL'" in out


def test_apply_to_text_and_tokens(call, folder, model):
    expected = Tagger.load(model).apply([[word for word, _ in each] for each in HELD])
    text = conll(
        [[(word, tag) for (word, _), tag in zip(*pair, strict=True)] for pair in zip(HELD, expected, strict=True)]
    )
    code, out, _ = call("tag", "apply", model, "new.txt", "--tokenized", "-o", "out.conll", "--jobs", "2")
    assert (code, out) == (0, f"{sum(map(len, HELD))} tags in out.conll\n")
    assert (folder / "out.conll").read_text() == text
    with_both = conll(
        [[(*token, tag) for token, tag in zip(*pair, strict=True)] for pair in zip(HELD, expected, strict=True)]
    )
    assert call("tag", "apply", model, "held.conll", "-o", "both.conll")[0] == 0
    assert (folder / "both.conll").read_text() == with_both


def test_other_encodings_are_read_and_utf_8_is_written(call, folder, model):
    for name, options in (("held.conll", []), ("new.txt", ["--tokenized"])):
        text = (folder / name).read_text().replace("the", "thé")
        (folder / name).write_text(text, encoding="utf-8")
        (folder / f"other-{name}").write_text(text, encoding="utf-16")
        for given, out, more in ((name, "a", []), (f"other-{name}", "b", ["--encoding", "utf-16"])):
            assert call("tag", "apply", model, given, "-o", out, *options, *more)[0] == 0
        assert (folder / "a").read_text(encoding="utf-8") == (folder / "b").read_text(encoding="utf-8")
        assert "thé" in (folder / "b").read_text(encoding="utf-8")
    both = [
        call("tag", "eval", model, given, *more)[:2]
        for given, more in (("held.conll", []), ("other-held.conll", ["--encoding", "utf-16"]))
    ]
    assert both[0] == both[1]
    code, _, err = call("tag", "eval", model, "other-held.conll")
    assert (code, err) == (
        2,
        "torchperc: error: other-held.conll is not UTF-8 but UTF-16; read it with --encoding utf-16\n",
    )


def test_apply_reads_standard_input(call, folder, model, monkeypatch):
    class Standard:
        def __init__(self, content=b""):
            self.buffer = io.BytesIO(content)

    for words in ([], ["-"]):
        monkeypatch.setattr(sys, "stdin", Standard(b"The dog. The"))
        code, _, _ = call("tag", "apply", model, *words, "-o", "out")
        assert code == 0
        lines = (folder / "out").read_text().split("\n")
        assert [line.split("\t")[0] for line in lines] == ["The", "dog", ".", "", "The", "", ""]


BAD = {
    "no tags": (b"a\nb\n\nc\n", ["fit"], "one column only, so there is no column of tags"),
    "no tags at eval": (b"a\nb\n\nc\n", ["eval"], "has 1 column and no tags"),
    "widths": (b"a A\nb\n", ["fit", "eval", "apply"], "line 2: found 1 column and 2 in the lines before"),
    "tabs": (b"a b\tA\nc\tB\n", ["fit"], r"if columns are separated by tabs and hold blanks, use --separator '\t'"),
    "utf-8": (
        b"a A\nb\xff B\n",
        ["fit", "eval", "apply"],
        "not valid UTF-8; if the file is in another encoding, name it: --encoding latin-1",
    ),
    "empty": (b"", ["fit", "eval", "apply"], "empty"),
    "blank": (b"\n\n", ["fit", "eval"], "no tokens"),
    "one tag": (b"a A\nb A\n", ["fit"], "one tag only, 'A'"),
    "other columns": (b"a x y z A\n", ["eval", "apply"], "5 columns, but the tagger was trained on 1 besides the tag"),
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
        (["tag", "fit"], "required: FILE"),
        (["tag", "fit", "nowhere.conll"], "cannot read nowhere.conll: No such file"),
        (["tag", "fit", "train.conll", "--column", "3"], "--column 3 is not in train.conll, which has 2 columns"),
        (["tag", "fit", "train.conll", "--column", "pos"], "--column pos is not in train.conll"),
        (["tag", "fit", "train.conll", "--epochs", "0"], "--epochs 0 must be at least 1"),
        (["tag", "fit", "train.conll", "--hash", "40"], "--hash 40 must lie between 1 and 31"),
        (["tag", "fit", "train.conll", "--cutoff", "0"], "--cutoff 0 must be at least 1"),
        (["tag", "fit", "train.conll", "--hash", "8", "--cutoff", "2"], "--cutoff 2 needs the dictionary"),
        (["tag", "fit", "train.conll", "--templates", "train.conll"], "train.conll, line 1"),
        (["tag", "fit", "train.conll", "--out", "no/such/folder/m"], "is not a file in a folder that exists"),
        (["tag", "eval", "train.conll", "held.conll"], "train.conll is not a tagger; give MODEL first, then FILE"),
        (["tag", "apply", "train.conll", "held.conll"], "train.conll is not a tagger; give MODEL first, then FILE"),
        (["tag", "eval", "nowhere", "held.conll"], "no such tagger: nowhere"),
        (["tag", "apply", "nowhere"], "no such tagger: nowhere"),
        (["tag", "fit", "train.conll", "--continue", "held.conll"], "held.conll is not a tagger"),
    ],
)  # fmt: skip
def test_wrong_words_are_one_line_and_exit_code_two(call, folder, words, message):
    code, out, err = call(*words)
    assert (code, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1


def test_options_that_mean_nothing_for_a_model(call, folder, model):
    code, _, err = call("tag", "apply", model, "held.conll", "--tokenized", "-o", "x")
    assert (code, err) == (2, "torchperc: error: --tokenized is for plain text, not for conll\n")
    (folder / "two.conll").write_text(conll([[(word, word, tag) for word, tag in each] for each in TRAIN]))
    assert call("tag", "fit", "two.conll", "--out", "two", "--epochs", "1")[0] == 0
    code, _, err = call("tag", "apply", "two", "new.txt", "--format", "text", "-o", "x")
    assert (code, "the tagger needs 2 columns and plain text has words only" in err) == (2, True)
