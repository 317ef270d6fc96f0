"""Sequence labelling: a perceptron over whole sequences of tags, learned by rule or by gradient."""

from lazy_loader import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
