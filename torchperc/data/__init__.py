"""Data: gates, synthetic problems, tables from files, scaling and splits."""

from lazy_loader import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
