"""All engines make the same run: the same log as the reference, entry by entry, in every convention."""

import functools
import importlib.util
import json
import threading
import warnings
from fractions import Fraction

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import torchperc as tp
from torchperc.descent.sgd import descend
from torchperc.rules.engines import compiled, screening
from torchperc.rules.engines import light as light_copies
from torchperc.rules.engines.blocked import BlockedEngine
from torchperc.rules.engines.compiled import CompiledEngine
from torchperc.rules.engines.reference import ReferenceEngine
from torchperc.rules.engines.rounding import Rounding
from torchperc.rules.loops import screened
from torchperc.rules.spaces import Weights
from torchperc.samples import compiling, parts
from torchperc.samples.rows import CsrRows

FAST = ("compiled", "blocked")
TIES_AND_MARGINS = [("update", 0), ("sign", 0), ("strict", 0), ("update", 2), ("strict", 2)]


def integers(seed, count=90, width=5, classes=None, noise=0.1):
    rng = np.random.default_rng(seed)
    X = rng.integers(-3, 4, size=(count, width)) * (rng.random((count, width)) < 0.7)
    scores = X @ rng.integers(-3, 4, size=(width, classes or 1))
    y = np.where(scores[:, 0] > 0, 1, -1) if classes is None else scores.argmax(1)
    flipped = rng.random(count) < noise
    y[flipped] = rng.choice([-1, 1] if classes is None else classes, size=flipped.sum())
    return X.astype(float), y


def net_for(width, classes, dtype=torch.float64, bias=True, start=0):
    net = (
        tp.Perceptron(width, bias=bias) if classes is None else tp.MulticlassPerceptron(width, classes, bias=bias)
    ).to(dtype)
    with torch.no_grad():
        net.weight.copy_(torch.randint(-start, start + 1, net.weight.shape, generator=torch.Generator().manual_seed(1)))
    return net


def fit(engine, X, y, classes=None, *, dtype=torch.float64, bias=True, start=0, sample_weight=None, **options):
    net = net_for(X.shape[1], classes, dtype, bias, start)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="tie='strict' updates only")
        result = tp.RuleTrainer(engine=engine, **{"max_epochs": 5, **options}).fit(
            net, X, y, sample_weight=sample_weight
        )
    return result, net


def assert_same_run(one, other):
    (result, net), (again, copy) = one, other
    assert result.log.equals(again.log)
    assert torch.equal(net.weight, copy.weight)
    assert net.bias is None or torch.equal(net.bias, copy.bias)
    assert (result.verdict, result.history, result.cycle) == (again.verdict, again.history, again.cycle)


# --- the contract ---


@functools.cache
def run_of(engine, data_seed, classes, sparse, options):
    """A run on integers, with options as JSON; that of the reference serves the tests of all engines, in turn."""
    X, y = integers(data_seed, classes=classes)
    return fit(engine, sp.csr_array(X) if sparse else X, y, classes, **json.loads(options))


@pytest.mark.parametrize("engine", FAST)
@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "csr"])
@pytest.mark.parametrize("classes", [None, 2, 5, 9])
@pytest.mark.parametrize(("tie", "margin"), TIES_AND_MARGINS)
def test_every_tie_and_margin(engine, tie, margin, classes, sparse):
    options = json.dumps({"tie": tie, "margin": margin, "start": 2})
    assert_same_run(*(run_of(name, 3, classes, sparse, options) for name in ("reference", engine)))


@pytest.mark.parametrize("engine", FAST)
@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "csr"])
@pytest.mark.parametrize("classes", [None, 3])
@pytest.mark.parametrize("bias_step", ["unit", "radius", "none"])
@pytest.mark.parametrize("order", ["given", "shuffled", "random-mistake", [3, 1, 3, 89, 3, 0, 1]], ids=str)
def test_every_order_and_bias_step(engine, order, bias_step, classes, sparse):
    options = {"order": order, "bias_step": bias_step, "seed": 4, "max_epochs": 2 if order == "random-mistake" else 5}
    runs = (run_of(name, 5, classes, sparse, json.dumps(options)) for name in ("reference", engine))
    assert_same_run(*runs)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("classes", [None, 3])
