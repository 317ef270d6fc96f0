"""The engines' contract: the same mistakes as the reference, and the same weights to the bit, in every convention."""

import os
import pty
import subprocess
import sys
import warnings
from fractions import Fraction

import numpy as np
import pytest
import scipy.sparse as sp
import torch

import torchperc as tp
from torchperc.rules.decision import PerceptronRule, decide_exactly
from torchperc.rules.engines import compiled, reference

FACTORS = {
    "kind": ["integers", "duplicates", "zeros", "subnormal", "scaled by rows", "scaled in turn", "floats", "thirds"],
    "classes": [None, 2, 5],
    "sparse": [False, True],
    "tie and margin": [("update", 0.0), ("sign", 0.0), ("strict", 0.0), ("update", 0.7), ("strict", 1.0)],
    "order": ["given", "shuffled", "random-mistake", [3, 1, 3, 19, 3, 0, 1]],
    "bias_step": ["unit", "radius", "none"],
    "lr": [1.0, 0.3],
    "weights": [None, "integers", "floats"],
    "start": [0.0, 1.0, 0.1],
}


def samples(kind, rng, count, width):
    """Small data with many ties: exact ones, or such as are ties but for rounding."""
    X = rng.integers(-2, 3, size=(count, width)).astype(np.float64)
    return {
        "duplicates": lambda: X[rng.integers(max(1, count // 4), size=count)],
        "zeros": lambda: X * (rng.random((count, width)) < 0.3),
        "subnormal": lambda: X * (4e-45 if rng.random() < 0.5 else 1e-310),
        "scaled by rows": lambda: X * 10.0 ** rng.integers(-6, 7, size=(count, 1)),
        "scaled in turn": lambda: X * 0.1 ** rng.integers(0, 3, (count, 1)) / 0.1 ** rng.integers(0, 3, (1, width)),
        "floats": lambda: rng.standard_normal((count, width)),
        "thirds": lambda: X / 3,
    }.get(kind, lambda: X)()


def run(engine, case, seed, dtype=torch.float64):
    """One run of a case, on random data of this seed."""
    rng, classes = np.random.default_rng(seed), case["classes"]
    count, width = int(rng.integers(20, 60)), int(rng.integers(1, 7))
    X = samples(case["kind"], rng, count, width).astype(str(dtype).removeprefix("torch."))
    y = np.where(rng.random(count) < 0.5, 1, -1) if classes is None else rng.integers(classes, size=count)
    y[:2] = (1, -1) if classes is None else (0, 1)
    weights = {"integers": rng.integers(1, 4, size=count), "floats": rng.choice([0.1, 0.2, 0.3], size=count)}
    net = tp.Perceptron(width, dtype=dtype) if classes is None else tp.MulticlassPerceptron(width, classes, dtype=dtype)
    with torch.no_grad():
        for values in net.parameters():
            values.copy_(torch.tensor(case["start"] * rng.integers(-2, 3, size=values.shape)))
    tie, margin = case["tie and margin"]
    options = {name: case[name] for name in ("order", "bias_step", "lr")} | {"tie": tie, "margin": margin}
    if case["kind"] == "subnormal":  # a bias step of R² would be 0 and smaller steps vanish: both are refused
        options |= {"bias_step": "unit" if case["bias_step"] == "radius" else case["bias_step"], "lr": 1.0}
        weights["floats"] = weights["integers"]
    options["max_epochs"] = 1 if case["order"] == "random-mistake" else int(rng.integers(1, 6))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="tie='strict' updates only")
        trainer = tp.RuleTrainer(engine=engine, **options)
        result = trainer.fit(
            net, sp.csr_array(X) if case["sparse"] else X, y, sample_weight=weights.get(case["weights"])
        )
    return result, net


def assert_same_run(one, other):
    (result, net), (again, copy) = one, other
    assert result.log.equals(again.log)
    assert all(torch.equal(a, b) for a, b in zip(net.parameters(), copy.parameters(), strict=True))
    assert torch.equal(result.log.last().weight, net.weight)
    assert torch.equal(result.log.last().bias, net.bias)
    assert (result.verdict, result.history, result.cycle) == (again.verdict, again.history, again.cycle)


# an orthogonal array over the numbers modulo 11: every two values of different factors occur together
CASES = [
    {name: values[(i + k * j) % 11 % len(values)] for k, (name, values) in enumerate(FACTORS.items())}
    for i in range(11)
    for j in range(11)
]


@pytest.mark.parametrize("number", range(len(CASES)))
def test_every_pair_of_conventions(number):
    assert_same_run(*(run(engine, CASES[number], number) for engine in ("reference", "compiled")))


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_random_runs(dtype):
    rng = np.random.default_rng(7)
    for seed in range(150):
        case = {name: values[int(rng.integers(len(values)))] for name, values in FACTORS.items()}
        assert_same_run(*(run(engine, case, seed, dtype) for engine in ("reference", "compiled")))


def integers(seed, count=90, width=5, classes=None, noise=0.1):
    rng = np.random.default_rng(seed)
    X = rng.integers(-3, 4, size=(count, width)) * (rng.random((count, width)) < 0.7)
    scores = X @ rng.integers(-3, 4, size=(width, classes or 1))
    y = np.where(scores[:, 0] > 0, 1, -1) if classes is None else scores.argmax(1)
    flipped = rng.random(count) < noise
    y[flipped] = rng.choice([-1, 1] if classes is None else classes, size=flipped.sum())
    return X.astype(float), y


def fit(engine, X, y, classes=None, *, dtype=torch.float64, sample_weight=None, **options):
    width = X.shape[1]
    net = tp.Perceptron(width, dtype=dtype) if classes is None else tp.MulticlassPerceptron(width, classes, dtype=dtype)
    return tp.RuleTrainer(**{"max_epochs": 5, **options}, engine=engine).fit(
        net, X, y, sample_weight=sample_weight
    ), net


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "csr"])
@pytest.mark.parametrize("classes", [None, 3])
def test_near_ties_that_double_precision_cannot_tell(classes, sparse):
    """Slacks of ±2⁻⁶⁰ beside weights of 1, and many that are exactly 0."""
    rng = np.random.default_rng(0)
    X = np.ones((200, 4))
    X[:, 1], X[:, 2], X[:, 3] = -1, rng.choice([-1, 0, 1], 200) * 2.0**-60, rng.choice([0.1, 0.3], 200)
    y = rng.choice([-1, 1] if classes is None else classes, 200)
    X = sp.csr_array(X) if sparse else X
    one, other = (fit(engine, X, y, classes, bias_step="none") for engine in ("reference", "compiled"))
    assert_same_run(one, other)
    assert torch.equal(one[0].log.errors(), other[0].log.errors())


