"""What a run leaves for TensorBoard, read back from its event files, and the picture of its boundary."""

import io
import math
from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from matplotlib.colors import to_hex
from matplotlib.contour import QuadContourSet
from PIL import Image
from pytorch_lightning.loggers import CSVLogger
from tensorboard.backend.event_processing.data_provider import MultiplexerDataProvider
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.backend.event_processing.plugin_event_multiplexer import EventMultiplexer
from tensorboard.context import RequestContext
from tensorboard.plugins.base_plugin import TBContext
from tensorboard.plugins.custom_scalar.layout_pb2 import Layout
from tensorboard.plugins.hparams import metadata
from tensorboard.plugins.hparams.backend_context import Context
from torch import nn
from torch.utils.tensorboard import FileWriter

import torchperc as tp
from torchperc import plots
from torchperc.lightning import Board, LitClassifier, LitRule, TabularDataModule, make_trainer
from torchperc.lightning import tensorboard as board
from torchperc.lightning.callbacks import DivergenceWarning
from torchperc.plots.style import class_colours

CURVES = ["loss/train", "loss/val", "error/train", "error/val", "mistakes", "norm", "margin", "lr"]
NO_VALIDATION = [name for name in CURVES if not name.endswith("/val")]


def run(folder, lit, data, epochs, **options):
    """Train; return the module, the trainer and what the event files hold."""
    ckpt_path = options.pop("ckpt_path", None)
    trainer = make_trainer(folder, epochs, accelerator="cpu", enable_progress_bar=False, **options)
    trainer.fit(lit, data, ckpt_path=ckpt_path)
    return SimpleNamespace(lit=lit, trainer=trainer, data=data, folder=folder, events=events(folder))


def events(folder):
    found = EventAccumulator(str(folder), size_guidance={"scalars": 0, "images": 0, "histograms": 0, "tensors": 0})
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
        ("iris", 2, CURVES),
    ],
)
def test_every_curve_has_one_value_an_epoch(name, epochs, tags, request):
    found = request.getfixturevalue(name)
    assert sorted(found.events.Tags()["scalars"]) == sorted(tags)
    for tag in set(tags) - {"theory/bound"}:  # which is there as soon as the weights separate
        assert steps(found, tag) == list(range(1, epochs + 1)), tag


def test_the_rule_on_and_is_shown_as_it_went(rule):
    mistakes = [2, 3, 3, 2, 2, 3, 2, 1, 0]
    assert curve(rule, "mistakes") == mistakes
    assert curve(rule, "error/train") == [count / 4 for count in mistakes]
    assert curve(rule, "norm") == pytest.approx([math.sqrt(k) for k in (2, 6, 9, 12, 17, 22, 27, 29, 29)])
    assert curve(rule, "lr") == [1.0] * 9
    net, (X, y) = rule.lit.net, rule.data.parts[0]
    assert curve(rule, "margin")[-1] == pytest.approx(float(net.margin(X, y)))
    assert curve(rule, "loss/train")[-1] == 0
    assert (net.weight.tolist(), net.bias.tolist()) == ([[3.0, 2.0]], [-4.0])


def test_gradient_descent_is_shown_as_computed_by_hand(gradient):
    X, y = (part.double().numpy() for part in gradient.data.parts[0])
    w, b, expected = np.zeros(2), 0.0, {tag: [] for tag in NO_VALIDATION}
    for _ in range(12):
        scores = X @ w + b
        pull = -y / (1 + np.exp(y * scores)) / len(y)
        mistakes = int((np.where(scores > 0, 1, -1) != y).sum())
        length = np.linalg.norm(w)
        values = {"loss/train": np.logaddexp(0, -y * scores).mean(), "error/train": mistakes / 4, "mistakes": mistakes}
        values["margin"] = (y * scores).min() / length if length else 0.0
        w, b = w - 0.5 * X.T @ pull, b - 0.5 * pull.sum()
        for tag, value in {**values, "norm": math.hypot(*w, b), "lr": 0.5}.items():
            expected[tag].append(value)
    for tag, values in expected.items():
        assert curve(gradient, tag) == pytest.approx(values, rel=1e-4), tag


