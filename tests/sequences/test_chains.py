"""Chains against all tag sequences: scores, decoding with ties, the loss and its gradient; and bad input."""

import copy
import pickle
from itertools import product

import brute
import numpy as np
import pytest
import scipy.sparse as sp
import torch

import torchperc as tp
from torchperc.sequences import ChainPerceptron, PaddedSequences, Sequences, StructuredPerceptronLoss, flat_tags
from torchperc.sequences.chains import best_tags


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
    net = net_of(weights)
    expected = [brute.ranked(x @ weights[0].T, *weights[1:])[0][1] for x in X]
    assert [found.tolist() for found in net.predict(X)] == [list(each) for each in expected]
    batch = Sequences.of(X).padded()
    found = net.predict(batch)
    assert [row[:n].tolist() for row, n in zip(found, batch.lengths, strict=True)] == [list(each) for each in expected]
    assert (found[torch.arange(found.shape[1]) >= batch.lengths[:, None]] == -100).all()
    assert [found.tolist() for found in net.predict(X, n_jobs=-1)] == [list(each) for each in expected]
    assert net.predict(torch.tensor(X[0])).tolist() == list(expected[0])
    assert [found.tolist() for found in net.float().predict(X)] == [list(each) for each in expected]


@pytest.mark.parametrize("seed", range(3))
def test_pruned_predecessors_change_nothing(seed):
    generator = np.random.default_rng(seed)
    weights = brute.weights(generator, 4, 20, -30, 31)
    weights[1][:] = generator.integers(-2, 3, weights[1].shape)
    X = Sequences.of(brute.sequences(generator, 40, 4, 12, -3, 4))
    net = net_of(weights, torch.float32)
    padded = net_of(weights, torch.float32).predict(PaddedSequences(X.padded().x.float(), X.padded().lengths))
    assert [each.tolist() for each in net.predict(X, n_jobs=2)] == [
        row[:n].tolist() for row, n in zip(padded, X.lengths, strict=True)
    ]


def test_scores_of_given_tags():
    weights, X, y = examples()
    net = net_of(weights)
    expected = [brute.score(x @ weights[0].T, *weights[1:], tags) for x, tags in zip(X, y, strict=True)]
    batch = Sequences.of(X).padded()
    padded = torch.full(batch.x.shape[:2], -100)
    for i, tags in enumerate(y):
        padded[i, : len(tags)] = torch.tensor(tags)
    assert net.score(net(batch), padded).tolist() == expected
    assert net.score(net(torch.tensor(X[0])), torch.tensor(y[0])).item() == expected[0]


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


def test_losses_of_a_batch():
    weights, X, y = examples()
    net, batch = net_of(weights), Sequences.of(X).padded()
    padded = torch.full(batch.x.shape[:2], -100)
    for i, tags in enumerate(y):
        padded[i, : len(tags)] = torch.tensor(tags)
    single = [
        StructuredPerceptronLoss(margin=1)(net(torch.tensor(x)), torch.tensor(t)) for x, t in zip(X, y, strict=True)
    ]
    scores = net(batch)
    assert StructuredPerceptronLoss("none", 1)(scores, padded).tolist() == [each.item() for each in single]
    assert StructuredPerceptronLoss(margin=1)(scores, padded).item() == pytest.approx(
        np.mean([e.item() for e in single])
    )
    behind = torch.where(padded == -100, 1, padded)
    losses = [StructuredPerceptronLoss("none", 1)(scores, tags).tolist() for tags in (padded, behind)]
    assert losses[0] == losses[1]
    inside = (behind.to(torch.uint8), behind.int())
    assert all(torch.equal(net.score(scores, tags), net.score(scores, padded)) for tags in inside)
    assert tp.StructuredPerceptronLoss is StructuredPerceptronLoss


