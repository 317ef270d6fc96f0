"""Faults of earlier versions, each by the way a user met it."""

import copy
import subprocess
import sys

import numpy as np
import plain
import pytest
import pytorch_lightning as pl
import torch
from plain import TRAIN, VAL, History, fit, loader, table
from pytorch_lightning.callbacks import ModelCheckpoint
from torch.utils.data import DataLoader, TensorDataset

import torchperc as tp
from torchperc.lightning.callbacks import RandomState
from torchperc.lightning.checkpoints import CheckpointError
from torchperc.lightning.metrics import exact_dtype

L = tp.lightning
pytestmark = [pytest.mark.filterwarnings(each) for each in plain.CHATTER]


# --- what a new user tries ---


@pytest.mark.parametrize(
    ("head", "instead"),
    [
        (tp.LogisticLoss(), "logistic"),
        ("bce", "logistic"),
        ("cross_entropy", "logistic"),
        (torch.nn.BCEWithLogitsLoss(), "logistic"),
        (tp.MulticlassPerceptronLoss(), "perceptron"),
        ("mse", "lms"),
    ],
)
def test_a_loss_in_the_place_of_a_head_is_told_its_name(head, instead):
    with pytest.raises(ValueError, match=f"head=.* use head='{instead}'"):
        L.LitClassifier(tp.Perceptron(2), head=head)


@pytest.mark.parametrize("as_given", [torch.tensor, np.array, list])
def test_class_weights_may_be_a_tensor(tmp_path, as_given):
    for make in (L.LitClassifier, L.LitRule):
        runs = []
        for weight in ({-1: 1.0, 1: 5.0}, as_given([1.0, 5.0])):
            lit = make(tp.Perceptron(3), lr=0.5, class_weight=weight)
            fit(tmp_path, lit, loader(TRAIN, 20), epochs=2)
            runs.append(lit.net.weight)
        assert torch.equal(*runs)
    with pytest.raises(ValueError, match="class_weight has 3 factors for 2 classes"):
        fit(tmp_path, L.LitClassifier(tp.Perceptron(3), class_weight=[1, 2, 3]), loader(TRAIN))


def test_a_loaded_rule_knows_its_verdict(tmp_path):
    lit = L.LitRule(tp.Perceptron(2))
    fit(tmp_path, lit, loader(tp.data.gate("AND")), epochs=20, callbacks=[ModelCheckpoint(tmp_path, "kept")],
        enable_checkpointing=True)  # fmt: skip
    found = L.LitRule.load_from_checkpoint(tmp_path / "kept.ckpt").result
    assert (found.verdict, found.mistakes, found.epochs) == (tp.Verdict.SEPARATED, 18, 9)
    assert found.history == lit.result.history
    assert "SEPARATED" in found.sentence


def test_the_learning_rate_is_left_to_its_monitor(tmp_path):
    for lit in (L.LitClassifier(tp.Perceptron(3)), L.LitRule(tp.Perceptron(3))):
        fit(tmp_path, lit, loader(TRAIN), epochs=1)
        assert "lr" not in table(tmp_path)


def test_an_earlier_run_in_the_folder_is_kept(tmp_path):
    def run(epochs, ckpt=None):
        trainer = L.make_trainer(tmp_path, epochs, accelerator="cpu", enable_progress_bar=False)
        trainer.fit(L.LitClassifier(tp.Perceptron(3), lr=0.1 * epochs), loader(TRAIN), ckpt_path=ckpt)
        return (tmp_path / "last.ckpt").read_bytes()

    first = run(1)
    second = run(2)
    assert (tmp_path / "version_0" / "last.ckpt").read_bytes() == first != second
    assert len(list(tmp_path.glob("events.*"))) == len(list((tmp_path / "version_0").glob("events.*"))) == 1
    run(3, tmp_path / "last.ckpt")  # which is resumed where it is
    assert not (tmp_path / "version_1").exists()
    assert len(list(tmp_path.glob("events.*"))) == 2
    run(1)
    assert (tmp_path / "version_1" / "last.ckpt").is_file()


