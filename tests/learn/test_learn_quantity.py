"""From a stranger's file with prices to predicted numbers: learn, apply, export, report, and what they leave behind."""

import json

import numpy as np
import onnxruntime
import pandas as pd
import pytest
import torch
from scipy.sparse import csr_array
from sklearn.datasets import dump_svmlight_file
from sklearn.linear_model import LinearRegression, Ridge
from sklearn.metrics import r2_score, root_mean_squared_error
from sklearn.preprocessing import StandardScaler

import torchperc as tp
from torchperc import learn
from torchperc.data import split
from torchperc.learn import candidates
from torchperc.learn.apply import apply
from torchperc.reports.results import Fit


def flats(path, rows=120, gaps=0):
    """A table with numbers, a category and a price; some cells may be empty."""
    rng = np.random.default_rng(0)
    size, year = rng.uniform(20, 180, rows).round(1), rng.integers(1900, 2024, rows).astype(float)
    city = rng.choice(["Lyon", "Paris", "Nantes"], rows)
    price = 3200 * size + 150000 * (city == "Paris") + 400 * (year - 1950) + rng.normal(0, 30000, rows)
    frame = pd.DataFrame({"size": size, "city": city, "year": year, "price": price.round(-2)})
    frame.loc[rng.choice(rows, gaps, replace=False), "year"] = np.nan
    frame.to_csv(path, index=False)
    return frame


@pytest.fixture(scope="module")
def learned(tmp_path_factory):
    folder = tmp_path_factory.mktemp("quantity")
    frame = flats(folder / "flats.csv")
    return frame, learn(folder / "flats.csv", folder=folder / "run", max_epochs=5, dtype="float64"), folder


def features(frame):
    """In the order of the table, a category as 0 and 1 for each level."""
    levels = np.array(["Lyon", "Nantes", "Paris"])
    return np.c_[frame["size"], frame["city"].to_numpy()[:, None] == levels, frame["year"]].astype(float)


def by_hand(frame):
    """Features scaled by the training set of the same split, targets as they are."""
    X = features(frame)
    sets = [index.numpy() for index in split(frame["price"].to_numpy(), stratify=False)]
    Z = StandardScaler().fit(X[sets[0]]).transform(X)
    return [(Z[index], frame["price"].to_numpy()[index]) for index in sets]


def test_every_candidate_is_that_of_scikit_learn(learned):
    frame, found, _ = learned
    (X, y), (Xv, yv), (Xt, yt) = by_hand(frame)
    alphas = {l2: l2 * len(y) for l2, _ in found.penalties}
    assert len(alphas) == 11
    tried = {l2: root_mean_squared_error(yv, Ridge(alpha).fit(X, y).predict(Xv)) for l2, alpha in alphas.items()}
    assert [rmse for _, rmse in found.penalties] == pytest.approx(list(tried.values()), rel=1e-9)
    best = Ridge(alphas[min(tried, key=tried.get)]).fit(X, y)
    plain = LinearRegression().fit(X, y)
    by_name = {each.name: each for each in found.candidates}
    assert list(by_name) == ["least squares", "ridge", "lms"]
    for name, model in (("least squares", plain), ("ridge", best)):
        for fit, Z, truth in ((by_name[name].validation, Xv, yv), (by_name[name].training, X, y)):
            said = model.predict(Z)
            expected = root_mean_squared_error(truth, said), r2_score(truth, said), len(truth)
            assert (fit.rmse, fit.r2, fit.samples) == pytest.approx(expected, rel=1e-8)
    mean = np.full(len(yv), y.mean())
    assert found.baseline.rmse == pytest.approx(root_mean_squared_error(yv, mean), rel=1e-12)
    assert found.baseline.r2 == pytest.approx(r2_score(yv, mean), abs=1e-12)
    assert found.best is min(found.candidates, key=lambda each: each.validation.rmse)
    if found.best.name == "ridge":
        assert found.test.rmse == pytest.approx(root_mean_squared_error(yt, best.predict(Xt)), rel=1e-8)
    assert by_name["lms"].training.rmse >= by_name["least squares"].training.rmse


def test_the_fit_of_equal_and_of_hopeless_targets():
    assert (Fit.of([2.0], [2.0]).r2, Fit.of([1.0, 1.0], [2.0, 2.0]).r2) == (1.0, 0.0)
    assert str(Fit(4e23, -3.3e43, 9)) == "RMSE 4.000e+23, R² −3.3e+43"  # of a run that diverged


