"""torchperc: perceptrons in PyTorch, learned by gradient and by the exact mistake-driven rule, checked by each other.

Names are loaded on first use, so that ``import torchperc`` costs nothing beyond what is then asked for.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torchperc import (
        checks,
        data,
        dialects,
        functional,
        heads,
        lightning,
        losses,
        modules,
        plots,
        reporting,
        rules,
        sklearn,
        theory,
    )
    from torchperc.crosschecking import CrossCheck, crosscheck
    from torchperc.descent import descend
    from torchperc.dialects import Dialect
    from torchperc.fitted import FittedModel
    from torchperc.heads import LMSHead, LogisticHead, PerceptronHead
    from torchperc.learning import Learned, learn
    from torchperc.losses import (
        CostLoss,
        LMSLoss,
        LogisticLoss,
        MulticlassPerceptronLoss,
        PerceptronLoss,
        ZeroOneLoss,
    )
    from torchperc.modules import MLP, JointPerceptron, MulticlassPerceptron, Perceptron
    from torchperc.optimum import Optimum, minimise
    from torchperc.portable import save_exported, save_onnx
    from torchperc.rules.conventions import Verdict
    from torchperc.rules.log import MistakeLog
    from torchperc.rules.run import RuleResult
    from torchperc.rules.trainer import RuleTrainer
    from torchperc.sweeping import Sweep, sweep

_HOME = {
    "CrossCheck": "crosschecking",
    "crosscheck": "crosschecking",
    "Dialect": "dialects",
    "FittedModel": "fitted",
    "LMSHead": "heads",
    "LogisticHead": "heads",
    "PerceptronHead": "heads",
    "Learned": "learning",
    "learn": "learning",
    "CostLoss": "losses",
    "LMSLoss": "losses",
    "LogisticLoss": "losses",
    "MulticlassPerceptronLoss": "losses",
    "PerceptronLoss": "losses",
    "ZeroOneLoss": "losses",
    "JointPerceptron": "modules",
    "MLP": "modules",
    "MulticlassPerceptron": "modules",
    "Perceptron": "modules",
    "MistakeLog": "rules.log",
    "RuleResult": "rules.run",
    "RuleTrainer": "rules.trainer",
    "Verdict": "rules.conventions",
    "Optimum": "optimum",
    "minimise": "optimum",
    "save_exported": "portable",
    "save_onnx": "portable",
    "Sweep": "sweeping",
    "sweep": "sweeping",
    "descend": "descent",
}
_ROOMS = (
    "checks",
    "data",
    "dialects",
    "functional",
    "heads",
    "lightning",
    "losses",
    "modules",
    "plots",
    "reporting",
    "rules",
    "sklearn",
    "theory",
)

__all__ = [
    "MLP",
    "CostLoss",
    "CrossCheck",
    "Dialect",
    "FittedModel",
    "JointPerceptron",
    "LMSHead",
    "LMSLoss",
    "Learned",
    "LogisticHead",
    "LogisticLoss",
    "MistakeLog",
    "MulticlassPerceptron",
    "MulticlassPerceptronLoss",
    "Optimum",
    "Perceptron",
    "PerceptronHead",
    "PerceptronLoss",
    "RuleResult",
    "RuleTrainer",
    "Sweep",
    "Verdict",
    "ZeroOneLoss",
    "checks",
    "crosscheck",
    "data",
    "descend",
    "dialects",
    "functional",
    "heads",
    "learn",
    "lightning",
    "losses",
    "minimise",
    "modules",
    "plots",
    "reporting",
    "rules",
    "save_exported",
    "save_onnx",
    "sklearn",
    "sweep",
    "theory",
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        value = getattr(importlib.import_module(f"torchperc.{_HOME[name]}"), name)
    elif name in _ROOMS:
        value = importlib.import_module(f"torchperc.{name}")
    elif name == "__version__":
        from importlib.metadata import version

        value = version("torchperc")
    else:
        raise AttributeError(f"module 'torchperc' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, "__version__"})
