"""Pictures, artist by artist: what is drawn is what model, log or data say; nothing overlaps, is cut off or is shown."""

import math
from io import BytesIO
from itertools import combinations, pairwise
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.contour import QuadContourSet
from matplotlib.figure import Figure
from mpl_toolkits.mplot3d import Axes3D
from PIL import Image, ImageSequence
from refusals import refusals
from scipy.sparse import csr_array
from sklearn.datasets import make_circles
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.metrics import confusion_matrix
from torch import nn

import torchperc as tp
from torchperc import plots
from torchperc.plots.classifiers import classifier

AND = tp.data.gate("AND")
XOR = tp.data.gate("XOR")
NET = tp.Perceptron(2)
RUN = tp.RuleTrainer().fit(NET, *AND, validation=AND)  # 18 mistakes in 9 epochs
LOG = RUN.log


@pytest.fixture(scope="module")
def three():
    """Three classes in four features."""
    data = tp.data.load("iris")
    net = tp.MulticlassPerceptron(4, 3, dtype=torch.float64)
    tp.RuleTrainer(5, order="shuffled", select="averaged").fit(net, data.X, data.y)
    return net, data


def linear(weight, bias, dtype=torch.float64):
    net = nn.Linear(len(weight[0]), len(weight), dtype=dtype)
    with torch.no_grad():
        net.weight.copy_(torch.tensor(weight))
        net.bias.copy_(torch.tensor(bias))
    return net


def points_of(contours):
    """The points of lines, by the level they are at."""
    found = {}
    for contour in contours:
        assert isinstance(contour, QuadContourSet)
        for level, path in zip(contour.levels, contour.get_paths(), strict=True):
            found.setdefault(float(level), []).append(path.vertices)
    return {level: np.concatenate(parts) for level, parts in found.items()}


def legend_of(display):
    [found] = [*display.figure_.legends, *(ax.get_legend() for ax in display.figure_.axes if ax.get_legend())]
    return [text.get_text() for text in found.get_texts()]


def ydata(line):
    return np.asarray(line.get_ydata(), dtype=float)


def test_boundary_and_margin_are_where_the_score_says():
    display = plots.DecisionRegionDisplay.from_model(RUN, *AND, title="AND")
    assert list(points_of(display.boundary_)) == [0]
    slack = float((AND[1] * NET(AND[0])).detach().min())
    lines = {**points_of(display.boundary_), **points_of(display.margin_)}
    assert sorted(lines) == [-slack, 0, slack]
    for level, points in lines.items():
        assert points @ [3, 2] - 4 == pytest.approx(np.full(len(points), level), abs=1e-4)
    assert legend_of(display) == ["boundary", f"nearest sample: {float(NET.margin(*AND)):.3g}", "−1", "+1"]
    ax = display.ax_
    assert (ax.get_xlabel(), ax.get_ylabel(), ax.get_title()) == ("feature 1", "feature 2", "AND")
    assert display.ring_ is None


def test_mistakes_or_support_vectors_are_ringed():
    result = tp.RuleTrainer(3).fit(tp.Perceptron(2), *AND)
    wrong = plots.DecisionRegionDisplay.from_model(result, *AND)
    assert wrong.ring_.get_offsets().tolist() == AND[0][result.predict(AND[0]) != AND[1]].tolist()
    assert legend_of(wrong)[-1] == "mistake"
    X, y = tp.data.separable_blobs(samples=30, seed=1)
    net = tp.Perceptron(2, dtype=X.dtype)
    result = tp.RuleTrainer().fit(net, X, y)
    support = X[result.log.dual() != 0]
    assert 0 < len(support) < 30
    for model, log in ((result, None), (net, result.log)):
        display = plots.DecisionRegionDisplay.from_model(model, X, y, ring="support", log=log)
        assert display.ring_.get_offsets().tolist() == support.tolist()
        assert legend_of(display)[-1] == "support vector"
    assert plots.DecisionRegionDisplay.from_model(result, X, y, ring=None).ring_ is None


def test_samples_have_their_class_s_colour_shape_and_name():
    X, y = torch.rand(30, 2), torch.arange(30) % 3
    net = tp.MulticlassPerceptron(2, 3, init="normal", seed=0)
    display = plots.DecisionRegionDisplay.from_model(net, X, y, labels=("a", "b", "c"))
    looks = set()
    for label, points in display.points_.items():
        assert points.get_offsets().tolist() == X[y == label].tolist()
        looks.add((tuple(points.get_facecolor()[0]), len(points.get_paths()[0].vertices)))
    assert len({colour for colour, _ in looks}) == len({shape for _, shape in looks}) == 3
    assert [name for name in legend_of(display) if len(name) == 1] == ["a", "b", "c"]
    assert display.margin_ == []


def test_more_features_are_projected_onto_w_and_the_rest():
    X, y = tp.data.separable_blobs(samples=40, features=5, seed=2)
    net = tp.Perceptron(5, dtype=X.dtype)
    tp.RuleTrainer().fit(net, X, y)
    display = plots.DecisionRegionDisplay.from_model(net, X, y)
    assert "w/‖w‖" in display.ax_.get_xlabel()
    assert display.ax_.get_title() == "5 features, projected onto two directions"
    # by numpy: the eigenvector of the largest eigenvalue of what w leaves over
    u = (net.weight / net.weight.norm()).detach().numpy()[0]
    rest = X.numpy() - X.numpy().mean(0)
    rest = rest - np.outer(rest @ u, u)
    v = np.linalg.eigh(rest.T @ rest)[1][:, -1]
    for label, points in display.points_.items():
        own, (across, up) = X[y == label].numpy(), np.asarray(points.get_offsets()).T
        assert across == pytest.approx(own @ u, abs=1e-9)
        assert np.abs(up) == pytest.approx(np.abs(own @ v), abs=1e-8)
    margin, offset = float(net.margin(X, y)), float(tp.functional.offset(net.weight.data, net.bias.data))
    assert legend_of(display)[1] == f"nearest sample: {margin:.3g}"
    lines = sorted((points_of(display.boundary_) | points_of(display.margin_)).items())
    places = [points[:, 0] - offset for _, points in lines]
    assert [place.mean() for place in places] == pytest.approx([-margin, 0, margin], abs=1e-6)


