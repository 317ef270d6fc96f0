"""Tables as people have them: arrays, data frames, typos in labels, columns to ignore and to keep."""

import importlib
import os
import tracemalloc

import numpy as np
import pandas as pd
import pytest

import torchperc as tp


@pytest.fixture
def fruit(tmp_path, monkeypatch):
    """A file with an identifier, a column with a comma in its name, and three labels."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(90, 3)).round(3)
    kinds = np.array(["apple", "pear", "plum"])[(X @ rng.normal(size=(3, 3))).argmax(1)]
    frame = pd.DataFrame(X, columns=["weight", "size, in cm", "colour"]).assign(kind=kinds)
    frame.insert(0, "id", [f"F{k:03}" for k in range(90)])
    frame.to_csv("fruit.csv", index=False)
    return frame


def test_arrays_frames_and_files_learn_the_same(fruit, tmp_path):
    names = ["weight", "size, in cm", "colour"]
    X, y = fruit[names].to_numpy(), fruit["kind"].to_numpy()
    options = {"max_epochs": 5, "report": False}
    found = [
        tp.learn("fruit.csv", ignore=["id"], folder="a", **options),
        tp.learn(fruit, target="kind", ignore=["id"], folder="b", **options),
        tp.learn(fruit[names], fruit["kind"].set_axis(range(7, 97)), folder="c", **options),
        tp.learn(X, y, folder="d", **options),
        tp.learn(X.tolist(), y.tolist(), folder="e", **options),
        tp.learn(tp.data.Dataset.of(X, y), folder="f", **options),
    ]
    assert {each.test for each in found} == {found[0].test}
    assert {tuple(each.model.predict(X)) for each in found} == {tuple(found[0].model.predict(X))}
    assert found[2].model.names == tuple(names)
    same = tp.learn(fruit[names], fruit["kind"].rename("colour"), folder="g", **options).model
    assert (same.names, same.target) == (tuple(names), "colour_2")  # no feature is replaced
    assert tp.learn(X, y, positive="pear", **options).model.labels == ("not pear", "pear")
    assert tp.learn(X, y, **options).folder.as_posix() == "runs/data-2"


def test_numbers_in_memory_are_a_quantity_unless_said_otherwise(fruit, words):
    X, y = fruit[["weight", "colour"]].to_numpy(), fruit["size, in cm"].to_numpy()
    found = tp.learn(X, y, folder="a", max_epochs=2)
    assert found.model.regression
    assert "different numbers: regression" in found.taken
    assert "torchperc.learn(X, y" in words(found.folder)
    assert tp.learn(X, (y > 0).astype(int), folder="b", max_epochs=2, report=False).model.labels == ("0", "1")
    assert tp.learn(X, np.arange(90) % 12, folder="c", max_epochs=2, report=False, task="regression").model.regression


def test_a_report_of_arrays_cannot_be_made_again(fruit, refused):
    tp.learn(fruit[["weight"]].to_numpy(), fruit["kind"], folder="a", max_epochs=2, report=False)
    assert "from data in memory" in refused("report", "a")


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        (([[1.0], [2.0]],), TypeError, "target=None"),
        (([[1.0], [2.0]], "kind"), TypeError, "target='kind'"),
        (([[1.0], [2.0]], ["a", "b", "c"]), ValueError, "y has 3 values for 2 samples"),
        (("fruit.csv", ["a", "b"]), TypeError, "target must be a column of 'fruit.csv'"),
        ((pd.DataFrame({"a": [1, 2]}), ["p"]), ValueError, r"target has shape \(1,\) for 2 samples"),
        (("AND",), ValueError, r"source='AND' .* RuleTrainer"),
        (("parity-4",), ValueError, "source='parity-4'"),
        ((5,), TypeError, "target=None"),
    ],
)
def test_what_cannot_be_learned_from_is_refused_with_the_remedy(fruit, given, error, words):
    with pytest.raises(error, match=words):
        tp.learn(*given)
    assert os.listdir() == ["fruit.csv"]


@pytest.mark.parametrize("positive", [None, "plum"])
def test_labels_that_training_did_not_have_are_not_counted(fruit, call, positive):
    found = tp.learn("fruit.csv", positive=positive, ignore=["id"], folder="run", max_epochs=5, report=False)
    fruit.loc[[0, 1, 2, 3], "kind"] = ["plumm", "Plum", "", ""]
    fruit.to_csv("new.csv", index=False)
    code, out, _ = call("apply", "run", "new.csv", "-o", "out.csv")
    labels = np.array(found.model.predict(fruit))
    wrong = (((labels == "plum") != (fruit.kind == "plum")) if positive else labels != fruit.kind)[4:].sum()
    assert code == 0
    assert f"{wrong} of 86 differ" in out
    assert "labels that did not occur in training, 'Plum', 'plumm'" in out


@pytest.mark.parametrize(
    ("words", "names"),
    [
        (["fruit.csv", "--ignore", "id", "size, in cm"], ["weight", "colour"]),
        (["fruit.csv", "--ignore", "id,colour"], ["weight", "size, in cm"]),
        (["--ignore", "size, in cm", "--target", "kind", "fruit.csv", "--ignore", "id"], ["weight", "colour"]),
        (["fruit.csv", "--ignore", "1", "4", "--target", "kind"], ["weight", "size, in cm"]),
    ],
)
def test_columns_to_ignore_are_read_in_every_spelling(fruit, call, words, names):
    code, _, err = call("learn", *words, "--out", "run", "--epochs", "1", "--report", "no")
    assert (code, err) == (0, "")
    assert list(tp.FittedModel.load("run").names) == names


def test_apply_keeps_the_columns_that_are_asked_for(fruit, call, refused):
    fruit.loc[3, "id"] = 'F"3, b'
    fruit.rename(columns={"colour": "label"}).to_csv("fruit.csv", index=False)
    tp.learn("fruit.csv", target="kind", ignore=["id"], folder="run", max_epochs=2, report=False)
    assert call("apply", "run", "fruit.csv", "-o", "plain.csv")[0] == 0
    plain = pd.read_csv("plain.csv", dtype=str)
    for words, names in (
        (["--keep", "id", "label"], ["id", "label"]),
        (["--keep"], ["id", "weight", "size, in cm", "label", "kind"]),
    ):
        code, out, err = call("apply", "run", "fruit.csv", "-o", "kept.csv", *words)
        assert (code, err) == (0, "")
        assert "ignored" not in out
        kept = pd.read_csv("kept.csv", dtype=str)
        assert list(kept)[: len(names) + 1] == [*names, "label_2"]
        assert kept["label_2"].tolist() == plain["label"].tolist()
        assert kept["id"].tolist() == fruit["id"].tolist()
    assert "--keep nobody" in refused("apply", "run", "fruit.csv", "--keep", "nobody")
    pd.read_csv("fruit.csv").head(0).to_csv("none.csv", index=False)
    assert call("apply", "run", "none.csv", "--keep", "id")[1].startswith("id,label,")


def test_predictions_of_a_regression_are_not_kept(tmp_path, monkeypatch):
    """What is held after many blocks of a file is not more than after few; the fit is that of all of them."""
    from torchperc.data.read import Batch

    tp.learn("diabetes", folder=tmp_path / "run", max_epochs=2, report=False)
    table, held = tp.data.load("diabetes"), []
    draws = np.random.default_rng(0).integers(0, len(table.y), (60, 500))

    def blocks():
        for number, some in enumerate(draws):
            held.append(tracemalloc.get_traced_memory()[0])
            yield Batch(500 * number, table.X[some], [repr(value + 1e6) for value in table.y[some].tolist()], {})

    module = importlib.import_module(tp.learn.__module__.rpartition(".")[0] + ".apply")
    stream = type("Stream", (), {"extra": (), "__init__": lambda *_, **__: None, "__iter__": lambda _: blocks()})
    monkeypatch.setattr(module, "Batches", stream)
    model = tp.FittedModel.load(tmp_path / "run")
    (tmp_path / "new.csv").write_text("")
    tracemalloc.start()
    try:
        applied = module.apply(model, tmp_path / "new.csv", tmp_path / "out.csv")
    finally:
        tracemalloc.stop()
    assert held[-1] - held[10] < 100_000  # 49 blocks of two arrays are 392,000 bytes
    predicted, y = np.array(model.predict(table.X)), table.y.numpy() + 1e6
    every = draws.ravel()
    residuals, spread = y[every] - predicted[every], y[every] - y[every].mean()
    assert applied.fit.rmse == pytest.approx(np.sqrt((residuals**2).mean()), rel=1e-12)
    assert applied.fit.r2 == pytest.approx(1 - (residuals**2).sum() / (spread**2).sum(), rel=1e-8)
    assert applied.fit.samples == applied.known == 30_000
