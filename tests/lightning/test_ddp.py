"""LitClassifier and LitRegressor in several processes under Lightning's DDP: what one process learns and logs on the same batches."""

import contextlib
import io
import os
import signal
import socket
import subprocess
import sys
import warnings
from functools import partial
from pathlib import Path

import numpy as np
import processes
import pytest
import pytorch_lightning as pl
import torch
from scipy.sparse import csr_array
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import torchperc as tp
from torchperc.lightning import (
    LitClassifier,
    LitRegressor,
    SliceLoader,
    StopOnDivergence,
    TabularDataModule,
    make_trainer,
)
from torchperc.lightning.checkpoints import CheckpointError
from torchperc.model.model_file import load_safetensors
from torchperc.samples.process_group import ProcessError

pytestmark = pytest.mark.filterwarnings("ignore")  # Lightning's advice on workers, sanity checks, samplers
GLOBAL = 6  # samples per batch, of all processes
PLAIN = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False}


def _samples(count=11, classes=None, seed=0):
    draw = np.random.default_rng(seed)
    X = torch.from_numpy(draw.normal(size=(count, 3)))
    noisy = X[:, 0] + 0.3 * torch.from_numpy(draw.normal(size=count))
    return X, torch.where(noisy > 0, 1, -1) if classes is None else torch.from_numpy(draw.integers(classes, size=count))


