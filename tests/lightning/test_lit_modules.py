"""Gradient and rule under a Trainer: the same weights as closed forms, peers, plain loops and each other."""

import itertools
import math

import pytest
import torch
from plain import CHATTER, trained
from pytorch_lightning.demos.boring_classes import BoringModel
from torch import nn

import torchperc as tp
from torchperc.descent.sgd import descend
from torchperc.lightning.loader import DivergenceWarning

L = tp.lightning
pytestmark = [pytest.mark.filterwarnings(each) for each in CHATTER]
HEADS = [tp.PerceptronHead(), tp.PerceptronHead(tie="sign"), tp.LMSHead(), tp.LMSHead("0/1"), tp.LogisticHead()]


def noisy(count=80, width=4, classes=None, seed=0):
    generator = torch.Generator().manual_seed(seed)
    X = torch.randn(count, width, generator=generator, dtype=torch.float64)
    noise = 0.7 * torch.randn(count, classes or 1, generator=generator, dtype=torch.float64)
    if classes is None:
        return X, torch.where(X[:, 0] - X[:, 1] + noise[:, 0] > 0, 1, -1)
    return X, (X[:, :classes] + noise).argmax(1)


def linear(width=4, classes=None):
    make = tp.Perceptron if classes is None else lambda d, **k: tp.MulticlassPerceptron(d, classes, **k)
    return make(width, dtype=torch.float64)


# --- rule and gradient ---


def test_rule_and_gradient_agree_on_and():
    X, y = tp.data.gate("AND")
    runs = {
        "rule": (L.LitRule(tp.Perceptron(2)), "full"),
        "sample": (L.LitClassifier(tp.Perceptron(2), lr=1.0, update="sample"), "full"),
        "batch of 1": (L.LitClassifier(tp.Perceptron(2), lr=1.0), 1),
    }
    for lit, size in runs.values():
        trained(lit, L.SliceLoader(X, y, size), epochs=12)
        assert lit.net.weight.tolist() == [[3, 2]]
        assert lit.net.bias.tolist() == [-4]
    result = runs["rule"][0].result
    assert (result.mistakes, result.epochs, result.verdict.name) == (18, 9, "SEPARATED")


@pytest.mark.parametrize(
    ("select", "order", "classes"),
    [
        ("last", "random-mistake", None),
        ("averaged", "shuffled", None),
        ("averaged", "given", 3),
        ("voted", "shuffled", None),
        ("pocket", "shuffled", None),
        ("best-validation", "given", None),
        ("best-validation", "random-mistake", 3),
    ],
)
def test_the_rule_under_a_trainer_is_the_rule(select, order, classes):
    X, y = noisy(40, classes=classes)
    val = noisy(20, classes=classes, seed=1)
    lit = L.LitRule(linear(classes=classes), order=order, select=select, seed=4)
    trained(lit, L.SliceLoader(X, y), L.SliceLoader(*val), epochs=3)
    net = linear(classes=classes)
    result = tp.RuleTrainer(max_epochs=3, order=order, select=select, seed=4).fit(net, X, y, validation=val)
    assert lit.result.log.equals(result.log)
    assert lit.result.verdict is result.verdict
    assert torch.equal(lit.net.weight, net.weight)
    assert torch.equal(lit.predict_step(val[0]), net.predict(val[0]))


def test_what_the_rule_cannot_do_is_said_before_training():
    X, y = tp.data.gate("AND")
    with pytest.raises(ValueError, match="needs validation data"):
        trained(L.LitRule(tp.Perceptron(2), select="best-validation"), L.SliceLoader(X, y))
    with pytest.raises(ValueError, match="tie='x'"):
        L.LitRule(tp.Perceptron(2), tie="x")


# --- one update a sample ---


@pytest.mark.parametrize("head", HEADS, ids=str)
@pytest.mark.parametrize("classes", [None, 3])
def test_sample_updates_are_those_of_batches_of_one(head, classes):
    X, y = noisy(50, classes=classes)
    nets, logs = [], []
    for update, size in (("sample", "full"), ("sample", 7), ("batch", 1)):
        lit = L.LitClassifier(linear(classes=classes), head, lr=0.05, update=update)
        metrics = trained(lit, L.SliceLoader(X, y, size, "shuffled", seed=2), epochs=2).callback_metrics
        nets.append(lit.net)
        logs.append([float(metrics[name]) for name in ("loss/train", "error/train", "mistakes")])
    assert torch.equal(nets[0].weight, nets[1].weight)
    torch.testing.assert_close(nets[0].weight, nets[2].weight, rtol=1e-12, atol=1e-14)
    torch.testing.assert_close(nets[0].bias, nets[2].bias, rtol=1e-12, atol=1e-14)
    assert logs[:2] == [pytest.approx(logs[2], rel=1e-9)] * 2


