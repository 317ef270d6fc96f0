"""Files under faults: changed while they are read, one cache for many, compressed to almost nothing, too wide."""

import bz2
import csv
import gc
import gzip
import io
import lzma
import os
import pickle
import queue
import shutil
import subprocess
import sys
import threading
import warnings
import weakref
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from scipy.sparse import csr_array
from sklearn.linear_model import SGDClassifier

from torchperc import FittedModel, Perceptron
from torchperc.cli import main
from torchperc.data import Column, CsrParts, Encoding, MaxAbs, iter_batches, make_partition, read, split
from torchperc.data.io import files, opening, svmlight, tables, text
from torchperc.samples import streams
from torchperc.workflow.apply import _safe

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
    reader = iter(iter_batches(path, old.encoding))
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
        list(svmlight.SvmlightFile(path, form).blocks(told.append))
    else:
        found = tables.open_table(path, form)
        list(found.blocks({0: False, 1: False, 2: True}, told.append))
    return len(told)


# sparse samples for other libraries


@pytest.mark.parametrize("stream", [False, True])
def test_sparse_samples_have_indices_of_32_bits(tmp_path, stream):
    made = read(table(tmp_path / "data.svm"), stream=stream)
    whole = made.X.load(0) if stream else made.X
    new = next(iter(iter_batches(tmp_path / "data.svm", made.encoding))).X
    (train, _), *_ = make_partition(made, split(made.y), MaxAbs()).parts
    for X in (whole, new, train):
        assert {X.indices.dtype, X.indptr.dtype} == {np.dtype(np.int32)}
    SGDClassifier(max_iter=2, tol=None).fit(train, np.arange(train.shape[0]) % 2)


def test_indices_of_64_bits_in_an_archive_become_smaller(tmp_path):
    X = csr_array([[1.0, 0.0], [0.0, 2.0]])
    wide = {"data": X.data, "indices": X.indices.astype(np.int64), "indptr": X.indptr.astype(np.int64)}
    np.savez(tmp_path / "data.npz", **wide, shape=X.shape, y=["a", "b"])
    made = read(tmp_path / "data.npz")
    new = next(iter(iter_batches(tmp_path / "data.npz", made.encoding))).X
    for found in (made.X, new):
        assert {found.indices.dtype, found.indptr.dtype} == {np.dtype(np.int32)}
        assert found.toarray().tolist() == X.toarray().tolist()


# limits


def said_by(call, kind=ValueError):
    with pytest.raises(kind) as caught:
        call()
    assert "\n" not in str(caught.value)
    return str(caught.value)


