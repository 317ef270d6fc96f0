"""Engines run the rule: the same log from each, entry by entry."""

from lazy_loader import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