def augmented(X):
    return torch.cat([X, torch.ones(len(X), 1, dtype=X.dtype)], 1)


# --- the notes' protocols ---


def test_epsilon_stop_says_that_there_is_no_loss_to_watch():
    with pytest.raises(ValueError, match="loss/train"):
        trained(BoringModel(), BoringModel().train_dataloader(), epochs=2, callbacks=[L.EpsilonStop()])


def test_epsilon_stop_is_that_of_the_plain_loop():
    X, y = noisy(40)
    epsilon, lr = 1e-5, 0.3
    lit = L.LitClassifier(linear(), "lms", lr=lr)
    trainer = trained(lit, L.SliceLoader(X, y), epochs=5000, callbacks=[L.EpsilonStop(epsilon)])
    Z, w, last = augmented(X), torch.zeros(5, dtype=torch.float64), math.inf
    count = 0
    while True:
        count += 1
        delta = y - Z @ w
        loss = float(delta.square().sum()) / (2 * len(y))
        w = w + lr * Z.T @ delta / len(y)  # descent on ½δ²: the sign that the notes flip twice
        if abs(loss - last) < epsilon:
            break
        last = loss
    assert trainer.current_epoch == count
    torch.testing.assert_close(lit.net.weight[0], w[:-1])


def test_the_best_validation_weights_come_back():
    X, y = noisy(40)
    val = noisy(15, seed=3)
    lit = L.LitClassifier(linear(), "perceptron", lr=0.5, update="sample")
    best = L.RestoreBest()
    trained(lit, L.SliceLoader(X, y, order="shuffled", seed=1), L.SliceLoader(*val), epochs=12, callbacks=[best])
    errors, states = [], []
    net, loader = linear(), L.SliceLoader(X, y, order="shuffled", seed=1)
    for _ in range(12):
        descend(net, tp.PerceptronHead(), *next(iter(batch for batch in [*loader])), lr=0.5)
        errors.append(float(tp.functional.zero_one_loss(net(val[0]), val[1])))
        states.append(net.weight.detach().clone())
    assert best.best == min(errors)
    assert best.epoch == errors.index(min(errors))
    assert torch.equal(lit.net.weight, states[best.epoch])
    with pytest.raises(ValueError, match="monitor='error/val' was not logged"):
        trained(L.LitClassifier(linear()), L.SliceLoader(X, y), callbacks=[L.RestoreBest()])


@pytest.mark.parametrize("update", ["batch", "sample"])
def test_divergence_stops_with_the_last_finite_weights(update):
    X, y = noisy(40)
    lit = L.LitClassifier(linear().float(), "lms", lr=50.0, update=update)
    stop = L.StopOnDivergence()
    with pytest.warns(DivergenceWarning, match=r"diverged in epoch \d+.*Try a smaller lr"):
        trainer = trained(lit, L.SliceLoader(X.float(), y), epochs=500, callbacks=[stop])
    assert stop.diverged
    assert trainer.current_epoch < 500
    assert torch.isfinite(lit.net.weight).all()


# --- one step for all stages, any net ---


class Squares(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 1).double()

    def forward(self, x):
        return self.layer(torch.cat([x, x**2], 1)).squeeze(-1)


@pytest.mark.parametrize(
    "net",
    [
        Squares(),
        tp.MLP(4, (3,), seed=0, dtype=torch.float64),
        tp.Perceptron(4, init="normal", seed=0, dtype=torch.float64),
        tp.MulticlassPerceptron(4, 3, init="normal", seed=0, dtype=torch.float64),
    ],
    ids=["user", "mlp", "linear", "classes"],
)
@pytest.mark.parametrize("head", HEADS, ids=str)
def test_metrics_of_every_stage(net, head):
    X, y = noisy(30, classes=getattr(net, "num_classes", None))
    lit = L.LitClassifier(net, head, lr=1e-9)
    trainer = trained(lit, L.SliceLoader(X, y, 7), L.SliceLoader(X, y, 4), epochs=1)
    metrics = dict(trainer.callback_metrics)
    scores = lit(X).detach()
    wrong = int((head.decide(scores) != y).sum())
    for stage in ("train", "val"):
        assert float(metrics[f"loss/{stage}"]) == pytest.approx(float(head.loss(scores, y)), rel=1e-5, abs=1e-6)
        assert float(metrics[f"error/{stage}"]) == pytest.approx(wrong / 30, abs=1e-6)
    assert float(metrics["mistakes"]) == int(head.mistakes(scores, y).sum())
    assert ("margin" in metrics) == isinstance(net, tp.Perceptron)
    tested = trainer.test(lit, L.SliceLoader(X, y, 11), verbose=False)
    assert tested == [{name: float(trainer.callback_metrics[name]) for name in ("loss/test", "error/test")}]
    assert float(trainer.callback_metrics["error/test"]) == pytest.approx(wrong / 30, abs=1e-6)
    predicted = torch.cat(trainer.predict(lit, L.SliceLoader(X, y, 11)))
    assert torch.equal(predicted, head.decide(scores))


