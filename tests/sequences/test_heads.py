"""The head of chains against its loss and against all tag sequences; and what a log and weights say of sequences."""

import brute
import numpy as np
import pytest
import torch

import torchperc as tp
from torchperc.sequences import ChainPerceptron, Sequences, StructuredHead, StructuredPerceptronLoss
from torchperc.sequences.weights import ChainWeights


def chain(seed, features=2, tags=3):
    generator = np.random.default_rng(seed)
    net = ChainPerceptron(features, tags, dtype=torch.float64)
    with torch.no_grad():
        for values, given in zip(net.parameters(), brute.weights(generator, features, tags), strict=True):
            values.copy_(torch.from_numpy(given))
    return net, brute.sequences(generator, 12, features, 4), generator


@pytest.mark.parametrize("margin", [0.0, 1.0])
def test_a_head_says_what_all_sequences_say(margin):
    net, X, generator = chain(0)
    y = [generator.integers(0, 3, len(x)) for x in X]
    sequences, head = Sequences.of(X), StructuredHead(margin)
    target = torch.nn.utils.rnn.pad_sequence(list(map(torch.from_numpy, y)), batch_first=True, padding_value=-100)
    for values in net.parameters():
        values.requires_grad_(False)
    scores = net(sequences.padded())
    losses, mistakes = head.judge(scores, target)
    assert torch.equal(losses, StructuredPerceptronLoss("none", margin)(scores, target))
    assert torch.equal(losses.mean(), head.loss(scores, target))
    assert torch.equal(mistakes, head.mistakes(scores, target))
    assert torch.equal(head.decide(scores), head.output(scores))
    weight, transition, end = (values.detach().numpy() for values in net.parameters())
    for i, (x, tags) in enumerate(zip(X, y, strict=True)):
        emission, own = x @ weight.T, tuple(tags.tolist())
        ranked = brute.ranked(emission, transition, end, own, margin)
        assert float(losses[i]) == ranked[0][0] - brute.score(emission, transition, end, own)
        assert bool(mistakes[i]) == (ranked[0][1] != own)
        decided = brute.ranked(emission, transition, end)[0][1]
        assert head.decide(scores)[i, : len(x)].tolist() == list(decided)


def test_differences_of_scores():
    net, X, generator = chain(1)
    y, other = ([generator.integers(0, 3, len(x)) for x in X] for _ in range(2))
    weight, transition, end = (values.detach().numpy() for values in net.parameters())
    expected = [
        brute.score(x @ weight.T, transition, end, b) - brute.score(x @ weight.T, transition, end, a)
        for x, a, b in zip(X, y, other, strict=True)
    ]
    flat, others = np.concatenate(y), np.concatenate(other)
    for weights in (ChainWeights.view(net), ChainWeights.of(net)):
        assert weights.score_differences(Sequences.of(X), others, flat).tolist() == expected


def test_a_chain_is_no_model_of_rows():
    net = ChainPerceptron(5, 3, dtype=torch.float64)
    with pytest.raises(TypeError, match="net must be a Perceptron"):
        tp.FittedModel.of(net)  # of rows, not of sequences


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: StructuredHead(-1.0), ValueError, "margin=-1.0"),
        (lambda: StructuredHead().decide(torch.zeros(2)), TypeError, "needs ChainScores"),
        (lambda: StructuredHead().loss(torch.zeros(2), torch.zeros(2)), TypeError, "found Tensor; use another head"),
    ],
)
def test_wrong_values_are_named(make, error, message):
    with pytest.raises(error, match=message):
        make()
