"""Runs that end with a proof, the live bracket, and rates that theory chooses."""

import itertools
import math
import warnings

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from sklearn.datasets import load_iris
from test_engines import integers

import torchperc as tp
from torchperc import lightning as L

CHATTER = (
    r"ignore:.*LeafSpec",
    r"ignore:.*The number of training batches",
    r"ignore:.*validation_step",
    r"ignore:.*GPU available",
)
pytestmark = [pytest.mark.filterwarnings(text) for text in CHATTER]


def iris(positive):
    data = load_iris()
    return data.data, np.where(data.target == positive, 1, -1)


def trained(lit, X, y, epochs=20, **options):
    trainer = L.make_trainer(
        "unused",
        epochs,
        enable_progress_bar=False,
        enable_checkpointing=False,
        logger=False,
        picture_every=0,
        **options,
    )
    trainer.fit(lit, L.SliceLoader(torch.as_tensor(X, dtype=lit.net.weight.dtype), torch.as_tensor(y)))
    return trainer


# --- a verdict with its proof ---


def test_xor_ends_with_its_witness():
    result = tp.RuleTrainer(prove=True).fit(tp.Perceptron(2), *tp.data.gate("XOR"))
    assert result.verdict is tp.Verdict.NOT_SEPARABLE
    assert result.certificate.witness.alpha == (0.25,) * 4
    assert result.certificate.verify()
    assert "NOT_SEPARABLE" in result.sentence
    assert result.cycle is None


def test_without_prove_xor_cycles_and_has_no_certificate():
    result = tp.RuleTrainer().fit(tp.Perceptron(2), *tp.data.gate("XOR"))
    assert (result.verdict, result.certificate) == (tp.Verdict.CYCLING, None)


def test_a_separated_run_asks_for_no_proof():
    result = tp.RuleTrainer(prove=True).fit(tp.Perceptron(2), *tp.data.gate("AND"))
    assert (result.verdict, result.certificate) == (tp.Verdict.SEPARATED, None)


def test_a_budget_that_was_too_small_says_that_more_would_do():
    result = tp.RuleTrainer(max_epochs=2, prove=True).fit(tp.Perceptron(2), *tp.data.gate("AND"))
    assert result.verdict is tp.Verdict.BUDGET
    assert result.certificate.separable is True


@pytest.mark.parametrize(("positive", "verdict"), [(0, "SEPARATED"), (1, "NOT_SEPARABLE"), (2, "NOT_SEPARABLE")])
def test_iris(positive, verdict):
    X, y = iris(positive)
    for data in (X, sp.csr_array(X)):
        result = tp.RuleTrainer(max_epochs=20, prove=True).fit(tp.Perceptron(4).double(), data, y)
        assert result.verdict.name == verdict


def test_without_a_bias_hyperplanes_go_through_the_origin():
    X, y = [[1.0], [3.0]], [-1, 1]
    assert tp.RuleTrainer(prove=True).fit(tp.Perceptron(1), X, y).verdict is tp.Verdict.SEPARATED
    result = tp.RuleTrainer(prove=True, max_epochs=5).fit(tp.Perceptron(1, bias=False), X, y)
    assert result.verdict is tp.Verdict.NOT_SEPARABLE


def test_many_classes():
    data = load_iris()
    result = tp.RuleTrainer(max_epochs=5, prove=True).fit(
        tp.MulticlassPerceptron(4, 3).double(), data.data, data.target
    )
    assert result.verdict is tp.Verdict.NOT_SEPARABLE
    assert result.certificate.verify()


def test_samples_of_weight_zero_are_left_out_of_the_proof():
    X, y = tp.data.gate("XOR")
    result = tp.RuleTrainer(max_epochs=1, prove=True).fit(tp.Perceptron(2), X, y, sample_weight=[1, 1, 1, 0])
    assert result.certificate is None or result.certificate.separable is True


@pytest.mark.parametrize(
    ("options", "net", "message"),
    [
        ({"kernel": "poly"}, None, "leave it out with a kernel"),
        ({}, tp.JointPerceptron(2, 2), "joint features"),
        ({"bias_step": "none"}, "biased", "needs a bias of 0"),
    ],
)
def test_where_there_is_no_proof(options, net, message):
    X, y = tp.data.gate("XOR")
    if net == "biased":
        net = tp.Perceptron(2)
        torch.nn.init.ones_(net.bias)
    labels = (y > 0).long() if isinstance(net, tp.JointPerceptron) else y
    with pytest.raises(ValueError, match=message):
        tp.RuleTrainer(prove=True, **options).fit(net, X, labels)


def test_prove_must_be_a_flag():
    with pytest.raises(TypeError, match="prove must be True or False"):
        tp.RuleTrainer(prove="yes")


def test_lit_rule_ends_with_the_proof():
    lit = L.LitRule(tp.Perceptron(2), prove=True)
    trained(lit, *tp.data.gate("XOR"))
    assert lit.result.verdict is tp.Verdict.NOT_SEPARABLE
    assert lit.result.certificate.verify()


