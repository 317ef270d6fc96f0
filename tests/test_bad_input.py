"""Bad input: a ValueError or TypeError that names parameter, value and remedy, and a net that keeps its weights."""

import math
import warnings

import numpy as np
import pytest
import torch
from scipy import sparse as sp
from scipy.sparse import csr_array

import torchperc as tp
from torchperc.model.model_file import load_safetensors, save_safetensors

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
    "three labels": ({"y": [0, 1, 2, 1]}, ValueError, "found 0, 1, 2; use MulticlassPerceptron"),
    "label nan": ({"y": [1.0, math.nan, -1, 1]}, ValueError, "y must hold -1 and \\+1, found.*nan.*map your two"),
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
    "fractional order": ({"options": {"order": [0.5]}}, ValueError, "order must be integer sample numbers"),
    "empty order": ({"options": {"order": []}}, ValueError, "order must be integer sample numbers.*found shape"),
    "no bias to step": ({"net": tp.Perceptron(2, bias=False), "options": {"bias_step": "unit"}}, ValueError, "bias_step='unit' but the net has no bias"),
    "rate too small for the net": ({"options": {"lr": 1e-50}}, ValueError, "lr=1e-50 makes steps of 1e-50"),
    "weights too large for the net": ({"sample_weight": [1, 1, 1, 1e308]}, ValueError, "lr=1 makes steps of 1e.308"),
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


# --- one door for data ---


def with_arrays(matrix, **arrays):
    """A scipy matrix some of whose arrays are replaced, which scipy does not look at."""
    for name, values in arrays.items():
        setattr(matrix, name, values)
    return matrix


def int32(*values):
    return np.array(values, np.int32)


def torch_csr(columns, starts=(0, 1, 2, 3, 4)):
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta")
        return torch.sparse_csr_tensor(
            torch.tensor(starts), torch.tensor(columns), torch.ones(4).double(), size=(4, 4), check_invariants=False
        )


DAMAGED = {
    "column too large": lambda: with_arrays(sp.csr_array(np.eye(4)), indices=int32(0, 1, 9**6, 3)),
    "column below 0": lambda: with_arrays(sp.csr_array(np.eye(4)), indices=int32(0, -1, 2, 3)),
    "pointers beyond the end": lambda: with_arrays(sp.csr_array(np.eye(4)), indptr=int32(0, 1, 2, 3, 400)),
    "pointers that fall": lambda: with_arrays(sp.csr_array(np.eye(4)), indptr=int32(0, 3, 2, 3, 4)),
    "pointers below 0": lambda: with_arrays(sp.csr_array(np.eye(4)), indptr=int32(-7, 1, 2, 3, 4)),
    "too few pointers": lambda: with_arrays(sp.csr_array(np.eye(4)), indptr=int32(0, 4)),
    "too few values": lambda: with_arrays(sp.csr_array(np.eye(4)), data=np.ones(2)),
    "csc row too large": lambda: with_arrays(sp.csc_array(np.eye(4)), indices=int32(0, 1, 9**6, 3)),
    "csc pointers": lambda: with_arrays(sp.csc_array(np.eye(4)), indptr=int32(0, 1, 2, 3, 400)),
    "coo": lambda: with_arrays(sp.coo_array(np.eye(4)), coords=(int32(0, 1, 2, 3), int32(0, 1, 2, 10**6))),
    "bsr": lambda: with_arrays(sp.bsr_array(np.eye(4)), indices=int32(77, 0, 0, 0)),
    "torch csr": lambda: torch_csr([0, 1, 2, 10**6]),
    "torch csr pointers": lambda: torch_csr([0, 1, 2, 3], (0, 1, 2, 3, 400)),
    "torch coo": lambda: torch.sparse_coo_tensor(
        torch.tensor([[0, 1, 2, 3], [0, 1, 2, 10**6]]), torch.ones(4).double(), size=(4, 4), check_invariants=False
    ),
}
FOUR = [1, -1, 1, -1]


def linear(*width):
    return tp.Perceptron(*(width or (4,)), dtype=torch.float64)


