"""Bad input of the Python API, generated from signatures: a clear error, or the result of the good input.

Each call has arguments that are good. One parameter at a time is replaced by each of the values below, and the outcome
is held against what the value deserves:

- REFUSE: no result may come of it;
- SAME: another form of the same values, so an error or the same result;
- FINITE: it may be meant, so an error or a result that is finite.
"""

import inspect
import random
import warnings
from functools import cache

import harness
import numpy as np
import pytest
import torch
from scipy.sparse import csr_array

import torchperc as tp

pytestmark = pytest.mark.faults
REFUSE, SAME, FINITE = "refuse", "same", "finite"
N, D = 12, 3


def good():
    rng = np.random.default_rng(0)
    X = rng.integers(-8, 9, size=(N, D)) / 4.0  # exact in every floating type
    y = np.where(X @ [1.0, -2.0, 0.5] + 0.3 > 0, 1, -1)
    return X + y[:, None] * [0.5, -1.0, 0.25], y


# --- values for samples, labels and weights, and for anything else ---


def csr(X, **changes):
    """A scipy matrix whose index arrays nobody has checked."""
    whole = csr_array(X)
    for name, change in changes.items():
        setattr(whole, name, change(getattr(whole, name).copy()))
    return whole


def put(array, place, value):
    array = array.copy()
    array[place] = value
    return array


def doubled(X):
    """Each value as two halves at the same place."""
    whole = csr_array(X)
    return csr_array((np.repeat(whole.data / 2, 2), np.repeat(whole.indices, 2), 2 * whole.indptr), shape=X.shape)


def reversed_rows(X):
    """The columns of each row from the last to the first."""
    whole = csr_array(X[:, ::-1])
    return csr_array((whole.data, X.shape[1] - 1 - whole.indices, whole.indptr), shape=X.shape)


def torch_csr(X, column):
    whole = torch.from_numpy(X).to_sparse_csr()
    columns = whole.col_indices().clone()
    columns[0] = column
    return torch.sparse_csr_tensor(whole.crow_indices(), columns, whole.values(), X.shape, check_invariants=False)


def read_only(array):
    array = array.copy()
    array.setflags(write=False)
    return array


def meta(array):
    return torch.empty(array.shape, dtype=torch.float64, device="meta")


