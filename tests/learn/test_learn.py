"""From a stranger's file to predictions: learn, apply, and what they leave behind."""

import contextlib
import csv
import json
import math
import re
import shlex
from multiprocessing import get_context

import numpy as np
import pandas as pd
import pytest
import torch

import torchperc as tp
from torchperc import learn
from torchperc._files import locked_folder
from torchperc.cli import main
from torchperc.learn import candidates, results
from torchperc.learn import learn as learning
from torchperc.learn.apply import apply
from torchperc.theory import verifier


def people(path, rows=240, seed=0, gaps=0):
    """A table with numbers, a category and a label in words; some cells may be empty."""
    rng = np.random.default_rng(seed)
    age, income = rng.integers(18, 80, rows), rng.normal(3000, 800, rows).round(2)
    colour = rng.choice(["red", "green", "blue"], rows)
    score = (age - 45) / 20 + (income - 3000) / 900 + np.where(colour == "red", 1.0, -0.5) + rng.normal(0, 0.5, rows)
    label = np.where(score < 0, "low", "high")
    frame = pd.DataFrame({"age": age.astype(float), "income": income, "colour": colour, "bought": label})
    frame.loc[rng.choice(rows, gaps, replace=False), "income"] = np.nan
    frame.to_csv(path, index=False)
    return frame


def features(frame):
    """As the model has them: a category is 0 or 1 for each of its levels."""
    levels = (frame.colour == level for level in ("blue", "green", "red"))
    return np.column_stack([frame.age, frame.income, *levels]).astype(float)


@pytest.fixture(scope="module")
def learned(tmp_path_factory):
    folder = tmp_path_factory.mktemp("learn")
    frame = people(folder / "people.csv")
    return frame, folder / "people.csv", learn(folder / "people.csv", folder=folder / "run", max_epochs=10)


def test_the_folder_holds_what_was_promised(learned):
    _, _, found = learned
    names = {path.name for path in found.folder.iterdir()}
    assert names == {
        "lms", "logistic", "metrics.csv", "perceptron", "report.html", "results.json", "rule",
        "weights.safetensors",
    }  # fmt: skip
    for each in found.candidates:
        below = {path.name for path in (found.folder / each.name).iterdir()}
        assert below == {"metrics.csv", "weights.safetensors"}
        rows = list(csv.DictReader((found.folder / each.name / "metrics.csv").read_text().splitlines()))
        assert len(rows) == each.epochs
        assert float(rows[-1]["error/val"]) == each.validation.error
    assert not list(found.folder.parent.glob(".torchperc-*"))


def test_errors_are_those_of_the_saved_weights_on_the_same_split(learned):
    """An oracle of its own: pandas, get_dummies, the split, a standard score by hand, weights as numbers."""
    frame, _, found = learned
    X = features(frame)
    y = np.where(frame.bought == "low", 1, -1)  # labels sort by the alphabet: high, low
    train, validation, test = (index.numpy() for index in tp.data.split(y, (0.6, 0.2, 0.2), 0))
    Z = (X - X[train].mean(0)) / X[train].std(0)
    for each in found.candidates:
        model = tp.FittedModel.load(found.folder / each.name)
        weight, bias = model.net.weight.double().numpy()[0], float(model.net.bias)
        decided = np.where(Z @ weight + bias >= 0, 1, -1)
        assert each.validation == (int((decided != y)[validation].sum()), len(validation))
        assert each.training == (int((decided != y)[train].sum()), len(train))
        if each is found.best:
            assert found.test == (int((decided != y)[test].sum()), len(test))
    assert found.baseline.wrong == min((y[validation] > 0).sum(), (y[validation] < 0).sum())


def test_the_best_has_the_fewest_validation_errors_and_is_what_is_saved(learned):
    _, _, found = learned
    least = min(each.validation.error for each in found.candidates)
    assert found.best is next(each for each in found.candidates if each.validation.error == least)  # the first
    kept, own = (tp.FittedModel.load(path) for path in (found.folder, found.folder / found.best.name))
    assert torch.equal(kept.net.weight, own.net.weight)
    assert (kept.labels, kept.about["learned by"]) == (("high", "low"), found.best.name)
    assert kept.names == ("age", "income", "colour=blue", "colour=green", "colour=red")
    again = type(found).load(found.folder)
    assert (again.candidates, again.best, again.test) == (found.candidates, found.best, found.test)


