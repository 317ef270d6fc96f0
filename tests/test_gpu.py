"""The same results on a device as on the CPU: on the pretend device, and on CUDA where there is one."""

import copy
import itertools
from functools import partial

import oracles
import plain
import pretend
import pytest
import pytorch_lightning as pl
import torch
from scipy.sparse import csr_array
from torch.utils.data import DataLoader, TensorDataset

import torchperc as tp
from torchperc.lab import xor

L = tp.lightning
pytestmark = [
    pytest.mark.gpu,
    *(pytest.mark.filterwarnings(each) for each in (*plain.CHATTER, "ignore:GPU available but not used.*")),
]
HEADS = [tp.PerceptronHead(), tp.PerceptronHead("sign"), tp.LMSHead(), tp.LMSHead("0/1"), tp.LogisticHead()]
by_head = pytest.mark.parametrize("head", [tp.PerceptronHead(), tp.LMSHead(), tp.LogisticHead()], ids=str)
NETS = {
    "two": partial(tp.Perceptron, 3, init="normal", seed=0),
    "zero": partial(tp.Perceptron, 3),
    "many": partial(tp.MulticlassPerceptron, 3, 4, init="normal", seed=0),
    "joint": partial(tp.JointPerceptron, 3, 4, init="normal", seed=0),
    "mlp": partial(tp.MLP, 3, (5,), seed=0),
    "mlp-many": partial(tp.MLP, 3, (5,), num_classes=4, seed=0),
}


def data(classes=None, count=24, dtype=torch.float64, seed=1):
    X, y = oracles.integers(seed, count=count, classes=classes)
    return torch.tensor(X, dtype=dtype), torch.tensor(y)


def same(here, there, **close):
    """Equal, or nearly so; and the second is not on the CPU."""
    assert there.device.type != "cpu"
    torch.testing.assert_close(here, there.cpu(), **(close or {"rtol": 0, "atol": 0}))


