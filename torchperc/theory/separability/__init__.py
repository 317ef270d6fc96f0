"""Whether a hyperplane separates two sets, decided in exact arithmetic, with a proof either way."""

from torchperc._lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
