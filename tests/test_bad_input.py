"""Bad input: a ValueError or TypeError that names parameter, value and remedy, and a net that keeps its weights."""

import copy
import math
import warnings

import numpy as np
import pytest
import torch
from scipy import sparse as sp
from scipy.sparse import csr_array

import torchperc as tp

X, Y = tp.data.gate("AND")
weight_norm = torch.nn.utils.parametrizations.weight_norm
NAN = X.clone()
NAN[2, 1] = math.nan
LARGE = [[2**24 + 1, 1], [0, 0]]


def linear(width=4, dtype=torch.float64):
    return tp.Perceptron(width, init="normal", seed=0, dtype=dtype)


CASES = {
    "one dimension": ({"X": X[0]}, ValueError, r"X .*\(2,\).*reshape"),
    "ragged": ({"X": [[1, 2], [3]]}, ValueError, "X must be rectangular"),
    "words": ({"X": np.array([["a", "b"]] * 4)}, TypeError, "X must hold real numbers"),
    "nothing": ({"X": None}, TypeError, "X .*NoneType"),
    "complex": ({"X": X + 0j}, TypeError, "X .*complex64"),
    "no samples": ({"X": X[:0], "y": Y[:0]}, ValueError, r"X is empty.*\(0, 2\)"),
    "no features": ({"X": X[:, :0]}, ValueError, r"X is empty.*\(4, 0\)"),
    "not a number": ({"X": NAN}, ValueError, r"X\[2, 1\] = nan"),
    "infinite": ({"X": np.array([[0, 1], [-np.inf, 0]]), "y": [1, -1]}, ValueError, r"X\[1, 0\] = -inf"),
    "too large for float32": ({"X": [[1e300, 0], [0, 0]], "y": [1, -1]}, ValueError, r"1e\+300 .*torch.float32"),
    "inexact integers": ({"X": LARGE, "y": [1, -1]}, ValueError, "X .*net.double"),
    "unsigned integers": ({"X": np.full((4, 2), 2**63 + 1, np.uint64)}, ValueError, "X .*net.double"),
    "masked": ({"X": np.ma.masked_equal(X.numpy(), 1)}, ValueError, "X has masked values"),
    "overflow": ({"X": [[3e38, 3e38], [-3e38, 3e38]], "y": [1, -1]}, ValueError, "overflow.*lr"),
    "sparse nan": ({"X": csr_array([[0, np.nan], [1, 0]]), "y": [1, -1]}, ValueError, r"X\[0, 1\] = nan"),
    "sparse nan behind": ({"X": csr_array(([1.0, 2.0, np.nan], [1, 0, 1], [0, 2, 3])), "y": [1, -1]}, ValueError, r"X\[1, 1\] = nan"),
    "sparse inexact integers": ({"X": csr_array(LARGE), "y": [1, -1]}, ValueError, "X .*net.double"),
    "sparse without numbers": ({"X": X.to_sparse().to("meta")}, TypeError, "X is on the meta device"),
    "sparse too large": ({"X": csr_array([[1e300, 1], [0, 0]]), "y": [1, -1]}, ValueError, r"1e\+300"),
    "other width": ({"X": torch.zeros(4, 3)}, ValueError, "X has 3 features but 2"),
    "other dtype": ({"X": X.double()}, TypeError, r"X has dtype torch.float64 .*convert"),
    "labels 0/1": ({"y": [0, 0, 0, 1]}, ValueError, "y .*found 0, 1; map"),
    "three labels": ({"y": [0, 1, 2, 1]}, ValueError, "y .*found 0, 1, 2; use MulticlassPerceptron"),
    "label nan": ({"y": [1.0, math.nan, -1, 1]}, ValueError, "y .*nan; map"),
    "bool labels": ({"y": [True, False, True, True]}, ValueError, "y .*False, True; convert.*where"),
    "real labels": ({"y": [0.5, 1.5, 2.5, 1]}, ValueError, "y .*0.5, 1.0, 1.5, 2.5; .*RegressionHead"),
    "few labels": ({"y": [1, -1]}, ValueError, "y has 2 values for 4 samples"),
    "a column of labels": ({"y": Y[:, None]}, ValueError, r"y .*\(4, 1\).*reshape"),
    "one class": ({"y": [1, 1, 1, 1]}, ValueError, "y has one class only, found 1"),
    "word labels": ({"y": ["a", "b", "a", "b"]}, TypeError, "y must hold real numbers"),
    "class out of range": ({"net": tp.MulticlassPerceptron(2, 3), "y": [0, 1, 2, 3]}, ValueError, "y .*0 to 2, found 0, 1, 2, 3"),
    "fractional class": ({"net": tp.MulticlassPerceptron(2, 3), "y": [0, 1, 0.5, 1]}, ValueError, "y .*0.0, 0.5, 1.0"),
    "hidden layers": ({"net": tp.MLP(2)}, TypeError, "net .*MLP.*gradient"),
    "not a net": ({"net": "AND"}, TypeError, "net .*str"),
    "parametrized": ({"net": weight_norm(torch.nn.Linear(2, 1))}, TypeError, "net.weight"),
    "no bias to step": ({"net": tp.Perceptron(2, bias=False), "options": {"bias_step": "unit"}}, ValueError, "bias_step='unit'"),
    "weights too few": ({"sample_weight": [1, 1]}, ValueError, "sample_weight has 2 values for 4"),
    "negative weight": ({"sample_weight": [1, -2, 1, 1]}, ValueError, "sample_weight .*-2"),
    "infinite weight": ({"sample_weight": [1, math.inf, 1, 1]}, ValueError, "sample_weight .*inf"),
    "no weight": ({"sample_weight": [0, 0, 0, 0]}, ValueError, "sample_weight is 0"),
    "weights leave one class": ({"sample_weight": [1, 1, 1, 0]}, ValueError, "sample_weight .*one class"),
    "weights too large for the net": ({"sample_weight": [1, 1, 1, 1e308]}, ValueError, "lr=1 .*1e.308"),
    "rate too small for the net": ({"options": {"lr": 1e-50}}, ValueError, "lr=1e-50"),
    "validation width": ({"validation": (torch.zeros(2, 3), [1, -1])}, ValueError, "validation X has 3 features but 2"),
    "validation labels": ({"validation": (X, [0, 1, 0, 1])}, ValueError, "validation y .*0, 1"),
    "validation not a pair": ({"validation": X}, TypeError, "validation must be a pair"),
    "no validation": ({"options": {"select": "best-validation"}}, ValueError, "needs validation="),
    "unknown class weight": ({"options": {"class_weight": {2: 1.0}}}, ValueError, "class_weight .*2"),
    "order out of range": ({"options": {"order": [0, 4]}}, ValueError, "order .*4"),
    "negative order": ({"options": {"order": [0, -1]}}, ValueError, "order .*-1"),
    "fractional order": ({"options": {"order": [0.5]}}, ValueError, "order .*integer"),
    "empty order": ({"options": {"order": []}}, ValueError, "order .*shape"),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_fit_says_what_is_wrong_and_keeps_the_weights(name):
    given, error, message = CASES[name]
    given = {"net": linear(2, torch.float32), "X": X, "y": Y, **given}
    before = copy.deepcopy(given["net"])
    with pytest.raises(error, match=message) as caught:
        tp.RuleTrainer(**given.pop("options", {})).fit(**given)
    assert "\n" not in str(caught.value)
    if isinstance(before, torch.nn.Module):
        assert all(map(torch.equal, before.state_dict().values(), given["net"].state_dict().values()))


@pytest.mark.parametrize(
    ("option", "values", "error"),
    [
        ("max_epochs", [0], ValueError),
        ("max_epochs", [2.5, True], TypeError),
        ("lr", [math.nan, math.inf, 0.0, -1], ValueError),
        ("lr", ["fast"], TypeError),
        ("order", ["sorted"], ValueError),
        ("order", [3], TypeError),
        ("seed", [-1], ValueError),
        ("seed", [None], TypeError),
        ("margin", [-0.1], ValueError),
        ("class_weight", ["heavy", {1: -1}], ValueError),
        ("class_weight", [[1, 2]], TypeError),
        *((option, ["warp"], ValueError) for option in ("tie", "bias_step", "select", "engine")),
    ],
)
def test_options_are_checked_when_they_are_given(option, values, error):
    for value in values:
        with pytest.raises(error, match=option):
            tp.RuleTrainer(**{option: value})


def test_nets_scores_and_learning_rates_that_are_not_finite():
    net = tp.Perceptron(2)
    torch.nn.init.constant_(net.weight, math.nan)
    with pytest.raises(ValueError, match="net has weights that are not finite"):
        tp.RuleTrainer().fit(net, X, Y)
    result = tp.RuleTrainer().fit(tp.Perceptron(2), X, Y)
    with pytest.raises(ValueError, match="X has 3 features but 2"):
        result.predict(torch.zeros(1, 3))
    with pytest.raises(ValueError, match="nan"):
        result.scores(NAN)
    with pytest.raises(ValueError, match=r"lr=9.99989e-321 .*torch.float64"):
        tp.RuleTrainer(lr=1e-320).fit(linear(), np.eye(4), FOUR)
    with pytest.raises(TypeError, match=r"net .*NoneType"):
        tp.lightning.LitRule(None)
    nets = (tp.Perceptron(2), tp.MulticlassPerceptron(2, 3), tp.JointPerceptron(2, 3), tp.MLP(2))
    for predict in (*(net.predict for net in nets), tp.lightning.LitClassifier(tp.Perceptron(2)).predict_step):
        with pytest.raises(ValueError, match="a score is nan"):
            predict(NAN)


def test_numpy_doubles_and_integers_are_welcome():
    types = [X.numpy().astype(dtype) for dtype in (np.float64, np.int32, np.uint8, np.uint32)]
    for data in (*types, X.long(), X.tolist(), X.bool()):
        net = tp.Perceptron(2)
        tp.RuleTrainer().fit(net, data, Y.numpy().astype(float))
        assert net.weight.tolist() == [[3, 2]]


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
    "column too large": lambda: with_arrays(sp.csr_array(np.eye(4)), indices=int32(0, 1, 2, 4)),
    "column far too large": lambda: with_arrays(sp.csr_array(np.eye(4)), indices=int32(0, 1, 2**31 - 1, 3)),
    "column below 0": lambda: with_arrays(sp.csr_array(np.eye(4)), indices=int32(0, -1, 2, 3)),
    "pointers beyond the end": lambda: with_arrays(sp.csr_array(np.eye(4)), indptr=int32(0, 1, 2, 3, 400)),
    "pointers that fall": lambda: with_arrays(sp.csr_array(np.eye(4)), indptr=int32(0, 3, 2, 3, 4)),
    "pointers that rise too far": lambda: with_arrays(sp.csr_array(np.eye(4)), indptr=int32(0, 1, 2, 7, 4)),
    "pointers below 0": lambda: with_arrays(sp.csr_array(np.eye(4)), indptr=int32(-7, 1, 2, 3, 4)),
    "too few pointers": lambda: with_arrays(sp.csr_array(np.eye(4)), indptr=int32(0, 4)),
    "too few values": lambda: with_arrays(sp.csr_array(np.eye(4)), data=np.ones(2)),
    "csc row too large": lambda: with_arrays(sp.csc_array(np.eye(4)), indices=int32(0, 1, 9**6, 3)),
    "coo": lambda: with_arrays(sp.coo_array(np.eye(4)), coords=(int32(0, 1, 2, 3), int32(0, 1, 2, 10**6))),
    "bsr": lambda: with_arrays(sp.bsr_array(np.eye(4)), indices=int32(77, 0, 0, 0)),
    "torch csr": lambda: torch_csr([0, 1, 2, 10**6]),
    "torch csr pointers": lambda: torch_csr([0, 1, 2, 3], (0, 1, 2, 3, 400)),
    "torch coo": lambda: torch.sparse_coo_tensor(
        torch.tensor([[0, 1, 2, 3], [0, 1, 2, 10**6]]), torch.ones(4).double(), size=(4, 4), check_invariants=False
    ),
}
FOUR = [1, -1, 1, -1]
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


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"y": -CODES, "net": tp.MulticlassPerceptron(4, 3, dtype=torch.float64)}, "y .*0 to 2, found -1, 0"),
        ({"X": SAMPLES[:0], "y": SIGNS[:0]}, "X is empty"),
        ({"X": SAMPLES[:5]}, "y has 300 values for 5 samples"),
        ({"X": SAMPLES[:, :3]}, "X has 3 features but 4"),
        ({"X": SAMPLES.float()}, "X has dtype torch.float32"),
        *(({"X": SAMPLES / 0, "head": head()}, "X.0, 0. = -?inf") for head in (tp.PerceptronHead, tp.LogisticHead)),
        ({"y": CODES}, "y .*found 0, 1"),
        *(({"lr": lr}, f"lr={lr}") for lr in (-1.0, math.nan)),
        *(({"order": order}, "order must") for order in (math.nan, "word", -1, True, [], [0.5], [-1], [300])),
    ],
)
def test_descend_refuses_before_anything_moves(given, message):
    given = {"net": linear(), "head": tp.LMSHead(), "X": SAMPLES, "y": SIGNS, "lr": 0.1, **given}
    before = given["net"].weight.detach().clone()
    with pytest.raises((ValueError, TypeError), match=message):
        tp.descend(**given)
    assert torch.equal(given["net"].weight, before)


ESTIMATORS = [tp.sklearn.PerceptronClassifier, tp.sklearn.LMSClassifier, tp.sklearn.LogisticClassifier]


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
        with pytest.raises(TypeError, match=r"(X|y) .* on meta"):
            make().fit(*given)
    for fraction in (math.nan, "a tenth"):  # also where it is not used
        with pytest.raises((ValueError, TypeError), match="validation_fraction"):
            make(validation_fraction=fraction).fit(X, y)


def test_an_array_whose_header_is_damaged(tmp_path):
    np.save(tmp_path / "X.npy", np.eye(4))
    content = (tmp_path / "X.npy").read_bytes()
    (tmp_path / "X.npy").write_bytes(content.replace(b"(4, 4)", b"(4, 4("))
    with pytest.raises(ValueError, match=r"X\.npy is not a complete array"):
        tp.data.read(tmp_path / "X.npy")