SAMPLES = {
    "nan": (lambda X: put(X, (1, 1), np.nan), REFUSE),
    "inf": (lambda X: put(X, (1, 1), np.inf), REFUSE),
    "one dimension": (lambda X: X[0], REFUSE),
    "three dimensions": (lambda X: X[None], REFUSE),
    "no rows": (lambda X: X[:0], REFUSE),
    "a row fewer": (lambda X: X[1:], REFUSE),
    "None": (lambda X: None, REFUSE),
    "words": (lambda X: X.astype(str).astype(object) + "x", REFUSE),
    "complex": (lambda X: X + 1j, REFUSE),
    "ragged": (lambda X: [[1.0, 2.0, 3.0], [1.0]], REFUSE),
    "an object": (lambda X: object(), REFUSE),
    "meta": (meta, REFUSE),
    "huge": (lambda X: X * 1e308, FINITE),
    "tiny": (lambda X: X * 1e-310, FINITE),
    "masked": (lambda X: np.ma.masked_equal(X, X[0, 0]), REFUSE),
    "sparse, index too large": (lambda X: csr(X, indices=lambda at: put(at, 0, 10**6)), REFUSE),
    "sparse, negative index": (lambda X: csr(X, indices=lambda at: put(at, 0, -5)), REFUSE),
    "sparse, falling indptr": (lambda X: csr(X, indptr=lambda at: put(at, 2, at[1] - 2)), REFUSE),
    "sparse, indptr too far": (lambda X: csr(X, indptr=lambda at: put(at, -1, 10**6)), REFUSE),
    "sparse, nan": (lambda X: csr(X, data=lambda at: put(at, 0, np.nan)), REFUSE),
    "sparse tensor, index too large": (lambda X: torch_csr(X, 10**6), REFUSE),
    "sparse tensor, negative index": (lambda X: torch_csr(X, -3), REFUSE),
    "sparse, unsorted": (reversed_rows, SAME),
    "sparse, doubled": (doubled, SAME),
    "sparse": (csr, SAME),
    "read-only": (read_only, SAME),
    "Fortran": (np.asfortranarray, SAME),
    "backwards": (lambda X: X[::-1].copy()[::-1], SAME),
    "big-endian": (lambda X: X.astype(">f8"), SAME),
    "lists": (lambda X: X.tolist(), SAME),
    "float32": (lambda X: X.astype(np.float32), SAME),
    "a tensor": (torch.tensor, SAME),
    "a tensor with a gradient": (lambda X: torch.tensor(X, requires_grad=True), SAME),
}
LABELS = {
    "nan": (lambda y: put(y.astype(float), 0, np.nan), REFUSE),
    "fractions": (lambda y: y * 0.5, REFUSE),
    "one too few": (lambda y: y[1:], REFUSE),
    "none at all": (lambda y: y[:0], REFUSE),
    "None": (lambda y: None, REFUSE),
    "a number": (lambda y: 1, REFUSE),
    "complex": (lambda y: y + 0j, REFUSE),
    "an object": (lambda y: object(), REFUSE),
    "meta": (meta, REFUSE),
    "words": (lambda y: np.where(y > 0, "a", "b"), REFUSE),
    "three of them": (lambda y: put(y, 0, 7), REFUSE),
    "one class": (np.ones_like, REFUSE),
    "a table": (lambda y: np.stack((y, y), 1), REFUSE),
    "a column": (lambda y: y[:, None], SAME),
    "read-only": (read_only, SAME),
    "lists": (lambda y: y.tolist(), SAME),
    "floats": (lambda y: y.astype(float), SAME),
    "int8": (lambda y: y.astype(np.int8), SAME),
    "a tensor": (torch.tensor, SAME),
}
WEIGHTS = {
    "nan": (lambda w: put(w, 0, np.nan), REFUSE),
    "inf": (lambda w: put(w, 0, np.inf), REFUSE),
    "negative": (lambda w: put(w, 0, -1.0), REFUSE),
    "one too few": (lambda w: w[1:], REFUSE),
    "all zero": (lambda w: w * 0, REFUSE),
    "words": (lambda w: w.astype(str).astype(object) + "x", REFUSE),
    "a table": (lambda w: np.stack((w, w), 1), REFUSE),
    "read-only": (read_only, SAME),
    "lists": (lambda w: w.tolist(), SAME),
    "None": (lambda w: None, SAME),
}
ANYTHING = {
    "nan": (float("nan"), REFUSE),
    "an object": (object(), REFUSE),
    "a word": ("no such word", REFUSE),
    "a dict of nonsense": ({"no": "such"}, REFUSE),
    "complex": (1j, REFUSE),
    "inf": (float("inf"), FINITE),
    "minus one": (-1, FINITE),
    "zero": (0, FINITE),
    "huge": (10**400, FINITE),
    "True": (True, FINITE),
    "None": (None, FINITE),
    "an empty list": ([], FINITE),
}


# --- the calls ---


def numbers(*found):
    """Everything in results as one vector."""
    arrays = [np.asarray(each.detach().cpu() if hasattr(each, "detach") else each, dtype=float) for each in found]
    return np.concatenate([array.reshape(-1) for array in arrays])


def net():
    return tp.Perceptron(D, dtype=torch.float64)


def after(function):
    """A function that changes a net, as one that gives its weights."""

    def call(net, *given, **options):
        result = function(net, *given, **options)
        return numbers(net.weight, net.bias), result

    call.__signature__ = inspect.signature(function)
    return call


