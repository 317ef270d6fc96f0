"""torchperc under PyTorch Lightning: modules, data, callbacks and safe checkpoints.

Names are loaded on first use, as in the package itself.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torchperc.lightning.board import Board
    from torchperc.lightning.callbacks import EpsilonStop, RestoreBest, SaveOnSignal, StopOnDivergence
    from torchperc.lightning.checkpoints import CheckpointError, SafeCheckpointIO
    from torchperc.lightning.classifier import LitClassifier
    from torchperc.lightning.datamodule import TabularDataModule
    from torchperc.lightning.loader import SliceLoader
    from torchperc.lightning.rule import LitRule
    from torchperc.lightning.running import fitted_model, make_trainer, quiet

_HOME = {
    "Board": "board",
    "EpsilonStop": "callbacks",
    "RestoreBest": "callbacks",
    "SaveOnSignal": "callbacks",
    "StopOnDivergence": "callbacks",
    "CheckpointError": "checkpoints",
    "SafeCheckpointIO": "checkpoints",
    "LitClassifier": "classifier",
    "TabularDataModule": "datamodule",
    "SliceLoader": "loader",
    "LitRule": "rule",
    "fitted_model": "running",
    "make_trainer": "running",
    "quiet": "running",
}

__all__ = [
    "Board",
    "CheckpointError",
    "EpsilonStop",
    "LitClassifier",
    "LitRule",
    "RestoreBest",
    "SafeCheckpointIO",
    "SaveOnSignal",
    "SliceLoader",
    "StopOnDivergence",
    "TabularDataModule",
    "fitted_model",
    "make_trainer",
    "quiet",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'torchperc.lightning' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"torchperc.lightning.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
