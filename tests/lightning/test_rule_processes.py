"""LitRule in several processes under a plain Trainer."""

import numpy as np
import oracles
import processes
import pytest
import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import ModelCheckpoint
from pytorch_lightning.loggers import CSVLogger
from torch.utils.data import DataLoader, TensorDataset

import torchperc as tp
from torchperc.lightning import LitRule, TabularDataModule
from torchperc.samples import shards

pytestmark = pytest.mark.filterwarnings("ignore")  # Lightning's advice on workers, sanity checks, empty loaders


def _data(count=41, classes=None):
    X, y = oracles.integers(4, count=count, classes=classes)
    return torch.tensor(X, dtype=torch.float64), torch.tensor(y)


def _module(data):
    if data == "gate":
        return TabularDataModule("AND", dtype="float64")
    X, y = _data(classes=3 if data == "classes" else None)
    return TensorDataset(X, y)


def _fit(rank, size, data, options, folder, max_epochs=6, resume=None, own=False):
    net = tp.MulticlassPerceptron(3, 3) if data == "classes" else tp.Perceptron(2 if data == "gate" else 3)
    lit = LitRule(net.double(), **options)
    source, held = _module(data), None
    if isinstance(source, TensorDataset):
        held = DataLoader(TensorDataset(*_data(15, 3 if data == "classes" else None)), batch_size=4)
        if own:
            source = TensorDataset(*(part[shards.own_slice(len(part), rank, size)] for part in source.tensors))
        source = DataLoader(source, batch_size=len(source))
    trainer = processes.trainer(
        rank,
        size,
        max_epochs=max_epochs,
        logger=CSVLogger(folder, name="", version=""),
        callbacks=[ModelCheckpoint(folder, filename="last", enable_version_counter=False, every_n_epochs=1)],
        enable_progress_bar=False,
        enable_model_summary=False,
        log_every_n_steps=1,
        use_distributed_sampler=not own,
    )
    trainer.fit(lit, source, held, ckpt_path=resume)
    log = lit.result.log
    metrics = {name: float(value) for name, value in trainer.callback_metrics.items()}
    return [log.index, log.step, log.coef, log.wrong], lit.net.weight.data, lit.result.verdict.name, metrics


def _equal(found, expected):
    assert not isinstance(found, Exception), found
    assert all(map(torch.equal, found[0], expected[0]))
    assert torch.equal(found[1], expected[1])
    assert found[2] == expected[2]
    assert found[3] == pytest.approx(expected[3], rel=1e-14)


@pytest.mark.slow
@pytest.mark.parametrize("size", [2, pytest.param(3, marks=pytest.mark.processes)])
@pytest.mark.parametrize(
    ("data", "options"),
    [
        pytest.param("gate", {}, marks=pytest.mark.processes),
        ("table", {"order": "shuffled", "select": "averaged"}),
        pytest.param("classes", {"select": "best-validation"}, marks=pytest.mark.processes),
    ],
)
def test_exact_is_the_run_of_one_process(tmp_path, data, options, size):
    expected = _fit(0, 1, data, options, tmp_path / "one")
    options = {**options, "distributed": "exact"}
    for found in processes.run(size, _fit, data, options, tmp_path / "several"):
        _equal(found, expected)
    # one writer, the same numbers; a mean of the loss may add up in another order
    one, several = ((tmp_path / name / "metrics.csv").read_text().splitlines() for name in ("one", "several"))
    assert one[0] == several[0]
    for row, other in zip(one[1:], several[1:], strict=True):
        assert [cell and float(cell) for cell in row.split(",")] == [
            cell and pytest.approx(float(cell), rel=1e-14) for cell in other.split(",")
        ]


@pytest.mark.processes
def test_processes_that_read_their_own_samples(tmp_path):
    expected = _fit(0, 1, "table", {}, tmp_path / "one")
    for found in processes.run(2, _fit, "table", {"distributed": "exact"}, tmp_path / "several", 6, None, True):
        _equal(found, expected)