def _loader(size, *, count=12, weighted=False, classes=None, real=False, batch=GLOBAL, **options):
    X, y = _samples(count, classes)
    y = 60 + 3 * X[:, 0] + y if real else y
    columns = (X, y, torch.arange(count) % 3 + 0.5) if weighted else (X, y)
    data = TensorDataset(*columns)
    if size == 1:  # Lightning shuffles the training data of several processes, whatever the loader does, by this
        options |= {"sampler": DistributedSampler(data, 1, 0, seed=0), "shuffle": None}
    return DataLoader(data, batch // size, **options)


def _slices(size, form="dense", **options):
    X, y = _samples()
    if form == "sparse":
        X = csr_array(X.numpy())
    elif form == "parts":
        X = tp.data.CsrParts([csr_array(part.numpy()) for part in X.split(4)])
    return SliceLoader(X, y, **options)


def _perceptron(head="logistic", classes=None, **options):
    net = tp.Perceptron(3) if classes is None else tp.MulticlassPerceptron(3, classes)
    return LitClassifier(net.double(), head, **({"lr": 0.3} | options))


def _mlp(**options):
    return LitClassifier(tp.MLP(3, hidden=(4,), seed=1).double(), "logistic", **options)


def _regressor(**options):
    return LitRegressor(tp.Perceptron(3).double(), **options)


LBFGS = partial(torch.optim.LBFGS, lr=0.5, max_iter=2, line_search_fn="strong_wolfe")
CASES = {
    "full batch": (_perceptron, partial(_loader, batch=12)),
    "batches": (_perceptron, _loader),
    "shuffled": (partial(_perceptron, "perceptron"), partial(_loader, shuffle=True)),
    "dropped last batch": (partial(_perceptron, "lms", lr=0.05), partial(_loader, count=15, drop_last=True)),
    "sample weights": (_perceptron, partial(_loader, weighted=True)),
    "class weights": (partial(_perceptron, class_weight={-1: 3.0, 1: 0.5}), _loader),
    "classes": (partial(_perceptron, "perceptron", classes=4), partial(_loader, classes=4)),
    "adam": (partial(_mlp, optimizer=partial(torch.optim.Adam, lr=0.02)), _loader),
    "line search": (partial(_mlp, optimizer=LBFGS), partial(_loader, batch=12)),
    "accumulated": (_perceptron, _loader, {"accumulate_grad_batches": 2}),
    "slices": (_perceptron, partial(_slices, batch_size=4)),
    "shuffled slices": (partial(_perceptron, "perceptron"), partial(_slices, batch_size=4, order="shuffled", seed=5)),
    "slices of one": (partial(_perceptron, "perceptron"), partial(_slices, batch_size=1)),
    "sparse slices": (_perceptron, partial(_slices, "sparse", batch_size=4)),
    "batches larger than memory": (_perceptron, partial(_slices, "parts", batch_size=4, order="shuffled")),
    "regression": (partial(_regressor, lr=0.05), partial(_loader, weighted=True, real=True)),
}


class _History(pl.Callback):
    def __init__(self):
        self.epochs = []

    def on_train_epoch_end(self, trainer, pl_module):
        self.epochs.append({name: float(value) for name, value in trainer.callback_metrics.items()})

    def on_validation_epoch_end(self, trainer, pl_module):
        self.seen = "loss/val" in trainer.callback_metrics  # before any hook of the module


def _fit(rank, size, name):
    make, load, *options = CASES[name]
    lit, history = make(), _History()
    trainer = processes.trainer(
        rank,
        size,
        max_epochs=2,
        callbacks=[history],
        num_sanity_val_steps=0,
        **PLAIN,
        **(options[0] if options else {}),
    )
    kind = {key: value for key, value in getattr(load, "keywords", {}).items() if key in ("classes", "real")}
    trainer.fit(lit, load(size), _loader(size, count=6, **kind))
    assert history.seen
    return torch.nn.utils.parameters_to_vector(lit.parameters()).detach(), history.epochs


def _fit_some(rank, size, names):
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        return {name: _fit(rank, size, name) for name in names}, [str(each.message) for each in said]


@pytest.mark.processes
@pytest.mark.parametrize("size", [2, 3])
def test_weights_and_metrics_are_those_of_one_process(size):
    results = processes.run(size, _fit_some, list(CASES))
    assert not any(isinstance(result, Exception) for result in results), results
    (first, said), *others = results
    assert not [text for text in said if "sync_dist" in text]  # Lightning's advice, which would average averages
    for name, (found, history) in first.items():
        for other, _ in others:
            assert torch.equal(other[name][0], found), name
            assert other[name][1] == history, name
        weights, epochs = _fit(0, 1, name)
        torch.testing.assert_close(
            found, weights, rtol=1e-12, atol=1e-12, msg=lambda text, name=name: f"{name}: {text}"
        )
        for one, several in zip(epochs, history, strict=True):
            assert several == pytest.approx(one, rel=1e-11, abs=1e-11), name
            for exact in ("mistakes", "error/train", "error/val"):
                assert one.get(exact) == several.get(exact), name
    _compare_with_a_plain_loop(*first["full batch"])


def _compare_with_a_plain_loop(found, epochs):
    X, y = _samples(12)
    w, b = (
        torch.zeros(3, dtype=torch.float64, requires_grad=True),
        torch.zeros((), dtype=torch.float64, requires_grad=True),
    )
    for _ in range(2):
        loss = nn.functional.softplus(-y * (X @ w + b)).mean()
        with torch.no_grad():
            for parameter, slope in zip((w, b), torch.autograd.grad(loss, (w, b)), strict=True):
                parameter -= 0.3 * slope
    torch.testing.assert_close(found, torch.cat([w, b[None]]).detach(), rtol=1e-13, atol=0)
    assert epochs[-1]["loss/train"] == pytest.approx(float(loss), rel=1e-14)


# --- evaluation and prediction ---


def _evaluate(rank, size, folder):
    data = TabularDataModule("noisy-blobs", {"samples": 60, "noise": 0.2}, dtype="float64")
    lit = LitClassifier(tp.Perceptron(2, init="normal", seed=1).double(), "logistic")
    X, y = _samples(6)
    three = LitClassifier(tp.Perceptron(3, init="normal", seed=1).double(), "logistic")
    plain, found = DataLoader(TensorDataset(X, y), 2), []
    for module, source in (
        (lit, {"datamodule": data}),
        (three, {"dataloaders": plain}),
        (three, {"dataloaders": [plain, plain]}),
    ):
        trainer = processes.trainer(rank, size, **PLAIN)
        found += [trainer.validate(module, verbose=False, **source), trainer.test(module, verbose=False, **source)]
    labels = [
        processes.trainer(rank, size, **PLAIN).predict(lit, data),
        processes.trainer(rank, size, **PLAIN).predict(three, plain),
    ]
    return found, [torch.cat(each) for each in labels]


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.processes
def test_evaluation_counts_and_prediction_gives_each_sample_once(tmp_path, size):
    metrics, (blobs, plain) = _evaluate(0, 1, tmp_path)
    results = processes.run(size, _evaluate, tmp_path)
    for found, _ in results:
        assert [[pytest.approx(each, rel=1e-14) for each in one] for one in metrics] == found
    assert torch.equal(torch.cat([labels[0] for _, labels in results]), blobs)  # contiguous pieces
    dealt = torch.zeros_like(plain)
    for rank, (_, labels) in enumerate(results):
        dealt[rank::size] = labels[1]
    assert torch.equal(dealt, plain)


# --- files, callbacks, signals ---


def _run(rank, size, folder, *, lit=None, resume=None, epochs=4, callbacks=(), pictures=0):
    lit = lit or LitClassifier(tp.Perceptron(2).double(), "logistic", optimizer=partial(torch.optim.Adam, lr=0.1))
    data = TabularDataModule("noisy-blobs", {"samples": 60, "noise": 0.2}, 8, "shuffled", seed=3, dtype="float64")
    processes.trainer(rank, size)  # which sets what torchrun sets
    options = {"accelerator": "cpu", "enable_progress_bar": False, "picture_every": pictures}
    trainer = make_trainer(folder, epochs, callbacks=callbacks, **options)
    assert trainer.world_size == size
    trainer.fit(lit, data, ckpt_path=resume)
    return [values.clone() for values in lit.state_dict().values()], trainer.current_epoch


def _pictured(rank, size, folder):
    return _run(rank, size, folder, epochs=2, pictures=1)


@pytest.mark.processes
def test_one_process_writes(tmp_path):
    results = processes.run(2, _pictured, tmp_path / "run")
    assert all(torch.equal(*pair) for pair in zip(results[0][0], results[1][0], strict=True))
    names = sorted(path.name.split(".")[0] for path in (tmp_path / "run").iterdir())
    assert names == ["events", "hparams", "last"]
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    board = EventAccumulator(str(tmp_path / "run")).Reload()
    assert len(board.Scalars("loss/train")) == 2
    assert board.Tags()["images"] == ["boundary"]


class _At(pl.Callback):
    """Does something in one process after some of its batches."""

    def __init__(self, rank, step, action):
        self.rank, self.step, self.action = rank, step, action

    def on_train_batch_end(self, trainer, *_):
        if (trainer.global_rank, trainer.global_step) == (self.rank, self.step):
            self.action()


def _kill(number):
    os.kill(os.getpid(), number)


def _drawing():
    layers = nn.Linear(2, 6), nn.Tanh(), nn.Dropout(0.4), nn.Linear(6, 1), nn.Flatten(0)
    return LitClassifier(nn.Sequential(*layers).double(), "logistic", lr=0.3)


def _broken(rank, size, folder, number, step, resume=None):
    torch.manual_seed(rank)  # DDP gives all the weights of the first; what dropout draws differs
    lit = _drawing()
    stop = [] if number is None else [_At(1, step, partial(_kill, number))]
    return _run(rank, size, folder, lit=lit, callbacks=stop, resume=resume)


KILL, STOP = signal.SIGKILL, signal.SIGTERM


@pytest.mark.parametrize("moments", [[(KILL, 12), (STOP, 15)]])
@pytest.mark.processes
def test_a_process_that_ends_ends_all_and_the_run_resumes_byte_for_byte(tmp_path, moments):
    """Two processes make five steps per epoch; each draws its own dropout."""
    whole = processes.run(2, _broken, tmp_path / "whole", None, 0)
    for number, step in moments:
        folder = tmp_path / f"{number}-{step}"
        broken = processes.run(2, _broken, folder, number, step)
        if number is KILL:
            assert broken[1] == -KILL
            assert isinstance(broken[0], ProcessError)
            assert "process 0 of 2 lost the others" in str(broken[0])
        else:
            assert broken == [143, 143]
        assert torch.load(folder / "last.ckpt")["global_step"] == (step if number is STOP else 10)
        resumed = processes.run(2, _broken, folder, None, 0, folder / "last.ckpt")
        for (values, epochs), (others, epochs_of_others) in zip(whole, resumed, strict=True):
            assert epochs == epochs_of_others
            for one, other in zip(values, others, strict=True):
                assert one.numpy().tobytes() == other.numpy().tobytes()


def _diverging(rank, size, folder):
    X, y = _samples()
    lit = LitClassifier(tp.Perceptron(3).double(), "lms", lr=1e300)
    stop = StopOnDivergence()
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        trainer = processes.trainer(rank, size, max_epochs=20, callbacks=[stop], **PLAIN)
        trainer.fit(lit, DataLoader(TensorDataset(X, y), 2))
    diverged = [str(each.message) for each in said if "diverged" in str(each.message)]
    return trainer.current_epoch, stop.diverged, diverged, bool(lit.net.weight.isfinite().all())


@pytest.mark.processes
def test_divergence_stops_all_processes_and_is_said_once():
    (epoch, diverged, said, finite), other = processes.run(2, _diverging, None)
    assert (diverged, finite) == (True, True)
    assert epoch < 20
    assert len(said) == 1
    assert other == (epoch, True, [], True)


# --- what cannot work is said in every process ---


class _Batches:
    """A loader that no sampler belongs to."""

    def __init__(self, X, y, count):
        self.batch, self.count = (X, y), count

    def __len__(self):
        return self.count

    def __iter__(self):
        return iter([self.batch] * self.count)


def _refused(rank, size, name, folder):
    options = {"update": "sample"} if name == "update" else {"lr": 0.3}
    lit = LitClassifier(tp.Perceptron(3).double(), **options)
    trainer = processes.trainer(rank, size, max_epochs=2, **PLAIN)
    trainer.fit(lit, _Batches(*_samples(), 2 + rank if name == "batches" else 2))


REFUSED = {"update": "update='sample'.*2 processes", "batches": r"batches per epoch differs.*\[2, 3\]"}


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.processes
def test_what_differs_is_refused_everywhere(name):
    for error in processes.run(2, _refused, name, None):
        with pytest.raises(ValueError, match=REFUSED[name]):
            raise error


def _resumed(rank, size, folder, resume):
    return _run(rank, size, folder, resume=resume)


@pytest.mark.processes
def test_a_run_resumes_in_as_many_processes(tmp_path):
    processes.run(2, _resumed, tmp_path / "two", None)
    path = tmp_path / "two/last.ckpt"
    for size in (1, 3):
        for error in processes.run(size, _resumed, tmp_path / "other", path):
            assert isinstance(error, CheckpointError)
            assert f"processes=2, this one has processes={size}" in str(error)
    lit = LitClassifier.load_from_checkpoint(path)
    assert lit.net.weight.any()
    _run(0, 1, tmp_path / "one")
    for error in processes.run(2, _resumed, tmp_path / "other", tmp_path / "one/last.ckpt"):
        assert isinstance(error, CheckpointError)
        assert "processes=1, this one has processes=2" in str(error)


# --- the command line ---

CONFIGS = Path(tp.__file__).parents[1] / "configs"
BRIEF = ["--picture_every", "0", "--trainer.enable_progress_bar", "false", "--trainer.max_epochs", "3"]


def _free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return str(free.getsockname()[1])


def _started(*words, **environment):
    """A command in a process of its own, of the package that is tested."""
    usual = {"PYTHONPATH": str(CONFIGS.parent), "OMP_NUM_THREADS": "1", "MPLBACKEND": "agg"}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen([str(word) for word in words], env={**os.environ, **usual, **environment}, **pipes)


def _ended(process, folder):
    """What a run printed, after a look at what it learned: the weights of AND, known from one process."""
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    linear = nn.Linear(2, 1)
    load_safetensors(folder / "weights.safetensors", linear)
    assert linear.weight.tolist() == [[3, 2]]
    assert linear.bias.tolist() == [-4]
    return out, err


FIT = ["fit", "--config", CONFIGS / "experiment/and-gradient.yaml", *BRIEF[:4], "--trainer.accelerator", "cpu", "--out"]


@pytest.mark.processes
def test_launchers(tmp_path):
    """Lightning's, which calls the command again, and torchrun; both at once, as each takes seconds to start."""
    script = Path(sys.executable).with_name("torchperc")
    command = [sys.executable, script] if script.exists() else [sys.executable, "-m", "torchperc"]
    several = ["--trainer.devices", "2", "--trainer.strategy", "ddp"]
    lightning = _started(*command, *FIT, tmp_path / "lightning", *several)
    launcher = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        "2",
        "-m",
        "torchperc",
    ]
    torchrun = _started(*launcher, *FIT, tmp_path / "torchrun", "--config", CONFIGS / "trainer/ddp-cpu.yaml")
    for process, folder in ((lightning, tmp_path / "lightning"), (torchrun, tmp_path / "torchrun")):
        out, err = _ended(process, folder)
        assert "torchperc" not in err
        assert out.count("error/train") == 1  # the first process prints
        names = sorted(path.name.split(".")[0] for path in folder.iterdir())
        assert names == ["config", "events", "hparams", "last", "weights"]


