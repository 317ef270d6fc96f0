"""Sparse samples, and samples larger than memory, from end to end: the same numbers as dense ones in memory."""

import itertools
import os
import subprocess
import sys
import tempfile
import warnings
from functools import partial
from pathlib import Path

import numpy as np
import plain
import pytest
import pytorch_lightning as pl
import scipy.sparse as sp
import torch
from refusals import refusals
from test_engines import integers

import torchperc as tp
from torchperc.data import CsrParts, Dataset, PreparedData, Scaler, split
from torchperc.descent.sgd import descend
from torchperc.samples import convert
from torchperc.samples.mapped import Chunked

L = tp.lightning
pytestmark = pytest.mark.filterwarnings(*plain.CHATTER, "ignore:X is larger than memory")
KINDS = ["csr", "mapped", "pieces"]


@pytest.fixture(autouse=True)
def small_parts(monkeypatch):
    monkeypatch.setattr("torchperc.samples.mapped.CHUNK", 2**12)  # 85 rows of 6 float64, 170 of float32


def numbers(count=400, width=6, classes=None, seed=0):
    """Whole numbers, most of them 0, so that sums are exact; labels that no hyperplane gets all right."""
    rng = np.random.default_rng(seed)
    X = rng.integers(-4, 5, (count, width)) * (rng.random((count, width)) < 0.4).astype(float)
    X[0] = 0  # a row without any entry
    if classes is None:
        return X, np.where(X[:, 0] - X[:, 1] + rng.normal(0, 1, count) > 0, 1, -1)
    return X, (X[:, :classes] + rng.normal(0, 1, (count, classes))).argmax(1)


def kept(kind, X, tmp_path):
    """The same samples as a data set may hold them."""
    if kind == "dense":
        return torch.tensor(X)
    if kind == "csr":
        return sp.csr_array(X)
    tmp_path = Path(tempfile.mkdtemp(dir=tmp_path))
    if kind == "pieces":
        paths = [tmp_path / f"{i}.npz" for i in range(4)]
        for path, piece in zip(paths, np.split(X, [90, 91, 260]), strict=True):
            sp.save_npz(path, sp.csr_array(piece))
        return CsrParts(paths)
    np.save(tmp_path / "X.npy", X)
    return np.load(tmp_path / "X.npy", mmap_mode="r")


def dataset(kind, tmp_path, classes=None, X=None, y=None, **options):
    made, codes = numbers(classes=classes)
    X, y = made if X is None else X, codes if y is None else y
    labels = ("no", "yes") if classes is None else tuple("abc"[:classes])
    names = tuple(f"f{j}" for j in range(X.shape[1]))
    return Dataset(kept(kind, X, tmp_path), torch.tensor(y), labels, names, **options)


def module(table, **options):
    data = L.TabularDataModule("given.npy", **{"split": (0.7, 0.2, 0.1), "dtype": "float64", **options})
    data.__dict__["dataset"] = table
    return data


def array(X):
    if isinstance(X, Chunked):
        return X.dense().numpy()
    if isinstance(X, CsrParts):
        return np.concatenate([X.load(n).toarray() for n in range(len(X.pieces))])
    return X.toarray() if sp.issparse(X) else np.asarray(X)


def net(classes=None, width=6):
    return (tp.Perceptron(width) if classes is None else tp.MulticlassPerceptron(width, classes)).double()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("make", [torch.Tensor.to_sparse_csr, torch.Tensor.to_sparse], ids=["csr", "coo"])