@pytest.mark.parametrize(
    ("x", "error", "message"),
    [
        (torch.zeros(4, 5), ValueError, r"in_features=3.*\(2, 5\)"),
        (torch.zeros(4, 3).double(), TypeError, r"net is torch.float32.*torch.float64"),
        (torch.zeros(4, 3).long(), TypeError, r"net is torch.float32.*torch.int64; use x.to\(torch.float32\)$"),
    ],
)
@pytest.mark.parametrize("net", [tp.Perceptron(3), tp.MLP(3)], ids=["linear", "layers"])
def test_a_batch_that_does_not_fit_is_told_with_the_net(tmp_path, net, x, error, message):
    data = DataLoader(TensorDataset(x, torch.tensor([1, -1, 1, -1])), 2)
    with pytest.raises(error, match=message):
        fit(tmp_path, L.LitClassifier(net), data)


# --- metrics and callbacks ---


def test_a_margin_is_a_distance_or_is_not_logged(tmp_path):
    X, y = tp.data.gate("AND")
    half = L.LitClassifier(tp.Perceptron(2), "lms 0/1", lr=0.1)
    half.net.load_state_dict({"weight": torch.tensor([[3.0, 4.0]]), "bias": torch.tensor([-4.5])})
    fit(tmp_path, half, loader((X, y)), epochs=1)
    distances = y * ((X @ torch.tensor([3.0, 4.0]) - 4.5) - 0.5) / 5
    assert table(tmp_path)["margin"] == [pytest.approx(float(distances.min()))]
    for lit in (L.LitClassifier(tp.MulticlassPerceptron(3, 3)), L.LitRule(tp.MulticlassPerceptron(3, 3))):
        trainer = fit(tmp_path / "many", lit, loader((TRAIN[0], TRAIN[0].argmax(1))), epochs=1)
        assert "margin" not in trainer.callback_metrics


@pytest.mark.parametrize(
    "lit", [L.LitClassifier(tp.Perceptron(3), "logistic"), L.LitClassifier(tp.Perceptron(3), "lms")]
)
def test_a_margin_of_no_numbers_is_none(tmp_path, lit):
    X = TRAIN[0].clone()
    X[7, 1] = torch.nan
    trainer = fit(tmp_path, lit, loader((X, TRAIN[1]), 20), epochs=1)
    assert torch.isnan(trainer.callback_metrics["margin"])
    assert torch.isnan(trainer.callback_metrics["loss/train"])


def test_a_loader_that_uses_its_memory_again_is_measured_batch_by_batch(tmp_path):
    class Reused:
        def __len__(self):
            return 3

        def __iter__(self):
            x, y = torch.empty(20, 3), torch.empty(20, dtype=torch.int64)
            for part in range(0, 60, 20):
                x.copy_(TRAIN[0][part : part + 20])
                y.copy_(TRAIN[1][part : part + 20])
                yield x, y

    runs = [fit(tmp_path, L.LitClassifier(tp.Perceptron(3)), data, epochs=2) for data in (Reused(), loader(TRAIN, 20))]
    assert runs[0].callback_metrics == runs[1].callback_metrics


def test_the_best_epoch_of_a_metric_that_grows(tmp_path):
    data, history, best = loader((TRAIN[0], TRAIN[0].sum(1))), History(), L.RestoreBest("r2/val", mode="max")
    lit = L.LitRegressor(tp.Perceptron(3), lr=0.05)
    fit(tmp_path, lit, data, data, epochs=4, callbacks=[history, best])
    scores = [epoch["r2/val"] for epoch in history.epochs]
    assert torch.equal(lit.net.weight[0], history.weights[scores.index(max(scores))][:3])
    with pytest.raises(ValueError, match="mode='largest'"):
        L.RestoreBest("r2/val", mode="largest")


def test_the_random_state_of_the_device_is_saved_and_restored(monkeypatch):
    class Fake:  # what torch.cuda does for these two calls
        state = torch.arange(4, dtype=torch.uint8)

        def get_rng_state(self):
            return self.state

        def set_rng_state(self, state):
            self.state = state

    fake, callback, checkpoint = Fake(), RandomState(), {}
    monkeypatch.setattr(torch, "get_device_module", lambda device: fake)

    class Strategy:
        root_device = torch.device("cuda", 0)

    class Trainer:
        strategy, global_rank = Strategy, 0

    callback.on_save_checkpoint(Trainer, None, checkpoint)
    drawn, fake.state = torch.rand(3), torch.zeros(4, dtype=torch.uint8)
    callback.on_load_checkpoint(Trainer, None, checkpoint)
    callback.on_fit_start(Trainer, None)
    assert fake.state.tolist() == [0, 1, 2, 3]
    assert torch.equal(torch.rand(3), drawn)