@pytest.mark.slow
def test_two_machines_without_torchrun(tmp_path):
    words = [sys.executable, "-m", "torchperc", *FIT, tmp_path / "run", "--config", CONFIGS / "trainer/multi-node.yaml"]
    where = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": _free_port()}
    first, second = (_started(*words, **where, NODE_RANK=str(number)) for number in range(2))
    assert "error/train" in _ended(first, tmp_path / "run")[0]
    assert "error/train" not in _ended(second, tmp_path / "run")[0]


@pytest.mark.slow
def test_a_command_whose_process_is_killed_says_so_in_one_line(tmp_path):
    words = [*FIT, tmp_path / "run", "--trainer.max_epochs", "1000000", "--config", CONFIGS / "trainer/ddp-cpu.yaml"]
    first = _started(sys.executable, "-m", "torchperc", *words)
    while not (tmp_path / "run/last.ckpt").exists():
        with contextlib.suppress(subprocess.TimeoutExpired):
            first.wait(0.05)
        assert first.returncode is None, first.communicate()
    children = Path(f"/proc/{first.pid}/task/{first.pid}/children").read_text().split()
    os.kill(int(children[0]), signal.SIGKILL)
    _, err = first.communicate(timeout=60)  # which waits for all that have its standard error
    assert first.returncode == 1
    assert err.startswith("torchperc: error: process 0 of 2 lost the others: ")
    assert err.count("\n") == 1


