"""Sparse samples, and samples larger than memory, from end to end: the same numbers as dense ones in memory."""

import itertools
import tempfile
import warnings
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import pytorch_lightning as pl
import scipy.sparse as sp
import torch

import torchperc as tp
from torchperc.data import CsrParts, Dataset, PreparedData, Scaler, split
from torchperc.descent.sgd import descend
from torchperc.samples import convert
from torchperc.samples.mapped import Chunked

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


BAD = [
    (lambda n, x, y: n.predict(x), "net", lambda x: sp.csr_array(x.numpy()), TypeError, "found csr_array"),
    (tp.RuleTrainer().fit, "net", lambda x: x.to_sparse_csr(), ValueError, r"X\[7, 3\] = nan is not a finite number"),
    (tp.RuleTrainer().fit, "narrow", lambda x: x.to_sparse_csr(), ValueError, "X has 6 features but 5 are needed"),
    (tp.RuleTrainer().fit, "net", lambda x: x.bfloat16().to_sparse_csr(), TypeError, r"dtype torch\.bfloat16"),
    (tp.RuleTrainer().fit, "net", lambda x: x.to(torch.complex64).to_sparse(), TypeError, r"dtype torch\.complex64"),
    (
        lambda n, x, y: n(x),
        "net",
        lambda x: x.float().to_sparse(),
        TypeError,
        r"x is torch\.float32 .* weight is torch\.float64",
    ),
    (lambda n, x, y: n(x), "narrow", lambda x: x.to_sparse_csr(), ValueError, r"\(400, 6\) but \(N, 5\) is needed"),
    (lambda n, x, y: n(x), "joint", lambda x: x.to_sparse_csr(), TypeError, "joint features"),
    (
        lambda n, x, y: convert.features(x, dtype=x.dtype),
        "net",
        lambda x: x.to_sparse(),
        TypeError,
        "X is a sparse tensor",
    ),
]


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta")
@pytest.mark.parametrize(("call", "kind", "make", "error", "text"), BAD)
def test_bad_sparse_tensors_are_named(call, kind, make, error, text):
    X, y = numbers()
    X[7, 3] = np.nan
    given = {"net": net, "narrow": lambda: net(width=5), "joint": lambda: tp.JointPerceptron(6, 3).double()}[kind]()
    with pytest.raises(error, match=text):
        call(given, make(torch.tensor(X)), y)


# --- data sets ----------------------------------------------------------------------------------------------------


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


def test_a_number_that_is_not_finite_is_named_where_it_is_read(tmp_path):
    X, _ = numbers()
    X[321, 4] = np.nan
    for kind in ("mapped", "pieces"):
        with pytest.raises(ValueError, match=r"X\[321, 4\] = nan"):
            Scaler.fit("maxabs", kept(kind, X, tmp_path))
    with pytest.raises(TypeError, match=r"use torchperc\.data\.PreparedData"):
        Scaler("maxabs", torch.zeros(6), torch.ones(6)).transform(kept("mapped", X, tmp_path))


# --- partitions ---------------------------------------------------------------------------------------------------


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


# --- loaders ------------------------------------------------------------------------------------------------------


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


# --- modules ------------------------------------------------------------------------------------------------------


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
        lit, run = make(net(classes)), trainer(4)
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
        dataset(kind, tmp_path, encoder=columns((0.5,) * 6)),
        dataset(kind, tmp_path, y=-y, encoder=columns()),
    ):
        with pytest.raises(ValueError, match="not the data the checkpoint was made on"):
            module(other).load_state_dict(state)
    if kind == "mapped":  # the same numbers in memory are the same data
        assert module(dataset("dense", tmp_path, encoder=columns())).state_dict()["data"] == state["data"]
