"""The interactive page: the rule, its log, conventions and proofs to play with, in a browser or a notebook."""

from torchperc._lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
