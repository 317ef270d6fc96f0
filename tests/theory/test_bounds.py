"""Margins, bounds on mistakes and learning rates, against closed forms, exact rationals, Hessians and runs."""

import copy
import math
from fractions import Fraction
from functools import partial
from itertools import chain, combinations

import numpy as np
import pytest
import torch
from flint import fmpq, fmpq_mat
from hypothesis import assume, given
from hypothesis import strategies as st
from refusals import refusals
from scipy.optimize import lsq_linear
from scipy.sparse import csr_array, csr_matrix, diags_array
from sklearn.datasets import load_breast_cancer, load_iris

import torchperc as tp
from torchperc import functional as tpf
from torchperc.theory import bracket, inseparable_bound, margin, max_margin, mistake_bound, radius, step_limit

AND = [[0, 0], [0, 1], [1, 0], [1, 1]], [-1, -1, -1, 1]
XOR = AND[0], [-1, 1, 1, -1]
BIAS_STEPS = ("unit", "radius", "none")
largest = partial(max_margin, regularize_bias=True)  # that of the theorems on the rule


def proof(**given):
    return tp.theory.separability(**{"X": AND[0], "y": AND[1], **given})


def constant(X, bias_step):
    """The constant feature: 1, the largest length, or 0."""
    return {"unit": 1.0, "none": 0.0, "radius": max(math.sqrt(sum(v * v for v in x)) for x in X)}[bias_step]


def differences(X, y, bias_step, classes=None):
    """Every y·φ, or φ(x, y) − φ(x, r), written out as one long vector each."""
    c, points = constant(X, bias_step), []
    for x, label in zip(X, y, strict=True):
        phi = np.array([*x, c], dtype=float)
        if classes is None:
            points.append(label * phi)
            continue
        for r in range(classes):
            if r != label:
                point = np.zeros((classes, len(phi)))
                point[label], point[r] = phi, -phi
                points.append(point.reshape(-1))
    return np.array(points)


def largest_margin(points):
    """γ* as the distance of a hull from the origin, by least squares with bounds: another solver than the package's."""
    system = np.vstack((points.T, np.ones(len(points))))
    goal = np.zeros(len(system))
    goal[-1] = 1.0
    shares = lsq_linear(system, goal, (0, np.inf), method="bvls", tol=1e-14, max_iter=5000).x
    distance = np.linalg.norm(points.T @ (shares / shares.sum()))
    return 0.0 if distance < 1e-9 else distance


def exact_squared_distance(points):
    """γ*² in rationals, by brute force: the nearest point of a hull is that of some independent points in it."""
    points = sorted({tuple(map(Fraction, point)) for point in points})
    for some in chain.from_iterable(combinations(points, size) for size in range(1, len(points[0]) + 2)):
        equations = [[dot(p, q) for q in some] + [Fraction(-1), Fraction(0)] for p in some]
        shares = solved([*equations, [Fraction(1)] * len(some) + [Fraction(0), Fraction(1)]])
        if shares is None or min(shares[:-1]) < 0:
            continue
        nearest = [dot(shares[:-1], column) for column in zip(*some, strict=True)]
        if min(dot(nearest, point) for point in points) >= dot(nearest, nearest):
            return dot(nearest, nearest)
    raise AssertionError("every hull has a nearest point")


def solved(rows):
    """The solution of linear equations (coefficients, right side) in rationals; None if there is not exactly one."""
    exact = [[fmpq(*value.as_integer_ratio()) for value in row] for row in rows]
    try:
        found = fmpq_mat([row[:-1] for row in exact]).solve(fmpq_mat([row[-1:] for row in exact]))
    except ZeroDivisionError:
        return None
    return [Fraction(int(value.p), int(value.q)) for value in found.entries()]


def small_set(seed):
    """Few integers, of which many sets have repeated or collinear points, or cannot be separated."""
    rng = np.random.default_rng(seed)
    X = rng.integers(-3, 4, (int(rng.integers(2, 7)), int(rng.integers(1, 4)))) + rng.choice([0, 50])
    y = np.where(X @ rng.normal(size=X.shape[1]) > np.median(X), 1, -1)
    y[:2] = [1, -1]
    return X, y


