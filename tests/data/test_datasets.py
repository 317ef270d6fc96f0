"""Data: known separators, scikit-learn's values and scalers, exact shares, names mapped and mapped back."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
import sklearn.datasets
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.preprocessing import MinMaxScaler, StandardScaler

from torchperc import data
from torchperc.data import Dataset, MinMax, Scaler, Standard, load, make_scaler, split

GENERATORS = {
    "separable-blobs": data.separable_blobs,
    "noisy-blobs": data.noisy_blobs,
    "moons": data.moons,
    "circles": data.circles,
}
CLASSICS = {
    "iris": sklearn.datasets.load_iris,
    "wine": sklearn.datasets.load_wine,
    "breast-cancer": sklearn.datasets.load_breast_cancer,
    "digits": sklearn.datasets.load_digits,
}
seeds = st.integers(0, 2**31)


# synthetic


@pytest.mark.parametrize("generate", GENERATORS.values(), ids=GENERATORS)
@pytest.mark.parametrize("samples", [2, 3, 101])
def test_generators_share_one_form(generate, samples):
    X, y = generate(samples, seed=5)
    assert (X.shape, X.dtype, y.shape, y.dtype) == ((samples, 2), torch.float64, (samples,), torch.int64)
    assert ((y == -1).sum(), (y == 1).sum()) == (samples // 2, samples - samples // 2)
    again, same = generate(samples, seed=5)
    assert torch.equal(X, again)
    assert torch.equal(y, same)
    assert not torch.equal(X, generate(samples, seed=6)[0])


@pytest.mark.parametrize("generate", GENERATORS.values(), ids=GENERATORS)
def test_generators_leave_the_global_seed_alone_and_mix_the_classes(generate):
    before = torch.random.get_rng_state()
    _, y = generate(100)
    assert torch.equal(torch.random.get_rng_state(), before)
    assert 0 < (y[:50] == 1).sum() < 50


@given(st.integers(2, 40), st.integers(1, 6), st.floats(1e-3, 1e3), seeds)
def test_separable_blobs_have_their_margin(samples, features, margin, seed):
    X, y = data.separable_blobs(samples, features, margin, seed)
    u, b = data.separator(features, seed)
    assert u.norm().item() == pytest.approx(1, rel=1e-15)
    distances = y * (X @ u + b)
    tight = {"rel": 1e-12, "abs": 1e-13}
    for sign in (-1, 1):
        assert distances[y == sign].min().item() == pytest.approx(margin, **tight)
    # the two nearest points face each other 2·margin apart, so that no hyperplane has a larger margin
    pair = [X[y == sign][distances[y == sign].argmin()] for sign in (-1, 1)]
    assert (pair[1] - pair[0]).norm().item() == pytest.approx(2 * margin, **tight)


@given(st.integers(2, 60), st.integers(1, 4), st.floats(0, 0.5), seeds)
def test_noisy_blobs_have_their_errors(samples, features, noise, seed):
    X, y = data.noisy_blobs(samples, features, noise, seed)
    u, b = data.separator(features, seed)
    wrong = y * (X @ u + b) < 0
    for sign in (-1, 1):
        assert wrong[y == sign].sum() == round(noise * samples / 2)
    assert torch.equal(X, data.separable_blobs(samples, features, seed=seed)[0])


def in_some_order(X, y):
    return sorted((round(a, 9) + 0.0, round(b, 9) + 0.0, int(sign)) for (a, b), sign in zip(X.tolist(), y, strict=True))


def test_wrong_labels_are_in_random_rows():
    (_, clean), (_, noisy) = data.separable_blobs(400, seed=1), data.noisy_blobs(400, noise=0.1, seed=1)
    wrong = (clean != noisy).nonzero().flatten()
    assert len(wrong) == 40
    assert 140 < wrong.double().mean() < 260  # the first forty would have about 20


@pytest.mark.parametrize("samples", [2, 7, 30])
def test_moons_and_circles_are_those_of_sklearn(samples):
    X, y = sklearn.datasets.make_moons(samples, shuffle=False)
    assert in_some_order(*data.moons(samples, noise=0)) == in_some_order(X, 2 * y - 1)
    X, y = sklearn.datasets.make_circles(samples, shuffle=False, factor=0.3)
    assert in_some_order(*data.circles(samples, noise=0, factor=0.3)) == in_some_order(X, 2 * y - 1)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: data.separable_blobs(1), ValueError, "samples=1 must be at least 2"),
        (lambda: data.separable_blobs(margin=0), ValueError, "margin=0 must be a finite number > 0"),
        (lambda: data.separable_blobs(seed=-1), ValueError, "seed=-1 must be at least 0"),
        (lambda: data.noisy_blobs(noise=0.6), ValueError, "noise=0.6 must be at most 0.5"),
        (lambda: data.moons(noise=math.inf), ValueError, "noise=inf must be a finite number >= 0"),
        (lambda: data.circles(factor=1), ValueError, "factor=1.0 must be below 1, the radius of the outer circle"),
    ],
)
def test_bad_requests_for_synthetic_data(call, error, message):
    with pytest.raises(error) as caught:
        call()
    assert message in str(caught.value)


# data sets and sources


@pytest.mark.parametrize("name", CLASSICS)
def test_classics_have_the_values_of_sklearn(name):
    bunch, loaded = CLASSICS[name](), load(name)
    assert np.array_equal(loaded.X.numpy(), bunch.data)
    assert loaded.decode(loaded.y) == [str(bunch.target_names[code]) for code in bunch.target]
    assert loaded.labels == tuple(sorted(map(str, bunch.target_names)))
    assert loaded.names == tuple(map(str, bunch.feature_names))
    assert all(type(word) is str for word in (*loaded.labels, *loaded.names))
    assert loaded.classes == (None if name == "breast-cancer" else len(bunch.target_names))
    assert loaded.image_shape == ((8, 8) if name == "digits" else None)
    assert (loaded.name, loaded.X.dtype, loaded.y.dtype) == (name, torch.float64, torch.int64)


@pytest.mark.parametrize(
    ("name", "positive", "labels", "count"),
    [
        ("iris", "setosa", ("not setosa", "setosa"), 50),
        ("digits", 3, ("not 3", "3"), 183),
        ("breast-cancer", "benign", ("malignant", "benign"), 357),
        ("breast-cancer", "malignant", ("benign", "malignant"), 212),
    ],
)
def test_one_label_against_the_rest(name, positive, labels, count):
    full, two = load(name), load(name, positive=positive)
    assert (two.labels, two.classes) == (labels, None)
    assert (two.y == 1).sum() == count
    assert [label == str(positive) for label in full.decode(full.y)] == (two.y == 1).tolist()
    assert torch.equal(two.X, full.X)
    assert (two.names, two.image_shape) == (full.names, full.image_shape)


@pytest.mark.parametrize("name", GENERATORS)
def test_generators_are_sources_with_their_options(name):
    X, y = GENERATORS[name](samples=20, seed=4)
    loaded = load(name, samples=20, seed=4)
    assert torch.equal(loaded.X, X)
    assert torch.equal(loaded.y, y)
    assert (loaded.name, loaded.names) == (name, ("x1", "x2"))


def test_files_are_sources(tmp_path):
    path = tmp_path / "fruit.CSV"
    path.write_text("fruit,weight\npear,3\napple,1\nplum,0.5\n")
    for source in (path, str(path)):
        loaded = load(source, target="fruit")
        assert (loaded.labels, loaded.y.tolist()) == (("apple", "pear", "plum"), [1, 0, 2])
        assert (loaded.X.tolist(), loaded.names, loaded.name) == ([[3], [1], [0.5]], ("weight",), "fruit.CSV")
    assert load(path, target=1, positive="plum").y.tolist() == [-1, -1, 1]
    assert isinstance(loaded, data.Dataset)


@given(st.lists(st.sampled_from(["b", "a", "10", "9", "ä", "", "x y", 3, 2.5, True]), min_size=2, max_size=20))
def test_labels_of_any_kind_are_mapped_and_mapped_back(y):
    if len({str(value) for value in y}) < 2:
        return
    made = Dataset.of(torch.zeros(len(y), 1), y)
    assert made.decode(made.y) == [str(value) for value in y]
    wanted = {-1, 1} if made.classes is None else set(range(made.classes))
    assert set(made.y.tolist()) == wanted


@pytest.mark.parametrize(
    "y",
    [
        torch.tensor([7, 5, 7]),
        torch.tensor([7.0, 5.0, 7.0]),
        np.array([7, 5, 7], dtype=np.uint8),
        np.array(["7", "5", "7"]),
        np.array(["7", "5", "7"], dtype=object),
        (7, 5.0, "7"),
    ],
    ids=["int tensor", "float tensor", "uint8", "words", "objects", "a mixture"],
)
def test_labels_may_come_in_any_container(y):
    made = Dataset.of(np.eye(3, dtype=np.float32), y)
    assert (made.labels, made.y.tolist()) == (("5", "7"), [1, -1, 1])
    assert made.X.dtype == torch.float64


def plain(**changes):
    parts = {"X": torch.eye(2), "y": [-1, 1], "labels": ("a", "b"), "names": ("x", "y"), **changes}
    return Dataset(**parts)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: load("irises"), ValueError, "source='irises' is unknown; choose one of AND, OR, NAND, NOR, XOR, XNOR, parity-n, separable-blobs, noisy-blobs, moons, circles, iris, wine, breast-cancer, digits, diabetes, or the path of a file"),
        (lambda: load(3), TypeError, "found int 3"),
        (lambda: load("AND", seed=1), ValueError, "seed=1 is not an option of source 'AND'; it takes none"),
        (lambda: load("moons", margin=1), ValueError, "margin=1 is not an option of source 'moons'; it takes samples, noise, seed"),
        (lambda: load("iris", target="x"), ValueError, "target='x' is not an option of source 'iris'; it takes positive"),
        (lambda: load("a.csv", margin=1), ValueError, "margin=1 is not an option of source 'a.csv'; it takes target, missing"),
        (lambda: load("nowhere.csv"), ValueError, "cannot read nowhere.csv: No such file"),
        (lambda: load(Path("AND")), ValueError, "cannot read AND: No such file"),
        (lambda: load("iris", positive="rose"), ValueError, "positive='rose' is not a label; choose one of 'setosa', 'versicolor', 'virginica'"),
        (lambda: load("iris").decode([0, 3]), ValueError, "codes must hold class indices 0 to 2, found 0, 3"),
        (lambda: Dataset.of([[1.0]], ["a"]), ValueError, "y has one label only, found 'a'; at least two classes are required"),
        (lambda: Dataset.of([[1.0], [2.0]], [["a"], ["b"]]), ValueError, "y must have one dimension, found shape (2, 1)"),
        (lambda: Dataset.of([[1.0], [2.0]], [1.0, math.nan]), ValueError, "y[1] = nan is a missing label"),
        (lambda: Dataset.of([[1.0], [2.0]], ["a", "b", "c"]), ValueError, "y has 3 values for 2 samples"),
        (lambda: Dataset.of([[1.0], [math.nan]], ["a", "b"]), ValueError, "X[1, 0] = nan is not a finite number"),
        (lambda: plain(y=[0, 1]), ValueError, "y must hold -1 and +1, found 0, 1"),
        (lambda: plain(labels=("a", "a")), ValueError, "labels=('a', 'a') must be at least two different names"),
        (lambda: plain(names=("x",)), ValueError, "names has 1 entries for 2 features; name every feature once"),
        (lambda: plain(image_shape=(2, 2)), ValueError, "image_shape=(2, 2) does not hold 2 features"),
    ],
)  # fmt: skip
def test_bad_requests_for_data_sets(call, error, message):
    with pytest.raises(error) as caught:
        call()
    assert message in str(caught.value)


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
    oracle, fitted = ORACLES[kind]().fit(X), make_scaler(kind).fit(X)
    for seen in (X, np.resize(other, (5, X.shape[1]))):
        # sklearn's x·a + b cancels where the range is small beside the values; ours subtracts first
        slack = 1e-13 * (np.abs(X).max() + np.abs(seen).max()) / fitted.scale.min().item()
        np.testing.assert_allclose(fitted.transform(seen).numpy(), oracle.transform(seen), rtol=1e-9, atol=slack)


@pytest.mark.parametrize("kind", data.SCALINGS)
@given(X=matrices(), seed=seeds)
def test_inverse_and_unscale_lead_back(kind, X, seed):
    fitted, generator = make_scaler(kind).fit(X), torch.Generator().manual_seed(seed)
    Z, size = fitted.transform(X), 1 + np.abs(X).max()
    np.testing.assert_allclose(fitted.inverse(Z).numpy(), X, rtol=1e-12, atol=1e-12 * size)
    weight = torch.randn(3, X.shape[1], generator=generator, dtype=torch.float64)
    bias = torch.randn(3, generator=generator, dtype=torch.float64)
    w, b = fitted.unscale(weight, bias)
    assert (w.shape, b.shape) == (weight.shape, bias.shape)
    slack = 1e-12 * (1 + w.abs().max().item() * size)  # w′·x and b′ may be large and cancel
    np.testing.assert_allclose(torch.from_numpy(X) @ w.T + b, Z @ weight.T + bias, rtol=1e-9, atol=slack)


def test_unscale_is_exact_in_powers_of_two():
    fitted = MinMax().fit([[1.0, -2.0, 7.0], [3.0, 2.0, 7.0]])
    w, b = fitted.unscale(torch.tensor([[1.0, 2.0, 4.0]]), torch.tensor([0.5]))
    assert (w.tolist(), b.tolist()) == ([[0.5, 0.5, 4.0]], [0.5 - 0.5 + 1 - 28])
    assert w.dtype == b.dtype == torch.float32
    for bias in (0.5, [0.5], torch.tensor(0.5)):
        w, b = fitted.unscale(np.array([1.0, 2.0, 4.0]), bias)
        assert (w.tolist(), b.reshape(-1).tolist()) == ([0.5, 0.5, 4.0], [-27.0])
        assert w.dtype == torch.float64
    assert fitted.unscale([1, 2, 4], 0)[0].tolist() == [0.5, 0.5, 4.0]


@pytest.mark.parametrize("kind", data.SCALINGS)
@given(X=matrices())
def test_states_are_plain_and_lead_back_to_the_bit(kind, X):
    fitted = make_scaler(kind).fit(X)
    state = json.loads(json.dumps(fitted.state()))
    for home in (Scaler, type(fitted)):
        again = home.from_state(state)
        assert type(again) is type(fitted)
        assert torch.equal(again.shift, fitted.shift)
        assert torch.equal(again.scale, fitted.scale)


@pytest.mark.parametrize("kind", data.SCALINGS)
def test_scaling_keeps_the_floating_type(kind):
    fitted = make_scaler(kind).fit(torch.tensor([[0.1], [0.7]]))
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        X = torch.tensor([[0.5]], dtype=dtype)
        assert fitted.transform(X).dtype == fitted.inverse(X).dtype == dtype
    assert fitted.transform([[1]]).dtype == fitted.transform(torch.tensor([[1]])).dtype == torch.float64


@pytest.mark.parametrize("constant", [0.1, -1e300, 0.0, 5e-324])
@pytest.mark.parametrize("scaling", [MinMax, Standard])
def test_constant_features_become_zero(scaling, constant):
    fitted = scaling().fit([[constant, 1.0]] * 10 + [[constant, 2.0]])
    assert fitted.transform([[constant, 1.0]] * 3)[:, 0].tolist() == [0, 0, 0]
    assert fitted.scale[0] == 1
    assert fitted.inverse([[0.0, 0.0]])[0, 0] == constant


@pytest.mark.parametrize("scaling", [MinMax, Standard])
@pytest.mark.parametrize("size", [1e-200, 1e200])
def test_tiny_and_huge_features_are_scaled_too(scaling, size):
    X = torch.tensor([[1.0], [2.0], [4.0]], dtype=torch.float64)
    torch.testing.assert_close(scaling().fit(X * size).transform(X * size), scaling().fit(X).transform(X))


def state(**changes):
    return {"kind": "minmax", "shift": [0.0], "scale": [1.0], **changes}


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: make_scaler("robust"), ValueError, "kind='robust' is unknown; choose one of 'minmax', 'standard', 'maxabs', 'none'"),
        (lambda: MinMax().transform([[1.0]]), ValueError, "MinMax is not fitted; call fit(X) with the training samples first"),
        (lambda: MinMax().fit([[1.0], [math.inf]]), ValueError, "X[1, 0] = inf is not a finite number"),
        (lambda: MinMax().fit([[0.0, -1e308], [0.0, 1e308]]), ValueError, "X[:, 1] spans more than float64 holds; divide it by a constant first"),
        (lambda: Standard().fit([[1.5e308], [-1.7e308], [-1.7e308]]), ValueError, "X[:, 0] spans more than float64 holds"),
        (lambda: MinMax().fit([[1.0]]).transform([[1.0, 2.0]]), ValueError, "X has 2 features but 1 are needed"),
        (lambda: MinMax().fit([[1.0]]).inverse([[1.0, 2.0]]), ValueError, "Z has 2 features but 1 are needed"),
        (lambda: MinMax().fit([[1.0]]).unscale([1.0, 2.0], 0.0), ValueError, "weight has shape (2,) but (1,) or (K, 1) is needed"),
        (lambda: MinMax().fit([[1.0]]).unscale([[1.0], [2.0]], 0.0), ValueError, "bias has 1 values for 2 rows of weight; give one per row"),
        (lambda: MinMax().fit([[1.0]]).unscale([math.nan], 0.0), ValueError, "weight holds values that are not finite numbers"),
        (lambda: Scaler.from_state({"kind": "minmax"}), ValueError, "state has no 'shift', found ['kind']; give what state() returned"),
        (lambda: Scaler.from_state(state(kind="robust")), ValueError, "state['kind']='robust' is unknown; choose one of 'minmax', 'standard', 'maxabs', 'none'"),
        (lambda: Scaler.from_state(state(scale=[0.0])), ValueError, "state['scale'] must be above 0, found 0"),
    ],
)  # fmt: skip
def test_bad_requests_for_scaling(call, error, message):
    with pytest.raises(error) as caught:
        call()
    assert message in str(caught.value)


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


def test_small_classes_do_not_starve_a_part():
    y = [label for label in range(20) for _ in range(3)]
    assert [len(part) for part in split(y)] == [36, 12, 12]  # by largest remainder alone: 40, 20, 0
    for gate, sizes in {"AND": [2, 1, 1], "XOR": [2, 1, 1], "parity-3": [5, 2, 1]}.items():
        assert [len(part) for part in split(load(gate).y)] == sizes


def test_fractions_are_read_as_they_are_written():
    assert [len(part) for part in split([0] * 100, (0.29, 0.57, 0.14))] == [29, 57, 14]
    assert [len(part) for part in split([0] * 21, (1 / 3, 2 / 3, 0))] == [7, 14, 0]
    assert [len(part) for part in split([0] * 7, (1 / 7, 2 / 7, 4 / 7))] == [1, 2, 4]
    assert [len(part) for part in split([0] * 10, np.array([0.5, 0.3, 0.2]))] == [5, 3, 2]
    y = [0, 1, *[2] * 5]  # 0.6 is a little less in binary, yet three of five are exactly that, and no part may take one
    assert [counts(y, part)[2] for part in split(y)] == [3, 1, 1]


def test_the_seed_decides():
    y = load("iris").y
    made = {tuple(split(y, seed=seed)[0].tolist()) for seed in range(10)}
    assert len(made) == 10
    held = torch.zeros(16)
    for seed in range(600):
        held[split([0, 1] * 8, (0.5, 0.25, 0.25), seed)[2]] += 1
    assert ((held - 150).abs() < 5 * (600 * 0.25 * 0.75) ** 0.5).all()  # every sample is as likely as any other


def test_without_stratification_classes_fall_as_they_may():
    y = [0] * 50 + [1] * 50
    parts = [split(y, (0.5, 0.5, 0), seed, stratify=False) for seed in range(20)]
    assert {len(train) for train, _, _ in parts} == {50}
    assert len({(train < 50).sum().item() for train, _, _ in parts}) > 3
    assert split([0] * 10, stratify=True)[0].tolist() == split([0, 1] * 5, stratify=False)[0].tolist()


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: split([0, 1] * 9, (0.5, 0.5)), ValueError, "fractions=(0.5, 0.5) must be three numbers: of train, validation and test"),
        (lambda: split([0, 1] * 9, (0.5, 0.6, -0.1)), ValueError, "fractions[2]=-0.1 must be a finite number >= 0"),
        (lambda: split([0, 1] * 9, (0.5, 0.5, 0.5)), ValueError, "fractions=(0.5, 0.5, 0.5) must add up to 1, found 1.5"),
        (lambda: split([0, 1] * 9, (0, 0.5, 0.5)), ValueError, "fractions=(0, 0.5, 0.5) leaves nothing to train on; the first must be above 0"),
        (lambda: split([0, 1, 2], (0.6, 0.2, 0.2)), ValueError, "fractions=(0.6, 0.2, 0.2) leaves no sample for the validation set of 3; give more samples, or 0 for validation"),
        (lambda: split([]), ValueError, "y must be one label per sample, found shape (0,); give at least one sample"),
        (lambda: split(np.array(["a", None], dtype=object)), TypeError, "y must hold numbers or strings, found NoneType None"),
        (lambda: split([0, 1] * 9, stratify="yes"), TypeError, "stratify must be True or False, found str 'yes'"),
    ],
)  # fmt: skip
def test_bad_requests_for_splits(call, error, message):
    with pytest.raises(error) as caught:
        call()
    assert message in str(caught.value)


def test_a_file_with_any_ending_is_a_source(tmp_path):
    """By its name as a string too, as `torchperc learn x.dat` gives it."""
    (tmp_path / "x.dat").write_text("a,c\n1,x\n2,y\n")
    assert load(str(tmp_path / "x.dat")).labels == load(tmp_path / "x.dat").labels == ("x", "y")
