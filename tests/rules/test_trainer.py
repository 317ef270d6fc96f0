"""The rule: the figures it must reach, a plain loop over integers in every convention, dialects beside their libraries."""

import itertools
import pickle
import warnings

import numpy as np
import oracles
import pytest
import torch
from mlxtend.classifier import Perceptron as MlxtendPerceptron
from river import linear_model
from scipy.sparse import csr_array
from sklearn.linear_model import Perceptron as SklearnPerceptron

import torchperc as tp
from torchperc import Verdict

AND, XOR = tp.data.gate("AND"), tp.data.gate("XOR")


def fit(X, y, net=None, **options):
    net = net or tp.Perceptron(len(X[0]))
    result = tp.RuleTrainer(**options).fit(net, X, y)
    return net, result


def state(net):
    """(bias, weights) of each unit as plain numbers."""
    bias = [0.0] * len(net.weight) if net.bias is None else net.bias.tolist()
    return tuple((b, tuple(w)) for b, w in zip(bias, net.weight.tolist(), strict=True))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    ("gate", "tie", "expected", "mistakes", "epochs", "verdict", "cycle"),
    [
        ("AND", "update", (-4, (3, 2)), 18, 9, "SEPARATED", None),
        ("AND", "sign", (-3, (2, 1)), 11, 6, "SEPARATED", None),
        ("XOR", "update", (0, (0, 0)), 4, 1, "CYCLING", (0, 1)),
        ("XOR", "sign", (0, (-1, 0)), 10, 3, "CYCLING", (2, 3)),
    ],
)
@pytest.mark.parametrize("make", [tp.Perceptron, lambda width, dtype: torch.nn.Linear(width, 1, dtype=dtype)])
def test_gates(make, gate, tie, expected, mistakes, epochs, verdict, cycle, dtype):
    net = make(2, dtype=dtype).requires_grad_(False)
    for values in net.parameters():
        values.zero_()
    net, result = fit(*tp.data.gate(gate, dtype=dtype), net, tie=tie)
    assert (state(net), result.mistakes, result.epochs) == ((expected,), mistakes, epochs)
    assert (result.verdict.name, result.cycle, result.period) == (verdict, cycle, None if cycle is None else 1)
    assert [record.mistakes for record in result.history] == result.log.mistakes_by_epoch().tolist()


@pytest.mark.parametrize("options", [{}, {"order": "shuffled"}, {"order": "random-mistake"}, {"bias_step": "radius"}])
def test_strict_ties_from_zero_warn_and_do_not_claim_to_separate(options):
    with pytest.warns(UserWarning, match="nothing will ever move"):
        net, result = fit(*AND, tie="strict", max_epochs=5, **options)
    assert (state(net), result.mistakes) == (((0, (0, 0)),), 0)
    assert result.verdict is not Verdict.SEPARATED


