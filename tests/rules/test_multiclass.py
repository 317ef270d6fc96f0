"""K classes in two formulations, one vector a class and one joint vector: the same model, update for update."""

import oracles
import pytest
import torch

import torchperc as tp


def blocks(joint, classes):
    """Weight and bias of one vector a class, from the blocks of a joint vector."""
    return tp.functional.unfold_bias(joint.weight.reshape(classes, -1))


@pytest.mark.parametrize("tie", ["update", "sign"])
@pytest.mark.parametrize("classes", [2, 3, 5])
@pytest.mark.parametrize("select", ["last", "averaged", "voted", "pocket", "best-validation"])
def test_both_formulations_are_the_same_model_update_for_update(select, classes, tie):
    for seed in range(2):
        X, y = oracles.integers(seed, count=15, classes=classes)
        one, joint = tp.MulticlassPerceptron(3, classes), tp.JointPerceptron(3, classes)
        trainer, other = (
            tp.RuleTrainer(max_epochs=5, tie=tie, select=select),
            oracles.integers(8, count=9, classes=classes),
        )
        results = [trainer.fit(net, X, y, validation=other) for net in (one, joint)]
        assert torch.equal(results[0].predict(X), results[1].predict(X))
        weight, bias = blocks(joint, classes)
        assert torch.equal(weight, one.weight)
        assert torch.equal(bias, one.bias)
        assert results[0].log.equals(results[1].log)
        for t in range(len(results[0].log) + 1):
            here, there = (result.log.state_at(t) for result in results)
            weight, bias = blocks(there, classes)
            assert torch.equal(weight, here.weight)
            assert torch.equal(bias, here.bias)
            assert torch.equal(here.scores(X), there.scores(X))


def test_features_of_the_user():
    """Classes may share features: with φ(x, k) = k-th multiple of x, one vector of width d scores all classes."""

    def phi(x):
        return torch.stack([x * k for k in (-1.0, 0.0, 1.0)], 1)

    net = tp.JointPerceptron(1, 3, features=phi)
    X = torch.tensor([[-2.0], [2.0], [-3.0], [1.0]])
    result = tp.RuleTrainer().fit(net, X, torch.tensor([0, 2, 0, 2]))
    assert result.verdict.name == "SEPARATED"
    assert net.weight.shape == (1, 1)
    assert net.predict(X).tolist() == [0, 2, 0, 2]
