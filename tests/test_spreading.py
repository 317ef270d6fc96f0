"""Sweeps spread by joblib over threads, processes and a cluster; the same to the bit."""

import joblib
import numpy as np
import oracles
import pytest
import scipy.sparse as sp
import torch

import torchperc as tp


def sweeps(**spread):
    """Dense and sparse samples, two and three classes, orders and seeds."""
    (X, y), (Z, codes) = (oracles.integers(3, count=25, classes=classes) for classes in (None, 3))
    orders = [np.random.default_rng(seed).permutation(25) for seed in range(3)]
    yield tp.sweep(X, y, orders=orders, lr=[1, 0.5], margin=[0, 1.5], bias_step="radius", max_epochs=4, **spread)
    Z = sp.csr_array(np.array(Z, float))
    yield tp.sweep(Z, codes, seeds=[0, 9, 2**40], num_classes=3, max_epochs=4, **spread)
    yield tp.sweep(torch.tensor(X, dtype=torch.bfloat16), y, seeds=[0, 1], max_epochs=4, **spread)


def assert_as_alone(**spread):
    for one, other in zip(sweeps(), sweeps(**spread), strict=True):
        assert (one.members, one.verdicts, one.radius) == (other.members, other.verdicts, other.radius)
        for name in ("mistakes", "epochs", "weight", "bias", "margins"):
            assert torch.equal(getattr(one, name), getattr(other, name)), name


def test_chunks_make_the_same_runs():
    assert_as_alone(n_jobs=1)


@pytest.mark.processes
def test_processes_make_the_same_runs():
    assert_as_alone(n_jobs=2)


@pytest.mark.slow
def test_a_cluster_makes_the_same_runs():
    cluster = pytest.importorskip("distributed", reason="`make test-all` installs it")
    options = {"n_workers": 2, "threads_per_worker": 1, "processes": True, "dashboard_address": None}
    with cluster.LocalCluster(**options) as started, cluster.Client(started), joblib.parallel_config("dask"):
        assert_as_alone(n_jobs=2)


@pytest.mark.parametrize(("n_jobs", "error"), [(0, ValueError), (1.5, TypeError)])
def test_bad_input(n_jobs, error):
    with pytest.raises(error, match="n_jobs"):
        tp.sweep(*tp.data.gate("AND"), n_jobs=n_jobs)