def test_a_projection_decides_as_the_model_does(three):
    net, data = three
    display = plots.DecisionRegionDisplay.from_model(net, data.X, data.y, labels=data.labels)
    flat = display.plane.lift(display.plane.project(data.X))
    assert not torch.allclose(flat, data.X)
    with torch.no_grad():
        full, seen = net(data.X), net(flat)
    assert torch.allclose(full - full[:, :1], seen - seen[:, :1], atol=1e-9)
    assert len(display.ring_.get_offsets()) == int((net.predict(data.X) != data.y).sum()) > 0
    # and on the picture itself, pixel by pixel
    left, right, bottom, top = display.regions_.get_extent()
    low, span = np.array([left, bottom]), np.array([right - left, top - bottom])
    column, row = ((display.points.numpy() - low) / span * 199).round().astype(int).T
    first, second = np.sort(seen.numpy(), 1)[:, [-1, -2]].T
    same = display.regions_.get_array()[row, column] == net.predict(data.X).numpy()
    assert same[first - second > 0.5].sum() == (first - second > 0.5).sum() > 100


MODELS = {
    "net": lambda: tp.RuleTrainer().fit(net := tp.Perceptron(2), *AND) and net,
    "result": lambda: tp.RuleTrainer().fit(tp.Perceptron(2), *AND),
    "voted": lambda: tp.RuleTrainer(select="voted").fit(tp.Perceptron(2), *AND),
    "kernel": lambda: tp.RuleTrainer(kernel="rbf").fit(None, *AND),
    "MLP": lambda: tp.MLP(2, (3,), seed=0),
    "K classes": lambda: linear([[0.0, 0.0], [3.0, 2.0]], [0.0, -4.0]),
    "joint": lambda: tp.JointPerceptron(2, 2, init="normal", seed=0),
    "Lightning": lambda: tp.lightning.LitClassifier(tp.Perceptron(2, init="normal", seed=0), "lms 0/1", lr=0.1),
    "function": lambda: lambda X: 3 * X[:, 0] + 2 * X[:, 1] - 4,
    "estimator": lambda: LogisticRegression().fit(*(part.numpy() for part in AND)).decision_function,
}


@pytest.mark.parametrize("name", MODELS)
def test_whatever_scores_can_be_drawn(name):
    model = MODELS[name]()
    many = name in ("K classes", "joint")
    y = (AND[1] + 1) // 2 if many else AND[1]
    display = plots.DecisionRegionDisplay.from_model(model, AND[0].numpy(), y.numpy())
    dtype = next(model.parameters()).dtype if isinstance(model, nn.Module) else torch.float32
    scores = model.scores(AND[0]) if hasattr(model, "scores") else model(AND[0].to(dtype))
    decided = (classifier(model).head).decide(torch.as_tensor(scores).detach().reshape(4, -1).squeeze(-1))
    ringed = [] if display.ring_ is None else display.ring_.get_offsets().tolist()
    assert ringed == AND[0][decided != y].tolist()
    confused = plots.ConfusionDisplay.from_model(model, AND[0], y).matrix
    assert confused.tolist() == confusion_matrix(y, decided).tolist()
    margins = plots.MarginDisplay.from_model(model, AND[0], y).margins
    assert torch.equal((margins > 0)[margins != 0], (decided == y)[margins != 0])


def test_a_module_s_own_head_decides():
    lit = tp.lightning.LitClassifier(tp.Perceptron(2), "lms 0/1", lr=0.1)
    with torch.no_grad():
        lit.net.weight.copy_(torch.tensor([[0.4, 0.4]]))
        lit.net.bias.fill_(-0.1)
    points = points_of(plots.DecisionRegionDisplay.from_model(lit, *AND).boundary_)[0]
    assert points @ [0.4, 0.4] - 0.1 == pytest.approx(np.full(len(points), 0.5), abs=1e-6)
    margins = plots.MarginDisplay.from_model(lit, *AND).margins
    assert float(margins.min()) == pytest.approx(0.2 / math.hypot(0.4, 0.4), rel=1e-5)


def test_the_path_has_a_panel_for_each_mistake():
    display = plots.PathDisplay.from_log(LOG, names=("x₁", "x₂"))
    assert [ax.get_title() for ax in display.ax_] == [f"mistake {t}" for t in range(1, 19)]
    for t, (lines, ring) in enumerate(zip(display.boundary_, display.ring_, strict=True), 1):
        assert ring.get_offsets().tolist() == [AND[0][LOG[t - 1].sample].tolist()]
        state = LOG.state_at(t)
        for points in points_of(lines).values():
            assert state.scores(torch.tensor(points).float()).abs().max() < 1e-5
    assert sum(map(bool, display.boundary_)) > 9
    assert {ax.get_xlabel() for ax in display.ax_[12:]} == {"x₁"}
    assert {ax.get_ylabel() for ax in display.ax_[::6]} == {"x₂"}
    assert legend_of(display) == ["−1", "+1", "mistake", "boundary after the mistake", "boundary before it"]


def test_a_longer_path_is_thinned_and_states_can_be_chosen():
    titles = [ax.get_title() for ax in plots.PathDisplay.from_log(RUN, max_panels=4).ax_]
    assert titles == ["mistake 5", "mistake 9", "mistake 14", "mistake 18"]
    chosen = plots.PathDisplay.from_log(LOG, states=[0, 18])
    assert [ax.get_title() for ax in chosen.ax_] == ["start", "mistake 18"]
    assert chosen.ring_[0] is None


def frames(path):
    with Image.open(path) as picture:
        return [(np.asarray(each.convert("RGB")), each.info["duration"]) for each in ImageSequence.Iterator(picture)]


