"""Sparse samples, and samples larger than memory, from end to end: the same numbers as dense ones in memory."""

import os
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

import numpy as np
import pytest
import pytorch_lightning as pl
import scipy.sparse as sp
import torch
from torch import nn

import torchperc as tp
from torchperc.data import CsrParts, Dataset, Identity, MaxAbs, MinMax, PreparedData, Standard, split
from torchperc.descent.sgd import descend
from torchperc.samples import convert
from torchperc.samples.mapped import Chunked
from torchperc.samples.rows import Sparse

L = tp.lightning
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*LeafSpec.*"),
    pytest.mark.filterwarnings("ignore:You defined a `validation_step` but have no"),
    pytest.mark.filterwarnings("ignore:Total length of `list` across ranks is zero"),
    pytest.mark.filterwarnings("ignore:The number of training batches"),
    pytest.mark.filterwarnings("ignore:You called `self.log"),
    pytest.mark.filterwarnings("ignore:X is larger than memory"),
]
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


def trainer(epochs, **options):
    L.quiet()
    settings = {"accelerator": "cpu", "logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    return pl.Trainer(max_epochs=epochs, num_sanity_val_steps=0, enable_checkpointing=False, **settings, **options)


def fitted(lit, data, epochs=4):
    run = trainer(epochs)
    run.fit(lit, data)
    return run


def net(classes=None, width=6):
    return (tp.Perceptron(width) if classes is None else tp.MulticlassPerceptron(width, classes)).double()


# --- sparse tensors -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("make", [torch.Tensor.to_sparse_csr, torch.Tensor.to_sparse], ids=["csr", "coo"])
@pytest.mark.parametrize("classes", [None, 3])
@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta")
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


def test_an_mlp_takes_sparse_samples():
    X, _ = numbers()
    x = torch.tensor(X)
    mlps = [tp.MLP(6, (4,), seed=1, dtype=torch.float64) for _ in range(2)]
    for mlp, samples in zip(mlps, (x, convert.csr_tensor(sp.csr_array(X))), strict=True):
        mlp(samples).square().sum().backward()
    for ours, theirs in zip(mlps[1].parameters(), mlps[0].parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-12, atol=1e-12)
    linear = tp.MLP(6, (), seed=1, dtype=torch.float64)
    torch.testing.assert_close(linear(convert.csr_tensor(sp.csr_array(X))), linear(x))


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("classes", [1, 3])
def test_combinations_of_samples_are_exact_for_integers(classes, dtype):
    X, _ = numbers(count=400)
    rng = np.random.default_rng(1)
    coefs = rng.integers(-5, 6, (400, classes)) * (rng.random((400, classes)) < 0.5).astype(float)
    combined = Sparse(sp.csr_array(X.astype(dtype))).weighted_sum(torch.from_numpy(coefs))
    assert combined.dtype == torch.float64
    assert torch.equal(combined, torch.from_numpy(coefs.T @ X))


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


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta")
def test_bad_sparse_tensors_are_named():
    X, y = numbers()
    bad = X.copy()
    bad[7, 3] = np.nan
    with pytest.raises(ValueError, match=r"X\[7, 3\] = nan is not a finite number"):
        tp.RuleTrainer().fit(net(), torch.tensor(bad).to_sparse_csr(), y)
    with pytest.raises(ValueError, match="X has 6 features but 5 are needed"):
        tp.RuleTrainer().fit(net(width=5), torch.tensor(X).to_sparse_csr(), y)
    with pytest.raises(TypeError, match=r"found dtype torch\.bfloat16"):
        tp.RuleTrainer().fit(net(), torch.tensor(X).bfloat16().to_sparse_csr(), y)
    with pytest.raises(TypeError, match=r"found dtype torch\.complex64"):
        tp.RuleTrainer().fit(net(), torch.tensor(X).to(torch.complex64).to_sparse(), y)
    with pytest.raises(TypeError, match=r"x is torch\.float32 on cpu but weight is torch\.float64"):
        net()(torch.tensor(X).float().to_sparse_csr())
    with pytest.raises(ValueError, match=r"\(400, 6\) but \(N, 5\) is needed"):
        net(width=5)(torch.tensor(X).to_sparse_csr())
    with pytest.raises(TypeError, match="X is a sparse tensor, which is not accepted here"):
        convert.features(torch.tensor(X).to_sparse(), dtype=torch.float64)
    with pytest.raises(TypeError, match="joint features"):
        tp.JointPerceptron(6, 3, dtype=torch.float64)(torch.tensor(X).to_sparse_csr())


# --- data sets ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["dense", *KINDS])
def test_a_data_set_of_every_kind(kind, tmp_path):
    table = dataset(kind, tmp_path, classes=3)
    X, y = numbers(classes=3)
    assert np.array_equal(array(table.X), X)
    assert table.X.shape == (400, 6)
    two = table.against_rest("b")
    assert two.labels == ("not b", "b")
    assert np.array_equal(two.y, np.where(y == 1, 1, -1))
    assert two.decode(two.y[:3]) == ["b" if k == 1 else "not b" for k in y[:3]]
    made = Dataset.of(kept(kind, X, tmp_path), y, name="t")
    assert made.labels == ("0", "1", "2")
    assert torch.equal(made.y, torch.tensor(y))


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


# --- scaling ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("scaler", [MaxAbs(), MinMax(), Standard(), Identity()], ids=lambda s: s.kind)
def test_scalers_have_the_statistics_of_memory(scaler, kind, tmp_path):
    X, _ = numbers()
    X[:, 4] = 0
    rows = torch.arange(3, 400, 3)
    if kind != "mapped" and scaler.kind in ("minmax", "standard"):
        with pytest.raises(ValueError, match="use scale='maxabs'"):
            scaler.fit(kept(kind, X, tmp_path))
        return
    for chosen in (None, rows):
        here = scaler.fit(torch.tensor(X) if chosen is None else torch.tensor(X)[chosen])
        there = scaler.fit(kept(kind, X, tmp_path), chosen)
        torch.testing.assert_close(there.shift, here.shift, rtol=1e-13, atol=1e-13)
        torch.testing.assert_close(there.scale, here.scale, rtol=1e-13, atol=1e-13)


def test_a_number_that_is_not_finite_is_named_where_it_is_read(tmp_path):
    X, _ = numbers()
    X[321, 4] = np.nan
    for kind in ("mapped", "pieces"):
        with pytest.raises(ValueError, match=r"X\[321, 4\] = nan"):
            MaxAbs().fit(kept(kind, X, tmp_path))
    with pytest.raises(TypeError, match=r"use torchperc\.data\.PreparedData"):
        MaxAbs(torch.zeros(6), torch.ones(6)).transform(kept("mapped", X, tmp_path))


# --- partitions ---------------------------------------------------------------------------------------------------


def columns(imputed=None, missing="mean"):
    return tp.data.TableEncoder(tuple(map(tp.data.Column, "abcdef")), "y", ("-1", "+1"), missing, imputed)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("kind", KINDS)
def test_partitions_are_those_of_memory(kind, dtype, tmp_path):
    for scaler in (MaxAbs(), Identity(), *((MinMax(), Standard()) if kind == "mapped" else ())):
        here, there = (
            PreparedData(table, None, (0.7, 0.3, 0.0), scaler.kind, dtype=str(dtype)[6:])
            for table in (dataset(k, tmp_path) for k in ("dense", kind))
        )
        assert there.encoder is None
        for (X, y), (Z, labels) in zip(here.parts, there.parts, strict=True):
            assert torch.equal(y, labels)
            assert array(Z).dtype == array(X).dtype
            assert array(Z).shape == array(X).shape
            np.testing.assert_allclose(array(Z), array(X), rtol=1e-6 if dtype == torch.float32 else 1e-13, atol=1e-13)
            if scaler.kind in ("none", "maxabs", "minmax"):
                assert np.array_equal(array(Z), array(X))
        wanted = {"csr": sp.csr_array, "mapped": np.memmap, "pieces": CsrParts}[kind]
        assert isinstance(there.parts[0][0], wanted)
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
    means[3] = over_all[3]
    wanted = np.where(holes, means, X)
    np.testing.assert_allclose(made.encoder.imputed_values, means, rtol=1e-13)
    scale = np.abs(wanted[train]).max(0)
    for (Z, _), index in zip(made.parts, (train, val, test), strict=True):
        np.testing.assert_allclose(array(Z), (wanted / scale)[index], rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(array(made.all_samples()), wanted / scale, rtol=1e-12, atol=1e-13)
    assert np.array_equal(array(table.X), filled)  # the source is left as it is


def test_an_encoding_has_training_means_even_where_nothing_is_missing(tmp_path):
    X, y = numbers()
    table = dataset("dense", tmp_path, encoder=columns())
    assert PreparedData(table).encoder.imputed_values == pytest.approx(X[split(y)[0]].mean(0))
    strict = dataset("dense", tmp_path, encoder=columns(missing="error"))
    assert PreparedData(strict).encoder.imputed_values is None


def test_parts_on_disk_go_away_with_the_last_who_needs_them(tmp_path, monkeypatch):
    cache = tmp_path / "cache"
    cache.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(cache))
    for kind in ("mapped", "pieces"):
        table = dataset(kind, tmp_path)
        made = PreparedData(table, scale="maxabs")
        X, want = made.train[0], array(made.train[0]).copy()
        assert list(cache.glob(".torchperc-cache-*"))
        del made
        assert np.array_equal(array(X), want)
        del X
        assert not list(cache.glob(".torchperc-cache-*"))


@pytest.mark.slow
def test_what_is_cut_and_scaled_does_not_stay_in_memory(tmp_path):
    """A file of 100 MB in a process of its own, whose resident memory is looked at."""
    if not sys.platform.startswith("linux"):
        pytest.skip("reads /proc")
    rows, width = 125_000, 100
    X = np.lib.format.open_memmap(tmp_path / "X.npy", mode="w+", dtype=np.float64, shape=(rows, width))
    for start in range(0, rows, 25_000):
        X[start : start + 25_000] = np.random.default_rng(start).normal(size=(25_000, width))
    X.flush()
    code = (
        "import numpy as np, torch, torchperc as tp\n"
        "from torchperc.samples import mapped\n"
        "mapped.CHUNK = 2**22; torch.set_num_threads(1)\n"
        f"X = np.load({str(tmp_path / 'X.npy')!r}, mmap_mode='r')\n"
        "y = torch.ones(len(X), dtype=torch.int64); y[::2] = -1\n"
        "table = tp.data.Dataset(X, y, ('a', 'b'), tuple(map(str, range(100))))\n"
        "def resident(what):\n"
        "    return next(int(line.split()[1]) for line in open('/proc/self/status') if line.startswith(what)) / 1024\n"
        "open('/proc/self/clear_refs', 'w').write('5')\n"
        "before = resident('VmRSS')\n"
        "made = tp.data.PreparedData(table, None, (0.8, 0.2, 0.0), 'standard', dtype='float64')\n"
        "made.parts; rows = mapped.chunked(X); rows.hash(y)\n"
        "print(type(made.parts[1][0]).__name__, resident('VmHWM') - before)\n"
    )
    # by default malloc keeps a varying amount of freed memory; a fixed threshold gives large blocks back at once
    env = os.environ | {"MALLOC_MMAP_THRESHOLD_": "65536"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=env)
    kind, megabytes = done.stdout.split()
    assert kind == "memmap"
    assert float(megabytes) < 50  # the file has 100, a part 4


def test_a_mapped_file_that_stays_as_it_is_is_not_copied(tmp_path):
    table = dataset("mapped", tmp_path)
    made = PreparedData(table, None, (1, 0, 0), dtype="float64")
    assert made.parts[0][0] is table.X
    assert [tuple(X.shape) for X, _ in made.parts] == [(400, 6), (0, 6), (0, 6)]


def test_sparse_samples_are_not_shifted(tmp_path):
    with pytest.raises(ValueError, match="use scale='maxabs'"):
        PreparedData(dataset("csr", tmp_path), scale="standard").parts  # noqa: B018


# --- loaders ------------------------------------------------------------------------------------------------------


def batches(loader):
    return [(array(x.to_dense()), y) for x, y in loader]


@pytest.mark.parametrize("size", [1, 37, 400])
@pytest.mark.parametrize("kind", KINDS)
def test_batches_are_those_of_memory(kind, size, tmp_path):
    X, y = numbers()
    here, there = (L.SliceLoader(kept(k, X, tmp_path), torch.tensor(y), size) for k in ("dense", kind))
    assert len(here) == len(there)
    for (x, labels), (z, codes) in zip(batches(here), batches(there), strict=True):
        assert np.array_equal(x, z)
        assert torch.equal(labels, codes)
    first = next(iter(there))[0]
    assert first.layout == (torch.strided if kind == "mapped" else torch.sparse_csr)


@pytest.mark.parametrize("kind", ["csr", "pieces"])
def test_shuffled_batches_are_in_the_order_of_the_rule(kind, tmp_path):
    X, y = np.arange(400.0)[:, None] * np.ones(6) + 1, numbers()[1]
    samples = kept(kind, X, tmp_path)
    loader = L.SliceLoader(samples, torch.tensor(y), 64, "shuffled", seed=5)
    run = tp.RuleTrainer(order="shuffled", seed=5).start(net(), samples, y)
    for _ in range(3):
        order = torch.from_numpy(np.concatenate(list(run.order.epoch(0))))
        found = batches(loader)
        assert np.array_equal(np.concatenate([x for x, _ in found])[:, 0] - 1, order)
        assert np.array_equal(torch.cat([labels for _, labels in found]), y[order])


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


def test_a_loader_compares_samples_and_labels():
    with pytest.raises(ValueError, match="y has 3 values for 2 samples"):
        L.SliceLoader(sp.csr_array((2, 2)), torch.ones(3))


# --- modules ------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("select", "classes"), [("last", None), ("averaged", 3), ("best-validation", None), ("best-validation", 3)]
)
@pytest.mark.parametrize("kind", ["csr"])
def test_the_rule_under_a_trainer(kind, select, classes, tmp_path):
    results = []
    for k in ("dense", kind):
        data = module(dataset(k, tmp_path, classes))
        lit = L.LitRule(net(classes), select=select)
        run = fitted(lit, data, epochs=5)
        figures = {name: float(value) for name, value in run.callback_metrics.items()}
        predicted = torch.cat(run.predict(lit, data))
        (tested,) = run.test(lit, data, verbose=False)
        results.append((lit, figures, predicted, tested))
    (here, known, labels, tested), (there, figures, found, judged) = results
    assert here.result.mistakes == there.result.mistakes > 50
    assert here.result.log.equals(there.result.log)
    torch.testing.assert_close(here.net.weight, there.net.weight, rtol=1e-12, atol=1e-12)
    assert figures == pytest.approx(known, rel=1e-10)
    assert torch.equal(labels, found)
    assert judged == pytest.approx(tested, rel=1e-6)
    assert {"theory/lower", "error/val"} <= set(figures)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("update", "size", "classes"),
    [("batch", "full", None), ("batch", "full", 3), ("batch", 50, None), ("sample", "full", 3), ("sample", 50, None)],
)
@pytest.mark.parametrize("kind", ["csr"])
def test_gradient_descent_under_a_trainer(kind, update, size, classes, tmp_path):
    results = []
    for k in ("dense", kind):
        data = module(dataset(k, tmp_path, classes), batch_size=size, scale="maxabs")
        lit = L.LitClassifier(net(classes), "logistic", lr=0.2, update=update)
        run = fitted(lit, data, epochs=3)
        figures = {name: float(value) for name, value in run.callback_metrics.items()}
        (tested,) = run.test(lit, data, verbose=False)
        results.append((lit, figures, torch.cat(run.predict(lit, data)), tested, run.global_step))
    (here, known, labels, tested, steps), (there, figures, found, judged, made) = results
    torch.testing.assert_close(here.net.weight, there.net.weight, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(here.net.bias, there.net.bias, rtol=1e-10, atol=1e-12)
    assert figures == pytest.approx(known, rel=1e-9)
    assert judged == pytest.approx(tested, rel=1e-6)
    assert torch.equal(labels, found)
    assert steps == made


def test_nn_linear_takes_sparse_batches(tmp_path):
    X, y = numbers(classes=3)
    weights = []
    for kind in ("dense", "csr"):
        layer = nn.Linear(6, 3, dtype=torch.float64)
        nn.init.zeros_(layer.weight)
        nn.init.zeros_(layer.bias)
        lit = L.LitClassifier(layer, "logistic", lr=0.1)
        trainer(3).fit(lit, L.SliceLoader(kept(kind, X, tmp_path), torch.tensor(y)))
        weights.append(layer.weight.detach())
    torch.testing.assert_close(weights[0], weights[1], rtol=1e-12, atol=1e-12)


# --- data modules, checkpoints, boards ----------------------------------------------------------------------------


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
        dataset(kind, tmp_path, encoder=columns(missing="error")),
        dataset(kind, tmp_path, y=-y, encoder=columns()),
    ):
        with pytest.raises(ValueError, match="not the data the checkpoint was made on"):
            module(other).load_state_dict(state)
    if kind == "mapped":  # the same numbers in memory are the same data
        assert module(dataset("dense", tmp_path, encoder=columns())).state_dict()["data"] == state["data"]