def test_the_last_validation_is_that_of_the_last_weights(blobs):
    X, y = blobs.data.parts[1]
    with torch.no_grad():
        scores = blobs.lit.net(X)
    assert curve(blobs, "loss/val")[-1] == pytest.approx(float(blobs.lit.head.loss(scores, y)))
    assert curve(blobs, "error/val")[-1] == pytest.approx(float((blobs.lit.head.decide(scores) != y).float().mean()))


@pytest.mark.parametrize("name", ["rule", "gradient", "blobs", "xor", "iris"])
def test_the_last_norm_is_that_of_all_weights(name, request):
    found = request.getfixturevalue(name)
    every = torch.cat([values.detach().flatten() for values in found.lit.net.parameters()])
    assert curve(found, "norm")[-1] == pytest.approx(float(every.norm()))


@pytest.mark.parametrize("update", ["batch", "sample"])
def test_a_schedule_of_the_rate_is_shown(tmp_path, update):
    lit = logistic(tp.Perceptron(2), update=update, scheduler=lambda o: torch.optim.lr_scheduler.StepLR(o, 2, 0.1))
    found = run(tmp_path / "run", lit, TabularDataModule("AND"), 5, picture_every=0)
    assert curve(found, "lr") == pytest.approx([0.5, 0.5, 0.05, 0.05, 0.005])


def test_a_resumed_run_goes_on_where_its_curves_ended(tmp_path):
    lit, data = logistic(tp.Perceptron(2)), TabularDataModule("AND")
    run(tmp_path / "run", lit, data, 3, picture_every=0)
    again = logistic(tp.Perceptron(2))
    found = run(tmp_path / "run", again, data, 5, picture_every=0, ckpt_path=tmp_path / "run" / "last.ckpt")
    whole = run(tmp_path / "whole", logistic(tp.Perceptron(2)), data, 5, picture_every=0)
    for tag in ("loss/train", "norm", "mistakes"):
        assert steps(found, tag) == [1, 2, 3, 4, 5]
        assert curve(found, tag) == curve(whole, tag)


def test_other_loggers_get_the_curves_too(tmp_path):
    logger = CSVLogger(tmp_path, name="csv", version="")
    found = make_trainer(tmp_path / "run", 3, accelerator="cpu", enable_progress_bar=False, logger=logger)
    found.fit(logistic(tp.Perceptron(2)), TabularDataModule("AND"))
    head, *rows = (tmp_path / "csv" / "metrics.csv").read_text().split()
    table = [dict(zip(head.split(","), row.split(","), strict=True)) for row in rows]
    assert [row["step"] for row in table] == ["1", "2", "3"]
    assert set(NO_VALIDATION) <= set(table[0])


# --- how often ---


@pytest.mark.slow
def test_logging_grows_with_epochs_and_not_with_batches(tmp_path, monkeypatch):
    counts, real = Counter(), FileWriter.add_event

    def counted(writer, event, *rest):
        for value in event.summary.value:
            counts[name, value.tag.split("/")[0]] += 1
        real(writer, event, *rest)

    monkeypatch.setattr(FileWriter, "add_event", counted)
    cases = {"one batch": ("full", 3), "24 batches": (1, 3), "twice": ("full", 6)}
    for name, (size, epochs) in cases.items():
        data = TabularDataModule("noisy-blobs", options={"samples": 40}, batch_size=size)
        run(tmp_path / name, logistic(tp.Perceptron(2)), data, epochs)
    of = {name: Counter({tag: n for (case, tag), n in counts.items() if case == name}) for name in cases}
    assert of["one batch"] == of["24 batches"]
    assert of["twice"] - of["one batch"] == Counter(
        {"loss": 6, "error": 6, "mistakes": 3, "norm": 3, "margin": 3, "lr": 3}
    )


def draw_with(monkeypatch, folder, data, **options):
    """Train for one epoch; return what was handed to the picture."""
    drawn, real = [], plots.decision_boundary

    def noted(score, X, y, **more):
        drawn.append((X, y, more))
        return real(score, X, y, **more)

    monkeypatch.setattr(plots, "decision_boundary", noted)
    found = run(
        folder, options.pop("lit", None) or logistic(tp.Perceptron(2)), data, options.pop("epochs", 1), **options
    )
    return drawn, found


