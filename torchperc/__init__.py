"""torchperc: perceptrons in PyTorch, learned by gradient and by the exact mistake-driven rule, checked by each other.

Names are loaded on first use, so that ``import torchperc`` loads nothing else; ``__init__.pyi`` lists them all.
"""

from lazy_loader import attach_stub

__version__ = "0.2.0"
__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
