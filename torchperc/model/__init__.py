"""Trained models: what they are made of, saved, loaded and exported."""

from torchperc._lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