def test_the_picture_shows_the_samples_of_all_batches(tmp_path, monkeypatch):
    data = TabularDataModule("noisy-blobs", options={"samples": 40}, batch_size=1)
    [*_, (X, y, _)], _ = draw_with(monkeypatch, tmp_path / "run", data, epochs=2)
    assert torch.equal(X, data.parts[0][0])
    assert torch.equal(y, data.parts[0][1])


def test_the_picture_shows_no_more_samples_than_it_can(tmp_path, monkeypatch):
    monkeypatch.setattr(board, "SAMPLES", 50)
    data = TabularDataModule("noisy-blobs", batch_size=20)
    [(X, y, _)], _ = draw_with(monkeypatch, tmp_path / "run", data)
    assert torch.equal(X, data.parts[0][0][:50])
    assert len(y) == 50


def test_the_margin_is_drawn_through_the_nearest_sample_and_only_if_there_is_one(tmp_path, monkeypatch):
    data = TabularDataModule("AND")
    drawn, found = draw_with(monkeypatch, tmp_path / "run", data, lit=LitRule(tp.Perceptron(2)), epochs=20)
    X, y = data.parts[0]
    assert [more["title"] for *_, more in drawn] == ["epoch 1", "epoch 9"]
    assert drawn[0][2]["margin"] is None
    assert drawn[1][2]["margin"] == pytest.approx(float((y * found.lit.net(X)).min().detach()))


# --- layout, pictures, histograms, graph ---


def test_the_layout_has_train_and_validation_on_one_chart_and_the_rest_side_by_side(blobs):
    [event] = blobs.events.Tensors("custom_scalars__config__")
    layout = Layout.FromString(event.tensor_proto.string_val[0])
    charts = {
        category.title: {chart.title: list(chart.multiline.tag) for chart in category.chart}
        for category in layout.category
    }
    assert charts == {
        "learning curves": {"loss": ["loss/train", "loss/val"], "error": ["error/train", "error/val"]},
        "rule and gradient": {
            "mistakes": ["mistakes"],
            "norm": ["norm"],
            "distance of the nearest sample": ["margin"],
        },
        "mistake bound": {
            "bounds on γ*, the margin with the bias as a weight": ["theory/lower", "theory/upper"],
            "mistakes and their bound": ["theory/mistakes", "theory/bound"],
        },
    }
    shown = {tag for category in charts.values() for tags in category.values() for tag in tags}
    theory = {tag for tags in charts["mistake bound"].values() for tag in tags}
    assert shown - theory == set(blobs.events.Tags()["scalars"]) - {"lr"}


@pytest.mark.parametrize(
    ("name", "expected"), [("rule", [1, 9]), ("gradient", [1, 5, 10, 12]), ("blobs", [1, 4]), ("xor", [1, 3])]
)
def test_pictures_come_first_last_and_at_intervals(name, expected, request):
    found = request.getfixturevalue(name)
    assert found.events.Tags()["images"] == ["boundary"]
    assert steps(found, "boundary", "Images") == expected
    for tag in found.events.Tags()["histograms"]:
        assert steps(found, tag, "Histograms") == expected


def test_a_last_epoch_at_an_interval_has_one_picture(tmp_path):
    found = run(tmp_path / "run", logistic(tp.Perceptron(2)), TabularDataModule("AND"), 4, picture_every=2)
    assert steps(found, "boundary", "Images") == [1, 2, 4]


def test_picture_every_0_leaves_pictures_and_histograms_out(tmp_path):
    found = run(tmp_path / "run", logistic(tp.Perceptron(2)), TabularDataModule("AND"), 2, picture_every=0)
    tags = found.events.Tags()
    assert (tags["images"], tags["histograms"]) == ([], [])
    assert len(curve(found, "norm")) == 2


def test_four_features_have_histograms_and_no_picture(iris):
    tags = iris.events.Tags()
    assert (tags["images"], sorted(tags["histograms"])) == ([], ["weights/bias", "weights/weight"])


