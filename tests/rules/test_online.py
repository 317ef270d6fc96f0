"""Online learning: a stream in chunks equals one pass; averages and votes go over the whole stream."""

import subprocess
import sys
import tracemalloc

import numpy as np
import oracles
import pytest
import torch
from scipy.sparse import csr_array

import torchperc as tp

CHUNKS = [(0, 1), (1, 2), (2, 6), (6, 7), (7, 12)]


def streamed(select, classes=None):
    X, y = oracles.integers(9, classes=classes)
    net = tp.Perceptron(3) if classes is None else tp.MulticlassPerceptron(3, classes)
    trainer = tp.RuleTrainer(select=select)
    results = [trainer.partial_fit(net, X[a:b], y[a:b]) for a, b in CHUNKS]
    return X, net, results, oracles.perceptron(X, y, classes=classes, passes=1)


@pytest.mark.parametrize("classes", [None, 3])
def test_a_stream_is_one_pass(classes):
    _, net, results, run = streamed("last", classes)
    assert [w.tolist() for w in net.weight] == [list(w) for _, w in run.last]
    assert net.bias.tolist() == [b for b, _ in run.last]
    assert sum(result.mistakes for result in results) == len(run.entries)


@pytest.mark.parametrize("classes", [None, 3])
def test_averages_go_over_the_stream(classes):
    X, net, results, run = streamed("averaged", classes)
    exact = oracles.mean_state(run)
    assert torch.equal(net.weight, torch.tensor([[float(v) for v in w] for _, w in exact], dtype=torch.float64).float())
    assert torch.equal(net.bias, torch.tensor([float(b) for b, _ in exact], dtype=torch.float64).float())
    assert torch.equal(results[-1].scores(X), net(torch.tensor(X, dtype=torch.float32)))


@pytest.mark.parametrize("classes", [None, 3])
def test_votes_go_over_the_stream(classes):
    X, _, results, run = streamed("voted", classes)
    scores = results[-1].scores(X).reshape(len(X), -1).tolist()
    assert scores == [oracles.votes(run, x, classes) for x in X]


def test_weights_from_outside_begin_the_stream_anew():
    X, y = oracles.integers(9)
    net, trainer = tp.Perceptron(3), tp.RuleTrainer(select="averaged")
    trainer.partial_fit(net, X[:6], y[:6])
    net.reset_parameters()
    trainer.partial_fit(net, X[6:], y[6:])
    fresh = tp.Perceptron(3)
    tp.RuleTrainer(select="averaged").partial_fit(fresh, X[6:], y[6:])
    assert torch.equal(net.weight, fresh.weight)


def test_two_nets_are_two_streams():
    X, y = oracles.integers(9)
    one, two, trainer = tp.Perceptron(3), tp.Perceptron(3), tp.RuleTrainer(select="averaged")
    for i in range(12):
        trainer.partial_fit(one, [X[i]], [y[i]])
        trainer.partial_fit(two, [X[i]], [y[i]])
    assert torch.equal(one.weight, two.weight)


def test_one_class_is_enough_for_a_chunk():
    result = tp.RuleTrainer().partial_fit(tp.Perceptron(2), [[1.0, 2.0]], [1])
    assert result.mistakes == 1


def test_sample_weights_in_a_stream():
    net = tp.Perceptron(1)
    tp.RuleTrainer().partial_fit(net, [[2.0], [3.0]], [1, -1], sample_weight=[4, 0])
    assert net.weight.item() == 8


@pytest.mark.parametrize("select", ["pocket", "best-validation"])
def test_what_a_stream_cannot_select(select):
    with pytest.raises(ValueError, match=f"select='{select}'"):
        tp.RuleTrainer(select=select).partial_fit(tp.Perceptron(1), [[1.0]], [1])


@pytest.mark.parametrize(
    "options",
    [{"kernel": "rbf"}, {"order": "shuffled"}, {"order": [0]}, {"bias_step": "radius"}, {"class_weight": "balanced"}],
)
def test_what_else_a_stream_cannot_do(options):
    with pytest.raises(ValueError, match="partial_fit"):
        tp.RuleTrainer(**options).partial_fit(tp.Perceptron(1), [[1.0]], [1])


def test_a_failed_chunk_changes_nothing():
    net, trainer = tp.Perceptron(1), tp.RuleTrainer(select="averaged")
    trainer.partial_fit(net, [[2.0]], [1])
    before = net.weight.clone()
    with pytest.raises(ValueError, match="nan"):
        trainer.partial_fit(net, [[float("nan")]], [1])
    assert torch.equal(net.weight, before)
    trainer.partial_fit(net, [[1.0]], [-1])
    assert net.weight.item() == (2 + 1) / 2