@pytest.mark.slow
def test_the_animation_has_a_frame_for_each_mistake(tmp_path, monkeypatch):
    result = tp.RuleTrainer().fit(tp.Perceptron(2), [[0, 0], [1, 1], [2, 3]], [-1, 1, 1])
    assert result.log.mistakes_by_epoch().tolist() == [2, 1, 0]
    display = plots.PathDisplay.from_log(result.log, max_panels=1)
    titles, real = set(), Axes.set_title
    monkeypatch.setattr(Axes, "set_title", lambda ax, text, **look: titles.add(text) or real(ax, text, **look))
    found = frames(display.animate(tmp_path / "path.gif", fps=4, size=3.0))
    after = {f"after mistake {t} of 3, in epoch {epoch}" for t, epoch in ((1, 1), (2, 1), (3, 2))}
    assert titles - {""} == after | {"before the first of 3 mistakes"}
    assert [time for _, time in found] == [250, 250, 250, 1000]  # the last one is held
    [(height, width, _)] = {picture.shape for picture, _ in found}
    assert (width, height >= 252) == (300, True)  # rows of the legend beyond the first make it higher
    # axes stay where they are: the frame around them is black in every picture
    always = np.stack([picture.max(-1) < 90 for picture, _ in found]).all(0)
    assert always.sum(0).max() > 120
    assert always.sum(1).max() > 200
    assert len(frames(display.animate(tmp_path / "short.gif", max_frames=1, size=2.0))) == 2


def test_an_mp4_is_made_by_ffmpeg_and_without_it_the_remedy_is_named(tmp_path, monkeypatch):
    display = plots.PathDisplay.from_log(LOG, max_panels=1)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ValueError, match=r"path.mp4.*ffmpeg.*\.gif"):
        display.animate(tmp_path / "path.mp4")
    assert list(tmp_path.iterdir()) == []
    program = tmp_path / "ffmpeg"  # keeps the pixels it is sent, in the file that ffmpeg would write
    program.write_text('#!/bin/sh\nfor last; do :; done\nexec /bin/cat > "$last"\n')
    program.chmod(0o755)
    path = display.animate(tmp_path / "path.mp4", max_frames=1, size=2.01)
    pixels = np.frombuffer(path.read_bytes(), dtype=np.uint8)
    height, rest = divmod(pixels.size, (1 + 4) * 200 * 4)  # even sides; the last frame is held
    assert (height >= 168, height % 2, rest) == (True, 0, 0)


def test_learning_curves_are_the_log_s():
    display = plots.LearningCurveDisplay.from_result(RUN, bound=51)
    made = LOG.mistakes_by_epoch()
    assert ydata(display.train_) == pytest.approx(25 * made.numpy())
    assert display.train_.get_xdata().tolist() == list(range(1, 10))
    held = [100 * record.validation_error for record in RUN.history]
    assert ydata(display.validation_) == pytest.approx(held)
    assert ydata(display.mistakes_).tolist() == made.cumsum(0).tolist()
    assert ydata(display.bound_).tolist() == [51, 51]
    assert [ax.get_ylabel() for ax in display.ax_] == ["error (%)", "mistakes so far"]
    assert {ax.get_xlabel() for ax in display.ax_} == {"epoch"}
    names = ["training, during the epoch", "validation, after the epoch", "mistakes: 18", "bound: 51"]
    assert legend_of(display) == names
    assert display.train_.get_linestyle() != display.validation_.get_linestyle()
    assert display.train_.get_marker() != display.validation_.get_marker()


def test_learning_curves_without_bound_or_validation():
    display = plots.LearningCurveDisplay.from_result(LOG)
    assert (display.validation_, display.mistakes_, display.bound_) == (None, None, None)
    assert len(display.figure_.axes) == 1
    assert display.figure_.axes[0] is display.ax_
    dry = tp.RuleTrainer(5, order="random-mistake").fit(NET, *AND)  # has learned already: no sample is presented
    assert dry.log.steps == 0
    assert ydata(plots.LearningCurveDisplay.from_result(dry).train_).tolist() == [0]


@pytest.mark.parametrize("bias_step", ["unit", "radius", "none"])
def test_the_bracket_by_a_plain_loop(bias_step):
    X, y = tp.data.separable_blobs(samples=30, seed=4)
    X = X + (0 if bias_step == "none" else 5)
    weights = torch.arange(30) % 3 / 2 + 0.5
    net = tp.Perceptron(2, dtype=X.dtype, bias=bias_step != "none")
    trainer = tp.RuleTrainer(6, lr=0.5, bias_step=bias_step, tie="update", order="shuffled")
    log = trainer.fit(net, X, y, sample_weight=weights).log
    constant = {"unit": 1.0, "radius": float(X.norm(dim=1).max()), "none": 0.0}[bias_step]
    points, signs = np.c_[X.numpy(), np.full(len(X), constant)], y.numpy()
    lower, upper, w, total, j = [], [], np.zeros(3), 0.0, 0
    for end in log.epoch_ends.tolist():
        while j < len(log) and log[j].step < end:
            w, total, j = w + log[j].coef * points[log[j].sample], total + abs(log[j].coef), j + 1
        lower.append((signs * (points @ w)).min() / np.linalg.norm(w))
        upper.append(np.linalg.norm(w) / total)
    found = plots.bracket_by_epoch(log)
    assert found[0] == pytest.approx(lower, rel=1e-9)
    assert found[1] == pytest.approx(upper, rel=1e-9)
    assert len(log) > 5