def test_apply_writes_a_label_and_its_scores_for_every_row(learned, tmp_path, run):
    _, _, found = learned
    new = people(tmp_path / "new.csv", rows=50, seed=9)
    shuffled = new[["colour", "bought", "income", "age"]].assign(note="x, y")
    shuffled.to_csv(tmp_path / "other.csv", index=False)
    said, _ = run("apply", found.folder, tmp_path / "new.csv", "-o", tmp_path / "a.csv")
    assert "50 labels in" in said
    said, _ = run("apply", found.folder, tmp_path / "other.csv", "-o", tmp_path / "b.csv")
    assert "ignored: note" in said
    assert (tmp_path / "a.csv").read_bytes() == (tmp_path / "b.csv").read_bytes()
    rows = list(csv.DictReader((tmp_path / "a.csv").read_text().splitlines()))
    assert [row["label"] for row in rows] == found.model.predict(features(new))
    assert [float(row["score"]) for row in rows] == found.model.outputs(features(new)).scores.double().tolist()
    assert run("apply", found.folder, tmp_path / "new.csv")[0] == (tmp_path / "a.csv").read_text()
    wrong = sum(row["label"] != label for row, label in zip(rows, new.bought, strict=True))
    assert f"{wrong} of 50 differ" in said


def test_missing_values_are_filled_with_the_means_of_the_training_part(tmp_path, run, unpainted):
    frame = people(tmp_path / "gaps.csv", gaps=30)
    _, said = run("learn", tmp_path / "gaps.csv", "--out", tmp_path / "run", code=2)
    first = int(np.flatnonzero(frame.income.isna())[0])
    for part in (f"line {first + 2}", "income", "--missing mean", "--missing drop"):
        assert part in said
    assert not (tmp_path / "run").exists()
    found = learn(tmp_path / "gaps.csv", folder=tmp_path / "run", missing="mean", max_epochs=3)
    train = tp.data.split(np.array(frame.bought), (0.6, 0.2, 0.2), 0)[0].numpy()
    assert math.isclose(found.model.encoding.imputed_values[1], frame.income[train].mean(), rel_tol=1e-12)
    run("apply", found.folder, tmp_path / "gaps.csv", "-o", tmp_path / "out.csv")
    X = features(frame.fillna({"income": frame.income[train].mean()}))
    assert pd.read_csv(tmp_path / "out.csv").label.tolist() == found.model.predict(X)


def test_the_command_prints_a_table_and_what_to_do_next(tmp_path, run, monkeypatch, unpainted):
    monkeypatch.chdir(tmp_path)
    people("my people.csv")
    said, _ = run("learn", "my people.csv", "--target", "bought", "--epochs", 1)
    assert "240 samples, 5 features, labels high, low" in said
    for word in ("rule", "perceptron", "lms", "logistic", "kept", "majority class", "torchperc apply"):
        assert word in said
    said, _ = run("learn", "my people.csv", "--epochs", 1)
    assert "my people-2" in said
    assert (tmp_path / "runs" / "my people-2" / "report.html").is_file()


def test_a_run_is_replaced_only_if_asked(tmp_path, run, unpainted):
    people(tmp_path / "a.csv")
    words = ("learn", tmp_path / "a.csv", "--out", tmp_path / "run", "--epochs", 1)
    run(*words)
    stamp = (tmp_path / "run" / "report.html").stat().st_mtime_ns
    _, said = run(*words, code=2)
    assert "--overwrite" in said
    assert (tmp_path / "run" / "report.html").stat().st_mtime_ns == stamp
    run(*words, "--overwrite")
    assert (tmp_path / "run" / "report.html").stat().st_mtime_ns > stamp
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("mine")
    _, said = run("learn", tmp_path / "a.csv", "--out", tmp_path / "mine", "--overwrite", code=2)
    assert (tmp_path / "mine" / "thesis.txt").read_text() == "mine"


@pytest.mark.parametrize(("module", "name"), [(candidates, "_step"), (results, "baseline")])
def test_a_run_broken_off_says_so_and_leaves_nothing(tmp_path, run, monkeypatch, module, name):
    people(tmp_path / "a.csv")

    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(module, name, stop)
    _, err = run("learn", tmp_path / "a.csv", "--out", tmp_path / "run", "--epochs", 2, code=130)
    assert err.splitlines()[-1] == "torchperc: interrupted"
    assert [path.name for path in tmp_path.iterdir()] == ["a.csv"]