@pytest.mark.parametrize("engine", FAST)
def test_sample_and_class_weights_rates_and_no_bias(engine, classes, dtype):
    X, y = integers(7, classes=classes)
    weight = np.random.default_rng(0).integers(0, 4, size=len(y))
    for options in (
        {"sample_weight": weight},
        {"class_weight": {1: 3, 0 if classes else -1: 0.5}, "lr": 0.25},
        {"bias": False, "lr": 4},
    ):
        assert_same_run(*(fit(name, X, y, classes, dtype=dtype, **options) for name in ("reference", engine)))


@pytest.mark.parametrize("select", ["last", "averaged", "voted", "pocket", "best-validation"])
@pytest.mark.parametrize("engine", FAST)
def test_every_selection(engine, select):
    X, y = integers(11)
    nets = []
    for name in ("reference", engine):
        net = net_for(5, None)
        tp.RuleTrainer(max_epochs=4, select=select, engine=name).fit(net, X, y, validation=(X[:30], y[:30]))
        nets.append(net)
    assert torch.equal(nets[0].weight, nets[1].weight)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.integers(2, 300), st.integers(1, 40), st.sampled_from([None, 2, 4]), st.booleans())
def test_any_integer_data(seed, count, width, classes, sparse):
    X, y = integers(seed, count, width, classes, noise=0.3)
    y[0], y[1] = (1, -1) if classes is None else (0, 1)
    X = sp.csr_array(X) if sparse else X
    runs = [fit(name, X, y, classes, max_epochs=2) for name in ("reference", *FAST)]
    for run in runs[1:]:
        assert_same_run(runs[0], run)


@pytest.mark.parametrize("classes", [None, 4])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("engine", FAST)
def test_float_data_differ_only_where_a_score_is_within_rounding_of_the_limit(engine, dtype, classes):
    rng = np.random.default_rng(2)
    X = rng.standard_normal((1500, 12))
    scores = X @ rng.standard_normal((12, classes or 1)) + rng.standard_normal((1500, classes or 1))
    y = np.where(scores[:, 0] > 0, 1, -1) if classes is None else scores.argmax(1)
    X = X.astype(np.float32 if dtype == torch.float32 else np.float64)
    (result, net), (again, copy) = (
        fit(name, X, y, classes, dtype=dtype, max_epochs=3) for name in ("reference", engine)
    )
    if not result.log.equals(again.log):  # then at the first difference the slack is rounding
        first = next(j for j, (a, b) in enumerate(zip(result.log, again.log, strict=False)) if a != b)
        state, sample = (
            result.log.state_at(first),
            min(result.log[first], again.log[first], key=lambda e: e.step).sample,
        )
        s = state.scores(X[sample : sample + 1])[0]
        slack = (
            float(s * y[sample])
            if classes is None
            else float(s[y[sample]] - max(s[k] for k in range(classes) if k != y[sample]))
        )
        assert abs(slack) <= 64 * torch.finfo(dtype).eps * float(state.weight.abs().max()) * np.abs(X[sample]).sum()
        return
    assert torch.equal(net.weight, copy.weight) or engine == "blocked"
    torch.testing.assert_close(
        net.weight, copy.weight, rtol=64 * torch.finfo(dtype).eps, atol=64 * torch.finfo(dtype).eps * 12
    )


def test_updates_round_as_torch_does_so_a_compiled_log_replays_to_the_bit():
    rng = np.random.default_rng(0)
    for sparse, classes in ((False, None), (True, None), (False, 3), (True, 3)):
        X = rng.standard_normal((600, 7)) * (rng.random((600, 7)) < 0.8)
        y = np.where(rng.random(600) < 0.5, 1, -1) if classes is None else rng.integers(classes, size=600)
        X = sp.csr_array(X) if sparse else X
        result, net = fit("compiled", X, y, classes, lr=0.1, max_epochs=3)
        assert len(result.log) > compiling.WORTH_IT
        assert torch.equal(result.log.last().weight, net.weight)
        steps = result.log.entries
        weights = result.log.start.clone()
        for i, coef, own, wrong in zip(*(column.tolist() for column in steps), strict=True):
            result.log.space.update(weights, i, coef, own, wrong)  # the reference's own update
        model = result.log.space.model(weights)
        assert torch.equal(model.weight, net.weight)
        assert torch.equal(model.bias, net.bias)


# --- two cores ---


