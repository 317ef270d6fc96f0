"""Configs and the commands that run from them: every one is instantiated, every experiment runs."""

from pathlib import Path

import pytest
import torch
import yaml
from torch import nn

import torchperc as tp
from torchperc.model.model_file import load_safetensors

CONFIGS = Path(tp.__file__).parent.parent / "configs"
RULE = CONFIGS / "experiment/and-rule.yaml"
EXPERIMENTS = sorted((CONFIGS / "experiment").glob("*.yaml"))
TRAINERS = sorted((CONFIGS / "trainer").glob("*.yaml"))  # tests/lightning/test_ddp.py runs those of several processes
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*LeafSpec.*"),
    pytest.mark.filterwarnings("ignore:LightningCLI's args parameter"),
    pytest.mark.filterwarnings("ignore:Total length of `list` across ranks is zero"),
    pytest.mark.filterwarnings("ignore:You defined a `validation_step`"),
    pytest.mark.filterwarnings("ignore::jsonargparse._deprecated.JsonargparseDeprecationWarning"),
]
QUIET = ("--trainer.enable_progress_bar", "false", "--trainer.accelerator", "cpu", "--picture_every", "0")


@pytest.mark.parametrize("path", EXPERIMENTS, ids=lambda path: path.stem)
def test_every_experiment_runs_one_epoch(call, tmp_path, path):
    words = ("--config", path, "--out", tmp_path / "run", *QUIET, "--trainer.max_epochs", 1)
    code, out, err = call("fit", *words)
    assert (code, err) == (0, "")
    assert "loss/train" in out
    files = {file.name.split(".")[0] for file in (tmp_path / "run").iterdir()}
    assert {"last", "weights", "config", "events"} <= files


@pytest.mark.parametrize("path", TRAINERS, ids=lambda path: path.stem)
def test_every_trainer_goes_with_an_experiment(call, path):
    below = CONFIGS / "experiment/and-gradient.yaml"
    code, out, err = call("fit", "--config", below, "--config", path, "--print_config")
    assert (code, err) == (0, "")
    given, made = yaml.safe_load(path.read_text())["trainer"], yaml.safe_load(out)["trainer"]
    for name in given.keys() - {"max_epochs", "strategy"}:
        assert made[name] == given[name]


def test_and_by_rule_and_by_gradient(call, tmp_path):
    for name in ("and-rule", "and-gradient"):
        code, out, _ = call("fit", "--config", CONFIGS / f"experiment/{name}.yaml", "--out", tmp_path / name, *QUIET)
        assert code == 0
        linear = nn.Linear(2, 1)
        load_safetensors(tmp_path / name / "weights.safetensors", linear)
        assert linear.weight.tolist() == [[3, 2]]
        assert linear.bias.tolist() == [-4]
        if name == "and-rule":
            assert "SEPARATED after 9 epochs and 18 mistakes" in " ".join(out.split())
        assert "training error of the weights kept 0.0 %" in " ".join(out.split())


def test_optimizer_and_scheduler_come_from_the_config(call, tmp_path):
    config = tmp_path / "adam.yaml"
    choice = {
        "lr": None,
        "optimizer": {"class_path": "torch.optim.Adam", "init_args": {"lr": 0.08}},
        "scheduler": {"class_path": "torch.optim.lr_scheduler.StepLR", "init_args": {"step_size": 2, "gamma": 0.5}},
    }
    config.write_text(yaml.safe_dump({"model": {"init_args": choice}}))
    words = ("--config", CONFIGS / "experiment/xor-mlp.yaml", "--config", config, "--out", tmp_path / "run", *QUIET)
    code, _, err = call("fit", *words, "--trainer.max_epochs", 5)
    assert (code, err) == (0, "")
    assert "class_path: torch.optim.Adam" in (tmp_path / "run/config.yaml").read_text()


def test_a_checkpoint_is_validated_tested_and_applied(call, tmp_path):
    words = ("--config", CONFIGS / "experiment/iris-rule.yaml", "--out", tmp_path / "run", *QUIET)
    assert call("fit", *words)[0] == 0
    checkpoint = tmp_path / "run/last.ckpt"
    for command, option in (("validate", "--ckpt_path"), ("test", "--ckpt-path")):
        code, out, _ = call(command, *words, option, checkpoint)
        assert code == 0
        assert f"error/{'val' if command == 'validate' else 'test'}" in out
    code, out, _ = call("predict", *words, "--ckpt_path", checkpoint)
    assert code == 0
    labels = (tmp_path / "run/predictions.csv").read_text().split("\n")
    assert labels[0].strip() == "label"
    assert sum(label.strip() == "setosa" for label in labels) == 50


