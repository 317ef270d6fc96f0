"""Other forms of the rule: kernels against the plain dual loop and their features, one vector for all classes."""

import numpy as np
import oracles
import pytest
import torch
from refusals import refusals
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


SAME = [
    {}, *({"select": select} for select in ("averaged", "voted", "pocket", "best-validation")),
    *({"order": order} for order in ("shuffled", "random-mistake", [3, 3, 1, 0, 2, 3])),
    {"margin": 10, "class_weight": {1: 2.0}},
]  # fmt: skip


@pytest.mark.parametrize("classes", [None, 3])
@pytest.mark.parametrize("options", SAME, ids=str)
def test_the_linear_kernel_is_the_rule_without_bias(options, classes):
    for seed in range(2):
        X, y = oracles.integers(seed, count=15, classes=classes)
        other = oracles.integers(seed + 50, count=10, classes=classes)
        weight = [1, 2, 0, 1, 3] * 3 if "margin" in options else None
        net = tp.Perceptron(3, bias=False) if classes is None else tp.MulticlassPerceptron(3, classes, bias=False)
        given = {"validation": other, "sample_weight": weight}
        primal = tp.RuleTrainer(5, seed=seed, **options).fit(net.double(), X, y, **given)
        dual = tp.RuleTrainer(5, seed=seed, kernel="linear", **options).fit(None, X, y, num_classes=classes, **given)
        assert dual.log.equals(primal.log)
        assert len(dual.log) > 2
        assert (dual.verdict, dual.cycle) == (primal.verdict, primal.cycle)
        for here, there in zip(primal.history, dual.history, strict=True):
            assert here.norm == pytest.approx(there.norm)
            assert here.validation_error == there.validation_error
        torch.testing.assert_close(dual.scores(other[0]), primal.scores(other[0]), rtol=1e-12, atol=1e-12)
        assert torch.equal(dual.predict(X), primal.predict(X))


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


def fit_and(net=None, num_classes=None, **options):
    tp.RuleTrainer(**options).fit(net, *tp.data.gate("AND"), num_classes=num_classes)


test_what_does_not_go_together_is_named = refusals(
    (lambda: fit_and(kernel="sigmoid"), "kernel='sigmoid'"),
    (lambda: fit_and(kernel="poly", degree=0), "degree=0"),
    (lambda: fit_and(kernel="rbf", gamma=-1.0), "gamma=-1.0"),
    (lambda: fit_and(kernel=lambda a, b: a), "kernel function must return .*found shape"),
    (lambda: fit_and(kernel=lambda a, b: (a @ b.T) / 0), "not finite"),
    (lambda: fit_and(kernel=lambda a, b: "k"), TypeError, "real numbers"),
    (lambda: fit_and(degree=2), "degree=2 needs kernel='poly'"),
    (lambda: fit_and(kernel="rbf", degree=2), "degree=2 needs kernel='poly'"),
    (lambda: fit_and(kernel="poly", gamma=1.0), "gamma=1.0 needs kernel='rbf'"),
    (lambda: fit_and(kernel="poly", power=2), TypeError, "power=2"),
    (lambda: fit_and(tp.Perceptron(2), kernel="rbf"), TypeError, "net must be None"),
    (lambda: fit_and(), TypeError, "found NoneType"),
    (lambda: fit_and(tp.Perceptron(2), num_classes=3), "num_classes=3 needs a kernel"),
    (lambda: fit_and(kernel="poly", engine="compiled"), "engine='compiled' .*kernel"),
    error=ValueError,
)


def test_rbf_holds_far_from_the_origin():
    X = torch.tensor([[10000.0], [10001.0], [10003.0]])
    result = tp.RuleTrainer(kernel="rbf", max_epochs=1).fit(None, X, [1, -1, 1])
    gram = result.model.kernel.gram(result.log.problem.samples, result.log.problem.samples)
    torch.testing.assert_close(gram[0], torch.tensor([0.0, -1.0, -9.0]).exp())


def test_numpy_numbers_are_options_too(tmp_path):
    X, y = tp.data.gate("AND")
    for options in ({"kernel": "poly", "degree": np.int64(2)}, {"kernel": "rbf", "gamma": np.float32(2)}):
        tp.RuleTrainer(**options).fit(None, X, y).log.save(tmp_path / "log.npz")
        tp.MistakeLog.load(tmp_path / "log.npz", X, y)


def test_samples_in_pieces_are_learned_as_in_one():
    X, y = oracles.integers(3, count=20, spread=3)
    whole = csr_array(np.array(X, dtype=float))
    trainer = tp.RuleTrainer(kernel="poly", degree=2, max_epochs=10)
    pieces = tp.data.CsrParts([whole[:7], whole[7:]])
    assert entries(trainer.fit(None, pieces, y)) == entries(trainer.fit(None, whole, y))


def blocks(joint, classes):
    """Weight and bias of one vector a class, from the blocks of a joint vector."""
    return tp.functional.unfold_bias(joint.weight.reshape(classes, -1))


@pytest.mark.parametrize("tie", ["update", "sign"])
@pytest.mark.parametrize("classes", [2, 3, 5])
@pytest.mark.parametrize("select", ["last", "averaged", "voted", "pocket", "best-validation"])
def test_both_formulations_are_the_same_model_update_for_update(select, classes, tie):
    for seed in range(2):
        X, y = oracles.integers(seed, count=15, classes=classes)
        one, joint = tp.MulticlassPerceptron(3, classes), tp.JointPerceptron(3, classes)
        trainer, other = (
            tp.RuleTrainer(max_epochs=5, tie=tie, select=select),
            oracles.integers(8, count=9, classes=classes),
        )
        results = [trainer.fit(net, X, y, validation=other) for net in (one, joint)]
        assert torch.equal(results[0].predict(X), results[1].predict(X))
        weight, bias = blocks(joint, classes)
        assert torch.equal(weight, one.weight)
        assert torch.equal(bias, one.bias)
        assert results[0].log.equals(results[1].log)
        for t in range(len(results[0].log) + 1):
            here, there = (result.log.state_at(t) for result in results)
            weight, bias = blocks(there, classes)
            assert torch.equal(weight, here.weight)
            assert torch.equal(bias, here.bias)
            assert torch.equal(here.scores(X), there.scores(X))


def test_features_of_the_user():
    """Classes may share features: with φ(x, k) = k-th multiple of x, one vector of width d scores all classes."""

    def phi(x):
        return torch.stack([x * k for k in (-1.0, 0.0, 1.0)], 1)

    net = tp.JointPerceptron(1, 3, features=phi)
    X = torch.tensor([[-2.0], [2.0], [-3.0], [1.0]])
    result = tp.RuleTrainer().fit(net, X, torch.tensor([0, 2, 0, 2]))
    assert result.verdict.name == "SEPARATED"
    assert net.weight.shape == (1, 1)
    assert net.predict(X).tolist() == [0, 2, 0, 2]