def test_states_decide_near_ties_exactly():
    """Errors and votes are those of fractions, for scores that cancel to ±2⁻⁶⁰ or 0."""
    rng = np.random.default_rng(3)
    X = np.ones((60, 3))
    X[:, 1], X[:, 2] = -1 + rng.choice([-1, 0, 1], 60) * 2.0**-52, rng.choice([-1, 0, 1], 60) * 2.0**-60
    y = rng.choice([-1, 1], 60)
    for data in (X, sp.csr_array(X)):
        log = fit("compiled", data, y, max_epochs=2)[0].log
        found, votes = [], np.zeros(60)
        for t, count in enumerate(log.survivals().tolist()):
            weight, bias = log.state_at(t).weight[0].tolist(), float(log.state_at(t).bias)
            exact = [
                sum((Fraction(a) * Fraction(b) for a, b in zip(weight, x, strict=True)), Fraction(bias)) for x in X
            ]
            labels = np.where(np.array([s >= 0 for s in exact]), 1, -1)
            found.append(float((labels != y).sum()))
            votes += count * labels
        assert log.errors().tolist() == found
        assert log.voted().scores(data).tolist() == votes.tolist()


def awkward(rng, count):
    """Numbers that cancel, of all sizes that float64 has."""
    scale = 2.0 ** rng.integers(-1074, 500, size=count) if rng.random() < 0.3 else 1.0
    values = rng.integers(-(2**53), 2**53, size=count).astype(np.float64) * 2.0 ** rng.integers(-60, 10, size=count)
    return values * scale * (rng.random(count) < 0.9)


def cancelling(rng):
    """Samples and weights whose score is nearly or exactly the limit."""
    x, w = awkward(rng, 5), awkward(rng, 5)
    return np.concatenate((x, x)), np.concatenate((w, -w)) if rng.random() < 0.5 else np.concatenate((-w, w[::-1]))


