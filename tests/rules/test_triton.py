"""The Triton program makes the run of the plain loop: interpreted, log by log; and it compiles, ahead of time."""

from importlib.util import find_spec
from types import SimpleNamespace

import numpy as np
import pretend
import pytest
import scipy.sparse as sp
import torch
from test_contract import KINDS, problem
from test_contract import run as contract_run
from test_engines import TIES_AND_MARGINS, assert_same_run, fit, integers

import torchperc as tp
from torchperc.rules import sweep as sweeping
from torchperc.rules.engines import choice
from torchperc.rules.engines import triton as engines
from torchperc.rules.engines.reference import ReferenceEngine
from torchperc.rules.engines.triton import Passes
from torchperc.rules.spaces import LinearSpace
from torchperc.samples import parts
from torchperc.samples.parts import PartRows, as_rows

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed"),
]


@pytest.fixture
def interpreted(monkeypatch):
    import triton  # noqa: F401  before it is told to interpret, which would make its own library unfit for compiling

    monkeypatch.setenv("TRITON_INTERPRET", "1")


@pytest.fixture(params=["on chip", "in memory"])
def place(request, monkeypatch):
    """Where the weights are during a pass; in memory, a few features are read at a time."""
    if request.param == "in memory":
        monkeypatch.setattr(engines, "ON_CHIP", 0)
        monkeypatch.setattr(engines, "LEAST", 2)
        monkeypatch.setattr(engines, "TILE", 64)


@pytest.fixture
def counted(monkeypatch):
    """How often the program was launched, and the host had to decide."""
    seen = SimpleNamespace(launches=0, decided=0)
    launch, decide = Passes.launch, ReferenceEngine.decide

    def counting_launch(*args):
        seen.launches += 1
        launch(*args)

    def counting_decide(*args):
        seen.decided += 1
        return decide(*args)

    monkeypatch.setattr(Passes, "launch", counting_launch)
    monkeypatch.setattr(ReferenceEngine, "decide", counting_decide)
    return seen


def both(*args, **options):
    return [fit(name, *args, **options) for name in ("reference", "triton")]


# --- the contract ---


@pytest.mark.parametrize("classes", [None, 2, 5])
@pytest.mark.parametrize(("tie", "margin"), TIES_AND_MARGINS)
def test_every_tie_and_margin(interpreted, tie, margin, classes):
    X, y = integers(3, count=12, width=3, classes=classes)
    dtype = torch.float32 if margin else torch.float64
    assert_same_run(*both(X, y, classes, tie=tie, margin=margin, start=2, max_epochs=2, dtype=dtype))


@pytest.mark.parametrize("classes", [None, 3])
@pytest.mark.parametrize("bias_step", ["unit", "radius", "none"])
@pytest.mark.parametrize("order", ["given", "shuffled", "random-mistake", [3, 1, 3, 11, 3, 0, 1]], ids=str)
def test_every_order_and_bias_step(interpreted, order, bias_step, classes):
    X, y = integers(5, count=12, width=2, classes=classes)
    epochs = 1 if order == "random-mistake" else 2
    assert_same_run(*both(X, y, classes, order=order, bias_step=bias_step, seed=4, max_epochs=epochs))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("classes", [None, 3])
def test_sample_and_class_weights_rates_and_no_bias(interpreted, classes, dtype):
    X, y = integers(7, count=12, width=3, classes=classes)
    weight = np.random.default_rng(0).choice([0, 0.1, 2.5], size=len(y))
    for options in (
        {"sample_weight": weight},
        {"class_weight": {1: 3, 0 if classes else -1: 0.3}, "lr": 0.25},
        {"bias": False, "lr": 4},
    ):
        assert_same_run(*both(X, y, classes, dtype=dtype, max_epochs=2, **options))


