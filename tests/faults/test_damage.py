"""Damaged files: flipped, cut and zeroed bytes are refused in a clear line, or change nothing.

Files of ours have checksums. Tables of other people have none: what is still a table is read as the table it is now.
"""

import hashlib
import random
from pathlib import Path

import harness
import numpy as np
import pyarrow.parquet
import pytest
import pytorch_lightning as pl
import torch
from scipy.sparse import csr_array, save_npz
from torch.utils.data import DataLoader, TensorDataset

import torchperc as tp
from torchperc.model.model_file import load_safetensors, save_safetensors
from torchperc.sequences import Tagger
from torchperc.theory import verifier

pytestmark = pytest.mark.faults
FILES = 120 if harness.WHOLE else 10  # of each kind
ONCE = ["weights #161"]  # found when more files of a kind were drawn; what was once a fault stays in


def model():
    net = tp.MulticlassPerceptron(3, 3, init="normal", seed=0, dtype=torch.float64)
    return tp.FittedModel(net, tp.PerceptronHead(), labels=["a", "b", "c"])


def run():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 3))
    y = np.where(X[:, 0] > 0.1, 1, -1)
    return X, y, tp.RuleTrainer(order="shuffled").fit(tp.Perceptron(3, dtype=torch.float64), X, y)


def made_of(*values):
    """A digest of numbers, texts and tensors."""
    found = hashlib.sha256()
    for value in values:
        array = np.asarray(value.detach() if hasattr(value, "detach") else value)
        found.update(repr((array.dtype.kind, array.shape)).encode() + (array.tobytes() if array.dtype != object else repr(array.tolist()).encode()))  # fmt: skip
    return found.hexdigest()


# --- files of ours: how they are made, and all that is in them ---


def checkpoint(path):
    trainer = pl.Trainer(max_epochs=2, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False, plugins=[tp.lightning.SafeCheckpointIO()])  # fmt: skip
    loader = DataLoader(TensorDataset(*tp.data.gate("AND")), 4)
    trainer.fit(tp.lightning.LitClassifier(tp.Perceptron(2), "logistic"), loader)
    trainer.save_checkpoint(path)


def use_checkpoint(path):
    content = tp.lightning.SafeCheckpointIO().load_checkpoint(path)
    return made_of(*content["state_dict"].values(), content["epoch"], repr(sorted(content["hyper_parameters"])))


def certificate(path):
    tp.theory.separability(*run()[:2]).save(path)


def use_log(path):
    log = tp.MistakeLog.load(path, *run()[:2])
    return made_of(log.sample, log.step, log.coef, log.predicted, log.steps, log.last().weight)


def use_certificate(path):
    read = tp.theory.Certificate.load(path)
    return made_of(read.kind, read.verify(*run()[:2]), str(read))


def verified(path):
    """What the verifier of the standard library says, which reads the data from a table."""
    csv(path.parent / "data.csv")
    try:
        return made_of(verifier.verify_file(str(path), str(path.parent / "data.csv"), "y"))
    except verifier.RejectedError as reason:
        raise harness.RefusedError(str(reason)) from reason


def use_model(path):
    read = tp.FittedModel.load(path)
    return made_of(*read.net.state_dict().values(), read.predict(np.eye(3)), read.names)


def tagger(path):
    Tagger.fit([[("the", "D"), ("dog", "N")], [("a", "D"), ("cat", "N")]], epochs=2).save(path)


def use_tagger(path):
    read = Tagger.load(path)
    return made_of(repr(read.apply([["a", "dog"], ["the", "bird"]])), read.weights.rows, read.weights.trans, read.tags)


def use_weights(path):
    net = tp.MulticlassPerceptron(3, 3).double()
    texts = load_safetensors(path, net)
    return made_of(net.weight, net.bias, repr(texts))


# --- tables ---


def read(path):
    data = tp.data.read(path, **({"target": "y"} if path.suffix == ".npz" else {}))
    X = data.X.toarray() if hasattr(data.X, "toarray") else np.asarray(data.X)
    assert (X.ndim, len(X), np.isfinite(X).all()) == (2, len(data.y), True)
    return made_of(X, data.y, data.labels)


def rows():
    return np.column_stack(run()[:2])


def csv(path):
    np.savetxt(path, rows(), delimiter=",", header="a,b,c,y", comments="")


