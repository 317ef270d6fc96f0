"""Commands that are killed at any moment: every file is whole and of one run or absent, and the next command works.

A new command joins by an entry in ``COMMANDS``.
"""

import hashlib
import random
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import harness
import numpy as np
import pytest
import torch

import torchperc as tp
from torchperc.sequences import Tagger

pytestmark = pytest.mark.faults
KILLS = 15 if harness.WHOLE else 2  # of each command
CONFIG = """
seed_everything: 0
trainer: {{max_epochs: 25, enable_progress_bar: false}}
picture_every: 0
out: {folder}
data: {{source: noisy-blobs, options: {{samples: 80, noise: 0.1}}, {batches}, scale: standard}}
model:
  class_path: torchperc.lightning.{module}
  init_args: {options}
"""


@dataclass(frozen=True)
class Command:
    """What is killed and what must hold afterwards.

    ``start`` and ``again`` give the child's function and its arguments, ``result`` what the command leaves behind: None
    if it is not there, an exception if it is not whole.
    """

    start: Callable[[Path], tuple[Any, ...]]
    again: Callable[[Path], tuple[Any, ...]]
    result: Callable[[Path], Any]
    prepare: Callable[[Path], None] = lambda folder: None


def table(path, rows=300):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(rows, 4))
    lines = [",".join([*(f"{v:.6f}" for v in x), "yes" if x[0] + x[1] > 0 else "no"]) for x in X]
    path.write_text("a,b,c,d,label\n" + "\n".join(lines) + "\n")


def digest(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def words(*given):
    return lambda folder: (harness.command, list(given), folder)


def whole(name, load=lambda path: None):
    """What a command leaves as one file, which can be loaded, or None if it is not there."""

    def result(folder):
        path = folder / name
        return (load(path), digest(path))[1] if path.exists() else None

    return result


def learned(folder):
    kinds = {path.name for path in (folder / "run").glob("[!.]*")}
    if not kinds:  # at most the claim of a run that is no more
        return None
    missing = {"results.json", "weights.safetensors", "report.html", "metrics.csv"} - kinds
    assert not missing, f"the run has no {missing}"
    return whole("run/weights.safetensors", tp.FittedModel.load)(folder)


def configured(module, batches, options):
    text = CONFIG.format(folder="run", module=module, batches=batches, options=options)
    return lambda folder: (folder / "config.yaml").write_text(text)


def fitted(folder):
    for path in (folder / "run").glob("*.ckpt"):
        tp.lightning.SafeCheckpointIO().load_checkpoint(path)
    return whole("run/weights.safetensors", tp.FittedModel.load)(folder)


def resume(folder):
    there = (folder / "run" / "last.ckpt").exists()
    more = ["--ckpt_path", "run/last.ckpt"] if there else []
    return harness.command, ["fit", "--config", "config.yaml", *more], folder


def trained(folder):
    net = tp.Perceptron(4, init="normal", seed=0, dtype=torch.float64)
    tp.FittedModel(net, tp.PerceptronHead(), labels=["no", "yes"], names=list("abcd")).save(folder / "m.safetensors")
    table(folder / "new.csv", rows=60_000)


def conll(folder):
    lines = ("".join(f"{word}\t{tag}\n" for word, tag in each) for each in tp.data.tagged_sentences(400))
    (folder / "t.conll").write_text("\n".join(lines))


def tagger(folder):
    Tagger.fit([[("the", "D"), ("dog", "N")], [("a", "D")]], epochs=2).save(folder / "m.safetensors")
    (folder / "new.txt").write_text("The dog. A dog in the garden.\n" * 20_000)


LEARN = ("learn", "table.csv", "--out", "run", "--epochs", "3", "--seed", "1")
FIT, APPLY = words("fit", "--config", "config.yaml"), words("apply", "m.safetensors", "new.csv", "-o", "out.csv")
TAG = ("tag", "fit", "t.conll", "--out", "m.safetensors", "--epochs", "3")
TAG_NEW = words("tag", "apply", "m.safetensors", "new.txt", "-o", "out.conll")
COMMANDS = {
    "learn": Command(words(*LEARN), words(*LEARN, "--overwrite"), learned, lambda folder: table(folder / "table.csv")),
    "fit by gradient": Command(FIT, resume, fitted, configured("LitClassifier", "batch_size: 8, order: shuffled", "{head: logistic, lr: 0.5, net: {class_path: torchperc.Perceptron, init_args: {init: normal, seed: 1}}}")),
    "fit by rule": Command(FIT, resume, fitted, configured("LitRule", "batch_size: full", "{order: shuffled, select: averaged, net: {class_path: torchperc.Perceptron}}")),
    "apply": Command(APPLY, APPLY, whole("out.csv"), trained),
    "tag fit": Command(words(*TAG), words(*TAG, "--overwrite"), whole("m.safetensors", Tagger.load), conll),
    "tag apply": Command(TAG_NEW, TAG_NEW, whole("out.conll"), tagger),
}  # fmt: skip


def outcomes(name, given, tmp_path, count):
    """Kill a command at so many moments; each moment and signal, with the outcome and what is wrong."""
    whole = tmp_path / "whole"
    whole.mkdir()
    given.prepare(whole)
    started = time.monotonic()
    child = harness.Child(tmp_path / "whole-log", *given.start(whole))
    assert child.wait() == 0, child.said("stderr")
    lasts = time.monotonic() - started
    expected = given.result(whole)
    assert expected is not None
    draw = random.Random(name)
    moments = [(k, draw.uniform(0.02, 1.1) * lasts, (signal.SIGKILL, signal.SIGTERM)[k % 2]) for k in range(count)]
    found = harness.side_by_side(lambda moment: outcome(given, tmp_path, expected, *moment), moments)
    cases = (f"{name} #{k}, {how.name} at {moment:.2f} of {lasts:.2f} s" for k, moment, how in moments)
    return [(case, *each) for case, each in zip(cases, found, strict=True)]


def outcome(given, tmp_path, expected, number, moment, how):
    """Kill a command once, look at what it left, and run the next one."""
    folder = tmp_path / str(number)
    folder.mkdir()
    given.prepare(folder)
    code = harness.Child(tmp_path / f"{number}-log", *given.start(folder)).stop(moment, how)
    if code is None:
        return harness.HANG, f"no end after {how.name}"
    try:
        found = given.result(folder)
    except Exception as error:
        return harness.SILENT, f"left half-written: {error!r}"
    if code == 0 and found is None:
        return harness.SILENT, "it said that all is well, and left nothing"
    if found not in (None, expected):
        return harness.SILENT, "what it left is not of this run"
    if how == signal.SIGTERM and (left := [path.name for path in folder.rglob("*.part*")]):
        return harness.SILENT, f"SIGTERM left {left[0]} behind"
    after = harness.Child(tmp_path / f"{number}-again", *given.again(folder))
    code = after.wait()
    if code != 0:
        kind = harness.HANG if code is None else harness.SIGNAL if code < 0 else harness.INTERNAL
        return kind, f"the next command fails with {code}: {after.said('stderr')[-200:]}"
    if given.result(folder) != expected:
        return harness.SILENT, "the next command gives other bytes"
    return harness.RIGHT, ""


@pytest.mark.parametrize("name", COMMANDS)
def test_killed_at_any_moment(name, tmp_path):
    assert not harness.faults(outcomes(name, COMMANDS[name], tmp_path, KILLS))