@pytest.mark.parametrize("classes", [None, 3])
def test_scores_of_sparse_tensors_and_their_gradients(classes, make, dtype):
    X, y = numbers(classes=classes)
    dense, labels = torch.tensor(X, dtype=dtype), torch.tensor(y)
    nets = [net(classes).to(dtype) for _ in range(2)]
    for one in nets:
        one.load_state_dict({"weight": torch.arange(6.0).expand(classes or 1, 6), "bias": torch.ones(classes or 1)})
    for one, x in zip(nets, (dense, make(dense)), strict=True):
        tp.LogisticHead().loss(one(x), labels).backward()
    assert torch.equal(nets[0](dense), nets[1](make(dense)))  # whole numbers
    for ours, theirs in zip(nets[1].parameters(), nets[0].parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-5 if dtype == torch.float32 else 1e-13, atol=1e-6)
    assert torch.equal(nets[0].predict(dense), nets[1].predict(make(dense)))


@pytest.mark.parametrize("classes", [None, 3])
def test_the_rule_and_descent_take_sparse_tensors(classes):
    X, y = numbers(classes=classes)
    for samples in (convert.csr_tensor(sp.csr_array(X)), torch.tensor(X).to_sparse()):
        nets = [net(classes) for _ in range(2)]
        logs = [tp.RuleTrainer(max_epochs=5).fit(n, x, y).log for n, x in zip(nets, (X, samples), strict=True)]
        assert len(logs[0]) == len(logs[1]) > 50
        assert torch.equal(nets[0].weight, nets[1].weight)
        assert logs[0].equals(logs[1])
        stepped = [net(classes) for _ in range(2)]
        for n, x in zip(stepped, (torch.tensor(X), samples), strict=True):
            descend(n, tp.PerceptronHead(), x, torch.tensor(y), lr=1.0)
        assert torch.equal(stepped[0].weight, stepped[1].weight)
    assert tp.theory.radius(X) == tp.theory.radius(samples)


def with_a_gap():
    X, y = numbers()
    X[7, 3] = np.nan
    return torch.tensor(X), y


def learned(make, width=6):
    X, y = with_a_gap()
    tp.RuleTrainer().fit(net(width=width), make(X), y)


def scores(make, of=net):
    return of()(make(with_a_gap()[0]))


csr, coo = torch.Tensor.to_sparse_csr, torch.Tensor.to_sparse
test_bad_sparse_tensors_are_named = refusals(
    (lambda: net().predict(sp.csr_array(with_a_gap()[0].numpy())), TypeError, "found csr_array"),
    (lambda: learned(csr), ValueError, r"X\[7, 3\] = nan is not a finite number"),
    (lambda: learned(csr, width=5), ValueError, "X has 6 features but 5 are needed"),
    (lambda: learned(lambda x: csr(x.bfloat16())), TypeError, r"dtype torch\.bfloat16"),
    (lambda: learned(lambda x: coo(x.to(torch.complex64))), TypeError, r"dtype torch\.complex64"),
    (lambda: scores(lambda x: coo(x.float())), TypeError, r"x is torch\.float32 .* weight is torch\.float64"),
    (lambda: scores(csr, lambda: net(width=5)), ValueError, r"\(400, 6\) but \(N, 5\) is needed"),
    (lambda: scores(csr, lambda: tp.JointPerceptron(6, 3).double()), TypeError, "joint features"),
    (lambda: convert.features(coo(with_a_gap()[0]), dtype=torch.float64), TypeError, "X is a sparse tensor"),
)


def test_what_a_data_set_refuses(tmp_path):
    X, y = numbers()
    bad = X.copy()
    bad[5, 2] = np.inf
    with pytest.raises(ValueError, match=r"X\[5, 2\] = inf"):
        dataset("csr", tmp_path, X=bad)
    np.save(tmp_path / "whole.npy", X.astype(np.int32))
    with pytest.raises(TypeError, match="int32; float32 or float64 is needed"):
        Dataset.of(np.load(tmp_path / "whole.npy", mmap_mode="r"), y)
    with pytest.raises(ValueError, match="y has 3 values for 400 samples"):
        dataset("csr", tmp_path, y=y[:3])


