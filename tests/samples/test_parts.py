"""Data larger than memory: the same log as in memory, a part at a time."""

import os
import subprocess
import sys

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from test_engines import integers

import torchperc as tp
from torchperc.data import CsrParts
from torchperc.samples.mapped import Chunked


@pytest.fixture
def small_parts(monkeypatch):
    monkeypatch.setattr("torchperc.samples.mapped.CHUNK", 2**12)  # 102 rows of 5 float64


def mapped(tmp_path, X, dtype=np.float64):
    path = tmp_path / "X.npy"
    np.save(path, X.astype(dtype))
    return np.load(path, mmap_mode="r")


def fit(X, y, classes=None, dtype=torch.float64, **options):
    net = (tp.Perceptron(5) if classes is None else tp.MulticlassPerceptron(5, classes)).to(dtype)
    return tp.RuleTrainer(**{"max_epochs": 4, **options}).fit(net, X, y), net


@pytest.mark.parametrize("engine", ["reference", "compiled"])
@pytest.mark.parametrize("classes", [None, 3])
def test_a_mapped_file_gives_the_log_of_memory(tmp_path, small_parts, classes, engine):
    X, y = integers(1, count=700, classes=classes)
    inside, net = fit(X, y, classes, engine=engine)
    outside, copy = fit(mapped(tmp_path, X), y, classes, engine=engine)
    assert isinstance(outside.log.problem.samples, Chunked)
    assert inside.log.equals(outside.log)
    assert torch.equal(net.weight, copy.weight)


@pytest.mark.parametrize("select", ["averaged", "voted", "pocket"])
def test_every_model_of_the_log_is_the_same(tmp_path, small_parts, select):
    X, y = integers(2, count=500)
    (inside, net), (outside, copy) = fit(X, y, select=select), fit(mapped(tmp_path, X), y, select=select)
    torch.testing.assert_close(net.weight, copy.weight, rtol=1e-14, atol=1e-14)
    assert torch.equal(inside.predict(X), outside.predict(X))
    assert torch.equal(inside.log.last().weight, outside.log.last().weight)


def test_other_types_are_converted_as_they_are_read(tmp_path, small_parts):
    X, y = integers(5, count=900)
    inside, _ = fit(X, y, dtype=torch.float32)
    for dtype in (np.float32, np.float64, np.int64):
        assert inside.log.equals(fit(mapped(tmp_path, X, dtype), y, dtype=torch.float32)[0].log)