@pytest.mark.slow
def test_a_regression_stops_by_epsilon_and_predicts_in_its_own_units(call, tmp_path):
    words = ("--config", CONFIGS / "experiment/diabetes-regression.yaml", "--out", tmp_path / "run", *QUIET)
    code, out, err = call("fit", *words)
    assert (code, err) == (0, "")
    figures = dict(line.rsplit(maxsplit=1) for line in out.splitlines()[2:-2])
    assert 10 < int(figures["epochs"]) < 2000
    code, _, _ = call("predict", *words, "--ckpt_path", tmp_path / "run/last.ckpt")
    assert code == 0
    head, *lines = (tmp_path / "run/predictions.csv").read_text().split()
    assert head == "prediction"
    data = tp.lightning.TabularDataModule("diabetes")
    held = data.indices[1]
    error = torch.tensor([float(line) for line in lines], dtype=torch.float64)[held] - data.dataset.y[held]
    assert float(figures["rmse/val"]) == pytest.approx(float(error.square().mean().sqrt()), rel=1e-4)


def test_the_config_kept_with_a_run_makes_the_run_again(call, tmp_path):
    first = ("--config", CONFIGS / "experiment/noisy-averaged.yaml", "--out", tmp_path / "one", *QUIET)
    assert call("fit", *first, "--trainer.max_epochs", 5)[0] == 0
    assert call("fit", "--config", tmp_path / "one/config.yaml", "--out", tmp_path / "two")[0] == 0
    nets = [nn.Linear(2, 1), nn.Linear(2, 1)]
    for net, name in zip(nets, ("one", "two"), strict=True):
        load_safetensors(tmp_path / name / "weights.safetensors", net)
    assert torch.equal(nets[0].weight, nets[1].weight)


@pytest.mark.filterwarnings("default::torchperc.lightning.loader.DivergenceWarning")
def test_a_diverging_run_says_so_in_a_line(call, tmp_path):
    words = ("--config", CONFIGS / "experiment/cancer-lms-epsilon.yaml", "--out", tmp_path / "run", *QUIET)
    code, _, err = call("fit", *words, "--model.init_args.lr", 50)
    assert code == 0
    (line,) = err.splitlines()
    assert line.startswith("torchperc: warning: the run diverged in epoch")
    net = nn.Linear(30, 1)
    load_safetensors(tmp_path / "run/weights.safetensors", net)
    assert torch.isfinite(net.weight).all()


def written(text):
    """A config of its own."""
    return lambda folder: (folder / "config.yaml").write_text(text) and ["--config", folder / "config.yaml"]


WRONG = [
    (["--config", "nowhere.yaml"], "nowhere.yaml"),
    ([], "model"),
    (["--config", RULE, "--model.init_args.ties", "update"], "Option 'ties' is not accepted"),
    (["--config", RULE, "--trainer.max_epoch", "3"], "unrecognized arguments: --trainer.max_epoch 3"),
    (["--config", RULE, "--trainer.max_epochs", "x"], "trainer.max_epochs: Expected a <class 'int'>: found 'x'"),
    (["--config", RULE, "--model.init_args.lr", "0"], "lr=0.0 must be a finite number > 0"),
    (["--config", RULE, "--model.init_args.tie", "x"], "tie='x' is unknown; choose one of"),
    (["--config", RULE, "--data.source", "NOPE"], "source='NOPE' is unknown"),
    (["--config", RULE, "--data.batch_size", "2", "--model.init_args.select", "pocket", *QUIET], "select='pocket'"),
    (["--config", RULE, "--ckpt_path", "none.ckpt", *QUIET], "cannot read none.ckpt"),
    (written("a: ["), "config.yaml"),
    (written("- 1"), "Unexpected config"),
    (written("base: [other]"), "Option 'base' is not accepted"),
    (lambda folder: ["--config", RULE, "--out", written("a file")(folder)[1], *QUIET], "config.yaml"),  # is a file
]


@pytest.mark.parametrize(("words", "message"), WRONG, ids=[message for _, message in WRONG])
def test_wrong_configs_are_one_line_and_exit_code_two(refused, tmp_path, words, message):
    words = words(tmp_path) if callable(words) else words
    assert message in refused("fit", *words, *([] if "--out" in words or not words else ["--out", tmp_path / "run"]))
