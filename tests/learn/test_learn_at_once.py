"""torchperc learn: nothing is imported, drawn or proved that is not needed."""

import json
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
import torch

import torchperc as tp
from torchperc import learn
from torchperc.data import PreparedData
from torchperc.learn import results


def table(path, classes=2, rows=120):
    """Numbers with noise, and a label that no hyperplane separates."""
    rng = np.random.default_rng(4)
    X = rng.normal(size=(rows, 4)).round(3)
    scores = X @ rng.normal(size=(4, classes)) + rng.normal(scale=1.5, size=(rows, classes))
    frame = pd.DataFrame(X, columns=list("abcd")).assign(y=np.array(["p", "q", "r"])[scores.argmax(1)])
    frame.to_csv(path, index=False)
    return path


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["rule", "gradient", "quantity"])
def test_a_report_can_be_made_of_what_is_left(tmp_path, call, kind, monkeypatch, unpainted):
    source = "diabetes" if kind == "quantity" else table(tmp_path / "a.csv")
    if kind == "rule":
        monkeypatch.setattr(results, "loss", lambda score: 0.0)  # the first of equals
    found = learn(source, folder=tmp_path / "run", max_epochs=4)
    page = (found.folder / "report.html").read_bytes()
    assert (found.best is found.candidates[0]) == (kind != "gradient")
    assert call("report", found.folder)[::2] == (0, "")
    assert (found.folder / "report.html").read_bytes() == page
    if kind != "quantity":
        assert str(found.best.validation) in page.decode()
        table(source, rows=121)
        code, _, err = call("report", found.folder)
        assert code == 2
        assert "is not the data the run was made on" in err


def test_the_rule_and_the_losses_are_trained_as_by_their_own_functions(tmp_path):
    """The same steps by RuleTrainer and by autograd with torch's SGD."""
    source = table(tmp_path / "a.csv", 3)
    found = learn(source, folder=tmp_path / "run", max_epochs=7, report=False, dtype="float64")
    data = PreparedData(str(source), scale="auto", dtype="float64", split=(0.6, 0.2, 0.2))
    X, y = data.parts[0]
    net = tp.MulticlassPerceptron(4, 3, dtype=torch.float64)
    tp.RuleTrainer(max_epochs=7, order="shuffled", select="averaged", seed=0).fit(net, X, y).write_to(net)
    assert torch.equal(net.weight, tp.FittedModel.load(found.folder / "rule").net.weight)
    net, head = tp.MulticlassPerceptron(4, 3, dtype=torch.float64), tp.LogisticHead()
    optimizer = torch.optim.SGD(net.parameters(), tp.theory.auto_lr(head, X, num_classes=3))
    for _ in range(7):
        optimizer.zero_grad()
        head.loss(net(X), y).backward()
        optimizer.step()
    torch.testing.assert_close(net.weight.detach(), tp.FittedModel.load(found.folder / "logistic").net.weight)


def test_the_proof_is_made_once(tmp_path, monkeypatch, unpainted, words):
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
    assert "The proof was checked again, in exact rational arithmetic: it holds" in words(found.folder)


@pytest.mark.slow
def test_a_proof_beyond_its_budget_is_left_out_and_the_report_says_so(tmp_path, monkeypatch, unpainted, words):
    monkeypatch.setattr("torchperc.reports.results.PROVED_BY_CLASSES", 800)  # 72 samples of 4 numbers, 3 classes: 864
    two = learn(table(tmp_path / "two.csv"), folder=tmp_path / "two", max_epochs=3)
    three = learn(table(tmp_path / "three.csv", 3), folder=tmp_path / "three", max_epochs=3)
    assert (two.candidates[0].verdict, three.candidates[0].verdict) == ("NOT_SEPARABLE", "BUDGET")
    assert "72 samples with 4 features in 3 classes are beyond the budget" in words(three.folder)


PROGRAM = """
import json, sys
from torchperc.cli import main

HEAVY = ("torch.nn", "numba", "scipy", "matplotlib", "sklearn", "pytorch_lightning", "tensorboard")
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
    others = "--target z", "--colour", "--epochs 0", "--out taken"
    refused = [f"learn {name}".split() for name in (*names, *(f"good.csv {words}" for words in others))]
    others = "separable one.csv", "crosscheck gap.csv", "apply lost good.csv", "export lost --to onnx", "report lost"
    refused += [words.split() for words in others]
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
    assert not {"matplotlib", "sklearn", "pytorch_lightning", "tensorboard", "torch._dynamo"} & {*silent[1]}
    assert not {"pytorch_lightning", "tensorboard", "torch._dynamo"} & {*told[1]}
    assert "matplotlib" in told[1]
    runs = tmp_path / "runs"
    assert not (runs / "good" / "report.html").exists()
    assert (runs / "good-2" / "report.html").is_file()
    assert "torchperc report runs/good\n" in done.stdout
    assert "open runs/good-2/report.html\n" in done.stdout
    assert "tensorboard" not in done.stdout