def test_the_picture_is_500_by_400_and_shows_both_regions(rule):
    event = rule.events.Images("boundary")[-1]
    assert (event.width, event.height) == (500, 400)
    pixels = np.asarray(Image.open(io.BytesIO(event.encoded_image_string)).convert("RGB")).reshape(-1, 3)
    common = {to_hex(np.array(colour) / 255) for colour, n in Counter(map(tuple, pixels)).items() if n > 5000}
    assert len(common) == 3  # white and a shade for each side


def test_histograms_hold_the_weights(rule, xor):
    last = rule.events.Histograms("weights/weight")[-1].histogram_value
    assert (last.min, last.max, last.num, last.sum) == (2.0, 3.0, 2, 5.0)
    names = [f"weights/{name}" for name, _ in xor.lit.net.named_parameters()]
    assert sorted(xor.events.Tags()["histograms"]) == sorted(names)


@pytest.mark.parametrize(("name", "node"), [("rule", "Perceptron/"), ("xor", "MLP/")])
def test_the_graph_names_the_net(name, node, request):
    found = request.getfixturevalue(name)
    assert found.events.Tags()["graph"]
    assert any(entry.name.startswith(node) for entry in found.events.Graph().node if entry.op)


@pytest.mark.parametrize("picture_every", [-1, 0.5, "often"])
def test_picture_every_is_a_number_of_epochs(picture_every):
    with pytest.raises((TypeError, ValueError), match="picture_every"):
        Board(picture_every)


# --- hyper-parameters and summary ---


def test_hyperparameters_of_model_and_data_are_kept(rule, gradient):
    def options(found):
        content = found.events.PluginTagToContent(metadata.PLUGIN_NAME)
        start = metadata.parse_session_start_info_plugin_data(content[metadata.SESSION_START_INFO_TAG])
        assert metadata.SESSION_END_INFO_TAG in content
        return {name: getattr(value, value.WhichOneof("kind")) for name, value in start.hparams.items()}

    net = {"class_path": "torchperc.Perceptron", "init_args/in_features": 2, "init_args/bias": True}
    net |= {"init_args/init": "zeros", "init_args/seed": "None", "init_args/dtype": "torch.float32"}
    data = {
        "source": "AND",
        "batch_size": "full",
        "order": "given",
        "scale": "none",
        "seed": 0,
        "split": "None",
        "dtype": "float32",
        "task": "None",
        "scale_target": "auto",
    }
    both = {f"net/{name}": value for name, value in net.items()} | {
        f"data/{name}": value for name, value in data.items()
    }
    assert options(rule) == both | {
        "module": "LitRule", "lr": 1.0, "tie": "update", "bias_step": "None", "order": "given", "select": "last", "engine": "auto",
        "seed": 0, "margin": 0.0, "class_weight": "None", "prove": False, "distributed": "None", "mixing": "uniform",
    }  # fmt: skip
    assert options(gradient) == both | {
        "module": "LitClassifier", "head": "logistic", "lr": 0.5, "update": "batch", "start": "as-is", "interval": "epoch",
        "monitor": "None", "optimizer": "None", "scheduler": "None", "class_weight": "None",
    }  # fmt: skip


def test_the_table_has_the_columns_of_all_runs_and_the_last_values(runs, rule, gradient, blobs):
    loaded = EventMultiplexer({found.folder.name: str(found.folder) for found in (rule, gradient, blobs)}).Reload()
    provider = MultiplexerDataProvider(loaded, str(runs))
    context, request = Context(TBContext(data_provider=provider)), RequestContext()
    found = context.experiment_from_metadata(request, "", True, context.hparams_metadata(request, ""), [])
    columns = {info.name for info in found.hparam_infos}
    assert {"module", "lr", "head", "update", "tie", "select", "data/source", "data/scale"} <= columns  # of all runs
    theory = {"theory/lower", "theory/upper", "theory/mistakes", "theory/bound"}
    assert {info.name.tag for info in found.metric_infos} == {*CURVES, *theory}
    last = provider.read_last_scalars(request, experiment_id="", plugin_name="scalars")
    assert last["rule"]["mistakes"].value == 0
    assert last["blobs"]["loss/val"].value == curve(blobs, "loss/val")[-1]


