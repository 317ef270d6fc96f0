"""Lightning as ``pl``: ``pytorch_lightning``, or ``lightning.pytorch`` if that was imported first."""

import importlib
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytorch_lightning as pl
else:
    _NAMES = ("pytorch_lightning", "lightning.pytorch")
    pl = importlib.import_module(next((name for name in sys.modules if name in _NAMES), _NAMES[0]))

__all__ = ["pl"]
