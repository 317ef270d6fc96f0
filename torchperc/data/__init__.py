"""Data: gates, synthetic problems, tables from files, scaling and splits."""

from torchperc._lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
