"""Online learning: a stream in chunks equals one pass; averages and votes go over the whole stream."""

import oracles
import pytest
import torch

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
