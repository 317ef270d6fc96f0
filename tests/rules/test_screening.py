"""Samples in eight bits: the bounds hold in exact arithmetic, and the copy is used where it pays."""

from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import torchperc as tp
from torchperc.rules.engines import compiled, screening
from torchperc.rules.loops import eightbit, screened
from torchperc.samples import compiling

DTYPES = [np.float64, np.float32]


def encoded(X, y=None):
    codes = np.empty((len(X), screening.row_bytes(X.shape[1])), np.int8)
    numbers = codes[:, : eightbit.HEAD].view(np.float32)
    y = np.ones(len(X), np.int64) if y is None else y
    eightbit.encode(X, y, codes, numbers, 1, 0, len(X))
    return codes, numbers


def decoded(codes, numbers, width):
    """The samples that the codes stand for, exactly."""
    return [
        [Fraction(float(scale)) * int(q) + Fraction(float(offset)) for q in row[eightbit.HEAD : eightbit.HEAD + width]]
        for row, (scale, offset, *_) in zip(codes, numbers, strict=True)
    ]


def fractions(values):
    return [Fraction(float(value)) for value in values]


def kinds(seed, width, dtype):
    """Rows of every kind: plain, integers, pixels, one-hot, constant, zero, one-sided, shifted, huge and tiny scales."""
    rng = np.random.default_rng(seed)
    plain = rng.standard_normal((4, width))
    one_hot = np.zeros((2, width))
    one_hot[:, rng.integers(width, size=2)] = 1
    largest = 1e150 if dtype == np.float64 else 1e15
    return np.concatenate(
        [
            plain,
            rng.integers(-5, 6, (2, width)),
            rng.integers(0, 256, (2, width)),
            rng.integers(-300, 300, (2, width)),
            one_hot,
            np.zeros((1, width)),
            np.full((1, width), 0.1),
            np.full((1, width), -7),
            rng.random((2, width)),
            1e6 + plain[:2],
            plain[:1] * largest,
            plain[:1] / largest,
            plain[:1] * np.where(np.arange(width) == 3, 1e12, 1e-12),
            np.full((1, width), -0.0),
        ]
    ).astype(dtype)


# --- bounds ---


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("width", [8, 9, 16, 31, 100])
def test_a_code_is_within_its_error_of_the_sample(width, dtype):
    X = kinds(width, width, dtype)
    codes, numbers = encoded(X)
    for row, again, error in zip(X, decoded(codes, numbers, width), numbers[:, eightbit.ERROR], strict=True):
        square = sum((a - b) ** 2 for a, b in zip(fractions(row), again, strict=True))
        assert np.isinf(error) or square <= Fraction(float(error)) ** 2


@pytest.mark.parametrize("dtype", DTYPES)
def test_small_integers_are_encoded_without_an_error(dtype):
    rng = np.random.default_rng(0)
    for low, high in ((-128, 128), (0, 256), (0, 2), (500, 700), (-5, 6)):
        X = rng.integers(low, high, (20, 37)).astype(dtype)
        codes, numbers = encoded(X)
        assert not numbers[:, eightbit.ERROR].any()
        assert decoded(codes, numbers, 37) == [fractions(row) for row in X]
    X[3, 5], X[7, 0] = 0.5, 1000.0  # which the others do not suffer from
    errors = encoded(X)[1][:, eightbit.ERROR]
    assert np.flatnonzero(errors).tolist() == [3, 7]


def test_a_mixture_is_encoded_about_as_finely_as_eight_bits_allow():
    X = np.random.default_rng(0).standard_normal((50, 100))
    _, numbers = encoded(X)
    expected = np.ptp(X, axis=1) / 255 * np.sqrt(100 / 12)  # of errors spread evenly over a step
    assert 0.95 < (numbers[:, eightbit.ERROR] / expected).mean() < 1.06


@pytest.mark.parametrize("dtype", DTYPES)
def test_columns_that_lie_apart_are_encoded_like_others(dtype):
    X = kinds(1, 40, dtype)
    wide = np.zeros((len(X), 80), dtype)
    wide[:, ::2] = X
    assert np.array_equal(encoded(X)[0], encoded(wide[:, ::2])[0])
    assert np.array_equal(encoded(X)[0], encoded(np.asfortranarray(X))[0])


def sizes_of(w, b):
    rows = w.reshape(-1, w.shape[-1])
    v = np.zeros((1 if len(rows) == 1 else 5, screening.row_bytes(w.shape[-1]) - eightbit.HEAD), np.int16)
    sizes, room = np.zeros((len(rows), screened.SIZES)), np.zeros(v.shape[1], w.dtype)
    for k in range(len(rows)):
        screened.quantise(w, b, v, sizes, room, k)
    return v, sizes


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("scale", [1.0, 1e-3, 1e6, 1e-30])
def test_weights_in_sixteen_bits_are_within_their_error(scale, dtype):
    w = (np.random.default_rng(3).standard_normal(57) * scale).astype(dtype)
    v, sizes = sizes_of(w, np.zeros(1, dtype))
    unit, summed, length, left, _ = sizes[0]
    again = [Fraction(unit) * int(q) for q in v[0, :57]]
    assert Fraction(summed) == sum(again)
    assert Fraction(length) ** 2 >= sum(value**2 for value in fractions(w))
    assert Fraction(left) ** 2 >= sum((a - b) ** 2 for a, b in zip(fractions(w), again, strict=True))
    assert left < 1e-4 * length
    assert not v[0, 57:].any()


