"""The engines' contract: whatever the data, every engine makes the same mistakes, and the same weights to the bit."""

import math
import warnings
from fractions import Fraction

import numpy as np
import pytest
import torch
from scipy import sparse as sp

import torchperc as tp
from torchperc.rules import compiled, loops
from torchperc.rules.parts import as_rows
from torchperc.rules.rounding import side
from torchperc.rules.spaces import LinearSpace

FAST = ("compiled", "blocked", "auto")
KINDS = (
    "integers",
    "halves",
    "duplicates",
    "zeros",
    "tiny",
    "subnormal",
    "scaled by rows",
    "scaled by columns",
    "scaled in turn",
    "floats",
    "thirds",
)


def samples(kind, rng, count, width):
    """Small data with many ties: exact ones, or such as are ties but for rounding."""
    X = rng.integers(-2, 3, size=(count, width)).astype(np.float64)
    if kind == "halves":
        return X / 2
    if kind == "duplicates":
        return X[rng.integers(max(1, count // 4), size=count)]
    if kind == "zeros":
        return X * (rng.random((count, width)) < 0.3)
    if kind == "tiny":
        return X * 3e-30
    if kind == "subnormal":
        return X * (4e-45 if rng.random() < 0.5 else 1e-310)
    if kind == "scaled by rows":
        return X * 10.0 ** rng.integers(-6, 7, size=(count, 1))
    if kind == "scaled by columns":
        return X * 10.0 ** rng.integers(-6, 7, size=(1, width))
    if kind == "scaled in turn":
        return X * 0.1 ** rng.integers(0, 3, size=(count, 1)) / 0.1 ** rng.integers(0, 3, size=(1, width))
    if kind == "floats":
        return rng.standard_normal((count, width))
    return X / 3 if kind == "thirds" else X


def problem(seed):
    """A random run: samples, labels, classes, the net it starts from, and the trainer's options."""
    rng = np.random.default_rng(seed)
    kind, dtype = KINDS[seed % len(KINDS)], rng.choice([torch.float32, torch.float64])
    count, width = int(rng.integers(4, 60)), int(rng.integers(1, 7))
    classes = None if rng.random() < 0.6 else int(rng.integers(2, 6))
    X = samples(kind, rng, count, width).astype(np.float32 if dtype == torch.float32 else np.float64)
    y = np.where(rng.random(count) < 0.5, 1, -1) if classes is None else rng.integers(classes, size=count)
    y[:2] = (1, -1) if classes is None else (0, 1)
    tie = rng.choice(["update", "sign", "strict"])
    options = {
        "tie": str(tie),
        "lr": float(rng.choice([1.0, 0.1, 0.5, 0.3, 7.0])),
        "bias_step": str(rng.choice(["unit", "radius", "none"])),
        "order": str(rng.choice(["given", "given", "shuffled", "random-mistake"])),
        "margin": 0.0 if tie == "sign" else float(rng.choice([0.0, 0.0, 1.0, 0.1, 0.7])),
        "seed": int(rng.integers(100)),
        "max_epochs": int(rng.integers(1, 6)),
    }
    if options["order"] == "random-mistake":
        options["max_epochs"] = 1
    weights = [None, rng.integers(1, 4, size=count), rng.choice([0.1, 0.2, 0.3], size=count)][rng.integers(3)]
    start = (0.0, 0.0, 1.0, 0.1)[rng.integers(4)] * rng.integers(-2, 3, size=((classes or 1), width + 1))
    return (sp.csr_array(X) if rng.random() < 0.4 else X), y, classes, dtype, weights, start, options


def run(engine, X, y, classes, dtype, weights, start, options):
    net = tp.Perceptron(X.shape[1]) if classes is None else tp.MulticlassPerceptron(X.shape[1], classes)
    net = net.to(dtype)
    with torch.no_grad():
        net.weight.copy_(torch.tensor(start[:, 1:]))
        net.bias.copy_(torch.tensor(start[:, 0]))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="tie='strict' updates only")
        return tp.RuleTrainer(engine=engine, **options).fit(net, X, y, sample_weight=weights), net


def assert_contract(seed):
    given = problem(seed)
    plain, net = run("reference", *given)
    for engine in FAST:
        result, other = run(engine, *given)
        what = f"seed {seed}, {engine}, {KINDS[seed % len(KINDS)]}, {given[3]}, K={given[2]}, {given[6]}"
        assert result.log.equals(plain.log), what
        assert torch.equal(net.weight, other.weight), what
        assert torch.equal(net.bias, other.bias), what
        assert (result.verdict, result.cycle, result.history) == (plain.verdict, plain.cycle, plain.history), what


@pytest.mark.parametrize("first", range(0, 400, 100))
def test_random_runs_are_the_same_by_every_engine(first):
    for seed in range(first, first + 100):
        assert_contract(seed)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(400, 2000, 100))
def test_more_random_runs_are_the_same_by_every_engine(first):
    for seed in range(first, first + 100):
        assert_contract(seed)
