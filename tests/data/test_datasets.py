"""Data: known separators, scikit-learn's values and scalers, exact shares, names mapped and mapped back."""

import json
import math
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import sklearn.datasets
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.preprocessing import MinMaxScaler, StandardScaler
from tables import said_by
from torch import nn

import torchperc as tp
from torchperc import data
from torchperc.data import Dataset, Scaler, load, split, unscaled

GENERATORS = {
    "separable-blobs": data.separable_blobs,
    "noisy-blobs": data.noisy_blobs,
    "moons": data.moons,
}
CLASSICS = {
    "iris": sklearn.datasets.load_iris,
    "wine": sklearn.datasets.load_wine,
    "breast-cancer": sklearn.datasets.load_breast_cancer,
    "digits": sklearn.datasets.load_digits,
    "diabetes": partial(sklearn.datasets.load_diabetes, scaled=False),
}
seeds = st.integers(0, 2**31)


# synthetic


@pytest.mark.parametrize("name", GENERATORS)
@pytest.mark.parametrize("samples", [2, 3, 101])
def test_generators_share_one_form_and_leave_the_global_seed_alone(name, samples):
    before = torch.random.get_rng_state()
    X, y = GENERATORS[name](samples, seed=5)
    assert torch.equal(torch.random.get_rng_state(), before)
    assert (X.shape, X.dtype, y.shape, y.dtype) == ((samples, 2), torch.float64, (samples,), torch.int64)
    assert ((y == -1).sum(), (y == 1).sum()) == (samples // 2, samples - samples // 2)
    assert samples < 100 or 0 < (y[:50] == 1).sum() < 50  # mixed
    loaded = load(name, samples=samples, seed=5)
    assert torch.equal(X, loaded.X)
    assert torch.equal(y, loaded.y)
    assert (loaded.name, loaded.names) == (name, ("x1", "x2"))
    assert not torch.equal(X, GENERATORS[name](samples, seed=6)[0])


@pytest.mark.parametrize("samples", [2, 7, 30])
def test_moons_are_those_of_sklearn(samples):
    def in_order(X, y):
        return sorted((round(a, 9) + 0.0, round(b, 9) + 0.0, int(s)) for (a, b), s in zip(X.tolist(), y, strict=True))

    X, y = sklearn.datasets.make_moons(samples, shuffle=False)
    assert in_order(*data.moons(samples, noise=0)) == in_order(X, 2 * y - 1)


@given(st.integers(2, 40), st.integers(1, 6), st.floats(1e-3, 1e3), seeds)
def test_separable_blobs_have_their_margin(samples, features, margin, seed):
    X, y = data.separable_blobs(samples, features, margin, seed)
    minus, plus = X[y == -1], X[y == 1]
    gaps = torch.linalg.vector_norm(plus[:, None] - minus, dim=-1)
    row, column = divmod(int(gaps.argmin()), len(minus))
    across, middle = plus[row] - minus[column], (plus[row] + minus[column]) / 2
    # the nearest pair is 2·margin apart, so that no hyperplane has a larger margin; the one between them has it
    assert across.norm().item() == pytest.approx(2 * margin, rel=1e-12, abs=1e-13)
    distances = y * ((X - middle) @ across) / across.norm()
    assert distances.min().item() == pytest.approx(margin, rel=1e-9, abs=1e-12)


@given(st.integers(2, 60), st.integers(1, 4), st.floats(0, 0.5), seeds)
def test_noisy_blobs_have_their_errors(samples, features, noise, seed):
    X, y = data.noisy_blobs(samples, features, noise, seed)
    same, right = data.separable_blobs(samples, features, seed=seed)
    for sign in (-1, 1):
        assert (y != right)[y == sign].sum() == round(noise * samples / 2)
    assert torch.equal(X, same)


def test_wrong_labels_are_in_random_rows():
    wrong = (data.separable_blobs(400, seed=1)[1] != data.noisy_blobs(400, noise=0.1, seed=1)[1]).nonzero().flatten()
    assert len(wrong) == 40
    assert 140 < wrong.double().mean() < 260  # the first forty would have about 20


# tagged sentences


def test_sentences_have_ambiguous_and_coined_words():
    made, other = tp.data.tagged_sentences(2000, seed=5), tp.data.tagged_sentences(2000, seed=6)
    assert made == tp.data.tagged_sentences(2000, seed=5) != other
    assert tp.data.tagged_sentences(20, seed=5) == made[:20]
    assert all([tag for _, tag in sentence].index("PUNCT") == len(sentence) - 1 for sentence in made)
    pairs = [pair for sentence in made for pair in sentence]
    assert {tag for word, tag in pairs if word == "light"} == {"ADJ", "NOUN", "VERB"}
    coined = [(word, tag) for word, tag in pairs if len(word) > 5]
    open_class = [pair for pair in pairs if pair[1] in ("ADJ", "ADV", "NOUN", "VERB")]
    assert len(coined) / len(open_class) == pytest.approx(0.1, abs=0.01)
    assert {word[5:] for word, tag in coined if tag == "ADV"} == {"ly", "er"}
    seen = {word for word, _ in coined}
    unseen = {word for sentence in other for word, _ in sentence if len(word) > 5} - seen
    assert len(unseen) > 0.8 * len(seen)


# data sets and sources


@pytest.mark.parametrize("name", CLASSICS)
def test_classics_have_the_values_of_sklearn(name):
    bunch, loaded, real = CLASSICS[name](), load(name), name == "diabetes"
    assert np.array_equal(loaded.X.numpy(), bunch.data)
    labels = () if real else tuple(sorted(map(str, bunch.target_names)))
    assert (loaded.labels, loaded.task) == (labels, "regression" if real else "classification")
    found = loaded.y.tolist() if real else loaded.decode(loaded.y)
    assert found == (bunch.target.tolist() if real else [str(bunch.target_names[code]) for code in bunch.target])
    assert loaded.names == tuple(map(str, bunch.feature_names))
    assert all(type(word) is str for word in (*loaded.labels, *loaded.names))
    assert loaded.classes == (len(labels) if len(labels) > 2 else None)
    assert (loaded.image_shape, loaded.target) == (
        (8, 8) if name == "digits" else None,
        "progression" if real else None,
    )
    assert (loaded.name, loaded.X.dtype) == (name, torch.float64)


@pytest.mark.parametrize(("name", "labels", "count"), [("iris", ("not setosa", "setosa"), 50), ("digits", ("not 3", "3"), 183), ("breast-cancer", ("malignant", "benign"), 357)])  # fmt: skip
def test_one_label_against_the_rest(name, labels, count):
    full, two = load(name), load(name, positive=labels[1])
    assert (two.labels, two.classes, int((two.y == 1).sum())) == (labels, None, count)
    assert [label == labels[1] for label in full.decode(full.y)] == (two.y == 1).tolist()
    assert torch.equal(two.X, full.X)
    assert (two.names, two.image_shape) == (full.names, full.image_shape)


@given(st.lists(st.sampled_from(["b", "a", "10", "9", "ä", "", "x y", 3, 2.5, True]), min_size=2, max_size=20))
def test_labels_of_any_kind_are_mapped_and_mapped_back(y):
    if len({str(value) for value in y}) < 2:
        return
    made = Dataset.of(torch.zeros(len(y), 1), y)
    assert made.decode(made.y) == [str(value) for value in y]
    wanted = {-1, 1} if made.classes is None else set(range(made.classes))
    assert set(made.y.tolist()) == wanted


def test_labels_may_come_in_any_container():
    words = np.array(["7", "5", "7"])
    for y in (torch.tensor([7, 5, 7]), torch.tensor([7.0, 5.0, 7.0]), words, words.astype(object), (7, 5.0, "7")):
        made = Dataset.of(np.eye(3, dtype=np.float32), y)
        assert (made.labels, made.y.tolist(), made.X.dtype) == (("5", "7"), [1, -1, 1], torch.float64)


# scaling

ORACLES = {"minmax": MinMaxScaler, "standard": StandardScaler}
values = st.floats(-1e6, 1e6).map(lambda value: round(value, 3))


@st.composite
def matrices(draw):
    n, d = draw(st.integers(1, 12)), draw(st.integers(1, 4))
    return np.array(draw(st.lists(st.lists(values, min_size=d, max_size=d), min_size=n, max_size=n)))


@pytest.mark.parametrize("kind", ORACLES)
@given(X=matrices(), other=matrices())
def test_scalers_are_those_of_sklearn(kind, X, other):
    oracle, fitted = ORACLES[kind]().fit(X), Scaler.fit(kind, X)
    for seen in (X, np.resize(other, (5, X.shape[1]))):
        # sklearn's x·a + b cancels where the range is small beside the values; ours subtracts first
        slack = 1e-13 * (np.abs(X).max() + np.abs(seen).max()) / fitted.scale.min().item()
        np.testing.assert_allclose(fitted.transform(seen).numpy(), oracle.transform(seen), rtol=1e-9, atol=slack)


@pytest.mark.parametrize("kind", data.SCALINGS)
@given(X=matrices())
def test_inverses_lead_back_and_plain_states_to_the_bit(kind, X):
    fitted = Scaler.fit(kind, X)
    np.testing.assert_allclose(fitted.inverse(fitted.transform(X)), X, rtol=1e-12, atol=1e-12 * (1 + np.abs(X).max()))
    again = Scaler.from_state(json.loads(json.dumps(fitted.state())))
    assert again.kind == kind
    assert torch.equal(again.shift, fitted.shift)
    assert torch.equal(again.scale, fitted.scale)


@pytest.mark.parametrize("constant", [0.1, -1e300, 0.0, 5e-324])
@pytest.mark.parametrize("scaling", ["minmax", "standard"])
def test_constant_features_become_zero(scaling, constant):
    fitted = Scaler.fit(scaling, [[constant, 1.0]] * 10 + [[constant, 2.0]])
    assert fitted.transform([[constant, 1.0]] * 3)[:, 0].tolist() == [0, 0, 0]
    assert fitted.scale[0] == 1
    assert fitted.inverse([[0.0, 0.0]])[0, 0] == constant


@pytest.mark.parametrize("scaling", ["minmax", "standard"])
@pytest.mark.parametrize("size", [1e-200, 1e200])
def test_tiny_and_huge_features_are_scaled_too(scaling, size):
    X = torch.tensor([[1.0], [2.0], [4.0]], dtype=torch.float64)
    torch.testing.assert_close(Scaler.fit(scaling, X * size).transform(X * size), Scaler.fit(scaling, X).transform(X))


# scaling of targets, and the way back for nets

rng = np.random.default_rng(0)
PEOPLE = np.column_stack([rng.normal(170, 10, 50), rng.uniform(18, 80, 50)])
WEIGHTS = 0.9 * PEOPLE[:, 0] + 0.1 * PEOPLE[:, 1] - 90 + rng.normal(size=50)


@pytest.mark.parametrize("kind", data.SCALINGS)
@pytest.mark.parametrize("columns", [1, 2])
def test_targets_are_scaled_as_columns(kind, columns):
    y = WEIGHTS if columns == 1 else np.stack([WEIGHTS, -3 * WEIGHTS], 1)
    scaler = Scaler.fit(kind, y)
    assert scaler.transform(y).shape == y.shape
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        assert scaler.inverse(scaler.transform(torch.tensor(y, dtype=dtype))).dtype == dtype


@pytest.mark.parametrize(
    "kinds", [("minmax", "minmax"), ("standard", "minmax"), ("none", "standard"), ("maxabs", None)]
)
@pytest.mark.parametrize("outputs", [1, 2])
def test_a_net_learned_on_scaled_data_is_the_least_squares_of_the_raw_data(kinds, outputs):
    y = WEIGHTS if outputs == 1 else np.stack([WEIGHTS, WEIGHTS**2], 1)
    scaler = Scaler.fit(kinds[0], PEOPLE)
    target = None if kinds[1] is None else Scaler.fit(kinds[1], y)
    net = nn.Linear(2, outputs, dtype=torch.float64)
    tp.minimise(net, tp.RegressionHead(), scaler.transform(PEOPLE), y if target is None else target.transform(y))
    before = net.weight.clone()
    raw = unscaled(net, scaler, target)
    assert torch.equal(net.weight, before)
    best = np.linalg.lstsq(np.column_stack([PEOPLE, np.ones(50)]), y.reshape(50, -1))[0]
    np.testing.assert_allclose(raw.weight.detach(), best[:2].T, rtol=1e-9)
    np.testing.assert_allclose(raw.bias.detach(), best[2], rtol=1e-9)


@torch.no_grad()
def test_the_layers_of_an_mlp_are_folded_and_a_net_without_bias_gets_one():
    scaler, target = Scaler.fit("minmax", PEOPLE), Scaler.fit("standard", WEIGHTS)
    net = tp.MLP(2, (3,), seed=0, dtype=torch.float64)
    expected = target.inverse(net(scaler.transform(PEOPLE)))
    torch.testing.assert_close(unscaled(net, scaler, target)(torch.tensor(PEOPLE)), expected, rtol=1e-12, atol=1e-12)
    bare = tp.Perceptron(2, bias=False, dtype=torch.float64)
    bare.weight.fill_(1.0)
    raw = unscaled(bare, Scaler.fit("maxabs", PEOPLE), Scaler.fit("maxabs", WEIGHTS))
    np.testing.assert_allclose(raw.weight[0], abs(WEIGHTS).max() / abs(PEOPLE).max(0))
    shifted = unscaled(bare, scaler)  # which needs a bias
    torch.testing.assert_close(shifted(torch.tensor(PEOPLE)), bare(scaler.transform(PEOPLE)))


# splits

hundredths = st.tuples(st.integers(1, 100), st.integers(0, 99)).map(lambda t: (t[0], min(t[1], 100 - t[0])))
some_labels = st.lists(st.integers(0, 4), min_size=1, max_size=60)


def counts(y, part):
    return {label: sum(y[i] == label for i in part.tolist()) for label in set(y)}


@given(some_labels, hundredths, seeds)
def test_splits_cover_everything_in_the_right_shares(y, parts, seed):
    percents = (*parts, 100 - sum(parts))
    fractions = [percent / 100 for percent in percents]
    try:
        made = split(y, fractions, seed)
    except ValueError as error:
        assert "leaves no sample for the" in str(error)  # noqa: PT017 - any other error is a failure
        assert len(y) < 300 / min(percent for percent in percents if percent)
        return
    assert sorted(torch.cat(made).tolist()) == list(range(len(y)))
    for part, percent in zip(made, percents, strict=True):
        assert part.dtype == torch.int64
        assert part.tolist() == sorted(part.tolist())
        assert bool(len(part)) == bool(percent)
        for label, count in counts(y, part).items():
            assert y.count(label) * percent // 100 <= count <= -(-y.count(label) * percent // 100)
    assert all(counts(y, made[0]).values())
    assert all(torch.equal(a, b) for a, b in zip(made, split(y, fractions, seed), strict=True))


def test_small_classes_do_not_starve_a_part_and_fractions_are_read_as_they_are_written():
    y = [label for label in range(20) for _ in range(3)]
    assert [len(part) for part in split(y)] == [36, 12, 12]  # by largest remainder alone: 40, 20, 0
    for gate, sizes in {"AND": [2, 1, 1], "XOR": [2, 1, 1], "parity-3": [5, 2, 1]}.items():
        assert [len(part) for part in split(load(gate).y)] == sizes
    cases = {(0.29, 0.57, 0.14): 100, (1 / 3, 2 / 3, 0): 21, (1 / 7, 2 / 7, 4 / 7): 7, (0.5, 0.3, 0.2): 10}
    for fractions, count in cases.items():
        wanted = [round(count * fraction) for fraction in fractions]
        assert [len(part) for part in split([0] * count, np.array(fractions))] == wanted
    y = [0, 1, *[2] * 5]  # 0.6 is a little less in binary, yet three of five are exactly that, and no part may take one
    assert [counts(y, part)[2] for part in split(y)] == [3, 1, 1]


def test_without_stratification_classes_fall_as_they_may_and_the_seed_decides():
    y, held = [0] * 50 + [1] * 50, torch.zeros(16)
    parts = [split(y, (0.5, 0.5, 0), seed, stratify=False) for seed in range(20)]
    assert {len(train) for train, _, _ in parts} == {50}
    assert len({(train < 50).sum().item() for train, _, _ in parts}) > 3
    assert split([0] * 10, stratify=True)[0].tolist() == split([0, 1] * 5, stratify=False)[0].tolist()
    for seed in range(600):
        held[split([0, 1] * 8, (0.5, 0.25, 0.25), seed)[2]] += 1
    assert ((held - 150).abs() < 5 * (600 * 0.25 * 0.75) ** 0.5).all()  # every sample is as likely as any other


# bad requests

ROW, TWO, MIN = [[1.0]], [[1.0], [2.0]], {"kind": "minmax", "shift": [0.0], "scale": [1.0]}
BAD = [
    (lambda: data.separable_blobs(margin=0), "margin=0"),
    (lambda: data.noisy_blobs(noise=0.6), "noise=0.6"),
    (lambda: load("irises"), "source='irises' is unknown; choose one of AND, OR, NAND, NOR, XOR, XNOR, parity-n"),
    (lambda: load("moons", margin=1), "margin=1 is not an option of source 'moons'; it takes samples, noise, seed"),
    (lambda: load("a.csv", margin=1), "margin=1 is not an option of source 'a.csv'; it takes target, missing"),
    (lambda: load(Path("AND")), "cannot read AND: No such file"),
    (lambda: load("iris", positive="rose"), "positive='rose' is not a label; choose one of 'setosa'"),
    (lambda: load("iris").decode([0, 3]), "codes must hold class indices 0 to 2, found 0, 3"),
    (lambda: Dataset.of(ROW, ["a"]), "y has one label only, found 'a'"),
    (lambda: Dataset.of(TWO, [["a"], ["b"]]), "y must have one dimension, found shape (2, 1)"),
    (lambda: Dataset.of(TWO, [1.0, math.nan]), "y[1] = nan"),
    (lambda: Dataset.of(TWO, ["a", "b", "c"]), "y has 3 values for 2 samples"),
    (lambda: Dataset.of([[1.0], [math.nan]], ["a", "b"]), "X[1, 0] = nan"),
    (lambda: Dataset(torch.eye(2), [0, 1], ("a", "b"), ("x", "y")), "y must hold -1 and +1, found 0, 1"),
    (lambda: Dataset(torch.eye(2), [-1, 1], ("a", "a"), ("x", "y")), "labels=('a', 'a')"),
    (lambda: Dataset(torch.eye(2), [-1, 1], ("a", "b"), ("x",)), "names has 1 entries for 2 features"),
    (lambda: load("iris", task="regression"), "task='regression'"),
    (lambda: load("diabetes", task="classification"), "which is for regression"),
    (lambda: load("diabetes").decode([1.0]), "the targets are real numbers"),
    (lambda: load("diabetes", positive="1"), "positive='1' needs classes"),
    (lambda: Dataset.of(TWO, ["1", "b"], task="regression"), "y[1] = b"),
    (lambda: Dataset.of(TWO, [3, 3], task="regression"), "y is 3 for every sample"),
    (lambda: Dataset(torch.eye(2), [1.0, math.inf], (), ("a", "b")), "found inf"),
    (lambda: Scaler.fit("robust", ROW), "kind='robust'"),
    (lambda: Scaler.fit("minmax", [[0.0, -1e308], [0.0, 1e308]]), "X[:, 1] spans more than float64 holds"),
    (lambda: Scaler.fit("standard", [[1.5e308], [-1.7e308], [-1.7e308]]), "X[:, 0] spans more than float64 holds"),
    (lambda: Scaler.fit("minmax", ROW).transform([[1.0, 2.0]]), "X has 2 features but 1 are needed"),
    (lambda: unscaled(nn.Linear(2, 1), Scaler.fit("minmax", ROW)), "scaler has 1 columns, but the weights need 2"),
    (lambda: Scaler.from_state({"kind": "minmax"}), "state has no 'scale'"),
    (lambda: Scaler.from_state(MIN | {"scale": [0.0]}), "state['scale'] must be above 0, found 0"),
    (lambda: Scaler.fit("minmax", [[[1.0]]]), "X must have two dimensions"),
    (lambda: unscaled(nn.Linear(1, 2), None, Scaler.fit("minmax", [1.0, 2.0])), "target_scaler has 1 columns"),
    (lambda: split([0, 1] * 9, (0.5, 0.5)), "fractions=(0.5, 0.5)"),
    (lambda: split([0, 1] * 9, (0.5, 0.6, -0.1)), "fractions[2]=-0.1"),
    (lambda: split([0, 1] * 9, (0, 0.5, 0.5)), "fractions=(0, 0.5, 0.5)"),
    (lambda: split([0, 1, 2]), "fractions=(0.6, 0.2, 0.2) leaves no sample for the validation set of 3"),
    (lambda: split(np.array(["a", None], dtype=object)), "y[1] = None"),
    (lambda: split([]), "y must be one label per sample, found shape (0,)"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "message"), BAD)
def test_bad_requests_name_parameter_and_value(call, message):
    assert message in said_by(call)


def test_wrong_types_are_named():
    assert "found int 3" in said_by(lambda: load(3), TypeError)
    assert "net must be a Perceptron" in said_by(
        lambda: unscaled(nn.Conv1d(1, 1, 1), Scaler.fit("minmax", ROW)), TypeError
    )


def test_a_gate_of_a_wrong_type_is_refused():
    for dtype in (float("nan"), "float64", -1):
        with pytest.raises(TypeError, match=f"dtype .*{dtype}"):
            tp.data.gate("AND", dtype=dtype)
