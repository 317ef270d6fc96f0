"""Lightning's own callbacks, loggers and options with our modules: each trains, and its values are checked."""

import subprocess
import sys
import textwrap
from functools import partial

import plain
import pytest
import pytorch_lightning as pl
import torch
from plain import TRAIN, VAL, History, board, descent, evaluation, fit, loader, table
from pytorch_lightning import callbacks as stock
from pytorch_lightning.cli import LightningCLI
from pytorch_lightning.tuner import Tuner
from torch.optim.lr_scheduler import ExponentialLR, OneCycleLR, ReduceLROnPlateau, StepLR

import torchperc as tp

L = tp.lightning
pytestmark = [pytest.mark.filterwarnings(each) for each in plain.CHATTER]
LOSS = tp.LogisticLoss()
BATCHES = [(TRAIN[0][i : i + 20], TRAIN[1][i : i + 20]) for i in range(0, 60, 20)]
KINDS = ["gradient", "sample", "rule", "online"]


def made(kind, **options):
    net = tp.Perceptron(3)
    if kind in ("rule", "online"):
        return L.LitRule(net, **options)
    return L.LitClassifier(net, "logistic", lr=0.5, update="batch" if kind == "gradient" else "sample", **options)


def batches(kind):
    return loader(TRAIN, None if kind == "rule" else 20)


def silent(folder, epochs=3):
    return pl.Trainer(max_epochs=epochs, default_root_dir=folder, **plain.QUIET)


# --- callbacks that look at metrics ---


@pytest.mark.parametrize("kind", KINDS)
def test_early_stopping_stops_where_the_validation_loss_says(tmp_path, kind):
    stop = stock.EarlyStopping("loss/val", patience=2)
    trainer = fit(tmp_path, made(kind), batches(kind), loader(VAL), epochs=60, callbacks=[stop])
    losses = table(tmp_path)["loss/val"]
    waited = [
        all(loss >= min(losses[: end - 2]) for loss in losses[end - 2 : end]) for end in range(3, len(losses) + 1)
    ]
    assert waited == [False] * (len(waited) - 1) + [True]
    assert trainer.current_epoch == len(losses) < 60
    assert float(stop.best_score) == min(losses)


@pytest.mark.parametrize("kind", KINDS)
def test_the_best_checkpoints_are_those_of_the_lowest_errors(tmp_path, kind):
    keep = stock.ModelCheckpoint(tmp_path, "{epoch}", monitor="error/val", save_top_k=2)
    weights = History()
    trainer = fit(
        tmp_path, made(kind), batches(kind), loader(VAL), 6, [weights, keep], enable_checkpointing=True
    )  # fmt: skip
    errors = table(tmp_path)["error/val"]
    assert sorted(map(float, keep.best_k_models.values())) == sorted(errors)[:2]
    assert float(keep.best_model_score) == min(errors)
    best = type(trainer.lightning_module).load_from_checkpoint(keep.best_model_path)
    at = int(keep.best_model_path.split("=")[1].split(".")[0])
    assert torch.equal(torch.cat([p.detach().flatten() for p in best.net.parameters()]), weights.weights[at])
    assert evaluation(best.net, VAL, LOSS)[1] == min(errors)


# --- learning rates ---


@pytest.mark.parametrize("kind", ["gradient", "sample"])
@pytest.mark.parametrize(("scheduler", "interval"), [(partial(ExponentialLR, gamma=0.5), "epoch"),
                                                     (partial(OneCycleLR, max_lr=0.5, total_steps=9, cycle_momentum=False), "step"),
                                                     (partial(StepLR, step_size=2, gamma=0.1), "step")])  # fmt: skip
def test_schedulers_of_every_interval(tmp_path, kind, scheduler, interval):
    lit = made(kind, scheduler=scheduler, interval=interval)
    fit(tmp_path, lit, batches(kind), callbacks=[stock.LearningRateMonitor()], log_every_n_steps=1)
    net = tp.Perceptron(3)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.5)
    plan, used = scheduler(optimizer), []
    for _ in range(3):
        for x, y in BATCHES:
            used.append(optimizer.param_groups[0]["lr"])
            if kind == "sample":
                tp.descend(net, tp.LogisticHead(), x, y, used[-1])
            else:
                LOSS(net(x), y).backward()
            optimizer.step()
            optimizer.zero_grad()
            if interval == "step":
                plan.step()
        if interval == "epoch":
            plan.step()
    monitored = [value for _, value in board(tmp_path)["lr-SGD"]]
    assert monitored == pytest.approx(used if interval == "step" else used[::3], rel=1e-6)
    assert torch.allclose(lit.net.weight, net.weight, rtol=1e-6)