def calls():
    """Name → (function, good arguments, its result as numbers, labels may be anything)."""
    X, y = good()
    w = np.ones(N)
    T, t = torch.from_numpy(X), torch.from_numpy(y)
    data, theory = {"X": X, "y": y}, tp.theory
    head, changed = tp.LogisticHead(), lambda pair: pair[0]
    plane = ([[1.0, -2.0, 0.5]], [0.3])
    found = {
        "max_margin": (theory.max_margin, data, lambda best: numbers(best.weight, best.margin, best.upper)),
        "separability": (theory.separability, data, lambda proof: numbers(bool(proof.separable))),
        "mistake_bound": (theory.mistake_bound, data, numbers),
        "radius": (theory.radius, {"X": X}, numbers),
        "margin": (theory.margin, {**data, "net": plane}, numbers),
        "bracket": (theory.bracket, {**data, "net": plane, "t": 5}, numbers),
        "inseparable_bound": (theory.inseparable_bound, {**data, "weights": plane, "gamma": 0.1}, numbers),
        "descend": (after(tp.descend), {"net": net, "head": head, "X": T, "y": t, "lr": 0.1, "sample_weight": w}, changed),
        "minimise": (after(tp.minimise), {"net": net, "head": head, **data, "l2": 0.1, "sample_weight": w}, changed),
        "sweep": (tp.sweep, {**data, "seeds": [0, 1], "max_epochs": 5}, lambda found: numbers(found.mistakes)),
        "crosscheck": (tp.crosscheck, {**data, "epochs": 3}, lambda found: numbers(found.equal)),
        "RuleTrainer": (tp.RuleTrainer, {"max_epochs": 20}, lambda made: numbers(made.fit(net(), X, y).log.last().weight)),
        "Perceptron": (tp.Perceptron, {"in_features": D}, lambda made: numbers(made.weight)),
        "MulticlassPerceptron": (tp.MulticlassPerceptron, {"in_features": D, "num_classes": 3}, lambda made: numbers(made.weight)),
        "ChainPerceptron": (tp.sequences.ChainPerceptron, {"features": D, "tags": 3}, lambda made: numbers(made.weight)),
        "StructuredPerceptronLoss": (tp.StructuredPerceptronLoss, {}, lambda made: numbers(made.margin)),
        "Perceptron.predict": (net().predict, {"x": T}, numbers),
        "gate": (tp.data.gate, {"name": "AND"}, lambda pair: numbers(*pair)),
        "separable_blobs": (tp.data.separable_blobs, {"samples": 20, "seed": 0}, lambda pair: numbers(*pair)),
    }  # fmt: skip
    learn = {"net": net, **data, "sample_weight": w}
    for engine in ("reference", "compiled"):
        found[f"RuleTrainer.fit, {engine}"] = after(tp.RuleTrainer(engine=engine, max_epochs=20).fit), learn, changed
    found["RuleTrainer.partial_fit"] = after(tp.RuleTrainer(select="averaged").partial_fit), learn, changed
    kernel = tp.RuleTrainer(kernel="rbf", gamma=0.5, max_epochs=20).fit
    found["RuleTrainer.fit, kernel"] = (kernel, {"net": None, **data}, lambda result: numbers(result.log.dual()))
    real, line = {"X": X, "y": 60.0 + 3 * y + np.arange(N) % 5}, tp.RegressionHead()
    steps = {"net": net, "head": line, "X": T, "y": torch.from_numpy(real["y"]), "lr": 0.1, "sample_weight": w}
    found["descend, regression"] = (after(tp.descend), steps, changed)
    least = {"net": net, "head": line, **real, "l2": 0.1, "sample_weight": w}
    found["minimise, regression"] = (after(tp.minimise), least, changed)
    for kind in ("PerceptronClassifier", "LMSClassifier", "LogisticClassifier", "LMSRegressor"):
        make, (own, classes) = getattr(tp.sklearn, kind), (real, {}) if "Reg" in kind else (data, {"classes": [-1, 1]})
        weighted, weights = {**own, "sample_weight": w}, lambda model: numbers(model.coef_, model.intercept_)
        found[kind] = (make, {"max_iter": 20}, lambda made, own=own: numbers(made.fit(**own).coef_))
        found[f"{kind}.fit"] = (make(max_iter=20).fit, weighted, weights)
        predict = lambda X, make=make, own=own: make(max_iter=20).fit(**own).predict(X)  # noqa: E731
        found[f"{kind}.predict"] = (predict, {"X": X}, numbers)
        found[f"{kind}.partial_fit"] = (make().partial_fit, weighted | classes, weights)
    model = tp.FittedModel(net(), tp.PerceptronHead(), labels=["0", "1"])
    found["FittedModel.predict"] = (model.predict, {"X": X}, lambda labels: numbers([float(label) for label in labels]))
    return found


