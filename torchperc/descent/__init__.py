"""Gradient descent sample by sample, and the exact minimum of a loss."""

from torchperc._lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
