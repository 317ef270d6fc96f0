"""Nets, losses and heads as modules: shapes, state dicts, seeds, repr."""

import pickle
from functools import partial

import pytest
import torch
from torch import nn

import torchperc as tp
from torchperc.nn.heads import head


@pytest.mark.parametrize(
    "net", [tp.Perceptron(3, init="normal", seed=1), tp.MulticlassPerceptron(3, 4, init="uniform")]
)
def test_perceptrons_and_linear_load_each_other(net):
    linear, x = nn.Linear(3, len(net.weight)), torch.randn(5, 3)
    linear.load_state_dict(net.state_dict())
    assert torch.equal(linear(x).squeeze(-1), net(x))
    start = type(net)(3) if len(net.weight) == 1 else type(net)(3, 4)
    assert not any(p.any() for p in start.parameters())
    start.load_state_dict(linear.state_dict())
    decided = net(x).argmax(1) if len(net.weight) > 1 else torch.where(net(x) >= 0, 1, -1)
    assert torch.equal(start.predict(x), decided)


@pytest.mark.parametrize("init", ["uniform", "normal"])
def test_seeds_make_starts_repeatable_and_leave_the_global_generator_alone(init):
    state = torch.random.get_rng_state()
    one, two, other = (tp.Perceptron(5, init=init, seed=s).weight for s in (1, 1, 2))
    nets = [tp.MLP(2, (3, 4), init=init, seed=s).state_dict() for s in (1, 1)]
    assert torch.equal(one, two)
    assert not torch.equal(one, other)
    assert all(torch.equal(nets[0][key], nets[1][key]) for key in nets[0])
    assert torch.equal(torch.random.get_rng_state(), state)


def test_mlp_default_start_has_the_range_of_linear():
    net = tp.MLP(100, (50,), seed=0)
    assert net.layers[0].weight.abs().max() <= 0.1
    assert net.layers[0].bias.abs().max() <= 0.1
    assert net.layers[0].weight.abs().max() > 0.099
    assert net.layers[1].weight.abs().max() <= 50**-0.5


@pytest.mark.parametrize("activation", ["tanh", "relu", "sigmoid", "softplus", "identity", torch.sin])
def test_mlp_is_its_formula(activation):
    net = tp.MLP(2, (3,), activation=activation, seed=0)
    functions = {"identity": lambda v: v, "softplus": nn.functional.softplus}
    act = activation if callable(activation) else functions.get(activation) or getattr(torch, activation)
    x = torch.randn(7, 2)
    torch.testing.assert_close(net(x), net.layers[1](act(net.layers[0](x))).squeeze(-1))


def test_mlp_shapes():
    x = torch.randn(5, 2)
    assert tp.MLP(2, (), num_classes=3)(x).shape == (5, 3)
    assert tp.MLP(2, (4, 4), num_classes=3).predict(x).shape == (5,)
    assert tp.MLP(2, dtype=torch.float64)(x.double()).dtype == torch.float64


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: tp.Perceptron(0), ValueError, "in_features=0"),
        (lambda: tp.Perceptron(2, init="ones"), ValueError, "init='ones'"),
        (lambda: tp.MulticlassPerceptron(2, 1), ValueError, "num_classes=1"),
        (lambda: tp.MLP(2, (0,)), ValueError, "hidden=0"),
        (lambda: tp.MLP(2, activation="sign"), ValueError, "derivative 0"),
        (lambda: tp.MLP(2, activation=torch.sign), ValueError, "derivative 0"),
        (lambda: tp.MLP(2, activation="swish"), ValueError, "activation='swish'"),
        (lambda: tp.JointPerceptron(2, 3, False, features=lambda x: x), ValueError, "bias=False needs the block"),
        (lambda: tp.JointPerceptron(2, 3, features=lambda x: x), ValueError, "features must map"),
        (lambda: tp.PerceptronLoss("max"), ValueError, "reduction='max'"),
        (lambda: tp.PerceptronLoss(tie="relu"), ValueError, "tie='relu'"),
        (lambda: tp.LMSHead("1/2"), ValueError, "targets='1/2'"),
        (lambda: tp.Perceptron(2, dtype=torch.int64), TypeError, "dtype=torch.int64"),
        (lambda: tp.MLP(2, dtype=torch.complex64), TypeError, "dtype=torch.complex64"),
        (lambda: tp.Perceptron(2, bias="no"), TypeError, "bias must be True or False"),
        (lambda: tp.MLP(2, 3), TypeError, "hidden must be a sequence"),
        (lambda: tp.JointPerceptron(2, 2, features=5), TypeError, "features must be a function"),
        (lambda: tp.PerceptronHead().decide(torch.zeros(3, 1)), ValueError, "squeeze"),
        (lambda: tp.LogisticHead().output(torch.zeros(3, 1)), ValueError, "squeeze"),
    ],
)
def test_wrong_options_are_named(make, error, message):
    with pytest.raises(error, match=message):
        make()


