"""The same results on a device as on the CPU: on the pretend device, and on CUDA where there is one."""

import oracles
import pytest
import torch

import torchperc as tp

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("classes", [None, 3])
@pytest.mark.parametrize("select", ["last", "averaged", "voted", "pocket", "best-validation"])
def test_rule(device, classes, select):
    X, y = oracles.integers(1, classes=classes)
    runs = []
    for place in ("cpu", device):
        net = tp.Perceptron(3) if classes is None else tp.MulticlassPerceptron(3, classes)
        trainer = tp.RuleTrainer(max_epochs=5, select=select, order="shuffled")
        result = trainer.fit(net.to(place), X, y, validation=(X, y))
        runs.append((net.cpu(), result))
    assert runs[0][1].log.equals(runs[1][1].log)
    assert torch.equal(runs[0][0].weight, runs[1][0].weight)
    assert torch.equal(runs[0][1].predict(X), runs[1][1].predict(X).cpu())


@pytest.mark.parametrize("classes", [None, 3])
def test_kernel(device, classes):
    X, y = oracles.integers(1, classes=classes)
    data = torch.tensor(X, dtype=torch.float64)
    trainer = tp.RuleTrainer(max_epochs=5, kernel="poly", degree=2)
    here, there = (trainer.fit(None, data.to(place), y, num_classes=classes) for place in ("cpu", device))
    assert here.log.equals(there.log)


def test_crosscheck(device):
    X, y = tp.data.gate("AND")
    check = tp.crosscheck(X.to(device), y, epochs=10)
    assert check.equal
    assert len(check.rule) == 18


@pytest.mark.filterwarnings("ignore:.*LeafSpec.*")
@pytest.mark.filterwarnings("ignore:Total length of `list` across ranks is zero")
@pytest.mark.parametrize("kind", ["rule", "sample", "batch"])
def test_lightning(device, tmp_path, kind):
    nets = []
    for accelerator in ("cpu", "gpu"):
        net = tp.Perceptron(2)
        lit = tp.lightning.LitRule(net) if kind == "rule" else tp.lightning.LitClassifier(net, lr=1.0, update=kind)
        size = 1 if kind == "batch" else "full"
        trainer = tp.lightning.make_trainer(
            tmp_path / accelerator, 12, accelerator=accelerator, enable_progress_bar=False
        )
        trainer.fit(lit, tp.lightning.TabularDataModule("AND", batch_size=size))
        nets.append(net.cpu())
    assert torch.equal(nets[0].weight, nets[1].weight)
    assert nets[0].weight.tolist() == [[3, 2]]


@pytest.mark.parametrize("classes", [None, 3])
def test_auto_takes_blocks_on_a_device(device, classes):
    X, y = oracles.integers(2, count=400, classes=classes)
    net = (tp.Perceptron(3) if classes is None else tp.MulticlassPerceptron(3, classes)).to(device)
    run = tp.RuleTrainer().start(net, X, y)
    assert type(run._engine).__name__ == "BlockedEngine"


@pytest.mark.parametrize("head", [tp.PerceptronHead(), tp.LMSHead(), tp.LogisticHead()], ids=str)
def test_single_sample_descent(device, head):
    X, y = oracles.integers(2, count=400)
    data = torch.tensor(X, dtype=torch.float64)
    nets = []
    for place in ("cpu", device):
        net = tp.Perceptron(3).double().to(place)
        tp.descend(net, head, data.to(place), torch.tensor(y).to(place), 0.0625)
        nets.append(net.cpu())
    torch.testing.assert_close(nets[0].weight, nets[1].weight, rtol=0, atol=1e-10)
