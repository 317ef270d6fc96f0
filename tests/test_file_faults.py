"""Files under faults: changed while they are read, one cache for many, compressed to almost nothing, too wide."""

import os

import numpy as np
import pyarrow.parquet as pq
import pytest
from scipy.sparse import csr_array
from sklearn.linear_model import SGDClassifier

from torchperc import FittedModel, Perceptron
from torchperc.cli import main
from torchperc.data import MaxAbs, batches, opening, partition, read, split, svmlight, tables, text

ROWS = 40


def table(path, shift=0, rows=ROWS):
    """A file of one kind with the same numbers, of which none is equal to those of another shift."""
    lines = [(i + shift, (7 * i) % 5, "xy"[i % 2]) for i in range(1, rows + 1)]
    if path.suffix == ".svm":
        path.write_text("".join(f"{label} 1:{a + 100} 2:{b}\n" for a, b, label in lines))
    elif path.suffix == ".parquet":
        import pyarrow as pa

        columns = dict(zip(("a", "b", "c"), map(list, zip(*lines, strict=True)), strict=True))
        pq.write_table(pa.table(columns), path, row_group_size=4)
    elif path.suffix == ".npy":
        np.save(path, np.array([(a, b, label == "y") for a, b, label in lines], float))
    else:
        path.write_text("a,b,c\n" + "".join(f"{a + 100},{b},{label}\n" for a, b, label in lines))
    return path


@pytest.fixture(autouse=True)
def in_pieces(monkeypatch):
    monkeypatch.setattr(text, "PIECE", 64)
    monkeypatch.setattr(svmlight, "PIECE", 64)
    monkeypatch.setattr(tables, "ROWS", 4)


def truncate(path):
    os.truncate(path, 30)


def append(path):
    with path.open("ab") as file:
        file.write(path.read_bytes()[-16:])


def replace(path):
    other = path.with_name(f"other{path.suffix}")
    os.replace(table(other, shift=1), path)


def rewrite_unseen(path):
    """Other bytes of the same number in the same file, with the time of the old ones."""
    before = path.stat()
    new = table(path.with_name(f"other{path.suffix}"), shift=1).read_bytes()
    assert len(new) == before.st_size
    with path.open("r+b") as file:
        file.write(new)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


CHANGES = {change.__name__: change for change in (truncate, append, replace, rewrite_unseen, os.unlink)}
KINDS = ("csv", "svm", "parquet", "npy")
SAID = "data.{} changed while it was read; read it again"


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("kind", KINDS)
def test_a_new_file_that_changes_while_it_is_read(tmp_path, kind, change):
    path = table(tmp_path / f"data.{kind}")
    old = read(path)
    reader = iter(batches(path, old.encoding))
    seen = [next(reader)]
    CHANGES[change](path)
    with pytest.raises(ValueError, match=SAID.format(kind)):
        seen.extend(reader)
    for batch in seen:
        rows = old.X[batch.first : batch.first + batch.X.shape[0]]
        assert batch.X.toarray().tolist() == rows.toarray().tolist() if kind == "svm" else batch.X.equal(rows)


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("kind", KINDS)
def test_apply_fails_in_one_line_when_its_file_changes(tmp_path, monkeypatch, capsys, kind, change):
    path, out = table(tmp_path / f"data.{kind}"), tmp_path / "labels.csv"
    model = FittedModel.of(Perceptron(2), encoding=read(path).encoding)
    model.save(tmp_path / "weights.safetensors")
    outputs, calls = FittedModel.outputs, []

    def changing(self, X):
        calls.append(X)
        if len(calls) == 1:
            CHANGES[change](path)
        return outputs(self, X)

    monkeypatch.setattr(FittedModel, "outputs", changing)
    with pytest.raises(SystemExit) as left:
        main(["apply", str(tmp_path / "weights.safetensors"), str(path), "-o", str(out)])
    assert (left.value.code, capsys.readouterr()) == (2, ("", f"torchperc: error: {tmp_path}/{SAID.format(kind)}\n"))
    assert not out.exists()


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("kind", KINDS)
def test_a_training_file_that_changes_while_it_is_read(tmp_path, monkeypatch, kind, change, stream):
    path, cache = table(tmp_path / f"data.{kind}"), tmp_path / "cache"
    _after_some_pieces(monkeypatch, 3, lambda: CHANGES[change](path))
    with pytest.raises(ValueError, match=SAID.format(kind)):
        read(path, stream=stream, cache=cache)
    assert not cache.exists() or not list(cache.iterdir())


def _after_some_pieces(monkeypatch, count, act):
    told = []

    class Bar:
        def __init__(self, *_):
            pass

        def __enter__(self):
            return self.watch

        def __exit__(self, *_):
            pass

        def watch(self, done):
            told.append(done)
            if len(told) == count:
                act()

    monkeypatch.setattr(opening, "bar", Bar)


@pytest.mark.parametrize("kind", ["csv", "svm", "npy"])
def test_what_the_clock_does_not_show_is_seen_by_checksums(tmp_path, monkeypatch, kind):
    path = table(tmp_path / f"data.{kind}")
    monkeypatch.setattr(opening, "_stamp", lambda path: 0)
    _after_some_pieces(monkeypatch, _pieces(path), lambda: rewrite_unseen(path))
    with pytest.raises(ValueError, match=SAID.format(kind)):
        read(path, stream=True)


def _pieces(path):
    """How often a pass tells how far it is."""
    form, told = opening.form(path), []
    if form.kind == "svmlight":
        list(svmlight.SvmlightFile(path, None).blocks(told.append))
    else:
        found = tables.open_table(path, form)
        list(found.blocks({0: False, 1: False, 2: True}, told.append))
    return len(told)


# sparse samples for other libraries


@pytest.mark.parametrize("stream", [False, True])
def test_sparse_samples_have_indices_of_32_bits(tmp_path, stream):
    made = read(table(tmp_path / "data.svm"), stream=stream)
    whole = made.X.load(0) if stream else made.X
    new = next(iter(batches(tmp_path / "data.svm", made.encoding))).X
    (train, _), *_ = partition(made, split(made.y), MaxAbs()).parts
    for X in (whole, new, train):
        assert {X.indices.dtype, X.indptr.dtype} == {np.dtype(np.int32)}
    SGDClassifier(max_iter=2, tol=None).fit(train, np.arange(train.shape[0]) % 2)


def test_indices_of_64_bits_in_an_archive_become_smaller(tmp_path):
    X = csr_array([[1.0, 0.0], [0.0, 2.0]])
    wide = {"data": X.data, "indices": X.indices.astype(np.int64), "indptr": X.indptr.astype(np.int64)}
    np.savez(tmp_path / "data.npz", **wide, shape=X.shape, y=["a", "b"])
    made = read(tmp_path / "data.npz")
    new = next(iter(batches(tmp_path / "data.npz", made.encoding))).X
    for found in (made.X, new):
        assert {found.indices.dtype, found.indptr.dtype} == {np.dtype(np.int32)}
        assert found.toarray().tolist() == X.toarray().tolist()
