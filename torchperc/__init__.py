"""torchperc: perceptrons in PyTorch, learned by gradient and by the exact mistake-driven rule, checked by each other.

Names are loaded on first use, so that ``import torchperc`` loads nothing else; ``__init__.pyi`` lists them all.
"""

from torchperc import _lazy

__version__ = "0.2.0"
__getattr__, __dir__, __all__ = _lazy.attach(__name__, __file__)
_lazy.install()