def _commands(rank, size, calls):
    from torchperc.cli import main

    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
    results = []
    for words, environment in calls:
        os.environ.update(environment)
        with contextlib.redirect_stderr(io.StringIO()) as errors:
            try:
                main(words)
                code = 0
            except SystemExit as leave:
                code = leave.code
        results.append((code, errors.getvalue()))
    return results


FAULTS = {
    "no such device": (
        ["--trainer.accelerator", "gpu"],
        {},
        "No supported gpu backend found; choose by --trainer.accelerator",
    ),
    "unreachable": (
        ["--config", CONFIGS / "trainer/multi-node.yaml", "--trainer.strategy.init_args.timeout", "0:00:01"],
        {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1", "NODE_RANK": "1"},
        "the processes did not meet at 127.0.0.1:1 in time",
    ),
    "alone": (
        ["--config", CONFIGS / "trainer/multi-node.yaml", "--trainer.strategy.init_args.timeout", "0:00:01"],
        {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0", "NODE_RANK": "0"},
        "1/2 clients joined",
    ),
}


@pytest.mark.processes
def test_faults_are_one_line_and_exit_code_two(tmp_path):
    usual = ["fit", "--config", CONFIGS / "experiment/and-gradient.yaml", "--out", tmp_path / "run", *BRIEF]
    faults = dict(FAULTS)
    if torch.cuda.is_available():
        del faults["no such device"]
    calls = [([str(word) for word in (*usual, *words)], where) for words, where, _ in faults.values()]
    (results,) = processes.run(1, _commands, calls)
    for (code, errors), (_, _, message) in zip(results, faults.values(), strict=True):
        assert (code, errors.count("\n")) == (2, 1), errors
        assert message in errors