def test_one_layout_is_another():
    weights, X, _ = examples(8)
    X = [np.abs(x) for x in X]
    net = net_of(weights)
    dense, sparse = Sequences.of(X), Sequences.of([sp.csr_array(x) for x in X])
    binary = Sequences(dense.offsets, dense.width, dense.indptr, dense.ids)
    assert "binary" in repr(binary)
    assert "binary" not in repr(dense)
    expected = [each.tolist() for each in net.predict(dense)]
    ids, numbers = binary.padded(), dense.padded()
    assert not ids.x.is_floating_point()
    assert torch.equal(net(ids).emission, net(numbers).emission)
    doubled = Sequences.of([sp.csr_array(2 * x) for x in X])
    assert torch.equal(net(doubled.padded()).emission, net(numbers).emission * 2)
    for other in (sparse, binary, Sequences.of(ids, width=3), Sequences.of(numbers), list(map(torch.tensor, X))):
        assert [each.tolist() for each in net.predict(other)] == expected
    assert np.array_equal(sparse.take([3, 1]).ids, np.concatenate([sparse.take([3]).ids, sparse.take([1]).ids]))
    assert net.predict(sparse.take(np.arange(8) == 2))[0].tolist() == expected[2]


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, torch.int32])
def test_feature_numbers_of_any_integers(dtype):
    net, x = net_of(examples()[0]), torch.tensor([[[0, 2], [1, 2]], [[1, 0], [0, 0]]])
    batch = PaddedSequences(x.to(dtype), torch.tensor([2, 1]))
    assert torch.equal(net(batch).emission, net(x).emission)
    assert torch.equal(net.predict(batch), net.predict(PaddedSequences(x, batch.lengths)))
    assert Sequences.of(batch, width=3).ids.tolist() == [0, 2, 1, 2, 1, 0]


