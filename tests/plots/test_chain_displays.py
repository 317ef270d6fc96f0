"""Pictures of sequence labelling: each cell is what the weights say."""

from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from torchperc import plots


def drawn(display):
    return np.ma.filled(display.image_.get_array().astype(float), np.nan)


@pytest.mark.parametrize("count", [1, 5, 46])
def test_every_transition_is_where_its_tags_are(count):
    generator = torch.Generator().manual_seed(count)
    transition, end = torch.randn(count + 1, count, generator=generator), torch.randn(count, generator=generator)
    names = [f"T{k:02d}$$" for k in range(count)]
    model = SimpleNamespace(net=SimpleNamespace(transition=transition, end=end))
    display = plots.TransitionDisplay.from_model(model, labels=names)
    rows, columns = (
        [label.get_text() for label in labels]
        for labels in (display.ax_.get_yticklabels(), display.ax_.get_xticklabels())
    )
    assert (rows, columns) == (["start", *names], [*names, "end"])
    cells = drawn(display)
    for row, before in enumerate(rows):
        for column, after in enumerate(columns):
            if before == "start" and after == "end":
                assert np.isnan(cells[row, column])
                continue
            source = count if before == "start" else names.index(before)
            expected = end[source] if after == "end" else transition[source, names.index(after)]
            assert cells[row, column] == float(expected)
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
    assert [display.texts_[1, column].get_text() for column in range(3)] == ["−0.12", "250", "4"]
    assert display.texts_[0, 1].get_text() == "3"
    assert display.texts_[2, 2].get_text() == "−5"
    assert plots.TransitionDisplay(torch.zeros(3, 2), torch.zeros(2)).plot().image_.get_clim() == (-1, 1)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: plots.TransitionDisplay(torch.zeros(2, 2), torch.zeros(2)).plot(), "shape \\(2, 2\\) for 2 weights"),
        (lambda: plots.TransitionDisplay(torch.zeros(3, 2), torch.zeros(2), ("a",)).plot(), "must name 2 classes"),
    ],
)
def test_wrong_values_are_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_a_model_without_transitions_is_refused():
    with pytest.raises(TypeError, match="model must be a ChainPerceptron or have one as its net, found Linear"):
        plots.TransitionDisplay.from_model(torch.nn.Linear(2, 2))