def halves(X, y):
    """(x − x′)/2 of all pairs of a sample of class +1 and one of class −1: the hull whose distance is geometric."""
    plus, minus = ([x for x, label in zip(X, y, strict=True) if label == sign] for sign in (1, -1))
    return [[Fraction(int(a) - int(b), 2) for a, b in zip(x, z, strict=True)] for x in plus for z in minus]


def exact_squared_margin(best, X, y, regularize_bias=True):
    """(min y·s)²/‖w‖² of two classes with bias step "unit", no number rounded; negative if wrong."""
    w, b = [Fraction(v) for v in best.weight[0].tolist()], Fraction(best.bias.item())
    least = min(int(t) * (dot(w, map(Fraction, x)) + b) for x, t in zip(np.asarray(X).tolist(), y, strict=True))
    return least * abs(least) / (dot(w, w) + b * b * regularize_bias)


def dot(a, b):
    return sum((p * q for p, q in zip(a, b, strict=True)), Fraction(0))


def separable(seed, count=30, width=3, gap=0.3, bias_step="unit"):
    """Points at least ``gap`` from a random hyperplane (through the origin for "none")."""
    rng = np.random.default_rng(seed)
    u = rng.normal(size=width)
    u /= np.linalg.norm(u)
    b = 0.0 if bias_step == "none" else rng.normal() / 2
    X = rng.normal(size=(count, width))
    if len(set(X @ u + b >= 0)) == 1:  # one sample to the other side, so that there are both classes
        X[0] -= 2 * (X[0] @ u + b) * u
    y = np.where(X @ u + b >= 0, 1, -1)
    return X + gap * y[:, None] * u, y


def separable_classes(seed, count=30, width=3, classes=3, gap=0.3, bias_step="unit"):
    """Points of each class whose own score leads by ``gap`` under random weights."""
    rng = np.random.default_rng(seed)
    W, b = rng.normal(size=(classes, width)), rng.normal(size=classes) * (bias_step != "none")
    X, y = [], []
    while len(X) < count:
        x = rng.normal(size=width) * 2
        s = x @ W.T + b
        if np.diff(np.sort(s))[-1] > gap:
            X.append(x)
            y.append(int(s.argmax()))
    return np.array(X), np.array(y)


def test_margin_by_hand():
    assert margin(([[3.0]], [-8.0]), [[0], [4]], [1, 1]) == -8 / math.sqrt(73)
    assert margin(([[3.0]], None), [[-1], [4]], [-1, 1], bias_step="none") == 1.0
    net, linear = tp.Perceptron(2), torch.nn.Linear(2, 1)
    net.load_state_dict({"weight": torch.tensor([[3.0, 2.0]]), "bias": torch.tensor([-4.0])})
    linear.load_state_dict(net.state_dict())
    sparse = csr_matrix(np.array(AND[0], dtype=float))
    for weights in (net, linear, (net.weight, net.bias), [[[3, 2]], [-4]], ([[3, 2]], -4)):
        assert margin(weights, *AND) == margin(weights, sparse, AND[1]) == 1 / math.sqrt(29)
        for bias_step in BIAS_STEPS:  # the distance from the hyperplane: ‖w‖ without the bias
            assert margin(weights, *AND, regularize_bias=False, bias_step=bias_step) == 1 / math.sqrt(13)


@pytest.mark.parametrize("bias_step", BIAS_STEPS)
@pytest.mark.parametrize("classes", [None, 3])
def test_radius_and_margin_are_those_of_the_differences(bias_step, classes):
    X, y = separable_classes(5, classes=3, bias_step=bias_step)
    y = y if classes else np.where(y > 0, 1, -1)
    options = {"init": "normal", "seed": 1, "dtype": torch.float64, "bias": bias_step != "none"}
    net = tp.MulticlassPerceptron(3, 3, **options) if classes else tp.Perceptron(3, **options)
    bias = torch.zeros(classes or 1) if net.bias is None else net.bias.detach()
    flat = np.column_stack((net.weight.detach(), bias / (constant(X, bias_step) or 1.0))).reshape(-1)
    points = differences(X, y, bias_step, classes)
    least, longest = (points @ flat).min(), np.linalg.norm(points, axis=1).max()
    free = least / float(net.weight.detach().norm())
    for data in (X, csr_array(X)):
        assert radius(data, bias_step=bias_step, num_classes=classes) == pytest.approx(longest, rel=1e-14)
        assert margin(net, data, y, bias_step=bias_step) == pytest.approx(least / np.linalg.norm(flat), rel=1e-12)
        assert margin(net, data, y, regularize_bias=False, bias_step=bias_step) == pytest.approx(free, rel=1e-12)