def test_features_keep_their_own_parameters():
    class Phi(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(torch.tensor(3.0))

        def forward(self, x):
            return torch.stack([x, -x], 1) * self.scale

    net = tp.JointPerceptron(2, 2, features=Phi())
    net.reset_parameters()
    assert net.features.scale == 3
    tp.RuleTrainer().fit(net, [[1.0, 2.0], [-1.0, -2.0]], [0, 1])
    assert net.predict(torch.tensor([[1.0, 2.0], [-1.0, -2.0]])).tolist() == [0, 1]


@pytest.mark.parametrize("layout", ["channels_last", "transposed", "strided"])
@pytest.mark.parametrize("make", [tp.Perceptron, partial(tp.MulticlassPerceptron, num_classes=3), tp.MLP])
def test_memory_formats_change_nothing(make, layout):
    net = make(5, init="normal", seed=0)
    plain = torch.randn(2, 3, 4, 5, generator=torch.Generator().manual_seed(0))
    other = {
        "channels_last": lambda: plain.contiguous(memory_format=torch.channels_last),
        "transposed": lambda: plain.transpose(0, 2).contiguous().transpose(0, 2),
        "strided": lambda: torch.stack((plain, plain), -1)[..., 0],
    }[layout]()
    assert torch.equal(other, plain)
    assert not other.is_contiguous()
    found = []
    for x in (plain, other):
        x.requires_grad_(True)
        net.zero_grad()
        scores = net(x)
        (scores * torch.arange(scores.numel()).reshape(scores.shape)).sum().backward()
        found.append([scores, x.grad, *(p.grad for p in net.parameters())])
    assert found[0][0].shape[:3] == (2, 3, 4)
    for one, two in zip(*found, strict=True):
        torch.testing.assert_close(one, two)
    torch.testing.assert_close(net(plain[0, 0]), found[0][0][0, 0])


def test_losses_show_their_options_and_heads_are_plain_values():
    assert pickle.loads(pickle.dumps(tp.LMSHead("0/1"))) == head("lms 0/1") != head("lms")
    assert repr(tp.CostLoss(fp=1, fn=5)) == "CostLoss(reduction='mean', fp=1.0, fn=5.0)"
    assert repr(tp.PerceptronLoss(tie="strict")) == "PerceptronLoss(reduction='mean', tie='strict')"


@pytest.mark.parametrize("head", [tp.PerceptronHead(), tp.LMSHead(), tp.LMSHead("0/1"), tp.LogisticHead()])
def test_heads_go_with_two_and_with_k_classes(head):
    s, y = torch.tensor([2.0, -2.0, 0.6]), torch.tensor([1, -1, 1])
    assert head.decide(s).tolist() == [1, -1, 1]
    assert head.output(s).shape == s.shape
    assert head.loss(s, y).dim() == 0
    sk, yk = torch.tensor([[0.0, 3.0, 1.0]]), torch.tensor([1])
    assert head.decide(sk).tolist() == [1]
    assert head.output(sk).shape == sk.shape
    assert head.loss(sk, yk, reduction="none").shape == (1,)


def test_where_the_heads_draw_the_line():
    s = torch.tensor([0.0, 0.3, 0.5])
    assert tp.PerceptronHead().decide(s).tolist() == [1, 1, 1]
    assert tp.LMSHead("0/1").decide(s).tolist() == [-1, -1, 1]
    assert tp.LogisticHead().decide(s).tolist() == [1, 1, 1]
    assert tp.LogisticHead().output(torch.tensor([0.0])).item() == 0.5
    assert tp.PerceptronHead().output(torch.tensor([[0.0, 1.0]])).tolist() == [[0, 1]]


def test_geometry_of_a_net():
    net = tp.Perceptron(3, init="normal", seed=0)
    x = torch.randn(6, 3)
    assert net.margin(x, net.predict(x)) > 0
    foot = tp.functional.unit_normal(net.weight) * tp.functional.offset(net.weight, net.bias)
    assert torch.allclose(net(foot[None]), torch.zeros(1), atol=1e-6)
