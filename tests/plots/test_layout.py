"""Nothing overlaps and nothing is cut off: every display on usual and on extreme data, measured as it is drawn."""

from itertools import combinations

import numpy as np
import pytest
import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg

import torchperc as tp
from torchperc import plots

LONG = [f"{k}: a name of exactly forty characters, yes"[:40] for k in range(12)]


def normal(*shape, seed=0):
    return torch.from_numpy(np.random.default_rng(seed).normal(size=shape))


def blobs(samples, classes, scale=1.0, shift=0.0):
    y = torch.from_numpy(np.random.default_rng(1).integers(0, classes, samples))
    return (4 * normal(classes, 2, seed=1)[y] + normal(samples, 2)) * scale + shift, y


def regions(samples, classes, **look):
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
    return plots.BuildDisplay.from_result(tp.rules.build(X, y, max_epochs=1), X, y)


CASES = {
    "regions": lambda: regions(60, 3),
    "regions, 10 classes with long names": lambda: regions(100, 10, labels=LONG[:10], names=LONG[:2]),
    "regions, large numbers": lambda: regions(50, 3, scale=1e9, shift=-3e9),
    "regions, small numbers": lambda: regions(50, 3, scale=1e-7),
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
