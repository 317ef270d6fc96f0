"""What a run leaves for TensorBoard, read back from its event files, and the picture of its boundary."""

from types import SimpleNamespace

import pytest
import pytorch_lightning as pl
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.custom_scalar.layout_pb2 import Layout
from tensorboard.util.tensor_util import make_ndarray
from torch import nn

import torchperc as tp
from torchperc import plots
from torchperc.lightning import Board, LitClassifier, LitRule, TabularDataModule, make_trainer
from torchperc.lightning.loader import DivergenceWarning

CURVES = ["loss/train", "loss/val", "error/train", "error/val", "mistakes", "norm", "margin"]
NO_VALIDATION = [name for name in CURVES if not name.endswith("/val")]


def run(folder, lit, data, epochs, **options):
    """Train; return the module, the trainer and what the event files hold."""
    ckpt_path = options.pop("ckpt_path", None)
    trainer = make_trainer(folder, epochs, accelerator="cpu", enable_progress_bar=False, **options)
    trainer.fit(lit, data, ckpt_path=ckpt_path)
    return SimpleNamespace(lit=lit, trainer=trainer, data=data, folder=folder, events=events(folder))


def events(folder):
    found = EventAccumulator(str(folder), size_guidance={"scalars": 0, "images": 0, "tensors": 0})
    return found.Reload()


def steps(run, tag, kind="Scalars"):
    return [event.step for event in getattr(run.events, kind)(tag)]


def curve(run, tag):
    return [event.value for event in run.events.Scalars(tag)]


def logistic(net, **options):
    return LitClassifier(net, "logistic", lr=0.5, **options)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def rule(runs):
    return run(runs / "rule", LitRule(tp.Perceptron(2)), TabularDataModule("AND"), 20)


@pytest.fixture(scope="module")
def gradient(runs):
    lit = logistic(tp.Perceptron(2))
    return run(runs / "gradient", lit, TabularDataModule("AND"), 12, picture_every=5, log_every_n_steps=50)


@pytest.fixture(scope="module")
def blobs(runs):
    data = TabularDataModule("noisy-blobs", batch_size=20, order="shuffled")
    return run(runs / "blobs", logistic(tp.Perceptron(2)), data, 4)


@pytest.fixture(scope="module")
def xor(runs):
    torch.manual_seed(1)
    return run(runs / "xor", logistic(tp.MLP(2, hidden=(4,))), TabularDataModule("XOR"), 3)


@pytest.fixture(scope="module")
def iris(runs):
    lit = LitClassifier(tp.MulticlassPerceptron(4, 3), "perceptron", lr=0.5)
    return run(runs / "iris", lit, TabularDataModule("iris"), 2)


# --- curves ---


@pytest.mark.parametrize(
    ("name", "epochs", "tags"),
    [
        ("rule", 9, [*NO_VALIDATION, "theory/lower", "theory/upper", "theory/mistakes", "theory/bound"]),
        ("gradient", 12, NO_VALIDATION),
        ("blobs", 4, CURVES),
        ("xor", 3, [tag for tag in NO_VALIDATION if tag != "margin"]),  # many lines have no one margin
        ("iris", 2, [tag for tag in CURVES if tag != "margin"]),
    ],
)
def test_every_curve_has_one_value_an_epoch(name, epochs, tags, request):
    found = request.getfixturevalue(name)
    assert sorted(found.events.Tags()["scalars"]) == sorted(tags)
    for tag in set(tags) - {"theory/bound"}:  # which is there as soon as the weights separate
        assert steps(found, tag) == list(range(1, epochs + 1)), tag


# --- how often ---


def draw_with(monkeypatch, folder, data, **options):
    """Train for one epoch; return what was handed to the picture."""
    drawn, real = [], plots.DecisionRegionDisplay.from_model

    def noted(model, X, y, **more):
        display = real(model, X, y, **more)
        drawn.append((X, y, display))
        return display

    monkeypatch.setattr(plots.DecisionRegionDisplay, "from_model", noted)
    found = run(
        folder, options.pop("lit", None) or logistic(tp.Perceptron(2)), data, options.pop("epochs", 1), **options
    )
    return drawn, found


def test_the_picture_shows_the_samples_of_all_batches(tmp_path, monkeypatch):
    data = TabularDataModule("noisy-blobs", options={"samples": 40}, batch_size=1)
    [*_, (X, y, _)], _ = draw_with(monkeypatch, tmp_path / "run", data, epochs=2)
    assert torch.equal(X, data.parts[0][0])
    assert torch.equal(y, data.parts[0][1])