def test_wrong_options_are_named():
    net = tp.Perceptron(2)
    for options, message in (
        ({"update": "online"}, "update='online'"),
        ({"lr": 0.0}, "lr=0.0"),
        ({"head": "hinge"}, "head='hinge'"),
        ({"head": 3}, "head=3"),
    ):
        with pytest.raises(ValueError, match=message):
            L.LitClassifier(net, **options)
    with pytest.raises(TypeError, match=r"found MLP; use update='batch' with batch_size=1"):
        L.LitClassifier(tp.MLP(2), update="sample")
    with pytest.raises(TypeError, match="net must be a module"):
        L.LitClassifier("AND")
    for name, value in (("lr", "auto"), ("start", "two-sample"), ("class_weight", "balanced")):
        with pytest.raises(TypeError, match=name):
            L.LitClassifier(net, **{name: value})


# --- loader and data module ---


def test_the_loader_draws_the_permutations_of_the_rule():
    X, y = torch.arange(10.0)[:, None], torch.ones(10)
    loader = L.SliceLoader(X, y, 4, "shuffled", seed=7)
    generator = torch.Generator().manual_seed(7)
    for _ in range(3):
        assert (
            torch.cat([x for x, _ in loader])[:, 0].long().tolist() == torch.randperm(10, generator=generator).tolist()
        )


def test_the_loader_goes_on_where_it_was():
    X, y = torch.arange(10.0)[:, None], torch.ones(10)
    whole = L.SliceLoader(X, y, 3, "shuffled", seed=1)
    batches = [x[:, 0].tolist() for _ in range(3) for x, _ in whole]
    for stop in range(12):
        first, second = (L.SliceLoader(X, y, 3, "shuffled", seed=1) for _ in range(2))
        seen = [
            x[:, 0].tolist() for x, _ in itertools.islice(itertools.chain.from_iterable(first for _ in range(3)), stop)
        ]
        second.load_state_dict(first.state_dict())
        rest = []
        while len(seen) + len(rest) < 12:
            rest += [x[:, 0].tolist() for x, _ in second]
        assert seen + rest == batches


def test_the_order_depends_on_seed_and_epoch_alone():
    X, y = torch.arange(6.0)[:, None], torch.ones(6)
    loader = L.SliceLoader(X, y, "full", "shuffled", seed=3)
    epochs = [next(iter([*loader]))[0][:, 0].tolist() for _ in range(4)]
    for epoch in (2, 0, 3, 1):
        loader.set_epoch(epoch)
        assert next(iter([*loader]))[0][:, 0].tolist() == epochs[epoch]


@pytest.mark.parametrize("size", [0, -1, "half", 2.5, True])
def test_batch_sizes_are_checked(size):
    with pytest.raises((ValueError, TypeError), match="batch_size"):
        L.TabularDataModule(batch_size=size)


def test_scaling_is_fitted_on_the_training_part_alone():
    data = L.TabularDataModule("wine", scale="minmax", seed=1)
    train, val, test = data.parts
    assert train[0].min() == 0
    assert train[0].max() == 1
    assert (torch.cat([val[0], test[0]]) > 1).any()
    assert [len(part[1]) for part in data.parts] == [len(index) for index in data.indices]
    assert data.classes == 3
    assert data.decode(torch.tensor([0, 2])) == ["class_0", "class_2"]
    assert sorted(torch.cat(data.indices).tolist()) == list(range(178))


def test_gates_are_learned_whole():
    data = L.TabularDataModule("XOR")
    assert [len(part[1]) for part in data.parts] == [4, 0, 0]
    assert len(data.train_dataloader()) == 1
    assert data.val_dataloader() == []


def test_a_data_module_trains_validates_tests_and_predicts():
    data = L.TabularDataModule("iris", scale="standard", batch_size=16, order="shuffled")
    lit = L.LitClassifier(tp.MulticlassPerceptron(4, 3), "logistic", lr=0.5)
    trainer = trained(lit, data, epochs=20)
    trainer.test(lit, data, verbose=False)
    assert float(trainer.callback_metrics["error/test"]) <= 0.1
    labels = data.decode(torch.cat(trainer.predict(lit, data)))
    assert sum(a == b for a, b in zip(labels, data.decode(data.dataset.y), strict=True)) >= 140
