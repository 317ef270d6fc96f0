"""The mistake-driven rule: conventions, trainer, mistake log, engines."""

from torchperc._lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
