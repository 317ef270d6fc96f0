"""Nothing lost: a run that is cut, killed or told to stop goes on from its checkpoint as if nothing had happened."""

import contextlib
import functools
import itertools
import os
import pty
import random
import resource
import shutil
import signal
import sys
import tempfile
import termios
import time
import traceback
import warnings
from pathlib import Path
from types import SimpleNamespace

import pytest
import pytorch_lightning as pl
import resume_worker
import torch
from resume_worker import BATCHES, KINDS, noisy, run, weights
from torch.utils.data import DataLoader, TensorDataset

import torchperc as tp
from torchperc._files import locked_folder
from torchperc.cli import main
from torchperc.lightning import (
    CheckpointError,
    LitClassifier,
    LitRule,
    SafeCheckpointIO,
    TabularDataModule,
    make_trainer,
)
from torchperc.lightning.callbacks import SaveOnSignal

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:.*LeafSpec.* is deprecated:FutureWarning"),  # Lightning 2.6 on torch 2.13
    pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning"),  # Python 3.12 and later
]
CONFIGS = Path(__file__).parents[2] / "configs"
EPOCHS, LONGER = 4, 6  # the longer runs have more moments to be hit at
RULES = [kind for kind in KINDS if kind.startswith(("shuffled", "random-mistake"))]
CODES = {signal.SIGTERM: 143, signal.SIGINT: 130, signal.SIGHUP: 129}


class CutError(Exception):
    pass


class Metrics(pl.Callback):
    def __init__(self):
        self.by_epoch = {}

    def on_train_epoch_end(self, trainer, *_):
        self.by_epoch[trainer.current_epoch] = {
            k: float(v)
            for k, v in trainer.callback_metrics.items()
            if k != "step"  # Board's x-axis
        }


class At(pl.Callback):
    """Acts once: in the hook of that name when so many steps are made, or that many calls in Python or C later."""

    def __init__(self, hook, step, action, calls=0):
        self.step, self.action, self.calls = step, action, calls
        setattr(self, hook, self.look)

    def look(self, trainer, *_, **__):
        if self.action is None or trainer.global_step < self.step:
            return
        action, self.action, calls = self.action, None, itertools.count(1)
        if not self.calls:
            action(trainer)
            return

        def count(*_):
            if next(calls) == self.calls:
                sys.setprofile(None)
                action(trainer)

        sys.setprofile(count)


def send(number):
    return lambda trainer: os.kill(os.getpid(), number)


def ended(module, trainer, metrics):
    """All that a run leaves behind, to be compared."""
    result = getattr(module, "result", None)
    return SimpleNamespace(
        weights=weights(module),
        epochs=trainer.current_epoch,
        optimizers=[flat(optimizer.state_dict()) for optimizer in trainer.optimizers],
        schedulers=[config.scheduler.state_dict() for config in trainer.lr_scheduler_configs],
        metrics=metrics.by_epoch,
        rule=result and (list(result.log), result.history, result.verdict, result.cycle, result.select),
    )


def flat(state):
    if isinstance(state, torch.Tensor):
        return state.tolist()
    if isinstance(state, dict):
        return {key: flat(value) for key, value in state.items()}
    return [flat(value) for value in state] if isinstance(state, list) else state


@functools.cache
def unbroken(kind, epochs=EPOCHS):
    metrics = Metrics()
    with tempfile.TemporaryDirectory() as folder:
        return ended(*run(folder, kind, epochs, extra=[metrics], logger=False), metrics)


def cut(folder, kind, hook, step, epochs=EPOCHS, ckpt=None):
    """Save and break off, in the hook of that name, when so many steps are made."""
    path = folder / f"{hook}.ckpt"

    def save(trainer):
        trainer.save_checkpoint(path)
        raise CutError

    with pytest.raises(CutError):
        run(folder, kind, epochs, ckpt, [At(hook, step, save)], logger=False)
    return path


def resumed(folder, kind, path, epochs=EPOCHS):
    metrics = Metrics()
    return ended(*run(folder, kind, epochs, path, [metrics], logger=False), metrics)


def last(folder):
    return SafeCheckpointIO().load_checkpoint(folder / "last.ckpt")


def same_end(one, other):
    for what in ("weights", "epochs", "optimizers", "schedulers", "rule"):
        assert getattr(one, what) == getattr(other, what), what


# --- cut in this process, at many places ---


def middles(seed, count=2):
    """Seeded steps after which an epoch is not over."""
    steps = [step for step in range(1, EPOCHS * BATCHES) if step % BATCHES]
    return sorted(random.Random(seed).sample(steps, count))