def assert_contract(seed):
    X, y, classes, dtype, weights, start, options = problem(seed)
    X, y = (X.toarray() if sp.issparse(X) else X)[:12], y[:12]
    given = (X, y, classes, dtype, None if weights is None else weights[:12], start, options | {"max_epochs": 2})
    (plain, net), (result, other) = (contract_run(name, *given) for name in ("reference", "triton"))
    what = f"seed {seed}, {KINDS[seed % len(KINDS)]}, {dtype}, K={classes}, {options}"
    assert result.log.equals(plain.log), what
    assert torch.equal(net.weight, other.weight), what
    assert torch.equal(net.bias, other.bias), what
    assert (result.verdict, result.cycle, result.history) == (plain.verdict, plain.cycle, plain.history), what


@pytest.mark.parametrize("seed", range(len(KINDS)))
def test_random_runs_are_those_of_the_reference(interpreted, seed):
    assert_contract(seed)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(100, 700, 50))
def test_more_random_runs_are_those_of_the_reference(interpreted, place, first):
    for seed in range(first, first + 50):
        assert_contract(seed)


@pytest.mark.parametrize("classes", [None, 3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_floats(interpreted, place, counted, monkeypatch, dtype, classes):
    monkeypatch.setattr(engines.program(True), "RENEW", 4)
    rng = np.random.default_rng(2)
    X = rng.standard_normal((12, 5)).astype(np.float32)
    y = np.where(rng.random(12) < 0.5, 1, -1) if classes is None else rng.integers(classes, size=12)
    assert_same_run(*both(X, y, classes, dtype=dtype, max_epochs=2))
    assert (counted.launches, counted.decided) == (2, 0)


def test_larger_than_memory(interpreted, tmp_path, monkeypatch):
    monkeypatch.setattr(parts, "PART", 5 * 8 * 11)
    X, y = integers(1, count=24)
    np.save(tmp_path / "X.npy", X)
    mapped = np.load(tmp_path / "X.npy", mmap_mode="r")
    inside, outside = fit("reference", X, y, max_epochs=2), fit("triton", mapped, y, max_epochs=2)
    assert isinstance(outside[0].log.space.rows, PartRows)
    assert_same_run(inside, outside)


@pytest.mark.parametrize("layout", [lambda X: np.asfortranarray(X), lambda X: np.repeat(X, 2, 1)[:, ::2]])
def test_any_layout(interpreted, place, layout):
    X, y = integers(17, count=12)
    assert_same_run(fit("reference", X, y, max_epochs=2), fit("triton", layout(X), y, max_epochs=2))


def test_a_stream(interpreted):
    X, y = integers(2, count=12)
    nets = []
    for name in ("reference", "triton"):
        nets.append(tp.Perceptron(5))
        trainer = tp.RuleTrainer(engine=name, lr=0.1, select="averaged")
        for first in range(0, 12, 5):
            trainer.partial_fit(nets[-1], X[first : first + 5], y[first : first + 5])
    assert torch.equal(nets[0].weight, nets[1].weight)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("classes", [None, 3])
def test_an_overflow_is_said(interpreted, classes):
    X, y = integers(1, classes=classes, count=40)
    net = tp.Perceptron(5) if classes is None else tp.MulticlassPerceptron(5, classes)
    with pytest.raises(ValueError, match="overflow"):
        tp.RuleTrainer(engine="triton", bias_step="none").fit(net, X * 1e30, y)
    assert not net.weight.any()


def test_an_overflow_on_the_right_side_is_said(interpreted):
    for name in ("reference", "triton"):
        net = tp.Perceptron(1)
        with torch.no_grad():
            net.weight.fill_(1e38)
        with pytest.raises(ValueError, match="overflow"):
            tp.RuleTrainer(engine=name).fit(net, [[100.0], [-100.0]], [1, -1])


# --- near ties ---


@pytest.mark.parametrize("scale", [1.0, 0.5, 2.0**-40])
@pytest.mark.parametrize("classes", [None, 3])
def test_ties_without_rounding_are_decided_by_the_program(interpreted, counted, classes, scale):
    X, y = integers(1, count=10, width=2, classes=classes, noise=0.5)
    X[::2] = [1, -1]  # a tie for the weights (1, 1), among others
    assert_same_run(*both(X * scale, y, classes, bias_step="none", start=1, max_epochs=2))
    assert (counted.launches, counted.decided) == (2, 0)


TENTHS = np.array([[0.1, 0.2, 0.3], [0.3, 0.0, -0.1], [0.2, -0.1, 0.0]])  # orthogonal, but every product is rounded


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("y", [[1, -1, 1], [0, 1, 2]])
def test_the_host_decides_what_rounding_leaves_open(interpreted, place, counted, y, dtype):
    classes = None if min(y) < 0 else 3
    assert_same_run(*both(TENTHS, y, classes, dtype=dtype, bias_step="none", max_epochs=2))
    assert counted.decided or dtype == torch.float32  # whose products are exact in double precision
    assert counted.launches == 2 + counted.decided


def test_two_wrong_classes_that_rounding_makes_equal(interpreted, counted):
    X, y = np.array([[1.0, 2.0**-40], [1.0, 0.0]]), [0, 1]
    runs = []
    for name in ("reference", "triton"):
        net = tp.MulticlassPerceptron(2, 3, bias=False).double()
        with torch.no_grad():
            net.weight.copy_(torch.tensor([[0.0, 0.0], [1.0, 2.0**-20], [1.0, 2.0**-19]]))
        runs.append((tp.RuleTrainer(1, engine=name).fit(net, X, y), net))
    assert_same_run(*runs)
    assert int(runs[1][0].log.wrong[0]) == 2
    assert counted.decided == 1


# --- many runs ---


@pytest.mark.parametrize(("classes", "tie"), [(None, "update"), (None, "sign"), (3, "strict")])
@pytest.mark.parametrize("how", ["orders", "seeds"])
def test_a_sweep_is_its_runs(interpreted, counted, how, tie, classes):
    X, y = integers(1, count=6, width=2, classes=classes, noise=0.1)
    chosen = {"seeds": [0, 2**40]} if how == "seeds" else {"orders": [np.arange(6), np.arange(6)[::-1]]}
    options = {"margin": [0] if tie == "sign" else [0, 1.5], "tie": tie, "max_epochs": 4, "num_classes": classes}
    launched = tp.sweep(X, y, engine="triton", **chosen, **options)
    assert counted.launches == int(launched.epochs.max())
    compiled = tp.sweep(X, y, **chosen, **options)
    assert_same_sweep(launched, compiled)


def assert_same_sweep(one, other):
    for name in ("mistakes", "epochs", "weight", "bias", "margins"):
        assert torch.equal(getattr(one, name), getattr(other, name)), name
    assert (one.verdicts, one.members, one.radius) == (other.verdicts, other.members, other.radius)


def test_every_verdict_of_a_sweep(interpreted):
    gates = [tp.sweep(*tp.data.gate(name), engine="triton", max_epochs=9) for name in ("AND", "XOR")]
    assert [sweep.verdicts[0].name for sweep in gates] == ["SEPARATED", "CYCLING"]
    assert tp.sweep(*tp.data.gate("AND"), engine="triton", max_epochs=2).verdicts[0].name == "BUDGET"


def test_a_sweep_in_tenths_asks_the_host(interpreted, counted):
    X, y = TENTHS, [1, -1, 1]
    options = {"seeds": [0, 1], "lr": [1, 0.3], "margin": [0, 0.1], "max_epochs": 2, "bias_step": "none"}
    assert_same_sweep(tp.sweep(X, y, engine="triton", **options), tp.sweep(X, y, **options))
    assert counted.decided


def test_orders_that_do_not_fit_beside_each_other_are_several_launches(interpreted, counted, monkeypatch):
    X, y = tp.data.gate("XOR")
    whole = tp.sweep(X, y, engine="triton", seeds=range(3), max_epochs=2)
    assert_same_sweep(whole, tp.sweep(X, y, seeds=range(3), max_epochs=2))
    monkeypatch.setattr(sweeping, "_ORDERS", 8)
    assert_same_sweep(whole, tp.sweep(X, y, engine="triton", seeds=range(3), max_epochs=2))
    assert counted.launches == 2 + 4


def test_a_sweep_that_overflows(interpreted):
    X, y = tp.data.gate("AND")
    with pytest.raises(ValueError, match="overflow"):
        tp.sweep(X * 1e30, y, bias_step="none", engine="triton")


def test_a_sweep_on_one_device_is_not_spread(interpreted):
    with pytest.raises(ValueError, match=r"n_jobs=2 spreads runs over processes, engine='triton' .*leave one out"):
        tp.sweep(*tp.data.gate("AND"), engine="triton", n_jobs=2)


def test_a_sweep_by_another_engine():
    X, y = integers(5, count=12)
    one, other = (tp.sweep(X, y, seeds=[1, 2], max_epochs=3, engine=name) for name in ("blocked", "auto"))
    assert_same_sweep(one, other)


# --- which engine ---


def test_what_has_no_program(interpreted):
    X, y = integers(1, classes=3)
    two = np.where(y > 0, 1, -1)
    for net, data, labels, options, why in (
        (tp.JointPerceptron(5, 3), X, y, {}, "joint features"),
        (None, X, two, {"kernel": "poly"}, "not kernels"),
        (tp.Perceptron(5), sp.csr_array(X), two, {}, r"X is sparse, .*engine='compiled'"),
        (tp.Perceptron(5).bfloat16(), X, two, {}, r"float32 and float64, found torch\.bfloat16"),
    ):
        with pytest.raises(ValueError, match=f"engine='triton' cannot run this: .*{why}"):
            tp.RuleTrainer(engine="triton", **options).fit(net, data, labels)
    with pytest.raises(ValueError, match="engine='triton' is unknown"):
        tp.descend(tp.Perceptron(5), tp.LMSHead(), X, two, 0.1, engine="triton")


def test_the_cpu_needs_the_interpreter(monkeypatch):
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    for call in (tp.RuleTrainer(engine="triton").fit, lambda net, X, y: tp.sweep(X, y, engine="triton")):
        with pytest.raises(ValueError, match=r"X is on the CPU; move .* to CUDA, or set TRITON_INTERPRET=1"):
            call(tp.Perceptron(2), *tp.data.gate("AND"))


def test_without_triton(interpreted, monkeypatch):
    monkeypatch.setattr(engines, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r"Triton is not installed; pip install triton, or use engine='blocked'"):
        tp.RuleTrainer(engine="triton").fit(tp.Perceptron(2), *tp.data.gate("AND"))


def test_auto_takes_it_on_cuda(monkeypatch):
    def chosen(device="cuda", dtype=torch.float32, name="auto"):
        rows = SimpleNamespace(device=torch.device(device), dtype=dtype, sparse=False)
        return choice.rule_engine_name(name, LinearSpace(rows, None, 1.0))

    assert (chosen(), chosen(name="blocked")) == ("triton", "blocked")
    assert chosen(dtype=torch.bfloat16) == "blocked"
    assert chosen("mps") == "blocked"
    with pytest.raises(ValueError, match="X is on mps, and Triton compiles for CUDA; use engine='blocked'"):
        chosen("mps", name="triton")
    monkeypatch.setattr(engines, "find_spec", lambda name: None)
    assert chosen() == "blocked"


# --- ahead of time ---

VARIANTS = [("float32", 1, 60), ("float64", 10, 784), ("float64", 3, 20), ("float32", 1, 20_000)]  # on chip or not


def cubin(capability, dtype, classes, width, logged, tmp_path, monkeypatch):
    """What the engine would launch on such a device, compiled for it."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    program, launched = engines.program(False), {}

    class Recorder:
        def __getitem__(self, grid):
            return lambda *args, **options: launched.update(
                dict(zip(program.learn.arg_names, args, strict=False)), **options
            )

    monkeypatch.setattr(engines, "program", lambda interpreted: SimpleNamespace(learn=Recorder()))
    rows = as_rows(torch.zeros(2, width, dtype=getattr(torch, dtype)), dtype=getattr(torch, dtype))
    space = LinearSpace(rows, None if classes == 1 else classes, 1.0)
    task = SimpleNamespace(space=space, y=torch.zeros(2).long(), coefs=torch.ones(2).double(), tie="sign")
    weights = SimpleNamespace(
        weight=torch.zeros(1, classes, width).to(rows.dtype), bias=torch.zeros(1, classes).to(rows.dtype)
    )
    order = torch.arange(2)[None]
    Passes(task, weights, [0.0]).launch(rows, order, order, order[0, :1], order if logged else None)
    options = {name: launched.pop(name) for name in ("num_warps", "enable_fp_fusion")}
    types = {torch.float32: "*fp32", torch.float64: "*fp64", torch.int64: "*i64"}
    fixed = {p.name for p in program.learn.params if p.is_constexpr} | {"column"}
    signature = {
        name: "constexpr" if name in fixed else types[value.dtype] if isinstance(value, torch.Tensor) else "i64"
        for name, value in launched.items()
    }
    names = program.learn.arg_names
    source = ASTSource(
        program.learn, {name: signature[name] for name in names}, {(names.index(n),): launched[n] for n in fixed}
    )
    return triton.compile(source, target=GPUTarget("cuda", capability, 32), options=options)


def assert_compiles(capability, variant, logged, *fixtures):
    compiled = cubin(capability, *variant, logged, *fixtures)
    assert compiled.asm["cubin"][:4] == b"\x7fELF"
    assert f".target sm_{capability}" in compiled.asm["ptx"]
    assert compiled.metadata.shared <= 48 * 1024
    text = compiled.asm["ptx"]
    assert "ld.global.nc" not in text  # which would not see weights that the program has changed
    assert "mul.f64" not in text.replace("mul.rn.f64", "")  # nothing is fused that must round by itself


@pytest.mark.parametrize(("capability", "variant"), [(80, VARIANTS[0]), (90, VARIANTS[1])], ids=str)
def test_it_compiles_ahead_of_time(capability, variant, tmp_path, monkeypatch):
    assert_compiles(capability, variant, True, tmp_path, monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize("logged", [True, False])
@pytest.mark.parametrize("variant", VARIANTS, ids=str)
@pytest.mark.parametrize("capability", [80, 90])
def test_every_variant_compiles_ahead_of_time(capability, variant, logged, tmp_path, monkeypatch):
    assert_compiles(capability, variant, logged, tmp_path, monkeypatch)


# --- on a device ---


@pytest.mark.parametrize("weights", [None, [0.5, 1, 2, 0.1] * 5])
@pytest.mark.parametrize("classes", [None, 3])
def test_the_host_waits_once_per_epoch(device, classes, weights):
    X, y = integers(3, count=20, width=3, classes=classes)
    runs = []
    with pytest.MonkeyPatch.context() as patch:
        if device == "pretend":
            interpret_on_host(patch)
        for name, place in (("reference", "cpu"), ("triton", device)):
            net = (tp.Perceptron(3) if classes is None else tp.MulticlassPerceptron(3, classes)).to(place)
            run = tp.RuleTrainer(engine=name, order="shuffled").start(net, X, y, sample_weight=weights)
            with pretend.counted() as seen:
                records = [run.epoch() for _ in range(3)]
            runs.append((records, run.result()))
    (plain, result), (records, again) = runs
    assert result.log.equals(again.log)
    assert torch.equal(result.model.weight, again.model.weight.cpu())
    assert [(one.mistakes, one.norm) for one in plain] == [(one.mistakes, one.norm) for one in records]
    assert [one.upper for one in plain] == pytest.approx([one.upper for one in records], rel=1e-12)
    if device == "pretend":
        assert len(seen.reads) == 3, seen.reads


def interpret_on_host(patch):
    """Let Triton interpret its program on the memory of the pretend device, without a copy that would count."""
    import triton  # noqa: F401  before it is told to interpret

    patch.setenv("TRITON_INTERPRET", "1")
    patch.setattr(engines, "obstacle", lambda space: None)
    program = engines.program(True)
    learn = program.learn

    class OnHost:
        def __getitem__(self, grid):
            return lambda *args, **options: learn[grid](
                *(pretend.to_host(value) if isinstance(value, torch.Tensor) else value for value in args), **options
            )

    patch.setattr(program, "learn", OnHost())
