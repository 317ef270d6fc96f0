"""Studies and things to look at: the XOR lab, the demo and the interactive page."""

from torchperc._lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