@pytest.mark.parametrize("name", NETS)
def test_nets_are_made_and_decide_on_a_device(device, name):
    here, there = (NETS[name](dtype=torch.float64, device=place) for place in ("cpu", device))
    for one, other in zip(here.parameters(), there.parameters(), strict=True):
        same(one, other)
    X, _ = data()
    same(here.predict(X), there.predict(X.to(device)))
    same(here(X), copy.deepcopy(here).to(device)(X.to(device)), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("classes", [None, 4])
@pytest.mark.parametrize("head", HEADS, ids=str)
def test_heads(device, head, classes):
    X, y = data(classes)
    scores = X.repeat(1, 2)[:, :4] if classes else X[:, 0]
    for act in (head.output, head.decide, partial(head.loss, y=y), partial(head.mistakes, y=y)):
        moved = {name: value.to(device) for name, value in getattr(act, "keywords", {}).items()}
        there = partial(act.func, **moved) if moved else act
        same(act(scores), there(scores.to(device)), rtol=1e-14, atol=0)


def test_devices_do_not_mix(device):
    net, (X, y) = tp.Perceptron(3).double().to(device), data()
    for wrong in (lambda: net(X), lambda: tp.LogisticLoss()(net(X.to(device)), y)):
        with pytest.raises(RuntimeError, match="same device"):
            wrong()
    with pytest.raises(TypeError, match=r"Tensor\.cpu"):
        net.weight.detach().numpy()


SELECTS = ("last", "averaged", "voted", "pocket", "best-validation")
ORDERS = itertools.product(("given", "random-mistake", [3, 1, 2, 0, 5]), ("auto", "reference"))
RULES = [
    *({"order": "shuffled", "select": select} for select in SELECTS),
    *({"kernel": kernel, "select": "voted"} for kernel in ("poly", "rbf", torch.inner)),
    *({"order": order, "engine": engine, "tie": "sign", "bias_step": "radius"} for order, engine in ORDERS),
]


@pytest.mark.parametrize("classes", [None, 3])
@pytest.mark.parametrize(
    "options", RULES, ids=lambda options: "-".join(str(getattr(v, "__name__", v)) for v in options.values())
)
def test_rule(device, options, classes):
    X, y = data(classes, count=12)
    kernel = "kernel" in options
    more, runs = {"num_classes": classes} if kernel else {"validation": (X, y)}, []
    for place in ("cpu", device):
        net = tp.Perceptron(3) if classes is None else tp.MulticlassPerceptron(3, classes)
        given = None if kernel else net.double().to(place)
        result = tp.RuleTrainer(max_epochs=4, **options).fit(given, X.to(place), y.to(place), **more)
        runs.append((net.cpu().weight, result.predict(X.to(place)).cpu(), result))
    (weight, predicted, here), (other, their, there) = runs
    assert here.log.equals(there.log)
    assert (here.history, here.verdict) == (there.history, there.verdict)
    assert torch.equal(weight, other)
    assert torch.equal(predicted, their)


def test_online_and_saved(device, tmp_path):
    X, y = data()
    nets = [tp.Perceptron(3).double().to(place) for place in ("cpu", device)]
    for net in nets:
        trainer = tp.RuleTrainer(select="averaged")
        for part in (slice(8), slice(8, None), slice(8)):
            trainer.partial_fit(net, X[part], y[part])
    same(nets[0].weight, nets[1].weight)
    tp.FittedModel(nets[1], tp.PerceptronHead()).save(tmp_path / "m.safetensors")
    model = tp.FittedModel.load(tmp_path / "m.safetensors")
    assert torch.equal(model.scores(X), nets[1](X.to(device)).detach().cpu())


@pytest.mark.parametrize("classes", [None, 3])
def test_samples_are_copied_to_the_cpu_once_and_the_weights_back(device, classes):
    X, y = data(classes)
    net = (tp.Perceptron(3) if classes is None else tp.MulticlassPerceptron(3, classes)).double().to(device)
    run = tp.RuleTrainer(max_epochs=4).start(net, X.to(device), y.to(device))
    before = len(pretend.WAITS)
    while run.verdict is None:
        run.epoch()
    result = run.result()
    assert pretend.WAITS[before:] == []
    assert result.model.weight.device.type == "cpu"
    result.write_to(net)
    assert torch.equal(net.weight.cpu(), result.model.weight)
    on_device = tp.RuleTrainer(max_epochs=4, engine="reference").start(net, X.to(device), y.to(device))
    assert on_device.problem.samples.device.type != "cpu"


def test_a_score_that_rounding_hides_is_decided_exactly(device):
    hidden = list(itertools.permutations((1e16, 1.0, -1e16)))  # which score 1, though in some order they add up to 0
    X = torch.tensor([*hidden, (0.0, -1.0, 0.0)], dtype=torch.float64)
    y = torch.tensor([1] * 6 + [-1])
    for place in ("cpu", device):
        net = tp.Perceptron(3, bias=False, dtype=torch.float64)
        torch.nn.init.ones_(net.weight)
        run = tp.RuleTrainer(max_epochs=1, engine="reference").start(net.to(place), X, y)
        assert run.epoch().mistakes == 0


def test_sparse_samples_need_the_cpu(device):
    X, y = data()
    with pytest.raises(TypeError, match=r"X is sparse, which needs a net on the CPU, found .*; use net\.cpu\(\)"):
        tp.RuleTrainer(engine="reference").fit(tp.Perceptron(3).double().to(device), csr_array(X.numpy()), y)
    net = tp.Perceptron(3).double().to(device)
    tp.RuleTrainer(max_epochs=2).fit(net, csr_array(X.numpy()), y)  # where the compiled loop learns
    assert net.weight.any()
    tp.minimise(net, tp.LMSHead(), csr_array(X.numpy()), y)  # all of it on the CPU


@pytest.mark.parametrize("classes", [None, 3])
@by_head
def test_descend_and_minimise(device, head, classes):
    X, y = data(classes, count=200, seed=2)
    found = []
    for place in ("cpu", device):
        given, counts = (X.to(place), y.to(place)), (torch.arange(200) % 3).to(place)
        net = (tp.Perceptron(3) if classes is None else tp.MulticlassPerceptron(3, 3)).double().to(place)
        order = torch.arange(149, 70, -1).to(place)
        tp.descend(net, head, *given, 0.0625, sample_weight=counts + 1, l2=0.01, order=order)
        tp.descend(net, head, *given, 0.0625)
        moved = net.weight.detach().clone()
        best = None if head == tp.PerceptronHead() else tp.minimise(net, head, *given, l2=0.1, sample_weight=counts)
        found.append((moved, best, net.weight))
    (here, best, weight), (there, other, their) = found
    same(here, there, rtol=0, atol=1e-10)
    if best is not None:
        assert other.converged
        assert best.loss == pytest.approx(other.loss, rel=1e-12)
        same(weight, their, rtol=1e-6, atol=1e-8)


@by_head
def test_the_xor_lab(device, head):
    here, there = (
        xor.train(range(9), head=head, steps=12, dtype=torch.float64, device=place) for place in ("cpu", device)
    )
    assert here.kinds == there.kinds
    for name in ("curves", "weight1", "bias2", "gradient_norm", "accuracy"):
        torch.testing.assert_close(getattr(here, name), getattr(there, name), rtol=1e-9, atol=1e-12)
    nets = [there.net(k).to(device) for k in range(9)]
    assert xor.classify(nets, head) == there.kinds


def trainer_on(place, folder, **options):
    here = {"accelerator": "cpu" if place == "cpu" else "gpu", "devices": 1, "default_root_dir": folder}
    return pl.Trainer(**{**plain.QUIET, **here, "max_epochs": 4, **options})


def batches(classes=None, size=None, shuffle=False, weighted=False, count=24):
    X, y = data(classes, count, torch.float32)
    columns = (X, y, torch.arange(count) % 3 / 2) if weighted else (X, y)
    generator = torch.Generator().manual_seed(0)
    return DataLoader(TensorDataset(*columns), batch_size=size or count, shuffle=shuffle, generator=generator)


@pytest.mark.parametrize(
    ("name", "train", "options"),
    [
        ("two", {}, {"head": "logistic", "lr": 0.1}),
        ("two", {"size": 9}, {"head": "lms", "lr": 0.01, "class_weight": {-1: 0.5, 1: 2.0}}),
        ("two", {"size": 9, "weighted": True}, {"head": "perceptron", "lr": 1.0, "update": "sample"}),
        ("two", {"weighted": True}, {"head": "lms", "lr": 0.01}),
        ("many", {"size": 9}, {"head": "logistic", "lr": 0.1, "class_weight": {0: 2.0, 1: 1.0, 2: 1.0, 3: 0.5}}),
        ("many", {}, {"head": "lms", "lr": 0.01, "update": "sample"}),
        ("joint", {"weighted": True}, {"head": "perceptron", "lr": 0.1}),
        ("mlp", {"size": 9}, {"head": "logistic", "optimizer": partial(torch.optim.Adam, lr=0.01)}),
        ("mlp-many", {}, {"head": "logistic", "optimizer": partial(torch.optim.RMSprop, lr=0.01)}),
        *(("rule", {"weighted": True}, {"select": s}) for s in ("last", "averaged", "best-validation", "pocket")),
        *(("rule", {"weighted": True, "size": 12}, {"select": s}) for s in ("last", "averaged")),
    ],
    ids=str,
)
def test_lightning_modules(device, tmp_path, name, train, options):
    classes, rule, ends = 4 if name in ("many", "joint", "mlp-many") else None, name == "rule", []
    for place in ("cpu", device):
        lit = L.LitRule(tp.Perceptron(3), **options) if rule else L.LitClassifier(NETS[name](), **options)
        trainer = trainer_on(place, tmp_path, max_epochs=2)
        trainer.fit(lit, batches(classes, **train), batches(classes, 7))
        metrics = {key: float(value) for key, value in trainer.callback_metrics.items()}
        made = lit.result.mistakes if rule else None
        predicted = torch.cat(trainer.predict(lit, batches(classes, 7))).cpu()
        ends.append((lit, metrics, predicted, made, trainer.test(lit, batches(classes, 7), verbose=False)[0]))
    (here, metrics, predicted, made, tested), (there, others, their, also_made, theirs) = ends
    for one, other in zip(here.parameters(), there.parameters(), strict=True):
        close = {"rtol": 0, "atol": 0} if rule else {"rtol": 1e-5, "atol": 1e-6}
        torch.testing.assert_close(one.cpu(), other.cpu(), **close)
    assert metrics == pytest.approx(others, rel=1e-6 if rule else 1e-5, abs=1e-12 if rule else 1e-6)
    assert torch.equal(predicted, their)
    assert made == also_made
    assert tested == pytest.approx(theirs, rel=1e-5)


LOGISTIC = partial(L.LitClassifier, head="logistic", lr=0.1)


@pytest.mark.parametrize(
    ("name", "make", "train", "validates", "logs", "allowed"),
    [
        ("two", LOGISTIC, {}, False, False, 1),
        ("two", LOGISTIC, {}, True, True, 2),
        ("two", LOGISTIC, {"size": 9}, False, True, 1),
        ("two", LOGISTIC, {"weighted": True}, False, False, 2),  # weights are checked in each batch
        ("two", partial(LOGISTIC, class_weight={-1: 1.0, 1: 2.0}), {}, False, False, 1),
        ("many", partial(L.LitClassifier, head="lms", lr=0.01), {"size": 9}, False, False, 1),
        ("mlp", partial(L.LitClassifier, optimizer=partial(torch.optim.Adam, lr=0.01)), {}, True, False, 2),
    ],
    ids=lambda value: str(getattr(value, "keywords", value)),
)
def test_the_host_waits_once_per_epoch_and_once_more_for_validation(
    device, tmp_path, name, make, train, validates, logs, allowed
):
    if device != "pretend":
        pytest.skip("waits are counted on the pretend device")
    classes, marks = 4 if name == "many" else None, []
    watch = pl.callbacks.LambdaCallback(
        **dict.fromkeys(("on_train_epoch_start", "on_train_end"), lambda *_: marks.append(len(pretend.WAITS)))
    )
    logger = pl.loggers.CSVLogger(tmp_path) if logs else False
    trainer = trainer_on(device, tmp_path, callbacks=[watch], logger=logger, log_every_n_steps=1)
    trainer.fit(make(NETS[name]()), batches(classes, **train), batches(classes, 12) if validates else None)
    found = [
        pretend.WAITS[a:b] for a, b in itertools.pairwise(marks[2:])
    ]  # the first epochs look up what stays the same
    assert found
    assert max(map(len, found)) <= allowed, found


@pytest.mark.parametrize("kind", ["rule", "sample", "batch"])
def test_make_trainer_and_data_module(device, tmp_path, kind):
    net = tp.Perceptron(2)
    lit = L.LitRule(net) if kind == "rule" else L.LitClassifier(net, lr=1.0, update=kind)
    trainer = L.make_trainer(tmp_path, 12, **{**plain.QUIET, "accelerator": "gpu"})
    trainer.fit(lit, L.TabularDataModule("AND", batch_size=1 if kind == "batch" else "full"))
    assert net.weight.tolist() == [[3, 2]]


@pytest.mark.filterwarnings("ignore")  # what Lightning says of batches that it cannot count
def test_a_sparse_batch_on_a_device_is_refused_by_single_samples(device):
    X, y = data(dtype=torch.float32)
    lit = L.LitClassifier(tp.Perceptron(3), update="sample")
    with pytest.raises(ValueError, match="update='sample' needs sparse samples on the CPU"):
        trainer_on(device, ".").fit(lit, DataLoader([(X.to_sparse_csr(), y)], batch_size=None))


@pytest.mark.parametrize("kind", ["batch", "mini-batch", "sample", "rule", "online"])
def test_checkpoints_of_a_device_resume_to_the_bit(device, tmp_path, kind):
    def module():
        if kind in ("rule", "online"):
            return L.LitRule(tp.Perceptron(3), select="averaged", order="given" if kind == "online" else "shuffled")
        update = "sample" if kind == "sample" else "batch"
        return L.LitClassifier(tp.Perceptron(3), "logistic", lr=0.1, update=update)

    loader = partial(batches, size=None if kind in ("batch", "rule") else 12)
    whole, first = module(), module()
    trainer_on(device, tmp_path, max_epochs=4).fit(whole, loader())
    trainer = trainer_on(device, tmp_path, max_epochs=2)
    trainer.fit(first, loader())
    path = tmp_path / "half.ckpt"
    trainer.save_checkpoint(path)
    saved = torch.load(path, map_location="cpu", weights_only=True)["state_dict"]
    assert all(torch.equal(value, first.state_dict()[name].cpu()) for name, value in saved.items())
    for place in (device, "cpu"):  # from the device to itself, and to the CPU
        again = module()
        trainer_on(place, tmp_path, max_epochs=4).fit(again, loader(), ckpt_path=path, weights_only=False)
        close = {"rtol": 0, "atol": 0} if place == device else {"rtol": 1e-5, "atol": 1e-6}
        for a, b in zip(again.parameters(), whole.parameters(), strict=True):
            torch.testing.assert_close(a.cpu(), b.cpu(), **close)
    loaded = type(first).load_from_checkpoint(path, map_location="cpu", weights_only=False)
    assert loaded.net.weight.device.type == "cpu"
    assert torch.equal(loaded.net.weight, first.net.weight.cpu())
    there = type(first).load_from_checkpoint(path, map_location=device, weights_only=False)
    same(first.net.weight.cpu(), there.net.weight)