@pytest.mark.parametrize("kind", ["gradient", "sample"])
def test_a_scheduler_that_waits_for_the_validation_loss(tmp_path, kind):
    reduce = partial(ReduceLROnPlateau, factor=0.1, patience=0, threshold=0.5)  # a loss has to halve to count as better
    fit(
        tmp_path,
        made(kind, scheduler=reduce, monitor="loss/val"),
        batches(kind),
        loader(VAL),
        epochs=5,
        callbacks=[stock.LearningRateMonitor()],
    )
    lr, best, expected = 0.5, float("inf"), []
    for loss in table(tmp_path)["loss/val"]:
        expected.append(lr)
        better = loss < 0.5 * best
        best, lr = (loss, lr) if better else (best, lr * 0.1)
    assert [value for _, value in board(tmp_path)["lr-SGD"]] == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("kind", ["gradient", "sample"])
def test_the_learning_rate_finder_sets_lr_and_leaves_the_weights(tmp_path, kind):
    lit = made(kind)
    found = Tuner(silent(tmp_path, epochs=-1)).lr_find(lit, batches(kind), num_training=40)
    assert found.results["lr"] == sorted(found.results["lr"])
    assert found.results["lr"][-1] > 1e6 * found.results["lr"][0]
    assert lit.lr == lit.hparams.lr == found.suggestion() != 0.5
    assert not lit.net.weight.any()
    fit(tmp_path, lit, batches(kind), epochs=1)
    assert lit.trainer.optimizers[0].param_groups[0]["lr"] == lit.lr


@pytest.mark.parametrize("kind", ["gradient", "online"])
def test_a_batch_size_that_fits_is_found(tmp_path, kind):
    data = L.TabularDataModule("iris", {"positive": "setosa"}, batch_size=2)
    lit = L.LitRule(tp.Perceptron(4)) if kind == "online" else L.LitClassifier(tp.Perceptron(4), "logistic")
    size = Tuner(silent(tmp_path)).scale_batch_size(lit, datamodule=data, max_trials=3, steps_per_trial=1)
    assert size == data.batch_size == data.hparams.batch_size == 8
    assert not lit.net.weight.any()


def test_lr_is_that_of_an_optimizer_beside_it(tmp_path):
    lit = L.LitClassifier(tp.Perceptron(3), "logistic", optimizer=torch.optim.Adam)
    assert lit.configure_optimizers().param_groups[0]["lr"] == 0.001
    Tuner(silent(tmp_path, epochs=-1)).lr_find(lit, loader(TRAIN, 20), num_training=40)
    assert lit.configure_optimizers().param_groups[0]["lr"] == lit.lr != 0.001
    given = L.LitClassifier(tp.Perceptron(3), lr=0.5, optimizer=partial(torch.optim.Adam, betas=(0.5, 0.9)))
    assert given.configure_optimizers().param_groups[0]["lr"] == given.hparams.lr == 0.5


def test_what_plain_sgd_does_not_do_is_refused(tmp_path):
    def groups(parameters):
        weight, bias = parameters
        return torch.optim.SGD([{"params": [weight], "lr": 0.1}, {"params": [bias], "lr": 0.0}])

    class Adam(L.LitClassifier):
        def configure_optimizers(self):
            return torch.optim.Adam(self.parameters())

    scheduler = partial(OneCycleLR, max_lr=0.5, total_steps=9)  # which sets momentum, too
    modules = {
        "several parameter groups": made_by(optimizer=groups),
        "momentum": made_by(scheduler=scheduler, interval="step"),
        "Adam": Adam(tp.Perceptron(3), update="sample"),
    }
    for what, lit in modules.items():
        with pytest.raises(ValueError, match=what):
            fit(tmp_path, lit)
        assert not lit.net.weight.any()


def made_by(**options):
    return L.LitClassifier(tp.Perceptron(3), update="sample", **options)


def test_an_optimizer_that_asks_for_the_loss_again_counts_each_sample_once(tmp_path):
    lit = L.LitClassifier(tp.Perceptron(3), "logistic", optimizer=partial(torch.optim.LBFGS, lr=0.1, max_iter=5))
    fit(tmp_path, lit, loader(TRAIN), epochs=2)
    assert table(tmp_path)["loss/train"][0] == pytest.approx(float(torch.log(torch.tensor(2.0))))  # of zero weights
    assert table(tmp_path)["mistakes"][0] == (TRAIN[1] == -1).sum()  # a probability of ½ is decided as +1


