"""Threads, processes and long lives: the same results side by side, after a fork, in a copy, and after many calls."""

import multiprocessing
import pickle
from concurrent.futures import ThreadPoolExecutor

import joblib
import numpy as np
import oracles
import plain
import pytest
import torch
from scipy.sparse import csr_array

import torchperc as tp

# few epochs are enough here
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
THREADS = 8
PATIENCE = 60  # seconds until a child that says nothing has hung, or died
WIDTH = 6
AND = tp.data.gate("AND")


def samples():
    rng = np.random.default_rng(0)
    w = rng.normal(size=WIDTH)
    X = rng.normal(size=(600, WIDTH))
    y = np.where(X @ w > 0, 1, -1)
    return X + 0.1 * y[:, None] * w, y


X, Y = samples()
SPARSE = csr_array(np.where(abs(X) > 0.7, X, 0.0))


def linear():
    return tp.Perceptron(WIDTH, dtype=torch.float64)


def by_rule(seed, engine="auto", X=X):
    result = tp.RuleTrainer(engine=engine, order="shuffled", seed=seed, max_epochs=12).fit(linear(), X, Y)
    return result.log.sample.numpy(), result.model.weight.numpy()


def by_estimator(seed, kind, **options):
    model = getattr(tp.sklearn, kind)(random_state=seed, **options).fit(X, Y)
    return model.coef_, model.predict(X)


def by_descent(seed):
    net, order = linear(), torch.randperm(len(X), generator=torch.Generator().manual_seed(seed))
    tp.descend(net, tp.LogisticHead(), torch.from_numpy(X), torch.from_numpy(Y), 0.01, order=order)
    return (net.weight.detach().numpy(),)


def by_minimising(seed):
    net = linear()
    tp.minimise(net, tp.LogisticHead(), X, np.roll(Y, seed), l2=0.1)
    return (net.weight.detach().numpy(),)


def theory(seed):
    best = tp.theory.max_margin(np.roll(X, seed, axis=1), Y)
    return (best.weight.numpy(), tp.theory.separability(X[:40], Y[:40]).verify())


JOBS = {
    "reference": lambda k: by_rule(k, "reference"),
    "compiled": lambda k: by_rule(k, "compiled"),
    "compiled, sparse": lambda k: by_rule(k, "compiled", SPARSE),
    "PerceptronClassifier": lambda k: by_estimator(k, "PerceptronClassifier", max_iter=12),
    "LogisticClassifier": lambda k: by_estimator(k, "LogisticClassifier", max_iter=5, update="sample"),
    "descend": by_descent,
    "minimise": by_minimising,
    "sweep": lambda k: (tp.sweep(X[:100], Y[:100], seeds=[k, k + 1], max_epochs=12).mistakes.numpy(),),
    "theory": theory,
}


def same(one, two):
    return len(one) == len(two) and all(np.array_equal(a, b) for a, b in zip(one, two, strict=True))


@pytest.fixture
def _two_cores():
    """Two threads wherever there may be."""
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(1)


@pytest.mark.slow
@pytest.mark.usefixtures("_two_cores")
@pytest.mark.parametrize("name", JOBS)
def test_eight_threads_find_what_one_finds(name):
    one_by_one = [JOBS[name](seed) for seed in range(THREADS)]
    with ThreadPoolExecutor(THREADS) as pool:
        together = list(pool.map(JOBS[name], range(THREADS)))
    assert all(map(same, one_by_one, together))


def do_all():
    return {name: job(1) for name, job in JOBS.items()}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")  # Python 3.12 and later
@pytest.mark.usefixtures("_two_cores")
def test_a_fork_after_use_learns_the_same():
    """OpenMP's threads, numba's and our own do not survive a fork; a child must not wait for them."""
    before = do_all()
    torch.ones(300, 300) @ torch.ones(300, 300)  # torch's own pool is awake as well
    with multiprocessing.get_context("fork").Pool(1) as pool:  # which ends a child that hangs
        after = pool.apply_async(do_all).get(PATIENCE)
    for name, expected in before.items():
        if name == "minimise":  # sums by torch, whose last bit may differ with its threads
            np.testing.assert_allclose(after[name][0], expected[0], rtol=1e-9)
        else:
            assert same(after[name], expected), name


def lit(module):
    plain.trained(module, plain.loader(AND), epochs=2)
    return module


def fitted_rule(**options):
    return tp.RuleTrainer(**options).fit(None if "kernel" in options else tp.Perceptron(2), *AND)


def numbers(part, path="", depth=0, seen=None):
    """Everything in a thing that can be compared, under its path, but for what a trainer leaves out of a copy."""
    seen = set() if seen is None else seen
    if isinstance(part, torch.Tensor) and part.layout != torch.sparse_csr:
        return {path: part.detach().cpu().numpy().tobytes()}
    if isinstance(part, np.ndarray):
        return {path: part.tobytes() if part.dtype != object else part.tolist()}
    if isinstance(part, str | int | float | bool | type(None)):
        return {path: part}
    if depth == 7 or id(part) in seen:
        return {}
    seen.add(id(part))
    inner = dict(enumerate(part)) if isinstance(part, list | tuple) else part
    inner = inner if isinstance(inner, dict) else getattr(inner, "__dict__", {})
    kept = {name: inner[name] for name in inner.keys() - {"_log", "_streams", "_stream", "_trainer", "_fabric"}}
    return {k: v for name, value in kept.items() for k, v in numbers(value, f"{path}.{name}", depth + 1, seen).items()}