def svmlight(path):
    path.write_text("".join(f"{int(row[3]):+d} 1:{row[0]:.6f} 3:{row[2]:.6f}\n" for row in rows()))


def parquet(path):
    pyarrow.parquet.write_table(pyarrow.table({name: rows()[:, k] for k, name in enumerate("abcy")}), path)


def use_parts(path):
    whole = tp.data.CsrParts([path])
    return made_of(tp.RuleTrainer(max_epochs=2).fit(tp.Perceptron(3).double(), whole, run()[1]).log.sample)


SEALED = {
    "checkpoint": ("c.ckpt", checkpoint, use_checkpoint),
    "mistake log": ("log.npz", lambda path: run()[2].log.save(path), use_log),
    "certificate": ("proof.json", certificate, use_certificate),
    "certificate, verifier": ("proof.json", certificate, verified),
    "model": ("m.safetensors", lambda path: model().save(path), use_model),
    "tagger": ("t.safetensors", tagger, use_tagger),
    "weights": ("w.safetensors", lambda path: save_safetensors(model().net, path, {"by": "rule"}), use_weights),
}  # fmt: skip
TABLES = {
    "csv": ("t.csv", csv, read),
    "svmlight": ("t.svm", svmlight, read),
    "parquet": ("t.parquet", parquet, read),
    "npy": ("t.npy", lambda path: np.save(path, rows()), read),
    "npz": ("t.npz", lambda path: np.savez(path, X=rows()[:, :3], y=rows()[:, 3]), read),
    "cache in parts": ("X-0.npz", lambda path: save_npz(path, csr_array(np.round(rows()[:, :3]))), use_parts),
}
KINDS = SEALED | TABLES


def damaged(content, draw):
    """The content with a fault, and the fault's name."""
    place, length = draw.randrange(len(content)), draw.choice([1, 2, 8, 64, 512])
    how = draw.choice(["flip", "cut", "zero", "flip", "garbage", "twice", "empty"])
    head, tail = content[:place], content[place + length :]
    worse = {
        "flip": lambda: head + bytes([content[place] ^ (1 << draw.randrange(8))]) + content[place + 1 :],
        "cut": lambda: head,
        "zero": lambda: head + bytes(min(length, len(content) - place)) + tail,
        "garbage": lambda: head + draw.randbytes(length) + tail,
        "twice": lambda: content + head,
        "empty": lambda: b"" if draw.random() < 0.2 else content[place:],
    }
    return worse[how](), f"{how} at {place}, {length} bytes"


class Judged:
    """Makes one damaged file after the other and uses it."""

    def __init__(self, folder):
        self.folder, self.sound = str(folder), {}

    def __call__(self, case):
        kind, seed = case.rsplit(" #", 1)
        name, make, use = KINDS[kind]
        path = Path(self.folder, f"{kind.replace(' ', '-')}-{seed}", name)
        path.parent.mkdir()
        if kind not in self.sound:
            make(path)
            self.sound[kind] = {made.name: made.read_bytes() for made in path.parent.iterdir()}, use(path)
        files, effect = self.sound[kind]
        worse, fault = damaged(files[name], random.Random(case))
        for other in files:
            (path.parent / other).write_bytes(worse if other == name else files[other])
        try:
            found = use(path)
        except AssertionError as error:
            return harness.SILENT, f"{fault}: {error}"
        except Exception as error:
            return harness.outcome_of_error(error), f"{fault}: {type(error).__name__}: {error}"
        if found == effect or worse == files[name] or kind in TABLES:
            return harness.RIGHT, ""
        return harness.SILENT, f"{fault}: read as something else"


@pytest.mark.filterwarnings("ignore")
def test_damaged_files(tmp_path):
    cases = [f"{kind} #{k}" for kind in KINDS for k in range(FILES)] + ONCE
    assert not harness.judge_all(Judged(tmp_path), cases, tmp_path, size=84)


@pytest.mark.filterwarnings("ignore")
def test_what_is_damaged_is_read_when_it_is_sound(tmp_path):
    """Otherwise every refusal would count as a success."""
    for kind, (name, make, use) in KINDS.items():
        path = tmp_path / kind.replace(" ", "-") / name
        path.parent.mkdir()
        make(path)
        assert use(path) == use(path), kind