def test_the_margin_is_drawn_through_the_nearest_sample_and_only_if_there_is_one(tmp_path, monkeypatch):
    data = TabularDataModule("AND")
    drawn, found = draw_with(monkeypatch, tmp_path / "run", data, lit=LitRule(tp.Perceptron(2)), epochs=20)
    X, y = data.parts[0]
    assert [display.title for *_, display in drawn] == ["epoch 1", "epoch 9"]
    assert drawn[0][2].margin is None
    assert drawn[1][2].margin == pytest.approx(float((y * found.lit.net(X)).min().detach()))


# --- pictures ---


@pytest.mark.parametrize(
    ("name", "expected"), [("rule", [1, 9]), ("gradient", [1, 5, 10, 12]), ("blobs", [1, 4]), ("xor", [1, 3])]
)
def test_pictures_come_first_last_and_at_intervals(name, expected, request):
    found = request.getfixturevalue(name)
    assert found.events.Tags()["images"] == ["boundary"]
    assert steps(found, "boundary", "Images") == expected


def test_four_features_have_no_picture(iris):
    assert iris.events.Tags()["images"] == []


@pytest.mark.parametrize("picture_every", [-1, 0.5, "often"])
def test_picture_every_is_a_number_of_epochs(picture_every):
    with pytest.raises((TypeError, ValueError), match="picture_every"):
        Board(picture_every)


# --- charts ---


def test_no_chart_is_empty(rule, xor):
    """An MLP has no margin and no bound on its mistakes."""
    titles = {"loss", "error", "mistakes", "norm"}
    assert charts(xor) == titles
    assert len(charts(rule) - titles) == 3


def charts(found):
    layout = Layout()
    layout.ParseFromString(make_ndarray(found.events.Tensors("custom_scalars__config__")[0].tensor_proto).item())
    logged = set(found.events.Tags()["scalars"])
    for chart in (chart for category in layout.category for chart in category.chart):
        assert logged & set(chart.multiline.tag), chart.title
    return {chart.title for category in layout.category for chart in category.chart}


# --- runs that are not to be disturbed ---


def weights_after(folder, **options):
    torch.manual_seed(3)
    net = nn.Sequential(nn.Linear(2, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 1), nn.Flatten(0))
    net[1].eval()  # a part that its owner froze
    trainer = make_trainer(folder, 4, accelerator="cpu", enable_progress_bar=False, **options)
    trainer.fit(logistic(net), TabularDataModule("noisy-blobs", batch_size=30))
    return net.state_dict()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Found 1 module.s. in eval mode")
def test_looking_at_a_run_changes_nothing_in_it(tmp_path):
    seen, unseen = weights_after(tmp_path / "a", picture_every=1), weights_after(tmp_path / "b", logger=False)
    for name, values in unseen.items():
        assert torch.equal(seen[name], values), name


@pytest.mark.parametrize("lr", [1e20, 1e38])
def test_a_diverging_run_is_pictured_and_ends_by_itself(tmp_path, lr):
    lit = LitClassifier(tp.Perceptron(2, init="normal", seed=0), "lms", lr=lr)
    with pytest.warns(DivergenceWarning, match="the run diverged in epoch 2"):
        found = run(tmp_path / "run", lit, TabularDataModule("AND"), 20, picture_every=1)
    assert steps(found, "boundary", "Images") == [1, 2]
    assert steps(found, "loss/train") == [1, 2]
    assert all(bool(values.isfinite().all()) for values in lit.net.parameters())


def test_the_run_s_head_is_the_picture_s(tmp_path, monkeypatch):
    lit = LitClassifier(tp.Perceptron(2), tp.LMSHead("0/1"), lr=0.1)
    [(*_, more)], _ = draw_with(monkeypatch, tmp_path / "run", TabularDataModule("AND"), lit=lit)
    assert more.grid.known.head == tp.LMSHead("0/1")


@pytest.mark.filterwarnings(
    "ignore:.*LeafSpec.*", "ignore:The number of training batches", "ignore:The '.*_dataloader' does not"
)
def test_checkpoints_are_named_as_without_the_board(tmp_path):
    X = torch.randn(64, 2, generator=torch.Generator().manual_seed(0))
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(X, X[:, 0].sign().long()), batch_size=16)
    names = []
    for callbacks in ([], [Board()]):
        folder = tmp_path / str(len(callbacks))
        saved = [pl.callbacks.ModelCheckpoint(folder / "steps", every_n_train_steps=2, save_top_k=-1)]
        saved.append(pl.callbacks.ModelCheckpoint(folder / "epochs", save_top_k=-1))
        quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
        trainer = pl.Trainer(max_epochs=2, accelerator="cpu", callbacks=saved + callbacks, **quiet)
        trainer.fit(logistic(tp.Perceptron(2)), loader, loader)
        names.append(sorted(str(path.relative_to(folder)) for path in folder.rglob("*.ckpt")))
    assert names[0] == names[1]
    assert len(names[0]) == 4 + 2
