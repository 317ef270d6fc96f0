"""The command line: what it prints, how it fails, how it exits."""

import re

import pytest
from sklearn.datasets import load_iris

import torchperc as tp
from torchperc.lab import demo


@pytest.fixture
def iris_csv(tmp_path):
    iris = load_iris()
    lines = ["kind," + ",".join(f"f{j}" for j in range(4))]
    lines += [f"{iris.target_names[t]},{','.join(map(str, x))}" for x, t in zip(iris.data, iris.target, strict=True)]
    path = tmp_path / "iris.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*LeafSpec.*")
@pytest.mark.filterwarnings("ignore:Total length of `list` across ranks is zero")
def test_demo(call, tmp_path, monkeypatch, unpainted):
    runs = demo._runs()
    assert runs["XOR, two layers"].epochs == 200  # which test_configs.py goes to the end of; 70 do as well
    short = {name: run._replace(epochs=min(run.epochs, 70)) for name, run in runs.items()}
    monkeypatch.setattr(demo, "_runs", lambda: short)
    monkeypatch.chdir(tmp_path)
    code, out, _ = call("demo")
    assert code == 0
    assert len(re.findall(r"│ mistake ", out)) == 18
    assert len(re.findall(r"│ yes ", out)) == 36
    assert "│ NO " not in out
    assert "weights      (-4; 3, 2)" in out
    assert "SEPARATED after 9 epochs and 18 mistakes" in out
    assert "18 mistakes by rule, 18 by gradient: equal to the bit" in out
    assert "CYCLING after 1 epoch and 4 mistakes" in out
    rows = {
        row[0]: row[1:] for row in ([cell.strip() for cell in line.split("│")[1:-1]] for line in out.split("\n")) if row
    }
    assert rows["AND by rule"] == ["9", "SEPARATED (-4; 3, 2)", "0.0 %", ""]
    assert rows["AND by gradient"] == ["20", "(-4; 3, 2)", "0.0 %", ""]
    assert rows["XOR, one layer"][2] == "50.0 %"
    assert rows["XOR, two layers"][2] == "0.0 %"
    assert float(rows["noisy, averaged"][3][:-2]) < float(rows["noisy, last"][3][:-2])
    assert len(list((tmp_path / "runs/demo").glob("*.png"))) == 6
    assert len(list((tmp_path / "runs/demo").glob("*/events*"))) == 6


@pytest.mark.parametrize("mode", ["sample", "batch"])
def test_crosscheck_of_a_gate(call, mode):
    code, out, _ = call("crosscheck", "and", "--mode", mode)
    assert code == 0
    assert "equal: the same" in out
    assert "to the bit" in out


def test_crosscheck_of_a_file_with_many_labels(call, iris_csv):
    code, out, _ = call("crosscheck", str(iris_csv), "--target", "kind", "--order", "shuffled", "--epochs", "3")
    assert code == 0
    text = " ".join(out.split())  # the path may be long enough to wrap
    assert "150 samples, 4 features, labels setosa → 0, versicolor → 1, virginica → 2" in text
    assert "equal: the same" in text
    code, by_position, _ = call("crosscheck", str(iris_csv), "--target", "1", "--order", "shuffled", "--epochs", "3")
    assert by_position == out


def test_crosscheck_of_two_labels_without_header(call, tmp_path):
    path = tmp_path / "and.csv"
    path.write_text("0,0,no\n0,1,no\n1,0,no\n1,1,yes\n")
    code, out, _ = call("crosscheck", str(path), "--dtype", "float32")
    assert code == 0
    assert "no → -1, yes → +1" in " ".join(out.split())
    assert "18 mistakes" in out
    assert "(-4; 3, 2)" in out
    assert call("crosscheck", "AND", "--missing", "error", "--header", "auto")[0] == 0  # what is so by default


def test_a_difference_exits_with_one(call, monkeypatch):
    import torch

    from torchperc.rules import crosscheck as crosschecking

    monkeypatch.setattr(crosschecking.PerceptronLoss, "forward", lambda self, s, y: torch.relu(-y * s).sum())
    code, out, _ = call("crosscheck", "AND")
    assert code == 1
    assert "different: first in epoch 1 at sample 0; scores 0 by rule, 0 by gradient" in " ".join(out.split())


def test_labels_with_brackets_are_printed_as_they_are(call, tmp_path):
    path = tmp_path / "[bold]data.csv"
    path.write_text("0,1,[/]\n1,0,[red]\n")
    code, out, _ = call("crosscheck", str(path))
    assert code == 0
    assert "[/] → -1, [red] → +1" in " ".join(out.split())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["crosscheck", "nowhere.csv"], "cannot read nowhere.csv: No such file"),
        (["crosscheck", "."], "cannot read .: Is a directory"),
        (["crosscheck", "AND", "--lr", "nan"], "--lr nan must be a finite number > 0"),
        (["crosscheck", "AND", "--lr", "fast"], "invalid float value: 'fast'"),
        (["crosscheck", "AND", "--epochs", "0"], "--epochs 0 must be at least 1"),
        (["crosscheck", "AND", "--tie", "soft"], "invalid choice: 'soft'"),
        (["crosscheck", "AND", "--target", "x"], "--target x needs a file"),
        (["crosscheck", "AND", "--mode", "batch", "--order", "shuffled"], "order must be 'given'"),
        (["crosscheck", "AND", "--lr", "1e300", "--dtype", "float32"], "lr=1e+300 makes steps of 1e+300"),
        (["crosscheck", "AND", "--seed", "1" + "0" * 30], "must be below 2**63"),
        (["crosscheck", "AND", "--ep", "3"], "unrecognized arguments: --ep 3"),
        (["crosscheck"], "the following arguments are required: data"),
        (["teach"], "invalid choice: 'teach'"),
        ([], "the following arguments are required: command"),
    ],
)
def test_wrong_commands_are_one_line_and_exit_code_two(call, words, message):
    code, out, err = call(*words)
    assert (code, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1


def test_help_and_version(call):
    code, out, _ = call("--help")
    assert code == 0
    assert "crosscheck" in out
    code, out, _ = call("crosscheck", "--help")
    assert code == 0
    assert "--bias-step" in out
    code, out, _ = call("fit", "--help")
    assert code == 0
    assert "--trust" in out
    assert "--help.all" in out
    assert out.count("\n") < 30
    code, out, _ = call("fit", "--help.all")
    assert code == 0
    assert "--trainer.gradient_clip_val" in out
    assert call("--version")[1] == f"torchperc {tp.__version__}\n"
