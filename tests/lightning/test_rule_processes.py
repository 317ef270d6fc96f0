"""LitRule in several processes under a plain Trainer: parameter mixing, as by RuleTrainer."""

import oracles
import processes
import pytest
import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import ModelCheckpoint
from pytorch_lightning.loggers import CSVLogger
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import torchperc as tp
from torchperc.lightning import LitRule, TabularDataModule
from torchperc.samples import process_group

pytestmark = pytest.mark.filterwarnings("ignore")  # Lightning's advice on workers, sanity checks, empty loaders


def _data(count=42):
    X, y = oracles.integers(4, count=count)
    return torch.tensor(X, dtype=torch.float64), torch.tensor(y)


def _fit(rank, size, options, folder, max_epochs=6, resume=None, own=True):
    lit, parts = LitRule(tp.Perceptron(3).double(), distributed="mix", **options), _data()
    if own:
        parts = [part[process_group.own_slice(len(part), rank, size)] for part in parts]
    data = TensorDataset(*parts)
    dealt = None if own else DistributedSampler(data, size, rank, shuffle=False)
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
    held = DataLoader(TensorDataset(*_data(16)), batch_size=4)
    trainer.fit(lit, DataLoader(data, len(data), sampler=dealt), held, ckpt_path=resume)
    metrics = {name: float(value) for name, value in trainer.callback_metrics.items()}
    return _columns(lit.result.log), lit.net.weight.data, lit.result.verdict.name, metrics


def _columns(log):
    return [log.sample, log.step, log.coef, log.predicted]


def _equal(found, expected):
    assert not isinstance(found, Exception), found
    assert all(map(torch.equal, found[0], expected[0]))
    assert torch.equal(found[1], expected[1])
    assert found[2:] == expected[2:]


@pytest.mark.processes
def test_resuming_is_the_undisturbed_run(tmp_path):
    options = {"order": "shuffled", "select": "averaged"}
    expected = processes.run(2, _fit, options, tmp_path / "whole")[0]
    processes.run(2, _fit, options, tmp_path / "cut", 3)
    path = str(tmp_path / "cut" / "last.ckpt")
    for error in processes.run(3, _fit, options, tmp_path / "other", 6, path):
        assert "processes=2" in str(error)
    for found in processes.run(2, _fit, options, tmp_path / "cut", 6, path):
        _equal(found, expected)


def _by_rule_trainer(rank, size, options, dealt):
    X, y = _data()
    part = slice(rank, None, size) if dealt else process_group.own_slice(len(y), rank, size)
    net = tp.Perceptron(3).double()
    run = tp.RuleTrainer(max_epochs=6, distributed="mix", **options).start(net, X[part], y[part])
    while run.verdict is None:
        run.epoch()
    loss, slack = run.survey()
    result = run.result()
    values = {"mistakes": float(run.history[-1].mistakes), "loss/train": loss, **run.theory(slack)}
    return _columns(result.log), result.model.weight, result.verdict.name, values


@pytest.mark.processes
@pytest.mark.parametrize(("options", "own"), [({}, True), ({"select": "averaged", "order": "shuffled"}, False)])
def test_mix_is_that_of_the_rule_trainer(tmp_path, options, own):
    """Each process has samples of its own, or a DistributedSampler deals them."""
    expected = processes.run(2, _by_rule_trainer, options, not own)
    for found, alone in zip(processes.run(2, _fit, options, tmp_path, 6, None, own), expected, strict=True):
        assert all(map(torch.equal, found[0], alone[0]))
        assert torch.equal(found[1], alone[1])
        assert found[2] == alone[2]
        assert {name: found[3][name] for name in alone[3]} == alone[3]


def _refused(rank, size, kind):
    source = TensorDataset(*_data())
    options = {} if kind == "not asked" else {"distributed": "mix"}
    loader = DataLoader(source, batch_size=4 if kind == "mini-batches" else len(source))
    trainer = processes.trainer(rank, size, max_epochs=2, logger=False, enable_checkpointing=False, **processes.QUIET)
    trainer.fit(LitRule(tp.Perceptron(3).double(), **options), loader)


@pytest.mark.processes
@pytest.mark.parametrize(
    ("kind", "text"),
    [("not asked", "2 processes; use distributed='mix'"), ("mini-batches", "distributed='mix' needs all samples")],
)
def test_what_cannot_be_learned_together(kind, text):
    for error in processes.run(2, _refused, kind):
        assert isinstance(error, ValueError), error
        assert text in str(error)


def test_a_plain_trainer_in_one_process_takes_the_option():
    lit = LitRule(tp.Perceptron(2), distributed="mix")
    trainer = pl.Trainer(max_epochs=20, logger=False, enable_checkpointing=False, **processes.QUIET)
    trainer.fit(lit, TabularDataModule("AND"))
    assert (lit.result.verdict.name, lit.result.mistakes) == ("SEPARATED", 18)