def test_the_bracket_of_kernels_and_many_classes():
    X, y = tp.data.separable_blobs(samples=30, seed=4)
    trainer = tp.RuleTrainer(6, order="shuffled", bias_step="radius")
    linear = trainer.fit(tp.Perceptron(2), X.float(), y).log
    kernel = tp.RuleTrainer(6, order="shuffled", bias_step="radius", kernel="linear").fit(None, X.float(), y).log
    for one, other in zip(*map(plots.bracket_by_epoch, (linear, kernel)), strict=True):
        assert one == pytest.approx(other, rel=1e-3)
    both, joint = (
        tp.RuleTrainer(6, order="shuffled").fit(make(2, 2, dtype=X.dtype), X, (y + 1) // 2).log
        for make in (tp.MulticlassPerceptron, tp.JointPerceptron)
    )
    lower, upper = plots.bracket_by_epoch(both)
    assert plots.bracket_by_epoch(joint) == (pytest.approx(lower), pytest.approx(upper))
    model = both.last()
    length = float((model.weight.square().sum() + model.bias.square().sum()).sqrt())
    leads = (model.scores(X) @ torch.tensor([-1.0, 1.0]).to(X)) * y
    assert (lower[-1], upper[-1]) == pytest.approx((float(leads.min()) / length, length / len(both)))


def test_a_bracket_may_have_gaps_or_prove_that_nothing_separates():
    lower, upper = plots.bracket_by_epoch(tp.RuleTrainer().fit(tp.Perceptron(2), *XOR).log)
    assert np.isnan(lower).all()
    assert upper.tolist() == [0]  # the weights are zero again after 4 mistakes, so γ* ≤ 0
    plots.BracketDisplay(lower, upper).plot()
    plots.BracketDisplay([math.nan], [math.nan]).plot()
    held = tp.RuleTrainer().fit(tp.Perceptron(2), *AND, sample_weight=[1, 1, 0, 1]).log
    part = tp.RuleTrainer().fit(tp.Perceptron(2), AND[0][[0, 1, 3]], AND[1][[0, 1, 3]]).log
    assert plots.bracket_by_epoch(held)[0].tolist() == plots.bracket_by_epoch(part)[0].tolist()


def heights(bars):
    return sum(bar.get_height() for bar in bars)


def test_margins_are_distances():
    X, y = tp.data.noisy_blobs(samples=200, seed=0)
    net = tp.Perceptron(2, dtype=X.dtype)
    tp.RuleTrainer(5, select="averaged").fit(net, X, y)
    display = plots.MarginDisplay.from_model(net, X, y, bins=20)
    assert display.margins == pytest.approx(
        (y * tp.functional.signed_distance(X, net.weight, net.bias)).detach().numpy()
    )
    wrong = int((net.predict(X) != y).sum())
    assert (heights(display.right_), heights(display.wrong_)) == (200 - wrong, wrong)
    assert display.smallest_.get_xdata()[0] == pytest.approx(float(net.margin(X, y)))
    assert {bar.get_hatch() for bar in display.wrong_} == {"///"}
    assert "y·(w·x + b)/‖w‖" in display.ax_.get_xlabel()
    assert display.ax_.get_ylabel() == "samples"


def test_no_sample_is_left_out_of_the_bars():
    for values in ([0.0, 0.0], [0.057], [-0.057], [0.0, 3.0], [0.0, -3.0], [-1e-9, 1.0], [0.1] * 3, [-1.0, 0.0, 2.0]):
        for bins in (1, 7):
            display = plots.MarginDisplay(torch.tensor(values, dtype=torch.float64), bins=bins).plot()
            right = sum(value > 0 for value in values)
            assert (heights(display.right_), heights(display.wrong_)) == (right, len(values) - right)
            assert all(bar.get_x() + bar.get_width() <= 1e-12 for bar in display.wrong_ if bar.get_height())
            assert all(bar.get_x() >= -1e-12 for bar in display.right_ if bar.get_height())


def test_margins_of_many_classes_are_leads(three):
    net, data = three
    display = plots.MarginDisplay.from_model(net, data.X, data.y)
    scores = net(data.X).detach().numpy()
    leads = [row[k] - max(np.delete(row, k)) for row, k in zip(scores, data.y.tolist(), strict=True)]
    assert display.margins == pytest.approx(np.array(leads))
    assert plots.MarginDisplay.from_model(tp.Perceptron(2), *AND).margins.tolist() == [0, 0, 0, 0]


def test_weights_are_images_on_one_scale():
    net = tp.MulticlassPerceptron(6, 3, init="normal", seed=0)
    display = plots.WeightsDisplay.from_model(net, (2, 3), labels=("a", "b", "c"))
    largest = float(net.weight.detach().abs().max())
    for k, image in enumerate(display.images_):
        assert image.get_array().tolist() == net.weight[k].detach().reshape(2, 3).tolist()
        assert image.get_clim() == (-largest, largest)
    assert [ax.get_title() for ax in display.ax_] == ["a", "b", "c"]
    assert display.colorbar_.ax.get_ylabel()
    single = plots.WeightsDisplay.from_model(tp.Perceptron(4))
    assert [ax.get_title() for ax in single.ax_] == ["w"]
    assert single.images_[0].get_array().shape == (2, 2)
    assert single.images_[0].get_clim() == (-1, 1)  # zero weights still have a scale


@pytest.mark.parametrize(
    ("y", "said", "labels", "matrix"),
    [
        ([1, 1], [1, 1], ("no", "yes"), [[0, 0], [0, 2]]),
        ([-1, 1, 1], torch.tensor([1, 1, 1]), ("−1", "+1"), [[0, 1], [0, 2]]),
        ([0, 1], [0, 0], ("a", "b", "c"), [[1, 0, 0], [1, 0, 0], [0, 0, 0]]),
        ([0, 0], [0, 0], None, [[2, 0], [0, 0]]),
        ([1, 1, 1], [1, 1, 1], ("a", "b", "c"), [[0, 0, 0], [0, 3, 0], [0, 0, 0]]),
        (["dog", "ant"], np.array(["cat", "ant"], dtype=object), None, [[1, 0, 0], [0, 0, 0], [0, 1, 0]]),
        (["dog", "ant"], ["cat", "ant"], ("dog", "cat", "ant"), [[0, 1, 0], [0, 0, 0], [0, 0, 1]]),
    ],
)
def test_confusion_of_classes_that_do_not_occur_and_of_strings(y, said, labels, matrix):
    display = plots.ConfusionDisplay.from_predictions(y, said, labels)
    assert display.matrix.tolist() == matrix
    for (row, column), text in display.texts_.items():
        assert (text.get_text(), text.get_position()) == (str(matrix[row][column]), (column, row))
    assert display.ax_.get_title() == f"{sum(a != b for a, b in zip(y, said, strict=True))} of {len(y)} wrong"
    assert (display.ax_.get_xlabel(), display.ax_.get_ylabel()) == ("predicted label", "true label")
    names = [text.get_text() for text in display.ax_.get_xticklabels()]
    assert names == (list(labels) if labels else ["ant", "cat", "dog"] if isinstance(y[0], str) else ["0", "1"])


@pytest.mark.parametrize("count", [1, 5, 46])
def test_every_transition_is_where_its_tags_are(count):
    generator = torch.Generator().manual_seed(count)
    transition, end = torch.randn(count + 1, count, generator=generator), torch.randn(count, generator=generator)
    names = [f"T{k:02d}$$" for k in range(count)]
    model = SimpleNamespace(net=SimpleNamespace(transition=transition, end=end))
    display = plots.TransitionDisplay.from_model(model, labels=names)
    ax, rows, columns = display.ax_, ["start", *names], [*names, "end"]
    assert [label.get_text() for label in (*ax.get_yticklabels(), *ax.get_xticklabels())] == rows + columns
    cells = np.ma.filled(display.image_.get_array().astype(float), np.nan)
    for row, before in enumerate(rows):
        for column, after in enumerate(columns):
            source = count if before == "start" else names.index(before)
            ends = torch.cat((end, torch.tensor([math.nan])))  # nothing goes from the start to the end
            expected = ends[source] if after == "end" else transition[source, names.index(after)]
            np.testing.assert_equal(cells[row, column], float(expected))
    low, high = display.image_.get_clim()
    sizes = np.abs(cells[np.isfinite(cells)])
    assert -low == high == pytest.approx(np.quantile(sizes, 0.995) if count > 12 else sizes.max())
    assert display.colorbar_.extend == ("both" if count > 12 else "neither")
    assert len(display.texts_) == (0 if count > 12 else (count + 1) ** 2 - 1)
    display.figure_.canvas.draw()
    boxes = [label.get_window_extent() for label in display.ax_.get_yticklabels()]
    assert all(above.y0 > below.y1 for above, below in pairwise(boxes)), "names overlap"


def test_weights_are_written_as_numbers():
    display = plots.TransitionDisplay(torch.tensor([[-0.125, 250.0], [0, 1], [2, 3]]), torch.tensor([4.0, -5])).plot()
    found = [display.texts_[place].get_text() for place in ((1, 0), (1, 1), (1, 2), (0, 1), (2, 2))]
    assert found == ["−0.12", "250", "4", "3", "−5"]
    assert plots.TransitionDisplay(torch.zeros(3, 2), torch.zeros(2)).plot().image_.get_clim() == (-1, 1)


rng = np.random.default_rng(0)
SAMPLES = rng.normal(size=(30, 2))
TARGETS = SAMPLES @ [3.0, -1.0] + 60 + rng.normal(size=30)
BEST = LinearRegression().fit(SAMPLES, TARGETS).predict(SAMPLES)


def test_residuals_have_the_figures_of_scikit_learn():
    display = plots.ResidualDisplay.from_predictions(TARGETS, BEST, target="weight in kg")
    np.testing.assert_array_equal(display.points_.get_offsets().data, np.c_[BEST, TARGETS])
    np.testing.assert_array_equal(display.residuals_.get_offsets().data, np.c_[BEST, TARGETS - BEST])
    assert display.r2 == pytest.approx(1 - np.var(TARGETS - BEST) / np.var(TARGETS))  # the mean residual is 0
    assert display.rmse == pytest.approx(np.sqrt(np.mean((TARGETS - BEST) ** 2)))
    assert [line.get_ydata()[0] for line in display.band_] == [display.rmse, -display.rmse]
    assert display.ax_[0].get_title() == f"R² = {display.r2:.3f}, RMSE = {display.rmse:.3g}"
    assert [axes.get_xlabel() for axes in display.ax_] == ["predicted weight in kg"] * 2
    low, high = display.ax_[1].get_ylim()
    assert low == -high
    same = plots.ResidualDisplay.from_predictions([2.0, 2.0], [2.0, 2.0])
    assert (math.isnan(same.r2), same.ax_[0].get_title()) == (True, "RMSE = 0")
    assert plots.ResidualDisplay.from_predictions(np.zeros(6000), rng.normal(size=6000)).points_.get_rasterized()


def test_xor_is_lifted_until_a_plane_separates(monkeypatch):
    surfaces, real = [], Axes3D.plot_surface
    monkeypatch.setattr(Axes3D, "plot_surface", lambda ax, *xyz, **look: surfaces.append(xyz) or real(ax, *xyz, **look))
    display = plots.LiftedDisplay.from_data(*XOR)
    assert display.before.verdict is not tp.Verdict.SEPARATED
    assert display.after.verdict is tp.Verdict.SEPARATED
    assert len(display.before_.ring_.get_offsets()) == 1  # three of four is the best a line can do
    assert "best line found, 1 wrong" in display.ax_[0].get_title()
    assert "with x₁·x₂\na plane separates" in display.ax_[1].get_title()
    for label, points in display.points_.items():
        x1, x2, height = points._offsets3d
        assert height.tolist() == (x1 * x2).tolist()
        assert sorted(map(list, zip(x1, x2, strict=True))) == sorted(XOR[0][XOR[1] == label].tolist())
    weight, bias = display.after.model.weight[0].numpy(), float(display.after.model.bias)
    [surface] = surfaces
    corners = np.stack(surface, -1).reshape(-1, 3)
    corners = corners[np.isfinite(corners).all(1)]
    assert len(corners) > 100
    assert corners @ weight + bias == pytest.approx(np.zeros(len(corners)), abs=1e-9)
    assert display.plane_ in display.ax_[1].collections
    assert [getattr(display.ax_[1], f"get_{axis}label")() for axis in "xyz"] == ["x₁", "x₂", "x₁·x₂"]


def test_other_features_can_be_added():
    X, y = make_circles(30, noise=0.05, factor=0.5, random_state=0)
    X, y = torch.from_numpy(X), 2 * torch.from_numpy(y) - 1
    display = plots.LiftedDisplay.from_data(X, y, "squares")
    assert display.after.verdict is tp.Verdict.SEPARATED
    assert display.height == pytest.approx(X.square().sum(1).numpy())
    useless = plots.LiftedDisplay.from_data(*XOR, lambda X: X[:, 0], name="x₁ again", max_epochs=3)
    assert useless.plane_ is None
    assert useless.ax_[1].get_zlabel() == "x₁ again"
    upright = plots.LiftedDisplay.from_data(*AND, lambda X: 0 * X[:, 0])  # a line does: the plane stands on it
    assert (upright.after.verdict, upright.plane_) == (tp.Verdict.SEPARATED, None)


def test_logs_on_one_chart():
    logs = {"AND": LOG, "OR": tp.RuleTrainer().fit(tp.Perceptron(2), *tp.data.gate("OR"))}
    made = {"AND": LOG.mistakes_by_epoch(), "OR": logs["OR"].log.mistakes_by_epoch()}
    for value, expected in (
        ("error", lambda counts: 25 * counts.double()),
        ("mistakes", torch.Tensor.double),
        ("total", lambda counts: counts.cumsum(0).double()),
    ):
        display = plots.ComparisonDisplay.from_logs(logs, value=value)
        for name, line in display.lines_.items():
            assert ydata(line) == pytest.approx(expected(made[name]).numpy())
            assert line.get_xdata().tolist() == list(range(1, len(made[name]) + 1))
    assert display.ax_.get_ylabel() == "mistakes so far"
    assert legend_of(display) == ["AND", "OR"]


DISPLAYS = {
    "regions": lambda ax: plots.DecisionRegionDisplay.from_model(tp.Perceptron(2), *AND, ax=ax),
    "path": lambda ax: plots.PathDisplay.from_log(LOG, max_panels=2, ax=ax),
    "curves": lambda ax: plots.LearningCurveDisplay([0.5, 0.25]).plot(ax=ax),
    "bound": lambda ax: plots.LearningCurveDisplay([0.5, 0.25], None, [2, 3], 9.0).plot(ax=ax),
    "bracket": lambda ax: plots.BracketDisplay([0.0, 0.1], [1.0, 0.5]).plot(ax=ax),
    "comparison": lambda ax: plots.ComparisonDisplay({"run": ([1, 2], [3, 4])}, "mistakes").plot(ax=ax),
    "margins": lambda ax: plots.MarginDisplay(torch.tensor([-1.0, 2.0])).plot(ax=ax),
    "weights": lambda ax: plots.WeightsDisplay(torch.eye(4), (2, 2)).plot(ax=ax),
    "confusion": lambda ax: plots.ConfusionDisplay(torch.eye(3, dtype=torch.int64), ("a", "b", "c")).plot(ax=ax),
    "lifted": lambda ax: plots.LiftedDisplay.from_data(*XOR, ax=ax),
    "transitions": lambda ax: plots.TransitionDisplay(torch.zeros(3, 2), torch.ones(2)).plot(ax=ax),
    "residuals": lambda ax: plots.ResidualDisplay.from_predictions(TARGETS, BEST, ax=ax),
}
PANELS = {"path": 2, "bound": 2, "weights": 4, "lifted": 2, "residuals": 2}


@pytest.mark.parametrize("name", DISPLAYS)
def test_displays_draw_where_they_are_told(name):
    figure = Figure(layout="constrained")
    axes = figure.subplots(1, 2)
    display = DISPLAYS[name](axes[0])
    assert display.figure_ is figure
    assert figure.legends == []  # the user's figure is left alone
    if name in PANELS:
        assert len(display.ax_) == PANELS[name]
        assert not axes[0].axison
        inside = [ax.get_subplotspec().get_topmost_subplotspec() for ax in display.ax_]
        assert set(inside) == {axes[0].get_subplotspec()}
    else:
        assert display.ax_ is axes[0]
        assert display.ax_.get_xlabel()
        assert display.ax_.get_ylabel()
    assert not axes[1].has_data()
    figure.canvas.draw()
    assert display._repr_png_() is None  # a notebook shows the user's figure, and would show it twice
    again = display.plot()
    assert again is display
    assert display.figure_ is not figure
    shown = Image.open(BytesIO(display._repr_png_()))
    assert shown.size == pytest.approx(100 * display.figure_.get_size_inches(), abs=1)
    assert len(repr(display)) < 100  # no tensors beside the picture


def test_panels_can_be_given_one_by_one():
    axes = Figure().subplots(2, 2)
    display = plots.PathDisplay.from_log(LOG, max_panels=4, ax=axes)
    assert display.ax_ == list(axes.flat)


@pytest.mark.slow
def test_nothing_is_shown_and_matplotlib_loads_on_use(fresh):
    code = """
import sys, torchperc as tp
plots = tp.plots
assert "matplotlib" not in sys.modules, "loaded before use"
X, y = tp.data.gate("XOR")
result = tp.RuleTrainer(2).fit(tp.Perceptron(2), X, y)
plots.PathDisplay.from_log(result.log)
plots.LiftedDisplay.from_data(X, y)
plots.WeightsDisplay.from_model(result, (1, 2))
assert "matplotlib.pyplot" not in sys.modules, "pyplot keeps figures and looks for a display"
"""
    assert fresh(code) == ""


FOUR = tp.MulticlassPerceptron(5, 4, init="normal", seed=0)


def regions(model=None, X=AND[0], y=AND[1], **options):
    return plots.DecisionRegionDisplay.from_model(model or tp.Perceptron(X.shape[1]), X, y, **options)


def started(part):
    nn.init.ones_(getattr(net := tp.Perceptron(2), part))
    return tp.RuleTrainer().fit(net, *AND).log


WIDE = tp.RuleTrainer(1).fit(tp.Perceptron(3), [[0, 0, 1], [1, 1, 0]], [-1, 1])


def animated(name="path.gif", **options):
    return plots.PathDisplay.from_log(LOG, max_panels=1).animate(name, **options)


test_wrong_arguments_are_named = refusals(
    (lambda: regions(ring="support"), "ring='support'.*log="),
    (lambda: regions(X=AND[0] + 1, ring="support", log=LOG), "ring='support'.*the X it was made on"),
    (lambda: regions(ring="support", log="log"), "log must be a MistakeLog"),
    (lambda: regions(y=[0, 0, 0, 1]), "y .*found 0, 1"),
    (lambda: regions(X=torch.zeros(4, 1)), "X has 1 feature"),
    (lambda: regions(X=csr_array(AND[0].numpy())), "X is sparse.*toarray"),
    (lambda: regions(tp.MLP(3, (2,)), torch.rand(4, 3)), "3 features.*not linear"),
    (lambda: regions(FOUR, torch.rand(4, 5), [0, 1, 2, 3]), "4 classes"),
    (lambda: regions(labels=("no",)), r"labels=\('no',\)"),
    (lambda: regions(lambda X: X[:1]), r"\(1, 2\) for 4 samples"),
    (lambda: regions("net"), "model must be"),
    (lambda: regions(ax="axes"), "ax .*found str"),
    (lambda: regions(margin=1.0), "margin"),
    (lambda: plots.PathDisplay.from_log(WIDE.log), "3 features"),
    (lambda: plots.PathDisplay.from_log(LOG, states=[19]), r"states=\[19\].*18"),
    (lambda: plots.PathDisplay.from_log(LOG, states=[]), r"states=\[\]"),
    (lambda: plots.PathDisplay.from_log(LOG, max_panels=0), "max_panels=0"),
    (lambda: plots.PathDisplay.from_log(LOG, max_panels=3, ax=Figure().subplots(2, 2)), "ax has 4 axes for 3 panels"),
    (lambda: plots.PathDisplay.from_log(LOG, max_panels=2, ax=Figure().add_axes((0, 0, 1, 1))), "ax is not part of a grid"),
    (lambda: plots.LearningCurveDisplay([0.5], bound=3).plot(), "bound=3 needs mistakes"),
    *((lambda part=part: plots.bracket_by_epoch(started(part)), "did not start from zero") for part in ("weight", "bias")),
    (lambda: plots.BracketDisplay([1.0, 2.0], [3.0]).plot(), r"lower has shape \(2,\) and upper \(1,\)"),
    (lambda: plots.MarginDisplay.from_model(linear([[math.nan, 1.0]], [0.0]), *AND), "not finite"),
    (lambda: animated("path.avi"), r"path='path.avi'.*\.gif or \.mp4"),
    (lambda: animated("none/path.gif"), "path='none/path.gif'.*folder"),
    (lambda: animated(fps=0), "fps=0"),
    (lambda: plots.MarginDisplay.from_model(tp.Perceptron(2), *AND, bins=0), "bins=0"),
    (lambda: plots.WeightsDisplay.from_model(tp.MLP(4, (2,))), "model is a MLP"),
    (lambda: plots.WeightsDisplay.from_model(tp.Perceptron(6), (2, 2)), r"shape=\(2, 2\).*6 weights"),
    (lambda: plots.WeightsDisplay.from_model(tp.Perceptron(4), 4), "shape=4"),
    (lambda: plots.TransitionDisplay(torch.zeros(2, 2), torch.zeros(2)).plot(), r"transition .*\(2, 2\)"),
    (lambda: plots.TransitionDisplay.from_model(nn.Linear(2, 2)), "model .*found Linear"),
    (lambda: plots.ConfusionDisplay.from_predictions([1, -1], [1]), r"y has shape \(2,\) and predicted \(1,\)"),
    (lambda: plots.ConfusionDisplay.from_predictions([[1]], [[1]]), r"y .*\(1, 1\)"),
    (lambda: plots.ConfusionDisplay.from_predictions([2, -1], [0, 1]), "y and predicted .*found -1"),
    (lambda: plots.ConfusionDisplay.from_predictions([0.5, 1], [0, 1]), "y and predicted .*found 0.5"),
    (lambda: plots.ConfusionDisplay.from_predictions([math.nan, 1], [0, 1]), "y and predicted .*found nan"),
    (lambda: plots.ConfusionDisplay.from_predictions([0, 3], [0, 1], ("a", "b")), "4 classes"),
    (lambda: plots.ConfusionDisplay.from_predictions(["a"], ["b"], ("a", "c")), r"labels=\('a', 'c'\).*'b'"),
    (lambda: plots.ResidualDisplay.from_predictions([], []), "y is empty"),
    (lambda: plots.ResidualDisplay.from_predictions(TARGETS, BEST[1:]), "predicted has 29 values for 30"),
    (lambda: plots.LiftedDisplay.from_data(*AND, "cube"), "feature='cube'"),
    (lambda: plots.LiftedDisplay.from_data(*XOR, ax=list(Figure().subplots(1, 2))), "axes must be in three dimensions"),
    (lambda: plots.LiftedDisplay.from_data(*AND, lambda X: X), "feature must map"),
    (lambda: plots.LiftedDisplay.from_data(*AND, lambda X: X[:, 0] / 0), r"feature\[0, 0\] = nan"),
    (lambda: plots.ComparisonDisplay.from_logs({}), "logs must be a mapping.*found {}"),
    (lambda: plots.ComparisonDisplay.from_logs({"a": LOG}, value="loss"), "value='loss'"),
)  # fmt: skip


LONG = [f"{k}: a name of exactly forty characters, yes"[:40] for k in range(12)]


def normal(*shape, seed=0):
    return torch.from_numpy(np.random.default_rng(seed).normal(size=shape))


def blobs(samples, classes, scale=1.0, shift=0.0):
    y = torch.from_numpy(np.random.default_rng(1).integers(0, classes, samples))
    return (4 * normal(classes, 2, seed=1)[y] + normal(samples, 2)) * scale + shift, y


def drawn(samples, classes, **look):
    data = {name: look.pop(name) for name in ("scale", "shift") if name in look}
    X, y = blobs(samples, classes, **data)
    net = tp.MulticlassPerceptron(2, classes, dtype=torch.float64)
    tp.RuleTrainer(3, order="shuffled", select="averaged").fit(net, X, y)
    return plots.DecisionRegionDisplay.from_model(net, X, y, **look)


def path(classes, **look):
    X, y = blobs(40, classes)
    log = tp.RuleTrainer(3).fit(tp.MulticlassPerceptron(2, classes, dtype=torch.float64), X, y).log
    return plots.PathDisplay.from_log(log, **look)


def confusion(classes, most, labels=None):
    matrix = torch.from_numpy(np.random.default_rng(0).integers(0, most, (classes, classes)))
    return plots.ConfusionDisplay(matrix, labels or [f"class {k}" for k in range(classes)]).plot()


def transitions(tags, scale, labels=None):
    weights = scale * normal(tags + 2, tags)
    return plots.TransitionDisplay(weights[:-1], weights[-1], labels).plot()


def weights(classes, shape, labels=None):
    return plots.WeightsDisplay(1e6 * normal(classes, shape[0] * shape[1]), shape, labels).plot()


def residuals(count, scale, target="y"):
    y = scale * normal(count)
    return plots.ResidualDisplay.from_predictions(y, 0.9 * y, target=target)


def comparison(names, scale):
    epochs = np.arange(1, 51)
    return plots.ComparisonDisplay(
        {name: (epochs, scale * np.exp(-epochs / (k + 1))) for k, name in enumerate(names)}, "loss"
    ).plot()


def run():
    X, y = tp.data.gate("AND")
    return tp.RuleTrainer().fit(tp.Perceptron(2), X, y, validation=(X, y))


def built(X, y):
    return plots.PathDisplay.from_build(tp.rules.build(X, y, max_epochs=1), X, y)


CASES = {
    "regions": lambda: drawn(60, 3),
    "regions, 10 classes with long names": lambda: drawn(100, 10, labels=LONG[:10], names=LONG[:2]),
    "regions, large numbers": lambda: drawn(50, 3, scale=1e9, shift=-3e9),
    "regions, small numbers": lambda: drawn(50, 3, scale=1e-7),
    "path": lambda: plots.PathDisplay.from_log(run().log),
    "built": lambda: built(normal(40, 2), torch.arange(40) % 2 * 2 - 1),
    "path, one panel": lambda: path(3, max_panels=1, labels=LONG[:3]),
    "path, 10 classes with long names": lambda: path(10, max_panels=12, labels=LONG[:10], names=LONG[:2]),
    "curves": lambda: plots.LearningCurveDisplay.from_result(run(), bound=51),
    "curves, one epoch": lambda: plots.LearningCurveDisplay([0.5], [0.25], [3], 51).plot(),
    "curves, 5,000 epochs": lambda: plots.LearningCurveDisplay(
        np.full(5000, 0.2), np.full(5000, 0.3), 1e5 * np.arange(5000), 3.2e12
    ).plot(),
    "bracket": lambda: plots.BracketDisplay.from_log(run().log, gamma=17**-0.5),
    "bracket, one epoch of small numbers": lambda: plots.BracketDisplay([1e-9], [3e-9], 2e-9).plot(),
    "margins": lambda: plots.MarginDisplay.from_model(run(), *tp.data.gate("AND")),
    "margins, large numbers": lambda: plots.MarginDisplay(torch.linspace(-3e6, 8e6, 1001)).plot(),
    "weights, 10 classes with long names": lambda: weights(10, (8, 8), LONG[:10]),
    "weights, one row": lambda: weights(3, (1, 40)),
    "confusion": lambda: confusion(2, 30, ("no", "yes")),
    "confusion, long names": lambda: confusion(10, 30, LONG[:10]),
    "confusion, large numbers": lambda: confusion(3, 10**8),
    "confusion, 26 classes": lambda: confusion(26, 300, [chr(97 + k) for k in range(26)]),
    "confusion, 100 classes": lambda: confusion(100, 30),
    "comparison of 10 long names": lambda: comparison(LONG[:10], 1e-8),
    "residuals": lambda: residuals(100, 10.0, "weight in kg"),
    "residuals, large numbers": lambda: residuals(100, 1e10, LONG[0]),
    "residuals of one sample": lambda: residuals(1, 1.0),
    "transitions": lambda: transitions(3, 10.0, ("noun", "verb", "DET")),
    "transitions, long names": lambda: transitions(12, 1000.0, LONG),
    "transitions, 46 tags": lambda: transitions(46, 10.0),
}


def boxes(texts, renderer):
    """The boxes of those texts that are seen, a little smaller, so that neighbours may touch."""
    found = [text for text in texts if text.get_visible() and text.get_text().strip()]
    return [(text.get_text(), text.get_window_extent(renderer).padded(-1)) for text in found]


def ticks(axis):
    """The labels of those ticks that are drawn."""
    low, high = sorted(axis.get_view_interval())
    room = 1e-9 * (high - low)
    return [
        tick.label1 if tick.label1.get_visible() else tick.label2
        for tick in axis.get_major_ticks()
        if low - room <= tick.get_loc() <= high + room
    ]


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_no_label_overlaps_another_or_is_cut_off_and_no_legend_covers_data(name):
    figure = CASES[name]().figure_
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    renderer = canvas.get_renderer()
    whole = figure.bbox.padded(2)
    for axes in figure.axes:
        slanted = axes.get_xticklabels() and axes.get_xticklabels()[0].get_rotation() not in (0, 90)
        lists = [boxes(ticks(axis), renderer) for axis in (axes.xaxis, axes.yaxis)]
        for found in lists[1:] if slanted else lists:  # boxes around slanted texts overlap though these do not
            for (first, one), (second, other) in combinations(found, 2):
                assert not one.overlaps(other), f"{first!r} and {second!r} overlap"
        named = boxes([axes.title, axes.xaxis.label, axes.yaxis.label], renderer)
        for text, box in [*lists[0], *lists[1], *named]:
            assert whole.x0 <= box.x0 and box.x1 <= whole.x1, f"{text!r} is cut off"  # noqa: PT018
            assert whole.y0 <= box.y0 and box.y1 <= whole.y1, f"{text!r} is cut off"  # noqa: PT018
        for text, box in named:
            for other, label in [*lists[0], *lists[1]]:
                assert not box.overlaps(label), f"{text!r} covers {other!r}"
        for text, box in boxes(axes.texts, renderer):
            inside = axes.get_window_extent(renderer).padded(1)
            assert inside.x0 <= box.x0 and box.x1 <= inside.x1, f"{text!r} leaves its axes"  # noqa: PT018
        for legend in figure.legends:
            assert not legend.get_window_extent(renderer).overlaps(axes.get_window_extent(renderer))
    for legend in figure.legends:
        box = legend.get_window_extent(renderer)
        assert whole.x0 <= box.x0 and box.x1 <= whole.x1  # noqa: PT018
        names = [text.get_text() for text in legend.get_texts()]
        assert len(set(names)) == len(names)  # shortened, they still differ


def test_numbers_in_cells_do_not_touch():
    for classes, most in ((26, 300), (3, 10**8), (10, 1000)):
        display = confusion(classes, most)
        canvas = FigureCanvasAgg(display.figure_)
        canvas.draw()
        cell = display.ax_.get_window_extent().width / classes
        assert max(text.get_window_extent(canvas.get_renderer()).width for text in display.texts_.values()) <= cell


def test_epochs_and_counts_are_integers():
    for display in (plots.LearningCurveDisplay([0.5]).plot(), plots.LearningCurveDisplay([0.5] * 50).plot()):
        low, high = display.ax_.get_xlim()
        shown = [place for place in display.ax_.get_xticks() if low <= place <= high]
        assert shown
        assert all(place == int(place) >= 1 for place in shown)


def test_percentages_are_not_below_zero():
    for values in ([0.0, 0.0], [50.0, 0.0]):
        low, high = plots.ComparisonDisplay({"run": ([1, 2], values)}, "error (%)").plot().ax_.get_ylim()
        assert -0.05 * high < low < 0
        assert high >= 1
