"""Studies and things to look at: the XOR lab, the demo and the interactive page."""

from lazy_loader import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
