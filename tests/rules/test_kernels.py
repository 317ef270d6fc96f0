"""Kernel perceptrons against the plain dual loop, and against the rule on the features that the kernel stands for."""

import subprocess
import sys

import numpy as np
import oracles
import pytest
import torch
from scipy.sparse import csr_array

import torchperc as tp


def poly(degree):
    return lambda x, z: (1 + sum(a * b for a, b in zip(x, z, strict=True))) ** degree


def entries(result):
    return [tuple(entry) for entry in result.log]


@pytest.fixture(params=[3, 512], ids=["small blocks", "one block"])
def _block(request, monkeypatch):
    monkeypatch.setattr("torchperc.rules.kernel._BLOCK", request.param)


@pytest.mark.usefixtures("_block")
@pytest.mark.parametrize("classes", [None, 3])
@pytest.mark.parametrize("tie", ["update", "sign"])
@pytest.mark.parametrize("bias_step", [None, "unit"])
@pytest.mark.parametrize("kind", [np.array, torch.tensor, lambda X: csr_array(np.array(X, dtype=float))])
def test_poly_is_the_plain_dual_loop(classes, tie, bias_step, kind):
    for seed in range(2):
        X, y = oracles.integers(seed, count=14, classes=classes, spread=3)
        trainer = tp.RuleTrainer(kernel="poly", degree=2, tie=tie, bias_step=bias_step, max_epochs=5)
        result = trainer.fit(None, kind(X), y, num_classes=classes)
        beta = int(bias_step == "unit")
        plain, alpha = oracles.kernel_perceptron(
            X, y, poly(2), tie=tie, classes=classes, passes=result.epochs, beta=beta
        )
        assert entries(result) == plain
        assert result.log.dual().reshape(len(X), -1).tolist() == alpha
        k, units = poly(2), classes or 1
        others = [[1, 0, 2], [-3, 1, 1]]
        scores = [[sum(alpha[j][u] * (k(X[j], x) + beta) for j in range(len(X))) for u in range(units)] for x in others]
        assert result.scores(others).reshape(2, -1).tolist() == scores
        assert len(result.model.index) == len(set(result.log.sample.tolist()))  # repeats are merged


@pytest.mark.slow
def test_results_do_not_depend_on_what_is_imported():
    script = (
        "import numpy as np, torch, torchperc as tp\n"
        "X = torch.from_numpy(np.random.default_rng(0).standard_normal((600, 30))).float()\n"
        "y = torch.where(X[:, 0] + X[:, 1] > 0, 1, -1)\n"
        "result = tp.RuleTrainer(kernel='poly', max_epochs=3).fit(None, X, y)\n"
        "print([record.norm for record in result.history], result.scores(X).sum().item())\n"
    )
    found = [
        subprocess.run([sys.executable, "-c", first + script], capture_output=True, text=True, check=True).stdout
        for first in ("", "import numba\n")
    ]
    assert found[0] == found[1]


def test_a_run_resumes_and_refuses_infinite_scores():
    X, y = oracles.integers(3, count=30)
    trainer = tp.RuleTrainer(max_epochs=6, kernel="poly", order="shuffled")
    whole, first, rest = (trainer.start(None, X, y) for _ in range(3))
    for _ in range(6):
        whole.epoch()
    for _ in range(3):
        first.epoch()
    rest.load_state_dict(first.state_dict())
    for _ in range(3):
        rest.epoch()
    assert rest.log().equals(whole.log())
    assert rest.history == whole.history
    large = torch.tensor(X, dtype=torch.float32) * 1e13
    with pytest.raises(ValueError, match="a score became infinite"):
        tp.RuleTrainer(kernel="poly", degree=3).fit(None, large, y)