@pytest.mark.parametrize("bias_step", BIAS_STEPS)
@pytest.mark.parametrize("classes", [None, 3, 4])
@pytest.mark.parametrize("sparse", [False, True])
def test_the_largest_margin_against_least_distance_programming(bias_step, classes, sparse):
    for seed in range(6):
        make = {"count": 25, "width": 2 + seed % 3, "bias_step": bias_step, "gap": 0.01 + 0.1 * seed}
        X, y = separable(seed, **make) if classes is None else separable_classes(seed, classes=classes, **make)
        expected = largest_margin(differences(X, y, bias_step, classes))
        best = largest(csr_array(X) if sparse else X, y, bias_step=bias_step, num_classes=classes)
        assert best.margin == pytest.approx(expected, rel=1e-6)
        assert best.upper == pytest.approx(expected, rel=1e-6)
        assert 0 <= best.gap <= 1e-6 * best.upper
        assert margin(best, X, y, bias_step=bias_step) == pytest.approx(best.margin, rel=1e-9)
        length = math.hypot(float(best.weight.norm()), float(best.bias.norm()) / (constant(X, bias_step) or 1.0))
        assert length == pytest.approx(1, rel=1e-12)  # so that the smallest y·s is the margin
        if bias_step == "none":
            same = max_margin(csr_array(X) if sparse else X, y, bias_step=bias_step, num_classes=classes)
            assert (same.margin, same.upper, same.support.tolist()) == (best.margin, best.upper, best.support.tolist())
            assert not same.bias.any()


def test_features_of_very_different_size():
    """A step may shorten a vector of 10⁻³ by less than float64 can tell, where samples are 10³ long; it goes on."""
    separated = 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        X = rng.integers(-6, 7, (30, 4)) * 10.0 ** rng.integers(-3, 4, 4)
        y = np.where(X @ rng.normal(size=4) + rng.normal() > 0, 1, -1)
        y[:2] = [1, -1]
        best = largest(X, y)
        assert best.gap <= 1e-6 * best.upper or best.upper <= 1e-13 * len(X) * radius(X)
        separated += best.separable
        if best.separable:
            assert exact_squared_margin(best, X, y) >= Fraction(best.margin) ** 2
    assert separated >= 10


def test_a_short_and_a_long_sample_at_nearly_right_angles():
    """The nearest point is 6·10⁻¹⁶ nearer than the short sample, less than rounding may be, and not beside it."""
    best = largest([[0.002, 0], [0.001, -4000]], [1, -1], bias_step="none")
    line = 0.002 * 4000 / math.hypot(0.003, 4000)  # the distance of (0.002, 0) and (−0.001, 4000) from the origin
    assert best.support.tolist() == [0, 1]
    assert best.margin == pytest.approx(line, rel=1e-8)
    assert best.upper == pytest.approx(line, rel=1e-8)


def test_data_that_cannot_be_separated():
    for X, y in (XOR, ([[1, 2], [1, 2], [5, 5]], [1, -1, 1])):
        best = largest(X, y)
        assert not best.separable
        assert (best.margin, best.weight.abs().sum(), best.bias.abs().sum()) == (0, 0, 0)
        assert best.gap == best.upper < 1e-13
        assert mistake_bound(X, y) == math.inf
    zero = largest([[0, 0], [1, 1], [-1, -1]], [1, 1, -1], bias_step="none")  # w·0 is never positive
    assert not zero.separable
    assert zero.upper < 1e-14
    assert not largest([[0], [0]], [1, -1], bias_step="radius").separable  # no feature, no constant
    iris = load_iris(return_X_y=True)
    assert not largest(*iris, num_classes=3).separable


