"""The engines' contract: whatever the data, every engine makes the same mistakes, and the same weights to the bit."""

import warnings
from fractions import Fraction

import numpy as np
import pytest
import torch
from scipy import sparse as sp

import torchperc as tp
from torchperc.rules.engines.rounding import nearness, side
from torchperc.rules.loops import exact as loops
from torchperc.rules.spaces import LinearSpace
from torchperc.samples.parts import as_rows

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


@pytest.mark.parametrize("first", range(0, 100, 25))
def test_random_runs_are_the_same_by_every_engine(first):
    for seed in range(first, first + 25):
        assert_contract(seed)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(100, 2000, 100))
def test_more_random_runs_are_the_same_by_every_engine(first):
    for seed in range(first, first + 100):
        assert_contract(seed)


# --- exact arithmetic ---


def awkward(rng, count):
    """Numbers that cancel, of all sizes that float64 has."""
    scale = 2.0 ** rng.integers(-1074, 500, size=count) if rng.random() < 0.3 else 1.0
    values = rng.integers(-(2**53), 2**53, size=count).astype(np.float64) * 2.0 ** rng.integers(-60, 10, size=count)
    return values * scale * (rng.random(count) < 0.9)


def cancelling(rng):
    """Samples and weights whose score is nearly or exactly the limit."""
    x, w = awkward(rng, 5), awkward(rng, 5)
    return np.concatenate((x, x)), np.concatenate((w, -w)) if rng.random() < 0.5 else np.concatenate((-w, w[::-1]))


@pytest.mark.parametrize("seed", range(200))
def test_the_exact_side_is_that_of_fractions(seed):
    rng = np.random.default_rng(seed)
    x, w = cancelling(rng)
    b, limit = rng.choice([0.0, 1.0, 5e-324, 0.1], size=2)
    exact = sum((Fraction(a) * Fraction(c) for a, c in zip(x, w, strict=True)), Fraction(b) - Fraction(limit))
    sign = (exact > 0) - (exact < 0)
    assert side(x, w, b, limit) == sign
    numbers = (np.uint64(0), w, np.array([b]), 0, -1, 1, limit)
    assert loops.exact_side((x[None],), *numbers) == sign
    csr = sp.csr_array(x[None])
    assert loops.exact_side((csr.data, csr.indices, csr.indptr), *numbers) == sign


def test_the_exact_side_of_two_scores():
    x, w = np.array([[0.1, 0.2, 0.3]]), np.array([[1.0, 1.0, 1.0], [1.0, 1.0, np.nextafter(1.0, 2)]])
    for plus, minus, expected in ((0, 1, -1), (1, 0, 1), (0, 0, 0)):
        assert loops.exact_side((x,), np.uint64(0), w, np.zeros(2), plus, minus, 1, 0.0) == expected


# --- what follows from it ---


@pytest.mark.parametrize("lr", [0.1, 0.3, 1 / 3, 1e-5, 1e300])
@pytest.mark.parametrize("engine", ["reference", *FAST])
def test_from_zero_weights_the_log_does_not_depend_on_the_learning_rate(engine, lr):
    rng = np.random.default_rng(1)
    X, y = rng.integers(-3, 4, size=(300, 4)), np.where(rng.random(300) < 0.5, 1, -1)
    one, other = (tp.Perceptron(4, dtype=torch.float64) for _ in range(2))
    plain = tp.RuleTrainer(5, engine="reference", tie="sign", order="shuffled").fit(one, X, y)
    scaled = tp.RuleTrainer(5, engine=engine, tie="sign", order="shuffled", lr=lr).fit(other, X, y)
    assert torch.equal(plain.log.index, scaled.log.index)
    assert torch.equal(plain.log.step, scaled.log.step)
    assert torch.equal(plain.log.coef * lr, scaled.log.coef)
    assert torch.equal(one.weight * lr, other.weight)
    assert torch.equal(scaled.log.last().weight, other.weight)
    assert torch.equal(scaled.log.dual(), plain.log.dual() * lr)
    assert [record.mistakes for record in plain.history] == [record.mistakes for record in scaled.history]
    assert [record.norm * lr for record in plain.history] == [record.norm for record in scaled.history]