@pytest.mark.parametrize("classes", [None, 3])
def test_the_linear_kernel_is_the_rule_without_bias(classes):
    for seed in range(3):
        X, y = oracles.integers(seed, classes=classes)
        net = tp.Perceptron(3, bias=False) if classes is None else tp.MulticlassPerceptron(3, classes, bias=False)
        primal = tp.RuleTrainer(max_epochs=6).fit(net, X, y)
        dual = tp.RuleTrainer(max_epochs=6, kernel="linear").fit(None, X, y, num_classes=classes)
        assert dual.log.equals(primal.log)
        assert dual.verdict is primal.verdict
        assert dual.cycle == primal.cycle
        for here, there in zip(primal.history, dual.history, strict=True):
            assert here.norm == pytest.approx(there.norm)


@pytest.mark.parametrize("select", ["last", "averaged", "voted", "pocket", "best-validation"])
@pytest.mark.parametrize("classes", [None, 3])
def test_every_selection_equals_that_of_the_rule(select, classes):
    for seed in range(2):
        X, y = oracles.integers(seed, count=15, classes=classes)
        other = oracles.integers(seed + 50, count=10, classes=classes)
        net = tp.Perceptron(3, bias=False, dtype=torch.float64)
        if classes is not None:
            net = tp.MulticlassPerceptron(3, classes, bias=False, dtype=torch.float64)
        options = {"max_epochs": 4, "select": select, "order": "shuffled", "seed": seed}
        primal = tp.RuleTrainer(**options).fit(net, X, y, validation=other)
        dual = tp.RuleTrainer(**options, kernel="linear").fit(None, X, y, validation=other, num_classes=classes)
        assert [r.validation_error for r in primal.history] == [r.validation_error for r in dual.history]
        torch.testing.assert_close(dual.scores(other[0]), primal.scores(other[0]), rtol=1e-12, atol=1e-12)
        assert torch.equal(dual.predict(X), primal.predict(X))


@pytest.mark.parametrize("order", ["random-mistake", [3, 3, 1, 0, 2, 3], "shuffled"])
def test_every_order_equals_that_of_the_rule(order):
    X, y = oracles.integers(3, count=12)
    options = {"max_epochs": 4, "order": order, "seed": 1}
    primal = tp.RuleTrainer(**options).fit(tp.Perceptron(3, bias=False), X, y)
    dual = tp.RuleTrainer(**options, kernel="linear").fit(None, X, y)
    assert dual.log.equals(primal.log)


def test_xor_is_separable_by_degree_two():
    X, y = tp.data.gate("XOR")
    result = tp.RuleTrainer(kernel="poly", degree=2).fit(None, X, y)
    assert result.verdict.name == "SEPARATED"
    assert torch.equal(result.predict(X), y)
    # (1 + x·z)² is the inner product of (1, √2x₁, √2x₂, x₁², x₂², √2x₁x₂)
    root = 2**0.5
    phi = torch.stack([torch.ones(4), root * X[:, 0], root * X[:, 1], X[:, 0] ** 2, X[:, 1] ** 2, root * X.prod(1)], 1)
    primal = tp.RuleTrainer().fit(tp.Perceptron(6, bias=False, dtype=torch.float64), phi.double(), y)
    assert result.log.sample.tolist() == primal.log.sample.tolist()


def test_rbf_is_its_formula():
    X = torch.randn(30, 3, dtype=torch.float64)
    y = torch.where(X.square().sum(1) > 2.5, 1, -1)
    result = tp.RuleTrainer(kernel="rbf", gamma=0.7, max_epochs=50).fit(None, X, y)
    assert result.verdict.name == "SEPARATED"
    own = tp.RuleTrainer(kernel=lambda a, b: (-0.7 * torch.cdist(a, b) ** 2).exp(), max_epochs=50).fit(None, X, y)
    assert own.log.equals(result.log)
    Z = torch.randn(20, 3, dtype=torch.float64)
    plain = [
        sum(a * np.exp(-0.7 * ((x - z) ** 2).sum()) for a, x in zip(result.log.dual().numpy(), X.numpy(), strict=True))
        for z in Z.numpy()
    ]
    torch.testing.assert_close(result.scores(Z), torch.tensor(plain, dtype=torch.float64))


