"""Hyper-parameters are the arguments: a checkpoint gives the same module back, or says what it cannot know."""

import copy
import pickle
from functools import partial

import numpy as np
import plain
import pytest
import torch
from plain import TRAIN, VAL, fit, loader
from pytorch_lightning.callbacks import ModelCheckpoint
from torch import nn
from torch.optim.lr_scheduler import ReduceLROnPlateau, StepLR

import torchperc as tp
from torchperc.lightning import CheckpointError

L = tp.lightning
pytestmark = [pytest.mark.filterwarnings(each) for each in plain.CHATTER]
X = VAL[0]
NETS = {
    "perceptron": lambda: tp.Perceptron(3, init="normal", seed=1),
    "no bias": lambda: tp.Perceptron(3, bias=False, dtype=torch.float64),
    "multiclass": lambda: tp.MulticlassPerceptron(3, 4, init="uniform", seed=2),
    "joint": lambda: tp.JointPerceptron(3, 4, bias=False),
    "mlp": lambda: tp.MLP(3, (4, 2), activation="relu", init="normal", seed=3),
    "many": lambda: tp.MLP(3, (5,), num_classes=4, activation="gelu"),
    "linear": lambda: nn.Linear(3, 1),
}


def data(net, dtype):
    y = TRAIN[1] if net(TRAIN[0].to(dtype)).dim() == 1 or type(net) is nn.Linear else TRAIN[0].argmax(1)
    return TRAIN[0].to(dtype), y


def saved(folder, lit, size=60, epochs=2, **options):
    keep = ModelCheckpoint(folder, "kept")
    dtype = next(lit.net.parameters()).dtype
    train = loader(data(lit.net, dtype), size)
    fit(folder, lit, train, epochs=epochs, callbacks=[keep], enable_checkpointing=True, **options)
    return folder / "kept.ckpt"


def options(lit):
    return {name: value for name, value in lit.hparams.items() if name != "net"}


# --- what comes back ---


@pytest.mark.parametrize("name", list(NETS))
def test_every_net_comes_back_to_the_bit(tmp_path, name):
    net = NETS[name]()
    lit = L.LitClassifier(net, "logistic", lr=0.25)
    loaded = L.LitClassifier.load_from_checkpoint(saved(tmp_path, lit))
    assert type(loaded.net) is type(net)
    assert repr(loaded.net) == repr(net)
    assert {k: v.dtype for k, v in loaded.state_dict().items()} == {k: v.dtype for k, v in lit.state_dict().items()}
    x = X.to(next(net.parameters()).dtype)
    assert torch.equal(loaded(x), lit(x))
    assert torch.equal(loaded.predict_step(x), lit.predict_step(x))
    assert loaded.hparams == lit.hparams


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"head": "lms 0/1", "lr": 1.0},
        {"head": tp.LMSHead("0/1")},
        {"head": tp.PerceptronHead(tie="sign"), "lr": 0.3, "update": "sample"},
        {"head": "logistic", "optimizer": partial(torch.optim.Adam, lr=0.02, betas=(0.8, 0.9))},
        {"head": "logistic", "optimizer": torch.optim.AdamW},
        {"lr": 0.5, "scheduler": partial(StepLR, step_size=2, gamma=0.5), "interval": "step"},
        {"lr": 0.5, "scheduler": partial(ReduceLROnPlateau, patience=3), "monitor": "loss/train"},
        {"class_weight": {1: 2.5, -1: 0.5}},
    ],
)
def test_every_option_of_gradient_descent_comes_back(tmp_path, given):
    lit = L.LitClassifier(tp.Perceptron(3), **given)
    path = saved(tmp_path, lit)
    loaded = L.LitClassifier.load_from_checkpoint(path, weights_only=True)
    assert loaded.head == lit.head
    assert loaded.hparams == lit.hparams
    for name in ("update", "interval", "monitor", "class_weight"):
        assert getattr(loaded, name) == getattr(lit, name)
    assert torch.equal(loaded(X), lit(X))
    # trained on, both make the same steps
    for module in (lit, loaded):
        fit(tmp_path / "on", module, loader(TRAIN, 60), epochs=2)
    assert torch.equal(loaded.net.weight, lit.net.weight)


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"lr": 0.5, "tie": "sign", "bias_step": "radius", "order": "shuffled", "select": "averaged", "seed": 4},
        {"margin": 0.25, "class_weight": {1: 2.0}, "engine": "reference", "prove": True, "select": "pocket"},
    ],
)
def test_every_option_of_the_rule_comes_back(tmp_path, given):
    lit = L.LitRule(tp.Perceptron(3), **given)
    loaded = L.LitRule.load_from_checkpoint(saved(tmp_path, lit), weights_only=True)
    assert loaded.hparams == lit.hparams
    assert options(loaded) == options(lit)
    assert {name: loaded.hparams[name] for name in given} == given
    assert torch.equal(loaded.net.weight, torch.load(tmp_path / "kept.ckpt")["state_dict"]["net.weight"])