TAKERS = {
    "reference": lambda X: tp.RuleTrainer(engine="reference").fit(linear(), X, FOUR),
    "partial_fit": lambda X: tp.RuleTrainer().partial_fit(linear(), X, FOUR),
    "validation": lambda X: tp.RuleTrainer().fit(linear(), np.eye(4), FOUR, validation=(X, FOUR)),
    "sweep": lambda X: tp.sweep(X, FOUR, seeds=range(3)),
    "separability": lambda X: tp.theory.separability(X, FOUR),
    "max_margin": lambda X: tp.theory.max_margin(X, FOUR),
    "PerceptronClassifier": lambda X: tp.sklearn.PerceptronClassifier().fit(X, FOUR),
    "LogisticClassifier": lambda X: tp.sklearn.LogisticClassifier().fit(X, FOUR),
    "predict": lambda X: tp.sklearn.PerceptronClassifier().fit(np.eye(4), FOUR).predict(X),
    "descend": lambda X: tp.descend(linear(), tp.LMSHead(), X, FOUR, 0.1),
    "Dataset": lambda X: tp.data.Dataset(X, torch.tensor(FOUR), ("a", "b"), tuple("abcd")),
    "loader": lambda X: tp.lightning.SliceLoader(X, torch.tensor(FOUR)),
    "forward": lambda X: linear()(X),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_sparse_samples_that_point_outside_their_memory(name):
    with pytest.raises(ValueError, match="X is a damaged sparse matrix"):
        tp.RuleTrainer().fit(linear(), DAMAGED[name](), FOUR)


@pytest.mark.parametrize("name", TAKERS)
def test_whatever_takes_samples_looks_for_damage(name):
    with pytest.raises(ValueError, match="X is a damaged sparse matrix"):
        TAKERS[name](DAMAGED["torch csr" if name == "forward" else "column too large"]())


def test_a_sparse_matrix_with_room_to_spare_is_not_damaged():
    X = sp.csr_array(np.eye(4))
    wide = with_arrays(X.copy(), data=np.append(X.data, 5.0), indices=np.append(X.indices, 77))
    runs = [tp.RuleTrainer().fit(linear(), each, FOUR) for each in (X, wide)]
    assert runs[0].log.equals(runs[1].log)


SAMPLES = torch.randn(300, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
SIGNS, CODES = torch.where(SAMPLES[:, 0] > 0, 1, -1), (SAMPLES[:, 0] > 0).long()


def replaced(values, place, value):
    values = values.clone()
    values[place] = value
    return values


@pytest.mark.parametrize(
    ("X", "y", "lr", "classes", "error"),
    [
        (SAMPLES, replaced(CODES, 5, 10**6), 0.1, 3, "class indices 0 to 2, found 0, 1, 1000000"),
        (SAMPLES, -CODES, 0.1, 3, "class indices 0 to 2, found -1, 0"),
        (SAMPLES[:0], SIGNS[:0], 0.1, None, "X is empty"),
        (SAMPLES, SIGNS[:5], 0.1, None, "y has 5 values for 300 samples"),
        (SAMPLES[:5], SIGNS, 0.1, None, "y has 300 values for 5 samples"),
        (torch.cat([SAMPLES, SAMPLES], 1), SIGNS, 0.1, None, "8 features but 4 are needed"),
        (SAMPLES[:, :3], SIGNS, 0.1, None, "3 features but 4 are needed"),
        (SAMPLES.float(), SIGNS, 0.1, None, "dtype torch.float32 but torch.float64 is needed"),
        (replaced(SAMPLES, (7, 2), math.nan), SIGNS, 0.1, None, r"X\[7, 2\] = nan"),
        (SAMPLES, SIGNS, -1.0, None, "lr=-1.0 must be"),
        (SAMPLES, SIGNS, math.nan, None, "lr=nan must be"),
        (SAMPLES, CODES, 0.1, None, "-1 and [+]1, found 0, 1"),
        (SAMPLES[:3], torch.tensor([50, 80, -3]), 0.1, None, "-1 and [+]1, found -3, 50, 80"),
        (SAMPLES[:3], torch.tensor([1.0, math.nan, -1.0]), 0.1, None, "-1 and [+]1, found -1.0, 1.0, nan"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_descend_refuses_before_anything_moves(X, y, lr, classes, error):
    net = linear() if classes is None else tp.MulticlassPerceptron(4, classes, dtype=torch.float64)
    with pytest.raises((ValueError, TypeError), match=error):
        tp.descend(net, tp.LMSHead(), X, y, lr)
    assert not net.weight.any()


@pytest.mark.parametrize("head", [tp.PerceptronHead(), tp.LMSHead(), tp.LogisticHead()], ids=str)
def test_every_head_refuses_what_is_not_finite(head):
    net = linear()
    with pytest.raises(ValueError, match=r"X\[7, 2\] = nan"):
        tp.descend(net, head, replaced(SAMPLES, (7, 2), math.nan), SIGNS, 0.1)
    assert not net.weight.any()


def test_a_score_that_is_not_finite_has_no_label():
    x = torch.tensor([[math.nan, 1.0]])
    nets = (tp.Perceptron(2), tp.MulticlassPerceptron(2, 3), tp.JointPerceptron(2, 3), tp.MLP(2))
    for predict in (*(net.predict for net in nets), tp.lightning.LitClassifier(tp.Perceptron(2)).predict_step):
        with pytest.raises(ValueError, match="a score is nan, which has no decision"):
            predict(x)


def test_a_learning_rate_without_all_its_digits_is_refused():
    with pytest.raises(
        ValueError, match=r"lr=9.99989e-321 makes steps of .*, which torch.float64 cannot hold; scale it$"
    ):
        tp.RuleTrainer(lr=1e-320).fit(linear(), np.eye(4), FOUR)


def test_lit_rule_needs_a_net():
    with pytest.raises(TypeError, match="net must be a module that gives scores, found NoneType"):
        tp.lightning.LitRule(None)


@pytest.mark.parametrize("order", [math.nan, "word", -1, True, [], [0.5], [-1], [300]])
def test_descend_refuses_an_order_that_is_none(order):
    net = linear()
    with pytest.raises(ValueError, match=r"order must (be|hold)"):
        tp.descend(net, tp.LMSHead(), SAMPLES, SIGNS, 0.1, order=order)
    assert not net.weight.any()


ESTIMATORS = [tp.sklearn.PerceptronClassifier, tp.sklearn.LMSClassifier, tp.sklearn.LogisticClassifier]


@pytest.mark.parametrize("make", ESTIMATORS)
@pytest.mark.parametrize("fraction", [math.nan, "a tenth"])
def test_estimators_check_parameters_that_are_not_used(make, fraction):
    with pytest.raises((ValueError, TypeError), match="validation_fraction"):
        make(validation_fraction=fraction).fit(SAMPLES.numpy(), SIGNS.numpy())


@pytest.mark.filterwarnings("ignore:LogisticClassifier ended on BUDGET")
@pytest.mark.parametrize("make", ESTIMATORS)
def test_estimators_take_tensors_and_refuse_what_hides_numbers(make):
    X, y = SAMPLES.numpy(), SIGNS.numpy()
    model = make().fit(X, y)
    again = make().fit(SAMPLES.clone().requires_grad_(), SIGNS)
    assert np.array_equal(model.coef_, again.coef_)
    with pytest.raises(ValueError, match="X has masked values"):
        model.predict(np.ma.masked_less(X, 0))
    for given in ((SAMPLES.to("meta"), y), (X, SIGNS.to("meta"))):
        with pytest.raises(TypeError, match=r"must be a dense tensor of real numbers, found .* on meta"):
            make().fit(*given)


def test_a_checksum_whose_name_is_damaged_is_missed(tmp_path):
    path = tmp_path / "net.safetensors"
    save_safetensors(linear(), path)
    path.write_bytes(path.read_bytes().replace(b"torchperc.checksum", b"torchperc.checkzum"))
    with pytest.raises(ValueError, match=r"damaged \(its checksum does not match"):
        load_safetensors(path, linear())


def test_an_array_whose_header_is_damaged(tmp_path):
    np.save(tmp_path / "X.npy", np.eye(4))
    content = (tmp_path / "X.npy").read_bytes()
    (tmp_path / "X.npy").write_bytes(content.replace(b"(4, 4)", b"(4, 4("))
    with pytest.raises(ValueError, match="is not a complete array of numbers"):
        tp.data.read(tmp_path / "X.npy")
