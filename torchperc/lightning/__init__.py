"""torchperc under PyTorch Lightning: modules, data, callbacks and safe checkpoints."""

from importlib import import_module
from typing import Any

from lazy_loader import attach_stub

_own, _, __all__ = attach_stub(__name__, __file__)
__all__ += ["LitTagger"]  # which is at home in torchperc.sequences


def __getattr__(name: str) -> Any:
    return getattr(import_module("torchperc.sequences.lightning"), name) if name == "LitTagger" else _own(name)


def __dir__() -> list[str]:
    return __all__