# what is meant after all: (call, parameter, value), a call or a parameter being ... for any
MEANT = {
    ("estimator", "y", "words"), ("estimator", "y", "three of them"), ("estimator", "y", "fractions"),
    (".partial_fit", "y", "one class"), ("bracket", "y", "one class"), ("margin", "y", "one class"),
    ("inseparable_bound", "y", "one class"), ("radius", "X", "a row fewer"), (".predict", "X", "a row fewer"),
    (".predict", "x", "a row fewer"), ("descend", "y", "one class"),
    ("RuleTrainer", "kernel", "an object"),
    ("regression", "y", "fractions"), ("regression", "y", "three of them"), ("regression", "y", "one class"),
}  # fmt: skip


TORCHS = {"Perceptron.predict | x | meta"}  # what torch itself says of any module's forward
IGNORED = ("progress", "device", "make", "own")


def values(parameter):
    if parameter in ("X", "x"):
        return SAMPLES
    return {"y": LABELS, "sample_weight": WEIGHTS}.get(parameter, ANYTHING)


def cases():
    """Every call, each of its parameters, every value."""
    found = []
    for name, (function, given, _) in calls().items():
        for parameter in inspect.signature(function).parameters.values():
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD) or parameter.name in IGNORED:
                continue
            known = values(parameter.name)
            if known is not ANYTHING and parameter.name not in given:
                continue
            found += [f"{name} | {parameter.name} | {value}" for value in known]
    return found


def meant(name, parameter, value):
    kind = "estimator" if "Classifier" in name else "regression" if "egress" in name else name
    return any(
        (call in (kind, name) or (call.startswith(".") and name.endswith(call))) and at == parameter and what == value
        for call, at, what in MEANT
    )


def fresh(arguments):
    return {key: value() if value is net else value for key, value in arguments.items()}


@cache
def expectation(name):
    """The result of the good arguments."""
    function, given, result = calls()[name]
    return result(function(**fresh(given)))


def judged(case):
    """Make the call with the bad argument and hold the outcome against what it deserves."""
    name, parameter, value = case.split(" | ")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected, (function, given, result) = expectation(name), calls()[name]
        bad, deserved = values(parameter)[value]
        worse = bad(np.asarray(given[parameter])) if values(parameter) is not ANYTHING else bad
        try:
            found = result(function(**fresh({**given, parameter: worse})))
        except Exception as error:
            outcome = harness.CLEAN if case in TORCHS else harness.outcome_of_error(error)
            return outcome, f"{type(error).__name__}: {error}"
    if meant(name, parameter, value):
        deserved = FINITE
    if deserved == REFUSE:
        return harness.SILENT, "taken as if nothing were wrong"
    if deserved == SAME and not (found.shape == expected.shape and np.allclose(found, expected, rtol=1e-5, atol=1e-8)):
        return harness.SILENT, "the same values in another form give another result"
    if np.isnan(found).any():
        return harness.SILENT, "the result is not a number"
    return harness.RIGHT, ""


@pytest.mark.filterwarnings("ignore")
def test_bad_python_input(tmp_path):
    every = cases()
    some = every if harness.WHOLE else random.Random(0).sample(every, 200)
    assert not harness.judge_all(judged, some, tmp_path, size=50)
