"""Checkpoints and exported weights: whole or not there, checked before they are believed, and free of code."""

import enum
import errno
import io
import os
import pickle
import random
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from pytorch_lightning import LightningModule, Trainer
from pytorch_lightning.callbacks import EarlyStopping, ModelCheckpoint
from safetensors.torch import load_file, save_file
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import torchperc as tp
from torchperc.lightning import CheckpointError, SafeCheckpointIO
from torchperc.lightning.checkpoints import _seal, plain
from torchperc.model import load_safetensors, save_safetensors

pytestmark = pytest.mark.filterwarnings("ignore:.*(does not have many workers|exists and is not empty|LeafSpec)")


class Colour(enum.Enum):
    RED = "red"


HALF = np.float64(0.5)


class Tiny(LightningModule):
    def __init__(self, lr=0.1, source=Path("a/b"), gamma=HALF, colour=Colour.RED):
        super().__init__()
        self.save_hyperparameters()
        self.net = nn.Linear(3, 1)

    def training_step(self, batch, _):
        x, y = batch
        loss = (self.net(x).squeeze(-1) - y).square().mean()
        self.log("loss", loss, on_step=False, on_epoch=True)
        return loss

    def test_step(self, batch):
        self.net(batch[0])

    def configure_optimizers(self):
        optimizer = torch.optim.Adam(self.parameters(), lr=self.hparams.lr)
        return [optimizer], [torch.optim.lr_scheduler.MultiStepLR(optimizer, [2, 3])]


def loader():
    generator = torch.Generator().manual_seed(1)
    X = torch.randn(12, 3, generator=generator)
    return DataLoader(TensorDataset(X, X.sum(1)), batch_size=4)


def trainer(folder, epochs, plugin=None, **options):
    callbacks = [
        ModelCheckpoint(folder, filename="{epoch}", monitor="loss", save_top_k=2, **({"save_last": True} | options)),
        EarlyStopping("loss", patience=9, check_on_train_epoch_end=True),
    ]
    return Trainer(
        max_epochs=epochs,
        plugins=[plugin or SafeCheckpointIO()],
        callbacks=callbacks,
        default_root_dir=folder,
        accelerator="cpu",
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )


def tiny(seed=0):
    torch.manual_seed(seed)
    return Tiny()


def saved(folder, **more):
    """A small checkpoint with something of everything in it."""
    net = nn.Linear(3, 1)
    optimizer = torch.optim.Adam(net.parameters())
    net(torch.ones(2, 3)).sum().backward()
    optimizer.step()
    checkpoint = {"state_dict": net.state_dict(), "optimizer_states": [optimizer.state_dict()], "epoch": 2, **more}
    checkpoint["pytorch-lightning_version"] = "2.6.6"
    SafeCheckpointIO().save_checkpoint(checkpoint, folder / "a.ckpt")
    return folder / "a.ckpt", checkpoint


def load(path):
    return SafeCheckpointIO().load_checkpoint(path)


def same(a, b):
    if isinstance(a, torch.Tensor):
        return torch.equal(a, b)
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[k], b[k]) for k in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    return a == b


# --- under a Trainer ---


def test_hyper_parameters_are_plain_and_make_the_module_again(tmp_path):
    net = tiny()
    trainer(tmp_path, 1).fit(net, loader())
    expected = {"lr": 0.1, "source": "a/b", "gamma": 0.5, "colour": "red"}
    hyper = load(tmp_path / "last.ckpt")["hyper_parameters"]
    assert hyper == expected
    assert {type(value) for value in hyper.values()} == {float, str}
    again = Tiny.load_from_checkpoint(tmp_path / "last.ckpt", weights_only=True)
    assert same(again.state_dict(), net.state_dict())
    assert torch.load(tmp_path / "last.ckpt", weights_only=True)["hyper_parameters"] == expected  # torch reads it too
    assert zipfile.ZipFile(tmp_path / "last.ckpt").testzip() is None


def test_a_module_as_hyper_parameter_is_named_before_anything_is_written(tmp_path):
    with pytest.warns(UserWarning, match="is an instance of `nn.Module`"):
        net = Tiny(gamma=nn.Linear(1, 1))
    with pytest.raises(TypeError, match=r"hyper_parameters\.gamma is a Linear, .* save_hyperparameters\(ignore"):
        trainer(tmp_path, 1).fit(net, loader())
    assert not list(tmp_path.iterdir())


# --- a file ---


def test_a_checkpoint_comes_back_as_it_was(tmp_path):
    path, checkpoint = saved(tmp_path, more=[(1, 2.5), None, True, "text"])
    assert same(load(str(path)), plain(checkpoint))
    assert [p.name for p in tmp_path.iterdir()] == ["a.ckpt"]
    assert same(SafeCheckpointIO().load_checkpoint(path, map_location="cpu", weights_only=True), plain(checkpoint))