@pytest.fixture
def eager(monkeypatch):
    """Two cores on any machine, at any distance between mistakes, with segments as short as they get."""
    monkeypatch.setattr(compiling, "cores", lambda: 2)
    for name in ("_STRETCH", "_LOOK", "_SPARSE_STRETCH", "_SPARSE_LOOK"):
        monkeypatch.setattr(compiled, name, 1)


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "csr"])
@pytest.mark.parametrize("classes", [None, 3])
@pytest.mark.parametrize("noise", [0.0, 0.02, 0.3])
def test_two_cores_make_the_run_of_one(eager, noise, classes, sparse):
    X, y = integers(13, count=9000, width=6, classes=classes, noise=noise)
    X = sp.csr_array(X) if sparse else X
    ahead = fit("compiled", X, y, classes, max_epochs=4)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiling, "cores", lambda: 1)
        assert_same_run(fit("compiled", X, y, classes, max_epochs=4), ahead)


def test_other_cores_are_asked_where_mistakes_are_rare(eager, monkeypatch):
    asked = []
    pool = compiled.other_cores()
    monkeypatch.setattr(
        compiled,
        "other_cores",
        lambda: type("Pool", (), {"submit": lambda self, *a: asked.append(a) or pool.submit(*a)})(),
    )
    X, y = integers(13, count=9000, noise=0.001)
    fit("compiled", X, y)
    assert asked
    asked.clear()
    monkeypatch.setattr(compiled, "_STRETCH", 2**40)
    fit("compiled", X, y)
    assert not asked


def test_other_cores_that_never_come_changes_nothing(eager, monkeypatch):
    X, y = integers(13, count=9000, noise=0.001)
    alone = fit("compiled", X, y)
    monkeypatch.setattr(compiled, "other_cores", lambda: type("Pool", (), {"submit": lambda self, *a: None})())
    assert_same_run(alone, fit("compiled", X, y))


def test_runs_in_several_threads_do_not_disturb_each_other(eager):
    data = [integers(seed, count=5000, noise=0.001) for seed in range(4)]
    alone = [fit("compiled", X, y) for X, y in data]
    together = [None] * 4

    def work(number):
        together[number] = fit("compiled", *data[number])

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for one, other in zip(alone, together, strict=True):
        assert_same_run(one, other)


# --- light copies of sparse rows ---


@pytest.fixture
def light(monkeypatch):
    """Light copies for any amount of data, looked at before the first pass; what the loop was given is noted."""
    monkeypatch.setattr(tp.RuleTrainer, "presents_all", lambda self: False)
    monkeypatch.setattr(light_copies, "pays", lambda size, weights: True)
    given, state = [], CompiledEngine._state

    def noted(self, rows, count):
        made = state(self, rows, count)
        given.append(made.rows)
        return made

    monkeypatch.setattr(CompiledEngine, "_state", noted)
    return given


