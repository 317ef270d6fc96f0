"""``torchperc play``: where the page goes, which data and runs it shows, how it fails."""

import json
import re
import tempfile
import webbrowser

import pytest
import torch

import torchperc as tp

DATA = re.compile(r'<script type="application/json" id="content">(.*?)</script>', re.DOTALL)


@pytest.fixture(autouse=True)
def opened(monkeypatch):
    addresses = []
    monkeypatch.setattr(webbrowser, "open", addresses.append)
    return addresses


def content(path):
    return json.loads(DATA.search(path.read_text("utf-8"))[1])


@pytest.fixture
def fruit(tmp_path):
    path = tmp_path / "fruit.csv"
    path.write_text(
        "weight,length,colour,kind\n120,7,0.5,apple\n110,19,0.25,banana\n130,8,0.75,apple\n100,20,0.5,banana\n"
    )
    return path


def test_the_page_is_opened_from_a_temporary_folder(call, tmp_path, monkeypatch, opened):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    code, out, error = call("play")
    (path,) = tmp_path.rglob("*.html")
    assert (code, out, error) == (0, f"the page: {path}\n", "")
    assert opened == [path.as_uri()]
    assert content(path)["start"] == {"preset": "AND"}


def test_a_file_of_points(call, tmp_path, fruit):
    out = tmp_path / "a.html"
    assert call("play", "--data", fruit, "--features", "length", "3", "--out", out)[0] == 0
    made = content(out)
    assert made["title"] == "fruit.csv"
    assert made["start"]["data"] == {
        "points": [[7, 0.5], [19, 0.25], [8, 0.75], [20, 0.5]],
        "labels": [0, 1, 0, 1],
        "classes": 2,
        "names": ["length", "colour"],
        "classNames": ["apple", "banana"],
        "description": "The plane shows 2 of 3 features: length and colour.",
    }
    assert call("play", "--data", fruit, "--ignore", "weight", "--target", "4", "--out", out)[0] == 0
    assert "description" not in content(out)["start"]["data"]
    assert call("play", "--data", "xor", "--out", out)[0] == 0
    assert content(out)["start"]["data"]["labels"] == [0, 1, 1, 0]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--data", "fruit.csv"], "--features weight length"),
        (["--data", "fruit.csv", "--features", "length", "size"], "--features size"),
        (["--data", "fruit.csv", "--features", "1", "weight"], "--features 1 weight"),
        (["--data", "fruit.csv", "--features", "1"], "argument --features: expected 2 arguments"),
        (["--data", "diabetes", "--features", "1", "2"], "torchperc play needs classes; to predict numbers: torchperc learn"),
        (["--data", "digits", "--features", "1", "2"], "--positive 0"),
        (["--data", "breast-cancer", "--features", "1", "2", "--samples", "1"], "--samples 1 must be at least 2"),
        (["--data", "XOR", "--target", "y"], "--target y needs a file; XOR is a gate"),
        (["--target", "y"], "--target y is about data; name it by --data FILE"),
        (["--features", "1", "2"], "--features 1 2 is about data"),
        (["--samples", "5"], "--samples 5 is about data"),
        (["--log", "fruit.csv"], "fruit.csv holds no data"),
        (["--log", "fruit.csv", "--data", "AND"], "fruit.csv is not a mistake log"),
        (["--log", "fruit.csv", "--data", "AND", "--samples", "3"], "--samples 3"),
        (["--log", "run.npz"], "--log run.npz is no file"),
        (["--out", "no/such/folder.html"], "--out no/such/folder.html"),
    ],
)  # fmt: skip
def test_errors_are_one_line_and_exit_code_two(refused, fruit, tmp_path, monkeypatch, words, message, opened):
    monkeypatch.chdir(tmp_path)
    assert message in refused("play", *words, *([] if "--out" in words else ["--out", "a.html"]))
    assert not (tmp_path / "a.html").exists()
    assert opened == []


# --- recorded runs ------------------------------------------------------------------------------------------------


def test_a_run_is_replayed(call, tmp_path, fruit):
    out, table = tmp_path / "a.html", tp.data.read(fruit)
    trainer = tp.RuleTrainer(max_epochs=4, order="shuffled")
    run = trainer.fit(tp.Perceptron(3, dtype=torch.float64), table.X, table.y)
    for name in ("run.npz", "run.json"):
        run.log.save(tmp_path / name)
    code, _, error = call("play", "--data", fruit, "--log", tmp_path / "run.npz", "--features", "2", "1", "--out", out)
    assert (code, error) == (0, "")
    made = content(out)
    assert made["recorded"]["index"] == run.log.sample.tolist()
    assert made["start"]["data"]["names"] == ["length", "weight"]
    assert made["start"]["data"]["classNames"] == ["apple", "banana"]
    assert "A run with 3 features, seen in length and weight" in made["recorded"]["description"]
    assert call("play", "--log", tmp_path / "run.json", "--features", "2", "1", "--out", out)[0] == 0
    assert content(out)["recorded"]["points"] == made["recorded"]["points"]
    assert content(out)["start"]["data"]["names"] == ["x2", "x1"]