def test_a_number_that_is_not_finite_is_named_where_it_is_read(tmp_path):
    X, y = numbers()
    X[321, 4] = np.nan
    for kind, read in itertools.product(
        ("mapped", "pieces"), (lambda X: Scaler.fit("maxabs", X), lambda X: tp.RuleTrainer().fit(net(), X, y))
    ):
        with pytest.raises(ValueError, match=r"X\[321, 4\] = nan"):
            read(kept(kind, X, tmp_path))
    with pytest.raises(TypeError, match=r"use torchperc\.data\.PreparedData"):
        Scaler("maxabs", torch.zeros(6), torch.ones(6)).transform(kept("mapped", X, tmp_path))


def test_sparse_samples_are_not_shifted_and_mapped_ones_not_copied(tmp_path):
    for kind, scaling in itertools.product(("csr", "pieces"), ("minmax", "standard")):
        with pytest.raises(ValueError, match="use scale='maxabs'"):
            Scaler.fit(scaling, kept(kind, numbers()[0], tmp_path))
        with pytest.raises(ValueError, match="use scale='maxabs'"):
            PreparedData(dataset(kind, tmp_path), scale=scaling).parts  # noqa: B018
    table = dataset("mapped", tmp_path)
    made = PreparedData(table, None, (1, 0, 0), dtype="float64")
    assert made.parts[0][0] is table.X
    assert [tuple(X.shape) for X, _ in made.parts] == [(400, 6), (0, 6), (0, 6)]


def columns(imputed=None):
    return tp.data.TableEncoder(tuple(map(tp.data.Column, "abcdef")), "y", ("-1", "+1"), imputed)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("kind", KINDS)