@pytest.mark.parametrize("mode", ["exact", "mix"])
@pytest.mark.processes
def test_resuming_is_the_undisturbed_run(tmp_path, mode):
    options = {"distributed": mode, "order": "shuffled", "select": "averaged"}
    expected = processes.run(2, _fit, "table", options, tmp_path / "whole")[0]
    processes.run(2, _fit, "table", options, tmp_path / "cut", 3)
    for found in processes.run(2, _fit, "table", options, tmp_path / "cut", 6, str(tmp_path / "cut" / "last.ckpt")):
        _equal(found, expected)
    whole, cut = ((tmp_path / name / "last.ckpt") for name in ("whole", "cut"))
    states = [torch.load(path, weights_only=True)["state_dict"] for path in (whole, cut)]
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])


@pytest.mark.processes
def test_resuming_with_another_number_of_processes(tmp_path):
    options = {"distributed": "exact", "order": "shuffled"}
    expected = processes.run(2, _fit, "table", options, tmp_path / "whole")[0]
    processes.run(3, _fit, "table", options, tmp_path / "cut", 3)
    path = str(tmp_path / "cut" / "last.ckpt")
    for found in processes.run(2, _fit, "table", options, tmp_path / "cut", 6, path):
        _equal(found, expected)
    options["distributed"] = "mix"
    processes.run(3, _fit, "table", options, tmp_path / "mix", 3)
    for error in processes.run(2, _fit, "table", options, tmp_path / "mix", 6, str(tmp_path / "mix" / "last.ckpt")):
        assert isinstance(error, ValueError)
        assert "made by 3 processes, found 2" in str(error)


@pytest.mark.parametrize("mixing", ["uniform", "mistakes"])
@pytest.mark.processes
def test_mix_is_that_of_the_rule_trainer(tmp_path, mixing):
    X, y = _data()
    options = {"distributed": "mix", "mixing": mixing}
    expected = processes.run(2, _by_rule_trainer, X, y, options)
    found = processes.run(2, _fit, "table", options, tmp_path, 6, None, True)
    for (columns, weight, verdict, metrics), (columns_, weight_, verdict_, mixed) in zip(found, expected, strict=True):
        assert all(map(torch.equal, columns, columns_))
        assert torch.equal(weight, weight_)
        assert verdict == verdict_
        assert metrics["theory/mistakes"] == pytest.approx(mixed, rel=1e-12)


def _by_rule_trainer(rank, size, X, y, options):
    net, part = tp.Perceptron(3).double(), shards.own_slice(len(y), rank, size)
    result = tp.RuleTrainer(max_epochs=6, **options).fit(net, X[part], y[part])
    log = result.log
    columns = [log.index, log.step, log.coef, log.wrong]
    return columns, net.weight.data, result.verdict.name, float(np.abs(log.coef.numpy()).sum())


def _refused(rank, size, kind):
    source = TensorDataset(*_data())
    options = {} if kind == "not asked" else {"distributed": "exact"}
    batch = 4 if kind == "mini-batches" else len(source)
    loader = DataLoader(source, batch_size=batch)
    trainer = processes.trainer(rank, size, max_epochs=2, logger=False, enable_checkpointing=False, **processes.QUIET)
    trainer.fit(LitRule(tp.Perceptron(3).double(), **options), loader)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("not asked", "would learn different weights in each of 2 processes; use distributed='exact'"),
        ("mini-batches", "distributed='exact' needs all samples of each process at once"),
    ],
)
@pytest.mark.processes
def test_what_cannot_be_learned_together(kind, text):
    for error in processes.run(2, _refused, kind):
        assert isinstance(error, ValueError), error
        assert text in str(error)


def test_a_plain_trainer_in_one_process_takes_the_option():
    for mode in ("exact", "mix"):
        lit = LitRule(tp.Perceptron(2), distributed=mode)
        pl.Trainer(max_epochs=20, logger=False, enable_checkpointing=False, **processes.QUIET).fit(
            lit, TabularDataModule("AND")
        )
        assert (lit.result.verdict.name, lit.result.mistakes) == ("SEPARATED", 18)