def test_integer_weights_are_exact_and_sums_stay_below_31_bits():
    w = np.array([3.0, -2000.0, 0.0, 17.0, 5.0, 5.0, 1.0, 8.0])
    v, sizes = sizes_of(w, np.zeros(1))
    assert np.array_equal(v[0, :8] * sizes[0, screened.UNIT], w)
    assert sizes[0, screened.LEFT] < 1e-9
    for width in (16, 512, 784, 1024, 4096, 2**15):
        assert 128 * 2 ** screened.bits(width) * width < 2**31


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 10**6), st.integers(8, 40), st.sampled_from(DTYPES), st.booleans(), st.sampled_from([0.0, 0.5, 3.0])
)
def test_a_sample_that_is_skipped_is_right_in_exact_arithmetic(seed, width, dtype, integers, margin):
    rng = np.random.default_rng(seed)
    X = kinds(seed, width, dtype)
    w = (rng.integers(-40, 41, width) if integers else rng.standard_normal(width)).astype(dtype)
    b = np.array([rng.standard_normal()], dtype)
    y = rng.choice([-1, 1], len(X))
    w -= dtype(0.99) * X[0] * ((w @ X[0] + b[0]) / (X[0] @ X[0]))  # one score is close to 0
    v, sizes = sizes_of(w, b)
    codes, numbers = encoded(X, y)
    skipped = 0
    for i in range(len(X)):
        slack = int(y[i]) * (
            sum(x * c for x, c in zip(fractions(X[i]), fractions(w), strict=True)) + Fraction(float(b[0]))
        )
        open_at = screened.skip(codes, numbers, v, sizes, np.array([i], np.uint64), margin, 0, 1)
        assert open_at == 0 or slack > Fraction(margin)
        skipped += open_at
    assert skipped > 0 or abs(y.sum()) > 10 or margin > 0


@pytest.mark.parametrize("dtype", DTYPES)
def test_scores_that_may_overflow_are_never_skipped(dtype):
    X = np.ones((3, 16), dtype)
    w = np.full(16, np.finfo(dtype).max / 32, dtype)
    for factor, expected in ((1, 0), (1e-20 if dtype == np.float32 else 1e-160, 3)):
        v, sizes = sizes_of(w * dtype(factor), np.zeros(1, dtype))
        assert screened.skip(*encoded(X), v, sizes, np.arange(3, dtype=np.uint64), 0.0, 0, 3) == expected


# --- the gate ---


@pytest.fixture
def counted(monkeypatch):
    """Small samples are screened; how many calls, samples presented by codes, and samples read."""
    for module, values in (
        (screening, {"_WORTH_IT": 0, "_ROW": 0}),
        (compiled, {"_WORTH_CODES": 1, "_SHORTEST": 1, "_FIRST": 2**15}),
    ):
        for name, value in values.items():
            monkeypatch.setattr(module, name, value)
    seen, loop = [], screened.learn_screened

    def spy(screen, source, slots, X, ids, *rest):
        found, read = loop(screen, source, slots, X, ids, *rest)
        seen.append((len(ids), read))
        return found, read

    monkeypatch.setattr(screened, "learn_screened", spy)
    return seen


def planes(flips, count=3000, width=30, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.integers(-5, 6, (count, width)).astype(float)
    normal = rng.integers(1, 4, width) * rng.choice([-1, 1], width)
    y = np.where(X @ normal >= 0, 1, -1)
    X += y[:, None] * np.sign(normal)
    return X, np.where(rng.random(count) < flips, -y, y)


def learn(X, y, **options):
    net = tp.Perceptron(X.shape[1], dtype=torch.float64)
    return tp.RuleTrainer(**{"max_epochs": 8, **options}).fit(net, X, y)


def test_the_gate_opens_on_clean_data_and_stays_shut_on_noisy_data(counted):
    result = learn(*planes(0.003))
    by_codes, read = np.sum(counted, axis=0)
    assert by_codes >= 0.8 * result.log.steps
    assert len(result.log) * 0.5 < read < 0.05 * by_codes
    counted.clear()
    learn(*planes(0.2))
    assert not counted


def test_no_copy_for_few_epochs_or_short_orders(counted):
    learn(*planes(0.003), max_epochs=compiled.AGAIN // 8)
    assert not counted
    learn(*planes(0.003), max_epochs=compiled.AGAIN // 8 + 1)
    assert counted
    counted.clear()
    X, y = planes(0.003, count=300)
    learn(X, y, max_epochs=2, order="random-mistake")
    assert not counted


def test_the_gate_shuts_when_many_samples_have_to_be_read(counted, monkeypatch):
    X, y = planes(0.003)
    monkeypatch.setattr(screening, "LIMIT", 0.0)  # a single sample that is read shuts it
    opened = []
    consider = screening.Screen.consider

    def always(self, *args):
        consider(self, *args)
        opened.append(self)
        self.open = True
        self._copy = self._copy or self._empty(len(self.X))

    monkeypatch.setattr(screening.Screen, "consider", always)
    result = learn(X, y)
    assert opened
    assert np.sum(counted, axis=0)[0] < 0.6 * result.log.steps


def test_no_copy_beyond_a_fraction_of_free_memory(counted, monkeypatch):
    X, y = planes(0.003)
    size = len(X) * screening.row_bytes(X.shape[1])
    monkeypatch.setattr(compiling, "free_memory", lambda: 2 * size - 1)
    learn(X, y)
    assert not counted
    monkeypatch.setattr(compiling, "free_memory", lambda: 2 * size)
    learn(X, y)
    assert counted
