"""Lightning under the name the user's script imports it by: ``pytorch_lightning``, or ``lightning.pytorch``.

The two packages hold the same code twice, and a Trainer of one refuses a module of the other. torchperc's modules are
built on ``lightning.pytorch`` if the script has imported that and not ``pytorch_lightning`` by the time they are first
used, else on ``pytorch_lightning``. Where a script has both, its Trainer may be of the wrong one, and Lightning's own
error would not say so: making a module warns.
"""

from __future__ import annotations

import importlib
import sys
import warnings
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytorch_lightning as pl
else:
    _OTHER = "lightning.pytorch" in sys.modules and "pytorch_lightning" not in sys.modules
    pl = importlib.import_module("lightning.pytorch" if _OTHER else "pytorch_lightning")

__all__ = ["pl", "warn_of_two_packages"]


def warn_of_two_packages() -> None:
    """Say which Trainer a module is for, if both packages are imported."""
    own = pl.__name__
    other = "pytorch_lightning" if own == "lightning.pytorch" else "lightning.pytorch"
    if other in sys.modules:
        warnings.warn(
            f"both pytorch_lightning and lightning.pytorch are imported, and a Trainer of one refuses modules of the "
            f"other. torchperc's modules are for {own}.Trainer here; for the other, import {other} alone before "
            "torchperc.lightning is used",
            UserWarning,
            stacklevel=4,
        )
