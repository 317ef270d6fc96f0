"""Sequence labelling: a perceptron over whole sequences of tags, learned by rule or by gradient."""

from torchperc._lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
