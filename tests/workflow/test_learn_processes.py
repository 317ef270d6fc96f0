"""``learn`` from several files, and in several processes of which each reads its own shard: the same as in one."""

import os
import signal
import subprocess
import sys
import time

import numpy as np
import processes
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import shard_files
import torch
from safetensors.torch import load_file

import torchperc as tp

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*LeafSpec.*"),
    pytest.mark.filterwarnings("ignore:LightningCLI's args parameter"),
    pytest.mark.filterwarnings("ignore::jsonargparse._deprecated.JsonargparseDeprecationWarning"),
]
OPTIONS = {"max_epochs": 4, "dtype": "float64", "missing": "drop"}
NAMES = ("rule", "perceptron", "lms", "logistic")


def save(folder):
    """Three files of a noisy problem with words, missing values and three classes."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(180, 3))
    y = np.array(["a", "b", "c"])[(X @ [[1, 0, -1], [0, 1, -1], [0.5, 0, 0]] + rng.normal(size=(180, 3))).argmax(1)]
    X[7, 0] = X[100, 1] = np.nan
    for number, some in enumerate((slice(0, 90), slice(90, 100), slice(100, 180))):
        numbers = {f"x{j}": X[some, j] for j in range(3)}
        words = np.array(["red", "green"])[(X[some, 2] > 0).astype(int)]
        pq.write_table(pa.table({**numbers, "word": words, "label": y[some]}), folder / f"part-{number}.parquet")


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    folder = tmp_path_factory.mktemp("alone")
    save(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("torchperc.reports.budget.ENTRIES", 0)  # a proof needs all samples in one process
        return folder, tp.learn(folder / "part-*.parquet", folder=folder / "run", **OPTIONS)


@pytest.mark.parametrize("size", [2, pytest.param(3, marks=pytest.mark.slow)])
@pytest.mark.processes
def test_processes_learn_what_one_does(tmp_path, alone, size, call, unpainted):
    save(tmp_path)
    folder, one = alone
    ((found,), *others) = processes.run(size, shard_files.learned, tmp_path, [("part-*.parquet", OPTIONS)])
    assert found[0] == shard_files.summary(one)
    assert found[0][-1] == ("2 rows with missing values dropped",)
    for ((summary, model),) in others:
        assert summary == found[0]
        assert torch.equal(model.net.weight, found[1].net.weight)
    for name in NAMES:
        ours, theirs = (load_file(run / name / "weights.safetensors") for run in (tmp_path / "run-0", folder / "run"))
        for key in theirs:
            if name == "rule":
                assert torch.equal(ours[key], theirs[key])
            else:
                torch.testing.assert_close(ours[key], theirs[key], rtol=1e-12, atol=1e-12)
    left = {path.name for path in (tmp_path / "run-0").iterdir()}
    assert left - {"last.ckpt"} == {path.name for path in (folder / "run").iterdir()} - {"metrics.csv"}
    assert "last.ckpt" in left  # of the Trainer that several processes need
    assert "Compared" in (tmp_path / "run-0" / "report.html").read_text()
    assert not list(tmp_path.glob(".torchperc-*"))
    assert found[1].labels == ("a", "b", "c")
    if size == 2:
        code, _, err = call(
            "report", tmp_path / "run-0", "--out", tmp_path / "whole.html"
        )  # by one that has all samples
        assert (code, err) == (0, "")
        assert "Mistakes against the bound" in (tmp_path / "whole.html").read_text()


@pytest.mark.slow
def test_wrong_input_is_told_by_all_processes(tmp_path):
    save(tmp_path)
    cases = [
        ("none-*.csv", {}),
        (["iris"], {}),
        ("part-0.parquet", {"target": "z"}),
        ("part-0.parquet", {"split": (1, 0, 0), "missing": "drop"}),
    ]
    cases += [("part-0.parquet", {"distributed": "all"}), ("part-1.parquet", {"positive": "nobody"})]
    first, second = processes.run(2, shard_files.learned, tmp_path, cases)
    assert first == second
    expected = (
        "no file matches",
        "'iris' is small and no file",
        "no column 'z'",
        "leaves no validation set",
        "distributed='all' is unknown",
        "positive='nobody' is not a label",
    )
    for said, message in zip(first, expected, strict=True):
        assert message in said
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "part-0.parquet",
        "part-1.parquet",
        "part-2.parquet",
    ]


@pytest.mark.slow
def test_mixing_has_its_name(tmp_path):
    save(tmp_path)
    ((mixed,), _) = processes.run(
        2, shard_files.learned, tmp_path, [("part-*.parquet", {**OPTIONS, "distributed": "mix"})]
    )
    assert "distributed: mix" in (tmp_path / "run-0" / "rule" / "config.yaml").read_text()
    assert mixed[0][0][0][0] == "rule"


@pytest.mark.slow
def test_files_on_the_command_line(call, tmp_path, monkeypatch, unpainted):
    save(tmp_path)
    monkeypatch.chdir(tmp_path)
    files = sorted(path.name for path in tmp_path.glob("*.parquet"))
    code, out, _ = call("learn", *files, "--missing", "drop", "--epochs", 2)
    assert code == 0
    assert out.startswith("part-0.parquet and 2 more: 178 samples")
    assert "The run is in runs/part-0." in out
    code, out, _ = call("learn", "part-*.parquet", "--missing", "drop", "--epochs", 2)
    assert code == 0
    assert "The run is in runs/part." in out
    (tmp_path / "new-0.csv").write_text("x0,x1,x2,word\n1,2,3,red\n")
    (tmp_path / "new-1.csv").write_text("word,x2,x1,x0,note\nred,3,2,1,n\ngreen,-3,1,1,n\n")
    for given in (("new-0.csv", "new-1.csv"), ("new-?.csv",)):
        code, out, _ = call("apply", "runs/part", *given, "-o", "labels.csv")
        assert (code, out) == (0, "3 labels in labels.csv\nignored: note\n")
        _, first, second, _ = (tmp_path / "labels.csv").read_text().splitlines()
        assert first == second
    code, _, err = call("apply", "runs/part", "new-*.csv", "-o", "new-1.csv")
    assert (code, err) == (2, "torchperc: error: --out new-1.csv is the file that is read; choose another\n")
    code, _, err = call("learn", "part-*.parquet", "--processes", 0)
    assert (code, err) == (2, "torchperc: error: --processes 0 must be at least 1\n")


def command(folder, *words, **options):
    line = [sys.executable, "-m", "torchperc", "learn", *words]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(line, cwd=folder, env={**os.environ, "OMP_NUM_THREADS": "1"}, **pipes, **options)


@pytest.mark.slow
def test_the_command_starts_processes(tmp_path, alone):
    save(tmp_path)
    words = ("part-*.parquet", "--missing", "drop", "--dtype", "float64", "--epochs", "4", "--processes", "2")
    run = command(tmp_path, *words, "--out", "two")
    out, err = run.communicate(timeout=300)
    assert (run.returncode, err) == (0, "")
    assert out.count("learned by") == 1  # one of them talks
    assert "178 samples" in out
    ours, theirs = (
        load_file(folder / "rule" / "weights.safetensors") for folder in (tmp_path / "two", alone[0] / "run")
    )
    assert all(torch.equal(ours[key], theirs[key]) for key in theirs)
    run = command(tmp_path, "part-*.parquet", "--processes", "2", "--target", "z")
    out, err = run.communicate(timeout=300)
    assert (run.returncode, out) == (2, "")
    assert err.count("\n") == 1
    assert "has no column 'z'" in err


@pytest.mark.slow
def test_a_process_that_is_killed_ends_the_command(tmp_path):
    save(tmp_path)
    run = command(
        tmp_path,
        "part-*.parquet",
        "--missing",
        "drop",
        "--epochs",
        "1000000",
        "--processes",
        "2",
        start_new_session=True,
    )
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and not list(tmp_path.glob("runs/.torchperc-part-*/rule/events*")):
        time.sleep(0.1)  # until it learns
    children = [
        int(pid)
        for pid in subprocess.run(
            ["ps", "-o", "pid=", "--ppid", str(run.pid)], capture_output=True, text=True
        ).stdout.split()
    ]
    os.kill(max(children), signal.SIGKILL)
    _, err = run.communicate(timeout=120)
    assert run.returncode == 1
    assert "process 1 of 2 was ended by SIGKILL" in err
    assert not list(tmp_path.glob("runs/part/*.html"))
