"""Bad input: a ValueError or TypeError that names parameter, value and remedy, and a net that keeps its weights."""

import math

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array

import torchperc as tp

X, Y = tp.data.gate("AND")
weight_norm = torch.nn.utils.parametrizations.weight_norm
NAN = X.clone()
NAN[2, 1] = math.nan


def fit(net=None, X=X, y=Y, options=None, **more):
    net = tp.Perceptron(2, init="normal", seed=0) if net is None else net
    return tp.RuleTrainer(**(options or {})).fit(net, X, y, **more)


CASES = {
    "one dimension": ({"X": X[0]}, ValueError, r"X must have two dimensions.*\(2,\).*reshape"),
    "three dimensions": ({"X": X[None]}, ValueError, r"X must have two dimensions.*\(1, 4, 2\)"),
    "ragged": ({"X": [[1, 2], [3]]}, ValueError, "X must be rectangular"),
    "words": ({"X": np.array([["a", "b"]] * 4)}, TypeError, "X must hold real numbers"),
    "nothing": ({"X": None}, TypeError, "X must hold real numbers.*NoneType"),
    "complex": ({"X": X + 0j}, TypeError, "X must be a dense tensor of real numbers"),
    "no samples": ({"X": X[:0], "y": Y[:0]}, ValueError, r"X is empty.*\(0, 2\)"),
    "no features": ({"X": X[:, :0]}, ValueError, r"X is empty.*\(4, 0\)"),
    "not a number": ({"X": NAN}, ValueError, r"X\[2, 1\] = nan is not a finite number"),
    "infinite": ({"X": np.array([[0, 1], [-np.inf, 0]]), "y": [1, -1]}, ValueError, r"X\[1, 0\] = -inf"),
    "too large for float32": ({"X": [[1e300, 0], [0, 0]], "y": [1, -1]}, ValueError, r"1e\+300 is too large for torch.float32"),
    "inexact integers": ({"X": [[2**24 + 1, 1], [0, 0]], "y": [1, -1]}, ValueError, "integers too large.*net.double"),
    "sparse nan": ({"X": csr_array([[0, np.nan], [1, 0]]), "y": [1, -1]}, ValueError, r"X\[0, 1\] = nan"),
    "other width": ({"X": torch.zeros(4, 3)}, ValueError, "X has 3 features but 2 are needed"),
    "other dtype": ({"X": X.double()}, TypeError, r"X has dtype torch.float64 but torch.float32 is needed.*convert"),
    "labels 0/1": ({"y": [0, 0, 0, 1]}, ValueError, "y must hold -1 and \\+1, found 0, 1; map your two labels"),
    "three labels": ({"y": [0, 1, 2, 1]}, ValueError, "found 0, 1, 2"),
    "label nan": ({"y": [1.0, math.nan, -1, 1]}, ValueError, "y must hold -1 and \\+1, found.*nan"),
    "bool labels": ({"y": [True, False, True, True]}, ValueError, "found False, True"),
    "few labels": ({"y": [1, -1]}, ValueError, "y has 2 values for 4 samples"),
    "a column of labels": ({"y": Y[:, None]}, ValueError, r"y must have one dimension.*\(4, 1\).*reshape"),
    "one class": ({"y": [1, 1, 1, 1]}, ValueError, "one class only, found 1"),
    "word labels": ({"y": ["a", "b", "a", "b"]}, TypeError, "y must hold real numbers"),
    "class out of range": ({"net": tp.MulticlassPerceptron(2, 3), "y": [0, 1, 2, 3]}, ValueError, "class indices 0 to 2, found 0, 1, 2, 3"),
    "one class of three": ({"net": tp.MulticlassPerceptron(2, 3), "y": [1, 1, 1, 1]}, ValueError, "one class only"),
    "fractional class": ({"net": tp.MulticlassPerceptron(2, 3), "y": [0, 1, 0.5, 1]}, ValueError, "found 0.0, 0.5, 1.0"),
    "hidden layers": ({"net": tp.MLP(2)}, TypeError, "net must be a linear net.*found MLP.*gradient"),
    "not a net": ({"net": "AND"}, TypeError, "net must be a linear net.*found str"),
    "weights too few": ({"sample_weight": [1, 1]}, ValueError, "sample_weight has 2 values for 4"),
    "negative weight": ({"sample_weight": [1, -2, 1, 1]}, ValueError, "sample_weight must hold.*found -2"),
    "infinite weight": ({"sample_weight": [1, math.inf, 1, 1]}, ValueError, "found inf"),
    "no weight": ({"sample_weight": [0, 0, 0, 0]}, ValueError, "sample_weight is 0 everywhere"),
    "weights leave one class": ({"sample_weight": [1, 1, 1, 0]}, ValueError, "leave one class only"),
    "validation width": ({"validation": (torch.zeros(2, 3), [1, -1])}, ValueError, "validation X has 3 features but 2"),
    "validation labels": ({"validation": (X, [0, 1, 0, 1])}, ValueError, "validation y must hold -1 and"),
    "validation nan": ({"validation": (NAN, Y)}, ValueError, r"validation X\[2, 1\] = nan"),
    "validation not a pair": ({"validation": X}, TypeError, "validation must be a pair"),
    "no validation": ({"options": {"select": "best-validation"}}, ValueError, "needs validation="),
    "unknown class weight": ({"options": {"class_weight": {2: 1.0}}}, ValueError, "class_weight names label 2"),
    "order out of range": ({"options": {"order": [0, 4]}}, ValueError, "order names sample 4"),
    "negative order": ({"options": {"order": [0, -1]}}, ValueError, "order names sample -1"),
    "fractional order": ({"options": {"order": [0.5]}}, ValueError, "order must be whole sample numbers"),
    "empty order": ({"options": {"order": []}}, ValueError, "order must be sample numbers.*found shape"),
    "no bias to step": ({"net": tp.Perceptron(2, bias=False), "options": {"bias_step": "unit"}}, ValueError, "bias_step='unit' but the net has no bias"),
    "rate too small for the net": ({"options": {"lr": 1e-50}}, ValueError, "lr=1e-50 makes steps of 1e-50"),
    "weights too large for the net": ({"sample_weight": [1, 1, 1, 1e308]}, ValueError, "sample and class weights makes"),
    "sparse inexact integers": ({"X": csr_array([[2**24 + 1, 1], [0, 0]]), "y": [1, -1]}, ValueError, "integers too"),
    "sparse too large": ({"X": csr_array([[1e300, 1], [0, 0]]), "y": [1, -1]}, ValueError, r"1e\+300 is too large"),
    "unsigned wraps": ({"X": np.full((4, 2), 2**63, np.uint64)}, ValueError, "too large for a signed integer"),
    "masked": ({"X": np.ma.masked_equal(X.numpy(), 1)}, ValueError, "X has masked values"),
    "parametrized": ({"net": weight_norm(torch.nn.Linear(2, 1))}, TypeError, "net.weight must be a plain parameter"),
    "overflow": ({"X": [[3e38, 3e38], [-3e38, 3e38]], "y": [1, -1]}, ValueError, "overflow"),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_fit_says_what_is_wrong_and_keeps_the_weights(name):
    arguments, error, message = CASES[name]
    net = arguments.get("net")
    net = tp.Perceptron(2, init="normal", seed=0) if net is None else net
    before = {k: v.clone() for k, v in net.state_dict().items()} if isinstance(net, torch.nn.Module) else {}
    with pytest.raises(error, match=message) as caught:
        fit(**{**arguments, "net": net})
    assert "\n" not in str(caught.value)
    assert all(torch.equal(net.state_dict()[k], v) for k, v in before.items())


@pytest.mark.parametrize(
    ("option", "value", "error"),
    [
        ("max_epochs", 0, ValueError),
        ("max_epochs", 2.5, TypeError),
        ("max_epochs", True, TypeError),
        ("lr", math.nan, ValueError),
        ("lr", math.inf, ValueError),
        ("lr", 0.0, ValueError),
        ("lr", -1, ValueError),
        ("lr", "fast", TypeError),
        ("tie", "relu", ValueError),
        ("bias_step", "half", ValueError),
        ("order", "sorted", ValueError),
        ("order", 3, TypeError),
        ("select", "best", ValueError),
        ("engine", "warp", ValueError),
        ("seed", -1, ValueError),
        ("seed", None, TypeError),
        ("margin", -0.1, ValueError),
        ("class_weight", "heavy", ValueError),
        ("class_weight", [1, 2], TypeError),
        ("class_weight", {1: -1}, ValueError),
    ],
)
def test_options_are_checked_when_they_are_given(option, value, error):
    with pytest.raises(error, match=option):
        tp.RuleTrainer(**{option: value})


def test_a_margin_needs_a_slack():
    with pytest.raises(ValueError, match="margin=1 means nothing to tie='sign'"):
        tp.RuleTrainer(margin=1, tie="sign")


def test_a_net_that_is_not_finite_is_refused():
    net = tp.Perceptron(2)
    torch.nn.init.constant_(net.weight, math.nan)
    with pytest.raises(ValueError, match="net has weights that are not finite"):
        fit(net)


def test_predictions_check_their_input():
    result = fit()
    with pytest.raises(ValueError, match="X has 3 features but 2"):
        result.predict(torch.zeros(1, 3))
    with pytest.raises(ValueError, match="nan"):
        result.scores(NAN)


def test_numpy_doubles_and_integers_are_welcome():
    for data in (X.double().numpy(), X.int().numpy(), X.numpy().astype(np.uint8), X.long(), X.tolist(), X.bool()):
        net = tp.Perceptron(2)
        tp.RuleTrainer().fit(net, data, Y.numpy().astype(float))
        assert net.weight.tolist() == [[3, 2]]
    readonly = X.numpy().copy()
    readonly.flags.writeable = False
    for data in (readonly, np.asfortranarray(X.numpy()), X.numpy()[::-1][::-1]):
        net = tp.Perceptron(2)
        tp.RuleTrainer().fit(net, data, Y)
        assert net.weight.tolist() == [[3, 2]]


@pytest.mark.parametrize("name", ["NAN", "parity", "parity-0", "parity-x", 3])
def test_gates_are_known_by_name(name):
    with pytest.raises(ValueError, match="is no gate"):
        tp.data.gate(name)
