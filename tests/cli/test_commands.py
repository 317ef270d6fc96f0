"""The command line: what it prints, how it fails, how it exits."""

import re

import pytest

import torchperc as tp
from torchperc.lab import demo


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*LeafSpec.*")
@pytest.mark.filterwarnings("ignore:Total length of `list` across ranks is zero")
def test_demo(call, tmp_path, monkeypatch, unpainted):
    runs = demo._runs()
    assert runs["XOR, two layers"].epochs == 200  # of which 70 do as well
    short = {name: run._replace(epochs=min(run.epochs, 70)) for name, run in runs.items()}
    monkeypatch.setattr(demo, "_runs", lambda: short)
    monkeypatch.chdir(tmp_path)
    code, out, _ = call("demo")
    assert code == 0
    assert len(re.findall(r"  mistake   .*  yes\n", out)) == 18
    assert len(re.findall(r"  yes\n", out)) == 36
    assert not re.search("  NO\n|│", out)
    assert "weights      (-4; 3, 2)" in out
    assert "SEPARATED after 9 epochs and 18 mistakes" in out
    assert "18 mistakes by rule, 18 by gradient: equal to the bit" in out
    assert "CYCLING after 1 epoch and 4 mistakes" in out
    rows = {row[0]: row[1:] for row in (re.split(" {2,}", line) for line in out.split("\n"))}
    assert rows["AND by rule"] == ["9", "SEPARATED (-4; 3, 2)", "0.0 %"]
    assert rows["AND by gradient"] == ["20", "(-4; 3, 2)", "0.0 %"]
    assert rows["XOR, one layer"][2] == "50.0 %"
    assert rows["XOR, two layers"][2] == "0.0 %"
    assert float(rows["noisy, averaged"][3][:-2]) < float(rows["noisy, last"][3][:-2])
    assert len(list((tmp_path / "runs/demo").glob("*.png"))) == 6
    assert len(list((tmp_path / "runs/demo").glob("*/events*"))) == 6


def test_crosscheck_of_gates_and_files(call, tmp_path):
    code, out, _ = call("crosscheck", "and", "--mode", "batch")
    assert (code, "equal: the same" in out, "to the bit" in out) == (0, True, True)
    (tmp_path / "and.csv").write_text("0,0,[/]\n0,1,[/]\n1,0,[/]\n1,1,[red]\n")
    code, out, _ = call("crosscheck", tmp_path / "and.csv", "--dtype", "float32")
    assert code == 0
    for text in ("4 samples, 2 features, labels [/] → -1, [red] → +1", "9 epochs, 18 mistakes", "(-4; 3, 2)"):
        assert text in out
    out = call("crosscheck", "iris", "--epochs", "3")[1]
    assert "150 samples, 4 features, labels setosa → 0, versicolor → 1, virginica → 2" in out


def test_a_difference_exits_with_one(call, monkeypatch):
    import torch

    from torchperc.rules import crosscheck as crosschecking

    monkeypatch.setattr(crosschecking.PerceptronLoss, "forward", lambda self, s, y: torch.relu(-y * s).sum())
    code, out, _ = call("crosscheck", "AND")
    assert code == 1
    assert "different: first in epoch 1 at sample 0; scores 0 by rule, 0 by gradient" in " ".join(out.split())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["crosscheck", "nowhere.csv"], "cannot read nowhere.csv: No such file"),
        (["crosscheck", "AND", "--lr", "nan"], "--lr nan must be a finite number > 0"),
        (["crosscheck", "AND", "--lr", "fast"], "invalid float value: 'fast'"),
        (["crosscheck", "AND", "--epochs", "0"], "--epochs 0 must be at least 1"),
        (["crosscheck", "AND", "--tie", "soft"], "invalid choice: 'soft'"),
        (["crosscheck", "AND", "--target", "x"], "--target x needs a file"),
        (["crosscheck", "AND", "--header", "no"], "--header needs a file"),
        (["learn", "--ignore", "a", "b", "t.csv"], "required: data, before options of several words"),
        (["crosscheck", "AND", "--mode", "batch", "--order", "shuffled"], "order must be 'given'"),
        (["crosscheck", "AND", "--seed", "1" + "0" * 30], "must be below 2**63"),
        (["crosscheck", "AND", "--ep", "3"], "unrecognized arguments: --ep 3"),
        (["crosscheck"], "the following arguments are required: data"),
        (["teach"], "invalid choice: 'teach'"),
        ([], "the following arguments are required: command"),
    ],
)
def test_wrong_commands_are_one_line_and_exit_code_two(refused, words, message):
    assert message in refused(*words)


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ("--help", "crosscheck"),
        ("crosscheck --help", "--bias-step"),
        ("tag apply --help", "--separator"),
        ("fit --help", "--ckpt-path"),
        ("fit --help.all", "--trainer.gradient_clip_val"),
        ("--version", f"torchperc {tp.__version__}\n"),
    ],
)
def test_help_and_version(call, words, text):
    code, out, _ = call(*words.split())
    assert (code, text in out) == (0, True)
    assert words != "fit --help" or out.count("\n") < 30
