"""Chains against all tag sequences and autograd: decoding with ties, loss and gradient, the rule, its log and models."""

import copy
import pickle

import brute
import numpy as np
import pytest
import torch
from refusals import refusals

import torchperc as tp
from torchperc import StructuredPerceptronLoss
from torchperc.sequences import ChainPerceptron, PaddedSequences, Sequences, collate, flat_tags
from torchperc.sequences.rule import ChainProblem, ChainWeights


def integers(seed=0, count=10, features=3, longest=4, tags=3, low=0, high=2):
    generator = np.random.default_rng(seed)
    X = brute.sequences(generator, count, features, longest, low, high)
    return X, [generator.integers(0, tags, len(x)).tolist() for x in X]


def entries(log):
    return [(each.sample, each.step, each.predicted) for each in log]


def tensors(model):
    return model.weight, model.transition, model.end


def same(model, weights):
    return [each.tolist() for each in tensors(model)] == [each.tolist() for each in weights]


@pytest.mark.parametrize("layout", ["numbers", "binary"])
@pytest.mark.parametrize("margin", [0, 1, 2])
def test_the_rule_by_brute_force(layout, margin):
    for seed in range(3):
        X, y = integers(seed)
        expected, last, _ = brute.learn(X, y, 3, [range(10)] * 4, margin=margin)
        net, data = ChainPerceptron(3, 3), Sequences.of(X)
        if layout == "binary":
            data = Sequences(data.offsets, data.n_features, data.indptr, data.ids)
        result = tp.RuleTrainer(4, margin=margin).fit(net, data, y)
        assert entries(result.log) == expected
        assert same(net, last)
        assert same(result.log.last(), last)


