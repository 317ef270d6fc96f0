"""Online learning: a stream in chunks equals one pass; averages and votes go over the whole stream."""

import pickle
import tracemalloc

import numpy as np
import oracles
import pytest
import torch
from scipy.sparse import csr_array

import torchperc as tp

CHUNKS = [(0, 1), (1, 2), (2, 6), (6, 7), (7, 12)]


@pytest.mark.parametrize("classes", [None, 3])
@pytest.mark.parametrize("select", ["last", "averaged"])
def test_a_stream_is_one_pass(classes, select):
    X, y = oracles.integers(9, classes=classes)
    net, trainer = (
        tp.Perceptron(3) if classes is None else tp.MulticlassPerceptron(3, classes),
        tp.RuleTrainer(select=select),
    )
    results = [trainer.partial_fit(net, X[a:b], y[a:b]) for a, b in CHUNKS]
    run = oracles.perceptron(X, y, classes=classes, passes=1)
    expected = run.last if select == "last" else oracles.mean_state(run)
    assert torch.equal(net.weight, torch.tensor([[float(v) for v in w] for _, w in expected]).float())
    assert torch.equal(net.bias, torch.tensor([float(b) for b, _ in expected]).float())
    assert sum(result.mistakes for result in results) == len(run.entries)
    assert torch.equal(results[-1].scores(X), net(torch.tensor(X, dtype=torch.float32)))


NOT_ONLINE = [
    *({"select": select} for select in ("voted", "pocket", "best-validation")),
    {"kernel": "rbf"}, {"prove": True}, {"order": "shuffled"}, {"order": [0]}, {"bias_step": "radius"}, {"class_weight": "balanced"},
]  # fmt: skip


@pytest.mark.parametrize("options", NOT_ONLINE, ids=str)
def test_what_a_stream_cannot_do(options):
    name, value = next(iter(options.items()))
    with pytest.raises(
        ValueError, match=f"{name}='{value}' needs all .*partial_fit" if name == "select" else "partial_fit"
    ):
        tp.RuleTrainer(**options).partial_fit(tp.Perceptron(1), [[1.0]], [1])


def test_weights_from_outside_begin_the_stream_anew():
    X, y = oracles.integers(9)
    net, trainer = tp.Perceptron(3), tp.RuleTrainer(select="averaged")
    trainer.partial_fit(net, X[:6], y[:6])
    net.reset_parameters()
    trainer.partial_fit(net, X[6:], y[6:])
    fresh = tp.Perceptron(3)
    tp.RuleTrainer(select="averaged").partial_fit(fresh, X[6:], y[6:])
    assert torch.equal(net.weight, fresh.weight)


def test_sample_weights_in_a_stream():
    net = tp.Perceptron(1)
    tp.RuleTrainer().partial_fit(net, [[2.0], [3.0]], [1, -1], sample_weight=[4, 0])
    assert net.weight.item() == 8


def test_a_net_in_another_type_begins_a_new_stream():
    net, trainer = tp.Perceptron(1), tp.RuleTrainer()
    trainer.partial_fit(net, [[2.0]], [1])
    trainer.partial_fit(net.double(), [[1.0]], [-1])
    assert net.weight.item() == 1