def bomb(path, rows=2_000):
    """A file of few bytes and many rows, all alike."""
    kind = path.name.split(".", 1)[1]
    if kind == "parquet":
        pq.write_table(pa.table({"a": [1.0] * rows, "c": ["x", "y"] * (rows // 2)}), path, compression="zstd")
    elif kind == "npz":
        np.savez_compressed(path, X=np.ones((rows, 2)), y=np.arange(rows) % 2)
    else:
        text = b"1 1:1 2:1\n0 1:1 2:1\n" if "svm" in kind else b"1,1,x\n1,1,y\n"
        path.write_bytes({"gz": gzip, "bz2": bz2, "xz": lzma}[kind.split(".")[1]].compress(text * (rows // 2)))
    return path


@pytest.mark.parametrize("name", ["a.csv.gz", "a.csv.bz2", "a.csv.xz", "a.svm.gz", "a.parquet", "a.npz"])
def test_a_file_that_unpacks_to_too_much_is_refused(tmp_path, monkeypatch, name):
    path = bomb(tmp_path / name)
    made = read(path)
    assert len(made.y) == 2_000
    monkeypatch.setattr(streams, "UNPACKED", 1_000)
    monkeypatch.setattr(streams, "RATIO", 2)
    limit = max(1_000, 2 * path.stat().st_size)
    for call in (read, lambda path: list(iter_batches(path, made.encoding))):
        found = said_by(lambda call=call: call(path))
        assert found == (
            f"{path} decompresses to more than {limit:,} bytes; if it is not damaged, allow more with max_unpacked={10 * limit}"
        )
    assert len(read(path, max_unpacked=10**7).y) == 2_000
    assert len(list(iter_batches(path, made.encoding, max_unpacked=10**7)))
    assert "decompresses to more than 50 bytes" in said_by(lambda: read(path, max_unpacked=50))
    assert "max_unpacked=0 must be" in said_by(lambda: read(path, max_unpacked=0))


def test_limits_are_options_of_the_commands(tmp_path, capsys):
    path, wide = bomb(tmp_path / "a.csv.gz", 200), tmp_path / "wide.svm"
    wide.write_text("x 1:1\ny 9:1\n")
    FittedModel.of(Perceptron(2), encoding=read(path).encoding).save(tmp_path / "weights.safetensors")
    cases = {
        ("separable", path, "--max-unpacked", "50"): "allow more with --max-unpacked 500",
        ("learn", path, "--out", tmp_path / "run", "--max-unpacked", "50"): "allow more with --max-unpacked 500",
        ("apply", tmp_path / "weights.safetensors", path, "--max-unpacked", "50"): "allow more with --max-unpacked 500",
        ("separable", wide, "--max-features", "8"): "has 9 features, more than --max-features 8; raise it",
    }
    for words, message in cases.items():
        with pytest.raises(SystemExit) as left:
            main(list(map(str, words)))
        out, err = capsys.readouterr()
        assert (left.value.code, out, err.count("\n")) == (2, "", 1)
        assert message in err


def test_an_enormous_width_is_refused_before_memory_is_gone(tmp_path, monkeypatch):
    path = tmp_path / "wide.svm"
    path.write_text("x 1:1\ny 2147483646:1\n")
    assert "has 2,147,483,646 features and 2 labels, whose names and weights take 171.8 GB" in said_by(
        lambda: read(path)
    )
    assert "more than max_features=1000" in said_by(lambda: read(path, max_features=1000))
    path.write_text("".join(f"{k} {k + 1}:1\n" for k in range(3)) + "0 300000:1\n")
    assert read(path).X.shape == (4, 300_000)
    monkeypatch.setattr(files, "free_memory", lambda: 2**25)
    assert "has 300,000 features and 3 labels" in said_by(lambda: read(path))
    assert read(path, max_features=300_000).X.shape == (4, 300_000)
    X = csr_array((np.ones(2), np.array([0, 2**31 - 2]), np.array([0, 1, 2])), shape=(2, 2**31 - 1))
    np.savez(tmp_path / "wide.npz", data=X.data, indices=X.indices, indptr=X.indptr, shape=X.shape, y=["a", "b"])
    assert "has 2,147,483,647 features" in said_by(lambda: read(tmp_path / "wide.npz"))


def test_labels_of_svmlight_that_are_identifiers_are_refused(tmp_path):
    path = tmp_path / "names.svm"
    path.write_text("".join(f"n{k} 1:{k}\n" for k in range(60)))
    assert "has 60 different labels in 60 rows; it looks like a quantity" in said_by(lambda: read(path))
    path.write_text("".join(f"{k % 51} 1:{k}\n" for k in range(200)))
    assert len(read(path).labels) == 51


@pytest.mark.parametrize("kind", ["csv", "svm"])
def test_what_takes_more_memory_than_the_first_lines_promise_is_streamed(tmp_path, monkeypatch, kind):
    path = table(tmp_path / f"data.{kind}")
    held = read(path)
    monkeypatch.setattr(text.TextTable, "size", lambda self: 0)
    monkeypatch.setattr(svmlight.SvmlightFile, "size", lambda self: 0)
    monkeypatch.setattr(files, "free_memory", lambda: 2000)
    found = read(path)
    assert isinstance(found.X, CsrParts if kind == "svm" else np.memmap)
    assert found.X.shape == held.X.shape
    assert found.y.equal(held.y)
    assert not isinstance(read(path, stream=False).X, np.memmap | CsrParts)


# one cache for many


def values(X):
    return np.vstack([X.load(k).toarray() for k in range(len(X.pieces))]) if isinstance(X, CsrParts) else np.array(X)


@pytest.mark.parametrize("kind", ["csv", "svm"])
def test_two_data_sets_in_one_cache_folder(tmp_path, kind):
    cache = tmp_path / "cache"
    paths = [table(tmp_path / f"{name}.{kind}", shift) for name, shift in (("a", 0), ("b", 1))]
    alone = [read(path, stream=True) for path in paths]
    shared = [read(path, stream=True, cache=cache) for path in paths]
    for one, other in zip(alone, shared, strict=True):
        again = pickle.loads(pickle.dumps(other.X)) if kind == "svm" else np.load(other.X.filename)
        assert np.array_equal(values(one.X), values(again))
    entries = {file: file.read_bytes() for file in cache.iterdir()}
    assert len({file.name[:34] for file in entries}) == 2  # a digest for each
    read(paths[0], stream=True, cache=cache)
    assert {file.name for file in cache.iterdir()} == {file.name for file in entries}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["csv", "svm"])
def test_processes_share_a_cache_folder(tmp_path, kind):
    code = (
        "import sys; from torchperc.data import read\n"
        "for _ in range(5):\n"
        "    X = read(sys.argv[1], stream=True, cache='cache').X\n"
        "    rows = [X.load(k).sum() for k in range(len(X.pieces))] if hasattr(X, 'pieces') else [X.sum()]\n"
        "    print(sum(rows))\n"
    )
    paths = [table(tmp_path / f"{name}.{kind}", shift) for name, shift in (("a", 0), ("b", 1))]
    running = [
        subprocess.Popen([sys.executable, "-c", code, path.name], cwd=tmp_path, stdout=-1, stderr=-1, text=True)
        for path in (paths[0], *paths)
    ]
    for process, path in zip(running, (paths[0], *paths), strict=True):
        out, err = process.communicate(timeout=60)
        assert (process.returncode, err) == (0, "")
        assert set(map(float, out.split())) == {float(values(read(path, stream=True).X).sum())}
    assert not list((tmp_path / "cache").glob(".*"))


@pytest.mark.slow
def test_what_a_killed_reader_left_is_removed_by_the_next(tmp_path):
    table(tmp_path / "data.csv")
    code = (
        "import os, signal; from torchperc.data import read\n"
        "X = read('data.csv', stream=True).X; print(X.filename, flush=True)\n"
    )
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    left = []
    for end in ("os.kill(os.getpid(), signal.SIGKILL)", ""):
        ran = subprocess.run(
            [sys.executable, "-c", code + end], cwd=tmp_path, env=environment, capture_output=True, text=True
        )
        left.append(Path(ran.stdout.strip()).parent.exists())
    assert left == [True, False]
    assert [path.name for path in tmp_path.iterdir()] == ["data.csv"]


def test_a_disk_without_room_is_told_before_anything_is_written(tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=100))
    path = table(tmp_path / "data.csv")
    assert "it takes 0.0 GB, and 0.0 GB are free; choose another folder with cache" in said_by(
        lambda: read(path, stream=True, cache=tmp_path / "cache"), OSError
    )
    assert not list((tmp_path / "cache").iterdir())


# spreadsheets


def applied(tmp_path, labels, *words):
    """What apply writes for one sample of each label."""
    net = torch.nn.Linear(len(labels), len(labels))
    with torch.no_grad():
        net.weight.copy_(torch.eye(len(labels)))
        net.bias.zero_()
    encoding = Encoding(tuple(Column(f"x{k}") for k in range(len(labels))), "label", labels)
    FittedModel.of(net, encoding=encoding).save(tmp_path / "weights.safetensors")
    data = pd.DataFrame(np.eye(len(labels)), columns=[f"x{k}" for k in range(len(labels))]).assign(label=labels)
    data.to_csv(tmp_path / "new.csv", index=False)
    main(["apply", str(tmp_path / "weights.safetensors"), str(tmp_path / "new.csv"), *map(str, words)])


def test_labels_are_made_safe_for_spreadsheets_on_request(tmp_path, capsys):
    labels = ("=cmd|'/c calc'!A0", "+a", "-b", "@c", "-1.5", "-2", "a=b", "d,e")
    safe = ("'=cmd|'/c calc'!A0", "'+a", "'-b", "'@c", "-1.5", "-2", "a=b", "d,e")
    for words, wanted in (((), labels), (("--spreadsheet-safe",), safe)):
        applied(tmp_path, labels, *words)
        out, err = capsys.readouterr()
        rows = list(csv.reader(io.StringIO(out)))
        assert tuple(row[0] for row in rows[1:]) == wanted
        assert [float(row[1]) for row in rows[1:]] == [1, *[0] * 7]  # numbers stay as they are
        assert "0 of 8 differ" in err
        applied(tmp_path, labels, "-o", tmp_path / "out.tsv.gz", *words)
        with gzip.open(tmp_path / "out.tsv.gz", "rt", newline="") as file:
            assert tuple(row[0] for row in csv.reader(file, delimiter="\t"))[1:] == wanted
        capsys.readouterr()
    with pytest.raises(SystemExit):
        applied(tmp_path, labels, "-o", tmp_path / "out.parquet", "--spreadsheet-safe")
    assert "--spreadsheet-safe needs CSV and TSV" in capsys.readouterr().err
    assert _safe("\tx") == "'\tx"
    assert _safe("\rx") == "'\rx"


def test_reading_that_is_given_up_does_not_wait_for_its_thread():
    """Its generator may be closed by a garbage collection at a place where waiting for a thread never ends."""
    begun, gate, waited = threading.Event(), threading.Event(), queue.Queue()

    def items():
        yield 1
        begun.set()
        waited.put(gate.wait(5))
        yield 2

    reader = opening.ahead(items())
    assert next(reader) == 1
    assert begun.wait(10)
    reader.close()
    gate.set()
    assert waited.get(timeout=10)


@pytest.mark.parametrize("packing", [None, "gzip"])
def test_a_reader_that_is_given_up_closes_its_file_without_a_warning(tmp_path, packing):
    path = tmp_path / "data.csv"
    path.write_bytes(gzip.compress(b"1,a\n") if packing else b"1,a\n")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        stream = opening.Stream(path, packing)
        file = weakref.ref(stream._raw)
        stream.itself = stream  # as in a traceback: only the garbage collection finds it
        del stream
        gc.collect()
    assert file() is None