def test_a_truncation_or_a_flipped_bit_is_refused_wherever_it_is(tmp_path):
    path, _ = saved(tmp_path)
    whole, bits = path.read_bytes(), random.Random(0)
    for at in (*range(0, len(whole) - 100, 11), *range(len(whole) - 100, len(whole))):
        flipped = whole[:at] + bytes([whole[at] ^ 1 << bits.randrange(8)]) + whole[at + 1 :]
        for damaged in (whole[:at], flipped, whole + b"\0"):
            path.write_bytes(damaged)
            with pytest.raises(CheckpointError, match=r"a\.ckpt"):
                load(path)


class Malice:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


def archive(value):
    buffer = io.BytesIO()
    torch.save(value, buffer)
    return buffer.getvalue()


def test_foreign_files_are_refused_and_run_nothing(tmp_path):
    path, trap = tmp_path / "f.ckpt", tmp_path / "touched"
    evil = {"state_dict": {}, "x": Malice(trap)}
    foreign = {
        "empty": b"",
        "text": b"epoch: 3\n" * 50,
        "torch": archive({"state_dict": {}}),
        "pickle": pickle.dumps(evil),
        "evil torch": archive(evil),
        "evil with a checksum": _seal(archive(evil)),
        "checksum alone": _seal(b"PK\0\0"),
        "a pickle with a checksum": _seal(pickle.dumps(evil) + b"\0\0"),
    }
    for name, content in foreign.items():
        path.write_bytes(content)
        with pytest.raises(CheckpointError, match=r"^[^\n]*f\.ckpt[^\n]*$"):
            load(path)
        assert not trap.exists(), name
    torch.load(io.BytesIO(foreign["evil torch"]), weights_only=False)
    assert trap.exists()  # the trap works


def test_there_must_be_a_run_and_a_file(tmp_path):
    path = tmp_path / "a.ckpt"
    for value in ({"weights": torch.ones(1)}, [1, 2], {"state_dict": {}}):
        path.write_bytes(_seal(archive(value)))
        with pytest.raises(CheckpointError, match=r"cannot load .*a\.ckpt: there is no run to resume"):
            load(path)
    path.unlink()
    for missing in (path, tmp_path):
        with pytest.raises(CheckpointError, match=f"cannot read {missing} "):
            load(missing)


# --- plain types ---


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"a": {"b": [0, print]}}, r"^a\.b\[1\] is a builtin_function_or_method, "),
        ({"a": (1, b"x")}, r"^a\[1\] is a bytes, "),
        ({"a": np.zeros(3)}, r"^a is a ndarray, "),
        ({"a": np.longdouble(1)}, r"^a is a longdouble, "),
        ({"a": np.datetime64("2020-01-01")}, r"^a is a date, "),
        ({"a": {Malice: 1}}, r"^the key a\..*Malice.* is a type, "),
        (print, r"^the value is a builtin"),
    ],
)
def test_what_is_not_plain_is_named(value, message):
    with pytest.raises(TypeError, match=message):
        plain(value)


# --- disks that fail ---


def full(*_, **__):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_folder_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("here")
    for folder in (tmp_path / "file", tmp_path / "file" / "deeper"):
        with pytest.raises(OSError, match=f"^cannot write .*: the folder {folder} does not accept it"):
            SafeCheckpointIO().save_checkpoint({"state_dict": {}}, folder / "a.ckpt")
        with pytest.raises(OSError, match=f"^cannot write .*: the folder {folder} does not accept it"):
            save_safetensors(nn.Linear(1, 1), folder / "a.safetensors")
    (tmp_path / "taken.ckpt").mkdir()
    with pytest.raises(OSError, match=r"cannot write .*taken\.ckpt"):
        SafeCheckpointIO().save_checkpoint({"state_dict": {}}, tmp_path / "taken.ckpt")
    with pytest.raises(FileNotFoundError, match="No such file"):
        save_safetensors(nn.Linear(1, 1), tmp_path / "none" / "a.safetensors")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file", "taken.ckpt"]


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_failed_save_keeps_the_old_file(tmp_path, monkeypatch, call):
    path, checkpoint = saved(tmp_path)
    save_safetensors(nn.Linear(3, 1), tmp_path / "w.safetensors")
    before = {p.name: p.read_bytes() for p in tmp_path.iterdir()}
    monkeypatch.setattr(os, call, full)
    with pytest.raises(OSError, match="No space left on device"):
        SafeCheckpointIO().save_checkpoint({**checkpoint, "epoch": 3}, path)
    with pytest.raises(OSError, match=r"w\.safetensors.*No space left on device"):
        save_safetensors(nn.Linear(3, 1), tmp_path / "w.safetensors")
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == before