ONES = {
    "Perceptron": lambda: tp.Perceptron(2, init="normal", seed=0),
    "MLP": lambda: tp.MLP(2, seed=0),
    "RuleTrainer": lambda: tp.RuleTrainer(order="shuffled", seed=3, class_weight={1: 2.0}),
    "RuleTrainer, kernel": lambda: tp.RuleTrainer(kernel="rbf", gamma=2.0),
    "RuleResult": lambda: fitted_rule(select="averaged", prove=True),
    "RuleResult, voted": lambda: fitted_rule(select="voted"),
    "RuleResult, kernel": lambda: fitted_rule(kernel="poly", degree=2),
    "RuleResult, stream": lambda: tp.RuleTrainer(select="averaged").partial_fit(tp.Perceptron(2), *AND),
    "Certificate": lambda: tp.theory.separability(*tp.data.gate("XOR")),
    "MaxMargin": lambda: tp.theory.max_margin(*AND),
    "Sweep": lambda: tp.sweep(*AND, seeds=range(3)),
    "Dataset": lambda: tp.data.load("iris"),
    "FittedModel": lambda: tp.FittedModel(tp.Perceptron(2), tp.PerceptronHead(), labels=["a", "b"]),
    "LitClassifier": lambda: lit(tp.lightning.LitClassifier(tp.Perceptron(2), "logistic")),
    "LitRule": lambda: lit(tp.lightning.LitRule(tp.Perceptron(2))),
    "TabularDataModule": lambda: tp.lightning.TabularDataModule("iris", {"positive": "setosa"}, scale="standard"),
}


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore:.*LeafSpec:FutureWarning")  # of Lightning
@pytest.mark.parametrize("name", ONES)
def test_copies_are_equal(name):
    one = ONES[name]()
    two = pickle.loads(pickle.dumps(one))
    assert type(two) is type(one)
    assert numbers(one) == numbers(two) != {}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "options"),
    [("PerceptronClassifier", {"select": "averaged"}), ("PerceptronClassifier", {}), ("LogisticClassifier", {})],
)
def test_a_stream_keeps_nothing_of_calls_without_mistakes(kind, options, monkeypatch):
    """Nothing that a call leaves behind grows with the number of calls, on samples that are soon no mistakes."""
    for module in ("rule", "gradient"):
        monkeypatch.setattr(f"torchperc.sklearn.{module}.RECENT", 40)
    y = np.where(X[:, 0] > 0, 1, -1)
    rows, model, sizes = X + np.c_[y, np.zeros((len(X), WIDTH - 1))], getattr(tp.sklearn, kind)(**options), []
    for k in range(220):
        model.partial_fit(rows[k % 32 : k % 32 + 1], y[k % 32 : k % 32 + 1], classes=[-1, 1])
        if k in (100, 160):
            sizes.append(len(pickle.dumps(model)))
    assert sizes[1] <= sizes[0] + 64  # a number of more digits
    assert [record.epoch for record in model.history_] == list(range(181, 221))
    assert model.n_iter_ == 220


def sweeps(**spread):
    """Dense and sparse samples, two and three classes, orders and seeds."""
    (X, y), (Z, codes) = (oracles.integers(3, count=25, classes=classes) for classes in (None, 3))
    orders = [np.random.default_rng(seed).permutation(25) for seed in range(3)]
    yield tp.sweep(X, y, orders=orders, lr=[1, 0.5], margin=[0, 1.5], bias_step="radius", max_epochs=4, **spread)
    Z = csr_array(np.array(Z, float))
    yield tp.sweep(Z, codes, seeds=[0, 9, 2**40], num_classes=3, max_epochs=4, **spread)
    yield tp.sweep(torch.tensor(X, dtype=torch.bfloat16), y, seeds=[0, 1], max_epochs=4, **spread)


def assert_as_alone(**spread):
    for one, other in zip(sweeps(), sweeps(**spread), strict=True):
        assert (one.members, one.verdicts, one.radius) == (other.members, other.verdicts, other.radius)
        for name in ("mistakes", "epochs", "weight", "bias", "margins"):
            assert torch.equal(getattr(one, name), getattr(other, name)), name


@pytest.mark.parametrize("n_jobs", [1, pytest.param(2, marks=pytest.mark.processes)])
def test_chunks_and_processes_make_the_same_runs(n_jobs):
    assert_as_alone(n_jobs=n_jobs)


@pytest.mark.slow
def test_a_cluster_makes_the_same_runs():
    cluster = pytest.importorskip("distributed", reason="`make test-all` installs it")
    options = {"n_workers": 2, "threads_per_worker": 1, "processes": True, "dashboard_address": None}
    with cluster.LocalCluster(**options) as started, cluster.Client(started), joblib.parallel_config("dask"):
        assert_as_alone(n_jobs=2)