def test_the_summary_names_options_and_final_metrics(rule):
    [event] = rule.events.Tensors("summary/text_summary")
    assert event.step == 9
    text = event.tensor_proto.string_val[0].decode()
    for row in (
        "| epochs | 9 |",
        "| module | LitRule |",
        "| data/source | AND |",
        "| mistakes | 0 |",
        "| norm | 5.38516 |",
    ):
        assert row in text.splitlines()


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


def test_modes_of_parts_come_back_after_a_look():
    net = nn.Sequential(nn.Dropout(), nn.BatchNorm1d(2))
    net[1].eval()
    with board.resting(net):
        assert not any(part.training for part in net.modules())
    assert [part.training for part in net.modules()] == [True, True, False]


@pytest.mark.filterwarnings("ignore:lr=.* is above 2/L")
@pytest.mark.parametrize("lr", [1e20, 1e38])
def test_a_diverging_run_is_pictured_and_ends_by_itself(tmp_path, lr):
    lit = LitClassifier(tp.Perceptron(2, init="normal", seed=0), "lms", lr=lr)
    with pytest.warns(DivergenceWarning, match="the run diverged in epoch 2"):
        found = run(tmp_path / "run", lit, TabularDataModule("AND"), 20, picture_every=1)
    assert steps(found, "boundary", "Images") == [1, 2]
    assert steps(found, "loss/train") == [1, 2]
    assert all(bool(values.isfinite().all()) for values in lit.net.parameters())


# --- the picture itself ---


def line_net(w, b):
    net = tp.Perceptron(2)
    with torch.no_grad():
        net.weight.copy_(torch.tensor([w]))
        net.bias.copy_(torch.tensor([b]))
    return net


def contours(figure):
    """The points of the lines drawn, by the level they are at."""
    found = {}
    for artist in figure.axes[0].get_children():
        if isinstance(artist, QuadContourSet):
            for level, path in zip(artist.levels, artist.get_paths(), strict=True):
                found.setdefault(float(level), []).append(path.vertices)
    return {level: np.concatenate(parts) for level, parts in found.items()}


def named(figure):
    """The artists of the legend, by name."""
    artists = [*figure.axes[0].collections, *figure.axes[0].lines]
    return {artist.get_label(): artist for artist in artists if not artist.get_label().startswith("_")}


def legend(figure):
    [found] = figure.legends
    return [text.get_text() for text in found.get_texts()]


def test_boundary_and_margin_lie_where_the_score_says():
    X, y = tp.data.gate("AND")
    figure = plots.decision_boundary(line_net([3.0, 2.0], -4.0), X.float(), y, title="epoch 9", margin=1.0)
    lines = contours(figure)
    assert sorted(lines) == [-1, 0, 1]
    for level, points in lines.items():
        assert points @ [3, 2] - 4 == pytest.approx(np.full(len(points), level), abs=1e-4)
    assert legend(figure) == ["boundary", "nearest sample", "−1", "+1"]
    axes = figure.axes[0]
    assert (axes.get_xlabel(), axes.get_ylabel(), axes.get_title()) == ("feature 1", "feature 2", "epoch 9")


def test_mistakes_are_ringed():
    X, y = tp.data.gate("XOR")
    figure = plots.decision_boundary(line_net([1.0, 1.0], -0.5), X.float(), y)
    ring = named(figure)["mistake"]
    assert ring.get_offsets().tolist() == [[1.0, 1.0]]
    assert ring.get_facecolor().size == 0
    assert ring.get_sizes()[0] > 2 * named(figure)["+1"].get_sizes()[0]
    assert legend(figure) == ["boundary", "−1", "+1", "mistake"]


def test_samples_have_their_class_s_colour_and_shape():
    X, y = tp.data.gate("AND")
    parts = named(plots.decision_boundary(line_net([3.0, 2.0], -4.0), X.float(), y))
    for label, name in ((-1, "−1"), (1, "+1")):
        assert sorted(parts[name].get_offsets().tolist()) == sorted(X[y == label].tolist())
    colours = [to_hex(parts[name].get_facecolor()[0]) for name in ("−1", "+1")]
    assert colours == ["#0072b2", "#e69f00"]
    shapes = [len(parts[name].get_paths()[0].vertices) for name in ("−1", "+1")]
    assert shapes[0] != shapes[1]


