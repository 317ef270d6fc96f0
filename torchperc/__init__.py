"""torchperc: perceptrons in PyTorch, learned by gradient and by the exact mistake-driven rule, checked by each other.

Names are loaded on first use, so that ``import torchperc`` loads nothing else; ``__init__.pyi`` lists them all.
"""

import sys
from types import ModuleType

from lazy_loader import attach_stub

__version__ = "0.3.0"
__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)


class _Package(ModuleType):
    """Keeps ``torchperc.learn`` the function when a module of the folder of that name is imported."""

    def __setattr__(self, name: str, value: object) -> None:
        if name != "learn" or not isinstance(value, ModuleType):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
