"""What a fit costs beside its epochs: samples are looked at as they are learned, by no threads of torch and no hash."""

from __future__ import annotations

import re
import warnings
from typing import Any

import numpy as np
import pytest
import torch
from scipy.sparse import coo_array, csr_array
from torch.utils._python_dispatch import TorchDispatchMode

import torchperc as tp
from torchperc.rules.engines import compiled, reference
from torchperc.rules.loops import learn
from torchperc.samples.rows import LookFirst, Rows
from torchperc.sklearn import PerceptronClassifier
from torchperc.sklearn.inputs import classes_and_codes

ROWS = 400


def decimals(width: int = 6, classes: int | None = None, seed: int = 0) -> tuple[Any, Any]:
    """Multiples of 0.1, whose sums round, with many scores at or near a tie; rows grow longer and longer."""
    rng = np.random.default_rng(seed)
    X = rng.integers(-3, 4, size=(ROWS, width)) / 10 * np.repeat([1, 2, 5, 10], ROWS // 4)[:, None]
    best = (X @ rng.integers(-2, 3, size=(width, classes or 1))).round(9)
    return X, np.where(best[:, 0] >= 0, 1, -1) if classes is None else best.argmax(1)


def net_for(X: Any, classes: int | None) -> Any:
    dtype = torch.float32 if X.dtype == np.float32 else torch.float64
    return (
        tp.Perceptron(X.shape[1], dtype=dtype)
        if classes is None
        else tp.MulticlassPerceptron(X.shape[1], classes, dtype=dtype)
    )


def learned(X: Any, y: Any, classes: int | None = None, **options: Any) -> tuple[Any, Any]:
    net = net_for(X, classes)
    return tp.RuleTrainer(**{"max_epochs": 4, **options}).fit(net, X, y), net


def same(one: tuple[Any, Any], other: tuple[Any, Any]) -> bool:
    """Whether two runs have the same log, history and weights to the bit."""
    pairs = zip(one[1].parameters(), other[1].parameters(), strict=True)
    equal = all(torch.equal(a, b) for a, b in pairs) and one[0].log.equals(other[0].log)
    return equal and one[0].history == other[0].history and one[0].cycle == other[0].cycle


FORMS = {
    "float64": lambda X: X,
    "float32": lambda X: X.astype(np.float32),
    "csr": csr_array,
    "csr float32": lambda X: csr_array(X.astype(np.float32)),
}


@pytest.mark.parametrize("order", ["given", "shuffled"])
@pytest.mark.parametrize("classes", [None, 3])
@pytest.mark.parametrize("form", FORMS)
def test_samples_seen_as_they_are_learned_give_the_log_of_the_reference(form, classes, order, monkeypatch):
    X, y = decimals(classes=classes)
    X, calls = FORMS[form](X), []
    monkeypatch.setattr(learn, "learn_unseen", lambda *args, real=learn.learn_unseen: calls.append(1) or real(*args))
    found = learned(X, y, classes, order=order)
    assert calls
    assert same(found, learned(X, y, classes, order=order, engine="reference"))


@pytest.mark.parametrize("tie", ["update", "sign", "strict"])
def test_ties_and_margins_in_the_first_epoch(tie):
    X, y = decimals(seed=1)
    start = np.arange(6) / 10
    margin = 0.0 if tie == "sign" else 0.1
    runs = []
    for engine in ("auto", "reference"):
        net = net_for(X, None)
        with torch.no_grad():
            net.weight.copy_(torch.from_numpy(start))
        result = tp.RuleTrainer(max_epochs=3, tie=tie, margin=margin, lr=0.1, engine=engine).fit(net, X, y)
        runs.append((result, net))
    assert same(*runs)


@pytest.mark.parametrize(("dtype", "size"), [("float32", 1e-25), ("float64", 1e-200)])
def test_numbers_whose_squares_are_lost(dtype, size):
    X, y = decimals()
    X = (X * size).astype(dtype)
    assert same(learned(X, y), learned(X, y, engine="reference"))


@pytest.mark.parametrize("form", FORMS)
def test_a_number_whose_square_overflows(form):
    X, y = decimals()
    X = np.hstack((X, np.zeros((ROWS, 1))))
    X[-1, -1] = 1e30 if "32" in form else 1e200  # where the weight is still 0
    X = FORMS[form](X)
    assert same(learned(X, y, max_epochs=1), learned(X, y, max_epochs=1, engine="reference"))


# --- no threads, no hash ------------------------------------------------------------------------------------------


class Large(TorchDispatchMode):
    """Records which operations of torch see as many numbers as there are samples, or more."""

    free = (
        "lift_fresh",
        "permute",
        "detach",
        "view",
        "slice",
        "select",
        "expand",
        "alias",
        "unsqueeze",
        "t.default",
        "as_strided",
        "split",
    )

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        tensors = [each for each in (*args, result) if isinstance(each, torch.Tensor)]
        if max((each.numel() for each in tensors), default=0) >= ROWS and not any(
            name in str(func) for name in self.free
        ):
            self.found.append(str(func))
        return result


@pytest.mark.parametrize("order", ["given", "shuffled"])
@pytest.mark.parametrize("classes", [None, 3])
@pytest.mark.parametrize("form", FORMS)
def test_torch_computes_nothing_of_the_size_of_the_data(form, classes, order):
    X, y = decimals(200, classes=classes)  # with as many weights as samples where there are three classes
    X = FORMS[form](X)
    net = net_for(X, classes)
    with Large() as large:
        tp.RuleTrainer(max_epochs=3, order=order, lr=0.5).fit(net, X, y)
    assert set(large.found) <= ({"aten.randperm.generator"} if order == "shuffled" else set())
    with Large() as large, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        PerceptronClassifier(max_iter=3, order="given").fit(X, y)
    assert set(large.found) <= {"aten.empty.memory_format"}  # the memory of a new net


def test_fit_hashes_neither_data_nor_many_weights(monkeypatch):
    def refuse(*_: Any) -> None:
        raise AssertionError("hashed")

    for owner, name in ((Rows, "hash"), (reference, "digest_of")):
        monkeypatch.setattr(owner, name, refuse)
    X, y = decimals(4200, seed=2)
    assert learned(X, y)[0].epochs == 4


@pytest.mark.parametrize("form", ["float64", "csr"])
def test_many_weights_that_come_back_are_recognised(form):
    rng = np.random.default_rng(0)
    X = np.zeros((ROWS, 5000))
    X[:, 17:19] = np.array([[0, 0], [0, 1], [1, 0], [1, 1]])[np.arange(ROWS) % 4]  # XOR, which cycles
    X[:3, 40:43] = np.eye(3)
    y = np.where((X[:, 17] == X[:, 18]), -1, 1)
    X, y = FORMS[form](X), np.where(rng.random(ROWS) < 0.02, -y, y)
    found, reference_run = learned(X, y, max_epochs=60), learned(X, y, max_epochs=60, engine="reference")
    assert found[0].verdict.name == "CYCLING"
    assert same(found, reference_run)
    trainer = tp.RuleTrainer(max_epochs=60)
    begun = trainer.start(net_for(X, None), X, y)
    for _ in range(found[0].cycle[1] - 1):
        begun.epoch()
    resumed = trainer.start(net_for(X, None), X, y)
    resumed.load_state_dict(begun.state_dict())
    resumed.epoch()
    assert resumed.cycle == found[0].cycle


def test_equal_norms_are_not_equal_weights():
    """Weights that turn by 90° have the norm they had, and are others."""
    X = np.zeros((ROWS, 5000))
    y = np.ones(ROWS, int)
    X[:4, :2] = [[1, 0], [0, 1], [-1, 0], [0, -1]]
    X[4:, 2] = np.where(np.arange(ROWS - 4) % 2, 1, -1)
    y[4:] = np.where(np.arange(ROWS - 4) % 3, 1, -1)
    found = learned(X, y, max_epochs=12, bias_step="none")
    assert same(found, learned(X, y, max_epochs=12, bias_step="none", engine="reference"))


def test_a_saved_run_that_knows_weights_by_their_hash_goes_on(monkeypatch):
    """As earlier versions saved it."""
    X, y = decimals(4200, seed=3)
    y[::7] *= -1
    monkeypatch.setattr("torchperc.rules.run._FEW", 10**9)
    old = tp.RuleTrainer(max_epochs=9).start(net_for(X, None), X, y)
    old.epoch()
    state = old.state_dict()
    monkeypatch.undo()
    new = tp.RuleTrainer(max_epochs=9).start(net_for(X, None), X, y)
    new.load_state_dict(state)
    state["engine"]["weight"].zero_()
    new._engine.load_state_dict(
        new._engine.state_dict()
        | {"weight": torch.zeros(1, 4200, dtype=torch.float64), "bias": torch.zeros(1, dtype=torch.float64)}
    )
    assert new._first_like_now(new.history[-1]) == 0


# --- what is wrong is said as before ------------------------------------------------------------------------------


def damaged(kind: str) -> tuple[Any, Any, str]:
    X, y = decimals()
    X[X == 0] = 0.7
    if kind in ("nan", "inf"):
        X[-1, 4] = float(kind)
        return X, y, f"X[{ROWS - 1}, 4] = {kind} is not a finite number"
    if kind == "csr nan":
        X[-1, 4] = np.nan
        return csr_array(X), y, f"X[{ROWS - 1}, 4] = nan is not a finite number"
    if kind == "label":
        y[-1] = 2
        return X, y, "y must hold -1 and +1, found -1, 1, 2"
    sparse = csr_array(X)
    if kind == "starts":
        sparse.indptr[-2] = sparse.indptr[-1] + 3
    else:
        sparse.indices[-1] = {"column": 6, "far column": 2**31 - 1, "negative column": -1}[kind]
    return sparse, y, "X is a damaged sparse matrix"


KINDS = ("nan", "inf", "csr nan", "label", "column", "far column", "negative column", "starts")


@pytest.mark.parametrize("classes", [None, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_bad_samples_and_labels_are_refused_and_the_net_stays(kind, classes):
    X, y, text = damaged(kind)
    if classes is not None:
        text = "y must hold class indices 0 to 2, found 0, 1, 3" if kind == "label" else text
        y = np.where(y == 2, 3, (y + 1) // 2)
    net = net_for(X, classes)
    with torch.no_grad():
        net.weight.fill_(0.5)
    before = {name: values.clone() for name, values in net.state_dict().items()}
    with pytest.raises(ValueError, match=re.escape(text)):
        tp.RuleTrainer(max_epochs=3).fit(net, X, y)
    assert all(torch.equal(values, before[name]) for name, values in net.state_dict().items())


@pytest.mark.parametrize("call", ["fit", "partial_fit"])
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "label"])
def test_estimators_refuse_them_too_and_stay_unfitted(kind, call):
    X, y, _ = damaged(kind)
    model = PerceptronClassifier(max_iter=3)
    options = {} if call == "fit" else {"classes": [-1, 1]}
    with pytest.raises(ValueError, match=r"damaged|NaN|infinity"):
        getattr(model, call)(X, y, **options)
    assert vars(model).keys() == model.get_params().keys()


@pytest.mark.parametrize("classes", [None, 3])
@pytest.mark.parametrize("kind", ["unsorted", "duplicates"])
def test_sparse_rows_that_are_not_canonical_are_put_right_and_not_changed(kind, classes):
    X, y = decimals(classes=classes)
    X[X == 0] = 0.7
    rows, columns = np.divmod(np.arange(X.size)[::-1] if kind == "unsorted" else np.arange(X.size), X.shape[1])
    values = X[rows, columns]
    given = csr_array(X)
    if kind == "unsorted":
        given.data, given.indices = values[::-1].copy(), columns[::-1].copy().astype(np.int32)
        last = slice(-6, None)
        given.data[last], given.indices[last] = given.data[last][::-1].copy(), given.indices[last][::-1].copy()
    else:
        given.indices[-1] = given.indices[-2]
        X[-1, 4], X[-1, 5] = X[-1, 4] + X[-1, 5], 0.0
    before = given.data.copy(), given.indices.copy()
    assert same(learned(given, y, classes), learned(csr_array(X), y, classes, engine="reference"))
    assert np.array_equal(given.data, before[0])
    assert np.array_equal(given.indices, before[1])
    assert coo_array(given).nnz == len(before[0])


def test_only_a_caller_that_asks_for_it_meets_samples_that_nobody_has_seen():
    X, y, _ = damaged("nan")
    with pytest.raises(ValueError, match="not a finite number"):
        tp.RuleTrainer().start(net_for(X, None), X, y)
    run = tp.RuleTrainer().start(net_for(X, None), X, y, unseen=True)
    with pytest.raises(LookFirst):
        run.epoch()
    X[-1, 4] = 0.0
    run = tp.RuleTrainer().start(net_for(X, None), X, y, unseen=True)
    assert run.rows.unseen
    run.epoch()
    assert not run.rows.unseen
    explicit = tp.RuleTrainer(order=list(range(300)))
    assert not explicit.start(net_for(X, None), X, y, unseen=True).rows.unseen
    weights = np.ones(ROWS)
    assert not tp.RuleTrainer().start(net_for(X, None), X, y, unseen=True, sample_weight=weights).rows.unseen
    assert compiled.nearness(run._engine.space)[3] > 0


@pytest.mark.parametrize("dtype", [np.int8, np.int64, np.uint64])
def test_integer_labels_are_counted_as_they_would_be_sorted(dtype):
    rng = np.random.default_rng(0)
    for y in (rng.integers(0, 5, 50), rng.integers(0, 2, 9) * 100, np.array([3]), rng.integers(0, 2, 9) * 10**6 % 127):
        found, wanted = classes_and_codes(y.astype(dtype)), np.unique(y.astype(dtype), return_inverse=True)
        assert all(np.array_equal(a, b) and a.dtype == b.dtype for a, b in zip(found, wanted, strict=True))
    wide = np.array([np.iinfo(dtype).min, np.iinfo(dtype).max], dtype)
    assert classes_and_codes(wide)[0].tolist() == wide.tolist()
