"""Whether a hyperplane separates two sets, decided in exact arithmetic, with a proof either way."""

from lazy_loader import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