def test_results_come_back_from_the_folder(learned):
    _, found, _ = learned
    assert {path.name for path in found.folder.iterdir() if path.is_dir()} == {"least-squares", "lms", "ridge"}
    assert found.taken == "target 'price' has 119 different numbers: regression"
    again = type(found).load(found.folder)
    assert (again.test, again.penalties, again.taken) == (found.test, found.penalties, found.taken)


@pytest.mark.parametrize("ending", [".csv", ".tsv.gz", ".parquet"])
def test_apply_writes_the_numbers_that_predict_gives(learned, tmp_path, run, ending):
    frame, found, folder = learned
    out, _ = run("apply", found.folder, folder / "flats.csv", "-o", tmp_path / f"said{ending}")
    read = pd.read_parquet if ending == ".parquet" else pd.read_csv
    options = {"sep": "\t"} if "tsv" in ending else {}
    table = read(tmp_path / f"said{ending}", **options)
    assert list(table) == ["prediction"]
    said = found.model.predict(frame)
    assert table["prediction"].tolist() == said
    fit = Fit.of(said, frame["price"].to_numpy())
    assert f"120 predictions in {tmp_path / f'said{ending}'}" in out
    assert f"against 120 targets in {folder / 'flats.csv'}: {fit}" in out


def test_apply_counts_the_targets_that_are_numbers(learned, tmp_path, run):
    frame, found, _ = learned
    frame = frame.head(4).astype({"price": object})
    frame.loc[1, "price"], frame.loc[2, "price"] = "", "sold"
    frame.to_csv(tmp_path / "new.csv", index=False)
    applied = apply(found.model, tmp_path / "new.csv", tmp_path / "said.csv")
    assert (applied.rows, applied.known, applied.strange) == (4, 2, {"sold"})
    said = found.model.predict(frame.iloc[[0, 3]])
    expected = Fit.of(said, [float(x) for x in frame["price"].iloc[[0, 3]]])
    assert (applied.fit.rmse, applied.fit.r2) == pytest.approx((expected.rmse, expected.r2), rel=1e-12)
    out, err = run("apply", found.folder, tmp_path / "new.csv")
    assert out.splitlines()[0] == "prediction"
    assert len(out.splitlines()) == 5
    assert "not counted: rows with targets that are no numbers, 'sold'" in err
    frame.drop(columns="price").head(0).to_csv(tmp_path / "none.csv", index=False)
    assert run("apply", found.folder, tmp_path / "none.csv")[0] == "prediction\n"


def test_exported_models_predict_the_same(learned, tmp_path, run):
    frame, found, _ = learned
    out, _ = run("export", found.folder, "--to", "onnx", "-o", tmp_path / "m.onnx")
    assert "checked against torch on 1,000 samples: scores" in out
    session = onnxruntime.InferenceSession(tmp_path / "m.onnx")
    X = features(frame)
    (said,) = session.run(["prediction"], {"X": X})
    np.testing.assert_allclose(said, found.model.predict(frame), rtol=1e-12)
    assert json.loads(session.get_modelmeta().custom_metadata_map["target"]) == "price"
    out, _ = run("export", found.folder, "--to", "torch", "-o", tmp_path / "m.pt2")
    assert "scores equal to the bit" in out
    module = torch.export.load(tmp_path / "m.pt2").module()
    assert module(torch.from_numpy(X))[0].tolist() == found.model.predict(frame)
    assert "equal to the bit" in run("export", found.folder, "--to", "safetensors", "-o", tmp_path / "m.safetensors")[0]


def test_the_report_says_what_counts(learned, words):
    text = words(learned[1].folder)
    parts = ("Compared", "mean of the training targets", "RMSE", "R²", "Predictions", "units of price", "effect")
    assert [part for part in parts if part not in text] == []
    assert [word for word in ("Confusion", "Boundary", "label", "mistake") if word in text] == []
    assert str(learned[1].test) in text
    assert "; ridge from" not in text  # what is found in one step has no way