def scattered(kind, classes, width, count=500, filled=9):
    """Sparse rows with empty ones among them, labels with noise."""
    rng = np.random.default_rng(41)
    columns = np.sort(rng.integers(width // filled, size=(count, filled)) ** 2 % (width // filled), axis=1)
    columns += np.arange(filled) * (width // filled)
    values = {
        "equal": lambda: np.full(count * filled, 0.1),
        "small integers": lambda: rng.integers(-3, 4, count * filled).astype(float),  # explicit zeros among them
        "large integers": lambda: rng.integers(2**20, 2**30, count * filled).astype(float),
        "float32": lambda: rng.standard_normal(count * filled).astype(np.float32).astype(float),
        "float64": lambda: rng.standard_normal(count * filled),
        "tiny": lambda: rng.standard_normal(count * filled) * 10.0 ** rng.integers(-300, 0, count * filled),
    }[kind]()
    keep = np.ones(count * filled, bool)
    keep[: 3 * filled] = keep[-filled:] = False  # the first three rows and the last
    starts = np.append(0, np.cumsum(keep.reshape(count, filled).sum(1)))
    X = sp.csr_array((values[keep], columns.ravel()[keep], starts), shape=(count, width))
    scores = X @ rng.standard_normal((width, classes or 1)) + 0.1 * rng.standard_normal((count, classes or 1))
    y = np.where(scores[:, 0] > 0, 1, -1) if classes is None else scores.argmax(1)
    y[:2] = (1, -1) if classes is None else (0, 1)
    return X, y


@pytest.mark.slow
@pytest.mark.parametrize("classes", [None, 3, 10, 20])
@pytest.mark.parametrize("kind", ["equal", "small integers", "large integers", "float32", "float64", "tiny"])
def test_a_light_copy_changes_no_mistake_and_no_bit(light, kind, classes):
    X, y = scattered(kind, classes, width=300)
    assert_same_run(*(fit(name, X, y, classes, max_epochs=3) for name in ("reference", "compiled")))
    assert {len(rows) for rows in light} == {5}
    assert {rows[0].dtype for rows in light} == {np.dtype(np.float32 if kind == "small integers" else np.float64)}


@pytest.mark.parametrize("classes", [None, 10])
@pytest.mark.parametrize("kind", ["small integers", "float32"])
def test_a_float32_net_is_its_own_light_copy(light, kind, classes):
    X, y = scattered(kind, classes, width=300)
    X = X.astype(np.float32)
    options = {"dtype": torch.float32, "max_epochs": 3}
    assert_same_run(*(fit(name, X, y, classes, **options) for name in ("reference", "compiled")))
    assert all(rows[3] is rows[0] for rows in light)


@pytest.mark.parametrize(("tie", "margin"), TIES_AND_MARGINS)
@pytest.mark.parametrize("classes", [None, 3])
def test_every_tie_and_margin_through_a_light_copy(light, classes, tie, margin):
    X, y = integers(3, count=300, classes=classes)
    options = {"tie": tie, "margin": margin, "start": 2, "bias_step": "radius"}
    assert_same_run(*(fit(name, sp.csr_array(X), y, classes, **options) for name in ("reference", "compiled")))


@pytest.mark.parametrize("classes", [None, 3])
def test_near_ties_that_single_precision_cannot_tell(light, classes):
    """Slacks of ±2⁻⁴⁰ beside weights of 1, decided as the reference does."""
    rng = np.random.default_rng(0)
    X = np.ones((400, 3))
    X[:, 1] = -1 + rng.choice([-1, 0, 1], 400) * 2.0**-40
    X[:, 2] = rng.choice([0, 2.0**-41], 400)
    y = rng.choice([-1, 1] if classes is None else classes, 400)
    options = {"start": 1, "bias": False}
    assert_same_run(*(fit(name, sp.csr_array(X), y, classes, **options) for name in ("reference", "compiled")))
    assert light


def test_a_light_copy_on_two_cores(light, eager):
    for classes in (None, 3):
        X, y = integers(13, count=9000, width=6, classes=classes, noise=0.02)
        ahead = fit("compiled", sp.csr_array(X), y, classes, max_epochs=4)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(light_copies, "pays", lambda size, weights: False)
            patch.setattr(compiling, "cores", lambda: 1)
            assert_same_run(fit("compiled", sp.csr_array(X), y, classes, max_epochs=4), ahead)
    assert {len(rows) for rows in light} == {3, 5}


@pytest.mark.parametrize("classes", [None, 3])
def test_integers_are_learned_in_single_precision_only_as_far_as_that_is_exact(light, classes):
    """300 samples of up to 3·18,600 are within 2²⁴ from zero weights, and beyond it from those after an epoch."""
    X, y = integers(43, count=300, classes=classes, noise=0.4)
    options = {"max_epochs": 4, "sample_weight": np.full(300, 18_600)}
    assert_same_run(*(fit(name, sp.csr_array(X), y, classes, **options) for name in ("reference", "compiled")))
    assert [rows[0].dtype for rows in light] == [np.float32, np.float64, np.float64, np.float64]
    light.clear()
    for more in ({"lr": 0.3, "start": 1}, {"sample_weight": np.linspace(0.1, 1, 300)}):  # steps that are no integers
        runs = (fit(name, sp.csr_array(X), y, classes, **more) for name in ("reference", "compiled"))
        assert_same_run(*runs)
    assert {rows[0].dtype for rows in light} == {np.dtype(np.float64)}


def test_one_pass_makes_no_light_copy_and_a_second_call_does(light):
    X, y = integers(13, count=600)
    fit("compiled", sp.csr_array(X), y, max_epochs=1)
    fit("compiled", X, y)  # dense
    assert {len(rows) for rows in light} == {3, 1}
    run = tp.RuleTrainer(engine="compiled", max_epochs=1).start(net_for(5, None), sp.csr_array(X), y)
    light.clear()
    run.epoch()
    run.epoch()
    assert [len(rows) for rows in light] == [3, 5]


def test_weights_that_were_loaded_reach_the_light_copy(light):
    X, y = integers(13, count=600)
    X = sp.csr_array(X)
    run, other = (tp.RuleTrainer(engine="compiled", max_epochs=9).start(net_for(5, None), X, y) for _ in range(2))
    run.epoch()
    other.epoch()
    other.epoch()
    other.load_state_dict(run.state_dict())
    assert (run.epoch(), run.epoch()) == (other.epoch(), other.epoch())
    assert run.log().equals(other.log())


@pytest.mark.parametrize("scale", [1.0, 2.0**-50, 2.0**50])
def test_a_light_score_is_off_by_no_more_than_its_bound(scale):
    """In fractions, for weights of any size and sums that cancel."""
    rng = np.random.default_rng(5)
    X = sp.csr_array(rng.standard_normal((50, 20)) * 2.0 ** rng.integers(-40, 1, (50, 20)) * scale)
    rows = CsrRows(X)
    rounding = Rounding(rows)
    ratio, floor = rounding.light
    worst = 0.0
    for size in (1.0, 2.0**-140, 2.0**100):
        w = rng.standard_normal(20) * 2.0 ** rng.integers(-20, 1, 20) * size
        bound = ratio * rounding.bound(Weights(torch.from_numpy(w[None]), torch.zeros(1))) + floor
        for i in range(50):
            x = X[[i]].toarray()[0]
            exact = sum(Fraction(a) * Fraction(b) for a, b in zip(x, w, strict=True))
            rounded = np.float32(0)
            with np.errstate(over="ignore", invalid="ignore"):
                for a, b in zip(x.astype(np.float32), w.astype(np.float32), strict=True):
                    rounded += a * b
            if not np.isfinite(rounded):  # by which nothing is decided
                continue
            off = abs(Fraction(float(rounded)) - exact)
            assert off <= bound
            worst = max(worst, float(off / Fraction(bound)))
    assert worst > 1e-4  # a bound that is of use


def test_lengths_beyond_single_precision_have_no_light_copy(light):
    X, y = integers(13, count=300)
    for factor in (1e30, 1e-30):
        assert_same_run(*(fit(name, sp.csr_array(X * factor), y) for name in ("reference", "compiled")))
    assert {len(rows) for rows in light} == {3}


# --- a copy in eight bits ---


@pytest.fixture
def screen(monkeypatch):
    """Samples of any number are screened from the end of the first segment on, however many have to be read.

    Returns the calls: how many samples were presented by their codes, and how many of them were read.
    """
    for module, values in (
        (screening, {"_WORTH_IT": 0, "_ROW": 0, "LIMIT": 1e9}),
        (compiled, {"LIMIT": 1e9, "AGAIN": 0, "_WORTH_CODES": 1, "_SHORTEST": 64, "_FIRST": 1, "SEGMENT": 1}),
    ):
        for name, value in values.items():
            monkeypatch.setattr(module, name, value)
    calls, loop = [], screened.learn_screened

    def spy(given, source, slots, X, ids, *rest):
        found, read = loop(given, source, slots, X, ids, *rest)
        calls.append((len(ids), read))
        return found, read

    monkeypatch.setattr(screened, "learn_screened", spy)
    return calls


def rows_of_kind(kind, classes, count=300, width=12, seed=0):
    """Samples with labels of which some are wrong."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((count, width))
    scores = X @ rng.standard_normal((width, classes or 1))
    y = np.where(scores[:, 0] > 0, 1, -1) if classes is None else scores.argmax(1)
    flipped = rng.random(count) < 0.02
    y[flipped] = rng.choice([-1, 1] if classes is None else classes, size=flipped.sum())
    if kind == "pixels":
        X = np.clip(np.round(128 + 60 * X), 0, 255)
    elif kind == "one-hot":
        X = np.eye(width)[np.abs(scores).argmax(1) + np.abs(X[:, :1]).round().astype(int)[:, 0]]
    elif kind == "scales":
        X *= 10.0 ** rng.integers(-6, 7, (count, 1))
    elif kind == "constant":
        X[::3], X[1::7] = X[::3, :1], 0.0
    elif kind == "near ties":  # of pairs x, −x(1 + ε), which no order of summation tells apart
        X[1::2] = -X[::2] * (1 + 2.0**-50)
    return X, y


KINDS = ("floats", "pixels", "one-hot", "scales", "constant", "near ties")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("classes", [None, 5])
@pytest.mark.parametrize("kind", KINDS)
def test_screened_runs_are_those_of_the_reference(screen, kind, classes, dtype):
    X, y = rows_of_kind(kind, classes)
    X = X.astype(np.float32 if dtype == torch.float32 else np.float64)
    runs = [fit(name, X, y, classes, dtype=dtype, max_epochs=4) for name in ("reference", "compiled")]
    assert_same_run(*runs)
    presented, read = np.sum(screen, axis=0)
    assert presented >= runs[0][0].log.steps - 64  # all but the first segment of the first epoch
    assert read < presented or kind == "scales"


@pytest.mark.parametrize("classes", [None, 5])
@pytest.mark.parametrize("kind", ["floats", "pixels"])
@pytest.mark.parametrize(
    "options",
    [
        *({"tie": tie, "margin": margin, "start": 2} for tie, margin in TIES_AND_MARGINS),
        {"bias_step": "radius"},
        {"bias": False, "lr": 0.1},
        {"order": "shuffled", "seed": 3},
        {"order": [*range(150, 300), *range(50), 7, 7]},
        {"sample_weight": np.arange(300) % 4},
    ],
    ids=str,
)
def test_every_convention_is_screened_alike(screen, options, kind, classes):
    X, y = rows_of_kind(kind, classes, seed=1)
    assert_same_run(*(fit(name, X, y, classes, **options) for name in ("reference", "compiled")))
    assert np.sum(screen, axis=0)[0] > 400


def test_a_screen_that_shuts_midway_changes_nothing(screen, monkeypatch):
    X, y = rows_of_kind("floats", None, count=900)
    expected = fit("reference", X, y)
    for limit in (0.02, 0.05, 0.1):
        monkeypatch.setattr(screening, "LIMIT", limit)
        assert_same_run(expected, fit("compiled", X, y))


def test_a_core_that_never_encodes_changes_nothing(screen, monkeypatch):
    X, y = rows_of_kind("floats", None)
    expected = fit("reference", X, y)
    monkeypatch.setattr(compiling, "cores", lambda: 2)
    monkeypatch.setattr(compiling, "other_cores", lambda: type("Pool", (), {"submit": lambda self, *a: None})())
    assert_same_run(expected, fit("compiled", X, y))
    make = screening.Screen._make
    monkeypatch.setattr(screening.Screen, "_make", lambda self, end=None: next(self._next, None) and make(self, end))
    assert_same_run(expected, fit("compiled", X, y))  # the first block was begun, and is never made


@pytest.mark.parametrize("kept", [4, 10**6], ids=["all kept", "one kept"])
@pytest.mark.parametrize("order", ["given", "shuffled"])
def test_samples_larger_than_memory_are_screened_alike(screen, order, kept, tmp_path, monkeypatch):
    X, y = rows_of_kind("floats", None, count=600)
    np.save(tmp_path / "X.npy", X)
    monkeypatch.setattr(parts, "PART", 2**14)
    monkeypatch.setattr(screening, "_KEPT", kept)
    runs = []
    for engine in ("reference", "compiled"):
        mapped = np.load(tmp_path / "X.npy", mmap_mode="r")
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="X is larger than memory")
            runs.append(fit(engine, mapped, y, order=order))
    assert_same_run(*runs)
    assert np.sum(screen, axis=0)[0] > 4 * len(y)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("kind", ["floats", "pixels"])
@pytest.mark.parametrize("classes", [None, 5])
def test_a_number_that_is_not_finite_is_found_behind_its_code(screen, kind, classes, bad):
    """Samples that nobody has looked at are screened in the first epoch, too."""
    X, y = rows_of_kind(kind, classes)
    for column in (0, 5, 11):
        X[290, column], kept = bad, X[290, column]
        net = net_for(12, classes)
        screen.clear()
        with pytest.raises(ValueError, match=rf"X\[290, {column}\] = "):
            tp.RuleTrainer(engine="compiled").fit(net, X, y)
        assert screen
        assert not any(parameter.any() for parameter in net.parameters())
        X[290, column] = kept


@pytest.mark.parametrize(("dtype", "rest"), [(torch.float32, 3e-6), (torch.float64, 6e-15)])
def test_numbers_close_to_integers_are_no_integers(screen, dtype, rest):
    """Pixels from 0 to 255 are encoded less 128, which rounds what is next to 0 to 0; many such rests are a mistake."""
    y = np.where(np.arange(300) % 2, 1, -1)
    X = np.zeros((300, 64))
    X[:, 61] = 100 * y
    X[250], y[250] = 0, 1
    X[250, 1], X[250, 2:60] = 255, rest

    def run(engine):
        net = tp.Perceptron(64, dtype=dtype)
        with torch.no_grad():
            net.weight[0, 2:60], net.weight[0, 61], net.bias[0] = -6e-3 / rest, 1, 0.25
        return net, tp.RuleTrainer(6, engine=engine).fit(net, torch.from_numpy(X).to(dtype), y)

    (one, expected), (other, found) = run("reference"), run("compiled")
    assert 250 in expected.log.index
    assert expected.log.equals(found.log)
    assert torch.equal(one.weight, other.weight)
    assert screen


def test_a_class_of_enormous_weights_is_not_forgotten(screen):
    X, y = rows_of_kind("pixels", 5)
    runs = []
    for engine in ("reference", "compiled"):
        net = tp.MulticlassPerceptron(12, 5, dtype=torch.float32)
        with torch.no_grad():
            net.weight[3] = 1e22
        runs.append(tp.RuleTrainer(4, engine=engine).fit(net, X.astype(np.float32), y))
    assert runs[0].log.equals(runs[1].log)
    assert screen


def test_an_overflow_is_said_by_a_screened_run(screen):
    X, y = rows_of_kind("floats", None)
    y = np.random.default_rng(0).permutation(y)
    for engine in ("reference", "compiled"):
        with pytest.raises(ValueError, match="overflow"):
            fit(engine, X * 4e18, y, dtype=torch.float32, bias_step="none", max_epochs=50)
    assert screen


# --- input as it lies ---


def layouts(X):
    wide = np.zeros((len(X), 2 * X.shape[1]))
    wide[:, ::2] = X
    tall = np.zeros((2 * len(X), X.shape[1]))
    tall[::2] = X
    frozen = X.copy()
    frozen.setflags(write=False)
    return {
        "C": X,
        "every other column": wide[:, ::2],
        "every other row": tall[::2],
        "Fortran": np.asfortranarray(X),
        "read-only": frozen,
        "backwards": X[::-1].copy()[::-1],
    }


@pytest.mark.parametrize("layout", ["C", "every other column", "every other row", "Fortran", "read-only", "backwards"])
def test_any_layout_gives_the_same_run(layout):
    X, y = integers(17, count=400)
    assert_same_run(fit("compiled", X, y), fit("compiled", layouts(X)[layout], y))


@pytest.mark.parametrize("layout", ["C", "every other column", "every other row", "Fortran", "read-only"])
def test_x_is_not_copied(layout):
    X, y = integers(17, count=400)
    given = layouts(X)[layout]
    seen = fit("compiled", given, y)[0].log.space.rows.plain()[0]
    assert np.shares_memory(seen, given)


def test_nothing_is_compiled_again_when_a_number_changes_type():
    from torchperc.rules.loops import learn as loops

    X, y = integers(19, count=400)
    fit("compiled", X, y, lr=1, margin=0)
    before = len(loops.learn.signatures)
    fit("compiled", X, y, lr=0.5, margin=1.5)
    fit("compiled", X, y, lr=np.float32(2), margin=np.int64(3), bias_step="radius")
    fit("compiled", X, y, sample_weight=np.arange(400))
    assert len(loops.learn.signatures) == before


# --- which engine ---


def test_auto_chooses(monkeypatch):
    X, y = integers(1, count=300)
    trainer = tp.RuleTrainer()

    def chosen(net, X=X, y=y, **options):
        return type(tp.RuleTrainer(**options).start(net, X, y)._engine)

    assert chosen(net_for(5, None)) is CompiledEngine
    assert chosen(net_for(5, None), X[:100], y[:100]) is ReferenceEngine
    assert chosen(net_for(5, None, torch.bfloat16)) is ReferenceEngine
    assert chosen(net_for(5, None), engine="blocked") is BlockedEngine
    assert trainer.engine == "auto"


@pytest.mark.parametrize("engine", FAST)
def test_what_an_engine_cannot_run(engine):
    X, y = integers(1, classes=3)
    joint = tp.JointPerceptron(5, 3)
    with pytest.raises(ValueError, match=f"engine='{engine}' cannot run"):
        tp.RuleTrainer(engine=engine).fit(joint, X, y)


def test_compiled_refuses_other_types_and_kernels():
    X, y = integers(1)
    with pytest.raises(ValueError, match=r"float32 and float64, found torch\.bfloat16"):
        fit("compiled", X, y, dtype=torch.bfloat16)
    with pytest.raises(ValueError, match="not kernels"):
        tp.RuleTrainer(engine="compiled", kernel="poly").fit(None, X, y)


@pytest.mark.parametrize("classes", [None, 3])
@pytest.mark.parametrize("engine", ["reference", *FAST])
def test_an_overflow_is_said(engine, classes):
    X, y = integers(1, classes=classes, count=300)
    net = net_for(5, classes, torch.float32)
    before = net.weight.clone()
    with pytest.raises(ValueError, match="overflow"):
        tp.RuleTrainer(engine=engine, bias_step="none").fit(net, X * 1e30, y)
    assert torch.equal(net.weight, before)


def test_the_cache_on_disk_is_used(tmp_path, monkeypatch):
    monkeypatch.setattr("numba.core.config.CACHE_DIR", str(tmp_path))
    counts = []
    for _ in range(2):  # the module anew, as another process would load it
        spec = importlib.util.find_spec("torchperc.samples.loops")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        assert module.longest((np.eye(300),), 300, 0, 300) == 1.0
        stats = module.longest.stats
        counts.append((sum(stats.cache_misses.values()), sum(stats.cache_hits.values())))
    assert counts == [(1, 0), (0, 1)]


# --- blocks ---


def test_sweeps_settle_within_the_block():
    X, y = integers(29, count=128, width=2, noise=0.5)
    assert_same_run(fit("reference", X, y, max_epochs=1), fit("blocked", X, y, max_epochs=1))


@pytest.mark.parametrize("block", [1, 3, 1000])
def test_any_block_size(block, monkeypatch):
    monkeypatch.setattr(BlockedEngine, "block", block)
    X, y = integers(31, classes=3)
    assert_same_run(fit("reference", X, y, 3), fit("blocked", X, y, 3))


# --- single-sample descent ---

HEADS = [
    tp.PerceptronHead(),
    tp.PerceptronHead(tie="sign"),
    tp.PerceptronHead(tie="strict"),
    tp.LMSHead(),
    tp.LMSHead(targets="0/1"),
    tp.LogisticHead(),
]


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "csr"])
@pytest.mark.parametrize("classes", [None, 4])
@pytest.mark.parametrize("head", HEADS, ids=str)
@pytest.mark.parametrize("engine", FAST)
def test_descent_by_every_engine(engine, head, classes, sparse):
    X, y = integers(37, count=300, classes=classes)
    rng = np.random.default_rng(0)
    X = X if isinstance(head, tp.PerceptronHead) else X + rng.standard_normal(X.shape) * (X != 0)
    for bias in (True, False):
        seen = {}
        for name in ("reference", engine):
            net = net_for(5, classes, bias=bias, start=1)
            samples = sp.csr_array(X) if sparse else torch.from_numpy(X)
            scores = descend(net, head, samples, torch.from_numpy(y), 0.0625, engine=name)
            seen[name] = (scores, net.weight.detach(), net.weight[:, :0] if net.bias is None else net.bias.detach())
        for one, other in zip(seen["reference"], seen[engine], strict=True):
            torch.testing.assert_close(one, other, rtol=0, atol=0 if isinstance(head, tp.PerceptronHead) else 1e-12)


@pytest.mark.parametrize("engine", ["reference", *FAST])
def test_a_diverging_descent_goes_to_infinity_and_a_perceptron_says_so(engine):
    X, y = integers(37, count=300)
    X, y = torch.from_numpy(X * 1e3), torch.from_numpy(y)
    net = net_for(5, None)
    assert not torch.isfinite(descend(net, tp.LMSHead(), X, y, 1e3, engine=engine)).all()
    with pytest.raises(ValueError, match="overflow"):
        descend(net_for(5, None), tp.PerceptronHead(), X * 1e304, y, 1e300, engine=engine)


def test_descent_refuses_an_unknown_engine():
    with pytest.raises(ValueError, match="engine='fast' is unknown"):
        descend(tp.Perceptron(1), tp.LMSHead(), torch.ones(2, 1), torch.tensor([1, -1]), 0.1, engine="fast")
