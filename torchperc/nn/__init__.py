"""Perceptrons as ``nn.Module``: scores and decisions, losses with their derivatives, heads, modules."""

from lazy_loader import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