def test_the_command_prints_a_table_and_what_it_took(tmp_path, run, monkeypatch, unpainted):
    monkeypatch.chdir(tmp_path)
    flats("flats.csv", gaps=10)
    assert "column 'year': the value is missing" in run("learn", "flats.csv", code=2)[1]
    out, _ = run("learn", "flats.csv", "--missing", "drop", "--epochs", 2)
    lines = out.splitlines()
    assert lines[0] == "flats.csv: 110 samples, 5 features, target price"
    assert lines[1] == (
        "target 'price' has 109 different numbers: regression (--task classification treats them as classes)"
    )
    assert "Note: 10 rows with missing values dropped." in lines
    said = " ".join(out.split())
    assert "On the held-out test set, " in said
    assert "torchperc apply runs/flats new.csv -o predictions.csv" in said
    out, _ = run("learn", "flats.csv", "--target", "year", "--missing", "drop", "--task", "regression", "--epochs", 1, "--out", "other")  # fmt: skip
    assert "different numbers" not in out


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (("separable", "flats.csv"), "has 119 different numbers, and torchperc separable needs classes; to predict numbers: torchperc learn flats.csv --task regression"),
        (("crosscheck", "flats.csv", "--target", "price"), "torchperc crosscheck needs classes; to predict numbers: torchperc learn flats.csv --target price --task regression"),
        (("separable", "diabetes"), "the target of diabetes is a quantity"),
        (("learn", "flats.csv", "--task", "ranking"), "--task: invalid choice: 'ranking'"),
        (("learn", "flats.csv", "--task", "regression", "--target", "city"), "line 2, column 'city': "),
        (("learn", "flats.csv", "--task", "regression", "--positive", "1"), "--positive 1 names a class, but there is none with --task regression"),
        (("learn", "iris", "--task", "regression"), "--task regression is not possible with source 'iris'"),
        (("learn", "same.csv", "--task", "regression"), "column 'y' has one value only: '2'"),
        (("learn", "few.csv", "--task", "regression"), "leaves no sample for the"),
        (("learn", "flats.csv", "--split", "0.8", "0", "0.2"), "leaves no validation set"),
    ],
)  # fmt: skip
def test_bad_input_is_one_line(tmp_path, refused, monkeypatch, words, part):
    monkeypatch.chdir(tmp_path)
    flats("flats.csv")
    (tmp_path / "same.csv").write_text("a,y\n" + "1,2\n" * 9)
    (tmp_path / "few.csv").write_text("a,y\n1,2\n3,4\n")
    assert part in refused(*words)
    assert not (tmp_path / "runs").exists()


def test_sparse_files_stay_sparse(tmp_path, run, monkeypatch, unpainted):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    X = csr_array(rng.normal(size=(90, 6)) * (rng.random((90, 6)) < 0.4))
    y = X @ rng.normal(size=6) + 5
    dump_svmlight_file(X, y, "s.svm", zero_based=False)
    found = learn("s.svm", folder="run", max_epochs=2, dtype="float64")
    assert found.test.r2 > 1 - 1e-8  # least squares finds what made the targets
    assert found.best.name == "least squares"
    assert found.model.predict(X) == pytest.approx(y.tolist(), abs=1e-8)
    assert "RMSE" in run("apply", "run", "s.svm", "-o", "said.csv")[0]


def test_data_larger_than_memory_are_learned_by_descent(tmp_path, monkeypatch, unpainted):
    monkeypatch.setattr("torchperc.samples.mapped.CHUNK", 2**10)
    monkeypatch.setattr(candidates, "MANY", 1)
    frame = flats(tmp_path / "flats.csv")
    found = learn(tmp_path / "flats.csv", folder=tmp_path / "run", stream=True, max_epochs=3, dtype="float64")
    assert [each.name for each in found.candidates] == ["lms"]
    assert "larger than memory" in found.notes[0]
    held = learn(tmp_path / "flats.csv", folder=tmp_path / "held", max_epochs=3, dtype="float64", stream=False)
    assert found.best.validation.rmse == pytest.approx(held.candidates[2].validation.rmse, rel=1e-9)
    lms = tp.FittedModel.load(held.folder / "lms")
    assert found.model.predict(frame.head(3)) == pytest.approx(lms.predict(frame.head(3)))


@pytest.mark.slow
def test_a_model_no_better_than_the_baseline_is_named(tmp_path):
    rng = np.random.default_rng(0)
    noise = rng.normal(size=(60, 8))
    for target, words in (
        (rng.normal(size=60), "no model has a lower validation RMSE than the mean"),
        (rng.permutation(["yes"] * 50 + ["no"] * 10), "no model has a lower validation error than the majority-class"),
    ):
        frame = pd.DataFrame(noise, columns=list("abcdefgh")).assign(target=target)
        frame.to_csv(tmp_path / "noise.csv", index=False)
        found = learn(tmp_path / "noise.csv", folder=tmp_path / "run", max_epochs=3, overwrite=True)
        assert any(note.startswith(words) for note in found.notes)