def test_a_net_in_another_type_begins_a_new_stream():
    net, trainer = tp.Perceptron(1), tp.RuleTrainer()
    trainer.partial_fit(net, [[2.0]], [1])
    trainer.partial_fit(net.double(), [[1.0]], [-1])
    assert net.weight.item() == 1


# --- single samples, which are learned by a path of their own ---


def slowly(trainer, net, X, y):
    """The same call by the general path."""
    trainer._streams[net]._settle() if net in trainer._streams else None
    return trainer.partial_fit(net, X, y)


def same_result(one, other, X, logged=True):
    assert (one.verdict, one.mistakes, one.epochs, one.select) == (
        other.verdict,
        other.mistakes,
        other.epochs,
        other.select,
    )
    assert (one.history, one.cycle, one.certificate) == (other.history, other.cycle, other.certificate)
    assert one.history[0].upper == other.history[0].upper
    for a, b in ((one.model, other.model), (one.single, other.single)):
        assert torch.equal(a.weight, b.weight)
        assert torch.equal(a.bias, b.bias)
    assert torch.equal(one.scores(X), other.scores(X))
    assert torch.equal(one.predict(X), other.predict(X))
    if logged:
        assert repr(one) == repr(other)
        assert one.log.equals(other.log)
        assert torch.equal(one.log.last().weight, other.log.last().weight)
        assert torch.equal(one.log.averaged().weight, other.log.averaged().weight)


def forms(kind, x, dtype):
    array = np.array([x], dtype=np.float32 if dtype == torch.float32 else np.float64)
    return {
        "list": [list(x)],
        "numpy": array,
        "other numpy": np.array([x], dtype=np.float64)[:, ::-1].copy()[:, ::-1],
        "integers": np.array([x]).round().astype(np.int32),
        "tensor": torch.from_numpy(array),
        "csr": csr_array(array),
    }[kind]


@pytest.mark.parametrize("kind", ["list", "numpy", "other numpy", "integers", "tensor", "csr"])
@pytest.mark.parametrize(
    ("classes", "dtype", "options"),
    [
        (None, torch.float32, {}),
        (None, torch.float64, {"lr": 0.1, "select": "averaged"}),
        (None, torch.float64, {"tie": "sign", "margin": 0, "bias_step": "none"}),
        (3, torch.float32, {"margin": 0.5, "lr": 0.3}),
        (3, torch.float64, {"select": "averaged"}),
    ],
)
def test_a_sample_at_a_time_is_learned_as_any_chunk(kind, classes, dtype, options):
    generator = np.random.default_rng(len(kind))
    X = generator.integers(-3, 4, (40, 5)) / (1 if kind == "integers" else 10)
    y = generator.integers(0, 3, 40) if classes else generator.choice([-1, 1], 40)
    make = (
        (lambda: tp.Perceptron(5, dtype=dtype))
        if classes is None
        else lambda: tp.MulticlassPerceptron(5, 3, dtype=dtype)
    )
    (quick, slow), trainers = (make(), make()), (tp.RuleTrainer(**options), tp.RuleTrainer(**options))
    other, bare = make(), tp.RuleTrainer(log="off", **options)
    fast = 0
    for i, (x, label) in enumerate(zip(X, y, strict=True)):
        given, own = forms(kind, x.tolist(), dtype), [int(label)] if i % 2 else np.array([label])
        one, two = trainers[0].partial_fit(quick, given, own), slowly(trainers[1], slow, given, own)
        three = bare.partial_fit(other, given, own)
        fast += type(one) is not type(two)
        same_result(one, two, X, logged=i < 12)
        same_result(three, two, X, logged=False)
        for net in (quick, other):
            assert torch.equal(net.weight, slow.weight)
            assert torch.equal(net.bias, slow.bias)
    assert fast == 39  # all but the first
    state, expected = (trainer._streams[net].state_dict() for trainer, net in zip(trainers, (quick, slow), strict=True))
    assert str(state) == str(expected)
    trainers[0].partial_fit(quick, X[:7], y[:7])  # a chunk goes on from there
    trainers[1].partial_fit(slow, X[:7], y[:7])
    assert torch.equal(quick.weight, slow.weight)


def test_old_results_stay_as_they_were():
    net, trainer = tp.Perceptron(2), tp.RuleTrainer()
    x = np.array([[1.0, 2.0]], dtype=np.float32)
    results = []
    for label in (1, -1, 1, -1, 1):
        results.append((trainer.partial_fit(net, x, [label]), net.weight.clone()))
        x += 1
    for result, weight in results[1:]:  # the log of the first, as that of any chunk, has the samples themselves
        assert torch.equal(result.model.weight, weight)
        assert torch.equal(result.log.last().weight, weight)
    assert [result.log.space.rows.dense().tolist() for result, _ in results][1] == [[2.0, 3.0]]