def test_the_content_is_synced_before_it_takes_the_name_and_the_folder_after(tmp_path, monkeypatch):
    calls = []

    def noted(name, real):
        def call(target, *rest):
            kind = os.readlink(f"/proc/self/fd/{target}") if name == "fsync" else target
            calls.append((name, Path(kind).name.split("-")[:2]))
            return real(target, *rest)

        monkeypatch.setattr(os, name, call)

    noted("fsync", os.fsync)
    noted("replace", os.replace)
    folder = tmp_path / "folder"
    SafeCheckpointIO().save_checkpoint({"state_dict": {}}, folder / "a.ckpt")
    part = [".torchperc", "part"]
    assert calls == [("fsync", part), ("replace", part), ("fsync", ["folder"])]


# --- safetensors ---

NETS = {
    "perceptron": (lambda: tp.Perceptron(4, init="normal"), lambda: nn.Linear(4, 1)),
    "no bias": (lambda: tp.Perceptron(4, bias=False, init="normal"), lambda: nn.Linear(4, 1, bias=False)),
    "many classes": (lambda: tp.MulticlassPerceptron(4, 3, init="normal"), lambda: nn.Linear(4, 3)),
    "double": (lambda: tp.Perceptron(4, init="normal", dtype=torch.float64), lambda: nn.Linear(4, 1).double()),
    "mlp": (lambda: tp.MLP(4, hidden=(3, 2)), lambda: tp.MLP(4, hidden=(3, 2))),
    "bfloat16": (lambda: nn.Linear(4, 1).bfloat16(), lambda: nn.Linear(4, 1).bfloat16()),
    "buffers": (lambda: nn.BatchNorm1d(3), lambda: nn.BatchNorm1d(3)),
}


@pytest.mark.parametrize("name", NETS)
def test_weights_go_to_another_net_and_back(tmp_path, name):
    ours, theirs = (make() for make in NETS[name])
    path = tmp_path / "net.safetensors"
    save_safetensors(ours, path, {"η": "0.1"})
    assert [p.name for p in tmp_path.iterdir()] == [path.name]
    assert load_safetensors(path, theirs) == {"η": "0.1"}
    assert same(dict(ours.state_dict()), dict(theirs.state_dict()))
    fresh = NETS[name][1]()
    fresh.load_state_dict(load_file(path))  # the peer's own reader
    assert same(dict(ours.state_dict()), dict(fresh.state_dict()))
    save_file(theirs.state_dict(), path)  # and its writer, which makes no checksum
    again = NETS[name][0]()
    assert load_safetensors(path, again) == {}
    assert same(dict(ours.state_dict()), dict(again.state_dict()))


def test_tied_and_strided_weights_are_saved(tmp_path):
    net, other = (nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3)) for _ in range(2))
    net[1].weight = net[0].weight
    net[0].bias = nn.Parameter(torch.arange(6.0)[::2])
    save_safetensors(net, tmp_path / "w.safetensors")
    load_safetensors(tmp_path / "w.safetensors", other)
    assert same(dict(net.state_dict()), dict(other.state_dict()))


def exported(tmp_path):
    net = tp.Perceptron(3, init="normal", seed=1)
    save_safetensors(net, tmp_path / "w.safetensors", {"a": "b"})
    return tmp_path / "w.safetensors", net


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: nn.Linear(2, 1), r"does not fit Linear: weight is \(1, 3\) torch.float32 in the file, \(1, 2\)"),
        (lambda: nn.Linear(3, 1).double(), r"bias is \(1,\) torch.float32 in the file, \(1,\) torch.float64"),
        (lambda: nn.Linear(3, 1, bias=False), "bias is .* missing in the net"),
        (lambda: tp.MLP(3, hidden=()), "layers.0.weight is missing in the file.*; weight is .* missing in the net"),
        (lambda: nn.BatchNorm1d(1), "weight is .*; running_mean is missing in the file"),
    ],
)
def test_a_file_that_does_not_fit_is_refused(tmp_path, make, message):
    path, _ = exported(tmp_path)
    net = make()
    before = {name: value.clone() for name, value in net.state_dict().items()}
    with pytest.raises(ValueError, match=message):
        load_safetensors(path, net)
    assert same(dict(net.state_dict()), before)


def test_metadata_is_text_under_names_of_its_own(tmp_path):
    path, net = exported(tmp_path)
    with pytest.raises(TypeError, match=r"found 'lr': 0\.1"):
        save_safetensors(net, path, {"lr": 0.1})
    for name in ("format", "torchperc.checksum"):
        with pytest.raises(ValueError, match=f"metadata name '{name}'"):
            save_safetensors(net, path, {name: "x"})


@pytest.mark.slow
def test_exporting_loads_neither_lightning_nor_safetensors(fresh):
    code = "import sys, torchperc.model.model_file; print({'pytorch_lightning', 'safetensors'} & set(sys.modules))"
    assert fresh(code) == "set()\n"
