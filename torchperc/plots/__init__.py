"""Pictures, as scikit-learn's displays are: a class each, made by a ``from_…`` method that draws and returns it.

Every display takes ``ax=None``, keeps what it drew as attributes that end in ``_``, ``ax_`` and ``figure_`` among them,
and can be drawn again with ``plot``. Nothing is shown: figures are made without pyplot, so no display is looked for and
nothing stays open; ``display.figure_.savefig("picture.png")`` writes one. matplotlib is imported on first use.

>>> import torchperc as tp
>>> X, y = tp.data.gate("AND")
>>> result = tp.RuleTrainer().fit(tp.Perceptron(2), X, y)
>>> tp.plots.DecisionRegionDisplay.from_model(result, X, y, ring="support").ring_.get_offsets().shape
(4, 2)
"""

from torchperc.plots.bracket import BracketDisplay, bracket_by_epoch
from torchperc.plots.comparison import ComparisonDisplay
from torchperc.plots.confusion import ConfusionDisplay
from torchperc.plots.curves import LearningCurveDisplay, errors_by_epoch
from torchperc.plots.lifted import LiftedDisplay
from torchperc.plots.margins import MarginDisplay
from torchperc.plots.path import PathDisplay
from torchperc.plots.regions import DecisionRegionDisplay, decision_boundary
from torchperc.plots.style import COLOURS
from torchperc.plots.style import class_colours as _colours  # noqa: F401  # its name before there were several modules
from torchperc.plots.weights import WeightsDisplay

__all__ = [
    "COLOURS",
    "BracketDisplay",
    "ComparisonDisplay",
    "ConfusionDisplay",
    "DecisionRegionDisplay",
    "LearningCurveDisplay",
    "LiftedDisplay",
    "MarginDisplay",
    "PathDisplay",
    "WeightsDisplay",
    "bracket_by_epoch",
    "decision_boundary",
    "errors_by_epoch",
]
