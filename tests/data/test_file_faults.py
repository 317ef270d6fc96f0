"""Files under faults: changed while they are read, too wide, too large for the disk."""

import errno
import importlib
import os

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.linear_model import SGDClassifier
from tables import said_by

from torchperc.data import Batches, PreparedData, read, svmlight, table_files

reading = importlib.import_module("torchperc.data.read")

ROWS = 40


def table(path, shift=0, rows=ROWS):
    """A file of one kind with the same numbers, of which none is equal to those of another shift."""
    lines = [(i + shift, (7 * i) % 5, "xy"[i % 2]) for i in range(1, rows + 1)]
    if path.suffix == ".svm":
        path.write_text("".join(f"{label} 1:{a + 100} 2:{b}\n" for a, b, label in lines))
    elif path.suffix == ".parquet":
        columns = dict(zip(("a", "b", "c"), map(list, zip(*lines, strict=True)), strict=True))
        pq.write_table(pa.table(columns), path, row_group_size=4)
    elif path.suffix == ".npy":
        np.save(path, np.array([(a, b, label == "y") for a, b, label in lines], float))
    else:
        path.write_text("a,b,c\n" + "".join(f"{a + 100},{b},{label}\n" for a, b, label in lines))
    return path


@pytest.fixture(autouse=True)
def in_pieces(monkeypatch):
    monkeypatch.setattr(table_files, "BLOCK", 64)
    monkeypatch.setattr(svmlight, "PIECE", 64)
    monkeypatch.setattr(table_files, "ROWS", 4)


def truncate(path):
    os.truncate(path, 30)


def append(path):
    with path.open("ab") as file:
        file.write(path.read_bytes()[-16:])


def replace(path):
    other = path.with_name(f"other{path.suffix}")
    os.replace(table(other, shift=1), path)


CHANGES = {change.__name__: change for change in (truncate, append, replace, os.unlink)}
KINDS = ("csv", "svm", "parquet", "npy")
SAID = "data.{} changed while it was read; read it again"


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("kind", KINDS)
def test_a_new_file_that_changes_while_it_is_read(tmp_path, kind, change):
    path = table(tmp_path / f"data.{kind}")
    old = read(path)
    reader = iter(Batches(path, old.encoder))
    seen = [next(reader)]
    CHANGES[change](path)
    with pytest.raises(ValueError, match=SAID.format(kind)):
        seen.extend(reader)
    for batch in seen:
        rows = old.X[batch.first : batch.first + batch.X.shape[0]]
        assert batch.X.toarray().tolist() == rows.toarray().tolist() if kind == "svm" else batch.X.equal(rows)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("kind", KINDS)
def test_a_training_file_that_changes_while_it_is_read(tmp_path, monkeypatch, kind, change, stream):
    path = table(tmp_path / f"data.{kind}")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    def changing():  # memory is asked for between the two readings
        CHANGES[change](path)
        return 2**32

    monkeypatch.setattr(reading, "free_memory", changing)
    with pytest.raises(ValueError, match=SAID.format(kind)):
        read(path, stream=stream)
    assert not list(tmp_path.glob(".torchperc-*"))


# sparse samples for other libraries


@pytest.mark.parametrize("stream", [False, True])
def test_sparse_samples_have_indices_of_32_bits(tmp_path, stream):
    made = read(table(tmp_path / "data.svm"), stream=stream)
    whole = made.X.load(0) if stream else made.X
    new = next(iter(Batches(tmp_path / "data.svm", made.encoder))).X
    (train, _), *_ = PreparedData(made, scale="maxabs").parts
    for X in (whole, new, train):
        assert {X.indices.dtype, X.indptr.dtype} == {np.dtype(np.int32)}
    SGDClassifier(max_iter=2, tol=None).fit(train, np.arange(train.shape[0]) % 2)


# limits


def test_an_enormous_width_is_refused_before_memory_is_gone(tmp_path, monkeypatch):
    path = tmp_path / "wide.svm"
    path.write_text("x 1:1\ny 2147483646:1\n")
    assert "has 2,147,483,646 features, whose names and weights take 171.8 GB" in said_by(lambda: read(path))
    path.write_text("".join(f"{k} {k + 1}:1\n" for k in range(3)) + "0 300000:1\n")
    assert read(path).X.shape == (4, 300_000)
    monkeypatch.setattr(reading, "free_memory", lambda: 2**25)
    assert "has 300,000 features" in said_by(lambda: read(path))


def test_a_full_disk_is_one_line_and_leaves_nothing(tmp_path, monkeypatch):
    def full(file, header):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(np.lib.format, "write_array_header_1_0", full)
    path = table(tmp_path / "data.csv")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    said = said_by(lambda: read(path, stream=True), OSError)
    assert f"cannot write the converted table to {tmp_path}" in said
    assert "No space left on device" in said
    assert list(tmp_path.iterdir()) == [path]