GRADIENT = ["steps", "drawing", "sample", "sample steps"]


@pytest.mark.parametrize("kind", [*GRADIENT, "best", "best in training", "epsilon"])
def test_a_run_cut_in_the_middle_of_an_epoch_ends_the_same(tmp_path, kind):
    for step in middles(kind):
        again = resumed(tmp_path, kind, cut(tmp_path, kind, "on_train_batch_end", step))
        same_end(again, unbroken(kind))
        later = range(step // BATCHES, unbroken(kind).epochs)  # the epoch that was cut, too
        assert {e: again.metrics[e] for e in later} == {e: unbroken(kind).metrics[e] for e in later}


@pytest.mark.parametrize("kind", [*GRADIENT, "sample full", "best", "best in training", "epsilon"])
def test_a_run_cut_at_the_end_of_an_epoch_ends_the_same(tmp_path, kind):
    one = 1 if kind == "sample full" else BATCHES
    for epoch in (1, 2) if kind == "epsilon" else (1, 3):
        again = resumed(tmp_path, kind, cut(tmp_path, kind, "on_train_epoch_end", epoch * one))
        same_end(again, unbroken(kind))
        assert again.metrics == {e: found for e, found in unbroken(kind).metrics.items() if e >= epoch}


@pytest.mark.parametrize("kind", [*RULES, "cycling", "separated"])
def test_a_rule_cut_after_any_epoch_has_the_same_result(tmp_path, kind):
    epochs = 20 if kind in ("cycling", "separated") else EPOCHS
    whole = unbroken(kind, epochs)
    assert whole.rule[2].name == {"cycling": "CYCLING", "separated": "SEPARATED"}.get(kind, "BUDGET")
    assert 2 < whole.epochs < 20
    for epoch in range(1, whole.epochs, 2 if epochs == EPOCHS else 3):
        again = resumed(tmp_path, kind, cut(tmp_path, kind, "on_train_epoch_end", epoch, epochs), epochs)
        same_end(again, whole)
        assert again.metrics == {e: found for e, found in whole.metrics.items() if e >= epoch}


@pytest.mark.parametrize("kind", ["adam", "best", "epsilon", "separated", "cycling", *RULES])
def test_a_run_cut_after_its_last_epoch_is_only_finished(tmp_path, kind):
    epochs = 20 if kind in ("cycling", "separated") else EPOCHS
    whole = unbroken(kind, epochs)
    step = whole.epochs if kind in ("cycling", "separated", *RULES) else whole.epochs * BATCHES
    again = resumed(tmp_path, kind, cut(tmp_path, kind, "on_train_epoch_end", step, epochs), epochs)
    assert (again.weights, again.rule) == (whole.weights, whole.rule)
    # a run that had stopped by itself is not begun again, so Trainer does not get to count the epoch it was cut in
    assert again.epochs == whole.epochs - (kind in ("epsilon", "separated", "cycling"))


@pytest.mark.parametrize("workers", [0, 1])
def test_a_plain_loader_that_shuffles_goes_on_in_the_same_order(tmp_path, workers):
    X, y = tp.data.noisy_blobs(40, seed=1)

    def fit(folder, epochs, seed, ckpt=None):
        torch.manual_seed(seed)
        module = LitClassifier(resume_worker.linear(), "logistic", lr=0.5)
        options = {"enable_progress_bar": False, "accelerator": "cpu", "picture_every": 0}
        loader = DataLoader(TensorDataset(X.float(), y), batch_size=8, shuffle=True, num_workers=workers)
        make_trainer(tmp_path / folder, epochs, **options).fit(module, loader, ckpt_path=ckpt)
        return weights(module)

    whole, half = fit("whole", 4, seed=0), fit("cut", 2, seed=0)
    assert half != whole
    assert fit("cut", 4, seed=1, ckpt=tmp_path / "cut" / "last.ckpt") == whole


def test_a_rule_saved_again_before_its_first_epoch_keeps_its_log(tmp_path):
    kind = "shuffled averaged"
    path = cut(tmp_path, kind, "on_train_epoch_end", 3)
    path = cut(tmp_path, kind, "on_train_start", 3, ckpt=path)
    same_end(resumed(tmp_path, kind, path), unbroken(kind))


# --- killed ---


def forked(work, errors=None):
    """Exit code of a child process that does the work, negative for a signal; its stderr goes to a file."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.dup2(os.open(errors, os.O_WRONLY | os.O_CREAT | os.O_TRUNC) if errors else null, 2)
    return in_child(work)


def in_child(work):
    """Do the work as in a process of its own, then leave it; never back into the test run."""
    code = 1
    try:
        torch.set_num_threads(1)  # the parent's threads are not in the child, which would wait for them for ever
        for number in CODES:
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
        warnings.resetwarnings()
        for kind in (DeprecationWarning, PendingDeprecationWarning, ImportWarning, ResourceWarning):
            warnings.simplefilter("ignore", kind)
        sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w")
        work()
        code = 0
    except SystemExit as leave:
        code = leave.code if isinstance(leave.code, int) else int(leave.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


# --- told to stop ---


@pytest.mark.parametrize("number", CODES, ids=lambda number: number.name)
@pytest.mark.parametrize("kind", ["adam", pytest.param("sample", marks=pytest.mark.faults), "shuffled averaged"])
def test_a_signal_at_any_moment_saves_first(tmp_path, kind, number):
    draw, batches = random.Random(f"{kind} {number}"), 1 if " " in kind else BATCHES
    step, errors = draw.randrange((LONGER - 2) * batches), tmp_path / "errors"
    stop = At("on_train_batch_start", step, send(number), calls=draw.randrange(1, 1500))
    assert forked(lambda: run(tmp_path, kind, LONGER, extra=[stop], logger=False), errors) == CODES[number]
    assert errors.read_text() == ""
    assert step < last(tmp_path)["global_step"] < LONGER * batches
    same_end(resumed(tmp_path, kind, tmp_path / "last.ckpt", LONGER), unbroken(kind, LONGER))


HOOKS = ["on_train_batch_start", "on_validation_start", "on_train_epoch_end"]


@pytest.mark.parametrize("hook", HOOKS)
@pytest.mark.parametrize("kind", ["best", "sample steps", "early"])
def test_a_signal_at_the_end_of_an_epoch_loses_nothing_of_it(tmp_path, kind, hook):
    stop = At(hook, 2 * BATCHES - 1, send(signal.SIGTERM))
    epochs = 30 if kind == "early" else EPOCHS
    if kind == "early":
        assert 3 < unbroken(kind, epochs).epochs < 30
    assert forked(lambda: run(tmp_path, kind, epochs, extra=[stop], logger=False)) == 143
    assert last(tmp_path)["global_step"] == 2 * BATCHES
    same_end(resumed(tmp_path, kind, tmp_path / "last.ckpt", epochs), unbroken(kind, epochs))


@pytest.mark.parametrize("number", CODES, ids=lambda number: number.name)
def test_a_signal_as_training_starts_is_not_swallowed(tmp_path, number):
    stop = At("on_train_start", 0, send(number))
    code = -number if number == signal.SIGHUP else CODES[number]  # nobody listens yet
    assert forked(lambda: run(tmp_path, "adam", EPOCHS, extra=[stop], logger=False)) == code


def test_signal_handlers_are_as_before_after_a_run_a_cut_and_a_refusal(tmp_path):
    before = [signal.getsignal(number) for number in CODES]
    run(tmp_path, "adam", 1, logger=False)
    assert [signal.getsignal(number) for number in CODES] == before
    cut(tmp_path, "adam", "on_train_batch_end", 2)
    assert [signal.getsignal(number) for number in CODES] == before
    with pytest.raises(CheckpointError):
        run(tmp_path, "adam", 1, tmp_path / "none.ckpt", logger=False)
    assert [signal.getsignal(number) for number in CODES] == before


def in_terminal(work, *steps):
    """Exit code and output of a child process in a terminal where Ctrl-C is pressed at each word that it prints."""
    child, terminal = pty.fork()
    if not child:
        in_child(work)
    modes = termios.tcgetattr(terminal)
    modes[3] |= termios.NOFLSH  # else what is printed just when Ctrl-C is pressed may be thrown away
    termios.tcsetattr(terminal, termios.TCSANOW, modes)
    said, steps = b"", list(steps)
    with contextlib.suppress(OSError):  # how a terminal says that nobody is there any more
        while True:
            said += os.read(terminal, 1000)
            if steps and steps[0] in said:
                steps.pop(0)
                os.write(terminal, b"\x03")
    os.close(terminal)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), said.decode()


def stuck(word, condition=lambda: True):
    """Something that does not end for long; it prints a word when a condition holds."""
    end = time.monotonic() + 60
    while not condition() and time.monotonic() < end:
        pass
    os.write(1, word)
    while time.monotonic() < end:
        pass


def test_a_second_ctrl_c_does_not_wait(tmp_path, monkeypatch):
    def step(module, *_):
        os.write(1, b"training")
        saving = next(c for c in module.trainer.callbacks if isinstance(c, SaveOnSignal))
        stuck(b"told once", lambda: saving._received)

    monkeypatch.setattr(LitClassifier, "training_step", step)
    code, said = in_terminal(lambda: main(command(tmp_path / "run")), b"training", b"told once")
    assert code == 130
    assert said.splitlines()[-1].endswith("torchperc: interrupted")
    assert "Traceback" not in said


@pytest.mark.parametrize("number", CODES, ids=lambda number: number.name)
def test_a_command_told_to_stop_says_so_and_clears_away(tmp_path, monkeypatch, number):
    monkeypatch.setattr("torchperc.rules.run.RuleRun.epoch", lambda *_: send(number)(None))
    code, said = called(tmp_path, "learn", "iris", "--out", str(tmp_path / "run"))
    assert code == CODES[number]
    assert said.startswith("torchperc: ")
    assert said.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["errors"]


def test_signals_that_are_ignored_stay_so(tmp_path, monkeypatch):
    def hung_up():
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as by nohup
        monkeypatch.setattr(LitClassifier, "on_train_epoch_start", lambda *_: send(signal.SIGHUP)(None))
        main(command(tmp_path / "run", "--trainer.max_epochs", "2"))

    assert forked(hung_up, tmp_path / "errors") == 0
    assert (tmp_path / "errors").read_text() == ""


# --- the disk ---


def limited(words):
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, resource.RLIM_INFINITY))
    main(words)


def test_a_full_disk_is_one_line_and_what_was_saved_stays(tmp_path):
    folder = tmp_path / "run"
    words = command(folder, "--trainer.max_epochs", "1000")
    code = forked(lambda: limited(words), tmp_path / "errors")
    said = (tmp_path / "errors").read_text()
    assert (code, said.count("\n")) == (2, 1), said
    assert "cannot write the event files of the run (File too large); free some space" in said
    assert last(folder)["epoch"] > 0


# --- by the command line ---


def command(folder, *words, config="moons-mlp"):
    return ["fit", "--config", str(CONFIGS / f"experiment/{config}.yaml"), "--out", str(folder), *BRIEF, *words]


BRIEF = ["--picture_every", "0", "--trainer.accelerator", "cpu", "--trainer.enable_progress_bar", "false"]


def called(tmp_path, *words):
    errors = tmp_path / "errors"
    return forked(lambda: main(words), errors), errors.read_text()


# --- what is not resumed from ---


def fit(folder, data, ckpt=None, module=None, epochs=2):
    module = module or LitClassifier(tp.Perceptron(2), "logistic")
    make_trainer(folder, epochs, enable_progress_bar=False, logger=False).fit(module, data, ckpt_path=ckpt)
    return folder / "last.ckpt"


@functools.cache
def good():
    with tempfile.TemporaryDirectory() as folder:
        return fit(Path(folder), noisy()).read_bytes()


def by_lightning(path):
    run = pl.Trainer(
        max_epochs=1, accelerator="cpu", logger=False, enable_progress_bar=False, enable_model_summary=False,
        default_root_dir=path.parent, enable_checkpointing=False, log_every_n_steps=1,
    )  # fmt: skip
    run.fit(LitClassifier(tp.Perceptron(2), "logistic"), noisy())
    run.save_checkpoint(path)


BAD = {
    "cut short": lambda path: path.write_bytes(good()[:-1]),
    "text": lambda path: path.write_text("weights: [1, 2]\n" * 50),
    "lightning's": by_lightning,
    "folder": lambda path: path.mkdir(),
    "missing": lambda path: None,
}
FOREIGN = {
    "no trainer's": lambda path: SafeCheckpointIO().save_checkpoint({"state_dict": {}}, path),
    "another net's": lambda path: fit(path.parent, noisy(), module=LitClassifier(tp.MLP(2), "logistic")).rename(path),
    "another optimizer's": lambda path: fit(
        path.parent, noisy(), module=LitClassifier(tp.Perceptron(2), "logistic", optimizer=torch.optim.Adam)
    ).rename(path),
}


@pytest.mark.parametrize("kind", [*BAD, *FOREIGN])
def test_a_bad_checkpoint_is_refused_with_one_clear_error(tmp_path, kind):
    tp.lightning.quiet()
    path = tmp_path / "bad.ckpt"
    (BAD | FOREIGN)[kind](path)
    module = LitClassifier(tp.Perceptron(2, init="normal", seed=4), "logistic")
    before = weights(module)
    with pytest.raises(CheckpointError, match=r"bad\.ckpt" if kind in BAD else None):
        fit(tmp_path / "run", noisy(), path, module, epochs=4)
    assert weights(module) == before


OTHERS = {
    "split": {"seed": 4},
    "shares": {"split": (0.5, 0.2, 0.3)},
    "samples": {"options": {"samples": 60, "noise": 0.2, "seed": 1}},
    "labels": {"options": {"samples": 60, "noise": 0.1}},
}


BY = {"gradient": lambda: LitClassifier(tp.Perceptron(2)), "rule": lambda: LitRule(tp.Perceptron(2))}


@functools.cache
def saved(by):
    with tempfile.TemporaryDirectory() as folder:
        return fit(Path(folder), noisy(), module=BY[by]()).read_bytes()


@pytest.mark.parametrize("kind", [*OTHERS, "source"])
@pytest.mark.parametrize("by", ["gradient", "rule"])
def test_a_run_does_not_go_on_with_other_data(tmp_path, by, kind):
    path = tmp_path / "last.ckpt"
    path.write_bytes(saved(by))
    other = TabularDataModule("moons", {"samples": 60}) if kind == "source" else noisy(**OTHERS[kind])
    with pytest.raises(ValueError, match=r"not the data the checkpoint was made on|belongs to other data"):
        fit(tmp_path / "other", other, path, BY[by](), epochs=4)


# --- one run per folder ---


def content(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A run that came to its end."""
    folder = tmp_path_factory.mktemp("finished")
    assert called(folder.parent, *command(folder, "--trainer.max_epochs", "2")) == (0, "")
    return folder


def rerun(finished, folder, before=lambda: None, *words):
    """Exit code and stderr of a second run into the folder of the first, with another config."""
    shutil.copytree(finished, folder)

    def work():
        before()
        main(command(folder, "--trainer.max_epochs", "4", "--seed_everything", "1", *words))

    return forked(work, folder.parent / "errors"), (folder.parent / "errors").read_text()


def test_a_folder_in_use_takes_no_second_run(finished, tmp_path):
    with locked_folder(tmp_path / "run"):
        code, said = called(tmp_path, *command(tmp_path / "run"))
        assert [path.name for path in (tmp_path / "run").iterdir()] == [".torchperc-lock"]
    assert (code, said.count("\n")) == (2, 1)
    assert "is in use by another process; wait for it" in said


def die(epoch):
    """Killed as an epoch begins."""

    def step(module, *_):
        if module.trainer.current_epoch == epoch:
            os.kill(os.getpid(), signal.SIGKILL)
        return real(module, *_)

    real = LitClassifier.training_step
    return lambda: setattr(LitClassifier, "training_step", step)


def test_a_second_run_killed_before_it_saved_leaves_the_first(finished, tmp_path):
    folder = tmp_path / "run"
    assert rerun(finished, folder, die(0))[0] == -signal.SIGKILL
    found = content(folder)
    assert found.pop(".torchperc-lock") == b""
    assert {name: found[name] for name in content(finished)} == content(finished)


def test_a_second_run_killed_after_it_saved_is_the_only_one(finished, tmp_path):
    folder = tmp_path / "run"
    assert rerun(finished, folder, die(1))[0] == -signal.SIGKILL
    assert not (folder / "weights.safetensors").exists()
    assert last(folder)["epoch"] == 0
    assert "seed_everything: 1" in (folder / "config.yaml").read_text()
    assert len(list(folder.glob("events*"))) == 1
    assert not set(folder.glob("events*")) & set(finished.glob("events*"))


def test_a_second_run_that_cannot_save_leaves_the_first(finished, tmp_path):
    def limit():
        resource.setrlimit(
            resource.RLIMIT_FSIZE, ((finished / "last.ckpt").stat().st_size // 2, resource.RLIM_INFINITY)
        )

    folder = tmp_path / "run"
    code, said = rerun(finished, folder, limit, "--trainer.logger", "false")
    assert (code, said.count("\n")) == (2, 1), said
    assert "File too large" in said
    assert {name: content(folder)[name] for name in content(finished)} == content(finished)


def test_a_run_that_goes_on_keeps_its_curves_and_drops_its_weights_till_the_end(finished, tmp_path):
    folder = tmp_path / "run"
    more = ["--ckpt_path", str(folder / "last.ckpt")]
    assert rerun(finished, folder, die(3), *more)[0] == -signal.SIGKILL
    assert last(folder)["epoch"] == 2
    assert not (folder / "weights.safetensors").exists()
    assert len(list(folder.glob("events*"))) == 2