def test_near_ties_are_decided_as_fractions_are():
    for seed in range(200):
        rng = np.random.default_rng(seed)
        x, w = cancelling(rng)
        b, margin = rng.choice([0.0, 1.0, 5e-324, 0.1], size=2)
        exact = sum((Fraction(a) * Fraction(c) for a, c in zip(x, w, strict=True)), Fraction(b))
        for tie in ("update", "strict"):
            mistake = exact < margin or (exact == margin and tie == "update")
            decided = decide_exactly(w[None], np.array([b]), x, 1, PerceptronRule(tie, margin))
            assert decided == (-1 if mistake else 1)


def test_plain_data_are_decided_by_rounded_scores(monkeypatch):
    """The bound is no larger than it needs to be: exact sums are for ties."""
    X, y = np.random.default_rng(4).standard_normal((1000, 20)), np.where(np.arange(1000) % 2, 1, -1)
    monkeypatch.setattr("torchperc.rules.decision.Fraction", None)  # is not called
    result, _ = fit("compiled", X, y)
    assert result.mistakes > 100
    assert len(result.log.errors()) == result.mistakes + 1


def test_random_mistakes_of_tiny_samples_are_looked_for_in_double_precision(monkeypatch):
    """Scores in float32 would leave every sample to exact arithmetic, in every step."""
    rng, calls = np.random.default_rng(0), []
    X, y = (rng.standard_normal((200, 5)) * 1e-20).astype(np.float32), np.where(rng.random(200) < 0.5, 1, -1)
    exact = decide_exactly
    monkeypatch.setattr("torchperc.rules.problem.decide_exactly", lambda *args: calls.append(1) or exact(*args))
    result, _ = fit("reference", X, y, dtype=torch.float32, order="random-mistake", max_epochs=1)
    assert len(calls) < 3 * result.log.steps  # one per step, and few more


@pytest.mark.parametrize("lr", [1 / 3, 1e300])
@pytest.mark.parametrize("engine", ["reference", "compiled"])
def test_from_zero_weights_the_log_does_not_depend_on_the_learning_rate(engine, lr):
    rng = np.random.default_rng(1)
    X, y = rng.integers(-3, 4, size=(300, 4)), np.where(rng.random(300) < 0.5, 1, -1)
    one, other = (tp.Perceptron(4, dtype=torch.float64) for _ in range(2))
    plain = tp.RuleTrainer(5, engine="reference", tie="sign", order="shuffled").fit(one, X, y)
    scaled = tp.RuleTrainer(5, engine=engine, tie="sign", order="shuffled", lr=lr).fit(other, X, y)
    assert torch.equal(plain.log.sample, scaled.log.sample)
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


@pytest.mark.parametrize("exponent", [-1074, -1040, -600, 400])
@pytest.mark.parametrize("engine", ["reference", "compiled"])
def test_samples_of_any_size_make_the_same_mistakes(engine, exponent):
    X, y = np.array([[1, 2], [-1, -2], [2, 1], [-2, -1], [3, -1]] * 20), [1, -1, 1, -1, 1] * 20
    plain, scaled = (
        tp.RuleTrainer(engine=engine).fit(tp.Perceptron(2, bias=False, dtype=torch.float64), X * factor, y)
        for factor in (1.0, 2.0**exponent)
    )
    assert plain.verdict.name == scaled.verdict.name == "SEPARATED"
    assert plain.log.equals(scaled.log)


@pytest.mark.parametrize("engine", ["reference", "compiled"])
def test_samples_whose_updates_vanish_are_refused_and_do_not_count_as_a_cycle(engine):
    X, y = np.array([[1.0, 2.0], [-1.0, -2.0]]) * 5e-324, [1, -1]
    net = tp.Perceptron(2, bias=False, dtype=torch.float64, init="normal", seed=1)
    with pytest.raises(ValueError, match=r"X .*scale X up"):
        tp.RuleTrainer(lr=0.1, engine=engine).fit(net, X, y)
    with pytest.raises(ValueError, match="bias_step='radius'"):
        tp.RuleTrainer(bias_step="radius").fit(tp.Perceptron(2, dtype=torch.float64), X, y)


