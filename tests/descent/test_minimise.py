"""The minimum against scikit-learn, numpy's least squares and linear programs; its figures against autograd."""

import copy
import warnings

import numpy as np
import pytest
import torch
from scipy.optimize import linprog
from scipy.sparse import csr_array, random_array
from sklearn.linear_model import LogisticRegression
from torch import nn
from torch.nn.utils import parametrizations

import torchperc as tp
from torchperc import minimise
from torchperc.descent import minimise as minimising


def samples(seed, count, width, classes=None, kind="plain"):
    """Noisy labels of a linear model over features of some kind."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((count, width))
    if kind == "scaled":
        X *= np.logspace(-4, 4, width)
    elif kind == "heavy":
        X = rng.standard_t(1.5, (count, width))
    elif kind == "rare":  # some features are 0 but for about 20 samples
        X *= rng.random((count, width)) < np.logspace(0, np.log10(20 / count), width)
    elif kind == "offset":
        X += 1000
    elif kind == "collinear":
        X[:, -1] = X[:, 0] + 1e-5 * X[:, -1]
    s = (X - X.mean(0)) / X.std(0) @ (rng.standard_normal((width, classes or 1)) * 2 / width**0.5)
    if classes is None:
        y = np.where(rng.random(count) < 1 / (1 + np.exp(-s[:, 0])), 1, -1)
    else:
        y = (s + rng.gumbel(size=s.shape)).argmax(1)
    order = np.argsort(y, kind="stable") if kind == "sorted" else np.arange(count)
    return X[order], y[order]


def make(width, classes=None, bias=True, dtype=torch.float64, **options):
    if classes is None:
        return tp.Perceptron(width, bias=bias, dtype=dtype, **options)
    return tp.MulticlassPerceptron(width, classes, bias=bias, dtype=dtype, **options)


def objective(net, head, X, y, l2):
    """The loss by the head itself, in the net's graph."""
    scores = net(torch.as_tensor(X, dtype=net.weight.dtype))
    if scores.dim() == 2 and scores.shape[1] == 1:
        scores = scores.squeeze(-1)
    return head.loss(scores, torch.as_tensor(y)) + l2 / 2 * net.weight.square().sum()


def sklearn_optimum(X, y, l2, bias, solver, classes=None):
    C = np.inf if l2 == 0 else 1 / (l2 * len(X))
    model = LogisticRegression(C=C, solver=solver, tol=1e-12, max_iter=10_000, fit_intercept=bias)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # L-BFGS says that it can go no lower
        model.fit(X, y)
    net = make(X.shape[1], classes, bias)
    with torch.no_grad():
        net.weight.copy_(torch.from_numpy(model.coef_))
        if bias:
            net.bias.copy_(torch.from_numpy(model.intercept_))
    return net, objective(net, tp.LogisticHead(), X, y, l2).item()


# --- logistic -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("l2", "bias"), [(0.0, True), (1e-3, True), (1e-3, False)])
@pytest.mark.parametrize("count", [200, 4100])  # the larger one begins with a sample
@pytest.mark.parametrize(("classes", "solver"), [(None, "newton-cholesky"), (3, "lbfgs")])
def test_logistic_is_scikit_learns(l2, bias, count, classes, solver):
    X, y = samples(20, count, 5, classes)
    reference, loss = sklearn_optimum(X, y, l2, bias, solver, classes)
    net = make(5, classes, bias) if bias else nn.Linear(5, classes or 1, bias=False, dtype=torch.float64)
    nn.init.zeros_(net.weight)
    found = minimise(net, tp.LogisticHead(), X, y, l2=l2, tol=1e-14)
    assert (found.converged, found.unbounded) == (True, False)
    assert found.loss == pytest.approx(loss, rel=1e-8)
    assert found.loss <= loss * (1 + 1e-13)
    weight = reference.weight.detach()
    if classes:  # from zero, classes have nothing in common, as scikit-learn has it
        weight = weight - weight.mean(0)
        torch.testing.assert_close(net.weight.sum(0), torch.zeros(5, dtype=torch.float64), rtol=0, atol=1e-12)
    torch.testing.assert_close(net.weight.detach(), weight, rtol=0, atol=1e-5)


HEADS = [tp.LogisticHead(), tp.LMSHead(), tp.LMSHead("0/1")]


