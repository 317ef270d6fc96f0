"""torchperc learn without a Trainer: the same results, and nothing is imported, drawn or proved that is not needed."""

import json
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
import torch

import torchperc as tp
from torchperc.workflow.learn import learn

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*LeafSpec.*"),
    pytest.mark.filterwarnings("ignore:LightningCLI's args parameter"),
    pytest.mark.filterwarnings("ignore::jsonargparse._deprecated.JsonargparseDeprecationWarning"),
]


def table(path, classes=2, rows=120):
    """Numbers with noise, and a label that no hyperplane separates."""
    rng = np.random.default_rng(4)
    X = rng.normal(size=(rows, 4)).round(3)
    scores = X @ rng.normal(size=(4, classes)) + rng.normal(scale=1.5, size=(rows, classes))
    pd.DataFrame(X, columns=list("abcd")).assign(y=np.array(["p", "q", "r"])[scores.argmax(1)]).to_csv(
        path, index=False
    )
    return path


def sparse(path):
    rng = np.random.default_rng(5)
    lines = []
    for _ in range(90):
        columns = np.sort(rng.choice(40, 5, replace=False)) + 1
        values = rng.normal(size=5).round(2)
        lines.append(f"{'+1' if values.sum() > 0 else '-1'} {' '.join(map('{}:{}'.format, columns, values))}")
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["two", "three", "sparse", "one step per sample", "quantity"])
def test_a_trainer_makes_the_same_run_to_the_bit(tmp_path, kind, monkeypatch, unpainted):
    if kind == "one step per sample":
        monkeypatch.setattr("torchperc.workflow.classes.MANY", 60)
    source = "diabetes" if kind == "quantity" else tmp_path / ("a.svm" if kind == "sparse" else "a.csv")
    if kind != "quantity":
        (sparse if kind == "sparse" else table)(source, *([3] if kind == "three" else []))
    plain = learn(source, folder=tmp_path / "plain", max_epochs=7)
    logged = learn(source, folder=tmp_path / "logged", max_epochs=7, curves=True, report=False)
    timeless = [[{**vars(each), "seconds": 0} for each in found.candidates] for found in (plain, logged)]
    assert timeless[0] == timeless[1]
    assert (plain.best.name, plain.test, plain.baseline) == (logged.best.name, logged.test, logged.baseline)
    for each in plain.candidates:
        name = each.name.replace(" ", "-")
        nets = [tp.FittedModel.load(found.folder / name).net for found in (plain, logged)]
        assert torch.equal(nets[0].weight, nets[1].weight)
        assert torch.equal(nets[0].bias, nets[1].bias)
        assert not list((plain.folder / name).glob("events*"))
        assert {path.name.split(".")[0] for path in (logged.folder / name).iterdir()} == {
            "config", "events", "hparams", "last", "weights",
        }  # fmt: skip
    assert (logged.folder / "last.ckpt").is_file()
    assert not (logged.folder / "report.html").exists()


@pytest.mark.slow
def test_curves_are_those_that_a_trainer_logs(tmp_path, unpainted):
    from torchperc.reports.folders import curves_of

    source = table(tmp_path / "a.csv", 3)
    plain = learn(source, folder=tmp_path / "plain", max_epochs=6, report=False)
    logged = learn(source, folder=tmp_path / "logged", max_epochs=6, report=False, curves=True)
    for each in plain.candidates:
        own, by_trainer = (curves_of(found.folder / each.name) for found in (plain, logged))
        assert set(own) >= {"error/train", "error/val"}
        for tag, (steps, values) in own.items():
            np.testing.assert_array_equal(steps, by_trainer[tag][0])
            np.testing.assert_allclose(values, by_trainer[tag][1], rtol=1e-6)  # event files have float32


@pytest.mark.slow
def test_a_report_of_any_candidate_can_be_made_of_what_is_left(tmp_path, call, unpainted):
    source = table(tmp_path / "a.csv")
    found = learn(source, folder=tmp_path / "run", max_epochs=4)
    for name in ("rule", "logistic"):
        code, _, err = call("report", found.folder / name, "--card", tmp_path / "card.md")
        assert (code, err) == (0, "")
        candidate = next(each for each in found.candidates if each.name == name)
        assert f"({candidate.validation.wrong} of {candidate.validation.samples})" in (tmp_path / "card.md").read_text()
    table(source, rows=121)
    code, _, err = call("report", found.folder)
    assert code == 2
    assert "is not the data the run was made on" in err


def test_the_proof_is_made_once(tmp_path, monkeypatch, unpainted):
    made = []
    decide = tp.theory.separability

    def counted(*given, **options):
        made.append(len(given[1]))
        return decide(*given, **options)

    monkeypatch.setattr(tp.theory, "separability", counted)
    found = learn(table(tmp_path / "a.csv"), folder=tmp_path / "run", max_epochs=5)
    assert found.best.name != "rule"  # else its own proof would be at hand
    assert found.candidates[0].verdict == "NOT_SEPARABLE"
    assert made == [found.best.training.samples]
    assert "verify() checked the proof again" in (found.folder / "card.md").read_text().replace("\\", "")


