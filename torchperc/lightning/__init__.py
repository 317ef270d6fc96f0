"""torchperc under PyTorch Lightning: modules, data, callbacks and safe checkpoints."""

from importlib import import_module
from typing import Any

from lazy_loader import attach_stub

_own, _, __all__ = attach_stub(__name__, __file__)
_ELSEWHERE = {"LitTagger": "torchperc.sequences.lightning"}
__all__ += list(_ELSEWHERE)


def __getattr__(name: str) -> Any:
    return getattr(import_module(_ELSEWHERE[name]), name) if name in _ELSEWHERE else _own(name)


def __dir__() -> list[str]:
    return __all__
