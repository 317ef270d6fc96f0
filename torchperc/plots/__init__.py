"""Pictures, as scikit-learn's displays are: a class each, made by a ``from_…`` method that draws and returns it.

Every display takes ``ax=None``, keeps what it drew as attributes that end in ``_``, ``ax_`` and ``figure_`` among them,
and can be drawn again with ``plot``. Figures are made without pyplot, so no screen is looked for and nothing stays
open; ``display.figure_.savefig("picture.png")`` writes one, and a notebook shows one that a cell returns. matplotlib is
imported on first use.

>>> import torchperc as tp
>>> X, y = tp.data.gate("AND")
>>> result = tp.RuleTrainer().fit(tp.Perceptron(2), X, y)
>>> tp.plots.DecisionRegionDisplay.from_model(result, X, y, ring="support").ring_.get_offsets().shape
(4, 2)
"""

from lazy_loader import attach_stub

from torchperc._checks import require_packages

require_packages(__name__, "matplotlib", "sklearn")
__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
