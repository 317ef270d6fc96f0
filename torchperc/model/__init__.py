"""Trained models: what they are made of, saved, loaded and exported."""

from lazy_loader import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
