"""Sequence labelling: tags for the tokens of sentences, learned by the perceptron rule on whole sequences."""

from torchperc._lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
