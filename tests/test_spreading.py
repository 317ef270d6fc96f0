"""Sweeps spread by joblib: over processes, and over a cluster; the same to the bit."""

import joblib
import numpy as np
import oracles
import pytest
import scipy.sparse as sp
import torch

import torchperc as tp

OF_SWEEP = ("mistakes", "epochs", "weight", "bias", "margins")


def assert_same_sweep(one, other):
    assert (one.members, one.verdicts, one.radius) == (other.members, other.verdicts, other.radius)
    for name in OF_SWEEP:
        assert torch.equal(getattr(one, name), getattr(other, name)), name


def integers(count, width=3, classes=None):
    X, y = oracles.integers(3, count=count, width=width, classes=classes)
    return np.array(X, float), np.array(y)


def sweeps(**spread):
    """Dense and sparse samples, two and three classes, orders and seeds."""
    X, y = integers(25)
    orders = [np.random.default_rng(seed).permutation(25) for seed in range(3)]
    yield tp.sweep(X, y, orders=orders, lr=[1, 0.5], margin=[0, 1.5], bias_step="radius", max_epochs=4, **spread)
    X, y = integers(25, classes=3)
    yield tp.sweep(sp.csr_array(X), y, seeds=[0, 9, 2**40], num_classes=3, max_epochs=4, **spread)
    X, y = integers(25)
    yield tp.sweep(torch.tensor(X, dtype=torch.bfloat16), y, seeds=[0, 1], max_epochs=4, **spread)


@pytest.fixture(scope="module")
def alone():
    return list(sweeps())


def test_chunks_make_the_same_runs(alone):
    for one, other in zip(alone, sweeps(n_jobs=1), strict=True):
        assert_same_sweep(one, other)


@pytest.mark.processes
def test_processes_make_the_same_runs(alone):
    for one, other in zip(alone, sweeps(n_jobs=2), strict=True):
        assert_same_sweep(one, other)


@pytest.mark.slow
def test_a_cluster_makes_the_same_runs(alone):
    cluster = pytest.importorskip("distributed", reason="`make test-all` installs it")
    options = {"n_workers": 2, "threads_per_worker": 1, "processes": True, "dashboard_address": None}
    with cluster.LocalCluster(**options) as started, cluster.Client(started), joblib.parallel_config("dask"):
        for one, other in zip(alone, sweeps(n_jobs=2), strict=True):
            assert_same_sweep(one, other)


@pytest.mark.parametrize(
    ("n_jobs", "error", "message"),
    [(0, ValueError, "n_jobs=0 must not be 0"), (1.5, TypeError, "n_jobs must be an integer")],
)
def test_bad_input(n_jobs, error, message):
    X, y = tp.data.gate("AND")
    with pytest.raises(error, match=message):
        tp.sweep(X, y, n_jobs=n_jobs)