def test_a_head_decides_where_the_boundary_is():
    X, y = tp.data.gate("AND")
    figure = plots.decision_boundary(line_net([0.4, 0.4], -0.1), X.float(), y, head=tp.LMSHead("0/1"))
    points = contours(figure)[0]
    assert points @ [0.4, 0.4] - 0.1 == pytest.approx(np.full(len(points), 0.5), abs=1e-6)
    assert "mistake" not in legend(figure)
    figure = plots.decision_boundary(tp.Perceptron(2), X.float(), y, head=tp.LogisticHead())
    assert named(figure)["mistake"].get_offsets().tolist() == [[1.0, 1.0]]  # a score of 0 is decided −1 there


def test_the_run_s_head_is_the_picture_s(tmp_path, monkeypatch):
    lit = LitClassifier(tp.Perceptron(2), tp.LMSHead("0/1"), lr=0.1)
    [(*_, more)], _ = draw_with(monkeypatch, tmp_path / "run", TabularDataModule("AND"), lit=lit)
    assert more["head"] == tp.LMSHead("0/1")


@pytest.mark.parametrize("bias", [-9.0, 9.0, float("nan"), float("inf")])
def test_a_boundary_outside_the_picture_is_not_named(bias):
    X, y = tp.data.gate("AND")
    figure = plots.decision_boundary(line_net([1.0, 1.0], bias), X.float(), y, margin=1.0)
    assert contours(figure) == {}
    assert "boundary" not in legend(figure)
    assert "margin" not in legend(figure)


def three_classes():
    net = tp.MulticlassPerceptron(2, 3)
    angles = torch.tensor([0.0, 2 * math.pi / 3, 4 * math.pi / 3])
    corners = torch.stack([angles.cos(), angles.sin()], 1)
    with torch.no_grad():
        net.weight.copy_(corners)
        net.bias.zero_()
    return net, torch.cat([2 * corners, corners]), torch.tensor([0, 1, 2, 0, 1, 0])


def test_k_classes_have_regions_boundaries_and_rings():
    net, X, y = three_classes()
    figure = plots.decision_boundary(net, X, y, margin=1.0)
    lines = contours(figure)
    assert list(lines) == [0]  # a margin between K classes is not one pair of lines
    with torch.no_grad():
        best, second = net(torch.tensor(lines[0], dtype=torch.float32)).topk(2).values.T
    assert torch.allclose(best, second, atol=0.05)
    assert legend(figure) == ["boundary", "0", "1", "2", "mistake"]
    assert named(figure)["mistake"].get_offsets().tolist() == [X[5].tolist()]
    regions = figure.axes[0].images[0].get_array()
    assert sorted(np.unique(regions)) == [0, 1, 2]


def test_a_class_without_samples_keeps_its_colour():
    net, X, y = three_classes()
    figure = plots.decision_boundary(net, X[:2], y[:2])
    region = figure.axes[0].images[0]
    assert (region.norm.vmin, region.norm.vmax, region.cmap.N) == (0, 2, 3)


@pytest.mark.parametrize("count", [2, 3, 7, 8, 10, 12])
def test_classes_are_told_apart(count):
    assert len(set(class_colours(count))) == count


def test_the_legend_covers_no_sample():
    X, y = tp.data.gate("AND")
    figure = plots.decision_boundary(line_net([3.0, 2.0], -4.0), X.float(), y)
    figure.canvas.draw()
    assert figure.legends[0].get_window_extent().y1 < figure.axes[0].get_window_extent().y0


@pytest.mark.parametrize("shape", [(4, 3), (4,), (2, 2, 2)])
def test_only_two_features_can_be_drawn(shape):
    with pytest.raises(ValueError, match="drawn over 2 features"):
        plots.decision_boundary(tp.Perceptron(2), torch.zeros(shape), torch.ones(shape[0]))