def test_a_module_like_any_other():
    weights, X, _ = examples(8)
    net, batch = net_of(weights), Sequences.of(X).padded()
    expected = net.predict(batch)
    other = ChainPerceptron(3, 3, dtype=torch.float64)
    other.load_state_dict(net.state_dict())
    for twin in (other, copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        assert torch.equal(twin.predict(batch), expected)
        assert twin.weight.is_contiguous()
    assert "tags=3" in repr(net)
    net.reset_parameters()
    assert not net.predict(batch)[batch.lengths.argmax()].any()


@pytest.mark.slow
def test_torch_compile_and_export():
    weights, X, _ = examples(4, longest=3)
    net, batch = net_of(weights), Sequences.of(X).padded()
    expected = net.predict(batch)
    torch._dynamo.reset()
    compiled = torch.compile(lambda x, n: best_tags(net(x, n)), fullgraph=True, backend="eager")
    assert torch.equal(compiled(*batch), expected)
    loss = StructuredPerceptronLoss(margin=1)
    y = expected.roll(1, 0).clamp(min=0)
    learned = torch.compile(lambda x, n: loss(net(x, n), y), fullgraph=True, backend="eager")
    assert torch.equal(learned(*batch), loss(net(batch), y))
    exported = torch.export.export(net, tuple(batch)).module()
    assert torch.equal(exported(*batch)[0], net(batch).emission)


@pytest.mark.gpu
def test_a_batch_on_a_device(device):
    weights, X, y = examples(8)
    net, batch = net_of(weights), Sequences.of(X).padded()
    expected = net.predict(batch)
    there = PaddedSequences(*(each.to(device) for each in batch))
    net.to(device)
    assert torch.equal(net.predict(there).cpu(), expected)
    padded = torch.full(batch.x.shape[:2], -100)
    for i, tags in enumerate(y):
        padded[i, : len(tags)] = torch.tensor(tags)
    loss = StructuredPerceptronLoss(margin=1)(net(there), padded.to(device))
    loss.backward()
    assert net.weight.grad.device.type == device
    assert [each.tolist() for each in net.predict(X)] == [
        row[:n].tolist() for row, n in zip(expected, batch.lengths, strict=True)
    ]


def test_a_long_sequence():
    generator = np.random.default_rng(0)
    T = 200_000
    X = Sequences(np.array([0, T]), 50, np.arange(T + 1), generator.integers(0, 50, T).astype(np.int32))
    net = net_of(brute.weights(generator, 50, 4), torch.float64)
    found = net.predict(X)[0]
    assert len(found) == T
    x = X.padded()
    start = ChainPerceptron.score(net(PaddedSequences(x.x[:, :2000], torch.tensor([2000]))), found[None, :2000])
    assert torch.isfinite(start).all()
    best = net.score(net(x), found[None])
    swapped = found.clone()
    swapped[T // 2] = (swapped[T // 2] + 1) % 4
    assert net.score(net(x), swapped[None]) <= best


def unpadded(x):
    return Sequences.of(PaddedSequences(torch.tensor(x), torch.tensor([2, 1])), width=3)


def judged(y):
    return StructuredPerceptronLoss(margin=1)(ChainPerceptron(1, 2)(torch.ones(2, 1)), y)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Sequences.of([]), "X is empty"),
        (lambda: Sequences.of([[[1.0]], []]), r"X\[1\] must have shape"),
        (lambda: Sequences.of([[[1.0]], [[1.0, 2.0]]]), r"X\[1\] has 2 features but X\[0\] has 1"),
        (lambda: Sequences.of([[[1.0]], [[1.0], [np.nan]]]), "sequence 1, position 1 has a feature of nan"),
        (lambda: Sequences.of([[[1.0]]], width=2), "X has 1 features but 2 are needed"),
        (lambda: Sequences.of(np.ones((2, 2))), "shape"),
        (lambda: Sequences.of("abc"), "must be a list of sequences"),
        (lambda: Sequences.of([[[1.0]], sp.csr_array([[1.0]])]), "mixes sparse and dense"),
        (lambda: Sequences(np.array([0, 1, 1]), 2, ONE, NONE), "sequence 1 is empty"),
        (lambda: Sequences(np.array([0, 2]), 2, ONE, NONE), "offsets must rise from 0 to 1"),
        (lambda: Sequences(np.array([1, 1]), 2, ONE, NONE), "offsets must rise from 0"),
        (lambda: Sequences(np.array([0]), 2, ONE[:1], NONE), "no sequences"),
        (lambda: Sequences(np.array([0, 1]), 2, np.array([0, 1]), np.array([2])), "sequence 0, position 0 has feature 2"),
        (lambda: Sequences(np.array([0, 1]), 2, np.array([0, 2]), np.array([0])), "indptr must rise from 0 to 1"),
        (lambda: Sequences(np.array([0, 1]), 2, np.array([0, 1]), np.array([0]), np.ones(2)), "values must be"),
        (lambda: flat_tags([[0], [1, 2]], TWO, 3), "sequence 0 has 1 tags for 2 tokens"),
        (lambda: flat_tags([[0, 1]], TWO, 3), "y has 1 sequences but there are 2"),
        (lambda: flat_tags([[0, 1], [3]], TWO, 3), "sequence 1, position 0 has tag 3"),
        (lambda: flat_tags([0, 1], TWO, 3), "2 tags for 3 tokens"),
        (lambda: flat_tags([0.0, 1.5, 2.0], TWO, 3), "integers"),
        (lambda: flat_tags([None, [2]], TWO, 3), r"y\[0\]"),
        (lambda: flat_tags([torch.zeros(2, device="meta"), [2]], TWO, 3), r"y\[0\]"),
        (lambda: TWO.take("a"), "a slice or a mask"),
        (lambda: TWO.take([5]), "from 0 to 1"),
        (lambda: ChainPerceptron(1, 2)(torch.ones(1, 2, 1), [2]), "lengths must be a tensor"),
        (lambda: flat_tags(torch.tensor([[0, 1], [1, 1]]), TWO, 3), "behind its end"),
        (lambda: flat_tags(3, TWO, 3), "list of integer sequences"),
        (lambda: ChainPerceptron(0, 2), "features=0"),
        (lambda: ChainPerceptron(1, 1), "tags=1"),
        (lambda: ChainPerceptron(1, 2)(torch.ones(1, 2, 3)), "3 features but 1"),
        (lambda: ChainPerceptron(1, 2)(torch.ones(1, 2, 1).double()), "convert one"),
        (lambda: ChainPerceptron(1, 2)(torch.ones(1, 2, 1), torch.tensor([3])), "lengths run from 3"),
        (lambda: ChainPerceptron(2, 2)(torch.tensor([[[0], [2]]])), "position 1 has feature 2"),
        (lambda: ChainPerceptron(2, 2)(torch.tensor([[[0], [-2]]])), "has feature -2; features run from 0 to 1, −1 means no"),
        (lambda: unpadded([[[0], [2**32]], [[1], [-1]]]), "sequence 0, position 1 has feature 4294967296"),
        (lambda: unpadded([[[0], [1]], [[-7], [-1]]]), "sequence 1, position 0 has feature -7"),
        (lambda: unpadded([[[True], [False]], [[True], [True]]]), "found torch.bool"),
        (lambda: ChainPerceptron(1, 2)(torch.ones(0, 1)), "empty"),
        (lambda: ChainPerceptron(1, 2).predict(torch.ones(1, 1), n_jobs=2), "n_jobs"),
        (lambda: ChainPerceptron(1, 2).predict([[[1.0]]], n_jobs=0), "n_jobs=0"),
        (lambda: ChainPerceptron.score(ChainPerceptron(1, 2)(torch.ones(2, 1)), torch.tensor([0, 2])), "position 1 has tag 2"),
        (lambda: ChainPerceptron.score(ChainPerceptron(1, 2)(torch.ones(2, 1)), torch.tensor([0])), "y has shape"),
        (lambda: judged(torch.tensor([0, 2])), "position 1 has tag 2"),
        (lambda: judged(torch.tensor([0, -100])), "position 1 has tag -100"),
        (lambda: judged(torch.tensor([0])), "y has shape"),
        (lambda: judged(torch.zeros(1, 1, 2, dtype=torch.int64)), "y has shape"),
        (lambda: judged(torch.tensor([0.0, 1.0])), "y must be a tensor of integers, found torch.float32"),
        (lambda: judged([0, 1]), "y must be a tensor of integers, found list"),
        (lambda: StructuredPerceptronLoss(margin=-1), "margin=-1"),
        (lambda: TWO.take([]), "no sequences"),
    ],
)  # fmt: skip
def test_bad_input(make, says):
    with pytest.raises((ValueError, TypeError), match=says):
        make()


TWO = Sequences.of([[[1.0], [1.0]], [[1.0]]])
ONE, NONE = np.array([0, 0]), np.zeros(0, np.int32)


def test_tags_in_every_form():
    expected = [0, 1, 2]
    for y in (
        [[0, 1], [2]],
        [0, 1, 2],
        np.array([0, 1, 2]),
        torch.tensor([[0, 1], [2, -100]]),
        [torch.tensor([0, 1]), np.array([2])],
    ):
        assert flat_tags(y, TWO, 3).tolist() == expected


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
    net.reset_parameters()
    net.end.data[0] = torch.nan
    with pytest.raises(ValueError, match=r"net\.end"):
        net.predict([[[1.0]]])


def test_all_ties_are_decided_alike():
    net = ChainPerceptron(1, 3)
    for T in (1, 2, 5):
        assert not net.predict(torch.zeros(T, 1)).any()
        assert not torch.cat(net.predict([torch.zeros(T, 1)])).any()
    assert len(list(product(range(3), repeat=2))) == len(brute.ranked(np.zeros((2, 3)), np.zeros((4, 3)), np.zeros(3)))