# --- callbacks that change the training ---


def test_averaged_weights_are_the_mean_of_the_epochs(tmp_path):
    weights, lit = History(), made("gradient")
    average = stock.StochasticWeightAveraging(0.5, swa_epoch_start=2, annealing_epochs=1)
    fit(tmp_path, lit, batches("gradient"), epochs=6, callbacks=[weights, average])
    mean = torch.stack(weights.weights[:-1]).mean(0)  # Lightning averages as an epoch starts, from the second one here
    assert torch.allclose(torch.cat([p.detach().flatten() for p in lit.net.parameters()]), mean, rtol=1e-5)


@pytest.mark.parametrize("kind", ["rule", "online"])
@pytest.mark.parametrize("callback", [stock.StochasticWeightAveraging(0.1), stock.EMAWeightAveraging()])
def test_the_rule_has_averages_of_its_own(tmp_path, kind, callback):
    with pytest.raises(ValueError, match=r"WeightAveraging; use select='averaged'"):
        fit(tmp_path, made(kind), batches(kind), callbacks=[callback])


@pytest.mark.parametrize("kind", ["sample", "rule", "online"])
@pytest.mark.parametrize(
    "option", [{"accumulate_grad_batches": 3}, {"gradient_clip_val": 0.1}, {"precision": "bf16-mixed"}]
)
def test_steps_without_a_batch_gradient_refuse_what_changes_it(tmp_path, kind, option):
    with pytest.raises(Exception, match=rf"not supported for manual optimization|{next(iter(option))}"):
        fit(tmp_path, made(kind), batches(kind), **option)


@pytest.mark.parametrize("kind", ["sample", "rule", "online"])
def test_frozen_parameters_are_not_moved(tmp_path, kind):
    lit = made(kind)
    lit.net.bias.requires_grad_(False)
    with pytest.raises(ValueError, match="requires_grad=False"):
        fit(tmp_path, lit, batches(kind))
    gradient = made("gradient")
    gradient.net.bias.requires_grad_(False)
    fit(tmp_path, gradient, batches("gradient"))
    assert gradient.net.bias.item() == 0 != gradient.net.weight[0, 0].item()


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_whose_time_is_over_logs_what_was_seen(tmp_path, kind):
    trainer = fit(tmp_path, made(kind), batches(kind), epochs=1000, max_time={"microseconds": 1})
    assert trainer.global_step == 1
    assert len(table(tmp_path)["loss/train"]) == 1
    samples = 60 if kind == "rule" else 20
    assert table(tmp_path)["error/train"][0] * samples == pytest.approx(
        round(table(tmp_path)["error/train"][0] * samples)
    )


# --- what is shown ---


@pytest.mark.parametrize("kind", ["gradient", "rule"])
@pytest.mark.parametrize("bar", [stock.RichProgressBar, stock.TQDMProgressBar])
def test_progress_bars_show_loss_and_errors(tmp_path, capsys, kind, bar):
    fit(tmp_path, made(kind), batches(kind), loader(VAL), callbacks=[bar()], enable_progress_bar=True)
    shown = "".join(capsys.readouterr())
    assert all(name in shown for name in ("loss/train", "error/train", "error/val"))


# --- precision, devices, compilation ---


@pytest.mark.parametrize("kind", KINDS)
def test_double_precision_is_that_of_the_plain_loop(tmp_path, kind):
    lit, data = made(kind), tuple(part.double() if part.is_floating_point() else part for part in TRAIN)
    fit(tmp_path, lit, loader(data, None if kind == "rule" else 20), precision="64-true")
    assert lit.net.weight.dtype == torch.float64
    batches64 = [(x.double(), y) for x, y in BATCHES]
    net = tp.Perceptron(3, dtype=torch.float64)
    if kind == "gradient":
        net.weight.data = list(descent(batches64, 3, 0.5, LOSS, dtype=torch.float64))[-1]["w"]
    elif kind == "sample":
        for x, y in batches64 * 3:
            tp.descend(net, tp.LogisticHead(), x, y, 0.5)
    else:
        tp.RuleTrainer(3, engine="reference").fit(net, *data)
    assert torch.allclose(lit.net.weight, net.weight, rtol=1e-12)