# --- the bracket ---


@pytest.mark.parametrize("classes", [None, 3])
@pytest.mark.parametrize("bias_step", ["unit", "radius", "none"])
@pytest.mark.parametrize("lr", [1.0, 0.25])
def test_the_bracket_of_every_epoch_holds_the_largest_margin(lr, bias_step, classes):
    for seed in range(5):
        X, y = integers(seed, count=40, width=4, classes=classes, noise=0)
        if classes is None:
            X[:, 0] += y
        net = (tp.Perceptron(4) if classes is None else tp.MulticlassPerceptron(4, classes)).double()
        best = tp.theory.max_margin(X, y, bias="counted", bias_step=bias_step, num_classes=classes)
        if not best.separable:
            continue
        run = tp.RuleTrainer(max_epochs=300, lr=lr, bias_step=bias_step).start(net, X, y)
        while run.verdict is None:
            run.epoch()
            said = run.theory(run.survey()[1])
            assert said["theory/upper"] >= best.margin * (1 - 1e-12)
            assert said.get("theory/lower", -1) <= best.upper * (1 + 1e-12)
            if "theory/bound" in said:
                assert said["theory/mistakes"] <= said["theory/bound"]
        assert run.verdict is tp.Verdict.SEPARATED
        assert run.result().mistakes <= tp.theory.mistake_bound(X, y, bias_step=bias_step, num_classes=classes)


def test_iris_setosa_has_the_figures_of_the_theorem():
    X, y = iris(0)
    run = tp.RuleTrainer().start(tp.Perceptron(4).double(), X, y)
    while run.verdict is None:
        run.epoch()
    assert run.result().mistakes == 5
    assert run.squared_radius == pytest.approx(124.46, abs=0.005)
    assert tp.theory.mistake_bound(X, y) == pytest.approx(221.8, abs=0.05)


def test_from_other_weights_there_is_no_upper_bound():
    X, y = tp.data.gate("AND")
    net = tp.Perceptron(2)
    torch.nn.init.ones_(net.weight)
    run = tp.RuleTrainer().start(net, X, y)
    assert run.epoch().upper is None
    assert "theory/upper" not in run.theory(1.0)


def test_a_resumed_run_keeps_its_sum():
    X, y = integers(3)
    one = tp.RuleTrainer(max_epochs=5).start(tp.Perceptron(5).double(), X, y)
    one.epoch()
    other = tp.RuleTrainer(max_epochs=5).start(tp.Perceptron(5).double(), X, y)
    other.load_state_dict(one.state_dict())
    assert one.epoch() == other.epoch()


# --- rates ---


@pytest.mark.slow
@pytest.mark.parametrize("update", ["batch", "sample"])
@pytest.mark.parametrize("head", ["lms", "logistic", "perceptron"])
def test_auto_takes_a_rate_below_the_limit(head, update):
    X, y = iris(0)
    lit = L.LitClassifier(tp.Perceptron(4).double(), head, lr="auto", update=update)
    trainer = trained(lit, X, y, 30)
    assert lit.hparams.lr == "auto"
    assert trainer.optimizers[0].param_groups[0]["lr"] == lit.lr
    expected = tp.theory.auto_lr(head, X, batch_size=1 if update == "sample" else "full")
    assert lit.lr == pytest.approx(expected)
    assert math.isfinite(float(trainer.callback_metrics["loss/train"]))


def test_auto_lowers_the_loss_at_every_epoch_of_full_batch_descent():
    X, y = iris(1)
    losses = []

    class Watch(L.Board):
        def on_train_epoch_end(self, trainer, pl_module):
            losses.append(float(trainer.callback_metrics["loss/train"]))

    trained(L.LitClassifier(tp.Perceptron(4).double(), "logistic", lr="auto"), X, y, 40, callbacks=[Watch(0)])
    assert len(losses) == 40
    assert all(after < before for before, after in itertools.pairwise(losses))


def test_a_rate_that_is_too_large_is_said_before_the_run():
    X, y = iris(0)
    limit = tp.theory.lms_limit(X)
    with pytest.warns(UserWarning, match=r"is above 2/L = .*the loss will diverge"):
        trained(L.LitClassifier(tp.Perceptron(4).double(), "lms", lr=1.05 * limit), X, y, 1)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*2/L")
        trained(L.LitClassifier(tp.Perceptron(4).double(), "lms", lr=0.95 * limit), X, y, 1)


def test_auto_is_for_linear_nets():
    with pytest.raises(TypeError, match="linear net"):
        L.LitClassifier(tp.MLP(2), lr="auto")
    with pytest.raises(ValueError, match="lr='fast' is unknown"):
        L.LitClassifier(tp.Perceptron(2), lr="fast")
    with pytest.raises(ValueError, match="rate to your optimizer"):
        L.LitClassifier(tp.Perceptron(2), lr="auto", optimizer=lambda p: torch.optim.SGD(p, lr=1))
