"""Chains against all tag sequences: scores, decoding with ties, the loss and its gradient; and bad input."""

import copy
import pickle

import brute
import numpy as np
import pytest
import torch
from refusals import refusals

from torchperc import StructuredPerceptronLoss
from torchperc.sequences import ChainPerceptron, PaddedSequences, Sequences, collate, flat_tags
from torchperc.sequences.rule import ChainWeights


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