def test_apply_refuses_in_one_line_and_writes_nothing(learned, tmp_path, refused):
    (tmp_path / "out.csv").write_text("before")
    for text, word in (("", "empty"), ("age,income,colour\n30,3000,red\n31,3000,pink\n", "--unknown ignore")):
        (tmp_path / "new.csv").write_text(text)
        assert word in refused("apply", learned[2].folder, tmp_path / "new.csv", "-o", tmp_path / "out.csv")
        assert (tmp_path / "out.csv").read_text() == "before"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["new.csv", "out.csv"]


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (("learn", "none.csv"), "none.csv"),
        (("learn", "one.csv"), "one label"),
        (("learn", "a.csv", "--target", "nobody"), "nobody"),
        (("learn", "a.csv", "--split", "1", "0", "0"), "validation"),
        (("learn", "a.csv", "--epochs", "0"), "--epochs 0 must be"),
        (("learn", "a.csv", "--ignore", "nobody"), "nobody"),
        (("learn", "a.csv", "--positive", "nobody"), "nobody"),
        (("learn", "few.csv"), "2 samples, too few"),
        (("apply", "none", "a.csv"), "none"),
        (("apply", "a.csv", "a.csv"), "safetensors"),
        (("apply", "run", "a.csv", "-o", "out.xlsx"), "out.xlsx"),
        (("apply", "run", "a.csv", "-o", "a.csv"), "a.csv"),
        (("apply", "run", "a.csv", "-o", "nowhere/out.csv"), "nowhere"),
        (("apply", "run", "none.csv"), "none.csv"),
    ],
)
def test_bad_input_is_one_line(learned, tmp_path, refused, monkeypatch, words, part):
    monkeypatch.chdir(tmp_path)
    people("a.csv")
    (tmp_path / "one.csv").write_text("a,b\n1,x\n2,x\n")
    (tmp_path / "few.csv").write_text("a,b\n1,x\n2,y\n")
    (tmp_path / "run").symlink_to(learned[2].folder)
    before = (tmp_path / "a.csv").read_bytes()
    assert part in refused(*words)
    assert not (tmp_path / "runs").exists()
    assert (tmp_path / "a.csv").read_bytes() == before


def test_streaming_learns_the_same(learned, tmp_path, monkeypatch):
    _, path, _ = learned
    monkeypatch.setattr(candidates, "MANY", 1)
    found = learn(path, folder=tmp_path / "held", max_epochs=10, report=False)
    assert ["one step per sample" in each.how for each in found.candidates] == [False, False, True, True]
    assert found.best.validation.error < found.baseline.error
    monkeypatch.setattr("torchperc.samples.mapped.CHUNK", 4096)  # so that some of this file is too much to hold
    streamed = learn(path, folder=tmp_path / "run", max_epochs=10, stream=True, report=False)
    for name in ("perceptron", "lms", "logistic"):  # the rule's shuffled order of parts is another order
        a, b = (tp.FittedModel.load(each / name).net for each in (streamed.folder, found.folder))
        torch.testing.assert_close(a.weight, b.weight, rtol=1e-4, atol=1e-5)
    assert streamed.baseline == found.baseline
    assert streamed.test.samples == found.test.samples


@pytest.mark.slow
def test_sparse_files_stay_sparse_from_learning_to_labels(tmp_path, run, monkeypatch, unpainted, words):
    from scipy.sparse import csr_array, random_array
    from sklearn.datasets import dump_svmlight_file

    rng = np.random.default_rng(3)
    X = csr_array(random_array((300, 500), density=0.02, rng=rng, format="csr"))
    y = np.where(X @ rng.normal(size=500) >= 0, "spam", "ham")
    dump_svmlight_file(X, np.where(y == "spam", 1, -1), str(tmp_path / "mail.svm"), zero_based=False)
    monkeypatch.setattr("torchperc.reports.sections._LOOKED_AT", 400)
    found = learn(tmp_path / "mail.svm", folder=tmp_path / "run", max_epochs=3)
    page = words(found.folder)
    assert f"({found.best.validation.wrong} of 60)" in page
    assert "of 180 training samples" in page
    assert found.model.scaler.kind == "maxabs"
    run("apply", found.folder, tmp_path / "mail.svm", "-o", tmp_path / "out.csv")
    table = pd.read_csv(tmp_path / "out.csv")
    width = found.model.width
    weight, bias = found.model.net.weight[0].double().numpy(), float(found.model.net.bias)
    scores = X[:, :width] / found.model.scaler.scale.numpy() @ weight + bias
    np.testing.assert_allclose(table.score, scores, rtol=1e-4, atol=1e-5)
    assert table.label.tolist() == [int(label) for label in np.where(table.score >= 0, 1, -1)]