def test_arguments_given_at_loading_win(tmp_path):
    path = saved(tmp_path, L.LitClassifier(tp.Perceptron(3), "logistic", lr=0.25))
    assert L.LitClassifier.load_from_checkpoint(path, lr=2.0).lr == 2.0
    assert L.LitClassifier.load_from_checkpoint(path, head="lms").head == tp.LMSHead()
    net = tp.Perceptron(3)
    assert L.LitClassifier.load_from_checkpoint(path, net=net).net is net
    assert L.LitClassifier.load_from_checkpoint(path, class_weight={1: 2.0}).class_weight == {1: 2.0}


def test_a_run_is_not_resumed_with_other_class_weights(tmp_path):
    path = saved(tmp_path, L.LitClassifier(tp.Perceptron(3), "logistic", class_weight={1: 5.0}))
    with pytest.raises(CheckpointError, match="class_weight"):
        fit(tmp_path / "on", L.LitClassifier(tp.Perceptron(3), "logistic"), loader(TRAIN), ckpt_path=path)


def test_numbers_of_numpy_are_saved_as_numbers(tmp_path):
    lit = L.LitClassifier(tp.Perceptron(3), lr=np.float64(0.25), class_weight={np.int64(1): np.float32(2.0)})
    assert L.LitClassifier.load_from_checkpoint(saved(tmp_path, lit)).hparams == lit.hparams
    adam = L.LitClassifier(tp.Perceptron(3), optimizer=partial(torch.optim.Adam, lr=np.float64(0.25)))
    assert L.LitClassifier.load_from_checkpoint(saved(tmp_path / "a", adam)).hparams.optimizer["init_args"] == {
        "lr": 0.25
    }
    rule = L.LitRule(tp.Perceptron(3), lr=np.float32(0.5), seed=np.int64(3), margin=np.float64(0.5))
    assert L.LitRule.load_from_checkpoint(saved(tmp_path / "r", rule)).hparams == rule.hparams


# --- a loaded module is trained anew ---


@pytest.mark.parametrize("size", [60, 20])
def test_a_rule_that_was_loaded_learns_a_new_run_from_its_weights(tmp_path, size):
    path = saved(tmp_path, L.LitRule(tp.Perceptron(3)), size)
    loaded = L.LitRule.load_from_checkpoint(path)
    new = L.LitRule(copy.deepcopy(loaded.net))
    for lit in (loaded, new):
        trainer = fit(tmp_path / "on", lit, loader(VAL, size), epochs=3)
        assert trainer.current_epoch == lit.result.epochs
    assert loaded.result.log.equals(new.result.log)
    assert torch.equal(loaded.net.weight, new.net.weight)


@pytest.mark.parametrize("select", ["averaged", "voted"])
def test_checkpoints_have_the_averaged_weights_and_validation_is_theirs(tmp_path, select):
    lit = L.LitRule(tp.Perceptron(3), select=select)
    keep = ModelCheckpoint(tmp_path, "{epoch}", save_top_k=-1)
    trainer = fit(tmp_path, lit, loader(TRAIN), loader(VAL), epochs=3, callbacks=[keep], enable_checkpointing=True)
    for epoch in range(3):
        net = tp.Perceptron(3)
        tp.RuleTrainer(epoch + 1, select="averaged").fit(net, *TRAIN)
        loaded = L.LitRule.load_from_checkpoint(tmp_path / f"epoch={epoch}.ckpt")
        assert torch.equal(loaded.net.weight, net.weight)
        assert plain.table(tmp_path)["error/val"][epoch] == plain.evaluation(net, VAL, tp.PerceptronLoss())[1]
    assert torch.equal(lit.net.weight, net.weight)
    assert trainer.current_epoch == 3


