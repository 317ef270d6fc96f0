"""Engines run the rule: the same log from each, entry by entry."""

from torchperc._lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