def test_mixed_precision_trains_and_logs_in_double_precision(tmp_path):
    lit = made("gradient")
    trainer = fit(tmp_path, lit, batches("gradient"), loader(VAL), precision="bf16-mixed")
    assert lit.net.weight.dtype == torch.float32
    expected = list(descent(BATCHES, 3, 0.5, LOSS))
    assert torch.allclose(lit.net.weight, expected[-1]["w"], rtol=2e-2)
    assert table(tmp_path)["loss/train"] == pytest.approx([epoch["loss/train"] for epoch in expected], rel=2e-2)
    assert all(value.dtype == torch.float64 for value in trainer.callback_metrics.values())


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_compiled_net_learns_the_same(tmp_path, kind):
    lit, inner = made(kind), made(kind)
    net = tp.Perceptron(3)
    net.compile(backend="eager")
    compiled = type(lit)(net, **{name: value for name, value in lit.hparams.items() if name != "net"})
    keep = stock.ModelCheckpoint(tmp_path, "kept")
    trainer = fit(tmp_path / "c", compiled, batches(kind), loader(VAL), callbacks=[keep], enable_checkpointing=True)
    fit(tmp_path / "p", inner, batches(kind), loader(VAL))
    assert table(tmp_path / "c") == table(tmp_path / "p")
    loaded = type(lit).load_from_checkpoint(tmp_path / "kept.ckpt")
    assert type(loaded.net) is tp.Perceptron
    assert torch.equal(loaded.net.weight, inner.net.weight)
    assert torch.equal(torch.cat(trainer.predict(compiled, loader(VAL))), inner.net.predict(VAL[0]))


# --- a LightningCLI of the user's own, and the other name of the package ---


CONFIG = """
model:
  net: {class_path: torchperc.MLP, init_args: {in_features: 4, hidden: [3], num_classes: 3, seed: 1}}
  head: logistic
  optimizer: {class_path: torch.optim.Adam, init_args: {lr: 0.05}}
  scheduler: {class_path: torch.optim.lr_scheduler.StepLR, init_args: {step_size: 2}}
  class_weight: {0: 2.0}
data: {source: iris, scale: standard, batch_size: 30}
trainer: {max_epochs: 4, accelerator: cpu, logger: false, enable_checkpointing: false, enable_progress_bar: false, enable_model_summary: false}
seed_everything: 3
"""


@pytest.mark.filterwarnings("ignore:LightningCLI's args parameter is intended")
@pytest.mark.filterwarnings("ignore::jsonargparse._deprecated.JsonargparseDeprecationWarning")
def test_a_command_line_of_the_users_own(tmp_path):
    config = tmp_path / "config.yaml"
    config.write_text(CONFIG)
    cli = LightningCLI(
        L.LitClassifier, L.TabularDataModule, args=["fit", f"--config={config}", "--model.class_weight={1: 3.0}"],
        save_config_callback=None,
    )  # fmt: skip
    assert cli.model.class_weight == {1: 3.0}
    net = tp.MLP(4, (3,), num_classes=3, seed=1)
    lit = L.LitClassifier(net, "logistic", None, "batch", partial(torch.optim.Adam, lr=0.05),
                          partial(StepLR, step_size=2), class_weight={1: 3.0})  # fmt: skip
    silent(tmp_path, 4).fit(lit, L.TabularDataModule("iris", scale="standard", batch_size=30))
    for ours, theirs in zip(cli.model.net.parameters(), net.parameters(), strict=True):
        assert torch.equal(ours, theirs)
    assert cli.trainer.optimizers[0].param_groups[0]["lr"] == pytest.approx(0.0005)  # after the last step


SCRIPT = """
    import sys, torchperc as tp, lightning.pytorch as pl, pytorch_lightning
    from torch.utils.data import DataLoader, TensorDataset
    data = DataLoader(TensorDataset(*tp.data.gate("AND")), 4)
    for lit in (tp.lightning.LitClassifier(tp.Perceptron(2), lr=1.0), tp.lightning.LitRule(tp.Perceptron(2))):
        trainer = pl.Trainer(
            accelerator="cpu", max_epochs=9, default_root_dir=sys.argv[1], logger=False, log_every_n_steps=1
        )
        trainer.fit(lit, data)
        path = trainer.checkpoint_callback.best_model_path
        print(type(lit).load_from_checkpoint(path).net.weight.tolist(), float(trainer.callback_metrics["mistakes"]))
"""


@pytest.mark.slow
def test_the_lightning_package_that_a_script_imports_first_is_used(tmp_path):
    pytest.importorskip("lightning", reason="the package lightning, beside pytorch_lightning, is not installed")
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(SCRIPT), tmp_path], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "[[3.0, 2.0]] 0.0"