def test_strict_ties_from_elsewhere_do_not_warn():
    net = tp.Perceptron(2, init="normal", seed=3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _, result = fit(*AND, net, tie="strict")
    assert result.verdict is Verdict.SEPARATED
    assert torch.equal(net.predict(AND[0]), AND[1])


CONVENTIONS = list(itertools.product(("update", "sign", "strict"), ("unit", "radius", "none"), (None, 3)))


def make(kind, X):
    return {"list": X, "numpy": np.array(X), "torch": torch.tensor(X), "csr": csr_array(np.array(X, dtype=float))}[kind]


@pytest.mark.parametrize(("tie", "bias_step", "classes"), CONVENTIONS)
@pytest.mark.parametrize(
    ("kind", "dtype"),
    [("list", torch.float32), ("numpy", torch.float64), ("torch", torch.float32), ("csr", torch.float64)],
)
def test_every_convention_is_the_plain_loop(tie, bias_step, classes, kind, dtype):
    for seed in range(6):
        X, y = oracles.integers(seed, classes=classes)
        beta = {"unit": 1, "none": 0, "radius": max(sum(v * v for v in x) for x in X)}[bias_step]
        start = tuple((1 - 2 * k, (k, -1, 2)) for k in range(classes or 1))
        net = tp.Perceptron(3, dtype=dtype) if classes is None else tp.MulticlassPerceptron(3, classes, dtype=dtype)
        with torch.no_grad():
            net.weight.copy_(torch.tensor([w for _, w in start]))
            net.bias.copy_(torch.tensor([b for b, _ in start]))
        trainer = tp.RuleTrainer(max_epochs=8, tie=tie, bias_step=bias_step, lr=2)
        run = oracles.perceptron(X, y, classes=classes, tie=tie, beta=beta, lr=2, passes=8, start=start)
        result = trainer.fit(net, make(kind, X), y)
        length = len(result.log)
        assert [tuple(entry) for entry in result.log] == run.entries[:length]
        assert state(net) == run.states[length]
        # the plain loop does not notice cycles; the run may end earlier, but only by noticing one
        assert length == len(run.entries) or result.verdict is Verdict.CYCLING


@pytest.mark.parametrize("classes", [None, 2, 3, 4])
@pytest.mark.parametrize("margin", [0, 1, 7])
def test_margins_and_weights_are_the_plain_loop(margin, classes):
    for seed in range(5):
        X, y = oracles.integers(seed, classes=classes)
        both = weights = by_class = None
        if not margin:
            weights, by_class = [1 + (i * 7) % 3 for i in range(len(X))], {label: 1 + label % 2 for label in set(y)}
            both = [w * by_class[label] for w, label in zip(weights, y, strict=True)]
        net = tp.Perceptron(3) if classes is None else tp.MulticlassPerceptron(3, classes)
        trainer = tp.RuleTrainer(max_epochs=5, margin=margin, class_weight=by_class)
        result = trainer.fit(net, X, y, sample_weight=weights)
        run = oracles.perceptron(X, y, classes=classes, margin=margin, weights=both, passes=result.epochs)
        assert [tuple(entry) for entry in result.log] == run.entries
        assert state(net) == run.last


def test_a_weight_of_zero_leaves_the_sample_out():
    X, y = oracles.integers(1, count=10)
    weights = [0, 1, 1, 0, 1, 1, 1, 1, 0, 1]
    kept = [i for i, w in enumerate(weights) if w]
    net = tp.Perceptron(3)
    result = tp.RuleTrainer(max_epochs=6, select="averaged").fit(net, X, y, sample_weight=weights)
    without, alone = tp.Perceptron(3), tp.RuleTrainer(max_epochs=6, select="averaged")
    expected = alone.fit(without, [X[i] for i in kept], [y[i] for i in kept])
    assert torch.equal(net.weight, without.weight)
    assert torch.equal(net.bias, without.bias)
    assert result.log.sample.tolist() == [kept[i] for i in expected.log.sample.tolist()]
    assert result.verdict is expected.verdict


def test_balanced_class_weights():
    y = [1, -1, -1, -1]
    result = tp.RuleTrainer(max_epochs=1, class_weight="balanced").fit(tp.Perceptron(2), AND[0], y)
    sizes = {result.log.y[e.sample].item(): abs(e.coef) for e in result.log}
    assert sizes == {1: 4 / (2 * 1), -1: 4 / (2 * 3)}


def test_explicit_orders_are_followed():
    X, y = oracles.integers(2, count=6)
    order = [5, 0, 3, 3, 1, 2, 4]
    result = fit(X, y, order=order, max_epochs=4)[1]
    assert [tuple(entry) for entry in result.log] == oracles.perceptron(
        X, y, order=[order], passes=result.epochs
    ).entries
    X, y = oracles.integers(3, count=5)
    table = np.array([[0, 1, 2, 3, 4], [4, 3, 2, 1, 0], [2, 0, 4, 1, 3]])
    _, result = fit(X, y, order=table, max_epochs=3)
    run = oracles.perceptron(X, y, order=table.tolist(), passes=result.epochs)
    assert [tuple(entry) for entry in result.log] == run.entries
    with pytest.raises(ValueError, match="max_epochs=4"):
        fit(X, y, order=table, max_epochs=4)


def test_an_order_that_leaves_samples_out_does_not_claim_to_separate_them():
    _, result = fit(*AND, order=[0, 1], max_epochs=10)
    assert result.verdict is Verdict.CYCLING
    assert not torch.equal(result.predict(AND[0]), AND[1])


def test_shuffled_is_a_seeded_permutation_of_each_epoch():
    X, y = oracles.integers(4, count=9)
    generator = torch.Generator().manual_seed(5)
    order = [torch.randperm(9, generator=generator).tolist() for _ in range(6)]
    runs = [fit(X, y, order="shuffled", seed=5, max_epochs=6)[1] for _ in range(2)]
    assert (runs[0].verdict, runs[0].epochs) == (Verdict.BUDGET, 6)
    assert "BUDGET after 6 epochs" in runs[0].sentence
    run = oracles.perceptron(X, y, order=order, passes=runs[0].epochs)
    assert [tuple(entry) for entry in runs[0].log] == run.entries
    assert runs[0].log.equals(runs[1].log)
    assert not runs[0].log.equals(fit(X, y, order="shuffled", seed=6, max_epochs=6)[1].log)


def test_random_mistake_picks_only_mistakes_until_none_is_left():
    X, y = AND
    for seed in range(10):
        net, result = fit(X, y, order="random-mistake", seed=seed)
        assert result.verdict is Verdict.SEPARATED
        assert torch.equal(net.predict(X), y)
        assert result.epochs == len(result.log) // 4 + 1  # ends when nothing is left to pick, not an epoch later
        for t, entry in enumerate(result.log):
            before = result.log.state_at(t).scores(X)
            assert y[entry.sample] * before[entry.sample] <= 0
        assert result.log.step.tolist() == list(range(len(result.log)))  # each step is a mistake
    kinds = {tuple(fit(X, y, order="random-mistake", seed=seed)[1].log.sample.tolist()) for seed in range(10)}
    assert len(kinds) > 1


def test_inputs_are_left_alone():
    X, y, weights = AND[0].numpy().copy(), AND[1].numpy().copy(), np.ones(4)
    copies = X.copy(), y.copy(), weights.copy()
    tp.RuleTrainer(select="pocket").fit(tp.Perceptron(2), X, y, sample_weight=weights, validation=(X, y))
    assert all(np.array_equal(a, b) for a, b in zip((X, y, weights), copies, strict=True))


@pytest.mark.parametrize("select", ["last", "averaged", "voted", "pocket"])
def test_nothing_to_pick_leaves_the_weights(select):
    net = tp.Perceptron(2)
    net.load_state_dict({"weight": torch.tensor([[1.0, 0.0]]), "bias": torch.zeros(1)})
    result = tp.RuleTrainer(order="random-mistake", select=select).fit(net, [[1, 0], [-1, 0]], [1, -1])
    assert result.verdict is Verdict.SEPARATED
    assert net.weight.tolist() == [[1, 0]]
    assert result.predict([[1, 0], [-1, 0]]).tolist() == [1, -1]


def test_a_clean_row_that_leaves_samples_out_is_no_standstill():
    net = tp.Perceptron(2)
    net.load_state_dict({"weight": torch.tensor([[1.0, 0.0]]), "bias": torch.zeros(1)})
    result = tp.RuleTrainer(order=[[0, 0], [1, 1]], max_epochs=2).fit(net, [[1, 0], [2, 0]], [1, -1])
    assert result.epochs == 2
    assert result.mistakes > 0


def test_a_weight_of_zero_is_left_out_of_the_radius_and_the_balance():
    X, y, weights = [[1, 0], [-1, 0], [10, 10]], [1, -1, 1], [1, 1, 0]
    trainer = tp.RuleTrainer(bias_step="radius", class_weight="balanced")
    result = trainer.fit(tp.Perceptron(2), X, y, sample_weight=weights)
    assert result.log.problem.bias_step == 1
    assert {abs(entry.coef) for entry in result.log} == {1.0}


def test_margins_mean_the_same_to_every_test():
    X = np.array([[1.0], [-1.0]], dtype=np.float32)
    options = {"lr": 0.05, "margin": 0.1}
    primal = tp.RuleTrainer(**options).fit(tp.Perceptron(1, bias=False), X, [1, -1])
    dual = tp.RuleTrainer(**options, kernel="linear").fit(None, X, [1, -1])
    picked = tp.RuleTrainer(**options, order="random-mistake").fit(tp.Perceptron(1, bias=False), X, [1, -1])
    assert primal.mistakes == dual.mistakes == picked.mistakes


def test_trainers_are_pickled_without_their_streams():
    trainer = tp.RuleTrainer(select="averaged", lr=0.5)
    trainer.partial_fit(tp.Perceptron(1), [[1.0]], [1])
    copy = pickle.loads(pickle.dumps(trainer))
    assert copy.lr == 0.5
    copy.partial_fit(tp.Perceptron(1), [[1.0]], [1])


def noisy(count=300, width=6, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((count, width))
    return X, np.where(X[:, 0] + 0.3 * rng.standard_normal(count) > 0, 1, -1)


@pytest.mark.parametrize("engine", ["reference", "compiled"])
def test_a_run_that_goes_back_saves_what_it_went_back_to(engine):
    X, y = noisy()
    run, other = (tp.RuleTrainer(6, engine=engine).start(tp.Perceptron(6), X, y) for _ in range(2))
    run.epoch()
    saved = run.state_dict()
    run.epoch()
    run.load_state_dict(saved)
    other.load_state_dict(run.state_dict())
    for each in (run, other):
        while each.verdict is None:
            each.epoch()
    assert run.log().equals(other.log())
    assert len(other.log()) == sum(record.mistakes for record in other.history)


@pytest.mark.parametrize("second", ["reference", "compiled"])
@pytest.mark.parametrize("first", ["reference", "compiled"])
def test_cycles_of_many_weights_are_known_to_the_engine_that_goes_on(first, second):
    X = np.zeros((6, 5000))
    X[:, :3] = [[0, 0, 1], [0, 1, 1], [1, 0, 1], [1, 1, 1], [1, 2, 0], [2, 1, 0]]
    y = np.array([-1, 1, 1, -1, 1, -1])

    def start(engine):
        return tp.RuleTrainer(60, engine=engine).start(tp.Perceptron(5000, dtype=torch.float64), X, y)

    before, run = start(first), start(second)
    before.epoch()
    run.load_state_dict(before.state_dict())
    while run.verdict is None:
        run.epoch()
    assert (run.verdict.name, run.cycle) == ("CYCLING", (1, 2))


def test_a_run_is_not_resumed_with_other_conventions_or_by_another_version():
    X, y = noisy()
    run = tp.RuleTrainer(6).start(tp.Perceptron(6), X, y)
    run.epoch()
    for options, name in (({"lr": 0.5}, "scale=1.0"), ({"tie": "sign"}, "tie='update'"), ({"margin": 2}, "margin=0.0")):
        other = tp.RuleTrainer(6, **options).start(tp.Perceptron(6), X, y)
        with pytest.raises(ValueError, match=name):
            other.load_state_dict(run.state_dict())
    state = run.state_dict()
    del state["counted"]
    with pytest.raises(ValueError, match="earlier version"):
        run.load_state_dict(state)


SEEDS = range(8)


def ours(dialect, X, y, start=None, **options):
    net = tp.Perceptron(len(X[0]), dtype=torch.float64)
    if start is not None:
        net.load_state_dict(start)
    return net, dialect.trainer(**options).fit(net, X, y)


@pytest.mark.parametrize("seed", SEEDS)
def test_scikit_learn(seed):
    X, y = oracles.integers(seed, count=30, width=5)
    for epochs in (1, 2, 7):
        net, result = ours(tp.dialects.SCIKIT_LEARN, X, y, max_epochs=epochs)
        theirs = SklearnPerceptron(shuffle=False, tol=None, max_iter=epochs).fit(np.array(X, dtype=float), y)
        if result.epochs == epochs or result.verdict.name == "SEPARATED":
            assert net.weight.tolist() == theirs.coef_.tolist()
            assert net.bias.tolist() == theirs.intercept_.tolist()


@pytest.mark.parametrize("seed", SEEDS)
def test_mlxtend(seed):
    """Its start weights and its orders handed over; its step is η·(y − ŷ), which is 2η·y at a mistake."""
    X, y = oracles.integers(seed, count=20, width=4)
    data, zero_one = np.array(X, dtype=float), (np.array(y) + 1) // 2
    eta, epochs = 0.25, 6
    theirs = MlxtendPerceptron(eta=eta, epochs=epochs, random_seed=seed)
    bias, weight = theirs._init_params(weights_shape=(4, 1), bias_shape=(1,), random_seed=seed)
    scale = 2.0**-10  # round their random start to a grid, so that every sum is exact
    bias, weight = (np.round(value / scale) * scale for value in (bias, weight))
    theirs._init_params = lambda **_: (bias.copy(), weight.copy())
    theirs.fit(data, zero_one)
    generator = np.random.RandomState(seed)
    orders = np.array([generator.permutation(20) for _ in range(epochs)])
    start = {"weight": torch.tensor(weight.T), "bias": torch.tensor(bias)}
    net, result = ours(tp.dialects.MLXTEND, X, y, start, lr=2 * eta, order=orders, max_epochs=epochs)
    assert net.weight.tolist() == theirs.w_.T.tolist()
    assert net.bias.tolist() == theirs.b_.tolist()
    assert [record.mistakes for record in result.history] == theirs.cost_[: result.epochs]


@pytest.mark.parametrize("seed", SEEDS)
def test_river(seed):
    X, y = oracles.integers(seed, count=25, width=3)
    theirs = linear_model.Perceptron()
    net, trainer = tp.Perceptron(3, dtype=torch.float64), tp.dialects.RIVER.trainer()
    for x, label in zip(X, y, strict=True):
        theirs.learn_one(dict(enumerate(x)), label == 1)
        trainer.partial_fit(net, [x], [label])
        assert net.weight[0].tolist() == [theirs.weights.get(j, 0.0) for j in range(3)]
        assert net.bias.item() == theirs.intercept


@pytest.mark.parametrize("dialect", tp.dialects.ALL, ids=lambda dialect: dialect.name)
def test_every_dialect_trains(dialect):
    X, y = tp.data.gate("AND")
    net = tp.Perceptron(2, init="normal", seed=3)  # not zero, where note E would stand still
    result = dialect.trainer(max_epochs=50).fit(net, X, y, validation=(X, y))
    assert result.verdict.name == "SEPARATED"
    assert torch.equal(result.predict(X), y)