def test_shuffled_goes_part_by_part_and_says_so(tmp_path, small_parts):
    X, y = integers(6, count=500)
    X = mapped(tmp_path, X)
    with pytest.warns(UserWarning, match="shuffles the chunks, and the samples within each chunk"):
        run = tp.RuleTrainer(order="shuffled", seed=3).start(tp.Perceptron(5).double(), X, y)
    chunks = [torch.from_numpy(chunk) for chunk in run.order.epoch(0)]
    seen = torch.cat(chunks)
    assert torch.equal(seen.sort().values, torch.arange(500))
    assert {(int(chunk.min()) // 102, int(chunk.max()) // 102) for chunk in chunks} == {(k, k) for k in range(5)}
    assert any(not torch.equal(chunk, chunk.sort().values) for chunk in chunks)
    again = tp.RuleTrainer(order=seen.tolist(), max_epochs=1).fit(tp.Perceptron(5).double(), np.array(X), y)
    with pytest.warns(UserWarning, match="shuffles the chunks"):
        once = tp.RuleTrainer(order="shuffled", seed=3, max_epochs=1).fit(tp.Perceptron(5).double(), X, y)
    assert once.log.equals(again.log)


def test_a_number_that_is_not_finite_is_named_with_its_row(tmp_path, small_parts):
    X, y = integers(7, count=500)
    X[321, 4] = np.nan
    with pytest.raises(ValueError, match=r"X\[321, 4\] = nan"):
        fit(mapped(tmp_path, X), y)
    pieces = [sp.csr_array(np.nan_to_num(X[:200])), sp.csr_array(X[200:])]
    with pytest.raises(ValueError, match=r"X\[321, 4\] = nan"):
        fit(CsrParts(pieces), y)


@pytest.mark.parametrize("classes", [None, 3])
def test_csr_pieces_give_the_log_of_one_matrix(tmp_path, classes):
    X, y = integers(9, count=600, classes=classes)
    paths = []
    for number, part in enumerate(np.split(X, [150, 151, 480])):
        paths.append(tmp_path / f"part{number}.npz")
        sp.save_npz(paths[-1], sp.csr_matrix(part))
    inside, net = fit(sp.csr_array(X), y, classes)
    for pieces in (paths, [sp.load_npz(path) for path in paths]):
        outside, copy = fit(CsrParts(pieces), y, classes)
        assert inside.log.equals(outside.log)
        assert torch.equal(net.weight, copy.weight)
        assert torch.equal(outside.log.last().weight, copy.weight)


def test_pieces_that_do_not_fit_are_refused(tmp_path):
    with pytest.raises(ValueError, match="different numbers of features: 2, 3"):
        CsrParts([sp.csr_array((1, 2)), sp.csr_array((1, 3))])
    with pytest.raises(ValueError, match="must be a list"):
        CsrParts([])
    (tmp_path / "x.npz").write_bytes(b"no matrix")
    with pytest.raises(ValueError, match=r"x\.npz is not a sparse matrix"):
        CsrParts([tmp_path / "x.npz"])
    with pytest.raises(FileNotFoundError):
        CsrParts([tmp_path / "y.npz"])


READERS = {  # bytes of a chunk, what reads 400 MB, and how many MB may be in memory
    "rule": (2**26, "tp.RuleTrainer(max_epochs=1).fit(tp.Perceptron(100).double(), X, y)", 230),
    "prepared": (
        2**22,
        "table = tp.data.Dataset(X, torch.from_numpy(y), ('a', 'b'), tuple(map(str, range(100))))\n"
        "made = tp.data.PreparedData(table, None, (0.8, 0.2, 0.0), 'standard', dtype='float64')\n"
        "made.parts; made.digest",
        50,
    ),
}


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
@pytest.mark.parametrize("reader", READERS)
def test_what_has_been_read_does_not_stay_in_memory(tmp_path, reader):
    """A file of 400 MB in a process of its own, whose resident memory is looked at as it reads."""
    rows, width = 500_000, 100
    X = np.lib.format.open_memmap(tmp_path / "X.npy", mode="w+", dtype=np.float64, shape=(rows, width))
    rng = np.random.default_rng(0)
    for start in range(0, rows, 50_000):
        X[start : start + 50_000] = rng.integers(-3, 4, size=(50_000, width))
    X.flush()
    chunk, work, most = READERS[reader]
    code = (
        "import numpy as np, torch, torchperc as tp\n"
        f"import torchperc.samples.mapped as module; module.CHUNK = {chunk}; torch.set_num_threads(1)\n"
        f"mapped, work = np.load({str(tmp_path / 'X.npy')!r}, mmap_mode='r'), {work!r}\n"
        "y = np.ones(len(mapped), dtype=np.int64); y[::2] = -1\n"
        "exec(work, {'X': np.array(mapped[:1000]), 'y': y[:1000], 'tp': tp, 'torch': torch})\n"
        "def resident(what):\n"
        "    return next(int(line.split()[1]) for line in open('/proc/self/status') if line.startswith(what)) / 1024\n"
        "open('/proc/self/clear_refs', 'w').write('5')\n"
        "before = resident('VmRSS')\n"
        "exec(work, {'X': mapped, 'y': y, 'tp': tp, 'torch': torch})\n"
        "print(resident('VmHWM') - before)\n"
    )
    env = os.environ | {"MALLOC_MMAP_THRESHOLD_": "65536"}  # which gives large blocks back at once
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=env)
    assert float(done.stdout) < most