@pytest.mark.slow
def test_a_proof_beyond_its_budget_is_left_out_and_the_report_says_so(tmp_path, monkeypatch, unpainted):
    monkeypatch.setattr("torchperc.reports.budget.COMPARED", 800)  # 72 samples of 4 numbers, 3 classes: 864
    two = learn(table(tmp_path / "two.csv"), folder=tmp_path / "two", max_epochs=3)
    three = learn(table(tmp_path / "three.csv", 3), folder=tmp_path / "three", max_epochs=3)
    assert (two.candidates[0].verdict, three.candidates[0].verdict) == ("NOT_SEPARABLE", "BUDGET")
    card = (three.folder / "card.md").read_text()
    assert "72 samples with 4 features in 3 classes are beyond the budget of a proof in a report" in card
    assert "torchperc separable, or theory.separability, decides without a limit" in card.replace("\\", "")


@pytest.mark.slow
def test_every_picture_is_drawn_once(tmp_path, monkeypatch):
    from matplotlib.figure import Figure

    from torchperc.reports import Picture

    drawn, draw, pictures, of = [], Figure.draw, [], Picture.of
    monkeypatch.setattr(Figure, "draw", lambda figure, renderer: (drawn.append(figure), draw(figure, renderer))[1])
    monkeypatch.setattr(Picture, "of", lambda figure, *words: (pictures.append(figure), of(figure, *words))[1])
    learn(table(tmp_path / "a.csv"), folder=tmp_path / "run", max_epochs=2)
    assert len(pictures) >= 8
    assert list(map(id, drawn)) == list(map(id, pictures))
    assert len(set(map(id, drawn))) == len(drawn)


def test_a_picture_has_the_pixels_that_savefig_gives():
    import io
    import pickle

    from PIL import Image

    from torchperc.reports import Picture

    X, y = tp.data.gate("AND")
    figure = tp.plots.DecisionRegionDisplay.from_model(tp.Perceptron(2), X, y).figure_
    other, buffer = pickle.loads(pickle.dumps(figure)), io.BytesIO()
    other.savefig(buffer, format="png", dpi=160)
    saved = np.asarray(Image.open(buffer).convert("RGB"))
    np.testing.assert_array_equal(np.asarray(Image.open(io.BytesIO(Picture.of(figure, "", "").png))), saved)


PROGRAM = """
import json, sys
from torchperc.cli import main

HEAVY = ("torch", "numba", "scipy", "matplotlib", "sklearn", "pytorch_lightning", "tensorboard")
def outcome(*words):
    try:
        main(list(words))
        code = 0
    except SystemExit as left:
        code = left.code
    return code, [name for name in (*HEAVY, "torch._dynamo") if name in sys.modules]

print(json.dumps([outcome(*words) for words in json.loads(sys.argv[1])]), file=sys.stderr)
"""


@pytest.mark.slow
def test_nothing_is_imported_that_is_not_needed(tmp_path):
    """One program: files that are refused, then a run without a report, then one with it."""
    good = table(tmp_path / "good.csv")
    frame = pd.read_csv(good)
    frame.assign(y="p").to_csv(tmp_path / "one.csv", index=False)
    frame.assign(a=[None, *frame.a[1:]]).to_csv(tmp_path / "gap.csv", index=False)
    (tmp_path / "empty.csv").write_text("")
    (tmp_path / "torn.csv").write_text("a,b,y\n1,2,p\n3\n")
    (tmp_path / "bad.parquet").write_text("no table")
    (tmp_path / "bad.svm").write_text("+1 1:2\n-1 x\n")
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "file").write_text("")
    names = ("lost.csv", "one.csv", "gap.csv", "empty.csv", "torn.csv", "bad.parquet", "bad.svm", "unknown-name")
    refused = [["learn", name] for name in names]
    refused += [
        ["learn", "good.csv", "--target", "z"],
        ["learn", "good.csv", "--colour"],
        ["learn", "good.csv", "--epochs", "0"],
    ]
    refused += [["learn", "good.csv", "--out", "taken"], ["separable", "one.csv"], ["crosscheck", "gap.csv"]]
    refused += [["apply", "lost", "good.csv"], ["export", "lost", "--to", "onnx"], ["report", "lost"]]
    learned = [["learn", "good.csv", "--report", "no", "--epochs", "3"], ["learn", "good.csv", "--epochs", "3"]]
    words = json.dumps(refused + learned)
    done = subprocess.run([sys.executable, "-c", PROGRAM, words], cwd=tmp_path, capture_output=True, text=True)
    *errors, last = done.stderr.splitlines()
    outcomes = json.loads(last)
    assert len(errors) == len(refused), done.stderr
    for given, (code, modules) in zip(refused, outcomes, strict=False):
        assert (given, code, modules) == (given, 2, [])
    silent, told = outcomes[len(refused) :]
    assert silent[0] == told[0] == 0
    assert not {"matplotlib", "numba", "sklearn", "pytorch_lightning", "tensorboard", "torch._dynamo"} & {*silent[1]}
    assert not {"numba", "sklearn", "pytorch_lightning", "tensorboard", "torch._dynamo"} & {*told[1]}
    assert "matplotlib" in told[1]
    runs = tmp_path / "runs"
    assert not (runs / "good" / "report.html").exists()
    assert not (runs / "good" / "card.md").exists()
    assert (runs / "good-2" / "report.html").is_file()
    assert "torchperc report runs/good\n" in done.stdout
    assert "open runs/good-2/report.html\n" in done.stdout
    assert "tensorboard" not in done.stdout