BAD = [
    ([[float("nan"), 1.0]], [1]), ([[1e300, 1.0]], [1]), ([[1.0]], [1]), ([[1.0, 2.0]], [2]), ([[1.0, 2.0]], [True]),
    ([["a", "b"]], [1]), ([[1.0, 2.0]], [1, 1]), ([[1.0, 2.0]], []), (torch.zeros(1, 2, dtype=torch.float64), [1]),
    ([[1.0, [2.0]]], [1]), (np.array([[2**40 + 1, 0]]), [1]), (np.array([[1j, 0]]), [1]), ([[1.0, 2.0]], [0.5]),
    ([[1.0, 2.0]], [None]), (None, [1]), ([[1.0, 2.0]], 1),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(BAD)))
def test_bad_samples_get_the_errors_of_a_chunk_and_change_nothing(number):
    net, trainer = tp.Perceptron(2), tp.RuleTrainer(select="averaged")
    for _ in range(3):
        trainer.partial_fit(net, [[1.0, 2.0]], [1])
        trainer.partial_fit(net, [[2.0, 1.0]], [-1])
    fresh, before = tp.Perceptron(2), net.weight.clone()
    messages = []
    for each, by in ((net, trainer), (fresh, tp.RuleTrainer(select="averaged"))):
        with pytest.raises((TypeError, ValueError)) as caught:
            by.partial_fit(each, *BAD[number])
        messages.append((type(caught.value), str(caught.value)))
    assert messages[0] == messages[1]
    assert torch.equal(net.weight, before)


def test_weights_that_overflow_are_refused_and_left_as_they_were():
    net, trainer = tp.Perceptron(1), tp.RuleTrainer()
    for label in (1, -1, 1):
        trainer.partial_fit(net, [[1.5e19]], [label])
    before = net.weight.clone()
    trainer.lr = 1e25
    with pytest.raises(ValueError, match="the weights overflow"):
        trainer.partial_fit(net, [[1.5e19]], [-1])
    assert torch.equal(net.weight, before)


@pytest.mark.parametrize("how", ["data", "assigned", "in place", "numpy", "loaded", "moved"])
def test_a_net_that_was_changed_between_single_samples_begins_anew(how):
    net, twin = tp.Perceptron(2), tp.Perceptron(2)
    trainer, general = tp.RuleTrainer(select="averaged"), tp.RuleTrainer(select="averaged")
    for each, by, learn in ((net, trainer, tp.RuleTrainer.partial_fit), (twin, general, slowly)):
        for label in (1, -1, 1):
            learn(by, each, [[1.0, 2.0]], [label])
        if how == "data":
            each.weight.data.fill_(3)
        elif how == "assigned":
            each.weight = torch.nn.Parameter(torch.ones(1, 2))
        elif how == "in place":
            with torch.no_grad():
                each.bias.add_(1)
        elif how == "numpy":
            each.weight.detach().numpy()[0, 0] = 7
        elif how == "loaded":
            each.load_state_dict({"weight": torch.ones(1, 2), "bias": torch.ones(1)}, assign=True)
        else:
            each.weight.data = each.weight.data * 2
        for label in (-1, 1, -1):
            learn(by, each, [[2.0, 1.0]], [label])
    assert torch.equal(net.weight, twin.weight)
    assert torch.equal(net.bias, twin.bias)


def test_options_that_were_changed_between_single_samples_count():
    net, twin = tp.Perceptron(2), tp.Perceptron(2)
    one, two = tp.RuleTrainer(), tp.RuleTrainer()
    for number, label in enumerate((1, -1, 1, -1, -1, 1)):
        one.lr = two.lr = 1.0 if number < 3 else 0.25
        one.partial_fit(net, [[1.0, 2.0]], [label])
        slowly(two, twin, [[1.0, 2.0]], [label])
    assert torch.equal(net.weight, twin.weight)
    one.order = "shuffled"
    with pytest.raises(ValueError, match="partial_fit"):
        one.partial_fit(net, [[1.0, 2.0]], [1])


def test_torch_hears_of_single_updates():
    net, trainer = tp.Perceptron(2), tp.RuleTrainer()
    for label in (1, -1):
        trainer.partial_fit(net, [[1.0, 2.0]], [label])
    loss = net.weight.square().sum()
    assert trainer.partial_fit(net, [[1.0, 3.0]], [-1]).mistakes + trainer.partial_fit(net, [[1.0, 3.0]], [1]).mistakes
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


# --- without a log ---


