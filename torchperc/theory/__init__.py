"""Theory: separability with proofs, margins, mistake bounds, learning rates that converge."""

from torchperc._lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
