"""The command line: :mod:`torchperc.cli.commands` has the commands, :mod:`torchperc.cli.entry` calls them."""

from lazy_loader import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