@pytest.mark.parametrize("kind", ["list", "numpy", "backwards", "integers", "tensor", "csr"])
@pytest.mark.parametrize(
    ("classes", "options"),
    [(None, {"lr": 0.1, "select": "averaged"}), (None, {"tie": "sign", "bias_step": "none"}), (3, {"margin": 0.5})],
)
def test_a_sample_at_a_time_is_learned_as_one_chunk(kind, classes, options):
    rng = np.random.default_rng(len(kind))
    X = rng.integers(-3, 4, (40, 5)) / (1 if kind == "integers" else 10)
    y = rng.integers(0, 3, 40) if classes else rng.choice([-1, 1], 40)
    given = {
        "list": lambda x: x.tolist(),
        "backwards": lambda x: x[:, ::-1].copy()[:, ::-1],
        "integers": lambda x: x.astype(np.int32),
        "tensor": torch.from_numpy,
        "csr": csr_array,
    }.get(kind, np.asarray)
    one, whole = ((tp.Perceptron(5) if classes is None else tp.MulticlassPerceptron(5, 3)).double() for _ in range(2))
    trainer = tp.RuleTrainer(**options)
    results = [trainer.partial_fit(one, given(X[i : i + 1]), y[i : i + 1]) for i in range(40)]
    expected = trainer.partial_fit(whole, given(X), y)
    assert [result.mistakes for result in results] == [int(i in expected.log.sample) for i in range(40)]
    torch.testing.assert_close(one.weight, whole.weight, rtol=1e-14, atol=1e-15)
    torch.testing.assert_close(one.bias, whole.bias, rtol=1e-14, atol=1e-15)
    last = results[-1].log
    assert torch.equal(last.last().weight, results[-1].model.weight) or options.get("select") == "averaged"


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.float32])
def test_one_label_of_any_type(dtype):
    net = tp.Perceptron(2)
    assert tp.RuleTrainer().partial_fit(net, [[2.0, 1.0]], np.array([1], dtype)).mistakes == 1
    assert net.weight.tolist() == [[2, 1]]


def test_an_average_goes_on_with_another_learning_rate():
    net, trainer = tp.Perceptron(1, dtype=torch.float64), tp.RuleTrainer(lr=0.5, select="averaged")
    trainer.partial_fit(net, [[2.0]], [1])  # w = 1
    trainer.lr = 0.25
    trainer.partial_fit(net, [[1.0]], [-1])  # w = 0.75
    assert net.weight.item() == (1 + 0.75) / 2


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


def test_torch_hears_of_single_updates():
    net, trainer = tp.Perceptron(2), tp.RuleTrainer()
    for label in (1, -1):
        trainer.partial_fit(net, [[1.0, 2.0]], [label])
    loss = net.weight.square().sum()
    assert trainer.partial_fit(net, [[1.0, 3.0]], [-1]).mistakes + trainer.partial_fit(net, [[1.0, 3.0]], [1]).mistakes
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


@pytest.mark.slow
@pytest.mark.parametrize("select", ["last", "averaged"])
def test_a_stream_takes_no_more_memory_as_it_goes_on(select):
    net, trainer = tp.Perceptron(20), tp.RuleTrainer(select=select)
    X = np.random.default_rng(0).standard_normal((50, 1, 20))
    y = [[1], [-1]] * 25

    def learn(times):
        for _ in range(times):
            for x, label in zip(X, y, strict=True):
                trainer.partial_fit(net, x, label)

    learn(2)
    tracemalloc.start()
    learn(120)  # until Python's own lists of free objects are full
    before = tracemalloc.get_traced_memory()[0]
    learn(20)
    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert grown < 2000  # a thousand samples of 160 bytes


def test_a_chunk_that_fails_leaves_the_stream_as_it_was():
    X, y = np.array([[1e38, 0.0], [1.0, 2.0]], np.float32), [1, -1]
    nets, trainers = [tp.Perceptron(2), tp.Perceptron(2)], [tp.RuleTrainer(select="averaged") for _ in range(2)]
    for net, trainer in zip(nets, trainers, strict=True):
        trainer.partial_fit(net, X[1:], y[1:])
    with pytest.raises(ValueError, match="overflow"):
        trainers[0].partial_fit(nets[0], np.repeat(X[:1], 9, 0), [1, -1] * 4 + [1], sample_weight=[1e1] * 9)
    for net, trainer in zip(nets, trainers, strict=True):
        trainer.partial_fit(net, [[2.0, 1.0]], [1])
    assert torch.equal(nets[0].weight, nets[1].weight)
    assert torch.equal(nets[0].bias, nets[1].bias)


def test_a_log_is_pickled_before_its_columns_are_used():
    log = tp.RuleTrainer(lr=0.5).fit(tp.Perceptron(2), *tp.data.gate("AND")).log
    assert pickle.loads(pickle.dumps(log)).equals(log)
