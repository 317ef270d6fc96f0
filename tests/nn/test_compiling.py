"""Nets with losses under torch.compile (no graph break), torch.func and torch.export: the same numbers as without."""

import pytest
import torch
from torch import nn
from torch.func import functional_call, grad, vmap

import torchperc as tp


class Trained(nn.Module):
    """The loss of a net, as training computes it, and its decisions."""

    def __init__(self, net, loss):
        super().__init__()
        self.net, self.loss = net, loss

    def forward(self, x, y):
        return self.loss(self.net(x), y), self.net.predict(x)


START = {"init": "normal", "seed": 0, "dtype": torch.float64}
TWO, MANY = (3,), (3, 4)
PAIRS = {
    "perceptron": (lambda: tp.Perceptron(*TWO, **START), tp.PerceptronLoss()),
    "sign": (lambda: tp.Perceptron(*TWO, **START), tp.PerceptronLoss("sum", tie="sign")),
    "lms": (lambda: tp.Perceptron(*TWO, **START), tp.LMSLoss(targets="0/1")),
    "zero-one": (lambda: tp.Perceptron(*TWO, **START), tp.ZeroOneLoss()),
    "cost": (lambda: tp.Perceptron(*TWO, **START), tp.CostLoss(fp=2.0, fn=0.5)),
    "mlp": (lambda: tp.MLP(3, (5,), seed=0, dtype=torch.float64), tp.LogisticLoss()),
    "multiclass": (lambda: tp.MulticlassPerceptron(*MANY, **START), tp.MulticlassPerceptronLoss()),
    "joint": (lambda: tp.JointPerceptron(*MANY, **START), tp.MulticlassPerceptronLoss(tie="sign")),
    "perceptron head": (lambda: tp.MulticlassPerceptron(*MANY, **START), tp.PerceptronHead().loss),
    "lms head": (lambda: tp.MulticlassPerceptron(*MANY, **START), tp.LMSHead().loss),
    "regression head": (lambda: tp.Perceptron(*TWO, **START), tp.RegressionHead().loss),
    "logistic head": (lambda: tp.MLP(3, (5,), num_classes=4, seed=0, dtype=torch.float64), tp.LogisticHead().loss),
}


def samples(name):
    net, _ = PAIRS[name]
    x = torch.randn(9, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    y = torch.arange(9)
    return x, y % 4 if getattr(net(), "num_classes", None) else y % 2 * 2 - 1


def gradients(module, x, y):
    loss, decided = module(x, y)
    parameters = list(module.parameters())
    if not loss.requires_grad:  # a step function
        return loss, decided, []
    return loss.detach(), decided, torch.autograd.grad(loss, parameters)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")  # torch's own
@pytest.mark.parametrize("name", PAIRS)
def test_compiled_by_inductor(name):
    make, loss = PAIRS[name]
    module, (x, y) = Trained(make(), loss), samples(name)
    torch._dynamo.reset()
    assert_same(gradients(torch.compile(module, fullgraph=True), x, y), gradients(module, x, y), rtol=1e-12)


def assert_same(found, expected, rtol=0.0):
    for one, other in zip((*found[:2], *found[2]), (*expected[:2], *expected[2]), strict=True):
        torch.testing.assert_close(one, other, rtol=rtol, atol=rtol)


@pytest.mark.parametrize("name", PAIRS)
def test_gradients_of_each_sample_by_vmap_and_functional_call(name):
    make, loss = PAIRS[name]
    net, (x, y) = make(), samples(name)
    parameters = dict(net.named_parameters())

    def of_one(values, x, y):
        return loss(functional_call(net, values, (x[None],)), y[None])

    each = vmap(grad(of_one), in_dims=(None, 0, 0))(parameters, x, y)
    for i in range(len(x)):
        one = loss(net(x[i : i + 1]), y[i : i + 1])
        alone = torch.autograd.grad(one, list(parameters.values())) if one.requires_grad else [0.0] * len(parameters)
        for key, expected in zip(parameters, alone, strict=True):
            expected = torch.as_tensor(expected, dtype=torch.float64).expand_as(parameters[key])
            torch.testing.assert_close(each[key][i], expected, rtol=1e-13, atol=1e-13)


@pytest.mark.slow
@pytest.mark.parametrize("name", PAIRS)
def test_exported_with_any_number_of_samples(name):
    make, loss = PAIRS[name]
    module, (x, y) = Trained(make(), loss), samples(name)
    count = torch.export.Dim("count", min=2)
    program = torch.export.export(module, (x, y), dynamic_shapes=({0: count}, {0: count})).module()
    for some in (slice(None), slice(4)):
        for one, other in zip(program(x[some], y[some]), module(x[some], y[some]), strict=True):
            torch.testing.assert_close(one, other, rtol=0, atol=0)
