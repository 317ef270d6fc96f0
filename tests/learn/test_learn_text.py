"""From messages to labels: learn, apply, predict and what reads the run, against scikit-learn with the same weights."""

import numpy as np
import pandas as pd
import pytest
import torch
from messages import messages, save
from torch.utils.tensorboard import SummaryWriter

import torchperc as tp
from torchperc.learn import candidates
from torchperc.learn.learn import learn
from torchperc.reports import Picture


@pytest.fixture(scope="module")
def learned(tmp_path_factory):
    """A run on messages, and its file."""
    folder = tmp_path_factory.mktemp("text")
    path = save(folder / "messages.csv", messages(300))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Picture, "of", lambda figure, alt, caption: Picture(b"", alt, caption, (1, 1)))
        patch.setattr(SummaryWriter, "add_figure", lambda *_, **__: None)
        return path, learn(path, text="message", folder=folder / "run", max_epochs=20)


def test_messages_are_learned_and_the_column_is_named(learned):
    _, found = learned
    assert found.baseline.error > 0.3
    assert found.best.validation.error < 0.2
    assert found.notes == ()
    assert found.model.scaler.kind == "maxabs"


def test_apply_predict_and_sklearn_agree(learned, run, tmp_path):
    from sklearn.feature_extraction.text import TfidfVectorizer

    _, found = learned
    rows = [*messages(120, seed=1), ("Unheard-of: 文字!", "ham")]
    new = save(tmp_path / "new.csv", [(label, "x", text) for text, label in rows], ("label", "more", "message"))
    out, _ = run("apply", found.folder, new, "-o", tmp_path / "labels.csv")
    table = pd.read_csv(tmp_path / "labels.csv")
    texts = [text for text, _ in rows]
    model = tp.FittedModel.load(found.folder)
    assert model.encoding == found.model.encoding
    assert model.predict([{"message": text} for text in texts]) == table.label.tolist()
    scores = model.scores(pd.DataFrame({"message": texts, "more": 1}))
    assert scores.double().tolist() == table.score.tolist()  # to the bit
    token = r"\w+(?:['’]\w+)*|[^\w\s]+"
    vectorizer = TfidfVectorizer(token_pattern=token, ngram_range=(1, 2), sublinear_tf=True, min_df=2)
    vectorizer.fit([text for text, _ in messages(300)])
    X = vectorizer.transform(texts) / model.scaler.scale.numpy()
    by_hand = X @ model.net.weight[0].double().numpy() + float(model.net.bias)
    np.testing.assert_allclose(table.score, by_hand, rtol=1e-4, atol=1e-6)
    wrong = sum(label != said for (_, label), said in zip(rows, table.label, strict=True))
    assert f"{wrong} of 121 differ from the labels" in out
    assert wrong < 25


def test_rows_as_dicts_that_are_wrong(learned):
    model = learned[1].model
    with pytest.raises(
        ValueError, match=r"X\[1\] must be a dict with each column of training, 'message', found {'text'"
    ):
        model.predict([{"message": "a"}, {"text": "b"}])
    with pytest.raises(TypeError, match=r"X\[1\] must be a dict .*, found 'b'"):
        model.predict([{"message": "a"}, "b"])
    with pytest.raises(ValueError, match="X, row 1, column 'message': the value is missing"):
        model.predict([{"message": None}])


def test_the_report_lists_the_strongest_words(learned, words):
    _, found = learned
    said = words(found.folder)
    weight = found.model.net.weight[0]
    most, least = int(weight.argmax()), int(weight.argmin())
    names = found.model.names
    assert f"for ham {names[least]} ({-weight[least]:.3g}); " in said
    assert f"for spam {names[most]} ({weight[most]:.3g}); " in said
    assert f"({found.best.training.wrong} of 180)" in said


def test_three_labels_have_words_for_each_and_the_command_says_what_to_do_next(tmp_path, run, unpainted, words):
    rows = [(text, label if i % 3 else "news") for i, (text, label) in enumerate(messages(90))]
    rows = [(f"{text} headline" if label == "news" else text, label) for text, label in rows]
    out, _ = run("learn", save(tmp_path / "m.csv", rows), "--text", "message", "--out", tmp_path / "run", "--epochs", 5)
    assert "--to safetensors" in out
    assert "for news message: headline (" in words(tmp_path / "run")


@pytest.mark.slow
def test_other_commands_read_the_run(learned, run, refused, tmp_path, unpainted):
    _, found = learned
    run("report", found.folder, "--out", tmp_path / "page.html")
    assert "for spam" in (tmp_path / "page.html").read_text()
    again = run("export", found.folder, "--to", "safetensors", "-o", tmp_path / "m.safetensors")[0]
    assert "scores equal to the bit" in again
    for kind in ("onnx", "torch"):
        assert "the model reads free text (column 'message')" in refused("export", found.folder, "--to", kind)


@pytest.mark.slow
def test_streamed_text_is_learned_alike(learned, tmp_path, monkeypatch, unpainted):
    path, _ = learned
    monkeypatch.setattr(candidates, "MANY", 1)
    found = learn(path, text="message", folder=tmp_path / "held", max_epochs=20, report=False)
    monkeypatch.setattr("torchperc.samples.mapped.CHUNK", 4096)  # so that some of this file is too much to hold
    streamed = learn(path, text="message", folder=tmp_path / "run", max_epochs=20, stream=True)
    assert streamed.model.encoding == found.model.encoding
    assert streamed.model.scaler.state() == found.model.scaler.state()
    a, b = (tp.FittedModel.load(each.folder / "logistic").net.weight for each in (streamed, found))
    torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--text", "body"], "it has 'age', 'message', 'id', 'label'"),
        (["--text", "message", "--categories", "message"], "--text message is also in categories"),
        (
            ["--text", "message"],
            "'id' has 60 different values .* ignore it (--ignore id), .* (--categories id), .* (--text id)",
        ),
        (
            ["--text", "message", "--ignore", "id", "--scale", "standard"],
            "no zero of sparse X would stay zero; use --scale maxabs",
        ),
    ],
)
def test_bad_columns_are_told_in_one_line(tmp_path, refused, words, message):
    rows = [(i, text, f"A{i:04}", label) for i, (text, label) in enumerate(messages(60))]
    path = save(tmp_path / "m.csv", rows, ("age", "message", "id", "label"))
    err = refused("learn", path, "--out", tmp_path / "run", *words)
    assert all(piece in err for piece in message.split(" .* ")), err
