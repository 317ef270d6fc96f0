"""Runs that end with a proof, the live bracket, and rates that theory chooses."""

import warnings

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from sklearn.datasets import load_iris

import torchperc as tp
from torchperc import lightning as L

CHATTER = (
    r"ignore:.*LeafSpec",
    r"ignore:.*The number of training batches",
    r"ignore:.*validation_step",
    r"ignore:.*GPU available",
)
pytestmark = [pytest.mark.filterwarnings(text) for text in CHATTER]


def iris(positive):
    data = load_iris()
    return data.data, np.where(data.target == positive, 1, -1)


def trained(lit, X, y, epochs=20, **options):
    trainer = L.make_trainer(
        "unused",
        epochs,
        enable_progress_bar=False,
        enable_checkpointing=False,
        logger=False,
        picture_every=0,
        **options,
    )
    trainer.fit(lit, L.SliceLoader(torch.as_tensor(X, dtype=lit.net.weight.dtype), torch.as_tensor(y)))
    return trainer


# --- a verdict with its proof ---


def test_xor_ends_with_its_witness():
    result = tp.RuleTrainer(prove=True).fit(tp.Perceptron(2), *tp.data.gate("XOR"))
    assert result.verdict is tp.Verdict.NOT_SEPARABLE
    assert result.certificate.witness.alpha == (0.25,) * 4
    assert result.certificate.verify()
    assert "NOT_SEPARABLE" in result.sentence
    assert result.cycle is None


def test_a_budget_that_was_too_small_says_that_more_would_do():
    result = tp.RuleTrainer(max_epochs=2, prove=True).fit(tp.Perceptron(2), *tp.data.gate("AND"))
    assert result.verdict is tp.Verdict.BUDGET
    assert result.certificate.separable is True


@pytest.mark.parametrize(("positive", "verdict"), [(0, "SEPARATED"), (1, "NOT_SEPARABLE"), (2, "NOT_SEPARABLE")])
def test_iris(positive, verdict):
    X, y = iris(positive)
    for data in (X, sp.csr_array(X)):
        result = tp.RuleTrainer(max_epochs=20, prove=True).fit(tp.Perceptron(4).double(), data, y)
        assert result.verdict.name == verdict


def test_without_a_bias_hyperplanes_go_through_the_origin():
    X, y = [[1.0], [3.0]], [-1, 1]
    assert tp.RuleTrainer(prove=True).fit(tp.Perceptron(1), X, y).verdict is tp.Verdict.SEPARATED
    result = tp.RuleTrainer(prove=True, max_epochs=5).fit(tp.Perceptron(1, bias=False), X, y)
    assert result.verdict is tp.Verdict.NOT_SEPARABLE


def test_many_classes():
    data = load_iris()
    result = tp.RuleTrainer(max_epochs=5, prove=True).fit(
        tp.MulticlassPerceptron(4, 3).double(), data.data, data.target
    )
    assert result.verdict is tp.Verdict.NOT_SEPARABLE
    assert result.certificate.verify()


def test_samples_of_weight_zero_are_left_out_of_the_proof():
    X, y = tp.data.gate("XOR")
    result = tp.RuleTrainer(max_epochs=1, prove=True).fit(tp.Perceptron(2), X, y, sample_weight=[1, 1, 1, 0])
    assert result.certificate is None or result.certificate.separable is True


@pytest.mark.parametrize(
    ("options", "net", "message"),
    [
        ({"kernel": "poly"}, None, "prove=True .*kernel"),
        ({}, tp.JointPerceptron(2, 2), "joint features"),
        ({"bias_step": "none"}, "biased", "needs a bias of 0"),
    ],
)
def test_where_there_is_no_proof(options, net, message):
    X, y = tp.data.gate("XOR")
    if net == "biased":
        net = tp.Perceptron(2)
        torch.nn.init.ones_(net.bias)
    labels = (y > 0).long() if isinstance(net, tp.JointPerceptron) else y
    with pytest.raises(ValueError, match=message):
        tp.RuleTrainer(prove=True, **options).fit(net, X, labels)


@pytest.mark.slow
def test_lit_rule_ends_with_the_proof():
    lit = L.LitRule(tp.Perceptron(2), prove=True)
    trained(lit, *tp.data.gate("XOR"))
    assert lit.result.verdict is tp.Verdict.NOT_SEPARABLE
    assert lit.result.certificate.verify()


# --- rates ---


@pytest.mark.slow
def test_a_rate_that_is_too_large_is_said_before_the_run():
    X, y = iris(0)
    limit = tp.theory.step_limit("lms", X)
    with pytest.warns(UserWarning, match="2/L"):
        trained(L.LitClassifier(tp.Perceptron(4).double(), "lms", lr=1.05 * limit), X, y, 1)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*2/L")
        trained(L.LitClassifier(tp.Perceptron(4).double(), "lms", lr=0.95 * limit), X, y, 1)
