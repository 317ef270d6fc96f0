"""Lightning under the name the user's script imports it by: ``pytorch_lightning``, or ``lightning.pytorch``.

The two packages hold the same code twice, and a Trainer of one refuses a module of the other. torchperc's modules are
built on ``lightning.pytorch`` if the script has imported that and not ``pytorch_lightning`` by the time they are first
used, else on ``pytorch_lightning``.
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytorch_lightning as pl
else:
    _OTHER = "lightning.pytorch" in sys.modules and "pytorch_lightning" not in sys.modules
    pl = importlib.import_module("lightning.pytorch" if _OTHER else "pytorch_lightning")

__all__ = ["pl"]