def test_proofs_about_any_table_can_be_checked_as_is_printed(tmp_path, run):
    people(tmp_path / "a b.csv", rows=60)
    table = pd.read_csv(tmp_path / "a b.csv")
    table.to_csv(tmp_path / "semi.csv", sep=";", index=False)
    table[["age", "income", "bought"]].dropna().to_csv(tmp_path / "plain 1.csv", index=False)
    for name, options in (("a b.csv", {"ignore": "income"}), ("semi.csv", {}), ("plain 1.csv", {"target": "bought"})):
        words = [word for option, value in options.items() for word in (f"--{option}", value)]
        said, _ = run("separable", tmp_path / name, "--out", tmp_path / "p.json", *words)
        data = tp.data.read(tmp_path / name, **options)
        shell, _, code = said.strip().partition("to check it: ")[2].rpartition("torchperc.theory")
        assert eval(f"tp.theory{code}", {"tp": tp, "X": data.X, "y": data.y}) is True
        assert bool(shell) == ("ignore" not in options)
        if name == "plain 1.csv":
            assert verifier.main(shlex.split(shell.partition(", or in Python")[0])[3:]) == 0


def test_a_run_of_an_earlier_version_is_refused_in_one_line(learned, tmp_path, refused):
    _, _, found = learned
    results = json.loads((found.folder / "results.json").read_text())
    (tmp_path / "results.json").write_text(json.dumps({name: results[name] for name in ("best", "candidates")}))
    (tmp_path / "config.yaml").write_text("out: run")  # which 0.2 wrote, too
    assert "results.json is not what this `torchperc learn` writes" in refused("report", tmp_path)


def test_what_is_dropped_and_what_is_rare_is_told(tmp_path, capsys, unpainted):
    frame = people(tmp_path / "a.csv", gaps=7)
    frame.loc[frame.income.notna().idxmax(), "bought"] = "never"
    frame.to_csv(tmp_path / "a.csv", index=False)
    found = learn(tmp_path / "a.csv", folder=tmp_path / "run", missing="drop", max_epochs=2)
    assert found.notes == (
        "7 rows with missing values dropped",
        "the validation set has no sample of 'never', of which there are very few",
        "the test set has no sample of 'never', of which there are very few",
    )


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")  # Python 3.12 and later
def test_two_runs_at_once_take_two_folders(tmp_path, monkeypatch, unpainted):
    monkeypatch.chdir(tmp_path)
    people(tmp_path / "a.csv")
    both = [get_context("fork").Process(target=main, args=(["learn", "a.csv", "--epochs", "1"],)) for _ in range(2)]
    for process in both:
        process.start()
    for process in both:
        process.join()
    assert [process.exitcode for process in both] == [0, 0]
    assert sorted(path.name for path in (tmp_path / "runs").iterdir()) == ["a", "a-2"]
    assert {tp.FittedModel.load(tmp_path / "runs" / name).names[0] for name in ("a", "a-2")} == {"age"}


@pytest.mark.parametrize("words", [[], ["--overwrite"]], ids=["", "overwrite"])
def test_a_folder_in_use_is_refused(tmp_path, run, monkeypatch, words):
    monkeypatch.chdir(tmp_path)
    people(tmp_path / "a.csv")
    with locked_folder(tmp_path / "run"):
        _, err = run("learn", "a.csv", "--out", "run", *words, code=2)
    assert err == "torchperc: error: --out run is in use by another process; wait for it, or choose another folder\n"
    assert [path.name for path in tmp_path.iterdir()] == ["a.csv"]


