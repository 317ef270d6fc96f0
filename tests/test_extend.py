"""The five examples of docs/extend.md, each against an oracle."""

import runpy
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import plain
import pytest
import torch
from refusals import refusals

import torchperc as tp

FOLDER = Path(__file__).parents[1] / "docs" / "extend"
BLOBS = tp.data.noisy_blobs(40, noise=0.1, seed=0)


def example(name):
    return SimpleNamespace(**runpy.run_path(str(FOLDER / f"{name}.py")))


def linear():
    return tp.Perceptron(2, dtype=torch.float64)


@pytest.mark.parametrize("engine", ["reference", "compiled"])
@pytest.mark.parametrize("rate", [0.5, 1.5])
def test_the_rule_has_the_weights_of_a_plain_loop(rate, engine):
    X, y = (each.double() for each in BLOBS)
    made = example("rule").Relaxation(rate=rate, reach=0.75)
    net = linear()
    log = tp.RuleTrainer(3, rule=made, engine=engine, order="shuffled", seed=3).fit(net, X, y).log
    w, states, updates, generator = np.zeros(3), [], 0, torch.Generator().manual_seed(3)
    rows = np.column_stack((X, np.ones(len(X))))
    for _ in range(3):
        torch.randperm(1, generator=generator)
        for i in torch.randperm(len(y), generator=generator).tolist():
            z = float(y[i]) * rows[i]
            if w @ z <= 0.75:
                w, updates = w + rate * (0.75 - w @ z) / (z @ z) * z, updates + 1
            states.append(w)
    assert (len(log), log.steps) == (updates, 120)
    for model, expected in ((log.last(), w), (log.averaged(), np.mean(states, axis=0)), (net, w)):
        np.testing.assert_allclose(torch.cat((model.weight[0], model.bias)).detach().numpy(), expected, rtol=1e-9)


def test_the_rule_keeps_its_bound_and_its_length():
    X, y = tp.data.separable_blobs(60, margin=0.5, seed=0)
    rule = example("rule").Relaxation(rate=1.0)
    result = tp.RuleTrainer(2000, rule=rule).fit(linear(), X, y)
    states = [result.log.state_at(t) for t in range(len(result.log))]
    wrong = sum(
        int(y[m.sample]) * float(state.scores(X[m.sample : m.sample + 1])) <= 0
        for m, state in zip(result.log, states, strict=True)
    )
    assert 0 < wrong <= tp.theory.mistake_bound(X, y, rule=rule)
    assert len((FOLDER / "rule.py").read_text().splitlines()) <= 40


@pytest.mark.filterwarnings(*plain.CHATTER)
def test_the_head_is_learned_by_a_lightning_module(tmp_path):
    X, y = BLOBS
    head, net, w = example("head").HingeHead(), linear(), np.zeros(3)
    loader = plain.loader((X, y))
    plain.fit(tmp_path, tp.lightning.LitClassifier(net, head, lr=0.125), loader, loader, epochs=20)
    rows, signs = np.column_stack((X, np.ones(len(X)))), y.numpy()
    for _ in range(20):
        moves = signs * (rows @ w) < 1
        w = w + 0.125 * (signs[moves, None] * rows[moves]).sum(0) / len(rows)
    np.testing.assert_allclose(torch.cat((net.weight[0], net.bias)).detach().numpy(), w, rtol=1e-9)
    scores, y = torch.tensor([2.0, 0.5, -0.5, -2.0]), torch.tensor([1, 1, 1, -1])
    assert head.mistakes(scores, y).tolist() == [False, True, True, False]
    assert head.loss(scores, y, "none").tolist() == [0.0, 0.5, 1.5, 0.0]
    assert head.decide(scores).tolist() == [1, 1, -1, -1]