def test_partitions_are_those_of_memory(kind, dtype, tmp_path):
    for scaling in ("maxabs", "none", *(("minmax", "standard") if kind == "mapped" else ())):
        here, there = (
            PreparedData(table, None, (0.7, 0.3, 0.0), scaling, dtype=str(dtype)[6:])
            for table in (dataset(k, tmp_path) for k in ("dense", kind))
        )
        assert there.encoder is None
        for (X, y), (Z, labels) in zip(here.parts, there.parts, strict=True):
            assert torch.equal(y, labels)
            assert array(Z).dtype == array(X).dtype
            assert array(Z).shape == array(X).shape
            np.testing.assert_allclose(array(Z), array(X), rtol=1e-6 if dtype == torch.float32 else 1e-13, atol=1e-13)
            if scaling in ("none", "maxabs", "minmax"):
                assert np.array_equal(array(Z), array(X))
        wanted = {"csr": sp.csr_array, "mapped": np.memmap, "pieces": CsrParts}[kind]
        assert isinstance(there.parts[0][0], wanted)
        fits = Scaler.fit(scaling, here.dataset.X), Scaler.fit(scaling, there.dataset.X)
        torch.testing.assert_close(*(each.scale for each in fits), rtol=1e-13, atol=1e-13)
        torch.testing.assert_close(*(each.shift for each in fits), rtol=1e-13, atol=1e-13)
        np.testing.assert_allclose(array(there.all_samples()), array(here.all_samples()), rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize("kind", ["dense", *KINDS])
def test_gaps_are_filled_with_the_means_of_the_training_part(kind, tmp_path):
    X, y = numbers()
    train, val, test = split(y, (0.7, 0.2, 0.1))
    holes = np.zeros(X.shape, dtype=bool)
    rng = np.random.default_rng(1)
    holes[rng.integers(0, 400, 60), rng.integers(0, 5, 60)] = True
    holes[train, 3] = True  # no training sample has this one
    known = np.where(holes, np.nan, X)
    over_all = np.nanmean(known, axis=0)
    filled = np.where(holes, over_all, X)
    gaps = torch.tensor(np.argwhere(holes)[::-1].copy())
    encoder = columns(tuple(over_all))
    table = dataset(kind, tmp_path, X=filled, y=y, missing_positions=gaps, encoder=encoder)
    made = PreparedData(table, None, (0.7, 0.2, 0.1), "maxabs", dtype="float64")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        means = np.nanmean(known[train], axis=0)
    means[3] = 0
    wanted = np.where(holes, means, X)
    np.testing.assert_allclose(made.encoder.imputed_values, means, rtol=1e-13)
    scale = np.abs(wanted[train]).max(0)
    scale[3] = 1
    for (Z, _), index in zip(made.parts, (train, val, test), strict=True):
        np.testing.assert_allclose(array(Z), (wanted / scale)[index], rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(array(made.all_samples()), wanted / scale, rtol=1e-12, atol=1e-13)
    assert np.array_equal(array(table.X), filled)  # the source is left as it is


def test_parts_on_disk_go_away_with_the_last_who_needs_them(tmp_path, monkeypatch):
    cache = tmp_path / "cache"
    cache.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(cache))
    for kind in ("mapped", "pieces"):
        table = dataset(kind, tmp_path)
        made = PreparedData(table, scale="maxabs")
        X, want = made.parts[0][0], array(made.parts[0][0]).copy()
        assert list(cache.glob(".torchperc-cache-*"))
        del made
        assert np.array_equal(array(X), want)
        del X
        assert not list(cache.glob(".torchperc-cache-*"))


def batches(loader):
    return [(array(x.to_dense()), y) for x, y in loader]


@pytest.mark.parametrize("kind", KINDS)
def test_a_loader_goes_on_in_the_middle_of_an_epoch(kind, tmp_path):
    X, y = numbers()
    X[:, 0] = np.arange(1, 401)

    def make():
        return L.SliceLoader(kept(kind, X, tmp_path), torch.tensor(y), 90, "shuffled", seed=2)

    loader = make()
    seen = [x[:, 0].tolist() for _ in range(2) for x, _ in batches(loader)]
    for stop in (3, 5, 7):
        first, second, taken = make(), make(), []
        while len(taken) < stop:
            for x, _ in first:
                taken.append(x.to_dense()[:, 0].tolist())
                if len(taken) == stop:
                    break
        second.load_state_dict(first.state_dict())
        while len(taken) < 10:
            taken += [x[:, 0].tolist() for x, _ in batches(second)]
        assert taken == seen


@pytest.mark.parametrize(
    ("kind", "order"), [*((kind, "given") for kind in KINDS), ("csr", "shuffled"), ("pieces", "shuffled")]
)
def test_batches_are_in_the_order_of_the_rule(kind, order, tmp_path):
    X, y = np.arange(400.0)[:, None] * np.ones(6) + 1, numbers()[1]
    samples = kept(kind, X, tmp_path)
    loader = L.SliceLoader(samples, torch.tensor(y), 37, order, seed=5)
    run = tp.RuleTrainer(order=order, seed=5).start(net(), samples, y)
    for _ in range(3):
        ids = np.concatenate(list(run.order.epoch(0)))
        found = batches(loader)
        assert np.array_equal(np.concatenate([x for x, _ in found]), X[ids])
        assert np.array_equal(torch.cat([labels for _, labels in found]), y[ids])
    assert len(loader) == 11
    assert next(iter(loader))[0].layout == (torch.strided if kind == "mapped" else torch.sparse_csr)
    with pytest.raises(ValueError, match="y has 3 values for 400 samples"):
        L.SliceLoader(samples, torch.ones(3))


@pytest.mark.slow
@pytest.mark.parametrize("classes", [None, 3])
@pytest.mark.parametrize(
    "make",
    [
        *(partial(L.LitRule, select=select) for select in ("last", "averaged", "best-validation")),
        *(partial(L.LitClassifier, head="logistic", lr=0.2, update=update) for update in ("batch", "sample")),
    ],
)
def test_csr_samples_under_a_trainer_are_those_of_memory(make, classes, tmp_path):
    results = []
    for kind, size in (("dense", "full"), ("csr", "full"), ("dense", 50), ("csr", 50)):
        if size == 50 and make.func is L.LitRule:
            continue
        data = module(dataset(kind, tmp_path, classes), batch_size=size, scale="maxabs")
        lit, run = make(net(classes)), pl.Trainer(max_epochs=4, **plain.QUIET)
        run.fit(lit, data)
        figures = {name: float(value) for name, value in run.callback_metrics.items()}
        predicted = torch.cat(run.predict(lit, data))
        results.append((lit.net, figures, predicted, run.test(lit, data, verbose=False)[0], run.global_step))
    for here, there in zip(results[::2], results[1::2], strict=True):
        torch.testing.assert_close(here[0].weight, there[0].weight, rtol=1e-10, atol=1e-12)
        torch.testing.assert_close(here[0].bias, there[0].bias, rtol=1e-10, atol=1e-12)
        assert there[1] == pytest.approx(here[1], rel=1e-9)
        assert torch.equal(here[2], there[2])
        assert there[3] == pytest.approx(here[3], rel=1e-6)
        assert here[4] == there[4]


@pytest.mark.parametrize("kind", KINDS)
def test_a_data_module_knows_its_data_again(kind, tmp_path):
    data = module(dataset(kind, tmp_path, encoder=columns()))
    state = data.state_dict()
    assert state["encoding"]["imputed_values"] == data.encoder.imputed_values
    module(dataset(kind, tmp_path, encoder=columns())).load_state_dict(state)
    X, y = numbers()
    X[399, 5] += 1
    for other in (
        dataset(kind, tmp_path, X=X, encoder=columns()),
        dataset(kind, tmp_path, encoder=columns((0.5,) * 6)),
        dataset(kind, tmp_path, y=-y, encoder=columns()),
    ):
        with pytest.raises(ValueError, match="not the data the checkpoint was made on"):
            module(other).load_state_dict(state)
    if kind == "mapped":  # the same numbers in memory are the same data
        assert module(dataset("dense", tmp_path, encoder=columns())).state_dict()["data"] == state["data"]


def fit(X, y, classes=None, dtype=torch.float64, **options):
    given = net(classes, width=5).to(dtype)
    return tp.RuleTrainer(**{"max_epochs": 4, **options}).fit(given, X, y), given


@pytest.mark.parametrize("engine", ["reference", "compiled"])
@pytest.mark.parametrize("classes", [None, 3])
def test_a_mapped_file_gives_the_log_of_memory(tmp_path, classes, engine):
    X, y = integers(1, count=700, classes=classes)
    inside, net = fit(X, y, classes, engine=engine)
    outside, copy = fit(kept("mapped", X, tmp_path), y, classes, engine=engine)
    assert isinstance(outside.log.problem.samples, Chunked)
    assert inside.log.equals(outside.log)
    assert torch.equal(net.weight, copy.weight)


@pytest.mark.parametrize("select", ["averaged", "voted", "pocket"])
def test_every_model_of_the_log_is_the_same(tmp_path, select):
    X, y = integers(2, count=500)
    (inside, net), (outside, copy) = fit(X, y, select=select), fit(kept("mapped", X, tmp_path), y, select=select)
    torch.testing.assert_close(net.weight, copy.weight, rtol=1e-14, atol=1e-14)
    assert torch.equal(inside.predict(X), outside.predict(X))
    assert torch.equal(inside.log.last().weight, outside.log.last().weight)


def test_other_types_are_converted_as_they_are_read(tmp_path):
    X, y = integers(5, count=900)
    inside, _ = fit(X, y, dtype=torch.float32)
    for dtype in (np.float32, np.float64, np.int64):
        assert inside.log.equals(fit(kept("mapped", X.astype(dtype), tmp_path), y, dtype=torch.float32)[0].log)


def test_shuffled_goes_part_by_part_and_says_so(tmp_path):
    X, y = integers(6, count=500)
    X = kept("mapped", X, tmp_path)
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
