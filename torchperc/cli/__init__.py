"""The command line: one module per command, :mod:`torchperc.cli.entry` calls them."""

from torchperc._lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
