"""The five examples of docs/extend.md, each against an oracle."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import numpy as np
import plain
import pytest
import torch

import torchperc as tp

FOLDER = Path(__file__).parents[1] / "docs" / "extend"


def example(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"extend_{name}", FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def blobs(seed: int = 0, samples: int = 40, noise: float = 0.1) -> tuple[torch.Tensor, torch.Tensor]:
    return tp.data.noisy_blobs(samples, noise=noise, seed=seed)


# --- a rule ---


def plain_passive_aggressive(X: np.ndarray, y: np.ndarray, epochs: int, largest: float) -> tuple[np.ndarray, int]:
    rows, updates = np.column_stack((X, np.ones(len(X)))), 0
    w = np.zeros(rows.shape[1])
    for _ in range(epochs):
        for x, t in zip(rows, y, strict=True):
            missing = 1 - t * (x @ w)
            if missing > 0:
                w, updates = w + t * min(largest, missing / (x @ x)) * x, updates + 1
    return w, updates


@pytest.mark.parametrize("largest", [float("inf"), 0.125])
def test_the_rule_has_the_weights_of_a_plain_loop(largest: float) -> None:
    X, y = blobs()
    log = example("rule").passive_aggressive(X, y, epochs=3, largest=largest)
    w, updates = plain_passive_aggressive(X.numpy(), y.numpy(), 3, largest)
    assert len(log) == updates
    assert log.steps == 120
    np.testing.assert_allclose(torch.cat((log.last().weight[0], log.last().bias)).numpy(), w, rtol=1e-9)


def test_one_sample_is_corrected_just_enough() -> None:
    log = example("rule").passive_aggressive([[3.0, 1.0]], [-1], epochs=2)
    assert len(log) == 1  # the second time y·s is 1
    assert log.last().scores([[3.0, 1.0]]).tolist() == pytest.approx([-1.0])


def test_averaged_weights_of_the_rule_are_the_mean_of_all_states() -> None:
    X, y = blobs(samples=10)
    log = example("rule").passive_aggressive(X, y, epochs=2)
    states = [log.state_at(int((log.step < t).sum())).weight for t in range(1, log.steps + 1)]
    torch.testing.assert_close(log.averaged().weight, torch.stack(states).mean(0))


# --- a head ---


def plain_hinge_descent(X: np.ndarray, y: np.ndarray, lr: float, steps: int) -> np.ndarray:
    rows = np.column_stack((X, np.ones(len(X))))
    w = np.zeros(rows.shape[1])
    for _ in range(steps):
        moves = y * (rows @ w) < 1
        w = w + lr * (y[moves, None] * rows[moves]).sum(0) / len(rows)
    return w


@pytest.mark.filterwarnings(*plain.CHATTER)
def test_the_head_is_learned_by_a_lightning_module() -> None:
    import pytorch_lightning as pl
    from torch.utils.data import DataLoader, TensorDataset

    X, y = blobs(samples=60)
    head = example("head").HingeHead()
    net = tp.Perceptron(2, dtype=torch.float64)
    model = tp.lightning.LitClassifier(net, head, lr=0.125)
    trainer = pl.Trainer(
        max_epochs=20, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False,
    )  # fmt: skip
    loader = DataLoader(TensorDataset(X, y), batch_size=60)
    trainer.fit(model, loader, loader)
    w = plain_hinge_descent(X.numpy(), y.numpy(), 0.125, 20)
    np.testing.assert_allclose(torch.cat((net.weight[0], net.bias)).detach().numpy(), w, rtol=1e-9)
    assert float(head.loss(net(X), y).detach()) < 1


def test_the_head_counts_what_it_learns_from() -> None:
    head = example("head").HingeHead()
    scores, y = torch.tensor([2.0, 0.5, -0.5, -2.0]), torch.tensor([1, 1, 1, -1])
    assert head.mistakes(scores, y).tolist() == [False, True, True, False]
    assert head.loss(scores, y, "none").tolist() == [0.0, 0.5, 1.5, 0.0]
    assert head.decide(scores).tolist() == [1, 1, -1, -1]


# --- an engine ---


@pytest.mark.parametrize(("tie", "order", "noise"), [("update", "shuffled", 0.1), ("sign", "random-mistake", 0.0)])
def test_the_engine_makes_the_log_of_the_plain_loop(tie: str, order: str, noise: float) -> None:
    X, y = blobs(seed=1, noise=noise)
    runs = [
        tp.RuleTrainer(5, tie=tie, order=order, engine=engine).fit(tp.Perceptron(2, dtype=torch.float64), X, y)
        for engine in ("reference", example("engine").skipping)
    ]
    assert runs[0].log.equals(runs[1].log)
    assert runs[0].verdict is runs[1].verdict
    assert torch.equal(runs[0].model.weight, runs[1].model.weight)


def test_the_engine_learns_many_classes() -> None:
    data = tp.data.load("iris")
    runs = [
        tp.RuleTrainer(3, engine=engine).fit(tp.MulticlassPerceptron(4, 3, dtype=torch.float64), data.X, data.y)
        for engine in ("reference", example("engine").skipping)
    ]
    assert runs[0].mistakes > 0
    assert runs[0].log.equals(runs[1].log)


def test_an_engine_of_ones_own_works_online_and_in_an_estimator() -> None:
    engine = example("engine").skipping
    X, y = blobs(noise=0.0)
    net, same = (tp.Perceptron(2, dtype=torch.float64) for _ in range(2))
    for rows in (slice(0, 25), slice(25, 40)):
        tp.RuleTrainer(engine=engine).partial_fit(net, X[rows], y[rows])
        tp.RuleTrainer().partial_fit(same, X[rows], y[rows])
    assert torch.equal(net.weight, same.weight)
    model = tp.sklearn.PerceptronClassifier(engine=engine).fit(X.numpy(), y.numpy())
    assert np.array_equal(model.coef_, tp.sklearn.PerceptronClassifier().fit(X.numpy(), y.numpy()).coef_)


def test_an_engine_of_ones_own_is_refused_where_it_cannot_run() -> None:
    engine = example("engine").skipping
    with pytest.raises(ValueError, match="kernel='poly'"):
        tp.RuleTrainer(engine=engine, kernel="poly")
    with pytest.raises(ValueError, match="engine="):
        tp.lightning.LitRule(tp.Perceptron(2), engine=engine)
    with pytest.raises(TypeError, match="must return Mistakes, found dict"):
        tp.RuleTrainer(engine=lambda problem, weights, ids: {}).fit(tp.Perceptron(2), *tp.data.gate("AND"))
    with pytest.raises(ValueError, match="is not for sequences"):
        tp.RuleTrainer(engine=engine).fit(tp.sequences.ChainPerceptron(2, 2), [[[1, 0], [0, 1]]], [[0, 1]])


# --- a format ---

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


def test_the_format_is_read_as_scipy_reads_it(tmp_path: Path) -> None:
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


# --- a display ---


def test_the_display_has_a_bar_per_sample() -> None:
    X, y = tp.data.gate("AND")
    log = tp.RuleTrainer().fit(tp.Perceptron(2), X, y).log
    display = example("display").DualDisplay.from_log(log)
    assert [bar.get_height() for bar in display.bars_] == [-2, -5, -4, 7]  # w = Σ αᵢ·xᵢ = (3, 2), b = Σ αᵢ = −4
    assert display.ax_.get_xlabel() == "sample"


def test_the_display_draws_on_given_axes_and_refuses_many_classes() -> None:
    from matplotlib.figure import Figure

    module, axes = example("display"), Figure().add_subplot()
    assert module.DualDisplay(torch.tensor([1.0, -2.0])).plot(ax=axes).ax_ is axes
    data = tp.data.load("iris")
    log = tp.RuleTrainer(2).fit(tp.MulticlassPerceptron(4, 3, dtype=torch.float64), data.X, data.y).log
    with pytest.raises(ValueError, match="log has 3 classes"):
        module.DualDisplay.from_log(log)
