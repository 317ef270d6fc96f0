"""The interactive page: the rule, its log, conventions and proofs to play with, in a browser or a notebook."""

from lazy_loader import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