def test_a_run_that_another_process_has_just_finished_stays(tmp_path, monkeypatch, unpainted):
    monkeypatch.chdir(tmp_path)
    people(tmp_path / "a.csv")

    @contextlib.contextmanager
    def late(folder):  # between the look at the folder and the claim
        with locked_folder(folder):
            if folder.name in ("a", "mine"):
                (folder / "results.json").write_text("of another run")
            yield folder

    monkeypatch.setattr(learning, "locked_folder", late)
    assert learn("a.csv", max_epochs=1).folder.name == "a-2"
    with pytest.raises(ValueError, match="exists already"):
        learn("a.csv", folder="mine", max_epochs=1)
    assert (tmp_path / "runs" / "a" / "results.json").read_text() == "of another run"
    assert (tmp_path / "mine" / "results.json").read_text() == "of another run"


def test_the_empty_folder_of_a_killed_run_is_taken_up(tmp_path, monkeypatch, unpainted):
    monkeypatch.chdir(tmp_path)
    people(tmp_path / "a.csv")
    (tmp_path / "runs" / "a").mkdir(parents=True)
    (tmp_path / "runs" / "a" / ".torchperc-lock").write_text("1")
    assert str(learn("a.csv", max_epochs=1).folder) == "runs/a"
    assert not (tmp_path / "runs" / "a" / ".torchperc-lock").exists()


@pytest.mark.slow
def test_no_command_prints_what_a_terminal_would_act_on(tmp_path, run, monkeypatch, unpainted):
    monkeypatch.chdir(tmp_path)
    bad = "\x1b]0;title\x07\x1b[2J"
    frame = people(tmp_path / "a.csv", rows=60)
    frame["bought"] = frame["bought"].str.replace("low", f"low{bad}")
    frame = frame.rename(columns={"age": f"age{bad}"})[[f"age{bad}", "income", "bought"]]
    file, run_folder = f"a{bad}.csv", f"run{bad}"
    frame.to_csv(file, index=False)
    frame.assign(**{f"new{bad}": 1, "bought": f"other{bad}"}).to_csv("b.csv", index=False)
    seen = [
        *run("learn", file, "--out", run_folder, "--epochs", "2"),
        *run("learn", file, "--out", run_folder, code=2),
        *run("learn", file, "--target", bad, code=2),
        *run("apply", run_folder, "b.csv", "-o", f"out{bad}.csv"),
        *run("separable", file, "--out", f"proof{bad}"),
        *run("crosscheck", file, "--epochs", "1"),
        *run("export", run_folder, "--to", "safetensors"),
        *run("report", run_folder),
        *run(f"no such command {bad}", code=2),
        (tmp_path / run_folder / "report.html").read_text(),
    ]
    assert [text for text in seen if re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f]", text)] == []
    assert r"low\x1b]0;title\x07\x1b[2J" in seen[0]


def test_frames_are_encoded_by_the_names_of_their_columns(learned):
    frame, path, found = learned
    expected = found.model.predict(tp.data.read(path).X)
    assert found.model.predict(frame[["colour", "income", "age"]].astype({"colour": "category"})) == expected
    with pytest.raises(ValueError, match="X has no column 'age', which training had"):
        found.model.predict(frame.drop(columns="age"))
    with pytest.raises(ValueError, match=r"X, row 1, column 'colour': 'pink' did not occur"):
        found.model.predict(frame.assign(colour="pink"))
    plain = tp.FittedModel(tp.Perceptron(2, init="normal", seed=0), names=("a", "b"))
    numbers = pd.DataFrame({"a": [1.0, 2.0], "b": [3.0, -4.0]})
    assert torch.equal(plain.scores(numbers[["b", "a"]]), plain.scores(numbers.to_numpy()))
    with pytest.raises(ValueError, match="X has no column 'b', which training had"):
        plain.scores(numbers[["a"]])


def test_apply_can_ignore_a_level_that_training_did_not_have(learned, tmp_path, run):
    new, words = tmp_path / "new.csv", ("apply", learned[2].folder, tmp_path / "new.csv", "--unknown", "ignore")
    new.write_text("age,income,colour\n30,3000,red\n31,3000,pink\n")
    scores = [float(row["score"]) for row in csv.DictReader(run(*words)[0].splitlines())]
    assert scores == pytest.approx(learned[2].model.scores([[30, 3000, 0, 0, 1], [31, 3000, 0, 0, 0]]).tolist())
    new.write_text("age,income,colour\nabc,3000,pink\n")  # what is no number stays an error
    assert "abc" in run(*words, code=2)[1]
    with pytest.raises(ValueError, match="unknown='no'"):
        apply(learned[2].model, new, tmp_path / "out.csv", unknown="no")