def test_margins_and_weights_reach_the_kernel():
    X, y = oracles.integers(6)
    options = {"max_epochs": 5, "margin": 10, "class_weight": {1: 2.0}}
    weights = [1, 2, 0, 1, 1, 3, 1, 1, 1, 0.5, 1, 1]
    primal = tp.RuleTrainer(**options).fit(tp.Perceptron(3, bias=False), X, y, sample_weight=weights)
    dual = tp.RuleTrainer(**options, kernel="linear").fit(None, X, y, sample_weight=weights)
    assert dual.log.equals(primal.log)
    assert len(dual.log) > 5


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"kernel": "sigmoid"}, ValueError, "kernel='sigmoid'"),
        ({"kernel": "poly", "degree": 0}, ValueError, "degree=0"),
        ({"kernel": "rbf", "gamma": -1.0}, ValueError, "gamma=-1.0"),
        ({"kernel": lambda a, b: a}, ValueError, "kernel function must return .*found shape"),
        ({"kernel": lambda a, b: (a @ b.T) / 0}, ValueError, "not finite"),
    ],
)
def test_wrong_kernels_are_named(options, error, message):
    X, y = tp.data.gate("AND")
    with pytest.raises(error, match=message):
        tp.RuleTrainer(**options).fit(None, X, y)


def test_a_net_and_a_kernel_exclude_each_other():
    X, y = tp.data.gate("AND")
    with pytest.raises(TypeError, match="net must be None"):
        tp.RuleTrainer(kernel="rbf").fit(tp.Perceptron(2), X, y)
    with pytest.raises(TypeError, match="found NoneType"):
        tp.RuleTrainer().fit(None, X, y)
    with pytest.raises(ValueError, match="num_classes=3 needs a kernel"):
        tp.RuleTrainer().fit(tp.Perceptron(2), X, y, num_classes=3)


def test_rbf_holds_far_from_the_origin():
    X = torch.tensor([[10000.0], [10001.0], [10003.0]])
    result = tp.RuleTrainer(kernel="rbf", max_epochs=1).fit(None, X, [1, -1, 1])
    gram = result.model.kernel.gram(result.log.problem.samples, result.log.problem.samples)
    torch.testing.assert_close(gram[0], torch.tensor([0.0, -1.0, -9.0]).exp())


def test_the_model_keeps_its_support_vectors():
    X = torch.tensor([[1.0, 2.0], [-1.0, 0.0], [0.0, 1.0]])
    result = tp.RuleTrainer(kernel="linear").fit(None, X, [1, -1, 1])
    before = result.scores([[1.0, 1.0]])
    X[:] = 99
    assert torch.equal(result.scores([[1.0, 1.0]]), before)


def test_numpy_numbers_are_options_too(tmp_path):
    X, y = tp.data.gate("AND")
    for options in ({"kernel": "poly", "degree": np.int64(2)}, {"kernel": "rbf", "gamma": np.float32(2)}):
        tp.RuleTrainer(**options).fit(None, X, y).log.save(tmp_path / "log.npz")
        tp.MistakeLog.load(tmp_path / "log.npz", X, y)


@pytest.mark.parametrize("options", [{"degree": 2}, {"kernel": "rbf", "degree": 2}, {"kernel": "poly", "gamma": 1.0}])
def test_options_of_another_kernel_are_refused(options):
    with pytest.raises(ValueError, match="needs kernel="):
        tp.RuleTrainer(**options)


def test_samples_in_pieces_are_learned_as_in_one():
    X, y = oracles.integers(3, count=20, spread=3)
    whole = csr_array(np.array(X, dtype=float))
    trainer = tp.RuleTrainer(kernel="poly", degree=2, max_epochs=10)
    pieces = tp.data.CsrParts([whole[:7], whole[7:]])
    assert entries(trainer.fit(None, pieces, y)) == entries(trainer.fit(None, whole, y))