LAYOUTS = {
    "C": np.copy,
    "every other column": lambda X: np.repeat(X, 2, axis=1)[:, ::2],
    "every other row": lambda X: np.repeat(X, 2, axis=0)[::2],
    "Fortran": np.asfortranarray,
    "read-only": lambda X: np.frombuffer(X.tobytes()).reshape(X.shape),
    "backwards": lambda X: X[::-1].copy()[::-1],
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_any_layout_gives_the_same_run(layout):
    X, y = integers(17, count=400)
    assert_same_run(fit("compiled", X, y), fit("compiled", LAYOUTS[layout](X), y))


@pytest.mark.parametrize("layout", ["C", "read-only"])
def test_contiguous_x_is_not_copied(layout):
    X, y = integers(17, count=400)
    given = LAYOUTS[layout](X)
    assert np.shares_memory(fit("compiled", given, y)[0].log.problem.samples.loop_arrays()[0], given)


@pytest.mark.parametrize("size", [1e-200, 1e200])
def test_numbers_whose_squares_vanish_or_overflow(size):
    X, y = integers(23)
    X = np.hstack((X, np.zeros((len(X), 1))))
    X[-1, -1] = size  # where the weight is still 0
    for data in (X, sp.csr_array(X)):
        assert_same_run(*(fit(engine, data, y, max_epochs=1) for engine in ("reference", "compiled")))


@pytest.mark.parametrize("kind", ["unsorted", "duplicates"])
def test_sparse_rows_that_are_not_canonical_are_put_right_and_not_changed(kind):
    X, y = integers(31)
    X[X == 0] = 7
    given, expected = sp.csr_array(X), X.copy()
    if kind == "unsorted":
        given.indices[:5], given.data[:5] = given.indices[4::-1].copy(), given.data[4::-1].copy()
    else:
        given.indices[-1] = given.indices[-2]
        expected[-1, 3:] = X[-1, 3] + X[-1, 4], 0.0
    before = given.data.copy(), given.indices.copy()
    assert_same_run(fit("compiled", given, y), fit("reference", sp.csr_array(expected), y))
    assert np.array_equal(given.data, before[0])
    assert np.array_equal(given.indices, before[1])


@pytest.mark.parametrize("change", [{"step": 1}, {"step": -1}, {"sample": 1}], ids=str)
def test_an_engine_of_ones_own_is_checked(change):
    X, y = integers(1)
    name, by = next(iter(change.items()))

    def engine(problem, weights, ids):
        found = reference(problem, weights, ids)
        return found._replace(**{name: getattr(found, name) + by})

    with pytest.raises(ValueError, match=r"engine=.*sample is ids\[step\]"):
        fit(engine, X, y)
    with pytest.raises(TypeError, match=r"engine=.* must return Mistakes, found list"):
        fit(lambda *_: [], X, y)


def test_auto_compiles_what_can_be_compiled_whatever_its_size():
    X, y = integers(1)

    def chosen(net, X=X, y=y):
        return tp.RuleTrainer().start(net, X, y).engine

    assert chosen(tp.Perceptron(2), *tp.data.gate("AND")) is compiled
    assert chosen(tp.Perceptron(5, dtype=torch.float64)) is compiled
    assert chosen(tp.Perceptron(5, dtype=torch.bfloat16)) is reference
    assert chosen(tp.JointPerceptron(5, 3), *integers(1, classes=3)) is reference


def test_what_compiled_cannot_run():
    X, y = integers(1)
    with pytest.raises(ValueError, match=r"engine='compiled' .*torch\.bfloat16"):
        fit("compiled", X, y, dtype=torch.bfloat16)
    with pytest.raises(ValueError, match=r"engine='compiled' .*joint"):
        tp.RuleTrainer(engine="compiled").fit(tp.JointPerceptron(5, 3), *integers(1, classes=3))


@pytest.mark.parametrize("classes", [None, 3])
@pytest.mark.parametrize("engine", ["reference", "compiled"])
def test_an_overflow_is_said(engine, classes):
    X, y = integers(1, classes=classes, count=300)
    net = tp.Perceptron(5) if classes is None else tp.MulticlassPerceptron(5, classes)
    with pytest.raises(ValueError, match="overflow"):
        tp.RuleTrainer(engine=engine, bias_step="none").fit(net, X * 1e30, y)
    assert not net.weight.any()


@pytest.mark.slow
def test_the_first_compilation_is_told_on_a_terminal_and_once(tmp_path):
    code = "import torchperc as tp; tp.RuleTrainer().fit(tp.Perceptron(2), *tp.data.gate('AND'))"
    told = []
    for _ in range(2):  # the second process reads the cache
        ours, theirs = pty.openpty()
        env = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
        subprocess.run([sys.executable, "-c", code], stderr=theirs, env=env, check=True)
        os.write(theirs, b"end")
        said = b""
        while not said.endswith(b"end"):
            said += os.read(ours, 1000)
        os.close(ours)
        os.close(theirs)
        told.append(said.count(b"compiling (once)"))
    assert told == [1, 0]