def test_no_double_precision_on_a_device_that_has_none():
    assert exact_dtype(torch.device("mps")) == torch.float32


def test_logging_is_not_told_to_be_for_one_rank(tmp_path, monkeypatch):
    given, log = [], pl.LightningModule.log
    monkeypatch.setattr(
        pl.LightningModule, "log", lambda self, *args, **options: given.append(options) or log(self, *args, **options)
    )
    fit(tmp_path, L.LitClassifier(tp.Perceptron(3)), loader(TRAIN), loader(VAL), epochs=1, callbacks=[L.Board(0)])
    assert given
    assert not any(options.get("rank_zero_only") for options in given)


def test_the_norm_of_a_stream_is_that_of_its_last_weights(tmp_path):
    """Averaging changes the net and not the rule, so the norm is the same."""
    last, averaged = (
        fit(tmp_path / select, L.LitRule(tp.Perceptron(3), select=select), L.SliceLoader(*TRAIN, 20), epochs=2)
        for select in ("last", "averaged")
    )
    assert averaged.callback_metrics["norm"] == last.callback_metrics["norm"]


@pytest.mark.parametrize("make", [L.LitClassifier, L.LitRule])
def test_a_limit_of_batches_holds_for_a_slice_loader(tmp_path, make):
    lit = make(tp.Perceptron(3))
    trainer = fit(tmp_path, lit, L.SliceLoader(*TRAIN, 20), epochs=2, limit_train_batches=2)
    assert trainer.num_training_batches == 2
    assert trainer.global_step == 4


# --- checkpoints ---


@pytest.mark.parametrize("checked", [True, False])
def test_a_flipped_byte_is_noticed_by_load_from_checkpoint(tmp_path, checked):
    torch.manual_seed(0)
    lit = L.LitClassifier(tp.MLP(3, (40,), seed=0))
    plugins = [L.SafeCheckpointIO()] if checked else []
    fit(tmp_path, lit, loader(TRAIN), epochs=1, plugins=plugins, callbacks=[ModelCheckpoint(tmp_path, "kept")],
        enable_checkpointing=True)  # fmt: skip
    content, wrong = (tmp_path / "kept.ckpt").read_bytes(), 0
    expected = copy.deepcopy(lit.state_dict())
    directory = [at + 38 for at in range(len(content)) if content[at : at + 4] == b"PK\1\2"]  # of the zip archive
    for place in [*np.linspace(0, len(content) - 1, 60).astype(int), *directory]:
        flipped = bytearray(content)
        flipped[place] ^= 0x10
        (tmp_path / "flipped.ckpt").write_bytes(flipped)
        try:
            found = L.LitClassifier.load_from_checkpoint(tmp_path / "flipped.ckpt").state_dict()
        except (CheckpointError, RuntimeError):
            continue
        wrong += any(not torch.equal(found[name], values) for name, values in expected.items())
    assert wrong == 0


# --- several processes ---

_PAIR = """
import sys, torch, pytorch_lightning as pl, torchperc as tp
from torch.utils.data import DataLoader, TensorDataset
if __name__ == "__main__":
    X = torch.arange(12.0).reshape(6, 2)
    data = DataLoader(TensorDataset(X, torch.tensor([1, -1, 1, -1, 1, -1])), 2)
    options = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False}
    trainer = pl.Trainer(accelerator="cpu", devices=2, strategy="ddp", max_epochs=1, **options)
    trainer.fit(tp.lightning.LitClassifier(tp.Perceptron(2)), data)
    import atexit
    atexit.register(lambda: None)  # runs first; the group ends in the handler of the module
    atexit._run_exitfuncs()
    assert not torch.distributed.is_initialized()
"""


@pytest.mark.processes
def test_the_group_of_processes_is_ended_before_the_interpreter(tmp_path):
    (tmp_path / "pair.py").write_text(_PAIR)
    done = subprocess.run([sys.executable, "pair.py"], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
