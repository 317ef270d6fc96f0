"""Separability: known facts, an exact oracle, evidence of every kind, wrong answers of the solver, runs with a proof."""

import importlib
from fractions import Fraction
from itertools import product

import numpy as np
import plain
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from refusals import refusals
from scipy.sparse import csr_array
from sklearn import datasets

import torchperc as tp
from torchperc.theory import verifier

separating = importlib.import_module("torchperc.theory.separability")  # the package has a function of that name

IRIS, WINE, CANCER = datasets.load_iris(), datasets.load_wine(), datasets.load_breast_cancer()
DIGITS = datasets.load_digits()


def feasible(rows):
    """Whether a·w ≥ b has a solution for all (a, b)."""
    for j in range(len(rows[0][0])):
        up, down = ([row for row in rows if sign * row[0][j] > 0] for sign in (1, -1))
        best = {}
        for a, b in [row for row in rows if row[0][j] == 0] + [joined(p, q, j) for p, q in product(up, down)]:
            size = max(map(abs, a)) or 1
            a, b = tuple(value / size for value in a), b / size
            best[a] = max(b, best.get(a, b))
        rows = list(best.items())
    return all(b <= 0 for _, b in rows)


def joined(p, q, j):
    c, d = -q[0][j], p[0][j]
    return tuple(c * x + d * y for x, y in zip(p[0], q[0], strict=True)), c * p[1] + d * q[1]


def differences(X, y, classes, bias):
    """The rows z, without the block of class 0."""
    for x, own in zip(X, y, strict=True):
        phi = [Fraction(value) for value in x] + [Fraction(1)] * bias
        for k in range(classes):
            if k != own:
                sign = [(i == own) - (i == k) for i in range(1, classes)]
                yield tuple(s * value for s in sign for value in phi)


def truth(X, y, classes, bias):
    rows = list(differences(X, y, classes, bias))
    if feasible([(z, Fraction(1)) for z in rows]):
        return "separable"
    some = any(feasible([(z, Fraction(0)) for z in rows] + [(one, Fraction(1))]) for one in rows)
    return "weakly separable" if some else "not separable"


POOLS = st.sampled_from([
    (0, 1), (-1, 0, 1), (0, 1, 2, 3), (0.1, 0.2, 0.3, 0.7), (1e9, 1e9 + 1, 1e9 + 1e-6), (1.0, 1 + 2**-52, 1 - 2**-53),
    (0.0, 5e-324, 1e-300, 1e300, -1e300), (2.0**60, 2.0**60 + 256, 256.0, -256.0), (1e308, -1e308, 1.0),
])  # fmt: skip


@st.composite
def problems(draw):
    classes = draw(st.sampled_from([None, None, 2, 3]))
    features = draw(st.integers(1, 2)) if classes != 3 else 1
    values = st.sampled_from(draw(POOLS))
    count = draw(st.integers(2, 6))
    X = draw(st.lists(st.lists(values, min_size=features, max_size=features), min_size=count, max_size=count))
    codes = st.sampled_from((-1, 1) if classes is None else range(classes))
    y = draw(st.lists(codes, min_size=count, max_size=count).filter(lambda y: len(set(y)) > 1))
    return X, y, classes, draw(st.booleans())


