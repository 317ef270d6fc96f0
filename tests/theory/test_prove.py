"""Runs that end with a proof, and learning rates that are too large."""

import warnings
from functools import partial

import numpy as np
import plain
import pytest
import scipy.sparse as sp
import torch
from sklearn.datasets import load_iris

import torchperc as tp

IRIS = load_iris()
XOR, AND = tp.data.gate("XOR"), tp.data.gate("AND")
SETOSA, VERSICOLOR = ((IRIS.data, np.where(IRIS.target == k, 1, -1)) for k in (0, 1))


def linear(width, bias=True):
    return tp.Perceptron(width, bias=bias, dtype=torch.float64)


@pytest.mark.parametrize(
    ("net", "data", "epochs", "verdict"),
    [
        (tp.Perceptron(2), XOR, 20, "NOT_SEPARABLE"),
        (tp.Perceptron(2), AND, 2, "BUDGET"),
        (linear(4), SETOSA, 20, "SEPARATED"),
        (linear(4), VERSICOLOR, 20, "NOT_SEPARABLE"),
        (linear(4), (sp.csr_array(IRIS.data), VERSICOLOR[1]), 20, "NOT_SEPARABLE"),
        (linear(1), ([[1.0], [3.0]], [-1, 1]), 20, "SEPARATED"),
        (linear(1, bias=False), ([[1.0], [3.0]], [-1, 1]), 5, "NOT_SEPARABLE"),
        (tp.MulticlassPerceptron(4, 3, dtype=torch.float64), (IRIS.data, IRIS.target), 5, "NOT_SEPARABLE"),
    ],
)
def test_a_run_ends_with_a_verdict_and_its_proof(net, data, epochs, verdict):
    result = tp.RuleTrainer(epochs, prove=True).fit(net, *data)
    assert result.verdict.name == verdict
    assert verdict in result.sentence
    if verdict != "SEPARATED":
        assert result.certificate.verify()
        assert result.certificate.separable is (verdict == "BUDGET")
        assert result.cycle is None


def test_samples_of_weight_zero_are_left_out_of_the_proof():
    result = tp.RuleTrainer(max_epochs=1, prove=True).fit(tp.Perceptron(2), *XOR, sample_weight=[1, 1, 1, 0])
    assert result.certificate is None or result.certificate.separable is True


@pytest.mark.parametrize(
    ("options", "net", "message"),
    [
        ({"kernel": "poly"}, None, "prove=True .*kernel"),
        ({}, tp.JointPerceptron(2, 2), "joint features"),
        ({"bias_step": "none"}, tp.Perceptron(2, init="normal", seed=0), "bias of 0"),
    ],
)
def test_where_there_is_no_proof(options, net, message):
    X, y = XOR
    with pytest.raises(ValueError, match=message):
        tp.RuleTrainer(prove=True, **options).fit(net, X, (y > 0).long() if isinstance(net, tp.JointPerceptron) else y)


@pytest.mark.slow
@pytest.mark.filterwarnings(*plain.CHATTER)
def test_lightning_modules_prove_and_warn(tmp_path):
    rule = tp.lightning.LitRule(tp.Perceptron(2), prove=True)
    plain.fit(tmp_path, rule, plain.loader(XOR), epochs=20)
    assert rule.result.verdict is tp.Verdict.NOT_SEPARABLE
    assert rule.result.certificate.verify()
    (X, y), lit = map(torch.as_tensor, SETOSA), partial(tp.lightning.LitClassifier, linear(4), "lms")
    limit = tp.theory.step_limit("lms", X)
    with pytest.warns(UserWarning, match="2/L"):
        plain.fit(tmp_path, lit(lr=1.05 * limit), plain.loader((X, y)), epochs=1)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*2/L")
        plain.fit(tmp_path, lit(lr=0.95 * limit), plain.loader((X, y)), epochs=1)