def test_breast_cancer_is_separable_by_a_hair():
    """γ* is 10⁻⁸ of R; the weights separate in exact arithmetic, and the bounds are a few millionths apart."""
    X, t = load_breast_cancer(return_X_y=True)
    y = np.where(t == 0, 1, -1)
    best = largest(X, y)
    assert best.separable
    assert best.margin == pytest.approx(4.137e-5, rel=1e-4)
    assert 0 <= best.gap <= 1e-5 * best.upper
    assert exact_squared_margin(best, X, y) >= Fraction(best.margin) ** 2
    assert 1e16 < mistake_bound(X, y, gamma=best.margin) < 2e16
    free = max_margin(X, y)
    assert free.margin == pytest.approx(4.13714e-5, rel=1e-5)
    assert free.gap <= 1e-5 * free.upper


@pytest.mark.parametrize("regularize_bias", [False, True])
@pytest.mark.parametrize("seed", range(30))
def test_small_sets_against_exact_rationals(seed, regularize_bias):
    X, y = small_set(seed)
    best = max_margin(X, y, regularize_bias=regularize_bias)
    squared = exact_squared_distance(differences(X, y, "unit") if regularize_bias else halves(X, y))
    assert Fraction(best.margin) ** 2 <= squared <= Fraction(best.upper) ** 2
    assert best.separable == (squared > 0)
    assert best.margin == pytest.approx(math.sqrt(squared), rel=1e-9)
    assert best.upper == pytest.approx(math.sqrt(squared), rel=1e-9, abs=1e-12)
    if best.separable:
        assert exact_squared_margin(best, X, y, regularize_bias) >= Fraction(best.margin) ** 2 > 0
    if seed < 10:
        X, y = X[:4, :1], np.arange(len(X[:4])) % 3
        three = max_margin(X, y, regularize_bias=True, num_classes=3)
        squared = exact_squared_distance(differences(X, y, "unit", 3))
        assert Fraction(three.margin) ** 2 <= squared <= Fraction(three.upper) ** 2
        assert three.margin == pytest.approx(math.sqrt(squared), rel=1e-9)


def test_a_free_bias_does_not_see_where_the_data_are():
    for away in (0.0, 1e3, 1e6):
        X = np.array(AND[0]) + away
        best = max_margin(X, AND[1])
        assert best.margin == pytest.approx(1 / math.sqrt(8), rel=1e-6)
        assert best.gap <= 1e-6
        assert margin(best, X, AND[1], regularize_bias=False) >= best.margin