@pytest.mark.parametrize(
    ("data", "options"),
    [
        (BLOBS, {"order": "shuffled"}),
        (tp.data.noisy_blobs(40, noise=0.0, seed=1), {"tie": "sign", "order": "random-mistake"}),
        ("iris", {}),
    ],
)
def test_the_engine_makes_the_log_of_the_plain_loop(data, options):
    many = tp.data.load("iris") if data == "iris" else None
    X, y = (many.X, many.y) if many else data
    runs = []
    for engine in ("reference", example("engine").skipping):
        net = tp.MulticlassPerceptron(4, 3, dtype=torch.float64) if many else linear()
        runs.append(tp.RuleTrainer(5, engine=engine, **options).fit(net, X, y))
    assert runs[0].mistakes > 0
    assert runs[0].log.equals(runs[1].log)
    assert runs[0].verdict is runs[1].verdict
    assert torch.equal(runs[0].model.weight, runs[1].model.weight)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_an_engine_of_ones_own_works_online_and_in_an_estimator():
    engine, (X, y) = example("engine").skipping, BLOBS
    net, same = linear(), linear()
    for rows in (slice(0, 25), slice(25, 40)):
        tp.RuleTrainer(engine=engine).partial_fit(net, X[rows], y[rows])
        tp.RuleTrainer().partial_fit(same, X[rows], y[rows])
    assert torch.equal(net.weight, same.weight)
    models = [tp.sklearn.PerceptronClassifier(max_iter=5, engine=each) for each in (engine, "auto")]
    assert np.array_equal(*(model.fit(X.numpy(), y.numpy()).coef_ for model in models))


test_an_engine_of_ones_own_is_refused_where_it_cannot_run = refusals(
    (lambda engine: tp.RuleTrainer(engine=engine, kernel="poly"), "kernel='poly'"),
    (lambda engine: tp.lightning.LitRule(tp.Perceptron(2), engine=engine), "engine="),
    (lambda engine: tp.RuleTrainer(engine=engine).fit(tp.sequences.ChainPerceptron(1, 2), [[[1]]], [[0]]), "sequences"),
    by=lambda call: call(example("engine").skipping),
    error=ValueError,
)


WEATHER = """% a comment
@relation weather
@attribute outlook {sunny, overcast, rainy}
@attribute temperature numeric
@attribute play {yes, no}

@data
sunny,85,no
overcast,83.5,yes
% another
rainy,70,yes
"""


def test_the_format_is_read_as_scipy_reads_it(tmp_path):
    from scipy.io import arff

    path = tmp_path / "weather.arff"
    path.write_text(WEATHER)
    data = example("format").read_arff(path)
    table, about = arff.loadarff(path)
    assert data.X[:, 3].tolist() == table["temperature"].tolist()
    outlook = [about["outlook"][1][k] for k in data.X[:, :3].argmax(1).tolist()]
    assert outlook == [value.decode() for value in table["outlook"]]
    assert data.X[:, :3].sum(1).tolist() == [1, 1, 1]
    assert data.decode(data.y) == [value.decode() for value in table["play"]]
    assert data.names == ("outlook=sunny", "outlook=overcast", "outlook=rainy", "temperature")
    assert data.target == "play"


def test_the_display_has_a_bar_per_sample_and_refuses_many_classes():
    from matplotlib.figure import Figure

    display, axes = example("display").DualDisplay, Figure().add_subplot()
    drawn = display.from_log(tp.RuleTrainer().fit(tp.Perceptron(2), *tp.data.gate("AND")).log)
    assert [bar.get_height() for bar in drawn.bars_] == [-2, -5, -4, 7]  # w = Σ αᵢ·xᵢ = (3, 2), b = Σ αᵢ = −4
    assert drawn.ax_.get_xlabel() == "sample"
    assert display(torch.tensor([1.0, -2.0])).plot(ax=axes).ax_ is axes
    data = tp.data.load("iris")
    log = tp.RuleTrainer(2).fit(tp.MulticlassPerceptron(4, 3, dtype=torch.float64), data.X, data.y).log
    with pytest.raises(ValueError, match="log has 3 classes"):
        display.from_log(log)