@pytest.mark.slow
@given(problems())
def test_small_problems_are_decided_as_elimination_does(problem):
    X, y, classes, bias = problem
    found = tp.theory.separability(X, y, bias=bias, num_classes=classes)
    own = [(code + 1) // 2 for code in y] if classes is None else y
    assert found.kind == truth(X, own, classes or 2, bias)
    assert found.verify()
    assert found.weak is (found.kind != "not separable")
    verifier.examine(
        verifier.parse(verifier.content_of(found)), zip(np.array(X, dtype=float).tolist(), own, strict=True)
    )


CLASSIC = {
    "setosa against the rest": (IRIS.data, IRIS.target == 0, True),
    "versicolor against the rest": (IRIS.data, IRIS.target == 1, False),
    "virginica against the rest": (IRIS.data, IRIS.target == 2, False),
    "breast cancer": (CANCER.data, CANCER.target == 1, True),
    **{f"wine {k} against the rest": (WINE.data, WINE.target == k, True) for k in range(3)},
    **{f"digit {k} against the rest": (DIGITS.data, DIGITS.target == k, k < 8) for k in range(10)},
}


@pytest.mark.parametrize("name", CLASSIC)
def test_classic_data(name):
    X, positive, separable = CLASSIC[name]
    found = tp.theory.separability(X, np.where(positive, 1, -1))
    assert found.separable is separable
    assert found.verify()
    if separable:  # the margin by another way
        weight, bias = found.hyperplane.tensors()
        distances = np.where(positive, 1, -1) * (X @ weight[0].numpy() + bias.item()) / np.linalg.norm(weight)
        assert found.margin == pytest.approx(distances.min(), rel=1e-6)
    elif len(X) < 200:
        assert (found.kind, found.weak) == ("not separable", False)


def test_three_classes_jointly():
    wine = tp.theory.separability(WINE.data, WINE.target)
    assert (wine.kind, wine.verify()) == ("separable", True)
    weight, bias = wine.hyperplane.tensors()
    scores = torch.from_numpy(WINE.data) @ weight.T + bias
    assert scores.argmax(1).tolist() == WINE.target.tolist()
    assert torch.equal(weight.sum(0), torch.zeros(13, dtype=torch.float64))
    lead = (scores.gather(1, torch.from_numpy(WINE.target)[:, None]) - scores).sort().values[:, 1].min()
    assert wine.margin == pytest.approx(float(lead / weight.norm()))
    iris = tp.theory.separability(IRIS.data, IRIS.target)
    assert (iris.kind, iris.verify()) == ("weakly separable", True)  # setosa from the others, which then draw level
    assert set(iris.witness.rivals) == {1, 2}


CROSS = [[0, 0, 0], [0, 0, 0], [0, 1, 0], [0, -1, 0], [0, 0, 1]]
WEAK = {
    "two on the line": ([[0], [1], [1], [2]], [-1, -1, 1, 1], True, "weakly separable"),
    "all on the line": ([[1], [1]], [-1, 1], True, "not separable"),
    "one side on the line": ([[0, 0], [0, 2], [0, 1], [1, 1]], [-1, -1, 1, 1], True, "weakly separable"),
    "crossing in a line": ([[0, 0], [0, 2], [0, 1], [0, 3]], [-1, -1, 1, 1], True, "not separable"),
    "the origin itself": ([[0, 0], [1, 0], [0, -1]], [-1, 1, -1], False, "weakly separable"),
    "only the origin": ([[0, 0], [0, 0]], [-1, 1], False, "not separable"),
    "a pair and a face": (CROSS, [-1, 1, 1, 1, -1], True, "weakly separable"),
    "a pair and a cross": ([*CROSS, [0, 0, -1]], [-1, 1, 1, 1, -1, -1], True, "not separable"),
    "a bias would do": ([[1.0], [2.0]], [-1, 1], False, "not separable"),
}


@pytest.mark.parametrize("name", WEAK)
def test_weak_separation_is_named(name):
    X, y, bias, kind = WEAK[name]
    found = tp.theory.separability(X, y, bias=bias)
    assert (found.kind, found.separable, found.verify()) == (kind, False, True)
    assert found.witness is not None
    assert str(found).startswith(f"{kind}: ")
    if kind == "weakly separable":
        assert (found.hyperplane.least, found.margin) == (0, 0.0)
        assert 0 < found.hyperplane.positive < len(X)
    else:
        assert (found.weak, found.hyperplane, found.margin) == (False, None, None)
    if not bias:
        with pytest.raises(ValueError, match="two classes with a bias"):
            found.point()


@pytest.mark.parametrize("gate", ["AND", "XOR"])
def test_tensors_arrays_lists_and_sparse_matrices_are_the_same_data(gate):
    X, y = tp.data.gate(gate)
    first = tp.theory.separability(X, y)
    for other in (X.double(), X.int(), X.numpy(), X.tolist(), csr_array(X.numpy()), X.bool(), X.to(torch.bfloat16)):
        found = tp.theory.separability(other, y.numpy())
        assert (found.kind, found.digest) == (first.kind, first.digest)
        assert first.verify(other, y.tolist())
        assert found.verify(X, y)


@pytest.mark.parametrize("flips", [0, 40])
def test_sparse_data_are_decided_as_dense_ones(flips):
    random = np.random.default_rng(2)
    dense = random.normal(size=(400, 12)) * (random.random((400, 12)) < 0.3)
    two = np.where(dense @ random.normal(size=12) > 0.1, 1, -1)
    two[:flips] *= -1
    for y in (two, np.argmax(dense[:, :3] + 0.01 * np.arange(3), axis=1)):
        sparse, other = tp.theory.separability(csr_array(dense), y), tp.theory.separability(dense, y)
        assert sparse.kind == other.kind
        assert y is not two or sparse.separable is (flips == 0)
        assert sparse.verify(dense, y)
        assert other.verify(csr_array(dense), y)


def planted(count, features, margin, flipped):
    random = np.random.default_rng(3)
    normal = random.normal(size=features)
    normal /= np.linalg.norm(normal)
    X = random.normal(size=(count, features))
    y = np.where(X @ normal >= 0, 1, -1)
    X += (y * margin)[:, None] * normal
    return X, np.where(random.random(count) < flipped, -y, y)


@pytest.mark.parametrize("flipped", [0, 0.05])
def test_large_data_are_decided_on_few_rows(flipped, monkeypatch):
    seen, solver = [], separating.linear_program

    def counted(table, zero, seconds):
        seen.append(len(table))
        return solver(table, zero, seconds)

    monkeypatch.setattr(separating, "linear_program", counted)
    found = tp.theory.separability(*planted(20_000, 20, 0.01, flipped))
    assert found.separable is (flipped == 0)
    assert found.verify()
    assert max(seen) < 2000


MISTAKEN = {
    "a wrong vector": lambda table: (np.ones(table.shape[1]), 1.0, np.zeros(len(table))),
    "no witness": lambda table: (np.zeros(table.shape[1]), 0.0, np.zeros(len(table))),
    "a wrong witness": lambda table: (np.zeros(table.shape[1]), 0.0, np.arange(1.0, len(table) + 1)),
    "not numbers": lambda table: (np.full(table.shape[1], np.nan), np.nan, np.full(len(table), np.nan)),
}
ASKED = {
    "AND": (*tp.data.gate("AND"), "separable"),
    "XOR": (*tp.data.gate("XOR"), "not separable"),
    "weak": ([[0], [1], [1], [2]], torch.tensor([-1, -1, 1, 1]), "weakly separable"),
    "setosa": (IRIS.data, np.where(IRIS.target == 0, 1, -1), "separable"),
    "virginica": (IRIS.data, np.where(IRIS.target == 2, 1, -1), "not separable"),
}


@pytest.mark.parametrize("data", ASKED)
@pytest.mark.parametrize("mistake", [*MISTAKEN, "no answer"])
def test_a_wrong_answer_is_repaired(mistake, data, monkeypatch):
    answer = MISTAKEN.get(mistake, lambda table: None)
    monkeypatch.setattr(separating, "linear_program", lambda table, zero, seconds: answer(table))
    X, y, kind = ASKED[data]
    found = tp.theory.separability(X, y)
    assert found.kind == kind
    assert found.verify()


@pytest.mark.parametrize("data", ["setosa", "virginica"])
@pytest.mark.parametrize("mistake", MISTAKEN)
def test_a_wrong_answer_without_repair_is_no_proof(mistake, data, monkeypatch):
    monkeypatch.setattr(separating, "linear_program", lambda table, zero, seconds: MISTAKEN[mistake](table))
    monkeypatch.setattr(separating, "_STEPS", 0)
    monkeypatch.setattr(separating, "_FEW_STEPS", 0)
    X, y, _ = ASKED[data]
    found = tp.theory.separability(X, y)
    assert (found.kind, found.separable, found.weak, found.verify()) == ("undecided", None, None, False)
    assert "not precise enough" in found.reason
    assert str(found).startswith("undecided: the linear program")


@pytest.mark.parametrize(
    "wrong", [[Fraction(1), Fraction(1), Fraction(-3)], {0: Fraction(1), 3: Fraction(1)}, {1: Fraction(1)}]
)
def test_what_does_not_hold_is_not_returned(wrong, monkeypatch):
    monkeypatch.setattr(separating, "decide", lambda *arguments: wrong)
    found = tp.theory.separability(*tp.data.gate("AND"))
    assert (found.kind, found.verify()) == ("undecided", False)
    assert "did not hold" in found.reason


def test_floats_that_see_no_mistake_are_not_believed(monkeypatch):
    X, y = planted(3000, 5, 0.01, 0)
    monkeypatch.setattr(separating.SearchSpace, "margins", lambda space, point: np.ones(len(space.keys)))
    found = tp.theory.separability(X, y)
    assert (found.kind, found.verify()) == ("separable", True)


def test_changed_data_are_noticed():
    X, y = IRIS.data.copy(), np.where(IRIS.target == 0, 1, -1)
    found = tp.theory.separability(X, y)
    assert found.verify()
    for other in ((X, -y), (X[1:], y[1:]), (X[:, 1:], y), (X[::-1], y[::-1])):
        assert not found.verify(*other)
    X[3, 2] = np.nextafter(X[3, 2], 9)
    assert not found.verify()


@pytest.mark.parametrize(("X", "y"), [(IRIS.data, IRIS.target), (WINE.data, WINE.target), tp.data.gate("XOR")])
def test_a_certificate_comes_back_from_a_file(X, y, tmp_path):
    made, path = tp.theory.separability(X, y), tmp_path / "certificate.json"
    made.save(path)
    loaded = tp.theory.Certificate.load(path)
    assert {**vars(loaded), "rows": made.rows} == vars(made)
    assert loaded.verify(X, y)
    assert list(tmp_path.iterdir()) == [path]
    with pytest.raises(ValueError, match=r"call verify\(X, y\)"):
        loaded.verify()
    with pytest.raises(ValueError, match="X and y together"):
        loaded.verify(X)
    path.write_text(path.read_text().replace('"bias": true', '"bias": false'))
    with pytest.raises(ValueError, match="changed after it was written"):
        tp.theory.Certificate.load(path)


def test_equations_without_a_single_solution_or_too_many_are_refused():
    with pytest.raises(separating.UndecidedError, match="single solution"):
        separating.solve_exactly([[1, 2], [2, 4]], [[1, 1]])
    with pytest.raises(separating.UndecidedError, match="2001 equations"):
        separating.solve_exactly([[0] * 2001] * 2001, [[0] * 2001])


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
        (linear(4), (csr_array(IRIS.data), VERSICOLOR[1]), 20, "NOT_SEPARABLE"),
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


def proving(net, y=XOR[1], **options):
    tp.RuleTrainer(prove=True, **options).fit(net, XOR[0], y)


test_where_there_is_no_proof = refusals(
    (lambda: proving(None, kernel="poly"), "prove=True .*kernel"),
    (lambda: proving(tp.JointPerceptron(2, 2), (XOR[1] > 0).long()), "joint features"),
    (lambda: proving(tp.Perceptron(2, init="normal", seed=0), bias_step="none"), "bias of 0"),
    error=ValueError,
)


@pytest.mark.slow
@pytest.mark.filterwarnings(*plain.CHATTER)
def test_a_lightning_module_proves(tmp_path):
    rule = tp.lightning.LitRule(tp.Perceptron(2), prove=True)
    plain.fit(tmp_path, rule, plain.loader(XOR), epochs=20)
    assert rule.result.verdict is tp.Verdict.NOT_SEPARABLE
    assert rule.result.certificate.verify()