def test_models_of_a_log():
    X, y = integers(3, 12)
    coefs = [1, 2, 0, 3] * 3
    order = [i for i in range(12) if coefs[i]]
    expected, last, states = brute.learn(X, y, 3, [order] * 4, coefs=coefs)
    net = ChainPerceptron(3, 3, dtype=torch.float64)
    result = tp.RuleTrainer(4, select="averaged").fit(net, X, y, sample_weight=coefs)
    log = result.log
    assert entries(log) == expected
    assert log.coef.tolist() == [coefs[i] for i, _, _ in expected]
    mean = [sum(part) / len(states) for part in zip(*states, strict=True)]  # of integers, so rounded once
    assert same(net, mean)
    assert same(log.averaged(), mean)
    # every state in turn: the start, then the one after each mistake
    every = [[np.zeros_like(each) for each in last], *(states[each.step] for each in log)]
    for t in (0, 1, len(log) // 2, len(log)):
        assert same(log.state_at(t), every[t])
    decided = [[brute.ranked(x @ w[0].T, w[1], w[2])[0][1] for x in X] for w in every]
    errors = [sum(c * (a != tuple(b)) for a, b, c in zip(each, y, coefs, strict=True)) for each in decided]
    assert log.errors().tolist() == errors
    assert same(log.pocket(ratchet="every"), every[int(np.argmin(errors))])
    for select in ("pocket", "last"):
        again = tp.RuleTrainer(4, select=select).fit(ChainPerceptron(3, 3), X, y, sample_weight=coefs)
        assert again.log.equals(log)
        assert [e.tolist() for e in again.predict(X)] == [e.tolist() for e in getattr(log, select)().predict(X)]


def test_verdicts():
    y = integers(count=30)[1]
    X = [np.eye(3)[tags] for tags in y]
    result = tp.RuleTrainer(100).fit(ChainPerceptron(3, 3), X, y)
    assert (result.verdict, result.history[-1].mistakes) == (tp.Verdict.SEPARATED, 0)
    assert [each.tolist() for each in result.predict(X)] == y
    twice = [X[0], X[0]], [y[0], [(tag + 1) % 3 for tag in y[0]]]
    assert tp.RuleTrainer(50).fit(ChainPerceptron(3, 3), *twice).verdict is tp.Verdict.CYCLING
    assert tp.RuleTrainer(2).fit(ChainPerceptron(3, 3), *integers()).verdict is tp.Verdict.BUDGET
    assert tp.RuleTrainer(3, order=[0]).fit(ChainPerceptron(3, 3), X, y).verdict is not tp.Verdict.SEPARATED


def test_each_mistake_is_replayed_once_for_all_averages(monkeypatch):
    X, y = integers(2, 12)
    replay, counts = ChainProblem.replay, []
    monkeypatch.setattr(ChainProblem, "replay", lambda *args: counts.append(len(args[2].sample)) or replay(*args))
    run, net = tp.RuleTrainer(5, select="averaged").start(ChainPerceptron(3, 3), X, y), ChainPerceptron(3, 3)
    while run.verdict is None:
        run.epoch()
        run.write_to(net)
    assert sum(counts) == len(run.log()) > 20
    assert same(net, tensors(run.log().averaged()))


def test_a_run_resumes_exactly(tmp_path):
    X, y = integers(7, 12)
    trainer = tp.RuleTrainer(6, 0.3, order="shuffled", select="averaged", seed=3)
    whole = trainer.fit(ChainPerceptron(3, 3), X, y, validation=(X, y))
    run = trainer.start(ChainPerceptron(3, 3), X, y, validation=(X, y))
    for _ in range(2):
        run.epoch()
    torch.save(run.state_dict(), tmp_path / "run.pt")
    again = trainer.start(ChainPerceptron(3, 3), X, y, validation=(X, y))
    again.load_state_dict(torch.load(tmp_path / "run.pt", weights_only=True))
    while again.verdict is None:
        again.epoch()
    result = again.result()
    assert result.log.equals(whole.log)
    assert (result.history, result.verdict) == (whole.history, whole.verdict)
    assert torch.equal(result.single.weight, whole.single.weight)
    with pytest.raises(ValueError, match="log of a chain run"):
        result.log.save(tmp_path / "log.npz")
    with pytest.raises(ValueError, match="other data"):
        trainer.start(ChainPerceptron(3, 3), X[:5], y[:5]).load_state_dict(run.state_dict())


@pytest.mark.parametrize("select", ["last", "averaged"])
def test_a_stream_is_one_pass(select):
    X, y = integers(8, 15)
    whole = tp.RuleTrainer(1, 0.3, select=select).fit(ChainPerceptron(3, 3), X, y)
    net, trainer = ChainPerceptron(3, 3), tp.RuleTrainer(lr=0.3, select=select)
    results = [trainer.partial_fit(net, X[a:b], y[a:b]) for a, b in ((0, 1), (1, 6), (6, 15))]
    assert sum(result.mistakes for result in results) == len(whole.log)
    assert same(net, tensors(whole.single))
    assert [e.tolist() for e in results[-1].predict(X)] == [e.tolist() for e in whole.predict(X)]


MEANINGLESS = {"class_weight": {0: 2.0}, "bias_step": "unit", "prove": True, "order": "random-mistake"}
MEANINGLESS |= {"tie": "strict", "kernel": "linear", "engine": "reference", "select": "voted"}


@pytest.mark.parametrize("name", MEANINGLESS)
def test_options_that_mean_nothing(name):
    net, (X, y) = ChainPerceptron(3, 3), integers()
    with pytest.raises(ValueError, match=f"{name}=.* is not for sequences"):
        tp.RuleTrainer(1, **{name: MEANINGLESS[name]}).fit(net, X, y)
    assert not net.weight.any()


def test_bad_data():
    X, y = integers()
    trainer, net = tp.RuleTrainer(1), ChainPerceptron(3, 3)
    for arguments, options, says in (
        (([x[:, :2] for x in X], y), {}, "X has 2 features but 3"),
        ((X, y), {"sample_weight": [1.0]}, "sample_weight has 1"),
        ((X, y), {"validation": (X, y[:2])}, "validation y"),
        (([np.full((3, 3), 1e200)] * 2, [[0, 1, 2], [1, 1, 1]]), {}, "overflow"),
    ):
        with pytest.raises(ValueError, match=says):
            trainer.fit(ChainPerceptron(3, 3, dtype=torch.float64), *arguments, **options)
    with pytest.raises(ValueError, match="features and 4 tags"):
        trainer.fit(net, X, y).write_to(ChainPerceptron(3, 4))
    net.weight.data[0, 0] = torch.nan
    with pytest.raises(ValueError, match=r"net\.weight is not finite"):
        trainer.fit(net, X, y)


def net_of(weights, dtype=torch.float64):
    weight, transition, end = weights
    net = ChainPerceptron(weight.shape[1], len(weight), dtype=dtype)
    with torch.no_grad():
        for own, given in ((net.weight, weight), (net.transition, transition), (net.end, end)):
            own.copy_(torch.tensor(given))
    return net


def examples(count=12, features=3, longest=4, tags=3, seed=0):
    generator = np.random.default_rng(seed)
    X = brute.sequences(generator, count, features, longest)
    y = [generator.integers(0, tags, len(x)).tolist() for x in X]
    return brute.weights(generator, features, tags), X, y


@pytest.mark.parametrize("tags", [2, 3, 9])
def test_viterbi_is_the_best_of_all_sequences(tags):
    weights, X, _ = examples(20 if tags < 9 else 6, longest=5 if tags < 9 else 3, tags=tags, seed=tags)
    net, batch = net_of(weights), Sequences.of(X).padded()
    expected = [list(brute.ranked(x @ weights[0].T, *weights[1:])[0][1]) for x in X]
    assert [tags.tolist() for tags in net.predict(X)] == expected
    found = net.predict(batch)
    assert unpadded(found, batch.lengths) == expected
    assert (found[torch.arange(found.shape[1]) >= batch.lengths[:, None]] == -100).all()
    assert net.predict(torch.tensor(X[0])).tolist() == expected[0]
    assert [found.tolist() for found in net.float().predict(X)] == expected


def unpadded(tags, lengths):
    return [row[:n].tolist() for row, n in zip(tags, lengths, strict=True)]


@pytest.mark.parametrize("margin", [0, 1, 2])
def test_the_loss_and_its_gradient(margin):
    loss, seen = StructuredPerceptronLoss("sum", margin), set()
    for seed in range(6):
        weights, X, y = examples(8, longest=3, seed=seed)
        weights = [np.clip(each, -1, 1) for each in weights]
        for number, (x, tags) in enumerate(zip(X, y, strict=True)):
            net = net_of(weights)
            emission = x @ weights[0].T
            if number % 2:  # one of the best, which is often one of several
                tags = list(brute.ranked(emission, *weights[1:])[number % 3 % 3 ** len(x)][1])
            value, best = brute.ranked(emission, *weights[1:], y=tags, margin=margin)[0]
            own = brute.score(emission, *weights[1:], tags)
            found = loss(net(torch.tensor(x)), torch.tensor(tags))
            assert found.item() == value - own >= 0
            found.backward()
            expected = (a - b for a, b in zip(brute.phi(x, best, 3), brute.phi(x, tags, 3), strict=True))
            for parameter, each in zip((net.weight, net.transition, net.end), expected, strict=True):
                assert parameter.grad.tolist() == each.tolist()
            seen.add((best != tuple(tags), value == own))
    assert {(True, False), (False, True)} <= seen
    assert margin or (True, True) in seen  # a tie that is decided against y


def test_one_layout_is_another():
    weights, X, _ = examples(8)
    net, X = net_of(weights), [np.abs(x) for x in X]
    dense = Sequences.of(X)
    binary = Sequences(dense.offsets, dense.n_features, dense.indptr, dense.ids)
    assert not binary.padded().x.is_floating_point()
    assert torch.equal(net(binary.padded()).emission, net(dense.padded()).emission)
    for other in (binary, list(map(torch.tensor, X))):
        assert [each.tolist() for each in net.predict(other)] == [each.tolist() for each in net.predict(dense)]


@pytest.mark.parametrize("seed", range(3))
def test_pruned_predecessors_change_nothing(seed):
    generator = np.random.default_rng(seed)
    weights = brute.weights(generator, 4, 20, -30, 31)
    weights[1][:] = generator.integers(-2, 3, weights[1].shape)
    X, net = Sequences.of(brute.sequences(generator, 40, 4, 12, -3, 4)), net_of(weights)
    assert [each.tolist() for each in net.predict(X)] == unpadded(net.predict(X.padded()), X.lengths)


def test_a_module_like_any_other_whose_weights_are_not_copied_to_predict():
    weights, X, _ = examples(8)
    net, batch = net_of(weights), Sequences.of(X).padded()
    expected = net.predict(batch)
    other = ChainPerceptron(3, 3, dtype=torch.float64)
    other.load_state_dict(net.state_dict())
    for twin in (net, other, copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        assert torch.equal(twin.predict(batch), expected)
        assert np.shares_memory(ChainWeights.view(twin).rows, twin.weight.detach().numpy())
    net.reset_parameters()
    assert not net.predict(batch)[batch.lengths.argmax()].any()


@pytest.mark.gpu
def test_a_batch_on_a_device(device):
    weights, X, y = examples(8)
    net, batch = net_of(weights), Sequences.of(X).padded()
    expected = net.predict(batch)
    there = PaddedSequences(*(each.to(device) for each in batch))
    net.to(device)
    assert torch.equal(net.predict(there).cpu(), expected)
    padded = collate(list(zip(map(torch.tensor, X), y, strict=True)))[1]
    loss = StructuredPerceptronLoss(margin=1)(net(there), padded.to(device))
    loss.backward()
    assert net.weight.grad.device.type == device
    assert [each.tolist() for each in net.predict(X)] == unpadded(expected, batch.lengths)


TWO = Sequences.of([[[1.0], [1.0]], [[1.0]]])


def judged(y):
    return StructuredPerceptronLoss(margin=1)(ChainPerceptron(1, 2)(torch.ones(2, 1)), y)


test_bad_input = refusals(
    (lambda: Sequences.of([]), "X is empty"),
    (lambda: Sequences.of([[[1.0]], []]), r"X\[1\] must have shape"),
    (lambda: Sequences.of([[[1.0]], [[1.0], [np.nan]]]), "sequence 1, position 1 has feature nan"),
    (lambda: Sequences(np.array([0, 1, 1]), 2, np.zeros(2), np.zeros(0)), "sequence 1 is empty"),
    (lambda: Sequences(np.array([0, 1]), 2, np.array([0, 1]), np.array([2])), "sequence 0, position 0 has feature 2"),
    (lambda: Sequences(np.array([0, 1]), 2, np.array([0, 1]), np.array([0]), np.ones(2)), "values must be"),
    (lambda: flat_tags([[0], [1, 2]], TWO, 3), "sequence 0 has 1 tags for 2 tokens"),
    (lambda: flat_tags([[0, 1], [3]], TWO, 3), "y must hold class indices 0 to 2, found 0, 1, 3"),
    (lambda: flat_tags([0.0, 1.5, 2.0], TWO, 3), "found 0.0, 1.5"),
    (lambda: ChainPerceptron(0, 2), "features=0"),
    (lambda: ChainPerceptron(1, 2)(torch.ones(1, 2, 1), torch.tensor([3])), r"between 1 and T=2, found tensor\(\[3\]"),
    (lambda: ChainPerceptron(2, 2)(torch.tensor([[[0], [2]]])), "x has feature 2"),
    (lambda: ChainPerceptron(1, 2).predict([[[1.0]]], torch.tensor([1])), "lengths=tensor"),
    (lambda: ChainPerceptron.score(ChainPerceptron(1, 2)(torch.ones(2, 1)), torch.tensor([0])), "y has shape"),
    (lambda: judged(torch.tensor([0, -100])), "position 1 has tag -100"),
    (lambda: judged(torch.tensor([0.0, 1.0])), "y must be a tensor of integers, found torch.float32"),
    (lambda: StructuredPerceptronLoss(margin=-1), "margin=-1"),
)  # fmt: skip


def test_scores_that_are_not_finite():
    net = ChainPerceptron(1, 2)
    net.weight.data.fill_(3e38)
    with pytest.raises(ValueError, match="not finite"):
        net.predict([[[1.0], [9.0]]])
    with pytest.raises(ValueError, match="inf"):
        net.predict(torch.tensor([[1.0], [9.0]]))
    net.weight.data[0, 0] = torch.nan  # which no best score would show
    with pytest.raises(ValueError, match=r"net\.weight is not finite"):
        net.predict([[[1.0]]])