@pytest.mark.parametrize("select", ["last", "averaged"])
@pytest.mark.parametrize("kind", ["two", "three", "joint", "csr"])
@pytest.mark.parametrize("order", ["shuffled", "random-mistake"])
def test_without_a_log_the_rest_of_the_result_is_the_same(select, kind, order):
    X, y = oracles.integers(4, count=30, classes=None if kind == "two" else 3)
    data = csr_array(np.array(X, dtype=np.float64)) if kind == "csr" else X
    make = {"two": lambda: tp.Perceptron(3), "joint": lambda: tp.JointPerceptron(3, 3)}.get(
        kind, lambda: tp.MulticlassPerceptron(3, 3)
    )
    options = {"max_epochs": 4, "select": select, "order": order, "lr": 0.5}
    nets, results = [], []
    for log in ("on", "off"):
        nets.append(make())
        trainer = tp.RuleTrainer(log=log, **options)
        results.append(
            trainer.fit(nets[-1], data, y, validation=(data, y), sample_weight=[1 + i % 3 for i in range(30)])
        )
    on, off = results
    assert torch.equal(nets[0].weight, nets[1].weight)
    assert (on.verdict, on.history, on.mistakes) == (off.verdict, off.history, off.mistakes)
    assert torch.equal(on.scores(X), off.scores(X))
    assert repr(off) == f"UnloggedResult({on.verdict.name}, {on.mistakes} mistakes, select={select!r})"
    assert not hasattr(off, "log")
    with pytest.raises(AttributeError, match="log='on'"):
        _ = off.log


def test_a_run_without_a_log_resumes():
    X, y = oracles.integers(4, count=30)

    def begun():
        return tp.RuleTrainer(6, select="averaged", log="off", order="shuffled").start(tp.Perceptron(3), X, y)

    whole, first, rest = begun(), begun(), begun()
    for _ in range(3):
        first.epoch()
    rest.load_state_dict(first.state_dict())
    for _ in range(6):
        whole.epoch()
    for _ in range(3):
        rest.epoch()
    assert torch.equal(whole.result().model.weight, rest.result().model.weight)
    assert first.state_dict()["mistakes"] == []
    with pytest.raises(ValueError, match="log='on'"):
        rest.load_state_dict(tp.RuleTrainer(6).start(tp.Perceptron(3), X, y).state_dict())
    with pytest.raises(AttributeError, match="log='on'"):
        whole.log()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"select": "voted"}, "select='voted' cannot be used with log='off'"),
        ({"select": "pocket"}, "select='pocket' cannot be used with log='off'"),
        ({"select": "best-validation"}, "select='best-validation' cannot be used with log='off'"),
        ({"kernel": "rbf"}, "kernel='rbf' cannot be used with log='off'"),
        ({"distributed": "exact"}, "distributed='exact' cannot be used with log='off'"),
        ({"log": "of"}, "log='of' is unknown"),
    ],
)
def test_what_needs_the_log_is_refused_without_one(options, message):
    with pytest.raises(ValueError, match=message):
        tp.RuleTrainer(**{"log": "off", **options})


def test_sequences_need_the_log():
    net = tp.sequences.ChainPerceptron(2, 2)
    with pytest.raises(ValueError, match="log='off' is not for a ChainPerceptron"):
        tp.RuleTrainer(log="off").fit(net, [[[1, 0], [0, 1]]], [[0, 1]])


@pytest.mark.slow
@pytest.mark.parametrize("log", ["on", "off"])
@pytest.mark.parametrize("select", ["last", "averaged"])
def test_a_stream_takes_no_more_memory_as_it_goes_on(log, select):
    net, trainer = tp.Perceptron(20), tp.RuleTrainer(log=log, select=select)
    X = np.random.default_rng(0).standard_normal((50, 1, 20))
    y = [[1], [-1]] * 25

    def learn(times):
        for _ in range(times):
            for x, label in zip(X, y, strict=True):
                trainer.partial_fit(net, x, label)

    learn(2)
    tracemalloc.start()
    learn(60)  # until Python's own lists of free objects are full
    before = tracemalloc.get_traced_memory()[0]
    learn(20)
    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert grown < 2000  # a thousand samples of 160 bytes


@pytest.mark.slow
def test_a_stream_in_a_program_of_its_own_becomes_quick():
    """Nothing else has loaded numba there."""
    code = (
        "import numpy as np, torchperc as tp\n"
        "X = np.random.default_rng(0).standard_normal((150, 5)); y = np.where(X[:, 0] > 0, 1, -1)\n"
        "net, trainer = tp.Perceptron(5), tp.RuleTrainer()\n"
        "print([type(trainer.partial_fit(net, X[i : i + 1], y[i : i + 1])).__name__ for i in range(150)][::149])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "['RuleResult', 'SingleResult']\n"
