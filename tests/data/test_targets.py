"""Targets that are quantities: how they are told from classes, and read from every kind of file."""

import math
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from sklearn.datasets import load_diabetes
from tables import said_by

from torchperc.data import Batches, TableEncoder, read, svmlight, table_files
from torchperc.data import table_encoder as tasks

N = 60


def prices(seed=0, rows=N):
    """Two features and a price per row, in numbers of many digits."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rows, 2))
    return X, 1e5 + 3e4 * X[:, 0] - 7e3 * X[:, 1] + rng.normal(size=rows)


def save(folder, kind, X, y, name="price"):
    """The samples in a file of some kind, and the options to read it with."""
    path = folder / f"flats.{kind}"
    if kind == "csv":
        path.write_text(f"a,b,{name}\n" + "".join(f"{a!r},{b!r},{c!r}\n" for a, b, c in np.c_[X, y].tolist()))
    elif kind == "parquet":
        pq.write_table(pa.table({"a": X[:, 0], "b": X[:, 1], name: y}), path)
    elif kind == "npy":
        np.save(path, np.c_[X, y])
    elif kind == "npz":
        np.savez(path, X=X, y=y)
    else:
        path.write_text("".join(f"{t!r} 1:{a!r} 2:{b!r}\n" for (a, b), t in zip(X.tolist(), y.tolist(), strict=True)))
    return path


KINDS = ("csv", "parquet", "npy", "npz", "svm")


@pytest.mark.parametrize("task", [None, "regression"])
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_file_gives_the_numbers_to_the_bit(tmp_path, kind, task):
    X, y = prices()
    path = save(tmp_path, kind, X, y)
    made = read(path, task=task)
    assert made.y.dtype == torch.float64
    assert made.y.tolist() == y.tolist()
    dense = made.X.toarray() if kind == "svm" else made.X.numpy()
    assert np.array_equal(dense, X)
    assert (made.task, made.labels, made.classes, made.encoder.labels) == ("regression", (), None, ())
    assert made.target == {"npy": "3", "npz": "y", "svm": None}.get(kind, "price")
    assert bool(made.inferred_task) == (task is None)
    assert TableEncoder.from_json(made.encoder.to_json()) == made.encoder


@pytest.mark.parametrize("kind", KINDS)
def test_small_integers_stay_classes_and_infinite_targets_are_named(tmp_path, kind):
    X, y = prices()
    made = read(save(tmp_path, kind, X, np.arange(N) % 10 + 1.0))
    assert made.labels == tuple(map(str, range(1, 11)))
    assert made.y.tolist() == (np.arange(N) % 10).tolist()
    assert made.inferred_task == ""
    y[17] = math.inf
    place = {"csv": "line 19", "svm": "line 18"}.get(kind, "row 18")
    said = said_by(partial(read, save(tmp_path, kind, X, y), task="regression"))
    assert (place in said, ("found 'inf 1:" if kind == "svm" else "'inf' is not a finite number") in said) == (
        True,
        True,
    )
    constant = said_by(partial(read, save(tmp_path, kind, X, np.full(N, 2.5)), task="regression"))
    assert "one value only: '2.5'" in constant


# --- classes or a quantity, if nobody has said ---

FRACTIONS, INTEGERS = [str(k / 4 + 0.125) for k in range(200)], list(map(str, range(0, 600, 3)))
GUESSES = {
    "two signs": (["-1", "1"], 1000, False),
    "digits": (list(map(str, range(10))), 1797, False),
    "one row per digit": (list(map(str, range(10))), 10, False),
    "words": ([f"w{k}" for k in range(200)], 200, False),
    "words and numbers": ([*FRACTIONS, "none"], 201, False),
    "with an infinity": ([*FRACTIONS, "inf"], 201, False),
    "half stars": ([str(k / 2) for k in range(1, 11)], 5000, False),
    "20 numbers": (FRACTIONS[:20], 40, False),
    "21 numbers": (INTEGERS[:21], 1000, True),
    "few rows": (INTEGERS[:11], 21, True),
    "few rows, each twice": (INTEGERS[:11], 22, False),
    "diabetes": (sorted({str(int(v)) for v in load_diabetes().target}), 442, True),
}


@pytest.mark.parametrize("name", GUESSES)
def test_what_is_taken_for_a_quantity(name):
    labels, rows, quantity = GUESSES[name]
    assert tasks.is_quantity(labels, rows) is quantity


def test_the_guess_is_told_and_can_be_overruled(tmp_path):
    X, y = prices()
    path = save(tmp_path, "csv", X, y)
    assert read(path).inferred_task == "target 'price' has 60 different numbers: regression"
    classes = read(path, task="classification")
    assert len(classes.labels) == N
    assert classes.inferred_task == ""
    few = save(tmp_path, "csv", X, np.arange(N) % 20 + 1.0)
    assert (read(few).task, read(few).inferred_task) == ("classification", "")
    assert read(few, task="regression").y.tolist() == (np.arange(N) % 20 + 1.0).tolist()
    assert read(few, positive="7").labels == ("not 7", "7")


def test_more_numbers_than_are_counted_are_a_quantity(tmp_path, monkeypatch):
    monkeypatch.setattr(tasks, "MAX_LABELS", 20)
    monkeypatch.setattr(table_files, "BLOCK", 256)
    monkeypatch.setattr(svmlight, "PIECE", 256)
    X, _ = prices(rows=400)
    y = np.arange(400.0) % 40
    for kind in ("csv", "svm"):
        made = read(save(tmp_path, kind, X, y))
        assert made.y.tolist() == y.tolist()
        assert made.inferred_task.endswith("has more than 20 different numbers: regression")


# --- what is wrong, and where ---


@pytest.mark.parametrize("cell", ["inf", "unknown"])
def test_a_slip_in_a_quantity_is_named_without_a_task_too(tmp_path, cell):
    path = save(tmp_path, "csv", *prices())
    text = path.read_text().splitlines()
    text[30] = f"1.0,2.0,{cell}"
    path.write_text("\n".join(text))
    assert f"line 31, column 'price': '{cell}' is not a" in said_by(partial(read, path))
    assert len(read(path, task="classification").labels) == N


def test_new_files_tell_their_targets_where_they_have_them(tmp_path):
    path = save(tmp_path, "csv", *prices())
    encoding = read(path).encoder
    new = tmp_path / "new.csv"
    new.write_text("price,b,a\n10.50,1,2\n,3,4\nhigh,5,6\n")
    (batch,) = Batches(new, encoding)
    assert batch.X.tolist() == [[2.0, 1.0], [4.0, 3.0], [6.0, 5.0]]
    assert batch.labels == ["10.5", "", "high"]
    new.write_text("a,b\n1,2\n")
    assert [batch.labels for batch in Batches(new, encoding)] == [None]
