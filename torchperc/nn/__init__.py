"""Perceptrons as ``nn.Module``: scores and decisions, losses with their derivatives, heads, modules."""

from torchperc._lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