def test_hyper_parameters_reach_any_logger_as_the_arguments(tmp_path):
    lit = L.LitClassifier(tp.Perceptron(3), "logistic", lr=0.25)
    trainer = fit(tmp_path, lit, epochs=1)
    text = (tmp_path / "csv" / "hparams.yaml").read_text()
    assert "lr: 0.25" in text
    assert "head: logistic" in text
    assert "class_path: torchperc.Perceptron" in text
    assert trainer.loggers[0].hparams == dict(lit.hparams)


# --- what a checkpoint cannot know ---


class Own(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 1)

    def forward(self, x):
        return self.layer(x)[:, 0]


def test_a_net_of_the_users_own_is_asked_for(tmp_path):
    lit = L.LitClassifier(Own(), "logistic")
    path = saved(tmp_path, lit)
    with pytest.raises(ValueError, match=r"net is a .*Own, which a checkpoint cannot describe; .*net=\.\.\."):
        L.LitClassifier.load_from_checkpoint(path)
    assert torch.equal(L.LitClassifier.load_from_checkpoint(path, net=Own())(X), lit(X))
    with pytest.raises(CheckpointError, match="the checkpoint is of another net"):
        L.LitClassifier.load_from_checkpoint(path, net=tp.Perceptron(3))


def test_an_optimizer_of_the_users_own_is_asked_for(tmp_path):
    def make(parameters):
        return torch.optim.SGD(parameters, lr=0.1, momentum=0.9)

    path = saved(tmp_path, L.LitClassifier(tp.Perceptron(3), optimizer=make))
    with pytest.raises(ValueError, match=r"the optimizer of this checkpoint .* load_from_checkpoint\(path, optimizer="):
        L.LitClassifier.load_from_checkpoint(path)
    assert L.LitClassifier.load_from_checkpoint(path, optimizer=make).net.weight.any()


def test_a_head_of_the_users_own_is_asked_for(tmp_path):
    class Steep(tp.LogisticHead):
        def __repr__(self):
            return "Steep()"

    path = saved(tmp_path, L.LitClassifier(tp.Perceptron(3), Steep()))
    with pytest.raises(ValueError, match="Steep"):
        L.LitClassifier.load_from_checkpoint(path)
    assert isinstance(L.LitClassifier.load_from_checkpoint(path, head=Steep()).head, Steep)


def test_another_module_is_refused(tmp_path):
    rule = saved(tmp_path / "rule", L.LitRule(tp.Perceptron(3)))
    gradient = saved(tmp_path / "gradient", L.LitClassifier(tp.Perceptron(3)))
    for cls, path in ((L.LitClassifier, rule), (L.LitRule, gradient)):
        with pytest.raises(CheckpointError, match=r"module='Lit\w+'"):
            cls.load_from_checkpoint(path)


def test_a_checkpoint_of_an_earlier_version_is_refused(tmp_path):
    path = saved(tmp_path, L.LitClassifier(tp.Perceptron(3)))
    content = torch.load(path)
    content["torchperc"]["format"] = 2
    torch.save(content, path)
    with pytest.raises(CheckpointError, match="load_state_dict"):
        L.LitClassifier.load_from_checkpoint(path)


def test_no_code_of_a_checkpoint_is_run(tmp_path):
    path = saved(tmp_path, L.LitClassifier(tp.Perceptron(3)))
    content = torch.load(path)
    content["hyper_parameters"]["net"] = {"class_path": "os.system", "init_args": {"command": "x"}}
    torch.save(content, path)
    with pytest.raises(ValueError, match=r"net is a os\.system, which a checkpoint cannot describe"):
        L.LitClassifier.load_from_checkpoint(path)


# --- copies ---


@pytest.mark.parametrize(
    "lit", [L.LitClassifier(tp.MLP(3, (2,)), "logistic", lr=0.5), L.LitRule(tp.Perceptron(3), select="averaged")]
)
def test_modules_can_be_copied_and_pickled(tmp_path, lit):
    for same in (copy.deepcopy(lit), pickle.loads(pickle.dumps(lit))):
        assert same.hparams == lit.hparams
        assert torch.equal(same(X), lit(X))
        fit(tmp_path, same, loader(TRAIN), epochs=1)