@pytest.mark.parametrize(("dtype", "bias"), [(torch.float32, True), (torch.float64, False)])
@pytest.mark.parametrize("classes", [None, 3])
@pytest.mark.parametrize("head", HEADS, ids=str)
def test_the_figures_are_those_of_the_net(dtype, classes, head, bias):
    X, y = samples(1, 300, 4, classes)
    net = make(4, classes, bias, dtype)
    X = torch.from_numpy(X).to(dtype)
    found = minimise(net, head, X, y, l2=0.01)
    assert found.converged
    assert 0 <= found.gap <= 1e-6
    net = net.double()  # what is found is exact for the rounded weights
    loss = objective(net, head, X.double(), y, 0.01)
    loss.backward()
    norm = torch.cat([p.grad.flatten() for p in net.parameters()]).norm().item()
    assert found.loss == pytest.approx(loss.item(), rel=1e-13)
    assert found.gradient_norm == pytest.approx(norm, rel=1e-6, abs=1e-15)


KINDS = ["plain", "scaled", "heavy", "rare", "offset", "collinear", "sorted"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("l2", [0.0, 1e-4])
def test_the_gap_is_the_distance_from_the_minimum(kind, l2):
    X, y = samples(2, 4100, 10, kind=kind)
    best = minimise(make(10), tp.LogisticHead(), X, y, l2=l2, tol=1e-13)
    assert best.gap <= 1e-13
    for tolerance in (1e-2, 1e-4, 1e-6):
        found = minimise(make(10), tp.LogisticHead(), X, y, l2=l2, tol=tolerance)
        true = (found.loss - best.loss) / found.loss
        assert found.converged
        assert true <= 1.5 * tolerance
        assert found.gap == pytest.approx(true, rel=0.5, abs=1e-10)


def test_the_start_does_not_matter():
    X, y = samples(8, 400, 3)
    for scale in (1.0, 1e6):
        net = make(3, init="normal", seed=1)
        with torch.no_grad():
            net.weight.mul_(scale)
        warm = minimise(net, tp.LogisticHead(), X, y, tol=1e-14)
        assert warm.loss == pytest.approx(minimise(make(3), tp.LogisticHead(), X, y).loss, rel=1e-6)
    assert minimise(net, tp.LogisticHead(), X, y).iterations == 0  # it is there already


def test_running_out_is_a_result():
    X, y = samples(9, 300, 4)
    found = minimise(make(4), tp.LogisticHead(), X, y, max_iter=1)
    assert (found.converged, found.iterations, found.unbounded) == (False, 1, False)
    assert found.gap > 1e-6


def test_any_container_will_do():
    X, y = samples(11, 60, 2)
    X = X.round(1)
    read_only = X[:]
    read_only.flags.writeable = False
    strided = torch.from_numpy(np.repeat(X, 2, 1))[:, ::2]
    kinds = [X, X.tolist(), np.asfortranarray(X), torch.from_numpy(X), strided, read_only]
    losses = [minimise(make(2), tp.LogisticHead(), kind, list(y)).loss for kind in kinds]
    assert losses == pytest.approx([losses[0]] * len(kinds), rel=1e-15)
    for labels in (y.astype(np.int8), y.astype(np.float32), torch.from_numpy(y), y.tolist()):
        assert minimise(make(2), tp.LogisticHead(), X, labels).loss in losses
    whole = minimise(make(2), tp.LMSHead(), (10 * X).round().astype(int), y)
    assert whole.loss == pytest.approx(minimise(make(2), tp.LMSHead(), X, y).loss)


def test_half_precision_nets_are_trained_in_double():
    X, y = samples(12, 100, 2)
    net = make(2, dtype=torch.bfloat16)
    found = minimise(net, tp.LogisticHead(), torch.from_numpy(X).bfloat16(), y, tol=1e-2)
    assert net.weight.dtype == torch.bfloat16
    assert found.converged


@pytest.mark.parametrize("l2", [1e-8, 1e-2])
def test_the_gap_of_k_classes_and_a_start_they_share(l2):
    X, y = samples(21, 300, 3, 4)
    net = make(3, 4)
    best = minimise(net, tp.LogisticHead(), X, y, l2=l2, tol=1e-14)
    for tolerance in (1e-3, 1e-5):
        with torch.no_grad():
            net.weight.mul_(0.9).add_(0.3)  # what is common to all classes no loss sees, but the penalty does
        found = minimise(net, tp.LogisticHead(), X, y, l2=l2, tol=tolerance)
        assert found.gap == pytest.approx((found.loss - best.loss) / found.loss, rel=0.5, abs=1e-12)


def test_a_class_without_samples_has_no_bias():
    X, y = samples(22, 100, 2, 2)
    net = make(2, 3)
    with pytest.raises(ValueError, match=r"no sample of class 2.*without bias"):
        minimise(net, tp.LogisticHead(), X, y, l2=0.1)
    assert not net.weight.any()
    assert minimise(make(2, 3, bias=False), tp.LogisticHead(), X, y, l2=0.1).converged
    assert minimise(make(2, 3), tp.LMSHead(), X, y).converged


# --- where there is no minimum ------------------------------------------------------------------------------------


@pytest.mark.parametrize("classes", [None, 3])
@pytest.mark.parametrize("count", [100, 4100])
def test_separable_samples_have_no_minimum_without_penalty(classes, count):
    X = np.random.default_rng(30).standard_normal((count, 3))
    y = np.where(X[:, 0] > 0.2 * X[:, 1], 1, -1) if classes is None else X.argmax(1)
    net = make(3, classes)
    with pytest.warns(UserWarning, match=r"no minimum.*Use l2 > 0"):
        found = minimise(net, tp.LogisticHead(), X, y)
    assert (found.converged, found.unbounded) == (False, True)
    assert torch.equal(net.predict(torch.from_numpy(X)), torch.from_numpy(y))  # the proof
    assert minimise(net, tp.LogisticHead(), X, y, l2=1e-3).converged
    assert minimise(make(3, classes), tp.LMSHead(), X, y).converged


def drifts(X, y, classes):
    """Whether some direction lowers no margin and raises one: a linear program."""
    A = X * y[:, None]
    if classes:
        eye, others = np.eye(classes), range(classes)
        A = np.array(
            [np.outer(eye[k] - eye[r], x).ravel() for x, k in zip(X, y, strict=True) for r in others if r != k]
        )
    gain = np.eye(len(A))
    bounds = [(None, None)] * A.shape[1] + [(0, 1)] * len(A)
    cost = np.r_[np.zeros(A.shape[1]), -np.ones(len(A))]
    return linprog(cost, A_ub=np.hstack([-A, gain]), b_ub=np.zeros(len(A)), bounds=bounds).fun < -0.5


@pytest.mark.parametrize("classes", [None, 3])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_minimum_is_found_where_a_linear_program_says_there_is_one(classes, bias, dtype):
    answers = []
    for seed in range(25):
        rng = np.random.default_rng(seed)
        count, width = int(rng.integers(5, 25)), int(rng.integers(1, 4))
        X = rng.integers(-2, 3, (count, width)).astype(float)  # many on the boundary
        s = 3 * X @ rng.standard_normal((width, classes or 1))
        y = (
            (s + rng.gumbel(size=s.shape)).argmax(1)
            if classes
            else np.where(s[:, 0] + rng.logistic(size=count) > 0, 1, -1)
        )
        if len(np.unique(y)) < (classes or 2):
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = minimise(make(width, classes, bias, dtype), tp.LogisticHead(), X, y)
        endless = drifts(np.c_[X, np.ones(count)] if bias else X, y, classes)
        assert (found.unbounded, found.converged) == (endless, not endless), seed
        answers.append(endless)
    assert 3 <= sum(answers) <= len(answers) - 3


def test_a_sample_far_out_is_no_drift():
    X, y = samples(31, 300, 5)
    X[0] *= 1e6
    found = minimise(make(5), tp.LogisticHead(), X, y)
    _, loss = sklearn_optimum(X / np.abs(X).max(0), y, 0.0, True, "newton-cholesky")
    assert found.converged
    assert not found.unbounded
    assert found.loss <= loss * (1 + 1e-6)


# --- least squares ------------------------------------------------------------------------------------------------


def targets(y, classes, low):
    hot = (y == 1)[:, None] if classes is None else np.arange(classes) == y[:, None]
    return np.where(hot, 1.0, low)


@pytest.mark.parametrize(("classes", "name"), [(None, "-1/+1"), (3, "0/1")])
@pytest.mark.parametrize(("l2", "bias"), [(0.0, True), (0.1, False)])
@pytest.mark.parametrize("kind", KINDS)
def test_lms_is_numpys_least_squares(classes, bias, name, l2, kind):
    X, y = samples(40, 150, 4, classes, kind)
    net = make(4, classes, bias, init="normal", seed=3)
    found = minimise(net, tp.LMSHead(name), X, y, l2=l2)
    A = np.c_[X, np.ones(150)] if bias else X
    T = targets(y, classes, 0.0 if name == "0/1" else -1.0)
    ridge = np.eye(4, A.shape[1]) * (150 * l2) ** 0.5
    W = np.linalg.lstsq(np.r_[A, ridge], np.r_[T, np.zeros((4, T.shape[1]))], rcond=None)[0].T
    loss = np.square(A @ W.T - T).sum() / 300 + l2 / 2 * np.square(W[:, :4]).sum()
    assert found.converged
    assert found.loss == pytest.approx(loss, rel=1e-12)
    np.testing.assert_allclose(net.weight.detach().numpy() * X.std(0), W[:, :4] * X.std(0), rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("classes", [None, 3])
@pytest.mark.parametrize("shape", [(60, 5), (4, 9)])  # more and fewer samples than features
@pytest.mark.parametrize("dependent", ["repeated", "zero"])
@pytest.mark.parametrize("limit", [4096, 3])  # beyond the limit L-BFGS takes over
def test_dependent_features_change_the_weights_least(classes, shape, dependent, limit, monkeypatch):
    monkeypatch.setattr(minimising, "SQUARES_UP_TO", limit)
    X, y = samples(41, *shape, classes)
    y[:3] = [-1, 1, 1] if classes is None else [0, 1, 2]
    extra = {"repeated": X[:, :2], "zero": 0 * X[:, :1], "sum": X[:, :1] + X[:, 1:2] / 3}[dependent]
    X = np.c_[X, extra]
    net = make(X.shape[1], classes, init="normal", seed=4)
    start = torch.cat((net.weight, net.bias[:, None]), 1).detach().numpy().copy()
    found = minimise(net, tp.LMSHead(), X, y, tol=1e-12)
    A = np.c_[X, np.ones(len(X))]
    change = np.linalg.lstsq(A, targets(y, classes, -1.0) - A @ start.T, rcond=None)[0].T
    assert found.converged
    reached = torch.cat((net.weight, net.bias[:, None]), 1).detach().numpy()
    np.testing.assert_allclose(reached, start + change, rtol=0, atol=1e-5 if limit == 3 else 1e-11)


# --- what is refused, before anything is changed ------------------------------------------------------------------

X4, Y4 = [[0.0, 1.0], [1.0, 0.0], [2.0, 2.0], [0.5, 1.5]], [1, -1, 1, -1]
WEIGHTED, NAN = parametrizations.weight_norm(nn.Linear(2, 1)), nn.Linear(2, 1)
NAN.weight.data[0, 1] = float("nan")


@pytest.mark.parametrize(
    ("changed", "error", "message"),
    [
        ({"head": tp.PerceptronHead()}, TypeError, "head must be an LMSHead.*found PerceptronHead.*RuleTrainer"),
        ({"head": "logistic"}, TypeError, "found str"),
        ({"net": tp.MLP(2)}, TypeError, "net must be a linear net.*found MLP"),
        ({"net": tp.JointPerceptron(2, 3)}, TypeError, "found JointPerceptron"),
        ({"net": WEIGHTED}, TypeError, "net.weight must be a plain parameter"),
        ({"net": tp.Perceptron(2, device="meta")}, TypeError, "net.weight must be a plain parameter"),
        ({"net": NAN}, ValueError, "weights that are not finite"),
        ({"X": [[0.0, 1.0]] * 3}, ValueError, "y has 4 values for 3 samples"),
        ({"X": [[0.0]] * 4}, ValueError, "X has 1 features but 2 are needed"),
        ({"X": np.zeros((0, 2))}, ValueError, "X is empty"),
        ({"X": torch.zeros(4, 2, dtype=torch.float64)}, TypeError, "X has dtype torch.float64 but torch.float32"),
        ({"X": [[0.0, 1.0], [1.0, float("nan")], [2.0, 2.0], [0.5, 1.5]]}, ValueError, r"X\[1, 1\] = nan"),
        ({"X": [["a", "b"]] * 4}, TypeError, "X must hold real numbers"),
        ({"y": [0, 1, 0, 1]}, ValueError, "y must hold -1 and [+]1, found 0, 1"),
        ({"y": [1, 1, 1, 1]}, ValueError, "y has one class only"),
        ({"y": [True, False, True, False]}, ValueError, "y must hold -1 and [+]1"),
        ({"y": [1.0, -1.0, float("nan"), 1.0]}, ValueError, "y must hold -1 and [+]1"),
        ({"net": tp.MulticlassPerceptron(2, 3), "y": [0, 1, 2, 3]}, ValueError, "y must hold class indices 0 to 2"),
        ({"sample_weight": [1, 0, 1, 0]}, ValueError, "sample_weight leaves samples of one class only"),
        ({"sample_weight": [1, 0, 1]}, ValueError, "sample_weight has 3 values for 4 samples"),
        ({"l2": -1.0}, ValueError, "l2=-1.0 must be a finite number >= 0"),
        ({"l2": float("nan")}, ValueError, "l2=nan"),
        ({"tol": 0}, ValueError, "tol=0 must be a finite number > 0"),
        ({"max_iter": 0}, ValueError, "max_iter=0 must be at least 1"),
        ({"max_iter": 1.5}, TypeError, "max_iter must be an integer"),
    ],
)
def test_bad_input_is_named(changed, error, message):
    given = {"net": tp.Perceptron(2), "head": tp.LogisticHead(), "X": X4, "y": Y4, **changed}
    options = {name: given.pop(name) for name in ("l2", "tol", "max_iter", "sample_weight") if name in given}
    before = copy.deepcopy(given["net"].state_dict())
    with pytest.raises(error, match=message):
        minimise(*given.values(), **options)
    assert str(before) == str(given["net"].state_dict())


# --- sparse samples ---


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("shape", [(200, 12), (300, 1200)], ids=str)  # with Hessians and without
@pytest.mark.parametrize("head", [tp.LMSHead(), tp.LogisticHead()], ids=str)
def test_sparse_samples_have_the_same_minimum(head, shape, classes, weighted, monkeypatch):
    if shape[1] == 1200 and classes == 3:
        return
    rng = np.random.default_rng(0)
    X, y = random_array(shape, density=0.1, format="csr", rng=rng), rng.integers(0, classes, shape[0])
    y = 2 * y - 1 if classes == 2 else y
    weights = rng.integers(0, 3, shape[0]) if weighted else None
    monkeypatch.setattr(minimising, "SQUARES_UP_TO", 100)
    nets = []
    for data in (X.toarray(), X):
        net = tp.Perceptron(shape[1]) if classes == 2 else tp.MulticlassPerceptron(shape[1], 3)
        nets.append(net.double())
        kept = data if data is not X else csr_array(X)
        with monkeypatch.context() as patch:
            if shape[1] == 1200:  # nothing of the size of X or of a Hessian is ever there
                patch.setattr(csr_array, "toarray", lambda *_: pytest.fail("made dense"))
            found = tp.minimise(net, head, kept, y, l2=0.01, tol=1e-13, sample_weight=weights)
        assert found.converged
    torch.testing.assert_close(nets[0].weight, nets[1].weight, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("l2", [1e-5, 1e-3])  # the weak one with steps that go too far
@pytest.mark.parametrize("classes", [2, 4])
@pytest.mark.parametrize("sparse", [False, True])
def test_without_hessians_the_minimum_is_scikit_learns_and_the_gap_no_smaller_than_it_is(
    sparse, classes, l2, monkeypatch
):
    monkeypatch.setattr(minimising, "HESSIAN_UP_TO", 10)
    rng = np.random.default_rng(61)
    X = rng.integers(1, 4, (400, 300)) * (rng.random((400, 300)) < 0.05)
    y = (X[:, : 20 * classes].reshape(400, classes, 20).sum(2) + 0.1 * rng.random((400, classes))).argmax(1)
    y[:40] = rng.integers(0, classes, 40)  # wrong labels, which are learned in the end
    y = 2 * y - 1 if classes == 2 else y
    K = None if classes == 2 else classes
    X = X.astype(float)
    _, loss = sklearn_optimum(X, y, l2, True, "newton-cholesky", K)
    for tolerance in (1e-4, 1e-6, 1e-10):
        found = minimise(make(300, K), tp.LogisticHead(), csr_array(X) if sparse else X, y, l2=l2, tol=tolerance)
        assert found.converged
        true = found.loss / loss - 1
        assert true <= tolerance
        assert true <= 1.5 * found.gap + 1e-11


@pytest.mark.parametrize("kind", [np.asarray, csr_array])
def test_samples_that_overflow_are_named(kind):
    X, y = np.array([[1.0, 0.0], [0.0, np.nan], [0.0, 1.0]]), [1, -1, 1]
    with pytest.raises(ValueError, match=r"X\[1, 1\] = nan"):
        tp.minimise(tp.Perceptron(2), tp.LMSHead(), kind(X), y)
    with pytest.raises(ValueError, match=r"X holds values up to 1e\+200 .*overflow"):
        tp.minimise(tp.Perceptron(2).double(), tp.LogisticHead(), kind(np.nan_to_num(X, nan=1e200)), y)
