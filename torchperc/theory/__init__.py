"""Theory: separability with proofs, margins, bounds on mistakes, limits. Names are loaded on first use."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torchperc.theory.bounds import Bracket, bracket, inseparable_bound, live_bracket, mistake_bound
    from torchperc.theory.certificates import Certificate
    from torchperc.theory.limits import auto_lr, lms_limit, logistic_limit, rate_warning, step_limit
    from torchperc.theory.margins import MaxMargin, margin, max_margin, radius
    from torchperc.theory.separating import separability

_HOME = {
    "Bracket": "bounds",
    "Certificate": "certificates",
    "MaxMargin": "margins",
    "auto_lr": "limits",
    "bracket": "bounds",
    "live_bracket": "bounds",
    "rate_warning": "limits",
    "step_limit": "limits",
    "inseparable_bound": "bounds",
    "lms_limit": "limits",
    "logistic_limit": "limits",
    "margin": "margins",
    "max_margin": "margins",
    "mistake_bound": "bounds",
    "radius": "margins",
    "separability": "separating",
}

__all__ = [
    "Bracket",
    "Certificate",
    "MaxMargin",
    "auto_lr",
    "bracket",
    "inseparable_bound",
    "live_bracket",
    "lms_limit",
    "logistic_limit",
    "margin",
    "max_margin",
    "mistake_bound",
    "radius",
    "rate_warning",
    "separability",
    "step_limit",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'torchperc.theory' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"torchperc.theory.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