def test_a_class_without_samples_limits_no_margin():
    X, y = separable(1)
    two = max_margin(X, (y + 1) // 2, num_classes=2)
    three = max_margin(X, y + 1, num_classes=3)  # no sample of class 1
    assert three.margin == pytest.approx(two.margin, rel=1e-9)
    assert three.gap <= 1e-6 * three.upper
    assert float((torch.from_numpy(X) @ three.weight.T + three.bias).argmax(1).eq(1).sum()) == 0


@pytest.mark.parametrize("classes", [2, 3, 5])
@pytest.mark.parametrize("sparse", [False, True])
def test_a_free_bias_of_many_classes_is_a_counted_one_that_costs_nothing(classes, sparse):
    """A constant feature of 10⁴ makes b²/β 10⁻⁸ of what it was: the oracle's margin comes up to the free one."""
    for seed in range(5):
        X, y = separable_classes(seed, count=25, width=2, classes=classes, gap=0.2)
        X = X + 3
        target = csr_array(X) if sparse else X
        best, counted = (max_margin(target, y, num_classes=classes, regularize_bias=choice) for choice in (False, True))
        dear = largest_margin(differences(np.column_stack((X, np.full(len(X), 1e4))), y, "none", classes))
        assert best.margin == pytest.approx(dear, rel=1e-4)
        assert best.gap <= 1e-6 * best.upper
        assert counted.margin < best.margin
        assert margin(best, X, y, regularize_bias=False) == pytest.approx(best.margin, rel=1e-9)


@pytest.mark.parametrize("regularize_bias", [False, True])
def test_samples_behind_others_change_nothing(regularize_bias):
    """Twenty thousand samples, of which all but thirty are further away on their side."""
    X, y = separable(1, 30, 3)
    small = max_margin(X, y, regularize_bias=regularize_bias)
    w, rng = small.weight[0].numpy(), np.random.default_rng(0)
    row = rng.integers(0, len(X), 20_000)
    behind = X[row] + (y[row] * rng.uniform(0.1, 2.0, 20_000))[:, None] * w
    every = max_margin(np.concatenate((behind, X)), np.concatenate((y[row], y)), regularize_bias=regularize_bias)
    assert every.margin == pytest.approx(small.margin, rel=1e-6)
    assert (every.support - 20_000).tolist() == small.support.tolist()


@given(
    st.integers(0, 10**6), st.integers(4, 30), st.integers(1, 5), st.sampled_from([None, None, 2, 3, 5]),
    st.sampled_from(BIAS_STEPS), st.sampled_from(["update", "sign"]),
    st.sampled_from(["given", "shuffled", "random-mistake"]),
    st.sampled_from([1.0, 0.25, 3.0]), st.booleans(), st.booleans(),
)  # fmt: skip
def test_every_separable_run_keeps_to_the_bound_and_in_the_bracket(
    seed, count, width, classes, bias_step, tie, order, lr, weighted, started
):
    """γ*·Σ c ≤ ‖w − w₀‖ and, from zero, ‖w‖ ≤ R·√(Σ c²): (Σ c)²/Σ c² keeps to the bound; c = η without weights."""
    make = {"bias_step": bias_step}
    options = {"bias": bias_step != "none", "dtype": torch.float64, "init": "normal" if started else "zeros", "seed": 0}
    if classes is None:
        (X, y), net = separable(seed, count, width, **make), tp.Perceptron(width, **options)
    else:
        X, y = separable_classes(seed, count, width, classes, **make)
        net, tie = tp.MulticlassPerceptron(width, classes, **options), "update"
    assume(len(set(y)) >= 2)
    best, start = largest(X, y, num_classes=classes, **make), copy.deepcopy(net)
    assume(best.separable)
    weights = np.random.default_rng(seed).uniform(0.2, 5.0, len(X)) if weighted else None
    trainer = tp.RuleTrainer(5000, tie=tie, order=order, lr=lr, **make)
    result = trainer.fit(net, X, y, sample_weight=weights)
    assert result.verdict.name == "SEPARATED"
    coefs = result.log.coef.abs()
    if not started:
        bound = mistake_bound(X, y, num_classes=classes, **make)
        assert float(coefs.sum() ** 2 / coefs.square().sum()) <= bound * (1 + 1e-9)
    ends, upper_at = result.log.mistakes_by_epoch().cumsum(0).tolist(), {}
    for t in {min(1, result.mistakes), result.mistakes, *ends[:: len(ends) // 20 + 1]} - {0}:
        state, total = result.log.state_at(t), float(coefs[:t].sum()) / lr
        lower, upper = bracket((state.weight, state.bias), X, y, total, lr, start=start, **make)
        upper_at[t] = upper
        assert lower <= best.upper * (1 + 1e-9)
        assert upper >= best.margin * (1 - 1e-9)
    if result.mistakes and not started:
        assert upper_at[result.mistakes] == pytest.approx(result.history[-1].norm / float(coefs.sum()), rel=1e-12)


def test_a_run_that_demands_slack_keeps_to_its_own_bound():
    """k ≤ (R² + 2·margin/η)/γ²; without the second term some of these runs would break it."""
    broken = 0
    for seed in range(12):
        X, y = separable(seed, gap=0.5)
        for lr in (1.0, 0.1):
            result = tp.RuleTrainer(5000, margin=5.0, lr=lr).fit(tp.Perceptron(3, dtype=torch.float64), X, y)
            assert result.verdict.name == "SEPARATED"
            assert result.mistakes <= mistake_bound(X, y, margin=5.0, lr=lr)
            broken += result.mistakes > mistake_bound(X, y)
    assert broken


def test_bounds_by_hand():
    """The bound counts the bias: with the geometric margin a run makes more mistakes than it would allow."""
    X, y = [[19.0], [21.0]], [-1, 1]
    made = tp.RuleTrainer(5000).fit(tp.Perceptron(1), X, y).mistakes
    assert mistake_bound(X, y, gamma=max_margin(X, y).margin) < made <= mistake_bound(X, y)
    assert mistake_bound(*AND, gamma=0.5) == 12
    assert mistake_bound(*AND, gamma=-1) == mistake_bound(*AND, gamma=0) == math.inf
    assert mistake_bound(*AND, gamma=0.5, bias_step="none") == 8
    result = tp.RuleTrainer(max_epochs=1).fit(tp.Perceptron(2), *XOR)  # weights that come back to zero
    state = result.log.last()
    assert bracket((state.weight, state.bias), *XOR, result.mistakes) == (-math.inf, 0)
    assert bracket((state.weight, state.bias), *XOR, 0) == (-math.inf, math.inf)


@given(
    st.integers(0, 10**6), st.integers(2, 40), st.integers(1, 4), st.sampled_from([None, 3]),
    st.floats(0.05, 5.0), st.sampled_from(BIAS_STEPS), st.integers(1, 3),
)  # fmt: skip
def test_any_data_keep_to_the_inseparable_bound(seed, count, width, classes, gamma, bias_step, passes):
    """Labels by the toss of a coin, any comparison vector, any γ."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(count, width))
    y = rng.choice([-1, 1], count) if classes is None else rng.integers(0, classes, count)
    y[:2] = [1, -1] if classes is None else [0, 1]
    other = rng.normal(size=(classes or 1, width)), rng.normal(size=classes or 1) * (bias_step != "none")
    net = tp.Perceptron(width) if classes is None else tp.MulticlassPerceptron(width, classes)
    result = tp.RuleTrainer(max_epochs=passes, bias_step=bias_step).fit(net.double(), X, y)
    assert result.mistakes <= inseparable_bound(X, y, other, gamma, bias_step=bias_step, passes=passes) * (1 + 1e-9)


def test_inseparable_bound_by_hand():
    """u = (0, 1) over (x, 1): the margin 1 is reached by three and missed by 2 by the fourth. R² = 1 + 1, D = 2."""
    X, y = [[1], [-1], [0], [1]], [1, 1, 1, -1]
    assert inseparable_bound(X, y, ([[0.0]], [5.0]), 1.0) == pytest.approx((math.sqrt(2) + 2) ** 2)
    assert inseparable_bound(X, y, ([[0.0]], [5.0]), 1.0, passes=4) == pytest.approx((math.sqrt(2) + 4) ** 2)
    sparse = csr_array(np.array(X, float))
    assert inseparable_bound(sparse, y, ([[0.0]], [5.0]), 1.0) == pytest.approx((math.sqrt(2) + 2) ** 2)


def data(seed, count=30, width=4, classes=None):
    rng = np.random.default_rng(seed)
    X = torch.from_numpy(rng.normal(size=(count, width)) * rng.uniform(0.3, 3, width) + rng.normal(size=width))
    y = rng.choice([-1, 1], count) if classes is None else rng.integers(0, classes, count)
    return X, torch.from_numpy(y)


def lifted(X, bias=True):
    return torch.cat((X, X.new_ones(len(X), 1)), 1) if bias else X


def top(phi):
    """The largest eigenvalue of mean φ·φᵀ, from singular values of φ."""
    return float(torch.linalg.svdvals(phi)[0]) ** 2 / len(phi)


def curvature(loss, weights):
    """The largest eigenvalue of the Hessian at these weights, by autograd."""
    size = weights.numel()
    hessian = torch.autograd.functional.hessian(loss, weights).reshape(size, size)
    return float(torch.linalg.eigvalsh(hessian)[-1])


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("shape", [(30, 4), (4, 30), (7, 7), (1, 3), (8, 1)])
def test_lms_limit_is_two_over_the_hessian(shape, bias, reduction):
    X, y = data(1, *shape)
    phi = lifted(X, bias)
    start, largest = torch.zeros(phi.shape[1], dtype=torch.float64), top(phi) * (1 if reduction == "mean" else len(X))
    for targets in ("-1/+1", "0/1"):
        hessian = curvature(lambda w, t=targets: tpf.lms_loss(phi @ w, y, reduction=reduction, targets=t), start)
        for samples in (X, X.numpy(), csr_array(X.numpy())):
            found = 2 / step_limit(tp.LMSHead(targets), samples, bias=bias, reduction=reduction)
            assert found == pytest.approx(hessian, rel=1e-10)
            assert largest * (1 - 1e-14) <= found <= largest * (1 + 1e-11)


def test_the_limit_with_many_features_and_samples():
    """Two directions of nearly the same length, where an iteration that stops early would allow too much."""
    lengths = np.concatenate(([1.0, 0.9999], np.linspace(0.999, 0.1, 2098)))
    found = 2 / step_limit("lms", diags_array(lengths).tocsr(), bias=False)
    assert 1 / 2100 * (1 - 1e-13) <= found <= 1 / 2100 * (1 + 1e-6)


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("size", [1, 2, 3, 4, 6, 7, 9])
def test_no_batch_has_more_curvature_than_the_limit_allows(size, reduction):
    X, _ = data(6, count=7, width=2)
    phi, largest = lifted(X), min(size, 7)
    sizes = {largest, 7 % largest or largest}
    factor = {n: 1 if reduction == "mean" else n for n in sizes}
    worst = max(factor[n] * top(phi[list(rows)]) for n in sizes for rows in combinations(range(7), n))
    L = 2 / step_limit("lms", X, batch_size=size, reduction=reduction)
    assert worst <= L * (1 + 1e-12)
    if size == 1 or size >= 7:
        assert worst == pytest.approx(L, rel=1e-10)


@pytest.mark.parametrize("classes", [None, 2, 3, 5])
def test_logistic_limit_bounds_every_hessian_and_is_reached(classes):
    """K probabilities of 1/K have the eigenvalue 1/K, two of ½ have ½, which is the largest."""
    X, y = data(5, classes=classes)

    def loss(w):
        return tpf.logistic_loss(lifted(X) @ w.T, y) if classes else tpf.logistic_loss(lifted(X) @ w, y)

    L = 2 / step_limit("logistic", X, num_classes=classes)
    zero = torch.zeros(*([classes] if classes else []), 5, dtype=torch.float64)
    assert curvature(loss, zero) == pytest.approx(L * (2 / classes if classes else 1), rel=1e-10)
    if classes:
        two_of_them = zero.clone()
        two_of_them[2:, -1] = -40.0
        assert curvature(loss, two_of_them) == pytest.approx(L, rel=1e-10)
    for seed in range(5):
        assert curvature(loss, torch.from_numpy(np.random.default_rng(seed).normal(size=tuple(zero.shape)))) <= L


def test_auto_rates_and_limits_of_batches():
    X, _ = data(7, count=24)
    one, full = step_limit("lms", X, batch_size=1), step_limit("lms", X)
    assert one == pytest.approx(2 / float(lifted(X).square().sum(1).max()), rel=1e-12)
    found = [step_limit("lms", X, batch_size=size) for size in (1, 2, 4, 8, 12, 24, 100)]
    assert found == sorted(found)
    assert (found[0], found[-1]) == (one, full)
    assert step_limit("lms", X, batch_size=23) == one  # the last batch has one sample
    assert (tp.theory.auto_lr("perceptron", X), step_limit(tp.PerceptronHead(), X)) == (1, math.inf)
    assert tp.theory.auto_lr("lms", X) == tp.theory.auto_lr(tp.LMSHead(targets="0/1"), X) == full / 2
    assert (
        tp.theory.auto_lr("logistic", X, num_classes=3, bias=False)
        == step_limit("logistic", X, num_classes=3, bias=False) / 2
    )
    zeros = np.zeros((3, 2))
    assert (step_limit("lms", zeros, bias=False), tp.theory.auto_lr("lms", zeros, bias=False)) == (math.inf, 1)


def test_too_large_is_said_before_the_run():
    X, _ = data(12)
    for head in (tp.PerceptronHead(), "lms", "logistic"):
        assert tp.theory.rate_warning(0.999 * min(step_limit(head, X), 1e9), head, X) is None
    limit = step_limit("lms", X)
    warning = tp.theory.rate_warning(1.001 * limit, "lms", X)
    assert "will diverge" in warning
    assert f"2/L = {limit:.4g}" in warning
    assert "may" in tp.theory.rate_warning(1.001 * step_limit("logistic", X), "logistic", X)
    assert "may" in tp.theory.rate_warning(1.001 * limit, "lms", X, batch_size=1)


test_bad_input_is_named = refusals(
    (lambda: radius([[1e200]]), ValueError, "X .*scale"),
    (lambda: radius([[1.0]], bias_step="one"), ValueError, "bias_step='one'"),
    (lambda: radius([[1.0]], num_classes=1), ValueError, "num_classes=1"),
    (lambda: margin(tp.JointPerceptron(2, 2), *AND), TypeError, "net .*JointPerceptron"),
    (lambda: margin(tp.Perceptron(2), *AND), ValueError, "zero"),
    (lambda: margin(([[1.0]], [0.0]), *AND), ValueError, "weight has 1 features"),
    (lambda: margin(([[1.0, 2.0]], [0.0, 1.0]), *AND), ValueError, "bias has 2 values"),
    (lambda: margin(([[1.0, 2.0]], [1.0]), *AND, bias_step="none"), ValueError, "bias_step='none'"),
    (lambda: margin(([[0.0, 0.0]], [1.0]), *AND, regularize_bias=False), ValueError, "zero"),
    (lambda: margin((np.eye(2), None), AND[0], [0, 1, 2, 0]), ValueError, "y .*0 to 1"),
    (lambda: max_margin(AND[0], [1, 1, 1, 1]), ValueError, "y .*one class"),
    (lambda: max_margin(*AND, regularize_bias="both"), TypeError, "regularize_bias"),
    (lambda: max_margin(*AND, tolerance=0), ValueError, "tolerance=0"),
    (lambda: mistake_bound(*AND, margin=-1), ValueError, "margin=-1"),
    (lambda: mistake_bound(*AND, lr=0), ValueError, "lr=0"),
    (lambda: mistake_bound(*AND, gamma=math.nan), ValueError, "gamma=nan"),
    (lambda: mistake_bound(*AND, rule="romma"), TypeError, "rule.*'romma'"),
    (lambda: inseparable_bound(*AND, ([[0, 0]], [0]), 1.0), ValueError, "zero"),
    (lambda: inseparable_bound(*AND, ([[1, 0]], [0]), 0.0), ValueError, "gamma=0.0"),
    (lambda: inseparable_bound(*AND, ([[1, 0]], [0]), 1.0, passes=0), ValueError, "passes=0"),
    (lambda: bracket(([[1, 0]], [0]), *AND, t=-1), ValueError, "t=-1"),
    (lambda: bracket(([[1, 0]], [0]), *AND, t=1, start=(np.eye(2), None)), ValueError, "start has 2 rows"),
    (lambda: step_limit("lms", [[math.inf]]), ValueError, r"X\[0, 0\] = inf"),
    (lambda: step_limit("lms", [[1.0]], bias=1), TypeError, "bias"),
    (lambda: step_limit("lms", [[1.0]], reduction="none"), ValueError, "reduction='none'"),
    (lambda: step_limit("lms", [[1.0]], batch_size="all"), ValueError, "batch_size='all'"),
    (lambda: step_limit("perceptron", [[1.0]], batch_size=0), ValueError, "batch_size=0"),
    (lambda: step_limit("logistic", [[1.0]], num_classes=1), ValueError, "num_classes=1"),
    (lambda: step_limit("hinge", [[1.0]]), ValueError, "head='hinge'"),
    (lambda: step_limit(torch.nn.MSELoss(), [[1.0]]), TypeError, "MSELoss"),
    (lambda: tp.theory.rate_warning(0, "lms", [[1.0]]), ValueError, "lr=0"),
    (lambda: proof(**{"y": [0, 0, 0, 1]}), ValueError, "y .*found 0, 1; map"),
    (lambda: proof(**{"y": [0, 1, 3, 1]}), ValueError, "y .*0 to 2, found 0, 1, 3"),
    (lambda: proof(**{"y": ["a", "b", "a", "b"]}), TypeError, "y must hold real numbers"),
    (lambda: proof(**{"y": [[1], [1, 2], 3, 4]}), ValueError, "y must be rectangular"),
    (lambda: proof(**{"X": [[np.nan, 0]] * 4}), ValueError, r"X\[0, 0\] = nan"),
    (lambda: proof(**{"X": np.zeros((4, 2), dtype=np.longdouble)}), TypeError, "X has dtype .*astype"),
    (lambda: proof(**{"bias": 1}), TypeError, "bias"),
    (lambda: proof(**{"num_classes": 1}), ValueError, "num_classes=1"),
    (lambda: proof(**{"time_limit": 0}), ValueError, "time_limit=0"),
)  # fmt: skip