@pytest.mark.parametrize("select", ["averaged", "voted", "pocket"])
def test_what_is_selected_scales_with_the_learning_rate(select):
    rng = np.random.default_rng(4)  # no score of the selected weights is exactly 0, which rounding would not keep
    X, y = rng.integers(-3, 4, size=(60, 4)), np.where(rng.random(60) < 0.5, 1, -1)
    one, other = (tp.Perceptron(4, dtype=torch.float64) for _ in range(2))
    results = [tp.RuleTrainer(5, select=select, lr=lr).fit(net, X, y) for lr, net in ((1.0, one), (0.1, other))]
    assert torch.equal(one.weight * 0.1, other.weight)
    assert torch.equal(*(result.predict(X) for result in results))


@pytest.mark.parametrize("select", ["last", "averaged", "voted"])
def test_a_stream_keeps_to_steps_of_one(select):
    rng = np.random.default_rng(2)
    X, y = rng.integers(-3, 4, size=(60, 4)), np.where(rng.random(60) < 0.5, 1, -1)
    whole, parts = (tp.Perceptron(4, dtype=torch.float64) for _ in range(2))
    trainer = tp.RuleTrainer(1, lr=0.1, tie="sign", select=select)
    mistakes = sum(trainer.partial_fit(parts, X[i : i + 7], y[i : i + 7]).mistakes for i in range(0, 60, 7))
    assert trainer.fit(whole, X, y).mistakes == mistakes
    torch.testing.assert_close(whole.weight, parts.weight, rtol=1e-15, atol=0)


def test_a_stream_goes_on_with_another_learning_rate():
    net, trainer = tp.Perceptron(2, dtype=torch.float64), tp.RuleTrainer(1, lr=0.1)
    trainer.partial_fit(net, [[1, 2], [3, -1]], [1, -1])
    before = net.weight.detach().clone()
    trainer.lr = 0.2
    result = trainer.partial_fit(net, [[5, 1]], [1])
    assert result.log.coef.tolist() == [0.2]
    torch.testing.assert_close(net.weight.detach(), before + 0.2 * torch.tensor([[5, 1]]))


def test_a_log_with_a_learning_rate_comes_back_from_its_file(tmp_path):
    X, y = tp.data.gate("AND")
    net = tp.Perceptron(2)
    log = tp.RuleTrainer(lr=0.1).fit(net, X, y).log
    log.save(tmp_path / "log.npz")
    again = tp.MistakeLog.load(tmp_path / "log.npz", X, y)
    assert again.equals(log)
    assert torch.equal(again.last().weight, net.weight)


@pytest.mark.parametrize("exponent", [-1074, -1040, -600, 400])
@pytest.mark.parametrize("engine", ["reference", *FAST])
def test_samples_of_any_size_make_the_same_mistakes(engine, exponent):
    X, y = np.array([[1, 2], [-1, -2], [2, 1], [-2, -1], [3, -1]] * 60), [1, -1, 1, -1, 1] * 60
    plain, scaled = (
        tp.RuleTrainer(engine=engine).fit(tp.Perceptron(2, bias=False, dtype=torch.float64), X * factor, y)
        for factor in (1.0, 2.0**exponent)
    )
    assert plain.verdict.name == scaled.verdict.name == "SEPARATED"
    assert plain.log.equals(scaled.log)


def test_a_sweep_is_its_runs_at_any_learning_rate():
    rng = np.random.default_rng(3)
    X, y = rng.integers(-2, 3, size=(40, 3)).astype(float), np.where(rng.random(40) < 0.5, 1, -1)
    sweep = tp.sweep(X, y, seeds=range(6), lr=[0.1, 0.7], margin=[0.0, 0.3], tie="strict", max_epochs=4)
    for m in range(len(sweep)):
        net = tp.Perceptron(3, dtype=torch.float64)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="tie='strict' updates only")
            result = sweep.trainer(m).fit(net, X, y)
        assert (result.mistakes, result.epochs) == (int(sweep.mistakes[m]), int(sweep.epochs[m]))
        assert torch.equal(net.weight, sweep.weight[m])


def test_the_bound_is_no_larger_than_it_needs_to_be():
    """Plain data are decided by rounded scores: the exact sums are for ties."""
    rng = np.random.default_rng(4)
    X = rng.standard_normal((1000, 20))
    near = nearness(LinearSpace(as_rows(X, dtype=torch.float64), None, 1.0))
    w = rng.standard_normal(20)
    loops.renew(w, np.zeros(1), near)
    assert 0 < near[loops.BOUND] < 1e-12
    assert (np.abs(X @ w) > 2 * near[loops.BOUND]).all()
